//! One run: servers, clients and harm by a seed's plan, and what is wrong with what came of it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use kelix::sim::Host;
use kelix::{Cost, Version};
use kelix_image::Span;
use kelix_types::TableId;

use crate::chaos::Chaos;
use crate::check::linear;
use crate::check::sessions::{self, Known, Past};
use crate::client::{Client, OnMirrors, Stage};
use crate::cluster::Cluster;
use crate::coverage::Coverage;
use crate::disk::Disk;
use crate::history::{Action, CompareOutcome, Operation};
use crate::mirror::Shown;
use crate::plan::{Plan, Theme};
use crate::random::Random;
use crate::scheduler::{self, End, HostClock, Shared, TaskId};
use crate::server::{ServerPlan, drift_ppm};

/// Moments that an operation may take on average before a run is called too long.
const MOMENTS_AN_OPERATION: u64 = 200_000;

/// Clients that only read mirrors, and such that write, too.
const MIRROR_READERS: u32 = 2;
const MIRROR_WRITERS: u32 = 2;

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The plan.
    pub plan: Plan,
    /// What was done, in the order of its call.
    pub history: Vec<Operation>,
    /// What harm was done, and when.
    pub harm: Vec<(u64, String)>,
    /// What is wrong.
    pub findings: Vec<String>,
    /// What the run came past.
    pub coverage: Coverage,
    /// What its sessions cost.
    pub cost: Cost,
    /// Accesses to single words.
    pub moments: u64,
    /// The longest that an operation took.
    pub longest_ns: u64,
    /// Tells whether two runs were the same.
    pub fingerprint: u64,
}

/// Runs a plan. A panic of the code under test is something found, too.
pub fn run(plan: Plan) -> Outcome {
    let _ = Coverage::take();
    std::panic::catch_unwind(|| run_plan(plan)).unwrap_or_else(|panic| {
        scheduler::give_up();
        kelix_fabric::set_host_clock(None);
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Outcome {
            plan,
            history: Vec::new(),
            harm: Vec::new(),
            findings: vec![format!("a panic: {text}")],
            coverage: Coverage::take(),
            cost: Cost::default(),
            moments: 0,
            longest_ns: 0,
            fingerprint: 0,
        }
    })
}

/// The clients that work now.
pub type Working = Shared<Vec<TaskId>>;

