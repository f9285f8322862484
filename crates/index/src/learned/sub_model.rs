//! Sub-models: from a key to the one leaf of some dozens that may hold it.
//!
//! A sub-model is a straight line from a key's position between its first key and its last to a rank among its leaves, with
//! the errors that this line was measured to have, and a *translation table* from the rank to the leaf (XStore, section 4.1).
//! An entry of the table also has the leaf's separator, in 28 bits, so that the line need only come near: what it says is
//! set right in the table, before a leaf is read.
//!
//! ```text
//! the line, in the top model's entry    63 slope, as f32 32 | 31 intercept 24 | 23 shift 16 | 15 error above 8 | 7 error below 0
//! the table, an object
//!   word 0    guardian
//!        1    base: the key word from which positions count
//!        2    entry 0: 63 separator 36 | 35 place of the leaf / 64 0
//!        .    ...
//! ```
//!
//! The position of a key word is its distance from the base, shifted so that 28 bits hold it. Positions and lines are
//! monotonic, and errors are measured at every separator and just below it, so that each key between two separators is found
//! between the same two entries (what XStore calls boundary augmentation).
//!
//! All of this is a guess: the leaf's guardian and fences decide.

use kelix_image::words::Words;
use kelix_types::Place;

/// Words before the entries of a translation table.
pub const TABLE_HEADER_WORDS: usize = 2;
/// Most leaves of a sub-model.
pub const LEAVES_MAX: usize = 256;

/// So many entries are looked at one after the other: a cache line of them.
const COUNTED: usize = 8;

const POSITION_BITS: u32 = 28;
const POSITION_MAX: u64 = (1 << POSITION_BITS) - 1;
const LEAF_ALIGN: u64 = 64;
const LEAF_BITS: u32 = 64 - POSITION_BITS;

/// A straight line with bounds of its error.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Line {
    slope: f32,
    intercept: i8,
    shift: u32,
    /// How many ranks too high, and too low, it may be.
    below: u8,
    above: u8,
}

impl Line {
    /// Its word.
    pub fn word(self) -> u64 {
        u64::from(self.slope.to_bits()) << 32
            | u64::from(self.intercept as u8) << 24
            | u64::from(self.shift) << 16
            | u64::from(self.above) << 8
            | u64::from(self.below)
    }

    /// Reads one, which may be nonsense.
    #[inline(always)]
    pub fn from_word(word: u64) -> Line {
        Line {
            slope: f32::from_bits((word >> 32) as u32),
            intercept: (word >> 24) as i8,
            shift: (word >> 16) as u32 & 63,
            above: (word >> 8) as u8,
            below: word as u8,
        }
    }

    /// Ranks between which a key may be, both included.
    #[inline]
    pub fn error(self) -> usize {
        usize::from(self.below) + usize::from(self.above)
    }

    #[inline(always)]
    fn position(self, base: u64, key_word: u64) -> u64 {
        (key_word.saturating_sub(base) >> self.shift).min(POSITION_MAX)
    }

    /// The position of a leaf; the first is at the base, whatever its separator says.
    fn position_at(self, base: u64, separators: &[u64], rank: usize) -> u64 {
        if rank == 0 { 0 } else { self.position(base, separators[rank]) }
    }

    /// The rank that it says, of `last` and those before.
    #[inline(always)]
    fn rank(self, position: u64, last: i32) -> i32 {
        let rank = (self.slope * position as f32) as i32;
        rank.saturating_add(i32::from(self.intercept)).clamp(0, last)
    }

    /// The ranks at which a position may be found, of a table of `count` entries.
    #[inline(always)]
    fn window(self, position: u64, count: usize) -> (usize, usize) {
        let last = count as i32 - 1;
        let rank = self.rank(position, last);
        let (low, high) = (rank - i32::from(self.below), rank + i32::from(self.above));
        (low.max(0) as usize, high.min(last) as usize)
    }
}

