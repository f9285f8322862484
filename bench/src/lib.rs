//! The benchmarks of `kelix bench`: each measures us beside another in one run, verifies answers, and says which
//! wanted figures hold.

mod ablation;
mod baselines;
mod chart;
mod everywhere;
mod interleave;
mod marked;
mod measurements;
mod papers;
mod peers;
mod report;
mod socket;
mod spine;
mod store;
mod workload;

use std::path::PathBuf;

pub use measurements::{Written, write};
pub use report::{Report, Row, Sense};

/// How to run a benchmark and where its result goes.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Print the result as JSON instead of a table.
    pub json: bool,
    /// Also draw it, as an SVG file in this folder.
    pub svg: Option<PathBuf>,
    /// Number of records; each benchmark has its own default.
    pub records: Option<u64>,
}

/// The names of all benchmarks, with what they show.
pub const NAMES: &[(&str, &str)] = &[
    ("spine", "gets and puts in shared memory against plain loops over the same table in one process"),
    ("everywhere", "gets over TCP against a bare echo, and many clients against few"),
    ("peers", "gets and puts against memcached and Redis"),
    ("ablation", "each feature against the same store without it"),
];

/// Runs the benchmark `name`.
fn measure(name: &str, options: &Options) -> Result<Report, String> {
    Ok(match name {
        "spine" => spine::run(options)?,
        "everywhere" => everywhere::run(options)?,
        "peers" => peers::run(options)?,
        "ablation" => ablation::run(options)?,
        _ => {
            let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
            return Err(format!("no benchmark \"{name}\"; there are: {}", names.join(", ")));
        }
    })
}

/// Runs the benchmark `name` and prints its result.
pub fn run(name: &str, options: &Options) -> Result<(), String> {
    let report = measure(name, options)?;
    if options.json {
        println!("{}", report.json());
    } else {
        print!("{}", report.table());
    }
    if let Some(folder) = &options.svg {
        report.draw(folder)?;
    }
    Ok(())
}
