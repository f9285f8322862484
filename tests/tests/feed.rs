//! Mirrors that follow a server: what they have, when they have it, and what becomes of those that may not
//! follow, or cannot keep up.

use std::collections::HashMap;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kelix::{Client, Session};
use kelix_fabric::tcp::{ClientTls, Greeting, Identity, ServerTls};
use kelix_server::{Durability, Rights, Server, ServerConfig, SnapshotConfig, Token, WalConfig, Who};
use kelix_shard::harness::Harness;
use kelix_tests::mirror::{Attach, Mirror, get};
use kelix_tests::raw::{self, RawSession};
use kelix_tests::{Random, RunDir, until, watchdog};
use kelix_types::TableId;
use kelix_wire::control::{Frame, Purpose};
use kelix_wire::feed::{FEED_HINTS_MAX, NO_LOCATION};
use kelix_wire::{Op, RequestHead, SPOKEN, Status};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use serde_json::Value;

const SHARDS: usize = 2;

fn config(run: &RunDir) -> ServerConfig {
    ServerConfig {
        directory: run.path().into(),
        shards: SHARDS,
        memory_bytes: 512 << 20,
        pin: false,
        listen: Some("127.0.0.1:0".parse().unwrap()),
        ..ServerConfig::default()
    }
}

fn attach(server: &Server, how: &Attach<'_>) -> Result<Mirror, String> {
    Mirror::attach(server.tcp_address().expect("it listens"), how)
}

fn refused(server: &Server, how: &Attach<'_>) -> String {
    attach(server, how).map(drop).expect_err("it may not")
}

/// What statistics say of mirrors.
fn told(server: &Server) -> Vec<Value> {
    server.statistics().json()[0]["mirrors"].as_array().expect("a list").clone()
}

fn session(run: &RunDir) -> Session {
    Client::connect(run.path()).unwrap().session().unwrap()
}

/// Writes of one client, each behind the answer of the one before, to one shard and the other: the shard and
/// the record of each.
type Chain = Vec<(usize, u64)>;

/// Writes such a chain until it is stopped. The number of each write is its value.
fn write_chain(run: &RunDir, table: TableId, stop: &AtomicBool) -> Chain {
    let mut session = RawSession::open_told(run.path());
    let (mut chain, mut random) = (Chain::new(), Random(7));
    while !stop.load(Ordering::Relaxed) {
        let shard = random.below(SHARDS as u64) as usize;
        let number = chain.len() as u64;
        let head = RequestHead::new(Op::Put, number as u32, table);
        assert!(session.post(shard, head, b"chain", &number.to_le_bytes()));
        let (head, words) = session.told(shard, Duration::from_secs(20)).expect("an answer");
        let [sequence] = words[..] else { panic!("{words:?} and no record") };
        assert_eq!(head.status, Status::Ok);
        chain.push((shard, sequence));
    }
    chain
}

/// Has writers stop, also where a test fails.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Puts and deletes keys until it is stopped, some ten thousand a second: what there is in the end.
fn write_many(run: &RunDir, seed: u64, stop: &AtomicBool) -> HashMap<u64, Option<Vec<u8>>> {
    let mut session = session(run);
    let table = session.create_table("many").unwrap();
    let (mut is, mut random) = (HashMap::new(), Random(seed));
    for number in 0u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if number % 16 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let key = seed << 32 | random.below(20_000);
        if random.below(4) == 0 {
            session.delete(table, &key.to_le_bytes()).unwrap();
            is.insert(key, None);
        } else {
            let value = vec![random.below(256) as u8; random.below(2000) as usize];
            session.put(table, &key.to_le_bytes(), &value).unwrap();
            is.insert(key, Some(value));
        }
    }
    is
}

