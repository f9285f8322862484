//! A log on a disk that loses power: what a server has written and not synced is there after its death or
//! not, block by block, and the next one begins with what is. A sync may fail, and the log with it: the
//! server serves its memory then, and takes no writes, until it dies.

use std::ops::ControlFlow;
use std::rc::Rc;

use kelix_image::words::full_fence;
use kelix_image::{PrivateSegments, Span};
use kelix_log::files::{
    Batch, Feed, Identity, Log, LogWriter, MemoryDisk, Operation as DiskOperation, Position,
};
use kelix_log::{LogControl, LogState};
use kelix_shard::{Durability, Follower, Shard, ShardConfig};
use kelix_types::{Result, mark};

use crate::fabric::Bell;
use crate::history::Operation;
use crate::scheduler::{self, Shared};

/// Files are so small that a run has several.
const FILE_BYTES: u64 = 256 << 10;

/// The disk of the servers of a run.
#[derive(Clone)]
pub struct Disk {
    /// What stands there.
    pub storage: MemoryDisk,
    /// What the hashes of keys begin with.
    pub hash_seed: u64,
    /// The longest that a batch waits to be gathered, and to be synced.
    pub delay_ns_max: u64,
    /// When a log failed, and when another server was in force.
    failures: Shared<Vec<(u64, Option<u64>)>>,
}

impl Disk {
    /// A disk without a log.
    pub fn new(hash_seed: u64, delay_ns_max: u64) -> Disk {
        Disk { storage: MemoryDisk::new(), hash_seed, delay_ns_max, failures: Rc::default() }
    }

    /// Lets the next sync of a file fail.
    pub fn fail(&self) {
        self.storage.fail(Some(DiskOperation::SyncData), 1);
    }

    /// Another server is in force.
    pub fn end_failure(&self) {
        let mut failures = self.failures.borrow_mut();
        failures.iter_mut().for_each(|(_, until_ns)| *until_ns = until_ns.or(Some(scheduler::now_ns())));
    }

    /// Whether what a client was told may be of a memory whose log had failed, and no change of its own: the
    /// next server may know better. What was acknowledged is on the disk also then.
    pub fn may_have_lost(&self, operation: &Operation) -> bool {
        let meets = |(from_ns, until_ns): &(u64, Option<u64>)| {
            operation.returned_ns.is_some_and(|returned_ns| returned_ns >= *from_ns)
                && until_ns.is_none_or(|until_ns| operation.called_ns <= until_ns)
        };
        operation.changed_nothing() && self.failures.borrow().iter().any(meets)
    }

    /// The power is gone: of what was not synced some is there, and some is not.
    pub fn lose_power(&self) {
        mark!("power of a disk lost");
        self.storage.crash(|| scheduler::random_below(u64::MAX));
    }
}

/// The end of a log with which a server goes on.
pub struct LogEnd {
    disk: Disk,
    log: Log,
    position: Position,
    control: LogControl,
    followers: Vec<Option<(PrivateSegments, Follower)>>,
    feeds: Vec<Feed>,
}

impl LogEnd {
    /// Reads what stands on a disk.
    pub fn replay(disk: Disk, shards: usize, memory_bytes: u64) -> LogEnd {
        let follower = || {
            let segments = PrivateSegments::default();
            (segments.clone(), Follower::new(Box::new(segments), memory_bytes))
        };
        let mut followers: Vec<_> = (0..shards).map(|_| follower()).collect();
        let log = Log::open(Box::new(disk.storage.clone())).expect("a log that can be opened");
        let end = log.read(0, |batch| {
            for (shard, records) in batch.parts() {
                followers[shard as usize].1.apply_all(records)?;
            }
            Ok(ControlFlow::Continue(()))
        });
        let sequences = followers.iter().map(|(_, follower)| follower.applied()).collect();
        let last = end.expect("a log that can be read").last;
        LogEnd {
            disk,
            log,
            position: Position { sequences, ..last },
            control: LogControl::new(),
            followers: followers.into_iter().map(Some).collect(),
            feeds: Vec::new(),
        }
    }

    /// A shard goes on with what was read of it.
    pub fn begin_shard(
        &mut self,
        number: usize,
        config: ShardConfig,
        header: Span,
    ) -> (Shard, PrivateSegments) {
        let (segments, follower) = self.followers[number].take().expect("each shard begins once");
        let shard = match follower.applied() {
            0 => Shard::create(config, header, Box::new(segments.clone())),
            _ => {
                mark!("shard began with its log");
                follower.into_shard(config, header)
            }
        };
        let mut shard = shard.expect("a shard of what was logged");
        let log = self.control.shard(shard.end());
        self.feeds.push(Feed::new(shard.write_log(log.clone(), Durability::Commit), log));
        (shard, segments)
    }

    /// All shards have begun: what was read is made durable.
    pub fn begin(self, term: u64, bells: Vec<Bell>) -> LogTask {
        let LogEnd { disk, log, position, control, feeds, .. } = self;
        let identity = Identity { store: 1, life: term, description: String::new() };
        let writer = LogWriter::create(log, identity, position, FILE_BYTES).expect("a disk that works");
        LogTask { disk, control, feeds, writer, bells }
    }
}

/// Who writes a server's log.
pub struct LogTask {
    disk: Disk,
    control: LogControl,
    feeds: Vec<Feed>,
    writer: LogWriter,
    bells: Vec<Bell>,
}

impl LogTask {
    /// Writes and syncs until the server is killed, or a sync fails.
    pub fn run(mut self) {
        if self.write().is_err() {
            mark!("log failed");
            self.disk.failures.borrow_mut().push((scheduler::now_ns(), None));
            self.control.set_state(LogState::Failed);
            full_fence();
            // Who followed is gone before the shards look.
            drop(self.feeds);
            self.bells.iter().for_each(Bell::ring);
        }
    }

    fn write(&mut self) -> Result<()> {
        let mut batch = Batch::default();
        loop {
            self.pause();
            batch.begin();
            let feeds = &mut self.feeds;
            let gathered = self.control.gather(|later| {
                let mut feeds = (0..).zip(&mut *feeds);
                feeds.try_fold(true, |all, (shard, feed)| Ok(all & feed.gather(shard, later, &mut batch)?))
            });
            gathered.expect("records of a shard");
            if batch.is_empty() {
                continue;
            }
            scheduler::unnoticed(|| self.writer.write(&batch, 1))?;
            self.pause();
            scheduler::unnoticed(|| {
                if self.writer.needs_next() {
                    self.writer.prepare_next()?;
                }
                self.writer.sync()
            })?;
            for ((feed, sequence), bell) in
                self.feeds.iter_mut().zip(self.writer.sequences()).zip(&self.bells)
            {
                feed.set_durable(*sequence);
                bell.ring();
            }
        }
    }

    fn pause(&self) {
        scheduler::sleep(1 + scheduler::random_below(self.disk.delay_ns_max));
    }
}
