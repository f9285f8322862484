//! Nodes that hold the same: what was acknowledged is there whichever of them dies, nobody reads what a
//! successor does not know, and sessions go on by themselves.
//!
//! `KELIX_TEST_FAILOVERS=N` says how often a primary is killed or stopped; `KELIX_TEST_SEED` chooses the moments.

use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kelix::{Effect, ErrorKind, NewItem, Scan, SessionOptions, TableKind};
use kelix_tests::cluster::Cluster;
use kelix_tests::counting::{Counting, Writers, read_count};
use kelix_tests::ledger::{Ledger, Tables};
use kelix_tests::process::Process;
use kelix_tests::{Random, Watchdog, seeds, until, until_told, value, watchdog};

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
    let (writers, counting) =
        (Writers::start(seed, || cluster.session()), Counting::start(|| cluster.session()));
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

/// Nodes hand over and leave, by command and by signal, and no program notices that asks for nothing special.
fn depart(options: &[&str]) {
    let _watchdog = watchdog("nodes depart");
    let seed = seeds(1)[0];
    println!("KELIX_TEST_SEED={seed}");
    let mut random = Random(seed);
    let mut cluster = Cluster::start(3, options);
    let writers = Writers::start(seed, || cluster.usual_session());
    let counting = Counting::start(|| cluster.session());
    for round in 0..4 {
        writers.until_more(200 + random.below(1000));
        let before = cluster.view();
        let primary = cluster.primary();
        match round {
            0 => cluster.order(&["handover"]),
            1 => cluster.order(&["handover", "--to", &((primary + 1) % 3).to_string()]),
            2 => cluster.leave(primary),
            _ => assert!(cluster.terminate(primary).success()),
        }
        assert_ne!(cluster.primary(), primary);
        assert!(cluster.view().term > before.term);
        if round >= 2 {
            cluster.until_in_sync(2);
            let replica = (0..3).find(|node| *node != primary && *node != cluster.primary()).unwrap();
            let term = cluster.view().term;
            if round == 2 {
                cluster.leave(replica);
            } else {
                assert!(cluster.terminate(replica).success());
            }
            assert_eq!((cluster.view().in_sync.len(), cluster.view().term), (1, term));
            writers.until_more(100);
            cluster.begin(primary);
            cluster.begin(replica);
        }
        cluster.until_in_sync(3);
    }
    counting.end();
    verify(&cluster, &mut writers.end(), "after all have departed");
}

#[test]
fn nodes_hand_over_and_leave_and_nobody_notices() {
    depart(&["--shards", "2"]);
}

#[test]
fn nodes_hand_over_and_leave_that_are_sent_what_counts() {
    depart(&["--fabric", "tcp"]);
}

/// A node that was deposed executes its program anew, at any moment of which a service manager may end it.
#[test]
fn a_node_that_begins_anew_hears_that_it_is_to_end() {
    let _watchdog = watchdog("nodes that begin anew are ended");
    let seed = seeds(1)[0];
    println!("KELIX_TEST_SEED={seed}");
    let mut random = Random(seed);
    let mut cluster = Cluster::start(2, &["--shards", "1"]);
    for _ in 0..100 {
        let primary = cluster.primary();
        let mut order = cluster.kelix(&["cluster", "handover"]).spawn().unwrap();
        cluster.until_other_primary(primary);
        std::thread::sleep(Duration::from_micros(random.below(3_000)));
        // Before the program has begun a signal ends it without a word.
        let status = cluster.terminate(primary);
        assert!(status.success() || status.signal() == Some(15), "{status}");
        assert!(order.wait().unwrap().success());
        cluster.begin(primary);
        cluster.until_in_sync(2);
    }
}

/// The last node that has the data leaves by a signal only, which says what is meant.
#[test]
fn the_last_node_in_sync_does_not_leave_by_order() {
    let _watchdog = watchdog("the last node");
    let mut cluster = Cluster::start(1, &[]);
    let done = cluster.kelix(&["cluster", "leave", "0"]).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success() && said.contains("the only one in sync"), "{said}");
    let done = cluster.kelix(&["cluster", "handover"]).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success() && said.contains("no other node is in sync"), "{said}");
    assert!(cluster.terminate(0).success());
}

