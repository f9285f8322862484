//! Mirrors and their primaries on hosts that are apart: the way between them is cut, slow, or loses all that
//! is sent; either server is killed at each stage of following; clocks differ; the primary's disk is full.
//!
//! Whatever happens, values that are read on a mirror prove themselves and never go back, and in the end a
//! mirror has what its primary has ([`kelix_tests::witness`]). How it came to that, by a new copy or from a
//! log, makes no difference here.
//!
//! `make test-mirrors` runs it, as root. `KELIX_TEST_SEED` chooses what is written, and where ways are cut.

use std::path::Path;
use std::time::{Duration, Instant};

use kelix::{ErrorKind, NewItem, SessionOptions};
use kelix_tests::apart::{Clocks, Hosts, PATIENCE, Served, small_disk};
use kelix_tests::process::patient;
use kelix_tests::way::LongWay;
use kelix_tests::witness::{Reader, Work, Writers, until_alike};
use kelix_tests::{Random, RunDir, Watchdog, seeds, until_within};

/// How long a mirror waits for an answer before it takes its primary for lost.
const ANSWER: Duration = Duration::from_secs(10);

fn watchdog(what: &'static str) -> Watchdog {
    Watchdog::new(what, 5 * PATIENCE)
}

/// Some writes, of a seed that is printed.
fn work() -> Work {
    let seed = seeds(1)[0];
    println!("KELIX_TEST_SEED={seed}");
    Work { writers: 2, keys: 64, bytes: 3000, pause: Duration::from_millis(2), seed }
}

/// Sessions of readers: a request to a mirror that is not there is not waited for.
fn reading() -> SessionOptions {
    SessionOptions::default().timeout(Duration::from_secs(5))
}

fn alike() -> Hosts {
    Hosts::new(Clocks::default(), Clocks::default())
}

#[test]
fn a_mirror_shows_what_there_was_while_its_cable_is_out() {
    let _watchdog = watchdog("a cable that is out");
    let hosts = alike();
    let (mut primary, mut mirror) = (hosts.primary(2, &[]), hosts.mirror(&[]));
    primary.serve();
    let work = work();
    let writers = Writers::begin(&primary, work);
    mirror.serve();
    let reader = Reader::begin(&mirror, work, reading(), true);
    let lag = Duration::from_secs(2);
    let demanding = Reader::begin(&mirror, work, reading().max_lag(lag), true);
    // One that says itself how old what it shows may be.
    let mut strict = hosts.mirror(&["--max-lag", "2s"]);
    strict.serve();
    let of_strict = Reader::begin(&strict, work, reading(), true);
    for end in [&hosts.primary, &hosts.mirror] {
        mirror.until_it_follows();
        reader.until_more();
        demanding.until_more();
        of_strict.until_more();
        end.plug(false);
        let began = Instant::now();
        mirror.until_it_has_lost();
        assert!(began.elapsed() >= ANSWER - Duration::from_secs(1), "lost after {:?}", began.elapsed());
        let told = hosts.mirror.kelix(&mirror.run, &["stat"]).unwrap();
        assert!(told.contains("its primary is LOST, and it shows what there was"), "{told}");
        let statistics = mirror.statistics().and_then(|told| told.server.mirror).unwrap();
        assert!(statistics.lag_ms > Some(lag.as_millis() as f64), "{statistics:?}");
        writers.until_more(50);
        reader.until_more();
        for refused in [&demanding, &of_strict] {
            refused.until_refused();
            let before = refused.reads();
            refused.until_refused();
            assert_eq!(refused.reads(), before, "it reads what is older than it wants");
        }
        let table = mirror.session(patient().max_lag(lag)).and_then(|mut session| {
            let table = session.table("hash")?;
            session.get(table, b"nothing!").map(drop)
        });
        let error = table.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        end.plug(true);
    }
    for mirror in [&mirror, &strict] {
        mirror.until_it_follows();
    }
    demanding.until_more();
    of_strict.until_more();
    let written = writers.end();
    until_alike(&primary, &mirror);
    until_alike(&primary, &strict);
    written.check(&primary);
    of_strict.end(&primary);
    println!("{} reads, {} with --max-lag", reader.end(&primary), demanding.end(&primary));
}

