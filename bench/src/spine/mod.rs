//! `kelix bench spine`: what the store costs over the bare memory accesses it is made of.
//!
//! One server with one shard, pinned to one core; one client, pinned to another; 10 million items of 16-byte keys and
//! 32-byte values unless told otherwise. The plain loops read the same table through the same pages: directory,
//! bucket, item; no guardian, no stamp, no authority.

mod plain;
mod rows;

use std::path::PathBuf;
use std::time::Duration;

use kelix::{Client, Session, Table};
use kelix_server::{Server, ServerConfig};

use crate::{Options, Report};

/// Pairs of blocks a row, and seconds of the rows about processor time. A small run is a check that all works, not a
/// measurement.
const FULL: (usize, Duration) = (31, Duration::from_secs(3));
const SMALL: (usize, Duration) = (3, Duration::from_millis(500));
/// Records from which on a run is a measurement.
const FULL_RECORDS: u64 = 1_000_000;
/// Items of a batch.
const BATCH: usize = 32;

/// A store under measurement: a server in this process, a session, and what is in it.
struct Store {
    server: Option<Server>,
    directory: PathBuf,
    client: Client,
    session: Session,
    table: Table,
    records: u64,
    walk: Walk,
    /// Cores of the machine; the shard has the last one.
    cores: usize,
    rounds: usize,
    time: Duration,
}

/// The 16-byte key of a record.
fn key_of(record: u64) -> [u8; 16] {
    let mut key = *b"user0000\0\0\0\0\0\0\0\0";
    key[8..].copy_from_slice(&record.to_le_bytes());
    key
}

/// A walk from record to record that visits all of them before it repeats itself. Keys are hashed, so equal steps
/// between records are no pattern in memory.
#[derive(Clone, Copy)]
struct Walk {
    records: u64,
    step: u64,
}

impl Walk {
    fn over(records: u64) -> Walk {
        let common = |mut a: u64, mut b: u64| {
            while b > 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        let near = (records as f64 * 0.618) as u64;
        let step = (near..).find(|step| common(*step, records) == 1);
        Walk { records, step: step.expect("some number has no common divisor") }
    }

    /// The 32-byte value of a record: which record follows, whose it is, and padding that both fix.
    fn value_of(self, record: u64) -> [u8; 32] {
        let mut value = [0; 32];
        let next = (record + self.step) % self.records;
        value[..8].copy_from_slice(&next.to_le_bytes());
        value[8..16].copy_from_slice(&record.to_le_bytes());
        value[16..24].copy_from_slice(&(next ^ record).to_le_bytes());
        value
    }
}

/// Checks a value and returns the record that follows.
#[inline]
fn verify(value: &[u8], record: u64) -> u64 {
    let word = |at: usize| u64::from_le_bytes(value[at..at + 8].try_into().expect("8 bytes"));
    let next = word(0);
    assert!(word(8) == record && word(16) == next ^ record, "record {record} has the value of another");
    next
}

/// Runs the calling thread on one core, so that client and shard do not share one.
fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    // Where pinning is not allowed the figures only get noisier.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Lets the calling thread run anywhere again, and so the threads it starts.
fn unpin(cores: usize) {
    let mut set = rustix::thread::CpuSet::new();
    (0..cores).for_each(|core| set.set(core));
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

impl Store {
    fn start(name: &str, memory_bytes: u64) -> Result<Store, String> {
        let directory = std::env::temp_dir().join(format!("kelix-bench-{name}-{}", std::process::id()));
        let config = ServerConfig { directory: directory.clone(), memory_bytes, ..ServerConfig::default() };
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let server = Server::start(&config).map_err(|error| error.to_string())?;
        let open = || -> kelix::Result<(Client, Session, Table)> {
            let client = Client::connect(&directory)?;
            let mut session = client.session()?;
            let table = session.create_table("records")?;
            Ok((client, session, table))
        };
        let (client, session, table) = open().map_err(|error| error.to_string())?;
        Ok(Store {
            server: Some(server),
            directory,
            client,
            session,
            table,
            records: 0,
            walk: Walk { records: 1, step: 0 },
            cores,
            rounds: FULL.0,
            time: FULL.1,
        })
    }

    /// Puts the records from the last loaded one up to `records`.
    fn load(&mut self, records: u64) -> Result<(), String> {
        let progress = std::io::IsTerminal::is_terminal(&std::io::stderr());
        let mut record = self.records;
        self.records = records;
        self.walk = Walk::over(records);
        while record < records {
            self.put_batch(&(record..records.min(record + 64)).collect::<Vec<_>>())?;
            record += 64;
            if progress && record % (1 << 18) == 0 {
                eprint!("\rloading: {} %", record * 100 / records);
            }
        }
        if progress {
            eprintln!("\rloading: done ");
        }
        Ok(())
    }

    fn put_batch(&mut self, records: &[u64]) -> Result<(), String> {
        let items: Vec<_> =
            records.iter().map(|record| (key_of(*record), self.walk.value_of(*record))).collect();
        let items: Vec<(&[u8], &[u8])> = items.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        let results = self.session.multi_put(self.table, &items).map_err(|error| error.to_string())?;
        results.into_iter().try_for_each(|result| result.map(drop).map_err(|error| error.to_string()))
    }

    /// The shard's part of the statistics.
    fn shard(&self) -> Result<serde_json::Value, String> {
        // The shard reports when it goes to sleep, or every few milliseconds.
        std::thread::sleep(Duration::from_millis(120));
        let text = self.client.statistics().map_err(|error| error.to_string())?;
        let all: serde_json::Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        Ok(all["shards"][0].clone())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> Result<Report, String> {
    let records = options.records.unwrap_or(10_000_000).max(1000);
    let mut store = Store::start("spine", (records * 160).max(256 << 20))?;
    if records < FULL_RECORDS {
        (store.rounds, store.time) = SMALL;
    }
    pin(0);
    let mut rows = vec![rows::item_bytes(&mut store, records)?];
    rows.extend(rows::gets(&mut store)?);
    rows.extend(rows::puts(&mut store)?);
    rows.extend(rows::cpu(&mut store)?);
    let (time, cores) = (store.time, store.cores);
    drop(store);
    unpin(cores);
    rows.push(rows::quarantine(records.min(400_000), time)?);
    Ok(Report { bench: "spine", records, rows })
}
