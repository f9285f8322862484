//! Sessions on a mirror: a primary and a mirror as processes. The mirror is stopped where it is to be behind
//! for certain, and either of them is killed.
//!
//! The file is long because each test has its own pair of servers and looks at them by the same few helpers.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use kelix::{
    Client, CompareAndSet, Completion, Credentials, ErrorKind, Frontier, Item, NewItem, NewTable, Outcome,
    Path, Rows, Scan, Session, SessionOptions, Table, TableKind, Values,
};
use kelix_tests::process::{Process, ServerProcess, ServerProgram, patient};
use kelix_tests::{RunDir, until, watchdog};

const PROGRAM: &str = env!("CARGO_BIN_EXE_kelix-test-server");

struct Pair {
    primary: ServerProcess,
    mirror: ServerProcess,
    runs: [RunDir; 2],
    shards: usize,
    options: Vec<String>,
}

fn launch(run: &RunDir, shards: usize, options: &[String]) -> ServerProcess {
    let program = ServerProgram {
        program: PROGRAM,
        directory: run.path(),
        shards,
        memory_bytes: 256 << 20,
        take_over: false,
    };
    let arguments = [program.arguments(), options.to_vec()].concat();
    program.serving(Process::start(PROGRAM, &arguments))
}

impl Pair {
    fn new(shards: usize, options: &[&str], of_mirror: &[&str]) -> Pair {
        let runs = [RunDir::new(), RunDir::new()];
        let options: Vec<String> = options.iter().map(|option| option.to_string()).collect();
        let primary = launch(&runs[0], shards, &options);
        let mirror = format!("mirror-of={}", primary.tcp_address());
        let of_mirror: Vec<String> =
            [&mirror[..]].iter().chain(of_mirror).map(|option| option.to_string()).collect();
        let mirror = launch(&runs[1], shards, &of_mirror);
        Pair { primary, mirror, runs, shards, options: of_mirror }
    }

    fn client(&self) -> Client {
        Client::connect(self.runs[1].path()).unwrap()
    }

    fn session(&self, options: SessionOptions) -> Session {
        self.client().session_with(options.private_caches(true)).unwrap()
    }

    fn start_mirror(&mut self) {
        self.mirror = launch(&self.runs[1], self.shards, &self.options);
    }
}

fn poll_all(session: &mut Session, count: usize) -> Vec<Completion> {
    let (mut completions, began) = (Vec::new(), Instant::now());
    while completions.len() < count {
        session.poll(&mut completions).unwrap();
        assert!(began.elapsed() < Duration::from_secs(60));
    }
    completions.sort_by_key(|completion| completion.ticket);
    completions
}

fn value_of(session: &mut Session, table: Table, key: &str) -> Option<Vec<u8>> {
    session.get(table, key).unwrap().map(|item| item.value().to_vec())
}

/// Waits until the mirror has what a session has seen, and the session reads there again.
fn until_read_there(session: &mut Session, table: Table, key: &str) {
    until("the mirror is read again", || {
        let before = session.cost();
        session.get(table, key).unwrap().unwrap();
        session.cost().since(before).messages == 0
    });
}

fn key_of(item: kelix::Result<Item>) -> Vec<u8> {
    item.unwrap().key().to_vec()
}

