//! Clusters whose nodes keep logs: all of them end at once, or lose their power, and what counted is there
//! again.
//!
//! `KELIX_TEST_SEED` chooses the moments; `KELIX_TEST_FAILOVERS=N` says how often all are killed.

use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use kelix::{Effect, ErrorKind, Session, SessionOptions};
use kelix_tests::cluster::Cluster;
use kelix_tests::counting::{Counting, Writers, read_count};
use kelix_tests::disk::{Disk, Fault};
use kelix_tests::ledger::{Ledger, Tables};
use kelix_tests::{Random, RunDir, Watchdog, seeds, until, until_told, watchdog};

const COMMIT: &[&str] = &["--durable", "commit", "--shards", "2"];
const LAZY: &[&str] = &["--durable", "lazy", "--shards", "2"];
/// Longer than a lazy log takes to have all.
const ON_DISK: Duration = Duration::from_millis(300);

fn rounds() -> usize {
    std::env::var("KELIX_TEST_FAILOVERS").map_or(6, |text| text.parse().expect("a number"))
}

fn random() -> Random {
    let seed = seeds(1)[0];
    println!("KELIX_TEST_SEED={seed}");
    Random(seed)
}

/// Writes until that fails, in a thread of its own.
fn write_on(cluster: &Cluster, mut ledger: Ledger) -> JoinHandle<Ledger> {
    let mut session = cluster.brief_session();
    // Before anybody is killed.
    let tables = Tables::open(&mut session).unwrap();
    std::thread::spawn(move || {
        let error = ledger.write_on(&mut session, &tables, || ());
        assert!(error.retry() || error.effect() == Effect::Unknown, "{error}");
        ledger
    })
}

#[track_caller]
fn check(cluster: &Cluster, ledgers: &mut [Ledger], what: &str) {
    let mut session = cluster.session();
    let tables = Tables::open(&mut session).unwrap();
    ledgers.iter_mut().for_each(|ledger| ledger.verify(&mut session, &tables, what));
}

/// What a round does with a cluster that is written to: ends all of it.
type End<'a> = &'a mut dyn FnMut(&mut Cluster, &mut Random);

/// All nodes end beside clients who write, and one of them, or all, begin again.
fn end_all(nodes: usize, logs: &Path, options: &[&str], rounds: usize, end: End<'_>) {
    let mut random = random();
    let mut cluster = Cluster::start_with_logs(nodes, Some(logs), options);
    let mut ledgers: Vec<Ledger> = (0..2).map(|number| Ledger::new(number, random.next(), true)).collect();
    for round in 0..rounds {
        let writers: Vec<_> = ledgers.drain(..).map(|ledger| write_on(&cluster, ledger)).collect();
        std::thread::sleep(Duration::from_millis(random.below(400)));
        // In some rounds those who are in sync are not all, and the primary was another one.
        if round % 3 == 1 {
            let primary = cluster.primary();
            cluster.kill(primary);
            std::thread::sleep(Duration::from_millis(random.below(900)));
            cluster.begin(primary);
            std::thread::sleep(Duration::from_millis(random.below(300)));
        }
        let in_sync = cluster.view();
        end(&mut cluster, &mut random);
        ledgers = writers.into_iter().map(|writer| writer.join().expect("a writer")).collect();
        let name = |boot: &u64| in_sync.member(*boot).expect("a member").node.parse().expect("a number");
        let in_sync: Vec<usize> = cluster.view().in_sync.iter().map(name).collect();
        // Any disk that was in sync has all that counted.
        let first = in_sync[random.below(in_sync.len() as u64) as usize];
        cluster.begin(first);
        cluster.until_primary();
        check(&cluster, &mut ledgers, &format!("round {round}, from the disk of node {first}"));
        (0..nodes).filter(|node| *node != first).for_each(|node| cluster.begin(node));
        cluster.until_in_sync(nodes);
    }
    check(&cluster, &mut ledgers, "after all rounds");
}

