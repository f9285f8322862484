//! Sleeping and waking, and connections that end.
//!
//! The handshake under test: the sleeper announces, looks once more, sleeps; the waker WRITEs, then wakes
//! whoever has announced. Sleeps may end too early, since a wake-up may cross with an announcement that is
//! taken back, but not again and again ([`SPURIOUS_MAX`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Network, Numbers, Side, Testbed, Watchdog, both_ways, until};
use kelix_types::Place;

use crate::{Fabric, Mailbox, Read, ReadState, RemoteMemory, Waiter, WorkQueue};

/// A sleep that was long enough for any wake-up on its way.
const LOST: Duration = Duration::from_secs(5);

/// A sleep that nobody should end.
const NAP: Duration = Duration::from_millis(10);

/// Sleeps in a row that may end before their time without cause.
const SPURIOUS_MAX: usize = 8;

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// Whether the sleep lasted nearly as long as it should, so that clocks may differ a little.
fn lasts<E: Waiter>(side: &mut Side<E>, time: Duration) -> bool {
    side.endpoint.announce_sleep();
    let begin = Instant::now();
    side.endpoint.sleep(Some(nanoseconds(time)));
    begin.elapsed() >= time / 10 * 9
}

/// Whether nothing keeps this side from sleeping, after what has been going on.
fn comes_to_rest<E: Waiter>(side: &mut Side<E>) -> bool {
    (0..SPURIOUS_MAX).any(|_| lasts(side, NAP))
}

/// Sleeps without a time until a word is there.
fn sleep_until_there<E: Mailbox + Waiter>(side: &mut Side<E>, peer: usize, word: usize, value: u64) {
    let mut sleeps = 0;
    loop {
        side.endpoint.announce_sleep();
        if side.has(peer, word, value) {
            side.endpoint.sleep(Some(0));
            return;
        }
        side.endpoint.sleep(None);
        sleeps += 1;
        assert!(sleeps <= SPURIOUS_MAX, "{sleeps} sleeps without a time ended without cause");
    }
}

/// One side of the ping-pong: waits for a word, looking for a while and then sleeping.
struct Player<'a, E> {
    side: &'a mut Side<E>,
    word: usize,
    numbers: Numbers,
    sleeps: u64,
    failed: &'a AtomicBool,
}

impl<E: Fabric> Player<'_, E> {
    fn wait(&mut self, round: u64) {
        // The other side answers within hundreds of nanoseconds while both are awake. Looking for a random
        // time like that lets its WRITE fall anywhere around the announcement.
        let patience = Duration::from_nanos((self.numbers.below(8) * self.numbers.below(64) * 8) as u64);
        let begin = Instant::now();
        while begin.elapsed() < patience {
            if self.side.has(0, self.word, round) {
                return;
            }
        }
        while !self.failed.load(Ordering::Relaxed) {
            self.side.endpoint.announce_sleep();
            if self.side.has(0, self.word, round) {
                self.side.endpoint.sleep(Some(0));
                return;
            }
            let asleep = Instant::now();
            self.side.endpoint.sleep(Some(nanoseconds(LOST)));
            self.sleeps += 1;
            let there = self.side.has(0, self.word, round);
            if there && asleep.elapsed() >= LOST / 10 * 9 {
                self.fail(round, "the word came, the wake-up did not");
            } else if there {
                return;
            } else if begin.elapsed() > 3 * LOST {
                self.fail(round, "no word came");
            }
        }
    }

    fn fail(&self, round: u64, what: &str) -> ! {
        self.failed.store(true, Ordering::Relaxed);
        panic!("{}, round {round}: {what}", self.side.endpoint.name())
    }

    fn send(&mut self, round: u64) {
        self.side.write(0, self.word, &[round]);
        let peer = self.side.peers[0];
        self.side.endpoint.wake(peer);
    }
}