/// With fewer in sync than are wanted nothing is written that would be in too few memories, and what was under
/// way counts when another one is in sync.
fn want_two(options: &[&str]) {
    let _watchdog = watchdog("two are wanted");
    let mut cluster = Cluster::start(2, &[&["--min-in-sync", "2"], options].concat());
    let mut session = cluster.session();
    // The other one may be let go at any time, and is back soon.
    until("a count is put", || {
        let put = session.create_table("counts").and_then(|table| session.put(table, b"count", &[0; 8]));
        put.is_ok()
    });
    let table = session.table("counts").unwrap();
    let replica = 1 - cluster.primary();
    let mut other = cluster.session();
    let (acknowledged, ends) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
    let (told, stop) = (acknowledged.clone(), ends.clone());
    let counter = std::thread::spawn(move || {
        let table = other.table("counts").unwrap();
        let (mut count, mut refused) = (0u64, 0);
        while !stop.load(Ordering::SeqCst) {
            match other.put(table, b"count", &(count + 1).to_le_bytes()) {
                Ok(_) => count += 1,
                Err(error) => {
                    assert_eq!(
                        (error.kind(), error.effect()),
                        (ErrorKind::Unavailable, Effect::No),
                        "{error}"
                    );
                    assert!(error.to_string().contains("too few nodes"), "{error}");
                    refused += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            told.store(count, Ordering::SeqCst);
        }
        (count, refused)
    });
    until("some are counted", || acknowledged.load(Ordering::SeqCst) > 100);
    cluster.kill(replica);
    cluster.until_in_sync(1);
    // A write before that would wait for the other node.
    until("no writes are accepted", || {
        let status = cluster.kelix(&["cluster", "status"]).output().unwrap();
        String::from_utf8_lossy(&status.stdout).contains("no writes are accepted")
    });
    let error = session.put(table, b"other", b"1").unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::No), "{error}");
    // What is under way is not answered; the counter may yet have to note the last one that was.
    let before = acknowledged.load(Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(50));
    assert!(acknowledged.load(Ordering::SeqCst) <= before + 1);
    cluster.begin(replica);
    cluster.until_in_sync(2);
    until("more are counted", || acknowledged.load(Ordering::SeqCst) > before + 100);
    ends.store(true, Ordering::SeqCst);
    let (count, refused) = counter.join().expect("it counts");
    assert_eq!(read_count(&mut session, table), count);
    println!("{count} counted, {refused} refused");
    // The one that has joined has all of it, and takes no writes alone.
    cluster.kill(1 - replica);
    cluster.until_other_primary(1 - replica);
    assert_eq!(read_count(&mut session, table), count);
    let error = session.put(table, b"other", b"2").unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::No), "{error}");
}

#[test]
fn too_few_in_sync_take_no_writes() {
    want_two(&[]);
}

#[test]
fn too_few_that_were_sent_what_counts_take_no_writes() {
    want_two(&["--fabric", "tcp"]);
}

/// How far nodes are is told, of a primary that stands still that nobody knows.
#[test]
fn status_tells_how_far_each_node_is() {
    const PUT: u64 = 200;
    let _watchdog = watchdog("status tells how far nodes are");
    let mut cluster = Cluster::start(3, &["--suspect", "30s"]);
    let status = |cluster: &Cluster| -> serde_json::Value {
        let said = cluster.kelix(&["cluster", "status", "--json"]).output().unwrap();
        assert!(said.status.success());
        serde_json::from_slice(&said.stdout).unwrap()
    };
    let mut session = cluster.session();
    let table = session.create_table("items").unwrap();
    (0..PUT).for_each(|key| assert!(session.put(table, &key.to_le_bytes(), b"value").is_ok()));
    let said = std::cell::RefCell::default();
    until_told(
        Duration::from_secs(30),
        || format!("all have what was put: {}", said.borrow()),
        || {
            let told = status(&cluster);
            let nodes = told["nodes"].as_array().unwrap();
            let end = nodes[0]["record"].as_u64().unwrap_or(0);
            let is_there = nodes.iter().all(|node| {
                let is_behind = node["role"] != "primary" && node["lag_records"] != 0;
                node["record"] == end && !is_behind && node["lag_ms"].is_null()
            });
            *said.borrow_mut() = told.clone();
            nodes.len() == 3 && end >= PUT && is_there
        },
    );
    let primary = cluster.primary();
    cluster.node(primary).stop_still();
    let told = status(&cluster);
    cluster.node(primary).go_on();
    let nodes = told["nodes"].as_array().unwrap();
    assert!(nodes.iter().all(|node| node["record"].is_null() && node["pid"].is_u64()), "{told}");
    session.put(table, b"behind", b"value").unwrap();
}

