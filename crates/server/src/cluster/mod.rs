//! A node of a cluster: primary, or a replica that goes on in the primary's place.
//!
//! ```text
//!            no view: puts the first one in                       superseded, or the view says another
//! start ----------------------------------------> primary ----------------------------------> begins anew
//!   |   a view: copies its primary                   ^
//!   '------------------> replica --------------------'
//!                           |        in the view, and the primary has ended or says nothing
//!                           '--> begins anew, where the primary has let it go
//! ```
//!
//! 1. A node is primary only behind a view that says so, and while its run directory's authority word has its
//!    term. Who is chosen raises that word before it serves ([`primary`]).
//! 2. A replica is chosen only out of a view that has it in sync, by the boot number under which it got what it
//!    has: whoever lost its primary for another reason begins anew, under another number.
//! 3. A node that is to end in good order hands over first, or is taken out of the view (`departure`).
//! 4. A member that was deposed, or let go, has nothing that could be mended: its process begins anew, and
//!    copies.

mod departure;
mod directory;
mod hosts;
mod keeping;
mod primary;
mod recovery;
mod replication;
mod status;

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kelix_fabric::shm::RunDirectory;
use kelix_log::{LogControl, LogState};
use kelix_register::{Durable, Member, Membership, Register, View, ZooKeeperRegister};
use kelix_shard::Durability;
use kelix_shard::replicas::{
    Lease, Look, Looked, Promoted, Renewal, Silence, attach, is_to_ask, look_after, promote, release, void,
};
use kelix_types::{Error, ErrorKind, Result};
use tracing::{debug, error, info, warn};

use crate::agent::AgentHandle;
use crate::authority::Authority;
use crate::current::{Current, Statistics, Stopper};
use crate::listening::Reserved;
use crate::mirror::copies::Copies;
use crate::mirror::{self, FeedFabric, MirrorConfig, ReplicaConfig};
use crate::namespace::{NamespaceConfig, Rights, Who};
use crate::server::{Server, ServerConfig, Token, random_u64};
use crate::shard_thread::ShardHandle;
use crate::store::term_of_clock;
use crate::verbs::VerbsThread;
use departure::{Departure, Next};
use keeping::Keeping;
use recovery::Recovery;

pub use directory::ClusterDirectory;
pub use hosts::{HostsConfig, LEASE_MIN, LEASE_USUAL};
pub(crate) use replication::Replication;
pub(crate) use status::NodeStatus;

/// Between two looks at the view and at the primary.
const ROUND: Duration = Duration::from_millis(5);
/// Between two looks while one primary follows another, for which writes wait.
const ROUND_OF_CHANGE: Duration = Duration::from_millis(1);
/// For how long behind the moment in which another primary was seen.
const CHANGES_WITHIN: Duration = Duration::from_millis(20);
/// What counts of the time between two looks: a node that stood still does not blame the primary.
const ROUND_MAX: Duration = Duration::from_millis(20);
/// Between two tries to follow a primary that cannot be reached.
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// How to be a node of a cluster.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The directory of the cluster on this host.
    pub directory: ClusterDirectory,
    /// What else there is to know where other nodes are on other hosts.
    pub hosts: Option<HostsConfig>,
    /// The name of the node.
    pub node: String,
    /// How it serves while it is primary: namespaces, shards, memory, rights. Directories, addresses and tokens
    /// are the cluster's.
    pub server: ServerConfig,
    /// Over what replicas follow. On one host, unless it is TCP, they map the primary's streams, so that what
    /// stands there need not be sent before it counts. On several hosts, if it is not said, over verbs where
    /// both sides have RDMA, and else over TCP.
    pub fabric: Option<FeedFabric>,
    /// How long a primary may say nothing, whose process has not ended, before another one is chosen.
    pub suspect: Duration,
    /// How many nodes have to be in sync for writes to be accepted. Whoever begins the cluster says so, with 1 in
    /// place of `None`; it is an error if another node says something else.
    pub min_in_sync: Option<usize>,
}

