//! How much memory items take in a shard: what its pages are given to.
//!
//! Slots and slabs are the image's own (`kelix_image::Kind`). How full index and leaves are is arithmetic
//! about random keys, and a test holds all of it against servers (`crates/cli/tests/plan.rs`).

use kelix::TableKind;
use kelix_image::Kind;
use kelix_types::SizeClass;
use kelix_types::limits::{EPOCH_NS, INLINE_BODY_BYTES_MAX, PAGE_BYTES, QUARANTINE_EPOCHS};

/// Header of an item: guardian and meta word.
const HEADER: u64 = 16;
/// Slots of a subtable: 64 buckets of 7.
const SUBTABLE_SLOTS: f64 = 448.0;
/// Keys at which a subtable splits, on average, and how far one differs from another: a key then finds no
/// room in its two buckets.
const SPLIT_AT: f64 = SUBTABLE_SLOTS * 0.933;
const SPLIT_DEVIATION: f64 = 17.0;
/// Keys of a leaf whose neighbours came in no order. Of keys that come in order it has 16.
const LEAF_KEYS: f64 = 11.27;
/// Leaves of a sub-model, and bytes of what each has in models.
const SUB_MODEL_LEAVES: f64 = 65.0;
/// Bytes that a new key leaves behind in an ordered table, until no reader can meet them: its share of a leaf
/// that became two, and of a table that was trained anew.
const LEFT_BEHIND: u64 = 96;
/// New keys a second that are reckoned with.
const NEW_KEYS_PER_SECOND: u64 = 100_000;
/// Pages of what every shard has: the catalogue's items, and slabs that are begun.
const OTHER_PAGES: u64 = 4;

/// Items that the hash index of a shard has room for: as many subtables as its directory can name, as full as
/// they are on average.
pub(super) const HASHED_ITEMS_MAX: u64 = (1 << Kind::DIRECTORY_DEPTH_MAX) * 300;

/// What is to be stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    pub kind: TableKind,
    pub items: u64,
    pub key_bytes: u64,
    pub value_bytes: u64,
    /// The value is so many attributes; 0: it is plain.
    pub attributes: u64,
}

/// What a shard needs, in bytes of pages.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Need {
    pub items: u64,
    /// Subtables, or leaves.
    pub index: u64,
    /// How many these are.
    pub parts: u64,
    /// How full they are, from 0 to 1.
    pub fill: f64,
    /// The directory of the hash index.
    pub directory: u64,
    /// Models of an ordered table.
    pub models: u64,
    pub other: u64,
}

impl Need {
    pub fn used(&self) -> u64 {
        self.items + self.index + self.directory + self.models + self.other
    }
}

/// Bytes of the pages that so many objects of a kind take.
fn pages(kind: Kind, count: u64) -> u64 {
    let slab = kind.slab_pages() * PAGE_BYTES;
    count.div_ceil(slab / kind.slot_bytes()) * slab
}

/// Of so many objects a second how many wait until no reader can meet them: those of two epochs, and of the
/// one that they died in.
fn in_quarantine(per_second: u64) -> u64 {
    let seconds = (QUARANTINE_EPOCHS + 1) as f64 * EPOCH_NS as f64 / 1e9;
    (per_second as f64 * seconds) as u64
}

