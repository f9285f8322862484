//! What costs nothing: a server and clients that do nothing, and a server whose clients read by themselves.

use std::time::{Duration, Instant};

use kelix::{Cost, FabricChoice, Path, Session, Values};
use kelix_tests::process::{Process, ServerProcess, ServerProgram, mapped_segments, processor_time_ns};
use kelix_tests::{RunDir, asked_sum, check_one_sided, far, until, value, watchdog};

/// A generous bound: 5 % of one processor.
const IDLE_PERCENT: u128 = 5;
/// The same where a device of software is at work, which takes its time from whom it interrupts.
const IDLE_PERCENT_VERBS: u128 = 20;

fn server(run: &RunDir) -> ServerProcess {
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    ServerProgram { program, directory: run.path(), shards: 2, memory_bytes: 128 << 20, take_over: false }
        .serve()
}

/// Asserts that a process does next to nothing while `busy` is called again and again for two seconds.
#[track_caller]
fn next_to_nothing(pids: &[u32], mut busy: impl FnMut()) {
    let (began, before): (Instant, Vec<u64>) =
        (Instant::now(), pids.iter().map(|pid| processor_time_ns(*pid)).collect());
    until("two seconds are over", || {
        busy();
        began.elapsed() > Duration::from_secs(2)
    });
    let percent = if far() == FabricChoice::Verbs { IDLE_PERCENT_VERBS } else { IDLE_PERCENT };
    let most = began.elapsed().as_nanos() * percent / 100;
    for (pid, before) in pids.iter().zip(before) {
        // A thread that ends, such as that of a question for statistics, takes its time with it.
        let spent = processor_time_ns(*pid).saturating_sub(before);
        assert!(u128::from(spent) < most, "process {pid} took {spent} ns, more than {most}");
    }
}

/// A server with sessions that do nothing, and a client that waits for its user, sleep.
#[test]
fn an_idle_server_and_an_idle_client_take_no_processor_time() {
    let _watchdog = watchdog("idle");
    let run = RunDir::new();
    let server = server(&run);
    let mut session = server.session();
    let table = session.create_table("t").unwrap();
    for key in 0..1000u64 {
        session.put(table, &key.to_le_bytes(), &value::make(key, 1, 100)).unwrap();
    }
    let mut clients = [run.path().display().to_string(), server.tcp_address()].map(|address| {
        let arguments = ["idle".to_string(), address, "t".to_string()];
        let mut client = Process::start(env!("CARGO_BIN_EXE_kelix-test-client"), &arguments);
        client.expect("idle");
        client
    });
    next_to_nothing(&[server.process.pid(), clients[0].pid(), clients[1].pid()], || {});
    for client in &mut clients {
        client.close();
        assert!(client.end().success());
    }
}

/// However many one-sided gets there are, by index and by cached pointer, one at a time and in batches: not
/// one request reaches a shard, and the server sleeps on. Over verbs it is the device that reads, as the
/// processor does in shared memory.
#[test]
fn one_sided_gets_take_nothing_of_the_server() {
    let _watchdog = watchdog("one-sided gets");
    let run = RunDir::new();
    let server = server(&run);
    let keys: Vec<[u8; 8]> = (0..1000u64).map(u64::to_le_bytes).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let mut writer = server.session();
    let table = writer.create_table("t").unwrap();
    for (key, number) in keys.iter().zip(0u64..) {
        writer.put(table, key, &value::make(number, 1, 100)).unwrap();
    }
    let paths = [Path::Auto, Path::Index, Path::Pointer];
    let mut sessions = Vec::from(paths.map(|path| server.session_by(path)));
    if far() == FabricChoice::Verbs {
        sessions.extend(paths.map(|path| server.far_session_by(path)));
    }
    let client = server.client();
    let mut values = Values::new();
    for session in &mut sessions {
        until("memory is registered where it has to be", || {
            let before = session.cost();
            keys.iter().for_each(|key| drop(session.get(table, key).unwrap()));
            session.cost().since(before).messages == 0
        });
    }
    let costs: Vec<Cost> = sessions.iter().map(Session::cost).collect();
    let mut gets = 0;
    let requests = |sessions: &[Session]| {
        sessions.iter().chain([&writer]).map(|session| session.cost().messages).sum::<u64>()
    };
    until("the shards have reported", || asked_sum(&client, "requests") == requests(&sessions));
    next_to_nothing(&[server.process.pid()], || {
        for session in &mut sessions {
            for key in &keys {
                assert!(session.get(table, key).unwrap().is_some());
            }
            session.multi_get_into(table, &keys, &mut values).unwrap();
            gets += 2 * keys.len();
        }
    });
    assert!(gets > 10_000);
    for (session, before) in sessions.iter().zip(costs) {
        check_one_sided(session.cost().since(before), session.fabric());
    }
    until("the shards have reported", || asked_sum(&client, "requests") == requests(&sessions));
}

