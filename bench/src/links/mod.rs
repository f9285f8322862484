//! `kelix bench links`: following a link against looking the same item up, as in KELI's figures 3 and 8.
//!
//! The records are a chain that leads through all of them in no order that memory has. One step of it after
//! the other is taken, each from the item that the last one brought, so a row's figures are latencies.
//!
//! Other rows are about generations: how fast they are loaded and built, and what a reader notices of that
//! and of a switch.

pub(crate) mod building;
mod chain;
mod chasing;
pub(crate) mod generations;
mod loading;
mod memcached;
mod reading;
mod switching;

use kelix::{Cost, FabricChoice, Path};

use crate::Options;
use crate::workload::Records;
use chain::{Chain, Walker, Way};
use kelix_report::cores::{cores, pin, unpin};
use kelix_report::interleave::{Comparison, compare};
use kelix_report::report::{Row, Sense, as_rate, compared};
use kelix_report::{Report, progress};
use memcached::Memcached;

/// Bytes of a value, as in KELI's figure 3, and those of its figure 8, which has memcached in it.
const SIZES: [usize; 8] = [32, 64, 128, 256, 512, 1024, 2048, 4096];
const MEMCACHED_SIZES: [usize; 4] = [64, 256, 1024, 4096];
/// Bytes of a value in the rows that say how near a chase is to the least that it could cost.
const CHASED: usize = 64;
/// Records, and most bytes of their values: they may be in two stores at once.
const RECORDS: u64 = 100_000;
const VALUE_BYTES_MAX: u64 = 256 << 20;
/// Pairs of blocks a row. A small run is a check that all works, not a measurement.
const FULL: usize = 31;
const SMALL: usize = 3;
/// Records from which on a run is a measurement.
const FULL_RECORDS: u64 = 50_000;

/// How many records there are, of which size, and how often they are measured.
#[derive(Clone, Copy)]
struct Size {
    records: Records,
    rounds: usize,
}

impl Size {
    fn of(records: u64, value_bytes: usize) -> Size {
        let count = records.min(VALUE_BYTES_MAX / value_bytes as u64);
        let rounds = if count < FULL_RECORDS { SMALL } else { FULL };
        Size { records: Records::new(count, value_bytes), rounds }
    }
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> Result<Report, String> {
    let records = options.records.unwrap_or(RECORDS);
    let cores = cores();
    let outcome = rows(records, cores).and_then(|rows| Ok([rows, loaded(options.records)?].concat()));
    unpin();
    Ok(Report::new("links", records, outcome?))
}

/// The rows about generations, each with so many records as it has by itself unless fewer were asked for.
fn loaded(records: Option<u64>) -> Result<Vec<Row>, String> {
    let groups: [(&str, Group); 3] = [
        ("loading from PostgreSQL", |records| Ok(vec![loading::row(records)?])),
        ("building from memory", |records| Ok(vec![building::row(records)?])),
        ("switching", switching::rows),
    ];
    let mut rows = Vec::new();
    for (name, group) in groups {
        progress::show(name);
        rows.extend(group(records)?);
    }
    progress::show("");
    Ok(rows)
}

type Group = fn(Option<u64>) -> Result<Vec<Row>, String>;

fn rows(records: u64, cores: usize) -> Result<Vec<Row>, String> {
    let (mut tcp, mut shm) = (Vec::new(), Vec::new());
    for bytes in SIZES {
        let size = Size::of(records, bytes);
        let mut chain = Chain::start(size.records)?;
        chain.load()?;
        tcp.push(looked_up(&chain, size, FabricChoice::Tcp)?);
        // In shared memory the shard has one core and who asks another, as in the spine; over TCP the system
        // chooses.
        pin(0);
        shm.push(looked_up(&chain, size, FabricChoice::Shm)?);
        unpin();
    }
    let memcached = MEMCACHED_SIZES.map(|bytes| beside_memcached(Size::of(records, bytes), cores));
    let memcached = memcached.into_iter().collect::<Result<Vec<_>, _>>()?;
    let chasing = chasing::rows(Size::of(records, CHASED), cores)?;
    Ok([tcp, shm, memcached, chasing].concat())
}

/// Following against looking up by a message to the shard.
fn looked_up(chain: &Chain, size: Size, fabric: FabricChoice) -> Result<Row, String> {
    let mut ours = chain.walker(fabric, Way::Follow)?;
    let mut other = chain.walker(fabric, Way::LookUp(Path::Message))?;
    let before = (ours.cost(), other.cost());
    let comparison = compare(size.rounds, &mut || step(&mut ours), &mut || step(&mut other));
    let counts =
        format!("{} against {}", counts(ours.cost().since(before.0)), counts(other.cost().since(before.1)),);
    let (infix, name) = match fabric {
        FabricChoice::Tcp => ("", "over TCP"),
        FabricChoice::Shm => ("shm_", "in shared memory"),
        FabricChoice::Verbs => ("verbs_", "over verbs"),
    };
    let bytes = size.records.value_bytes;
    let name = format!("following a link to {bytes} bytes {name} / looking up by message");
    let theirs = "KELI: 2 x (figure 8), up to 2 x over HERD (figure 3)";
    Ok(row(format!("chase_{infix}{bytes}"), name, comparison, size, &format!("{theirs}; {counts}")))
}

/// Following over TCP against memcached's get over TCP. Servers on the last core, clients on the first, as
/// with the peers.
fn beside_memcached(size: Size, cores: usize) -> Result<Row, String> {
    pin(cores - 1);
    let mut chain = Chain::start(size.records)?;
    let mut memcached = Memcached::start(size.records)?;
    pin(0);
    chain.load()?;
    memcached.load()?;
    let mut ours = chain.walker(FabricChoice::Tcp, Way::Follow)?;
    let before = ours.cost();
    let comparison = compare(size.rounds, &mut || step(&mut ours), &mut || {
        memcached.step().expect("memcached's record");
        1
    });
    let counts = counts(ours.cost().since(before));
    unpin();
    let bytes = size.records.value_bytes;
    let name = format!("following a link to {bytes} bytes over TCP / memcached's get");
    let theirs = "KELI: faster than RDMA-Memcached, no figure given (figure 8)";
    Ok(row(format!("chase_memcached_{bytes}"), name, comparison, size, &format!("{theirs}; {counts}")))
}

fn step(walker: &mut Walker) -> u64 {
    walker.step().expect("the next item");
    1
}

/// What was counted on one side, in words.
fn counts(cost: Cost) -> String {
    let each = cost.read_bytes.checked_div(cost.reads).unwrap_or(0);
    format!("{} READs of {each} bytes, {} messages", cost.reads, cost.messages)
}

/// A row of how many times faster following is.
fn row(id: String, name: String, comparison: Comparison, size: Size, note: &str) -> Row {
    let note = format!("{note}; {} records; ", size.records.count);
    Row { sense: Sense::AtLeast, ..compared(id, name, "ns", 1.0, as_rate(comparison), &note) }
}
