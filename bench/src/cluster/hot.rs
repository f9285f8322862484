//! One key that one client writes all the time and others read: at a primary with a replica, where a read of a
//! record that counts nowhere yet is a message, and at a server without.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kelix::{Session, SessionOptions, Table};
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
/// The record, and those who read it.
const RECORD: u64 = 0;
const READERS: usize = 2;
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

/// One that is read, with its writer, who is quiet while others are measured.
struct Side {
    readers: Vec<(Session, Table)>,
    told: Arc<Told>,
    writer: Option<JoinHandle<Result<(), String>>>,
    reads: u64,
    writes: u64,
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
        let readers = (0..READERS).map(|_| open()).collect::<Result<_, String>>()?;
        Ok(Side { readers, told, writer: Some(writer), reads: 0, writes: 0 })
    }

    fn messages(&self) -> u64 {
        self.readers.iter().map(|(session, _)| session.cost().messages).sum()
    }

    /// Nanoseconds for a read, of all readers together.
    fn block(&mut self) -> Result<f64, String> {
        self.told.writes.store(true, Ordering::Relaxed);
        std::thread::sleep(BEFORE);
        let (began, before) = (Instant::now(), self.told.number.load(Ordering::SeqCst));
        let told = &self.told;
        let reads = std::thread::scope(|scope| {
            let begin = |reader| scope.spawn(move || read(reader, told, began));
            let readers: Vec<_> = self.readers.iter_mut().map(begin).collect();
            let ended = |reader: std::thread::ScopedJoinHandle<'_, _>| {
                reader.join().unwrap_or_else(|_| Err("a reader has panicked".into()))
            };
            readers.into_iter().map(ended).sum::<Result<u64, String>>()
        })?;
        let took = began.elapsed();
        self.told.writes.store(false, Ordering::Relaxed);
        self.writes += self.told.number.load(Ordering::SeqCst) - before;
        self.reads += reads;
        if self.writer.as_ref().is_some_and(JoinHandle::is_finished) {
            return Err("the record is not written any more".into());
        }
        // The one who writes may be in the middle of a put.
        std::thread::sleep(2 * LOOKS);
        Ok(took.as_nanos() as f64 / reads as f64)
    }

    /// What was counted, in words.
    fn words(&self) -> String {
        let of = |count: u64| count as f64 / self.reads.max(1) as f64;
        format!("{:.2} messages and {:.2} puts a read", of(self.messages()), of(self.writes))
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
