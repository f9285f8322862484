//! The writer's side of an image: its segments and their pages, names of objects, and what readers see of it.
//! What stands in the pages is given out and taken back by `slots`, held back by `quarantine`, and moved away
//! by `evacuation`.
//!
//! Invariants:
//! 1. A slot is handed out only if it was never used, or its death is two published epochs ago
//!    (asserted in `Image::reuse`).
//! 2. A slot in an evacuating or retired segment is never handed out (`Image::reuse`).
//! 3. The epoch steps only while something waits for it, and never twice within L (`Image::advance_epoch`).

use std::collections::VecDeque;

use kelix_types::limits::{self, GRANULE_BYTES, PAGE_BYTES};
use kelix_types::{Error, ErrorKind, Guardian, Incarnation, Location, Place, Result};

use crate::changes::{Changes, Journal, event};
use crate::header::{Header, ImageState, header_word};
use crate::map::{MemoryMap, Span};
use crate::pages::{Kind, PageUse, Segment, SegmentState};
use crate::segments::SegmentSource;
use crate::stock::Live;
use crate::watermark::{Committed, Watermark};
use crate::words::Words;

mod audit;
mod evacuation;
mod gaps;
mod mirror;
mod quarantine;
mod restore;
mod slots;
#[cfg(test)]
mod tests;

pub use audit::InUse;
use evacuation::Evacuation;
use gaps::Gaps;
pub(crate) use restore::Slab;
pub use restore::{Books, SegmentBooks};
use slots::KindState;

/// How an image is made.
#[derive(Clone, Copy, Debug)]
pub struct ImageConfig {
    /// A random number that tells it from every other image.
    pub image_id: u64,
    /// Seed of the key hash; equal for all shards of a namespace, so that a client hashes once.
    pub hash_seed: u64,
    /// Term of the server.
    pub term: u64,
    /// Its objects' incarnations count up from here. No other image of the store's, before or after it or
    /// elsewhere, gives any of them.
    pub incarnation: Incarnation,
    /// L of the read rule, the shortest time between two epochs, in nanoseconds.
    pub epoch_ns: u64,
    /// The usual time between them: while there is no hurry.
    pub epoch_ns_usual: u64,
    /// Most bytes of all segments together.
    pub memory_bytes: u64,
    /// First segment.
    pub segment_bytes_first: u64,
    /// Largest segment.
    pub segment_bytes_max: u64,
    /// Whether changes are noted from the first one on ([`Journal`]).
    pub keeps_journal: bool,
}

/// There is no room, and what that means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRoom {
    /// Memory is missing, so it is worth to wait for some that comes back. Otherwise a limit of the format is
    /// reached.
    pub wait: bool,
}

/// What the memory of an image is used for, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryUse {
    /// The limit.
    pub limit: u64,
    /// All segments.
    pub segments: u64,
    /// Pages given to slabs, index blocks and runs.
    pub pages: u64,
    /// Objects in use.
    pub live: u64,
    /// Of these, page runs of large values.
    pub runs: u64,
    /// Dead objects in quarantine.
    pub quarantined: u64,
    /// Segments emptied and given back so far; a count, not bytes.
    pub segments_retired: u64,
}

/// What the slabs of a kind of slot are used for. Of the rest some slots were never handed out, and some are
/// dead: in quarantine, or free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KindUse {
    /// The kind.
    pub kind: Kind,
    /// Slots in use.
    pub slots: u64,
    /// Bytes of all its slabs.
    pub slab_bytes: u64,
}

/// A segment, for those who map it and those who choose one to empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentSummary {
    /// Its first granule, which is also its name.
    pub first_granule: usize,
    /// Its length.
    pub bytes: u64,
}

impl SegmentSummary {
    /// How many granules it takes, in part or whole.
    pub fn granules(&self) -> u64 {
        self.bytes.div_ceil(GRANULE_BYTES)
    }
}

impl Segment {
    fn summary(&self) -> SegmentSummary {
        SegmentSummary { first_granule: self.first_granule, bytes: self.bytes }
    }
}

