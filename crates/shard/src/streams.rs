//! The records of several shards, on the side of whoever follows all of them: which one is applied next.
//!
//! ```text
//! push      words come, of each shard in order, cut anywhere
//! cut       records up to these count: what any of them was caused by is among them
//! apply     those that count, each behind what it was caused by
//! ```
//!
//! 1. A record is not applied before a cut has reached it ([`Streams::cut`]). What is behind a cut is applied
//!    when all before it is, so whoever looks at that moment sees nothing without its causes
//!    ([`Streams::is_at_cut`]).
//! 2. A record that says behind which record of another shard it comes is not applied before that one is
//!    (`event::AFTER`): a shard that drops what another one has unlisted, say.
//! 3. Of shard 0 a record is applied only when all others have come as far as they can. What it brings into
//!    force was filled on the others before, as clients could tell, so those records are in the same cut, or
//!    earlier ones.

use kelix_image::{Note, Notes, event};
use kelix_log::Record;
use kelix_types::{Error, ErrorKind, Result, mark};

/// Words for which a stream keeps room when it is empty.
const KEPT_WORDS: usize = 1 << 20;

/// What has come of one shard.
#[derive(Default)]
struct Stream {
    /// Records that were not applied yet, from a word on.
    words: Vec<u64>,
    taken: usize,
    /// The last record that was applied, the one up to which records are applied now, and the one up to which
    /// they count.
    applied: u64,
    goal: u64,
    cut: u64,
}

/// Records of several shards.
pub struct Streams {
    shards: Vec<Stream>,
    records: u64,
    record_words: u64,
}

/// What became of a shard's next record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Applied,
    /// A record of another shard comes first.
    Waits,
    /// None counts.
    None,
    /// It is for the next call.
    Later,
}

fn wrong(what: &str) -> Error {
    Error::new(ErrorKind::Damaged, "follow shards", what.to_string())
}

impl Streams {
    /// Of so many shards, none of whose records has come.
    pub fn new(shards: usize) -> Streams {
        Streams { shards: (0..shards).map(|_| Stream::default()).collect(), records: 0, record_words: 0 }
    }

    /// The records of a shard begin behind this one.
    pub fn begin(&mut self, shard: usize, sequence: u64) {
        let of = &mut self.shards[shard];
        (of.applied, of.goal, of.cut) = (sequence, sequence, sequence);
    }

    /// What has come and was not applied is sent once more: behind the records that were.
    pub fn resume(&mut self) {
        for of in &mut self.shards {
            (of.taken, of.goal, of.cut) = (0, of.applied, of.applied);
            of.words.clear();
        }
    }

    /// Words of a shard's records that were not applied yet.
    pub fn waiting(&self, shard: usize) -> usize {
        self.shards[shard].words.len() - self.shards[shard].taken
    }

    /// Those words.
    pub fn unapplied(&self, shard: usize) -> &[u64] {
        &self.shards[shard].words[self.shards[shard].taken..]
    }

    /// More words of a shard's records have come.
    pub fn push(&mut self, shard: usize, words: &[u64]) {
        let of = &mut self.shards[shard];
        // A mirror that catches up has hundreds of megabytes here, which are not moved for each piece that
        // comes: words that were applied go once they are most of what there is.
        if of.taken > of.words.len() / 2 {
            of.words.drain(..std::mem::take(&mut of.taken));
        }
        if of.words.is_empty() && of.words.capacity() > KEPT_WORDS {
            of.words = Vec::new();
        }
        of.words.extend_from_slice(words);
    }

    /// Records of a shard count up to this one.
    pub fn cut(&mut self, shard: usize, sequence: u64) {
        let of = &mut self.shards[shard];
        of.cut = of.cut.max(sequence);
    }

