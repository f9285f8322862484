//! A cluster on three hosts that are really apart, each with a node and a ZooKeeper; clients are on a fourth
//! one.
//!
//! ```text
//! [ 0  node 10.99.0.1  ZooKeeper .11 ]--+
//! [ 1  node 10.99.0.2  ZooKeeper .12 ]--+-- switch --[ clients 10.99.0.100 ]
//! [ 2  node 10.99.0.3  ZooKeeper .13 ]--+
//! ```
//!
//! 1. The switch, and the clients' host, are the network namespace of the test's thread ([`Hosts::start`]):
//!    who is started by it is there, too.
//! 2. What a host sends to the node of another one can be lost, or to its ZooKeeper, or to the clients; or
//!    all that it sends and is sent.
//! 3. Nodes speak TLS with each other, and with clients, and know each other by a token.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kelix::{Address, Client, ClientTls, ConnectOptions, Credentials, Identity, Session, SessionOptions};
use kelix_register::View;
use kelix_zookeeper::{Place, ZooKeeper};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::host::{Clocks, DEVICE, Host, Net, WORD, credentials, run};
use crate::members::{CLUSTER, Members};
use crate::process::{Process, program};
use crate::{RunDir, until_told};

/// How long nodes may take to be in sync, and to be chosen; and how long clients go on.
pub const WITHIN: Duration = Duration::from_secs(90);
const PORT: u16 = 7117;
/// Addresses of nodes, and by how much those of ZooKeepers are higher.
const NODES: [&str; 3] = ["10.99.0.1", "10.99.0.2", "10.99.0.3"];
const ZOOKEEPERS: [&str; 3] = ["10.99.0.11", "10.99.0.12", "10.99.0.13"];
const CLIENTS: &str = "10.99.0.100";

struct Node {
    /// First, so that the process has ended when its directory is removed.
    process: Option<Process>,
    state: RunDir,
}

/// The hosts, with what runs there.
pub struct Hosts {
    /// The register's, a server on each host. It ends before the hosts do.
    pub zookeeper: ZooKeeper,
    nodes: Vec<Node>,
    hosts: Vec<Host>,
    credentials: RunDir,
    options: Vec<String>,
}

/// Has this thread be on a host of its own, to which cables of others lead: the switch.
#[track_caller]
fn make_switch() {
    // SAFETY: file descriptors are not unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("root may do that");
    let ip = |arguments: &[&str]| drop(run(Command::new("ip").args(arguments)));
    ip(&["link", "set", "lo", "up"]);
    ip(&["link", "add", "switch", "type", "bridge"]);
    ip(&["address", "add", &format!("{CLIENTS}/24"), "dev", "switch"]);
    ip(&["link", "set", "switch", "up"]);
}

/// The end of a host's cable that is in the switch.
fn port(host: usize) -> String {
    format!("port{host}")
}

impl Members for Hosts {
    const WITHIN: Duration = WITHIN;

    fn zookeeper(&self) -> &ZooKeeper {
        &self.zookeeper
    }

    /// The newest view, once the register answers.
    #[track_caller]
    fn view(&self) -> View {
        let mut view = None;
        let what = || "the register tells a view".into();
        until_told(WITHIN, what, || {
            view = self.try_view();
            view.is_some()
        });
        view.expect("just seen")
    }
}

impl Hosts {
    /// Makes the hosts, whose clocks differ so, starts their nodes with these options, and waits until all
    /// are in sync. From then on this thread is on the clients' host.
    #[track_caller]
    pub fn start(clocks: [Clocks; 3], options: &[&str]) -> Hosts {
        make_switch();
        let mut hosts = Vec::new();
        for (number, clocks) in clocks.into_iter().enumerate() {
            let (host, port) = (Host::new(NODES[number], clocks), port(number));
            host.cable(&[&port]);
            host.configure(&[ZOOKEEPERS[number]]);
            run(Command::new("ip").args(["link", "set", &port, "master", "switch", "up"]));
            // What is sent to a ZooKeeper is answered at another address than what is sent to a node.
            for other in ZOOKEEPERS.iter().filter(|other| **other != ZOOKEEPERS[number]) {
                host.ip(&["route", "add", other, "dev", DEVICE, "src", ZOOKEEPERS[number]]);
            }
            hosts.push(host);
        }
        let place = |(host, address): (&Host, &str)| {
            let address: Ipv4Addr = address.parse().expect("an address");
            Place { within: host.within(), ..Place::new(address, &[]) }
        };
        let places = hosts.iter().zip(ZOOKEEPERS).map(place).collect();
        let zookeeper = ZooKeeper::start_at(places).expect("three ZooKeepers");
        let options = options.iter().map(|option| option.to_string()).collect();
        let nodes = NODES.map(|_| Node { state: RunDir::new(), process: None }).into();
        let mut hosts = Hosts { zookeeper, nodes, hosts, credentials: credentials(&NODES), options };
        (0..NODES.len()).for_each(|node| hosts.begin(node));
        hosts.until_in_sync(NODES.len());
        hosts
    }

    fn file(&self, name: &str) -> String {
        self.credentials.path().join(name).display().to_string()
    }

    /// The hosts but this one.
    pub fn others(&self, than: usize) -> impl Iterator<Item = usize> + use<> {
        (0..NODES.len()).filter(move |host| *host != than)
    }

