//! How long many operations took: how many took how long, in little memory, so that noting it disturbs
//! nobody.

/// Steps to each power of two: a time is known to 1.6 %.
const STEPS: u64 = 64;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Times from 2^40 ns on, a quarter of an hour, count as that.
const BITS_MAX: u32 = 40;

/// Numbers of operations by the nanoseconds that they took.
#[derive(Clone)]
pub(crate) struct Times {
    counts: Vec<u64>,
    count: u64,
    longest_ns: u64,
}

/// Where a time is counted: below 64 ns each has a place of its own.
fn place(ns: u64) -> usize {
    let ns = ns.min((1 << BITS_MAX) - 1);
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(STEP_BITS + 1);
    (u64::from(shift) * STEPS + (ns >> shift)) as usize
}

/// The shortest time that is counted there.
fn time_of(place: usize) -> u64 {
    let shift = (place as u64 / STEPS).saturating_sub(1);
    (place as u64 - shift * STEPS) << shift
}

impl Times {
    pub fn new() -> Times {
        Times { counts: vec![0; place(u64::MAX) + 1], count: 0, longest_ns: 0 }
    }

    pub fn note(&mut self, ns: u64) {
        self.counts[place(ns)] += 1;
        self.count += 1;
        self.longest_ns = self.longest_ns.max(ns);
    }

    /// Notes all that others have noted.
    pub fn add(&mut self, others: &Times) {
        self.counts.iter_mut().zip(&others.counts).for_each(|(count, other)| *count += other);
        self.count += others.count;
        self.longest_ns = self.longest_ns.max(others.longest_ns);
    }

    /// How many were noted.
    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn longest_ns(&self) -> u64 {
        self.longest_ns
    }

    /// The time that this share of all operations took at most.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let mut left = ((self.count as f64 * share).ceil() as u64).max(1);
        let reached = |count: &u64| {
            left = left.saturating_sub(*count);
            left == 0
        };
        self.counts.iter().position(reached).map_or(0, time_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_counted_near_itself() {
        for ns in (0..10_000).chain((14..40).map(|power| (1 << power) + 12_345)) {
            let told = time_of(place(ns));
            assert!(told <= ns && ns - told <= ns / STEPS, "{ns} became {told}");
            assert!(place(ns) <= place(ns + 1) && place(ns + 1) <= place(ns) + 1, "{ns}");
        }
        assert_eq!(place(1 << 50), place(u64::MAX));
    }

    #[test]
    fn quantiles_are_of_what_was_noted() {
        let mut times = Times::new();
        assert_eq!(times.quantile_ns(0.999), 0);
        (0..1000).for_each(|_| times.note(50));
        times.note(5000);
        assert_eq!((times.quantile_ns(0.5), times.quantile_ns(0.999)), (50, 50));
        times.note(6000);
        let mut both = Times::new();
        both.note(7000);
        both.add(&times);
        assert_eq!((times.quantile_ns(0.999), times.count(), times.longest_ns()), (4992, 1002, 6000));
        assert_eq!((both.quantile_ns(0.999), both.count(), both.longest_ns()), (5952, 1003, 7000));
    }
}
