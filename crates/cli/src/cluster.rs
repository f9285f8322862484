//! `kelix cluster`: several nodes that hold the same, on this host.

mod status;

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kelix::FabricChoice;
use kelix_register::{
    Durable, MEMBERS_MAX, Member, Register, Swapped, View, ZooKeeperOptions, ZooKeeperRegister,
};
use kelix_server::ClusterDirectory;
use kelix_types::limits::SHARDS_MAX;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use self::status::status;
use crate::context::{Context, plural, say};
use crate::serve::DurableArgument;
use crate::units::{parse_lag, parse_size, within};
use crate::{Exit, Failure};

/// The cluster that is meant where none is named.
const USUAL: &str = "local";
/// The cluster that is meant: also by a node, which is told no other options of clients by variables.
pub(crate) fn named(context: &Context) -> String {
    let set = || std::env::var("KELIX_CLUSTER").ok().filter(|name| !name.is_empty());
    context.cluster.clone().or_else(set).unwrap_or_else(|| USUAL.into())
}

/// How long nodes may take to begin, and to end.
const BEGINS_WITHIN: Duration = Duration::from_secs(60);
const ENDS_WITHIN: Duration = Duration::from_secs(20);
/// How long a node may take to begin anew, of which something is asked meanwhile.
const ANEW_WITHIN: Duration = Duration::from_secs(2);
/// How long a node may take to answer that is looked for.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// Between two looks at the view.
const LOOK_EACH: Duration = Duration::from_millis(20);
/// Bytes of a node's log that are shown when it cannot begin.
const TAIL_BYTES: u64 = 2000;

/// Run several nodes that hold the same, so that one may die
///
/// Each node is a server with a process and a memory of its own. One of them is primary: clients write there,
/// and a write is answered when all nodes in sync have it. When the primary dies, or stands still, one of
/// these goes on in its place, and clients go over to it by themselves. What is written is lost when all
/// nodes end that are in sync, since it is in memory; unless they keep logs (--durable), with which they
/// begin again.
///
/// The nodes are on this host: a guard against programs that die, and not against a host that does. The
/// cluster is the one of --cluster, otherwise "local".
#[derive(clap::Subcommand)]
pub(crate) enum ClusterCommand {
    /// Start a cluster, or those of its nodes that do not run
    ///
    /// Nodes map what the primary writes for them, so that it counts at once. With --fabric tcp it is sent to
    /// them, and counts when they have said that they have it.
    #[command(after_long_help = "\
Examples:
  kelix cluster start --local 3
  kelix put --cluster local people prof001 --attr name=UVT
  kelix get --cluster local people prof001")]
    Start(StartArgs),
    /// Say what the nodes are doing
    ///
    /// Of each node its role, the last record that it has applied of those in the primary's streams, and how far
    /// it is behind, by the primary's statistics; a primary that stands still tells none. On several hosts the
    /// primary is asked over TCP, if --token-file is given or the cluster needs none.
    #[command(after_long_help = "\
Examples:
  kelix cluster status
  kelix cluster status --watch
  kelix cluster status --json")]
    Status(StatusArgs),
    /// Send a signal to a node: to see what happens then
    #[command(after_long_help = "\
Examples:
  kelix cluster kill 1
  kelix cluster kill 1 --signal STOP
  kelix cluster kill 1 --signal CONT")]
    Kill(KillArgs),
    /// Have another node in sync be primary
    ///
    /// Nothing is lost, and clients go on by themselves. The node that was primary begins anew and copies, so
    /// until that has ended there is one in sync less.
    #[command(after_long_help = "\
Examples:
  kelix cluster handover
  kelix cluster handover --to 2")]
    Handover(HandoverArgs),
    /// End a node in good order: a primary hands over first
    ///
    /// The last node in sync cannot leave, since what it has is gone with it; `kelix cluster stop` ends it.
    /// A node that is told to end by its service manager, or another SIGTERM, does the same.
    #[command(after_long_help = "\
Examples:
  kelix cluster leave 2
  kelix cluster start --local 3   # the node that left begins anew, of the release that is installed now")]
    Leave(LeaveArgs),
    /// End all nodes, and with them what they hold, unless they keep logs
    #[command(after_long_help = "\
Examples:
  kelix cluster stop")]
    Stop,
    /// Have a node go on with what it has, where those are gone for good who had more
    ///
    /// Nodes that have started and find no primary wait, and offer what their disks have. With --durable
    /// commit any that was in sync goes on by itself, and with lazy the one with most once all are there.
    /// Where some of these never come again this command names the best of those that wait; what only the
    /// others had is lost, and whoever has none of it begins empty. It changes nothing while a node lives
    /// that was in sync.
    #[command(after_long_help = "\
Examples:
  kelix cluster recover                 # who waits, with how much, and who is missing
  kelix cluster recover --accept-loss")]
    Recover(RecoverArgs),
}

