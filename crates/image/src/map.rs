//! Spans of memory and the table that finds them by place.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use kelix_types::limits::{GRANULE_BYTES, GRANULES_MAX};
use kelix_types::{Guardian, KeyHash, Location, Place, TableId};

use crate::words::Words;

/// Bytes of a cache line.
const LINE: usize = 64;

/// A stretch of mapped memory and whatever keeps it mapped.
#[derive(Clone)]
pub struct Span {
    base: *const u64,
    bytes: u64,
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: a span only hands out `Words`, which may be used from any thread, and its owner is Send + Sync.
unsafe impl Send for Span {}
// SAFETY: as above.
unsafe impl Sync for Span {}

impl Span {
    /// A span of `bytes` bytes at `base`, kept mapped by `owner`.
    ///
    /// # Safety
    /// 1. `base` is aligned to 16 bytes and `bytes` bytes from it stay mapped until `owner` is dropped.
    /// 2. The memory is accessed only through [`Words`], system calls, another process or a device.
    /// 3. If the memory is mapped read-only, no storing method is called on its words.
    pub unsafe fn new(base: *const u64, bytes: u64, owner: Arc<dyn Any + Send + Sync>) -> Span {
        assert!(base.addr() % 16 == 0);
        Span { base, bytes, _owner: owner }
    }

    /// Zeroed private memory, for mailboxes, tests, tools and the simulator.
    pub fn private(bytes: u64) -> Span {
        Span::try_private(bytes).unwrap_or_else(|| panic!("no memory for a span of {bytes} bytes"))
    }

    /// The same, or `None` where there is no memory for it. Pages of it are the system's until something is
    /// stored there.
    pub fn try_private(bytes: u64) -> Option<Span> {
        let memory = Zeroed::new(bytes)?;
        // Aligned to a cache line by hand, since the allocator clears memory of any larger alignment than its
        // own itself.
        let base = memory.base.as_ptr().wrapping_byte_add(memory.base.addr().get().wrapping_neg() % LINE);
        // SAFETY: so many bytes are left from there on. The memory never moves, and lives in the owner, where
        // nothing else reaches it.
        Some(unsafe { Span::new(base, bytes, Arc::new(memory)) })
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// So many of its bytes, from one on that is aligned to 16 bytes.
    pub fn part(&self, first: u64, bytes: u64) -> Span {
        let end = first.checked_add(bytes);
        assert!(first % 16 == 0 && end.is_some_and(|end| end <= self.bytes), "a part beyond a span");
        let base = self.base.wrapping_byte_add(first as usize);
        // SAFETY: those bytes are in this span, whose owner keeps them mapped and is held by the part, too.
        unsafe { Span::new(base, bytes, self._owner.clone()) }
    }

    /// One of its words.
    pub fn word(&self, index: usize) -> SharedWord {
        SharedWord { at: self.words().part(index, 1).as_ptr(), _span: self.clone() }
    }

    /// The whole span.
    #[inline]
    pub fn words(&self) -> Words<'_> {
        // SAFETY: mapped for as long as `self` holds the owner, by the promise of `new`.
        unsafe { Words::new(self.base, (self.bytes / 8) as usize) }
    }
}

/// Zeroed memory of the allocator's, which has the system's zeros for it: nobody writes them, and its null is
/// the answer where there is no memory. A look beforehand whether there is some would leave it in the
/// allocator, to be given out again and to be cleared by hand.
struct Zeroed {
    base: NonNull<u64>,
    layout: Layout,
}

// SAFETY: it only holds the memory; whoever reaches it does so through a span's `Words`.
unsafe impl Send for Zeroed {}
// SAFETY: as above.
unsafe impl Sync for Zeroed {}

impl Zeroed {
    /// So many bytes, and as many more as it takes to align them.
    fn new(bytes: u64) -> Option<Zeroed> {
        let bytes = usize::try_from(bytes).ok()?.checked_add(LINE)?;
        let layout = Layout::from_size_align(bytes, align_of::<u64>()).ok()?;
        // SAFETY: the layout is not empty.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }.cast())?;
        Some(Zeroed { base, layout })
    }
}

impl Drop for Zeroed {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and nobody has it any more.
        unsafe { dealloc(self.base.as_ptr().cast(), self.layout) }
    }
}

/// Whether the system would give memory for so many words just now. For whoever is to refuse something, and
/// not end, where it does not; another thread may take it meanwhile.
pub fn has_memory(words: usize) -> bool {
    let mut memory = Vec::<u64>::new();
    let given = memory.try_reserve_exact(words).is_ok();
    // The compiler may leave out what nobody looks at.
    std::hint::black_box(&mut memory);
    given
}

