//! What a server tells of itself reaches clients whole: each field that is sent has its place in the client's
//! types.

use kelix::{Client, NewTable, Statistics, TableKind};
use kelix_server::{Server, ServerConfig, SnapshotConfig};
use kelix_tests::mirror::{Attach, Mirror};
use kelix_tests::{RunDir, until};
use serde_json::{Value, json};

/// The names of all fields, with the way to each.
fn fields(value: &Value, way: &str, into: &mut Vec<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(name, member)| {
            into.push(format!("{way}/{name}"));
            fields(member, &format!("{way}/{name}"), into);
        }),
        Value::Array(members) => members.iter().take(1).for_each(|member| fields(member, way, into)),
        _ => {}
    }
}

#[test]
fn what_a_server_tells_has_its_place_in_the_types() {
    let run = RunDir::new();
    let config = ServerConfig {
        directory: run.path().to_path_buf(),
        memory_bytes: 64 << 20,
        snapshots: Some(SnapshotConfig {
            directory: run.path().join("kept"),
            every: None,
            keep: 2,
            fresh: false,
        }),
        listen: Some("127.0.0.1:0".parse().unwrap()),
        ..ServerConfig::default()
    };
    let server = Server::start(&config).unwrap();
    let mirror = Mirror::attach(server.tcp_address().unwrap(), &Attach::default()).unwrap();
    let client = Client::connect(run.path()).unwrap();
    let mut session = client.session().unwrap();
    let ordered = session.create_table_of(TableKind::Numbers, "ordered").unwrap();
    session.put(ordered, &7u64.to_be_bytes(), b"v").unwrap();
    let table = NewTable::new("loaded", TableKind::Hash);
    let mut build = session.build("dataset", &[table]).unwrap();
    build.put(0, b"k", b"v").unwrap();
    build.finish().unwrap();
    let _view = session.view("dataset").unwrap();
    let taken = client.snapshot().unwrap();
    assert!(taken.path.is_file() && taken.bytes > 0 && taken.seconds > 0.0, "{taken:?}");

    let known = |statistics: &Statistics| {
        let first = &statistics.shards[0];
        let generation = statistics.generations.first();
        first.items > 0 && !first.ordered.is_empty() && generation.is_some_and(|of| !of.holders.is_empty())
    };
    until("shards have told of everything", || known(&client.statistics().unwrap()));
    let (mut sent, mut typed) = (Vec::new(), Vec::new());
    fields(&server.statistics().json()[0], "", &mut sent);
    fields(&json!(client.statistics().unwrap()), "", &mut typed);
    drop(mirror);
    sent.sort();
    typed.sort();
    assert_eq!(sent, typed);
    assert!(sent.len() > 80, "too few fields to say anything: {}", sent.len());
}
