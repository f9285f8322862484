//! Submitted operations: the descriptor to wait on, many at once, and a server that does not answer.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use kelix::{Completion, Effect, ErrorKind, FabricChoice, Outcome, Session, SessionOptions, Table};
use kelix_tests::process::{ServerProcess, ServerProgram, processor_time_ns};
use kelix_tests::{ANSWERED_WITHIN, RunDir, fabrics, session_over, watchdog};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

fn server(run: &RunDir) -> ServerProcess {
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    ServerProgram { program, directory: run.path(), shards: 2, memory_bytes: 256 << 20, take_over: false }
        .serve()
}

fn open(server: &ServerProcess, fabric: FabricChoice) -> (Session, Table) {
    let mut session = session_over(fabric, &server.client(), SessionOptions::default());
    let table = session.create_table("t").unwrap();
    (session, table)
}

fn is_readable_within(session: &Session, time: Duration) -> bool {
    // SAFETY: the session, whose descriptor it is, is borrowed until after the last use.
    let fd = unsafe { BorrowedFd::borrow_raw(session.fd()) };
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut fds, Some(&time)).unwrap() > 0
}

/// Polls as the documentation says, sleeping on the descriptor, until all is complete.
fn complete(session: &mut Session, patience: Duration) -> Vec<Completion> {
    let mut completions = Vec::new();
    while session.outstanding() > 0 {
        if session.poll(&mut completions).unwrap() == 0 {
            assert!(is_readable_within(session, patience), "no wake-up came");
        }
    }
    completions
}

/// Once as many requests were under way as there can be, each further one waited for the whole time-out and
/// then failed: the answers that had arrived were only looked at when all was sent.
#[test]
fn more_operations_than_requests_can_be_under_way_all_end() {
    let _watchdog = watchdog("many submitted");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        let (mut session, table) = open(&server, fabric);
        let count = 10_000u64;
        for key in 0..count {
            session.submit_put(table, &key.to_le_bytes(), &[7; 100]).unwrap();
        }
        let began = Instant::now();
        let completions = complete(&mut session, Duration::from_secs(10));
        assert_eq!(completions.len() as u64, count);
        for completion in completions {
            assert!(matches!(completion.outcome, Ok(Outcome::Written(_))), "{completion:?}");
        }
        eprintln!("{count} puts in {:?}", began.elapsed());
        for key in 0..count {
            session.submit_get(table, &key.to_le_bytes()).unwrap();
        }
        for completion in complete(&mut session, Duration::from_secs(10)) {
            assert!(matches!(completion.outcome, Ok(Outcome::Item(Some(_)))), "{completion:?}");
        }
    }
}

/// A wake-up was never taken back, so that after the first one the descriptor was readable for ever.
#[test]
fn the_descriptor_is_quiet_while_there_is_nothing() {
    let _watchdog = watchdog("quiet descriptor");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        let (mut session, table) = open(&server, fabric);
        // Some that were woken for, so that a wake-up that is never taken back would show.
        for round in 0..20u64 {
            session.submit_put(table, &round.to_le_bytes(), b"v").unwrap();
            complete(&mut session, Duration::from_secs(10));
        }
        server.process.stop_still();
        session.submit_put(table, b"k", b"v").unwrap();
        let mut completions = Vec::new();
        for _ in 0..3 {
            assert_eq!(session.poll(&mut completions).unwrap(), 0);
        }
        assert!(!is_readable_within(&session, Duration::from_millis(100)), "readable although nothing came");
        server.process.go_on();
        let completions = complete(&mut session, Duration::from_secs(10));
        assert!(matches!(completions[..], [Completion { outcome: Ok(Outcome::Written(_)), .. }]));
    }
}

/// The descriptor told of the server's end, but the session did not look, and its operations stayed
/// outstanding.
#[test]
fn submitted_operations_end_when_the_server_is_killed() {
    let _watchdog = watchdog("killed under submitted operations");
    let run = RunDir::new();
    let mut server = server(&run);
    let (mut session, table) = open(&server, FabricChoice::Shm);
    session.put(table, b"there", b"v").unwrap();
    // It stands still first, so that it cannot answer before it dies.
    server.process.stop_still();
    let put = session.submit_put(table, b"k", b"v").unwrap();
    let absent = session.submit_get(table, b"absent").unwrap();
    let there = session.submit_get(table, b"there").unwrap();
    let mut completions = Vec::new();
    session.poll(&mut completions).unwrap();
    assert_eq!(completions.len(), 1, "what is read one-sidedly needs no server");
    assert_eq!(completions[0].ticket, there);
    assert_eq!(session.poll(&mut completions).unwrap(), 0);
    server.process.kill();
    let completions = complete(&mut session, ANSWERED_WITHIN);
    assert_eq!(completions.len(), 2);
    for completion in completions {
        let error = completion.outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let effect = if completion.ticket == put { Effect::Unknown } else { Effect::No };
        assert!(completion.ticket == put || completion.ticket == absent);
        assert_eq!(error.effect(), effect);
    }
}

