//! A server under measurement and what is in it.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kelix::{Client, Session, Table};
use kelix_server::{Server, ServerConfig};

/// Memory for so many records, with room to spare.
pub(crate) fn memory_for(records: u64) -> u64 {
    (records * 160).max(256 << 20)
}

/// A store under measurement: a server in this process, a session, and what is in it.
pub(crate) struct Store {
    server: Option<Server>,
    pub directory: PathBuf,
    pub client: Client,
    pub session: Session,
    pub table: Table,
    pub records: u64,
    pub walk: Walk,
    /// Cores of the machine; the shard has the last one.
    pub cores: usize,
    /// Pairs of blocks a row, and seconds of the rows about processor time.
    pub rounds: usize,
    pub time: Duration,
}

/// The 16-byte key of a record.
pub(crate) fn key_of(record: u64) -> [u8; 16] {
    let mut key = *b"user0000\0\0\0\0\0\0\0\0";
    key[8..].copy_from_slice(&record.to_le_bytes());
    key
}

/// A walk from record to record that visits all of them before it repeats itself. Keys are hashed, so equal
/// steps between records are no pattern in memory.
#[derive(Clone, Copy)]
pub(crate) struct Walk {
    records: u64,
    step: u64,
}

impl Walk {
    pub fn over(records: u64) -> Walk {
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

    /// The record that follows after so many steps from the first.
    pub fn step_of(self, steps: u64) -> u64 {
        ((u128::from(steps) * u128::from(self.step)) % u128::from(self.records)) as u64
    }

    /// The 32-byte value of a record: which record follows, whose it is, and padding that both fix.
    pub fn value_of(self, record: u64) -> [u8; 32] {
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
pub(crate) fn verify(value: &[u8], record: u64) -> u64 {
    let word = |at: usize| u64::from_le_bytes(value[at..at + 8].try_into().expect("8 bytes"));
    let next = word(0);
    assert!(word(8) == record && word(16) == next ^ record, "record {record} has the value of another");
    next
}

/// The 32-byte value of a record that carries a number: a generation, or how often it was put.
pub(crate) fn numbered_value(record: u64, number: u64) -> [u8; 32] {
    let mut value = [0; 32];
    let mixed = Numbers(number << 40 ^ record).next();
    for (bytes, word) in value.chunks_exact_mut(8).zip([number, record, mixed, !mixed]) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    value
}

/// The number that a record's value carries, if it is a value of that record.
pub(crate) fn number_of(value: &[u8], record: u64) -> Option<u64> {
    let number = u64::from_le_bytes(*value.first_chunk()?);
    (value == numbered_value(record, number)).then_some(number)
}

/// Puts keys and values, in one batch.
pub(crate) fn put_all<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    session: &mut Session,
    table: Table,
    items: impl Iterator<Item = (K, V)>,
) -> Result<(), String> {
    let items: Vec<(K, V)> = items.collect();
    let items: Vec<(&[u8], &[u8])> =
        items.iter().map(|(key, value)| (key.as_ref(), value.as_ref())).collect();
    let results = session.multi_put(table, &items).map_err(|error| error.to_string())?;
    results.into_iter().try_for_each(|result| result.map(drop).map_err(|error| error.to_string()))
}

/// Puts these records, in one batch.
pub(crate) fn put_records(
    session: &mut Session,
    table: Table,
    walk: Walk,
    records: &[u64],
) -> Result<(), String> {
    put_all(session, table, records.iter().map(|record| (key_of(*record), walk.value_of(*record))))
}

/// How much more popular the first key is than those after it: the k-th has 1 / k^EXPONENT of its share.
const EXPONENT: f64 = 0.99;

/// Numbers that look random and are the same in every run (splitmix64).
pub(crate) struct Numbers(pub u64);

impl Numbers {
    /// The next one.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// From 0 to 1.
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// So many records, drawn from all alike.
    pub fn records(&mut self, records: u64, count: usize) -> Vec<u64> {
        let mut below = || ((u128::from(self.next()) * u128::from(records)) >> 64) as u64;
        (0..count).map(|_| below()).collect()
    }

    /// So many records, drawn by their popularity. Which record has which popularity is no matter, since keys
    /// are hashed.
    pub fn popular(&mut self, records: u64, count: usize) -> Vec<u64> {
        let mut sum = 0.0;
        let sums: Vec<f64> = (1..=records)
            .map(|rank| {
                sum += (rank as f64).powf(-EXPONENT);
                sum
            })
            .collect();
        let mut draw = || {
            let share = self.share() * sum;
            sums.partition_point(|upto| *upto < share) as u64
        };
        (0..count).map(|_| draw().min(records - 1)).collect()
    }
}

/// Processor time of this process in a while in which nobody does anything, of a core, in percent.
pub(crate) fn idle_share(time: Duration) -> f64 {
    let used = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    // Until everybody sleeps.
    std::thread::sleep(Duration::from_millis(300));
    let (began, before) = (Instant::now(), used());
    std::thread::sleep(time);
    (used() - before).as_secs_f64() / began.elapsed().as_secs_f64() * 100.0
}

impl Store {
    /// Starts a server of this kind in a directory of its own.
    pub fn start(name: &str, config: ServerConfig) -> Result<Store, String> {
        let directory = std::env::temp_dir().join(format!("kelix-bench-{name}-{}", std::process::id()));
        let config = ServerConfig { directory: directory.clone(), ..config };
        let cores = kelix_report::cores::cores();
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
            rounds: 3,
            time: Duration::from_millis(500),
        })
    }

    /// Puts the records from the last loaded one up to `records`.
    pub fn load(&mut self, records: u64) -> Result<(), String> {
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

    /// Puts these records.
    pub fn put_batch(&mut self, records: &[u64]) -> Result<(), String> {
        put_records(&mut self.session, self.table, self.walk, records)
    }

    /// Memory that the store has from the system: blocks of its segments.
    pub fn memfd_bytes(&self) -> u64 {
        let descriptors = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let ours = |path: &std::path::PathBuf| {
            std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:kelix"))
        };
        let paths = descriptors.map(|entry| entry.path()).filter(ours);
        // Clients have descriptors of the same segments.
        let blocks: HashMap<u64, u64> = paths
            .filter_map(|path| std::fs::metadata(path).ok())
            .map(|metadata| (metadata.ino(), metadata.blocks()))
            .collect();
        blocks.values().sum::<u64>() * 512
    }

    /// What the server tells of itself.
    pub fn statistics(&self) -> Result<serde_json::Value, String> {
        // The shard reports when it goes to sleep, or every few milliseconds.
        std::thread::sleep(Duration::from_millis(120));
        Ok(serde_json::json!(self.client.statistics().map_err(|error| error.to_string())?))
    }

    /// What the server tells of its log and snapshots, as it is now.
    pub fn told(&self) -> serde_json::Value {
        let server = self.server.as_ref().expect("it runs until this is dropped");
        server.statistics().json().swap_remove(0)
    }

    /// The shard's part of the statistics.
    pub fn shard(&self) -> Result<serde_json::Value, String> {
        Ok(self.statistics()?["shards"][0].clone())
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
