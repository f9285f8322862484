//! How long an operation takes while a crowd asks for as much as it gets (HydraDB, section 6.1), beside memcached
//! under the same crowd, with as many threads as serve it best.

use kelix::FabricChoice;
use kelix_report::daemon::{Daemon, Transport};
use kelix_report::interleave::{compared, take_blocks};
use kelix_report::progress;
use kelix_report::report::{Row, Sense, as_rate};

use super::crowd::{self, CLIENTS, VALUE_BYTES, mixes};
use crate::peers::blocking::Blocking;
use crate::peers::protocol::{Memcached, Protocol};
use crate::served::Home;
use crate::store::memory_for;
use crate::tails::{Caller, Ours, load};
use crate::times::Times;
use crate::workload::Records;

/// Threads of the servers of memcached, of which the faster one counts.
const THREADS: [usize; 2] = [1, 2];
/// The least number of times that ours is lower.
const WANTED: f64 = 10.0;

/// Clients of a server, and what became of their operations.
struct Side {
    clients: Vec<Box<dyn Caller>>,
    times: Times,
}

impl Side {
    fn open(open: impl Fn() -> Result<Box<dyn Caller>, String>) -> Result<Side, String> {
        let clients = (0..CLIENTS).map(|_| open()).collect::<Result<_, _>>()?;
        Ok(Side { clients, times: Times::new() })
    }
}

/// The row: the mix in which ours is the fewest times lower.
pub(super) fn row(records: u64, is_full: bool) -> Result<Row, String> {
    let (rounds, length) = crowd::blocks(is_full);
    let stored = Records::new(records, VALUE_BYTES);
    let home = Home::new("scale-peak", memory_for(records))?;
    let served = home.serve(&["--no-pin"])?;
    let client = served.client()?;
    let ours = || Ok(Box::new(Ours::open(&client, FabricChoice::Shm, stored)?) as Box<dyn Caller>);
    load("kelix", ours()?.as_mut(), records)?;
    let daemon = |threads: usize| {
        let arguments = |address: &_, folder: &_| Memcached::arguments(address, folder, stored, threads);
        let daemon = Daemon::start_as(
            &format!("memcached-{threads}"),
            Memcached::PROGRAM,
            Transport::Unix,
            arguments,
        )?;
        load("memcached", &mut Blocking::<Memcached>::open(&daemon, stored)?, records)?;
        Ok::<_, String>(daemon)
    };
    let daemons = THREADS.into_iter().map(daemon).collect::<Result<Vec<_>, _>>()?;
    let theirs = |daemon: &Daemon| {
        Side::open(|| Ok(Box::new(Blocking::<Memcached>::open(daemon, stored)?) as Box<dyn Caller>))
    };
    let mut sides = vec![Side::open(ours)?];
    sides.extend(daemons.iter().map(theirs).collect::<Result<Vec<_>, _>>()?);
    let mut worst: Option<Row> = None;
    for mix in mixes(records) {
        sides.iter_mut().for_each(|side| side.times = Times::new());
        let mut block = 0;
        // With so many at work all the time, what one waits follows from how many operations are done.
        let times = take_blocks(rounds, sides.len(), |side| {
            progress::show(&format!("{CLIENTS} clients, {}: block {block}", mix.name));
            block += 1;
            let done = crowd::run(&mut sides[side].clients, &mix, (block, length), true)?;
            sides[side].times.add(&done.times);
            Ok::<_, String>(done.took.as_nanos() as f64 * CLIENTS as f64 / done.operations as f64)
        })?;
        let by_threads = (1..sides.len()).map(|side| (side, as_rate(compared(&times[0], &times[side]))));
        let (best, comparison) =
            by_threads.min_by(|one, other| one.1.other_ns.total_cmp(&other.1.other_ns)).expect("two servers");
        let quantiles = |side: usize| {
            let us = |share| sides[side].times.quantile_ns(share) as f64 / 1e3;
            format!("{:.1} and {:.1} us", us(0.5), us(0.99))
        };
        if worst.as_ref().is_some_and(|worst| worst.ratio <= comparison.ratio) {
            continue;
        }
        worst = Some(Row {
            id: "peak_latency".into(),
            name: format!(
                "mean latency at peak load, {CLIENTS} clients, {}, the worst of six mixes: memcached / ours",
                mix.name
            )
            .into(),
            ours: comparison.ours_ns / 1e3,
            other: Some(comparison.other_ns / 1e3),
            unit: "us",
            ratio: comparison.ratio,
            wanted: Some(WANTED),
            sense: Sense::AtLeast,
            note: format!(
                "median and p99: ours {}, memcached {} with {} threads; {}",
                quantiles(0),
                quantiles(best),
                THREADS[best - 1],
                comparison.spread()
            ),
        });
    }
    Ok(worst.expect("six mixes"))
}
