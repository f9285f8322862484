//! Starting and stopping a server.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use kelix_fabric::shm::RunDirectory;
use kelix_fabric::tcp::ServerTls;
use kelix_log::LogControl;
use kelix_shard::ShardConfig;
use kelix_snapshot::{Snapshot, Which};
use kelix_types::limits::{EPOCH_NS, EPOCH_NS_MIN, VIEW_LEASE_NS};
use kelix_types::{Error, ErrorKind, Result};
use tracing::{info, warn};

use kelix_wire::control::DENIED;

use crate::agent::AgentHandle;
use crate::authority::Authority;
use crate::clients::{ClientRecord, Counters};
use crate::cluster::{NodeStatus, Replication};
use crate::cores;
use crate::current::{Current, Serving, Statistics, Stopper};
use crate::feed::Feeds;
use crate::handover::{self, Handover};
use crate::listening::Reserved;
use crate::memory::memory_limit;
use crate::mirror::copies::{Copies, disown};
use crate::mirror::{self, MirrorConfig};
use crate::namespace::{DEFAULT, Namespace, NamespaceConfig, Numbers, Rights, Visitor};
use crate::reception::{Reception, Watched};
use crate::shard_thread::{Command, News, Origin, ShardHandle};
use crate::snapshots::{self, Asked, BeginError, SnapshotConfig, Snapshots, Taken};
use crate::store::{StoreDirectory, term_of_clock};
use crate::verbs::VerbsThread;
use crate::wal::{self, LogFiles, Replayed, ShardsLog, Wal, WalConfig};

/// Mirrors that may follow at once, unless a configuration says otherwise.
const MIRRORS: usize = 8;

/// How to serve.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The run directory.
    pub directory: PathBuf,
    /// Number of shards of the default namespace.
    pub shards: usize,
    /// Most memory of all these shards together, in bytes.
    pub memory_bytes: u64,
    /// Let items go there when memory is used up, rather than refuse writes.
    pub cache: bool,
    /// Who may read and write there.
    pub rights: Rights,
    /// The other namespaces.
    pub namespaces: Vec<NamespaceConfig>,
    /// How long a read view of loaded tables may go without a sign of life.
    pub view_lease: Duration,
    /// Pin each shard thread to a core of its own.
    pub pin: bool,
    /// Supersede a server that holds the directory.
    pub take_over: bool,
    /// Also take clients over TCP, at this address. Port 0: any that is free.
    pub listen: Option<SocketAddr>,
    /// Clients that come over TCP may then READ and WRITE over verbs, by queue pairs that they connect to one
    /// of these addresses of RDMA devices. An address that is unspecified (`0.0.0.0`) is any of the host's;
    /// port 0 is that of `listen`.
    pub rdma: Vec<SocketAddr>,
    /// Clients over TCP must speak TLS.
    pub tls: Option<ServerTls>,
    /// Clients over TCP must know the word of one of these, if there are any.
    pub tokens: Vec<Token>,
    /// Snapshots that it begins with and takes.
    pub snapshots: Option<SnapshotConfig>,
    /// Log all changes, in the directory of the snapshots.
    pub wal: Option<WalConfig>,
    /// Show the memory of another server, rather than have any of its own.
    pub mirror: Option<MirrorConfig>,
    /// Mirrors that may follow at once.
    pub mirrors: usize,
}

impl ServerConfig {
    /// Where clients over verbs are taken, beside an address for TCP, whose port those without one have.
    pub(crate) fn rdma_beside(&self, tcp: Option<SocketAddr>) -> Vec<SocketAddr> {
        let port = tcp.map_or(0, |address| address.port());
        let beside = |address: &SocketAddr| match address.port() {
            0 => SocketAddr::new(address.ip(), port),
            _ => *address,
        };
        self.rdma.iter().map(beside).collect()
    }

