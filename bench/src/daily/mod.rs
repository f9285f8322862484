//! `kelix bench daily`: what those meet who run a store from day to day. Clients while a snapshot is taken, a
//! restart out of a snapshot, memory when values have changed their sizes for an hour, and how much a cache
//! has of what it is asked for.
//!
//! Servers are processes of their own, started as people start them. Every value that is read is checked.

mod churn;
mod hits;
mod latencies;
mod records;
mod restart;

use crate::Options;
use kelix_report::cores::unpin;
use kelix_report::{Report, progress};

/// Records of a run.
const RECORDS: u64 = 10_000_000;
/// Records from which on a run is a measurement.
const FULL_RECORDS: u64 = 100_000;

/// An error of somebody else's, as text.
fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> Result<Report, String> {
    let records = options.records.unwrap_or(RECORDS);
    let is_full = records >= FULL_RECORDS;
    let outcome = report(options, records, is_full);
    unpin();
    progress::show("");
    outcome
}

fn report(options: &Options, records: u64, is_full: bool) -> Result<Report, String> {
    // First, since what is wrong with a file shall not be told after minutes.
    let streams = hits::Streams::read(options, is_full)?;
    let (mut rows, stored) = latencies::rows(records, is_full)?;
    rows.extend(restart::rows(stored, is_full)?);
    rows.push(churn::row(records, is_full)?);
    let (hits, detail) = streams.rows()?;
    rows.extend(hits);
    Ok(Report { detail: Some(detail), ..Report::new("daily", records, rows) })
}
