//! Items on their way from a source to the store, packed.
//!
//! ```text
//! record  bytes 32 of what follows | fields 16 | key bytes 24 | place | expiry ms + 1, 0: never | key | each field
//! field   name | 0     | bytes                 | bytes           an attribute
//!         name | 1 + table | bytes | key bytes 24 | key | bytes  a link: the target's key, bytes of its own
//! ```
//!
//! Numbers without a width are written in groups of 7 bits, lowest first. The place is the row's number or
//! line in its source. The same records stand in batches and in spools.

/// Where the number of fields, the length of the key and the place stand.
const FIELDS_AT: usize = 4;
const KEY_AT: usize = 6;
const PLACE_AT: usize = 9;

/// A batch of items for one table.
#[derive(Clone, Default, Debug)]
pub struct Rows {
    bytes: Vec<u8>,
    count: usize,
}

/// An item.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    record: &'a [u8],
}

/// An attribute or a link of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field<'a> {
    /// An attribute; `name` counts the names of the table's [`crate::TableSpec`].
    Bytes {
        /// Its name.
        name: u16,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// A link.
    Link {
        /// Its name.
        name: u16,
        /// The target's table, as counted in [`crate::Store::begin`].
        table: u16,
        /// The target's key.
        key: &'a [u8],
        /// The link's own bytes.
        bytes: &'a [u8],
    },
}

/// A number of 24 bits.
fn u24_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], 0]) as usize
}

/// A number in groups of 7 bits, and where it ends.
#[inline]
fn number_at(bytes: &[u8], mut at: usize) -> (u64, usize) {
    let (mut number, mut shift) = (0, 0);
    loop {
        let group = bytes[at];
        number |= u64::from(group & 127) << shift;
        at += 1;
        shift += 7;
        if group < 128 {
            return (number, at);
        }
    }
}

#[inline]
fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 128 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn put_u24(bytes: &mut [u8], at: usize, number: usize) {
    debug_assert!(number < 1 << 24);
    bytes[at..at + 3].copy_from_slice(&(number as u32).to_le_bytes()[..3]);
}

impl<'a> Row<'a> {
    /// Place, expiry, and where the key begins.
    #[inline]
    fn head(self) -> (u64, u64, usize) {
        let (place, at) = number_at(self.record, PLACE_AT);
        let (expiry, at) = number_at(self.record, at);
        (place, expiry, at)
    }

    /// The row's number or line in its source.
    pub fn place(self) -> u64 {
        self.head().0
    }

    /// After how many milliseconds it ends, if it does.
    pub fn expires_in_ms(self) -> Option<u64> {
        self.head().1.checked_sub(1)
    }

    /// The key: 8 bytes, highest first, where keys are numbers.
    #[inline]
    pub fn key(self) -> &'a [u8] {
        &self.record[self.head().2..][..u24_at(self.record, KEY_AT)]
    }

    /// How many attributes and links it has.
    pub fn field_count(self) -> usize {
        usize::from(u16::from_le_bytes([self.record[FIELDS_AT], self.record[FIELDS_AT + 1]]))
    }

    /// Its attributes and links, in order.
    #[inline]
    pub fn fields(self) -> impl Iterator<Item = Field<'a>> {
        let mut at = self.head().2 + u24_at(self.record, KEY_AT);
        (0..self.field_count()).map(move |_| {
            let (field, end) = field_at(self.record, at);
            at = end;
            field
        })
    }

    /// The record itself.
    pub(crate) fn record(self) -> &'a [u8] {
        self.record
    }
}

/// A field, and where it ends.
#[inline]
fn field_at(record: &[u8], at: usize) -> (Field<'_>, usize) {
    let (name, at) = number_at(record, at);
    let (table, at) = number_at(record, at);
    let (bytes, at) = number_at(record, at);
    let name = name as u16;
    let Some(table) = table.checked_sub(1) else {
        let bytes = &record[at..][..bytes as usize];
        return (Field::Bytes { name, bytes }, at + bytes.len());
    };
    let (key, bytes) = record[at + 3..][..u24_at(record, at) + bytes as usize].split_at(u24_at(record, at));
    (Field::Link { name, table: table as u16, key, bytes }, at + 3 + key.len() + bytes.len())
}

impl Rows {
    /// An empty batch.
    pub fn new() -> Rows {
        Rows::default()
    }

    /// How many items it has.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Its items, in order.
    pub fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        records(&self.bytes)
    }

    /// Its bytes: one record after the other.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    /// Adds an item that stands elsewhere.
    pub(crate) fn push(&mut self, row: Row<'_>) {
        self.bytes.extend_from_slice(row.record);
        self.count += 1;
    }

    /// Begins an item with the key and the end of another.
    pub(crate) fn begin_like(&mut self, row: Row<'_>) -> NewRow<'_> {
        let mut new = self.begin(row.place(), row.expires_in_ms());
        new.key(row.key());
        new
    }

    /// Begins an item, which may end after some time. It is there once it is ended.
    pub(crate) fn begin(&mut self, place: u64, expires_in_ms: Option<u64>) -> NewRow<'_> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; PLACE_AT]);
        put_number(&mut self.bytes, place);
        put_number(&mut self.bytes, expires_in_ms.map_or(0, |time| time + 1));
        let key_start = self.bytes.len();
        NewRow { rows: self, start, key_start, fields: 0, ended: false }
    }
}

