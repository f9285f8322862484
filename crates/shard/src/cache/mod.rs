//! A shard that is a cache: when memory is used up, it lets items go that are worth little, rather than
//! refuse a write.
//!
//! *Which* one: of 16 random items of the size class that needs room, and of the 16 that were next when such
//! a choice was made last, the one with the least hit density ([`density`]). Each item has a mark of 32 bits
//! beside the image ([`marks`]). Readers do not pass by the shard; they tell it what they read, each item
//! once in an *epoch of use* ([`Store::hear`]).
//!
//! *When*: before room is needed, since a slot is used again two epochs after its item went: as many slots of
//! a class are kept free or in quarantine as were lately asked for in two epochs ([`Demand`]). Where the
//! memory is small, long slots of rare sizes are not: their next write waits instead.
//!
//! *Between classes*: see [`balance`].
//!
//! Only items of tables without order are let go, and none of tables that are loaded.

mod balance;
mod density;
mod marks;
#[cfg(test)]
mod tests;

use kelix_image::{Image, ImageConfig, ItemFlags, ItemHeader, Kind, NoRoom};
use kelix_types::limits::QUARANTINE_EPOCHS;
use kelix_types::{Location, Place, SizeClass, TableId};

use crate::store::Store;
use balance::Balance;
pub(crate) use balance::MoveDecision;
use density::{AGES, Densities};
use marks::{Mark, Marks};

/// Items that are compared when one is to go: random ones, and the next ones of the last time.
const SAMPLES: usize = 16;
const NEXT: usize = 16;
/// Slots that are looked at for so many items.
const LOOKS: usize = 4 * SAMPLES;
/// Items that one write lets go at most, so that no write is slow.
const ENDS_A_WRITE: usize = 2;
/// Slots of a class that are kept ahead beside those that are in quarantine.
const SPARE: u64 = 1;
/// A write that finds no slot of its class takes one of so many next classes.
const WIDER_CLASSES: usize = 8;
/// Of a class, at most this share is kept ahead, and a slot for the write that comes.
const AHEAD_SHARE: u64 = 12;
/// One more in any case, if a slot is at most this share of the memory, or a write would wait for long.
const RARE_SHARE: u64 = 8192;
/// Segments that are cleared for one write at most, beside as many as there are, twice.
const CLEARINGS_A_WRITE: u64 = 64;
/// Notes of items with large values that are kept without looking which are still of use.
const LARGE_MIN: usize = 1024;
/// Steps of age while as many items are used or put as there are.
const STEPS_A_TURN: u64 = 8;
/// A class is in demand until as many times as many items were used or put as there are.
const DEMAND_TURNS: u64 = 8;
/// Steps of age in an epoch of use.
const STEPS_AN_EPOCH: u32 = 2;

/// How many slots of a class were asked for.
#[derive(Clone, Copy, Default)]
struct Demand {
    epoch: u64,
    now: u32,
    before: u32,
    /// The most in two epochs that follow each other, lately.
    most: u32,
}

impl Demand {
    fn note(&mut self, epoch: u64) {
        if self.epoch != epoch {
            self.most = (self.now + self.before).max(self.most - self.most.div_ceil(8));
            self.before = if self.epoch + 1 == epoch { self.now } else { 0 };
            (self.now, self.epoch) = (0, epoch);
        }
        self.now += 1;
    }

    /// What waits for the end of its quarantine while so much is asked for, and a slot to begin with.
    fn ahead(self) -> u64 {
        u64::from(self.most.max(self.now + self.before)) + SPARE
    }
}

/// An epoch of use. Readers tell of each item once in one, so its number is counted, not worked out of the
/// clock: as long as a cache fills, epochs become longer as fast as the clock goes on, and a number that
/// comes again would keep readers silent.
struct UseEpoch {
    number: u64,
    /// On the cache's clock.
    began: u64,
    ends: u64,
}

/// Writes that found no slot, and wait for those that were freed since then.
#[derive(Default)]
struct Waiting {
    since_epoch: u64,
    writes: usize,
}

