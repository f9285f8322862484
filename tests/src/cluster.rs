//! A cluster of nodes on this host, each a process of its own, which are killed and stopped.

use std::path::{Path as FilePath, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use kelix::{Address, Client, ConnectOptions, Credentials, Path, Session, SessionOptions};
use kelix_register::View;
use kelix_server::ClusterDirectory;

use crate::process::{Process, program};
use crate::{RunDir, until_told};

/// How long nodes may take to be in sync again.
const IN_SYNC_WITHIN: Duration = Duration::from_secs(60);

/// The nodes of a cluster.
pub struct Cluster {
    /// First, so that all have ended when their directory is removed.
    nodes: Vec<Option<Process>>,
    state: RunDir,
    directory: ClusterDirectory,
    options: Vec<String>,
    /// Where each node keeps its log, in a directory of its own.
    logs: Option<PathBuf>,
}

impl Cluster {
    /// Starts so many nodes, with these options each, and waits until all are in sync.
    #[track_caller]
    pub fn start(nodes: usize, options: &[&str]) -> Cluster {
        Cluster::start_with_logs(nodes, None, options)
    }

    /// The same, whose nodes keep logs below this directory.
    #[track_caller]
    pub fn start_with_logs(nodes: usize, logs: Option<&FilePath>, options: &[&str]) -> Cluster {
        let logs = logs.map(FilePath::to_path_buf);
        let state = RunDir::new();
        let directory = ClusterDirectory(state.path().join("kelix").join("local"));
        let options = options.iter().map(|option| option.to_string()).collect();
        let nothing = (0..nodes).map(|_| None).collect();
        let mut cluster = Cluster { state, directory, options, logs, nodes: nothing };
        (0..nodes).for_each(|node| cluster.begin(node));
        cluster.until_in_sync(nodes);
        cluster
    }

    /// `kelix` as who uses this cluster would run it.
    pub fn kelix(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.env("XDG_STATE_HOME", self.state.path()).args(arguments);
        command
    }

    /// Starts a node that does not run.
    pub fn begin(&mut self, node: usize) {
        let name = node.to_string();
        let mut command = self.kelix(&["serve", "--cluster", "local", "--node", &name, "--log", "info"]);
        if !self.options.iter().any(|option| option == "--memory") {
            command.args(["--memory", "512M"]);
        }
        command.args(&self.options);
        if let Some(logs) = &self.logs {
            command.arg("--wal").arg(logs.join(&name));
        }
        if node == self.nodes.len() {
            self.nodes.push(None);
        }
        self.nodes[node] = Some(Process::run(&mut command));
    }

    /// Where the cluster has its files.
    pub fn directory(&self) -> &ClusterDirectory {
        &self.directory
    }

    /// The process of a node that runs.
    pub fn node(&mut self, node: usize) -> &mut Process {
        self.nodes[node].as_mut().expect("a node that runs")
    }

    /// Ends a node in the middle of whatever it does.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node].take().expect("a node that runs").kill();
    }

    /// Has the primary stand still while so many nodes are in sync, and says which node it is: what only the
    /// primary has would be lost with it.
    pub fn stop_primary(&mut self, nodes: usize) -> usize {
        let primary = self.primary();
        self.node(primary).stop_still();
        while self.primary() == primary && self.view().in_sync.len() < nodes {
            self.node(primary).go_on();
            self.until_in_sync(nodes);
            self.node(primary).stop_still();
        }
        primary
    }

    /// Ends all nodes at once: none sees another one end.
    pub fn kill_all(&mut self) {
        self.kill_all_on(|| ());
    }

    /// The same, with what happens before anybody could do anything more.
    pub fn kill_all_on(&mut self, happens: impl FnOnce()) {
        self.nodes.iter_mut().flatten().for_each(|node| node.stop_still());
        happens();
        self.nodes.iter_mut().filter_map(Option::take).for_each(|mut node| node.kill());
    }

    /// Runs a command of `kelix cluster`, which is to succeed once those are in sync whom it takes: on a
    /// machine that is in use a node may be let go at any time, and copies anew.
    #[track_caller]
    pub fn order(&self, arguments: &[&str]) {
        let said = std::cell::RefCell::default();
        let what = || format!("{arguments:?} is done: {}", said.borrow());
        until_told(IN_SYNC_WITHIN, what, || {
            let done = self.kelix(&[&["cluster"], arguments].concat()).output().unwrap();
            let text = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(done.status.success() || text.contains("in sync"), "{text}");
            *said.borrow_mut() = text;
            done.status.success()
        });
    }

    /// Has a node end in good order, and waits until its process has.
    #[track_caller]
    pub fn leave(&mut self, node: usize) {
        self.order(&["leave", &node.to_string()]);
        assert!(self.nodes[node].take().expect("a node that runs").end().success());
    }

    /// The same by a signal, as a service manager does it.
    #[track_caller]
    pub fn terminate(&mut self, node: usize) -> ExitStatus {
        let mut process = self.nodes[node].take().expect("a node that runs");
        process.terminate();
        process.end()
    }

    /// The newest view.
    pub fn view(&self) -> View {
        self.directory.view().expect("a register").expect("a view")
    }

    /// The node that is primary.
    pub fn primary(&self) -> usize {
        let view = self.view();
        view.primary_member().expect("a primary").node.parse().expect("a number")
    }

    /// Waits until so many nodes are in sync, all of which live.
    #[track_caller]
    pub fn until_in_sync(&self, nodes: usize) {
        let in_sync = || {
            let view = self.directory.view().ok().flatten()?;
            view.in_sync.iter().all(|boot| self.directory.lives(&view, *boot)).then_some(view.in_sync.len())
        };
        let what = || format!("{nodes} nodes are in sync: {:?}", self.directory.view());
        until_told(IN_SYNC_WITHIN, what, || in_sync() == Some(nodes));
    }

    /// Waits until a node is primary that lives.
    #[track_caller]
    pub fn until_primary(&self) {
        let lives = || {
            let view = self.directory.view().ok().flatten()?;
            Some(self.directory.lives(&view, view.primary))
        };
        let what = || format!("a node is primary: {:?}", self.directory.view());
        until_told(IN_SYNC_WITHIN, what, || lives() == Some(true));
    }

    /// Waits until another node than this one is primary.
    #[track_caller]
    pub fn until_other_primary(&self, than: usize) {
        until_told(IN_SYNC_WITHIN, || format!("node {than} is primary no more"), || self.primary() != than);
    }

    /// A session that goes on, whichever node is primary.
    #[track_caller]
    pub fn session(&self) -> Session {
        self.session_with(SessionOptions::default())
    }

    /// A session of a program that asks for nothing special.
    #[track_caller]
    pub fn usual_session(&self) -> Session {
        self.session_of("", SessionOptions::default())
    }

    /// The same which asks for whatever it reads.
    #[track_caller]
    pub fn session_by_message(&self) -> Session {
        self.session_with(SessionOptions::default().path(Path::Message))
    }

    /// A session that asks nobody again.
    #[track_caller]
    pub fn brief_session(&self) -> Session {
        self.session_of("", SessionOptions::default().retry_for(Duration::ZERO))
    }

    /// A session that goes on, in another namespace.
    #[track_caller]
    pub fn session_in(&self, namespace: &str) -> Session {
        self.session_of(namespace, SessionOptions::default().retry_for(IN_SYNC_WITHIN))
    }

    /// The same with options.
    #[track_caller]
    pub fn session_with(&self, options: SessionOptions) -> Session {
        self.session_of("", options.retry_for(IN_SYNC_WITHIN))
    }

    #[track_caller]
    fn session_of(&self, namespace: &str, options: SessionOptions) -> Session {
        // A node is in the view some moments before it serves.
        let patience = ConnectOptions::default().retry_for(IN_SYNC_WITHIN);
        let address = Address::Directory(self.directory.run());
        let credentials = Credentials::default().namespace(namespace);
        let client = Client::connect_within(&address, credentials, patience).expect("a primary");
        client.session_with(options).expect("a session")
    }
}
