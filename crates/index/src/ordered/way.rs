//! The way from a key of an ordered table to its leaf, and to what that says of it, by loads.
//!
//! ```text
//! list of roots -> top model -> cell -> entry of a sub-model -> translation table -> leaf -> item
//! ```
//!
//! The leaf is a guess, and proves itself (docs/read-rule.md, "Leaves"). What is looked at counts only if the
//! checks of the read rule say so afterwards.

use std::cmp::Ordering;

use kelix_image::words::Words;
use kelix_image::{Finding, ItemFlags, ItemHeader, Kind, MapView, Take, header_word};
use kelix_types::{Guardian, Location, Place, TableId, TableKind, mark};

use super::lead::{AT_ONCE, Step, lead};
use super::leaf::{LeafHeader, key_word, load_slot, tag_of_number, tag_of_string};
use crate::hash::DirectoryRoot;
use crate::index::root_word;
use crate::learned::{Guess, SubModel, TABLE_HEADER_WORDS, Top, Window, guess_string, leaf_at};

/// Leaves that are looked at when the guessed one does not hold the key: the one before it, and those behind
/// that.
pub const LEAVES_FURTHER: u32 = 3;

/// A top model: where it stands, and which one it is. While its guardian is live all that it leads to is what
/// it says.
#[derive(Clone, Copy)]
pub struct TopPointer {
    place: Place,
    guardian: Guardian,
}

