//! The endpoint of a session on a mirror: the mirror's memory and mailboxes on this host, and over TCP those
//! of the server that the mirror follows, once the session needs them. One sleep is for both.

// A default method in place of an endpoint's own would be found by nobody.
#![deny(clippy::missing_trait_methods)]

use std::sync::Arc;

use kelix_image::MemoryMap;
use kelix_image::words::Words;
use kelix_types::{Error, limits};
use rustix::fd::BorrowedFd;

use crate::endpoint::FIRST_OF_PRIMARY;
use crate::shm::LocalEndpoint;
use crate::tcp::TcpEndpoint;
use crate::{
    Broken, Clock, Direct, Fabric, Find, FindState, Mailbox, PeerId, Promises, Read, ReadState, RemoteMemory,
    Waiter, WorkQueue,
};

/// Looks for what has come from the mirror between two looks at the socket, each of which is a call of the
/// system.
const LOOKS_A_CALL: u32 = 16;

/// What whoever names a peer of the primary promises.
const JOINED: &str = "a connection to the primary";

/// Both ways of a session on a mirror.
pub struct MirrorEndpoint {
    local: LocalEndpoint,
    primary: Option<Primary>,
    looks: u32,
}

struct Primary {
    endpoint: TcpEndpoint,
    /// Whether room in the socket ends the sleep.
    awaits_room: bool,
}

/// The peer of the primary's endpoint that is meant; `None`: one of the mirror's.
#[inline(always)]
fn of_primary(peer: PeerId) -> Option<PeerId> {
    peer.0.checked_sub(FIRST_OF_PRIMARY).map(PeerId)
}

impl MirrorEndpoint {
    /// One with a way to the mirror only.
    pub fn new(local: LocalEndpoint) -> MirrorEndpoint {
        MirrorEndpoint { local, primary: None, looks: 0 }
    }

    /// Adds the way to the primary.
    pub(crate) fn join(&mut self, endpoint: TcpEndpoint) -> Result<(), Error> {
        self.part();
        self.local.waker().add_stream(endpoint.fd().expect("a socket"))?;
        self.primary = Some(Primary { endpoint, awaits_room: false });
        Ok(())
    }

    /// Takes the way to the primary out.
    pub(crate) fn part(&mut self) -> Option<TcpEndpoint> {
        let Primary { endpoint, .. } = self.primary.take()?;
        self.local.waker().remove_stream(endpoint.fd().expect("a socket"));
        Some(endpoint)
    }

    fn primary(&mut self) -> Option<&mut TcpEndpoint> {
        self.primary.as_mut().map(|primary| &mut primary.endpoint)
    }

    /// Sees to it that room in the socket ends the sleep if something waits for it.
    fn watch(&mut self) {
        let MirrorEndpoint { local, primary: Some(primary), .. } = self else { return };
        let Primary { endpoint, awaits_room } = primary;
        if endpoint.is_held_up() != *awaits_room {
            *awaits_room = !*awaits_room;
            local.waker().await_room(endpoint.fd().expect("a socket"), *awaits_room);
        }
    }
}

impl WorkQueue for MirrorEndpoint {
    fn doorbell(&mut self) {
        self.local.doorbell();
        self.primary().into_iter().for_each(|primary| primary.doorbell());
    }

    #[inline]
    fn progress(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        let looks = self.looks;
        if let Some(primary) = self.primary() {
            if primary.unseen() || looks % LOOKS_A_CALL == 0 {
                primary.receive();
                primary.take_unseen();
            }
        }
        true
    }

    #[inline]
    fn await_progress(&mut self) -> bool {
        self.progress()
    }

    fn look(&mut self) {
        self.local.look();
        self.primary().into_iter().for_each(|primary| primary.look());
    }

    fn moved_bytes(&self) -> Option<u64> {
        self.primary.as_ref().and_then(|primary| primary.endpoint.moved_bytes())
    }

    fn is_broken(&self, peer: PeerId) -> bool {
        match of_primary(peer) {
            None => self.local.is_broken(peer),
            Some(peer) => self.primary.as_ref().is_none_or(|primary| primary.endpoint.is_broken(peer)),
        }
    }

    fn unseen(&self) -> bool {
        self.primary.as_ref().is_some_and(|primary| primary.endpoint.unseen())
    }
}

impl RemoteMemory for MirrorEndpoint {
    fn map(&self, peer: PeerId) -> Option<&Arc<MemoryMap>> {
        if of_primary(peer).is_none() { self.local.map(peer) } else { None }
    }

