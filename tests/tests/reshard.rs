//! A store gets another number of shards: what it had is there again, whatever ends the program that does it.
//!
//! The program stands still at each step until it is told to go on, so that each test ends it where it means
//! to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use kelix::{Attribute, CompareAndSet, Credentials, NewItem, NewTable, Scan, Session, TableKind, Version};
use kelix_tests::disk::{Disk, Fault};
use kelix_tests::ledger::{Ledger, Tables};
use kelix_tests::logged::Logged;
use kelix_tests::process::{Process, ServerProcess, patient};
use kelix_tests::raw::RawSession;
use kelix_tests::{Random, RunDir, value, watchdog};
use kelix_types::{TableId, key_hash};
use kelix_wire::control::Caller;
use kelix_wire::{Op, RequestHead, Sequence, Status};

const PROGRAM: &str = env!("CARGO_BIN_EXE_kelix-test-server");
const RESHARD: &str = env!("CARGO_BIN_EXE_kelix-test-reshard");
/// At which the program stands still, in their order.
const STEPS: [&str; 9] =
    ["Read", "Carried(", "Begun", "Writing(", "BaseWritten", "Written", "Verified", "Named", "Exchanged"];
/// Items that link to one another.
const RING: u64 = 60;
/// Tables of plain values.
const PLAIN: [(TableKind, &str); 4] = [
    (TableKind::Hash, "plain hash"),
    (TableKind::Strings, "plain strings"),
    (TableKind::Numbers, "plain numbers"),
    (TableKind::Inline, "plain inline"),
];

fn logged<'a>(run: &'a RunDir, wal: &'a Path, shards: usize) -> Logged<'a> {
    Logged { program: PROGRAM, run, wal, shards, commits: true, listen: None, options: Vec::new() }
}

// ---- the program ----

struct Resharding(Process);

impl Resharding {
    fn start(wal: &Path, shards: usize) -> Resharding {
        Resharding(Process::start(RESHARD, &[wal.display().to_string(), shards.to_string()]))
    }

    fn of_namespace(wal: &Path, shards: usize, name: &str) -> Resharding {
        Resharding(Process::start(RESHARD, &[wal.display().to_string(), shards.to_string(), name.into()]))
    }

    /// Lets it go on until it stands still at a step.
    #[track_caller]
    fn until(&mut self, wanted: &str) {
        loop {
            let line = self.0.line().unwrap_or_default();
            let step = line.strip_prefix("step ").unwrap_or_else(|| panic!("before {wanted}: {line}"));
            if step.starts_with(wanted) {
                return;
            }
            self.0.say("");
        }
    }

    /// Lets it go on to its end, and returns what it says then.
    #[track_caller]
    fn end(mut self) -> String {
        loop {
            let line = self.0.line().expect("its last word");
            if !line.starts_with("step ") {
                return line;
            }
            self.0.say("");
        }
    }

    #[track_caller]
    fn done(self) -> u64 {
        let line = self.end();
        let keys = line.strip_prefix("done ").unwrap_or_else(|| panic!("it is not done: {line}"));
        keys.parse().expect("a number of keys")
    }

    #[track_caller]
    fn refused(self) -> String {
        let line = self.end();
        line.strip_prefix("refused ").unwrap_or_else(|| panic!("it is not refused: {line}")).to_string()
    }
}

fn beside(wal: &Path, ending: &str) -> PathBuf {
    let mut name = wal.as_os_str().to_os_string();
    name.push(ending);
    name.into()
}

fn before(wal: &Path) -> PathBuf {
    beside(wal, ".before-reshard")
}

fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

/// Names and lengths of all files.
fn files(directory: &Path) -> BTreeMap<PathBuf, u64> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.path(), entry.metadata().unwrap().len())).collect()
}

// ---- what a store has ----

/// An item, but for its key: version, expiry, flags, and attributes with links.
type Row = (Vec<u8>, Version, Option<SystemTime>, u32, Vec<(String, Vec<u8>)>);

/// For each table its number, and its keys with all that they have, in the order in which a scan has them; by
/// their keys where there is none.
type Picture = BTreeMap<String, (TableId, Vec<Row>)>;

fn picture(session: &mut Session) -> Picture {
    let names: BTreeSet<String> = session.tables().unwrap().into_iter().collect();
    names.into_iter().map(|name| (name.clone(), rows(session, &name))).collect()
}

