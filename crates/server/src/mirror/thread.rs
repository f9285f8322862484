//! The thread of a mirrored namespace: takes in what comes of the feed, applies it to the shards, and answers
//! who asks these.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kelix_fabric::{Contention, host_clock_ns};
use kelix_log::LogControl;
use kelix_types::{Error, ErrorKind, Result};
use kelix_wire::feed::{FeedAsk, FeedPart};
use rustix::event::{PollFd, PollFlags, poll};
use tracing::{info, warn};

use super::attach::Attached;
use super::standing::{Standing, Successor};
use super::until_ns;
use crate::authority::Authority;
use crate::shard_thread::ShardThread;

/// Words of records that are applied before requests are looked at again.
const TURN_WORDS: usize = 32 << 10;
/// How long is looked on without sleep after a request, or what came of a primary whose writes wait for this
/// replica.
const LOOKS: Duration = Duration::from_micros(50);
/// Looks for requests between two looks at the feed.
const LOOKS_A_YIELD: u32 = 64;
/// Between two questions, while records come and while none do.
const ASKS_BUSY: Duration = Duration::from_millis(2);
const ASKS_IDLE: Duration = Duration::from_millis(100);
/// Between two looks at what is to be told of shards, while nothing else happens.
const REPORTS: Duration = Duration::from_secs(1);
/// Between two looks at whether the server has ended, of a thread that has nothing left to do.
const GIVEN_UP: Duration = Duration::from_millis(10);
/// How long the primary may leave a question unanswered.
const ANSWER: Duration = Duration::from_secs(10);

/// A question to the primary, and when it was asked.
#[derive(Clone, Copy)]
struct Question {
    number: u64,
    asked_ns: u64,
}

pub(crate) struct MirrorThread {
    pub attached: Attached,
    /// Why the primary was lost, until all that had come before is applied.
    pub lost: Option<Error>,
    /// Some of the records up to a cut are told, and not all.
    pub is_retelling: bool,
    pub shards: Vec<ShardThread>,
    pub authority: Arc<Authority>,
    /// Of whoever gathers what is applied.
    pub batches: LogControl,
    pub stop: Arc<AtomicBool>,
    pub standing: Arc<Standing>,
    /// For how long the mirror may be read without hearing of its primary.
    pub max_lag: Option<Duration>,
}

/// What is known of the feed.
struct Feed {
    question: Question,
    is_answered: bool,
    records_came: Instant,
}

impl MirrorThread {
    pub fn run(mut self) {
        self.authority.wait_for_begin();
        let question = Question { number: self.attached.question, asked_ns: host_clock_ns(false) };
        let mut feed = Feed { question, is_answered: true, records_came: Instant::now() };
        let mut asked_for = Instant::now();
        if self.attached.link.is_none() {
            let context = "this mirror has not reached it since it began";
            self.lose(Error::new(ErrorKind::Unavailable, "follow", context).with_retry(true));
        }
        let mut successor = None;
        let (mut came, mut contention) = (Instant::now(), Contention::default());
        while !self.stop.load(Ordering::Relaxed) && self.authority.in_force() {
            successor = self.standing.take_successor();
            if successor.is_some() {
                break;
            }
            if let Some(why) = self.standing.take_detach() {
                // Whoever was chosen has all that stands in the streams, too.
                let all = self.attached.take_over().and_then(|()| self.apply_all());
                let lost = Error::new(ErrorKind::Unavailable, "follow", why).with_retry(true);
                self.lost = None;
                self.attached.link = None;
                self.standing.lose(&all.err().unwrap_or(lost));
                self.standing.note_detached();
            }
            // All shards come to the moment of a snapshot where nothing is missing, and none goes on before.
            if !self.is_retelling && self.shards.iter().all(ShardThread::awaits_cut) {
                self.cut();
                if self.shards[0].is_over() {
                    break;
                }
            }
            self.attached.says_what_it_has = self.standing.is_kept();
            let mut worked = match self.follow(&mut feed) {
                Ok(worked) => worked,
                Err(error) => {
                    warn!(%error, "the primary is lost: this mirror shows what there was");
                    self.lose(error);
                    true
                }
            };
            if worked {
                came = Instant::now();
            }
            let mut next_ns = None;
            for shard in &mut self.shards {
                let (requests, due_ns) = shard.turn();
                worked |= requests;
                if requests {
                    asked_for = Instant::now();
                }
                next_ns = [next_ns, due_ns].into_iter().flatten().min();
            }
            if !worked {
                let looks_on = asked_for.elapsed() < LOOKS || self.is_waited_for() && came.elapsed() < LOOKS;
                if looks_on && !contention.is_contended_now() {
                    self.look_on(&mut contention);
                } else {
                    self.idle(next_ns, &feed);
                }
            }
        }
        if successor.as_ref().is_some_and(|successor: &Successor| successor.is_chosen) {
            let all = self.attached.take_over().and_then(|()| self.apply_all());
            if let Err(error) = all.and_then(|()| self.flush_log()) {
                warn!(%error, "what came of the primary cannot be gone on with");
                successor = None;
            }
        }
        // Whoever writes a log is left with nothing that lacks its causes.
        while self.is_retelling && self.apply(usize::MAX).is_ok() {
            for shard in &mut self.shards {
                let _ = shard.turn();
            }
        }
        match successor {
            Some(successor) if !self.is_retelling => self.give_up(&successor),
            _ => self.shards.iter_mut().for_each(ShardThread::finish),
        }
    }

