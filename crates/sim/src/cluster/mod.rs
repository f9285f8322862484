//! A cluster: nodes that are primary or replicas, a register, and what befalls them.
//!
//! ```text
//! node     one process after another: copies what the primary has, follows it, goes on in its place
//! disk     what a node keeps; recovery: a node that finds no primary goes on with that
//! primary  the server that a node is while it is primary: shards, and which replicas have to have what
//! feed     what a primary tells one replica
//! link     the connection of the two
//! register the views; views: when which was in force, and what clients may have been told meanwhile
//! ```
//!
//! All that is decided, is so by production code: `kelix_shard::replicas` (`Replication`, `Placing`,
//! `Intake`, `look_after`, `promote`, `Handover`, `Keeping`, `offer`) and `kelix_register::Membership`. What
//! stands here moves words and asks.
//!
//! Every other cluster is on several hosts, whose clocks differ, and run up to 12 % too fast or too slow.
//! There each node has an authority page of its own, with a lease; the register is asked by messages, which
//! are late, lost and cut off; and clients are on one of the hosts: in the primary's memory, or far from it.
//!
//! In one of three clusters each node has a disk, and what counts is on the disks of all in sync. There any
//! node is killed, and all at once; disks lose power, and syncs fail; and a disk is lost with all that was
//! there, where another one has what counted.
//!
//! 1. Nodes are killed and stopped wherever one of their tasks gives way, so between any two accesses to
//!    shared memory, and go on, or begin anew, some time later. One that would be the last of those in the
//!    view that live is not killed, where there are no disks: with it what was answered would be gone as
//!    promised.
//! 2. At the end all nodes come into the view again, and their images are compared, with what clients were
//!    answered.

mod disk;
mod feed;
mod link;
mod node;
mod primary;
mod recovery;
mod register;
mod views;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use kelix_fabric::shm::AUTHORITY_BYTES;
use kelix_image::{PrivateSegments, Span};
use kelix_register::{Member, MemoryRegister, Register, Swapped, View};
use kelix_shard::replicas::Shadow;
use kelix_types::{locks, mark};

use crate::fabric::Wire;
use crate::history::Operation;
use crate::plan::DRIFT_PPM_MAX;
use crate::random::Random;
use crate::scheduler::{self, HostClock, Shared, TaskId};
use crate::server::{Server, ServerPlan, ShardNode};
use disk::{Moment, NodeDisk};
use link::Cable;
use node::Node;
use primary::PrimaryServer;
use register::Ways;
use views::Views;

/// What a seed decides of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct ClusterPlan {
    /// How many nodes there are, at most three.
    pub nodes: usize,
    /// Which of them have mapped the primary's streams, while they are replicas.
    pub maps_streams: [bool; 3],
    /// How many have to be in sync for anything to count.
    pub min_in_sync: usize,
    /// How long a primary may say nothing.
    pub suspect_ns: u64,
    /// Words of a stream.
    pub stream_words: u64,
    /// No change of the view fails.
    pub is_reliable: bool,
    /// The longest that frames are on their way.
    pub delay_ns_max: u64,
    /// What there is more where each node is on a host of its own.
    pub hosts: Option<HostsPlan>,
    /// Each node has a disk, and what counts is on the disks of all in sync (`--durable commit`), which takes
    /// up to twice so long.
    pub disk_ns: Option<u64>,
}

/// What a seed decides of nodes on several hosts.
#[derive(Clone, Copy, Debug)]
pub struct HostsPlan {
    /// The length of a lease.
    pub lease_ns: u64,
    /// How long a node waits for an answer of the register.
    pub limit_ns: u64,
    /// The clocks of the hosts.
    pub clocks: [HostClock; 3],
    /// One of them runs slower than any lease allows for, so that only strict reads are judged.
    pub has_wrong_clock: bool,
}

/// How slowly a clock runs that is wrong.
const WRONG_PPM: i64 = -950_000;

impl HostsPlan {
    fn of(random: &mut Random, suspect_ns: u64) -> HostsPlan {
        let lease_ns = suspect_ns + random.below(2 * suspect_ns);
        let clock = |random: &mut Random| {
            let most = DRIFT_PPM_MAX as i64;
            let drifts_ppm = [-most, most, random.below(2 * DRIFT_PPM_MAX + 1) as i64 - most];
            HostClock { began_ns: random.below(1 << 40), drift_ppm: drifts_ppm[random.below(3) as usize] }
        };
        let clocks = [clock(random), clock(random), clock(random)];
        let limit_ns = lease_ns / 2 + random.below(lease_ns);
        HostsPlan { lease_ns, limit_ns, clocks, has_wrong_clock: false }
    }

