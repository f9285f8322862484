//! Clients that break the protocol, by accident or on purpose. At most they end themselves: a session beside
//! them goes on, and the server holds no more afterwards than before.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kelix_fabric::shm::send_frame;
use kelix_tests::bystander::Bystander;
use kelix_tests::process::{Held, ServerProcess, ServerProgram};
use kelix_tests::raw::{self, RawSession};
use kelix_tests::{Random, RunDir, seeds, until, watchdog};
use kelix_types::TableId;
use kelix_types::limits::{FRAME_BYTES_MAX, KEY_BYTES_MAX, MESSAGE_RING_BYTES};
use kelix_wire::control::{Frame, Purpose};
use kelix_wire::{FrameBuffer, Op, RequestHead, SPOKEN, Status, Versions, encode_request, mailbox_word};

const RING_WORDS: u64 = (MESSAGE_RING_BYTES / 8) as u64;
/// A table that no honest client of these tests has.
const TABLE: TableId = TableId(100);

struct World {
    bystander: Bystander,
    before: Held,
    server: ServerProcess,
    run: RunDir,
}

fn world(shards: usize) -> World {
    let run = RunDir::new();
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    let memory_bytes = (shards as u64 * (32 << 20)).max(256 << 20);
    let server = ServerProgram { program, directory: run.path(), shards, memory_bytes, take_over: false };
    let server = server.serve();
    let bystander = Bystander::start(&server);
    World { before: server.held_at_rest(), bystander, server, run }
}

impl World {
    fn connect(&self) -> UnixStream {
        raw::connect(self.run.path())
    }

    fn open(&self) -> RawSession {
        RawSession::open(self.run.path())
    }

    /// Nobody else has noticed, and nothing is left.
    #[track_caller]
    fn end(self) {
        self.bystander.goes_on();
        self.server.until_given_back(self.before);
        self.bystander.end();
    }
}

#[track_caller]
fn until_closed(stream: &UnixStream, why: &str) {
    until(why, || raw::is_closed_by_now(stream));
}

/// The 16 bytes before a frame.
fn frame_head(kind: u16, descriptors: u16, bytes: u32) -> Vec<u8> {
    let (kind, descriptors) = (kind.to_le_bytes(), descriptors.to_le_bytes());
    [&b"KLX1"[..], &kind, &descriptors, &bytes.to_le_bytes(), &[0; 4]].concat()
}

/// The words of a frame in the ring.
fn ring_frame(sequence: u32, payload: &[u64]) -> Vec<u64> {
    [&[u64::from(sequence) << 32 | payload.len() as u64], payload].concat()
}

fn request(head: RequestHead, key: &[u8], body: &[u8]) -> Vec<u64> {
    let mut frame = FrameBuffer::default();
    encode_request(&mut frame, head, key, body);
    frame.payload().to_vec()
}

/// Who begins to greet and stops has his connection ended, and takes a thread only until then.
#[test]
fn half_a_greeting_and_then_silence() {
    let _watchdog = watchdog("half a greeting");
    let world = world(1);
    let (kind, hello) = raw::hello(SPOKEN, Purpose::Session).encode();
    let greeting = [frame_head(kind, 0, hello.len() as u32), hello].concat();
    let streams: Vec<UnixStream> = (0..greeting.len()).map(|_| world.connect()).collect();
    for (bytes, mut stream) in streams.iter().enumerate() {
        stream.write_all(&greeting[..bytes]).unwrap();
    }
    streams.iter().for_each(|stream| until_closed(stream, "the silent connection is ended"));
    world.end();
}