    /// Gives all up that there is, to be shown by somebody else.
    fn give_up(self, successor: &Successor) {
        let MirrorThread { mut attached, shards, standing, authority, stop, .. } = self;
        let shadows: Vec<_> = shards.into_iter().enumerate().filter_map(|(at, of)| of.give_up(at)).collect();
        attached.fresh_ns = standing.fresh_ns();
        match attached.begin_life(shadows) {
            // The supervisor may have stopped waiting, and copies the memory.
            Ok(()) => drop(successor.to.send(attached)),
            Err(error) => warn!(%error, "what this mirror has cannot be gone on with"),
        }
        // A server whose threads end is over, and this one's memory is read until the next one is in force.
        while !stop.load(Ordering::Relaxed) && authority.in_force() {
            std::thread::sleep(GIVEN_UP);
        }
    }

    /// The connection is of no use any more. What had come and counts is applied before others are told.
    fn lose(&mut self, error: Error) {
        self.attached.link = None;
        if error.retry() {
            self.lost = Some(error);
        } else {
            self.standing.lose(&error);
        }
    }

    /// Applies some of what counts. `true`: there is no more of that for now.
    fn apply(&mut self, words: usize) -> Result<bool> {
        let MirrorThread { attached, shards, batches, is_retelling, .. } = self;
        if shards.iter().any(ShardThread::is_behind) {
            // Whoever writes a log of what was applied makes room first.
            return Ok(false);
        }
        if !*is_retelling {
            let is_cutting = shards.iter().any(ShardThread::awaits_cut);
            if is_cutting || attached.intake.is_all_applied() {
                return Ok(true);
            }
            batches.begin_retelling();
            *is_retelling = true;
        }
        let all = attached.intake.apply(words, |shard, record| shards[shard].apply(record))?;
        if attached.intake.is_at_cut() {
            batches.end_retelling();
            *is_retelling = false;
        }
        Ok(all)
    }

    /// Applies all that counts, which may be several cuts. An error: some of it cannot be.
    fn apply_all(&mut self) -> Result<()> {
        while !self.attached.intake.is_all_applied() {
            let (before, _) = self.attached.intake.applied_so_far();
            self.apply(usize::MAX)?;
            if self.attached.intake.applied_so_far().0 == before {
                let context = "what came of the primary finds no room";
                return Err(Error::new(ErrorKind::Unavailable, "follow", context));
            }
        }
        Ok(())
    }

