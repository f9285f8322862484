//! What the rows about generations share.

use std::time::{Duration, Instant};

use crate::store::Store;
use kelix_report::interleave::{self, Comparison};

/// How long it may take until a generation is dropped.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until the generation in force is the only one, so that the others' memory is free and nobody is busy
/// with it.
pub(super) fn wait_until_one_is_left(store: &Store) -> Result<(), String> {
    let began = Instant::now();
    loop {
        let left = store.statistics()?["generations"].as_array().map_or(0, Vec::len);
        match left {
            1 => return Ok(()),
            _ if began.elapsed() > PATIENCE => return Err(format!("{left} generations are left")),
            _ => {}
        }
    }
}

/// Nanoseconds an operation of work that does so many.
pub(super) fn timed(operations: u64, work: impl FnOnce() -> Result<(), String>) -> Result<f64, String> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed().as_nanos() as f64 / operations as f64)
}

/// Does two long things by turns, who goes first changing, and compares the nanoseconds that they tell.
pub(crate) fn by_turns(
    rounds: usize,
    ours: &mut dyn FnMut() -> Result<f64, String>,
    other: &mut dyn FnMut() -> Result<f64, String>,
) -> Result<Comparison, String> {
    let (mut our_times, mut other_times) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        if round % 2 == 0 {
            our_times.push(ours()?);
            other_times.push(other()?);
        } else {
            other_times.push(other()?);
            our_times.push(ours()?);
        }
    }
    Ok(interleave::compared(&our_times, &other_times))
}