/// Each cut that has a write of a chain has all that came before it. Returns how many have a part of it.
fn check_closed(mirror: &Mirror, chain: &Chain) -> usize {
    let mut parts = 0;
    for cut in &mirror.cuts {
        let has = |(shard, sequence): &(usize, u64)| cut.sequences[*shard] >= *sequence;
        let first = chain.iter().position(|write| !has(write)).unwrap_or(chain.len());
        if let Some(later) = chain[first..].iter().position(has) {
            panic!("{cut:?} has write {} of {:?} and not write {first}", first + later, &chain[first..]);
        }
        parts += usize::from(first > 0 && first < chain.len());
    }
    parts
}

/// What a mirror has is what clients wrote.
fn check_same(shards: &mut [Harness], table: TableId, is: &HashMap<u64, Option<Vec<u8>>>) {
    for (key, value) in is {
        // Only the shard that has the key has it.
        let found: Vec<_> = shards.iter_mut().filter_map(|it| get(it, table, &key.to_le_bytes())).collect();
        assert_eq!(found.first(), value.as_ref(), "key {key:#x}");
        assert!(found.len() < 2);
    }
    for shard in shards {
        shard.shard.audit().expect("nothing is used twice, and nothing lost");
    }
}

/// A mirror that attaches while clients write, to a server of some kind, has what they wrote; and at each cut
/// what could have been without the rest.
fn follow_writers(run: &RunDir, server: &Server, how: &Attach<'_>, rounds: usize) {
    let stop = Arc::new(AtomicBool::new(false));
    let table = session(run).create_table("many").unwrap().id();
    let chain_table = session(run).create_table("chain").unwrap().id();
    let mut before = session(run);
    let early = before.create_table("early").unwrap();
    for key in 0..5000u64 {
        before.put(early, &key.to_le_bytes(), &vec![key as u8; 500]).unwrap();
    }
    std::thread::scope(|scope| {
        let many: Vec<_> = (1..3)
            .map(|seed| {
                let stop = stop.clone();
                scope.spawn(move || write_many(run, seed, &stop))
            })
            .collect();
        let chain = {
            let stop = stop.clone();
            scope.spawn(move || write_chain(run, chain_table, &stop))
        };
        let writing = Stop(stop.clone());
        std::thread::sleep(Duration::from_millis(100));
        let follow = || {
            let mut mirror = attach(server, how).unwrap();
            mirror.reach("all is copied", Mirror::is_whole)?;
            assert!(mirror.copied_bytes > 2 << 20 && mirror.memory_bytes >= mirror.copied_bytes);
            let copied = mirror.cuts.len();
            mirror.reach("some more is told", |mirror| mirror.cuts.len() > copied + rounds)?;
            Ok::<_, String>(mirror)
        };
        // Whoever is too slow is let go, and so slow a machine may be that is busy.
        let mut tries = 0;
        let mut mirror = loop {
            match follow() {
                Ok(mirror) => break mirror,
                Err(why) => assert!(why.starts_with("too slow") && tries < 20, "{why}"),
            }
            tries += 1;
        };
        drop(writing);
        let is: Vec<_> = many.into_iter().map(|thread| thread.join().unwrap()).collect();
        let chain = chain.join().unwrap();
        mirror.catch_up();
        let parts = check_closed(&mirror, &chain);
        assert!(parts > rounds / 4, "{parts} of {} cuts say something", mirror.cuts.len());
        let (shard, sequence) = *chain.last().unwrap();
        assert!(mirror.applied()[shard] >= sequence, "the last answer told of a record that is there");
        let told = told(server);
        assert_eq!((told.len(), &told[0]["state"]), (1, &Value::from("following")), "{told:?}");
        let mut shards = mirror.into_shards();
        is.iter().for_each(|is| check_same(&mut shards, table, is));
        let early = early.id();
        let is = (0..5000u64).map(|key| (key, Some(vec![key as u8; 500]))).collect();
        check_same(&mut shards, early, &is);
        // The last write of the chain is the last one of its shard.
        let last = get(&mut shards[shard], chain_table, b"chain").unwrap();
        assert_eq!(last, (chain.len() as u64 - 1).to_le_bytes());
    });
    until("the server has nothing of it any more", || self::told(server).is_empty());
}

