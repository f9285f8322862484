//! Puts into a server that logs, against the same without a log, against a loop that writes and syncs the
//! same bytes, and against Redis.
//!
//! Blocks are so long that what is written and synced behind a block's answers is a small part of it, and
//! each side comes to rest before the next begins.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kelix::{Session, SessionOptions};
use kelix_report::cores::{pin, unpin};
use kelix_report::interleave::{self, compared as between};
use kelix_report::progress;
use kelix_report::report::{Row, Sense, as_rate, compared};
use kelix_server::{Durability, ServerConfig};
use rustix::fs::{FallocateFlags, fallocate};

use super::disk::{Disk, Done};
use super::redis::{Redis, Sync};
use super::{BATCH, bytes_row, logged, text};
use crate::store::{Numbers, Store, Walk, key_of, memory_for, put_records, verify};

/// Rounds, and how long a block is. A small run is a check that all works.
const FULL: (usize, Duration) = (15, Duration::from_secs(1));
const SMALL: (usize, Duration) = (2, Duration::from_millis(40));
/// Items that are put in turn.
const DRAWN: usize = 1 << 16;
/// Records that are put at once while a server is loaded.
const LOAD: u64 = 1 << 10;
/// How long it takes until a base is begun that is due, at most.
const BASE_DUE: Duration = Duration::from_millis(600);
/// How long a base may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a file of the loop, as of the log.
const FILE_BYTES: u64 = kelix_log::files::FILE_BYTES;
/// Records that are looked at in the end.
const READ_BACK: u64 = 10_000;

/// How many records there are, and how they are measured.
#[derive(Clone, Copy)]
struct Size {
    records: u64,
    walk: Walk,
    rounds: usize,
    block: Duration,
    is_full: bool,
}

/// What was done in some blocks.
#[derive(Clone, Copy, Default)]
struct Work {
    time: Duration,
    puts: u64,
    /// How often the client waited.
    calls: u64,
    batches: u64,
    syncs: u64,
    sync_time: Duration,
    bytes: u64,
    bases: u64,
    device: Done,
    /// Processor time of the threads that log, and of those of shards.
    log_time: Duration,
    shard_time: Duration,
}

impl Work {
    fn add(&mut self, other: &Work) {
        self.time += other.time;
        self.puts += other.puts;
        self.calls += other.calls;
        self.batches += other.batches;
        self.syncs += other.syncs;
        self.sync_time += other.sync_time;
        self.bytes += other.bytes;
        self.bases += other.bases;
        self.device.add(other.device);
        self.log_time += other.log_time;
        self.shard_time += other.shard_time;
    }

    fn bytes_of_put(&self) -> f64 {
        self.bytes as f64 / self.puts as f64
    }

    /// What was counted, in words.
    fn words(&self) -> String {
        let share = |time: Duration| time.as_secs_f64() / self.time.as_secs_f64() * 100.0;
        format!(
            "{} calls: {} batches of {} bytes, {} syncs in {:.0} % of the time, {} bases; \
             the device {} flushes, {} writes; the thread of the log {:.0} % of a core, the shard's {:.0} %",
            self.calls,
            self.batches,
            self.bytes / self.batches.max(1),
            self.syncs,
            share(self.sync_time),
            self.bases,
            self.device.flushes,
            self.device.writes,
            share(self.log_time),
            share(self.shard_time)
        )
    }
}

/// Processor time of the threads of this process with a name.
fn time_of_threads(name: &str) -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let time = |task: std::fs::DirEntry| {
        let read = |of: &str| std::fs::read_to_string(task.path().join(of)).ok();
        let told = (read("comm")?.trim_end() == name).then(|| read("schedstat"))??;
        told.split_whitespace().next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(tasks.filter_map(time).sum())
}

/// A server in this process, and what is put into it.
struct Putter<'i> {
    /// The session whose writes come back when they are on the disk, and all before them. Dropped before the
    /// store.
    durable: Option<Session>,
    store: Store,
    folder: Option<PathBuf>,
    items: &'i [(&'i [u8], &'i [u8])],
    at: usize,
    last: Work,
    total: Work,
}

