//! The thread that feeds one mirror.
//!
//! ```text
//! books of all shards -> memory, a piece at a time -> where it is whole ->
//!                        records and cuts ------------------------------------> until it ends
//! records and cuts of the log -> records and cuts ------------------------------------------->
//! ```
//!
//! 1. Memory is read behind the records that were told before it: so a word that a mirror copies is never
//!    older than what it has applied ([`Feeding::turn`]).
//! 2. A cut has all that was sealed before a moment, of all shards, and with `--durable commit` is told once
//!    that is on the disk ([`Feeding::gather`], [`Feeding::tell_cuts`]).
//! 3. Nothing is taken out of the streams while much waits to be sent, so a slow mirror takes no memory here,
//!    and shards let its readers go ([`UNSENT_MAX`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use kelix_fabric::Contention;
use kelix_fabric::tcp::FeedLink;
use kelix_image::MemoryMap;
use kelix_log::{Gatherer, ShardLog};
use kelix_shard::replicas::counts;
use kelix_types::{Error, ErrorKind, Place};
use kelix_wire::control::{Frame, StreamPosition};
use kelix_wire::feed::{
    FEED_WORDS_MAX, FeedAsk, FeedBooks, FeedCut, FeedPart, FeedPlaced, FeedPosition, pieces,
};
use tracing::{info, warn};

use super::placing::Placing;
use super::used::Uses;
use super::{End, Fed, Mirror, Stage};
use crate::server::Shared;
use crate::shard_thread::{Command, ShardHandle};
use crate::snapshots::{ASIDE, ASIDE_WORDS, LEAST_PRIORITY, PATIENCE};
use crate::wal::{LogTail, Tailed, Wal};

/// Bytes that may wait to be sent before nothing more is told.
const UNSENT_MAX: usize = 4 << 20;
/// How long nothing of that may be taken in, and how long a mirror may ask nothing once it has begun to: one
/// that lives asks again once it is answered, and gives up when it is not, which is sooner.
const STALL: Duration = Duration::from_secs(30);
/// Pause between two looks at the streams: while records come, and the longest while none do.
const NAP: Duration = Duration::from_micros(300);
const NAP_MAX: Duration = Duration::from_millis(5);
/// The same where nobody waits for what is told.
const NAP_OF_NEAR: Duration = Duration::from_millis(3);
/// The same where shards wake the thread.
const NAP_OF_REPLICA: Duration = Duration::from_millis(50);
/// How long the thread looks for what comes next without sleep, where writes wait for the replica.
const LOOKS_ON: Duration = Duration::from_micros(50);
/// How long a replica that is sent its records may wait for a cut, for which it would be woken otherwise
/// while who writes waits for that processor.
const CUT_DELAY: Duration = Duration::from_millis(1);
/// Words of memory in one frame, and frames between two looks at the streams.
const PIECE_WORDS: usize = FEED_WORDS_MAX - 1;
const PIECES: usize = 16;
/// Words that wait in a stream, at most, while this thread leaves the processor to others: half of what a
/// stream holds.
const LATE_WORDS: usize = 1 << 20;
/// A pass over the log that takes no longer, or tells no more words, is short enough: a stream holds what
/// shards do meanwhile. On a machine that is busy even a pass that tells nothing may take long.
const CLOSE: Duration = Duration::from_millis(200);
const CLOSE_WORDS: usize = 1 << 17;
/// Cuts that may wait for the disk.
const CUTS_MAX: usize = 1024;

type Stretches = VecDeque<(Place, u64)>;
/// What a shard has told that lets changes be taken: its books, for a replica what clients were answered, and
/// where memory is in use.
type Begun = (FeedBooks, Vec<u64>, Stretches);