/// Two sides send a word to and fro, and each sleeps while it waits: none sleeps on when its word has come.
pub fn no_wake_up_is_lost<T: Testbed>(bed: &T) {
    let rounds = 20_000 / bed.slowness();
    let _watchdog = Watchdog::new("no_wake_up_is_lost");
    let Network { mut server, mut clients, mailbox, .. } = bed.network(1);
    let failed = AtomicBool::new(false);
    let waiter = |side, seed| {
        let numbers = Numbers(seed);
        Player { side, word: mailbox.start, numbers, sleeps: 0, failed: &failed }
    };
    let (mut server, mut client) = (waiter(&mut server, 21), waiter(&mut clients[0], 22));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=rounds {
                server.wait(round);
                server.send(round);
            }
        });
        for round in 1..=rounds {
            client.send(round);
            client.wait(round);
        }
    });
    let slept = [client.sleeps, server.sleeps];
    // On one core, whoever gives it away while it looks may find the answer there each time, and never sleep.
    assert!(slept.iter().any(|sleeps| *sleeps > rounds / 50), "{slept:?} sleeps: hardly anything was tried");
}

/// With nobody to wake it a sleep ends when its time is over, and not before.
pub fn a_sleep_lasts_until_its_time_is_over<T: Testbed>(bed: &T) {
    let _watchdog = Watchdog::new("a_sleep_lasts_until_its_time_is_over");
    let Network { mut server, mut clients, .. } = bed.network(1);
    for side in [&mut server, &mut clients[0]] {
        for microseconds in [1, 200, 1500, 20_000, 1] {
            let time = Duration::from_micros(microseconds);
            assert!((0..SPURIOUS_MAX).any(|_| lasts(side, time)), "sleeps of {time:?} end too early");
        }
        assert!(!side.endpoint.is_broken(side.peers[0]));
    }
}

/// A sleep without a time ends when the peer wakes this side, long after it has fallen asleep too.
pub fn a_sleep_without_a_time_lasts_until_woken<T: Testbed>(bed: &T) {
    let _watchdog = Watchdog::new("a_sleep_without_a_time_lasts_until_woken");
    both_ways(bed, |sleeper, waker, mailbox| {
        for round in 1..=5 {
            let word = mailbox.start;
            std::thread::scope(|scope| {
                scope.spawn(|| sleep_until_there(sleeper, 0, word, round));
                // Time to fall asleep. If it does not suffice the case still holds.
                std::thread::sleep(Duration::from_millis(5));
                waker.write(0, word, &[round]);
                waker.rouse(0);
            });
        }
    });
}

/// After a sleep, of no time too, this side counts as awake: a peer that wakes it then does nothing, so the
/// next sleep lasts.
pub fn an_announcement_is_taken_back<T: Testbed>(bed: &T) {
    let _watchdog = Watchdog::new("an_announcement_is_taken_back");
    both_ways(bed, |sleeper, waker, _| {
        for time in [Some(0), Some(1_000_000)] {
            let undisturbed = (0..SPURIOUS_MAX).any(|_| {
                sleeper.endpoint.announce_sleep();
                sleeper.endpoint.sleep(time);
                waker.endpoint.wake(waker.peers[0]);
                lasts(sleeper, NAP)
            });
            assert!(undisturbed, "a wake-up after a sleep of {time:?} ns ends the next sleep");
        }
    });
}

/// Waking a peer that does not sleep is no error, and neither keeps it from sleeping nor from being woken
/// later.
pub fn a_wake_up_of_nobody_is_no_harm<T: Testbed>(bed: &T) {
    let _watchdog = Watchdog::new("a_wake_up_of_nobody_is_no_harm");
    both_ways(bed, |sleeper, waker, mailbox| {
        for _ in 0..1000 {
            waker.endpoint.wake(waker.peers[0]);
        }
        assert!(comes_to_rest(sleeper));
        let word = mailbox.start;
        std::thread::scope(|scope| {
            scope.spawn(|| sleep_until_there(sleeper, 0, word, 1));
            waker.write(0, word, &[1]);
            waker.rouse(0);
        });
        assert!(!waker.endpoint.is_broken(waker.peers[0]));
    });
}