    /// Has what a host sends to the node of another one get lost, or arrive again.
    #[track_caller]
    pub fn lose_way_to_node(&self, from: usize, to: usize, loses: bool) {
        self.hosts[from].lose_what_is_sent(NODES[to], loses);
    }

    /// Has what a host sends to the ZooKeepers of the other ones get lost, or arrive again.
    #[track_caller]
    pub fn lose_way_to_zookeepers(&self, from: usize, loses: bool) {
        self.others(from).for_each(|to| self.hosts[from].lose_what_is_sent(ZOOKEEPERS[to], loses));
    }

    /// Pulls the cable of a host out of the switch, or puts it in again.
    #[track_caller]
    pub fn plug(&self, host: usize, is_in: bool) {
        run(Command::new("ip").args(["link", "set", &port(host), if is_in { "up" } else { "down" }]));
    }

    /// Starts a node that does not run.
    pub fn begin(&mut self, node: usize) {
        let (listen, name) = (format!("{}:{PORT}", NODES[node]), node.to_string());
        let mut command = self.hosts[node].command(&program());
        command.env("XDG_STATE_HOME", self.nodes[node].state.path());
        command.args(["serve", "--cluster", CLUSTER, "--node", &name, "--no-pin", "--log", "info"]);
        command.args(["--memory", "256M", "--listen", &listen, "--zookeeper", &self.zookeeper.servers()]);
        command.args(["--tls-cert", &self.file("host.pem"), "--tls-key", &self.file("host.key")]);
        command.args(["--tls-ca", &self.file("ca.pem"), "--token-file", &self.file("token")]);
        command.args(&self.options);
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

    /// Ends a node as a service manager does, and waits until it has ended in good order.
    #[track_caller]
    pub fn terminate(&mut self, node: usize) {
        let mut process = self.nodes[node].process.take().expect("a node that runs");
        process.terminate();
        assert!(process.end().success());
    }

    /// Removes the register, as an operator does.
    #[track_caller]
    pub fn remove_register(&self) {
        let mut command = Command::new("java");
        command.args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        command.args(["-cp", "/usr/share/java/zookeeper.jar", "org.apache.zookeeper.ZooKeeperMain"]);
        command.args(["-server", &self.zookeeper.servers(), "deleteall", &format!("/kelix/{CLUSTER}")]);
        run(&mut command);
    }

    /// A session over TCP that goes on whichever node is primary.
    #[track_caller]
    pub fn session(&self) -> Session {
        self.try_session(WITHIN).expect("a primary")
    }

    /// The same which waits for a primary for so long.
    pub fn try_session(&self, within: Duration) -> kelix::Result<Session> {
        self.client(within)?.session_with(SessionOptions::default().retry_for(within))
    }

    /// The same that asks nobody again.
    #[track_caller]
    pub fn brief_session(&self) -> Session {
        let client = self.client(WITHIN).expect("a primary");
        client.session_with(SessionOptions::default().retry_for(Duration::ZERO)).expect("a session")
    }

    fn client(&self, within: Duration) -> kelix::Result<Client> {
        let list = NODES.map(|node| format!("{node}:{PORT}"));
        client_at(&Address::Tcp(list.join(",")), self.credentials.path(), within)
    }

    fn run(&self, node: usize) -> PathBuf {
        self.nodes[node].state.path().join("kelix").join(CLUSTER).join("run")
    }

    /// How old at most a replica says that it is.
    #[track_caller]
    pub fn lag(&self, node: usize) -> Option<Duration> {
        let told = Client::connect(self.run(node)).and_then(|client| client.statistics()).expect("a node");
        let lag_ms = told.server.mirror.expect("a replica").lag_ms;
        lag_ms.map(|ms| Duration::from_secs_f64(ms / 1000.0))
    }

    /// Programs on the host of a node, whose memory they read.
    #[track_caller]
    pub fn near(&self, node: usize) -> Near {
        Near { net: self.hosts[node].net(), run: self.run(node), credentials: self.credentials.path().into() }
    }
}

/// A program on the host of a node.
pub struct Near {
    net: Net,
    run: PathBuf,
    credentials: PathBuf,
}

impl Near {
    /// A session in shared memory. This thread is on that host from then on.
    #[track_caller]
    pub fn session(&self) -> Session {
        self.session_with(SessionOptions::default().retry_for(WITHIN))
    }

    /// The same with options.
    #[track_caller]
    pub fn session_with(&self, options: SessionOptions) -> Session {
        self.net.enter();
        let client = client_at(&Address::Directory(self.run.clone()), &self.credentials, WITHIN);
        client.and_then(|client| client.session_with(options)).expect("a node")
    }
}

fn client_at(address: &Address, directory: &Path, within: Duration) -> kelix::Result<Client> {
    let patience = ConnectOptions::default().retry_for(within);
    let (certificates, key) = (directory.join("host.pem"), directory.join("host.key"));
    let own = Identity { certificates: &certificates, key: &key };
    let tls = ClientTls::load(&directory.join("ca.pem"), Some(own))?;
    let credentials = Credentials::default().token(Some(WORD.into())).tls(Some(tls));
    Client::connect_within(address, credentials, patience)
}
