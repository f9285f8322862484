//! The process of a node, which begins anew as another member whenever it is of no use as it is.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use kelix_fabric::shm::AUTHORITY_TERM;
use kelix_image::{PrivateSegments, SegmentSource};
use kelix_log::StreamMemory;
use kelix_log::files::Position;
use kelix_register::{Durable, Membership, Register, View};
use kelix_shard::replicas::{
    Handover, Intake, Keep, Keeping, Lease, Look, Looked, Promoted, Shadow, Silence, attach, end_earlier,
    is_to_ask, look_after, outwait, promote, release, void,
};
use kelix_types::{Error, ErrorKind, Result, mark};
use kelix_wire::control::StreamPosition;
use kelix_wire::feed::FeedPart;

use super::disk::{Keeper, Kept};
use super::feed::{ATTACHED, Feeding, Patience};
use super::link::Link;
use super::primary::{Past, PrimaryServer};
use super::recovery::Recovery;
use super::register::NodeRegister;
use super::{Cluster, member};
use crate::fabric::Bell;
use crate::scheduler::{self, Shared};

/// Words of records that are applied before anything else is looked at, at most.
const TURN_WORDS_MAX: u64 = 2_000;
/// One in so many looks a replica is compared with its primary.
const ROUNDS_A_COMPARISON: u64 = 64;
/// One in so many processes does not find the authority page of the one before.
const PROCESSES_A_LOST_PAGE: u64 = 8;
/// Times of suspicion that a successor may take to go on.
const SUCCEEDS_WITHIN: u64 = 10;

/// A node, as the task of its process that looks after its role.
pub struct Node {
    pub(super) cluster: Cluster,
    pub(super) number: usize,
    pub(super) membership: Arc<Membership>,
    bell: Bell,
    /// Another task asks for the newest view, while this one follows.
    asks: Rc<Cell<bool>>,
}

/// What came of a turn.
#[derive(PartialEq, Eq)]
enum Turn {
    GoesOn,
    /// It is primary.
    Promoted,
    /// It begins anew.
    Lost,
}

fn random() -> Result<u64> {
    Ok(scheduler::random_below(u64::MAX) + 1)
}

fn lost(what: &str) -> Error {
    Error::new(ErrorKind::Unavailable, "follow", what).with_retry(true)
}

fn make_segments(_: usize) -> (PrivateSegments, Box<dyn SegmentSource>) {
    let segments = PrivateSegments::default();
    (segments.clone(), Box::new(segments))
}

/// What a node has as a replica.
struct Replica {
    intake: Intake<PrivateSegments>,
    shadows: Shared<Vec<Shadow<PrivateSegments>>>,
    link: Option<Link>,
    streams: Vec<StreamMemory>,
    says_what_it_has: bool,
    /// Whom it follows, and how often something has come.
    followed: Rc<Cell<u64>>,
    heard: u64,
    /// Whose records it has, and of which life of the store.
    lineage: u64,
    life: u64,
    /// What it keeps on its disk, if it has one.
    keeper: Option<Keeper>,
    /// All is here that the primary has told, which is followed no more.
    is_detached: bool,
}

