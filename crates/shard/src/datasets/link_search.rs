//! Looking for links to tables that were dropped: in what is put, and in all items of a shard before the
//! tables' numbers come back.

use std::collections::{BTreeSet, VecDeque};

use kelix_image::words::bytes_of;
use kelix_image::{Image, ItemFlags, ItemHeader, LargeBody, link_tables};
use kelix_index::{ScanFrom, location_of};
use kelix_types::{Location, Place, TableId};

use crate::store::{NewItem, Store};
use crate::tables::Tables;

/// Keys of an ordered table that are looked at in one step.
const KEYS_A_STEP: usize = 64;

/// A look through the items of a shard for links to tables that are no more.
pub(super) struct LinkSearch {
    /// So many drops come first, so that the tables are empty.
    pub ahead: usize,
    /// In their order.
    tables: Vec<TableId>,
    linked: BTreeSet<TableId>,
    /// Where to go on in the hash index; `None`: that is done.
    cursor: Option<u64>,
    /// Ordered tables, and the last key that was looked at of the first.
    ordered: VecDeque<TableId>,
    key: Option<Vec<u8>>,
}

impl LinkSearch {
    /// Begins, behind so many drops.
    pub fn new(store: &Store, ahead: usize, tables: Vec<TableId>) -> LinkSearch {
        let ordered = store.index.ordered_counts().map(|(table, ..)| table);
        let ordered = ordered.filter(|table| table.kind().has_items()).collect();
        LinkSearch { ahead, tables, linked: BTreeSet::new(), cursor: Some(0), ordered, key: None }
    }

    /// Looks at some more items. `Some`: that was all, and links lead to these tables.
    pub fn advance(&mut self, store: &mut Store) -> Option<Vec<TableId>> {
        match (self.cursor, self.ordered.front().copied()) {
            (Some(cursor), _) => {
                let mut found = Vec::new();
                let next = store.index.sweep(&store.image, cursor, |location| found.push(location));
                found.into_iter().for_each(|location| self.look_at(&store.image, location));
                self.cursor = Some(next).filter(|next| *next != 0);
                None
            }
            (None, Some(table)) => {
                self.search_ordered(store, table);
                None
            }
            (None, None) => Some(std::mem::take(&mut self.linked).into_iter().collect()),
        }
    }

    fn search_ordered(&mut self, store: &mut Store, table: TableId) {
        let mut found = Vec::new();
        if let Some(index) = store.index.ordered(table) {
            let from = ScanFrom { key: self.key.as_deref(), after: true, backwards: false };
            index.scan(&store.image, from, |_, second| {
                found.push(location_of(second));
                found.len() < KEYS_A_STEP
            });
        }
        match found.last() {
            Some(last) => self.key = Some(store.copy_item(*last, |item| item.key().to_vec())),
            None => {
                self.ordered.pop_front();
                self.key = None;
            }
        }
        found.into_iter().for_each(|location| self.look_at(&store.image, location));
    }

    fn look_at(&mut self, image: &Image, location: Location) {
        let slot = image.slot(location);
        let Some(header) = ItemHeader::from_word(slot.load(1)) else { return };
        let LinkSearch { tables, linked, .. } = self;
        let is_one = |table: TableId| tables.binary_search(&table).is_ok();
        if is_one(header.table) {
            // Nobody puts there any more.
            linked.insert(header.table);
        }
        if !header.flags.has(ItemFlags::ATTRIBUTES) {
            return;
        }
        let note = |table: TableId| {
            if is_one(table) {
                linked.insert(table);
            }
        };
        let first = header.body_start() / 8;
        let sound = visit_linked(image, header, |word| slot.load(first + word), note);
        if !sound {
            // Links that nobody can read are no links to whoever follows them, but may be all the same.
            linked.extend(tables.iter());
        }
    }
}

/// Visits the tables that the links of an item with attributes lead to, the words of whose body `word` loads.
/// `false`: its section makes no sense.
fn visit_linked(
    image: &Image,
    header: ItemHeader,
    word: impl Fn(usize) -> u64,
    visit: impl FnMut(TableId),
) -> bool {
    let words = header.body_bytes / 8;
    if !header.flags.has(ItemFlags::LARGE) {
        return link_tables(|at| (at < words).then(|| word(at)), visit);
    }
    let body: Vec<u64> = (0..words).map(word).collect();
    LargeBody::parse(bytes_of(&body)).is_some_and(|body| tables_in_runs(image, &body, visit))
}

/// Visits the tables that links of an attribute section in runs lead to. `false`: it makes no sense.
fn tables_in_runs(image: &Image, body: &LargeBody, visit: impl FnMut(TableId)) -> bool {
    let starts: Vec<(u64, Place)> = body
        .runs
        .iter()
        .scan(0, |next, (place, bytes)| {
            let start = *next;
            *next += bytes;
            Some((start, *place))
        })
        .collect();
    let word = |word: usize| {
        let at = word as u64 * 8;
        if at + 8 > body.bytes {
            return None;
        }
        let (start, place) = starts[starts.partition_point(|(start, _)| *start <= at) - 1];
        Some(image.map().words(place.plus(at - start), 1)?.load(0))
    };
    link_tables(word, visit)
}

/// Whether an item with attributes that is to be put links to a table that was dropped.
#[cold]
pub(crate) fn links_to_dropped(item: &NewItem<'_>, image: &Image, tables: &Tables) -> bool {
    let mut found = false;
    let visit = |table: TableId| found |= tables.is_dropped(table);
    let first = (item.header.body_start() - item.header.key_start()) / 8;
    let sound = visit_linked(image, item.header, |word| item.tail[first + word], visit);
    found || !sound
}
