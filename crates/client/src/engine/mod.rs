//! The engine of a session: reads of memory, requests and their answers, the waiting for both, and the
//! connection that all of them go over. What a table's name leads to, and which generation is read, is the
//! [`crate::catalogue`]'s.

mod connection;
mod fetch;
mod leaves;
mod models;
mod primary;
mod repairs;
mod requests;
mod waiting;
mod writes;

use std::time::Duration;

use kelix_fabric::{Clock, Endpoint, RemoteMemory, Spin, WorkQueue};
use kelix_types::{Error, ErrorKind, Result, TableId};

use crate::Table;
use crate::client::Client;
use crate::connect::Setup;
use crate::session::SessionOptions;
use crate::transport::Transport;
pub(crate) use connection::{Connection, End, LOST};
pub(crate) use fetch::{Fetch, Wanted, check_key};
pub use fetch::{TryGet, ValuePart};
pub(crate) use leaves::Buffers;
use primary::Tries;
pub(crate) use requests::{Pipeline, check_answer};
pub(crate) use waiting::{BETWEEN_TRIES, Patience, between_tries, is_passing, nanoseconds};
use waiting::{LIMIT_MAX, SPIN};
pub(crate) use writes::check_value;

/// Operations between two looks at what rarely changes: the server's life, the set of segments, the counters.
const OPERATIONS_A_LOOK: u32 = 1 << 10;

/// What operations of a session run on.
pub(crate) struct Engine {
    pub transport: Transport<Endpoint>,
    pub connection: Connection,
    /// When gets last waited for segments to become readable.
    napped_ns: u64,
    /// For how long a wait begins without giving the core away, and whether that was in vain the last time.
    spin: Spin,
    spun_in_vain: bool,
    /// Of a session on a mirror: how the last try to connect to the primary failed.
    tries: Tries,
}

impl Engine {
    /// An engine over what has been set up, of a session with a number if the session is to go on over other
    /// connections.
    pub fn over(
        client: &Client,
        (setup, mut transport): (Setup, Transport<Endpoint>),
        options: SessionOptions,
        caller: Option<u64>,
    ) -> Result<Engine> {
        if options.strict {
            transport.believe_no_lease();
        }
        transport.set_path(options.path);
        if caller.is_some() {
            transport.keep_requests();
        }
        let connection = Connection {
            client: client.clone(),
            setup,
            options,
            caller,
            server: transport.handles(),
            connections: 0,
            ways: 0,
            connected_ns: 0,
            next_try_ns: 0,
            budget: None,
            detached: false,
            announced: false,
            segments_versions: vec![0; transport.shards()],
            looks: 0,
            looked_around_ns: 0,
        };
        let mut engine = Engine {
            transport,
            connection,
            napped_ns: 0,
            spin: Spin::new(SPIN),
            spun_in_vain: false,
            tries: Tries::default(),
        };
        engine.look_around()?;
        Ok(engine)
    }

    /// What every operation on one key begins with.
    #[inline(always)]
    pub fn begin(&mut self, table: TableId, key: &[u8]) -> Result<()> {
        check_key(table, key)?;
        if self.transport.countdown.is_over() { self.look_around_from(table, key) } else { Ok(()) }
    }

