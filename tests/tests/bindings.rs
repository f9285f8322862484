//! What bindings of other languages stand on: parts of values, gets that never wait, plain arrays, scans that
//! hold no borrow, numbers of the caller's own, and sessions that a child inherits.

use std::time::{Duration, Instant, SystemTime};

use kelix::{
    Completion, ErrorKind, FabricChoice, Item, Name, NewItem, Outcome, Path, Rows, Scan, Session,
    SessionOptions, Table, TableKind, TryGet, Values, Version,
};
use kelix_tests::process::{Process, ServerProcess, ServerProgram};
use kelix_tests::{Random, RunDir, fabrics, seeds, session_over, until, watchdog};

fn server(run: &RunDir) -> ServerProcess {
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    ServerProgram { program, directory: run.path(), shards: 2, memory_bytes: 256 << 20, take_over: false }
        .serve()
}

fn open(server: &ServerProcess, fabric: FabricChoice) -> Session {
    session_over(fabric, &server.client(), SessionOptions::default())
}

/// Bytes of which each tells where it stands.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect()
}

/// The item with attributes, and the others with these lengths: in an item, as long as one can be, in pages.
const LENGTHS: [usize; 7] = [0, 1, 100, 3_000, 70_001, 1 << 20, (4 << 20) + 5];

#[test]
fn ranges_are_parts_of_the_whole() {
    let _watchdog = watchdog("ranges");
    for seed in seeds(1) {
        let mut random = Random(seed);
        for fabric in fabrics() {
            let run = RunDir::new();
            let server = server(&run);
            let mut session = open(&server, fabric);
            for kind in [TableKind::Hash, TableKind::Strings] {
                let table = session.create_table_of(kind, &format!("{kind:?}")).unwrap();
                for bytes in LENGTHS {
                    session.put(table, &format!("{bytes}"), &pattern(bytes)).unwrap();
                    // The value is the attribute without a name, in a section that is as long.
                    let item = NewItem::new().bytes("a", &[9; 77]).bytes("", &pattern(bytes));
                    session.put_item(table, &format!("{bytes} with attributes"), &item).unwrap();
                }
                for (path, round) in [Path::Auto, Path::Index, Path::Message, Path::Pointer].iter().zip(0..) {
                    session.set_path(*path);
                    for (bytes, name) in LENGTHS.iter().flat_map(|bytes| {
                        [(*bytes, format!("{bytes}")), (*bytes, format!("{bytes} with attributes"))]
                    }) {
                        let what = format!("seed {seed}, {fabric:?}, {kind:?}, {path:?}, {name}, {round}");
                        check_ranges(&mut session, table, (&name, bytes), &mut random, &what);
                        let none = session.get_range_into(table, b"none", 3, &mut [0; 8]).unwrap();
                        assert_eq!(none, None, "{what}");
                    }
                }
                session.set_path(Path::Auto);
            }
        }
    }
}

fn check_ranges(
    session: &mut Session,
    table: Table,
    (key, bytes): (&str, usize),
    random: &mut Random,
    what: &str,
) {
    let whole = pattern(bytes);
    let version = session.get(table, key).unwrap().expect("it is there").version();
    for from in [0, random.below(bytes as u64 + 1), bytes as u64, bytes as u64 + 9, u64::MAX] {
        for room in [0, 1, 8, random.below(100) as usize, random.below(300_000) as usize] {
            let mut buffer = vec![0xEE; room];
            let part = session.get_range_into(table, key, from, &mut buffer).unwrap().expect("it is there");
            let start = usize::try_from(from).unwrap_or(usize::MAX).min(bytes);
            let wanted = &whole[start..bytes.min(start.saturating_add(room))];
            let what = format!("{what}: {room} bytes from {from}");
            assert_eq!(
                (part.copied, part.value_bytes, part.version),
                (wanted.len(), bytes, version),
                "{what}"
            );
            assert!(buffer[..part.copied] == *wanted, "{what}");
            assert!(buffer[part.copied..].iter().all(|byte| *byte == 0xEE), "{what}: written behind the end");
        }
    }
}

