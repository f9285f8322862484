//! `kelix bench tails`: how long the slowest operations take, and what an operation costs the host, beside
//! memcached, and beside Redis and Valkey where these are there.
//!
//! Each server is a process of its own, and the system places all threads, as people run them. Clients do one
//! operation at a time and wait for its answer: a session of ours, or a socket that blocks.
//!
//! - **Open loops** (`open`): operations are due at times that nobody's answers change, on a quiet host and
//!   beside two processes that compute.
//! - **Processor time** (`processor`): of client and server together, for an operation.
//! - **Eviction** (`eviction`): gets of a full cache beside a writer.
//! - **Gets over TCP** (`placed`): each key for the first time.
//!
//! Memory bandwidth is not told: it needs counters of the processor's memory controllers, which virtual
//! machines seldom have.

mod caller;
mod eviction;
mod load;
mod open;
mod placed;
mod processor;
mod systems;

use std::time::Duration;

use crate::Options;
pub(crate) use caller::{Caller, Operation, Ours};
use kelix_report::Report;
use kelix_report::cores::unpin;
use kelix_report::progress;
pub(crate) use processor::own_time;
use systems::Systems;
pub(crate) use systems::load;

/// Records of a run, and from which number on a run is a measurement.
const RECORDS: u64 = 1_000_000;
const FULL_RECORDS: u64 = 100_000;

/// Length of a run.
#[derive(Clone, Copy)]
struct Size {
    /// Rounds of turns of each side, and the length of a turn.
    rounds: usize,
    turn: Duration,
    /// Rounds of short blocks.
    blocks: usize,
    /// Memory of a cache.
    cache_bytes: u64,
}

const FULL: Size = Size { rounds: 11, turn: Duration::from_millis(500), blocks: 21, cache_bytes: 64 << 20 };
/// A small run is a check that all works, not a measurement.
const SMALL: Size = Size { rounds: 1, turn: Duration::from_millis(50), blocks: 2, cache_bytes: 16 << 20 };

/// Runs `kelix bench tails`.
pub(crate) fn run(options: &Options) -> Result<Report, String> {
    let records = options.records.unwrap_or(RECORDS);
    let size = if records < FULL_RECORDS { SMALL } else { FULL };
    unpin();
    let systems = Systems::start(records)?;
    let (mut rows, detail) = open::measure(&systems, size)?;
    rows.extend(processor::rows(&systems, size)?);
    rows.push(placed::row(&systems, size)?);
    drop(systems);
    rows.extend(eviction::rows(size)?);
    progress::show("");
    Ok(Report { detail: Some(detail), ..Report::new("tails", records, rows) })
}

/// An error of somebody else's, as text.
fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
