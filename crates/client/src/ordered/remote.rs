//! Ordered tables that are out of reach of loads: copies of their models, and the READs that lead from a key to its leaf.
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
//! Tables are READ when they are first needed. A copy may be of any age: what it leads to is a guess, as in memory
//! (docs/read-rule.md, "Models"). When a guess was wrong the shard is asked, and its reply brings the sub-model as it is now.

use kelix_image::{Kind, Span};
use kelix_index::{
    Guess, SubModel, TABLE_HEADER_WORDS, TOP_COUNT_WORD, TOP_ENTRY_WORDS, Top, Window, guess_string,
    key_word, leaf_of,
};
use kelix_types::{Guardian, Place, mark};
use kelix_wire::ModelWords;

/// What is kept of the models of a table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kept {
    TopOnly,
    Models,
    Tables,
}

/// A copy of the models of a table.
pub(crate) struct ModelCopy {
    place: Place,
    guardian: Guardian,
    kept: Kept,
    /// The top model, as far as it is kept, with room for sub-models that come.
    top: Span,
    /// The translation tables that are kept, by sub-model.
    tables: Vec<Option<Box<[u64]>>>,
    /// Bytes of all of it, and how many it may have.
    bytes: usize,
    budget: usize,
    /// Where a table is given up next, when there is no room for another.
    hand: usize,
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

/// How many words of a top model are kept where there are so many bytes for it, and what that is.
fn kept_of(top: Top<'_>, budget: usize) -> Option<(Kept, usize)> {
    let (cells, all) = (top.cell_words(), top.all_words());
    // Room for the tables of one sub-model in eight, or there is no point in keeping any.
    let of_tables = top.count() * 64;
    let numbers = top.table().kind().has_numbers();
    match budget / 8 {
        words if words >= all + of_tables / 8 => Some((Kept::Tables, all)),
        words if words >= all => Some((Kept::Models, all)),
        words if words >= cells && numbers => Some((Kept::TopOnly, cells)),
        _ => None,
    }
}

impl ModelCopy {
    /// Words of a top model to be READ, from its header. `None`: it makes no sense, or there is no room for any of it.
    pub fn words_wanted(header: &Span, budget: usize) -> Option<usize> {
        kept_of(Top::open_shape(header.words())?, budget).map(|(_, words)| words)
    }

    /// Makes a copy of what was READ of a top model.
    pub fn new(place: Place, guardian: Guardian, top: Span, budget: usize) -> Option<ModelCopy> {
        let (kept, words) = kept_of(Top::open_shape(top.words())?, budget)?;
        let opened =
            if kept == Kept::TopOnly { Top::open_cells(top.words()) } else { Top::open(top.words()) };
        let tables = (0..opened?.count()).map(|_| None).collect();
        Some(ModelCopy { place, guardian, kept, top, tables, bytes: words * 8, budget, hand: 0 })
    }

    /// Which top model it is a copy of.
    pub fn guardian(&self) -> Guardian {
        self.guardian
    }

    /// Bytes of all of it.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn top(&self) -> Option<Top<'_>> {
        Top::open(self.top.words())
    }

    /// Where the way to a key begins. `None`: with the shard.
    pub fn begin(&self, key: &[u8]) -> Option<Look> {
        if self.kept == Kept::TopOnly {
            let top = Top::open_cells(self.top.words())?;
            let (first, last) = top.cell(key_word(key, 0));
            let count = last - first + 1;
            let place = self.place.plus(top.entry_word(first) as u64 * 8);
            return (count <= ENTRIES_MAX).then_some(Look::Entries { first, count, place });
        }
        let top = self.top()?;
        let (sub_model, word) = top.find(key)?;
        if let Some(Some(words)) = self.tables.get(sub_model.index) {
            return self.in_table(&sub_model, words, (key, word));
        }
        let place = sub_model.table?;
        // Where there is no room for another table, or for any, some of its entries take fewer bytes than all of it.
        let no_room = self.kept == Kept::Models || self.bytes + sub_model.words * 8 > self.budget;
        let windowed = no_room && top.table().kind().has_numbers() && sub_model.index > 0;
        Some(if windowed { Self::window(sub_model, word)? } else { Look::Table { sub_model, place } })
    }

