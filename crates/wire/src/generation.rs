//! Generations of datasets: what is said of their tables, and items on their way into them.
//!
//! ```text
//! tables    for each: id of its name 16 | id of the table 16 | overlay 8 | length of its name 8 | its name
//! items     for each: word 0  [ body bytes 32 | flags 8 | key bytes 24 ]    flags: 1 attribute section, 2 ends, 4 client flags
//!                     nanoseconds until it ends, with that flag only
//!                     client flags, with that flag only
//!                     key, padding to 8 bytes before an attribute section, and body, as they stand in an item
//! listed    for each: version | bytes of the key | the key, padded to 8 bytes
//! ```

use kelix_image::words::{bytes_of, bytes_of_mut};
use kelix_types::limits::{DATASET_TABLES_MAX, KEY_BYTES_MAX, NAME_BYTES_MAX};
use kelix_types::{TableId, TableKind, Version};

use crate::message::{Expiry, client_flags, client_flags_word, take_optional};

/// A table of a generation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadedTable {
    /// The table of this generation.
    pub table: TableId,
    /// The id that stands for its name, in every generation.
    pub name_id: TableId,
    /// Its name.
    pub name: String,
    /// Clients may write to it.
    pub overlay: bool,
}

/// Writes tables. Ids are zero where they are asked for; the kind is that of the name's id.
pub fn encode_tables(tables: &[LoadedTable]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for LoadedTable { table, name_id, name, overlay } in tables {
        bytes.extend_from_slice(&name_id.0.to_le_bytes());
        bytes.extend_from_slice(&table.0.to_le_bytes());
        bytes.extend_from_slice(&[u8::from(*overlay)]);
        bytes.extend_from_slice(&[name.len() as u8]);
        bytes.extend_from_slice(name.as_bytes());
    }
    bytes
}

/// Reads tables. `None`: they make no sense.
pub fn decode_tables(mut bytes: &[u8]) -> Option<Vec<LoadedTable>> {
    let mut tables = Vec::new();
    while let [a, b, c, d, overlay, length, rest @ ..] = bytes {
        let (name, rest) = rest.split_at_checked(usize::from(*length))?;
        let name = std::str::from_utf8(name).ok().filter(|name| !name.is_empty())?.to_string();
        if *overlay > 1 || tables.len() == DATASET_TABLES_MAX {
            return None;
        }
        let (name_id, table) = (TableId(u16::from_le_bytes([*a, *b])), TableId(u16::from_le_bytes([*c, *d])));
        tables.push(LoadedTable { table, name_id, name, overlay: *overlay == 1 });
        bytes = rest;
    }
    (bytes.is_empty() && !tables.is_empty()).then_some(tables)
}

const _: () = assert!(NAME_BYTES_MAX <= u8::MAX as usize);

/// In place of a cursor: are all links of the generation good now, as far as other shards were asked for
/// their targets?
pub const RESOLVED: u64 = u64::MAX;

/// The id that asks for a table of a kind.
pub fn any_of(kind: TableKind) -> TableId {
    TableId(TableId::new(kind, 1).0 - 1)
}

const ATTRIBUTES: u64 = 1;
const ENDS: u64 = 2;
const CLIENT_FLAGS: u64 = 4;
const KEY_BITS: u32 = 24;

/// An item on its way into a table of a generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewItem<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The body.
    pub body: &'a [u8],
    /// It is an attribute section.
    pub attributes: bool,
    /// When it ends.
    pub expiry: Option<Expiry>,
    /// What the client says of it.
    pub client_flags: u32,
}

impl NewItem<'_> {
    fn body_start(&self) -> usize {
        if self.attributes { self.key.len().next_multiple_of(8) } else { self.key.len() }
    }

    /// The words before the key.
    #[inline]
    fn options(&self) -> impl Iterator<Item = u64> + use<> {
        self.expiry.map(Expiry::word).into_iter().chain(client_flags_word(self.client_flags))
    }

    /// Words that it takes with a body of so many bytes.
    #[inline]
    pub fn words_with(&self, body_bytes: usize) -> usize {
        1 + self.options().count() + (self.body_start() + body_bytes).div_ceil(8)
    }

    /// Appends it.
    pub fn push(&self, words: &mut Vec<u64>) {
        self.push_by(words, self.body.len(), |body| body.copy_from_slice(self.body));
    }

    /// Appends it with a body of so many bytes that is written in place, and not its own.
    #[inline]
    pub fn push_by(&self, words: &mut Vec<u64>, body_bytes: usize, write: impl FnOnce(&mut [u8])) {
        let flags = u64::from(self.attributes) * ATTRIBUTES
            + u64::from(self.expiry.is_some()) * ENDS
            + u64::from(self.client_flags != 0) * CLIENT_FLAGS;
        words.push((body_bytes as u64) << 32 | flags << KEY_BITS | self.key.len() as u64);
        words.extend(self.options());
        let (at, start) = (words.len(), self.body_start());
        words.resize(at + (start + body_bytes).div_ceil(8), 0);
        let bytes = bytes_of_mut(&mut words[at..]);
        bytes[..self.key.len()].copy_from_slice(self.key);
        write(&mut bytes[start..start + body_bytes]);
    }
}

/// An item as it arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived<'a> {
    /// What it is.
    pub item: NewItem<'a>,
    /// Key and body in words, as they stand in an item from its key on.
    pub tail: &'a [u64],
}

