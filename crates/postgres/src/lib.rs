//! A PostgreSQL of one's own, in a directory that goes with it: for tests and benchmarks.

#![forbid(unsafe_code)]

use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use rustix::process::{Pid, Signal, getuid, kill_process};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// How long beginning may take. It takes a second or two.
const PATIENCE: Duration = Duration::from_secs(60);

/// A user who is nobody, since PostgreSQL refuses to run as root.
const NOBODY: u32 = 65_534;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A program of PostgreSQL's, in the PATH or where Debian has them.
fn program(name: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path =
        std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.is_file());
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut debian: Vec<PathBuf> = versions.map(|version| version.path().join("bin").join(name)).collect();
    debian.sort();
    let debian = debian.into_iter().rev().find(|path| path.is_file());
    debian
        .or(in_path)
        .ok_or_else(|| format!("{name} is not installed; on Debian: apt-get install postgresql"))
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
fn give(path: &Path, mode: u32) -> std::io::Result<()> {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode))?;
    if getuid().is_root() {
        chown(path, Some(NOBODY), Some(NOBODY))?;
    }
    Ok(())
}

/// Makes a data directory, whose users need no password.
fn init(data: &Path) -> Result<(), String> {
    let made = as_somebody(&program("initdb")?)
        .args(["--no-sync", "--auth=trust", "--username=ada", "--encoding=UTF8", "--locale=C.UTF-8", "-D"])
        .arg(data)
        .output()
        .map_err(text)?;
    match made.status.success() {
        true => Ok(()),
        false => Err(format!("initdb: {}", String::from_utf8_lossy(&made.stderr))),
    }
}

/// A server, which ends with this value.
pub struct Postgres {
    directory: TempDir,
    child: Child,
    port: u16,
    runtime: Runtime,
}

impl Postgres {
    /// A server that listens on a Unix socket, whose users need no password there. It runs on the cores of
    /// the calling thread.
    pub fn start() -> Result<Postgres, String> {
        Postgres::start_with(&["listen_addresses="], |_| {})
    }

    /// The same with settings, and files that are put into its data directory first.
    pub fn start_with(settings: &[&str], prepare: impl FnOnce(&Path)) -> Result<Postgres, String> {
        let directory = tempfile::Builder::new().prefix("kelix-postgres-").tempdir().map_err(text)?;
        give(directory.path(), 0o700).map_err(text)?;
        let data = directory.path().join("data");
        init(&data)?;
        prepare(&data);
        // Nobody else is likely to take it before the server does.
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let port = free.map_err(text)?.port();
        let log = std::fs::File::create(directory.path().join("log")).map_err(text)?;
        let mut command = as_somebody(&program("postgres")?);
        command.arg("-D").arg(&data).arg("-k").arg(directory.path()).arg("-p").arg(port.to_string());
        let usual = ["fsync=off", "shared_buffers=64MB", "max_connections=20"];
        for setting in usual.iter().chain(settings) {
            command.args(["-c", setting]);
        }
        let child = command.stdout(Stdio::null()).stderr(log).spawn().map_err(text)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(text)?;
        let mut server = Postgres { directory, child, port, runtime };
        server.wait()?;
        Ok(server)
    }

    fn wait(&mut self) -> Result<(), String> {
        let began = Instant::now();
        while self.run("select 1").is_err() {
            let ended = self.child.try_wait().map_err(text)?;
            if ended.is_some() || began.elapsed() > PATIENCE {
                let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
                return Err(format!("postgres does not serve: {log}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Its address over the Unix socket.
    pub fn address(&self) -> String {
        let directory = self.directory.path().to_string_lossy().replace('/', "%2F");
        format!("postgres://ada@{directory}:{}/postgres", self.port)
    }

    /// Its port, on a Unix socket and over TCP.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address over TCP.
    pub fn tcp_address(&self, user: &str, host: &str, parameters: &str) -> String {
        format!("postgres://{user}@{host}:{}/postgres?{parameters}", self.port)
    }

    /// Does something over a connection to the Unix socket, and takes leave.
    fn connected<R>(
        &self,
        work: impl AsyncFnOnce(&Client) -> Result<R, tokio_postgres::Error>,
    ) -> Result<R, String> {
        let done = self.runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&self.address(), NoTls).await?;
            let connection = tokio::spawn(connection);
            let done = work(&client).await;
            drop(client);
            let _ = connection.await;
            done
        });
        done.map_err(|error: tokio_postgres::Error| match error.as_db_error() {
            Some(own) => own.to_string(),
            None => error.to_string(),
        })
    }

    /// Runs statements.
    pub fn run(&self, statements: &str) -> Result<(), String> {
        self.connected(async |client| client.batch_execute(statements).await)
    }

    /// The rows of a query, as texts.
    pub fn rows(&self, query: &str) -> Result<Vec<Vec<Option<String>>>, String> {
        let rows = self.connected(async |client| client.simple_query(query).await)?;
        let row = |message: &SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|column| row.get(column).map(str::to_string)).collect())
            }
            _ => None,
        };
        Ok(rows.iter().filter_map(row).collect())
    }

    /// Has the rows of a query sent by `COPY`, looks at none of them, and tells how many bytes came.
    pub fn copy(&self, query: &str) -> Result<u64, String> {
        self.connected(async |client| {
            let mut stream = pin!(client.copy_out(&format!("copy ({query}\n) to stdout")).await?);
            let mut bytes = 0;
            while let Some(data) = stream.next().await {
                bytes += data?.len() as u64;
            }
            Ok(bytes)
        })
    }
}

/// Puts a file into a data directory as PostgreSQL wants it.
pub fn own_file(data: &Path, name: &str, text: &str) -> std::io::Result<()> {
    let path = data.join(name);
    std::fs::write(&path, text)?;
    give(&path, 0o600)
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // At once, but with its own processes and shared memory cleared away.
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process(pid, Signal::QUIT);
        }
        let _ = self.child.wait();
    }
}
