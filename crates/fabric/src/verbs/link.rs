//! A shard's way to a session over verbs.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use kelix_image::Span;
use kelix_image::words::full_fence;

use super::device::Remote;
use super::lane::{Chain, Lane, Seat, Work};
use super::outgoing::Outgoing;
use crate::Broken;

/// WRITEs into one session's mailbox, and wakes it.
pub struct VerbsLink {
    /// Left to the lane in the end, since the device may still use it.
    outgoing: ManuallyDrop<Outgoing>,
    chain: Chain,
    posted: u64,
    /// The session's mailbox.
    mailbox: Remote,
    /// This side's, and the word of it in which the session says which sleep it is about to begin.
    inbox: Span,
    announce: usize,
    /// The number that wakes the session, and the sleep from which it was last woken.
    wakes: u32,
    woken: u64,
    seat: Arc<Seat>,
    lane: Arc<Lane>,
}

impl VerbsLink {
    pub(super) fn new(
        lane: &Arc<Lane>,
        mailbox: Remote,
        (inbox, announce): (Span, usize),
        wakes: u32,
    ) -> std::io::Result<VerbsLink> {
        Ok(VerbsLink {
            outgoing: ManuallyDrop::new(Outgoing::new(&lane.domain)?),
            chain: Chain::default(),
            posted: 0,
            mailbox,
            inbox,
            announce,
            wakes,
            woken: 0,
            seat: lane.stand(),
            lane: lane.clone(),
        })
    }

    fn next(&self) -> u64 {
        self.posted + self.chain.len() as u64
    }

    /// Takes words that are to be WRITten. A session whose device takes nothing in is as good as gone.
    pub fn write(&mut self, first: usize, words: &[u64]) -> Result<(), Broken> {
        let to = self.mailbox.word(first);
        for _ in 0..2 {
            let numbers = (self.seat.done(), self.next());
            if self.lane.is_broken() {
                return Err(Broken);
            }
            if self.outgoing.place(to, words, numbers) {
                return Ok(());
            }
            // What waits stands in the way.
            self.post();
            self.lane.poll();
        }
        Err(Broken)
    }

    /// Posts what was written, and wakes the session if it sleeps.
    pub fn post(&mut self) {
        let next = self.next();
        self.outgoing.give(&mut self.chain, next);
        self.look();
        if self.lane.is_broken() {
            return self.chain.clear();
        }
        let mut polled = false;
        while self.chain.len() > 0 {
            let count = self.lane.post(&self.seat, &mut self.chain);
            self.posted += count as u64;
            if count == 0 && std::mem::replace(&mut polled, true) {
                // No room: `tend` goes on.
                return;
            }
            if count == 0 {
                self.lane.poll();
            }
        }
    }

    /// Whether the session has said that it is about to sleep since it was last woken; then it is to be woken.
    fn look(&mut self) {
        full_fence();
        let sleep = self.inbox.words().load(self.announce);
        if sleep != self.woken {
            self.woken = sleep;
            self.chain.push(Work::Wake(self.wakes), Default::default(), self.mailbox);
        }
    }

    /// Goes on with what could not be posted, and looks once more whether the session sleeps when everything has arrived
    /// there. `true`: there is still something to do.
    pub fn tend(&mut self) -> bool {
        self.lane.poll();
        if self.lane.is_broken() {
            return false;
        }
        if self.chain.len() == 0 && self.seat.done() >= self.posted {
            self.look();
            if self.chain.len() == 0 {
                return false;
            }
        }
        self.post();
        true
    }
}

impl Drop for VerbsLink {
    fn drop(&mut self) {
        // SAFETY: taken once, here, and not used after.
        let outgoing = unsafe { ManuallyDrop::take(&mut self.outgoing) };
        self.lane.leave(None, self.seat.clone(), self.posted, Box::new(outgoing));
    }
}