/// The records that stand one after the other.
pub(crate) fn records(bytes: &[u8]) -> impl Iterator<Item = Row<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let record = rest.get(..record_bytes(rest)?)?;
        rest = &rest[record.len()..];
        Some(Row { record })
    })
}

/// How long the first record is; `None` if not even that is there.
pub(crate) fn record_bytes(bytes: &[u8]) -> Option<usize> {
    let length = bytes.get(..4)?;
    Some(u32::from_le_bytes(length.try_into().expect("4 bytes")) as usize + 4)
}

/// An item that is being made: its key first, then fields.
pub(crate) struct NewRow<'r> {
    rows: &'r mut Rows,
    start: usize,
    key_start: usize,
    fields: u16,
    ended: bool,
}

impl NewRow<'_> {
    /// The buffer behind which the key is to be written.
    #[inline]
    pub fn begin_key(&mut self) -> &mut Vec<u8> {
        &mut self.rows.bytes
    }

    /// Ends the key that was written there.
    #[inline]
    pub fn end_key(&mut self) {
        let key = self.rows.bytes.len() - self.key_start;
        put_u24(&mut self.rows.bytes, self.start + KEY_AT, key);
    }

    /// How many bytes it has so far.
    pub fn len(&self) -> usize {
        self.rows.bytes.len() - self.start
    }

    pub fn key(&mut self, key: &[u8]) {
        self.begin_key().extend_from_slice(key);
        self.end_key();
    }

    pub fn field(&mut self, field: Field<'_>) {
        match field {
            Field::Bytes { name, bytes } => self.bytes(name, bytes),
            Field::Link { name, table, key, bytes } => self.link(name, table, key, bytes),
        }
    }

    #[inline]
    pub fn bytes(&mut self, name: u16, bytes: &[u8]) {
        self.field_head(name, 0, bytes.len());
        self.rows.bytes.extend_from_slice(bytes);
    }

    pub fn link(&mut self, name: u16, table: u16, key: &[u8], bytes: &[u8]) {
        let link = self.link_by::<()>((name, table), bytes, |to| {
            to.extend_from_slice(key);
            Ok(true)
        });
        debug_assert!(link.is_ok());
    }

    /// A link whose key is written in place. Without a key there is no link.
    #[inline]
    pub fn link_by<E>(
        &mut self,
        (name, table): (u16, u16),
        bytes: &[u8],
        key: impl FnOnce(&mut Vec<u8>) -> Result<bool, E>,
    ) -> Result<(), E> {
        let before = self.rows.bytes.len();
        self.field_head(name, u64::from(table) + 1, bytes.len());
        let at = self.rows.bytes.len();
        self.rows.bytes.extend_from_slice(&[0; 3]);
        if key(&mut self.rows.bytes)? {
            let key = self.rows.bytes.len() - at - 3;
            put_u24(&mut self.rows.bytes, at, key);
            self.rows.bytes.extend_from_slice(bytes);
        } else {
            self.rows.bytes.truncate(before);
            self.fields -= 1;
        }
        Ok(())
    }

    #[inline]
    fn field_head(&mut self, name: u16, table: u64, bytes: usize) {
        put_number(&mut self.rows.bytes, u64::from(name));
        put_number(&mut self.rows.bytes, table);
        put_number(&mut self.rows.bytes, bytes as u64);
        self.fields += 1;
    }

    /// Ends the item.
    pub fn end(mut self) {
        let bytes = (self.rows.bytes.len() - self.start - 4) as u32;
        self.rows.bytes[self.start..][..4].copy_from_slice(&bytes.to_le_bytes());
        self.rows.bytes[self.start + FIELDS_AT..][..2].copy_from_slice(&self.fields.to_le_bytes());
        self.rows.count += 1;
        self.ended = true;
    }
}

impl Drop for NewRow<'_> {
    /// An item that was not ended never was.
    fn drop(&mut self) {
        if !self.ended {
            self.rows.bytes.truncate(self.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out() {
        let mut rows = Rows::new();
        let mut row = rows.begin(17, Some(1500));
        row.key(b"person:1");
        row.bytes(0, b"Ada");
        row.link(1, 2, b"dept:7", b"since 1999");
        row.end();
        let mut refused = rows.begin(18, None);
        refused.key(b"person:2");
        drop(refused);
        let mut row = rows.begin(1 << 60, None);
        row.key(b"");
        row.link_by::<()>((1, 2), b"", |_| Ok(false)).unwrap();
        row.end();

        let both: Vec<Row> = rows.iter().collect();
        assert_eq!((rows.len(), both.len()), (2, 2));
        assert_eq!(
            (both[0].place(), both[0].key(), both[0].expires_in_ms()),
            (17, &b"person:1"[..], Some(1500))
        );
        let fields: Vec<Field> = both[0].fields().collect();
        let link = Field::Link { name: 1, table: 2, key: b"dept:7", bytes: b"since 1999" };
        assert_eq!(fields, [Field::Bytes { name: 0, bytes: b"Ada" }, link]);
        assert_eq!((both[1].key(), both[1].field_count(), both[1].expires_in_ms()), (&b""[..], 0, None));
        assert_eq!(both[1].place(), 1 << 60);

        let mut copies = Rows::new();
        copies.push(both[0]);
        copies.begin_like(both[0]).end();
        let copies: Vec<Row> = copies.iter().collect();
        assert_eq!((copies[0].field_count(), copies[1].field_count()), (2, 0));
        assert_eq!((copies[1].key(), copies[1].expires_in_ms()), (both[0].key(), Some(1500)));
    }
}
