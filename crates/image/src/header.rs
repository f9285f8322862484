//! The header page: what a reader must know about an image before anything else.
//!
//! One page of its own per image, written by the shard thread alone. Words with different rhythms stand in
//! different cache lines, so that the epoch word, which every one-sided read loads, is not disturbed.
//!
//! ```text
//! word  0 magic "KELIXIMG"      1 layout version | byte-order mark   2 feature bits     3 image id
//!       4 hash seed             5 L, nanoseconds                     6 term             7 deadline of a mirror
//!       8 reclamation epoch
//!      16 directory root       17 roots of ordered tables          18 segments version     19 state
//!      20 generations: counts up when one comes into force, and before one is dropped
//!      24 sleeping: 1 while the shard thread sleeps and must be woken
//!      32 last committed incarnation       33 last committed record    34 last record that changed a leaf
//!         (of a mirror: the last that is here)                        35 as of when a mirror is known to be whole
//!     512 and on: a bit for each granule, 1 where a segment began that is retired
//!    4608 and on: which leaves were changed lately, and by which record
//! ```

use kelix_types::{Error, ErrorKind, Guardian, Result, limits};

use crate::LAYOUT_VERSION;
use crate::map::{SharedWord, Span};
use crate::watermark::{Committed, SET_WORDS, SETS};
use crate::words::Words;

/// Word numbers in the header page.
pub mod header_word {
    /// "KELIXIMG" in ASCII.
    pub const MAGIC: usize = 0;
    /// Layout version in the low half, the byte-order mark in the high half.
    pub const VERSION: usize = 1;
    /// Features a reader must know; an unknown bit is refused.
    pub const FEATURES: usize = 2;
    /// A random number that tells this image from every other.
    pub const IMAGE_ID: usize = 3;
    /// Seed of the key hash.
    pub const HASH_SEED: usize = 4;
    /// Shortest time between two epochs.
    pub const EPOCH_NS: usize = 5;
    /// Term of the server that writes the image.
    pub const TERM: usize = 6;
    /// When reads of a mirror end, by the system's monotonic clock; 0: when the authority word says so.
    pub const LEASE: usize = 7;
    /// The reclamation epoch.
    pub const EPOCH: usize = 8;
    /// Directory of the hash index: place / 16 and depth << 40.
    pub const DIRECTORY: usize = 16;
    /// List of the roots of ordered tables: place / 16 and bits << 40; 0: there is none.
    pub const ROOTS: usize = 17;
    /// Counts up whenever a segment is added or retired.
    pub const SEGMENTS: usize = 18;
    /// An [`ImageState`](super::ImageState).
    pub const STATE: usize = 19;
    /// Counts up when another generation of loaded tables comes into force (shard 0), and before what is in
    /// one is dropped.
    pub const GENERATIONS: usize = 20;
    /// Not 0 while the shard thread sleeps: another number for each sleep.
    pub const SLEEPING: usize = 24;
    /// The core that the shard thread was last seen on when it waited or woke somebody, and one; 0: not
    /// known.
    pub const CORE: usize = 26;
    /// The last committed incarnation (see the module `watermark`); of a mirror, the last that is here.
    pub const COMMITTED: usize = 32;
    /// The last committed record; of a mirror, the last that is here.
    pub const COMMITTED_RECORD: usize = 33;
    /// The last record that changed a leaf.
    pub const LEAVES_RECORD: usize = 34;
    /// Of a mirror: as of when all of the image that it shows is known to be here, by the system's monotonic
    /// clock.
    pub const FRESH: usize = 35;
    /// The last record that removed a key of a hash table.
    pub const REMOVALS_RECORD: usize = 36;
    /// From here on a bit for each granule: 1 where a segment began that is retired. It never goes back to 0.
    pub const RETIRED: usize = 512;
    /// From here on sets of leaves that were changed lately, each with the record of its change.
    pub const LEAVES: usize = RETIRED + kelix_types::limits::GRANULES_MAX / 64;
}

/// Features that a reader must know.
pub mod features {
    /// Not all that stands in memory counts: readers look at what is committed.
    pub const COMMITS: u64 = 1;
    /// All that this build knows.
    pub(super) const KNOWN: u64 = COMMITS;
}

const MAGIC: u64 = u64::from_le_bytes(*b"KELIXIMG");
// A free slot of the index leads a reader that only guesses to place 0, the header page: no live item stands
// there.
const _: () = assert!(!Guardian(MAGIC).is_live());
const BYTE_ORDER_MARK: u64 = 0x0102_0304;

/// What the server does with the image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImageState {
    /// Being built; not to be read.
    Building,
    /// Served.
    Serving,
    /// The server has ended in good order; the last state stays readable.
    Stopped,
}

/// The header page.
#[derive(Clone)]
pub struct Header(Span);

impl Header {
    /// Bytes of the page, and of the bits and sets behind it.
    pub const BYTES: u64 = (header_word::LEAVES + SETS * SET_WORDS) as u64 * 8;

    /// Writes a fresh header page.
    pub fn create(span: Span, image_id: u64, hash_seed: u64, epoch_ns: u64, term: u64) -> Header {
        let words = span.words();
        words.store(header_word::VERSION, u64::from(LAYOUT_VERSION) | BYTE_ORDER_MARK << 32);
        words.store(header_word::IMAGE_ID, image_id);
        words.store(header_word::HASH_SEED, hash_seed);
        words.store(header_word::EPOCH_NS, epoch_ns);
        words.store(header_word::TERM, term);
        words.store(header_word::EPOCH, 1);
        words.store(header_word::COMMITTED, Committed::ALL.incarnation);
        words.store(header_word::COMMITTED_RECORD, Committed::ALL.record);
        words.publish(header_word::MAGIC, MAGIC);
        Header(span)
    }

