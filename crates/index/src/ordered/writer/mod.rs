//! The writer's side of an ordered table: the chain of leaves, and which leaf holds a key. Runs on the shard
//! thread, which alone stores to leaves.
//!
//! A leaf's fences, prefix and key words never change. So whatever needs others makes new leaves:
//! [`OrderedIndex::rewrite`] replaces one leaf or two neighbours by one or two, in the order of every object.
//! Bodies are written, the old guardians drop, the new ones live, the predecessor's next word names the first
//! of them, the old memory is released.
//!
//! Invariants:
//! 1. Leaves stand in the chain in the order of their fences, which leave no gap (`OrderedIndex::check`).
//! 2. A key has at most one slot that is not EMPTY (`OrderedIndex::insert` is for keys that are not there).
//! 3. A slot that was filled keeps its key word; slots are filled in order (`fill_slot`).
//! 4. Where there is no room nothing has changed (`OrderedIndex::make_leaves`).

use std::cmp::Ordering;

use kelix_image::words::{Words, bytes_of_mut};
use kelix_image::{Changes, Image, ItemFlags, ItemHeader, Kind, NoRoom, holds_key, load_key};
use kelix_types::limits::LEAF_SLOTS;
use kelix_types::{Location, Place, TableId, TableKind, mark};

use super::blocks::{Blocks, Position};
use super::leaf::{
    Fences, LeafHeader, NewLeaf, common_prefix, fill_slot, key_word, load_slot, set_next, slot_word, slots,
    tag_of_number, tag_of_string,
};
use crate::learned::{ModelCounts, Models, Separator};
use layout::{Layout, Slots};

/// Does the same with the leaves of either kind.
macro_rules! blocks {
    ($leaves:expr, $blocks:ident => $what:expr) => {
        match $leaves {
            Leaves::Numbers(Chain { blocks: $blocks, .. }) => $what,
            Leaves::Strings(Chain { blocks: $blocks, .. }) => $what,
        }
    };
}

/// The same with leaves and models.
macro_rules! chain {
    ($leaves:expr, $chain:ident => $what:expr) => {
        match $leaves {
            Leaves::Numbers($chain) => $what,
            Leaves::Strings($chain) => $what,
        }
    };
}

mod follow;
mod layout;
mod walk;

/// A leaf with no more keys than this looks for a neighbour to become one with.
const SPARSE: usize = LEAF_SLOTS / 4;
/// The keys of a leaf that is made of two, or of a full one with dead slots, at most.
const COMFORTABLE: usize = LEAF_SLOTS * 3 / 4;

/// A key that is there.
#[derive(Clone, Copy, Debug)]
pub struct FoundKey {
    /// Its value, or the location word of its item.
    pub second: u64,
    /// Where that stands.
    pub word: Place,
}

/// Which way a scan goes, and where it begins.
#[derive(Clone, Copy, Debug)]
pub struct ScanFrom<'k> {
    /// The first key that counts; none: the first of all, or the last.
    pub key: Option<&'k [u8]>,
    /// That key itself does not count.
    pub after: bool,
    /// From there downwards.
    pub backwards: bool,
}

/// How many leaves there are and what became of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OrderedCounts {
    /// Keys now.
    pub keys: u64,
    /// Leaves now.
    pub leaves: u64,
    /// Leaves that became two.
    pub splits: u64,
    /// Pairs of leaves that became one.
    pub merges: u64,
    /// Leaves that were moved to where they stand in the order of their keys.
    pub laid_out: u64,
}

/// The leaves by their separators, and what was learnt from these.
struct Chain<S> {
    blocks: Blocks<S>,
    models: Models<S>,
    /// Where the sweep that lays leaves out is, as the first key of the next leaf. None: it rests.
    sweep: Option<S>,
}

impl<S: Separator> Chain<S> {
    fn new(table: TableId, first: S) -> Chain<S> {
        Chain::of(table, Blocks::new(first, Place(0)))
    }

