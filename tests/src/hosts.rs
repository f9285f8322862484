//! A cluster as on several hosts: nodes that share nothing but a ZooKeeper, each with directories and an address of
//! its own, all of them on loopback.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kelix::{Address, Client, ConnectOptions, Credentials, Session, SessionOptions};
use kelix_register::View;
use kelix_zookeeper::ZooKeeper;

use crate::RunDir;
use crate::members::{CLUSTER, Members};
use crate::process::{Process, program};

/// How long nodes may take to be in sync, and to be chosen.
const WITHIN: Duration = Duration::from_secs(60);
const TOKEN: &str = "a-word-that-nodes-and-clients-know";

/// A node, with all that its host has of it.
struct Node {
    /// First, so that the process has ended when its directory is removed.
    process: Option<Process>,
    state: RunDir,
    address: String,
}

/// The nodes, and their ZooKeeper.
pub struct Hosts {
    /// The register's.
    pub zookeeper: ZooKeeper,
    token: RunDir,
    options: Vec<String>,
    nodes: Vec<Node>,
}

/// An address on loopback that no other test uses: the process's number is in it, and a number in the process.
fn own_address() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    assert!(number < 255, "a process has so many addresses");
    let pid = std::process::id();
    // Ports that the system gives nobody who asks for any.
    format!("127.{}.{}.{number}:{}", 64 + pid % 128, (pid >> 7) % 256, 10_000 + (pid >> 15) % 20_000)
}

impl Members for Hosts {
    const WITHIN: Duration = WITHIN;

    fn zookeeper(&self) -> &ZooKeeper {
        &self.zookeeper
    }

    #[track_caller]
    fn view(&self) -> View {
        self.try_view().expect("a view")
    }
}

impl Hosts {
    /// Starts so many nodes with a lease of so many milliseconds and other options, and a ZooKeeper of one server,
    /// and waits until all nodes are in sync.
    #[track_caller]
    pub fn start(nodes: usize, lease_ms: u64, options: &[&str]) -> Hosts {
        let zookeeper = ZooKeeper::start(1).unwrap();
        let token = RunDir::new();
        std::fs::write(token.path().join("token"), TOKEN).unwrap();
        let mut all = vec!["--lease".to_string(), format!("{lease_ms}ms")];
        all.extend(options.iter().map(|option| option.to_string()));
        let node = || Node { state: RunDir::new(), address: own_address(), process: None };
        let nodes: Vec<Node> = (0..nodes).map(|_| node()).collect();
        let mut hosts = Hosts { zookeeper, token, options: all, nodes };
        (0..hosts.nodes.len()).for_each(|node| hosts.begin(node));
        hosts.until_in_sync(hosts.nodes.len());
        hosts
    }

    /// A file with the word by which whoever comes over TCP is known.
    pub fn token_file(&self) -> String {
        self.token.path().join("token").display().to_string()
    }

    /// `kelix` as somebody on the host of a node would run it.
    pub fn kelix(&self, node: usize, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.env("XDG_STATE_HOME", self.nodes[node].state.path());
        command.args(arguments).args(["--cluster", CLUSTER]);
        command
    }

    /// Starts a node that does not run.
    pub fn begin(&mut self, node: usize) {
        let name = node.to_string();
        let mut command = self.kelix(node, &["serve", "--node", &name, "--log", "info", "--memory", "512M"]);
        command.args(["--zookeeper", &self.zookeeper.servers(), "--listen", &self.nodes[node].address]);
        command.args(["--token-file", &self.token_file()]).args(&self.options);
        self.nodes[node].process = Some(Process::run(&mut command));
    }

    /// The process of a node that runs.
    pub fn node(&mut self, node: usize) -> &mut Process {
        self.nodes[node].process.as_mut().expect("a node that runs")
    }

    /// Ends a node in the middle of whatever it does.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node].process.take().expect("a node that runs").kill();
    }

    /// Runs a command of `kelix cluster` with what it needs of the register. What it says.
    #[track_caller]
    pub fn order(&self, arguments: &[&str]) -> String {
        let servers = self.zookeeper.servers();
        let done = self.kelix(0, &[&["cluster"], arguments, &["--zookeeper", &servers]].concat()).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    /// Waits until the process of a node has ended in good order.
    #[track_caller]
    pub fn until_ended(&mut self, node: usize) {
        assert!(self.nodes[node].process.take().expect("a node that runs").end().success());
    }

    /// A session over TCP that goes on whichever node is primary.
    #[track_caller]
    pub fn session(&self) -> Session {
        self.session_with(SessionOptions::default())
    }

    /// The same with options.
    #[track_caller]
    pub fn session_with(&self, options: SessionOptions) -> Session {
        let list: Vec<&str> = self.nodes.iter().map(|node| &node.address[..]).collect();
        self.session_at(Address::Tcp(list.join(",")), options)
    }

    /// A session in shared memory of somebody on the host of a node.
    #[track_caller]
    pub fn session_on(&self, node: usize) -> Session {
        self.session_on_with(node, SessionOptions::default())
    }

    /// The same with options.
    #[track_caller]
    pub fn session_on_with(&self, node: usize, options: SessionOptions) -> Session {
        let run = self.nodes[node].state.path().join("kelix").join(CLUSTER).join("run");
        self.session_at(Address::Directory(run), options)
    }

    #[track_caller]
    fn session_at(&self, address: Address, options: SessionOptions) -> Session {
        let patience = ConnectOptions::default().retry_for(WITHIN);
        let credentials = Credentials::default().token(Some(TOKEN.into()));
        let client = Client::connect_within(&address, credentials, patience).expect("a primary");
        client.session_with(options.retry_for(WITHIN)).expect("a session")
    }
}
