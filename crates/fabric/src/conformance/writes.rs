//! WRITEs: the right words, into the right mailbox, in the promised order.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{MAILBOX_WORDS_MIN, Network, Numbers, Testbed, both_ways, meanwhile, until};
use crate::{Mailbox, WorkQueue};

/// A WRITE changes the words it names in the peer's mailbox, and no other; both ways.
pub fn a_write_lands_where_it_was_posted<T: Testbed>(bed: &T) {
    both_ways(bed, |from, to, mailbox| {
        assert!(mailbox.len() >= MAILBOX_WORDS_MIN, "a mailbox of {} words", mailbox.len());
        let mut numbers = Numbers(11);
        let mut expected = numbers.words(mailbox.len());
        to.endpoint.inbox(to.peers[0]).copy_in(mailbox.start, &expected);
        for count in [1, 2, 3, 7, 8, 9, 64, 100, 4097, MAILBOX_WORDS_MIN] {
            let last = mailbox.len() - count;
            for at in [0, 1.min(last), numbers.below(last + 1), last] {
                let words = numbers.words(count);
                from.write(0, mailbox.start + at, &words);
                expected[at..at + count].copy_from_slice(&words);
                let mut found = vec![0; mailbox.len()];
                until("a WRITE has landed", || {
                    to.endpoint.progress();
                    to.endpoint.inbox(to.peers[0]).copy_out(mailbox.start, &mut found);
                    found[at..at + count] == *words
                });
                assert!(found == expected, "{count} words at word {at}: others were changed");
            }
        }
    });
}

/// WRITEs of all sizes that are posted one after the other, many to a doorbell, all arrive.
pub fn many_writes_arrive<T: Testbed>(bed: &T) {
    let Network { server, mut clients, mailbox, .. } = bed.network(1);
    let client = &mut clients[0];
    let mut numbers = Numbers(12);
    for round in 0..10 {
        let expected = numbers.words(MAILBOX_WORDS_MIN);
        let mut at = 0;
        while at < expected.len() {
            let count = (1 + numbers.below(200)).min(expected.len() - at);
            let words = &expected[at..at + count];
            assert_eq!(client.endpoint.post_write(client.peers[0], mailbox.start + at, words), Ok(()));
            at += count;
        }
        client.endpoint.doorbell();
        let mut found = vec![0; expected.len()];
        until(&format!("all WRITEs of round {round} have landed"), || {
            server.endpoint.inbox(server.peers[0]).copy_out(mailbox.start, &mut found);
            found == expected
        });
    }
}

/// Whoever sees the first word of a WRITE sees all of its words. Looks from the last word on: that is the one
/// that would be late.
pub fn the_first_word_becomes_visible_last<T: Testbed>(bed: &T) {
    let Network { server, mut clients, mailbox, .. } = bed.network(1);
    let client = &mut clients[0];
    let inbox = server.endpoint.inbox(server.peers[0]);
    // Words of their own for each size: the last WRITEs of one may land when the next has begun.
    let mut start = mailbox.start;
    for count in [2, 3, 9, 64, 1000, 8192] {
        let (at, inbox) = (start, inbox.part(start, count));
        start += count;
        let mut round = 0;
        let mut words = vec![0; count];
        let write = || {
            round += 1;
            words.fill(round);
            client.write(0, at, &words);
        };
        meanwhile(write, || {
            let (mut seen, mut last) = (0, 0);
            until("enough WRITEs were seen", || {
                let first = inbox.load_acquire(0);
                if first != last {
                    for at in (1..count).rev() {
                        let word = inbox.load(at);
                        assert!(
                            word >= first,
                            "word {at} of {count} is of WRITE {word}, the first of {first}"
                        );
                    }
                    (last, seen) = (first, seen + 1);
                }
                seen >= 300
            });
        });
    }
}

/// Whoever sees a WRITE sees all that were posted before it, whether each had a doorbell or all have one.
pub fn writes_become_visible_in_their_order<T: Testbed>(bed: &T) {
    const WRITES: usize = 16;
    /// Words between two WRITEs, no multiple of a cache line.
    const APART: usize = 37;
    let Network { server, mut clients, mailbox, .. } = bed.network(1);
    let client = &mut clients[0];
    let inbox = server.endpoint.inbox(server.peers[0]);
    // Of one word and of several, so that none overtakes another because of its size.
    let size = |index: usize| if index % 3 == 0 { 1 } else { APART };
    for (turn, doorbell_each) in [true, false].into_iter().enumerate() {
        let start = mailbox.start + turn * WRITES * APART;
        let mut round = 0;
        let write = || {
            round += 1;
            for index in 0..WRITES {
                let words = &[round; APART][..size(index)];
                let first = start + index * APART;
                assert_eq!(client.endpoint.post_write(client.peers[0], first, words), Ok(()));
                if doorbell_each {
                    client.endpoint.doorbell();
                }
            }
            client.endpoint.doorbell();
        };
        meanwhile(write, || {
            let (mut seen, mut last) = (0, 0);
            until("enough WRITEs were seen", || {
                let mut later = 0;
                for index in (0..WRITES).rev() {
                    let word = inbox.load_acquire(start + index * APART);
                    assert!(word >= later, "WRITE {index} is of round {word}, a later one of round {later}");
                    later = word;
                }
                seen += u64::from(later != last);
                last = later;
                seen >= 2000
            });
        });
    }
}

/// Several peers that write the same words at once do so in mailboxes of their own, and so does their server.
pub fn peers_have_mailboxes_of_their_own<T: Testbed>(bed: &T) {
    const CLIENTS: usize = 3;
    const WORDS: usize = 512;
    let Network { mut server, mut clients, mailbox, .. } = bed.network(CLIENTS);
    let words = |from: usize, round: u64| vec![(from as u64 + 1) << 32 | round; WORDS];
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (index, client) in clients.iter_mut().enumerate() {
            let (failed, mailbox) = (&failed, mailbox.clone());
            scope.spawn(move || {
                for round in 1..=200 {
                    client.write(0, mailbox.start, &words(index, round));
                    // The answer says that the server has seen this round.
                    let answer = words(CLIENTS + index, round);
                    let mut found = [0; WORDS];
                    until("the server's words are in the mailbox of a client", || {
                        client.endpoint.progress();
                        let inbox = client.endpoint.inbox(client.peers[0]);
                        inbox.copy_out(mailbox.start, &mut found);
                        let stranger =
                            found.iter().find(|word| ![0, answer[0] >> 32].contains(&(*word >> 32)));
                        assert!(stranger.is_none(), "client {index} has a word of another: {stranger:x?}");
                        found == *answer || failed.load(Ordering::Relaxed)
                    });
                }
            });
        }
        let mut rounds = [0; CLIENTS];
        let mut found = [0; WORDS];
        until("all clients have had their answers", || {
            for (index, round) in rounds.iter_mut().enumerate() {
                server.endpoint.inbox(server.peers[index]).copy_out(mailbox.start, &mut found);
                let stranger = found.iter().find(|word| ![0, index as u64 + 1].contains(&(*word >> 32)));
                if stranger.is_some() {
                    failed.store(true, Ordering::Relaxed);
                    panic!("the mailbox of client {index} has a word of another: {stranger:x?}");
                }
                if found == *words(index, *round + 1) {
                    *round += 1;
                    server.write(index, mailbox.start, &words(CLIENTS + index, *round));
                }
            }
            rounds == [200; CLIENTS]
        });
    });
}