fn rows(session: &mut Session, name: &str) -> (TableId, Vec<Row>) {
    let table = session.table(name).unwrap();
    let mut rows = Vec::new();
    for item in session.scan(table, &Scan::all()).unwrap() {
        let item = item.unwrap();
        let attributes = item.attributes().into_iter().map(|(name, attribute)| match attribute {
            Attribute::Bytes(bytes) => (name.to_string(), bytes.to_vec()),
            Attribute::Link(link) => {
                (name.to_string(), [&link.table.0.to_le_bytes()[..], link.key, b":", link.bytes].concat())
            }
        });
        let attributes = attributes.collect();
        rows.push((item.key().to_vec(), item.version(), item.expires(), item.flags(), attributes));
    }
    if table.kind() == TableKind::Hash {
        rows.sort_by(|one, other| one.0.cmp(&other.0));
    }
    (table.id(), rows)
}

fn mark(number: u64) -> NewItem {
    NewItem::new().bytes("mark", &number.to_le_bytes())
}

fn later() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(4_000_000_000)
}

/// Loads a generation of a dataset.
fn load(session: &mut Session, number: u64) {
    let tables = [
        NewTable::new("people", TableKind::Hash).overlay(true),
        NewTable::new("names", TableKind::Strings),
        NewTable::new("years", TableKind::Inline),
    ];
    let mut build = session.build("company", &tables).unwrap();
    for key in 0..200u64 {
        build.put_item(0, &key.to_le_bytes(), &mark(number)).unwrap();
        build.put(1, format!("name {key:03}").as_bytes(), &number.to_le_bytes()).unwrap();
        build.put(2, &key.to_be_bytes(), &(number * key).to_le_bytes()).unwrap();
    }
    build.finish().unwrap();
}

/// Puts something of every kind.
fn fill(session: &mut Session, ledger: &mut Ledger) {
    let tables = Tables::open(session).unwrap();
    for _ in 0..800 {
        ledger.write(session, &tables).unwrap();
    }
    let ring = session.create_table("ring").unwrap();
    let strings = session.create_table_of(TableKind::Strings, "strings").unwrap();
    for number in 0..RING {
        let next = (number + 1) % RING;
        let name = format!("string {number:03}").into_bytes();
        let item =
            mark(number).link_with("next", ring, &next.to_be_bytes(), b"edge").link("name", strings, &name);
        session.put_item(ring, &number.to_be_bytes(), &item).unwrap();
        session.put_item(strings, &name, &mark(number).link("item", ring, &number.to_be_bytes())).unwrap();
    }
    for (kind, name) in PLAIN {
        let table = session.create_table_of(kind, name).unwrap();
        for number in 0..30u64 {
            session.put(table, &number.to_be_bytes(), &number.to_le_bytes()).unwrap();
        }
    }
    let items = session.create_table("items").unwrap();
    session.put_item(items, b"later", &mark(1).expires_at(later()).flags(7)).unwrap();
    session.put_item(items, b"flags", &mark(2).flags(0xffff_fff0)).unwrap();
    session.put_item(strings, b"later", &mark(3).expires_at(later())).unwrap();
    let large = value::make(1, 1, 3 << 20);
    session.put(items, b"large", &large).unwrap();
    let item = NewItem::new().bytes("", &large).link("next", ring, &0u64.to_be_bytes()).flags(3);
    session.put_item(items, b"large item", &item.expires_at(later())).unwrap();
    session.put(items, b"nothing", b"").unwrap();
    let dropped = session.create_table("dropped").unwrap();
    for key in 0..100u64 {
        session.put(dropped, &key.to_le_bytes(), b"dropped").unwrap();
    }
    assert!(session.drop_table("dropped").unwrap());
    load(session, 1);
    load(session, 2);
    let people = session.table("people").unwrap();
    session.put_item(people, b"of a client", &mark(9)).unwrap();
}

