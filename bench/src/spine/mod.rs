//! `kelix bench spine`: what the store costs over the bare memory accesses it is made of.
//!
//! One server with one shard, pinned to one core; one client, pinned to another; 10 million items of 16-byte
//! keys and 32-byte values unless told otherwise. The plain loops read the same table through the same pages:
//! directory, bucket, item; no guardian, no stamp, no authority.

mod plain;
mod rows;

use std::time::Duration;

use kelix_server::ServerConfig;

use crate::Options;
use crate::store::{Store, memory_for};
use kelix_report::Report;
use kelix_report::cores::{pin, unpin};

/// Pairs of blocks a row, and seconds of the rows about processor time. A small run is a check that all
/// works, not a measurement.
const FULL: (usize, Duration) = (31, Duration::from_secs(3));
const SMALL: (usize, Duration) = (3, Duration::from_millis(500));
/// Records from which on a run is a measurement.
const FULL_RECORDS: u64 = 1_000_000;
/// Items of a batch.
const BATCH: usize = 32;

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> Result<Report, String> {
    let records = options.records.unwrap_or(10_000_000);
    let mut store =
        Store::start("spine", ServerConfig { memory_bytes: memory_for(records), ..ServerConfig::default() })?;
    (store.rounds, store.time) = if records < FULL_RECORDS { SMALL } else { FULL };
    pin(0);
    let mut rows = vec![rows::item_bytes(&mut store, records)?];
    rows.extend(rows::gets(&mut store)?);
    rows.extend(rows::puts(&mut store)?);
    rows.extend(rows::cpu(&mut store)?);
    rows.extend(rows::sessions(&mut store)?);
    let time = store.time;
    drop(store);
    unpin();
    rows.push(rows::quarantine(records.min(400_000), time)?);
    Ok(Report::new("spine", records, rows))
}