/// A client at rest takes no thread of the server. One that breaks off in the middle of a frame takes one,
/// and keeps nobody waiting: not who connects, not who has a frame answered, and not who goes.
#[test]
fn half_a_frame_of_clients_at_rest() {
    let _watchdog = watchdog("half a frame");
    let world = world(1);
    let open = |count: usize| -> Vec<RawSession> { (0..count).map(|_| world.open()).collect() };
    let takes = |threads: usize| world.server.held().threads <= world.before.threads + threads;
    let (half, gone) = (open(10), open(10));
    until("clients at rest take no thread", || takes(0));
    let ask = Frame::AskSegments { shard: 0 };
    let (kind, bytes) = ask.encode();
    let frame = [frame_head(kind, 0, bytes.len() as u32), bytes].concat();
    for (session, broken_off) in half.iter().zip([1, 15, 16, 17].into_iter().cycle()) {
        (&session.stream).write_all(&frame[..broken_off]).unwrap();
    }
    until("who says half of it has a thread", || !takes(half.len() - 1));
    drop(gone);
    let others = open(3);
    for session in &others {
        for _ in 0..3 {
            raw::send(&session.stream, &ask).unwrap();
            let (answer, descriptors) = raw::receive(&session.stream).unwrap();
            assert!(
                matches!(answer, Frame::Segments { shard: 0, last: true, .. }) && !descriptors.is_empty()
            );
        }
    }
    until("who was answered is at rest again", || takes(half.len()));
    // The other half comes late.
    for (session, broken_off) in half.iter().zip([1, 15, 16, 17].into_iter().cycle()) {
        (&session.stream).write_all(&frame[broken_off..]).unwrap();
        assert!(matches!(raw::receive(&session.stream).unwrap().0, Frame::Segments { shard: 0, .. }));
    }
    until("all are at rest", || takes(0));
    drop((half, others));
    world.end();
}

/// Greetings in versions of which the server speaks none are answered with both sides' numbers, whatever
/// follows them; whoever speaks others besides is welcome.
#[test]
fn other_versions_are_refused_by_name() {
    let _watchdog = watchdog("other versions");
    let world = world(1);
    let stream = world.connect();
    let hello = raw::hello(Versions { oldest: SPOKEN.oldest, newest: 77 }, Purpose::Session);
    raw::send(&stream, &hello).unwrap();
    let Frame::Welcome { version, .. } = raw::receive(&stream).unwrap().0 else { panic!("not welcome") };
    assert_eq!(version, SPOKEN.newest);
    drop(stream);
    for rest in [0, 9, 5000] {
        let stream = world.connect();
        let hello = [&[76, 0, 77, 0], &vec![0xee; rest][..]].concat();
        send_frame(&stream, 1, &hello, &[]).unwrap();
        let Frame::Refused { text } = raw::receive(&stream).unwrap().0 else { panic!("not refused") };
        assert!(text.contains("version 76 to 77") && text.contains("version 1"), "{text}");
        assert!(raw::is_closed(&stream));
    }
    let stream = world.connect();
    let hello = Frame::Hello {
        versions: SPOKEN,
        features: 4,
        purpose: Purpose::Session,
        caller: None,
        namespace: String::new(),
    };
    raw::send(&stream, &hello).unwrap();
    let Frame::Refused { text } = raw::receive(&stream).unwrap().0 else { panic!("not refused") };
    assert!(text.contains("features 0x4"), "{text}");
    world.end();
}

/// Bytes that are no frame, frames of the wrong kind or at the wrong time, lengths without end, and shards
/// that do not exist each end the connection they came by, before and after the greeting.
#[test]
fn garbage_in_place_of_frames() {
    let _watchdog = watchdog("garbage frames");
    let world = world(2);
    let frame = |frame: Frame| {
        let (kind, bytes) = frame.encode();
        [frame_head(kind, 0, bytes.len() as u32), bytes].concat()
    };
    let mut garbage = vec![
        b"GET / HTTP/1.1\r\nHost: kelix\r\n\r\n".to_vec(),
        frame_head(1, 0, u32::MAX),
        frame_head(6, 0, (1 << 20) + 1),
        // Descriptors that do not come.
        frame_head(1, 3, 0),
        frame_head(99, 0, 0),
        frame(Frame::AskSegments { shard: 2 }),
        frame(Frame::AskSegments { shard: u16::MAX }),
        frame(Frame::Mailboxes { shard: 0, bytes: u64::MAX }),
        frame(Frame::Welcome {
            version: 1,
            features: 0,
            pid: 1,
            term: 1,
            may_write: true,
            view: kelix_wire::View::of_shards(1, 1, 2),
            life: 1,
        }),
        [frame_head(1, 0, 13), vec![0xff; 13]].concat(),
    ];
    let mut random = Random(1);
    garbage.extend((0..20).map(|_| (0..16 + random.below(100)).map(|_| random.next() as u8).collect()));
    for bytes in &garbage {
        let mut stream = world.connect();
        stream.write_all(bytes).unwrap();
        until_closed(&stream, &format!("{bytes:?} instead of a greeting ends the connection"));
        let statistics = raw::hello(SPOKEN, Purpose::Statistics);
        let mut stream = world.connect();
        raw::send(&stream, &statistics).unwrap();
        stream.write_all(bytes).unwrap();
        until_closed(&stream, &format!("{bytes:?} after a greeting ends the connection"));
        let mut session = world.open();
        session.stream.write_all(bytes).unwrap();
        until_closed(&session.stream, &format!("{bytes:?} in a session ends the connection"));
    }
    world.bystander.goes_on();
    // Half a frame is no offence once one has greeted; it is waited for until its sender goes.
    let mut silent = world.open();
    silent.stream.write_all(&frame_head(6, 0, 2)[..9]).unwrap();
    assert_eq!(silent.call(0, RequestHead::new(Op::Ping, 1, TABLE), &[], &[]), Status::Ok);
    drop(silent);
    world.end();
}

