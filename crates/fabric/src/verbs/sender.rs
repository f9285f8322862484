//! What a user of a lane has there: requests that wait, those under way, and the memory that the device uses
//! for them.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use super::device::Remote;
use super::ffi::Sge;
use super::lane::{Chain, Lane, Seat, Work};
use super::outgoing::Outgoing;

/// One user's requests, with memory of its own that they READ into or WRITE from.
pub(super) struct Sender<M: Send + Sync + 'static> {
    /// Both are left to the lane in the end, since the device may still use them.
    outgoing: ManuallyDrop<Outgoing>,
    pub memory: ManuallyDrop<M>,
    chain: Chain,
    /// Requests that were posted, and those that nobody takes any more; those in the chain follow.
    posted: u64,
    given_up: u64,
    /// Its number on the lane, if the other side can wake it.
    number: Option<usize>,
    pub seat: Arc<Seat>,
    pub lane: Arc<Lane>,
}

impl<M: Send + Sync + 'static> Sender<M> {
    pub fn new(
        lane: Arc<Lane>,
        (number, seat): (Option<usize>, Arc<Seat>),
        memory: M,
    ) -> std::io::Result<Sender<M>> {
        Ok(Sender {
            outgoing: ManuallyDrop::new(Outgoing::new(&lane.domain)?),
            memory: ManuallyDrop::new(memory),
            chain: Chain::default(),
            posted: 0,
            given_up: 0,
            number,
            seat,
            lane,
        })
    }

    /// The number of the next request.
    pub fn next(&self) -> u64 {
        self.posted + self.given_up + self.chain.len() as u64
    }

    /// How many requests are complete: those of lower numbers.
    pub fn done(&self) -> u64 {
        self.seat.done()
    }

    /// Whether nothing waits to be posted.
    pub fn is_clear(&self) -> bool {
        self.chain.len() == 0
    }

    /// Whether all that was asked for is complete.
    pub fn is_idle(&self) -> bool {
        self.done() >= self.next()
    }

    /// Asks for something. It may overtake words that were placed, unless these were given before. Returns
    /// its number.
    pub fn push(&mut self, work: Work, local: Sge, remote: Remote) -> u64 {
        let number = self.next();
        self.chain.push(work, local, remote);
        number
    }

    /// Takes words that are to be WRITten. `false`: there is no room before something is posted and complete.
    pub fn place(&mut self, to: Remote, words: &[u64]) -> bool {
        let numbers = (self.done(), self.next());
        self.outgoing.place(to, words, numbers)
    }

    /// Gives the words that were placed to the chain: what is asked for from now on comes after them.
    pub fn give(&mut self) {
        let next = self.next();
        self.outgoing.give(&mut self.chain, next);
    }

    /// Posts what waits, as far as there is room.
    pub fn post(&mut self) {
        self.give();
        while self.chain.len() > 0 {
            let count = self.lane.post(&self.seat, &mut self.chain);
            self.posted += count as u64;
            if count == 0 {
                break;
            }
        }
    }

    /// Forgets what waits. Numbers go on, so that nothing of it seems to be done.
    pub fn give_up(&mut self) {
        self.give();
        self.given_up += self.chain.len() as u64;
        self.chain.clear();
    }
}

impl<M: Send + Sync + 'static> Drop for Sender<M> {
    fn drop(&mut self) {
        if !self.lane.domain.device.libraries.is_own() {
            return;
        }
        // SAFETY: each is taken once, here, and not used after.
        let held = unsafe { (ManuallyDrop::take(&mut self.outgoing), ManuallyDrop::take(&mut self.memory)) };
        self.lane.leave(self.number, self.seat.clone(), self.posted, Box::new(held));
    }
}
