//! `kelix bench`: the benchmarks, which are a library of their own.

use std::path::PathBuf;

use kelix_bench::{NAMES, Options};

use crate::context::Context;
use crate::{Exit, Failure};

/// Run a benchmark
///
/// It starts what it needs by itself, measures us beside another in the same run, and verifies the answers.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  kelix bench spine
  kelix bench ablation --json
  kelix bench spine --records 100000 --svg figures")]
pub(crate) struct BenchArgs {
    /// Which one
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(NAMES.iter().map(|(name, what)| {
        clap::builder::PossibleValue::new(*name).help(*what)
    })))]
    name: String,
    /// Also draw the result, as an SVG file in this folder
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Number of records [default: the benchmark's own]
    #[arg(long, value_name = "N")]
    records: Option<u64>,
}

pub(crate) fn run(context: &Context, args: &BenchArgs) -> Result<(), Failure> {
    let options = Options { json: context.json, svg: args.svg.clone(), records: args.records };
    kelix_bench::run(&args.name, &options).map_err(|context| Failure::new(Exit::Other, "bench", context))
}
