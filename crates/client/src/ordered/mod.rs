//! Ordered tables where their memory is within reach of loads: from a key by the models to its leaf, and to its item.
//!
//! ```text
//! list of roots -> top model -> cell -> entry of a sub-model -> translation table -> leaf -> item
//! ```
//!
//! The place and the guardian of the top model are remembered; while that guardian is live all that the top model leads to is
//! what it says. The leaf is a guess, and proves itself (docs/read-rule.md, "Leaves"). What is looked at counts only if the
//! checks of the read rule say so afterwards, which is for the caller.

mod page;
mod remote;

use kelix_fabric::Direct;
use kelix_image::words::Words;
use kelix_image::{Kind, MapView, PlainItem, header_word, holds_key};
use kelix_index::{
    DirectoryRoot, Guess, LeafHeader, SubModel, TABLE_HEADER_WORDS, Top, guess_leaf, key_word, leaf_at,
    leaf_window, load_slot, root_word, slot_word,
};
use kelix_types::limits::{LEAF_SLOTS, READ_EPOCHS_MAX};
use kelix_types::{Guardian, Incarnation, Location, Place, TableId, TableKind, mark};

pub(crate) use page::{Hint, LeafPage};
pub(crate) use remote::{FURTHER_MAX, Look, ModelCopy};

use kelix_wire::ModelWords;

use crate::pointers::Pointer;
use crate::read::{ShardReader, Verdict, judge};

/// A top model: where it stands, and which one it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TopPointer {
    place: Place,
    guardian: Guardian,
}

/// The top models of a shard's ordered tables, as far as they are known here.
#[derive(Clone, Default, Debug)]
pub(crate) struct Tops(Vec<Option<TopPointer>>);

impl Tops {
    /// The top model of a table, if the one that is known is live.
    #[inline(always)]
    fn get<'a>(&self, map: MapView<'a>, table: TableId) -> Option<Top<'a>> {
        let known = (*self.0.get(root_word(table))?)?;
        let words = map.words_from(known.place)?;
        let live = Guardian(words.load_acquire(0)) == known.guardian;
        Top::open(words).filter(|_| live)
    }

    /// Looks from the header page on where the top model of a table is. `false`: there is none that is live.
    #[cold]
    #[inline(never)]
    fn renew(&mut self, map: MapView<'_>, table: TableId) -> bool {
        mark!("top model looked up");
        let root = root_word(table);
        let found = || {
            let header = map.words(Place(0), header_word::ROOTS + 1)?;
            let list = DirectoryRoot::from_word(header.load_acquire(header_word::ROOTS))?;
            let list = map.words(list.place, 1usize.checked_shl(list.depth)?)?;
            if !Guardian(list.load_acquire(0)).is_live() || root >= list.count() {
                return None;
            }
            let place = Location::place_of(list.load_acquire(root));
            let guardian = Guardian(map.words(place, 1)?.load_acquire(0));
            guardian.is_live().then_some(TopPointer { place, guardian })
        };
        let found = found();
        if self.0.len() <= root {
            self.0.resize(root + 1, None);
        }
        self.0[root] = found;
        found.is_some()
    }
}

/// A leaf that was found to hold a key, and what it says of it.
#[derive(Clone, Copy)]
pub(crate) struct InLeaf<'a> {
    /// The leaf's guardian, sampled live before everything else of it.
    pub guardian: Guardian,
    /// The key's second word, of a table of numbers; `None`: the key is absent.
    pub second: Option<u64>,
    /// The leaf.
    leaf: Words<'a>,
    /// The slots that may be those of a string.
    candidates: u16,
    header: LeafHeader,
}

