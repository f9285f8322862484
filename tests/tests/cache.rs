//! Servers that are caches: what clients read by themselves stays, whichever way they read it; the rest goes.

use std::time::Duration;

use kelix::{Client, FabricChoice, NewItem, Session, Table};
use kelix_server::{MirrorConfig, Server, ServerConfig};
use kelix_tests::process::patient;
use kelix_tests::{
    RunDir, asked_sum, breaks, client_at, fabrics, rdma, session_over, tcp_address, until, watchdog,
};

const MEMORY: u64 = 16 << 20;
const VALUE_BYTES: usize = 1000;
/// Keys that are read over and over, and as many that nobody reads.
const KEPT: u64 = 500;
/// Keys that are put and never read: twice as many as there is room for.
const OTHERS: u64 = 30_000;

fn serve(run: &RunDir, shards: usize) -> Server {
    let config = ServerConfig {
        directory: run.path().into(),
        shards,
        memory_bytes: MEMORY * shards as u64,
        cache: true,
        pin: false,
        listen: Some((std::net::Ipv4Addr::LOCALHOST, 0).into()),
        rdma: rdma(),
        ..ServerConfig::default()
    };
    kelix_tests::start(&config)
}

/// A way to read the keys that are to be kept. Returns how many were there.
type Reading = fn(&mut Session, Table, &[[u8; 8]]) -> usize;

fn by_get(session: &mut Session, table: Table, keys: &[[u8; 8]]) -> usize {
    keys.iter().filter(|key| session.get(table, &key[..]).unwrap().is_some()).count()
}

fn into_a_buffer(session: &mut Session, table: Table, keys: &[[u8; 8]]) -> usize {
    let mut buffer = vec![0; VALUE_BYTES];
    keys.iter().filter(|key| session.get_into(table, &key[..], &mut buffer).unwrap().is_some()).count()
}

fn in_batches(session: &mut Session, table: Table, keys: &[[u8; 8]]) -> usize {
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    session.multi_get(table, &keys).unwrap().iter().flatten().count()
}

fn along_links(session: &mut Session, table: Table, keys: &[[u8; 8]]) -> usize {
    // Each of the first half links to one of the second.
    let mut count = 0;
    for key in &keys[..keys.len() / 2] {
        let Some(first) = session.get(table, key).unwrap() else { continue };
        count += 1 + usize::from(session.follow(&first, "other").unwrap().is_some());
    }
    count
}

/// An item with a value, and a link to another one if links are to be followed.
fn put(session: &mut Session, table: Table, key: u64, linked: bool) {
    let mut item = NewItem::new();
    item = item.bytes("", &vec![key as u8; VALUE_BYTES]);
    if linked {
        item = item.link("other", table, &(key + KEPT / 2).to_be_bytes());
    }
    session.put_item(table, &key.to_be_bytes(), &item).unwrap();
}

/// Reads with one session while another one puts what nobody reads.
fn check(fabric: FabricChoice, shards: usize, (how, reading): (&str, Reading)) {
    let (what, linked) = (format!("{how} over {fabric:?}"), how == "along links");
    let run = RunDir::new();
    let _server = serve(&run, shards);
    let client = Client::connect(run.path()).unwrap();
    let far = client_at(kelix::Address::Tcp(tcp_address(run.path())));
    let mut writer = client.session_with(patient()).unwrap();
    let of = if fabric == FabricChoice::Shm { &client } else { &far };
    let mut reader = session_over(fabric, of, patient());
    let table = writer.create_table("t").unwrap();
    (0..2 * KEPT).for_each(|key| put(&mut writer, table, key, linked));
    let keys = |range: std::ops::Range<u64>| range.map(u64::to_be_bytes).collect::<Vec<_>>();
    let (kept, others) = (keys(0..KEPT), keys(KEPT..2 * KEPT));
    let before = reader.cost();
    let mut read = 0;
    for key in 0..OTHERS * shards as u64 {
        put(&mut writer, table, 1 << 32 | key, linked);
        if key % 1500 == 0 {
            read += reading(&mut reader, table, &kept) as u64;
        }
    }
    let cost = reader.cost();
    let left = [&kept, &others].map(|keys| by_get(&mut writer, table, keys));
    assert!(
        left[0] as u64 > KEPT * 9 / 10 && (left[1] as u64) < KEPT / 10,
        "{what}: {left:?} of {KEPT} each"
    );
    assert_eq!(asked_sum(&client, "writes_refused"), 0);
    until("the shards have told of the hints", || asked_sum(&client, "hints") > 0);
    let hints = asked_sum(&client, "hints");
    assert!(hints < read, "{what}: {hints} hints for {read} reads");
    // Many hints go in a message; some reads had to be asked for, while the index grew.
    let messages = cost.messages - before.messages;
    assert!(breaks() || messages * 4 < read, "{what}: {messages} messages for {read} reads");
}

