//! Where the parts of an item stand.

use std::ops::Range;

use kelix_types::TableId;

use crate::item::{ItemFlags, ItemHeader};

/// Where the parts of an item stand, worked out once of its meta word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ItemLayout {
    meta: u64,
    key_start: u32,
    body_start: u32,
    key_bytes: u32,
    body_bytes: u32,
}

impl ItemLayout {
    /// That of an item with this meta word; `None` as in [`ItemHeader::from_word`], whose bounds are those of
    /// the sizes here.
    #[inline(always)]
    pub fn from_word(meta: u64) -> Option<ItemLayout> {
        let header = ItemHeader::from_word(meta)?;
        Some(ItemLayout {
            meta,
            key_start: header.key_start() as u32,
            body_start: header.body_start() as u32,
            key_bytes: header.key_bytes as u32,
            body_bytes: header.body_bytes as u32,
        })
    }

    /// Sizes, flags, table.
    #[inline(always)]
    pub fn header(self) -> ItemHeader {
        ItemHeader::of_word(self.meta)
    }

    /// The meta word.
    #[inline(always)]
    pub fn meta(self) -> u64 {
        self.meta
    }

    /// The table.
    #[inline(always)]
    pub fn table(self) -> TableId {
        TableId((self.meta >> 48) as u16)
    }

    /// Whether an item has any of these flags.
    #[inline(always)]
    pub fn has_any(self, flags: ItemFlags) -> bool {
        self.meta >> 38 & u64::from(flags.0) != 0
    }

    /// Words of the whole item.
    #[inline(always)]
    pub fn words(self) -> usize {
        (self.body_start as usize + self.body_bytes as usize).div_ceil(8)
    }

    /// The words of the body, where that begins at a whole one. Bytes behind the last whole word are no
    /// attributes.
    #[inline(always)]
    pub fn body_words(self) -> Range<usize> {
        let start = self.body_start as usize / 8;
        start..start + self.body_bytes as usize / 8
    }

    /// The bytes of the key.
    #[inline(always)]
    pub fn key(self) -> Range<usize> {
        let start = self.key_start as usize;
        start..start + self.key_bytes as usize
    }

    /// The bytes of the body.
    #[inline(always)]
    pub fn body(self) -> Range<usize> {
        let start = self.body_start as usize;
        start..start + self.body_bytes as usize
    }
}
