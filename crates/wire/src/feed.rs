//! What a primary and a mirror that follows it say to each other behind [`crate::control::Frame::Attached`]:
//! frames of words, each of one shard, whose part of the feed is told by a number.

pub use kelix_fabric::tcp::FEED_WORDS_MAX;
use kelix_types::limits::SHARDS_MAX;

/// Words of one piece of the books: the first word of a frame says whether it is the last piece.
const PIECE_WORDS: usize = FEED_WORDS_MAX - 1;

/// Most locations in one frame of [`FeedPart::Used`].
pub const FEED_HINTS_MAX: usize = 256;
/// The word of a frame of [`FeedPart::Used`] that has no location, since no item is of such a class: only the
/// answer is wanted.
pub const NO_LOCATION: u64 = u64::MAX;

/// What the words of a frame of the feed are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FeedPart {
    /// Primary: a piece of what a shard keeps beside its memory ([`FeedBooks`]), behind a word that is 1 in
    /// the last piece and else 0. The books of all shards come before anything else.
    Books = 1,
    /// Primary: a place, in bytes, and the words of memory from there on.
    Copy = 2,
    /// Primary: a record's sequence: all memory of the shard was copied, and is whole once the record is
    /// applied.
    Copied = 3,
    /// Primary: words of the shard's stream of records, in their order, cut anywhere. The first one belongs
    /// to the record behind the books'.
    Records = 4,
    /// Primary: up to where records count, of all shards ([`FeedCut`]).
    Cut = 5,
    /// Mirror: a question, with how far it is ([`FeedAsk`]).
    Ask = 6,
    /// Mirror: words of locations of one shard's items that its clients have read, [`FEED_HINTS_MAX`] at most;
    /// or [`NO_LOCATION`] alone.
    Used = 7,
    /// Primary: the answer to that, the shard's epoch of use.
    UseEpoch = 8,
    /// Primary: a lineage, whose records come next, and the last record before them of each shard: all up to
    /// there count. Numbers of tables that were dropped before may be given again from here on.
    Lineage = 9,
    /// Primary, to replicas: a piece of what clients of a shard were answered that may ask again, behind a
    /// word that is 1 in the last piece and else 0. Between the books and anything else.
    Histories = 10,
    /// Primary, to replicas: a number, and the last record of each shard that was told before
    /// ([`FeedPlacing`]).
    Placing = 11,
    /// Replica: that number, and whether it has mapped the primary's streams: all records up to there have
    /// come ([`FeedPlaced`]).
    Placed = 12,
    /// Primary, to replicas: where in the shard's stream, in words, the records begin that come next; and 1, if
    /// they are read there from then on, and not told any more, else 0 ([`FeedPosition`]).
    Position = 13,
}

impl FeedPart {
    /// The part with a number.
    pub fn of(number: u32) -> Option<FeedPart> {
        Some(match number {
            1 => FeedPart::Books,
            2 => FeedPart::Copy,
            3 => FeedPart::Copied,
            4 => FeedPart::Records,
            5 => FeedPart::Cut,
            6 => FeedPart::Ask,
            7 => FeedPart::Used,
            8 => FeedPart::UseEpoch,
            9 => FeedPart::Lineage,
            10 => FeedPart::Histories,
            11 => FeedPart::Placing,
            12 => FeedPart::Placed,
            13 => FeedPart::Position,
            _ => return None,
        })
    }
}

/// What a follower of a shard begins with, beside the memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FeedBooks {
    /// The last record that is not told any more, because these books have it.
    pub sequence: u64,
    /// The shard's books.
    pub books: Vec<u64>,
    /// What the shard keeps for its clients.
    pub kept: Vec<u64>,
}

/// Words as those of frames that come one after the other, each behind a word that says whether it is the
/// last.
pub fn pieces(words: &[u64]) -> Vec<Vec<u64>> {
    let mut frames: Vec<_> = words.chunks(PIECE_WORDS).map(|piece| [&[0], piece].concat()).collect();
    match frames.last_mut() {
        Some(last) => last[0] = 1,
        None => frames.push(vec![1]),
    }
    frames
}

impl FeedBooks {
    /// The words of the frames that bring the books, one after the other.
    pub fn frames(&self) -> Vec<Vec<u64>> {
        let mut words = vec![self.sequence, self.books.len() as u64];
        words.extend_from_slice(&self.books);
        words.extend_from_slice(&self.kept);
        pieces(&words)
    }

    /// Adds the words of a frame to those that came before. `None`: they are no piece. `Some(true)`: it was
    /// the last one, and [`FeedBooks::of`] may be asked.
    pub fn gather(pieces: &mut Vec<u64>, frame: &[u64]) -> Option<bool> {
        let (last, piece) = frame.split_first().filter(|(last, _)| **last <= 1)?;
        pieces.extend_from_slice(piece);
        Some(*last == 1)
    }

