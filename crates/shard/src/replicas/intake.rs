//! What comes of a feed, in the order in which it counts: books and memory of each shard, records, and cuts.
//!
//! ```text
//! BOOKS of all shards -> COPY, RECORDS and CUTS in turn -> COPIED of each shard: whole with its record
//!                                                       -> RECORDS and CUTS for ever
//! ```
//!
//! 1. A record is applied only when a cut has reached it: it is committed at the primary then, and so are
//!    all its causes, on whichever shards, which are applied before it ([`Streams`]).
//! 2. Nothing that comes is believed: not where memory is, nor how much, nor that records follow each other.

use kelix_image::{Books, SegmentSource};
use kelix_log::{LogControl, Reader, Record, ShardLog, StreamMemory};
use kelix_types::{Error, ErrorKind, Place, Result};
use kelix_wire::feed::{FeedBooks, FeedCut, FeedPart, FeedPlaced, FeedPlacing, FeedPosition};

use super::backlog::Backlog;
use super::receipts::Receipts;
use crate::follower::Follower;
use crate::streams::Streams;

/// Words of records of a shard that wait for a cut, at most: some hundred times what a primary keeps.
const WAITING_MAX: usize = 1 << 28;
/// Words of books: those of 16 TiB of segments are fewer.
const BOOKS_MAX: usize = 1 << 26;

/// A shard that is followed, in segments of some kind.
pub struct Shadow<S> {
    /// Its segments.
    pub segments: S,
    /// What was told of it.
    pub follower: Follower,
}

/// Makes the memory of a shard with a number: its segments, and what they come from.
pub type MakeSegments<S> = fn(usize) -> (S, Box<dyn SegmentSource>);

/// What has come of one shard.
struct Part<S> {
    /// Pieces of the books, before the last one has come.
    books: Vec<u64>,
    /// The same of what clients were answered.
    histories: Vec<u64>,
    /// Of a replica: where in the primary's stream, in words, the records stand that come next, and whether
    /// they are read there.
    position: Option<u64>,
    reads_stream: bool,
    shadow: Option<Shadow<S>>,
    /// The record with which what was copied is whole, once all was.
    whole_at: Option<u64>,
    /// The shard's epoch of use, when it has told it anew.
    use_epoch: Option<u64>,
}

impl<S> Default for Part<S> {
    fn default() -> Part<S> {
        Part {
            books: Vec::new(),
            histories: Vec::new(),
            position: None,
            reads_stream: false,
            shadow: None,
            whole_at: None,
            use_epoch: None,
        }
    }
}

/// What has come of a feed.
pub struct Intake<S> {
    parts: Vec<Part<S>>,
    make_segments: MakeSegments<S>,
    /// Their records.
    streams: Streams,
    /// Most bytes that a shard's memory may have.
    memory_bytes: u64,
    /// Words of memory that were copied.
    copied_words: u64,
    /// What was read of a stream, for a moment.
    read: Vec<u64>,
    /// Of a replica: the last records of each shard that were applied.
    backlogs: Option<Vec<Backlog>>,
    /// Of a replica that keeps a log.
    receipts: Option<Receipts>,
    /// Of a replica: the last question whether all has come, and the last record of each shard before it; and
    /// which one was answered.
    placing: Option<FeedPlacing>,
    placed: u64,
    /// The last question that a cut has answered, and how old that was at its side.
    answered: (u64, u64),
    /// The lineage of what comes next, for which this one has to begin anew first.
    next_lineage: Option<u64>,
}

fn wrong(what: &str) -> Error {
    let context = format!("the primary sent {what} that makes no sense");
    Error::new(ErrorKind::Protocol, "follow", context)
}

impl<S> Intake<S> {
    /// Of a feed of so many shards, each of which may have so much memory here.
    pub fn new(shards: usize, memory_bytes: u64, make_segments: MakeSegments<S>) -> Intake<S> {
        let parts = (0..shards).map(|_| Part::default()).collect();
        let streams = Streams::new(shards);
        Intake {
            parts,
            make_segments,
            streams,
            memory_bytes,
            copied_words: 0,
            read: Vec::new(),
            backlogs: None,
            receipts: None,
            placing: None,
            placed: 0,
            answered: (0, 0),
            next_lineage: None,
        }
    }

