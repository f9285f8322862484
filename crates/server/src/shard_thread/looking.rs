//! How a shard's thread looks for news before it sleeps: for a while without giving its core away, then yielding.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kelix_fabric::{Clock, Waiter};

use super::ShardThread;

/// Polling without giving the core away, at most: longer than a busy client needs between two requests.
pub(super) const SPIN: Duration = Duration::from_micros(20);
/// Polling while giving the core to whoever wants it.
const YIELD: Duration = Duration::from_micros(100);
/// Looks between two looks at the clock; fewer where the core is given away after them, since the agent may
/// wait for it.
const LOOKS: u32 = 64;
const LOOKS_FOR_AGENT: u32 = 8;

impl ShardThread {
    /// Waits for news, or until `next_ns`: spins, then yields. `false`: it is time to sleep.
    pub(super) fn looks_on(&mut self, next_ns: Option<u64>) -> bool {
        let (began, mut waited) = (Instant::now(), Duration::ZERO);
        let looks = if self.over_tcp > 0 { LOOKS_FOR_AGENT } else { LOOKS };
        let found = loop {
            if self.looks(looks) {
                break true;
            }
            self.endpoint.maintain();
            waited = began.elapsed();
            let due = next_ns.is_some_and(|next| self.endpoint.now_ns() >= next);
            if due || self.stop.load(Ordering::Relaxed) || !self.authority.in_force() {
                break true;
            }
            let gives_core =
                waited > self.sleep.spin.time() || self.over_tcp > 0 || self.endpoint.shares_core();
            if waited > YIELD || gives_core && (self.endpoint.is_contended() || self.rests()) {
                break false;
            }
            if gives_core {
                self.endpoint.yield_now();
            }
        };
        self.sleep.spin.note(waited > self.sleep.spin.time());
        found
    }

    /// Looks so many times for news.
    fn looks(&mut self, times: u32) -> bool {
        (0..times).any(|round| {
            let found = self.glance();
            // A pause takes as long as a cache line on its way, so not every look has one.
            if !found && round % 8 == 7 {
                std::hint::spin_loop();
            }
            found
        })
    }
}
