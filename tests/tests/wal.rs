//! Servers that write a log: what they acknowledged is there again, however they ended. They are killed, also
//! while they start and while they write a base; the power of their disk is cut; and the disk fails.
//!
//! `KELIX_TEST_KILLS=N` and `KELIX_TEST_CUTS=N` say how often; `KELIX_TEST_SEED` chooses the moments.
//!
//! The file is long because kills, cuts and failures are judged by the same ledger and the same few helpers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use kelix::{
    CompareAndSet, Effect, ErrorKind, FabricChoice, NewItem, NewTable, Scan, Session, SessionOptions, Table,
    TableKind, Version,
};
use kelix_tests::disk::{Disk, Fault};
use kelix_tests::ledger::{Ledger, Tables};
use kelix_tests::logged::{Logged, session_by_turns, wal_statistics};
use kelix_tests::process::{Process, ServerProcess, ServerProgram, patient};
use kelix_tests::raw::RawSession;
use kelix_tests::{Random, RunDir, Watchdog, seeds, session_over, until, value, watchdog};
use kelix_wire::control::Caller;
use kelix_wire::{Op, RequestHead, Sequence, Status};

const PROGRAM: &str = env!("CARGO_BIN_EXE_kelix-test-server");
/// Clients that write at the same time.
const WRITERS: u64 = 4;
/// What a lazy server may lose.
const LAZY: Duration = Duration::from_millis(100);

fn logged<'a>(run: &'a RunDir, wal: &'a Path, shards: usize, commits: bool) -> Logged<'a> {
    Logged { program: PROGRAM, run, wal, shards, commits, listen: None, options: Vec::new() }
}

/// How often something is done that a test is about.
fn count(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |text| text.parse().expect("a number"))
}

/// The seed of a test, which is printed.
fn seed() -> u64 {
    let seed = seeds(1)[0];
    println!("KELIX_TEST_SEED={seed}");
    seed
}

/// A watchdog for something that is done so often.
fn patience(what: &'static str, times: u64) -> Watchdog {
    Watchdog::new(what, Duration::from_secs(240 + 12 * times))
}

/// The files of a log or snapshots in a directory, in order.
fn files(directory: &Path, is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    let mut files: Vec<PathBuf> = entries.filter(|path| is_wanted(&name(path))).collect();
    files.sort();
    files
}

fn log_files(directory: &Path) -> Vec<PathBuf> {
    files(directory, |name| name.starts_with("log-"))
}

fn bases(directory: &Path) -> Vec<PathBuf> {
    files(directory, |name| name.ends_with(".kelix-snapshot"))
}

/// Changes some bytes of a file, from the middle of what is not zero in it on.
fn damage(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let last = bytes.iter().rposition(|byte| *byte != 0).expect("a file that holds something");
    bytes[last / 2..].iter_mut().take(16).for_each(|byte| *byte ^= 0x55);
    std::fs::write(path, bytes).unwrap();
}

// ---- clients that write ----

fn ledgers(seed: u64, is_durable: impl Fn(u64) -> bool) -> Vec<Ledger> {
    (0..WRITERS).map(|number| Ledger::new(number, seed, is_durable(number))).collect()
}

/// Clients that write until the server ends.
struct Writers {
    threads: Vec<JoinHandle<Ledger>>,
    done: Arc<AtomicU64>,
}

impl Writers {
    fn start(
        server: &ServerProcess,
        ledgers: Vec<Ledger>,
        options: impl Fn(u64) -> SessionOptions,
    ) -> Writers {
        let done = Arc::new(AtomicU64::new(0));
        let start = |(number, mut ledger): (u64, Ledger)| {
            let mut session = session_by_turns(server, number, options(number));
            let tables = Tables::open(&mut session).unwrap();
            let done = done.clone();
            std::thread::spawn(move || {
                let error = ledger.write_on(&mut session, &tables, || {
                    done.fetch_add(1, Ordering::SeqCst);
                });
                println!("writer {number}: {error}");
                ledger
            })
        };
        Writers { threads: (0..).zip(ledgers).map(start).collect(), done }
    }

    /// Waits until so many writes were acknowledged.
    #[track_caller]
    fn until(&self, writes: u64) {
        until("writes are acknowledged", || {
            let is_over = self.threads.iter().all(JoinHandle::is_finished);
            assert!(!is_over, "all writers have ended, and the server has not");
            self.done.load(Ordering::SeqCst) >= writes
        });
    }

    /// What they wrote, once the server has ended.
    fn end(self) -> Vec<Ledger> {
        self.threads.into_iter().map(|thread| thread.join().expect("a writer")).collect()
    }
}

#[track_caller]
fn verify(server: &ServerProcess, ledgers: &mut [Ledger], what: &str) {
    for (number, ledger) in (0..).zip(ledgers) {
        let mut session = session_by_turns(server, number, patient());
        let tables = Tables::open(&mut session).unwrap();
        ledger.verify(&mut session, &tables, what);
    }
}

/// The same of one ledger.
#[track_caller]
fn check(server: &ServerProcess, ledger: &mut Ledger, what: &str) {
    verify(server, std::slice::from_mut(ledger), what);
}

// ---- killed servers ----

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let _watchdog = watchdog("acknowledged writes");
    let seed = seed();
    for shards in [1, 3] {
        let run = RunDir::new();
        let wal = run.path().join("wal");
        let logged = logged(&run, &wal, shards, true);
        let mut ledgers = ledgers(seed, |_| true);
        for round in 0..3 {
            let mut server = logged.serve();
            let what = format!("KELIX_TEST_SEED={seed}, {shards} shards, round {round}");
            verify(&server, &mut ledgers, &what);
            let writers = Writers::start(&server, ledgers, |_| patient());
            writers.until(400);
            server.process.kill();
            ledgers = writers.end();
        }
        verify(&logged.serve(), &mut ledgers, "at the end");
    }
}

fn mark(number: u64) -> NewItem {
    NewItem::new().bytes("mark", &number.to_le_bytes())
}

/// Loads a generation of a dataset, all items of which have a mark.
fn load(session: &mut Session, number: u64) {
    let mut build = session.build("company", &[NewTable::new("people", TableKind::Hash)]).unwrap();
    for key in 0..200u64 {
        build.put_item(0, &key.to_le_bytes(), &mark(number)).unwrap();
    }
    build.finish().unwrap();
}