/// Follows links, each to its target.
#[track_caller]
fn check_links(session: &mut Session) {
    let ring = session.table("ring").unwrap();
    for number in 0..RING {
        let item = session.get(ring, &number.to_be_bytes()).unwrap().expect("an item of the ring");
        let next = session.follow(&item, "next").unwrap().expect("the next one");
        assert_eq!(next.key(), ((number + 1) % RING).to_be_bytes());
        let name = session.follow(&item, "name").unwrap().expect("its name");
        assert_eq!(name.bytes("mark"), Some(&number.to_le_bytes()[..]));
        let back = session.follow(&name, "item").unwrap().expect("the item again");
        assert_eq!((back.key(), back.version()), (item.key(), item.version()));
    }
    let items = session.table("items").unwrap();
    let large = session.get(items, b"large item").unwrap().expect("a large item");
    assert_eq!(value::check(1, large.value()), Ok(1));
    assert!(session.follow(&large, "next").unwrap().is_some());
}

/// Whether versions that a client held from before are good for writes, and others are not.
#[track_caller]
fn check_versions(session: &mut Session, before: &Picture) {
    for (_, name) in PLAIN {
        let table = session.table(name).unwrap();
        let (_, rows) = &before[name];
        assert_eq!(rows.len(), 30, "{name}");
        for (key, version, ..) in rows {
            let mut set = |expected: Version| {
                session.compare_and_set(table, key, Some(expected), &(1u64 << 40).to_le_bytes()).unwrap()
            };
            assert!(matches!(set(Version(version.0 ^ 1)), CompareAndSet::Mismatch(_)), "{name}");
            assert!(matches!(set(*version), CompareAndSet::Done(_)), "{name}");
            assert!(matches!(set(Version(version.0 ^ 1)), CompareAndSet::Mismatch(_)), "{name}");
        }
    }
}

fn more(server: &RunDir) -> Session {
    let client =
        kelix::Client::connect_with(server.path(), Credentials::default().namespace("more")).unwrap();
    client.session_with(patient()).unwrap()
}

// ---- what is there afterwards ----

/// From 1 shard to 3, and on to 2: everything is as it was, and goes on from there.
#[test]
fn everything_is_there_with_another_number_of_shards() {
    let _watchdog = watchdog("another number of shards");
    let run = RunDir::new();
    let wal = run.path().join("wal");
    let mut ledger = Ledger::new(0, 1, true);
    let mut one = logged(&run, &wal, 1);
    one.options.push("namespace=more".into());
    let mut server = one.serve();
    let mut session = server.session();
    fill(&mut session, &mut ledger);
    let table = more(&run).create_table("t").unwrap();
    more(&run).put(table, b"key", b"of another namespace").unwrap();
    let mut pictures = (picture(&mut session), picture(&mut more(&run)));
    // What is being loaded is gone.
    let mut build = session.build("company", &[NewTable::new("people", TableKind::Hash)]).unwrap();
    build.put_item(0, &7u64.to_le_bytes(), &mark(3)).unwrap();
    let paused = build.pause();
    server.process.kill();
    drop(paused);

    for (shards, ends) in [(3, false), (2, true)] {
        let what = format!("{shards} shards");
        let mut new = logged(&run, &wal, shards);
        new.options.push("namespace=more".into());
        let why = new.refusal();
        let told = format!("kelix wal reshard {} --shards {shards}", wal.display());
        assert!(why.contains(&told), "{why}");
        let keys = Resharding::start(&wal, shards).done();
        let known = pictures.0.values().chain(pictures.1.values());
        // A generation before the last one may be there for a moment.
        assert!(keys >= known.map(|(_, rows)| rows.len() as u64).sum::<u64>(), "{what}");
        std::fs::remove_dir_all(before(&wal)).unwrap();
        let why = new.refusal();
        let told = format!("kelix --namespace more wal reshard {} --shards {shards}", wal.display());
        assert!(why.contains(&told), "{why}");
        assert_eq!(Resharding::of_namespace(&wal, shards, "more").done(), keys);
        std::fs::remove_dir_all(before(&wal)).unwrap();

        let mut server = new.serve();
        let mut session = server.session();
        assert_eq!(RawSession::open(run.path()).shards.len(), shards);
        assert!(picture(&mut session) == pictures.0, "{what}: not all is as it was");
        assert!(picture(&mut more(&run)) == pictures.1, "{what}: not all is as it was");
        check_links(&mut session);
        check_versions(&mut session, &pictures.0);
        let numbers: BTreeSet<TableId> = pictures.0.values().map(|(id, _)| *id).collect();
        let new_table = session.create_table(&format!("new of {shards}")).unwrap();
        assert!(!numbers.contains(&new_table.id()), "{what}: a number was given again");
        session.put_item(new_table, b"key", &NewItem::new().bytes("a new name", b"bytes")).unwrap();
        load(&mut session, 3);
        let people = session.table("people").unwrap();
        let of_client = session.get(people, b"of a client").unwrap();
        assert!(of_client.is_some(), "{what}: what a client wrote is not in the next generation");
        let tables = Tables::open(&mut session).unwrap();
        ledger.verify(&mut session, &tables, &what);
        for _ in 0..100 {
            ledger.write(&mut session, &tables).unwrap();
        }
        pictures = (picture(&mut session), picture(&mut more(&run)));
        if ends {
            assert_eq!(server.stop(), "stopped");
        } else {
            server.process.kill();
        }
        let mut server = new.serve();
        let mut session = server.session();
        assert!(picture(&mut session) == pictures.0, "{what}: not all is there in the server after");
        check_links(&mut session);
        server.process.kill();
    }
}

