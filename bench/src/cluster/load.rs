//! Somebody who writes one record at a time, and somebody who reads, whichever node is primary: how long
//! nothing is written, what is lost of what was acknowledged, and what is read that is older.
//!
//! Records are put in the order of their numbers, round after round, so it is known how often each was. A
//! loss lasts until the record is put the next time, so whoever writes looks at all records after each put
//! that has taken long, or was answered by another node, before it goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kelix::{Session, Table};

use super::text;
use crate::store::{key_of, number_of, numbered_value};

/// Records that are written.
const RECORDS: u64 = 1000;
/// How long a put takes at least behind which all records are looked at.
const LONG: Duration = Duration::from_millis(5);
/// How long is waited for the first write behind a failover.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at what another thread does.
const LOOKS: Duration = Duration::from_millis(1);
/// How often in a row something may fail.
const TRIES: usize = 10;

/// Where records are put and got, whichever node is primary: both go on until there is an answer.
pub(super) trait Store: Send {
    /// Puts the value of a record that carries this number.
    fn put(&mut self, record: u64, number: u64) -> Result<(), String>;
    /// The number that the value of a record carries.
    fn get(&mut self, record: u64) -> Result<Option<u64>, String>;
    /// Whether another node has answered than before, as far as is known, since somebody asked.
    fn has_moved(&mut self) -> bool {
        false
    }
}

impl Store for (Session, Table) {
    fn put(&mut self, record: u64, number: u64) -> Result<(), String> {
        self.0.put(self.1, &key_of(record), &numbered_value(record, number)).map(drop).map_err(text)
    }

    fn get(&mut self, record: u64) -> Result<Option<u64>, String> {
        let item = self.0.get(self.1, &key_of(record)).map_err(text)?;
        Ok(item.and_then(|item| number_of(item.value(), record)))
    }
}

/// What the threads tell each other, and who looks.
#[derive(Default)]
struct Told {
    ends: AtomicBool,
    rests: AtomicBool,
    /// Writes that were acknowledged, and the longest time between two of them, in nanoseconds, since
    /// somebody asked.
    written: AtomicU64,
    gap_ns: AtomicU64,
    lost: AtomicU64,
    reads: AtomicU64,
    stale: AtomicU64,
    errors: AtomicU64,
}

