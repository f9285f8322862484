//! Memory between size classes. A segment is emptied for the classes that gain most by its memory: items of
//! classes that are worth clearly less go, those of all others are moved, if need be to pages of their own.
//!
//! What a byte of a class is worth is estimated by the items that are worth least there, and how much a class
//! wants by what it let go since the last time. A segment that no write needs is emptied not too often
//! (`places`).

use std::collections::HashMap;

use kelix_image::{Kind, SegmentSummary};
use kelix_types::limits::{PAGE_BYTES, QUARANTINE_EPOCHS};
use kelix_types::{Location, Place, SizeClass};

use super::Cache;
use crate::places::Places;
use crate::store::Store;

/// A look at all classes after so much of memory was let go.
const LOOKS_A_TURN: u64 = 64;
/// Items of a class that are looked at, and the share of them that counts: those that are worth least.
const SAMPLES: usize = 256;
const LEAST: usize = SAMPLES / 16;
/// How much a new look counts.
const NEW_SHARE: f32 = 0.3;
/// What a byte brings must be so many times what is lost with it.
const CLEARLY: f32 = 3.0;
/// This share of a segment is to be wanted, and to come free, before it is emptied.
const RELEASED_SHARE: u64 = 4;
/// Epochs for which items of a segment that is emptied may wait for room elsewhere: some for each class, one
/// after the other; and if a write waits for the segment.
const CLEARING_EPOCHS: u64 = 200;
const HURRIED_EPOCHS: u64 = 8;
/// Items that go for them at once.
const ENDS_AT_ONCE: u32 = 512;

/// What is known of the shares of classes.
pub(super) struct Balance {
    memory_bytes: u64,
    /// Bytes that were let go since the last look, and those of each class since it got more memory.
    ended: u64,
    ended_of: Vec<u64>,
    /// What a byte more is worth, by class. 0: it has more than it needs.
    worth: Vec<f32>,
    /// Classes that are worth less take no pages.
    grows_from: f32,
    clearing: Option<Clearing>,
}

impl Balance {
    pub fn new(memory_bytes: u64) -> Balance {
        Balance {
            memory_bytes,
            ended: 0,
            ended_of: vec![0; SizeClass::COUNT],
            worth: vec![0.0; SizeClass::COUNT],
            grows_from: 0.0,
            clearing: None,
        }
    }

    /// An item of a class was let go.
    pub fn ended(&mut self, class: SizeClass) {
        self.ended += class.bytes() as u64;
        self.ended_of[usize::from(class.0)] += class.bytes() as u64;
    }

    fn worth_of(&self, class: SizeClass) -> f32 {
        self.worth[usize::from(class.0)]
    }

    /// Whether a class may take pages.
    pub fn may_grow(&self, class: SizeClass) -> bool {
        let worth = self.worth_of(class);
        worth == 0.0 || worth >= self.grows_from
    }

    /// What the classes that want more are worth, so many bytes of it: the least of those.
    fn wanted(&self, bytes: u64) -> Option<f32> {
        let mut want: Vec<(f32, u64)> =
            self.worth.iter().copied().zip(self.ended_of.iter().copied()).collect();
        want.retain(|(worth, ended)| *worth > 0.0 && *ended > 0);
        want.sort_unstable_by(|one, other| other.0.total_cmp(&one.0));
        let mut sum = 0;
        let enough = |(_, ended): &&(f32, u64)| {
            sum += ended;
            sum >= bytes
        };
        want.iter().find(enough).map(|(worth, _)| *worth)
    }
}

impl Cache {
    /// What a byte of a class is worth: that of the items that would go first.
    fn worth_of(&mut self, class: SizeClass) -> f32 {
        let mut found = Vec::with_capacity(SAMPLES);
        for _ in 0..2 * SAMPLES {
            let random = self.random();
            if let Some((_, mark)) = self.marks.sample(class, random).filter(|_| found.len() < SAMPLES) {
                // Where little was learnt, what was not used for long is worth little.
                let uses = (u64::from(mark.age(self.moment())) << self.moment_shift) + 1;
                let guess = 1.0 / uses as f32;
                let learnt = self.worth(mark) / (1u64 << self.step_shift) as f32;
                found.push((learnt * guess).sqrt().clamp(guess / 4.0, guess * 4.0));
            }
        }
        found.sort_unstable_by(f32::total_cmp);
        let least = &found[..found.len().div_ceil(SAMPLES / LEAST)];
        let mean = least.iter().sum::<f32>() / least.len().max(1) as f32;
        mean / class.bytes() as f32
    }
}

