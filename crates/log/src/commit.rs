//! What shards, the thread that writes their log and those that feed mirrors tell each other, in words of
//! memory.
//!
//! 1. *Batches are cut where nothing is missing.* A batch is all that was sealed before a moment, of all
//!    shards ([`LogControl::begin_batch`]). Several may gather, each at moments of its own. A shard reads the
//!    number of the batch when it seals a record, and sends answers behind a full fence after the record is in
//!    its stream. So if a record is in a batch, each record whose answer its client had seen is in the batch,
//!    too: of a log that ends with a whole batch no effect is without its cause, whichever shards they are on.
//!    A shard that shows another tells records that were made elsewhere, where each batch of these ends:
//!    there batches are gathered between two of those ([`LogControl::begin_retelling`]).
//! 2. *Durable is what was synced.* The thread tells a shard the last record that is on the disk, after
//!    `fdatasync` returned ([`ShardLog::set_durable`]); answers to durable writes wait for that, and readers
//!    are told by the shard.
//! 3. *A question proves what was asked before it.* Where the term is in force by a lease, an answer may wait
//!    for a question to the register that begins behind the request ([`LogControl::question_to_come`]): if
//!    the register says then that the term is in force, it was when the request came, whatever clocks say.
//! 4. *Nobody sleeps through a record.* The thread announces its sleep and looks at all streams once more; a
//!    shard looks for the announcement behind the record ([`LogControl::announce`], [`ShardLog::sleep`]).

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kelix_image::words::full_fence;
use kelix_image::{Committed, LeasedTerm, Span};
use kelix_types::Result;

/// Words of the control: the number of the batch that is gathered next, whether the thread sleeps, whether
/// writes can be logged, and how many others sleep that take records.
const BATCH: usize = 0;
const SLEEP: usize = 1;
const STATE: usize = 2;
const SLEEPERS: usize = 4;
/// Whether what stands in the streams counts at once, because nobody else has to have it, or whoever has to can
/// read it there.
const AT_ONCE: usize = 3;
/// The number of the last question whether the term is in force that was begun, of the last one that was
/// answered by yes, and whether an answer waits for one that has yet to begin.
const ASKED: usize = 5;
const CONFIRMED: usize = 6;
const UNASKED: usize = 7;

/// Words of a shard: the last record that is on the disk, the last one that answers wait for, and the last
/// incarnation that is on the disk.
const DURABLE: usize = 0;
const WANTED: usize = 1;
const INCARNATION: usize = 2;
/// Bytes of a few words that are in nobody else's cache line.
const LINE_BYTES: u64 = 64;

/// Whether writes can be logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogState {
    /// Writes are logged.
    #[default]
    Writes,
    /// There is no room on the disk at the moment.
    Full,
    /// Something could not be written, or not be synced: for ever.
    Failed,
}

/// What the thread that writes the log does while there is nothing to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogSleep {
    /// The thread looks at the streams.
    Awake,
    /// It sleeps for a moment, unless somebody waits for it.
    Naps,
    /// It sleeps until it is woken.
    Sleeps,
}

/// What one log's thread and all shards know.
#[derive(Clone)]
pub struct LogControl {
    words: Span,
    retelling: Option<Arc<Retelling>>,
    fence: Option<Fence>,
}

/// The term in force, and the one in which what is answered here counts.
#[derive(Clone)]
struct Fence {
    in_force: LeasedTerm,
    own: u64,
}

/// How long whoever gathers waits for a moment in which nothing is missing.
const GATHERS_WITHIN: Duration = Duration::from_millis(2);

/// Of shards that show others: who tells records that were made elsewhere, and who gathers.
#[derive(Default)]
struct Retelling {
    state: Mutex<Retold>,
    changed: Condvar,
}

#[derive(Default)]
struct Retold {
    /// Threads that have told some of what belongs together.
    telling: usize,
    gathers: bool,
    waiting: usize,
}

/// There is no state that could be half changed.
fn sound<T>(poisoned: PoisonError<T>) -> T {
    poisoned.into_inner()
}

impl Retelling {
    fn state(&self) -> MutexGuard<'_, Retold> {
        self.state.lock().unwrap_or_else(sound)
    }
}

/// Somebody gathers.
struct Gathering<'a>(Option<&'a Retelling>);

impl Gathering<'_> {
    /// `None`: records are being told.
    fn begin(retelling: Option<&Retelling>) -> Option<Gathering<'_>> {
        let Some(retelling) = retelling else { return Some(Gathering(None)) };
        let mut state = retelling.state();
        state.waiting += 1;
        let is_busy = |state: &mut Retold| state.telling > 0 || state.gathers;
        let waited = retelling.changed.wait_timeout_while(state, GATHERS_WITHIN, is_busy);
        let (mut state, waited) = waited.unwrap_or_else(sound);
        state.waiting -= 1;
        state.gathers |= !waited.timed_out();
        drop(state);
        if waited.timed_out() {
            retelling.changed.notify_all();
            return None;
        }
        Some(Gathering(Some(retelling)))
    }
}

