//! `kelix serve`: a server in the foreground.
//!
//! SIGTERM and SIGINT end it in good order; a second one ends it at once. SIGHUP opens the log's file anew. A
//! server that another one has superseded ends by itself with exit code 3, so that a supervisor does not
//! restart it against its successor.

use std::io::{IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, SystemTime};

use kelix::{Address, Credentials, FabricChoice};
use kelix_fabric::shm::RunDirectory;
use kelix_register::MEMBERS_MAX;
use kelix_server::{
    Durability, Ended, FeedFabric, HostsConfig, HugePages, LEASE_MIN, LEASE_USUAL, MirrorConfig, Reserved,
    Server, ServerConfig, SnapshotConfig, Statistics, WalConfig, choose_huge_pages,
};
use kelix_types::limits::{HUGE_PAGE_BYTES, SHARD_BYTES_MIN, SHARDS_MAX};
use serde_json::json;
use signal_hook::consts::{SIGHUP, TERM_SIGNALS};
use signal_hook::flag::register_conditional_shutdown;
use signal_hook::iterator::Signals;
use tracing::{error, info, warn};

use crate::cluster::{RegisterArgs, named};
use crate::context::{Context, plural, say};
use crate::ending::watch_signals;
use crate::log::{Log, LogArgs, LogFile};
use crate::manager::Manager;
use crate::trust::tokens;
use crate::units::{parse_lease, parse_size, parse_snapshot_interval, show_size, within};
use crate::{Exit, Failure, background, http, namespaces, node};

/// Run a server in the foreground
///
/// Prints one line once clients can connect, and tells a service manager that wants to know (systemd,
/// Type=notify). SIGTERM or SIGINT ends the server in good order with exit code 0: what has arrived is
/// executed and answered. SIGHUP opens the file of --log-file anew. It ends with exit code 3 if another
/// server takes over its directory. The store is in memory: when the server ends, its content is gone, unless
/// --snapshots says where it is kept, or --wal where each write is logged.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  kelix serve
  kelix serve --dir /run/kelix --memory 4G --shards 2
  kelix serve --cache --memory 4G    # let items go when memory is used up
  kelix serve --listen 7117          # also take clients over TCP, from this host
  kelix serve --metrics 9117         # http://127.0.0.1:9117/ is a live page, /metrics is for Prometheus
  kelix serve --snapshots /var/lib/kelix --snapshot-every 10m
  kelix serve --wal /var/lib/kelix   # what was written is there again, however the server ended
  kelix serve --log info --log-file /var/log/kelix/kelix.log
  kelix serve --listen 0.0.0.0:7117 --tls-cert host.pem --tls-key host.key --tokens words
  kelix serve --listen 192.0.2.7:7117 --rdma --tls-cert host.pem --tls-key host.key --tokens words
  kelix serve --mirror-of 192.0.2.7:7117 --tls-ca ca.pem --token-file word   # a copy on this host
  kelix serve --cluster local --node 4   # one more node of a cluster on this host
  kelix serve --take-over            # go on with what the server of the directory has, in its place
  kelix serve --background --log-file kelix.log   # come back once it serves")]
