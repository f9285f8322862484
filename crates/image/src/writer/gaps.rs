//! Free slots of leaves. Whoever scans goes from leaf to leaf, so where a leaf stands matters, and its slots
//! are given out by place, when their quarantine has passed:
//!
//! 1. A leaf that comes beside another one takes the free slot of its slab that is nearest
//!    ([`Image::allocate_leaf`]). Those of other slabs are for the leaves there; but what is more of them than
//!    leaves in order leave open is anybody's, so that there are not more and more slabs with gaps.
//! 2. Leaves that come in order take the free slots of a slab in order, and leave every eighth open
//!    ([`Image::allocate_in_order`]).
//! 3. That slab is one that most leaves have left, or a new one where there is none (`Image::next_in_row`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use kelix_types::limits::{GRANULE_BYTES, PAGE_BYTES};
use kelix_types::{Place, mark};

use super::{Image, NoRoom};
use crate::pages::{Kind, Segment};

const SLOTS: usize = Kind::LEAF.slots() as usize;
/// One of so many slots stays open between leaves in order.
const GAP_EVERY: usize = 8;
/// A slab with so many free slots is one that most leaves have left.
const MOST: usize = SLOTS * 3 / 4;
/// Slots that are looked for with each that is given out, whose quarantine has passed: more than are given
/// back meanwhile.
const RIPE_AT_ONCE: usize = 16;
/// Leaves move for the order's sake while this share of all memory is free: the rest is for writes.
const RESERVE_SHARE: u64 = 4;

/// The free slots of a slab, a bit each.
#[derive(Clone, Copy, Default)]
struct Open([u64; SLOTS.div_ceil(64)]);

impl Open {
    fn has(&self, slot: usize) -> bool {
        self.0[slot / 64] >> (slot % 64) & 1 == 1
    }

    fn toggle(&mut self, slot: usize) {
        self.0[slot / 64] ^= 1 << (slot % 64);
    }

    fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    fn from(self, first: usize) -> impl Iterator<Item = usize> {
        (first..SLOTS).filter(move |slot| self.has(*slot))
    }
}

/// Free slots of leaves whose quarantine has passed.
#[derive(Default)]
pub(super) struct Gaps {
    /// Of each slab that has some, by its first slot.
    slabs: BTreeMap<Place, Open>,
    /// The slabs that most leaves have left.
    sparse: BTreeSet<Place>,
    /// How many slots there are of all.
    slots: usize,
    /// The slot that was given out last to a leaf in order.
    row: Option<Place>,
}

/// The slab of a slot, and which of its slots that is.
fn slab_of(place: Place) -> (Place, usize) {
    let within = place.0 % PAGE_BYTES;
    (Place(place.0 - within), (within / Kind::LEAF.slot_bytes()) as usize)
}

fn slot_of(slab: Place, slot: usize) -> Place {
    slab.plus(slot as u64 * Kind::LEAF.slot_bytes())
}

/// The first of these slabs that stands elsewhere than at these places.
fn outside<T>(leaving: &Range<Place>, find: impl Fn(Range<Place>) -> Option<T>) -> Option<T> {
    find(Place(0)..leaving.start).or_else(|| find(leaving.end..Place(u64::MAX)))
}

impl Gaps {
    fn add(&mut self, place: Place) {
        let (slab, slot) = slab_of(place);
        let open = self.slabs.entry(slab).or_default();
        debug_assert!(!open.has(slot));
        open.toggle(slot);
        self.slots += 1;
        if open.count() == MOST {
            self.sparse.insert(slab);
        }
    }

    fn take(&mut self, place: Place) -> Place {
        let (slab, slot) = slab_of(place);
        let open = self.slabs.get_mut(&slab).expect("a slab with gaps");
        debug_assert!(open.has(slot));
        open.toggle(slot);
        self.slots -= 1;
        match open.count() {
            0 => drop(self.slabs.remove(&slab)),
            count if count == MOST - 1 => drop(self.sparse.remove(&slab)),
            _ => {}
        }
        place
    }

    /// The nearest one in the slab of a slot.
    fn near(&self, place: Place) -> Option<Place> {
        let (slab, slot) = slab_of(place);
        let open = self.slabs.get(&slab)?;
        let by_distance = (1..SLOTS).flat_map(|distance| [slot.checked_sub(distance), Some(slot + distance)]);
        let nearest = by_distance.flatten().find(|slot| *slot < SLOTS && open.has(*slot))?;
        Some(slot_of(slab, nearest))
    }

    /// One that does not stand at these places.
    fn any(&self, leaving: &Range<Place>) -> Option<Place> {
        let (slab, open) = outside(leaving, |places| self.slabs.range(places).next())?;
        open.from(0).next().map(|slot| slot_of(*slab, slot))
    }

