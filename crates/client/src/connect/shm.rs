//! Connecting over shared memory: the set-up frames, the mappings, the mailboxes.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kelix_fabric::shm::{
    AUTHORITY_ASKED, AUTHORITY_BYTES, AUTHORITY_MAGIC, ImageLife, LocalEndpoint, MappedImage, Memfd, Peer,
    RunDirectory, SleepWord, Waker, WakerHandle, Way, map_file, read_file, receive_frame,
    receive_frame_within, send_frame, term_in_force,
};
use kelix_fabric::{Direct, Endpoint, MirrorEndpoint, PeerId, host_clock_ns};
use kelix_image::{Header, MemoryMap, Span};
use kelix_types::limits::{POINTER_TABLE_BYTES, SEGMENT_BYTES_MAX};
use kelix_types::{Error, ErrorKind, Result};
use kelix_wire::control::Frame;
use kelix_wire::{MAILBOX_BYTES, MAILBOX_STRIDE, View, mailbox_word};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use super::{answer_within, greeted, protocol, understand};
use crate::pointers::PointerCache;
use crate::session::SessionOptions;
use crate::shelf::Shelf;
use crate::transport::{ServerIdentity, Transport};

/// Frames that belong together may take as long as so many answers: those of a session come at once, and are
/// many where there are many shards.
const ANSWERS_MAX: u32 = 10;

/// Connects to a socket. The time-outs are set first, because at a server that stands still connecting may
/// wait too: for room in the queue of its socket.
fn connect(socket: &Path, answer: Duration) -> std::io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC;
    let stream = UnixStream::from(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?);
    stream.set_read_timeout(Some(answer))?;
    stream.set_write_timeout(Some(answer))?;
    rustix::net::connect(&stream, &SocketAddrUnix::new(socket)?)?;
    Ok(stream)
}

/// Host and port that the server of a run directory says it listens at.
pub(super) fn listens_at(directory: &Path) -> Result<String> {
    let run = RunDirectory(directory.to_path_buf());
    let told = run.check_owner().and_then(|()| read_file(&run.tcp(), 4096)).map_err(|source| {
        let context = format!(
            "no server that listens over TCP in {}: start one with `kelix serve --listen PORT`",
            directory.display()
        );
        Error::new(ErrorKind::Unavailable, "connect", context).with_source(source)
    })?;
    Ok(String::from_utf8_lossy(&told).trim().into())
}

/// What a server says of itself.
struct Greeted {
    server: ServerIdentity,
    descriptors: Vec<OwnedFd>,
    /// Where that is which it follows, if it is a mirror.
    primary: Option<String>,
}

/// The set-up connection.
pub(crate) struct Link {
    stream: UnixStream,
    /// How long a frame may take, and when all that belongs together has to be here.
    answer: Duration,
    until: Instant,
    /// Shards whose segments were asked for and have not arrived.
    owed: VecDeque<u16>,
    /// Of each shard's image.
    lives: Vec<ImageLife>,
    /// The mailboxes of all shards, if they are one memory.
    together: Option<Span>,
}

impl Link {
    /// Connects to the server of a run directory.
    pub fn open(directory: &Path, answer: Duration) -> Result<Link> {
        let run = RunDirectory(directory.to_path_buf());
        let opened = run.check_owner().and_then(|()| run.term());
        let stream = opened.and_then(|term| connect(&run.socket(term), answer)).map_err(|source| {
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
            let may_come = source.kind() != std::io::ErrorKind::PermissionDenied;
            Error::new(ErrorKind::Unavailable, "connect", context).with_source(source).with_retry(may_come)
        })?;
        Ok(Link::over(stream, answer))
    }

    fn over(stream: UnixStream, answer: Duration) -> Link {
        let until = Instant::now() + answer * ANSWERS_MAX;
        Link { stream, answer, until, owed: VecDeque::new(), lives: Vec::new(), together: None }
    }

    fn send(&self, frame: &Frame) -> Result<()> {
        let (kind, bytes) = frame.encode();
        send_frame(&self.stream, kind, &bytes, &[])
    }