#[test]
fn of_a_large_value_only_the_part_is_read() {
    let _watchdog = watchdog("what ranges read");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        let mut session = open(&server, fabric);
        let table = session.create_table("t").unwrap();
        session.put(table, b"chunk", &pattern(4 << 20)).unwrap();
        let mut buffer = vec![0; 64 << 10];
        session.get_range_into(table, b"chunk", 0, &mut buffer).unwrap();
        let before = session.cost();
        for at in 0..16 {
            let part = session.get_range_into(table, b"chunk", at * 200_000, &mut buffer).unwrap();
            assert_eq!(part.map(|part| part.copied), Some(64 << 10));
        }
        let cost = session.cost().since(before);
        assert!(cost.read_bytes < 16 * (66 << 10) && cost.messages == 0, "{fabric:?}: {cost:?}");
    }
}

/// Each version of the value has one byte all over. A part with two of them was put together.
#[test]
fn a_part_is_of_one_version() {
    let _watchdog = watchdog("parts under a writer");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        let mut session = open(&server, fabric);
        let table = session.create_table("t").unwrap();
        let mut writer = open(&server, fabric);
        let put = move |session: &mut Session, byte: u8| {
            session.put(table, b"k", &vec![byte; 300_000 + usize::from(byte) * 8]).unwrap();
        };
        put(&mut writer, 0);
        let writing = std::thread::spawn(move || (0..150).for_each(|byte| put(&mut writer, byte)));
        let mut buffer = vec![0; 200_000];
        let (mut parts, mut random) = (0, Random(7));
        while parts < 300 || !writing.is_finished() {
            let from = random.below(150_000);
            let part =
                session.get_range_into(table, b"k", from, &mut buffer).unwrap().expect("never deleted");
            let byte = buffer[0];
            assert!(buffer[..part.copied].iter().all(|other| *other == byte), "{fabric:?}: two versions");
            assert_eq!(part.value_bytes, 300_000 + usize::from(byte) * 8, "{fabric:?}");
            parts += 1;
        }
        writing.join().expect("a writer");
    }
}

#[test]
fn a_get_that_never_waits_says_so() {
    let _watchdog = watchdog("gets that never wait");
    let run = RunDir::new();
    let server = server(&run);
    let mut session = open(&server, FabricChoice::Shm);
    let kinds = [TableKind::Hash, TableKind::Strings, TableKind::Numbers, TableKind::Inline];
    let tables = kinds.map(|kind| session.create_table_of(kind, &format!("{kind:?}")).unwrap());
    for table in tables {
        for key in 0..500u64 {
            session.put(table, key, &key.to_le_bytes()).unwrap();
        }
        // Models and pages become known.
        (0..500u64).for_each(|key| assert!(session.get_into(table, key, &mut [0; 8]).unwrap().is_some()));
    }
    // From here on nobody answers.
    server.process.stop_still();
    let (began, before) = (Instant::now(), session.cost().messages);
    let mut found = [0; 4];
    for (table, found) in tables.iter().zip(&mut found) {
        for key in 0..600u64 {
            let mut buffer = [0; 8];
            match session.try_get_into(*table, key, &mut buffer).unwrap() {
                TryGet::Found(8, _) => {
                    assert!(key < 500 && u64::from_le_bytes(buffer) == key, "{key}: {buffer:?}");
                    *found += 1;
                }
                TryGet::Absent => assert!(key >= 500 && table.kind().is_ordered(), "{key}"),
                TryGet::Found(..) => panic!("a value of another length"),
                // A look around is due: that of a server which stands still, and has nothing new, waits for
                // nobody.
                TryGet::WouldWait if key < 500 => {
                    assert!(session.get_into(*table, key, &mut buffer).unwrap().is_some());
                }
                TryGet::WouldWait => {}
            }
        }
    }
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(session.cost().messages, before, "a get that never waits asked the server");
    assert!(found.iter().all(|found| *found > 490), "{found:?}");
    let error = session.try_get_into(tables[0], 7u64, &mut [0; 7]).unwrap_err();
    assert_eq!((error.kind(), error.needed_bytes()), (ErrorKind::BufferTooSmall, Some(8)));
    server.process.go_on();
    // What it would have waited for is done by a get that may.
    let mut tries = 0;
    until("a look around is due", || {
        tries += 1;
        session.try_get_into(tables[0], 7u64, &mut [0; 8]).unwrap() == TryGet::WouldWait
    });
    assert!(tries < 2_000, "{tries}");
    session.get_into(tables[0], 7u64, &mut [0; 8]).unwrap();
    assert!(matches!(session.try_get_into(tables[0], 7u64, &mut [0; 8]).unwrap(), TryGet::Found(8, _)));
    for fabric in fabrics().into_iter().filter(|fabric| *fabric != FabricChoice::Shm) {
        let mut session = open(&server, fabric);
        let table = session.table("Hash").unwrap();
        session.get(table, 7u64).unwrap();
        assert_eq!(session.try_get_into(table, 7u64, &mut [0; 8]).unwrap(), TryGet::WouldWait);
    }
}

