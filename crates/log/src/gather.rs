//! From the stream of a shard into batches, for the log and for mirrors alike.
//!
//! A record tells the batch that it was sealed for by the last 16 bits of its number. Several gather, each
//! begins batches as often as it likes, and any of them may be kept from it for long. So:
//!
//! 1. What was read before a batch was begun is older than the batch, whatever its number.
//! 2. Numbers are compared only of what was read behind the beginning of the batch, and only while the
//!    numbers that this can have are few: [`GAP`] and [`AHEAD`] bound them on this side, [`BATCHES_OLD`] on
//!    the shard's. Otherwise another batch is begun, and 1. holds for what was read.

use kelix_image::Committed;
use kelix_types::{Error, ErrorKind, Result};

use crate::{LetGo, LogControl, Reader, Record, RecordHead};

/// Most batches that others may have begun since a stream was looked at, and since the batch that is gathered
/// was begun.
const GAP: u64 = 1 << 14;
const AHEAD: u64 = 1 << 12;
/// Most batches that may have been begun between the moment in which a shard looks for the number and that in
/// which the record is in the stream: behind one that took longer it pushes another one before answers are
/// sent.
pub const BATCHES_OLD: u64 = 1 << 13;
const _: () = assert!(GAP + BATCHES_OLD + AHEAD < 1 << 15);

/// Whether a record with these bits of a number is older than a batch.
pub(crate) fn is_earlier(batch: u16, later: u64) -> bool {
    (batch.wrapping_sub(later as u16) as i16) < 0
}

fn let_go() -> Error {
    Error::new(ErrorKind::TimedOut, "follow", "the store changes faster than that can be told")
}

/// The stream of a shard, of which somebody takes a batch after the other.
pub struct Gatherer {
    reader: Reader,
    control: LogControl,
    /// What was read and is in no batch yet: a record that is not whole, or those of the next batch.
    words: Vec<u64>,
    /// The last record that was taken.
    last: Committed,
    records: u64,
    /// The last batch when the stream was looked at.
    looked: u64,
}

impl Gatherer {
    /// Of a shard whose last record was this one when the reader began.
    pub fn new(reader: Reader, control: &LogControl, last: Committed) -> Gatherer {
        let looked = control.batch();
        Gatherer { reader, control: control.clone(), words: Vec::new(), last, records: 0, looked }
    }

    /// The last record that was taken.
    pub fn last(&self) -> Committed {
        self.last
    }

    /// Where in the stream what was taken ends, in words.
    pub fn position(&self) -> u64 {
        self.reader.position() - self.words.len() as u64
    }

    /// Records that were taken so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Words that have come and were not looked at.
    pub fn waiting(&self) -> usize {
        self.reader.waiting()
    }

    /// Why nothing more can be taken, if the shard has let this reader go.
    pub fn check(&self) -> Result<()> {
        if self.reader.is_let_go() { Err(let_go()) } else { Ok(()) }
    }

    /// Whether something is there that was not taken.
    pub fn has_more(&self) -> bool {
        !self.words.is_empty() || self.waiting() > 0
    }

    /// Takes words out of the stream that belong to a later batch, so that there is room for others.
    pub fn drain(&mut self) -> Result<()> {
        self.reader.read(&mut self.words, usize::MAX).map(drop).map_err(|LetGo| let_go())
    }

