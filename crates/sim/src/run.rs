//! One run: what a seed makes of servers, clients and faults, and what is wrong with what came of it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use kelix_image::Span;
use kelix_types::limits::POINTER_TABLE_BYTES;

use crate::check::linear;
use crate::client::{Client, Stage, Tally};
use crate::fabric::{Kind, ReadCounts};
use crate::history::{Action, CompareOutcome, Operation};
use crate::random::Random;
use crate::scheduler::{self, End, Shared, TaskId, Temper};
use crate::server::{Report, ServerPlan};
use crate::value::Sizes;

/// Moments that an operation may take on average before a run is called too long.
const MOMENTS_AN_OPERATION: u64 = 200_000;

/// What a seed decides.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// Operations to be done.
    pub operations: u64,
    /// The fabric.
    pub kind: Kind,
    /// How moments are dealt with.
    pub temper: Temper,
    /// Number of clients.
    pub clients: u32,
    /// Keys that are wanted all the time.
    pub hot_keys: u64,
    /// How many operations in six are on keys that come and go.
    pub cold_in_6: u64,
    /// How long values are.
    pub sizes: Sizes,
    /// Most memory of a server.
    pub memory_bytes: u64,
    /// Average time between two faults.
    pub fault_ns: u64,
}

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64, operations: u64) -> Plan {
        let mut random = Random::new(seed ^ 0xD1CE);
        let ordered = seed % 2 == 0;
        // An unordered READ must have a chance to be done within an epoch, and a chain of them too.
        let epoch_ns = if ordered { 1_000 + random.below(20_000) } else { 8_000 + random.below(50_000) };
        // A slow READ meets several puts.
        let slow = if ordered { 400 } else { epoch_ns / 4 };
        let delay_ns_max = [20 + random.below(400), 20 + random.below(slow)][random.below(2) as usize];
        Plan {
            seed,
            operations,
            kind: Kind { ordered, delay_ns_max, epoch_ns },
            temper: Temper {
                loads_a_switch: 3 + random.below(60),
                stores_a_switch: 2 + random.below(20),
                moment_ns_max: 1 + random.below(8),
                pause_ns_max: 10 + random.below(3_000),
                pauses_a_long_one: [3, 24, 24, 100][random.below(4) as usize],
                long_pause_ns_max: 4 * epoch_ns,
            },
            hot_keys: [1, 2, 3, 12][random.below(4) as usize],
            cold_in_6: [0, 1, 4, 4][random.below(4) as usize],
            sizes: [Sizes::Mixed, Sizes::Mixed, Sizes::Short, Sizes::Long][random.below(4) as usize],
            clients: 2 + random.below(4) as u32,
            memory_bytes: 16 << 20,
            fault_ns: 100_000 + random.below(2_000_000),
        }
    }
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The plan.
    pub plan: Plan,
    /// What was done, in the order of its end.
    pub history: Vec<Operation>,
    /// What is wrong.
    pub findings: Vec<String>,
    /// How often interesting things happened.
    pub coverage: Coverage,
    /// Accesses to single words.
    pub moments: u64,
    /// Tells whether two runs were the same.
    pub fingerprint: u64,
}

/// How often the things happened that a run is for.
#[derive(Clone, Copy, Default, Debug)]
pub struct Coverage {
    /// What the clients went through.
    pub tally: Tally,
    /// READs by the state machine, and torn ones among them.
    pub reads: ReadCounts,
    /// What the servers did, added up.
    pub servers: Report,
    /// Nodes stopped for a while.
    pub stops: u64,
    /// Connections cut.
    pub cuts: u64,
    /// Clients killed.
    pub kills: u64,
    /// Servers superseded.
    pub take_overs: u64,
}

impl Coverage {
    /// Adds another run's.
    pub fn add(&mut self, other: &Coverage) {
        let (mine, theirs) = (&mut self.tally, &other.tally);
        mine.cost.add(theirs.cost);
        mine.unknown += theirs.unknown;
        mine.answered += theirs.answered;
        mine.superseded += theirs.superseded;
        mine.timed_out += theirs.timed_out;
        mine.disconnected += theirs.disconnected;
        mine.refused += theirs.refused;
        self.reads.reads += other.reads.reads;
        self.reads.torn += other.reads.torn;
        self.servers.splits += other.servers.splits;
        self.servers.merges += other.servers.merges;
        self.servers.epoch += other.servers.epoch;
        self.stops += other.stops;
        self.cuts += other.cuts;
        self.kills += other.kills;
        self.take_overs += other.take_overs;
    }

