//! What a segment's pages are used for.
//!
//! A segment is an array of 64 KiB pages. A run of pages becomes a *slab* of slots of one [`Kind`] and then
//! keeps that kind for as long as the segment exists, so that a stale pointer always lands on a guardian and
//! never in the middle of somebody's value. Pages that hold pieces of large values are no slab: no pointer
//! ever names a place inside them, so they may become anything later.

use std::ops::RangeInclusive;

use kelix_types::SizeClass;
use kelix_types::limits::{LEAF_SLOTS, PAGE_BYTES, SLAB_PAGES_MAX};

/// What a slab slot may hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Kind(u16);

impl Kind {
    const FIRST_DIRECTORY: u16 = SizeClass::COUNT as u16 + 1;
    /// A subtable of the hash index: 64 buckets of 64 bytes.
    pub const SUBTABLE: Kind = Kind(SizeClass::COUNT as u16);
    /// A leaf of an ordered table.
    pub const LEAF: Kind = Kind(Self::FIRST_DIRECTORY + 15);
    /// Depth up to which a directory fits the smallest directory kind.
    const DIRECTORY_DEPTH_MIN: u32 = 12;
    /// Deepest directory.
    pub const DIRECTORY_DEPTH_MAX: u32 = 26;
    /// Bytes before the entries of a directory, its guardian among them.
    pub const DIRECTORY_ENTRIES_START: u64 = 64;
    /// Words of a leaf before its slots, and which of these says what a slot without a key holds.
    pub const LEAF_SLOTS_START: usize = 8;
    /// See above.
    pub const LEAF_EMPTY: usize = 4;
    /// Words of a leaf: a header of one cache line, and the slots.
    pub const LEAF_WORDS: usize = Self::LEAF_SLOTS_START + 2 * LEAF_SLOTS;
    const FIRST_TABLE: u16 = Self::LEAF.0 + 1;
    /// Translation tables have 16 entries, or that doubled as many times as their class says, up to this.
    pub const TABLE_CLASS_MAX: u32 = 4;
    const FIRST_TOP: u16 = Self::FIRST_TABLE + Self::TABLE_CLASS_MAX as u16 + 1;
    /// The smallest and the largest top model have two to the power of this many bytes.
    pub const TOP_BITS: RangeInclusive<u32> = 10..=29;
    const FIRST_ROOTS: u16 = Self::FIRST_TOP + 20;
    /// The smallest and the largest list of roots have two to the power of this many words.
    pub const ROOTS_BITS: RangeInclusive<u32> = 6..=16;
    /// Number of kinds.
    pub(crate) const COUNT: usize = Self::FIRST_ROOTS as usize + 11;

    /// Items of a size class.
    #[inline]
    pub const fn item(class: SizeClass) -> Kind {
        Kind(class.0 as u16)
    }

    /// A directory of the hash index of this depth.
    pub const fn directory(depth: u32) -> Kind {
        assert!(depth <= Self::DIRECTORY_DEPTH_MAX);
        let above = depth.saturating_sub(Self::DIRECTORY_DEPTH_MIN);
        Kind(Self::FIRST_DIRECTORY + above as u16)
    }

    /// A translation table of a class, with 16 << class entries.
    pub const fn table(class: u32) -> Kind {
        assert!(class <= Self::TABLE_CLASS_MAX);
        Kind(Self::FIRST_TABLE + class as u16)
    }

    /// Whether it is a translation table.
    pub const fn is_table(self) -> bool {
        self.0 >= Self::FIRST_TABLE && self.0 < Self::FIRST_TOP
    }

    /// A top model of two to the power of `bits` bytes.
    pub const fn top(bits: u32) -> Kind {
        assert!(bits >= *Self::TOP_BITS.start() && bits <= *Self::TOP_BITS.end());
        Kind(Self::FIRST_TOP + (bits - *Self::TOP_BITS.start()) as u16)
    }

    /// Whether it is a part of models, which are trained anew wherever an image is taken over.
    pub const fn is_model(self) -> bool {
        self.0 >= Self::FIRST_TABLE
    }

    /// Whether it is a top model.
    pub const fn is_top(self) -> bool {
        self.0 >= Self::FIRST_TOP && self.0 < Self::FIRST_ROOTS
    }

    /// A list of the roots of ordered tables, of two to the power of `bits` words.
    pub const fn roots(bits: u32) -> Kind {
        assert!(bits >= *Self::ROOTS_BITS.start() && bits <= *Self::ROOTS_BITS.end());
        Kind(Self::FIRST_ROOTS + (bits - *Self::ROOTS_BITS.start()) as u16)
    }

    /// Whether it is a list of roots.
    pub const fn is_roots(self) -> bool {
        self.0 >= Self::FIRST_ROOTS
    }

    /// Whether it is a subtable or a directory.
    pub const fn is_of_the_hash_index(self) -> bool {
        self.0 >= Self::SUBTABLE.0 && self.0 < Self::LEAF.0
    }

