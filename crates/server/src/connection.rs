//! The set-up side of one connection: hands out memory and mailboxes, then waits for the client's end.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use kelix_fabric::shm::{Memfd, WakerHandle, receive_frame, send_frame};
use kelix_image::Span;
use kelix_types::limits::GREETING_NS;
use kelix_types::{Error, ErrorKind, Result};
use kelix_wire::control::{
    Caller, DENIED, FEATURE_COMMITS, FEATURE_FINDS, FEATURE_HINTS, FEATURE_LAPS, FEATURE_LEASED,
    FEATURE_MIRROR, FEATURE_PUT_MANY, FEATURE_REPLICATED, FEATURE_SEQUENCES, FEATURES_NEEDED, Frame, Purpose,
};
use kelix_wire::{MAILBOX_BYTES, MAILBOX_STRIDE, SPOKEN, Versions};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::io::Errno;
use rustix::net::SendFlags;

use serde_json::json;

use crate::clients::{ClientRecord, ClientWay};
use crate::handover;
use crate::namespace::{Namespace, Visitor};
use crate::reception::{News, Visit};
use crate::server::Shared;
use crate::shard_thread::{Access, Command, Outbox};
use crate::snapshots::Taken;

/// How long a client may leave an answer unread.
const SEND: Duration = Duration::from_secs(5);
/// Segments in one frame.
const SEGMENTS_A_FRAME: usize = 32;

fn refused(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Protocol, "accept client", text)
}

