//! The register against real servers, which each of the two large tests starts for itself: its cases come one
//! behind the other, each with a register of its own.
//!
//! No case depends on how quick the machine is: calls have [`LONG`], or are made again until they are
//! answered ([`answered`]), and what a call may take at most is looked at with [`LENIENCE`].

mod ensemble;
mod faults;
mod hand;
mod standalone;
mod valve;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kelix_types::{Error, ErrorKind};
use kelix_zookeeper::ZooKeeper;

use super::{ZooKeeperOptions, ZooKeeperRegister};
use crate::conformance::view;
use crate::{Register, Swapped, View};

/// The time limit of calls that are to be answered.
const LONG: Duration = Duration::from_secs(10);
/// The time limit of calls to which no answer may come.
const SHORT: Duration = Duration::from_millis(600);
/// How much longer than its time limit a call may take here, where a machine has other things to do.
const LENIENCE: Duration = Duration::from_secs(10);
/// How long [`until`] and [`answered`] look.
const PATIENCE: Duration = Duration::from_secs(60);

/// A register that no other case uses, and how long calls may take.
#[derive(Clone)]
struct Place {
    servers: String,
    cluster: String,
    limit: Duration,
}

impl Place {
    fn new(zookeeper: &ZooKeeper) -> Place {
        Place::at(&zookeeper.addresses())
    }

    fn at(servers: &[String]) -> Place {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let cluster = format!("c{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        Place { servers: servers.join(","), cluster, limit: LONG }
    }

    fn with_limit(self, limit: Duration) -> Place {
        Place { limit, ..self }
    }

    fn options(&self, node: &str) -> ZooKeeperOptions {
        let options = ZooKeeperOptions::new(&self.servers, &self.cluster, node).unwrap();
        options.time_limit(self.limit).unwrap()
    }

    fn open(&self, node: &str) -> ZooKeeperRegister {
        ZooKeeperRegister::open(&self.options(node)).unwrap()
    }

    /// The name of a node that begins with the server of this number.
    fn beginning_at(&self, server: usize) -> String {
        let mut nodes = (0..).map(|node| format!("n{node}"));
        nodes.find(|node| self.options(node).first_server() == server).unwrap()
    }

    /// A handle, after this many views.
    fn with_views(&self, count: u64) -> ZooKeeperRegister {
        let mut register = self.open("1");
        for number in 1..=count {
            assert_eq!(register.swap(number - 1, &view(number, number)).unwrap(), Swapped::Done);
        }
        register
    }

    fn path(&self, below: &str) -> String {
        format!("/kelix/{}{below}", self.cluster)
    }
}

/// Looks until something holds.
#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "it does not come that {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Makes a call until it is answered. What it returned otherwise is that no server did, or none in time.
#[track_caller]
fn answered<T>(mut call: impl FnMut() -> kelix_types::Result<T>) -> T {
    let began = Instant::now();
    loop {
        match call() {
            Ok(done) => return done,
            Err(error) => {
                let is_late = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut);
                assert!(is_late && began.elapsed() < PATIENCE, "{error}");
            }
        }
    }
}

/// What a call returned, which took no longer than it may.
#[track_caller]
fn in_time<T>(limit: Duration, call: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let returned = call();
    let took = began.elapsed();
    assert!(took < limit + LENIENCE, "a call took {took:?}");
    returned
}

/// The errors of the three calls.
fn errors(register: &mut ZooKeeperRegister, number: u64) -> [Error; 3] {
    let proposal = view(number + 1, 4711);
    [
        register.is_current(number).unwrap_err(),
        register.read().unwrap_err(),
        register.swap(number, &proposal).unwrap_err(),
    ]
}

#[track_caller]
fn assert_lost(register: &mut ZooKeeperRegister, number: u64, why: &str) {
    for error in errors(register, number) {
        assert_eq!(error.kind(), ErrorKind::Superseded, "{error}");
        assert!(!error.retry() && error.context().contains(why), "{error}");
    }
}

/// The view of a proposal, whose number tells who made it and when.
fn proposal(number: u64, thread: u64, round: u64) -> View {
    view(number, thread << 32 | round)
}