impl<'a> InLeaf<'a> {
    /// Looks at a leaf. `None`: it is not live, or does not hold this number.
    #[inline(always)]
    fn of_number(leaf: Words<'a>, table: TableId, number: u64) -> Option<InLeaf<'a>> {
        let guardian = Guardian(leaf.load_acquire(0));
        let header = LeafHeader::load(leaf);
        if !guardian.is_live() || header.table() != table || !header.holds_number(number) {
            return None;
        }
        let mut second = None;
        let mut candidates = header.candidates(number);
        while candidates != 0 {
            let slot = candidates.trailing_zeros() as usize;
            candidates &= candidates - 1;
            match header.entry(load_slot(leaf, slot)) {
                Some((key, value)) if key == number => {
                    second = Some(value);
                    break;
                }
                _ => {}
            }
        }
        Some(InLeaf { guardian, second, leaf, candidates: 0, header })
    }

    /// Looks at a leaf of strings, which may hold a key.
    fn of_string(leaf: Words<'a>, table: TableId, key: &[u8]) -> Option<InLeaf<'a>> {
        let guardian = Guardian(leaf.load_acquire(0));
        let header = LeafHeader::load(leaf);
        if !guardian.is_live() || header.table() != table {
            return None;
        }
        let candidates = header.candidates(key_word(key, header.prefix_bytes()));
        Some(InLeaf { guardian, second: None, leaf, candidates, header })
    }

    /// The next item that may be that of a string.
    pub fn next_candidate(&mut self, key: &[u8]) -> Option<u64> {
        let word = key_word(key, self.header.prefix_bytes());
        while self.candidates != 0 {
            let slot = self.candidates.trailing_zeros() as usize;
            self.candidates &= self.candidates - 1;
            match self.header.entry(load_slot(self.leaf, slot)) {
                Some((key, second)) if key == word => return Some(second),
                _ => {}
            }
        }
        None
    }
}

/// Where a key is looked for: its sub-model, and what stands for the key there.
#[derive(Clone, Copy)]
struct Way<'a> {
    table: Words<'a>,
    sub_model: SubModel,
    word: u64,
}

impl<'a> Way<'a> {
    #[inline(always)]
    fn new(map: MapView<'a>, sub_model: SubModel, word: u64) -> Option<Way<'a>> {
        let table = map.words(sub_model.table?, TABLE_HEADER_WORDS + sub_model.leaves)?;
        Some(Way { table, sub_model, word })
    }

    #[inline(always)]
    fn base(&self, numbers: bool) -> u64 {
        if numbers && self.sub_model.index > 0 { self.sub_model.head } else { self.table.load(1) }
    }

    /// Asks the processor for the entries that will be looked at first.
    #[inline(always)]
    fn prefetch(&self) {
        let SubModel { line, leaves, head, .. } = self.sub_model;
        let first = leaf_window(line, head, self.word, leaves).0;
        self.table.part(TABLE_HEADER_WORDS + first, 1).prefetch_line();
    }

    #[inline(always)]
    fn guess(&self, numbers: bool) -> Guess {
        let SubModel { line, leaves, .. } = self.sub_model;
        guess_leaf(self.table, line, self.base(numbers), self.word, leaves)
    }

    /// Calls `look` with each leaf that may hold the key, until it finds it there.
    #[inline(always)]
    fn leaves<R>(
        &self,
        map: MapView<'a>,
        numbers: bool,
        reads: &mut u64,
        mut look: impl FnMut(Words<'a>) -> Option<R>,
    ) -> Option<R> {
        let guess = self.guess(numbers);
        let leaf = |place: Option<Place>| {
            let leaf = map.words(place?, Kind::LEAF_WORDS)?;
            // Which of its lines has the slot says its header; by then it is on its way.
            leaf.prefetch_all();
            Some(leaf)
        };
        *reads += 1;
        if let Some(found) = leaf(guess.leaf).and_then(&mut look) {
            return Some(found);
        }
        self.further(map, guess.rank, reads, look)
    }

    /// The leaf before the guessed one, and those behind that: the guessed one has been replaced, or the key stands before it.
    #[cold]
    #[inline(never)]
    fn further<R>(
        &self,
        map: MapView<'a>,
        rank: usize,
        reads: &mut u64,
        mut look: impl FnMut(Words<'a>) -> Option<R>,
    ) -> Option<R> {
        let leaf = |place: Option<Place>| map.words(place?, Kind::LEAF_WORDS);
        let mut next = leaf(leaf_at(self.table, rank.checked_sub(1)?))?;
        for _ in 0..LEAVES_FURTHER {
            *reads += 1;
            if let Some(found) = look(next) {
                mark!("key found in a leaf beside the guessed one");
                return Some(found);
            }
            next = leaf(LeafHeader::load(next).next())?;
        }
        None
    }
}

/// Leaves that are looked at when the guessed one does not hold the key.
const LEAVES_FURTHER: usize = 3;

/// What is known of the ordered tables of a shard, and what looking there has cost.
#[derive(Default)]
pub(crate) struct OrderedReader {
    tops: Tops,
    /// Copies of models, by root, where memory is out of reach of loads.
    copies: Vec<Option<ModelCopy>>,
    /// Gets since the last try to copy models, by root.
    tries: Vec<u32>,
    /// The greatest incarnation that was seen live.
    seen: u64,
    /// Leaves read.
    pub leaves: u64,
    /// Items read, and their bytes.
    pub items: u64,
    pub item_bytes: u64,
}

/// A key of a batch, and how far it is on its way.
#[derive(Clone, Copy)]
struct Step<'a> {
    number: u64,
    /// The sub-models among which its own is.
    range: (usize, usize),
    way: Option<Way<'a>>,
    leaf: Words<'a>,
}

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

impl OrderedReader {
    /// Where the way to a key begins, by a copy of the models.
    pub fn begin(&self, table: TableId, key: &[u8]) -> Option<Look> {
        self.copies.get(root_word(table))?.as_ref()?.begin(table, key)
    }

    /// Goes on with the words of a look.
    pub fn go_on(&mut self, table: TableId, key: &[u8], look: Look, words: &[u64]) -> Option<Look> {
        if matches!(look, Look::Table { .. }) && Guardian(words[0]).is_live() {
            self.note_seen(Guardian(words[0]).incarnation());
        }
        self.copy(table)?.go_on(table, key, look, words)
    }

    fn copy(&mut self, table: TableId) -> Option<&mut ModelCopy> {
        self.copies.get_mut(root_word(table))?.as_mut()
    }

    /// Whether there is a copy of the models of a table.
    pub fn has_copy(&self, table: TableId) -> bool {
        self.copies.get(root_word(table)).is_some_and(Option::is_some)
    }

    /// Whether to try to copy the models of a table now: at first, and now and then if that did not succeed.
    pub fn may_try(&mut self, table: TableId, gets: u32) -> bool {
        let root = root_word(table);
        if self.tries.len() <= root {
            self.tries.resize(root + 1, 0);
        }
        let may = self.tries[root] % gets == 0;
        self.tries[root] = self.tries[root].wrapping_add(1);
        may
    }

    /// Keeps a copy of the models of a table.
    pub fn keep_copy(&mut self, table: TableId, copy: ModelCopy) {
        let root = root_word(table);
        self.note_seen(copy.guardian().incarnation());
        if self.copies.len() <= root {
            self.copies.resize_with(root + 1, || None);
        }
        self.copies[root] = Some(copy);
    }

    /// The leaf before a guessed one, if that is known.
    pub fn leaf_before(&self, table: TableId, index: usize, guess: Guess) -> Option<Place> {
        self.copies.get(root_word(table))?.as_ref()?.leaf_before(index, guess)
    }

    /// Forgets a translation table that led astray.
    pub fn forget_table(&mut self, table: TableId, index: usize) {
        if let Some(copy) = self.copy(table) {
            copy.forget_table(index);
        }
    }

    /// Takes over a sub-model that came with a reply. If it is of another top model the copy is of no use any more.
    pub fn renew(&mut self, table: TableId, model: &ModelWords<'_>) {
        // They were live when the shard told of them, before this reply came.
        self.note_seen(Guardian(model.table[0]).incarnation());
        if self.copy(table).is_some_and(|copy| !copy.renew(model)) {
            mark!("copy of a top model was old");
            self.copies[root_word(table)] = None;
        }
    }

    /// Bytes of all copies.
    pub fn copied_bytes(&self) -> usize {
        self.copies.iter().flatten().map(ModelCopy::bytes).sum()
    }

    /// The greatest incarnation that was seen live. Whatever has a lesser one, or this, was written before that.
    #[inline(always)]
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Takes note of one.
    pub fn note_seen(&mut self, incarnation: Incarnation) {
        self.seen = self.seen.max(incarnation.0);
    }

    /// The leaf of a number. `None`: it was not found; ask the shard.
    #[inline(always)]
    pub fn find_number<'a>(&mut self, direct: &'a Direct, table: TableId, number: u64) -> Option<InLeaf<'a>> {
        let way = self.way_to(direct, table, number)?;
        way.leaves(direct.map.view(), true, &mut self.leaves, |leaf| InLeaf::of_number(leaf, table, number))
    }