    /// What a set of runs must have met to mean anything, and how often it did.
    pub fn wanted(&self) -> [(&'static str, u64); 13] {
        let tally = &self.tally;
        [
            ("answers", tally.answered),
            ("unknown outcomes", tally.unknown),
            ("time-outs", tally.timed_out),
            ("sessions superseded", tally.superseded),
            ("torn READs", self.reads.torn),
            ("READs tried again", tally.cost.retries),
            ("READs given up", tally.cost.fallbacks),
            ("index blocks split", self.servers.splits),
            ("index blocks merged", self.servers.merges),
            ("stops", self.stops),
            ("connections cut", self.cuts),
            ("clients killed", self.kills),
            ("take-overs", self.take_overs),
        ]
    }
}

#[derive(Default)]
struct Faults {
    stops: u64,
    cuts: u64,
    kills: u64,
    take_overs: u64,
}

/// Runs a plan. A panic of the code under test is something found, too.
pub fn run(plan: Plan) -> Outcome {
    std::panic::catch_unwind(|| run_plan(plan)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Outcome {
            plan,
            history: Vec::new(),
            findings: vec![format!("a panic: {text}")],
            coverage: Coverage::default(),
            moments: 0,
            fingerprint: 0,
        }
    })
}

fn run_plan(plan: Plan) -> Outcome {
    let mut random = Random::new(plan.seed);
    let counts: Shared<ReadCounts> = Rc::default();
    let faults: Shared<Faults> = Rc::default();
    let reports: Shared<Vec<Shared<Report>>> = Rc::default();
    let working: Shared<Vec<TaskId>> = Rc::default();
    let stage: Shared<Option<Rc<Stage>>> = Rc::default();
    let set_up = || {
        let servers = ServerPlan {
            kind: plan.kind,
            memory_bytes: plan.memory_bytes,
            authority: Span::private(4096),
            counts: counts.clone(),
        };
        let first = servers.start();
        reports.borrow_mut().push(first.report.clone());
        let set = Rc::new(Stage {
            server: Rc::new(RefCell::new(first)),
            pointers: Span::private(POINTER_TABLE_BYTES),
            history: Rc::default(),
            findings: Rc::default(),
            remaining: Rc::new(RefCell::new(plan.operations)),
            versions: Rc::default(),
            mismatches: Rc::default(),
            tally: Rc::default(),
            wires: Rc::default(),
            terms: Rc::new(RefCell::new(HashMap::from([(1, 0)]))),
            next_value: Rc::new(RefCell::new(plan.sizes.first_value())),
            hot_keys: plan.hot_keys,
            cold_in_6: plan.cold_in_6,
        });
        *stage.borrow_mut() = Some(set.clone());
        for number in 0..plan.clients {
            let task = hire(number, &set, &mut random, &working);
            working.borrow_mut().push(task);
        }
        let chaos = Chaos {
            plan,
            stage: set,
            servers,
            working: working.clone(),
            faults: faults.clone(),
            reports: reports.clone(),
            random: random.split(),
        };
        scheduler::spawn("chaos", move || chaos.run());
    };
    let until = || working.borrow().is_empty();
    let moments_max = plan.operations * MOMENTS_AN_OPERATION;
    let (end, moments) = scheduler::run(plan.seed, plan.temper, moments_max, set_up, until);
    let stage = stage.borrow_mut().take().expect("set up");
    let mut history = std::mem::take(&mut *stage.history.borrow_mut());
    let mut findings = std::mem::take(&mut *stage.findings.borrow_mut());
    match end {
        End::Done => {}
        End::Stuck(tasks) => findings.push(format!("nothing goes on any more; asleep for ever: {tasks:?}")),
        End::TooLong => findings.push(format!("more than {moments_max} moments")),
    }
    make_out_mismatches(&stage, &mut history);
    let history: Vec<Operation> = history.into_iter().flatten().collect();
    if let Err(finding) = linear::check(&history) {
        findings.push(finding.to_string());
    }
    let mut hasher = DefaultHasher::new();
    format!("{history:?}").hash(&mut hasher);
    let mut servers = Report::default();
    for report in reports.borrow().iter() {
        let Report { counters, splits, merges, epoch } = *report.borrow();
        servers.splits += splits;
        servers.merges += merges;
        servers.epoch += epoch;
        servers.counters.puts += counters.puts;
        servers.counters.waited += counters.waited;
        servers.counters.evacuated += counters.evacuated;
    }
    let Faults { stops, cuts, kills, take_overs } = *faults.borrow();
    let (tally, reads) = (*stage.tally.borrow(), *counts.borrow());
    Outcome {
        plan,
        findings,
        coverage: Coverage { tally, reads, servers, stops, cuts, kills, take_overs },
        moments,
        fingerprint: hasher.finish() ^ moments,
        history,
    }
}

