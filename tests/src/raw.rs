//! A connection made by hand, frame by frame and word by word, for tests that break the protocol or need to
//! stop in the middle of it.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kelix_fabric::shm::{
    LocalEndpoint, Memfd, Peer, RunDirectory, SleepWord, Waker, WakerHandle, Way, receive_frame, send_frame,
};
use kelix_fabric::{Mailbox, PeerId};
use kelix_image::{Header, MemoryMap, Span, header_word};
use kelix_types::Result;
use kelix_wire::control::{Caller, FEATURE_SEQUENCES, Frame, Purpose};
use kelix_wire::{
    FrameBuffer, Reply, ReplyHead, RequestHead, RingReader, RingShape, RingWriter, SPOKEN, Status, Versions,
    View, encode_request, mailbox_word,
};

/// Connects to a server's socket and says nothing yet.
pub fn connect(directory: &Path) -> UnixStream {
    let run = RunDirectory(directory.to_path_buf());
    let term = run.term().expect("an authority page");
    let stream = UnixStream::connect(run.socket(term)).expect("a server that listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    stream
}

/// Sends one frame.
pub fn send(stream: &UnixStream, frame: &Frame) -> Result<()> {
    let (kind, bytes) = frame.encode();
    send_frame(stream, kind, &bytes, &[])
}

/// Receives one frame.
pub fn receive(stream: &UnixStream) -> Result<(Frame, Vec<OwnedFd>)> {
    let (kind, bytes, descriptors) = receive_frame(stream)?;
    Ok((Frame::decode(kind, &bytes).expect("a frame of the protocol"), descriptors))
}

/// A greeting to a server's default namespace.
pub fn hello(versions: Versions, purpose: Purpose) -> Frame {
    Frame::Hello { versions, features: 0, purpose, caller: None, namespace: String::new() }
}

/// Whether the server has ended this connection, looked at for as long as the stream's timeout.
pub fn is_closed(stream: &UnixStream) -> bool {
    loop {
        match receive_frame(stream) {
            // What was sent before, a refusal among it, does not matter.
            Ok(_) => {}
            Err(error) => {
                let timed_out = std::error::Error::source(&error)
                    .is_some_and(|source| source.to_string().contains("temporarily unavailable"));
                return !timed_out;
            }
        }
    }
}

/// Whether the server has ended this connection by now. The stream's time-out is gone afterwards.
pub fn is_closed_by_now(stream: &UnixStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(1))).expect("a timeout");
    is_closed(stream)
}

/// One shard of a session made by hand.
pub struct RawShard {
    /// The image's header page.
    pub header: Header,
    /// The image.
    pub map: Arc<MemoryMap>,
    /// The server's mailbox.
    pub outbox: Span,
    /// This side's mailbox.
    pub inbox: Span,
    peer: PeerId,
    writer: RingWriter,
    reader: RingReader,
}

/// A session made by hand.
pub struct RawSession {
    /// The set-up connection.
    pub stream: UnixStream,
    /// The server's view.
    pub view: View,
    /// The server's term.
    pub term: u64,
    /// The shards.
    pub shards: Vec<RawShard>,
    endpoint: LocalEndpoint,
}

impl RawSession {
    /// Opens a session like a well-behaved client.
    pub fn open(directory: &Path) -> RawSession {
        RawSession::open_shards(directory, usize::MAX)
    }

    /// Opens a session and receives the memory of so many shards only.
    pub fn open_shards(directory: &Path, most: usize) -> RawSession {
        RawSession::open_with(directory, most, hello(SPOKEN, Purpose::Session))
    }

    /// Opens a session that may ask again.
    pub fn open_as(directory: &Path, caller: Option<Caller>) -> RawSession {
        let Frame::Hello { versions, features, purpose, namespace, .. } = hello(SPOKEN, Purpose::Session)
        else {
            unreachable!("a greeting")
        };
        let hello = Frame::Hello { versions, features, purpose, caller, namespace };
        RawSession::open_with(directory, usize::MAX, hello)
    }

    /// Opens a session that is told with each answer which record has it.
    pub fn open_told(directory: &Path) -> RawSession {
        let Frame::Hello { versions, purpose, caller, namespace, .. } = hello(SPOKEN, Purpose::Session)
        else {
            unreachable!("a greeting")
        };
        let features = FEATURE_SEQUENCES;
        let hello = Frame::Hello { versions, features, purpose, caller, namespace };
        RawSession::open_with(directory, usize::MAX, hello)
    }

    fn open_with(directory: &Path, most: usize, hello: Frame) -> RawSession {
        let stream = connect(directory);
        send(&stream, &hello).expect("sent");
        let Frame::Welcome { term, view, features, .. } = receive(&stream).expect("an answer").0 else {
            panic!("no welcome");
        };
        let Frame::Hello { features: wanted, .. } = hello else { unreachable!("a greeting") };
        assert_eq!(features & FEATURE_SEQUENCES, wanted & FEATURE_SEQUENCES);
        let mut endpoint = LocalEndpoint::new(Waker::create().expect("a descriptor"));
        let mut shards = Vec::new();
        for _ in 0..view.shards().min(most) {
            shards.push(receive_shard(&stream, &mut endpoint));
        }
        RawSession { stream, view, term, shards, endpoint }
    }

