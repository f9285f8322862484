//! What readers may believe where writes count only when they are committed: on the disk, say.
//!
//! The shard changes its memory first and is told later, record by record, that this is committed. Readers
//! see the memory meanwhile, and must not believe what could be undone:
//!
//! - *an item* if its incarnation, or the version of one that was moved, is above the last one that is
//!   committed ([`Committed::incarnation`]);
//! - *what a leaf says without an item*, a value of its own or that a key is absent, if the leaf was changed
//!   by a record that is not committed ([`is_pending`]);
//! - *that a key of a hash table is absent* if the last record that removed one is not committed.
//!
//! ```text
//! word 32      last committed incarnation        2^64 - 1, with the next: everything counts at once
//!      33      last committed record
//!      34      last record that changed a leaf
//!      36      last record that removed a key of a hash table
//!    4608 on   sets of 8 words: of 7 leaves  [ name 24 | record 40 ],  and a record of others that had no room
//! ```
//!
//! The set of a leaf and its name there follow from its incarnation. An entry is used for another leaf only
//! when its record is committed, and is published before the words of the leaf change. So whoever has seen a
//! change of a leaf finds there, afterwards, the record that made it, or a later one, or the record is
//! committed.

use std::cell::Cell;

use kelix_types::Incarnation;

use crate::header::{Header, features, header_word};
use crate::words::Words;

/// Words of a set.
pub const SET_WORDS: usize = 8;
/// Sets of a header page.
pub const SETS: usize = 256;
/// The last word of a set: the last record with a change of a leaf for which it had no room.
const OTHERS: usize = SET_WORDS - 1;
const RECORD_BITS: u32 = 40;
const RECORD_MASK: u64 = (1 << RECORD_BITS) - 1;

/// Up to where changes are committed. The two may be told at different moments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    /// The last incarnation.
    pub incarnation: u64,
    /// The last record.
    pub record: u64,
}

impl Committed {
    /// Everything counts at once.
    pub const ALL: Committed = Committed { incarnation: u64::MAX, record: u64::MAX };
    /// Nothing that is known of.
    pub const NONE: Committed = Committed { incarnation: 0, record: 0 };
}

/// The word of the header page with which the set of a leaf begins.
#[inline]
pub fn set_of(leaf: Incarnation) -> usize {
    header_word::LEAVES + leaf.0 as usize % SETS * SET_WORDS
}

/// What stands for a leaf in its set.
#[inline]
fn name_of(leaf: Incarnation) -> u64 {
    (leaf.0 / SETS as u64) << RECORD_BITS
}

/// Whether a record, of which the lower bits are known, is behind a committed one. So many are never under
/// way that the others mattered.
#[inline]
fn is_behind(record: u64, committed: u64) -> bool {
    (1..1 << (RECORD_BITS - 1)).contains(&(record.wrapping_sub(committed) & RECORD_MASK))
}

/// Whether a leaf may have been changed by a record behind the committed one, as its set says. The set and
/// the committed record are loaded behind the words of the leaf.
#[inline]
pub fn is_pending(set: &[u64; SET_WORDS], leaf: Incarnation, committed: u64) -> bool {
    let is_it = |entry: &u64| entry & !RECORD_MASK == name_of(leaf) && is_behind(*entry, committed);
    set[OTHERS] > committed || set[..OTHERS].iter().any(is_it)
}

/// The writer's side.
pub(crate) struct Watermark {
    committed: Committed,
    /// The record that has what changes now.
    record: Cell<u64>,
}

impl Watermark {
    /// From now on readers believe no more than what is said to be committed. Which leaves the records behind
    /// that have changed, up to the last one, nobody knows.
    pub fn begin(header: &Header, committed: Committed, last: u64) -> Watermark {
        let words = header.words();
        words.store(header_word::FEATURES, words.load(header_word::FEATURES) | features::COMMITS);
        for set in 0..SETS {
            let set = words.part(header_word::LEAVES + set * SET_WORDS, SET_WORDS);
            (0..OTHERS).for_each(|at| set.store(at, committed.record & RECORD_MASK));
            set.store(OTHERS, last);
        }
        words.store(header_word::REMOVALS_RECORD, last);
        let mut watermark = Watermark { committed, record: Cell::new(last + 1) };
        watermark.commit(header, committed);
        watermark
    }

    /// Up to where that was said.
    pub fn committed(&self) -> Committed {
        self.committed
    }

    /// Says up to where changes are committed.
    pub fn commit(&mut self, header: &Header, committed: Committed) {
        self.committed = committed;
        header.words().publish(header_word::COMMITTED, committed.incarnation);
        header.words().publish(header_word::COMMITTED_RECORD, committed.record);
    }

    /// What changes from now on is of this record.
    #[inline]
    pub fn begin_record(&self, record: u64) {
        self.record.set(record);
    }

    /// A key of a hash table is about to be removed.
    ///
    /// SYNC: as in [`Watermark::note_leaf`]: the store stays before that of the slot, which is published.
    #[inline]
    pub fn note_removal(&self, page: Words<'_>) {
        let record = self.record.get();
        if page.load(header_word::REMOVALS_RECORD) != record {
            page.publish(header_word::REMOVALS_RECORD, record);
        }
    }