    /// Of these leaves, from which nothing was learnt yet.
    fn of(table: TableId, blocks: Blocks<S>) -> Chain<S> {
        Chain { blocks, models: Models::new(table), sweep: None }
    }

    /// Takes note that so many leaves from one on are not what they were.
    fn note(&mut self, at: Position, count: usize) {
        let end = (0..count).try_fold(at, |at, _| self.blocks.next(at));
        let end = end.map(|end| self.blocks.separator(end));
        self.models.note(self.blocks.separator(at), end);
    }
}

enum Leaves {
    Numbers(Chain<u64>),
    Strings(Chain<Box<[u8]>>),
}

/// The index of one ordered table.
pub struct OrderedIndex {
    table: TableId,
    kind: TableKind,
    leaves: Leaves,
    counts: OrderedCounts,
    layout: Layout,
    random: u64,
    key: Vec<u8>,
}

/// What stands in a slot, in a private copy: its words, and of a string its key.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    words: [u64; 2],
    key: Box<[u8]>,
}

/// A leaf that has been allocated and is not live yet.
#[derive(Clone, Copy)]
struct Made {
    leaf: Place,
    fences: Option<Location>,
}

impl OrderedIndex {
    /// Makes the index of a table without keys.
    pub fn create(image: &mut Image, table: TableId) -> Result<OrderedIndex, NoRoom> {
        let kind = table.kind();
        debug_assert!(kind.is_ordered());
        let leaves = match kind.has_numbers() {
            true => Leaves::Numbers(Chain::new(table, 0)),
            false => Leaves::Strings(Chain::new(table, Box::default())),
        };
        let counts = OrderedCounts { leaves: 1, ..OrderedCounts::default() };
        let random = image.next_incarnation().0;
        let layout = Layout::default();
        let mut index = OrderedIndex { table, kind, leaves, counts, layout, random, key: Vec::new() };
        let at = blocks!(&index.leaves, blocks => blocks.first());
        let made = index.make_leaves(image, at, 1, &[&[]], Slots::Near)?;
        image.make_leaf_live(made[0].leaf);
        blocks!(&mut index.leaves, blocks => blocks.set_place(at, made[0].leaf));
        Ok(index)
    }

    /// Whether [`OrderedIndex::maintain`] has something to do.
    #[inline]
    pub fn has_work(&self) -> bool {
        chain!(&self.leaves, chain => chain.models.has_work())
    }

    /// Trains models of leaves that have changed, some at a time. The root of the table stands in the word
    /// `root`. `Err`: there is no room for them now.
    pub fn maintain(&mut self, image: &mut Image, root: Place) -> Result<(), NoRoom> {
        chain!(&mut self.leaves, chain => chain.models.maintain(image, &chain.blocks, root))
    }

    /// Moves the models that stand in a segment being emptied.
    pub fn move_models(&mut self, image: &mut Image, root: Place) -> Result<(), NoRoom> {
        chain!(&mut self.leaves, chain => chain.models.leave(image, root))
    }

    /// Tells the sub-model of a key as it is now, for a client whose copy was old.
    pub fn tell_model(&self, image: &Image, key: &[u8], words: &mut Vec<u64>) {
        match &self.leaves {
            Leaves::Numbers(chain) => chain.models.tell(image, &key_word(key, 0), words),
            Leaves::Strings(chain) => chain.models.tell(image, &key.into(), words),
        }
    }

    /// What became of the models.
    pub fn model_counts(&self) -> ModelCounts {
        chain!(&self.leaves, chain => chain.models.counts())
    }

    /// Which table it is of.
    pub fn table(&self) -> TableId {
        self.table
    }

    /// What there is.
    pub fn counts(&self) -> OrderedCounts {
        self.counts
    }

    fn place(&self, at: Position) -> Place {
        blocks!(&self.leaves, blocks => blocks.place(at))
    }

