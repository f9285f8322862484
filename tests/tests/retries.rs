//! Sessions that go on when they have lost their connection: each write is done once, and none of an unknown
//! outcome.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kelix::{
    Address, CompareAndSet, Effect, ErrorKind, FabricChoice, Outcome, Session, SessionOptions, Table, Version,
};
use kelix_tests::process::{ServerProcess, ServerProgram};
use kelix_tests::{Random, RunDir, client_at, fabrics, far, fewer, session_over, until, value, watchdog};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

fn serve(run: &RunDir, take_over: bool) -> ServerProcess {
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    ServerProgram { program, directory: run.path(), shards: 2, memory_bytes: 256 << 20, take_over }.serve()
}

const A_SECOND: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A session that asks again for as long as a busy machine may need.
fn options() -> SessionOptions {
    SessionOptions::default().retry_for(Duration::from_secs(30))
}

/// A way to a server that breaks: after each so many bytes of an answer or a request, chosen at random, or
/// when told to. Over verbs hardly anything goes this way; there it breaks after some time.
struct Way {
    address: Address,
    open: Arc<Mutex<Vec<TcpStream>>>,
    cuts: Arc<AtomicU64>,
    breaks: Arc<AtomicBool>,
}

impl Way {
    fn to(server: &ServerProcess) -> Way {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let way = Way {
            address: Address::Tcp(listener.local_addr().unwrap().to_string()),
            open: Arc::default(),
            cuts: Arc::default(),
            breaks: Arc::default(),
        };
        let (open, cuts, breaks) = (way.open.clone(), way.cuts.clone(), way.breaks.clone());
        let behind = server.tcp_address();
        std::thread::spawn(move || {
            for (number, client) in listener.incoming().enumerate() {
                let (client, server) = (client.unwrap(), TcpStream::connect(&behind).unwrap());
                let ends = || (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (there, back) = (ends(), ends());
                open.lock().unwrap().extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
                if far() == FabricChoice::Verbs {
                    let (random, client) = (Random(number as u64), client.try_clone().unwrap());
                    let (cuts, breaks) = (cuts.clone(), breaks.clone());
                    std::thread::spawn(move || cut_some_time(&client, random, &cuts, &breaks));
                }
                for (side, (from, to)) in [there, (back.1, back.0)].into_iter().enumerate() {
                    let random = Random((number * 2 + side) as u64);
                    let (cuts, breaks) = (cuts.clone(), breaks.clone());
                    std::thread::spawn(move || carry(from, to, random, &cuts, &breaks));
                }
            }
        });
        way
    }

    fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn session(&self) -> Session {
        session_over(far(), &client_at(&self.address), options())
    }
}

/// Carries bytes one way until the way breaks.
fn carry(mut from: TcpStream, mut to: TcpStream, mut random: Random, cuts: &AtomicU64, breaks: &AtomicBool) {
    let mut buffer = vec![0; 4096];
    let mut left = None;
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if breaks.load(Ordering::SeqCst) && left.is_none() {
            left = Some(random.below(40_000) as usize);
        }
        let carried = left.map_or(count, |left| left.min(count));
        if to.write_all(&buffer[..carried]).is_err() {
            break;
        }
        left = left.map(|left| left - carried);
        if left == Some(0) {
            cuts.fetch_add(1, Ordering::SeqCst);
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Cuts a connection at some time, once the way is to break.
fn cut_some_time(client: &TcpStream, mut random: Random, cuts: &AtomicU64, breaks: &AtomicBool) {
    loop {
        std::thread::sleep(Duration::from_millis(20 + random.below(200)));
        if breaks.load(Ordering::SeqCst) {
            let cut = client.shutdown(Shutdown::Both).is_ok();
            cuts.fetch_add(u64::from(cut), Ordering::SeqCst);
            return;
        }
    }
}

/// A server, a way to it that does not break yet, and a session that goes it, with a table.
fn over_a_way(run: &RunDir) -> (ServerProcess, Arc<Way>, Session, Table) {
    let server = serve(run, false);
    let way = Arc::new(Way::to(&server));
    let mut session = way.session();
    let table = session.create_table("t").unwrap();
    (server, way, session, table)
}

fn repeated(server: &ServerProcess) -> u64 {
    let statistics = server.client().statistics().unwrap();
    statistics.shards.iter().map(|shard| shard.writes.repeated).sum()
}

fn number(session: &mut Session, table: Table, key: &[u8]) -> (u64, Option<Version>) {
    let item = session.get(table, key).unwrap();
    item.map_or((0, None), |item| {
        (u64::from_le_bytes(item.value().try_into().expect("a number")), Some(item.version()))
    })
}

/// Each success counts once, and so does each that is refused not at all.
#[test]
fn a_counter_counts_over_a_way_that_breaks() {
    let _watchdog = watchdog("a counter over a way that breaks");
    let run = RunDir::new();
    let (server, way, mut session, table) = over_a_way(&run);
    way.breaks.store(true, Ordering::SeqCst);
    let mut counted = 0;
    // Until some answers were lost on the way, else nothing is shown.
    while way.cuts.load(Ordering::SeqCst) < fewer(30) || repeated(&server) == 0 {
        let key = [counted as u8 % 4];
        let (before, version) = number(&mut session, table, &key);
        assert_eq!(before, counted / 4, "after {counted}");
        let set = session.compare_and_set(table, &key, version, &(before + 1).to_le_bytes()).unwrap();
        let CompareAndSet::Done(Some(_)) = set else { panic!("nobody else writes, and yet {set:?}") };
        counted += 1;
    }
    // The way may break behind the last answer, which the session does not learn before its next operation.
    way.breaks.store(false, Ordering::SeqCst);
    session.put(table, b"last", b"over a way that is whole").unwrap();
    assert!(!session.is_detached());
}

#[test]
fn batches_submissions_and_large_values_go_on_too() {
    let _watchdog = watchdog("batches over a way that breaks");
    let run = RunDir::new();
    let (_server, way, mut session, table) = over_a_way(&run);
    way.breaks.store(true, Ordering::SeqCst);
    let mut round = 0;
    while way.cuts.load(Ordering::SeqCst) < fewer(30) || round < fewer(10) {
        round += 1;
        // More than a shard knows the answers to.
        let items: Vec<([u8; 8], Vec<u8>)> =
            (0..600u64).map(|key| (key.to_le_bytes(), value::make(key, round, 100))).collect();
        let items: Vec<(&[u8], &[u8])> = items.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        for put in session.multi_put(table, &items).unwrap() {
            put.unwrap();
        }
        for (key, _) in &items {
            session.submit_put(table, &[key, &b"submitted"[..]].concat(), &round.to_le_bytes()).unwrap();
        }
        let mut completions = Vec::new();
        until("everything submitted has ended", || {
            session.poll(&mut completions).unwrap();
            session.outstanding() == 0
        });
        for completion in completions {
            assert!(matches!(completion.outcome.unwrap(), Outcome::Written(_)));
        }
        if round % 5 == 0 {
            way.breaks.store(false, Ordering::SeqCst);
            session.put(table, b"large", &value::make(7, round, 3 << 20)).unwrap();
            way.breaks.store(true, Ordering::SeqCst);
        }
        let found = session.multi_get(table, &items.iter().map(|(key, _)| *key).collect::<Vec<_>>()).unwrap();
        for (key, item) in found.into_iter().enumerate() {
            assert_eq!(value::check(key as u64, item.expect("put").value()), Ok(round));
        }
    }
}

/// The pieces of a value that was under way are sent again.
#[test]
fn a_large_value_survives_a_cut_in_its_middle() {
    let _watchdog = watchdog("a cut large value");
    let run = RunDir::new();
    let (_server, way, mut session, table) = over_a_way(&run);
    for round in 0..fewer(5).max(2) {
        let (over, cutter) = (Arc::new(AtomicBool::new(false)), way.clone());
        let ended = over.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(2));
            cutter.cut();
            // Each new connection lives a little longer, so that the value arrives at last.
            for live_ms in (3..).take_while(|_| !ended.load(Ordering::SeqCst)) {
                std::thread::sleep(Duration::from_millis(live_ms * live_ms));
                cutter.cut();
            }
        });
        session.put(table, b"large", &value::make(7, round, (fewer(8).max(2) << 20) as usize)).unwrap();
        over.store(true, Ordering::SeqCst);
        thread.join().unwrap();
        let item = session.get(table, b"large").unwrap().expect("put");
        assert_eq!(value::check(7, item.value()), Ok(round));
    }
}