/// One word of a span, for those who look at it over and over.
#[derive(Clone)]
pub struct SharedWord {
    at: *const u64,
    _span: Span,
}

// SAFETY: as for a span, which it holds.
unsafe impl Send for SharedWord {}
// SAFETY: as above.
unsafe impl Sync for SharedWord {}

impl SharedWord {
    /// The word, as a view of one.
    #[inline(always)]
    pub fn words(&self) -> Words<'_> {
        // SAFETY: inside the span, by the check of `Span::word`, and mapped for as long as it is held here.
        unsafe { Words::new(self.at, 1) }
    }
}

/// Finds memory by place. The writer has one, and so has each reader, over its own mappings.
///
/// Granule 0 holds the header page alone, so a reader reaches it like any other memory, and no object stands
/// at place 0. Space is given out in granules of 64 MiB, so finding a place is one look into a small table:
/// the entry has the address of the granule and how many bytes from its start belong to the same segment.
#[derive(Clone, Default)]
pub struct MemoryMap {
    granules: Vec<Granule>,
    spans: Vec<(usize, Span)>,
}

#[derive(Clone, Copy)]
struct Granule {
    base: *const u64,
    bytes: u64,
}

const EMPTY: Granule = Granule { base: std::ptr::null(), bytes: 0 };

// SAFETY: the pointers are those of the spans held beside them, which are Send + Sync.
unsafe impl Send for MemoryMap {}
// SAFETY: as above.
unsafe impl Sync for MemoryMap {}

impl MemoryMap {
    /// Adds a segment that begins at granule `first`.
    pub fn add(&mut self, first: usize, span: Span) {
        let count = span.bytes.div_ceil(GRANULE_BYTES) as usize;
        if self.granules.len() < first + count {
            self.granules.resize(first + count, EMPTY);
        }
        for index in 0..count {
            let offset = index as u64 * GRANULE_BYTES;
            assert!(self.granules[first + index].bytes == 0, "two segments in one granule");
            // SAFETY: `offset` is less than the span's length, so the pointer stays inside it.
            let base = unsafe { span.base.byte_add(offset as usize) };
            self.granules[first + index] = Granule { base, bytes: span.bytes - offset };
        }
        self.spans.push((first, span));
    }

    /// Whether a segment of so many bytes may be added at granule `first`: it lies within what places can
    /// name, and no other is there. For those who have the numbers from elsewhere.
    pub fn has_room(&self, first: usize, bytes: u64) -> bool {
        let count = bytes.div_ceil(GRANULE_BYTES);
        let within = (first as u64).checked_add(count).is_some_and(|end| end <= GRANULES_MAX as u64);
        let empty = |index: usize| self.granules.get(index).is_none_or(|granule| granule.bytes == 0);
        within && count > 0 && (first..first + count as usize).all(empty)
    }

    /// Forgets the segment that begins at granule `first`; its memory goes when nobody else holds it.
    pub fn remove(&mut self, first: usize) {
        if let Some(index) = self.spans.iter().position(|(start, _)| *start == first) {
            let (_, span) = self.spans.swap_remove(index);
            let count = span.bytes.div_ceil(GRANULE_BYTES) as usize;
            self.granules[first..first + count].fill(EMPTY);
        }
    }

    /// Whether a segment begins at granule `first`.
    pub fn has(&self, first: usize) -> bool {
        self.spans.iter().any(|(start, _)| *start == first)
    }

    /// The first granules of all segments.
    pub fn firsts(&self) -> Vec<usize> {
        self.spans.iter().map(|(first, _)| *first).collect()
    }

    /// `bytes` bytes at `place`, for those who go on with them when the map is another one. `None` when they
    /// are not (or no longer) mapped here.
    pub fn span(&self, place: Place, bytes: u64) -> Option<Span> {
        let words = self.words(place, usize::try_from(bytes / 8).ok()?)?;
        let granule = place.granule();
        let (_, span) =
            self.spans.iter().filter(|(first, _)| *first <= granule).max_by_key(|(first, _)| *first)?;
        // SAFETY: the words lie in the segment that begins last before them, by the check of the map, and the
        // segment stays mapped for as long as its owner is held. Who maps it read-only calls no storing
        // method.
        Some(unsafe { Span::new(words.as_ptr(), bytes, span._owner.clone()) })
    }

    /// `count` words at `place`, or `None` when they are not (or no longer) mapped here. A place may come
    /// from anywhere: this is the one bounds check between a pointer and memory.
    #[inline(always)]
    pub fn words(&self, place: Place, count: usize) -> Option<Words<'_>> {
        self.view().words(place, count)
    }

    /// The map as a value that fits registers, for the few lines that read several places in a row.
    #[inline(always)]
    pub fn view(&self) -> MapView<'_> {
        MapView { granules: &self.granules }
    }
}

