//! What can go wrong on a lane, and who shares one: regions that go, queue pairs in error, users that leave.

use std::io::{Read as _, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use kelix_fabric::conformance::SEGMENTS;
use kelix_fabric::shm::AUTHORITY_UNTIL;
use kelix_fabric::tcp::{ASK_TERM, TERM};
use kelix_fabric::{Mailbox, PeerId, Read, ReadState, RemoteMemory, Waiter, WorkQueue};
use kelix_image::{SegmentSource, header_word};
use kelix_types::Place;
use kelix_types::limits::GRANULE_BYTES;

use crate::bed::{Bed, Client};

const SERVER: PeerId = PeerId(0);
const FIRST: Place = Place(SEGMENTS[0].0 as u64 * GRANULE_BYTES);
const SECOND: Place = Place(SEGMENTS[1].0 as u64 * GRANULE_BYTES);
/// What fails does so within this time, on a machine that is in use; without load it is 0.5 s.
const SOON: Duration = Duration::from_secs(5);

fn post(client: &mut Client, place: Place, words: usize, tag: u32) -> Read {
    let read = Read { peer: SERVER, place, words, tag };
    client.endpoint.post_read(read);
    read
}

/// Waits for what comes of a READ.
fn outcome(client: &mut Client, read: Read) -> (ReadState, Vec<u64>) {
    let (began, mut words) = (Instant::now(), vec![0; read.words]);
    client.endpoint.doorbell();
    loop {
        client.endpoint.progress();
        match client.endpoint.poll_read(read, &mut words) {
            ReadState::Pending => assert!(began.elapsed() < SOON, "a READ that never ends"),
            state => return (state, words),
        }
    }
}

fn read(client: &mut Client, place: Place) -> (ReadState, u64) {
    let read = post(client, place, 8, 0);
    let (state, words) = outcome(client, read);
    (state, words[0])
}

fn is_done(state: ReadState) -> bool {
    matches!(state, ReadState::Done(_))
}

/// A segment is retired, and each client is told: nobody's connection ends, and the memory is deregistered
/// only when the last of them has said that it READs nothing there any more.
#[test]
fn a_segment_that_goes_ends_no_connection() {
    let mut bed = Bed::new();
    let (mut first, mut second) = (bed.connect(2), bed.connect(2));
    bed.map.words(SECOND, 8).unwrap().store(0, 7);
    for client in [&mut first, &mut second] {
        assert_eq!(read(client, SECOND).1, 7);
    }
    bed.segments.retired(SEGMENTS[1].0);
    bed.header.words().publish(header_word::SEGMENTS, bed.header.segments_version() + 1);
    let before = read(&mut first, SECOND);
    assert!(is_done(before.0), "it is registered for as long as nobody has let it go");
    assert_eq!(bed.tell(&mut first), 2);
    assert_eq!(read(&mut first, SECOND).0, ReadState::Outside);
    assert!(is_done(read(&mut second, SECOND).0), "the other one has not let it go");
    assert_eq!(bed.tell(&mut second), 2);
    for client in [&mut first, &mut second] {
        assert!(is_done(read(client, FIRST).0));
        assert!(!client.endpoint.is_broken(SERVER));
    }
}

/// A segment that comes is READ once it is registered.
#[test]
fn a_segment_that_comes_is_read() {
    let mut bed = Bed::new();
    let mut client = bed.connect(4);
    let place = Place(9 * GRANULE_BYTES);
    assert_eq!(read(&mut client, place).0, ReadState::Outside);
    let span = bed.segments.create(9, 1 << 20).unwrap();
    span.words().store(0, 77);
    bed.header.words().publish(header_word::SEGMENTS, bed.header.segments_version() + 1);
    let began = Instant::now();
    while bed.tell(&mut client) < 4 {
        assert!(began.elapsed() < SOON, "it is never registered");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(read(&mut client, place).1, 77);
}

/// A READ of memory that is not registered any more: the queue pair is in error, all READs of a batch end,
/// and so do those of the others on the lane; clients on other lanes go on, and whoever connects again gets a
/// new lane.
#[test]
fn a_region_that_is_deregistered_ends_the_lane_and_nothing_else() {
    let mut bed = Bed::new();
    let (mut first, mut elsewhere, mut beside) = (bed.connect(2), bed.connect(2), bed.connect(2));
    bed.segments.retired(SEGMENTS[1].0);
    bed.header.words().publish(header_word::SEGMENTS, bed.header.segments_version() + 1);
    // The list is looked at, and then everybody is said to have let go, which is not so.
    for client in [&first, &elsewhere, &beside] {
        let mut host = bed.host.lock().unwrap();
        let _ = host.segments(client.number, 0);
        host.let_go(client.number, 0, u64::MAX);
    }
    let reads: Vec<Read> =
        (0..64).map(|tag| post(&mut first, if tag == 20 { SECOND } else { FIRST }, 64, tag)).collect();
    let states: Vec<ReadState> = reads.into_iter().map(|read| outcome(&mut first, read).0).collect();
    assert!(states.iter().all(|state| is_done(*state) || *state == ReadState::Broken), "{states:?}");
    assert!(!is_done(states[20]) && states[21..].iter().all(|state| !is_done(*state)), "{states:?}");
    assert!(first.endpoint.is_broken(SERVER));
    assert!(first.endpoint.post_write(SERVER, 64, &[1]).is_err());
    assert!(is_done(read(&mut elsewhere, FIRST).0), "another lane");
    // The third is on the first one's lane, or on the second's.
    let state = read(&mut beside, FIRST).0;
    assert_eq!(is_done(state), !beside.endpoint.is_broken(SERVER));
    drop(first);
    let mut again = bed.connect(2);
    // What was retired is not in the list any more.
    assert!(is_done(read(&mut again, FIRST).0));
    assert!(!elsewhere.endpoint.is_broken(SERVER));
}

/// Ten sessions on at most three queue pairs: each gets what is its, sleeps and is woken, and goes when it
/// likes.
#[test]
fn sessions_share_a_few_queue_pairs() {
    const CLIENTS: usize = 10;
    let mut bed = Bed::new();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| bed.connect(3)).collect();
    assert_eq!(bed.host.lock().unwrap().lanes(), 3);
    for round in 1..=20u64 {
        bed.map.words(FIRST, 64).unwrap().copy_in(0, &[round; 64]);
        let reads: Vec<Read> = clients.iter_mut().map(|client| post(client, FIRST, 64, 5)).collect();
        clients.iter_mut().for_each(|client| client.endpoint.doorbell());
        for (client, read) in clients.iter_mut().zip(reads) {
            assert_eq!(outcome(client, read).1, [round; 64]);
        }
        // All sleep, and each is woken by the word that is for it.
        clients.iter_mut().for_each(|client| client.endpoint.announce_sleep());
        for (index, client) in clients.iter().enumerate() {
            bed.shard.post_write(client.peer, 100, &[round << 32 | index as u64]).unwrap();
        }
        bed.shard.doorbell();
        for (index, client) in clients.iter_mut().enumerate() {
            let began = Instant::now();
            while client.endpoint.inbox(SERVER).load_acquire(100) != round << 32 | index as u64 {
                client.endpoint.sleep(Some(1_000_000_000));
                bed.shard.maintain();
                assert!(began.elapsed() < SOON, "client {index} sleeps on in round {round}");
                client.endpoint.announce_sleep();
            }
            client.endpoint.sleep(Some(0));
        }
    }
    // Some go, also with READs under way; the others do not notice.
    for index in [7, 4, 0] {
        for tag in 0..100 {
            post(&mut clients[index], FIRST, 64, tag);
        }
        clients[index].endpoint.doorbell();
        drop(clients.remove(index));
    }
    for client in &mut clients {
        for _ in 0..50 {
            assert!(is_done(read(client, FIRST).0));
        }
        assert!(!client.endpoint.is_broken(SERVER));
    }
    assert_eq!(bed.host.lock().unwrap().lanes(), 3);
    drop(clients);
    let began = Instant::now();
    while bed.host.lock().unwrap().lanes() > 0 {
        assert!(began.elapsed() < SOON, "queue pairs of clients that have gone stay");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// More READs and WRITEs than the queues have room for, all at once.
#[test]
fn queues_that_are_full_lose_nothing() {
    let mut bed = Bed::new();
    let mut clients: Vec<Client> = (0..4).map(|_| bed.connect(1)).collect();
    for round in 0..5u64 {
        bed.map.words(FIRST, 256).unwrap().copy_in(0, &[round + 1; 256]);
        for client in &mut clients {
            for tag in 0..256 {
                post(client, FIRST, 1 + tag as usize, tag);
            }
            for word in 0..300 {
                // Not neighbours, so each is a WRITE.
                client
                    .endpoint
                    .post_write(SERVER, 100 + 2 * word, &[round << 32 | word as u64 | 1 << 31])
                    .unwrap();
            }
            client.endpoint.doorbell();
        }
        for client in &mut clients {
            for tag in 0..256 {
                let read = Read { peer: SERVER, place: FIRST, words: 1 + tag as usize, tag };
                let (state, words) = outcome(client, read);
                assert!(is_done(state) && words.iter().all(|word| *word == round + 1), "{state:?}");
            }
            let began = Instant::now();
            let inbox = bed.shard.inbox(client.peer);
            while (0..300).any(|word| inbox.load(100 + 2 * word) != round << 32 | word as u64 | 1 << 31) {
                client.endpoint.progress();
                assert!(began.elapsed() < SOON, "a WRITE has not arrived");
            }
        }
    }
}

/// The first word of a set-up frame of so many bytes (docs/wire-format.md, "TCP").
fn set_up(kind: u16, bytes: u64) -> [u8; 8] {
    (6 | u64::from(kind) << 16 | bytes << 40).to_le_bytes()
}

/// Has the client ask for the term, and answers that it is in force for so long.
fn answer_for_term(client: &mut Client, beside: &mut TcpStream, (term, left): (u64, Duration)) {
    client.endpoint.doorbell();
    let mut question = [0; 8];
    beside.read_exact(&mut question).expect("it asks");
    assert_eq!(question, set_up(ASK_TERM, 0));
    let words = [term, left.as_nanos() as u64].map(u64::to_le_bytes);
    beside.write_all(&[set_up(TERM, 16), words[0], words[1]].concat()).unwrap();
}

/// The device of a server that stands still goes on answering READs. So what is READ of one that has a lease
/// counts only for as long as the server has said.
#[test]
fn what_is_read_counts_while_the_lease_lasts() {
    const TERM_OF_BED: u64 = 0;
    let hour = Duration::from_secs(3600);
    let mut bed = Bed::new();
    bed.authority.words().publish(AUTHORITY_UNTIL, u64::MAX);
    let mut client = bed.connect(1);
    let mut beside = bed.beside();
    beside.set_read_timeout(Some(SOON)).unwrap();
    let is_pending = |client: &mut Client, wanted: Read, what: &str| {
        let until = Instant::now() + Duration::from_millis(50);
        while Instant::now() < until {
            client.endpoint.progress();
            let state = client.endpoint.poll_read(wanted, &mut [0; 8]);
            assert_eq!(state, ReadState::Pending, "{what}; broken: {}", client.endpoint.is_broken(SERVER));
        }
    };
    // Nothing counts before the server has answered, and all does for as long as it said.
    let first = post(&mut client, FIRST, 8, 0);
    client.endpoint.doorbell();
    is_pending(&mut client, first, "before the first answer");
    answer_for_term(&mut client, &mut beside, (TERM_OF_BED, Duration::from_millis(300)));
    let counted = Instant::now();
    assert!(is_done(outcome(&mut client, first).0));
    while counted.elapsed() < Duration::from_millis(310) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let late = post(&mut client, FIRST, 8, 0);
    client.endpoint.doorbell();
    is_pending(&mut client, late, "when the lease is over");
    // One that is not sure is not asked again at once, and nothing counts.
    answer_for_term(&mut client, &mut beside, (TERM_OF_BED, Duration::ZERO));
    assert_eq!(outcome(&mut client, late).0, ReadState::Broken);
    assert!(!client.endpoint.is_broken(SERVER));
    std::thread::sleep(Duration::from_millis(20));
    let sure = post(&mut client, FIRST, 8, 0);
    client.endpoint.doorbell();
    is_pending(&mut client, sure, "behind one that was not sure");
    answer_for_term(&mut client, &mut beside, (TERM_OF_BED, hour));
    assert!(is_done(outcome(&mut client, sure).0));
    // The memory of a host that was closed is READ by nobody.
    bed.host.lock().unwrap().close();
    assert_eq!(read(&mut client, FIRST).0, ReadState::Broken);
    assert!(client.endpoint.is_broken(SERVER) && bed.host.lock().unwrap().ticket(0).is_err());
}