    /// Of a replica, which may go on in the primary's place: it keeps the last records that it applies.
    pub fn keep_backlogs(&mut self) {
        self.backlogs = Some(self.parts.iter().map(|_| Backlog::default()).collect());
    }

    /// Whether it does.
    pub fn keeps_backlogs(&self) -> bool {
        self.backlogs.is_some()
    }

    /// The last records of each shard that were applied, where they were kept.
    pub fn take_backlogs(&mut self) -> Vec<Backlog> {
        self.backlogs.take().unwrap_or_default()
    }

    /// Of a replica whose disk keeps what comes from now on, in batches of this control, before it counts.
    /// `counts`: the primary is told of what the disk has. Returns, of each shard, what whoever writes the
    /// log takes of.
    pub fn keep_log(&mut self, batches: &LogControl, counts: bool) -> Result<Vec<(Reader, ShardLog)>> {
        let of = |(shard, part): (usize, &Part<S>)| {
            let end = part.shadow.as_ref().expect("shards that are here").follower.end();
            (end, self.streams.unapplied(shard).to_vec())
        };
        let (mut receipts, taken) = Receipts::begin((batches, counts), self.parts.iter().enumerate().map(of));
        // One that came meanwhile is to be answered, too: the primary asks no other one before.
        self.placing.as_ref().map_or(Ok(()), |placing| receipts.ask(placing))?;
        self.receipts = Some(receipts);
        Ok(taken)
    }

    /// Whether it does.
    pub fn keeps_log(&self) -> bool {
        self.receipts.is_some()
    }

    /// Gives whoever writes the log more of what came, if some has found no room yet. `false`: there still is
    /// no room for all, so that nothing more is to be taken in.
    pub fn flush_log(&mut self) -> bool {
        let Some(receipts) = self.receipts.as_mut().filter(|receipts| receipts.is_behind()) else {
            return true;
        };
        receipts.flush();
        !receipts.is_behind()
    }

    /// Of shards whose memory is there already.
    pub fn of_shadows(shadows: Vec<Shadow<S>>, make_segments: MakeSegments<S>) -> Intake<S> {
        let mut intake = Intake::new(shadows.len(), u64::MAX / 2, make_segments);
        for (shard, (part, shadow)) in intake.parts.iter_mut().zip(shadows).enumerate() {
            let applied = shadow.follower.applied();
            intake.streams.begin(shard, applied);
            *part = Part { shadow: Some(shadow), whole_at: Some(applied), ..Part::default() };
        }
        intake
    }

    /// Bytes of memory that were copied so far.
    pub fn copied_bytes(&self) -> u64 {
        self.copied_words * 8
    }

    /// Records, and bytes of them, that were applied so far.
    pub fn applied_so_far(&self) -> (u64, u64) {
        let (records, words) = self.streams.counted();
        (records, words * 8)
    }

    /// The last record of each shard that was applied.
    pub fn applied(&self) -> Vec<u64> {
        (0..self.parts.len()).map(|shard| self.streams.applied(shard)).collect()
    }

    /// The last question that was answered by a cut all of which has been applied, and how old what was told
    /// was in nanoseconds where it was told; question 0: none.
    pub fn answered(&self) -> (u64, u64) {
        if self.streams.is_all_applied() { self.answered } else { (0, 0) }
    }

    /// What comes from now on begins behind the records that were applied.
    pub fn resume(&mut self) {
        self.streams.resume();
        self.receipts.iter_mut().for_each(Receipts::resume);
        (self.placing, self.placed) = (None, 0);
        // They were of another primary's streams.
        self.parts.iter_mut().for_each(|part| (part.position, part.reads_stream) = (None, false));
        self.next_lineage = None;
    }

    /// Whether it is known of all shards where in the primary's streams the records stand that come next.
    fn knows_positions(&self) -> bool {
        self.parts.iter().all(|part| part.position.is_some())
    }

    /// Takes in what stands in the primary's streams, of those shards that are read there. Whether there was
    /// anything.
    fn read_streams(&mut self, streams: &[StreamMemory]) -> Result<bool> {
        let mut came = false;
        for (shard, (part, stream)) in self.parts.iter_mut().zip(streams).enumerate() {
            if !part.reads_stream || self.streams.waiting(shard) > WAITING_MAX {
                continue;
            }
            let lost = || wrong("streams");
            let position = part.position.as_mut().ok_or_else(lost)?;
            stream.read_behind(*position, &mut self.read).ok_or_else(lost)?;
            *position += self.read.len() as u64;
            came |= !self.read.is_empty();
            self.streams.push(shard, &self.read);
            self.read.clear();
        }
        Ok(came)
    }

