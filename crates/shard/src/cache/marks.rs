//! What is known of each slot whose item may be let go: how often it was used, and when. Not beside the
//! items, so that looking at many of them costs little.

use kelix_types::limits::{GRANULE_BYTES, PAGE_BYTES};
use kelix_types::{Location, Place, SizeClass};

const PAGES: usize = (GRANULE_BYTES / PAGE_BYTES) as usize;
/// No slab.
const NONE: u32 = u32::MAX;

/// Of one item: `[ there is one 31 | uses 30 29 | when it was last used 28 0 ]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark(u32);

impl Mark {
    /// Most uses that are counted.
    pub const USES_MAX: usize = 3;
    /// Moments that are told from each other.
    pub const MOMENTS: u32 = 1 << 29;

    pub fn new(uses: usize, moment: u32) -> Mark {
        Mark(1 << 31 | (uses.min(Mark::USES_MAX) as u32) << 29 | (moment % Mark::MOMENTS))
    }

    fn of_word(word: u32) -> Option<Mark> {
        (word != 0).then_some(Mark(word))
    }

    /// How often it was used.
    pub fn uses(self) -> usize {
        (self.0 >> 29 & 3) as usize
    }

    /// How many moments ago it was last used.
    pub fn age(self, now: u32) -> u32 {
        now.wrapping_sub(self.0) % Mark::MOMENTS
    }
}

/// The marks of a slab's slots.
struct Slab {
    first: Place,
    class: SizeClass,
    /// Where it stands in the list of its class.
    listed: usize,
    live: u32,
    marks: Box<[u32]>,
}

/// The marks of all slots.
#[derive(Default)]
pub(super) struct Marks {
    /// By granule, for each of its pages its slab.
    pages: Vec<Option<Box<[u32; PAGES]>>>,
    slabs: Vec<Option<Slab>>,
    unused: Vec<u32>,
    /// Slabs of each class, and items there.
    classes: Vec<(Vec<u32>, u64)>,
    live: u64,
}

impl Marks {
    /// How many items there are.
    pub fn live(&self) -> u64 {
        self.live
    }

    /// How many of a class.
    pub fn live_of(&self, class: SizeClass) -> u64 {
        self.classes.get(usize::from(class.0)).map_or(0, |(_, live)| *live)
    }

    /// Classes of which there are slabs.
    pub fn classes(&self) -> impl Iterator<Item = SizeClass> {
        let used = self.classes.iter().enumerate().filter(|(_, (slabs, _))| !slabs.is_empty());
        used.map(|(class, _)| SizeClass(class as u8))
    }

    /// The slabs: first slot, class, and how many items are there.
    pub fn slabs(&self) -> impl Iterator<Item = (Place, SizeClass, u32)> {
        self.slabs.iter().flatten().map(|slab| (slab.first, slab.class, slab.live))
    }

    fn slab_at(&self, place: Place) -> Option<u32> {
        let pages = self.pages.get(place.granule())?.as_ref()?;
        let slab = pages[(place.0 / PAGE_BYTES) as usize % PAGES];
        (slab != NONE).then_some(slab)
    }

    /// The word of a slot, if there is a slot of this class, and of which slab it is.
    fn slot(&mut self, location: Location) -> Option<(&mut u32, u32)> {
        let number = self.slab_at(location.place())?;
        let slab = self.slabs[number as usize].as_mut()?;
        let at = location.place().0.checked_sub(slab.first.0)?;
        let bytes = slab.class.bytes() as u64;
        let is_slot = slab.class == location.class() && at % bytes == 0;
        let word = slab.marks.get_mut((at / bytes) as usize).filter(|_| is_slot)?;
        Some((word, number))
    }

    /// The mark of an item, wherever the location comes from.
    pub fn get(&mut self, location: Location) -> Option<Mark> {
        self.slot(location).and_then(|(word, _)| Mark::of_word(*word))
    }

    /// Marks an item that has a mark.
    pub fn renew(&mut self, location: Location, mark: Mark) {
        if let Some((word, _)) = self.slot(location).filter(|(word, _)| **word != 0) {
            *word = mark.0;
        }
    }

    /// Marks an item. `slab` tells the first slot and the number of slots of its slab.
    pub fn set(&mut self, location: Location, mark: Mark, slab: impl FnOnce() -> (Place, usize)) {
        if self.slab_at(location.place()).is_none() {
            let (first, slots) = slab();
            self.add_slab(first, location.class(), slots);
        }
        let Some((word, slab)) = self.slot(location) else { return };
        let is_new = std::mem::replace(word, mark.0) == 0;
        if is_new {
            self.count(slab, 1);
        }
    }

    /// Takes the mark of an item away.
    pub fn take(&mut self, location: Location) -> Option<Mark> {
        let (word, slab) = self.slot(location)?;
        let mark = Mark::of_word(std::mem::take(word))?;
        self.count(slab, -1);
        Some(mark)
    }

    fn count(&mut self, slab: u32, change: i32) {
        let slab = self.slabs[slab as usize].as_mut().expect("a slab");
        slab.live = slab.live.wrapping_add_signed(change);
        let live = &mut self.classes[usize::from(slab.class.0)].1;
        *live = live.wrapping_add_signed(change.into());
        self.live = self.live.wrapping_add_signed(change.into());
    }

