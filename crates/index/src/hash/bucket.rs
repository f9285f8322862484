//! Buckets: one cache line, one header and seven slots.
//!
//! ```text
//! header  63    62..56   55      48 47     40 39    28 27       0
//!         [ 1 ][ moves ↑ ][ away    ][ depth  ][ moves ↓][ suffix ]
//! slot    63           48 47   46      40 39                   0
//!         [ signature    ][alt][ class   ][ place / 16          ]    zero: free
//! ```
//!
//! `suffix` and `depth` say which hashes the bucket serves, so that a reader with an old directory notices;
//! `away` counts the keys of this bucket that stand in their alternate bucket; `alt` marks such a slot.
//! `moves` is another number whenever a key of this bucket has moved between the two, and 0 while slots of
//! the subtable are stored in an order in which a key may be missing for a moment, and in what an earlier
//! build has stored: see [`names_none`](super::names_none).

use kelix_image::Kind;
use kelix_image::words::{Words, match_upper_halves};
use kelix_types::{KeyHash, Location};

/// Buckets of a subtable.
pub const BUCKETS: usize = 64;
/// Words of a bucket.
pub const BUCKET_WORDS: usize = 8;

const ALT: u64 = 1 << 47;
const VALID: u64 = 1 << 63;
const SUFFIX_BITS: u32 = 28;
const DEPTH_SHIFT: u32 = 40;
const AWAY_SHIFT: u32 = 48;
/// The upper 7 bits of the count of moves, and the lower 12: where earlier builds have zeros.
const MOVES_HIGH_SHIFT: u32 = 56;
const MOVES_LOW_BITS: u32 = DEPTH_SHIFT - SUFFIX_BITS;
const MOVES_MAX: u32 = (1 << (63 - MOVES_HIGH_SHIFT + MOVES_LOW_BITS)) - 1;
const MOVES_MASK: u64 = word_of_moves(MOVES_MAX);
const _: () = assert!(Kind::DIRECTORY_DEPTH_MAX <= SUFFIX_BITS);

/// The other bucket in which a key of `bucket` with this signature may stand. Its own inverse.
#[inline]
pub fn alternate(bucket: usize, signature: u16) -> usize {
    bucket ^ (1 + signature as usize % (BUCKETS - 1))
}

/// The header word of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BucketHeader {
    pub suffix: u64,
    pub depth: u32,
    pub away: u8,
    pub moves: u32,
}

impl BucketHeader {
    /// Of a bucket of a new subtable.
    pub fn new(suffix: u64, depth: u32) -> BucketHeader {
        BucketHeader { suffix, depth, away: 0, moves: 1 }
    }

    pub fn word(self) -> u64 {
        VALID
            | word_of_moves(self.moves)
            | u64::from(self.away) << AWAY_SHIFT
            | u64::from(self.depth) << DEPTH_SHIFT
            | self.suffix
    }

    #[inline]
    pub fn from_word(word: u64) -> Option<BucketHeader> {
        (word & VALID != 0).then_some(BucketHeader {
            suffix: word & ((1 << SUFFIX_BITS) - 1),
            depth: (word >> DEPTH_SHIFT) as u32 & 0xff,
            away: (word >> AWAY_SHIFT) as u8,
            moves: ((word & MOVES_MASK) >> MOVES_HIGH_SHIFT << MOVES_LOW_BITS
                | (word & MOVES_MASK) >> SUFFIX_BITS & ((1 << MOVES_LOW_BITS) - 1)) as u32,
        })
    }

    /// The same after a key of the bucket has moved.
    ///
    /// A reader that compares two of these words took at most two epochs for what is between, or believes
    /// nothing (docs/read-rule.md). A shard does not move keys half a million times in as long.
    pub fn moved(self) -> BucketHeader {
        BucketHeader { moves: if self.moves == MOVES_MAX { 1 } else { self.moves + 1 }, ..self }
    }

    /// The same while absence cannot be told.
    pub fn unsure(self) -> BucketHeader {
        BucketHeader { moves: 0, ..self }
    }
}

/// A count of moves where it stands in a header word.
const fn word_of_moves(moves: u32) -> u64 {
    let low = moves & ((1 << MOVES_LOW_BITS) - 1);
    ((moves >> MOVES_LOW_BITS) as u64) << MOVES_HIGH_SHIFT | (low as u64) << SUFFIX_BITS
}

/// A slot word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot(pub u64);

impl Slot {
    pub fn new(signature: u16, alt: bool, location: Location) -> Slot {
        Slot(u64::from(signature) << 48 | if alt { ALT } else { 0 } | location.word())
    }

    pub fn is_free(self) -> bool {
        self.0 == 0
    }

    pub fn signature(self) -> u16 {
        (self.0 >> 48) as u16
    }

    pub fn is_alt(self) -> bool {
        self.0 & ALT != 0
    }

    pub fn with_alt(self, alt: bool) -> Slot {
        Slot(self.0 & !ALT | if alt { ALT } else { 0 })
    }

    pub fn location(self) -> Location {
        Location::from_word(self.0).expect("a slot this index wrote")
    }