pub(crate) struct ServeArgs {
    /// Threads that write, each with a part of the memory; reads need none
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within::<usize>(1, SHARDS_MAX as u64))]
    shards: usize,
    /// Most memory of all shards together, as in 512M or 4G; it is taken as it fills [default: half of the
    /// machine's, or of what its control group may have]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,
    /// Be a cache: when memory is used up, let items go that are worth least, rather than refuse writes.
    /// Ordered and loaded tables stay
    #[arg(long)]
    cache: bool,
    /// Whether memory is in pages of 2 MiB, in which ten million records are read and written 1.2 to 1.5
    /// times as fast: where the host has reserved some (vm.nr_hugepages) or grants them (auto); or the server
    /// does not start (require); or not (off). docs/operations.md says how a host or a container has them
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = HugePagesArgument::Auto)]
    huge_pages: HugePagesArgument,
    /// Do not pin shard threads to cores
    #[arg(long)]
    no_pin: bool,
    /// How long a read view of loaded tables may go unused: what was loaded before is dropped two such times
    /// after the next load, or after its last view
    #[arg(long, value_name = "TIME", value_parser = parse_lease, default_value = "5s")]
    view_lease: Duration,
    /// Supersede the server that holds the directory. One that runs hands over what it has: it serves while
    /// that is copied, which takes its memory once more, and then nobody is served for some milliseconds; it
    /// needs the same namespaces and shards, and no log, or this one does not start and that one goes on. One
    /// that stands still hands over nothing: what it has is lost, but for the newest snapshot
    #[arg(long)]
    take_over: bool,
    /// Return once clients can connect, and leave the server to run in the background
    #[arg(long, conflicts_with = "node")]
    background: bool,
    /// Also take clients over TCP: PORT on 127.0.0.1, or HOST:PORT; port 0 is any that is free. An address
    /// that other hosts can reach needs TLS, and --tokens or --tls-ca
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    listen: Option<SocketAddr>,
    /// Let clients that connect there READ and WRITE by RDMA: at these addresses of the host's devices for
    /// RDMA, separated by commas; without any at the one of --listen. A port, if it is another than that of
    /// --listen, follows a colon
    #[arg(long, value_name = "ADDRESSES", requires = "listen", num_args = 0..=1, value_delimiter = ',', value_parser = parse_rdma)]
    rdma: Option<Vec<SocketAddr>>,
    /// Take only clients over TCP that know one of the words in this file, one a line
    #[arg(long, value_name = "FILE", requires = "listen")]
    tokens: Option<PathBuf>,
    /// How many mirrors on other hosts may follow at once; each has a thread, and costs what is written once
    /// more on the network. They connect at the address of --listen
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = within::<u16>(0, 1000))]
    mirrors: u16,
    /// Serve more namespaces, each with memory and rights of its own, as this file says (kelix help
    /// namespaces)
    #[arg(long, value_name = "FILE")]
    namespaces: Option<PathBuf>,
    /// Also answer over HTTP at this address, PORT on 127.0.0.1 or HOST:PORT: Prometheus at /metrics, and a
    /// page at / that shows the server at work. Anybody who reaches the address may read them
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    metrics: Option<SocketAddr>,
    /// Begin with the newest snapshot in this directory, and take one when the server ends. It is made if it
    /// does not exist
    #[arg(long, value_name = "DIRECTORY", group = "stored")]
    snapshots: Option<PathBuf>,
    /// Log all changes in this directory, beside snapshots, and begin with what is there, however the server
    /// before ended. It is made if it does not exist, and may be one with snapshots
    #[arg(long, value_name = "DIRECTORY", group = "stored", conflicts_with = "snapshots")]
    wal: Option<PathBuf>,
    /// When a write is answered: when it is done, and is on the disk within 100 ms (lazy); or when it is on
    /// the disk (commit); off: nothing is logged, as with --snapshots [default: lazy]
    #[arg(long, value_name = "WHEN", value_enum, requires = "wal")]
    durable: Option<DurableArgument>,
    /// Serve what there was at this moment, and take no writes: as in 2026-11-25T15:04:05Z
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment, requires = "wal")]
    until: Option<SystemTime>,
    /// Also take a snapshot each so often, as in 10m
    #[arg(long, value_name = "TIME", value_parser = parse_snapshot_interval, requires = "stored")]
    snapshot_every: Option<Duration>,
    /// Be a mirror: show the memory of the server that listens there, HOST:PORT, on this host, where processes
    /// read it as fast as there. --tls-ca and --token-file say how that server knows this one, --fabric over
    /// what it is followed. Writes go there.
    /// With --listen other mirrors follow this one, and with --wal it begins with what it had when it ended
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["shards", "cache", "snapshots", "durable", "until", "rdma", "namespaces", "view_lease"])]
    mirror_of: Option<String>,
    /// The namespaces to show, separated by commas; otherwise that of --namespace
    #[arg(long, value_name = "NAMES", requires = "mirror_of", value_delimiter = ',')]
    mirror_namespaces: Vec<String>,
    /// Most bytes a second of a copy of that server's memory, as in 100M; otherwise as many as come
    #[arg(long, value_name = "SIZE", requires = "mirror_of", value_parser = parse_size)]
    copy_rate: Option<u64>,
    /// For how long the mirror may be read without hearing of that server; otherwise for ever
    #[arg(long, value_name = "TIME", requires = "mirror_of", value_parser = parse_lag)]
    max_lag: Option<Duration>,
    /// How many snapshots are kept
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = within::<u16>(1, u16::MAX.into()))]
    snapshot_keep: u16,
    /// Begin empty, also where there are snapshots
    #[arg(long, requires = "snapshots")]
    fresh: bool,
    /// Be a node of the cluster of --cluster, under this name: its primary, or a copy that goes on in the
    /// primary's place. `kelix cluster start` starts several. With --wal it keeps in that directory, which is
    /// its own, what it has; with --durable commit writes are answered when they are on the disks of all
    /// nodes in sync
    #[arg(long, value_name = "NAME", conflicts_with_all = ["mirror_of", "snapshots", "until", "take_over"])]
    node: Option<String>,
    /// How long the primary of the cluster may say nothing before another node goes on in its place [default:
    /// 500ms]
    #[arg(long, value_name = "TIME", requires = "node", value_parser = parse_lag)]
    suspect: Option<Duration>,
    /// How many nodes of the cluster have to be in sync for writes to be accepted; the same for all nodes
    /// [default: 1, or what the cluster was begun with]
    #[arg(long, value_name = "N", requires = "node", value_parser = within::<usize>(1, MEMBERS_MAX as u64))]
    min_in_sync: Option<usize>,
    #[command(flatten)]
    register: RegisterArgs,
    /// For how long a primary whose cluster is on several hosts may be read without hearing that it still is; the
    /// next one waits as long. At least four times what ZooKeeper takes to elect its leader [default: 2s]
    #[arg(long, value_name = "TIME", requires = "zookeeper", value_parser = parse_node_lease)]
    lease: Option<Duration>,
    /// HOST:PORT by which other hosts know the address of --listen, if it is another
    #[arg(long, value_name = "ADDRESS", requires = "zookeeper")]
    advertise: Option<String>,
    #[command(flatten)]
    log: LogArgs,
}

