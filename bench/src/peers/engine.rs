//! What stores records under measurement: a peer, or us.

use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use kelix::{FabricChoice, Session, SessionOptions, Table, Values};
use kelix_server::ServerConfig;

use super::daemon::{Daemon, Transport};
use super::protocol::Protocol;
use crate::socket::{receive, send_all};
use crate::store::{Store, verify};
use crate::workload::{Batch, KEY_BYTES, Records, key};

/// Batches that are under way at once in the rows about rate.
const WINDOW: usize = 4;
/// Records of a batch while they are loaded.
const LOAD: u64 = 64;
/// Batches that are loaded at once.
const LOADS: u64 = 256;

/// Something that stores records.
pub(super) trait Engine {
    /// How it is called in notes.
    fn name(&self) -> &'static str;

    /// The batches that `run` does from now on, one after the other, and again from the first.
    fn prepare(&mut self, batches: &[Batch]);

    /// Does so many batches, verifies every answer, and returns how many operations these were. Together: the next ones are
    /// sent before the first is answered.
    fn run(&mut self, batches: usize, together: bool) -> Result<u64, String>;

    /// Gets a record; which one follows, as its value says.
    fn follow(&mut self, record: u64) -> Result<u64, String>;

    /// How busy the server's threads were while batches were done together, since this was asked last, as a share of the time. Ours
    /// does not say.
    fn take_busy(&mut self) -> Option<f64>;

    /// Memory that it has from the system, in bytes.
    fn memory_bytes(&mut self) -> u64;
}

/// Puts all records, in batches.
pub(super) fn load(engine: &mut dyn Engine, records: Records) -> Result<(), String> {
    let batch =
        |first: u64| Batch { gets: Vec::new(), puts: (first..records.count.min(first + LOAD)).collect() };
    // Values of some size fill little memory at a time.
    let at_once = (LOADS * 32 / records.value_bytes as u64).max(1) * LOAD;
    for first in (0..records.count).step_by(at_once as usize) {
        let end = records.count.min(first + at_once);
        let batches: Vec<Batch> = (first..end).step_by(LOAD as usize).map(batch).collect();
        engine.prepare(&batches);
        engine.run(batches.len(), true)?;
    }
    Ok(())
}

/// What is sent for batches and what must come back, worked out beforehand.
#[derive(Default)]
struct Script {
    requests: Vec<u8>,
    answers: Vec<u8>,
    /// Ends of each batch in both, and its operations.
    ends: Vec<(usize, usize, usize)>,
}

impl Script {
    /// Keeps the memory, and nothing in it.
    fn clear(&mut self) {
        self.requests.clear();
        self.answers.clear();
        self.ends.clear();
    }

    fn range(&self, batch: usize) -> (std::ops::Range<usize>, std::ops::Range<usize>, usize) {
        let (request, answer, _) = batch.checked_sub(1).map_or((0, 0, 0), |before| self.ends[before]);
        let (request_end, answer_end, operations) = self.ends[batch];
        (request..request_end, answer..answer_end, operations)
    }
}

/// A peer: its server, a connection, and what is said over it.
pub(super) struct Peer<P> {
    daemon: Daemon,
    socket: OwnedFd,
    records: Records,
    script: Script,
    at: usize,
    received: Vec<u8>,
    one: Script,
    /// Time of blocks about rate, and processor time of the server in them.
    measured: (Duration, Duration),
    protocol: PhantomData<P>,
}

impl<P: Protocol> Peer<P> {
    pub fn start(transport: Transport, records: Records) -> Result<Peer<P>, String> {
        let arguments = |address: &_, folder: &_| P::arguments(address, folder, records);
        let daemon = Daemon::start(P::PROGRAM, transport, arguments)?;
        let socket = daemon.connect()?;
        Ok(Peer {
            daemon,
            socket,
            records,
            script: Script::default(),
            at: 0,
            received: Vec::new(),
            one: Script::default(),
            measured: Default::default(),
            protocol: PhantomData,
        })
    }

