//! Loaded tables that clients write to: what they wrote wins until the next load includes or deletes it, and
//! nothing of it is lost while loads come one after the other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kelix::{
    Build, Client, CompareAndSet, ErrorKind, FabricChoice, NewItem, NewTable, Session, Table, TableKind,
};
use kelix_server::{Server, ServerConfig};
use kelix_tests::process::patient;
use kelix_tests::{Random, RunDir, far, fewer, rdma, session_over, watchdog};

const DATASET: &str = "shop";
const KINDS: [(&str, TableKind); 2] = [("carts", TableKind::Hash), ("prices", TableKind::Strings)];

fn serve(run: &RunDir, shards: usize) -> (Server, Client) {
    let config = ServerConfig {
        directory: run.path().into(),
        shards,
        memory_bytes: 256 << 20,
        view_lease: Duration::from_secs(1),
        listen: Some(([127, 0, 0, 1], 0).into()),
        rdma: rdma(),
        ..ServerConfig::default()
    };
    let server = kelix_tests::start(&config);
    (server, kelix_tests::client_at(run.path()))
}

fn tables() -> [NewTable<'static>; 2] {
    KINDS.map(|(name, kind)| NewTable::new(name, kind).overlay(true))
}

/// Loads these keys into both tables, with this value.
fn load(session: &mut Session, keys: &[&[u8]], value: &[u8]) -> kelix::Built {
    let mut build = session.build(DATASET, &tables()).unwrap();
    put_both(&mut build, keys, value);
    build.finish().unwrap()
}

fn put_both(build: &mut Build<'_>, keys: &[&[u8]], value: &[u8]) {
    for index in 0..2 {
        keys.iter().for_each(|key| build.put(index, key, value).unwrap());
    }
}

fn value(session: &mut Session, table: Table, key: &[u8]) -> Option<Vec<u8>> {
    session.get(table, key).unwrap().map(|item| item.value().to_vec())
}

#[test]
fn what_clients_wrote_wins_until_a_load_includes_or_deletes_it() {
    let _watchdog = watchdog("overlays");
    for shards in [1, 2] {
        let run = RunDir::new();
        let (_server, client) = serve(&run, shards);
        let (mut loader, mut session) = (client.session().unwrap(), client.session().unwrap());
        load(&mut loader, &[b"a", b"b", b"c"], b"one");
        for (name, _) in KINDS {
            let table = session.table(name).unwrap();
            // Over what is loaded, beside it, and away with it.
            session.put(table, b"a", b"mine").unwrap();
            session.put(table, b"b", b"mine").unwrap();
            session.delete(table, b"c").unwrap();
            session.put(table, b"new", b"mine").unwrap();
            session.put(table, b"late", b"mine").unwrap();
            session.put(table, b"gone", b"mine").unwrap();
            session.delete(table, b"gone").unwrap();
            assert_eq!(value(&mut session, table, b"a").as_deref(), Some(&b"mine"[..]));
            assert_eq!(value(&mut session, table, b"c"), None);
        }
        // Includes a and late; b was deleted at the source, and c is there again.
        let built = load(&mut loader, &[b"a", b"c", b"late"], b"two");
        assert_eq!((built.items, built.overlays), (2 * 4, 2));
        for (name, _) in KINDS {
            let table = session.table(name).unwrap();
            let found = [&b"a"[..], b"b", b"c", b"late", b"new", b"gone"]
                .map(|key| value(&mut session, table, key).map(|value| String::from_utf8(value).unwrap()));
            let wanted = [Some("two"), None, Some("two"), Some("two"), Some("mine"), None];
            assert_eq!(found.each_ref().map(Option::as_deref), wanted, "{name}, {shards} shards");
            // It goes on from load to load, as it is now; a load that includes it ends that.
            session.put(table, b"new", b"changed").unwrap();
            session.put(table, b"late", b"mine again").unwrap();
        }
        load(&mut loader, &[b"a"], b"three");
        for (name, _) in KINDS {
            let table = session.table(name).unwrap();
            assert_eq!(value(&mut session, table, b"new").as_deref(), Some(&b"changed"[..]));
            assert_eq!(value(&mut session, table, b"late"), None, "the source has deleted it");
        }
        load(&mut loader, &[b"new"], b"four");
        load(&mut loader, &[], b"five");
        for (name, _) in KINDS {
            let table = session.table(name).unwrap();
            assert_eq!(value(&mut session, table, b"new"), None);
        }
    }
}

