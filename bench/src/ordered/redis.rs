//! Redis over a Unix socket: its sorted set has the numbers by their scores, and its plain keys have their
//! values.
//!
//! The key of a number is its 8 bytes, highest first, and so is its member of the sorted set; scores are
//! exact up to 2^53.

use kelix_report::cores::on_last_core;
use kelix_report::daemon::{Daemon, Transport};
use kelix_report::redis::{self, Connection};

use super::tree::{check, key_of, value_of};

/// The sorted set.
const SET: &[u8] = b"ordered";
/// Numbers that are put at once while it is loaded.
const LOAD: usize = 1 << 10;

/// Redis, and a connection to it.
pub(super) struct Redis {
    /// Held for as long as it is to run.
    _daemon: Daemon,
    connection: Connection,
}

impl Redis {
    /// Starts it on the last core, and stays on the first.
    pub fn start() -> Result<Redis, String> {
        let daemon = on_last_core(|| redis::start(Transport::Unix))?;
        Ok(Redis { connection: Connection::open(&daemon)?, _daemon: daemon })
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

    pub fn say_add(&mut self, numbers: &[u64]) {
        self.connection.begin(b"ZADD", 2 + 2 * numbers.len());
        self.connection.part(SET);
        for number in numbers {
            self.connection.part(number.to_string().as_bytes());
            self.connection.part(&key_of(*number));
        }
    }

    pub fn say_get(&mut self, keys: &[[u8; 8]]) {
        if !keys.is_empty() {
            self.connection.begin(b"MGET", 1 + keys.len());
            keys.iter().for_each(|key| self.connection.part(key));
        }
    }

    pub fn say_put(&mut self, numbers: &[u64], generation: u64) {
        if !numbers.is_empty() {
            self.connection.begin(b"MSET", 1 + 2 * numbers.len());
        }
        for number in numbers {
            self.connection.part(&key_of(*number));
            self.connection.part(&value_of(*number, generation).to_le_bytes());
        }
    }

    pub fn say_range(&mut self, from: u64, to: Option<u64>, limit: usize) {
        self.connection.begin(b"ZRANGEBYSCORE", 7);
        self.connection.part(SET);
        self.connection.part(from.to_string().as_bytes());
        self.connection.part(to.map_or("+inf".into(), |to| to.to_string()).as_bytes());
        self.connection.part(b"LIMIT");
        self.connection.part(b"0");
        self.connection.part(limit.to_string().as_bytes());
    }

    pub fn send(&mut self) -> Result<(), String> {
        self.connection.send()
    }

    // ---- what is answered ----

    pub fn expect_added(&mut self) -> Result<(), String> {
        self.connection.integer().map(drop)
    }

    pub fn expect_put(&mut self, numbers: &[u64]) -> Result<(), String> {
        if numbers.is_empty() { Ok(()) } else { self.connection.expect_ok() }
    }

    pub fn expect_values(&mut self, numbers: &[u64]) -> Result<(), String> {
        if !numbers.is_empty() {
            self.connection.array()?;
        }
        numbers.iter().try_for_each(|number| check(*number, self.connection.bulk_string()?).map(drop))
    }

    pub fn expect_range(&mut self, mut is_wanted: impl FnMut(u64) -> bool) -> Result<(), String> {
        let count = self.connection.array()?;
        for _ in 0..count {
            let member = self.connection.bulk_string()?.and_then(|member| member.try_into().ok());
            let number = u64::from_be_bytes(member.ok_or("redis-server's member is no number")?);
            if !is_wanted(number) {
                return Err(format!("redis-server's range brought {number}, which was not wanted"));
            }
        }
        Ok(())
    }
}
