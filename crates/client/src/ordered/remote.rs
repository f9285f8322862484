//! Ordered tables that are out of reach of loads: copies of their models, and the READs that lead from a key
//! to its leaf.
//!
//! How much of the models a session keeps is a matter of room (XStore, section 4.4):
//!
//! ```text
//! models and tables    leaf
//! models only          entries of a table -> leaf
//! top model only       entries of sub-models -> entries of a table -> leaf
//! nothing              a message
//! ```
//!
//! Tables are READ when they are first needed. A copy may be of any age: what it leads to is a guess, as in
//! memory (docs/read-rule.md, "Models"). When a guess was wrong the shard is asked, and its reply brings the
//! sub-model as it is now.

use kelix_image::words::Words;
use kelix_image::{Kind, Span};
use kelix_index::{
    Guess, SubModel, TABLE_HEADER_WORDS, TOP_COUNT_WORD, TOP_ENTRY_WORDS, Top, Window, guess_string,
    key_word, leaf_of,
};
use kelix_types::{Guardian, Place, mark};
use kelix_wire::ModelWords;

use super::memory::{ModelMemory, Parts};
use crate::shelf::Shelf;

/// What is kept of the models of a table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kept {
    TopOnly,
    Models,
    Tables,
}

/// A copy of the models of a table.
pub(crate) struct ModelCopy {
    origin: Origin,
    kept: Kept,
    memory: ModelMemory,
}

/// What a copy is of, how large it may be, and with whom it is shared.
#[derive(Clone)]
pub(crate) struct Origin {
    pub place: Place,
    pub guardian: Guardian,
    /// Bytes that it may have.
    pub budget: usize,
    pub shelf: Shelf,
    /// Its name there.
    pub name: String,
}

/// The READ that comes next on the way to a leaf.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Look {
    /// Entries of the top model, among which is that of the key.
    Entries { first: usize, count: usize, place: Place },
    /// A translation table.
    Table { sub_model: SubModel, place: Place },
    /// Some entries of one, from a rank on.
    Window { sub_model: SubModel, first: usize, count: usize, place: Place },
    /// A leaf: of which sub-model, by which guess, and how many have been looked at beside the guessed one.
    Leaf { index: usize, guess: Guess, further: u32, place: Place },
}

impl Look {
    /// What to READ.
    pub fn span(&self) -> (Place, usize) {
        match self {
            Look::Entries { count, place, .. } => (*place, count * TOP_ENTRY_WORDS),
            Look::Table { sub_model, place } => (*place, sub_model.words),
            Look::Window { count, place, .. } => (*place, *count),
            Look::Leaf { place, .. } => (*place, Kind::LEAF_WORDS),
        }
    }

    fn leaf(index: usize, guess: Guess) -> Option<Look> {
        Some(Look::Leaf { index, guess, further: 0, place: guess.leaf? })
    }
}

/// Most entries of the top model that are READ at once.
const ENTRIES_MAX: usize = 64;
/// Words for tables that are not there yet.
const SPARE_WORDS: usize = 1 << 10;

impl Origin {
    fn of(&self) -> (Place, Guardian) {
        (self.place, self.guardian)
    }
}

/// How many words of a top model are kept where there are so many bytes for it, and what that is.
fn kept_of(top: Top<'_>, budget: usize) -> Option<(Kept, usize)> {
    let (cells, all, tables) = (top.cell_words(), top.all_words(), top.capacity());
    // Room for the tables of one sub-model in eight, or there is no point in keeping any.
    let of_tables = top.count() * 64;
    let numbers = top.table().kind().has_numbers();
    match budget / 8 {
        words if words >= all + tables + of_tables / 8 => Some((Kept::Tables, all)),
        words if words >= all => Some((Kept::Models, all)),
        words if words >= cells && numbers => Some((Kept::TopOnly, cells)),
        _ => None,
    }
}