    /// What an operation on several keys begins with, which are checked elsewhere.
    #[inline]
    pub fn note_operation_of<'k>(
        &mut self,
        table: TableId,
        mut keys: impl ExactSizeIterator<Item = &'k [u8]>,
    ) -> Result<()> {
        if !self.transport.countdown.is_over() {
            return Ok(());
        }
        let which = (self.connection.looks as usize).checked_rem(keys.len());
        match which.and_then(|which| keys.nth(which)) {
            Some(key) => self.look_around_from(table, key),
            None => self.look_around(),
        }
    }

    /// Counts operations and now and then looks at what rarely changes.
    #[inline]
    pub fn note_operation(&mut self) -> Result<()> {
        if self.transport.countdown.is_over() { self.look_around() } else { Ok(()) }
    }

    #[cold]
    fn look_around_from(&mut self, table: TableId, key: &[u8]) -> Result<()> {
        // Where each operation looks around, not each is sampled.
        let every = if self.transport.fabric.map_age_max_ns().is_some() { OPERATIONS_A_LOOK } else { 1 };
        if self.connection.looks % every == 0 {
            self.transport.sample(table, key);
        }
        self.look_around()
    }

    #[cold]
    fn look_around(&mut self) -> Result<()> {
        self.transport.countdown.check()?;
        self.connection.looks = self.connection.looks.wrapping_add(1);
        // Whoever ends soon shares no pointers: to make memory for them takes some milliseconds.
        let is_at_work;
        if let Some(age_ns) = self.transport.fabric.map_age_max_ns() {
            is_at_work = self.connection.looks >= OPERATIONS_A_LOOK;
            let now_ns = self.transport.fabric.now_ns();
            if self.connection.looks % OPERATIONS_A_LOOK != 0
                && now_ns - self.connection.looked_around_ns <= age_ns
            {
                return Ok(());
            }
            self.connection.looked_around_ns = now_ns;
        } else {
            is_at_work = self.connection.looks > 1;
            // Not always the same number, so that who asks for so many keys in turn is not taken for one who
            // always asks for the same one.
            let less = self.connection.looks.wrapping_mul(0x9e37_79b9) >> 25;
            self.transport.countdown.set(OPERATIONS_A_LOOK - less);
        }
        if is_at_work {
            self.transport.pointers.share(&self.transport.shelf);
        }
        self.transport.fabric.look();
        self.note_broken();
        self.transport.publish_counters();
        for shard in 0..self.transport.shards() {
            // A suspended shard is not read, so its memory need not be mapped, and its mirror may stand still.
            if self.transport.is_suspended(shard) {
                continue;
            }
            let version = self.transport.fabric.map_version(self.transport.peer(shard));
            if version != self.connection.segments_versions[shard] && !self.connection.detached {
                match self.connection.refresh_map(&mut self.transport, shard, true) {
                    Ok(()) => self.connection.segments_versions[shard] = version,
                    // A stopped server, or no memory for what came: there is another look, and what needs it
                    // says so.
                    Err(error) if [ErrorKind::TimedOut, ErrorKind::System].contains(&error.kind()) => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    pub fn note_broken(&mut self) {
        if self.transport.fabric.is_broken(self.transport.peer(0)) {
            self.connection.detached = true;
            self.connection.server = LOST;
        }
        if self.transport.is_on_mirror() {
            self.note_primary();
        }
    }

    /// Whether there is still a server to ask at a station.
    pub fn check_server(&mut self, station: usize) -> Result<()> {
        if self.transport.is_of_primary(station) {
            // The primary was just connected to, or looked at.
            return Ok(());
        }
        match self.transport.in_force(station) {
            Some(false) => Err(self.connection.superseded()),
            Some(true) if !self.connection.detached => Ok(()),
            _ => {
                self.connection.detached = true;
                Err(self.gone())
            }
        }
    }

    pub fn gone(&mut self) -> Error {
        self.connection.server = LOST;
        let context =
            "the server has gone; in shared memory reads go on from its last state, writes need a server";
        Error::unnamed(ErrorKind::Unavailable, context)
    }

    pub fn timed_out(&self) -> Error {
        let deadline = self.limit().as_millis();
        let context = format!("no answer within {deadline} ms; is the server stopped?");
        Error::unnamed(ErrorKind::TimedOut, context)
    }

    /// How long after a request was posted its outcome is awaited.
    pub fn limit(&self) -> Duration {
        let Some(_) = self.connection.caller else { return self.connection.options.timeout };
        self.connection.options.timeout.saturating_add(self.connection.options.retries_for()).min(LIMIT_MAX)
    }

    /// A handle of a table that was not loaded.
    pub fn table_handle(&self, id: TableId) -> Table {
        Table { id, server: self.transport.handles(), generation: 0 }
    }

    pub fn send_all(&mut self) {
        for shard in 0..self.transport.shards() {
            self.transport.send(shard);
        }
    }
}
