//! A server that another one of its directory supersedes while it runs: what it has goes on there, and no
//! client notices that asks again. Successors that fail in the middle leave it as it was.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kelix::{Address, Credentials, Effect, ErrorKind, Path, Session, TableKind};
use kelix_fabric::shm::{AUTHORITY_BYTES, AUTHORITY_YIELDS, RunDirectory, map_file};
use kelix_image::{Header, Span};
use kelix_tests::counting::{Counting, Writers};
use kelix_tests::history::{ONE_SIDED, Recorder};
use kelix_tests::ledger::Tables;
use kelix_tests::process::{Process, ServerProcess, ServerProgram, patient};
use kelix_tests::raw::{connect, hello, is_closed, receive, send};
use kelix_tests::{Random, RunDir, client_at, client_with, seeds, until, watchdog};
use kelix_wire::SPOKEN;
use kelix_wire::control::{Frame, Purpose};

const PROGRAM: &str = env!("CARGO_BIN_EXE_kelix-test-server");
const MEMORY: u64 = 256 << 20;

fn program(run: &RunDir, memory_bytes: u64) -> ServerProgram<'_> {
    ServerProgram { program: PROGRAM, directory: run.path(), shards: 2, memory_bytes, take_over: false }
}

fn launch(run: &RunDir, (shards, memory_bytes, take_over): (usize, u64, bool), options: &[&str]) -> Process {
    let program = ServerProgram { shards, take_over, ..program(run, memory_bytes) };
    let options = options.iter().map(|option| option.to_string());
    Process::start(PROGRAM, &program.arguments().into_iter().chain(options).collect::<Vec<_>>())
}

fn serve(run: &RunDir, take_over: bool, options: &[&str]) -> ServerProcess {
    program(run, MEMORY).serving(launch(run, (2, MEMORY, take_over), options))
}

/// Has another server go on with what there is.
fn hand_over(run: &RunDir, server: &mut ServerProcess, options: &[&str]) {
    let mut next = launch(run, (2, MEMORY, true), options);
    let said = next.line().expect("a word");
    let term = said.strip_prefix("serving ").unwrap_or_else(|| panic!("{said}"));
    let next = program(run, MEMORY).served(next, term.parse().expect("a term"));
    assert_eq!(next.term, server.term + 1);
    assert_eq!(server.process.expect("ended "), "superseded");
    assert!(server.process.end().success());
    *server = next;
}

/// A session that asks again for as long as a busy machine may need.
fn asking(address: impl Into<Address>) -> Session {
    let options = patient().retry_for(Duration::from_secs(30)).private_caches(true);
    client_at(address).session_with(options).expect("a server that serves")
}

/// Writes, each acknowledged one of which is there once, and reads go on through one server after another.
#[test]
fn clients_that_ask_again_notice_nothing() {
    let _watchdog = watchdog("hand over beside clients");
    let seed = seeds(1)[0];
    println!("KELIX_TEST_SEED={seed}");
    let mut random = Random(seed);
    let run = RunDir::new();
    let mut server = serve(&run, false, &[]);
    let tcp = server.tcp_address();
    let listen = format!("listen={tcp}");
    // Of those who write one does so over TCP, and of those who read one; who counts is on this host.
    let turn = AtomicUsize::new(0);
    let alternate = || match turn.fetch_add(1, Ordering::SeqCst) % 2 {
        0 => asking(run.path()),
        _ => asking(Address::Tcp(tcp.clone())),
    };
    let (writers, counting) = (Writers::start(seed, alternate), Counting::start(alternate));
    for _ in 0..4 {
        writers.until_more(100 + random.below(1000));
        hand_over(&run, &mut server, &[&listen]);
    }
    writers.until_more(100);
    counting.end();
    let mut session = server.session();
    let tables = Tables::open(&mut session).expect("tables");
    writers.end().iter_mut().for_each(|ledger| ledger.verify(&mut session, &tables, "after all"));
}

