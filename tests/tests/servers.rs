//! Servers that die, stand still or are taken over, as the library's callers meet them: what needs a server
//! fails in time and says what it has done, one-sided gets go on from the last state for as long as it is the
//! last.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kelix::{
    Client, Effect, Error, ErrorKind, NewItem, Outcome, Path, Rows, Scan, Session, Table, TableKind, Values,
};
use kelix_fabric::shm::RunDirectory;
use kelix_tests::bystander::Bystander;
use kelix_tests::process::{ServerProcess, ServerProgram, patient};
use kelix_tests::raw::RawSession;
use kelix_tests::{ANSWERED_WITHIN, RunDir, statistics, until, value, watchdog};
use kelix_types::TableId;
use kelix_wire::{Op, RequestHead};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

const KEYS: u64 = 200;
/// The key of a value that stands in page runs.
const LARGE: u64 = 1000;
const LARGE_BYTES: usize = 3 << 20;

fn serve(run: &RunDir, take_over: bool) -> ServerProcess {
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    ServerProgram { program, directory: run.path(), shards: 2, memory_bytes: 256 << 20, take_over }.serve()
}

/// Puts everything, each key several times, the last time with this counter.
fn fill(session: &mut Session, counter: u64) -> Table {
    let table = session.create_table("t").unwrap();
    for counter in [counter + 7, counter + 8, counter] {
        let items: Vec<([u8; 8], Vec<u8>)> =
            (0..KEYS).map(|key| (key.to_le_bytes(), value::make(key, counter, 100))).collect();
        let items: Vec<(&[u8], &[u8])> = items.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        for result in session.multi_put(table, &items).unwrap() {
            result.unwrap();
        }
    }
    session.put(table, &LARGE.to_le_bytes(), &value::make(LARGE, counter, LARGE_BYTES)).unwrap();
    table
}

/// Reads everything in every way there is.
#[track_caller]
fn check_all(session: &mut Session, table: Table, counter: u64) {
    for key in (0..KEYS).chain([LARGE]) {
        let item = session.get(table, &key.to_le_bytes()).unwrap().expect("a key that is there");
        assert_eq!(value::check(key, item.value()), Ok(counter));
    }
    let keys: Vec<[u8; 8]> = (0..KEYS).map(u64::to_le_bytes).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let (mut values, mut buffer) = (Values::new(), [0; 100]);
    session.multi_get_into(table, &keys, &mut values).unwrap();
    let items = session.multi_get(table, &keys).unwrap();
    for key in 0..KEYS {
        let index = key as usize;
        let found = session.get_into(table, keys[index], &mut buffer).unwrap();
        assert_eq!(found.map(|(bytes, _)| bytes), Some(buffer.len()));
        let item = items[index].as_ref().expect("a key that is there");
        for value in [values.get(index).expect("a key that is there"), item.value(), &buffer] {
            assert_eq!(value::check(key, value), Ok(counter));
        }
    }
}

/// Sessions that look up one-sidedly and have read everything once.
fn readers(server: &ServerProcess, counter: u64) -> [(Session, Table); 2] {
    [Path::Index, Path::Pointer].map(|path| {
        let mut session = server.session_by(path);
        let table = session.table("t").unwrap();
        check_all(&mut session, table, counter);
        (session, table)
    })
}

type Operation = fn(&mut Session, Table) -> Result<(), Error>;

