//! Slots and runs: what is given out, and what is taken back.
//!
//! Free slots of a kind form one queue. A dead slot enters it at the back with the epoch of its death and
//! leaves at the front once its quarantine has passed, so that quarantine and free list are the same thing
//! and reuse costs one comparison. Fresh memory is used before anyone waits for the quarantine. Slots of
//! leaves go from the queue to where they are found by place, in `gaps`.
//!
//! An image that goes on with another one's memory knows which slots live, and puts those that do not into
//! the queues slab by slab, when a slot is wanted: beginning takes no longer for it.

use std::collections::VecDeque;

use kelix_types::limits::{self, PAGE_BYTES, QUARANTINE_EPOCHS};
use kelix_types::{Guardian, Location, Place, SizeClass, mark};

use super::{Image, NoRoom, page_place};
use crate::changes::event;
use crate::pages::{Kind, PageUse, SegmentState};
use crate::stock::Live;

/// What is known of the slots of a kind.
pub(super) struct KindState {
    /// Dead slots, oldest first: place / 16 in the low 40 bits, the low 24 bits of the epoch above.
    pub(super) free: VecDeque<u64>,
    /// Slabs with free slots that are not among these yet, as `Image::live` has them, and how many there are.
    pub(super) unlisted: Vec<Place>,
    pub(super) unlisted_slots: usize,
    pub(super) fresh: Place,
    pub(super) fresh_slots: u32,
    /// Slabs in segments that are not retired.
    pub(super) slabs: u32,
    /// Slots in use.
    pub(super) used: u64,
}

/// Where in an entry of a free list the epoch stands.
pub(super) const STAMP_SHIFT: u32 = 40;
pub(super) const PLACE_MASK: u64 = (1 << STAMP_SHIFT) - 1;

impl Image {
    /// A slot for an item of `bytes` bytes.
    #[inline]
    pub fn allocate_item(&mut self, bytes: usize) -> std::result::Result<Location, NoRoom> {
        let Some(class) = SizeClass::for_bytes(bytes) else { return Err(NoRoom { wait: false }) };
        Ok(Location::new(self.allocate(Kind::item(class))?, class))
    }

    /// A slot of a kind other than leaves. Its words may hold anything a dead object left, but its guardian
    /// is not live.
    #[inline]
    pub fn allocate(&mut self, kind: Kind) -> std::result::Result<Place, NoRoom> {
        debug_assert!(kind != Kind::LEAF);
        let place = match self.reuse(kind) {
            Some(place) => place,
            None => self.carve(kind)?,
        };
        self.count_slot(kind, place, 1);
        Ok(place)
    }

    /// The oldest dead slot whose quarantine has passed.
    #[inline]
    pub(super) fn reuse(&mut self, kind: Kind) -> Option<Place> {
        let place = self.ripe(kind)?;
        self.kinds[kind.index()].free.pop_front();
        debug_assert!(!kind.is_item() || !Guardian(self.words(place, 1).load(0)).is_live());
        Some(place)
    }

    /// The same, but it is not taken.
    #[inline]
    fn ripe(&mut self, kind: Kind) -> Option<Place> {
        loop {
            let Some(entry) = self.kinds[kind.index()].free.front().copied() else {
                self.list_slab(kind)?;
                continue;
            };
            let place = Place((entry & PLACE_MASK) * limits::PLACE_ALIGN);
            let segment = self.granules[place.granule()] as usize;
            if self.segments[segment].state != SegmentState::Open {
                self.kinds[kind.index()].free.pop_front();
                if let Some(evacuation) = self.evacuating.as_mut().filter(|e| e.segment == segment) {
                    evacuation.set_aside.push((kind, entry));
                }
                continue;
            }
            // Stamps are 24 bits wide, and one that has lain for a whole turn looks young. It waits a little
            // longer, unless nothing at all is in quarantine: the epoch would stand still then.
            let age = self.epoch.wrapping_sub(entry >> STAMP_SHIFT) & 0xff_ffff;
            if age < QUARANTINE_EPOCHS && !self.dead.is_empty() {
                self.list_slab(kind)?;
                continue;
            }
            if age == QUARANTINE_EPOCHS {
                mark!("memory reused as soon as its quarantine was over");
            }
            return Some(place);
        }
    }