    /// The default namespace and the others. An error: they cannot be served. Said before the directory is
    /// taken, so that a mistake ends no running server.
    pub(crate) fn all_namespaces(&self) -> Result<Vec<NamespaceConfig>> {
        let default = NamespaceConfig {
            name: DEFAULT.into(),
            shards: self.shards,
            memory_bytes: self.memory_bytes,
            cache: self.cache,
            rights: self.rights.clone(),
        };
        let namespaces: Vec<NamespaceConfig> =
            [default].into_iter().chain(self.namespaces.iter().cloned()).collect();
        for (index, namespace) in namespaces.iter().enumerate() {
            namespace.check()?;
            if namespaces[..index].iter().any(|other| other.name == namespace.name) {
                let context = format!("there are two namespaces \"{}\"", namespace.name);
                return Err(Error::new(ErrorKind::InvalidArgument, "serve", context));
            }
        }
        Ok(namespaces)
    }
}

/// A word that those know who may connect over TCP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    /// How rights name it; it may be empty.
    pub name: String,
    /// The word.
    pub word: String,
}

impl Default for ServerConfig {
    /// The default directory, one shard, half of the memory that it may have, pinned where there are cores to
    /// spare.
    fn default() -> Self {
        ServerConfig {
            directory: RunDirectory::default_path(),
            shards: 1,
            memory_bytes: memory_limit().unwrap_or(1 << 30) / 2,
            cache: false,
            rights: Rights::default(),
            namespaces: Vec::new(),
            view_lease: Duration::from_nanos(VIEW_LEASE_NS),
            pin: true,
            take_over: false,
            listen: None,
            rdma: Vec::new(),
            tls: None,
            tokens: Vec::new(),
            snapshots: None,
            wal: None,
            mirror: None,
            mirrors: MIRRORS,
        }
    }
}

/// Why a server ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// It was asked to.
    Stopped,
    /// It was asked to, and could not take its last snapshot.
    NotKept,
    /// Another server has taken over the directory.
    Superseded,
}

/// What all threads of a server share.
pub(crate) struct Shared {
    pub authority: Arc<Authority>,
    /// The default one first.
    pub namespaces: Vec<Arc<Namespace>>,
    pub clients: Mutex<Vec<ClientRecord>>,
    /// Clients in shared memory that have nothing to say.
    pub watched: OnceLock<Watched>,
    /// What clients that have gone told of themselves, by namespace and fabric.
    pub gone: Mutex<BTreeMap<(String, &'static str), Counters>>,
    /// The number of the next connection, whichever way it comes.
    pub next_connection: AtomicU64,
    /// The agent, and where it listens.
    pub agent: OnceLock<AgentHandle>,
    pub tcp: Option<SocketAddr>,
    /// Where it takes clients over verbs.
    pub rdma: Vec<SocketAddr>,
    /// Who takes snapshots, and the directory that they are in.
    pub snapshots: Option<Snapshots>,
    pub store: Option<Arc<StoreDirectory>>,
    /// Who writes the log.
    pub wal: Option<Arc<Wal>>,
    /// Of the primary of a cluster: its replicas.
    pub replication: Option<Replication>,
    /// Of a node of a cluster.
    pub node: Option<Arc<NodeStatus>>,
    /// Whoever has this server stand still for its successor.
    pub stands_still: Mutex<()>,
    /// The process of the last successor that this server stood still for; 0: none, or it cannot be seen.
    pub successor: AtomicU32,
    /// Numbers of batches, for all who gather records; and those who do so for mirrors.
    pub batches: LogControl,
    pub feeds: Feeds,
    /// Whether the last one was taken, once the server ends.
    pub kept: OnceLock<bool>,
    pub started: Instant,
}

impl Shared {
    /// Of a server that has its namespaces and no more.
    pub fn of_namespaces(
        authority: Arc<Authority>,
        namespaces: Vec<Arc<Namespace>>,
        (tcp, mirrors): (Option<SocketAddr>, usize),
        batches: LogControl,
    ) -> Shared {
        Shared {
            authority,
            namespaces,
            clients: Mutex::new(Vec::new()),
            watched: OnceLock::new(),
            gone: Mutex::default(),
            next_connection: AtomicU64::new(1),
            agent: OnceLock::new(),
            tcp,
            rdma: Vec::new(),
            snapshots: None,
            store: None,
            wal: None,
            replication: None,
            node: None,
            stands_still: Mutex::default(),
            successor: AtomicU32::new(0),
            batches,
            feeds: Feeds::new(mirrors),
            kept: OnceLock::new(),
            started: Instant::now(),
        }
    }