#[track_caller]
fn check_loaded(session: &mut Session, number: u64) {
    let people = session.table("people").unwrap();
    for key in 0..200u64 {
        let item = session.get(people, &key.to_le_bytes()).unwrap().expect("it was loaded");
        assert_eq!(item.bytes("mark"), Some(&number.to_le_bytes()[..]));
    }
    assert_eq!(session.count(people, &Scan::all()).unwrap(), 200);
}

/// Everything that is not the write of an item in a table that stays.
#[test]
fn tables_datasets_and_expiries_survive_a_kill() {
    let _watchdog = watchdog("tables, datasets and expiries");
    for (shards, fabric) in [(1, FabricChoice::Shm), (3, FabricChoice::Shm), (3, FabricChoice::Tcp)] {
        let run = RunDir::new();
        let wal = run.path().join("wal");
        let logged = logged(&run, &wal, shards, true);
        let open = |server: &ServerProcess| match fabric {
            FabricChoice::Shm => session_over(fabric, &server.client(), patient()),
            _ => session_over(fabric, &server.tcp_client(), patient()),
        };
        let mut server = logged.serve();
        let mut session = open(&server);
        let items = session.create_table("items").unwrap();
        let dropped = session.create_table("dropped").unwrap();
        for key in 0..100u64 {
            session.put(dropped, &key.to_le_bytes(), &value::make(key, 1, 100)).unwrap();
        }
        let later = SystemTime::UNIX_EPOCH + Duration::from_secs(4_000_000_000);
        session.put_item(items, b"later", &mark(1).expires_at(later).flags(7)).unwrap();
        let soon = Duration::from_millis(300);
        session.put_item(items, b"soon", &mark(2).expires_in(soon)).unwrap();
        assert!(session.drop_table("dropped").unwrap());
        load(&mut session, 1);
        server.process.kill();

        let mut server = logged.serve();
        let mut session = open(&server);
        check_loaded(&mut session, 1);
        load(&mut session, 2);
        session.create_table_of(TableKind::Strings, "new").unwrap();
        server.process.kill();

        let mut server = logged.serve();
        let mut session = open(&server);
        check_loaded(&mut session, 2);
        let tables: BTreeSet<String> = session.tables().unwrap().into_iter().collect();
        assert!(
            tables.contains("items") && tables.contains("new") && !tables.contains("dropped"),
            "{tables:?}"
        );
        let items = session.table("items").unwrap();
        let item = session.get(items, b"later").unwrap().expect("it does not end yet");
        assert_eq!((item.expires(), item.flags()), (Some(later), 7));
        until("an item ends", || session.get(items, b"soon").unwrap().is_none());
        assert_eq!(session.count(items, &Scan::all()).unwrap(), 1);
        // What is being loaded when the server dies never comes into force.
        let mut build = session.build("company", &[NewTable::new("people", TableKind::Hash)]).unwrap();
        build.put_item(0, &7u64.to_le_bytes(), &mark(3)).unwrap();
        let paused = build.pause();
        server.process.kill();
        drop(paused);

        let mut server = logged.serve();
        let mut session = open(&server);
        check_loaded(&mut session, 2);
        let again = session.create_table("dropped").unwrap();
        assert_eq!(session.count(again, &Scan::all()).unwrap(), 0, "of the table that was dropped");
        assert!(session.drop_dataset("company").unwrap());
        server.process.kill();

        let server = logged.serve();
        let mut session = open(&server);
        assert!(session.table("people").is_err());
    }
}