    /// The way to the leaf of a number.
    #[inline(always)]
    fn way_to<'a>(&mut self, direct: &'a Direct, table: TableId, number: u64) -> Option<Way<'a>> {
        let map = direct.map.view();
        let top = match self.tops.get(map, table) {
            Some(top) => top,
            None if self.tops.renew(map, table) => self.tops.get(map, table)?,
            None => return None,
        };
        Way::new(map, top.find_number(number, top.cell(number)), number)
    }

    /// Brings the leaves of some numbers near, at most [`AT_ONCE`], their accesses overlapping, and hands each to `found` with its
    /// index.
    #[inline(always)]
    pub fn find_numbers<'a>(
        &mut self,
        direct: &'a Direct,
        table: TableId,
        keys: &[&[u8]],
        mut found: impl FnMut(usize, Option<InLeaf<'a>>),
    ) {
        let map = direct.map.view();
        let OrderedReader { tops, leaves: reads, .. } = self;
        let top = match tops.get(map, table) {
            Some(top) => Some(top),
            None if tops.renew(map, table) => tops.get(map, table),
            None => None,
        };
        let Some(top) = top else { return (0..keys.len()).for_each(|index| found(index, None)) };
        let begin = Step { number: 0, range: (0, 0), way: None, leaf: Words::EMPTY };
        let mut steps = [begin; AT_ONCE];
        let steps = &mut steps[..keys.len()];
        for (step, key) in steps.iter_mut().zip(keys) {
            step.number = if key.len() == 8 { key_word(key, 0) } else { 0 };
            top.prefetch_cell(step.number);
        }
        for step in steps.iter_mut() {
            step.range = top.cell(step.number);
            top.prefetch_entry(step.range.0);
        }
        for step in steps.iter_mut() {
            step.way = Way::new(map, top.find_number(step.number, step.range), step.number);
            if let Some(way) = &step.way {
                way.prefetch();
            }
        }
        for step in steps.iter_mut() {
            let guess = step.way.as_ref().map(|way| way.guess(true));
            let leaf = guess.and_then(|guess| map.words(guess.leaf?, Kind::LEAF_WORDS));
            step.leaf = leaf.unwrap_or(Words::EMPTY);
            step.leaf.prefetch_line();
        }
        for step in steps.iter() {
            if step.leaf.count() > 0 {
                let slot = LeafHeader::load(step.leaf).candidates(step.number).trailing_zeros() as usize;
                step.leaf.part(slot_word(slot.min(LEAF_SLOTS - 1)), 1).prefetch_line();
            }
        }
        for (index, (step, key)) in steps.iter().zip(keys).enumerate() {
            let way = step.way.as_ref().filter(|_| key.len() == 8);
            let look = |leaf| InLeaf::of_number(leaf, table, step.number);
            found(index, way.and_then(|way| way.leaves(map, true, reads, look)));
        }
    }

    /// Leaves that may hold a string, each handed to `look`, until it finds what it wants there.
    pub fn find_string<'a, R>(
        &mut self,
        direct: &'a Direct,
        table: TableId,
        key: &[u8],
        mut look: impl FnMut(InLeaf<'a>) -> Option<R>,
    ) -> Option<R> {
        let map = direct.map.view();
        let OrderedReader { tops, leaves: reads, .. } = self;
        let top = match tops.get(map, table) {
            Some(top) => top,
            None if tops.renew(map, table) => tops.get(map, table)?,
            None => return None,
        };
        let sub_model = top.find_string(key)?;
        let way = Way::new(map, sub_model, top.word_in(&sub_model, key)?)?;
        way.leaves(map, false, reads, |leaf| look(InLeaf::of_string(leaf, table, key)?))
    }
}

