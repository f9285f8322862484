//! A fabric of two mailboxes and the memory it is given, for tests of what stands above a fabric: clock,
//! stamp and term show what they were set to, a READ is done when it is looked at, nobody sleeps.

use std::sync::Arc;

use kelix_fabric::{
    Broken, Clock, Fabric, Mailbox, PeerId, Promises, Read, ReadState, RemoteMemory, Sampled, Waiter,
    WorkQueue,
};
use kelix_image::words::Words;
use kelix_image::{MemoryMap, Span};
use kelix_types::limits::READ_EPOCHS_MAX;

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
    /// Memory of the peer that can be READ.
    pub memory: Option<Arc<MemoryMap>>,
    /// Its reclamation epoch.
    pub stamp: u64,
    /// The term in force.
    pub term: u64,
    /// For each part of the peer's mailbox, whether something was written there from here.
    written: Vec<bool>,
}

/// Words of such a part. A mailbox that is used for long has a note a part, and none a message.
const PART_WORDS: usize = 512;

const MAILBOX_WORDS: usize = MAILBOX_BYTES as usize / 8;

impl Mailboxes {
    /// Two empty mailboxes.
    pub fn new() -> Mailboxes {
        let [own, other] = [(), ()].map(|()| Span::private(MAILBOX_BYTES));
        Mailboxes { own, other, now_ns: 0, memory: None, stamp: 0, term: 0, written: Mailboxes::unwritten() }
    }

    /// The same as the peer sees them.
    pub fn turned(&self) -> Mailboxes {
        Mailboxes {
            own: self.other.clone(),
            other: self.own.clone(),
            now_ns: self.now_ns,
            memory: None,
            stamp: 0,
            term: 0,
            written: Mailboxes::unwritten(),
        }
    }

    /// Puts zeros where something was written, for the next test. The mailboxes are large.
    pub fn wipe(&mut self) {
        for (part, written) in self.written.iter_mut().enumerate() {
            if std::mem::take(written) {
                let first = part * PART_WORDS;
                self.other.words().clear(first, PART_WORDS.min(MAILBOX_WORDS - first));
            }
        }
    }

    fn unwritten() -> Vec<bool> {
        vec![false; MAILBOX_WORDS.div_ceil(PART_WORDS)]
    }
}

impl Default for Mailboxes {
    fn default() -> Mailboxes {
        Mailboxes::new()
    }
}

impl WorkQueue for Mailboxes {
    fn doorbell(&mut self) {}
    fn look(&mut self) {}
    fn is_broken(&self, _: PeerId) -> bool {
        false
    }
}

impl RemoteMemory for Mailboxes {
    fn map(&self, _: PeerId) -> Option<&Arc<MemoryMap>> {
        self.memory.as_ref()
    }
    fn post_read(&mut self, _: Read) {}
    fn poll_read(&mut self, read: Read, into: &mut [u64]) -> ReadState {
        assert_eq!(read.words, into.len());
        let Some(words) = self.memory.as_ref().and_then(|map| map.words(read.place, read.words)) else {
            return ReadState::Outside;
        };
        words.copy_out(0, into);
        ReadState::Done(Sampled { before: self.stamp, after: self.stamp, term: self.term })
    }
    fn stamp_window(&self) -> u64 {
        READ_EPOCHS_MAX
    }
    fn authority(&mut self, _: PeerId) -> Option<u64> {
        Some(self.term)
    }
}

impl Mailbox for Mailboxes {
    fn post_write(&mut self, _: PeerId, first: usize, words: &[u64]) -> Result<(), Broken> {
        self.other.words().copy_in(first, words);
        self.written[first / PART_WORDS..(first + words.len()).div_ceil(PART_WORDS)].fill(true);
        Ok(())
    }
    fn inbox(&self, _: PeerId) -> Words<'_> {
        self.own.words()
    }
    fn wake(&mut self, _: PeerId) {}
}

impl Waiter for Mailboxes {
    fn yield_now(&mut self) {}
    fn announce_sleep(&mut self) {}
    fn sleep(&mut self, _: Option<u64>) {}
}

impl Clock for Mailboxes {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }
}

impl Fabric for Mailboxes {
    fn name(&self) -> &'static str {
        "mailboxes"
    }
    fn promises(&self, _: PeerId) -> Promises {
        Promises { ordered_placement: true, ordered_loads: true }
    }
}
