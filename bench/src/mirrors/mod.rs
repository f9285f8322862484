//! `kelix bench mirrors`: what a mirror is worth to the processes of its host, what it costs its primary, and
//! how long it takes to have what the primary has.
//!
//! Primary and mirrors are processes of their own, connected over loopback ([`hosts`]). Values carry how
//! often their record was put and a checksum, so whoever reads finds out whether it was shown anything older
//! than before or anything mixed ([`data`]); the last row has all that was found.

mod copying;
mod data;
mod hosts;
mod lag;
mod rate;
mod reads;
mod replica;

use std::time::Duration;

use kelix_report::Report;
use kelix_report::cores::unpin;
use kelix_report::progress;
use kelix_report::report::Row;

use crate::Options;
use data::{Kind, Tally, Writer};
use hosts::Hosts;

/// Records of a table, and those from which on a run is a measurement.
const RECORDS: u64 = 400_000;
const FULL_RECORDS: u64 = 50_000;
/// Memory for the records of all tables, a record.
const RECORD_BYTES: u64 = 1200;
const MEMORY_BYTES_MIN: u64 = 256 << 20;
/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

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

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> Result<Report, String> {
    let records = options.records.unwrap_or(RECORDS);
    // Three processes and more share the cores, so the system says where each of their threads runs.
    unpin();
    let rows = rows(Size { records, is_full: records >= FULL_RECORDS });
    progress::show("");
    Ok(Report::new("mirrors", records, rows?))
}

fn rows(size: Size) -> Result<Vec<Row>, String> {
    let mut tally = Tally::default();
    let memory_bytes = (size.records * RECORD_BYTES).max(MEMORY_BYTES_MIN);
    progress::show("loading");
    let mut hosts = Hosts::start("reads", memory_bytes)?;
    let mut writer = Writer::open(&hosts, size.records, 1)?;
    Kind::ALL.into_iter().try_for_each(|kind| writer.load(kind))?;
    hosts.attach()?;
    let (mut rows, writer) = reads::rows(&hosts, writer, size, &mut tally)?;
    let (of_lag, writer) = lag::rows(&hosts, writer, size, &mut tally)?;
    rows.extend(of_lag);
    let beside = replica::row(&hosts, &writer, size, &mut tally)?;
    drop((writer, hosts));
    rows.extend(rate::rows(size, &mut tally)?);
    rows.extend(beside);
    rows.extend(copying::rows(size, &mut tally)?);
    rows.push(tally.row());
    Ok(rows)
}
