//! What the shard does without being asked: the epoch, expiry, waiting writes, emptying sparse segments.

use std::cmp::Reverse;

use kelix_fabric::{Fabric, PeerId};
use kelix_image::{ItemFlags, ItemHeader, Kind, NoRoom};
use kelix_types::limits::{EPOCH_NS_MIN, QUARANTINE_EPOCHS, ROOM_WAIT_NS};
use kelix_types::{Guardian, Incarnation, Location, Place, TableId};
use kelix_wire::{FrameBuffer, ReplyHead, Request, encode_reply};

use crate::execute::Answer;
use crate::shard::{Now, Parked, Shard};

/// A segment is worth emptying for its memory's sake when at most this share of it is in use.
const SPARSE_PERCENT: u64 = 12;
/// A segment is worth emptying to make room when at most this share of it is in use.
const ROOM_PERCENT: u64 = 75;
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
    next: Place,
    slots: usize,
}

impl Shard {
    /// Does what is due and says when something will be due again.
    pub(crate) fn upkeep(&mut self, now: Now, fabric: &mut impl Fabric) -> Option<u64> {
        let epoch = self.image.epoch();
        let epoch_due = self.image.advance_epoch(now.monotonic_ns);
        if self.image.epoch() != epoch {
            self.parked_retry_ns = now.monotonic_ns;
            self.image.begin_evacuation(SPARSE_PERCENT, true);
        }
        let evacuation_due = self.evacuate(now);
        if !self.parked.is_empty() && now.monotonic_ns >= self.parked_retry_ns {
            self.parked_retry_ns = now.monotonic_ns + EPOCH_NS_MIN;
            self.retry_parked(now, fabric);
        }
        let expiry_due = self.expire(now);
        let parked_due = (!self.parked.is_empty()).then_some(self.parked_retry_ns);
        [epoch_due, expiry_due, evacuation_due, parked_due].into_iter().flatten().min()
    }

    /// Tries to get memory back by emptying a segment. Whether waiting is worth it.
    pub(crate) fn make_room(&mut self) -> bool {
        self.image.is_evacuating() || self.image.begin_evacuation(ROOM_PERCENT, false)
    }

    /// Tries what waits for memory once more. What has waited for long is refused, but not before all that was in
    /// quarantine when it came has had its time: a shard that was not given the processor lets no write pay for that.
    fn retry_parked(&mut self, now: Now, fabric: &mut impl Fabric) {
        for _ in 0..self.parked.len() {
            let mut parked = self.parked.pop_front().expect("counted");
            let waited = now.monotonic_ns - parked.since_ns;
            if waited > 3 * EPOCH_NS_MIN {
                // The quarantine alone did not help.
                self.make_room();
            }
            let before = self.parked.len();
            self.handle(now, fabric, parked.peer, &mut parked.payload);
            if self.parked.len() == before {
                continue;
            }
            self.counters.waited -= 1;
            let again = self.parked.back_mut().expect("just parked");
            // It keeps its place in time.
            (again.since_ns, again.since_epoch) = (parked.since_ns, parked.since_epoch);
            let quarantine_over = self.image.epoch() > parked.since_epoch + QUARANTINE_EPOCHS;
            if waited > ROOM_WAIT_NS && (quarantine_over || !self.image.waiting()) {
                let Parked { peer, payload, .. } = self.parked.pop_back().expect("just parked");
                self.refuse(fabric, peer, &payload);
            }
        }
    }

    fn refuse(&mut self, fabric: &mut impl Fabric, peer: PeerId, payload: &[u64]) {
        let Some(request) = Request::parse(payload) else { return };
        let Answer { status, version, location } = self.no_room(peer, request.head.op);
        let mut frame = FrameBuffer::default();
        encode_reply(&mut frame, ReplyHead { id: request.head.id, status, version, location });
        self.reply(fabric, peer, &mut frame);
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

    /// Ends items whose time is over, some at a time.
    fn expire(&mut self, now: Now) -> Option<u64> {
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
                self.counters.expired += 1;
            }
        }
        None
    }

    fn remove_key(&mut self, table: TableId, key: &[u8]) {
        let hash = self.index.hash(table, key);
        if let Some(found) = self.index.find(&self.image, hash, table, key) {
            self.remove(hash, found);
        }
    }

    /// Moves some objects out of the segment that is being emptied.
    fn evacuate(&mut self, now: Now) -> Option<u64> {
        if !self.image.is_evacuating() {
            return None;
        }
        let mut budget = if self.parked.is_empty() { SLOTS_A_STEP } else { SLOTS_A_STEP_URGENT };
        while budget > 0 {
            let slab = match self.slab_leaving.take() {
                Some(slab) => slab,
                None => match self.image.next_leaving_slab() {
                    Some((kind, next, slots)) => LeavingSlab { kind, next, slots },
                    None => {
                        self.image.finish_evacuation();
                        return None;
                    }
                },
            };
            let LeavingSlab { kind, mut next, mut slots } = slab;
            while slots > 0 && budget > 0 {
                if let Err(no_room) = self.move_object(kind, next) {
                    if no_room.wait && self.image.memory_use().quarantined > 0 {
                        self.slab_leaving = Some(LeavingSlab { kind, next, slots });
                        return Some(now.monotonic_ns + EPOCH_NS_MIN);
                    }
                    self.image.abandon_evacuation();
                    return None;
                }
                next = next.plus(kind.slot_bytes());
                slots -= 1;
                budget -= 1;
            }
            if slots > 0 {
                self.slab_leaving = Some(LeavingSlab { kind, next, slots });
            }
        }
        Some(now.monotonic_ns)
    }

    /// Moves one object, if there is a live one at `place`.
    ///
    /// An item is moved like it is updated: it gets a new incarnation, so that no pair of a place and an incarnation
    /// ever stands for two objects. Its version, which a compare-and-set may still know, moves into a word of its own.
    fn move_object(&mut self, kind: Kind, place: Place) -> Result<(), NoRoom> {
        let Some(class) = kind.class() else { return self.index.relocate(&mut self.image, kind, place) };
        let from = Location::new(place, class);
        if !Guardian(self.image.slot(from).load(0)).is_live() {
            return Ok(());
        }
        let (header, version, key, expires, tail) = self.copy_item(from, |item| {
            let header = item.header();
            let tail = item.words()[header.key_start() / 8..header.item_bytes().div_ceil(8)].to_vec();
            (header, item.version(), item.key().to_vec(), item.expiry(), tail)
        });
        let hash = self.index.hash(header.table, &key);
        let found = self.index.find(&self.image, hash, header.table, &key).expect("live means reachable");
        debug_assert_eq!(found.location, from);
        let moved = ItemHeader { flags: header.flags.with(ItemFlags::MOVED), ..header };
        let to = self.image.allocate_item(moved.item_bytes())?;
        let incarnation = self.image.next_incarnation();
        let slot = self.image.slot(to);
        slot.copy_in(1, &[moved.word(), version.0]);
        if let Some(expires) = expires {
            slot.store(moved.key_start() / 8 - 1, expires);
        }
        slot.copy_in(moved.key_start() / 8, &tail);
        self.drop_live(from);
        slot.publish(0, incarnation.live().0);
        self.index.replace(&self.image, found, to);
        // Runs of a large value stay where they are and now belong to the moved header.
        self.image.release_item(from);
        if let Some(expires) = expires {
            self.note_expiry(expires, to, incarnation);
        }
        self.counters.evacuated += 1;
        Ok(())
    }
}
