//! Answers that wait for their record.
//!
//! Where a shard's changes are logged, or a mirror follows, answers are sent when what was done has become a
//! record:
//!
//! ```text
//! a request is done -> its answer is held -> the record is in the stream
//!                                              lazy:   it is sent
//!                                              commit: it is sent when the record is on the disk
//! ```
//!
//! 1. No answer is sent before all that it tells of is in the stream ([`Held::end_record`]): whoever has seen
//!    it finds its effect in the batch of the log in which it finds its own later writes
//!    (`kelix_log::LogControl`).
//! 2. A durable answer is not sent before all that it tells of is on the disk: of a write its effect, of a
//!    read what it found, or did not find ([`Held::next`]).
//! 3. When the log has failed, writes whose record is not on the disk are answered `NotDurable`; reads go on,
//!    and tell of the memory ([`Held::next`]). That is so of writes that were done in the step in which the
//!    log failed, too, whose record nobody takes any more (`Recorder::end_following`).
//! 4. An answer to a read that is to be believed without clocks waits for a question to the cluster's
//!    register that began behind the request, too, and holds up nobody else's ([`Held::next`]).
//! 5. Where all answers are durable, readers of the memory are told what is on the disk before an answer is
//!    sent that says so ([`Held::look_at_disk`]).

use std::collections::VecDeque;

use kelix_fabric::PeerId;
use kelix_image::Committed;
use kelix_image::words::full_fence;
use kelix_log::{LogSleep, LogState, ShardLog};
use kelix_types::mark;
use kelix_wire::{FrameBuffer, Reply, ReplyHead, RequestHead, Status, encode_reply};

use crate::recorder::Reached;
use crate::request::Task;

/// When a write is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// When it is done. It is on the disk a little later.
    #[default]
    Lazy,
    /// When it is on the disk.
    Commit,
}

/// An answer that waits.
struct Answer {
    peer: PeerId,
    frame: FrameBuffer,
    id: u32,
    /// The record that it waits for: in the stream, or on the disk if it is durable. [`UNSEALED`]: the step
    /// is none yet.
    sequence: u64,
    is_durable: bool,
    is_write: bool,
    /// The question that it waits for, where that is one ([`LogControl::question_to_come`]).
    question: Option<u64>,
}

/// In place of the record of the step under way.
const UNSEALED: u64 = u64::MAX;

/// The log of a shard, and the answers that wait for it. Without a log none does, unless a mirror follows.
pub(crate) struct Held {
    log: Option<(ShardLog, Durability)>,
    /// Somebody follows who gathers batches, so that answers wait for their record, too.
    is_mirrored: bool,
    /// Whether writes can be logged, when the step began.
    state: LogState,
    /// What answers are sent for that wait for the disk, or for replicas.
    committed: Committed,
    /// Replicas say what is committed, in place of a disk; and another server has taken over, so that nothing
    /// is answered any more.
    is_replicated: bool,
    is_void: bool,
    /// What replicas have is on their disks.
    is_on_disk: bool,
    /// The answers, in the order of their records.
    queue: VecDeque<Answer>,
    /// Answers that wait for nothing but a question, in the order of these.
    unconfirmed: VecDeque<Answer>,
    /// The last record there was when the step before ended.
    sealed: u64,
    /// The last record that a durable answer waits for, or waited.
    wanted: u64,
    spare: Vec<FrameBuffer>,
}

impl Default for Held {
    fn default() -> Held {
        Held {
            log: None,
            is_mirrored: false,
            state: LogState::default(),
            committed: Committed::NONE,
            is_replicated: false,
            is_void: false,
            is_on_disk: false,
            queue: VecDeque::new(),
            unconfirmed: VecDeque::new(),
            sealed: 0,
            wanted: 0,
            spare: Vec::new(),
        }
    }
}

impl Held {
    /// From now on answers wait for this log.
    pub fn begin(&mut self, log: ShardLog, durability: Durability) {
        self.log = Some((log, durability));
    }

    /// From now on answers wait for replicas, which say through this log what they have.
    pub fn begin_replication(&mut self, log: ShardLog, on_disk: bool) {
        self.begin(log, Durability::Commit);
        (self.is_replicated, self.is_on_disk) = (true, on_disk);
    }

