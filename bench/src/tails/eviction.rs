//! Gets while items make way: a cache that is full, of whose keys half are there, and a writer that puts one
//! after the other.
//!
//! How many keys fit is each cache's own matter: a cache is filled with more than it takes, what it holds is
//! counted, and twice as many keys are then got and put, all alike. So half of the gets miss everywhere. A
//! put that memcached refuses, although something could be evicted, is told.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use kelix::FabricChoice;

use super::Size;
use super::caller::Caller;
use super::systems::{BASELINES, Kelix, OURS, Opened};
use crate::peers::blocking::Blocking;
use crate::peers::protocol;
use crate::store::Numbers;
use crate::times::Times;
use crate::workload::Records;
use kelix_report::daemon::{Daemon, Transport};
use kelix_report::memcached::{PROGRAM, Settings};
use kelix_report::progress;
use kelix_report::report::{Row, Sense, figure};

/// Bytes of a value.
const VALUE_BYTES: usize = 256;
/// Gets that tell what share of the keys a full cache holds, what is taken for half, and how often that is
/// tried for.
const SAMPLES: usize = 10_000;
const HALF: RangeInclusive<f64> = 0.45..=0.55;
const TRIES: usize = 10;
/// Quantiles that rows are about.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)];

/// The share of so many keys that is there.
fn share_held(reader: &mut dyn Caller, keys: u64, numbers: &mut Numbers) -> Result<f64, String> {
    let mut held = 0;
    for record in numbers.records(keys, SAMPLES) {
        held += u64::from(reader.get(record)?);
    }
    Ok(held as f64 / SAMPLES as f64)
}

/// A full cache with a client that reads and one that writes.
struct Cache {
    reader: Box<dyn Caller>,
    writer: Box<dyn Caller>,
    /// Keys that are got and put: twice as many as it holds.
    keys: u64,
    numbers: Numbers,
    times: Times,
    hits: u64,
    puts: u64,
    /// Puts that the cache refused, although something could have been evicted.
    refused: u64,
}

impl Cache {
    /// Fills a cache, first with this number of records, which is more than it takes, until of the keys that
    /// were put half are there. Their number depends on how much a cache has still to let go.
    fn fill(
        mut reader: Box<dyn Caller>,
        mut writer: Box<dyn Caller>,
        records: Records,
    ) -> Result<Cache, String> {
        let (mut keys, mut numbers) = (records.count, Numbers(5));
        for _ in 0..TRIES {
            (0..keys).try_for_each(|record| writer.put(record).map(drop))?;
            let share = share_held(reader.as_mut(), keys, &mut numbers)?;
            if HALF.contains(&share) {
                break;
            }
            keys = (2.0 * share * keys as f64) as u64 + 1;
        }
        let (times, hits, puts, refused) = (Times::new(), 0, 0, 0);
        Ok(Cache { reader, writer, keys, numbers, times, hits, puts, refused })
    }

    /// Gets beside a writer, for a turn; all of it counts, or none.
    fn turn(&mut self, size: Size, counts: bool) -> Result<(), String> {
        let Cache { reader, writer, keys, numbers, .. } = self;
        let (keys, over) = (*keys, AtomicBool::new(false));
        let mut others = Numbers(numbers.next());
        let write = || {
            let (mut puts, mut refused) = (0, 0);
            while !over.load(Ordering::Relaxed) {
                refused += u64::from(!writer.put(others.records(keys, 1)[0])?);
                puts += 1;
            }
            Ok::<(u64, u64), String>((puts, refused))
        };
        let (mut times, mut hits) = (Times::new(), 0);
        let (puts, refused) = std::thread::scope(|scope| {
            let writing = scope.spawn(write);
            let mut read = || {
                let began = Instant::now();
                while began.elapsed() < size.turn {
                    let record = numbers.records(keys, 1)[0];
                    let asked = Instant::now();
                    hits += u64::from(reader.get(record)?);
                    times.note(asked.elapsed().as_nanos() as u64);
                }
                Ok::<(), String>(())
            };
            let read = read();
            over.store(true, Ordering::Relaxed);
            let written = writing.join().expect("a writer does not panic")?;
            read.map(|()| written)
        })?;
        if counts {
            self.times.add(&times);
            self.hits += hits;
            self.puts += puts;
            self.refused += refused;
        }
        Ok(())
    }

