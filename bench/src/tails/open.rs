//! Open loops: operations are due at times that are drawn beforehand, and what one takes counts from then, so
//! that whoever waits behind a slow one counts too (no coordinated omission).
//!
//! ```text
//!   due       d1      d2  d3              d4
//!   sent      |       |   '---> waits     |
//!   answered   '--|    '----------|'--|    '--|
//!   counted   |---|   |-----------|       |---|
//!                         |-----------|
//! ```
//!
//! 1. Distances are exponential: arrivals of many who know nothing of each other. Every system has the same
//!    ones, since their seed is the same ([`SEED`]).
//! 2. The client sleeps until shortly before an operation is due, so that it takes no core from those that
//!    are measured, and looks at the clock from then on, so that its own waking is not measured.
//! 3. Operations that the client sends late although nothing was under way are counted apart ([`LATE`]): the
//!    host had no core for the client then. Their share is told beside the times, which have them too.
//! 4. A turn is bounded: an operation that is due and not sent after [`TURNS_MAX`] of its length counts with
//!    the time that it has waited by then, which is too little, and is told as cut off.

use std::num::NonZero;
use std::time::{Duration, Instant};

use rustix::thread::set_current_timer_slack;
use serde_json::{Value, json};

use super::caller::Operation;
use super::load::Load;
use super::systems::{BASELINES, OURS, Side, Systems};
use super::{Size, text};
use crate::store::Numbers;
use crate::times::Times;
use kelix_report::progress;
use kelix_report::report::{Detail, Row, Sense, figure};

/// Seed of arrivals, records and kinds of operations.
const SEED: u64 = 35;
/// So long before an operation is due the client looks at the clock instead of sleeping.
const LOOK: Duration = Duration::from_micros(50);
/// An operation that the client could have sent so long before is a late one.
const LATE: Duration = Duration::from_micros(20);
/// A turn ends after so many times its length, whatever is still due.
const TURNS_MAX: u32 = 2;
/// Quantiles that are told, and the one that rows compare.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)];
const COMPARED: usize = 2;

/// A load: how many operations of a hundred are gets, and how many a second are due.
struct Workload {
    id: &'static str,
    gets_percent: u64,
    rate: u64,
}

const WORKLOADS: [Workload; 4] = [
    Workload { id: "95_2k", gets_percent: 95, rate: 2_000 },
    Workload { id: "95_10k", gets_percent: 95, rate: 10_000 },
    Workload { id: "95_50k", gets_percent: 95, rate: 50_000 },
    Workload { id: "50_10k", gets_percent: 50, rate: 10_000 },
];

/// Outcome of a side's turns.
struct Outcome {
    times: Times,
    late: u64,
    cut_off: u64,
}

impl Outcome {
    /// A quantile in microseconds. `None`: fewer operations were done than it takes to have one beyond.
    fn quantile_us(&self, share: f64) -> Option<f64> {
        let is_told = self.times.count() as f64 * (1.0 - share) >= 0.999;
        is_told.then(|| self.times.quantile_ns(share) as f64 / 1e3)
    }

    fn percent(&self, count: u64) -> f64 {
        count as f64 * 100.0 / self.times.count().max(1) as f64
    }
}

/// Waits until it is so late since `began`.
fn wait_until(began: Instant, due: Duration) {
    let early = due.saturating_sub(began.elapsed());
    if early > LOOK {
        std::thread::sleep(early - LOOK);
    }
    while began.elapsed() < due {
        std::hint::spin_loop();
    }
}

/// Does the operations that are due in a time of this length.
fn turn(
    side: &mut Side,
    workload: &Workload,
    records: u64,
    numbers: &mut Numbers,
    length: Duration,
    outcome: &mut Outcome,
) -> Result<(), String> {
    let began = Instant::now();
    // When the operation before was due, and when it was answered.
    let (mut due, mut answered) = (Duration::ZERO, Duration::ZERO);
    loop {
        due += Duration::from_secs_f64(-(1.0 - numbers.share()).ln() / workload.rate as f64);
        if due >= length {
            return Ok(());
        }
        let is_get = numbers.share() * 100.0 < workload.gets_percent as f64;
        let operation = if is_get { Operation::Get } else { Operation::Put };
        let record = numbers.records(records, 1)[0];
        wait_until(began, due);
        let sent = began.elapsed();
        if sent >= length * TURNS_MAX {
            outcome.cut_off += 1;
            outcome.times.note((sent - due).as_nanos() as u64);
            continue;
        }
        side.caller.run(operation, record)?;
        outcome.late += u64::from(sent - due.max(answered) > LATE);
        answered = began.elapsed();
        outcome.times.note((answered - due).as_nanos() as u64);
    }
}

