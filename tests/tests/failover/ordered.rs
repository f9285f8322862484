//! Ordered tables of all kinds, whose leaves split and merge all the time, and scans of them.

use std::collections::BTreeMap;

use kelix::{Rows, Scan, Session, Table, TableKind};
use kelix_tests::{Random, value};

use super::{Turns, fail_over};

const KINDS: [(TableKind, &str); 4] = [
    (TableKind::Hash, "hash"),
    (TableKind::Strings, "strings"),
    (TableKind::Numbers, "numbers"),
    (TableKind::Inline, "inline"),
];
/// Keys that come and go together, so that leaves fill and empty.
const BLOCK: u64 = 200;
const BLOCKS: u64 = 12;

fn key_of(kind: TableKind, number: u64) -> Vec<u8> {
    match kind {
        TableKind::Strings => format!("key {number:06} {}", "x".repeat(number as usize % 40)).into_bytes(),
        _ => number.to_be_bytes().to_vec(),
    }
}

fn value_of(kind: TableKind, number: u64, counter: u64) -> Vec<u8> {
    match kind {
        TableKind::Inline => counter.to_le_bytes().to_vec(),
        _ => value::make(number, counter, 24 + number as usize % 200),
    }
}

/// What is found under a key: the counter of its value.
fn counter_of(kind: TableKind, number: u64, found: &[u8]) -> u64 {
    match kind {
        TableKind::Inline => u64::from_le_bytes(found.try_into().unwrap()),
        _ => value::check(number, found).unwrap(),
    }
}

fn number_of(kind: TableKind, key: &[u8]) -> u64 {
    match kind {
        TableKind::Strings => std::str::from_utf8(&key[4..10]).unwrap().parse().unwrap(),
        _ => u64::from_be_bytes(key.try_into().unwrap()),
    }
}

/// Whether a table has what it should, in its order and against it.
fn check(session: &mut Session, table: Table, kind: TableKind, known: &BTreeMap<u64, u64>, rows: &mut Rows) {
    session.scan_into(table, &Scan::all(), rows).unwrap();
    let row = |index: usize| {
        let number = number_of(kind, rows.key(index));
        (number, counter_of(kind, number, rows.value(index)))
    };
    let mut found: Vec<(u64, u64)> = (0..rows.len()).map(row).collect();
    if kind == TableKind::Hash {
        found.sort_unstable();
    }
    assert!(found.into_iter().eq(known.iter().map(|(number, counter)| (*number, *counter))), "{kind}");
    if kind != TableKind::Hash {
        let down = session.scan(table, &Scan::all().backwards()).unwrap();
        let down = down.map(|item| number_of(kind, item.unwrap().key()));
        assert!(down.eq(known.keys().rev().copied()), "{kind} downwards");
        assert_eq!(session.count(table, &Scan::all()).unwrap(), known.len() as u64, "{kind}");
        let first = session.first(table).unwrap().map(|item| number_of(kind, item.key()));
        assert_eq!(first, known.keys().next().copied());
    }
}

fn change(turns: &Turns, session: &mut Session, (table, kind): (Table, TableKind), seed: u64) {
    let (mut random, mut known, mut rows) = (Random(seed), BTreeMap::new(), Rows::new());
    for turn in 1u64.. {
        let first = random.below(BLOCKS) * BLOCK;
        // Every key of a block, or some of them.
        let step = 1 + random.below(3);
        for number in (first..first + BLOCK).step_by(step as usize) {
            let key = key_of(kind, number);
            if turn % 2 == 0 {
                let was_there = session.delete(table, &key).unwrap();
                assert_eq!(was_there, known.remove(&number).is_some(), "{kind}: key {number}");
            } else {
                session.put(table, &key, &value_of(kind, number, turn)).unwrap();
                known.insert(number, turn);
            }
        }
        check(session, table, kind, &known, &mut rows);
        if !turns.next() {
            return;
        }
    }
}