/// Writes by compare-and-set until that is done, also where a server goes that may have done it: then the key
/// has either the version that was expected, or what was to be written.
fn set_once(
    session: &mut Session,
    (table, key): (Table, &[u8]),
    expected: Option<Version>,
    value: &[u8],
) -> Option<Version> {
    let (began, mut is_unknown) = (Instant::now(), false);
    loop {
        match session.compare_and_set(table, key, expected, value) {
            Ok(CompareAndSet::Done(version)) => return version,
            Ok(CompareAndSet::Mismatch(version)) => {
                assert!(is_unknown, "it was refused, and nobody else writes");
                let item = session.get(table, key).unwrap().expect("it has a version");
                assert!((Some(item.version()), item.value()) == (version, value), "another write was done");
                return version;
            }
            Err(error) => {
                assert!(began.elapsed() < Duration::from_secs(60), "{error}");
                is_unknown |= error.effect() == Effect::Unknown;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// Counts, and makes keys that were not there, over sessions that go over to the next server.
fn count_exactly(session: &mut Session, number: u64, rounds: u64, done: &AtomicU64) {
    let table = session.table("t").unwrap();
    let counter = format!("counter {number}").into_bytes();
    let mut version = None;
    for round in 1..=rounds {
        let new = set_once(session, (table, &counter), version, &round.to_le_bytes());
        assert!(new.map(|new| new.0) > version.map(|version| version.0), "versions go on");
        version = new;
        let (key, bytes) = (format!("made {number} {round}").into_bytes(), 30 + (round % 16) as usize * 5000);
        set_once(session, (table, &key), None, &value::make(round, number, bytes));
        done.fetch_add(1, Ordering::SeqCst);
    }
}

/// Sessions go on with the server that was started in place of the one that was killed, and each write is
/// done once.
#[test]
fn each_write_is_done_once_whatever_is_killed() {
    const ROUNDS: u64 = 150;
    let _watchdog = watchdog("each write once");
    let run = RunDir::new();
    let wal = run.path().join("wal");
    let mut logged = logged(&run, &wal, 3, true);
    let mut server = logged.serve();
    // Those who connect again go where they went before.
    logged.listen = Some(server.tcp_address());
    server.session().create_table("t").unwrap();
    let done = Arc::new(AtomicU64::new(0));
    let threads: Vec<JoinHandle<()>> = (0..WRITERS)
        .map(|number| {
            let options = patient().retry_for(Duration::from_secs(20));
            let mut session = session_by_turns(&server, number, options);
            let done = done.clone();
            std::thread::spawn(move || count_exactly(&mut session, number, ROUNDS, &done))
        })
        .collect();
    for kill in 1..=6 {
        until("rounds are done", || {
            let failed = threads.iter().any(|thread| thread.is_finished());
            done.load(Ordering::SeqCst) >= kill * 80 || failed
        });
        server.process.kill();
        server = logged.serve();
    }
    threads.into_iter().for_each(|thread| thread.join().expect("all of it was done once"));
    let mut session = server.session();
    let table = session.table("t").unwrap();
    for number in 0..WRITERS {
        let counter = session.get(table, format!("counter {number}").as_bytes()).unwrap().expect("a counter");
        assert_eq!(counter.value(), ROUNDS.to_le_bytes());
        for round in 1..=ROUNDS {
            let made = session.get(table, format!("made {number} {round}").as_bytes()).unwrap();
            assert_eq!(value::check(round, made.expect("it was made").value()), Ok(number));
        }
    }
}

/// A client that may ask again is answered by the server that was started in place of the one that was killed
/// as by that one: a write whose effect survived is not done once more, and one of unknown effect is done
/// once.
#[test]
fn what_was_asked_of_a_server_that_was_killed_can_be_asked_again() {
    let _watchdog = watchdog("asking again");
    let run = RunDir::new();
    let wal = run.path().join("wal");
    let logged = logged(&run, &wal, 1, true);
    let mut server = logged.serve();
    let table = server.session().create_table("t").unwrap().id();
    let patience = Duration::from_secs(20);
    let mut random = Random(seed());
    for number in 1..=12u64 {
        let caller = Caller { number: 77, again: number > 1 };
        let mut session = RawSession::open_as(run.path(), Some(caller));
        let key = number.to_le_bytes();
        let asked = |again: bool| RequestHead {
            expect: Some(None),
            sequence: Some(Sequence { number, again }),
            ..RequestHead::new(Op::Put, 1, table)
        };
        assert!(session.post(0, asked(false), &key, b"the first time"));
        // What was never answered, and is not in the log, is not known to the next server. The first answer is
        // waited for, so that all servers after the first one know the client.
        let waits = number == 1 || random.once_in(2);
        let first = waits.then(|| session.answer(0, patience).expect("an answer"));
        if let Some(first) = first {
            assert_eq!(first.status, Status::Ok);
        } else {
            std::thread::sleep(Duration::from_micros(random.below(3000)));
        }
        server.process.kill();
        server = logged.serve();
        let mut session = RawSession::open_as(run.path(), Some(Caller { again: true, ..caller }));
        assert!(session.post(0, asked(true), &key, b"once more"));
        let again = session.answer(0, patience).expect("an answer");
        assert_eq!(again.status, Status::Ok, "write {number} was done before, and is not known");
        let item = {
            let mut session = server.session();
            let table = session.table("t").unwrap();
            session.get(table, &key).unwrap().expect("it was put")
        };
        assert_eq!(item.version().0, again.version);
        if let Some(first) = first {
            assert_eq!((first.version, item.value()), (again.version, &b"the first time"[..]));
        }
    }
}

/// One client writes to all shards in turn, each write after the answer to the one before. Returns when each
/// was acknowledged.
fn write_in_order(session: &mut Session, table: Table, from: u64, done: &AtomicU64) -> Vec<Instant> {
    let mut acknowledged = Vec::new();
    for key in from.. {
        if session.put(table, &key.to_le_bytes(), &value::make(key, 1, 100)).is_err() {
            break;
        }
        acknowledged.push(Instant::now());
        done.fetch_add(1, Ordering::SeqCst);
    }
    acknowledged
}

/// Returns how many of the keys in order are there, which must be the first ones.
#[track_caller]
fn prefix(session: &mut Session, table: Table, what: &str) -> u64 {
    let mut found: Vec<u64> = Vec::new();
    for item in session.scan(table, &Scan::all()).unwrap() {
        let item = item.unwrap();
        let key = u64::from_le_bytes(item.key().try_into().expect("8 bytes"));
        assert_eq!(value::check(key, item.value()), Ok(1), "{what}");
        found.push(key);
    }
    found.sort_unstable();
    let gap = (0..).zip(&found).find(|(index, key)| index != *key);
    assert_eq!(gap, None, "{what}: a write is there, and not one that was answered before it");
    found.len() as u64
}

/// Cuts the power of a disk under a server, and gives the disk back for the next one.
fn cut_power(disk: &Disk, random: &mut Random, server: &mut ServerProcess) {
    // Power goes for all at once: a server that went on for a moment would find its log failed, and tell
    // readers of all that is in memory.
    server.process.stop_still();
    disk.cut(random);
    server.process.kill();
    disk.power_on();
}

/// Writes in order until the server ends in some way, which happens while writes go on. Returns how old the
/// newest acknowledged write was that was lost, if one was.
#[track_caller]
fn lost_in_order(logged: &Logged<'_>, what: &str, end: impl FnOnce(&mut ServerProcess)) -> Duration {
    let mut server = logged.serve();
    let mut session = server.session();
    session.set_durable(true);
    let table = session.create_table("order").unwrap();
    session.set_durable(false);
    let from = prefix(&mut session, table, what);
    let done = Arc::new(AtomicU64::new(0));
    let count = done.clone();
    let writer = std::thread::spawn(move || write_in_order(&mut session, table, from, &count));
    // For several times as long as what may be lost.
    let began = Instant::now();
    until("writes are acknowledged", || done.load(Ordering::SeqCst) >= 1000 && began.elapsed() > 4 * LAZY);
    let ended = Instant::now();
    end(&mut server);
    let acknowledged = writer.join().expect("a writer");
    let server = logged.serve();
    let mut session = server.session();
    let table = session.table("order").unwrap();
    let there = prefix(&mut session, table, what);
    assert!(there >= from, "{what}: what was there before is not there any more");
    let lost = acknowledged.get((there - from) as usize);
    // The oldest one that was lost.
    lost.map_or(Duration::ZERO, |lost| ended.saturating_duration_since(*lost))
}

/// How much a lazy server may lose is a promise of time, which a busy machine may break: the best of some
/// tries keeps it. What is left is a prefix each time.
#[test]
fn a_lazy_server_loses_the_last_moment_at_most_and_never_a_cause_of_what_it_keeps() {
    let _watchdog = watchdog("a lazy server");
    let run = RunDir::new();
    let wal = run.path().join("wal");
    let logged = logged(&run, &wal, 3, false);
    let lost =
        (0..4).map(|round| lost_in_order(&logged, &format!("round {round}"), |server| server.process.kill()));
    let least = lost.min().expect("some tries");
    assert!(least <= LAZY, "a write that was acknowledged {least:?} before was lost, each time");
}

/// What happens to servers on one directory, many times in a row.
struct Chain<'a> {
    logged: Logged<'a>,
    /// The disk whose power is cut; otherwise the server is killed.
    disk: Option<&'a Disk>,
    random: Random,
    seed: u64,
    ledgers: Vec<Ledger>,
    /// Sessions are durable that have such a number, where the server does not commit by itself.
    is_durable: fn(u64) -> bool,
    ends: u64,
    /// Ends of servers that had not begun to serve, and bases that were taken.
    early: u64,
    bases: u64,
}

impl<'a> Chain<'a> {
    fn new(logged: Logged<'a>, disk: Option<&'a Disk>, seed: u64, is_durable: fn(u64) -> bool) -> Chain<'a> {
        let ledgers = ledgers(seed, is_durable);
        let random = Random(seed ^ logged.shards as u64);
        Chain { logged, disk, random, seed, ledgers, is_durable, ends: 0, early: 0, bases: 0 }
    }

    fn what(&self) -> String {
        let Logged { shards, commits, .. } = self.logged;
        format!("KELIX_TEST_SEED={}, {shards} shards, commits: {commits}, end {}", self.seed, self.ends)
    }

    /// Ends a server in the midst of whatever it does.
    fn end(&mut self, process: &mut kelix_tests::process::Process) {
        self.ends += 1;
        // A server that was killed beside a disk with power leaves what the next one reads and a later cut
        // takes.
        let cut = self.disk.filter(|_| !self.random.once_in(4));
        cut.iter().for_each(|disk| disk.cut(&mut self.random));
        process.kill();
        cut.iter().for_each(|disk| disk.power_on());
    }

    /// Servers that end while they start or replay, at moments of chance.
    fn end_early(&mut self, most: u64) {
        while self.ends < most && self.random.once_in(3) {
            let mut process = self.logged.launch();
            std::thread::sleep(Duration::from_millis(self.random.below(80)));
            self.end(&mut process);
            self.early += 1;
        }
    }

    /// A server that has all that was acknowledged, serves, and ends while clients write, and maybe while a
    /// base is taken.
    fn round(&mut self, most: u64) {
        self.end_early(most);
        let mut server = self.logged.serve();
        let what = self.what();
        verify(&server, &mut self.ledgers, &what);
        let (commits, is_durable) = (self.logged.commits, self.is_durable);
        let options = |number| patient().durable(!commits && is_durable(number));
        let writers = Writers::start(&server, std::mem::take(&mut self.ledgers), options);
        writers.until(1 + self.random.below(60));
        let base = self.random.once_in(3).then(|| {
            let client = server.client();
            std::thread::spawn(move || client.snapshot().is_ok())
        });
        let is_waited_for = self.random.once_in(2);
        let base = match base {
            Some(base) if is_waited_for => {
                self.bases += u64::from(base.join().expect("a base or an error"));
                None
            }
            base => base,
        };
        writers.until(60 + self.random.below(100));
        if self.disk.is_none() && self.random.once_in(12) {
            assert_eq!(server.stop(), "stopped", "{what}");
        } else {
            self.end(&mut server.process);
        }
        self.ledgers = writers.end();
        self.bases += u64::from(base.is_some_and(|base| base.join().expect("a base or an error")));
    }

    /// Goes on until there were so many ends, and looks at the directory then.
    fn run(mut self, ends: u64) {
        while self.ends < ends {
            self.round(ends);
        }
        let mut server = self.logged.serve();
        let what = self.what();
        verify(&server, &mut self.ledgers, &what);
        for _ in 0..3 {
            server.client().snapshot().unwrap_or_else(|error| panic!("{what}: {error}"));
            self.bases += 1;
        }
        // What no base needs goes a moment later.
        until("the log is as long as its bases need it to be", || log_files(self.logged.wal).len() <= 2);
        assert_eq!(bases(self.logged.wal).len(), 2, "{what}");
        let oldest = log_files(self.logged.wal).remove(0);
        assert!(!oldest.ends_with("log-0000000000000001"), "{what}: nothing was truncated");
        assert_eq!(server.stop(), "stopped", "{what}");
        verify(&self.logged.serve(), &mut self.ledgers, &what);
        println!("{what}, {} of them early; {} bases", self.early, self.bases);
    }
}

#[test]
fn many_kills_in_a_row_lose_nothing() {
    let kills = count("KELIX_TEST_KILLS", 12);
    let _watchdog = patience("many kills", kills);
    let seed = seed();
    for (shards, commits) in [(1, true), (3, true), (3, false)] {
        let run = RunDir::new();
        let wal = run.path().join("wal");
        let is_durable = |number| number % 4 < 2;
        let is_durable = if commits { |_| true } else { is_durable };
        Chain::new(logged(&run, &wal, shards, commits), None, seed, is_durable).run(kills.div_ceil(3));
    }
}

/// A server that was killed in its very first start may have left anything behind, and the next one begins.
#[test]
fn a_server_that_is_killed_in_its_first_start_leaves_nothing_that_hinders_the_next() {
    let _watchdog = watchdog("first starts");
    let seed = seed();
    let mut random = Random(seed);
    for start in 0..count("KELIX_TEST_KILLS", 12).min(60) {
        let run = RunDir::new();
        let wal = run.path().join("wal");
        let logged = logged(&run, &wal, 1, true);
        let mut process = logged.launch();
        // Until there is a file of the log, and some moments longer.
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(200) && !wal.exists() {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_micros(random.below(15_000)));
        process.kill();
        let mut next = logged.launch();
        let line = next.line().expect("a word");
        assert!(line.starts_with("serving "), "KELIX_TEST_SEED={seed}, start {start}: {line}");
    }
}

// ---- the power of the disk is cut ----

#[test]
fn many_cuts_of_the_power_lose_nothing() {
    let cuts = count("KELIX_TEST_CUTS", 6);
    let _watchdog = patience("many cuts", cuts);
    let seed = seed();
    for (shards, commits) in [(1, true), (3, true), (3, false)] {
        let run = RunDir::new();
        let Some(disk) = Disk::mount_in(&run) else { return };
        disk.sync_within(Duration::from_millis(4), seed);
        let wal = disk.path().join("wal");
        let is_durable = |number| number % 4 < 2;
        let is_durable = if commits { |_| true } else { is_durable };
        Chain::new(logged(&run, &wal, shards, commits), Some(&disk), seed, is_durable).run(cuts.div_ceil(3));
    }
}

#[test]
fn a_lazy_server_keeps_a_prefix_when_the_power_is_cut() {
    let _watchdog = watchdog("a lazy server and the power");
    let seed = seed();
    let run = RunDir::new();
    let Some(disk) = Disk::mount_in(&run) else { return };
    let wal = disk.path().join("wal");
    let logged = logged(&run, &wal, 3, false);
    let mut random = Random(seed);
    let mut lost = Vec::new();
    for round in 0..4 {
        lost.push(lost_in_order(&logged, &format!("KELIX_TEST_SEED={seed}, round {round}"), |server| {
            cut_power(&disk, &mut random, server);
        }));
    }
    let least = lost.into_iter().min().expect("some tries");
    assert!(least <= LAZY, "a write that was acknowledged {least:?} before was lost, each time");
}

/// What a server that was killed had written and not synced, the next one finds; and once clients have seen
/// it there, no cut may take it.
#[test]
fn what_a_server_has_read_is_there_after_a_cut() {
    let _watchdog = watchdog("what was read, and the power");
    let seed = seed();
    let run = RunDir::new();
    let Some(disk) = Disk::mount_in(&run) else { return };
    let wal = disk.path().join("wal");
    let logged = logged(&run, &wal, 3, false);
    let mut random = Random(seed);
    let mut there = 0;
    for round in 0..6 {
        let what = format!("KELIX_TEST_SEED={seed}, round {round}");
        let mut server = logged.serve();
        let mut session = server.session();
        let table = session.create_table("order").unwrap();
        let before = prefix(&mut session, table, &what);
        assert!(before >= there, "{what}: {there} were there, and {before} are left");
        for key in before..before + 200 {
            session.put(table, &key.to_le_bytes(), &value::make(key, 1, 100)).unwrap();
        }
        std::thread::sleep(Duration::from_millis(random.below(12)));
        server.process.kill();
        let mut server = logged.serve();
        let mut session = server.session();
        let table = session.create_table("order").unwrap();
        there = prefix(&mut session, table, &what);
        cut_power(&disk, &mut random, &mut server);
    }
}

/// The keys of [`count_up`], and of [`look_on`].
const COUNTED: [u8; 8] = [0; 8];

/// The tables of the three kinds of reads that are believed for other reasons: an item, a value in a leaf,
/// and which keys a leaf has.
fn counted(session: &mut Session) -> [Table; 3] {
    let kinds = [TableKind::Hash, TableKind::Inline, TableKind::Numbers];
    let tables = kinds.iter().zip(["item", "value", "keys"]);
    let tables = tables.map(|(kind, name)| session.create_table_of(*kind, name).unwrap());
    tables.collect::<Vec<_>>().try_into().expect("three tables")
}

/// The same on a mirror, which makes none.
fn counted_near(session: &mut Session) -> Result<[Table; 3], kelix::Error> {
    Ok([session.table("item")?, session.table("value")?, session.table("keys")?])
}

/// Writes numbers that count up, everywhere the same, until the server is gone. Of the keys of the last table
/// some are deleted, so that there are one or two.
fn count_up(session: &mut Session, tables: [Table; 3], from: u64) {
    let mut write = |number: u64| {
        session.put(tables[0], &COUNTED, &number.to_le_bytes())?;
        session.put(tables[1], &COUNTED, &number.to_le_bytes())?;
        session.put(tables[2], &number.to_be_bytes(), b"here")?;
        session.delete(tables[2], &(number - 1).to_be_bytes())
    };
    for number in from.. {
        if write(number).is_err() {
            break;
        }
    }
}

/// The numbers that a session sees, each where it stands.
fn look(session: &mut Session, tables: [Table; 3]) -> Result<[u64; 3], kelix::Error> {
    let mut numbers = [0; 3];
    for (number, table) in numbers.iter_mut().zip(&tables[..2]) {
        let found = session.get(*table, &COUNTED)?;
        *number = found.map_or(0, |item| u64::from_le_bytes(item.value().try_into().expect("8 bytes")));
    }
    let scan = Scan::all().backwards().limit(1);
    if let Some(item) = session.scan(tables[2], &scan)?.next() {
        numbers[2] = u64::from_be_bytes(item?.key().try_into().expect("8 bytes"));
    }
    Ok(numbers)
}

/// Looks on until it is told to end, also at the memory of a server that is gone, and counts its looks.
/// Returns the last of each that was seen.
fn look_on(session: &mut Session, tables: [Table; 3], is_over: &AtomicBool, looks: &AtomicU64) -> [u64; 3] {
    let mut seen = [0; 3];
    while !is_over.load(Ordering::SeqCst) {
        let looked = look(session, tables);
        looks.fetch_add(1, Ordering::SeqCst);
        let Ok(numbers) = looked else { continue };
        for (seen, number) in seen.iter_mut().zip(numbers) {
            assert!(number >= *seen, "{number} was seen after {seen}");
            *seen = number;
        }
    }
    seen
}

/// Where answers wait for the disk so do readers of the memory, over each fabric, and those of a mirror, which
/// is told what is on the disk: what one has seen no cut takes back. So the mirror goes on with what it has.
#[test]
fn what_a_reader_has_seen_is_there_after_a_cut() {
    let cuts = count("KELIX_TEST_CUTS", 6);
    let _watchdog = patience("readers and cuts", cuts);
    let seed = seed();
    let run = RunDir::new();
    let Some(disk) = Disk::mount_in(&run) else { return };
    disk.sync_within(Duration::from_millis(8), seed);
    let wal = disk.path().join("wal");
    let mut logged = logged(&run, &wal, 2, true);
    let mut random = Random(seed);
    let mut last = [0; 3];
    let run_of_mirror = RunDir::new();
    let mut mirror: Option<ServerProcess> = None;
    for round in 0..cuts {
        let what = format!("KELIX_TEST_SEED={seed}, round {round}");
        let mut server = logged.serve();
        let address = server.tcp_address();
        let mirror = mirror.get_or_insert_with(|| {
            let program = ServerProgram { directory: run_of_mirror.path(), ..logged.server() };
            let arguments = [program.arguments(), vec![format!("mirror-of={address}")]].concat();
            program.serving(Process::start(PROGRAM, &arguments))
        });
        logged.listen = Some(address);
        let mut session = server.session();
        let tables = counted(&mut session);
        let there = look(&mut session, tables).unwrap();
        assert!(
            there.iter().zip(&last).all(|(there, last)| there >= last),
            "{what}: {there:?}, {last:?} seen"
        );
        let from = there.into_iter().max().expect("three") + 1;
        let options = SessionOptions::default().timeout(Duration::from_millis(500));
        let is_over = Arc::new(AtomicBool::new(false));
        let mut near = mirror.client().session_with(options.clone()).unwrap();
        until("the mirror follows", || {
            let all = counted_near(&mut near);
            all.and_then(|tables| look(&mut near, tables)).is_ok_and(|seen| seen == there)
        });
        let mirrors = server.client().statistics().unwrap().mirrors;
        assert!(mirrors.iter().all(|mirror| round == 0 || mirror.copied_bytes == 0), "{what}: {mirrors:?}");
        let sessions =
            [session_by_turns(&server, 0, options.clone()), session_by_turns(&server, 1, options), near];
        let looks = [const { AtomicU64::new(0) }; 3].map(Arc::new);
        let readers: Vec<JoinHandle<[u64; 3]>> = sessions
            .into_iter()
            .zip(looks.clone())
            .map(|(mut session, looks)| {
                let is_over = is_over.clone();
                std::thread::spawn(move || look_on(&mut session, tables, &is_over, &looks))
            })
            .collect();
        let writer = std::thread::spawn(move || count_up(&mut session, tables, from));
        let mut session = server.session();
        let wanted = from + 20 + random.below(20);
        until("writes are seen", || {
            look(&mut session, tables).unwrap().into_iter().all(|number| number >= wanted)
        });
        // At any moment of the next sync, and not behind the last one, of which was just heard.
        std::thread::sleep(Duration::from_micros(random.below(8_000)));
        cut_power(&disk, &mut random, &mut server);
        writer.join().expect("a writer");
        // Each looks at what is left, with a look that began behind the cut.
        for looks in &looks {
            let before = looks.load(Ordering::SeqCst);
            until("a reader has looked at what is left", || looks.load(Ordering::SeqCst) > before + 1);
        }
        is_over.store(true, Ordering::SeqCst);
        for reader in readers {
            let seen = reader.join().expect("a reader");
            last.iter_mut().zip(seen).for_each(|(last, seen)| *last = seen.max(*last));
        }
        assert!(last.iter().all(|last| *last >= wanted - 1), "{what}: {last:?} seen, and {wanted} written");
    }
}

/// A server goes on to another file while it serves, and that is there with its name.
#[test]
fn a_file_that_is_begun_while_clients_write_is_there_after_a_cut() {
    let _watchdog = watchdog("a file that is begun, and the power");
    let seed = seed();
    let run = RunDir::new();
    let Some(disk) = Disk::mount_in(&run) else { return };
    let wal = disk.path().join("wal");
    let logged = logged(&run, &wal, 1, true);
    let mut random = Random(seed);
    let mut counter = 0;
    for round in 0..4 {
        let what = format!("KELIX_TEST_SEED={seed}, round {round}");
        let mut server = logged.serve();
        let mut session = server.session();
        let table = session.create_table("t").unwrap();
        let check = |session: &mut Session, table: Table, counter: u64| {
            let item = session.get(table, b"key").unwrap();
            let found = item.map_or(Ok(0), |item| value::check(1, item.value()));
            assert_eq!(found, Ok(counter), "{what}");
        };
        check(&mut session, table, counter);
        let files = log_files(&wal).len();
        while log_files(&wal).len() == files {
            counter += 1;
            session.put(table, b"key", &value::make(1, counter, 2 << 20)).unwrap();
        }
        cut_power(&disk, &mut random, &mut server);
        let mut server = logged.serve();
        let mut session = server.session();
        let table = session.table("t").unwrap();
        check(&mut session, table, counter);
        server.client().snapshot().unwrap();
        server.process.kill();
    }
}

// ---- the disk fails ----

/// A server on a disk of its own with a client that has written something.
struct OnDisk<'a> {
    logged: Logged<'a>,
    server: ServerProcess,
    session: Session,
    tables: Tables,
    ledger: Ledger,
}

impl<'a> OnDisk<'a> {
    fn start(logged: Logged<'a>) -> OnDisk<'a> {
        let server = logged.serve();
        let mut session = server.session();
        let tables = Tables::open(&mut session).unwrap();
        let mut ledger = Ledger::new(0, 1, true);
        for _ in 0..200 {
            ledger.write(&mut session, &tables).unwrap();
        }
        OnDisk { logged, server, session, tables, ledger }
    }

    /// Kills it, and wants all that was acknowledged of the next one.
    fn check_after_kill(mut self, what: &str) {
        self.server.process.kill();
        check(&self.logged.serve(), &mut self.ledger, what);
    }
}

#[test]
fn a_disk_that_fails_ends_writes_for_good_and_no_reads() {
    let _watchdog = watchdog("a disk that fails");
    for fault in [Fault::Write, Fault::Sync] {
        let run = RunDir::new();
        let Some(disk) = Disk::mount_in(&run) else { return };
        let wal = disk.path().join("wal");
        let mut on = OnDisk::start(logged(&run, &wal, 2, true));
        let table = on.session.create_table("t").unwrap();
        on.session.put(table, b"key", b"value").unwrap();
        disk.fail(fault, "log-");
        let error = on.ledger.write_on(&mut on.session, &on.tables, || ());
        assert!(disk.has_failed());
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown), "{error}");
        assert!(error.to_string().contains("log has failed"), "{error}");
        let state = wal_statistics(&mut on.server);
        assert_eq!(state["state"], "failed", "{state}");
        assert!(state["error"].as_str().is_some_and(|error| error.contains("log-")), "{state}");
        for _ in 0..50 {
            let error = on.ledger.write(&mut on.session, &on.tables).unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::No), "{error}");
            assert!(error.to_string().contains("disk of its log"), "{error}");
            let item = on.session.get(table, b"key").unwrap().expect("it was put");
            assert_eq!(item.value(), b"value");
        }
        if fault == Fault::Sync {
            // A base has what the log has no more.
            on.server.client().snapshot().unwrap();
        }
        on.check_after_kill(&format!("{fault:?}"));
    }
}