impl Node {
    /// The first node puts the first view in, and serves.
    pub fn begin_cluster(cluster: &Cluster) {
        let node = 0;
        let membership = Node::member(cluster, node);
        let first = View::first(7, 1, member(node, membership.boot));
        let durable = if cluster.disk(node).is_some() { Durable::Commit } else { Durable::Off };
        let view = View { min_in_sync: cluster.plan().min_in_sync, durable, proposal: 1, ..first };
        let swapped = cluster.0.register.clone().swap(0, &view);
        swapped.expect("the first view is put in");
        cluster.0.views.note(&view);
        let term = cluster.page(node).words().load(AUTHORITY_TERM) + 1;
        let now_ns = cluster.0.places[node].clock.at(scheduler::now_ns());
        let lease = cluster.plan().hosts.map(|hosts| Lease::begin(hosts.lease_ns, now_ns));
        let kept = cluster.disk(node).map(|disk| {
            let position = Position::start(cluster.servers().shards);
            Kept { copy: disk.begin(membership.boot), position }
        });
        let begun = (Past::default(), kept, term);
        let primary = PrimaryServer::start((cluster, node), &membership, (&view, lease), begun);
        let primary = primary.expect("a disk that works").expect("nobody else is there");
        Node::note_primary(cluster, node, &primary);
        let of = cluster.clone();
        cluster.spawn(node, &format!("node {node}"), move || {
            let bell = Bell::of(scheduler::current());
            let node = Node { cluster: of, number: node, membership, bell, asks: Rc::default() };
            node.be_primary(&primary);
            node.release();
            node.cluster.end_process(node.number);
            Node::run(&node.cluster, node.number);
        });
    }

    fn member(cluster: &Cluster, node: usize) -> Arc<Membership> {
        let register = NodeRegister {
            register: cluster.0.register.clone(),
            views: cluster.0.views.clone(),
            is_reliable: cluster.plan().is_reliable,
            ways: cluster.0.places[node].ways.clone(),
        };
        let membership = Membership::new(Box::new(register), random).expect("a random number");
        cluster.0.processes.borrow_mut()[node].boot = membership.boot;
        cluster.0.alive.borrow_mut().insert(membership.boot);
        Arc::new(membership)
    }

    pub(super) fn note_primary(cluster: &Cluster, node: usize, primary: &Rc<PrimaryServer>) {
        cluster.0.primaries.borrow_mut().insert(primary.replication.membership.boot, primary.clone());
        cluster.0.processes.borrow_mut()[node].primary = Some(primary.clone());
        primary.shards.iter().for_each(|shard| cluster.adopt(node, shard.node.task));
    }

    /// Is one member after another, for ever.
    pub fn run(cluster: &Cluster, number: usize) {
        loop {
            let membership = Node::member(cluster, number);
            let bell = Bell::of(scheduler::current());
            let asks = Rc::default();
            let node = Node { cluster: cluster.clone(), number, membership, bell, asks };
            match node.live() {
                Ok(()) => node.release(),
                Err(error) => {
                    if !error.retry() && error.kind() != ErrorKind::System {
                        cluster.find(format!("node {number}: {error}"));
                    }
                    cluster.tell(format!("node {number}: {error}"));
                }
            }
            mark!("node began anew");
            cluster.tell(format!("node {number} begins anew"));
            cluster.end_process(number);
            scheduler::sleep(1 + scheduler::random_below(cluster.plan().round_ns()));
        }
    }

    /// Follows whoever is primary, and goes on in that one's place, as long as this is of use.
    fn live(&self) -> Result<()> {
        self.end_earlier()?;
        let mut recovery = Recovery::begin();
        let mut replica = loop {
            match self.attach() {
                Ok(replica) => break replica,
                Err(error) if error.retry() || error.kind() == ErrorKind::System => {
                    self.cluster.tell(format!("node {}: {error}", self.number));
                }
                Err(error) => return Err(error),
            }
            match recovery.look(self) {
                Ok(Some(primary)) => {
                    self.be_primary(&primary);
                    return Ok(());
                }
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::Superseded => return Ok(()),
                Err(error) => return Err(error),
            }
            scheduler::sleep(1 + scheduler::random_below(2 * self.cluster.plan().round_ns()));
        };
        self.follow(&mut replica)
    }

    // ---- members before and behind this one ----