    /// Puts the free slots of a slab where those are that are handed out next. None: there is no such slab.
    #[cold]
    fn list_slab(&mut self, kind: Kind) -> Option<()> {
        // Nobody can be reading what was free before this image was read.
        let ripe = self.epoch.wrapping_sub(QUARANTINE_EPOCHS) << STAMP_SHIFT;
        let state = &mut self.kinds[kind.index()];
        let slab = state.unlisted.pop()?;
        for place in self.live.dead(kind, slab) {
            state.free.push_front((place.0 / limits::PLACE_ALIGN) | ripe);
            state.unlisted_slots -= 1;
        }
        if self.kinds.iter().all(|state| state.unlisted.is_empty()) {
            self.live = Live::default();
        }
        Some(())
    }

    /// Prefetches the `ahead`-th slot that will be handed out for an item of `bytes` bytes, for writing.
    #[inline]
    pub fn prefetch_free(&self, bytes: usize, ahead: usize) {
        let Some(class) = SizeClass::for_bytes(bytes) else { return };
        let state = &self.kinds[Kind::item(class).index()];
        let place = match state.free.get(ahead) {
            Some(entry) => Place((entry & PLACE_MASK) * limits::PLACE_ALIGN),
            None => state.fresh.plus((ahead * class.bytes()) as u64),
        };
        if let Some(words) = self.map.words(place, class.words()) {
            words.prefetch_write(class.words());
        }
    }

    /// The next slot of the kind's newest slab, taking a new slab when it is used up.
    fn carve(&mut self, kind: Kind) -> std::result::Result<Place, NoRoom> {
        if !self.has_fresh(kind) {
            self.set_fresh_aside(kind);
            let first = self.take_slab(kind)?;
            let state = &mut self.kinds[kind.index()];
            (state.fresh, state.fresh_slots) = (first, kind.slots() as u32);
        }
        let state = &mut self.kinds[kind.index()];
        let place = state.fresh;
        state.fresh = place.plus(kind.slot_bytes());
        state.fresh_slots -= 1;
        let (segment, page) = self.page_of(place);
        let head = self.segments[segment].pages[page].head as usize;
        self.segments[segment].pages[head].carved += 1;
        Ok(place)
    }

    /// Pages for another slab.
    pub(super) fn take_slab(&mut self, kind: Kind) -> std::result::Result<Place, NoRoom> {
        let pages = kind.slab_pages() as usize;
        let (segment, page, _) = self.take_pages(pages, PageUse::Slab(kind), false)?;
        self.clear_dirty(segment, page, pages);
        let first = page_place(&self.segments[segment], page);
        self.journal.event(event::SLAB, &[first.0, kind.index() as u64]);
        self.kinds[kind.index()].slabs += 1;
        Ok(first)
    }

    /// The rest of a slab in a segment being emptied is free memory again if the segment is opened again.
    fn set_fresh_aside(&mut self, kind: Kind) {
        let state = &mut self.kinds[kind.index()];
        let (count, first) = (std::mem::take(&mut state.fresh_slots), state.fresh);
        // Where none is left, what comes behind the last one may be behind all memory.
        let Some(evacuation) = self.evacuating.as_mut().filter(|_| count > 0) else { return };
        let segment = self.granules[first.granule()] as usize;
        if segment != evacuation.segment {
            return;
        }
        let places = (0..count).map(|slot| first.plus(u64::from(slot) * kind.slot_bytes()));
        evacuation.set_aside.extend(places.map(|place| (kind, place.0 / limits::PLACE_ALIGN)));
        // They count as used from now on, so that whatever stands there later is found when the segment is
        // emptied again.
        let (_, page) = self.page_of(first);
        let head = self.segments[segment].pages[page].head as usize;
        self.segments[segment].pages[head].carved += count;
    }

    #[inline]
    pub(super) fn count_slot(&mut self, kind: Kind, place: Place, slots: i64) {
        let used = &mut self.kinds[kind.index()].used;
        *used = used.wrapping_add_signed(slots);
        self.count(place, slots * kind.slot_bytes() as i64);
    }

    pub(super) fn count_run(&mut self, place: Place, bytes: i64) {
        self.use_.runs = self.use_.runs.wrapping_add_signed(bytes);
        self.count(place, bytes);
    }