/// Feeds a mirror until it ends, which wants memory at a rate, or what is behind its position; or a replica,
/// which is a member of the cluster with a boot number.
pub(super) fn feed(
    shared: &Arc<Shared>,
    mirror: &Mirror,
    link: FeedLink,
    (copy_rate, position, boot): (u64, Option<StreamPosition>, Option<u64>),
) {
    info!(mirror = mirror.name, address = mirror.from(), "a mirror attaches");
    let placing = boot.map(|boot| match &shared.replication {
        Some(replication) => {
            let placing = Placing::new(shared, replication, &mirror.namespace, boot);
            placing.map_err(|error| error.to_string())
        }
        None => Err("this server is not the primary of a cluster".into()),
    });
    let placing = match placing.transpose() {
        Ok(placing) => placing,
        Err(why) => return mirror.say_end(link, refused(why)),
    };
    let (tell, told) = channel();
    let logs = match (&shared.replication, &shared.wal) {
        (None, Some(wal)) => wal.committed_by(&mirror.namespace),
        _ => mirror.namespace.shards.iter().filter_map(|shard| shard.replicas.clone()).collect(),
    };
    let shards = mirror.namespace.shards.len();
    let mut feeding = Feeding {
        shared,
        mirror,
        link,
        gatherers: Vec::new(),
        tells_records: false,
        logs,
        question: 0,
        uses: Uses::new(shards),
        last: FeedCut { question: 0, lag_ns: 0, sequences: vec![0; shards] },
        cuts: VecDeque::new(),
        cut_since: None,
        copying: Copying {
            rate: copy_rate,
            tell,
            told,
            left: Vec::new(),
            at: 0,
            copied: 0,
            whole: 0,
            since: None,
        },
        progressed: (Instant::now(), 0),
        asked: None,
        placing,
    };
    let Err(end) = feeding.run(position.as_ref());
    if let End::Refused(_) = &end {
        // What was said last is told, as far as the mirror takes it in: it may go on behind that.
        let _ = feeding.gather().and_then(|_| feeding.tell_cuts(true));
    }
    let Feeding { link, gatherers, placing, .. } = feeding;
    placing.into_iter().for_each(Placing::end);
    // Shards tell no more changes that nobody follows, once they look.
    drop(gatherers);
    mirror.namespace.shards.iter().for_each(ShardHandle::wake);
    mirror.say_end(link, end);
}

/// What is still to be copied.
struct Copying {
    /// Bytes a second; 0: as fast as it goes.
    rate: u64,
    tell: Sender<Fed>,
    told: Receiver<Fed>,
    /// Of each shard the stretches that are left, and whose turn it is.
    left: Vec<Stretches>,
    at: usize,
    /// Bytes that were copied, and shards that have said where they are whole.
    copied: u64,
    whole: usize,
    since: Option<Instant>,
}

impl Copying {
    /// How long it is until more may be copied.
    fn is_due_in(&self) -> Option<Duration> {
        let (since, rate) = (self.since?, self.rate);
        let due = Duration::from_secs_f64(self.copied as f64 / rate.max(1) as f64);
        due.checked_sub(since.elapsed()).filter(|left| rate > 0 && !left.is_zero())
    }
}

struct Feeding<'a> {
    shared: &'a Arc<Shared>,
    mirror: &'a Mirror,
    link: FeedLink,
    /// A shard's stream each.
    gatherers: Vec<Gatherer>,
    /// All that comes before their records was told.
    tells_records: bool,
    /// The shards' logs, where a cut waits until it is on the disk; else none.
    logs: Vec<ShardLog>,
    /// The last question.
    question: u64,
    /// What the mirror's clients have read.
    uses: Uses,
    /// The last cut, and those that wait for the disk.
    last: FeedCut,
    cuts: VecDeque<FeedCut>,
    /// Since when one counts that was not told.
    cut_since: Option<Instant>,
    copying: Copying,
    /// When something was last taken in, or nothing waited, and how much had been.
    progressed: (Instant, u64),
    /// When the mirror last asked, if it has.
    asked: Option<Instant>,
    /// Of a replica.
    placing: Option<Placing<'a>>,
}

