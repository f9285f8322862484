//! Emptying tables that nobody reads any more, some keys at a time.

use std::collections::VecDeque;

use kelix_image::ItemHeader;
use kelix_index::{ScanFrom, location_of};
use kelix_types::{Location, TableId};

use crate::shard::{Now, Shard};

/// Keys of an ordered table that go in one step.
const KEYS_A_STEP: usize = 64;

/// Tables that are being emptied.
pub(crate) struct Leaving {
    generation: u64,
    /// Those without order, and how far the walk of their index is.
    hash: Vec<TableId>,
    cursor: u64,
    ordered: VecDeque<TableId>,
}

impl Leaving {
    pub fn new(generation: u64, tables: Vec<TableId>) -> Leaving {
        let (ordered, hash): (Vec<_>, Vec<_>) =
            tables.into_iter().partition(|table| table.kind().is_ordered());
        Leaving { generation, hash, cursor: 0, ordered: ordered.into() }
    }

    fn has(&self, table: TableId) -> bool {
        self.hash.contains(&table) || self.ordered.contains(&table)
    }
}

impl Shard {
    /// Whether a table is being emptied here.
    pub(crate) fn is_leaving(&self, table: TableId) -> bool {
        self.generations.leaving.iter().any(|leaving| leaving.has(table))
    }

    /// Goes on with it, and says when to go on.
    pub(crate) fn empty_tables(&mut self, now: Now) -> Option<u64> {
        let mut leaving = self.generations.leaving.pop_front()?;
        if !leaving.hash.is_empty() {
            leaving.cursor = self.empty_subtable(&leaving);
            if leaving.cursor == 0 {
                leaving.hash.clear();
            }
        } else if let Some(table) = leaving.ordered.front() {
            if !self.empty_first_keys(*table) {
                leaving.ordered.pop_front();
            }
        }
        if leaving.hash.is_empty() && leaving.ordered.is_empty() {
            self.has_dropped(leaving.generation);
        } else {
            self.generations.leaving.push_front(leaving);
        }
        (!self.generations.leaving.is_empty()).then_some(now.monotonic_ns)
    }

    /// Takes away what is theirs in one subtable of the hash index. Where to go on; 0: that was all.
    fn empty_subtable(&mut self, leaving: &Leaving) -> u64 {
        let mut found: Vec<Location> = Vec::new();
        let image = &self.image;
        let next = self.index.sweep(image, leaving.cursor, |location| {
            let header = ItemHeader::from_word(image.slot(location).load(1));
            if header.is_some_and(|header| leaving.hash.contains(&header.table)) {
                found.push(location);
            }
        });
        for location in found {
            let (table, key) = self.copy_item(location, |item| (item.header().table, item.key().to_vec()));
            self.remove_key(table, &key);
        }
        next
    }

    /// Takes the first keys of an ordered table away. Whether there may be more.
    fn empty_first_keys(&mut self, table: TableId) -> bool {
        let Some(index) = self.index.ordered(table) else { return false };
        let mut found: Vec<(u64, u64)> = Vec::new();
        let from = ScanFrom { key: None, after: false, backwards: false };
        index.scan(&self.image, from, |word, second| {
            found.push((word, second));
            found.len() < KEYS_A_STEP
        });
        for (word, second) in &found {
            if table.kind().has_items() {
                let key = self.copy_item(location_of(*second), |item| item.key().to_vec());
                self.remove_key(table, &key);
            } else {
                self.remove_inline((table, &word.to_be_bytes()));
            }
        }
        found.len() == KEYS_A_STEP
    }
}