/// Long scans of what does not change: each item once, in its order.
fn scan(turns: &Turns, session: &mut Session, table: Table, items: u64) {
    loop {
        let (mut next, mut scan) = (0, session.scan(table, &Scan::all()).unwrap());
        while let Some(item) = scan.next_item().unwrap() {
            assert_eq!(number_of(TableKind::Numbers, item.key()), next);
            next += 1;
        }
        assert_eq!(next, items);
        if !turns.next() {
            return;
        }
    }
}

/// Scans of what does not change, as cursors: set aside between two pages while the session writes, and such
/// as go on in another session where this one was. And many scans at once.
fn scan_by_cursors(turns: &Turns, sessions: [Session; 2], (table, kind): (Table, TableKind), items: u64) {
    let [mut session, mut other] = sessions;
    let own = session.create_table("of cursors").unwrap();
    let mut rows = Rows::new();
    let is_whole = |mut found: Vec<u64>| {
        if kind == TableKind::Hash {
            found.sort_unstable();
        }
        assert!(found.into_iter().eq(0..items), "{kind}: a scan has each item once");
    };
    for turn in 0u64.. {
        let (mut found, mut cursor) = (Vec::new(), session.open_scan(table, &Scan::all()).unwrap());
        loop {
            let has_more = cursor.next_rows(&mut session, &mut rows, 700).unwrap();
            found.extend((0..rows.len()).map(|row| number_of(kind, rows.key(row))));
            if !has_more {
                break;
            }
            session.put(own, turn % 9, &turn.to_le_bytes()).unwrap();
        }
        is_whole(found);
        let (mut found, mut place) = (Vec::new(), None);
        loop {
            let scan = place.as_ref().map_or(Scan::all(), |place: &Vec<u8>| Scan::all().resume_at(place));
            let mut scan = session.scan(table, &scan).unwrap();
            place = None;
            // On in another session behind some pages.
            while let (Some(item), None) = (scan.next_item().unwrap(), &place) {
                found.push(number_of(kind, item.key()));
                place = scan.place().filter(|_| found.len() % 5 == 0);
            }
            if place.is_none() {
                break;
            }
            std::mem::swap(&mut session, &mut other);
        }
        is_whole(found);
        if kind.is_ordered() {
            let ranges = (0..8).map(|part| part * items / 8..(part + 1) * items / 8);
            let scans: Vec<Scan> = ranges.map(|range| Scan::all().numbers(range)).collect();
            let mut all: Vec<Rows> = scans.iter().map(|_| Rows::new()).collect();
            session.multi_scan_into(table, &scans, &mut all).unwrap();
            let keys = |rows: &Rows| -> Vec<u64> {
                (0..rows.len()).map(|row| number_of(kind, rows.key(row))).collect()
            };
            is_whole(all.iter().flat_map(keys).collect());
        }
        if !turns.next() {
            return;
        }
    }
}

#[test]
fn ordered_tables_keep_all_keys_while_leaves_split_and_merge() {
    fail_over("ordered", &["--shards", "2"], |cluster, clients, seed| {
        for (kind, name) in KINDS {
            let mut session = cluster.session();
            let table = session.create_table_of(kind, name).unwrap();
            clients.start(name, move |turns| change(turns, &mut session, (table, kind), seed));
        }
        const ITEMS: u64 = 20_000;
        let mut session = cluster.session();
        let table = session.create_table_of(TableKind::Numbers, "still").unwrap();
        for number in 0..ITEMS {
            session.put(table, number, b"still").unwrap();
        }
        let by_message = cluster.session_by_message();
        for (name, mut session) in [("scan", session), ("scan by message", by_message)] {
            clients.start(name, move |turns| scan(turns, &mut session, table, ITEMS));
        }
        let mut session = cluster.session();
        let unordered = session.create_table("still, in no order").unwrap();
        for number in 0..ITEMS / 4 {
            session.put(unordered, number, b"still").unwrap();
        }
        let sessions = [cluster.session(), cluster.session()];
        let of = (table, TableKind::Numbers);
        clients.start("cursors", move |turns| scan_by_cursors(turns, sessions, of, ITEMS));
        let (sessions, of) = ([session, cluster.session_by_message()], (unordered, TableKind::Hash));
        clients.start("cursors by message", move |turns| scan_by_cursors(turns, sessions, of, ITEMS / 4));
    });
}