#[derive(clap::Args)]
pub(crate) struct StartArgs {
    /// How many nodes, all of them on this host
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = within::<u16>(1, 16))]
    local: u16,
    /// Shards of each node
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within::<usize>(1, SHARDS_MAX as u64))]
    shards: usize,
    /// Most memory of each node [default: what a server takes, divided by the number of nodes]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,
    /// How long the primary may say nothing before another node goes on in its place; one whose process has
    /// ended is not waited for
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_lag)]
    suspect: Duration,
    /// How many nodes have to be in sync for writes to be accepted: with 2 no write is ever in the memory of one
    /// node only, and the last one left takes none [default: 1, or what the cluster was begun with]
    #[arg(long, value_name = "N", value_parser = within::<usize>(1, MEMBERS_MAX as u64))]
    min_in_sync: Option<usize>,
    /// Keep logs, each node below its own directory: a write is answered when the nodes in sync have it in
    /// memory, and is on their disks within 100 ms (lazy); or when it is on all their disks (commit)
    /// [default: off, or what the cluster was begun with]
    #[arg(long, value_name = "WHEN", value_enum)]
    durable: Option<DurableArgument>,
}

#[derive(clap::Args)]
pub(crate) struct RecoverArgs {
    /// Go on without what only those had who are missing
    #[arg(long)]
    accept_loss: bool,
    #[command(flatten)]
    register: RegisterArgs,
}

#[derive(clap::Args)]
pub(crate) struct HandoverArgs {
    /// The node that is to be primary [default: any in sync]
    #[arg(long, value_name = "NODE")]
    to: Option<String>,
    #[command(flatten)]
    register: RegisterArgs,
}

#[derive(clap::Args)]
pub(crate) struct LeaveArgs {
    /// The node
    node: String,
    #[command(flatten)]
    register: RegisterArgs,
}

#[derive(clap::Args)]
pub(crate) struct StatusArgs {
    /// Say so over and over, until interrupted
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    register: RegisterArgs,
}

#[derive(clap::Args)]
pub(crate) struct KillArgs {
    /// The node
    node: String,
    /// The signal
    #[arg(long, value_name = "SIGNAL", value_enum, default_value = "KILL", ignore_case = true)]
    signal: SignalArgument,
}

/// A signal that may be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
#[value(rename_all = "UPPER")]
enum SignalArgument {
    /// It ends at once.
    Kill,
    /// It ends in good order.
    Term,
    /// It stands still.
    Stop,
    /// It goes on.
    Cont,
}

/// Where the register of a cluster on several hosts is.
#[derive(clap::Args)]
pub(crate) struct RegisterArgs {
    /// The ZooKeeper in which a cluster on several hosts has its register: HOST:PORT, several with commas
    #[arg(long, value_name = "HOSTS")]
    pub zookeeper: Option<String>,
    /// Who this is for ZooKeeper: a file with USER:PASSWORD, for its scheme "digest"
    #[arg(long, value_name = "FILE", requires = "zookeeper")]
    pub zookeeper_auth: Option<PathBuf>,
}