impl Drop for Gathering<'_> {
    fn drop(&mut self) {
        if let Some(retelling) = self.0 {
            retelling.state().gathers = false;
            retelling.changed.notify_all();
        }
    }
}

impl Default for LogControl {
    fn default() -> LogControl {
        LogControl::new()
    }
}

impl LogControl {
    /// Of a log that takes writes, whose thread is awake.
    pub fn new() -> LogControl {
        LogControl { words: Span::private(LINE_BYTES), retelling: None, fence: None }
    }

    /// The same, of a server whose answers count only while its own term is in force.
    pub fn fenced(in_force: LeasedTerm, own: u64) -> LogControl {
        LogControl { fence: Some(Fence { in_force, own }), ..LogControl::new() }
    }

    /// Whether answers count no more, or not before a lease is renewed: to be asked behind a full fence after the
    /// record.
    ///
    /// SYNC: pairs with the full fence between the store that changes the word, and the loads of whoever takes
    /// up what stands in the streams: if a record is not seen there, that is seen here.
    pub fn is_void(&self) -> bool {
        self.fence.as_ref().is_some_and(|fence| fence.in_force.load() != fence.own)
    }

    /// Begins a question whether the term is in force: before it is asked. Returns the question's number, and
    /// whether an answer waits for it.
    pub fn begin_question(&self) -> (u64, bool) {
        let words = self.words.words();
        // SYNC: before the number. Whoever wanted a question by then has loaded an earlier number, and waits
        // for this one at the latest.
        let waits = words.compare_exchange(UNASKED, 1, 0).is_ok();
        let number = words.add(ASKED, 1);
        // SYNC: whoever does not see the number has loaded it before the question is asked.
        full_fence();
        (number, waits)
    }

    /// The answer to a question was that the term is in force.
    pub fn confirm(&self, question: u64) {
        self.words.words().publish(CONFIRMED, question);
    }

    /// The last question that was answered so.
    #[inline]
    pub fn confirmed(&self) -> u64 {
        self.words.words().load_acquire(CONFIRMED)
    }

    /// Whether an answer waits for a question that has yet to begin.
    pub fn wants_question(&self) -> bool {
        self.words.words().load_acquire(UNASKED) != 0
    }

    /// The question that an answer to a request waits for which has come already: the next one that begins,
    /// as it is wanted from now on. `None`: the term is in force without a lease.
    pub fn question_to_come(&self) -> Option<u64> {
        let fence = self.fence.as_ref().filter(|fence| fence.in_force.is_leased());
        fence.map(|_| {
            let asked = self.words.words().load_acquire(ASKED);
            // SYNC: behind the load; pairs with the stores in `LogControl::begin_question`.
            self.words.words().publish(UNASKED, 1);
            asked + 1
        })
    }

    /// Of shards that show others: batches are gathered between two calls of [`LogControl::begin_retelling`],
    /// and so where nothing is missing.
    pub fn of_mirror() -> LogControl {
        LogControl { retelling: Some(Arc::default()), ..LogControl::new() }
    }

    /// Begins to tell records that were made elsewhere, up to where none is without its causes. Waits for
    /// whoever gathers, or waits for that.
    pub fn begin_retelling(&self) {
        let Some(retelling) = &self.retelling else { return };
        let is_busy = |state: &mut Retold| state.gathers || state.waiting > 0;
        let mut state = retelling.changed.wait_while(retelling.state(), is_busy).unwrap_or_else(sound);
        state.telling += 1;
    }

    /// All of them are told.
    pub fn end_retelling(&self) {
        let Some(retelling) = &self.retelling else { return };
        retelling.state().telling -= 1;
        retelling.changed.notify_all();
    }

    /// The part of one more shard, and how much of it is on the disk.
    pub fn shard(&self, durable: Committed) -> ShardLog {
        let shard = ShardLog { control: self.clone(), words: Span::private(LINE_BYTES) };
        shard.set_durable(durable);
        shard
    }

    /// Begins to gather a batch: the streams are read from here on. Records with the number that this
    /// returns, or a later one, were sealed later, and are of another batch. No number is returned twice,
    /// whoever gathers.
    pub fn begin_batch(&self) -> u64 {
        // SYNC: pairs with the load in `ShardLog::batch`.
        let next = self.words.words().add(BATCH, 1);
        // SYNC: pairs with the fence between a record and its answers: if the record is not seen here,
        // whoever has seen the answers sees the number.
        full_fence();
        next
    }

    /// The number of the last batch that was begun.
    pub fn batch(&self) -> u64 {
        self.words.words().load_acquire(BATCH)
    }

