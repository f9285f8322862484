//! Starting and stopping a server.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use kelix_fabric::shm::RunDirectory;
use kelix_fabric::tcp::ServerTls;
use kelix_shard::ShardConfig;
use kelix_snapshot::{Snapshot, Which};
use kelix_types::limits::{EPOCH_NS, EPOCH_NS_MIN, VIEW_LEASE_NS};
use kelix_types::{Error, ErrorKind, Result};
use tracing::{info, warn};

use kelix_wire::control::DENIED;

use crate::agent::AgentHandle;
use crate::authority::Authority;
use crate::clients::{ClientRecord, Counters};
use crate::connection;
use crate::namespace::{DEFAULT, Namespace, NamespaceConfig, Numbers, Rights, Visitor};
use crate::shard_thread::{Command, News, ShardHandle};
use crate::snapshots::{self, SnapshotConfig, Snapshots, Taken};
use crate::verbs::VerbsThread;

/// How long a server that was superseded may take to give its address up.
const GIVEN_UP: Duration = Duration::from_secs(2);

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
    /// Clients that come over TCP may then READ and WRITE over verbs, by queue pairs that they connect to one of these addresses
    /// of RDMA devices. An address that is unspecified (`0.0.0.0`) is any of the host's; port 0 is that of `listen`.
    pub rdma: Vec<SocketAddr>,
    /// Clients over TCP must speak TLS.
    pub tls: Option<ServerTls>,
    /// Clients over TCP must know the word of one of these, if there are any.
    pub tokens: Vec<Token>,
    /// Snapshots that it begins with and takes.
    pub snapshots: Option<SnapshotConfig>,
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
    /// The default directory, one shard, half of the machine's memory, pinned where there are cores to spare.
    fn default() -> Self {
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total =
            meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next());
        let kilobytes: u64 = total.and_then(|number| number.parse().ok()).unwrap_or(1 << 20);
        ServerConfig {
            directory: RunDirectory::default_path(),
            shards: 1,
            memory_bytes: kilobytes * 1024 / 2,
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
    /// What clients that have gone told of themselves, by namespace and fabric.
    pub gone: Mutex<BTreeMap<(String, &'static str), Counters>>,
    /// The number of the next connection, whichever way it comes.
    pub next_connection: AtomicU64,
    /// The agent, and where it listens.
    pub agent: OnceLock<AgentHandle>,
    pub tcp: Option<SocketAddr>,
    /// Where it takes clients over verbs.
    pub rdma: Vec<SocketAddr>,
    /// Who takes snapshots.
    pub snapshots: Option<Snapshots>,
    /// Whether the last one was taken, once the server ends.
    pub kept: OnceLock<bool>,
    pub started: Instant,
}

impl Shared {
    /// All shards of all namespaces, in the agent's order.
    pub fn shards(&self) -> impl Iterator<Item = &ShardHandle> {
        self.namespaces.iter().flat_map(|namespace| &namespace.shards)
    }

    /// Takes a snapshot, and waits for it.
    pub fn snapshot(&self) -> Result<Taken> {
        let none = || {
            let context = "the server takes no snapshots; it has to be started with --snapshots DIRECTORY";
            Error::new(ErrorKind::InvalidArgument, "snapshot", context)
        };
        self.snapshots.as_ref().ok_or_else(none)?.take(false)
    }

    /// The namespace that a client wants, and whether it may write there. An error if it may not even read, or there is none:
    /// which of both is not for it to know.
    pub fn visit(&self, wanted: &str, visitor: &Visitor<'_>) -> Result<(Arc<Namespace>, bool)> {
        let wanted = if wanted.is_empty() { DEFAULT } else { wanted };
        let found = self.namespaces.iter().find(|namespace| namespace.name == wanted);
        let access = found.and_then(|namespace| Some((namespace.clone(), namespace.access(visitor)?)));
        access.ok_or_else(|| {
            let context = format!("{DENIED} namespace \"{wanted}\", or there is none");
            Error::new(ErrorKind::Denied, "accept client", context)
        })
    }
}

/// A running server.
pub struct Server {
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
}

fn random_u64() -> Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|source| Error::system("serve", "no random numbers to be had", source))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Begins to serve namespaces, with what a snapshot holds of them. Also returns the flag that ends their shards.
fn begin(
    config: &ServerConfig,
    namespaces: &[&NamespaceConfig],
    snapshot: Option<&Snapshot>,
    authority: &Arc<Authority>,
    news: &Sender<News>,
) -> Result<(Vec<Arc<Namespace>>, Arc<AtomicBool>)> {
    let stop = Arc::new(AtomicBool::new(false));
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let shards: usize = namespaces.iter().map(|namespace| namespace.shards).sum();
    let lease_ns = u64::try_from(config.view_lease.as_nanos()).unwrap_or(u64::MAX);
    // Over verbs readers tell by their clocks whether an epoch passed, and over TCP a READ takes its time. Who maps the memory sees the epoch
    // itself, at once.
    let epoch_ns = if config.listen.is_none() { EPOCH_NS_MIN } else { EPOCH_NS };
    let mut served = Vec::new();
    let mut first = 0;
    for (namespace, config_of) in namespaces.iter().enumerate() {
        let start = |shard: ShardConfig, restored: Option<(&Snapshot, Which)>| {
            // From the last core down, so that core 0, where much else lands, stays free for longest.
            let core = (config.pin && shards < cores).then(|| cores - 1 - first - shard.number);
            let news = (news.clone(), namespace);
            ShardHandle::start(shard, restored, authority.clone(), stop.clone(), news, core)
        };
        let restored = snapshot.and_then(|snapshot| {
            let of = &snapshot.description().namespaces;
            let index = of.iter().position(|of| of.name == config_of.name)?;
            Some((snapshot, index as u16, of[index].hash_seed))
        });
        let seed = restored.map_or_else(random_u64, |(.., seed)| Ok(seed))?;
        let numbers = Numbers {
            term: authority.term,
            life: random_u64()?,
            hash_seed: seed,
            first_in_agent: first,
            view_lease_ns: lease_ns,
            epoch_ns,
        };
        let restored = restored.map(|(snapshot, index, _)| (snapshot, index));
        served.push(Arc::new(Namespace::start(config_of, numbers, restored, random_u64, start)?));
        first += config_of.shards;
    }
    Ok((served, stop))
}