fn refused(why: impl Into<String>) -> End {
    End::Refused(why.into())
}

/// An error of a stream, as the mirror is told.
fn of_stream(error: &Error) -> End {
    match error.kind() {
        ErrorKind::TimedOut => refused(format!("too slow: {}; attach anew", error.context())),
        _ => refused(format!("what a shard tells makes no sense: {}", error.context())),
    }
}

/// What a turn left to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// There is more to be done at once.
    More,
    /// Records have come.
    Records,
    /// Nothing has.
    Nothing,
}

impl Feeding<'_> {
    /// Goes on until there is a reason to end.
    fn run(&mut self, position: Option<&StreamPosition>) -> Result<std::convert::Infallible, End> {
        let mirror = self.mirror;
        let resumption = match (&mut self.placing, position) {
            (Some(placing), Some(position)) => placing.resume(position),
            _ => None,
        };
        match (resumption, self.log_behind(position)) {
            (Some((words, gatherers)), _) => self.resume(&words, gatherers)?,
            (None, Some((wal, tail))) => self.catch_up(&wal, tail)?,
            (None, None) => {
                self.begin_to_copy()?;
                // Whoever waits for a successor does not want to wait for long.
                if mirror.succeeds { self.copy_all(false)? } else { self.copy_aside()? }
            }
        }
        mirror.progress().stage = Stage::Following;
        self.ask_whether_placed();
        let mut nap = NAP;
        let (mut contention, mut worked) = (Contention::default(), Instant::now());
        loop {
            let left = self.turn()?;
            if left != Left::Nothing {
                worked = Instant::now();
            }
            // Writes wait for what comes next, and a thread that sleeps takes as long to be woken as the
            // answer is on its way.
            let is_waited_for = self.placing.as_ref().is_some_and(|placing| !placing.is_near());
            if is_waited_for && worked.elapsed() < LOOKS_ON && !contention.is_contended_now() {
                contention.yield_now();
                continue;
            }
            match left {
                Left::Nothing => nap = (nap * 2).min(NAP_MAX),
                Left::More | Left::Records => nap = NAP,
            }
            match &self.placing {
                None => self.link.wait(nap),
                Some(placing) => {
                    if placing.is_quiet() {
                        self.ask_whether_placed();
                        continue;
                    }
                    if placing.is_near() {
                        // Nobody waits for this thread, and what it tells at once costs less.
                        self.link.wait(nap.max(NAP_OF_NEAR));
                        continue;
                    }
                    let has_more = || self.gatherers.iter().any(Gatherer::has_more);
                    let nap = if self.cut_since.is_some() { CUT_DELAY } else { NAP_OF_REPLICA };
                    placing.rest(&mut self.link, nap, has_more);
                }
            }
        }
    }

    /// Asks a replica to say when all has come that it was told.
    fn ask_whether_placed(&mut self) {
        if let Some(placing) = &mut self.placing {
            placing.ask(&mut self.link, &self.gatherers);
        }
    }

    /// Tells a replica where in the stream the records stand that come next, and whether it is to read them
    /// there.
    fn tell_position(&mut self, shard: usize, in_memory: bool) {
        let position = FeedPosition { words: self.gatherers[shard].position(), in_memory };
        self.link.push(FeedPart::Position as u32, shard as u8, &position.words());
    }

    /// Once all that comes next is held in the streams which a replica has mapped, it reads there.
    fn leave_to_streams(&mut self) {
        let Some(placing) = &mut self.placing else { return };
        if placing.begin_to_read_streams(self.gatherers.iter().map(Gatherer::position)) {
            (0..self.gatherers.len()).for_each(|shard| self.tell_position(shard, true));
        }
    }

    /// Whether it may go on in this server's place, and so has to know what clients were answered.
    fn goes_on(&self) -> bool {
        self.placing.is_some() || self.mirror.succeeds
    }

    /// Tells the mirror what it is given.
    fn greet(&mut self, resumes: bool) {
        let segments = self.mirror.namespace.shards.iter().flat_map(|shard| shard.segments.list());
        let memory_bytes = segments.map(|segment| segment.memory.bytes()).sum();
        let lineage = match (&self.shared.replication, &self.shared.wal) {
            (Some(replication), _) => replication.replicas.lineage(),
            (None, Some(wal)) => wal.lineage(),
            (None, None) => 0,
        };
        let mirrored = self.mirror.namespace.mirrored.as_ref();
        let primary = mirrored.map_or_else(String::new, |of| of.writes_go_to());
        let (kind, bytes) = Frame::Attached { memory_bytes, lineage, resumes, primary }.encode();
        self.link.tell(kind, &bytes);
    }

    /// Lets all shards tell changes, and takes what they tell from now on.
    fn begin(&mut self) -> Result<Vec<Begun>, End> {
        let shards = &self.mirror.namespace.shards;
        for (shard, handle) in shards.iter().enumerate() {
            let (tell, to_replica) = (self.copying.tell.clone(), self.goes_on());
            handle.command(Command::Feed { shard, to_replica, tell });
        }
        let mut began: Vec<_> = shards.iter().map(|_| None).collect();
        while began.iter().any(Option::is_none) {
            if let Some(Fed::Began { shard, books, histories, stretches, gatherer }) = self.hear(PATIENCE)? {
                began[shard] = Some((books, histories, stretches, gatherer));
            }
        }
        let began = began.into_iter().flatten().enumerate();
        let began = began.map(|(shard, (books, histories, stretches, gatherer))| {
            self.last.sequences[shard] = books.sequence;
            self.gatherers.push(*gatherer);
            (books, histories, Stretches::from(stretches))
        });
        let began = began.collect();
        self.mirror.progress().taken.clone_from(&self.last.sequences);
        Ok(began)
    }

    /// Lets all shards tell, and tells their books.
    fn begin_to_copy(&mut self) -> Result<(), End> {
        // A successor was greeted before it got its feed.
        if !self.mirror.succeeds {
            self.greet(false);
        }
        let mut of = 0;
        for (shard, (books, histories, stretches)) in self.begin()?.into_iter().enumerate() {
            of += stretches.iter().map(|(_, bytes)| bytes).sum::<u64>();
            self.copying.left.push(stretches);
            for frame in books.frames() {
                self.make_room()?;
                self.link.push(FeedPart::Books as u32, shard as u8, &frame);
            }
            if self.goes_on() {
                for frame in pieces(&histories) {
                    self.make_room()?;
                    self.link.push(FeedPart::Histories as u32, shard as u8, &frame);
                }
            }
            if self.placing.is_some() {
                self.tell_position(shard, false);
            }
        }
        self.mirror.progress().of = of;
        self.tells_records = true;
        Ok(())
    }

    /// Tells a replica that goes on with what it has what it lacks, and then what shards tell.
    fn resume(&mut self, words: &[Vec<u64>], gatherers: Vec<Gatherer>) -> Result<(), End> {
        self.greet(true);
        self.last.sequences = gatherers.iter().map(|gatherer| gatherer.last().record).collect();
        self.mirror.progress().taken.clone_from(&self.last.sequences);
        self.gatherers = gatherers;
        for (shard, words) in words.iter().enumerate() {
            for words in words.chunks(FEED_WORDS_MAX) {
                self.make_room()?;
                self.link.push(FeedPart::Records as u32, shard as u8, words);
            }
            self.tell_position(shard, false);
        }
        self.tells_records = true;
        Ok(())
    }

    // ---- the log ----

    /// The log behind a position, if the log reaches back to the position.
    fn log_behind(&self, position: Option<&StreamPosition>) -> Option<(Arc<Wal>, LogTail)> {
        // A replica wants to know what clients were answered, too, which the log does not have from the
        // beginning.
        let wal = self.shared.wal.as_ref().filter(|_| self.placing.is_none())?;
        let tail = wal.tail(&self.mirror.namespace, position?).unwrap_or_else(|error| {
            warn!(mirror = self.mirror.name, %error, "the log cannot be read: a mirror is given a copy");
            None
        });
        Some((wal.clone(), tail?))
    }

    /// Tells what the log has, and then what shards tell.
    fn catch_up(&mut self, wal: &Wal, mut tail: LogTail) -> Result<(), End> {
        self.greet(true);
        let (mirror, began) = (self.mirror, Instant::now());
        mirror.progress().stage = Stage::CatchingUp;
        let before: u64 = tail.sequences.iter().sum();
        loop {
            // Shards wait for nobody who reads the log, and their streams hold little.
            let pass = Instant::now();
            let words = self.tell_log(wal, &mut tail, None)?;
            if pass.elapsed() < CLOSE || words < CLOSE_WORDS {
                break;
            }
        }
        let began_at: Vec<u64> = self.begin()?.into_iter().map(|(books, ..)| books.sequence).collect();
        wal.write_up_to(&mirror.namespace, &began_at)?;
        self.tell_log(wal, &mut tail, Some(&began_at))?;
        if tail.sequences != began_at {
            return Err(refused("the mirror has records that were never made here; attach anew"));
        }
        self.tells_records = true;
        let records = began_at.iter().sum::<u64>() - before;
        let seconds = began.elapsed().as_secs_f64();
        info!(mirror = mirror.name, address = mirror.from(), records, seconds, "a mirror has caught up");
        Ok(())
    }

    /// Tells what the log has that was not told. Returns how many words of records that was.
    fn tell_log(&mut self, wal: &Wal, tail: &mut LogTail, until: Option<&[u64]>) -> Result<usize, End> {
        let mut told = 0;
        wal.read_tail(tail, until, |tailed| match tailed {
            Tailed::Records(shard, words) => {
                told += words.len();
                for words in words.chunks(FEED_WORDS_MAX) {
                    self.make_room()?;
                    self.link.push(FeedPart::Records as u32, shard as u8, words);
                }
                Ok(())
            }
            Tailed::Cut(sequences) => {
                self.look()?;
                // A cut out of the log answers no question: shards may have done much since.
                let cut = FeedCut { question: 0, lag_ns: 0, sequences: sequences.to_vec() };
                self.mirror.progress().taken.clone_from(&cut.sequences);
                if self.cuts.len() < CUTS_MAX {
                    self.cuts.push_back(cut);
                }
                self.tell_cuts(true)
            }
            Tailed::Lineage(lineage, sequences) => {
                // What an earlier server has left is on the disk.
                self.cuts.clear();
                self.make_room()?;
                let words: Vec<u64> = [&[lineage], sequences].concat();
                self.link.push(FeedPart::Lineage as u32, 0, &words);
                Ok(())
            }
        })?;
        Ok(told)
    }

    /// What a shard tells, if one does within some time; an error if it does not.
    fn hear(&mut self, patience: Duration) -> Result<Option<Fed>, End> {
        let began = Instant::now();
        loop {
            match self.copying.told.recv_timeout(NAP_MAX) {
                Ok(fed) => return Ok(Some(fed)),
                Err(RecvTimeoutError::Timeout) if began.elapsed() < patience => self.look()?,
                Err(_) => return Err(refused("a shard does not answer")),
            }
        }
    }

    /// Sends what waits, and takes in what the mirror says. An error: the feed is to end.
    fn look(&mut self) -> Result<(), End> {
        self.link.flush();
        let shards = self.last.sequences.len();
        while let Some(frame) = self.link.receive() {
            if let (Some(FeedPart::Placed), Some(placing)) = (FeedPart::of(frame.part), &mut self.placing) {
                let placed = FeedPlaced::of(frame.words);
                if !placed.is_some_and(|placed| placing.take(placed)) {
                    return Err(refused("it has what it was not told"));
                }
                continue;
            }
            if FeedPart::of(frame.part) == Some(FeedPart::Used) {
                if !self.uses.take(&self.mirror.namespace.shards, frame.shard.into(), frame.words) {
                    return Err(refused("what was read makes no sense"));
                }
                continue;
            }
            let asked = Some(frame.words).filter(|_| FeedPart::of(frame.part) == Some(FeedPart::Ask));
            let Some(asked) = asked.and_then(|words| FeedAsk::of(words, shards)) else {
                return Err(refused("a frame that makes no sense here"));
            };
            self.question = asked.question;
            self.asked = Some(Instant::now());
            self.mirror.progress().asked = Some(asked);
        }
        self.uses.answer(&mut self.link, UNSENT_MAX);
        if let Some(why) = self.link.over() {
            return Err(End::Gone(why.into()));
        }
        if let Some(why) = self.mirror.ends() {
            return Err(refused(why));
        }
        self.gatherers.iter().try_for_each(Gatherer::check).map_err(|error| of_stream(&error))?;
        let (since, before) = self.progressed;
        if self.link.unsent() == 0 {
            self.progressed.0 = Instant::now();
        } else if self.link.moved() != before {
            self.progressed = (Instant::now(), self.link.moved());
        } else if since.elapsed() > STALL {
            return Err(refused("it takes nothing in"));
        }
        if self.placing.as_ref().is_some_and(Placing::is_late) {
            return Err(refused("it takes too long to say what it has"));
        }
        // What is sent to a host that has gone the system takes in, and tries for a quarter of an hour to
        // have it arrive.
        if self.asked.is_some_and(|asked| asked.elapsed() > STALL) {
            return Err(refused(format!("it has asked nothing for {} s", STALL.as_secs())));
        }
        Ok(())
    }

    /// Waits until not too much waits to be sent.
    fn make_room(&mut self) -> Result<(), End> {
        loop {
            self.look()?;
            if self.link.unsent() <= UNSENT_MAX {
                return Ok(());
            }
            self.link.wait(NAP_MAX);
        }
    }

    /// Does what there is to do, without waiting.
    fn turn(&mut self) -> Result<Left, End> {
        self.look()?;
        self.mirror.progress().sent = self.link.sent();
        if self.link.unsent() > UNSENT_MAX {
            return Ok(Left::Records);
        }
        let has_come = self.gather()?;
        self.leave_to_streams();
        self.tell_cuts(false)?;
        let has_more = self.copy()?;
        self.join();
        self.link.flush();
        Ok(match (has_more, has_come) {
            (true, _) => Left::More,
            (false, true) => Left::Records,
            (false, false) => Left::Nothing,
        })
    }

    /// Takes what shards have sealed, and tells it. Whether there was anything, or a question.
    fn gather(&mut self) -> Result<bool, End> {
        if !self.tells_records {
            return Ok(false);
        }
        let has_come = self.gatherers.iter().any(Gatherer::has_more);
        if !has_come && self.question == self.last.question || self.cuts.len() >= CUTS_MAX {
            return Ok(has_come);
        }
        // What is gathered next is as new as that, or newer.
        let mirrored = self.mirror.namespace.mirrored.as_ref();
        let lag_ns = match mirrored {
            Some(of) => of.standing.lag_ns().unwrap_or(u64::MAX),
            None if self.shared.authority.counts() => 0,
            // Another server may take writes by now, of which this one knows nothing.
            None => u64::MAX,
        };
        let question = self.question;
        let reads_streams = self.placing.as_ref().is_some_and(Placing::reads_streams);
        let Feeding { gatherers, link, shared, .. } = self;
        let gathered = shared.batches.gather(|later| {
            let mut shards = (0..).zip(&mut *gatherers);
            shards.try_fold(true, |all, (shard, gatherer)| {
                let taken = gatherer.take(later, |words, _| {
                    for words in words.chunks(FEED_WORDS_MAX).filter(|_| !reads_streams) {
                        link.push(FeedPart::Records as u32, shard, words);
                    }
                });
                Ok(all & taken?)
            })
        });
        if !gathered.map_err(|error| of_stream(&error))? {
            self.gatherers.iter_mut().try_for_each(Gatherer::drain).map_err(|error| of_stream(&error))?;
            return Ok(true);
        }
        let sequences: Vec<u64> = self.gatherers.iter().map(|gatherer| gatherer.last().record).collect();
        let cut = FeedCut { question, lag_ns, sequences };
        if (cut.question, &cut.sequences) != (self.last.question, &self.last.sequences) {
            self.mirror.progress().taken.clone_from(&cut.sequences);
            let has_records = cut.sequences != self.last.sequences;
            self.cuts.push_back(cut.clone());
            self.last = cut;
            if has_records {
                self.ask_whether_placed();
            }
        }
        Ok(has_come)
    }

    /// Has what a replica that follows has count, and hears what shards have sealed before that.
    fn join(&mut self) {
        let is_following = self.mirror.progress().stage == Stage::Following;
        let Some(placing) = self.placing.as_mut().filter(|_| is_following) else { return };
        placing.join(&self.mirror.namespace, &self.copying.tell);
        while let Ok(fed) = self.copying.told.try_recv() {
            if let Fed::Holds { shard, sequence, hold } = fed {
                placing.note_held((shard, hold), sequence);
            }
        }
    }

    /// Tells the last cut that counts: at once, or to a replica with what it is sent next.
    fn tell_cuts(&mut self, at_once: bool) -> Result<(), End> {
        let count = self.cuts.iter().take_while(|cut| counts(&self.logs, cut)).count();
        if count == 0 {
            return Ok(());
        }
        let is_sent = self.placing.as_ref().is_some_and(|placing| !placing.is_near());
        let may_wait = !at_once && is_sent && self.link.unsent() == 0;
        if may_wait && self.cut_since.get_or_insert_with(Instant::now).elapsed() < CUT_DELAY {
            return Ok(());
        }
        self.cut_since = None;
        if let Some(cut) = self.cuts.drain(..count).next_back() {
            self.link.push(FeedPart::Cut as u32, 0, &cut.words());
        }
        Ok(())
    }

    // ---- memory ----

    /// Copies all memory on a processor that nobody else wants, as long as that is fast enough; and then as
    /// others do.
    fn copy_aside(&mut self) -> Result<(), End> {
        self.copying.since = Some(Instant::now());
        let aside = std::thread::scope(|scope| {
            let name = std::thread::Builder::new().name("kelix-feed".into());
            let copy = || {
                // Of this thread alone. If it may not, it is as busy as others.
                let _ = rustix::process::setpriority_process(None, LEAST_PRIORITY);
                self.copy_all(true)
            };
            name.spawn_scoped(scope, copy).map(|thread| thread.join().expect("it says why it ends"))
        });
        aside.unwrap_or(Ok(()))?;
        self.copy_all(false)?;
        let (mirror, copied) = (self.mirror, self.copying.copied);
        let seconds = mirror.since.elapsed().as_secs_f64();
        info!(mirror = mirror.name, address = mirror.from(), copied, seconds, "a mirror has all memory");
        Ok(())
    }

    /// Copies until all is copied; or, aside, until others leave too little of the processor.
    fn copy_all(&mut self, is_aside: bool) -> Result<(), End> {
        let (mut worked, mut words) = (Duration::ZERO, 0);
        while self.copying.whole < self.copying.left.len() {
            let (began, before) = (Instant::now(), self.copying.copied);
            let left = self.turn()?;
            worked += began.elapsed();
            words += (self.copying.copied - before) as usize / 8;
            if is_aside {
                let is_late = self.gatherers.iter().any(|gatherer| gatherer.waiting() > LATE_WORDS);
                if is_late || worked > ASIDE && words < ASIDE_WORDS {
                    return Ok(());
                }
                if worked > ASIDE {
                    (worked, words) = (Duration::ZERO, 0);
                }
            }
            if left != Left::More {
                self.link.wait(self.copying.is_due_in().unwrap_or(NAP).min(NAP_MAX));
            }
        }
        Ok(())
    }

    /// Copies some memory, and says where what was copied is whole. Whether more can be copied now.
    fn copy(&mut self) -> Result<bool, End> {
        if self.copying.whole >= self.copying.left.len() {
            return Ok(false);
        }
        while let Ok(Fed::Covers { shard, sequence }) = self.copying.told.try_recv() {
            self.link.push(FeedPart::Copied as u32, shard as u8, &[sequence]);
            self.copying.whole += 1;
        }
        let shard = self.copying.at;
        if shard >= self.copying.left.len() {
            return Ok(false);
        }
        let handle = &self.mirror.namespace.shards[shard];
        let mut map = MemoryMap::default();
        handle.segments.list().into_iter().for_each(|segment| map.add(segment.first, segment.span));
        for _ in 0..PIECES {
            if self.copying.is_due_in().is_some() {
                break;
            }
            let Some((place, bytes)) = self.copying.left[shard].front_mut() else {
                // What its memory held until now is in records up to one that the shard knows.
                self.copying.at += 1;
                handle.command(Command::Covers { shard, tell: self.copying.tell.clone() });
                return Ok(true);
            };
            let count = (*bytes as usize / 8).min(PIECE_WORDS);
            let (at, copied) = (*place, count as u64 * 8);
            (*place, *bytes) = (at.plus(copied), *bytes - copied);
            if *bytes == 0 {
                self.copying.left[shard].pop_front();
            }
            // A segment that is gone holds nothing any more, and that it went is told.
            if let Some(words) = map.words(at, count) {
                self.link.push_with(FeedPart::Copy as u32, shard as u8, 1 + count, |into| {
                    into[0] = at.0;
                    words.copy_out(0, &mut into[1..]);
                });
            }
            self.copying.copied += copied;
        }
        self.mirror.progress().copied = self.copying.copied;
        Ok(self.copying.is_due_in().is_none() && self.link.unsent() <= UNSENT_MAX)
    }
}

