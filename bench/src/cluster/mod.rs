//! `kelix bench cluster`: what replicas cost who writes and who reads, and how long nothing is written when a
//! primary dies.
//!
//! Nodes are processes of their own on this machine ([`nodes`]), as is the server without replicas that they are
//! compared with. Values tell how often their record was put, by a checksum that only this record's have.

mod failover;
mod nodes;
mod puts;
mod wait;

use kelix_report::Report;
use kelix_report::cores::unpin;
use kelix_report::progress;
use kelix_report::report::{Row, Sense};

use crate::Options;

/// Records, and those from which on a run is a measurement.
const RECORDS: u64 = 100_000;
const FULL_RECORDS: u64 = 50_000;

/// An error of somebody else's, as text.
fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// How many records there are, and whether this is a measurement: a small run is a check that all works.
#[derive(Clone, Copy)]
struct Size {
    records: u64,
    is_full: bool,
}

impl Size {
    /// What a measurement has, or a small run.
    fn choose<T>(self, full: T, small: T) -> T {
        if self.is_full { full } else { small }
    }
}

/// A row of a figure that is compared with nothing.
fn told(id: &'static str, name: &'static str, unit: &'static str, figure: f64, wanted: Option<f64>) -> Row {
    Row {
        id: id.into(),
        name: name.into(),
        ours: figure,
        other: None,
        unit,
        ratio: figure,
        wanted,
        sense: Sense::AtMost,
        note: String::new(),
    }
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> Result<Report, String> {
    let records = options.records.unwrap_or(RECORDS);
    // More processes than cores: the system says where each of their threads runs.
    unpin();
    let size = Size { records, is_full: records >= FULL_RECORDS };
    let rows = puts::rows(size).and_then(|mut rows| {
        rows.extend(wait::row(size)?);
        rows.extend(failover::rows(size)?);
        Ok(rows)
    });
    progress::show("");
    Ok(Report::new("cluster", records, rows?))
}