/// A server whose log has failed ends when it is told to, and what it had in memory is in its last snapshot.
#[test]
fn a_server_whose_log_has_failed_ends_in_time() {
    let _watchdog = watchdog("the end of a server whose log has failed");
    let run = RunDir::new();
    let Some(disk) = Disk::mount_in(&run) else { return };
    let wal = disk.path().join("wal");
    let mut on = OnDisk::start(logged(&run, &wal, 2, true));
    disk.fail(Fault::Sync, "log-");
    on.ledger.write_on(&mut on.session, &on.tables, || ());
    assert_eq!(on.server.stop(), "stopped");
    check(&on.logged.serve(), &mut on.ledger, "after its end");
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_room() {
    let _watchdog = watchdog("a full disk");
    let run = RunDir::new();
    let Some(disk) = Disk::mount_in(&run) else { return };
    let wal = disk.path().join("wal");
    let mut on = OnDisk::start(logged(&run, &wal, 2, true));
    let table = on.session.create_table("large").unwrap();
    disk.limit(Some(0));
    let mut written = 0;
    let error = loop {
        match on.session.put(table, written.to_string().as_bytes(), &value::make(written, 1, 1 << 20)) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100, "no file was needed");
    };
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::No), "{error}");
    assert!(error.to_string().contains("disk of its log is full"), "{error}");
    assert!(written > 20, "refused after {written}, while there was room in the file");
    let state = wal_statistics(&mut on.server);
    assert_eq!(state["state"], "full", "{state}");
    let error = on.ledger.write(&mut on.session, &on.tables).unwrap_err();
    assert_eq!(error.effect(), Effect::No, "{error}");
    let check_large = |session: &mut Session| {
        let table = session.table("large").unwrap();
        for key in 0..written {
            let item = session.get(table, key.to_string().as_bytes()).unwrap().expect("it was acknowledged");
            assert_eq!(value::check(key, item.value()), Ok(1));
        }
    };
    check_large(&mut on.session);
    disk.limit(None);
    until("writes are taken again", || on.ledger.write(&mut on.session, &on.tables).is_ok());
    assert_eq!(wal_statistics(&mut on.server)["state"], "writes");
    for _ in 0..100 {
        on.ledger.write(&mut on.session, &on.tables).unwrap();
    }
    on.server.process.kill();
    let server = on.logged.serve();
    check_large(&mut server.session());
    check(&server, &mut on.ledger, "after a full disk");
}