    /// Takes what stands in the primary's streams behind what came, of each shard: all records that are whole
    /// count, but such as come behind one of another shard that is not there. They were told later than this
    /// one took over, and to nobody.
    fn take_streams(&mut self, streams: &[StreamMemory]) -> Result<()> {
        let lost = || wrong("streams");
        for (shard, (part, stream)) in self.parts.iter().zip(streams).enumerate() {
            // A primary that has not said where its records begin has not been told that anything is here, so
            // nothing of its own counts.
            let Some(position) = part.position else { continue };
            let mut words = Vec::new();
            stream.read_behind(position, &mut words).ok_or_else(lost)?;
            self.streams.push(shard, &words);
        }
        if streams.is_empty() { Ok(()) } else { self.streams.cut_whole() }
    }

    /// What came was taken in, where this follows with these streams of the primary, or with none. Returns what
    /// the primary is to be told of that, where this one says what it has. What a cut or a question counts on
    /// stood in the streams when that was sent, so they are read before it is said that all has come.
    pub fn settle(
        &mut self,
        (came, says_what_it_has): (bool, bool),
        streams: &[StreamMemory],
    ) -> Result<Option<FeedPlaced>> {
        if came && !streams.is_empty() {
            self.read_streams(streams)?;
        }
        let is_near = !streams.is_empty() && self.knows_positions();
        let number = match &mut self.receipts {
            _ if !says_what_it_has => None,
            Some(receipts) => receipts.answer(),
            None => self.take_placed(),
        };
        Ok(number.map(|number| FeedPlaced { number, is_near }))
    }

    /// This one goes on in the primary's place: nothing more comes of that one, and all counts that has come, or
    /// stands in its streams.
    pub fn take_over(&mut self, streams: &[StreamMemory]) -> Result<()> {
        self.count_placed();
        self.take_streams(streams)
    }

    /// The number of the last question whether all has come, if that was not answered yet: all has.
    fn take_placed(&mut self) -> Option<u64> {
        let number = self.placing.as_ref().map(|placing| placing.number).filter(|of| *of > self.placed)?;
        self.placed = number;
        Some(number)
    }

    /// All that came before the last question counts, since this one goes on in the primary's place: whoever
    /// has seen it at the primary is to find it here. What came behind was told to nobody.
    ///
    /// So it does in a copy that nobody reads yet, where what was copied is no older than that: it may count
    /// nowhere before this one is in sync.
    pub fn count_placed(&mut self) {
        let Some(placing) = &self.placing else { return };
        for (shard, sequence) in placing.sequences.iter().enumerate() {
            self.streams.cut(shard, *sequence);
        }
    }

    /// The lineage of what comes next, if all of one has come: nothing more is to be taken in.
    pub fn next_lineage(&self) -> Option<u64> {
        self.next_lineage
    }

    /// The shards are here again, and what comes next is of this lineage.
    pub fn begin_lineage(&mut self, shadows: Vec<Shadow<S>>) -> Option<u64> {
        self.parts.iter_mut().zip(shadows).for_each(|(part, shadow)| part.shadow = Some(shadow));
        self.next_lineage.take()
    }

    /// The epochs of use that shards have told since this was last asked.
    pub fn take_use_epochs(&mut self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let each = self.parts.iter_mut().enumerate();
        each.filter_map(|(shard, part)| Some((shard, part.use_epoch.take()?)))
    }