/// How to look a key up, for whoever has an index mapped and does not know how indexes are made.
#[derive(Clone, Copy, Debug)]
pub struct IndexReader {
    /// Offers the slots in which the item of a key may stand, until one is taken; else says what the index
    /// does.
    pub find: fn(&MemoryMap, Wanted<'_>, &mut Take<'_>) -> Finding,
    /// Has the processor bring near what leads to some keys, and their items.
    pub bring_near: fn(&MemoryMap, &[Wanted<'_>]),
}

/// Is offered a slot, and where that stands, and says whether the item is taken.
pub type Take<'t> = dyn FnMut(Location, Words<'_>) -> bool + 't;

/// A key that is looked for: its hash, its table, and the key.
pub type Wanted<'k> = (KeyHash, TableId, &'k [u8]);

impl IndexReader {
    /// Of memory without an index.
    pub const NONE: IndexReader = IndexReader { find: |_, _, _| Finding::Nothing, bring_near: |_, _| {} };
}

/// What an index says of a key for which it names no item, if that was in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finding {
    /// Nothing.
    Nothing,
    /// The key is in no hash table.
    Absent,
    /// What the key's leaf says, which has this guardian: the value, if the key is there.
    Leaf(Guardian, Option<u64>),
}

/// A borrowed [`MemoryMap`].
#[derive(Clone, Copy)]
pub struct MapView<'a> {
    granules: &'a [Granule],
}

impl<'a> MapView<'a> {
    /// See [`MemoryMap::words`].
    #[inline(always)]
    pub fn words(self, place: Place, count: usize) -> Option<Words<'a>> {
        let granule = self.granules.get(place.granule())?;
        let offset = place.in_granule();
        if offset + (count as u64) * 8 > granule.bytes || offset % 8 != 0 {
            return None;
        }
        // SAFETY: inside the segment by the check, and the segment's span is held by the map that is
        // borrowed.
        Some(unsafe { Words::new(granule.base.byte_add(offset as usize), count) })
    }

    /// All words from `place` to the end of its segment.
    #[inline(always)]
    pub fn words_from(self, place: Place) -> Option<Words<'a>> {
        let granule = self.granules.get(place.granule())?;
        let offset = place.in_granule();
        if offset >= granule.bytes || offset % 8 != 0 {
            return None;
        }
        let count = (granule.bytes - offset) / 8;
        // SAFETY: as in `words`.
        Some(unsafe { Words::new(granule.base.byte_add(offset as usize), count as usize) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_where_places_lead_and_nothing_is() {
        let mut map = MemoryMap::default();
        map.add(2, Span::private(2 * GRANULE_BYTES));
        for (first, bytes, room) in [
            (1, GRANULE_BYTES, true),
            (1, GRANULE_BYTES + 8, false),
            (3, 8, false),
            (4, 8, true),
            (4, 0, false),
            (4, u64::MAX, false),
            (GRANULES_MAX - 1, GRANULE_BYTES, true),
            (GRANULES_MAX - 1, GRANULE_BYTES + 8, false),
            (usize::MAX, 8, false),
        ] {
            assert_eq!(map.has_room(first, bytes), room, "{bytes} bytes at {first}");
        }
    }

    #[test]
    fn private_memory_is_zero_and_aligned_and_may_be_refused() {
        for bytes in [0, 8, 4096, 1 << 20] {
            let span = Span::try_private(bytes).unwrap();
            assert_eq!((span.bytes(), span.base.addr() % LINE), (bytes, 0));
            assert!((0..bytes as usize / 8).all(|word| span.words().load(word) == 0));
        }
        assert!(Span::try_private(u64::MAX).is_none() && Span::try_private(1 << 62).is_none());
    }

    #[test]
    fn places_resolve_inside_segments_only() {
        let mut map = MemoryMap::default();
        map.add(2, Span::private(4096));
        let start = Place(2 * GRANULE_BYTES);
        map.words(start, 512).unwrap().store(511, 7);
        assert_eq!(map.words(start.plus(4088), 1).unwrap().load(0), 7);
        assert!(map.words(start.plus(4088), 2).is_none());
        assert!(map.words(start.plus(4), 1).is_none());
        assert!(map.words(Place(0), 1).is_none());
        assert!(map.words(Place(9 * GRANULE_BYTES), 1).is_none());
        map.remove(2);
        assert!(map.words(start, 1).is_none() && !map.has(2));
    }
}
