//! Redis with its append-only file: `SET` of as many items at once as ours puts.

use std::time::{Duration, Instant};

use kelix_report::cores::on_last_core;
use kelix_report::daemon::{Daemon, Transport, is_installed};
use kelix_report::redis::{self, Connection};

use super::BATCH;
use super::disk::{Disk, Done};
use crate::store::{Walk, key_of, verify};

/// Items that are put at once while it is loaded.
const LOAD: u64 = 1 << 10;
/// How long it has been since the last sync of those that come each second, at most.
const SECOND: Duration = Duration::from_millis(1100);
/// How long it may take until what was appended is on the disk.
const PATIENCE: Duration = Duration::from_secs(60);
/// Records that are looked at in the end.
const READ_BACK: u64 = 1000;

/// When it syncs its file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sync {
    EverySecond,
    Always,
}

impl Sync {
    fn name(self) -> &'static str {
        match self {
            Sync::EverySecond => "everysec",
            Sync::Always => "always",
        }
    }

    /// The row about it.
    pub fn id(self) -> &'static str {
        match self {
            Sync::EverySecond => "redis_aof_everysec",
            Sync::Always => "redis_aof_always",
        }
    }
}

/// Redis, a connection to it, and what it is told.
pub(super) struct Redis {
    // Dropped before its folder goes.
    _daemon: Daemon,
    connection: Connection,
    sync: Sync,
    /// Commands, the end of each batch of them, and the batch that is next.
    commands: Vec<u8>,
    ends: Vec<usize>,
    at: usize,
    batches: u64,
    /// How long they took.
    time: Duration,
    /// What the device did while they were done.
    device: Done,
}

fn say_set(key: &[u8], value: &[u8], commands: &mut Vec<u8>) {
    redis::array(3, commands);
    [b"SET", key, value].iter().for_each(|part| redis::bulk_string(part, commands));
}

impl Redis {
    /// Starts it on the last core, with these records in it, to be told of these items. `None`: there is no
    /// such program, which is said.
    pub fn start(
        disk: &Disk,
        sync: Sync,
        (records, walk): (u64, Walk),
        items: &[(&[u8], &[u8])],
    ) -> Result<Option<Redis>, String> {
        if !is_installed(redis::PROGRAM) {
            let (id, program) = (sync.id(), redis::PROGRAM);
            eprintln!(
                "{id} is left out: {program} is not installed; on Debian: apt-get install redis-server"
            );
            return Ok(None);
        }
        let folder = disk.folder(sync.id())?;
        let daemon = on_last_core(|| redis::start_appending(Transport::Unix, &folder))?;
        let mut connection = Connection::open(&daemon)?;
        let mut commands = Vec::new();
        for first in (0..records).step_by(LOAD as usize) {
            let batch = first..records.min(first + LOAD);
            commands.clear();
            batch.clone().for_each(|of| say_set(&key_of(of), &walk.value_of(of), &mut commands));
            connection.send_made(&commands)?;
            batch.into_iter().try_for_each(|_| connection.expect_ok())?;
        }
        // Redis is loaded with a sync each second, since one each command would take minutes.
        connection.done(&[b"CONFIG", b"SET", b"appendfsync", sync.name().as_bytes()])?;
        commands.clear();
        let ends = items.chunks(BATCH).map(|batch| {
            batch.iter().for_each(|(key, value)| say_set(key, value, &mut commands));
            commands.len()
        });
        let ends = ends.collect();
        let mut redis = Redis {
            _daemon: daemon,
            connection,
            sync,
            commands,
            ends,
            at: 0,
            batches: 0,
            time: Duration::ZERO,
            device: Done::default(),
        };
        redis.settle(true)?;
        Ok(Some(redis))
    }

    /// Puts batches for so long. Nanoseconds for a put.
    fn block(&mut self, time: Duration, disk: &Disk) -> Result<f64, String> {
        let (before, began, mut puts) = (disk.done(), Instant::now(), 0);
        while began.elapsed() < time {
            let begin = self.at.checked_sub(1).map_or(0, |before| self.ends[before]);
            self.connection.send_made(&self.commands[begin..self.ends[self.at]])?;
            (0..BATCH).try_for_each(|_| self.connection.expect_ok())?;
            self.at = (self.at + 1) % self.ends.len();
            (puts, self.batches) = (puts + BATCH, self.batches + 1);
        }
        let time = began.elapsed();
        self.time += time;
        self.device.add(disk.done().since(before));
        Ok(time.as_nanos() as f64 / puts as f64)
    }

    /// A block of so much time, after which the server is at rest; a short run does not wait for a sync.
    pub fn settled_block(&mut self, (time, is_short): (Duration, bool), disk: &Disk) -> Result<f64, String> {
        let time = self.block(time, disk)?;
        self.settle(is_short)?;
        Ok(time)
    }

    /// Waits until it has nothing to do any more that it put off. `is_short`: without the sync that comes
    /// each second.
    fn settle(&mut self, is_short: bool) -> Result<(), String> {
        if self.sync == Sync::EverySecond && !is_short {
            std::thread::sleep(SECOND);
        }
        let began = Instant::now();
        loop {
            let told = self.connection.info(b"persistence")?;
            let is = |line: &str| told.lines().any(|told| told.trim_end() == line);
            if !is("aof_enabled:1") || !is("aof_last_write_status:ok") {
                return Err(format!("redis-server appends nothing: {told}"));
            }
            let is_done = self.sync == Sync::Always || is("aof_pending_bio_fsync:0");
            if is_done && is("aof_rewrite_in_progress:0") {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("redis-server does not come to rest: {told}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Makes sure that it syncs as it should and has what it was told. `flushes_count`: the device was seen
    /// to flush when ours synced.
    pub fn verify(&mut self, (records, walk): (u64, Walk), flushes_count: bool) -> Result<(), String> {
        // Syncs of others that come together are one flush.
        let fewest = match self.sync {
            Sync::Always => self.batches / 2,
            Sync::EverySecond => self.time.as_secs() / 2,
        };
        if flushes_count && self.device.flushes < fewest {
            return Err(format!("redis-server did not sync: {}", self.words()));
        }
        self.connection.begin(b"CONFIG", 3);
        self.connection.part(b"GET");
        self.connection.part(b"appendfsync");
        self.connection.send()?;
        self.connection.array()?;
        let _name = self.connection.bulk_string()?;
        let sync = self.connection.bulk_string()?.map(|sync| String::from_utf8_lossy(sync).into_owned());
        if sync.as_deref() != Some(self.sync.name()) {
            return Err(format!("redis-server syncs {sync:?}, not {}", self.sync.name()));
        }
        for record in (0..READ_BACK.min(records)).map(|step| walk.step_of(step)) {
            self.connection.begin(b"GET", 2);
            self.connection.part(&key_of(record));
            self.connection.send()?;
            verify(self.connection.bulk_string()?.ok_or("redis-server lacks a record")?, record);
        }
        Ok(())
    }

    /// What was counted of it, in words.
    pub fn words(&self) -> String {
        let Done { writes, flushes } = self.device;
        format!(
            "Redis: {} batches, {flushes} flushes and {writes} writes of the device meanwhile",
            self.batches
        )
    }
}
