//! Changes of an image, in their order, for whoever keeps a copy of it.
//!
//! All that a writer stores into objects that last goes through [`Changes`]. While somebody follows the
//! image, each is also noted in its [`Journal`]: a word `[ zeros 1 | words 22 | place / 8 41 ]`, and unless
//! they are zeros so many words. Whoever copies the image's memory while it changes, in any order, and then
//! does all that was noted meanwhile, in its order, has the image as it was at the end of the journal: a word
//! that did not change was copied as it is, and of one that changed the last store is noted.
//!
//! What memory does not say is noted as an *event* ([`event`]): a note whose place is in the first granule,
//! behind the header page, where no object ever stands.
//!
//! Models are no part of it: whoever takes an image over trains new ones.

use std::cell::{Cell, RefCell};

use kelix_types::Place;

use crate::header::Header;
use crate::words::Words;

const PLACE_BITS: u32 = 41;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;
const ZEROS: u64 = 1 << 63;
/// Most words of one note.
const WORDS_MAX: usize = (1 << 22) - 1;
/// Notes of events have this and the event's kind in place of a place in words. That is behind the header
/// page, so who knows no events finds no memory there.
const EVENTS: u64 = 8192;
const _: () = assert!(EVENTS * 8 >= Header::BYTES);
/// Words of memory that a journal keeps from one step to the next.
const NOTES_KEPT: usize = 1 << 20;

/// Kinds of events. Their numbers stand in files.
pub mod event {
    /// A segment was added: its first granule, and its bytes.
    pub const SEGMENT: u16 = 2;
    /// A segment is gone: its first granule.
    pub const RETIRED: u16 = 3;
    /// Pages became a slab: the place of its first slot, and the kind of its slots.
    pub const SLAB: u16 = 4;
    /// A client that may ask again has connected: its number, and from which of its writes on all is known.
    pub const CALLER: u16 = 6;
    /// What a write of such a client was answered: the client's number, the number of the write, status,
    /// version, location.
    pub const ANSWER: u16 = 7;
    /// Nothing is known of such a client any more: its number.
    pub const GONE: u16 = 8;
    /// What the shard keeps beside its memory, as it is now.
    pub const KEPT: u16 = 9;
    /// A word of the header page: which one, and what it is now.
    pub const HEADER: u16 = 12;
    /// What is in this record comes behind a record of another shard: whose, and which. It stands before
    /// everything else.
    pub const AFTER: u16 = 13;
}

/// One note of a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note<'n> {
    /// Words were stored from a place on.
    Words(Place, &'n [u64]),
    /// So many words were cleared.
    Zeros(Place, usize),
    /// An event of a kind ([`event`]), and what belongs to it.
    Event(u16, &'n [u64]),
}

/// The notes of a journal, in their order, as far as they are whole.
pub struct Notes<'n>(&'n [u64]);

impl<'n> Notes<'n> {
    /// Of these words.
    pub fn new(words: &'n [u64]) -> Notes<'n> {
        Notes(words)
    }

    /// What has not been returned yet. Not empty at the end: a note that is cut off.
    pub fn rest(&self) -> &'n [u64] {
        self.0
    }
}

impl<'n> Iterator for Notes<'n> {
    type Item = Note<'n>;

    #[inline]
    fn next(&mut self) -> Option<Note<'n>> {
        let (head, rest) = self.0.split_first()?;
        let count = (head >> PLACE_BITS) as usize & WORDS_MAX;
        let zeros = head & ZEROS != 0;
        let (words, rest) = rest.split_at_checked(if zeros { 0 } else { count })?;
        self.0 = rest;
        let at = head & PLACE_MASK;
        let kind = at.checked_sub(EVENTS).filter(|kind| *kind <= u64::from(u16::MAX));
        Some(match kind {
            Some(kind) => Note::Event(kind as u16, words),
            None if zeros => Note::Zeros(Place(at * 8), count),
            None => Note::Words(Place(at * 8), words),
        })
    }
}

/// What was changed since it was last taken, while somebody wants to know.
#[derive(Default)]
pub struct Journal {
    is_kept: Cell<bool>,
    notes: RefCell<Vec<u64>>,
}

impl Journal {
    pub(crate) fn new(is_kept: bool) -> Journal {
        Journal { is_kept: Cell::new(is_kept), notes: RefCell::default() }
    }

    /// Begins or ends to note changes. What was noted and not taken is forgotten in the end.
    pub fn keep(&self, kept: bool) {
        self.is_kept.set(kept);
        if !kept {
            self.notes.take();
        }
    }

    /// The words of an event of a kind ([`event`]), for whoever puts it before other notes.
    pub fn event_words<const N: usize>(kind: u16, words: [u64; N]) -> impl Iterator<Item = u64> {
        std::iter::once((N as u64) << PLACE_BITS | (EVENTS + u64::from(kind))).chain(words)
    }

    /// Whether changes are noted.
    #[inline]
    pub fn is_kept(&self) -> bool {
        self.is_kept.get()
    }

    /// Words of notes that were not taken yet.
    pub fn words(&self) -> usize {
        self.notes.borrow().len()
    }

    /// Shows what was noted, and forgets it. Its memory is used again, so that no other is touched.
    pub fn take<R>(&self, show: impl FnOnce(&[u64]) -> R) -> R {
        let mut notes = self.notes.borrow_mut();
        let shown = show(&notes);
        notes.clear();
        // A directory that doubled is not to keep its length for ever.
        notes.shrink_to(NOTES_KEPT);
        shown
    }

    /// Notes one word: most changes are of one.
    #[inline]
    fn note_word(&self, place: Place, word: u64) {
        self.notes.borrow_mut().extend_from_slice(&[1 << PLACE_BITS | (place.0 / 8), word]);
    }

