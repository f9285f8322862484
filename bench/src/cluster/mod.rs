//! `kelix bench cluster`: what replicas cost who writes and who reads, and how long nothing is written when a
//! primary dies.
//!
//! Nodes are processes of their own on this machine ([`nodes`], and [`hosts`] as on several), as is the
//! server without replicas that they are compared with. Values tell how often their record was put, by a
//! checksum that only this record's have.

mod failover;
mod hosts;
mod hot;
mod load;
mod losses;
mod nodes;
mod promote;
mod puts;
mod sentinel;
mod wait;
mod warm;
mod way;

pub(crate) use nodes::Nodes;

use kelix_report::Report;
use kelix_report::cores::unpin;
use kelix_report::progress;
use kelix_report::report::Row;

use crate::Options;

/// Records, and those from which on a run is a measurement.
const RECORDS: u64 = 100_000;
const FULL_RECORDS: u64 = 50_000;
/// Failovers of a kind, in a measurement and else.
const FAILOVERS: usize = 50;
const FAILOVERS_SMALL: usize = 2;
/// Items of a replica that is promoted, in a measurement.
const ITEMS: u64 = 10_000_000;

/// An error of somebody else's, as text.
fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// How much of everything there is, and whether this is a measurement: a small run is a check that all works.
#[derive(Clone, Copy)]
struct Plan {
    records: u64,
    /// Failovers of a kind.
    failovers: usize,
    /// Items of a replica that is promoted.
    items: u64,
    is_full: bool,
}

impl Plan {
    fn of(options: &Options) -> Plan {
        let records = options.records.unwrap_or(RECORDS);
        let plan = Plan { records, failovers: 0, items: 0, is_full: records >= FULL_RECORDS };
        let failovers = options.failovers.unwrap_or(plan.choose(FAILOVERS, FAILOVERS_SMALL));
        Plan { failovers, items: options.items.unwrap_or(plan.choose(ITEMS, records)), ..plan }
    }

    /// What a measurement has, or a small run.
    fn choose<T>(self, full: T, small: T) -> T {
        if self.is_full { full } else { small }
    }
}

/// The rows of all that is measured.
fn all(plan: Plan) -> Result<Vec<Row>, String> {
    let mut rows = puts::rows(plan)?;
    rows.extend(wait::row(plan)?);
    rows.push(hot::row(plan)?);
    rows.push(warm::row(plan)?);
    rows.push(promote::row(plan)?);
    rows.extend(failover::rows(plan)?);
    Ok(rows)
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> Result<Report, String> {
    // More processes than cores: the system says where each of their threads runs.
    unpin();
    let plan = Plan::of(options);
    let rows = match options.lost {
        Some(failovers) => losses::row(failovers, options.resume.as_deref()).map(|row| vec![row]),
        None => all(plan),
    };
    progress::show("");
    Ok(Report::new("cluster", plan.records, rows?))
}
