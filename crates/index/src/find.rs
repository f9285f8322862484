//! The way from a key to what an index says of it, where memory stands itself: of hash tables and ordered
//! ones.

use kelix_image::{Finding, IndexReader, MemoryMap, Take, Wanted};

use crate::hash::{self, find_item};
use crate::ordered::{bring_near_in_order, find_in_order};

/// The indexes of an image, as they stand. Whoever takes what a look offers checks guardian, table and key; and
/// before an item is believed, or what the index says, the time since before the look, as of a chain of READs:
/// nothing else tells that memory on the way was not used again.
pub const READER: IndexReader = IndexReader { find, bring_near };

fn find(map: &MemoryMap, (hash, table, key): Wanted<'_>, take: &mut Take<'_>) -> Finding {
    if table.kind().is_ordered() {
        find_in_order(map.view(), (table, key), take).unwrap_or(Finding::Nothing)
    } else if find_item(map, hash, take) {
        Finding::Absent
    } else {
        Finding::Nothing
    }
}

fn bring_near(map: &MemoryMap, wanted: &[Wanted<'_>]) {
    let map = map.view();
    // Hash tables have one index.
    let ordered = |(_, table, _): &Wanted<'_>| table.kind().is_ordered().then_some(*table);
    for wanted in wanted.chunk_by(|a, b| ordered(a) == ordered(b)) {
        // What leads nowhere is found out by whoever goes there.
        let _ = match ordered(&wanted[0]) {
            Some(table) => bring_near_in_order(map, table, wanted.iter().map(|(_, _, key)| *key)),
            None => hash::bring_near(map, wanted.iter().map(|(hash, ..)| *hash)),
        };
    }
}
