//! Clients on one host beside primaries that stand still, are killed and hand over: what all of them were
//! told has an order that explains it.
//!
//! `make test-histories` has another checker judge the same histories. `KELIX_TEST_SEED` chooses what clients
//! do, and when primaries fail; `KELIX_TEST_FAILOVERS=N` says how often in each manner.

use std::time::Duration;

use kelix_tests::cluster::Cluster;
use kelix_tests::history::{ONE_SIDED, Recorder};
use kelix_tests::{Random, Watchdog, seeds};

/// What becomes of a primary.
#[derive(Clone, Copy)]
enum Failure {
    /// The primary stands still, too shortly to be suspected.
    StoppedShortly,
    /// The primary stands still until another one has gone on for a while.
    Stopped,
    Killed,
    HandedOver,
}

const FAILURES: [Failure; 4] =
    [Failure::StoppedShortly, Failure::Stopped, Failure::Killed, Failure::HandedOver];

/// Shorter than the time after which a primary that says nothing is suspected.
const UNSUSPECTED: Duration = Duration::from_millis(100);

/// How often a primary fails in each manner.
fn failovers() -> usize {
    std::env::var("KELIX_TEST_FAILOVERS").map_or(2, |text| text.parse().expect("a number"))
}

#[track_caller]
fn fail_over(name: &str, options: &[&str]) {
    let _watchdog = Watchdog::new("histories", Duration::from_secs(240 + 60 * failovers() as u64));
    let seed = seeds(1)[0];
    let mut random = Random(seed);
    let mut cluster = Cluster::start(3, &[&["--shards", "2"], options].concat());
    let mut recorder = Recorder::new(seed);
    for _ in 0..2 {
        let (patient, brief, reader) = (cluster.session(), cluster.brief_session(), cluster.session());
        recorder.start(move || patient);
        recorder.start(move || brief);
        recorder.start_reader(&ONE_SIDED, move || reader);
    }
    for failure in FAILURES.repeat(failovers()) {
        recorder.change_keys();
        recorder.until_more(300 + random.below(300));
        let primary = cluster.stop_primary(3);
        match failure {
            Failure::StoppedShortly => {
                std::thread::sleep(UNSUSPECTED);
                cluster.node(primary).go_on();
            }
            Failure::Stopped => {
                cluster.until_other_primary(primary);
                recorder.until_more(300);
                cluster.node(primary).go_on();
            }
            Failure::Killed => {
                cluster.kill(primary);
                cluster.until_other_primary(primary);
                recorder.until_more(300);
                cluster.begin(primary);
            }
            Failure::HandedOver => {
                cluster.node(primary).go_on();
                cluster.order(&["handover"]);
            }
        }
        recorder.until_more(300);
        cluster.until_in_sync(3);
    }
    recorder.end(cluster.session(), name);
}

/// Replicas are fed from memory that they have mapped.
#[test]
fn histories_are_linearizable() {
    fail_over("mapped", &[]);
}

/// Replicas are sent what counts.
#[test]
fn histories_are_linearizable_where_replicas_are_sent_what_counts() {
    fail_over("sent", &["--fabric", "tcp"]);
}