#[test]
fn a_server_that_stands_still_for_long_is_waited_for() {
    let _watchdog = watchdog("a server that stands still");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = serve(&run, false);
        let mut session = session_over(fabric, &server.client(), options());
        let table = session.create_table("t").unwrap();
        server.process.stop_still();
        let continued = std::thread::scope(|scope| {
            let asking = scope.spawn(|| session.compare_and_set(table, b"k", None, b"once").unwrap());
            // Longer than a request may take.
            std::thread::sleep(options().timeout * 2);
            server.process.go_on();
            asking.join().unwrap()
        });
        assert!(matches!(continued, CompareAndSet::Done(Some(_))), "{fabric:?}: {continued:?}");
        assert_eq!(session.get(table, b"k").unwrap().unwrap().value(), b"once");
    }
}

/// What died with the server cannot be known.
#[test]
fn a_server_that_is_gone_for_good_leaves_the_outcome_unknown() {
    let _watchdog = watchdog("a server gone for good");
    for fabric in fabrics() {
        let run = RunDir::new();
        let mut server = serve(&run, false);
        let retry_for = Duration::from_millis(300);
        let options = SessionOptions::default().retry_for(retry_for);
        let mut session = session_over(fabric, &server.client(), options);
        let table = session.create_table("t").unwrap();
        server.process.stop_still();
        let error = std::thread::scope(|scope| {
            let asking = scope.spawn(|| session.put(table, b"k", b"v").unwrap_err());
            std::thread::sleep(Duration::from_millis(100));
            server.process.kill();
            asking.join().unwrap()
        });
        assert_eq!(error.effect(), Effect::Unknown, "{fabric:?}: {error}");
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut), "{fabric:?}: {error}");
        // Another server does not know what the first was asked.
        let _other = serve(&run, true);
        // The session finds it, but no table of that name there, and does nothing in another one.
        let mut last = None;
        until("the session meets the other server", || {
            let error = session.put(table, b"k", b"v").unwrap_err();
            last.insert(error).kind() == ErrorKind::NoSuchTable
        });
        let error = last.expect("just seen");
        assert_eq!((error.effect(), error.retry()), (Effect::No, false), "{fabric:?}: {error}");
        session.create_table("t").unwrap();
        session.put(table, b"k", b"v").unwrap();
    }
}