    /// The same with a clock that is wrong.
    fn with_wrong_clock(mut self, random: &mut Random, nodes: usize) -> HostsPlan {
        self.clocks[random.below(nodes as u64) as usize].drift_ppm = WRONG_PPM;
        HostsPlan { has_wrong_clock: true, ..self }
    }
}

impl ClusterPlan {
    /// The plan of a seed.
    pub fn of(random: &mut Random, long_pause_ns_max: u64, on_several_hosts: bool) -> ClusterPlan {
        let nodes = 2 + random.below(2) as usize;
        let near = [random.once_in(2), random.once_in(2), random.once_in(2)];
        let alike = random.once_in(3);
        let mut plan = ClusterPlan {
            nodes,
            maps_streams: if alike { [near[0]; 3] } else { near },
            min_in_sync: 1 + random.below(nodes as u64) as usize % 2,
            suspect_ns: 40_000 + 2 * long_pause_ns_max + random.below(80_000),
            stream_words: 1 << (13 + random.below(3)),
            is_reliable: random.once_in(2),
            delay_ns_max: 50 + random.below(3_000),
            hosts: None,
            disk_ns: None,
        };
        if on_several_hosts {
            plan.hosts = Some(HostsPlan::of(random, plan.suspect_ns));
            plan.maps_streams = [false; 3];
        }
        plan
    }

    /// The same, of nodes with disks. What is kept on a disk is sent, and said to be there.
    pub fn with_disks(self, random: &mut Random) -> ClusterPlan {
        let disk_ns = (200 << random.below(6)).min(self.suspect_ns / 16);
        ClusterPlan { maps_streams: [false; 3], disk_ns: Some(disk_ns), ..self }
    }

    /// The plan, of hosts one of whose clocks is wrong, if they are several.
    pub fn with_wrong_clock(self, random: &mut Random) -> ClusterPlan {
        let hosts = self.hosts.map(|hosts| hosts.with_wrong_clock(random, self.nodes));
        ClusterPlan { hosts, ..self }
    }

    /// Whether a client's reads ask the register each time, by the client's number.
    pub fn is_strict(&self, client: u32) -> bool {
        self.hosts.is_some() && client % 2 == 0
    }

    /// Whether what a client was told may be old: it believed a clock that is wrong.
    pub fn may_be_old(&self, operation: &Operation) -> bool {
        let is_wrong = self.hosts.is_some_and(|hosts| hosts.has_wrong_clock);
        is_wrong && !self.is_strict(operation.client) && operation.changed_nothing()
    }

    /// The length of a lease; 0: there are none.
    pub fn lease_ns(&self) -> u64 {
        self.hosts.map_or(0, |hosts| hosts.lease_ns)
    }

    /// Between two looks at the view.
    pub fn round_ns(&self) -> u64 {
        self.suspect_ns / 16
    }
}

/// Where nodes are left alone they have so many times the patience.
const QUIET_TIMES: u64 = 20;

/// The process of a node.
#[derive(Default)]
struct Process {
    /// Its tasks, the first of which begins the others.
    tasks: Vec<TaskId>,
    stopped_until_ns: u64,
    /// Under which number it is a member.
    boot: u64,
    /// What it has as a replica.
    shadows: Shared<Vec<Shadow<PrivateSegments>>>,
    primary: Option<Rc<PrimaryServer>>,
    /// Its connections to primaries.
    cables: Vec<Cable>,
    /// The connections of clients on other hosts, while it is primary.
    far: Shared<Vec<Wire>>,
}

/// What stays of a node from process to process.
struct Place {
    /// The authority page of its run directory, which all nodes of one host share.
    page: RefCell<Span>,
    clock: HostClock,
    /// To the register, where that is on another host.
    ways: Option<Ways>,
    disk: Option<NodeDisk>,
}

