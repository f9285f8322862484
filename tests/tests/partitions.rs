//! A cluster on three hosts, each with a node and a ZooKeeper, between which ways are cut: network
//! namespaces.
//!
//! Whatever happens, clients that write and read go on without an error: each write that was acknowledged is
//! there, once; nobody reads what is older than what was acknowledged before. Clocks that never go back begin
//! days apart.
//!
//! `make test-cluster` runs it, as root. `KELIX_TEST_SEED` chooses what is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kelix::{Path, SessionOptions};
use kelix_tests::counting::{Counting, Writers, read_count};
use kelix_tests::history::{ONE_SIDED, Recorder};
use kelix_tests::host::Clocks;
use kelix_tests::ledger::Tables;
use kelix_tests::members::Members;
use kelix_tests::partitions::{Hosts, WITHIN};
use kelix_tests::{Watchdog, seeds, until_within};

/// A short lease, so that tests are. An election of ZooKeepers takes less where processors are free.
const LEASE: Duration = Duration::from_millis(1000);
const OF_LEASE: [&str; 4] = ["--lease", "1000ms", "--shards", "2"];

fn watchdog(what: &'static str) -> Watchdog {
    Watchdog::new(what, 4 * WITHIN)
}

/// Hosts whose clocks that never go back are days apart.
fn days_apart() -> [Clocks; 3] {
    [0, 3, 40].map(|days| Clocks { monotonic_s: days * 86_400, wall_s: 0 })
}

/// Clients on the clients' host that write and read.
struct Clients {
    writers: Writers,
    counting: Counting,
}

impl Clients {
    fn start(hosts: &Hosts) -> Clients {
        let seed = seeds(1)[0];
        println!("KELIX_TEST_SEED={seed}");
        let open = || hosts.session();
        Clients { writers: Writers::start(seed, open), counting: Counting::start(open) }
    }

    /// Waits until so many more writes were acknowledged.
    #[track_caller]
    fn go_on(&self, writes: u64) {
        let wanted = self.writers.done() + writes;
        let began = Instant::now();
        until_within(WITHIN, "writes are acknowledged", || self.writers.done() >= wanted);
        println!("{writes} writes after {:?}", began.elapsed());
    }

    /// Ends them, and looks for all that was acknowledged.
    #[track_caller]
    fn end(self, hosts: &Hosts) {
        self.counting.end();
        let mut ledgers = self.writers.end();
        let mut session = hosts.session();
        let tables = Tables::open(&mut session).unwrap();
        ledgers.iter_mut().for_each(|ledger| ledger.verify(&mut session, &tables, "in the end"));
    }
}

/// A primary stands still for less than its lease, for longer than that, and is killed.
#[test]
fn primaries_that_stand_still_or_are_killed_lose_nothing() {
    let _watchdog = watchdog("primaries that stand still");
    let mut hosts = Hosts::start(days_apart(), &OF_LEASE);
    let clients = Clients::start(&hosts);
    clients.go_on(300);
    let primary = hosts.primary();
    // Not long enough to be suspected.
    hosts.node(primary).stop_still();
    std::thread::sleep(LEASE / 5);
    hosts.node(primary).go_on();
    clients.go_on(100);
    // Longer than that, and shorter than its lease: the next one waits for its end.
    let primary = hosts.primary();
    hosts.node(primary).stop_still();
    std::thread::sleep(LEASE * 7 / 10);
    hosts.node(primary).go_on();
    clients.go_on(100);
    hosts.until_in_sync(3);
    let primary = hosts.primary();
    hosts.node(primary).stop_still();
    hosts.until_other_primary(primary);
    clients.go_on(100);
    hosts.node(primary).go_on();
    hosts.until_in_sync(3);
    let primary = hosts.primary();
    hosts.kill(primary);
    hosts.until_other_primary(primary);
    clients.go_on(100);
    hosts.begin(primary);
    hosts.until_in_sync(3);
    clients.end(&hosts);
}