    /// All shards of all namespaces, in the agent's order.
    pub fn shards(&self) -> impl Iterator<Item = &ShardHandle> {
        self.namespaces.iter().flat_map(|namespace| &namespace.shards)
    }

    /// A shard, in the agent's order.
    pub fn shard(&self, index: usize) -> &ShardHandle {
        self.shards().nth(index).expect("a shard of this server")
    }

    pub fn ended(&self) -> Ended {
        match self.kept.get() {
            _ if !self.authority.in_force() => Ended::Superseded,
            Some(false) => Ended::NotKept,
            _ => Ended::Stopped,
        }
    }

    /// Takes a snapshot, and waits for it.
    pub fn snapshot(&self) -> Result<Taken> {
        let none = || {
            let context = "the server takes no snapshots; it has to be started with --snapshots DIRECTORY";
            Error::new(ErrorKind::InvalidArgument, "snapshot", context)
        };
        self.snapshots.as_ref().ok_or_else(none)?.take(false)
    }

    /// An error if nobody may begin to read or write here, since the lease is over. Where a server of the
    /// same directory has taken over, sessions find that themselves, and go over.
    pub fn check_lease(&self) -> Result<()> {
        if self.authority.counts() || !self.authority.in_force() {
            return Ok(());
        }
        let context = "this node has not heard for too long that it is primary; another one may be";
        Err(Error::new(ErrorKind::Unavailable, "accept client", context))
    }

    /// The namespace that a client wants, and whether it may write there. An error if it may not even read,
    /// or there is none: which of both is not for it to know.
    pub fn visit(&self, wanted: &str, visitor: &Visitor<'_>) -> Result<(Arc<Namespace>, bool)> {
        let wanted = if wanted.is_empty() { DEFAULT } else { wanted };
        let found = self.namespaces.iter().find(|namespace| namespace.name == wanted);
        let access = found.and_then(|namespace| Some((namespace.clone(), namespace.access(visitor)?)));
        access.ok_or_else(|| {
            let context = format!("{DENIED} read namespace \"{wanted}\", or there is none");
            Error::new(ErrorKind::Denied, "accept client", context)
        })
    }
}

/// A running server.
pub struct Server {
    pub(crate) current: Current,
}

pub(crate) fn random_u64() -> Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|source| Error::system("serve", "no random numbers to be had", source))?;
    Ok(u64::from_le_bytes(bytes))
}

/// What namespaces begin with.
#[derive(Clone, Copy)]
pub(crate) struct Beginning<'a> {
    pub snapshot: Option<&'a Snapshot>,
    /// What was replayed of the log, on top of the snapshot, in whose place it is; or what a replica has.
    pub replayed: Option<&'a Mutex<Replayed>>,
    /// The log that they write.
    pub log: Option<&'a ShardsLog>,
    /// Numbers of batches of records.
    pub batches: &'a LogControl,
    /// The lives of the namespaces that go on.
    pub lives: &'a [u64],
}