/// A peer that announces its sleep and does not look for a long time may be woken any number of times: that
/// does not block, ends its sleep, and is forgotten then.
pub fn a_thousand_wake_ups_are_one<T: Testbed>(bed: &T) {
    let _watchdog = Watchdog::new("a_thousand_wake_ups_are_one");
    both_ways(bed, |sleeper, waker, mailbox| {
        for wake_ups in [2, 3, 1000, 100_000] {
            sleeper.endpoint.announce_sleep();
            waker.write(0, mailbox.start, &[wake_ups]);
            for _ in 0..wake_ups {
                waker.endpoint.wake(waker.peers[0]);
            }
            waker.rouse(0);
            sleeper.endpoint.sleep(None);
            assert!(comes_to_rest(sleeper), "{wake_ups} wake-ups end more sleeps than one");
        }
        assert!(!sleeper.endpoint.is_broken(sleeper.peers[0]));
        assert!(!waker.endpoint.is_broken(waker.peers[0]));
    });
}

/// A READ that was pending ends the sleep of its reader when it is done, even if that was before the
/// announcement: between that and the sleep nobody looks for READs.
pub fn a_read_that_is_done_ends_a_sleep<T: Testbed>(bed: &T) {
    let _watchdog = Watchdog::new("a_read_that_is_done_ends_a_sleep");
    let Network { server: _server, mut clients, .. } = bed.network(1);
    let client = &mut clients[0];
    let mut numbers = Numbers(24);
    for round in 0..2000 {
        let mut into = vec![0; 1 + round % 200];
        let read = Read { peer: client.peers[0], place: Place(0), words: into.len(), tag: 3 };
        client.endpoint.post_read(read);
        client.endpoint.doorbell();
        let mut sleeps = 0;
        while client.endpoint.poll_read(read, &mut into) == ReadState::Pending {
            (0..numbers.below(200)).for_each(|_| std::hint::spin_loop());
            if numbers.below(2) == 0 {
                client.endpoint.progress();
            }
            client.endpoint.announce_sleep();
            client.endpoint.sleep(None);
            sleeps += 1;
            assert!(sleeps <= SPURIOUS_MAX, "sleeps end, and the READ is not done");
        }
        // Somebody who looks only when he was told of progress, and sleeps before he looks.
        client.endpoint.post_read(read);
        let mut pending = client.endpoint.poll_read(read, &mut into) == ReadState::Pending;
        while pending {
            let progress = client.endpoint.progress();
            client.endpoint.announce_sleep();
            client.endpoint.sleep(None);
            if progress {
                pending = client.endpoint.poll_read(read, &mut into) == ReadState::Pending;
            }
        }
    }
}

/// Each client wakes the server, and the server wakes the one that it means.
pub fn a_wake_up_is_for_one_peer<T: Testbed>(bed: &T) {
    const CLIENTS: usize = 3;
    let _watchdog = Watchdog::new("a_wake_up_is_for_one_peer");
    let Network { mut server, mut clients, mailbox, .. } = bed.network(CLIENTS);
    for round in 1..=20 {
        for (index, client) in clients.iter_mut().enumerate() {
            let server = &mut server;
            let word = mailbox.start;
            std::thread::scope(|scope| {
                scope.spawn(move || sleep_until_there(server, index, word, round));
                client.write(0, word, &[round]);
                client.rouse(0);
            });
        }
    }
    for meant in 0..CLIENTS {
        let mut undisturbed = [false; CLIENTS];
        for _ in 0..SPURIOUS_MAX {
            clients.iter_mut().for_each(|client| client.endpoint.announce_sleep());
            server.write(meant, mailbox.start, &[meant as u64]);
            server.endpoint.wake(server.peers[meant]);
            clients[meant].endpoint.sleep(None);
            for (index, client) in clients.iter_mut().enumerate().filter(|(index, _)| *index != meant) {
                let begin = Instant::now();
                client.endpoint.sleep(Some(nanoseconds(NAP)));
                undisturbed[index] |= begin.elapsed() >= NAP / 10 * 9;
            }
            undisturbed[meant] = true;
            if undisturbed == [true; CLIENTS] {
                break;
            }
        }
        assert_eq!(undisturbed, [true; CLIENTS], "a wake-up of client {meant} ends sleeps of others");
    }
}

