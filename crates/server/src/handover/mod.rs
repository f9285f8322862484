//! Handing over: a server that another one of the same directory supersedes while it runs gives that one what
//! it has, so that clients go on there.
//!
//! ```text
//! successor                                     server
//! greets, sees namespaces and layout            serves
//! copies each namespace, and follows it  <----  serves, and tells memory, records, and answers
//! has all but the last: StandStill       ---->  shards stand still, each behind a record
//! applies up to these, makes its shards  <----  StandsStill, and YIELDS in the authority page
//! takes YIELDS back, raises the term            sees the term: ends, superseded
//!      or ends, or takes too long               takes YIELDS back: its shards go on
//! ```
//!
//! 1. What a server answers before it stands still is in records up to those that it names, with what it
//!    knows of clients that may ask again; it does and answers nothing behind them
//!    ([`ShardThread::stand_still`]).
//! 2. One of the two takes back the word in the authority page by which the server yields, by
//!    compare-and-swap: so either goes on, and never both ([`Authority::takes_yielded`],
//!    [`Authority::resumes`]).
//! 3. A successor that has taken it raises the term before its connection ends. So if that ends, and the term
//!    is still the server's, the successor is gone and the server goes on.
//! 4. The successor serves under a new term, by which readers know at once that the memory of before is not
//!    written any more (docs/read-rule.md).
//!
//! Memory is copied, and not passed on: what clients have mapped is sealed (`F_SEAL_FUTURE_WRITE`), so no
//! process but the one that made it ever writes there (docs/design/0021, "A planned restart").
//!
//! [`ShardThread::stand_still`]: crate::shard_thread::ShardThread::stand_still

mod succession;

use std::io::{ErrorKind as IoErrorKind, Read};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use kelix_fabric::shm::{receive_frame, send_frame};
use kelix_fabric::tcp::FeedLink;
use kelix_types::{Error, ErrorKind, Result};
use kelix_wire::control::Frame;
use tracing::{info, warn};

use crate::authority::Authority;
use crate::feed::{Attach, Feeds};
use crate::namespace::Namespace;
use crate::server::Shared;
use crate::shard_thread::{Access, Command, ShardHandle};

pub(crate) use succession::{Handover, check_room, succession};

/// How long shards may take to come to stand still.
const COMES_WITHIN: Duration = Duration::from_secs(1);
/// How long a server stands still for a successor that does not take over: nobody is served meanwhile.
const STANDS_STILL: Duration = Duration::from_secs(5);
/// How long is waited for the end of a connection before the term is looked at.
const ROUND: Duration = Duration::from_millis(1);

fn refused(text: &str) -> Error {
    Error::new(ErrorKind::Protocol, "hand over", text)
}

fn send(stream: &UnixStream, frame: &Frame, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    let (kind, bytes) = frame.encode();
    send_frame(stream, kind, &bytes, descriptors)
}

/// Serves a connection of this server's successor, a process: the one by which that is to have it stand
/// still, or one for each namespace, which becomes a feed.
pub(crate) fn serve(
    shared: &Arc<Shared>,
    namespace: &Arc<Namespace>,
    (version, successor): (u16, u32),
    stream: &UnixStream,
) -> Result<()> {
    if shared.node.is_some() || namespace.mirrored.is_some() {
        return Err(refused("it is a mirror, or a node of a cluster"));
    }
    if shared.wal.is_some() {
        return Err(refused("it writes a log, which has one writer"));
    }
    send(stream, &shared.welcome(version, namespace, Access::of(false, 0)), &[])?;
    let header = &namespace.shards[0].header;
    let names: Vec<&str> = shared.namespaces.iter().map(|of| &of.name[..]).collect();
    let namespaces = Frame::Namespaces { bytes: header.bytes(), names: names.join("\n") };
    send(stream, &namespaces, &[header.fd()])?;
    // The successor copies all namespaces before it says more.
    let _ = stream.set_read_timeout(None);
    let (kind, bytes, _) = receive_frame(stream)?;
    match Frame::decode(kind, &bytes) {
        Some(Frame::Attach { name, .. }) => {
            let segments = namespace.shards.iter().flat_map(|shard| shard.segments.list());
            let used = segments.flat_map(|segment| segment.memory.used());
            let memory_bytes = used.map(|(_, bytes)| bytes).sum();
            let attached =
                Frame::Attached { memory_bytes, lineage: 0, resumes: false, primary: String::new() };
            send(stream, &attached, &[])?;
            let socket = stream.try_clone();
            let socket = socket.map_err(|source| Error::system("hand over", "too many files", source))?;
            let attach = Attach { name, copy_rate: 0, position: None, boot: None, succeeds: true };
            Feeds::attach(shared, namespace, (FeedLink::local(socket)?, None), attach);
            Ok(())
        }
        Some(Frame::StandStill) => stand_still(shared, successor, stream),
        _ => Err(refused("a frame that makes no sense here")),
    }
}

