//! Emptying a segment: which one, what leaves it, and when it is retired. It is the image's owner who moves
//! the objects.

use kelix_types::limits::{PAGE_BYTES, QUARANTINE_EPOCHS};
use kelix_types::{Place, mark};

use super::{Image, SegmentSummary, page_place};
use crate::changes::event;
use crate::pages::{Kind, PageUse, Segment, SegmentState};

/// A segment that is being emptied.
pub(super) struct Evacuation {
    pub(super) segment: usize,
    page: usize,
    /// Slabs of items leave now; those of the index, which nothing can take the place of, have.
    of_items: bool,
    /// Epoch at which the last object left.
    pub(super) emptied: Option<u64>,
    /// Epoch at which an object found no room for the first time.
    short: Option<u64>,
    /// Free slots of the segment, kept for the case that it is opened again.
    pub(super) set_aside: Vec<(Kind, u64)>,
    /// Segments that were added for the objects that leave.
    pub(super) lent: Vec<usize>,
}

/// Memory is wasted where slabs hold more than what is needed by this share of that, and by so many bytes:
/// less is in use again soon, or is not worth the work.
const WASTE_PERCENT: u64 = 12;
const WASTE_BYTES_MIN: u64 = 4 << 20;

impl Image {
    /// Whether a segment is being emptied.
    pub fn is_evacuating(&self) -> bool {
        self.evacuating.is_some()
    }

    /// The sparsest segment that is at most `share_percent` in use, unless one is being emptied. But not the
    /// newest: that is sparse because it is being filled.
    pub fn sparsest(&self, share_percent: u64) -> Option<SegmentSummary> {
        if self.evacuating.is_some() {
            return None;
        }
        let newest = self.segments.len() - 1;
        let candidates = self.candidates(share_percent).filter(|(index, _)| *index != newest);
        let sparsest = candidates.min_by_key(|(_, segment)| segment.live_bytes * 1000 / segment.bytes);
        sparsest.map(|(_, segment)| segment.summary())
    }

    /// Whether slabs hold much that is neither in use, nor in quarantine or about to be, nor what is left of
    /// the slab of each kind that is being filled, nor what stays open between leaves.
    pub fn is_wasteful(&self) -> bool {
        let filled: u64 = self.kind_uses().map(|of| of.kind.slab_pages() * PAGE_BYTES).sum();
        let open = self.leaves_open() * Kind::LEAF.slot_bytes();
        let needed = self.memory_use().live + self.quarantined_lately + filled + open;
        let waste = self.use_.pages.saturating_sub(needed);
        waste * 100 > needed * WASTE_PERCENT && waste > WASTE_BYTES_MIN
    }

    /// Begins to empty a segment for the sake of a write that just found no room, and that found none first
    /// when [`Image::openings`] was `openings`: the one that gives back most, of those that are open since
    /// and at most `share_percent` in use, if all of them together give back what is missing. Returns whether
    /// there is one.
    ///
    /// With one value of `openings` this returns `true` at most as often as there are segments: one that was
    /// chosen is retired or opened anew.
    pub fn begin_evacuation_for_write(&mut self, share_percent: u64, openings: u64) -> bool {
        let candidates = || self.candidates(share_percent).filter(|(_, segment)| segment.opened <= openings);
        let gain: u64 = candidates().map(|(_, segment)| segment.gain()).sum();
        let best = candidates().max_by_key(|(_, segment)| segment.gain());
        let chosen = best.filter(|_| gain >= self.missing).map(|(index, _)| index);
        self.empty(chosen)
    }

    /// Begins to empty a segment, however full it is. Whoever calls this chose one whose objects can move, or
    /// lets them go.
    pub fn begin_to_empty(&mut self, first_granule: usize) -> bool {
        let chosen = self.granules.get(first_granule).map(|segment| *segment as usize);
        let is_open = |segment: &usize| self.segments[*segment].state == SegmentState::Open;
        self.empty(chosen.filter(is_open))
    }

    /// The segments that can be emptied if their items go, how many bytes are in use there, and those of
    /// pages that are free.
    pub fn clearable(&self) -> impl Iterator<Item = (SegmentSummary, u64, u64)> {
        let open = |segment: &&Segment| segment.state == SegmentState::Open && segment.run_pages == 0;
        let free = |segment: &Segment| segment.pages_free as u64 * PAGE_BYTES;
        self.segments
            .iter()
            .filter(open)
            .map(move |segment| (segment.summary(), segment.live_bytes, free(segment)))
    }

    /// Segments worth emptying: at most `share_percent` in use, without pieces of large values (their pages
    /// serve any purpose once they are free, so they hold nothing up), and their objects find room elsewhere.
    fn candidates(&self, share_percent: u64) -> impl Iterator<Item = (usize, &Segment)> {
        let open = || self.segments.iter().enumerate().filter(|(_, s)| s.state == SegmentState::Open);
        let free: u64 = open().map(|(_, segment)| segment.bytes - segment.live_bytes).sum();
        let room = free + self.config.memory_bytes.saturating_sub(self.use_.segments);
        open().filter(move |(_, segment)| {
            segment.live_bytes * 100 <= segment.bytes * share_percent
                && segment.live_bytes * 2 + segment.bytes <= room
                && segment.run_pages == 0
        })
    }

