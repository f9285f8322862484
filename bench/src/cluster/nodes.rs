//! The nodes of a cluster: each a process, all below one folder.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kelix::statistics::FollowerStatistics;
use kelix::{Client, ConnectOptions, Credentials, FabricChoice, Session, SessionOptions, Table};
use kelix_report::daemon::processor_time;
use kelix_server::ClusterDirectory;
use rustix::process::Signal;

use super::text;
use crate::served::{self, Home};

/// How long anything may take that is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at the view.
const LOOKS: Duration = Duration::from_millis(1);

/// A cluster, whose nodes end with this.
pub(crate) struct Nodes {
    home: Home,
    options: Vec<String>,
    pub directory: ClusterDirectory,
    running: Vec<Option<Child>>,
}

impl Nodes {
    /// Starts so many nodes, and waits until all are in sync.
    pub fn start(name: &str, nodes: usize, memory_bytes: u64) -> Result<Nodes, String> {
        Nodes::start_with(name, nodes, memory_bytes, &[])
    }

    /// Starts so many nodes with more options of `kelix serve`.
    pub fn start_with(
        name: &str,
        nodes: usize,
        memory_bytes: u64,
        options: &[&str],
    ) -> Result<Nodes, String> {
        let home = Home::new(&format!("cluster-{name}"), memory_bytes)?;
        let directory = ClusterDirectory(home.path("kelix").join("bench"));
        let running = (0..nodes).map(|_| None).collect();
        let mut all = vec!["--memory".to_string(), memory_bytes.to_string()];
        all.extend(options.iter().map(|option| option.to_string()));
        let mut cluster = Nodes { home, options: all, directory, running };
        (0..nodes).try_for_each(|node| cluster.begin(node))?;
        cluster.wait_until_in_sync(nodes)?;
        Ok(cluster)
    }

    fn errors(&self, node: usize) -> PathBuf {
        self.home.path(&format!("errors-{node}"))
    }

    /// What a node has said on its standard error since it was begun.
    pub fn said(&self, node: usize) -> String {
        std::fs::read_to_string(self.errors(node)).unwrap_or_default()
    }

    fn folder(&self) -> PathBuf {
        self.home.path("")
    }

    /// `kelix` with arguments, about this cluster.
    fn kelix(&self, arguments: &[&str]) -> Result<Command, String> {
        let mut command = served::kelix()?;
        command.env("XDG_STATE_HOME", self.folder()).args(arguments).args(["--cluster", "bench", "--config"]);
        command.arg(self.home.path("config.toml")).stdin(Stdio::null());
        Ok(command)
    }

    /// Starts a node.
    pub fn begin(&mut self, node: usize) -> Result<(), String> {
        let errors = File::create(self.errors(node)).map_err(text)?;
        let mut command = self.kelix(&["serve", "--node", &node.to_string(), "--no-pin"])?;
        command.args(&self.options).stdout(Stdio::null()).stderr(errors);
        self.running[node] = Some(command.spawn().map_err(|error| format!("cannot start a node: {error}"))?);
        Ok(())
    }

    /// Waits until so many nodes are in sync, all of which live.
    pub fn wait_until_in_sync(&self, nodes: usize) -> Result<(), String> {
        let began = Instant::now();
        loop {
            let view = self.directory.view().map_err(text)?;
            let in_sync = view.map_or(0, |view| {
                let lives = view.in_sync.iter().all(|boot| self.directory.lives(&view, *boot));
                if lives { view.in_sync.len() } else { 0 }
            });
            if in_sync == nodes {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("{in_sync} of {nodes} nodes are in sync"));
            }
            std::thread::sleep(LOOKS);
        }
    }

    /// The node that is primary.
    pub fn primary(&self) -> Result<usize, String> {
        let view = self.directory.view().map_err(text)?.ok_or("there is no view")?;
        let member = view.primary_member().ok_or("a view without its primary")?;
        member.node.parse().map_err(text)
    }

    fn running(&mut self, node: usize) -> Result<&mut Child, String> {
        self.running[node].as_mut().ok_or_else(|| "a node that does not run".into())
    }

    /// Kills a node.
    pub fn kill(&mut self, node: usize) -> Result<(), String> {
        served::kill(self.running(node)?)?;
        self.running[node] = None;
        Ok(())
    }

    /// Has another node be primary, as somebody would who is about to end the one that is.
    pub fn hand_over(&self) -> Result<(), String> {
        self.order(&["handover"])
    }

    /// Has a node end in good order, and waits until it has.
    pub fn leave(&mut self, node: usize) -> Result<(), String> {
        self.order(&["leave", &node.to_string()])?;
        self.running(node)?.wait().map_err(text)?;
        self.running[node] = None;
        Ok(())
    }

    /// Runs a command of `kelix cluster`.
    fn order(&self, arguments: &[&str]) -> Result<(), String> {
        let done = self.kelix(&[&["cluster"], arguments].concat())?.output().map_err(text)?;
        match done.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
        }
    }

    /// Sends a signal to a node.
    pub fn signal(&mut self, node: usize, signal: Signal) -> Result<(), String> {
        served::signal(self.running(node)?, signal)
    }

    /// A session that goes on, whichever node is primary, and the table of the records.
    pub fn session(&self) -> Result<(Session, Table), String> {
        self.session_with(SessionOptions::default())
    }

    /// A session over TCP that goes on, and the table of the records.
    pub fn session_over_tcp(&self) -> Result<(Session, Table), String> {
        self.session_with(SessionOptions::default().fabric(FabricChoice::Tcp))
    }

    fn session_with(&self, options: SessionOptions) -> Result<(Session, Table), String> {
        let address = kelix::Address::Directory(self.directory.run());
        let token = std::fs::read_to_string(self.directory.0.join("token")).map_err(text)?;
        let credentials = Credentials::default().token(Some(token.trim().into()));
        let patience = ConnectOptions::default().retry_for(PATIENCE);
        let client = Client::connect_within(&address, credentials, patience).map_err(text)?;
        let mut session = client.session_with(options.retry_for(PATIENCE)).map_err(text)?;
        let table = session.create_table("records").map_err(text)?;
        Ok((session, table))
    }

    /// What a node tells of itself as a replica.
    pub fn replica(&self, node: usize) -> Result<FollowerStatistics, String> {
        let client = Client::connect(self.directory.node_run(&node.to_string())).map_err(text)?;
        client.statistics().map_err(text)?.server.mirror.ok_or_else(|| "a node that is no replica".into())
    }

    /// Processor time of the primary, and of all others.
    pub fn processor_times(&self) -> Result<[Duration; 2], String> {
        let primary = self.primary()?;
        let mut times = [Duration::ZERO; 2];
        for (node, child) in self.running.iter().enumerate() {
            times[usize::from(node != primary)] +=
                child.as_ref().map_or(Duration::ZERO, |of| processor_time(of.id()));
        }
        Ok(times)
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for child in self.running.iter_mut().flatten() {
            let _ = served::kill(child);
        }
    }
}
