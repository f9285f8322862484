//! Memory that the server has given up is the system's again, whatever the processes do that have it mapped:
//! sessions that do nothing once kept all that was retired since they last looked, and all of a server that
//! another one had superseded.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kelix::{Session, Table};
use kelix_tests::kinds::Kinds;
use kelix_tests::process::{Process, ServerProcess, ServerProgram, descriptors_and_threads, mapped_segments};
use kelix_tests::{RunDir, asked_sum, until, value, watchdog};

const MIB: usize = 1 << 20;

fn program(run: &RunDir, take_over: bool) -> ServerProgram<'_> {
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    ServerProgram { program, directory: run.path(), shards: 2, memory_bytes: 128 << 20, take_over }
}

fn client(run: &RunDir, mode: &str, sessions: Option<u64>) -> Process {
    let arguments = [mode.to_string(), run.path().display().to_string(), "kinds".into()];
    let arguments: Vec<String> =
        arguments.into_iter().chain(sessions.map(|sessions| sessions.to_string())).collect();
    Process::start(env!("CARGO_BIN_EXE_kelix-test-client"), &arguments)
}

/// The files of the segments that a process has mapped, by their numbers.
fn segments(pid: u32) -> BTreeSet<u64> {
    let inode = |line: &String| line.split_whitespace().nth(4).and_then(|inode| inode.parse().ok());
    mapped_segments(pid).iter().map(|line| inode(line).expect("a number")).collect()
}

/// Waits until the server alone decides which segments take memory.
#[track_caller]
fn until_nothing_is_pinned(server: &ServerProcess, clients: &[&Process]) {
    for client in clients {
        let pinned = || segments(client.pid()).difference(&segments(server.process.pid())).count();
        until("retired segments are let go", || pinned() == 0);
    }
}

/// Puts values of a length into a table of its own, some 60 MiB, and all else anew; then drops the table, and
/// waits until segments went with it.
fn grow_and_shrink(server: &ServerProcess, session: &mut Session, kinds: &Kinds, round: u64, bytes: usize) {
    let client = server.client();
    let retired = || asked_sum(&client, "memory/segments_retired");
    let before = retired();
    let name = format!("round {round}");
    let table = session.create_table(&name).expect("a table");
    let count = (60 * MIB / bytes) as u64;
    put_many(session, table, count / 2, bytes);
    kinds.put(session, round);
    put_many(session, table, count, bytes);
    assert!(session.drop_table(&name).expect("an answer"));
    until("segments are retired", || retired() >= before + 4);
}

fn put_many(session: &mut Session, table: Table, count: u64, bytes: usize) {
    let batch = (MIB / bytes) as u64;
    for first in (0..count).step_by(batch as usize) {
        let values: Vec<([u8; 8], Vec<u8>)> =
            (first..first + batch).map(|key| (key.to_le_bytes(), value::make(key, count, bytes))).collect();
        let items: Vec<(&[u8], &[u8])> = values.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        session.multi_put(table, &items).expect("a batch").into_iter().for_each(|put| {
            put.expect("a put");
        });
    }
}

fn begin(run: &RunDir) -> (ServerProcess, Session, Kinds) {
    let server = program(run, false).serve();
    let mut session = server.session();
    let kinds = Kinds::open(&mut session).expect("tables");
    kinds.put(&mut session, 0);
    (server, session, kinds)
}

#[track_caller]
fn wake(client: &mut Process, counter: u64, expected: &str) {
    client.say(&counter.to_string());
    assert_eq!(client.expect("read "), expected);
}

/// A session was opened at each size of values, and did nothing from then on: each kept what was retired
/// since, 1.1 GiB for eight sessions with a server of 256 MiB.
#[test]
fn idle_sessions_let_retired_segments_go() {
    let _watchdog = watchdog("idle sessions and retired segments");
    let run = RunDir::new();
    let (server, mut session, kinds) = begin(&run);
    let mut resting = vec![client(&run, "rest", Some(3))];
    resting[0].expect("resting");
    let at_first = segments(resting[0].pid());
    for (round, bytes) in (1..).zip([200, 3000, 20_000, 900]) {
        grow_and_shrink(&server, &mut session, &kinds, round, bytes);
        let mut another = client(&run, "rest", Some(1));
        another.expect("resting");
        resting.push(another);
    }
    let gone = at_first.difference(&segments(server.process.pid())).count();
    assert!(gone > 0, "all of the segments of the beginning are in use still");
    until_nothing_is_pinned(&server, &resting.iter().collect::<Vec<_>>());
    for client in &mut resting {
        wake(client, 4, "ok");
    }
    grow_and_shrink(&server, &mut session, &kinds, 5, 500);
    until_nothing_is_pinned(&server, &resting.iter().collect::<Vec<_>>());
    for client in &mut resting {
        wake(client, 5, "ok");
        assert!(client.end().success());
    }
}