#[test]
fn all_are_killed_and_any_disk_in_sync_has_what_was_acknowledged() {
    let _watchdog = Watchdog::new("all are killed", Duration::from_secs(120 + 30 * rounds() as u64));
    let run = RunDir::new();
    end_all(3, run.path(), COMMIT, rounds(), &mut |cluster, _| cluster.kill_all());
}

/// Power goes for all at once, and the disks keep what was synced, and of the rest whatever they like.
#[test]
fn all_lose_their_power_and_any_disk_in_sync_has_what_was_acknowledged() {
    let _watchdog = watchdog("all lose their power");
    let run = RunDir::new();
    let Some(disk) = Disk::mount_in(&run) else { return };
    end_all(2, disk.path(), COMMIT, rounds(), &mut |cluster, random| {
        cluster.kill_all_on(|| disk.cut(random));
        disk.power_on();
    });
}

/// With logs that are written a moment later all have to be there again, and the one goes on that has most.
#[test]
fn lazy_nodes_wait_for_all_that_were_in_sync() {
    let _watchdog = watchdog("lazy nodes");
    let run = RunDir::new();
    let mut cluster = Cluster::start_with_logs(3, Some(run.path()), LAZY);
    let mut session = cluster.session();
    let table = session.create_table("counts").unwrap();
    for round in 1..=3u64 {
        session.put(table, b"count", &round.to_le_bytes()).unwrap();
        std::thread::sleep(ON_DISK);
        cluster.kill_all();
        cluster.begin(0);
        cluster.begin(1);
        // What the third one said the last time may still stand there.
        let said = || format!("both nodes say what they have: {:?}", cluster.view());
        until_told(Duration::from_secs(20), said, || {
            let members = cluster.view().members;
            let says = |node: &str| members.iter().any(|of| of.node == node && of.offer.is_some());
            says("0") && says("1")
        });
        assert!(!cluster.directory().lives(&cluster.view(), cluster.view().primary));
        cluster.begin(2);
        cluster.until_in_sync(3);
        assert_eq!(read_count(&mut session, table), round);
    }
    // One is gone for good.
    cluster.kill_all();
    cluster.begin(1);
    let recover = |arguments: &[&str]| {
        let done = cluster.kelix(&[&["cluster", "recover"], arguments].concat()).output().unwrap();
        String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
    };
    until("it says who is missing", || recover(&[]).contains("what only "));
    let said = recover(&["--accept-loss"]);
    assert!(said.contains("node 1, which was in sync") && said.contains("is primary"), "{said}");
    cluster.until_primary();
    assert_eq!(read_count(&mut session, table), 3);
    let said = recover(&["--accept-loss"]);
    assert!(said.contains("nothing is to be recovered"), "{said}");
}

/// Nodes go on in each other's place with the logs they have, and begin with what came of that.
fn fail_over(options: &[&str]) {
    let _watchdog = Watchdog::new("failovers with logs", Duration::from_secs(240));
    let run = RunDir::new();
    let mut random = random();
    let mut cluster = Cluster::start_with_logs(3, Some(run.path()), options);
    let (writers, counting) =
        (Writers::start(random.next(), || cluster.session()), Counting::start(|| cluster.session()));
    for round in 0..4 {
        writers.until_more(200 + random.below(1000));
        let primary = cluster.primary();
        match round {
            0 => cluster.order(&["handover"]),
            1 => cluster.node(primary).stop_still(),
            _ => cluster.kill(primary),
        }
        cluster.until_other_primary(primary);
        writers.until_more(100);
        match round {
            0 => {}
            1 => cluster.node(primary).go_on(),
            _ => cluster.begin(primary),
        }
        cluster.until_in_sync(3);
    }
    counting.end();
    let mut ledgers = writers.end();
    check(&cluster, &mut ledgers, "after all failovers");
    std::thread::sleep(ON_DISK);
    cluster.kill_all();
    (0..3).for_each(|node| cluster.begin(node));
    cluster.until_in_sync(3);
    check(&cluster, &mut ledgers, "after all had ended");
}

#[test]
fn nodes_with_logs_go_on_in_each_others_place() {
    fail_over(LAZY);
}

#[test]
fn nodes_whose_logs_count_go_on_in_each_others_place() {
    fail_over(COMMIT);
}