impl RegisterArgs {
    /// How a node of a cluster asks the register, if that is in a ZooKeeper.
    pub fn options_of(&self, cluster: &str, node: &str) -> Result<Option<ZooKeeperOptions>, Failure> {
        let Some(servers) = &self.zookeeper else { return Ok(None) };
        let options = ZooKeeperOptions::new(servers, cluster, node)?;
        let Some(file) = &self.zookeeper_auth else { return Ok(Some(options)) };
        let cannot = |source: std::io::Error| {
            Failure::io("ask register", format!("cannot read {}", file.display()), &source)
        };
        let text = std::fs::read_to_string(file).map_err(cannot)?;
        let (user, password) = text.trim().split_once(':').ok_or_else(|| {
            Failure::usage("ask register", format!("{} is to have USER:PASSWORD", file.display()))
        })?;
        Ok(Some(options.digest(user, password)?))
    }

    fn options(&self, cluster: &str) -> Result<Option<ZooKeeperOptions>, Failure> {
        self.options_of(cluster, "operator")
    }
}

/// A cluster as it is found from here: on this host, or by its register.
struct Place {
    name: String,
    directory: ClusterDirectory,
    zookeeper: Option<ZooKeeperOptions>,
}

impl Place {
    fn register(&self) -> Result<Box<dyn Register>, Failure> {
        match &self.zookeeper {
            Some(options) => Ok(Box::new(ZooKeeperRegister::open(options)?)),
            None => Ok(self.directory.register()?),
        }
    }

    fn view(&self) -> Result<Option<View>, Failure> {
        match &self.zookeeper {
            Some(_) => Ok(self.register()?.read()?),
            None => Ok(self.directory.view()?),
        }
    }

    /// The process of a node and its boot number, if one lives. On another host a member does, as far as can be
    /// told.
    fn living(&self, node: &str) -> Option<(u32, u64)> {
        if self.zookeeper.is_none() {
            return self.directory.living(node);
        }
        let view = self.view().ok().flatten()?;
        view.members.iter().rev().find(|member| member.node == node).map(|member| (member.pid, member.boot))
    }

    /// The process of a node, as [`Place::living`] says. A node that is about to begin anew is waited for
    /// until then.
    fn living_soon(&self, node: &str, until: Instant) -> Option<(u32, u64)> {
        while self.living(node).is_none() && self.directory.begins_anew(node) && Instant::now() < until {
            std::thread::sleep(LOOK_EACH);
        }
        // A node may have begun between the two looks.
        self.living(node)
    }

    fn lives(&self, view: &View, boot: u64) -> bool {
        self.zookeeper.is_some() && view.member(boot).is_some() || self.directory.lives(view, boot)
    }

    /// The nodes that ever were on this host.
    fn nodes(&self) -> Vec<String> {
        if self.zookeeper.is_some() { Vec::new() } else { self.directory.nodes() }
    }
}

pub(crate) fn run(context: &Context, command: &ClusterCommand) -> Result<(), Failure> {
    let name = &named(context);
    let register = match command {
        ClusterCommand::Status(args) => Some(&args.register),
        ClusterCommand::Handover(args) => Some(&args.register),
        ClusterCommand::Leave(args) => Some(&args.register),
        ClusterCommand::Recover(args) => Some(&args.register),
        _ => None,
    };
    let zookeeper = register.and_then(|args| args.options(name).transpose()).transpose()?;
    let cluster = Place { name: name.into(), directory: ClusterDirectory::of(name)?, zookeeper };
    match command {
        ClusterCommand::Start(args) => start(context, &cluster, args),
        ClusterCommand::Status(args) => status(context, &cluster, args.watch),
        ClusterCommand::Kill(args) => kill(&cluster, args),
        ClusterCommand::Handover(args) => handover(context, &cluster, args.to.as_deref()),
        ClusterCommand::Leave(args) => leave(context, &cluster, &args.node),
        ClusterCommand::Stop => stop(context, &cluster),
        ClusterCommand::Recover(args) => recover(context, &cluster, args.accept_loss),
    }
}