/// What needs a server, and what its failure says of its effect when no answer comes.
const OPERATIONS: [(&str, Operation, Effect); 12] = [
    ("put", |session, table| session.put(table, b"k", b"v").map(drop), Effect::Unknown),
    ("delete", |session, table| session.delete(table, b"k").map(drop), Effect::Unknown),
    ("compare_and_set", |s, table| s.compare_and_set(table, b"k", None, b"v").map(drop), Effect::Unknown),
    (
        "put_item",
        |session, table| session.put_item(table, b"k", &NewItem::new().bytes("", b"v")).map(drop),
        Effect::Unknown,
    ),
    ("create_table", |session, _| session.create_table("new").map(drop), Effect::Unknown),
    (
        "multi_put",
        |session, table| session.multi_put(table, &[(b"k", b"v")])?.pop().expect("a result").map(drop),
        Effect::Unknown,
    ),
    (
        "multi_get_put",
        |session, table| {
            session.multi_get_put(table, &[b"absent"], &mut Values::new(), &[(b"k", b"v")]).map(drop)
        },
        Effect::Unknown,
    ),
    // The pieces of a large value change nothing until the last message.
    ("a large put", |session, table| session.put(table, b"k", &[1; 100_000]).map(drop), Effect::No),
    (
        "get by message",
        |session, table| {
            session.set_path(Path::Message);
            session.get(table, &0u64.to_le_bytes()).map(drop)
        },
        Effect::No,
    ),
    // Only the shard says that a key is absent.
    ("get of an absent key", |session, table| session.get(table, b"absent").map(drop), Effect::No),
    (
        "multi_get of an absent key",
        |session, table| session.multi_get(table, &[b"absent"]).map(drop),
        Effect::No,
    ),
    ("table that is not there", |session, _| session.table("absent").map(drop), Effect::No),
];

/// Begins each operation at the same time, in a session of its own, once `gone` has seen to the server;
/// returns the sessions again.
#[track_caller]
fn all_fail_in_time(
    server: &mut ServerProcess,
    gone: impl Fn(&mut ServerProcess),
    kind: ErrorKind,
) -> Vec<Session> {
    let mut sessions: Vec<(Session, Table)> = Vec::new();
    for _ in OPERATIONS {
        let mut session = server.client().session().unwrap();
        let table = session.table("t").unwrap();
        sessions.push((session, table));
    }
    gone(server);
    let begin = |((mut session, table), (name, operation, effect)): ((Session, Table), (_, Operation, _))| {
        std::thread::spawn(move || {
            let began = Instant::now();
            let error = operation(&mut session, table).expect_err(name);
            assert!(began.elapsed() < ANSWERED_WITHIN, "{name} took {:?}", began.elapsed());
            assert_eq!((error.kind(), error.effect()), (kind, effect), "{name}: {error}");
            assert!(error.retry(), "{name}: {error}");
            session
        })
    };
    let threads: Vec<_> = sessions.into_iter().zip(OPERATIONS).map(begin).collect();
    threads.into_iter().map(|thread| thread.join().expect("an operation that fails as it should")).collect()
}

/// When the server is killed, each kind of request fails at once and says whether it may have been delivered;
/// and once a session knows that the server has gone, nothing more is sent.
#[test]
fn requests_to_a_killed_server_fail_and_say_what_is_unknown() {
    let _watchdog = watchdog("requests to a killed server");
    let run = RunDir::new();
    let mut server = serve(&run, false);
    let table = fill(&mut server.session(), 1);
    let kill = |server: &mut ServerProcess| server.process.kill();
    let sessions = all_fail_in_time(&mut server, kill, ErrorKind::Unavailable);
    for mut session in sessions {
        assert!(session.is_detached());
        let error = session.put(table, b"k", b"v").unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::No));
    }
    assert_eq!(kelix::Client::connect(run.path()).unwrap_err().kind(), ErrorKind::Unavailable);
}