/// Beside a full disk a server still ends, with all that was acknowledged.
#[test]
fn a_server_on_a_full_disk_ends_in_time() {
    let _watchdog = watchdog("the end of a server on a full disk");
    let run = RunDir::new();
    let Some(disk) = Disk::mount_in(&run) else { return };
    let wal = disk.path().join("wal");
    let mut on = OnDisk::start(logged(&run, &wal, 2, true));
    disk.limit(Some(0));
    let table = on.session.create_table("large").unwrap();
    while on.session.put(table, b"key", &value::make(1, 1, 1 << 20)).is_ok() {}
    assert_eq!(on.server.stop(), "not-kept");
    disk.limit(None);
    check(&on.logged.serve(), &mut on.ledger, "after its end");
}

#[test]
fn a_disk_that_fails_at_the_start_is_an_error_and_harms_nothing() {
    let _watchdog = watchdog("a disk that fails at the start");
    let run = RunDir::new();
    let Some(disk) = Disk::mount_in(&run) else { return };
    let wal = disk.path().join("wal");
    let mut on = OnDisk::start(logged(&run, &wal, 2, true));
    on.server.process.kill();
    for fault in [Fault::Write, Fault::Sync] {
        for name in ["log.next", "log-", "store.next"] {
            disk.fail(fault, name);
            if (fault, name) == (Fault::Write, "log-") {
                // Nothing is written there that is known to be durable, and what a kill left is.
                continue;
            }
            let why = on.logged.refusal();
            assert!(disk.has_failed() && why.contains("disk/wal"), "{fault:?} {name}: {why}");
        }
    }
    // What those left that were refused would be room.
    std::fs::remove_file(wal.join("log.next")).unwrap();
    disk.limit(Some(0));
    let why = on.logged.refusal();
    assert!(why.contains("cannot allocate") && why.contains("log.next"), "{why}");
    disk.limit(None);
    disk.cut(&mut Random(1));
    let why = on.logged.refusal();
    assert!(why.contains("disk/wal"), "{why}");
    disk.power_on();
    check(&on.logged.serve(), &mut on.ledger, "after all that");
}