    /// From now on answers wait for their record, until nobody follows any more.
    pub fn begin_mirror(&mut self) {
        self.is_mirrored = true;
    }

    /// Whether answers wait for something.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.log.is_some() || self.is_mirrored
    }

    /// Answers that wait.
    pub fn len(&self) -> usize {
        self.queue.len() + self.unconfirmed.len()
    }

    /// A step begins.
    #[inline]
    pub fn begin_step(&mut self) {
        if let Some((log, _)) = &self.log {
            self.state = log.state();
        }
    }

    /// Why a request is not done now, for the sake of the log.
    #[inline]
    pub fn refuse(&self, head: &RequestHead) -> Option<Status> {
        if self.state == LogState::Writes && !head.durable || !head.op.properties().needs_writer {
            return None;
        }
        match &self.log {
            None => Some(Status::NoLog),
            // Replicas have it in their memory, and no disk does.
            Some(_) if self.is_replicated && head.durable && !self.is_on_disk => Some(Status::NoLog),
            Some(_) if self.state == LogState::Writes => None,
            Some(_) => Some(Status::ReadOnly),
        }
    }

    /// Holds the answer to a request of the step under way. Its frame is left with another memory.
    pub fn hold(&mut self, task: &Task, frame: &mut FrameBuffer) {
        let head = &task.shape.head;
        let frame = std::mem::replace(frame, self.spare.pop().unwrap_or_default());
        let durability = self.log.as_ref().map(|(_, durability)| *durability);
        // Who holds a generation reads.
        let properties = head.op.properties();
        let is_write = properties.needs_writer && properties.has_effect;
        let wants_disk = head.durable && is_write;
        let is_durable = durability.is_some_and(|usual| wants_disk || usual == Durability::Commit);
        let log = self.log.as_ref().filter(|_| head.durable && !is_write);
        let question = log.and_then(|(log, _)| log.control().question_to_come());
        let (peer, id, sequence) = (task.peer, head.id, UNSEALED);
        self.queue.push_back(Answer { peer, frame, id, sequence, is_durable, is_write, question });
    }

    /// Looks how much is on the disk, or on replicas: answers that wait for more are not sent before the next
    /// look. Returns what readers of the memory may believe, where that depends on the disk. `end` is the end
    /// of what stands in the stream, if it ends with what was sealed last: where that counts at once.
    #[inline]
    pub fn look_at_disk(&mut self, end: impl FnOnce() -> Option<Committed>) -> Option<Committed> {
        let (log, durability) = self.log.as_ref()?;
        let at_once = if self.is_replicated && log.counts_at_once() { end() } else { None };
        let committed = at_once.unwrap_or_else(|| log.committed());
        // What a shard has committed alone, replicas say later.
        if committed.record >= self.committed.record {
            self.committed = committed;
        }
        let committed = self.committed;
        let has_failed = log.state() == LogState::Failed;
        (*durability == Durability::Commit).then_some(if has_failed { Committed::ALL } else { committed })
    }

    /// What was done has become a record, or has yet to. Whether the thread that writes the log is to be
    /// woken.
    pub fn end_record(&mut self, reached: Reached) -> bool {
        let is_sealed = std::mem::replace(&mut self.sealed, reached.sealed) != reached.sealed;
        self.is_mirrored &= reached.is_followed;
        if self.len() == 0 && !is_sealed {
            return false;
        }
        // SYNC: between the record, which is in the stream, and the answers: pairs with the fence in
        // `LogControl::begin_batch`; and before the load of the sleep, with the one in
        // `LogControl::announce`.
        full_fence();
        if let Some((log, _)) = self.log.as_ref().filter(|_| self.is_replicated) {
            self.is_void = log.control().is_void();
        }
        for answer in self.queue.iter_mut().rev().take_while(|answer| answer.sequence == UNSEALED) {
            answer.sequence = reached.covers;
            // Others may stand behind it that wait for less.
            if answer.is_durable {
                self.wanted = reached.covers;
            }
        }
        let Some((log, _)) = &self.log else { return false };
        let waits = Some(self.wanted).filter(|sequence| *sequence > self.committed.record);
        if let Some(sequence) = waits {
            log.want(sequence);
        }
        match log.sleep() {
            LogSleep::Awake => false,
            LogSleep::Naps => waits.is_some() || reached.is_behind,
            LogSleep::Sleeps => is_sealed || waits.is_some() || reached.is_behind,
        }
    }

    /// Whether an answer can be sent that could not when the last step ended.
    #[inline]
    pub fn has_news(&self) -> bool {
        let Some((log, _)) = &self.log else { return false };
        if self.unconfirmed.front().is_some_and(|first| self.is_confirmed(first)) {
            return true;
        }
        let Some(first) = self.queue.front() else { return false };
        let at_once = self.is_replicated && log.counts_at_once();
        first.is_durable
            && !self.is_void
            && (at_once || log.durable() >= first.sequence || log.state() == LogState::Failed)
    }

    /// Whether an answer waits for no question.
    fn is_confirmed(&self, answer: &Answer) -> bool {
        let Some(question) = answer.question else { return true };
        !self.is_void && self.log.as_ref().is_some_and(|(log, _)| log.control().confirmed() >= question)
    }

    /// Takes the next answer that can be sent, for whom it is, and the record that has all that it tells of;
    /// its frame goes back with [`Held::give_back`].
    pub fn next(&mut self, in_stream: u64) -> Option<(PeerId, FrameBuffer, u64)> {
        if self.unconfirmed.front().is_some_and(|first| self.is_confirmed(first)) {
            let Answer { peer, frame, sequence, .. } = self.unconfirmed.pop_front()?;
            return Some((peer, frame, sequence));
        }
        loop {
            let answer = self.next_recorded(in_stream)?;
            if self.is_confirmed(&answer) {
                return Some((answer.peer, answer.frame, answer.sequence));
            }
            mark!("answer waited for the register");
            self.unconfirmed.push_back(answer);
        }
    }

    /// Takes the next answer whose record has come as far as that has to.
    fn next_recorded(&mut self, in_stream: u64) -> Option<Answer> {
        let Answer { sequence, is_durable, is_write, id, .. } = *self.queue.front()?;
        let reached = if is_durable { self.committed.record } else { in_stream };
        let has_failed = || self.log.as_ref().is_some_and(|(log, _)| log.state() == LogState::Failed);
        let has_failed = is_durable && sequence > reached && has_failed();
        if sequence > reached && !has_failed || self.is_void {
            return None;
        }
        let mut answer = self.queue.pop_front().expect("just looked at");
        let is_done = |frame: &FrameBuffer| {
            Reply::parse(frame.payload()).is_some_and(|reply| reply.head.status == Status::Ok)
        };
        if has_failed && is_write && is_done(&answer.frame) {
            mark!("log failed under a write");
            let head = ReplyHead { id, status: Status::NotDurable, version: 0, location: 0 };
            encode_reply(&mut answer.frame, head);
        }
        Some(answer)
    }

    /// Keeps the memory of an answer that was sent for another one.
    pub fn give_back(&mut self, frame: FrameBuffer) {
        self.spare.push(frame);
    }

    /// A client has gone, and its answers with it.
    pub fn forget(&mut self, peer: PeerId) {
        self.queue.retain(|answer| answer.peer != peer);
        self.unconfirmed.retain(|answer| answer.peer != peer);
    }
}

