//! Whether an image's books are right: no slot leaks, none is used twice, and the counts are those of the
//! slots. For tests; it looks at all there is.

use std::collections::HashMap;

use kelix_types::Place;
use kelix_types::limits::{GRANULE_BYTES, PAGE_BYTES, PLACE_ALIGN};

use super::Image;
use super::slots::PLACE_MASK;
use crate::pages::{Kind, PageUse, SegmentState};

/// What an image's owner uses.
#[derive(Clone, Debug, Default)]
pub struct InUse {
    /// Slots, by kind and place.
    pub slots: Vec<(Kind, Place)>,
    /// Runs of large values: where they begin and how many bytes they hold.
    pub runs: Vec<(Place, u64)>,
}

/// Checks that hold or end with a sentence.
macro_rules! ensure {
    ($holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err(format!($($what)+));
        }
    };
}

impl Image {
    /// Checks that every slot that was ever handed out is in use or free, once, every page of a large value
    /// likewise, and that the counts agree. `Err`: what is wrong.
    pub fn audit(&self, used: &InUse) -> Result<(), String> {
        let slots = self.account_for_slots(used)?;
        let runs = self.account_for_runs(used)?;
        for (segment, state) in self.segments.iter().enumerate() {
            if state.state == SegmentState::Retired {
                continue;
            }
            let free = state.pages.iter().filter(|page| page.usage == PageUse::Free).count();
            let run = state.pages.iter().filter(|page| page.usage == PageUse::Run).count();
            ensure!(
                (free, run) == (state.pages_free, state.run_pages),
                "segment {segment} has {free} free pages and {run} of large values, and counts {} and {}",
                state.pages_free,
                state.run_pages
            );
            let known = runs.get(&segment).copied().unwrap_or_default();
            ensure!(run == known, "{} pages of large values leak in segment {segment}", run - known);
            for (page, state) in state.pages.iter().enumerate().filter(|(page, it)| it.head as usize == *page)
            {
                let PageUse::Slab(kind) = state.usage else { continue };
                let known = slots.get(&(segment, page)).copied().unwrap_or_default();
                ensure!(
                    known == state.carved as usize,
                    "of {} slots of {kind:?} in page {page} of segment {segment} {known} are in use or free",
                    state.carved
                );
            }
        }
        self.check_counts(used)?;
        self.check_kinds(used)
    }

    /// Counts the slots in use and the free ones by segment and first page of their slab.
    fn account_for_slots(&self, used: &InUse) -> Result<HashMap<(usize, usize), usize>, String> {
        let mut seen: HashMap<Place, &str> = HashMap::new();
        let mut slabs: HashMap<(usize, usize), usize> = HashMap::new();
        let used = used.slots.iter().map(|(kind, place)| (*kind, *place, "in use"));
        let place_of = |entry: u64| Place((entry & PLACE_MASK) * PLACE_ALIGN);
        let free = self.kinds.iter().enumerate().flat_map(|(index, state)| {
            let kind = Kind::from_index(index);
            let listed = state.free.iter().map(|entry| place_of(*entry));
            let unlisted = state.unlisted.iter().flat_map(move |slab| self.live.dead(kind, *slab));
            listed.chain(unlisted).map(move |place| (kind, place, "free"))
        });
        let free = free.chain(self.gaps.all().map(|place| (Kind::LEAF, place, "free")));
        let set_aside = self.evacuating.iter().flat_map(|evacuation| &evacuation.set_aside);
        let set_aside = set_aside.map(|(kind, entry)| (*kind, place_of(*entry), "set aside"));
        for (kind, place, state) in used.chain(free).chain(set_aside) {
            let (segment, page) = self.page_of(place);
            if self.segments[segment].state == SegmentState::Retired {
                ensure!(state != "in use", "{place:?} is in use in segment {segment}, which is gone");
                continue;
            }
            if let Some(other) = seen.insert(place, state) {
                return Err(format!("the slot at {place:?} is {other} and {state}"));
            }
            let pages = &self.segments[segment].pages;
            let head = pages[page].head as usize;
            let usage = pages[page].usage;
            ensure!(usage == PageUse::Slab(kind), "{place:?} is {state} as {kind:?} in a page of {usage:?}");
            let start =
                self.segments[segment].first_granule as u64 * GRANULE_BYTES + head as u64 * PAGE_BYTES;
            let aligned = (place.0 - start) % kind.slot_bytes() == 0;
            ensure!(aligned, "{place:?} is {state} as {kind:?} and begins inside a slot");
            *slabs.entry((segment, head)).or_default() += 1;
        }
        Ok(slabs)
    }

