//! Walks along the leaves: scans, counts, checks, and the index of leaves from what their chain says.

use std::cmp::Ordering;

use kelix_image::words::Words;
use kelix_image::{Image, ItemFlags, ItemHeader, Kind, load_key};
use kelix_types::limits::LEAF_SLOTS;
use kelix_types::{Guardian, Location, Place, TableId};

use super::{Chain, Entry, Layout, Leaves, OrderedCounts, OrderedIndex, ScanFrom, leaf_words, location_of};
use crate::ordered::blocks::{Blocks, Position};
use crate::ordered::leaf::{LeafHeader, key_word, load_slot};

impl OrderedIndex {
    /// The index of a table whose leaves stand in an image, from the first of the chain on: what a server
    /// does that starts with an image. Its models are trained anew. `None`: the chain is broken.
    pub fn of_chain(image: &Image, table: TableId, first: Place) -> Option<OrderedIndex> {
        let kind = table.kind();
        let (mut numbers, mut strings) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(place) = next {
            let header = LeafHeader::load(image.map().words(place, Kind::LEAF_WORDS)?);
            if !header.guardian().is_live() || header.table() != table {
                return None;
            }
            if kind.has_numbers() {
                numbers.push((header.first_number(), place));
            } else {
                let mut low = Vec::new();
                load_key(image.slot(header.fences()?), &mut low);
                strings.push((low.into_boxed_slice(), place));
            }
            next = header.next();
        }
        let leaves = match kind.has_numbers() {
            true => Leaves::Numbers(Chain::of(table, Blocks::of_chain(numbers)?)),
            false => Leaves::Strings(Chain::of(table, Blocks::of_chain(strings)?)),
        };
        let mut index = OrderedIndex {
            table,
            kind,
            leaves,
            counts: OrderedCounts::default(),
            layout: Layout::default(),
            random: 1,
            key: Vec::new(),
        };
        index.counts.leaves = blocks!(&index.leaves, blocks => blocks.len()) as u64;
        index.layout = Layout::of_unknown(index.counts.leaves as usize);
        let all = ScanFrom { key: None, after: false, backwards: false };
        let mut keys = 0;
        index.scan(image, all, |_, _| {
            keys += 1;
            true
        });
        index.counts.keys = keys;
        index.check(image).is_ok().then_some(index)
    }

    /// The index of the same table in an image that goes on with the leaves. Its models are trained anew.
    pub fn without_models(self) -> OrderedIndex {
        let layout = Layout::of_unknown(self.counts.leaves as usize);
        let leaves = match self.leaves {
            Leaves::Numbers(Chain { blocks, .. }) => Leaves::Numbers(Chain::of(self.table, blocks)),
            Leaves::Strings(Chain { blocks, .. }) => Leaves::Strings(Chain::of(self.table, blocks)),
        };
        OrderedIndex { leaves, layout, ..self }
    }

    /// About how many keys there are from one on to below another: exactly those of the leaves at both ends,
    /// and as many in each leaf between as leaves have on average.
    pub fn estimate(&self, image: &Image, from: Option<&[u8]>, until: Option<&[u8]>) -> u64 {
        let ends = |at: Position, from: Option<&[u8]>, until: Option<&[u8]>| {
            let inside = |entry: &Entry| {
                let number = entry.words[0].to_be_bytes();
                let key = if self.kind.has_numbers() { &number[..] } else { &entry.key };
                from.is_none_or(|from| key >= from) && until.is_none_or(|until| key < until)
            };
            self.entries(image, at).iter().filter(|entry| inside(entry)).count() as u64
        };
        let first =
            from.map_or_else(|| blocks!(&self.leaves, blocks => blocks.first()), |key| self.position(key));
        let last =
            until.map_or_else(|| blocks!(&self.leaves, blocks => blocks.last()), |key| self.position(key));
        if first == last {
            return ends(first, from, until);
        }
        let rank = |at: Position| blocks!(&self.leaves, blocks => blocks.rank(at)) as u64;
        let Some(between) = rank(last).checked_sub(rank(first) + 1) else { return 0 };
        let all = between as f64 * self.counts.keys as f64 / self.counts.leaves as f64;
        ends(first, from, None) + ends(last, None, until) + all.round() as u64
    }

    /// Calls `visit` with key word and second word of each key from one on, in their order, until it returns
    /// `false`. Key words of strings are those of their leaves. Returns whether there are no more keys.
    pub fn scan(&self, image: &Image, from: ScanFrom<'_>, mut visit: impl FnMut(u64, u64) -> bool) -> bool {
        let mut at = match from.key {
            Some(key) => Some(self.position(key)),
            None if from.backwards => Some(blocks!(&self.leaves, blocks => blocks.last())),
            None => Some(blocks!(&self.leaves, blocks => blocks.first())),
        };
        let mut bound = from.key;
        let mut slots = Vec::with_capacity(LEAF_SLOTS);
        let mut key = Vec::new();
        while let Some(here) = at {
            self.sorted_slots(image, here, &mut slots);
            if from.backwards {
                slots.reverse();
            }
            for (word, second) in &slots {
                if let Some(bound) = bound {
                    let order = if self.kind.has_numbers() {
                        word.cmp(&key_word(bound, 0))
                    } else {
                        load_key(image.slot(location_of(*second)), &mut key);
                        key[..].cmp(bound)
                    };
                    let order = if from.backwards { order.reverse() } else { order };
                    if order == Ordering::Less || (from.after && order == Ordering::Equal) {
                        continue;
                    }
                }
                if !visit(*word, *second) {
                    return false;
                }
            }
            // Only in the first leaf there are keys before the beginning.
            bound = None;
            at = if from.backwards { self.previous(here) } else { self.next(here) };
        }
        true
    }

