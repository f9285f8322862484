//! `kelix bench ablation`: what each feature is worth, as in HydraDB's figures 10 and 11: the store with the
//! feature against the store without it, in one run.
//!
//! What is left out is left out by a session's options where it is an option (paths, private pointers), and
//! otherwise stands in `baselines`.

mod client;
mod hits;
pub(crate) mod pointers;
mod rows;

use std::net::Ipv4Addr;

use kelix_server::ServerConfig;

use crate::Options;
use crate::store::{Store, memory_for};
use kelix_report::Report;
use kelix_report::cores::{pin, unpin};

/// Pairs of blocks a row. A small run is a check that all works, not a measurement.
const FULL: usize = 31;
const SMALL: usize = 3;
/// Records from which on a run is a measurement.
const FULL_RECORDS: u64 = 100_000;

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> Result<Report, String> {
    let records = options.records.unwrap_or(1_000_000);
    let listen = Some((Ipv4Addr::LOCALHOST, 0).into());
    let config = ServerConfig { memory_bytes: memory_for(records), listen, ..ServerConfig::default() };
    let mut store = Store::start("ablation", config)?;
    store.rounds = if records < FULL_RECORDS { SMALL } else { FULL };
    store.load(records)?;
    let mut rows = pointers::cached(&store)?;
    // In shared memory the shard has one core and who asks another, as in the spine.
    pin(0);
    rows.extend(rows::messages(&store)?);
    rows.push(rows::index(&store)?);
    rows.extend(pointers::shared(&store)?);
    rows.extend(rows::mixes(&store)?);
    unpin();
    drop(store);
    rows.extend(hits::rows(records)?);
    Ok(Report::new("ablation", records, rows))
}
