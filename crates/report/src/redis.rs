//! Redis, to be measured beside: how its server is started, what is said to it, and a connection that reads
//! what it answers.
//!
//! A command is an array of bulk strings (RESP2). Several may be sent together; they are answered in order.

use std::os::fd::OwnedFd;
use std::path::Path;

use crate::daemon::{Address, Daemon, Transport};
use crate::socket::{receive, send_all};

/// The name of the server's program.
pub const PROGRAM: &str = "redis-server";

/// The answer to a command that only has to be done.
pub const OK: &[u8] = b"+OK\r\n";
/// The answer to a `GET` of a key that is absent.
pub const ABSENT: &[u8] = b"$-1\r\n";
/// How the answer to a command begins for which there is no memory.
pub const FULL: &[u8] = b"-OOM";

/// The arguments of a server with so many threads that keeps nothing in files.
pub fn arguments(address: &Address, folder: &Path, threads: usize) -> Vec<String> {
    arguments_with(address, folder, threads, &[("--appendonly", "no")])
}

/// The arguments of a server that takes no snapshots, and what else it shall do.
fn arguments_with(address: &Address, folder: &Path, threads: usize, others: &[(&str, &str)]) -> Vec<String> {
    let (port, socket) = match address {
        Address::Unix(path) => (0, path.clone()),
        Address::Tcp(port) => (*port, folder.join("socket")),
    };
    let (port, socket, threads) = (port.to_string(), socket.display().to_string(), threads.to_string());
    let options = [
        ("--save", ""),
        ("--io-threads", &threads),
        ("--bind", "127.0.0.1"),
        ("--port", &port),
        ("--unixsocket", &socket),
    ];
    let all = options.iter().chain(others);
    all.flat_map(|(name, value)| [String::from(*name), String::from(*value)]).collect()
}

/// Starts a server of one thread, on the cores of the calling thread.
pub fn start(transport: Transport) -> Result<Daemon, String> {
    Daemon::start(PROGRAM, transport, |address, folder| arguments(address, folder, 1))
}

/// Starts a server of one thread, on the cores of the calling thread, that appends what it is told to a file
/// in this folder, and syncs that each second, as it comes.
pub fn start_appending(transport: Transport, appended: &Path) -> Result<Daemon, String> {
    let appended = appended.to_str().ok_or("the name of the folder is no text")?;
    let others = [("--appendonly", "yes"), ("--appendfsync", "everysec"), ("--dir", appended)];
    Daemon::start(PROGRAM, transport, |address, folder| arguments_with(address, folder, 1, &others))
}

/// Starts a server of one thread, on the cores of the calling thread, for a replica to follow at once.
pub fn start_primary() -> Result<Daemon, String> {
    let others = [("--appendonly", "no"), ("--repl-diskless-sync-delay", "0")];
    Daemon::start(PROGRAM, Transport::Tcp, |address, folder| arguments_with(address, folder, 1, &others))
}

/// Starts a replica of a server that listens on loopback, to be asked through a Unix socket.
pub fn start_replica(primary: &Daemon) -> Result<Daemon, String> {
    let Address::Tcp(port) = *primary.address() else {
        return Err("a replica follows over TCP".into());
    };
    let port = port.to_string();
    Daemon::start_as("redis-replica", PROGRAM, Transport::Unix, |address, folder| {
        let mut all = arguments(address, folder, 1);
        all.extend(["--replicaof", "127.0.0.1", &port].map(String::from));
        all
    })
}

/// Appends the head of an array of so many parts.
pub fn array(parts: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{parts}\r\n").as_bytes());
}

/// Appends a bulk string of so many bytes, which `write` appends.
pub fn bulk_string_of(bytes: usize, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(format!("${bytes}\r\n").as_bytes());
    write(out);
    out.extend_from_slice(b"\r\n");
}

/// Appends a bulk string.
pub fn bulk_string(bytes: &[u8], out: &mut Vec<u8>) {
    bulk_string_of(bytes.len(), out, |out| out.extend_from_slice(bytes));
}

/// Where the bytes stand in a bulk string of so many.
pub fn value_at(bytes: usize) -> usize {
    format!("${bytes}\r\n").len()
}

/// A connection to a server.
pub struct Connection {
    socket: OwnedFd,
    request: Vec<u8>,
    received: Vec<u8>,
    /// What of `received` has come, and what of that has been read.
    held: usize,
    at: usize,
}