    /// The leaf of a key, and of what stands for it, by the translation table of its sub-model.
    fn in_table(&self, sub_model: &SubModel, words: &[u64], (key, word): (&[u8], u64)) -> Option<Look> {
        let leaves = sub_model.leaves.min(words.len() - TABLE_HEADER_WORDS);
        let entry = |rank: usize| words[TABLE_HEADER_WORDS + rank];
        let numbers = Top::open_shape(self.top.words())?.table().kind().has_numbers();
        let guess = match numbers {
            true => Window::of(sub_model.line, words[1], word, leaves).guess_by(entry),
            false => guess_string(|at| words[at], words.len(), sub_model, word as usize, key),
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
                let word = Top::open_shape(self.top.words())?.word_in(&sub_model, key)?;
                self.keep_table(sub_model.index, words);
                self.in_table(&sub_model, words, (key, word))
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
        let words = self.tables.get(index)?.as_ref()?;
        // Of strings there are bytes behind the entries.
        let leaves = self.top()?.sub_model(index).leaves;
        leaf_of(*words.get(TABLE_HEADER_WORDS + rank).filter(|_| rank < leaves)?)
    }

    /// Keeps a table, in place of others if need be.
    fn keep_table(&mut self, index: usize, words: &[u64]) {
        if self.kept != Kept::Tables || index >= self.tables.len() {
            return;
        }
        self.give_up(index);
        let bytes = words.len() * 8;
        for _ in 0..self.tables.len() {
            if self.bytes + bytes <= self.budget {
                break;
            }
            self.hand = (self.hand + 1) % self.tables.len();
            self.give_up(self.hand);
        }
        if self.bytes + bytes <= self.budget {
            self.bytes += bytes;
            self.tables[index] = Some(words.into());
        }
    }

    /// Keeps no table of a sub-model.
    pub fn forget_table(&mut self, index: usize) {
        if index < self.tables.len() {
            self.give_up(index);
        }
    }

    fn give_up(&mut self, index: usize) {
        if let Some(words) = self.tables[index].take() {
            self.bytes -= words.len() * 8;
        }
    }

    /// Takes over a sub-model as the shard says that it is now. `false`: this is a copy of another top model.
    pub fn renew(&mut self, model: &ModelWords<'_>) -> bool {
        if Guardian(model.guardian) != self.guardian {
            return false;
        }
        if self.kept == Kept::TopOnly {
            return true;
        }
        let index = model.index as usize;
        let words = self.top.words();
        let Some(top) = self.top() else { return false };
        let (at, count) = (top.entry_word(index), top.count());
        if index > count || at + TOP_ENTRY_WORDS > words.count() {
            return false;
        }
        // Strings of sub-models that came later are not here.
        if index == count && model.entry[3] as u32 != 0 {
            return false;
        }
        words.copy_in(at, &model.entry);
        if index == count {
            words.store(TOP_COUNT_WORD, count as u64 + 1);
            self.tables.push(None);
        }
        self.keep_table(index, model.table);
        true
    }
}

#[cfg(test)]
mod tests {
    use kelix_image::header_word;
    use kelix_index::root_word;
    use kelix_shard::alone::Alone;
    use kelix_types::{Location, TableId, TableKind};
    use kelix_wire::mailboxes::{Mailboxes, PEER};
    use kelix_wire::{Op, RequestHead};

    use kelix_index::TOP_HEADER_WORDS;

    use super::*;
    use crate::read::{Landing, ReadOp, ShardReader, Step};

    const TABLE: TableId = TableId::new(TableKind::Inline, 1);

    fn copy_of(server: &Alone) -> ModelCopy {
        let map = server.map();
        let word = |place: Place| map.words(place, 1).unwrap().load(0);
        let list = Location::place_of(server.header().words().load(header_word::ROOTS));
        let place = Location::place_of(word(list.plus(root_word(TABLE) as u64 * 8)));
        let words = map.view().words_from(place).unwrap();
        let copied = |count: usize| {
            let span = Span::private(count as u64 * 8);
            (0..count).for_each(|word| span.words().store(word, words.load(word)));
            span
        };
        let top = copied(ModelCopy::words_wanted(&copied(TOP_HEADER_WORDS), 1 << 20).unwrap());
        ModelCopy::new(place, Guardian(words.load(0)), top, 1 << 20).unwrap()
    }

    fn put(server: &mut Alone, number: u64) {
        server.call(RequestHead::new(Op::Put, 0, TABLE), &number.to_be_bytes(), &number.to_le_bytes());
    }

    /// The words of a READ may be older than its guardian. A leaf that is younger than all that was seen before might have been
    /// written meanwhile, so it counts only when it is read again.
    #[test]
    fn a_leaf_younger_than_what_led_to_it_is_read_again() {
        let mut server = Alone::new(1, &Mailboxes::new());
        (0..400).for_each(|number| put(&mut server, number * 100));
        let mut fabric = Mailboxes::new();
        (fabric.memory, fabric.term) = (Some(server.map()), Alone::TERM);
        let mut shard = ShardReader::new(PEER, Alone::TERM, None);
        shard.ordered.keep_copy(TABLE, copy_of(&server));
        let mut landing = Landing::default();
        let mut read = |shard: &mut ShardReader, number: u64| {
            let key = number.to_be_bytes();
            let hash = kelix_types::KeyHash(0);
            let mut op = ReadOp::start(&mut fabric, shard, 0, 0, (TABLE, hash, &key), None);
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
        // The leaf is replaced by two. The one that was guessed is dead; the one before it leads to its successor.
        (20_001..20_018).for_each(|number| put(&mut server, number));
        let (first, second) = (read(&mut shard, 20_000), read(&mut shard, 20_000));
        assert_eq!(
            (first.0, &first.2, second.0, &second.2),
            (Step::Valid, &value(20_000), Step::Valid, &value(20_000))
        );
        assert_eq!((first.1, second.1 > 2), (second.1 + 1, true));
    }
}
