//! Leaves: a header of one cache line, and 16 slots in the order in which they were filled.
//!
//! ```text
//! word 0  guardian
//!      1  numbers: lower fence, the first number it may hold     strings: location of the item with its fences
//!      2  numbers: upper fence, the last number it may hold      strings: 0
//!      3  next leaf: place / 16, 0 for none                      may change
//!      4  EMPTY: what the unused words of its slots hold; equal to no used one
//!      5  tags of slots 0 to 7, a byte each, 0: not used yet     may change
//!      6  tags of slots 8 to 15                                  may change
//!      7  63 table 48 | 47 .. 25 zero | 24 LAST | 23 .. 17 zero | 16 prefix 0
//!      8  slot 0: key word, second word                          may change
//!      .  ...
//!     38  slot 15
//! ```
//!
//! The key word of a number is the number. That of a string has its 8 bytes after the prefix, the first of
//! them highest, zeros behind its end: strings in order have key words in order, and may share one. Tags of
//! strings follow from all of their bytes. The prefix is as long as whoever wrote the leaf found all its keys
//! to have in common. The second word is an inline value or an item's location.
//!
//! Filling a slot, its second word comes first, then the key word, then the tag: a slot with an EMPTY word
//! does not exist. Afterwards only the second word changes; EMPTY again means deleted. A slot is never used
//! for another key.

use kelix_image::words::{Words, match_bytes};
use kelix_image::{Changes, Kind};
use kelix_types::limits::LEAF_SLOTS;
use kelix_types::{Guardian, Location, Place, TableId, limits};

/// Words before the slots.
pub const LEAF_HEADER_WORDS: usize = Kind::LEAF_SLOTS_START;

/// Word numbers in a leaf.
pub(crate) mod leaf_word {
    pub const LOW: usize = 1;
    pub const HIGH: usize = 2;
    pub const NEXT: usize = 3;
    pub const EMPTY: usize = kelix_image::Kind::LEAF_EMPTY;
    pub const TAGS: usize = 5;
    pub const META: usize = 7;
}

const LAST: u64 = 1 << 24;
const PREFIX_MASK: u64 = (1 << 17) - 1;
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// What stands for a key in a slot, after a prefix of so many bytes.
#[inline]
pub fn key_word(key: &[u8], prefix_bytes: usize) -> u64 {
    let rest = key.get(prefix_bytes..).unwrap_or(&[]);
    match rest.first_chunk::<8>() {
        Some(head) => u64::from_be_bytes(*head),
        None => {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(bytes)
        }
    }
}

/// How many bytes two strings have in common from their beginnings on.
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// A few bits that follow from a number, never 0.
#[inline]
pub fn tag_of_number(number: u64) -> u8 {
    ((number.wrapping_mul(GOLDEN) >> 56) as u8).max(1)
}

/// A few bits that follow from all bytes of a string, never 0.
#[inline]
pub fn tag_of_string(key: &[u8]) -> u8 {
    let mixed = (0..key.len()).step_by(8).fold(key.len() as u64, |mixed, at| {
        let mixed = (mixed ^ key_word(key, at)).wrapping_mul(GOLDEN);
        mixed ^ mixed >> 32
    });
    tag_of_number(mixed)
}

/// The slots of a bit mask, from the first on.
#[inline(always)]
pub fn slots(mut mask: u16) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let slot = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (slot < LEAF_SLOTS).then_some(slot)
    })
}

/// The first cache line of a leaf, in a private copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeafHeader(pub [u64; LEAF_HEADER_WORDS]);

impl LeafHeader {
    /// Copies it from where a leaf begins.
    #[inline(always)]
    pub fn load(leaf: Words<'_>) -> LeafHeader {
        let mut words = [0; LEAF_HEADER_WORDS];
        leaf.copy_out(0, &mut words);
        LeafHeader(words)
    }

    /// The guardian.
    #[inline]
    pub fn guardian(&self) -> Guardian {
        Guardian(self.0[0])
    }

    /// The table.
    #[inline]
    pub fn table(&self) -> TableId {
        TableId((self.0[leaf_word::META] >> 48) as u16)
    }

    /// Bytes that all its keys share.
    #[inline]
    pub fn prefix_bytes(&self) -> usize {
        (self.0[leaf_word::META] & PREFIX_MASK) as usize
    }

    /// Whether no key of the table is above it.
    #[inline]
    pub fn is_last(&self) -> bool {
        self.0[leaf_word::META] & LAST != 0
    }

    /// Whether a number is between its fences.
    #[inline]
    pub fn holds_number(&self, number: u64) -> bool {
        let (low, high) = (self.0[leaf_word::LOW], self.0[leaf_word::HIGH]);
        low <= number && number <= high
    }