/// A client that sleeps when the server goes wakes up and knows; nothing it does afterwards waits for ever.
pub fn the_end_of_the_server_ends_a_sleep<T: Testbed>(bed: &T) {
    let _watchdog = Watchdog::new("the_end_of_the_server_ends_a_sleep");
    // Before it sleeps, and while it sleeps.
    for after in [Duration::ZERO, Duration::from_millis(5)] {
        let Network { server, mut clients, mailbox, .. } = bed.network(1);
        let client = &mut clients[0];
        let peer = client.peers[0];
        assert!(!client.endpoint.is_broken(peer));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(after);
                drop(server);
            });
            let mut sleeps = 0;
            while !client.endpoint.is_broken(peer) {
                client.endpoint.announce_sleep();
                client.endpoint.sleep(None);
                sleeps += 1;
                assert!(
                    sleeps <= SPURIOUS_MAX,
                    "the sleep ends, but the connection does not count as broken"
                );
            }
        });
        client.endpoint.announce_sleep();
        client.endpoint.sleep(None);
        // The last state may stay readable. A WRITE and a wake-up reach nobody.
        let state = client.try_read(Place(0), &mut [0; 8]);
        assert!(matches!(state, ReadState::Done(_) | ReadState::Broken), "{state:?}");
        for _ in 0..1000 {
            let _ = client.endpoint.post_write(peer, mailbox.start, &[1, 2, 3]);
            client.endpoint.doorbell();
            client.endpoint.wake(peer);
        }
        client.endpoint.authority(peer);
        assert!(client.endpoint.is_broken(peer), "a broken connection stays broken");
    }
}

/// When one client goes, possibly in its sleep, the server and the other clients go on.
pub fn the_end_of_a_client_harms_no_other<T: Testbed>(bed: &T) {
    let _watchdog = Watchdog::new("the_end_of_a_client_harms_no_other");
    let Network { mut server, mut clients, mailbox, .. } = bed.network(2);
    let mut gone = clients.remove(0);
    gone.endpoint.announce_sleep();
    drop(gone);
    let client = &mut clients[0];
    for round in 1..=100 {
        let _ = server.endpoint.post_write(server.peers[0], mailbox.start, &[round]);
        server.endpoint.doorbell();
        server.endpoint.wake(server.peers[0]);
        let word = mailbox.start;
        std::thread::scope(|scope| {
            scope.spawn(|| sleep_until_there(client, 0, word, round));
            server.write(1, word, &[round]);
            server.rouse(1);
        });
        client.write(0, mailbox.start, &[round]);
        client.endpoint.wake(client.peers[0]);
        until("the other client's word has come", || server.has(1, mailbox.start, round));
        server.endpoint.announce_sleep();
        server.endpoint.sleep(Some(1000));
        assert!(!server.endpoint.is_broken(server.peers[1]), "the wrong connection counts as broken");
        assert!(!client.endpoint.is_broken(client.peers[0]));
    }
}

/// A server that sleeps when a client goes wakes up and knows which one.
pub fn the_end_of_a_client_is_noticed<T: Testbed>(bed: &T) {
    let _watchdog = Watchdog::new("the_end_of_a_client_is_noticed");
    let Network { mut server, mut clients, .. } = bed.network(2);
    assert!(server.peers.iter().all(|peer| !server.endpoint.is_broken(*peer)));
    std::thread::scope(|scope| {
        let gone = clients.remove(1);
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            drop(gone);
        });
        let mut sleeps = 0;
        while !server.endpoint.is_broken(server.peers[1]) {
            server.endpoint.announce_sleep();
            server.endpoint.sleep(None);
            sleeps += 1;
            assert!(sleeps <= SPURIOUS_MAX, "the sleep ends, but the connection does not count as broken");
        }
    });
    assert!(!server.endpoint.is_broken(server.peers[0]), "the wrong connection counts as broken");
}
