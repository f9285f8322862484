//! Whether others who compute want the core of a thread that waits.
//!
//! A thread that waits for another one on the same host looks for a while, and gives its core away between
//! two looks. Linux takes that at its word: who yields gives up what is left of its slice, and whoever
//! computes on that core goes on until a tick of the system's clock, 4 ms later as a rule. Beside such a
//! neighbour every step of an exchange takes milliseconds. A thread that sleeps is woken ahead of the one
//! that computes. But on a core that is idle sleeping is dear, since a wake-up takes longer than the answer.
//! So a waiting thread has to find out which of the two it is, and this is how it does.

/// A yield that lasts longer met somebody who computes: between those who only look for work it returns
/// within some tens of microseconds, and from one who computes the core comes back with a tick at the
/// earliest.
const LONG_NS: u64 = 700_000;
/// Two long yields between which a thread computed for longer than this are a fair division of the core among
/// threads that all have work, as of many clients in shared memory: to each its slice. Who gives the core
/// away for milliseconds to compute for microseconds gets less than that by yielding.
const FAIR_NS: u64 = 1_000_000;
/// How long a thread does not yield once it has found out, at first; each time that a yield after that is
/// long again it is four times as long, up to the most. So a core that stays busy is tried again rarely, and
/// one that was busy for a moment soon.
const FIRST_NS: u64 = 20_000_000;
const MOST_NS: u64 = 4_000_000_000;
/// After so many short yields in a row it is forgotten that there were long ones: the core was wanted for a
/// moment. Beside one who computes many yields are short too, as long as a thread has less than its share,
/// but hardly ever more than 64 in a row.
const FORGOTTEN: u32 = 256;

/// What a thread has learned from its yields. It belongs to one thread, and costs a look at the clock before
/// and after a yield.
///
/// All times are on one clock of the caller's, in nanoseconds.
#[derive(Debug, Default)]
pub struct Contention {
    /// Until when it does not yield; 0: it does.
    until_ns: u64,
    /// For how long that was decided last; 0: never, or it is forgotten.
    lasts_ns: u64,
    /// What the thread had computed when the last long yield ended.
    long_computed_ns: Option<u64>,
    /// Short yields since then.
    short: u32,
}

impl Contention {
    /// Notes a yield. `computed_ns` says for how long the thread has computed so far; it is asked after long
    /// yields only.
    pub fn note(&mut self, began_ns: u64, ended_ns: u64, computed_ns: impl FnOnce() -> u64) {
        if began_ns < self.until_ns {
            // Somebody who does not ask: nothing new.
            return;
        }
        if ended_ns.saturating_sub(began_ns) < LONG_NS {
            self.short = self.short.saturating_add(1);
            return;
        }
        if std::mem::take(&mut self.short) >= FORGOTTEN {
            *self = Contention::default();
        }
        let computed_ns = computed_ns();
        let computed_little = |before_ns: u64| computed_ns.saturating_sub(before_ns) < FAIR_NS;
        if self.long_computed_ns.is_some_and(computed_little) {
            let is_again = self.lasts_ns > 0;
            self.lasts_ns = if is_again { (self.lasts_ns * 4).min(MOST_NS) } else { FIRST_NS };
            self.until_ns = ended_ns + self.lasts_ns;
        }
        self.long_computed_ns = Some(computed_ns);
    }

    /// Whether to sleep at once instead of yielding. The clock is only asked where that is in doubt.
    #[inline]
    pub fn is_contended(&self, now_ns: impl FnOnce() -> u64) -> bool {
        self.until_ns > 0 && now_ns() < self.until_ns
    }

    /// Gives the core away for a moment, on the clock of this process.
    pub fn yield_now(&mut self) {
        let began_ns = crate::now_ns();
        std::thread::yield_now();
        self.note(began_ns, crate::now_ns(), computed_ns);
    }

    /// [`Contention::is_contended`] on the clock of this process.
    #[inline]
    pub fn is_contended_now(&self) -> bool {
        self.is_contended(crate::now_ns)
    }
}

/// Processor time of the calling thread, where no system call tells it: as if the thread had computed all the
/// time, so that long yields tell of nobody.
#[cfg(windows)]
fn computed_ns() -> u64 {
    crate::now_ns()
}

