//! The disk of a node: a copy of the primary for each member that the node was, as a server keeps them
//! (`mirror::copies`), with a base and a log.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::rc::Rc;

use kelix_image::{Books, PrivateSegments};
use kelix_log::files::{Feed, Log, LogWriter, MemoryDisk, Operation, Position};
use kelix_log::{LogControl, Record};
use kelix_register::View;
use kelix_shard::replicas::{Intake, Keeping, Shadow, choose_copy};
use kelix_shard::{Follower, Shard};
use kelix_types::limits::GRANULE_BYTES;
use kelix_types::{Error, ErrorKind, Place, Result, mark};

use crate::disk::{LogTask, Told, Written, create_writer};
use crate::fabric::Bell;
use crate::scheduler::{self, Shared};

/// The disk of a node.
#[derive(Clone)]
pub struct NodeDisk {
    /// The longest that a batch waits to be gathered, and to be synced.
    pub delay_ns_max: u64,
    /// The newest first.
    copies: Shared<Vec<Rc<Copy>>>,
}

/// A copy of the primary.
pub struct Copy {
    storage: MemoryDisk,
    /// The instance of the node that writes the copy.
    boot: Cell<u64>,
    base: RefCell<Option<Base>>,
}

/// What there was of all shards at a moment.
pub struct Base(Vec<ShardBase>);

struct ShardBase {
    books: Books,
    kept: Vec<u64>,
    applied: u64,
    memory: Vec<(Place, Vec<u64>)>,
}

/// What can be begun with of a copy.
pub struct Found {
    pub copy: Rc<Copy>,
    pub boot: u64,
    /// Records of all shards.
    pub records: u64,
}

/// What a copy has, and where its log goes on.
pub struct Restored {
    /// Of each shard, if there ever was anything.
    pub shadows: Vec<Option<Shadow<PrivateSegments>>>,
    pub position: Position,
}

/// The copy with which a primary goes on, behind a position of its log.
pub struct Kept {
    pub copy: Rc<Copy>,
    pub position: Position,
}

impl NodeDisk {
    /// A disk on which is nothing.
    pub fn new(delay_ns_max: u64) -> NodeDisk {
        NodeDisk { delay_ns_max, copies: Rc::default() }
    }

    /// Begins another copy, of an instance of the node.
    pub fn begin(&self, boot: u64) -> Rc<Copy> {
        let copy = Copy { storage: MemoryDisk::new(), boot: boot.into(), base: RefCell::default() };
        let copy = Rc::new(copy);
        self.copies.borrow_mut().insert(0, copy.clone());
        copy
    }

    /// Removes all copies but one.
    pub fn keep_only(&self, copy: &Rc<Copy>) {
        self.copies.borrow_mut().retain(|of| Rc::ptr_eq(of, copy));
    }

    /// What can be begun with, the newest first.
    pub fn survey(&self) -> Vec<Found> {
        let copies = self.copies.borrow();
        copies.iter().filter_map(|copy| Copy::survey(copy).ok().flatten()).collect()
    }

    /// The power is gone: of what was not synced some is there, and some is not.
    pub fn lose_power(&self) {
        mark!("power of a node's disk lost");
        for copy in self.copies.borrow().iter() {
            copy.storage.crash(|| scheduler::random_below(u64::MAX));
        }
    }

    /// All that is on the disk is gone.
    pub fn lose_all(&self) {
        mark!("disk of a node lost");
        self.copies.borrow_mut().clear();
    }

    /// Lets the next sync of the newest copy's log fail.
    pub fn fail(&self) {
        if let Some(copy) = self.copies.borrow().first() {
            copy.storage.fail(Some(Operation::SyncData), 1);
        }
    }

    /// Forgets what was to fail.
    pub fn fail_no_more(&self) {
        self.copies.borrow().iter().for_each(|copy| copy.storage.fail_no_more());
    }
}

impl ShardBase {
    fn of(follower: &Follower) -> ShardBase {
        let books = follower.books();
        let memory = books.segments.iter().filter_map(|segment| {
            let mut words = vec![0; segment.bytes as usize / 8];
            let place = Place(segment.first_granule * GRANULE_BYTES);
            follower.map().words(place, words.len())?.copy_out(0, &mut words);
            Some((place, words))
        });
        let memory = memory.collect();
        ShardBase { books, kept: follower.kept().to_vec(), applied: follower.applied(), memory }
    }