#[cfg(test)]
mod tests {
    use kelix_image::{LeasedTerm, Span, header_word};
    use kelix_log::{Lag, LogControl, Reader, Record, StreamMemory};
    use kelix_types::TableId;
    use kelix_wire::control::Caller;
    use kelix_wire::mailboxes::Mailboxes;
    use kelix_wire::{Op, Sequence, encode_request};

    use super::*;
    use crate::audit::tests::build;
    use crate::harness::Harness;

    const TABLE: TableId = TableId(1);

    struct Logged {
        alone: Harness,
        control: LogControl,
        log: ShardLog,
        /// Whoever writes the log has it until that fails.
        reader: Option<Reader>,
    }

    fn logged(durability: Durability) -> Logged {
        logged_from_here(Harness::new(1, &Mailboxes::default()), durability)
    }

    fn logged_from_here(mut alone: Harness, durability: Durability) -> Logged {
        let control = LogControl::new();
        let log = control.shard(alone.shard.end());
        let reader = Some(alone.shard.write_log(log.clone(), durability));
        // What every shard tells a new follower.
        alone.step();
        log.set_durable(alone.shard.end());
        Logged { alone, control, log, reader }
    }

    /// A shard with replicas, which say through this control what they have, and the memory of its stream.
    fn replicated(control: LogControl) -> (Logged, StreamMemory) {
        let mut alone = Harness::new(1, &Mailboxes::default());
        let log = control.shard(alone.shard.end());
        let memory = StreamMemory { words: Span::private(1 << 20), head: Span::private(64) };
        alone.shard.replicate(log.clone(), memory.clone(), false);
        (Logged { alone, control, log, reader: None }, memory)
    }

