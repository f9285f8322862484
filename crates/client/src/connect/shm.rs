//! Connecting over shared memory: the set-up frames, the mappings, the mailboxes.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use kelix_fabric::shm::{
    AUTHORITY_BYTES, AUTHORITY_MAGIC, AUTHORITY_TERM, Memfd, RunDirectory, ShmEndpoint, ShmMemory, ShmPeer,
    SleepWord, Waker, WakerHandle, Way, map_file, receive_frame, send_frame,
};
use kelix_fabric::{Direct, Endpoint, PeerId};
use kelix_image::{Header, MemoryMap, Span};
use kelix_types::limits::POINTER_TABLE_BYTES;
use kelix_types::{Error, ErrorKind, Result};
use kelix_wire::control::Frame;
use kelix_wire::{MAILBOX_BYTES, View, mailbox_word};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use super::{ANSWER, protocol, understand};
use crate::core::{Core, OfServer};
use crate::pointers::PointerCache;

/// Connects to a socket. The time-outs are set first, because at a server that stands still connecting may wait too: for
/// room in the queue of its socket.
fn connect(socket: &Path) -> std::io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC;
    let stream = UnixStream::from(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?);
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    rustix::net::connect(&stream, &SocketAddrUnix::new(socket)?)?;
    Ok(stream)
}

/// Host and port that the server of a run directory says it listens at.
pub(super) fn listens_at(directory: &Path) -> Result<String> {
    let told = std::fs::read_to_string(RunDirectory(directory.to_path_buf()).tcp()).map_err(|source| {
        let context = format!(
            "no server that listens over TCP in {}: start one with `kelix serve --listen PORT`",
            directory.display()
        );
        Error::new(ErrorKind::Unavailable, "connect", context).with_source(source)
    })?;
    Ok(told.trim().into())
}

/// The set-up connection.
pub(crate) struct Link {
    stream: UnixStream,
    /// Shards whose segments were asked for and have not arrived.
    owed: VecDeque<u16>,
}