/// A write that was answered before is not done once more, nor is one of which nothing is known.
#[test]
fn what_is_asked_again_of_new_shards_is_not_done_twice() {
    let _watchdog = watchdog("asking new shards again");
    let run = RunDir::new();
    let wal = run.path().join("wal");
    let mut server = logged(&run, &wal, 1).serve();
    let table = server.session().create_table("t").unwrap().id();
    let caller = |again: bool| Some(Caller { number: 77, again });
    let asked = |number: u64, again: bool| RequestHead {
        sequence: Some(Sequence { number, again }),
        ..RequestHead::new(Op::Put, 1, table)
    };
    let mut session = RawSession::open_as(run.path(), caller(false));
    for number in 1..=20u64 {
        let status = session.call(0, asked(number, false), &number.to_le_bytes(), b"the first time");
        assert_eq!(status, Status::Ok);
    }
    server.process.kill();
    Resharding::start(&wal, 3).done();
    let server = logged(&run, &wal, 3).serve();
    let mut session = RawSession::open_as(run.path(), caller(true));
    for number in 1..=40u64 {
        let key = number.to_le_bytes();
        let shard = session.view.shard_of(table, key_hash(session.view.hash_seed, table, &key));
        let status = session.call(shard, asked(number, true), &key, b"once more");
        assert_eq!(status, Status::Forgotten, "write {number}");
    }
    let mut session = server.session();
    let table = session.table("t").unwrap();
    for number in 1..=40u64 {
        let item = session.get(table, &number.to_le_bytes()).unwrap();
        let value = item.as_ref().map(|item| item.value());
        assert_eq!(value, (number <= 20).then_some(&b"the first time"[..]), "write {number}");
    }
}

/// Where only snapshots are kept, too.
#[test]
fn snapshots_without_a_log_get_another_number_of_shards() {
    let _watchdog = watchdog("snapshots and another number of shards");
    let run = RunDir::new();
    let kept = run.path().join("kept");
    let program = |shards: usize| kelix_tests::process::ServerProgram {
        program: PROGRAM,
        directory: run.path(),
        shards,
        memory_bytes: 256 << 20,
        take_over: false,
    };
    let serve = |shards: usize| {
        let mut arguments = program(shards).arguments();
        arguments.push(format!("snapshots={}", kept.display()));
        program(shards).serving(Process::start(PROGRAM, &arguments))
    };
    let mut server = serve(2);
    let mut ledger = Ledger::new(0, 1, true);
    fill(&mut server.session(), &mut ledger);
    let known = picture(&mut server.session());
    assert_eq!(server.stop(), "stopped");
    Resharding::start(&kept, 5).done();
    assert!(files(&kept).keys().all(|path| !path.to_string_lossy().contains("log-")));
    let mut server = serve(5);
    assert!(picture(&mut server.session()) == known, "not all is as it was");
    assert_eq!(server.stop(), "stopped");
}

/// The new log begins behind something, so nobody takes it for one that goes back to when there was nothing.
#[test]
fn moments_before_new_shards_are_refused() {
    let _watchdog = watchdog("moments before new shards");
    let run = RunDir::new();
    let wal = run.path().join("wal");
    let mut server = logged(&run, &wal, 1).serve();
    server.session().create_table("t").unwrap();
    server.process.kill();
    Resharding::start(&wal, 3).done();
    let mut until = logged(&run, &wal, 3);
    until.options.push("until=1000000000".into());
    for what in ["before a server wrote", "after one did"] {
        let why = until.refusal();
        assert!(why.contains("is not kept any more"), "{what}: {why}");
        let mut server = logged(&run, &wal, 3).serve();
        assert!(server.session().table("t").is_ok());
        server.process.kill();
    }
}