    /// Counts the pages of large values by segment.
    fn account_for_runs(&self, used: &InUse) -> Result<HashMap<usize, usize>, String> {
        let mut seen: HashMap<Place, &str> = HashMap::new();
        let mut pages: HashMap<usize, usize> = HashMap::new();
        let dead = self.runs_dead.iter().map(|(_, place, bytes)| (*place, *bytes, "in quarantine"));
        for (place, bytes, state) in
            used.runs.iter().map(|(place, bytes)| (*place, *bytes, "in use")).chain(dead)
        {
            for number in 0..bytes.div_ceil(PAGE_BYTES) {
                let place = place.plus(number * PAGE_BYTES);
                if let Some(other) = seen.insert(place, state) {
                    return Err(format!("the page at {place:?} is {other} and {state}"));
                }
                let (segment, page) = self.page_of(place);
                let usage = self.segments[segment].pages.get(page).map(|page| page.usage);
                ensure!(usage == Some(PageUse::Run), "{place:?} of a large value is a page of {usage:?}");
                *pages.entry(segment).or_default() += 1;
            }
        }
        Ok(pages)
    }

    fn check_counts(&self, used: &InUse) -> Result<(), String> {
        let mut live = vec![0; self.segments.len()];
        for (kind, place) in &used.slots {
            live[self.page_of(*place).0] += kind.slot_bytes();
        }
        for (place, bytes) in &used.runs {
            live[self.page_of(*place).0] += bytes.next_multiple_of(PAGE_BYTES);
        }
        for (segment, bytes) in live.iter().enumerate() {
            let counted = self.segments[segment].live_bytes;
            ensure!(*bytes == counted, "segment {segment} has {bytes} bytes in use and counts {counted}");
        }
        let (live, quarantined) =
            (live.iter().sum::<u64>(), self.dead.iter().map(|(_, bytes)| bytes).sum::<u64>());
        let counted = self.memory_use().live;
        ensure!(live == counted, "{live} bytes are in use, and {counted} are counted");
        ensure!(
            quarantined == self.use_.quarantined,
            "{quarantined} bytes are in quarantine, and {} are counted",
            self.use_.quarantined
        );
        let open = || self.segments.iter().filter(|segment| segment.state != SegmentState::Retired);
        let bytes: u64 = open().map(|segment| segment.bytes).sum();
        let taken: u64 = open().map(|segment| (segment.pages.len() - segment.pages_free) as u64).sum();
        ensure!(
            (bytes, taken * PAGE_BYTES) == (self.use_.segments, self.use_.pages),
            "segments of {bytes} bytes with {taken} pages taken are counted as {} and {} bytes",
            self.use_.segments,
            self.use_.pages
        );
        Ok(())
    }

    /// Checks what is counted by kind.
    fn check_kinds(&self, used: &InUse) -> Result<(), String> {
        let mut slots: HashMap<usize, u64> = HashMap::new();
        for (kind, _) in &used.slots {
            *slots.entry(kind.index()).or_default() += 1;
        }
        let mut slabs: HashMap<usize, u32> = HashMap::new();
        for (page, it) in self.segments.iter().flat_map(|segment| segment.pages.iter().enumerate()) {
            if let PageUse::Slab(kind) = it.usage {
                *slabs.entry(kind.index()).or_default() += u32::from(it.head as usize == page);
            }
        }
        for (index, state) in self.kinds.iter().enumerate() {
            let known = (slots.remove(&index).unwrap_or_default(), slabs.remove(&index).unwrap_or_default());
            let kind = Kind::from_index(index);
            let unlisted: usize = state.unlisted.iter().map(|slab| self.live.dead(kind, *slab).count()).sum();
            ensure!(
                unlisted == state.unlisted_slots,
                "of {kind:?} {unlisted} slots are not listed, and {} are counted",
                state.unlisted_slots
            );
            ensure!(
                known == (state.used, state.slabs),
                "of {kind:?} {known:?} slots and slabs are in use, and {:?} are counted",
                (state.used, state.slabs)
            );
        }
        Ok(())
    }
}
