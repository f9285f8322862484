//! The way from a key to what an index says of it, where memory stands itself: of hash tables and ordered ones.

use kelix_image::words::Words;
use kelix_image::{Finding, MemoryMap};
use kelix_types::{KeyHash, Location, TableId};

use crate::hash::find_item;
use crate::ordered::find_in_order;

/// Offers the slots in which the item of a key may stand, as the index says now, until one is taken; else says
/// what the index does. Whoever takes one looks at its guardian, table and key; and before that is believed, or
/// what is said here, at the time since before this was called, as of a chain of READs: nothing else says that
/// memory on the way was not used again.
pub fn find(
    map: &MemoryMap,
    (hash, table, key): (KeyHash, TableId, &[u8]),
    take: &mut dyn FnMut(Location, Words<'_>) -> bool,
) -> Finding {
    if table.kind().is_ordered() {
        find_in_order(map.view(), (table, key), take).unwrap_or(Finding::Nothing)
    } else if find_item(map, hash, take) {
        Finding::Absent
    } else {
        Finding::Nothing
    }
}
