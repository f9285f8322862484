//! Clients: tasks that use the public library, and write down what they did and what came of it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use kelix::{
    CompareAndSet, Cost, Effect, Error, ErrorKind, Path, Session, SessionOptions, Table, TableId, Values,
    Version,
};
use kelix_image::Span;

use crate::fabric::Wire;
use crate::history::{Action, CompareOutcome, Operation, ValueId};
use crate::random::Random;
use crate::scheduler::{self, Shared, TaskId};
use crate::server::Server;
use crate::value;

/// Keys that come and go, so that the index grows and shrinks.
const COLD_KEYS: u64 = 900;
/// Operations after which the cold keys come instead of going, or the other way round.
const SEASON: u64 = 2_000;
/// How long a request may take.
const TIMEOUT_NS: u64 = 200_000;

/// What the clients of a run share.
pub struct Stage {
    /// The server that is in force, or soon will be.
    pub server: Shared<Server>,
    /// Memory of the pointer cache that sessions share.
    pub pointers: Span,
    /// What was done; `None` for what certainly had no effect.
    pub history: Shared<Vec<Option<Operation>>>,
    /// What cannot be, found on the way.
    pub findings: Shared<Vec<String>>,
    /// Operations that are still to be done.
    pub remaining: Shared<u64>,
    /// What clients were told about versions.
    pub versions: Shared<HashMap<u64, ValueId>>,
    /// Compare-and-sets that failed, whose version is to be made out: position in the history, version.
    pub mismatches: Shared<Vec<(usize, u64)>>,
    /// Costs and misfortunes.
    pub tally: Shared<Tally>,
    /// The connections that hold.
    pub wires: Shared<HashMap<TaskId, Wire>>,
    /// When each term began.
    pub terms: Shared<HashMap<u64, u64>>,
    /// The number of the next value.
    pub next_value: Shared<ValueId>,
    /// Keys that are wanted all the time: those below this.
    pub hot_keys: u64,
    /// How many operations in six are on keys that come and go.
    pub cold_in_6: u64,
}

/// What clients went through, summed up.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    /// Costs of all sessions.
    pub cost: Cost,
    /// Operations whose outcome is unknown.
    pub unknown: u64,
    /// Operations that were answered.
    pub answered: u64,
    /// Sessions that learnt of a successor.
    pub superseded: u64,
    /// Requests that ended in their time-out.
    pub timed_out: u64,
    /// Sessions that lost their connection.
    pub disconnected: u64,
    /// Writes refused for lack of memory.
    pub refused: u64,
}

/// One client.
pub struct Client {
    /// Its number.
    pub number: u32,
    /// What it shares with the others.
    pub stage: Rc<Stage>,
    /// Its own choices.
    pub random: Random,
    /// How its clock runs.
    pub drift_ppm: i64,
}

struct Connection {
    session: Session,
    table: Table,
    wire: Wire,
    term: u64,
    /// Costs already added to the tally.
    counted: Cost,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.wire.cut();
    }
}

/// What is known of a key that was seen: its version and the value of that version.
type Seen = HashMap<u64, (Version, ValueId)>;

impl Client {
    /// Works until nothing is left to do.
    pub fn run(mut self) {
        let mut connection: Option<Connection> = None;
        let mut seen = Seen::new();
        while take_one(&self.stage.remaining) {
            if connection.is_none() {
                seen.clear();
                connection = self.connect();
            }
            let Some(open) = connection.as_mut() else { continue };
            let outcome = self.act(open, &mut seen);
            self.count(open);
            if let Err(error) = outcome {
                let mut tally = self.stage.tally.borrow_mut();
                match error.kind() {
                    ErrorKind::Superseded => tally.superseded += 1,
                    ErrorKind::TimedOut => tally.timed_out += 1,
                    ErrorKind::Unavailable => tally.disconnected += 1,
                    ErrorKind::OutOfMemory => tally.refused += 1,
                    _ => self.stage.findings.borrow_mut().push(format!("an error that cannot be: {error}")),
                }
                let goes_on = match error.kind() {
                    ErrorKind::OutOfMemory => true,
                    // The answer may come yet, when nobody waits for it any more.
                    ErrorKind::TimedOut => !self.random.once_in(3),
                    _ => false,
                };
                if !goes_on {
                    connection = None;
                }
            }
        }
    }

    fn connect(&mut self) -> Option<Connection> {
        let server = self.stage.server.borrow().clone();
        let (connected, wire) = server.connect(self.drift_ppm, self.stage.pointers.clone());
        self.stage.wires.borrow_mut().insert(scheduler::current(), wire.clone());
        let options = SessionOptions {
            path: Path::Auto,
            private_pointers: false,
            timeout: Duration::from_nanos(TIMEOUT_NS),
        };
        let session = Session::simulated(connected, options).ok()?;
        let table = session.table_by_id(TableId(1));
        Some(Connection { session, table, wire, term: server.term, counted: Cost::default() })
    }

