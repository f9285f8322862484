//! How much memory of the server items take, about.

use kelix::TableKind;
use kelix_types::SizeClass;
use kelix_types::limits::{INLINE_BODY_BYTES_MAX, PAGE_BYTES};

use crate::rows::{Field, Row};

/// An item's own header.
const HEADER: usize = 32;
/// What an attribute takes in the table of its section.
const ATTRIBUTE: usize = 8;
/// What a link has before its key.
const LINK: usize = 24;
/// A key's share of the buckets of a hash table, which are half to three quarters full.
const HASH_KEY: u64 = 20;
/// The same of the leaves and models of an ordered table.
const ORDERED_KEY: u64 = 48;
/// A number and its value of 8 bytes in leaves and models.
const INLINE_KEY: u64 = 32;

fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(8)
}

/// The bytes of a link in a section.
pub(crate) fn link_bytes(key: usize, bytes: usize) -> usize {
    ATTRIBUTE + padded(LINK + padded(key) + bytes)
}

/// The bytes of an item whose section has so many, with its share of the index.
pub(crate) fn item_bytes(kind: TableKind, key: usize, section: usize) -> u64 {
    if !kind.has_items() {
        return INLINE_KEY;
    }
    let index = if kind.is_ordered() { ORDERED_KEY } else { HASH_KEY };
    let head = HEADER + padded(key);
    let slot = match SizeClass::for_bytes(head + section).filter(|_| section <= INLINE_BODY_BYTES_MAX) {
        Some(class) => class.bytes() as u64,
        None => (head as u64 + 64) + (section as u64).next_multiple_of(PAGE_BYTES),
    };
    slot + index
}

/// The bytes of attributes and links in a section.
pub(crate) fn field_bytes(row: Row<'_>) -> usize {
    let bytes = row.fields().map(|field| match field {
        Field::Bytes { bytes, .. } => ATTRIBUTE + padded(bytes.len()),
        Field::Link { key, bytes, .. } => link_bytes(key.len(), bytes.len()),
    });
    bytes.sum()
}

/// The bytes of an item.
pub(crate) fn row_bytes(kind: TableKind, row: Row<'_>) -> u64 {
    item_bytes(kind, row.key().len(), 8 + field_bytes(row))
}

/// With what is never quite full.
pub(crate) fn with_room(bytes: u64) -> u64 {
    bytes + bytes / 8
}