impl Server {
    /// Starts a server and returns once clients can connect.
    pub fn start(config: &ServerConfig) -> Result<Server> {
        let default = NamespaceConfig {
            name: DEFAULT.into(),
            shards: config.shards,
            memory_bytes: config.memory_bytes,
            cache: config.cache,
            rights: config.rights.clone(),
        };
        let namespaces: Vec<&NamespaceConfig> = [&default].into_iter().chain(&config.namespaces).collect();
        // Said before the directory is taken, so that a mistake ends no running server.
        for (index, namespace) in namespaces.iter().enumerate() {
            namespace.check()?;
            if namespaces[..index].iter().any(|other| other.name == namespace.name) {
                let context = format!("there are two namespaces \"{}\"", namespace.name);
                return Err(Error::new(ErrorKind::InvalidArgument, "serve", context));
            }
        }
        check_access(config)?;
        let shapes: Vec<(&str, usize)> =
            namespaces.iter().map(|namespace| (&namespace.name[..], namespace.shards)).collect();
        let readable = |verify| match &config.snapshots {
            Some(snapshots) => snapshots::readable(snapshots, &shapes, verify),
            None => Ok(Vec::new()),
        };
        if config.take_over {
            readable(true)?;
        }
        let authority = Arc::new(Authority::take(
            RunDirectory(config.directory.clone()),
            config.take_over,
            !config.rdma.is_empty(),
        )?);
        // Not before: the server that held the directory until now may have been taking its last one.
        let kept = readable(false)?;
        let (news, received) = channel();
        let begin = |restored: Option<&Snapshot>| begin(config, &namespaces, restored, &authority, &news);
        let ((served, stop), newest) = snapshots::begin_with(kept, begin)?;
        let listener = authority.listen()?;
        let tcp_listener = config.listen.map(|address| listen(address, config.take_over)).transpose()?;
        let tcp = tcp_listener.as_ref().and_then(|listener| listener.local_addr().ok());
        authority.tell_address(tcp)?;
        let mut rdma = config.rdma.clone();
        let port = tcp.map_or(0, |address| address.port());
        rdma.iter_mut().filter(|address| address.port() == 0).for_each(|address| address.set_port(port));
        let snapshots = config.snapshots.as_ref().map(|config| Snapshots::new(config, newest));
        let (snapshots, asked) = snapshots.unzip();
        let shared = Arc::new(Shared {
            authority,
            namespaces: served,
            clients: Mutex::new(Vec::new()),
            gone: Mutex::default(),
            next_connection: AtomicU64::new(1),
            agent: OnceLock::new(),
            tcp,
            rdma,
            snapshots,
            kept: OnceLock::new(),
            started: Instant::now(),
        });
        let server = Server { shared, stop };
        if let Some(asked) = asked {
            spawn("kelix-snapshot", server.shared.clone(), server.stop.clone(), move |shared, stop| {
                let snapshots = shared.snapshots.as_ref().expect("made before");
                snapshots.run(&shared, &asked, &stop);
            })?;
        }
        if let Err(error) = server.start_threads(config, (listener, tcp_listener), received) {
            // What has begun ends.
            server.stop();
            return Err(error);
        }
        let shared = &server.shared;
        info!(
            directory = %config.directory.display(),
            term = shared.authority.term,
            namespaces = shared.namespaces.len(),
            shards = shared.shards().count(),
            memory_bytes = config.memory_bytes,
            tcp = shared.tcp.map(|address| address.to_string()),
            "server started"
        );
        Ok(server)
    }