    fn add_slab(&mut self, first: Place, class: SizeClass, slots: usize) {
        let number = self.unused.pop().unwrap_or_else(|| {
            self.slabs.push(None);
            self.slabs.len() as u32 - 1
        });
        if self.classes.len() <= usize::from(class.0) {
            self.classes.resize_with(usize::from(class.0) + 1, Default::default);
        }
        let list = &mut self.classes[usize::from(class.0)].0;
        let marks = vec![0; slots].into_boxed_slice();
        self.slabs[number as usize] = Some(Slab { first, class, listed: list.len(), live: 0, marks });
        list.push(number);
        self.name_pages(first, class, slots, number);
    }

    fn name_pages(&mut self, first: Place, class: SizeClass, slots: usize, number: u32) {
        let bytes = (slots * class.bytes()) as u64;
        for page in first.0 / PAGE_BYTES..(first.0 + bytes).div_ceil(PAGE_BYTES) {
            let granule = page as usize / PAGES;
            if self.pages.len() <= granule {
                self.pages.resize_with(granule + 1, || None);
            }
            let pages = self.pages[granule].get_or_insert_with(|| Box::new([NONE; PAGES]));
            pages[page as usize % PAGES] = number;
            if number == NONE && pages.iter().all(|slab| *slab == NONE) {
                self.pages[granule] = None;
            }
        }
    }

    /// There are no items any more in the slab of this slot.
    pub fn drop_slab(&mut self, place: Place) {
        let Some(number) = self.slab_at(place) else { return };
        let Some(slab) = self.slabs[number as usize].take() else { return };
        self.unused.push(number);
        self.name_pages(slab.first, slab.class, slab.marks.len(), NONE);
        let (list, live) = &mut self.classes[usize::from(slab.class.0)];
        list.swap_remove(slab.listed);
        *live -= u64::from(slab.live);
        self.live -= u64::from(slab.live);
        if let Some(moved) = list.get(slab.listed) {
            self.slabs[*moved as usize].as_mut().expect("a slab of the list").listed = slab.listed;
        }
    }

    /// A slot of a class, and its mark if there is an item: which one, a random number says.
    pub fn sample(&self, class: SizeClass, random: u64) -> Option<(Location, Mark)> {
        let (slabs, _) = self.classes.get(usize::from(class.0))?;
        let slab = slabs.get(below(random >> 32, slabs.len()))?;
        let slab = self.slabs[*slab as usize].as_ref()?;
        let slot = below(random & 0xffff_ffff, slab.marks.len());
        let mark = Mark::of_word(slab.marks[slot])?;
        Some((Location::new(slab.first.plus((slot * class.bytes()) as u64), class), mark))
    }
}

/// A number below a limit, of a random one of 32 bits.
fn below(random: u64, limit: usize) -> usize {
    ((random * limit as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(place: u64, class: SizeClass) -> Location {
        Location::new(Place(place), class)
    }

    #[test]
    fn only_slots_have_marks() {
        let class = SizeClass::for_bytes(100).unwrap();
        let other = SizeClass::for_bytes(1000).unwrap();
        let bytes = class.bytes() as u64;
        let first = 3 * GRANULE_BYTES + 5 * PAGE_BYTES;
        let slots = (PAGE_BYTES / bytes) as usize;
        let mut marks = Marks::default();
        assert_eq!(marks.get(location(first, class)), None);
        marks.set(location(first + bytes, class), Mark::new(1, 7), || (Place(first), slots));
        assert_eq!(marks.get(location(first + bytes, class)), Some(Mark::new(1, 7)));
        for wrong in [
            location(first, class),
            location(first + bytes, other),
            location(first + bytes + 16, class),
            location(first + PAGE_BYTES, class),
            location(first - bytes, class),
            location((1 << 43) - 64, class),
        ] {
            assert_eq!(marks.get(wrong), None, "{wrong:?}");
            marks.renew(wrong, Mark::new(0, 0));
            assert_eq!(marks.take(wrong), None);
        }
        assert_eq!((marks.live(), marks.live_of(class)), (1, 1));
        let found = (0..1000u64).find_map(|n| marks.sample(class, n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        assert_eq!(found, Some((location(first + bytes, class), Mark::new(1, 7))));
        assert_eq!(marks.take(location(first + bytes, class)), Some(Mark::new(1, 7)));
        assert_eq!((marks.live(), marks.live_of(class)), (0, 0));
    }

    #[test]
    fn slabs_come_and_go() {
        let class = SizeClass::for_bytes(60_000).unwrap();
        let slots = 4;
        let bytes = class.bytes() as u64 * slots;
        let mut marks = Marks::default();
        let firsts: Vec<u64> =
            (0..5).map(|n| GRANULE_BYTES + n * bytes.next_multiple_of(PAGE_BYTES)).collect();
        for first in &firsts {
            marks.set(location(*first, class), Mark::new(0, 1), || (Place(*first), slots as usize));
        }
        for first in &firsts[..3] {
            marks.drop_slab(Place(*first));
            assert_eq!(marks.get(location(*first, class)), None);
        }
        assert_eq!((marks.live(), marks.slabs().count()), (2, 2));
        assert!(firsts[3..].iter().all(|first| marks.get(location(*first, class)).is_some()));
        marks.set(location(firsts[0], class), Mark::new(0, 1), || (Place(firsts[0]), slots as usize));
        assert_eq!((marks.live(), marks.slabs.len()), (3, 5));
        [firsts[0], firsts[3], firsts[4]].iter().for_each(|first| marks.drop_slab(Place(*first)));
        assert!(marks.pages.iter().all(Option::is_none) && marks.classes().count() == 0);
    }

    #[test]
    fn ages_are_counted_over_the_end() {
        let mark = Mark::new(9, Mark::MOMENTS - 1);
        assert_eq!((mark.uses(), mark.age(4)), (3, 5));
        assert_eq!(Mark::new(0, 6).age(6), 0);
    }
}