/// What a primary sends to ZooKeepers is lost: it is silent when its lease is over, and goes on when the way
/// is there again, or another one has gone on meanwhile.
#[test]
fn a_primary_without_a_way_to_zookeepers_is_silent() {
    let _watchdog = watchdog("a primary without a way to ZooKeepers");
    let hosts = Hosts::start(days_apart(), &OF_LEASE);
    let clients = Clients::start(&hosts);
    clients.go_on(200);
    let primary = hosts.primary();
    hosts.lose_way_to_zookeepers(primary, true);
    // A connection that was there before, and its last answer, may last a moment.
    std::thread::sleep(2 * LEASE);
    let (done, before) = (clients.writers.done(), hosts.primary());
    std::thread::sleep(LEASE);
    let went_on = clients.writers.done() - done;
    println!("{went_on} writes; primary {primary}, then {before}, now {}", hosts.primary());
    assert!(went_on == 0 || hosts.primary() != primary, "{went_on} writes count without a lease");
    for replica in hosts.others(primary).filter(|_| hosts.primary() == primary) {
        let lag = hosts.lag(replica);
        assert!(lag.is_none_or(|lag| lag > LEASE), "{lag:?}: who has no lease does not know what is new");
    }
    hosts.lose_way_to_zookeepers(primary, false);
    clients.go_on(100);
    hosts.until_in_sync(3);
    clients.end(&hosts);
}

/// What is sent between a primary and a replica is lost, in one direction and then in the other.
#[test]
fn ways_between_nodes_that_lose_what_is_sent_one_way_hold_nobody_up() {
    let _watchdog = watchdog("ways that lose what is sent");
    let hosts = Hosts::start(days_apart(), &OF_LEASE);
    let clients = Clients::start(&hosts);
    for to_replica in [true, false] {
        clients.go_on(100);
        let primary = hosts.primary();
        let replica = hosts.others(primary).next().expect("a replica");
        let (from, to) = if to_replica { (primary, replica) } else { (replica, primary) };
        let before = hosts.view();
        hosts.lose_way_to_node(from, to, true);
        // The replica takes the primary for lost, or the primary goes on without the replica.
        until_within(WITHIN, "the view is another one", || hosts.view().number > before.number);
        println!("from {from} to {to}: {primary} was primary, and {} is", hosts.primary());
        clients.go_on(100);
        hosts.lose_way_to_node(from, to, false);
        clients.go_on(100);
        hosts.until_in_sync(3);
    }
    clients.end(&hosts);
}