    #[inline]
    fn note(&self, place: Place, words: &[u64]) {
        if words.len() > WORDS_MAX {
            return self.note_many(place, words);
        }
        let mut notes = self.notes.borrow_mut();
        notes.reserve(1 + words.len());
        notes.push((words.len() as u64) << PLACE_BITS | (place.0 / 8));
        notes.extend_from_slice(words);
    }

    #[cold]
    fn note_many(&self, place: Place, words: &[u64]) {
        let mut notes = self.notes.borrow_mut();
        for (at, words) in words.chunks(WORDS_MAX).enumerate() {
            let place = place.0 / 8 + (at * WORDS_MAX) as u64;
            notes.push((words.len() as u64) << PLACE_BITS | place);
            notes.extend_from_slice(words);
        }
    }

    /// Notes an event of a kind ([`event`]), if somebody follows.
    #[inline]
    pub fn event(&self, kind: u16, words: &[u64]) {
        if self.is_kept.get() {
            self.note(Place((EVENTS + u64::from(kind)) * 8), words);
        }
    }

    #[cold]
    fn note_zeros(&self, place: Place, count: usize) {
        debug_assert!(count <= WORDS_MAX);
        let head = ZEROS | (count as u64) << PLACE_BITS;
        self.notes.borrow_mut().push(head | (place.0 / 8));
    }
}

/// Words of an image that are to be changed.
#[derive(Clone, Copy)]
pub struct Changes<'a> {
    words: Words<'a>,
    place: Place,
    /// If somebody follows.
    journal: Option<&'a Journal>,
}

impl<'a> Changes<'a> {
    #[inline(always)]
    pub(crate) fn new(words: Words<'a>, place: Place, journal: &'a Journal) -> Changes<'a> {
        Changes { words, place, journal: journal.is_kept.get().then_some(journal) }
    }

    /// Words of no image, which nobody follows.
    pub fn unfollowed(words: Words<'a>) -> Changes<'a> {
        Changes { words, place: Place(0), journal: None }
    }

    /// The words, to be looked at.
    #[inline(always)]
    pub fn words(self) -> Words<'a> {
        self.words
    }

    /// See [`Words::store`].
    #[inline(always)]
    pub fn store(self, index: usize, value: u64) {
        self.words.store(index, value);
        self.note_word(index, value);
    }

    /// See [`Words::publish`].
    #[inline(always)]
    pub fn publish(self, index: usize, value: u64) {
        self.words.publish(index, value);
        self.note_word(index, value);
    }

    /// See [`Words::copy_in`].
    #[inline(always)]
    pub fn copy_in(self, first: usize, from: &[u64]) {
        self.words.copy_in(first, from);
        self.note(first, from);
    }

    /// See [`Words::clear`].
    pub fn clear(self, first: usize, count: usize) {
        self.words.clear(first, count);
        if let Some(journal) = self.journal {
            journal.note_zeros(self.place.plus(first as u64 * 8), count);
        }
    }

    #[inline(always)]
    fn note_word(self, index: usize, word: u64) {
        if let Some(journal) = self.journal {
            journal.note_word(self.place.plus(index as u64 * 8), word);
        }
    }

    #[inline(always)]
    fn note(self, first: usize, words: &[u64]) {
        if let Some(journal) = self.journal {
            journal.note(self.place.plus(first as u64 * 8), words);
        }
    }
}

/// Does again what was noted, in memory that `words` finds; what was in segments that are gone is left out,
/// and so are events. Returns what is left: a note that does not end here.
pub fn redo<'a, 'n>(notes: &'n [u64], words: impl Fn(Place, usize) -> Option<Words<'a>>) -> &'n [u64] {
    let mut notes = Notes::new(notes);
    for note in notes.by_ref() {
        match note {
            Note::Words(place, from) => {
                if let Some(into) = words(place, from.len()) {
                    into.copy_in(0, from);
                }
            }
            Note::Zeros(place, count) => {
                if let Some(into) = words(place, count) {
                    into.clear(0, count);
                }
            }
            Note::Event(..) => {}
        }
    }
    notes.rest()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Span;

    #[test]
    fn what_was_noted_is_done_again() {
        let (from, to) = (Span::private(4096), Span::private(4096));
        let journal = Journal::default();
        let changes = |first: usize, count: usize| {
            let place = Place(first as u64 * 8);
            Changes::new(from.words().part(first, count), place, &journal)
        };
        changes(7, 1).store(0, 5);
        assert_eq!(journal.words(), 0, "nobody follows it");
        journal.event(event::KEPT, &[7]);
        assert_eq!(journal.words(), 0);
        journal.keep(true);
        changes(8, 4).publish(1, 6);
        changes(16, 8).copy_in(2, &[1, 2, 3]);
        changes(16, 8).clear(3, 1);
        let notes = journal.take(<[u64]>::to_vec);
        assert_eq!(notes, [1 << 41 | 9, 6, 3 << 41 | 18, 1, 2, 3, 1 << 63 | 1 << 41 | 19]);
        let words = |place: Place, count: usize| {
            let first = (place.0 / 8) as usize;
            (first + count <= 512).then(|| to.words().part(first, count))
        };
        assert!(redo(&notes, words).is_empty());
        let expected: Vec<u64> =
            (0..512).map(|index| if index == 7 { 0 } else { from.words().load(index) }).collect();
        assert_eq!((0..512).map(|index| to.words().load(index)).collect::<Vec<_>>(), expected);
        for cut in 1..notes.len() {
            let _ = redo(&notes[..cut], words);
        }
        assert!(redo(&[1 << 41 | 512, 1], words).is_empty(), "not there any more");
        assert_eq!(redo(&[2 << 41 | 5, 1], words), [2 << 41 | 5, 1], "cut");
    }
}
