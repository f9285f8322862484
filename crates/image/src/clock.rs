//! The clock of a host, by which leases are kept.

/// The system's clock that never goes back, which all processes of a host see alike; `coarse` costs less and
/// may be behind by as much as [`COARSE_NS`].
pub fn host_clock_ns(coarse: bool) -> u64 {
    #[cfg(kelix_sim)]
    if let Some(clock) = HOST_CLOCK.get() {
        return clock();
    }
    #[cfg(target_os = "linux")]
    {
        use rustix::time::{ClockId, clock_gettime};
        let time = clock_gettime(if coarse { ClockId::MonotonicCoarse } else { ClockId::Monotonic });
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
    #[cfg(not(target_os = "linux"))]
    {
        use std::sync::LazyLock;
        use std::time::Instant;
        static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
        let _ = coarse;
        BEGAN.elapsed().as_nanos() as u64
    }
}

/// Whether a moment of this clock is still to come, as cheaply as that can be told.
#[inline]
pub fn is_to_come(until_ns: u64) -> bool {
    host_clock_ns(true) + COARSE_NS < until_ns || host_clock_ns(false) < until_ns
}

#[cfg(kelix_sim)]
thread_local! {
    static HOST_CLOCK: std::cell::Cell<Option<fn() -> u64>> = const { std::cell::Cell::new(None) };
}

/// Has a simulator's clock stand for the host's, on this thread; `None`: no more.
#[cfg(kelix_sim)]
pub fn set_host_clock(clock: Option<fn() -> u64>) {
    HOST_CLOCK.set(clock);
}

/// Two ticks of the system's slowest timer.
pub const COARSE_NS: u64 = 20_000_000;
