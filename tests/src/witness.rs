//! What is true of a primary and its mirrors, whatever happens between them: writers at the primary, readers
//! on mirrors, and what there is in the end.
//!
//! 1. Each value proves itself ([`crate::value`]): key, number, and what follows from both. The number of a
//!    key only grows: it counts the writer's writes, over all lives of the primary.
//! 2. A reader never sees a value that is older than one that it has seen.
//! 3. In the end a mirror has exactly what its primary has, key by key, versions included; and where the
//!    primary keeps what it acknowledged, that is what the writers were told.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kelix::{Client, Error, ErrorKind, Item, Result, Scan, Session, SessionOptions, Table, TableKind};

use crate::apart::{PATIENCE, Served};
use crate::process::patient;
use crate::{Random, until_told, until_within, value};

/// The tables.
const TABLES: [(&str, TableKind); 2] = [("hash", TableKind::Hash), ("numbers", TableKind::Numbers)];
/// Between the first numbers of keys of two writers, and of two tables.
const APART: u64 = 1 << 20;
const WRITERS_MAX: u64 = 64;
/// One key in so many comes and goes; the others stay.
const COMES_AND_GOES: u64 = 8;
/// Between two tries to reach a server that is not there.
const PAUSE: Duration = Duration::from_millis(20);
/// Between two rounds of a reader, which leaves the processor to others.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(1);

/// What writers do.
#[derive(Clone, Copy)]
pub struct Work {
    /// How many write at the same time.
    pub writers: u64,
    /// Keys that each has in each table.
    pub keys: u64,
    /// Longest value.
    pub bytes: usize,
    /// Between two writes of one.
    pub pause: Duration,
    /// The random numbers follow from it.
    pub seed: u64,
}

/// The counter of the last write of a key that was acknowledged, and those behind it whose fate is unknown;
/// `None`: a delete.
#[derive(Default, Clone, Debug)]
struct Entry {
    known: Option<u64>,
    maybe: Vec<Option<u64>>,
}

type Ledger = BTreeMap<(usize, u64), Entry>;

/// Writers at a primary.
pub struct Writers {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    threads: Vec<JoinHandle<(Writer, Vec<Duration>)>>,
}

fn key_of(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn number_of(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().expect("keys of 8 bytes"))
}

/// The first number of a writer's keys in a table.
fn first_of(table: usize, writer: u64) -> u64 {
    (table as u64 * WRITERS_MAX + writer) * APART
}

fn open(session: &mut Session) -> Result<Vec<Table>> {
    TABLES.iter().map(|(name, kind)| session.create_table_of(*kind, name)).collect()
}

struct Writer {
    run: PathBuf,
    work: Work,
    number: u64,
    random: Random,
    session: Option<(Session, Vec<Table>)>,
    ledger: Ledger,
    counter: u64,
}

impl Writer {
    fn session(&mut self) -> Result<&mut (Session, Vec<Table>)> {
        if self.session.is_none() {
            let options = patient().private_caches(true);
            let mut session = Client::connect(&*self.run)?.session_with(options)?;
            let tables = open(&mut session)?;
            self.session = Some((session, tables));
        }
        Ok(self.session.as_mut().expect("just made"))
    }

    /// Makes a write. How long it took, if it was done.
    fn write(&mut self) -> Result<Duration> {
        let table = self.random.below(TABLES.len() as u64) as usize;
        let index = self.random.below(self.work.keys);
        let number = first_of(table, self.number) + index;
        let is_delete = index % COMES_AND_GOES == 0 && self.random.once_in(3);
        let bytes = self.random.below(self.work.bytes as u64) as usize;
        self.counter += 1;
        let counter = self.counter;
        let value = (!is_delete).then(|| value::make(number, counter, bytes));
        let (session, tables) = self.session()?;
        let (of, key, began) = (tables[table], key_of(number), Instant::now());
        let written = match &value {
            Some(value) => session.put(of, &key, value).map(drop),
            None => session.delete(of, &key).map(drop),
        };
        let new = value.is_some().then_some(counter);
        let entry = self.ledger.entry((table, number)).or_default();
        match written {
            Ok(()) => *entry = Entry { known: new, maybe: Vec::new() },
            Err(error) => {
                entry.maybe.push(new);
                return Err(error);
            }
        }
        Ok(began.elapsed())
    }