/// The lease of a primary.
fn parse_node_lease(text: &str) -> Result<Duration, String> {
    let time =
        humantime::parse_duration(text).map_err(|error| format!("no time, as in 500ms or 5s: {error}"))?;
    if time < LEASE_MIN {
        return Err(format!("a register takes its time: give at least {} ms", LEASE_MIN.as_millis()));
    }
    Ok(time)
}

/// What a node on one of several hosts has to know, if this is one.
fn hosts(
    context: &Context,
    args: &ServeArgs,
    (node, server): (&str, &ServerConfig),
) -> Result<Option<HostsConfig>, Failure> {
    let cluster = &named(context);
    let Some(zookeeper) = args.register.options_of(cluster, node)? else {
        if args.listen.is_some() || args.tokens.is_some() {
            let context = "a node without --zookeeper is on one host with all others: leave out --listen, --rdma \
                           and --tokens";
            return Err(Failure::usage("serve", context));
        }
        return Ok(None);
    };
    let Some(listen) = args.listen else {
        let context = "say with --listen where other nodes and clients reach this one";
        return Err(Failure::usage("serve", context));
    };
    let Credentials { token, tls, .. } = context.trust.credentials()?;
    let Some(token) = token else {
        let context = "say with --token-file the word by which nodes know each other";
        return Err(Failure::usage("serve", context));
    };
    let lease = args.lease.unwrap_or(LEASE_USUAL);
    // A question that was lost leaves time for others, before the lease is over.
    let zookeeper = zookeeper.time_limit((lease / 2).min(Duration::from_secs(10)))?;
    let advertise = args.advertise.clone();
    if let Some(advertised) = advertise.as_ref().filter(|of| !matches!(of.parse(), Ok(Address::Tcp(_)))) {
        return Err(Failure::usage("serve", format!("--advertise {advertised} is no HOST:PORT")));
    }
    let tokens = server.tokens.clone();
    let rdma_address = context.rdma_address;
    Ok(Some(HostsConfig { zookeeper, lease, listen, rdma_address, advertise, token, tokens, tls }))
}

/// Whether memory is in pages of 2 MiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum HugePagesArgument {
    /// Where there are some.
    Auto,
    /// In no others.
    Require,
    /// In usual ones.
    Off,
}

/// When a write is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum DurableArgument {
    /// Nothing is logged.
    Off,
    /// When it is done.
    Lazy,
    /// When it is on the disk.
    Commit,
}

/// A moment of the log.
fn parse_moment(text: &str) -> Result<SystemTime, String> {
    humantime::parse_rfc3339_weak(text)
        .map_err(|_| "no moment, as in 2026-11-25T15:04:05Z or \"2026-11-25 15:04:05\", which are UTC".into())
}

