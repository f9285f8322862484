//! The stream of a shard's changes, for whoever follows it: a record a step, or some where it is logged.
//!
//! 1. A record holds all that changed since the one before, so whole operations, and the answers to writes
//!    that may be asked for again stand with their effect.
//! 2. Nothing is noted while nobody follows.
//! 3. Clients that want to know are told with each answer which record has all that the answer tells of
//!    ([`Reached::covers`]). No copy that lacks some of that is ever taken to have the record: while nobody
//!    follows it is the next one, which is counted without being told when somebody begins to
//!    ([`Recorder::follow`]).
//! 4. What finds no room in the stream stays here, and the shard takes no requests until it has found some
//!    ([`Recorder::is_behind`]): followers that count hold it back, and lose nothing.
//!    A mirror tells the records of the shard that it shows, as they were ([`Recorder::retell`]), and takes no
//!    further ones meanwhile.
//! 5. A record is one state. Where changes are logged and nobody follows any more, since the log has failed,
//!    what changes from then on is of a record that nobody is told of: its answers wait for more than the
//!    disk will ever have, and no base passes for the state of a record before
//!    ([`Recorder::end_following`]).

use kelix_image::{Journal, event};
use kelix_log::{BATCHES_OLD, Lag, LogControl, Reader, Record, RecordHead, Stream, StreamMemory};
use kelix_types::mark;

use crate::datasets::Datasets;
use crate::store::Store;

/// Words of the stream: some 100,000 small puts.
pub const STREAM_WORDS: usize = 2 << 20;

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
    /// Somebody follows, so that what has changed becomes a record.
    pub is_followed: bool,
}

/// What a shard's followers are told.
#[derive(Default)]
pub(crate) struct Recorder {
    stream: Option<Stream>,
    /// Records so far.
    sequence: u64,
    /// What has found no room yet.
    unsent: Vec<u64>,
    /// Behind which records of other shards the next one comes.
    causes: Vec<u64>,
    /// What the shard keeps beside its memory, as followers know it. `None`: a new one knows nothing.
    kept: Option<Vec<u64>>,
    /// Whoever gathers records gathers batches of these numbers.
    batches: Option<LogControl>,
    /// A log is written of these batches.
    is_logged: bool,
    /// Replicas follow, or may at any time: records are counted also while none does.
    is_replicated: bool,
    /// Some client is told of records.
    is_told: bool,
    /// Records are those of the shard that is shown.
    retells: bool,
}

/// Counts another record. The image is told that changes from now on are of the one behind it.
fn begin_record(sequence: &mut u64, store: &Store) {
    *sequence += 1;
    store.image.begin_record(*sequence + 1);
}

/// Pushes words behind those that found no room.
fn push(stream: &mut Stream, unsent: &mut Vec<u64>, words: &[u64]) {
    let pushed = if unsent.is_empty() { stream.push(words) } else { 0 };
    unsent.extend_from_slice(&words[pushed..]);
}

impl Recorder {
    /// Of a mirror that has applied this record.
    pub fn of_mirror(applied: u64) -> Recorder {
        Recorder { sequence: applied, retells: true, ..Recorder::default() }
    }

    /// Tells a record that was applied to a mirror.
    pub fn retell(&mut self, record: &Record<'_>) {
        self.sequence = record.head.sequence;
        self.end_retelling_to_nobody();
        let Some(stream) = &mut self.stream else { return };
        let batch = self.batches.as_ref().map_or(0, LogControl::batch) as u16;
        push(stream, &mut self.unsent, &RecordHead { batch, ..record.head }.words());
        push(stream, &mut self.unsent, record.notes);
    }

    fn end_retelling_to_nobody(&mut self) {
        if self.stream.as_mut().is_some_and(|stream| !stream.is_followed()) {
            (self.stream, self.unsent) = (None, Vec::new());
        }
    }

    /// Records are for these batches from now on.
    pub fn begin_batches(&mut self, batches: &LogControl) {
        self.batches = Some(batches.clone());
    }

    /// The same, and a log is written of these.
    pub fn begin_log(&mut self, batches: &LogControl) {
        self.begin_batches(batches);
        self.is_logged = true;
    }

    /// Records are counted from now on, whether anybody follows or not, for these batches; followers find them
    /// in this memory.
    pub fn begin_replication(&mut self, store: &Store, batches: &LogControl, stream: StreamMemory) {
        self.begin_batches(batches);
        self.is_replicated = true;
        self.stream = Some(Stream::over(stream));
        store.image.journal().keep(true);
    }

    /// Clients are told of records from now on.
    pub fn begin_to_tell(&mut self) {
        self.is_told = true;
    }

