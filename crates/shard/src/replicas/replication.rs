//! The primary's side: which replicas have to have a record before it counts, and up to where they have all.
//!
//! ```text
//! a replica:  follows -> required -> has all that was committed before -> in the view -> its feed ends: out of
//!                                                                        the view -> not required any more
//! ```
//!
//! 1. What counts is what every required replica has ([`Replication::place`]), while this server is in force.
//!    Where all of these have mapped the streams, or none is required,
//!    that is what stands in the streams (`LogControl::counts_at_once`).
//! 2. Whoever is in the view is required, at every moment: a replica is required before it is put into the
//!    view, and until it is taken out of the view. So whoever is chosen out of the view has all that was
//!    committed. A server that was just chosen has those required who are in the view with it, and expects
//!    them: they go on behind what they have ([`Replication::resume`]), or are taken out of the view. Until
//!    then nothing counts of what it has itself ([`counts_at_first`]): they may lack some of it, and be
//!    chosen next.
//! 3. A replica that is put into the view has all that was committed before it was required
//!    ([`Replication::cover`]). Where the members of the cluster keep logs that count (`--durable commit`), a
//!    replica says that it has what its disk has, and this server's own disk counts as a member that is
//!    always required ([`Replication::note_disk`]). Nothing counts at once then.
//! 4. With fewer in sync than the view asks for nothing counts, and no write is accepted: what was written before
//!    waits for another replica ([`Replication::judge`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use kelix_image::Committed;
use kelix_image::words::full_fence;
use kelix_log::{Gatherer, LogControl, LogState, Reader, ShardLog};
use kelix_register::{Membership, View};
use kelix_types::{Error, locks, mark};
use kelix_wire::control::StreamPosition;

use super::backlog::Backlog;