// ---- directories that are not as they should be ----

/// A directory with a log, and what is in it.
struct Written {
    run: RunDir,
    wal: PathBuf,
    ledger: Ledger,
}

impl Written {
    fn new() -> Written {
        let run = RunDir::new();
        let wal = run.path().join("wal");
        Written { run, wal, ledger: Ledger::new(0, 1, true) }
    }

    fn logged(&self) -> Logged<'_> {
        logged(&self.run, &self.wal, 2, true)
    }

    /// Writes something to a server, and returns it.
    #[track_caller]
    fn write(&mut self) -> ServerProcess {
        let server = self.logged().serve();
        self.write_to(&server);
        server
    }

    #[track_caller]
    fn write_to(&mut self, server: &ServerProcess) {
        let mut session = server.session();
        let tables = Tables::open(&mut session).unwrap();
        self.ledger.verify(&mut session, &tables, "before more is written");
        for _ in 0..100 {
            self.ledger.write(&mut session, &tables).unwrap();
        }
    }

    #[track_caller]
    fn verify(&mut self, server: &ServerProcess, what: &str) {
        check(server, &mut self.ledger, what);
    }
}

#[test]
fn a_second_server_on_a_directory_is_refused_and_the_first_goes_on() {
    let _watchdog = watchdog("a second server");
    let mut written = Written::new();
    let server = written.write();
    let other = RunDir::new();
    let why = logged(&other, &written.wal, 2, true).refusal();
    assert!(why.contains("give each server a directory of its own"), "{why}");
    written.write_to(&server);
    // Nor may one take over that would write the same log.
    let mut successor = written.logged();
    successor.options.push("take-over".into());
    let why = successor.refusal();
    assert!(why.contains("end it first"), "{why}");
    written.write_to(&server);
}