fn failed(operation: &str, context: String) -> Failure {
    Failure::new(Exit::Other, operation, context)
}

/// What a node's log says last.
fn tail(cluster: &Place, node: &str) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(cluster.directory.node(node).join("log"))?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        // A line whose beginning is further up says nothing.
        let whole = if length > TAIL_BYTES { text.split_once('\n').map(|(_, whole)| whole) } else { None };
        Ok(whole.unwrap_or(&text).trim().to_string())
    };
    read().unwrap_or_default()
}

/// Starts the process of a node, which outlives this one.
fn spawn(
    cluster: &Place,
    node: &str,
    (args, memory, fabric): (&StartArgs, u64, Option<FabricChoice>),
    durable: Durable,
) -> Result<Child, Failure> {
    let cannot =
        |source: std::io::Error| Failure::io("start cluster", format!("cannot start node {node}"), &source);
    std::fs::create_dir_all(cluster.directory.node(node)).map_err(cannot)?;
    let log = cluster.directory.node(node).join("log");
    let log = OpenOptions::new().create(true).append(true).open(log).map_err(cannot)?;
    let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
    command.args(["serve", "--cluster", &cluster.name, "--node", node, "--log", "info"]);
    command.args(["--shards", &args.shards.to_string(), "--memory", &memory.to_string()]);
    command.args(["--suspect", &format!("{}ms", args.suspect.as_millis())]);
    if let Some(min) = args.min_in_sync {
        command.args(["--min-in-sync", &min.to_string()]);
    }
    if fabric == Some(FabricChoice::Tcp) {
        command.args(["--fabric", "tcp"]);
    }
    if durable != Durable::Off {
        command.arg("--wal").arg(cluster.directory.node(node).join("wal"));
        command.args(["--durable", durable.name()]);
    }
    command.stdin(Stdio::null()).stdout(log.try_clone().map_err(cannot)?).stderr(log);
    // A key that interrupts the terminal's commands is not for the nodes.
    command.process_group(0).spawn().map_err(cannot)
}

fn start(context: &Context, cluster: &Place, args: &StartArgs) -> Result<(), Failure> {
    if context.fabric == Some(FabricChoice::Verbs) {
        let context = "--fabric verbs: nodes of a cluster are on one host, and follow over shm or tcp";
        return Err(Failure::usage("start cluster", context));
    }
    if let Some(min) = args.min_in_sync.filter(|min| *min > usize::from(args.local)) {
        let context = format!("--min-in-sync {min}: so many are not in sync among {} nodes", args.local);
        return Err(Failure::usage("start cluster", context));
    }
    let usual = kelix_server::ServerConfig::default().memory_bytes / u64::from(args.local);
    let memory = args.memory.unwrap_or(usual);
    let waits = || say(&format!("kelix: waiting for another start of cluster {}", cluster.name));
    let _starting = cluster.directory.lock_start(waits)?;
    let before = cluster.view()?.map(|view| view.durable);
    let durable = match args.durable {
        None => before.unwrap_or_default(),
        Some(DurableArgument::Off) => Durable::Off,
        Some(DurableArgument::Lazy) => Durable::Lazy,
        Some(DurableArgument::Commit) => Durable::Commit,
    };
    // Nodes begin with what their disks have.
    let is_kept = before.is_some_and(|durable| durable != Durable::Off);
    if !is_kept && cluster.directory.forget()? {
        say(&format!("kelix: cluster {} begins, empty, in {}", cluster.name, cluster.directory.0.display()));
    }
    let nodes: Vec<String> = (1..=args.local).map(|node| node.to_string()).collect();
    let mut started = Vec::new();
    for node in &nodes {
        if !cluster.directory.runs(node) {
            started.push((node, spawn(cluster, node, (args, memory, context.fabric), durable)?));
        }
    }
    let began = Instant::now();
    loop {
        let view = cluster.view()?;
        let in_sync = |node: &String| {
            let view = view.as_ref()?;
            view.members.iter().find(|of| of.node == *node && view.is_in_sync(of.boot))
        };
        if nodes.iter().all(|node| in_sync(node).is_some()) {
            break;
        }
        for (node, child) in &mut started {
            if let Ok(Some(status)) = child.try_wait() {
                let context =
                    format!("node {node} has ended ({status}); its log says:\n{}", tail(cluster, node));
                return Err(failed("start cluster", context));
            }
        }
        if began.elapsed() > BEGINS_WITHIN {
            let late = nodes.iter().find(|node| in_sync(node).is_none()).expect("one is not in sync");
            let context = format!("node {late} is not in sync yet; its log says:\n{}", tail(cluster, late));
            return Err(failed("start cluster", context));
        }
        std::thread::sleep(LOOK_EACH);
    }
    status(context, cluster, false)
}

