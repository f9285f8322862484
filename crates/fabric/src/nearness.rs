//! Threads of a server that come to the core of whoever asks them.
//!
//! Where others compute on all cores, the system leaves each thread where it is, and an exchange between two
//! cores takes several times as long as on one: on one core a thread that wakes another goes to sleep right
//! away, and hands over what is in the caches. So a thread whose requests all come from one other core goes
//! there.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Requests in a row from one core before a thread goes there.
const TIMES: u32 = 16;
/// Between two times that a thread goes. The system moves threads a few times in as long.
const BETWEEN_NS: u64 = 5_000_000;

/// Where the requests of a thread come from. It belongs to the thread.
#[derive(Debug, Default)]
pub struct Nearness {
    core: usize,
    times: u32,
    went_ns: u64,
}

impl Nearness {
    /// Notes that a request came from a core, and goes there if it is time to.
    pub fn note(&mut self, core: usize) {
        let own = sched_getcpu();
        if self.is_time_to_go(core, own, crate::now_ns) {
            go_to(core);
        }
    }

    /// Goes to a core from where many requests came, unless it went somewhere just now.
    #[cfg(target_os = "linux")]
    pub(crate) fn go(&mut self, core: usize) {
        if core != sched_getcpu() && self.may_go(crate::now_ns()) {
            go_to(core);
        }
    }

    fn is_time_to_go(&mut self, core: usize, own: usize, now_ns: impl FnOnce() -> u64) -> bool {
        self.times = if core == self.core { self.times + 1 } else { 1 };
        self.core = core;
        if core == own || self.times < TIMES {
            return false;
        }
        self.times = 0;
        self.may_go(now_ns())
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
    fn who_is_asked_from_one_core_goes_there_and_not_too_often() {
        let mut nearness = Nearness::default();
        let mut ask = |core, own, now_ns| nearness.is_time_to_go(core, own, || now_ns);
        // From two cores in turn nobody goes anywhere.
        assert!((0..1000).all(|request| !ask(request % 2, 0, BETWEEN_NS)));
        assert_eq!((0..TIMES).filter(|_| ask(3, 0, 5 * BETWEEN_NS)).count(), 1);
        assert!((0..1000).all(|_| !ask(3, 3, 5 * BETWEEN_NS)));
        // Moved away by the system it stays for a while.
        assert!((0..1000).all(|_| !ask(3, 0, 6 * BETWEEN_NS - 1)));
        assert_eq!((0..TIMES).filter(|_| ask(3, 0, 6 * BETWEEN_NS)).count(), 1);
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