/// What a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeRole {
    /// It takes writes.
    Primary,
    /// It has what the primary has.
    Replica,
}

/// Why a node ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeEnded {
    /// It was asked to.
    Stopped,
    /// It is to begin anew, as another member: another one is primary, or the primary has let it go.
    BeginsAnew,
}

/// A node that runs.
pub struct Node {
    config: NodeConfig,
    status: Arc<NodeStatus>,
    current: Current,
    /// Where it is fed from while it is primary.
    reserved: Reserved,
    /// What the node keeps on its disk.
    copies: Option<Arc<Copies>>,
    role: Mutex<Role>,
    /// It is to end in good order.
    leaves: Arc<AtomicBool>,
    _lock: File,
}

/// Has a node end in good order, from another thread: it hands over if it is primary.
#[derive(Clone)]
pub struct Leaver(Arc<AtomicBool>);

impl Leaver {
    /// Has it end, which takes some moments.
    pub fn leave(&self) {
        self.0.store(true, Ordering::Release);
    }
}

#[derive(Clone)]
enum Role {
    Primary,
    Replica {
        /// Whom it follows.
        primary: u64,
    },
}

/// The name of the token by which nodes know each other, in rights. No token of a file has such a name, which
/// ends there at the first space.
const NODES: &str = "nodes of the cluster";

/// Rights by which the other nodes may read as well: a replica has all namespaces.
fn of_nodes(rights: &Rights) -> Rights {
    let mut rights = rights.clone();
    rights.readers.push(Who::Token(NODES.into()));
    rights
}

fn unavailable(context: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable, "join cluster", context.into())
}