    fn restore(&self, segments: &PrivateSegments) -> Result<Follower> {
        let position = [self.applied];
        Follower::of_snapshot(Box::new(segments.clone()), (&self.books, &self.kept, &position), |map| {
            for (place, words) in &self.memory {
                let memory = map.words(*place, words.len());
                memory.expect("the memory of a segment").copy_in(0, words);
            }
            Ok(())
        })
    }
}

impl Copy {
    fn open(&self) -> Result<Log> {
        Log::open(Box::new(self.storage.clone()))
    }

    /// How far the log goes, of a copy that can be begun with.
    fn survey(copy: &Rc<Copy>) -> Result<Option<Found>> {
        let log = copy.open()?;
        let Some(last) = log.files().last() else { return Ok(None) };
        if !log.begins_with_first() && !copy.has_base() {
            return Ok(None);
        }
        let end = log.read(last.first, |_| Ok(ControlFlow::Continue(())))?;
        let records = end.last.sequences.iter().sum();
        Ok(Some(Found { copy: copy.clone(), boot: copy.boot.get(), records }))
    }

    /// Whether there is a base.
    pub fn has_base(&self) -> bool {
        self.base.borrow().is_some()
    }

    /// Says which instance of the node goes on with the copy.
    pub fn set_boot(&self, boot: u64) {
        self.boot.set(boot);
    }

    /// Reads the base, and the log behind that.
    pub fn restore(&self, shards: usize) -> Result<Restored> {
        self.restore_until(&vec![u64::MAX; shards])
    }

