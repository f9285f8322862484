//! A shard's way to a session over verbs.

use std::sync::Arc;

use kelix_image::Span;
use kelix_image::words::full_fence;

use super::device::Remote;
use super::lane::{Lane, Work};
use super::sender::Sender;
use crate::Broken;

/// WRITEs into one session's mailbox, and wakes it.
pub struct VerbsLink {
    sender: Sender<()>,
    /// The session's mailbox.
    mailbox: Remote,
    /// This side's, and the word of it in which the session says which sleep it is about to begin.
    inbox: Span,
    announce: usize,
    /// The number that wakes the session, and the sleep from which it was last woken.
    wakes: u32,
    woken: u64,
}

impl VerbsLink {
    pub(super) fn new(
        lane: &Arc<Lane>,
        mailbox: Remote,
        (inbox, announce): (Span, usize),
        wakes: u32,
    ) -> std::io::Result<VerbsLink> {
        let sender = Sender::new(lane.clone(), (None, lane.stand()), ())?;
        Ok(VerbsLink { sender, mailbox, inbox, announce, wakes, woken: 0 })
    }

    /// Takes words that are to be WRITten. A session whose device takes nothing in is as good as gone.
    pub fn write(&mut self, first: usize, words: &[u64]) -> Result<(), Broken> {
        let to = self.mailbox.word(first);
        for _ in 0..2 {
            if self.sender.lane.is_broken() {
                return Err(Broken);
            }
            if self.sender.place(to, words) {
                return Ok(());
            }
            // What waits stands in the way.
            self.post();
            self.sender.lane.poll();
        }
        Err(Broken)
    }

    /// Posts what was written, and wakes the session if it sleeps. What there is no room for waits for
    /// [`VerbsLink::maintain`].
    pub fn post(&mut self) {
        self.sender.give();
        self.look();
        if self.sender.lane.is_broken() {
            return self.sender.give_up();
        }
        self.sender.post();
        if !self.sender.is_clear() {
            self.sender.lane.poll();
            self.sender.post();
        }
    }

    /// Whether the session has said that it is about to sleep since it was last woken; then it is to be
    /// woken.
    fn look(&mut self) {
        full_fence();
        let sleep = self.inbox.words().load(self.announce);
        if sleep != self.woken {
            self.woken = sleep;
            self.sender.push(Work::Wake(self.wakes), Default::default(), self.mailbox);
        }
    }

    /// Goes on with what could not be posted, and looks once more whether the session sleeps when everything
    /// has arrived there. `true`: there is still something to do.
    pub fn maintain(&mut self) -> bool {
        self.sender.lane.poll();
        if self.sender.lane.is_broken() {
            return false;
        }
        if self.sender.is_idle() {
            self.look();
            if self.sender.is_clear() {
                return false;
            }
        }
        self.post();
        true
    }
}