impl Beginning<'_> {
    /// The seed of a namespace's hashes.
    fn seed(&self, name: &str) -> Result<u64> {
        if let Some(replayed) = self.replayed {
            let seed = replayed.lock().expect("no panic under this lock").layout.seed(name);
            return seed.map_or_else(random_u64, Ok);
        }
        let known = self.snapshot.and_then(|snapshot| snapshot.description().namespace(name));
        known.map_or_else(random_u64, |(_, of)| Ok(of.hash_seed))
    }

    /// What a shard of a namespace begins with.
    fn origin(&self, name: &str, shard: usize) -> Origin<'_> {
        if let Some(replayed) = self.replayed {
            let mut replayed = replayed.lock().expect("no panic under this lock");
            let index = replayed.layout.index(name, shard);
            let shadow = index.and_then(|index| replayed.shards[index].take());
            return shadow.map_or(Origin::Empty, Origin::Log);
        }
        let known =
            self.snapshot.and_then(|snapshot| Some((snapshot, snapshot.description().namespace(name)?)));
        known.map_or(Origin::Empty, |(snapshot, (namespace, _))| {
            Origin::Snapshot(snapshot, Which { namespace, shard: shard as u16 })
        })
    }
}

/// Begins to serve namespaces, with what there is of them. Also returns the flag that ends their shards.
pub(crate) fn begin(
    config: &ServerConfig,
    namespaces: &[&NamespaceConfig],
    beginning: Beginning<'_>,
    (authority, incarnation_term): (&Arc<Authority>, u64),
    news: &Sender<News>,
) -> Result<(Vec<Arc<Namespace>>, Arc<AtomicBool>)> {
    let stop = Arc::new(AtomicBool::new(false));
    let shards: usize = namespaces.iter().map(|namespace| namespace.shards).sum();
    let cores = if config.pin { cores::of_shards(shards) } else { Vec::new() };
    let lease_ns = u64::try_from(config.view_lease.as_nanos()).unwrap_or(u64::MAX);
    // Over verbs readers tell by their clocks whether an epoch passed, and over TCP a READ takes its time.
    // Who maps the memory sees the epoch itself, at once.
    let epoch_ns = if config.listen.is_none() { EPOCH_NS_MIN } else { EPOCH_NS };
    let mut served = Vec::new();
    let mut first = 0;
    for (namespace, config_of) in namespaces.iter().enumerate() {
        let start = |shard: ShardConfig| {
            let core = cores.get(first + shard.number).copied();
            let (news, log) = ((news.clone(), namespace), (beginning.log, beginning.batches));
            let origin = beginning.origin(&config_of.name, shard.number);
            ShardHandle::start(shard, origin, authority.clone(), stop.clone(), news, log, core)
        };
        let numbers = Numbers {
            term: authority.term,
            life: beginning.lives.get(namespace).map_or_else(random_u64, |life| Ok(*life))?,
            hash_seed: beginning.seed(&config_of.name)?,
            incarnation_term,
            first_in_agent: first,
            view_lease_ns: lease_ns,
            epoch_ns,
        };
        let begins_empty = beginning.snapshot.is_none() && beginning.replayed.is_none();
        served.push(Arc::new(Namespace::start(config_of, numbers, begins_empty, random_u64, start)?));
        first += config_of.shards;
    }
    Ok((served, stop))
}

impl Server {
    /// Starts a server and returns once clients can connect.
    pub fn start(config: &ServerConfig) -> Result<Server> {
        Server::prepare(config)?.serve()
    }