    /// Forgets those at these places, which are no memory any more.
    pub(super) fn forget(&mut self, places: &Range<Place>) {
        let goes: Vec<Place> = self.slabs.range(places.clone()).map(|(slab, _)| *slab).collect();
        for slab in goes {
            self.slots -= self.slabs.remove(&slab).map_or(0, |open| open.count());
            self.sparse.remove(&slab);
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = Place> + '_ {
        self.slabs.iter().flat_map(|(slab, open)| open.from(0).map(|slot| slot_of(*slab, slot)))
    }
}

impl Image {
    /// A slot for a leaf beside the one at `near`.
    pub fn allocate_leaf(&mut self, near: Place) -> Result<Place, NoRoom> {
        self.collect_gaps();
        let leaving = self.leaving();
        let beside = self.gaps.near(near).filter(|place| !leaving.contains(place));
        let place = match beside.or_else(|| self.next_in_row(1)) {
            Some(place) => place,
            None => {
                let any = self.gaps.any(&leaving);
                let are_many = self.gaps.slots as u64 > 2 * self.leaves_open() || !self.has_reserve();
                match any.filter(|_| are_many) {
                    Some(place) => place,
                    None => self.new_row(1).or_else(|no_room| any.ok_or(no_room))?,
                }
            }
        };
        Ok(self.use_leaf(place))
    }

    /// A slot for the next one of leaves that come in order.
    pub fn allocate_in_order(&mut self) -> Result<Place, NoRoom> {
        self.collect_gaps();
        let place = match self.next_in_row(GAP_EVERY) {
            Some(place) => place,
            None => self.new_row(GAP_EVERY)?,
        };
        Ok(self.use_leaf(place))
    }

    /// Whether so much memory is free that leaves may move for the order's sake.
    pub fn has_reserve(&self) -> bool {
        let limit = self.config.memory_bytes;
        limit.saturating_sub(self.use_.pages) >= limit / RESERVE_SHARE
    }

    /// How many slots stay open between leaves, where all of them are in order.
    pub(super) fn leaves_open(&self) -> u64 {
        self.kinds[Kind::LEAF.index()].used / (GAP_EVERY as u64 - 1)
    }

    fn use_leaf(&mut self, place: Place) -> Place {
        self.count_slot(Kind::LEAF, place, 1);
        self.gaps.take(place)
    }

    /// The next free slot for leaves in order, of the slab of the last one or one that most leaves have left;
    /// but none whose number is a multiple of `gap_every`, if that is more than one.
    fn next_in_row(&mut self, gap_every: usize) -> Option<Place> {
        let leaving = self.leaving();
        let find = |slab: Place, first: usize| {
            let open = self.gaps.slabs.get(&slab).filter(|_| !leaving.contains(&slab))?;
            let slot = open.from(first).find(|slot| gap_every == 1 || slot % gap_every != 0)?;
            Some(slot_of(slab, slot))
        };
        let ahead = self.gaps.row.map(slab_of).and_then(|(slab, slot)| find(slab, slot + 1));
        let next = ahead.or_else(|| {
            let sparse = outside(&leaving, |places| self.gaps.sparse.range(places).next().copied())?;
            mark!("slab of leaves filled again");
            find(sparse, 0)
        })?;
        self.gaps.row = Some(next);
        Some(next)
    }

    /// The same, of a new slab, whose first slot stays open.
    fn new_row(&mut self, gap_every: usize) -> Result<Place, NoRoom> {
        let slab = self.take_slab(Kind::LEAF)?;
        let (segment, page) = self.page_of(slab);
        self.segments[segment].pages[page].carved = SLOTS as u32;
        (0..SLOTS).for_each(|slot| self.gaps.add(slot_of(slab, slot)));
        self.gaps.row = Some(slab);
        Ok(self.next_in_row(gap_every).expect("a slab with many free slots"))
    }

    /// Takes some slots whose quarantine has passed out of the queue.
    fn collect_gaps(&mut self) {
        for _ in 0..RIPE_AT_ONCE {
            let Some(place) = self.reuse(Kind::LEAF) else { return };
            self.gaps.add(place);
        }
    }