#[test]
fn a_way_that_is_too_slow_costs_the_primary_nothing() {
    const SHARDS: usize = 2;
    /// What may wait for a mirror in streams (16 MiB a shard), in the feed, and in sockets, and as much as a
    /// primary may grow by what it writes anew meanwhile.
    const GROWTH: u64 = (SHARDS as u64 * 16 + 4 + 16 + 40) << 20;
    let _watchdog = watchdog("a slow way");
    let hosts = alike();
    let (mut primary, mut mirror) = (hosts.primary(SHARDS, &[]), hosts.mirror(&[]));
    primary.serve();
    let work = Work { bytes: 32 << 10, pause: Duration::from_micros(500), ..work() };
    let writers = Writers::begin(&primary, work);
    mirror.serve();
    let reader = Reader::begin(&mirror, work, reading(), true);
    mirror.until_it_follows();
    reader.until_more();
    writers.until_more(2 * 2 * 64 * 8);
    let process = primary.process.as_ref().unwrap();
    let before = process.size("VmRSS");
    hosts.primary.limit(Some("4mbit"));
    // Of 16 KiB each, about: several times as much as may wait.
    let enough = writers.done() + ((6 * GROWTH) >> 14);
    let (mut most, mut was_let_go) = (0, false);
    until_within(2 * PATIENCE, "the mirror is let go, and writers go on", || {
        most = most.max(process.size("VmRSS"));
        was_let_go |= primary.mirrors() != ["following"];
        was_let_go && writers.done() >= enough
    });
    println!("{} MiB, before {} MiB", most >> 20, before >> 20);
    assert!(most < before + GROWTH, "the primary has {most} bytes, and had {before}");
    reader.until_more();
    hosts.primary.limit(None);
    mirror.until_it_follows();
    reader.until_more();
    let written = writers.end();
    println!("p99 {:?}", written.p99());
    assert!(written.p99() < Duration::from_millis(500), "writes wait for the mirror: {:?}", written.p99());
    until_alike(&primary, &mirror);
    written.check(&primary);
    reader.end(&primary);
}

/// What is going on when a server is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Copying,
    Copied,
    Following,
    CopyingAnew,
}

/// Memory comes so slowly that a server can be killed meanwhile.
const COPY_RATE: &str = "2M";

fn kill_at_each_stage(name: &'static str, wal: &[&str]) {
    let _watchdog = watchdog(name);
    let hosts = alike();
    let keeps = !wal.is_empty();
    let options = ["--copy-rate", COPY_RATE, "--log", "info"];
    let (mut primary, mut mirror) = (hosts.primary(2, wal), hosts.mirror(&options));
    primary.serve();
    let work = Work { keys: 128, bytes: 8000, ..work() };
    let writers = Writers::begin(&primary, work);
    writers.until_more(500);
    mirror.serve();
    let reader = Reader::begin(&mirror, work, reading(), keeps);
    for stage in [Stage::Following, Stage::Copying, Stage::Copied, Stage::CopyingAnew] {
        for of_primary in [false, true] {
            mirror.until_it_follows();
            reader.until_more();
            match stage {
                Stage::Following => {}
                Stage::Copying => {
                    mirror.kill();
                    until_within(PATIENCE, "the mirror has gone", || primary.mirrors().is_empty());
                    mirror.launch();
                    until_within(PATIENCE, "the mirror attaches", || !primary.mirrors().is_empty());
                }
                Stage::Copied => {
                    mirror.kill();
                    until_within(PATIENCE, "the mirror has gone", || primary.mirrors().is_empty());
                    mirror.launch();
                    // Between this and the mirror's first service is what takes the moment.
                    until_within(PATIENCE, "it is copied", || primary.mirrors() == ["following"]);
                }
                Stage::CopyingAnew => {
                    primary.kill();
                    primary.serve();
                    until_within(PATIENCE, "the mirror attaches anew", || !primary.mirrors().is_empty());
                }
            }
            let victim = if of_primary { "primary" } else { "mirror" };
            println!("{stage:?}, {victim} killed: {}", primary.mirrors().join(", "));
            if of_primary {
                primary.kill();
                // What is read of a mirror that serves, or that has served, is there.
                let before = reader.reads();
                until_within(PATIENCE, "a reader reads", || reader.reads() > before + 100);
                primary.serve();
                assert!(
                    !mirror.process.as_mut().unwrap().has_ended(),
                    "the mirror has ended with its primary"
                );
            } else {
                mirror.kill();
                writers.until_more(20);
                mirror.serve();
            }
        }
    }
    // Both at once: readers go on with what there was, once they have looked their tables up there. Killed
    // between its last life and its readers' arrival there, the mirror would leave them nothing to read.
    mirror.until_it_follows();
    mirror.until_it_shows_the_life_of(&primary);
    reader.until_more();
    primary.kill();
    mirror.kill();
    reader.until_more();
    mirror.launch();
    primary.serve();
    mirror.process.as_mut().unwrap().expect("serving ");
    mirror.until_it_follows();
    writers.until_more(200);
    let written = writers.end();
    until_alike(&primary, &mirror);
    if keeps {
        written.check(&primary);
    }
    println!("{} reads", reader.end(&primary));
}

