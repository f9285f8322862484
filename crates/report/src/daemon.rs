//! A peer's server: a process of its own, ended with the run.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to begin.
const START: Duration = Duration::from_secs(20);
/// Longest time without an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// How a server is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// A socket in the file system.
    Unix,
    /// Loopback.
    Tcp,
}

/// Where a server listens.
#[derive(Clone, Debug)]
pub enum Address {
    /// This socket.
    Unix(PathBuf),
    /// This port of loopback.
    Tcp(u16),
}

impl Address {
    /// An address that is free, for a server whose folder this is.
    pub fn free(transport: Transport, folder: &Path) -> std::io::Result<Address> {
        match transport {
            Transport::Unix => Ok(Address::Unix(folder.join("socket"))),
            // Nobody else is likely to take it before the server does.
            Transport::Tcp => {
                Ok(Address::Tcp(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port()))
            }
        }
    }

    fn connect(&self) -> std::io::Result<OwnedFd> {
        match self {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                Ok(stream.into())
            }
            Address::Tcp(port) => {
                let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, *port))?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                Ok(stream.into())
            }
        }
    }
}

/// A running server.
pub struct Daemon {
    child: Child,
    folder: PathBuf,
    address: Address,
}

/// Whether a program of the distribution's is there.
pub fn is_installed(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok()
}

impl Daemon {
    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The number of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Starts a program of the distribution's, with the arguments that make it listen at an address, on the
    /// cores of the calling thread.
    pub fn start(
        program: &'static str,
        transport: Transport,
        arguments: impl Fn(&Address, &Path) -> Vec<String>,
    ) -> Result<Daemon, String> {
        Daemon::start_as(program, program, transport, arguments)
    }

    /// The same under a name of its own, where several of one program run at once.
    pub fn start_as(
        name: &str,
        program: &'static str,
        transport: Transport,
        arguments: impl Fn(&Address, &Path) -> Vec<String>,
    ) -> Result<Daemon, String> {
        let folder = std::env::temp_dir().join(format!("kelix-bench-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let address = Address::free(transport, &folder).map_err(|error| error.to_string())?;
        let log = |name| File::create(folder.join(name)).map_or(Stdio::null(), Stdio::from);
        let spawned = Command::new(program)
            .args(arguments(&address, &folder))
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(log("log"))
            .stderr(log("errors"))
            .spawn();
        let child = spawned.map_err(|error| {
            let _ = std::fs::remove_dir_all(&folder);
            match error.kind() {
                std::io::ErrorKind::NotFound => {
                    format!("{program} is not installed; on Debian: apt-get install memcached redis-server")
                }
                _ => format!("cannot start {program}: {error}"),
            }
        })?;
        let mut daemon = Daemon { child, folder, address };
        let began = Instant::now();
        while daemon.address.connect().is_err() {
            let ended = daemon.child.try_wait().ok().flatten();
            if ended.is_some() || began.elapsed() > START {
                return Err(format!("{program} does not serve: {}", daemon.said()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(daemon)
    }

    /// A connection to it.
    pub fn connect(&self) -> Result<OwnedFd, String> {
        self.address.connect().map_err(|error| format!("cannot connect: {error}"))
    }

    /// What it has said last.
    fn said(&self) -> String {
        let read = |name| std::fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        let all = read("log") + &read("errors");
        all.lines().rev().take(3).collect::<Vec<_>>().join("; ")
    }

    /// Processor time of all its threads.
    pub fn processor_time(&self) -> Duration {
        processor_time(self.child.id())
    }

    /// Its resident memory, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        resident_bytes(self.child.id())
    }
}

/// Processor time of all threads of a process.
pub fn processor_time(pid: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let time = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(tasks.flatten().filter_map(time).sum())
}

/// Resident memory of a process, in bytes.
pub fn resident_bytes(pid: u32) -> u64 {
    status_number(pid, "VmRSS").unwrap_or(0) * 1024
}

/// A number of the system's status of a process: memory in KiB, or a count. `None`: there is no such process
/// or number.
pub fn status_number(pid: u32, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