#[test]
fn errors_of_small_buffers_say_how_much_is_needed() {
    let _watchdog = watchdog("small buffers");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        let mut session = open(&server, fabric);
        let table = session.create_table("t").unwrap();
        for bytes in [9, 3_000, 500_000] {
            session.put(table, b"k", &vec![1; bytes]).unwrap();
            for path in [Path::Auto, Path::Message] {
                session.set_path(path);
                let error = session.get_into(table, b"k", &mut [0; 8]).unwrap_err();
                assert_eq!((error.kind(), error.needed_bytes()), (ErrorKind::BufferTooSmall, Some(bytes)));
            }
        }
    }
}

#[test]
fn an_item_is_read_into_another() {
    let _watchdog = watchdog("items into items");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        let mut session = open(&server, fabric);
        let table = session.create_table("t").unwrap();
        let large = pattern(400_000);
        session.put(table, b"plain", b"value").unwrap();
        session.put(table, b"large", &large).unwrap();
        let linked = NewItem::new().bytes("city", b"Ulm").link("next", table, b"plain").flags(5);
        session.put_item(table, b"linked", &linked).unwrap();
        let mut item = Item::default();
        assert!((item.key(), item.value(), item.flags()) == (b"", b"", 0));
        for _ in 0..3 {
            for key in ["plain", "large", "linked", "plain", "large"] {
                assert!(session.get_item_into(table, key, &mut item).unwrap());
                let same = session.get(table, key).unwrap().expect("it is there");
                assert!(
                    (item.key(), item.value(), item.version()) == (same.key(), same.value(), same.version())
                );
                assert!((item.attributes(), item.flags()) == (same.attributes(), same.flags()), "{key}");
            }
            assert!(session.get_item_into(table, b"linked", &mut item).unwrap());
            let next = session.follow(&item, "next").unwrap().expect("it is there");
            assert_eq!((item.bytes("city"), next.value()), (Some(&b"Ulm"[..]), &b"value"[..]));
            assert!(!session.get_item_into(table, b"none", &mut item).unwrap());
            assert_eq!(item.key(), b"linked", "an item stays when there is no other");
        }
    }
}

/// An item with all that arrays tell.
fn full(number: u64) -> NewItem {
    let item = NewItem::new().bytes("", format!("value {number}").as_bytes()).flags(number as u32);
    match number % 4 {
        0 => item,
        1 => item.expires_in(Duration::from_secs(1000)),
        2 => item.bytes("city", format!("city {number}").as_bytes()),
        _ => item.bytes("empty", b"").bytes("city", &vec![number as u8; 300]),
    }
}

fn ends_ns(item: &Item) -> u64 {
    let since = item.expires().map(|time| time.duration_since(SystemTime::UNIX_EPOCH).unwrap());
    since.map_or(0, |since| since.as_nanos() as u64)
}

