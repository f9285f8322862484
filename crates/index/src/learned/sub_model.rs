//! Sub-models: from a key to the one leaf of some dozens that may hold it.
//!
//! A sub-model is a straight line from a key's position between its first key and its last to a rank among
//! its leaves, with the errors that this line was measured to have, and a *translation table* from the rank
//! to the leaf (XStore, section 4.1). An entry of the table also has the leaf's separator, in 28 bits, so
//! that the line need only come near: what it says is set right in the table, before a leaf is read.
//!
//! ```text
//! the line, in the top model's entry    63 slope, as f32 32 | 31 intercept 24 | 23 shift 16 | 15 error above 8 | 7 error below 0
//! the table, an object
//!   word 0    guardian
//!        1    base: the key word from which positions count
//!        2    entry 0: 63 code of the separator 36 | 35 place of the leaf / 64 0
//!        .    ...
//! ```
//!
//! Of strings there is no line: the 28 bits of an entry say what of its separator stands behind the entries
//! (front coding), and the table is walked.
//!
//! The position of a number is its distance from the base, shifted so that 28 bits hold it. Positions and
//! lines are monotonic, and errors are measured at every separator and just below it, so that each key
//! between two separators is found between the same two entries (what XStore calls boundary augmentation).
//!
//! All of this is a guess: the leaf's guardian and fences decide.

use kelix_image::words::{Words, bytes_of_mut};
use kelix_types::Place;

use super::top::SubModel;
use crate::ordered::common_prefix;

/// Words before the entries of a translation table.
pub const TABLE_HEADER_WORDS: usize = 2;
/// Most leaves of a sub-model.
pub const LEAVES_MAX: usize = 256;

/// So many entries are looked at one after the other: a cache line of them.
const COUNTED: usize = 8;

/// Most bytes of a separator of strings, after those that it shares with the one before.
const BYTES_OF_STRING_MAX: usize = 64;

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

/// Draws the line for leaves whose separators have these numbers, in their order, and says their codes: their
/// positions. The first is the base, whatever it says. `end` is the first number that is not of this
/// sub-model.
pub(crate) fn train(separators: &[u64], base: u64, end: Option<u64>) -> (Line, Vec<u64>) {
    let count = separators.len();
    let highest = separators[count - 1].max(end.unwrap_or(0)).saturating_sub(base);
    let shift = (64 - highest.leading_zeros()).saturating_sub(POSITION_BITS);
    let mut line = Line { slope: 0.0, intercept: 0, shift, below: 0, above: 0 };
    let position = |number: &u64| line.position(base, *number);
    let positions: Vec<u64> = std::iter::once(0).chain(separators[1..].iter().map(position)).collect();
    // Least squares.
    let (mut x, mut y, mut xx, mut xy) = (0.0, 0.0, 0.0, 0.0);
    for (rank, at) in positions.iter().enumerate() {
        let (at, rank) = (*at as f64, rank as f64);
        (x, y, xx, xy) = (x + at, y + rank, xx + at * at, xy + at * rank);
    }
    let n = count as f64;
    let spread = n * xx - x * x;
    let slope = if spread > 0.0 { (n * xy - x * y) / spread } else { 0.0 };
    let slope = slope.max(0.0) as f32;
    let intercept = ((y - f64::from(slope) * x) / n).round().clamp(-128.0, 127.0) as i8;
    (line.slope, line.intercept) = (slope, intercept);
    // The keys of a leaf stand from its own separator to just below the next.
    let (last, after) = (count as i32 - 1, end.map_or(POSITION_MAX, |end| line.position(base, end)));
    let (mut below, mut above, mut lowest) = (0, 0, line.rank(positions[0], last));
    for (rank, next) in positions[1..].iter().chain([&after]).enumerate() {
        let highest = line.rank(*next, last);
        (below, above) = (below.max(highest - rank as i32), above.max(rank as i32 - lowest));
        lowest = highest;
    }
    (line.below, line.above) = (below.clamp(0, 255) as u8, above.clamp(0, 255) as u8);
    (line, positions)
}

/// Leaves whose codes are those of a neighbour, when the last bits do not count.
pub(crate) fn blurred(codes: &[u64], spare_bits: u32) -> usize {
    let runs = codes.chunk_by(|a, b| a >> spare_bits == b >> spare_bits);
    runs.map(<[u64]>::len).filter(|leaves| *leaves > 1).sum()
}

/// The codes of leaves of strings, all of which share a prefix of so many bytes, and what these lead to: the
/// bytes of each separator that it does not share with the one before (front coding).
///
/// ```text
/// code: 27 bytes that both share, after the prefix 16 | 15 where its bytes end 0
/// ```
pub(crate) fn string_codes(separators: &[&[u8]], prefix_bytes: usize) -> (Vec<u64>, Vec<u8>) {
    let mut bytes = Vec::new();
    let mut code = |pair: &[&[u8]]| {
        let shared = common_prefix(pair[0], pair[1]);
        bytes.extend(pair[1][shared..].iter().take(BYTES_OF_STRING_MAX));
        let after_prefix = shared.saturating_sub(prefix_bytes).min(0xfff) as u64;
        after_prefix << 16 | bytes.len() as u64 & 0xffff
    };
    let codes = std::iter::once(0).chain(separators.windows(2).map(&mut code)).collect();
    (codes, bytes)
}

/// The words of a translation table but its guardian.
pub(crate) fn write_table(table: Words<'_>, base: u64, codes: &[u64], bytes: &[u8], places: &[Place]) {
    table.store(1, base);
    for (rank, (code, place)) in codes.iter().zip(places).enumerate() {
        table.store(TABLE_HEADER_WORDS + rank, entry(*code, *place));
    }
    let mut words = vec![0; bytes.len().div_ceil(8)];
    bytes_of_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
    table.copy_in(TABLE_HEADER_WORDS + codes.len(), &words);
}