    fn receive(&self) -> Result<(Frame, Vec<OwnedFd>)> {
        let left = self.until.saturating_duration_since(Instant::now());
        let (kind, bytes, descriptors) = receive_frame_within(&self.stream, left.min(self.answer))?;
        Ok((understand(kind, &bytes)?, descriptors))
    }

    /// Greets, and returns what the server says of itself, with descriptors.
    fn greet(&self, greeting: &Frame) -> Result<Greeted> {
        // A server that refuses whoever comes may have said why, and be gone by now.
        self.send(greeting).map_err(|error| self.receive().err().unwrap_or(error))?;
        let (answer, descriptors) = self.receive()?;
        let server = greeted(answer)?;
        let primary = server.is_mirror.then(|| match self.receive()? {
            (Frame::Primary { address }, _) => Ok(address),
            _ => Err(protocol("the mirror did not say whom it follows")),
        });
        Ok(Greeted { server, descriptors, primary: primary.transpose()? })
    }

    /// Asks for statistics, as JSON.
    pub fn statistics(directory: &Path, greeting: &Frame, answer: Duration) -> Result<String> {
        let link = Link::open(directory, answer)?;
        link.greet(greeting)?;
        link.send(&Frame::AskStatistics)?;
        match link.receive()? {
            (Frame::Statistics { text }, _) => Ok(text),
            _ => Err(protocol("the server did not send statistics")),
        }
    }

    /// Has a snapshot taken, and tells where it is, or why there is none, as JSON. Waits for as long as it
    /// takes.
    pub fn snapshot(directory: &Path, greeting: &Frame, answer: Duration) -> Result<String> {
        let link = Link::open(directory, answer)?;
        link.greet(greeting)?;
        let waits = link.stream.set_read_timeout(None);
        waits.map_err(|source| Error::system("snapshot", "the system refused to wait", source))?;
        link.send(&Frame::TakeSnapshot)?;
        let (kind, bytes, _) = receive_frame(&link.stream)?;
        match understand(kind, &bytes)? {
            Frame::Snapshot { text } => Ok(text),
            _ => Err(protocol("the server did not say what became of the snapshot")),
        }
    }