/// How the memory for so much of a top model is parted.
fn parts_of(top: Top<'_>, (kept, words): (Kept, usize), budget: usize) -> Parts {
    if kept < Kept::Tables {
        return Parts { top: words, tables: 0, arena: 0 };
    }
    let tables = top.capacity();
    // All tables twice, as there will be newer ones.
    let wanted: usize = (0..top.count()).map(|index| top.sub_model(index).words * 2).sum();
    let arena = (wanted + SPARE_WORDS).min((budget / 8).saturating_sub(words + tables));
    Parts { top: words, tables, arena }
}

impl ModelCopy {
    /// Words of a top model to be READ, from its header. `None`: it makes no sense, or there is no room for
    /// any of it.
    pub fn words_wanted(header: &Span, budget: usize) -> Option<usize> {
        kept_of(Top::open_shape(header.words())?, budget).map(|(_, words)| words)
    }

    /// The copy that somebody else has made.
    pub fn find(origin: Origin) -> Option<ModelCopy> {
        let found = ModelCopy::open(&origin, origin.shelf.find(&origin.name)?);
        if found.is_none() {
            // It is being replaced, or who was to do that has been killed.
            origin.shelf.remove(&origin.name);
        }
        found
    }

    /// Makes a copy of what was READ of a top model, for all who share it.
    pub fn new(origin: Origin, top: Words<'_>) -> Option<ModelCopy> {
        let shape = Top::open_shape(top)?;
        let kept = kept_of(shape, origin.budget)?;
        let whole = match kept.0 {
            Kept::TopOnly => Top::open_cells(top),
            _ => Top::open(top),
        };
        let parts = parts_of(whole?, kept, origin.budget);
        let lay_out = |words: Words<'_>| ModelMemory::lay_out(words, parts, origin.of(), top);
        ModelCopy::open(&origin, origin.shelf.put(&origin.name, parts.bytes(), lay_out)?)
    }

    fn open(origin: &Origin, span: Span) -> Option<ModelCopy> {
        let memory = ModelMemory::open(span, origin.of())?;
        let (kept, words) = kept_of(Top::open_shape(memory.top())?, origin.budget)?;
        (words == memory.parts().top).then(|| ModelCopy { origin: origin.clone(), kept, memory })
    }

    /// Which top model it is a copy of.
    pub fn guardian(&self) -> Guardian {
        self.origin.guardian
    }

    /// Bytes of all of it.
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Whether nobody has replaced it by a newer one.
    pub fn is_current(&self) -> bool {
        self.memory.is_current()
    }

    /// Lets everybody know that it is of no use.
    pub fn give_up(&self) {
        if self.memory.retire() {
            self.origin.shelf.remove(&self.origin.name);
        }
    }