    /// Starts what serves clients beside the shards.
    fn start_threads(
        &self,
        config: &ServerConfig,
        (listener, tcp_listener): (UnixListener, Option<TcpListener>),
        news: Receiver<News>,
    ) -> Result<()> {
        let (shared, stop) = (&self.shared, &self.stop);
        spawn("kelix-accept", shared.clone(), stop.clone(), move |shared, stop| {
            accept(shared, &stop, &listener)
        })?;
        spawn("kelix-news", shared.clone(), stop.clone(), move |shared, _| pass_on(&shared, &news))?;
        if let Some(listener) = tcp_listener {
            let shards = shared.shards().map(ShardHandle::for_agent).collect();
            let verbs = match &shared.rdma[..] {
                [] => None,
                addresses => Some(VerbsThread::listen(shared, addresses, random_u64()?)?),
            };
            let agent = AgentHandle::start(shared.clone(), (listener, config), shards, verbs)?;
            let _ = shared.agent.set(agent);
        }
        Ok(())
    }

    /// Takes a snapshot, and waits for it.
    pub fn snapshot(&self) -> Result<Taken> {
        self.shared.snapshot()
    }

    /// What tells how it is doing.
    pub fn statistics(&self) -> Statistics {
        Statistics { shared: self.shared.clone() }
    }

    /// Where it takes clients over TCP, if it does.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.shared.tcp
    }

    /// Where it takes clients over verbs, if it does.
    pub fn rdma_addresses(&self) -> &[SocketAddr] {
        &self.shared.rdma
    }

    /// The term this server serves in.
    pub fn term(&self) -> u64 {
        self.shared.authority.term
    }

    /// Waits until the server is superseded or `stop` was called on another thread's clone of the flag.
    pub fn wait(&self) -> Ended {
        // A shard that sleeps does not notice its successor, so this looks for one too.
        while self.shared.authority.in_force() && !self.shared.shards().any(ShardHandle::has_ended) {
            std::thread::sleep(Duration::from_millis(200));
        }
        self.ended()
    }

    fn ended(&self) -> Ended {
        match self.shared.kept.get() {
            _ if !self.shared.authority.in_force() => Ended::Superseded,
            Some(false) => Ended::NotKept,
            _ => Ended::Stopped,
        }
    }

    /// A handle that stops the server from another thread or a signal's thread.
    pub fn stopper(&self) -> Stopper {
        Stopper { shared: self.shared.clone(), stop: self.stop.clone() }
    }

    /// Stops the server in good order, as [`Stopper::stop`] does.
    pub fn stop(self) -> Ended {
        self.stopper().stop();
        self.ended()
    }
}

/// Tells how a server is doing, also from other threads.
#[derive(Clone)]
pub struct Statistics {
    shared: Arc<Shared>,
}

impl Statistics {
    /// What `kelix stat` shows, as JSON.
    /// One for each namespace, the default one first.
    pub fn json(&self) -> Vec<serde_json::Value> {
        let namespaces = self.shared.namespaces.iter();
        namespaces.map(|namespace| crate::statistics::json(&self.shared, namespace)).collect()
    }