/// All sides' turns of a workload, one side after the other. A turn of each goes before that does not count.
fn run(
    systems: &Systems,
    workload: &Workload,
    size: Size,
    beside: &str,
) -> Result<Vec<(&'static str, Outcome)>, String> {
    let mut sides = systems.sides()?;
    let mut numbers: Vec<Numbers> = sides.iter().map(|_| Numbers(SEED)).collect();
    let nothing = || Outcome { times: Times::new(), late: 0, cut_off: 0 };
    let mut outcomes: Vec<Outcome> = sides.iter().map(|_| nothing()).collect();
    for round in 0..=size.rounds {
        for step in 0..sides.len() {
            let at = (round + step) % sides.len();
            progress::show(&format!("open loop {}{beside}: turn {round} of {}", workload.id, size.rounds));
            let mut uncounted = nothing();
            let outcome = if round == 0 { &mut uncounted } else { &mut outcomes[at] };
            turn(&mut sides[at], workload, systems.records.count, &mut numbers[at], size.turn, outcome)?;
        }
    }
    Ok(sides.iter().map(|side| side.name).zip(outcomes).collect())
}

fn row(id: String, name: String, (ours, other): (&Outcome, &Outcome)) -> Row {
    let told: Vec<String> = QUANTILES
        .iter()
        .filter_map(|(name, share)| {
            let both = (ours.quantile_us(*share)?, other.quantile_us(*share)?);
            Some(format!("{name} {} and {}", figure(both.0), figure(both.1)))
        })
        .collect();
    let compared = |outcome: &Outcome| outcome.times.quantile_ns(QUANTILES[COMPARED].1) as f64 / 1e3;
    let share = |of: fn(&Outcome) -> u64| {
        format!("{} and {} %", figure(ours.percent(of(ours))), figure(other.percent(of(other))))
    };
    Row {
        id: id.into(),
        name: name.into(),
        ours: compared(ours),
        other: Some(compared(other)),
        unit: "us",
        ratio: compared(ours) / compared(other),
        wanted: None,
        sense: Sense::AtMost,
        note: format!(
            "{} from when each is due; sent late {}, cut off {}; {} operations",
            told.join(", "),
            share(|outcome| outcome.late),
            share(|outcome| outcome.cut_off),
            ours.times.count()
        ),
    }
}

fn line(workload: &Workload, beside: &str, system: &str, outcome: &Outcome) -> Vec<String> {
    let mut line = vec![format!("{}{beside}", workload.id), system.to_string()];
    line.extend(QUANTILES.map(|(_, share)| outcome.quantile_us(share).map_or("-".into(), figure)));
    line.push(figure(outcome.percent(outcome.late)));
    line.push(figure(outcome.percent(outcome.cut_off)));
    line.push(outcome.times.count().to_string());
    line
}

fn as_json(workload: &Workload, beside: &str, system: &str, outcome: &Outcome) -> Value {
    let mut json = json!({
        "load": format!("{}{beside}", workload.id),
        "gets_percent": workload.gets_percent,
        "rate": workload.rate,
        "system": system,
        "operations": outcome.times.count(),
        "late_percent": outcome.percent(outcome.late),
        "cut_off_percent": outcome.percent(outcome.cut_off),
    });
    for (name, share) in QUANTILES {
        json[format!("{name}_us")] = outcome.quantile_us(share).into();
    }
    json
}