/// Nothing was written into a ring that was full, so nothing told that the connection was over before the
/// time for the request was.
#[test]
fn a_full_ring_hides_no_end() {
    let _watchdog = watchdog("an end beside a full ring");
    for fabric in fabrics() {
        let run = RunDir::new();
        let mut server = serve(&run, false);
        let options = SessionOptions::default().timeout(Duration::from_secs(200));
        let mut session = session_over(fabric, &server.client(), options);
        let table = session.create_table("t").unwrap();
        let keys: Vec<[u8; 8]> = (0..200u64).map(u64::to_le_bytes).collect();
        let items: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &[1; 30_000][..])).collect();
        server.process.stop_still();
        let began = Instant::now();
        let results = std::thread::scope(|scope| {
            let putting = scope.spawn(|| session.multi_put(table, &items).unwrap());
            std::thread::sleep(Duration::from_millis(300));
            server.process.kill();
            putting.join().unwrap()
        });
        for result in results {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{fabric:?}: {error}");
        }
        assert!(began.elapsed() < Duration::from_secs(100), "{fabric:?}: {:?}", began.elapsed());
    }
}

/// A session tried to connect again for as long as an answer may take, and then for as long as it was told
/// to; and while it waited for its descriptor between tries, a submitted operation took a core.
#[test]
fn a_server_that_is_gone_is_looked_for_as_long_as_told_and_no_longer() {
    let _watchdog = watchdog("a long time-out");
    for fabric in fabrics() {
        for submitted in [false, true] {
            let run = RunDir::new();
            let mut server = serve(&run, false);
            let (timeout, retry_for) = (Duration::from_secs(100_000), Duration::from_secs(2));
            let options = SessionOptions::default().timeout(timeout).retry_for(retry_for);
            let mut session = session_over(fabric, &server.client(), options);
            let table = session.create_table("t").unwrap();
            server.process.stop_still();
            let under_way = || {
                if !submitted {
                    return (session.put(table, b"k", b"v").unwrap_err(), 0);
                }
                session.submit_put(table, b"k", b"v").unwrap();
                let (mut completions, mut polls) = (Vec::new(), 0);
                while session.poll(&mut completions).unwrap() == 0 {
                    polls += 1;
                    // SAFETY: the session lives.
                    let fd = unsafe { BorrowedFd::borrow_raw(session.fd()) };
                    let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&A_SECOND)).unwrap();
                }
                (completions.pop().unwrap().outcome.unwrap_err(), polls)
            };
            let (error, polls) = std::thread::scope(|scope| {
                let asking = scope.spawn(under_way);
                std::thread::sleep(Duration::from_millis(100));
                server.process.kill();
                asking.join().unwrap()
            });
            assert_eq!(error.effect(), Effect::Unknown, "{fabric:?}: {error}");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{fabric:?}: {error}");
            assert!(polls < 1000, "{fabric:?}: {polls} polls");
        }
    }
}