    /// Does everything that the start of a server may fail at: takes ports, reads a snapshot, takes memory,
    /// starts threads. A server that has the directory goes on meanwhile, and if this fails.
    pub fn prepare(config: &ServerConfig) -> Result<Prepared> {
        if config.mirror.is_some() {
            return mirror::prepare(config);
        }
        let namespaces = config.all_namespaces()?;
        let namespaces: Vec<&NamespaceConfig> = namespaces.iter().collect();
        check_access(config)?;
        let shapes: Vec<(&str, usize)> =
            namespaces.iter().map(|namespace| (&namespace.name[..], namespace.shards)).collect();
        let mut authority = Authority::prepare(RunDirectory(config.directory.clone()), config.take_over)?;
        let succession = handover::succession(config, &namespaces, &mut authority)?;
        let is_handed_over = succession.is_some();
        let authority = Arc::new(authority);
        let supersedes = authority.supersedes();
        let store = match &config.snapshots {
            Some(snapshots) => {
                Some(StoreDirectory::prepare(&snapshots.directory, &authority, random_u64()?)?)
            }
            None => None,
        };
        let holder = authority.superseded();
        let reserved = config.listen.map(|address| Reserved::share(address, holder.as_ref())).transpose()?;
        let tcp = reserved.as_ref().map(Reserved::address);
        let rdma = config.rdma_beside(tcp);
        let seen = config.snapshots.as_ref().map(snapshots::newest).transpose()?.flatten();
        let mut kept = match (&config.snapshots, &store) {
            (Some(snapshots), Some(store)) if !is_handed_over => {
                snapshots::readable(snapshots, store, &shapes, supersedes)?
            }
            _ => Vec::new(),
        };
        if let Some(until) = config.wal.as_ref().and_then(|wal| wal.until) {
            kept.retain(|base| base.description().made() <= until);
        }
        if let (true, Some(newest)) = (supersedes, kept.first()) {
            handover::check_room(newest.bytes())?;
        }
        let (news, received) = channel();
        let incarnation_term = store.as_ref().map_or_else(term_of_clock, StoreDirectory::term);
        let log = match (&config.wal, &store) {
            (Some(wal), Some(store)) => Some(LogFiles::open(wal, store)?),
            (None, Some(store)) => {
                wal::refuse_log(store)?;
                None
            }
            _ => None,
        };
        let batches = log.as_ref().map_or_else(LogControl::new, |log| log.shards.control.clone());
        let listener = authority.listen()?;
        authority.note_address(tcp)?;
        if let Some(store) = &store {
            store.write(&config.directory)?;
        }
        // From here on nobody is served until this server is in force, or turns out not to be.
        let handed = succession.map(|succession| succession.stand_still(&namespaces)).transpose()?;
        let (handed, lives, handover) = handed.map_or_else(Default::default, |handed| {
            (Some(handed.replayed), handed.lives, Some(handed.handover))
        });
        let handed = Mutex::new(handed);
        let begin = |restored: Option<&Snapshot>| -> std::result::Result<_, BeginError> {
            let replayed = log.as_ref().map(|log| log.replay(restored, &shapes, &random_u64));
            let handed = handed.lock().expect("no panic under this lock").take();
            let replayed = replayed.transpose()?.or(handed).map(Mutex::new);
            let log = log.as_ref().map(|log| &log.shards);
            let beginning = Beginning {
                snapshot: restored,
                replayed: replayed.as_ref(),
                log,
                batches: &batches,
                lives: &lives,
            };
            let served = begin(config, &namespaces, beginning, (&authority, incarnation_term), &news)?;
            let replayed = replayed.map(|replayed| replayed.into_inner().expect("no panic under this lock"));
            Ok((served, replayed))
        };
        let (((served, stop), replayed), begun) = snapshots::begin_with(kept, begin)?;
        store.as_ref().map_or(Ok(()), |store| disown(store.path()))?;
        let until = config.wal.as_ref().is_some_and(|wal| wal.until.is_some());
        // Of the past there is nothing to be kept that is not there.
        let takes = config.snapshots.as_ref().filter(|_| !until);
        let snapshots = takes.map(|config| Snapshots::new(config, begun));
        let (snapshots, asked) = snapshots.unzip();
        let base_bytes = begun.map_or(0, |(_, bytes)| bytes);
        let (wal, log_thread) = match (log, replayed) {
            (Some(log), Some(replayed)) => {
                let (wal, thread) = log.go_on(replayed, &served, (random_u64()?, base_bytes))?;
                (Some(Arc::new(wal)), thread)
            }
            _ => (None, None),
        };
        let shared = Shared::of_namespaces(authority, served, (tcp, config.mirrors), batches);
        let shared = Arc::new(Shared { rdma, snapshots, store: store.map(Arc::new), wal, ..shared });
        let serving = Serving { shared, stop };
        let server = Server { current: Current::new(serving.clone()) };
        let prepared =
            Prepared { server, serving, config: config.clone(), reserved, seen, copies: None, handover };
        if let (Some(wal), Some((writer, ends))) = (&prepared.serving.shared.wal, log_thread) {
            wal.start(&prepared.serving.shared, writer, ends)?;
        }
        prepared.start_threads((listener, asked), received)?;
        Ok(prepared)
    }