/// Draws the line for leaves whose separators have these key words, in their order. The first is the base, whatever it says.
/// `end` is the first key word that is not of this sub-model.
pub(crate) fn train(separators: &[u64], base: u64, end: Option<u64>) -> Line {
    let count = separators.len();
    let last = separators[count - 1].max(end.unwrap_or(0)).saturating_sub(base);
    let shift = (64 - last.leading_zeros()).saturating_sub(POSITION_BITS);
    let mut line = Line { slope: 0.0, intercept: 0, shift, below: 0, above: 0 };
    let position = |rank: usize| line.position_at(base, separators, rank);
    // Least squares.
    let (mut x, mut y, mut xx, mut xy) = (0.0, 0.0, 0.0, 0.0);
    for rank in 0..count {
        let (at, rank) = (position(rank) as f64, rank as f64);
        (x, y, xx, xy) = (x + at, y + rank, xx + at * at, xy + at * rank);
    }
    let n = count as f64;
    let spread = n * xx - x * x;
    let slope = if spread > 0.0 { (n * xy - x * y) / spread } else { 0.0 };
    let slope = slope.max(0.0) as f32;
    let intercept = ((y - f64::from(slope) * x) / n).round().clamp(-128.0, 127.0) as i8;
    let mut errors = (0i32, 0i32);
    let positions: Vec<u64> = (0..count).map(position).collect();
    (line.slope, line.intercept) = (slope, intercept);
    for (rank, at) in positions.iter().enumerate() {
        // The keys of this leaf stand from its own separator to just below the next.
        let next = positions.get(rank + 1).copied().or(end.map(|end| line.position(base, end)));
        let (highest, last) = (next.unwrap_or(POSITION_MAX), count as i32 - 1);
        errors.0 = errors.0.max(line.rank(highest, last) - rank as i32);
        errors.1 = errors.1.max(rank as i32 - line.rank(*at, last));
    }
    (line.below, line.above) = (errors.0.clamp(0, 255) as u8, errors.1.clamp(0, 255) as u8);
    line
}

/// Leaves whose separators 28 bits do not tell from a neighbour's.
pub(crate) fn blurred(separators: &[u64], base: u64, line: Line) -> usize {
    let position = |rank: usize| line.position_at(base, separators, rank);
    let count = separators.len();
    let alike = |rank: usize, other: usize| other < count && position(rank) == position(other);
    (0..count).filter(|rank| alike(*rank, rank + 1) || (*rank > 0 && alike(*rank, rank - 1))).count()
}

/// The words of a translation table but its guardian.
pub(crate) fn write_table(table: Words<'_>, base: u64, line: Line, separators: &[u64], places: &[Place]) {
    table.store(1, base);
    for (rank, place) in places.iter().enumerate() {
        let position = line.position_at(base, separators, rank);
        table.store(TABLE_HEADER_WORDS + rank, entry(position, *place));
    }
}

fn entry(position: u64, place: Place) -> u64 {
    let leaf = place.0 / LEAF_ALIGN;
    // A leaf that is too far away for an entry is found by the shard.
    position << LEAF_BITS | if leaf < 1 << LEAF_BITS { leaf } else { 0 }
}

/// The leaf that an entry names.
#[inline(always)]
pub fn leaf_of(entry: u64) -> Option<Place> {
    let leaf = entry & ((1 << LEAF_BITS) - 1);
    (leaf != 0).then_some(Place(leaf * LEAF_ALIGN))
}

/// Where a key may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guess {
    /// Rank among the leaves of the sub-model.
    pub rank: usize,
    /// The leaf.
    pub leaf: Option<Place>,
}

impl Guess {
    #[inline(always)]
    fn new(rank: usize, entry: u64) -> Guess {
        Guess { rank, leaf: leaf_of(entry) }
    }
}

/// The leaf of a rank.
#[inline(always)]
pub fn leaf_at(table: Words<'_>, rank: usize) -> Option<Place> {
    leaf_of(table.load(TABLE_HEADER_WORDS + rank))
}

/// Where a key is looked for in a translation table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    position: u64,
    /// The first and the last rank that the key may have.
    pub low: usize,
    /// See above.
    pub high: usize,
}

impl Window {
    /// In a table of `count` entries whose positions count from `base`.
    #[inline(always)]
    pub fn of(line: Line, base: u64, key_word: u64, count: usize) -> Window {
        let position = line.position(base, key_word);
        let (low, high) = line.window(position, count);
        Window { position, low, high }
    }

