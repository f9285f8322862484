//! Ordered tables: a chain of leaves that clients read by themselves, and the shard's index of them.

pub(crate) mod blocks;
mod lead;
mod leaf;
#[cfg(test)]
mod tests;
mod way;
mod writer;

pub use lead::{AT_ONCE, Step, lead};
pub(crate) use leaf::common_prefix;
pub use leaf::{
    LEAF_HEADER_WORDS, LeafHeader, key_word, load_slot, slot_word, slots, tag_of_number, tag_of_string,
};
pub use way::{InLeaf, LEAVES_FURTHER, TopPointer, Way, leaf_in, look_in_leaf};
pub(crate) use way::{bring_near_in_order, find_in_order};
pub use writer::{FoundKey, OrderedCounts, OrderedIndex, ScanFrom, location_of};