    /// Takes a snapshot, and waits for it.
    pub fn snapshot(&self) -> Result<Taken> {
        self.current.get().shared.snapshot()
    }

    /// What tells how it is doing.
    pub fn statistics(&self) -> Statistics {
        Statistics { current: self.current.clone() }
    }

    /// Where it takes clients over TCP, if it does.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.current.get().shared.tcp
    }

    /// Where it takes clients over verbs, if it does.
    pub fn rdma_addresses(&self) -> Vec<SocketAddr> {
        self.current.get().shared.rdma.clone()
    }

    /// The term this server serves in.
    pub fn term(&self) -> u64 {
        self.current.get().shared.authority.term
    }

    /// The process to which this server has handed over what it had, once it is superseded.
    pub fn successor(&self) -> Option<u32> {
        let Serving { shared, .. } = self.current.get();
        let pid = shared.successor.load(Ordering::SeqCst);
        (pid != 0 && shared.ended() == Ended::Superseded).then_some(pid)
    }

    /// Waits until the server is superseded or `stop` was called on another thread's clone of the flag.
    pub fn wait(&self) -> Ended {
        // A shard that sleeps does not notice its successor, so this looks for one too.
        loop {
            let Serving { shared, .. } = self.current.get();
            let is_over = || !shared.authority.in_force() || shared.shards().any(ShardHandle::has_ended);
            // It may be the next one of this process that has superseded it.
            if is_over() && self.term() == shared.authority.term {
                return shared.ended();
            }
            shared.authority.rest(Duration::from_millis(200));
            shared.authority.notice_replacement();
        }
    }

    /// A handle that stops the server from another thread or a signal's thread.
    pub fn stopper(&self) -> Stopper {
        Stopper { current: self.current.clone() }
    }

    /// Stops the server in good order, as [`Stopper::stop`] does.
    pub fn stop(self) -> Ended {
        self.stopper().stop();
        self.current.get().shared.ended()
    }
}

/// A server that is ready to take possession of its directory, and has not yet.
pub struct Prepared {
    server: Server,
    serving: Serving,
    config: ServerConfig,
    reserved: Option<Reserved>,
    /// The newest snapshot there was.
    seen: Option<PathBuf>,
    /// Of a mirror: what it keeps on its disk.
    copies: Option<Arc<Copies>>,
    /// The server before stands still for this one.
    handover: Option<Handover>,
}

impl Prepared {
    /// A server whose threads wait for it to be in force.
    pub(crate) fn of_serving(
        serving: Serving,
        config: &ServerConfig,
        (listener, asked, reserved): (UnixListener, Option<Asked>, Option<Reserved>),
        news: Receiver<News>,
    ) -> Result<Prepared> {
        let server = Server { current: Current::new(serving.clone()) };
        let config = config.clone();
        let prepared =
            Prepared { server, serving, config, reserved, seen: None, copies: None, handover: None };
        prepared.start_threads((listener, asked), news)?;
        Ok(prepared)
    }

    /// Also keeps copies on the disk.
    pub(crate) fn with_copies(mut self, copies: Option<Arc<Copies>>) -> Prepared {
        self.copies = copies;
        self
    }