fn view_of(cluster: &Place) -> Result<View, Failure> {
    cluster.view()?.ok_or_else(|| {
        let context = format!(
            "there is no cluster {0}; start one: kelix --cluster {0} cluster start --local 3",
            cluster.name
        );
        Failure::new(Exit::NotThere, "look at cluster", context)
    })
}

fn send(pid: u32, signal: Signal) -> Result<(), Failure> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let sent = pid.map(|pid| kill_process(pid, signal));
    match sent {
        None | Some(Ok(()) | Err(rustix::io::Errno::SRCH)) => Ok(()),
        Some(Err(error)) => Err(Failure::io("signal node", "cannot send the signal", &error.into())),
    }
}

fn kill(cluster: &Place, args: &KillArgs) -> Result<(), Failure> {
    let Some((pid, _)) = cluster.living_soon(&args.node, Instant::now() + ANEW_WITHIN) else {
        let known = cluster.nodes();
        let known = if known.is_empty() {
            format!("there is no cluster {} on this host", cluster.name)
        } else {
            format!("cluster {} has: {}", cluster.name, known.join(", "))
        };
        let context = format!("no node {} runs; {known}", args.node);
        return Err(Failure::new(Exit::NotThere, "signal node", context));
    };
    let signal = match args.signal {
        SignalArgument::Kill => Signal::KILL,
        SignalArgument::Term => Signal::TERM,
        SignalArgument::Stop => Signal::STOP,
        SignalArgument::Cont => Signal::CONT,
    };
    send(pid, signal)
}

/// Changes the view as `change` says of the newest one, which may refuse. Returns the view in force.
fn change(cluster: &Place, change: impl Fn(&View) -> Result<View, Failure>) -> Result<View, Failure> {
    let mut register = cluster.register()?;
    loop {
        let view = view_of(cluster)?;
        let next = change(&view)?;
        if next == view {
            return Ok(view);
        }
        // Whoever swapped meanwhile has changed what was decided by.
        let next = next.next(RandomState::new().hash_one(std::process::id()));
        if register.swap(view.number, &next)? == Swapped::Done {
            return Ok(next);
        }
    }
}

/// The boot number of a node that runs and is a member.
fn boot_of(cluster: &Place, view: &View, node: &str, operation: &str) -> Result<u64, Failure> {
    let (began, known) = (Instant::now(), cluster.nodes());
    let mut view = view.clone();
    loop {
        let living = cluster.living(node).map(|(_, boot)| boot);
        if let Some(boot) = living.filter(|boot| view.member(*boot).is_some()) {
            return Ok(boot);
        }
        // One that was just deposed is a member again soon.
        let is_expected = living.is_some() || cluster.directory.begins_anew(node);
        if !is_expected || began.elapsed() > ANEW_WITHIN {
            let context = format!("no node {node} runs; the cluster has: {}", known.join(", "));
            return Err(Failure::new(Exit::NotThere, operation, context));
        }
        std::thread::sleep(LOOK_EACH);
        view = view_of(cluster)?;
    }
}

