//! What is said to each peer, and what it must answer: the fastest way each has for a batch.

use std::path::Path;

use crate::workload::{Batch, KEY_BYTES, Records, key};
use kelix_report::daemon::{Address, Daemon, Transport};
use kelix_report::memcached::{self, Settings};

/// A peer, as far as it differs from the others.
pub(crate) trait Protocol {
    /// The program, and how it is called in notes.
    const PROGRAM: &'static str;

    /// The arguments of a server with so many threads and room for these records.
    fn arguments(address: &Address, folder: &Path, records: Records, threads: usize) -> Vec<String>;

    /// Appends what is sent for a batch, and what must come back.
    fn say(batch: &Batch, records: Records, request: &mut Vec<u8>, answer: &mut Vec<u8>);

    /// Where the value stands in the answer to a get of one record.
    fn value_at(records: Records) -> usize;
}

/// memcached, as [`memcached`] speaks it.
pub(crate) struct Memcached;

impl Memcached {
    /// Starts a server of one thread, over TCP, on the cores of the calling thread.
    pub fn serve(records: Records) -> Result<Daemon, String> {
        Memcached::settings(records, 1).start(Transport::Tcp)
    }

    fn settings(records: Records, threads: usize) -> Settings {
        let item = records.value_bytes as u64 + 160;
        let memory_bytes = records.count * item * 3 / 2 + (256 << 20);
        // With several threads memcached has up to 2^13 locks, and refuses a table that is no larger.
        let power = (64 - records.count.leading_zeros()).clamp(16, 30);
        Settings { memory_bytes, threads, evicts: false, hash_power: Some(power) }
    }
}

impl Protocol for Memcached {
    const PROGRAM: &'static str = memcached::PROGRAM;

    fn arguments(address: &Address, _: &Path, records: Records, threads: usize) -> Vec<String> {
        Memcached::settings(records, threads).arguments(address)
    }

    fn say(batch: &Batch, records: Records, request: &mut Vec<u8>, answer: &mut Vec<u8>) {
        let bytes = records.value_bytes;
        if !batch.gets.is_empty() {
            memcached::say_get(batch.gets.iter().map(|record| key(*record)), request);
            for record in &batch.gets {
                let write = |answer: &mut Vec<u8>| records.write_value(*record, answer);
                memcached::answer_value(&key(*record), bytes, answer, write);
            }
            answer.extend_from_slice(memcached::END);
        }
        let is_quiet = batch.puts.len() > 1;
        for record in &batch.puts {
            let write = |request: &mut Vec<u8>| records.write_value(*record, request);
            memcached::say_set(&key(*record), bytes, is_quiet, request, write);
        }
        match batch.puts.len() {
            0 => {}
            1 => answer.extend_from_slice(memcached::STORED),
            _ => {
                memcached::say_all(request);
                answer.extend_from_slice(memcached::ALL_DONE);
            }
        }
    }

    fn value_at(records: Records) -> usize {
        memcached::value_at(KEY_BYTES, records.value_bytes)
    }
}

/// Redis: `MGET` and `MSET`; of one record, `GET` and `SET`.
pub(crate) struct Redis;

/// Appends a bulk string's head.
fn bulk(out: &mut Vec<u8>, bytes: usize) {
    out.extend_from_slice(format!("${bytes}\r\n").as_bytes());
}

/// Appends a bulk string.
pub(crate) fn whole(out: &mut Vec<u8>, bytes: &[u8]) {
    bulk(out, bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

impl Protocol for Redis {
    const PROGRAM: &'static str = "redis-server";

    fn arguments(address: &Address, folder: &Path, _: Records, threads: usize) -> Vec<String> {
        let (port, socket) = match address {
            Address::Unix(path) => (0, path.clone()),
            Address::Tcp(port) => (*port, folder.join("socket")),
        };
        let (port, socket, threads) = (port.to_string(), socket.display().to_string(), threads.to_string());
        let options = [
            ("--save", ""),
            ("--appendonly", "no"),
            ("--io-threads", &threads),
            ("--bind", "127.0.0.1"),
            ("--port", &port),
            ("--unixsocket", &socket),
        ];
        options.iter().flat_map(|(name, value)| [String::from(*name), String::from(*value)]).collect()
    }

    fn say(batch: &Batch, records: Records, request: &mut Vec<u8>, answer: &mut Vec<u8>) {
        let (gets, puts) = (batch.gets.len(), batch.puts.len());
        if gets > 0 {
            request.extend_from_slice(format!("*{}\r\n", gets + 1).as_bytes());
            whole(request, if gets == 1 { b"GET" } else { b"MGET" });
            if gets > 1 {
                answer.extend_from_slice(format!("*{gets}\r\n").as_bytes());
            }
            for record in &batch.gets {
                whole(request, &key(*record));
                bulk(answer, records.value_bytes);
                records.write_value(*record, answer);
                answer.extend_from_slice(b"\r\n");
            }
        }
        if puts > 0 {
            request.extend_from_slice(format!("*{}\r\n", 2 * puts + 1).as_bytes());
            whole(request, if puts == 1 { b"SET" } else { b"MSET" });
            for record in &batch.puts {
                whole(request, &key(*record));
                bulk(request, records.value_bytes);
                records.write_value(*record, request);
                request.extend_from_slice(b"\r\n");
            }
            answer.extend_from_slice(b"+OK\r\n");
        }
    }

    fn value_at(records: Records) -> usize {
        format!("${}\r\n", records.value_bytes).len()
    }
}
