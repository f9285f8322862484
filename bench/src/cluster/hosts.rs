//! Nodes as on several hosts: they share nothing but a ZooKeeper, and each reaches that, and is reached, by
//! ways that can be cut ([`Way`]).
//!
//! ```text
//! clients, other nodes -- way --> node -- way --> ZooKeeper
//! ```
//!
//! A primary begins no connection to another node, so one whose two ways are cut is cut off.

use std::fs::File;
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use kelix::{Address, Client, ConnectOptions, Credentials, SessionOptions};
use kelix_register::{Register, View, ZooKeeperOptions, ZooKeeperRegister};
use kelix_zookeeper::ZooKeeper;
use rustix::process::Signal;

use super::failover::{Group, Why};
use super::load::Store;
use super::nodes::PATIENCE;
use super::text;
use super::way::{Way, own_address};
use crate::served::{self, Home};

/// The lease of a primary, and how long it may say nothing, in milliseconds: what nodes have where nobody
/// says something else.
pub(super) const LEASE_MS: u64 = 2000;
pub(super) const SUSPECT_MS: u64 = 500;
/// The name of the cluster.
const CLUSTER: &str = "bench";
const TOKEN: &str = "a-word-that-nodes-and-clients-know";
/// Between two looks at the view.
const LOOKS: Duration = Duration::from_millis(5);

/// Whether there is ZooKeeper; it is said if there is none.
pub(super) fn is_there() -> bool {
    let installed = kelix_zookeeper::check_installed();
    if let Err(why) = &installed {
        eprintln!("failover_kill_zk, failover_stop_zk and failover_cut are left out: {why}");
    }
    installed.is_ok()
}

/// A node, with its ways.
struct Node {
    listens: SocketAddr,
    way_in: Way,
    way_to_zookeeper: Way,
    process: Option<Child>,
}

/// The nodes, and their ZooKeeper.
pub(super) struct Hosts {
    nodes: Vec<Node>,
    memory_bytes: u64,
    register: ZooKeeperRegister,
    // Ended behind the nodes, as are the folders.
    _zookeeper: ZooKeeper,
    home: Home,
}

impl Hosts {
    /// Starts a ZooKeeper and so many nodes, and waits until all are in sync.
    pub fn start(nodes: usize, memory_bytes: u64) -> Result<Hosts, String> {
        let home = Home::new("cluster-hosts", memory_bytes)?;
        std::fs::write(home.path("token"), TOKEN).map_err(text)?;
        let zookeeper = ZooKeeper::start(1)?;
        let at: SocketAddr = zookeeper.address(0).parse().map_err(text)?;
        let options = ZooKeeperOptions::new(&zookeeper.servers(), CLUSTER, "bench").map_err(text)?;
        let register = ZooKeeperRegister::open(&options).map_err(text)?;
        let node = |_| {
            let listens = own_address()?;
            let (way_in, way_to_zookeeper) = (Way::to(listens)?, Way::to(at)?);
            Ok(Node { listens, way_in, way_to_zookeeper, process: None })
        };
        let nodes = (0..nodes).map(node).collect::<Result<Vec<Node>, String>>()?;
        let mut hosts = Hosts { nodes, memory_bytes, register, _zookeeper: zookeeper, home };
        (0..hosts.nodes.len()).try_for_each(|node| hosts.begin(node))?;
        hosts.wait_until_whole()?;
        Ok(hosts)
    }

    /// Starts a node that does not run.
    fn begin(&mut self, node: usize) -> Result<(), String> {
        let name = node.to_string();
        let errors = File::create(self.home.path(&format!("errors-{name}"))).map_err(text)?;
        let mut command = served::kelix()?;
        let Node { listens, way_in, way_to_zookeeper, .. } = &self.nodes[node];
        command.env("XDG_STATE_HOME", self.home.path(&format!("node-{name}")));
        command.args(["serve", "--cluster", CLUSTER, "--node", &name, "--no-pin"]);
        command.args(["--listen", &listens.to_string(), "--advertise", &way_in.address().to_string()]);
        command.args(["--zookeeper", &way_to_zookeeper.address().to_string()]);
        command.args(["--lease", &format!("{LEASE_MS}ms"), "--suspect", &format!("{SUSPECT_MS}ms")]);
        command.args(["--memory", &self.memory_bytes.to_string(), "--token-file"]);
        command.arg(self.home.path("token")).arg("--config").arg(self.home.path("config.toml"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        let process = command.spawn().map_err(|error| format!("cannot start a node: {error}"))?;
        self.nodes[node].process = Some(process);
        Ok(())
    }

    fn view(&mut self) -> Result<Option<View>, String> {
        self.register.read().map_err(text)
    }

    fn process(&mut self, node: usize) -> Result<&mut Child, String> {
        self.nodes[node].process.as_mut().ok_or_else(|| "a node that does not run".into())
    }

    fn cut(&self, node: usize, is_cut: bool) {
        self.nodes[node].way_in.cut(is_cut);
        self.nodes[node].way_to_zookeeper.cut(is_cut);
    }
}

impl Group for Hosts {
    /// Over TCP, as somebody on a host without a node.
    fn store(&self) -> Result<Box<dyn Store>, String> {
        let addresses: Vec<String> =
            self.nodes.iter().map(|node| node.way_in.address().to_string()).collect();
        let credentials = Credentials::default().token(Some(TOKEN.into()));
        let patience = ConnectOptions::default().retry_for(PATIENCE);
        let address = Address::Tcp(addresses.join(","));
        let client = Client::connect_within(&address, credentials, patience).map_err(text)?;
        let options = SessionOptions::default().retry_for(PATIENCE);
        let mut session = client.session_with(options).map_err(text)?;
        let table = session.create_table("records").map_err(text)?;
        Ok(Box::new((session, table)))
    }

    fn wait_until_whole(&mut self) -> Result<(), String> {
        let (began, nodes) = (Instant::now(), self.nodes.len());
        loop {
            let in_sync = self.view()?.map_or(0, |view| view.in_sync.len());
            if in_sync == nodes {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("{in_sync} of {nodes} nodes are in sync"));
            }
            std::thread::sleep(LOOKS);
        }
    }

    fn lose(&mut self, why: Why) -> Result<usize, String> {
        let view = self.view()?.ok_or("there is no view")?;
        let member = view.primary_member().ok_or("a view without its primary")?;
        let primary = member.node.parse().map_err(text)?;
        match why {
            Why::Killed => served::kill(self.process(primary)?)?,
            Why::Stopped => served::signal(self.process(primary)?, Signal::STOP)?,
            Why::CutOff => self.cut(primary, true),
            Why::HandedOver | Why::Left => return Err("nodes on several hosts are not asked to".into()),
        }
        Ok(primary)
    }

    fn mend(&mut self, node: usize, why: Why) -> Result<(), String> {
        match why {
            Why::Killed => self.begin(node),
            Why::Stopped => served::signal(self.process(node)?, Signal::CONT),
            Why::CutOff => {
                self.cut(node, false);
                Ok(())
            }
            Why::HandedOver | Why::Left => Ok(()),
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for process in self.nodes.iter_mut().filter_map(|node| node.process.as_mut()) {
            let _ = served::kill(process);
        }
    }
}
