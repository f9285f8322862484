//! The mixes of YCSB, as XStore's section 6 has them, and of a production trace: ours beside LMDB and Redis.
//!
//! One client each, with the same operations in the same order, in batches of the size that is best for each.
//! What is put by a batch is not read by the same batch. Redis has the values in plain keys and the order in
//! a sorted set; its scans bring keys without values, and its updates leave the sorted set alone, both in its
//! favour.

use std::time::{Duration, Instant};

use kelix::{Path, Rows, Scan, TableKind};

use super::redis::Redis;
use super::rpc::{New, number_of};
use super::tree::{Reader, Tree, check, key_of, text};
use super::{SIZES, Size, better, keys, lmdb};
use crate::lmdb::Environment;
use crate::store::Numbers;
use kelix_report::cores::{pin, unpin};
use kelix_report::interleave::{compared, median, take_turns};
use kelix_report::report::Row;

/// Operations that are drawn.
const DRAWN: usize = 1 << 16;
/// Operations of one call.
const CALL: usize = 1 << 10;
/// For how long each size is tried, for each round of the row.
const TRIAL: Duration = Duration::from_millis(2);
/// Longest scan.
const SCAN_KEYS: u64 = 100;
/// How many times better than the better of the others.
const WANTED: f64 = 2.0;

/// Of a hundred operations so many of each kind; the others read a value and put it anew.
struct Mix {
    id: &'static str,
    reads: u64,
    updates: u64,
    inserts: u64,
    scans: u64,
}

const fn mix(id: &'static str, [reads, updates, inserts, scans, modifies]: [u64; 5]) -> Mix {
    assert!(reads + updates + inserts + scans + modifies == 100);
    Mix { id, reads, updates, inserts, scans }
}

const MIXES: [Mix; 7] = [
    mix("a", [50, 50, 0, 0, 0]),
    mix("b", [90, 10, 0, 0, 0]),
    mix("c", [100, 0, 0, 0, 0]),
    mix("d", [95, 0, 5, 0, 0]),
    mix("e", [0, 0, 5, 95, 0]),
    mix("f", [50, 0, 0, 0, 50]),
    mix("production", [41, 57, 0, 2, 0]),
];

/// What is done together. But for new numbers it is made before anything is measured.
#[derive(Clone, Default)]
struct Batch {
    /// Numbers to read, and after them those to read and put anew, with their keys.
    reads: Vec<u64>,
    keys: Vec<[u8; 8]>,
    modifies: usize,
    updates: Vec<u64>,
    inserts: Vec<u64>,
    /// How many numbers are to be new.
    new: usize,
    /// Where scans begin, and how many keys they bring.
    scans: Vec<(u64, usize)>,
}

impl Batch {
    /// What is put before the reads are known.
    fn puts(&self) -> impl Iterator<Item = u64> {
        self.updates.iter().chain(&self.inserts).copied()
    }

    fn modified(&self) -> &[u64] {
        &self.reads[self.reads.len() - self.modifies..]
    }
}

/// Something that does batches and checks what it reads.
trait Engine {
    fn name(&self) -> &'static str;
    /// Puts are of this generation.
    fn run(&mut self, batch: &Batch, generation: u64) -> Result<(), String>;
}

struct Kelix {
    reader: Reader,
    rows: Vec<Rows>,
}

impl Engine for Kelix {
    fn name(&self) -> &'static str {
        "kelix"
    }

    fn run(&mut self, batch: &Batch, generation: u64) -> Result<(), String> {
        if !batch.reads.is_empty() || !batch.updates.is_empty() || !batch.inserts.is_empty() {
            let keys: Vec<&[u8]> = batch.keys.iter().map(|key| &key[..]).collect();
            self.reader.get_and_put(&batch.reads, &keys, batch.puts(), generation)?;
        }
        if batch.modifies > 0 {
            self.reader.get_and_put(&[], &[], batch.modified().iter().copied(), generation)?;
        }
        let scan = |(first, count): &(u64, usize)| Scan::all().numbers(*first..).limit(*count as u64);
        let scans: Vec<Scan> = batch.scans.iter().map(scan).collect();
        self.rows.resize_with(scans.len().max(self.rows.len()), Rows::new);
        let rows = &mut self.rows[..scans.len()];
        self.reader.session.multi_scan_into(self.reader.table, &scans, rows).map_err(text)?;
        for ((first, count), rows) in batch.scans.iter().zip(rows) {
            let mut seen = Seen::new(*first);
            for index in 0..rows.len() {
                let number = u64::from_be_bytes(rows.key(index).try_into().map_err(text)?);
                seen.note(number)?;
                check(number, Some(rows.value(index)))?;
            }
            seen.end(*count)?;
        }
        Ok(())
    }
}