#[test]
fn a_session_finds_its_own_writes_whatever_the_mirror_has() {
    let _watchdog = watchdog("own writes");
    let pair = Pair::new(3, &[], &[]);
    let mut session = pair.session(patient());
    assert!(session.is_mirror());
    assert_eq!(session.primary(), Some(&pair.primary.tcp_address()[..]));
    until("the mirror has heard", || session.lag().is_some_and(|lag| lag < Duration::from_secs(5)));
    let table = session.create_table("t").unwrap();
    let ordered = session.create_table_of(TableKind::Inline, "o").unwrap();
    let strings = session.create_table_of(TableKind::Strings, "s").unwrap();
    // A mirror that stands still is not asked, but by whoever looks in a shard of which it has everything for
    // what is not there: names of attributes, say.
    session.put(table, "target", b"0").unwrap();
    session.put_item(table, "from", &NewItem::new().link("to", table, "target")).unwrap();
    until_read_there(&mut session, table, "from");
    for round in 0..60u64 {
        if round % 3 == 0 {
            // A session asks now and then for memory that is new, and waits for a server that stands still.
            for _ in 0..2000 {
                assert!(session.get(table, "from").unwrap().is_some());
            }
            pair.mirror.process.stop_still();
        }
        let bytes = round.to_le_bytes();
        let key = format!("key{round}");
        let version = session.put(table, &key, &bytes).unwrap();
        assert_eq!(value_of(&mut session, table, &key).as_deref(), Some(&bytes[..]));
        let missed = session.compare_and_set(table, &key, None, b"no").unwrap();
        assert_eq!(missed, CompareAndSet::Mismatch(Some(version)));
        assert_eq!(session.get(table, &key).unwrap().unwrap().version(), version);
        let mut buffer = [0; 8];
        session.put(table, "target", &bytes).unwrap();
        assert_eq!(session.get_into(table, "target", &mut buffer).unwrap().unwrap().0, 8);
        assert_eq!(buffer, bytes);
        let item = NewItem::new().link("to", table, "target").link("to", table, &key);
        session.put_item(table, "from", &item).unwrap();
        let from = session.get(table, "from").unwrap().unwrap();
        assert_eq!(session.follow(&from, "to").unwrap().unwrap().value(), bytes);
        let both = session.follow_all(&from, "to").unwrap();
        assert!(both.iter().all(|item| item.as_ref().unwrap().value() == bytes));
        let mut frontier = Frontier::new();
        frontier.add_links(&from, "to", |_| true);
        let visit = |_: usize, item: Option<&Item>| {
            assert_eq!(item.unwrap().value(), bytes);
            ControlFlow::Continue(())
        };
        session.visit(&frontier, visit).unwrap();
        assert!(session.delete(table, &key).unwrap());
        assert!(session.get(table, &key).unwrap().is_none());
        session.put(ordered, round, &bytes).unwrap();
        session.put(strings, &key, &bytes).unwrap();
        assert_eq!(session.get(ordered, round).unwrap().unwrap().value(), bytes);
        assert!(session.delete(strings, "nothing").is_ok_and(|was| !was));
        let numbers: Vec<_> = session.scan(ordered, &Scan::all()).unwrap().map(key_of).collect();
        assert_eq!(numbers, (0..=round).map(|n| n.to_be_bytes().to_vec()).collect::<Vec<_>>());
        assert_eq!(session.scan(strings, &Scan::all().backwards()).unwrap().count(), round as usize + 1);
        assert_eq!(session.last(ordered).unwrap().unwrap().key(), round.to_be_bytes());
        assert_eq!(session.count(strings, &Scan::all()).unwrap(), round + 1);
        session.submit_put(table, "submitted", &bytes).unwrap();
        let keys = [&b"submitted"[..], b"target", key.as_bytes()];
        poll_all(&mut session, 1);
        let mut values = Values::default();
        session.multi_get_into(table, &keys, &mut values).unwrap();
        assert_eq!((values.get(0), values.get(1), values.get(2)), (Some(&bytes[..]), Some(&bytes[..]), None));
        session.submit_get(table, "submitted").unwrap();
        session.submit_get(table, &key).unwrap();
        session.submit_scan(ordered, &Scan::all()).unwrap();
        let outcomes = poll_all(&mut session, 3);
        let is_it = |outcome: &Completion, wanted: Option<&[u8]>| match &outcome.outcome {
            Ok(Outcome::Item(item)) => assert_eq!(item.as_ref().map(Item::value), wanted),
            other => panic!("{other:?}"),
        };
        is_it(&outcomes[0], Some(&bytes));
        is_it(&outcomes[1], None);
        let Ok(Outcome::Page(page)) = &outcomes[2].outcome else { panic!("{:?}", outcomes[2]) };
        assert_eq!(page.items().len(), round as usize + 1);
        if round % 3 == 0 {
            pair.mirror.process.go_on();
        }
        if round % 10 == 0 {
            let large = vec![round as u8; 40_000 << (round / 10)];
            session.put(table, "large", &large).unwrap();
            assert_eq!(session.get(table, "large").unwrap().unwrap().value(), large);
            until_read_there(&mut session, table, "large");
            assert_eq!(session.get(table, "large").unwrap().unwrap().value(), large);
        }
    }
    until_read_there(&mut session, table, "target");
    // What others write comes by itself.
    let mut other = pair.primary.session();
    let there = other.table("t").unwrap();
    for round in 0..50u32 {
        other.put(there, "news", &round.to_le_bytes()).unwrap();
        until("the news are there", || {
            value_of(&mut session, table, "news").is_some_and(|value| value == round.to_le_bytes())
        });
    }
    let before = session.cost();
    for _ in 0..100 {
        assert!(value_of(&mut session, table, "news").is_some());
    }
    assert_eq!(session.cost().since(before).messages, 0, "reads are one-sided");
    assert!(session.get(table, "nowhere").unwrap().is_none());
    assert!(session.drop_table("t").unwrap());
    assert_eq!(session.table("t").unwrap_err().kind(), ErrorKind::NoSuchTable);
}