    /// All records count that are whole, but such as come behind one of another shard that is not among them,
    /// and those behind such. An error: what has come are no records.
    pub fn cut_whole(&mut self) -> Result<()> {
        let mut ends: Vec<u64> = self.shards.iter().map(|of| of.applied).collect();
        let mut at: Vec<usize> = self.shards.iter().map(|of| of.taken).collect();
        loop {
            let mut has_moved = false;
            for shard in 0..self.shards.len() {
                while let Some((record, behind)) = Record::split(&self.shards[shard].words[at[shard]..])? {
                    if lacks_cause(shard, &record, |other| ends.get(other).copied())? {
                        break;
                    }
                    (ends[shard], has_moved) = (record.head.sequence, true);
                    at[shard] = self.shards[shard].words.len() - behind.len();
                }
            }
            if !has_moved {
                break;
            }
        }
        self.shards.iter_mut().zip(ends).for_each(|(of, end)| of.cut = of.cut.max(end));
        Ok(())
    }

    /// The last record of a shard that was applied.
    pub fn applied(&self, shard: usize) -> u64 {
        self.shards[shard].applied
    }

    /// Whether all records that count were applied.
    pub fn is_all_applied(&self) -> bool {
        self.shards.iter().all(|of| of.applied >= of.cut)
    }

    /// Whether what was applied ends with a cut: no record is there without its causes.
    pub fn is_at_cut(&self) -> bool {
        self.shards.iter().all(|of| of.applied >= of.goal)
    }

    /// Records, and words of them, that were applied so far.
    pub fn counted(&self) -> (u64, u64) {
        (self.records, self.record_words)
    }