    /// Receives the segments of a shard and maps those not yet in `map`; forgets those no longer named. The
    /// inner result is what came of mapping them: whatever that is, the answer has been received to its end.
    fn receive_segments(&self, shard: u16, map: &mut MemoryMap) -> Result<Result<()>> {
        let (mut named, mut mapped) = (Vec::new(), Ok(()));
        loop {
            let (frame, descriptors) = self.receive()?;
            let Frame::Segments { shard: of, last, list } = frame else {
                return Err(protocol("the server did not send segments"));
            };
            if of != shard || list.len() != descriptors.len() || list.is_empty() {
                return Err(protocol("the server sent other segments than announced"));
            }
            for ((first, bytes), descriptor) in list.into_iter().zip(descriptors) {
                let first = first as usize;
                if first == 0 || named.contains(&first) {
                    return Err(protocol("the server named a segment twice, or the header page"));
                }
                named.push(first);
                if map.has(first) {
                    continue;
                }
                if bytes > SEGMENT_BYTES_MAX || !map.has_room(first, bytes) {
                    return Err(protocol("the server sent a segment where none can be"));
                }
                match Memfd::receive(descriptor, bytes)?.map_segment(first, &self.lives[usize::from(shard)]) {
                    Ok(span) => map.add(first, span),
                    Err(error) => mapped = Err(error),
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
        Ok(mapped)
    }

    /// Brings a shard's map up to date.
    pub fn refresh_map(&mut self, shard: u16, map: &MemoryMap) -> Result<Arc<MemoryMap>> {
        self.until = Instant::now() + self.answer * ANSWERS_MAX;
        self.send(&Frame::AskSegments { shard })?;
        self.owed.push_back(shard);
        // Answers to questions that were given up come first.
        while let Some(of) = self.owed.front().copied().filter(|_| self.owed.len() > 1) {
            // What cannot be mapped is not wanted any more either.
            let _ = self.receive_segments(of, &mut MemoryMap::default())?;
            self.owed.pop_front();
        }
        let mut map = map.clone();
        let mapped = self.receive_segments(shard, &mut map)?;
        self.owed.pop_front();
        mapped?;
        Ok(Arc::new(map))
    }

    /// Opens a session: maps every shard's image and connects its mailboxes.
    pub fn session(
        directory: &Path,
        greeting: &Frame,
        options: &SessionOptions,
    ) -> Result<(Link, Transport<Endpoint>)> {
        let mut link = Link::open(directory, answer_within(options))?;
        let Greeted { server, mut descriptors, primary } = link.greet(greeting)?;
        let (Some(pointers), Some(authority)) = (descriptors.pop(), descriptors.pop()) else {
            return Err(protocol("the server sent no authority page"));
        };
        let authority = map_file(&File::from(authority), AUTHORITY_BYTES, false)?;
        if authority.words().load(0) != AUTHORITY_MAGIC {
            return Err(protocol("what the server sent as its authority page is none"));
        }
        if authority.words().load_acquire(AUTHORITY_ASKED) > host_clock_ns(false) {
            // A lease of another clock may last here when it is over there.
            let context = "this process has another clock than the server, whose time namespace is another: connect over TCP";
            return Err(Error::new(ErrorKind::Unavailable, "connect", context));
        }
        let pointers = if options.private_caches {
            PointerCache::private()?
        } else {
            Memfd::receive(pointers, POINTER_TABLE_BYTES)?.map(true)?
        };
        let mut waker = Waker::create()?;
        waker.add_socket(link.stream.as_fd())?;
        let mut endpoint = LocalEndpoint::new(waker);
        let mut peers = Vec::new();
        for shard in 0..server.view.shards() {
            peers.push(link.join_shard(&mut endpoint, shard as u16, &authority, &server.view)?);
        }
        let endpoint = match primary {
            Some(_) => Endpoint::Mirror(Box::new(MirrorEndpoint::new(endpoint))),
            None => Endpoint::Local(endpoint),
        };
        let pointers = PointerCache::new(pointers);
        let mut transport = Transport::new(endpoint, server, &peers, pointers, Shelf::Private);
        if let Some(address) = primary {
            transport.begin_mirror(address, options);
        }
        Ok((link, transport))
    }

    /// The mailboxes of a shard and of this client for it, with the descriptors that came: of all shards' mailboxes
    /// with the first shard, and none with the others; or of these two, from a server of an earlier build. `None`:
    /// there are others.
    fn mailboxes(
        &mut self,
        shard: u16,
        view: &View,
        descriptors: impl Iterator<Item = OwnedFd>,
    ) -> Result<Option<[Span; 2]>> {
        let mut all: Vec<OwnedFd> = descriptors.collect();
        match (all.len(), &self.together) {
            (2, None) => {
                let replies = Memfd::receive(all.pop().expect("two"), MAILBOX_BYTES)?.map(true)?;
                let requests = Memfd::receive(all.pop().expect("two"), MAILBOX_BYTES)?.map(true)?;
                return Ok(Some([requests, replies]));
            }
            (1, None) if shard == 0 => {
                let bytes = 2 * view.shards() as u64 * MAILBOX_STRIDE;
                self.together = Some(Memfd::receive(all.pop().expect("one"), bytes)?.map(true)?);
            }
            (0, Some(_)) => {}
            _ => return Ok(None),
        }
        let first = 2 * u64::from(shard) * MAILBOX_STRIDE;
        let part = |span: &Span| [first, first + MAILBOX_STRIDE].map(|first| span.part(first, MAILBOX_BYTES));
        Ok(self.together.as_ref().map(part))
    }

    fn join_shard(
        &mut self,
        endpoint: &mut LocalEndpoint,
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
        if bytes != Header::BYTES {
            return Err(protocol("the server sent a header page of another length"));
        }
        let header_span = Memfd::receive(header, bytes)?.map(false)?;
        let header = Header::open(header_span.clone())?;
        if header.hash_seed() != view.hash_seed {
            return Err(protocol("image and view have different hash seeds"));
        }
        let authority = term_in_force(authority);
        self.lives.push(ImageLife::new(header.clone(), authority.clone()));
        let mut map = MemoryMap::default();
        map.add(0, header_span.clone());
        self.receive_segments(shard, &mut map)??;
        let (Frame::Mailboxes { shard: of, bytes }, descriptors) = self.receive()? else {
            return Err(protocol("the server sent no mailboxes"));
        };
        let mut descriptors = descriptors.into_iter();
        let waker = descriptors.next_back().filter(|_| of == shard && bytes == MAILBOX_BYTES);
        let Some((waker, [outbox, inbox])) = waker.zip(self.mailboxes(shard, view, descriptors)?) else {
            return Err(protocol("the server sent other mailboxes than announced"));
        };
        let wake_key = endpoint.waker().add(WakerHandle::receive(waker))?;
        endpoint.add_sleep_word(SleepWord { span: inbox.clone(), word: mailbox_word::SLEEPS });
        let direct = Direct::new(Arc::new(map), &header, authority);
        Ok(endpoint.add(Peer {
            memory: Some(MappedImage { direct, header }),
            inbox,
            way: Way::Shared {
                outbox,
                sleeps: SleepWord { span: header_span, word: kelix_image::header_word::SLEEPING },
                wake_key,
            },
        }))
    }
}

#[cfg(test)]
mod tests {
    use kelix_types::limits::{GRANULE_BYTES, GRANULES_MAX};

    use super::*;

    /// What a client makes of segments that a server names, each list a frame; only the last frame says that
    /// it is the last.
    fn receive(frames: &[&[(u64, u64)]]) -> Result<Vec<usize>> {
        let (stream, server) = UnixStream::pair().unwrap();
        let mut link = Link::over(stream, Duration::from_secs(10));
        let header = Header::create(Span::private(Header::BYTES), 1, 2, 3, 0);
        link.lives.push(ImageLife::new(header, Span::private(64).word(0)));
        for (index, list) in frames.iter().enumerate() {
            let memory: Vec<Memfd> = list
                .iter()
                .map(|(_, bytes)| {
                    // Nobody has as much as is named here: it is not to be looked at.
                    let bytes = (*bytes).clamp(4096, 4 * GRANULE_BYTES);
                    Memfd::create("kelix-segment", bytes, true).unwrap().0
                })
                .collect();
            let last = index + 1 == frames.len();
            let (kind, bytes) = Frame::Segments { shard: 0, last, list: list.to_vec() }.encode();
            let descriptors: Vec<_> = memory.iter().map(Memfd::fd).collect();
            send_frame(&server, kind, &bytes, &descriptors).unwrap();
        }
        let mut map = MemoryMap::default();
        map.add(0, Span::private(Header::BYTES));
        link.receive_segments(0, &mut map)?.map(|()| map.firsts())
    }

    /// The place of a segment was believed: a number that no place can have took as much memory as it said,
    /// and two segments in one place ended the client's process.
    #[test]
    fn segments_that_cannot_be_are_an_error_and_take_no_memory() {
        assert_eq!(receive(&[&[(1, 4096)], &[(3, GRANULE_BYTES), (4, 4096)]]).unwrap(), [0, 1, 3, 4]);
        let one = GRANULE_BYTES;
        for frames in [
            &[&[(u64::MAX, 4096)][..]][..],
            &[&[(GRANULES_MAX as u64, 4096)]],
            &[&[(1 << 40, 4096)]],
            &[&[(0, 4096)]],
            &[&[(1, 2 * one), (2, 4096)]],
            &[&[(2, 4096), (1, 2 * one)]],
            &[&[(1, 4096)], &[(1, 4096)]],
            &[&[(1, 0)]],
            &[&[(1, SEGMENT_BYTES_MAX + 4096)]],
            &[&[(1, u64::MAX)]],
            &[&[(1, 4096)], &[]],
        ] {
            let result = receive(frames);
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Protocol, "{frames:x?}");
        }
    }
}
