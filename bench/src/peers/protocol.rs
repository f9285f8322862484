//! What is said to each peer, and what it must answer: the fastest way each has for a batch.

use std::path::Path;

use crate::workload::{Batch, KEY_BYTES, Records, key};
use kelix_report::daemon::{Address, Daemon, Transport, is_installed};
use kelix_report::memcached::{self, Settings};
use kelix_report::redis;

/// A peer, as far as it differs from the others.
pub(crate) trait Protocol {
    /// The program, and how it is called in notes.
    const PROGRAM: &'static str;

    /// The answer to a get of one record that is absent.
    const ABSENT: &'static [u8];

    /// How the answer to a put of one record begins for which there is no room.
    const FULL: &'static [u8];

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
    const ABSENT: &'static [u8] = memcached::END;
    const FULL: &'static [u8] = memcached::FULL;

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

/// Redis, as [`redis`] speaks it: `MGET` and `MSET`; of one record, `GET` and `SET`.
pub(crate) struct Redis;

impl Protocol for Redis {
    const PROGRAM: &'static str = redis::PROGRAM;
    const ABSENT: &'static [u8] = redis::ABSENT;
    const FULL: &'static [u8] = redis::FULL;

    fn arguments(address: &Address, folder: &Path, _: Records, threads: usize) -> Vec<String> {
        redis::arguments(address, folder, threads)
    }

    fn say(batch: &Batch, records: Records, request: &mut Vec<u8>, answer: &mut Vec<u8>) {
        let (gets, puts) = (batch.gets.len(), batch.puts.len());
        let value = |record: u64, out: &mut Vec<u8>| {
            redis::bulk_string_of(records.value_bytes, out, |out| records.write_value(record, out));
        };
        if gets > 0 {
            redis::array(gets + 1, request);
            redis::bulk_string(if gets == 1 { b"GET" } else { b"MGET" }, request);
            if gets > 1 {
                redis::array(gets, answer);
            }
            for record in &batch.gets {
                redis::bulk_string(&key(*record), request);
                value(*record, answer);
            }
        }
        if puts > 0 {
            redis::array(2 * puts + 1, request);
            redis::bulk_string(if puts == 1 { b"SET" } else { b"MSET" }, request);
            for record in &batch.puts {
                redis::bulk_string(&key(*record), request);
                value(*record, request);
            }
            answer.extend_from_slice(redis::OK);
        }
    }

    fn value_at(records: Records) -> usize {
        redis::value_at(records.value_bytes)
    }
}

/// Valkey, which is spoken to as Redis is.
pub(crate) struct Valkey;

impl Valkey {
    /// Whether its program is there. One that is not is said to be left out.
    pub fn is_there() -> bool {
        let is_there = is_installed(Valkey::PROGRAM);
        if !is_there {
            eprintln!("valkey is left out: {} is not installed; scripts/with-valkey has it", Valkey::PROGRAM);
        }
        is_there
    }
}

impl Protocol for Valkey {
    const PROGRAM: &'static str = "valkey-server";
    const ABSENT: &'static [u8] = Redis::ABSENT;
    const FULL: &'static [u8] = Redis::FULL;

    fn arguments(address: &Address, folder: &Path, records: Records, threads: usize) -> Vec<String> {
        Redis::arguments(address, folder, records, threads)
    }

    fn say(batch: &Batch, records: Records, request: &mut Vec<u8>, answer: &mut Vec<u8>) {
        Redis::say(batch, records, request, answer);
    }

    fn value_at(records: Records) -> usize {
        Redis::value_at(records)
    }
}