/// Processor time of the calling thread.
#[cfg(not(windows))]
fn computed_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread on clocks that the test drives.
    #[derive(Default)]
    struct Thread {
        contention: Contention,
        now_ns: u64,
        computed_ns: u64,
    }

    const TICK: u64 = 4_000_000;

    impl Thread {
        /// Computes for so long and then yields for so long.
        fn turn(&mut self, computes_ns: u64, yields_ns: u64) {
            self.computed_ns += computes_ns;
            let began_ns = self.now_ns + computes_ns;
            self.now_ns = began_ns + yields_ns;
            self.contention.note(began_ns, self.now_ns, || self.computed_ns);
        }

        fn is_contended(&self) -> bool {
            self.contention.is_contended(|| self.now_ns)
        }

        /// Sleeps instead of yielding until it may yield again; for how long that was.
        fn sleeps(&mut self) -> u64 {
            let began_ns = self.now_ns;
            while self.is_contended() {
                self.now_ns += 1_000_000;
            }
            self.now_ns - began_ns
        }
    }

    #[test]
    fn beside_one_who_computes_the_second_yield_is_the_last() {
        let mut thread = Thread::default();
        thread.turn(5_000, TICK);
        assert!(!thread.is_contended());
        // It may have waited for long meanwhile, for the next request.
        thread.now_ns += 10 * TICK;
        thread.turn(5_000, TICK);
        assert!(thread.is_contended());
    }

    #[test]
    fn a_core_that_stays_busy_is_tried_again_rarely() {
        let mut thread = Thread::default();
        thread.turn(5_000, TICK);
        thread.turn(5_000, TICK);
        let mut slept = Vec::new();
        for _ in 0..6 {
            slept.push(thread.sleeps() / 1_000_000);
            // Some yields are short, and one is not.
            (0..100).for_each(|_| thread.turn(1_000, 1_000));
            thread.turn(5_000, TICK);
        }
        assert_eq!(slept, [20, 80, 320, 1280, 4000, 4000]);
    }

    #[test]
    fn a_core_that_is_idle_again_is_yielded_again() {
        let mut thread = Thread::default();
        thread.turn(5_000, TICK);
        thread.turn(5_000, TICK);
        thread.sleeps();
        for _ in 0..FORGOTTEN {
            thread.turn(5_000, 2_000);
            assert!(!thread.is_contended());
        }
        // What was is forgotten: it takes two again, and the thread sleeps as briefly as the first time.
        thread.turn(5_000, TICK);
        assert!(!thread.is_contended());
        thread.turn(5_000, TICK);
        assert!(thread.is_contended());
        assert_eq!(thread.sleeps() / 1_000_000, FIRST_NS / 1_000_000);
    }

    #[test]
    fn clients_who_share_a_core_slice_by_slice_go_on_yielding() {
        let mut thread = Thread::default();
        for _ in 0..1000 {
            thread.turn(3_000_000, 3 * TICK);
            assert!(!thread.is_contended());
        }
    }

    #[test]
    fn yields_among_those_who_only_look_mean_nothing() {
        let mut thread = Thread::default();
        for _ in 0..1000 {
            thread.turn(1_000, 8 * 40_000);
            assert!(!thread.is_contended());
        }
    }

    /// A neighbour's tick now and then, as on every host.
    #[test]
    fn a_long_yield_now_and_then_means_nothing() {
        let mut thread = Thread::default();
        for _ in 0..1000 {
            thread.turn(5_000, TICK);
            assert!(!thread.is_contended());
            (0..500).for_each(|_| thread.turn(2_000, 2_000));
        }
    }

    /// One who computes for some milliseconds now and then had the thread sleep for longer each time, up to
    /// seconds.
    #[test]
    fn a_neighbour_of_a_moment_is_forgotten() {
        let mut thread = Thread::default();
        for _ in 0..1000 {
            (0..2).for_each(|_| thread.turn(5_000, TICK));
            assert!(thread.sleeps() <= FIRST_NS + 1_000_000);
            (0..2000).for_each(|_| thread.turn(100, 2_000));
        }
    }
}