/// The writer's side of an image. One thread owns it.
pub struct Image {
    config: ImageConfig,
    header: Header,
    map: MemoryMap,
    journal: Journal,
    /// Where changes do not count before they are committed.
    watermark: Option<Watermark>,
    source: Box<dyn SegmentSource>,
    segments: Vec<Segment>,
    /// Segment of each granule.
    granules: Vec<u32>,
    kinds: Vec<KindState>,
    gaps: Gaps,
    /// What lived where this image began. Of slabs that are not listed as free yet, it is what was in use.
    live: Live,
    runs_dead: VecDeque<(u64, Place, u64)>,
    /// Dead bytes by the epoch of their death, while in quarantine.
    dead: VecDeque<(u64, u64)>,
    incarnation: Incarnation,
    epoch: u64,
    epoch_step_ns: u64,
    /// A write waits for this epoch.
    short_until: u64,
    evacuating: Option<Evacuation>,
    /// Whether what is allocated now are new places for objects of the segment that is being emptied.
    moving: bool,
    openings: u64,
    /// The most that was in quarantine lately, in bytes: writes may need as much again.
    quarantined_lately: u64,
    /// Bytes that the last allocation lacked which found no room.
    missing: u64,
    /// All but `live`, which is the sum of `runs` and of what the kinds count.
    use_: MemoryUse,
}

