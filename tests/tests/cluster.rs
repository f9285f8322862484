//! Nodes that hold the same: what was acknowledged is there whichever of them dies, nobody reads what a
//! successor does not know, and sessions go on by themselves.
//!
//! `KELIX_TEST_FAILOVERS=N` says how often a primary is killed or stopped; `KELIX_TEST_SEED` chooses the moments.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kelix::{Effect, ErrorKind, NewItem, Scan, Session, SessionOptions, Table, TableKind};
use kelix_tests::cluster::Cluster;
use kelix_tests::ledger::{Ledger, Tables};
use kelix_tests::{Random, Watchdog, seeds, until, value, watchdog};

const WRITERS: u64 = 2;
const READERS: usize = 2;

/// Clients that write until they are told to end, none of whose writes may fail.
struct Writers {
    threads: Vec<JoinHandle<Ledger>>,
    done: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
}

impl Writers {
    fn start(cluster: &Cluster, seed: u64) -> Writers {
        let (done, ends) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let start = |number: u64| {
            let mut session = cluster.session();
            let tables = Tables::open(&mut session).unwrap();
            let (done, ends) = (done.clone(), ends.clone());
            std::thread::spawn(move || {
                let mut ledger = Ledger::new(number, seed, true);
                while !ends.load(Ordering::SeqCst) {
                    if let Err(error) = ledger.write(&mut session, &tables) {
                        panic!("writer {number}: {error} ({:?})", error.effect());
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                }
                ledger
            })
        };
        Writers { threads: (0..WRITERS).map(start).collect(), done, ends }
    }

    /// Waits until so many more writes were acknowledged.
    #[track_caller]
    fn until_more(&self, writes: u64) {
        let before = self.done.load(Ordering::SeqCst);
        until("writes are acknowledged", || {
            assert!(!self.threads.iter().any(JoinHandle::is_finished), "a writer has ended");
            self.done.load(Ordering::SeqCst) >= before + writes
        });
    }

    fn end(self) -> Vec<Ledger> {
        self.ends.store(true, Ordering::SeqCst);
        self.threads.into_iter().map(|thread| thread.join().expect("a writer")).collect()
    }
}

/// One who counts, and others who read the count: each finds what was acknowledged before it began to read, and
/// none goes back.
struct Counting {
    threads: Vec<JoinHandle<u64>>,
    ends: Arc<AtomicBool>,
}

impl Counting {
    fn start(cluster: &Cluster) -> Counting {
        let mut session = cluster.session();
        let table = session.create_table("counts").unwrap();
        session.put(table, b"count", &0u64.to_le_bytes()).unwrap();
        let (ends, acknowledged) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let mut threads = Vec::new();
        for _ in 0..READERS {
            let (ends, acknowledged, mut session) = (ends.clone(), acknowledged.clone(), cluster.session());
            let table = session.table("counts").unwrap();
            threads.push(std::thread::spawn(move || {
                let (mut last, mut reads) = (0, 0);
                while !ends.load(Ordering::SeqCst) {
                    let before = acknowledged.load(Ordering::SeqCst);
                    let found = read_count(&mut session, table);
                    assert!(found >= before, "{found} is older than {before}, which was acknowledged");
                    assert!(found >= last, "{found} behind {last}");
                    (last, reads) = (found, reads + 1);
                    // Others need the processor, too.
                    if reads % 64 == 0 {
                        std::thread::sleep(Duration::from_micros(200));
                    }
                }
                reads
            }));
        }
        let told = ends.clone();
        threads.push(std::thread::spawn(move || {
            let mut count = 0u64;
            while !told.load(Ordering::SeqCst) {
                count += 1;
                session.put(table, b"count", &count.to_le_bytes()).unwrap();
                acknowledged.store(count, Ordering::SeqCst);
            }
            assert_eq!(read_count(&mut session, table), count);
            count
        }));
        Counting { threads, ends }
    }

