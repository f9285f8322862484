//! Clients that note what they do and what they are told, while nodes fail: histories that the simulator's
//! checker judges at once, and another checker by way of files (`scripts/second-opinion --files`).
//!
//! All clients are threads of one process, because calls and returns are timed by one clock. Every write
//! writes another value, so that a read tells which write it saw.
//!
//! `KELIX_TEST_HISTORIES=DIRECTORY` has histories written there, with corrupted copies of each, in the format
//! of `crates/sim/src/history/lines.rs`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kelix::{CompareAndSet, Effect, Path, Result, Session, Table, TableKind, Version};
use kelix_sim::check::linear::{Judgement, judge};
use kelix_sim::history::{Action, CompareOutcome, Operation, ValueId};
use kelix_sim::opinion;

use crate::value::{self, HEAD_BYTES, mix};
use crate::{Random, until_told};

/// Keys that all clients use at a time.
const HOT_KEYS: u64 = 4;
/// The first of them, which are never deleted: a get of an absent key asks the primary, and who reads the
/// memory of a primary that stands still is to go on for as long as that primary counts.
const KEPT_KEYS: u64 = 2;
/// Corrupted copies of each history.
const CORRUPTIONS: u64 = 50;
/// How long some operations may take beside a failover.
const WITHIN: Duration = Duration::from_secs(90);
/// Bytes of a value that does not fit one message.
const LARGE_BYTES: usize = 100_000;
/// Paths by which nobody is asked for what is there.
pub const ONE_SIDED: [Path; 3] = [Path::Auto, Path::Index, Path::Pointer];
/// Keys are in these in turn.
const KINDS: [(TableKind, &str); 2] = [(TableKind::Hash, "hot hash"), (TableKind::Numbers, "hot numbers")];

/// Clients at work.
pub struct Recorder {
    seed: u64,
    clock: Instant,
    /// How often other keys have become the hot ones.
    season: Arc<AtomicU64>,
    done: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Record>>,
}

/// What a client has noted.
#[derive(Default)]
struct Record {
    operations: Vec<Operation>,
    versions: HashMap<(u64, Version), ValueId>,
    /// Positions of compare-and-sets that met another version than expected, with that version: whose value
    /// the version belongs to is perhaps known to another client only.
    mismatches: Vec<(usize, Version)>,
}

impl Recorder {
    /// Without clients as yet.
    pub fn new(seed: u64) -> Recorder {
        println!("KELIX_TEST_SEED={seed}");
        let (clock, clients) = (Instant::now(), Vec::new());
        Recorder { seed, clock, season: Arc::default(), done: Arc::default(), ends: Arc::default(), clients }
    }

    /// Starts a client that reads and writes, whose thread opens the session.
    pub fn start(&mut self, open: impl FnOnce() -> Session + Send + 'static) {
        self.start_client(open, Client::act);
    }

    /// Starts a client that only reads, by these paths: no write has the client wait for who stands still, or
    /// is cut off.
    pub fn start_reader(&mut self, paths: &'static [Path], open: impl FnOnce() -> Session + Send + 'static) {
        self.start_client(open, move |client, season| client.read(season, paths));
    }

    fn start_client(
        &mut self,
        open: impl FnOnce() -> Session + Send + 'static,
        act: impl Fn(&mut Client, u64) -> Result<()> + Send + 'static,
    ) {
        let (number, clock, seed) = (self.clients.len() as u32, self.clock, self.seed);
        let (season, done, ends) = (self.season.clone(), self.done.clone(), self.ends.clone());
        self.clients.push(std::thread::spawn(move || {
            let mut client = Client::new(number, seed, clock, open());
            while !ends.load(Ordering::SeqCst) {
                match act(&mut client, season.load(Ordering::SeqCst)) {
                    Ok(()) => drop(done.fetch_add(1, Ordering::SeqCst)),
                    // Who asks nobody again finds no primary for a while.
                    Err(_) => std::thread::sleep(Duration::from_millis(20)),
                }
                // Others need the processor, too.
                std::thread::sleep(Duration::from_micros(client.random.below(3_000)));
            }
            client.record
        }));
    }

