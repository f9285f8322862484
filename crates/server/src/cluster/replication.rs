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
//! 2. Whoever is in the view is required, at every moment: a replica is required before it is put into the view,
//!    and until it is taken out of the view. So whoever is chosen out of the view has all that was committed.
//!    A server that was just chosen has those required who are in the view with it, and expects them: they go on
//!    behind what they have ([`Replication::resume`]), or are taken out of the view.
//! 3. A replica that is put into the view has all that was committed before it was required
//!    ([`Replication::cover`]).
//! 4. With fewer in sync than the view asks for nothing counts, and no write is accepted: what was written before
//!    waits for another replica ([`Replication::judge`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use kelix_image::Committed;
use kelix_image::words::full_fence;
use kelix_log::{Gatherer, LogState, Reader};
use kelix_register::View;
use kelix_wire::control::StreamPosition;
use serde_json::{Value, json};
use tracing::{error, info, warn};

use super::membership::Membership;
use crate::mirror::Backlog;
use crate::namespace::Namespace;
use crate::server::Shared;
use crate::shard_thread::ShardHandle;
use crate::wal::ShardsLog;

/// Between two tries to change a register that cannot be written.
const BETWEEN_TRIES: Duration = Duration::from_millis(100);

/// A replica as the primary knows it.
struct Replica {
    boot: u64,
    /// It is in the view, or may be.
    is_listed: bool,
    /// It is in the view for certain.
    is_counted: bool,
    /// When it was last tried to put it there.
    tried: Option<Instant>,
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
pub(crate) struct Replication {
    pub membership: Arc<Membership>,
    pub log: ShardsLog,
    required: Mutex<Vec<Replica>>,
    /// Held while somebody changes who is in the view.
    change: Mutex<()>,
    next_feed: AtomicU64,
    /// How many have to be in sync, this one among them, for anything to count.
    min_in_sync: usize,
    /// The number of the cluster, which is the lineage of all records that its primaries make.
    cluster: u64,
    /// Some are awaited that were in sync when this one was chosen, and what those may lack.
    expects: AtomicBool,
    backlogs: Mutex<Vec<Vec<Backlog>>>,
    began: Instant,
}

/// What a replica is told that goes on behind what it has.
pub(crate) struct Resumption {
    /// Of each shard records up to where the gatherer begins.
    pub words: Vec<Vec<u64>>,
    pub gatherers: Vec<Gatherer>,
    /// They hold what stands in the streams for it.
    pub holds: Vec<Reader>,
}

impl Replication {
    /// Of a primary which has been put into this view, with others who may be in it.
    pub fn new(
        membership: Arc<Membership>,
        log: ShardsLog,
        view: &View,
        served: &[Arc<Namespace>],
        backlogs: Vec<Vec<Backlog>>,
    ) -> Replication {
        let others = view.in_sync.iter().filter(|boot| **boot != membership.boot);
        let feeds = || served.iter().map(|_| None).collect();
        let required: Vec<Replica> = others
            .map(|boot| Replica {
                boot: *boot,
                is_listed: true,
                is_counted: true,
                tried: None,
                feeds: feeds(),
            })
            .collect();
        let expects = AtomicBool::new(!required.is_empty());
        let replication = Replication {
            membership,
            log,
            required: Mutex::new(required),
            change: Mutex::default(),
            next_feed: AtomicU64::new(1),
            min_in_sync: view.min_in_sync,
            cluster: view.cluster,
            expects,
            backlogs: Mutex::new(backlogs),
            began: Instant::now(),
        };
        replication.set_accepts(&replication.required());
        replication
    }

    /// Whether so many are in sync that something may count.
    fn are_enough(&self, required: &[Replica]) -> bool {
        1 + required.iter().filter(|replica| replica.is_counted).count() >= self.min_in_sync
    }

    /// Says whether writes are accepted.
    fn set_accepts(&self, required: &[Replica]) {
        let state = if self.are_enough(required) { LogState::Writes } else { LogState::Full };
        if self.log.control.state() != state {
            self.log.control.set_state(state);
        }
    }