    /// On several hosts: nothing counts any more of what an earlier process of this node did.
    fn end_earlier(&self) -> Result<()> {
        let Some(hosts) = self.cluster.plan().hosts else { return Ok(()) };
        let view = self.membership.look()?;
        let void = || {
            if scheduler::random_below(PROCESSES_A_LOST_PAGE) == 0 {
                self.cluster.lose_page(self.number);
                return Err(Error::new(ErrorKind::System, "void", "the page is not there"));
            }
            self.void_page()
        };
        let wait = || {
            let until_ns = scheduler::host_now_ns() + hosts.lease_ns;
            while scheduler::host_now_ns() < until_ns {
                scheduler::sleep(self.cluster.plan().round_ns());
            }
        };
        let name = member(self.number, self.membership.boot).node;
        end_earlier(view.as_ref(), &name, void, wait);
        Ok(())
    }

    fn void_page(&self) -> Result<()> {
        self.cluster.page(self.number).words().add(AUTHORITY_TERM, 1);
        Ok(())
    }

    /// On several hosts: the next primary need not wait for this one.
    fn release(&self) {
        if self.cluster.plan().hosts.is_some() {
            if let Err(error) = release(&self.membership, || self.void_page()) {
                self.cluster.tell(format!("node {} is waited for: {error}", self.number));
            }
        }
    }

    // ---- replica ----

    /// Copies what the primary has.
    fn attach(&self) -> Result<Replica> {
        let view = self.membership.look()?.ok_or_else(|| lost("there is no view"))?;
        if self.membership.all_have_ended(&view, |boot| self.cluster.seems_to_live(boot))? {
            if self.cluster.disk(self.number).is_some() {
                return Err(lost("all nodes have ended that were in sync"));
            }
            self.cluster.find("all nodes have ended that had what was written last".to_string());
            scheduler::sleep(u64::MAX / 4);
        }
        let own = member(self.number, self.membership.boot);
        attach(&self.membership, &own, || self.copy(view.primary))
    }

    fn copy(&self, primary: u64) -> Result<Replica> {
        let (link, streams) = self.connect(primary, None).ok_or_else(|| lost("the primary is not there"))?;
        let mut intake = Intake::new(self.cluster.servers().shards, u64::MAX / 2, make_segments);
        intake.keep_backlogs();
        let shadows = Shared::default();
        self.cluster.0.processes.borrow_mut()[self.number].shadows = Rc::clone(&shadows);
        let mut replica = Replica {
            intake,
            shadows,
            link: Some(link),
            streams,
            says_what_it_has: false,
            followed: Rc::new(Cell::new(primary)),
            heard: 0,
            lineage: 0,
            life: 0,
            keeper: None,
            is_detached: false,
        };
        let mut came_ns = scheduler::now_ns();
        while !replica.intake.is_whole() {
            if replica.receive()? {
                came_ns = scheduler::now_ns();
                replica.intake.count_placed();
                scheduler::unnoticed(|| replica.intake.apply_unread())?;
            } else if scheduler::now_ns() - came_ns > 4 * self.cluster.suspect_ns() {
                return Err(lost("nothing has come"));
            } else {
                self.bell.sleep(self.cluster.plan().round_ns());
            }
        }
        if let Some(disk) = self.cluster.disk(self.number) {
            let of = (&mut replica.intake, self.membership.boot);
            let (keeper, log) = scheduler::unnoticed(|| Keeper::begin(&disk, of, &self.bell))?;
            self.cluster.spawn(self.number, &format!("log of node {}", self.number), move || log.run());
            replica.keeper = Some(keeper);
        }
        *replica.shadows.borrow_mut() = replica.intake.take_shadows();
        self.cluster.tell(format!("node {} has copied", self.number));
        mark!("node copied");
        Ok(replica)
    }

