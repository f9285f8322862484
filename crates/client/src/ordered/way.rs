//! Looks at leaves and items, where memory is within reach of loads, and whether what they say counts.

use kelix_fabric::Direct;
use kelix_image::words::Words;
use kelix_image::{MapView, PlainItem, holds_key};
use kelix_index::{InLeaf, Top, TopPointer, Way, look_in_leaf};
use kelix_types::{Guardian, Location, TableId, TableKind};

use super::{Looked, OfTable, Reads};
use crate::pointers::Pointer;
use crate::read::Watermark;

impl OfTable {
    /// The top model, if one is live.
    #[inline(always)]
    pub fn top<'a>(&mut self, map: MapView<'a>, table: TableId) -> Option<Top<'a>> {
        match self.top.and_then(|known| known.open(map)) {
            Some(top) => Some(top),
            None => self.look_up(map, table),
        }
    }

    #[cold]
    #[inline(never)]
    fn look_up<'a>(&mut self, map: MapView<'a>, table: TableId) -> Option<Top<'a>> {
        self.top = TopPointer::look_up(map, table);
        self.top?.open(map)
    }
}

/// Looks for a key in the guessed leaf, which has this rank, and in so many beside that.
#[inline(always)]
pub(super) fn look<R>(
    way: &Way<'_>,
    reads: &mut Reads,
    (direct, watermark): (&Direct, &Watermark),
    kind: TableKind,
    (guessed, rank, leaves): (Words<'_>, usize, u32),
    wanted: (TableId, &[u8]),
    mut copy: impl FnMut(PlainItem<'_>) -> Option<R>,
) -> Option<Looked<R>> {
    let near = (direct, watermark);
    let mut look = |leaf: Words<'_>| look_at_leaf(reads, near, (leaf, kind), wanted, &mut copy);
    match look(guessed) {
        None => way.further(direct.map.view(), (rank, leaves), look),
        found => found,
    }
}

/// Looks for a key in a leaf of a table of some kind. `None`: it is not known whether it is there.
#[inline(always)]
fn look_at_leaf<R>(
    reads: &mut Reads,
    near: (&Direct, &Watermark),
    leaf: (Words<'_>, TableKind),
    wanted: (TableId, &[u8]),
    copy: &mut impl FnMut(PlainItem<'_>) -> Option<R>,
) -> Option<Looked<R>> {
    reads.leaves += 1;
    let at_item = |location| look_at_item(reads, near, wanted, location, copy);
    let (leaf, says) = look_in_leaf(near.0.map.view(), leaf, wanted, at_item)?;
    match says {
        InLeaf::Item(looked) => Some(looked),
        _ if !near.1.covers_leaf(near.0, leaf.incarnation()) => Some(Looked::Unknown),
        InLeaf::Value(value) => Some(Looked::Inline(value)),
        InLeaf::Absent => Some(Looked::Absent),
    }
}

/// Looks at an item, which must be that of the key, and live.
#[inline(always)]
fn look_at_item<R>(
    reads: &mut Reads,
    (direct, watermark): (&Direct, &Watermark),
    (table, key): (TableId, &[u8]),
    location: Location,
    copy: &mut impl FnMut(PlainItem<'_>) -> Option<R>,
) -> Option<Looked<R>> {
    let place = direct.map.view().words_from(location.place())?;
    reads.items += 1;
    if let Some(item) = PlainItem::find(place, table, key).filter(|item| item.guardian().is_live()) {
        let pointer = Pointer { location, incarnation: item.guardian().incarnation() };
        if !watermark.covers_item(direct, pointer.incarnation) {
            return Some(Looked::At(pointer));
        }
        if let Some(copied) = copy(item) {
            reads.item_bytes += item.item_bytes() as u64;
            return Some(Looked::Copied(pointer, copied));
        }
    }
    let guardian = Guardian(place.load_acquire(0));
    // With room for all that may stand before the key.
    let fits = place.count() > 4 + key.len() / 8 + 1;
    let pointer = Pointer { location, incarnation: guardian.incarnation() };
    (fits && guardian.is_live() && holds_key(place, table, key)).then_some(Looked::At(pointer))
}