impl Image {
    /// Makes an empty image whose header page stands in `header`.
    pub fn create(config: ImageConfig, header: Span, source: Box<dyn SegmentSource>) -> Result<Image> {
        let mut image = Image::without_segments(config, header, source);
        if image.add_segment()?.is_none() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "create image",
                format!(
                    "{} bytes of memory are too few: a shard needs at least {}",
                    config.memory_bytes,
                    limits::SLAB_PAGES_MAX * PAGE_BYTES
                ),
            ));
        }
        Ok(image)
    }

    fn without_segments(config: ImageConfig, header: Span, source: Box<dyn SegmentSource>) -> Image {
        let mut map = MemoryMap::default();
        map.add(0, header.clone());
        let page = Header::create(header, config.image_id, config.hash_seed, config.epoch_ns, config.term);
        let kinds = (0..Kind::COUNT)
            .map(|_| KindState {
                free: VecDeque::new(),
                unlisted: Vec::new(),
                unlisted_slots: 0,
                fresh: Place(0),
                fresh_slots: 0,
                slabs: 0,
                used: 0,
            })
            .collect();
        Image {
            config,
            header: page,
            map,
            journal: Journal::new(config.keeps_journal),
            watermark: None,
            source,
            segments: Vec::new(),
            // Granule 0 is the header page's, so no object stands at place 0 and a zero word is no pointer.
            granules: vec![u32::MAX],
            kinds,
            gaps: Gaps::default(),
            live: Live::default(),
            runs_dead: VecDeque::new(),
            dead: VecDeque::new(),
            incarnation: config.incarnation,
            epoch: 1,
            epoch_step_ns: 0,
            short_until: 0,
            evacuating: None,
            moving: false,
            openings: 0,
            quarantined_lately: 0,
            missing: 0,
            use_: MemoryUse { limit: config.memory_bytes, ..MemoryUse::default() },
        }
    }

    /// The header page.
    #[inline]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Memory by place.
    #[inline]
    pub fn map(&self) -> &MemoryMap {
        &self.map
    }

    /// `count` words at a place that this image handed out.
    #[inline]
    pub fn words(&self, place: Place, count: usize) -> Words<'_> {
        self.map.words(place, count).expect("a place of this image")
    }

    /// The same, to change them.
    #[inline]
    pub fn change(&self, place: Place, count: usize) -> Changes<'_> {
        Changes::new(self.words(place, count), place, &self.journal)
    }

    /// All words of the slot at a location that this image handed out.
    #[inline]
    pub fn slot(&self, location: Location) -> Words<'_> {
        self.words(location.place(), location.class().words())
    }

    /// The same, to change them.
    #[inline]
    pub fn change_slot(&self, location: Location) -> Changes<'_> {
        self.change(location.place(), location.class().words())
    }

    /// Publishes a word of the header page that whoever follows the image has to know of.
    #[inline]
    pub fn publish_header(&self, word: usize, value: u64) {
        self.header.words().publish(word, value);
        self.journal.event(event::HEADER, &[word as u64, value]);
    }

    /// What is noted of changes, and by which no memory changes.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Changes count from now on only when they are committed. All that there is, up to this record, is.
    pub fn begin_commits(&mut self, record: u64) {
        let committed = Committed { incarnation: self.incarnation.0, record };
        self.begin_commits_behind(committed, record);
    }

    /// Changes count from now on only when they are committed, where of what there is, up to this record,
    /// only so much is.
    pub fn begin_commits_behind(&mut self, committed: Committed, record: u64) {
        self.watermark = Some(Watermark::begin(&self.header, committed, record));
    }

    /// Says up to where changes are committed, where that matters.
    pub fn commit(&mut self, committed: Committed) {
        if let Some(watermark) = &mut self.watermark {
            // Who reads the words has them near until they change.
            if watermark.committed() != committed {
                watermark.commit(&self.header, committed);
            }
        }
    }

    /// What changes from now on is of this record.
    #[inline]
    pub fn begin_record(&self, record: u64) {
        if let Some(watermark) = &self.watermark {
            watermark.begin_record(record);
        }
    }

    /// A key of a hash table is about to be removed.
    #[inline]
    pub fn note_removal(&self) {
        if let Some(watermark) = &self.watermark {
            watermark.note_removal(self.header.words());
        }
    }

    /// A live leaf is about to change in what it says of its keys.
    #[inline]
    pub fn note_leaf(&self, leaf: Place) {
        if let Some(watermark) = &self.watermark {
            let guardian = Guardian(self.words(leaf, 1).load(0));
            watermark.note_leaf(self.header.words(), guardian.incarnation());
        }
    }

    /// Sets the live bit of a leaf, under a name of its own. Its body is written.
    pub fn make_leaf_live(&mut self, place: Place) {
        let incarnation = self.next_incarnation();
        if let Some(watermark) = &self.watermark {
            watermark.note_leaf(self.header.words(), incarnation);
        }
        self.change(place, 1).publish(0, incarnation.live().0);
    }

    /// The last name that an object was given.
    pub fn last_incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// A name for a new object that no object ever had or will have.
    pub fn next_incarnation(&mut self) -> Incarnation {
        // A term has 2^32 incarnations, and follows the clock in steps of 2^32 nanoseconds: an image that
        // goes on in the term above is far behind the clock, which gives later servers theirs.
        self.incarnation = self.incarnation.next().unwrap_or_else(|| {
            let term = self.incarnation.term() + 1;
            Incarnation::first_of_term(term)
        });
        self.incarnation
    }

    /// Sets the live bit of the object at a place, under a name of its own. Its body is written.
    pub fn make_live(&mut self, place: Place) -> Incarnation {
        let incarnation = self.next_incarnation();
        self.change(place, 1).publish(0, incarnation.live().0);
        incarnation
    }

    /// Drops the live bit of the object at a place.
    #[inline]
    pub fn drop_live(&self, place: Place) {
        let guardian = self.change(place, 1);
        guardian.publish(0, Guardian(guardian.words().load(0)).incarnation().dead().0);
    }

    fn take_pages(
        &mut self,
        count: usize,
        usage: PageUse,
        partial: bool,
    ) -> std::result::Result<(usize, usize, usize), NoRoom> {
        for attempt in 0..2 {
            for index in 0..self.segments.len() {
                if self.is_lent(index) {
                    continue;
                }
                // Partial rows are taken only once no segment has a whole one.
                let allow = partial && attempt == 1;
                if let Some((page, taken)) = self.segments[index].take(count, usage, allow) {
                    self.use_.pages += taken as u64 * PAGE_BYTES;
                    return Ok((index, page, taken));
                }
            }
            if attempt == 0 {
                match self.add_segment() {
                    Ok(Some(index)) => {
                        if let Some((page, taken)) = self.segments[index].take(count, usage, partial) {
                            self.use_.pages += taken as u64 * PAGE_BYTES;
                            return Ok((index, page, taken));
                        }
                    }
                    // The system gave no memory although the limit allows it: the same as no room.
                    Ok(None) | Err(_) if !partial => break,
                    Ok(None) | Err(_) => {}
                }
            }
        }
        self.missing = count as u64 * PAGE_BYTES;
        Err(NoRoom { wait: true })
    }

    /// Whether the pages of a segment are for the objects that leave another, and nothing else is to take
    /// them yet.
    fn is_lent(&self, segment: usize) -> bool {
        let holds =
            |evacuation: &Evacuation| evacuation.emptied.is_none() && evacuation.lent.contains(&segment);
        !self.moving && self.evacuating.as_ref().is_some_and(holds)
    }

    fn clear_dirty(&mut self, segment: usize, first: usize, count: usize) {
        for page in first..first + count {
            if std::mem::take(&mut self.segments[segment].pages[page].dirty) {
                let place = page_place(&self.segments[segment], page);
                self.change(place, PAGE_BYTES as usize / 8).clear(0, PAGE_BYTES as usize / 8);
            }
        }
    }

    /// Adds a segment; `Ok(None)` when the limit forbids it.
    fn add_segment(&mut self) -> Result<Option<usize>> {
        // The limit may be exceeded by the length of a segment that is about to go: for the objects that
        // leave it, and for anything once it is empty. Before that, others would take the room its objects
        // need, the emptying would be given up, and the excess would stay.
        let goes = |evacuation: &&Evacuation| self.moving || evacuation.emptied.is_some();
        let leaving = self.evacuating.as_ref().filter(goes);
        let allowance = leaving.map_or(0, |evacuation| self.segments[evacuation.segment].bytes);
        let room = (self.config.memory_bytes + allowance).saturating_sub(self.use_.segments);
        let open = self.segments.iter().filter(|segment| segment.state != SegmentState::Retired);
        let bytes = match open.map(|segment| segment.bytes).max() {
            None => self.config.segment_bytes_first,
            Some(largest) => (largest * 2).min(self.config.segment_bytes_max),
        };
        let bytes = bytes.min(room) / limits::HUGE_PAGE_BYTES * limits::HUGE_PAGE_BYTES;
        let first = self.granules.len();
        let end = (first as u64 * GRANULE_BYTES).saturating_add(bytes.next_multiple_of(GRANULE_BYTES));
        if bytes < limits::SLAB_PAGES_MAX * PAGE_BYTES || end > 1 << limits::PLACE_BITS {
            return Ok(None);
        }
        let index = self.add_segment_of(bytes)?;
        if let Some(evacuation) = self.evacuating.as_mut().filter(|_| self.moving) {
            evacuation.lent.push(index);
        }
        Ok(Some(index))
    }

    /// Adds a segment behind all others.
    fn add_segment_of(&mut self, bytes: u64) -> Result<usize> {
        let first = self.granules.len();
        let span = self.source.create(first, bytes)?;
        assert_eq!(span.bytes(), bytes);
        self.journal.event(event::SEGMENT, &[first as u64, bytes]);
        self.map.add(first, span);
        let index = self.segments.len();
        self.openings += 1;
        self.segments.push(Segment::new(first, bytes, self.openings));
        self.granules.resize(first + bytes.div_ceil(GRANULE_BYTES) as usize, index as u32);
        self.use_.segments += bytes;
        self.bump_segments_version();
        Ok(index)
    }

    fn bump_segments_version(&self) {
        let words = self.header.words();
        words.publish(header_word::SEGMENTS, words.load(header_word::SEGMENTS) + 1);
    }

    fn page_of(&self, place: Place) -> (usize, usize) {
        let segment = self.granules[place.granule()] as usize;
        let start = self.segments[segment].first_granule as u64 * GRANULE_BYTES;
        (segment, ((place.0 - start) / PAGE_BYTES) as usize)
    }

    #[inline]
    fn count(&mut self, place: Place, bytes: i64) {
        let segment = self.granules[place.granule()] as usize;
        let live = &mut self.segments[segment].live_bytes;
        *live = live.wrapping_add_signed(bytes);
    }

    /// What the memory is used for.
    pub fn memory_use(&self) -> MemoryUse {
        let slots: u64 = self.kind_uses().map(|of| of.slots * of.kind.slot_bytes()).sum();
        MemoryUse { live: slots + self.use_.runs, ..self.use_ }
    }

    /// What slabs are used for, by kind of slot. It costs a look at each kind, and writers nothing.
    pub fn kind_uses(&self) -> impl Iterator<Item = KindUse> + '_ {
        let known = self.kinds.iter().enumerate().filter(|(_, state)| state.slabs > 0);
        known.map(|(index, state)| {
            let kind = Kind::from_index(index);
            let slab_bytes = u64::from(state.slabs) * kind.slab_pages() * PAGE_BYTES;
            KindUse { kind, slots: state.used, slab_bytes }
        })
    }

    /// The segments that are part of the image.
    pub fn segments(&self) -> impl Iterator<Item = SegmentSummary> + '_ {
        self.segments.iter().filter(|segment| segment.state != SegmentState::Retired).map(Segment::summary)
    }

    /// How often a segment was opened so far: added, or opened again because its emptying was given up. A
    /// number of the past tells the segments that were open then from those that were opened since.
    pub fn openings(&self) -> u64 {
        self.openings
    }

    /// The segment of a place that this image handed out.
    pub fn segment_of(&self, place: Place) -> SegmentSummary {
        self.segments[self.granules[place.granule()] as usize].summary()
    }

    /// Whether there are pages for another slab of a kind, or there is room for a segment of them.
    pub fn has_pages(&self, kind: Kind) -> bool {
        let pages = kind.slab_pages() as usize;
        let has = |(index, segment): (usize, &Segment)| {
            segment.state == SegmentState::Open && segment.pages_free >= pages && !self.is_lent(index)
        };
        let room = self.config.memory_bytes.saturating_sub(self.use_.segments);
        room >= limits::SLAB_PAGES_MAX * PAGE_BYTES || self.segments.iter().enumerate().any(has)
    }

    /// Says that the image may be read.
    pub fn serve(&mut self) {
        self.header.set_state(ImageState::Serving);
    }
}

fn page_place(segment: &Segment, page: usize) -> Place {
    Place(segment.first_granule as u64 * GRANULE_BYTES + page as u64 * PAGE_BYTES)
}