    fn next(&self, at: Position) -> Option<Position> {
        blocks!(&self.leaves, blocks => blocks.next(at))
    }

    fn previous(&self, at: Position) -> Option<Position> {
        blocks!(&self.leaves, blocks => blocks.previous(at))
    }

    #[inline]
    fn position(&self, key: &[u8]) -> Position {
        match &self.leaves {
            Leaves::Numbers(Chain { blocks, .. }) => blocks.find(&key_word(key, 0)),
            Leaves::Strings(Chain { blocks, .. }) => blocks.find(key),
        }
    }

    /// Asks the processor for the leaf of a key.
    #[inline]
    pub fn prefetch(&self, image: &Image, key: &[u8]) -> Place {
        let place = self.place(self.position(key));
        leaf_words(image, place).prefetch(Kind::LEAF_WORDS);
        place
    }

    /// Finds a key.
    #[inline]
    pub fn find(&self, image: &Image, key: &[u8]) -> Option<FoundKey> {
        let place = self.place(self.position(key));
        let leaf = leaf_words(image, place);
        let header = LeafHeader::load(leaf);
        let word = key_word(key, header.prefix_bytes());
        let mut found = header.matching(header.candidates(self.tag(key)), word, |slot| load_slot(leaf, slot));
        let (slot, second) = found.find(|(_, second)| self.is_of(image, *second, key))?;
        Some(FoundKey { second, word: place.plus((slot_word(slot) as u64 + 1) * 8) })
    }

    #[inline]
    fn tag(&self, key: &[u8]) -> u8 {
        if self.kind.has_numbers() { tag_of_number(key_word(key, 0)) } else { tag_of_string(key) }
    }

    /// Whether a second word that stands beside the key word of a key is that of the key.
    #[inline]
    fn is_of(&self, image: &Image, second: u64, key: &[u8]) -> bool {
        self.kind.has_numbers() || holds_key(image.slot(location_of(second)), self.table, key)
    }

    /// Changes the second word of a key, where it was found.
    pub fn replace(&mut self, image: &mut Image, key: &[u8], word: Place, second: u64) -> Result<(), NoRoom> {
        let at = self.position(key);
        let place = self.place(at);
        if second != LeafHeader::load(leaf_words(image, place)).empty() {
            // Where there are items, these tell whether they are committed.
            if !self.kind.has_items() {
                image.note_leaf(place);
            }
            image.change(word, 1).publish(0, second);
            return Ok(());
        }
        // The value is the leaf's pattern for unused words: it needs another one.
        mark!("leaf written anew for another EMPTY pattern");
        debug_assert!(!self.kind.has_items(), "the pattern is no location");
        let number = key_word(key, 0);
        let mut entries = self.entries(image, at);
        let entry = entries.iter_mut().find(|entry| entry.words[0] == number).expect("just found");
        entry.words[1] = second;
        self.rewrite(image, at, 1, &[&entries])
    }

    /// Adds a key that is not there.
    pub fn insert(&mut self, image: &mut Image, key: &[u8], second: u64) -> Result<(), NoRoom> {
        let at = self.position(key);
        let place = self.place(at);
        let leaf = change_leaf(image, place);
        let header = LeafHeader::load(leaf.words());
        let word = key_word(key, header.prefix_bytes());
        let fits =
            ![word, second].contains(&header.empty()) && self.has_prefix(image, leaf.words(), &header, key);
        if fits {
            image.note_leaf(place);
        }
        if fits && self.fill(leaf, &header, self.tag(key), [word, second]) {
            self.counts.keys += 1;
            return Ok(());
        }
        self.insert_by_rewriting(image, at, key, second)?;
        self.counts.keys += 1;
        Ok(())
    }

