//! Sessions: one thread's way to the store, and the operations on one key.
//!
//! A session whose server has gone goes over to the server that is there by then: of its own accord, with an
//! operation, and at its beginning only, since what the operation has looked up is good until its end. While
//! no other server is there, reads in shared memory go on from the last state of the one that has gone.

use std::net::IpAddr;
use std::time::Duration;

use kelix_fabric::{Clock, Endpoint, Fabric, Waiter};
use kelix_types::{Effect, Error, ErrorKind, Result, TableId, Version, mark};
use kelix_wire::{Op, RequestHead, Status};
use rustix::fd::{AsRawFd, RawFd};

use crate::Table;
use crate::batch::Batch;
use crate::catalogue::{BoundTable, Catalogue, Handles, IN_FORCE, is_between};
use crate::client::{Client, until_there};
use crate::connect::{self, FabricChoice, Setup};
use crate::engine::{
    BETWEEN_TRIES, Buffers, Connection, Engine, LOST, Patience, TryGet, ValuePart, Wanted, between_tries,
    check_key, is_passing, nanoseconds,
};
use crate::hot::{self, HotKey};
use crate::item::{Item, NewItem};
use crate::key::Key;
use crate::read::{Cost, Landing};
use crate::statistics::Statistics;
use crate::submit::Submitted;
use crate::transport::{Answer, Path, Transport};

/// Between two tries to write to a table whose next generation is about to come into force.
const BETWEEN_WRITES: Duration = Duration::from_micros(500);
/// Servers that may take over, one after another, in the middle of a read.
const TAKEOVERS_MAX: u32 = 16;

/// How to open a session.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SessionOptions {
    /// How gets look for their item.
    pub path: Path,
    /// The fabric to insist on: connecting fails where it cannot be had. Otherwise shared memory at a run
    /// directory; at a host and port verbs, if both sides have a device for RDMA and the server lets clients
    /// use it, else TCP.
    pub fabric: Option<FabricChoice>,
    /// Keep cached pointers, and over TCP and verbs copies of models, to this session instead of sharing them
    /// with the user's other processes on this host.
    pub private_caches: bool,
    /// How long a request may take before it fails with an unknown outcome, if nothing of it comes meanwhile:
    /// over TCP each 16 KiB that move, whether there or back, renew it, so whatever arrives at 18 KiB/s and
    /// more is got, however long that takes. So long may the server also take to answer a new session, but
    /// never less than 900 ms.
    pub timeout: Duration,
    /// For how much longer a session that gets no answer, or has lost its connection, or finds no server to
    /// begin with, tries to connect again: for so long in each operation, whatever that consists of. It asks
    /// again for what was not answered, and each write is done once; so as long as the server lives no
    /// outcome is unknown. Zero: not at all. `None`: not at all, or if the server is the primary of a cluster,
    /// for as long as another one may take to go on in its place ([`SessionOptions::CLUSTER_RETRY`]).
    pub retry_for: Option<Duration>,
    /// Most queue pairs that this process connects to the server, over verbs; further sessions share them.
    pub queue_pairs: usize,
    /// The address of this host whose RDMA device is to be used, instead of any that leads to the server.
    pub rdma_address: Option<IpAddr>,
    /// Bytes that copies of the models of each ordered table may have, where memory is out of reach of loads:
    /// over verbs, and over TCP for scans. With less room less of them is kept, and each get takes more
    /// READs; with none gets of ordered tables over verbs, and scans, go by message.
    pub model_bytes: usize,
    /// Writes are on the server's disk before they return, whatever the server does with others. The server
    /// has to write a log (`kelix serve --wal`).
    pub durable: bool,
    /// On a mirror: what this session has written or seen at the primary is read there until the mirror has
    /// it, so that the session finds its own writes and goes back to nothing older. Without it the mirror is
    /// read whatever that has.
    pub own_writes: bool,
    /// On a mirror: how old what is read may be. A mirror that has not heard from its primary for longer is
    /// not read: that is an [`ErrorKind::Unavailable`]. `None`: as old as the mirror lets it be.
    pub max_lag: Option<Duration>,
    /// On a mirror: all reads go to the primary, too. At a cluster whose nodes are on several hosts, where a
    /// primary is one by a lease: reads believe no clock. Each asks the primary, which answers when the
    /// register of the cluster has said, asked behind the read, that the node still is primary: some
    /// milliseconds, and one question for all that wait.
    pub strict: bool,
}

