//! A fabric of two mailboxes and nothing else, for tests of what stands above a fabric: nothing can be READ, the clock
//! shows what it was set to, nobody sleeps.

use kelix_fabric::{Broken, Fabric, PeerId, Promises, Read, ReadState};
use kelix_image::Span;
use kelix_image::words::Words;

use crate::ring::MAILBOX_BYTES;

/// The only peer.
pub const PEER: PeerId = PeerId(0);

/// The two mailboxes of a connection, as one side sees them: `own` is read here, `other` written.
#[derive(Clone)]
pub struct Mailboxes {
    /// This side's mailbox.
    pub own: Span,
    /// The peer's.
    pub other: Span,
    /// What the clock shows.
    pub now_ns: u64,
    /// Which words of the peer's were written from here: first and count.
    written: Vec<(usize, usize)>,
}

impl Mailboxes {
    /// Two empty mailboxes.
    pub fn new() -> Mailboxes {
        let [own, other] = [(), ()].map(|()| Span::private(MAILBOX_BYTES));
        Mailboxes { own, other, now_ns: 0, written: Vec::new() }
    }

    /// The same as the peer sees them.
    pub fn turned(&self) -> Mailboxes {
        Mailboxes {
            own: self.other.clone(),
            other: self.own.clone(),
            now_ns: self.now_ns,
            written: Vec::new(),
        }
    }

    /// Puts zeros where something was written, for the next test. The mailboxes are large.
    pub fn wipe(&mut self) {
        for (first, count) in self.written.drain(..) {
            self.other.words().clear(first, count);
        }
    }
}

impl Default for Mailboxes {
    fn default() -> Mailboxes {
        Mailboxes::new()
    }
}

impl Fabric for Mailboxes {
    fn name(&self) -> &'static str {
        "mailboxes"
    }
    fn promises(&self) -> Promises {
        Promises { ordered_placement: true, ordered_loads: false }
    }
    fn now_ns(&self) -> u64 {
        self.now_ns
    }
    fn yield_now(&mut self) {}
    fn post_read(&mut self, _: Read) {}
    fn poll_read(&mut self, _: Read, _: &mut [u64]) -> ReadState {
        ReadState::Outside
    }
    fn stamp(&self, _: PeerId) -> u64 {
        0
    }
    fn stamp_window(&self) -> u64 {
        0
    }
    fn authority(&self, _: PeerId) -> u64 {
        0
    }
    fn post_write(&mut self, _: PeerId, first: usize, words: &[u64]) -> Result<(), Broken> {
        self.other.words().copy_in(first, words);
        self.written.push((first, words.len()));
        Ok(())
    }
    fn doorbell(&mut self) {}
    fn inbox(&self, _: PeerId) -> Words<'_> {
        self.own.words()
    }
    fn look(&mut self) {}
    fn is_broken(&self, _: PeerId) -> bool {
        false
    }
    fn wake(&mut self, _: PeerId) {}
    fn announce_sleep(&mut self) {}
    fn sleep(&mut self, _: Option<u64>) {}
}
