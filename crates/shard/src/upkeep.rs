//! What the shard does without being asked: the epoch, expiry, waiting writes, emptying sparse segments.

use kelix_fabric::{Fabric, PeerId};
use kelix_image::{Kind, NoRoom};
use kelix_types::limits::{EPOCH_NS_MIN, ROOM_WAIT_NS};
use kelix_types::{Guardian, Location, Place, TableId};
use kelix_wire::{FrameBuffer, ReplyHead, Request, Status, encode_reply};

use crate::shard::{Now, Shard};

/// A segment is worth emptying for its memory's sake when at most this share of it is in use.
const SPARSE_PERCENT: u64 = 12;
/// A segment is worth emptying to make room when at most this share of it is in use.
const ROOM_PERCENT: u64 = 75;
/// Slots looked at in one step while a segment is emptied: little when others wait, more when a write waits for it.
const SLOTS_A_STEP: usize = 64;
const SLOTS_A_STEP_URGENT: usize = 1024;

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

    fn retry_parked(&mut self, now: Now, fabric: &mut impl Fabric) {
        for _ in 0..self.parked.len() {
            let mut parked = self.parked.pop_front().expect("counted");
            let waited = now.monotonic_ns - parked.since_ns;
            if waited > ROOM_WAIT_NS {
                self.refuse(fabric, parked.peer, &parked.payload);
                continue;
            }
            if waited > 3 * EPOCH_NS_MIN {
                // The quarantine alone did not help.
                self.make_room();
            }
            let before = self.parked.len();
            self.handle(now, fabric, parked.peer, &mut parked.payload);
            if self.parked.len() > before {
                // Parked again: it keeps its place in time.
                self.counters.waited -= 1;
                self.parked.back_mut().expect("just parked").since_ns = parked.since_ns;
            }
        }
    }

    fn refuse(&mut self, fabric: &mut impl Fabric, peer: PeerId, payload: &[u64]) {
        let Some(request) = Request::parse(payload) else { return };
        self.counters.refused += 1;
        let mut frame = FrameBuffer::default();
        let head = ReplyHead { id: request.head.id, status: Status::NoRoom, version: 0, location: 0 };
        encode_reply(&mut frame, head);
        self.reply(fabric, peer, &mut frame);
    }

    /// Ends items whose time is over.
    fn expire(&mut self, now: Now) -> Option<u64> {
        while let Some(&std::cmp::Reverse((expires, location, incarnation))) = self.expiries.peek() {
            if expires > now.wall_ns {
                return Some(now.monotonic_ns + (expires - now.wall_ns));
            }
            self.expiries.pop();
            let location = Location::from_word(location).expect("a location this shard noted");
            // The segment may be retired since, the item replaced, deleted or moved.
            let Some(slot) = self.image.map().words(location.place(), 1) else { continue };
            let guardian = Guardian(slot.load(0));
            if guardian.is_live() && guardian.incarnation().0 == incarnation {
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
    /// A moved item keeps its incarnation, and so its version: the place it leaves is in a segment that will be
    /// retired, so the pair of place and incarnation still never comes back.
    fn move_object(&mut self, kind: Kind, place: Place) -> Result<(), NoRoom> {
        let Some(class) = kind.class() else { return self.index.relocate(&mut self.image, kind, place) };
        let from = Location::new(place, class);
        let guardian = Guardian(self.image.slot(from).load(0));
        if !guardian.is_live() {
            return Ok(());
        }
        let (table, key, expires) =
            self.copy_item(from, |item| (item.header().table, item.key().to_vec(), item.expiry()));
        let hash = self.index.hash(table, &key);
        let found = self.index.find(&self.image, hash, table, &key).expect("live means reachable");
        debug_assert_eq!(found.location, from);
        let to = Location::new(self.image.allocate(kind)?, class);
        let mut body = std::mem::take(&mut self.scratch);
        body.clear();
        body.resize(class.words() - 1, 0);
        self.image.slot(from).copy_out(1, &mut body);
        self.image.slot(to).copy_in(1, &body);
        self.scratch = body;
        self.drop_live(from);
        self.image.slot(to).publish(0, guardian.0);
        self.index.replace(&self.image, found, to);
        // Runs of a large value stay where they are and now belong to the moved header.
        self.image.release_item(from);
        if let Some(expires) = expires {
            self.expiries.push(std::cmp::Reverse((expires, to.word(), guardian.incarnation().0)));
        }
        self.counters.evacuated += 1;
        Ok(())
    }
}