impl Waiting {
    /// One more found none, or (`again`) one that was counted did not find any yet. How many slots are to
    /// come.
    fn note(&mut self, epoch: u64, again: bool) -> usize {
        if epoch >= self.since_epoch + QUARANTINE_EPOCHS {
            *self = Waiting { since_epoch: epoch, writes: 0 };
        }
        self.writes += usize::from(!again);
        self.writes.max(1)
    }
}

/// What is known of a class.
#[derive(Default)]
struct Class {
    demand: Demand,
    waiting: Waiting,
    /// When it was asked for last, on the cache's clock.
    asked: u64,
    next: Vec<Location>,
    /// What the items that went were worth, lately.
    bar: f32,
}

/// What lacked when a write found no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lack {
    /// A slot of a class whose items can go.
    Slot,
    /// Pages.
    Pages,
}

/// What a shard that is a cache knows of its items.
pub(crate) struct Cache {
    marks: Marks,
    densities: Densities,
    classes: Vec<Class>,
    /// Uses and puts so far.
    clock: u64,
    /// A moment of marks is two to the power of this many of them, a step of age of this many.
    moment_shift: u32,
    step_shift: u32,
    learn_at: u64,
    epoch: UseEpoch,
    random: u64,
    lack: Option<Lack>,
    balance: Balance,
    /// Of classes of slots up to so many bytes one is kept ahead, however rarely it is asked for.
    ahead_bytes: u64,
    /// Items with values that stand in pages of their own; some may be gone.
    large: Vec<Location>,
    large_most: usize,
    /// A write that waits for memory is being tried once more: what it asks for was counted when it came.
    is_retrying: bool,
}

impl Cache {
    /// A cache of the items of an image.
    pub fn new(image: &ImageConfig) -> Cache {
        let memory_bytes = image.memory_bytes;
        // Where epochs become short for a write that waits, it does not wait for long.
        let ahead_bytes =
            if image.epoch_ns < image.epoch_ns_usual { memory_bytes / RARE_SHARE } else { u64::MAX };
        // So that the moments of marks do not come again before an item has been there for 64 turns.
        let items_most = memory_bytes / SizeClass(0).bytes() as u64;
        let moment_shift = (64 * items_most / u64::from(Mark::MOMENTS)).next_power_of_two().trailing_zeros();
        Cache {
            marks: Marks::default(),
            densities: Densities::new(),
            classes: (0..SizeClass::COUNT).map(|_| Class::default()).collect(),
            clock: 0,
            moment_shift,
            step_shift: moment_shift,
            learn_at: 0,
            epoch: UseEpoch { number: 0, began: 0, ends: 1 << (moment_shift + STEPS_AN_EPOCH) },
            random: 0x9e37_79b9_7f4a_7c15,
            lack: None,
            balance: Balance::new(memory_bytes),
            ahead_bytes,
            large: Vec::new(),
            large_most: LARGE_MIN,
            is_retrying: false,
        }
    }

    fn moment(&self) -> u32 {
        (self.clock >> self.moment_shift) as u32
    }

    fn age(&self, mark: Mark) -> usize {
        let moments = u64::from(mark.age(self.moment()));
        ((moments << self.moment_shift >> self.step_shift) as usize).min(AGES - 1)
    }

    fn worth(&self, mark: Mark) -> f32 {
        self.densities.of(mark.uses(), self.age(mark))
    }