    /// Takes back a slot whose object is dead and which no live word names any more. It is reused after its
    /// quarantine.
    #[inline]
    pub fn release(&mut self, kind: Kind, place: Place) {
        debug_assert!(!kind.is_item() || !Guardian(self.words(place, 1).load(0)).is_live());
        self.count_slot(kind, place, -1);
        self.mark_dead(kind.slot_bytes());
        let entry = (place.0 / limits::PLACE_ALIGN) | (self.epoch << STAMP_SHIFT);
        match &mut self.evacuating {
            // It is of use only if the segment is opened again.
            Some(evacuation) if self.granules[place.granule()] as usize == evacuation.segment => {
                evacuation.set_aside.push((kind, entry));
            }
            _ => self.kinds[kind.index()].free.push_back(entry),
        }
    }

    /// Takes back the slot of an item that no word ever named.
    pub fn discard_item(&mut self, location: Location) {
        self.discard(Kind::item(location.class()), location.place());
    }

    /// Takes back a slot that no word ever named, so that nobody can be reading it: it is the next to be
    /// handed out again.
    pub fn discard(&mut self, kind: Kind, place: Place) {
        debug_assert!(!Guardian(self.words(place, 1).load(0)).is_live());
        self.count_slot(kind, place, -1);
        let ripe = self.epoch.wrapping_sub(QUARANTINE_EPOCHS);
        let entry = (place.0 / limits::PLACE_ALIGN) | (ripe << STAMP_SHIFT);
        self.kinds[kind.index()].free.push_front(entry);
    }

    /// Takes back the slot of an item.
    #[inline]
    pub fn release_item(&mut self, location: Location) {
        self.release(Kind::item(location.class()), location.place());
    }

    /// Pages for up to `bytes` bytes of a large value, fewer when no row of pages is that long. Returns the
    /// place and the bytes it holds.
    pub fn allocate_run(&mut self, bytes: u64) -> std::result::Result<(Place, u64), NoRoom> {
        let wanted = bytes.div_ceil(PAGE_BYTES) as usize;
        let (segment, page, taken) = self.take_pages(wanted, PageUse::Run, true)?;
        let place = page_place(&self.segments[segment], page);
        let held = taken as u64 * PAGE_BYTES;
        self.count_run(place, held as i64);
        Ok((place, held.min(bytes)))
    }

    /// Takes back a run that no object ever named: nobody can be reading it.
    pub fn discard_run(&mut self, place: Place, bytes: u64) {
        let held = bytes.next_multiple_of(PAGE_BYTES);
        self.count_run(place, -(held as i64));
        self.give_back(place, held);
    }

    pub(super) fn give_back(&mut self, place: Place, held: u64) {
        let (segment, page) = self.page_of(place);
        self.segments[segment].give_back(page, (held / PAGE_BYTES) as usize);
        self.use_.pages -= held;
    }

    /// Takes back a run whose value is dead.
    pub fn release_run(&mut self, place: Place, bytes: u64) {
        mark!("large value's memory released");
        let held = bytes.next_multiple_of(PAGE_BYTES);
        self.count_run(place, -(held as i64));
        self.mark_dead(held);
        self.runs_dead.push_back((self.epoch, place, held));
    }

    /// The slab of a slot that this image handed out: its first slot, and how many there are.
    pub fn slab_of(&self, place: Place) -> (Place, usize) {
        let (segment, page) = self.page_of(place);
        let segment = &self.segments[segment];
        let head = segment.pages[page].head as usize;
        let PageUse::Slab(kind) = segment.pages[head].usage else { panic!("a place in a slab") };
        let slots = kind.slab_pages() * PAGE_BYTES / kind.slot_bytes();
        (page_place(segment, head), slots as usize)
    }

    /// How many slots of a kind other than leaves there are that nothing uses, and no pages are needed for:
    /// some may be in quarantine.
    #[inline]
    pub fn spare(&self, kind: Kind) -> usize {
        let state = &self.kinds[kind.index()];
        let fresh = if self.has_fresh(kind) { state.fresh_slots as usize } else { 0 };
        state.free.len() + state.unlisted_slots + fresh
    }

    /// Whether a slot of a kind other than leaves can be had at once, without pages.
    pub fn has_slot(&mut self, kind: Kind) -> bool {
        self.has_fresh(kind) || self.ripe(kind).is_some()
    }

    /// Whether the newest slab of a kind is not used up, and slots may be taken there.
    fn has_fresh(&self, kind: Kind) -> bool {
        let state = &self.kinds[kind.index()];
        state.fresh_slots > 0
            && self.segments[self.granules[state.fresh.granule()] as usize].state == SegmentState::Open
    }
}
