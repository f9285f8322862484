//! The top model of a table: from a key to the sub-model whose range it is in.
//!
//! ```text
//! word 0    guardian
//!      1    63 table 48 | 31 sub-models when it was made 0
//!      2    base: the head from which cells count
//!      3    63 prefix bytes 48 | 47 capacity 16 | 15 bits of cells 8 | 7 shift 0
//!      4    sub-models now                                               may change
//!      5    words of all of it
//!      6, 7 zero
//!      8    cells, two a word, the lower half first: how many sub-models begin in earlier cells
//!      .    entries, 4 words each, as many as the capacity says          may change
//!           head | 63 prefix bytes 52 | 51 class 48 | 47 leaves - 1 40 | 39 place of the table / 16 0 | line | first key of strings
//!      .    of strings: the prefix that all first keys share, and the first keys, each from a word on
//! ```
//!
//! A *head* is the key word of a sub-model's first key; that of strings comes after the shared prefix. Cells
//! part the heads into equal distances, so that a search is among the few sub-models of one cell; where keys
//! crowd, among more. Sub-models have equal numbers of leaves, not equal distances, which is what skewed keys
//! need.
//!
//! The first sub-model has all keys below the second's first key, and the last one all from its first key on.
//! Sub-models are added at the end in place; anything else makes a new top model.

use std::cmp::Ordering;

use kelix_image::words::Words;
use kelix_types::{Place, TableId, TableKind};

use super::sub_model::{LEAVES_MAX, Line, TABLE_HEADER_WORDS};
use crate::ordered::key_word;

/// Words before the cells.
pub const TOP_HEADER_WORDS: usize = 8;
/// Words of an entry.
pub const TOP_ENTRY_WORDS: usize = 4;

/// The word that counts the sub-models.
pub const COUNT_WORD: usize = 4;
pub(crate) const WORDS_WORD: usize = 5;
/// So many entries are looked at one after the other.
const COUNTED: usize = 3;
const PREFIX_BITS: u32 = 12;
/// Words of the longest translation table.
pub(crate) const TABLE_WORDS_MAX: usize = TABLE_HEADER_WORDS + LEAVES_MAX;
/// Longest prefix of a sub-model.
pub(crate) const PREFIX_MAX: usize = (1 << PREFIX_BITS) - 1;

/// A sub-model as its entry names it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SubModel {
    /// Which one of all.
    pub index: usize,
    /// Head of its first key.
    pub head: u64,
    /// Where its translation table stands; `None`: it has none.
    pub table: Option<Place>,
    /// Size of the table: 16 << class entries.
    pub class: u32,
    /// Leaves in it.
    pub leaves: usize,
    /// What its separators share.
    pub prefix_bytes: usize,
    /// The line, if it is one of numbers.
    pub line: Line,
    /// Words of its table.
    pub words: usize,
}

impl SubModel {
    pub(crate) fn pointer_word(&self) -> u64 {
        debug_assert!(self.prefix_bytes <= PREFIX_MAX && (1..=256).contains(&self.leaves) && self.class < 16);
        (self.prefix_bytes as u64) << 52
            | u64::from(self.class) << 48
            | (self.leaves as u64 - 1) << 40
            | self.table.map_or(0, |place| place.0 / 16)
    }

    /// The word that has the line or, of strings, how long the table is.
    pub(crate) fn line_word(&self, numbers: bool) -> u64 {
        if numbers { self.line.word() } else { self.words as u64 }
    }
}

/// The layout of a top model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub built: usize,
    pub base: u64,
    pub shift: u32,
    pub cell_bits: u32,
    pub capacity: usize,
    pub prefix_bytes: usize,
}

impl Shape {
    pub fn entries(self) -> usize {
        TOP_HEADER_WORDS + (1usize << self.cell_bits).div_ceil(2)
    }

    pub fn strings(self) -> usize {
        self.entries() + self.capacity * TOP_ENTRY_WORDS
    }

    /// Words 1 to 3.
    pub fn words(self, table: TableId) -> [u64; 3] {
        let shape = (self.prefix_bytes as u64) << 48
            | (self.capacity as u64) << 16
            | u64::from(self.cell_bits) << 8
            | u64::from(self.shift);
        [u64::from(table.0) << 48 | self.built as u64, self.base, shape]
    }

    #[inline(always)]
    fn from_words([built, base, shape]: [u64; 3]) -> Shape {
        Shape {
            built: built as u32 as usize,
            base,
            shift: shape as u32 & 63,
            cell_bits: (shape >> 8) as u32 & 31,
            capacity: (shape >> 16) as u32 as usize,
            prefix_bytes: (shape >> 48) as usize,
        }
    }

    #[inline(always)]
    pub fn cell(self, head: u64) -> usize {
        (head.saturating_sub(self.base) >> self.shift).min((1 << self.cell_bits) - 1) as usize
    }
}