fn send(stream: &UnixStream, frame: &Frame, descriptors: &[std::os::fd::BorrowedFd<'_>]) -> Result<()> {
    let (kind, bytes) = frame.encode();
    send_frame(stream, kind, &bytes, descriptors)
}

/// The version of the protocol that is spoken with a client; why there is none, if there is none.
pub(crate) fn agree(versions: Versions, features: u64) -> std::result::Result<u16, String> {
    let common = SPOKEN.common(versions).filter(|_| features & FEATURES_NEEDED == 0);
    common.ok_or_else(|| {
        format!(
            "protocol version {versions} with features {features:#x}; this server speaks version {SPOKEN}: releases \
             that follow each other have one in common"
        )
    })
}

/// What a connection is to be looked after for.
enum Conversation {
    /// The client is served, and has nothing more to say now.
    AtRest,
    Over,
}

/// Greets whoever has connected, and answers until nothing more comes, or to the connection's end. From then
/// on the client is watched ([`crate::reception`]).
pub(crate) fn serve(shared: &Arc<Shared>, connection: u64, stream: &Arc<UnixStream>) {
    settle(shared, connection, stream, converse(shared, connection, stream));
}

/// Goes on with a client that was at rest.
pub(crate) fn resume(shared: &Arc<Shared>, connection: u64, visit: &Visit) {
    settle(shared, connection, &visit.stream, answer(shared, visit));
}

fn settle(shared: &Arc<Shared>, connection: u64, stream: &Arc<UnixStream>, result: Result<Conversation>) {
    let watched = match result {
        Ok(Conversation::AtRest) => shared.watch(connection, stream).map(|()| Conversation::AtRest),
        result => result,
    };
    if matches!(watched, Ok(Conversation::AtRest)) {
        return;
    }
    if watched.is_err() && rustix::net::send(stream, &[], SendFlags::NOSIGNAL) == Err(Errno::PIPE) {
        // The server has said that nothing more comes, and the client may read its memory until it closes the
        // socket.
        let _ = std::io::copy(&mut &**stream, &mut std::io::sink());
    }
    shared.leave(connection);
    if let Err(error) = watched {
        refuse(stream, error.context());
    }
}

/// Tells a client why it is refused. Best effort: it may be gone.
pub(crate) fn refuse(stream: &UnixStream, why: &str) {
    let _ = send(stream, &Frame::Refused { text: why.to_string() }, &[]);
}

fn converse(shared: &Arc<Shared>, connection: u64, stream: &Arc<UnixStream>) -> Result<Conversation> {
    let _ = stream.set_read_timeout(Some(Duration::from_nanos(GREETING_NS)));
    let _ = stream.set_write_timeout(Some(SEND));
    let (kind, bytes, _) = receive_frame(stream)?;
    let Some(Frame::Hello { versions, features, purpose, caller, namespace }) = Frame::decode(kind, &bytes)
    else {
        return Err(refused("the first frame was no greeting"));
    };
    let version = agree(versions, features).map_err(refused)?;
    if purpose == Purpose::Follow {
        return Err(refused("a mirror follows over TCP, from another host; see `kelix help serve`, --tcp"));
    }
    // A process in a container has no number here, and a user all the same.
    let credentials = getsockopt(&**stream, PeerCredentials);
    let (pid, uid) = credentials.map_or((0, u32::MAX), |peer| (peer.pid(), peer.uid()));
    let visitor = Visitor { uid: Some(uid), token: None, certified: &|_| false };
    let (namespace, may_write) = shared.visit(&namespace, &visitor)?;
    if matches!(purpose, Purpose::Replicate | Purpose::Succeed) {
        let is_own = uid == 0 || uid == rustix::process::geteuid().as_raw();
        let served = match purpose {
            _ if !is_own => Err(refused(DENIED)),
            Purpose::Replicate => hand_out_streams(shared, &namespace, version, stream),
            _ => handover::serve(shared, &namespace, (version, pid as u32), stream),
        };
        return served.map(|()| Conversation::Over);
    }
    let way = ClientWay::Shm { pid, uid, stream: stream.clone() };
    // Known before its first mailbox is joined: a fault is reported once, and must find whom to disconnect.
    shared.enter(ClientRecord { connection, namespace: namespace.clone(), mailboxes: Vec::new(), way });
    let access = Access::of(may_write, features);
    let welcome = shared.welcome(version, &namespace, access);
    if purpose == Purpose::Session {
        shared.check_lease()?;
        let pointers = namespace.pointers(uid)?;
        send(stream, &welcome, &[shared.authority.file.as_fd(), pointers.fd()])?;
        send_primary(&namespace, stream)?;
        let mailboxes = hand_out(&namespace, stream, (connection, caller, access))?;
        let mut clients = shared.clients.lock().expect("no panic under this lock");
        if let Some(client) = clients.iter_mut().find(|client| client.connection == connection) {
            client.mailboxes = mailboxes;
        }
    } else {
        send(stream, &welcome, &[])?;
        send_primary(&namespace, stream)?;
    }
    let _ = stream.set_read_timeout(None);
    answer(shared, &Visit { stream: stream.clone(), namespace, uid })
}

/// Answers what a client has sent.
fn answer(shared: &Arc<Shared>, visit: &Visit) -> Result<Conversation> {
    let Visit { stream, namespace, uid } = visit;
    loop {
        match visit.news() {
            News::Nothing => return Ok(Conversation::AtRest),
            News::End => return Ok(Conversation::Over),
            News::Frame => {}
        }
        let (kind, bytes, _) = match receive_frame(stream) {
            Ok(frame) => frame,
            Err(error) if error.kind() == ErrorKind::Unavailable => return Ok(Conversation::Over),
            Err(error) => return Err(error),
        };
        match Frame::decode(kind, &bytes) {
            Some(Frame::AskSegments { shard }) if usize::from(shard) < namespace.shards.len() => {
                send_segments(namespace, stream, shard)?;
            }
            Some(Frame::AskStatistics) => {
                send(
                    stream,
                    &Frame::Statistics { text: crate::statistics::json(shared, namespace).to_string() },
                    &[],
                )?;
            }
            Some(Frame::TakeSnapshot) => {
                let text = take_snapshot(shared, *uid).to_string();
                send(stream, &Frame::Snapshot { text }, &[])?;
            }
            _ => return Err(refused("a frame that makes no sense here")),
        }
    }
}

/// Hands out the streams of all shards, to a replica on this host.
fn hand_out_streams(shared: &Shared, namespace: &Namespace, version: u16, stream: &UnixStream) -> Result<()> {
    let access = Access::of(false, 0);
    send(stream, &shared.welcome(version, namespace, access), &[])?;
    for (number, shard) in namespace.shards.iter().enumerate() {
        let none = || refused("this server is not the primary of a cluster");
        let (ring, page) = shard.stream.as_ref().ok_or_else(none)?;
        let frame = Frame::Stream { shard: number as u16, bytes: ring.bytes() };
        send(stream, &frame, &[ring.fd(), page.fd()])?;
    }
    Ok(())
}

/// Of a mirror: says where writes go.
fn send_primary(namespace: &Namespace, stream: &UnixStream) -> Result<()> {
    let Some(mirrored) = &namespace.mirrored else { return Ok(()) };
    send(stream, &Frame::Primary { address: mirrored.writes_go_to() }, &[])
}

/// Takes a snapshot for a user, and tells where it is, or why there is none.
fn take_snapshot(shared: &Shared, uid: u32) -> serde_json::Value {
    if uid != 0 && uid != rustix::process::geteuid().as_raw() {
        return json!({"error": "only root and the user whose the server is can have a snapshot taken"});
    }
    match shared.snapshot() {
        Ok(Taken { path, bytes, time, .. }) => {
            json!({"path": path.display().to_string(), "bytes": bytes, "seconds": time.as_secs_f64()})
        }
        Err(error) => {
            let cause = std::error::Error::source(&error).map(|cause| format!(" ({cause})"));
            json!({"error": format!("{}{}", error.context(), cause.unwrap_or_default())})
        }
    }
}

/// Mailboxes in one memory, so that a session is one mapping for the server, of which a process has some 65,000.
struct Mailboxes {
    memory: Memfd,
    span: Span,
}

impl Mailboxes {
    fn of_shards(shards: usize) -> Result<Mailboxes> {
        let bytes = 2 * shards as u64 * MAILBOX_STRIDE;
        let (memory, span) = Memfd::create("kelix-mailboxes", bytes, false)?;
        Ok(Mailboxes { memory, span })
    }

    /// A shard's and its client's.
    fn pair(&self, shard: usize) -> [Span; 2] {
        [0, 1].map(|side| self.span.part((2 * shard as u64 + side) * MAILBOX_STRIDE, MAILBOX_BYTES))
    }
}

/// Hands out the images and a pair of mailboxes for each shard.
fn hand_out(
    namespace: &Namespace,
    stream: &UnixStream,
    (connection, caller, access): (u64, Option<Caller>, Access),
) -> Result<Vec<Span>> {
    // Clients of earlier builds have a memory for each.
    let together = access.has_laps.then(|| Mailboxes::of_shards(namespace.shards.len())).transpose()?;
    let mut mailboxes = Vec::new();
    for (number, shard) in namespace.shards.iter().enumerate() {
        let image = Frame::Image { shard: number as u16, bytes: shard.header.bytes() };
        send(stream, &image, &[shard.header.fd()])?;
        send_segments(namespace, stream, number as u16)?;
        let (waker, clients_end) = WakerHandle::pair()?;
        let apart;
        let (mut descriptors, [inbox, of_client]) = match &together {
            // What all have in one comes with the first.
            Some(together) if number == 0 => (vec![together.memory.fd()], together.pair(number)),
            Some(together) => (Vec::new(), together.pair(number)),
            None => {
                let (requests, inbox) = Memfd::create("kelix-requests", MAILBOX_BYTES, false)?;
                let (replies, of_client) = Memfd::create("kelix-replies", MAILBOX_BYTES, false)?;
                apart = [requests, replies];
                (apart.iter().map(Memfd::fd).collect(), [inbox, of_client])
            }
        };
        descriptors.push(clients_end.as_fd());
        // What the shard takes out is near to the shard; before anybody stores there.
        if let Some(node) = shard.node() {
            node.prefer(&inbox);
        }
        mailboxes.push(inbox.clone());
        let outbox = Outbox::Mailbox { memory: of_client, waker };
        // The shard knows of the client before that reads anything.
        shard.command(Command::Join { connection, inbox, outbox, caller, access });
        send(stream, &Frame::Mailboxes { shard: number as u16, bytes: MAILBOX_BYTES }, &descriptors)?;
    }
    Ok(mailboxes)
}

impl Shared {
    /// The answer to a greeting.
    pub fn welcome(&self, version: u16, namespace: &Namespace, access: Access) -> Frame {
        let hints = if namespace.is_cache { FEATURE_HINTS } else { 0 };
        let commits = if namespace.shards[0].commits() { FEATURE_COMMITS } else { 0 };
        let mirrors = if namespace.mirrored.is_some() { FEATURE_MIRROR } else { 0 };
        let sequences = if access.tells_sequence { FEATURE_SEQUENCES } else { 0 };
        let laps = if access.has_laps { FEATURE_LAPS } else { 0 };
        let replicated = if self.replication.is_some() { FEATURE_REPLICATED } else { 0 };
        let leased = if self.authority.lease_left().is_some() { FEATURE_LEASED } else { 0 };
        Frame::Welcome {
            version,
            features: hints
                | commits
                | mirrors
                | sequences
                | laps
                | replicated
                | leased
                | FEATURE_FINDS
                | FEATURE_PUT_MANY,
            pid: std::process::id(),
            term: self.authority.term,
            may_write: access.may_write,
            view: namespace.view.clone(),
            life: namespace.life(),
        }
    }
}

fn send_segments(namespace: &Namespace, stream: &UnixStream, shard: u16) -> Result<()> {
    let segments = namespace.shards[usize::from(shard)].segments.list();
    let mut chunks = segments.chunks(SEGMENTS_A_FRAME).peekable();
    while let Some(chunk) = chunks.next() {
        let list = chunk.iter().map(|segment| (segment.first as u64, segment.memory.bytes())).collect();
        let descriptors: Vec<_> = chunk.iter().map(|segment| segment.memory.fd()).collect();
        send(stream, &Frame::Segments { shard, last: chunks.peek().is_none(), list }, &descriptors)?;
    }
    Ok(())
}
