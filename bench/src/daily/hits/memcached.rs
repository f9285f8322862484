//! memcached as a cache: a `get` of all keys, and quiet sets, ended by a `mn` that says that all were done.

use std::os::fd::OwnedFd;

use super::cache::{Cache, Contents};
use crate::daily::text;
use crate::peers::protocol::{Memcached as Protocol, Protocol as _, listening};
use kelix_report::daemon::{Daemon, Transport};
use kelix_report::socket::{receive, send_all};

/// A server, and a connection to it.
pub(super) struct Memcached {
    /// Held for as long as it is to run.
    _daemon: Daemon,
    socket: OwnedFd,
    request: Vec<u8>,
    received: Vec<u8>,
    /// What of `received` has come, and what of that was looked at.
    held: usize,
    at: usize,
}

impl Memcached {
    /// Starts one with so much memory for items.
    pub fn start(memory_bytes: u64) -> Result<Memcached, String> {
        let arguments = |address: &_, _: &_| {
            let memory = (memory_bytes >> 20).to_string();
            let mut arguments = ["-U", "0", "-t", "1", "-m", &memory].map(String::from).to_vec();
            arguments.extend(listening(address));
            arguments
        };
        let daemon = Daemon::start(Protocol::PROGRAM, Transport::Unix, arguments)?;
        let socket = daemon.connect()?;
        let received = vec![0; 1 << 20];
        Ok(Memcached { _daemon: daemon, socket, request: Vec::new(), received, held: 0, at: 0 })
    }

    /// Sends what was said, to which all of the answer is to come.
    fn send(&mut self) -> Result<(), String> {
        (self.held, self.at) = (0, 0);
        send_all(&self.socket, &self.request).map_err(text)
    }

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

    /// The next line of the answer, without its end.
    fn line(&mut self) -> Result<std::ops::Range<usize>, String> {
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
    fn block(&mut self, bytes: usize) -> Result<std::ops::Range<usize>, String> {
        let begin = self.at;
        while self.held < begin + bytes + 2 {
            self.receive_more()?;
        }
        self.at = begin + bytes + 2;
        Ok(begin..begin + bytes)
    }

    fn surprise(&self, line: std::ops::Range<usize>) -> String {
        format!("memcached answered {:?}", String::from_utf8_lossy(&self.received[line]))
    }
}

impl Cache for Memcached {
    fn get(&mut self, keys: &[u32], contents: &Contents, is_there: &mut [bool]) -> Result<(), String> {
        self.request.clear();
        self.request.extend_from_slice(b"get");
        for key in keys {
            self.request.push(b' ');
            self.request.extend_from_slice(&Contents::key(*key));
        }
        self.request.extend_from_slice(b"\r\n");
        self.send()?;
        is_there.fill(false);
        let mut next = 0;
        loop {
            let line = self.line()?;
            let said = &self.received[line.clone()];
            if said == b"END" {
                return Ok(());
            }
            let mut words = said.split(|byte| *byte == b' ');
            let (value, key) = (words.next() == Some(b"VALUE"), words.next().unwrap_or(&[]));
            let bytes = words.nth(1).and_then(|bytes| std::str::from_utf8(bytes).ok()?.parse().ok());
            // They come in the order in which they were asked for.
            let place = keys[next..].iter().position(|wanted| Contents::key(*wanted) == key);
            let (Some(bytes), Some(place), true) = (bytes, place, value) else {
                return Err(self.surprise(line));
            };
            next += place;
            let block = self.block(bytes)?;
            contents.check(keys[next], &self.received[block])?;
            is_there[next] = true;
        }
    }

    fn set(&mut self, keys: &[u32], contents: &Contents) -> Result<u64, String> {
        self.request.clear();
        for key in keys {
            self.request.extend_from_slice(b"ms ");
            self.request.extend_from_slice(&Contents::key(*key));
            self.request.extend_from_slice(format!(" {} q\r\n", contents.bytes(*key)).as_bytes());
            contents.write(*key, &mut self.request);
            self.request.extend_from_slice(b"\r\n");
        }
        self.request.extend_from_slice(b"mn\r\n");
        self.send()?;
        let mut refused = 0;
        loop {
            let line = self.line()?;
            match &self.received[line.clone()] {
                b"MN" => return Ok(refused),
                said if said.starts_with(b"SERVER_ERROR") => refused += 1,
                _ => return Err(self.surprise(line)),
            }
        }
    }
}
