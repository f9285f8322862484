//! Primaries that are killed, or stand still, under somebody who writes and somebody who reads: how long nothing
//! is written, and whether anything is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kelix_report::interleave::median;
use kelix_report::progress;
use kelix_report::report::Row;
use rustix::process::Signal;

use super::nodes::Nodes;
use super::puts::memory_for;
use super::{Size, text, told};
use crate::store::{key_of, number_of, numbered_value};

/// Failovers of a kind, in a measurement and else.
const FULL: usize = 50;
const SMALL: usize = 2;
/// Records that are written.
const RECORDS: u64 = 1000;
/// How long all goes well between two failovers.
const WELL: Duration = Duration::from_millis(150);
/// How long is waited for the first write behind a failover.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who writes and reads records in the order of their numbers, round after round.
struct Load {
    threads: Vec<JoinHandle<Result<u64, String>>>,
    ends: Arc<AtomicBool>,
    /// Writes that were acknowledged, and the longest time between two of them, in nanoseconds, since somebody
    /// asked.
    written: Arc<AtomicU64>,
    gap_ns: Arc<AtomicU64>,
    stale: Arc<AtomicU64>,
}

impl Load {
    fn start(nodes: &Nodes) -> Result<Load, String> {
        let (ends, written) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (gap_ns, stale) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let (mut session, table) = nodes.session()?;
        for record in 0..RECORDS {
            session.put(table, &key_of(record), &numbered_value(record, 1)).map_err(text)?;
        }
        let (its_ends, its_written, its_gap) = (ends.clone(), written.clone(), gap_ns.clone());
        let writer = move || {
            let (mut last, mut puts) = (Instant::now(), 0);
            while !its_ends.load(Ordering::Relaxed) {
                let (record, number) = (puts % RECORDS, puts / RECORDS + 2);
                session.put(table, &key_of(record), &numbered_value(record, number)).map_err(text)?;
                puts += 1;
                let now = Instant::now();
                its_gap.fetch_max((now - last).as_nanos() as u64, Ordering::Relaxed);
                last = now;
                // SYNC: whoever reads finds all writes before.
                its_written.store(puts, Ordering::SeqCst);
            }
            // Each record has what was acknowledged last.
            let mut lost = 0;
            for record in 0..RECORDS {
                let number = puts / RECORDS + 1 + u64::from(record < puts % RECORDS);
                let item = session.get(table, &key_of(record)).map_err(text)?;
                let found = item.and_then(|item| number_of(item.value(), record));
                lost += u64::from(found.is_none_or(|found| found < number));
            }
            Ok(lost)
        };
        let (mut session, table) = nodes.session()?;
        let (its_ends, its_written, its_stale) = (ends.clone(), written.clone(), stale.clone());
        let reader = move || {
            let mut reads = 0u64;
            while !its_ends.load(Ordering::Relaxed) {
                let puts = its_written.load(Ordering::SeqCst);
                let record = reads * 7919 % RECORDS;
                let least = puts / RECORDS + 1 + u64::from(record < puts % RECORDS);
                let item = session.get(table, &key_of(record)).map_err(text)?;
                let found = item.and_then(|item| number_of(item.value(), record));
                if found.is_none_or(|found| found < least) {
                    its_stale.fetch_add(1, Ordering::Relaxed);
                }
                reads += 1;
                if reads % 64 == 0 {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
            Ok(0)
        };
        let threads = vec![std::thread::spawn(writer), std::thread::spawn(reader)];
        Ok(Load { threads, ends, written, gap_ns, stale })
    }

    fn written(&self) -> u64 {
        self.written.load(Ordering::SeqCst)
    }

    /// Waits until something more was written.
    fn wait_for_more(&self, more: u64) -> Result<(), String> {
        let (before, began) = (self.written(), Instant::now());
        while self.written() < before + more {
            if began.elapsed() > PATIENCE || self.threads.iter().any(JoinHandle::is_finished) {
                return Err("nothing is written any more".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Writes that were lost, and reads of something older than what had been acknowledged.
    fn end(self) -> Result<(u64, u64), String> {
        self.ends.store(true, Ordering::Relaxed);
        let mut lost = 0;
        for thread in self.threads {
            lost += thread.join().map_err(|_| "a thread has panicked")??;
        }
        Ok((lost, self.stale.load(Ordering::Relaxed)))
    }
}

/// Why another node becomes primary.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Killed,
    Stopped,
    HandedOver,
}

/// The longest time in which nothing was written, in milliseconds, of each failover.
fn fail_over(nodes: &mut Nodes, load: &Load, times: usize, why: Why) -> Result<Vec<f64>, String> {
    let mut gaps = Vec::new();
    for failover in 0..times {
        progress::show(&format!("failover {} of {times}", failover + 1));
        nodes.wait_until_in_sync(3)?;
        std::thread::sleep(WELL);
        let primary = nodes.primary()?;
        load.gap_ns.store(0, Ordering::Relaxed);
        match why {
            Why::Killed => nodes.kill(primary)?,
            Why::Stopped => nodes.signal(primary, Signal::STOP)?,
            Why::HandedOver => nodes.hand_over()?,
        }
        load.wait_for_more(100)?;
        gaps.push(load.gap_ns.load(Ordering::Relaxed) as f64 / 1e6);
        match why {
            Why::Killed => nodes.begin(primary)?,
            Why::Stopped => nodes.signal(primary, Signal::CONT)?,
            Why::HandedOver => {}
        }
    }
    Ok(gaps)
}

fn largest(gaps: &[f64]) -> f64 {
    gaps.iter().copied().fold(0.0, f64::max)
}

/// The rows.
pub(super) fn rows(size: Size) -> Result<Vec<Row>, String> {
    let times = size.choose(FULL, SMALL);
    let mut nodes = Nodes::start("failover", 3, memory_for(size.records))?;
    let load = Load::start(&nodes)?;
    let killed = fail_over(&mut nodes, &load, times, Why::Killed)?;
    let stopped = fail_over(&mut nodes, &load, times, Why::Stopped)?;
    let handed_over = fail_over(&mut nodes, &load, times, Why::HandedOver)?;
    nodes.wait_until_in_sync(3)?;
    let written = load.written();
    let (lost, stale) = load.end()?;
    let row = |id, name, wanted, gaps: &[f64]| {
        let note = format!("median of {}, at most {:.0} ms", gaps.len(), largest(gaps));
        Row { note, ..told(id, name, "ms", median(gaps), Some(wanted)) }
    };
    let note = format!("{written} writes, {lost} lost; {stale} stale reads");
    Ok(vec![
        row(
            "failover_kill",
            "longest time without a write when the primary is killed, local register",
            60.0,
            &killed,
        ),
        row(
            "failover_stop",
            "the same when it is stopped, with 500 ms until it is suspected",
            750.0,
            &stopped,
        ),
        row("handover", "the same when it hands over, which nobody has to suspect", 10.0, &handed_over),
        Row {
            note,
            ..told(
                "lost",
                "acknowledged writes that were lost, and stale reads, in all these failovers",
                "writes and reads",
                (lost + stale) as f64,
                Some(0.0),
            )
        },
    ])
}
