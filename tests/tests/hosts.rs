//! Nodes that share nothing but a ZooKeeper: a primary counts for as long as it knows that it is one, whoever stands
//! still, and its successor waits that long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kelix::{Effect, ErrorKind, SessionOptions};
use kelix_tests::counting::{Counting, Writers, read_count};
use kelix_tests::hosts::Hosts;
use kelix_tests::ledger::{Ledger, Tables};
use kelix_tests::members::Members;
use kelix_tests::{seeds, until, watchdog};

/// A short lease, so that tests are. Nodes ask eight times in it.
const LEASE_MS: u64 = 800;

#[track_caller]
fn verify(hosts: &Hosts, ledgers: &mut [Ledger], what: &str) {
    let mut session = hosts.session();
    let tables = Tables::open(&mut session).unwrap();
    ledgers.iter_mut().for_each(|ledger| ledger.verify(&mut session, &tables, what));
}

/// Primaries are killed, and stand still for longer than their lease.
#[test]
fn primaries_on_other_hosts_are_killed_and_stopped_and_nothing_is_lost() {
    let _watchdog = watchdog("failovers of hosts");
    let seed = seeds(1)[0];
    println!("KELIX_TEST_SEED={seed}");
    let mut hosts = Hosts::start(3, LEASE_MS, &["--shards", "2"]);
    let (writers, counting) = (Writers::start(seed, || hosts.session()), Counting::start(|| hosts.session()));
    for round in 0..3 {
        writers.until_more(300);
        let primary = hosts.primary();
        if round == 1 {
            hosts.node(primary).stop_still();
            hosts.until_other_primary(primary);
            writers.until_more(100);
            hosts.node(primary).go_on();
        } else {
            hosts.kill(primary);
            hosts.until_other_primary(primary);
            writers.until_more(100);
            hosts.begin(primary);
        }
        hosts.until_in_sync(3);
    }
    counting.end();
    verify(&hosts, &mut writers.end(), "after all failovers");
}

/// Who reads the memory of a primary that stands still reads it no longer than the lease lasts: a successor serves
/// then, of which nobody on the old host has heard.
#[test]
fn who_reads_beside_a_primary_that_stands_still_reads_nothing_old() {
    let _watchdog = watchdog("a reader beside a primary that stands still");
    let mut hosts = Hosts::start(2, LEASE_MS, &[]);
    let primary = hosts.primary();
    let mut near = hosts.session_on(primary);
    let table = near.create_table("counts").unwrap();
    near.put(table, b"count", &0u64.to_le_bytes()).unwrap();
    assert_eq!(read_count(&mut near, table), 0);
    hosts.node(primary).stop_still();
    let acknowledged = Arc::<AtomicU64>::default();
    // The old host's reader meets the end of the lease in the middle of its reads, and then nobody who answers there.
    let mut straight = 0u64;
    let waits = std::thread::spawn({
        let acknowledged = acknowledged.clone();
        move || {
            loop {
                let before = acknowledged.load(Ordering::SeqCst);
                let found = read_count(&mut near, table);
                assert!(found >= before, "{found} was read behind {before}, which was acknowledged");
                if found == 500 {
                    return straight;
                }
                straight += 1;
            }
        }
    });
    let told = acknowledged.clone();
    let mut far = hosts.session();
    let writer = std::thread::spawn(move || {
        let table = far.table("counts").unwrap();
        for count in 1..=500u64 {
            far.put(table, b"count", &count.to_le_bytes()).unwrap();
            told.store(count, Ordering::SeqCst);
        }
    });
    writer.join().unwrap();
    // It begins anew as a replica, which the reader goes over to.
    hosts.node(primary).go_on();
    assert!(waits.join().unwrap() > 0, "it read while the lease lasted");
    hosts.until_in_sync(2);
}

/// Calls until the session has gone over to what its node is by now, if the node is something else: a call
/// may say that it has not been done since.
fn on_any<T>(mut call: impl FnMut() -> kelix::Result<T>) -> T {
    let mut done = None;
    until("the session has gone over", || {
        let called = call();
        if let Err(error) = &called {
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Superseded, Effect::No), "{error}");
        }
        done = called.ok();
        done.is_some()
    });
    done.expect("just seen")
}

