//! When items end.
//!
//! A note is made of each item that expires, and stays when the item is replaced or moved: the location and
//! incarnation in it then say that it is outdated. Outdated notes are cleared out whenever the notes have
//! doubled.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use kelix_image::Image;
use kelix_types::{Incarnation, Location};

/// Notes that are kept without looking which are still of use.
const NOTES_MIN: usize = 1024;

/// Notes of when items end.
pub(crate) struct Expiries {
    /// Expiry, location word, incarnation.
    notes: BinaryHeap<Reverse<(u64, u64, u64)>>,
    /// Notes at which the outdated ones are cleared out.
    most: usize,
}

impl Default for Expiries {
    fn default() -> Expiries {
        Expiries { notes: BinaryHeap::new(), most: NOTES_MIN }
    }
}

impl Expiries {
    /// So many items that end are there, and will be noted: without a look at those that were noted before.
    pub fn expect(&mut self, items: u64) {
        self.notes.reserve(items as usize);
        self.most = 2 * items as usize + NOTES_MIN;
    }

    /// Remembers when an item ends.
    pub fn note(&mut self, image: &Image, expires: u64, location: Location, incarnation: Incarnation) {
        if self.notes.len() >= self.most {
            self.notes
                .retain(|Reverse((_, location, incarnation))| is_current(image, *location, *incarnation));
            self.most = 2 * self.notes.len() + NOTES_MIN;
        }
        self.notes.push(Reverse((expires, location.word(), incarnation.0)));
    }

    /// When the next item ends, if its note is not outdated.
    pub fn next(&self) -> Option<u64> {
        self.notes.peek().map(|Reverse((expires, ..))| *expires)
    }

    /// Takes the next note. The item, if it is still there.
    pub fn take(&mut self, image: &Image) -> Option<Location> {
        let Reverse((_, location, incarnation)) = self.notes.pop()?;
        is_current(image, location, incarnation).then(|| location_of(location))
    }
}

/// The location of a note.
fn location_of(word: u64) -> Location {
    Location::from_word(word).expect("a location this shard noted")
}

/// Whether the object of a note is still the live one there. Its segment may be retired since.
fn is_current(image: &Image, location: u64, incarnation: u64) -> bool {
    let word = image.map().words(location_of(location).place(), 1).map(|slot| slot.load(0));
    word == Some(Incarnation(incarnation).live().0)
}