#[test]
fn batches_and_scans_are_plain_arrays() {
    let _watchdog = watchdog("plain arrays");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        let mut session = open(&server, fabric);
        for kind in [TableKind::Hash, TableKind::Numbers] {
            let table = session.create_table_of(kind, &format!("{kind:?}")).unwrap();
            for number in 0..700u64 {
                session.put_item(table, number, &full(number)).unwrap();
            }
            session.put(table, 700u64, &pattern(100_000)).unwrap();
            let keys: Vec<[u8; 8]> = (0..800u64).map(u64::to_be_bytes).collect();
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            let items = session.multi_get(table, &keys).unwrap();
            let mut values = Values::new();
            session.multi_get_into(table, &keys, &mut values).unwrap();
            assert_eq!((values.entries().len(), items.len()), (800, 800));
            for (entry, item) in values.entries().iter().zip(&items) {
                let Some(item) = item else {
                    assert_eq!(*entry, kelix::ValueEntry::ABSENT);
                    continue;
                };
                assert!(values.data()[entry.start as usize..][..entry.bytes as usize] == *item.value());
                let told = (Version(entry.version), entry.ends_ns, entry.flags);
                assert_eq!(told, (item.version(), ends_ns(item), item.flags()));
            }
            check_pages(&mut session, table, &format!("{fabric:?}, {kind:?}"));
        }
        let inline = session.create_table_of(TableKind::Inline, "inline").unwrap();
        for key in 0..1000u64 {
            session.put(inline, key, &(key * 3).to_le_bytes()).unwrap();
        }
        let mut rows = Rows::with_attributes(&["city"]);
        session.scan_into(inline, &Scan::all(), &mut rows).unwrap();
        assert!(rows.pairs().iter().zip(0..).all(|(pair, key)| *pair == [u64::swap_bytes(key), key * 3]));
        assert!(rows.len() == 1000 && rows.entries().is_empty() && rows.attribute(7, 0).is_none());
    }
}

/// Pages of all sizes bring what a scan brings that borrows its session, while that does something else in
/// between.
fn check_pages(session: &mut Session, table: Table, what: &str) {
    let items: Vec<Item> = session.scan(table, &Scan::all()).unwrap().map(Result::unwrap).collect();
    for most in [1, 7, 300, 100_000] {
        let mut rows = Rows::with_attributes(&["city", "", "no such name", "empty"]);
        let mut scan = session.open_scan(table, &Scan::all()).unwrap();
        let (mut seen, mut more) = (0, true);
        while more {
            more = scan.next_rows(session, &mut rows, most).unwrap();
            assert!(rows.len() as u64 <= most && (!rows.is_empty() || !more), "{what}: {} rows", rows.len());
            for row in 0..rows.len() {
                let item = &items[seen + row];
                let entry = &rows.entries()[row];
                assert!((rows.key(row), rows.value(row)) == (item.key(), item.value()), "{what}");
                let told = (Version(entry.version), entry.ends_ns, entry.flags);
                assert_eq!(told, (item.version(), ends_ns(item), item.flags()), "{what}");
                let attributes = [0, 1, 2, 3].map(|column| rows.attribute(row, column));
                let value = Some(item.value());
                assert_eq!(attributes, [item.bytes("city"), value, None, item.bytes("empty")], "{what}");
            }
            // Who takes the bytes has them all, and the next page brings its own.
            if seen % 2 == 0 {
                let shown = rows.data().to_vec();
                assert!(rows.take_data() == shown && rows.data().is_empty(), "{what}");
            }
            seen += rows.len();
            session.get(table, 3u64).unwrap();
        }
        assert_eq!(seen, items.len(), "{what}: pages of {most}");
    }
    // A scan goes on in pages where a scanner stood.
    let mut scanner = session.scan(table, &Scan::all()).unwrap();
    let first: Vec<Item> = (0..10).map(|_| scanner.next_item().unwrap().expect("more")).collect();
    let mut rest = scanner.pause();
    let (mut rows, mut seen) = (Rows::new(), first.len());
    // A page of none is one of one.
    assert!(rest.next_rows(session, &mut rows, 0).unwrap() && rows.key(0) == items[seen].key(), "{what}");
    assert_eq!(rows.len(), 1, "{what}");
    seen += 1;
    while rest.next_rows(session, &mut rows, 100).unwrap() || !rows.is_empty() {
        assert!((0..rows.len()).all(|row| rows.key(row) == items[seen + row].key()), "{what}");
        seen += rows.len();
        rows = Rows::new();
    }
    assert_eq!(seen, items.len(), "{what}");
}