impl Connection {
    /// Connects to a server.
    pub fn open(daemon: &Daemon) -> Result<Connection, String> {
        Ok(Connection::over(daemon.connect()?))
    }

    /// A connection over a socket that somebody else has opened.
    pub fn over(socket: OwnedFd) -> Connection {
        Connection { socket, request: Vec::new(), received: vec![0; 1 << 16], held: 0, at: 0 }
    }

    /// Begins a command of so many parts, itself among them. The others follow by [`Connection::part`].
    pub fn begin(&mut self, command: &[u8], parts: usize) {
        array(parts, &mut self.request);
        bulk_string(command, &mut self.request);
    }

    /// The next part of a command.
    pub fn part(&mut self, bytes: &[u8]) {
        bulk_string(bytes, &mut self.request);
    }

    /// Sends the commands that were put together.
    pub fn send(&mut self) -> Result<(), String> {
        send_all(&self.socket, &self.request).map_err(|error| error.to_string())?;
        self.request.clear();
        Ok(())
    }

    /// Sends commands that were put together elsewhere.
    pub fn send_made(&mut self, commands: &[u8]) -> Result<(), String> {
        send_all(&self.socket, commands).map_err(|error| error.to_string())
    }

    /// Does a command, and reads the one line that answers it: that it was done.
    pub fn done(&mut self, command: &[&[u8]]) -> Result<(), String> {
        self.say(command)?;
        self.expect_ok()
    }

    /// What the server tells of itself under this heading: a line `NAME:VALUE` each.
    pub fn info(&mut self, section: &[u8]) -> Result<String, String> {
        self.say(&[b"INFO", section])?;
        let told = self.bulk_string()?.ok_or("redis-server tells nothing of itself")?;
        Ok(String::from_utf8_lossy(told).into_owned())
    }

    fn say(&mut self, command: &[&[u8]]) -> Result<(), String> {
        array(command.len(), &mut self.request);
        command.iter().for_each(|part| bulk_string(part, &mut self.request));
        self.send()
    }

    /// Reads that a command was done.
    pub fn expect_ok(&mut self) -> Result<(), String> {
        match self.line()? {
            line if line == OK.trim_ascii_end() => Ok(()),
            line => Err(surprise(line)),
        }
    }

    /// Reads a number.
    pub fn integer(&mut self) -> Result<i64, String> {
        self.head(b':')
    }

    /// Reads the head of an array: of how many parts it is.
    pub fn array(&mut self) -> Result<i64, String> {
        self.head(b'*')
    }

    /// Reads a bulk string; `None`: the key is absent.
    pub fn bulk_string(&mut self) -> Result<Option<&[u8]>, String> {
        let Ok(bytes) = usize::try_from(self.head(b'$')?) else { return Ok(None) };
        while self.held - self.at < bytes + 2 {
            self.receive_more()?;
        }
        let begin = self.at;
        self.at += bytes + 2;
        Ok(Some(&self.received[begin..begin + bytes]))
    }

    /// The number of a line of this kind.
    fn head(&mut self, kind: u8) -> Result<i64, String> {
        let line = self.line()?;
        let number = line.strip_prefix(&[kind]).and_then(|rest| std::str::from_utf8(rest).ok()?.parse().ok());
        number.ok_or_else(|| surprise(line))
    }

    /// The next line, without its end.
    fn line(&mut self) -> Result<&[u8], String> {
        let mut from = self.at;
        loop {
            if let Some(end) = self.received[from..self.held].windows(2).position(|two| two == b"\r\n") {
                let (begin, end) = (self.at, from + end);
                self.at = end + 2;
                return Ok(&self.received[begin..end]);
            }
            from = from.max(self.held.saturating_sub(1));
            let moved = self.at;
            self.receive_more()?;
            // What was read is dropped by it.
            from -= moved - self.at;
        }
    }

    /// Receives more behind what is there.
    fn receive_more(&mut self) -> Result<(), String> {
        self.received.copy_within(self.at..self.held, 0);
        (self.at, self.held) = (0, self.held - self.at);
        if self.held == self.received.len() {
            self.received.resize(2 * self.held, 0);
        }
        match receive(&self.socket, &mut self.received[self.held..]) {
            Ok(bytes) if bytes > 0 => self.held += bytes,
            _ => return Err("redis-server does not answer".into()),
        }
        Ok(())
    }
}

fn surprise(line: &[u8]) -> String {
    format!("redis-server answered {:?}", String::from_utf8_lossy(line))
}