impl Place {
    fn of(plan: &ClusterPlan, servers: &ServerPlan, node: usize) -> Place {
        let disk = plan.disk_ns.map(NodeDisk::new);
        let Some(HostsPlan { lease_ns, limit_ns, clocks, .. }) = plan.hosts else {
            return Place { page: servers.authority.clone().into(), clock: servers.clock, ways: None, disk };
        };
        let ways = Ways::new(plan.delay_ns_max, (lease_ns, limit_ns), plan.is_reliable);
        Place { page: Span::private(AUTHORITY_BYTES).into(), clock: clocks[node], ways: Some(ways), disk }
    }
}

struct Inner {
    plan: ClusterPlan,
    servers: ServerPlan,
    places: Vec<Place>,
    hash_seed: u64,
    register: MemoryRegister,
    views: Views,
    processes: RefCell<Vec<Process>>,
    /// The numbers of members whose processes have not ended.
    alive: RefCell<HashSet<u64>>,
    primaries: RefCell<HashMap<u64, Rc<PrimaryServer>>>,
    /// What clients connect to, once there is anything.
    server: RefCell<Option<Shared<Server>>>,
    harm: Shared<Vec<(u64, String)>>,
    done: Shared<bool>,
    /// Nodes are left alone from now on.
    is_quiet: Cell<bool>,
}

/// The nodes of a run, and what they share.
#[derive(Clone)]
pub struct Cluster(Rc<Inner>);

impl Cluster {
    /// A cluster whose first node serves, and whose others begin.
    pub fn begin(
        plan: ClusterPlan,
        servers: &ServerPlan,
        (harm, done): (Shared<Vec<(u64, String)>>, Shared<bool>),
    ) -> (Cluster, Shared<Server>) {
        locks::set_wait(scheduler::give_way);
        let cluster = Cluster(Rc::new(Inner {
            plan,
            servers: servers.clone(),
            places: (0..plan.nodes).map(|node| Place::of(&plan, servers, node)).collect(),
            hash_seed: scheduler::random_below(u64::MAX),
            register: MemoryRegister::default(),
            views: Views::default(),
            processes: RefCell::new((0..plan.nodes).map(|_| Process::default()).collect()),
            alive: RefCell::default(),
            primaries: RefCell::default(),
            server: RefCell::default(),
            harm,
            done,
            is_quiet: Cell::new(false),
        }));
        Node::begin_cluster(&cluster);
        (1..plan.nodes).for_each(|node| cluster.begin_process(node));
        let server = cluster.0.server.borrow().clone().expect("the first node serves");
        (cluster, server)
    }

    fn plan(&self) -> ClusterPlan {
        self.0.plan
    }

    /// How long a primary may say nothing.
    fn suspect_ns(&self) -> u64 {
        self.0.plan.suspect_ns * if self.0.is_quiet.get() { QUIET_TIMES } else { 1 }
    }

    fn servers(&self) -> &ServerPlan {
        &self.0.servers
    }

    /// How servers of a node are made.
    fn servers_of(&self, node: usize) -> ServerPlan {
        let clock = self.0.places[node].clock;
        ServerPlan { authority: self.page(node), clock, ..self.0.servers.clone() }
    }

    /// The disk of a node, if nodes have such.
    fn disk(&self, node: usize) -> Option<NodeDisk> {
        self.0.places[node].disk.clone()
    }

    /// The authority page of a node's run directory.
    fn page(&self, node: usize) -> Span {
        self.0.places[node].page.borrow().clone()
    }

    /// A node's run directory is made anew, and who has mapped its page keeps that.
    fn lose_page(&self, node: usize) {
        *self.0.places[node].page.borrow_mut() = Span::private(AUTHORITY_BYTES);
    }

    /// The clocks of the hosts.
    pub fn clocks(&self) -> Vec<HostClock> {
        self.0.places.iter().map(|place| place.clock).collect()
    }

    fn hash_seed(&self) -> u64 {
        self.0.hash_seed
    }

    fn wire_view(&self) -> kelix_wire::View {
        kelix_wire::View::of_shards(1, self.0.hash_seed, self.0.servers.shards)
    }

    fn views(&self) -> &Views {
        &self.0.views
    }

    fn tell(&self, what: String) {
        self.0.harm.borrow_mut().push((scheduler::now_ns(), what));
    }

    /// Something is wrong, which ends the run.
    fn find(&self, what: String) {
        self.0.servers.findings.borrow_mut().push(what);
        *self.0.done.borrow_mut() = true;
    }

