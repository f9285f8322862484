//! The same items in memcached, a process of its own that is reached over its Unix socket.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;

use kelix_report::daemon::{Address, Daemon, Transport};
use kelix_report::socket::{receive, send_all};

use crate::{Keyed, Keys, text};

/// Values that are set before their answers are looked at.
const SETS: usize = 64;

/// A connection to a memcached.
pub struct Memcached<'d> {
    daemon: &'d Daemon,
    socket: OwnedFd,
    batch: usize,
    request: Vec<u8>,
    received: Vec<u8>,
    /// What of `received` has come.
    held: usize,
}

/// Starts one with so much memory, on the cores of the calling thread.
pub fn start(memory_bytes: u64) -> Result<Daemon, String> {
    Daemon::start("memcached", Transport::Unix, |address, _| {
        let megabytes = (memory_bytes >> 20).max(64).to_string();
        let mut arguments: Vec<String> =
            ["-U", "0", "-M", "-I", "16m", "-t", "1", "-m", &megabytes, "-o", "hashpower=20"]
                .map(String::from)
                .into();
        match address {
            Address::Unix(path) => arguments.extend(["-s".into(), path.display().to_string()]),
            Address::Tcp(port) => arguments.extend(["-l".into(), format!("127.0.0.1:{port}")]),
        }
        // It wants to be told that it may run as root.
        if rustix::process::geteuid().is_root() {
            arguments.extend(["-u".into(), "root".into()]);
        }
        arguments
    })
}

impl<'d> Memcached<'d> {
    /// A connection, by which so many keys are got at once.
    pub fn connect(daemon: &'d Daemon, batch: usize) -> Result<Memcached<'d>, String> {
        let socket = daemon.connect()?;
        Ok(Memcached { daemon, socket, batch, request: Vec::new(), received: vec![0; 1 << 16], held: 0 })
    }

    /// Another connection to the same.
    pub fn again(&self, batch: usize) -> Result<Memcached<'d>, String> {
        Memcached::connect(self.daemon, batch)
    }

    /// Receives more of an answer.
    fn receive_more(&mut self) -> Result<(), String> {
        if self.held == self.received.len() {
            self.received.resize(self.held * 2, 0);
        }
        match receive(&self.socket, &mut self.received[self.held..]).map_err(text)? {
            0 => Err("memcached has ended the connection".into()),
            bytes => {
                self.held += bytes;
                Ok(())
            }
        }
    }

    /// The line of the answer that begins at `at`, and where what follows it begins.
    fn line(&mut self, at: usize) -> Result<(usize, usize), String> {
        let mut looked = at;
        loop {
            let found = self.received[looked..self.held].iter().position(|byte| *byte == b'\n');
            if let Some(end) = found.map(|found| looked + found) {
                return Ok((end.saturating_sub(1), end + 1));
            }
            looked = self.held;
            self.receive_more()?;
        }
    }

    /// Takes what was asked for by `get` with some of these keys.
    fn take(
        &mut self,
        keys: &Keys,
        wanted: std::ops::Range<usize>,
        each: &mut impl FnMut(usize, Option<&[u8]>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, String> {
        // All of it has come before the next question is asked, also if no more is wanted.
        let mut flow = ControlFlow::Continue(());
        let mut each = |index, value: Option<&[u8]>| {
            if flow.is_continue() {
                flow = each(index, value);
            }
        };
        let (mut at, mut next) = (0, wanted.start);
        self.held = 0;
        loop {
            let (end, behind) = self.line(at)?;
            let line = &self.received[at..end];
            let Some(words) = line.strip_prefix(b"VALUE ") else {
                if line != b"END" {
                    return Err(format!("memcached answered {:?}", String::from_utf8_lossy(line)));
                }
                (next..wanted.end).for_each(|index| each(index, None));
                return Ok(flow);
            };
            let mut words = words.split(|byte| *byte == b' ');
            let key = words.next().unwrap_or(&[]);
            let said = words.nth(1).and_then(|bytes| std::str::from_utf8(bytes).ok());
            let bytes: usize = said.and_then(|bytes| bytes.parse().ok()).ok_or("memcached told no length")?;
            while next < wanted.end && keys.get(next) != key {
                each(next, None);
                next += 1;
            }
            if next == wanted.end {
                return Err("memcached sent a value that was not asked for".into());
            }
            while self.held < behind + bytes + 2 {
                self.receive_more()?;
            }
            each(next, Some(&self.received[behind..behind + bytes]));
            next += 1;
            at = behind + bytes + 2;
        }
    }
}

impl Keyed for Memcached<'_> {
    fn put(&mut self, items: &[(Vec<u8>, Vec<u8>)]) -> Result<(), String> {
        for items in items.chunks(SETS) {
            self.request.clear();
            for (key, value) in items {
                self.request.extend_from_slice(b"set ");
                self.request.extend_from_slice(key);
                self.request.extend_from_slice(format!(" 0 0 {}\r\n", value.len()).as_bytes());
                self.request.extend_from_slice(value);
                self.request.extend_from_slice(b"\r\n");
            }
            send_all(&self.socket, &self.request).map_err(text)?;
            self.held = 0;
            let mut at = 0;
            for _ in items {
                let (end, behind) = self.line(at)?;
                if &self.received[at..end] != b"STORED" {
                    let line = String::from_utf8_lossy(&self.received[at..end]).into_owned();
                    return Err(format!("memcached answered {line:?} to a set"));
                }
                at = behind;
            }
        }
        Ok(())
    }

    fn get(
        &mut self,
        keys: &Keys,
        mut each: impl FnMut(usize, Option<&[u8]>) -> ControlFlow<()>,
    ) -> Result<(), String> {
        for first in (0..keys.len()).step_by(self.batch) {
            let wanted = first..keys.len().min(first + self.batch);
            self.request.clear();
            self.request.extend_from_slice(b"get");
            for index in wanted.clone() {
                self.request.push(b' ');
                self.request.extend_from_slice(keys.get(index));
            }
            self.request.extend_from_slice(b"\r\n");
            send_all(&self.socket, &self.request).map_err(text)?;
            if self.take(keys, wanted, &mut each)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}