    fn top(&self) -> Option<Top<'_>> {
        Top::open(self.memory.top())
    }

    /// Where the way to a key begins. `None`: with the shard.
    pub fn begin(&self, key: &[u8]) -> Option<Look> {
        if self.kept == Kept::TopOnly {
            let top = Top::open_cells(self.memory.top())?;
            let (first, last) = top.cell(key_word(key, 0));
            let count = last - first + 1;
            let place = self.origin.place.plus(top.entry_word(first) as u64 * 8);
            return (count <= ENTRIES_MAX).then_some(Look::Entries { first, count, place });
        }
        let top = self.top()?;
        let (sub_model, word) = top.find(key)?;
        if let Some(table) = self.memory.table(sub_model.index) {
            return self.in_table(&sub_model, (|at| table.load(at), table.count()), (key, word));
        }
        let place = sub_model.table?;
        // Where there is no room for another table, or for any, some of its entries take fewer bytes than all
        // of it.
        let no_room = self.kept == Kept::Models || !self.memory.has_room(sub_model.words);
        let windowed = no_room && top.table().kind().has_numbers() && sub_model.index > 0;
        Some(if windowed { Self::window(sub_model, word)? } else { Look::Table { sub_model, place } })
    }

    /// The leaf of a key, and of what stands for it, by the translation table of its sub-model.
    fn in_table(
        &self,
        sub_model: &SubModel,
        (table, words): (impl Fn(usize) -> u64, usize),
        (key, word): (&[u8], u64),
    ) -> Option<Look> {
        let leaves = sub_model.leaves.min(words - TABLE_HEADER_WORDS);
        let entry = |rank: usize| table(TABLE_HEADER_WORDS + rank);
        let numbers = Top::open_shape(self.memory.top())?.table().kind().has_numbers();
        let guess = match numbers {
            true => Window::of(sub_model.line, table(1), word, leaves).guess_by(entry),
            false => guess_string(table, words, sub_model, word as usize, key),
        };
        Look::leaf(sub_model.index, guess)
    }

    /// The entries of a sub-model of numbers that may name a number's leaf, and the one before.
    fn window(sub_model: SubModel, number: u64) -> Option<Look> {
        let Window { low, high, .. } = Window::of(sub_model.line, sub_model.head, number, sub_model.leaves);
        let first = low.saturating_sub(1);
        let place = sub_model.table?.plus((TABLE_HEADER_WORDS + first) as u64 * 8);
        Some(Look::Window { sub_model, first, count: high - first + 1, place })
    }

    /// Goes on with the words of a look that was not at a leaf. `None`: ask the shard.
    pub fn go_on(&mut self, key: &[u8], look: Look, words: &[u64]) -> Option<Look> {
        match look {
            Look::Entries { first, .. } => {
                let number = key_word(key, 0);
                let entries = words.chunks_exact(TOP_ENTRY_WORDS);
                let not_above = entries.clone().skip(1).take_while(|entry| entry[0] <= number).count();
                let entry = entries.clone().nth(not_above)?;
                let sub_model = SubModel::from_words(first + not_above, true, [entry[0], entry[1], entry[2]]);
                match sub_model.index {
                    0 => Some(Look::Table { sub_model, place: sub_model.table? }),
                    _ => Self::window(sub_model, number),
                }
            }
            Look::Table { sub_model, .. } => {
                if !Guardian(words[0]).is_live() {
                    mark!("translation table was old");
                    return None;
                }
                let word = self.top()?.word_in(&sub_model, key)?;
                self.keep_table(sub_model.index, words);
                self.in_table(&sub_model, (|at| words[at], words.len()), (key, word))
            }
            Look::Window { sub_model, first, .. } => {
                let entry = |rank: usize| words.get(rank.wrapping_sub(first)).copied().unwrap_or(u64::MAX);
                let number = key_word(key, 0);
                let window = Window::of(sub_model.line, sub_model.head, number, sub_model.leaves);
                Look::leaf(sub_model.index, window.guess_by(entry))
            }
            Look::Leaf { .. } => None,
        }
    }

    /// The leaf of a rank, if a table that is kept tells.
    pub fn leaf_at(&self, index: usize, rank: usize) -> Option<Place> {
        let table = self.memory.table(index)?;
        // Of strings there are bytes behind the entries.
        let leaves = self.top()?.sub_model(index).leaves.min(table.count() - TABLE_HEADER_WORDS);
        leaf_of((rank < leaves).then(|| table.load(TABLE_HEADER_WORDS + rank))?)
    }

    /// Keeps a table, if there is room.
    fn keep_table(&mut self, index: usize, words: &[u64]) {
        if self.kept == Kept::Tables && !self.memory.keep(index, words) && self.make_room() {
            self.memory.keep(index, words);
        }
    }

    /// Goes on in other memory with the tables that are of use, if they are the lesser part. `false`: there
    /// is no room then.
    fn make_room(&mut self) -> bool {
        let of_use: usize = self.memory.kept().map(|(_, table)| table.count()).sum();
        if of_use > self.memory.parts().arena / 2 || !self.memory.retire() {
            return false;
        }
        mark!("copy of models made anew without tables of no use");
        self.origin.shelf.remove(&self.origin.name);
        let Some(other) = ModelCopy::new(self.origin.clone(), self.memory.top()) else { return false };
        let mut words = Vec::new();
        for (index, table) in self.memory.kept() {
            words.resize(table.count(), 0);
            table.copy_out(0, &mut words);
            other.memory.keep(index, &words);
        }
        *self = other;
        true
    }

    /// Keeps no table of a sub-model.
    pub fn forget_table(&self, index: usize) {
        self.memory.forget(index);
    }

    /// Takes over a sub-model as the shard says that it is now. `false`: this is a copy of another top model.
    pub fn renew(&mut self, model: &ModelWords<'_>) -> bool {
        if Guardian(model.guardian) != self.origin.guardian {
            return false;
        }
        if self.kept == Kept::TopOnly {
            return true;
        }
        let index = model.index as usize;
        let words = self.memory.top();
        let Some(top) = self.top() else { return false };
        let (at, count) = (top.entry_word(index), top.count());
        if index > count || index == top.capacity() {
            return false;
        }
        // Strings of sub-models that came later are not here.
        if index == count && model.entry[3] as u32 != 0 {
            return false;
        }
        words.copy_in(at, &model.entry);
        if index == count {
            words.store(TOP_COUNT_WORD, count as u64 + 1);
        }
        self.keep_table(index, model.table);
        true
    }
}