    /// Posts a request if there is room.
    pub fn post(&mut self, shard: usize, head: RequestHead, key: &[u8], body: &[u8]) -> bool {
        let mut frame = FrameBuffer::default();
        encode_request(&mut frame, head, key, body);
        let RawShard { writer, peer, .. } = &mut self.shards[shard];
        let pushed = writer.push(&mut self.endpoint, *peer, &mut frame).expect("a sound ring");
        self.endpoint.wake(*peer);
        pushed
    }

    /// Waits a while for the next reply of a shard: its id and how it went. `None` if none came.
    pub fn reply(&mut self, shard: usize, patience: Duration) -> Option<(u32, Status)> {
        self.answer(shard, patience).map(|head| (head.id, head.status))
    }

    /// The same, with all that the reply says of itself.
    pub fn answer(&mut self, shard: usize, patience: Duration) -> Option<ReplyHead> {
        self.told(shard, patience).map(|(head, _)| head)
    }

    /// The same, with the words behind.
    pub fn told(&mut self, shard: usize, patience: Duration) -> Option<(ReplyHead, Vec<u64>)> {
        let began = Instant::now();
        let mut payload = Vec::new();
        let RawShard { reader, peer, .. } = &mut self.shards[shard];
        while !reader.pop(&mut self.endpoint, *peer, &mut payload).expect("a sound ring") {
            if began.elapsed() > patience {
                return None;
            }
            std::thread::yield_now();
        }
        let reply = Reply::parse(&payload).expect("a reply");
        Some((reply.head, reply.item.to_vec()))
    }

    /// Posts a request and waits for its reply.
    #[track_caller]
    pub fn call(&mut self, shard: usize, head: RequestHead, key: &[u8], body: &[u8]) -> Status {
        assert!(self.post(shard, head, key, body), "room in a ring that is waited on");
        let (id, status) = self.reply(shard, Duration::from_secs(10)).expect("a reply");
        assert_eq!(id, head.id);
        status
    }

    /// Wakes a shard's thread, as after words stored by hand.
    pub fn wake(&mut self, shard: usize) {
        let peer = self.shards[shard].peer;
        self.endpoint.wake(peer);
    }
}

fn receive_shard(stream: &UnixStream, endpoint: &mut LocalEndpoint) -> RawShard {
    let (Frame::Image { bytes, .. }, mut descriptors) = receive(stream).expect("a frame") else {
        panic!("no image");
    };
    let header_memory = Memfd::receive(descriptors.pop().expect("the header page"), bytes).expect("sealed");
    let header_span = header_memory.map(false).expect("memory");
    let mut map = MemoryMap::default();
    map.add(0, header_span.clone());
    loop {
        let (Frame::Segments { last, list, .. }, descriptors) = receive(stream).expect("a frame") else {
            panic!("no segments");
        };
        for ((first, bytes), descriptor) in list.into_iter().zip(descriptors) {
            let memory = Memfd::receive(descriptor, bytes).expect("sealed");
            map.add(first as usize, memory.map(false).expect("memory"));
        }
        if last {
            break;
        }
    }
    let (Frame::Mailboxes { bytes, .. }, descriptors) = receive(stream).expect("a frame") else {
        panic!("no mailboxes");
    };
    let [requests, replies, waker] = <[OwnedFd; 3]>::try_from(descriptors).expect("three descriptors");
    let outbox = Memfd::receive(requests, bytes).expect("sealed").map(true).expect("memory");
    let inbox = Memfd::receive(replies, bytes).expect("sealed").map(true).expect("memory");
    let map = Arc::new(map);
    let header = Header::open(header_span.clone()).expect("a header page");
    let wake_key = endpoint.waker().add(WakerHandle::receive(waker)).expect("watched");
    let peer = endpoint.add(Peer {
        memory: None,
        inbox: inbox.clone(),
        way: Way::Shared {
            outbox: outbox.clone(),
            sleeps: SleepWord { span: header_span, word: header_word::SLEEPING },
            wake_key,
        },
    });
    let (writer, reader) =
        (RingWriter::new(RingShape::of_messages(true)), RingReader::new(RingShape::of_messages(true)));
    RawShard { header, map, outbox, inbox, peer, writer, reader }
}

impl RawShard {
    /// Stores words into the server's ring, from this word of the ring on, whatever they are. The first one
    /// last, as the protocol would have it.
    pub fn scribble(&self, at: usize, words: &[u64]) {
        let ring = self.outbox.words();
        ring.copy_in(mailbox_word::RING + at + 1, &words[1..]);
        ring.publish(mailbox_word::RING + at, words[0]);
    }
}