#[test]
fn either_server_is_killed_at_each_stage() {
    kill_at_each_stage("servers killed", &[]);
}

#[test]
fn either_server_is_killed_at_each_stage_beside_a_log() {
    let wal = RunDir::new();
    let wal = wal.path().display().to_string();
    kill_at_each_stage("servers with a log killed", &["--wal", &wal, "--durable", "commit"]);
}

/// Fills a directory's file system.
fn fill(directory: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(directory.join("ballast")).unwrap();
    let block = vec![1; 64 << 10];
    while file.write_all(&block).is_ok() {}
}

#[test]
fn a_mirror_follows_a_primary_whose_disk_is_full() {
    let _watchdog = watchdog("a full disk");
    // Servers and clients have it in common, and it ends with this thread.
    let disk = RunDir::new();
    small_disk(disk.path(), 300 << 20);
    let hosts = alike();
    let wal = disk.path().join("wal").display().to_string();
    let mut primary = hosts.primary(2, &["--wal", &wal, "--durable", "commit"]);
    let mut mirror = hosts.mirror(&[]);
    primary.serve();
    mirror.serve();
    // The log itself leaves most of the disk to the ballast, however long that takes to be written.
    let work = Work { bytes: 60_000, pause: Duration::from_millis(2), ..work() };
    let mut writers = Writers::begin(&primary, work);
    let reader = Reader::begin(&mirror, work, reading(), true);
    writers.until_more(100);
    fill(disk.path());
    let state = |primary: &Served<'_>| primary.statistics()?.server.wal.map(|wal| wal.state);
    until_within(PATIENCE, "the disk is full", || state(&primary).as_deref() == Some("full"));
    // The mirror has what was acknowledged, and goes on showing it, as new as it is.
    let demanding = Reader::begin(&mirror, work, reading().max_lag(Duration::from_secs(5)), true);
    reader.until_more();
    demanding.until_more();
    assert!(mirror.follows(), "{:?}", mirror.statistics().map(|told| told.server.mirror));
    let mut session = primary.session(patient()).unwrap();
    let table = session.table("hash").unwrap();
    assert_eq!(session.put(table, b"refused!", b"").unwrap_err().kind(), ErrorKind::Unavailable);
    let written = writers.end();
    until_alike(&primary, &mirror);
    written.check(&primary);
    std::fs::remove_file(disk.path().join("ballast")).unwrap();
    until_within(PATIENCE, "writes are taken again", || session.put(table, b"refused!", b"").is_ok());
    session.delete(table, b"refused!").unwrap();
    // Others go on where those ended.
    writers = Writers::begin_behind(&primary, work, &written);
    writers.until_more(100);
    let written = writers.end();
    until_alike(&primary, &mirror);
    written.check(&primary);
    reader.end(&primary);
    demanding.end(&primary);
    primary.kill();
}

