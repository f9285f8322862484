//! Single items: conditions, counters, batches, times to live, large values, links, tables that come and go.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime};

use kelix::{CompareAndSet, NewItem, Session, Table, TableKind, Values, Visit, Walk};
use kelix_tests::{Random, value};

use super::{Turns, fail_over};

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().expect("8 bytes"))
}

/// Adds to a number that others add to. What all have added is there in the end.
fn count(turns: &Turns, session: &mut Session, (table, own): (Table, Table), name: &str) {
    let mut added = 0u64;
    loop {
        loop {
            let item = session.get(table, b"sum").unwrap();
            let (version, sum) = item.map_or((None, 0), |item| (Some(item.version()), number(item.value())));
            let outcome = session.compare_and_set(table, b"sum", version, &(sum + 1).to_le_bytes()).unwrap();
            if matches!(outcome, CompareAndSet::Done(_)) {
                break;
            }
        }
        added += 1;
        session.put(own, name, &added.to_le_bytes()).unwrap();
        if !turns.next() {
            return;
        }
    }
}

/// Puts keys that are not there, and takes away what it has put: whoever puts one finds it absent, once.
fn put_absent(turns: &Turns, session: &mut Session, table: Table) {
    for turn in 0u64.. {
        let key = turn % 50;
        let put = session.compare_and_set(table, key, None, &turn.to_le_bytes()).unwrap();
        let CompareAndSet::Done(Some(version)) = put else { panic!("{put:?} of an absent key") };
        let again = session.compare_and_set(table, key, None, &0u64.to_le_bytes()).unwrap();
        assert_eq!(again, CompareAndSet::Mismatch(Some(version)));
        assert_eq!(number(session.get(table, key).unwrap().expect("just put").value()), turn);
        match turn % 2 {
            0 => assert!(session.delete(table, key).unwrap(), "a delete is done once"),
            _ => {
                let gone = session.compare_and_delete(table, key, version).unwrap();
                assert_eq!(gone, CompareAndSet::Done(None));
            }
        }
        assert!(session.get(table, key).unwrap().is_none());
        if !turns.next() {
            return;
        }
    }
}

/// Puts many items at a time, and finds all of them.
fn put_batches(turns: &Turns, session: &mut Session, table: Table) {
    let keys: Vec<Vec<u8>> = (0..100u64).map(|key| key.to_be_bytes().to_vec()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    for turn in 0u64.. {
        let value = turn.to_le_bytes();
        let items: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (*key, &value[..])).collect();
        let mut values = Values::new();
        let put = match turn % 2 {
            0 => session.multi_put(table, &items).unwrap(),
            _ => session.multi_get_put(table, &keys, &mut values, &items).unwrap(),
        };
        assert!(put.iter().all(Result::is_ok), "{put:?}");
        let found = session.multi_get(table, &keys).unwrap();
        assert!(found.iter().all(|item| number(item.as_ref().expect("just put").value()) == turn));
        if !turns.next() {
            return;
        }
    }
}

/// Makes tables, names attributes, and drops the tables.
fn make_tables(turns: &Turns, session: &mut Session) {
    for turn in 0u64.. {
        let table = session.create_table("comes and goes").unwrap();
        assert!(session.get(table, b"key").unwrap().is_none(), "a new table is empty");
        let name = format!("attribute {}", turn % 200);
        session.put_item(table, b"key", &NewItem::new().bytes(&name, &turn.to_le_bytes())).unwrap();
        let item = session.get(table, b"key").unwrap().expect("just put");
        assert_eq!(item.bytes(&name).map(number), Some(turn));
        assert!(session.drop_table("comes and goes").unwrap(), "a drop is done once");
        assert!(session.table("comes and goes").is_err());
        if !turns.next() {
            return;
        }
    }
}

