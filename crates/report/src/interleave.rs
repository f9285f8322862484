//! Measuring two things side by side on a noisy machine: short blocks in turn, the ratio of each pair, the
//! median.

use std::convert::Infallible;
use std::time::{Duration, Instant};

/// Length of one block.
pub const BLOCK: Duration = Duration::from_millis(15);

/// What came out of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// Median nanoseconds of ours for one operation.
    pub ours_ns: f64,
    /// Median nanoseconds of the other for one operation.
    pub other_ns: f64,
    /// Median of ours / other, pair by pair.
    pub ratio: f64,
    /// Quartiles of that ratio.
    pub quartiles: (f64, f64),
    /// Number of pairs.
    pub rounds: usize,
}

impl Comparison {
    /// The spread, in words.
    pub fn spread(&self) -> String {
        format!("quartiles {:.2} to {:.2}, {} rounds", self.quartiles.0, self.quartiles.1, self.rounds)
    }
}

fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// Runs `operation` again and again for one block; it says how many operations a call did, and how much of
/// its time does not count. Returns nanoseconds for one operation.
fn block<E>(mut operation: impl FnMut() -> Result<(u64, Duration), E>) -> Result<f64, E> {
    let (began, mut aside) = (Instant::now(), Duration::ZERO);
    let mut count = 0;
    while began.elapsed() < BLOCK {
        let (done, not_counted) = operation()?;
        (count, aside) = (count + done, aside + not_counted);
    }
    Ok((began.elapsed() - aside).as_nanos() as f64 / count as f64)
}

/// Runs one block of an operation, which says how many it did. Returns nanoseconds for one.
pub fn one_block(operation: &mut dyn FnMut() -> u64) -> f64 {
    let Ok(time) = block(|| Ok::<_, Infallible>((operation(), Duration::ZERO)));
    time
}

/// Runs blocks of so many sides' operations in turn over so many rounds, after one that does not count. Who
/// goes first changes from round to round. Returns nanoseconds for one operation, by side and round.
pub fn take_turns<E>(
    rounds: usize,
    sides: usize,
    mut operation: impl FnMut(usize) -> Result<u64, E>,
) -> Result<Vec<Vec<f64>>, E> {
    take_turns_but(rounds, sides, |side| Ok((operation(side)?, Duration::ZERO)))
}

/// The same, where an operation also says how much of its time does not count.
pub fn take_turns_but<E>(
    rounds: usize,
    sides: usize,
    mut operation: impl FnMut(usize) -> Result<(u64, Duration), E>,
) -> Result<Vec<Vec<f64>>, E> {
    take_blocks(rounds, sides, |side| block(|| operation(side)))
}

/// The same of blocks that a side measures itself, as long as it needs: each tells nanoseconds for one
/// operation.
pub fn take_blocks<E>(
    rounds: usize,
    sides: usize,
    mut block: impl FnMut(usize) -> Result<f64, E>,
) -> Result<Vec<Vec<f64>>, E> {
    let mut times = vec![Vec::new(); sides];
    for round in 0..=rounds {
        for turn in 0..sides {
            let side = (round + turn) % sides;
            let time = block(side)?;
            if round > 0 {
                times[side].push(time);
            }
        }
    }
    Ok(times)
}

/// What two sides' times of the same rounds say.
pub fn compared(ours: &[f64], other: &[f64]) -> Comparison {
    let ratios = sorted(ours.iter().zip(other).map(|(ours, other)| ours / other).collect());
    Comparison {
        ours_ns: median(ours),
        other_ns: median(other),
        ratio: quantile(&ratios, 0.5),
        quartiles: (quantile(&ratios, 0.25), quantile(&ratios, 0.75)),
        rounds: ratios.len(),
    }
}

/// The middle of some values.
pub fn median(values: &[f64]) -> f64 {
    quantile(&sorted(values.to_vec()), 0.5)
}

/// Compares two operations over `rounds` pairs of blocks.
pub fn compare(rounds: usize, ours: &mut dyn FnMut() -> u64, other: &mut dyn FnMut() -> u64) -> Comparison {
    let operation = |side| Ok::<_, Infallible>(if side == 0 { ours() } else { other() });
    let Ok(times) = take_turns(rounds, 2, operation);
    compared(&times[0], &times[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_compared_with_itself_done_twice_takes_half() {
        let work = |times: u32| {
            let mut x = 1u64;
            for _ in 0..times * 1000 {
                x = std::hint::black_box(x.wrapping_mul(3));
            }
            1
        };
        let twice = work;
        // Whoever else wants the core may take it in the middle of most rounds, and not for ever.
        let mut comparisons = (0..50).map(|_| compare(9, &mut || work(1), &mut || twice(2)));
        assert!(comparisons.any(|comparison| (0.35..0.7).contains(&comparison.ratio)));
    }
}
