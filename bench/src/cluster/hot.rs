//! One key that one client writes all the time and another one reads: at a primary with a replica, where a
//! read of what does not count yet is a message, and at a server without.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kelix::{Cost, Session, SessionOptions, Table};
use kelix_report::interleave::{compared as between, take_blocks};
use kelix_report::progress;
use kelix_report::report::{Row, Sense, as_rate, compared};

use super::nodes::{Nodes, PATIENCE};
use super::puts::memory_for;
use super::{Plan, text};
use crate::served::Home;
use crate::store::{key_of, number_of, numbered_value};

/// Rounds.
const FULL: usize = 31;
const SMALL: usize = 2;
/// How long a block is.
const BLOCK: Duration = Duration::from_millis(50);
/// How long somebody writes before a block, and between two looks whether it is to write.
const BEFORE: Duration = Duration::from_millis(5);
const LOOKS: Duration = Duration::from_millis(1);
/// The record.
const RECORD: u64 = 0;
/// Reads between two looks at the time.
const CALLS: u64 = 64;

/// What the one who writes is told, and tells.
#[derive(Default)]
struct Told {
    writes: AtomicBool,
    ends: AtomicBool,
    /// The number of the value that was acknowledged last.
    number: AtomicU64,
}

/// What was counted of the one who reads, and of the one who writes.
#[derive(Clone, Copy, Default)]
struct Counted {
    reads: u64,
    writes: u64,
    processor: Duration,
}

/// One that is read, with its writer, who is quiet while others are measured.
struct Side {
    reader: (Session, Table),
    told: Arc<Told>,
    writer: Option<JoinHandle<Result<(), String>>>,
    before: Cost,
    counted: Counted,
}

/// Processor time of this thread.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn write((mut session, table): (Session, Table), told: &Told) -> Result<(), String> {
    let mut number = told.number.load(Ordering::SeqCst);
    while !told.ends.load(Ordering::Relaxed) {
        if !told.writes.load(Ordering::Relaxed) {
            std::thread::sleep(LOOKS);
            continue;
        }
        number += 1;
        session.put(table, &key_of(RECORD), &numbered_value(RECORD, number)).map_err(text)?;
        // SYNC: whoever reads finds this value, or a later one.
        told.number.store(number, Ordering::SeqCst);
    }
    Ok(())
}

/// Reads for a block. How many reads that were.
fn read((session, table): &mut (Session, Table), told: &Told, began: Instant) -> Result<u64, String> {
    let (mut reads, mut value) = (0, [0; 32]);
    while began.elapsed() < BLOCK {
        for _ in 0..CALLS {
            let least = told.number.load(Ordering::SeqCst);
            let found = session.get_into(*table, &key_of(RECORD), &mut value).map_err(text)?;
            found.ok_or("the record is missing")?;
            let number = number_of(&value, RECORD).ok_or("the record has something else")?;
            if number < least {
                return Err(format!("put {number} was read after put {least} was acknowledged"));
            }
        }
        reads += CALLS;
    }
    Ok(reads)
}

impl Side {
    fn new(open: impl Fn() -> Result<(Session, Table), String>) -> Result<Side, String> {
        let told = Arc::new(Told { number: 1.into(), ..Told::default() });
        let mut writer = open()?;
        writer.0.put(writer.1, &key_of(RECORD), &numbered_value(RECORD, 1)).map_err(text)?;
        let to_writer = told.clone();
        let writer = std::thread::spawn(move || write(writer, &to_writer));
        let mut reader = open()?;
        reader.0.get(reader.1, &key_of(RECORD)).map_err(text)?;
        let before = reader.0.cost();
        Ok(Side { reader, told, writer: Some(writer), before, counted: Counted::default() })
    }

    /// Nanoseconds for a read.
    fn block(&mut self) -> Result<f64, String> {
        self.told.writes.store(true, Ordering::Relaxed);
        std::thread::sleep(BEFORE);
        let number = || self.told.number.load(Ordering::SeqCst);
        let (began, used, before) = (Instant::now(), processor_time(), number());
        let reads = read(&mut self.reader, &self.told, began)?;
        let took = began.elapsed();
        self.counted.processor += processor_time() - used;
        self.counted.writes += number() - before;
        self.counted.reads += reads;
        self.told.writes.store(false, Ordering::Relaxed);
        if self.writer.as_ref().is_some_and(JoinHandle::is_finished) {
            return Err("the record is not written any more".into());
        }
        // The one who writes may be in the middle of a put.
        std::thread::sleep(2 * LOOKS);
        Ok(took.as_nanos() as f64 / reads as f64)
    }

    /// What was counted, in words.
    fn words(&self) -> String {
        let (Counted { reads, writes, processor }, cost) = (self.counted, self.reader.0.cost());
        let of = |count: u64| count as f64 / reads.max(1) as f64;
        format!(
            "{:.4} puts, {:.4} retries and {:.4} messages a read, {:.0} ns of processor time",
            of(writes),
            of(cost.retries - self.before.retries),
            of(cost.messages - self.before.messages),
            of(processor.as_nanos() as u64)
        )
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.told.ends.store(true, Ordering::Relaxed);
        let _ = self.writer.take().map(JoinHandle::join);
    }
}

/// The row.
pub(super) fn row(plan: Plan) -> Result<Row, String> {
    const ID: &str = "hot_get";
    progress::show(ID);
    let memory_bytes = memory_for(1);
    let home = Home::new("cluster-hot-alone", memory_bytes)?;
    let alone = home.serve(&["--no-pin"])?;
    let nodes = Nodes::start("hot", 2, memory_bytes)?;
    let client = alone.client()?;
    let open_alone = || {
        let mut session = client.session_with(SessionOptions::default().retry_for(PATIENCE)).map_err(text)?;
        let table = session.create_table("records").map_err(text)?;
        Ok((session, table))
    };
    let mut sides = [Side::new(|| nodes.session())?, Side::new(open_alone)?];
    let times = take_blocks(plan.choose(FULL, SMALL), 2, |side| sides[side].block())?;
    let note = format!("{} against {}; ", sides[0].words(), sides[1].words());
    let name = "gets of one key that is written all the time, at a primary / at a server, as rates";
    let comparison = as_rate(between(&times[0], &times[1]));
    Ok(Row { sense: Sense::AtLeast, ..compared(ID, name, "ns", 0.5, comparison, &note) })
}
