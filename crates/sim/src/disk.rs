//! A log on a disk that loses power: what a server has written and not synced is there after its death or
//! not, block by block, and the next one begins with what is. A sync may fail, and the log with it: the
//! server serves its memory then, and takes no writes, until it dies.

use std::cell::{Cell, RefCell};
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
        let writer = create_writer(log, term, position).expect("a disk that works");
        let (delay_ns_max, failures, state) = (disk.delay_ns_max, disk.failures.clone(), control.clone());
        let tell = move |told: Told<'_>| match told {
            Told::Synced(_) | Told::Over => bells.iter().for_each(Bell::ring),
            Told::Failed => {
                failures.borrow_mut().push((scheduler::now_ns(), None));
                state.set_state(LogState::Failed);
                full_fence();
            }
        };
        LogTask {
            delay_ns_max,
            control,
            is_of_replica: false,
            feeds,
            written: Written::of(&writer),
            writer,
            tell: Box::new(tell),
        }
    }
}

/// Goes on with a log behind a position.
pub fn create_writer(log: Log, life: u64, position: Position) -> Result<LogWriter> {
    let identity = Identity { store: 1, life, description: String::new() };
    LogWriter::create(log, identity, position, FILE_BYTES)
}

/// What the task that writes a log tells.
pub enum Told<'a> {
    /// What was written is on the disk, as these say.
    Synced(&'a [Feed]),
    /// The log takes nothing any more.
    Failed,
    /// Nobody follows the shards for this log any more.
    Over,
}

/// What others know of a log that is written, and how the writing is ended.
pub struct Written {
    ends: Cell<bool>,
    ended: RefCell<Option<Position>>,
    has_failed: Cell<bool>,
    durable: RefCell<Vec<u64>>,
}

impl Written {
    /// Of a log that is about to be written.
    pub fn of(writer: &LogWriter) -> Rc<Written> {
        let durable = RefCell::new(writer.sequences().to_vec());
        Rc::new(Written {
            ends: Cell::new(false),
            ended: RefCell::default(),
            has_failed: Cell::new(false),
            durable,
        })
    }

    /// Has the log end behind all that there is.
    pub fn end(&self) {
        self.ends.set(true);
    }

    /// Where the log has ended, if it has.
    pub fn ended(&self) -> Option<Position> {
        self.ended.borrow().clone()
    }

    /// Whether the log takes nothing any more.
    pub fn has_failed(&self) -> bool {
        self.has_failed.get()
    }

    /// Whether records up to these are on the disk, of all shards.
    pub fn has(&self, sequences: impl Iterator<Item = u64>) -> bool {
        self.durable.borrow().iter().zip(sequences).all(|(durable, sequence)| *durable >= sequence)
    }
}

/// Who writes a log.
pub struct LogTask {
    /// The longest that a batch waits to be gathered, and to be synced.
    pub delay_ns_max: u64,
    /// What all shards know.
    pub control: LogControl,
    /// What is written is what came of a feed: nobody tells any of that while a batch is gathered.
    pub is_of_replica: bool,
    /// What shards tell.
    pub feeds: Vec<Feed>,
    /// What writes.
    pub writer: LogWriter,
    /// What others know of this log.
    pub written: Rc<Written>,
    /// Whom it tells.
    pub tell: Box<dyn Fn(Told<'_>)>,
}

impl LogTask {
    /// Writes and syncs until the server is killed, the log is ended, or a sync fails.
    pub fn run(mut self) {
        let ended = self.write().and_then(|()| {
            let position = self.writer.position();
            scheduler::unnoticed(|| self.writer.end())?;
            *self.written.ended.borrow_mut() = Some(position);
            Ok(())
        });
        if ended.is_err() {
            mark!("log failed");
            self.written.has_failed.set(true);
            (self.tell)(Told::Failed);
        }
        // Who followed is gone before the shards look.
        drop(self.feeds);
        (self.tell)(Told::Over);
    }

    fn write(&mut self) -> Result<()> {
        let mut batch = Batch::default();
        loop {
            let ends = self.written.ends.get();
            self.pause();
            batch.begin();
            let LogTask { feeds, control, .. } = self;
            let mut gather = || {
                control.gather(|later| {
                    let mut feeds = (0..).zip(&mut *feeds);
                    feeds
                        .try_fold(true, |all, (shard, feed)| Ok(all & feed.gather(shard, later, &mut batch)?))
                })
            };
            let gathered = if self.is_of_replica { scheduler::unnoticed(&mut gather) } else { gather() };
            if !gathered.expect("records of a shard") {
                self.feeds.iter_mut().try_for_each(Feed::drain)?;
            }
            if batch.is_empty() {
                if ends {
                    return Ok(());
                }
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
            for (feed, sequence) in self.feeds.iter_mut().zip(self.writer.sequences()) {
                feed.set_durable(*sequence);
            }
            *self.written.durable.borrow_mut() = self.writer.sequences().to_vec();
            (self.tell)(Told::Synced(&self.feeds));
        }
    }

    fn pause(&self) {
        scheduler::sleep(1 + scheduler::random_below(self.delay_ns_max));
    }
}
