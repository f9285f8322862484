//! A peer: its server, and clients that say what was worked out beforehand.

use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Setup;
use super::engine::{Client, Engine, run_all, start_of, text};
use super::protocol::Protocol;
use crate::store::verify;
use crate::workload::{Batch, Records};
use kelix_report::cores::{cores, pin_process};
use kelix_report::daemon::Daemon;
use kelix_report::socket::{receive, send_all};

/// Batches that are under way at once in the rows about rate.
const WINDOW: usize = 4;

/// What is sent for batches and what must come back.
#[derive(Default)]
struct Script {
    requests: Vec<u8>,
    answers: Vec<u8>,
    /// Ends of each batch in both, and its operations.
    ends: Vec<(usize, usize, usize)>,
}

impl Script {
    fn of<P: Protocol>(batches: &[Batch], records: Records) -> Script {
        let mut script = Script::default();
        let Script { requests, answers, ends } = &mut script;
        for batch in batches {
            P::say(batch, records, requests, answers);
            ends.push((requests.len(), answers.len(), batch.len()));
        }
        script
    }

    fn range(&self, batch: usize) -> (Range<usize>, Range<usize>, usize) {
        let (request, answer, _) = batch.checked_sub(1).map_or((0, 0, 0), |before| self.ends[before]);
        let (request_end, answer_end, operations) = self.ends[batch];
        (request..request_end, answer..answer_end, operations)
    }
}

/// A connection to a peer, and where in the script it is.
struct Connection<P> {
    socket: OwnedFd,
    records: Records,
    script: Arc<Script>,
    at: usize,
    received: Vec<u8>,
    protocol: PhantomData<fn() -> P>,
}

impl<P: Protocol> Connection<P> {
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

    fn follow(&mut self, record: u64) -> Result<u64, String> {
        let batch = Batch { gets: vec![record], puts: Vec::new() };
        let one = Script::of::<P>(&[batch], self.records);
        send_all(&self.socket, &one.requests).map_err(text)?;
        self.expect(&one.answers)?;
        Ok(verify(&self.received[P::value_at(self.records)..], record))
    }
}

impl<P: Protocol> Client for Connection<P> {
    fn run(&mut self, batches: usize, together: bool) -> Result<u64, String> {
        let (script, window) = (self.script.clone(), if together { WINDOW } else { 1 });
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

/// A peer's server with its clients.
pub(super) struct Peer<P> {
    daemon: Daemon,
    connections: Vec<Connection<P>>,
    records: Records,
    threads: usize,
    /// Time of blocks about rate, and processor time of the server in them.
    measured: (Duration, Duration),
}

impl<P: Protocol> Peer<P> {
    pub fn start(setup: &Setup, records: Records) -> Result<Peer<P>, String> {
        let arguments = |address: &_, folder: &_| P::arguments(address, folder, records, setup.threads);
        let daemon = Daemon::start(P::PROGRAM, setup.transport, arguments)?;
        let connect = |_| {
            Ok::<_, String>(Connection {
                socket: daemon.connect()?,
                records,
                script: Arc::default(),
                at: 0,
                received: Vec::new(),
                protocol: PhantomData,
            })
        };
        let connections = (0..setup.clients).map(connect).collect::<Result<_, _>>()?;
        Ok(Peer { daemon, connections, records, threads: setup.threads, measured: Default::default() })
    }
}

impl<P: Protocol> Engine for Peer<P> {
    fn name(&self) -> &'static str {
        P::PROGRAM
    }

    fn prepare(&mut self, batches: &[Batch]) {
        let (script, clients) = (Arc::new(Script::of::<P>(batches, self.records)), self.connections.len());
        for (index, connection) in self.connections.iter_mut().enumerate() {
            connection.script = script.clone();
            connection.at = start_of(index, clients, batches.len());
        }
    }

    fn run(&mut self, batches: usize, together: bool) -> Result<u64, String> {
        if !together {
            return run_all(&mut self.connections, batches, false);
        }
        let (began, used) = (Instant::now(), self.daemon.processor_time());
        let operations = run_all(&mut self.connections, batches, true)?;
        self.measured.0 += began.elapsed() * self.threads as u32;
        self.measured.1 += self.daemon.processor_time().saturating_sub(used);
        Ok(operations)
    }

    fn follow(&mut self, record: u64) -> Result<u64, String> {
        self.connections[0].follow(record)
    }

    fn take_busy(&mut self) -> Option<f64> {
        let (time, used) = std::mem::take(&mut self.measured);
        (!time.is_zero()).then(|| used.as_secs_f64() / time.as_secs_f64())
    }

    fn unpin(&mut self) {
        pin_process(self.daemon.pid(), 0..cores());
    }

    fn memory_bytes(&mut self) -> u64 {
        self.daemon.resident_bytes()
    }
}