impl Default for SessionOptions {
    fn default() -> Self {
        SessionOptions {
            path: Path::Auto,
            fabric: None,
            private_caches: false,
            timeout: Duration::from_nanos(kelix_types::limits::REQUEST_TIMEOUT_NS),
            retry_for: None,
            queue_pairs: 4,
            rdma_address: None,
            model_bytes: 64 << 20,
            durable: false,
            own_writes: true,
            max_lag: None,
            strict: false,
        }
    }
}

impl SessionOptions {
    /// For how long sessions in a cluster try to connect again, unless they say otherwise.
    pub const CLUSTER_RETRY: Duration = Duration::from_secs(10);

    /// [`SessionOptions::retry_for`], as far as a server need not be known.
    pub(crate) fn retries_for(&self) -> Duration {
        self.retry_for.unwrap_or_default()
    }

    /// Sets [`SessionOptions::path`].
    pub fn path(self, path: Path) -> SessionOptions {
        SessionOptions { path, ..self }
    }

    /// Sets [`SessionOptions::fabric`].
    pub fn fabric(self, fabric: impl Into<Option<FabricChoice>>) -> SessionOptions {
        SessionOptions { fabric: fabric.into(), ..self }
    }

    /// Sets [`SessionOptions::private_caches`].
    pub fn private_caches(self, private_caches: bool) -> SessionOptions {
        SessionOptions { private_caches, ..self }
    }

    /// Sets [`SessionOptions::timeout`].
    pub fn timeout(self, timeout: Duration) -> SessionOptions {
        SessionOptions { timeout, ..self }
    }

    /// Sets [`SessionOptions::retry_for`].
    pub fn retry_for(self, retry_for: impl Into<Option<Duration>>) -> SessionOptions {
        SessionOptions { retry_for: retry_for.into(), ..self }
    }

    /// Sets [`SessionOptions::queue_pairs`].
    pub fn queue_pairs(self, queue_pairs: usize) -> SessionOptions {
        SessionOptions { queue_pairs, ..self }
    }

    /// Sets [`SessionOptions::rdma_address`].
    pub fn rdma_address(self, rdma_address: impl Into<Option<IpAddr>>) -> SessionOptions {
        SessionOptions { rdma_address: rdma_address.into(), ..self }
    }

    /// Sets [`SessionOptions::model_bytes`].
    pub fn model_bytes(self, model_bytes: usize) -> SessionOptions {
        SessionOptions { model_bytes, ..self }
    }

    /// Sets [`SessionOptions::durable`].
    pub fn durable(self, durable: bool) -> SessionOptions {
        SessionOptions { durable, ..self }
    }

    /// Sets [`SessionOptions::own_writes`].
    pub fn own_writes(self, own_writes: bool) -> SessionOptions {
        SessionOptions { own_writes, ..self }
    }

    /// Sets [`SessionOptions::max_lag`].
    pub fn max_lag(self, max_lag: impl Into<Option<Duration>>) -> SessionOptions {
        SessionOptions { max_lag: max_lag.into(), ..self }
    }

    /// Sets [`SessionOptions::strict`].
    pub fn strict(self, strict: bool) -> SessionOptions {
        SessionOptions { strict, ..self }
    }
}

/// How a compare-and-set ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompareAndSet {
    /// It was done; the key's version is now this one (`None` after a delete).
    Done(Option<Version>),
    /// The key has another version than expected: this one (`None`: it is absent).
    Mismatch(Option<Version>),
}

/// One thread's session with the server.
///
/// Reads look the item up in the server's memory by themselves, without the server doing anything; writes,
/// and reads that find nothing, are messages. A session that has lost its server goes on reading the last
/// state for as long as no other server takes over; [`Session::is_detached`] tells.
pub struct Session {
    pub(crate) engine: Engine,
    pub(crate) catalogue: Catalogue,
    pub(crate) submitted: Submitted,
    /// Where items land that are fetched one at a time.
    pub(crate) landing: Landing,
    pub(crate) batch: Batch,
    /// What scans read into.
    pub(crate) scanned: Buffers,
    /// Where items land that are shown.
    pub(crate) visited: Option<Item>,
}

impl Session {
    pub(crate) fn open(client: &Client, options: SessionOptions) -> Result<Session> {
        until_there(options.retries_for(), || Session::open_once(client, options.clone()))
    }