/// Waits until the view says so. `None`: that took too long.
fn await_view(cluster: &Place, told: impl Fn(&View) -> bool) -> Result<Option<View>, Failure> {
    let began = Instant::now();
    loop {
        let view = view_of(cluster)?;
        if told(&view) {
            return Ok(Some(view));
        }
        if began.elapsed() > ENDS_WITHIN {
            return Ok(None);
        }
        std::thread::sleep(LOOK_EACH);
    }
}

fn handover(context: &Context, cluster: &Place, to: Option<&str>) -> Result<(), Failure> {
    const OPERATION: &str = "hand over";
    let before = view_of(cluster)?.term;
    let named = change(cluster, |view| {
        let may = |boot: u64| view.is_in_sync(boot) && boot != view.primary && cluster.lives(view, boot);
        let successor = match to {
            Some(node) => Some(boot_of(cluster, view, node, OPERATION)?),
            None => view.in_sync.iter().copied().find(|boot| may(*boot)),
        };
        if successor == Some(view.primary) {
            return Ok(view.clone());
        }
        let Some(successor) = successor.filter(|boot| may(*boot)) else {
            let context = match to {
                Some(node) => format!("node {node} is not in sync yet; see `kelix cluster status`"),
                None => "no other node is in sync; see `kelix cluster status`".into(),
            };
            return Err(failed(OPERATION, context));
        };
        Ok(View { successor: Some(successor), ..view.clone() })
    })?;
    let chosen = named.successor.unwrap_or(named.primary);
    // Whoever is named may end just then: then it is named no more, or another one goes on.
    let ended = await_view(cluster, |view| {
        view.primary == chosen || view.successor.is_none() && view.number > named.number
    })?;
    let Some(view) = ended.filter(|view| view.primary == chosen) else {
        let context = "the node did not go on as primary; its log says why. Nothing has changed otherwise";
        return Err(failed(OPERATION, context.into()));
    };
    let node = view.primary_member().map_or("", |member| &member.node);
    if context.json {
        return context.print_json(
            &json!({ "cluster": cluster.name, "primary": node, "handed_over": view.term != before }),
        );
    }
    let text = if view.term == before { "was and is primary" } else { "is primary" };
    Ok(writeln!(std::io::stdout(), "cluster {}: node {node} {text}", cluster.name)?)
}

fn leave(context: &Context, cluster: &Place, node: &str) -> Result<(), Failure> {
    const OPERATION: &str = "leave cluster";
    let boot = boot_of(cluster, &view_of(cluster)?, node, OPERATION)?;
    change(cluster, |view| {
        if view.member(boot).is_none() || view.leaving.contains(&boot) {
            return Ok(view.clone());
        }
        if view.in_sync == [boot] {
            let context = format!(
                "node {node} is the only one in sync: what it has would be gone; `kelix cluster stop` ends it"
            );
            return Err(failed(OPERATION, context));
        }
        let mut next = view.clone();
        next.leaving.push(boot);
        Ok(next)
    })?;
    let began = Instant::now();
    while cluster.living(node).is_some_and(|(_, of)| of == boot) {
        if began.elapsed() > ENDS_WITHIN {
            let context = format!("node {node} does not end; its log says:\n{}", tail(cluster, node));
            return Err(failed(OPERATION, context));
        }
        std::thread::sleep(LOOK_EACH);
    }
    let view = view_of(cluster)?;
    if context.json {
        return context
            .print_json(&json!({ "cluster": cluster.name, "left": node, "in_sync": view.in_sync.len() }));
    }
    let in_sync = plural(view.in_sync.len() as u64, "node");
    Ok(writeln!(std::io::stdout(), "cluster {}: node {node} has left, {in_sync} in sync", cluster.name)?)
}