    /// Reads the words of all pieces; `None` if they are no books.
    pub fn of(pieces: &[u64]) -> Option<FeedBooks> {
        let [sequence, count, rest @ ..] = pieces else { return None };
        let (books, kept) = rest.split_at_checked(usize::try_from(*count).ok()?)?;
        Some(FeedBooks { sequence: *sequence, books: books.to_vec(), kept: kept.to_vec() })
    }
}

/// A moment up to which all records of all shards were sent, are committed, and miss no cause of what they
/// have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FeedCut {
    /// The last question that had arrived before this moment; 0: none.
    pub question: u64,
    /// How old what is told is at most, where that is a mirror's; else 0.
    pub lag_ns: u64,
    /// Each shard's last record.
    pub sequences: Vec<u64>,
}

impl FeedCut {
    /// The words of its frame.
    pub fn words(&self) -> Vec<u64> {
        [&[self.question, self.lag_ns], &self.sequences[..]].concat()
    }

    /// Reads a frame's words; `None` if they are not those of a feed of so many shards.
    pub fn of(words: &[u64], shards: usize) -> Option<FeedCut> {
        let [question, lag_ns, sequences @ ..] = words else { return None };
        let sequences = (sequences.len() == shards).then(|| sequences.to_vec())?;
        Some(FeedCut { question: *question, lag_ns: *lag_ns, sequences })
    }
}

/// Where a replica is to say that all has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FeedPlacing {
    /// What it says then; numbers count up from 1.
    pub number: u64,
    /// Each shard's last record.
    pub sequences: Vec<u64>,
}

impl FeedPlacing {
    /// The words of its frame.
    pub fn words(&self) -> Vec<u64> {
        [&[self.number], &self.sequences[..]].concat()
    }

    /// Reads a frame's words; `None` if they are not those of a feed of so many shards.
    pub fn of(words: &[u64], shards: usize) -> Option<FeedPlacing> {
        let (number, sequences) = words.split_first()?;
        (sequences.len() == shards).then(|| FeedPlacing { number: *number, sequences: sequences.to_vec() })
    }
}

/// Where in a shard's stream the records begin that come next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FeedPosition {
    /// How many words of the stream are before them.
    pub words: u64,
    /// The replica reads them there.
    pub in_memory: bool,
}

impl FeedPosition {
    /// The words of its frame.
    pub fn words(self) -> [u64; 2] {
        [self.words, u64::from(self.in_memory)]
    }

    /// Reads a frame's words; `None` if they make no sense.
    pub fn of(words: &[u64]) -> Option<FeedPosition> {
        let &[words, memory @ 0..=1] = words else { return None };
        Some(FeedPosition { words, in_memory: memory == 1 })
    }
}

/// All has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FeedPlaced {
    /// The number of the question.
    pub number: u64,
    /// The replica has the primary's streams in its memory, and finds there what comes later.
    pub is_near: bool,
}

impl FeedPlaced {
    /// The words of its frame.
    pub fn words(self) -> [u64; 2] {
        [self.number, u64::from(self.is_near)]
    }

    /// Reads a frame's words; `None` if they make no sense.
    pub fn of(words: &[u64]) -> Option<FeedPlaced> {
        let &[number, near @ 0..=1] = words else { return None };
        Some(FeedPlaced { number, is_near: near == 1 })
    }
}

/// What a mirror says of itself, and asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FeedAsk {
    /// The number of the question, which a cut answers.
    pub question: u64,
    /// How old what it has was when it last knew.
    pub lag_ns: u64,
    /// Bytes of its memory.
    pub bytes: u64,
    /// Reads of its clients so far.
    pub reads: u64,
    /// The last record of each shard that it has applied.
    pub applied: Vec<u64>,
}

impl FeedAsk {
    /// The words of its frame.
    pub fn words(&self) -> Vec<u64> {
        [&[self.question, self.lag_ns, self.bytes, self.reads], &self.applied[..]].concat()
    }

    /// Reads a frame's words; `None` if they are not those of a feed of so many shards.
    pub fn of(words: &[u64], shards: usize) -> Option<FeedAsk> {
        let [question, lag_ns, bytes, reads, applied @ ..] = words else { return None };
        let (question, lag_ns, bytes, reads) = (*question, *lag_ns, *bytes, *reads);
        let applied = (applied.len() == shards).then(|| applied.to_vec())?;
        Some(FeedAsk { question, lag_ns, bytes, reads, applied })
    }
}