    fn empty(&mut self, chosen: Option<usize>) -> bool {
        let (None, Some(segment)) = (&self.evacuating, chosen) else { return false };
        self.segments[segment].state = SegmentState::Evacuating;
        self.evacuating = Some(Evacuation {
            segment,
            page: 0,
            of_items: false,
            emptied: None,
            short: None,
            set_aside: vec![],
            lent: vec![],
        });
        true
    }

    /// Whether the segment that is being emptied is empty, and only its quarantine is to be waited for.
    pub fn is_emptied(&self) -> bool {
        self.evacuating.as_ref().is_some_and(|evacuation| evacuation.emptied.is_some())
    }

    /// Says that what is allocated from now on, or from now on no more, are new places for objects of the
    /// segment that is being emptied.
    pub fn set_moving(&mut self, moving: bool) {
        self.moving = moving;
    }

    /// Whether an object that must leave and finds no room is to wait. It waits for what was in quarantine
    /// when that happened first, and for nothing else, so that an emptying ends however much others write.
    pub fn evacuation_waits(&mut self) -> bool {
        let (epoch, quarantined) = (self.epoch, self.use_.quarantined);
        let Some(evacuation) = &mut self.evacuating else { return false };
        quarantined > 0 && epoch < *evacuation.short.get_or_insert(epoch) + QUARANTINE_EPOCHS
    }

    /// Whether a place stands in the segment that is being emptied.
    pub fn is_leaving(&self, place: Place) -> bool {
        self.evacuating
            .as_ref()
            .is_some_and(|evacuation| self.granules[place.granule()] as usize == evacuation.segment)
    }

    /// The next slab of the segment that is being emptied: its kind, its first slot, and how many slots of it
    /// were ever used. `None` once all were returned, those of the index first. The caller moves what is live
    /// in it.
    pub fn next_leaving_slab(&mut self) -> Option<(Kind, Place, usize)> {
        let evacuation = self.evacuating.as_mut()?;
        let segment = &self.segments[evacuation.segment];
        loop {
            while evacuation.page < segment.pages.len() {
                let page = evacuation.page;
                evacuation.page += 1;
                let PageUse::Slab(kind) = segment.pages[page].usage else { continue };
                if segment.pages[page].head as usize == page && kind.is_item() == evacuation.of_items {
                    return Some((kind, page_place(segment, page), segment.pages[page].carved as usize));
                }
            }
            if std::mem::replace(&mut evacuation.of_items, true) {
                return None;
            }
            evacuation.page = 0;
        }
    }

    /// To be called once [`Image::next_leaving_slab`] has no more: if the segment is empty it will be retired
    /// after the quarantine; otherwise (large values stand in it, or their upload is under way) it is opened
    /// again.
    pub fn finish_evacuation(&mut self) -> bool {
        let Some(evacuation) = self.evacuating.as_mut() else { return false };
        if evacuation.emptied.is_some() {
            return true;
        }
        if self.segments[evacuation.segment].live_bytes == 0 {
            evacuation.emptied = Some(self.epoch);
            return true;
        }
        self.abandon_evacuation();
        false
    }

    /// Gives up emptying because the objects find no room.
    pub fn abandon_evacuation(&mut self) {
        if let Some(evacuation) = self.evacuating.take() {
            mark!("emptying of a segment given up");
            self.openings += 1;
            self.segments[evacuation.segment].state = SegmentState::Open;
            self.segments[evacuation.segment].opened = self.openings;
            for (kind, entry) in evacuation.set_aside {
                self.kinds[kind.index()].free.push_back(entry);
            }
        }
    }

    pub(super) fn retire(&mut self) {
        mark!("segment retired");
        let evacuation = self.evacuating.take().expect("an evacuation");
        let segment = &mut self.segments[evacuation.segment];
        segment.state = SegmentState::Retired;
        let used = segment.pages.len() - segment.pages_free;
        let (first, bytes) = (segment.first_granule, segment.bytes);
        for (index, page) in std::mem::take(&mut segment.pages).iter().enumerate() {
            if let PageUse::Slab(kind) = page.usage {
                self.kinds[kind.index()].slabs -= u32::from(page.head as usize == index);
            }
        }
        self.gaps.forget(&segment.places());
        self.use_.pages -= used as u64 * PAGE_BYTES;
        self.use_.segments -= bytes;
        self.use_.segments_retired += 1;
        self.map.remove(first);
        // Whoever sees the new version finds the new list.
        self.source.retired(first);
        self.header.note_retired(first);
        self.journal.event(event::RETIRED, &[first as u64]);
        self.bump_segments_version();
    }
}