/// Another session's view of the same keys never goes back, whether it reads here or there.
#[test]
fn reads_do_not_go_back() {
    let _watchdog = watchdog("monotonic reads");
    let pair = Pair::new(2, &[], &[]);
    let mut writer = pair.session(patient());
    let table = writer.create_table("t").unwrap();
    writer.put(table, "k", &0u64.to_le_bytes()).unwrap();
    std::thread::scope(|scope| {
        let writes = scope.spawn(|| {
            let began = Instant::now();
            let mut number = 0u64;
            while began.elapsed() < Duration::from_secs(3) {
                number += 1;
                writer.put(table, "k", &number.to_le_bytes()).unwrap();
            }
            number
        });
        let mut reader = pair.session(patient());
        until("the mirror has the table", || reader.table("t").is_ok());
        let own = reader.table("t").unwrap();
        until("the mirror has the key", || reader.get(own, "k").is_ok_and(|item| item.is_some()));
        let (mut last, mut round) = (0, 0u64);
        while !writes.is_finished() {
            round += 1;
            if round % 20 == 0 {
                reader.put(own, format!("other{}", round % 64).as_bytes(), b"").unwrap();
            }
            let value = reader.get(own, "k").unwrap().unwrap();
            let now = u64::from_le_bytes(value.value().try_into().unwrap());
            assert!(now >= last, "{now} after {last}");
            last = now;
        }
        let wrote = writes.join().unwrap();
        until("the last is there", || {
            value_of(&mut reader, own, "k").is_some_and(|value| value == wrote.to_le_bytes())
        });
    });
}

/// Sessions of a process share pointers, and one that writes at the primary knows where an item stands before
/// the mirror has it. Nobody READs there: the get of a session that finds the pointer costs no more than that of
/// one without any.
#[test]
fn a_pointer_to_what_the_mirror_does_not_have_is_not_followed() {
    let _watchdog = watchdog("pointers of the future");
    let pair = Pair::new(1, &[], &[]);
    let shared = || pair.client().session_with(patient().path(Path::Pointer)).unwrap();
    let (mut writer, mut reader, mut alone) = (shared(), shared(), pair.session(patient().path(Path::Index)));
    let table = writer.create_table("t").unwrap();
    let keys: Vec<String> = (0..50).map(|key| format!("key {key}")).collect();
    let put_all = |writer: &mut Session, value: &[u8]| {
        for key in &keys {
            writer.put(table, key, value).unwrap();
        }
    };
    put_all(&mut writer, b"old");
    until_read_there(&mut writer, table, &keys[49]);
    let reads_of = |session: &mut Session| {
        let before = session.cost();
        for key in &keys {
            session.submit_get(table, key).unwrap();
        }
        for completion in poll_all(session, keys.len()) {
            let Outcome::Item(Some(item)) = completion.outcome.unwrap() else { panic!("an item") };
            assert_eq!(item.value(), b"old");
        }
        let cost = session.cost().since(before);
        assert_eq!(cost.messages, 0);
        cost.reads
    };
    let by_index = reads_of(&mut alone);
    assert!(reads_of(&mut reader) < by_index, "pointers to what the mirror has are followed");
    pair.mirror.process.stop_still();
    put_all(&mut writer, b"new");
    assert_eq!(reads_of(&mut reader), by_index);
    pair.mirror.process.go_on();
}

#[test]
fn what_a_session_builds_it_reads() {
    let _watchdog = watchdog("builds on a mirror");
    let pair = Pair::new(2, &[], &[]);
    let mut session = pair.session(patient());
    for generation in 0..6u64 {
        if generation % 2 == 1 {
            pair.mirror.process.stop_still();
        }
        let tables =
            [NewTable::new("people", TableKind::Hash).overlay(true), NewTable::new("n", TableKind::Inline)];
        let mut build = session.build("set", &tables).unwrap();
        for number in 0..1000u64 {
            build.put(0, format!("p{number}").as_bytes(), &generation.to_le_bytes()).unwrap();
            build.put(1, number, &generation.to_le_bytes()).unwrap();
        }
        assert_eq!(build.finish().unwrap().overlays, generation.min(1));
        let people = session.table("people").unwrap();
        assert_eq!(value_of(&mut session, people, "p7").unwrap(), generation.to_le_bytes());
        // What was written beside it comes into the next generation.
        session.put(people, "beside", b"x").unwrap();
        let view = session.view("set").unwrap();
        let (viewed, numbers) = (view.table("people").unwrap(), view.table("n").unwrap());
        assert_eq!(value_of(&mut session, viewed, "p7").unwrap(), generation.to_le_bytes());
        assert_eq!(value_of(&mut session, viewed, "beside").unwrap(), b"x");
        assert_eq!(session.scan(numbers, &Scan::all()).unwrap().count(), 1000);
        if generation % 2 == 1 {
            pair.mirror.process.go_on();
        }
        until_read_there(&mut session, people, "p8");
        assert_eq!(value_of(&mut session, viewed, "p9").unwrap(), generation.to_le_bytes());
    }
    assert!(session.drop_dataset("set").unwrap());
    assert!(session.table("people").is_err());
}

