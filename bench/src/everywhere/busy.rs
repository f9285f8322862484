//! Beside other work: exchanges on cores that others use too, many clients on few cores, and many that are
//! silent. Beside memcached, in the same run and in turn.

use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kelix::{FabricChoice, Path, Session, SessionOptions, Table, Values};
use kelix_fabric::tcp::Greeting;
use kelix_server::ServerConfig;
use kelix_wire::SPOKEN;
use kelix_wire::control::{Frame, Purpose};

use super::rows::text;
use crate::peers::blocking::Blocking;
use crate::peers::protocol::Memcached;
use crate::store::{Store, key_of, verify};
use crate::times::Times;
use crate::workload::{Batch, Records};
use kelix_report::cores::{cores, pin, pin_thread, pin_to};
use kelix_report::daemon::{Daemon, resident_bytes};
use kelix_report::interleave::median;
use kelix_report::report::{Row, Sense};

const RECORDS: u64 = 100_000;
/// One turn of one side, and in a small run, which only checks that all works.
const TURN: Duration = Duration::from_millis(500);
const TURN_SMALL: Duration = Duration::from_millis(100);
/// Most pairs of turns a row.
const ROUNDS_MAX: usize = 15;
/// Between two operations of an open loop.
const BETWEEN: Duration = Duration::from_millis(1);
/// Sessions that do nothing, and the shards of their server.
const SILENT: usize = 1000;
const SILENT_SHARDS: usize = 8;
/// Bytes of a mebibyte.
const MIB: f64 = (1 << 20) as f64;

/// Where a client and the threads of the servers run. Left alone the system puts them so or so, and an
/// exchange between two cores takes several times as long.
#[derive(Clone, Copy)]
enum Placement {
    Anywhere,
    OneCore,
    TwoCores,
}

impl Placement {
    /// What rows of it are called.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Placement::Anywhere => ("", ""),
            Placement::OneCore => ("_one_core", ", client and servers on one core"),
            Placement::TwoCores => ("_two_cores", ", client and servers on two cores"),
        }
    }

    /// Places the calling thread, this process's server and another one.
    fn arrange(self, other: u32) {
        let last = cores() - 1;
        let (client, server) = match self {
            Placement::Anywhere => (0..last + 1, 0..last + 1),
            Placement::OneCore => (0..1, 0..1),
            Placement::TwoCores => (0..1, last..last + 1),
        };
        pin_to(client);
        for pid in [std::process::id(), other] {
            let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            for task in tasks {
                let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
                let id = task.file_name().to_str().and_then(|id| id.parse().ok());
                if pid == other || name.starts_with("kelix-") {
                    pin_thread(id.and_then(rustix::thread::Pid::from_raw), server.clone());
                }
            }
        }
    }
}

/// Something that does one operation on a record after the other.
trait Client: Send {
    fn run(&mut self, record: u64);
}

/// A session and what it does.
struct Ours {
    session: Session,
    table: Table,
    puts: bool,
    walk: crate::store::Walk,
}

impl Ours {
    fn open(store: &Store, fabric: FabricChoice, path: Path, puts: bool) -> Result<Ours, String> {
        let options = SessionOptions::default().fabric(fabric).path(path);
        let mut session = store.client.session_with(options).map_err(text)?;
        let table = session.table("records").map_err(text)?;
        if path == Path::Auto {
            // As one that has been at it for a while: it knows where things stand.
            let keys: Vec<_> = (0..RECORDS).map(key_of).collect();
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            session.multi_get_into(table, &keys, &mut Values::new()).map_err(text)?;
        }
        Ok(Ours { session, table, puts, walk: store.walk })
    }
}

impl Client for Ours {
    fn run(&mut self, record: u64) {
        let key = key_of(record);
        if self.puts {
            self.session.put(self.table, &key, &self.walk.value_of(record)).expect("a put");
            return;
        }
        let mut value = [0; 32];
        let found = self.session.get_into(self.table, &key, &mut value).expect("a get");
        assert_eq!(found.map(|(bytes, _)| bytes), Some(32), "record {record}");
        verify(&value, record);
    }
}

/// A client of memcached and what it does.
struct Theirs {
    connection: Blocking<Memcached>,
    puts: bool,
}

impl Theirs {
    fn open(daemon: &Daemon, records: Records, puts: bool) -> Result<Theirs, String> {
        Ok(Theirs { connection: Blocking::open(daemon, records)?, puts })
    }
}

