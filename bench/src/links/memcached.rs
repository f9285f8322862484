//! The same records in memcached, got one after the other.

use std::os::fd::OwnedFd;

use super::chain::text;
use crate::peers::protocol::{self, Protocol};
use crate::store::verify;
use crate::workload::{Batch, KEY_BYTES, Records, key};
use kelix_report::daemon::Daemon;
use kelix_report::socket::{receive, send_all};

/// Records of a batch while they are loaded.
const LOAD: u64 = 64;

/// memcached with the records in it, a connection, and the record that it is at.
pub(super) struct Memcached {
    /// Held for as long as it is to run.
    _daemon: Daemon,
    socket: OwnedFd,
    records: Records,
    /// What is said of the record that it is at, and what must come: but for the key made once, so that
    /// nothing of it is measured.
    request: Vec<u8>,
    answer: Vec<u8>,
    received: Vec<u8>,
    record: u64,
}

/// Replaces the one key in what is said.
fn set_key(said: &mut [u8], from: u64, to: u64) {
    let at = said.windows(KEY_BYTES).position(|bytes| bytes == key(from)).expect("a key");
    said[at..at + KEY_BYTES].copy_from_slice(&key(to));
}

impl Memcached {
    /// Starts it on the cores of the calling thread.
    pub fn start(records: Records) -> Result<Memcached, String> {
        let daemon = protocol::Memcached::serve(records)?;
        let socket = daemon.connect()?;
        let (mut request, mut answer) = (Vec::new(), Vec::new());
        let batch = Batch { gets: vec![0], puts: Vec::new() };
        protocol::Memcached::say(&batch, records, &mut request, &mut answer);
        Ok(Memcached { _daemon: daemon, socket, records, request, answer, received: Vec::new(), record: 0 })
    }

    /// Puts all records.
    pub fn load(&mut self) -> Result<(), String> {
        for first in (0..self.records.count).step_by(LOAD as usize) {
            let puts = (first..self.records.count.min(first + LOAD)).collect();
            let (mut request, mut answer) = (Vec::new(), Vec::new());
            let batch = Batch { gets: Vec::new(), puts };
            protocol::Memcached::say(&batch, self.records, &mut request, &mut answer);
            send_all(&self.socket, &request).map_err(text)?;
            self.receive(answer.len())?;
            if self.received != answer {
                return Err(self.surprise());
            }
        }
        Ok(())
    }

    /// Gets the record that follows, which must be the one that the last value names.
    pub fn step(&mut self) -> Result<(), String> {
        send_all(&self.socket, &self.request).map_err(text)?;
        self.receive(self.answer.len())?;
        let value_at = protocol::Memcached::value_at(self.records);
        let end = value_at + self.records.value_bytes;
        if self.received[..value_at] != self.answer[..value_at] || self.received[end..] != self.answer[end..]
        {
            return Err(self.surprise());
        }
        let next = verify(&self.received[value_at..end], self.record);
        set_key(&mut self.request, self.record, next);
        set_key(&mut self.answer[..value_at], self.record, next);
        self.record = next;
        Ok(())
    }

    /// Receives so many bytes. An answer that is shorter comes to an end when the socket's patience does.
    fn receive(&mut self, bytes: usize) -> Result<(), String> {
        self.received.resize(bytes, 0);
        let mut held = 0;
        while held < bytes {
            match receive(&self.socket, &mut self.received[held..]) {
                Ok(more) if more > 0 => held += more,
                _ => return Err(self.surprise()),
            }
        }
        Ok(())
    }

    fn surprise(&self) -> String {
        let began = String::from_utf8_lossy(&self.received[..self.received.len().min(40)]).into_owned();
        format!("memcached answered {began:?} for record {}", self.record)
    }
}