    fn required(&self) -> MutexGuard<'_, Vec<Replica>> {
        self.required.lock().expect("no panic under this lock")
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.change.lock().expect("no panic under this lock")
    }

    /// The lineage of all records of the cluster.
    pub fn lineage(&self) -> u64 {
        self.cluster
    }

    /// A replica that was in sync when this server was chosen goes on behind its position. `None`: it is not
    /// expected, or may not be told all that it lacks.
    pub fn resume(
        &self,
        shared: &Shared,
        (boot, namespace): (u64, usize),
        feed: u64,
        position: &StreamPosition,
    ) -> Option<Resumption> {
        let _changing = self.changing();
        let shards = &shared.namespaces[namespace].shards;
        let fits = position.lineage == self.cluster && position.sequences.len() == shards.len();
        let mut required = self.required();
        let is_expected = |replica: &&mut Replica| {
            replica.boot == boot && replica.is_listed && replica.feeds[namespace].is_none()
        };
        let replica = required.iter_mut().find(is_expected).filter(|_| fits)?;
        let taken = shards.iter().map(ShardHandle::take_expected).collect::<Option<Vec<_>>>()?;
        let (gatherers, holds): (Vec<Gatherer>, Vec<Reader>) = taken.into_iter().unzip();
        let backlogs = self.backlogs.lock().expect("no panic under this lock");
        let of_shard = |(shard, gatherer): (usize, &Gatherer)| {
            let backlog = backlogs.get(namespace)?.get(shard)?;
            gatherer.check().ok()?;
            Some(backlog.behind(position.sequences[shard], gatherer.last().record)?.to_vec())
        };
        let words = gatherers.iter().enumerate().map(of_shard).collect::<Option<_>>()?;
        let has = vec![Committed::NONE; shards.len()];
        let covers = Some(vec![0; shards.len()]);
        replica.feeds[namespace] = Some(Placed { feed, covers, has, is_near: false });
        info!(namespace = shared.namespaces[namespace].name, "a replica goes on with what it has");
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
        shared: &Shared,
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
                let mut feeds: Vec<Option<Placed>> = shared.namespaces.iter().map(|_| None).collect();
                feeds[namespace] = Some(placed);
                required.push(Replica { boot, is_listed: false, is_counted: false, tried: None, feeds });
            }
        }
        self.judge(shared, &required);
        true
    }

    /// Says whether writes are accepted, and whether what stands in the streams counts at once, because all
    /// that are required find it there.
    fn judge(&self, shared: &Shared, required: &[Replica]) {
        self.set_accepts(required);
        let is_near = |placed: &Option<Placed>| placed.as_ref().is_some_and(|placed| placed.is_near);
        let are_near = required.iter().all(|replica| replica.feeds.iter().all(is_near));
        let at_once = are_near && self.are_enough(required);
        if at_once == self.log.control.counts_at_once() {
            return;
        }
        self.log.control.set_counts_at_once(at_once);
        if at_once {
            shared.shards().for_each(ShardHandle::wake);
        }
    }

    /// What a replica is to have before it is put into the view: what shards may have committed without it, so
    /// what they had sealed when they had heard that it is required.
    pub fn cover(&self, shared: &Shared, of: (u64, usize), feed: u64, covers: Vec<u64>) {
        if let Some(placed) = of_feed(&mut self.required(), of, feed) {
            placed.covers = Some(covers);
        }
        self.list(shared, of.0);
    }

    /// A replica has this much of a namespace. `false`: it is not required any more.
    pub fn place(
        &self,
        shared: &Shared,
        of: (u64, usize),
        feed: u64,
        (has, is_near): (&[Committed], bool),
    ) -> bool {
        let is_listed = {
            let mut required = self.required();
            let Some(placed) = of_feed(&mut required, of, feed) else { return false };
            placed.has.copy_from_slice(has);
            if std::mem::replace(&mut placed.is_near, is_near) != is_near {
                self.judge(shared, &required);
            }
            self.advance(shared, &required, of.1);
            required.iter().any(|replica| replica.boot == of.0 && replica.is_listed)
        };
        if !is_listed {
            self.list(shared, of.0);
        }
        true
    }

    /// Tells shards of a namespace what counts.
    fn advance(&self, shared: &Shared, required: &[Replica], namespace: usize) {
        // What is placed is looked at before: whoever has taken over since has all of it, or has closed the
        // way on which it would have been placed.
        let counts = self.are_enough(required) && shared.authority.in_force();
        if self.log.control.counts_at_once() || !counts {
            return;
        }
        let placed = required.iter().map(|replica| replica.feeds[namespace].as_ref());
        let Some(mut placed): Option<Vec<&Placed>> = placed.collect() else { return };
        // Those that are near have what the others have: it stood in the streams first.
        placed.retain(|placed| !placed.is_near);
        for (shard, handle) in shared.namespaces[namespace].shards.iter().enumerate() {
            let Some(log) = &handle.replicas else { continue };
            let least = placed.iter().map(|placed| placed.has[shard]).min_by_key(|has| has.record);
            let Some(least) = least.filter(|least| least.record > log.durable()) else { continue };
            let before = log.durable();
            log.set_durable(least);
            // SYNC: between what counts and what is wanted: a shard says what it wants before it announces its
            // sleep, and looks at what counts behind that. One of both sees the other.
            full_fence();
            if log.wanted() > before {
                handle.wake_if_asleep();
            }
        }
    }

    /// Puts a replica into the view that has all that it needs.
    fn list(&self, shared: &Shared, boot: u64) {
        let _changing = self.changing();
        let may_be = |replica: &&mut Replica| {
            let is_due = replica.tried.is_none_or(|tried| tried.elapsed() > BETWEEN_TRIES);
            replica.boot == boot && !replica.is_listed && is_due && replica.covers_all()
        };
        match self.required().iter_mut().find(may_be) {
            Some(replica) => (replica.is_listed, replica.tried) = (true, Some(Instant::now())),
            None => return,
        }
        let own = self.membership.boot;
        let changed = self.membership.change(|view| {
            let view = view.filter(|view| view.primary == own && !view.is_in_sync(boot))?;
            // Whoever follows has joined the members before.
            view.member(boot)?;
            let mut next = view.next(0);
            next.in_sync.push(boot);
            Some(next)
        });
        let is_in = |view: &Option<View>| {
            view.as_ref().is_some_and(|view| view.primary == own && view.is_in_sync(boot))
        };
        match changed {
            Ok((_, view)) if is_in(&view) => {
                let node = view.as_ref().and_then(|view| Some(view.member(boot)?.node.clone()));
                let mut required = self.required();
                if let Some(replica) = required.iter_mut().find(|replica| replica.boot == boot) {
                    replica.is_counted = true;
                }
                self.judge(shared, &required);
                (0..shared.namespaces.len()).for_each(|namespace| self.advance(shared, &required, namespace));
                info!(node, in_sync = view.map_or(0, |view| view.in_sync.len()), "a replica is in sync");
            }
            changed => {
                // It counts here, and for nobody who would be chosen; the next record tries again.
                if let Some(replica) = self.required().iter_mut().find(|replica| replica.boot == boot) {
                    replica.is_listed = false;
                }
                if let Err(error) = changed {
                    warn!(%error, "a replica that has all cannot be put into the view");
                }
            }
        }
    }

    /// A feed of a replica has ended: the replica is taken out of the view, and required no more. Waits until
    /// the register could be written, unless this server is not primary any more, or ends.
    pub fn leave(&self, shared: &Shared, (boot, namespace): (u64, usize), feed: u64) {
        let _changing = self.changing();
        if of_feed(&mut self.required(), (boot, namespace), feed).is_some() {
            self.unlist(shared, boot);
        }
    }

    /// Takes those out of the view who were in it when this server was chosen, and have not come within some
    /// time, or have ended.
    pub fn drop_absent(&self, shared: &Shared, patience: Duration, lives: impl Fn(u64) -> bool) {
        if !self.expects.load(Ordering::Relaxed) {
            return;
        }
        let _changing = self.changing();
        let is_late = self.began.elapsed() > patience;
        let is_absent = |replica: &&Replica| replica.feeds.iter().any(Option::is_none);
        let absent: Vec<u64> = self.required().iter().filter(is_absent).map(|replica| replica.boot).collect();
        let (late, awaited): (Vec<u64>, Vec<u64>) =
            absent.into_iter().partition(|boot| is_late || !lives(*boot));
        late.into_iter().for_each(|boot| self.unlist(shared, boot));
        if awaited.is_empty() {
            self.expects.store(false, Ordering::Relaxed);
            self.backlogs.lock().expect("no panic under this lock").clear();
            shared.shards().for_each(ShardHandle::expect_none);
        }
    }

    fn unlist(&self, shared: &Shared, boot: u64) {
        let is_listed = {
            let mut required = self.required();
            let Some(replica) = required.iter_mut().find(|replica| replica.boot == boot) else { return };
            replica.is_counted = false;
            let is_listed = replica.is_listed;
            self.judge(shared, &required);
            is_listed
        };
        if is_listed && !self.take_out_of_view(shared, boot) {
            return;
        }
        let mut required = self.required();
        required.retain(|replica| replica.boot != boot);
        self.judge(shared, &required);
        (0..shared.namespaces.len()).for_each(|namespace| self.advance(shared, &required, namespace));
    }

    /// `false`: another one is primary, or this server ends; in either case nothing more counts here.
    fn take_out_of_view(&self, shared: &Shared, boot: u64) -> bool {
        let own = self.membership.boot;
        let mut said = false;
        loop {
            let changed = self.membership.change(|view| {
                let view = view.filter(|view| view.primary == own && view.is_in_sync(boot))?;
                let mut next = view.next(0);
                next.take_out_of_sync(boot);
                Some(next)
            });
            match changed {
                Ok((_, view)) if view.as_ref().is_some_and(|view| view.primary == own) => {
                    info!(in_sync = view.map_or(0, |view| view.in_sync.len()), "a replica is out of sync");
                    return true;
                }
                Ok(_) => return false,
                Err(error) => {
                    if !std::mem::replace(&mut said, true) {
                        error!(%error, "a replica cannot be taken out of the view: writes wait");
                    }
                    if !shared.authority.in_force() || shared.feeds.is_over() {
                        return false;
                    }
                    std::thread::sleep(BETWEEN_TRIES);
                }
            }
        }
    }

    /// How it is doing, for statistics.
    pub fn json(&self) -> Value {
        let required = self.required();
        let replicas = required.iter().map(|replica| {
            let is_near = |placed: &Option<Placed>| placed.as_ref().is_some_and(|placed| placed.is_near);
            json!({
                "boot": format!("{:016x}", replica.boot),
                "in_sync": replica.is_listed,
                "maps_streams": replica.feeds.iter().all(is_near),
            })
        });
        let view = self.membership.view();
        json!({
            "role": "primary",
            "accepts_writes": self.are_enough(&required),
            "min_in_sync": self.min_in_sync,
            "view": view.as_ref().map(|view| view.number),
            "term": view.as_ref().map(|view| view.term),
            "in_sync": view.as_ref().map(|view| view.in_sync.len()),
            "replicas": replicas.collect::<Vec<_>>(),
        })
    }

    /// The index of a namespace among those that are served.
    pub fn index(shared: &Shared, namespace: &Namespace) -> usize {
        let is_it = |of: &Arc<Namespace>| of.name == namespace.name;
        shared.namespaces.iter().position(is_it).expect("a namespace that is served")
    }
}

/// What a feed knows of a replica, if that feed still counts.
fn of_feed(required: &mut [Replica], (boot, namespace): (u64, usize), feed: u64) -> Option<&mut Placed> {
    let replica = required.iter_mut().find(|replica| replica.boot == boot)?;
    replica.feeds[namespace].as_mut().filter(|placed| placed.feed == feed)
}
