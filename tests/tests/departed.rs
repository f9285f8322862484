//! Whoever was refused, gave up or has gone leaves nothing: no state, no cost of a step, no memory. And a
//! load is the business of who builds it.

use std::time::Duration;

use kelix::{FabricChoice, Session, TableKind};
use kelix_tests::process::{ServerProcess, ServerProgram, patient};
use kelix_tests::raw::RawSession;
use kelix_tests::{RunDir, session_over, statistics, until, watchdog};
use kelix_types::TableId;
use kelix_wire::generation::{LoadedTable, any_of, encode_tables};
use kelix_wire::{Op, RequestHead, Status};

fn serve(run: &RunDir, shards: usize) -> ServerProcess {
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    ServerProgram { program, directory: run.path(), shards, memory_bytes: 256 << 20, take_over: false }
        .serve()
}

fn head(op: Op, argument: Option<u64>, table: TableId) -> RequestHead {
    RequestHead { argument, ..RequestHead::new(op, 1, table) }
}

/// Begins to build a dataset of one table.
fn build(session: &mut RawSession, dataset: &[u8], table: &str) -> Status {
    let tables = [LoadedTable {
        table: TableId(0),
        name_id: any_of(TableKind::Hash),
        name: table.to_string(),
        overlay: false,
    }];
    session.call(0, head(Op::Build, None, TableId::CATALOGUE), dataset, &encode_tables(&tables))
}

fn generations(server: &ServerProcess) -> Vec<serde_json::Value> {
    statistics(&server.client())["generations"].as_array().expect("a list").clone()
}

/// A dataset whose build was refused was kept for ever, and each step looked at all of them: 200,000 refusals
/// made everybody's puts 200 times slower, after a restart too.
#[test]
fn a_refused_build_leaves_nothing() {
    let _watchdog = watchdog("refused builds");
    let run = RunDir::new();
    let server = serve(&run, 1);
    let mut writer = server.session();
    writer.create_table("taken").unwrap();
    let mut raw = RawSession::open(run.path());
    assert_eq!(build(&mut raw, b"own", "mine"), Status::Ok);
    for number in 0..5000 {
        assert_eq!(build(&mut raw, format!("dataset {number}").as_bytes(), "taken"), Status::Taken);
        assert_eq!(build(&mut raw, b"own", "mine"), Status::Taken, "it is being built");
    }
    until("the one that was not refused is told of", || generations(&server).len() == 1);
    assert_eq!(generations(&server)[0]["dataset"], "own");
    drop(raw);
    until("its build goes with it", || generations(&server).is_empty());
    // A name that was only asked for is free.
    writer.create_table("mine").unwrap();
}

/// Of several generations that one connection built only the last was given up when it went: the others were
/// "being built" for ever.
#[test]
fn all_builds_of_a_connection_go_with_it() {
    let _watchdog = watchdog("several builds");
    let run = RunDir::new();
    let server = serve(&run, 2);
    for _ in 0..3 {
        let mut raw = RawSession::open(run.path());
        for dataset in ["alpha", "beta", "gamma"] {
            until("the builds before have gone", || {
                build(&mut raw, dataset.as_bytes(), dataset) == Status::Ok
            });
        }
        until("all are told of", || generations(&server).len() == 3);
        drop(raw);
        until("all have gone", || generations(&server).is_empty());
    }
}