    fn lives(&self, boot: u64) -> bool {
        self.0.alive.borrow().contains(&boot)
    }

    /// Whether the process of a member has not ended, as far as other nodes can tell.
    fn seems_to_live(&self, boot: u64) -> bool {
        self.0.plan.hosts.is_some() || self.lives(boot)
    }

    /// The view in force, without looks that others could go between.
    fn view(&self) -> View {
        self.0.register.clone().read().ok().flatten().expect("there is a view from the beginning on")
    }

    /// Changes the view as whoever looks after the cluster does.
    fn change(&self, change: impl FnOnce(View) -> Option<View>) -> bool {
        let view = self.view();
        let Some(mut next) = change(view.next(scheduler::random_below(u64::MAX))) else { return false };
        next.number = view.number + 1;
        let swapped = self.0.register.clone().swap(view.number, &next);
        assert!(matches!(swapped, Ok(Swapped::Done)), "nobody goes between: {swapped:?}");
        self.0.views.note(&next);
        true
    }

    /// Clients connect to these shards from now on.
    fn serve(&self, node: usize, (term, life): (u64, u64), shards: Vec<ShardNode>) {
        let servers = self.servers_of(node);
        let server = servers.server((term, 1), (self.wire_view(), life), shards);
        self.0.processes.borrow_mut()[node].far = server.far.clone();
        let mut slot = self.0.server.borrow_mut();
        match &*slot {
            // Others go on while the old one is dropped.
            Some(slot) => drop(slot.replace(server)),
            None => *slot = Some(Rc::new(RefCell::new(server))),
        }
    }

    // ---- processes ----

    fn begin_process(&self, node: usize) {
        let cluster = self.clone();
        self.spawn(node, &format!("node {node}"), move || Node::run(&cluster, node));
    }

    /// Begins a task of a node's process.
    fn spawn(&self, node: usize, name: &str, body: impl FnOnce() + 'static) -> TaskId {
        let task = scheduler::spawn(name, body);
        self.adopt(node, task);
        task
    }

    fn adopt(&self, node: usize, task: TaskId) {
        let process = &mut self.0.processes.borrow_mut()[node];
        process.tasks.push(task);
        scheduler::set_clock(task, self.0.places[node].clock);
        let left_ns = process.stopped_until_ns.saturating_sub(scheduler::now_ns());
        if left_ns > 0 {
            scheduler::stop(task, left_ns);
        }
    }

    /// Ends what a process has beside the running task.
    fn end_process(&self, node: usize) {
        let process = std::mem::take(&mut self.0.processes.borrow_mut()[node]);
        self.0.alive.borrow_mut().remove(&process.boot);
        self.0.places[node].ways.iter().for_each(Ways::end_process);
        process.far.borrow().iter().for_each(Wire::cut);
        self.0.primaries.borrow_mut().remove(&process.boot);
        let own = scheduler::is_noticed().then(scheduler::current);
        let others = process.tasks.iter().filter(|task| Some(**task) != own);
        others.for_each(|task| scheduler::kill(*task));
        self.0.processes.borrow_mut()[node].tasks.extend(own.filter(|own| process.tasks.contains(own)));
        drop(process);
    }

    // ---- harm ----

    /// Whether one of those in the view lives beside a node.
    fn can_do_without(&self, node: usize) -> bool {
        let own = self.0.processes.borrow()[node].boot;
        self.view().in_sync.iter().any(|boot| *boot != own && self.lives(*boot))
    }

    /// Stops a node, or one task of it, for a while.
    pub fn stop(&self, random: &mut Random, longest_ns: u64) -> String {
        mark!("node stopped");
        let for_ns = match random.below(3) {
            0 => random.below(3 * (self.0.plan.suspect_ns + self.0.plan.lease_ns())),
            _ => random.below(longest_ns),
        };
        let node = self.pick(random);
        let mut processes = self.0.processes.borrow_mut();
        let process = &mut processes[node];
        if random.once_in(2) && !process.tasks.is_empty() {
            let task = process.tasks[random.below(process.tasks.len() as u64) as usize];
            scheduler::stop(task, for_ns);
            return format!("{} stopped for {for_ns} ns", scheduler::name(task));
        }
        process.stopped_until_ns = scheduler::now_ns() + for_ns;
        process.tasks.iter().for_each(|task| scheduler::stop(*task, for_ns));
        format!("node {node} stopped for {for_ns} ns")
    }

