//! The way from a shard's thread to the agent's: a queue for each connection and shard, and one bell for all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kelix_types::Result;
use rtrb::chunks::ChunkError;
use rtrb::{Consumer, Producer, RingBuffer};

use super::frame::{Head, Kind};
use crate::Broken;
use crate::shm::WakerHandle;

/// Tells the agent which connections have something to send, and wakes it.
pub struct AgentBell {
    /// A bit for each connection.
    rung: Box<[AtomicU64]>,
    sleeps: AtomicBool,
    waker: WakerHandle,
}

impl AgentBell {
    /// A bell for so many connections, and the end of a pair that is readable when the agent is to wake.
    pub(super) fn new(connections: usize) -> Result<(AgentBell, WakerHandle)> {
        let (waker, end) = WakerHandle::pair()?;
        let rung = (0..connections.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Ok((AgentBell { rung, sleeps: AtomicBool::new(false), waker }, end))
    }

    /// Says that a connection has something to send.
    ///
    /// SYNC: the bit is set before the look at `sleeps`, and `begin_sleep` sets `sleeps` before its look at the bits; all
    /// four are sequentially consistent, so one of the two sees the other's store.
    fn ring(&self, connection: usize) {
        self.rung[connection / 64].fetch_or(1 << (connection % 64), Ordering::SeqCst);
        if self.sleeps.load(Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// Wakes the agent, whatever it does.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Announces that the agent is about to sleep. `false`: it must not, somebody has rung.
    pub(super) fn begin_sleep(&self) -> bool {
        self.sleeps.store(true, Ordering::SeqCst);
        self.rung.iter().all(|bits| bits.load(Ordering::SeqCst) == 0)
    }

    pub(super) fn end_sleep(&self) {
        self.sleeps.store(false, Ordering::SeqCst);
    }

    /// Takes the connections that have rung.
    pub(super) fn take(&self, mut each: impl FnMut(usize)) {
        for (index, bits) in self.rung.iter().enumerate() {
            if bits.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut rung = bits.swap(0, Ordering::SeqCst);
            while rung != 0 {
                each(index * 64 + rung.trailing_zeros() as usize);
                rung &= rung - 1;
            }
        }
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
    /// A way with room for so many words, and the agent's end of it.
    pub(super) fn new(
        words: usize,
        bell: Arc<AgentBell>,
        connection: usize,
        shard: u8,
    ) -> (AgentLink, Consumer<u64>) {
        let (queue, taken) = RingBuffer::new(words);
        (AgentLink { queue, bell, connection, shard }, taken)
    }

    /// Queues a WRITE, as the frame that is sent. A client of whom nothing is taken in any more is as good as gone.
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

    /// Has what was queued sent.
    pub fn ring(&self) {
        self.bell.ring(self.connection);
    }
}
