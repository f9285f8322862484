//! The way from a key to what an index says of it, where memory stands itself: of hash tables and ordered ones.

use kelix_image::{Finding, IndexReader, MemoryMap, Take, Wanted};

use crate::hash::{self, find_item};
use crate::ordered::{bring_near_in_order, find_in_order};

/// Whoever takes what it offers looks at guardian, table and key; and before that is believed, or what else is
/// said, at the time since before the look, as of a chain of READs: nothing else says that memory on the way was
/// not used again.
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
    for wanted in
        wanted.chunk_by(|(_, a, _), (_, b, _)| a == b || !a.kind().is_ordered() && !b.kind().is_ordered())
    {
        let Some((_, table, _)) = wanted.first() else { continue };
        // What leads nowhere is found out by whoever goes there.
        let _ = match table.kind().is_ordered() {
            true => bring_near_in_order(map, *table, wanted.iter().map(|(_, _, key)| *key)),
            false => hash::bring_near(map, wanted.iter().map(|(hash, ..)| *hash)),
        };
    }
}