    /// A page whose first word is the term in force, and whose second one says for how long; and a shard with
    /// replicas whose answers count at once in that term.
    fn leased() -> (Span, Logged, StreamMemory) {
        let page = Span::private(64);
        page.words().store(0, 7);
        let control = LogControl::fenced(LeasedTerm::new(page.word(0), page.word(1)), 7);
        control.set_counts_at_once(true);
        let (of, memory) = replicated(control);
        (page, of, memory)
    }

    impl Logged {
        /// So many records are on the disk.
        fn set_durable(&self, record: u64) {
            self.log.set_durable(Committed { record, ..self.alone.shard.end() });
        }

        /// All records so far are.
        fn set_all_durable(&mut self) {
            self.alone.step();
            self.set_durable(self.alone.shard.sequence());
            self.alone.step();
        }

        /// The log fails, and whoever wrote it goes.
        fn fail(&mut self) {
            self.control.set_state(LogState::Failed);
            self.reader = None;
        }

        /// The last record in the stream.
        fn last_record(&mut self) -> u64 {
            let mut words = Vec::new();
            self.reader.as_mut().expect("a log").read(&mut words, usize::MAX).unwrap();
            let (mut rest, mut last) = (&words[..], 0);
            while let Some((record, behind)) = Record::split(rest).unwrap() {
                (last, rest) = (record.head.sequence, behind);
            }
            last
        }

        fn ask(&mut self, head: RequestHead) -> Option<Status> {
            let mut frame = FrameBuffer::default();
            encode_request(&mut frame, head, b"key", b"value");
            self.alone.send(&mut frame);
            self.answer()
        }

        fn answer(&mut self) -> Option<Status> {
            let mut payload = Vec::new();
            self.alone.pop(&mut payload).then(|| Reply::parse(&payload).unwrap().head.status)
        }
    }

    /// What replicas have to have counts when they do, or when it stands in the stream that they can read; and
    /// nothing does once another server has taken over, whose word that is.
    #[test]
    fn answers_wait_for_replicas_and_end_with_the_term() {
        let (page, mut of, memory) = leased();
        assert_eq!(of.ask(put()), Some(Status::Ok), "nobody has to have it");
        let (hold, before) = of.alone.shard.hold();
        assert_eq!(of.ask(put()), Some(Status::Ok));
        let mut words = Vec::new();
        memory.read_behind(hold.position(), &mut words).unwrap();
        let (record, _) = Record::split(&words).unwrap().expect("it was answered, so it stands there");
        assert_eq!(record.head.sequence, before + 1);

        of.control.set_counts_at_once(false);
        assert_eq!(of.ask(put()), None, "a replica has to say that it has it");
        of.alone.step();
        assert_eq!(of.answer(), None);
        of.set_all_durable();
        assert_eq!(of.answer(), Some(Status::Ok));

        // Nothing is answered while the lease is over, and all when it is renewed.
        page.words().publish(1, LeasedTerm::OVER);
        assert_eq!(of.ask(put()), None);
        of.set_all_durable();
        of.alone.step();
        assert_eq!(of.answer(), None);
        page.words().publish(1, u64::MAX);
        of.alone.step();
        assert_eq!(of.answer(), Some(Status::Ok));

        of.control.set_counts_at_once(true);
        page.words().publish(0, 8);
        assert_eq!(of.ask(put()), None, "another server has taken over");
        of.set_all_durable();
        of.alone.step();
        assert_eq!(of.answer(), None);
    }

