//! `kelix bench languages`: what gets cost in other languages than Rust, and what the library has for these.

mod bindings;
mod c;
mod child;
mod draw;
mod parts;

use kelix_report::Report;
use kelix_report::cores::{pin, unpin};
use kelix_report::progress;
use kelix_report::report::Row;
use kelix_server::ServerConfig;

use crate::Options;
use crate::store::{Store, memory_for};

/// Records of a run, and those from which on it is a measurement.
const RECORDS: u64 = 1_000_000;
const FULL_RECORDS: u64 = 50_000;
/// Rounds. A small run is a check that all works.
const FULL: usize = 200;
const SMALL: usize = 3;

/// An error of somebody else's, as text.
fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> Result<Report, String> {
    let records = options.records.unwrap_or(RECORDS);
    let config = ServerConfig { memory_bytes: memory_for(records) + (64 << 20), ..ServerConfig::default() };
    let mut store = Store::start("languages", config)?;
    store.load(records)?;
    store.rounds = if records >= FULL_RECORDS { FULL } else { SMALL };
    pin(0);
    let rows = rows(&mut store);
    unpin();
    progress::show("");
    Ok(Report::new("languages", records, rows?))
}

fn rows(store: &mut Store) -> Result<Vec<Row>, String> {
    let mut rows = c::rows(store)?;
    rows.extend(bindings::of_java(store)?);
    rows.extend(bindings::of_python(store)?);
    rows.extend(bindings::memory(store)?);
    rows.extend(parts::rows(store)?);
    Ok(rows)
}
