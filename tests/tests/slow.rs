//! Sessions over a way that is slow, and one that breaks too: whatever arrives steadily is got, and what does
//! not arrive is not waited for.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use kelix::{Client, ErrorKind, FabricChoice, Outcome, Path, Scan, Session, SessionOptions, TableKind};
use kelix_tests::process::{ServerProcess, ServerProgram};
use kelix_tests::slow::SlowWay;
use kelix_tests::{ANSWERED_WITHIN, Random, RunDir, seeds, session_over, until, value, watchdog};

/// Of a poor line. What is carried here takes several times as long as a request may be silent.
const BYTES_A_SECOND: u64 = 1 << 20;

fn serve(run: &RunDir) -> ServerProcess {
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    ServerProgram { program, directory: run.path(), shards: 2, memory_bytes: 256 << 20, take_over: false }
        .serve()
}

fn session(way: &SlowWay, options: SessionOptions) -> Session {
    session_over(FabricChoice::Tcp, &Client::connect(&way.address).unwrap(), options)
}

/// All of a get had to be over within the time that a request may take: a value of a megabyte was put over
/// such a way, and never got.
#[test]
fn whatever_arrives_steadily_is_got() {
    let _watchdog = watchdog("a slow way");
    let run = RunDir::new();
    let server = serve(&run);
    let way = SlowWay::to(server.tcp_address(), BYTES_A_SECOND, None);
    let mut near = server.session();
    let table = near.create_table("t").unwrap();
    let ordered = near.create_table_of(TableKind::Numbers, "o").unwrap();
    near.put(table, b"large", &value::make(1, 1, 2 << 20)).unwrap();
    for key in 0..20u64 {
        near.put(table, &key.to_le_bytes(), &value::make(key, 1, 100_000)).unwrap();
        near.put(ordered, &key.to_be_bytes(), &value::make(key, 1, 100_000)).unwrap();
    }
    for path in [Path::Auto, Path::Message] {
        let mut far = session(&way, SessionOptions::default().path(path).private_caches(true));
        let (table, ordered) = (far.table("t").unwrap(), far.table("o").unwrap());
        let began = Instant::now();
        let item = far.get(table, b"large").unwrap().expect("put");
        assert_eq!(value::check(1, item.value()), Ok(1));
        assert!(began.elapsed() > SessionOptions::default().timeout, "that was no slow way");
        let keys: Vec<[u8; 8]> = (0..20u64).map(u64::to_le_bytes).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        for (key, item) in (0..).zip(far.multi_get(table, &keys).unwrap()) {
            assert_eq!(value::check(key, item.expect("put").value()), Ok(1), "{path:?}");
        }
        let mut scanner = far.scan(ordered, &Scan::all()).unwrap();
        for key in 0..20u64 {
            let item = scanner.next_item().unwrap().expect("put");
            assert_eq!(value::check(key, item.value()), Ok(1), "{path:?}");
        }
        for key in &keys {
            far.submit_get(table, key).unwrap();
        }
        let mut completions = Vec::new();
        until("all that was submitted has ended", || {
            far.poll(&mut completions).unwrap();
            far.outstanding() == 0
        });
        for completion in completions {
            assert!(matches!(completion.outcome.unwrap(), Outcome::Item(Some(_))), "{path:?}");
        }
    }
}

/// What the client's system had taken counted as having moved, and then took longer to leave than a request
/// may be silent.
#[test]
fn whatever_leaves_steadily_is_put() {
    let _watchdog = watchdog("a slow way there");
    let run = RunDir::new();
    let server = serve(&run);
    let way = SlowWay::to(server.tcp_address(), BYTES_A_SECOND / 3, None);
    let mut far = session(&way, SessionOptions::default());
    let table = far.create_table("t").unwrap();
    far.put(table, b"large", &value::make(1, 1, 2 << 20)).unwrap();
    let items: Vec<([u8; 8], Vec<u8>)> =
        (0..64u64).map(|key| (key.to_le_bytes(), value::make(key, 2, 30_000))).collect();
    let items: Vec<(&[u8], &[u8])> = items.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    for put in far.multi_put(table, &items).unwrap() {
        put.unwrap();
    }
    // Each of these took less than a request may be silent, and all of them more: those behind were given up.
    for key in 64..70u64 {
        far.submit_put(table, &key.to_le_bytes(), &value::make(key, 3, 200_000)).unwrap();
    }
    let mut completions = Vec::new();
    until("all that was submitted has ended", || {
        far.poll(&mut completions).unwrap();
        far.outstanding() == 0
    });
    assert_eq!(completions.len(), 6);
    for completion in completions {
        assert!(matches!(completion.outcome.unwrap(), Outcome::Written(_)));
    }
    let mut near = server.session();
    let table = near.table("t").unwrap();
    assert_eq!(value::check(1, near.get(table, b"large").unwrap().expect("put").value()), Ok(1));
    for (key, _) in &items {
        assert!(near.get(table, key).unwrap().is_some());
    }
}