/// How long the primary of a cluster may say nothing, unless somebody says otherwise.
const SUSPECT: Duration = Duration::from_millis(500);

/// The shortest time that a mirror may be read without hearing of its primary.
const LAG_MIN: Duration = Duration::from_millis(50);

/// How long the log's thread may take to write what a server says last.
const LOG_WRITTEN_WITHIN: Duration = Duration::from_millis(200);

/// How long a mirror may hear nothing.
fn parse_lag(text: &str) -> Result<Duration, String> {
    let time =
        humantime::parse_duration(text).map_err(|error| format!("no time, as in 500ms or 5s: {error}"))?;
    if time < LAG_MIN {
        return Err(format!("a primary is asked now and then: give at least {} ms", LAG_MIN.as_millis()));
    }
    Ok(time)
}

/// Over what somebody follows a server on another host. An error: `no_shm`, for there is no shared memory.
pub(crate) fn feed_fabric(context: &Context, no_shm: &str) -> Result<Option<FeedFabric>, Failure> {
    match context.fabric {
        None => Ok(None),
        Some(FabricChoice::Tcp) => Ok(Some(FeedFabric::Tcp)),
        Some(FabricChoice::Verbs) => Ok(Some(FeedFabric::Verbs)),
        Some(FabricChoice::Shm) => Err(Failure::usage("serve", no_shm)),
    }
}

/// The mirror that is wanted, if one is.
fn mirror(context: &Context, args: &ServeArgs) -> Result<Option<MirrorConfig>, Failure> {
    let Some(primary) = args.mirror_of.clone() else { return Ok(None) };
    if !matches!(primary.parse::<Address>(), Ok(Address::Tcp(_))) {
        let context = format!("--mirror-of {primary} is no HOST:PORT, as in 192.0.2.7:7117");
        return Err(Failure::usage("serve", context));
    }
    let no_shm = "--fabric shm: a mirror follows a server on another host, over verbs or tcp";
    let fabric = feed_fabric(context, no_shm)?;
    let Credentials { token, tls, .. } = context.trust.credentials()?;
    let own = if context.namespace.is_empty() { "default".into() } else { context.namespace.clone() };
    Ok(Some(MirrorConfig {
        primary,
        token,
        tls,
        fabric,
        rdma_address: context.rdma_address,
        namespaces: if args.mirror_namespaces.is_empty() {
            vec![own]
        } else {
            args.mirror_namespaces.clone()
        },
        copy_rate: args.copy_rate.unwrap_or(0),
        max_lag: args.max_lag,
        name: host_name(),
        memory_bytes: args.memory,
        retry_for: context.retry.unwrap_or_default(),
        replica: None,
    }))
}

/// What this host calls itself.
fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().into()
}

/// A port, or a host and a port.
fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    let mut found = text.to_socket_addrs().map_err(|error| {
        format!("\"{text}\" is neither PORT nor HOST:PORT, as in 7117 or 127.0.0.1:7117 ({error})")
    })?;
    found.next().ok_or_else(|| "the name stands for no address".into())
}

/// An address of this host, with or without a port.
fn parse_rdma(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok((address, 0).into());
    }
    text.parse().map_err(|_| "neither ADDRESS nor ADDRESS:PORT, as in 192.0.2.7 or [2001:db8::7]:7117".into())
}

/// Checked before the server takes the directory, so that a slip does not end a server that holds it.
fn check_memory(memory_bytes: u64, shards: usize, half_bytes: u64) -> Result<(), Failure> {
    let least = SHARD_BYTES_MIN.saturating_mul(shards as u64);
    if memory_bytes < least {
        let context = format!(
            "--memory {} is too little for {}: give at least {}",
            show_size(memory_bytes),
            plural(shards as u64, "shard"),
            show_size(least)
        );
        return Err(Failure::usage("serve", context));
    }
    if memory_bytes / 2 > half_bytes {
        say(&format!(
            "kelix: --memory {} is more than the machine has, or the control group that it runs in may have ({}): the system may end the server before it is full",
            show_size(memory_bytes),
            show_size(half_bytes * 2)
        ));
    }
    Ok(())
}