impl Client for Theirs {
    fn run(&mut self, record: u64) {
        let (gets, puts) = if self.puts { (vec![], vec![record]) } else { (vec![record], vec![]) };
        self.connection.run(&Batch { gets, puts }).expect("an answer");
    }
}

/// Other work, until it is dropped.
struct Work {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Work {
    fn start(work: impl Fn(usize, &AtomicBool) + Clone + Send + 'static) -> Work {
        let over = Arc::new(AtomicBool::new(false));
        let start = |core| {
            let (over, work) = (over.clone(), work.clone());
            std::thread::spawn(move || work(core, &over))
        };
        let threads = (0..cores()).map(start).collect();
        Work { over, threads }
    }

    /// A thread on each core that only computes.
    fn spinners() -> Work {
        Work::start(|core, over| {
            pin(core);
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        })
    }

    /// As many jobs as there are cores, as of a build: processes that come and go, fresh memory that is
    /// filled and sorted, files that are written.
    fn build(folder: PathBuf) -> Work {
        Work::start(move |job, over| {
            let file = folder.join(format!("job-{job}"));
            let mut seed = 1 + job as u64;
            while !over.load(Ordering::Relaxed) {
                let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
                let _ = Command::new("sh").args(["-c", script]).stdin(Stdio::null()).status();
                let mut words: Vec<u64> = (0..1 << 18)
                    .map(|_| {
                        seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed >> 29;
                        seed
                    })
                    .collect();
                words.sort_unstable();
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                let _ = std::fs::write(&file, bytes);
            }
        })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().expect("work without a panic"));
    }
}

/// Both servers with the records in them.
struct Pair {
    store: Store,
    daemon: Daemon,
    records: Records,
    rounds: usize,
    turn: Duration,
}

/// What one side did in all its turns.
struct Side {
    times: Times,
    /// By turn: the median of its times, and operations in a second.
    medians: Vec<f64>,
    rates: Vec<f64>,
}

impl Side {
    fn new() -> Side {
        Side { times: Times::new(), medians: Vec::new(), rates: Vec::new() }
    }

    fn p99(&self) -> f64 {
        self.times.quantile_ns(0.99) as f64
    }
}

/// How the operations of a turn follow each other: each on the answer before, or each at its time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loop {
    Closed,
    Open,
}

fn turn(clients: &mut [Box<dyn Client>], kind: Loop, at: u64, length: Duration) -> Vec<u64> {
    let began = Instant::now();
    let run = |client: &mut Box<dyn Client>, first: u64| {
        let (mut times, mut record) = (Vec::new(), first);
        let mut due = Instant::now();
        while began.elapsed() < length {
            if kind == Loop::Open {
                due += BETWEEN;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            } else {
                due = Instant::now();
            }
            record = (record + 7919) % RECORDS;
            client.run(record);
            times.push(due.elapsed().as_nanos() as u64);
        }
        times
    };
    if let [client] = clients {
        return run(client, at);
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter_mut()
            .enumerate()
            .map(|(index, client)| scope.spawn(move || run(client, at + 101 * index as u64)))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a client does not panic")).collect()
    })
}

impl Pair {
    fn start(rounds: usize) -> Result<Pair, String> {
        let listen = Some((Ipv4Addr::LOCALHOST, 0).into());
        let config = ServerConfig { memory_bytes: 256 << 20, listen, pin: false, ..ServerConfig::default() };
        let mut store = Store::start("busy", config)?;
        store.load(RECORDS)?;
        let records = Records::new(RECORDS, 32);
        let daemon = Memcached::serve(records)?;
        let mut loader = Blocking::<Memcached>::open(&daemon, records)?;
        for first in (0..RECORDS).step_by(64) {
            let puts = (first..RECORDS.min(first + 64)).collect();
            loader.run(&Batch { gets: vec![], puts })?;
        }
        let turn = if rounds < ROUNDS_MAX { TURN_SMALL } else { TURN };
        Ok(Pair { store, daemon, records, rounds: rounds.min(ROUNDS_MAX), turn })
    }

