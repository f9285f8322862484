//! `kelix bench report`: runs the benchmarks one after the other and writes what they found into
//! `measurements.md` and `figures/` of a folder. Nothing is written before everything is measured and fits
//! the file.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use kelix_report::{Report, check_parts, fill};

use kelix_program::bench::NAMES;

use crate::{Error, Options, check, measure};

/// What a run wrote.
#[derive(Debug)]
pub struct Written {
    /// The text.
    pub file: PathBuf,
    /// The pictures.
    pub figures: Vec<PathBuf>,
    /// What was measured.
    pub reports: Vec<Report>,
}

/// Measures `only` these benchmarks, or all if there are none, and writes the results into `folder`.
pub fn write(folder: &Path, only: &[String], options: &Options) -> Result<Written, Error> {
    let names: Vec<&str> = NAMES
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| only.is_empty() || only.iter().any(|only| only == name))
        .collect();
    // Traces, a directory, failovers and items are for one of them each.
    let of = |name: &str| {
        let traces = options.traces.clone().filter(|_| name == "daily");
        let directory = options.directory.clone().filter(|_| name == "log");
        let failovers = options.failovers.filter(|_| name == "cluster");
        let items = options.items.filter(|_| name == "cluster");
        Options { traces, directory, failovers, items, ..options.clone() }
    };
    names.iter().try_for_each(|name| check(name, &of(name)))?;
    check_parts(folder, &names)?;
    let mut reports = Vec::new();
    for (index, name) in names.iter().enumerate() {
        if std::io::stderr().is_terminal() {
            eprintln!("measuring {name}, {} of {}", index + 1, names.len());
        }
        reports.push(measure(name, &of(name)).map_err(|error| error.of(name))?);
    }
    let records = options.records.map_or(String::new(), |records| format!(" --records {records}"));
    let command = |report: &Report| {
        let of = of(report.bench);
        let traces = of.traces.map_or("", |_| " --traces DIR");
        let directory = of.directory.map_or("", |_| " --directory DIR");
        let failovers = of.failovers.map_or(String::new(), |of| format!(" --failovers {of}"));
        let items = of.items.map_or(String::new(), |of| format!(" --items {of}"));
        format!("kelix bench {}{directory}{records}{traces}{failovers}{items}", report.bench)
    };
    let figures = fill(folder, &reports, command)?;
    Ok(Written { file: folder.join("measurements.md"), figures, reports })
}
