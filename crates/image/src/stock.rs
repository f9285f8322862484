//! What an image holds beside which of its slots live: counted where objects come to life and die, so that
//! whoever goes on with the image need not look at each of them.

use std::collections::{BTreeMap, BTreeSet};

use kelix_types::limits::{GRANULE_BYTES, PAGE_BYTES, PLACE_ALIGN};
use kelix_types::{Guardian, Place, SizeClass, TableId};

use crate::item::{ItemFlags, ItemHeader};
use crate::pages::Kind;

/// Words of a bitmap with a bit a place that tell of one page.
pub(crate) const WORDS_A_PAGE: u64 = PAGE_BYTES / PLACE_ALIGN / 64;

/// The items that live.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stock {
    /// Items of tables.
    pub items: u64,
    /// Items of hash tables, by the numbers of their tables.
    pub tables: Vec<u64>,
    /// Items that end.
    pub expiring: u64,
    /// Where items stand that have to be read before anything else is done: those of the catalogue, and of
    /// large values.
    pub to_be_read: BTreeSet<Place>,
}

/// What was found wrong with items when they came to life.
#[derive(Clone, Copy, Default)]
pub(crate) struct Soundness {
    pub broken: bool,
    /// The last incarnation that one of them had.
    pub newest: u64,
}

impl Soundness {
    /// Looks at the first words of an item of a class that came to life.
    #[inline]
    pub fn look(&mut self, class: SizeClass, guardian: Guardian, second: u64) {
        let header = ItemHeader::from_word(second);
        self.broken |= header.is_none_or(|header| header.item_bytes() > class.bytes());
        self.newest = self.newest.max(guardian.incarnation().0);
    }
}

impl Stock {
    /// Counts an item that came to life, or died.
    #[inline]
    pub(crate) fn turn(&mut self, place: Place, header: ItemHeader, lives: bool) {
        let ItemHeader { table, flags, .. } = header;
        if flags == ItemFlags::FENCES {
            return;
        }
        // What makes no sense may count below 0, and is found by itself.
        let more = if lives { 1 } else { u64::MAX };
        self.items = self.items.wrapping_add(more);
        if !table.kind().is_ordered() {
            let which = usize::from(table.which());
            if self.tables.len() <= which {
                self.tables.resize(which + 1, 0);
            }
            self.tables[which] = self.tables[which].wrapping_add(more);
        }
        if flags.has(ItemFlags::EXPIRES) {
            self.expiring = self.expiring.wrapping_add(more);
        }
        if flags.has(ItemFlags::LARGE) || table == TableId::CATALOGUE {
            if lives {
                self.to_be_read.insert(place)
            } else {
                self.to_be_read.remove(&place)
            };
        }
    }

    /// Whether both say the same.
    pub(crate) fn agrees(&self, other: &Stock) -> bool {
        let of = |stock: &Stock| {
            let mut stock = stock.clone();
            let used = stock.tables.iter().rposition(|keys| *keys > 0);
            stock.tables.truncate(used.map_or(0, |last| last + 1));
            stock
        };
        of(self) == of(other)
    }
}

/// Which slots hold something live, of those that begin with a guardian: a bit a place, by the first granules
/// of segments.
#[derive(Default)]
pub struct Live(pub(crate) BTreeMap<usize, Vec<u64>>);

impl Live {
    /// The words that tell of a slab.
    fn of_slab(&self, kind: Kind, first: Place) -> &[u64] {
        let Some((granule, bits)) = self.0.range(..=first.granule()).next_back() else { return &[] };
        let page = (first.0 - *granule as u64 * GRANULE_BYTES) / PAGE_BYTES;
        let words = page * WORDS_A_PAGE..(page + kind.slab_pages()) * WORDS_A_PAGE;
        bits.get(words.start as usize..words.end as usize).unwrap_or_default()
    }

    /// How many slots of a slab live.
    pub(crate) fn count(&self, kind: Kind, first: Place) -> u64 {
        self.of_slab(kind, first).iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// The slots of a slab that do not live, the last one first.
    pub(crate) fn dead(&self, kind: Kind, first: Place) -> impl Iterator<Item = Place> + '_ {
        let bits = self.of_slab(kind, first);
        let lives = move |bytes: u64| {
            let bit = bytes / PLACE_ALIGN;
            bits.get((bit / 64) as usize).is_some_and(|word| word >> (bit % 64) & 1 != 0)
        };
        let bytes = (0..kind.slots()).rev().map(move |slot| slot * kind.slot_bytes());
        bytes.filter(move |bytes| !lives(*bytes)).map(move |bytes| first.plus(bytes))
    }
}
