//! Clients: tasks that use the public library, and write down what they did and what came of it.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use kelix::sim::{Connected, Host, Primary};
use kelix::{Cost, Error, ErrorKind, Path, Session, SessionOptions, Table, TableId, Version};
use kelix_types::mark;
use kelix_wire::control::Caller;

use crate::fabric::{Bell, Wire};
use crate::history::{Operation, ValueId};
use crate::plan::{Plan, Theme};
use crate::random::Random;
use crate::scheduler::{self, HostClock, Shared, TaskId};
use crate::server::{Again, Server, Side};
use crate::value::Shape;
pub use mirrors::OnMirrors;

pub mod datasets;
mod mirrors;
mod operations;
mod overlays;
mod record;

/// Keys that come and go, so that the index grows and shrinks: from here on, so many.
const COLD_KEYS: (u64, u64) = (1_000, 900);
/// Keys that fill memory.
const BULK_KEYS: (u64, u64) = (10_000, 2_900);
/// How many of them are there at first.
const BULK_KEYS_LOADED: u64 = 2_200;
/// Keys of large values.
const LARGE_KEYS: (u64, u64) = (20_000, 3);
/// Operations after which keys come that went, or the other way round.
const SEASON: u64 = 2_000;
/// No operation takes longer, whatever happens: the longest are of words by the ten thousand, and pauses
/// between them.
const OPERATION_NS_MAX: u64 = 5_000_000_000;
/// Lease of views, in epochs.
pub const VIEW_LEASE_EPOCHS: u64 = 40;
/// How long a client waits at most that finds no server whose lease is not over.
const AWAITED_NS: u64 = 20_000;
/// So many tries in a row fail only at a store that does not serve.
const TRIES_MAX: u32 = 100;

/// What the clients of a run share.
pub struct Stage {
    /// What the seed decided.
    pub plan: Plan,
    /// The server that is in force, or soon will be.
    pub server: Shared<Server>,
    /// Memory of the pointer cache that sessions share.
    pub host: Host,
    /// What was done; `None` for what certainly had no effect.
    pub history: Shared<Vec<Option<Operation>>>,
    /// What cannot be, found on the way.
    pub findings: Shared<Vec<String>>,
    /// Operations that are still to be done.
    pub remaining: Shared<u64>,
    /// The terms whose server has the table.
    pub tables: Shared<HashSet<u64>>,
    /// What clients were told about versions, by key.
    pub versions: Shared<HashMap<(u64, Version), ValueId>>,
    /// The same by value.
    pub versions_of: Shared<HashMap<ValueId, Version>>,
    /// Compare-and-sets that failed, whose version is to be made out: position in the history, version.
    pub mismatches: Shared<Vec<(usize, Version)>>,
    /// Costs of all sessions.
    pub cost: Shared<Cost>,
    /// The longest that an operation took.
    pub longest_ns: Shared<u64>,
    /// The connections that hold.
    pub wires: Shared<HashMap<TaskId, Wire>>,
    /// When values end at the latest that were put for a while, by a true clock.
    pub ends: Shared<HashMap<ValueId, u64>>,
    /// When each term began.
    pub terms: Shared<HashMap<u64, u64>>,
    /// The number of the last value.
    pub values: Shared<u64>,
    /// Generations that were loaded.
    pub loads: Shared<Vec<datasets::Load>>,
    /// The clocks of the hosts on which clients are.
    pub clocks: Rc<[HostClock]>,
    /// Of the clients of mirrors.
    pub on_mirrors: Option<OnMirrors>,
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
    line: Line,
    /// That in which the store began.
    term: u64,
    /// Costs already added to the others'.
    counted: Cost,
}

/// What a session is connected by at the moment: to the server, and to the one that this follows.
#[derive(Clone, Default)]
struct Line(Shared<Option<(Wire, Bell)>>, Shared<Option<Wire>>);

impl Line {
    /// Connects the running task with the server that is in force, or soon will be.
    fn connect(&self, stage: &Rc<Stage>, drift_ppm: i64, host: &Host, caller: Option<Caller>) -> Connected {
        let server = stage.server.borrow().clone();
        let again: Again = {
            let (line, stage, host, store) = (self.clone(), stage.clone(), host.clone(), server.store);
            Box::new(move |caller| {
                // A read would begin again there, and what it finds be written down as of this store.
                if caller.is_none() && stage.server.borrow().store != store {
                    return Err(unavailable("it is another store"));
                }
                if stage.server.borrow().is_silent() {
                    return Err(unavailable("its lease is over"));
                }
                Ok(line.connect(&stage, drift_ppm, &host, caller))
            })
        };
        self.connect_to(&server, stage, (drift_ppm, host), caller, (again, None))
    }

