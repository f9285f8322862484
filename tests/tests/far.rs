//! Sessions over a fabric that is not shared memory: servers that die, stand still or are taken over, clients
//! that die, gets that are submitted.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use kelix::{Client, Effect, Error, ErrorKind, FabricChoice, Outcome, Path, Session, SessionOptions};
use kelix_tests::bystander::Bystander;
use kelix_tests::filled::{KEYS, LARGE, check, fill};
use kelix_tests::process::{Process, ServerProcess, ServerProgram, patient};
use kelix_tests::{
    ANSWERED_WITHIN, RunDir, breaks, check_fabric, far, fewer, session_over, slow, statistics, until, value,
    watchdog,
};
use rustix::event::{PollFd, PollFlags};

fn serve(run: &RunDir, take_over: bool) -> ServerProcess {
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    ServerProgram { program, directory: run.path(), shards: 2, memory_bytes: 256 << 20, take_over }.serve()
}

/// An impatient session.
fn session(server: &ServerProcess, path: Path) -> Session {
    server.far_session(SessionOptions::default().path(path))
}

/// Runs an operation that must fail in time.
#[track_caller]
fn fails<T: std::fmt::Debug>(what: &str, operation: impl FnOnce() -> Result<T, Error>) -> Error {
    let began = Instant::now();
    let error = operation().expect_err(what);
    assert!(began.elapsed() < ANSWERED_WITHIN, "{what} took {:?} to fail", began.elapsed());
    error
}

#[test]
fn a_server_that_was_killed_is_an_error_in_time() {
    let _watchdog = watchdog("a killed server");
    for path in [Path::Pointer, Path::Index, Path::Message] {
        let run = RunDir::new();
        let mut server = serve(&run, false);
        let mut session = session(&server, path);
        let table = fill(&mut session, 1);
        check(&mut session, table, 1);
        server.process.kill();
        let error = fails("a get", || session.get(table, &[0; 8]));
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::No), "{path:?}: {error}");
        // Over verbs a request that could not be posted told nobody, as long as the lease of the authority
        // lasted.
        assert!(session.is_detached(), "{path:?}: {error}");
        let error = fails("a put", || session.put(table, &[0; 8], b"value"));
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{path:?}: {error}");
        let error = fails("a large get", || session.get(table, &LARGE.to_le_bytes()));
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{path:?}: {error}");
    }
}

#[test]
fn a_server_that_stands_still_is_an_error_in_time_and_goes_on_afterwards() {
    let _watchdog = watchdog("a stopped server");
    let run = RunDir::new();
    let server = serve(&run, false);
    let mut sessions: Vec<Session> =
        [Path::Pointer, Path::Index, Path::Message].map(|path| session(&server, path)).into();
    let table = fill(&mut sessions[0], 1);
    sessions.iter_mut().for_each(|session| check(session, table, 1));
    for round in 2..4 {
        server.process.stop_still();
        let keys: Vec<[u8; 8]> = (0..KEYS).map(u64::to_le_bytes).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        for (session, asks) in sessions.iter_mut().zip([false, false, true]) {
            if far() == FabricChoice::Verbs && !asks {
                // Nothing of the server's has to move for that.
                assert!(session.get(table, &[0; 8]).unwrap().is_some());
                assert!(session.multi_get(table, &keys).unwrap().iter().all(Option::is_some));
                continue;
            }
            let error = fails("a get", || session.get(table, &[0; 8]));
            assert_eq!((error.kind(), error.effect()), (ErrorKind::TimedOut, Effect::No), "{error}");
            let error = fails("a batch", || session.multi_get(table, &keys));
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        }
        let error = fails("a put", || sessions[0].put(table, b"unknown", b"value"));
        assert_eq!((error.kind(), error.effect()), (ErrorKind::TimedOut, Effect::Unknown), "{error}");
        server.process.go_on();
        // What was asked and given up is answered now, and must be taken for the answer to nothing else.
        fill(&mut sessions[1], round);
        sessions.iter_mut().for_each(|session| check(session, table, round));
    }
}

#[test]
fn a_successor_is_noticed_and_nothing_of_its_predecessor_is_believed() {
    let _watchdog = watchdog("a successor");
    let run = RunDir::new();
    let first = serve(&run, false);
    let client = Client::connect(run.path()).unwrap();
    let mut sessions = [0; 2].map(|_| session_over(far(), &client, SessionOptions::default()));
    let table = fill(&mut sessions[0], 1);
    check(&mut sessions[1], table, 1);
    let second = serve(&run, true);
    // Once it has replied to anybody, no get may find the old value.
    fill(&mut second.far_session(patient()), 2);
    for session in &mut sessions {
        let error = fails("a get", || session.get(table, &[0; 8]));
        assert!([ErrorKind::Superseded, ErrorKind::Unavailable].contains(&error.kind()), "{error}");
        session.reconnect().unwrap();
        check_fabric(session, far());
        let table = session.table("t").unwrap();
        check(session, table, 2);
    }
    drop(first);
}