    /// A read that believes no clock is answered behind a question that began behind the read, and holds up
    /// nobody. Without a lease there is nothing to be asked.
    #[test]
    fn strict_reads_wait_for_a_question_that_begins_behind_them() {
        let (page, mut of, _) = leased();
        let strict = || RequestHead { durable: true, ..get() };
        assert_eq!(of.ask(strict()), Some(Status::Absent), "the term is in force without a lease");

        page.words().publish(1, u64::MAX);
        assert_eq!(of.ask(get()), Some(Status::Absent), "the lease is believed");
        assert_eq!(of.ask(strict()), None);
        let (first, waits) = of.control.begin_question();
        assert!(waits, "an answer waits for a question");
        assert_eq!(of.ask(strict()), None, "the question was under way");
        assert_eq!(of.ask(put()), Some(Status::Ok), "nobody else waits");
        of.control.confirm(first);
        of.alone.step();
        assert_eq!((of.answer(), of.answer()), (Some(Status::Absent), None));
        let (second, waits) = of.control.begin_question();
        assert!(waits && !of.control.wants_question());
        page.words().publish(1, LeasedTerm::OVER);
        assert_eq!(of.ask(put()), None, "the lease is over");
        of.control.confirm(second);
        of.alone.step();
        assert_eq!(of.answer(), None);
        page.words().publish(1, u64::MAX);
        of.alone.step();
        assert_eq!((of.answer(), of.answer(), of.answer()), (Some(Status::Absent), Some(Status::Ok), None));
        assert_eq!(of.control.begin_question(), (second + 1, false), "nobody waits any more");
    }

    /// A log on a disk and replicas in memory are two things.
    #[test]
    fn replicas_are_no_disk() {
        let (mut of, _) = replicated(LogControl::new());
        assert_eq!(of.ask(RequestHead { durable: true, ..put() }), Some(Status::NoLog));
    }

    fn put() -> RequestHead {
        RequestHead::new(Op::Put, 7, TABLE)
    }

    fn get() -> RequestHead {
        RequestHead { op: Op::Get, ..put() }
    }

    #[test]
    fn a_lazy_answer_is_sent_when_its_record_is_in_the_stream() {
        let mut logged = logged(Durability::Lazy);
        assert_eq!(logged.ask(put()), Some(Status::Ok));
        assert_eq!(logged.last_record(), logged.alone.shard.sequence());
        let durable = RequestHead { durable: true, ..put() };
        assert_eq!(logged.ask(durable), None, "asked for more than the server does");
        let sequence = logged.alone.shard.sequence();
        assert_eq!(logged.log.wanted(), sequence);
        assert_eq!(logged.ask(get()), None, "in the order of the answers before");
        logged.set_durable(sequence);
        logged.alone.step();
        assert_eq!((logged.answer(), logged.answer()), (Some(Status::Ok), Some(Status::Ok)));
    }

    #[test]
    fn a_durable_answer_waits_for_the_disk_and_so_does_what_tells_of_it() {
        let mut logged = logged(Durability::Commit);
        assert_eq!(logged.ask(get()), Some(Status::Absent), "nothing is on its way to the disk");
        assert_eq!(logged.ask(put()), None);
        assert!(logged.alone.shard.owes_answers());
        assert_eq!(logged.ask(get()), None);
        let sequence = logged.alone.shard.sequence();
        logged.set_durable(sequence - 1);
        assert!(!logged.alone.step().wakes_log && logged.answer().is_none());
        logged.set_durable(sequence);
        logged.alone.step();
        assert_eq!((logged.answer(), logged.answer()), (Some(Status::Ok), Some(Status::Ok)));
        // The answer to a write may go with its client.
        assert_eq!(logged.ask(put()), None);
        logged.alone.shard.clients.held.forget(PeerId(0));
        assert_eq!(logged.ask(get()), None);
        logged.set_all_durable();
        assert_eq!(logged.answer(), Some(Status::Ok));
        assert!(!logged.alone.shard.owes_answers());
    }

