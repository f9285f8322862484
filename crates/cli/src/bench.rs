//! `kelix bench`: the benchmarks, which are a library of their own.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::builder::{PossibleValue, PossibleValuesParser};
use kelix_bench::{Error, Keys, NAMES, Options, Written};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::context::Context;
use crate::{Exit, Failure};

/// What runs the benchmarks instead of being one.
const REPORT: (&str, &str) = ("report", "runs the others and writes what they found into measurements.md");

/// What runs where only a NIC is named.
const PROJECTION: &str = "projection";

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
  kelix bench peers --keys trace keys.txt --clients 2
  kelix bench spine --records 100000 --svg figures
  kelix bench ordered --keys-file ranges.csv
  kelix bench daily --traces traces
  kelix bench --project nic.toml
  kelix bench projection --threads 8 --clients 50
  kelix bench report --only spine --only peers

How a NIC is described for --project: docs/measurements.md, \"Projection\"")]
pub(crate) struct BenchArgs {
    /// Which one [default with --project: projection]
    #[arg(required_unless_present = "project", value_parser = PossibleValuesParser::new(NAMES.iter().chain([&REPORT]).map(|(name, what)| {
        PossibleValue::new(*name).help(*what)
    })))]
    name: Option<String>,
    /// For projection: a file that describes a NIC [default: two ports of ConnectX-4 at 100 Gb/s]
    #[arg(long, value_name = "NIC.toml")]
    project: Option<PathBuf>,
    /// Also draw the result, as an SVG file in this folder
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Number of records, as in 100000, 10M or 1e6 [default: the benchmark's own]
    #[arg(long, value_name = "N", value_parser = crate::units::parse_some)]
    records: Option<u64>,
    /// How often which key is asked for, in peers and sweep: uniform, zipf, latest, or trace and a file with a key a line,
    /// of which the first 131,072 are followed [default: uniform, and in mixes also zipf]
    #[arg(long, value_names = ["KEYS", "FILE"], num_args = 1..=2)]
    keys: Vec<String>,
    /// Threads of each server, in peers and sweep; cores of the server, in projection [default: 1]
    #[arg(long, value_name = "N", value_parser = crate::units::within::<u8>(1, 64))]
    threads: Option<u8>,
    /// Clients, each a thread, in peers and sweep [default: 1]; clients that wait for each answer, in projection
    #[arg(long, value_name = "N", value_parser = crate::units::within::<u8>(1, 64))]
    clients: Option<u8>,
    /// For ordered: a file with numbers as keys, one a line, of which what stands before the first comma counts
    #[arg(long, value_name = "FILE")]
    keys_file: Option<PathBuf>,
    /// For daily: a folder with traces of what caches were asked for [default: ../shared/data/trace, if it is there]
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// What `counts` does under valgrind
    #[arg(long, hide = true)]
    counted: Option<String>,
    /// For report: the folder that has measurements.md [default: docs]
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
    /// For report: run and write only this benchmark; may be repeated
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(NAMES.iter().map(|(name, _)| *name)))]
    only: Vec<String>,
}

/// Has a signal end what was started and remove what was made, which nobody does else who is in the middle of measuring.
fn clean_up_on_signals() -> Result<Arc<AtomicBool>, Failure> {
    let cannot = |source| Failure::io("bench", "cannot watch for signals", &source);
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(cannot)?;
    let ending = Arc::new(AtomicBool::new(false));
    let told = ending.clone();
    let watch = move || {
        if let Some(signal) = signals.forever().next() {
            told.store(true, Ordering::Relaxed);
            kelix_bench::clean_up();
            std::process::exit(128 + signal);
        }
    };
    std::thread::Builder::new().name("kelix-signals".into()).spawn(watch).map_err(cannot)?;
    Ok(ending)
}

pub(crate) fn run(context: &Context, args: &BenchArgs) -> Result<(), Failure> {
    let ending = clean_up_on_signals()?;
    let done = measure(context, args);
    // What fails now fails because its servers were ended; the thread that ends them ends the process.
    while ending.load(Ordering::Relaxed) {
        std::thread::park();
    }
    done
}

fn failed(error: Error) -> Failure {
    match error {
        Error::Usage(text) => Failure::usage("bench", text),
        Error::Other(text) => Failure::new(Exit::Other, "bench", text),
    }
}

fn measure(context: &Context, args: &BenchArgs) -> Result<(), Failure> {
    let keys = args.keys.split_first().map(|(choice, file)| Keys::parse(choice, file.first().map(Path::new)));
    let options = Options {
        records: args.records,
        threads: args.threads.map(usize::from),
        clients: args.clients.map(usize::from),
        keys: keys.transpose().map_err(failed)?,
        keys_file: args.keys_file.clone(),
        traces: args.traces.clone(),
        project: args.project.clone(),
        counted: args.counted.clone(),
    };
    let name = args.name.as_deref().unwrap_or(PROJECTION);
    if name == REPORT.0 {
        return report(context, args, &options);
    }
    if args.into.is_some() || !args.only.is_empty() {
        return Err(Failure::usage("bench", "--into and --only are for `kelix bench report`".to_string()));
    }
    let report = kelix_bench::measure(name, &options).map_err(failed)?;
    if context.json {
        context.print_json(&report.json())?;
    } else {
        write!(std::io::stdout(), "{}", report.table())?;
    }
    args.svg.as_ref().map_or(Ok(()), |folder| report.draw(folder)).map_err(|text| failed(text.into()))
}

fn report(context: &Context, args: &BenchArgs, options: &Options) -> Result<(), Failure> {
    if args.svg.is_some() {
        return Err(Failure::usage("bench", "report draws into its own folder, --into".to_string()));
    }
    let into = args.into.clone().unwrap_or_else(|| "docs".into());
    let Written { file, figures, reports } =
        kelix_bench::write(&into, &args.only, options).map_err(failed)?;
    if context.json {
        let reports: Vec<_> = reports.iter().map(|report| report.json()).collect();
        return context.print_json(&json!({ "file": file, "figures": figures, "reports": reports }));
    }
    let mut out = std::io::stdout().lock();
    for report in &reports {
        writeln!(out, "{}: {}", report.bench, report.verdict())?;
    }
    Ok(writeln!(out, "wrote {} and {} figures", file.display(), figures.len())?)
}