    /// So many clients of each, in turn; a turn of each goes before that does not count.
    fn compare(
        &self,
        clients: usize,
        kind: Loop,
        (fabric, path, puts): (FabricChoice, Path, bool),
    ) -> Result<[Side; 2], String> {
        let ours = |_| Ok(Box::new(Ours::open(&self.store, fabric, path, puts)?) as Box<dyn Client>);
        let theirs = |_| Ok(Box::new(Theirs::open(&self.daemon, self.records, puts)?) as Box<dyn Client>);
        let mut clients = [
            (0..clients).map(ours).collect::<Result<Vec<_>, String>>()?,
            (0..clients).map(theirs).collect::<Result<Vec<_>, String>>()?,
        ];
        let mut sides = [Side::new(), Side::new()];
        for round in 0..=self.rounds {
            for step in 0..2 {
                let which = (round + step) % 2;
                let began = Instant::now();
                let times = turn(&mut clients[which], kind, round as u64, self.turn);
                let rate = times.len() as f64 / began.elapsed().as_secs_f64();
                if round == 0 {
                    continue;
                }
                let side = &mut sides[which];
                times.iter().for_each(|ns| side.times.note(*ns));
                side.medians.push(median(&times.iter().map(|ns| *ns as f64).collect::<Vec<_>>()));
                side.rates.push(rate);
            }
        }
        Ok(sides)
    }

    /// A row about one client's times: of the ratios of the medians and of the 99th percentiles the worse one
    /// counts.
    fn latency(
        &self,
        (id, name): (&'static str, &'static str),
        wanted: f64,
        what: (FabricChoice, Path, bool),
        placement: Placement,
    ) -> Result<Row, String> {
        placement.arrange(self.daemon.pid());
        let compared = self.compare(1, Loop::Closed, what);
        Placement::Anywhere.arrange(self.daemon.pid());
        let [ours, theirs] = compared?;
        let (our_median, their_median) = (median(&ours.medians), median(&theirs.medians));
        let ratios = (our_median / their_median, ours.p99() / theirs.p99());
        let (suffix, where_) = placement.names();
        Ok(Row {
            id: format!("{id}{suffix}").into(),
            name: format!("{name}{where_}").into(),
            ours: our_median / 1e3,
            other: Some(their_median / 1e3),
            unit: "us",
            ratio: ratios.0.max(ratios.1),
            wanted: Some(wanted),
            sense: Sense::AtMost,
            note: format!(
                "the worse of two ratios; medians {:.2}; p99 {:.0} and {:.0} us, {:.2}; {} rounds",
                ratios.0,
                ours.p99() / 1e3,
                theirs.p99() / 1e3,
                ratios.1,
                ours.medians.len()
            ),
        })
    }

    /// A row about the times of operations that are due one after the other, whatever becomes of those
    /// before.
    fn open(
        &self,
        (id, name): (&'static str, &'static str),
        wanted: Option<f64>,
        (path, puts): (Path, bool),
    ) -> Result<Row, String> {
        let [ours, theirs] = self.compare(1, Loop::Open, (FabricChoice::Tcp, path, puts))?;
        Ok(Row {
            id: id.into(),
            name: name.into(),
            ours: ours.p99() / 1e3,
            other: Some(theirs.p99() / 1e3),
            unit: "us",
            ratio: ours.p99() / theirs.p99(),
            wanted,
            sense: Sense::AtMost,
            note: format!(
                "p99 from the time at which each is due, 1,000 a second; medians {:.0} and {:.0} us; {:.0} and {:.0} a second; {} rounds",
                median(&ours.medians) / 1e3,
                median(&theirs.medians) / 1e3,
                median(&ours.rates),
                median(&theirs.rates),
                ours.medians.len()
            ),
        })
    }

    /// A row about the rate of many clients.
    fn crowd(
        &self,
        (id, name): (&'static str, &'static str),
        clients: usize,
        wanted: Option<f64>,
        fabric: FabricChoice,
    ) -> Result<Row, String> {
        let [ours, theirs] = self.compare(clients, Loop::Closed, (fabric, Path::Message, false))?;
        let ratios: Vec<f64> =
            ours.rates.iter().zip(&theirs.rates).map(|(ours, theirs)| ours / theirs).collect();
        Ok(Row {
            id: id.into(),
            name: name.into(),
            ours: median(&ours.rates),
            other: Some(median(&theirs.rates)),
            unit: "operations/s",
            ratio: median(&ratios),
            wanted,
            sense: Sense::AtLeast,
            note: format!(
                "p99 {:.0} and {:.0} us; {} rounds",
                ours.p99() / 1e3,
                theirs.p99() / 1e3,
                ratios.len()
            ),
        })
    }
}

/// Resident memory of this process, in MiB.
fn resident() -> f64 {
    resident_bytes(std::process::id()) as f64 / MIB
}