/// An item whose time is over in 25 days or more had the server wait for longer than the system can count,
/// which it took for "at once", over and over: a whole core.
#[test]
fn a_wait_of_any_length_is_a_sleep() {
    let _watchdog = watchdog("long waits");
    let run = RunDir::new();
    let server = server(&run);
    let mut session = server.session();
    let table = session.create_table("t").unwrap();
    // One that ends after the other, so that each is the next to end in its turn; about where 31 and 32 bits
    // of milliseconds end.
    for (number, shift) in [36u32, 33, 32, 31].into_iter().enumerate() {
        for (way, milliseconds) in [(1u64 << shift) - 1, 1 << shift, (1 << shift) + 1].into_iter().enumerate()
        {
            let mut item = kelix::NewItem::new();
            item = item.bytes("", b"value").expires_in(Duration::from_millis(milliseconds));
            session.put_item(table, &[number as u8, way as u8], &item).unwrap();
        }
        next_to_nothing(&[server.process.pid()], || std::thread::sleep(Duration::from_millis(50)));
    }
}

/// Bytes of segments that a process has mapped.
fn mapped_bytes(pid: u32) -> u64 {
    let bytes = |line: &String| {
        let (begin, end) = line.split_whitespace().next()?.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        Some(address(end)? - address(begin)?)
    };
    mapped_segments(pid).iter().map(|line| bytes(line).expect("a range")).sum()
}

/// Over verbs a server kept memory that it had given up registered until each session had done something, if
/// only in a year.
#[test]
fn a_session_that_does_nothing_keeps_no_memory_that_was_given_up() {
    const VALUE_BYTES: usize = 10_000;
    let _watchdog = watchdog("idle sessions and segments");
    let run = RunDir::new();
    let server = server(&run);
    let mut session = server.session();
    let kept = session.create_table("kept").unwrap();
    session.put(kept, b"key", b"value").unwrap();
    let grown = session.create_table("grown").unwrap();
    for key in 0..(60u64 << 20) / VALUE_BYTES as u64 {
        session.put(grown, &key.to_le_bytes(), &value::make(key, 1, VALUE_BYTES)).unwrap();
    }
    let mut idle = server.far_session_by(Path::Auto);
    let known = idle.table("kept").unwrap();
    let grown_known = idle.table("grown").unwrap();
    for key in 0..64u64 {
        let item = idle.get(grown_known, &key.to_le_bytes()).unwrap().expect("a key");
        assert_eq!(value::check(key, item.value()), Ok(1));
    }
    let pid = server.process.pid();
    let before = mapped_bytes(pid);
    assert!(session.drop_table("grown").unwrap());
    let listed = || asked_sum(&server.client(), "memory/segment_bytes");
    until("segments go", || listed() + (32 << 20) <= before);
    until("their memory goes too", || mapped_bytes(pid) <= listed());
    assert_eq!(idle.get(known, b"key").unwrap().expect("a key").value(), b"value");
    assert!(!idle.is_detached());
}