    /// Where the segment stands that is being emptied.
    fn leaving(&self) -> Range<Place> {
        self.evacuating.as_ref().map_or(Place(0)..Place(0), |of| self.segments[of.segment].places())
    }
}

impl Segment {
    /// Where it stands.
    pub(super) fn places(&self) -> Range<Place> {
        let first = Place(self.first_granule as u64 * GRANULE_BYTES);
        first..first.plus(self.bytes)
    }
}

const _: () = assert!(Kind::LEAF.slab_pages() == 1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InUse;
    use crate::pages::SegmentState;
    use crate::writer::tests::{image, pass_epochs};

    fn audit(image: &Image, leaves: &[Place]) {
        let slots = leaves.iter().map(|place| (Kind::LEAF, *place)).collect();
        image.audit(&InUse { slots, runs: Vec::new() }).unwrap();
    }

    #[test]
    fn leaves_in_order_stand_in_a_row_and_leave_room_for_those_that_come_beside_them() {
        let mut image = image(4 << 20);
        let bytes = Kind::LEAF.slot_bytes();
        let mut leaves: Vec<Place> = (0..100).map(|_| image.allocate_in_order().unwrap()).collect();
        assert!(leaves.windows(2).all(|pair| pair[1].0 - pair[0].0 <= 2 * bytes), "{leaves:?}");
        assert_eq!(image.gaps.slots, SLOTS - 100);
        audit(&image, &leaves);
        // Two of each leaf that is split, as long as there is room.
        for near in [leaves[50], leaves[51], leaves[0]] {
            let beside = image.allocate_leaf(near).unwrap();
            assert!(beside.0.abs_diff(near.0) <= 20 * bytes, "{beside:?} is not near {near:?}");
            leaves.push(beside);
        }
        assert!(leaves[100..].iter().all(|place| slab_of(*place).1 % GAP_EVERY == 0), "{leaves:?}");
        audit(&image, &leaves);
        // One that has no gap near comes behind those in order, and leaves the gaps of others alone, as long
        // as these are few.
        leaves.extend((0..250).map(|_| image.allocate_in_order().unwrap()));
        for _ in 0..150 {
            let alone = image.allocate_leaf(Place(0)).unwrap();
            assert_eq!(image.gaps.row, Some(alone));
            leaves.push(alone);
        }
        audit(&image, &leaves);
        let gone = leaves.split_off(leaves.len() - 300);
        gone.iter().for_each(|place| image.release(Kind::LEAF, *place));
        assert!(!gone.contains(&image.allocate_leaf(gone[0]).unwrap()), "a slot in quarantine");
    }

    #[test]
    fn slabs_that_leaves_have_left_are_filled_again() {
        let mut image = image(16 << 20);
        let mut leaves: Vec<Place> = (0..2000).map(|_| image.allocate_in_order().unwrap()).collect();
        let mut pages = Vec::new();
        for _ in 0..20 {
            for leaf in &mut leaves {
                let place = image.allocate_in_order().unwrap();
                image.release(Kind::LEAF, std::mem::replace(leaf, place));
            }
            pass_epochs(&mut image, 2);
            audit(&image, &leaves);
            pages.push(image.memory_use().pages);
        }
        // Twice as many as leaves take, since all of a round rest at once, and one at each end of a round.
        assert!(pages.iter().all(|pages| *pages <= (2 * 12 + 2) * PAGE_BYTES), "{pages:?}");
        leaves.iter().for_each(|place| image.release(Kind::LEAF, *place));
        pass_epochs(&mut image, 2);
        audit(&image, &[]);
    }

    /// Neither gaps nor empty slabs of a segment that is emptied are given out, and when it is gone nothing
    /// of it is left.
    #[test]
    fn what_is_free_in_a_segment_that_is_emptied_is_not_given_out() {
        for retires in [false, true] {
            let mut image = image(16 << 20);
            // Of two slabs, one of which is empty.
            let leaves: Vec<Place> = (0..300).map(|_| image.allocate_in_order().unwrap()).collect();
            leaves[..200].iter().for_each(|place| image.release(Kind::LEAF, *place));
            pass_epochs(&mut image, 2);
            (0..20).for_each(|_| image.collect_gaps());
            assert_eq!(image.gaps.sparse.len(), 1);
            let segment = image.segment_of(leaves[0]);
            assert!(image.begin_to_empty(segment.first_granule));
            let mut left = leaves[200..].to_vec();
            let moved: Vec<Place> = left.iter().map(|place| image.allocate_leaf(*place).unwrap()).collect();
            assert!(moved.iter().all(|place| image.segment_of(*place) != segment), "{moved:?}");
            if retires {
                left.drain(..).for_each(|place| image.release(Kind::LEAF, place));
                while image.next_leaving_slab().is_some() {}
                assert!(image.finish_evacuation());
                pass_epochs(&mut image, 2);
                assert!(!image.is_evacuating());
            } else {
                image.abandon_evacuation();
            }
            left.extend(moved);
            audit(&image, &left);
            let stands_there =
                |place: Place| image.segments[image.page_of(place).0].state == SegmentState::Open;
            assert!(image.gaps.all().all(stands_there));
            assert_eq!(image.gaps.sparse.is_empty(), retires);
        }
    }
}