    /// Puts a key into a slot of a leaf: its own from before it was deleted, or an unused one. `false`: there
    /// is none.
    fn fill(&self, leaf: Changes<'_>, header: &LeafHeader, tag: u8, entry: [u64; 2]) -> bool {
        let is_it = |slot: &usize| self.kind.has_numbers() && leaf.words().load(slot_word(*slot)) == entry[0];
        if let Some(own) = slots(header.candidates(tag)).find(is_it) {
            leaf.publish(slot_word(own) + 1, entry[1]);
            return true;
        }
        let filled = header.filled().trailing_ones() as usize;
        if filled < LEAF_SLOTS {
            fill_slot(leaf, filled, tag, entry);
        }
        filled < LEAF_SLOTS
    }

    /// Whether a key begins as all keys of a leaf do.
    fn has_prefix(&mut self, image: &Image, leaf: Words<'_>, header: &LeafHeader, key: &[u8]) -> bool {
        let prefix_bytes = header.prefix_bytes();
        if prefix_bytes == 0 {
            return true;
        }
        let mut slots = (0..header.filled().trailing_ones() as usize).map(|slot| load_slot(leaf, slot));
        let Some((_, second)) = slots.find_map(|slot| header.entry(slot)) else { return false };
        load_key(image.slot(location_of(second)), &mut self.key);
        key.get(..prefix_bytes) == self.key.get(..prefix_bytes)
    }

    fn insert_by_rewriting(
        &mut self,
        image: &mut Image,
        at: Position,
        key: &[u8],
        second: u64,
    ) -> Result<(), NoRoom> {
        let mut entries = self.entries(image, at);
        let full = LeafHeader::load(leaf_words(image, self.place(at))).filled() == u16::MAX;
        let entry = self.entry(key, second);
        let index = entries.partition_point(|other| self.order(other, &entry) == Ordering::Less);
        entries.insert(index, entry);
        let count = entries.len();
        if count <= if full { COMFORTABLE } else { LEAF_SLOTS } {
            mark!("leaf written anew");
            return self.rewrite(image, at, 1, &[&entries]);
        }
        // Keys that come at the end leave full leaves behind.
        let at_end = index + 1 == count && self.next(at).is_none();
        let cut = if at_end { count - 1 } else { count / 2 };
        let (lower, upper) = entries.split_at(cut);
        self.rewrite(image, at, 1, &[lower, upper])?;
        mark!("leaf split");
        self.counts.splits += 1;
        Ok(())
    }

    /// Deletes a key, where it was found. Its item may be released afterwards.
    pub fn remove(&mut self, image: &mut Image, key: &[u8], word: Place) {
        let at = self.position(key);
        let place = self.place(at);
        image.note_leaf(place);
        image.change(word, 1).publish(0, LeafHeader::load(leaf_words(image, place)).empty());
        self.counts.keys -= 1;
        let live = self.live(image, place);
        if live <= SPARSE {
            self.merge(image, live, at);
        }
    }

    /// How many keys a leaf has.
    fn live(&self, image: &Image, place: Place) -> usize {
        let leaf = leaf_words(image, place);
        let header = LeafHeader::load(leaf);
        let filled = header.filled().trailing_ones() as usize;
        (0..filled).filter(|slot| header.entry(load_slot(leaf, *slot)).is_some()).count()
    }

    /// Makes one of a leaf with `live` keys and a neighbour, if together they have few. Without room for it
    /// they stay.
    fn merge(&mut self, image: &mut Image, live: usize, at: Position) {
        let pairs = [(Some(at), self.next(at)), (self.previous(at), Some(at))];
        for (lower, upper) in pairs {
            let (Some(lower), Some(upper)) = (lower, upper) else { continue };
            let other = if lower == at { upper } else { lower };
            let together = live + self.live(image, self.place(other));
            if together > COMFORTABLE && live > 0 {
                continue;
            }
            let mut entries = self.entries(image, lower);
            entries.append(&mut self.entries(image, upper));
            if self.rewrite(image, lower, 2, &[&entries]).is_ok() {
                mark!("leaves merged");
                self.counts.merges += 1;
            }
            return;
        }
    }

