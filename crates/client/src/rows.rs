//! What a scan brought, in buffers that are reused from scan to scan.

use std::ops::Range;

use kelix_image::words::bytes_of;
use kelix_image::{ItemFlags, ItemView, Section};
use kelix_types::{NameId, Version};

use crate::item::{Item, Room};

/// The keys and values of a scan, and attributes if some are wanted, in buffers that are reused from scan to
/// scan.
#[derive(Clone, Default, Debug)]
pub struct Rows {
    /// Numbers with inline values: the number with its highest byte first, and the value. A scan brings these
    /// or all else.
    pairs: Vec<[u64; 2]>,
    room: Room,
    rows: Vec<RowEntry>,
    /// The names of the attributes that are wanted, and the cells of all rows, one row after the other.
    names: Vec<String>,
    cells: Vec<Cell>,
    /// The numbers of the names in the table that is scanned.
    ids: Vec<Option<NameId>>,
}

/// Where a key and its value stand in [`Rows::data`], and what belongs to them. In an array of these other
/// languages find the rows of a scan without a call a row.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowEntry {
    /// First byte of the key.
    pub key_start: u64,
    /// Length of the key in bytes.
    pub key_bytes: u64,
    /// First byte of the value.
    pub value_start: u64,
    /// Length of the value in bytes.
    pub value_bytes: u64,
    /// The item's version.
    pub version: u64,
    /// When the item ends, in nanoseconds since 1970; 0: never.
    pub ends_ns: u64,
    /// The flags that whoever put it gave it.
    pub flags: u32,
    /// Always 0.
    pub reserved: u32,
}

/// Where an attribute stands in [`Rows::data`].
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// Its first byte; 2^64 - 1: the item has no such attribute.
    pub start: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

impl Cell {
    /// That of an attribute which is absent.
    pub const ABSENT: Cell = Cell { start: u64::MAX, bytes: 0 };
}

fn range(start: u64, bytes: u64) -> Range<usize> {
    start as usize..(start + bytes) as usize
}

impl Rows {
    /// Empty buffers.
    pub fn new() -> Rows {
        Rows::default()
    }

    /// Empty buffers, also for the attributes of these names that are bytes. The name "" is that of the
    /// value.
    pub fn with_attributes(names: &[&str]) -> Rows {
        Rows { names: names.iter().map(|name| name.to_string()).collect(), ..Rows::default() }
    }

    /// How many keys the last scan brought.
    pub fn len(&self) -> usize {
        self.pairs.len() + self.rows.len()
    }

    /// Whether it brought none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The `index`-th key.
    pub fn key(&self, index: usize) -> &[u8] {
        match self.pairs.get(index) {
            Some(pair) => &bytes_of(pair)[..8],
            None => &self.data()[range(self.rows[index].key_start, self.rows[index].key_bytes)],
        }
    }

    /// Its value; of an item with attributes, that without a name.
    pub fn value(&self, index: usize) -> &[u8] {
        match self.pairs.get(index) {
            Some(pair) => &bytes_of(pair)[8..],
            None => &self.data()[range(self.rows[index].value_start, self.rows[index].value_bytes)],
        }
    }

    /// Its version.
    pub fn version(&self, index: usize) -> Version {
        Version(self.pairs.get(index).map_or_else(|| self.rows[index].version, |pair| pair[1]))
    }

    /// Its attribute under the `column`-th of the names that are wanted, if the item has one that is bytes.
    pub fn attribute(&self, index: usize, column: usize) -> Option<&[u8]> {
        assert!(column < self.names.len(), "one of the names that are wanted");
        // Inline values have no names.
        let Cell { start, bytes } = *self.cells.get(index * self.names.len() + column)?;
        (start != u64::MAX).then(|| &self.data()[range(start, bytes)])
    }

    /// The names of the attributes that are wanted.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Of a table of numbers with inline values: each number with its highest byte first, and its value. Of
    /// all other tables none.
    pub fn pairs(&self) -> &[[u64; 2]] {
        &self.pairs
    }

    /// The bytes of all keys, values and attributes; none of those that are in pairs.
    pub fn data(&self) -> &[u8] {
        self.room.all()
    }

    /// Takes what [`Rows::data`] shows, for whoever keeps it longer than until the next scan. Entries and
    /// cells stay, and tell where keys, values and attributes stand in it.
    pub fn take_data(&mut self) -> Vec<u8> {
        self.room.take()
    }

    /// An entry a row, in order; none of those that are in pairs.
    pub fn entries(&self) -> &[RowEntry] {
        &self.rows
    }

    /// The attributes that are wanted: as many cells a row as there are names, one row after the other.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// Begins a scan of a table that has these numbers for the names.
    pub(crate) fn begin(&mut self, ids: impl Iterator<Item = Option<NameId>>) {
        self.pairs.clear();
        self.room.clear();
        self.rows.clear();
        self.cells.clear();
        self.ids.clear();
        self.ids.extend(ids);
    }

    /// Adds numbers with inline values.
    #[inline(always)]
    pub(crate) fn extend(&mut self, values: &[[u64; 2]]) {
        self.pairs.extend(values.iter().map(|[number, value]| [number.swap_bytes(), *value]));
    }

    /// Adds an item that stands in these words as a whole.
    #[inline]
    pub(crate) fn push(&mut self, view: ItemView<'_>) {
        if view.header().flags.has(ItemFlags::ATTRIBUTES) {
            let section = view.section().unwrap_or(Section::EMPTY);
            let value = section.bytes_of(NameId(0)).unwrap_or(&[]);
            self.push_parts(view, value, |id| section.bytes_of(id));
        } else {
            self.push_parts(view, view.body(), |id| (id == NameId(0)).then(|| view.body()));
        }
    }

    /// Adds an item that was fetched by itself.
    pub(crate) fn push_item(&mut self, item: &Item) {
        self.push_parts(item.view(), item.value(), |id| item.bytes_under(id));
    }

    #[inline(always)]
    fn push_parts<'v>(
        &mut self,
        view: ItemView<'_>,
        value: &[u8],
        attribute: impl Fn(NameId) -> Option<&'v [u8]>,
    ) {
        let key = view.key();
        let room = self.room.next(key.len() + value.len());
        room[..key.len()].copy_from_slice(key);
        room[key.len()..].copy_from_slice(value);
        let kept = self.room.keep(key.len() + value.len(), view.version());
        self.rows.push(RowEntry {
            key_start: kept.start,
            key_bytes: key.len() as u64,
            value_start: kept.start + key.len() as u64,
            value_bytes: value.len() as u64,
            version: kept.version,
            ends_ns: view.expiry().unwrap_or(0),
            flags: view.client_flags(),
            reserved: 0,
        });
        for column in 0..self.ids.len() {
            let bytes = self.ids[column].and_then(&attribute);
            let cell = bytes.map_or(Cell::ABSENT, |bytes| Cell {
                start: self.room.push(bytes),
                bytes: bytes.len() as u64,
            });
            self.cells.push(cell);
        }
    }
}
