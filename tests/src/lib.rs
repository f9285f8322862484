//! What the tests of the whole share: servers and clients as processes of their own, values that prove
//! themselves, bounded waiting.
//!
//! Each test starts its own server in a directory of its own. No test assumes that two processes run at the
//! same time, and none sleeps and hopes: [`until`] looks until something holds, and a [`Watchdog`] ends a
//! test that hangs.

pub mod apart;
pub mod bystander;
pub mod cluster;
pub mod counting;
pub mod disk;
mod far;
pub mod filled;
pub mod history;
pub mod host;
pub mod hosts;
pub mod kinds;
pub mod ledger;
pub mod logged;
pub mod members;
pub mod mirror;
pub mod partitions;
pub mod process;
pub mod raw;
pub mod slow;
pub mod value;
pub mod way;
pub mod witness;

pub use far::{
    breaks, check_fabric, check_one_sided, client_at, client_with, fabrics, far, fewer, rdma, session_over,
    start, tcp_address,
};

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use kelix::Client;
use serde_json::Value;

/// How long [`until`] looks before it gives up. Long, because it is only waited for when something is broken.
const PATIENCE: Duration = Duration::from_secs(20);

/// Within this time a request is answered or fails, whatever has become of the server: one second is
/// promised, the rest is for a machine that has other things to do.
pub const ANSWERED_WITHIN: Duration = Duration::from_millis(1500);

/// A run directory that goes when its owner does.
pub struct RunDir(PathBuf);

impl RunDir {
    /// A fresh one.
    #[allow(clippy::new_without_default, reason = "it makes a directory, which a default should not")]
    pub fn new() -> RunDir {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("kelix-test-{}-{number}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return RunDir(path),
                // Left by a process of the same number that was killed: a store would go on with that.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => panic!("cannot make {}: {error}", path.display()),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Looks until `condition` holds; panics, naming `what`, when it does not for too long.
#[track_caller]
pub fn until(what: &str, condition: impl FnMut() -> bool) {
    until_within(PATIENCE, what, condition);
}

/// The same for what may take longer, by a time-out of the program, say.
#[track_caller]
pub fn until_within(patience: Duration, what: &str, condition: impl FnMut() -> bool) {
    until_told(patience, || what.into(), condition);
}

/// The same with a name that tells how far it came.
#[track_caller]
pub fn until_told(patience: Duration, what: impl Fn() -> String, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < patience, "waited in vain until {}", what());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Ends the whole test process, with a word, when it is not dropped in time.
pub struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    /// Watches over `what` for so long.
    pub fn new(what: &'static str, patience: Duration) -> Watchdog {
        let (alive, watched) = channel::<()>();
        std::thread::spawn(move || {
            if watched.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{what}: nothing moves any more after {patience:?}");
                std::process::abort();
            }
        });
        Watchdog { _alive: alive }
    }
}

/// What a test may take at most. Several times what it does take on a slow machine.
pub fn watchdog(what: &'static str) -> Watchdog {
    Watchdog::new(what, Duration::from_secs(240))
}

/// A small random number generator (SplitMix64), so that a seed tells everything.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    #[allow(clippy::should_implement_trait, reason = "it never ends, so it is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        value::mix(self.0)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// The seeds a randomised test runs with: a few fixed ones, or the one that `KELIX_TEST_SEED` names.
pub fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("KELIX_TEST_SEED") {
        Ok(seed) => vec![seed.parse().expect("KELIX_TEST_SEED is a number")],
        Err(_) => (1..=count).collect(),
    }
}

/// The server's statistics.
pub fn statistics(client: &Client) -> Value {
    serde_json::json!(client.statistics().expect("a server that tells its statistics"))
}

/// The sum over all shards of a number in the statistics, `"items"` or `"memory/live_bytes"`.
pub fn shard_sum(statistics: &Value, name: &str) -> u64 {
    let shards = statistics["shards"].as_array().expect("a list of shards");
    let number = |shard: &Value| shard.pointer(&format!("/{name}")).and_then(Value::as_u64);
    shards.iter().map(|shard| number(shard).unwrap_or_else(|| panic!("no number {name} in {shard}"))).sum()
}

/// The same, asked of the server now. Shards report when they go idle, so a number may be a moment old: use
/// it inside [`until`].
pub fn asked_sum(client: &Client, name: &str) -> u64 {
    shard_sum(&statistics(client), name)
}