    /// Other keys are the hot ones from now on: checkers take the more time for an operation, the more of
    /// them a key has.
    pub fn change_keys(&self) {
        self.season.fetch_add(1, Ordering::SeqCst);
    }

    /// Waits until so many more operations have ended well.
    #[track_caller]
    pub fn until_more(&self, operations: u64) {
        let done = || self.done.load(Ordering::SeqCst);
        let wanted = done() + operations;
        until_told(
            WITHIN,
            || format!("{wanted} operations have ended well: {}", done()),
            || {
                assert!(!self.clients.iter().any(JoinHandle::is_finished), "a client has ended");
                done() >= wanted
            },
        );
    }

    /// Ends the clients, reads by this session what is there in the end, and fails when no order of the
    /// operations explains what all of them were told.
    #[track_caller]
    pub fn end(self, session: Session, name: &str) {
        self.ends.store(true, Ordering::SeqCst);
        let mut last = Client::new(self.clients.len() as u32, self.seed, self.clock, session);
        let mut records: Vec<Record> =
            self.clients.into_iter().map(|client| client.join().expect("a client")).collect();
        for key in 0..(self.season.load(Ordering::SeqCst) + 1) * HOT_KEYS {
            for path in [Path::Message, Path::Index] {
                last.session.set_path(path);
                last.note(key, Action::Get { found: None }).expect("a primary that is read");
            }
        }
        records.push(last.record);
        let history = merge(records);
        let unknown = history.iter().filter(|operation| operation.returned_ns.is_none()).count();
        println!("{name}: {} operations, {unknown} of them with unknown outcomes", history.len());
        if let Some(directory) = std::env::var_os("KELIX_TEST_HISTORIES").map(PathBuf::from) {
            opinion::write(&directory, (name, self.seed), &history, CORRUPTIONS).unwrap();
        }
        match judge(&history) {
            Judgement::Linearizable => {}
            Judgement::Not(finding) => panic!("{name}: {finding}"),
            Judgement::Undecided(finding) => println!("{name}: {finding}"),
        }
    }
}

/// All operations, with the values that compare-and-sets found. One whose found version nobody ever learnt
/// the value of says nothing that could be checked.
fn merge(records: Vec<Record>) -> Vec<Operation> {
    let versions: HashMap<(u64, Version), ValueId> =
        records.iter().flat_map(|record| record.versions.clone()).collect();
    let mut history = Vec::new();
    for Record { mut operations, mismatches, .. } in records {
        for (position, version) in mismatches.into_iter().rev() {
            match (versions.get(&(operations[position].key, version)), &mut operations[position].action) {
                (Some(found), Action::CompareAndSet { outcome, .. }) => {
                    *outcome = Some(CompareOutcome::Mismatch(Some(*found)));
                }
                _ => drop(operations.remove(position)),
            }
        }
        history.extend(operations);
    }
    history
}

struct Client {
    number: u32,
    clock: Instant,
    session: Session,
    tables: [Table; 2],
    random: Random,
    /// Values written so far.
    values: u64,
    /// What the client last knew of keys.
    seen: HashMap<u64, (Version, ValueId)>,
    record: Record,
}

impl Client {
    fn new(number: u32, seed: u64, clock: Instant, mut session: Session) -> Client {
        let tables = KINDS.map(|(kind, name)| session.create_table_of(kind, name).expect("a table"));
        let random = Random(mix(seed) ^ u64::from(number));
        let (seen, record) = (HashMap::new(), Record::default());
        Client { number, clock, session, tables, random, values: 0, seen, record }
    }

    fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    fn new_value(&mut self) -> ValueId {
        self.values += 1;
        ValueId(u64::from(self.number) << 32 | self.values)
    }

    /// The bytes of a value, a few of which come in pieces.
    fn bytes_of(key: u64, id: ValueId) -> Vec<u8> {
        let chance = mix(id.0);
        let bytes = if chance % 50 == 0 { LARGE_BYTES } else { HEAD_BYTES + (chance >> 16) as usize % 600 };
        value::make(key, id.0, bytes)
    }