    /// Connects to a primary. `None`: it is not there.
    fn connect(&self, boot: u64, position: Option<StreamPosition>) -> Option<(Link, Vec<StreamMemory>)> {
        let primary = self.cluster.0.primaries.borrow().get(&boot).cloned()?;
        let of = self.cluster.0.processes.borrow().iter().position(|process| process.boot == boot)?;
        let plan = self.cluster.plan();
        let (own, other, cable) = Link::pair(plan.delay_ns_max);
        own.ring(&self.bell);
        self.cluster.0.processes.borrow_mut()[self.number].cables.push(cable);
        let streams = primary.shards.iter().map(|shard| shard.stream.clone()).collect();
        let patience = Patience { late_ns: 4 * plan.suspect_ns, quiet_ns: plan.suspect_ns / 12 };
        let boot = self.membership.boot;
        let feeding = Feeding { primary, link: other, boot, position, patience };
        self.cluster.spawn(of, &format!("feed of node {}", self.number), move || feeding.run());
        Some((own, if plan.maps_streams[self.number] { streams } else { Vec::new() }))
    }

    /// Has another task ask for the newest view, which may take long, while this one follows.
    fn ask_for_views(&self, lease_ns: u64) {
        self.asks.set(true);
        let (membership, bell, goes_on) = (self.membership.clone(), self.bell.clone(), self.asks.clone());
        let round_ns = self.cluster.plan().round_ns();
        self.cluster.spawn(self.number, &format!("questions of node {}", self.number), move || {
            while goes_on.get() {
                let asked_ns = scheduler::host_now_ns();
                let _ = membership.look();
                bell.ring();
                let is_early = || {
                    let ago_ns = scheduler::host_now_ns() - asked_ns;
                    !is_to_ask((membership.view().as_ref(), membership.boot), ago_ns, lease_ns)
                };
                scheduler::sleep(round_ns);
                while goes_on.get() && is_early() {
                    scheduler::sleep(1 + scheduler::random_below(round_ns));
                }
            }
        });
    }

    fn follow(&self, replica: &mut Replica) -> Result<()> {
        replica.says_what_it_has = replica.keeper.is_none();
        if let Some(hosts) = self.cluster.plan().hosts {
            self.ask_for_views(hosts.lease_ns);
        }
        let round_ns = self.cluster.plan().round_ns();
        let (mut silence, mut looked_ns) = (Silence::default(), scheduler::now_ns());
        loop {
            let worked = match replica.turn() {
                Ok(worked) => worked,
                Err(error) if error.retry() => {
                    replica.link = None;
                    true
                }
                Err(error) => return Err(error),
            };
            let passed_ns = scheduler::now_ns() - looked_ns;
            if passed_ns >= round_ns {
                looked_ns += passed_ns;
                match self.look_after(replica, &mut silence, passed_ns) {
                    Ok(Turn::GoesOn) => {}
                    Ok(Turn::Promoted | Turn::Lost) => return Ok(()),
                    Err(error) => return Err(error),
                }
            } else if !worked {
                self.bell.sleep(1 + scheduler::random_below(round_ns - passed_ns));
            }
        }
    }

    fn look_after(&self, replica: &mut Replica, silence: &mut Silence, passed_ns: u64) -> Result<Turn> {
        let plan = self.cluster.plan();
        let newest = if plan.hosts.is_some() { Ok(self.membership.view()) } else { self.membership.look() };
        let view = match newest {
            Ok(Some(view)) => view,
            _ => return Ok(Turn::GoesOn),
        };
        let own = self.membership.boot;
        self.keep(replica, view.is_in_sync(own));
        let may_leave = view.leaving.contains(&own) && view.primary != own && !view.is_in_sync(own);
        if may_leave && self.membership.leave().is_ok_and(|has_left| has_left) {
            mark!("replica left");
            return Ok(Turn::Lost);
        }
        if scheduler::random_below(ROUNDS_A_COMPARISON) == 0 {
            self.compare(replica);
        }
        silence.note((view.primary, replica.heard), (passed_ns, 4 * plan.round_ns()));
        let look = Look {
            followed: replica.followed.get(),
            is_lost: replica.link.is_none() && replica.intake.is_all_applied(),
            silent_ns: silence.time_ns(),
            suspect_ns: self.cluster.suspect_ns(),
            wait_ns: 2 * plan.lease_ns(),
            has_log_failed: replica.keeper.as_ref().is_some_and(Keeper::has_failed),
        };
        let lives = |boot| self.cluster.seems_to_live(boot);
        match look_after((&self.membership, &view), look, lives, || self.follow_chosen(replica, &view))? {
            Looked::Well => Ok(Turn::GoesOn),
            Looked::Lost => Ok(Turn::Lost),
            Looked::Promote(why) => self.promote(replica, &view, why),
        }
    }