    /// Has records applied that count, of about so many words at most, or up to a cut if one is before that.
    /// `true`: that was all of them. An error: they make no sense, or it was not to be done.
    pub fn apply(
        &mut self,
        words: usize,
        mut apply: impl FnMut(usize, &Record<'_>) -> Result<()>,
    ) -> Result<bool> {
        let until = self.record_words.saturating_add(words as u64);
        if self.is_at_cut() {
            self.shards.iter_mut().for_each(|of| of.goal = of.cut);
        }
        loop {
            let (mut has_moved, mut has_waiting) = (false, false);
            for shard in (1..self.shards.len()).chain([0]) {
                loop {
                    let next = self.apply_next(shard, until, &mut apply)?;
                    has_moved |= next == Next::Applied;
                    has_waiting |= next == Next::Waits;
                    match next {
                        // The next one of shard 0 may be a cause of what waits, and not of what came before.
                        Next::Applied if shard == 0 && has_waiting => break,
                        Next::Applied => {}
                        Next::Waits | Next::None => break,
                        Next::Later => return Ok(false),
                    }
                }
            }
            if self.is_at_cut() {
                return Ok(self.is_all_applied());
            }
            if !has_moved {
                return Err(wrong("records wait for each other"));
            }
        }
    }

    fn apply_next(
        &mut self,
        shard: usize,
        until: u64,
        apply: &mut impl FnMut(usize, &Record<'_>) -> Result<()>,
    ) -> Result<Next> {
        let of = &self.shards[shard];
        if of.applied >= of.goal {
            return Ok(Next::None);
        }
        if self.record_words >= until {
            return Ok(Next::Later);
        }
        let split = Record::split(&of.words[of.taken..])?;
        let (record, behind) = split.ok_or_else(|| wrong("a cut is behind all records"))?;
        if self.waits(shard, &record)? {
            mark!("record waited for that of another shard");
            return Ok(Next::Waits);
        }
        apply(shard, &record)?;
        let (sequence, taken) = (record.head.sequence, of.words.len() - of.taken - behind.len());
        let of = &mut self.shards[shard];
        of.applied = sequence;
        of.taken += taken;
        self.records += 1;
        self.record_words += taken as u64;
        Ok(Next::Applied)
    }

    /// Whether a record comes behind one of another shard that was not applied yet. What says so stands first
    /// in it.
    fn waits(&self, shard: usize, record: &Record<'_>) -> Result<bool> {
        lacks_cause(shard, record, |other| Some(self.shards.get(other)?.applied))
    }
}

/// Whether a record of a shard comes behind one of another shard that is behind that one's end.
fn lacks_cause(shard: usize, record: &Record<'_>, end: impl Fn(usize) -> Option<u64>) -> Result<bool> {
    for note in Notes::new(record.notes) {
        let Note::Event(event::AFTER, words) = note else { break };
        let &[other, sequence] = words else { return Err(wrong("a cause")) };
        let cause = end(other as usize).filter(|_| other as usize != shard);
        if cause.ok_or_else(|| wrong("a cause"))? < sequence {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use kelix_log::RecordHead;

    use super::*;

    /// A record, behind records of other shards.
    fn record(sequence: u64, causes: &[(u64, u64)]) -> Vec<u64> {
        let head = 2 << 41 | (8192 + u64::from(event::AFTER));
        let notes: Vec<u64> = causes.iter().flat_map(|(shard, behind)| [head, *shard, *behind]).collect();
        let head = RecordHead { sequence, last_incarnation: sequence, batch: 0, words: notes.len() };
        [&head.words()[..], &notes].concat()
    }

    /// What stands in the streams of a server that has died counts, but what came behind something that is not
    /// there: nobody was told of that.
    #[test]
    fn all_that_is_whole_counts_with_its_causes() {
        let mut streams = Streams::new(2);
        // The second of shard 1 comes behind the third of shard 0, the third behind its fourth, which is not whole.
        let fourth = record(4, &[(1, 1)]);
        streams
            .push(0, &[record(1, &[]), record(2, &[(1, 1)]), record(3, &[]), fourth[..3].to_vec()].concat());
        streams
            .push(1, &[record(1, &[]), record(2, &[(0, 3)]), record(3, &[(0, 4)]), record(4, &[])].concat());
        streams.cut_whole().unwrap();
        let (all, order) = applied(&mut streams, usize::MAX).unwrap();
        assert!(all);
        assert_eq!((streams.applied(0), streams.applied(1)), (3, 2), "{order:?}");
        let mut streams = Streams::new(1);
        streams.push(0, &[1, 2, 3, 4]);
        assert!(streams.cut_whole().is_err(), "these are no records");
    }

    fn applied(streams: &mut Streams, words: usize) -> Result<(bool, Vec<(usize, u64)>)> {
        let mut order = Vec::new();
        let all = streams.apply(words, |shard, record| {
            order.push((shard, record.head.sequence));
            Ok(())
        })?;
        Ok((all, order))
    }

    #[test]
    fn others_come_before_shard_0_and_causes_before_their_effects() {
        let mut streams = Streams::new(3);
        for (shard, of) in [
            (0, [record(1, &[]), record(2, &[]), record(3, &[(2, 2)])].concat()),
            (1, [record(1, &[]), record(2, &[(0, 2)]), record(3, &[])].concat()),
            (2, [record(1, &[]), record(2, &[(1, 2), (0, 1)])].concat()),
        ] {
            streams.push(shard, &of);
        }
        assert_eq!(applied(&mut streams, 1000).unwrap(), (true, vec![]), "nothing counts yet");
        [(0, 3), (1, 3), (2, 2)].into_iter().for_each(|(shard, cut)| streams.cut(shard, cut));
        let order = vec![(1, 1), (2, 1), (0, 1), (0, 2), (1, 2), (1, 3), (2, 2), (0, 3)];
        assert_eq!(applied(&mut streams, 1000).unwrap(), (true, order));
        assert!(streams.is_all_applied());
        assert_eq!(streams.counted().0, 8);
    }

    #[test]
    fn what_comes_in_pieces_is_applied_as_it_counts_and_a_little_at_a_time() {
        let mut streams = Streams::new(2);
        let words: Vec<u64> = (1..=10).flat_map(|sequence| record(sequence, &[])).collect();
        for (at, word) in words.iter().enumerate() {
            streams.push(1, &[*word]);
            streams.cut(1, (at as u64 + 1) / 3);
            assert_eq!(applied(&mut streams, 1000).unwrap().1.len(), usize::from(at % 3 == 2));
        }
        streams.push(0, &words);
        streams.cut(0, 10);
        let mut calls = 0;
        while !applied(&mut streams, 6).unwrap().0 {
            calls += 1;
        }
        assert_eq!((calls, streams.applied(0), streams.waiting(0)), (4, 10, 0));
        streams.push(0, &record(11, &[]));
        streams.cut(0, 11);
        assert_eq!(applied(&mut streams, usize::MAX).unwrap(), (true, vec![(0, 11)]), "as much as there is");
    }

    #[test]
    fn what_waits_is_not_moved_for_each_piece_and_leaves_no_room_behind() {
        let mut streams = Streams::new(2);
        let push = |streams: &mut Streams, sequence| {
            streams.push(0, &record(sequence, &[(1, 0); 4096]));
            streams.cut(0, sequence);
        };
        (1..=100).for_each(|sequence| push(&mut streams, sequence));
        let taken = |streams: &Streams| streams.shards[0].taken;
        for sequence in 101..=140 {
            let before = taken(&streams);
            assert_eq!(applied(&mut streams, 1).unwrap().1.len(), 1);
            push(&mut streams, sequence);
            assert!(taken(&streams) > before, "nothing was moved");
        }
        while !applied(&mut streams, usize::MAX).unwrap().0 {}
        assert!(streams.shards[0].words.capacity() > KEPT_WORDS);
        push(&mut streams, 141);
        assert!(streams.shards[0].words.capacity() <= KEPT_WORDS, "room is given back");
    }

    #[test]
    fn what_was_not_applied_comes_once_more() {
        let mut streams = Streams::new(2);
        streams.push(1, &[record(1, &[]), record(2, &[]), vec![record(3, &[])[0]]].concat());
        streams.push(0, &record(1, &[]));
        streams.cut(1, 2);
        assert!(!applied(&mut streams, 1).unwrap().0);
        streams.cut(0, 1);
        streams.resume();
        assert!(streams.is_all_applied() && streams.waiting(0) + streams.waiting(1) == 0);
        streams.push(1, &[record(2, &[]), record(3, &[])].concat());
        streams.push(0, &record(1, &[]));
        streams.cut(0, 1);
        streams.cut(1, 3);
        assert_eq!(applied(&mut streams, 1000).unwrap(), (true, vec![(1, 2), (1, 3), (0, 1)]));
    }

    #[test]
    fn what_is_behind_a_cut_waits_until_all_before_it_is_there() {
        let mut streams = Streams::new(2);
        for shard in 0..2 {
            streams.push(shard, &[record(1, &[]), record(2, &[]), record(3, &[])].concat());
            streams.cut(shard, 2);
        }
        assert_eq!(applied(&mut streams, 1).unwrap(), (false, vec![(1, 1)]));
        (0..2).for_each(|shard| streams.cut(shard, 3));
        assert!(!streams.is_at_cut());
        assert_eq!(applied(&mut streams, 1000).unwrap(), (false, vec![(1, 2), (0, 1), (0, 2)]));
        assert!(streams.is_at_cut() && !streams.is_all_applied());
        assert_eq!(applied(&mut streams, 1000).unwrap(), (true, vec![(1, 3), (0, 3)]));
    }

    #[test]
    fn records_that_make_no_sense_are_refused() {
        let refused = |of: &[(usize, Vec<u64>)], cut: u64| {
            let mut streams = Streams::new(2);
            for (shard, words) in of {
                streams.push(*shard, words);
                streams.cut(*shard, cut);
            }
            applied(&mut streams, 1000).is_err()
        };
        assert!(refused(&[(0, record(1, &[]))], 2), "a cut behind the records");
        assert!(refused(&[(0, record(1, &[(1, 1)])), (1, record(1, &[(0, 1)]))], 1), "each behind the other");
        assert!(refused(&[(0, record(1, &[(0, 1)]))], 1), "behind itself");
        assert!(refused(&[(0, record(1, &[(7, 1)]))], 1), "behind a shard that is not there");
        assert!(refused(&[(0, vec![5, 6, 7])], 1), "no records");
    }
}
