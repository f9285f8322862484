//! The writer's side of an image: allocation, quarantine, the reclamation epoch, evacuation.
//!
//! Free slots of a kind form one queue. A dead slot enters it at the back with the epoch of its death and
//! leaves at the front once its quarantine has passed, so that quarantine and free list are the same thing
//! and reuse costs one comparison. Fresh memory is used before anyone waits for the quarantine.
//!
//! Invariants:
//! 1. A slot is handed out only if it was never used, or its death is two published epochs ago
//!    (asserted in `Image::reuse`).
//! 2. A slot in an evacuating or retired segment is never handed out (`Image::reuse`).
//! 3. The epoch steps only while something waits for it, and never twice within L (`Image::advance_epoch`).
//!
//! The file is long because giving out, taking back and emptying change the same few queues and counts; a
//! quarter of it is tests.

use std::collections::VecDeque;

use kelix_types::limits::{self, GRANULE_BYTES, PAGE_BYTES, QUARANTINE_EPOCHS};
use kelix_types::{Error, ErrorKind, Guardian, Incarnation, Location, Place, Result, SizeClass, mark};

use crate::changes::{Changes, Journal, event};
use crate::header::{Header, ImageState, header_word};
use crate::map::{MemoryMap, Span};
use crate::pages::{Kind, PageUse, Segment, SegmentState};
use crate::segments::SegmentSource;
use crate::words::{Words, full_fence};

mod audit;
mod restore;

pub use audit::InUse;
pub(crate) use restore::Slab;
pub use restore::{Books, SegmentBooks};

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

struct KindState {
    /// Dead slots, oldest first: place / 16 in the low 40 bits, the low 24 bits of the epoch above.
    free: VecDeque<u64>,
    fresh: Place,
    fresh_slots: u32,
    /// Slabs in segments that are not retired.
    slabs: u32,
    /// Slots in use.
    used: u64,
}