#[test]
fn conditions_counters_and_batches_hold_once() {
    fail_over("conditions", &["--shards", "2"], |cluster, clients, _| {
        let mut session = cluster.session();
        let table = session.create_table("sums").unwrap();
        let own = session.create_table("of each").unwrap();
        for name in ["one", "other"] {
            let mut session = cluster.session();
            clients.start(name, move |turns| count(turns, &mut session, (table, own), name));
        }
        let mut last = cluster.session();
        clients.start("sum", move |turns| {
            let mut seen = 0;
            while turns.next() {
                let sum = last.get(table, b"sum").unwrap().map_or(0, |item| number(item.value()));
                assert!(sum >= seen, "{sum} after {seen}");
                seen = sum;
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        for (kind, name) in [(TableKind::Hash, "absent hash"), (TableKind::Inline, "absent inline")] {
            let mut session = cluster.session();
            let table = session.create_table_of(kind, name).unwrap();
            clients.start(name, move |turns| put_absent(turns, &mut session, table));
        }
        for (kind, name) in [(TableKind::Hash, "batch hash"), (TableKind::Inline, "batch inline")] {
            let mut session = cluster.session();
            let table = session.create_table_of(kind, name).unwrap();
            clients.start(name, move |turns| put_batches(turns, &mut session, table));
        }
        let mut session = cluster.session();
        clients.start("tables", move |turns| make_tables(turns, &mut session));
        let mut judge = cluster.session();
        clients.judge(move || {
            let mut sum =
                |table, key: &str| judge.get(table, key).unwrap().map_or(0, |item| number(item.value()));
            assert_eq!(sum(table, "sum"), sum(own, "one") + sum(own, "other"));
        });
    });
}

/// Items that end by themselves, and others under the same keys that are put in their place and do not.
fn put_expiring(turns: &Turns, session: &mut Session, table: Table, seed: u64) {
    let mut random = Random(seed);
    // When it ends, and whether something that stays was put in its place.
    let mut ending: VecDeque<(SystemTime, u64, bool)> = VecDeque::new();
    let mut lasting: BTreeMap<u64, SystemTime> = BTreeMap::new();
    for turn in 0u64.. {
        let ends = SystemTime::now() + Duration::from_millis(300 + random.below(600));
        session.put_item(table, turn, &NewItem::new().bytes("", b"ends").expires_at(ends)).unwrap();
        let stays = turn % 4 == 0;
        if stays {
            session.put(table, turn, b"stays").unwrap();
            lasting.insert(turn, ends);
        }
        ending.push_back((ends, turn, stays));
        for (ends, key, stays) in &ending {
            let found = session.get(table, *key).unwrap();
            let now = SystemTime::now();
            // What was there when it was looked for was there before that.
            if *stays || now < *ends {
                let found =
                    found.unwrap_or_else(|| panic!("key {key} ends only in {:?}", ends.duration_since(now)));
                assert_eq!(found.value(), if *stays { &b"stays"[..] } else { b"ends" });
            }
        }
        while let Some((ends, key, stays)) = ending.front().copied() {
            if ends > SystemTime::now() {
                break;
            }
            ending.pop_front();
            if !stays {
                kelix_tests::until("an item ends", || session.get(table, key).unwrap().is_none());
            }
        }
        std::thread::sleep(Duration::from_millis(1));
        if !turns.next() {
            break;
        }
    }
    // A note of the item that was replaced ends nothing.
    let behind = lasting.values().max().copied();
    while behind.is_some_and(|behind| behind > SystemTime::now()) {
        std::thread::sleep(Duration::from_millis(5));
    }
    for key in lasting.keys() {
        assert_eq!(session.get(table, *key).unwrap().expect("it stays").value(), b"stays");
    }
}

/// Values that go in pieces, of which the next primary has had a part.
fn put_large(turns: &Turns, session: &mut Session, table: Table, seed: u64) {
    let mut random = Random(seed);
    let mut counters = [0u64; 4];
    for turn in 1u64.. {
        let key = random.below(4);
        let bytes = (200 << 10) + random.below(1 << 20) as usize;
        session.put(table, key, &value::make(key, turn, bytes)).unwrap();
        counters[key as usize] = turn;
        for (key, counter) in (0u64..).zip(counters) {
            let item = session.get(table, key).unwrap();
            let found = item.map_or(0, |item| value::check(key, item.value()).unwrap());
            assert_eq!(found, counter, "key {key}");
        }
        if !turns.next() {
            return;
        }
    }
}

const TARGETS: u64 = 60;

/// Items that link to others on other shards, which are put again and again, so that they stand elsewhere.
fn put_links(turns: &Turns, session: &mut Session, (from, to): (Table, Table), seed: u64) {
    let mut random = Random(seed);
    let mut counters = BTreeMap::new();
    for turn in 0u64.. {
        let target = random.below(TARGETS);
        match random.below(8) {
            0 => {
                session.delete(to, target).unwrap();
                counters.remove(&target);
            }
            _ => {
                let bytes = 32 + random.below(900) as usize;
                session.put(to, target, &value::make(target, turn, bytes)).unwrap();
                counters.insert(target, turn);
            }
        }
        let source = random.below(TARGETS);
        let item = NewItem::new().link("to", to, source).link("to", to, target);
        session.put_item(from, source, &item).unwrap();
        let item = session.get(from, source).unwrap().expect("just put");
        let found = session.follow_all(&item, "to").unwrap();
        for (key, found) in [source, target].into_iter().zip(found) {
            let counter = found.map(|found| value::check(key, found.value()).unwrap());
            assert_eq!(counter, counters.get(&key).copied(), "target {key}");
        }
        if !turns.next() {
            return;
        }
    }
}

/// How many of a ring, each of which leads to another, on another shard mostly.
const RING: u64 = 300;
const STEP: u64 = 7;

/// Goes around a ring of links in all ways: from one to the next, and by walks.
fn walk_around(turns: &Turns, session: &mut Session, ring: Table) {
    let first = session.get(ring, 0u64).unwrap().expect("it was put");
    loop {
        let mut item = first.clone();
        for step in 1..=RING {
            assert!(session.follow_into(&mut item, "next").unwrap());
            assert_eq!(value::check(step * STEP % RING, item.value()), Ok(1));
        }
        for walk in [Walk::along(&["next"]), Walk::along(&["next"]).depth_first()] {
            let mut came = 0;
            let walked = session.walk(&[(ring, &0u64.to_be_bytes())], &walk, |visited| {
                assert_eq!(value::check(came * STEP % RING, visited.item.value()), Ok(1));
                came += 1;
                ControlFlow::Continue(Visit::On)
            });
            let walked = walked.unwrap();
            assert_eq!((walked.items as u64, walked.gone), (RING, 0));
        }
        // Step by step, from many at once.
        let begins: Vec<[u8; 8]> = (0..RING).step_by(30).map(u64::to_be_bytes).collect();
        let begins: Vec<(Table, &[u8])> = begins.iter().map(|key| (ring, &key[..])).collect();
        let mut walker = session.begin_walk(&begins, &Walk::along(&["next"])).unwrap();
        let mut came = 0;
        while let batch @ [_, ..] = walker.next_batch(session, 16).unwrap() {
            came += batch.len() as u64;
        }
        assert_eq!((came, walker.walked().gone), (RING, 0));
        if !turns.next() {
            return;
        }
    }
}

#[test]
fn items_end_once_and_large_values_and_links_are_whole() {
    fail_over("items", &["--shards", "3"], |cluster, clients, seed| {
        let mut session = cluster.session();
        let table = session.create_table_of(TableKind::Numbers, "expiring").unwrap();
        clients.start("expiring", move |turns| put_expiring(turns, &mut session, table, seed));
        let mut session = cluster.session();
        let table = session.create_table("large").unwrap();
        clients.start("large", move |turns| put_large(turns, &mut session, table, seed));
        let mut session = cluster.session();
        let from = session.create_table("from").unwrap();
        let to = session.create_table("to").unwrap();
        clients.start("links", move |turns| put_links(turns, &mut session, (from, to), seed));
        let mut session = cluster.session();
        let ring = session.create_table("ring").unwrap();
        for number in 0..RING {
            let item = NewItem::new().bytes("", &value::make(number, 1, 40));
            session.put_item(ring, number, &item.link("next", ring, (number + STEP) % RING)).unwrap();
        }
        let by_message = cluster.session_by_message();
        for (name, mut session) in [("walks", session), ("walks by message", by_message)] {
            clients.start(name, move |turns| walk_around(turns, &mut session, ring));
        }
    });
}
