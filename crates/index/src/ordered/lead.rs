//! Many keys of an ordered table on their way to their leaves at once.

use kelix_image::words::Words;
use kelix_image::{Kind, MapView};
use kelix_types::{Location, TableKind};

use super::leaf::{LeafHeader, key_word, slot_word, slots, tag_of_number, tag_of_string};
use super::way::{Way, leaf_in};
use crate::learned::Top;

/// Keys of a batch whose memory accesses overlap.
pub const AT_ONCE: usize = 64;

/// A key of a batch, and how far it is on its way.
#[derive(Clone, Copy)]
pub struct Step<'a> {
    number: u64,
    /// The sub-models among which its own is.
    range: (usize, usize),
    way: Option<Way<'a>>,
    /// Rank of the guessed leaf, and the leaf; without words if there is none.
    rank: usize,
    leaf: Words<'a>,
}

impl<'a> Step<'a> {
    /// At the beginning of the way.
    pub const BEGIN: Self = Step { number: 0, range: (0, 0), way: None, rank: 0, leaf: Words::EMPTY };

    /// The way that the key went, and the rank of the guessed leaf and the leaf, which has no words if there
    /// is none.
    #[inline(always)]
    pub fn guess(&self) -> Option<(&Way<'a>, usize, Words<'a>)> {
        Some((self.way.as_ref()?, self.rank, self.leaf))
    }
}

/// Leads some keys to the leaves that probably hold them, their memory accesses overlapping: those of one
/// level of the way after those of the level before. What is looked at next is near then.
#[inline(always)]
pub fn lead<'a, 'k>(
    map: MapView<'a>,
    (top, kind): (Top<'a>, TableKind),
    keys: impl Iterator<Item = &'k [u8]> + Clone,
    steps: &mut [Step<'a>],
) {
    if kind.has_numbers() {
        for (step, key) in steps.iter_mut().zip(keys.clone()) {
            step.number = key_word(key, 0);
            top.prefetch_cell(step.number);
        }
        for step in steps.iter_mut() {
            step.range = top.cell(step.number);
            top.prefetch_entry(step.range.0);
        }
    }
    for (step, key) in steps.iter_mut().zip(keys.clone()) {
        let found = match kind.has_numbers() {
            true => Some((top.find_number(step.number, step.range), step.number)),
            false => top.find_in(kind, key),
        };
        step.way = found.and_then(|found| Way::to(map, kind.has_numbers(), found));
        step.way.iter().for_each(Way::prefetch);
    }
    for (step, key) in steps.iter_mut().zip(keys.clone()) {
        let Some(way) = &step.way else { continue };
        let guess = way.guess(key);
        (step.rank, step.leaf) = (guess.rank, leaf_in(map, guess.leaf));
        step.leaf.prefetch_line();
    }
    let slot_of = |step: &Step<'a>, key: &[u8]| {
        let leaf = Some(step.leaf).filter(|leaf| leaf.count() == Kind::LEAF_WORDS)?;
        let tag = if kind.has_numbers() { tag_of_number(step.number) } else { tag_of_string(key) };
        let slot = slots(LeafHeader::load(leaf).candidates(tag)).next()?;
        Some(leaf.part(slot_word(slot), 2))
    };
    for (step, key) in steps.iter().zip(keys.clone()) {
        slot_of(step, key).iter().for_each(|slot| slot.prefetch_line());
    }
    if kind.has_items() {
        for (step, key) in steps.iter().zip(keys) {
            let location = slot_of(step, key).and_then(|slot| Location::from_word(slot.load(1)));
            let item = location.and_then(|location| map.words_from(location.place()));
            item.iter().for_each(|item| item.prefetch_line());
        }
    }
}