/// Says which values the versions had that failed compare-and-sets were told. One whose version nobody ever learnt the
/// value of says nothing that could be checked.
fn make_out_mismatches(stage: &Stage, history: &mut [Option<Operation>]) {
    let versions = stage.versions.borrow();
    for (position, version) in stage.mismatches.borrow().iter() {
        let known = versions.get(version).copied();
        match (known, &mut history[*position]) {
            (Some(id), Some(Operation { action: Action::CompareAndSet { outcome, .. }, .. })) => {
                *outcome = Some(CompareOutcome::Mismatch(Some(id)));
            }
            (_, operation) => *operation = None,
        }
    }
}

fn hire(number: u32, stage: &Rc<Stage>, random: &mut Random, working: &Shared<Vec<TaskId>>) -> TaskId {
    let drift_ppm = random.below(2_000) as i64 - 1_000;
    let client = Client { number, stage: stage.clone(), random: random.split(), drift_ppm };
    let working = working.clone();
    scheduler::spawn(&format!("client {number}"), move || {
        client.run();
        let own = scheduler::current();
        working.borrow_mut().retain(|task| *task != own);
    })
}

/// The task that does harm.
struct Chaos {
    plan: Plan,
    stage: Rc<Stage>,
    servers: ServerPlan,
    working: Shared<Vec<TaskId>>,
    faults: Shared<Faults>,
    reports: Shared<Vec<Shared<Report>>>,
    random: Random,
}

impl Chaos {
    fn run(mut self) {
        let mut next_client = self.plan.clients;
        loop {
            scheduler::sleep(1 + self.random.below(2 * self.plan.fault_ns));
            let working = self.working.borrow().clone();
            if working.is_empty() {
                return;
            }
            let victim = working[self.random.below(working.len() as u64) as usize];
            let mut faults = self.faults.borrow_mut();
            match self.random.below(20) {
                0..=9 => {
                    faults.stops += 1;
                    scheduler::stop(victim, self.random.below(20 * self.plan.kind.epoch_ns));
                }
                10..=13 => {
                    faults.stops += 1;
                    let server = self.stage.server.borrow().task;
                    scheduler::stop(server, self.random.below(20 * self.plan.kind.epoch_ns));
                }
                14..=16 => {
                    if let Some(wire) = self.stage.wires.borrow().get(&victim) {
                        faults.cuts += 1;
                        wire.cut();
                    }
                }
                17..=18 => {
                    faults.kills += 1;
                    if let Some(wire) = self.stage.wires.borrow().get(&victim) {
                        wire.cut();
                    }
                    scheduler::kill(victim);
                    self.working.borrow_mut().retain(|task| *task != victim);
                    let task = hire(next_client, &self.stage, &mut self.random, &self.working);
                    next_client += 1;
                    self.working.borrow_mut().push(task);
                }
                _ => {
                    faults.take_overs += 1;
                    let successor = self.servers.start();
                    self.reports.borrow_mut().push(successor.report.clone());
                    self.stage.terms.borrow_mut().insert(successor.term, scheduler::now_ns());
                    *self.stage.server.borrow_mut() = successor;
                }
            }
        }
    }
}