/// The cable of the primary's host is out, where somebody goes on reading its memory: no longer than the
/// lease lasts.
#[test]
fn who_reads_on_a_host_that_is_cut_off_reads_nothing_old() {
    let _watchdog = watchdog("a host that is cut off");
    let hosts = Hosts::start([Clocks::default(); 3], &OF_LEASE);
    let clients = Clients::start(&hosts);
    let primary = hosts.primary();
    let acknowledged = Arc::<AtomicU64>::default();
    let mut far = hosts.session();
    let table = far.create_table("apart").unwrap();
    far.put(table, b"count", &0u64.to_le_bytes()).unwrap();
    let (told, of_primary) = (acknowledged.clone(), hosts.near(primary));
    let read = Arc::<AtomicU64>::default();
    let reads_so_far = read.clone();
    let near = std::thread::spawn(move || {
        let mut near = of_primary.session();
        let table = near.table("apart").unwrap();
        for reads in 1u64.. {
            let before = told.load(Ordering::SeqCst);
            let found = read_count(&mut near, table);
            assert!(found >= before, "{found} was read behind {before}, which was acknowledged");
            reads_so_far.store(reads, Ordering::SeqCst);
            if found == 300 {
                return reads;
            }
            // Others need the processor, too.
            if reads % 64 == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        0
    });
    clients.go_on(100);
    until_within(WITHIN, "it is read there", || read.load(Ordering::SeqCst) > 100);
    hosts.plug(primary, false);
    for count in 1..=300u64 {
        far.put(table, b"count", &count.to_le_bytes()).unwrap();
        acknowledged.store(count, Ordering::SeqCst);
    }
    assert_ne!(hosts.primary(), primary, "it was cut off from everybody");
    assert!(!near.is_finished(), "it has no way to what was written");
    clients.go_on(100);
    hosts.plug(primary, true);
    assert!(near.join().unwrap() > 0);
    hosts.until_in_sync(3);
    clients.end(&hosts);
}

fn stand_still(hosts: &mut Hosts, node: usize, time: Duration) {
    hosts.node(node).stop_still();
    std::thread::sleep(time);
    hosts.node(node).go_on();
}

/// What clients were told has an order that explains it, whatever fails: clients over TCP, some of which ask
/// nobody again, and some on the host of each node.
#[test]
fn histories_are_linearizable() {
    let _watchdog = Watchdog::new("histories", 8 * WITHIN);
    // Longer than clients wait for an answer: they are at the next primary before the lease of a primary that
    // stands still is over, beside who reads the memory of that one.
    let lease = 3 * LEASE;
    let mut hosts = Hosts::start([Clocks::default(); 3], &["--lease", "3s", "--shards", "2"]);
    let mut recorder = Recorder::new(seeds(1)[0]);
    for _ in 0..2 {
        let (patient, brief) = (hosts.session(), hosts.brief_session());
        recorder.start(move || patient);
        recorder.start(move || brief);
    }
    for node in 0..3 {
        let [near, reads, asks] = [(); 3].map(|()| hosts.near(node));
        // What a replica has may be old, so reads at a replica go to the primary.
        let strict = move || SessionOptions::default().strict(true).retry_for(4 * lease);
        recorder.start(move || near.session_with(strict()));
        recorder.start_reader(&ONE_SIDED, move || reads.session_with(strict()));
        recorder.start_reader(&[Path::Message], move || asks.session_with(strict()));
    }
    let failures: [&dyn Fn(&mut Hosts, usize); 7] = [
        // Too shortly to be suspected.
        &|hosts, primary| stand_still(hosts, primary, lease / 15),
        // Longer than that, and shorter than the lease.
        &|hosts, primary| stand_still(hosts, primary, lease * 7 / 10),
        &|hosts, primary| {
            hosts.node(primary).stop_still();
            hosts.until_other_primary(primary);
            recorder.until_more(500);
            hosts.node(primary).go_on();
        },
        &|hosts, primary| {
            hosts.kill(primary);
            hosts.until_other_primary(primary);
            recorder.until_more(500);
            hosts.begin(primary);
        },
        &|hosts, primary| {
            hosts.plug(primary, false);
            hosts.until_other_primary(primary);
            recorder.until_more(500);
            hosts.plug(primary, true);
        },
        // The lease ends; whether another one is primary then depends on which ZooKeeper leads.
        &|hosts, primary| {
            hosts.lose_way_to_zookeepers(primary, true);
            std::thread::sleep(2 * lease);
            hosts.lose_way_to_zookeepers(primary, false);
        },
        // Who is told to end hands over.
        &|hosts, primary| {
            hosts.terminate(primary);
            recorder.until_more(500);
            hosts.begin(primary);
        },
    ];
    for fail in failures {
        recorder.change_keys();
        recorder.until_more(500);
        let primary = hosts.primary();
        fail(&mut hosts, primary);
        recorder.until_more(500);
        hosts.until_in_sync(3);
    }
    recorder.end(hosts.session(), "hosts_apart");
}

/// ZooKeeper's leader is killed: nobody else is primary for that.
#[test]
fn an_election_of_zookeepers_changes_no_primary() {
    let _watchdog = watchdog("an election");
    let mut hosts = Hosts::start(days_apart(), &OF_LEASE);
    let clients = Clients::start(&hosts);
    clients.go_on(100);
    for _ in 0..2 {
        let before = hosts.view();
        let leader = hosts.zookeeper.leader().expect("a leader");
        hosts.zookeeper.kill(leader);
        until_within(WITHIN, "another one leads", || hosts.zookeeper.leader().is_some());
        clients.go_on(100);
        let view = hosts.view();
        assert_eq!((view.term, view.primary), (before.term, before.primary));
        hosts.zookeeper.restart(leader).unwrap();
        hosts.zookeeper.wait(leader).unwrap();
    }
    hosts.until_in_sync(3);
    clients.end(&hosts);
}

/// ZooKeepers have no majority when the primary is killed: whoever goes on in its place does so when they
/// have one.
#[test]
fn a_primary_killed_while_zookeepers_have_no_majority_has_a_successor_when_they_have() {
    let _watchdog = watchdog("no majority");
    // Nodes ask seldom, and suspect soon: they take the last view for good when they try to go on.
    let mut hosts =
        Hosts::start(days_apart(), &["--lease", "4s", "--suspect", "150ms", "--min-in-sync", "1"]);
    let clients = Clients::start(&hosts);
    clients.go_on(100);
    let primary = hosts.primary();
    let leader = hosts.zookeeper.leader().expect("a leader");
    let ended = [leader, (leader + 1) % 3];
    ended.into_iter().for_each(|server| hosts.zookeeper.kill(server));
    hosts.kill(primary);
    // So long that it is noticed, and that the register has not answered in the time that it has.
    std::thread::sleep(6 * LEASE);
    hosts.others(primary).for_each(|node| assert!(!hosts.node(node).has_ended(), "it has what was written"));
    ended.into_iter().for_each(|server| hosts.zookeeper.restart(server).unwrap());
    hosts.until_other_primary(primary);
    clients.go_on(100);
    hosts.begin(primary);
    hosts.until_in_sync(3);
    clients.end(&hosts);
}

/// A service manager ends the nodes one after another, and begins each again.
#[test]
fn nodes_are_upgraded_one_after_another_and_clients_meet_no_error() {
    let _watchdog = watchdog("an upgrade");
    let mut hosts = Hosts::start(days_apart(), &["--lease", "4s", "--shards", "2", "--min-in-sync", "2"]);
    let clients = Clients::start(&hosts);
    let first = hosts.primary();
    for node in [first].into_iter().chain(hosts.others(first)) {
        clients.go_on(100);
        hosts.terminate(node);
        clients.go_on(100);
        hosts.begin(node);
        hosts.until_in_sync(3);
    }
    clients.end(&hosts);
}

/// All nodes are killed: nobody begins by himself with nothing, until an operator has removed the register.
#[test]
fn a_cluster_all_of_whose_nodes_were_killed_begins_anew_when_its_register_is_removed() {
    let _watchdog = watchdog("all are killed");
    let mut hosts = Hosts::start(days_apart(), &OF_LEASE);
    let mut session = hosts.session();
    let table = session.create_table("lost").unwrap();
    session.put(table, b"key", b"value").unwrap();
    drop(session);
    let before = hosts.view();
    (0..3).for_each(|node| hosts.kill(node));
    (0..3).for_each(|node| hosts.begin(node));
    let error = hosts.try_session(3 * LEASE).err().expect("nobody has what was written");
    println!("{error}");
    let view = hosts.view();
    assert_eq!((view.term, view.primary), (before.term, before.primary), "nobody was chosen");
    (0..3).for_each(|node| assert!(!hosts.node(node).has_ended(), "it waits"));
    (0..3).for_each(|node| hosts.kill(node));
    hosts.remove_register();
    (0..3).for_each(|node| hosts.begin(node));
    hosts.until_in_sync(3);
    let mut session = hosts.session();
    assert!(session.table("lost").is_err(), "it begins empty");
    let table = session.create_table("found").unwrap();
    session.put(table, b"key", b"value").unwrap();
}
