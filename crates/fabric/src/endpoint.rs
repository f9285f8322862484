//! An endpoint of whichever fabric a session uses, chosen when it connects.

// A default method in place of an endpoint's own would be found by nobody.
#![deny(clippy::missing_trait_methods)]

use std::sync::Arc;

use kelix_image::MemoryMap;
use kelix_image::words::Words;
use rustix::fd::BorrowedFd;

#[cfg(target_os = "linux")]
use crate::mirror::MirrorEndpoint;
#[cfg(target_os = "linux")]
use crate::shm::LocalEndpoint;
use crate::tcp::TcpEndpoint;
#[cfg(target_os = "linux")]
use crate::verbs::VerbsEndpoint;
use crate::{
    Broken, Clock, Direct, Fabric, Find, FindState, Mailbox, PeerId, Promises, Read, ReadState, RemoteMemory,
    Waiter, WorkQueue,
};

/// One endpoint.
pub enum Endpoint {
    /// Shared memory, on the server's host.
    #[cfg(target_os = "linux")]
    Local(LocalEndpoint),
    /// RDMA.
    #[cfg(target_os = "linux")]
    Verbs(Box<VerbsEndpoint>),
    /// TCP.
    Tcp(TcpEndpoint),
    /// Shared memory of a mirror, and TCP to the server that the mirror follows.
    #[cfg(target_os = "linux")]
    Mirror(Box<MirrorEndpoint>),
    /// Whatever a simulator makes of a fabric.
    #[cfg(kelix_sim)]
    Sim(Box<dyn SimFabric>),
}

/// What a simulator makes of a fabric.
#[cfg(kelix_sim)]
pub trait SimFabric: Fabric {
    /// Adds the connection to the server that a mirror follows, whose peers are [`Endpoint::of_primary`]: an
    /// endpoint of the same simulator.
    fn join_primary(&mut self, primary: Box<dyn std::any::Any>);

    /// Takes that connection out, if there is one.
    fn part_primary(&mut self) -> Option<Box<dyn SimFabric>>;

    /// The endpoint itself.
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any>;
}

/// Calls a method of whichever endpoint it is.
macro_rules! of {
    ($endpoint:ident, $method:ident $(, $argument:expr)*) => {
        match $endpoint {
            #[cfg(target_os = "linux")]
            Endpoint::Local(endpoint) => endpoint.$method($($argument),*),
            #[cfg(target_os = "linux")]
            Endpoint::Verbs(endpoint) => endpoint.$method($($argument),*),
            Endpoint::Tcp(endpoint) => endpoint.$method($($argument),*),
            #[cfg(target_os = "linux")]
            Endpoint::Mirror(endpoint) => endpoint.$method($($argument),*),
            #[cfg(kelix_sim)]
            Endpoint::Sim(endpoint) => endpoint.$method($($argument),*),
        }
    };
}

impl Endpoint {
    /// Adds the connection to the server that a mirror follows, whose peers are [`Endpoint::of_primary`].
    pub fn join_primary(&mut self, primary: Endpoint) -> Result<(), kelix_types::Error> {
        match (self, primary) {
            #[cfg(target_os = "linux")]
            (Endpoint::Mirror(endpoint), Endpoint::Tcp(primary)) => endpoint.join(primary),
            #[cfg(kelix_sim)]
            (Endpoint::Sim(endpoint), Endpoint::Sim(primary)) => {
                endpoint.join_primary(primary.into_any());
                Ok(())
            }
            (_, primary) => {
                unreachable!("only sessions on a mirror have a second connection: {}", primary.name())
            }
        }
    }

    /// Takes that connection out, if there is one.
    pub fn part_primary(&mut self) -> Option<Endpoint> {
        match self {
            #[cfg(target_os = "linux")]
            Endpoint::Mirror(endpoint) => endpoint.part().map(Endpoint::Tcp),
            #[cfg(kelix_sim)]
            Endpoint::Sim(endpoint) => endpoint.part_primary().map(Endpoint::Sim),
            _ => None,
        }
    }