#[test]
fn a_directory_with_a_log_is_served_with_it_and_as_it_was() {
    let _watchdog = watchdog("a directory with a log");
    let mut written = Written::new();
    written.write().process.kill();
    let program = ServerProgram {
        program: PROGRAM,
        directory: written.run.path(),
        shards: 2,
        memory_bytes: 256 << 20,
        take_over: false,
    };
    let mut arguments = program.arguments();
    arguments.push(format!("snapshots={}", written.wal.display()));
    let why = kelix_tests::process::Process::start(PROGRAM, &arguments).expect("refused ");
    assert!(why.contains("serve it with --wal"), "{why}");
    let why = logged(&written.run, &written.wal, 3, true).refusal();
    assert!(why.contains("has 2 shards in the log"), "{why}");
    let server = written.logged().serve();
    written.verify(&server, "after what was refused");
}

/// Nobody follows what is done where an earlier moment is served, and no answer waits for that.
#[test]
fn an_earlier_moment_is_read_where_answers_wait_for_the_disk() {
    let _watchdog = watchdog("an earlier moment");
    let mut written = Written::new();
    let mut server = written.write();
    let mut session = server.session();
    let table = session.create_table("t").unwrap();
    session.put(table, b"key", b"value").unwrap();
    server.process.kill();
    let mut logged = written.logged();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    logged.options.push(format!("until={}", now.as_secs() + 1));
    let server = logged.serve();
    let mut session = server.session();
    let table = session.table("t").unwrap();
    for path in [kelix::Path::Index, kelix::Path::Message] {
        session.set_path(path);
        let item = session.get(table, b"key").unwrap().expect("it was put");
        assert_eq!(item.value(), b"value");
        assert!(session.get(table, b"other").unwrap().is_none());
    }
    let error = session.put(table, b"key", b"new").unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::No), "{error}");
}

