//! Until when what a mirror shows may be read: a mirror that hears nothing of its primary any more shows what
//! was true once.
//!
//! A mirror says as of when it has all that its primary has. So what is read of its memory later than that
//! was said, and before the limit that follows from it, is not older than is allowed. The limit that a read
//! is compared with was known before the read began: one that is learnt afterwards may be of newer memory.

use std::cell::Cell;

use kelix_fabric::{Direct, host_clock_ns};
use kelix_image::clock::is_to_come;
use kelix_image::header_word;
use kelix_types::Place;

/// The limit of a shard.
pub(crate) struct Freshness {
    max_lag_ns: Option<u64>,
    until_ns: Cell<u64>,
    /// The mirror has another clock, so no limit is known.
    is_of_other_clock: Cell<bool>,
}

impl Freshness {
    /// That of a mirror, and of its session if that has one too. Nothing is known of it yet.
    pub fn new(max_lag_ns: Option<u64>) -> Freshness {
        Freshness { max_lag_ns, until_ns: Cell::new(0), is_of_other_clock: Cell::new(false) }
    }

    /// Whether the limit that is known has not passed yet.
    #[inline]
    pub fn holds(&self) -> bool {
        is_to_come(self.until_ns.get())
    }

    /// Takes note of the words of a header page, for what is read from now on.
    pub fn renew(&self, lease_ns: u64, fresh_ns: u64) {
        if fresh_ns > host_clock_ns(false) {
            self.is_of_other_clock.set(true);
        }
        if self.is_of_other_clock.get() {
            return self.until_ns.set(0);
        }
        let of_mirror = if lease_ns == 0 { u64::MAX } else { lease_ns };
        let of_session = self.max_lag_ns.map_or(u64::MAX, |most| fresh_ns.saturating_add(most));
        self.until_ns.set(of_mirror.min(of_session));
    }

    /// Whether what was read counts. If it does not, the next read is compared with a limit that is newer.
    pub fn covers(&self, direct: &Direct) -> bool {
        let holds = self.holds();
        if !holds {
            let word = |index: usize| {
                let words = direct.map.view().words(Place(index as u64 * 8), 1);
                words.map_or(0, |words| words.load_acquire(0))
            };
            self.renew(word(header_word::LEASE), word(header_word::FRESH));
        }
        holds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_earlier_one() {
        let now_ns = host_clock_ns(false);
        let second = 1_000_000_000;
        for (max_lag_ns, lease_ns, fresh_ns, holds) in [
            (None, 0, 0, true),
            (None, now_ns + second, 0, true),
            (None, now_ns - 1, now_ns, false),
            (Some(second), 0, now_ns, true),
            (Some(second), 0, now_ns - second, false),
            (Some(second), now_ns - 1, now_ns, false),
            (Some(second), now_ns + second, now_ns - second, false),
            (Some(second), 0, 0, now_ns < second),
            (Some(u64::MAX), 0, 1, true),
        ] {
            let freshness = Freshness::new(max_lag_ns);
            assert!(!freshness.holds(), "nothing is known");
            freshness.renew(lease_ns, fresh_ns);
            assert_eq!(freshness.holds(), holds, "{max_lag_ns:?} {lease_ns} {fresh_ns}");
        }
    }

    /// A mirror in another time namespace would be as new as can be, long after it has lost its primary.
    #[test]
    fn a_mirror_that_is_newer_than_now_has_another_clock() {
        let hour = 3_600_000_000_000;
        for (max_lag_ns, lease_ns) in [(Some(hour), 0), (None, host_clock_ns(false) + 2 * hour)] {
            let freshness = Freshness::new(max_lag_ns);
            freshness.renew(lease_ns, host_clock_ns(false) + hour);
            assert!(!freshness.holds(), "{max_lag_ns:?}");
            freshness.renew(lease_ns, host_clock_ns(false));
            assert!(!freshness.holds(), "{max_lag_ns:?}: once known it stays");
        }
    }
}