/// A segment that may be emptied.
struct Candidate {
    segment: SegmentSummary,
    classes: Vec<Part>,
    /// Bytes that cannot go, or are free.
    stays: u64,
}

/// What a segment holds of a class.
struct Part {
    class: SizeClass,
    /// Bytes of items, and of the slabs that they need elsewhere.
    live: u64,
    slabs: u64,
    /// There is no more of a class that is in demand, so that its next item would lack a slot.
    is_last: bool,
}

/// What is worth less goes where that bar is the highest one: everything.
const ALL: f32 = f32::INFINITY;

impl Part {
    /// Whether the items are let go, if those are that are worth less than that. Else they are moved.
    fn goes(&self, bar: f32, balance: &Balance) -> bool {
        let worth = balance.worth_of(self.class);
        bar == ALL || worth > 0.0 && worth < bar && !self.is_last
    }
}

impl Candidate {
    /// How many bytes come free, beside those that are, if the items go that are worth less than that, and
    /// what is lost with them.
    fn release(&self, bar: f32, balance: &Balance) -> (u64, f32) {
        let (mut held, mut cost) = (self.stays, 0.0);
        for part in &self.classes {
            match part.goes(bar, balance) {
                true => cost += balance.worth_of(part.class) * part.live as f32,
                false => held += part.slabs,
            }
        }
        (self.segment.bytes.saturating_sub(held), cost)
    }

    /// Says that it is emptied, and that items that find no room elsewhere wait for some until that epoch.
    fn clear(&self, bar: f32, balance: &mut Balance, until_epoch: u64) {
        let mut loses = [false; SizeClass::COUNT];
        for part in &self.classes {
            loses[usize::from(part.class.0)] = part.goes(bar, balance);
        }
        let first_granule = self.segment.first_granule;
        balance.clearing = Some(Clearing { first_granule, loses, until_epoch, asked_epoch: None });
    }
}

impl Store {
    /// Looks at the shares of classes, if it is time to.
    pub(crate) fn tend_cache(&mut self, now_ns: u64, places: &mut Places) {
        let Some(cache) = &mut self.cache else { return };
        let balance = &mut cache.balance;
        let due = balance.ended >= balance.memory_bytes / LOOKS_A_TURN;
        if !due || self.image.is_evacuating() {
            return;
        }
        balance.ended = 0;
        // What they did not take by now they do not need.
        balance.grows_from = 0.0;
        self.weigh();
        self.shift(now_ns, places);
    }

    /// Looks what each class is worth.
    fn weigh(&mut self) {
        let Some(cache) = &mut self.cache else { return };
        let classes: Vec<SizeClass> = cache.marks.classes().collect();
        for class in classes {
            let spare = self.image.spare(Kind::item(class)) as u64;
            // What is kept ahead is less.
            let is_full = spare * 4 <= cache.marks.live_of(class) + 16;
            let new = if is_full { cache.worth_of(class) } else { 0.0 };
            let worth = &mut cache.balance.worth[usize::from(class.0)];
            *worth += if is_full && *worth > 0.0 { NEW_SHARE * (new - *worth) } else { new - *worth };
        }
    }