    /// The same, without what is behind these records, the last one of each shard.
    fn restore_until(&self, until: &[u64]) -> Result<Restored> {
        let shards = until.len();
        let log = self.open()?;
        let base = self.base.borrow();
        let begin = |shard: usize| {
            let segments = PrivateSegments::default();
            let mut follower = match &*base {
                Some(Base(shards)) => shards[shard].restore(&segments)?,
                None => Follower::new(Box::new(segments.clone()), u64::MAX / 2),
            };
            follower.forget_clients();
            Ok(Shadow { segments, follower })
        };
        let mut shadows = (0..shards).map(begin).collect::<Result<Vec<_>>>()?;
        let end = log.read(0, |batch| {
            for (shard, mut records) in batch.parts() {
                let follower = &mut shadows[shard as usize].follower;
                while let Some((record, behind)) = Record::split(records)? {
                    let sequence = record.head.sequence;
                    if sequence > follower.applied() && sequence <= until[shard as usize] {
                        follower.apply(&record)?;
                    }
                    records = behind;
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        let sequences = shadows.iter().map(|shadow| shadow.follower.applied()).collect();
        let is_there =
            |Shadow { follower, .. }: &Shadow<_>| follower.applied() > 0 || !follower.kept().is_empty();
        let shadows = shadows.into_iter().map(|shadow| Some(shadow).filter(is_there)).collect();
        Ok(Restored { shadows, position: Position { sequences, ..end.last } })
    }
}

/// What a shard has at a moment, which disks are to have, too.
pub struct Moment {
    sequence: u64,
    kept: Vec<u64>,
    memory: Vec<(Place, Vec<u64>)>,
}

impl Moment {
    /// Of a shard between two steps.
    pub fn of(shard: &mut Shard) -> Moment {
        shard.seal();
        let image = shard.image();
        let words_of = |(place, bytes): (Place, u64)| {
            let mut words = vec![0; bytes as usize / 8];
            image.map().words(place, words.len())?.copy_out(0, &mut words);
            Some((place, words))
        };
        let memory = image.stretches().into_iter().filter_map(words_of).collect();
        Moment { sequence: shard.sequence(), kept: shard.kept(), memory }
    }

    fn compare(&self, follower: &Follower) -> std::result::Result<(), String> {
        if (follower.applied(), follower.kept()) != (self.sequence, &self.kept[..]) {
            return Err(format!("record {} of {} is the last one", follower.applied(), self.sequence));
        }
        let differs = |(place, words): &&(Place, Vec<u64>)| {
            let memory = follower.map().words(*place, words.len());
            memory.is_none_or(|memory| words.iter().enumerate().any(|(at, word)| memory.load(at) != *word))
        };
        let different = self.memory.iter().find(differs);
        different.map_or(Ok(()), |(place, _)| Err(format!("the memory at {place:?} differs")))
    }
}

impl NodeDisk {
    /// Whether the copy of a member in sync has what shards had at these moments.
    pub fn compare(&self, view: &View, moments: &[Moment]) -> std::result::Result<(), String> {
        let found = choose_copy(view, self.survey(), |found| found.boot).ok_or("there is no copy")?;
        let until: Vec<u64> = moments.iter().map(|moment| moment.sequence).collect();
        let Restored { shadows, .. } = found.copy.restore_until(&until).map_err(|error| error.to_string())?;
        moments.iter().zip(&shadows).try_for_each(|(moment, shadow)| match shadow {
            Some(shadow) => moment.compare(&shadow.follower),
            None if moment.sequence == 0 => Ok(()),
            None => Err("nothing is there of a shard".to_string()),
        })
    }
}

impl Kept {
    /// Writes the copy as an instance of the node, from its position on.
    pub fn go_on(&self, boot: u64) -> Result<LogWriter> {
        self.copy.set_boot(boot);
        create_writer(self.copy.open()?, boot, self.position.clone())
    }
}

/// What a replica keeps: the copy that the replica has begun.
pub struct Keeper {
    pub copy: Rc<Copy>,
    pub keeping: Keeping,
    written: Rc<Written>,
    /// A base that has its place once the log has all before.
    next_base: Option<Base>,
}

impl Keeper {
    /// Begins to keep what comes from now on. Also returns what writes the log, which rings the replica.
    pub fn begin(
        disk: &NodeDisk,
        (intake, boot): (&mut Intake<PrivateSegments>, u64),
        bell: &Bell,
    ) -> Result<(Keeper, LogTask)> {
        let copy = disk.begin(boot);
        let control = LogControl::of_mirror();
        let position = Position { sequences: intake.applied(), ..Position::default() };
        let writer = create_writer(copy.open()?, boot, position)?;
        let taken = intake.keep_log(&control, true)?;
        let written = Written::of(&writer);
        let bell = bell.clone();
        let task = LogTask {
            delay_ns_max: disk.delay_ns_max,
            control,
            is_of_replica: true,
            feeds: taken.into_iter().map(|(reader, log)| Feed::new(reader, log)).collect(),
            writer,
            written: written.clone(),
            tell: Box::new(move |_: Told<'_>| bell.ring()),
        };
        Ok((Keeper { copy, keeping: Keeping::default(), written, next_base: None }, task))
    }

    /// Takes a base, or gives one its place that was taken before.
    pub fn take_base(&mut self, intake: &Intake<PrivateSegments>, shadows: &[Shadow<PrivateSegments>]) {
        match self.next_base.take() {
            None if intake.is_at_cut() => {
                let base = shadows.iter().map(|shadow| ShardBase::of(&shadow.follower)).collect();
                self.next_base = Some(Base(base));
            }
            Some(base) if self.written.has(base.0.iter().map(|shard| shard.applied)) => {
                mark!("base of a replica taken");
                *self.copy.base.borrow_mut() = Some(base);
            }
            base => self.next_base = base,
        }
    }

    /// Whether the log takes nothing any more.
    pub fn has_failed(&self) -> bool {
        self.written.has_failed()
    }

    /// Has the log end behind these records, the last one of each shard. An error: some are not there.
    pub fn end(&self, sequences: &[u64]) -> Result<Kept> {
        self.written.end();
        while self.written.ended().is_none() && !self.written.has_failed() {
            scheduler::sleep(1 + scheduler::random_below(1_000));
        }
        let ended = self.written.ended().filter(|position| position.sequences == sequences);
        let position = ended.ok_or_else(|| {
            let context = "the log of this replica does not have all";
            Error::new(ErrorKind::Unavailable, "serve", context).with_retry(true)
        })?;
        Ok(Kept { copy: self.copy.clone(), position })
    }
}
