//! The quarantine of dead memory, and the reclamation epoch by which it is told.

use kelix_types::limits::{self, QUARANTINE_EPOCHS};
use kelix_types::mark;

use super::Image;
use crate::header::header_word;
use crate::words::full_fence;

/// What was in quarantine is forgotten by this share an epoch.
const QUARANTINED_FORGET_SHARE: u64 = 16;

impl Image {
    #[inline]
    pub(super) fn mark_dead(&mut self, bytes: u64) {
        self.use_.quarantined += bytes;
        match self.dead.back_mut() {
            Some((epoch, sum)) if *epoch == self.epoch => *sum += bytes,
            _ => self.dead.push_back((self.epoch, bytes)),
        }
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
    /// SYNC: the publishing store pairs with [`crate::Header::epoch`]: a reader that loads the new epoch also
    /// sees every guardian dropped before.
    pub fn advance_epoch(&mut self, now_ns: u64, clock: impl FnOnce() -> u64) -> Option<u64> {
        self.youngest_dead()?;
        if now_ns >= self.epoch_step_ns + self.epoch_distance_ns() {
            mark!("epoch stepped");
            self.step_epoch(clock);
        }
        self.epoch_due()
    }

    /// Publishes the next epoch at once.
    pub(super) fn step_epoch(&mut self, clock: impl FnOnce() -> u64) {
        self.epoch += 1;
        self.publish_header(header_word::EPOCH, self.epoch);
        // Reuse may follow at once, and must not become visible before the epoch that allows it.
        full_fence();
        self.epoch_step_ns = clock();
        self.ripen();
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
}
