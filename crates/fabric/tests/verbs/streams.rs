//! Streams of words over a queue pair: what comes, what is held back, who is woken, and what is left of who
//! has gone.

use std::time::{Duration, Instant};

use kelix_fabric::verbs::VerbsStream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::bed::{Bed, PATIENCE};

const SOON: Duration = Duration::from_secs(10);
/// More than may be on its way at once, by far.
const MANY: u64 = 2_000_000;

/// Both ends of a stream: the client's and the server's.
fn ends(bed: &mut Bed, number: u64) -> (VerbsStream, VerbsStream) {
    let client = bed.offer_stream(number).connect_stream(None, PATIENCE).expect("a device for RDMA");
    let server = bed.host.lock().unwrap().take_stream(number).unwrap().expect("a stream");
    (client, server)
}

/// Waits for so long at most, unless something has arrived. Returns whether something may have.
fn wait(stream: &mut VerbsStream, time: Duration) -> bool {
    if !stream.arm() {
        return true;
    }
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    poll(&mut [PollFd::from_borrowed_fd(stream.fd(), PollFlags::IN)], Some(&time)).unwrap() > 0
}

/// Sends numbers in order, and takes those of the other side, pausing now and then.
fn say_and_hear(stream: &mut VerbsStream, pauses: bool) {
    let (mut said, mut heard, mut words, began) = (0, 0, Vec::new(), Instant::now());
    // Also before a wait: by then the last of it may be acknowledged, and nothing more comes.
    let is_over =
        |stream: &VerbsStream, [said, heard]: [u64; 2]| [said, heard] == [MANY; 2] && stream.unsent() == 0;
    while !is_over(stream, [said, heard]) {
        if said < MANY && stream.unsent() < 1 << 20 {
            // Few words and many by turns.
            let count = [1, 7, 4095, 4096, 20_000][said as usize % 5].min(MANY - said);
            stream.out.extend(said..said + count);
            said += count;
        }
        stream.flush();
        words.clear();
        if stream.receive(&mut words, 1 + heard as usize % 10_000) {
            assert!(words.iter().copied().eq(heard..heard + words.len() as u64), "at {heard}");
            heard += words.len() as u64;
            if pauses && heard % 97 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        } else if !is_over(stream, [said, heard]) && (said == MANY || stream.unsent() >= 1 << 20) {
            assert!(wait(stream, SOON), "it sleeps on: {said} said, {heard} heard");
        }
        assert!(!stream.is_broken() && began.elapsed() < 6 * SOON, "{said} said, {heard} heard");
    }
}

#[test]
fn words_come_in_their_order_both_ways() {
    let mut bed = Bed::new();
    let (mut client, mut server) = ends(&mut bed, 1);
    let other = std::thread::spawn(move || {
        say_and_hear(&mut server, true);
        server
    });
    say_and_hear(&mut client, false);
    let server = other.join().unwrap();
    assert_eq!((client.sent(), server.sent()), (MANY * 8, MANY * 8));
}

#[test]
fn who_takes_nothing_in_holds_the_other_back_and_loses_nothing() {
    let mut bed = Bed::new();
    let (mut client, mut server) = ends(&mut bed, 1);
    server.out.extend(0..MANY);
    let before = Instant::now();
    while before.elapsed() < Duration::from_secs(1) {
        server.flush();
        std::thread::sleep(Duration::from_millis(1));
    }
    let held_back = server.unsent();
    assert!(held_back as u64 > MANY * 8 - (2 << 20), "{held_back} bytes wait");
    assert!(server.sent() > 0 && !server.is_broken());
    let (mut words, began) = (Vec::new(), Instant::now());
    while (words.len() as u64) < MANY {
        assert!(began.elapsed() < 3 * SOON, "{} words have come", words.len());
        client.receive(&mut words, 1 << 16);
        client.flush();
        server.flush();
    }
    assert!(words.into_iter().eq(0..MANY));
}

#[test]
fn who_sleeps_is_woken() {
    let mut bed = Bed::new();
    let (mut client, mut server) = ends(&mut bed, 1);
    for word in 0..20 {
        let sleeper = std::thread::spawn(move || {
            let mut words = Vec::new();
            while !client.receive(&mut words, 1) {
                assert!(wait(&mut client, SOON), "it sleeps on");
            }
            assert_eq!(words, [word]);
            client
        });
        std::thread::sleep(Duration::from_millis(20));
        server.out.push(word);
        server.flush();
        client = sleeper.join().unwrap();
    }
}

#[test]
fn of_who_has_gone_what_was_said_is_received() {
    let mut bed = Bed::new();
    let (mut client, mut server) = ends(&mut bed, 1);
    server.out.extend(0..10_000);
    let began = Instant::now();
    while server.unsent() > 0 {
        server.flush();
        assert!(began.elapsed() < SOON, "it is never sent");
    }
    drop(server);
    let mut words = Vec::new();
    while client.receive(&mut words, 1000) {}
    assert!(words.into_iter().eq(0..10_000));
    // Whoever says something to nobody finds that out.
    client.out.push(1);
    while !client.is_broken() {
        client.flush();
        assert!(began.elapsed() < SOON, "nobody is there, and that is not noticed");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_ticket_is_good_for_one_stream_of_a_client_that_is_there() {
    let bed = Bed::new();
    let first = bed.offer_stream(1);
    assert!(bed.host.lock().unwrap().take_stream(1).unwrap().is_none(), "nobody has connected");
    let stream = first.connect_stream(None, PATIENCE).unwrap();
    assert!(first.connect_stream(None, PATIENCE).is_err(), "a ticket is taken once");
    bed.host.lock().unwrap().leave(1);
    assert!(bed.host.lock().unwrap().take_stream(1).unwrap().is_none(), "its client has gone");
    drop(stream);
    let second = bed.offer_stream(2);
    bed.host.lock().unwrap().leave(2);
    assert!(second.connect_stream(None, PATIENCE).is_err(), "its client has gone");
    let (third, newer) = (bed.offer_stream(3), bed.offer_stream(3));
    assert!(third.connect_stream(None, PATIENCE).is_err(), "there is a newer one");
    let mut stream = newer.connect_stream(None, PATIENCE).unwrap();
    let newest = bed.offer_stream(3);
    assert!(bed.host.lock().unwrap().take_stream(3).unwrap().is_none(), "a client has one at most");
    // What its other side has gone from is over.
    stream.out.push(1);
    let began = Instant::now();
    while !stream.is_broken() {
        stream.flush();
        assert!(began.elapsed() < SOON, "it is still there");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(newest.connect_stream(None, PATIENCE).is_ok());
}