/// The rows, and the table of all systems.
pub(super) fn measure(systems: &Systems, size: Size) -> Result<(Vec<Row>, Detail), String> {
    // Otherwise the system wakes this thread up to 50 us late.
    set_current_timer_slack(NonZero::new(1)).map_err(text)?;
    let measured = measure_on_time(systems, size);
    set_current_timer_slack(None).map_err(text)?;
    measured
}

fn measure_on_time(systems: &Systems, size: Size) -> Result<(Vec<Row>, Detail), String> {
    let (mut rows, mut json) = (Vec::new(), Vec::new());
    let heading = ["load", "system"].into_iter().chain(QUANTILES.map(|(name, _)| name));
    let mut lines = vec![heading.chain(["late %", "cut off %", "operations"]).map(String::from).collect()];
    for beside in ["", "_busy"] {
        let _load = (!beside.is_empty()).then(Load::start).transpose()?;
        for workload in &WORKLOADS {
            let outcomes = run(systems, workload, size, beside)?;
            let of = |name| &outcomes.iter().find(|(of, _)| *of == name).expect("a side").1;
            for ((ours, baseline), fabric) in OURS.into_iter().zip(BASELINES).zip(["shm", "tcp"]) {
                let id = format!("open_{fabric}_{}{beside}", workload.id);
                let name = format!(
                    "p99.9, {} % gets, {} a second{}: {ours} / {baseline}",
                    workload.gets_percent,
                    workload.rate,
                    if beside.is_empty() { "" } else { ", beside a process a core that computes" }
                );
                rows.push(row(id, name, (of(ours), of(baseline))));
            }
            for (system, outcome) in &outcomes {
                lines.push(line(workload, beside, system, outcome));
                json.push(as_json(workload, beside, system, outcome));
            }
        }
    }
    let words = format!(
        "Open loops of one client, in us from when an operation is due: gets of a hundred and rate, by \
         exponential distances of seed {SEED}; busy: beside a process a core that computes. Late: sent more \
         than {} us after it could be, since the client had no core. Cut off: still waiting after \
         {TURNS_MAX} times a turn, and counted so. Memory bandwidth is not counted.",
        LATE.as_micros()
    );
    Ok((rows, Detail { name: "open_loops", json: json.into(), words, lines }))
}

#[cfg(test)]
mod tests {
    use super::super::caller::Caller;
    use super::*;

    /// Answers at once, but for one operation.
    struct Slow {
        left: u64,
        time: Duration,
    }

    impl Caller for Slow {
        fn get(&mut self, _: u64) -> Result<bool, String> {
            self.left = self.left.wrapping_sub(1);
            if self.left == 0 {
                std::thread::sleep(self.time);
            }
            Ok(true)
        }

        fn put(&mut self, record: u64) -> Result<bool, String> {
            self.get(record)
        }

        fn put_batch(&mut self, _: &[u64]) -> Result<(), String> {
            unreachable!("nothing is loaded")
        }
    }

    fn outcome(left: u64, time: Duration) -> Outcome {
        let mut side = Side { name: "slow", pid: 0, caller: Box::new(Slow { left, time }) };
        let mut outcome = Outcome { times: Times::new(), late: 0, cut_off: 0 };
        let length = Duration::from_millis(100);
        turn(&mut side, &WORKLOADS[1], 100, &mut Numbers(SEED), length, &mut outcome).unwrap();
        outcome
    }

    /// Half of those that are due while one takes 50 ms wait for 25 ms and more, though each of them is
    /// answered at once.
    #[test]
    fn whoever_waits_behind_a_slow_operation_counts() {
        let slow = outcome(10, Duration::from_millis(50));
        assert_eq!(slow.times.count(), outcome(0, Duration::ZERO).times.count());
        assert!((900..1100).contains(&slow.times.count()), "{} arrivals", slow.times.count());
        let waited = slow.times.quantile_ns(0.76);
        assert!(waited >= 20_000_000, "{waited} ns at 0.76");
    }

    #[test]
    fn a_turn_ends_though_operations_are_still_due() {
        let stuck = outcome(10, Duration::from_millis(250));
        assert!(stuck.cut_off > 800, "{} cut off", stuck.cut_off);
        assert!(stuck.times.quantile_ns(0.05) >= 150_000_000, "they wait to the end at least");
    }
}