    /// Begins to empty a segment for the classes that gain most, if that is clearly more than what is lost.
    fn shift(&mut self, now_ns: u64, places: &mut Places) {
        let candidates = self.candidates();
        let balance = &mut self.cache.as_mut().expect("weighed").balance;
        let Some(largest) = candidates.iter().map(|candidate| candidate.segment.bytes).max() else { return };
        let Some(gain) = balance.wanted(largest / RELEASED_SHARE) else { return };
        let bar = gain / CLEARLY;
        let weighed = candidates.iter().filter_map(|candidate| {
            let (bytes, cost) = candidate.release(bar, balance);
            let is_much = bytes >= candidate.segment.bytes / RELEASED_SHARE;
            is_much.then_some((candidate, gain * bytes as f32 - cost))
        });
        let Some((best, _)) = weighed.max_by(|one, other| one.1.total_cmp(&other.1)) else { return };
        if !places.spend(best.segment.granules(), now_ns)
            || !self.image.begin_to_empty(best.segment.first_granule)
        {
            return;
        }
        best.clear(bar, balance, self.image.epoch() + CLEARING_EPOCHS);
        balance.grows_from = bar;
        balance.ended_of.fill(0);
    }

    /// Begins to empty a segment because a write needs pages: the one with which least is lost.
    pub(super) fn clear_a_segment(&mut self) -> bool {
        self.weigh();
        let candidates = self.candidates();
        let Some(cache) = &mut self.cache else { return false };
        let balance = &mut cache.balance;
        let weighed = candidates.iter().filter_map(|candidate| {
            // As few classes lose their items as make half of it come free.
            let mut bars: Vec<f32> =
                candidate.classes.iter().map(|part| balance.worth_of(part.class)).collect();
            bars.sort_unstable_by(f32::total_cmp);
            let is_much = |bar: &f32| candidate.release(*bar, balance).0 >= candidate.segment.bytes / 2;
            let bar = bars.into_iter().find(is_much).unwrap_or(ALL);
            let (bytes, cost) = candidate.release(bar, balance);
            // Where next to nothing comes free, other objects only take another place.
            let is_of_use = bytes >= candidate.segment.bytes / RELEASED_SHARE;
            is_of_use.then_some((candidate, bar, cost / bytes as f32))
        });
        let cheaper = |one: &(_, f32, f32), other: &(_, f32, f32)| one.2.total_cmp(&other.2);
        let Some((best, bar, _)) = weighed.min_by(cheaper) else { return false };
        best.clear(bar, balance, self.image.epoch() + HURRIED_EPOCHS);
        balance.grows_from = 0.0;
        self.image.begin_to_empty(best.segment.first_granule)
    }

    /// A write waits for the segment that is being emptied, so items that find no room elsewhere soon go.
    pub(super) fn hurry(&mut self) {
        if let Some(clearing) = self.cache.as_mut().and_then(|cache| cache.balance.clearing.as_mut()) {
            clearing.until_epoch = clearing.until_epoch.min(self.image.epoch() + HURRIED_EPOCHS);
        }
    }

    /// The segments that can be emptied, and what stands there.
    fn candidates(&self) -> Vec<Candidate> {
        let Some(cache) = &self.cache else { return Vec::new() };
        // Slabs, and items in them, by segment and class.
        let mut of: HashMap<(usize, u8), (u64, u64)> = HashMap::new();
        for (first, class, live) in cache.marks.slabs() {
            let (slabs, items) = of.entry((self.image.segment_of(first).first_granule, class.0)).or_default();
            (*slabs, *items) = (*slabs + 1, *items + u64::from(live));
        }
        let candidates = self.image.clearable().map(|(segment, live, free)| {
            let part = |class: SizeClass| {
                let (slabs, items) = *of.get(&(segment.first_granule, class.0))?;
                let slab_bytes = Kind::item(class).slab_pages() * PAGE_BYTES;
                let slots = slab_bytes / class.bytes() as u64;
                let spare_here = (slabs * slots).saturating_sub(items);
                let spare = (self.image.spare(Kind::item(class)) as u64).saturating_sub(spare_here);
                // What little is free of a class that wants more is about to be used.
                let is_full = cache.balance.worth_of(class) > 0.0;
                let needed = if is_full { slabs } else { items.saturating_sub(spare).div_ceil(slots) };
                let is_all = slabs == 1 && items == cache.marks.live_of(class);
                Some(Part {
                    class,
                    live: items * class.bytes() as u64,
                    slabs: needed * slab_bytes,
                    is_last: is_all && cache.is_in_demand(class),
                })
            };
            let classes: Vec<Part> = (0..SizeClass::COUNT as u8).map(SizeClass).filter_map(part).collect();
            let stays = free + live.saturating_sub(classes.iter().map(|part| part.live).sum());
            Candidate { segment, classes, stays }
        });
        candidates.collect()
    }