pub(crate) fn run(context: &Context, args: &ServeArgs) -> Result<(), Failure> {
    if args.background {
        return background::begin();
    }
    let usual = ServerConfig::default();
    let half_bytes = usual.memory_bytes;
    let mut config = ServerConfig {
        directory: context.run_directory("serve")?,
        shards: args.shards,
        memory_bytes: args.memory.unwrap_or(usual.memory_bytes),
        cache: args.cache,
        pin: !args.no_pin,
        take_over: args.take_over,
        view_lease: args.view_lease,
        listen: args.listen,
        rdma: match (&args.rdma, args.listen) {
            (Some(addresses), Some(listen)) if addresses.is_empty() => vec![(listen.ip(), 0).into()],
            (Some(addresses), _) => addresses.clone(),
            (None, _) => Vec::new(),
        },
        // What a mirror is told of trust is for the server that it follows, too.
        tls: match (&args.mirror_of, args.listen) {
            (Some(_), None) => None,
            _ => context.trust.server_tls()?,
        },
        tokens: args.tokens.as_deref().map_or(Ok(Vec::new()), tokens)?,
        snapshots: args.snapshots.as_ref().or(args.wal.as_ref()).map(|directory| SnapshotConfig {
            directory: directory.clone(),
            every: args.snapshot_every,
            keep: args.snapshot_keep.into(),
            fresh: args.fresh,
        }),
        wal: args.wal.as_ref().and_then(|_| {
            let durability = match args.durable {
                Some(DurableArgument::Off) => return None,
                None | Some(DurableArgument::Lazy) => Durability::Lazy,
                Some(DurableArgument::Commit) => Durability::Commit,
            };
            Some(WalConfig { durability, until: args.until })
        }),
        mirror: mirror(context, args)?,
        mirrors: args.mirrors.into(),
        ..usual
    };
    if let Some(file) = &args.namespaces {
        namespaces::read(file, &mut config)?;
    }
    if config.mirror.is_none() {
        check_memory(config.memory_bytes, config.shards, half_bytes)?;
    }
    let huge_pages = match args.huge_pages {
        HugePagesArgument::Auto => HugePages::Reserved,
        HugePagesArgument::Require => HugePages::Required,
        HugePagesArgument::Off => HugePages::Off,
    };
    // A mirror has as much as its primary, unless somebody says how much that may be.
    let memory_bytes = match &config.mirror {
        Some(_) => args.memory,
        None => Some(
            config.namespaces.iter().fold(config.memory_bytes, |sum, of| sum.saturating_add(of.memory_bytes)),
        ),
    };
    choose_huge_pages(huge_pages, memory_bytes)?;
    if let Some(address) = args.metrics.filter(|address| !address.ip().is_loopback()) {
        say(&format!(
            "kelix: --metrics {address} lets other hosts read the page, the statistics and the names of tables, without TLS or a token"
        ));
    }
    match (&args.node, &context.cluster) {
        (Some(node), _) => {
            if config.wal.is_none() {
                config.snapshots = None;
            }
            let suspect = args.suspect.unwrap_or(SUSPECT);
            let hosts = hosts(context, args, (node, &config))?;
            let cluster =
                node::Options { node, hosts, suspect, min_in_sync: args.min_in_sync, metrics: args.metrics };
            return node::run(context, cluster, config, &args.log);
        }
        (None, Some(cluster)) => {
            let context = format!("--cluster {cluster}: say which of its nodes this is, with --node");
            return Err(Failure::usage("serve", context));
        }
        (None, None) => {}
    }
    // What copies, as a mirror or to take over, or waits for its primary, has nothing that would have to be
    // ended in good order. First: whoever is told to end by then does not take over.
    let is_alone = Arc::new(AtomicBool::new(config.mirror.is_some() || config.take_over));
    for signal in TERM_SIGNALS {
        register_conditional_shutdown(*signal, 0, is_alone.clone())
            .map_err(|error| Failure::io("serve", "cannot watch for signals", &error))?;
    }
    // Before the server starts, so that a signal that comes meanwhile is not lost.
    let signals = watch_signals("serve", &[SIGHUP])?;
    let log = Log::begin(&args.log)?;
    end_on_panic();
    let manager = Manager::of_environment(args.take_over);
    kelix_server::prepare_process();
    let taken_over = args.take_over.then_some(&*config.directory);
    let metrics = args.metrics.map(|address| Metrics::reserve(address, taken_over, &config.directory));
    let metrics = metrics.transpose()?;
    let prepared = Server::prepare(&config)?;
    is_alone.store(false, Ordering::SeqCst);
    let statistics = prepared.statistics();
    let serves = watch(signals, &statistics, &manager, log.file())
        .map_err(|error| Failure::io("serve", "cannot start a thread that watches", &error))?;
    let server = prepared.serve()?;
    // The thread that heeds signals waits for the stopper, so it is there to take it.
    let stopper = server.stopper();
    let _ = serves.send(Box::new(move || stopper.stop()));
    let metrics = metrics.map(|metrics| metrics.serve(statistics)).transpose()?;
    let pages = pages_of(&server);
    tell_of_huge_pages(args.huge_pages, memory_bytes.unwrap_or(0), pages);
    manager.ready(&ready(false, &config, (&server, pages), metrics));
    // A reader that has gone is no reason not to serve.
    let _ = writeln!(std::io::stdout(), "{}", ready(context.json, &config, (&server, pages), metrics));
    if log.file().is_some() {
        background::leave_standard_error();
    }
    if server.wait() == Ended::Superseded {
        match server.successor() {
            Some(successor) => manager.succeeded(successor),
            None => manager.stopping("superseded by another server"),
        }
    }
    match server.stop() {
        Ended::Stopped => Ok(()),
        Ended::NotKept => {
            let context = "the last snapshot could not be taken, as the log says: what was written since the one before is lost";
            Err(Failure::new(Exit::Other, "serve", context))
        }
        Ended::Superseded => Err(superseded(&config.directory)),
    }
}

