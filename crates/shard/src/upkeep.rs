//! What the shard does without being asked: the epoch, expiry, emptying sparse segments. Writes that wait for memory
//! have a file of their own, `waiting`.

use std::cmp::Reverse;

use kelix_fabric::Fabric;
use kelix_image::{ItemFlags, ItemHeader, Kind, NoRoom};
use kelix_types::limits::EPOCH_NS;
use kelix_types::{Guardian, Incarnation, Location, Place, TableId, mark};

use crate::cache::TablePurge;
use crate::shard::{Now, Shard};

/// A segment is emptied for its memory's sake when at most this share of it is in use, or of one of many that waste some.
const SPARSE_PERCENT: u64 = 12;
const SPARSE_PERCENT_OF_MANY: u64 = 80;
/// Slots looked at in one step while a segment is emptied: little when others wait, more when a write waits for it.
const SLOTS_A_STEP: usize = 64;
const SLOTS_A_STEP_URGENT: usize = 1024;

/// Items that end in one step.
const EXPIRIES_A_STEP: usize = 64;
/// Notes of expiries that are kept without looking which are still of use.
pub(crate) const EXPIRY_NOTES_MIN: usize = 1024;

/// A slab that is being emptied.
pub(crate) struct LeavingSlab {
    kind: Kind,
    first: Place,
    next: Place,
    slots: usize,
}