/// What clients were told, also those that do not ask again, has an order that explains it.
#[test]
fn histories_are_linearizable() {
    let _watchdog = watchdog("histories over servers that hand over");
    let seed = seeds(1)[0];
    let mut random = Random(seed);
    let run = RunDir::new();
    let mut server = serve(&run, false, &[]);
    let mut recorder = Recorder::new(seed);
    for _ in 0..2 {
        let (again, once, reader) = (asking(run.path()), server.session(), asking(run.path()));
        recorder.start(move || again);
        recorder.start(move || once);
        recorder.start_reader(&ONE_SIDED, move || reader);
    }
    for _ in 0..4 {
        recorder.change_keys();
        recorder.until_more(200 + random.below(200));
        hand_over(&run, &mut server, &[]);
        recorder.until_more(200);
    }
    recorder.end(asking(run.path()), "handed over");
}

/// All kinds of tables, large values, items that end, several namespaces and snapshots go on; handles and
/// sessions that were opened before stay good, and what is put under way is done once.
#[test]
fn everything_goes_on_there() {
    let _watchdog = watchdog("everything goes on");
    let (run, kept) = (RunDir::new(), RunDir::new());
    let snapshots = format!("snapshots={}", kept.path().display());
    let options = [&snapshots[..], "namespace=people"];
    let mut server = serve(&run, false, &options);
    let mut session = asking(run.path());
    let kinds = [TableKind::Hash, TableKind::Strings, TableKind::Numbers, TableKind::Inline];
    let tables: Vec<_> = (0..)
        .zip(kinds)
        .map(|(number, kind)| session.create_table_of(kind, &format!("t{number}")).expect("a table"))
        .collect();
    for table in &tables {
        for key in 0..2000u64 {
            session.put(*table, &key.to_be_bytes(), &(key * 3).to_le_bytes()).expect("room");
        }
    }
    let large = vec![7; 3 << 20];
    session.put(tables[0], b"large", &large).expect("room");
    let people = Credentials::default().namespace("people");
    let people = client_with(run.path(), people).expect("a server that serves");
    let mut other = people.session_with(patient().retry_for(Duration::from_secs(30))).expect("a session");
    let friends = other.create_table("friends").expect("a table");
    other.put(friends, b"k", b"v").expect("room");
    for round in 0..3u64 {
        hand_over(&run, &mut server, &options);
        for table in &tables {
            for key in (0..2000u64).step_by(37) {
                let item = session.get(*table, &key.to_be_bytes()).expect("an answer").expect("it is there");
                assert_eq!(item.value(), (key * 3).to_le_bytes());
            }
            session.put(*table, &(9000 + round).to_be_bytes(), &round.to_le_bytes()).expect("room");
            assert!(session.get(*table, &9999u64.to_be_bytes()).expect("an answer").is_none());
        }
        let found = session.get(tables[0], b"large").expect("an answer");
        assert_eq!(found.unwrap_or_else(|| panic!("round {round}")).value(), large);
        assert_eq!(other.get(friends, b"k").expect("an answer").expect("it is there").value(), b"v");
    }
    // The last snapshot is that of the last server, and has all of it.
    assert_eq!(server.stop(), "stopped");
    let server = serve(&run, false, &options);
    let mut session = server.session();
    let table = session.table("t0").expect("the table");
    assert_eq!(session.get(table, &9002u64.to_be_bytes()).unwrap().unwrap().value(), 2u64.to_le_bytes());
}

/// A reader that had the memory of the server before believes nothing of it, by whichever way it reads, once
/// the next one has written something.
#[test]
fn memory_of_before_is_believed_no_more() {
    let _watchdog = watchdog("memory of before");
    let run = RunDir::new();
    let mut server = serve(&run, false, &[]);
    let mut old = server.session();
    let table = old.create_table("t").expect("a table");
    old.put(table, b"k", b"before").expect("room");
    assert_eq!(old.get(table, b"k").expect("an answer").expect("it is there").value(), b"before");
    hand_over(&run, &mut server, &[]);
    let mut new = server.session();
    let same = new.table("t").expect("the table");
    new.put(same, b"k", b"behind").expect("room");
    for path in [Path::Index, Path::Pointer, Path::Message] {
        old.set_path(path);
        assert_eq!(old.get(table, b"k").expect("an answer").expect("it is there").value(), b"behind");
    }
}

