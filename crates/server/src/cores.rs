//! Which cores the threads of shards run on.

use rustix::thread::{CpuSet, sched_getaffinity};

/// The core of each shard's thread, of those that this process may use. None, if not each can have one of its
/// own with one left for all else.
pub(crate) fn of_shards(shards: usize) -> Vec<usize> {
    let allowed: Vec<usize> = sched_getaffinity(None).map_or_else(|_| Vec::new(), members);
    let parallelism = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    choose(&allowed, parallelism, shards)
}

fn members(set: CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
}

/// Chooses among the cores of a mask, which a container or `taskset` may have set, so that it need not begin with
/// core 0. A control group may grant less time than that of as many cores: `parallelism`.
fn choose(allowed: &[usize], parallelism: usize, shards: usize) -> Vec<usize> {
    let have_their_own = shards < parallelism.min(allowed.len());
    // From the last core down, so that core 0, where much else lands, stays free for longest.
    if have_their_own { allowed.iter().rev().take(shards).copied().collect() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers below the count of cores were taken, whichever cores the mask had.
    #[test]
    fn only_cores_of_the_mask_are_chosen() {
        assert_eq!(choose(&[0, 1, 2, 3], 4, 3), [3, 2, 1]);
        assert_eq!(choose(&[4, 5, 9, 70], 4, 2), [70, 9]);
        assert_eq!(choose(&[0, 1, 2, 3, 4, 5, 6, 7], 2, 1), [7]);
        for (allowed, parallelism, shards) in [(&[4, 5, 6, 7][..], 4, 4), (&[4, 5, 6, 7], 2, 2), (&[], 1, 1)]
        {
            assert!(choose(allowed, parallelism, shards).is_empty(), "{allowed:?} {parallelism} {shards}");
        }
    }

    #[test]
    fn a_mask_is_read() {
        let mut set = CpuSet::new();
        [2, 64, 700].into_iter().for_each(|core| set.set(core));
        assert_eq!(members(set), [2, 64, 700]);
        let allowed = members(sched_getaffinity(None).unwrap());
        assert!(!allowed.is_empty() && of_shards(allowed.len()).is_empty());
    }
}
