//! The stream of a shard's changes, for whoever follows it: a record a step, or some where it is logged.
//!
//! 1. A record holds all that changed since the one before, so whole operations, and the answers to writes
//!    that may be asked for again stand with their effect.
//! 2. Nothing is noted while nobody follows.
//! 3. What finds no room in the stream stays here, and the shard takes no requests until it has found some
//!    ([`Recorder::is_behind`]): followers that count hold it back, and lose nothing.

use kelix_image::event;
use kelix_log::{Lag, Reader, RecordHead, ShardLog, Stream};
use kelix_types::mark;

use crate::datasets::Datasets;
use crate::store::Store;

/// Words of the stream: some 100,000 small puts.
const STREAM_WORDS: usize = 2 << 20;

/// How far a shard's changes have come.
#[derive(Clone, Copy)]
pub(crate) struct Reached {
    /// The last record.
    pub sealed: u64,
    /// The record that has, or will have, all that has changed.
    pub covers: u64,
    /// The last record that is in the stream as a whole.
    pub in_stream: u64,
    /// Followers have yet to make room.
    pub is_behind: bool,
}

/// What a shard's followers are told.
#[derive(Default)]
pub(crate) struct Recorder {
    stream: Option<Stream>,
    /// Records so far.
    sequence: u64,
    /// What has found no room yet.
    unsent: Vec<u64>,
    /// What the shard keeps beside its memory, as followers know it. `None`: a new one knows nothing.
    kept: Option<Vec<u64>>,
    /// The log whose batches records are sealed for.
    log: Option<ShardLog>,
}

impl Recorder {
    /// Records are for the batches of this log from now on.
    pub fn write_log(&mut self, log: ShardLog) {
        self.log = Some(log);
    }

    /// How far the changes have come.
    #[inline]
    pub fn reached(&self, store: &Store) -> Reached {
        let (sealed, is_behind) = (self.sequence, self.is_behind());
        let covers = sealed + u64::from(store.image.journal().words() > 0);
        Reached { sealed, covers, in_stream: sealed - u64::from(is_behind), is_behind }
    }

    /// Somebody follows from now on, when all that changed before is in records.
    pub fn follow(&mut self, store: &Store, lag: Lag) -> Reader {
        let stream = self.stream.get_or_insert_with(|| Stream::new(STREAM_WORDS));
        store.image.journal().keep(true);
        self.kept = None;
        stream.follow(lag, self.unsent.len())
    }

    /// Whether somebody has begun to follow, and not been seen to end.
    pub fn is_followed(&self) -> bool {
        self.stream.is_some()
    }

    /// The next record follows this one.
    pub fn go_on_behind(&mut self, sequence: u64) {
        self.sequence = sequence;
    }

    /// Records so far.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether followers have yet to make room for what was done already.
    #[inline]
    pub fn is_behind(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// A step has ended: makes a record of what changed, if anything did.
    #[inline]
    pub fn seal(&mut self, store: &Store, datasets: &mut Datasets) {
        if store.image.journal().is_kept() {
            self.seal_step(store, datasets);
        }
    }

    fn seal_step(&mut self, store: &Store, datasets: &mut Datasets) {
        let journal = store.image.journal();
        let is_followed = self.stream.as_mut().is_some_and(Stream::is_followed);
        let Some(stream) = self.stream.as_mut().filter(|_| is_followed) else {
            journal.keep(false);
            (self.stream, self.unsent) = (None, Vec::new());
            return;
        };
        if !self.unsent.is_empty() {
            let pushed = stream.push(&self.unsent);
            self.unsent.drain(..pushed);
            if !self.unsent.is_empty() {
                return;
            }
        }
        if datasets.take_changed() || self.kept.is_none() {
            let kept = datasets.keep(&store.tables);
            if self.kept.as_ref() != Some(&kept) {
                journal.event(event::KEPT, &kept);
                self.kept = Some(kept);
            }
        }
        if journal.words() == 0 {
            return;
        }
        self.sequence += 1;
        store.image.begin_record(self.sequence + 1);
        let batch = self.log.as_ref().map_or(0, ShardLog::batch);
        let (sequence, last_incarnation) = (self.sequence, store.image.last_incarnation().0);
        journal.take(|notes| {
            let head = RecordHead { sequence, last_incarnation, batch, words: notes.len() }.words();
            let pushed = stream.push(&head);
            let pushed = if pushed == head.len() { pushed + stream.push(notes) } else { pushed };
            if pushed < head.len() + notes.len() {
                mark!("record waited for room in the stream");
                self.unsent.extend(head.iter().chain(notes).skip(pushed));
            }
        });
    }
}