    /// Takes all records that are whole and older than the batch `later`, and shows their words, if there are
    /// any. Nothing is left out: a batch with less than there is of one shard could have the effect of what
    /// it leaves out on another. `false`: that cannot be told any more, and another batch is to be begun.
    /// An error: these are no records, or this reader was let go.
    pub fn take(&mut self, later: u64, show: impl FnOnce(&[u64], Committed)) -> Result<bool> {
        let sure = self.words.len();
        let looked = std::mem::replace(&mut self.looked, self.control.batch());
        self.reader.read(&mut self.words, usize::MAX).map_err(|LetGo| let_go())?;
        if later - looked > GAP || self.control.batch() - later > AHEAD {
            return Ok(false);
        }
        let (mut rest, mut taken, mut seen) = (&self.words[..], 0, 0);
        while let Some((record, behind)) = Record::split(rest)? {
            seen += 1;
            let begins = self.words.len() - rest.len();
            if begins < sure || is_earlier(record.head.batch, later) {
                let RecordHead { sequence, last_incarnation, .. } = record.head;
                self.last = Committed { record: sequence, incarnation: last_incarnation };
                taken = self.words.len() - behind.len();
                self.records += std::mem::take(&mut seen);
            }
            rest = behind;
        }
        if taken > 0 {
            show(&self.words[..taken], self.last);
            self.words.drain(..taken);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lag, Stream};

    /// A shard that seals records of no notes.
    struct Sealing {
        stream: Stream,
        control: LogControl,
        sequence: u64,
    }

    impl Sealing {
        fn new() -> (Sealing, Gatherer) {
            let (mut stream, control) = (Stream::new(1 << 10), LogControl::new());
            let gatherer = Gatherer::new(stream.follow(Lag::LetGo, 0), &control, Committed::NONE);
            (Sealing { stream, control, sequence: 0 }, gatherer)
        }

        fn seal(&mut self) {
            self.seal_for(self.control.batch());
        }

        fn seal_for(&mut self, batch: u64) {
            self.sequence += 1;
            let (sequence, batch) = (self.sequence, batch as u16);
            let words = RecordHead { sequence, last_incarnation: 9, batch, words: 0 }.words();
            self.stream.push(&words);
        }

        fn begin(&self, batches: u64) {
            for _ in 0..batches {
                self.control.begin_batch();
            }
        }
    }

    fn take(gatherer: &mut Gatherer, later: u64) -> Option<u64> {
        let mut words = 0;
        let is_taken = gatherer.take(later, |taken, _| words = taken.len()).unwrap();
        is_taken.then_some(words as u64 / 3)
    }

    #[test]
    fn what_was_sealed_later_is_of_the_next_batch() {
        let (mut sealing, mut gatherer) = Sealing::new();
        sealing.seal();
        let later = sealing.control.begin_batch();
        sealing.seal();
        assert_eq!((take(&mut gatherer, later), gatherer.last().record), (Some(1), 1));
        assert!(gatherer.has_more());
        // Another one gathers, too.
        sealing.begin(1);
        sealing.seal();
        let later = sealing.control.begin_batch();
        sealing.begin(1);
        sealing.seal();
        assert_eq!((take(&mut gatherer, later), gatherer.last().record), (Some(2), 3));
        let later = sealing.control.begin_batch();
        assert_eq!((take(&mut gatherer, later), gatherer.records()), (Some(1), 4));
        assert!(!gatherer.has_more());
    }

    /// Numbers go round: whoever was away for long, or is while it gathers, begins another batch rather than
    /// take a record that is later, or leave out one that is not.
    #[test]
    fn whoever_is_kept_from_it_for_long_begins_anew() {
        for away in [GAP, 1 << 15, 1 << 16, (1 << 16) + 1, 1 << 17] {
            let (mut sealing, mut gatherer) = Sealing::new();
            sealing.seal();
            sealing.begin(away);
            sealing.seal();
            let later = sealing.control.begin_batch();
            sealing.seal();
            assert_eq!(take(&mut gatherer, later), None, "{away} batches ago");
            let later = sealing.control.begin_batch();
            sealing.seal();
            assert_eq!(take(&mut gatherer, later), Some(3));
            let later = sealing.control.begin_batch();
            sealing.begin(away);
            sealing.seal();
            assert_eq!(take(&mut gatherer, later), None, "{away} batches ahead");
            let mut batches = 0;
            let control = sealing.control.clone();
            let gathered = control.gather(|later| {
                batches += 1;
                gatherer.take(later, |_, _| {})
            });
            assert!(gathered.is_ok());
            assert_eq!((batches, gatherer.records()), (1, 5));
        }
    }

    /// The shard's thread was kept from its work between looking for the number and pushing the record. The
    /// next one says that it is not a later one.
    #[test]
    fn a_record_under_an_old_number_goes_with_the_one_behind_it() {
        let (mut sealing, mut gatherer) = Sealing::new();
        let old = sealing.control.batch();
        for _ in 0..5 {
            sealing.begin(GAP / 2);
            let later = sealing.control.begin_batch();
            assert_eq!(take(&mut gatherer, later), Some(0));
        }
        sealing.seal_for(old);
        sealing.seal();
        let later = sealing.control.begin_batch();
        assert_eq!((take(&mut gatherer, later), gatherer.last().record), (Some(2), 2));
    }

    #[test]
    fn whoever_is_let_go_hears_of_it() {
        let (mut sealing, mut gatherer) = Sealing::new();
        assert!(gatherer.check().is_ok());
        (0..1000).for_each(|_| sealing.seal());
        assert_eq!(gatherer.check().unwrap_err().kind(), ErrorKind::TimedOut);
        let later = sealing.control.begin_batch();
        assert_eq!(gatherer.take(later, |_, _| {}).unwrap_err().kind(), ErrorKind::TimedOut);
    }
}
