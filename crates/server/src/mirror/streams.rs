//! A replica's way to the primary's streams, on the same host: what stands there counts before anybody has sent
//! it, and is found there when the primary has died.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use kelix_fabric::shm::{Memfd, RunDirectory, receive_frame_within, send_frame};
use kelix_log::StreamMemory;
use kelix_types::{Error, ErrorKind, Result};
use kelix_wire::SPOKEN;
use kelix_wire::control::{Caller, Frame, Purpose};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use super::ReplicaConfig;
use crate::shard_thread::STREAM_HEAD_BYTES;

/// How long the primary may take for a frame.
const ANSWER: Duration = Duration::from_secs(2);

fn unavailable(what: &str) -> Error {
    Error::new(ErrorKind::Unavailable, "follow", format!("the primary's streams: {what}")).with_retry(true)
}

/// A connection to whichever server has a run directory, if it takes connections.
pub(crate) fn connect(run: &RunDirectory) -> std::io::Result<UnixStream> {
    let socket = run.socket(run.term()?);
    let stream =
        UnixStream::from(socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?);
    stream.set_read_timeout(Some(ANSWER))?;
    // A socket whose server stands still may have no room for another connection.
    stream.set_write_timeout(Some(ANSWER))?;
    rustix::net::connect(&stream, &SocketAddrUnix::new(&socket)?)?;
    Ok(stream)
}

/// Maps the streams of a namespace of the primary that serves in this term, and has so many shards; none, if
/// that is not wanted. An error, which may pass: another one serves there.
pub(super) fn receive(
    replica: &ReplicaConfig,
    namespace: &str,
    (term, shards): (u64, usize),
) -> Result<Vec<StreamMemory>> {
    let Some(run) = replica.run.clone().map(RunDirectory) else { return Ok(Vec::new()) };
    let stream = connect(&run).map_err(|source| unavailable("nobody answers").with_source(source))?;
    let caller = Some(Caller { number: replica.status.boot(), again: false });
    let (versions, namespace) = (SPOKEN, namespace.to_string());
    let hello = Frame::Hello { versions, features: 0, purpose: Purpose::Replicate, caller, namespace };
    let (kind, bytes) = hello.encode();
    send_frame(&stream, kind, &bytes, &[])?;
    let receive = || -> Result<(Option<Frame>, Vec<OwnedFd>)> {
        let (kind, bytes, descriptors) = receive_frame_within(&stream, ANSWER)?;
        Ok((Frame::decode(kind, &bytes), descriptors))
    };
    match receive()?.0 {
        Some(Frame::Welcome { term: of, .. }) if of == term => {}
        Some(Frame::Refused { text }) => return Err(unavailable(&text)),
        _ => return Err(unavailable("another server is primary")),
    }
    let next = |shard: usize| -> Result<StreamMemory> {
        let (Some(Frame::Stream { shard: of, bytes }), descriptors) = receive()? else {
            return Err(unavailable("they do not come"));
        };
        let (Ok([ring, page]), true) = (<[OwnedFd; 2]>::try_from(descriptors), usize::from(of) == shard)
        else {
            return Err(unavailable("something else comes"));
        };
        if !(bytes / 8).is_power_of_two() || bytes % 8 != 0 {
            return Err(unavailable("they have a length that none has"));
        }
        let words = Memfd::receive(ring, bytes)?.map(false)?;
        Ok(StreamMemory { words, head: Memfd::receive(page, STREAM_HEAD_BYTES)?.map(false)? })
    };
    (0..shards).map(next).collect()
}
