//! Memory between size classes. A segment is emptied, its items let go or moved, and another one is given to the class that gains most by it.
//!
//! What a class would gain or lose by some bytes is estimated by the items that are worth least there. A segment that nobody needs but for
//! a better share is emptied only when the gain is clear, and not too often (`places`).

use kelix_image::{Kind, SegmentSummary};
use kelix_types::{Location, Place, SizeClass};

use super::Cache;
use crate::shard::Shard;

/// A look at all classes after so much of memory was let go.
const LOOKS_A_TURN: u64 = 64;
/// Items of a class that are looked at, and the share of them that counts: those that are worth least.
const SAMPLES: usize = 256;
const LEAST: usize = SAMPLES / 16;
/// How much a new look counts.
const NEW_SHARE: f32 = 0.3;
/// What is gained must be so much more than what is lost: at every look, or at every so many looks.
const CLEARLY: f32 = 3.0;
const A_LITTLE: f32 = 1.3;
const PATIENT_LOOKS: u32 = 16;
/// Epochs for which items of a segment that is emptied may wait for room elsewhere, and items that go for them at once.
const CLEARING_EPOCHS: u64 = 40;
const ENDS_AT_ONCE: u32 = 512;

/// What is known of the shares of classes.
pub(super) struct Balance {
    memory_bytes: u64,
    /// Bytes that were let go since the last look, and those of each class.
    ended: u64,
    ended_of: Vec<u64>,
    /// What a byte more is worth, by class.
    worth: Vec<f32>,
    /// Who may take pages while there are some: all, if there is none.
    grown: Option<SizeClass>,
    clearing: Option<Clearing>,
    /// Looks since a segment was emptied for a better share.
    looks: u32,
}

impl Balance {
    pub fn new(memory_bytes: u64) -> Balance {
        Balance {
            memory_bytes,
            ended: 0,
            ended_of: vec![0; SizeClass::COUNT],
            worth: vec![0.0; SizeClass::COUNT],
            grown: None,
            clearing: None,
            looks: 0,
        }
    }

    /// An item of a class was let go.
    pub fn ended(&mut self, class: SizeClass) {
        self.ended += class.bytes() as u64;
        self.ended_of[usize::from(class.0)] += class.bytes() as u64;
    }