/// Each shard but the first believed whoever said that a table was being loaded, or that a load was complete.
#[test]
fn a_load_is_the_business_of_who_builds_it_on_every_shard() {
    let _watchdog = watchdog("strangers and a build");
    let run = RunDir::new();
    let server = serve(&run, 2);
    let mut writer = server.session();
    let ordinary = writer.create_table("ordinary").unwrap();
    let (mut builder, mut stranger) = (RawSession::open(run.path()), RawSession::open(run.path()));
    assert_eq!(build(&mut builder, b"dataset", "loaded"), Status::Ok);
    until("the shard tells of it", || !generations(&server).is_empty());
    let generation = generations(&server)[0]["generation"].as_u64();
    // The first number behind that of the other table is the name's, the second the table's.
    let loaded = TableId(ordinary.id().0 + 2);
    until("the other shard knows of it", || {
        builder.call(1, head(Op::Build, generation, TableId::CATALOGUE), b"", b"") == Status::Ok
    });
    for shard in 0..2 {
        for (op, argument, table) in [
            (Op::Switch, generation, TableId::CATALOGUE),
            (Op::Abandon, generation, TableId::CATALOGUE),
            (Op::Freeze, generation, ordinary.id()),
            (Op::Overlays, generation, ordinary.id()),
            (Op::Load, generation, loaded),
            (Op::Put, generation, loaded),
            (Op::Resolve, Some(0), loaded),
            (Op::Switch, Some(u64::MAX), TableId::CATALOGUE),
            (Op::Freeze, Some(u64::MAX), ordinary.id()),
        ] {
            let status = stranger.call(shard, head(op, argument, table), b"", b"");
            assert_eq!(status, Status::Gone, "{op:?} of a stranger on shard {shard}");
        }
        let put = stranger.call(shard, head(Op::Put, None, loaded), b"key", b"value");
        assert_eq!(put, Status::Loaded, "shard {shard}");
        assert_eq!(builder.call(shard, head(Op::Load, generation, loaded), b"", b""), Status::Ok);
    }
    // A generation that the first shard has not given is none, and takes no table away from those who write
    // to it.
    assert_ne!(stranger.call(1, head(Op::Build, Some(u64::MAX), ordinary.id()), b"", &[0]), Status::Ok);
    drop(stranger);
    for key in 0..100u64 {
        writer.put(ordinary, &key.to_le_bytes(), b"value").unwrap();
    }
    for shard in [1, 0] {
        let switched = builder.call(shard, head(Op::Switch, generation, TableId::CATALOGUE), b"", b"");
        assert_eq!(switched, Status::Ok, "shard {shard}");
    }
    until("it is in force", || generations(&server)[0]["stage"] == "in force");
}

/// Statistics above 1 MiB ended the agent's thread, and with it all clients over TCP.
#[test]
fn statistics_have_bounds_whatever_there_is() {
    let _watchdog = watchdog("long statistics");
    let run = RunDir::new();
    let server = serve(&run, 1);
    let mut raw = RawSession::open(run.path());
    for number in 0..800 {
        // Each character of this name takes six in JSON.
        let dataset = format!("{number:03}{}", "\u{1}".repeat(252));
        assert_eq!(build(&mut raw, dataset.as_bytes(), &format!("table {number}")), Status::Ok);
    }
    let far = server.tcp_client();
    let mut bystander = session_over(FabricChoice::Tcp, &far, patient());
    until("the shard has told of them", || {
        let told = statistics(&far);
        let listed = told["generations"].as_array().expect("a list").len() as u64;
        listed + told["generations_not_listed"].as_u64().expect("a number") == 800
    });
    bystander.create_table("t").expect("the agent serves on");
    assert!(statistics(&server.client())["generations"].is_array());
}

/// Mailboxes and queues of clients over TCP were resident before they were used, 1.3 MB a shard, and stayed
/// when the clients had gone.
#[test]
fn memory_of_clients_over_tcp_is_taken_when_it_is_used_and_comes_back() {
    const SESSIONS: usize = 200;
    let _watchdog = watchdog("memory of clients over TCP");
    let run = RunDir::new();
    let server = serve(&run, 8);
    let far = server.tcp_client();
    let resident = || server.process.size("VmRSS");
    let before = resident();
    for _ in 0..2 {
        let sessions: Vec<Session> =
            (0..SESSIONS).map(|_| session_over(FabricChoice::Tcp, &far, patient())).collect();
        // 128 KB a session with eight shards is what is promised; all of the mailboxes would be ten times
        // that.
        let grown = resident().saturating_sub(before);
        assert!(grown < (128 << 10) * SESSIONS as u64, "{grown} bytes for {SESSIONS} sessions");
        drop(sessions);
        until("the memory is back", || {
            std::thread::sleep(Duration::from_millis(20));
            resident() < before + (16 << 20)
        });
    }
}
