//! The sum of many runs: what `--json` prints, and what `--minutes` goes on with.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use kelix::Cost;
use kelix_sim::coverage::Coverage;
use kelix_sim::run::Outcome;
use serde_json::{Value, json};

/// Findings that are kept in words.
const FINDINGS_MAX: usize = 100;

/// The sum of runs by one program.
#[derive(Default)]
pub struct Totals {
    /// Tells this program from every other: what another one did says nothing about it.
    program: u64,
    /// Operations of each run.
    operations: u64,
    pub next_seed: u64,
    pub seeds: u64,
    /// Seeds that found something.
    pub failed: u64,
    /// Whether the seed under way has found something.
    has_findings: bool,
    /// Operations of all runs together.
    done: u64,
    words: u64,
    cost: Cost,
    pub coverage: Coverage,
    pub findings: Vec<String>,
}

impl Totals {
    pub fn new(operations: u64, first: u64) -> Totals {
        let mut hasher = DefaultHasher::new();
        std::env::current_exe().and_then(fs::read).unwrap_or_default().hash(&mut hasher);
        // As a number of JSON it must be one that every reader keeps.
        let program = hasher.finish() >> 12;
        Totals { program, operations, next_seed: first, ..Totals::default() }
    }

    /// What the file says, if this program wrote it about as many operations a run; otherwise a new
    /// beginning.
    pub fn resume(file: &Path, operations: u64, first: u64) -> Result<Totals, String> {
        let mut totals = Totals::new(operations, first);
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(totals),
            Err(error) => return Err(format!("{}: {error}", file.display())),
        };
        let bad = || format!("{}: not a file that kelix-sim wrote; remove it to begin anew", file.display());
        let value: Value = serde_json::from_str(&text).map_err(|_| bad())?;
        let number = |name: &str| value[name].as_u64().ok_or_else(bad);
        if number("program")? != totals.program || number("operations_a_seed")? != operations {
            eprintln!("{} is of another program or other runs: beginning anew", file.display());
            return Ok(totals);
        }
        totals.next_seed = number("next_seed")?;
        totals.seeds = number("seeds")?;
        totals.failed = number("seeds_with_findings")?;
        totals.done = number("operations")?;
        totals.words = number("words")?;
        totals.cost = Cost {
            reads: number("reads")?,
            read_bytes: number("read_bytes")?,
            messages: number("messages")?,
            retries: number("retries")?,
            fallbacks: number("fallbacks")?,
        };
        for (what, times) in value["coverage"].as_object().ok_or_else(bad)? {
            totals.coverage.count(what, times.as_u64().ok_or_else(bad)?);
        }
        for finding in value["findings"].as_array().ok_or_else(bad)? {
            totals.findings.push(finding.as_str().ok_or_else(bad)?.to_string());
        }
        Ok(totals)
    }

    /// Writes it down, whole or not at all.
    pub fn keep(&self, file: &Path) -> Result<(), String> {
        let new = file.with_extension("new");
        let written = fs::write(&new, format!("{}\n", self.json())).and_then(|()| fs::rename(&new, file));
        written.map_err(|error| format!("{}: {error}", file.display()))
    }

    /// What is added next is of another seed.
    pub fn begin_seed(&mut self) {
        self.has_findings = false;
    }

    /// All runs of a seed were added.
    pub fn end_seed(&mut self) {
        self.next_seed += 1;
        self.seeds += 1;
        self.failed += u64::from(self.has_findings);
    }

    pub fn add(&mut self, outcome: &Outcome) {
        self.has_findings |= !outcome.findings.is_empty();
        self.done += outcome.plan.operations;
        self.words += outcome.moments;
        self.cost.add(outcome.cost);
        self.coverage.add(&outcome.coverage);
        for finding in &outcome.findings {
            if self.findings.len() < FINDINGS_MAX {
                self.findings.push(format!("seed {}: {finding}", outcome.plan.seed));
            }
        }
    }

    pub fn json(&self) -> Value {
        let coverage: serde_json::Map<String, Value> =
            self.coverage.iter().map(|(what, times)| (what.to_string(), json!(times))).collect();
        let sum = |names: &[&str]| names.iter().map(|name| self.coverage.times(name)).sum::<u64>();
        json!({
            "program": self.program,
            "operations_a_seed": self.operations,
            "next_seed": self.next_seed,
            "seeds": self.seeds,
            "seeds_with_findings": self.failed,
            "operations": self.done,
            "words": self.words,
            "reads": self.cost.reads,
            "read_bytes": self.cost.read_bytes,
            "messages": self.cost.messages,
            "retries": self.cost.retries,
            "fallbacks": self.cost.fallbacks,
            "faults_injected": sum(&[
                "client stopped",
                "shard stopped",
                "connection cut",
                "connection delayed",
                "client killed",
                "server superseded",
                "node stopped",
                "node killed",
                "connection of nodes cut",
                "connection of nodes held up",
            ]),
            "coverage": coverage,
            "findings": self.findings,
        })
    }
}