impl TopPointer {
    /// The model, if it is live.
    #[inline(always)]
    pub fn open(self, map: MapView<'_>) -> Option<Top<'_>> {
        let words = map.words_from(self.place)?;
        let live = Guardian(words.load_acquire(0)) == self.guardian;
        Top::open(words).filter(|_| live)
    }

    /// Looks from the header page on where the top model of a table is. `None`: there is none that is live.
    pub fn look_up(map: MapView<'_>, table: TableId) -> Option<TopPointer> {
        mark!("top model looked up");
        if table.which() == 0 {
            // A number out of a frame, which is no table's.
            return None;
        }
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

/// A leaf; without words if there is none.
#[inline(always)]
pub fn leaf_in(map: MapView<'_>, place: Option<Place>) -> Words<'_> {
    place.and_then(|place| map.words(place, Kind::LEAF_WORDS)).unwrap_or(Words::EMPTY)
}

/// Where a key is looked for: the translation table of its sub-model, and where in it.
#[derive(Clone, Copy)]
pub struct Way<'a> {
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
    /// The way of a key to a sub-model and what that looks it up by, as the top model finds them. `None`: the
    /// sub-model has no translation table that is within reach.
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

    /// The leaf that probably holds the key.
    #[inline(always)]
    pub fn guess(&self, key: &[u8]) -> Guess {
        match self.within {
            Within::Numbers(window) => window.guess(self.table),
            Within::Strings(sub_model, shared) => {
                guess_string(|at| self.table.load(at), self.table.count(), &sub_model, shared, key)
            }
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
            let here = leaf_in(map, Some(next?));
            if let Some(found) = look(here) {
                mark!("key found in a leaf beside the guessed one");
                return Some(found);
            }
            next = if here.count() == 0 { None } else { LeafHeader::load(here).next() };
        }
        None
    }
}

/// What a leaf says of a key.
pub enum InLeaf<R> {
    /// What was made of the key's item.
    Item(R),
    /// The key's value, which has no item.
    Value(u64),
    /// The key is not there.
    Absent,
}

/// Looks for a key in a leaf of a table of some kind; `at_item` looks at the items that may be its own, until
/// it makes something of one. With the leaf's guardian, as it was before all else. `None`: it is not known
/// whether the key is there.
#[inline(always)]
pub fn look_in_leaf<R>(
    map: MapView<'_>,
    (leaf, kind): (Words<'_>, TableKind),
    (table, key): (TableId, &[u8]),
    mut at_item: impl FnMut(Location) -> Option<R>,
) -> Option<(Guardian, InLeaf<R>)> {
    if leaf.count() != Kind::LEAF_WORDS {
        return None;
    }
    let leaf = leaf.part(0, Kind::LEAF_WORDS);
    let guardian = Guardian(leaf.load_acquire(0));
    let header = LeafHeader::load(leaf);
    if !guardian.is_live() || header.table() != table {
        return None;
    }
    let load = |slot: usize| load_slot(leaf, slot);
    let says = if kind.has_numbers() {
        let number = key_word(key, 0);
        if !header.holds_number(number) {
            return None;
        }
        match header.matching(header.candidates(tag_of_number(number)), number, load).next() {
            Some((_, second)) if kind.has_items() => InLeaf::Item(at_item(Location::from_word(second)?)?),
            Some((_, value)) => InLeaf::Value(value),
            None => InLeaf::Absent,
        }
    } else {
        // The items prove themselves, so where there is one nobody need know the leaf's fences.
        let mask = header.candidates(tag_of_string(key));
        let mut found = header.matching(mask, key_word(key, header.prefix_bytes()), load).peekable();
        if found.peek().is_some() {
            InLeaf::Item(found.find_map(|(_, second)| at_item(Location::from_word(second)?))?)
        } else if holds_string(map, header, (table, key)) {
            InLeaf::Absent
        } else {
            return None;
        }
    };
    Some((guardian, says))
}

/// Whether a string is between the fences of a leaf, which are an item's key and its body.
#[cold]
#[inline(never)]
fn holds_string(map: MapView<'_>, leaf: LeafHeader, (table, key): (TableId, &[u8])) -> bool {
    let Some(location) = leaf.fences() else { return false };
    let Some(item) = map.words(location.place(), location.class().words()) else { return false };
    if item.count() < 2 || !Guardian(item.load_acquire(0)).is_live() {
        return false;
    }
    let is_it = |header: &ItemHeader| header.table == table && header.flags.has(ItemFlags::FENCES);
    let Some(header) = ItemHeader::from_word(item.load(1)).filter(is_it) else { return false };
    let (low, high) = ((header.key_start(), header.key_bytes), (header.body_start(), header.body_bytes));
    let is_above = || compare(item, high, key) == Some(Ordering::Greater);
    compare(item, low, key).is_some_and(Ordering::is_le) && (header.body_bytes == 0 || is_above())
}

/// How bytes of an item, from one on and so many, compare with a key. `None`: it does not have as many.
fn compare(item: Words<'_>, (at, bytes): (usize, usize), key: &[u8]) -> Option<Ordering> {
    let mut chunk = [0; 64];
    for begin in (0..bytes).step_by(chunk.len()) {
        let part = &mut chunk[..(bytes - begin).min(64)];
        if !item.copy_bytes_out(at + begin, part) {
            return None;
        }
        let end = key.len().min(begin + part.len());
        match (*part).cmp(&key[begin.min(end)..end]) {
            Ordering::Equal => {}
            order => return Some(order),
        }
    }
    Some(bytes.cmp(&key.len()))
}

/// Brings near what leads to some keys of an ordered table, and their items.
pub(crate) fn bring_near_in_order<'k>(
    map: MapView<'_>,
    table: TableId,
    keys: impl Iterator<Item = &'k [u8]> + Clone,
) -> Option<()> {
    let top = TopPointer::look_up(map, table)?.open(map)?;
    let mut steps = [Step::BEGIN; AT_ONCE];
    let count = keys.clone().count().min(AT_ONCE);
    lead(map, (top, table.kind()), keys, &mut steps[..count]);
    Some(())
}

/// Offers the slots in which the item of a key of an ordered table may stand, until one is taken, or says
/// what a leaf does, as [`READER`](crate::READER) does.
pub(crate) fn find_in_order(
    map: MapView<'_>,
    (table, key): (TableId, &[u8]),
    take: &mut Take<'_>,
) -> Option<Finding> {
    let kind = table.kind();
    let top = if kind.takes_key(key) { TopPointer::look_up(map, table)?.open(map)? } else { return None };
    let way = Way::to(map, kind.has_numbers(), top.find_in(kind, key)?)?;
    let guess = way.guess(key);
    let mut at_item = |location: Location| {
        let item = map.words(location.place(), location.class().words())?;
        take(location, item).then_some(())
    };
    let mut look = |leaf: Words<'_>| look_in_leaf(map, (leaf, kind), (table, key), &mut at_item);
    let guessed = leaf_in(map, guess.leaf);
    guessed.prefetch_all();
    let found = look(guessed).or_else(|| way.further(map, (guess.rank, LEAVES_FURTHER), look));
    let (guardian, says) = found?;
    Some(match says {
        InLeaf::Item(()) => Finding::Nothing,
        InLeaf::Value(value) => Finding::Leaf(guardian, Some(value)),
        InLeaf::Absent => Finding::Leaf(guardian, None),
    })
}