    fn run(mut self, stop: &AtomicBool, done: &AtomicU64) -> (Writer, Vec<Duration>) {
        let mut times = Vec::new();
        while !stop.load(Ordering::SeqCst) {
            match self.write() {
                Ok(time) => {
                    times.push(time);
                    done.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(self.work.pause);
                }
                Err(error) => {
                    assert!(is_of_its_end(error.kind()), "a write: {error}");
                    self.session = None;
                    std::thread::sleep(PAUSE);
                }
            }
        }
        (self, times)
    }
}

/// Whether an error is one that a server which ends, has ended, or begins another life may cause.
fn is_of_its_end(kind: ErrorKind) -> bool {
    use ErrorKind::{NoSuchTable, Superseded, TimedOut, Unavailable};
    matches!(kind, NoSuchTable | Superseded | TimedOut | Unavailable)
}

impl Writers {
    /// Has writers begin at a primary, in its shared memory.
    pub fn begin(primary: &Served<'_>, work: Work) -> Writers {
        Writers::begin_behind(primary, work, &Written::default())
    }

    /// The same behind others, whose keys they go on with.
    pub fn begin_behind(primary: &Served<'_>, work: Work, others: &Written) -> Writers {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let threads = (0..work.writers).map(|number| {
            let writer = Writer {
                run: primary.run.path().to_path_buf(),
                work,
                number,
                random: Random(value::mix(work.seed) ^ number),
                session: None,
                ledger: Ledger::new(),
                counter: others.counter,
            };
            let (stop, done) = (stop.clone(), done.clone());
            std::thread::spawn(move || writer.run(&stop, &done))
        });
        Writers { threads: threads.collect(), stop, done }
    }

    /// Writes that were done so far.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    /// Waits until so many more are done.
    #[track_caller]
    pub fn until_more(&self, count: u64) {
        let before = self.done();
        until_within(PATIENCE, "writers write", || self.done() >= before + count);
    }

    /// Ends them.
    #[track_caller]
    pub fn end(self) -> Written {
        self.stop.store(true, Ordering::SeqCst);
        let mut written = Written::default();
        for thread in self.threads {
            let (writer, took) = thread.join().expect("a writer says what is wrong");
            written.ledger.extend(writer.ledger);
            written.counter = written.counter.max(writer.counter);
            written.times.extend(took);
        }
        written.times.sort_unstable();
        written
    }
}

/// What was written.
#[derive(Default)]
pub struct Written {
    ledger: Ledger,
    /// The largest number that was given.
    counter: u64,
    times: Vec<Duration>,
}

impl Written {
    /// The time that all but one in a hundred writes took at most.
    pub fn p99(&self) -> Duration {
        self.times.get(self.times.len() * 99 / 100).copied().unwrap_or_default()
    }

    /// Compares with what the primary has, which keeps what it acknowledges.
    #[track_caller]
    pub fn check(&self, primary: &Served<'_>) {
        let content = Content::of(primary).expect("a primary that serves");
        for ((table, number), entry) in &self.ledger {
            let found = content.0[*table].get(&key_of(*number)[..]);
            let found =
                found.map(|(_, value)| value::check(*number, value).expect("a value that was written"));
            let may_be = found == entry.known || entry.maybe.contains(&found);
            assert!(may_be, "key {number} of table {table}: {found:?}, and was told {entry:?}");
        }
    }
}

/// What a table has: of each key its version and its value.
type Keys = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;

/// All that a server has, table by table.
struct Content([Keys; TABLES.len()]);

impl Content {
    fn of(server: &Served<'_>) -> Result<Content> {
        let mut session = server.session(patient())?;
        let mut content = Content(Default::default());
        for ((name, _), into) in TABLES.iter().zip(&mut content.0) {
            let table = match session.table(name) {
                Err(error) if error.kind() == ErrorKind::NoSuchTable => continue,
                table => table?,
            };
            for item in session.scan(table, &Scan::all())? {
                let item = item?;
                into.insert(item.key().to_vec(), (item.version().0, item.value().to_vec()));
            }
        }
        Ok(content)
    }

