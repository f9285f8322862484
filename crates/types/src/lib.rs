//! The vocabulary of Kelix: limits, identifiers, pointers, the key hash and the error type.
//!
//! Nothing here touches shared memory, a socket or a clock, and nothing is unsafe, so that every other crate
//! can depend on it and a reader can learn the words before the machinery.

#![forbid(unsafe_code)]

mod class;
mod error;
mod hash;
pub mod limits;
pub mod locks;
pub mod marks;
mod place;
mod table;

pub use class::SizeClass;
pub use error::{Effect, Error, ErrorKind, Result};
pub use hash::{KeyHash, key_hash};
pub use place::{Guardian, Incarnation, Location, Place};
pub use table::{TableId, TableKind};

/// The name of an attribute, interned per table. Id 0 is the empty name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NameId(pub u16);

/// The state of one key at one moment, for compare-and-set. Opaque: only equality means something.
///
/// It is the incarnation of the item, which never comes back, so there is no ABA; of an inline value of an
/// ordered table it is the value itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Version(pub u64);

/// As `kelix put` prints it, and `--if-version` takes it.
impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