/// Checks that a scan begins where it was to begin, goes upwards, and brings as many keys as were wanted.
struct Seen {
    first: u64,
    last: Option<u64>,
    count: usize,
}

impl Seen {
    fn new(first: u64) -> Seen {
        Seen { first, last: None, count: 0 }
    }

    fn note(&mut self, number: u64) -> Result<(), String> {
        let fits = self.last.map_or(number == self.first, |last| last < number);
        (self.last, self.count) = (Some(number), self.count + 1);
        if fits { Ok(()) } else { Err(format!("a scan from {} brought {number}", self.first)) }
    }

    /// Scans begin so far before the last key that there are enough.
    fn end(self, wanted: usize) -> Result<(), String> {
        let Seen { first, count, .. } = self;
        if count == wanted { Ok(()) } else { Err(format!("a scan from {first} brought {count} of {wanted}")) }
    }
}

impl Engine for Environment {
    fn name(&self) -> &'static str {
        "LMDB"
    }

    fn run(&mut self, batch: &Batch, generation: u64) -> Result<(), String> {
        if !batch.reads.is_empty() {
            lmdb::get(self, &batch.reads)?;
        }
        let modified = batch.modified().iter().copied();
        let mut puts = batch.puts().chain(modified).peekable();
        if puts.peek().is_some() {
            lmdb::put(self, puts.map(|number| (number, generation)))?;
        }
        // In one transaction.
        if !batch.scans.is_empty() {
            lmdb::scan_ranges(self, &batch.scans)?;
        }
        Ok(())
    }
}

impl Engine for Redis {
    fn name(&self) -> &'static str {
        "redis-server"
    }

    fn run(&mut self, batch: &Batch, generation: u64) -> Result<(), String> {
        let puts: Vec<u64> = batch.puts().collect();
        self.say_get(&batch.keys);
        self.say_put(&puts, generation);
        if !batch.inserts.is_empty() {
            self.say_add(&batch.inserts);
        }
        batch.scans.iter().for_each(|(first, count)| self.say_range(*first, None, *count));
        self.send()?;
        self.expect_values(&batch.reads)?;
        self.expect_put(&puts)?;
        if !batch.inserts.is_empty() {
            self.expect_added()?;
        }
        for (first, count) in &batch.scans {
            let mut seen = Seen::new(*first);
            self.expect_range(|number| seen.note(number).is_ok())?;
            seen.end(*count)?;
        }
        if batch.modifies > 0 {
            self.say_put(batch.modified(), generation);
            self.send()?;
            self.expect_put(batch.modified())?;
        }
        Ok(())
    }
}

/// An engine, and where in the operations it is.
struct Side {
    engine: Box<dyn Engine>,
    at: usize,
    generation: u64,
    /// New keys among the others, and behind them.
    among: New,
    behind: u64,
}

/// A mix with what is drawn for it.
struct Work<'a> {
    mix: &'a Mix,
    /// Ranks of the numbers that operations are about.
    ranks: Vec<u64>,
    /// Numbers by rank.
    numbers: &'a [u64],
    records: u64,
}