fn run_plan(plan: Plan) -> Outcome {
    let mut random = Random::new(plan.seed);
    let harm: Shared<Vec<(u64, String)>> = Rc::default();
    let stage: Shared<Option<Rc<Stage>>> = Rc::default();
    let done: Shared<bool> = Rc::default();
    let disk = plan.disk_ns.map(|delay_ns| Disk::new(plan.seed, delay_ns));
    let shown = plan.mirrors.then(|| Shown::new(TableId::new(plan.table, 1), plan.hot_keys, plan.max_lag_ns));
    // What is done on mirrors has a history of its own.
    let there: Shared<Option<There>> = Rc::default();
    let cluster: Shared<Option<Cluster>> = Rc::default();
    let set_up = || {
        let findings: Shared<Vec<String>> = Rc::default();
        let servers = ServerPlan {
            kind: plan.kind,
            shards: plan.shards,
            memory_bytes: plan.memory_bytes,
            authority: Span::private(4096),
            clock: HostClock::default(),
            drift_ppm_max: plan.drift_ppm_max,
            findings: findings.clone(),
            disk: disk.clone(),
            mirrors: shown.clone(),
        };
        let (nodes, server) = match plan.cluster {
            Some(of) => {
                let (nodes, server) = Cluster::begin(of, &servers, (harm.clone(), done.clone()));
                (Some(nodes), server)
            }
            None => (None, Rc::new(RefCell::new(servers.start()))),
        };
        *cluster.borrow_mut() = nodes.clone();
        let clocks = nodes.as_ref().map_or_else(|| vec![HostClock::default()], Cluster::clocks);
        let set = Rc::new(Stage {
            plan,
            server,
            host: Host::default(),
            history: Rc::default(),
            findings,
            remaining: Rc::new(RefCell::new(plan.operations)),
            tables: Rc::default(),
            versions: Rc::default(),
            versions_of: Rc::default(),
            mismatches: Rc::default(),
            cost: Rc::default(),
            longest_ns: Rc::default(),
            wires: Rc::default(),
            ends: Rc::default(),
            terms: Rc::new(RefCell::new(HashMap::from([(1, 0)]))),
            values: Rc::default(),
            loads: Rc::default(),
            on_mirrors: None,
            clocks: clocks.into(),
        });
        *stage.borrow_mut() = Some(set.clone());
        let (harm, done) = (harm.clone(), done.clone());
        let on_mirrors = There::new(&set);
        *there.borrow_mut() = Some(on_mirrors.clone());
        scheduler::spawn("conductor", move || {
            conduct(plan, (&set, &on_mirrors), (servers, nodes), &harm, &mut random, &done);
        });
    };
    kelix_fabric::set_host_clock(Some(scheduler::host_now_ns));
    let until = || *done.borrow();
    let moments_max = plan.operations * MOMENTS_AN_OPERATION;
    let (end, moments) = scheduler::run(plan.seed, plan.temper, moments_max, set_up, until);
    kelix_fabric::set_host_clock(None);
    let stage = stage.borrow_mut().take().expect("set up");
    let there = there.borrow_mut().take().expect("set up");
    let mut history = std::mem::take(&mut *stage.history.borrow_mut());
    let mut findings = std::mem::take(&mut *stage.findings.borrow_mut());
    match end {
        End::Done => {}
        End::Stuck(tasks) => findings.push(format!("nothing goes on any more; asleep for ever: {tasks:?}")),
        End::TooLong => findings.push(format!("more than {moments_max} moments")),
    }
    make_out_mismatches(&stage, &mut history);
    let mut history: Vec<Operation> = history.into_iter().flatten().collect();
    disk.iter().for_each(|disk| history.retain(|operation| !disk.may_have_lost(operation)));
    plan.cluster.iter().for_each(|cluster| history.retain(|operation| !cluster.may_be_old(operation)));
    let reads = there.reads.stage.history.borrow_mut().drain(..).flatten().collect();
    let sessions = there.sessions(&mut history);
    if let Err(finding) = linear::check(&history) {
        findings.push(finding.to_string());
    }
    if let Some(shown) = &shown {
        let judged = there.judge(shown, &stage, (reads, sessions), &history);
        findings.extend(judged.err().map(|finding| format!("on mirrors: {finding}")));
    }
    if let Some(cluster) = cluster.borrow_mut().take() {
        findings.extend(cluster.judge(&history).err());
        cluster.end();
    }
    let mut hasher = DefaultHasher::new();
    format!("{history:?}").hash(&mut hasher);
    let (cost, longest_ns) = (*stage.cost.borrow(), *stage.longest_ns.borrow());
    let harm = std::mem::take(&mut *harm.borrow_mut());
    Outcome {
        plan,
        history,
        harm,
        findings,
        coverage: Coverage::take(),
        cost,
        moments,
        longest_ns,
        fingerprint: hasher.finish() ^ moments,
    }
}

/// What clients of mirrors share: those who only read, and those who write, too.
#[derive(Clone)]
struct There {
    reads: OfMirrors,
    writes: OfMirrors,
}

#[derive(Clone)]
struct OfMirrors {
    on_mirrors: OnMirrors,
    stage: Rc<Stage>,
}

impl There {
    fn new(of: &Rc<Stage>) -> There {
        let read = OnMirrors::new(of);
        let write = read.clone().writing();
        let clients =
            |on_mirrors: OnMirrors| OfMirrors { stage: on_mirrors.stage(Rc::default()), on_mirrors };
        There { reads: clients(read), writes: clients(write) }
    }

    /// What sessions did that wrote, too. Their writes are those of the primary; and so are all operations of
    /// those who read there only.
    fn sessions(&self, history: &mut Vec<Operation>) -> Vec<Operation> {
        let OfMirrors { on_mirrors, stage } = &self.writes;
        let mut sessions = std::mem::take(&mut *stage.history.borrow_mut());
        make_out_mismatches(stage, &mut sessions);
        let sessions: Vec<Operation> = sessions.into_iter().flatten().collect();
        let stricts = on_mirrors.stricts.borrow();
        let is_of_primary = |operation: &&Operation| {
            !matches!(operation.action, Action::Get { .. }) || stricts.contains(&operation.client)
        };
        history.extend(sessions.iter().filter(is_of_primary).cloned());
        sessions
    }