    /// An entry with the key as its own.
    fn entry(&self, key: &[u8], second: u64) -> Entry {
        let own = if self.kind.has_numbers() { Box::default() } else { key.into() };
        Entry { words: [key_word(key, 0), second], key: own }
    }

    /// The order of two entries' keys.
    fn order(&self, a: &Entry, b: &Entry) -> Ordering {
        if self.kind.has_numbers() { a.words[0].cmp(&b.words[0]) } else { a.key.cmp(&b.key) }
    }

    /// The keys of a leaf in order. Of strings the key words are those without a prefix.
    fn entries(&self, image: &Image, at: Position) -> Vec<Entry> {
        let leaf = leaf_words(image, self.place(at));
        let header = LeafHeader::load(leaf);
        let filled = header.filled().trailing_ones() as usize;
        let mut entries = Vec::with_capacity(2 * LEAF_SLOTS);
        for (word, second) in (0..filled).filter_map(|slot| header.entry(load_slot(leaf, slot))) {
            if self.kind.has_numbers() {
                entries.push(Entry { words: [word, second], key: Box::default() });
            } else {
                let mut key = Vec::new();
                load_key(image.slot(location_of(second)), &mut key);
                entries.push(self.entry(&key, second));
            }
        }
        entries.sort_unstable_by(|a, b| self.order(a, b));
        entries
    }

    /// Replaces `count` leaves from one on by leaves with these entries, which stand near.
    fn rewrite(
        &mut self,
        image: &mut Image,
        at: Position,
        count: usize,
        parts: &[&[Entry]],
    ) -> Result<(), NoRoom> {
        self.rewrite_in(image, at, count, parts, Slots::Near)?;
        self.layout.moved += parts.len();
        Ok(())
    }

    /// The same, and they stand in these slots.
    fn rewrite_in(
        &mut self,
        image: &mut Image,
        at: Position,
        count: usize,
        parts: &[&[Entry]],
        slots: Slots,
    ) -> Result<(), NoRoom> {
        let made = self.make_leaves(image, at, count, parts, slots)?;
        chain!(&mut self.leaves, chain => chain.note(at, count));
        let mut old = vec![at];
        old.extend((1..count).map(|_| self.next(at).expect("a neighbour")));
        let old: Vec<Place> = old.into_iter().map(|at| self.place(at)).collect();
        for place in &old {
            image.drop_live(*place);
        }
        for Made { leaf, .. } in &made {
            image.make_leaf_live(*leaf);
        }
        if let Some(previous) = self.previous(at) {
            set_next(change_leaf(image, self.place(previous)), Some(made[0].leaf));
        }
        self.name_anew(at, count, parts, &made);
        for place in old {
            self.release(image, place);
        }
        self.counts.leaves = blocks!(&self.leaves, blocks => blocks.len()) as u64;
        Ok(())
    }

    /// Brings the index of leaves up to what has been written.
    fn name_anew(&mut self, at: Position, count: usize, parts: &[&[Entry]], made: &[Made]) {
        blocks!(&mut self.leaves, blocks => {
            blocks.set_place(at, made[0].leaf);
            if count > made.len() {
                blocks.remove(blocks.next(at).expect("a neighbour"));
            }
        });
        if let [_, second] = made {
            let between = [parts[0].last(), parts[1].first()].map(|entry| entry.expect("a split of two"));
            match &mut self.leaves {
                Leaves::Numbers(Chain { blocks, .. }) => {
                    blocks.insert_after(at, between[1].words[0], second.leaf)
                }
                Leaves::Strings(Chain { blocks, .. }) => {
                    blocks.insert_after(at, separator(between), second.leaf)
                }
            }
        }
    }