/// A message that no client of the protocol can have sent ends the connection, and is not half executed.
#[test]
fn requests_that_make_no_sense() {
    let _watchdog = watchdog("requests that make no sense");
    let world = world(2);
    let put = request(RequestHead::new(Op::Put, 1, TABLE), b"key", b"value");
    let with = |word: usize, value: u64| {
        let mut payload = put.clone();
        payload[word] = value;
        ring_frame(1, &payload)
    };
    let sizes = |key: u64, body: u64| with(1, key | body << 32);
    let cases = [
        ("an operation that is none", with(0, put[0] & !0xff)),
        ("an operation that is not there yet", with(0, put[0] & !0xff | 22)),
        ("flags that are none", with(0, put[0] | 0x80 << 8)),
        ("a key beyond the frame", sizes(800, 0)),
        ("a body beyond the frame", sizes(3, 1 << 20)),
        ("sizes beyond everything", sizes(u64::from(u32::MAX), u64::from(u32::MAX))),
        ("a key longer than keys are", sizes(KEY_BYTES_MAX as u64 + 1, 0)),
        ("less than the frame holds", sizes(0, 0)),
        ("nothing", ring_frame(1, &[])),
        ("half a head", ring_frame(1, &put[..1])),
        ("optional words that do not fit", ring_frame(1, &[put[0] | 7 << 8, 0, 1])),
        ("another sequence", ring_frame(2, &put)),
        ("sequence 0", ring_frame(0, &put)),
        ("a frame longer than frames are", vec![1 << 32 | (FRAME_BYTES_MAX as u64 / 8)]),
        ("a frame without end", vec![1 << 32 | 0xffff_fff0]),
        ("a jump to where it is", vec![1 << 32 | 0xffff_ffff]),
    ];
    for (what, words) in &cases {
        for shard in 0..2 {
            let mut session = world.open();
            session.shards[shard].scribble(0, words);
            session.wake(shard);
            until_closed(&session.stream, &format!("{what} ends the connection"));
        }
    }
    // The key is not there: what ended the connections was not executed.
    let mut session = world.open();
    for shard in 0..2 {
        let get = RequestHead::new(Op::Get, 1, TABLE);
        assert_eq!(session.call(shard, get, b"key", &[]), Status::Absent);
    }
    drop(session);
    world.end();
}