    /// What readers of the memory believe follows the disk where all answers do, and before these are sent.
    #[test]
    fn readers_are_told_what_is_on_the_disk() {
        let told = |logged: &Logged| {
            let words = logged.alone.header().words();
            [header_word::COMMITTED, header_word::COMMITTED_RECORD].map(|word| words.load(word))
        };
        let mut lazy = logged(Durability::Lazy);
        assert_eq!(lazy.ask(put()), Some(Status::Ok));
        assert_eq!(told(&lazy), [u64::MAX; 2]);
        let mut logged = logged(Durability::Commit);
        logged.alone.step();
        let before = told(&logged);
        assert_eq!(logged.ask(put()), None);
        assert_eq!(told(&logged), before);
        let end = logged.alone.shard.end();
        assert!(end.incarnation > before[0] && end.record > before[1]);
        logged.set_durable(end.record);
        logged.alone.step();
        assert_eq!((logged.answer(), told(&logged)), (Some(Status::Ok), [end.incarnation, end.record]));
        assert_eq!(logged.ask(put()), None);
        logged.fail();
        logged.alone.step();
        assert_eq!(told(&logged), [u64::MAX; 2], "reads by message tell of the memory, too");
    }

    #[test]
    fn the_thread_of_the_log_is_woken_when_there_is_something_for_it() {
        for (durability, sleep, wakes) in [
            (Durability::Lazy, LogSleep::Awake, false),
            (Durability::Lazy, LogSleep::Naps, false),
            (Durability::Lazy, LogSleep::Sleeps, true),
            (Durability::Commit, LogSleep::Awake, false),
            (Durability::Commit, LogSleep::Naps, true),
            (Durability::Commit, LogSleep::Sleeps, true),
        ] {
            let mut logged = logged(durability);
            logged.control.announce(sleep);
            assert!(!logged.alone.step().wakes_log, "nothing has changed");
            let mut frame = FrameBuffer::default();
            encode_request(&mut frame, put(), b"key", b"value");
            assert_eq!(logged.alone.send(&mut frame).wakes_log, wakes, "{durability:?} {sleep:?}");
        }
    }

    /// Only the last answer was looked at. Where that was not durable, nobody heard of those before it that
    /// were: the disk took its time, and a shard that slept was not woken when it was done.
    #[test]
    fn a_durable_answer_is_waited_for_whatever_is_answered_behind_it() {
        let mut logged = logged(Durability::Lazy);
        logged.control.announce(LogSleep::Naps);
        let mut frame = FrameBuffer::default();
        for durable in [true, false] {
            encode_request(&mut frame, RequestHead { durable, ..put() }, b"key", b"value");
            logged.alone.push(&mut frame);
        }
        assert!(logged.alone.step().wakes_log);
        let sequence = logged.alone.shard.sequence();
        assert_eq!((logged.log.wanted(), logged.answer()), (sequence, None));
        logged.set_durable(sequence);
        logged.alone.step();
        assert_eq!((logged.answer(), logged.answer()), (Some(Status::Ok), Some(Status::Ok)));
    }

    #[test]
    fn a_log_that_fails_takes_no_writes_and_says_which_are_not_certain() {
        let mut logged = logged(Durability::Commit);
        logged.alone.leave();
        logged.alone.join(2, Some(Caller { number: 7, again: false }), true);
        let counted = |number, again| RequestHead { sequence: Some(Sequence { number, again }), ..put() };
        assert_eq!(logged.ask(counted(1, false)), None);
        logged.set_durable(logged.alone.shard.sequence());
        logged.alone.step();
        assert_eq!(logged.answer(), Some(Status::Ok));
        assert_eq!(logged.ask(counted(2, false)), None);
        assert_eq!(logged.ask(get()), None);
        logged.fail();
        logged.alone.step();
        assert_eq!((logged.answer(), logged.answer()), (Some(Status::NotDurable), Some(Status::Ok)));
        assert_eq!(logged.ask(counted(3, false)), Some(Status::ReadOnly));
        assert_eq!(
            logged.ask(counted(2, true)),
            Some(Status::NotDurable),
            "nor is it when it is asked again"
        );
        assert_eq!(logged.ask(get()), Some(Status::Ok));
    }

    /// What a step had done was forgotten where nobody followed any more at its end, since the log had failed
    /// meanwhile, and passed for what the record before had. That was on the disk, and so clients were told
    /// that their writes were.
    #[test]
    fn what_was_done_in_the_step_in_which_the_log_failed_is_not_certain() {
        let mut logged = logged(Durability::Commit);
        logged.alone.leave();
        logged.alone.join(2, Some(Caller { number: 7, again: false }), true);
        logged.set_all_durable();
        let on_disk = logged.alone.shard.sequence();
        let counted = |again| RequestHead { sequence: Some(Sequence { number: 1, again }), ..put() };
        let mut frame = FrameBuffer::default();
        encode_request(&mut frame, counted(false), b"key", b"value");
        logged.alone.handle(&frame);
        logged.fail();
        logged.alone.step();
        assert_eq!(logged.answer(), Some(Status::NotDurable));
        assert_eq!(logged.ask(counted(true)), Some(Status::NotDurable), "nor is it when it is asked again");
        assert_eq!(logged.ask(get()), Some(Status::Ok));
        // A base that is taken now is not of the state in which the log ends.
        assert!(logged.alone.shard.sequence() > on_disk);
    }