    fn random(&mut self) -> u64 {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.random;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// Whether a class was asked for lately.
    fn is_in_demand(&self, class: SizeClass) -> bool {
        self.clock - self.classes[usize::from(class.0)].asked < DEMAND_TURNS * self.marks.live().max(64)
    }

    /// Time goes on by a use or a put. Now and then what was seen is learnt.
    fn tick(&mut self) {
        self.clock += 1;
        if self.clock == self.epoch.ends {
            let (number, began) = (self.epoch.number + 1, self.clock);
            self.epoch = UseEpoch { number, began, ends: began + (1 << (self.step_shift + STEPS_AN_EPOCH)) };
        }
        if self.clock < self.learn_at {
            return;
        }
        let items = self.marks.live().max(64);
        self.learn_at = self.clock + 2 * items;
        let shift = (items / STEPS_A_TURN).ilog2().max(self.moment_shift);
        while self.step_shift < shift {
            self.step_shift += 1;
            self.densities.widen();
        }
        while self.step_shift > shift {
            self.step_shift -= 1;
            self.densities.narrow();
        }
        self.densities.learn();
    }

    /// An item is used. One that was used or put in this epoch of use counts once.
    fn touch(&mut self, location: Location) {
        let Some(mark) = self.marks.get(location) else { return };
        let before = (self.clock >> self.moment_shift).saturating_sub(u64::from(mark.age(self.moment())));
        if before >= self.epoch.began >> self.moment_shift {
            return;
        }
        self.densities.note_use(mark.uses(), self.age(mark));
        self.tick();
        self.marks.renew(location, Mark::new(mark.uses() + 1, self.moment()));
    }

    /// Marks an item that came to a place.
    fn keep(&mut self, location: Location, header: ItemHeader, mark: Mark, image: &Image) {
        self.marks.set(location, mark, || image.slab_of(location.place()));
        if header.flags.has(ItemFlags::LARGE) {
            if self.large.len() >= self.large_most {
                // Those that are gone, and were not met by chance.
                self.large.sort_unstable_by_key(|location| location.word());
                self.large.dedup();
                self.large.retain(|location| self.marks.get(*location).is_some());
                self.large_most = 2 * self.large.len() + LARGE_MIN;
            }
            self.large.push(location);
        }
    }

    /// The item of a class that is to go, if there is any.
    fn choose(&mut self, class: SizeClass) -> Option<(Location, Mark)> {
        let which = usize::from(class.0);
        let mut found = [(f32::MAX, Location::new(Place(0), class)); SAMPLES + NEXT];
        let mut count = 0;
        for index in 0..self.classes[which].next.len() {
            let location = self.classes[which].next[index];
            if let Some(mark) = self.marks.get(location) {
                found[count] = (self.worth(mark), location);
                count += 1;
            }
        }
        let known = count;
        for _ in 0..LOOKS {
            let random = self.random();
            let Some((location, mark)) = self.marks.sample(class, random) else { continue };
            if found[..count].iter().all(|(_, other)| *other != location) {
                found[count] = (self.worth(mark), location);
                count += 1;
            }
            if count == known + SAMPLES {
                break;
            }
        }
        let found = &mut found[..count];
        found.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        let next = &mut self.classes[which].next;
        next.clear();
        next.extend(found.iter().skip(1).take(NEXT).map(|(_, location)| *location));
        let (worth, location) = *found.first()?;
        let bar = &mut self.classes[which].bar;
        *bar += (worth - *bar) / 16.0;
        self.marks.get(location).map(|mark| (location, mark))
    }
}

/// The classes whose slots serve items of this one too.
fn wider(class: SizeClass) -> impl Iterator<Item = SizeClass> {
    let next = usize::from(class.0) + 1;
    (next..SizeClass::COUNT).take(WIDER_CLASSES).map(|class| SizeClass(class as u8))
}

impl Store {
    /// Whether an item of this table may be let go.
    fn may_end(&self, table: TableId) -> bool {
        !table.kind().is_ordered()
            && table != TableId::CATALOGUE
            && (self.tables.is_empty() || self.tables.table_use(table).is_none())
    }

    /// Takes note of an item that was put, in the place of another one or not.
    #[inline]
    pub(crate) fn note_cached(&mut self, location: Location, header: ItemHeader, before: Option<Location>) {
        if self.cache.is_some() && self.may_end(header.table) {
            self.mark_cached(location, header, before);
        }
    }

    fn mark_cached(&mut self, location: Location, header: ItemHeader, before: Option<Location>) {
        let (cache, image) = (self.cache.as_mut().expect("asked before"), &self.image);
        cache.tick();
        let uses = before.and_then(|before| cache.marks.get(before)).map_or(0, Mark::uses);
        let mark = Mark::new(uses, cache.moment());
        cache.keep(location, header, mark, image);
    }

    /// Takes note of an item that stands elsewhere from now on, with all that is known of it.
    pub(crate) fn note_moved(&mut self, from: Location, to: Location, header: ItemHeader) {
        let (Some(cache), image) = (&mut self.cache, &self.image) else { return };
        if let Some(mark) = cache.marks.take(from) {
            cache.keep(to, header, mark, image);
        }
    }

    /// Takes note of an item that went.
    #[inline]
    pub(crate) fn forget_cached(&mut self, location: Location) {
        if let Some(cache) = &mut self.cache {
            cache.marks.take(location);
        }
    }