    fn end(self) {
        self.ends.store(true, Ordering::SeqCst);
        for thread in self.threads {
            assert!(thread.join().expect("it finds what it is to") > 0);
        }
    }
}

fn read_count(session: &mut Session, table: Table) -> u64 {
    let item = session.get(table, b"count").unwrap().expect("it was put");
    u64::from_le_bytes(item.value().try_into().unwrap())
}

fn failovers() -> usize {
    std::env::var("KELIX_TEST_FAILOVERS").map_or(6, |text| text.parse().expect("a number"))
}

#[track_caller]
fn verify(cluster: &Cluster, ledgers: &mut [Ledger], what: &str) {
    let mut session = cluster.session();
    let tables = Tables::open(&mut session).unwrap();
    ledgers.iter_mut().for_each(|ledger| ledger.verify(&mut session, &tables, what));
}

/// Primaries are killed and stopped, beside clients who write and others who read.
fn fail_over(rounds: usize, options: &[&str]) {
    let _watchdog = Watchdog::new("failovers", Duration::from_secs(240 + 20 * rounds as u64));
    let seed = seeds(1)[0];
    println!("KELIX_TEST_SEED={seed}");
    let mut random = Random(seed);
    let mut cluster = Cluster::start(3, options);
    let (writers, counting) = (Writers::start(&cluster, seed), Counting::start(&cluster));
    for round in 0..rounds {
        writers.until_more(200 + random.below(2000));
        let primary = cluster.primary();
        if round % 3 == 2 {
            cluster.node(primary).stop_still();
            cluster.until_other_primary(primary);
            writers.until_more(100);
            cluster.node(primary).go_on();
        } else {
            cluster.kill(primary);
            cluster.until_other_primary(primary);
            writers.until_more(1);
            cluster.begin(primary);
        }
        cluster.until_in_sync(3);
    }
    counting.end();
    verify(&cluster, &mut writers.end(), "after all failovers");
}

#[test]
fn primaries_are_killed_and_stopped_and_nothing_is_lost() {
    fail_over(failovers(), &["--shards", "2"]);
}

/// The same where replicas have to say that they have what counts.
#[test]
fn nothing_is_lost_of_what_replicas_were_sent() {
    fail_over(failovers(), &["--shards", "2", "--fabric", "tcp"]);
}

/// A node that joins beside writes has all that was there, and all that is written meanwhile: it goes on alone.
#[test]
fn a_node_that_joined_beside_writes_goes_on_alone() {
    let _watchdog = watchdog("a node joins");
    let seed = seeds(1)[0];
    println!("KELIX_TEST_SEED={seed}");
    let mut cluster = Cluster::start(1, &[]);
    let writers = Writers::start(&cluster, seed);
    writers.until_more(500);
    cluster.begin(1);
    cluster.until_in_sync(2);
    writers.until_more(200);
    cluster.kill(0);
    writers.until_more(200);
    // A replica that dies is done without, and one that stands still is let go.
    cluster.begin(0);
    cluster.until_in_sync(2);
    cluster.node(0).stop_still();
    writers.until_more(200);
    cluster.until_in_sync(1);
    cluster.node(0).go_on();
    cluster.until_in_sync(2);
    cluster.kill(0);
    writers.until_more(200);
    verify(&cluster, &mut writers.end(), "after both had died");
}

/// What a session had before its primary died is good at the next one.
#[test]
fn handles_links_and_values_outlive_the_primary() {
    let _watchdog = watchdog("handles outlive");
    let mut cluster = Cluster::start(2, &["--shards", "2"]);
    let mut session = cluster.session();
    let people = session.create_table("people").unwrap();
    let ordered = session.create_table_of(TableKind::Strings, "ordered").unwrap();
    let large = value::make(1, 7, 3 << 20);
    session.put(people, b"large", &large).unwrap();
    session.put(people, b"friend", b"found").unwrap();
    session.put_item(people, b"one", &NewItem::new().bytes("", b"1").link("to", people, b"friend")).unwrap();
    for number in 0..500u32 {
        session.put(ordered, format!("key {number:04}").as_bytes(), &number.to_le_bytes()).unwrap();
    }
    let one = session.get(people, b"one").unwrap().expect("it was put");
    cluster.kill(cluster.primary());
    let friend = session.follow(&one, "to").unwrap().expect("it was put");
    assert_eq!(friend.value(), b"found");
    assert_eq!(session.get(people, b"large").unwrap().expect("it was put").value(), large);
    assert_eq!(session.scan(ordered, &Scan::all()).unwrap().count(), 500);
    session.put(people, b"two", b"2").unwrap();
    assert_eq!(session.get(people, b"two").unwrap().expect("it was put").value(), b"2");
    // A cluster has no disk: who wants what it writes there is told so.
    let mut durable = cluster.session_with(SessionOptions::default().durable(true));
    let table = durable.table("people").unwrap();
    let error = durable.put(table, b"three", b"3").unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::InvalidArgument, Effect::No));
}

/// A node that finds that all have ended who had the data says so, and does not begin as an empty one.
#[test]
fn what_nobody_has_any_more_is_not_taken_for_nothing() {
    let _watchdog = watchdog("all nodes end");
    let mut cluster = Cluster::start(2, &[]);
    let replica = 1 - cluster.primary();
    cluster.kill(replica);
    cluster.until_in_sync(1);
    cluster.kill(1 - replica);
    let mut command = cluster.kelix(&["serve", "--cluster", "local", "--node", &replica.to_string()]);
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success() && said.contains("all nodes have ended"), "{said}");
}