/// A server that cannot go on with what there is leaves the other one as it was.
#[test]
fn a_successor_that_cannot_go_on_is_refused() {
    let _watchdog = watchdog("successors that are refused");
    let run = RunDir::new();
    let mut server = serve(&run, false, &["namespace=people"]);
    let mut session = asking(run.path());
    let table = session.create_table("t").expect("a table");
    let value = vec![1; 1 << 20];
    for key in 0..160u64 {
        session.put(table, &key.to_le_bytes(), &value).expect("room");
    }
    let cases: &[(&str, (usize, u64), &[&str])] = &[
        ("3 shards", (3, MEMORY), &["namespace=people"]),
        ("\"people\"", (2, MEMORY), &[]),
        ("this one may have", (2, 64 << 20), &["namespace=people"]),
    ];
    for (says, (shards, memory), options) in cases {
        let mut refused = launch(&run, (*shards, *memory, true), options);
        let why = refused.expect("refused ");
        assert!(why.contains(says) || *shards == 3 && why.contains("2 shards"), "{says}: {why}");
        session.put(table, b"k", says.as_bytes()).expect("room");
        assert_eq!(server.client().statistics().expect("an answer").server.term, server.term);
    }
    hand_over(&run, &mut server, &["namespace=people"]);
    assert_eq!(
        session.get(table, b"k").expect("an answer").expect("it is there").value(),
        b"this one may have"
    );
}

/// A successor made by hand, which has greeted.
fn greet(run: &RunDir) -> UnixStream {
    let stream = connect(run.path());
    send(&stream, &hello(SPOKEN, Purpose::Succeed)).expect("sent");
    assert!(matches!(receive(&stream).expect("a greeting").0, Frame::Welcome { .. }));
    let (Frame::Namespaces { bytes, names }, header) = receive(&stream).expect("what is served") else {
        panic!("it does not say what it serves");
    };
    assert_eq!((&names[..], bytes, header.len()), ("default", Header::BYTES, 1));
    stream
}

/// One that has the server stand still.
fn stand_still(run: &RunDir) -> UnixStream {
    let stream = greet(run);
    send(&stream, &Frame::StandStill).expect("sent");
    let (Frame::StandsStill { sequences }, _) = receive(&stream).expect("an answer") else {
        panic!("it does not stand still");
    };
    assert_eq!(sequences.len(), 2);
    stream
}

/// The word by which a server yields, and takes back what it yielded.
fn yields(run: &RunDir) -> Span {
    let authority = RunDirectory(run.path().to_path_buf()).authority();
    let file = std::fs::File::options().read(true).write(true).open(authority).expect("an authority page");
    map_file(&file, AUTHORITY_BYTES, true).expect("mapped")
}

/// A successor that ends, whatever it has said and done before it takes over, or that does not take over in
/// time: the server goes on, and what was written meanwhile is done once.
#[test]
fn a_server_goes_on_whose_successor_fails() {
    let _watchdog = watchdog("successors that fail");
    let run = RunDir::new();
    let mut server = serve(&run, false, &[]);
    let page = yields(&run);
    let word = || page.words().load_acquire(AUTHORITY_YIELDS);
    let mut session = asking(run.path());
    let table = session.create_table("t").expect("a table");
    session.put(table, b"k", b"0").expect("room");
    for stage in 0..6u8 {
        let mut completions = Vec::new();
        let successor = match stage {
            0 => connect(run.path()),
            1 => greet(&run),
            2 => {
                let stream = greet(&run);
                let attach = Frame::Attach { copy_rate: 0, position: None, name: "successor".into() };
                send(&stream, &attach).expect("sent");
                assert!(matches!(receive(&stream).expect("an answer").0, Frame::Attached { .. }));
                stream
            }
            _ => stand_still(&run),
        };
        if stage >= 3 {
            assert_eq!(word(), server.term, "it yields");
            // Reads go on by themselves, and what is written waits.
            assert_eq!(
                session.get(table, b"k").expect("an answer").expect("it is there").value(),
                [stage - 1].map(|before| before + b'0')
            );
            session.submit_put(table, b"k", [stage + b'0'].as_slice()).expect("sent");
            session.poll(&mut completions).expect("an answer");
            assert!(completions.is_empty(), "nobody answers while the server stands still");
            let second = greet(&run);
            send(&second, &Frame::StandStill).expect("sent");
            let refusal = receive(&second).expect("an answer").0;
            assert!(matches!(refusal, Frame::Refused { text } if text.contains("another successor")));
        }
        match stage {
            // It dies between taking the word and raising the term.
            4 => assert!(page.words().compare_exchange(AUTHORITY_YIELDS, server.term, 0).is_ok()),
            // It stands still itself: the server takes the word back, after 5 s.
            5 => until("the server goes on", || word() == 0),
            _ => {}
        }
        let late = (stage == 5).then(|| successor.try_clone().expect("a descriptor"));
        drop(successor);
        if stage >= 3 {
            until("the server answers", || {
                session.poll(&mut completions).expect("an answer");
                !completions.is_empty()
            });
            completions.drain(..).for_each(|of| drop(of.outcome.expect("done")));
        } else {
            session.put(table, b"k", [stage + b'0'].as_slice()).expect("room");
        }
        assert_eq!(word(), 0);
        assert!(late.is_none_or(|late| is_closed(&late)));
    }
    hand_over(&run, &mut server, &[]);
    assert_eq!(session.get(table, b"k").expect("an answer").expect("it is there").value(), b"5");
}

