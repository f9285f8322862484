//! What the shard does without being asked: the epoch, expiry, emptying sparse segments. Writes that wait for
//! memory have a file of their own, `waiting`.

use kelix_fabric::{Clock, Mailbox};
use kelix_types::limits::EPOCH_NS;

use crate::evacuation::Emptying;
use crate::shard::{Now, Shard};
use crate::stocktaking::SLOTS_A_STEP;

/// Items that end in one step.
const EXPIRIES_A_STEP: usize = 64;

impl Shard {
    /// Does what is due and says when something will be due again.
    pub(crate) fn upkeep(
        &mut self,
        now: Now,
        fabric: &mut (impl Mailbox + Clock),
        renewed: &mut Option<Vec<u64>>,
    ) -> Option<u64> {
        if let Some(mirrored) = &mut self.mirrored {
            return mirrored.upkeep(&mut self.store, now, || fabric.now_ns());
        }
        // First what gives memory back, then the writes that wait for it, oldest first, then the emptying,
        // which takes some itself.
        let expiry_due = self.expire(now);
        let stock_due = self.store.take_stock(SLOTS_A_STEP).then_some(now.monotonic_ns);
        let training_due = match self.store.index.maintain(&mut self.store.image) {
            Ok(more) => more.then_some(now.monotonic_ns),
            Err(_) => Some(now.monotonic_ns + EPOCH_NS),
        };
        let datasets_due = self.datasets.maintain(now, &mut self.store, &self.clients, renewed);
        let [retiring_due, purging_due, numbers_due] = datasets_due;
        let epoch = self.store.image.epoch();
        self.store.image.advance_epoch(now.monotonic_ns, || fabric.now_ns());
        let stepped = self.store.image.epoch() != epoch;
        if !self.parked.is_empty() {
            if stepped || self.parked.is_due(now) {
                self.parked.begin_retry(now);
                self.retry_parked(now, fabric);
            }
        } else if stepped {
            self.evacuation.compact(&mut self.store, now.monotonic_ns);
        }
        self.store.tend_cache(now.monotonic_ns, &mut self.evacuation.places);
        let evacuation_due = self.evacuate(now, fabric);
        let parked_due = self.parked.due();
        [
            self.store.image.epoch_due(),
            expiry_due,
            stock_due,
            training_due,
            retiring_due,
            purging_due,
            numbers_due,
            evacuation_due,
            parked_due,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Ends items whose time is over, some at a time. Writes that came when it was over wait for their
    /// memory.
    fn expire(&mut self, now: Now) -> Option<u64> {
        let expired = self.store.counters.expired;
        let first = self.store.expiries.next().unwrap_or(0);
        let due = self.store.end_expired(now, EXPIRIES_A_STEP);
        if self.store.counters.expired > expired {
            self.parked.wait_anew(first, self.store.image.epoch());
        }
        due
    }

    /// Moves some objects out of the segment that is being emptied.
    fn evacuate(&mut self, now: Now, fabric: &mut (impl Mailbox + Clock)) -> Option<u64> {
        match self.evacuation.advance(&mut self.store, !self.parked.is_empty()) {
            Emptying::Idle => None,
            Emptying::GoesOn => Some(now.monotonic_ns),
            Emptying::Waits => self.store.image.epoch_due(),
            Emptying::Ended => {
                // Its room is for those who waited: requests that come next are not to take it, nor to begin
                // the next emptying.
                self.retry_parked(now, fabric);
                let image = &self.store.image;
                (image.is_evacuating() && !image.is_emptied()).then_some(now.monotonic_ns)
            }
        }
    }
}