/// A server that is primary, as it is asked and told by what decides about its replicas. Shards are named by
/// their namespace and their number in it.
pub trait Primary {
    /// How many shards each of its namespaces has.
    fn shards(&self) -> Vec<usize>;
    /// What a shard and its replicas know.
    fn log(&self, shard: (usize, usize)) -> Option<&ShardLog>;
    /// Wakes a shard.
    fn wake(&self, shard: (usize, usize));
    /// The same, for it to look at what was told to it in memory.
    fn wake_if_asleep(&self, shard: (usize, usize));
    /// All that a shard has done since it began, for a replica that is expected; and what holds that for it.
    fn take_expected(&self, shard: (usize, usize)) -> Option<(Gatherer, Reader)>;
    /// No more replicas are expected.
    fn expect_none(&self);
    /// Whether what it answers counts.
    fn in_force(&self) -> bool;
    /// Whether what it does counts now: it is in force, and so is its lease, if it has one.
    fn counts(&self) -> bool {
        self.in_force()
    }
    /// Whether it ends.
    fn is_over(&self) -> bool;
    /// The time.
    fn now_ns(&self) -> u64;
    /// Lets some time pass.
    fn pause(&self, time_ns: u64);
    /// Something is worth to be told.
    fn note(&self, what: Noted<'_>);
}

/// What counts of all that a shard has, up to this end, whose server begins to be primary and expects so many
/// others of the view.
pub fn counts_at_first(end: Committed, expected: usize) -> Committed {
    if expected == 0 { end } else { Committed::NONE }
}

/// What became of a replica.
pub enum Noted<'a> {
    /// It goes on with what it has of a namespace.
    GoesOn(usize),
    /// It was put into this view.
    InSync(u64),
    /// It was taken out of the view.
    OutOfSync(u64),
    /// It has all, and cannot be put into the view.
    CannotBeListed(&'a Error),
    /// It cannot be taken out of the view, for which writes wait.
    CannotBeUnlisted(&'a Error),
}

/// How a replica is doing.
pub struct ReplicaReport {
    /// Its number.
    pub boot: u64,
    /// Whether it finds in the streams what comes next.
    pub is_near: bool,
}

/// A replica as the primary knows it.
struct Replica {
    boot: u64,
    /// It is in the view, or may be.
    is_listed: bool,
    /// It is in the view for certain.
    is_counted: bool,
    /// The replica was in the view when this server was chosen, and cannot go on behind what it has.
    is_refused: bool,
    /// When it was last tried to put it there.
    tried_ns: Option<u64>,
    /// Its feeds, by namespace.
    feeds: Vec<Option<Placed>>,
}

/// What a replica has of a namespace, as the feed with a number knows.
struct Placed {
    feed: u64,
    /// What it is to have before it may be put into the view, once that is known.
    covers: Option<Vec<u64>>,
    /// What it has, of each shard; and whether it finds in the streams what comes behind that.
    has: Vec<Committed>,
    is_near: bool,
}

impl Replica {
    /// Without feeds as yet. One that was in the view when this server was chosen is listed.
    fn new(boot: u64, is_listed: bool, namespaces: usize) -> Replica {
        let feeds = (0..namespaces).map(|_| None).collect();
        Replica { boot, is_listed, is_counted: is_listed, is_refused: false, tried_ns: None, feeds }
    }

    /// Whether it has of all namespaces what it is to have to be in the view.
    fn covers_all(&self) -> bool {
        let covers = |placed: &Placed| {
            let has = || placed.has.iter().map(|has| has.record);
            placed.covers.as_ref().is_some_and(|covers| has().zip(covers).all(|(has, of)| has >= *of))
        };
        self.feeds.iter().all(|placed| placed.as_ref().is_some_and(covers))
    }
}

/// The replicas of a server that is primary.
pub struct Replication {
    /// The server's.
    pub membership: Arc<Membership>,
    /// What all its shards know.
    pub control: LogControl,
    required: Mutex<Vec<Replica>>,
    /// Held while somebody changes who is in the view.
    change: Mutex<()>,
    next_feed: AtomicU64,
    /// How many have to be in sync, this one among them, for anything to count.
    pub min_in_sync: usize,
    /// The lineage of the records that this server goes on behind: those of the primary that it followed.
    predecessor: u64,
    /// Some are awaited that were in sync when this one was chosen, and what those may lack.
    expects: AtomicBool,
    backlogs: Mutex<Vec<Vec<Backlog>>>,
    began_ns: u64,
    /// Between two tries to change a register that cannot be written.
    between_tries_ns: u64,
    /// What this server's own disk has of each shard, where nothing counts before.
    disk: Option<Mutex<Vec<Vec<Committed>>>>,
    /// Whether that disk takes what is written, if there is a log.
    disk_accepts: AtomicBool,
}

/// What a replica is told that goes on behind what it has.
pub struct Resumption {
    /// Of each shard records up to where the gatherer begins.
    pub words: Vec<Vec<u64>>,
    /// Of each shard what it tells behind that.
    pub gatherers: Vec<Gatherer>,
    /// They hold what stands in the streams for it.
    pub holds: Vec<Reader>,
}

impl Replication {
    /// Of a primary which has been put into this view, with others who may be in it. It goes on behind
    /// records of the lineage `predecessor`, the last of which are the backlogs.
    pub fn new(
        (membership, control): (Arc<Membership>, LogControl),
        view: &View,
        namespaces: usize,
        (predecessor, backlogs): (u64, Vec<Vec<Backlog>>),
        (now_ns, between_tries_ns): (u64, u64),
    ) -> Replication {
        let others = view.in_sync.iter().filter(|boot| **boot != membership.boot);
        let required: Vec<Replica> = others.map(|boot| Replica::new(*boot, true, namespaces)).collect();
        let expects = AtomicBool::new(!required.is_empty());
        let replication = Replication {
            membership,
            control,
            required: Mutex::new(required),
            change: Mutex::default(),
            next_feed: AtomicU64::new(1),
            min_in_sync: view.min_in_sync,
            predecessor,
            expects,
            backlogs: Mutex::new(backlogs),
            began_ns: now_ns,
            between_tries_ns,
            disk: None,
            disk_accepts: AtomicBool::new(true),
        };
        replication.set_accepts(&replication.required());
        replication
    }

    /// The same, of one whose own disk counts, too, and has this much of the shards of each namespace.
    pub fn with_disk(mut self, ends: Vec<Vec<Committed>>) -> Replication {
        self.disk = Some(Mutex::new(ends));
        self
    }

    /// This server's disk has this much of shards.
    pub fn note_disk(
        &self,
        primary: &impl Primary,
        durable: impl Iterator<Item = ((usize, usize), Committed)>,
    ) {
        let Some(disk) = &self.disk else { return };
        let required = self.required();
        {
            let mut disk = locks::lock(disk);
            durable.for_each(|((namespace, shard), has)| disk[namespace][shard] = has);
        }
        self.advance_all(primary, &required);
    }

    /// Says whether this server's log takes what is written: no write is accepted while it does not.
    pub fn set_disk_accepts(&self, accepts: bool) {
        self.disk_accepts.store(accepts, Ordering::SeqCst);
        self.set_accepts(&self.required());
    }

    /// Looks again at what counts, which had to wait for this server's lease.
    pub fn look_again(&self, primary: &impl Primary) {
        self.advance_all(primary, &self.required());
    }

    /// Whether so many are in sync that something may count.
    fn are_enough(&self, required: &[Replica]) -> bool {
        1 + required.iter().filter(|replica| replica.is_counted).count() >= self.min_in_sync
    }

    /// Says whether writes are accepted.
    fn set_accepts(&self, required: &[Replica]) {
        let accepts = self.are_enough(required) && self.disk_accepts.load(Ordering::SeqCst);
        let state = if accepts { LogState::Writes } else { LogState::Full };
        if self.control.state() != state {
            self.control.set_state(state);
        }
    }

    /// Whether writes are accepted.
    pub fn accepts_writes(&self) -> bool {
        self.are_enough(&self.required()) && self.disk_accepts.load(Ordering::SeqCst)
    }

    fn required(&self) -> MutexGuard<'_, Vec<Replica>> {
        locks::lock(&self.required)
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        locks::lock(&self.change)
    }

    /// The lineage of the records that this server makes. Each primary's is another one: records of two have
    /// the same numbers where the successor did not take up all that was sent.
    pub fn lineage(&self) -> u64 {
        self.membership.boot
    }

    /// A replica that was in sync when this server was chosen goes on behind its position. `None`: it is not
    /// expected, may not be told all that it lacks, or followed another primary than this one did, so that it
    /// may have records that this one never saw, with the numbers of others.
    pub fn resume(
        &self,
        primary: &impl Primary,
        (boot, namespace): (u64, usize),
        feed: u64,
        position: &StreamPosition,
    ) -> Option<Resumption> {
        let _changing = self.changing();
        let shards = primary.shards()[namespace];
        let fits = position.lineage == self.predecessor && position.sequences.len() == shards;
        let mut required = self.required();
        let is_expected = |replica: &&mut Replica| {
            replica.boot == boot && replica.is_listed && replica.feeds[namespace].is_none()
        };
        let replica = required.iter_mut().find(is_expected)?;
        let told = if fits { self.tell_behind(primary, namespace, position) } else { None };
        // What was put aside for such replicas is all that there ever will be.
        replica.is_refused |= told.is_none();
        let resumption = told?;
        let has = vec![Committed::NONE; shards];
        let covers = Some(vec![0; shards]);
        replica.feeds[namespace] = Some(Placed { feed, covers, has, is_near: false });
        mark!("replica went on behind what it had");
        primary.note(Noted::GoesOn(namespace));
        Some(resumption)
    }

    /// What a replica is told that goes on behind a position, of all shards. `None`: not all of it is here.
    fn tell_behind(
        &self,
        primary: &impl Primary,
        namespace: usize,
        position: &StreamPosition,
    ) -> Option<Resumption> {
        let taken = (0..position.sequences.len()).map(|shard| primary.take_expected((namespace, shard)));
        let taken = taken.collect::<Option<Vec<_>>>()?;
        let (gatherers, holds): (Vec<Gatherer>, Vec<Reader>) = taken.into_iter().unzip();
        let backlogs = locks::lock(&self.backlogs);
        let of_shard = |(shard, gatherer): (usize, &Gatherer)| {
            let backlog = backlogs.get(namespace)?.get(shard)?;
            gatherer.check().ok()?;
            Some(backlog.behind(position.sequences[shard], gatherer.last().record)?.to_vec())
        };
        let words = gatherers.iter().enumerate().map(of_shard).collect::<Option<_>>()?;
        Some(Resumption { words, gatherers, holds })
    }

    /// A number for a feed.
    pub fn number_feed(&self) -> u64 {
        self.next_feed.fetch_add(1, Ordering::Relaxed)
    }

    /// From now on nothing counts in a namespace that a replica has not, which has this much of it. `false`:
    /// another feed of the same replica has yet to end.
    pub fn require(
        &self,
        primary: &impl Primary,
        (boot, namespace): (u64, usize),
        feed: u64,
        (has, is_near): (Vec<Committed>, bool),
    ) -> bool {
        let _changing = self.changing();
        let mut required = self.required();
        let placed = Placed { feed, covers: None, has, is_near };
        match required.iter_mut().find(|replica| replica.boot == boot) {
            Some(replica) if replica.is_listed || replica.feeds[namespace].is_some() => return false,
            Some(replica) => replica.feeds[namespace] = Some(placed),
            None => {
                let mut replica = Replica::new(boot, false, primary.shards().len());
                replica.feeds[namespace] = Some(placed);
                required.push(replica);
            }
        }
        self.judge(primary, &required);
        true
    }

    /// Says whether writes are accepted, and whether what stands in the streams counts at once, because all
    /// that are required find it there.
    fn judge(&self, primary: &impl Primary, required: &[Replica]) {
        self.set_accepts(required);
        let is_near = |placed: &Option<Placed>| placed.as_ref().is_some_and(|placed| placed.is_near);
        let are_near = required.iter().all(|replica| replica.feeds.iter().all(is_near));
        let at_once = are_near && self.are_enough(required) && self.disk.is_none();
        if at_once == self.control.counts_at_once() {
            return;
        }
        self.control.set_counts_at_once(at_once);
        if at_once {
            for (namespace, shards) in primary.shards().into_iter().enumerate() {
                (0..shards).for_each(|shard| primary.wake((namespace, shard)));
            }
        }
    }

    /// What a replica is to have before it is put into the view: what shards may have committed without it, so
    /// what they had sealed when they had heard that it is required.
    pub fn cover(&self, primary: &impl Primary, of: (u64, usize), feed: u64, covers: Vec<u64>) {
        if let Some(placed) = of_feed(&mut self.required(), of, feed) {
            placed.covers = Some(covers);
        }
        self.list(primary, of.0);
    }

    /// A replica has this much of a namespace. `false`: it is not required any more.
    pub fn place(
        &self,
        primary: &impl Primary,
        of: (u64, usize),
        feed: u64,
        (has, is_near): (&[Committed], bool),
    ) -> bool {
        let is_counted = {
            let mut required = self.required();
            let Some(placed) = of_feed(&mut required, of, feed) else { return false };
            placed.has.copy_from_slice(has);
            if std::mem::replace(&mut placed.is_near, is_near) != is_near {
                self.judge(primary, &required);
            }
            self.advance(primary, &required, of.1);
            required.iter().any(|replica| replica.boot == of.0 && replica.is_counted)
        };
        if !is_counted {
            self.list(primary, of.0);
        }
        true
    }

    /// Tells shards of a namespace what counts.
    fn advance(&self, primary: &impl Primary, required: &[Replica], namespace: usize) {
        // What is placed is looked at before: whoever has taken over since has all of it, or has closed the
        // way on which it would have been placed.
        let counts = self.are_enough(required) && primary.counts();
        if self.control.counts_at_once() || !counts {
            return;
        }
        let placed = required.iter().map(|replica| replica.feeds[namespace].as_ref());
        let Some(mut placed): Option<Vec<&Placed>> = placed.collect() else { return };
        // Those that are near have what the others have: it stood in the streams first.
        placed.retain(|placed| !placed.is_near);
        let disk = self.disk.as_ref().map(locks::lock);
        for shard in 0..primary.shards()[namespace] {
            let Some(log) = primary.log((namespace, shard)) else { continue };
            let own = disk.as_ref().map(|disk| disk[namespace][shard]);
            let least = placed.iter().map(|placed| placed.has[shard]).chain(own);
            let least = least.min_by_key(|has| has.record);
            let Some(least) = least.filter(|least| least.record > log.durable()) else { continue };
            let before = log.durable();
            log.set_durable(least);
            // SYNC: between what counts and what is wanted: a shard says what it wants before it announces its
            // sleep, and looks at what counts behind that. One of both sees the other.
            full_fence();
            if log.wanted() > before {
                primary.wake_if_asleep((namespace, shard));
            }
        }
    }

    fn advance_all(&self, primary: &impl Primary, required: &[Replica]) {
        (0..primary.shards().len()).for_each(|namespace| self.advance(primary, required, namespace));
    }

    /// Puts a replica into the view that has all that it needs.
    fn list(&self, primary: &impl Primary, boot: u64) {
        let _changing = self.changing();
        let now_ns = primary.now_ns();
        let may_be = |replica: &&mut Replica| {
            let is_due = replica.tried_ns.is_none_or(|tried_ns| now_ns - tried_ns > self.between_tries_ns);
            replica.boot == boot && !replica.is_counted && is_due && replica.covers_all()
        };
        match self.required().iter_mut().find(may_be) {
            Some(replica) => (replica.is_listed, replica.tried_ns) = (true, Some(now_ns)),
            None => return,
        }
        match self.membership.list(boot) {
            Ok(true) => {
                mark!("replica put into the view");
                {
                    let mut required = self.required();
                    if let Some(replica) = required.iter_mut().find(|replica| replica.boot == boot) {
                        replica.is_counted = true;
                    }
                    self.judge(primary, &required);
                    self.advance_all(primary, &required);
                }
                primary.note(Noted::InSync(boot));
            }
            Ok(false) => {
                // It counts here, and for nobody who would be chosen; the next record tries again.
                if let Some(replica) = self.required().iter_mut().find(|replica| replica.boot == boot) {
                    replica.is_listed = false;
                }
            }
            // It may be there all the same: it is tried again, and required until it was taken out there.
            Err(error) => {
                mark!("replica may be in the view");
                primary.note(Noted::CannotBeListed(&error));
            }
        }
    }

    /// A feed of a replica has ended: the replica is taken out of the view, and required no more. Waits until
    /// the register could be written, unless this server is not primary any more, or ends.
    pub fn leave(&self, primary: &impl Primary, (boot, namespace): (u64, usize), feed: u64) {
        let _changing = self.changing();
        if of_feed(&mut self.required(), (boot, namespace), feed).is_some() {
            self.unlist(primary, boot);
        }
    }

    /// Takes those out of the view who were in it when this server was chosen, and have not come within some
    /// time, cannot go on behind what they have, or have ended.
    pub fn drop_absent(&self, primary: &impl Primary, patience_ns: u64, lives: impl Fn(u64) -> bool) {
        if !self.expects.load(Ordering::Relaxed) {
            return;
        }
        let _changing = self.changing();
        let is_late = primary.now_ns().saturating_sub(self.began_ns) > patience_ns;
        let is_absent = |replica: &&Replica| replica.feeds.iter().any(Option::is_none);
        let absent: Vec<(u64, bool)> =
            self.required().iter().filter(is_absent).map(|of| (of.boot, of.is_refused)).collect();
        let (lost, awaited): (Vec<_>, Vec<_>) =
            absent.into_iter().partition(|(boot, is_refused)| is_late || *is_refused || !lives(*boot));
        for (boot, is_refused) in lost {
            if is_refused {
                mark!("replica that has to copy anew not waited for");
            }
            self.unlist(primary, boot);
        }
        if awaited.is_empty() {
            self.expects.store(false, Ordering::Relaxed);
            locks::lock(&self.backlogs).clear();
            primary.expect_none();
        }
    }

    /// Takes those out of the view who are to leave it. The primary does: whoever took itself out might have
    /// been the last one that lives.
    pub fn let_go(&self, primary: &impl Primary, view: &View) {
        let leaves = |boot: &&u64| view.leaving.contains(boot) && **boot != self.membership.boot;
        for boot in view.in_sync.iter().filter(leaves) {
            let _changing = self.changing();
            mark!("replica let go");
            self.unlist(primary, *boot);
        }
    }

    fn unlist(&self, primary: &impl Primary, boot: u64) {
        let is_listed = {
            let mut required = self.required();
            let Some(replica) = required.iter_mut().find(|replica| replica.boot == boot) else { return };
            replica.is_counted = false;
            let is_listed = replica.is_listed;
            self.judge(primary, &required);
            is_listed
        };
        if is_listed && !self.take_out_of_view(primary, boot) {
            return;
        }
        let mut required = self.required();
        required.retain(|replica| replica.boot != boot);
        self.judge(primary, &required);
        self.advance_all(primary, &required);
    }

    /// `false`: another one is primary, or this server ends; in either case nothing more counts here.
    fn take_out_of_view(&self, primary: &impl Primary, boot: u64) -> bool {
        let mut said = false;
        loop {
            match self.membership.unlist(boot) {
                Ok(true) => {
                    mark!("replica taken out of the view");
                    primary.note(Noted::OutOfSync(boot));
                    return true;
                }
                Ok(false) => return false,
                Err(error) => {
                    if !std::mem::replace(&mut said, true) {
                        primary.note(Noted::CannotBeUnlisted(&error));
                    }
                    if !primary.in_force() || primary.is_over() {
                        return false;
                    }
                    primary.pause(self.between_tries_ns);
                }
            }
        }
    }

    /// How replicas are doing.
    pub fn report(&self) -> Vec<ReplicaReport> {
        let is_near = |placed: &Option<Placed>| placed.as_ref().is_some_and(|placed| placed.is_near);
        let required = self.required();
        let replicas = required
            .iter()
            .map(|replica| ReplicaReport { boot: replica.boot, is_near: replica.feeds.iter().all(is_near) });
        replicas.collect()
    }
}

/// What a feed knows of a replica, if that feed still counts.
fn of_feed(required: &mut [Replica], (boot, namespace): (u64, usize), feed: u64) -> Option<&mut Placed> {
    let replica = required.iter_mut().find(|replica| replica.boot == boot)?;
    replica.feeds[namespace].as_mut().filter(|placed| placed.feed == feed)
}

#[cfg(test)]
mod tests;