/// Where a session reads the catalogue at the primary, since the mirror lacks what the session has changed there,
/// it finds there what is in force now, which is to be found whole on all shards.
#[test]
fn a_catalogue_that_is_ahead_is_ahead_of_no_shard() {
    const KEYS: u64 = 200;
    let _watchdog = watchdog("a catalogue that is ahead");
    let pair = Pair::new(2, &[], &[]);
    let mut builder = pair.primary.far_session(patient());
    let mut load = |generation: u64| {
        let mut build = builder.build("set", &[NewTable::new("people", TableKind::Hash)]).unwrap();
        for number in 0..KEYS {
            build.put(0, format!("p{number}").as_bytes(), &generation.to_le_bytes()).unwrap();
        }
        build.finish().unwrap();
    };
    load(0);
    let mut session = pair.session(patient().timeout(Duration::from_secs(10)));
    until("the mirror has the first generation", || session.table("people").is_ok());
    let people = session.table("people").unwrap();
    assert_eq!(value_of(&mut session, people, "p0").unwrap(), 0u64.to_le_bytes());
    pair.mirror.process.stop_still();
    load(1);
    session.create_table("other").unwrap();
    // Else names are known for a while.
    session.forget_names();
    let people = session.table("people").unwrap();
    for number in 0..KEYS {
        let value = value_of(&mut session, people, &format!("p{number}"));
        assert_eq!(value.unwrap(), 1u64.to_le_bytes(), "p{number}");
    }
    pair.mirror.process.go_on();
}

#[test]
fn writes_want_credentials_and_reads_do_not() {
    let _watchdog = watchdog("credentials");
    let pair = Pair::new(1, &["token=sesame"], &["token=sesame"]);
    let mut session = pair.session(patient());
    assert_eq!(session.tables().unwrap(), Vec::<String>::new());
    for wrong in [None, Some("mumble".to_string())] {
        let credentials = Credentials::default().token(wrong);
        let mut session =
            Client::connect_with(pair.runs[1].path(), credentials).unwrap().session_with(patient()).unwrap();
        let error = session.create_table("t").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains("--token-file"), "{error}");
        assert!(error.to_string().contains(&pair.primary.tcp_address()), "{error}");
    }
    let credentials = Credentials::default().token("sesame".to_string());
    let mut writer =
        Client::connect_with(pair.runs[1].path(), credentials).unwrap().session_with(patient()).unwrap();
    let table = writer.create_table("t").unwrap();
    writer.put(table, "k", b"v").unwrap();
    until("who may only read finds it", || {
        session.table("t").is_ok_and(|table| value_of(&mut session, table, "k").is_some())
    });
}

#[test]
fn reads_go_on_without_the_primary() {
    let _watchdog = watchdog("primary killed");
    let mut pair = Pair::new(2, &[], &[]);
    let address = pair.primary.tcp_address();
    let mut session = pair.session(patient());
    let mut patientless = pair.session(patient().max_lag(Duration::from_millis(500)));
    let table = session.create_table("t").unwrap();
    session.put(table, "k", b"v").unwrap();
    until_read_there(&mut session, table, "k");
    let near = patientless.table("t").unwrap();
    until("what is new enough is read", || patientless.get(near, "k").is_ok());
    pair.primary.process.kill();
    let error = session.put(table, "k", b"w").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let error = session.put(table, "k", b"w").unwrap_err();
    assert!(error.to_string().contains(&format!("this is a mirror of {address}")), "{error}");
    for _ in 0..100 {
        assert_eq!(value_of(&mut session, table, "k").unwrap(), b"v");
        assert!(session.get(table, "absent").unwrap().is_none());
    }
    until("it is too old for one", || patientless.get(near, "k").is_err());
    let error = patientless.get(near, "absent").unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("has not heard"), "{error}");
    assert!(session.lag().unwrap() > Duration::from_millis(400));
    // Another life of the store, which the mirror has to follow first.
    pair.primary = launch(&pair.runs[0], 2, &[format!("listen={address}")]);
    until("the session writes to the new primary", || match session.create_table("u") {
        Ok(table) => session.put(table, "k", b"2").is_ok(),
        Err(error) => {
            assert!(error.kind() != ErrorKind::Denied, "{error}");
            false
        }
    });
    let table = session.table("u").unwrap();
    assert_eq!(value_of(&mut session, table, "k").unwrap(), b"2");
    until_read_there(&mut session, table, "k");
    // Nothing that is absent in the memory of the life before says that this is over.
    until("the other one finds the next life", || {
        patientless.table("absent").unwrap_err().kind() == ErrorKind::NoSuchTable
    });
}