/// Shards that stand still, for as long as this is there.
struct Still(Arc<AtomicBool>);

impl Drop for Still {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Still {
    /// Has all shards stand still. Returns their last records.
    fn begin(shared: &Shared) -> Result<(Still, Vec<u64>)> {
        let still = Still(Arc::new(AtomicBool::new(true)));
        let (tell, told) = channel();
        let shards = shared.shards().enumerate().map(|(shard, handle): (usize, &ShardHandle)| {
            handle.command(Command::StandStill { shard, still: still.0.clone(), tell: tell.clone() });
        });
        let (mut sequences, began) = (vec![0; shards.count()], Instant::now());
        for _ in 0..sequences.len() {
            let told = told.recv_timeout(COMES_WITHIN.saturating_sub(began.elapsed()));
            let Ok((shard, Some(sequence))) = told else {
                return Err(refused("a shard does not come to stand still; try again"));
            };
            sequences[shard] = sequence;
        }
        Ok((still, sequences))
    }
}

/// Stands still for the successor, until that one has taken over or turns out not to.
fn stand_still(shared: &Shared, successor: u32, stream: &UnixStream) -> Result<()> {
    let Ok(_alone) = shared.stands_still.try_lock() else {
        return Err(refused("it stands still for another successor"));
    };
    let authority = &shared.authority;
    let (still, sequences) = Still::begin(shared)?;
    // Before anybody can find that this server is superseded.
    shared.successor.store(successor, Ordering::SeqCst);
    authority.yields();
    let began = Instant::now();
    // A successor that does not get it does not take the word back either.
    let _ = send(stream, &Frame::StandsStill { sequences }, &[]);
    let goes_on = goes_on(authority, stream, STANDS_STILL);
    drop(still);
    let ms = began.elapsed().as_millis() as u64;
    if !goes_on {
        info!(ms, "handed over to the next server");
        // Whoever waits for the end looks now.
        authority.begin();
        return Ok(());
    }
    warn!(ms, "the server that was to take over does not: this one goes on");
    Err(refused("it goes on, since nobody took over in time"))
}

/// Waits until the successor has taken over; `true`: it does not, and this server goes on.
fn goes_on(authority: &Authority, stream: &UnixStream, patience: Duration) -> bool {
    let began = Instant::now();
    let _ = stream.set_read_timeout(Some(ROUND));
    loop {
        let is_gone = match (&mut &*stream).read(&mut [0; 64]) {
            Ok(bytes) => bytes == 0,
            Err(error) => !matches!(
                error.kind(),
                IoErrorKind::WouldBlock | IoErrorKind::TimedOut | IoErrorKind::Interrupted
            ),
        };
        // In this order: a successor raises the term before it goes.
        if !authority.in_force() {
            return false;
        }
        let is_late = is_gone || began.elapsed() > patience;
        if is_late && authority.resumes() || is_gone {
            return true;
        }
    }
}