/// A session in the memory of a node's host stayed what it was when it was opened: of a primary that had
/// become a replica it read the memory as that of a primary, which may be old, and had its writes refused; of
/// a replica it wrote to the primary of that time.
#[test]
fn sessions_on_a_host_go_on_whether_the_node_is_primary_or_a_replica() {
    let _watchdog = watchdog("sessions on hosts");
    let hosts = Hosts::start(3, 20_000, &[]);
    let session = |node| hosts.session_on_with(node, SessionOptions::default().strict(true));
    let mut sessions = [0, 1, 2].map(session);
    let tables = sessions.each_mut().map(|session| session.create_table("counts").unwrap());
    let mut count = 0u64;
    for _ in 0..4 {
        for turn in 0..300 {
            let (writer, reader) = (turn % 3, (turn + 1) % 3);
            count += 1;
            on_any(|| sessions[writer].put(tables[writer], b"count", &count.to_le_bytes()));
            let item = on_any(|| sessions[reader].get(tables[reader], b"count")).expect("it was put");
            assert_eq!(item.value(), count.to_le_bytes());
        }
        let primary = hosts.primary();
        assert_eq!([0, 1, 2].map(|node| sessions[node].is_mirror()), [0, 1, 2].map(|node| node != primary));
        hosts.order(&["handover"]);
        hosts.until_in_sync(3);
    }
}

/// Without its register a primary is silent when its lease is over, and stays what it is.
#[test]
fn a_primary_without_its_register_is_silent_and_goes_on() {
    let _watchdog = watchdog("a register that is away");
    let seed = seeds(1)[0];
    println!("KELIX_TEST_SEED={seed}");
    let hosts = Hosts::start(2, LEASE_MS, &[]);
    let before = hosts.view();
    let (writers, counting) = (Writers::start(seed, || hosts.session()), Counting::start(|| hosts.session()));
    writers.until_more(100);
    hosts.zookeeper.stop(0);
    std::thread::sleep(Duration::from_millis(3 * LEASE_MS));
    let done = writers.done();
    std::thread::sleep(Duration::from_millis(LEASE_MS));
    assert_eq!(writers.done(), done, "nothing counts when the lease is over");
    hosts.zookeeper.resume(0);
    writers.until_more(100);
    counting.end();
    verify(&hosts, &mut writers.end(), "after the register was away");
    let view = hosts.view();
    assert_eq!((view.term, view.primary), (before.term, before.primary), "nobody was chosen meanwhile");
}

/// Strict reads believe no lease, however long that lasts: without its register a primary does not answer
/// them, and answers all others.
#[test]
fn strict_reads_are_answered_by_the_word_of_the_register() {
    let _watchdog = watchdog("strict reads");
    let hosts = Hosts::start(2, 60_000, &[]);
    let primary = hosts.primary();
    let mut usual = [hosts.session_on(primary), hosts.session()];
    let table = usual[0].create_table("counts").unwrap();
    usual[0].put(table, b"count", &7u64.to_le_bytes()).unwrap();
    let options = SessionOptions::default().strict(true);
    let mut strict = [hosts.session_on_with(primary, options.clone()), hosts.session_with(options)];
    strict.iter_mut().for_each(|session| assert_eq!(read_count(session, table), 7));

    hosts.zookeeper.stop(0);
    let answered = Arc::<AtomicU64>::default();
    let readers = strict.map(|mut session| {
        let answered = answered.clone();
        std::thread::spawn(move || {
            let count = read_count(&mut session, table);
            answered.fetch_add(1, Ordering::SeqCst);
            count
        })
    });
    std::thread::sleep(Duration::from_secs(1));
    usual.iter_mut().for_each(|session| assert_eq!(read_count(session, table), 7));
    assert_eq!(answered.load(Ordering::SeqCst), 0, "nobody has said that this node is primary");
    hosts.zookeeper.resume(0);
    readers.into_iter().for_each(|reader| assert_eq!(reader.join().unwrap(), 7));
}

/// A handover does not wait for the lease, and nobody notices but by the time that it takes.
#[test]
fn a_handover_between_hosts_does_not_wait_for_the_lease() {
    let _watchdog = watchdog("a handover between hosts");
    let seed = seeds(1)[0];
    println!("KELIX_TEST_SEED={seed}");
    // So long that whoever waits for its end is found out.
    let mut hosts = Hosts::start(3, 20_000, &[]);
    let (writers, counting) = (Writers::start(seed, || hosts.session()), Counting::start(|| hosts.session()));
    for _ in 0..2 {
        writers.until_more(100);
        let (primary, began) = (hosts.primary(), Instant::now());
        hosts.order(&["handover"]);
        assert_ne!(hosts.primary(), primary);
        writers.until_more(100);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        hosts.until_in_sync(3);
    }
    let primary = hosts.primary();
    hosts.order(&["leave", &primary.to_string()]);
    hosts.until_ended(primary);
    writers.until_more(100);
    let said = hosts.order(&["status", "--token-file", &hosts.token_file()]);
    assert!(said.contains("2 nodes in sync, lease of"), "{said}");
    counting.end();
    verify(&hosts, &mut writers.end(), "after handovers");
}