    /// To hold a generation counted as a write, so no view could be opened where a log had failed.
    #[test]
    fn generations_can_be_held_where_the_log_has_failed() {
        let mut alone = Harness::new(1, &Mailboxes::default());
        let of = build(&mut alone, TableId(2));
        alone.call(RequestHead { op: Op::Switch, ..of }, &[], &[]);
        let mut logged = logged_from_here(alone, Durability::Commit);
        logged.set_all_durable();
        assert_eq!(logged.ask(put()), None);
        logged.fail();
        logged.alone.step();
        assert_eq!(logged.answer(), Some(Status::NotDurable));
        assert_eq!(logged.ask(RequestHead { op: Op::Hold, ..of }), Some(Status::Ok));
    }

    #[test]
    fn a_full_disk_refuses_writes_until_there_is_room() {
        let mut logged = logged(Durability::Lazy);
        logged.control.set_state(LogState::Full);
        assert_eq!(logged.ask(put()), Some(Status::ReadOnly));
        assert_eq!(logged.ask(get()), Some(Status::Absent));
        logged.control.set_state(LogState::Writes);
        assert_eq!(logged.ask(put()), Some(Status::Ok));
    }

    /// What is refused tells of nothing that others wait for.
    #[test]
    fn a_refusal_waits_for_no_other_answer() {
        let mut logged = logged(Durability::Commit);
        assert_eq!(logged.ask(put()), None);
        logged.control.set_state(LogState::Full);
        assert_eq!(logged.ask(put()), Some(Status::ReadOnly));
        logged.set_all_durable();
        logged.alone.step();
        assert_eq!(logged.answer(), Some(Status::Ok));
    }

    #[test]
    fn durable_writes_are_refused_where_there_is_no_log() {
        let mut alone = Harness::new(1, &Mailboxes::default());
        let mut frame = FrameBuffer::default();
        encode_request(&mut frame, RequestHead { durable: true, ..put() }, b"key", b"value");
        alone.send(&mut frame);
        let payload = alone.answer().unwrap();
        assert_eq!(Reply::parse(&payload).unwrap().head.status, Status::NoLog);
        alone.call(put(), b"key", b"value");
    }

    /// What a client that wants to be told was told last: the status, and the record.
    fn told(alone: &mut Harness, head: RequestHead) -> Option<(Status, u64)> {
        let mut frame = FrameBuffer::default();
        encode_request(&mut frame, head, b"key", b"value");
        alone.send(&mut frame);
        let mut payload = Vec::new();
        alone.pop(&mut payload).then(|| {
            let reply = Reply::parse(&payload).unwrap();
            (reply.head.status, *reply.item.last().expect("the record"))
        })
    }

    /// Whatever a copy has that somebody begins now or later, an answer tells of no record that the copy is
    /// taken to have while it lacks some of what the answer tells of.
    #[test]
    fn answers_tell_their_record() {
        let mut alone = Harness::new(1, &Mailboxes::default());
        alone.join_told();
        assert_eq!(told(&mut alone, put()), Some((Status::Ok, 1)), "the next one, while nobody follows");
        assert_eq!(told(&mut alone, get()), Some((Status::Ok, 1)));
        let batches = LogControl::new();
        let mut reader = alone.shard.feed(&batches);
        assert_eq!((alone.shard.sequence(), alone.shard.covers()), (1, 1), "books that have it");
        alone.step();
        assert_eq!(alone.shard.sequence(), 2, "what every shard tells a new follower");
        assert_eq!(told(&mut alone, put()), Some((Status::Ok, 3)));
        assert_eq!(told(&mut alone, get()), Some((Status::Ok, 3)));
        let later = batches.begin_batch() as u16;
        assert_eq!(told(&mut alone, put()), Some((Status::Ok, 4)));
        let mut words = Vec::new();
        reader.read(&mut words, usize::MAX).unwrap();
        let (mut rest, mut heads) = (&words[..], Vec::new());
        while let Some((record, behind)) = Record::split(rest).unwrap() {
            heads.push((record.head.sequence, record.head.batch));
            rest = behind;
        }
        assert_eq!(heads, [(2, 0), (3, 0), (4, later)]);
        // Who follows beside somebody else begins behind the last one.
        let snapshot = alone.shard.follow(Lag::Wait);
        assert_eq!(alone.shard.sequence(), 4);
        drop((reader, snapshot));
        assert_eq!(told(&mut alone, put()), Some((Status::Ok, 5)));
        assert_eq!(told(&mut alone, get()), Some((Status::Ok, 5)));
        let _reader = alone.shard.feed(&batches);
        assert_eq!(alone.shard.sequence(), 5);
    }