/// A session over TCP of a client that keeps nothing and never says anything again.
fn greet(address: &str) -> Result<Greeting, String> {
    let socket = TcpStream::connect(address).map_err(text)?;
    let mut greeting = Greeting::new(socket, None, 1 << 10, Duration::from_secs(60)).map_err(text)?;
    let (versions, purpose) = (SPOKEN, Purpose::Session);
    let hello = Frame::Hello { versions, features: 0, purpose, caller: None, namespace: String::new() };
    let (kind, bytes) = hello.encode();
    let (kind, bytes) = greeting.ask(kind, &bytes).map_err(text)?;
    match Frame::decode(kind, &bytes) {
        Some(Frame::Welcome { .. }) => Ok(greeting),
        other => Err(format!("a server that answers {other:?}")),
    }
}

/// What sessions that do nothing cost the server, and what is left of it when they have gone.
fn silent() -> Result<Vec<Row>, String> {
    kelix_server::prepare_process();
    let listen = Some((Ipv4Addr::LOCALHOST, 0).into());
    let config = ServerConfig {
        memory_bytes: 512 << 20,
        shards: SILENT_SHARDS,
        listen,
        pin: false,
        ..ServerConfig::default()
    };
    let store = Store::start("silent", config)?;
    let address = std::fs::read_to_string(kelix_fabric::shm::RunDirectory(store.directory.clone()).tcp())
        .map_err(text)?;
    let before = resident();
    let greetings = (0..SILENT).map(|_| greet(address.trim())).collect::<Result<Vec<_>, _>>()?;
    let during = resident() - before;
    drop(greetings);
    // The server notices one after the other. What was measured before may give back some memory meanwhile,
    // too.
    let began = Instant::now();
    let mut after = resident() - before;
    while after > 8.0 && began.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(50));
        after = resident() - before;
    }
    let row = |id: &'static str, name: &'static str, ours: f64, wanted: f64| Row {
        id: id.into(),
        name: name.into(),
        ours,
        other: None,
        unit: "MiB",
        ratio: ours,
        wanted: Some(wanted),
        sense: Sense::AtMost,
        note: format!(
            "resident beyond the {before:.0} MiB before; the other ends of the sockets are in the same process"
        ),
    };
    Ok(vec![
        row("tcp_sessions", "memory of 1,000 silent sessions over TCP, 8 shards", during, 128.0),
        row("tcp_sessions_left", "what is left of it when they have gone", after.max(0.0), 16.0),
    ])
}

/// All rows.
pub(super) fn busy(rounds: usize) -> Result<Vec<Row>, String> {
    // First, while this process has little memory of its own to give back.
    let mut rows = silent()?;
    let pair = Pair::start(rounds)?;
    rows.push(pair.crowd(
        ("crowd_8", "8 clients by message over TCP / memcached"),
        8,
        Some(1.0),
        FabricChoice::Tcp,
    )?);
    rows.push(pair.crowd(
        ("crowd_64", "64 clients by message over TCP / memcached"),
        64,
        Some(0.8),
        FabricChoice::Tcp,
    )?);
    rows.push(pair.crowd(
        ("crowd_8_shm", "8 clients by message in shared memory / memcached over TCP"),
        8,
        None,
        FabricChoice::Shm,
    )?);
    let work = Work::spinners();
    for (id, name, fabric, path, puts) in [
        (
            "busy_tcp_get",
            "get over TCP beside a spinning thread a core / memcached",
            FabricChoice::Tcp,
            Path::Index,
            false,
        ),
        (
            "busy_tcp_put",
            "put over TCP beside a spinning thread a core / memcached",
            FabricChoice::Tcp,
            Path::Index,
            true,
        ),
        (
            "busy_message",
            "get by message in shared memory beside a spinning thread a core / memcached",
            FabricChoice::Shm,
            Path::Message,
            false,
        ),
    ] {
        for placement in [Placement::Anywhere, Placement::OneCore, Placement::TwoCores] {
            rows.push(pair.latency((id, name), 3.0, (fabric, path, puts), placement)?);
        }
    }
    drop(work);
    let _work = Work::build(pair.store.directory.clone());
    for (id, name, wanted, path, puts) in [
        (
            "busy_open",
            "gets over TCP at 1,000 a second beside a build / memcached",
            Some(1.5),
            Path::Auto,
            false,
        ),
        ("busy_open_index", "the same by the index, two READs each / memcached", None, Path::Index, false),
        (
            "busy_open_put",
            "puts over TCP at 1,000 a second beside a build / memcached",
            Some(1.5),
            Path::Index,
            true,
        ),
    ] {
        rows.push(pair.open((id, name), wanted, (path, puts))?);
    }
    Ok(rows)
}
