//! What a replica has its own disk keep: the records that came before each question of its primary, before
//! they count.
//!
//! ```text
//! records of a feed -> came -> a question says up to where -> the stream of whoever writes the log
//!                                                           -> on the disk -> answered
//! ```
//!
//! 1. What the disk has is what this replica would go on with: all that came before the last question
//!    ([`super::Intake::take_over`]). So the log goes on where another primary is followed, or where this
//!    replica is chosen, and whoever begins with it has what the primary counted on.
//! 2. A question is where no record lacks its causes, so batches are gathered between two of them
//!    ([`LogControl::begin_retelling`]).
//! 3. Where what the disk has counts (`--durable commit`), a question is answered when all before it is on
//!    the disk.

use std::collections::VecDeque;

use kelix_image::Committed;
use kelix_log::{Lag, LogControl, Reader, Record, RecordHead, ShardLog, Stream};
use kelix_types::{Error, ErrorKind, Result, mark};
use kelix_wire::feed::FeedPlacing;

use crate::recorder::STREAM_WORDS;

/// Questions that may wait for the disk: some times those that a primary asks in the time in which it waits
/// for the answer.
const ASKED_MAX: usize = 1 << 16;

/// What came of one shard, and what whoever writes the log takes.
struct Receipt {
    /// Records behind the last question.
    came: Vec<u64>,
    stream: Stream,
    /// What has found no room in the stream.
    unsent: Vec<u64>,
    log: ShardLog,
}

/// What a replica has its disk keep.
pub(super) struct Receipts {
    shards: Vec<Receipt>,
    batches: LogControl,
    counts: bool,
    asked: VecDeque<FeedPlacing>,
    is_telling: bool,
}

impl Receipts {
    /// Of shards that have these ends, behind which this came already. Also returns, of each, what whoever
    /// writes the log takes of.
    pub fn begin(
        (batches, counts): (&LogControl, bool),
        shards: impl Iterator<Item = (Committed, Vec<u64>)>,
    ) -> (Receipts, Vec<(Reader, ShardLog)>) {
        let begin = |(end, came)| {
            let (mut stream, log) = (Stream::new(STREAM_WORDS), batches.shard(end));
            let reader = stream.follow(Lag::Wait, 0);
            (Receipt { came, stream, unsent: Vec::new(), log: log.clone() }, (reader, log))
        };
        let (shards, taken) = shards.map(begin).unzip();
        let batches = batches.clone();
        (Receipts { shards, batches, counts, asked: VecDeque::new(), is_telling: false }, taken)
    }

    /// Words of a shard's records have come.
    pub fn take(&mut self, shard: usize, words: &[u64]) {
        self.shards[shard].came.extend_from_slice(words);
    }

    /// All that came before this question is to be kept.
    pub fn ask(&mut self, placing: &FeedPlacing) -> Result<()> {
        if self.asked.len() >= ASKED_MAX {
            let context = "the primary asks more than the disk of this replica can answer";
            return Err(Error::new(ErrorKind::TimedOut, "follow", context));
        }
        if !std::mem::replace(&mut self.is_telling, true) {
            self.batches.begin_retelling();
        }
        let batch = self.batches.batch() as u16;
        for (receipt, last) in self.shards.iter_mut().zip(&placing.sequences) {
            let Receipt { came, unsent, log, .. } = receipt;
            let mut rest = &came[..];
            while let Some((record, behind)) = Record::split(rest)? {
                if record.head.sequence > *last {
                    break;
                }
                unsent.extend_from_slice(&RecordHead { batch, ..record.head }.words());
                unsent.extend_from_slice(record.notes);
                rest = behind;
            }
            let taken = came.len() - rest.len();
            came.drain(..taken);
            log.want(*last);
        }
        self.asked.push_back(placing.clone());
        self.flush();
        Ok(())
    }

    /// Gives whoever writes the log what there is room for.
    pub fn flush(&mut self) {
        for receipt in &mut self.shards {
            if !receipt.unsent.is_empty() {
                let pushed = receipt.stream.push(&receipt.unsent);
                receipt.unsent.drain(..pushed);
            }
        }
        if self.is_telling && !self.is_behind() {
            self.is_telling = false;
            self.batches.end_retelling();
        }
    }

    /// Whether some of that has found no room yet.
    pub fn is_behind(&self) -> bool {
        self.shards.iter().any(|receipt| !receipt.unsent.is_empty())
    }

    /// The number of the last question that can be answered, if one can.
    pub fn answer(&mut self) -> Option<u64> {
        let counts = self.counts;
        let is_kept = |placing: &&FeedPlacing| {
            let mut shards = self.shards.iter().zip(&placing.sequences);
            !counts || shards.all(|(receipt, last)| receipt.log.durable() >= *last)
        };
        let count = self.asked.iter().take_while(is_kept).count();
        let answered = self.asked.drain(..count).next_back()?;
        if counts {
            mark!("replica has on its disk what it was asked for");
        }
        Some(answered.number)
    }

