//! The connection of a session, and the step of a one-sided read over it, which every [`super::Fetch`] takes
//! here.

use kelix_fabric::{Endpoint, RemoteMemory};
use kelix_types::{Error, ErrorKind, Result};

use crate::client::Client;
use crate::connect::Setup;
use crate::pointers::Pointer;
use crate::read::{Landing, ReadOp, Step};
use crate::session::SessionOptions;
use crate::transport::Transport;

/// In place of the number of the store's life: the server has gone, or another one has taken over. No life
/// has it.
pub(crate) const LOST: u64 = 0;

/// How a one-sided read ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Found,
    Absent,
    /// As [`Step::AbsentIfKnown`].
    AbsentIfKnown(u64),
    /// The shard has to be asked.
    Ask,
}

/// How a session is connected: what another connection needs, and what is known of this one.
pub(crate) struct Connection {
    pub client: Client,
    pub setup: Setup,
    pub options: SessionOptions,
    /// The number under which the session goes on when it has lost its connection, if it is to.
    pub caller: Option<u64>,
    /// Connections that the session had before this one, when the session got this one, and when it may try
    /// for the next.
    pub connections: u32,
    /// Connections that the session had before this one, and connections to the server that a mirror follows:
    /// READs and uploads that were under way over a connection are lost with the connection.
    pub ways: u32,
    pub connected_ns: u64,
    pub next_try_ns: u64,
    /// Of an operation that asks several times for the same: when its trying to connect again ends, once that
    /// has begun.
    pub budget: Option<Option<u64>>,
    /// Tells the server of this connection from every other, before and after it and elsewhere; [`LOST`],
    /// when it has gone.
    pub server: u64,
    pub detached: bool,
    /// Whether a poll has announced that its caller may sleep.
    pub announced: bool,
    pub segments_versions: Vec<u64>,
    /// Looks around so far.
    pub looks: u32,
    /// When the session looked last, where each operation may look.
    pub looked_around_ns: u64,
}

impl Connection {
    /// Another server has taken over.
    pub fn superseded(&mut self) -> Error {
        self.server = LOST;
        let context = "another server has taken over; the session goes over to it with the next call";
        Error::unnamed(ErrorKind::Superseded, context)
    }

    /// Goes on with a one-sided read as far as the read goes without waiting. `None`: a READ is under way.
    /// `known` is the pointer that the read began with; `anew` says that what was under way was lost with a
    /// connection.
    #[inline]
    pub fn advance(
        &mut self,
        transport: &mut Transport<Endpoint>,
        op: &mut ReadOp,
        key: &[u8],
        landing: &mut Landing,
        (known, anew): (Option<Pointer>, bool),
    ) -> Result<Option<End>> {
        let step =
            if anew { transport.restart_read(op, key) } else { transport.advance_read(op, key, landing) };
        let end = match step {
            Step::Pending => return Ok(None),
            Step::Valid => End::Found,
            Step::Absent => End::Absent,
            Step::AbsentIfKnown(generations) => End::AbsentIfKnown(generations),
            Step::Ask => End::Ask,
            Step::UnknownSegment => {
                if self.renew_map(transport, op, key)? {
                    return Ok(None);
                }
                End::Ask
            }
            // A request to the primary then shows that another life of the store has begun.
            Step::Superseded if transport.is_of_primary(op.shard) => End::Ask,
            Step::Superseded => return Err(self.superseded()),
            Step::NoMemory => return Err(no_memory()),
        };
        transport.finish_read(op, known);
        Ok(Some(end))
    }

    /// After a read met a segment it does not know: maps it and begins the read again. `false`: ask the
    /// shard.
    #[cold]
    fn renew_map(
        &mut self,
        transport: &mut Transport<Endpoint>,
        op: &mut ReadOp,
        key: &[u8],
    ) -> Result<bool> {
        if !self.detached && !transport.is_of_primary(op.shard) {
            self.refresh_map(transport, op.shard, false)?;
        }
        Ok(transport.restart_read(op, key) == Step::Pending)
    }

    /// Maps the segments that came, unmaps those that went.
    pub fn refresh_map(
        &mut self,
        transport: &mut Transport<Endpoint>,
        shard: usize,
        briefly: bool,
    ) -> Result<()> {
        let peer = transport.peer(shard);
        match self.setup.refresh_map(shard as u16, peer, &mut transport.fabric, briefly) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            // A dead server's segments stay as they are.
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                self.detached = true;
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        transport.note_map(shard);
        let segments =
            |shard| transport.fabric.map(transport.peer(shard)).map_or(0, |map| map.firsts().len() - 1);
        let mapped: usize = (0..transport.shards()).map(segments).sum();
        transport.set_segments_mapped(mapped as u64);
        Ok(())
    }
}

/// What a value is called that this process has no memory for.
fn no_memory() -> Error {
    let context = "the value is larger than the memory that this process can get; check `ulimit -v`";
    Error::unnamed(ErrorKind::System, context)
}