    fn set_map(&mut self, peer: PeerId, map: Arc<MemoryMap>) {
        self.local.set_map(peer, map);
    }

    fn map_version(&self, peer: PeerId) -> u64 {
        if of_primary(peer).is_none() { self.local.map_version(peer) } else { 0 }
    }

    fn map_age_max_ns(&self) -> Option<u64> {
        None
    }

    #[inline]
    fn post_read(&mut self, read: Read) {
        match of_primary(read.peer) {
            None => self.local.post_read(read),
            Some(peer) => {
                self.primary().into_iter().for_each(|primary| primary.post_read(Read { peer, ..read }));
            }
        }
    }

    #[inline]
    fn poll_read(&mut self, read: Read, into: &mut [u64]) -> ReadState {
        match of_primary(read.peer) {
            None => self.local.poll_read(read, into),
            Some(peer) => self
                .primary()
                .map_or(ReadState::Broken, |primary| primary.poll_read(Read { peer, ..read }, into)),
        }
    }

    // A session on a mirror asks the shards of the primary, by messages.
    fn finds(&self, _: PeerId) -> bool {
        false
    }

    fn post_find(&mut self, _: Find<'_>) {}

    fn poll_find(&mut self, _: Find<'_>, _: &mut Vec<u64>) -> FindState {
        FindState::Broken
    }

    fn direct(&self, peer: PeerId) -> Option<Direct> {
        if of_primary(peer).is_none() { self.local.direct(peer) } else { None }
    }

    #[inline]
    fn stamp_window(&self) -> u64 {
        // Of both.
        limits::READ_EPOCHS_MAX
    }

    #[inline]
    fn authority(&mut self, peer: PeerId) -> Option<u64> {
        match of_primary(peer) {
            None => self.local.authority(peer),
            Some(peer) => self.primary()?.authority(peer),
        }
    }
}

impl Mailbox for MirrorEndpoint {
    #[inline]
    fn post_write(&mut self, peer: PeerId, first: usize, words: &[u64]) -> Result<(), Broken> {
        match of_primary(peer) {
            None => self.local.post_write(peer, first, words),
            Some(peer) => self.primary().ok_or(Broken)?.post_write(peer, first, words),
        }
    }

    #[inline]
    fn inbox(&self, peer: PeerId) -> Words<'_> {
        match of_primary(peer) {
            None => self.local.inbox(peer),
            Some(peer) => self.primary.as_ref().expect(JOINED).endpoint.inbox(peer),
        }
    }

    fn wake(&mut self, peer: PeerId) {
        if of_primary(peer).is_none() {
            self.local.wake(peer);
        }
    }

    fn send(&mut self, peer: PeerId) {
        match of_primary(peer) {
            None => self.local.send(peer),
            Some(peer) => self.primary().into_iter().for_each(|primary| primary.send(peer)),
        }
    }
}

impl Waiter for MirrorEndpoint {
    fn yield_now(&mut self) {
        self.local.yield_now();
    }

    fn is_contended(&self) -> bool {
        self.local.is_contended()
    }

    fn shares_core(&self) -> bool {
        self.local.shares_core()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.local.fd()
    }

    fn announce_sleep(&mut self) {
        self.local.announce_sleep();
        self.primary().into_iter().for_each(TcpEndpoint::receive);
        self.watch();
    }

    fn sleep(&mut self, timeout_ns: Option<u64>) {
        // Words that have arrived since the last sleep may not have been looked at, and words that were sent
        // since the sleep was announced may have found no room. A connection that is over is taken out before
        // anybody sleeps, since its end would wake for ever.
        let is_over = |primary: &TcpEndpoint| primary.is_broken(PeerId(0));
        let looks_first = self.primary().is_some_and(|primary| primary.take_news() || is_over(primary));
        self.watch();
        self.local.sleep(if looks_first { Some(0) } else { timeout_ns });
        self.primary().into_iter().for_each(TcpEndpoint::receive);
    }
}

impl Clock for MirrorEndpoint {
    fn now_ns(&self) -> u64 {
        crate::now_ns()
    }
}

impl Fabric for MirrorEndpoint {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn promises(&self, peer: PeerId) -> Promises {
        match (of_primary(peer), &self.primary) {
            (Some(peer), Some(primary)) => primary.endpoint.promises(peer),
            _ => self.local.promises(peer),
        }
    }
}
