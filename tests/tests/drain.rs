//! A server that is told to end while many clients write, over each fabric and in each way there is: what it
//! has executed it has acknowledged, and whoever gets no answer knows at once, by the end of its connection.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kelix::{ErrorKind, FabricChoice, Outcome, Path, Session, SessionOptions, Table, Ticket};
use kelix_server::{Server, ServerConfig};
use kelix_tests::process::{ServerProcess, ServerProgram};
use kelix_tests::{RunDir, far, until, value, watchdog};

/// Far beyond the watchdog: no client's wait may end by this.
const NEVER: Duration = Duration::from_secs(100_000);
/// Keys of a writer: so many small values are under way at once. Of large ones, which fill rings, it is
/// fewer.
const TOGETHER: u64 = 250;
const LARGE_TOGETHER: usize = 24;

/// By key, the counter that was last acknowledged.
type Acknowledged = HashMap<u64, u64>;

/// A client's way to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// One put after the other, under one key.
    Alone,
    /// Batches, of values that fill rings.
    Batches,
    /// As many under way as keys.
    Submitted,
}

struct Writer<'a> {
    session: Session,
    table: Table,
    keys: std::ops::Range<u64>,
    wrote: &'a AtomicU64,
    acknowledged: Acknowledged,
}

impl Writer<'_> {
    fn acknowledge(&mut self, key: u64, counter: u64) {
        self.acknowledged.insert(key, counter);
        self.wrote.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes until the server has gone.
    fn run(mut self, way: Way) -> Acknowledged {
        for counter in 1.. {
            let error = match way {
                Way::Alone => self.put_alone(counter),
                Way::Batches => self.put_together(counter),
                Way::Submitted => self.submit(counter),
            };
            if let Err(kind) = error {
                assert_eq!(kind, ErrorKind::Unavailable, "{way:?}");
                break;
            }
        }
        self.acknowledged
    }

    fn put_alone(&mut self, counter: u64) -> Result<(), ErrorKind> {
        let key = self.keys.start;
        let put = self.session.put(self.table, &key.to_le_bytes(), &value::make(key, counter, 100));
        put.map(|_| self.acknowledge(key, counter)).map_err(|error| error.kind())
    }

    fn put_together(&mut self, counter: u64) -> Result<(), ErrorKind> {
        let keys = self.keys.clone().take(LARGE_TOGETHER);
        let items: Vec<_> =
            keys.clone().map(|key| (key.to_le_bytes(), value::make(key, counter, 20_000))).collect();
        let items: Vec<(&[u8], &[u8])> = items.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        let results = self.session.multi_put(self.table, &items).map_err(|error| error.kind())?;
        let mut worst = Ok(());
        for (key, result) in keys.zip(results) {
            match result {
                Ok(_) => self.acknowledge(key, counter),
                Err(error) => worst = Err(error.kind()),
            }
        }
        worst
    }

    fn submit(&mut self, counter: u64) -> Result<(), ErrorKind> {
        let mut under_way: HashMap<Ticket, u64> = HashMap::new();
        for key in self.keys.clone() {
            let value = value::make(key, counter, 40);
            let ticket = self.session.submit_put(self.table, &key.to_le_bytes(), &value);
            under_way.insert(ticket.map_err(|error| error.kind())?, key);
        }
        let (mut done, mut worst) = (Vec::new(), Ok(()));
        while !under_way.is_empty() {
            self.session.poll(&mut done).map_err(|error| error.kind())?;
            for completion in done.drain(..) {
                let key = under_way.remove(&completion.ticket).expect("a ticket of this round");
                match completion.outcome {
                    Ok(Outcome::Written(_)) => self.acknowledge(key, counter),
                    Ok(other) => panic!("a put ended with {other:?}"),
                    Err(error) => worst = Err(error.kind()),
                }
            }
        }
        worst
    }
}