    /// Whether a class may take pages.
    pub fn may_grow(&self, class: SizeClass) -> bool {
        self.grown.is_none_or(|grown| grown == class)
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

/// A segment, and what would be lost with it.
struct Candidate {
    segment: SegmentSummary,
    cost: f32,
}

impl Shard {
    /// Looks at the shares of classes, if it is time to.
    pub(crate) fn tend_cache(&mut self, now_ns: u64) {
        let Some(cache) = &mut self.cache else { return };
        let balance = &mut cache.balance;
        let due = balance.ended >= balance.memory_bytes / LOOKS_A_TURN;
        if !due || self.image.is_evacuating() {
            return;
        }
        balance.ended = 0;
        balance.looks += 1;
        // What it did not take by now it does not need.
        balance.grown = None;
        self.shift(now_ns);
        let balance = &mut self.cache.as_mut().expect("looked at").balance;
        balance.ended_of.fill(0);
    }

    /// Looks what each class is worth.
    fn weigh(&mut self) -> Vec<SizeClass> {
        let Some(cache) = &mut self.cache else { return Vec::new() };
        let classes: Vec<SizeClass> = cache.marks.classes().collect();
        for class in &classes {
            let spare = self.image.spare(Kind::item(*class)) as u64;
            // What is kept ahead is up to an eighth.
            let is_full = spare * 4 <= cache.marks.live_of(*class) + 16;
            let new = if is_full { cache.worth_of(*class) } else { 0.0 };
            let worth = &mut cache.balance.worth[usize::from(class.0)];
            *worth += if is_full && *worth > 0.0 { NEW_SHARE * (new - *worth) } else { new - *worth };
        }
        classes
    }

    /// Begins to empty a segment for the class that gains most, if that is clearly more than what is lost.
    fn shift(&mut self, now_ns: u64) {
        let classes = self.weigh();
        let Some(candidate) = self.cheapest() else { return };
        let cache = self.cache.as_mut().expect("weighed");
        let worth = |class: &SizeClass| cache.balance.worth[usize::from(class.0)];
        // Only those can gain that want more.
        let want = classes.into_iter().filter(|class| cache.balance.ended_of[usize::from(class.0)] > 0);
        let Some(best) = want.max_by(|one, other| worth(one).total_cmp(&worth(other))) else {
            return;
        };
        let gain = worth(&best) * candidate.segment.bytes as f32;
        let balance = &mut cache.balance;
        let enough = if balance.looks >= PATIENT_LOOKS { A_LITTLE } else { CLEARLY };
        let SegmentSummary { first_granule, .. } = candidate.segment;
        if gain <= enough * candidate.cost
            || !self.places.spend(candidate.segment.granules(), now_ns)
            || !self.image.begin_to_empty(first_granule)
        {
            return;
        }
        (balance.grown, balance.looks) = (Some(best), 0);
        let until_epoch = self.image.epoch() + CLEARING_EPOCHS;
        balance.clearing = Some(Clearing { until_epoch, asked_epoch: None });
    }

    /// Begins to empty a segment because a write needs pages, whatever they cost.
    pub(super) fn clear_a_segment(&mut self) -> bool {
        self.weigh();
        let Some(candidate) = self.cheapest() else { return false };
        if let Some(cache) = &mut self.cache {
            cache.balance.grown = None;
        }
        self.image.begin_to_empty(candidate.segment.first_granule)
    }

    /// A write waits for the segment that is being emptied, so items that find no room elsewhere at once go.
    pub(super) fn hurry(&mut self) {
        if let Some(cache) = &mut self.cache {
            cache.balance.clearing = None;
        }
    }

    /// The segment with which least is lost.
    fn cheapest(&self) -> Option<Candidate> {
        let cache = self.cache.as_ref()?;
        let mut all = vec![0u64; SizeClass::COUNT];
        let mut of: std::collections::HashMap<usize, Vec<(usize, u64)>> = std::collections::HashMap::new();
        for (first, class, live) in cache.marks.slabs() {
            let bytes = u64::from(live) * class.bytes() as u64;
            all[usize::from(class.0)] += bytes;
            let segment = self.image.segment_of(first);
            let classes = of.entry(segment.first_granule).or_default();
            match classes.iter_mut().find(|(which, _)| *which == usize::from(class.0)) {
                Some((_, sum)) => *sum += bytes,
                None => classes.push((usize::from(class.0), bytes)),
            }
        }
        let candidates = self.image.clearable().map(|(segment, others)| {
            let classes = of.get(&segment.first_granule).map_or(&[][..], |classes| classes);
            let cached: u64 = classes.iter().map(|(_, bytes)| *bytes).sum();
            let mut cost = 0.0;
            for (class, bytes) in classes {
                // The more a class loses, the more what is left is worth.
                let left = (all[*class] - bytes).max(1) as f32 / all[*class] as f32;
                cost += cache.balance.worth[*class] * *bytes as f32 / (left * left).max(1e-6);
            }
            // What cannot go has to be moved, and takes room elsewhere.
            let stays = others.saturating_sub(cached) as f32 / segment.bytes as f32;
            Candidate { segment, cost: cost / (1.0 - stays).max(0.1) }
        });
        candidates.min_by(|one, other| one.cost.total_cmp(&other.cost))
    }

    /// An item stands in the segment that is to be cleared, and would need so many bytes elsewhere: if it is worth more than what went lately,
    /// others make room for it.
    pub(crate) fn end_leaving(&mut self, location: Location, moved_bytes: usize) -> Leaving {
        let Some(cache) = &mut self.cache else { return Leaving::Moves };
        let Some(mark) = cache.marks.get(location) else { return Leaving::Moves };
        let bar = cache.classes[usize::from(location.class().0)].bar;
        if let Some(class) = SizeClass::for_bytes(moved_bytes).filter(|_| cache.worth(mark) > bar) {
            if self.image.has_ripe(Kind::item(class)) {
                return Leaving::Moves;
            }
            if self.make_way_for_leaving(location, class) {
                return Leaving::Waits;
            }
        }
        // It may have gone already, to make room for another.
        let Some(mark) = self.cache.as_mut().and_then(|cache| cache.marks.get(location)) else {
            return Leaving::Ended;
        };
        self.let_go(location, mark);
        Leaving::Ended
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
        if clearing.asked_epoch == Some(epoch) {
            return true;
        }
        clearing.asked_epoch = Some(epoch);
        let is_there = |first: Place| self.image.segment_of(first).first_granule == segment;
        let slabs = cache.marks.slabs().filter(|(first, of, _)| *of == location.class() && is_there(*first));
        let leaving: u32 = slabs.map(|(.., live)| live).sum();
        (0..leaving.min(ENDS_AT_ONCE)).all(|_| self.end_one(class))
    }

    /// Whether the objects of the segment that is being cleared wait for others' room.
    pub(crate) fn clearing_waits(&self) -> bool {
        let clearing = self.cache.as_ref().and_then(|cache| cache.balance.clearing.as_ref());
        clearing.is_some_and(|clearing| clearing.asked_epoch == Some(self.image.epoch()))
    }
}

/// What becomes of an object of a segment that is being emptied.
pub(crate) enum Leaving {
    /// It is gone.
    Ended,
    /// It is to be moved.
    Moves,
    /// It is to be moved when there is room.
    Waits,
}

/// A segment is being emptied for a better share, and there is time.
struct Clearing {
    until_epoch: u64,
    /// When items were let go for others to move last.
    asked_epoch: Option<u64>,
}