    /// The slab of this slot was emptied, and its segment goes.
    pub(crate) fn forget_slab(&mut self, place: Place) {
        if let Some(cache) = &mut self.cache {
            cache.marks.drop_slab(place);
        }
    }

    /// Takes note of an item that was there when a shard went on where another one ended: it is as new.
    pub(crate) fn note_restored(&mut self, location: Location, header: ItemHeader) {
        let Some(cache) = &self.cache else { return };
        let mark = Mark::new(0, cache.moment());
        let may_end = self.may_end(header.table);
        if let Some(cache) = self.cache.as_mut().filter(|_| may_end) {
            cache.keep(location, header, mark, &self.image);
        }
    }

    /// The item was read, through the shard.
    #[inline]
    pub(crate) fn note_read(&mut self, location: Location) {
        if let Some(cache) = &mut self.cache {
            cache.touch(location);
        } else if let Some(heard) = &mut self.heard {
            self.counters.hints += u64::from(heard.note(location));
        }
    }

    /// A client, or a mirror for its clients, tells what was read without the shard: words of locations, any
    /// of which may be made up. The answer is the epoch of use.
    pub(crate) fn hear(&mut self, words: impl Iterator<Item = u64>) -> u64 {
        let locations = words.filter_map(Location::from_word);
        if let Some(cache) = &mut self.cache {
            self.counters.hints += locations.map(|location| cache.touch(location)).count() as u64;
            return cache.epoch.number;
        }
        let Some(heard) = &mut self.heard else { return 0 };
        self.counters.hints += locations.filter(|location| heard.note(*location)).count() as u64;
        heard.epoch()
    }

    /// Lets items go if an item of so many bytes is about to be put and there will soon be no room.
    #[inline]
    pub(crate) fn make_way(&mut self, item_bytes: usize) {
        if self.cache.is_some() {
            self.make_way_in(item_bytes);
        }
    }

    fn make_way_in(&mut self, item_bytes: usize) {
        let Some(class) = SizeClass::for_bytes(item_bytes) else { return };
        let (cache, kind) = (self.cache.as_mut().expect("asked before"), Kind::item(class));
        let of_class = &mut cache.classes[usize::from(class.0)];
        of_class.asked = cache.clock;
        let demand = &mut of_class.demand;
        if !cache.is_retrying {
            demand.note(self.image.epoch());
        }
        let least = 1 + u64::from(class.bytes() as u64 <= cache.ahead_bytes);
        let ahead = demand.ahead().min(cache.marks.live_of(class) / AHEAD_SHARE + least);
        for _ in 0..ENDS_A_WRITE {
            let may_grow = self.cache.as_ref().is_some_and(|cache| cache.balance.may_grow(class));
            if self.image.spare(kind) as u64 >= ahead || (may_grow && self.image.has_pages(kind)) {
                return;
            }
            if !self.end_one(class) {
                return;
            }
        }
    }

    /// Lets an item of a class go. `false`: there is none.
    fn end_one(&mut self, class: SizeClass) -> bool {
        let Some(cache) = &mut self.cache else { return false };
        let Some((location, mark)) = cache.choose(class) else { return false };
        self.let_go(location, mark, false);
        true
    }

    /// Lets an item go: for another one, or (`cleared`) because its segment is emptied.
    fn let_go(&mut self, location: Location, mark: Mark, cleared: bool) {
        let cache = self.cache.as_mut().expect("a cache lets it go");
        let age = cache.age(mark);
        cache.densities.note_end(mark.uses(), age);
        if !cleared {
            cache.balance.ended(location.class());
        }
        self.remove_at(location);
        self.counters.evicted += 1;
    }

    /// A slot for an item of so many bytes. If none of its class is free, a cache gives it a wider one that
    /// is: sizes that are rare need no slab of their own.
    #[inline]
    pub(crate) fn find_slot(&mut self, bytes: usize) -> Result<Location, NoRoom> {
        match self.image.allocate_item(bytes) {
            Err(no_room) if self.cache.is_some() => self.find_wider_slot(bytes).ok_or(no_room),
            found => found,
        }
    }