/// Reads what keys have in the memory that the server left, and compares. A segment that came last may not be
/// mapped here. Returns of how many keys it could tell.
fn compare(reader: &mut Session, table: Table, acknowledged: &Acknowledged, way: Way) -> usize {
    let mut told = 0;
    for (key, counter) in acknowledged {
        match reader.get(table, &key.to_le_bytes()) {
            Ok(item) => {
                let item = item.expect("a key that was put");
                let left = value::check(*key, item.value()).expect("a whole value");
                assert_eq!(left, *counter, "key {key}, written {way:?}: done is not what was acknowledged");
                told += 1;
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
    }
    told
}

fn serve(run: &RunDir) -> ServerProcess {
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    // So much that the first segment holds all that is written while what it replaces rests.
    let memory_bytes = 4 << 30;
    ServerProgram { program, directory: run.path(), shards: 2, memory_bytes, take_over: false }.serve()
}

/// A session that waits for ever.
fn session(server: &ServerProcess, fabric: FabricChoice) -> Session {
    let options = SessionOptions::default().timeout(NEVER);
    match fabric {
        FabricChoice::Shm => server.client().session_with(options).expect("a server that serves"),
        _ => server.far_session(options),
    }
}

fn writing_until_the_end(fabric: FabricChoice) {
    let run = RunDir::new();
    let mut server = serve(&run);
    let mut reader = server.session_by(Path::Index);
    let table = reader.create_table("t").expect("a table");
    let ways = [Way::Alone, Way::Submitted, Way::Alone, Way::Batches, Way::Submitted, Way::Alone];
    let wrote: Vec<AtomicU64> = ways.iter().map(|_| AtomicU64::new(0)).collect();
    let writer = |index: usize| {
        let session = session(&server, fabric);
        let keys = index as u64 * TOGETHER..(index as u64 + 1) * TOGETHER;
        Writer { session, table, keys, wrote: &wrote[index], acknowledged: Acknowledged::new() }
    };
    let writers: Vec<Writer<'_>> = (0..ways.len()).map(writer).collect();
    let ended = std::thread::scope(|scope| {
        let started: Vec<_> = writers
            .into_iter()
            .zip(ways)
            .map(|(writer, way)| (way, scope.spawn(move || writer.run(way))))
            .collect();
        until("all write", || wrote.iter().all(|wrote| wrote.load(Ordering::Relaxed) > 100));
        // All that is mapped now can be read in the end.
        for key in 0..ways.len() as u64 * TOGETHER {
            let _ = reader.get(table, &key.to_le_bytes()).expect("a get");
        }
        assert_eq!(server.stop(), "stopped");
        started
            .into_iter()
            .map(|(way, writer)| {
                (way, writer.join().expect("an end without an answer is an error like others"))
            })
            .collect::<Vec<_>>()
    });
    let told: usize =
        ended.iter().map(|(way, acknowledged)| compare(&mut reader, table, acknowledged, *way)).sum();
    let all: usize = ended.iter().map(|(_, acknowledged)| acknowledged.len()).sum();
    assert!(told > all / 10, "{told} of {all} keys can be read");
}

#[test]
fn what_was_done_was_acknowledged() {
    let _watchdog = watchdog("servers that end while clients write");
    for fabric in [FabricChoice::Shm, far()] {
        for _ in 0..5 {
            writing_until_the_end(fabric);
        }
    }
}

/// Sessions whose puts are with a server that stands still: how many of them, and how many puts each. They
/// find room in the rings, and are more than a shard takes in a few steps.
const CROWD: u64 = 6;
const EACH: u64 = 250;

/// What came while the server stood still, and was there when it was told to end.
fn arrived_before_the_end(fabric: FabricChoice) {
    let run = RunDir::new();
    let mut server = serve(&run);
    let mut reader = server.session_by(Path::Index);
    let table = reader.create_table("t").expect("a table");
    for key in 0..CROWD * EACH {
        reader.put(table, &key.to_le_bytes(), &value::make(key, 1, 40)).expect("a put");
    }
    let mut sessions: Vec<Session> = (0..CROWD).map(|_| session(&server, fabric)).collect();
    server.process.stop_still();
    let (mut under_way, mut done) = (HashMap::new(), Vec::new());
    for (index, session) in (0..).zip(&mut sessions) {
        for key in index * EACH..(index + 1) * EACH {
            let ticket = session.submit_put(table, &key.to_le_bytes(), &value::make(key, 2, 40));
            under_way.insert((index, ticket.expect("a put that is queued")), key);
        }
        assert_eq!(session.poll(&mut done).expect("they are sent"), 0);
    }
    server.process.say("stop");
    server.process.go_on();
    let mut acknowledged: Acknowledged = (0..CROWD * EACH).map(|key| (key, 1)).collect();
    while !under_way.is_empty() {
        for (index, session) in (0..).zip(&mut sessions) {
            session.poll(&mut done).expect("a poll");
            for completion in done.drain(..) {
                let key = under_way.remove(&(index, completion.ticket)).expect("a put of this session");
                match completion.outcome {
                    Ok(_) => drop(acknowledged.insert(key, 2)),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
                }
            }
        }
        std::thread::yield_now();
    }
    assert_eq!(server.process.expect("ended "), "stopped");
    assert_eq!(compare(&mut reader, table, &acknowledged, Way::Submitted), acknowledged.len());
    let answered = acknowledged.values().filter(|counter| **counter == 2).count() as u64;
    assert_eq!(answered, CROWD * EACH, "what has arrived over {fabric:?} is done and answered");
}

#[test]
fn what_has_arrived_is_done_and_answered() {
    let _watchdog = watchdog("servers that end with full rings");
    for fabric in [FabricChoice::Shm, far()] {
        for _ in 0..5 {
            arrived_before_the_end(fabric);
        }
    }
}

#[test]
fn shards_answer_for_as_long_as_they_go_round() {
    let run = RunDir::new();
    let config = ServerConfig {
        directory: run.path().into(),
        shards: 3,
        memory_bytes: 64 << 20,
        pin: false,
        ..ServerConfig::default()
    };
    let server = Server::start(&config).expect("a server");
    let statistics = server.statistics();
    // The second time they sleep.
    for _ in 0..2 {
        assert!(statistics.shards_answer(NEVER));
        std::thread::sleep(Duration::from_millis(5));
    }
    server.stop();
    assert!(!statistics.shards_answer(NEVER), "shards that have ended answer");
}
