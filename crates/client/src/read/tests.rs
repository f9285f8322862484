use kelix_fabric::WorkQueue;
use kelix_image::words::bytes_of_mut;
use kelix_image::{Header, ItemHeader, LargeBody, Span};
use kelix_shard::harness::Harness;
use kelix_types::limits::READ_EPOCHS_MAX;
use kelix_types::{Version, key_hash};
use kelix_wire::mailboxes::{Mailboxes, PEER};

use super::*;

const TABLE: TableId = TableId(1);
const KEY: &[u8] = b"key";
const BYTES: usize = 3 << 20;

/// How long a value is was believed before any of it had come: an item that said 4 TiB ended its reader.
#[test]
fn a_value_that_is_shorter_than_it_says_takes_no_more_memory_than_there_is() {
    let mut server = Harness::new(1, &Mailboxes::new());
    server.put_in_pieces(TABLE, KEY, &[1; BYTES]);
    let mut fabric = Mailboxes::new();
    (fabric.memory, fabric.term) = (Some(server.map()), Harness::TERM);
    let mut shard = ShardReader::new(PEER, Harness::TERM, None, false);
    let mut landing = Landing::default();
    let hash = key_hash(Harness::SEED, TABLE, KEY);
    let mut read = |landing: &mut Landing| {
        let mut op = ReadOp::start(&mut fabric, &shard, 0, 0, (TABLE, hash, KEY), (None, false));
        loop {
            match op.advance(&mut fabric, &mut shard, KEY, landing) {
                Step::Pending => {}
                step => return (step, op.location),
            }
        }
    };
    let (step, location) = read(&mut landing);
    assert_eq!((step, landing.large().len()), (Step::Valid, BYTES));
    // The length of the value, and that of its last run.
    let slot = server.map();
    let slot = slot.words(location.place(), location.class().words()).unwrap();
    let body = landing.layout.body_words().start;
    let last = body + 2 * landing.runs.len();
    for word in [body, last] {
        slot.store(word, slot.load(word) + (1 << 42));
    }
    let (step, _) = read(&mut landing);
    assert_eq!(step, Step::UnknownSegment);
    assert!(landing.value.len() * 8 < 128 << 20, "{} words for a segment's 64 MiB", landing.value.len());
}

/// Puts others until one of them has the memory of a value of [`KEY`], which has been replaced.
fn use_its_memory_again(server: &mut Harness) {
    // Pages are given out in turn, so the last one gets its memory.
    for (key, byte) in [(KEY, 2), (b"a", 3), (b"b", 4), (b"c", 5), (b"d", 6)] {
        server.put_in_pieces(TABLE, key, &vec![byte; BYTES]);
        server.pass_epoch();
        server.pass_epoch();
    }
}

/// A server's header, and its memory as a reader has it who loads it himself.
fn within_reach(server: &Harness) -> (Header, Direct) {
    let header = Header::open(server.header().clone()).unwrap();
    let authority = Span::private(64);
    authority.words().store(0, Harness::TERM);
    let direct = Direct::new(server.map(), &header, authority.word(0));
    (header, direct)
}

#[test]
fn a_large_value_dies_while_it_is_copied_straight() {
    let mut server = Harness::new(1, &Mailboxes::new());
    server.put_in_pieces(TABLE, KEY, &[1; BYTES]);
    let (header, direct) = within_reach(&server);
    let mut buffer = vec![0; BYTES];
    let location = {
        let mut fabric = Mailboxes::new();
        (fabric.memory, fabric.term, fabric.stamp) = (Some(server.map()), Harness::TERM, header.epoch());
        let mut shard = ShardReader::new(PEER, Harness::TERM, None, false);
        let hash = key_hash(Harness::SEED, TABLE, KEY);
        let mut op = ReadOp::start(&mut fabric, &shard, 0, 0, (TABLE, hash, KEY), (None, false));
        let mut landing = Landing::default();
        while op.advance(&mut fabric, &mut shard, KEY, &mut landing) == Step::Pending {}
        op.location
    };
    let map = server.map();
    let place = map.view().words_from(location.place()).unwrap();
    let find = || {
        find_large_direct(
            (&direct, &Watermark::new(false)),
            Harness::TERM,
            place,
            (TABLE, KEY),
            &mut Vec::new(),
        )
    };
    let found = find().expect("a large value");
    assert_eq!((found.length(), found.copy(&direct, Harness::TERM, 0, &mut buffer).is_some()), (BYTES, true));
    assert!(buffer == [1; BYTES]);
    assert_eq!(found.copy(&direct, Harness::TERM + 1, 0, &mut buffer), None, "another term is in force");
    use_its_memory_again(&mut server);
    assert_eq!(found.copy(&direct, Harness::TERM, 0, &mut buffer), None);
    assert!(buffer[0] > 2, "its memory was used by others when it was copied");
    assert!(find().is_none(), "it is dead");
}

