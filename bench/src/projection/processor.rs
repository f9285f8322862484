//! Processor times of an operation, in shared memory.
//!
//! - **Of the shard**, from the kernel's clock of its thread, while a client asks for batches as fast as it can. Looks at an empty
//!   ring are in it, so it is an upper bound.
//! - **Of the client**, as the time that the same operation takes where memory is within reach of loads. What the loads wait
//!   is in it, and of a message what the shard does: an upper bound too.
//!
//! The least of some rounds counts, since whatever else runs on the machine only adds to it.

use std::time::{Duration, Instant};

/// Rounds of which the least counts.
const ROUNDS: usize = 5;
/// After this long without requests a shard sleeps, and the kernel has counted all that it did.
const ASLEEP: Duration = Duration::from_millis(2);

/// Nanoseconds of one operation: `run` does so many.
pub(super) struct Times {
    pub shard_ns: f64,
    pub client_ns: f64,
}

/// Measures `run`, which says how many operations it did.
pub(super) fn of(mut run: impl FnMut() -> Result<u64, String>) -> Result<Times, String> {
    run()?;
    let mut least = Times { shard_ns: f64::MAX, client_ns: f64::MAX };
    for _ in 0..ROUNDS {
        let before = shard_ns();
        let began = Instant::now();
        let done = run()? as f64;
        least.client_ns = least.client_ns.min(began.elapsed().as_nanos() as f64 / done);
        least.shard_ns = least.shard_ns.min((shard_ns() - before) as f64 / done);
    }
    Ok(least)
}

/// Processor time of all shards of this process. Those that nobody asks anything sleep.
fn shard_ns() -> u64 {
    std::thread::sleep(ASLEEP);
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let time = |task: std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        if !name.starts_with("kelix-shard") {
            return None;
        }
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    tasks.filter_map(time).sum()
}
