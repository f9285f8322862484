//! The line in which a process of the demo tells what it did.

#![no_main]

// Its heap has bounds.
use kelix_fuzz as _;
use libfuzzer_sys::fuzz_target;
use tally::Tally;

// The program is no library.
#[path = "../../crates/cli/src/demo/tally.rs"]
#[allow(dead_code)]
mod tally;

fuzz_target!(|text: &str| {
    let Some(tally) = Tally::parse(text) else { return };
    let mut again = Tally::parse(&tally.json().to_string()).expect("what was written");
    // The last bit of a decimal fraction may go on the way.
    assert!((again.items_per_s - tally.items_per_s).abs() <= tally.items_per_s.abs() * 1e-15);
    again.items_per_s = tally.items_per_s;
    assert_eq!(again, tally);
    let quantile = |share| tally.latencies.quantile_ns(share);
    assert!(quantile(0.0) <= quantile(0.5) && quantile(0.5) <= quantile(1.0));
});