impl Shard {
    /// Does what is due and says when something will be due again.
    pub(crate) fn upkeep(
        &mut self,
        now: Now,
        fabric: &mut impl Fabric,
        renewed: &mut Option<Vec<u64>>,
    ) -> Option<u64> {
        // First what gives memory back, then the writes that wait for it, oldest first, then the emptying, which takes
        // some itself.
        let expiry_due = self.expire(now);
        let training_due = match self.index.maintain(&mut self.image) {
            Ok(more) => more.then_some(now.monotonic_ns),
            Err(_) => Some(now.monotonic_ns + EPOCH_NS),
        };
        let generations_due = self.tend_generations(now);
        let leaving_due = self.empty_tables(now);
        let numbers_due = if self.numbers_may_return() { self.return_numbers(now, renewed) } else { None };
        let epoch = self.image.epoch();
        self.image.advance_epoch(now.monotonic_ns, || fabric.now_ns());
        let stepped = self.image.epoch() != epoch;
        if !self.parked.is_empty() {
            if stepped || now.monotonic_ns >= self.parked_retry_ns {
                self.parked_retry_ns = now.monotonic_ns + EPOCH_NS;
                self.retry_parked(now, fabric);
            }
        } else if stepped {
            self.compact(now.monotonic_ns);
        }
        self.tend_cache(now.monotonic_ns);
        let evacuation_due = self.evacuate(now, fabric);
        let parked_due = (!self.parked.is_empty()).then_some(self.parked_retry_ns);
        [
            self.image.epoch_due(),
            expiry_due,
            training_due,
            generations_due,
            leaving_due,
            numbers_due,
            evacuation_due,
            parked_due,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Begins to empty a segment that is sparse, so that its memory serves other sizes of values, or the system. In a cache
    /// what is free is in use again soon.
    fn compact(&mut self, now_ns: u64) {
        let is_sparse = self.cache.is_none() && self.image.is_wasteful();
        let share_percent = if is_sparse { SPARSE_PERCENT_OF_MANY } else { SPARSE_PERCENT };
        let Some(segment) = self.image.sparsest(share_percent) else { return };
        if self.places.spend(segment.granules(), now_ns) {
            mark!("segment emptied for its memory's sake");
            self.image.begin_to_empty(segment.first_granule);
        }
    }

    /// Remembers when an item ends. Notes of items that were replaced since are cleared out whenever the notes have
    /// doubled.
    pub(crate) fn note_expiry(&mut self, expires: u64, location: Location, incarnation: Incarnation) {
        if self.expiries.len() >= self.expiries_most {
            let mut expiries = std::mem::take(&mut self.expiries);
            expiries.retain(|Reverse((_, location, incarnation))| self.is_current(*location, *incarnation));
            self.expiries_most = 2 * expiries.len() + EXPIRY_NOTES_MIN;
            self.expiries = expiries;
        }
        self.expiries.push(Reverse((expires, location.word(), incarnation.0)));
    }

    /// Whether the object of a note is still the live one there. Its segment may be retired since.
    fn is_current(&self, location: u64, incarnation: u64) -> bool {
        let location = Location::from_word(location).expect("a location this shard noted");
        let word = self.image.map().words(location.place(), 1).map(|slot| slot.load(0));
        word == Some(Incarnation(incarnation).live().0)
    }

    /// Ends items whose time is over, some at a time. Writes that came when it was over wait for their memory.
    fn expire(&mut self, now: Now) -> Option<u64> {
        let expired = self.counters.expired;
        let first = self.expiries.peek().map_or(0, |Reverse((expires, ..))| *expires);
        let due = self.end_expired(now);
        if self.counters.expired > expired {
            let epoch = self.image.epoch();
            self.parked.iter_mut().for_each(|parked| parked.wait_anew(first, epoch));
        }
        due
    }

    fn end_expired(&mut self, now: Now) -> Option<u64> {
        let mut budget = EXPIRIES_A_STEP;
        while let Some(&Reverse((expires, location, incarnation))) = self.expiries.peek() {
            if expires > now.wall_ns {
                return Some(now.monotonic_ns + (expires - now.wall_ns));
            }
            if budget == 0 {
                return Some(now.monotonic_ns);
            }
            budget -= 1;
            self.expiries.pop();
            if self.is_current(location, incarnation) {
                let location = Location::from_word(location).expect("a location this shard noted");
                let (table, key) =
                    self.copy_item(location, |item| (item.header().table, item.key().to_vec()));
                self.remove_key(table, &key);
                mark!("item ended");
                self.counters.expired += 1;
            }
        }
        None
    }

    pub(crate) fn remove_key(&mut self, table: TableId, key: &[u8]) {
        let hash = self.index.hash(table, key);
        if let Some(found) = self.index.find(&self.image, hash, table, key) {
            self.remove(hash, (table, key), found);
        }
    }

    /// Moves some objects out of the segment that is being emptied.
    fn evacuate(&mut self, now: Now, fabric: &mut impl Fabric) -> Option<u64> {
        if !self.image.is_evacuating() || self.image.is_emptied() {
            return None;
        }
        self.image.set_moving(true);
        let moved = self.move_some();
        self.image.set_moving(false);
        match moved {
            Ok(true) => {
                self.image.finish_evacuation();
            }
            Ok(false) => return Some(now.monotonic_ns),
            Err(_) if self.clearing_waits() || self.image.evacuation_waits() => {
                return self.image.epoch_due();
            }
            Err(_) => {
                self.slab_leaving = None;
                self.image.abandon_evacuation();
            }
        }
        // Either way there is room that was not there before, and it is for those who waited: requests that come next are
        // not to take it, nor to begin the next emptying.
        self.retry_parked(now, fabric);
        (self.image.is_evacuating() && !self.image.is_emptied()).then_some(now.monotonic_ns)
    }

    /// Goes on with emptying where it ended last. Whether nothing is left to be moved; `Err`: an object finds no room.
    fn move_some(&mut self) -> Result<bool, NoRoom> {
        let mut budget = if self.parked.is_empty() { SLOTS_A_STEP } else { SLOTS_A_STEP_URGENT };
        while budget > 0 {
            let Some(mut slab) = self.slab_leaving.take().or_else(|| self.next_leaving_slab()) else {
                return Ok(true);
            };
            while slab.slots > 0 && budget > 0 {
                if let Err(no_room) = self.move_object(slab.kind, slab.next) {
                    self.slab_leaving = Some(slab);
                    return Err(no_room);
                }
                slab.next = slab.next.plus(slab.kind.slot_bytes());
                slab.slots -= 1;
                budget -= 1;
            }
            match slab.slots {
                0 => self.forget_slab(slab.first),
                _ => self.slab_leaving = Some(slab),
            }
        }
        Ok(false)
    }

    fn next_leaving_slab(&mut self) -> Option<LeavingSlab> {
        self.image.next_leaving_slab().map(|(kind, first, slots)| LeavingSlab {
            kind,
            first,
            next: first,
            slots,
        })
    }

    /// Moves one object, if there is a live one at `place`.
    ///
    /// An item is moved like it is updated: it gets a new incarnation, so that no pair of a place and an incarnation
    /// ever stands for two objects. Its version, which a compare-and-set may still know, moves into a word of its own.
    fn move_object(&mut self, kind: Kind, place: Place) -> Result<(), NoRoom> {
        let Some(class) = kind.class() else { return self.index.relocate(&mut self.image, kind, place) };
        let from = Location::new(place, class);
        if self.index.relocate_fences(&mut self.image, from)? {
            return Ok(());
        }
        if !Guardian(self.image.slot(from).load(0)).is_live() {
            return Ok(());
        }
        let (header, version, key, options, tail) = self.copy_item(from, |item| {
            let header = item.header();
            let tail = item.words()[header.key_start() / 8..header.item_bytes().div_ceil(8)].to_vec();
            (header, item.version(), item.key().to_vec(), item.options(), tail)
        });
        let moved = ItemHeader { flags: header.flags.with(ItemFlags::MOVED), ..header };
        let mut place = None;
        for stuck in [false, true] {
            match self.end_leaving(from, moved.item_bytes(), stuck) {
                TablePurge::Ended => return Ok(()),
                TablePurge::Waits => return Err(NoRoom { wait: true }),
                TablePurge::Moves => {}
            }
            place = self.image.allocate_item(moved.item_bytes()).ok();
            if place.is_some() {
                break;
            }
        }
        let to = place.ok_or(NoRoom { wait: true })?;
        let hash = self.index.hash(header.table, &key);
        let found = self.index.find(&self.image, hash, header.table, &key).expect("live means reachable");
        debug_assert_eq!(found.location, from);
        let incarnation = self.image.next_incarnation();
        let slot = self.image.change_slot(to);
        slot.copy_in(1, &[moved.word(), version.0]);
        options.words().enumerate().for_each(|(index, word)| slot.store(3 + index, word));
        slot.copy_in(moved.key_start() / 8, &tail);
        self.drop_live(from);
        slot.publish(0, incarnation.live().0);
        self.index.replace(&self.image, header.table, found, to);
        self.noted.forget(header.table);
        self.note_moved(from, to, moved);
        // Runs of a large value stay where they are and now belong to the moved header.
        self.image.release_item(from);
        if let Some(expires) = options.expires {
            self.note_expiry(expires, to, incarnation);
        }
        mark!("item moved");
        self.counters.evacuated += 1;
        Ok(())
    }
}
