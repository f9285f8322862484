//! `kelix-sim`: runs seeds of the simulator and says what it found.

#[cfg(not(kelix_sim))]
fn main() {
    eprintln!("kelix-sim is built with --cfg kelix_sim: use `make sim`");
    std::process::exit(2);
}

#[cfg(kelix_sim)]
fn main() -> std::process::ExitCode {
    command::main()
}

#[cfg(kelix_sim)]
mod command {
    use std::path::PathBuf;
    use std::process::ExitCode;
    use std::time::Instant;

    use kelix_sim::opinion;
    use kelix_sim::run::{Coverage, Outcome, Plan, run};

    const HELP: &str = "kelix-sim: production code under a seeded simulator that tries to break the read rule

  kelix-sim [--seeds N] [--first S] [--operations N] [--once]
      runs N seeds (20) from S (1) on, each with so many operations (10000), and each
      twice, to see that both are the same; --once runs each once
  kelix-sim --until-found [--seeds N] [--first S] [--operations N]
      stops at the first seed that finds something, and says what
  kelix-sim --seed S [--operations N] [--trace]
      runs one seed; --trace prints its history
  kelix-sim ... --histories DIR [--corruptions N]
      also writes each seed's history to a file in DIR, and N (0) corrupted copies of it
  kelix-sim --check FILE...
      judges histories from such files, without running anything

Exit code 0: nothing found; 1: something found; 2: bad arguments.
";

    /// So many seeds must together have met everything that a run is for.
    const SEEDS_THAT_COVER: u64 = 20;

    struct Arguments {
        seeds: u64,
        first: u64,
        operations: u64,
        once: bool,
        until_found: bool,
        trace: bool,
        histories: Option<PathBuf>,
        corruptions: u64,
        check: Vec<String>,
    }

    fn parse() -> Result<Option<Arguments>, String> {
        let mut arguments = Arguments {
            seeds: 20,
            first: 1,
            operations: 10_000,
            once: false,
            until_found: false,
            trace: false,
            histories: None,
            corruptions: 0,
            check: Vec::new(),
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
                "--seed" => (arguments.first, arguments.seeds) = (number()?, 1),
                "--once" => arguments.once = true,
                "--until-found" => (arguments.once, arguments.until_found) = (true, true),
                "--trace" => arguments.trace = true,
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
        let arguments = match parse() {
            Ok(Some(arguments)) => arguments,
            Ok(None) => {
                print!("{HELP}");
                return ExitCode::SUCCESS;
            }
            Err(what) => {
                eprintln!("{what}");
                return ExitCode::from(2);
            }
        };
        if !arguments.check.is_empty() {
            return opinion::print(&arguments.check);
        }
        let (mut good, mut bad) = (0, 0);
        let mut coverage = Coverage::default();
        for seed in arguments.first..arguments.first + arguments.seeds {
            let began = Instant::now();
            let plan = Plan::of(seed, arguments.operations);
            let mut outcome = run(plan);
            if let Some(directory) = &arguments.histories {
                if let Err(what) = opinion::write(directory, seed, &outcome.history, arguments.corruptions) {
                    eprintln!("{what}");
                    return ExitCode::from(2);
                }
            }
            if !arguments.once && run(plan).fingerprint != outcome.fingerprint {
                outcome.findings.push("two runs of the seed were not the same".to_string());
            }
            if arguments.until_found {
                if let Some(finding) = outcome.findings.first() {
                    let first = finding.lines().next().unwrap_or_default();
                    println!("found after {} seeds: {first}", seed - arguments.first + 1);
                    return ExitCode::FAILURE;
                }
                continue;
            }
            report(&outcome, began.elapsed().as_secs_f64(), arguments.trace);
            coverage.add(&outcome.coverage);
            if outcome.findings.is_empty() { good += 1 } else { bad += 1 }
        }
        if !arguments.until_found && arguments.seeds >= SEEDS_THAT_COVER && arguments.operations >= 10_000 {
            let wanted = coverage.wanted();
            let met: Vec<String> = wanted.iter().map(|(what, times)| format!("{times} {what}")).collect();
            println!("met: {}", met.join(", "));
            if let Some((what, _)) = wanted.iter().find(|(_, times)| *times == 0) {
                println!("no {what} in all these runs: they say too little");
                bad += 1;
            }
        }
        println!("{good} passed, {bad} failed");
        if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn report(outcome: &Outcome, seconds: f64, trace: bool) {
        let Outcome { plan, history, findings, coverage, moments, .. } = outcome;
        if trace {
            println!("{plan:#?}");
            history.iter().for_each(|operation| println!("{operation:?}"));
            println!("{coverage:#?}");
        }
        let tally = &coverage.tally;
        println!(
            "seed {:4} {} {:6} operations, {:4.1} M words, {:5} reads, {:4} torn, {:4} retries, {:4} fallbacks, {:3} splits, \
             {:3} merges, {:5} epochs, {:3} stops, {:2} cuts, {:2} kills, {} take-overs, {:3} unknown, {:3} superseded; \
             {seconds:.1} s{}",
            plan.seed,
            if plan.kind.ordered { "ordered  " } else { "unordered" },
            history.len(),
            *moments as f64 / 1e6,
            tally.cost.reads,
            coverage.reads.torn,
            tally.cost.retries,
            tally.cost.fallbacks,
            coverage.servers.splits,
            coverage.servers.merges,
            coverage.servers.epoch,
            coverage.stops,
            coverage.cuts,
            coverage.kills,
            coverage.take_overs,
            tally.unknown,
            tally.superseded,
            if findings.is_empty() { "" } else { "  FAILED" },
        );
        for finding in findings.iter().take(5) {
            println!("    {finding}");
        }
        if !findings.is_empty() {
            println!("    replay: kelix-sim --seed {} --operations {} --trace", plan.seed, plan.operations);
        }
    }
}