    /// Judges what was read on mirrors.
    fn judge(
        &self,
        shown: &Shown,
        stage: &Stage,
        (reads, sessions): (Vec<Operation>, Vec<Operation>),
        history: &[Operation],
    ) -> Result<(), String> {
        let (learnt, versions_of) = (stage.versions.borrow(), stage.versions_of.borrow());
        let max_lags = self.reads.on_mirrors.max_lags.borrow();
        let has_items = stage.plan.table.has_items();
        let version_of =
            |value| versions_of.get(&value).filter(|_| has_items).map(|version: &Version| version.0);
        let shard_of = |key| shown.shard_of(key);
        let max_lag_of = |client| max_lags.get(&client).copied();
        let known = Known { version_of: &version_of, shard_of: &shard_of, max_lag_of: &max_lag_of };
        let past = Past::new(history, known);
        shown.judge_cuts(&past, &learnt)?;
        sessions::check(&past, &sessions).map_err(|finding| finding.to_string())?;
        sessions::check(&past, &reads).map_err(|finding| finding.to_string())?;
        shown.judge(reads, &learnt, &versions_of)
    }
}

/// Lets memory be filled, the clients work while harm is done, and a last one read everything in peace.
fn conduct(
    plan: Plan,
    (stage, there): (&Rc<Stage>, &There),
    (servers, cluster): (ServerPlan, Option<Cluster>),
    harm: &Shared<Vec<(u64, String)>>,
    random: &mut Random,
    done: &Shared<bool>,
) {
    if plan.theme == Theme::Memory || plan.crowded {
        scheduler::set_quiet(true);
        let load = if plan.crowded { Client::crowd } else { Client::load };
        scheduler::join(hire(0, "loader", stage, random, load));
        scheduler::set_quiet(false);
    }
    cluster.iter().for_each(|cluster| cluster.settle(false));
    let working: Working = Rc::default();
    for number in 1..=plan.clients {
        let task = hire_worker(number, stage, random, &working);
        working.borrow_mut().push(task);
    }
    if plan.loads {
        hire(plan.clients + 1, "loader of generations", stage, random, Client::load_datasets);
        for number in 2..4 {
            hire(plan.clients + number, "reader of generations", stage, random, Client::view_datasets);
        }
        hire(plan.clients + 4, "writer of overlays", stage, random, Client::write_overlays);
    }
    let mut on_mirrors = Vec::new();
    if plan.mirrors {
        let readers = (0..MIRROR_READERS).map(|_| ("reader of mirrors", &there.reads));
        for (name, of) in readers.chain((0..MIRROR_WRITERS).map(|_| ("writer at mirrors", &there.writes))) {
            on_mirrors.push(hire(0, name, &of.stage, random, Client::use_mirrors));
        }
    }
    let chaos = Chaos {
        faults: plan.faults,
        stage: stage.clone(),
        servers,
        cluster: cluster.clone(),
        working,
        harm: harm.clone(),
        next_client: plan.clients + 5,
        random: random.split(),
    };
    chaos.run();
    on_mirrors.into_iter().for_each(scheduler::join);
    cluster.iter().for_each(|cluster| cluster.settle(true));
    scheduler::join(hire(0, "sweeper", stage, random, Client::sweep));
    cluster.iter().for_each(Cluster::compare);
    *done.borrow_mut() = true;
}

/// Says which values the versions had that failed compare-and-sets were told. One whose version nobody ever
/// learnt the value of says nothing that could be checked.
fn make_out_mismatches(stage: &Stage, history: &mut [Option<Operation>]) {
    let versions = stage.versions.borrow();
    for (position, version) in stage.mismatches.borrow().iter() {
        let key = history[*position].as_ref().map_or(0, |operation| operation.key & 0xffff_ffff);
        let known = versions.get(&(key, *version)).copied();
        match (known, &mut history[*position]) {
            (Some(id), Some(Operation { action: Action::CompareAndSet { outcome, .. }, .. })) => {
                *outcome = Some(CompareOutcome::Mismatch(Some(id)));
            }
            (_, operation) => *operation = None,
        }
    }
}

fn hire(
    number: u32,
    name: &str,
    stage: &Rc<Stage>,
    random: &mut Random,
    work: impl FnOnce(Client) + 'static,
) -> TaskId {
    let drift_ppm = drift_ppm(stage.plan.drift_ppm_max);
    let client = Client { number, stage: stage.clone(), random: random.split(), drift_ppm };
    let clocks = stage.clocks.clone();
    let task = scheduler::spawn(name, move || work(client));
    scheduler::set_clock(task, clocks[random.below(clocks.len() as u64) as usize]);
    task
}

/// A client that works until nothing is left to do.
pub fn hire_worker(number: u32, stage: &Rc<Stage>, random: &mut Random, working: &Working) -> TaskId {
    let working = working.clone();
    hire(number, &format!("client {number}"), stage, random, move |client| {
        client.run();
        let own = scheduler::current();
        working.borrow_mut().retain(|task| *task != own);
    })
}