    /// Another primary is followed: what came behind the last question comes again.
    pub fn resume(&mut self) {
        self.shards.iter_mut().for_each(|receipt| receipt.came.clear());
        self.asked.clear();
    }
}

/// Whoever gathers does not wait for a replica that is none any more.
impl Drop for Receipts {
    fn drop(&mut self) {
        if self.is_telling {
            self.batches.end_retelling();
        }
    }
}

#[cfg(test)]
mod tests {
    use kelix_log::files::{Batch, Feed};

    use super::*;

    /// A replica of two shards, and whoever writes its log.
    struct Kept {
        receipts: Receipts,
        feeds: Vec<Feed>,
        control: LogControl,
        asked: u64,
    }

    fn record(sequence: u64) -> Vec<u64> {
        RecordHead { sequence, last_incarnation: sequence, batch: 0, words: 0 }.words().to_vec()
    }

    impl Kept {
        fn begin(counts: bool, came: Vec<u64>) -> Kept {
            let control = LogControl::of_mirror();
            let ends = [(Committed::NONE, came), (Committed::NONE, Vec::new())];
            let (receipts, taken) = Receipts::begin((&control, counts), ends.into_iter());
            let feeds = taken.into_iter().map(|(reader, log)| Feed::new(reader, log)).collect();
            Kept { receipts, feeds, control, asked: 0 }
        }

        fn ask(&mut self, sequences: [u64; 2]) {
            self.asked += 1;
            self.receipts.ask(&FeedPlacing { number: self.asked, sequences: sequences.to_vec() }).unwrap();
        }

        /// Writes what there is. Returns the last record of each shard on the disk.
        fn write(&mut self) -> [u64; 2] {
            let mut batch = Batch::default();
            batch.begin();
            let feeds = &mut self.feeds;
            let gathered = self.control.gather(|later| {
                let mut feeds = (0..).zip(&mut *feeds);
                feeds.try_fold(true, |all, (shard, feed)| Ok(all & feed.gather(shard, later, &mut batch)?))
            });
            assert!(gathered.unwrap());
            self.feeds.iter_mut().for_each(|feed| feed.set_durable(u64::MAX));
            [0, 1].map(|shard: usize| self.feeds[shard].log().durable())
        }
    }

    /// What came before a question is written, and nothing behind it; and the question is answered when that
    /// is on the disk.
    #[test]
    fn a_question_is_answered_when_all_before_it_is_on_the_disk() {
        let mut kept = Kept::begin(true, record(1));
        kept.receipts.take(0, &record(2));
        kept.receipts.take(1, &record(1)[..2]);
        kept.receipts.take(1, &record(1)[2..]);
        kept.receipts.take(1, &record(2));
        kept.ask([2, 1]);
        kept.ask([2, 1]);
        assert_eq!(kept.receipts.answer(), None);
        assert_eq!(kept.write(), [2, 1]);
        kept.ask([2, 2]);
        assert_eq!(kept.receipts.answer(), Some(2), "the last one of those that can be answered");
        assert_eq!(kept.receipts.answer(), None);
        assert_eq!(kept.write(), [2, 2]);
        assert_eq!(kept.receipts.answer(), Some(3));
    }

    #[test]
    fn where_the_disk_does_not_count_questions_do_not_wait() {
        let mut kept = Kept::begin(false, record(1));
        kept.ask([1, 0]);
        assert_eq!(kept.receipts.answer(), Some(1));
        assert_eq!(kept.write(), [1, 0]);
    }

    /// What came behind the last question of a primary that has died is not written: the next one may never
    /// have had it, and tells it again if it has.
    #[test]
    fn what_no_question_has_asked_for_is_forgotten_with_its_primary() {
        let mut kept = Kept::begin(true, Vec::new());
        kept.receipts.take(0, &[record(1), record(2)].concat());
        kept.ask([1, 0]);
        kept.receipts.resume();
        assert_eq!(kept.receipts.answer(), None);
        kept.receipts.take(0, &record(2));
        kept.ask([2, 0]);
        assert_eq!(kept.write(), [2, 0]);
        assert_eq!(kept.receipts.answer(), Some(2));
    }

    /// A primary that asks without end for what no disk answers is let go, and costs no memory.
    #[test]
    fn questions_that_are_not_answered_are_bounded() {
        let mut kept = Kept::begin(true, Vec::new());
        let placing = |number| FeedPlacing { number, sequences: vec![1, 0] };
        (0..ASKED_MAX as u64).for_each(|number| kept.receipts.ask(&placing(number)).unwrap());
        assert_eq!(kept.receipts.ask(&placing(u64::MAX)).unwrap_err().kind(), ErrorKind::TimedOut);
    }
}