#[test]
fn writes_go_on_without_the_mirror() {
    let _watchdog = watchdog("mirror killed");
    let mut pair = Pair::new(2, &[], &[]);
    for retry_for in [Duration::ZERO, Duration::from_secs(20)] {
        let mut session = pair.session(patient().retry_for(retry_for));
        let table = session.create_table("t").unwrap();
        session.put(table, "k", b"v").unwrap();
        session.put(table, "other", b"v").unwrap();
        until_read_there(&mut session, table, "k");
        pair.mirror.process.kill();
        assert_eq!(value_of(&mut session, table, "k").unwrap(), b"v");
        session.put(table, "k", b"w").unwrap();
        assert_eq!(value_of(&mut session, table, "k").unwrap(), b"w", "the mirror will never have it");
        pair.start_mirror();
        until("the session has gone over to the mirror", || {
            session.put(table, "other", b"x").unwrap();
            assert_eq!(value_of(&mut session, table, "other").unwrap(), b"x");
            !session.is_detached()
        });
        until_read_there(&mut session, table, "k");
        assert_eq!(value_of(&mut session, table, "k").unwrap(), b"w");
    }
}

/// A value that proves itself: a number, and what follows from it.
fn proof(number: u64) -> Vec<u8> {
    let words = (0..1 + number % 40).map(|word| number.wrapping_mul(word | 1));
    words.flat_map(u64::to_le_bytes).collect()
}

fn number_of(value: &[u8]) -> u64 {
    let number = value.first_chunk().map_or(0, |head| u64::from_le_bytes(*head));
    assert_eq!(value, proof(number), "a value that was never written");
    number
}

/// Gets each key of a table, whose number tells its key, too: no number is smaller than the last one that was
/// seen of the key.
fn never_back(reader: &mut Session, table: Table, last: &mut [u64]) {
    let keys = last.len() as u64;
    for (key, last) in (0..keys).zip(last) {
        let Some(item) = reader.get(table, key).unwrap() else { continue };
        let now = number_of(item.value());
        assert!(now >= *last && now % keys == key, "{now} after {last}");
        *last = now;
    }
}

/// How a mirror has what there is once more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Return {
    /// By a copy, into images that take the place of those before.
    Copy,
    /// By the primary's log, where it is.
    Log,
}

/// A mirror that stands still while much is written is let go, and copies anew beside its readers: what these
/// see is never mixed, and never goes back, and in the end it is what there is.
#[test]
fn a_mirror_that_is_let_go_copies_anew_beside_its_readers() {
    mirror_is_let_go(&[], Return::Copy);
}

/// Where the primary has a log, a mirror goes on with that: none of its readers notices.
#[test]
fn a_mirror_that_is_let_go_catches_up_by_the_log() {
    for durable in [&[][..], &["durable=commit"]] {
        let log = RunDir::new();
        let wal = format!("wal={}", log.path().display());
        mirror_is_let_go(&[&[&wal[..]], durable].concat(), Return::Log);
    }
}

fn mirror_is_let_go(options: &[&str], wanted: Return) {
    const KEYS: u64 = 64;
    let _watchdog = watchdog("mirror let go");
    let pair = Pair::new(2, options, &[]);
    let mut writer = pair.primary.far_session(patient());
    let table = writer.create_table("t").unwrap();
    let ordered = writer.create_table_of(TableKind::Numbers, "ordered").unwrap();
    let large = writer.create_table("large").unwrap();
    let put = |writer: &mut Session, number: u64| {
        let key = (number % KEYS).to_be_bytes();
        writer.put(table, &key, &proof(number)).unwrap();
        writer.put(ordered, &key, &proof(number)).unwrap();
    };
    (0..KEYS).for_each(|number| put(&mut writer, number));
    let mut reader = pair.session(patient());
    until("the mirror has the tables", || reader.table("ordered").is_ok());
    let tables = ["t", "ordered"].map(|name| reader.table(name).unwrap());
    let mut last = [[0; KEYS as usize]; 2];
    let mut look = |reader: &mut Session| {
        for (table, last) in tables.into_iter().zip(&mut last) {
            never_back(reader, table, last);
            let mut rows = Rows::new();
            reader.scan_into(table, &Scan::all(), &mut rows).unwrap();
            for row in 0..rows.len() {
                assert!(number_of(rows.value(row)) > 0 || rows.key(row) == [0; 8]);
            }
        }
    };
    let mut number = KEYS;
    for round in 0..3 {
        pair.mirror.process.stop_still();
        // More than the primary keeps for one that does not listen.
        let gone = || pair.primary.client().statistics().unwrap().mirrors.is_empty();
        while !gone() {
            for _ in 0..100 {
                put(&mut writer, number);
                writer.put(large, number % 8, &vec![number as u8; 200_000]).unwrap();
                number += 1;
            }
        }
        pair.mirror.process.go_on();
        let went_on = Instant::now();
        let is_renewed = || {
            let since = went_on.elapsed().as_secs_f64();
            pair.client().statistics().is_ok_and(|now| now.server.uptime_s < since)
        };
        until("the mirror follows again", || {
            put(&mut writer, number);
            number += 1;
            look(&mut reader);
            match wanted {
                Return::Copy => is_renewed(),
                Return::Log => !gone(),
            }
        });
        until("the mirror has what there is", || {
            let key = ((number - 1) % KEYS).to_be_bytes();
            let item = reader.get(tables[round % 2], &key).unwrap();
            look(&mut reader);
            item.is_some_and(|item| number_of(item.value()) == number - 1)
        });
        assert_eq!(is_renewed(), wanted == Return::Copy, "round {round}");
    }
}