/// Attributes, links that lead to tables of the next generation, long values, and the time at which an item
/// ends.
#[test]
fn all_of_an_item_is_taken_over() {
    let _watchdog = watchdog("all of an item");
    let run = RunDir::new();
    let (_server, client) = serve(&run, 2);
    let (mut loader, mut session) = (client.session().unwrap(), client.session().unwrap());
    let plain = session.create_table("plain").unwrap();
    session.put(plain, b"target", b"plain").unwrap();
    load(&mut loader, &[b"a"], b"one");
    let (carts, prices) = (session.table("carts").unwrap(), session.table("prices").unwrap());
    let mut item = NewItem::new();
    item = item
        .bytes("note", b"hers")
        .link_with("price", prices, b"a", b"2 pieces")
        .link("plain", plain, b"target");
    item = item.expires_in(Duration::from_secs(3600)).flags(u32::MAX);
    session.put_item(carts, b"cart", &item).unwrap();
    let ends = session.get(carts, b"cart").unwrap().unwrap().expires().unwrap();
    let medium: Vec<u8> = (0..100_000u32).map(|byte| byte as u8).collect();
    let large: Vec<u8> = (0..3u32 << 20).map(|byte| (byte / 7) as u8).collect();
    session.put(carts, b"medium", &medium).unwrap();
    session.put(prices, b"large", &large).unwrap();
    for round in ["two", "three"] {
        let mut build = loader.build(DATASET, &tables()).unwrap();
        put_both(&mut build, &[b"a"], round.as_bytes());
        // Of the source, too.
        build.put(0, b"loaded", &large).unwrap();
        let built = build.finish().unwrap();
        assert_eq!((built.overlays, built.items), (3, 6));
        assert!(value(&mut session, carts, b"medium").unwrap() == medium);
        assert!(value(&mut session, prices, b"large").unwrap() == large);
        assert!(value(&mut session, carts, b"loaded").unwrap() == large);
        let cart = session.get(carts, b"cart").unwrap().unwrap();
        assert_eq!(cart.expires(), Some(ends), "no way and no clock makes it end at another time");
        assert_eq!((cart.bytes("note"), cart.flags()), (Some(&b"hers"[..]), u32::MAX));
        assert_eq!(cart.links("price").next().unwrap().bytes, b"2 pieces");
        let price = session.follow(&cart, "price").unwrap().unwrap();
        assert_eq!(price.value(), round.as_bytes());
        assert_eq!(session.follow(&cart, "plain").unwrap().unwrap().value(), b"plain");
    }
}

#[test]
fn tables_without_room_for_a_mark_are_no_overlays() {
    let run = RunDir::new();
    let (_server, client) = serve(&run, 1);
    let mut session = client.session().unwrap();
    let table = NewTable::new("numbers", TableKind::Inline).overlay(true);
    let error = session.build(DATASET, &[table]).err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
}

/// Writers who write by name, each with keys of its own, beside loads that come one after the other, some of
/// which are given up: each finds what it wrote last, always.
#[test]
fn nothing_that_was_written_is_lost_between_two_loads() {
    let _watchdog = watchdog("nothing lost");
    let loads = fewer(25);
    for (shards, fabric) in [(1, FabricChoice::Shm), (2, FabricChoice::Shm), (2, far())] {
        let run = RunDir::new();
        let (_server, client) = serve(&run, shards);
        let mut loader = client.session().unwrap();
        load(&mut loader, &[], b"none");
        let (over, writes) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..2u64)
                .map(|writer| {
                    let (client, over, writes) = (&client, &over, &writes);
                    scope.spawn(move || write(client, fabric, writer, over, writes))
                })
                .collect();
            let mut round = 0;
            // Writers that share their cores with others need their time.
            while round < loads || writes.load(Ordering::Relaxed) < loads {
                round += 1;
                let mut build = loader.build(DATASET, &tables()).unwrap();
                // Keys that no writer has; much of it, so that writers have time in between.
                for key in 0..300u64 {
                    build.put(0, format!("loaded:{key}").as_bytes(), &round.to_le_bytes()).unwrap();
                }
                if round % 5 == 4 {
                    drop(build);
                } else {
                    build.finish().unwrap();
                }
            }
            over.store(true, Ordering::Relaxed);
            writers.into_iter().for_each(|writer| writer.join().unwrap());
        });
        // A reader who was not there sees the last of it.
        let mut session = client.session().unwrap();
        let carts = session.table("carts").unwrap();
        assert!(session.get(carts, b"writer:0:count").unwrap().is_some());
    }
}

/// Writes and deletes own keys, and looks at each of them again and again.
fn write(client: &Client, fabric: FabricChoice, writer: u64, over: &AtomicBool, writes: &AtomicU64) {
    const KEYS: u64 = 24;
    let mut session = session_over(fabric, client, patient());
    let tables = KINDS.map(|(name, _)| session.table(name).unwrap());
    let key = |key: u64| format!("writer:{writer}:{key}").into_bytes();
    let mut random = Random(writer);
    let mut known = vec![None; 2 * KEYS as usize];
    let mut count = 0u64;
    while !over.load(Ordering::Relaxed) {
        count += 1;
        writes.fetch_add(1, Ordering::Relaxed);
        let (table, number) = (random.below(2), random.below(KEYS));
        let (handle, slot) = (tables[table as usize], (table * KEYS + number) as usize);
        let text = count.to_le_bytes();
        match random.below(5) {
            0 => {
                let was_there = session.delete(handle, &key(number)).unwrap();
                assert_eq!(was_there, known[slot].is_some(), "writer {writer}, delete {count}");
                known[slot] = None;
            }
            1 => {
                let results = session.multi_put(handle, &[(&key(number), &text)]).unwrap();
                assert!(results.iter().all(Result::is_ok), "{results:?}");
                known[slot] = Some(count);
            }
            2 => {
                // Versions change with the generation.
                let version = session.get(handle, &key(number)).unwrap().map(|item| item.version());
                let set = session.compare_and_set(handle, &key(number), version, &text).unwrap();
                if matches!(set, CompareAndSet::Done(_)) {
                    known[slot] = Some(count);
                }
            }
            _ => {
                let mut item = NewItem::new();
                item = item.bytes("", &text).bytes("more", b"more");
                session.put_item(handle, &key(number), &item).unwrap();
                known[slot] = Some(count);
            }
        }
        let (table, number) = (random.below(2), random.below(KEYS));
        let wanted = known[(table * KEYS + number) as usize];
        let item = session.get(tables[table as usize], &key(number)).unwrap();
        let found = item.map(|item| u64::from_le_bytes(item.value().try_into().unwrap()));
        assert_eq!(found, wanted, "writer {writer}, write {count}: key {number}, {fabric:?}");
    }
    session.put(tables[0], format!("writer:{writer}:count").as_bytes(), &count.to_le_bytes()).unwrap();
}
