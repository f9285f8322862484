//! `kelix bench everywhere`: clients over TCP beside a bare echo of the same sizes, many clients beside few,
//! and other work on the same cores.

mod busy;
mod clients;
mod echo;
mod rows;
mod zipf;

use std::net::Ipv4Addr;
use std::time::Duration;

use kelix_server::ServerConfig;

use crate::Options;
use crate::store::{Store, memory_for};
use kelix_report::Report;

/// Pairs of blocks a row, and seconds of the rows about processor time. A small run is a check that all
/// works, not a measurement.
const FULL: (usize, Duration) = (31, Duration::from_secs(3));
const SMALL: (usize, Duration) = (3, Duration::from_millis(500));
/// Records from which on a run is a measurement.
const FULL_RECORDS: u64 = 100_000;

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> Result<Report, String> {
    let records = options.records.unwrap_or(1_000_000);
    let listen = Some((Ipv4Addr::LOCALHOST, 0).into());
    let config =
        ServerConfig { memory_bytes: memory_for(records), listen, pin: false, ..ServerConfig::default() };
    let mut store = Store::start("everywhere", config)?;
    (store.rounds, store.time) = if records < FULL_RECORDS { SMALL } else { FULL };
    store.load(records)?;
    let mut rows = rows::tcp(&mut store)?;
    rows.push(rows::retries(&mut store)?);
    rows.push(rows::tls(&mut store, records.min(200_000))?);
    let (rounds, time) = (store.rounds, store.time);
    drop(store);
    rows.extend(clients::clients(rounds, time)?);
    rows.extend(busy::busy(rounds)?);
    rows.push(zipf::zipf(records, rounds)?);
    Ok(Report::new("everywhere", records, rows))
}