    /// Takes a frame in. An error: it makes no sense here, or there is no memory for it.
    pub fn take(&mut self, shard: usize, part: u32, words: &[u64]) -> Result<()> {
        let known = FeedPart::of(part).ok_or_else(|| wrong("a frame"))?;
        if known == FeedPart::Cut {
            let cut = FeedCut::of(words, self.parts.len()).ok_or_else(|| wrong("a cut"))?;
            for (shard, sequence) in cut.sequences.into_iter().enumerate() {
                self.streams.cut(shard, sequence);
            }
            if cut.question > self.answered.0 {
                self.answered = (cut.question, cut.lag_ns);
            }
            return Ok(());
        }
        if known == FeedPart::Placing {
            let placing = FeedPlacing::of(words, self.parts.len());
            let placing = placing.filter(|placing| {
                let before = self.placing.as_ref();
                before.is_none_or(|before| {
                    let mut sequences = before.sequences.iter().zip(&placing.sequences);
                    before.number < placing.number && sequences.all(|(before, of)| before <= of)
                })
            });
            let placing = placing.ok_or_else(|| wrong("a question"))?;
            self.receipts.as_mut().map_or(Ok(()), |receipts| receipts.ask(&placing))?;
            self.placing = Some(placing);
            return Ok(());
        }
        if known == FeedPart::Lineage {
            let (lineage, ends) = words.split_first().ok_or_else(|| wrong("a lineage"))?;
            if ends.len() != self.parts.len() || !self.is_whole() {
                return Err(wrong("a lineage"));
            }
            (0..).zip(ends).for_each(|(shard, end)| self.streams.cut(shard, *end));
            self.next_lineage = Some(*lineage);
            return Ok(());
        }
        let (memory_bytes, make_segments) = (self.memory_bytes, self.make_segments);
        let of = self.parts.get_mut(shard).ok_or_else(|| wrong("a shard"))?;
        match known {
            FeedPart::Books => {
                if let Some(sequence) = of.take_books(shard, words, (memory_bytes, make_segments))? {
                    self.streams.begin(shard, sequence);
                }
            }
            FeedPart::Histories => of.take_histories(words)?,
            FeedPart::Copy => {
                let (place, words) = words.split_first().ok_or_else(|| wrong("memory"))?;
                let shadow = of.shadow.as_mut().filter(|_| of.whole_at.is_none());
                shadow.ok_or_else(|| wrong("memory"))?.follower.copy(Place(*place), words);
                self.copied_words += words.len() as u64;
            }
            FeedPart::Copied => match words {
                &[sequence] if of.whole_at.is_none() => of.whole_at = Some(sequence),
                _ => return Err(wrong("the end of a copy")),
            },
            FeedPart::Records => {
                if self.streams.waiting(shard) + words.len() > WAITING_MAX {
                    let context = "the primary sends records that never count";
                    return Err(Error::new(ErrorKind::Protocol, "follow", context));
                }
                of.position = of.position.map(|position| position + words.len() as u64);
                self.streams.push(shard, words);
                self.receipts.iter_mut().for_each(|receipts| receipts.take(shard, words));
            }
            FeedPart::Position => {
                let position = FeedPosition::of(words).ok_or_else(|| wrong("a position"))?;
                (of.position, of.reads_stream) = (Some(position.words), position.in_memory);
            }
            FeedPart::UseEpoch => match words {
                &[epoch] => of.use_epoch = Some(epoch),
                _ => return Err(wrong("an epoch of use")),
            },
            FeedPart::Cut
            | FeedPart::Lineage
            | FeedPart::Placing
            | FeedPart::Placed
            | FeedPart::Ask
            | FeedPart::Used => {
                return Err(wrong("a frame"));
            }
        }
        Ok(())
    }

    /// Whether all memory was copied, and is whole.
    pub fn is_whole(&self) -> bool {
        let is_whole = |(shard, part): (usize, &Part<S>)| {
            part.whole_at.is_some_and(|whole_at| self.streams.applied(shard) >= whole_at)
        };
        self.parts.iter().enumerate().all(is_whole)
    }

    /// Applies records that count to shards that nobody reads yet.
    pub fn apply_unread(&mut self) -> Result<()> {
        let mut shadows: Vec<Option<Shadow<S>>> =
            self.parts.iter_mut().map(|part| part.shadow.take()).collect();
        let applied = self.apply_all(|shard, record| match &mut shadows[shard] {
            Some(shadow) => shadow.follower.apply(record),
            None => Err(wrong("records of a shard before its books")),
        });
        self.parts.iter_mut().zip(shadows).for_each(|(part, shadow)| part.shadow = shadow);
        applied
    }

    /// Gives the shards out, to be read from now on.
    pub fn take_shadows(&mut self) -> Vec<Shadow<S>> {
        self.parts.iter_mut().filter_map(|part| part.shadow.take()).collect()
    }

    /// Whether all that counts was applied.
    pub fn is_all_applied(&self) -> bool {
        self.streams.is_all_applied()
    }