    /// Whether all shards are still going round: each is asked, and is to answer within this time.
    pub fn shards_answer(&self, within: Duration) -> bool {
        let began = Instant::now();
        let (asker, answers) = channel();
        let asked = self.shared.shards().map(|shard| shard.command(Command::Answer(asker.clone()))).count();
        drop(asker);
        let left = || within.saturating_sub(began.elapsed());
        (0..asked).all(|_| answers.recv_timeout(left()).is_ok())
    }

    /// The names of the namespaces, the default one first.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.shared.namespaces.iter().map(|namespace| &namespace.name[..])
    }

    /// What `kelix stat` shows of a namespace, if there is one of this name.
    pub fn json_of(&self, name: &str) -> Option<serde_json::Value> {
        let namespace = self.shared.namespaces.iter().find(|namespace| namespace.name == name)?;
        Some(crate::statistics::json(&self.shared, namespace))
    }
}

/// Stops a server.
#[derive(Clone)]
pub struct Stopper {
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
}

impl Stopper {
    /// Stops the server: it takes no more connections, executes the requests that have arrived, sends the answers, and then ends
    /// the connections, by which clients know at once.
    pub fn stop(&self) {
        self.shared.agent.get().into_iter().for_each(AgentHandle::pass_on);
        // What is in the store goes on in the next server.
        if let Some(snapshots) = self.shared.snapshots.as_ref().filter(|_| self.shared.authority.in_force()) {
            self.shared.kept.get_or_init(|| snapshots.take(true).is_ok());
        }
        self.stop.store(true, Ordering::SeqCst);
        // The accepting thread sees the flag when somebody connects.
        let _ = self.shared.authority.connect();
        self.shared.shards().for_each(ShardHandle::wake);
        self.shared.shards().for_each(ShardHandle::join);
        // Not before: the answers of the shards go through it.
        self.shared.agent.get().into_iter().for_each(AgentHandle::join);
        self.shared.disconnect_all();
        if !self.shared.authority.close() {
            return;
        }
        if self.shared.authority.in_force() {
            info!(term = self.shared.authority.term, "server stopped");
        } else {
            warn!(term = self.shared.authority.term, "server superseded");
        }
    }
}

/// Whoever can reach an address can read and write everything, unless it must say who it is; and what it says must not be
/// heard by others.
fn check_access(config: &ServerConfig) -> Result<()> {
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

/// Listens. A server that was superseded gives the address up within a moment.
fn listen(address: SocketAddr, take_over: bool) -> Result<TcpListener> {
    let began = Instant::now();
    loop {
        match TcpListener::bind(address) {
            Ok(listener) => return Ok(listener),
            Err(_) if take_over && began.elapsed() < GIVEN_UP => {
                std::thread::sleep(Duration::from_millis(20))
            }
            Err(source) => {
                return Err(Error::system("serve", format!("cannot listen on {address}"), source));
            }
        }
    }
}

fn spawn(
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

fn accept(shared: Arc<Shared>, stop: &Arc<AtomicBool>, listener: &UnixListener) {
    for stream in listener.incoming() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stream) = stream else {
            // Out of descriptors: those who are connected go on, new ones wait in the socket's queue.
            warn!("no descriptor for another client: it waits");
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        let (shared, stream) = (shared.clone(), Arc::new(stream));
        let serve = {
            let stream = stream.clone();
            move |shared: Arc<Shared>, _| {
                let number = shared.next_connection.fetch_add(1, Ordering::Relaxed);
                connection::serve(&shared, number, &stream);
            }
        };
        if let Err(error) = spawn("kelix-client", shared, stop.clone(), serve) {
            // Those who are connected go on, and so do clients over TCP, who need no thread.
            warn!(%error, "no thread for another client: it is refused");
            connection::refuse(
                &stream,
                "it has no thread for another client now; try again, or connect over TCP",
            );
        }
    }
}

/// Ends the connections of clients that broke the protocol, and lets shards know what others have to tell.
fn pass_on(shared: &Shared, news: &Receiver<News>) {
    while let Ok(news) = news.recv() {
        match news {
            News::Fault(connection, what) => {
                let Some(who) = shared.disconnect(connection, what) else { continue };
                warn!(client = who, why = what, "client disconnected");
            }
            News::Order { namespace, shard, order } => {
                let shards = &shared.namespaces[namespace].shards;
                let others = &shards[order.is_for(shard, shards.len())];
                others.iter().for_each(|other| other.command(Command::Obey(order.clone())));
            }
        }
    }
}
