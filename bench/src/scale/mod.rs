//! `kelix bench scale`: what many clients cost a server.

mod clients;

use kelix_report::Report;
use kelix_report::cores::unpin;
use kelix_report::progress;

use crate::Options;

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
    let is_full = options.records.is_none_or(|records| records >= clients::RECORDS);
    let rows = clients::rows(is_full);
    progress::show("");
    Ok(Report::new("scale", clients::RECORDS, rows?))
}