/// Has the process end as soon as any of its threads panics. A server without one of them would be half a
/// server, which nobody who watches it notices; and what a shard that panicked has in memory is nothing to
/// take a snapshot of.
pub(crate) fn end_on_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        tell(info);
        let thread = std::thread::current();
        error!(thread = thread.name(), "a thread panicked, by a fault of the program's: the server ends");
        // The log is written by a thread of its own.
        std::thread::sleep(LOG_WRITTEN_WITHIN);
        std::process::exit(Exit::Other as i32);
    }));
}

/// Where metrics are to be had, which nobody answers yet.
pub(crate) struct Metrics(Reserved, http::Ready);

impl Metrics {
    /// Does all that may fail. `taken_over` is the run directory of a server whose address this is until now.
    pub fn reserve(
        address: SocketAddr,
        taken_over: Option<&Path>,
        directory: &Path,
    ) -> Result<Metrics, Failure> {
        let reserved = Reserved::bind(address, taken_over);
        let reserved = reserved.map_err(|error| Failure::from(error).at("for metrics"))?;
        Ok(Metrics(reserved, http::Ready::new(directory)?))
    }

    /// Answers from now on, until the process ends. Returns the address.
    pub fn serve(self, statistics: Statistics) -> Result<SocketAddr, Failure> {
        self.1.serve(self.0.listen()?, statistics)
    }
}

/// What a signal has a server do that ends it in good order.
pub(crate) type End = Box<dyn Fn() + Send>;

/// Starts the threads that wait for signals, and that tell a manager who wants it that the server is alive.
/// They wait for the server to serve, and are told by what is returned.
pub(crate) fn watch(
    signals: Signals,
    statistics: &Statistics,
    manager: &Manager,
    log: Option<LogFile>,
) -> std::io::Result<Sender<End>> {
    let told = manager.clone();
    let (serves, begun) = channel::<End>();
    let heed = move || {
        if let Ok(end) = begun.recv() {
            heed_signals(signals, &*end, &told, log.as_ref());
        }
    };
    std::thread::Builder::new().name("kelix-signals".into()).spawn(heed)?;
    if let Some(time) = manager.watches() {
        let (statistics, manager) = (statistics.clone(), manager.clone());
        let vouch = move || vouch(&statistics, &manager, time);
        std::thread::Builder::new().name("kelix-watchdog".into()).spawn(vouch)?;
    }
    Ok(serves)
}

/// Does what signals say, until one ends the server.
fn heed_signals(mut signals: Signals, end: &dyn Fn(), manager: &Manager, log: Option<&LogFile>) {
    for signal in signals.forever() {
        if signal != SIGHUP {
            manager.stopping("finishing what has arrived");
            return end();
        }
        manager.reloading();
        match log.map(LogFile::reopen) {
            Some(Ok(())) => info!("the log was opened anew"),
            Some(Err(error)) => error!(%error, "the log cannot be opened anew: it goes on in the old file"),
            None => warn!("SIGHUP has nothing to do: there is no --log-file to open anew"),
        }
        manager.reloaded();
    }
}