/// A mirror follows another one: what is written at the root comes there by way of the first, whoever reads
/// there writes to the root, and knows how old all is.
#[test]
fn a_mirror_follows_a_mirror() {
    let _watchdog = watchdog("a mirror of a mirror");
    let mut pair = Pair::new(2, &[], &["listen=127.0.0.1:0"]);
    let (root, parent) = (pair.primary.tcp_address(), pair.mirror.tcp_address());
    let run = RunDir::new();
    let of_parent = [format!("mirror-of={parent}"), "listen=127.0.0.1:0".into()];
    let leaf = launch(&run, 2, &of_parent);
    let client = Client::connect(run.path()).unwrap();
    let mut session = client.session_with(patient().private_caches(true).retry_for(Duration::from_secs(20)));
    let session = session.as_mut().unwrap();
    assert_eq!((session.is_mirror(), session.primary()), (true, Some(&root[..])));
    let table = session.create_table("t").unwrap();
    let ordered = session.create_table_of(TableKind::Numbers, "ordered").unwrap();
    let write = |session: &mut Session, number: u64| {
        session.put(table, "k", &proof(number)).unwrap();
        session.put(ordered, number % 500, &proof(number)).unwrap();
        assert_eq!(number_of(&value_of(session, table, "k").unwrap()), number, "its own write");
    };
    (0..1000).for_each(|number| write(session, number));
    until_read_there(session, table, "k");
    assert_eq!(session.scan(ordered, &Scan::all()).unwrap().count(), 500);
    until("it has heard of the root", || session.lag().is_some_and(|lag| lag < Duration::from_secs(2)));
    let told = pair.client().statistics().unwrap().mirrors;
    assert_eq!(told.len(), 1, "the first one is followed: {told:?}");
    let far = Client::connect(&leaf.tcp_address()[..]).and_then(|client| client.session_with(patient()));
    assert!(far.err().expect("a mirror serves its host").to_string().contains("is a mirror"));
    // What the root tells no more grows old on all of them.
    pair.primary.process.stop_still();
    until("it grows old", || session.lag().is_some_and(|lag| lag > Duration::from_secs(1)));
    pair.primary.process.go_on();
    until("it is new again", || session.lag().is_some_and(|lag| lag < Duration::from_secs(1)));
    // Without the one between, what there was is read on; when it is there again, it is followed again.
    pair.mirror.process.kill();
    assert_eq!(number_of(&value_of(session, table, "k").unwrap()), 999);
    (1000..1100).for_each(|number| write(session, number));
    pair.options = vec![format!("mirror-of={root}"), format!("listen={parent}")];
    pair.start_mirror();
    until("it follows again", || {
        let before = session.cost();
        let last = number_of(&value_of(session, table, "k").unwrap());
        assert_eq!(last, 1099);
        session.cost().since(before).messages == 0
    });
    (1100..2000).for_each(|number| write(session, number));
    until_read_there(session, table, "k");
    assert_eq!(session.scan(ordered, &Scan::all()).unwrap().count(), 500);
}

