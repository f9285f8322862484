//! Sessions: one thread's way to the store, and the plain operations.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use kelix_fabric::{Endpoint, Fabric};
use kelix_types::limits::KEY_BYTES_MAX;
use kelix_types::{Effect, Error, ErrorKind, KeyHash, Result, TableId, Version};
use kelix_wire::control::Caller;
use kelix_wire::{Op, RequestHead, Status};
use rustix::fd::{AsRawFd, RawFd};

use crate::Table;
use crate::batch::{BatchBuffers, Wanted};
use crate::client::{Client, until_there};
use crate::connect::{self, FabricChoice, Setup};
use crate::connection::{Connection, End};
use crate::core::{Answer, Core, Path};
use crate::healing::{Handles, LOST};
use crate::item::Item;
use crate::ordered::Looked;
use crate::pointers::Pointer;
use crate::read::{Cost, Landing, ReadOp};
use crate::scan::Buffers;
use crate::submit::Submitted;
use crate::tables::NameCache;
use crate::views::{BoundTable, Views};
use crate::waiting::Patience;

/// Operations between two looks at what rarely changes: the server's life, the set of segments, the counters.
const OPERATIONS_A_LOOK: u32 = 1 << 10;
/// Rounds of asking and reading before a get gives up on an item that is never the same twice.
const ROUNDS_MAX: u32 = 16;
/// Between two more, where the item may stand in a segment that is not registered yet.
const ROUND: Duration = Duration::from_millis(2);

/// How to open a session.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// How gets look for their item.
    pub path: Path,
    /// The fabric to insist on: connecting fails where it cannot be had. Otherwise shared memory at a run directory; at a host and
    /// port verbs, if both sides have a device for RDMA and the server lets clients use it, else TCP.
    pub fabric: Option<FabricChoice>,
    /// Keep cached pointers, and over TCP copies of models, to this session instead of sharing them with the user's other
    /// processes on this host.
    pub private_caches: bool,
    /// How long a request may take before it fails with an unknown outcome, if nothing of it comes meanwhile: over TCP each 16 KiB that move, whether there or back,
    /// renew it, so whatever arrives at 18 KiB/s and more is got, however long that takes. So long may the server also take to answer a new session,
    /// but never less than 900 ms.
    pub timeout: Duration,
    /// For how much longer a session that gets no answer, or has lost its connection, or finds no server to begin with, tries to connect again: for
    /// so long in each operation, whatever that consists of. It asks again
    /// for what was not answered, and each write is done once; so as long as the server lives no outcome is unknown.
    /// Zero: not at all.
    pub retry_for: Duration,
    /// Most queue pairs that this process connects to the server, over verbs; further sessions share them.
    pub queue_pairs: usize,
    /// The address of this host whose RDMA device is to be used, instead of any that leads to the server.
    pub rdma_address: Option<IpAddr>,
    /// Bytes that copies of the models of each ordered table may have, where memory is out of reach of loads (over TCP). With less
    /// room less of them is kept, and each get takes more READs; with none gets of ordered tables go by message.
    pub model_bytes: usize,
}

impl Default for SessionOptions {
    fn default() -> Self {
        SessionOptions {
            path: Path::Auto,
            fabric: None,
            private_caches: false,
            timeout: Duration::from_nanos(kelix_types::limits::REQUEST_TIMEOUT_NS),
            retry_for: Duration::ZERO,
            queue_pairs: 4,
            rdma_address: None,
            model_bytes: 64 << 20,
        }
    }
}

/// One thread's session with the server.
///
/// Reads look the item up in the server's memory by themselves, without the server doing anything; writes, and
/// reads that find nothing, are messages. A session that has lost its server goes on reading the last state for as
/// long as no other server takes over; [`Session::is_detached`] tells.
pub struct Session {
    pub(crate) core: Core<Endpoint>,
    pub(crate) connection: Connection,
    pub(crate) handles: Handles,
    pub(crate) views: Views,
    pub(crate) names: NameCache,
    pub(crate) submitted: Submitted,
    pub(crate) landing: Landing,
    /// Where the item just fetched stands.
    pub(crate) pointer: Option<Pointer>,
    pub(crate) batch: BatchBuffers,
    /// What scans read into.
    pub(crate) scanned: Buffers,
    /// Where items land that are shown.
    pub(crate) visited: Option<Item>,
}

