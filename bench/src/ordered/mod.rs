//! `kelix bench ordered`: ordered tables read through models, against the same tables by message, a tree
//! whose clients cache its inner nodes, LMDB and Redis; and what such reads cost in READs, bytes and
//! messages, counted.
//!
//! Numbers as keys with values of 8 bytes unless a row says otherwise, put in an order that has nothing to do
//! with theirs. Every value follows from its key and is checked; a wrong one ends the run.

mod beside;
mod caches;
mod counted;
mod fallbacks;
mod growth;
pub(crate) mod keys;
mod lmdb;
mod redis;
mod rpc;
mod training;
pub(crate) mod tree;
mod ycsb;

use std::borrow::Cow;
use std::time::{Duration, Instant};

use crate::Options;
use kelix_report::cores::unpin;
use kelix_report::interleave::{self, Comparison, take_turns};
use kelix_report::report::{Row, Sense, as_rate, compared};
use kelix_report::{Report, progress};

/// Records of a run, and most of those rows that only count: their figures are the same with more.
const RECORDS: u64 = 10_000_000;
const COUNTED_RECORDS: u64 = 1_000_000;
/// Pairs of blocks a row. A small run is a check that all works, not a measurement.
const FULL: usize = 31;
const SMALL: usize = 2;
/// Records from which on a run is a measurement.
const FULL_RECORDS: u64 = 100_000;

/// Sizes of a batch that each side is tried with.
const SIZES: [usize; 4] = [16, 64, 256, 1024];

/// How much is measured.
struct Size {
    records: u64,
    rounds: usize,
    /// Real numbers, of a file.
    real: Option<Vec<u64>>,
}

impl Size {
    /// So many operations, or few where a run only checks that all works.
    fn few(&self, operations: usize) -> usize {
        if self.records < FULL_RECORDS { operations / 100 } else { operations }
    }
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> Result<Report, String> {
    let records = options.records.unwrap_or(RECORDS);
    let rounds = if records < FULL_RECORDS { SMALL } else { FULL };
    let real = options.keys_file.as_deref().map(keys::of_file).transpose()?;
    let size = Size { records, rounds, real };
    let outcome = rows(&size);
    unpin();
    Ok(Report::new("ordered", records, outcome?))
}

fn rows(size: &Size) -> Result<Vec<Row>, String> {
    let counted = Size { records: size.records.min(COUNTED_RECORDS), real: size.real.clone(), ..*size };
    let groups: [(&str, &Size, Group); 9] = [
        ("gets by message", size, rpc::rows),
        ("caches of inner nodes", size, caches::rows),
        ("LMDB and Redis", size, beside::rows),
        ("counts, numbers", &counted, counted::rows_of_numbers),
        ("counts, strings", &counted, counted::rows_of_strings),
        ("fallbacks", &counted, fallbacks::rows),
        ("YCSB", size, ycsb::rows),
        ("growth", size, growth::rows),
        ("training", size, training::rows),
    ];
    let mut rows = Vec::new();
    for (index, (name, size, group)) in groups.iter().enumerate() {
        progress::show(&format!("{} of {}: {name}, {} records", index + 1, groups.len(), size.records));
        rows.extend(group(size)?);
    }
    progress::show("");
    Ok(rows)
}

type Group = fn(&Size) -> Result<Vec<Row>, String>;

/// The size of a batch at which `run`, which says how many operations it did, is fastest.
fn best_size(trial: Duration, mut run: impl FnMut(usize) -> Result<u64, String>) -> Result<usize, String> {
    let mut best = (f64::MAX, 0);
    for size in SIZES {
        run(size)?;
        let (began, mut done) = (Instant::now(), 0);
        while began.elapsed() < trial {
            done += run(size)?;
        }
        let time = began.elapsed().as_secs_f64() / done as f64;
        if time < best.0 {
            best = (time, size);
        }
    }
    Ok(best.1)
}

/// Runs two sides in turn.
fn duel(
    rounds: usize,
    ours: &mut dyn FnMut() -> Result<u64, String>,
    other: &mut dyn FnMut() -> Result<u64, String>,
) -> Result<Comparison, String> {
    let times = take_turns(rounds, 2, |side| if side == 0 { ours() } else { other() })?;
    Ok(interleave::compared(&times[0], &times[1]))
}

/// A row of a figure that was counted, or is a share.
fn figure(
    id: impl Into<Cow<'static, str>>,
    name: impl Into<Cow<'static, str>>,
    value: f64,
    unit: &'static str,
    (sense, wanted): (Sense, f64),
    note: &str,
) -> Row {
    let (id, name, note) = (id.into(), name.into(), note.to_string());
    Row { id, name, ours: value, other: None, unit, ratio: value, wanted: Some(wanted), sense, note }
}

/// A row of how many times lower our time is, or higher our rate, which is the same.
fn better(
    id: impl Into<Cow<'static, str>>,
    name: impl Into<Cow<'static, str>>,
    wanted: f64,
    comparison: Comparison,
    note: &str,
) -> Row {
    Row { sense: Sense::AtLeast, ..compared(id, name, "ns", wanted, as_rate(comparison), note) }
}