    #[cold]
    fn find_wider_slot(&mut self, bytes: usize) -> Option<Location> {
        let mut classes = wider(SizeClass::for_bytes(bytes)?);
        let class = classes.find(|class| self.image.has_slot(Kind::item(*class)))?;
        Some(Location::new(self.image.allocate(Kind::item(class)).ok()?, class))
    }

    /// Whether writes are being tried once more that found no room: what they ask for was counted when they
    /// came.
    pub fn set_retrying(&mut self, is_retrying: bool) {
        if let Some(cache) = &mut self.cache {
            cache.is_retrying = is_retrying;
        }
    }

    /// A write of a cache found no slot for an item of so many bytes.
    #[cold]
    pub(crate) fn note_no_slot(&mut self, item_bytes: usize) {
        let (Some(cache), Some(class)) = (&mut self.cache, SizeClass::for_bytes(item_bytes)) else { return };
        // What may be had without pages is in quarantine, or goes there now: a slot for each write that
        // waits.
        let waiting = cache.classes[usize::from(class.0)].waiting.note(self.image.epoch(), cache.is_retrying);
        let spare = self.image.spare(Kind::item(class));
        let comes = spare >= waiting
            || self.end_one(class)
            || spare > 0
            || wider(class).any(|wider| self.image.spare(Kind::item(wider)) > 0 || self.end_one(wider));
        self.note_lack(if comes { Lack::Slot } else { Lack::Pages });
    }

    /// A write found no room for pages of a large value.
    #[cold]
    pub(crate) fn note_no_run(&mut self, bytes: u64) {
        let freed = self.end_large(bytes);
        self.note_lack(if freed { Lack::Slot } else { Lack::Pages });
    }

    /// A write found no room in the index.
    #[cold]
    pub(crate) fn note_no_block(&mut self) {
        self.note_lack(Lack::Pages);
    }

    fn note_lack(&mut self, lack: Lack) {
        if let Some(cache) = &mut self.cache {
            cache.lack = Some(lack);
        }
    }

    /// Lets items with large values go, until so many bytes come back. `false`: there are none.
    fn end_large(&mut self, bytes: u64) -> bool {
        let runs = self.image.memory_use().runs;
        let mut any = false;
        while runs - self.image.memory_use().runs < bytes {
            let Some(cache) = &mut self.cache else { return false };
            let mut least: Option<(f32, usize, Mark)> = None;
            for _ in 0..SAMPLES {
                let Some(last) = (cache.large.len() as u64).checked_sub(1) else { return any };
                let which = (cache.random() % (last + 1)) as usize;
                let Some(mark) = cache.marks.get(cache.large[which]) else {
                    cache.large.swap_remove(which);
                    continue;
                };
                let worth = cache.worth(mark);
                if least.is_none_or(|(least, ..)| worth < least) {
                    least = Some((worth, which, mark));
                }
                if cache.large.len() == 1 {
                    break;
                }
            }
            let Some((_, which, mark)) = least.filter(|(_, which, _)| *which < cache.large.len()) else {
                continue;
            };
            let location = cache.large.swap_remove(which);
            // A small item may stand now where a large one was.
            let header = ItemHeader::from_word(self.image.slot(location).load(1));
            if header.is_some_and(|header| header.flags.has(ItemFlags::LARGE)) {
                self.let_go(location, mark, false);
                any = true;
            }
        }
        any
    }

    /// Whether a write that just found no room will find some, as this is a cache; begins to empty a segment,
    /// if that is what can help. It came when [`kelix_image::Image::openings`] was `openings`, and others may
    /// have taken what it waited for; not for ever.
    pub(crate) fn may_make_room(&mut self, no_room: NoRoom, openings: u64) -> bool {
        let Some(lack) = self.cache.as_mut().and_then(|cache| cache.lack.take()) else { return false };
        let patience = 2 * self.image.segments().count() as u64 + CLEARINGS_A_WRITE;
        match lack {
            Lack::Slot if self.image.memory_use().quarantined > 0 => no_room.wait,
            _ if self.image.openings() > openings + patience => false,
            // In segments with large values nothing else need go for their pages.
            _ => {
                self.hurry();
                no_room.wait && (self.image.is_evacuating() || self.clear_a_segment() || self.end_large(1))
            }
        }
    }
}