/// A server that stands still costs each kind of request its time-out and no more, and the sessions that gave
/// up are as good as new when it goes on.
#[test]
fn requests_to_a_stopped_server_time_out_and_say_what_is_unknown() {
    let _watchdog = watchdog("requests to a stopped server");
    let run = RunDir::new();
    let mut server = serve(&run, false);
    let table = fill(&mut server.session(), 1);
    let client = server.client();
    let sessions = all_fail_in_time(&mut server, |server| server.process.stop_still(), ErrorKind::TimedOut);
    let began = Instant::now();
    assert_eq!(client.session().map(drop).unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(began.elapsed() < ANSWERED_WITHIN, "to open a session took {:?}", began.elapsed());
    server.process.go_on();
    for mut session in sessions {
        assert!(!session.is_detached());
        // The machine may need longer than the usual time-out to bring the server back.
        until("the server answers again", || session.put(table, b"k", b"v").is_ok());
        session.set_path(Path::Index);
        check_all(&mut session, table, 1);
    }
}

/// Connecting itself had no time-out: at a server that stood still for so long that the queue of its socket
/// was full, whoever wanted a session waited for ever.
#[test]
fn a_stopped_server_with_a_full_queue_costs_newcomers_a_time_out() {
    let _watchdog = watchdog("a full queue");
    let run = RunDir::new();
    let server = serve(&run, false);
    let client = server.client();
    server.process.stop_still();
    let address = SocketAddrUnix::new(RunDirectory(run.path().to_path_buf()).socket(server.term)).unwrap();
    // Whoever gave up stays in the queue. There is room for 4,096 on most machines.
    let knock = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        connect(&socket, &address).is_ok()
    };
    while knock() {}
    for _ in 0..2 {
        let began = Instant::now();
        let error = client.session().map(drop).unwrap_err();
        assert!(began.elapsed() < ANSWERED_WITHIN, "to be refused took {:?}", began.elapsed());
        assert_eq!((error.kind(), error.effect()), (ErrorKind::TimedOut, Effect::No), "{error}");
    }
    server.process.go_on();
    until("newcomers are served again", || {
        client.session().is_ok_and(|mut session| session.create_table("t").is_ok())
    });
}

/// One-sided gets go on from the last state when the server stands still, and when it is dead: without a
/// message, by index and by cached pointer, large values too. That the server is dead is said by
/// `is_detached`.
#[test]
fn one_sided_gets_go_on_without_a_server() {
    let _watchdog = watchdog("gets without a server");
    let run = RunDir::new();
    let mut server = serve(&run, false);
    fill(&mut server.session(), 1);
    let mut readers = readers(&server, 1);
    let look = |readers: &mut [(Session, Table); 2]| {
        for (session, table) in readers {
            let messages = session.cost().messages;
            check_all(session, *table, 1);
            assert_eq!(session.cost().messages, messages, "a one-sided get sends nothing");
        }
    };
    server.process.stop_still();
    look(&mut readers);
    assert!(
        readers.iter().all(|(session, _)| !session.is_detached()),
        "a server that stands still may go on"
    );
    server.process.kill();
    look(&mut readers);
    for (session, table) in &mut readers {
        until("the session says that the server has gone", || {
            check_all(session, *table, 1);
            session.is_detached()
        });
    }
    look(&mut readers);
    for (session, table) in &mut readers {
        // Nobody is there to say that a key is absent.
        let error = session.get(*table, b"absent").unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::No));
    }
}

type Way = fn(&mut Session, Table, &[&[u8]]) -> Result<Vec<Vec<u8>>, Error>;

/// The ways to read keys of an ordered table.
const WAYS: [(&str, Way); 6] = [
    ("get", |session, table, keys| {
        keys.iter()
            .map(|key| session.get(table, key).map(|item| item.expect("a key").value().into()))
            .collect()
    }),
    ("get_into", |session, table, keys| {
        let mut buffer = [0; 8];
        let mut get = |key: &&[u8]| {
            let (bytes, _) = session.get_into(table, key, &mut buffer)?.expect("a key");
            Ok(buffer[..bytes].to_vec())
        };
        keys.iter().map(&mut get).collect()
    }),
    ("multi_get", |session, table, keys| {
        let items = session.multi_get(table, keys)?;
        Ok(items.into_iter().map(|item| item.expect("a key").value().into()).collect())
    }),
    ("multi_get_into", |session, table, keys| {
        let mut values = Values::new();
        session.multi_get_into(table, keys, &mut values)?;
        Ok((0..keys.len()).map(|index| values.get(index).expect("a key").into()).collect())
    }),
    ("submit_get", |session, table, keys| {
        let tickets: Vec<_> =
            keys.iter().map(|key| session.submit_get(table, key)).collect::<Result<_, _>>()?;
        let mut completions = Vec::new();
        while session.outstanding() > 0 {
            session.poll(&mut completions)?;
        }
        let mut values = HashMap::new();
        for completion in completions {
            let Outcome::Item(item) = completion.outcome? else { panic!("the outcome of a get") };
            values.insert(completion.ticket, item.expect("a key").value().to_vec());
        }
        Ok(tickets.iter().map(|ticket| values[ticket].clone()).collect())
    }),
    ("scan_into", |session, table, keys| {
        let mut rows = Rows::new();
        session.scan_into(table, &Scan::all().range(keys[0]..), &mut rows)?;
        Ok((0..rows.len()).map(|row| rows.value(row).to_vec()).collect())
    }),
];