#[test]
fn a_mirror_has_what_clients_wrote_and_no_effect_without_its_cause() {
    let _watchdog = watchdog("a mirror beside writers");
    let run = RunDir::new();
    let server = Server::start(&config(&run)).unwrap();
    for _ in 0..3 {
        follow_writers(&run, &server, &Attach::default(), 300);
    }
    server.stop();
}

#[test]
fn a_mirror_follows_a_server_that_logs() {
    let _watchdog = watchdog("a mirror of a server with a log");
    for durability in [Durability::Lazy, Durability::Commit] {
        let (run, kept) = (RunDir::new(), RunDir::new());
        let directory = kept.path().to_path_buf();
        let config = ServerConfig {
            snapshots: Some(SnapshotConfig { directory, every: None, keep: 1, fresh: false }),
            wal: Some(WalConfig { durability, until: None }),
            ..config(&run)
        };
        let server = Server::start(&config).unwrap();
        follow_writers(&run, &server, &Attach::default(), 30);
        server.stop();
    }
}

/// Certificates of an authority and a host.
fn certificates(run: &RunDir) {
    let write = |name: &str, text: String| std::fs::write(run.path().join(name), text).unwrap();
    let (authority_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let certificate = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
    write("ca.pem", authority.pem());
    write("host.pem", certificate.signed_by(&key, &authority, &authority_key).unwrap().pem());
    write("host.key", key.serialize_pem());
}

#[test]
fn a_mirror_comes_over_tls_with_a_token_that_may_read() {
    let _watchdog = watchdog("a mirror over TLS");
    let (run, files) = (RunDir::new(), RunDir::new());
    certificates(&files);
    let path = |name: &str| files.path().join(name);
    let own = Identity { certificates: &path("host.pem"), key: &path("host.key") };
    let token = |name: &str| Token { name: name.into(), word: format!("the word of {name}") };
    let config = ServerConfig {
        tls: Some(ServerTls::load(own, None).unwrap()),
        tokens: vec![token("mirror"), token("other")],
        rights: Rights { readers: vec![Who::Token("mirror".into())], writers: Vec::new() },
        ..config(&run)
    };
    let server = Server::start(&config).unwrap();
    let tls = ClientTls::load(&path("ca.pem"), None).unwrap();
    let tls = Some((&tls, "127.0.0.1"));
    let how = |token| Attach { tls, token, ..Attach::default() };
    assert!(refused(&server, &how(None)).contains("may not connect without a token"));
    assert!(refused(&server, &how(Some("another word"))).contains("token is not one"));
    assert!(refused(&server, &how(Some("the word of other"))).contains("may not read namespace"));
    follow_writers(&run, &server, &how(Some("the word of mirror")), 100);
    server.stop();
}

#[test]
fn so_many_may_follow_and_no_more() {
    let _watchdog = watchdog("many mirrors");
    let run = RunDir::new();
    let server = Server::start(&ServerConfig { mirrors: 2, ..config(&run) }).unwrap();
    let name = |name| Attach { name, ..Attach::default() };
    let mut first = attach(&server, &name("web1")).unwrap();
    let second = attach(&server, &name("web2")).unwrap();
    let why = refused(&server, &name("web3"));
    assert!(why.contains("follow one of these instead: web1 (127.0.0.1), web2 (127.0.0.1)"), "{why}");
    let names = told(&server).iter().map(|mirror| mirror["name"].clone()).collect::<Vec<_>>();
    assert_eq!(names, ["web1", "web2"]);
    first.until("all is copied", Mirror::is_whole);
    drop(second);
    until("there is room", || told(&server).len() == 1);
    let mut third = attach(&server, &name("")).unwrap();
    third.until("all is copied", Mirror::is_whole);
    third.ask(5_000_000);
    first.catch_up();
    until("what it says of itself is told", || {
        let told = &told(&server)[1];
        told["lag_ms"] == 5.0 && told["reads"] == 7 && told["bytes"] == 1 << 20 && told["lag_records"] == 0
    });
    assert!(told(&server)[1]["name"].as_str().unwrap().starts_with("127.0.0.1:"), "for want of a name");
    // What breaks the protocol ends.
    third.link.push(2, 0, &[1, 2]);
    third.link.flush();
    assert!(third.until_over().contains("makes no sense here"));
    until("it is gone", || told(&server).len() == 1);
    drop(first);
    until("it is gone", || told(&server).is_empty());
    server.stop();
    let run = RunDir::new();
    let server = Server::start(&ServerConfig { mirrors: 0, ..config(&run) }).unwrap();
    assert!(refused(&server, &name("web1")).contains("no mirror may follow it"));
    server.stop();
}

/// What a mirror says was read may be anything: of a cache, of a server that lets nothing go, and more than
/// is under way at once.
#[test]
fn what_was_read_may_be_anything() {
    let _watchdog = watchdog("what was read");
    for cache in [true, false] {
        let run = RunDir::new();
        let server = Server::start(&ServerConfig { cache, ..config(&run) }).unwrap();
        let mut session = session(&run);
        let table = session.create_table("t").unwrap();
        (0..1000u64).for_each(|key| {
            session.put(table, &key.to_le_bytes(), &[7; 100]).unwrap();
        });
        let mut mirror = attach(&server, &Attach::default()).unwrap();
        let mut random = Random(29);
        for round in 0..1000 {
            // Places that are there, those of something else, and none.
            let mut word = || match random.below(3) {
                0 => random.next(),
                1 => random.below(1 << 24),
                _ => random.below(1 << 40) << 8,
            };
            let locations: Vec<u64> = (0..FEED_HINTS_MAX).map(|_| word()).collect();
            mirror.say_used(round as u8 % SHARDS as u8, &locations);
        }
        mirror.until("both shards have answered", |mirror| {
            (0..SHARDS).all(|shard| mirror.epochs.iter().any(|(of, _)| *of == shard))
        });
        assert!(mirror.epochs.len() <= 1000 && mirror.epochs.iter().all(|(_, epoch)| *epoch < 1 << 20));
        (0..1000u64).for_each(|key| assert!(session.get(table, &key.to_le_bytes()).unwrap().is_some()));
        mirror.catch_up();
        mirror.say_used(SHARDS as u8, &[NO_LOCATION]);
        assert!(mirror.until_over().contains("what was read makes no sense"), "of no shard");
        let mut mirror = attach(&server, &Attach::default()).unwrap();
        mirror.say_used(0, &[1; FEED_HINTS_MAX + 1]);
        assert!(mirror.until_over().contains("what was read makes no sense"), "too much at once");
        server.stop();
    }
}

/// Who comes over the socket of a host reads its memory, and needs no mirror; and nobody attaches that has
/// not said that it would.
#[test]
fn mirrors_come_over_tcp_and_say_so() {
    let _watchdog = watchdog("mirrors that are none");
    let run = RunDir::new();
    let server = Server::start(&config(&run)).unwrap();
    let stream = raw::connect(run.path());
    raw::send(&stream, &raw::hello(SPOKEN, Purpose::Follow)).unwrap();
    let (Frame::Refused { text }, _) = raw::receive(&stream).unwrap() else { panic!("no refusal") };
    assert!(text.contains("follows over TCP"), "{text}");
    let socket = TcpStream::connect(server.tcp_address().unwrap()).unwrap();
    let mut greeting = Greeting::new(socket, None, 1 << 10, Duration::from_secs(20)).unwrap();
    let mut say = |frame: &Frame| {
        let (kind, bytes) = frame.encode();
        let (kind, bytes) = greeting.ask(kind, &bytes).unwrap();
        Frame::decode(kind, &bytes).unwrap()
    };
    assert!(matches!(say(&raw::hello(SPOKEN, Purpose::Session)), Frame::Welcome { .. }));
    let answer = say(&Frame::Attach { copy_rate: 0, position: None, name: String::new() });
    assert!(matches!(answer, Frame::Refused { .. }), "{answer:?}");
    assert!(told(&server).is_empty());
    server.stop();
}

/// Puts go on beside a mirror that takes nothing in, and the mirror hears why it was let go.
#[test]
fn a_mirror_that_is_too_slow_is_let_go() {
    let _watchdog = watchdog("a slow mirror");
    let run = RunDir::new();
    let server = Server::start(&config(&run)).unwrap();
    let mut slow = attach(&server, &Attach { name: "slow", ..Attach::default() }).unwrap();
    let mut good = attach(&server, &Attach { name: "good", ..Attach::default() }).unwrap();
    good.until("all is copied", Mirror::is_whole);
    let mut session = session(&run);
    let table = session.create_table("t").unwrap();
    let value = vec![7; 16 << 10];
    let began = Instant::now();
    let mut puts = 0u64;
    while told(&server).len() == 2 {
        assert!(began.elapsed() < Duration::from_secs(60), "{puts} puts, and it is there");
        for _ in 0..50 {
            session.put(table, &(puts % 1000).to_le_bytes(), &value).unwrap();
            puts += 1;
        }
        good.catch_up();
    }
    let why = slow.until_over();
    assert!(why.contains("too slow"), "{why}");
    session.put(table, b"last", b"value").unwrap();
    good.catch_up();
    let mut shards = good.into_shards();
    let is = (0..puts.min(1000)).map(|key| (key, Some(value.clone()))).collect();
    check_same(&mut shards, table.id(), &is);
    server.stop();
}

/// Memory comes no faster than the mirror wants it, and changes meanwhile.
#[test]
fn memory_is_copied_as_fast_as_it_is_wanted() {
    let _watchdog = watchdog("a mirror that wants little at once");
    let run = RunDir::new();
    let server = Server::start(&config(&run)).unwrap();
    let mut session = session(&run);
    let table = session.create_table("t").unwrap();
    for key in 0..2000u64 {
        session.put(table, &key.to_le_bytes(), &[1; 1000]).unwrap();
    }
    // So slowly that a busy machine, too, tells many changes meanwhile.
    let (began, rate) = (Instant::now(), 2 << 20);
    let mut mirror = attach(&server, &Attach { copy_rate: rate, ..Attach::default() }).unwrap();
    let mut cuts = 0;
    while !mirror.is_whole() {
        session.put(table, &(cuts % 2000u64).to_le_bytes(), &[2; 1000]).unwrap();
        cuts += 1;
        while mirror.turn() {}
    }
    let took = began.elapsed().as_secs_f64();
    let least = mirror.copied_bytes as f64 / rate as f64 - 0.1;
    assert!(least > 0.1 && took > least, "{took} s for {} bytes", mirror.copied_bytes);
    assert!(mirror.cuts.len() > 10, "changes are told meanwhile: {}", mirror.cuts.len());
    mirror.catch_up();
    // Nothing changes, and nothing is sent.
    let cuts = mirror.cuts.len();
    std::thread::sleep(Duration::from_millis(50));
    while mirror.turn() {}
    assert!(mirror.cuts.len() < cuts + 5, "{} cuts of nothing", mirror.cuts.len() - cuts);
    server.stop();
}

/// What was done before a server ended is told, and then why the connection ends.
#[test]
fn a_server_that_ends_tells_what_was_done() {
    let _watchdog = watchdog("a mirror of a server that ends");
    let run = RunDir::new();
    let server = Server::start(&config(&run)).unwrap();
    let mut mirror = attach(&server, &Attach::default()).unwrap();
    mirror.until("all is copied", Mirror::is_whole);
    let mut session = session(&run);
    let table = session.create_table("t").unwrap();
    let is: HashMap<u64, Option<Vec<u8>>> = (0..1000u64).map(|key| (key, Some(vec![3; 300]))).collect();
    for (key, value) in &is {
        session.put(table, &key.to_le_bytes(), value.as_ref().unwrap()).unwrap();
    }
    let table = table.id();
    let stops = std::thread::spawn(move || server.stop());
    assert_eq!(mirror.until_over(), "the server ends");
    stops.join().unwrap();
    check_same(&mut mirror.into_shards(), table, &is);
}
