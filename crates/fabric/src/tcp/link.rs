//! The way from a shard's thread to the agent's: a queue for each connection and shard, and one bell for all.

use std::sync::Arc;
use std::sync::atomic::Ordering;
#[cfg(not(kelix_loom))]
use std::sync::atomic::{AtomicBool, AtomicU64};

use kelix_image::has_memory;
#[cfg(kelix_loom)]
use kelix_image::model::loom::sync::atomic::{AtomicBool, AtomicU64};
use kelix_image::words::full_fence;
use kelix_types::Result;
use rtrb::chunks::ChunkError;
use rtrb::{Consumer, Producer, RingBuffer};

use super::frame::{Head, Kind};
use crate::Broken;
use crate::shm::WakerHandle;

/// Tells the agent which connections have something to send, and wakes it.
///
/// Whoever has news stores them, then looks whether the agent sleeps; the agent says that it sleeps, then
/// looks for news. Between the two steps each has a full fence, so one of them sees what the other stored,
/// and no wake-up is lost (`tcp::model`).
pub struct AgentBell {
    /// A bit for each connection.
    rung: Box<[AtomicU64]>,
    /// Somebody wants something else of the agent.
    called: AtomicBool,
    sleeps: AtomicBool,
    /// The agent has shards do what arrives for them itself, while their threads sleep.
    steps_in: AtomicBool,
    waker: WakerHandle,
}

impl AgentBell {
    /// A bell for so many connections, and the end that tells the agent that it is to wake.
    pub(super) fn new(connections: usize) -> Result<(AgentBell, WakerHandle)> {
        let (waker, end) = WakerHandle::within()?;
        let rung = (0..connections.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let [called, sleeps, steps_in] = [false; 3].map(AtomicBool::new);
        Ok((AgentBell { rung, called, sleeps, steps_in, waker }, end))
    }

    /// Says that a connection has something to send.
    ///
    /// SYNC: releases what the connection's queue holds to `take`.
    pub(super) fn ring(&self, connection: usize) {
        self.rung[connection / 64].fetch_or(1 << (connection % 64), Ordering::Release);
        self.rouse();
    }

    /// Wakes the agent, or has it look round once more before it sleeps.
    ///
    /// SYNC: releases what it is to look at to `take`.
    pub fn wake(&self) {
        self.called.store(true, Ordering::Release);
        self.rouse();
    }

    /// SYNC: the fence stands between the news and the look at `sleeps`; that of `begin_sleep` is its twin.
    fn rouse(&self) {
        full_fence();
        if self.sleeps.load(Ordering::Relaxed) {
            self.waker.wake();
        }
    }

    /// Announces that the agent is about to sleep, who has had so many connections. `false`: it must not,
    /// there is news.
    pub(super) fn begin_sleep(&self, connections: usize) -> bool {
        self.sleeps.store(true, Ordering::Relaxed);
        full_fence();
        !self.called.load(Ordering::Relaxed) && !self.has_rung(connections)
    }

    /// Whether there is something to take of the first so many connections.
    pub(super) fn has_rung(&self, connections: usize) -> bool {
        self.words(connections).iter().any(|bits| bits.load(Ordering::Relaxed) != 0)
    }

    /// The words of the first so many connections. There may be thousands, each look is at all of them, and
    /// most servers have a few.
    fn words(&self, connections: usize) -> &[AtomicU64] {
        &self.rung[..connections.div_ceil(64)]
    }

    /// Tells the threads of shards whether the agent steps in for them. They have to know in time, not at
    /// once.
    pub(super) fn tell_steps_in(&self, steps_in: bool) {
        if self.steps_in.load(Ordering::Relaxed) != steps_in {
            self.steps_in.store(steps_in, Ordering::Relaxed);
        }
    }

    pub(super) fn end_sleep(&self) {
        self.sleeps.store(false, Ordering::Relaxed);
    }

    /// Takes those of the first so many connections that have rung. Returns whether somebody called.
    pub(super) fn take(&self, connections: usize, mut each: impl FnMut(usize)) -> bool {
        for (index, bits) in self.words(connections).iter().enumerate() {
            if bits.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut rung = bits.swap(0, Ordering::Acquire);
            while rung != 0 {
                each(index * 64 + rung.trailing_zeros() as usize);
                rung &= rung - 1;
            }
        }
        self.called.load(Ordering::Relaxed) && self.called.swap(false, Ordering::Acquire)
    }
}

/// A shard's end of the way to a client.
pub struct AgentLink {
    queue: Producer<u64>,
    bell: Arc<AgentBell>,
    connection: usize,
    shard: u8,
}

impl AgentLink {
    /// A way with room for so many words, and the agent's end of it; `None` without memory for it.
    pub(super) fn new(
        words: usize,
        bell: Arc<AgentBell>,
        connection: usize,
        shard: u8,
    ) -> Option<(AgentLink, Consumer<u64>)> {
        if !has_memory(words) {
            return None;
        }
        let (queue, taken) = RingBuffer::new(words);
        Some((AgentLink { queue, bell, connection, shard }, taken))
    }

    /// Queues a WRITE, as the frame that is sent. A client of whom nothing is taken in any more is as good as
    /// gone.
    pub fn write(&mut self, first: usize, words: &[u64]) -> std::result::Result<(), Broken> {
        let head = Head::new(Kind::Write, self.shard, first as u32, words.len()).word();
        match self.queue.write_chunk_uninit(1 + words.len()) {
            Ok(chunk) => {
                chunk.fill_from_iter(std::iter::once(head).chain(words.iter().copied()));
                Ok(())
            }
            Err(ChunkError::TooFewSlots(_)) => Err(Broken),
        }
    }

    /// Whether the agent has shards do what arrives for them itself, while their threads sleep.
    pub fn agent_steps_in(&self) -> bool {
        self.bell.steps_in.load(Ordering::Relaxed)
    }

    /// Has what was queued sent.
    pub fn ring(&self) {
        self.bell.ring(self.connection);
    }
}
