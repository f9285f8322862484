//! Redis over a Unix socket: its sorted set has the numbers by their scores, and its plain keys have their
//! values.
//!
//! The key of a number is its 8 bytes, highest first, and so is its member of the sorted set; scores are
//! exact up to 2^53.

use std::os::fd::OwnedFd;

use super::tree::{check, key_of, text, value_of};
use crate::peers::protocol::{self, Protocol, whole};
use crate::workload::Records;
use kelix_report::cores::{cores, pin};
use kelix_report::daemon::{Daemon, Transport};
use kelix_report::socket::{receive, send_all};

/// The sorted set.
const SET: &[u8] = b"ordered";
/// Numbers that are put at once while it is loaded.
const LOAD: usize = 1 << 10;

/// Redis, and a connection to it.
pub(super) struct Redis {
    /// Held for as long as it is to run.
    _daemon: Daemon,
    socket: OwnedFd,
    request: Vec<u8>,
    received: Vec<u8>,
    /// What of it has come, and what of that has been read.
    held: usize,
    at: usize,
}

impl Redis {
    /// Starts it on the last core, and stays on the first.
    pub fn start() -> Result<Redis, String> {
        pin(cores() - 1);
        let arguments =
            |address: &_, folder: &_| protocol::Redis::arguments(address, folder, Records::new(1, 32), 1);
        let daemon = Daemon::start(protocol::Redis::PROGRAM, Transport::Unix, arguments);
        pin(0);
        let daemon = daemon?;
        let socket = daemon.connect()?;
        Ok(Redis { _daemon: daemon, socket, request: Vec::new(), received: vec![0; 1 << 16], held: 0, at: 0 })
    }

    /// Puts numbers into the sorted set.
    pub fn load_sorted(&mut self, numbers: &[u64]) -> Result<(), String> {
        for numbers in numbers.chunks(LOAD) {
            self.say_add(numbers);
            self.send()?;
            self.expect_added()?;
        }
        Ok(())
    }

    /// Puts numbers with their values, and into the sorted set.
    pub fn load(&mut self, numbers: &[u64]) -> Result<(), String> {
        for numbers in numbers.chunks(LOAD) {
            self.say_put(numbers, 0);
            self.send()?;
            self.expect_put(numbers)?;
        }
        self.load_sorted(numbers)
    }

    /// Looks for numbers from one on, up to another, so many at most, and shows each.
    pub fn range(
        &mut self,
        from: u64,
        to: Option<u64>,
        limit: usize,
        is_wanted: impl FnMut(u64) -> bool,
    ) -> Result<(), String> {
        self.say_range(from, to, limit);
        self.send()?;
        self.expect_range(is_wanted)
    }

    // ---- what is said; it is sent together ----

    fn say(&mut self, parts: usize, command: &[u8]) {
        self.request.extend_from_slice(format!("*{parts}\r\n").as_bytes());
        whole(&mut self.request, command);
    }

    pub fn say_add(&mut self, numbers: &[u64]) {
        self.say(2 + 2 * numbers.len(), b"ZADD");
        whole(&mut self.request, SET);
        for number in numbers {
            whole(&mut self.request, number.to_string().as_bytes());
            whole(&mut self.request, &key_of(*number));
        }
    }

    pub fn say_get(&mut self, keys: &[[u8; 8]]) {
        if !keys.is_empty() {
            self.say(1 + keys.len(), b"MGET");
            keys.iter().for_each(|key| whole(&mut self.request, key));
        }
    }

    pub fn say_put(&mut self, numbers: &[u64], generation: u64) {
        if !numbers.is_empty() {
            self.say(1 + 2 * numbers.len(), b"MSET");
        }
        for number in numbers {
            whole(&mut self.request, &key_of(*number));
            whole(&mut self.request, &value_of(*number, generation).to_le_bytes());
        }
    }

    pub fn say_range(&mut self, from: u64, to: Option<u64>, limit: usize) {
        self.say(7, b"ZRANGEBYSCORE");
        whole(&mut self.request, SET);
        whole(&mut self.request, from.to_string().as_bytes());
        whole(&mut self.request, to.map_or("+inf".into(), |to| to.to_string()).as_bytes());
        whole(&mut self.request, b"LIMIT");
        whole(&mut self.request, b"0");
        whole(&mut self.request, limit.to_string().as_bytes());
    }

    pub fn send(&mut self) -> Result<(), String> {
        send_all(&self.socket, &self.request).map_err(text)?;
        self.request.clear();
        Ok(())
    }

    // ---- what is answered ----

    pub fn expect_added(&mut self) -> Result<(), String> {
        self.head(b':').map(drop)
    }

    pub fn expect_put(&mut self, numbers: &[u64]) -> Result<(), String> {
        if numbers.is_empty() || self.line()? == b"+OK" {
            Ok(())
        } else {
            Err("redis-server did not put".into())
        }
    }

    pub fn expect_values(&mut self, numbers: &[u64]) -> Result<(), String> {
        if !numbers.is_empty() {
            self.head(b'*')?;
        }
        numbers.iter().try_for_each(|number| check(*number, self.bulk()?).map(drop))
    }

    pub fn expect_range(&mut self, mut is_wanted: impl FnMut(u64) -> bool) -> Result<(), String> {
        let count = self.head(b'*')?;
        for _ in 0..count {
            let member = self.bulk()?.and_then(|member| member.try_into().ok());
            let number = u64::from_be_bytes(member.ok_or("redis-server's member is no number")?);
            if !is_wanted(number) {
                return Err(format!("redis-server's range brought {number}, which was not wanted"));
            }
        }
        Ok(())
    }

    /// The number of a line of this kind.
    fn head(&mut self, kind: u8) -> Result<i64, String> {
        let line = self.line()?;
        let number = line.strip_prefix(&[kind]).and_then(|rest| std::str::from_utf8(rest).ok()?.parse().ok());
        number.ok_or_else(|| format!("redis-server answered {:?}", String::from_utf8_lossy(line)))
    }

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
            self.more()?;
            // What was read is dropped by it.
            from -= moved - self.at;
        }
    }

    /// A string; `None`: the key is absent.
    fn bulk(&mut self) -> Result<Option<&[u8]>, String> {
        let Ok(bytes) = usize::try_from(self.head(b'$')?) else { return Ok(None) };
        while self.held - self.at < bytes + 2 {
            self.more()?;
        }
        let begin = self.at;
        self.at += bytes + 2;
        Ok(Some(&self.received[begin..begin + bytes]))
    }

    /// Receives more behind what is there.
    fn more(&mut self) -> Result<(), String> {
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