/// Clocks that never go back began at other moments on the two hosts, and the times of day are days apart.
fn clocks_apart(primary: Clocks, mirror: Clocks) {
    let _watchdog = watchdog("clocks apart");
    let is_ahead = mirror.monotonic_s > 0;
    let hosts = Hosts::new(primary, mirror);
    let (mut primary, mut mirror) = (hosts.primary(1, &[]), hosts.mirror(&[]));
    primary.serve();
    let work = work();
    let writers = Writers::begin(&primary, work);
    writers.until_more(50);
    mirror.serve();
    let reader = Reader::begin(&mirror, work, reading(), true);
    mirror.until_it_follows();
    reader.until_more();
    // Who asks has the clock of the mirror's host.
    let key = "000000000000ffff";
    let mut session = primary.session(patient()).unwrap();
    let table = session.create_table("there").unwrap();
    session.put(table, key, b"v").unwrap();
    let get = |lag: &str| hosts.mirror.kelix(&mirror.run, &["--max-lag", lag, "get", "there", key]);
    until_within(PATIENCE, "what is new enough is read", || get("10s").is_ok());
    let lag = |mirror: &Served<'_>| mirror.statistics().and_then(|told| told.server.mirror?.lag_ms);
    assert!(lag(&mirror).is_some_and(|lag| lag < 10_000.0), "{:?}", lag(&mirror));
    if is_ahead {
        // By this process's clock nothing can be said of what is newer than now.
        let mut session = mirror.session(reading().max_lag(Duration::from_secs(3600))).unwrap();
        let error = session.table("there").and_then(|table| session.get(table, key)).unwrap_err();
        assert!(error.to_string().contains("another clock than this process"), "{error}");
        assert_eq!(session.lag(), None);
    }
    hosts.mirror.plug(false);
    mirror.until_it_has_lost();
    assert!(lag(&mirror).is_some_and(|lag| lag < 100_000.0 && lag > 5_000.0), "{:?}", lag(&mirror));
    let why = get("5s").unwrap_err();
    assert!(why.contains("has not heard"), "{why}");
    get("1h").unwrap();
    hosts.mirror.plug(true);
    mirror.until_it_follows();
    until_within(PATIENCE, "what is new enough is read", || get("10s").is_ok());
    // Items end when the primary says so, by its clock. What follows there knows of no time of day.
    let mut there = mirror.session(reading()).unwrap();
    let of_mirror = there.table("there").unwrap();
    let lives = Duration::from_secs(3);
    let item = NewItem::new().bytes("", b"ends").expires_in(lives);
    session.put_item(table, "ends", &item).unwrap();
    session.put_item(table, "stays", &NewItem::new().bytes("", b"").expires_in(1000 * lives)).unwrap();
    until_within(PATIENCE, "the mirror has both", || {
        there.get(of_mirror, "stays").is_ok_and(|item| item.is_some())
    });
    until_within(PATIENCE, "it ends on the mirror", || {
        let on_mirror = there.get(of_mirror, "ends").unwrap().is_some();
        let on_primary = session.get(table, "ends").unwrap().is_some();
        assert!(on_mirror || !on_primary, "it ended on the mirror first");
        !on_mirror
    });
    assert!(there.get(of_mirror, "stays").unwrap().is_some());
    let written = writers.end();
    until_alike(&primary, &mirror);
    written.check(&primary);
    reader.end(&primary);
}

const DAY_S: u64 = 24 * 60 * 60;

#[test]
fn the_clock_of_the_primary_is_ahead() {
    clocks_apart(Clocks { monotonic_s: 40 * DAY_S, wall_s: 3 * DAY_S }, Clocks::default());
}

#[test]
fn the_clock_of_the_mirror_is_ahead() {
    clocks_apart(Clocks::default(), Clocks { monotonic_s: 40 * DAY_S, wall_s: 3 * DAY_S });
}

/// One direction of the way loses everything, and nobody is told. The primary has one mirror, which has to go
/// before it may come back.
#[test]
fn a_way_that_loses_everything_is_noticed() {
    let _watchdog = watchdog("a half-open way");
    let hosts = alike();
    let (mut primary, mut mirror) = (hosts.primary(2, &["--mirrors", "1"]), hosts.mirror(&[]));
    primary.serve();
    let work = work();
    let writers = Writers::begin(&primary, work);
    mirror.serve();
    let reader = Reader::begin(&mirror, work, reading(), true);
    primary.session(patient()).unwrap().create_table("there").unwrap();
    for (loser, other) in [(&hosts.primary, &hosts.mirror), (&hosts.mirror, &hosts.primary)] {
        mirror.until_it_follows();
        reader.until_more();
        let put = || hosts.write_there(&mirror, &["put", "there", "key", "value"]);
        put().unwrap();
        loser.lose_what_is_sent(other.address(), true);
        let began = Instant::now();
        mirror.until_it_has_lost();
        println!("lost after {:?}", began.elapsed());
        // Who writes is told in time that this cannot be done.
        let began = Instant::now();
        let why = put().unwrap_err();
        assert!(began.elapsed() < ANSWER, "told after {:?}: {why}", began.elapsed());
        writers.until_more(50);
        reader.until_more();
        loser.lose_what_is_sent(other.address(), false);
        let began = Instant::now();
        mirror.until_it_follows();
        println!("follows again after {:?}", began.elapsed());
        put().unwrap();
    }
    let written = writers.end();
    until_alike(&primary, &mirror);
    written.check(&primary);
    reader.end(&primary);
}