/// Says who waits for a primary, with how much, and has the best one go on, if a loss is accepted.
fn recover(context: &Context, cluster: &Place, accept_loss: bool) -> Result<(), Failure> {
    const OPERATION: &str = "recover cluster";
    let view = view_of(cluster)?;
    let serves = |boot: &u64| view.member(*boot).is_some_and(|member| answers(cluster, &view, member));
    if let Some(boot) = view.in_sync.iter().find(|boot| serves(boot)) {
        let node = view.member(*boot).map_or("", |member| &member.node);
        let context = format!("node {node} is in sync, and lives: nothing is to be recovered");
        return Err(failed(OPERATION, context));
    }
    let Some((best, offer)) = view.best_offer() else {
        let context = "no node waits for a primary: start those that there are, and they say what they have";
        return Err(failed(OPERATION, context.into()));
    };
    let missing: Vec<&str> = view.missing().map(|member| &member.node[..]).collect();
    let was_in_sync = view.was_in_sync(offer);
    if accept_loss {
        let (boot, number) = (best.boot, view.number);
        change(cluster, |view| {
            if view.number != number {
                let context = "the nodes have changed something meanwhile: look again";
                return Err(failed(OPERATION, context.into()));
            }
            Ok(View { successor: Some(boot), ..view.clone() })
        })?;
        let chosen = await_view(cluster, |view| view.primary == boot)?;
        if chosen.is_none() {
            let context = format!("node {} does not go on; its log says why", best.node);
            return Err(failed(OPERATION, context));
        }
    }
    if context.json {
        return context.print_json(&json!({
            "cluster": cluster.name, "node": best.node, "records": offer.records, "was_in_sync": was_in_sync,
            "missing": missing, "recovered": accept_loss,
        }));
    }
    let has = match offer.of {
        0 => "which has nothing".into(),
        _ if was_in_sync => format!("which was in sync, with {} records", offer.records),
        _ => format!("which was not in sync, with {} records", offer.records),
    };
    let mut text = format!("cluster {}: node {}, {has}, ", cluster.name, best.node);
    text += if accept_loss { "is primary" } else { "would go on with --accept-loss" };
    if !missing.is_empty() {
        text += &format!("; what only {} had is lost", missing.join(", "));
    }
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

/// Whether a member lives that was in sync: on another host, whether somebody answers at its address.
fn answers(cluster: &Place, view: &View, member: &Member) -> bool {
    if cluster.zookeeper.is_none() {
        return cluster.directory.lives(view, member.boot);
    }
    let addresses = member.address.to_socket_addrs().into_iter().flatten();
    let is_there = |address| TcpStream::connect_timeout(&address, ANSWERS_WITHIN).is_ok();
    // A node that waits at the same address is another instance of this one.
    let waits = view.members.iter().any(|of| view.waiting(of).is_some() && of.address == member.address);
    !waits && addresses.into_iter().any(is_there)
}

/// Ends the nodes, the primary last: a replica that outlived it would take its place for a moment.
fn stop(context: &Context, cluster: &Place) -> Result<(), Failure> {
    let primary = cluster.view()?.and_then(|view| Some(view.primary_member()?.node.clone()));
    let mut nodes = cluster.nodes();
    nodes.sort_by_key(|node| Some(node) == primary.as_ref());
    let began = Instant::now();
    let mut running = 0;
    for node in &nodes {
        let Some((pid, _)) = cluster.living_soon(node, began + ENDS_WITHIN) else {
            if cluster.directory.begins_anew(node) {
                return Err(failed("stop cluster", format!("node {node} begins anew, and has not yet")));
            }
            continue;
        };
        running += 1;
        // A process that stands still hears of nothing.
        send(pid, Signal::TERM)?;
        send(pid, Signal::CONT)?;
        while cluster.directory.runs(node) {
            if began.elapsed() > ENDS_WITHIN {
                return Err(failed("stop cluster", format!("node {node}, process {pid}, does not end")));
            }
            std::thread::sleep(LOOK_EACH);
        }
    }
    let stopped = json!({ "cluster": cluster.name, "stopped": running });
    match context.json {
        true => context.print_json(&stopped),
        false => {
            let running = plural(running, "node");
            Ok(writeln!(std::io::stdout(), "cluster {}: {running} stopped", cluster.name)?)
        }
    }
}