    /// Reads each key by itself, from the memory of a mirror that has all of this.
    fn check_reads(&self, mirror: &Served<'_>) -> Result<()> {
        let mut session = mirror.session(patient())?;
        for ((name, _), keys) in TABLES.iter().zip(&self.0).filter(|(_, keys)| !keys.is_empty()) {
            let table = session.table(name)?;
            for (key, found) in keys {
                let item =
                    session.get(table, &key[..])?.map(|item| (item.version().0, item.value().to_vec()));
                assert!(item.as_ref() == Some(found), "{name} {key:?} is not what a scan has found");
            }
        }
        Ok(())
    }

    /// The first thing that differs.
    fn difference(&self, other: &Content) -> Option<String> {
        for (((name, _), one), other) in TABLES.iter().zip(&self.0).zip(&other.0) {
            for key in one.keys().chain(other.keys()) {
                let (one, other) = (one.get(key), other.get(key));
                if one != other {
                    let show = |it: Option<&(u64, Vec<u8>)>| {
                        it.map(|(version, value)| (*version, value.get(8..16).map(<[u8]>::to_vec)))
                    };
                    return Some(format!("{name} {key:?}: {:?} and {:?}", show(one), show(other)));
                }
            }
        }
        None
    }
}

/// Waits until a mirror has what its primary has, where nobody writes any more: all of it, and nothing else.
#[track_caller]
pub fn until_alike(primary: &Served<'_>, mirror: &Served<'_>) {
    let began = Instant::now();
    loop {
        let contents = (Content::of(primary), Content::of(mirror));
        let why = match &contents {
            (Ok(of_primary), Ok(of_mirror)) => of_primary.difference(of_mirror),
            (Err(error), _) | (_, Err(error)) => Some(error.to_string()),
        };
        let Some(why) = why else {
            let content = contents.0.expect("just compared");
            return content.check_reads(mirror).expect("a mirror that serves");
        };
        assert!(began.elapsed() < PATIENCE, "the mirror is not as its primary: {why}");
        std::thread::sleep(PAUSE);
    }
}

/// What a reader tells of itself.
#[derive(Default)]
struct Told {
    reads: AtomicU64,
    refusals: AtomicU64,
    rounds: AtomicU64,
    last: Mutex<Last>,
    /// Why it was refused a read the last time.
    refusal: Mutex<String>,
    stop: AtomicBool,
}

impl Told {
    fn note_refusal(&self, why: &Error) {
        self.refusals.fetch_add(1, Ordering::SeqCst);
        *self.refusal.lock().expect("no panic under this lock") = why.to_string();
    }
}

/// The newest value of each key that was seen.
type Last = BTreeMap<(usize, u64), u64>;

/// A reader of a mirror, in a thread of its own, with the same session as long as that lives.
pub struct Reader {
    told: Arc<Told>,
    thread: JoinHandle<()>,
}

impl Reader {
    /// Has it begin. Keys that stay are never missing once they were there, where the primary `keeps` what it
    /// has.
    pub fn begin(mirror: &Served<'_>, work: Work, options: SessionOptions, keeps: bool) -> Reader {
        let told = Arc::new(Told::default());
        let run = mirror.run.path().to_path_buf();
        let mut reading = Reading { run, work, options, keeps, session: None, told: told.clone() };
        let thread = std::thread::spawn(move || {
            while !reading.told.stop.load(Ordering::SeqCst) {
                if let Err(error) = reading.round() {
                    reading.refused(&error);
                    reading.tables_may_be_others();
                }
                reading.told.rounds.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(BETWEEN_ROUNDS);
            }
        });
        Reader { told, thread }
    }

    /// Values that it has read.
    pub fn reads(&self) -> u64 {
        self.told.reads.load(Ordering::SeqCst)
    }

    /// How often it was refused a read.
    pub fn refusals(&self) -> u64 {
        self.told.refusals.load(Ordering::SeqCst)
    }