pub(crate) fn check_key(table: TableId, key: &[u8]) -> Result<()> {
    if table.kind().takes_key(key) { Ok(()) } else { Err(no_key(table, key)) }
}

#[cold]
fn no_key(table: TableId, key: &[u8]) -> Error {
    let allowed = match table.kind().has_numbers() {
        true => "the keys of this table are numbers of 8 bytes, highest first".to_string(),
        false => format!("the longest allowed is {KEY_BYTES_MAX}"),
    };
    Error::unnamed(ErrorKind::InvalidArgument, format!("a key of {} bytes; {allowed}", key.len()))
}

impl Session {
    pub(crate) fn open(client: &Client, options: SessionOptions) -> Result<Session> {
        until_there(options.retry_for, || Session::open_once(client, options.clone()))
    }

    pub(crate) fn open_once(client: &Client, options: SessionOptions) -> Result<Session> {
        // As hard to guess as the keys that the standard library's hash tables get.
        let caller = RandomState::new().hash_one(std::process::id()).max(1);
        let caller = Some(caller).filter(|_| !options.retry_for.is_zero());
        let greeting = caller.map(|number| Caller { number, again: false });
        let (setup, core) = connect::session(client, &options, greeting)?;
        Session::over(client, (setup, core), options, caller)
    }

    /// A session over what has been set up.
    pub(crate) fn over(
        client: &Client,
        (setup, mut core): (Setup, Core<Endpoint>),
        options: SessionOptions,
        caller: Option<u64>,
    ) -> Result<Session> {
        core.set_path(options.path);
        core.keeps_requests = caller.is_some();
        let server = core.handles();
        let shards = core.shards();
        let between_looks = if core.fabric.map_age_max_ns().is_some() { 0 } else { OPERATIONS_A_LOOK - 1 };
        let connection = Connection {
            client: client.clone(),
            setup,
            options,
            caller,
            connections: 0,
            connected_ns: 0,
            next_try_ns: 0,
            budget: None,
            detached: false,
            segments_versions: vec![0; shards],
            operations: 0,
            between_looks,
            looked_around_ns: 0,
        };
        let mut session = Session {
            core,
            connection,
            handles: Handles::of(server),
            views: Views::default(),
            names: NameCache::default(),
            submitted: Submitted::to(shards),
            landing: Landing::default(),
            pointer: None,
            batch: BatchBuffers::default(),
            scanned: Buffers::default(),
            visited: None,
        };
        session.look_around()?;
        Ok(session)
    }

    /// Connects to whichever server is at the address now, as operations do by themselves that come after one which met the end of the server.
    /// Handles of tables go on standing for the tables of their names; views do not. Requests under way are given up.
    pub fn reconnect(&mut self) -> Result<()> {
        let fresh = Session::open(&self.connection.client, self.connection.options.clone())?;
        self.adopt(fresh);
        self.submitted.finished.clear();
        Ok(())
    }

    /// How gets look for their item from now on.
    pub fn set_path(&mut self, path: Path) {
        self.core.set_path(path);
    }

    /// What all operations of this session have cost so far.
    pub fn cost(&self) -> Cost {
        self.core.cost()
    }

