//! The agent's way to the core of a client.
//!
//! Where others compute on all cores, the system leaves each thread where it is, and an exchange between two
//! cores takes several times as long as on one: on one core a thread that wakes another goes to sleep right
//! away, and hands over what is in the caches.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Between two times that a thread goes. The system moves threads a few times in as long.
const BETWEEN_NS: u64 = 5_000_000;

/// When a thread last went somewhere. It belongs to the thread.
#[derive(Debug, Default)]
pub struct Nearness {
    went_ns: u64,
}

impl Nearness {
    /// Goes to a core, unless it went somewhere just now.
    pub fn go(&mut self, core: usize) {
        if core != sched_getcpu() && self.may_go(crate::now_ns()) {
            go_to(core);
        }
    }

    fn may_go(&mut self, now_ns: u64) -> bool {
        let goes = now_ns >= self.went_ns + BETWEEN_NS;
        if goes {
            self.went_ns = now_ns;
        }
        goes
    }
}

/// Has the calling thread go on on a core, if it may run there, from where the system may move it again.
fn go_to(core: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    if core >= CpuSet::MAX_CPU || !allowed.is_set(core) {
        return;
    }
    let mut there = CpuSet::new();
    there.set(core);
    if sched_setaffinity(None, &there).is_ok() {
        let _ = sched_setaffinity(None, &allowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_was_moved_away_stays_for_a_while() {
        let mut nearness = Nearness::default();
        assert!(nearness.may_go(5 * BETWEEN_NS) && !nearness.may_go(5 * BETWEEN_NS));
        assert!(!nearness.may_go(6 * BETWEEN_NS - 1) && nearness.may_go(6 * BETWEEN_NS));
    }

    #[test]
    fn a_thread_goes_where_it_may_run_and_may_run_elsewhere_as_before() {
        let allowed = sched_getaffinity(None).unwrap();
        for core in (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)) {
            // The system may have moved it again in the moment after.
            assert!((0..1000).any(|_| {
                go_to(core);
                sched_getcpu() == core
            }));
            assert!(sched_getaffinity(None).unwrap() == allowed);
        }
        let forbidden = (0..CpuSet::MAX_CPU).find(|core| !allowed.is_set(*core));
        forbidden.into_iter().chain([usize::MAX]).for_each(go_to);
        assert!(sched_getaffinity(None).unwrap() == allowed);
    }
}