    /// A client that does not want to know is told nothing, and nothing is counted for it.
    #[test]
    fn who_does_not_ask_for_records_is_not_told() {
        let mut alone = Harness::new(1, &Mailboxes::default());
        let mut frame = FrameBuffer::default();
        encode_request(&mut frame, put(), b"key", b"value");
        alone.send(&mut frame);
        assert_eq!(alone.answer().unwrap().len(), 3);
        let _reader = alone.shard.feed(&LogControl::new());
        assert_eq!(alone.shard.sequence(), 0);
    }

    #[test]
    fn answers_wait_for_their_record_while_a_mirror_follows() {
        let mut alone = Harness::with(1, 256 << 20, &Mailboxes::default());
        alone.join_told();
        let batches = LogControl::new();
        let mut reader = alone.shard.feed(&batches);
        alone.step();
        // Somebody who counts and makes no room holds all back: an answer, too.
        let snapshot = alone.shard.follow(Lag::Wait);
        let (mut words, value) = (Vec::new(), vec![7; 16 << 10]);
        let mut frame = FrameBuffer::default();
        let mut puts = 0;
        while !alone.shard.is_behind() {
            assert!(puts < 2000, "the stream has no end");
            encode_request(&mut frame, put(), b"key", &value);
            alone.send(&mut frame);
            let is_answered = alone.pop(&mut words);
            assert_eq!(is_answered, !alone.shard.is_behind());
            reader.read(&mut Vec::new(), usize::MAX).unwrap();
            puts += 1;
        }
        assert!(alone.shard.owes_answers());
        drop(snapshot);
        alone.step();
        assert!(alone.pop(&mut words) && !alone.shard.owes_answers());
        let durable = RequestHead { durable: true, ..put() };
        let refused = told(&mut alone, durable).unwrap();
        assert_eq!(refused.0, Status::NoLog, "a mirror is no log");
        assert_eq!(told(&mut alone, RequestHead { durable: true, ..get() }).unwrap().0, Status::Ok);
        // Nobody follows any more: no record comes that an answer could wait for.
        drop(reader);
        for _ in 0..3 {
            let sequence = alone.shard.sequence();
            assert_eq!(told(&mut alone, put()), Some((Status::Ok, sequence + 1)));
        }
        assert!(!alone.shard.clients.held.is_on());
    }

    /// A client that sends on without waiting holds its own ring back, and no memory of the server's; when it
    /// goes its answers go with it.
    #[test]
    fn answers_that_wait_are_bounded_and_go_with_their_client() {
        let mut logged = logged(Durability::Commit);
        let mut frame = FrameBuffer::default();
        let mut taken = 0;
        for _ in 0..4000 {
            encode_request(&mut frame, put(), b"key", b"value");
            let before = taken;
            taken += logged.alone.send(&mut frame).requests;
            if taken == before {
                break;
            }
        }
        assert_eq!(taken, crate::clients::HELD_MAX);
        logged.set_durable(logged.alone.shard.sequence());
        let progress = logged.alone.step();
        assert_eq!(progress.requests, 0);
        assert_eq!(logged.alone.step().requests, 1, "it goes on");
        assert_eq!(logged.ask(put()), Some(Status::Ok));
        logged.alone.leave();
        logged.alone.step();
        assert!(!logged.alone.shard.owes_answers());
    }
}