/// A mirror whose host has gone, with its cable, is none of those that follow after a while, also when there
/// is nothing to tell it.
#[test]
fn a_mirror_that_has_gone_silently_is_let_go() {
    let _watchdog = watchdog("a mirror that is gone");
    let hosts = alike();
    let (mut primary, mut mirror) = (hosts.primary(1, &["--mirrors", "1"]), hosts.mirror(&[]));
    primary.serve();
    mirror.serve();
    mirror.until_it_follows();
    hosts.mirror.plug(false);
    mirror.kill();
    let began = Instant::now();
    until_within(PATIENCE, "the primary lets it go", || primary.mirrors().is_empty());
    println!("let go after {:?}", began.elapsed());
    hosts.mirror.plug(true);
    mirror.serve();
    until_alike(&primary, &mirror);
}

#[test]
fn twelve_mirrors_follow_and_a_thirteenth_is_told() {
    const MIRRORS: usize = 12;
    let _watchdog = watchdog("twelve mirrors");
    let hosts = alike();
    let mut primary = hosts.primary(2, &["--mirrors", "12"]);
    primary.serve();
    let work = Work { keys: 16, bytes: 500, pause: Duration::from_millis(5), ..work() };
    let writers = Writers::begin(&primary, work);
    let mut mirrors: Vec<Served<'_>> = (0..MIRRORS).map(|_| hosts.mirror(&[])).collect();
    let mut readers = Vec::new();
    for mirror in &mut mirrors {
        mirror.serve();
        readers.push(Reader::begin(mirror, work, reading(), true));
    }
    until_within(PATIENCE, "all follow", || primary.mirrors() == ["following"; MIRRORS]);
    let refused = hosts.impatient_mirror(&[]).refusal();
    assert!(refused.contains("12 mirrors follow it, and no more may (--mirrors)"), "{refused}");
    // The place of one that ends is another's.
    mirrors[0].kill();
    until_within(PATIENCE, "one has gone", || primary.mirrors().len() == MIRRORS - 1);
    let mut next = hosts.impatient_mirror(&[]);
    next.serve();
    next.until_it_follows();
    next.kill();
    until_within(PATIENCE, "it has gone", || primary.mirrors().len() == MIRRORS - 1);
    mirrors[0].serve();
    writers.until_more(100);
    readers.iter().for_each(Reader::until_more);
    let written = writers.end();
    written.check(&primary);
    mirrors.iter().for_each(|mirror| until_alike(&primary, mirror));
    let reads: u64 = readers.into_iter().map(|reader| reader.end(&primary)).sum();
    println!("{reads} reads");
}

/// A server, three mirrors that follow it, and nine that follow these: what is written comes to all of them,
/// whichever was killed meanwhile, and each server has only those to feed that follow it.
#[test]
fn twelve_mirrors_stand_in_levels() {
    const BETWEEN: usize = 3;
    const LEAVES: usize = 9;
    let _watchdog = watchdog("levels of mirrors");
    let listening = |served: &Served<'_>| {
        served.statistics().and_then(|told| told.server.tcp).expect("a server that listens").to_string()
    };
    let following = |of: &str, listen: &str| {
        let own = ["--mirror-of", of, "--listen", listen, "--mirrors", "3", "--retry", "90s"];
        let mut mirror = Served::new(None, &[&own[..], &["--memory", "256M"]].concat());
        mirror.serve();
        mirror
    };
    let own = ["--listen", "127.0.0.1:0", "--shards", "2", "--memory", "256M", "--mirrors", "3"];
    let mut root = Served::new(None, &own);
    root.serve();
    let root_at = listening(&root);
    let work = Work { keys: 16, bytes: 500, pause: Duration::from_millis(5), ..work() };
    let writers = Writers::begin(&root, work);
    let mut between: Vec<Served<'_>> = (0..BETWEEN).map(|_| following(&root_at, "127.0.0.1:0")).collect();
    let places: Vec<String> = between.iter().map(listening).collect();
    let leaves = (0..LEAVES).map(|leaf| following(&places[leaf % BETWEEN], "127.0.0.1:0"));
    let mut leaves: Vec<Served<'_>> = leaves.collect();
    let readers: Vec<Reader> = leaves.iter().map(|leaf| Reader::begin(leaf, work, reading(), true)).collect();
    let all_follow = |root: &Served<'_>, between: &[Served<'_>]| {
        let has_three = |served: &Served<'_>| served.mirrors() == ["following"; 3];
        has_three(root) && between.iter().all(has_three)
    };
    until_within(PATIENCE, "all follow", || all_follow(&root, &between));
    // One of each level, in turn.
    between[0].kill();
    readers.iter().for_each(Reader::until_more);
    between[0] = following(&root_at, &places[0]);
    leaves[4].kill();
    leaves[4].serve();
    until_within(PATIENCE, "all follow again", || all_follow(&root, &between));
    readers.iter().for_each(Reader::until_more);
    let written = writers.end();
    written.check(&root);
    leaves.iter().chain(&between).for_each(|mirror| until_alike(&root, mirror));
    let reads: u64 = readers.into_iter().map(|reader| reader.end(&root)).sum();
    println!("{reads} reads on {LEAVES} leaves");
}

