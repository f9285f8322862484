//! Emptying tables that nobody reads any more, some keys at a time.

use std::collections::VecDeque;

use kelix_image::ItemHeader;
use kelix_index::{ScanFrom, location_of};
use kelix_types::{Location, TableId};

use crate::shard::{Now, Shard};

/// Keys of an ordered table that go in one step.
const KEYS_A_STEP: usize = 64;

/// Tables that are being emptied.
pub(crate) struct TablePurge {
    generation: u64,
    /// Those without order.
    hash: Vec<TableId>,
    /// Theirs are taken away in the walk of the index that is under way.
    walked: bool,
    ordered: VecDeque<TableId>,
}

impl TablePurge {
    pub fn new(generation: u64, tables: Vec<TableId>) -> TablePurge {
        let (ordered, hash): (Vec<_>, Vec<_>) =
            tables.into_iter().partition(|table| table.kind().is_ordered());
        TablePurge { generation, hash, walked: false, ordered: ordered.into() }
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

    /// Goes on with it, and says when to go on. One walk of the index does for all that are there when it begins, however many were dropped.
    pub(crate) fn empty_tables(&mut self, now: Now) -> Option<u64> {
        let leaving = self.generations.leaving.front_mut()?;
        if !leaving.hash.is_empty() {
            if !leaving.walked {
                let all = &mut self.generations.leaving;
                all.iter_mut().for_each(|leaving| leaving.walked = true);
                let mut walked: Vec<TableId> = all.iter().flat_map(|leaving| leaving.hash.clone()).collect();
                walked.sort_unstable();
                self.generations.walked = walked;
                self.generations.cursor = 0;
            }
            self.generations.cursor = self.empty_subtable(self.generations.cursor);
            if self.generations.cursor == 0 {
                let walked = self.generations.leaving.iter_mut().filter(|leaving| leaving.walked);
                walked.for_each(|leaving| leaving.hash.clear());
                self.generations.walked.clear();
            }
        } else if let Some(table) = leaving.ordered.front().copied() {
            if !self.empty_first_keys(table) {
                self.generations.leaving[0].ordered.pop_front();
            }
        }
        let leaving = &self.generations.leaving[0];
        if leaving.hash.is_empty() && leaving.ordered.is_empty() {
            let generation = leaving.generation;
            self.generations.leaving.pop_front();
            if let Some(search) = &mut self.link_search {
                search.ahead = search.ahead.saturating_sub(1);
            }
            self.has_dropped(generation);
        }
        (!self.generations.leaving.is_empty()).then_some(now.monotonic_ns)
    }

    /// Takes away what is theirs in one subtable of the hash index. Where to go on; 0: that was all.
    fn empty_subtable(&mut self, cursor: u64) -> u64 {
        let mut found: Vec<Location> = Vec::new();
        let (image, walked) = (&self.image, &self.generations.walked);
        let next = self.index.sweep(image, cursor, |location| {
            let header = ItemHeader::from_word(image.slot(location).load(1));
            if header.is_some_and(|header| walked.binary_search(&header.table).is_ok()) {
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