// ---- what ends it ----

/// A directory with a log of one shard, and what a server has of it.
struct Written {
    run: RunDir,
    known: Picture,
}

impl Written {
    /// In this directory.
    fn at(wal: &Path) -> Written {
        let run = RunDir::new();
        let mut server = logged(&run, wal, 1).serve();
        let mut session = server.session();
        fill(&mut session, &mut Ledger::new(0, 1, true));
        // Most of it is in a base.
        server.client().snapshot().unwrap();
        let table = session.table("items").unwrap();
        session.put(table, b"behind the base", b"value").unwrap();
        let known = picture(&mut session);
        server.process.kill();
        Written { run, known }
    }

    fn serve(&self, wal: &Path, shards: usize) -> ServerProcess {
        logged(&self.run, wal, shards).serve()
    }

    /// Whether a directory has all that was written, and with which of these numbers of shards.
    #[track_caller]
    fn check(&self, wal: &Path, what: &str) -> usize {
        let why = logged(&self.run, wal, 2).refusal();
        let shards = if why.contains("has 3 shards") { 3 } else { 1 };
        let mut server = self.serve(wal, shards);
        assert!(picture(&mut server.session()) == self.known, "{what}: not all is as it was");
        server.process.kill();
        shards
    }
}

/// Killed at any step it leaves a directory that a server begins with, and can be done once more.
#[test]
fn a_kill_at_any_step_leaves_the_old_store_or_the_new_one() {
    let _watchdog = watchdog("kills while shards are made anew");
    let place = RunDir::new();
    let original = place.path().join("original");
    let written = Written::at(&original);
    for (number, step) in STEPS.into_iter().enumerate() {
        let wal = place.path().join(format!("wal-{number}"));
        copy_directory(&original, &wal);
        let mut resharding = Resharding::start(&wal, 3);
        resharding.until(step);
        // What is in use is nobody else's, by both names.
        let why = logged(&written.run, &wal, 1).refusal();
        assert!(why.contains("give each server a directory of its own"), "at {step}: {why}");
        assert!(Resharding::start(&wal, 2).refused().contains("is in use"), "at {step}");
        resharding.0.kill();
        let shards = written.check(&wal, step);
        assert_eq!(shards, if step == "Exchanged" { 3 } else { 1 }, "killed at {step}");
        if matches!(step, "Named" | "Exchanged") {
            let why = Resharding::start(&wal, 2).refused();
            assert!(why.contains("before-reshard is there"), "{why}");
            std::fs::remove_dir_all(before(&wal)).unwrap();
        }
        if shards == 1 {
            Resharding::start(&wal, 3).done();
            assert_eq!(written.check(&wal, step), 3);
        }
        assert!(!beside(&wal, ".reshard").exists(), "something is left of the attempt that was killed");
    }
}

/// The same where the disk loses power, and whatever it had not made durable by then.
#[test]
fn a_power_cut_at_any_step_leaves_the_old_store_or_the_new_one() {
    let _watchdog = watchdog("power cuts while shards are made anew");
    let place = RunDir::new();
    let Some(disk) = Disk::mount_in(&place) else { return };
    let original = place.path().join("original");
    let written = Written::at(&original);
    let mut found = BTreeSet::new();
    for (number, step) in STEPS.into_iter().enumerate() {
        for seed in 0..3 {
            let wal = disk.path().join(format!("wal-{number}-{seed}"));
            copy_directory(&original, &wal);
            files(&wal).keys().chain([&wal, &disk.path().to_path_buf()]).for_each(|path| {
                std::fs::File::open(path).unwrap().sync_all().unwrap();
            });
            let mut resharding = Resharding::start(&wal, 3);
            resharding.until(step);
            disk.cut(&mut Random(seed));
            resharding.0.kill();
            disk.power_on();
            let shards = written.check(&wal, &format!("cut at {step}, seed {seed}"));
            assert!(shards == 1 || step == "Exchanged", "cut at {step}");
            found.insert((step, shards));
        }
    }
    assert!(found.contains(&("Exchanged", 1)) && found.contains(&("Exchanged", 3)), "{found:?}");
    // And once it is done.
    for seed in 0..3 {
        let name = format!("wal-{seed}");
        let wal = disk.path().join(&name);
        copy_directory(&original, &wal);
        Resharding::start(&wal, 3).done();
        assert!(disk.was_without(&format!("{name}.reshard")) && !disk.was_without(&name));
        disk.cut(&mut Random(seed));
        disk.power_on();
        assert_eq!(written.check(&wal, "cut behind its end"), 3);
    }
}