fn entry(code: u64, place: Place) -> u64 {
    let leaf = place.0 / LEAF_ALIGN;
    // A leaf that is too far away for an entry is found by the shard.
    code << LEAF_BITS | if leaf < 1 << LEAF_BITS { leaf } else { 0 }
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
        let count = table.count() - TABLE_HEADER_WORDS;
        // Few are counted, with nothing that a processor could guess wrong: those behind the window are above
        // the key, and those before it are not.
        if high - low <= COUNTED && COUNTED < count {
            let first = (low + 1).min(count - COUNTED);
            let entries = table.part(TABLE_HEADER_WORDS + first, COUNTED);
            let mut rank = first - 1;
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

/// Guesses the leaf of a string by walking the separators in a table of so many words, which `word` brings.
/// `shared`: so many bytes the string has in common with the first separator, and is not below it.
pub fn guess_string(
    word: impl Fn(usize) -> u64,
    words: usize,
    sub_model: &SubModel,
    mut shared: usize,
    key: &[u8],
) -> Guess {
    let count = sub_model.leaves.min(words.saturating_sub(TABLE_HEADER_WORDS)).max(1);
    let entry = |rank: usize| word(TABLE_HEADER_WORDS + rank);
    let byte = |at: usize| {
        let index = TABLE_HEADER_WORDS + count + at / 8;
        if index < words { word(index).to_ne_bytes()[at % 8] } else { 0 }
    };
    let (mut rank, mut begin) = (0, 0);
    // The key is above the separator at `rank`, or equal to it, and shares so many bytes with it.
    for next in 1..count {
        let code = entry(next) >> LEAF_BITS;
        let (end, first) = ((code & 0xffff) as usize, sub_model.prefix_bytes + (code >> 16) as usize);
        if first < shared {
            break;
        }
        if first == shared {
            let mut at = begin;
            while at < end && key.get(shared) == Some(&byte(at)) {
                (at, shared) = (at + 1, shared + 1);
            }
            if at < end && key.get(shared).is_none_or(|of_key| *of_key < byte(at)) {
                break;
            }
        }
        // Where it shares more with the separator before than the key does, it is below the key as that is.
        (rank, begin) = (next, end);
    }
    Guess::new(rank, entry(rank))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelix_image::Span;

    fn check(separators: &[u64], end: Option<u64>) -> Line {
        let base = separators[0];
        let (line, codes) = train(separators, base, end);
        assert_eq!(Line::from_word(line.word()), line);
        let places: Vec<Place> = (1..=separators.len() as u64).map(|leaf| Place(leaf * 320)).collect();
        let span = Span::private((separators.len() as u64 + 2) * 8);
        write_table(span.words(), base, &codes, &[], &places);
        let clear = blurred(&codes, 0) == 0;
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
        assert_eq!(blurred(&train(&far, 0, None).1, 0), 4);
    }

    fn some_sub_model() -> SubModel {
        SubModel::from_words(0, false, [0, 0, 0])
    }

    /// Keys in order, so many a leaf; separators are as short as can be.
    fn check_strings(keys: &[&str], a_leaf: usize) {
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        let leaves: Vec<&[&[u8]]> = keys.chunks(a_leaf).collect();
        let mut separators = vec![leaves[0][0]];
        separators.extend(leaves.windows(2).map(|pair| {
            let (below, above) = (pair[0].last().unwrap(), pair[1][0]);
            &above[..common_prefix(below, above) + 1]
        }));
        let prefix_bytes = common_prefix(separators[0], separators[separators.len() - 1]);
        let (codes, bytes) = string_codes(&separators, prefix_bytes);
        let places: Vec<Place> = (1..=leaves.len() as u64).map(|leaf| Place(leaf * 320)).collect();
        let span = Span::private(((leaves.len() + 2) * 8 + bytes.len()) as u64 + 8);
        write_table(span.words(), 0, &codes, &bytes, &places);
        let table = span.words();
        let sub_model = SubModel { leaves: leaves.len(), prefix_bytes, ..some_sub_model() };
        for (rank, leaf) in leaves.iter().enumerate() {
            for key in *leaf {
                let shared = common_prefix(separators[0], key);
                let guess = guess_string(|word| table.load(word), table.count(), &sub_model, shared, key);
                assert_eq!(
                    (guess.rank, guess.leaf),
                    (rank, Some(places[rank])),
                    "{key:?} of {a_leaf} a leaf"
                );
            }
        }
    }

    #[test]
    fn every_string_is_found_between_the_separators_it_is_between() {
        let mut keys = Vec::new();
        for site in ["https://a.example/", "https://ab.example/", "https://b.example/", "mailto:"] {
            for topic in ["", "about", "news/", "news/of-today/", "shop"] {
                for page in [1, 2, 10, 11, 100, 999, 1000] {
                    keys.push(format!("{site}{topic}{page}"));
                    keys.push(format!("{site}{topic}?page={page}"));
                }
            }
        }
        keys.sort();
        let keys: Vec<&str> = keys.iter().map(|key| &key[..]).collect();
        (1..9).for_each(|a_leaf| check_strings(&keys, a_leaf));
        check_strings(&["", "\0", "a", "a\0", "a\0\0", "ab", "b"], 1);
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
                let sub_model = SubModel { leaves: count, ..some_sub_model() };
                let words = |index: usize| word.rotate_left(index as u32);
                let string = guess_string(words, 20, &sub_model, 4, &word.to_ne_bytes());
                assert!(string.rank < count);
                assert!(window.guess(span.words().part(0, TABLE_HEADER_WORDS + count)).rank < count);
            }
        }
    }
}