    /// Begins batches until one could be gathered: `gather` takes what was sealed before the batch with that
    /// number, of all shards ([`Gatherer::take`](crate::Gatherer::take)). `false`: records of a mirror were
    /// being told for too long, and nothing was gathered: what comes meanwhile is to be taken out of the
    /// streams ([`Gatherer::drain`](crate::Gatherer::drain)), or the mirror would wait for room.
    pub fn gather(&self, mut gather: impl FnMut(u64) -> Result<bool>) -> Result<bool> {
        let Some(_gathering) = Gathering::begin(self.retelling.as_deref()) else { return Ok(false) };
        while !gather(self.begin_batch())? {}
        Ok(true)
    }

    /// Announces what the thread is about to do. It looks at the streams once more before it sleeps.
    pub fn announce(&self, sleep: LogSleep) {
        self.words.words().store(SLEEP, sleep as u64);
        // SYNC: pairs with the fence between a record and the load in `ShardLog::sleep`.
        full_fence();
    }

    /// One of several other threads that take records begins to sleep until it is woken. It looks at the
    /// streams once more before it sleeps.
    pub fn begin_sleep(&self) {
        self.words.words().add(SLEEPERS, 1);
        // SYNC: as in `LogControl::announce`.
        full_fence();
    }

    /// That thread is awake again.
    pub fn end_sleep(&self) {
        self.words.words().add(SLEEPERS, 1u64.wrapping_neg());
    }

    /// Whether what stands in the streams counts at once: there is no disk and no replica that has to have it
    /// but such as can read the streams.
    #[inline]
    pub fn counts_at_once(&self) -> bool {
        self.words.words().load_acquire(AT_ONCE) != 0
    }

    /// Says so, or that somebody else says from now on what is committed.
    pub fn set_counts_at_once(&self, at_once: bool) {
        self.words.words().publish(AT_ONCE, u64::from(at_once));
    }

    /// What the thread does that writes the log, to be asked behind a full fence after the record.
    pub fn announced(&self) -> LogSleep {
        match self.words.words().load(SLEEP) {
            0 => LogSleep::Awake,
            1 => LogSleep::Naps,
            _ => LogSleep::Sleeps,
        }
    }

    /// The same of all who take records: who sleeps soundest.
    pub fn sleep(&self) -> LogSleep {
        if self.words.words().load(SLEEPERS) > 0 { LogSleep::Sleeps } else { self.announced() }
    }

    /// Says whether writes can be logged.
    pub fn set_state(&self, state: LogState) {
        self.words.words().publish(STATE, state as u64);
    }

    /// Whether writes can be logged.
    pub fn state(&self) -> LogState {
        match self.words.words().load_acquire(STATE) {
            0 => LogState::Writes,
            1 => LogState::Full,
            _ => LogState::Failed,
        }
    }
}

/// What a shard and the thread that writes its log know.
#[derive(Clone)]
pub struct ShardLog {
    control: LogControl,
    words: Span,
}

impl ShardLog {
    /// The number of the batch that a record belongs to which is sealed now.
    #[inline]
    pub fn batch(&self) -> u64 {
        self.control.batch()
    }

    /// Whether what stands in the stream counts at once ([`LogControl::counts_at_once`]).
    #[inline]
    pub fn counts_at_once(&self) -> bool {
        self.control.counts_at_once()
    }

    /// What all shards know.
    pub fn control(&self) -> &LogControl {
        &self.control
    }

    /// Whether writes can be logged.
    #[inline]
    pub fn state(&self) -> LogState {
        self.control.state()
    }

    /// What the thread does, to be asked behind a full fence after the record.
    pub fn sleep(&self) -> LogSleep {
        self.control.sleep()
    }

    /// The last record that is on the disk.
    #[inline]
    pub fn durable(&self) -> u64 {
        self.words.words().load_acquire(DURABLE)
    }

    /// The last record and the last incarnation on the disk. The incarnation may be of a later record, on the
    /// disk by now, too.
    pub fn committed(&self) -> Committed {
        let words = self.words.words();
        Committed { record: words.load_acquire(DURABLE), incarnation: words.load_acquire(INCARNATION) }
    }

    /// Says what is on the disk.
    pub fn set_durable(&self, durable: Committed) {
        self.words.words().publish(INCARNATION, durable.incarnation);
        self.words.words().publish(DURABLE, durable.record);
    }

    /// The last record that an answer waits for.
    pub fn wanted(&self) -> u64 {
        self.words.words().load_acquire(WANTED)
    }

    /// Says which one that is.
    pub fn want(&self, sequence: u64) {
        self.words.words().publish(WANTED, sequence);
    }
}

#[cfg(kelix_loom)]
impl ShardLog {
    /// Names the words that several threads use, for model tests.
    pub(crate) fn share(&self) {
        kelix_image::model::share(self.control.words.words().part(0, 8));
        kelix_image::model::share(self.words.words().part(0, 3));
    }
}
