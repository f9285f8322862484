//! READs: the right words, from the right places, each word whole.

use kelix_image::{Header, MemoryMap};
use kelix_types::Place;
use kelix_types::limits::{GRANULE_BYTES, SESSION_READS_MAX};

use super::{Network, Numbers, SEGMENTS, Side, Testbed, meanwhile, until};
use crate::{Read, ReadState, RemoteMemory, WorkQueue};

/// One word to 1 MiB.
const SIZES: [usize; 14] = [1, 2, 3, 5, 7, 8, 9, 16, 31, 64, 100, 1000, 8192, 131_072];

fn start(segment: usize) -> Place {
    Place(SEGMENTS[segment].0 as u64 * GRANULE_BYTES)
}

fn end(segment: usize) -> Place {
    start(segment).plus(SEGMENTS[segment].1)
}

/// The first and last places of each segment where `words` words fit, one that is no multiple of 16, and one
/// from which they reach into the segment's second granule.
fn places(words: usize) -> Vec<Place> {
    let bytes = words as u64 * 8;
    let mut places = Vec::new();
    for segment in 0..SEGMENTS.len() {
        places.extend([start(segment), start(segment).plus(24), Place(end(segment).0 - bytes)]);
    }
    places.push(Place(start(1).0 + GRANULE_BYTES - words.div_ceil(2) as u64 * 8));
    places
}

fn put(map: &MemoryMap, place: Place, words: &[u64]) {
    map.words(place, words.len()).expect("a place of the suite's segments").copy_in(0, words);
}

/// Has `read` fill a buffer between two words that it must leave alone.
fn into_guarded(count: usize, read: impl FnOnce(&mut [u64])) -> Vec<u64> {
    const GUARD: u64 = 0x6a75_7264_6775_6172;
    let mut buffer = vec![GUARD; count + 2];
    read(&mut buffer[1..=count]);
    assert!(buffer[0] == GUARD && buffer[count + 1] == GUARD, "words beside the buffer were overwritten");
    buffer[1..=count].to_vec()
}

/// The words at a place are the last ones stored there, in every segment, at either end of it and across
/// granules.
pub fn a_read_returns_what_was_written<T: Testbed>(bed: &T) {
    let Network { server: _server, mut clients, map, .. } = bed.network(1);
    let client = &mut clients[0];
    let mut numbers = Numbers(1);
    for count in SIZES {
        for place in places(count) {
            for again in [false, true] {
                let words = numbers.words(count);
                put(&map, place, &words);
                let read = into_guarded(count, |into| {
                    client.read(place, into);
                });
                assert!(read == words, "{count} words at {place:x?}, again: {again}");
            }
        }
    }
    // The header page is memory like any other.
    let mut page = [0; 9];
    client.read(Place(0), &mut page);
    let written: Vec<u64> = (0..9).map(|word| map.words(Place(0), 9).expect("the page").load(word)).collect();
    assert_eq!(page, *written);
}

/// READs that lie in no segment, or reach out of one.
fn outside() -> Vec<(Place, usize)> {
    let mut reads = vec![
        (Place(Header::BYTES), 1),
        (Place(Header::BYTES - 8), 2),
        (Place(GRANULE_BYTES - 8), 2),
        (Place(2 * GRANULE_BYTES), 1),
        (Place(3 * GRANULE_BYTES - 8), 2),
        (Place(5 * GRANULE_BYTES), 8),
        (Place(1 << 43), 8),
        (Place(u64::MAX - 7), 1),
        (Place(u64::MAX - 7), 64),
    ];
    for (segment, (_, bytes)) in SEGMENTS.into_iter().enumerate() {
        reads.extend([(end(segment), 1), (Place(end(segment).0 - 8), 2), (Place(end(segment).0 - 64), 9)]);
        if bytes < GRANULE_BYTES {
            reads.push((start(segment), (bytes / 8) as usize + 1));
        }
    }
    reads
}

/// A READ that lies in no segment, or reaches out of one, is answered so, disturbs no other, and reads
/// nothing at once.
pub fn a_read_outside_of_the_segments_is_told_so<T: Testbed>(bed: &T) {
    let Network { server: _server, mut clients, map, .. } = bed.network(1);
    let client = &mut clients[0];
    let words = Numbers(2).words(8);
    put(&map, start(0), &words);
    for (place, count) in outside() {
        let peer = client.peers[0];
        let within = |tag| Read { peer, place: start(0), words: 8, tag };
        let beyond = Read { peer, place, words: count, tag: 7 };
        for read in [within(0), beyond, within(1)] {
            client.endpoint.post_read(read);
        }
        client.endpoint.doorbell();
        into_guarded(count, |into| {
            assert_eq!(client.wait_for(beyond, into), ReadState::Outside, "{beyond:x?}");
        });
        for tag in [0, 1] {
            let mut read = [0; 8];
            assert!(matches!(client.wait_for(within(tag), &mut read), ReadState::Done(_)));
            assert_eq!(read, *words, "a READ beside {beyond:x?}");
        }
        let mut untouched = vec![77; count];
        assert_eq!(client.read_at_once(place, &mut untouched), None, "{beyond:x?} at once");
        assert!(untouched.iter().all(|word| *word == 77), "{beyond:x?} at once reads nothing");
    }
}