    /// The size class, when it is a kind of item.
    pub const fn class(self) -> Option<SizeClass> {
        if self.0 < SizeClass::COUNT as u16 { Some(SizeClass(self.0 as u8)) } else { None }
    }

    /// What its slots hold, in words.
    pub const fn name(self) -> &'static str {
        if self.is_item() {
            "items"
        } else if self.0 == Self::SUBTABLE.0 {
            "subtables"
        } else if self.0 == Self::LEAF.0 {
            "leaves"
        } else if self.is_table() {
            "translation tables"
        } else if self.is_top() {
            "top models"
        } else if self.is_roots() {
            "roots"
        } else {
            "directories"
        }
    }

    /// Whether slots of this kind begin with a guardian of an item.
    pub const fn is_item(self) -> bool {
        self.class().is_some()
    }

    /// Index into per-kind arrays.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    pub(crate) const fn from_index(index: usize) -> Kind {
        Kind(index as u16)
    }

    /// The kind with a number from elsewhere, if there is one.
    pub(crate) fn of_number(number: u64) -> Option<Kind> {
        (number < Kind::COUNT as u64).then(|| Kind::from_index(number as usize))
    }

    /// Whether what is in its slots says by itself, in its first word, whether it lives.
    pub(crate) const fn has_guardian(self) -> bool {
        self.is_item() || self.0 == Self::LEAF.0
    }

    /// Slots of a slab.
    pub(crate) const fn slots(self) -> u64 {
        self.slab_pages() * PAGE_BYTES / self.slot_bytes()
    }

    /// Bytes of a slot.
    #[inline]
    pub const fn slot_bytes(self) -> u64 {
        if let Some(class) = self.class() {
            class.bytes() as u64
        } else if self.0 == Self::SUBTABLE.0 {
            4096
        } else if self.0 == Self::LEAF.0 {
            Self::LEAF_WORDS as u64 * 8
        } else if self.is_table() {
            16 + (16 << (self.0 - Self::FIRST_TABLE)) * 8
        } else if self.is_top() {
            1 << ((self.0 - Self::FIRST_TOP) as u32 + *Self::TOP_BITS.start())
        } else if self.is_roots() {
            8 << ((self.0 - Self::FIRST_ROOTS) as u32 + *Self::ROOTS_BITS.start())
        } else {
            let entries = 1u64 << (Self::DIRECTORY_DEPTH_MIN + (self.0 - Self::FIRST_DIRECTORY) as u32);
            (Self::DIRECTORY_ENTRIES_START + entries * 8).next_multiple_of(PAGE_BYTES)
        }
    }

    /// Pages of a slab: the fewest that waste at most a sixteenth.
    pub const fn slab_pages(self) -> u64 {
        let slot = self.slot_bytes();
        let mut pages = slot.div_ceil(PAGE_BYTES);
        while pages < SLAB_PAGES_MAX && (pages * PAGE_BYTES) % slot * 16 > pages * PAGE_BYTES {
            pages += 1;
        }
        pages
    }
}

const _: () = {
    assert!(Kind::LEAF.0 == Kind::directory(Kind::DIRECTORY_DEPTH_MAX).0 + 1);
    assert!(Kind::FIRST_ROOTS == Kind::top(*Kind::TOP_BITS.end()).0 + 1);
    assert!(Kind::COUNT == Kind::roots(*Kind::ROOTS_BITS.end()).0 as usize + 1);
};

/// How a page is used now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageUse {
    Free,
    Slab(Kind),
    Run,
}

/// The writer's private knowledge of one page. Slab counts stand with the slab's first page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    pub usage: PageUse,
    /// Held a piece of a large value once: to be cleared before it becomes a slab.
    pub dirty: bool,
    /// First page of the slab or run.
    pub head: u32,
    /// Slots of the slab that were ever handed out.
    pub carved: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SegmentState {
    Open,
    /// Being emptied: nothing new is placed here.
    Evacuating,
    Retired,
}

/// The writer's private knowledge of one segment.
pub(crate) struct Segment {
    pub first_granule: usize,
    pub bytes: u64,
    pub state: SegmentState,
    pub pages: Vec<Page>,
    pub pages_free: usize,
    /// Pages that hold pieces of large values.
    pub run_pages: usize,
    /// Bytes of slots and runs that are in use, dead ones in quarantine not counted.
    pub live_bytes: u64,
    /// The count of openings when it was last opened, see `Image::openings`.
    pub opened: u64,
    cursor: usize,
}

impl Segment {
    pub fn new(first_granule: usize, bytes: u64, opened: u64) -> Segment {
        let count = (bytes / PAGE_BYTES) as usize;
        let free = Page { usage: PageUse::Free, dirty: false, head: 0, carved: 0 };
        Segment {
            first_granule,
            bytes,
            state: SegmentState::Open,
            pages: vec![free; count],
            pages_free: count,
            run_pages: 0,
            live_bytes: 0,
            opened,
            cursor: 0,
        }
    }