    /// Receives as many bytes as were expected and compares them.
    fn expect(&mut self, expected: &[u8]) -> Result<(), String> {
        self.received.resize(expected.len().max(self.received.len()), 0);
        let mut held = 0;
        while held < expected.len() {
            match receive(&self.socket, &mut self.received[held..expected.len()]) {
                Ok(bytes) if bytes > 0 => held += bytes,
                _ => return Err(self.surprise(expected, held)),
            }
        }
        if self.records.same(&self.received[..held], expected) {
            Ok(())
        } else {
            Err(self.surprise(expected, held))
        }
    }

    fn surprise(&self, expected: &[u8], held: usize) -> String {
        let at =
            expected.iter().zip(&self.received[..held]).take_while(|(wanted, came)| wanted == came).count();
        let near = |bytes: &[u8]| {
            String::from_utf8_lossy(&bytes[at.min(bytes.len())..bytes.len().min(at + 40)]).into_owned()
        };
        let (wanted, came) = (near(expected), near(&self.received[..held]));
        format!("{} answered {came:?} where {wanted:?} was expected", P::PROGRAM)
    }

    fn run_script(&mut self, batches: usize, window: usize) -> Result<u64, String> {
        let script = std::mem::take(&mut self.script);
        let outcome = self.send_and_expect(&script, batches, window);
        self.script = script;
        outcome
    }

    fn send_and_expect(&mut self, script: &Script, batches: usize, window: usize) -> Result<u64, String> {
        let (mut sent, mut done, mut operations) = (0, 0, 0);
        while done < batches {
            while sent < batches && sent - done < window {
                let (request, ..) = script.range((self.at + sent) % script.ends.len());
                send_all(&self.socket, &script.requests[request]).map_err(|error| error.to_string())?;
                sent += 1;
            }
            let (_, answer, count) = script.range((self.at + done) % script.ends.len());
            self.expect(&script.answers[answer])?;
            done += 1;
            operations += count as u64;
        }
        self.at = (self.at + batches) % script.ends.len();
        Ok(operations)
    }
}

impl<P: Protocol> Engine for Peer<P> {
    fn name(&self) -> &'static str {
        P::PROGRAM
    }

    fn prepare(&mut self, batches: &[Batch]) {
        let mut script = std::mem::take(&mut self.script);
        script.clear();
        let Script { requests, answers, ends } = &mut script;
        for batch in batches {
            P::say(batch, self.records, requests, answers);
            ends.push((requests.len(), answers.len(), batch.len()));
        }
        (self.script, self.at) = (script, 0);
    }

    fn run(&mut self, batches: usize, together: bool) -> Result<u64, String> {
        if !together {
            return self.run_script(batches, 1);
        }
        let (began, used) = (Instant::now(), self.daemon.processor_time());
        let operations = self.run_script(batches, WINDOW)?;
        self.measured.0 += began.elapsed();
        self.measured.1 += self.daemon.processor_time().saturating_sub(used);
        Ok(operations)
    }

    fn follow(&mut self, record: u64) -> Result<u64, String> {
        let mut one = std::mem::take(&mut self.one);
        one.clear();
        let batch = Batch { gets: vec![record], puts: Vec::new() };
        P::say(&batch, self.records, &mut one.requests, &mut one.answers);
        send_all(&self.socket, &one.requests).map_err(|error| error.to_string())?;
        self.expect(&one.answers)?;
        self.one = one;
        Ok(verify(&self.received[P::value_at(self.records)..], record))
    }

    fn take_busy(&mut self) -> Option<f64> {
        let (time, used) = std::mem::take(&mut self.measured);
        (!time.is_zero()).then(|| used.as_secs_f64() / time.as_secs_f64())
    }

    fn memory_bytes(&mut self) -> u64 {
        self.daemon.resident_bytes()
    }
}

/// Us.
pub(super) struct Kelix {
    // Dropped before the store that it is a session of.
    session: Session,
    table: Table,
    store: Store,
    records: Records,
    batches: Vec<Keyed>,
    at: usize,
    values: Values,
    value: Vec<u8>,
}

