//! What is said to each peer, and what it must answer: the fastest way each has for a batch.

use std::path::Path;

use crate::workload::{Batch, KEY_BYTES, Records, key};
use kelix_report::daemon::Address;

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

/// memcached: one `get` for all keys; quiet meta sets, ended by a `mn` that says that all were done.
pub(crate) struct Memcached;

/// The arguments by which a memcached listens at an address. It wants to be told that it may run as root.
pub(crate) fn listening(address: &Address) -> Vec<String> {
    let mut arguments = match address {
        Address::Unix(path) => ["-s".into(), path.display().to_string()].to_vec(),
        Address::Tcp(port) => ["-l".into(), "127.0.0.1".into(), "-p".into(), port.to_string()].to_vec(),
    };
    if rustix::process::geteuid().is_root() {
        arguments.extend(["-u".into(), "root".into()]);
    }
    arguments
}

impl Protocol for Memcached {
    const PROGRAM: &'static str = "memcached";

    fn arguments(address: &Address, _: &Path, records: Records, threads: usize) -> Vec<String> {
        let item = records.value_bytes as u64 + 160;
        let megabytes = ((records.count * item * 3 / 2) >> 20) + 256;
        // With several threads memcached has up to 2^13 locks, and refuses a table that is no larger.
        let power = (64 - records.count.leading_zeros()).clamp(16, 30);
        let mut arguments: Vec<String> = ["-U", "0", "-M", "-I", "16m"].map(String::from).into();
        arguments.extend(["-t".into(), threads.to_string()]);
        arguments.extend(["-m".into(), megabytes.to_string(), "-o".into(), format!("hashpower={power}")]);
        arguments.extend(listening(address));
        arguments
    }

    fn say(batch: &Batch, records: Records, request: &mut Vec<u8>, answer: &mut Vec<u8>) {
        let bytes = records.value_bytes;
        if !batch.gets.is_empty() {
            request.extend_from_slice(b"get");
            for record in &batch.gets {
                request.push(b' ');
                request.extend_from_slice(&key(*record));
                answer.extend_from_slice(b"VALUE ");
                answer.extend_from_slice(&key(*record));
                answer.extend_from_slice(format!(" 0 {bytes}\r\n").as_bytes());
                records.write_value(*record, answer);
                answer.extend_from_slice(b"\r\n");
            }
            request.extend_from_slice(b"\r\n");
            answer.extend_from_slice(b"END\r\n");
        }
        let quiet = batch.puts.len() > 1;
        for record in &batch.puts {
            request.extend_from_slice(b"ms ");
            request.extend_from_slice(&key(*record));
            request.extend_from_slice(format!(" {bytes}{}\r\n", if quiet { " q" } else { "" }).as_bytes());
            records.write_value(*record, request);
            request.extend_from_slice(b"\r\n");
        }
        match batch.puts.len() {
            0 => {}
            1 => answer.extend_from_slice(b"HD\r\n"),
            _ => {
                request.extend_from_slice(b"mn\r\n");
                answer.extend_from_slice(b"MN\r\n");
            }
        }
    }

    fn value_at(records: Records) -> usize {
        b"VALUE ".len() + KEY_BYTES + format!(" 0 {}\r\n", records.value_bytes).len()
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