/// Everything that clients do, over a way that is slow and breaks, is done once.
#[test]
fn a_slow_way_that_breaks_is_gone_on_over() {
    let _watchdog = watchdog("a slow way that breaks");
    for seed in seeds(1) {
        println!("KELIX_TEST_SEED={seed}");
        let run = RunDir::new();
        let server = serve(&run);
        let way = SlowWay::to(server.tcp_address(), 4 * BYTES_A_SECOND, Some((200_000, Random(seed))));
        let options = SessionOptions::default().retry_for(Duration::from_secs(60));
        let client = Client::connect_within(
            &way.address,
            kelix::Credentials::default(),
            kelix::ConnectOptions::default().retry_for(options.retry_for.unwrap_or_default()),
        );
        let mut far = session_over(FabricChoice::Tcp, &client.unwrap(), options);
        let table = far.create_table("t").unwrap();
        let ordered = far.create_table_of(TableKind::Numbers, "o").unwrap();
        let mut round = 0;
        while way.cuts() < 20 {
            round += 1;
            for key in 0..10u64 {
                let version = far.get(table, &key.to_le_bytes()).unwrap().map(|item| item.version());
                let value = value::make(key, round, 10_000);
                let set = far.compare_and_set(table, &key.to_le_bytes(), version, &value).unwrap();
                assert!(matches!(set, kelix::CompareAndSet::Done(Some(_))), "seed {seed}: {set:?}");
                far.put(ordered, &key.to_be_bytes(), &value).unwrap();
            }
            let mut scanner = far.scan(ordered, &Scan::all()).unwrap();
            for key in 0..10u64 {
                let item = scanner.next_item().unwrap().expect("put");
                assert_eq!(value::check(key, item.value()), Ok(round), "seed {seed}");
            }
        }
    }
}

/// The budget began anew with each of the rounds that a get has.
#[test]
fn connecting_again_has_one_budget() {
    let _watchdog = watchdog("one budget");
    let run = RunDir::new();
    let server = serve(&run);
    let mut near = server.session();
    let table = near.create_table("t").unwrap();
    near.put(table, b"large", &value::make(1, 1, 8 << 20)).unwrap();
    // No connection lives for as long as the value takes.
    let way = SlowWay::to(server.tcp_address(), 8 * BYTES_A_SECOND, Some((200_000, Random(1))));
    let retry_for = Duration::from_secs(2);
    let patience = kelix::ConnectOptions::default().retry_for(retry_for);
    let client = Client::connect_within(&way.address, kelix::Credentials::default(), patience).unwrap();
    let mut far = session_over(FabricChoice::Tcp, &client, SessionOptions::default().retry_for(retry_for));
    let table = far.table("t").unwrap();
    let began = Instant::now();
    let error = far.get(table, b"large").unwrap_err();
    assert!([ErrorKind::Unavailable, ErrorKind::TimedOut].contains(&error.kind()), "{error}");
    // It was 16 times as long and more.
    assert!(began.elapsed() < retry_for * 5, "{:?}", began.elapsed());
}

/// A server that sends a byte now and then makes no progress.
#[test]
fn bytes_that_trickle_are_no_progress() {
    let _watchdog = watchdog("a server that trickles");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = kelix::Address::Tcp(listener.local_addr().unwrap().to_string());
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let (mut from, mut to) = (client.try_clone().unwrap(), client);
                let _ = from.read(&mut [0; 64]);
                // The head of a frame of a set-up conversation that says to be long, and then its bytes one
                // by one.
                let head = 6u64 | 2 << 16 | 100_000 << 40;
                let _ = to.write_all(&head.to_le_bytes());
                while to.write_all(&[0]).is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
        }
    });
    let began = Instant::now();
    assert!(Client::connect(&address).is_err());
    assert!(began.elapsed() < ANSWERED_WITHIN, "{:?}", began.elapsed());
}

/// Commands of services that are started together begin before there is a server.
#[test]
fn a_server_that_is_not_there_yet_is_waited_for() {
    let _watchdog = watchdog("a server to come");
    let run = RunDir::new();
    let retry_for = Duration::from_secs(30);
    let patience = kelix::ConnectOptions::default().retry_for(retry_for);
    let directory = run.path().to_path_buf();
    let waiting = std::thread::spawn(move || {
        Client::connect_within(directory, kelix::Credentials::default(), patience)
    });
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(300) {
        assert!(!waiting.is_finished(), "there was no server yet");
        std::thread::sleep(Duration::from_millis(5));
    }
    let server = serve(&run);
    let client = waiting.join().unwrap().unwrap();
    let mut session = client.session().unwrap();
    let table = session.create_table("t").unwrap();
    session.put(table, b"k", b"v").unwrap();
    drop(server);
}
