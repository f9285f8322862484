//! The command line of `kelix-sim`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use kelix_sim::coverage::Coverage;
use kelix_sim::opinion;
use kelix_sim::plan::Plan;
use kelix_sim::run::{Outcome, run};
use totals::Totals;

mod totals;

const HELP: &str = "kelix-sim: production code under a seeded simulator that tries to break the read rule

  kelix-sim [--seeds N] [--first S] [--operations N] [--once] [--json]
      runs N seeds (20) from S (1) on, each with so many operations (10000), and each
      twice, to see that both are the same; --once runs each once
  kelix-sim --minutes M [--state FILE] [--first S] [--operations N] [--json]
      runs seeds from S (1) on, each once, for M minutes, and goes on where the last such call
      with this program and as many operations ended, as FILE (kelix-sim.state.json) says
  kelix-sim --until-found [--seeds N] [--first S] [--operations N]
      stops at the first seed that finds something, and says what
  kelix-sim --seed S [--operations N] [--trace]
      runs one seed; --trace prints its plan, its history and the harm that was done
  kelix-sim ... --histories DIR [--corruptions N]
      also writes each seed's history to a file in DIR, and N (0) corrupted copies of it
  kelix-sim --check FILE...
      judges histories from such files, without running anything

--clusters and --no-clusters leave out half of what a seed does: servers of their own, or a cluster.
--json prints the sum of all at the end as one JSON object, and nothing else.
Exit code 0: nothing found; 1: something found; 2: bad arguments.
";

/// So many seeds must together have come past everything that a run is for.
const SEEDS_THAT_COVER: u64 = 20;
/// So many operations each.
const OPERATIONS_THAT_COVER: u64 = 10_000;

struct Arguments {
    seeds: u64,
    first: u64,
    operations: u64,
    minutes: Option<u64>,
    state: PathBuf,
    once: bool,
    json: bool,
    until_found: bool,
    trace: bool,
    histories: Option<PathBuf>,
    corruptions: u64,
    check: Vec<String>,
    /// Only plans of clusters, or only such of other servers.
    only: Option<bool>,
}

impl Arguments {
    /// What a seed does, without what is left out.
    fn plans(&self, seed: u64) -> impl Iterator<Item = Plan> + use<> {
        let only = self.only;
        let is_wanted = move |plan: &Plan| only.is_none_or(|is_cluster| is_cluster == plan.cluster.is_some());
        Plan::all(seed, self.operations).into_iter().filter(is_wanted)
    }
}

fn parse() -> Result<Option<Arguments>, String> {
    let mut arguments = Arguments {
        seeds: 20,
        first: 1,
        operations: 10_000,
        minutes: None,
        state: "kelix-sim.state.json".into(),
        once: false,
        json: false,
        until_found: false,
        trace: false,
        histories: None,
        corruptions: 0,
        check: Vec::new(),
        only: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || -> Result<u64, String> {
            let text = words.next().ok_or(format!("{word} wants a number"))?;
            text.parse().map_err(|_| format!("{word} wants a number, not {text}"))
        };
        match word.as_str() {
            "--seeds" => arguments.seeds = number()?,
            "--first" => arguments.first = number()?,
            "--operations" => arguments.operations = number()?,
            "--minutes" => arguments.minutes = Some(number()?),
            "--state" => arguments.state = words.next().ok_or("--state wants a file")?.into(),
            "--seed" => (arguments.first, arguments.seeds) = (number()?, 1),
            "--once" => arguments.once = true,
            "--json" => arguments.json = true,
            "--until-found" => (arguments.once, arguments.until_found) = (true, true),
            "--trace" => arguments.trace = true,
            "--clusters" => arguments.only = Some(true),
            "--no-clusters" => arguments.only = Some(false),
            "--corruptions" => arguments.corruptions = number()?,
            "--histories" => {
                arguments.histories = Some(words.next().ok_or("--histories wants a directory")?.into());
            }
            "--check" => arguments.check = words.by_ref().collect(),
            "--help" | "-h" => return Ok(None),
            _ => return Err(format!("what is {word}? See kelix-sim --help")),
        }
    }
    Ok(Some(arguments))
}

pub fn main() -> ExitCode {
    let ended = match parse() {
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Ok(Some(arguments)) if !arguments.check.is_empty() => return opinion::print(&arguments.check),
        Ok(Some(arguments)) if arguments.until_found => look_for_one(&arguments),
        Ok(Some(arguments)) => run_seeds(&arguments),
        Err(what) => Err(what),
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::from(2)
        }
    }
}

/// Runs until a seed finds something. Whether none did.
fn look_for_one(arguments: &Arguments) -> Result<bool, String> {
    for seed in arguments.first..arguments.first + arguments.seeds {
        for plan in arguments.plans(seed) {
            let outcome = run(plan);
            if let Some(finding) = outcome.findings.first() {
                let first = finding.lines().next().unwrap_or_default();
                println!("found after {} seeds: {first}", seed - arguments.first + 1);
                return Ok(false);
            }
        }
    }
    println!("nothing found in {} seeds", arguments.seeds);
    Ok(true)
}