    /// A node, more often the primary than another one.
    fn pick(&self, random: &mut Random) -> usize {
        let primary = self.view().primary;
        let processes = self.0.processes.borrow();
        let node = random.below(processes.len() as u64) as usize;
        let is_it = |process: &Process| process.boot == primary;
        processes.iter().position(is_it).filter(|_| random.once_in(2)).unwrap_or(node)
    }

    /// Does something to the cluster.
    pub fn harm(&self, random: &mut Random) -> String {
        if let Some(hosts) = self.0.plan.hosts.filter(|_| random.once_in(2)) {
            return self.part_hosts(random, hosts.lease_ns);
        }
        if self.0.plan.disk_ns.is_some() && random.once_in(3) {
            return self.harm_disks(random);
        }
        match random.below(10) {
            0..=5 => self.kill(random),
            6 => self.cut(random, true),
            7 => self.cut(random, false),
            8 => self.hand_over(random),
            _ => self.let_leave(random),
        }
    }

    fn kill(&self, random: &mut Random) -> String {
        let node = self.pick(random);
        let has_disk = self.0.plan.disk_ns.is_some();
        if !self.is_begun(node) || !has_disk && !self.can_do_without(node) {
            return format!("node {node} is spared");
        }
        mark!("node killed");
        let has_power = !has_disk || random.once_in(2);
        self.kill_node(node, has_power, 1 + random.below(2 * self.0.plan.suspect_ns))
    }

    fn is_begun(&self, node: usize) -> bool {
        !self.0.processes.borrow()[node].tasks.is_empty()
    }

    /// Kills a node, whose disk has power or not, and which begins anew some time later.
    fn kill_node(&self, node: usize, has_power: bool, after_ns: u64) -> String {
        self.end_process(node);
        if let Some(disk) = self.disk(node) {
            if !has_power {
                disk.lose_power();
            }
            disk.fail_no_more();
        }
        let cluster = self.clone();
        scheduler::spawn("init", move || {
            scheduler::sleep(after_ns);
            cluster.begin_process(node);
        });
        let power = if has_power { "" } else { ", its disk without power" };
        format!("node {node} killed{power}, and begins anew in {after_ns} ns")
    }

    // ---- disks ----

    fn harm_disks(&self, random: &mut Random) -> String {
        match random.below(4) {
            0 | 1 => self.kill_all(random),
            2 => {
                mark!("sync of a node's disk fails");
                let node = self.pick(random);
                self.disk(node).iter().for_each(NodeDisk::fail);
                format!("the next sync of the disk of node {node} fails")
            }
            _ => self.lose_disk(random),
        }
    }

    /// Kills all nodes, whose disks have power or not, and which begin anew in any order.
    fn kill_all(&self, random: &mut Random) -> String {
        mark!("all nodes killed");
        let mut done = Vec::new();
        for node in (0..self.0.plan.nodes).filter(|node| self.is_begun(*node)) {
            let after_ns = 1 + random.below(4 * (self.0.plan.suspect_ns + self.0.plan.lease_ns()));
            done.push(self.kill_node(node, random.once_in(2), after_ns));
        }
        if random.once_in(3) {
            let cluster = self.clone();
            scheduler::spawn("operator", move || cluster.recover());
        }
        done.join("; ")
    }

    /// Names a node that waits, with what counted, once there is one, as an operator does who does not wait
    /// for others.
    fn recover(&self) {
        while !self.view().in_sync.iter().any(|boot| self.lives(*boot)) {
            self.change(|view| {
                let (best, offer) = view.best_offer()?;
                let may = view.successor.is_none() && view.was_in_sync(offer) && self.lives(best.boot);
                may.then(|| View { successor: Some(best.boot), ..view.clone() })
            });
            scheduler::sleep(self.0.plan.round_ns());
        }
    }