#[cfg(test)]
mod tests {
    use kelix_image::{MemoryMap, header_word};
    use kelix_index::root_word;
    use kelix_shard::harness::Harness;
    use kelix_types::{Location, TableId, TableKind};
    use kelix_wire::mailboxes::{Mailboxes, PEER};
    use kelix_wire::{Op, RequestHead};

    use super::*;
    use crate::read::{Landing, ReadOp, ShardReader, Step};

    const TABLE: TableId = TableId::new(TableKind::Inline, 1);

    /// The top model of the table, and what a copy of it is of.
    fn top_of<'a>(map: &'a MemoryMap, server: &Harness, budget: usize, shelf: &Shelf) -> (Words<'a>, Origin) {
        let word = |place: Place| map.words(place, 1).unwrap().load(0);
        let list = Location::place_of(server.header().words().load(header_word::ROOTS));
        let place = Location::place_of(word(list.plus(root_word(TABLE) as u64 * 8)));
        let words = map.view().words_from(place).unwrap();
        let (guardian, shelf) = (Guardian(words.load(0)), shelf.clone());
        let origin = Origin { place, guardian, budget, shelf, name: format!("top-{:x}", guardian.0) };
        (words.part(0, Top::open_shape(words).unwrap().all_words()), origin)
    }

    fn copy_of(server: &Harness) -> ModelCopy {
        let map = server.map();
        let (top, origin) = top_of(&map, server, 1 << 20, &Shelf::Private);
        ModelCopy::new(origin, top).unwrap()
    }

    fn put(server: &mut Harness, number: u64) {
        server.call(RequestHead::new(Op::Put, 0, TABLE), &number.to_be_bytes(), &number.to_le_bytes());
    }

    /// The words of the table that a key's sub-model has.
    fn table_of(map: &MemoryMap, top: Words<'_>, key: &[u8]) -> (usize, Vec<u64>) {
        let (sub_model, _) = Top::open(top).unwrap().find(key).unwrap();
        let mut words = vec![0; sub_model.words];
        map.words(sub_model.table.unwrap(), sub_model.words).unwrap().copy_out(0, &mut words);
        (sub_model.index, words)
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn copies_of_two_sessions_are_one_until_it_is_replaced() {
        let folder = std::env::temp_dir().join(format!("kelix-copies-{}", std::process::id()));
        let shelf = Shelf::OfUser(kelix_fabric::shm::Shelf::at(folder.clone()).unwrap());
        let mut server = Harness::new(1, &Mailboxes::new());
        (0..40_000).for_each(|number| put(&mut server, number * 100));
        let map = server.map();
        let (top, origin) = top_of(&map, &server, 1 << 20, &shelf);
        assert!(ModelCopy::find(origin.clone()).is_none());
        let mut first = ModelCopy::new(origin.clone(), top).unwrap();
        let mut second = ModelCopy::find(origin.clone()).unwrap();
        // What one keeps the other finds, up to the leaf.
        let key = 2_000_000u64.to_be_bytes();
        let (index, words) = table_of(&map, top, &key);
        let look = second.begin(&key).unwrap();
        assert!(matches!(look, Look::Table { .. }), "{look:?}");
        first.keep_table(index, &words);
        let leaf = second.begin(&key).unwrap();
        assert!(matches!(leaf, Look::Leaf { .. }), "{leaf:?}");
        assert_eq!((second.go_on(&key, look, &words), first.bytes()), (Some(leaf), second.bytes()));
        // Tables that are replaced time and again take room, until what is of use goes on elsewhere, and the
        // other learns of it.
        while first.is_current() && second.is_current() {
            let old = first.bytes();
            first.keep_table(index, &words);
            assert!(first.bytes() <= old + words.len() * 8);
        }
        assert_eq!((first.is_current(), second.is_current()), (true, false));
        assert_eq!(first.begin(&key), Some(leaf));
        let third = ModelCopy::find(origin.clone()).unwrap();
        assert_eq!(third.begin(&key), Some(leaf));
        // One that is of no use is found by nobody, and nothing is left behind.
        third.give_up();
        assert!(!first.is_current() && ModelCopy::find(origin).is_none());
        drop((first, second, third));
        std::fs::remove_dir(folder).unwrap();
    }

    #[test]
    fn a_copy_keeps_to_its_budget() {
        let mut server = Harness::new(1, &Mailboxes::new());
        (0..40_000).for_each(|number| put(&mut server, number * 100));
        let map = server.map();
        let mut kinds = Vec::new();
        for budget in (0..200_000).step_by(500) {
            let (top, origin) = top_of(&map, &server, budget, &Shelf::Private);
            let Some(mut copy) = ModelCopy::new(origin, top) else { continue };
            for number in (0..40_000u64).step_by(50) {
                let key = (number * 100).to_be_bytes();
                let (index, words) = table_of(&map, top, &key);
                copy.keep_table(index, &words);
                assert!(copy.begin(&key).is_some(), "{budget}: {number}");
            }
            assert!(copy.bytes() <= budget + 64, "{budget}: {}", copy.bytes());
            kinds.push(copy.kept);
        }
        assert!(kinds.is_sorted(), "{kinds:?}");
        kinds.dedup();
        assert_eq!(kinds, [Kept::TopOnly, Kept::Models, Kept::Tables]);
    }

    /// The words of a READ may be older than its guardian. A leaf that is younger than all that was seen
    /// before might have been written meanwhile, so it counts only when it is read again.
    #[test]
    fn a_leaf_younger_than_what_led_to_it_is_read_again() {
        let mut server = Harness::new(1, &Mailboxes::new());
        (0..400).for_each(|number| put(&mut server, number * 100));
        let mut fabric = Mailboxes::new();
        (fabric.memory, fabric.term) = (Some(server.map()), Harness::TERM);
        let mut shard = ShardReader::new(PEER, Harness::TERM, None, false);
        shard.ordered.keep_copy(TABLE, copy_of(&server));
        let mut landing = Landing::default();
        let mut read = |shard: &mut ShardReader, number: u64| {
            let key = number.to_be_bytes();
            let hash = kelix_types::KeyHash(0);
            let mut op = ReadOp::start(&mut fabric, shard, 0, 0, (TABLE, hash, &key), (None, false));
            loop {
                match op.advance(&mut fabric, shard, &key, &mut landing) {
                    Step::Pending => {}
                    step => return (step, op.cost().reads, landing.value().to_vec()),
                }
            }
        };
        let value = |number: u64| number.to_le_bytes().to_vec();
        // The first of a sub-model reads its table.
        assert_eq!(read(&mut shard, 20_000), (Step::Valid, 2, value(20_000)));
        assert_eq!(read(&mut shard, 20_000), (Step::Valid, 1, value(20_000)));
        assert_eq!(read(&mut shard, 20_001).0, Step::Absent);
        // The leaf is replaced by two. The one that was guessed is dead; the one before it leads to its
        // successor.
        (20_001..20_018).for_each(|number| put(&mut server, number));
        let (first, second) = (read(&mut shard, 20_000), read(&mut shard, 20_000));
        assert_eq!(
            (first.0, &first.2, second.0, &second.2),
            (Step::Valid, &value(20_000), Step::Valid, &value(20_000))
        );
        assert_eq!((first.1, second.1 > 2), (second.1 + 1, true));
    }
}