/// The part of a normal distribution that is above so many deviations.
fn above(deviations: f64) -> f64 {
    // Abramowitz and Stegun, 26.2.17.
    let t = 1.0 / (1.0 + 0.231_641_9 * deviations.abs());
    let powers = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let sum = powers.iter().rev().fold(0.0, |sum, power| (sum + power) * t);
    let tail = sum * (-deviations * deviations / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if deviations < 0.0 { 1.0 - tail } else { tail }
}

/// About how many subtables so many keys have, and how deep the directory is. Subtables are halved when they
/// are full, and as keys are spread evenly, most of them are at about the same time.
fn subtables(keys: u64) -> (u64, u32) {
    let (mut depth, mut count, mut split) = (0, 1.0, 1.0);
    while depth < Kind::DIRECTORY_DEPTH_MAX {
        let mean = keys as f64 / f64::from(1u32 << depth);
        // Of those that exist, the ones that are full become two.
        let deviation = (mean + SPLIT_DEVIATION * SPLIT_DEVIATION).sqrt();
        split *= above((SPLIT_AT - mean) / deviation);
        let added = split * f64::from(1u32 << depth);
        if added < 0.5 {
            break;
        }
        count += added;
        depth += 1;
    }
    (count as u64, depth)
}

impl Shape {
    /// The slot of an item, with the pages of what does not fit one; nothing for values that stand beside
    /// their keys.
    pub fn slot(&self) -> Option<Slot> {
        if !self.kind.has_items() {
            return None;
        }
        let (key, body) = match self.attributes {
            0 => (self.key_bytes, self.value_bytes),
            count => {
                let each = self.value_bytes.div_ceil(count).next_multiple_of(8);
                (self.key_bytes.next_multiple_of(8), 8 + count * (8 + each))
            }
        };
        let is_large = body > INLINE_BODY_BYTES_MAX as u64;
        let in_slot = if is_large { key.next_multiple_of(8) + 24 } else { key + body };
        let class = SizeClass::for_bytes((HEADER + in_slot) as usize)?;
        let run_bytes = if is_large { body.next_multiple_of(PAGE_BYTES) } else { 0 };
        Some(Slot { kind: Kind::item(class), run_bytes })
    }

    /// What a shard needs for so many of the items.
    pub fn need(&self, items: u64) -> Need {
        let stored = self.slot().map_or(0, |slot| pages(slot.kind, items) + slot.run_bytes * items);
        let mut need = Need { items: stored, other: OTHER_PAGES * PAGE_BYTES, ..Need::default() };
        if self.kind.is_ordered() {
            self.add_leaves(items, &mut need);
        } else {
            let (count, depth) = subtables(items);
            need.index = pages(Kind::SUBTABLE, count);
            (need.parts, need.fill) = (count, items as f64 / SUBTABLE_SLOTS / count as f64);
            // A slab is never given to another kind, so the smaller ones of before are still there.
            need.directory = (12..=depth.max(12)).map(|depth| pages(Kind::directory(depth), 1)).sum();
        }
        need
    }

    fn add_leaves(&self, items: u64, need: &mut Need) {
        let leaves = (items as f64 / LEAF_KEYS).ceil().max(1.0);
        need.index = pages(Kind::LEAF, leaves as u64);
        (need.parts, need.fill) = (leaves as u64, items as f64 / leaves / 16.0);
        let sub_models = (leaves / SUB_MODEL_LEAVES).ceil();
        // Half of the tables have room for twice the leaves they were made with; the top model's entries have
        // 32 bytes, and its cells as many.
        let tables = pages(Kind::table(3), sub_models as u64) + 3 * PAGE_BYTES;
        let top_bits = ((sub_models * 80.0 + 64.0).log2().ceil() as u32).clamp(10, 29);
        let tops: u64 = (10..=top_bits).map(|bits| pages(Kind::top(bits), 1)).sum();
        let resting = items.min(in_quarantine(NEW_KEYS_PER_SECOND)) * LEFT_BEHIND;
        need.models = tables + tops + resting.next_multiple_of(PAGE_BYTES);
        need.directory = pages(Kind::directory(12), 1);
        if self.kind == TableKind::Strings {
            let fences = HEADER + 2 * self.key_bytes;
            if let Some(class) = SizeClass::for_bytes(fences as usize) {
                need.index += pages(Kind::item(class), leaves as u64);
            }
        }
    }

    /// What waits until no reader can meet it, while so many keys a second are replaced.
    pub fn resting(&self, puts_per_second: u64) -> u64 {
        let dead = self.slot().map_or(0, |slot| slot.kind.slot_bytes() + slot.run_bytes);
        in_quarantine(puts_per_second) * dead
    }
}

/// Where an item stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    pub kind: Kind,
    /// Pages of a value that is too large for a slot.
    pub run_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(key_bytes: u64, value_bytes: u64, attributes: u64) -> Shape {
        Shape { kind: TableKind::Hash, items: 1, key_bytes, value_bytes, attributes }
    }

    #[test]
    fn items_take_the_smallest_slot() {
        let slot = |shape: Shape| shape.slot().map(|slot| (slot.kind.slot_bytes(), slot.run_bytes));
        assert_eq!(slot(shape(16, 32, 0)), Some((64, 0)));
        assert_eq!(slot(shape(8, 100, 0)), Some((128, 0)));
        assert_eq!(slot(shape(24, 1000, 0)), Some((1152, 0)));
        // Two attributes: their number, a word and padded bytes each.
        assert_eq!(slot(shape(8, 10, 2)), Some((64, 0)));
        assert_eq!(slot(shape(8, 3 << 20, 0)), Some((48, 3 << 20)));
        assert_eq!(slot(Shape { kind: TableKind::Inline, ..shape(8, 8, 0) }), None);
    }

    #[test]
    fn subtables_are_as_many_as_were_counted() {
        // Keys, and subtables of a server that had put them.
        for (keys, counted) in
            [(60_000, 254), (100_000, 284), (150_000, 512), (180_000, 514), (200_000, 569), (300_000, 1024)]
        {
            let (count, depth) = subtables(keys);
            let off = (count as f64 - counted as f64).abs() / counted as f64;
            assert!(off < 0.05, "{keys} keys: {count}, not {counted}");
            assert!((7..=11).contains(&depth), "{depth}");
        }
        assert_eq!(subtables(0), (1, 0));
    }

    #[test]
    fn tails_of_the_normal_distribution() {
        for (deviations, part) in [(0.0, 0.5), (1.0, 0.1587), (2.0, 0.0228), (-1.0, 0.8413)] {
            assert!((above(deviations) - part).abs() < 1e-4, "{deviations}");
        }
    }
}
