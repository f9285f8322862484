//! The memory of a copy of models, which several sessions may read and add to at once.
//!
//! ```text
//! word 0    sessions that wanted to replace it; none while it is in use
//!      1    guardian of the top model
//!      2    its place
//!      3    words of the arena that are taken, or were wanted
//!      4    words of the top model that are kept
//!      5    translation tables that may be kept
//!      6, 7 zero
//!      8    the top model
//!      .    63 words of it 48 | 47 where in the arena 0    of each translation table; zero: it is not kept
//!      .    arena
//! ```
//!
//! A table is written once, and then its word. Nobody waits for anybody, and one who is killed leaves at most
//! some words of the arena unused. Nothing in here need be believed, as leaves prove themselves.

use kelix_image::Span;
use kelix_image::words::Words;
use kelix_index::TABLE_HEADER_WORDS;
use kelix_types::{Guardian, Place};

const REPLACED: usize = 0;
const GUARDIAN: usize = 1;
const PLACE: usize = 2;
const TAKEN: usize = 3;
const TOP_WORDS: usize = 4;
const TABLES: usize = 5;
const HEADER_WORDS: usize = 8;
const BEGIN_BITS: u32 = 48;

/// How large the parts of one are, in words but for the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Parts {
    pub top: usize,
    /// How many translation tables may be kept.
    pub tables: usize,
    pub arena: usize,
}

impl Parts {
    fn before_arena(self) -> usize {
        HEADER_WORDS + self.top + self.tables
    }

    pub fn bytes(self) -> u64 {
        (self.before_arena() + self.arena) as u64 * 8
    }
}

pub(super) struct ModelMemory {
    span: Span,
    parts: Parts,
}

impl ModelMemory {
    /// Lays one out in zeroed words.
    pub fn lay_out(words: Words<'_>, parts: Parts, (place, guardian): (Place, Guardian), top: Words<'_>) {
        words.store(GUARDIAN, guardian.0);
        words.store(PLACE, place.0);
        words.store(TOP_WORDS, parts.top as u64);
        words.store(TABLES, parts.tables as u64);
        (0..parts.top).for_each(|word| words.store(HEADER_WORDS + word, top.load(word)));
    }

    /// Opens what was laid out, by this process or another. `None`: it is not of this top model, or is to be
    /// replaced.
    pub fn open(span: Span, of: (Place, Guardian)) -> Option<ModelMemory> {
        let words = span.words();
        if words.count() < HEADER_WORDS || (Place(words.load(PLACE)), Guardian(words.load(GUARDIAN))) != of {
            return None;
        }
        let count =
            |word: usize| usize::try_from(words.load(word)).ok().filter(|count| *count < words.count());
        let mut parts = Parts { top: count(TOP_WORDS)?, tables: count(TABLES)?, arena: 0 };
        parts.arena = words.count().checked_sub(parts.before_arena())?;
        let memory = ModelMemory { span, parts };
        memory.is_current().then_some(memory)
    }

    pub fn parts(&self) -> Parts {
        self.parts
    }

    /// Whether nobody has replaced it.
    pub fn is_current(&self) -> bool {
        self.span.words().load(REPLACED) == 0
    }

    /// Whether it falls to the caller to replace it. Others learn that it is not in use any more.
    pub fn retire(&self) -> bool {
        self.span.words().add(REPLACED, 1) == 1
    }

    /// The top model.
    pub fn top(&self) -> Words<'_> {
        self.span.words().part(HEADER_WORDS, self.parts.top)
    }

    fn tables(&self) -> Words<'_> {
        self.span.words().part(HEADER_WORDS + self.parts.top, self.parts.tables)
    }

    fn arena(&self) -> Words<'_> {
        self.span.words().part(self.parts.before_arena(), self.parts.arena)
    }

    /// A table that is kept.
    pub fn table(&self, index: usize) -> Option<Words<'_>> {
        let word = if index < self.parts.tables { self.tables().load_acquire(index) } else { 0 };
        let (begin, words) = ((word & ((1 << BEGIN_BITS) - 1)) as usize, (word >> BEGIN_BITS) as usize);
        let is_one = words > TABLE_HEADER_WORDS && begin + words <= self.parts.arena;
        is_one.then(|| self.arena().part(begin, words))
    }

    /// Whether there is room for one of so many words.
    pub fn has_room(&self, words: usize) -> bool {
        self.span.words().load(TAKEN) + words as u64 <= self.parts.arena as u64
    }

    /// Keeps a table in place of the one that is kept, or, if there is no room, none. `false`: there is no
    /// room.
    pub fn keep(&self, index: usize, words: &[u64]) -> bool {
        self.forget(index);
        if index >= self.parts.tables || !self.has_room(words.len()) {
            return false;
        }
        let end = self.span.words().add(TAKEN, words.len() as u64) as usize;
        if end > self.parts.arena {
            return false;
        }
        let begin = end - words.len();
        self.arena().copy_in(begin, words);
        self.tables().publish(index, (words.len() as u64) << BEGIN_BITS | begin as u64);
        true
    }

    /// Keeps no table of a sub-model.
    pub fn forget(&self, index: usize) {
        if self.table(index).is_some() {
            self.tables().store(index, 0);
        }
    }

    /// The tables that are kept.
    pub fn kept(&self) -> impl Iterator<Item = (usize, Words<'_>)> {
        (0..self.parts.tables).filter_map(|index| Some((index, self.table(index)?)))
    }

    /// Bytes that are in use.
    pub fn bytes(&self) -> usize {
        let taken = (self.span.words().load(TAKEN) as usize).min(self.parts.arena);
        (self.parts.before_arena() + taken) * 8
    }
}
