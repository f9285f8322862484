//! `kelix bench report`: runs the benchmarks one after the other and writes what they found into `measurements.md` and
//! `figures/` of a folder.
//!
//! 1. What a person wrote around the parts stays as it is (`marked`), also what is written while it measures: the file is
//!    read again before it is filled.
//! 2. Nothing is written before everything is measured and fits the file, and the file is replaced as a whole, so that an
//!    interrupted run leaves the old one.
//! 3. Markers are looked at before anything is measured, which takes minutes.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use crate::papers::{FIGURES, Figure};
use crate::{Error, NAMES, Options, Report, check, marked, measure};

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

/// Names of parts and what shall stand in them.
type Parts = Vec<(String, String)>;

/// Measures `only` these benchmarks, or all if there are none, and writes the results into `folder`.
pub fn write(folder: &Path, only: &[String], options: &Options) -> Result<Written, Error> {
    let names: Vec<&str> = NAMES
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| only.is_empty() || only.iter().any(|only| only == name))
        .collect();
    names.iter().try_for_each(|name| check(name, options))?;
    let file = folder.join("measurements.md");
    let empty = names.iter().flat_map(|name| part_names(name)).map(|part| (part, String::new())).collect();
    filled(&file, &empty)?;
    let mut reports = Vec::new();
    for (index, name) in names.iter().enumerate() {
        if std::io::stderr().is_terminal() {
            eprintln!("measuring {name}, {} of {}", index + 1, names.len());
        }
        reports.push(measure(name, options).map_err(|error| error.of(name))?);
    }
    let records = options.records.map_or(String::new(), |records| format!(" --records {records}"));
    let command = |report: &Report| format!("kelix bench {}{records}", report.bench);
    let figures = fill(folder, &reports, command)?;
    Ok(Written { file, figures, reports })
}

/// Writes a report that this command makes into `folder`, as [`write()`] does.
pub fn keep(folder: &Path, report: &Report, command: &str) -> Result<(), String> {
    fill(folder, std::slice::from_ref(report), |_| command.into()).map(drop)
}

/// Fills the parts of these reports and draws their figures.
fn fill(
    folder: &Path,
    reports: &[Report],
    command: impl Fn(&Report) -> String,
) -> Result<Vec<PathBuf>, String> {
    let file = folder.join("measurements.md");
    let text = filled(&file, &reports.iter().flat_map(|report| parts(report, &command(report))).collect())?;
    let figures = draw(&folder.join("figures"), reports)?;
    replace(&file, &text)?;
    Ok(figures)
}

/// The papers' figures that show rows of this benchmark.
fn figures_of(bench: &str) -> impl Iterator<Item = &'static Figure> {
    FIGURES.iter().filter(move |figure| figure.bench == bench)
}

fn part_names(bench: &str) -> Vec<String> {
    let figures = figures_of(bench).map(|figure| format!("figure {}", figure.name));
    std::iter::once(format!("bench {bench}")).chain(figures).collect()
}

fn parts(report: &Report, command: &str) -> Parts {
    let figures = figures_of(report.bench).map(|figure| figure.markdown(report));
    let texts = std::iter::once(report.markdown(command)).chain(figures);
    part_names(report.bench).into_iter().zip(texts).collect()
}

/// The file's text with these parts filled.
fn filled(file: &Path, parts: &Parts) -> Result<String, String> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        let folder = file.parent().unwrap_or(file).display();
        format!("cannot read {}: {error}; --into names the folder that has it, now {folder}", file.display())
    })?;
    marked::filled(&text, parts).map_err(|error| format!("{}: {error}", file.display()))
}

/// Draws each benchmark and the papers' figures that show its rows.
fn draw(folder: &Path, reports: &[Report]) -> Result<Vec<PathBuf>, String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let mut drawn = Vec::new();
    for report in reports {
        let figures = figures_of(report.bench).filter_map(|figure| Some((figure.name, figure.svg(report)?)));
        let own = report.svg().map(|svg| (report.bench, svg));
        for (name, svg) in own.into_iter().chain(figures) {
            let file = folder.join(format!("{name}.svg"));
            replace(&file, &svg)?;
            drawn.push(file);
        }
    }
    Ok(drawn)
}

/// Puts a whole new file in the place of one.
fn replace(file: &Path, text: &str) -> Result<(), String> {
    // Beside it, since only within a file system a rename is one step.
    let mut beside = file.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, file));
    written.map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        format!("cannot write {}: {error}", file.display())
    })
}