    /// Guesses the leaf of the key.
    #[inline(always)]
    pub fn guess(self, table: Words<'_>) -> Guess {
        let Window { position, low, high } = self;
        let first = TABLE_HEADER_WORDS + low + 1;
        // Few are counted, with nothing that a processor could guess wrong: those behind the window are above the key.
        if high - low <= COUNTED && first + COUNTED <= table.count() {
            let entries = table.part(first, COUNTED);
            let mut rank = low;
            for index in 0..COUNTED {
                rank += usize::from(entries.load(index) >> LEAF_BITS <= position);
            }
            return Guess::new(rank, table.load(TABLE_HEADER_WORDS + rank));
        }
        self.guess_by(|rank| table.load(TABLE_HEADER_WORDS + rank))
    }

    /// The same with entries from wherever `entry` takes them, by rank.
    pub fn guess_by(self, entry: impl Fn(usize) -> u64) -> Guess {
        // The last entry that is not above the key.
        let (mut rank, mut beyond) = (self.low, self.high + 1);
        while beyond - rank > 1 {
            let middle = rank + (beyond - rank) / 2;
            if entry(middle) >> LEAF_BITS <= self.position {
                rank = middle;
            } else {
                beyond = middle;
            }
        }
        Guess::new(rank, entry(rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelix_image::Span;

    fn check(separators: &[u64], end: Option<u64>) -> Line {
        let base = separators[0];
        let line = train(separators, base, end);
        assert_eq!(Line::from_word(line.word()), line);
        let places: Vec<Place> = (1..=separators.len() as u64).map(|leaf| Place(leaf * 320)).collect();
        let span = Span::private((separators.len() as u64 + 2) * 8);
        write_table(span.words(), base, line, separators, &places);
        let clear = blurred(separators, base, line) == 0;
        let end = end.unwrap_or(u64::MAX);
        for (rank, separator) in separators.iter().enumerate() {
            let next = separators.get(rank + 1).copied().unwrap_or(end);
            for key in [*separator, separator + (next - separator) / 2, next - 1] {
                let window = Window::of(line, base, key, separators.len());
                let guess = window.guess(span.words());
                assert!(guess.rank == rank || !clear, "{key} of leaf {rank} in {guess:?} by {line:?}");
                assert_eq!(guess.leaf, Some(places[guess.rank]));
                assert_eq!(guess, window.guess_by(|rank| span.words().load(TABLE_HEADER_WORDS + rank)));
            }
        }
        line
    }

    #[test]
    fn every_key_is_found_between_the_separators_it_is_between() {
        assert_eq!(check(&[5], None).error(), 0);
        let even: Vec<u64> = (0..64).map(|leaf| 1000 + leaf * 160).collect();
        assert!(check(&even, Some(1000 + 64 * 160)).error() <= 2);
        check(&even, None);
        let squares: Vec<u64> = (0..200).map(|leaf| leaf * leaf * leaf).collect();
        check(&squares, Some(8_000_000));
        let powers: Vec<u64> = (0..60).map(|leaf| 1 << leaf).collect();
        check(&powers, None);
        let close: Vec<u64> = (0..50).map(|leaf| u64::MAX - 200 + leaf).collect();
        check(&close, None);
        let far: Vec<u64> = [vec![0, 1, 2, 3], (1..20).map(|leaf| leaf << 58).collect()].concat();
        check(&far, None);
        assert_eq!(blurred(&far, 0, train(&far, 0, None)), 4);
    }

    #[test]
    fn nonsense_stays_inside_the_table() {
        let span = Span::private((16 + 2) * 8);
        for seed in 0..2000u64 {
            let word = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ seed << 32;
            let line = Line::from_word(word);
            for count in [1, 7, 16] {
                let window = Window::of(line, word.rotate_left(9), word.rotate_left(30), count);
                assert!(window.low <= window.high && window.high < count);
                assert!(window.guess(span.words().part(0, TABLE_HEADER_WORDS + count)).rank < count);
            }
        }
    }
}