/// A node that would accept writes with fewer in sync than the others is told so.
#[test]
fn nodes_agree_on_how_many_are_to_be_in_sync() {
    let _watchdog = watchdog("nodes agree");
    let cluster = Cluster::start(1, &["--min-in-sync", "1"]);
    let mut command = cluster.kelix(&["serve", "--cluster", "local", "--node", "1", "--min-in-sync", "2"]);
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success() && said.contains("the cluster was begun with 1"), "{said}");
}

/// Whoever is in sync can go on alone from that moment on.
#[test]
fn a_node_goes_on_alone_as_soon_as_it_is_in_sync() {
    let _watchdog = watchdog("as soon as it is in sync");
    let mut cluster = Cluster::start(1, &[]);
    let mut session = cluster.session();
    let table = session.create_table("counts").unwrap();
    for round in 1..=12u64 {
        session.put(table, b"count", &round.to_le_bytes()).unwrap();
        let primary = cluster.primary();
        cluster.begin(1 - primary);
        cluster.until_in_sync(2);
        cluster.kill(primary);
        cluster.until_other_primary(primary);
        assert_eq!(read_count(&mut session, table), round);
    }
}

/// A node that joins beside writes has all that was there, and all that is written meanwhile: it goes on alone.
#[test]
fn a_node_that_joined_beside_writes_goes_on_alone() {
    let _watchdog = watchdog("a node joins");
    let seed = seeds(1)[0];
    println!("KELIX_TEST_SEED={seed}");
    let mut cluster = Cluster::start(1, &[]);
    let writers = Writers::start(seed, || cluster.session());
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

/// All who are in sync go on behind the next primary with what they have, however many these are: whoever
/// copied would be another member.
fn go_on_together(options: &[&str]) {
    let _watchdog = watchdog("all go on together");
    let mut cluster = Cluster::start(4, options);
    let mut session = cluster.session();
    let table = session.create_table("counts").unwrap();
    for round in 1..=2u64 {
        session.put(table, b"count", &round.to_le_bytes()).unwrap();
        let (before, primary) = (cluster.view(), cluster.primary());
        cluster.kill(primary);
        cluster.until_other_primary(primary);
        assert_eq!(read_count(&mut session, table), round);
        session.put(table, b"count", &round.to_le_bytes()).unwrap();
        // Who has not come by then is taken out of the view.
        std::thread::sleep(Duration::from_secs(1));
        let mut left: Vec<u64> =
            before.in_sync.iter().copied().filter(|boot| *boot != before.primary).collect();
        let mut in_sync = cluster.view().in_sync;
        left.sort_unstable();
        in_sync.sort_unstable();
        assert_eq!(in_sync, left, "round {round}");
        cluster.begin(primary);
        cluster.until_in_sync(4);
    }
}

#[test]
fn all_in_sync_go_on_behind_the_next_primary() {
    go_on_together(&["--shards", "2"]);
}

#[test]
fn all_in_sync_go_on_that_are_sent_what_counts() {
    go_on_together(&["--shards", "2", "--fabric", "tcp"]);
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

/// A node that could not serve what there is, once it is primary, is none to count on: it is refused, or let
/// go when it has no room for more, and what there is stays with the others.
#[test]
fn a_node_with_other_shards_or_less_memory_is_not_in_sync() {
    let _watchdog = watchdog("nodes of other sizes");
    let cluster = Cluster::start(1, &["--memory", "256M"]);
    let serve = |options: &[&str]| {
        let mut command = cluster.kelix(&["serve", "--cluster", "local", "--node", "1"]);
        command.args(options);
        command
    };
    let refused = |options: &[&str], why: &str| {
        let done = serve(options).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(!done.status.success() && said.contains(why), "{options:?}: {said}");
    };
    refused(&["--memory", "256M", "--shards", "3"], "shards in namespace \"default\", and this node 3");
    let mut session = cluster.session();
    let table = session.create_table("values").unwrap();
    let value = vec![7; 1 << 20];
    // One that is in sync as long as it has room.
    let mut small = Process::run(&mut serve(&["--memory", "64M"]));
    cluster.until_in_sync(2);
    for key in 0..160u64 {
        session.put(table, &key.to_le_bytes(), &value).unwrap();
    }
    until("it is let go", || cluster.view().in_sync.len() == 1);
    small.kill();
    refused(&["--memory", "64M"], "more --memory");
    for key in 0..160u64 {
        assert_eq!(session.get(table, &key.to_le_bytes()).unwrap().expect("it was put").value(), value);
    }
}
