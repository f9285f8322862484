//! Processor times of an operation, in shared memory.
//!
//! Client and shard share a core, so that the time of one is not in that of the other, and the client asks
//! for so much at once that giving the core to and fro does not count.
//!
//! - **Of the shard**, from the kernel's clock of its thread. Looks at an empty ring, once a batch, are in
//!   it.
//! - **Of the client**, the rest of the time. What its loads wait for is in it, where READs are loads, so it
//!   is an upper bound.
//!
//! The least of some rounds counts, since whatever else runs on the machine only adds to it.

use std::time::{Duration, Instant};

use kelix_report::cores::{pin, unpin};

/// Rounds of which the least counts.
const ROUNDS: usize = 5;
/// After this long without requests a shard sleeps, and the kernel has counted all that it did.
const ASLEEP: Duration = Duration::from_millis(2);

/// Nanoseconds of one operation.
pub(super) struct Times {
    pub shard_ns: f64,
    pub client_ns: f64,
}

/// Measures `run`, which says how many operations it did.
pub(super) fn of(run: impl FnMut() -> Result<u64, String>) -> Result<Times, String> {
    on_one_core(|| measure(run))
}

fn measure(mut run: impl FnMut() -> Result<u64, String>) -> Result<Times, String> {
    run()?;
    let mut least = Times { shard_ns: f64::MAX, client_ns: f64::MAX };
    for _ in 0..ROUNDS {
        let before = shard_ns();
        let began = Instant::now();
        let done = run()? as f64;
        let elapsed = began.elapsed().as_nanos() as f64;
        let shard = (shard_ns() - before) as f64;
        least.client_ns = least.client_ns.min((elapsed - shard).max(0.0) / done);
        least.shard_ns = least.shard_ns.min(shard / done);
    }
    Ok(least)
}

/// Does something on the first core: servers that it starts are there from then on.
pub(super) fn on_one_core<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    pin(0);
    let done = run();
    unpin();
    done
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