#[test]
fn what_is_read_one_sidedly_stays() {
    let _watchdog = watchdog("what_is_read_one_sidedly_stays");
    let ways: [(&str, Reading); 4] = [
        ("by get", by_get),
        ("into a buffer", into_a_buffer),
        ("in batches", in_batches),
        ("along links", along_links),
    ];
    for fabric in fabrics() {
        ways.iter().for_each(|way| check(fabric, 1, *way));
    }
}

#[test]
fn each_shard_is_told_of_its_own() {
    let _watchdog = watchdog("each_shard_is_told_of_its_own");
    check(FabricChoice::Shm, 3, ("in batches", in_batches));
}

/// Reads with a session on a mirror while another one puts at the primary what nobody reads: what only the
/// mirror's clients read stays, since the mirror passes on what they tell it.
#[test]
fn what_is_read_on_a_mirror_stays() {
    let _watchdog = watchdog("what_is_read_on_a_mirror_stays");
    let (shards, runs) = (2, [RunDir::new(), RunDir::new()]);
    let _server = serve(&runs[0], shards);
    let mirror = MirrorConfig {
        primary: tcp_address(runs[0].path()).to_string(),
        token: None,
        tls: None,
        namespaces: vec!["default".into()],
        fabric: None,
        rdma_address: None,
        copy_rate: 0,
        max_lag: None,
        name: "near".into(),
        memory_bytes: None,
        retry_for: Duration::from_secs(20),
        replica: None,
    };
    let directory = runs[1].path().into();
    let config = ServerConfig { directory, mirror: Some(mirror), pin: false, ..ServerConfig::default() };
    let _mirror = kelix_tests::start(&config);
    let [client, near] = [&runs[0], &runs[1]].map(|run| Client::connect(run.path()).unwrap());
    let mut writer = client.session_with(patient()).unwrap();
    let mut reader = near.session_with(patient().private_caches(true)).unwrap();
    let table = writer.create_table("t").unwrap();
    (0..2 * KEPT).for_each(|key| put(&mut writer, table, key, false));
    let keys = |range: std::ops::Range<u64>| range.map(u64::to_be_bytes).collect::<Vec<_>>();
    let (kept, others) = (keys(0..KEPT), keys(KEPT..2 * KEPT));
    let mut found = None;
    until("the mirror has them", || {
        found = reader.table("t").ok();
        found.is_some_and(|table| by_get(&mut reader, table, &kept) as u64 == KEPT)
    });
    let (before, found) = (reader.cost(), found.expect("a table"));
    let mut read = 0;
    for key in 0..OTHERS * shards as u64 {
        put(&mut writer, table, 1 << 32 | key, false);
        if key % 1500 == 0 {
            read += by_get(&mut reader, found, &kept) as u64;
            // So that a mirror that is kept from its core does not decide what stays.
            until("what was heard is passed on", || asked_sum(&client, "hints") >= asked_sum(&near, "hints"));
        }
    }
    let messages = reader.cost().messages - before.messages;
    assert!(messages * 4 < read, "{messages} messages for {read} reads");
    let left = [&kept, &others].map(|keys| by_get(&mut writer, table, keys));
    assert!(left[0] as u64 > KEPT * 9 / 10 && (left[1] as u64) < KEPT / 10, "{left:?} of {KEPT} each");
    assert_eq!(asked_sum(&client, "writes_refused"), 0);
    until("the mirror has told of the hints", || asked_sum(&near, "hints") > 0);
    let hints = asked_sum(&client, "hints");
    assert!(hints > 0 && hints < read, "{hints} hints for {read} reads");
}

/// A server that keeps what it has does not ask, and is not told.
#[test]
fn a_store_is_told_nothing() {
    let run = RunDir::new();
    let config = ServerConfig {
        directory: run.path().into(),
        memory_bytes: MEMORY,
        pin: false,
        ..ServerConfig::default()
    };
    let _server = Server::start(&config).unwrap();
    let client = Client::connect(run.path()).unwrap();
    let mut session = client.session_with(patient()).unwrap();
    let table = session.create_table("t").unwrap();
    session.put(table, b"k", b"v").unwrap();
    let before = session.cost().messages;
    for _ in 0..5000 {
        assert!(session.get(table, b"k").unwrap().is_some());
    }
    assert_eq!(session.cost().messages, before);
    assert_eq!(asked_sum(&client, "hints"), 0);
}