    /// The connection to a shard of the server that a mirror follows.
    pub fn of_primary(shard: usize) -> PeerId {
        PeerId(FIRST_OF_PRIMARY + shard as u32)
    }
}

/// The first peer of the connection to the server that a mirror follows.
pub const FIRST_OF_PRIMARY: u32 = 1 << 16;

impl WorkQueue for Endpoint {
    #[inline]
    fn doorbell(&mut self) {
        of!(self, doorbell)
    }

    #[inline(always)]
    fn progress(&mut self) -> bool {
        of!(self, progress)
    }

    #[inline(always)]
    fn await_progress(&mut self) -> bool {
        of!(self, await_progress)
    }

    fn look(&mut self) {
        of!(self, look)
    }

    fn moved_bytes(&self) -> Option<u64> {
        of!(self, moved_bytes)
    }

    fn is_broken(&self, peer: PeerId) -> bool {
        of!(self, is_broken, peer)
    }

    fn unseen(&self) -> bool {
        of!(self, unseen)
    }
}

impl RemoteMemory for Endpoint {
    fn map(&self, peer: PeerId) -> Option<&Arc<MemoryMap>> {
        of!(self, map, peer)
    }

    fn set_map(&mut self, peer: PeerId, map: Arc<MemoryMap>) {
        of!(self, set_map, peer, map)
    }

    fn map_version(&self, peer: PeerId) -> u64 {
        of!(self, map_version, peer)
    }

    #[inline]
    fn post_read(&mut self, read: Read) {
        of!(self, post_read, read)
    }

    #[inline]
    fn poll_read(&mut self, read: Read, into: &mut [u64]) -> ReadState {
        of!(self, poll_read, read, into)
    }

    fn finds(&self, peer: PeerId) -> bool {
        of!(self, finds, peer)
    }

    fn post_find(&mut self, find: Find<'_>) {
        of!(self, post_find, find)
    }

    fn poll_find(&mut self, find: Find<'_>, into: &mut Vec<u64>) -> FindState {
        of!(self, poll_find, find, into)
    }

    fn direct(&self, peer: PeerId) -> Option<Direct> {
        of!(self, direct, peer)
    }

    #[inline]
    fn stamp_window(&self) -> u64 {
        of!(self, stamp_window)
    }

    #[inline(always)]
    fn authority(&mut self, peer: PeerId) -> Option<u64> {
        of!(self, authority, peer)
    }

    fn map_age_max_ns(&self) -> Option<u64> {
        of!(self, map_age_max_ns)
    }
}

impl Mailbox for Endpoint {
    #[inline]
    fn post_write(&mut self, peer: PeerId, first: usize, words: &[u64]) -> Result<(), Broken> {
        of!(self, post_write, peer, first, words)
    }

    #[inline(always)]
    fn inbox(&self, peer: PeerId) -> Words<'_> {
        of!(self, inbox, peer)
    }

    #[inline]
    fn wake(&mut self, peer: PeerId) {
        of!(self, wake, peer)
    }

    #[inline]
    fn send(&mut self, peer: PeerId) {
        of!(self, send, peer)
    }
}

impl Waiter for Endpoint {
    fn yield_now(&mut self) {
        of!(self, yield_now)
    }

    fn is_contended(&self) -> bool {
        of!(self, is_contended)
    }

    fn shares_core(&self) -> bool {
        of!(self, shares_core)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        of!(self, fd)
    }

    fn announce_sleep(&mut self) {
        of!(self, announce_sleep)
    }

    fn sleep(&mut self, timeout_ns: Option<u64>) {
        of!(self, sleep, timeout_ns)
    }
}

impl Clock for Endpoint {
    fn now_ns(&self) -> u64 {
        of!(self, now_ns)
    }
}

impl Fabric for Endpoint {
    fn name(&self) -> &'static str {
        of!(self, name)
    }

    fn promises(&self, peer: PeerId) -> Promises {
        of!(self, promises, peer)
    }
}