/// A name is right in each table, whatever it was compared with before.
#[test]
fn names_remember_no_more_than_where_they_were_found() {
    let _watchdog = watchdog("names");
    let run = RunDir::new();
    let server = server(&run);
    let mut session = open(&server, FabricChoice::Shm);
    let tables = ["one", "two"].map(|name| session.create_table(name).unwrap());
    let orders = [["a", "b", "c"], ["c", "b", "a"]];
    for (table, order) in tables.iter().zip(orders) {
        let item = NewItem::new().bytes(order[0], b"").bytes(order[1], b"").bytes(order[2], b"");
        session.put_item(*table, b"first", &item).unwrap();
        let item = NewItem::new().bytes("a", b"of a").bytes("", b"value").link("to", *table, b"first");
        session.put_item(*table, b"k", &item).unwrap();
    }
    let names = ["a", "b", "c", "", "to", "none"].map(Name::new);
    for round in 0..4 {
        let item = session.get(tables[round % 2], b"k").unwrap().expect("it is there");
        for name in &names {
            assert_eq!(item.bytes_of(name), item.bytes(name.as_str()), "{name:?}");
            assert!(item.links_of(name).eq(item.links(name.as_str())), "{name:?}");
        }
    }
    let plain =
        session.put(tables[0], b"plain", b"v").and_then(|_| session.get(tables[0], b"plain")).unwrap();
    assert_eq!(plain.expect("it is there").bytes_of(&names[0]), None);
}

#[test]
fn submitted_operations_carry_their_callers_numbers_and_polls_keep_their_limit() {
    let _watchdog = watchdog("numbers and limits");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        let mut session = open(&server, fabric);
        let table = session.create_table("t").unwrap();
        let (mut completions, mut told) = (Vec::new(), Vec::new());
        for key in 0..500u64 {
            let ticket = session.submit_put(table, key, &key.to_le_bytes()).unwrap();
            session.set_number(ticket, 1000 + key);
        }
        let unnumbered = session.submit_get(table, 7u64).unwrap();
        while session.outstanding() > 0 {
            let count = session.poll_at_most(&mut completions, 3).unwrap();
            assert!(count <= 3 && completions.len() == count, "{fabric:?}: {count}");
            told.extend(completions.drain(..).map(|Completion { ticket, number, outcome }| {
                let is_put = matches!(outcome, Ok(Outcome::Written(_)));
                assert!(is_put || ticket == unnumbered, "{outcome:?}");
                number
            }));
        }
        told.sort();
        assert!(told.len() == 501 && told[0] == 0 && told[1..].iter().copied().eq(1000..1500), "{fabric:?}");
        // What has ended when it is submitted, as reads along links do, has its number as well.
        let item = NewItem::new().link("next", table, 7u64);
        session.put_item(table, 9999u64, &item).unwrap();
        let item = session.get(table, 9999u64).unwrap().expect("it is there");
        let ticket = session.submit_follow(&item, "next").unwrap();
        session.set_number(ticket, 77);
        while session.outstanding() > 0 {
            session.poll(&mut completions).unwrap();
        }
        assert_eq!(completions.pop().map(|last| last.number), Some(77));
        let before = session.past_connections();
        session.reconnect().unwrap();
        assert!(session.past_connections() > before);
    }
}

/// A process forks with a session that works: the child is refused by it, opens one of its own, and goes; the
/// parent notices nothing of that.
#[test]
fn a_forked_child_is_refused_and_leaves_nothing_behind() {
    let _watchdog = watchdog("forks");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        let address = match fabric {
            FabricChoice::Shm => run.path().display().to_string(),
            _ => kelix_tests::tcp_address(run.path()),
        };
        let program = env!("CARGO_BIN_EXE_kelix-test-client");
        let arguments = ["fork".to_string(), address, "t".to_string()];
        open(&server, fabric).create_table("t").unwrap();
        let mut client = Process::start(program, &arguments);
        client.expect("forked ok");
        assert!(client.end().success(), "{fabric:?}");
    }
}