impl<'i> Putter<'i> {
    /// Starts a server with these records.
    fn start(
        name: &str,
        config: ServerConfig,
        size: Size,
        items: &'i [(&'i [u8], &'i [u8])],
    ) -> Result<Putter<'i>, String> {
        // Threads that it starts run where the system puts them, but for the shard, which has the last core.
        unpin();
        let folder = config.snapshots.as_ref().map(|of| of.directory.clone());
        let is_logged = config.wal.is_some();
        let mut store =
            Store::start(name, ServerConfig { memory_bytes: memory_for(size.records), ..config })?;
        pin(0);
        for first in (0..size.records).step_by(LOAD as usize) {
            let batch: Vec<u64> = (first..size.records.min(first + LOAD)).collect();
            put_records(&mut store.session, store.table, size.walk, &batch)?;
        }
        let options = SessionOptions::default().durable(true);
        let durable = is_logged.then(|| store.client.session_with(options)).transpose().map_err(text)?;
        let mut putter =
            Putter { durable, store, folder, items, at: 0, last: Work::default(), total: Work::default() };
        putter.settle(!size.is_full)?;
        Ok(putter)
    }

    /// What was done up to now.
    fn work(&self, disk: &Disk) -> Result<Work, String> {
        let told = self.store.told();
        if self.durable.is_some() && told["wal"]["state"] != "writes" {
            return Err(format!("the log does not write: {}", told["wal"]));
        }
        let number = |of: &str| told["wal"][of].as_u64().unwrap_or(0);
        Ok(Work {
            batches: number("batches"),
            syncs: number("syncs"),
            sync_time: Duration::from_secs_f64(told["wal"]["sync_seconds"].as_f64().unwrap_or(0.0)),
            bytes: number("bytes"),
            bases: told["snapshots"]["taken"].as_u64().unwrap_or(0),
            device: disk.done(),
            log_time: time_of_threads("kelix-log"),
            shard_time: time_of_threads("kelix-shard-0"),
            ..Work::default()
        })
    }

    /// Puts so many items at once, again and again for so long. Nanoseconds for a put.
    fn block(&mut self, together: usize, time: Duration, disk: &Disk) -> Result<f64, String> {
        let before = self.work(disk)?;
        let (began, mut calls) = (Instant::now(), 0);
        while began.elapsed() < time {
            self.put(together)?;
            calls += 1;
        }
        let time = began.elapsed();
        self.sync()?;
        let after = self.work(disk)?;
        self.last = Work {
            time,
            calls,
            puts: calls * together as u64,
            batches: after.batches - before.batches,
            syncs: after.syncs - before.syncs,
            sync_time: after.sync_time.saturating_sub(before.sync_time),
            bytes: after.bytes - before.bytes,
            bases: after.bases - before.bases,
            device: after.device.since(before.device),
            log_time: after.log_time.saturating_sub(before.log_time),
            shard_time: after.shard_time.saturating_sub(before.shard_time),
        };
        self.total.add(&self.last);
        Ok(time.as_nanos() as f64 / self.last.puts as f64)
    }

    fn put(&mut self, together: usize) -> Result<(), String> {
        let items = &self.items[self.at..self.at + together];
        self.at = (self.at + together) % self.items.len();
        let Store { session, table, .. } = &mut self.store;
        if let [(key, value)] = items {
            return session.put(*table, key, value).map(drop).map_err(text);
        }
        let results = session.multi_put(*table, items).map_err(text)?;
        results.into_iter().try_for_each(|result| result.map(drop).map_err(text))
    }

    /// Waits until all is on the disk that was put.
    fn sync(&mut self) -> Result<(), String> {
        let Some(durable) = &mut self.durable else { return Ok(()) };
        let (key, value) = self.items[0];
        durable.put(self.store.table, key, value).map(drop).map_err(text)
    }

    /// Waits until no base is being taken.
    fn settle(&mut self, is_short: bool) -> Result<(), String> {
        let Some(folder) = self.folder.as_ref().filter(|_| !is_short) else { return Ok(()) };
        let began = Instant::now();
        std::thread::sleep(BASE_DUE);
        let is_part = |entry: std::fs::DirEntry| entry.path().extension().is_some_and(|of| of == "part");
        while std::fs::read_dir(folder).map_err(text)?.flatten().any(is_part) {
            if began.elapsed() > PATIENCE {
                return Err("a base is not done".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// A block of batches, after which all is on the disk and no base is being taken.
    fn settled_block(&mut self, size: Size, disk: &Disk) -> Result<f64, String> {
        let time = self.block(BATCH, size.block, disk)?;
        self.settle(!size.is_full)?;
        Ok(time)
    }

    /// Looks at some records, and whether the log was written as it had to be.
    fn verify(&mut self, size: Size) -> Result<(), String> {
        let Store { session, table, .. } = &mut self.store;
        let mut value = [0; 32];
        for record in (0..READ_BACK.min(size.records)).map(|step| size.walk.step_of(step)) {
            let found = session.get_into(*table, &key_of(record), &mut value).map_err(text)?;
            found.ok_or_else(|| format!("no record {record}"))?;
            verify(&value, record);
        }
        let Work { batches, syncs, bytes, .. } = self.total;
        if self.durable.is_some() && (batches == 0 || syncs == 0 || bytes == 0) {
            return Err(format!("{batches} batches of {bytes} bytes were logged with {syncs} syncs"));
        }
        Ok(())
    }

    /// Makes sure that nobody was answered before a sync.
    fn verify_synced(&self) -> Result<(), String> {
        let Work { calls, syncs, .. } = self.total;
        if syncs < calls { Err(format!("{calls} calls came back with {syncs} syncs")) } else { Ok(()) }
    }
}

/// A loop that writes into files and syncs them.
struct Appender {
    folder: PathBuf,
    file: File,
    bytes: u64,
    at: u64,
    written: Vec<u8>,
}

impl Appender {
    fn create(folder: PathBuf) -> Result<Appender, String> {
        let file = Appender::file(&folder, FILE_BYTES)?;
        Ok(Appender { folder, file, bytes: FILE_BYTES, at: 0, written: Vec::new() })
    }

    /// A new file, allocated beforehand as those of the log are.
    fn file(folder: &std::path::Path, bytes: u64) -> Result<File, String> {
        let path = folder.join("appended");
        let _ = std::fs::remove_file(&path);
        let file = File::create_new(&path).map_err(text)?;
        fallocate(&file, FallocateFlags::empty(), 0, bytes).map_err(text)?;
        file.sync_all().and_then(|()| File::open(folder)?.sync_all()).map_err(text)?;
        Ok(file)
    }

    /// Writes the bytes of some work in as many batches, and syncs each. Nanoseconds for one of its puts. A
    /// thread of its own does it, which runs where the system likes, and this one looks on meanwhile: so it
    /// comes to the processor as soon, and as late, as the thread of a log whose client looks for its answer.
    fn block(&mut self, work: &Work) -> Result<f64, String> {
        let time = std::thread::scope(|scope| {
            unpin();
            let appending = scope.spawn(|| self.append(work));
            pin(0);
            while !appending.is_finished() {
                std::hint::spin_loop();
            }
            appending.join().expect("it appends or says why not")
        });
        Ok(time?.as_nanos() as f64 / work.puts as f64)
    }

    fn append(&mut self, work: &Work) -> Result<Duration, String> {
        let bytes = work.bytes / work.batches;
        self.written.resize(bytes as usize, 0x5a);
        let (began, mut aside) = (Instant::now(), Duration::ZERO);
        for _ in 0..work.batches {
            if self.at + bytes > self.bytes {
                let began = Instant::now();
                self.bytes = FILE_BYTES.max(bytes);
                (self.file, self.at) = (Appender::file(&self.folder, self.bytes)?, 0);
                aside += began.elapsed();
            }
            self.file.write_all_at(&self.written, self.at).map_err(text)?;
            self.file.sync_data().map_err(text)?;
            self.at += bytes;
        }
        Ok(began.elapsed() - aside)
    }
}

/// A row of rates: ours should be at least so many times the other's.
fn rate(id: &'static str, name: &'static str, wanted: f64, times: [&[f64]; 2], note: String) -> Row {
    let comparison = as_rate(between(times[0], times[1]));
    Row { sense: Sense::AtLeast, ..compared(id, name, "ns a put", wanted, comparison, &(note + "; ")) }
}

/// Rows of a server that answers before it syncs, and the work of it.
fn lazily(disk: &Disk, size: Size, items: &[(&[u8], &[u8])]) -> Result<(Row, Option<Row>, Work), String> {
    progress::show("log_lazy and redis_aof_everysec");
    let folder = disk.folder("lazy")?;
    let mut ours = Putter::start("log-lazy", logged(folder, Durability::Lazy), size, items)?;
    let mut alone = Putter::start("log-alone", ServerConfig::default(), size, items)?;
    let mut redis = Redis::start(disk, Sync::EverySecond, (size.records, size.walk), items)?;
    let sides = 2 + usize::from(redis.is_some());
    let times = interleave::take_blocks(size.rounds, sides, |side| match (side, &mut redis) {
        (0, _) => ours.settled_block(size, disk),
        (2, Some(redis)) => redis.settled_block((size.block, !size.is_full), disk),
        _ => alone.block(BATCH, size.block, disk),
    })
    .map_err(|error: String| format!("log_lazy: {error}"))?;
    ours.verify(size)?;
    alone.verify(size)?;
    let note = format!("{}; {}", disk.name, ours.total.words());
    let name = "puts with 64 under way into a server that logs, lazy / into one that does not";
    let lazy = rate("log_lazy", name, 0.85, [&times[0], &times[1]], note);
    let Some(mut redis) = redis else { return Ok((lazy, None, ours.total)) };
    redis.verify((size.records, size.walk), ours.total.device.flushes > 0)?;
    let name =
        "puts with 64 under way into a server that logs, lazy / SET in Redis with appendfsync everysec";
    let note = format!("{}; {}", disk.name, redis.words());
    let row = rate(Sync::EverySecond.id(), name, 3.0, [&times[0], &times[2]], note);
    Ok((lazy, Some(row), ours.total))
}

/// Rows of a server that answers when it has synced, and the work of puts one at a time.
fn committed(
    disk: &Disk,
    size: Size,
    items: &[(&[u8], &[u8])],
) -> Result<([Row; 2], Option<Row>, Work), String> {
    progress::show("log_commit and redis_aof_always");
    let folder = disk.folder("commit")?;
    let mut ours = Putter::start("log-commit", logged(folder, Durability::Commit), size, items)?;
    let mut appender = Appender::create(disk.folder("loop")?)?;
    let mut redis = Redis::start(disk, Sync::Always, (size.records, size.walk), items)?;
    let sides = 2 + usize::from(redis.is_some());
    let times = interleave::take_blocks(size.rounds, sides, |side| match (side, &mut redis) {
        (0, _) => ours.settled_block(size, disk),
        (2, Some(redis)) => redis.settled_block((size.block, !size.is_full), disk),
        _ => appender.block(&ours.last),
    })
    .map_err(|error: String| format!("log_commit: {error}"))?;
    ours.verify(size)?;
    ours.verify_synced()?;
    let note = format!("{}; {}", disk.name, ours.total.words());
    let name = "puts with 64 under way into a server that logs, commit / \
                writing and syncing the same bytes in as many batches";
    let together = rate("log_commit", name, 0.7, [&times[0], &times[1]], note);
    let beside = redis.map(|mut redis| {
        redis.verify((size.records, size.walk), ours.total.device.flushes > 0)?;
        let name =
            "puts with 64 under way into a server that logs, commit / SET in Redis with appendfsync always";
        let note = format!("{}; {}", disk.name, redis.words());
        Ok::<_, String>(rate(Sync::Always.id(), name, 1.2, [&times[0], &times[2]], note))
    });
    let beside = beside.transpose()?;

    progress::show("log_commit_1");
    ours.total = Work::default();
    let times = interleave::take_blocks(size.rounds, 2, |side| match side {
        0 => ours.block(1, size.block, disk),
        _ => appender.block(&ours.last),
    });
    let times = times.map_err(|error: String| format!("log_commit_1: {error}"))?;
    ours.verify(size)?;
    ours.verify_synced()?;
    let note = format!("{}; {}; ", disk.name, ours.total.words());
    let name = "a put alone into a server that logs, commit / writing and syncing the same bytes";
    let alone = compared("log_commit_1", name, "ns", 1.3, between(&times[0], &times[1]), &note);
    Ok(([together, alone], beside, ours.total))
}

/// The rows.
pub(super) fn rows(disk: &Disk, records: u64, is_full: bool) -> Result<Vec<Row>, String> {
    let (rounds, block) = if is_full { FULL } else { SMALL };
    let walk = Walk::over(records);
    let size = Size { records, walk, rounds, block, is_full };
    let drawn = Numbers(11).records(records, DRAWN);
    let pairs: Vec<_> = drawn.iter().map(|record| (key_of(*record), walk.value_of(*record))).collect();
    let items: Vec<(&[u8], &[u8])> = pairs.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    let (lazy, everysec, work) = lazily(disk, size, &items)?;
    let ([commit, commit_1], always, work_1) = committed(disk, size, &items)?;
    unpin();
    let note =
        format!("{} puts with 64 under way; of one alone {:.0} bytes", work.puts, work_1.bytes_of_put());
    let bytes = bytes_row(
        "log_bytes",
        "bytes in files of the log for a put / bytes of key and value",
        work.bytes_of_put(),
        note,
    );
    Ok([lazy, commit, commit_1].into_iter().chain(everysec).chain(always).chain([bytes]).collect())
}
