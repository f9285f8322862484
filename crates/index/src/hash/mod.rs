//! The hash index: extendible hashing over 64-byte buckets that clients read by themselves.
//!
//! ```text
//! hash   63    58 57        42 41                    0
//!        [bucket ][ signature ][ directory suffix     ]
//!
//! directory: guardian, then 2^depth places of subtables, chosen by the suffix
//! subtable:  64 buckets of 64 bytes; a bucket is a header and 7 slots (HydraDB, section 4.1.3)
//! ```
//!
//! A key's slot stands in its main bucket; when that is full, in its alternate bucket, which follows from the
//! main bucket and the signature; the main bucket's header counts how many of its keys are away, so a lookup
//! reads one bucket nearly always and two at most. A subtable in which a key finds no room splits, alone;
//! sparse buddies merge again.
//!
//! Readers need no lock: each slot is one word. A reader that holds an old directory, or falls between two
//! words of a split, may miss a key that is there; it then asks the shard, unless the headers of the key's
//! buckets prove it absent ([`names_none`]). It never finds one that is not: a found item is proven by its
//! own guardian, table and key. See docs/read-rule.md.

mod absence;
mod bucket;
mod directory;
mod find;
mod writer;

pub use absence::names_none;
pub use bucket::{BUCKET_WORDS, BUCKETS, Bucket, alternate, guess};
pub use directory::{Directory, DirectoryRoot};
pub(crate) use find::{bring_near, find_item};
pub use writer::HashIndex;