/// A primary whose disk fails hands over, and one that is alone takes no writes and is read.
#[test]
fn a_primary_whose_disk_fails_hands_over() {
    let _watchdog = watchdog("a disk fails");
    for options in [COMMIT, LAZY] {
        let run = RunDir::new();
        let Some(disk) = Disk::mount_in(&run) else { return };
        let good = RunDir::new();
        let logs = good.path().join("logs");
        std::fs::create_dir(&logs).unwrap();
        std::os::unix::fs::symlink(disk.path(), logs.join("0")).unwrap();
        let mut cluster = Cluster::start_with_logs(1, Some(&logs), options);
        let mut session = cluster.session();
        let table = session.create_table("counts").unwrap();
        session.put(table, b"count", &1u64.to_le_bytes()).unwrap();
        cluster.begin(1);
        cluster.until_in_sync(2);
        assert_eq!(cluster.primary(), 0);
        disk.fail(Fault::Write, "log-");
        session.put(table, b"count", &2u64.to_le_bytes()).unwrap();
        cluster.until_other_primary(0);
        assert_eq!(read_count(&mut session, table), 2);
        cluster.until_in_sync(2);
        // The one left has what was written.
        cluster.kill(1);
        cluster.until_other_primary(1);
        assert_eq!(read_count(&mut session, table), 2);
        disk.fail(Fault::Sync, "log-");
        let mut brief = cluster.session_with(SessionOptions::default());
        let counts = brief.table("counts").unwrap();
        until("no writes are taken", || {
            let mut brief = cluster.brief_session();
            brief.put(counts, b"other", b"x").is_err_and(|error| error.effect() == Effect::No)
        });
        let error = cluster.brief_session().put(counts, b"other", b"x").unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::No), "{error}");
        assert_eq!(read_count(&mut brief, counts), 2);
    }
}

/// Who asks for the disk gets it where it counts, and hears that it does not elsewhere.
#[test]
fn a_write_may_ask_for_the_disk_where_that_counts() {
    let _watchdog = watchdog("durable writes");
    for (options, counts) in [(COMMIT, true), (LAZY, false)] {
        let run = RunDir::new();
        let cluster = Cluster::start_with_logs(2, Some(run.path()), options);
        cluster.session().create_table("t").unwrap();
        let mut session: Session = cluster.session_with(SessionOptions::default().durable(true));
        let table = session.table("t").unwrap();
        let put = session.put(table, b"key", b"value");
        assert_eq!(put.is_ok(), counts, "{put:?}");
    }
}

/// What a node is told that would lose something, or mix what does not belong together.
#[test]
fn nodes_agree_on_logs_and_begin_with_their_own() {
    let _watchdog = watchdog("nodes agree on logs");
    let run = RunDir::new();
    let mut cluster = Cluster::start_with_logs(1, Some(run.path()), COMMIT);
    let refusal = |options: &[&str]| {
        let command = [&["serve", "--cluster", "local", "--node", "1", "--shards", "2"], options].concat();
        let done = cluster.kelix(&command).output().unwrap();
        assert!(!done.status.success());
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    let other = run.path().join("1").display().to_string();
    assert!(refusal(&[]).contains("begun with commit"), "{}", refusal(&[]));
    let lazy = refusal(&["--wal", &other]);
    assert!(lazy.contains("--durable lazy") && lazy.contains("begun with commit"), "{lazy}");
    let used = refusal(&["--wal", &run.path().join("0").display().to_string(), "--durable", "commit"]);
    assert!(used.contains("in use"), "{used}");
    // A cluster that begins anew does not pass over what is on a disk.
    cluster.kill(0);
    std::fs::remove_dir_all(cluster.directory().register_path()).unwrap();
    let command = cluster.kelix(&[
        "serve",
        "--cluster",
        "local",
        "--node",
        "0",
        "--shards",
        "2",
        "--durable",
        "commit",
        "--wal",
        &run.path().join("0").display().to_string(),
    ]);
    let mut command = command;
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success() && said.contains("has the log of one"), "{said}");
}
