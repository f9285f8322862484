//! The same items in memcached, a process of its own that is reached over its Unix socket.

use std::ops::ControlFlow;

use kelix_report::daemon::{Daemon, Transport};
use kelix_report::memcached::{Connection, Settings, say_set};

use crate::{Keyed, Keys};

/// Values that are set before their answers are looked at.
const SETS: usize = 64;
/// The least memory that it is given.
const MEMORY_MIN: u64 = 64 << 20;

/// A connection to a memcached.
pub struct Memcached<'d> {
    daemon: &'d Daemon,
    connection: Connection,
    batch: usize,
}

/// Starts one with so much memory, on the cores of the calling thread.
pub fn start(memory_bytes: u64) -> Result<Daemon, String> {
    let memory_bytes = memory_bytes.max(MEMORY_MIN);
    Settings { memory_bytes, threads: 1, evicts: false, hash_power: Some(20) }.start(Transport::Unix)
}

impl<'d> Memcached<'d> {
    /// A connection, by which so many keys are got at once.
    pub fn connect(daemon: &'d Daemon, batch: usize) -> Result<Memcached<'d>, String> {
        Ok(Memcached { daemon, connection: Connection::open(daemon)?, batch })
    }

    /// Another connection to the same.
    pub fn again(&self, batch: usize) -> Result<Memcached<'d>, String> {
        Memcached::connect(self.daemon, batch)
    }
}

impl Keyed for Memcached<'_> {
    fn put(&mut self, items: &[(Vec<u8>, Vec<u8>)]) -> Result<(), String> {
        for items in items.chunks(SETS) {
            let refused = self.connection.set(|request| {
                for (key, value) in items {
                    say_set(key, value.len(), true, request, |request| request.extend_from_slice(value));
                }
            })?;
            if refused > 0 {
                return Err(format!("memcached refused {refused} values"));
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
            let count = self.batch.min(keys.len() - first);
            let key = |index: usize| keys.get(first + index);
            if self.connection.get(count, key, |index, value| each(first + index, value))?.is_break() {
                break;
            }
        }
        Ok(())
    }
}
