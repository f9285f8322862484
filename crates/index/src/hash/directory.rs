//! The directory as a reader keeps it: a private copy, refreshed when a bucket says that it is old.

use kelix_image::Kind;
use kelix_types::{KeyHash, Place, limits};

use super::bucket::BUCKET_WORDS;

/// The root word of the header page: where the directory stands and how deep it is.
///
/// ```text
/// 63 48 | 47 depth 40 | 39 place / 16 0
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectoryRoot {
    /// Where the directory object stands.
    pub place: Place,
    /// It has 2^depth entries.
    pub depth: u32,
}

impl DirectoryRoot {
    /// The word.
    pub fn word(self) -> u64 {
        (self.place.0 / limits::PLACE_ALIGN) | (u64::from(self.depth) << 40)
    }

    /// Reads the word; `None` when the depth is beyond the limit.
    pub fn from_word(word: u64) -> Option<DirectoryRoot> {
        let root = DirectoryRoot {
            place: Place((word & ((1 << 40) - 1)) * limits::PLACE_ALIGN),
            depth: (word >> 40) as u32 & 0xff,
        };
        (root.place.0 != 0 && root.depth <= Kind::DIRECTORY_DEPTH_MAX).then_some(root)
    }

    /// Where the entry of a hash stands.
    pub fn entry(self, hash: KeyHash) -> Place {
        self.first_entry().plus(hash.suffix(self.depth) * 8)
    }

    /// Where the entries begin.
    pub fn first_entry(self) -> Place {
        self.place.plus(Kind::DIRECTORY_ENTRIES_START)
    }

    /// Number of entries.
    pub fn entries(self) -> usize {
        1 << self.depth
    }
}

/// A reader's copy of the directory.
#[derive(Clone, Default)]
pub struct Directory {
    root: u64,
    mask: u64,
    entries: Vec<u64>,
}

impl Directory {
    /// A copy of the entries that stood under the root word `root`.
    pub fn new(root: u64, entries: Vec<u64>) -> Directory {
        assert!(entries.len().is_power_of_two());
        Directory { root, mask: entries.len() as u64 - 1, entries }
    }

    /// The root word it was copied under.
    pub fn root(&self) -> u64 {
        self.root
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no copy is held yet.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The place of a subtable.
    pub fn entry(&self, index: usize) -> u64 {
        self.entries[index]
    }

    /// Puts one refreshed entry in.
    pub fn refresh(&mut self, hash: KeyHash, entry: u64) {
        self.entries[(hash.0 & self.mask) as usize] = entry;
    }

    /// Where a bucket of the hash's subtable stands; `None` while no copy is held.
    #[inline]
    pub fn bucket(&self, hash: KeyHash, bucket: usize) -> Option<Place> {
        let subtable = *self.entries.get((hash.0 & self.mask) as usize)?;
        Some(Place(subtable).plus((bucket * BUCKET_WORDS * 8) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_root_word() {
        let root = DirectoryRoot { place: Place(0x400_1000), depth: 13 };
        assert_eq!(root.word(), 0x0000_0d00_0040_0100);
        assert_eq!(DirectoryRoot::from_word(root.word()), Some(root));
        assert_eq!(root.entry(KeyHash(0x2005)), Place(0x400_1040 + 5 * 8));
        assert_eq!((DirectoryRoot::from_word(0), DirectoryRoot::from_word(27 << 40 | 1)), (None, None));
    }

    /// Found by fuzzing: an entry that no writer writes overflowed when the bucket's distance was added,
    /// which ended debug builds of a reader whose copy of the directory was torn or foreign.
    #[test]
    fn an_entry_that_is_no_place_leads_nowhere_and_does_not_panic() {
        let directory = Directory::new(0, vec![u64::MAX]);
        let place = directory.bucket(KeyHash(0), 63).unwrap();
        assert!(kelix_image::MemoryMap::default().words(place, BUCKET_WORDS).is_none());
    }
}
