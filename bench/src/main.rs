//! `kelix-bench`: what `kelix bench` does.

#![forbid(unsafe_code)]

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser;
use kelix_bench::{Error, Keys, Options, Written};
use kelix_program::bench::{BenchArgs, REPORT};
use kelix_program::{Exit, Failure, output};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// What runs where only a NIC is named.
const PROJECTION: &str = "projection";

#[derive(Parser)]
#[command(name = "kelix bench", version, max_term_width = 110)]
struct Cli {
    /// Print results and errors as JSON
    #[arg(long, display_order = 900)]
    json: bool,
    #[command(flatten)]
    bench: BenchArgs,
}

/// Has a signal end what was started and remove what was made, which nobody does else who is in the middle of
/// measuring.
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

fn run(cli: &Cli) -> Result<(), Failure> {
    let ending = clean_up_on_signals()?;
    let done = measure(cli);
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

fn measure(cli: &Cli) -> Result<(), Failure> {
    let args = &cli.bench;
    let keys = args.keys.split_first().map(|(choice, file)| Keys::parse(choice, file.first().map(Path::new)));
    let options = Options {
        records: args.records,
        threads: args.threads.map(usize::from),
        clients: args.clients.map(usize::from),
        keys: keys.transpose().map_err(failed)?,
        keys_file: args.keys_file.clone(),
        traces: args.traces.clone(),
        directory: args.directory.clone(),
        project: args.project.clone(),
        failovers: args.failovers.map(|failovers| failovers as usize),
        items: args.items,
        lost: args.lost.map(|failovers| failovers as usize),
        resume: args.resume.clone(),
        counted: args.counted.clone(),
    };
    kelix_bench::choose_huge_pages(&args.huge_pages).map_err(|text| failed(text.into()))?;
    let name = args.name.as_deref().unwrap_or(PROJECTION);
    if name == REPORT.0 {
        return report(cli, &options);
    }
    if args.into.is_some() || !args.only.is_empty() {
        return Err(Failure::usage("bench", "--into and --only are for `kelix bench report`".to_string()));
    }
    let report = kelix_bench::measure(name, &options).map_err(failed)?;
    if cli.json {
        output::print_json(&report.json())?;
    } else {
        write!(std::io::stdout(), "{}", report.table())?;
    }
    args.svg.as_ref().map_or(Ok(()), |folder| report.draw(folder)).map_err(|text| failed(text.into()))
}

fn report(cli: &Cli, options: &Options) -> Result<(), Failure> {
    let args = &cli.bench;
    if args.svg.is_some() {
        return Err(Failure::usage("bench", "report draws into its own folder, --into".to_string()));
    }
    if args.lost.is_some() {
        let text = "report writes all rows of cluster: leave out --lost".to_string();
        return Err(Failure::usage("bench", text));
    }
    let into = args.into.clone().unwrap_or_else(|| "docs".into());
    let Written { file, figures, reports } =
        kelix_bench::write(&into, &args.only, options).map_err(failed)?;
    if cli.json {
        let reports: Vec<_> = reports.iter().map(|report| report.json()).collect();
        return output::print_json(&json!({ "file": file, "figures": figures, "reports": reports }));
    }
    let mut out = std::io::stdout().lock();
    for report in &reports {
        writeln!(out, "{}: {}", report.bench, report.verdict())?;
    }
    Ok(writeln!(out, "wrote {} and {} figures", file.display(), figures.len())?)
}

fn main() -> ExitCode {
    if let Err(failure) = kelix_program::begin() {
        return failure.report(false);
    }
    let cli = Cli::parse();
    match run(&cli).and_then(|()| Ok(std::io::stdout().flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(cli.json),
    }
}