#[cfg(test)]
mod tests {
    use kelix_image::Committed;
    use kelix_log::{LogControl, LogState};

    use super::*;

    #[test]
    fn a_cut_counts_when_all_of_it_is_on_the_disk() {
        let cut = FeedCut { question: 0, lag_ns: 0, sequences: vec![5, 7] };
        assert!(counts(&[], &cut), "nothing is waited for");
        let (control, at) = (LogControl::new(), |record| Committed { record, incarnation: 1 });
        let logs = [control.shard(at(5)), control.shard(at(6))];
        assert!(!counts(&logs, &cut));
        logs[1].set_durable(at(7));
        assert!(counts(&logs, &cut));
        logs[0].set_durable(at(4));
        assert!(!counts(&logs, &cut));
        control.set_state(LogState::Full);
        assert!(!counts(&logs, &cut), "there may be room again");
        control.set_state(LogState::Failed);
        assert!(counts(&logs, &cut), "no more will ever be on the disk");
    }

    #[test]
    fn memory_is_due_as_fast_as_it_is_wanted() {
        let (tell, told) = channel();
        let since = Instant::now().checked_sub(Duration::from_secs(2));
        let (left, at, whole) = (Vec::new(), 0, 0);
        let mut copying = Copying { rate: 1000, tell, told, left, at, copied: 1000, whole, since };
        assert_eq!(copying.is_due_in(), None, "1 s is enough for that");
        copying.copied = 5000;
        let due = copying.is_due_in().expect("5 s are not over");
        assert!(due > Duration::from_secs(2) && due <= Duration::from_secs(3), "{due:?}");
        copying.rate = 0;
        assert_eq!(copying.is_due_in(), None);
    }
}