/// A successor that is about to take over: the server stands still.
fn prepared(run: &RunDir) -> Process {
    let mut successor = launch(run, (2, MEMORY, true), &["waits"]);
    successor.expect("prepared");
    successor
}

/// Who is too late does not take over; who is killed does not either; and who is in time has what was done
/// before, and does what was asked for meanwhile, once.
#[test]
fn a_successor_that_is_about_to_take_over_does_so_in_time_or_never() {
    let _watchdog = watchdog("a successor that is about to take over");
    let run = RunDir::new();
    let mut server = serve(&run, false, &[]);
    let page = yields(&run);
    let word = || page.words().load_acquire(AUTHORITY_YIELDS);
    let mut session = asking(run.path());
    let table = session.create_table("t").expect("a table");
    let mut late = prepared(&run);
    assert_eq!(word(), server.term);
    until("the server goes on", || word() == 0);
    session.put(table, b"k", b"meanwhile").expect("room");
    late.say("");
    let why = late.expect("refused ");
    assert!(why.contains("has gone on"), "{why}");
    assert_eq!(session.get(table, b"k").expect("an answer").expect("it is there").value(), b"meanwhile");
    let mut killed = prepared(&run);
    killed.kill();
    session.put(table, b"k", b"after one was killed").expect("room");
    let mut successor = prepared(&run);
    let (mut under_way, mut completions) = (server.session(), Vec::new());
    let same = under_way.table("t").expect("the table");
    session.submit_put(table, b"k", b"under way").expect("sent");
    // A session that does not ask again does not know what has become of this.
    under_way.submit_put(same, b"lost", b"under way").expect("sent");
    session.poll(&mut completions).expect("an answer");
    under_way.poll(&mut completions).expect("an answer");
    assert!(completions.is_empty());
    successor.say("");
    let term = successor.expect("serving ").parse().expect("a term");
    assert_eq!(term, server.term + 1);
    assert_eq!(server.process.expect("ended "), "superseded");
    server = program(&run, MEMORY).served(successor, term);
    until("what was under way is done", || {
        session.poll(&mut completions).expect("an answer");
        !completions.is_empty()
    });
    completions.drain(..).for_each(|of| drop(of.outcome.expect("done")));
    assert_eq!(session.get(table, b"k").expect("an answer").expect("it is there").value(), b"under way");
    until("the other one hears of it", || {
        under_way.poll(&mut completions).expect("an answer");
        !completions.is_empty()
    });
    let error = completions.remove(0).outcome.map(drop).expect_err("nobody asks again");
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Superseded, Effect::Unknown));
    assert_eq!(server.stop(), "stopped");
}

/// A server that stands still hands over nothing, and is superseded all the same.
#[test]
fn a_server_that_stands_still_is_superseded_without_what_it_has() {
    let _watchdog = watchdog("a server that stands still");
    let run = RunDir::new();
    let mut first = serve(&run, false, &[]);
    let mut session = asking(run.path());
    let table = session.create_table("t").expect("a table");
    session.put(table, b"k", b"v").expect("room");
    first.process.stop_still();
    let second = serve(&run, true, &[]);
    first.process.go_on();
    assert_eq!(first.process.expect("ended "), "superseded");
    let error = second.session().table("t").expect_err("it begins empty");
    assert_eq!(error.kind(), ErrorKind::NoSuchTable);
}
