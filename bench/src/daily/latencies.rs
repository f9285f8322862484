//! Gets and puts while a snapshot is taken, against the same while none is.
//!
//! One client gets any record and puts any record in turn, one at a time, on the first core; the shard has
//! the last one. A round is a while without a snapshot, as long as the last snapshot took, and a snapshot,
//! who goes first changing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::records::Stored;
use super::text;
use crate::served::{Asker, Served};
use crate::times::Times;
use kelix_report::cores::{pin, unpin};
use kelix_report::interleave;
use kelix_report::report::{Row, compared};
use kelix_report::{progress, report};

/// Rounds. A small run is a check that all works.
const FULL: usize = 7;
const SMALL: usize = 2;
/// The least time without a snapshot, and pairs of operations of each part: one in a thousand has to be many.
const WITHOUT: Duration = Duration::from_millis(500);
const WITHOUT_SMALL: Duration = Duration::from_millis(50);
const PAIRS_MIN: usize = 1000;
/// Time before anything counts.
const WARM: Duration = Duration::from_millis(500);
const SLOW: f64 = 0.999;

/// How long gets and puts took.
struct Measured {
    gets: Times,
    puts: Times,
}

/// Gets and puts until it is enough.
fn measure(
    stored: &mut Stored,
    asker: &mut Asker,
    mut enough: impl FnMut() -> bool,
) -> Result<Measured, String> {
    let mut measured = Measured { gets: Times::new(), puts: Times::new() };
    let mut pairs = 0;
    while pairs < PAIRS_MIN || !enough() {
        let began = Instant::now();
        stored.get_any(asker)?;
        let between = Instant::now();
        stored.put_any(asker)?;
        measured.gets.note((between - began).as_nanos() as u64);
        measured.puts.note(between.elapsed().as_nanos() as u64);
        pairs += 1;
    }
    Ok(measured)
}

fn without(stored: &mut Stored, asker: &mut Asker, time: Duration) -> Result<Measured, String> {
    let began = Instant::now();
    measure(stored, asker, || began.elapsed() >= time)
}

/// Bytes of a snapshot, and how long it took by the server's clock.
struct Snapshot {
    bytes: u64,
    time: Duration,
}

fn take(server: &Served) -> Result<Snapshot, String> {
    let taken = server.client()?.snapshot().map_err(text)?;
    Ok(Snapshot { bytes: taken.bytes, time: Duration::from_secs_f64(taken.seconds) })
}

fn during(stored: &mut Stored, asker: &mut Asker, server: &Served) -> Result<(Measured, Snapshot), String> {
    let is_taken = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let taking = scope.spawn(|| {
            // It only waits, but not for the client's core.
            unpin();
            let taken = take(server);
            // SYNC: only a flag; the thread is joined.
            is_taken.store(true, Ordering::Relaxed);
            taken
        });
        let measured = measure(stored, asker, || is_taken.load(Ordering::Relaxed));
        let taken = taking.join().expect("it does not panic");
        Ok((measured?, taken?))
    })
}

/// What all rounds found.
#[derive(Default)]
struct Rounds {
    /// With a snapshot, and without.
    with: Vec<Measured>,
    without: Vec<Measured>,
    snapshots: Vec<Snapshot>,
}

impl Rounds {
    fn run(stored: &mut Stored, asker: &mut Asker, server: &Served, is_full: bool) -> Result<Rounds, String> {
        let (rounds, least) = if is_full { (FULL, WITHOUT) } else { (SMALL, WITHOUT_SMALL) };
        let mut all = Rounds::default();
        let mut time = least;
        without(stored, asker, WARM.min(least))?;
        for round in 0..rounds {
            progress::show(&format!("snapshot {} of {rounds}", round + 1));
            if round % 2 == 0 {
                all.without.push(without(stored, asker, time)?);
            }
            let (measured, snapshot) = during(stored, asker, server)?;
            time = snapshot.time.max(least);
            all.with.push(measured);
            all.snapshots.push(snapshot);
            if round % 2 == 1 {
                all.without.push(without(stored, asker, time)?);
            }
        }
        Ok(all)
    }

    fn row(
        &self,
        id: &'static str,
        name: &'static str,
        wanted: f64,
        of: impl Fn(&Measured) -> &Times,
    ) -> Row {
        let slow = |all: &[Measured]| -> Vec<f64> {
            all.iter().map(|measured| of(measured).quantile_ns(SLOW) as f64).collect()
        };
        let longest =
            |all: &[Measured]| all.iter().map(|measured| of(measured).longest_ns()).max().unwrap_or(0) / 1000;
        let count = |all: &[Measured]| all.iter().map(|measured| of(measured).count()).sum::<u64>();
        let median = |all: &[Measured]| {
            let medians: Vec<f64> = all.iter().map(|measured| of(measured).quantile_ns(0.5) as f64).collect();
            report::figure(interleave::median(&medians))
        };
        let bytes: Vec<f64> = self.snapshots.iter().map(|snapshot| snapshot.bytes as f64 / 1e6).collect();
        let times: Vec<f64> = self.snapshots.iter().map(|snapshot| snapshot.time.as_secs_f64()).collect();
        let note = format!(
            "{} against {}, the median {} ns against {} ns, the longest {} us against {} us; a snapshot of {} MB takes {} s; ",
            count(&self.with),
            count(&self.without),
            median(&self.with),
            median(&self.without),
            longest(&self.with),
            longest(&self.without),
            report::figure(interleave::median(&bytes)),
            report::figure(interleave::median(&times)),
        );
        let comparison = interleave::compared(&slow(&self.with), &slow(&self.without));
        compared(id, name, "ns", wanted, comparison, &note)
    }
}

/// The rows, and the records, which the server has kept in a snapshot when it ended.
pub(super) fn rows(records: u64, is_full: bool) -> Result<(Vec<Row>, Stored), String> {
    let (mut stored, server) = Stored::load(records)?;
    let mut asker = Asker::open(&server)?;
    pin(0);
    let rounds = Rounds::run(&mut stored, &mut asker, &server, is_full);
    unpin();
    let rounds = rounds?;
    stored.verify(&mut asker)?;
    drop(asker);
    server.end()?;
    let rows = vec![
        rounds.row("snapshot_get", "p99.9 of gets during a snapshot / without", 2.0, |of| &of.gets),
        rounds.row("snapshot_put", "p99.9 of puts during a snapshot / without", 10.0, |of| &of.puts),
    ];
    Ok((rows, stored))
}
