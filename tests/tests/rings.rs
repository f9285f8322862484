//! Rings full of nonsense, and how the server gets rid of the clients that wrote it.

use kelix_tests::bystander::Bystander;
use kelix_tests::process::{Process, ServerProcess, ServerProgram, patient};
use kelix_tests::raw::{self, RawSession};
use kelix_tests::{Random, RunDir, seeds, until, watchdog};
use kelix_types::TableId;
use kelix_types::limits::{FRAME_BYTES_MAX, KEY_BYTES_MAX, MESSAGE_RING_BYTES};
use kelix_wire::{FrameBuffer, Op, RequestHead, encode_request, mailbox_word};

const RING_WORDS: usize = MESSAGE_RING_BYTES / 8;
const FRAME_WORDS: usize = FRAME_BYTES_MAX / 8 - 1;

fn server(run: &RunDir, shards: usize) -> ServerProcess {
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    let memory_bytes = (shards as u64 * (32 << 20)).max(256 << 20);
    ServerProgram { program, directory: run.path(), shards, memory_bytes, take_over: false }.serve()
}

/// Random words, some of them small, so that they look like lengths.
fn words(random: &mut Random, count: usize) -> Vec<u64> {
    (0..count).map(|_| random.next() >> random.below(64)).collect()
}

/// Something that looks much like a request: most of its sizes fit, and its fields are near what they may be.
fn plausible(random: &mut Random) -> Vec<u64> {
    let op = if random.once_in(30) { random.below(256) } else { 1 + random.below(9) };
    let flags = if random.once_in(30) { random.below(256) } else { random.below(16) };
    let table = [0, 100, 101, 65_535][random.below(4) as usize];
    let key = if random.once_in(10) { random.below(KEY_BYTES_MAX as u64 + 2) } else { random.below(40) };
    let body = if random.once_in(4) { random.below(40_000) } else { random.below(100) };
    let optional = (flags & 7).count_ones() as usize;
    let body_start = if flags & 8 != 0 { key.next_multiple_of(8) } else { key };
    let mut tail = (body_start + body).div_ceil(8) as usize;
    if random.once_in(30) {
        tail += 1;
    }
    let mut payload = vec![op | flags << 8 | table << 16 | random.next() << 32, key | body << 32];
    payload.extend((0..optional).map(|_| match random.below(4) {
        // As arguments these are sizes and places that can be.
        0 => 0,
        1 => body,
        2 => random.below(4 << 20),
        _ => random.next() >> random.below(64),
    }));
    payload.extend(words(random, tail.min(FRAME_WORDS - payload.len())));
    payload
}

/// A row of frames with the right sequences.
fn frames(random: &mut Random, mut payload: impl FnMut(&mut Random) -> Vec<u64>) -> Vec<u64> {
    let mut ring = Vec::new();
    for sequence in 1..=1 + random.below(60) {
        let payload = payload(random);
        if ring.len() + 1 + payload.len() > RING_WORDS {
            break;
        }
        ring.push(sequence << 32 | payload.len() as u64);
        ring.extend(payload);
    }
    ring
}

/// Sound requests of which some bits were flipped, in their frames' heads as well.
fn flipped(random: &mut Random) -> Vec<u64> {
    let mut ring = frames(random, |random| {
        let op = [Op::Get, Op::Put, Op::Delete, Op::Ping][random.below(4) as usize];
        let mut frame = FrameBuffer::default();
        let (head, body) = (RequestHead::new(op, 1, TableId(100)), vec![3; random.below(300) as usize]);
        encode_request(&mut frame, head, &random.below(20).to_le_bytes(), &body);
        frame.payload().to_vec()
    });
    for _ in 0..1 + random.below(3) {
        let at = random.below(ring.len() as u64) as usize;
        ring[at] ^= 1 << random.below(64);
    }
    ring
}

/// Whatever stands in a ring: random words, frames of random words, almost sound requests. It ends at most
/// the session whose ring it is.
#[test]
fn random_words_all_over_the_ring() {
    let _watchdog = watchdog("random rings");
    let run = RunDir::new();
    let server = server(&run, 2);
    let bystander = Bystander::start(&server);
    let before = server.held_at_rest();
    for seed in seeds(200) {
        eprintln!("seed {seed}");
        let mut random = Random(seed);
        let mut session = RawSession::open(run.path());
        let shard = random.below(2) as usize;
        let mut ring = match random.below(8) {
            0 => words(&mut random, RING_WORDS),
            1 => frames(&mut random, |random| {
                let count = random.below(FRAME_WORDS as u64 / 4) as usize;
                words(random, count)
            }),
            2..=5 => frames(&mut random, plausible),
            _ => flipped(&mut random),
        };
        // A zero would say that nothing is there.
        ring[0] = ring[0].max(1);
        session.shards[shard].scribble(0, &ring);
        session.wake(shard);
        until("the ring was looked at", || {
            session.shards[shard].outbox.words().load(mailbox_word::RING) != ring[0]
                || raw::is_closed_by_now(&session.stream)
        });
        if seed % 10 == 0 {
            bystander.goes_on();
        }
    }
    server.until_given_back(before);
    bystander.end();
}

/// A client that broke the protocol before the last of its shards was set up was not known yet to those who
/// end connections: its fault was forgotten, and its connection stayed for ever, with nobody to answer on it.
#[test]
fn a_fault_while_the_session_is_still_set_up_ends_it() {
    let _watchdog = watchdog("an early fault");
    let run = RunDir::new();
    let server = server(&run, 40);
    let bystander = Bystander::start(&server);
    let before = server.held_at_rest();
    for _ in 0..30 {
        let mut session = RawSession::open_shards(run.path(), 1);
        session.shards[0].scribble(0, &[u64::MAX, 0]);
        session.wake(0);
        until("the connection is ended", || raw::is_closed_by_now(&session.stream));
    }
    server.until_given_back(before);
    bystander.end();
}

/// The server says whom it disconnects and why. Where that could not be written, it panicked with a lock in
/// its hand, and nobody could connect or leave any more.
#[test]
fn a_server_that_cannot_complain_ends_faulty_clients_all_the_same() {
    let _watchdog = watchdog("a server that cannot complain");
    let run = RunDir::new();
    let (program, directory) = (env!("CARGO_BIN_EXE_kelix-test-server"), run.path().display().to_string());
    let arguments = ["-c", "exec \"$0\" \"$@\" 2>/dev/full", program, &directory, "1", "67108864"];
    let mut process = Process::start("sh", &arguments.map(str::to_string));
    process.expect("serving ");
    for _ in 0..3 {
        let mut session = RawSession::open(run.path());
        session.shards[0].scribble(0, &[u64::MAX, 0]);
        session.wake(0);
        until("the connection is ended", || raw::is_closed_by_now(&session.stream));
    }
    let client = kelix::Client::connect(run.path()).unwrap();
    let mut session = client.session_with(patient()).unwrap();
    let table = session.create_table("t").unwrap();
    session.put(table, b"k", b"v").unwrap();
    client.statistics().unwrap();
    process.say("stop");
    assert_eq!(process.expect("ended "), "stopped");
}