#[test]
fn a_place_that_is_no_directory_or_cannot_be_read_is_refused_by_name() {
    let _watchdog = watchdog("no directory");
    let run = RunDir::new();
    let file = run.path().join("file");
    std::fs::write(&file, b"no directory").unwrap();
    let why = logged(&run, &file, 1, true).refusal();
    assert!(why.contains("file"), "{why}");
    let wal = run.path().join("wal");
    std::fs::create_dir_all(wal.join("log-0000000000000001")).unwrap();
    let why = logged(&run, &wal, 1, true).refusal();
    assert!(why.contains("log-0000000000000001"), "{why}");
}

#[test]
fn a_damaged_file_is_refused_by_name_with_a_base_before_it_and_without() {
    let _watchdog = watchdog("a damaged file");
    for has_base in [false, true] {
        let mut written = Written::new();
        let mut server = written.write();
        if has_base {
            server.client().snapshot().unwrap();
        }
        server.process.kill();
        written.write().process.kill();
        written.write().process.kill();
        let files = log_files(&written.wal);
        assert_eq!(files.len(), 3);
        let kept = std::fs::read(&files[1]).unwrap();
        damage(&files[1]);
        let why = written.logged().refusal();
        let name = files[1].file_name().unwrap().to_string_lossy().into_owned();
        assert!(why.contains(&name) && why.contains("is damaged"), "{why}");
        std::fs::write(&files[1], kept).unwrap();
        let server = written.logged().serve();
        written.verify(&server, "with the file as it was");
    }
}

#[test]
fn a_torn_tail_is_left_out() {
    let _watchdog = watchdog("a torn tail");
    let run = RunDir::new();
    let wal = run.path().join("wal");
    let logged = logged(&run, &wal, 1, true);
    let mut server = logged.serve();
    let mut session = server.session();
    let table = session.create_table("t").unwrap();
    for key in 0..10u64 {
        session.put(table, &key.to_le_bytes(), &value::make(key, 1, 1000)).unwrap();
    }
    server.process.kill();
    let file = log_files(&wal).pop().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    let last = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[last - 200..].fill(0);
    std::fs::write(&file, bytes).unwrap();
    let mut server = logged.serve();
    assert!(wal_statistics(&mut server)["replayed"]["torn_bytes"].as_u64() > Some(0));
    let mut session = server.session();
    let table = session.table("t").unwrap();
    let there = (0..10u64).filter(|key| session.get(table, &key.to_le_bytes()).unwrap().is_some()).count();
    assert!((8..10).contains(&there), "{there} of 10 are there, the last one of which was torn");
    session.put(table, b"more", b"value").unwrap();
    server.process.kill();
    let server = logged.serve();
    let mut session = server.session();
    let table = session.table("t").unwrap();
    assert!(session.get(table, b"more").unwrap().is_some());
}

#[test]
fn where_the_newest_base_is_damaged_the_one_before_and_the_log_behind_it_are_used() {
    let _watchdog = watchdog("a damaged base");
    let mut written = Written::new();
    let mut server = written.write();
    for _ in 0..3 {
        server.client().snapshot().unwrap();
        server.process.kill();
        server = written.write();
    }
    server.process.kill();
    let newest = bases(&written.wal).pop().unwrap();
    assert_eq!(bases(&written.wal).len(), 2);
    damage(&newest);
    let mut server = written.logged().serve();
    written.verify(&server, "with the base before");
    let replayed = wal_statistics(&mut server)["replayed"].clone();
    let base = replayed["base"].as_str().expect("a base");
    assert_eq!(Path::new(base), bases(&written.wal)[0], "{replayed}");
    // And once more with what that server has written.
    written.write_to(&server);
    server.process.kill();
    written.verify(&written.logged().serve(), "behind the base before");
}

#[test]
fn a_namespace_may_be_added_and_not_be_left_out() {
    let _watchdog = watchdog("a namespace that is added");
    let mut written = Written::new();
    let mut server = written.write();
    server.client().snapshot().unwrap();
    written.write_to(&server);
    server.process.kill();
    let mut with = written.logged();
    with.options.push("namespace=more".into());
    let open = || {
        let credentials = kelix::Credentials::default().namespace("more");
        let client = kelix::Client::connect_with(written.run.path(), credentials).unwrap();
        client.session_with(patient()).unwrap()
    };
    let check_value = |session: &mut Session| {
        let table = session.table("t").unwrap();
        assert_eq!(session.get(table, b"key").unwrap().expect("it was put").value(), b"value");
    };
    let mut server = with.serve();
    let mut session = open();
    let table = session.create_table("t").unwrap();
    session.put(table, b"key", b"value").unwrap();
    server.process.kill();
    let mut server = with.serve();
    check_value(&mut open());
    server.process.kill();
    let why = written.logged().refusal();
    assert!(why.contains("\"more\", which is not served"), "{why}");
    let _server = with.serve();
    check_value(&mut open());
}

#[test]
fn a_server_that_ended_cleanly_begins_with_its_last_base() {
    let _watchdog = watchdog("a clean end");
    let mut written = Written::new();
    let mut server = written.write();
    assert_eq!(server.stop(), "stopped");
    let mut server = written.logged().serve();
    let replayed = wal_statistics(&mut server)["replayed"].clone();
    assert!(replayed["base"].is_string() && replayed["records"] == 0, "{replayed}");
    written.verify(&server, "after a clean end");
}