    /// Kills a node whose disk is lost, where another disk was in sync.
    fn lose_disk(&self, random: &mut Random) -> String {
        let (node, view) = (self.pick(random), self.view());
        let has_what_counted = |other: usize| {
            let found = self.disk(other).map(|disk| scheduler::unnoticed(|| disk.survey()));
            found.into_iter().flatten().any(|found| view.is_in_sync(found.boot))
        };
        let others = (0..self.0.plan.nodes).filter(|other| *other != node);
        if !self.is_begun(node) || !others.into_iter().any(has_what_counted) {
            return format!("the disk of node {node} is spared");
        }
        let done = self.kill_node(node, true, 1 + random.below(2 * self.0.plan.suspect_ns));
        self.disk(node).iter().for_each(NodeDisk::lose_all);
        format!("{done}; its disk is lost")
    }

    /// Cuts a node off the register, in one direction and then, now and then, in the other one: by itself, or
    /// some time after its connections stopped.
    fn part_hosts(&self, random: &mut Random, lease_ns: u64) -> String {
        let (node, is_back, for_ns) = (self.pick(random), random.once_in(2), random.below(2 * lease_ns));
        let apart_ns = self.0.plan.suspect_ns + random.below(lease_ns);
        let after_ns = if random.once_in(2) { 0 } else { random.below(apart_ns) };
        mark!("node cut off the register");
        let Some(ways) = self.0.places[node].ways.clone() else { return "all are on one host".to_string() };
        if random.once_in(2) {
            let (ways, other_ns) = (ways.clone(), random.below(2 * lease_ns));
            scheduler::after(after_ns + for_ns, move || ways.cut(!is_back, other_ns));
        }
        scheduler::after(after_ns, move || ways.cut(is_back, for_ns));
        if after_ns > 0 {
            let processes = self.0.processes.borrow();
            let cables = processes.iter().flat_map(|process| &process.cables);
            cables.for_each(|cable| cable.hold_up(2 * apart_ns, None));
        }
        let way = if is_back { "from" } else { "to" };
        format!("the way of node {node} {way} the register cut in {after_ns} ns, for {for_ns} ns")
    }

    fn cut(&self, random: &mut Random, for_ever: bool) -> String {
        let mut processes = self.0.processes.borrow_mut();
        let of_one = processes.iter_mut().map(|process| &mut process.cables);
        let cables: Vec<Cable> = of_one
            .flat_map(|cables| {
                cables.retain(|cable| !cable.is_over());
                cables.clone()
            })
            .collect();
        if cables.is_empty() {
            return "no connection of nodes is cut".to_string();
        }
        let cable = &cables[random.below(cables.len() as u64) as usize];
        if for_ever {
            mark!("connection of nodes cut");
            cable.cut();
            return "connection of nodes cut".to_string();
        }
        mark!("connection of nodes held up");
        let for_ns = random.below(2 * self.0.plan.suspect_ns + self.0.plan.lease_ns());
        let side = self.0.plan.hosts.and_then(|_| [None, Some(0), Some(1)][random.below(3) as usize]);
        cable.hold_up(for_ns, side);
        format!("connection of nodes held up for {for_ns} ns, at {side:?}")
    }

    fn hand_over(&self, random: &mut Random) -> String {
        let mut chosen = 0;
        let is_done = self.change(|mut next| {
            let others: Vec<u64> =
                next.in_sync.iter().copied().filter(|boot| *boot != next.primary).collect();
            if others.is_empty() || next.successor.is_some() {
                return None;
            }
            chosen = others[random.below(others.len() as u64) as usize];
            next.successor = Some(chosen);
            Some(next)
        });
        if is_done {
            mark!("successor named");
        }
        format!("successor {:04x} named: {is_done}", chosen >> 48)
    }

    fn let_leave(&self, random: &mut Random) -> String {
        let node = self.pick(random);
        let boot = self.0.processes.borrow()[node].boot;
        let is_done = self.change(|mut next| {
            let is_new = next.member(boot).is_some() && !next.leaving.contains(&boot);
            next.leaving.push(boot);
            is_new.then_some(next)
        });
        if is_done {
            mark!("node told to leave");
        }
        format!("node {node} told to leave: {is_done}")
    }

    // ---- the end ----

    fn set_quiet(&self, is_quiet: bool) {
        self.0.is_quiet.set(is_quiet);
        self.0
            .places
            .iter()
            .filter_map(|place| place.ways.as_ref())
            .for_each(|ways| ways.set_quiet(is_quiet));
    }

