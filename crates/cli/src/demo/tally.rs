//! What a reader or the writer has done and what it cost, as it travels from its process to the demo's.

use std::collections::BTreeMap;
use std::time::Duration;

use kelix::Cost;
use serde_json::{Value, json};

/// Latencies, counted in buckets at most 1/32 wide of their value.
///
/// ```text
/// ns below 64     bucket = ns
/// others          bucket = 32 * (position of the top bit - 4) + the 5 bits after it
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Histogram(BTreeMap<u32, u64>);

/// Bits of a value that tell buckets apart, below its top bit.
const FINE_BITS: u32 = 5;

fn bucket_of(ns: u64) -> u32 {
    if ns < 2 << FINE_BITS {
        return ns as u32;
    }
    let shift = ns.ilog2() - FINE_BITS;
    (shift << FINE_BITS) + (ns >> shift) as u32
}

/// The middle of a bucket.
fn middle_of(bucket: u32) -> u64 {
    if bucket < 2 << FINE_BITS {
        return u64::from(bucket);
    }
    let shift = (bucket >> FINE_BITS) - 1;
    let first = u64::from(bucket - (shift << FINE_BITS)) << shift;
    first + (1 << shift) / 2
}

impl Histogram {
    pub fn record(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        *self.0.entry(bucket_of(ns)).or_default() += 1;
    }

    pub fn add(&mut self, other: &Histogram) {
        for (bucket, count) in &other.0 {
            *self.0.entry(*bucket).or_default() += count;
        }
    }

    /// The time that this share of all latencies does not exceed, in nanoseconds; `None` without any.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        let all: u64 = self.0.values().sum();
        let wanted = ((all as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in &self.0 {
            seen += count;
            if seen >= wanted {
                return Some(middle_of(*bucket));
            }
        }
        None
    }
}

/// The sum of what one or several processes did.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tally {
    /// Items read (each compared with the file), or changed.
    pub items: u64,
    /// Items read in a second of reading; those of several processes add up.
    pub items_per_s: f64,
    pub cost: Cost,
    pub latencies: Histogram,
}

impl Tally {
    pub fn add(&mut self, other: &Tally) {
        self.items += other.items;
        self.items_per_s += other.items_per_s;
        self.cost.add(other.cost);
        self.latencies.add(&other.latencies);
    }

    /// As one line.
    pub fn json(&self) -> Value {
        let Cost { reads, read_bytes, messages, retries, fallbacks } = self.cost;
        let latencies: Vec<[u64; 2]> =
            self.latencies.0.iter().map(|(bucket, count)| [u64::from(*bucket), *count]).collect();
        json!({
            "items": self.items,
            "items_per_s": self.items_per_s,
            "cost": [reads, read_bytes, messages, retries, fallbacks],
            "latencies": latencies,
        })
    }

    /// Reads such a line. `None`: it is none, or counts what cannot be counted.
    pub fn parse(line: &str) -> Option<Tally> {
        let value: Value = serde_json::from_str(line).ok()?;
        let numbers =
            |array: &Value| -> Option<Vec<u64>> { array.as_array()?.iter().map(Value::as_u64).collect() };
        let [reads, read_bytes, messages, retries, fallbacks] = numbers(&value["cost"])?[..] else {
            return None;
        };
        let mut latencies = Histogram::default();
        let mut all = 0u64;
        for pair in value["latencies"].as_array()? {
            let [bucket, count] = numbers(pair)?[..] else { return None };
            let bucket = u32::try_from(bucket).ok().filter(|bucket| *bucket <= bucket_of(u64::MAX))?;
            all = all.checked_add(count)?;
            latencies.0.insert(bucket, count);
        }
        Some(Tally {
            items: value["items"].as_u64()?,
            items_per_s: value["items_per_s"].as_f64()?,
            cost: Cost { reads, read_bytes, messages, retries, fallbacks },
            latencies,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_narrow() {
        let mut last = 0;
        for ns in (0..5000).chain((13..63).map(|bit| 1 << bit)).chain([u64::MAX]) {
            let bucket = bucket_of(ns);
            assert!(bucket >= last, "{ns}");
            last = bucket;
            let off = middle_of(bucket).abs_diff(ns);
            assert!(off <= ns / 32, "{ns} ns counted as {}", middle_of(bucket));
        }
    }

    #[test]
    fn quantiles_of_a_hundred_latencies() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile_ns(0.5), None);
        (1..=60).for_each(|ns| histogram.record(Duration::from_nanos(ns)));
        assert_eq!(histogram.quantile_ns(0.5), Some(30));
        assert_eq!(histogram.quantile_ns(0.0), Some(1));
        let mut slow = Histogram::default();
        (0..40).for_each(|_| slow.record(Duration::from_micros(100)));
        histogram.add(&slow);
        assert_eq!(histogram.quantile_ns(0.5), Some(50));
        let p99 = histogram.quantile_ns(0.99).expect("not empty");
        assert!(p99.abs_diff(100_000) < 3_200, "{p99}");
    }

    #[test]
    fn a_tally_survives_the_way_between_processes() {
        let mut tally = Tally { items: 7, items_per_s: 1234.5, ..Tally::default() };
        tally.cost = Cost { reads: 14, read_bytes: 4480, messages: 1, retries: 2, fallbacks: 3 };
        tally.latencies.record(Duration::from_nanos(812));
        tally.latencies.record(Duration::from_micros(812));
        let line = tally.json().to_string();
        assert_eq!(Tally::parse(&line), Some(tally.clone()));
        let mut twice = tally.clone();
        twice.add(&tally);
        assert_eq!((twice.items, twice.items_per_s, twice.cost.read_bytes), (14, 2469.0, 8960));
        // A bucket beyond the last one once made the quantile overflow, and so did counts.
        let bucket = |bucket: u32| line.replace("\"latencies\":[", &format!("\"latencies\":[[{bucket},1],"));
        let last = Tally::parse(&bucket(bucket_of(u64::MAX))).expect("a latency of 584 years");
        assert!(last.latencies.quantile_ns(1.0) > Some(u64::MAX / 32 * 31));
        assert_eq!(Tally::parse(&bucket(bucket_of(u64::MAX) + 1)), None);
        let counts = line.replace("\"latencies\":[", &format!("\"latencies\":[[1,{}],", u64::MAX));
        assert_eq!(Tally::parse(&counts), None);
        for broken in ["", "{}", "[1]", &line.replace("[14,", "["), &line.replace('7', "-7")] {
            assert_eq!(Tally::parse(broken), None, "{broken}");
        }
    }
}