impl Told {
    /// Does something again that has failed, which is counted, until it has not.
    fn try_on<T>(&self, mut what: impl FnMut() -> Result<T, String>) -> Result<T, String> {
        let mut tries = 0;
        loop {
            match what() {
                Ok(done) => return Ok(done),
                Err(error) if tries == TRIES => return Err(error),
                Err(_) => {
                    tries += 1;
                    self.errors.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    fn tally(&self) -> Tally {
        let of = |count: &AtomicU64| count.load(Ordering::SeqCst);
        Tally {
            writes: of(&self.written),
            lost: of(&self.lost),
            reads: of(&self.reads),
            stale: of(&self.stale),
            errors: of(&self.errors),
        }
    }

    /// Waits while nothing is to be done. Whether it was so.
    fn rest(&self) -> bool {
        let rests = || self.rests.load(Ordering::Relaxed) && !self.ends.load(Ordering::Relaxed);
        let rested = rests();
        while rests() {
            std::thread::sleep(LOOKS);
        }
        rested
    }
}

/// The least number that a record has, if nothing is lost, after so many puts behind the first of each.
fn least(puts: u64, record: u64) -> u64 {
    puts / RECORDS + 1 + u64::from(record < puts % RECORDS)
}

/// Who writes, and the number that was acknowledged last of each record.
struct Writer<'a> {
    store: Box<dyn Store>,
    told: &'a Told,
    known: Vec<u64>,
}

impl Writer<'_> {
    /// Counts writes that were acknowledged and are not there, each once.
    fn look(&mut self) -> Result<(), String> {
        for (record, known) in (0..).zip(&mut self.known) {
            let found = self.told.try_on(|| self.store.get(record))?.unwrap_or(0);
            if found < *known {
                self.told.lost.fetch_add(*known - found, Ordering::Relaxed);
                *known = found;
            }
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), String> {
        let (mut last, mut puts) = (Instant::now(), 0);
        while !self.told.ends.load(Ordering::Relaxed) {
            if self.told.rest() {
                last = Instant::now();
            }
            let (record, number) = (puts % RECORDS, puts / RECORDS + 2);
            self.told.try_on(|| self.store.put(record, number))?;
            self.known[record as usize] = number;
            puts += 1;
            let gap = last.elapsed();
            self.told.gap_ns.fetch_max(gap.as_nanos() as u64, Ordering::Relaxed);
            if gap > LONG || self.store.has_moved() {
                self.look()?;
            }
            last = Instant::now();
            // SYNC: whoever reads finds all writes before.
            self.told.written.store(puts, Ordering::SeqCst);
        }
        self.look()
    }
}

fn read(mut store: Box<dyn Store>, told: &Told) -> Result<(), String> {
    let mut reads = 0u64;
    while !told.ends.load(Ordering::Relaxed) {
        told.rest();
        let puts = told.written.load(Ordering::SeqCst);
        let record = reads * 7919 % RECORDS;
        let found = told.try_on(|| store.get(record))?;
        if found.is_none_or(|found| found < least(puts, record)) {
            told.stale.fetch_add(1, Ordering::Relaxed);
        }
        reads += 1;
        told.reads.store(reads, Ordering::Relaxed);
        if reads % 64 == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    Ok(())
}

/// What came of it.
#[derive(Clone, Copy, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct Tally {
    pub writes: u64,
    pub lost: u64,
    pub reads: u64,
    pub stale: u64,
    /// What was not done, also not by asking again.
    pub errors: u64,
}

impl Tally {
    pub fn add(&mut self, other: Tally) {
        self.writes += other.writes;
        self.lost += other.lost;
        self.reads += other.reads;
        self.stale += other.stale;
        self.errors += other.errors;
    }

    /// In words.
    pub fn words(self) -> String {
        format!("{} writes, {} lost; {} reads, {} stale", self.writes, self.lost, self.reads, self.stale)
    }
}

/// Who writes and reads.
pub(super) struct Load {
    threads: Vec<JoinHandle<Result<(), String>>>,
    told: Arc<Told>,
}

impl Load {
    /// Has somebody write, and somebody else read.
    pub fn start(mut writer: Box<dyn Store>, reader: Box<dyn Store>) -> Result<Load, String> {
        for record in 0..RECORDS {
            writer.put(record, 1)?;
        }
        let told = Arc::<Told>::default();
        let (to_writer, to_reader) = (told.clone(), told.clone());
        let writes = std::thread::spawn(move || {
            Writer { store: writer, told: &to_writer, known: vec![1; RECORDS as usize] }.write()
        });
        let reads = std::thread::spawn(move || read(reader, &to_reader));
        Ok(Load { threads: vec![writes, reads], told })
    }

    /// Has both rest, as long as it is another one's turn, or go on.
    pub fn rest(&self, rests: bool) {
        self.told.rests.store(rests, Ordering::Relaxed);
    }

    /// From now on the longest time without a write is asked for.
    pub fn begin(&self) {
        self.told.gap_ns.store(0, Ordering::Relaxed);
    }

    /// The longest time without a write since then, in milliseconds.
    pub fn gap_ms(&self) -> f64 {
        self.told.gap_ns.load(Ordering::Relaxed) as f64 / 1e6
    }

    /// Waits until something more was written.
    pub fn wait_for_more(&self, more: u64) -> Result<(), String> {
        let written = || self.told.written.load(Ordering::SeqCst);
        let (before, began) = (written(), Instant::now());
        while written() < before + more {
            if began.elapsed() > PATIENCE || self.threads.iter().any(JoinHandle::is_finished) {
                return Err("nothing is written any more".into());
            }
            std::thread::sleep(LOOKS);
        }
        Ok(())
    }

    /// What came of it so far.
    pub fn tally(&self) -> Tally {
        self.told.tally()
    }

    /// Ends both, once all records were looked at.
    pub fn end(self) -> Result<Tally, String> {
        self.told.ends.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().map_err(|_| "a thread has panicked")??;
        }
        Ok(self.told.tally())
    }
}