    /// What would come back if the segment were emptied and its objects stood elsewhere without a gap: bytes
    /// of slabs that no object uses. Free pages need no emptying.
    pub fn gain(&self) -> u64 {
        let slabs = self.pages.len() - self.pages_free - self.run_pages;
        (slabs as u64 * PAGE_BYTES).saturating_sub(self.live_bytes)
    }

    /// Finds `wanted` free pages in a row, or with `partial` the longest row there is, and takes them.
    /// Returns the first page and the count.
    pub fn take(&mut self, wanted: usize, usage: PageUse, partial: bool) -> Option<(usize, usize)> {
        if self.state != SegmentState::Open || self.pages_free == 0 || (!partial && self.pages_free < wanted)
        {
            return None;
        }
        let (mut best, mut best_count) = (0, 0);
        // Next fit: look from where the last search ended, then from the start.
        for (from, to) in [(self.cursor, self.pages.len()), (0, self.pages.len())] {
            let mut count = 0;
            for index in from..to {
                count = if self.pages[index].usage == PageUse::Free { count + 1 } else { 0 };
                if count > best_count {
                    (best, best_count) = (index + 1 - count, count);
                }
                if best_count >= wanted {
                    break;
                }
            }
            if best_count >= wanted {
                break;
            }
        }
        if best_count < wanted && !partial {
            return None;
        }
        let count = best_count.min(wanted);
        for page in &mut self.pages[best..best + count] {
            page.usage = usage;
            page.head = best as u32;
            page.carved = 0;
        }
        self.pages_free -= count;
        if usage == PageUse::Run {
            self.run_pages += count;
        }
        self.cursor = best + count;
        (count > 0).then_some((best, count))
    }

    /// The pages from one on are a slab, of which so many slots were handed out.
    pub fn keep_slab(&mut self, kind: Kind, first: usize, carved: u32) {
        self.keep(first, kind.slab_pages() as usize, PageUse::Slab(kind))
            .expect("slabs of books stand apart");
        self.pages[first].carved = carved;
    }

    /// The pages from one on hold a piece of a large value. `None`: they hold something else.
    pub fn keep_run(&mut self, first: usize, count: usize) -> Option<()> {
        self.keep(first, count, PageUse::Run)?;
        self.run_pages += count;
        Some(())
    }

    fn keep(&mut self, first: usize, count: usize, usage: PageUse) -> Option<()> {
        let pages = self.pages.get_mut(first..first + count)?;
        if pages.iter().any(|page| page.usage != PageUse::Free) {
            return None;
        }
        pages.fill(Page { usage, dirty: false, head: first as u32, carved: 0 });
        self.pages_free -= count;
        Some(())
    }

    /// Gives a run's pages back. Slabs never come back.
    pub fn give_back(&mut self, first: usize, count: usize) {
        for page in &mut self.pages[first..first + count] {
            debug_assert_eq!(page.usage, PageUse::Run);
            *page = Page { usage: PageUse::Free, dirty: true, head: 0, carved: 0 };
        }
        self.pages_free += count;
        self.run_pages -= count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_waste_at_most_a_sixteenth_where_64_pages_allow() {
        for index in 0..Kind::COUNT {
            let kind = Kind::from_index(index);
            let slab = kind.slab_pages() * PAGE_BYTES;
            assert!(slab >= kind.slot_bytes());
            if kind.is_item() && kind.slot_bytes() < 1 << 18 {
                assert!(slab % kind.slot_bytes() * 16 <= slab, "{kind:?}: slab of {slab}");
            }
        }
        assert_eq!(Kind::item(SizeClass::for_bytes(64).unwrap()).slab_pages(), 1);
        assert_eq!(Kind::directory(0), Kind::directory(12));
        assert_eq!(Kind::directory(13).slot_bytes(), 2 * PAGE_BYTES);
    }

    #[test]
    fn runs_come_back_and_slabs_stay() {
        let mut segment = Segment::new(0, 16 * PAGE_BYTES, 0);
        assert_eq!(segment.take(10, PageUse::Run, false), Some((0, 10)));
        assert_eq!(segment.take(10, PageUse::Run, false), None);
        assert_eq!(segment.take(10, PageUse::Run, true), Some((10, 6)));
        segment.give_back(0, 10);
        let slab = PageUse::Slab(Kind::SUBTABLE);
        assert_eq!(segment.take(4, slab, false), Some((0, 4)));
        assert!(segment.pages[0].dirty && segment.pages_free == 6);
        assert_eq!(segment.take(6, PageUse::Run, false), Some((4, 6)));
        assert_eq!(segment.take(1, PageUse::Run, true), None);
    }
}