    /// Takes possession in the place of another one of this process.
    pub(crate) fn take_over(mut self) -> Result<Serving> {
        self.take_possession()?;
        Ok(self.serving.clone())
    }

    /// Starts what serves clients beside the shards. The agent and the shards wait until the server is in
    /// force.
    fn start_threads(
        &self,
        (listener, asked): (UnixListener, Option<Asked>),
        news: Receiver<News>,
    ) -> Result<()> {
        let Serving { shared, stop } = &self.serving;
        if let Some(asked) = asked {
            spawn("kelix-snapshot", shared.clone(), stop.clone(), move |shared, stop| {
                let snapshots = shared.snapshots.as_ref().expect("made before");
                snapshots.run(&shared, &asked, &stop);
            })?;
        }
        let reception = Reception::begin(listener)?;
        let watched = shared.watched.set(reception.watched());
        assert!(watched.is_ok(), "a server begins once");
        spawn("kelix-accept", shared.clone(), stop.clone(), move |shared, stop| {
            reception.run(&shared, &stop);
        })?;
        spawn("kelix-news", shared.clone(), stop.clone(), move |shared, _| pass_on(&shared, &news))?;
        if self.waits_for_devices() {
            // What a server of the same address holds is had when that has ended; what else may fail shows
            // now.
            return VerbsThread::try_addresses(&shared.rdma);
        }
        self.start_agent()
    }

    /// Whether clients over verbs can be taken only when the server that is superseded takes none any more.
    fn waits_for_devices(&self) -> bool {
        !self.serving.shared.rdma.is_empty() && self.serving.shared.authority.supersedes()
    }

    fn start_agent(&self) -> Result<()> {
        let shared = &self.serving.shared;
        let Some(reserved) = &self.reserved else { return Ok(()) };
        let shards = shared.shards().map(ShardHandle::for_agent).collect();
        let verbs = match &shared.rdma[..] {
            [] => None,
            addresses => Some(VerbsThread::listen(shared, addresses, random_u64()?)?),
        };
        let agent = AgentHandle::start(shared.clone(), (reserved.listener()?, &self.config), shards, verbs)?;
        let _ = shared.agent.set(agent);
        Ok(())
    }

    /// What tells how it is doing.
    pub fn statistics(&self) -> Statistics {
        self.server.statistics()
    }

    /// A handle that stops the server from another thread, once it serves.
    pub fn stopper(&self) -> Stopper {
        self.server.stopper()
    }

    /// Takes possession: from here on whichever server had the directory is void. Returns once clients can
    /// connect.
    ///
    /// An error before that leaves the other server as it is: another one was quicker, or the one that is to
    /// be superseded has taken a snapshot since this one read its own.
    pub fn serve(mut self) -> Result<Server> {
        let reserved = self.reserved.as_ref().map(Reserved::try_clone).transpose()?;
        self.take_possession()?;
        // A replica that has lost its primary is another one when it follows again.
        if self.config.mirror.as_ref().is_some_and(|mirror| mirror.replica.is_none()) {
            mirror::supervise(&self.config, &self.server.current, (reserved, self.copies.take()))?;
        }
        Ok(Server { current: self.server.current.clone() })
    }

