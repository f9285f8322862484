//! `kelix bench scale`: what many clients and more shards cost a server, and what a crowd waits for.
//!
//! Two cores cannot show rates of eight shards, so what is compared is processor time, of clients and server
//! together.

mod clients;
mod crowd;
mod peak;
mod up;

use kelix_report::Report;
use kelix_report::cores::unpin;
use kelix_report::progress;

use crate::Options;

/// Records of a run, and from which number on a run is a measurement.
const RECORDS: u64 = 100_000;
const FULL_RECORDS: u64 = 50_000;

/// An error of somebody else's, as text.
fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Runs the benchmark; or only holds sessions in this process, as `clients` asks for.
pub(crate) fn run(options: &Options) -> Result<Report, String> {
    if let Some(held) = &options.counted {
        clients::hold(held)?;
        return Ok(Report::new("scale", 0, Vec::new()));
    }
    unpin();
    let records = options.records.unwrap_or(RECORDS);
    let is_full = records >= FULL_RECORDS;
    let mut rows = up::rows(records, is_full)?;
    rows.push(peak::row(records, is_full)?);
    rows.extend(clients::rows(is_full)?);
    progress::show("");
    Ok(Report::new("scale", records, rows))
}