    /// Does one thing to one of the keys that are hot.
    fn act(&mut self, season: u64) -> Result<()> {
        let hot = self.random.below(HOT_KEYS);
        let (key, may_delete) = (season * HOT_KEYS + hot, hot >= KEPT_KEYS);
        let path = ONE_SIDED.get(self.random.below(4) as usize).copied().unwrap_or(Path::Message);
        self.session.set_path(path);
        let expected = self.seen.get(&key).map(|(_, id)| *id);
        let action = match self.random.below(10) {
            0..=3 => Action::Get { found: None },
            4..=5 => Action::Put { value: self.new_value() },
            6 if may_delete => Action::Delete { was_there: None },
            7 if may_delete && expected.is_some() => {
                Action::CompareAndSet { expected, value: None, outcome: None }
            }
            _ => Action::CompareAndSet { expected, value: Some(self.new_value()), outcome: None },
        };
        self.note(key, action)
    }

    /// Reads one of the hot keys that are never deleted.
    fn read(&mut self, season: u64, paths: &[Path]) -> Result<()> {
        self.session.set_path(paths[self.random.below(paths.len() as u64) as usize]);
        let key = season * HOT_KEYS + self.random.below(KEPT_KEYS);
        self.note(key, Action::Get { found: None })
    }

    /// Does this, and notes how it went. A read that failed, and a write that failed and had no effect, are
    /// not noted.
    fn note(&mut self, key: u64, action: Action) -> Result<()> {
        let (client, called_ns) = (self.number, self.now_ns());
        let noted = Operation { client, key, called_ns, returned_ns: None, action: action.clone() };
        self.record.operations.push(noted);
        let result = self.call(key, &action);
        let returned_ns = self.now_ns();
        match &result {
            Ok(answered) => {
                let noted = self.record.operations.last_mut().expect("just noted");
                (noted.returned_ns, noted.action) = (Some(returned_ns), answered.clone());
            }
            Err(error) if error.effect() == Effect::No || matches!(action, Action::Get { .. }) => {
                self.record.operations.pop();
            }
            Err(_) => {}
        }
        result.map(drop)
    }

    /// Calls the session. The action with its answer.
    fn call(&mut self, key: u64, action: &Action) -> Result<Action> {
        let table = self.tables[key as usize % KINDS.len()];
        match *action {
            Action::Get { .. } => {
                let item = self.session.get(table, key)?;
                let Some(item) = item else {
                    self.seen.remove(&key);
                    return Ok(Action::Get { found: None });
                };
                let id = value::check(key, item.value()).unwrap_or_else(|what| panic!("{what}"));
                self.learn(key, item.version(), ValueId(id));
                Ok(Action::Get { found: Some(ValueId(id)) })
            }
            Action::Put { value } => {
                let version = self.session.put(table, key, &Client::bytes_of(key, value))?;
                self.learn(key, version, value);
                Ok(action.clone())
            }
            Action::Delete { .. } => {
                let was_there = self.session.delete(table, key)?;
                self.seen.remove(&key);
                Ok(Action::Delete { was_there: Some(was_there) })
            }
            Action::CompareAndSet { expected, value, .. } => {
                let version = self.seen.get(&key).map(|(version, _)| *version);
                let answer = match (value, version) {
                    (None, Some(version)) => self.session.compare_and_delete(table, key, version)?,
                    (value, version) => {
                        let bytes = Client::bytes_of(key, value.expect("who deletes expects a value"));
                        self.session.compare_and_set(table, key, version, &bytes)?
                    }
                };
                self.seen.remove(&key);
                let outcome = match answer {
                    CompareAndSet::Done(version) => {
                        version.into_iter().zip(value).for_each(|(version, id)| self.learn(key, version, id));
                        CompareOutcome::Done
                    }
                    CompareAndSet::Mismatch(found) => {
                        let position = self.record.operations.len() - 1;
                        self.record.mismatches.extend(found.map(|version| (position, version)));
                        CompareOutcome::Mismatch(None)
                    }
                };
                Ok(Action::CompareAndSet { expected, value, outcome: Some(outcome) })
            }
        }
    }

    /// A version of a key belongs to one value.
    fn learn(&mut self, key: u64, version: Version, id: ValueId) {
        self.seen.insert(key, (version, id));
        let before = self.record.versions.insert((key, version), id);
        assert!(
            before.is_none_or(|before| before == id),
            "{version:?} of key {key} is that of {before:?} and {id}"
        );
    }
}