/// Requests that are well formed and ask for what cannot be are answered as refused, and the session goes on.
#[test]
fn requests_for_what_cannot_be() {
    let _watchdog = watchdog("requests for what cannot be");
    let world = world(2);
    let mut session = world.open();
    let new = |op: Op| RequestHead::new(op, 5, TABLE);
    let with = |op: Op, argument: u64| RequestHead { argument: Some(argument), ..new(op) };
    let catalogue = |op: Op| RequestHead::new(op, 5, TableId::CATALOGUE);
    let refused: [(RequestHead, &[u8], &[u8]); 13] = [
        (with(Op::LargePiece, 0), b"", b"a piece of no value"),
        (new(Op::LargeCommit), b"k", b""),
        (new(Op::LargeBegin), b"k", b""),
        (with(Op::LargeBegin, 0), b"k", b""),
        (with(Op::LargeBegin, u64::MAX), b"k", b""),
        (catalogue(Op::Put), b"k", b"v"),
        (catalogue(Op::Delete), b"k", b""),
        (RequestHead { argument: Some(9), ..catalogue(Op::LargeBegin) }, b"k", b""),
        (new(Op::Intern), b"in a table that is not there", b""),
        (RequestHead { attributes: true, ..new(Op::Put) }, b"k", &[0xff; 40]),
        (new(Op::RepairLink), b"k", b"no place"),
        (new(Op::PutMany), b"", &[0xff; 8]),
        (new(Op::PutMany), b"k", &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ];
    for (head, key, body) in refused {
        let status = session.call(1, head, key, body);
        assert_eq!(status, Status::Refused, "{head:?}");
    }
    assert_eq!(session.call(0, with(Op::LargeBegin, 1 << 40), b"k", &[]), Status::NoRoom);
    assert_eq!(session.call(0, with(Op::RepairLink, 7), b"k", &[0xff; 16]), Status::Absent);
    // Generations that nobody builds.
    for op in [Op::Load, Op::Resolve, Op::Switch, Op::Abandon, Op::Hold, Op::Freeze, Op::Overlays] {
        for generation in [0, 1, u64::MAX] {
            assert_eq!(session.call(0, with(op, generation), b"", &[]), Status::Gone, "{op:?} {generation}");
        }
    }
    // Pieces in the wrong order, and more of them than were announced, end the upload but not the session.
    for (at, bytes) in [(8, 8), (u64::MAX, 8), (0, 3000), (0, 0)] {
        for announced in [2000, 2 << 20] {
            assert_eq!(session.call(0, with(Op::LargeBegin, announced), b"k", &[]), Status::Ok);
            let status = session.call(0, with(Op::LargePiece, at), &[], &vec![1; bytes]);
            let fits = at == 0 && bytes as u64 <= announced;
            assert_eq!(status, if fits { Status::Ok } else { Status::Refused }, "{bytes} bytes at {at}");
            assert_eq!(session.call(0, new(Op::LargeCommit), b"k", &[]), Status::Refused);
        }
    }
    assert_eq!(session.call(0, new(Op::Ping), &[], &[]), Status::Ok);
    drop(session);
    world.end();
}

/// Who asks and never takes an answer is not listened to any more, and costs nobody anything. One that then
/// claims to have taken more than there was is thrown out.
#[test]
fn answers_that_nobody_takes() {
    let _watchdog = watchdog("answers that nobody takes");
    let world = world(1);
    let mut session = world.open();
    let put = RequestHead::new(Op::Put, 1, TABLE);
    assert_eq!(session.call(0, put, b"k", &[7; 30_000]), Status::Ok);
    let get = RequestHead::new(Op::Get, 2, TABLE);
    let mut posted = 0u64;
    while session.post(0, get, b"k", &[]) {
        posted += 1;
    }
    assert!(posted > RING_WORDS / 8, "only {posted} requests fit the ring");
    world.bystander.goes_on();
    session.shards[0].outbox.words().publish(mailbox_word::CONSUMED, 1 << 60);
    session.wake(0);
    until_closed(&session.stream, "a claim that cannot be ends the connection");
    drop(session);
    world.end();
}

/// Words stored at random all over the server's mailbox, while requests are under way, end at most the
/// session whose mailbox it is.
#[test]
fn words_at_random_places_of_a_mailbox_in_use() {
    let _watchdog = watchdog("words at random places");
    let world = world(2);
    for seed in seeds(30) {
        eprintln!("seed {seed}");
        let mut random = Random(seed);
        let mut session = world.open();
        let stop = Arc::new(AtomicBool::new(false));
        let (mailbox, mut other, stopped) = (session.shards[0].outbox.clone(), random.clone(), stop.clone());
        let words = mailbox.bytes() / 8;
        let scribbler = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                mailbox.words().store(other.below(words) as usize, other.next() >> other.below(64));
                std::thread::yield_now();
            }
        });
        let mut last = 0;
        until("the connection is ended or the requests are posted", || {
            for _ in 0..100 {
                let head = RequestHead::new(Op::Put, last, TABLE);
                last += u32::from(session.post(0, head, &random.next().to_le_bytes(), &[1; 100]));
            }
            last >= 3000 || raw::is_closed_by_now(&session.stream)
        });
        stop.store(true, Ordering::Relaxed);
        scribbler.join().unwrap();
    }
    world.end();
}
