//! The lines of the table: each lets the readers reach items in one way while the writer goes on, and looks
//! at what the server's process does meanwhile.

use std::path::Path;
use std::time::{Duration, Instant};

use kelix::Session;

use super::load::Tables;
use super::processes::{Interrupt, RunningServer, Worker};
use super::report::Line;
use super::tally::Tally;
use super::walk::wrong;
use super::worker::{BATCH, Work, seen};
use super::world::place_key;
use crate::{Exit, Failure};

/// Reader processes at work at once.
pub(super) const READERS: u64 = 2;

/// The ways to reach items, in the order of the table. The first line is for comparison: nobody reads.
pub(super) const LINES: [Option<Work>; 6] =
    [None, Some(Work::Index), Some(Work::Pointer), Some(Work::Link), Some(Work::Batch), Some(Work::Message)];

/// The processes that take part.
pub(super) struct Measurement<'a> {
    server: &'a RunningServer,
    interrupt: &'a Interrupt,
    writer: Worker,
    readers: Vec<Worker>,
    /// How many changes the writer has made so far.
    pub changes: u64,
}

impl<'a> Measurement<'a> {
    /// Starts the readers and the writer.
    pub fn start(
        server: &'a RunningServer,
        file: &Path,
        interrupt: &'a Interrupt,
    ) -> Result<Measurement<'a>, Failure> {
        let start = |role, seed| Worker::start(role, server.directory(), file, seed);
        let mut writer = start("writer", 1)?;
        let mut readers = Vec::new();
        for number in 0..READERS {
            readers.push(start("reader", 2 + number)?);
        }
        warm(&mut writer, Work::Write)?;
        writer.answer(interrupt)?;
        Ok(Measurement { server, interrupt, writer, readers, changes: 0 })
    }

    /// Measures one line.
    pub fn line(&mut self, work: Option<Work>, time: Duration) -> Result<Line, Failure> {
        let readers = match work {
            Some(_) => &mut self.readers[..],
            None => &mut [],
        };
        for reader in readers.iter_mut() {
            warm(reader, work.unwrap_or(Work::Index))?;
        }
        for reader in readers.iter_mut() {
            reader.answer(self.interrupt)?;
        }
        let order = format!("run {}", time.as_millis());
        let (began, cpu) = (Instant::now(), self.server.cpu());
        self.writer.order(&order)?;
        for reader in readers.iter_mut() {
            reader.order(&order)?;
        }
        let mut sum = Tally::default();
        for reader in readers.iter_mut() {
            sum.add(&tally_of(reader, self.interrupt)?);
        }
        let writes = tally_of(&mut self.writer, self.interrupt)?;
        let elapsed = began.elapsed().as_secs_f64();
        let busy = self.server.cpu().zip(cpu).map(|(after, before)| after.saturating_sub(before));
        self.changes += writes.items;
        Ok(Line {
            work,
            readers: sum,
            changes_per_s: writes.items as f64 / elapsed,
            server_cpu_percent: busy.map(|busy| busy.as_secs_f64() / elapsed * 100.0),
        })
    }
}

fn warm(worker: &mut Worker, work: Work) -> Result<(), Failure> {
    worker.order(&format!("warm {}", work.name()))
}

fn tally_of(worker: &mut Worker, interrupt: &Interrupt) -> Result<Tally, Failure> {
    let answer = worker.answer(interrupt)?;
    let garbled = || Failure::new(Exit::Other, "demo", format!("a process of the demo answers {answer:?}"));
    Tally::parse(&answer).ok_or_else(garbled)
}

/// Compares the changes that the places tell of with those that were made.
pub(super) fn check_changes(session: &mut Session, places: usize, made: u64) -> Result<(), Failure> {
    let table = Tables::open(session)?.places;
    let keys: Vec<String> = (0..places).map(place_key).collect();
    let mut told = 0;
    for keys in keys.chunks(BATCH) {
        let keys: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
        for (item, key) in session.multi_get(table, &keys)?.into_iter().zip(keys) {
            let key = || format!("place {} is missing or tells no changes", String::from_utf8_lossy(key));
            told += item.as_ref().and_then(seen).ok_or_else(|| wrong(key()))?;
        }
    }
    if told == made {
        return Ok(());
    }
    Err(wrong(format!("the writer made {made} changes, the places tell of {told}")))
}

/// What it takes to look at the clock twice, which is part of every latency: the median of many tries, in
/// nanoseconds.
pub(super) fn clock_ns() -> u64 {
    let mut times: Vec<Duration> = (0..1001).map(|_| Instant::now().elapsed()).collect();
    times.sort_unstable();
    times[times.len() / 2].as_nanos() as u64
}