    fn open_once(client: &Client, mut options: SessionOptions) -> Result<Session> {
        let (connected, caller) = connect::numbered_session(client, &mut options)?;
        Session::over(client, connected, options, caller)
    }

    /// Opens a session that takes the place of the one with this connection.
    fn open_beside(connection: &mut Connection) -> Result<Session> {
        let Connection { client, options, setup, caller, .. } = connection;
        let (connected, caller) = setup.open_beside(client, options, *caller)?;
        let options = options.clone();
        Session::over(client, connected, options, caller)
    }

    /// A session over what has been set up.
    pub(crate) fn over(
        client: &Client,
        connected: (Setup, Transport<Endpoint>),
        options: SessionOptions,
        caller: Option<u64>,
    ) -> Result<Session> {
        let engine = Engine::over(client, connected, options, caller)?;
        Ok(Session {
            engine,
            submitted: Submitted::default(),
            catalogue: Catalogue::default(),
            landing: Landing::default(),
            batch: Batch::default(),
            scanned: Buffers::default(),
            visited: None,
        })
    }

    /// Connects to whichever server is at the address now, as operations do by themselves that come after one
    /// which met the end of the server. Handles of tables go on standing for the tables of their names; views
    /// do not. Requests under way are given up.
    pub fn reconnect(&mut self) -> Result<()> {
        let fresh = Session::open(&self.engine.connection.client, self.engine.connection.options.clone())?;
        self.adopt(fresh);
        self.submitted.finished.clear();
        Ok(())
    }

    /// At the beginning of an operation: if the server was lost, and there is one now, goes over to that. As
    /// long as there is none, the operation goes on with what there is.
    #[inline(always)]
    pub(crate) fn heal(&mut self) -> Result<()> {
        if self.engine.connection.server == LOST { self.go_over() } else { Ok(()) }
    }

    /// Goes over to the server that has taken over. Where that goes on with what the one before had, and cannot
    /// be reached yet, it is waited for as long as this session may try to connect again: until the patience,
    /// which begins with the first call, is at its end. An error: the one that was met, if there is no server.
    #[cold]
    fn await_successor(&mut self, error: kelix_types::Error, patience: &mut Option<u64>) -> Result<()> {
        let waits = self.engine.goes_on_elsewhere(&error);
        let retry_ns = nanoseconds(self.engine.connection.options.retries_for());
        let now_ns = self.engine.transport.fabric.now_ns();
        let until_ns = *patience.get_or_insert(now_ns.saturating_add(retry_ns));
        loop {
            if waits {
                self.engine.connection.next_try_ns = 0;
            }
            self.heal()?;
            if self.engine.connection.server != LOST {
                return Ok(());
            }
            let left_ns = until_ns.saturating_sub(self.engine.transport.fabric.now_ns());
            if !waits || left_ns == 0 {
                return Err(error);
            }
            let tried_for = Duration::from_nanos(retry_ns.saturating_sub(left_ns));
            self.engine.connection.setup.nap(between_tries(tried_for));
        }
    }

    /// Goes over to the server that has taken over, to do there what was not done. An error: the one that was
    /// met, where that server does not go on with what the one before had.
    #[cold]
    fn find_heir(&mut self, error: kelix_types::Error, patience: &mut Option<u64>) -> Result<()> {
        if self.engine.goes_on_elsewhere(&error) {
            return self.await_successor(error, patience);
        }
        let life = self.engine.transport.life();
        let is_there = self.heal().is_ok() && self.engine.connection.server != LOST;
        if is_there && self.engine.transport.life() == life { Ok(()) } else { Err(error) }
    }

