//! The way from a key to its leaf and its item, by loads.

use kelix_fabric::Direct;
use kelix_image::words::Words;
use kelix_image::{Kind, MapView, PlainItem, header_word, holds_key};
use kelix_index::{
    DirectoryRoot, Guess, LeafHeader, SubModel, TABLE_HEADER_WORDS, Top, Window, guess_string, key_word,
    leaf_at, load_slot, root_word, tag_of_number, tag_of_string,
};
use kelix_types::{Guardian, Location, Place, TableId, TableKind, mark};

use super::{Looked, OfTable, Reads};
use crate::pointers::Pointer;
use crate::read::Watermark;

/// A top model: where it stands, and which one it is. While its guardian is live all that it leads to is what
/// it says.
#[derive(Clone, Copy)]
pub(super) struct TopPointer {
    place: Place,
    guardian: Guardian,
}

impl TopPointer {
    #[inline(always)]
    fn open(self, map: MapView<'_>) -> Option<Top<'_>> {
        let words = map.words_from(self.place)?;
        let live = Guardian(words.load_acquire(0)) == self.guardian;
        Top::open(words).filter(|_| live)
    }

    /// Looks from the header page on where the top model of a table is. `None`: there is none that is live.
    fn look_up(map: MapView<'_>, table: TableId) -> Option<TopPointer> {
        mark!("top model looked up");
        let root = root_word(table);
        let header = map.words(Place(0), header_word::ROOTS + 1)?;
        let list = DirectoryRoot::from_word(header.load_acquire(header_word::ROOTS))?;
        let list = map.words(list.place, 1usize.checked_shl(list.depth)?)?;
        if !Guardian(list.load_acquire(0)).is_live() || root >= list.count() {
            return None;
        }
        let place = Location::place_of(list.load_acquire(root));
        let guardian = Guardian(map.words(place, 1)?.load_acquire(0));
        guardian.is_live().then_some(TopPointer { place, guardian })
    }
}

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

/// A leaf; without words if there is none.
#[inline(always)]
pub(super) fn leaf(map: MapView<'_>, place: Option<Place>) -> Words<'_> {
    place.and_then(|place| map.words(place, Kind::LEAF_WORDS)).unwrap_or(Words::EMPTY)
}

/// Where a key is looked for: the translation table of its sub-model, and where in it.
#[derive(Clone, Copy)]
pub(super) struct Way<'a> {
    table: Words<'a>,
    within: Within,
}

/// Where in a translation table.
#[derive(Clone, Copy)]
enum Within {
    Numbers(Window),
    /// In which sub-model, and so many bytes are those of its first key.
    Strings(SubModel, usize),
}

impl<'a> Way<'a> {
    #[inline(always)]
    pub fn to(map: MapView<'a>, numbers: bool, (sub_model, word): (SubModel, u64)) -> Option<Way<'a>> {
        let SubModel { index, head, line, leaves, .. } = sub_model;
        let table = map.words(sub_model.table?, sub_model.words)?;
        if !numbers {
            return Some(Way { table, within: Within::Strings(sub_model, word as usize) });
        }
        // What stands in the table is not near yet.
        let base = if index > 0 { head } else { table.load(1) };
        Some(Way { table, within: Within::Numbers(Window::of(line, base, word, leaves)) })
    }

    /// Asks the processor for the entries that will be looked at.
    #[inline(always)]
    pub fn prefetch(&self) {
        match self.within {
            Within::Numbers(window) => self.table.part(TABLE_HEADER_WORDS + window.low, 1).prefetch_line(),
            Within::Strings(..) => self.table.prefetch_all(),
        }
    }

    #[inline(always)]
    pub fn guess(&self, key: &[u8]) -> Guess {
        match self.within {
            Within::Numbers(window) => window.guess(self.table),
            Within::Strings(sub_model, shared) => {
                guess_string(|at| self.table.load(at), self.table.count(), &sub_model, shared, key)
            }
        }
    }

    /// Looks for a key in the guessed leaf, which has this rank, and in so many beside that.
    #[inline(always)]
    pub fn look<R>(
        &self,
        reads: &mut Reads,
        (direct, watermark): (&Direct, &Watermark),
        kind: TableKind,
        (guessed, rank, leaves): (Words<'_>, usize, u32),
        wanted: (TableId, &[u8]),
        mut copy: impl FnMut(PlainItem<'_>) -> Option<R>,
    ) -> Option<Looked<R>> {
        let near = (direct, watermark);
        let mut look = |leaf: Words<'_>| look_in_leaf(reads, near, (leaf, kind), wanted, &mut copy);
        match look(guessed) {
            None => self.further(direct.map.view(), (rank, leaves), look),
            found => found,
        }
    }

    /// Calls `look` with the leaf before the guessed one, and with those behind that, so many in all, until
    /// it finds what it looks for: the guessed one has been replaced, or the key stands before it.
    #[cold]
    #[inline(never)]
    pub fn further<R>(
        &self,
        map: MapView<'_>,
        (rank, leaves): (usize, u32),
        mut look: impl FnMut(Words<'_>) -> Option<R>,
    ) -> Option<R> {
        let mut next = leaf_at(self.table, rank.saturating_sub(1));
        for _ in 0..leaves {
            let here = leaf(map, Some(next?));
            if let Some(found) = look(here) {
                mark!("key found in a leaf beside the guessed one");
                return Some(found);
            }
            next = if here.count() == 0 { None } else { LeafHeader::load(here).next() };
        }
        None
    }
}

/// Looks for a key in a leaf of a table of some kind. `None`: it is not known whether it is there.
#[inline(always)]
fn look_in_leaf<R>(
    reads: &mut Reads,
    near: (&Direct, &Watermark),
    (leaf, kind): (Words<'_>, TableKind),
    (table, key): (TableId, &[u8]),
    copy: &mut impl FnMut(PlainItem<'_>) -> Option<R>,
) -> Option<Looked<R>> {
    if leaf.count() != Kind::LEAF_WORDS {
        return None;
    }
    let leaf = leaf.part(0, Kind::LEAF_WORDS);
    reads.leaves += 1;
    let guardian = Guardian(leaf.load_acquire(0));
    let header = LeafHeader::load(leaf);
    if !guardian.is_live() || header.table() != table {
        return None;
    }
    let load = |slot: usize| load_slot(leaf, slot);
    if !kind.has_numbers() {
        // The items prove themselves, so nobody need know the leaf's fences.
        let mask = header.candidates(tag_of_string(key));
        let mut found = header.matching(mask, key_word(key, header.prefix_bytes()), load);
        return found.find_map(|(_, second)| look_at_item(reads, near, (table, key), second, copy));
    }
    let number = key_word(key, 0);
    if !header.holds_number(number) {
        return None;
    }
    let counts = || near.1.covers_leaf(near.0, guardian.incarnation());
    match header.matching(header.candidates(tag_of_number(number)), number, load).next() {
        Some((_, second)) if kind.has_items() => look_at_item(reads, near, (table, key), second, copy),
        _ if !counts() => Some(Looked::Unknown),
        Some((_, value)) => Some(Looked::Inline(value)),
        None => Some(Looked::Absent),
    }
}

/// Looks at the item of a second word, which must be that of the key, and live.
#[inline(always)]
fn look_at_item<R>(
    reads: &mut Reads,
    (direct, watermark): (&Direct, &Watermark),
    (table, key): (TableId, &[u8]),
    second: u64,
    copy: &mut impl FnMut(PlainItem<'_>) -> Option<R>,
) -> Option<Looked<R>> {
    let location = Location::from_word(second)?;
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