    fn told(&self) -> String {
        let gets = self.times.count();
        format!(
            "{gets} gets, {} % found, beside {} puts, {} of them refused",
            figure(self.hits as f64 * 100.0 / gets.max(1) as f64),
            self.puts,
            self.refused
        )
    }
}

fn memcached(name: &str, transport: Transport, memory_bytes: u64) -> Result<Daemon, String> {
    let settings = Settings { memory_bytes, threads: 1, evicts: true, hash_power: None };
    Daemon::start_as(name, PROGRAM, transport, |address, _| settings.arguments(address))
}

/// More records than fit, however little an item takes beside its value.
fn filling(size: Size) -> Records {
    Records::new(size.cache_bytes / VALUE_BYTES as u64 * 5 / 4, VALUE_BYTES)
}

/// The rows, of two pairs of caches.
pub(super) fn rows(size: Size) -> Result<Vec<Row>, String> {
    let records = filling(size);
    let mut rows = Vec::new();
    for (at, (fabric, transport)) in
        [(FabricChoice::Shm, Transport::Unix), (FabricChoice::Tcp, Transport::Tcp)].into_iter().enumerate()
    {
        progress::show(&format!("eviction: filling {} and {}", OURS[at], BASELINES[at]));
        let kelix = Kelix::start(size.cache_bytes, &["--cache"])?;
        let daemon = memcached("memcached-evicts", transport, size.cache_bytes)?;
        let ours = || Opened::Ok(Box::new(kelix.open(fabric, records)?));
        let theirs = || {
            let connection = Blocking::<protocol::Memcached>::open(&daemon, records)?;
            Opened::Ok(Box::new(connection))
        };
        let mut caches =
            [Cache::fill(ours()?, ours()?, records)?, Cache::fill(theirs()?, theirs()?, records)?];
        for round in 0..=size.rounds {
            progress::show(&format!("eviction: {} and {}, turn {round}", OURS[at], BASELINES[at]));
            for step in 0..2 {
                caches[(round + step) % 2].turn(size, round > 0)?;
            }
        }
        let [ours, theirs] = &caches;
        for (quantile, share) in QUANTILES {
            let [our_us, their_us] = [ours, theirs].map(|cache| cache.times.quantile_ns(share) as f64 / 1e3);
            rows.push(Row {
                id: format!("evict_{}_{quantile}", ["shm", "tcp"][at]).into(),
                name: format!(
                    "{quantile} of gets of a full cache beside a writer: {} / {}",
                    OURS[at], BASELINES[at]
                )
                .into(),
                ours: our_us,
                other: Some(their_us),
                unit: "us",
                ratio: our_us / their_us,
                wanted: None,
                sense: Sense::AtMost,
                note: format!("{}; memcached {}", ours.told(), theirs.told()),
            });
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use kelix_server::ServerConfig;

    use super::*;
    use crate::store::Store;
    use crate::tails::SMALL;
    use crate::tails::caller::Ours;

    fn assert_half_is_there(mut cache: Cache) {
        let share = share_held(cache.reader.as_mut(), cache.keys, &mut cache.numbers).unwrap();
        assert!((0.4..0.6).contains(&share), "{share} of {} keys", cache.keys);
    }

    #[test]
    fn of_the_keys_that_are_asked_for_a_full_cache_holds_half() {
        let records = filling(SMALL);
        let memory_bytes = SMALL.cache_bytes;
        let config = ServerConfig { memory_bytes, cache: true, pin: false, ..ServerConfig::default() };
        let store = Store::start("evicts-test", config).unwrap();
        let ours = || Box::new(Ours::open(&store.client, FabricChoice::Shm, records).unwrap());
        assert_half_is_there(Cache::fill(ours(), ours(), records).unwrap());
        let daemon = memcached("memcached-evicts-test", Transport::Unix, memory_bytes).unwrap();
        let theirs = || Box::new(Blocking::<protocol::Memcached>::open(&daemon, records).unwrap());
        assert_half_is_there(Cache::fill(theirs(), theirs(), records).unwrap());
    }
}
