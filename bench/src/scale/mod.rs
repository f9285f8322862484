//! `kelix bench scale`: what many clients and more shards cost a server, what a crowd waits for, and what sessions
//! over TCP have of each other's pointers.
//!
//! Two cores cannot show rates of eight shards, so what is compared is processor time, of clients and server
//! together.

mod clients;
mod crowd;
mod peak;
mod up;

use std::net::Ipv4Addr;

use kelix_report::Report;
use kelix_report::cores::unpin;
use kelix_report::progress;
use kelix_report::report::Row;
use kelix_server::ServerConfig;

use crate::Options;
use crate::ablation::pointers::shared_over_tcp;
use crate::store::{Store, memory_for};

/// Records of a run, and from which number on a run is a measurement.
const RECORDS: u64 = 100_000;
const FULL_RECORDS: u64 = 50_000;

/// An error of somebody else's, as text.
fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Runs the benchmark; or only holds sessions in this process, as `clients` asks for.
pub(crate) fn run(options: &Options) -> Result<Report, String> {
    if let Some(held) = &options.counted {
        clients::hold(held)?;
        return Ok(Report::new("scale", 0, Vec::new()));
    }
    unpin();
    // All sessions of a crowd have their descriptors in this process.
    kelix_server::prepare_process();
    let records = options.records.unwrap_or(RECORDS);
    let is_full = records >= FULL_RECORDS;
    let mut rows = up::rows(records, is_full)?;
    rows.push(peak::row(records, is_full)?);
    rows.push(pointers(records, is_full)?);
    rows.push(clients::row(is_full)?);
    progress::show("");
    Ok(Report::new("scale", records, rows))
}

/// The row of pointers that sessions over TCP share.
fn pointers(records: u64, is_full: bool) -> Result<Row, String> {
    progress::show("shared pointers");
    let listen = Some((Ipv4Addr::LOCALHOST, 0).into());
    let config =
        ServerConfig { memory_bytes: memory_for(records), listen, pin: false, ..ServerConfig::default() };
    let mut store = Store::start("scale", config)?;
    store.rounds = if is_full { 7 } else { 1 };
    store.load(records)?;
    shared_over_tcp(&store)
}