    fn connect_to(
        &self,
        server: &Server,
        stage: &Stage,
        (drift_ppm, host): (i64, &Host),
        caller: Option<Caller>,
        others: (Again, Option<Primary>),
    ) -> Connected {
        // What a connection to a primary rings goes on over another one to its mirror.
        let before = self.0.borrow().as_ref().filter(|_| others.1.is_some()).map(|(_, bell)| bell.clone());
        let (wire, bell) = (Wire::sound(), before.unwrap_or_else(|| Bell::of(scheduler::current())));
        stage.wires.borrow_mut().insert(scheduler::current(), wire.clone());
        *self.0.borrow_mut() = Some((wire.clone(), bell.clone()));
        let side = Side { drift_ppm, host: host.clone(), wire, bell };
        server.connect(&side, (caller, false), others)
    }

    fn bell(&self) -> Bell {
        self.0.borrow().as_ref().expect("connected").1.clone()
    }

    fn cut(&self) {
        self.0.borrow().iter().for_each(|(wire, _)| wire.cut());
        self.1.borrow().iter().for_each(Wire::cut);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.line.cut();
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
            let began_ns = scheduler::now_ns();
            let outcome = self.act(open, &mut seen);
            self.look_at_time(began_ns);
            self.count(open);
            if !outcome.map_or_else(|error| self.goes_on(&error), |()| true) {
                connection = None;
            }
        }
    }

    /// Fills memory before anything else happens.
    pub fn load(mut self) {
        let mut connection = None;
        for first in (0..BULK_KEYS_LOADED).step_by(8) {
            self.insist("load", &mut connection, |client, open| {
                let keys = (first..first + 8).map(|key| BULK_KEYS.0 + key);
                let values = keys.map(|key| (key, client.new_bulk(false))).collect();
                match client.put_many(open, values) {
                    // Full is what it is to be.
                    Err(error) if error.kind() == ErrorKind::OutOfMemory => Ok(()),
                    outcome => outcome,
                }
            });
        }
    }

    /// Fills memory but for a few slots of the kind that the hot keys need, before anything else happens.
    pub fn crowd(mut self) {
        let mut connection = None;
        let hot = self.stage.plan.shape;
        let mut key = BULK_KEYS.0;
        // The first takes memory for that kind, the last ones what is left of it.
        self.insist("load", &mut connection, |client, open| client.load_one(open, key, hot).map(|_| ()));
        for shape in [Shape::Runs, Shape::Pieces, Shape::Bulk, hot] {
            let mut room = true;
            while room {
                key += 1;
                self.insist("load", &mut connection, |client, open| {
                    room = client.load_one(open, key, shape)?;
                    Ok(())
                });
            }
        }
        for gone in key - 1 - self.random.below(3)..key {
            self.insist("make room", &mut connection, |client, open| client.delete(open, gone));
        }
    }

    /// Puts a value of this shape, if there is room for it.
    fn load_one(&self, open: &mut Connection, key: u64, shape: Shape) -> Result<bool, Error> {
        match self.put_many(open, vec![(key, self.new_value(shape))]) {
            Err(error) if error.kind() == ErrorKind::OutOfMemory => Ok(false),
            outcome => outcome.map(|()| true),
        }
    }

    /// Reads every key once more, when all harm is over: from the index, and by message.
    pub fn sweep(mut self) {
        let ranges = [(0, self.stage.plan.hot_keys), COLD_KEYS, BULK_KEYS, LARGE_KEYS];
        let relevant = |range: &&(u64, u64)| match self.stage.plan.theme {
            Theme::Memory => **range != LARGE_KEYS && **range != COLD_KEYS,
            Theme::Large => **range != BULK_KEYS && **range != COLD_KEYS,
            Theme::Index | Theme::Hot | Theme::Links => **range != BULK_KEYS && **range != LARGE_KEYS,
        };
        let ranges: Vec<(u64, u64)> = ranges.iter().filter(relevant).copied().collect();
        let mut connection = None;
        for path in [Path::Index, Path::Message] {
            for key in ranges.iter().flat_map(|(first, count)| *first..first + count) {
                self.insist("read all keys at the end", &mut connection, |client, open| {
                    open.session.set_path(path);
                    let found = client.get(open, key, &mut Seen::new())?;
                    found.inspect(|(_, id)| client.look_at_end(*id));
                    Ok(())
                });
            }
        }
    }

    /// Does something that must succeed after a while.
    fn insist(
        &mut self,
        what: &str,
        connection: &mut Option<Connection>,
        mut act: impl FnMut(&Client, &mut Connection) -> Result<(), Error>,
    ) {
        let mut last = String::new();
        for _ in 0..TRIES_MAX {
            let Some(mut open) = connection.take().or_else(|| self.connect()) else { continue };
            let outcome = act(self, &mut open);
            self.count(&mut open);
            match outcome {
                Ok(()) => {
                    *connection = Some(open);
                    return;
                }
                Err(error) => last = error.to_string(),
            }
        }
        self.find(format!("could not {what}, at last: {last}"));
    }

    /// Takes note of a failure, and says whether the session is of further use.
    fn goes_on(&mut self, error: &Error) -> bool {
        match error.kind() {
            ErrorKind::OutOfMemory => return true,
            ErrorKind::Superseded => mark!("authority lapsed under a session"),
            ErrorKind::Unavailable => mark!("connection lost"),
            // The answer may come yet, when nobody waits for it any more.
            ErrorKind::TimedOut => {
                mark!("operation timed out");
                return !self.random.once_in(3);
            }
            _ => self.find(format!("an error that cannot be: {error}")),
        }
        false
    }

    fn connect(&mut self) -> Option<Connection> {
        let term = self.stage.server.borrow().store;
        if self.stage.server.borrow().is_silent() {
            scheduler::sleep(self.random.below(AWAITED_NS));
            return None;
        }
        // Some know only what they learnt by themselves, and that is soon old; so do those on several hosts.
        let alone = self.random.once_in(2) || self.stage.clocks.len() > 1;
        let host = if alone { Host::default() } else { self.stage.host.clone() };
        // Some go on when they have lost their connection.
        let caller = self.random.once_in(3).then(|| self.random.below(u64::MAX) + 1);
        let line = Line::default();
        let first = caller.map(|number| Caller { number, again: false });
        let connected = match &self.stage.on_mirrors {
            None => line.connect(&self.stage, self.drift_ppm, &host, first),
            Some(_) => line.connect_to_mirror(&self.stage, self.drift_ppm, &host, first).ok()?,
        };
        // Room for all of the models of an ordered table, for some, for none.
        let model_bytes = [1 << 20, 1 << 20, 3 << 10, 700, 0][self.random.below(5) as usize];
        let options = SessionOptions::default()
            .timeout(Duration::from_nanos(self.stage.plan.timeout_ns))
            .retry_for(Duration::from_nanos(4 * self.stage.plan.timeout_ns))
            .model_bytes(model_bytes)
            .strict(self.stage.plan.cluster.is_some_and(|cluster| cluster.is_strict(self.number)));
        let options = self.options_on_mirrors(options);
        let mut session = kelix::sim::session(connected, options, caller).ok()?;
        if !self.stage.tables.borrow().contains(&term) {
            session.create_table_of(self.stage.plan.table, "table").ok()?;
            self.stage.tables.borrow_mut().insert(term);
        }
        let table = session.table_by_id(TableId::new(self.stage.plan.table, 1));
        Some(Connection { session, table, line, term, counted: Cost::default() })
    }

    fn look_at_time(&self, began_ns: u64) {
        let took_ns = scheduler::now_ns() - began_ns;
        let mut longest_ns = self.stage.longest_ns.borrow_mut();
        *longest_ns = took_ns.max(*longest_ns);
        if took_ns > OPERATION_NS_MAX {
            self.find(format!("an operation called at {began_ns} took {took_ns} ns"));
        }
    }

    fn count(&self, connection: &mut Connection) {
        let now = connection.session.cost();
        self.stage.cost.borrow_mut().add(now.since(connection.counted));
        connection.counted = now;
    }
}

fn unavailable(why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, "connect", why).with_retry(true)
}

fn take_one(remaining: &RefCell<u64>) -> bool {
    let mut remaining = remaining.borrow_mut();
    let some = *remaining > 0;
    *remaining = remaining.saturating_sub(1);
    some
}