// A cut, a question and what was read are one frame each.
const _: () = assert!(4 + SHARDS_MAX <= FEED_WORDS_MAX && FEED_HINTS_MAX <= FEED_WORDS_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_parts_of_the_feed() {
        let cut = FeedCut { question: 7, lag_ns: 8, sequences: vec![9, 10] };
        assert_eq!(cut.words(), [7, 8, 9, 10]);
        assert_eq!(FeedCut::of(&cut.words(), 2), Some(cut));
        let ask = FeedAsk { question: 7, lag_ns: 1, bytes: 2, reads: 3, applied: vec![9, 10] };
        assert_eq!(ask.words(), [7, 1, 2, 3, 9, 10]);
        assert_eq!(FeedAsk::of(&ask.words(), 2), Some(ask));
        let books = FeedBooks { sequence: 5, books: vec![1, 2], kept: vec![3] };
        assert_eq!(books.frames(), [[1, 5, 2, 1, 2, 3]]);
        for (number, part) in [FeedPart::Books, FeedPart::Copy, FeedPart::Copied].into_iter().enumerate() {
            assert_eq!((FeedPart::of(1 + number as u32), part as usize), (Some(part), 1 + number));
        }
        for (number, part) in [FeedPart::Records, FeedPart::Cut, FeedPart::Ask].into_iter().enumerate() {
            assert_eq!((FeedPart::of(4 + number as u32), part as usize), (Some(part), 4 + number));
        }
        for (number, part) in [FeedPart::Used, FeedPart::UseEpoch, FeedPart::Lineage].into_iter().enumerate()
        {
            assert_eq!((FeedPart::of(7 + number as u32), part as usize), (Some(part), 7 + number));
        }
        for (number, part) in
            [FeedPart::Histories, FeedPart::Placing, FeedPart::Placed].into_iter().enumerate()
        {
            assert_eq!((FeedPart::of(10 + number as u32), part as usize), (Some(part), 10 + number));
        }
        assert_eq!((FeedPart::of(13), FeedPart::Position as usize), (Some(FeedPart::Position), 13));
        let placed = FeedPlaced { number: 3, is_near: true };
        assert_eq!((placed.words(), FeedPlaced::of(&[3, 1])), ([3, 1], Some(placed)));
        assert_eq!((FeedPlaced::of(&[3]), FeedPlaced::of(&[3, 2])), (None, None));
        let position = FeedPosition { words: 9, in_memory: true };
        assert_eq!((position.words(), FeedPosition::of(&[9, 1])), ([9, 1], Some(position)));
        assert_eq!((FeedPosition::of(&[9]), FeedPosition::of(&[9, 2])), (None, None));
        assert_eq!((FeedPart::of(0), FeedPart::of(14)), (None, None));
        let placing = FeedPlacing { number: 3, sequences: vec![9, 10] };
        assert_eq!(placing.words(), [3, 9, 10]);
        assert_eq!(FeedPlacing::of(&placing.words(), 2), Some(placing));
        assert_eq!((FeedPlacing::of(&[], 0), FeedPlacing::of(&[3, 9], 2)), (None, None));
        assert_eq!((pieces(&[]), pieces(&[7])), (vec![vec![1]], vec![vec![1, 7]]));
    }

    #[test]
    fn books_come_in_pieces() {
        for words in [0, PIECE_WORDS - 3, PIECE_WORDS - 2, PIECE_WORDS - 1, 3 * PIECE_WORDS] {
            let all: Vec<u64> = (0..words as u64).collect();
            let (books, kept) = all.split_at(words / 3);
            let books = FeedBooks { sequence: 77, books: books.to_vec(), kept: kept.to_vec() };
            let (frames, mut pieces) = (books.frames(), Vec::new());
            let last = frames.len() - 1;
            for (number, frame) in frames.iter().enumerate() {
                assert!(frame.len() <= FEED_WORDS_MAX);
                assert_eq!(FeedBooks::gather(&mut pieces, frame), Some(number == last));
            }
            assert_eq!(FeedBooks::of(&pieces), Some(books));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!((FeedCut::of(&[1, 2, 3], 2), FeedCut::of(&[1], 0)), (None, None));
        assert_eq!((FeedAsk::of(&[1, 2, 3, 4, 5], 2), FeedAsk::of(&[1, 2, 3], 0)), (None, None));
        assert_eq!(
            (FeedBooks::of(&[1]), FeedBooks::of(&[1, 2, 3]), FeedBooks::of(&[1, u64::MAX])),
            (None, None, None)
        );
        let mut pieces = Vec::new();
        assert_eq!(FeedBooks::gather(&mut pieces, &[]), None);
        assert_eq!(FeedBooks::gather(&mut pieces, &[2, 1]), None);
    }
}
