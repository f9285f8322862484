//! Our server as people run it: a process of its own, with a directory for what it keeps.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use kelix::{Client, Session, Table};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// `kelix`, the program beside this one, which no variable of a person's own tells anything.
pub(crate) fn kelix() -> Result<Command, String> {
    let mut command = Command::new(kelix_program::beside("kelix").map_err(text)?);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("KELIX_")) {
        command.env_remove(name);
    }
    Ok(command)
}

/// What all servers that are started have as `--huge-pages`.
static HUGE_PAGES: OnceLock<String> = OnceLock::new();

/// Says with which pages servers are started from now on. It is said once.
pub(crate) fn set_huge_pages(wanted: &str) {
    let _ = HUGE_PAGES.set(wanted.into());
}

/// Sends a signal to a process.
pub(crate) fn signal(process: &Child, signal: Signal) -> Result<(), String> {
    kill_process(Pid::from_child(process), signal).map_err(text)
}

/// Kills a process, and waits until the process has gone.
pub(crate) fn kill(process: &mut Child) -> Result<(), String> {
    process.kill().map_err(text)?;
    process.wait().map(drop).map_err(text)
}

/// What names of snapshots end with.
const ENDING: &str = "kelix-snapshot";

/// A folder with all that servers need that come one after the other. It goes with this.
pub(crate) struct Home {
    folder: PathBuf,
    memory_bytes: u64,
}

impl Home {
    /// An empty one, for servers with so much memory.
    pub fn new(name: &str, memory_bytes: u64) -> Result<Home, String> {
        let folder = std::env::temp_dir().join(format!("kelix-bench-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        // What a person's own file sets is not for these servers.
        let huge_pages = HUGE_PAGES.get().map_or("auto", String::as_str);
        let config = format!("[serve]\nhuge-pages = \"{huge_pages}\"\n");
        std::fs::write(folder.join("config.toml"), config).map_err(text)?;
        Ok(Home { folder, memory_bytes })
    }

    /// A file or a folder below this one.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// What the last server has said on its standard error so far.
    pub fn errors(&self) -> String {
        std::fs::read_to_string(self.path("errors")).unwrap_or_default()
    }

    /// The newest snapshot.
    pub fn newest_snapshot(&self) -> Result<PathBuf, String> {
        let entries = std::fs::read_dir(self.path("snapshots")).map_err(text)?.flatten();
        let paths = entries.map(|entry| entry.path());
        let newest = paths.filter(|path| path.extension().is_some_and(|ending| ending == ENDING)).max();
        newest.ok_or_else(|| "there is no snapshot".into())
    }

    /// Starts a server with these options beside the usual ones, and waits until clients can connect.
    pub fn serve(&self, options: &[&str]) -> Result<Served, String> {
        let mut command = kelix()?;
        command
            .arg("serve")
            .args(["--memory", &self.memory_bytes.to_string()])
            .arg("--dir")
            .arg(self.path("run"))
            .arg("--config")
            .arg(self.path("config.toml"))
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(self.path("errors")).map_err(text)?);
        let mut child = command.spawn().map_err(|error| {
            format!("cannot start a server, {}: {error}", Path::new(command.get_program()).display())
        })?;
        let mut said = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut served = Served { child, directory: self.path("run"), _said: None };
        let mut ready = String::new();
        said.read_line(&mut ready).map_err(text)?;
        if ready.is_empty() {
            let _ = served.child.wait();
            return Err(format!("a server did not begin: {}", self.errors().trim()));
        }
        served._said = Some(said);
        Ok(served)
    }

    /// Starts a server with a log, whose answers do not wait for the disk.
    pub fn serve_with_log(&self, directory: &Path) -> Result<Served, String> {
        self.serve_with_log_and(directory, &[])
    }

    /// Starts such a server with more options.
    pub fn serve_with_log_and(&self, directory: &Path, options: &[&str]) -> Result<Served, String> {
        let directory = directory.to_str().ok_or("the name of the folder is no text")?;
        self.serve(&[&["--wal", directory, "--durable", "lazy"], options].concat())
    }

    /// Starts a server with snapshots.
    pub fn serve_with_snapshots(&self) -> Result<Served, String> {
        self.serve_with_snapshots_in(&self.path("snapshots"))
    }

    /// Starts a server with the snapshots of another folder.
    pub fn serve_with_snapshots_in(&self, directory: &Path) -> Result<Served, String> {
        self.serve(&["--snapshots", directory.to_str().ok_or("the name of the folder is no text")?])
    }

    /// Starts a server with snapshots and with more options.
    pub fn serve_with_snapshots_and(&self, options: &[&str]) -> Result<Served, String> {
        let directory = self.path("snapshots");
        let directory = directory.to_str().ok_or("the name of the folder is no text")?;
        self.serve(&[&["--snapshots", directory], options].concat())
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A running server. One that is dropped is killed, and takes no snapshot.
pub(crate) struct Served {
    child: Child,
    directory: PathBuf,
    /// Held, so that it can say what it likes.
    _said: Option<BufReader<ChildStdout>>,
}

impl Served {
    /// Where clients find it.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The number of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn client(&self) -> Result<Client, String> {
        Client::connect(self.directory()).map_err(text)
    }

    pub fn session(&self) -> Result<Session, String> {
        self.client()?.session().map_err(text)
    }

    /// The first shard's part of the statistics.
    pub fn shard(&self) -> Result<Value, String> {
        let told = serde_json::json!(self.client()?.statistics().map_err(text)?);
        Ok(told["shards"][0].clone())
    }

    /// Has it end in good order.
    pub fn end(mut self) -> Result<(), String> {
        signal(&self.child, Signal::TERM)?;
        let ended = self.child.wait().map_err(text)?;
        if ended.success() { Ok(()) } else { Err(format!("the server ended with {ended}")) }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A session with a server, and the table of the records.
pub(crate) struct Asker {
    pub session: Session,
    pub table: Table,
}

impl Asker {
    /// A session that finds the table, or makes it.
    pub fn open(server: &Served) -> Result<Asker, String> {
        let mut session = server.session()?;
        let table = session.create_table("records").map_err(text)?;
        Ok(Asker { session, table })
    }
}
