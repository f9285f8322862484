//! memcached as a cache.

use std::ops::ControlFlow;

use super::cache::{Cache, Contents};
use kelix_report::daemon::{Daemon, Transport};
use kelix_report::memcached::{Connection, Settings, say_set};

/// A server, and a connection to it.
pub(super) struct Memcached {
    /// Held for as long as it is to run.
    _daemon: Daemon,
    connection: Connection,
}

impl Memcached {
    /// Starts one with so much memory for items.
    pub fn start(memory_bytes: u64) -> Result<Memcached, String> {
        let settings = Settings { memory_bytes, threads: 1, evicts: true, hash_power: None };
        let daemon = settings.start(Transport::Unix)?;
        let connection = Connection::open(&daemon)?;
        Ok(Memcached { _daemon: daemon, connection })
    }
}

impl Cache for Memcached {
    fn get(&mut self, keys: &[u32], contents: &Contents, is_there: &mut [bool]) -> Result<(), String> {
        let mut checked = Ok(());
        let key = |index: usize| Contents::key(keys[index]);
        let _ = self.connection.get(keys.len(), key, |index, value| {
            is_there[index] = value.is_some();
            checked = value.map_or(Ok(()), |value| contents.check(keys[index], value));
            if checked.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        checked
    }

    fn set(&mut self, keys: &[u32], contents: &Contents) -> Result<u64, String> {
        self.connection.set(|request| {
            for key in keys {
                let bytes = contents.bytes(*key);
                say_set(&Contents::key(*key), bytes, true, request, |request| contents.write(*key, request));
            }
        })
    }
}
