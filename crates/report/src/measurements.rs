//! `docs/measurements.md` and its figures: what benchmarks found is written between the lines that a person
//! has put there for it.
//!
//! 1. What a person wrote around the parts stays as it is (`marked`), also what is written while it measures:
//!    the file is read again before it is filled.
//! 2. The file is replaced as a whole, so that an interrupted run leaves the old one.
//! 3. [`check_parts`] looks at markers before anything is measured, which takes minutes.

use std::path::{Path, PathBuf};

use crate::papers::{FIGURES, Figure};
use crate::{Report, marked};

/// Names of parts and what shall stand in them.
type Parts = Vec<(String, String)>;

/// Writes a report that this command makes into `measurements.md` of `folder`, and draws its figures.
pub fn keep(folder: &Path, report: &Report, command: &str) -> Result<(), String> {
    fill(folder, std::slice::from_ref(report), |_| command.into()).map(drop)
}

/// Whether `measurements.md` of `folder` has a part for each of these benchmarks.
pub fn check_parts(folder: &Path, benches: &[&str]) -> Result<(), String> {
    let empty =
        benches.iter().flat_map(|bench| part_names(bench)).map(|part| (part, String::new())).collect();
    filled(&folder.join("measurements.md"), &empty).map(drop)
}

/// Fills the parts of these reports in `measurements.md` of `folder`, each with the command that makes it,
/// and draws their figures, whose files are returned.
pub fn fill(
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
