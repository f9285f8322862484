//! `kelix bench`: the benchmarks, which are a library of their own.

use std::path::{Path, PathBuf};

use kelix_bench::{Keys, NAMES, Options};

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
  kelix bench peers --keys trace keys.txt --clients 2
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
    /// How often which key is asked for, in peers and sweep: uniform, zipf, latest, or trace and a file with a key a line,
    /// of which the first 131,072 are followed [default: uniform, and in mixes also zipf]
    #[arg(long, value_names = ["KEYS", "FILE"], num_args = 1..=2)]
    keys: Vec<String>,
    /// Threads of each server, in peers and sweep [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: Option<u8>,
    /// Clients, each a thread, in peers and sweep [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    clients: Option<u8>,
    /// What `counts` does under valgrind
    #[arg(long, hide = true)]
    counted: Option<String>,
}

pub(crate) fn run(context: &Context, args: &BenchArgs) -> Result<(), Failure> {
    let failed = |context| Failure::new(Exit::Other, "bench", context);
    let keys = args.keys.split_first().map(|(choice, file)| Keys::parse(choice, file.first().map(Path::new)));
    let options = Options {
        json: context.json,
        svg: args.svg.clone(),
        records: args.records,
        threads: args.threads.map(usize::from),
        clients: args.clients.map(usize::from),
        keys: keys.transpose().map_err(failed)?,
        counted: args.counted.clone(),
    };
    kelix_bench::run(&args.name, &options).map_err(failed)
}
