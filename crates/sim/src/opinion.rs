//! What a second opinion needs (`scripts/second-opinion`): histories as files, and our own checker's word on
//! such files.
//!
//! The other checker, `crates/sim/second-opinion/`, reads the same files and prints the same lines, so that
//! the two can be compared as text.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use crate::check::linear::{Judgement, judge};
use crate::history::corrupt::corrupt;
use crate::history::{Operation, lines};
use crate::random::Random;

/// Writes a history of a seed into the directory, as `NAME.jsonl`, and corrupted copies as `NAME-N.jsonl`.
pub fn write(
    directory: &Path,
    (name, seed): (&str, u64),
    history: &[Operation],
    corruptions: u64,
) -> Result<(), String> {
    let write = |name: String, history: &[Operation]| {
        let file = directory.join(name);
        fs::write(&file, lines::write(history)).map_err(|error| format!("{}: {error}", file.display()))
    };
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    write(format!("{name}.jsonl"), history)?;
    let mut random = Random::new(seed);
    for number in 1..=corruptions {
        if let Some(corrupted) = corrupt(history, &mut random) {
            write(format!("{name}-{number}.jsonl"), &corrupted)?;
        }
    }
    Ok(())
}

/// Judges each file and prints a line for it: its name, its operations, its keys, and `linearizable`, `not`
/// or `undecided`. The reasons go to standard error.
pub fn print(files: &[String]) -> ExitCode {
    for file in files {
        let text = fs::read_to_string(file).map_err(|error| error.to_string());
        let history = match text.and_then(|text| lines::read(&text)) {
            Ok(history) => history,
            Err(what) => {
                eprintln!("{file}: {what}");
                return ExitCode::from(2);
            }
        };
        let keys: BTreeSet<u64> = history.iter().map(|operation| operation.key).collect();
        let (word, finding) = match judge(&history) {
            Judgement::Linearizable => ("linearizable", None),
            Judgement::Not(finding) => ("not", Some(finding)),
            Judgement::Undecided(finding) => ("undecided", Some(finding)),
        };
        println!("{file} {} operations {} keys {word}", history.len(), keys.len());
        if let Some(finding) = finding {
            eprintln!("{file}: {finding}");
        }
    }
    ExitCode::SUCCESS
}