    /// Sees to it that what is here can be begun with from the disk, too.
    fn keep(&self, replica: &mut Replica, is_in_sync: bool) {
        let (Some(keeper), Some(disk)) = (&mut replica.keeper, self.cluster.disk(self.number)) else {
            return;
        };
        let has_base = keeper.copy.has_base();
        match keeper.keeping.look((true, has_base), is_in_sync) {
            Keep::Nothing => {}
            Keep::Base => {
                scheduler::unnoticed(|| keeper.take_base(&replica.intake, &replica.shadows.borrow()))
            }
            Keep::Kept => replica.says_what_it_has = true,
            Keep::Alone => disk.keep_only(&keeper.copy),
        }
    }

    /// Has the primary look whether what is here is what is there, if this one has just as much.
    fn compare(&self, replica: &Replica) {
        let of = replica.followed.get();
        let primary = self.cluster.0.primaries.borrow().get(&of).cloned();
        let Some(primary) = primary.filter(|_| replica.link.is_some()) else { return };
        for (number, shard) in primary.shards.iter().enumerate() {
            let (shadows, cluster, node) = (replica.shadows.clone(), self.cluster.clone(), self.number);
            let followed = replica.followed.clone();
            shard.node.command(move |shard| {
                let shadows = shadows.borrow();
                // A primary that stood still may be asked when the replica has another one's records.
                let Some(shadow) = shadows.get(number).filter(|_| followed.get() == of) else { return };
                if shard.covers() != shard.sequence() || shadow.follower.applied() != shard.sequence() {
                    return;
                }
                mark!("replica compared with its primary");
                if let Err(what) = shadow.follower.compare(shard) {
                    cluster.find(format!("node {node}, shard {number}, differs: {what}"));
                }
            });
        }
    }

    /// Follows another primary that was chosen, with what there is here. Whether that has begun.
    fn follow_chosen(&self, replica: &mut Replica, view: &View) -> Result<bool> {
        if !replica.is_detached {
            replica.detach()?;
            return Ok(false);
        }
        let position = StreamPosition { lineage: replica.lineage, sequences: replica.intake.applied() };
        let Some((link, streams)) = self.connect(view.primary, Some(position)) else { return Ok(false) };
        let until_ns = scheduler::now_ns() + self.cluster.suspect_ns();
        let (resumes, lineage, life) = loop {
            match link.receive() {
                Some(frame) => {
                    break (frame.part == ATTACHED && frame.words[0] == 1, frame.words[1], frame.words[2]);
                }
                None if link.is_over() || scheduler::now_ns() > until_ns => return Ok(false),
                None => self.bell.sleep(self.cluster.plan().round_ns()),
            }
        };
        if resumes {
            replica.intake.resume();
            (replica.link, replica.streams) = (Some(link), streams);
            replica.followed.set(view.primary);
            (replica.lineage, replica.life, replica.is_detached) = (lineage, life, false);
        }
        Ok(resumes)
    }

