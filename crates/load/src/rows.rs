//! Items on their way from a source to the store, packed.
//!
//! ```text
//! record  bytes 32 of what follows | fields 32 | place 64 | expiry ms 64, all ones: never | key bytes 32 | key
//!         then each field: name 16 | table 16, all ones: bytes | bytes 32 | key bytes 32 | key | bytes
//! ```
//!
//! The place is the row's number or line in its source. A field is an attribute, or a link with the target's key and bytes
//! of its own. The same records stand in batches and in spools.

/// In place of a table: the field is bytes, and no link.
const NO_TABLE: u16 = u16::MAX;
/// In place of a time: the item does not end.
const NEVER: u64 = u64::MAX;

/// Bytes before a record's key.
const HEAD_BYTES: usize = 28;
/// Bytes before a field's key.
const FIELD_BYTES: usize = 12;

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

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("2 bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes")) as usize
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

impl<'a> Row<'a> {
    /// The row's number or line in its source.
    pub fn place(self) -> u64 {
        u64_at(self.record, 8)
    }

    /// After how many milliseconds it ends, if it does.
    pub fn expires_in_ms(self) -> Option<u64> {
        Some(u64_at(self.record, 16)).filter(|time| *time != NEVER)
    }

    /// The key: 8 bytes, highest first, where keys are numbers.
    pub fn key(self) -> &'a [u8] {
        &self.record[HEAD_BYTES..][..u32_at(self.record, 24)]
    }

    /// How many attributes and links it has.
    pub fn field_count(self) -> usize {
        u32_at(self.record, 4)
    }

    /// Its attributes and links, in order.
    pub fn fields(self) -> impl Iterator<Item = Field<'a>> {
        let mut at = HEAD_BYTES + self.key().len();
        (0..self.field_count()).map(move |_| {
            let (field, bytes) = field_at(self.record, at);
            at += bytes;
            field
        })
    }

    /// The record itself.
    pub(crate) fn record(self) -> &'a [u8] {
        self.record
    }
}

/// A field, and how many bytes it takes.
fn field_at(record: &[u8], at: usize) -> (Field<'_>, usize) {
    let (name, table) = (u16_at(record, at), u16_at(record, at + 2));
    let (bytes, key) = (u32_at(record, at + 4), u32_at(record, at + 8));
    let (key, bytes) = record[at + FIELD_BYTES..][..key + bytes].split_at(key);
    let field = match table {
        NO_TABLE => Field::Bytes { name, bytes },
        _ => Field::Link { name, table, key, bytes },
    };
    (field, FIELD_BYTES + key.len() + bytes.len())
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
        let mut new = self.begin(row.place());
        if let Some(time) = row.expires_in_ms() {
            new.expires_in_ms(time);
        }
        new.key(row.key());
        new
    }

    /// Begins an item. It is there once it is ended.
    pub(crate) fn begin(&mut self, place: u64) -> NewRow<'_> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; HEAD_BYTES]);
        self.bytes[start + 8..][..8].copy_from_slice(&place.to_le_bytes());
        self.bytes[start + 16..][..8].copy_from_slice(&NEVER.to_le_bytes());
        NewRow { rows: self, start, fields: 0, ended: false }
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
    (bytes.len() >= 4).then(|| u32_at(bytes, 0) + 4)
}

/// An item that is being made: its key first, then fields.
pub(crate) struct NewRow<'r> {
    rows: &'r mut Rows,
    start: usize,
    fields: u32,
    ended: bool,
}

impl NewRow<'_> {
    pub fn expires_in_ms(&mut self, time: u64) {
        self.rows.bytes[self.start + 16..][..8].copy_from_slice(&time.to_le_bytes());
    }

    /// The buffer behind which the key is to be written.
    pub fn begin_key(&mut self) -> &mut Vec<u8> {
        &mut self.rows.bytes
    }

    /// Ends the key that was written there.
    pub fn end_key(&mut self) {
        let key = self.rows.bytes.len() - self.start - HEAD_BYTES;
        self.rows.bytes[self.start + 24..][..4].copy_from_slice(&(key as u32).to_le_bytes());
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

    pub fn bytes(&mut self, name: u16, bytes: &[u8]) {
        self.field_head(name, NO_TABLE, 0, bytes.len());
        self.rows.bytes.extend_from_slice(bytes);
    }

    pub fn link(&mut self, name: u16, table: u16, key: &[u8], bytes: &[u8]) {
        self.field_head(name, table, key.len(), bytes.len());
        self.rows.bytes.extend_from_slice(key);
        self.rows.bytes.extend_from_slice(bytes);
    }

    /// A link whose key is written in place. Without a key there is no link.
    pub fn link_by<E>(
        &mut self,
        (name, table): (u16, u16),
        bytes: &[u8],
        key: impl FnOnce(&mut Vec<u8>) -> Result<bool, E>,
    ) -> Result<(), E> {
        let start = self.rows.bytes.len();
        self.field_head(name, table, 0, bytes.len());
        if key(&mut self.rows.bytes)? {
            let key = self.rows.bytes.len() - start - FIELD_BYTES;
            self.rows.bytes[start + 8..][..4].copy_from_slice(&(key as u32).to_le_bytes());
            self.rows.bytes.extend_from_slice(bytes);
        } else {
            self.rows.bytes.truncate(start);
            self.fields -= 1;
        }
        Ok(())
    }

    fn field_head(&mut self, name: u16, table: u16, key: usize, bytes: usize) {
        let mut head = [0; FIELD_BYTES];
        head[..2].copy_from_slice(&name.to_le_bytes());
        head[2..4].copy_from_slice(&table.to_le_bytes());
        head[4..8].copy_from_slice(&(bytes as u32).to_le_bytes());
        head[8..].copy_from_slice(&(key as u32).to_le_bytes());
        self.rows.bytes.extend_from_slice(&head);
        self.fields += 1;
    }

    /// Ends the item.
    pub fn end(mut self) {
        let bytes = (self.rows.bytes.len() - self.start - 4) as u32;
        self.rows.bytes[self.start..][..4].copy_from_slice(&bytes.to_le_bytes());
        self.rows.bytes[self.start + 4..][..4].copy_from_slice(&self.fields.to_le_bytes());
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
        let mut row = rows.begin(17);
        row.key(b"person:1");
        row.bytes(0, b"Ada");
        row.link(1, 2, b"dept:7", b"since 1999");
        row.expires_in_ms(1500);
        row.end();
        let mut refused = rows.begin(18);
        refused.key(b"person:2");
        drop(refused);
        let mut row = rows.begin(19);
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

        let mut copies = Rows::new();
        copies.push(both[0]);
        copies.begin_like(both[0]).end();
        let copies: Vec<Row> = copies.iter().collect();
        assert_eq!((copies[0].field_count(), copies[1].field_count()), (2, 0));
        assert_eq!((copies[1].key(), copies[1].expires_in_ms()), (both[0].key(), Some(1500)));
    }
}