#[test]
fn clients_that_are_killed_leave_nothing_behind() {
    let _watchdog = watchdog("killed clients");
    let run = RunDir::new();
    let server = serve(&run, false);
    let mut session = server.far_session_by(Path::Index);
    session.create_table("t").unwrap();
    let (bystander, before) = (Bystander::start(&server), server.held_at_rest());
    let program = env!("CARGO_BIN_EXE_kelix-test-client");
    for round in 0..4u64 {
        let churn = |seed: u64| {
            let arguments = ["churn".into(), server.tcp_address(), "t".into(), seed.to_string()];
            Process::start(program, &arguments)
        };
        let mut clients: Vec<Process> = (0..3).map(|client| churn(round * 3 + client)).collect();
        for client in &mut clients {
            client.expect("churning");
        }
        std::thread::sleep(Duration::from_millis(20 * round));
        clients.iter_mut().for_each(Process::kill);
    }
    bystander.goes_on();
    server.until_given_back(before);
    until("the dead are forgotten", || {
        let all = statistics(&server.tcp_client());
        // The bystander, the session here, and whoever asks.
        all["clients"].as_array().is_some_and(|clients| clients.len() <= 3)
    });
    bystander.end();
}

/// So that a run of all these tests over connections that break is one.
#[test]
fn connections_break_where_they_are_to() {
    let _watchdog = watchdog("connections that are to break");
    let run = RunDir::new();
    let server = serve(&run, false);
    let mut session = server.far_session(patient());
    let table = session.create_table("t").unwrap();
    for round in 0.. {
        if slow::cuts() >= 10 || !breaks() && round == 10 {
            break;
        }
        session.put(table, b"k", &value::make(1, round, 10_000)).unwrap();
        let item = session.get(table, b"k").unwrap().expect("just put");
        assert_eq!(value::check(1, item.value()), Ok(round));
    }
    assert_eq!(slow::cuts() > 0, breaks());
}

/// Over verbs the server's memory is read once it is registered. A get of a value in a segment that had just
/// come found none of it, asked the shard, which says where such a value stands, and so on; and failed.
#[test]
fn large_values_in_new_memory_are_read() {
    let _watchdog = watchdog("large values in new memory");
    let run = RunDir::new();
    let server = serve(&run, false);
    let (mut near, mut far) = (server.session(), server.far_session_by(Path::Auto));
    let table = near.create_table("t").unwrap();
    // Enough for segments to be added, and few enough for one shard, should they all be of it.
    for key in 0..fewer(30).max(20) {
        near.put(table, &key.to_le_bytes(), &value::make(key, 1, 4_000_000)).unwrap();
        let item = far.get(table, &key.to_le_bytes()).unwrap().expect("just put");
        assert_eq!(value::check(key, item.value()), Ok(1));
    }
}

/// Gets that were submitted are under way together, and no poll waits for them.
#[test]
fn polls_do_not_wait_for_the_gets_that_they_begin() {
    let _watchdog = watchdog("submitted gets");
    let run = RunDir::new();
    let server = serve(&run, false);
    // Over verbs a server that stands still answers READs.
    let path = if far() == FabricChoice::Verbs { Path::Message } else { Path::Pointer };
    let mut session = server.far_session_by(path);
    let table = fill(&mut session, 1);
    check(&mut session, table, 1);
    let mut completions = Vec::new();
    server.process.stop_still();
    // More than are read at once, and some that only the shard can answer.
    for key in (0..2 * KEYS).chain([LARGE]) {
        session.submit_get(table, &key.to_le_bytes()).unwrap();
    }
    for _ in 0..3 {
        assert_eq!(session.poll(&mut completions).unwrap(), 0);
    }
    assert_eq!(session.outstanding() as u64, 2 * KEYS + 1);
    server.process.go_on();
    // The descriptor tells of everything that comes.
    while session.outstanding() > 0 {
        if session.poll(&mut completions).unwrap() == 0 {
            // SAFETY: the session lives.
            let fd = unsafe { BorrowedFd::borrow_raw(session.fd()) };
            let patience = rustix::event::Timespec { tv_sec: 15, tv_nsec: 0 };
            let ready = rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&patience)).unwrap();
            assert_eq!(ready, 1, "{} are outstanding, and nothing tells of them", session.outstanding());
        }
    }
    let mut found: Vec<u64> = Vec::new();
    for completion in completions {
        match completion.outcome.unwrap() {
            Outcome::Item(Some(item)) => {
                let key = u64::from_le_bytes(item.key().try_into().unwrap());
                assert_eq!(value::check(key, item.value()), Ok(1));
                found.push(key);
            }
            Outcome::Item(None) => {}
            outcome => panic!("{outcome:?}"),
        }
    }
    found.sort_unstable();
    assert_eq!(found, (0..KEYS).chain([LARGE]).collect::<Vec<_>>());
}