    /// The last number that it may hold.
    #[inline]
    pub fn last_number(&self) -> u64 {
        self.0[leaf_word::HIGH]
    }

    /// The first number that it may hold.
    #[inline]
    pub fn first_number(&self) -> u64 {
        self.0[leaf_word::LOW]
    }

    /// Where the item with the fences of a leaf of strings stands.
    #[inline]
    pub fn fences(&self) -> Option<Location> {
        Location::from_word(self.0[leaf_word::LOW]).filter(|_| self.0[leaf_word::LOW] != 0)
    }

    /// The leaf after it.
    #[inline]
    pub fn next(&self) -> Option<Place> {
        next_place(self.0[leaf_word::NEXT])
    }

    /// What unused words hold.
    #[inline]
    pub fn empty(&self) -> u64 {
        self.0[leaf_word::EMPTY]
    }

    /// The slots that may hold a key with this tag, as a bit mask.
    #[inline(always)]
    pub fn candidates(&self, tag: u8) -> u16 {
        match_bytes([self.0[leaf_word::TAGS], self.0[leaf_word::TAGS + 1]], tag)
    }

    /// The slots that have been filled, as a bit mask.
    #[inline]
    pub fn filled(&self) -> u16 {
        !match_bytes([self.0[leaf_word::TAGS], self.0[leaf_word::TAGS + 1]], 0)
    }

    /// Of these slots (a bit mask) those that have a key word, each with its second word. `load` brings both
    /// words of a slot.
    #[inline(always)]
    pub fn matching(
        self,
        mask: u16,
        key_word: u64,
        load: impl Fn(usize) -> [u64; 2],
    ) -> impl Iterator<Item = (usize, u64)> {
        slots(mask).filter_map(move |slot| {
            let (found, second) = self.entry(load(slot))?;
            (found == key_word).then_some((slot, second))
        })
    }

    /// What a slot of these words says: its key word and its second word, unless one of them is EMPTY.
    #[inline]
    pub fn entry(&self, [key, second]: [u64; 2]) -> Option<(u64, u64)> {
        (key != self.empty() && second != self.empty()).then_some((key, second))
    }
}

fn next_place(word: u64) -> Option<Place> {
    (word != 0).then(|| Location::place_of(word))
}

/// The word of a slot's key; its second word is the next.
#[inline]
pub const fn slot_word(slot: usize) -> usize {
    LEAF_HEADER_WORDS + 2 * slot
}

/// Both words of a slot, where it stands. The key word is loaded first.
#[inline]
pub fn load_slot(leaf: Words<'_>, slot: usize) -> [u64; 2] {
    [leaf.load_acquire(slot_word(slot)), leaf.load(slot_word(slot) + 1)]
}

/// The fences of a leaf of numbers, or where those of a leaf of strings stand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fences {
    Numbers { low: u64, high: u64 },
    Strings { location: Location, last: bool },
}

/// A leaf to be written.
pub(crate) struct NewLeaf<'a> {
    pub table: TableId,
    pub fences: Fences,
    pub prefix_bytes: usize,
    pub empty: u64,
    /// Key words and second words, and the keys' tags.
    pub entries: &'a [[u64; 2]],
    pub tags: [u8; LEAF_SLOTS],
}

impl NewLeaf<'_> {
    /// Writes everything but the guardian and the next leaf.
    pub fn write(&self, leaf: Changes<'_>) {
        debug_assert!(self.entries.len() <= LEAF_SLOTS && self.prefix_bytes <= limits::KEY_BYTES_MAX);
        let mut words = [self.empty; Kind::LEAF_WORDS];
        for (slot, entry) in self.entries.iter().enumerate() {
            debug_assert!(!entry.contains(&self.empty) && self.tags[slot] != 0);
            words[slot_word(slot)..][..2].copy_from_slice(entry);
        }
        let (low, high, last) = match self.fences {
            Fences::Numbers { low, high } => (low, high, high == u64::MAX),
            Fences::Strings { location, last } => (location.word(), 0, last),
        };
        let meta = u64::from(self.table.0) << 48 | if last { LAST } else { 0 } | self.prefix_bytes as u64;
        let half = |at: usize| u64::from_le_bytes(self.tags[at..at + 8].try_into().expect("8 tags"));
        words[1..LEAF_HEADER_WORDS].copy_from_slice(&[low, high, 0, self.empty, half(0), half(8), meta]);
        leaf.copy_in(1, &words[1..]);
    }
}

/// Fills an unused slot.
pub(crate) fn fill_slot(leaf: Changes<'_>, slot: usize, tag: u8, [key, second]: [u64; 2]) {
    leaf.publish(slot_word(slot) + 1, second);
    leaf.publish(slot_word(slot), key);
    let word = leaf_word::TAGS + slot / 8;
    leaf.publish(word, leaf.words().load(word) | u64::from(tag) << (slot % 8 * 8));
}

