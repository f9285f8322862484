//! A PostgreSQL of one's own, in a directory that goes with it.

use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getuid, kill_process};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// How long anything may take before a test gives up. Nothing takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A user who is nobody, since PostgreSQL refuses to run as root.
const NOBODY: u32 = 65_534;

/// A program of PostgreSQL's, in the PATH or where Debian has them.
fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path =
        std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.is_file());
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut debian: Vec<PathBuf> = versions.map(|version| version.path().join("bin").join(name)).collect();
    debian.sort();
    let debian = debian.into_iter().rev().find(|path| path.is_file());
    debian
        .or(in_path)
        .unwrap_or_else(|| panic!("no {name}: install the package postgresql (scripts/test-tools)"))
}

/// Runs something as a user that PostgreSQL accepts.
fn as_somebody(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    command.current_dir("/");
    if getuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// Gives a file to that user, with nobody else reading it.
fn give(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("our file");
    if getuid().is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).expect("root may");
    }
}

/// A server, which ends with the test.
pub struct Postgres {
    directory: TempDir,
    child: Child,
    pub port: u16,
    runtime: Runtime,
}

impl Postgres {
    /// A server that listens on a Unix socket, whose users need no password there.
    pub fn start() -> Postgres {
        Postgres::start_with(&[], |_| {})
    }

    /// The same with settings, and files that are put into its data directory first.
    pub fn start_with(settings: &[&str], prepare: impl FnOnce(&Path)) -> Postgres {
        let directory = tempfile::Builder::new().prefix("kelix-postgres-").tempdir().expect("a directory");
        give(directory.path(), 0o700);
        let data = directory.path().join("data");
        let made = as_somebody(&program("initdb"))
            .args([
                "--no-sync",
                "--auth=trust",
                "--username=ada",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
                "-D",
            ])
            .arg(&data)
            .output()
            .expect("initdb runs");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        prepare(&data);
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
        let log = std::fs::File::create(directory.path().join("log")).expect("a log");
        let mut command = as_somebody(&program("postgres"));
        command.arg("-D").arg(&data).arg("-k").arg(directory.path()).arg("-p").arg(port.to_string());
        command.args(["-c", "fsync=off", "-c", "shared_buffers=64MB", "-c", "max_connections=20"]);
        if settings.is_empty() {
            command.args(["-c", "listen_addresses="]);
        }
        for setting in settings {
            command.args(["-c", setting]);
        }
        command.stdout(Stdio::null()).stderr(log);
        let child = command.spawn().expect("postgres starts");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut server = Postgres { directory, child, port, runtime };
        server.wait();
        server
    }

    fn wait(&mut self) {
        let began = Instant::now();
        while self.try_run("select 1").is_err() {
            let ended = self.child.try_wait().expect("our child");
            let log = || std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            assert!(ended.is_none() && began.elapsed() < PATIENCE, "no server: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Its address over the Unix socket.
    pub fn address(&self) -> String {
        let directory = self.directory.path().to_str().expect("a name").replace('/', "%2F");
        format!("postgres://ada@{directory}:{}/postgres", self.port)
    }

    /// Its address over TCP.
    pub fn tcp_address(&self, user: &str, host: &str, parameters: &str) -> String {
        format!("postgres://{user}@{host}:{}/postgres?{parameters}", self.port)
    }

    fn try_run(&self, statements: &str) -> Result<(), tokio_postgres::Error> {
        self.runtime.block_on(async {
            let (client, connection) =
                tokio_postgres::connect(&self.address(), tokio_postgres::NoTls).await?;
            let connection = tokio::spawn(connection);
            let done = client.batch_execute(statements).await;
            drop(client);
            let _ = connection.await;
            done
        })
    }

    /// Runs statements.
    #[track_caller]
    pub fn run(&self, statements: &str) {
        if let Err(error) = self.try_run(statements) {
            panic!("{error}: {:?}", error.as_db_error());
        }
    }

    /// The rows of a query, as texts.
    #[track_caller]
    pub fn rows(&self, query: &str) -> Vec<Vec<Option<String>>> {
        let rows = self.runtime.block_on(async {
            let (client, connection) =
                tokio_postgres::connect(&self.address(), tokio_postgres::NoTls).await?;
            tokio::spawn(connection);
            client.simple_query(query).await
        });
        let rows = rows.unwrap_or_else(|error| panic!("{error}"));
        let row = |message: &tokio_postgres::SimpleQueryMessage| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|column| row.get(column).map(str::to_string)).collect())
            }
            _ => None,
        };
        rows.iter().filter_map(row).collect()
    }
}

/// Puts a file into a data directory as PostgreSQL wants it.
pub fn own_file(data: &Path, name: &str, text: &str) {
    let path = data.join(name);
    std::fs::write(&path, text).expect("written");
    give(&path, 0o600);
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // At once, but with its own processes and shared memory cleared away.
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process id");
        let _ = kill_process(pid, Signal::QUIT);
        let _ = self.child.wait();
    }
}
