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

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

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

    /// How busy the server's threads were while batches were done together, since this was asked last, as a share of the time. `None`: it
    /// has none, or is ours.
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
                send_all(&self.socket, &script.requests[request]).map_err(text)?;
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
        send_all(&self.socket, &one.requests).map_err(text)?;
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
pub(super) struct Keyed {
    gets: Vec<[u8; KEY_BYTES]>,
    puts: Vec<[u8; KEY_BYTES]>,
    /// The values that are to be got, and then those to be put.
    values: Vec<u8>,
}

impl Keyed {
    pub fn new(batch: &Batch, records: Records) -> Keyed {
        let keys = |records: &[u64]| records.iter().map(|record| key(*record)).collect();
        let mut values = Vec::with_capacity(batch.len() * records.value_bytes);
        for record in batch.gets.iter().chain(&batch.puts) {
            records.write_value(*record, &mut values);
        }
        Keyed { gets: keys(&batch.gets), puts: keys(&batch.puts), values }
    }

    /// Keys to get, with the values that are to come.
    pub fn gets(&self, records: Records) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.gets.iter().map(|key| &key[..]).zip(self.values.chunks_exact(records.value_bytes))
    }

    /// Keys to put, with their values.
    pub fn puts(&self, records: Records) -> impl Iterator<Item = (&[u8], &[u8])> {
        let values = &self.values[self.gets.len() * records.value_bytes..];
        self.puts.iter().map(|key| &key[..]).zip(values.chunks_exact(records.value_bytes))
    }

    pub fn has_gets(&self) -> bool {
        !self.gets.is_empty()
    }

    pub fn has_puts(&self) -> bool {
        !self.puts.is_empty()
    }

    pub fn len(&self) -> u64 {
        (self.gets.len() + self.puts.len()) as u64
    }

    /// What is said of a key whose value was not the wanted one.
    pub fn wrong(key: &[u8]) -> String {
        format!("{} has a value that was not put", String::from_utf8_lossy(key))
    }
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
        let mut session = store.client.session_with(options).map_err(text)?;
        let table = session.table("records").map_err(text)?;
        let value = vec![0; records.value_bytes];
        Ok(Kelix { session, table, store, records, batches: Vec::new(), at: 0, values: Values::new(), value })
    }

    fn get_one(&mut self) -> Result<(), String> {
        let (key, wanted) = self.batches[self.at].gets(self.records).next().expect("one");
        let found = self.session.get_into(self.table, key, &mut self.value).map_err(text)?;
        let same = found.is_some() && self.records.same(&self.value, wanted);
        if same { Ok(()) } else { Err(Keyed::wrong(key)) }
    }

    fn put_one(&mut self) -> Result<(), String> {
        let (key, value) = self.batches[self.at].puts(self.records).next().expect("one");
        self.session.put(self.table, key, value).map(drop).map_err(text)
    }

    fn get_and_put(&mut self) -> Result<(), String> {
        let batch = &self.batches[self.at];
        let keys: Vec<&[u8]> = batch.gets.iter().map(|key| &key[..]).collect();
        let items: Vec<(&[u8], &[u8])> = batch.puts(self.records).collect();
        let results = self.session.multi_get_put(self.table, &keys, &mut self.values, &items);
        for result in results.map_err(text)? {
            result.map_err(text)?;
        }
        for (index, (key, wanted)) in batch.gets(self.records).enumerate() {
            if !self.values.get(index).is_some_and(|value| self.records.same(value, wanted)) {
                return Err(Keyed::wrong(key));
            }
        }
        Ok(())
    }
}

impl Engine for Kelix {
    fn name(&self) -> &'static str {
        "kelix"
    }

    fn prepare(&mut self, batches: &[Batch]) {
        self.batches = batches.iter().map(|batch| Keyed::new(batch, self.records)).collect();
        self.at = 0;
    }

    fn run(&mut self, batches: usize, _: bool) -> Result<u64, String> {
        let mut operations = 0;
        for _ in 0..batches {
            let batch = &self.batches[self.at];
            match (batch.gets.len(), batch.puts.len()) {
                (1, 0) => self.get_one()?,
                (0, 1) => self.put_one()?,
                _ => self.get_and_put()?,
            }
            operations += self.batches[self.at].len();
            self.at = (self.at + 1) % self.batches.len();
        }
        Ok(operations)
    }

    fn follow(&mut self, record: u64) -> Result<u64, String> {
        let found = self.session.get_into(self.table, &key(record), &mut self.value);
        found.map_err(text)?.ok_or("a loaded record is absent")?;
        Ok(verify(&self.value, record))
    }

    fn take_busy(&mut self) -> Option<f64> {
        None
    }

    fn memory_bytes(&mut self) -> u64 {
        self.store.memfd_bytes()
    }
}