/// Names the leaf after one.
pub(crate) fn set_next(leaf: Changes<'_>, next: Option<Place>) {
    leaf.publish(leaf_word::NEXT, next.map_or(0, |next| next.0 / limits::PLACE_ALIGN));
}

const _: () = assert!(LEAF_SLOTS == 16 && Kind::LEAF_WORDS == LEAF_HEADER_WORDS + 2 * LEAF_SLOTS);
// A prefix and the LAST bit have room beside each other.
const _: () = assert!((limits::KEY_BYTES_MAX as u64) < PREFIX_MASK && LAST > PREFIX_MASK);

#[cfg(test)]
mod tests {
    use super::*;
    use kelix_image::Span;
    use kelix_types::{SizeClass, TableKind};

    fn tags<const N: usize>(of: [u8; N]) -> [u8; LEAF_SLOTS] {
        std::array::from_fn(|slot| of.get(slot).copied().unwrap_or(0))
    }

    #[test]
    fn golden_leaf_of_numbers() {
        let span = Span::private(320);
        let table = TableId::new(TableKind::Inline, 3);
        let fences = Fences::Numbers { low: 100, high: 199 };
        let entries = [[150, 7], [101, 8]];
        let tags = tags([tag_of_number(150), tag_of_number(101)]);
        NewLeaf { table, fences, prefix_bytes: 0, empty: 0xEEEE, entries: &entries, tags }
            .write(Changes::unfollowed(span.words()));
        set_next(Changes::unfollowed(span.words()), Some(Place(0x400_0140)));
        let mut words = [0; Kind::LEAF_WORDS];
        span.words().copy_out(0, &mut words);
        assert_eq!(
            words[..12],
            [0, 100, 199, 0x40_0014, 0xEEEE, 0x6BB4, 0, 0x4003_0000_0000_0000, 150, 7, 101, 8]
        );
        assert!(words[12..].iter().all(|word| *word == 0xEEEE));
        fill_slot(Changes::unfollowed(span.words()), 2, tag_of_number(160), [160, 9]);
        let header = LeafHeader::load(span.words());
        assert_eq!(header.0[leaf_word::TAGS], 0xE26BB4);
        let candidates = |number| header.candidates(tag_of_number(number));
        assert_eq!((header.filled(), candidates(101), candidates(160)), (7, 2, 4));
        assert!(header.holds_number(100) && header.holds_number(199) && !header.holds_number(200));
        assert_eq!(
            (header.table(), header.next(), header.is_last()),
            (table, Some(Place(0x400_0140)), false)
        );
        assert_eq!(header.entry(load_slot(span.words(), 2)), Some((160, 9)));
        assert_eq!(header.entry(load_slot(span.words(), 3)), None);
        assert_eq!((header.entry([5, 0xEEEE]), header.entry([0xEEEE, 5])), (None, None));
    }

    #[test]
    fn golden_leaf_of_strings() {
        let span = Span::private(320);
        let table = TableId::new(TableKind::Strings, 1);
        let location = Location::new(Place(0x400_0040), SizeClass(2));
        let fences = Fences::Strings { location, last: true };
        let entries = [[key_word(b"user17", 4), 77]];
        let tags = tags([tag_of_string(b"user17")]);
        NewLeaf { table, fences, prefix_bytes: 4, empty: 0xEEEE, entries: &entries, tags }
            .write(Changes::unfollowed(span.words()));
        let header = LeafHeader::load(span.words());
        assert_eq!((header.0[leaf_word::TAGS], tag_of_string(b"user17-and-more")), (0x41, 0xE9));
        assert_eq!(header.0[leaf_word::META], 0xC001_0000_0100_0004);
        assert_eq!((header.fences(), header.prefix_bytes()), (Some(location), 4));
        assert!(header.is_last() && header.next().is_none());
        assert_eq!(load_slot(span.words(), 0), [0x3137_0000_0000_0000, 77]);
    }

    #[test]
    fn key_words_keep_the_order_of_their_keys() {
        let keys: [&[u8]; 9] = [b"", b"\0", b"a", b"a\0", b"a\0b", b"ab", b"abcdefgh", b"abcdefghi", b"b"];
        for pair in keys.windows(2) {
            assert!(key_word(pair[0], 0) <= key_word(pair[1], 0), "{pair:?}");
        }
        assert_eq!(key_word(b"abc", 5), 0, "a key shorter than the prefix");
        assert_eq!(key_word(&7u64.to_be_bytes(), 0), 7);
        assert!((0..100_000).all(|number| tag_of_number(number) != 0));
    }
}