/// A top model in memory that may be reused at any moment, or in a private copy.
#[derive(Clone, Copy)]
pub struct Top<'a> {
    words: Words<'a>,
    shape: Shape,
    count: usize,
}

impl<'a> Top<'a> {
    /// Looks at what begins where `words` do. `None`: that makes no sense.
    #[inline]
    pub fn open(words: Words<'a>) -> Option<Top<'a>> {
        Self::open_shape(words).filter(|top| top.shape.strings() <= words.count())
    }

    /// The same, where only the header is at hand: for [`Top::cell_words`] and its like.
    #[inline(always)]
    pub fn open_shape(words: Words<'a>) -> Option<Top<'a>> {
        if words.count() < TOP_HEADER_WORDS {
            return None;
        }
        let shape = Shape::from_words([words.load(1), words.load(2), words.load(3)]);
        let count = words.load(COUNT_WORD) as usize;
        let sound = shape.capacity < 1 << 26
            && shape.cell_bits < 27
            && count <= shape.capacity
            && shape.built <= count
            && shape.built > 0;
        sound.then_some(Top { words, shape, count })
    }

    /// The same, where only the cells are at hand: for [`Top::cell`] and nothing else.
    pub fn open_cells(words: Words<'a>) -> Option<Top<'a>> {
        Self::open_shape(words).filter(|top| top.shape.entries() <= words.count())
    }

    /// Words before the entries: what [`Top::open_cells`] needs.
    pub fn cell_words(self) -> usize {
        self.shape.entries()
    }

    /// Words of all of it, with room for sub-models that come.
    pub fn all_words(self) -> usize {
        self.words.load(WORDS_WORD) as usize
    }

    /// How many there may be.
    pub fn capacity(self) -> usize {
        self.shape.capacity
    }

    /// The table.
    pub fn table(self) -> TableId {
        TableId((self.words.load(1) >> 48) as u16)
    }

    /// How many sub-models there are.
    pub fn count(self) -> usize {
        self.count
    }

    /// Asks the processor for the cell of a number.
    #[inline(always)]
    pub fn prefetch_cell(self, head: u64) {
        self.words.part(TOP_HEADER_WORDS + self.shape.cell(head) / 2, 1).prefetch_line();
    }

    /// The range of sub-models, both ends included, among which that of a head is.
    #[inline(always)]
    pub fn cell(self, head: u64) -> (usize, usize) {
        let cell = self.shape.cell(head);
        let begins = |cell: usize| {
            if cell >> self.shape.cell_bits != 0 {
                return self.shape.built;
            }
            let word = self.words.load(TOP_HEADER_WORDS + cell / 2);
            (word >> (cell % 2 * 32)) as u32 as usize
        };
        let low = begins(cell).saturating_sub(1).min(self.count - 1);
        // Those that were added later are in no cell, and above all others.
        let beyond = begins(cell + 1);
        let beyond = if beyond >= self.shape.built { self.count } else { beyond };
        (low, beyond.saturating_sub(1).max(low))
    }

    #[inline(always)]
    fn entry(self, index: usize) -> usize {
        self.shape.entries() + index * TOP_ENTRY_WORDS
    }

    #[inline(always)]
    fn head(self, index: usize) -> u64 {
        self.words.load(self.entry(index))
    }

    /// Asks the processor for an entry.
    #[inline(always)]
    pub fn prefetch_entry(self, index: usize) {
        self.words.part(self.entry(index), TOP_ENTRY_WORDS).prefetch_line();
    }

    /// The sub-model of a key, and what stands for the key there. `None`: what was read makes no sense.
    pub fn find(self, key: &[u8]) -> Option<(SubModel, u64)> {
        self.find_in(self.table().kind(), key)
    }

    /// The same in a table of this kind.
    #[inline(always)]
    pub fn find_in(self, kind: TableKind, key: &[u8]) -> Option<(SubModel, u64)> {
        if kind.has_numbers() {
            let number = key_word(key, 0);
            return Some((self.find_number(number, self.cell(number)), number));
        }
        let sub_model = self.sub_model(self.find_string(key)?);
        Some((sub_model, self.word_in(&sub_model, key)?))
    }

    /// The sub-model of a number among those between two.
    #[inline(always)]
    pub fn find_number(self, number: u64, (low, high): (usize, usize)) -> SubModel {
        // The last whose head is not above the number; the first takes all below. As a rule there are two or
        // three, which are counted with nothing that a processor could guess wrong.
        if high - low <= COUNTED && low + COUNTED < self.count {
            let mut index = low;
            for ahead in 1..=COUNTED {
                index += usize::from(self.head(low + ahead) <= number);
            }
            return self.sub_model(index);
        }
        let (mut index, mut beyond) = (low, high + 1);
        while beyond - index > 1 {
            let middle = index + (beyond - index) / 2;
            if self.head(middle) <= number {
                index = middle;
            } else {
                beyond = middle;
            }
        }
        self.sub_model(index)
    }

    fn find_string(self, key: &[u8]) -> Option<usize> {
        let prefix_bytes = self.shape.prefix_bytes;
        match self.compare(self.shape.strings(), prefix_bytes, &key[..key.len().min(prefix_bytes)])? {
            Ordering::Less => return Some(self.count - 1),
            Ordering::Greater => return Some(0),
            Ordering::Equal => {}
        }
        let head = key_word(key, prefix_bytes);
        let (mut index, high) = self.cell(head);
        let mut beyond = high + 1;
        while beyond - index > 1 {
            let middle = index + (beyond - index) / 2;
            let not_above = match self.head(middle).cmp(&head) {
                Ordering::Equal => self.first_is_not_above(middle, key)?,
                order => order.is_lt(),
            };
            if not_above {
                index = middle;
            } else {
                beyond = middle;
            }
        }
        // The first of a cell may be above the key, where others with the same head are in the cell before.
        while index > 0 && self.head(index) == head && !self.first_is_not_above(index, key)? {
            index -= 1;
        }
        Some(index)
    }

    fn first_is_not_above(self, index: usize, key: &[u8]) -> Option<bool> {
        let (first, bytes) = self.first_key(index);
        Some(self.compare(first, bytes, key)?.is_le())
    }

    /// Where the first key of a sub-model of strings stands, and how long it is.
    fn first_key(self, index: usize) -> (usize, usize) {
        let (at, bytes) = string_of(self.words.load(self.entry(index) + 3));
        (self.shape.strings() + at, bytes)
    }

    /// How many bytes a string of so many bytes, which begins with a word, shares with a key.
    fn shared(self, word: usize, bytes: usize, key: &[u8]) -> Option<usize> {
        let all = bytes.min(key.len());
        if word.checked_add(bytes.div_ceil(8))? > self.words.count() {
            return None;
        }
        for at in (0..all).step_by(8) {
            let string = u64::from_be_bytes(self.words.load(word + at / 8).to_ne_bytes());
            let differ = (string ^ key_word(key, at)).leading_zeros() as usize / 8;
            if differ < 8 {
                return Some(all.min(at + differ));
            }
        }
        Some(all)
    }

    /// Compares it with a key.
    fn compare(self, word: usize, bytes: usize, key: &[u8]) -> Option<Ordering> {
        let shared = self.shared(word, bytes, key)?;
        let next = |string: usize| self.words.load(word + string / 8).to_ne_bytes()[string % 8];
        Some((shared < bytes).then(|| next(shared)).cmp(&key.get(shared).copied()))
    }

    /// What stands for a key in its sub-model: a number itself, of a string how many bytes it shares with the
    /// first key.
    pub fn word_in(self, sub_model: &SubModel, key: &[u8]) -> Option<u64> {
        if self.table().kind().has_numbers() {
            return Some(key_word(key, 0));
        }
        let (first, bytes) = self.first_key(sub_model.index);
        Some(self.shared(first, bytes, key)? as u64)
    }

    /// Where an entry stands, counted from the top model's first word.
    pub fn entry_word(self, index: usize) -> usize {
        self.entry(index)
    }

    /// A sub-model by its number.
    #[inline(always)]
    pub fn sub_model(self, index: usize) -> SubModel {
        let at = self.entry(index);
        let numbers = self.table().kind().has_numbers();
        SubModel::from_words(
            index,
            numbers,
            [self.words.load(at), self.words.load(at + 1), self.words.load(at + 2)],
        )
    }
}

impl SubModel {
    /// Reads the first words of an entry.
    #[inline(always)]
    pub fn from_words(index: usize, numbers: bool, [head, pointer, line]: [u64; 3]) -> SubModel {
        let place = Place((pointer & ((1 << 40) - 1)) * 16);
        let leaves = (pointer >> 40 & 255) as usize + 1;
        let (line, words) = match numbers {
            true => (line, TABLE_HEADER_WORDS + leaves),
            false => (0, (line as usize).clamp(TABLE_HEADER_WORDS + 1, TABLE_WORDS_MAX)),
        };
        SubModel {
            index,
            head,
            table: (place.0 != 0).then_some(place),
            class: (pointer >> 48) as u32 & 15,
            leaves,
            prefix_bytes: (pointer >> 52) as usize,
            line: Line::from_word(line),
            words,
        }
    }
}

/// The word that says where a first key stands among the strings, and how long it is.
pub(crate) fn string_word(at: usize, bytes: usize) -> u64 {
    (at as u64) << 32 | bytes as u64
}

fn string_of(word: u64) -> (usize, usize) {
    ((word >> 32) as usize, (word as u32 as usize) & 0x1_ffff)
}