/// Only the plain calls had a time-out; a submitted operation at a server that stood still never ended.
#[test]
fn submitted_operations_time_out_when_the_server_stands_still() {
    let _watchdog = watchdog("stopped under submitted operations");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        let (mut session, table) = open(&server, fabric);
        server.process.stop_still();
        let put = session.submit_put(table, b"k", b"v").unwrap();
        let get = session.submit_get(table, b"absent").unwrap();
        let began = Instant::now();
        let mut completions = Vec::new();
        while session.outstanding() > 0 {
            assert!(began.elapsed() < ANSWERED_WITHIN, "the time-out is 900 ms");
            if session.poll(&mut completions).unwrap() == 0 {
                is_readable_within(&session, Duration::from_millis(20));
            }
        }
        assert!(began.elapsed() > Duration::from_millis(850));
        for completion in completions {
            let error = completion.outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            let effect = if completion.ticket == put { Effect::Unknown } else { Effect::No };
            assert!(completion.ticket == put || completion.ticket == get);
            assert_eq!(error.effect(), effect);
        }
        server.process.go_on();
        // The late answers disturb nobody.
        for round in 0..100u64 {
            session.put(table, &round.to_le_bytes(), b"v").unwrap();
        }
    }
}

/// Each put of the batch waited for a time-out of its own, a minute in all; and where the ring was full, the
/// whole batch failed with an error that said nothing had been done, although some puts were under way.
#[test]
fn a_batch_of_puts_at_a_server_that_stands_still_ends_in_time_and_says_what_is_unknown() {
    let _watchdog = watchdog("a batch at a stopped server");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        for bytes in [10, 30_000] {
            let (mut session, table) = open(&server, fabric);
            let value = vec![1; bytes];
            let keys: Vec<[u8; 8]> = (0..200u64).map(u64::to_le_bytes).collect();
            let items: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &value[..])).collect();
            server.process.stop_still();
            let began = Instant::now();
            let results = session.multi_put(table, &items).expect("what is wrong is said of each item");
            assert!(began.elapsed() < ANSWERED_WITHIN, "it took {:?}", began.elapsed());
            assert_eq!(results.len(), items.len());
            for result in &results {
                let error = result.as_ref().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::TimedOut);
            }
            server.process.go_on();
            // What is said not to have been done must not be there.
            let mut fresh = server.client().session().unwrap();
            let table = fresh.table("t").unwrap();
            fresh.put(table, b"a sign of life", b"").unwrap();
            for (key, result) in keys.iter().zip(&results) {
                if fresh.delete(table, key).unwrap() {
                    assert_eq!(result.as_ref().unwrap_err().effect(), Effect::Unknown, "{bytes} bytes");
                }
            }
        }
    }
}

#[test]
fn waiting_on_the_descriptor_takes_no_processor_time() {
    let _watchdog = watchdog("waiting costs nothing");
    for fabric in fabrics() {
        let run = RunDir::new();
        let server = server(&run);
        let (mut session, table) = open(&server, fabric);
        for round in 0..20u64 {
            session.submit_put(table, &round.to_le_bytes(), b"v").unwrap();
            complete(&mut session, Duration::from_secs(10));
        }
        // With the server standing still, an operation takes its 900 ms; a loop as documented sleeps through
        // them.
        server.process.stop_still();
        session.submit_put(table, b"k", b"v").unwrap();
        let before = processor_time_ns(std::process::id());
        let began = Instant::now();
        let mut rounds = 0;
        let mut completions = Vec::new();
        while session.outstanding() > 0 && began.elapsed() < Duration::from_millis(500) {
            session.poll(&mut completions).unwrap();
            is_readable_within(&session, Duration::from_millis(100));
            rounds += 1;
        }
        let spent = processor_time_ns(std::process::id()) - before;
        assert!(rounds < 50, "woken {rounds} times for nothing ({spent} ns of processor time)");
        server.process.go_on();
    }
}

#[test]
fn short_time_outs_are_kept() {
    let _watchdog = watchdog("short time-outs");
    let run = RunDir::new();
    let server = server(&run);
    let options = SessionOptions::default().timeout(Duration::from_millis(50));
    let mut session = server.client().session_with(options).unwrap();
    let table = session.create_table("t").unwrap();
    server.process.stop_still();
    for _ in 0..3 {
        let error = session.put(table, b"k", b"v").unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::TimedOut, Effect::Unknown));
    }
    server.process.go_on();
}