    /// Allocates and writes leaves for these entries, with the fences of `count` leaves from one on, and
    /// joins them to the leaf that comes after. Nothing names them, and none is live.
    fn make_leaves(
        &mut self,
        image: &mut Image,
        at: Position,
        count: usize,
        parts: &[&[Entry]],
        slots: Slots,
    ) -> Result<Vec<Made>, NoRoom> {
        let last = (1..count).fold(at, |at, _| self.next(at).expect("a neighbour"));
        let after = self.next(last);
        let mut made: Vec<Made> = Vec::with_capacity(parts.len());
        for index in 0..parts.len() {
            let near = made.last().map_or(self.place(at), |before| before.leaf);
            let leaf = match slots {
                Slots::Near => image.allocate_leaf(near),
                Slots::InOrder => image.allocate_in_order(),
            };
            match leaf.and_then(|leaf| self.make_leaf(image, leaf, at, after, parts, index)) {
                Ok(leaf) => made.push(leaf),
                Err(no_room) => {
                    made.into_iter().for_each(|made| discard(image, made));
                    return Err(no_room);
                }
            }
        }
        for (index, Made { leaf, .. }) in made.iter().enumerate() {
            let next = made.get(index + 1).map(|next| next.leaf).or(after.map(|after| self.place(after)));
            set_next(change_leaf(image, *leaf), next);
        }
        Ok(made)
    }

    fn make_leaf(
        &mut self,
        image: &mut Image,
        leaf: Place,
        at: Position,
        after: Option<Position>,
        parts: &[&[Entry]],
        index: usize,
    ) -> Result<Made, NoRoom> {
        let entries = parts[index];
        let between = |upper: usize| {
            [parts[upper - 1].last(), parts[upper].first()].map(|entry| entry.expect("a split of two"))
        };
        let (fences, prefix_bytes) = match &self.leaves {
            Leaves::Numbers(Chain { blocks, .. }) => {
                let low = if index == 0 { *blocks.separator(at) } else { between(index)[1].words[0] };
                let high = match after {
                    _ if index + 1 < parts.len() => between(index + 1)[1].words[0] - 1,
                    Some(after) => *blocks.separator(after) - 1,
                    None => u64::MAX,
                };
                (Fences::Numbers { low, high }, 0)
            }
            Leaves::Strings(Chain { blocks, .. }) => {
                let low = if index == 0 { blocks.separator(at).clone() } else { separator(between(index)) };
                let high = match after {
                    _ if index + 1 < parts.len() => Some(separator(between(index + 1))),
                    after => after.map(|after| blocks.separator(after).clone()),
                };
                let fences = write_fences(image, self.table, &low, high.as_deref());
                let location = fences.inspect_err(|_| image.discard(Kind::LEAF, leaf))?;
                (Fences::Strings { location, last: high.is_none() }, prefix_of(entries))
            }
        };
        let (mut words, mut tags) = ([[0; 2]; LEAF_SLOTS], [0; LEAF_SLOTS]);
        for ((words, tag), entry) in words.iter_mut().zip(&mut tags).zip(entries) {
            let [number, second] = entry.words;
            let (key, tag_of_key) = match self.kind.has_numbers() {
                true => (number, tag_of_number(number)),
                false => (key_word(&entry.key, prefix_bytes), tag_of_string(&entry.key)),
            };
            (*words, *tag) = ([key, second], tag_of_key);
        }
        let words = &words[..entries.len()];
        let empty = self.pattern(words);
        NewLeaf { table: self.table, fences, prefix_bytes, empty, entries: words, tags }
            .write(change_leaf(image, leaf));
        let fences = match fences {
            Fences::Strings { location, .. } => Some(location),
            Fences::Numbers { .. } => None,
        };
        Ok(Made { leaf, fences })
    }

    /// A word that none of these is and, where there are items, no location.
    fn pattern(&mut self, words: &[[u64; 2]]) -> u64 {
        loop {
            self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let pattern = (self.random ^ self.random >> 29) | 1 << 63;
            if !words.iter().any(|pair| pair.contains(&pattern)) {
                return pattern;
            }
        }
    }