    /// Takes a page made by somebody else, refusing what this build cannot read.
    pub fn open(span: Span) -> Result<Header> {
        let refuse = |what: String| Err(Error::new(ErrorKind::Incompatible, "open image", what));
        if span.bytes() < Self::BYTES {
            return refuse(format!("header page of {} bytes, {} expected", span.bytes(), Self::BYTES));
        }
        let words = span.words();
        if words.load_acquire(header_word::MAGIC) != MAGIC {
            return refuse("no Kelix image: the magic word is wrong".into());
        }
        let version = words.load(header_word::VERSION);
        if version >> 32 != BYTE_ORDER_MARK {
            return refuse("the image was written with another byte order".into());
        }
        if version as u32 != LAYOUT_VERSION {
            return refuse(format!(
                "image layout version {}, this build reads version {LAYOUT_VERSION}: use releases that follow each other",
                version as u32
            ));
        }
        let unknown = words.load(header_word::FEATURES) & !features::KNOWN;
        if unknown != 0 {
            return refuse(format!(
                "the image uses features {unknown:#x} unknown to this build: use a newer release"
            ));
        }
        Ok(Header(span))
    }

    /// The page's words.
    #[inline]
    pub fn words(&self) -> Words<'_> {
        self.0.words()
    }

    /// One of the page's words.
    pub fn word(&self, index: usize) -> SharedWord {
        self.0.word(index)
    }

    /// The reclamation epoch, loaded before all later loads.
    ///
    /// SYNC: pairs with the publishing store in [`Image::advance_epoch`](crate::Image::advance_epoch).
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.words().load_acquire(header_word::EPOCH)
    }

    /// Seed of the key hash.
    pub fn hash_seed(&self) -> u64 {
        self.words().load(header_word::HASH_SEED)
    }

    /// The image's id.
    pub fn image_id(&self) -> u64 {
        self.words().load(header_word::IMAGE_ID)
    }

    /// Term of the server that writes the image.
    #[inline]
    pub fn term(&self) -> u64 {
        self.words().load(header_word::TERM)
    }

    /// Counts changes of the set of segments.
    #[inline]
    pub fn segments_version(&self) -> u64 {
        self.words().load_acquire(header_word::SEGMENTS)
    }

    /// Says that the segment which began at this granule is retired. For the image's writer, after the
    /// quarantine.
    ///
    /// SYNC: the publishing store pairs with [`Header::is_retired`]: whoever sees the bit sees the epochs of
    /// the quarantine.
    pub(crate) fn note_retired(&self, first: usize) {
        let (words, at) = (self.words(), header_word::RETIRED + first / 64);
        words.publish(at, words.load(at) | 1 << (first % 64));
    }

    /// Whether the segment that began at this granule is retired, so that nothing in it will ever be valid
    /// again.
    pub fn is_retired(&self, first: usize) -> bool {
        self.words().load_acquire(header_word::RETIRED + first / 64) >> (first % 64) & 1 != 0
    }

    /// What the server does with the image.
    pub fn state(&self) -> ImageState {
        match self.words().load_acquire(header_word::STATE) {
            1 => ImageState::Serving,
            2 => ImageState::Stopped,
            _ => ImageState::Building,
        }
    }

    /// Says what the server does with the image.
    pub fn set_state(&self, state: ImageState) {
        let word = match state {
            ImageState::Building => 0,
            ImageState::Serving => 1,
            ImageState::Stopped => 2,
        };
        self.words().publish(header_word::STATE, word);
    }
}

const _: () = assert!(limits::EPOCH_NS > 0 && header_word::SLEEPING < header_word::RETIRED);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_page_and_refusals() {
        let span = Span::private(Header::BYTES);
        let header = Header::create(span.clone(), 0xABCD, 42, limits::EPOCH_NS, 3);
        let words = header.words();
        let page: Vec<u64> = (0..9).map(|i| words.load(i)).collect();
        assert_eq!(page, [0x474d_4958_494c_454b, 0x0102_0304_0000_0001, 0, 0xABCD, 42, 25_000_000, 3, 0, 1]);
        assert!(Header::open(span.clone()).is_ok());
        for first in [1, 64, 130, limits::GRANULES_MAX - 1] {
            assert!(!header.is_retired(first));
            header.note_retired(first);
            assert!(header.is_retired(first) && !header.is_retired(first - 1));
        }
        assert_eq!((Header::BYTES, words.count()), (53_248, 6656));
        assert_eq!([512, 513, 514, 4607].map(|word| words.load(word)), [2, 1, 4, 1 << 63]);
        let said = |word: usize, value: u64| {
            let old = words.load(word);
            words.store(word, value);
            let error = Header::open(span.clone()).err().expect("must be refused").to_string();
            words.store(word, old);
            error
        };
        assert!(said(header_word::VERSION, 0x0102_0304_0000_0009).contains("layout version 9"));
        assert!(said(header_word::VERSION, 0x0403_0201_0000_0001).contains("byte order"));
        assert!(said(header_word::FEATURES, 5).contains("features 0x4"));
        words.store(header_word::FEATURES, features::COMMITS);
        assert!(Header::open(span.clone()).is_ok());
        assert!(said(header_word::MAGIC, 0).contains("magic"));
    }
}