/// 20 ms each way, and a cut at any byte, during the copy and behind it.
#[test]
fn a_long_way_is_cut_anywhere() {
    const CUTS: u64 = 12;
    let _watchdog = watchdog("a long way that is cut");
    let work = Work { keys: 128, bytes: 4000, ..work() };
    let mut primary = Served::new(None, &["--shards", "2", "--memory", "1G", "--listen", "127.0.0.1:0"]);
    primary.serve();
    let address = primary.statistics().and_then(|told| told.server.tcp).unwrap();
    let way = LongWay::to(address, Duration::from_millis(20), Random(work.seed));
    let mut mirror = Served::new(None, &["--mirror-of", &way.address.to_string(), "--retry", "90s"]);
    let writers = Writers::begin(&primary, work);
    writers.until_more(200);
    // Some of these do not reach the end of a copy, nor even its beginning.
    way.cut_within(4 << 20);
    mirror.serve();
    let reader = Reader::begin(&mirror, work, reading(), true);
    until_within(PATIENCE, "the way is cut often", || {
        let cuts = way.cuts();
        // Small ones now and then, so that cuts are within greetings, too.
        way.cut_within(if cuts % 3 == 2 { 4 << 10 } else { 4 << 20 });
        cuts >= CUTS
    });
    reader.until_more();
    way.cut_within(0);
    until_within(PATIENCE, "a last cut", || mirror.follows());
    let written = writers.end();
    until_alike(&primary, &mirror);
    written.check(&primary);
    println!("{} cuts, {} reads", way.cuts(), reader.end(&primary));
}

/// A mirror with a limit that had a copy, and no answer of its primary yet, was read without a limit: by
/// whoever connected then, for as long as his session lasted.
#[test]
fn a_limit_holds_before_the_first_answer() {
    let _watchdog = watchdog("a limit before the first answer");
    let mut primary = Served::new(None, &["--listen", "127.0.0.1:0", "--memory", "1G"]);
    primary.serve();
    let mut session = primary.session(patient()).unwrap();
    let table = session.create_table("t").unwrap();
    session.put(table, "k", &vec![1; 4 << 20]).unwrap();
    let address = primary.statistics().and_then(|told| told.server.tcp).unwrap();
    let way = LongWay::to(address, Duration::ZERO, Random(1));
    let of = way.address.to_string();
    // The copy takes several times as long as what is shown may be old.
    let mut mirror = Served::new(None, &["--mirror-of", &of, "--copy-rate", "2M", "--max-lag", "300ms"]);
    mirror.launch();
    until_within(PATIENCE, "the mirror copies", || primary.mirrors() == ["copying"]);
    way.hold(true);
    mirror.process.as_mut().unwrap().expect("serving ");
    let mut session = mirror.session(reading()).unwrap();
    let error = session.table("t").and_then(|table| session.get(table, "k")).unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("has not heard"), "{error}");
    way.hold(false);
    let mut read =
        || session.table("t").and_then(|table| session.get(table, "k")).is_ok_and(|item| item.is_some());
    until_within(PATIENCE, "what is new enough is read", &mut read);
    way.hold(true);
    until_within(PATIENCE, "what is too old is not read", || !read());
    way.hold(false);
}