    /// Releases a leaf that nothing names any more, with its fences.
    fn release(&self, image: &mut Image, place: Place) {
        if !self.kind.has_numbers() {
            let fences = LeafHeader::load(leaf_words(image, place)).fences().expect("a leaf of strings");
            image.drop_live(fences.place());
            image.release_item(fences);
        }
        image.release(Kind::LEAF, place);
    }

    /// Moves a leaf of this table that stands in a segment being emptied.
    pub fn relocate(&mut self, image: &mut Image, place: Place) -> Result<(), NoRoom> {
        let header = LeafHeader::load(leaf_words(image, place));
        let at = match &self.leaves {
            Leaves::Numbers(Chain { blocks, .. }) => blocks.find(&header.first_number()),
            Leaves::Strings(Chain { blocks, .. }) => {
                load_key(image.slot(header.fences().expect("a leaf of strings")), &mut self.key);
                blocks.find(&self.key[..])
            }
        };
        debug_assert_eq!(self.place(at), place);
        self.move_leaf(image, at)
    }

    /// Moves the leaf whose fences stand in a segment being emptied, and with it the fences, whose key is
    /// given.
    pub fn relocate_fences(&mut self, image: &mut Image, low: &[u8]) -> Result<(), NoRoom> {
        self.move_leaf(image, self.position(low))
    }

    fn move_leaf(&mut self, image: &mut Image, at: Position) -> Result<(), NoRoom> {
        let entries = self.entries(image, at);
        mark!("leaf moved");
        self.rewrite(image, at, 1, &[&entries])
    }
}

/// The shortest string that is above the key of the first entry and not above that of the second.
fn separator([below, above]: [&Entry; 2]) -> Box<[u8]> {
    let shared = common_prefix(&below.key, &above.key);
    above.key[..shared + 1].into()
}

/// The prefix of a leaf of strings with these entries, which are in order: what they share, or so much of a
/// single one that its last bytes are in its key word.
fn prefix_of(entries: &[Entry]) -> usize {
    match entries {
        [] => 0,
        [only] => only.key.len().saturating_sub(8),
        [first, .., last] => common_prefix(&first.key, &last.key),
    }
}

/// Writes the item with the fences of a leaf, live. No pointer but the leaf's leads to it.
fn write_fences(
    image: &mut Image,
    table: TableId,
    low: &[u8],
    high: Option<&[u8]>,
) -> Result<Location, NoRoom> {
    let high = high.unwrap_or(&[]);
    let header = ItemHeader { table, flags: ItemFlags::FENCES, key_bytes: low.len(), body_bytes: high.len() };
    let location = image.allocate_item(header.item_bytes())?;
    let mut words = vec![0; header.item_bytes().div_ceil(8)];
    words[1] = header.word();
    let bytes = bytes_of_mut(&mut words);
    bytes[header.key_start()..][..low.len()].copy_from_slice(low);
    bytes[header.body_start()..][..high.len()].copy_from_slice(high);
    image.change_slot(location).copy_in(1, &words[1..]);
    image.make_live(location.place());
    Ok(location)
}

/// Gives back what was made and never named.
fn discard(image: &mut Image, made: Made) {
    image.discard(Kind::LEAF, made.leaf);
    if let Some(fences) = made.fences {
        image.drop_live(fences.place());
        image.discard_item(fences);
    }
}

fn leaf_words(image: &Image, place: Place) -> Words<'_> {
    image.words(place, Kind::LEAF_WORDS)
}

fn change_leaf(image: &Image, place: Place) -> Changes<'_> {
    image.change(place, Kind::LEAF_WORDS)
}

/// Where the item of a second word stands. For the writer, whose words these are.
pub fn location_of(second: u64) -> Location {
    Location::from_word(second).expect("the location of an item of this image")
}