    fn count(&self, connection: &mut Connection) {
        let now = connection.session.cost();
        let mut tally = self.stage.tally.borrow_mut();
        tally.cost.reads += now.reads - connection.counted.reads;
        tally.cost.read_bytes += now.read_bytes - connection.counted.read_bytes;
        tally.cost.messages += now.messages - connection.counted.messages;
        tally.cost.retries += now.retries - connection.counted.retries;
        tally.cost.fallbacks += now.fallbacks - connection.counted.fallbacks;
        connection.counted = now;
    }

    fn key(&mut self) -> u64 {
        if self.random.below(6) < self.stage.cold_in_6 {
            self.stage.hot_keys + self.random.below(COLD_KEYS)
        } else {
            self.random.below(self.stage.hot_keys)
        }
    }

    fn new_value(&self) -> (ValueId, Vec<u8>) {
        let mut next = self.stage.next_value.borrow_mut();
        next.0 += 1;
        (*next, value::encode(*next))
    }

    fn act(&mut self, open: &mut Connection, seen: &mut Seen) -> Result<(), Error> {
        let paths = [Path::Auto, Path::Index, Path::Index, Path::Pointer, Path::Pointer, Path::Message];
        open.session.set_path(paths[self.random.below(6) as usize]);
        let key = self.key();
        if key >= self.stage.hot_keys {
            // Cold keys come for a season and go for the next, one after the other, so that few are left.
            let remaining = *self.stage.remaining.borrow();
            let coming = remaining / SEASON % 2 == 1;
            return match self.random.below(4) {
                0 => self.get(open, key, seen),
                _ if coming => self.put(open, key, seen),
                _ => self.delete(open, self.stage.hot_keys + remaining % COLD_KEYS),
            };
        }
        match self.random.below(16) {
            0..=5 => self.get(open, key, seen),
            6..=7 => self.get_into(open, key),
            8..=9 => self.get_many(open),
            10..=12 => self.put(open, key, seen),
            13 => self.delete(open, key),
            _ => self.compare_and_set(open, key, seen),
        }
    }

    /// Writes a read down.
    fn record(&self, term: u64, key: u64, called_ns: u64, action: Action) {
        let position = self.begin(term, key, called_ns, action.clone());
        self.finish(position, action);
    }

    /// Writes down that a write was called; its outcome is unknown as yet, and stays so if the client is killed. Each term
    /// begins with an empty store, so its keys are keys of their own.
    fn begin(&self, term: u64, key: u64, called_ns: u64, action: Action) -> usize {
        let mut history = self.stage.history.borrow_mut();
        let key = term << 32 | key;
        history.push(Some(Operation { client: self.number, key, called_ns, returned_ns: None, action }));
        history.len() - 1
    }

    /// Writes down what came of it.
    fn finish(&self, position: usize, action: Action) {
        let mut history = self.stage.history.borrow_mut();
        let operation = history[position].as_mut().expect("begun and not taken back");
        self.stage.tally.borrow_mut().answered += 1;
        let term = operation.key >> 32;
        let successor = self.stage.terms.borrow().get(&(term + 1)).copied();
        if let Some(since_ns) = successor.filter(|since_ns| *since_ns < operation.called_ns) {
            self.stage.findings.borrow_mut().push(format!(
                "client {}: an answer of term {term} to what was called at {}, after term {} began at {since_ns}: \
                 {action:?}",
                self.number,
                operation.called_ns,
                term + 1
            ));
        }
        operation.returned_ns = Some(scheduler::now_ns());
        operation.action = action;
    }

    /// A write failed. Takes it back if it certainly had no effect.
    fn fail(&self, position: usize, error: Error) -> Result<(), Error> {
        if error.effect() == Effect::Unknown {
            self.stage.tally.borrow_mut().unknown += 1;
        } else {
            self.stage.history.borrow_mut()[position] = None;
        }
        Err(error)
    }

    /// The value of some bytes that were read; a finding if there is none.
    fn decode(&self, bytes: &[u8]) -> ValueId {
        value::decode(bytes).unwrap_or_else(|what| {
            self.stage.findings.borrow_mut().push(format!("client {}: {what}", self.number));
            ValueId(0)
        })
    }