/// A disk that is full, or fails, leaves the directory as it was.
#[test]
fn a_disk_that_is_full_or_fails_changes_nothing() {
    let _watchdog = watchdog("disks that fail while shards are made anew");
    let place = RunDir::new();
    let Some(disk) = Disk::mount_in(&place) else { return };
    let wal = disk.path().join("wal");
    let written = Written::at(&wal);
    let as_it_was = files(&wal);
    disk.limit(Some(1 << 20));
    let why = Resharding::start(&wal, 3).refused();
    assert!(why.contains("are free: nothing was changed"), "{why}");
    assert_eq!(files(disk.path()).len(), 1, "something was begun");
    disk.limit(None);
    for (fault, prefix) in [
        (Fault::Write, ""),
        (Fault::Sync, ""),
        (Fault::Write, "log"),
        (Fault::Sync, "log"),
        (Fault::Write, "store"),
        (Fault::Sync, "store"),
    ] {
        disk.fail(fault, prefix);
        let why = Resharding::start(&wal, 3).refused();
        assert!(disk.has_failed() && why.contains("wal.reshard"), "{fault:?} {prefix}: {why}");
        assert_eq!(files(disk.path()).len(), 1, "{fault:?} {prefix}: something is left");
        assert_eq!(files(&wal), as_it_was, "{fault:?} {prefix}");
    }
    assert_eq!(written.check(&wal, "on a disk that failed"), 1);
}

// ---- what is refused ----

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let _watchdog = watchdog("refusals");
    let place = RunDir::new();
    let wal = place.path().join("wal");
    let written = Written::at(&wal);
    let refused = |wal: &Path, shards: usize, wanted: &str| {
        let why = Resharding::start(wal, shards).refused();
        assert!(why.contains(wanted), "{wanted}: {why}");
        assert!(!beside(wal, ".reshard").exists() && !before(wal).exists(), "{wanted}");
    };
    let mut server = written.serve(&wal, 1);
    refused(&wal, 3, "is in use by the server of");
    assert!(picture(&mut server.session()) == written.known);
    server.process.kill();
    let as_it_was = files(&wal);
    refused(&wal, 1, "has 1 shards in");
    refused(&wal, 0, "choose 1 to 64");
    refused(&wal, 65, "choose 1 to 64");
    let why = Resharding::of_namespace(&wal, 3, "nobody").refused();
    assert!(why.contains("has no namespace \"nobody\", but default"), "{why}");
    refused(&place.path().join("nowhere"), 3, "nowhere");
    let empty = place.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    refused(&empty, 3, "neither a log nor a snapshot");
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0);
    std::fs::write(wal.join("notes.txt"), b"somebody's").unwrap();
    refused(&wal, 3, "notes.txt is no file of the store");
    std::fs::remove_file(wal.join("notes.txt")).unwrap();
    std::fs::write(beside(&wal, ".reshard"), b"somebody's").unwrap();
    let why = Resharding::start(&wal, 3).refused();
    assert!(why.contains("is in the way"), "{why}");
    std::fs::remove_file(beside(&wal, ".reshard")).unwrap();
    assert_eq!(files(&wal), as_it_was);
    // A log that is damaged, of which there is a file behind.
    let mut server = written.serve(&wal, 1);
    server.process.kill();
    let logs: Vec<PathBuf> =
        files(&wal).into_keys().filter(|path| path.to_string_lossy().contains("log-")).collect();
    let damaged = &logs[logs.len() - 2];
    let good = std::fs::read(damaged).unwrap();
    let mut bad = good.clone();
    let last = bad.iter().rposition(|byte| *byte != 0).expect("batches");
    bad[last - 8..=last].iter_mut().for_each(|byte| *byte ^= 0x55);
    std::fs::write(damaged, bad).unwrap();
    refused(&wal, 3, "is damaged");
    std::fs::write(damaged, good).unwrap();
    assert_eq!(written.check(&wal, "after all that"), 1);
}
