//! Where an object stands and which object it is: places, locations, guardians.
//!
//! ```text
//! location word   63      48 47  46      40 39                    0
//!                 [ spare  ][ s ][ class  ][ place / 16            ]   s: spare, used by index slots
//! guardian word   63   62            32 31                        0
//!                 [live][ term         ][ counter                  ]
//! ```

use crate::{SizeClass, limits};

/// A byte offset in an image, a multiple of 16. Every pointer inside an image is one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place(pub u64);

impl Place {
    /// The place `bytes` further on. A reader counts on from words that nobody has checked, so this wraps;
    /// whether there is memory is for the map to say.
    #[inline]
    pub const fn plus(self, bytes: u64) -> Place {
        Place(self.0.wrapping_add(bytes))
    }

    /// The granule this place stands in.
    #[inline]
    pub const fn granule(self) -> usize {
        (self.0 / limits::GRANULE_BYTES) as usize
    }

    /// The distance from the start of its granule.
    #[inline]
    pub const fn in_granule(self) -> u64 {
        self.0 % limits::GRANULE_BYTES
    }
}

/// A place together with the size class of the slot there: all a reader needs to post a READ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Location(u64);

impl Location {
    const PLACE_MASK: u64 = (1 << 40) - 1;
    const CLASS_SHIFT: u32 = 40;

    /// Bits a location uses of its word. The others belong to whoever stores it.
    pub const MASK: u64 = (1 << 47) - 1;

    /// Where a slot of `class` stands.
    #[inline]
    pub const fn new(place: Place, class: SizeClass) -> Location {
        Location((place.0 / limits::PLACE_ALIGN) | ((class.0 as u64) << Self::CLASS_SHIFT))
    }

    /// Reads a location out of a word that came from shared memory or a message. `None` when it names no
    /// class; whether the place exists is for the memory map to say.
    #[inline]
    pub const fn from_word(word: u64) -> Option<Location> {
        let class = (word >> Self::CLASS_SHIFT) as u8 & 0x7f;
        if (class as usize) < SizeClass::COUNT { Some(Location(word & Self::MASK)) } else { None }
    }

    /// The place that a location word names, whatever class it names.
    #[inline(always)]
    pub const fn place_of(word: u64) -> Place {
        Place((word & Self::PLACE_MASK) * limits::PLACE_ALIGN)
    }

    /// The word form.
    #[inline]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The place.
    #[inline]
    pub const fn place(self) -> Place {
        Self::place_of(self.0)
    }

    /// The size class of the slot.
    #[inline]
    pub const fn class(self) -> SizeClass {
        SizeClass((self.0 >> Self::CLASS_SHIFT) as u8)
    }
}

/// Which object stood at a place: the guardian word without its live bit. Never comes back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Incarnation(pub u64);

impl Incarnation {
    /// Bits of the counter; the term stands above them.
    pub const COUNTER_BITS: u32 = 32;
    /// Largest term.
    pub const TERM_MAX: u64 = (1 << 31) - 1;

    /// The first incarnation of a term. The following ones count up from it.
    pub const fn first_of_term(term: u64) -> Incarnation {
        assert!(term > 0 && term <= Self::TERM_MAX);
        Incarnation(term << Self::COUNTER_BITS)
    }

    /// The term it was made in.
    pub const fn term(self) -> u64 {
        self.0 >> Self::COUNTER_BITS
    }

    /// Its place within the term.
    pub const fn counter(self) -> u64 {
        self.0 & ((1 << Self::COUNTER_BITS) - 1)
    }

    /// The next incarnation, or `None` when the term's counter is used up and the term must be raised.
    pub const fn next(self) -> Option<Incarnation> {
        let next = self.0 + 1;
        if next & ((1 << Self::COUNTER_BITS) - 1) == 0 { None } else { Some(Incarnation(next)) }
    }

    /// The guardian of this object while it is live.
    #[inline]
    pub const fn live(self) -> Guardian {
        Guardian(self.0 | Guardian::LIVE)
    }

    /// The guardian of this object before it is live and after its death.
    #[inline]
    pub const fn dead(self) -> Guardian {
        Guardian(self.0)
    }
}

/// The first word of every object: whether it is live, and which one it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guardian(pub u64);

impl Guardian {
    const LIVE: u64 = 1 << 63;

    /// Whether the object is live: committed, and reachable by its key.
    #[inline]
    pub const fn is_live(self) -> bool {
        self.0 & Self::LIVE != 0
    }

    /// Which object it is.
    #[inline]
    pub const fn incarnation(self) -> Incarnation {
        Incarnation(self.0 & !Self::LIVE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_words() {
        let location = Location::new(Place(0x1234_5670), SizeClass(5));
        assert_eq!(location.word(), 0x0000_0500_0123_4567);
        assert_eq!(Location::from_word(location.word() | 0xffff << 48), Some(location));
        assert_eq!(Location::from_word(127 << 40), None);
        let incarnation = Incarnation::first_of_term(3).next().unwrap();
        assert_eq!(incarnation.live().0, 0x8000_0003_0000_0001);
        assert_eq!(incarnation.dead().0, 0x0000_0003_0000_0001);
        assert_eq!(incarnation.live().incarnation(), incarnation);
        assert_eq!(Incarnation((1 << 32) - 1).next(), None);
    }
}
