//! Hash tables as a whole, through the public interface: scans while keys come and go and subtables split and
//! merge, tables that are dropped.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use kelix::{ErrorKind, Item, NewItem, Rows, Scan, Session, Table};
use kelix_tests::process::{ServerProcess, ServerProgram};
use kelix_tests::{RunDir, fewer, shard_sum, statistics, until, watchdog};

fn server(run: &RunDir, shards: usize) -> ServerProcess {
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    ServerProgram { program, directory: run.path(), shards, memory_bytes: 512 << 20, take_over: false }
        .serve()
}

fn key(number: u64) -> Vec<u8> {
    format!("user{number}").into_bytes()
}

fn fill(session: &mut Session, table: Table, numbers: impl Iterator<Item = u64>) {
    let items: Vec<(Vec<u8>, [u8; 8])> = numbers.map(|number| (key(number), number.to_le_bytes())).collect();
    for items in items.chunks(1000) {
        let items: Vec<(&[u8], &[u8])> = items.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        session.multi_put(table, &items).unwrap().into_iter().for_each(|put| assert!(put.is_ok()));
    }
}

/// The numbers of the keys that a scan brought, none of them twice.
fn numbers(rows: &Rows) -> HashSet<u64> {
    let mut found = HashSet::new();
    for row in 0..rows.len() {
        let number = u64::from_le_bytes(rows.value(row).try_into().unwrap());
        assert_eq!(rows.key(row), key(number));
        assert!(found.insert(number), "{number} came twice");
    }
    found
}

#[test]
fn scans_bring_each_key_once_while_others_come_and_go() {
    let _watchdog = watchdog("unordered scans");
    let run = RunDir::new();
    let server = server(&run, 2);
    let mut writer = server.session();
    let table = writer.create_table("users").unwrap();
    let other = writer.create_table("others").unwrap();
    let stay = 1000;
    fill(&mut writer, table, (0..stay).map(|number| number * 8));
    fill(&mut writer, other, 0..3000);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (done, table_of) = (&done, "users");
        scope.spawn(move || {
            let table = writer.table(table_of).unwrap();
            for round in 0..fewer(8).max(2) {
                // So many come and go that subtables split and merge.
                let passing = (0..stay * 8).filter(|number| number % 8 != 0);
                if round % 2 == 0 {
                    fill(&mut writer, table, passing);
                } else {
                    passing.for_each(|number| assert!(writer.delete(table, &key(number)).unwrap()));
                }
                fill(&mut writer, table, (0..stay).map(|number| number * 8));
            }
            done.store(true, Ordering::SeqCst);
        });
        let mut sessions = [server.session(), server.far_session_by(kelix::Path::Auto)];
        let mut rows = Rows::new();
        let mut scans = 0;
        while !done.load(Ordering::SeqCst) || scans < 4 {
            let session = &mut sessions[scans % 2];
            let table = session.table("users").unwrap();
            session.scan_into(table, &Scan::all(), &mut rows).unwrap();
            let found = numbers(&rows);
            assert_eq!(found.iter().filter(|number| *number % 8 == 0).count() as u64, stay, "scan {scans}");
            scans += 1;
        }
        let [session, _] = &mut sessions;
        assert_eq!(session.count(table, &Scan::all()).unwrap(), stay);
        assert_eq!(session.estimate(table, &Scan::all()).unwrap(), stay);
        assert_eq!(session.count(other, &Scan::all()).unwrap(), 3000);
        assert_eq!(session.count(other, &Scan::all().limit(10)).unwrap(), 10);
    });
}

/// Items that do not fit one message, and one that fits none.
#[test]
fn items_of_any_size_are_scanned() {
    let run = RunDir::new();
    let server = server(&run, 1);
    let mut session = server.session();
    let table = session.create_table("things").unwrap();
    let size = |number: u64| 1 + number as usize * 7919 % (300 << 10);
    for number in 0..200 {
        session.put(table, &key(number), &vec![number as u8; size(number)]).unwrap();
    }
    session.put(table, b"large", &vec![9; 3 << 20]).unwrap();
    // Set aside after each item, a scan holds no borrow of its session.
    let mut items: Vec<Item> = Vec::new();
    let mut paused = session.scan(table, &Scan::all()).unwrap().pause();
    loop {
        let mut scanner = paused.resume(&mut session).unwrap();
        let item = scanner.next_item().unwrap();
        paused = scanner.pause();
        let Some(item) = item else { break };
        assert!(session.get(table, item.key()).unwrap().is_some());
        items.push(item);
    }
    assert_eq!(items.len(), 201);
    for item in items {
        match std::str::from_utf8(item.key()).unwrap().strip_prefix("user") {
            Some(number) => {
                let number: u64 = number.parse().unwrap();
                assert_eq!(item.value(), vec![number as u8; size(number)]);
            }
            None => assert!(item.value() == vec![9; 3 << 20]),
        }
    }
}

#[test]
fn a_hash_table_has_no_ranges() {
    let run = RunDir::new();
    let server = server(&run, 1);
    let mut session = server.session();
    let table = session.create_table("things").unwrap();
    for scan in
        [Scan::prefix(b"a"), Scan::all().range(b"a"..), Scan::all().range(..=b"b"), Scan::all().backwards()]
    {
        let error = session.scan(table, &scan).err().expect("no range");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    assert!(session.scan(table, &Scan::all()).unwrap().next().is_none());
}

#[test]
fn a_table_that_is_dropped_is_gone_and_its_memory_comes_back() {
    let _watchdog = watchdog("dropped tables");
    let run = RunDir::new();
    let server = server(&run, 2);
    let mut session = server.session();
    let mut other = server.session();
    for round in 0..3 {
        for name in ["users", "others"] {
            let table = session.create_table(name).unwrap();
            fill(&mut session, table, 0..20_000);
            let mut item = NewItem::new();
            item = item.bytes("of", name.as_bytes());
            session.put_item(table, b"attributed", &item).unwrap();
        }
        let (users, others) = (session.table("users").unwrap(), session.table("others").unwrap());
        assert_eq!(session.attribute_names(others).unwrap(), ["of"]);
        let users_of_other = other.table("users").unwrap();
        assert!(session.drop_table("users").unwrap(), "round {round}");
        assert!(!session.drop_table("users").unwrap());
        assert_eq!(session.table("users").unwrap_err().kind(), ErrorKind::NoSuchTable);
        assert_eq!(session.tables().unwrap(), ["others"]);
        // Another shard hears of it later, and what it took goes with the rest.
        until("puts are refused", || match other.put(users_of_other, b"late", b"1") {
            Ok(_) => false,
            Err(error) => error.kind() == ErrorKind::ViewExpired,
        });
        assert_eq!(session.put(users, b"late", b"1").unwrap_err().kind(), ErrorKind::NoSuchTable);
        // Those of a table that is made again are others.
        let again = session.create_table("users").unwrap();
        assert_ne!(again.id(), users.id());
        assert_eq!(session.attribute_names(again).unwrap(), Vec::<String>::new());
        assert_eq!(session.count(again, &Scan::all()).unwrap(), 0);
        until("what was in it has gone", || shard_sum(&statistics(&server.client()), "items") < 20_100);
        assert_eq!(session.count(others, &Scan::all()).unwrap(), 20_001);
        assert!(session.drop_table("users").unwrap() && session.drop_table("others").unwrap());
    }
}
