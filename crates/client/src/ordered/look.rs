//! Looking for keys of ordered tables, one at a time and many at once.

use kelix_fabric::Direct;
use kelix_image::PlainItem;
use kelix_index::{AT_ONCE, LEAVES_FURTHER, Step, Way, lead, leaf_in};
use kelix_types::limits::READ_EPOCHS_MAX;
use kelix_types::{Incarnation, TableId, TableKind};

use super::{OrderedReader, Reads, way};
use crate::pointers::Pointer;
use crate::read::{ShardReader, Verdict, Watermark, judge};

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

/// Looks for a key of a batch in the leaf that it was led to, and beside that.
#[inline(always)]
pub(crate) fn look_at_step<R>(
    step: &Step<'_>,
    reads: &mut Reads,
    near: (&Direct, &Watermark),
    kind: TableKind,
    (table, key): (TableId, &[u8]),
    copy: impl FnMut(PlainItem<'_>) -> Option<R>,
) -> Option<Looked<R>> {
    let (way, rank, leaf) = step.guess().filter(|_| kind.takes_key(key))?;
    way::look(way, reads, near, kind, (leaf, rank, LEAVES_FURTHER), (table, key), copy)
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

    /// Leads some keys to the leaves that probably hold them.
    #[inline(always)]
    pub fn lead<'a>(
        &mut self,
        direct: &'a Direct,
        kind: TableKind,
        (table, keys): (TableId, &[&[u8]]),
        steps: &mut [Step<'a>],
    ) {
        let map = direct.map.view();
        if let Some(top) = self.of(table).top(map, table) {
            lead(map, (top, kind), keys.iter().copied(), steps);
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