/// A mirror that keeps what it applies begins with that: what was done since it is told by the primary's log,
/// and without a primary it shows what there was.
#[test]
fn a_mirror_begins_with_what_it_had() {
    let _watchdog = watchdog("a mirror's own log");
    let (logs, kept) = (RunDir::new(), RunDir::new());
    let wal = |directory: &RunDir| format!("wal={}", directory.path().display());
    let mut pair = Pair::new(2, &[&wal(&logs)], &[&wal(&kept)]);
    let address = pair.primary.tcp_address();
    let mut writer = pair.primary.far_session(patient());
    let table = writer.create_table("t").unwrap();
    let ordered = writer.create_table_of(TableKind::Numbers, "ordered").unwrap();
    let put = |writer: &mut Session, [table, ordered]: [Table; 2], number: u64| {
        writer.put(table, number % 100, &proof(number)).unwrap();
        writer.put(ordered, number % 500, &proof(number)).unwrap();
    };
    let tables = [table, ordered];
    let has = |pair: &Pair, number: u64| {
        let mut session = pair.session(patient());
        let Ok(table) = session.table("t") else { return false };
        let Ok(Some(item)) = session.get(table, number % 100) else { return false };
        number_of(item.value()) == number
    };
    let copies = |kept: &RunDir| {
        let names = std::fs::read_dir(kept.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_str().unwrap().starts_with("copy-")).count()
    };
    (0..2000).for_each(|number| put(&mut writer, tables, number));
    until("the mirror has them", || has(&pair, 1999));
    until("they are in a snapshot or in its log", || {
        let statistics = pair.client().statistics().unwrap();
        statistics.server.snapshots.is_some_and(|snapshots| snapshots.taken > 0)
    });
    for round in 1..4u64 {
        let first = round * 2000;
        match round {
            // Records may be lost that the log of the mirror did not have yet.
            1 | 2 => pair.mirror.process.kill(),
            _ => assert_eq!(pair.mirror.stop(), "stopped"),
        }
        (first..first + 2000).for_each(|number| put(&mut writer, tables, number));
        pair.start_mirror();
        until("it has what was done meanwhile", || has(&pair, first + 1999));
        let mirrors = pair.primary.client().statistics().unwrap().mirrors;
        assert_eq!(mirrors.len(), 1, "{mirrors:?}");
        assert_eq!(mirrors[0].copied_bytes, 0, "round {round}: it went on with its own: {mirrors:?}");
        assert_eq!(copies(&kept), 1);
    }
    // Without the primary it shows what there was.
    until("the last is in the mirror's log", || {
        let statistics = pair.client().statistics().unwrap();
        statistics.server.wal.is_some_and(|log| log.records >= 4000)
    });
    pair.primary.process.kill();
    pair.mirror.process.kill();
    pair.options.push("retry=0".into());
    pair.start_mirror();
    let mut session = pair.session(patient());
    let (near, near_ordered) = (session.table("t").unwrap(), session.table("ordered").unwrap());
    let last = number_of(session.get(near, 99).unwrap().unwrap().value());
    assert!(last == 7999, "{last}");
    assert_eq!(session.scan(near_ordered, &Scan::all()).unwrap().count(), 500);
    assert_eq!(session.lag(), None, "nobody knows how old it is");
    assert!(session.put(near, 1u64, b"w").is_err());
    pair.mirror.process.kill();
    pair.options.push("max-lag=500".into());
    pair.start_mirror();
    let mut session = pair.session(patient());
    let error = session.table("t").and_then(|table| session.get(table, 99u64)).unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("has not heard"), "{error}");
    pair.primary = launch(&pair.runs[0], 2, &[format!("listen={address}"), wal(&logs)]);
    let mut writer = pair.primary.far_session(patient());
    let tables = ["t", "ordered"].map(|name| writer.table(name).unwrap());
    until("it follows the next primary", || {
        put(&mut writer, tables, 8000);
        has(&pair, 8000)
    });
    loop {
        until("one copy is kept", || copies(&kept) == 1);
        pair.mirror.process.kill();
        // Another one may have been begun in this moment, which has nothing yet.
        if copies(&kept) == 1 {
            break;
        }
        pair.start_mirror();
    }
    // Where a server has gone on with a copy, that is no copy any more.
    let copy = std::fs::read_dir(kept.path()).unwrap().map(|entry| entry.unwrap().path());
    let copy = copy.into_iter().find(|path| path.is_dir()).unwrap();
    let run = RunDir::new();
    let mut server = launch(&run, 2, &[format!("wal={}", copy.display())]);
    let mut session = server.session();
    let own = session.table("t").unwrap();
    assert!(session.get(own, 0u64).unwrap().is_some());
    for number in 0..100u64 {
        session.put(own, number, b"its own").unwrap();
    }
    assert_eq!(server.stop(), "stopped");
    pair.start_mirror();
    until("it has what the primary has", || {
        put(&mut writer, tables, 9000);
        has(&pair, 9000)
    });
    let mut session = pair.session(patient());
    let own = session.table("t").unwrap();
    for number in 0..100u64 {
        let found = session.get(own, number).unwrap();
        assert_eq!(found.map(|item| number_of(item.value()) % 100), Some(number), "what the primary has");
    }
}

/// A primary that is started again goes on with its log, and its mirror with the memory that it has: readers
/// go over to another life between the two, in which numbers of dropped tables may be those of others, and
/// never see one table in the place of another, nor anything older than before.
#[test]
fn a_mirror_goes_on_with_the_next_server_of_a_log() {
    for (durable, killed) in [(&[][..], false), (&["durable=commit"], true)] {
        let log = RunDir::new();
        let wal = format!("wal={}", log.path().display());
        // The log of all servers is kept: each that is stopped makes a snapshot, and needs less of it.
        primary_is_started_again(&[&[&wal[..], "keep=20"], durable].concat(), killed);
    }
}

