//! Changes of an image, in their order, for whoever keeps a copy of it.
//!
//! All that a writer stores into objects that last goes through [`Changes`]. While somebody follows the
//! image, each is also noted in its [`Journal`]: a word `[ zeros 1 | words 22 | place / 8 41 ]`, and unless
//! they are zeros so many words. Whoever copies the image's memory while it changes, in any order, and then
//! does all that was noted meanwhile, in its order, has the image as it was at the end of the journal: a word
//! that did not change was copied as it is, and of one that changed the last store is noted.
//!
//! Models are no part of it: whoever takes an image over trains new ones.

use std::cell::{Cell, RefCell};

use kelix_types::Place;

use crate::words::Words;

const PLACE_BITS: u32 = 41;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;
const ZEROS: u64 = 1 << 63;
/// Most words of one note.
const WORDS_MAX: usize = (1 << 22) - 1;

/// What was stored since it was last taken, if anybody wants to know.
#[derive(Default)]
pub(crate) struct Journal {
    is_kept: Cell<bool>,
    notes: RefCell<Vec<u64>>,
}

impl Journal {
    pub fn keep(&self, kept: bool) {
        self.is_kept.set(kept);
        if !kept {
            self.notes.take();
        }
    }

    pub fn words(&self) -> usize {
        self.notes.borrow().len()
    }

    pub fn take(&self) -> Vec<u64> {
        self.notes.take()
    }

    #[cold]
    fn note(&self, place: Place, words: &[u64]) {
        let mut notes = self.notes.borrow_mut();
        for (at, words) in words.chunks(WORDS_MAX).enumerate() {
            let place = place.0 / 8 + (at * WORDS_MAX) as u64;
            notes.push((words.len() as u64) << PLACE_BITS | place);
            notes.extend_from_slice(words);
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
        self.note(index, &[value]);
    }

    /// See [`Words::publish`].
    #[inline(always)]
    pub fn publish(self, index: usize, value: u64) {
        self.words.publish(index, value);
        self.note(index, &[value]);
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
    fn note(self, first: usize, words: &[u64]) {
        if let Some(journal) = self.journal {
            journal.note(self.place.plus(first as u64 * 8), words);
        }
    }
}

/// Does again what was noted, in memory that `words` finds; what was in segments that are gone is left out.
/// Returns what is left: a note that does not end here.
pub fn redo<'a, 'n>(mut notes: &'n [u64], words: impl Fn(Place, usize) -> Option<Words<'a>>) -> &'n [u64] {
    while let Some((head, rest)) = notes.split_first() {
        let count = (head >> PLACE_BITS) as usize & WORDS_MAX;
        let zeros = head & ZEROS != 0;
        let Some((from, rest)) = rest.split_at_checked(if zeros { 0 } else { count }) else { break };
        if let Some(into) = words(Place((head & PLACE_MASK) * 8), count) {
            if zeros { into.clear(0, count) } else { into.copy_in(0, from) }
        }
        notes = rest;
    }
    notes
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
        assert!(journal.take().is_empty(), "nobody follows it");
        journal.keep(true);
        changes(8, 4).publish(1, 6);
        changes(16, 8).copy_in(2, &[1, 2, 3]);
        changes(16, 8).clear(3, 1);
        let notes = journal.take();
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