    /// An item stands in a segment that is being emptied, and needs so many bytes elsewhere. If its class
    /// loses what stands there, or there is no room (`stuck`), it stays only if it is worth more than what
    /// went lately, and others make room for it.
    pub(crate) fn end_leaving(
        &mut self,
        location: Location,
        moved_bytes: usize,
        stuck: bool,
    ) -> MoveDecision {
        let (Some(cache), Some(class)) = (&mut self.cache, SizeClass::for_bytes(moved_bytes)) else {
            return MoveDecision::Moves;
        };
        let segment = self.image.segment_of(location.place()).first_granule;
        let clearing = cache.balance.clearing.as_ref().filter(|clearing| clearing.first_granule == segment);
        let loses = clearing.is_some_and(|clearing| clearing.loses[usize::from(location.class().0)]);
        let mark = cache.marks.get(location);
        if !stuck && (!loses || mark.is_none()) {
            return MoveDecision::Moves;
        }
        let bar = cache.classes[usize::from(location.class().0)].bar;
        if mark.is_none_or(|mark| cache.worth(mark) > bar) {
            if !stuck && self.image.has_slot(Kind::item(class)) {
                return MoveDecision::Moves;
            }
            if self.make_way_for_leaving(location, class) {
                return MoveDecision::Waits;
            }
        }
        // It may have gone already, to make room for another.
        match self.cache.as_mut().and_then(|cache| cache.marks.get(location)) {
            Some(mark) => self.let_go(location, mark, true),
            // It may not go, and there is no room.
            None if mark.is_none() => return MoveDecision::Moves,
            None => {}
        }
        MoveDecision::Ended
    }

    /// Lets as many items of a class go as are to move there, if there is time to wait for their room.
    fn make_way_for_leaving(&mut self, location: Location, class: SizeClass) -> bool {
        let epoch = self.image.epoch();
        let segment = self.image.segment_of(location.place()).first_granule;
        let Some(cache) = &mut self.cache else { return false };
        let Some(clearing) = &mut cache.balance.clearing else { return false };
        if epoch >= clearing.until_epoch {
            return false;
        }
        if clearing.waits(epoch) {
            return true;
        }
        clearing.asked_epoch = Some(epoch);
        let is_there = |first: Place| self.image.segment_of(first).first_granule == segment;
        let slabs = cache.marks.slabs().filter(|(first, of, _)| *of == location.class() && is_there(*first));
        let leaving: u32 = slabs.map(|(.., live)| live).sum();
        (0..leaving.clamp(1, ENDS_AT_ONCE)).all(|_| self.end_one(class))
    }

    /// Whether the objects of the segment that is being cleared wait for others' room.
    pub(crate) fn clearing_waits(&self) -> bool {
        let clearing = self.cache.as_ref().and_then(|cache| cache.balance.clearing.as_ref());
        clearing.is_some_and(|clearing| clearing.waits(self.image.epoch()))
    }
}

/// What becomes of an object of a segment that is being emptied.
pub(crate) enum MoveDecision {
    /// It is gone.
    Ended,
    /// It is to be moved.
    Moves,
    /// It is to be moved when there is room.
    Waits,
}

/// The segment that is being emptied.
struct Clearing {
    first_granule: usize,
    /// Whose items go.
    loses: [bool; SizeClass::COUNT],
    /// For how long they may wait for others' room.
    until_epoch: u64,
    /// When items were let go for others to move last.
    asked_epoch: Option<u64>,
}

impl Clearing {
    /// Whether the room of items that went is still in quarantine.
    fn waits(&self, epoch: u64) -> bool {
        self.asked_epoch.is_some_and(|asked| epoch < asked + QUARANTINE_EPOCHS)
    }
}