    fn promote(&self, replica: &mut Replica, seen: &View, why: &str) -> Result<Turn> {
        let word = self.cluster.page(self.number).word(AUTHORITY_TERM);
        let before = word.words().load_acquire(0);
        let plan = self.cluster.plan();
        let replica = RefCell::new(replica);
        let voided = |view: &View| {
            self.cluster.tell(format!("node {} was chosen, term {}: {why}", self.number, view.term));
            match plan.hosts {
                None => void(&self.membership, &word, before, scheduler::give_way),
                Some(hosts) => {
                    let pause = |left_ns: u64| {
                        replica.borrow_mut().follow_on()?;
                        scheduler::sleep(1 + scheduler::random_below(left_ns.min(plan.round_ns())));
                        Ok(())
                    };
                    let earlier = (seen.primary, hosts.lease_ns);
                    outwait(&self.membership, earlier, scheduler::host_now_ns, pause)?;
                    Ok(word.words().load_acquire(0))
                }
            }
        };
        let take_up = |view: &View, voided: u64| {
            let mut replica = replica.borrow_mut();
            replica.take_over()?;
            while !replica.intake.flush_log() {
                scheduler::sleep(1_000);
            }
            let sequences = replica.intake.applied();
            let kept = replica.keeper.as_ref().map(|keeper| keeper.end(&sequences)).transpose()?;
            let shadows = std::mem::take(&mut *replica.shadows.borrow_mut());
            let past = Past {
                shadows: shadows.into_iter().map(Some).collect(),
                backlogs: replica.intake.take_backlogs(),
                lineage: replica.lineage,
                life: Some(replica.life),
            };
            Ok((view.clone(), (past, kept, voided + 1)))
        };
        let promoted = match promote(&self.membership, (seen, 0), voided, take_up) {
            Err(error) if error.kind() == ErrorKind::Superseded => return Ok(Turn::Lost),
            promoted => promoted?,
        };
        let Promoted::Yes((view, begun)) = promoted else { return Ok(Turn::GoesOn) };
        let Some(primary) = self.serve(&view, begun)? else { return Ok(Turn::Lost) };
        self.asks.set(false);
        mark!("node promoted");
        self.be_primary(&primary);
        Ok(Turn::Promoted)
    }

    /// Serves as primary of a view, with what there is and is kept, in a term. `None`: another one was chosen
    /// meanwhile.
    pub(super) fn serve(
        &self,
        view: &View,
        begun: (Past, Option<Kept>, u64),
    ) -> Result<Option<Rc<PrimaryServer>>> {
        let lease = self.cluster.plan().hosts.map(|hosts| {
            let asked = Lease::ask(&self.membership, hosts.lease_ns, scheduler::host_now_ns);
            asked.ok().and_then(|(_, lease)| lease).unwrap_or(Lease::OVER)
        });
        let (of, term) = ((&self.cluster, self.number), begun.2);
        let primary = PrimaryServer::start(of, &self.membership, (view, lease), begun)?;
        if let Some(primary) = &primary {
            self.cluster.tell(format!("node {} serves, in term {term}", self.number));
            Node::note_primary(&self.cluster, self.number, primary);
        }
        Ok(primary)
    }

    // ---- primary ----

    /// Looks after its replicas until another one is primary.
    pub(super) fn be_primary(&self, primary: &Rc<PrimaryServer>) {
        let plan = self.cluster.plan();
        let own = self.membership.boot;
        let (mut handover, mut keeping, mut asked_ns) = (Handover::default(), Keeping::default(), 0);
        loop {
            scheduler::sleep(plan.round_ns());
            let Ok(Some(view)) = self.look(primary, &mut asked_ns) else { continue };
            if let (Some(copy), Some(disk)) = (&primary.copy, self.cluster.disk(self.number)) {
                if keeping.look((false, copy.has_base()), view.is_in_sync(own)) == Keep::Alone {
                    disk.keep_only(copy);
                }
            }
            let lives = |boot| self.cluster.seems_to_live(boot);
            if view.primary == own {
                let times_ns = (scheduler::now_ns(), SUCCEEDS_WITHIN * self.cluster.suspect_ns());
                let hands_over = view.leaving.contains(&own) || !primary.takes_writes();
                let _ = handover.look((&self.membership, &view), times_ns, hands_over, lives);
            }
            primary.replication.let_go(&**primary, &view);
            primary.replication.drop_absent(&**primary, self.cluster.suspect_ns(), lives);
            if view.primary != own || !kelix_shard::replicas::Primary::in_force(&**primary) {
                primary.end();
                return;
            }
        }
    }

