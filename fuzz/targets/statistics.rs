//! Statistics: what a server can be made to tell by its clients, and what is made of what any server tells:
//! JSON, Prometheus's text, tables, a screen.

#![no_main]

use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use kelix::{Address, Client, NewTable, Session, TableKind};
use kelix_fuzz::tcp::{End, control, head, hello};
use kelix_fuzz::{Input, exposition, heap};
use kelix_server::{NamespaceConfig, Rights, Server, ServerConfig};
use kelix_wire::control::Frame;
use kelix_wire::mailbox_word;
use kept::Lent;
use libfuzzer_sys::fuzz_target;
use metrics::exposition;
use names::{Names, name_tables};
use rates::{is_same_server, line_json, line_text};
use report::report;
use screen::drawn;
use serde_json::{Value, json};

// The program is no library.
#[path = "../../crates/cli/src/bytes.rs"]
#[allow(dead_code)]
mod bytes;
#[path = "../../crates/cli/src/columns.rs"]
mod columns;
#[path = "../../crates/cli/src/kept.rs"]
#[allow(dead_code)]
mod kept;
#[path = "../../crates/cli/src/metrics.rs"]
mod metrics;
#[path = "../../crates/cli/src/names.rs"]
mod names;
#[path = "../../crates/cli/src/rates.rs"]
mod rates;
#[path = "../../crates/cli/src/report.rs"]
mod report;
#[path = "../../crates/cli/src/screen.rs"]
#[allow(dead_code)]
mod screen;

pub(crate) use kelix_program::{Failure, units};

/// A frame of the set-up conversation has no more.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Memory for what is shown, beside some times that of what was told.
const SHOWN_BYTES_MAX: usize = 16 << 20;
const PATIENCE: Duration = Duration::from_secs(5);
const EVERY: Duration = Duration::from_secs(1);
/// Inputs for which a server has numbers for tables.
const INPUTS_A_SERVER: u64 = 500;

/// Where other things are put than a server tells.
const PLACES: [&str; 32] = [
    "",
    "/shards",
    "/shards/0",
    "/shards/0/shard",
    "/shards/0/cpu_s",
    "/shards/0/items",
    "/snapshots/age_seconds",
    "/shards/0/memory/live_bytes",
    "/shards/0/ordered",
    "/shards/0/ordered/0",
    "/shards/0/ordered/0/name",
    "/shards/0/ordered/0/table",
    "/shards/0/ordered_not_listed",
    "/shards/1",
    "/shards/1/ordered_not_listed",
    "/generations",
    "/generations/0",
    "/generations/0/dataset",
    "/generations/0/holders",
    "/generations/0/holders_not_listed",
    "/clients",
    "/clients/0",
    "/clients/0/connection",
    "/clients/0/address",
    "/fabrics",
    "/fabrics/tcp",
    "/fabrics/tcp/reads",
    "/memory_by_kind",
    "/uptime_s",
    "/version",
    "/rdma",
    "/snapshots",
];

struct World {
    server: Server,
    client: Client,
    session: Session,
    /// What it tells, with something in each list.
    example: Value,
    inputs: u64,
}

static WORLD: LazyLock<Mutex<World>> = LazyLock::new(|| Mutex::new(World::new()));

impl World {
    fn new() -> World {
        let directory = std::env::temp_dir().join(format!("kelix-fuzz-stat-{}", std::process::id()));
        let other = NamespaceConfig {
            name: "other-1.x".into(),
            shards: 1,
            memory_bytes: 16 << 20,
            cache: true,
            rights: Rights::default(),
        };
        let config = ServerConfig {
            directory: directory.clone(),
            shards: 1,
            memory_bytes: 32 << 20,
            pin: false,
            listen: Some((std::net::Ipv4Addr::LOCALHOST, 0).into()),
            namespaces: vec![other],
            ..ServerConfig::default()
        };
        let server = Server::start(&config).expect("a server");
        let mut session = Client::connect(&directory).and_then(|client| client.session()).expect("a session");
        std::fs::remove_dir_all(directory).expect("its directory");
        let table = session.create_table_of(TableKind::Strings, "strings").expect("a table");
        for key in 0..20u8 {
            session.put(table, &[key], b"value").expect("room");
        }
        let new = NewTable::new("loaded", TableKind::Hash);
        let build = session.build("dataset", &[new]).expect("a generation");
        build.finish().expect("a generation in force");
        let address = Address::Tcp(server.tcp_address().expect("a port").to_string());
        let client = Client::connect(address).expect("a server that serves");
        let mut example = told_when(&client, |told| {
            told["shards"][0]["ordered"][0].is_object() && told["generations"][0].is_object()
        });
        example["rdma"] = json!(["10.0.0.1:9117"]);
        example["snapshots"] = json!({ "taken": 1, "failed": 0, "age_seconds": 2.5, "bytes": 4096 });
        World { server, client, session, example, inputs: 0 }
    }

