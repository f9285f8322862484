//! What the service manager is told: the protocol of systemd's `sd_notify(3)`.
//!
//! A datagram of lines `NAME=VALUE` to the Unix socket that `NOTIFY_SOCKET` names: a path, or behind an `@` a
//! name that is in no file system. Without the variable nobody is told anything. A manager that does not
//! listen is no reason not to serve, so the only sign of that is a word in the log.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tracing::warn;

/// How long a manager may leave its socket full.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a manager may have set as the time after which a process that does not say that it is alive is dead,
/// if it has told that to another process only.
const WATCHDOG: Duration = Duration::from_secs(1);

/// Whoever started this process and wants to know how it goes.
#[derive(Clone)]
pub(crate) struct Manager {
    socket: Option<SocketAddr>,
    watchdog: Option<Duration>,
}

impl Manager {
    /// The one that the environment names, if it names one. `takes_over`: what it says of its watchdog it may
    /// have said to the server before only, whose place this one takes.
    pub fn of_environment(takes_over: bool) -> Manager {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let socket = variable("NOTIFY_SOCKET").and_then(|name| {
            let address = address(&name);
            address.inspect_err(|error| warn!(%error, "NOTIFY_SOCKET cannot be used")).ok()
        });
        let number = |name: &str| variable(name)?.to_str()?.parse::<u64>().ok();
        // The variables may be meant for the process that started this one.
        let is_meant = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|usec| *usec > 0 && is_meant);
        let watchdog = watchdog.map(Duration::from_micros).or(takes_over.then_some(WATCHDOG));
        Manager { watchdog: watchdog.filter(|_| socket.is_some()), socket }
    }

    /// Clients can connect; `status` is for people.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// The server takes on no more, and ends soon.
    pub fn stopping(&self, status: &str) {
        self.tell(&format!("STOPPING=1\nSTATUS={}", one_line(status)));
    }

    /// Another process of the same service has taken over what this one did, which ends. A manager that does
    /// not know that process heeds nothing of this.
    pub fn succeeded(&self, successor: u32) {
        self.tell(&format!("MAINPID={successor}"));
    }

    /// What the server was asked to do anew begins. [`Manager::reloaded`] follows.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let usec = now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={usec}"));
    }

    /// It is done.
    pub fn reloaded(&self) {
        self.tell("READY=1");
    }

    /// How often [`Manager::alive`] is expected, if it is: after twice this time the manager takes the server
    /// for dead.
    pub fn watches(&self) -> Option<Duration> {
        Some(self.watchdog? / 2)
    }

    /// The server goes on.
    pub fn alive(&self) {
        self.tell("WATCHDOG=1");
    }

    fn tell(&self, words: &str) {
        let Some(socket) = &self.socket else { return };
        let tell = || -> io::Result<()> {
            let datagrams = UnixDatagram::unbound()?;
            datagrams.set_write_timeout(Some(PATIENCE))?;
            datagrams.connect_addr(socket)?;
            datagrams.send(words.as_bytes()).map(drop)
        };
        if let Err(error) = tell() {
            warn!(%error, "the service manager cannot be told: {}", words.lines().next().unwrap_or_default());
        }
    }
}

/// The socket that a value of `NOTIFY_SOCKET` names.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        [b'/', ..] => SocketAddr::from_pathname(name),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is neither a path from / on nor an @name")),
    }
}

/// What follows a line's end would be a message of its own.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}