impl<'a> Work<'a> {
    fn draw(mix: &'a Mix, zipf: bool, numbers: &'a [u64]) -> Work<'a> {
        let records = numbers.len() as u64;
        let ranks = match zipf {
            true => Numbers(81).popular(records, DRAWN),
            false => Numbers(81).records(records, DRAWN),
        };
        Work { mix, ranks, numbers, records }
    }

    /// Whether new keys stand behind all others, and gets go there, as in YCSB D.
    fn latest(&self) -> bool {
        self.mix.id == "d"
    }

    /// All operations in batches of this size, of which only the new numbers are missing; those that go to
    /// the latest have ranks in place of numbers.
    fn batches(&self, size: usize) -> Vec<Batch> {
        let Mix { reads, updates, inserts, scans, .. } = *self.mix;
        let (mut kinds, mut lengths) = (Numbers(82), Numbers(83));
        let mut batch = |ranks: &[u64]| {
            let (mut batch, mut modified) = (Batch::default(), Vec::new());
            for rank in ranks {
                let number = if self.latest() { *rank } else { self.numbers[*rank as usize] };
                match kinds.next() % 100 {
                    kind if kind < reads => batch.reads.push(number),
                    kind if kind < reads + updates => batch.updates.push(number),
                    kind if kind < reads + updates + inserts => batch.new += 1,
                    kind if kind < reads + updates + inserts + scans => {
                        // So many keys follow.
                        let first = number_of((number / 16).min(self.records - SCAN_KEYS - 1));
                        batch.scans.push((first, 1 + (lengths.next() % SCAN_KEYS) as usize));
                    }
                    _ => modified.push(number),
                }
            }
            batch.modifies = modified.len();
            batch.reads.extend(modified);
            batch.keys = batch.reads.iter().map(|number| key_of(*number)).collect();
            batch
        };
        self.ranks.chunks_exact(size).map(&mut batch).collect()
    }

    /// Does the next of these batches.
    fn run(&self, side: &mut Side, batches: &mut [Batch]) -> Result<u64, String> {
        let mut done = 0;
        while done < CALL {
            let batch = &mut batches[side.at % batches.len()];
            (side.at, side.generation) = (side.at + 1, side.generation + 1);
            done += batch.reads.len() + batch.updates.len() + batch.new + batch.scans.len();
            if self.latest() {
                self.run_latest(side, batch)?;
            } else {
                batch.inserts = side.among.take(batch.new);
                side.engine.run(batch, side.generation)?;
            }
        }
        Ok(done as u64)
    }

    fn run_latest(&self, side: &mut Side, ranks: &Batch) -> Result<(), String> {
        let first = self.records + side.behind;
        let reads: Vec<u64> = ranks.reads.iter().map(|rank| behind(self.records, first - 1 - rank)).collect();
        side.behind += ranks.new as u64;
        let batch = Batch {
            keys: reads.iter().map(|number| key_of(*number)).collect(),
            inserts: (first..self.records + side.behind).map(|index| behind(self.records, index)).collect(),
            reads,
            ..Batch::default()
        };
        side.engine.run(&batch, side.generation)
    }

    /// The operations in batches of the size at which an engine is fastest.
    fn best_batches(&self, side: &mut Side, trial: Duration) -> Result<Vec<Batch>, String> {
        let mut best = (f64::MAX, Vec::new());
        for size in SIZES {
            let mut batches = self.batches(size);
            self.run(side, &mut batches)?;
            let (began, mut done) = (Instant::now(), 0);
            while began.elapsed() < trial {
                done += self.run(side, &mut batches)?;
            }
            let time = began.elapsed().as_secs_f64() / done as f64;
            if time < best.0 {
                best = (time, batches);
            }
        }
        Ok(best.1)
    }
}

/// The `index`-th number, where those from `records` on were put behind all others.
fn behind(records: u64, index: u64) -> u64 {
    if index < records { number_of(index) } else { index * 16 }
}

/// The rows.
pub(super) fn rows(size: &Size) -> Result<Vec<Row>, String> {
    let mut numbers: Vec<u64> = (0..size.records).map(number_of).collect();
    let tree = Tree::of_numbers(TableKind::Inline, &numbers)?;
    let environment = lmdb::start(size.records)?;
    lmdb::load(&environment, &numbers)?;
    let mut redis = Redis::start()?;
    redis.load(&numbers)?;
    // Popular numbers stand all over the table, as their hashes do with YCSB.
    keys::shuffle(&mut numbers, 84);
    let ours = Kelix { reader: tree.here(Path::Auto)?, rows: Vec::new() };
    let engines: [Box<dyn Engine>; 3] = [Box::new(ours), Box::new(environment), Box::new(redis)];
    let mut sides = engines.map(|engine| {
        let among = New::between(size.records);
        Side { engine, at: 0, generation: 0, among, behind: 0 }
    });
    pin(0);
    let mut rows = Vec::new();
    for mix in &MIXES {
        for (zipf, keys) in [(false, "uniform"), (true, "zipf")] {
            let row = row(size, &Work::draw(mix, zipf, &numbers), &mut sides, keys);
            rows.push(row.inspect_err(|_| unpin())?);
        }
    }
    unpin();
    Ok(rows)
}

fn row(size: &Size, work: &Work, sides: &mut [Side; 3], keys: &str) -> Result<Row, String> {
    let trial = TRIAL * size.rounds as u32;
    let mut batches = Vec::new();
    for side in sides.iter_mut() {
        side.at = 0;
        batches.push(work.best_batches(side, trial)?);
    }
    let times = take_turns(size.rounds, 3, |side| work.run(&mut sides[side], &mut batches[side]))?;
    let sizes: Vec<usize> = batches.iter().map(|batches| DRAWN / batches.len()).collect();
    let other = if median(&times[1]) <= median(&times[2]) { 1 } else { 2 };
    let id = work.mix.id;
    let name = format!("YCSB {id}, {keys} / {}", sides[other].engine.name());
    let note = format!(
        "LMDB {:.0} ns, Redis {:.0} ns; batches of {}, {}, {}; ",
        median(&times[1]),
        median(&times[2]),
        sizes[0],
        sizes[1],
        sizes[2]
    );
    Ok(better(format!("ycsb_{id}_{keys}"), name, WANTED, compared(&times[0], &times[other]), &note))
}
