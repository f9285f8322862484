//! What a scan brought, in buffers that are reused from scan to scan.

use kelix_image::words::bytes_of;
use kelix_types::Version;

use crate::item::Room;

/// The keys and values of a scan, in buffers that are reused from scan to scan.
#[derive(Clone, Default, Debug)]
pub struct Rows {
    /// Numbers with inline values: the number with its highest byte first, and the value.
    pairs: Vec<[u64; 2]>,
    /// All others.
    room: Room,
    rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    key_start: usize,
    value_start: usize,
    end: usize,
    version: u64,
}

impl Rows {
    /// Empty buffers.
    pub fn new() -> Rows {
        Rows::default()
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
            None => self.room.part(self.rows[index].key_start, self.rows[index].value_start),
        }
    }

    /// Its value; of an item with attributes, that without a name.
    pub fn value(&self, index: usize) -> &[u8] {
        match self.pairs.get(index) {
            Some(pair) => &bytes_of(pair)[8..],
            None => self.room.part(self.rows[index].value_start, self.rows[index].end),
        }
    }

    /// Its version.
    pub fn version(&self, index: usize) -> Version {
        Version(self.pairs.get(index).map_or_else(|| self.rows[index].version, |pair| pair[1]))
    }

    pub(crate) fn clear(&mut self) {
        self.pairs.clear();
        self.room.clear();
        self.rows.clear();
    }

    /// Adds numbers with inline values.
    #[inline(always)]
    pub(crate) fn extend(&mut self, values: &[[u64; 2]]) {
        self.pairs.extend(values.iter().map(|[number, value]| [number.swap_bytes(), *value]));
    }

    pub(crate) fn push(&mut self, key: &[u8], value: &[u8], version: Version) {
        let key_start = self.room.used();
        let value_start = key_start + key.len();
        let room = self.room.next(key.len() + value.len());
        room[..key.len()].copy_from_slice(key);
        room[key.len()..].copy_from_slice(value);
        self.room.keep(key.len() + value.len(), version);
        self.rows.push(Row { key_start, value_start, end: value_start + value.len(), version: version.0 });
    }
}
