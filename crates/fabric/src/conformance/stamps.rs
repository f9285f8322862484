//! Stamps and terms, which READs bring with their words: checks (b) and (c) of the read rule rest on them
//! (docs/read-rule.md).

use std::time::Duration;

use kelix_image::header_word;
use kelix_image::words::full_fence;
use kelix_types::Place;
use kelix_types::limits::{GRANULE_BYTES, READ_EPOCHS_MAX};

use super::{Network, SEGMENTS, Side, Testbed, meanwhile, until};
use crate::shm::AUTHORITY_TERM;
use crate::{Fabric, RemoteMemory, Sampled};

const PLACE: Place = Place(SEGMENTS[0].0 as u64 * GRANULE_BYTES);

/// Reads words as a READ does, or at once in every second call where that can be done.
fn read_in_turn<E: RemoteMemory>(client: &mut Side<E>, reads: u32, words: &mut [u64]) -> Sampled {
    let at_once = if reads % 2 == 1 { client.read_at_once(PLACE, words) } else { None };
    at_once.unwrap_or_else(|| client.read(PLACE, words))
}

/// A later stamp is never less than an earlier one, whatever happens between.
pub fn stamps_do_not_run_backwards<T: Testbed>(bed: &T) {
    let Network { server: _server, mut clients, header, .. } = bed.network(1);
    let mut last = 0;
    for round in 0..2000 {
        if round % 3 == 0 {
            header.words().publish(header_word::EPOCH, header.epoch() + 1);
        }
        let Sampled { before, after, .. } = clients[0].read(PLACE, &mut [0; 8]);
        assert!(before >= last, "stamp {before} after {last}");
        assert!(after >= before, "stamp {after} after {before}");
        last = after;
    }
}

/// A READ during which nothing was reclaimed is valid: always where stamps are epochs, and where they are
/// times as soon as it is done quickly.
pub fn a_read_lies_within_the_window<T: Testbed>(bed: &T) {
    let Network { server: _server, mut clients, .. } = bed.network(1);
    let client = &mut clients[0];
    let mut valid = 0;
    until("a hundred READs were done within the window", || {
        let Sampled { before, after, .. } = client.read(PLACE, &mut [0; 64]);
        assert!(
            after == before || !client.endpoint.promises(client.peers[0]).ordered_loads,
            "no epoch passed"
        );
        valid += u64::from(after - before <= client.endpoint.stamp_window());
        valid == 100
    });
}

/// Where stamps are epochs: they are those of the header page, and a chain of READs may see one step, not
/// two.
pub fn two_epochs_are_beyond_the_window<T: Testbed>(bed: &T) {
    let Network { server: _server, mut clients, header, .. } = bed.network(1);
    let client = &mut clients[0];
    assert_eq!(client.endpoint.stamp_window(), READ_EPOCHS_MAX);
    for steps in 0..4 {
        let first = client.read(PLACE, &mut [0; 8]);
        assert_eq!(first.before, header.epoch());
        for _ in 0..steps {
            header.words().publish(header_word::EPOCH, header.epoch() + 1);
        }
        let elapsed = client.read(PLACE, &mut [0; 8]).after - first.before;
        assert_eq!(elapsed, steps);
        assert_eq!(elapsed <= client.endpoint.stamp_window(), steps < 2);
    }
}

/// Where stamps are times: a quarter of an epoch's least length remains for what the reader's clock may be
/// wrong by.
pub fn an_epoch_of_time_is_beyond_the_window<T: Testbed>(bed: &T) {
    let Network { server: _server, mut clients, header, .. } = bed.network(1);
    let client = &mut clients[0];
    let epoch_ns = header.words().load(header_word::EPOCH_NS);
    let first = client.read(PLACE, &mut [0; 8]);
    std::thread::sleep(Duration::from_nanos(epoch_ns / 4 * 3));
    let elapsed = client.read(PLACE, &mut [0; 8]).after - first.before;
    assert!(elapsed > client.endpoint.stamp_window());
}

/// Whoever sees a stamp sees in later READs all memory stored before it; whoever has READ a word sees in a
/// later stamp all epochs published before that word was stored. The second half is what makes check (b)
/// safe: new words in reused memory are never read without the epoch that allowed the reuse.
pub fn stamps_and_words_keep_their_order<T: Testbed>(bed: &T) {
    const WORDS: usize = 64;
    let Network { server: _server, mut clients, map, header, .. } = bed.network(1);
    let client = &mut clients[0];
    let memory = map.words(PLACE, WORDS).expect("a place of the suite's segments");
    header.words().publish(header_word::EPOCH, 0);
    let mut round = 0;
    // Words of round r are stored between the epochs 2r and 2r + 1.
    let write = || {
        round += 1;
        header.words().publish(header_word::EPOCH, 2 * round);
        full_fence();
        memory.copy_in(0, &[round; WORDS]);
        header.words().publish(header_word::EPOCH, 2 * round + 1);
    };
    meanwhile(write, || {
        let (mut reads, mut changes, mut last) = (0, 0, 0);
        until("the writer was seen at work often enough", || {
            let mut words = [0; WORDS];
            let Sampled { before, after, .. } = read_in_turn(client, reads, &mut words);
            for (at, word) in words.into_iter().enumerate() {
                assert!(
                    2 * word + 2 >= before,
                    "word {at} is of round {word}, the stamp before was {before}"
                );
                assert!(2 * word <= after, "word {at} is of round {word}, the stamp after was {after}");
            }
            changes += u64::from(words[0] != last);
            last = words[0];
            reads += 1;
            reads >= 20_000 && changes >= 100
        });
    });
}

/// A term that came into force before a READ was posted is the one it tells.
pub fn the_authority_is_that_of_the_page<T: Testbed>(bed: &T) {
    let Network { server: _server, mut clients, authority, .. } = bed.network(2);
    let lease = bed.authority_lease();
    for term in 1..if lease.is_zero() { 100 } else { 10 } {
        authority.words().publish(AUTHORITY_TERM, term);
        std::thread::sleep(lease);
        for client in &mut clients {
            assert_eq!(client.read(PLACE, &mut [0; 8]).term, term);
            assert_eq!(client.endpoint.authority(client.peers[0]), Some(term));
        }
    }
}

/// Whoever has READ a word that was stored after a term came into force is told that term: nothing that
/// happened under a successor is taken for the word of the server before it.
pub fn the_authority_is_loaded_after_the_words<T: Testbed>(bed: &T) {
    const WORDS: usize = 64;
    let Network { server: _server, mut clients, map, authority, .. } = bed.network(1);
    let client = &mut clients[0];
    let memory = map.words(PLACE, WORDS).expect("a place of the suite's segments");
    let lease = bed.authority_lease();
    let changes_wanted = if lease.is_zero() { 100 } else { 20 };
    let mut term = 0;
    let write = || {
        term += 1;
        authority.words().publish(AUTHORITY_TERM, term);
        full_fence();
        std::thread::sleep(lease);
        memory.copy_in(0, &[term; WORDS]);
    };
    meanwhile(write, || {
        let (mut reads, mut changes, mut last) = (0, 0, 0);
        until("the writer was seen at work often enough", || {
            let mut words = [0; WORDS];
            let in_force = read_in_turn(client, reads, &mut words).term;
            for (at, word) in words.into_iter().enumerate() {
                assert!(word <= in_force, "word {at} is of term {word}, in force was {in_force}");
            }
            changes += u64::from(words[0] != last);
            last = words[0];
            reads += 1;
            reads >= 20_000 && changes >= changes_wanted
        });
    });
}