/// As many READs as a session has under way, of all sizes, polled in any order, each get their own words.
pub fn many_reads_are_under_way_at_once<T: Testbed>(bed: &T) {
    const SLOT_WORDS: usize = 1024;
    let Network { server: _server, mut clients, map, .. } = bed.network(1);
    let client = &mut clients[0];
    let mut numbers = Numbers(3);
    for round in 0..20 {
        let mut under_way = Vec::new();
        for tag in 0..SESSION_READS_MAX as u32 {
            let count = 1 + numbers.below(SLOT_WORDS);
            let words = numbers.words(count);
            let place = start(0).plus(u64::from(tag) * SLOT_WORDS as u64 * 8);
            put(&map, place, &words);
            let read = Read { peer: client.peers[0], place, words: words.len(), tag };
            client.endpoint.post_read(read);
            // Some are sent off before the others are posted.
            if numbers.below(16) == 0 {
                client.endpoint.doorbell();
            }
            under_way.push((read, words));
        }
        client.endpoint.doorbell();
        until("all READs are done", || {
            if under_way.is_empty() {
                return true;
            }
            let at = numbers.below(under_way.len());
            let (read, words) = &under_way[at];
            let mut state = ReadState::Pending;
            client.endpoint.progress();
            let into = into_guarded(words.len(), |into| state = client.endpoint.poll_read(*read, into));
            if state != ReadState::Pending {
                assert!(matches!(state, ReadState::Done(_)), "{read:x?}: {state:?}");
                assert!(into == *words, "round {round}, {read:x?}: words of another READ");
                under_way.swap_remove(at);
            }
            false
        });
    }
}

/// A word that was stored whole is read whole, and a READ posted after another was done finds no older word.
pub fn words_are_whole_and_never_older<T: Testbed>(bed: &T) {
    while_a_writer_counts(bed, |client, place, into| {
        client.read(place, into);
    });
}

/// As [`words_are_whole_and_never_older`], of READs at once.
pub fn words_read_at_once_are_whole_and_never_older<T: Testbed>(bed: &T) {
    while_a_writer_counts(bed, |client, place, into| {
        assert!(client.read_at_once(place, into).is_some());
    });
}

/// A writer stores a count into the same words again and again, in all ways of storing. Both halves of a word
/// hold the count, so no mixture of two of them looks like one.
fn while_a_writer_counts<T: Testbed>(bed: &T, read: impl Fn(&mut Side<T::Endpoint>, Place, &mut [u64])) {
    const WORDS: usize = 40;
    let Network { server: _server, mut clients, map, .. } = bed.network(1);
    let client = &mut clients[0];
    let memory = map.words(start(0), WORDS).expect("a place of the suite's segments");
    let mut count = 0;
    let write = || {
        count += 1;
        let word = count << 32 | count;
        match count % 3 {
            0 => memory.copy_in(0, &[word; WORDS]),
            1 => (0..WORDS).for_each(|at| memory.store(at, word)),
            _ => (0..WORDS).rev().for_each(|at| memory.publish(at, word)),
        }
    };
    meanwhile(write, || {
        let (mut last, mut changes, mut reads) = ([0; WORDS], 0, 0);
        until("the writer was seen at work often enough", || {
            // All of the words, or some of them from an odd word on.
            let from = if reads % 4 == 3 { 1 } else { 0 };
            let mut words = [0; WORDS];
            read(client, start(0).plus(from as u64 * 8), &mut words[from..WORDS - from]);
            for at in from..WORDS - from {
                assert!(words[at] >> 32 == words[at] & 0xffff_ffff, "word {at} is torn: {:#x}", words[at]);
                assert!(words[at] >= last[at], "word {at}: {:#x} after {:#x}", words[at], last[at]);
                changes += u64::from(words[at] != last[at]);
                last[at] = words[at];
            }
            reads += 1;
            reads >= 20_000 && changes >= 1000
        });
    });
}

/// A READ at once gives what a posted one gives.
pub fn a_read_at_once_is_a_read<T: Testbed>(bed: &T) {
    let Network { server: _server, mut clients, map, .. } = bed.network(1);
    let client = &mut clients[0];
    let mut numbers = Numbers(4);
    for count in SIZES {
        for place in places(count) {
            put(&map, place, &numbers.words(count));
            let at_once = into_guarded(count, |into| {
                let read = client.read_at_once(place, into);
                assert!(read.is_some(), "{count} words at {place:x?}");
            });
            let posted = into_guarded(count, |into| {
                client.read(place, into);
            });
            assert!(at_once == posted, "{count} words at {place:x?}");
        }
    }
}

/// A fabric that does not READ at once always says so, and reads nothing.
pub fn no_read_is_at_once<T: Testbed>(bed: &T) {
    let mut network = bed.network(1);
    let client = &mut network.clients[0];
    for count in SIZES {
        for place in places(count) {
            let mut into = vec![77; count];
            assert_eq!(client.read_at_once(place, &mut into), None, "{place:x?}");
            assert!(into.iter().all(|word| *word == 77));
        }
    }
}