fn primary_is_started_again(options: &[&str], is_killed: bool) {
    const KEYS: u64 = 64;
    let _watchdog = watchdog("primary started again");
    let mut pair = Pair::new(2, options, &[]);
    let address = pair.primary.tcp_address();
    let again: Vec<String> =
        [&format!("listen={address}")[..]].iter().chain(options).map(|option| option.to_string()).collect();
    let mut writer = pair.primary.far_session(patient());
    let (mut table, mut ordered) =
        (writer.create_table("t").unwrap(), writer.create_table_of(TableKind::Numbers, "ordered").unwrap());
    let mut number = 0;
    let mut put = |writer: &mut Session, [table, ordered]: [Table; 2]| {
        writer.put(table, number % KEYS, &proof(number)).unwrap();
        writer.put(ordered, number % KEYS, &proof(number)).unwrap();
        number += 1;
        number - 1
    };
    (0..KEYS).for_each(|number| assert_eq!(put(&mut writer, [table, ordered]), number));
    let mut reader = pair.session(patient());
    until("the mirror has the tables", || reader.table("ordered").is_ok());
    let tables = ["t", "ordered"].map(|name| reader.table(name).unwrap());
    let mut last = [[0; KEYS as usize]; 2];
    let mut look = |reader: &mut Session| {
        for (table, last) in tables.into_iter().zip(&mut last) {
            never_back(reader, table, last);
            assert_eq!(reader.count(table, &Scan::all()).unwrap(), KEYS);
        }
    };
    // One that writes, too, by way of the mirror.
    let mut both = pair.session(patient().retry_for(Duration::from_secs(20)));
    let counter = both.create_table("counter").unwrap();
    for round in 0..4u64 {
        // A table that somebody on the mirror knows, and that goes.
        let (name, next) = (format!("gone {round}"), format!("next {round}"));
        let gone = writer.create_table(&name).unwrap();
        writer.put(gone, "k", b"gone").unwrap();
        until("the mirror has it", || {
            put(&mut writer, [table, ordered]);
            reader.table(&name).is_ok()
        });
        let known = reader.table(&name).unwrap();
        writer.drop_table(&name).unwrap();
        let before = put(&mut writer, [table, ordered]);
        let is_away = round % 2 == 1;
        if is_away {
            pair.mirror.process.stop_still();
        }
        // Several servers of the log, of which a mirror that is away knows nothing.
        for _ in 0..if is_away { 3 } else { 1 } {
            if is_killed {
                pair.primary.process.kill();
            } else {
                assert_eq!(pair.primary.stop(), "stopped");
            }
            pair.primary = launch(&pair.runs[0], 2, &again);
            writer = pair.primary.far_session(patient());
            (table, ordered) = (writer.table("t").unwrap(), writer.table("ordered").unwrap());
            let taken = writer.create_table(&next).or_else(|_| writer.table(&next)).unwrap();
            writer.put(taken, "k", b"next").unwrap();
            put(&mut writer, [table, ordered]);
        }
        if is_away {
            pair.mirror.process.go_on();
        }
        // Of a write over the connection to the server before nobody knows what became.
        until("it writes to the next one", || both.put(counter, "k", &proof(round)).is_ok());
        assert_eq!(number_of(both.get(counter, "k").unwrap().unwrap().value()), round, "its own write");
        until("the mirror follows again", || {
            let now = put(&mut writer, [table, ordered]);
            look(&mut reader);
            if let Ok(Some(item)) = reader.get(known, "k") {
                assert_eq!(item.value(), b"gone", "a table in the place of another");
            }
            let item = reader.get(tables[0], now % KEYS).unwrap();
            item.is_some_and(|item| number_of(item.value()) > before)
        });
        let mirrors = pair.primary.client().statistics().unwrap().mirrors;
        assert_eq!(mirrors.len(), 1, "{mirrors:?}");
        assert_eq!(mirrors[0].copied_bytes, 0, "round {round}: it goes on with what it has: {mirrors:?}");
        assert!(reader.get(known, "k").is_err(), "it was dropped");
        let taken = reader.table(&next).unwrap();
        assert_eq!(reader.get(taken, "k").unwrap().unwrap().value(), b"next");
    }
    // Servers that write nothing.
    for _ in 0..3 {
        if is_killed {
            pair.primary.process.kill();
        } else {
            assert_eq!(pair.primary.stop(), "stopped");
        }
        pair.primary = launch(&pair.runs[0], 2, &again);
        let mirrors = || pair.primary.client().statistics().unwrap().mirrors;
        until("the mirror follows", || mirrors().iter().any(|mirror| mirror.state == "following"));
        assert_eq!(mirrors()[0].copied_bytes, 0, "it goes on with what it has: {:?}", mirrors());
        look(&mut reader);
    }
}
