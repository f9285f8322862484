//! Tables: their numbers, and what kinds of tables there are.
//!
//! ```text
//! table number   15   14 13             0
//!                [ kind ][ which one     ]
//! ```

use std::fmt;

use crate::limits;

/// What a table holds and in which order. Its number tells.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum TableKind {
    /// Items by key, without order.
    #[default]
    Hash,
    /// Numbers in order, each with a value of 8 bytes.
    Inline,
    /// Numbers in order, each with an item.
    Numbers,
    /// Byte strings in order, each with an item.
    Strings,
}

impl TableKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [TableKind; 4] =
        [TableKind::Hash, TableKind::Inline, TableKind::Numbers, TableKind::Strings];

    /// Whether its keys have an order.
    #[inline]
    pub const fn is_ordered(self) -> bool {
        !matches!(self, TableKind::Hash)
    }

    /// Whether its keys are numbers: 8 bytes, highest first, so that their order is that of the bytes.
    #[inline]
    pub const fn has_numbers(self) -> bool {
        matches!(self, TableKind::Inline | TableKind::Numbers)
    }

    /// Whether these bytes can be one of its keys.
    #[inline]
    pub const fn takes_key(self, key: &[u8]) -> bool {
        if self.has_numbers() { key.len() == 8 } else { key.len() <= limits::KEY_BYTES_MAX }
    }

    /// Whether a key has an item. Otherwise it has a value of 8 bytes.
    #[inline]
    pub const fn has_items(self) -> bool {
        !matches!(self, TableKind::Inline)
    }
}

impl fmt::Display for TableKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TableKind::Hash => "hash",
            TableKind::Inline => "ordered, u64 keys, inline8 values",
            TableKind::Numbers => "ordered, u64 keys",
            TableKind::Strings => "ordered, bytes keys",
        })
    }
}

/// A table of a namespace. Table 0 is the catalogue, which Kelix keeps for itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TableId(pub u16);

impl TableId {
    /// The table in which Kelix keeps the names of tables and attributes.
    pub const CATALOGUE: TableId = TableId(0);

    const KIND_SHIFT: u32 = 14;

    /// The `which`-th table of a kind, from 1 to [`limits::TABLES_MAX`].
    pub const fn new(kind: TableKind, which: u16) -> TableId {
        assert!(which > 0 && which as usize <= limits::TABLES_MAX);
        TableId((kind as u16) << Self::KIND_SHIFT | which)
    }

    /// What kind of table it is.
    #[inline]
    pub const fn kind(self) -> TableKind {
        TableKind::ALL[(self.0 >> Self::KIND_SHIFT) as usize]
    }

    /// Which one of its kind.
    #[inline]
    pub const fn which(self) -> u16 {
        self.0 & ((1 << Self::KIND_SHIFT) - 1)
    }
}

const _: () = assert!(limits::TABLES_MAX < 1 << TableId::KIND_SHIFT);