/// Tells the manager over and over that the server is alive, for as long as all of its shards answer.
fn vouch(statistics: &Statistics, manager: &Manager, time: Duration) {
    loop {
        if statistics.shards_answer(time) {
            manager.alive();
        }
        std::thread::sleep(time);
    }
}

/// Bytes of the largest pages of a server's memory.
fn pages_of(server: &Server) -> u64 {
    server.statistics().json()[0]["page_bytes"].as_u64().unwrap_or(0)
}

/// Memory from which on its pages make a difference that is worth a word.
const HUGE_PAGES_MATTER: u64 = 1 << 30;

/// Says once what pages of 2 MiB would bring, where there could be some.
fn tell_of_huge_pages(args: HugePagesArgument, memory_bytes: u64, pages: u64) {
    if args == HugePagesArgument::Auto && memory_bytes >= HUGE_PAGES_MATTER && pages < HUGE_PAGE_BYTES {
        let count = memory_bytes / HUGE_PAGE_BYTES;
        let text = format!(
            "memory is in pages of {}; in pages of 2 MiB ten million records are read and written 1.2 to 1.5 \
             times as fast: `sysctl vm.nr_hugepages={count}` reserves as many as there may be (see --huge-pages)",
            show_size(pages)
        );
        // A service manager keeps a log, and a person sees a terminal.
        if std::io::stderr().is_terminal() {
            say(&format!("kelix: {text}"));
        } else {
            info!("{text}");
        }
    }
}

/// The line that tells that clients can connect.
fn ready(
    json: bool,
    config: &ServerConfig,
    (server, pages): (&Server, u64),
    metrics: Option<SocketAddr>,
) -> String {
    let term = server.term();
    let tcp = server.tcp_address().map(|address| address.to_string());
    if let Some(mirror) = &config.mirror {
        let lag = mirror.max_lag.map(|lag| format!("{lag:?}"));
        if json {
            return json!({
                "directory": config.directory.display().to_string(),
                "pid": std::process::id(),
                "term": term,
                "mirror_of": mirror.primary,
                "namespaces": mirror.namespaces,
                "metrics": metrics.map(|address| address.to_string()),
                "page_bytes": pages,
            })
            .to_string();
        }
        return format!(
            "serving {}: term {term}, a mirror of {}, shm in pages of {}{}{}",
            config.directory.display(),
            mirror.primary,
            show_size(pages),
            lag.map_or(String::new(), |lag| format!(", at most {lag} behind")),
            metrics.map_or(String::new(), |address| format!(", metrics at http://{address}/metrics")),
        );
    }
    let rdma: Vec<String> = server.rdma_addresses().iter().map(SocketAddr::to_string).collect();
    if json {
        return json!({
            "directory": config.directory.display().to_string(),
            "pid": std::process::id(),
            "term": term,
            "shards": config.shards,
            "memory_bytes": config.memory_bytes,
            "tcp": tcp,
            "rdma": rdma,
            "metrics": metrics.map(|address| address.to_string()),
            "page_bytes": pages,
        })
        .to_string();
    }
    format!(
        "serving {}: term {term}, {}, {} of memory, shm in pages of {}{}{}{}",
        config.directory.display(),
        plural(config.shards as u64, "shard"),
        show_size(config.memory_bytes),
        show_size(pages),
        tcp.map_or(String::new(), |address| format!(", tcp at {address}")),
        if rdma.is_empty() { String::new() } else { format!(", verbs at {}", rdma.join(" ")) },
        metrics.map_or(String::new(), |address| format!(", metrics at http://{address}/metrics")),
    )
}

fn superseded(directory: &Path) -> Failure {
    let lock = std::fs::read_to_string(RunDirectory(directory.to_path_buf()).lock()).unwrap_or_default();
    let who = lock.trim().parse::<u32>().map_or("another server".to_string(), |pid| format!("process {pid}"));
    let context = format!("{who} has taken over {}; this server has ended", directory.display());
    Failure::new(Exit::NoServer, "serve", context).named(kelix::ErrorKind::Superseded.name())
}
