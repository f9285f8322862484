//! Histories that are read from a file, and what our checker makes of those that no run would leave.

#![no_main]

use kelix_sim::check::linear::judge;
use kelix_sim::history::lines::{read, write};
// Its heap has bounds.
use kelix_fuzz as _;
use libfuzzer_sys::fuzz_target;

/// So many operations are judged in no time, whatever they are.
const JUDGED_MAX: usize = 12;

fuzz_target!(|text: &str| {
    let Ok(history) = read(text) else { return };
    let written = write(&history);
    assert_eq!(write(&read(&written).expect("what was written")), written);
    if history.len() <= JUDGED_MAX {
        judge(&history);
    }
});