    /// What clients make a server tell: names, and words that they publish of themselves.
    fn own(&mut self, input: &mut Input<'_>) {
        let World { server, client, session, example, .. } = self;
        let how = input.u8();
        let (kind, bytes) = hello();
        let mut sent = control(kind, &bytes);
        for word in 0..usize::from(how & 7) {
            let first = (mailbox_word::COUNTERS + word) as u32;
            sent.extend(head(4, 0, first, 1).to_le_bytes().into_iter().chain(input.u64().to_le_bytes()));
        }
        let mut end = End::open(server.tcp_address().expect("a port"));
        assert_eq!(end.send(&sent), sent.len(), "a new socket takes that");
        let mut name = || {
            let length = usize::from(input.u8());
            String::from_utf8_lossy(input.bytes(length)).into_owned()
        };
        let (dataset, names) = (name(), [name(), name()]);
        let kinds = [TableKind::Hash, TableKind::Strings];
        let new = names.each_ref().map(|name| &name[..]);
        let new = [0, 1].map(|at| NewTable::new(new[at], kinds[at]).overlay(how & 8 != 0));
        let build = session.build(&dataset, &new[..1 + usize::from(how >> 7)]);
        let told = told_when(client, |told| {
            let is_listed = |part: &str, name: &str, wanted: &str| {
                told[part].as_array().expect("a list").iter().any(|row| row[name] == wanted)
            };
            (build.is_err() || is_listed("generations", "dataset", &dataset))
                && is_listed("clients", "fabric", "tcp")
        });
        drop(build);
        exposition::check(&exposition(&server.statistics().json()));
        show(example, &told, 0);
    }

    /// What any server tells.
    fn others(&mut self, input: &mut Input<'_>, how: u8) {
        let text = match how {
            0..32 => String::from_utf8_lossy(input.0).into_owned(),
            _ => self.with_other_things(input).to_string(),
        };
        if text.len() > TEXT_BYTES_MAX {
            return;
        }
        let (kind, bytes) = Frame::Statistics { text }.encode();
        let Some(Frame::Statistics { text }) = Frame::decode(kind, &bytes) else {
            panic!("what was written")
        };
        let meter = heap::Meter::begin();
        let Ok(mut told) = serde_json::from_str(&text) else { return };
        let told_bytes = meter.left();
        let open = || match how % 8 {
            0 => Ok(Lent::new(self.client.session()?, None)),
            _ => Err(Failure::usage("fuzz", "no server")),
        };
        let mut names = Names::default();
        names.add_to(&mut told, open);
        names.add_to(&mut told, open);
        name_tables(&mut told, open);
        show(&self.example, &told, told_bytes);
        show(&told, &self.example, told_bytes);
    }

    /// The example, with other things in places of it.
    fn with_other_things(&self, input: &mut Input<'_>) -> Value {
        let mut told = self.example.clone();
        while !input.is_empty() {
            let what = input.u8();
            let Some(place) = told.pointer_mut(PLACES[usize::from(what & 31)]) else { continue };
            *place = match what >> 5 {
                0 => [json!(null), json!(true), json!([]), json!({})][usize::from(input.u8() & 3)].clone(),
                1 => json!(f64::from_bits(input.u64())),
                2 => json!(input.u64()),
                3 => {
                    let length = usize::from(input.u8());
                    json!(String::from_utf8_lossy(input.bytes(length)))
                }
                4 => {
                    let letter = char::from(input.u8() & 127);
                    json!(String::from(letter).repeat(usize::from(input.u16()) << 2))
                }
                5 => {
                    let count = usize::from(input.u16()).min(TEXT_BYTES_MAX / (place.to_string().len() + 1));
                    match &*place {
                        Value::Array(list) => list.iter().cycle().take(count).cloned().collect(),
                        one => json!(vec![one.clone(); count]),
                    }
                }
                6 => json!([place.clone(), input.u8()]),
                _ => json!(-f64::from(input.u16())),
            };
        }
        told
    }
}

/// What a client is told, when the shards have told of something.
fn told_when(client: &Client, of_that: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let told = json!(client.statistics().expect("an answer within bounds"));
        if of_that(&told) {
            return told;
        }
        assert!(began.elapsed() < PATIENCE, "it is not told: {told}");
        std::thread::yield_now();
    }
}

fn is_for_a_terminal(text: &str) -> bool {
    !text.chars().any(|char| char.is_control() && char != '\n')
}

/// Everything that is shown.
fn show(before: &Value, now: &Value, told_bytes: usize) {
    let meter = heap::Meter::begin();
    assert!(is_for_a_terminal(&report(now)));
    for before in [None, Some(before)] {
        let screen = drawn(before, now, None, EVERY);
        let own = ["\x1b[H", "\x1b[K", "\x1b[J", "\r"];
        let text = own.iter().fold(screen, |text, own| text.replace(own, ""));
        assert!(is_for_a_terminal(&text));
        assert!(text.lines().count() < 24 && text.lines().all(|line| line.chars().count() <= 80));
    }
    let line = line_json(before, now).to_string();
    assert!(serde_json::from_str::<Value>(&line).is_ok());
    let line = line_text(before, now, true);
    assert!(is_for_a_terminal(&line) && line.lines().count() == 2);
    let _ = is_same_server(before, now);
    let peak = meter.peak();
    assert!(peak < SHOWN_BYTES_MAX + 8 * told_bytes, "{peak} bytes for what is shown of {told_bytes}");
}

fuzz_target!(|data: &[u8]| {
    let mut world = WORLD.lock().expect("no panic before");
    world.inputs += 1;
    if world.inputs == INPUTS_A_SERVER {
        *world = World::new();
    }
    let mut input = Input(data);
    match input.u8() {
        how @ 0..192 => world.others(&mut input, how),
        _ => world.own(&mut input),
    }
});