    /// Has whoever writes the log take all that came. An error: not in time.
    fn flush_log(&mut self) -> Result<()> {
        let began = Instant::now();
        while !self.attached.intake.flush_log() {
            self.shards[0].wake_log(true);
            if began.elapsed() > ANSWER {
                let context = "the log of this replica does not take what came of the primary";
                return Err(Error::new(ErrorKind::TimedOut, "follow", context));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Has all shards come to the moment of a snapshot with those of other threads.
    fn cut(&mut self) {
        let (last, others) = self.shards.split_last_mut().expect("a namespace has shards");
        others.iter_mut().for_each(ShardThread::arrive_at_cut);
        let met = last.meet_at_cut();
        self.shards.iter_mut().for_each(|shard| shard.tell_cut(met));
    }

    /// Takes in what has come, and applies some of it. `false`: there was nothing.
    fn follow(&mut self, feed: &mut Feed) -> Result<bool> {
        let came = if self.attached.link.is_some() {
            let came = self.attached.receive()?;
            if came {
                self.standing.note_heard();
                // What came of a replica's primary is kept before it counts.
                if self.attached.intake.keeps_log() {
                    self.shards[0].wake_log(true);
                }
            }
            came
        } else if self.lost.is_some() {
            false
        } else {
            let Some(resumed) = self.standing.take_resumed() else { return Ok(false) };
            info!("the primary is there again: this mirror catches up");
            self.attached.resume(resumed);
            feed.is_answered = true;
            true
        };
        let (before, _) = self.attached.intake.applied_so_far();
        let MirrorThread { attached, shards, .. } = self;
        attached.intake.take_use_epochs().for_each(|(shard, epoch)| shards[shard].set_use_epoch(epoch));
        let all = self.apply(TURN_WORDS)?;
        if let Some(lost) = self.lost.take_if(|_| self.attached.intake.is_all_applied()) {
            self.standing.lose(&lost);
        }
        let attached = &mut self.attached;
        let (records, bytes) = attached.intake.applied_so_far();
        if records > before {
            feed.records_came = Instant::now();
            self.shards[0].wake_log(false);
        }
        self.standing.note_applied(records, bytes);
        let (answered, lag_ns) = attached.intake.answered();
        if !feed.is_answered && answered >= feed.question.number {
            feed.is_answered = true;
            let fresh_ns = feed.question.asked_ns.saturating_sub(lag_ns);
            let until_ns = until_ns(self.max_lag, fresh_ns);
            // A mirror that follows another knows nothing before that one does.
            if fresh_ns > 0 {
                self.shards.iter().for_each(|shard| shard.set_fresh(fresh_ns, until_ns));
                self.standing.note_fresh(fresh_ns);
            }
        }
        if attached.intake.next_lineage().is_some() {
            if attached.intake.is_all_applied() && !self.standing.has_life_ended() {
                self.standing.end_life();
            }
        } else if attached.link.is_some() {
            self.ask(feed)?;
        }
        Ok(came || !all || records > before)
    }

    /// How long after a question the next one follows.
    fn asks_after(&self, feed: &Feed) -> Duration {
        let usual = if feed.records_came.elapsed() < ASKS_IDLE { ASKS_BUSY } else { ASKS_IDLE };
        self.max_lag.map_or(usual, |lag| usual.min(lag / 8))
    }

    /// Asks how far the primary is, if it is time.
    fn ask(&mut self, feed: &mut Feed) -> Result<()> {
        let now_ns = host_clock_ns(false);
        let since = Duration::from_nanos(now_ns.saturating_sub(feed.question.asked_ns));
        if !feed.is_answered {
            if since > ANSWER {
                let context = format!("it has not answered for {} s", ANSWER.as_secs());
                return Err(Error::new(ErrorKind::TimedOut, "follow", context).with_retry(true));
            }
            return Ok(());
        }
        if since < self.asks_after(feed) {
            return Ok(());
        }
        let Some(link) = &mut self.attached.link else { return Ok(()) };
        // As often as there are questions, and not more.
        for (number, shard) in (0..).zip(&mut self.shards) {
            if let Some(locations) = shard.take_heard() {
                link.push(FeedPart::Used as u32, number, &locations);
            }
        }
        self.attached.question += 1;
        feed.question = Question { number: self.attached.question, asked_ns: now_ns };
        feed.is_answered = false;
        let ask = FeedAsk {
            question: feed.question.number,
            lag_ns: self.standing.lag_ns().unwrap_or(0),
            bytes: self.shards.iter().map(ShardThread::mirrored_bytes).sum(),
            reads: self.standing.reads(),
            applied: self.attached.intake.applied(),
        };
        link.push(FeedPart::Ask as u32, 0, &ask.words());
        link.flush();
        Ok(())
    }

    /// Whether writes of the primary wait until this replica says that it has them, which it does not find in
    /// the primary's streams.
    fn is_waited_for(&self) -> bool {
        let Attached { link, intake, streams, .. } = &self.attached;
        link.is_some() && intake.keeps_backlogs() && streams.is_empty()
    }

    /// Looks for requests, and gives the core away for a moment.
    fn look_on(&mut self, contention: &mut Contention) {
        for _ in 0..LOOKS_A_YIELD {
            if self.shards.iter_mut().any(ShardThread::glance) {
                return;
            }
        }
        contention.yield_now();
    }

    /// Waits for something to come: a request, words of the feed, or the time for what is to be done.
    fn idle(&mut self, next_ns: Option<u64>, feed: &Feed) {
        self.shards.iter_mut().for_each(ShardThread::announce_sleep);
        let is_quiet = !self.shards.iter().any(ShardThread::has_news) && !self.stop.load(Ordering::SeqCst);
        if is_quiet {
            let due =
                next_ns.map(|due_ns| Duration::from_nanos(due_ns.saturating_sub(self.shards[0].now_ns())));
            let asks = if self.attached.link.is_some() { self.asks_after(feed) } else { REPORTS };
            let nap = due.map_or(asks, |due| due.min(asks)).max(Duration::from_micros(1));
            let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(self.shards.len() + 2);
            fds.extend(self.shards.iter().map(|shard| PollFd::from_borrowed_fd(shard.fd(), PollFlags::IN)));
            let is_quiet = self.attached.link.as_mut().is_none_or(|link| {
                let watched = link.watch();
                let is_quiet = watched.is_some();
                fds.extend(watched.into_iter().flatten());
                is_quiet
            });
            let nap =
                rustix::event::Timespec { tv_sec: nap.as_secs() as i64, tv_nsec: nap.subsec_nanos().into() };
            if is_quiet {
                // Whatever it says, all is looked at again.
                let _ = poll(&mut fds, Some(&nap));
            }
        }
        self.shards.iter_mut().for_each(ShardThread::wake_up);
    }
}
