//! `kelix bench peers`: gets and puts against memcached, Redis and Valkey, on the transport that each row
//! names, with LMDB beside; and `kelix bench sweep`: the same over sizes of values and numbers of records.
//!
//! As many server threads each as were asked for, on the last cores; the clients on the others, but for rows
//! of what the system places. The programs are the distribution's, started here and ended here.

pub(crate) mod blocking;
mod engine;
mod kelix;
mod lmdb;
mod peer;
pub(crate) mod protocol;
mod rows;
mod sweep;

use crate::Options;
use crate::workload::{Keys, Records};
use engine::{Engine, load};
use kelix::Kelix;
use kelix_report::cores::{cores, pin_to, unpin};
use kelix_report::daemon::Transport;
use kelix_report::{Report, Row};
use lmdb::Lmdb;
use peer::Peer;
use protocol::{Memcached, Redis, Valkey};

/// Rounds of blocks a row. A small run is a check that all works, not a measurement.
const FULL: usize = 21;
const SMALL: usize = 2;
/// Records from which on a run is a measurement.
const FULL_RECORDS: u64 = 100_000;
/// Most records in the rows over TCP, and most memory of values in those about long ones, also in small runs.
const TCP_RECORDS: u64 = 1_000_000;
const LONG_BYTES: u64 = 512 << 20;
const LONG_BYTES_SMALL: u64 = 16 << 20;
/// Records of a run, and of the rows that are swept.
const RECORDS: u64 = 10_000_000;
const SWEPT: [u64; 3] = [1_000_000, 10_000_000, 60_000_000];

/// How engines run and are asked.
#[derive(Clone)]
struct Setup {
    transport: Transport,
    /// Threads of each server, and clients, each a thread.
    threads: usize,
    clients: usize,
    /// Keys of all rows, if they were chosen.
    keys: Option<Keys>,
    rounds: usize,
    /// Whether Valkey is there to be measured.
    valkey: bool,
}

impl Setup {
    fn of(options: &Options, records: u64) -> Setup {
        Setup {
            transport: Transport::Unix,
            threads: options.threads.unwrap_or(1).max(1),
            clients: options.clients.unwrap_or(1).max(1),
            keys: options.keys.clone(),
            rounds: if records < FULL_RECORDS { SMALL } else { FULL },
            valkey: Valkey::is_there(),
        }
    }

    /// Whether it only checks that all works.
    fn is_small(&self) -> bool {
        self.rounds == SMALL
    }

    fn over_tcp(&self) -> Setup {
        Setup { transport: Transport::Tcp, ..self.clone() }
    }
}

/// Which engines stand beside ours.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    /// memcached, Redis, Valkey where it is there, and LMDB where it can be.
    All,
    Memcached,
    Redis,
}

/// Engines with these records in them: ours first, then the peers, then LMDB where it is not about a network.
struct Engines {
    all: Vec<Box<dyn Engine>>,
    /// How many of them are ours or peers.
    compared: usize,
    records: Records,
    setup: Setup,
}

impl Engines {
    fn start(setup: &Setup, beside: Beside, records: Records) -> Result<Engines, String> {
        let cores = cores();
        let for_servers = setup.threads.min(cores - 1).max(1);
        // What is started there stays there.
        pin_to(cores - for_servers..cores);
        let mut all: Vec<Box<dyn Engine>> = vec![Box::new(Kelix::start(setup, records)?)];
        if beside != Beside::Redis {
            all.push(Box::new(Peer::<Memcached>::start(setup, records)?));
        }
        if beside != Beside::Memcached {
            all.push(Box::new(Peer::<Redis>::start(setup, records)?));
        }
        if beside == Beside::All && setup.valkey {
            all.push(Box::new(Peer::<Valkey>::start(setup, records)?));
        }
        let compared = all.len();
        // It is opened without its locks, so for one client.
        if beside == Beside::All && setup.transport == Transport::Unix && setup.clients == 1 {
            all.push(Box::new(Lmdb::start(records)?));
        }
        pin_to(0..(cores - for_servers).max(1));
        let progress = std::io::IsTerminal::is_terminal(&std::io::stderr());
        for engine in &mut all {
            if progress {
                eprintln!(
                    "loading {} records of {} bytes into {}",
                    records.count,
                    records.value_bytes,
                    engine.name()
                );
            }
            load(engine.as_mut(), setup.clients, records)?;
        }
        Ok(Engines { all, compared, records, setup: setup.clone() })
    }
}

/// Runs a benchmark of this kind: its rows, whatever becomes of them, in threads that may run anywhere
/// afterwards.
fn report(
    bench: &'static str,
    records: u64,
    rows: impl FnOnce() -> Result<Vec<Row>, String>,
) -> Result<Report, String> {
    let outcome = rows();
    unpin();
    Ok(Report::new(bench, records, outcome?))
}

/// Runs `kelix bench peers`.
pub(crate) fn run(options: &Options) -> Result<Report, String> {
    let records = options.records.unwrap_or(RECORDS);
    let setup = Setup::of(options, records);
    report("peers", records, || {
        let mut engines = Engines::start(&setup, Beside::All, Records::new(records, 32))?;
        let mut all = rows::memory(&mut engines);
        all.extend(rows::latencies(&mut engines)?);
        all.extend(rows::rates(&mut engines)?);
        all.extend(rows::mixes(&mut engines)?);
        all.extend(rows::placed(&mut engines)?);
        drop(engines);
        for (id, name, bytes) in [
            ("size_4k", "gets of 4 KiB at the best batch", 4 << 10),
            ("size_4m", "gets of 4 MiB at the best batch", 4 << 20),
        ] {
            let count = count_of(records, bytes);
            let mut engines = Engines::start(&setup, Beside::All, Records::new(count, bytes))?;
            all.extend(rows::long(&mut engines, id, name)?);
        }
        let few = Records::new(records.min(TCP_RECORDS), 32);
        let mut engines = Engines::start(&setup.over_tcp(), Beside::All, few)?;
        all.extend(rows::over_tcp(&mut engines)?);
        Ok(all)
    })
}

/// Runs `kelix bench sweep`.
pub(crate) fn sweep(options: &Options) -> Result<Report, String> {
    let counts = options.records.map_or(SWEPT.to_vec(), |records| vec![records]);
    let most = counts[counts.len() - 1];
    let setup = Setup::of(options, most);
    report("sweep", most, || {
        let mut all = Vec::new();
        for bytes in sweep::SIZES {
            let records = Records::new(count_of(most, bytes), bytes);
            all.extend(sweep::value(&mut Engines::start(&setup, Beside::All, records)?)?);
        }
        for count in counts {
            for beside in [Beside::Memcached, Beside::Redis] {
                all.extend(sweep::records(&setup, beside, Records::new(count, 32))?);
            }
        }
        Ok(all)
    })
}

/// How many records of a size a run of so many has.
fn count_of(records: u64, bytes: usize) -> u64 {
    let (memory, most) =
        if records < FULL_RECORDS { (LONG_BYTES_SMALL, records) } else { (LONG_BYTES, TCP_RECORDS) };
    (memory / bytes as u64).min(most)
}