    /// Waits until all nodes are in sync, and leaves them alone until then, or from then on.
    pub fn settle(&self, for_ever: bool) {
        self.set_quiet(true);
        for _ in 0..SETTLES_WITHIN {
            let view = self.view();
            let all = view.in_sync.len() == self.0.plan.nodes && view.leaving.is_empty();
            if all && view.successor.is_none() && view.in_sync.iter().all(|boot| self.lives(*boot)) {
                return self.set_quiet(for_ever);
            }
            scheduler::sleep(self.0.plan.round_ns());
        }
        self.find(format!("the nodes do not come into sync again: {:?}", self.view()));
    }

    /// Compares the images of all nodes, behind the last record.
    pub fn compare(&self) {
        let primary = self.view().primary;
        let Some(primary) = self.0.primaries.borrow().get(&primary).cloned() else {
            return self.find("there is no primary at the end".to_string());
        };
        let shadows: Vec<(usize, Shared<Vec<Shadow<PrivateSegments>>>)> = {
            let processes = self.0.processes.borrow();
            let replicas = processes.iter().enumerate().filter(|(_, process)| process.primary.is_none());
            replicas.map(|(node, process)| (node, process.shadows.clone())).collect()
        };
        for (node, shadows) in shadows {
            for (shard, of) in primary.shards.iter().enumerate() {
                let mut last = String::new();
                let is_equal = (0..COMPARES_MAX).any(|_| {
                    let said: Shared<Option<Result<(), String>>> = Rc::default();
                    let (told, shadows) = (said.clone(), shadows.clone());
                    of.node.command(move |of| {
                        of.seal();
                        let compared = match shadows.borrow().get(shard) {
                            Some(shadow) => shadow.follower.compare(of),
                            None => Err("nothing is there".to_string()),
                        };
                        *told.borrow_mut() = Some(compared);
                    });
                    scheduler::sleep(self.0.plan.round_ns());
                    match said.borrow_mut().take() {
                        Some(Ok(())) => return true,
                        Some(Err(what)) => last = what,
                        None => {}
                    }
                    false
                });
                if !is_equal {
                    self.find(format!("node {node}, shard {shard}, differs at the end: {last}"));
                }
            }
        }
        mark!("images of nodes compared");
        if self.0.plan.disk_ns.is_some() {
            self.compare_disks(&primary);
        }
    }

    /// Compares what is on the disks of all nodes with the primary's memory.
    fn compare_disks(&self, primary: &PrimaryServer) {
        let moments: Vec<Shared<Option<Moment>>> = primary.shards.iter().map(|_| Rc::default()).collect();
        for (shard, moment) in primary.shards.iter().zip(&moments) {
            let moment = moment.clone();
            shard.node.command(move |of| *moment.borrow_mut() = Some(Moment::of(of)));
        }
        while moments.iter().any(|moment| moment.borrow().is_none()) {
            scheduler::sleep(self.0.plan.round_ns());
        }
        let moments: Vec<Moment> = moments.iter().filter_map(|moment| moment.borrow_mut().take()).collect();
        for node in 0..self.0.plan.nodes {
            let Some(disk) = self.disk(node) else { continue };
            let mut last = String::new();
            let is_equal = (0..COMPARES_MAX).any(|_| {
                scheduler::sleep(self.0.plan.round_ns());
                let compared = scheduler::unnoticed(|| disk.compare(&self.view(), &moments));
                compared.map_err(|what| last = what).is_ok()
            });
            if !is_equal {
                self.find(format!("the disk of node {node} differs at the end: {last}"));
            }
        }
        mark!("disks of nodes compared");
    }

    /// Whether what clients were told fits the views.
    pub fn judge(&self, history: &[Operation]) -> Result<(), String> {
        self.0.views.judge(history)
    }

    /// Nobody uses it any more.
    pub fn end(&self) {
        self.0.processes.borrow_mut().clear();
        self.0.primaries.borrow_mut().clear();
    }
}

/// Looks for all nodes to be in sync, before that is called too long.
const SETTLES_WITHIN: usize = 20_000;
/// Tries to find a replica with all that its primary has.
const COMPARES_MAX: usize = 200;

/// A member, by the name of its node.
fn member(node: usize, boot: u64) -> Member {
    Member { node: format!("{}", node + 1), boot, pid: 1, address: "sim:1".to_string(), offer: None }
}
