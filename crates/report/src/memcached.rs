//! memcached, to be measured beside: how its server is started, what is said to it, and a connection that
//! gets and sets.
//!
//! One `get` names all keys of a batch. Sets of a batch are quiet meta sets, behind which a `mn` has all of
//! them acknowledged at once; a single one is acknowledged by itself.

use std::ops::{ControlFlow, Range};
use std::os::fd::OwnedFd;

use crate::daemon::{Address, Daemon, Transport};
use crate::socket::{receive, send_all};

/// The name of the server's program.
pub const PROGRAM: &str = "memcached";

/// The line behind the values that a `get` found.
pub const END: &[u8] = b"END\r\n";
/// The answer to a set that is not quiet.
pub const STORED: &[u8] = b"HD\r\n";
/// How the answer to a set begins for which there is no memory, though others may be evicted.
pub const FULL: &[u8] = b"SERVER_ERROR out of memory";
/// The answer behind quiet sets.
pub const ALL_DONE: &[u8] = b"MN\r\n";

/// How a server is set up.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Memory for items.
    pub memory_bytes: u64,
    /// Threads that serve.
    pub threads: usize,
    /// Whether items make way when memory is full, as in a cache. Otherwise new ones are refused, and may
    /// have up to 16 MiB.
    pub evicts: bool,
    /// Binary logarithm of the number of buckets. `None`: memcached's own, which grows.
    pub hash_power: Option<u32>,
}

impl Settings {
    /// The server's arguments, at an address.
    pub fn arguments(&self, address: &Address) -> Vec<String> {
        let megabytes = self.memory_bytes >> 20;
        let mut words = format!("-U 0 -t {} -m {megabytes}", self.threads);
        if !self.evicts {
            words += " -M -I 16m";
        }
        if let Some(power) = self.hash_power {
            words += &format!(" -o hashpower={power}");
        }
        // It wants to be told that it may run as root.
        if rustix::process::geteuid().is_root() {
            words += " -u root";
        }
        let mut arguments: Vec<String> = words.split(' ').map(String::from).collect();
        arguments.extend(match address {
            Address::Unix(path) => vec!["-s".into(), path.display().to_string()],
            Address::Tcp(port) => vec!["-l".into(), "127.0.0.1".into(), "-p".into(), port.to_string()],
        });
        arguments
    }

    /// Starts a server, on the cores of the calling thread.
    pub fn start(&self, transport: Transport) -> Result<Daemon, String> {
        Daemon::start(PROGRAM, transport, |address, _| self.arguments(address))
    }
}

/// Appends the question for these keys.
pub fn say_get<K: AsRef<[u8]>>(keys: impl IntoIterator<Item = K>, request: &mut Vec<u8>) {
    request.extend_from_slice(b"get");
    for key in keys {
        request.push(b' ');
        request.extend_from_slice(key.as_ref());
    }
    request.extend_from_slice(b"\r\n");
}

/// Appends a set of a key to a value of so many bytes, which `write` appends. A quiet one is answered only if
/// it fails.
pub fn say_set(
    key: &[u8],
    bytes: usize,
    is_quiet: bool,
    request: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>),
) {
    request.extend_from_slice(b"ms ");
    request.extend_from_slice(key);
    request.extend_from_slice(format!(" {bytes}{}\r\n", if is_quiet { " q" } else { "" }).as_bytes());
    write(request);
    request.extend_from_slice(b"\r\n");
}

/// Appends what stands behind quiet sets.
pub fn say_all(request: &mut Vec<u8>) {
    request.extend_from_slice(b"mn\r\n");
}

/// Appends what answers a `get` for a key that is there, but for the value, which `write` appends.
pub fn answer_value(key: &[u8], bytes: usize, answer: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    answer.extend_from_slice(b"VALUE ");
    answer.extend_from_slice(key);
    answer.extend_from_slice(format!(" 0 {bytes}\r\n").as_bytes());
    write(answer);
    answer.extend_from_slice(b"\r\n");
}

/// Where the value stands in the answer to a `get` of one key of so many bytes.
pub fn value_at(key_bytes: usize, value_bytes: usize) -> usize {
    b"VALUE ".len() + key_bytes + format!(" 0 {value_bytes}\r\n").len()
}

