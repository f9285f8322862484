//! Which cores a thread runs on.

use std::sync::OnceLock;

/// Runs the calling thread on one core, so that client and shard do not share one.
pub fn pin(core: usize) {
    pin_to(core..core + 1);
}

/// Runs the calling thread on some cores, and so the threads and processes it starts.
pub fn pin_to(chosen: std::ops::Range<usize>) {
    pin_thread(None, chosen);
}

/// Runs a thread on some cores; `None`: the calling one.
pub fn pin_thread(thread: Option<rustix::thread::Pid>, chosen: std::ops::Range<usize>) {
    // They are counted before the first thread is pinned.
    let _ = cores();
    let mut set = rustix::thread::CpuSet::new();
    chosen.for_each(|core| set.set(core));
    // Where pinning is not allowed the figures only get noisier.
    let _ = rustix::thread::sched_setaffinity(thread, &set);
}

/// Runs all threads that a process has now on some cores.
pub fn pin_process(pid: u32, chosen: std::ops::Range<usize>) {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let threads = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    let threads = threads.filter_map(rustix::thread::Pid::from_raw);
    threads.for_each(|thread| pin_thread(Some(thread), chosen.clone()));
}

/// Starts something on the last core, which stays there, and goes on on the first.
pub fn on_last_core<T>(start: impl FnOnce() -> T) -> T {
    pin(cores() - 1);
    let started = start();
    pin(0);
    started
}

/// Lets the calling thread run anywhere again, and so the threads it starts.
pub fn unpin() {
    pin_to(0..cores());
}

/// Cores of the machine that this program may use: as many as there were before any thread was pinned, since
/// the system tells a thread only of those that it may run on.
pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}
