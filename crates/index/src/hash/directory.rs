//! The directory as a reader has it: the writer's own where memory is within reach of loads, and else a
//! private copy, refreshed when a bucket says that it is old.

use kelix_image::{Kind, MemoryMap, Span, header_word};
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
    /// Where the word stands: the header page is at place 0.
    pub const AT: Place = Place(header_word::DIRECTORY as u64 * 8);

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

/// A directory as a reader has it: a copy, or where memory is within reach of loads the writer's own.
///
/// Of what age its entries are does not matter: a bucket that does not serve the hash is refused
/// (docs/read-rule.md, "Lemma 3").
#[derive(Clone)]
pub struct Directory {
    root: u64,
    mask: u64,
    entries: Span,
    is_copy: bool,
}

impl Default for Directory {
    /// None yet: an entry that leads nowhere.
    fn default() -> Directory {
        Directory::new(0, &[0])
    }
}

impl Directory {
    /// A copy of the entries that stood under the root word `root`.
    pub fn new(root: u64, entries: &[u64]) -> Directory {
        assert!(entries.len().is_power_of_two());
        let span = Span::private(size_of_val(entries) as u64);
        span.words().copy_in(0, entries);
        Directory { root, mask: entries.len() as u64 - 1, entries: span, is_copy: true }
    }

    /// The directory itself that a root word names. `None`: its memory is not mapped.
    pub fn in_place(map: &MemoryMap, root: DirectoryRoot) -> Option<Directory> {
        let entries = map.span(root.first_entry(), root.entries() as u64 * 8)?;
        Some(Directory { root: root.word(), mask: root.entries() as u64 - 1, entries, is_copy: false })
    }

    /// Whether its entries are a copy, which has to be refreshed.
    pub fn is_copy(&self) -> bool {
        self.is_copy
    }

    /// The root word under which it was found.
    pub fn root(&self) -> u64 {
        self.root
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.mask as usize + 1
    }

    /// Whether there is none yet.
    pub fn is_empty(&self) -> bool {
        self.root == 0
    }

    /// The place of a subtable.
    pub fn entry(&self, index: usize) -> u64 {
        self.entries.words().load(index)
    }

    /// Puts one refreshed entry into a copy.
    pub fn refresh(&mut self, hash: KeyHash, entry: u64) {
        assert!(self.is_copy, "a reader writes to no directory but its own copy");
        self.entries.words().store((hash.0 & self.mask) as usize, entry);
    }

    /// Where a bucket of the hash's subtable stands; `None` where no entry says so: there is no directory
    /// yet, or its memory was given back and reads as zeros.
    #[inline]
    pub fn bucket(&self, hash: KeyHash, bucket: usize) -> Option<Place> {
        let subtable = self.entries.words().load((hash.0 & self.mask) as usize);
        (subtable != 0).then(|| Place(subtable).plus((bucket * BUCKET_WORDS * 8) as u64))
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
        let directory = Directory::new(0, &[u64::MAX]);
        let place = directory.bucket(KeyHash(0), 63).unwrap();
        assert!(kelix_image::MemoryMap::default().words(place, BUCKET_WORDS).is_none());
    }
}