    /// Where its item stands; `None` if it is free, or no pointer.
    #[inline]
    pub fn pointer(self) -> Option<Location> {
        if self.is_free() { None } else { Location::from_word(self.0) }
    }
}

/// A bucket in a private copy, as a reader sees it.
#[derive(Clone, Copy)]
pub struct Bucket<'a>(pub &'a [u64; BUCKET_WORDS]);

impl Bucket<'_> {
    /// Whether the bucket serves this hash; if not, the reader's directory is old.
    #[inline]
    pub fn serves(self, hash: KeyHash) -> bool {
        serves(self.0[0], hash)
    }

    /// Whether keys of this bucket may stand in their alternate bucket.
    #[inline]
    pub fn has_away(self) -> bool {
        has_away(self.0[0])
    }

    /// The slots that may hold the key, as a bit mask; `alt` when this is the key's alternate bucket.
    #[inline]
    pub fn candidates(self, hash: KeyHash, alt: bool) -> u8 {
        // A free slot may be among the candidates of signature 0; it has no location.
        let wanted = (u32::from(hash.signature()) << 16) | (u32::from(alt) << 15);
        match_upper_halves(self.0, 0xffff_8000, wanted) & !1
    }

    /// Where the item of a slot stands; `None` if the word is no pointer.
    #[inline]
    pub fn location(self, slot: usize) -> Option<Location> {
        Slot(self.0[slot]).pointer()
    }
}

/// Whether a bucket with this header word serves a hash.
#[inline]
pub(super) fn serves(header: u64, hash: KeyHash) -> bool {
    // A depth that no writer ever writes compares other bits of the header as well, and serves nothing.
    let depth = (header >> DEPTH_SHIFT) as u32;
    header & VALID != 0 && (header ^ hash.0) & !u64::MAX.wrapping_shl(depth) == 0
}

/// Whether a bucket with this header word says that keys are away.
#[inline]
pub(super) fn has_away(header: u64) -> bool {
    header >> AWAY_SHIFT & 0xff != 0
}

/// Whether a header word says that no key may be missing for a moment.
#[inline]
pub(super) fn is_sure(header: u64) -> bool {
    header & MOVES_MASK != 0
}

/// A guess where the item of a hash stands, from its main bucket where that stands itself: the first slot
/// with its signature, as a location word whose class nobody has looked at. Whether the bucket serves the
/// hash at all is not asked.
#[inline(always)]
pub fn guess(bucket: Words<'_>, hash: KeyHash) -> Option<u64> {
    bucket.find_upper_quarter(hash.signature()).map(|slot| bucket.load(slot) & Location::MASK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelix_types::{Place, SizeClass};

    #[test]
    fn golden_words() {
        let header = BucketHeader { suffix: 5, depth: 3, away: 2, moves: 7 };
        assert_eq!(header.word(), 0x8002_0300_7000_0005);
        assert_eq!(BucketHeader::from_word(header.word()), Some(header));
        assert_eq!(BucketHeader::from_word(0), None);
        let last = BucketHeader { suffix: (1 << 26) - 1, depth: 26, away: u8::MAX, moves: MOVES_MAX };
        assert_eq!(BucketHeader::from_word(last.word()), Some(last));
        assert_eq!(last.word(), 0xffff_1aff_f3ff_ffff);
        assert_eq!(last.moved(), BucketHeader { moves: 1, ..last }, "0 is never come to by counting");
        let slot = Slot::new(0xBEEF, true, Location::new(Place(0x400_0040), SizeClass(2)));
        assert_eq!(slot.0, 0xBEEF_8200_0040_0004);
        assert!(slot.is_alt() && slot.signature() == 0xBEEF);
        assert_eq!(slot.with_alt(false).0, 0xBEEF_0200_0040_0004);
    }

    #[test]
    fn the_alternate_is_another_bucket_and_its_own_inverse() {
        for bucket in 0..BUCKETS {
            for signature in 0..=u16::MAX {
                let other = alternate(bucket, signature);
                assert!(other != bucket && other < BUCKETS && alternate(other, signature) == bucket);
            }
        }
    }

    #[test]
    fn a_bucket_serves_the_hashes_of_its_suffix() {
        let mut words = [0; BUCKET_WORDS];
        let hash = KeyHash(0xABCD_EF01_2345_6785);
        assert!(!Bucket(&words).serves(hash), "a cleared bucket serves nothing");
        words[0] = BucketHeader::new(5, 3).word();
        assert!(Bucket(&words).serves(hash) && !Bucket(&words).serves(KeyHash(hash.0 ^ 4)));
        assert!(Bucket(&words).serves(KeyHash(hash.0 ^ 8)), "bits above the depth do not matter");
        words[3] = Slot::new(hash.signature(), false, Location::new(Place(64), SizeClass(2))).0;
        assert_eq!(Bucket(&words).candidates(hash, false), 1 << 3);
        assert_eq!(Bucket(&words).candidates(hash, true), 0);
        assert_eq!(Bucket(&words).location(3).unwrap().place(), Place(64));
    }
}