    /// Key words and second words of a leaf in the order of its keys.
    fn sorted_slots(&self, image: &Image, at: Position, slots: &mut Vec<(u64, u64)>) {
        let leaf = leaf_words(image, self.place(at));
        let header = LeafHeader::load(leaf);
        let filled = header.filled().trailing_ones() as usize;
        slots.clear();
        slots.extend((0..filled).filter_map(|slot| header.entry(load_slot(leaf, slot))));
        let (mut a_key, mut b_key) = (Vec::new(), Vec::new());
        slots.sort_unstable_by(|a, b| {
            a.0.cmp(&b.0).then_with(|| {
                load_key(image.slot(location_of(a.1)), &mut a_key);
                load_key(image.slot(location_of(b.1)), &mut b_key);
                a_key.cmp(&b_key)
            })
        });
    }

    /// The locations of all items, for checks.
    pub fn for_each(&self, image: &Image, mut visit: impl FnMut(Location)) {
        if self.kind.has_items() {
            let all = ScanFrom { key: None, after: false, backwards: false };
            self.scan(image, all, |_, second| {
                visit(location_of(second));
                true
            });
        }
    }

    /// Every slot of memory that the index uses, for checks.
    pub fn for_each_block(&self, image: &Image, mut visit: impl FnMut(Kind, Place)) {
        let mut at = Some(blocks!(&self.leaves, blocks => blocks.first()));
        while let Some(here) = at {
            visit(Kind::LEAF, self.place(here));
            if let Some(fences) = self.fences(image, here) {
                visit(Kind::item(fences.class()), fences.place());
            }
            at = self.next(here);
        }
        chain!(&self.leaves, chain => chain.models.for_each_block(visit));
    }

    fn fences(&self, image: &Image, at: Position) -> Option<Location> {
        let header = LeafHeader::load(leaf_words(image, self.place(at)));
        if self.kind.has_numbers() { None } else { header.fences() }
    }

    /// Checks the chain against the index of leaves, and each leaf's slots against its fences. `Err`: what is
    /// wrong.
    pub fn check(&self, image: &Image) -> Result<(), String> {
        let mut at = Some(blocks!(&self.leaves, blocks => blocks.first()));
        let mut keys = 0;
        let mut before: Option<Entry> = None;
        while let Some(here) = at {
            let (place, next) = (self.place(here), self.next(here));
            let header = LeafHeader::load(leaf_words(image, place));
            if !header.guardian().is_live() || header.table() != self.table {
                return Err(format!("the leaf at {place:?} is not live or of another table"));
            }
            if header.next() != next.map(|next| self.place(next)) || header.is_last() != next.is_none() {
                return Err(format!(
                    "the leaf at {place:?} is followed by {:?}, not {next:?}",
                    header.next()
                ));
            }
            self.check_fences(image, here, &header)?;
            for entry in self.entries(image, here) {
                keys += 1;
                let ordered =
                    before.as_ref().is_none_or(|before| self.order(before, &entry) == Ordering::Less);
                let key =
                    if self.kind.has_numbers() { &entry.words[0].to_be_bytes()[..] } else { &entry.key };
                let found = self.find(image, key);
                let found = found.is_some_and(|found| found.second == entry.words[1]);
                if !ordered || !found {
                    return Err(format!("{entry:?} in the leaf at {place:?} is not in order, or not found"));
                }
                before = Some(entry);
            }
            at = next;
        }
        if keys != self.counts.keys {
            return Err(format!("{keys} keys, and {} are counted", self.counts.keys));
        }
        Ok(())
    }

    fn check_fences(&self, image: &Image, here: Position, header: &LeafHeader) -> Result<(), String> {
        let next = self.next(here);
        let agree = match &self.leaves {
            Leaves::Numbers(Chain { blocks, .. }) => {
                let high = next.map_or(u64::MAX, |next| *blocks.separator(next) - 1);
                (header.first_number(), header.last_number()) == (*blocks.separator(here), high)
            }
            Leaves::Strings(Chain { blocks, .. }) => {
                let item = image.slot(header.fences().ok_or("a leaf of strings without fences")?);
                let high = next.map_or(&[][..], |next| blocks.separator(next));
                let fences = read_item(item);
                Guardian(item.load(0)).is_live()
                    && fences.0.flags == ItemFlags::FENCES
                    && (&fences.1[..], &fences.2[..]) == (blocks.separator(here), high)
            }
        };
        if agree { Ok(()) } else { Err(format!("the leaf at {:?} has wrong fences", self.place(here))) }
    }
}

fn read_item(item: Words<'_>) -> (ItemHeader, Vec<u8>, Vec<u8>) {
    let header = ItemHeader::from_word(item.load(1)).expect("an item of this image");
    let (mut key, mut body) = (vec![0; header.key_bytes], vec![0; header.body_bytes]);
    let whole = item.copy_bytes_out(header.key_start(), &mut key)
        & item.copy_bytes_out(header.body_start(), &mut body);
    assert!(whole, "an item of this image");
    (header, key, body)
}
