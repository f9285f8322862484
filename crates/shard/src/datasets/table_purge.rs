//! Emptying tables that nobody reads any more, some keys at a time.

use std::collections::VecDeque;

use kelix_image::ItemHeader;
use kelix_index::{ScanFrom, location_of};
use kelix_types::{Location, TableId};

use crate::store::Store;

/// Keys of an ordered table that go in one step.
const KEYS_A_STEP: usize = 64;

/// Tables that are being emptied.
struct TablePurge {
    generation: u64,
    /// Those without order.
    hash: Vec<TableId>,
    /// Theirs are taken away in the walk of the index that is under way.
    walked: bool,
    ordered: VecDeque<TableId>,
}

impl TablePurge {
    fn new(generation: u64, tables: Vec<TableId>) -> TablePurge {
        let (ordered, hash): (Vec<_>, Vec<_>) =
            tables.into_iter().partition(|table| table.kind().is_ordered());
        TablePurge { generation, hash, walked: false, ordered: ordered.into() }
    }

    fn has(&self, table: TableId) -> bool {
        self.hash.contains(&table) || self.ordered.contains(&table)
    }
}

/// All tables that are being emptied, in the order in which they were dropped. One walk of the hash index
/// does for all that are there when it begins, however many were dropped.
#[derive(Default)]
pub(crate) struct TablePurges {
    queue: VecDeque<TablePurge>,
    /// Tables whose items the walk under way takes away, in their order, and how far it is.
    walked: Vec<TableId>,
    cursor: u64,
    /// Tables were emptied since somebody asked.
    emptied: bool,
}

impl TablePurges {
    /// Begins to empty tables.
    pub fn begin(&mut self, generation: u64, tables: Vec<TableId>) {
        self.queue.push_back(TablePurge::new(generation, tables));
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many drops are not done.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether a table is being emptied here.
    pub fn has(&self, table: TableId) -> bool {
        self.queue.iter().any(|purge| purge.has(table))
    }

    /// Whether one of these tables was emptied since this was last asked.
    pub fn take_emptied(&mut self) -> bool {
        std::mem::take(&mut self.emptied)
    }

    /// Goes on with it. The generation that it is done with, if there is one.
    #[inline]
    pub fn advance(&mut self, store: &mut Store) -> Option<u64> {
        if self.queue.is_empty() { None } else { self.advance_first(store) }
    }

    fn advance_first(&mut self, store: &mut Store) -> Option<u64> {
        let first = self.queue.front_mut()?;
        if !first.hash.is_empty() {
            if !first.walked {
                self.begin_walk();
            }
            self.cursor = self.empty_subtable(store);
            if self.cursor == 0 {
                let walked = self.queue.iter_mut().filter(|purge| purge.walked);
                walked.for_each(|purge| purge.hash.clear());
                self.emptied = true;
                self.walked.clear();
            }
        } else if let Some(table) = first.ordered.front().copied() {
            if !empty_first_keys(store, table) {
                first.ordered.pop_front();
                self.emptied = true;
            }
        }
        let TablePurge { hash, ordered, .. } = self.queue.front()?;
        if !hash.is_empty() || !ordered.is_empty() {
            return None;
        }
        self.queue.pop_front().map(|done| done.generation)
    }

    fn begin_walk(&mut self) {
        self.queue.iter_mut().for_each(|purge| purge.walked = true);
        self.walked = self.queue.iter().flat_map(|purge| &purge.hash).copied().collect();
        self.walked.sort_unstable();
        self.cursor = 0;
    }

    /// Takes away what is theirs in one subtable of the hash index. Where to go on; 0: that was all.
    fn empty_subtable(&self, store: &mut Store) -> u64 {
        let mut found: Vec<Location> = Vec::new();
        let (image, walked) = (&store.image, &self.walked);
        let next = store.index.sweep(image, self.cursor, |location| {
            let header = ItemHeader::from_word(image.slot(location).load(1));
            if header.is_some_and(|header| walked.binary_search(&header.table).is_ok()) {
                found.push(location);
            }
        });
        found.into_iter().for_each(|location| store.remove_at(location));
        next
    }

    /// What is left to be emptied.
    pub fn remains(&self) -> usize {
        self.queue.len() + self.walked.len()
    }
}

/// Takes the first keys of an ordered table away. Whether there may be more.
fn empty_first_keys(store: &mut Store, table: TableId) -> bool {
    let Some(index) = store.index.ordered(table) else { return false };
    let mut found: Vec<(u64, u64)> = Vec::new();
    let from = ScanFrom { key: None, after: false, backwards: false };
    index.scan(&store.image, from, |word, second| {
        found.push((word, second));
        found.len() < KEYS_A_STEP
    });
    for (word, second) in &found {
        if table.kind().has_items() {
            store.remove_at(location_of(*second));
        } else {
            store.remove_inline((table, &word.to_be_bytes()));
        }
    }
    found.len() == KEYS_A_STEP
}