/// A batch with its keys and values.
struct Keyed {
    gets: Vec<[u8; KEY_BYTES]>,
    puts: Vec<[u8; KEY_BYTES]>,
    /// The values that are to be got, and then those to be put.
    values: Vec<u8>,
}

impl Kelix {
    pub fn start(transport: Transport, records: Records) -> Result<Kelix, String> {
        let item = records.value_bytes as u64 + 128;
        let listen = (transport == Transport::Tcp).then(|| (std::net::Ipv4Addr::LOCALHOST, 0).into());
        let config = ServerConfig {
            memory_bytes: (records.count * item * 3 / 2).max(256 << 20),
            listen,
            ..ServerConfig::default()
        };
        let store = Store::start("peers", config)?;
        let fabric = if transport == Transport::Tcp { FabricChoice::Tcp } else { FabricChoice::Shm };
        let options = SessionOptions { fabric: Some(fabric), ..SessionOptions::default() };
        let mut session = store.client.session_with(options).map_err(|error| error.to_string())?;
        let table = session.table("records").map_err(|error| error.to_string())?;
        let value = vec![0; records.value_bytes];
        Ok(Kelix { session, table, store, records, batches: Vec::new(), at: 0, values: Values::new(), value })
    }

    fn run_one(&mut self, at: usize) -> kelix::Result<u64> {
        let Keyed { gets, puts, values } = &self.batches[at];
        let bytes = self.records.value_bytes;
        let (wanted, new) = values.split_at(gets.len() * bytes);
        let wrong = |key: &[u8]| panic!("{} has the value of another", String::from_utf8_lossy(key));
        match &gets[..] {
            [] => {}
            [key] => {
                self.session.get_into(self.table, key, &mut self.value)?;
                if !self.records.same(&self.value, wanted) {
                    wrong(key);
                }
            }
            keys => {
                let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
                self.session.multi_get_into(self.table, &keys, &mut self.values)?;
                for (index, (key, wanted)) in keys.iter().zip(wanted.chunks_exact(bytes)).enumerate() {
                    if !self.values.get(index).is_some_and(|value| self.records.same(value, wanted)) {
                        wrong(key);
                    }
                }
            }
        }
        match &puts[..] {
            [] => {}
            [key] => {
                self.session.put(self.table, key, new)?;
            }
            keys => {
                let items: Vec<(&[u8], &[u8])> =
                    keys.iter().map(|key| &key[..]).zip(new.chunks_exact(bytes)).collect();
                for result in self.session.multi_put(self.table, &items)? {
                    result?;
                }
            }
        }
        Ok((gets.len() + puts.len()) as u64)
    }
}

impl Engine for Kelix {
    fn name(&self) -> &'static str {
        "kelix"
    }

    fn prepare(&mut self, batches: &[Batch]) {
        let keyed = |batch: &Batch| {
            let keys = |records: &[u64]| records.iter().map(|record| key(*record)).collect();
            let mut values = Vec::with_capacity(batch.len() * self.records.value_bytes);
            for record in batch.gets.iter().chain(&batch.puts) {
                self.records.write_value(*record, &mut values);
            }
            Keyed { gets: keys(&batch.gets), puts: keys(&batch.puts), values }
        };
        self.batches = batches.iter().map(keyed).collect();
        self.at = 0;
    }

    fn run(&mut self, batches: usize, _: bool) -> Result<u64, String> {
        let mut operations = 0;
        for _ in 0..batches {
            operations += self.run_one(self.at).map_err(|error| error.to_string())?;
            self.at = (self.at + 1) % self.batches.len();
        }
        Ok(operations)
    }

    fn follow(&mut self, record: u64) -> Result<u64, String> {
        let found = self.session.get_into(self.table, &key(record), &mut self.value);
        found.map_err(|error| error.to_string())?.ok_or("a loaded record is absent")?;
        Ok(verify(&self.value, record))
    }

    fn take_busy(&mut self) -> Option<f64> {
        None
    }

    fn memory_bytes(&mut self) -> u64 {
        self.store.memfd_bytes()
    }
}
