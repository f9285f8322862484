//! Clients that die or stand still: what they held at the server comes back, and nobody else is disturbed.

use kelix::{Session, Table};
use kelix_tests::bystander::Bystander;
use kelix_tests::process::{Process, ServerProcess, ServerProgram};
use kelix_tests::raw::{self, RawSession};
use kelix_tests::{Random, RunDir, asked_sum, until, value, watchdog};
use kelix_types::TableId;
use kelix_wire::control::Purpose;
use kelix_wire::{Op, RequestHead, SPOKEN, Status};

const MIB: u64 = 1 << 20;

fn server(run: &RunDir) -> ServerProcess {
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    ServerProgram { program, directory: run.path(), shards: 2, memory_bytes: 256 * MIB, take_over: false }
        .serve()
}

fn client(mode: &str, run: &RunDir, numbers: &[u64]) -> Process {
    let mut arguments = vec![mode.to_string(), run.path().display().to_string(), "t".to_string()];
    arguments.extend(numbers.iter().map(u64::to_string));
    Process::start(env!("CARGO_BIN_EXE_kelix-test-client"), &arguments)
}

fn delete_all(session: &mut Session, table: Table, keys: impl Iterator<Item = u64>) {
    for key in keys {
        session.submit_delete(table, &key.to_le_bytes()).unwrap();
    }
    let mut completions = Vec::new();
    while session.outstanding() > 0 {
        session.poll(&mut completions).unwrap();
    }
    completions.into_iter().for_each(|completion| drop(completion.outcome.unwrap()));
}

/// Clients killed in the middle of requests and of uploads leave nothing at the server but the items they had
/// put: once these are deleted, its memory, descriptors, threads and mailboxes are what they were.
#[test]
fn killed_clients_leave_nothing_behind() {
    let _watchdog = watchdog("killed clients");
    let run = RunDir::new();
    let server = server(&run);
    let asking = server.client();
    let mut session = server.session();
    let table = session.create_table("t").unwrap();
    let bystander = Bystander::start(&server);
    let mut random = Random(1);
    let (held, items) = (server.held_at_rest(), asked_sum(&asking, "items"));
    let mut live = None;
    for round in 0..12 {
        for seed in [2 * round, 2 * round + 1] {
            let mut churning = client("churn", &run, &[seed]);
            churning.expect("churning");
            let requests = asked_sum(&asking, "requests") + 1 + random.below(2000);
            until("it has been busy", || asked_sum(&asking, "requests") > requests);
            churning.kill();
            bystander.goes_on();
        }
        server.until_given_back(held);
        delete_all(&mut session, table, (0..1000).chain([1000 + 2 * round, 1001 + 2 * round]));
        until("the deletes are reported", || asked_sum(&asking, "items") == items);
        // The first round makes the index as large as it is going to be. An item that was moved out of a
        // sparse segment takes a word more; an upload is a MiB and more.
        let live = *live.get_or_insert_with(|| asked_sum(&asking, "memory/live_bytes") + 64 * 1024);
        until("the memory of uploads is given back", || asked_sum(&asking, "memory/live_bytes") < live);
    }
    bystander.end();
}

/// A client that is stopped with its rings full of answers, and with more requests in the server's than are
/// answered, holds nobody up, and has every answer when it goes on.
#[test]
fn a_stopped_client_with_full_rings_disturbs_nobody() {
    let _watchdog = watchdog("a stopped client");
    let run = RunDir::new();
    let server = server(&run);
    let mut session = server.session();
    let table = session.create_table("t").unwrap();
    let (keys, gets) = (40u64, 3000);
    for key in 0..keys {
        session.put(table, &key.to_le_bytes(), &value::make(key, 1, 30_000)).unwrap();
    }
    let bystander = Bystander::start(&server);
    let mut hoarding = client("hoard", &run, &[keys, gets]);
    hoarding.expect("ready");
    // While the server stands still every request is posted and none is answered. The answers would be 90 MB,
    // of which a ring takes half a MiB.
    server.process.stop_still();
    hoarding.say("post");
    hoarding.expect("posted");
    hoarding.stop_still();
    server.process.go_on();
    for _ in 0..5 {
        bystander.goes_on();
    }
    hoarding.go_on();
    hoarding.say("take");
    assert_eq!(hoarding.expect("took "), gets.to_string());
    assert!(hoarding.end().success());
    bystander.end();
}

/// The same client killed while it stands still: its answers, and the requests nobody answered, go with it.
#[test]
fn a_client_killed_with_full_rings_leaves_nothing_behind() {
    let _watchdog = watchdog("a client killed with full rings");
    let run = RunDir::new();
    let server = server(&run);
    let mut session = server.session();
    let table = session.create_table("t").unwrap();
    session.put(table, &0u64.to_le_bytes(), &value::make(0, 1, 30_000)).unwrap();
    let bystander = Bystander::start(&server);
    let before = server.held_at_rest();
    for _ in 0..5 {
        let mut hoarding = client("hoard", &run, &[1, 3000]);
        hoarding.expect("ready");
        hoarding.say("post");
        hoarding.expect("posted");
        bystander.goes_on();
        hoarding.kill();
        server.until_given_back(before);
    }
    bystander.end();
}

/// Opens a session by hand, begins an upload of 8 MiB and leaves in the middle of it.
fn leave_in_the_middle_of_an_upload(run: &RunDir, number: u64) {
    let mut raw = RawSession::open(run.path());
    let shard = number as usize % 2;
    let (begin, piece) =
        (RequestHead::new(Op::LargeBegin, 1, TableId(1)), RequestHead::new(Op::LargePiece, 2, TableId(1)));
    let begin = RequestHead { argument: Some(8 * MIB), ..begin };
    assert_eq!(raw.call(shard, begin, &number.to_le_bytes(), &[]), Status::Ok);
    assert_eq!(raw.call(shard, RequestHead { argument: Some(0), ..piece }, &[], &[7; 4096]), Status::Ok);
    // One more is under way when the connection ends.
    assert!(raw.post(shard, RequestHead { argument: Some(4096), ..piece }, &[], &[7; 4096]));
}

/// Sessions come and go, in good order and abruptly, at every stage of a connection: the server holds no more
/// after a hundred of them than before.
#[test]
fn a_hundred_sessions_leave_nothing_behind() {
    let _watchdog = watchdog("a hundred sessions");
    let run = RunDir::new();
    let server = server(&run);
    let asking = server.client();
    let mut first = server.session();
    first.create_table("t").unwrap();
    let bystander = Bystander::start(&server);
    let (before, live) = (server.held_at_rest(), asked_sum(&asking, "memory/live_bytes"));
    for number in 0..100u64 {
        match number % 5 {
            0 => drop(server.session()),
            1 => {
                let mut session = server.session();
                let table = session.table("t").unwrap();
                session.put(table, b"k", b"v").unwrap();
                session.delete(table, b"k").unwrap();
            }
            2 => leave_in_the_middle_of_an_upload(&run, number),
            3 => raw::send(&raw::connect(run.path()), &raw::hello(SPOKEN, Purpose::Session)).unwrap(),
            _ => drop(raw::connect(run.path())),
        }
    }
    let many: Vec<Session> = (0..30).map(|_| server.session()).collect();
    assert!(server.held().mailboxes >= before.mailboxes + 30, "a memory of mailboxes a session");
    drop(many);
    server.until_given_back(before);
    // The bystander may have had keys to put for the first time; an upload is larger.
    until("the memory of uploads is given back", || {
        asked_sum(&asking, "memory/live_bytes") <= live + kelix_types::limits::PAGE_BYTES
    });
    bystander.end();
}