    #[cold]
    fn go_over(&mut self) -> Result<()> {
        let outstanding = self.outstanding();
        let Engine { transport, connection, .. } = &mut self.engine;
        // What is under way may be asked again over another connection to the same server: that is for
        // whoever waits for it.
        let asks_again = connection.caller.is_some() && outstanding > 0;
        let now_ns = transport.fabric.now_ns();
        if asks_again || now_ns < connection.next_try_ns || !connection.setup.opens_sessions() {
            return Ok(());
        }
        // If only the connection is lost, a session that may come again is the same as before, with its
        // views.
        let came_again = connection.caller.map(|caller| self.engine.connect_again(caller));
        let fresh = match came_again {
            Some(Err(error)) if error.kind() != ErrorKind::Superseded => Err(error),
            Some(Ok(())) => Ok(None),
            _ => Session::open_beside(&mut self.engine.connection).map(Some),
        };
        match fresh {
            Ok(None) => Ok(()),
            Ok(Some(fresh)) => {
                mark!("session went over to another server");
                self.adopt(fresh);
                Ok(())
            }
            Err(error) if is_passing(&error) || error.kind() == ErrorKind::System => {
                // A server that stands still is not waited for by every operation.
                let Engine { transport, connection, .. } = &mut self.engine;
                let ended_ns = transport.fabric.now_ns();
                connection.next_try_ns = ended_ns + (ended_ns - now_ns).max(nanoseconds(BETWEEN_TRIES));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Becomes a session that was just opened. Of what was submitted here nothing is answered any more.
    fn adopt(&mut self, mut fresh: Session) {
        self.give_up_submitted();
        let (old, new) = (&mut self.engine, &mut fresh.engine);
        let mut oldest = None;
        if new.transport.life() == old.transport.life() {
            // The server takes this for somebody who knows no table that was dropped before.
            new.transport.age = old.transport.age + 1;
            new.connection.server = new.transport.handles();
            oldest = Some(new.transport.age);
        }
        new.connection.connections = old.connection.connections + 1;
        new.connection.ways = old.connection.ways + 1;
        new.transport.total = old.transport.cost();
        new.transport.set_path(old.transport.path());
        new.transport.inherit(&old.transport);
        fresh.catalogue.handles = Handles::of_successor(&mut self.catalogue.handles, oldest);
        fresh.submitted.finished = std::mem::take(&mut self.submitted.finished);
        fresh.submitted.next_ticket = self.submitted.next_ticket;
        *self = fresh;
    }

    /// How gets look for their item from now on.
    pub fn set_path(&mut self, path: Path) {
        self.engine.transport.set_path(path);
    }

    /// Whether writes are on the server's disk before they return, from now on ([`SessionOptions::durable`]).
    pub fn set_durable(&mut self, durable: bool) {
        self.engine.connection.options.durable = durable;
    }

    /// What all operations of this session have cost so far.
    pub fn cost(&self) -> Cost {
        self.engine.transport.cost()
    }

    /// Name of the fabric in use.
    pub fn fabric(&self) -> &'static str {
        self.engine.transport.fabric.name()
    }

    /// Whether the server is known to have gone. Reads in shared memory then go on from its last state, and
    /// writes fail, until there is a server again: the session connects to that by itself, and looks its
    /// tables up there by their names.
    pub fn is_detached(&self) -> bool {
        self.engine.connection.detached
    }

    /// Whether the server is a mirror: then reads are of the mirror's memory, on this host, and writes go to
    /// the primary over a connection that the first of them opens.
    pub fn is_mirror(&self) -> bool {
        self.engine.transport.is_on_mirror()
    }

    /// Where the server is that the mirror follows. `None`: this is no mirror.
    pub fn primary(&self) -> Option<&str> {
        self.engine.transport.primary_address()
    }

    /// How long ago the mirror is known to have had all that its primary had. `None`: this is no mirror, or it
    /// has not heard from its primary yet, or runs in another time namespace, with a clock of its own.
    pub fn lag(&self) -> Option<Duration> {
        self.engine.lag()
    }

    /// Tells the server from all others: the random number of its store, which snapshots keep, and that of
    /// this life of the store, which no other life has.
    pub fn server(&self) -> (u64, u64) {
        (self.engine.transport.seed(), self.engine.transport.life())
    }

    /// The descriptor (on Windows the socket) that becomes readable when answers to submitted operations have
    /// arrived. Valid while the session is. [`Session::poll`] says when to wait for it.
    pub fn fd(&self) -> RawFd {
        self.engine.transport.fabric.fd().expect("a fabric with a descriptor").as_raw_fd()
    }

    /// How many connections this session has had before the one it has: when that has grown, [`Session::fd`]
    /// is another descriptor.
    pub fn past_connections(&self) -> u32 {
        self.engine.connection.connections
    }

    /// Looks up again, with their next use, what names of loaded tables lead to. Where memory is out of reach
    /// of loads a session looks from time to time only; whoever has built a generation in one session, or
    /// dropped a dataset, lets the program's other sessions find that at once.
    pub fn forget_names(&mut self) {
        self.catalogue.forget_names();
    }

    /// The keys that sessions ask for most, as the statistics of this session's server tell of them: those that
    /// asked for most come first. Sessions sample one operation of some thousand, a batch counting as one, and
    /// give the newest half a thousand of their samples the most weight. Keys of tables without items are not
    /// told, nor those whose item cannot be found any more.
    ///
    /// # Errors
    /// As of a get: the server may have gone.
    pub fn hot_keys(&mut self, statistics: &Statistics) -> Result<Vec<HotKey>> {
        self.operate("hot_keys", |session| hot::hot_keys(session, statistics))
    }

    // ---- what public calls begin and end with ----

    /// Runs a public call and names the call in its error, so that nothing below has to know its caller.
    #[inline(always)]
    pub(crate) fn operate<T>(
        &mut self,
        operation: &'static str,
        call: impl FnOnce(&mut Session) -> Result<T>,
    ) -> Result<T> {
        call(self).map_err(|error| error.of(operation))
    }

    /// Runs a public call that reads a table, as [`Session::operate`] does. Its beginning is where the
    /// table's handle leads, and what was read counts only if the table's generation could still be read in
    /// the end. A read in the middle of which another server takes over begins again, at that one, if the
    /// session can go over to it.
    #[inline(always)]
    pub(crate) fn read_table<T>(
        &mut self,
        operation: &'static str,
        table: Table,
        mut call: impl FnMut(&mut Session, BoundTable) -> Result<T>,
    ) -> Result<T> {
        match self.read_table_once(table, &mut call) {
            Err(error) => self.read_table_again(error, table, call).map_err(|error| error.of(operation)),
            read => read,
        }
    }

    #[inline(always)]
    fn read_table_once<T>(
        &mut self,
        table: Table,
        call: &mut impl FnMut(&mut Session, BoundTable) -> Result<T>,
    ) -> Result<T> {
        let table = self.check_table(table)?;
        let found = call(self, table)?;
        self.check_generation(table.generation)?;
        Ok(found)
    }

    /// Goes on behind an error, apart from the way of a read that is well.
    #[cold]
    #[inline(never)]
    fn read_table_again<T>(
        &mut self,
        mut error: Error,
        table: Table,
        mut call: impl FnMut(&mut Session, BoundTable) -> Result<T>,
    ) -> Result<T> {
        let mut patience = None;
        for _ in 0..TAKEOVERS_MAX {
            if error.kind() != ErrorKind::Superseded || !error.retry() {
                break;
            }
            self.await_successor(error, &mut patience)?;
            match self.read_table_once(table, &mut call) {
                Err(next) => error = next,
                read => return read,
            }
        }
        Err(error)
    }

    /// Runs a public call that writes to a table, and names it in its error. By the table's name, and another
    /// generation comes into force meanwhile: it writes to that.
    #[inline(always)]
    pub(crate) fn write_table<T>(
        &mut self,
        operation: &'static str,
        table: Table,
        mut write: impl FnMut(&mut Session, TableId) -> Result<T>,
    ) -> Result<T> {
        let mut patience = None;
        let mut write = |session: &mut Session| loop {
            let written = session.check_table(table).and_then(|BoundTable { id, .. }| write(session, id));
            match written {
                // Nothing was done yet, and another server may go on with what this one had.
                Err(error)
                    if error.effect() == Effect::No
                        && error.kind() == ErrorKind::Superseded
                        && error.retry() =>
                {
                    session.find_heir(error, &mut patience)?;
                }
                written => return written,
            }
        };
        self.operate(operation, |session| match write(session) {
            Err(error) if table.generation == IN_FORCE && is_between(&error) => {
                session.write_after_switch(&mut write)
            }
            result => result,
        })
    }

    #[cold]
    fn write_after_switch<T>(&mut self, write: &mut impl FnMut(&mut Session) -> Result<T>) -> Result<T> {
        mark!("write waited for another generation");
        // A mirror may not have heard of the next one yet.
        self.engine.transport.read_at_primary_only(true);
        let written = self.write_to_next(write);
        self.engine.transport.read_at_primary_only(false);
        written
    }

    fn write_to_next<T>(&mut self, write: &mut impl FnMut(&mut Session) -> Result<T>) -> Result<T> {
        let mut patience = Patience::default();
        loop {
            self.engine.connection.setup.nap(BETWEEN_WRITES);
            self.catalogue.forget_names();
            match write(self) {
                Err(error)
                    if is_between(&error)
                        && patience.waited(self.engine.transport.fabric.now_ns()) < self.engine.limit() => {}
                result => return result,
            }
        }
    }

    /// Where a handle leads, at the beginning of an operation.
    #[inline]
    pub(crate) fn check_table(&mut self, table: Table) -> Result<BoundTable> {
        if table.server != self.engine.connection.server {
            self.heal()?;
        }
        self.catalogue.bind(&mut self.engine, table)
    }

    /// Looks, at the end of an operation, whether what it read can still be read.
    #[inline]
    pub(crate) fn check_generation(&mut self, generation: u64) -> Result<()> {
        self.catalogue.check_generation(&mut self.engine, generation)
    }

    // ---- operations on one key ----

    /// Gets an item. `Ok(None)`: the key is absent.
    #[inline]
    pub fn get(&mut self, table: Table, key: impl Key) -> Result<Option<Item>> {
        self.get_item(table, key.into_bytes().as_ref())
    }

    fn get_item(&mut self, table: Table, key: &[u8]) -> Result<Option<Item>> {
        self.read_table("get", table, |session, table| {
            let Session { engine, catalogue, landing, .. } = session;
            catalogue.fetch_item(engine, landing, table, key)
        })
    }

    /// Gets the value of a plain item (or the unnamed attribute) into the caller's buffer, without
    /// allocating. Returns its length and version, `Ok(None)` if the key is absent, and
    /// [`ErrorKind::BufferTooSmall`] if the buffer is.
    #[inline]
    pub fn get_into(
        &mut self,
        table: Table,
        key: impl Key,
        buffer: &mut [u8],
    ) -> Result<Option<(usize, Version)>> {
        let key = key.into_bytes();
        self.read_table("get_into", table, |session, table| {
            session.engine.fetch_into(table.id, key.as_ref(), buffer, &mut session.landing)
        })
    }

    /// Gets a value as [`Session::get_into`] does, if it can be had by loads from memory alone: never waits,
    /// sends, maps or calls the system, so that whoever must not be kept waiting (a garbage collector, say)
    /// may call it. [`TryGet::WouldWait`]: call `get_into`, which does what is due. So it is from time to
    /// time for every key, for keys that a hash table does not have, values of more than a few KiB, and
    /// wherever memory is not within reach of loads.
    #[inline]
    pub fn try_get_into(&mut self, table: Table, key: impl Key, buffer: &mut [u8]) -> Result<TryGet> {
        let key = key.into_bytes();
        self.operate("try_get_into", |session| {
            let Session { engine, catalogue, landing, .. } = session;
            let Some(table) = catalogue.bound(engine, table) else { return Ok(TryGet::WouldWait) };
            let found = engine.try_fetch_into(table.id, key.as_ref(), buffer, landing)?;
            let is_listed = catalogue.is_listed(engine, table.generation);
            Ok(if is_listed { found } else { TryGet::WouldWait })
        })
    }

    /// Gets a part of a value: from a byte on as much as the buffer has room for, and no bytes behind the end
    /// of the value. All of it is of one version, which is returned; parts of one value that are got one
    /// after the other are of one value if their versions are the same. Of a value of more than a few KiB
    /// only the part is read.
    pub fn get_range_into(
        &mut self,
        table: Table,
        key: impl Key,
        from: u64,
        buffer: &mut [u8],
    ) -> Result<Option<ValuePart>> {
        let key = key.into_bytes();
        self.read_table("get_range_into", table, |session, table| {
            session.engine.fetch_part((table.id, key.as_ref()), from, buffer, &mut session.landing)
        })
    }

    /// Gets an item into one that is there, in the memory that it has. `Ok(false)`: the key is absent, and
    /// the item stays. A loop of this allocates nothing once it has grown. After an error the item is of no
    /// use.
    pub fn get_item_into(&mut self, table: Table, key: impl Key, item: &mut Item) -> Result<bool> {
        let key = key.into_bytes();
        self.read_table("get_item_into", table, |session, BoundTable { id, generation }| {
            let Session { engine, catalogue, landing, .. } = session;
            let wanted = Wanted { table: id, key: key.as_ref(), pointer: None };
            let found = engine.fetch(wanted, landing)?.is_some();
            if found {
                catalogue.take_landed(engine, landing, item, generation)?;
            }
            Ok(found)
        })
    }

    /// Puts a plain item. Returns its version.
    #[inline]
    pub fn put(&mut self, table: Table, key: impl Key, value: &[u8]) -> Result<Version> {
        let answer = self.write_plain("put", table, Op::Put, (key.into_bytes().as_ref(), value), None)?;
        Ok(Version(answer.version))
    }

    /// Deletes a key. Returns whether it was there.
    #[inline]
    pub fn delete(&mut self, table: Table, key: impl Key) -> Result<bool> {
        let answer = self.write_plain("delete", table, Op::Delete, (key.into_bytes().as_ref(), &[]), None)?;
        Ok(answer.status == Status::Ok)
    }

    /// Puts a plain item if the key's version is still the expected one (`None`: if it is absent).
    pub fn compare_and_set(
        &mut self,
        table: Table,
        key: impl Key,
        expected: Option<Version>,
        value: &[u8],
    ) -> Result<CompareAndSet> {
        let key = key.into_bytes();
        let item = (key.as_ref(), value);
        let answer = self.write_plain("compare_and_set", table, Op::Put, item, Some(expected))?;
        Ok(compared(Op::Put, &answer))
    }

    /// Deletes a key if its version is still the expected one.
    pub fn compare_and_delete(
        &mut self,
        table: Table,
        key: impl Key,
        expected: Version,
    ) -> Result<CompareAndSet> {
        let key = key.into_bytes();
        let expect = Some(Some(expected));
        let answer =
            self.write_plain("compare_and_delete", table, Op::Delete, (key.as_ref(), &[]), expect)?;
        Ok(compared(Op::Delete, &answer))
    }

    /// A write of a plain item, or of none, and its answer.
    fn write_plain(
        &mut self,
        operation: &'static str,
        table: Table,
        op: Op,
        (key, value): (&[u8], &[u8]),
        expect: Option<Option<Version>>,
    ) -> Result<Answer> {
        self.write_table(operation, table, |session, id| {
            let head = RequestHead { expect, ..RequestHead::new(op, 0, id) };
            session.engine.write(head, key, value)
        })
    }

    /// Puts an item with attributes and links. Returns its version.
    pub fn put_item(&mut self, table: Table, key: impl Key, item: &NewItem) -> Result<Version> {
        match self.write_item("put_item", table, key.into_bytes().as_ref(), None, item)? {
            CompareAndSet::Done(version) => Ok(version.unwrap_or(Version(0))),
            CompareAndSet::Mismatch(_) => unreachable!("nothing was expected"),
        }
    }

    /// Puts an item if the key's version is still the expected one (`None`: if it is absent).
    pub fn compare_and_set_item(
        &mut self,
        table: Table,
        key: impl Key,
        expected: Option<Version>,
        item: &NewItem,
    ) -> Result<CompareAndSet> {
        let key = key.into_bytes();
        self.write_item("compare_and_set_item", table, key.as_ref(), Some(expected), item)
    }

    fn write_item(
        &mut self,
        operation: &'static str,
        table: Table,
        key: &[u8],
        expect: Option<Option<Version>>,
        item: &NewItem,
    ) -> Result<CompareAndSet> {
        let answer = self.write_table(operation, table, |session, id| {
            // Of the table that its links lead to another generation may be in force than of the item's own.
            check_key(id, key)?;
            let Session { engine, catalogue, .. } = session;
            let (head, body) = catalogue.encode_item(engine, id, expect, item)?;
            engine.write(head, key, &body)
        })?;
        debug_assert!(matches!(answer.status, Status::Ok | Status::Mismatch));
        Ok(compared(Op::Put, &answer))
    }
}

/// What it has cost is told, also by a process that ends after a few reads.
impl Drop for Session {
    fn drop(&mut self) {
        let is_own = !self.engine.transport.countdown.is_forked();
        if is_own && !self.engine.connection.detached && !std::thread::panicking() {
            self.engine.transport.publish_counters();
        }
    }
}

/// How a write ended that was to be done if the key had the expected version.
pub(crate) fn compared(op: Op, answer: &Answer) -> CompareAndSet {
    match (answer.status, op) {
        (Status::Ok, Op::Delete) => CompareAndSet::Done(None),
        (Status::Ok, _) => CompareAndSet::Done(answer.version()),
        _ => CompareAndSet::Mismatch(answer.version()),
    }
}