    /// Name of the fabric in use.
    pub fn fabric(&self) -> &'static str {
        self.core.fabric.name()
    }

    /// Whether the server is known to have gone. Reads in shared memory then go on from its last state, and writes fail, until there is a server
    /// again: the session connects to that by itself, and looks its tables up there by their names.
    pub fn is_detached(&self) -> bool {
        self.connection.detached
    }

    /// Counts operations and now and then looks at what rarely changes.
    #[inline]
    pub(crate) fn note_operation(&mut self) -> Result<()> {
        self.connection.operations = self.connection.operations.wrapping_add(1);
        if self.connection.operations & self.connection.between_looks == 0 {
            self.look_around()
        } else {
            Ok(())
        }
    }

    #[cold]
    fn look_around(&mut self) -> Result<()> {
        if let Some(age_ns) = self.core.fabric.map_age_max_ns() {
            let now_ns = self.core.fabric.now_ns();
            if self.connection.operations % OPERATIONS_A_LOOK != 0
                && now_ns - self.connection.looked_around_ns <= age_ns
            {
                return Ok(());
            }
            self.connection.looked_around_ns = now_ns;
        }
        self.core.fabric.look();
        self.note_broken();
        self.core.publish_counters();
        for shard in 0..self.core.shards() {
            let version = self.core.fabric.map_version(self.core.peer(shard));
            if version != self.connection.segments_versions[shard] && !self.connection.detached {
                match self.connection.refresh_map(&mut self.core, shard, true) {
                    Ok(()) => self.connection.segments_versions[shard] = version,
                    // A stopped server, or no memory for what came: there is another look, and what needs it says so.
                    Err(error) if [ErrorKind::TimedOut, ErrorKind::System].contains(&error.kind()) => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    pub(crate) fn note_broken(&mut self) {
        if self.core.fabric.is_broken(self.core.peer(0)) {
            self.connection.detached = true;
            self.handles.server = LOST;
        }
    }

    /// Tells the server from all others: the random number of its store, which snapshots keep, and that of this life of the store, which no
    /// other life has.
    pub fn server(&self) -> (u64, u64) {
        (self.core.seed(), self.core.life())
    }

    #[inline]
    pub(crate) fn check_table(&mut self, table: Table) -> Result<BoundTable> {
        if table.server != self.handles.server {
            self.heal()?;
        }
        self.check_further_table(table)
    }

    /// The same of a table that is not the first of its operation: what was looked up for the first is good still.
    #[inline]
    pub(crate) fn check_further_table(&mut self, table: Table) -> Result<BoundTable> {
        let table = if table.server == self.handles.server { table } else { self.led_on(table)? };
        if table.generation != 0 {
            return self.bind(table);
        }
        Ok(BoundTable { id: table.id, generation: 0 })
    }

    /// Runs a public call and names the call in its error, so that nothing below has to know its caller.
    #[inline(always)]
    pub(crate) fn operate<T>(
        &mut self,
        operation: &'static str,
        call: impl FnOnce(&mut Session) -> Result<T>,
    ) -> Result<T> {
        call(self).map_err(|error| error.of(operation))
    }

    /// Runs a public call that reads a table, as [`Session::operate`] does. Its beginning is where the table's handle
    /// leads, and what was read counts only if the table's generation could still be read in the end.
    #[inline(always)]
    pub(crate) fn read_table<T>(
        &mut self,
        operation: &'static str,
        table: Table,
        call: impl FnOnce(&mut Session, BoundTable) -> Result<T>,
    ) -> Result<T> {
        self.operate(operation, |session| {
            let table = session.check_table(table)?;
            let found = call(session, table)?;
            session.check_generation(table.generation)?;
            Ok(found)
        })
    }

    pub(crate) fn table_handle(&self, id: TableId) -> Table {
        Table { id, server: self.core.handles(), generation: 0 }
    }

    // ---- reads ----

    /// Gets an item. `Ok(None)`: the key is absent.
    pub fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Item>> {
        self.read_table("get", table, |session, table| session.fetch_item(table, key))
    }

    /// Gets the value of a plain item (or the unnamed attribute) into the caller's buffer, without allocating.
    /// Returns its length and version, `Ok(None)` if the key is absent, and
    /// [`ErrorKind::BufferTooSmall`] if the buffer is.
    #[inline]
    pub fn get_into(
        &mut self,
        table: Table,
        key: &[u8],
        buffer: &mut [u8],
    ) -> Result<Option<(usize, Version)>> {
        self.read_table("get_into", table, |session, table| session.read_into(table.id, key, buffer))
    }

    #[inline(always)]
    fn read_into(&mut self, id: TableId, key: &[u8], buffer: &mut [u8]) -> Result<Option<(usize, Version)>> {
        self.begin(id, key)?;
        if self.core.begins_with_index() && !id.kind().is_ordered() {
            let hash = self.core.hash(id, key);
            let found = self.core.read_direct(id, hash, key, |item| {
                if let Some(target) = buffer.get_mut(..item.value_bytes()) {
                    item.copy_value(target)?;
                }
                Some(item.value_bytes())
            });
            if let Some((_, incarnation, length)) = found {
                let fits = length <= buffer.len();
                let version = Version(incarnation.0);
                return if fits { Ok(Some((length, version))) } else { Err(too_small(length, buffer)) };
            }
        } else if self.core.begins_with_index() {
            let looked = self.core.reader_in_order(id).look_in_order(id, key, |item| {
                if let Some(target) = buffer.get_mut(..item.value_bytes()) {
                    item.copy_value(target)?;
                }
                Some(item.value_bytes())
            });
            let (length, version) = match looked {
                Looked::Inline(value) => {
                    if let Some(target) = buffer.get_mut(..8) {
                        target.copy_from_slice(&value.to_le_bytes());
                    }
                    (8, Version(value))
                }
                Looked::Copied(pointer, length) => (length, Version(pointer.incarnation.0)),
                Looked::Absent => return Ok(None),
                Looked::At(_) | Looked::Unknown => return self.get_into_slowly(id, key, buffer),
            };
            let fits = length <= buffer.len();
            return if fits { Ok(Some((length, version))) } else { Err(too_small(length, buffer)) };
        }
        self.get_into_slowly(id, key, buffer)
    }

    #[cold]
    fn get_into_slowly(
        &mut self,
        table: TableId,
        key: &[u8],
        buffer: &mut [u8],
    ) -> Result<Option<(usize, Version)>> {
        if self.core.begins_with_index() && !table.kind().is_ordered() {
            let slot = &mut self.landing.item;
            if let Some((version, length)) = self.core.read_large_direct(table, key, slot, buffer) {
                let fits = length <= buffer.len();
                return if fits { Ok(Some((length, version))) } else { Err(too_small(length, buffer)) };
            }
        }
        let wanted = Wanted { table, key, pointer: None };
        let Some(version) = self.fetch_wanted(wanted)? else { return Ok(None) };
        let value = self.landing.value();
        match buffer.get_mut(..value.len()) {
            Some(target) => target.copy_from_slice(value),
            None => return Err(too_small(value.len(), buffer)),
        }
        Ok(Some((value.len(), version)))
    }

    /// Fetches an item into `self.landing`.
    #[inline]
    pub(crate) fn fetch(&mut self, table: TableId, key: &[u8]) -> Result<Option<Version>> {
        self.fetch_wanted(Wanted { table, key, pointer: None })
    }

    /// The same, beginning with a pointer if one is known.
    #[inline]
    pub(crate) fn fetch_wanted(
        &mut self,
        Wanted { table, key, pointer }: Wanted<'_>,
    ) -> Result<Option<Version>> {
        self.begin(table, key)?;
        let route = self.core.route(table, key);
        if self.core.path != Path::Message {
            let mut known = pointer.or_else(|| self.core.known_pointer(route.0));
            if known.is_none() && table.kind().is_ordered() {
                match self.look_in_order(table, key, route.0) {
                    ControlFlow::Break(found) => return Ok(found),
                    ControlFlow::Continue(place) => known = place,
                }
            } else if known.is_none() {
                self.pointer = self.core.read_guessed(table, route.0, key, &mut self.landing);
                if self.pointer.is_some() {
                    self.core.keep_pointer(route.0, self.pointer);
                    return Ok(Some(self.landing.view().version()));
                }
            }
            if known.is_none() && table.kind().is_ordered() {
                self.copy_models(table, route.1)?;
            }
            let found = self.within_budget(|session| session.read_or_ask((table, key), route, known));
            return match found {
                Err(error) if self.is_alone(table, &error) => self.fetch_alone((table, key), route, error),
                found => found,
            };
        }
        self.ask(table, key, route)
    }

    /// Looks for a key of an ordered table, whose item is in `self.landing` if it was found, and goes on from its place if only
    /// that is known.
    #[inline]
    pub(crate) fn look_in_order(
        &mut self,
        table: TableId,
        key: &[u8],
        hash: KeyHash,
    ) -> ControlFlow<Option<Version>, Option<Pointer>> {
        let landing = &mut self.landing;
        match self.core.reader_in_order(table).look_in_order(table, key, |item| landing.copy(item)) {
            Looked::Copied(pointer, ()) => {
                self.pointer = Some(pointer);
                self.core.keep_pointer(hash, self.pointer);
                ControlFlow::Break(Some(Version(pointer.incarnation.0)))
            }
            Looked::Inline(value) => {
                self.landing.set_inline(table, key, value);
                self.pointer = None;
                ControlFlow::Break(Some(Version(value)))
            }
            Looked::Absent => ControlFlow::Break(None),
            Looked::At(pointer) => ControlFlow::Continue(Some(pointer)),
            Looked::Unknown => ControlFlow::Continue(None),
        }
    }

    #[inline]
    pub(crate) fn read_or_ask(
        &mut self,
        (table, key): (TableId, &[u8]),
        route: (KeyHash, usize),
        known: Option<Pointer>,
    ) -> Result<Option<Version>> {
        let mut op = self.core.start_read(0, (table, key), route, known);
        match self.read(&mut op, key, known)? {
            End::Found => return Ok(Some(self.landing.view().version())),
            End::Absent => return Ok(None),
            End::Ask => self.core.total.fallbacks += 1,
        }
        self.ask(table, key, route)
    }

    /// What every operation on one key begins with.
    #[inline(always)]
    pub(crate) fn begin(&mut self, table: TableId, key: &[u8]) -> Result<()> {
        check_key(table, key)?;
        self.note_operation()
    }

    /// Drives a one-sided read to its end.
    #[inline]
    pub(crate) fn read(&mut self, op: &mut ReadOp, key: &[u8], known: Option<Pointer>) -> Result<End> {
        let mut patience = Patience::default();
        let mut anew = false;
        loop {
            let Session { core, connection, handles, landing, .. } = self;
            if let Some(end) = connection.advance(core, handles, op, key, landing, (known, anew))? {
                self.pointer = op.pointer;
                return Ok(end);
            }
            // What was asked for before has arrived.
            patience.note_read(op.cost().read_bytes);
            anew = self.until_progress(&mut patience)?;
        }
    }

    /// A get by message. Of an ordered table whose models are copied it asks for the key's sub-model too.
    pub(crate) fn get_head(&self, table: TableId) -> RequestHead {
        let copied = !self.core.reads_directly()
            && self.core.reads_itself()
            && self.connection.options.model_bytes > 0;
        let argument = (table.kind().is_ordered() && copied).then_some(1);
        RequestHead { argument, ..RequestHead::new(Op::Get, 0, table) }
    }

    /// Gets by message; a large item's value is then read where it stands.
    #[cold]
    pub(crate) fn ask(
        &mut self,
        table: TableId,
        key: &[u8],
        (hash, shard): (KeyHash, usize),
    ) -> Result<Option<Version>> {
        let answer = self.call(shard, self.get_head(table), key, &[])?;
        self.take_item_from(table, key, (hash, shard), answer)
    }

    /// Brings the item of an answer into `self.landing`.
    pub(crate) fn take_item(
        &mut self,
        table: TableId,
        key: &[u8],
        answer: Answer,
    ) -> Result<Option<Version>> {
        let route = self.core.route(table, key);
        self.take_item_from(table, key, route, answer)
    }

    fn take_item_from(
        &mut self,
        table: TableId,
        key: &[u8],
        (hash, shard): (KeyHash, usize),
        answer: Answer,
    ) -> Result<Option<Version>> {
        self.within_budget(|session| session.take_by_rounds(table, key, (hash, shard), answer))
    }

    fn take_by_rounds(
        &mut self,
        table: TableId,
        key: &[u8],
        (hash, shard): (KeyHash, usize),
        mut answer: Answer,
    ) -> Result<Option<Version>> {
        let (mut rounds, mut patience) = (0, Patience::default());
        loop {
            check_answer(&answer)?;
            self.core.take_model(table, shard, &mut answer);
            if answer.status != Status::Ok {
                return Ok(None);
            }
            self.core.learn(hash, &answer);
            let pointer = answer.pointer();
            if self.landing.accept(&answer.item, table, key) {
                self.pointer = pointer;
                return Ok(Some(self.landing.view().version()));
            }
            // A long item stays where it is and is read from there.
            let mut op = self.core.start_read(0, (table, key), (hash, shard), pointer);
            match self.read(&mut op, key, pointer)? {
                End::Found => return Ok(Some(self.landing.view().version())),
                End::Absent => return Ok(None),
                End::Ask => {}
            }
            rounds += 1;
            if rounds >= ROUNDS_MAX && !self.may_become_readable(&mut patience) {
                let context = "the item changed each time it was read, or stands in memory that is not registered; try again";
                return Err(Error::unnamed(ErrorKind::TimedOut, context));
            }
            answer = self.call(shard, self.get_head(table), key, &[])?;
        }
    }

    /// Over verbs a segment cannot be READ before the server has registered it: waits a little, if that may yet be.
    fn may_become_readable(&mut self, patience: &mut Patience) -> bool {
        let waits = self.connection.setup.waits_for_segments();
        if waits {
            self.connection.setup.nap(ROUND);
        }
        waits && patience.waited(self.core.fabric.now_ns()) < self.connection.options.timeout
    }

    /// Makes an owned item, of a generation (0: of none), of what was fetched.
    pub(crate) fn make_item(&mut self, generation: u64) -> Result<Item> {
        let words = self.landing.item.clone();
        let large = self.landing.take_large();
        self.name_attributes(Item::of(words, large, &self.names.last, (generation, self.core.handles())))
    }

    /// Gives an item the names of its attributes.
    pub(crate) fn name_attributes(&mut self, mut item: Item) -> Result<Item> {
        if !item.is_named() {
            item.names = self.names_for(item.layout.table(), &item)?;
            item.names_of = item.layout.table();
            self.names.last = (item.names_of, item.names.clone());
        }
        Ok(item)
    }

    /// The memory of a shard's image and this session's copy of its directory, for measurements that read the same
    /// table without the store's own code.
    #[doc(hidden)]
    pub fn image_for_measurement(
        &mut self,
        shard: usize,
    ) -> (Arc<kelix_image::MemoryMap>, kelix_index::Directory, u64) {
        let (directory, seed) = self.core.directory_for_measurement(shard);
        (self.core.fabric.map(self.core.peer(shard)).expect("a fabric with maps").clone(), directory, seed)
    }

    /// Where the item stands that was got last, if that is known.
    #[doc(hidden)]
    pub fn place_for_measurement(&self) -> Option<kelix_types::Place> {
        self.pointer.map(|pointer| pointer.location.place())
    }

    /// One READ without any of the read rule's checks: words of one moment or of several. `false`: there is no such place.
    #[doc(hidden)]
    pub fn read_for_measurement(
        &mut self,
        shard: usize,
        place: kelix_types::Place,
        into: &mut [u64],
    ) -> bool {
        let read = kelix_fabric::Read { peer: self.core.peer(shard), place, words: into.len(), tag: 0 };
        self.core.fabric.post_read(read);
        self.core.fabric.doorbell();
        loop {
            self.core.fabric.progress();
            match self.core.fabric.poll_read(read, into) {
                kelix_fabric::ReadState::Pending => {}
                state => return matches!(state, kelix_fabric::ReadState::Done(_)),
            }
        }
    }

    /// The descriptor (on Windows the socket) that becomes readable when answers to submitted operations have arrived.
    /// Valid while the session is. [`Session::poll`] says when to wait for it.
    pub fn fd(&self) -> RawFd {
        self.core.fabric.fd().expect("a fabric with a descriptor").as_raw_fd()
    }
}

/// What it has cost is told, also by a process that ends after a few reads.
impl Drop for Session {
    fn drop(&mut self) {
        if !self.connection.detached && !std::thread::panicking() {
            self.core.publish_counters();
        }
    }
}

#[cold]
fn too_small(value_bytes: usize, buffer: &[u8]) -> Error {
    let context = format!("the value has {value_bytes} bytes, the buffer {}", buffer.len());
    Error::unnamed(ErrorKind::BufferTooSmall, context)
}

/// Turns refusals into errors.
pub(crate) fn check_answer(answer: &Answer) -> Result<()> {
    match answer.status {
        Status::Ok | Status::Absent | Status::Mismatch => Ok(()),
        Status::NoRoom => Err(Error::unnamed(
            ErrorKind::OutOfMemory,
            "the shard's memory is full and none comes back; delete something, or serve with more --memory",
        )),
        Status::Refused => Err(Error::unnamed(ErrorKind::InvalidArgument, "the server refused the request")),
        Status::Denied => {
            Err(Error::unnamed(ErrorKind::Denied, "this client may read this namespace, and not write"))
        }
        Status::Gone => {
            let context =
                "the table was dropped, or the generation of it is not there any more; open it again";
            Err(Error::unnamed(ErrorKind::ViewExpired, context))
        }
        Status::Loaded => {
            let context = "the table was loaded: it takes no writes but those of the next load, and goes with its dataset only";
            Err(Error::unnamed(ErrorKind::Denied, context))
        }
        Status::Frozen => {
            let context =
                "the table's next generation is coming into force; write by the table's name, and try again";
            Err(Error::unnamed(ErrorKind::Frozen, context))
        }
        Status::Taken => Err(Error::unnamed(ErrorKind::InvalidArgument, "a loaded table has that name")),
        Status::Forgotten => {
            let context =
                "the server no longer knows whether it was done: too many other clients came and went";
            Err(Error::unnamed(ErrorKind::Unavailable, context).with_effect(Effect::Unknown))
        }
    }
}
