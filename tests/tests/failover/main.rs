//! Every feature while primaries die and stand still: what clients have under way goes on at the next
//! primary, is done once, and nothing is half of what it was to be. Over both ways on which replicas are fed:
//! from memory that they have mapped, and over TCP.
//!
//! `KELIX_TEST_FAILOVERS=N` says how often a primary is killed or stopped in each test; `KELIX_TEST_SEED`
//! chooses the moments.

mod builds;
mod datasets;
mod items;
mod namespaces;
mod one_sided;
mod ordered;
mod submitted;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kelix_tests::cluster::Cluster;
use kelix_tests::{Random, Watchdog, seeds, until_told};

/// How long a client may take for some turns beside a failover.
const TURNS_WITHIN: Duration = Duration::from_secs(60);
/// How replicas are fed.
const WAYS: [&[&str]; 2] = [&[], &["--fabric", "tcp"]];

/// How often a primary fails: at least once in each manner.
fn failovers() -> u64 {
    std::env::var("KELIX_TEST_FAILOVERS").map_or(2, |text| text.parse().expect("a number"))
}

/// How a primary fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Failure {
    /// Its process ends at once.
    Killed,
    /// It stands still for longer than others wait for it, and then goes on.
    Stopped,
}

const FAILURES: [Failure; 2] = [Failure::Killed, Failure::Stopped];

/// What tells a client how long it goes on.
struct Turns {
    ends: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
}

impl Turns {
    /// A turn is over. Whether there is to be another.
    fn next(&self) -> bool {
        self.done.fetch_add(1, Ordering::SeqCst);
        // Others need the processor, too.
        std::thread::sleep(Duration::from_millis(1));
        !self.ends.load(Ordering::SeqCst)
    }
}

/// Clients that go on for as long as primaries fail.
#[derive(Default)]
struct Clients {
    ends: Arc<AtomicBool>,
    running: Vec<(&'static str, Arc<AtomicU64>, JoinHandle<()>)>,
    judges: Vec<Box<dyn FnOnce()>>,
}

impl Clients {
    /// Starts a client that takes turns, each of which ends well.
    fn start(&mut self, name: &'static str, client: impl FnOnce(&Turns) + Send + 'static) {
        let (ends, done) = (self.ends.clone(), Arc::<AtomicU64>::default());
        let turns = Turns { ends, done: done.clone() };
        self.running.push((name, done, std::thread::spawn(move || client(&turns))));
    }

    /// Looks, once all clients have ended, whether what they have done together is there.
    fn judge(&mut self, judge: impl FnOnce() + 'static) {
        self.judges.push(Box::new(judge));
    }

    /// Waits until each client has done so many turns more, of which the first may have begun before.
    #[track_caller]
    fn until_more(&self, turns: u64) {
        let before: Vec<u64> = self.running.iter().map(|(_, done, _)| done.load(Ordering::SeqCst)).collect();
        let late = || {
            let late = self.running.iter().zip(&before).find(|((name, done, thread), before)| {
                assert!(!thread.is_finished(), "{name} has ended");
                done.load(Ordering::SeqCst) < **before + turns
            });
            late.map(|((name, ..), _)| *name)
        };
        until_told(TURNS_WITHIN, || format!("{} goes on", late().unwrap_or_default()), || late().is_none());
    }

    fn end(self) {
        self.ends.store(true, Ordering::SeqCst);
        for (name, _, thread) in self.running {
            assert!(thread.join().is_ok(), "{name} has failed");
        }
        self.judges.into_iter().for_each(|judge| judge());
    }
}

/// A cluster, and the moments at which its primary fails.
struct Trial {
    cluster: Cluster,
    random: Random,
}

impl Trial {
    fn start(nodes: usize, options: &[&str], seed: u64) -> Trial {
        Trial { cluster: Cluster::start(nodes, options), random: Random(seed) }
    }

    /// The primary fails; `meanwhile` is called when another one has been chosen. Then all are in sync again.
    fn fail(&mut self, failure: Failure, nodes: usize, meanwhile: impl FnOnce(&Cluster)) {
        self.fail_by(failure, nodes, |cluster, failed| {
            cluster.until_other_primary(failed);
            meanwhile(cluster);
        });
    }

    /// The primary fails; `meanwhile` is called with its node. Then all are in sync again.
    fn fail_by(&mut self, failure: Failure, nodes: usize, meanwhile: impl FnOnce(&mut Cluster, usize)) {
        let cluster = &mut self.cluster;
        let primary = cluster.stop_primary(nodes);
        if failure == Failure::Killed {
            cluster.kill(primary);
        }
        meanwhile(cluster, primary);
        cluster.until_other_primary(primary);
        match failure {
            Failure::Killed => cluster.begin(primary),
            Failure::Stopped => cluster.node(primary).go_on(),
        }
        cluster.until_in_sync(nodes);
    }

    /// A moment that the seed has chosen, of up to some milliseconds.
    fn pass_a_moment(&mut self) {
        let (began, moment) = (Instant::now(), Duration::from_micros(self.random.below(4000)));
        while began.elapsed() < moment {
            std::thread::yield_now();
        }
    }
}

/// Has a test of its own over each way, with a cluster of two nodes.
#[track_caller]
fn over_each_way(what: &'static str, options: &[&str], test: impl Fn(&mut Trial, u64)) {
    for way in WAYS {
        let _watchdog = Watchdog::new(what, Duration::from_secs(120 + 30 * failovers()));
        let seed = seeds(1)[0];
        println!("{what}: KELIX_TEST_SEED={seed} {way:?}");
        test(&mut Trial::start(2, &[options, way].concat(), seed), seed);
    }
}

/// Primaries fail beside clients, over each way, and all clients find what they should.
#[track_caller]
fn fail_over(what: &'static str, options: &[&str], start: impl Fn(&Cluster, &mut Clients, u64)) {
    over_each_way(what, options, |trial, seed| {
        let mut clients = Clients::default();
        start(&trial.cluster, &mut clients, seed);
        for round in 0..failovers() {
            let turns = 1 + trial.random.below(4);
            clients.until_more(turns);
            trial.pass_a_moment();
            let failure = FAILURES[round as usize % FAILURES.len()];
            trial.fail(failure, 2, |_| clients.until_more(2));
        }
        clients.end();
    });
}