    /// Whether what was applied ends with a cut.
    pub fn is_at_cut(&self) -> bool {
        self.streams.is_at_cut()
    }

    /// Has all records applied that count.
    pub fn apply_all(&mut self, mut apply: impl FnMut(usize, &Record<'_>) -> Result<()>) -> Result<()> {
        while !self.apply(usize::MAX, &mut apply)? {}
        Ok(())
    }

    /// Has records applied that count, of about so many words at most, or up to a cut. `true`: that was all
    /// of them.
    pub fn apply(
        &mut self,
        words: usize,
        mut apply: impl FnMut(usize, &Record<'_>) -> Result<()>,
    ) -> Result<bool> {
        let Intake { streams, backlogs, .. } = self;
        streams.apply(words, |shard, record| {
            apply(shard, record)?;
            if let Some(backlogs) = backlogs {
                backlogs[shard].note(record);
            }
            Ok(())
        })
    }
}

impl<S> Part<S> {
    /// Takes a piece of what clients were answered, behind the books.
    fn take_histories(&mut self, words: &[u64]) -> Result<()> {
        let is_last = FeedBooks::gather(&mut self.histories, words);
        let shadow = self.shadow.as_mut().filter(|_| self.whole_at.is_none());
        let (Some(is_last), Some(shadow), true) = (is_last, shadow, self.histories.len() <= BOOKS_MAX) else {
            return Err(wrong("answers"));
        };
        if is_last {
            shadow.follower.remember(&std::mem::take(&mut self.histories))?;
        }
        Ok(())
    }

    /// Takes a piece of the books. With the last one come memory, and the record behind which others follow.
    fn take_books(
        &mut self,
        shard: usize,
        words: &[u64],
        (memory_bytes, make_segments): (u64, MakeSegments<S>),
    ) -> Result<Option<u64>> {
        let is_last = FeedBooks::gather(&mut self.books, words);
        let is_last = is_last.filter(|_| self.shadow.is_none() && self.books.len() <= BOOKS_MAX);
        if !is_last.ok_or_else(|| wrong("books"))? {
            return Ok(None);
        }
        let told = FeedBooks::of(&std::mem::take(&mut self.books)).ok_or_else(|| wrong("books"))?;
        let books = Books::of_words(&told.books).ok_or_else(|| wrong("books"))?;
        let bytes: u64 = books.segments.iter().map(|segment| segment.bytes).sum();
        if bytes > memory_bytes {
            let context = format!(
                "the primary's shard {shard} has {bytes} bytes, and may have {memory_bytes} here: give the \
                 mirror more --memory"
            );
            return Err(Error::new(ErrorKind::OutOfMemory, "follow", context));
        }
        let (segments, source) = make_segments(shard);
        let follower = Follower::of_books(source, memory_bytes, (&books, &told.kept), told.sequence)?;
        self.shadow = Some(Shadow { segments, follower });
        Ok(Some(told.sequence))
    }
}

#[cfg(test)]
mod tests {
    use kelix_log::RecordHead;

    use super::*;

    /// Memory that was copied beside writes is as it was at no moment, until the records beside it are applied.
    #[test]
    fn a_copy_is_whole_when_all_shards_have_applied_what_was_told_beside_it() {
        let mut intake = Intake::new(2, 1 << 20, |_| unreachable!("no books come") as ((), _));
        for (shard, (began, whole_at)) in [(3, 5), (7, 7)].into_iter().enumerate() {
            intake.streams.begin(shard, began);
            assert!(!intake.is_whole());
            intake.take(shard, FeedPart::Copied as u32, &[whole_at]).unwrap();
        }
        for sequence in [4, 5] {
            assert!(!intake.is_whole(), "record {sequence} of shard 0 is to come");
            let head = RecordHead { sequence, last_incarnation: sequence, batch: 0, words: 0 };
            intake.take(0, FeedPart::Records as u32, &head.words()).unwrap();
            assert!(!intake.is_whole(), "and then to count");
            intake
                .take(
                    0,
                    FeedPart::Cut as u32,
                    &FeedCut { question: 0, lag_ns: 0, sequences: vec![sequence, 7] }.words(),
                )
                .unwrap();
            intake.apply_all(|_, _| Ok(())).unwrap();
        }
        assert!(intake.is_whole());
        assert!(intake.take(0, FeedPart::Copied as u32, &[9]).is_err(), "a copy ends once");
    }
}