impl Link {
    /// Connects to the server of a run directory.
    pub fn open(directory: &Path) -> Result<Link> {
        let run = RunDirectory(directory.to_path_buf());
        let stream = run.term().and_then(|term| connect(&run.socket(term))).map_err(|source| {
            if source.kind() == std::io::ErrorKind::WouldBlock {
                let context = "the server does not take connections; is it stopped?";
                return Error::new(ErrorKind::TimedOut, "connect", context).with_source(source);
            }
            let hint = match source.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    "you may not use it: ask its owner, or join its group"
                }
                _ => "start one with `kelix serve`, or name its directory with --dir or KELIX_DIR",
            };
            let context = format!("no server in {}: {hint}", directory.display());
            Error::new(ErrorKind::Unavailable, "connect", context).with_source(source)
        })?;
        Ok(Link { stream, owed: VecDeque::new() })
    }

    fn send(&self, frame: &Frame) -> Result<()> {
        let (kind, bytes) = frame.encode();
        send_frame(&self.stream, kind, &bytes, &[])
    }

    fn receive(&self) -> Result<(Frame, Vec<OwnedFd>)> {
        let (kind, bytes, descriptors) = receive_frame(&self.stream)?;
        Ok((understand(kind, &bytes)?, descriptors))
    }

    /// Asks for statistics, as JSON.
    pub fn statistics(directory: &Path, greeting: &Frame) -> Result<String> {
        let link = Link::open(directory)?;
        link.send(greeting)?;
        link.send(&Frame::AskStatistics)?;
        match link.receive()? {
            (Frame::Statistics { text }, _) => Ok(text),
            _ => Err(protocol("the server did not send statistics")),
        }
    }

    /// Receives the segments of a shard and maps those not yet in `map`; forgets those no longer named.
    fn receive_segments(&self, shard: u16, map: &mut MemoryMap) -> Result<()> {
        let mut named = Vec::new();
        loop {
            let (frame, descriptors) = self.receive()?;
            let Frame::Segments { shard: of, last, list } = frame else {
                return Err(protocol("the server did not send segments"));
            };
            if of != shard || list.len() != descriptors.len() {
                return Err(protocol("the server sent other segments than announced"));
            }
            for ((first, bytes), descriptor) in list.into_iter().zip(descriptors) {
                let first = first as usize;
                named.push(first);
                if !map.has(first) {
                    map.add(first, Memfd::receive(descriptor, bytes)?.map(false)?);
                }
            }
            if last {
                break;
            }
        }
        for first in map.firsts() {
            if first != 0 && !named.contains(&first) {
                map.remove(first);
            }
        }
        Ok(())
    }

    /// Brings a shard's map up to date.
    pub fn refresh_map(&mut self, shard: u16, map: &MemoryMap) -> Result<Arc<MemoryMap>> {
        self.send(&Frame::AskSegments { shard })?;
        self.owed.push_back(shard);
        // Answers to questions that were given up come first.
        while let Some(of) = self.owed.front().copied().filter(|_| self.owed.len() > 1) {
            self.receive_segments(of, &mut MemoryMap::default())?;
            self.owed.pop_front();
        }
        let mut map = map.clone();
        self.receive_segments(shard, &mut map)?;
        self.owed.pop_front();
        Ok(Arc::new(map))
    }

    /// Opens a session: maps every shard's image and connects its mailboxes.
    pub fn session(
        directory: &Path,
        greeting: &Frame,
        private_pointers: bool,
    ) -> Result<(Link, Core<Endpoint>)> {
        let link = Link::open(directory)?;
        link.send(greeting)?;
        let (Frame::Welcome { term, view, may_write, .. }, mut descriptors) = link.receive()? else {
            return Err(protocol("the server did not greet"));
        };
        let (Some(pointers), Some(authority)) = (descriptors.pop(), descriptors.pop()) else {
            return Err(protocol("the server sent no authority page"));
        };
        let authority = map_file(&File::from(authority), AUTHORITY_BYTES, false)?;
        if authority.words().load(0) != AUTHORITY_MAGIC {
            return Err(protocol("what the server sent as its authority page is none"));
        }
        let pointers = if private_pointers {
            Span::private(POINTER_TABLE_BYTES)
        } else {
            Memfd::receive(pointers, POINTER_TABLE_BYTES)?.map(true)?
        };
        let mut waker = Waker::create()?;
        waker.add_socket(link.stream.as_fd())?;
        let mut endpoint = ShmEndpoint::new(waker);
        let mut peers = Vec::new();
        for shard in 0..view.shards() {
            peers.push(link.join_shard(&mut endpoint, shard as u16, &authority, &view)?);
        }
        let server = OfServer { term, view, may_write };
        let core = Core::new(Endpoint::Shm(endpoint), server, &peers, PointerCache::new(pointers));
        Ok((link, core))
    }

    fn join_shard(
        &self,
        endpoint: &mut ShmEndpoint,
        shard: u16,
        authority: &Span,
        view: &View,
    ) -> Result<PeerId> {
        let (Frame::Image { shard: of, bytes }, mut header) = self.receive()? else {
            return Err(protocol("the server did not send an image"));
        };
        let Some(header) = header.pop().filter(|_| of == shard) else {
            return Err(protocol("the server sent no header page"));
        };
        let header_span = Memfd::receive(header, bytes)?.map(false)?;
        let header = Header::open(header_span.clone())?;
        if header.hash_seed() != view.hash_seed {
            return Err(protocol("image and view have different hash seeds"));
        }
        let mut map = MemoryMap::default();
        map.add(0, header_span.clone());
        self.receive_segments(shard, &mut map)?;
        let (Frame::Mailboxes { shard: of, bytes }, descriptors) = self.receive()? else {
            return Err(protocol("the server sent no mailboxes"));
        };
        let (Ok([requests, replies, waker]), true, MAILBOX_BYTES) =
            (<[OwnedFd; 3]>::try_from(descriptors), of == shard, bytes)
        else {
            return Err(protocol("the server sent other mailboxes than announced"));
        };
        let outbox = Memfd::receive(requests, MAILBOX_BYTES)?.map(true)?;
        let inbox = Memfd::receive(replies, MAILBOX_BYTES)?.map(true)?;
        let wake_key = endpoint.waker().add(WakerHandle::receive(waker))?;
        endpoint.add_sleep_word(SleepWord { span: inbox.clone(), word: mailbox_word::SLEEPS });
        let direct = Direct::new(Arc::new(map), &header, authority.word(AUTHORITY_TERM));
        Ok(endpoint.add(ShmPeer {
            memory: Some(ShmMemory { direct, header }),
            inbox,
            way: Way::Shared {
                outbox,
                sleeps: SleepWord { span: header_span, word: kelix_image::header_word::SLEEPING },
                wake_key,
            },
        }))
    }
}
