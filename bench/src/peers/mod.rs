//! `kelix bench peers`: gets and puts against memcached and Redis, on the transport that each row names, with LMDB beside.
//!
//! One server thread each, on the last core; one client, on the first. The programs are the distribution's, started here and
//! ended here.

mod daemon;
mod engine;
mod lmdb;
mod protocol;
mod rows;

use crate::store::{pin, unpin};
use crate::workload::Records;
use crate::{Options, Report};
use daemon::Transport;
use engine::{Engine, Kelix, Peer, load};
use lmdb::Lmdb;
use protocol::{Memcached, Redis};

/// Rounds of blocks a row. A small run is a check that all works, not a measurement.
const FULL: usize = 21;
const SMALL: usize = 2;
/// Records from which on a run is a measurement.
const FULL_RECORDS: u64 = 100_000;
/// Most records in the rows over TCP, and most memory of values in those about long ones, also in small runs.
const TCP_RECORDS: u64 = 1_000_000;
const LONG_BYTES: u64 = 512 << 20;
const LONG_BYTES_SMALL: u64 = 16 << 20;

/// Engines with these records in them: ours first, then the peers, then LMDB where it is not about a network.
struct Engines {
    all: Vec<Box<dyn Engine>>,
    /// How many of them are ours or peers.
    compared: usize,
    records: Records,
    rounds: usize,
}

impl Engines {
    fn start(transport: Transport, records: Records, rounds: usize) -> Result<Engines, String> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        // What is started there stays there.
        pin(cores - 1);
        let mut all: Vec<Box<dyn Engine>> = vec![
            Box::new(Kelix::start(transport, records)?),
            Box::new(Peer::<Memcached>::start(transport, records)?),
            Box::new(Peer::<Redis>::start(transport, records)?),
        ];
        let compared = all.len();
        if transport == Transport::Unix {
            all.push(Box::new(Lmdb::start(records)?));
        }
        pin(0);
        let progress = std::io::IsTerminal::is_terminal(&std::io::stderr());
        for engine in &mut all {
            if progress {
                eprintln!("loading {} records into {}", records.count, engine.name());
            }
            load(engine.as_mut(), records)?;
        }
        Ok(Engines { all, compared, records, rounds })
    }
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> Result<Report, String> {
    let records = options.records.unwrap_or(10_000_000).max(1000);
    let rounds = if records < FULL_RECORDS { SMALL } else { FULL };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let outcome = rows(records, rounds);
    unpin(cores);
    Ok(Report { bench: "peers", records, rows: outcome? })
}

fn rows(records: u64, rounds: usize) -> Result<Vec<crate::Row>, String> {
    let mut engines = Engines::start(Transport::Unix, Records::new(records, 32), rounds)?;
    let mut all = rows::memory(&mut engines);
    all.extend(rows::latencies(&mut engines)?);
    all.extend(rows::rates(&mut engines)?);
    all.extend(rows::mixes(&mut engines)?);
    drop(engines);
    for (id, name, bytes) in [
        ("size_4k", "gets of 4 KiB at the best batch", 4 << 10),
        ("size_4m", "gets of 4 MiB at the best batch", 4 << 20),
    ] {
        let long_bytes = if records < FULL_RECORDS { LONG_BYTES_SMALL } else { LONG_BYTES };
        let count = long_bytes / bytes as u64;
        let mut engines = Engines::start(Transport::Unix, Records::new(count, bytes), rounds)?;
        all.extend(rows::long(&mut engines, id, name)?);
    }
    let mut engines = Engines::start(Transport::Tcp, Records::new(records.min(TCP_RECORDS), 32), rounds)?;
    all.extend(rows::over_tcp(&mut engines)?);
    Ok(all)
}
