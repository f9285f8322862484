//! Where the items with links stand of tables that are being filled, so that whoever resolves these links
//! need not look for them in an index that has the items of all tables.
//!
//! A note is a location and nothing else. It is good for as long as nothing that was noted of its table has
//! moved or gone, which is seldom while the table is filled: then all notes of the table are forgotten, and
//! the index is swept instead. So they are if there are too many.

use kelix_image::ItemFlags;
use kelix_types::{Location, TableId, mark};

use crate::tables::Tables;

/// Notes that are kept at once, of 8 bytes each.
const NOTES_MAX: usize = 8 << 20;
/// Says of a cursor that it counts notes.
const COUNTS_NOTES: u64 = 1 << 63;

/// Whether an item has links that are resolved here. Those in page runs are followed by key.
#[inline]
pub(crate) fn has_links(flags: ItemFlags) -> bool {
    flags.has(ItemFlags::ATTRIBUTES) && !flags.has(ItemFlags::LARGE)
}

/// What is noted of a table.
struct OfTable {
    table: TableId,
    generation: u64,
    /// `None`: forgotten.
    items: Option<Vec<Location>>,
    /// Links and dangling ones that were told by way of notes.
    told: [u64; 2],
}

/// What is noted of all tables.
#[derive(Default)]
pub(crate) struct LinkedItems {
    tables: Vec<OfTable>,
    count: usize,
}

impl LinkedItems {
    /// Begins with a table, unless that is done.
    pub fn begin(&mut self, table: TableId, generation: u64, tables: &Tables) {
        let is_it = |of: &OfTable| of.table == table && of.generation == generation;
        if !self.tables.iter().any(is_it) {
            self.tables.retain(|of| tables.filled(of.table) == Some(of.generation));
            self.tables.push(OfTable { table, generation, items: Some(Vec::new()), told: [0; 2] });
            self.count = self.tables.iter().flat_map(|of| &of.items).map(Vec::len).sum();
        }
    }

    fn of(&mut self, table: TableId) -> Option<&mut OfTable> {
        self.tables.iter_mut().find(|of| of.table == table)
    }

    /// Notes an item with links.
    #[inline]
    pub fn add(&mut self, table: TableId, item: Location) {
        if self.count == NOTES_MAX {
            self.forget(table);
        }
        if let Some(items) = self.of(table).and_then(|of| of.items.as_mut()) {
            items.push(item);
            self.count += 1;
        }
    }

    /// An item of a table moves or goes.
    #[inline]
    pub fn forget(&mut self, table: TableId) {
        if !self.tables.is_empty() {
            self.forget_items(table);
        }
    }

    #[cold]
    fn forget_items(&mut self, table: TableId) {
        if let Some(items) = self.of(table).and_then(|of| of.items.take()) {
            mark!("notes of items with links forgotten");
            self.count -= items.len();
        }
    }

    /// Up to so many items from a cursor on, and the next cursor; 0: these were all. `None`: there are no
    /// notes, and a cursor that counts some counts for nothing.
    pub fn next(&mut self, table: TableId, cursor: u64, most: usize) -> Option<(Vec<Location>, u64)> {
        if cursor != 0 && cursor & COUNTS_NOTES == 0 {
            return None;
        }
        let items = self.of(table)?.items.as_ref()?;
        let first = ((cursor & !COUNTS_NOTES) as usize).min(items.len());
        let end = items.len().min(first + most);
        let next = if end < items.len() { COUNTS_NOTES | end as u64 } else { 0 };
        Some((items[first..end].to_vec(), next))
    }

    /// Where a sweep goes on that may have been begun by notes.
    pub fn swept_from(cursor: u64) -> u64 {
        if cursor & COUNTS_NOTES == 0 { cursor } else { 0 }
    }

    /// What is to be told of links that were resolved by notes, or else by a sweep, which comes by those
    /// again that were told by notes.
    pub fn tell(&mut self, table: TableId, counts: [u64; 2], swept: bool) -> [u64; 2] {
        let Some(of) = self.of(table) else { return counts };
        let mut told = counts;
        for (told, before) in told.iter_mut().zip(&mut of.told) {
            if swept {
                let again = (*told).min(*before);
                (*told, *before) = (*told - again, *before - again);
            } else {
                *before += *told;
            }
        }
        told
    }

    /// A generation is complete, or given up.
    pub fn end_all(&mut self, generation: u64) {
        self.tables.retain(|of| of.generation != generation);
        self.count = self.tables.iter().flat_map(|of| &of.items).map(Vec::len).sum();
    }

    /// Tables of which something is or was noted.
    pub fn tables(&self) -> usize {
        self.tables.len()
    }

    /// All links of a table are resolved.
    pub fn end(&mut self, table: TableId) {
        self.forget(table);
        self.tables.retain(|of| of.table != table);
    }
}

#[cfg(test)]
mod tests {
    use kelix_types::{Place, SizeClass};

    use super::*;

    const TABLE: TableId = TableId(7);

    fn location(number: u64) -> Location {
        Location::new(Place(64 * number), SizeClass::for_bytes(64).expect("a class"))
    }

    fn noted(items: u64) -> LinkedItems {
        let mut noted = LinkedItems::default();
        noted.begin(TABLE, 1, &Tables::default());
        (0..items).for_each(|number| noted.add(TABLE, location(number)));
        noted
    }

    #[test]
    fn notes_come_in_order_and_end() {
        let mut noted = noted(5);
        let (first, cursor) = noted.next(TABLE, 0, 3).unwrap();
        let (second, end) = noted.next(TABLE, cursor, 3).unwrap();
        assert_eq!([first, second].concat(), (0..5).map(location).collect::<Vec<_>>());
        assert_eq!((end, LinkedItems::swept_from(cursor), LinkedItems::swept_from(9)), (0, 0, 9));
        assert!(noted.next(TABLE, 9, 3).is_none() && noted.next(TableId(8), 0, 3).is_none());
        noted.end(TABLE);
        assert!(noted.tables.is_empty() && noted.count == 0);
    }

    #[test]
    fn notes_end_with_their_generation() {
        let mut noted = noted(5);
        noted.end_all(2);
        assert_eq!(noted.count, 5);
        noted.end_all(1);
        assert_eq!((noted.tables(), noted.count), (0, 0));
    }

    #[test]
    fn what_was_told_by_notes_is_not_told_again_by_a_sweep() {
        let mut noted = noted(5);
        let (_, cursor) = noted.next(TABLE, 0, 3).unwrap();
        assert_eq!(noted.tell(TABLE, [3, 1], false), [3, 1]);
        noted.forget(TABLE);
        assert!(noted.next(TABLE, cursor, 3).is_none() && noted.count == 0);
        noted.add(TABLE, location(5));
        let told = [[2, 0], [2, 0], [2, 2]].map(|counts| noted.tell(TABLE, counts, true));
        assert_eq!(told, [[0, 0], [1, 0], [2, 1]]);
    }
}