/// A large value that had been moved was got with its place's version instead of its own, so that comparing
/// and setting by it failed.
#[test]
fn a_large_value_that_was_moved_has_the_version_that_it_had() {
    let mut server = Harness::new(1, &Mailboxes::new());
    server.put_in_pieces(TABLE, KEY, &[1; BYTES]);
    let (_, direct) = within_reach(&server);
    let (version, body) = (7, LargeBody { bytes: 20, runs: vec![(Place(1 << 16), 20)] });
    let flags = ItemFlags::LARGE.with(ItemFlags::MOVED);
    let body_bytes = bytes_of(&body.words()).len();
    let moved = ItemHeader { table: TABLE, flags, key_bytes: KEY.len(), body_bytes };
    let mut words = vec![Incarnation(9).live().0, moved.word(), version, 0];
    bytes_of_mut(&mut words)[moved.key_start()..][..KEY.len()].copy_from_slice(KEY);
    words.extend(body.words());
    let span = Span::private(words.len() as u64 * 8);
    words.iter().enumerate().for_each(|(index, word)| span.words().store(index, *word));
    let found = find_large_direct(
        (&direct, &Watermark::new(false)),
        Harness::TERM,
        span.words(),
        (TABLE, KEY),
        &mut Vec::new(),
    );
    assert_eq!(found.expect("a large value").version, Version(version));
}

/// A value dies after its header was found valid, and before its pieces are read: then those of another one
/// stand in its memory. However long ago that was, the guardian tells.
#[test]
fn a_large_value_dies_while_it_is_read() {
    let mut server = Harness::new(1, &Mailboxes::new());
    server.put_in_pieces(TABLE, KEY, &[1; BYTES]);
    let header = Header::open(server.header().clone()).unwrap();
    let mut fabric = Mailboxes::new();
    (fabric.memory, fabric.term) = (Some(server.map()), Harness::TERM);
    let mut shard = ShardReader::new(PEER, Harness::TERM, None, false);
    let mut landing = Landing::default();
    let hash = key_hash(Harness::SEED, TABLE, KEY);
    let mut op = ReadOp::start(&mut fabric, &shard, 0, 0, (TABLE, hash, KEY), (None, false));
    while !matches!(op.state, State::Pieces { .. }) {
        assert_eq!(op.advance(&mut fabric, &mut shard, KEY, &mut landing), Step::Pending);
    }
    use_its_memory_again(&mut server);
    let mut others = false;
    loop {
        fabric.stamp = header.epoch();
        match op.advance(&mut fabric, &mut shard, KEY, &mut landing) {
            Step::Pending => others |= landing.value.first().is_some_and(|word| *word as u8 > 2),
            Step::Valid => break,
            step => panic!("{step:?}"),
        }
    }
    assert!(others, "its memory was used by others when it was read");
    assert!(landing.large() == vec![2; BYTES], "bytes of {}", landing.large()[0]);
}

/// Somebody who answers each FIND with this.
struct Found(FindState, Vec<u64>);

impl WorkQueue for Found {
    fn doorbell(&mut self) {}

    fn look(&mut self) {}

    fn is_broken(&self, _: PeerId) -> bool {
        false
    }
}

impl RemoteMemory for Found {
    fn post_read(&mut self, _: Read) {}

    fn poll_read(&mut self, _: Read, _: &mut [u64]) -> ReadState {
        ReadState::Broken
    }

    fn finds(&self, _: PeerId) -> bool {
        true
    }

    fn poll_find(&mut self, _: Find<'_>, into: &mut Vec<u64>) -> FindState {
        into.clone_from(&self.1);
        self.0
    }

    fn stamp_window(&self) -> u64 {
        READ_EPOCHS_MAX
    }

    fn authority(&mut self, _: PeerId) -> Option<u64> {
        Some(Harness::TERM)
    }
}

/// What a leaf says counts if it was live, in time, and in force, and is of a table whose leaves have values.
#[test]
fn a_leaf_that_a_find_found_is_judged() {
    let key = 5u64.to_be_bytes();
    let (live, dead) = (Incarnation(9).live().0, 0);
    let in_time = Sampled { before: 3, after: 4, term: Harness::TERM };
    let late = Sampled { after: 5, ..in_time };
    let elsewhere = Sampled { term: Harness::TERM + 1, ..in_time };
    for (kind, sampled, words, expected) in [
        (TableKind::Inline, in_time, &[live, 77][..], Step::Valid),
        (TableKind::Inline, in_time, &[live], Step::Absent),
        (TableKind::Strings, in_time, &[live], Step::Absent),
        (TableKind::Inline, late, &[live, 77], Step::Ask),
        (TableKind::Inline, late, &[live], Step::Ask),
        (TableKind::Inline, in_time, &[dead, 77], Step::Ask),
        (TableKind::Inline, in_time, &[dead], Step::Ask),
        (TableKind::Inline, elsewhere, &[live, 77], Step::Superseded),
        (TableKind::Numbers, in_time, &[live, 77], Step::Ask),
        (TableKind::Inline, in_time, &[], Step::Ask),
    ] {
        let mut fabric = Found(FindState::Leaf(sampled), words.to_vec());
        let mut shard = ShardReader::new(PEER, Harness::TERM, None, false);
        let (mut landing, table) = (Landing::default(), TableId::new(kind, 1));
        let mut op = ReadOp::start(&mut fabric, &shard, 0, 0, (table, KeyHash(0), &key), (None, true));
        let mut looks = 0;
        let step = loop {
            looks += 1;
            match op.advance(&mut fabric, &mut shard, &key, &mut landing) {
                Step::Pending => {}
                step => break step,
            }
        };
        assert_eq!(step, expected, "{kind}: {words:?}, {sampled:?}");
        if step == Step::Valid {
            assert_eq!(landing.value(), 77u64.to_le_bytes());
        }
        // What might be otherwise the next time is asked for again, and that has an end.
        let again = sampled == late || words.first() == Some(&dead);
        assert_eq!(looks, if again { READ_RETRIES_MAX + 1 } else { 1 }, "{kind}: {words:?}, {sampled:?}");
    }
}
