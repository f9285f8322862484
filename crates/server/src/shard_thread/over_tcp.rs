//! What the thread does where the agent asks it for what clients over TCP want.
//!
//! The agent may need this thread's core to send the answers. Where it serves one client that asks for one
//! thing after the other, it is on that client's core and sleeps while nothing is to be done (`tcp::beside`).
//! If the thread is on that core too, it sleeps at once: one of the three has work at a time, and whoever
//! looks on only takes the core from it. Clients in shared memory would have to wake the thread then, which
//! takes longer than their request, so one of theirs ends that for a while. Only where others compute does
//! the thread go there: three threads on one core beside an idle one are torn apart by the system again and
//! again, and a shard that looks on from a core of its own answers within a microsecond.

use kelix_fabric::Waiter;

use super::ShardThread;

/// Steps in a row with requests of the agent's alone, behind which no others are expected.
const STEPS: u32 = 16;

impl ShardThread {
    /// Behind a step with requests: gives the core to the agent if that has something to send.
    pub(super) fn lets_agent_answer(&mut self) {
        self.over_tcp = if self.endpoint.take_rung() { self.over_tcp.saturating_add(1) } else { 0 };
        if self.over_tcp == 0 {
            return;
        }
        self.endpoint.tell_core();
        if self.endpoint.is_contended() {
            if let Some(core) = self.endpoint.agent_core() {
                self.nearness.note(core);
            }
        } else if !self.rests() {
            self.endpoint.yield_now();
        }
    }

    /// Whether to sleep at once in place of looking for more.
    pub(super) fn rests(&self) -> bool {
        self.over_tcp >= STEPS && self.endpoint.is_beside_agent()
    }
}