    /// The newest view. On several hosts that of a moment ago, between two questions, each of which renews
    /// the lease.
    fn look(&self, primary: &PrimaryServer, asked_ns: &mut u64) -> Result<Option<View>> {
        let Some(hosts) = self.cluster.plan().hosts else { return self.membership.look() };
        let (known, now_ns) = (self.membership.view(), scheduler::host_now_ns());
        let is_early = !is_to_ask((known.as_ref(), self.membership.boot), now_ns - *asked_ns, hosts.lease_ns);
        if is_early && !primary.batches.wants_question() {
            return Ok(known);
        }
        *asked_ns = now_ns;
        let of = (&*self.membership, &primary.batches);
        let (view, renewed) = Lease::renew(of, hosts.lease_ns, scheduler::host_now_ns)?;
        renewed.into_iter().for_each(|renewed| primary.renew(renewed));
        Ok(view)
    }
}

impl Replica {
    /// Takes in what has come. `false`: nothing had. An error that may pass: nothing more will.
    fn receive(&mut self) -> Result<bool> {
        let Some(link) = &self.link else { return Ok(false) };
        if !self.intake.flush_log() {
            return Ok(false);
        }
        let mut came = false;
        while let Some(frame) = link.receive() {
            if frame.part == ATTACHED {
                (self.lineage, self.life) = (frame.words[1], frame.words[2]);
            } else {
                // Nobody looks at what is copied, or followed.
                scheduler::unnoticed(|| self.intake.take(frame.shard, frame.part, &frame.words))?;
            }
            (came, self.heard) = (true, self.heard + 1);
            if scheduler::random_below(4) == 0 {
                break;
            }
        }
        if let Some(placed) = self.intake.settle((came, self.says_what_it_has), &self.streams)? {
            link.push(FeedPart::Placed as u32, 0, &placed.words());
        }
        if link.is_over() {
            return Err(
                Error::new(ErrorKind::Unavailable, "follow", "the connection is over").with_retry(true)
            );
        }
        Ok(came)
    }

    /// Takes in what has come, and applies some of it. `false`: there was nothing.
    fn turn(&mut self) -> Result<bool> {
        let came = self.receive()?;
        if self.intake.is_all_applied() {
            return Ok(came);
        }
        self.apply(scheduler::random_below(TURN_WORDS_MAX) as usize)?;
        Ok(true)
    }

    fn apply(&mut self, words: usize) -> Result<bool> {
        let Replica { intake, shadows, .. } = self;
        intake.apply(words, |shard, record| {
            if scheduler::random_below(8) == 0 {
                scheduler::give_way();
            }
            let mut shadows = shadows.borrow_mut();
            scheduler::unnoticed(|| shadows[shard].follower.apply(record))
        })
    }

    /// The same, of a primary that may be lost, for whoever has yet to wait until it takes over.
    fn follow_on(&mut self) -> Result<()> {
        match self.turn() {
            Err(error) if error.retry() => self.link = None,
            turned => drop(turned?),
        }
        Ok(())
    }

    /// Takes over all that the primary has told, and applies it.
    fn take_over(&mut self) -> Result<()> {
        self.link = None;
        self.intake.take_over(&std::mem::take(&mut self.streams))?;
        while !self.intake.is_all_applied() {
            self.apply(usize::MAX)?;
        }
        Ok(())
    }

    /// Follows the primary no more.
    fn detach(&mut self) -> Result<()> {
        self.take_over()?;
        self.is_detached = true;
        Ok(())
    }
}