/// Runs seeds and reports each. Whether nothing was found.
fn run_seeds(arguments: &Arguments) -> Result<bool, String> {
    let began = Instant::now();
    let mut totals = match arguments.minutes {
        Some(_) => Totals::resume(&arguments.state, arguments.operations, arguments.first)?,
        None => Totals::new(arguments.operations, arguments.first),
    };
    if totals.seeds > 0 && !arguments.json {
        println!("going on after {} seeds, with seed {}", totals.seeds, totals.next_seed);
    }
    let more = |totals: &Totals| match arguments.minutes {
        Some(minutes) => began.elapsed() < Duration::from_secs(60 * minutes),
        None => totals.next_seed < arguments.first + arguments.seeds,
    };
    while more(&totals) {
        totals.begin_seed();
        for plan in arguments.plans(totals.next_seed) {
            let plan_began = Instant::now();
            let twice = !arguments.once && arguments.minutes.is_none();
            let outcome = if twice { run_twice(plan) } else { run(plan) };
            if let Some(directory) = &arguments.histories {
                let name =
                    if plan.cluster.is_some() { format!("{}c", plan.seed) } else { plan.seed.to_string() };
                opinion::write(directory, (&name, plan.seed), &outcome.history, arguments.corruptions)?;
            }
            totals.add(&outcome);
            if !arguments.json {
                report(&outcome, plan_began.elapsed().as_secs_f64(), arguments);
            }
        }
        totals.end_seed();
        if arguments.minutes.is_some() {
            totals.keep(&arguments.state)?;
        }
    }
    if arguments.json {
        println!("{}", totals.json());
        return Ok(totals.findings.is_empty());
    }
    let mut failed = totals.failed;
    let are_to_cover = totals.seeds >= SEEDS_THAT_COVER && arguments.operations >= OPERATIONS_THAT_COVER;
    if are_to_cover && arguments.only.is_none() {
        failed += u64::from(!covers(&totals.coverage));
    }
    println!("{} passed, {failed} failed", totals.seeds - totals.failed);
    Ok(failed == 0)
}

/// Runs a plan twice, at the same time where there are processors for both: all that a run knows is its
/// thread's.
fn run_twice(plan: Plan) -> Outcome {
    std::thread::scope(|scope| {
        let again = scope.spawn(move || run(plan).fingerprint);
        let mut outcome = run(plan);
        if again.join().ok() != Some(outcome.fingerprint) {
            outcome.findings.push("two runs of the seed were not the same".to_string());
        }
        outcome
    })
}

/// Whether the runs came past everything they are for.
fn covers(coverage: &Coverage) -> bool {
    println!("came past: {coverage}");
    let (missing, unknown) = (coverage.missing(), coverage.unknown());
    for what in &missing {
        println!("not once in all these runs: {what}; they say too little");
    }
    for what in &unknown {
        println!("counted, and not among what is wanted: {what}");
    }
    missing.is_empty() && unknown.is_empty()
}

fn report(outcome: &Outcome, seconds: f64, arguments: &Arguments) {
    let Outcome { plan, history, findings, coverage, cost, moments, .. } = outcome;
    if arguments.trace {
        print_trace(outcome);
    }
    println!(
        "seed {:4} {} {:6} shards {} {:6} operations {:6.1} M words {:6} READs {:4} torn {:4} retries \
         {:5} epochs, longest {:4} us; {seconds:.1} s{}",
        plan.seed,
        match plan.cluster {
            Some(_) => "cluster  ",
            None if plan.kind.ordered => "ordered  ",
            None => "unordered",
        },
        format!("{:?}", plan.theme).to_lowercase(),
        plan.shards,
        history.len(),
        *moments as f64 / 1e6,
        cost.reads,
        coverage.times("READ torn"),
        cost.retries,
        coverage.times("epoch stepped"),
        outcome.longest_ns / 1_000,
        if findings.is_empty() { "" } else { "  FAILED" },
    );
    for finding in findings.iter().take(5) {
        println!("    {finding}");
    }
    if !findings.is_empty() {
        println!("    replay: kelix-sim --seed {} --operations {} --trace", plan.seed, arguments.operations);
    }
}

/// Prints what was done, by the time of its call, with the harm in between.
fn print_trace(outcome: &Outcome) {
    println!("{:#?}", outcome.plan);
    println!("keys are term * 2^32 + number, times are virtual nanoseconds");
    let operations = outcome.history.iter().map(|it| (it.called_ns, it.to_string()));
    let harm = outcome.harm.iter().map(|(at_ns, what)| (*at_ns, format!("{at_ns} -- {what}")));
    let mut lines: Vec<(u64, String)> = operations.chain(harm).collect();
    lines.sort();
    lines.iter().for_each(|(_, line)| println!("{line}"));
    println!("came past: {}", outcome.coverage);
}