/// A connection to a server.
pub struct Connection {
    socket: OwnedFd,
    request: Vec<u8>,
    received: Vec<u8>,
    /// What of `received` has come, and what of that was looked at.
    held: usize,
    at: usize,
}

impl Connection {
    /// Connects to a server.
    pub fn open(daemon: &Daemon) -> Result<Connection, String> {
        let socket = daemon.connect()?;
        Ok(Connection { socket, request: Vec::new(), received: vec![0; 1 << 16], held: 0, at: 0 })
    }

    /// Gets the values of so many keys at once, and shows them in order until told to break off; `None`:
    /// there is none.
    pub fn get<K: AsRef<[u8]>>(
        &mut self,
        count: usize,
        key: impl Fn(usize) -> K,
        mut each: impl FnMut(usize, Option<&[u8]>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, String> {
        self.request.clear();
        say_get((0..count).map(&key), &mut self.request);
        self.send()?;
        // All of it has come before the next question is asked, also if no more is wanted.
        let mut flow = ControlFlow::Continue(());
        let mut each = |index, value: Option<&[u8]>| {
            if flow.is_continue() {
                flow = each(index, value);
            }
        };
        let mut next = 0;
        loop {
            let line = self.line()?;
            let said = &self.received[line.clone()];
            let Some(words) = said.strip_prefix(b"VALUE ") else {
                if said != END.trim_ascii_end() {
                    return Err(self.surprise(line));
                }
                (next..count).for_each(|index| each(index, None));
                return Ok(flow);
            };
            let mut words = words.split(|byte| *byte == b' ');
            let found = words.next().unwrap_or(&[]);
            let bytes = words.nth(1).and_then(|bytes| std::str::from_utf8(bytes).ok()?.parse().ok());
            // They come in the order in which they were asked for.
            let place = (next..count).find(|index| key(*index).as_ref() == found);
            let (Some(bytes), Some(place)) = (bytes, place) else {
                return Err(self.surprise(line));
            };
            (next..place).for_each(|index| each(index, None));
            let value = self.block(bytes)?;
            each(place, Some(&self.received[value]));
            next = place + 1;
        }
    }

    /// Does the quiet sets that `say` appends. How many were refused.
    pub fn set(&mut self, say: impl FnOnce(&mut Vec<u8>)) -> Result<u64, String> {
        self.request.clear();
        say(&mut self.request);
        say_all(&mut self.request);
        self.send()?;
        let mut refused = 0;
        loop {
            let line = self.line()?;
            match &self.received[line.clone()] {
                said if said == ALL_DONE.trim_ascii_end() => return Ok(refused),
                said if said.starts_with(b"SERVER_ERROR") => refused += 1,
                _ => return Err(self.surprise(line)),
            }
        }
    }

    /// Sends what was said, to which all of the answer is to come.
    fn send(&mut self) -> Result<(), String> {
        (self.held, self.at) = (0, 0);
        send_all(&self.socket, &self.request).map_err(|error| error.to_string())
    }

    fn receive_more(&mut self) -> Result<(), String> {
        if self.held == self.received.len() {
            self.received.resize(self.held * 2, 0);
        }
        match receive(&self.socket, &mut self.received[self.held..]).map_err(|error| error.to_string())? {
            0 => Err("memcached has ended the connection".into()),
            bytes => {
                self.held += bytes;
                Ok(())
            }
        }
    }

    /// The next line of the answer, without its end.
    fn line(&mut self) -> Result<Range<usize>, String> {
        let (begin, mut looked) = (self.at, self.at);
        loop {
            let found = self.received[looked..self.held].iter().position(|byte| *byte == b'\n');
            if let Some(end) = found.map(|found| looked + found) {
                self.at = end + 1;
                return Ok(begin..end.saturating_sub(1).max(begin));
            }
            looked = self.held;
            self.receive_more()?;
        }
    }

    /// So many bytes of the answer, and the end of their line.
    fn block(&mut self, bytes: usize) -> Result<Range<usize>, String> {
        let begin = self.at;
        while self.held < begin + bytes + 2 {
            self.receive_more()?;
        }
        self.at = begin + bytes + 2;
        Ok(begin..begin + bytes)
    }

    fn surprise(&self, line: Range<usize>) -> String {
        format!("memcached answered {:?}", String::from_utf8_lossy(&self.received[line]))
    }
}
