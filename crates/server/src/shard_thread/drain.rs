//! The end of a shard's thread: what has arrived is not left.

use std::time::{Duration, Instant};

use super::ShardThread;

/// How long a shard that is to end goes on for the sake of what has arrived. Clients that never pause must
/// not keep it.
const DRAIN: Duration = Duration::from_secs(1);

impl ShardThread {
    /// Executes what has arrived and sends the answers, until there is nothing left, or [`DRAIN`] is over.
    /// Whoever asks after that learns by the end of its connection that there is no answer.
    pub(super) fn drain(&mut self) {
        let began = Instant::now();
        while self.authority.in_force() && began.elapsed() < DRAIN {
            self.handle_commands();
            let progress = self.step(self.now());
            self.endpoint.maintain();
            if progress.requests > 0 {
                continue;
            }
            if !self.has_news() && !self.shard.owes_answers() && !self.endpoint.is_tending() {
                return;
            }
            // Memory that a write waits for, a client that makes room for its answers, or a NIC.
            std::thread::yield_now();
        }
    }
}
