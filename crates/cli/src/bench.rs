//! `kelix bench`: the benchmarks, which are a library of their own.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser};
use kelix_bench::{NAMES, Options, Written};
use serde_json::json;

use crate::context::Context;
use crate::{Exit, Failure};

/// What runs the benchmarks instead of being one.
const REPORT: (&str, &str) = ("report", "runs the others and writes what they found into measurements.md");

/// Run a benchmark
///
/// It starts what it needs by itself, measures us beside another in the same run, and verifies the answers.
#[derive(clap::Args)]
#[command(after_long_help = "\
`report` runs the benchmarks one after the other. In measurements.md of the folder DIR it writes each table between the lines
  <!-- kelix bench NAME: begin -->
  <!-- kelix bench NAME: end -->
and each figure of a paper between the same with `figure` instead of `bench`; all else stays as it is. Pictures go
into DIR/figures.

Examples:
  kelix bench spine
  kelix bench ablation --json
  kelix bench spine --records 100000 --svg figures
  kelix bench report --only spine --only peers")]
pub(crate) struct BenchArgs {
    /// Which one
    #[arg(value_parser = PossibleValuesParser::new(NAMES.iter().chain([&REPORT]).map(|(name, what)| {
        PossibleValue::new(*name).help(*what)
    })))]
    name: String,
    /// Also draw the result, as an SVG file in this folder
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Number of records [default: the benchmark's own]
    #[arg(long, value_name = "N")]
    records: Option<u64>,
    /// For report: the folder that has measurements.md [default: docs]
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
    /// For report: run and write only this benchmark; may be repeated
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(NAMES.iter().map(|(name, _)| *name)))]
    only: Vec<String>,
}

pub(crate) fn run(context: &Context, args: &BenchArgs) -> Result<(), Failure> {
    let options = Options { json: context.json, svg: args.svg.clone(), records: args.records };
    if args.name == REPORT.0 {
        return report(context, args, &options);
    }
    if args.into.is_some() || !args.only.is_empty() {
        return Err(Failure::usage("bench", "--into and --only are for `kelix bench report`".to_string()));
    }
    kelix_bench::run(&args.name, &options).map_err(|context| Failure::new(Exit::Other, "bench", context))
}

fn report(context: &Context, args: &BenchArgs, options: &Options) -> Result<(), Failure> {
    if args.svg.is_some() {
        return Err(Failure::usage("bench", "report draws into its own folder, --into".to_string()));
    }
    let into = args.into.clone().unwrap_or_else(|| "docs".into());
    let Written { file, figures, reports } = kelix_bench::write(&into, &args.only, options)
        .map_err(|context| Failure::new(Exit::Other, "bench", context))?;
    if context.json {
        let reports: Vec<_> = reports.iter().map(kelix_bench::Report::json).collect();
        return context.print_json(&json!({ "file": file, "figures": figures, "reports": reports }));
    }
    for report in &reports {
        println!("{}: {}", report.bench, report.verdict());
    }
    println!("wrote {} and {} figures", file.display(), figures.len());
    Ok(())
}