/// The writer's side of an image. One thread owns it.
pub struct Image {
    config: ImageConfig,
    header: Header,
    map: MemoryMap,
    journal: Journal,
    source: Box<dyn SegmentSource>,
    segments: Vec<Segment>,
    /// Segment of each granule.
    granules: Vec<u32>,
    kinds: Vec<KindState>,
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

struct Evacuation {
    segment: usize,
    page: usize,
    /// Slabs of items leave now; those of the index, which nothing can take the place of, have.
    of_items: bool,
    /// Epoch at which the last object left.
    emptied: Option<u64>,
    /// Epoch at which an object found no room for the first time.
    short: Option<u64>,
    /// Free slots of the segment, kept for the case that it is opened again.
    set_aside: Vec<(Kind, u64)>,
    /// Segments that were added for the objects that leave.
    lent: Vec<usize>,
}

const STAMP_SHIFT: u32 = 40;
const PLACE_MASK: u64 = (1 << STAMP_SHIFT) - 1;

/// Memory is wasted where slabs hold more than what is needed by this share of that, and by so many bytes:
/// less is in use again soon, or is not worth the work.
const WASTE_PERCENT: u64 = 12;
const WASTE_BYTES_MIN: u64 = 4 << 20;
/// What was in quarantine is forgotten by this share an epoch.
const QUARANTINED_FORGET_SHARE: u64 = 16;

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
            .map(|_| KindState { free: VecDeque::new(), fresh: Place(0), fresh_slots: 0, slabs: 0, used: 0 })
            .collect();
        Image {
            config,
            header: page,
            map,
            journal: Journal::new(config.keeps_journal),
            source,
            segments: Vec::new(),
            // Granule 0 is the header page's, so no object stands at place 0 and a zero word is no pointer.
            granules: vec![u32::MAX],
            kinds,
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

    /// A slot for an item of `bytes` bytes.
    #[inline]
    pub fn allocate_item(&mut self, bytes: usize) -> std::result::Result<Location, NoRoom> {
        let Some(class) = SizeClass::for_bytes(bytes) else { return Err(NoRoom { wait: false }) };
        Ok(Location::new(self.allocate(Kind::item(class))?, class))
    }

    /// A slot of a kind. Its words may hold anything a dead object left, but its guardian is not live.
    #[inline]
    pub fn allocate(&mut self, kind: Kind) -> std::result::Result<Place, NoRoom> {
        let place = match self.reuse(kind) {
            Some(place) => place,
            None => self.carve(kind)?,
        };
        self.count_slot(kind, place, 1);
        Ok(place)
    }

    /// The oldest dead slot whose quarantine has passed.
    #[inline]
    fn reuse(&mut self, kind: Kind) -> Option<Place> {
        let place = self.ripe(kind)?;
        self.kinds[kind.index()].free.pop_front();
        debug_assert!(!kind.is_item() || !Guardian(self.words(place, 1).load(0)).is_live());
        Some(place)
    }

    /// The same, but it is not taken.
    #[inline]
    fn ripe(&mut self, kind: Kind) -> Option<Place> {
        loop {
            let entry = *self.kinds[kind.index()].free.front()?;
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
                return None;
            }
            if age == QUARANTINE_EPOCHS {
                mark!("memory reused as soon as its quarantine was over");
            }
            return Some(place);
        }
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
            let pages = kind.slab_pages();
            let (segment, page, _) = self.take_pages(pages as usize, PageUse::Slab(kind), false)?;
            self.clear_dirty(segment, page, pages as usize);
            let first = page_place(&self.segments[segment], page);
            self.journal.event(event::SLAB, &[first.0, kind.index() as u64]);
            let state = &mut self.kinds[kind.index()];
            state.fresh = first;
            state.fresh_slots = (pages * PAGE_BYTES / kind.slot_bytes()) as u32;
            state.slabs += 1;
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

    /// The rest of a slab in a segment being emptied is free memory again if the segment is opened again.
    fn set_fresh_aside(&mut self, kind: Kind) {
        let state = &mut self.kinds[kind.index()];
        let (count, first) = (std::mem::take(&mut state.fresh_slots), state.fresh);
        let Some(evacuation) = &mut self.evacuating else { return };
        let segment = self.granules[first.granule()] as usize;
        if count == 0 || segment != evacuation.segment {
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
        let bytes = bytes.min(room) / PAGE_BYTES * PAGE_BYTES;
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

    #[inline]
    fn count_slot(&mut self, kind: Kind, place: Place, slots: i64) {
        let used = &mut self.kinds[kind.index()].used;
        *used = used.wrapping_add_signed(slots);
        self.count(place, slots * kind.slot_bytes() as i64);
    }

    fn count_run(&mut self, place: Place, bytes: i64) {
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

    #[inline]
    fn mark_dead(&mut self, bytes: u64) {
        self.use_.quarantined += bytes;
        match self.dead.back_mut() {
            Some((epoch, sum)) if *epoch == self.epoch => *sum += bytes,
            _ => self.dead.push_back((self.epoch, bytes)),
        }
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

    fn give_back(&mut self, place: Place, held: u64) {
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

    /// The epoch for which something waits, before it was published twice more.
    fn youngest_dead(&self) -> Option<u64> {
        let youngest = self.dead.back().map(|(epoch, _)| *epoch);
        youngest.max(self.evacuating.as_ref().and_then(|evacuation| evacuation.emptied))
    }

    /// When [`Image::advance_epoch`] is to be called again; `None` when nothing waits.
    pub fn epoch_due(&self) -> Option<u64> {
        let waits = self.youngest_dead().is_some_and(|epoch| self.epoch < epoch + QUARANTINE_EPOCHS);
        waits.then_some(self.epoch_step_ns + self.epoch_distance_ns())
    }

    /// A write waits for what is in quarantine.
    pub fn hurry(&mut self) {
        self.short_until = self.epoch + QUARANTINE_EPOCHS;
    }

    /// How soon the next epoch follows. There is a hurry while a write waits, and while much is in
    /// quarantine.
    fn epoch_distance_ns(&self) -> u64 {
        let much = self.config.memory_bytes / limits::QUARANTINE_HURRY_SHARE;
        let hurries = self.epoch < self.short_until || self.use_.quarantined > much;
        if hurries { self.config.epoch_ns } else { self.config.epoch_ns_usual }
    }

    /// Steps the reclamation epoch if something waits for it and it is time at `now_ns`. Returns when to call
    /// again, or `None` when nothing waits. `clock` tells the time: L begins anew once the step can be seen,
    /// however long ago `now_ns` was, because the other form of check (b) rests on that distance.
    ///
    /// SYNC: the publishing store pairs with [`Header::epoch`]: a reader that loads the new epoch also sees
    /// every guardian dropped before.
    pub fn advance_epoch(&mut self, now_ns: u64, clock: impl FnOnce() -> u64) -> Option<u64> {
        self.youngest_dead()?;
        if now_ns >= self.epoch_step_ns + self.epoch_distance_ns() {
            mark!("epoch stepped");
            self.epoch += 1;
            self.publish_header(header_word::EPOCH, self.epoch);
            // Reuse may follow at once, and must not become visible before the epoch that allows it.
            full_fence();
            self.epoch_step_ns = clock();
            self.ripen();
        }
        self.epoch_due()
    }

    fn ripen(&mut self) {
        let faded = self.quarantined_lately - self.quarantined_lately.div_ceil(QUARANTINED_FORGET_SHARE);
        self.quarantined_lately = faded.max(self.use_.quarantined);
        let now = self.epoch;
        let ripe = |epoch: u64| epoch + QUARANTINE_EPOCHS <= now;
        while self.dead.front().is_some_and(|(epoch, _)| ripe(*epoch)) {
            let (_, bytes) = self.dead.pop_front().expect("just seen");
            self.use_.quarantined -= bytes;
        }
        while self.runs_dead.front().is_some_and(|(epoch, ..)| ripe(*epoch)) {
            let (_, place, bytes) = self.runs_dead.pop_front().expect("just seen");
            self.give_back(place, bytes);
        }
        let emptied = self.evacuating.as_ref().and_then(|evacuation| evacuation.emptied);
        if emptied.is_some_and(|epoch| epoch + QUARANTINE_EPOCHS <= self.epoch) {
            self.retire();
        }
    }

    /// The current reclamation epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
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

    /// Whether a segment is being emptied.
    pub fn is_evacuating(&self) -> bool {
        self.evacuating.is_some()
    }

    /// How often a segment was opened so far: added, or opened again because its emptying was given up. A
    /// number of the past tells the segments that were open then from those that were opened since.
    pub fn openings(&self) -> u64 {
        self.openings
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
    /// the slab of each kind that is being filled.
    pub fn is_wasteful(&self) -> bool {
        let filled: u64 = self.kind_uses().map(|of| of.kind.slab_pages() * PAGE_BYTES).sum();
        let needed = self.memory_use().live + self.quarantined_lately + filled;
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

    /// The segment of a place that this image handed out.
    pub fn segment_of(&self, place: Place) -> SegmentSummary {
        self.segments[self.granules[place.granule()] as usize].summary()
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

    /// How many slots of a kind there are that nothing uses, and no pages are needed for: some may be in
    /// quarantine.
    #[inline]
    pub fn spare(&self, kind: Kind) -> usize {
        let state = &self.kinds[kind.index()];
        let fresh = if self.has_fresh(kind) { state.fresh_slots as usize } else { 0 };
        state.free.len() + fresh
    }

    /// Whether a slot of a kind can be had at once, without pages.
    pub fn has_slot(&mut self, kind: Kind) -> bool {
        self.has_fresh(kind) || self.ripe(kind).is_some()
    }

    /// Whether the newest slab of a kind is not used up, and slots may be taken there.
    fn has_fresh(&self, kind: Kind) -> bool {
        let state = &self.kinds[kind.index()];
        state.fresh_slots > 0
            && self.segments[self.granules[state.fresh.granule()] as usize].state == SegmentState::Open
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

    fn retire(&mut self) {
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

    /// Says that the image may be read.
    pub fn serve(&mut self) {
        self.header.set_state(ImageState::Serving);
    }
}

fn page_place(segment: &Segment, page: usize) -> Place {
    Place(segment.first_granule as u64 * GRANULE_BYTES + page as u64 * PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PrivateSegments;

    const L: u64 = limits::EPOCH_NS;

    fn image(memory_bytes: u64) -> Image {
        image_of(memory_bytes, L)
    }

    fn image_of(memory_bytes: u64, epoch_ns: u64) -> Image {
        let config = ImageConfig {
            image_id: 1,
            hash_seed: 2,
            term: 1,
            incarnation: Incarnation::first_of_term(1),
            epoch_ns,
            epoch_ns_usual: L,
            memory_bytes,
            segment_bytes_first: 4 << 20,
            segment_bytes_max: 8 << 20,
            keeps_journal: false,
        };
        Image::create(config, Span::private(Header::BYTES), Box::new(PrivateSegments::default())).unwrap()
    }

    fn fill(image: &mut Image, bytes: usize) -> Vec<Location> {
        std::iter::from_fn(|| image.allocate_item(bytes).ok()).collect()
    }

    #[test]
    fn epochs_follow_sooner_while_there_is_a_hurry() {
        const SOON: u64 = L / 25;
        let mut image = image_of(4 << 20, SOON);
        let held = fill(&mut image, 4096);
        let mut now = 10 * L;
        let mut steps_after = |image: &mut Image, distance: u64| {
            let due = image.epoch_due().expect("something waits");
            let before = image.epoch();
            image.advance_epoch(due - 1, || unreachable!("too soon"));
            image.advance_epoch(due, || due);
            assert_eq!((image.epoch(), due), (before + 1, now + distance));
            now = due;
        };
        // A write waits, so for two epochs.
        image.epoch_step_ns = 10 * L;
        image.release_item(held[0]);
        image.hurry();
        steps_after(&mut image, SOON);
        image.release_item(held[1]);
        steps_after(&mut image, SOON);
        image.release_item(held[2]);
        steps_after(&mut image, L);
        // Much is in quarantine.
        held[3..23].iter().for_each(|location| image.release_item(*location));
        steps_after(&mut image, SOON);
        steps_after(&mut image, SOON);
        image.release_item(held[23]);
        steps_after(&mut image, L);
    }

    /// The other form of check (b) rests on that.
    #[test]
    fn an_epoch_lasts_from_when_it_could_be_seen() {
        let mut image = image(4 << 20);
        let location = image.allocate_item(100).unwrap();
        image.release_item(location);
        // Stopped for 2 L between a look at the clock and the step.
        assert_eq!(image.advance_epoch(L, || 3 * L), Some(4 * L));
        let stepped = image.epoch();
        image.advance_epoch(4 * L - 1, || 4 * L - 1);
        assert_eq!(image.epoch(), stepped);
        image.advance_epoch(4 * L, || 4 * L);
        assert_eq!(image.epoch(), stepped + 1);
    }

    #[test]
    fn a_dead_slot_is_reused_after_two_epochs_and_not_before() {
        let mut image = image(4 << 20);
        let all = fill(&mut image, 4096);
        assert_eq!(image.allocate_item(4096), Err(NoRoom { wait: true }));
        image.release_item(all[0]);
        assert_eq!(image.allocate_item(4096), Err(NoRoom { wait: true }));
        assert_eq!(image.memory_use().quarantined, 4096);
        assert_eq!(image.advance_epoch(L, || L), Some(2 * L));
        assert_eq!(image.advance_epoch(2 * L - 1, || 2 * L - 1), Some(2 * L));
        assert!(image.allocate_item(4096).is_err());
        assert_eq!(image.advance_epoch(2 * L, || 2 * L), None);
        assert_eq!(image.allocate_item(4096), Ok(all[0]));
        assert_eq!(image.memory_use().quarantined, 0);
        assert_eq!(image.advance_epoch(9 * L, || 9 * L), None, "nothing waits, so the epoch stands still");
        assert_eq!(image.epoch(), 3);
    }

    #[test]
    fn runs_return_to_any_use_cleared() {
        let mut image = image(4 << 20);
        let (place, bytes) = image.allocate_run(64 << 20).unwrap();
        assert_eq!(bytes, 4 << 20);
        image.words(place, 1).store(0, u64::MAX);
        assert!(image.allocate_item(64).is_err());
        image.release_run(place, bytes);
        image.advance_epoch(L, || L);
        image.advance_epoch(2 * L, || 2 * L);
        let item = image.allocate_item(64).unwrap();
        assert_eq!(image.slot(item).load(0), 0, "a slab page must begin with dead guardians");
    }

    #[test]
    fn a_sparse_segment_is_emptied_retired_and_its_offsets_never_return() {
        let mut image = image(16 << 20);
        let all = fill(&mut image, 60_000);
        let keep = all[0];
        all[1..].iter().for_each(|location| image.release_item(*location));
        image.advance_epoch(L, || L);
        image.advance_epoch(2 * L, || 2 * L);
        assert!(image.begin_evacuation_for_write(50, image.openings()));
        let mut moved = Vec::new();
        while let Some((kind, first, slots)) = image.next_leaving_slab() {
            for slot in 0..slots {
                let place = first.plus(slot as u64 * kind.slot_bytes());
                if place == keep.place() {
                    moved.push(image.allocate_item(60_000).unwrap());
                    image.release(kind, place);
                }
            }
        }
        let version = image.header().segments_version();
        let segments: Vec<_> = image.segments().collect();
        assert!(image.finish_evacuation());
        image.advance_epoch(3 * L, || 3 * L);
        image.advance_epoch(4 * L, || 4 * L);
        assert!(!image.is_evacuating() && image.header().segments_version() == version + 1);
        let gone: Vec<_> = segments.into_iter().filter(|s| !image.segments().any(|t| t == *s)).collect();
        assert_eq!(gone.len(), 1);
        let is_retired = |segment: &SegmentSummary| image.header().is_retired(segment.first_granule);
        assert!(is_retired(&gone[0]) && !image.segments().any(|segment| is_retired(&segment)));
        let start = gone[0].first_granule as u64 * GRANULE_BYTES;
        assert!(image.map().words(Place(start), 1).is_none());
        // What is counted by kind goes with the slabs.
        let kept = *moved.last().unwrap_or(&keep);
        let kind = Kind::item(kept.class());
        image.audit(&InUse { slots: vec![(kind, kept.place())], runs: Vec::new() }).unwrap();
        let uses: Vec<KindUse> = image.kind_uses().collect();
        assert_eq!(uses, [KindUse { kind, slots: 1, slab_bytes: image.memory_use().pages }]);
        assert_eq!(image.memory_use().live, kind.slot_bytes());
        let again = fill(&mut image, 128);
        assert!(again.iter().all(|l| !(start..start + gone[0].bytes).contains(&l.place().0)));
    }

    /// An image of segments in which a quarter of the slots is used, and no page is free.
    fn sparse() -> Image {
        let mut image = image(16 << 20);
        let all = fill(&mut image, 60_000);
        let gone = all.iter().enumerate().filter(|(index, _)| index % 4 != 0);
        gone.for_each(|(_, location)| image.release_item(*location));
        image.advance_epoch(L, || L);
        image.advance_epoch(2 * L, || 2 * L);
        image
    }

    #[test]
    fn a_slot_that_nobody_saw_needs_no_quarantine() {
        let mut image = image(4 << 20);
        let all = fill(&mut image, 4096);
        image.release_item(all[0]);
        image.advance_epoch(L, || L);
        image.release_item(all[1]);
        image.advance_epoch(2 * L, || 2 * L);
        for _ in 0..3 {
            assert_eq!(image.allocate_item(4096), Ok(all[0]));
            image.discard_item(all[0]);
            assert_eq!(image.memory_use().quarantined, 4096, "that of the other");
        }
    }

    #[test]
    fn each_segment_is_chosen_once_for_a_write() {
        let mut image = sparse();
        let (segments, openings) = (image.segments().count(), image.openings());
        assert!(image.allocate_run(1 << 20).is_err());
        for _ in 0..segments {
            assert!(image.begin_evacuation_for_write(75, openings));
            assert!(!image.begin_evacuation_for_write(75, openings), "one at a time");
            image.abandon_evacuation();
        }
        assert!(!image.begin_evacuation_for_write(75, openings));
        assert!(image.begin_evacuation_for_write(75, image.openings()), "for a write that comes now");
        image.abandon_evacuation();
        assert!(image.allocate_run(13 << 20).is_err());
        assert!(!image.begin_evacuation_for_write(75, image.openings()), "more than all would give back");
    }

    #[test]
    fn only_what_leaves_may_exceed_the_limit_before_the_segment_is_empty() {
        let mut image = sparse();
        assert!(image.allocate_run(1 << 20).is_err());
        assert!(image.begin_evacuation_for_write(75, image.openings()));
        assert!(image.allocate_run(1 << 20).is_err());
        image.set_moving(true);
        assert!(image.allocate_run(1 << 20).is_ok());
        let now = image.memory_use();
        assert!(now.segments > now.limit);
        // Others took pages of the new segment, and with them the room for what had yet to leave.
        image.set_moving(false);
        assert!(image.allocate_run(1 << 20).is_err());
        image.set_moving(true);
        assert!(image.allocate_run(1 << 20).is_ok());
        image.set_moving(false);
        image.abandon_evacuation();
        assert!(image.allocate_run(1 << 20).is_ok());
    }

    /// The slots of a slab that had yet to be used when its segment was to be emptied, and was not, were used
    /// later and not looked at when the segment was to be emptied again.
    #[test]
    fn slots_used_after_an_emptying_was_given_up_are_found_by_the_next() {
        let mut image = image(16 << 20);
        let kept = image.allocate_item(4096).unwrap();
        image.advance_epoch(L, || L);
        fill(&mut image, 60_000).iter().for_each(|location| image.release_item(*location));
        image.advance_epoch(2 * L, || 2 * L);
        image.advance_epoch(3 * L, || 3 * L);
        let audit = |image: &Image, used: &[Location]| {
            let slots = used.iter().map(|it| (Kind::item(it.class()), it.place())).collect();
            image.audit(&InUse { slots, runs: Vec::new() }).unwrap();
        };
        let openings = image.openings();
        assert!(image.begin_evacuation_for_write(75, openings));
        while !image.is_leaving(kept.place()) {
            image.abandon_evacuation();
            assert!(image.begin_evacuation_for_write(75, openings), "each is chosen once");
        }
        assert!(image.allocate_item(4096).is_err(), "no page is free elsewhere");
        audit(&image, &[kept]);
        image.abandon_evacuation();
        let back: Vec<Location> = fill(&mut image, 4096);
        audit(&image, &[&[kept], &back[..]].concat());
        let slab = back.iter().filter(|location| location.place().0 >> 16 == kept.place().0 >> 16).count();
        assert_eq!(slab, 15, "the slots beside the first one");
    }

    #[test]
    fn incarnations_never_repeat_even_when_the_counter_ends() {
        let mut image = image(4 << 20);
        image.incarnation = Incarnation((2 << 32) - 2);
        let names: Vec<u64> = (0..3).map(|_| image.next_incarnation().0).collect();
        assert_eq!(names, [(2 << 32) - 1, 2 << 32, (2 << 32) + 1]);
    }
}
