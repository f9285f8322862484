//! Places of segments that are emptied though no write needs it: for a better share in a cache, or for the
//! memory's sake.
//!
//! An emptied segment's places never come back, and an image has 2^18 granules of them. So many segments are
//! emptied one after the other, of a sixteenth of all places at most, and then as many as leave places for
//! two years.

use kelix_types::limits::GRANULE_BYTES;

/// Segments that may be emptied one after the other, and granules of them. Then there is a granule for that
/// in so many nanoseconds.
const SEGMENTS_AT_ONCE: u64 = 2048;
const GRANULES_AT_ONCE: u64 = 1 << 14;
const GRANULE_NS: u64 = 4 * 60 * 1_000_000_000;

/// Granules that may be spent.
pub(crate) struct Places {
    granules: u64,
    granules_max: u64,
    /// When one was added last.
    added_ns: u64,
}

impl Places {
    /// Those of segments of up to so many bytes.
    pub fn new(segment_bytes_max: u64) -> Places {
        let segment = segment_bytes_max.div_ceil(GRANULE_BYTES);
        let granules_max = (SEGMENTS_AT_ONCE * segment).min(GRANULES_AT_ONCE);
        Places { granules: granules_max, granules_max, added_ns: 0 }
    }

    /// Spends so many granules at a time on the monotonic clock, if there are as many.
    pub fn spend(&mut self, granules: u64, now_ns: u64) -> bool {
        let new = now_ns.saturating_sub(self.added_ns) / GRANULE_NS;
        self.granules = (self.granules + new).min(self.granules_max);
        self.added_ns =
            if self.granules == self.granules_max { now_ns } else { self.added_ns + new * GRANULE_NS };
        let enough = granules <= self.granules;
        self.granules -= if enough { granules } else { 0 };
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_segments_are_emptied_at_once_and_then_one_in_four_minutes_for_each_granule() {
        let mut places = Places::new(2 * GRANULE_BYTES);
        let now_ns = 1000 * GRANULE_NS;
        let at_once = (0..).take_while(|_| places.spend(2, now_ns)).count() as u64;
        assert_eq!(at_once, SEGMENTS_AT_ONCE);
        assert!(!places.spend(2, now_ns + 2 * GRANULE_NS - 1));
        assert!(places.spend(2, now_ns + 2 * GRANULE_NS));
        assert!(!places.spend(1, now_ns + 3 * GRANULE_NS - 1));
        assert!(places.spend(SEGMENTS_AT_ONCE, now_ns + 3000 * GRANULE_NS));
    }
}
