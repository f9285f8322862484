//! Ordered tables where their memory is within reach of loads, which [`kelix_index::Way`] leads through, and
//! copies of their models where it is READ.

mod look;
mod memory;
mod page;
mod remote;
mod way;

use kelix_index::{LEAVES_FURTHER, TopPointer, root_word};
use kelix_types::{Guardian, Incarnation, Place, TableId, mark};
use kelix_wire::ModelWords;

pub(crate) use look::{Looked, in_time, look_at_step};
pub(crate) use page::{Hint, Items, LeafWords, Page, Wanted};
pub(crate) use remote::{Look, ModelCopy, Origin};

/// Leaves that are looked at when there is no shard to ask: the models of a server that has gone stay as far
/// behind its last writes as they were.
const LEAVES_FURTHER_ALONE: u32 = 1 << 14;

/// What is known of the ordered tables of a shard, and what looking there has cost.
#[derive(Default)]
pub(crate) struct OrderedReader {
    /// By root.
    tables: Vec<OfTable>,
    /// The greatest incarnation that was seen live.
    seen: u64,
    pub reads: Reads,
    /// Whether the shard has gone, so that what is not found here is not found at all.
    pub alone: bool,
}

/// What is known of one table.
#[derive(Default)]
struct OfTable {
    top: Option<TopPointer>,
    /// The copy of its models, where memory is out of reach of loads.
    copy: Option<ModelCopy>,
    /// Gets since the last try to copy them.
    tries: u32,
}

/// Leaves and items that were read by loads, and bytes of the items.
#[derive(Default)]
pub(crate) struct Reads {
    pub leaves: u64,
    pub items: u64,
    pub item_bytes: u64,
}

impl OrderedReader {
    #[inline(always)]
    fn of(&mut self, table: TableId) -> &mut OfTable {
        let root = root_word(table);
        if self.tables.len() <= root {
            self.make_room(root);
        }
        &mut self.tables[root]
    }

    #[cold]
    fn make_room(&mut self, root: usize) {
        self.tables.resize_with(root + 1, OfTable::default);
    }

    /// How many leaves beside a guessed one are worth a look.
    fn leaves_further(&self) -> u32 {
        if self.alone { LEAVES_FURTHER_ALONE } else { LEAVES_FURTHER }
    }

    fn copy(&self, table: TableId) -> Option<&ModelCopy> {
        self.tables.get(root_word(table))?.copy.as_ref()
    }

    /// Where the way to a key begins, by a copy of the models.
    pub fn begin(&self, table: TableId, key: &[u8]) -> Option<Look> {
        self.copy(table)?.begin(key)
    }

    /// Goes on with the words of a look.
    pub fn go_on(&mut self, table: TableId, key: &[u8], look: Look, words: &[u64]) -> Option<Look> {
        if matches!(look, Look::Table { .. }) && Guardian(words[0]).is_live() {
            self.note_seen(Guardian(words[0]).incarnation());
        }
        self.of(table).copy.as_mut()?.go_on(key, look, words)
    }

    /// Whether there is a copy of the models of a table that nobody has replaced.
    pub fn has_copy(&mut self, table: TableId) -> bool {
        let of_table = self.of(table);
        if of_table.copy.as_ref().is_some_and(|copy| !copy.is_current()) {
            mark!("copy of models was replaced by another session");
            (of_table.copy, of_table.tries) = (None, 0);
        }
        of_table.copy.is_some()
    }

    /// Whether to try to copy the models of a table now: at first, and now and then if that did not succeed.
    pub fn may_try(&mut self, table: TableId, gets: u32) -> bool {
        let tries = &mut self.of(table).tries;
        let may = *tries % gets == 0;
        *tries = tries.wrapping_add(1);
        may
    }

    /// Keeps a copy of the models of a table.
    pub fn keep_copy(&mut self, table: TableId, copy: ModelCopy) {
        self.note_seen(copy.guardian().incarnation());
        self.of(table).copy = Some(copy);
    }

    /// The leaf of a sub-model that has a rank, if that is known.
    pub fn leaf_at(&self, table: TableId, index: usize, rank: usize) -> Option<Place> {
        self.copy(table)?.leaf_at(index, rank)
    }

    /// Forgets a translation table that led astray.
    pub fn forget_table(&mut self, table: TableId, index: usize) {
        if let Some(copy) = &self.of(table).copy {
            copy.forget_table(index);
        }
    }

    /// Takes over a sub-model that came with a reply. If it is of another top model the copy is of no use any
    /// more.
    pub fn renew(&mut self, table: TableId, model: &ModelWords<'_>) {
        // They were live when the shard told of them, before this reply came.
        self.note_seen(Guardian(model.table[0]).incarnation());
        let of_table = self.of(table);
        let old = of_table.copy.take_if(|copy| !copy.renew(model));
        if let Some(old) = old {
            mark!("copy of a top model was old");
            old.give_up();
        }
    }

    /// Bytes of all copies.
    pub fn copied_bytes(&self) -> usize {
        self.tables.iter().filter_map(|table| table.copy.as_ref()).map(ModelCopy::bytes).sum()
    }

    /// The greatest incarnation that was seen live. Whatever has a lesser one, or this, was written before
    /// that.
    #[inline(always)]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Takes note of one.
    pub fn note_seen(&mut self, incarnation: Incarnation) {
        self.seen = self.seen.max(incarnation.0);
    }
}