    #[track_caller]
    fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let Told { reads, refusals, rounds, refusal, .. } = &*self.told;
        let told = || {
            format!(
                "{what}: {reads:?} reads, {refusals:?} refusals, {rounds:?} rounds; refused the last time: \
                 {refusal:?}"
            )
        };
        until_told(PATIENCE, told, || {
            assert!(!self.thread.is_finished(), "a reader has found something wrong");
            holds()
        });
    }

    /// Waits until it has read more.
    #[track_caller]
    pub fn until_more(&self) {
        let before = self.reads();
        self.until("a reader reads", || self.reads() > before + 200);
    }

    /// Waits until it is refused reads.
    #[track_caller]
    pub fn until_refused(&self) {
        let before = self.refusals();
        self.until("a reader is refused reads", || self.refusals() > before + 20);
    }

    /// Ends it, once its session has seen all that its mirror's primary has, where nobody writes any more.
    /// Returns how many values it has read.
    #[track_caller]
    pub fn end(self, primary: &Served<'_>) -> u64 {
        let content = Content::of(primary).expect("a primary that serves");
        let mut newest = Last::new();
        for (index, keys) in content.0.iter().enumerate() {
            for (key, (_, value)) in keys {
                let number = number_of(key);
                newest
                    .insert((index, number), value::check(number, value).expect("a value that was written"));
            }
        }
        self.until("a reader sees what there is", || {
            let last = self.told.last.lock().expect("a reader has found something wrong");
            newest.iter().all(|(key, newest)| last.get(key) == Some(newest))
        });
        self.told.stop.store(true, Ordering::SeqCst);
        let reads = self.reads();
        self.thread.join().expect("a reader has found something wrong");
        reads
    }
}

struct Reading {
    run: PathBuf,
    work: Work,
    options: SessionOptions,
    keeps: bool,
    session: Option<(Session, Option<Vec<Table>>)>,
    told: Arc<Told>,
}

impl Reading {
    /// The tables that it knows may be of a life that is over.
    fn tables_may_be_others(&mut self) {
        if let Some((_, tables)) = &mut self.session {
            *tables = None;
        }
    }

    fn refused(&self, error: &Error) {
        assert!(is_of_its_end(error.kind()), "a read: {error}");
        self.told.note_refusal(error);
    }

    /// Takes note of what was read of a key.
    fn note(told: &Told, table: usize, number: u64, value: Option<&[u8]>, keeps: bool) {
        told.reads.fetch_add(1, Ordering::SeqCst);
        let mut last = told.last.lock().expect("only a reader holds it that panics");
        let Some(value) = value else {
            let stays = keeps && number % APART % COMES_AND_GOES != 0;
            assert!(!stays || !last.contains_key(&(table, number)), "key {number} of table {table} is gone");
            return;
        };
        let counter = value::check(number, value).unwrap_or_else(|why| panic!("torn or mixed: {why}"));
        let last = last.entry((table, number)).or_default();
        assert!(counter >= *last, "key {number} of table {table} went back from {last} to {counter}");
        *last = counter;
    }

    /// Reads all keys once, and one table as a whole.
    fn round(&mut self) -> Result<()> {
        if self.session.is_none() {
            let options = self.options.clone().private_caches(true);
            self.session = Some((Client::connect(&*self.run)?.session_with(options)?, None));
        }
        let (session, tables) = self.session.as_mut().expect("just made");
        if tables.is_none() {
            let found: Result<Vec<Table>> = TABLES.iter().map(|(name, _)| session.table(name)).collect();
            *tables = Some(found?);
        }
        let tables = tables.clone().expect("just found");
        for (index, table) in tables.iter().enumerate() {
            let keys = (0..self.work.writers)
                .flat_map(|writer| (0..self.work.keys).map(move |key| first_of(index, writer) + key));
            for number in keys {
                match session.get(*table, &key_of(number)) {
                    Ok(item) => {
                        Reading::note(&self.told, index, number, item.as_ref().map(Item::value), self.keeps);
                    }
                    // Without a mirror what is not there is not told, and what is there is.
                    Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Superseded) => {
                        self.told.note_refusal(&error);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        for item in session.scan(tables[1], &Scan::all())? {
            let item = item?;
            Reading::note(&self.told, 1, number_of(item.key()), Some(item.value()), self.keeps);
        }
        Ok(())
    }
}