    fn take_possession(&mut self) -> Result<()> {
        let shared = self.serving.shared.clone();
        let supersedes = shared.authority.supersedes() && self.handover.is_none();
        if let (Some(config), true) = (&self.config.snapshots, supersedes) {
            if snapshots::newest(config)? != self.seen && !config.fresh {
                let context =
                    "the server that is to be superseded has taken a snapshot in this moment; try again";
                return Err(Error::new(ErrorKind::Unavailable, "serve", context));
            }
        }
        let waits_for_devices = self.waits_for_devices();
        if self.handover.is_some() && !shared.authority.takes_yielded() {
            let context = "the server that stood still for this one has gone on, since this took too long";
            return Err(Error::new(ErrorKind::Unavailable, "serve", context));
        }
        shared.authority.raise(!shared.rdma.is_empty())?;
        if let Some(store) = &shared.store {
            store.take()?;
        }
        if waits_for_devices {
            self.start_agent()?;
        }
        if let Some(reserved) = self.reserved.take() {
            reserved.listen()?;
        }
        shared.authority.tell_address(shared.tcp);
        shared.authority.clear_up();
        shared.authority.begin();
        if let Some(handover) = self.handover.take() {
            let ms = handover.time().as_secs_f64() * 1e3;
            info!(ms, "handed over: so long nobody was served, and what the server before had is here");
        }
        info!(
            directory = %self.config.directory.display(),
            term = shared.authority.term,
            namespaces = shared.namespaces.len(),
            shards = shared.shards().count(),
            memory_bytes = self.config.memory_bytes,
            tcp = shared.tcp.map(|address| address.to_string()),
            "server started"
        );
        Ok(())
    }
}

/// What has begun ends, unless it serves.
impl Drop for Prepared {
    fn drop(&mut self) {
        if !self.serving.shared.authority.has_begun() {
            self.server.stopper().stop();
        }
    }
}

/// Whoever can reach an address can read and write everything, unless it must say who it is; and what it says
/// must not be heard by others.
pub(crate) fn check_access(config: &ServerConfig) -> Result<()> {
    if !config.rdma.is_empty() && config.listen.is_none() {
        let context = "clients over verbs connect over TCP first: choose where with --listen too";
        return Err(Error::new(ErrorKind::InvalidArgument, "serve", context));
    }
    let Some(address) = config.listen.filter(|address| !address.ip().is_loopback()) else { return Ok(()) };
    let authenticates =
        config.tls.as_ref().is_some_and(ServerTls::authenticates) || !config.tokens.is_empty();
    let missing = match (&config.tls, authenticates) {
        (Some(_), true) => return Ok(()),
        (Some(_), false) => "clients must have a token or a certificate",
        (None, _) => "clients must speak TLS, and have a token or a certificate",
    };
    let context = format!(
        "{address} can be reached from other hosts, so {missing}; without, listen on 127.0.0.1 or [::1]"
    );
    Err(Error::new(ErrorKind::InvalidArgument, "serve", context))
}

pub(crate) fn spawn(
    name: &str,
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    body: impl FnOnce(Arc<Shared>, Arc<AtomicBool>) + Send + 'static,
) -> Result<()> {
    std::thread::Builder::new()
        .name(name.to_string())
        .stack_size(256 << 10)
        .spawn(move || body(shared, stop))
        .map(drop)
        .map_err(|source| Error::system("serve", format!("cannot start thread {name}"), source))
}

/// Ends the connections of clients that broke the protocol, and lets shards know what others have to tell.
fn pass_on(shared: &Shared, news: &Receiver<News>) {
    while let Ok(news) = news.recv() {
        match news {
            News::Fault(connection, what) => {
                let Some(who) = shared.disconnect(connection, what) else { continue };
                warn!(client = who, why = what, "client disconnected");
            }
            News::Renew { namespace, connections } => {
                let namespace = &shared.namespaces[namespace];
                if let Some(Err(error)) = shared.wal.as_ref().map(|wal| wal.note_renewed()) {
                    warn!(%error, "numbers of dropped tables are not given again before the next start");
                    continue;
                }
                namespace.begin_life();
                shared.feeds.end_life(namespace);
                connections.into_iter().for_each(|connection| shared.renew(connection));
                namespace.shards[0].command(Command::BeginLife);
            }
            News::Order { namespace, cause, order } => {
                let shards = &shared.namespaces[namespace].shards;
                let others = &shards[order.is_for(cause.0, shards.len())];
                others.iter().for_each(|other| other.command(Command::Order(order.clone(), cause)));
            }
        }
    }
}
