//! Stamps and the authority: checks (b) and (c) of the read rule rest on them (docs/read-rule.md).

use std::time::{Duration, Instant};

use kelix_image::header_word;
use kelix_image::words::full_fence;
use kelix_types::Place;
use kelix_types::limits::{GRANULE_BYTES, READ_EPOCHS_MAX};

use super::{Network, SEGMENTS, Testbed, meanwhile, until};
use crate::shm::AUTHORITY_TERM;
use crate::{Fabric, ReadState};

const PLACE: Place = Place(SEGMENTS[0].0 as u64 * GRANULE_BYTES);

/// A later stamp is never less than an earlier one, whatever happens between.
pub fn stamps_do_not_run_backwards<T: Testbed>(bed: &T) {
    let Network { server: _server, mut clients, header, .. } = bed.network(1);
    let client = &mut clients[0];
    let mut last = client.endpoint.stamp(client.peers[0]);
    for round in 0..2000 {
        match round % 3 {
            0 => assert_eq!(client.read(PLACE, &mut [0; 8]), ReadState::Done),
            1 => header.words().publish(header_word::EPOCH, header.epoch() + 1),
            _ => {}
        }
        let stamp = client.endpoint.stamp(client.peers[0]);
        assert!(stamp >= last, "stamp {stamp} after {last}");
        last = stamp;
    }
}

/// A READ during which nothing was reclaimed is valid: always where stamps are epochs, and where they are times as
/// soon as it is done quickly.
pub fn a_read_lies_within_the_window<T: Testbed>(bed: &T) {
    let Network { server: _server, mut clients, .. } = bed.network(1);
    let client = &mut clients[0];
    let peer = client.peers[0];
    let mut valid = 0;
    until("a hundred READs were done within the window", || {
        let before = client.endpoint.stamp(peer);
        assert_eq!(client.read(PLACE, &mut [0; 64]), ReadState::Done);
        let elapsed = client.endpoint.stamp(peer) - before;
        assert!(elapsed == 0 || !client.endpoint.promises().ordered_loads, "no epoch passed");
        valid += u64::from(elapsed <= client.endpoint.stamp_window());
        valid == 100
    });
}

/// Where stamps are epochs: they are those of the header page, and a READ may see one step, not two.
pub fn two_epochs_are_beyond_the_window<T: Testbed>(bed: &T) {
    let Network { server: _server, mut clients, header, .. } = bed.network(1);
    let client = &mut clients[0];
    let peer = client.peers[0];
    assert_eq!(client.endpoint.stamp_window(), READ_EPOCHS_MAX);
    for steps in 0..4 {
        let before = client.endpoint.stamp(peer);
        assert_eq!(before, header.epoch());
        assert_eq!(client.read(PLACE, &mut [0; 8]), ReadState::Done);
        for _ in 0..steps {
            header.words().publish(header_word::EPOCH, header.epoch() + 1);
        }
        let elapsed = client.endpoint.stamp(peer) - before;
        assert_eq!(elapsed, steps);
        assert_eq!(elapsed <= client.endpoint.stamp_window(), steps < 2);
    }
}

/// Where stamps are times: a quarter of an epoch's least length remains for what the reader's clock may be wrong by.
pub fn an_epoch_of_time_is_beyond_the_window<T: Testbed>(bed: &T) {
    let Network { server: _server, clients, header, .. } = bed.network(1);
    let client = &clients[0];
    let epoch_ns = header.words().load(header_word::EPOCH_NS);
    let before = client.endpoint.stamp(client.peers[0]);
    let begin = Instant::now();
    until("three quarters of an epoch have passed", || {
        begin.elapsed() > Duration::from_nanos(epoch_ns / 4 * 3)
    });
    assert!(client.endpoint.stamp(client.peers[0]) - before > client.endpoint.stamp_window());
}

/// Whoever sees a stamp sees in later READs all memory stored before it; whoever has READ a word sees in a later
/// stamp all epochs published before that word was stored. The second half is what makes check (b) safe: new words
/// in reused memory are never read without the epoch that allowed the reuse.
pub fn stamps_and_words_keep_their_order<T: Testbed>(bed: &T) {
    const WORDS: usize = 64;
    let Network { server: _server, mut clients, map, header, .. } = bed.network(1);
    let client = &mut clients[0];
    let peer = client.peers[0];
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
            let before = client.endpoint.stamp(peer);
            if reads % 2 == 0 || !client.endpoint.read_now(peer, PLACE, &mut words) {
                assert_eq!(client.read(PLACE, &mut words), ReadState::Done);
            }
            let after = client.endpoint.stamp(peer);
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

/// A term that came into force before a READ was posted is the authority after it.
pub fn the_authority_is_that_of_the_page<T: Testbed>(bed: &T) {
    let Network { server: _server, mut clients, authority, .. } = bed.network(2);
    for term in 1..100 {
        authority.words().publish(AUTHORITY_TERM, term);
        for client in &mut clients {
            assert_eq!(client.read(PLACE, &mut [0; 8]), ReadState::Done);
            assert_eq!(client.endpoint.authority(client.peers[0]), term);
        }
    }
}

/// Whoever has READ a word that was stored after a term came into force sees that term: nothing that happened under
/// a successor is taken for the word of the server before it.
pub fn the_authority_is_loaded_after_the_words<T: Testbed>(bed: &T) {
    const WORDS: usize = 64;
    let Network { server: _server, mut clients, map, authority, .. } = bed.network(1);
    let client = &mut clients[0];
    let peer = client.peers[0];
    let memory = map.words(PLACE, WORDS).expect("a place of the suite's segments");
    let mut term = 0;
    let write = || {
        term += 1;
        authority.words().publish(AUTHORITY_TERM, term);
        full_fence();
        memory.copy_in(0, &[term; WORDS]);
    };
    meanwhile(write, || {
        let (mut reads, mut changes, mut last) = (0, 0, 0);
        until("the writer was seen at work often enough", || {
            let mut words = [0; WORDS];
            if reads % 2 == 0 || !client.endpoint.read_now(peer, PLACE, &mut words) {
                assert_eq!(client.read(PLACE, &mut words), ReadState::Done);
            }
            // A stamp stands between the two as in the read rule: it orders the loads around it.
            client.endpoint.stamp(peer);
            let authority = client.endpoint.authority(peer);
            for (at, word) in words.into_iter().enumerate() {
                assert!(word <= authority, "word {at} is of term {word}, in force was {authority}");
            }
            changes += u64::from(words[0] != last);
            last = words[0];
            reads += 1;
            reads >= 20_000 && changes >= 100
        });
    });
}
