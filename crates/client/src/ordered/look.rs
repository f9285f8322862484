//! Looking for keys of ordered tables, one at a time and many at once.

use kelix_fabric::Direct;
use kelix_image::words::Words;
use kelix_image::{Kind, PlainItem};
use kelix_index::{
    LEAVES_FURTHER, LeafHeader, Way, key_word, leaf_in, slot_word, slots, tag_of_number, tag_of_string,
};
use kelix_types::limits::READ_EPOCHS_MAX;
use kelix_types::{Incarnation, Location, TableId, TableKind};

use super::{OrderedReader, Reads, way};
use crate::pointers::Pointer;
use crate::read::{ShardReader, Verdict, Watermark, judge};

/// Keys of a batch whose memory accesses overlap.
pub(crate) const AT_ONCE: usize = 64;

/// What a look at an ordered table brought.
pub(crate) enum Looked<R> {
    /// The key's item, which is a plain one: where it stands, which one it is, and what was made of it.
    Copied(Pointer, R),
    /// Its value, which has no item.
    Inline(u64),
    /// Its item, which is to be read by itself.
    At(Pointer),
    /// It is not there.
    Absent,
    /// That could not be found out; ask the shard.
    Unknown,
}

/// A key of a batch, and how far it is on its way.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    number: u64,
    /// The sub-models among which its own is.
    range: (usize, usize),
    way: Option<Way<'a>>,
    /// Rank of the guessed leaf, and the leaf; without words if there is none.
    rank: usize,
    leaf: Words<'a>,
}

impl Step<'_> {
    pub const BEGIN: Self = Step { number: 0, range: (0, 0), way: None, rank: 0, leaf: Words::EMPTY };

    /// Looks for the key in the leaf that it was led to, and beside that.
    #[inline(always)]
    pub fn look<R>(
        &self,
        reads: &mut Reads,
        near: (&Direct, &Watermark),
        kind: TableKind,
        (table, key): (TableId, &[u8]),
        copy: impl FnMut(PlainItem<'_>) -> Option<R>,
    ) -> Option<Looked<R>> {
        let way = self.way.filter(|_| kind.takes_key(key))?;
        way::look(&way, reads, near, kind, (self.leaf, self.rank, LEAVES_FURTHER), (table, key), copy)
    }
}

impl OrderedReader {
    #[inline(always)]
    fn look<R>(
        &mut self,
        (direct, watermark): (&Direct, &Watermark),
        kind: TableKind,
        (table, key): (TableId, &[u8]),
        copy: impl FnMut(PlainItem<'_>) -> Option<R>,
    ) -> Option<Looked<R>> {
        let map = direct.map.view();
        let leaves = self.leaves_further();
        let top = self.of(table).top(map, table)?;
        let way = Way::to(map, kind.has_numbers(), top.find_in(kind, key)?)?;
        let guess = way.guess(key);
        let leaf = leaf_in(map, guess.leaf);
        // Which of its lines has the slot says its header; by then it is on its way.
        leaf.prefetch_all();
        let near = (direct, watermark);
        way::look(&way, &mut self.reads, near, kind, (leaf, guess.rank, leaves), (table, key), copy)
    }

    /// Leads some keys to the leaves that probably hold them, their memory accesses overlapping: those of one
    /// level of the way after those of the level before. What is looked at next is near then.
    #[inline(always)]
    pub fn lead<'a>(
        &mut self,
        direct: &'a Direct,
        kind: TableKind,
        (table, keys): (TableId, &[&[u8]]),
        steps: &mut [Step<'a>],
    ) {
        let map = direct.map.view();
        let Some(top) = self.of(table).top(map, table) else { return };
        if kind.has_numbers() {
            for (step, key) in steps.iter_mut().zip(keys) {
                step.number = key_word(key, 0);
                top.prefetch_cell(step.number);
            }
            for step in steps.iter_mut() {
                step.range = top.cell(step.number);
                top.prefetch_entry(step.range.0);
            }
        }
        for (step, key) in steps.iter_mut().zip(keys) {
            let found = match kind.has_numbers() {
                true => Some((top.find_number(step.number, step.range), step.number)),
                false => top.find_in(kind, key),
            };
            step.way = found.and_then(|found| Way::to(map, kind.has_numbers(), found));
            step.way.iter().for_each(Way::prefetch);
        }
        for (step, key) in steps.iter_mut().zip(keys) {
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
        for (step, key) in steps.iter().zip(keys) {
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
}

impl ShardReader {
    /// Looks for a key of an ordered table, where memory is within reach of loads. What `copy` makes of a
    /// plain item counts only if this returns it.
    #[inline(always)]
    pub fn look_in_order<R>(
        &mut self,
        table: TableId,
        key: &[u8],
        copy: impl FnMut(PlainItem<'_>) -> Option<R>,
    ) -> Looked<R> {
        let ShardReader { term, direct, ordered, watermark, .. } = self;
        let Some(direct) = direct.as_ref() else { return Looked::Unknown };
        let (near, before) = ((direct, &*watermark), direct.begin());
        // Numbers with values have code of their own, without the questions that do not arise for them.
        let looked = match table.kind() {
            kind @ TableKind::Inline => ordered.look(near, kind, (table, key), copy),
            kind => ordered.look(near, kind, (table, key), copy),
        };
        looked.filter(|_| in_time(direct, before, *term)).unwrap_or(Looked::Unknown)
    }

    /// Brings the leaves of some keys near, their memory accesses overlapping, for whoever reads them one by
    /// one.
    pub fn bring_near(&mut self, table: TableId, keys: &[&[u8]]) {
        let ShardReader { direct, ordered, .. } = self;
        let Some(direct) = direct.as_ref() else { return };
        for keys in keys.chunks(AT_ONCE) {
            let mut steps = [Step::BEGIN; AT_ONCE];
            ordered.lead(direct, table.kind(), (table, keys), &mut steps[..keys.len()]);
        }
    }
}

/// Whether what was found live since `before` was so in time: checks (b) and (c) of the read rule.
#[inline(always)]
pub(crate) fn in_time(direct: &Direct, before: u64, term: u64) -> bool {
    judge(Incarnation(0).live(), direct.sampled(before), READ_EPOCHS_MAX, term) == Verdict::Valid
}
