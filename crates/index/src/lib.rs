//! Where a key's item or value stands: the hash index and the ordered tables, for whoever reads them remotely
//! and for the shard that writes them.
//!
//! [`HashIndex`] and [`OrderedIndex`] are the writers' sides; [`Index`] is what a shard has of both, by
//! table. The readers' sides are views of what they write, in private copies or where it stands:
//! [`Directory`] and [`Bucket`], [`LeafHeader`].

#![forbid(unsafe_code)]

mod find;
mod hash;
mod index;
mod learned;
mod ordered;

pub use find::READER;
pub use hash::{
    BUCKET_WORDS, BUCKETS, Bucket, Directory, DirectoryRoot, HashIndex, alternate, guess, names_none,
};
pub use index::{Found, Index, OrderedTables, root_word};
pub use learned::{
    Guess, Line, ModelCounts, SubModel, TABLE_HEADER_WORDS, TOP_COUNT_WORD, TOP_ENTRY_WORDS,
    TOP_HEADER_WORDS, Top, Window, guess_string, leaf_at, leaf_of,
};
pub use ordered::{
    AT_ONCE, FoundKey, InLeaf, LEAF_HEADER_WORDS, LEAVES_FURTHER, LeafHeader, OrderedCounts, OrderedIndex,
    ScanFrom, Step, TopPointer, Way, key_word, lead, leaf_in, load_slot, location_of, look_in_leaf,
    slot_word, slots, tag_of_number, tag_of_string,
};