impl NodeConfig {
    /// A handle to the register. One on other hosts may have yet to begin, as after a power failure.
    fn open_register(&self) -> Result<Box<dyn Register>> {
        let Some(hosts) = &self.hosts else { return self.directory.register() };
        let mut said = false;
        loop {
            match ZooKeeperRegister::open(&hosts.zookeeper) {
                Ok(register) => return Ok(Box::new(register)),
                Err(error) if error.retry() => {
                    if !std::mem::replace(&mut said, true) {
                        warn!(%error, "the register does not answer yet; trying on");
                    }
                    std::thread::sleep(BETWEEN_TRIES);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn token(&self) -> Result<String> {
        self.hosts.as_ref().map_or_else(|| self.directory.token(), |hosts| Ok(hosts.token.clone()))
    }

    /// The run directory while it is a replica: on a host of its own that of a primary, too.
    fn replica_run(&self) -> PathBuf {
        if self.hosts.is_some() { self.directory.run() } else { self.directory.node_run(&self.node) }
    }

    /// Whether the process of a member has not ended, as far as can be told.
    fn lives(&self, view: &View, boot: u64) -> bool {
        self.hosts.is_some() || self.directory.lives(view, boot)
    }

    /// What the node's log is good for.
    fn durable(&self) -> Durable {
        match self.server.wal.as_ref().map(|wal| wal.durability) {
            None => Durable::Off,
            Some(Durability::Lazy) => Durable::Lazy,
            Some(Durability::Commit) => Durable::Commit,
        }
    }

    fn lease(&self) -> Option<Duration> {
        self.hosts.as_ref().map(|hosts| hosts.lease)
    }

    fn primary_config(&self, token: &str, address: SocketAddr) -> ServerConfig {
        let others = self.hosts.iter().flat_map(|hosts| hosts.tokens.iter().cloned());
        let namespaces = self.server.namespaces.iter();
        let namespaces = namespaces.map(|of| NamespaceConfig { rights: of_nodes(&of.rights), ..of.clone() });
        ServerConfig {
            directory: self.directory.run(),
            listen: Some(address),
            // On one host there is no lease, and whoever is chosen does not wait for sessions that READ.
            rdma: if self.hosts.is_some() { self.server.rdma.clone() } else { Vec::new() },
            tokens: [Token { name: NODES.into(), word: token.into() }].into_iter().chain(others).collect(),
            rights: of_nodes(&self.server.rights),
            namespaces: namespaces.collect(),
            snapshots: None,
            wal: None,
            mirror: None,
            take_over: false,
            ..self.server.clone()
        }
    }

    fn replica_config(
        &self,
        token: &str,
        primary: &Member,
        (status, copies): (&Arc<NodeStatus>, Option<&Arc<Copies>>),
    ) -> Result<ServerConfig> {
        let serves = self.server.all_namespaces()?;
        let mirror = MirrorConfig {
            primary: primary.address.clone(),
            token: Some(token.into()),
            tls: self.hosts.as_ref().and_then(|hosts| hosts.tls.clone()),
            fabric: if self.hosts.is_some() { self.fabric } else { Some(FeedFabric::Tcp) },
            rdma_address: self.hosts.as_ref().and_then(|hosts| hosts.rdma_address),
            namespaces: serves.iter().map(|of| of.name.clone()).collect(),
            copy_rate: 0,
            max_lag: None,
            name: self.node.clone(),
            memory_bytes: None,
            retry_for: Duration::ZERO,
            replica: Some(ReplicaConfig {
                status: status.clone(),
                // What is kept on a disk is sent, and said to be there.
                run: (self.hosts.is_none() && self.fabric != Some(FeedFabric::Tcp) && copies.is_none())
                    .then(|| self.directory.run()),
                copies: copies.cloned(),
                serves,
            }),
        };
        Ok(ServerConfig {
            directory: self.replica_run(),
            listen: None,
            rdma: Vec::new(),
            tokens: Vec::new(),
            mirror: Some(mirror),
            take_over: true,
            ..self.server.clone()
        })
    }
}

impl Node {
    /// Starts a node, and returns once it is primary or has what the primary has. An error: it cannot be either.
    pub fn start(config: NodeConfig) -> Result<Node> {
        let token = config.token()?;
        let membership = Arc::new(Membership::new(config.open_register()?, random_u64)?);
        let status = NodeStatus::new(&config.node, membership.clone());
        let lock = config.directory.take_node(&config.node, membership.boot)?;
        let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        if !config.server.rdma.is_empty() {
            // What a promotion would fail at.
            VerbsThread::try_addresses(&config.server.rdma)?;
        }
        let reserved = Reserved::bind(config.hosts.as_ref().map_or(usual, |hosts| hosts.listen), None)?;
        let advertised = config.hosts.as_ref().and_then(|hosts| hosts.advertise.clone());
        if let Some(length) = config.lease() {
            hosts::end_earlier(&config.directory.run(), membership.look()?.as_ref(), &config.node, length);
        }
        let own = Member {
            node: config.node.clone(),
            boot: membership.boot,
            pid: std::process::id(),
            address: advertised.unwrap_or_else(|| reserved.address().to_string()),
            offer: None,
        };
        let copies = config.server.snapshots.as_ref().map(|of| Copies::open(&of.directory)).transpose()?;
        let copies = copies.map(Arc::new);
        let mut recovery = Recovery::new(copies.clone());
        let mut said = false;
        let (server, role) = loop {
            let Some(view) = membership.look()? else {
                match begin_cluster(&config, (&token, copies.as_deref()), &status, &own, &reserved)? {
                    Some(server) => break (server, Role::Primary),
                    None => continue,
                }
            };
            check_view(&config, &view)?;
            let have_ended = membership.all_have_ended(&view, |boot| config.lives(&view, boot))?;
            if have_ended && view.durable == Durable::Off {
                let context = "all nodes have ended that had what was written last; `kelix cluster start` begins anew, empty";
                return Err(unavailable(context));
            }
            let primary = view.primary_member().expect("a view names its primary").clone();
            let followed = if have_ended {
                Err(unavailable("all nodes have ended that were in sync").with_retry(true))
            } else {
                follow(&config, (&token, copies.as_ref()), &status, &own, &primary)
            };
            let error = match followed {
                Ok(server) => break (server, Role::Replica { primary: primary.boot }),
                Err(error) if error.retry() => error,
                Err(error) => return Err(error),
            };
            if !std::mem::replace(&mut said, true) {
                warn!(%error, primary = primary.node, "the primary cannot be followed yet; trying on");
            }
            if let Some(server) =
                recovery.look((&config, &token), (&status, &own), &reserved, (&view, have_ended))?
            {
                break (server, Role::Primary);
            }
            std::thread::sleep(BETWEEN_TRIES);
        };
        let (current, role) = (server.current.clone(), Mutex::new(role));
        let leaves = Arc::default();
        let node = Node { config, status, current, reserved, copies, role, leaves, _lock: lock };
        info!(node = node.config.node, role = ?node.role(), "node started");
        Ok(node)
    }

    fn membership(&self) -> &Arc<Membership> {
        &self.status.membership
    }

    /// The role of the node now.
    pub fn role(&self) -> NodeRole {
        match *self.role.lock().expect("no panic under this lock") {
            Role::Primary => NodeRole::Primary,
            Role::Replica { .. } => NodeRole::Replica,
        }
    }

    /// What tells how it is doing.
    pub fn statistics(&self) -> Statistics {
        Statistics { current: self.current.clone() }
    }

    /// A handle that has it end in good order.
    pub fn leaver(&self) -> Leaver {
        Leaver(self.leaves.clone())
    }

    /// A handle that stops it from another thread at once, as if it had died.
    pub fn stopper(&self) -> Stopper {
        Stopper { current: self.current.clone() }
    }

    /// Does what a node does, until it ends. `promoted` is called when it has become primary. An error: it
    /// cannot go on.
    pub fn run(&self, mut promoted: impl FnMut()) -> Result<NodeEnded> {
        let (mut silence, mut looked, mut said) = (Silence::default(), Instant::now(), false);
        let mut asked_ns = None;
        let (mut departure, mut keeping) = (Departure::default(), Keeping::default());
        let (mut round, mut primary_seen) = (ROUND, (0, Instant::now()));
        loop {
            std::thread::sleep(std::mem::replace(&mut round, ROUND));
            if self.current.ends() {
                return Ok(NodeEnded::Stopped);
            }
            let passed = std::mem::replace(&mut looked, Instant::now()).elapsed();
            let view = match self.look(&mut asked_ns) {
                Ok(view) => view,
                Err(error) if error.kind() == ErrorKind::Superseded => {
                    self.stopper().stop();
                    return Err(error);
                }
                Err(error) => {
                    if !std::mem::replace(&mut said, true) {
                        error!(%error, "the register of the cluster cannot be read");
                    }
                    departure.note_told(self);
                    if departure.is_late() {
                        return Ok(NodeEnded::Stopped);
                    }
                    continue;
                }
            };
            said = false;
            let Some(view) = view else { continue };
            if primary_seen.0 != view.primary {
                primary_seen = (view.primary, Instant::now());
            }
            if view.successor.is_some() || primary_seen.1.elapsed() < CHANGES_WITHIN {
                round = ROUND_OF_CHANGE;
            }
            if let Some(copies) = &self.copies {
                let is_in_sync = view.is_in_sync(self.membership().boot);
                keeping.look(copies, &self.current.get().shared, is_in_sync);
            }
            let role = self.role.lock().expect("no panic under this lock").clone();
            let departs = match role {
                _ if view.primary == self.membership().boot => departure.of_primary(self, &view),
                Role::Primary => Ok(Next::Stays),
                Role::Replica { .. } => departure.of_replica(self, &view),
            };
            match departs {
                Ok(Next::Ends) => return Ok(NodeEnded::Stopped),
                Ok(Next::Stays) => {}
                Err(error) if departure.is_late() => return Err(error),
                Err(error) => debug!(%error, "the view cannot be changed yet"),
            }
            let begins_anew = match role {
                Role::Primary => self.is_deposed(&view),
                Role::Replica { primary } => {
                    let times_ns = (passed.as_nanos() as u64, ROUND_MAX.as_nanos() as u64);
                    silence.note((view.primary, self.heard()), times_ns);
                    match self.watch(&view, primary, silence.time_ns())? {
                        Watched::Promoted => {
                            promoted();
                            false
                        }
                        Watched::Lost => true,
                        Watched::Well => false,
                    }
                }
            };
            if begins_anew {
                // On one host whoever is chosen voids what clients still read.
                if self.config.hosts.is_some() {
                    self.release();
                }
                self.stopper().stop();
                let leaves = departure.note_told(self) || view.leaving.contains(&self.membership().boot);
                return Ok(if leaves { NodeEnded::Stopped } else { NodeEnded::BeginsAnew });
            }
        }
    }

    /// The newest view. On several hosts that of a moment ago, between two questions, each of which renews the
    /// lease of a primary.
    fn look(&self, asked_ns: &mut Option<u64>) -> Result<Option<View>> {
        let Some(length) = self.config.lease() else { return self.membership().look() };
        let length_ns = length.as_nanos() as u64;
        let known = self.membership().view();
        let is_early =
            |at_ns| !is_to_ask((known.as_ref(), self.membership().boot), hosts::now_ns() - at_ns, length_ns);
        let shared = self.current.get().shared;
        let control = shared.replication.as_ref().map(|of| &of.replicas.control);
        if asked_ns.is_some_and(is_early) && !control.is_some_and(LogControl::wants_question) {
            return Ok(known);
        }
        *asked_ns = Some(hosts::now_ns());
        let Some(control) = control else { return self.membership().look() };
        let (view, renewed) = Lease::renew((self.membership(), control), length_ns, hosts::now_ns)?;
        if let Some(Renewal { lease, is_awaited }) = renewed {
            let was_over = !shared.authority.counts();
            shared.authority.lease(lease);
            if was_over {
                info!(node = self.config.node, "the register answers: what waited for that is answered");
                shared.replication.iter().for_each(|of| of.replicas.look_again(&*shared));
            }
            if was_over || is_awaited {
                shared.shards().for_each(ShardHandle::wake);
            }
        }
        Ok(view)
    }

    /// Says that nothing counts any more that this node has ever done as primary, so that its successor need not
    /// wait.
    fn release(&self) {
        let run = RunDirectory(self.config.directory.run());
        let shared = self.current.get().shared;
        let void = || {
            Authority::void(&run)?;
            match shared.agent.get().is_none_or(AgentHandle::close_verbs) {
                true => Ok(()),
                false => Err(unavailable("it is not known whether somebody still reads over verbs")),
            }
        };
        if let Err(error) = release(self.membership(), void) {
            debug!(%error, "the next primary waits until the lease of this one is over");
        }
    }

    fn is_deposed(&self, view: &View) -> bool {
        let shared = self.current.get().shared;
        if let Some(replication) = &shared.replication {
            let lives = |boot| self.config.lives(view, boot);
            let patience_ns = self.config.suspect.as_nanos() as u64;
            replication.replicas.drop_absent(&*shared, patience_ns, lives);
            replication.replicas.let_go(&*shared, view);
        }
        if view.primary != self.membership().boot || !shared.authority.in_force() {
            let primary = view.primary_member().map(|member| &member.node);
            info!(node = self.config.node, ?primary, "another node is primary, and this one not any more");
            return true;
        }
        false
    }

    /// Whether its disk takes what is written, if it keeps a log.
    fn takes_writes(&self) -> bool {
        self.current.get().shared.wal.as_ref().is_none_or(|wal| wal.state() == LogState::Writes)
    }

    /// How often a replica has heard of its primary.
    fn heard(&self) -> u64 {
        let namespaces = &self.current.get().shared.namespaces;
        namespaces.iter().map(|of| mirror::standing(of).heard()).sum()
    }

    /// Looks after the primary, which has said nothing for some time.
    fn watch(&self, view: &View, followed: u64, silent_ns: u64) -> Result<Watched> {
        let shared = self.current.get().shared;
        let look = Look {
            followed,
            is_lost: shared.namespaces.iter().any(|of| mirror::standing(of).is_lost()),
            silent_ns,
            suspect_ns: self.config.suspect.as_nanos() as u64,
            wait_ns: self.config.lease().map_or(0, |lease| 2 * lease.as_nanos() as u64),
            has_log_failed: shared.wal.as_ref().is_some_and(|wal| wal.state() == LogState::Failed),
        };
        let lives = |boot| self.config.lives(view, boot);
        match look_after((self.membership(), view), look, lives, || self.follow_chosen(view))? {
            Looked::Well => Ok(Watched::Well),
            Looked::Lost => {
                if look.has_log_failed {
                    error!(node = self.config.node, "the log of this replica has failed");
                }
                Ok(Watched::Lost)
            }
            Looked::Promote(why) => match self.promote(view, why) {
                Err(error) if error.kind() == ErrorKind::Superseded => {
                    warn!(node = self.config.node, %error, "this node begins anew");
                    Ok(Watched::Lost)
                }
                promoted => promoted,
            },
        }
    }

    /// Follows another primary that was chosen, with what there is here. Whether that has begun.
    fn follow_chosen(&self, view: &View) -> Result<bool> {
        let namespaces = &self.current.get().shared.namespaces;
        let attached = || namespaces.iter().filter(|of| !mirror::standing(of).is_detached());
        if attached().next().is_some() {
            attached().for_each(|of| {
                mirror::standing(of).detach("another node was chosen to be primary");
                of.shards[0].wake();
            });
            return Ok(false);
        }
        let Some(primary) = view.primary_member() else { return Ok(false) };
        let token = self.config.token()?;
        let config = self.config.replica_config(&token, primary, (&self.status, self.copies.as_ref()))?;
        let Some(config) = config.mirror else { return Ok(false) };
        match mirror::follow_chosen(&config, namespaces) {
            Ok(()) => {
                info!(node = self.config.node, primary = primary.node, "the chosen primary is followed");
                let followed = Role::Replica { primary: primary.boot };
                *self.role.lock().expect("no panic under this lock") = followed;
                Ok(true)
            }
            // Once it is taken out of the view, it begins anew.
            Err(error) => {
                debug!(%error, "the chosen primary cannot be followed yet");
                Ok(false)
            }
        }
    }

    /// Goes on in the place of the primary, if nobody else does. An error ([`ErrorKind::Superseded`]):
    /// somebody does, with what this one may not have.
    fn promote(&self, seen: &View, why: &str) -> Result<Watched> {
        let began = Instant::now();
        let shared = self.current.get().shared;
        let namespaces = shared.namespaces.clone();
        if !namespaces.iter().all(|of| mirror::is_good(of)) {
            error!("the primary is lost, and what this replica has is of no use");
            return Ok(Watched::Lost);
        }
        let old = seen.primary_member().map_or("", |member| &member.node);
        let node = &self.config.node;
        let term = Authority::term_word(&RunDirectory(self.config.directory.run()));
        let before = term.as_ref().map_or(0, |term| term.words().load_acquire(0));
        let void = |view: &View| {
            info!(node, old, why, term = view.term, "this node was chosen to be primary");
            match self.config.lease() {
                Some(length) => {
                    let ends = || self.current.ends();
                    hosts::outwait(self.membership(), (seen.primary, length), ends).map(|()| None)
                }
                None => {
                    let pause = || std::thread::sleep(BETWEEN_TRIES);
                    void(self.membership(), &term?, before, pause).map(Some)
                }
            }
        };
        let take_up = |view: &View, voided: Option<u64>| {
            let chosen = began.elapsed();
            let attached = mirror::take_up(&namespaces, true)
                .ok_or_else(|| unavailable("what this replica has cannot be gone on with"))?;
            let kept = keeping::hand_on(&shared, &attached, &self.config.server)?;
            Ok((view.clone(), (attached, voided), kept, chosen))
        };
        let promoted = promote(self.membership(), (seen, term_of_clock()), void, take_up)?;
        let (view, of_replica, kept, chosen) = match promoted {
            Promoted::Yes(promoted) => promoted,
            Promoted::No => return Ok(Watched::Well),
            Promoted::NotYet(error) => {
                debug!(node, %error, "this node cannot be chosen yet");
                return Ok(Watched::Well);
            }
        };
        let config = self.config.primary_config(&self.config.token()?, self.reserved.address());
        let lease = self.config.lease().map(|length| hosts::lease_of_primary(self.membership(), length));
        let reserved = self.reserved.try_clone()?;
        let prepared =
            primary::prepare(&config, &self.status, (&view, lease), reserved, (Some(of_replica), kept))?;
        let Some(replica) = self.current.succeed(|| prepared.take_over())? else { return Ok(Watched::Well) };
        *self.role.lock().expect("no panic under this lock") = Role::Primary;
        self.status.note_promotion();
        let (chosen_ms, ms) = (chosen.as_millis() as u64, began.elapsed().as_millis() as u64);
        info!(node, old, chosen_ms, ms, "this node is primary, and serves");
        replica.stop(|| {});
        Ok(Watched::Promoted)
    }
}

/// What became of watching the primary.
enum Watched {
    /// It is there, as far as can be told.
    Well,
    /// This one is primary.
    Promoted,
    /// This one is of no use as it is.
    Lost,
}

/// Begins a cluster that has no view, as its primary. `None`: another node was quicker.
fn begin_cluster(
    config: &NodeConfig,
    (token, copies): (&str, Option<&Copies>),
    status: &Arc<NodeStatus>,
    own: &Member,
    reserved: &Reserved,
) -> Result<Option<Server>> {
    let view = View {
        min_in_sync: config.min_in_sync.unwrap_or(1),
        durable: config.durable(),
        ..View::first(random_u64()?, term_of_clock(), own.clone())
    };
    let server = config.primary_config(token, reserved.address());
    let configured = server.all_namespaces()?;
    if let Some(left) = copies.map(Copies::survey).transpose()?.and_then(|found| found.into_iter().next()) {
        let context = format!(
            "the register has no cluster, and {} has the log of one: give --wal a directory of its own, or \
             `kelix serve --wal {0}` what is there",
            left.path.display()
        );
        return Err(Error::new(ErrorKind::InvalidArgument, "join cluster", context));
    }
    // Only one node at a time opens the socket of a term in the run directory that all share: the one that is
    // in the view.
    let lease = config.lease().map(|length| Lease::begin(length.as_nanos() as u64, hosts::now_ns()));
    let (has_begun, _) = status.membership.change(|there| there.is_none().then(|| view.clone()))?;
    if !has_begun {
        return Ok(None);
    }
    let kept = copies.map(|copies| keeping::begin(copies, (config, status), &configured)).transpose()?;
    let begun = primary::prepare(&server, status, (&view, lease), reserved.try_clone()?, (None, kept))?;
    begun.serve().map(Some)
}

/// An error if a node is configured for another cluster than there is.
fn check_view(config: &NodeConfig, view: &View) -> Result<()> {
    if config.durable() != view.durable {
        let context = format!(
            "this node is configured with --durable {}, and the cluster was begun with {}: all nodes say the same",
            config.durable().name(),
            view.durable.name()
        );
        return Err(Error::new(ErrorKind::InvalidArgument, "join cluster", context));
    }
    match config.min_in_sync {
        Some(min) if min != view.min_in_sync => {
            let context = format!(
                "{min} nodes are to be in sync for writes, and the cluster was begun with {}; say the same, or nothing",
                view.min_in_sync
            );
            Err(Error::new(ErrorKind::InvalidArgument, "join cluster", context))
        }
        _ => Ok(()),
    }
}

/// Copies what the primary has, and follows it.
fn follow(
    config: &NodeConfig,
    (token, copies): (&str, Option<&Arc<Copies>>),
    status: &Arc<NodeStatus>,
    own: &Member,
    primary: &Member,
) -> Result<Server> {
    let config = config.replica_config(token, primary, (status, copies))?;
    attach(&status.membership, own, || Server::prepare(&config))?.serve()
}