    /// How far the changes have come.
    #[inline]
    pub fn reached(&self, store: &Store) -> Reached {
        let (sealed, is_behind) = (self.sequence, self.is_behind());
        if self.retells {
            return Reached {
                sealed,
                covers: sealed,
                in_stream: sealed,
                is_behind: false,
                is_followed: false,
            };
        }
        let journal = store.image.journal();
        if !journal.is_kept() {
            // What changes now is in no record, so no answer waits for one.
            let covers = sealed + 1;
            return Reached { sealed, covers, in_stream: covers, is_behind: false, is_followed: false };
        }
        let covers = sealed + u64::from(journal.words() > 0);
        let in_stream = sealed - u64::from(is_behind);
        Reached { sealed, covers, in_stream, is_behind, is_followed: true }
    }

    /// Somebody follows from now on, when all that changed before is in records.
    pub fn follow(&mut self, store: &Store, lag: Lag) -> Reader {
        if !self.retells {
            // Clients were told of the next record, for what was in none.
            if self.stream.is_none() && self.is_told && !self.is_replicated {
                begin_record(&mut self.sequence, store);
            }
            store.image.journal().keep(true);
            self.kept = None;
        }
        let stream = self.stream.get_or_insert_with(|| Stream::new(STREAM_WORDS));
        stream.follow(lag, self.unsent.len())
    }

    /// Holds what stands in the stream behind what was sealed.
    pub fn hold(&mut self) -> Reader {
        let stream = self.stream.as_mut().expect("a shard with replicas");
        stream.follow(Lag::Wait, self.unsent.len())
    }

    /// Whether what changes is noted: somebody has begun to follow, and not been seen to end, or may begin.
    pub fn keeps_notes(&self) -> bool {
        self.stream.is_some() || self.is_replicated
    }

    /// The next record follows this one.
    pub fn go_on_behind(&mut self, sequence: u64) {
        self.sequence = sequence;
    }

    /// What changes from now on was caused by what is in a record of another shard.
    pub fn note_cause(&mut self, store: &Store, (shard, sequence): (usize, u64)) {
        if store.image.journal().is_kept() {
            self.causes.extend(Journal::event_words(event::AFTER, [shard as u64, sequence]));
        }
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
        } else if self.retells && self.is_behind() {
            self.push_unsent();
        }
    }

    /// Pushes what has found no room until now. Whether all of that has.
    fn push_unsent(&mut self) -> bool {
        let Some(stream) = &mut self.stream else { return true };
        let pushed = stream.push(&self.unsent);
        self.unsent.drain(..pushed);
        self.unsent.is_empty()
    }

    /// Nobody follows any more. A log that fails takes with it what was done since the last record, and what
    /// is done later is noted nowhere.
    #[cold]
    fn end_following(&mut self, store: &Store) {
        let journal = store.image.journal();
        if self.is_logged {
            if journal.words() > 0 {
                mark!("log failed in the middle of a step");
            }
            begin_record(&mut self.sequence, store);
        }
        journal.keep(false);
        (self.stream, self.unsent, self.causes) = (None, Vec::new(), Vec::new());
    }

    /// Counts a record that nobody is told of.
    fn count_step(&mut self, store: &Store, datasets: &mut Datasets) {
        let journal = store.image.journal();
        if journal.words() > 0 || datasets.take_changed() {
            begin_record(&mut self.sequence, store);
            journal.take(|_| {});
        }
        self.causes.clear();
    }

    fn seal_step(&mut self, store: &Store, datasets: &mut Datasets) {
        let journal = store.image.journal();
        let is_followed = self.stream.as_mut().is_some_and(Stream::is_followed);
        if !is_followed && !self.is_replicated {
            self.end_following(store);
            return;
        }
        if !is_followed {
            self.unsent.clear();
            return self.count_step(store, datasets);
        }
        if self.is_behind() && !self.push_unsent() {
            return;
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
        let Some(stream) = &mut self.stream else { return };
        loop {
            begin_record(&mut self.sequence, store);
            let batch = self.batches.as_ref().map_or(0, LogControl::batch);
            let (sequence, last_incarnation) = (self.sequence, store.image.last_incarnation().0);
            journal.take(|notes| {
                let (batch, words) = (batch as u16, self.causes.len() + notes.len());
                let head = RecordHead { sequence, last_incarnation, batch, words }.words();
                for part in [&head[..], &self.causes, notes] {
                    push(stream, &mut self.unsent, part);
                }
                if !self.unsent.is_empty() {
                    mark!("record waited for room in the stream");
                }
            });
            self.causes.clear();
            let now = self.batches.as_ref().map_or(0, LogControl::batch);
            if now - batch <= BATCHES_OLD || !self.unsent.is_empty() {
                return;
            }
            // This thread lost its core meanwhile, and the number is so old that it could be taken for a
            // later one. A record of nothing says that it is not.
        }
    }
}