/// A process that stood still while more was retired than it had ever seen lets go when it goes on.
#[test]
fn a_process_that_stood_still_lets_go_when_it_goes_on() {
    let _watchdog = watchdog("a stopped process and retired segments");
    let run = RunDir::new();
    let (server, mut session, kinds) = begin(&run);
    let mut resting = client(&run, "rest", Some(1));
    resting.expect("resting");
    resting.stop_still();
    // Which segments are retired the server decides: at some time one that was there at the beginning.
    let is_pinned = || !segments(resting.pid()).is_subset(&segments(server.process.pid()));
    let mut round = 0;
    while round < 2 || !is_pinned() && round < 12 {
        round += 1;
        grow_and_shrink(&server, &mut session, &kinds, round, [300, 10_000][round as usize % 2]);
    }
    assert!(is_pinned(), "what stands still can let nothing go");
    resting.go_on();
    until_nothing_is_pinned(&server, &[&resting]);
    wake(&mut resting, round, "ok");
}

/// Sessions that read all the time, and seldom look around, while segments become zeros under them.
#[test]
fn sessions_read_on_while_segments_are_let_go() {
    let _watchdog = watchdog("reads while segments are let go");
    let run = RunDir::new();
    let (server, mut session, kinds) = begin(&run);
    let mut streaming = [client(&run, "stream", None), client(&run, "stream", None)];
    streaming.iter_mut().for_each(|client| drop(client.expect("streaming")));
    for (round, bytes) in (1..).zip([150, 2000, 15_000]) {
        grow_and_shrink(&server, &mut session, &kinds, round, bytes);
        until_nothing_is_pinned(&server, &streaming.iter().collect::<Vec<_>>());
    }
    for client in &mut streaming {
        client.close();
        assert!(client.expect("streamed ").parse::<u64>().unwrap() > 3);
        assert!(client.end().success());
    }
}

/// The memory of a server that another one has superseded goes too, and that of one that died stays, to be
/// read.
#[test]
fn the_memory_of_a_server_goes_when_another_one_is_in_force() {
    let _watchdog = watchdog("memory of a server that is superseded");
    let run = RunDir::new();
    let (mut first, mut session, kinds) = begin(&run);
    kinds.put(&mut session, 1);
    let mut resting = client(&run, "rest", Some(2));
    resting.expect("resting");
    first.process.kill();
    let mut let_it_look = || {
        let began = Instant::now();
        until("the thread has had time for several looks", || {
            wake(&mut resting, 1, "ok");
            began.elapsed() > Duration::from_secs(3)
        });
        segments(resting.pid())
    };
    // What was retired before may go yet.
    let of_first = let_it_look();
    assert!(!of_first.is_empty());
    assert_eq!(let_it_look(), of_first);
    let second = program(&run, false).serve();
    let mut session = second.session();
    let kinds = Kinds::open(&mut session).expect("tables");
    kinds.put(&mut session, 2);
    until_nothing_is_pinned(&second, &[&resting]);
    // It knows that its server has gone.
    wake(&mut resting, 2, "ok");
    // The process does not know this time: its reads begin again at the third server.
    let third = program(&run, true).serve();
    until_nothing_is_pinned(&third, &[&resting]);
    let mut session = third.session();
    let kinds = Kinds::open(&mut session).expect("tables");
    kinds.put(&mut session, 3);
    wake(&mut resting, 3, "ok");
    assert!(resting.end().success());
}

/// However many sessions there are.
#[test]
fn a_process_has_one_thread_for_it() {
    let _watchdog = watchdog("the thread that lets go");
    let run = RunDir::new();
    let (_server, ..) = begin(&run);
    let mut resting = client(&run, "rest", Some(5));
    resting.expect("resting");
    let (_, threads) = descriptors_and_threads(resting.pid());
    assert_eq!(threads, 2);
    assert!(resting.end().success());
}