/// Takes the first item off. `None`: it makes no sense, or there is none.
pub fn take_item<'a>(words: &mut &'a [u64]) -> Option<Arrived<'a>> {
    let (head, mut rest) = words.split_first()?;
    let (key_bytes, body_bytes) = ((head & ((1 << KEY_BITS) - 1)) as usize, (head >> 32) as usize);
    let flags = head >> KEY_BITS & 0xff;
    if flags > 7 || key_bytes > KEY_BYTES_MAX {
        return None;
    }
    let mut optional = |flag: u64| take_optional(flags & flag != 0, &mut rest);
    let expiry = optional(ENDS)?.map(Expiry::from_word);
    let client_flags = client_flags(optional(CLIENT_FLAGS)?)?;
    let attributes = flags & ATTRIBUTES != 0;
    let start = if attributes { key_bytes.next_multiple_of(8) } else { key_bytes };
    let (tail, rest) = rest.split_at_checked((start + body_bytes).div_ceil(8))?;
    *words = rest;
    let bytes = bytes_of(tail);
    let (key, body) = (&bytes[..key_bytes], &bytes[start..][..body_bytes]);
    let item = NewItem { key, body, attributes, expiry, client_flags };
    Some(Arrived { item, tail })
}

/// Words that [`push_listed`] takes.
pub fn listed_words(key: &[u8]) -> usize {
    2 + key.len().div_ceil(8)
}

/// Appends a key that clients wrote into a loaded table, with its version.
pub fn push_listed(words: &mut Vec<u64>, version: Version, key: &[u8]) {
    words.extend([version.0, key.len() as u64]);
    let at = words.len();
    words.resize(at + key.len().div_ceil(8), 0);
    bytes_of_mut(&mut words[at..])[..key.len()].copy_from_slice(key);
}

/// Takes the first of such keys off. `None`: it makes no sense, or there is none.
pub fn take_listed<'a>(words: &mut &'a [u64]) -> Option<(Version, &'a [u8])> {
    let [version, key_bytes, rest @ ..] = *words else { return None };
    let key_bytes = usize::try_from(*key_bytes).ok().filter(|bytes| *bytes <= KEY_BYTES_MAX)?;
    let (key, rest) = rest.split_at_checked(key_bytes.div_ceil(8))?;
    *words = rest;
    Some((Version(*version), &bytes_of(key)[..key_bytes]))
}

/// The argument of a [`crate::Op::Drop`] that is about the dataset of that name, not about a table.
pub const DROP_DATASET: u64 = 1;

/// Why a generation cannot be begun: in the version of the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BuildRefusal {
    /// Another generation of the dataset is being built.
    UnderWay,
    /// The name of the table of this index is taken, or stands there twice.
    NameTaken(usize),
    /// There are as many tables as there can be.
    NoTables,
}

impl BuildRefusal {
    /// As a word.
    pub fn word(self) -> u64 {
        match self {
            BuildRefusal::UnderWay => 1,
            BuildRefusal::NameTaken(index) => 2 | (index as u64) << 8,
            BuildRefusal::NoTables => 3,
        }
    }

    /// What a word says, if it says anything.
    pub fn of_word(word: u64) -> Option<BuildRefusal> {
        match word & 0xff {
            1 => Some(BuildRefusal::UnderWay),
            2 => Some(BuildRefusal::NameTaken((word >> 8) as usize)),
            3 => Some(BuildRefusal::NoTables),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_keys_come_back_and_nonsense_does_not() {
        let mut words = Vec::new();
        push_listed(&mut words, Version(9), b"a key of more than a word");
        push_listed(&mut words, Version(8), b"");
        assert_eq!((words.len(), listed_words(b"a key of more than a word")), (8, 6));
        let mut left = &words[..];
        assert_eq!(take_listed(&mut left), Some((Version(9), &b"a key of more than a word"[..])));
        assert_eq!(take_listed(&mut left), Some((Version(8), &b""[..])));
        assert_eq!(take_listed(&mut left), None);
        for nonsense in [&[1][..], &[1, 9], &[1, u64::MAX, 0], &[1, 1 << 20, 0]] {
            assert_eq!(take_listed(&mut &nonsense[..]), None, "{nonsense:?}");
        }
    }

    #[test]
    fn tables_come_back_and_nonsense_does_not() {
        let table = |name: &str, overlay| LoadedTable {
            table: TableId(0x0102),
            name_id: TableId(7),
            name: name.into(),
            overlay,
        };
        let tables = [table("people", false), table("departments", true)];
        let bytes = encode_tables(&tables);
        assert_eq!(bytes[..12], [7, 0, 2, 1, 0, 6, b'p', b'e', b'o', b'p', b'l', b'e']);
        assert_eq!(decode_tables(&bytes).as_deref(), Some(&tables[..]));
        for cut in (0..bytes.len()).filter(|cut| *cut != 12) {
            assert_eq!(decode_tables(&bytes[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn items_come_back_and_nonsense_does_not() {
        let items = [
            NewItem { key: b"stu001", body: b"ABY", attributes: false, expiry: None, client_flags: 0 },
            NewItem {
                key: b"stu002",
                body: &[9; 16],
                attributes: true,
                expiry: Some(Expiry::At(1000)),
                client_flags: 3,
            },
        ];
        let mut words = Vec::new();
        items.iter().for_each(|item| item.push(&mut words));
        assert_eq!(words[..3], [3 << 32 | 6, u64::from_le_bytes(*b"stu001AB"), u64::from(b'Y')]);
        assert_eq!(words.len(), items.iter().map(|item| item.words_with(item.body.len())).sum::<usize>());
        let mut rest = &words[..];
        for item in items {
            let arrived = take_item(&mut rest).unwrap();
            assert_eq!(arrived.item, item);
        }
        assert_eq!((rest.len(), take_item(&mut rest)), (0, None));
        for bit in 0..words.len() * 64 {
            let mut bad = words.clone();
            bad[bit / 64] ^= 1 << (bit % 64);
            let mut rest = &bad[..];
            while take_item(&mut rest).is_some() {}
        }
    }
}