impl ShardReader {
    /// Looks for a key of an ordered table, where memory is within reach of loads. What `copy` makes of a plain item counts only
    /// if this returns it.
    #[inline(always)]
    pub fn look_in_order<R>(
        &mut self,
        table: TableId,
        key: &[u8],
        copy: impl FnMut(PlainItem<'_>) -> Option<R>,
    ) -> Looked<R> {
        let ShardReader { term, direct, ordered, .. } = self;
        let Some(direct) = direct.as_ref() else { return Looked::Unknown };
        let before = direct.begin();
        let looked = match table.kind() {
            TableKind::Inline => look_for_value(ordered, direct, table, key),
            TableKind::Numbers => look_for_number(ordered, direct, table, key, copy),
            _ => look_for_string(ordered, direct, table, key, copy),
        };
        let Some((guardian, looked)) = looked else { return Looked::Unknown };
        match judge(guardian, direct.sampled(before), READ_EPOCHS_MAX, *term) {
            Verdict::Valid => looked,
            Verdict::Invalid | Verdict::Superseded => Looked::Unknown,
        }
    }
}

#[inline(always)]
fn look_for_value<R>(
    ordered: &mut OrderedReader,
    direct: &Direct,
    table: TableId,
    key: &[u8],
) -> Option<(Guardian, Looked<R>)> {
    let found = ordered.find_number(direct, table, key_word(key, 0))?;
    Some((found.guardian, found.second.map_or(Looked::Absent, Looked::Inline)))
}

#[inline(always)]
fn look_for_number<R>(
    ordered: &mut OrderedReader,
    direct: &Direct,
    table: TableId,
    key: &[u8],
    copy: impl FnMut(PlainItem<'_>) -> Option<R>,
) -> Option<(Guardian, Looked<R>)> {
    let found = ordered.find_number(direct, table, key_word(key, 0))?;
    match found.second {
        None => Some((found.guardian, Looked::Absent)),
        Some(second) => look_at_item(ordered, direct, (table, key), second, copy),
    }
}

fn look_for_string<R>(
    ordered: &mut OrderedReader,
    direct: &Direct,
    table: TableId,
    key: &[u8],
    mut copy: impl FnMut(PlainItem<'_>) -> Option<R>,
) -> Option<(Guardian, Looked<R>)> {
    let mut items = OrderedReader::default();
    let found = ordered.find_string(direct, table, key, |mut leaf| {
        while let Some(second) = leaf.next_candidate(key) {
            let looked = look_at_item(&mut items, direct, (table, key), second, &mut copy);
            if looked.is_some() {
                return looked;
            }
        }
        None
    });
    ordered.items += items.items;
    ordered.item_bytes += items.item_bytes;
    found
}

/// Looks at the item of a second word, which must be that of the key.
#[inline(always)]
fn look_at_item<R>(
    ordered: &mut OrderedReader,
    direct: &Direct,
    (table, key): (TableId, &[u8]),
    second: u64,
    mut copy: impl FnMut(PlainItem<'_>) -> Option<R>,
) -> Option<(Guardian, Looked<R>)> {
    let location = Location::from_word(second)?;
    let place = direct.map.view().words_from(location.place())?;
    ordered.items += 1;
    if let Some(item) = PlainItem::find(place, table, key).filter(|item| item.guardian().is_live()) {
        let pointer = Pointer { location, incarnation: item.guardian().incarnation() };
        if let Some(copied) = copy(item) {
            ordered.item_bytes += item.item_bytes() as u64;
            return Some((item.guardian(), Looked::Copied(pointer, copied)));
        }
    }
    let guardian = Guardian(place.load_acquire(0));
    // With room for all that may stand before the key.
    let fits = place.count() > 4 + key.len() / 8 + 1;
    let pointer = Pointer { location, incarnation: guardian.incarnation() };
    (fits && guardian.is_live() && holds_key(place, table, key)).then_some((guardian, Looked::At(pointer)))
}