    /// A version belongs to one value.
    fn learn(&self, version: Version, id: ValueId) {
        let before = self.stage.versions.borrow_mut().insert(version.0, id);
        if let Some(before) = before.filter(|before| *before != id) {
            let what =
                format!("client {}: {version:?} is that of {id:?}, and was that of {before:?}", self.number);
            self.stage.findings.borrow_mut().push(what);
        }
    }

    fn get(&self, open: &mut Connection, key: u64, seen: &mut Seen) -> Result<(), Error> {
        let called_ns = scheduler::now_ns();
        let item = open.session.get(open.table, &key.to_le_bytes())?;
        let found = item.as_ref().map(|item| self.decode(item.value()));
        if let (Some(item), Some(id)) = (&item, found) {
            if item.key() != key.to_le_bytes() {
                self.stage.findings.borrow_mut().push(format!("an item of another key than {key}"));
            }
            self.learn(item.version(), id);
            seen.insert(key, (item.version(), id));
        }
        self.record(open.term, key, called_ns, Action::Get { found });
        Ok(())
    }

    fn get_into(&self, open: &mut Connection, key: u64) -> Result<(), Error> {
        let called_ns = scheduler::now_ns();
        let mut buffer = [0; 512];
        let found = open.session.get_into(open.table, &key.to_le_bytes(), &mut buffer)?;
        let found = found.map(|(length, version)| {
            let id = self.decode(&buffer[..length]);
            self.learn(version, id);
            id
        });
        self.record(open.term, key, called_ns, Action::Get { found });
        Ok(())
    }

    fn get_many(&mut self, open: &mut Connection) -> Result<(), Error> {
        let called_ns = scheduler::now_ns();
        let mut keys: Vec<u64> = (0..8).map(|_| self.key()).collect();
        keys.sort_unstable();
        keys.dedup();
        let bytes: Vec<[u8; 8]> = keys.iter().map(|key| key.to_le_bytes()).collect();
        let slices: Vec<&[u8]> = bytes.iter().map(|key| &key[..]).collect();
        let mut values = Values::new();
        open.session.multi_get_into(open.table, &slices, &mut values)?;
        for (index, key) in keys.iter().enumerate() {
            let found = values.get(index).map(|bytes| self.decode(bytes));
            self.record(open.term, *key, called_ns, Action::Get { found });
        }
        Ok(())
    }

    fn put(&self, open: &mut Connection, key: u64, seen: &mut Seen) -> Result<(), Error> {
        let (id, bytes) = self.new_value();
        let action = Action::Put { value: id };
        let position = self.begin(open.term, key, scheduler::now_ns(), action.clone());
        match open.session.put(open.table, &key.to_le_bytes(), &bytes) {
            Ok(version) => {
                self.learn(version, id);
                seen.insert(key, (version, id));
                self.finish(position, action);
                Ok(())
            }
            Err(error) => self.fail(position, error),
        }
    }

    fn delete(&self, open: &mut Connection, key: u64) -> Result<(), Error> {
        let action = |was_there| Action::Delete { was_there };
        let position = self.begin(open.term, key, scheduler::now_ns(), action(None));
        match open.session.delete(open.table, &key.to_le_bytes()) {
            Ok(was_there) => {
                self.finish(position, action(Some(was_there)));
                Ok(())
            }
            Err(error) => self.fail(position, error),
        }
    }

    fn compare_and_set(&mut self, open: &mut Connection, key: u64, seen: &mut Seen) -> Result<(), Error> {
        let expected = seen.get(&key).copied();
        let (id, bytes) = self.new_value();
        let (version, expected) = (expected.map(|(version, _)| version), expected.map(|(_, id)| id));
        let action = |outcome| Action::CompareAndSet { expected, value: Some(id), outcome };
        let position = self.begin(open.term, key, scheduler::now_ns(), action(None));
        match open.session.compare_and_set(open.table, &key.to_le_bytes(), version, &bytes) {
            Ok(CompareAndSet::Done(version)) => {
                if let Some(version) = version {
                    self.learn(version, id);
                    seen.insert(key, (version, id));
                }
                self.finish(position, action(Some(CompareOutcome::Done)));
                Ok(())
            }
            Ok(CompareAndSet::Mismatch(found)) => {
                seen.remove(&key);
                self.finish(position, action(Some(CompareOutcome::Mismatch(None))));
                if let Some(found) = found {
                    // Whose version it is may be learnt later only.
                    self.stage.mismatches.borrow_mut().push((position, found.0));
                }
                Ok(())
            }
            Err(error) => self.fail(position, error),
        }
    }
}

fn take_one(remaining: &RefCell<u64>) -> bool {
    let mut remaining = remaining.borrow_mut();
    let some = *remaining > 0;
    *remaining = remaining.saturating_sub(1);
    some
}