/// Ordered tables too, where the models do not lead to all keys: of so many between two others some are found
/// by the shard only, until it makes all models anew.
#[test]
fn keys_that_models_do_not_lead_to_are_read_without_a_server() {
    const KNOWN: u64 = 60_000;
    const BETWEEN: u64 = 3000;
    const GAP: u64 = 10_000;
    let _watchdog = watchdog("keys without models and server");
    for kind in [TableKind::Numbers, TableKind::Strings, TableKind::Inline] {
        let run = RunDir::new();
        let mut server = serve(&run, false);
        let mut writer = server.session();
        let table = writer.create_table_of(kind, "t").unwrap();
        let key_of = |number: u64| match kind {
            TableKind::Strings => format!("key {number:012}").into_bytes(),
            _ => number.to_be_bytes().to_vec(),
        };
        let mut put = |numbers: Vec<u64>| {
            let items: Vec<_> =
                numbers.iter().map(|number| (key_of(*number), number.to_le_bytes())).collect();
            let items: Vec<(&[u8], &[u8])> =
                items.iter().map(|(key, value)| (&key[..], &value[..])).collect();
            for put in writer.multi_put(table, &items).unwrap() {
                put.unwrap();
            }
        };
        put((0..KNOWN).map(|key| key * GAP).collect());
        let mut readers = WAYS.map(|(name, read)| (name, read, server.session()));
        let between: Vec<u64> = (1..=BETWEEN).map(|key| KNOWN / 2 * GAP + key).collect();
        put(between.clone());
        for (_, _, session) in &mut readers {
            // Only segments that a session knows are within its reach.
            for number in &between {
                session.get(table, &key_of(*number)).unwrap().expect("a key");
            }
        }
        server.process.kill();
        let keys: Vec<Vec<u8>> = between.iter().map(|number| key_of(*number)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let values: Vec<_> = between.iter().map(|number| number.to_le_bytes()).collect();
        for (name, read, session) in &mut readers {
            let found =
                read(session, table, &keys).unwrap_or_else(|error| panic!("{name} of {kind:?}: {error}"));
            assert_eq!(found[..keys.len()], values, "{name} of {kind:?}");
        }
    }
}

/// Reads by one path until its server is superseded: the get in the middle of which that is begins again at
/// the next server, which has no such table. No get that began after that may bring a value.
fn read_until_superseded((mut session, table): (Session, Table), superseded: &AtomicBool) -> Session {
    for key in (0..KEYS).chain([LARGE]).cycle() {
        let too_late = superseded.load(Ordering::SeqCst);
        match session.get(table, &key.to_le_bytes()) {
            Ok(item) => {
                assert!(!too_late, "key {key} was read from a server that is superseded");
                let item = item.unwrap_or_else(|| panic!("key {key} is reported absent"));
                assert_eq!(value::check(key, item.value()), Ok(1));
            }
            Err(error) => {
                assert_eq!((error.kind(), error.effect()), (ErrorKind::NoSuchTable, Effect::No));
                break;
            }
        }
    }
    session
}

/// From the moment on in which a successor serves, nothing of the first server is believed: no value in its
/// memory, no answer, no message; it ends by itself, and none of what it was still asked shows in the
/// successor's state.
fn take_over() {
    let run = RunDir::new();
    let mut first = serve(&run, false);
    let mut old = first.session();
    let old_table = fill(&mut old, 1);
    let superseded = Arc::new(AtomicBool::new(false));
    let reading = readers(&first, 1).map(|reader| {
        let superseded = superseded.clone();
        std::thread::spawn(move || read_until_superseded(reader, &superseded))
    });
    let mut raw = RawSession::open(run.path());
    let mut completions = Vec::new();
    first.process.stop_still();
    // Under way when the successor comes.
    for key in 0..KEYS {
        old.submit_put(old_table, &key.to_le_bytes(), &value::make(key, 2, 100)).unwrap();
    }
    assert_eq!(old.poll(&mut completions).unwrap(), 0);
    assert!(raw.post(0, RequestHead::new(Op::Ping, 1, TableId(1)), &[], &[]));
    let second = serve(&run, true);
    superseded.store(true, Ordering::SeqCst);
    let mut sessions = reading.map(|thread| thread.join().expect("a reader that reads nothing stale"));
    while old.outstanding() > 0 {
        old.poll(&mut completions).unwrap();
    }
    // What there was no room for, since the first server has not followed its ring back to the start, was not sent.
    let mut effects: Vec<Effect> = Vec::new();
    for completion in completions.drain(..) {
        let error = completion.outcome.map(|_: Outcome| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Superseded);
        effects.push(error.effect());
    }
    assert!(effects.contains(&Effect::Unknown), "nothing was sent");
    assert!(effects.iter().all(|effect| [Effect::Unknown, Effect::No].contains(effect)), "{effects:?}");
    let bystander = Bystander::start(&second);
    let mut new = second.session();
    let table = new.create_table("t").unwrap();
    assert!(new.get(table, &0u64.to_le_bytes()).unwrap().is_none(), "the successor begins empty");
    fill(&mut new, 3);
    first.process.go_on();
    assert_eq!(first.process.expect("ended "), "superseded");
    assert!(first.process.end().success());
    assert_eq!(raw.reply(0, Duration::ZERO), None, "the first server answered after it was superseded");
    assert!(!RunDirectory(run.path().to_path_buf()).socket(first.term).exists());
    assert_eq!(statistics(&second.client())["term"], second.term);
    for (which, session) in sessions.iter_mut().chain([&mut old]).enumerate() {
        // Whichever operation met the end of the first server has failed. The next one is done by the second,
        // where the handle stands for the table of the same name.
        if let Err(error) = session.get(old_table, &0u64.to_le_bytes()) {
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Superseded, Effect::No), "{which}");
            assert!(error.retry(), "{error}");
        }
        for path in [Path::Index, Path::Pointer, Path::Message] {
            session.set_path(path);
            check_all(session, old_table, 3);
        }
        session.put(old_table, b"k", b"v").unwrap();
        let table = session.table("t").unwrap();
        assert_ne!(table, old_table, "handles tell one life from another");
        check_all(session, table, 3);
        session.reconnect().unwrap();
        check_all(session, old_table, 3);
    }
    bystander.end();
}

#[test]
fn a_successor_of_a_stopped_server_is_all_that_is_believed() {
    let _watchdog = watchdog("take-over of a stopped server");
    (0..3).for_each(|_| take_over());
}

/// Who connects to a server that stands still, and is superseded before it greets, is not told of a lease,
/// which it has none of.
#[test]
fn who_connects_while_a_server_is_superseded_goes_over() {
    let _watchdog = watchdog("connecting to a server that is superseded");
    for _ in 0..3 {
        let run = RunDir::new();
        let first = serve(&run, false);
        fill(&mut first.session(), 1);
        first.process.stop_still();
        let directory = run.path().to_path_buf();
        let connecting = std::thread::spawn(move || Client::connect(&directory)?.session_with(patient()));
        std::thread::sleep(Duration::from_millis(50));
        let _second = serve(&run, true);
        let mut session = connecting.join().expect("no panic").unwrap();
        match session.create_table("u") {
            Ok(_) => {}
            Err(error) => assert_eq!((error.kind(), error.effect()), (ErrorKind::Superseded, Effect::No)),
        }
        session.create_table("u").unwrap();
    }
}