    /// A leaf is about to change.
    ///
    /// SYNC: the publishing stores stay behind earlier ones, and the words of a leaf are published too: who
    /// has seen one of these, and then executes a load fence, sees what is stored here.
    pub fn note_leaf(&self, page: Words<'_>, leaf: Incarnation) {
        let record = self.record.get();
        if page.load(header_word::LEAVES_RECORD) != record {
            page.publish(header_word::LEAVES_RECORD, record);
        }
        let set = page.part(set_of(leaf), SET_WORDS);
        let mut free = None;
        for at in 0..OTHERS {
            let entry = set.load(at);
            if entry & !RECORD_MASK == name_of(leaf) {
                free = Some(at);
                break;
            }
            if free.is_none() && !is_behind(entry, self.committed.record) {
                free = Some(at);
            }
        }
        match free {
            Some(at) => set.publish(at, name_of(leaf) | record & RECORD_MASK),
            None => set.publish(OTHERS, record),
        }
    }
}

#[cfg(test)]
mod tests {
    use kelix_types::limits;

    use super::*;
    use crate::map::Span;

    struct Page {
        header: Header,
        watermark: Watermark,
    }

    impl Page {
        fn new(committed: u64) -> Page {
            let header = Header::create(Span::private(Header::BYTES), 1, 2, limits::EPOCH_NS, 3);
            let committed = Committed { incarnation: 0, record: committed };
            let watermark = Watermark::begin(&header, committed, committed.record);
            Page { header, watermark }
        }

        /// Of which no more is committed than up to a record that is not the last one.
        fn behind(committed: u64, last: u64) -> Page {
            let mut page = Page::new(committed);
            let committed = Committed { incarnation: 0, record: committed };
            page.watermark = Watermark::begin(&page.header, committed, last);
            page
        }

        fn note(&self, record: u64, leaf: u64) {
            self.watermark.begin_record(record);
            self.watermark.note_leaf(self.header.words(), Incarnation(leaf));
        }

        fn commit(&mut self, record: u64) {
            self.watermark.commit(&self.header, Committed { incarnation: 0, record });
        }

        fn is_pending(&self, leaf: u64) -> bool {
            let mut set = [0; SET_WORDS];
            self.header.words().copy_out(set_of(Incarnation(leaf)), &mut set);
            let committed = self.header.words().load(header_word::COMMITTED_RECORD);
            is_pending(&set, Incarnation(leaf), committed)
        }
    }

    /// Leaves of one set.
    fn leaf(number: u64) -> u64 {
        0x77 + number * SETS as u64
    }

    #[test]
    fn all_leaves_are_pending_where_nobody_knows_what_was_changed_last() {
        let mut page = Page::behind(0, 7);
        assert!((0..300).all(|leaf| page.is_pending(leaf)));
        page.commit(6);
        assert!(page.is_pending(leaf(0)));
        page.commit(7);
        assert!((0..300).all(|leaf| !page.is_pending(leaf)));
    }

    #[test]
    fn a_leaf_is_pending_until_its_record_is_committed() {
        let mut page = Page::new(4);
        assert!(!page.is_pending(leaf(0)));
        page.note(5, leaf(0));
        assert!(page.is_pending(leaf(0)) && !page.is_pending(leaf(1)) && !page.is_pending(leaf(0) + 1));
        assert_eq!(page.header.words().load(header_word::LEAVES_RECORD), 5);
        page.note(6, leaf(0));
        page.commit(5);
        assert!(page.is_pending(leaf(0)));
        page.commit(6);
        assert!(!page.is_pending(leaf(0)));
    }

    #[test]
    fn an_entry_is_used_again_when_its_record_is_committed_and_none_is_lost_when_all_are_pending() {
        let mut page = Page::new(0);
        for number in 0..OTHERS as u64 {
            page.note(1 + number, leaf(number));
        }
        assert!(!page.is_pending(leaf(100)));
        page.note(50, leaf(100));
        assert!((0..7).all(|number| page.is_pending(leaf(number))) && page.is_pending(leaf(100)));
        assert!(page.is_pending(leaf(200)), "nobody can tell which it was");
        page.commit(2);
        page.note(51, leaf(101));
        page.commit(50);
        let pending: Vec<u64> = (0..300).filter(|number| page.is_pending(leaf(*number))).collect();
        assert_eq!(pending, [101]);
    }

    #[test]
    fn records_may_have_more_bits_than_an_entry_keeps() {
        let mut page = Page::new(RECORD_MASK - 1);
        page.note(RECORD_MASK, leaf(0));
        page.note(RECORD_MASK + 1, leaf(1));
        assert!(page.is_pending(leaf(0)) && page.is_pending(leaf(1)));
        page.commit(RECORD_MASK);
        assert!(!page.is_pending(leaf(0)) && page.is_pending(leaf(1)));
        page.commit(RECORD_MASK + 1);
        assert!(!page.is_pending(leaf(0)) && !page.is_pending(leaf(1)));
    }

    #[test]
    fn golden_words() {
        let page = Page::new(4);
        page.note(5, 0x0000_0003_0012_3477);
        let words = page.header.words();
        let set: Vec<u64> = (0..8).map(|at| words.load(header_word::LEAVES + 0x77 * 8 + at)).collect();
        assert_eq!(set, [0x0012_3400_0000_0005, 4, 4, 4, 4, 4, 4, 4]);
        assert_eq!([2, 32, 33, 34].map(|word| words.load(word)), [1, 0, 4, 5]);
    }
}
