//! Clients of mirrors: some only read, and some write, too, which they do at the primary.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Duration;

use kelix::sim::{Connected, Host, Primary};
use kelix::{Error, ErrorKind, Result, SessionOptions};
use kelix_types::mark;
use kelix_wire::control::Caller;

use super::{Client, Connection, Line, Seen, Stage, take_one};
use crate::fabric::Wire;
use crate::history::Operation;
use crate::plan::{Plan, Theme};
use crate::scheduler::{self, Shared};
use crate::server::{Again, Server, Side};

/// The number of the first session on a mirror.
const FIRST_SESSION: u32 = 10_000;
/// Of so many operations at servers, there is one of those who only read mirrors, and one of those who write.
const OPERATIONS_A_READ: u64 = 4;
const OPERATIONS_A_WRITER: u64 = 4;
/// Between two looks for a mirror.
const MIRROR_AWAITED_NS: u64 = 10_000;
/// One in so many operations is with another session, and with a connection that is cut or held up.
const OPERATIONS_A_SESSION: u64 = 200;
const OPERATIONS_A_HARM: u64 = 100;

/// What clients of mirrors have beside what all clients have.
#[derive(Clone)]
pub struct OnMirrors {
    /// What the clients of the servers share that are mirrored.
    of: Rc<Stage>,
    /// The number of the last session.
    sessions: Shared<u32>,
    /// How old may be what sessions read.
    pub max_lags: Shared<HashMap<u32, u64>>,
    /// Sessions that read at the primary only.
    pub stricts: Shared<HashSet<u32>>,
    /// These clients write, too.
    write: bool,
}

impl OnMirrors {
    /// Of the clients of these servers' mirrors, who only read.
    pub fn new(of: &Rc<Stage>) -> OnMirrors {
        let (max_lags, stricts) = Default::default();
        let sessions = Rc::new(std::cell::RefCell::new(FIRST_SESSION));
        OnMirrors { of: of.clone(), sessions, max_lags, stricts, write: false }
    }

    /// Of those who write, too.
    pub fn writing(self) -> OnMirrors {
        OnMirrors { write: true, ..self }
    }

    /// What these clients share: a history of their own, and keys that are wanted all the time. The rest is
    /// everybody's.
    pub fn stage(&self, history: Shared<Vec<Option<Operation>>>) -> Rc<Stage> {
        let of = &self.of;
        let server = of.server.borrow().clone();
        // Memory is filled by those who know when that is.
        let theme = if of.plan.theme == Theme::Memory { Theme::Index } else { of.plan.theme };
        let operations_a_client = if self.write { OPERATIONS_A_WRITER } else { OPERATIONS_A_READ };
        Rc::new(Stage {
            plan: Plan { cold_in_6: 0, theme, ..of.plan },
            server: Rc::new(std::cell::RefCell::new(server)),
            host: of.host.clone(),
            history,
            findings: of.findings.clone(),
            remaining: Rc::new(std::cell::RefCell::new(of.plan.operations / operations_a_client)),
            tables: Rc::default(),
            versions: of.versions.clone(),
            versions_of: of.versions_of.clone(),
            mismatches: Rc::default(),
            cost: of.cost.clone(),
            longest_ns: of.longest_ns.clone(),
            wires: Rc::default(),
            ends: of.ends.clone(),
            terms: Rc::default(),
            values: of.values.clone(),
            loads: Rc::default(),
            clocks: of.clocks.clone(),
            on_mirrors: Some(self.clone()),
        })
    }

    /// The mirror of the server that is in force, of this life of the store if one is named.
    fn mirror(&self, life: Option<u64>) -> Option<Server> {
        let mirror = self.of.server.borrow().mirror.borrow().clone();
        mirror.filter(|mirror| life.is_none_or(|life| life == mirror.life))
    }
}

impl Line {
    /// Connects the running task with a mirror.
    pub(super) fn connect_to_mirror(
        &self,
        stage: &Rc<Stage>,
        drift_ppm: i64,
        host: &Host,
        caller: Option<Caller>,
    ) -> Result<Connected> {
        let server = stage.server.borrow().clone();
        self.connect_to_life(server.life, stage, (drift_ppm, host), caller)
    }

    /// Connects it with the mirror that shows a life of the store.
    fn connect_to_life(
        &self,
        life: u64,
        stage: &Rc<Stage>,
        (drift_ppm, host): (i64, &Host),
        caller: Option<Caller>,
    ) -> Result<Connected> {
        let on_mirrors = stage.on_mirrors.as_ref().expect("a client of mirrors");
        let gone = || Error::new(ErrorKind::Unavailable, "connect", "it is of another life").with_retry(true);
        let mirror = on_mirrors.mirror(Some(life)).ok_or_else(gone)?;
        let again: Again = {
            let (line, stage, host) = (self.clone(), stage.clone(), host.clone());
            Box::new(move |caller| line.connect_to_life(life, &stage, (drift_ppm, &host), caller))
        };
        let connect = {
            let (line, of, host) = (self.clone(), on_mirrors.of.clone(), host.clone());
            move |caller, tells_records| {
                // Whatever server is there by then.
                let primary = of.server.borrow().over_tcp();
                let (wire, bell) = (Wire::sound(), line.bell());
                *line.1.borrow_mut() = Some(wire.clone());
                let side = Side { drift_ppm, host: host.clone(), wire, bell };
                let nowhere = || Error::new(ErrorKind::Unavailable, "connect", "over another connection");
                let again: Again = Box::new(move |_| Err(nowhere()));
                Ok(primary.connect(&side, (caller, tells_records), (again, None)))
            }
        };
        let primary = Primary { address: "the primary".into(), connect: Box::new(connect) };
        Ok(self.connect_to(&mirror, stage, (drift_ppm, host), caller, (again, Some(primary))))
    }
}

impl Client {
    /// Uses mirrors of servers until nothing is left to do.
    pub fn use_mirrors(mut self) {
        let on_mirrors = self.stage.on_mirrors.clone().expect("a client of mirrors");
        let mut connection: Option<Connection> = None;
        let mut seen = Seen::new();
        while take_one(&self.stage.remaining) && *on_mirrors.of.remaining.borrow() > 0 {
            if connection.is_none() || self.random.once_in(OPERATIONS_A_SESSION) {
                seen.clear();
                let Some(mirror) = on_mirrors.mirror(None) else {
                    scheduler::sleep(MIRROR_AWAITED_NS);
                    continue;
                };
                self.stage.tables.borrow_mut().insert(mirror.store);
                *self.stage.server.borrow_mut() = mirror;
                connection = self.connect();
            }
            let Some(open) = connection.as_mut() else { continue };
            if self.random.once_in(OPERATIONS_A_HARM) {
                self.harm(open);
            }
            let began_ns = scheduler::now_ns();
            let outcome = match on_mirrors.write {
                true => self.act(open, &mut seen),
                false => self.read_mirror(open, &mut seen),
            };
            self.look_at_time(began_ns);
            self.count(open);
            if !outcome.map_or_else(|error| self.goes_on_at_mirror(&error), |()| true) {
                connection = None;
            }
        }
    }

    /// Takes note of a failure, and says whether the session goes on, as it does over other connections, and
    /// when its mirror has been copied anew.
    fn goes_on_at_mirror(&mut self, error: &Error) -> bool {
        self.goes_on(error) || !self.random.once_in(4)
    }

    /// Cuts a connection of the session, or holds it up, a little later.
    fn harm(&mut self, open: &Connection) {
        let wire = match self.random.once_in(2) {
            true => open.line.1.borrow().clone(),
            false => open.line.0.borrow().as_ref().map(|(wire, _)| wire.clone()),
        };
        let Some(wire) = wire else { return };
        let delay_ns = self.random.below(4 * self.stage.plan.kind.epoch_ns);
        let for_ns = self.random.once_in(2).then(|| self.random.below(self.stage.plan.faults.longest_ns));
        mark!("connection of a session on a mirror harmed");
        scheduler::after(delay_ns, move || match for_ns {
            Some(for_ns) => wire.hold_up(for_ns),
            None => wire.cut(),
        });
    }

    /// What a session on a mirror is to be like, which gets a number of its own.
    pub(super) fn options_on_mirrors(&mut self, options: SessionOptions) -> SessionOptions {
        let Some(OnMirrors { of, sessions, max_lags, stricts, write }) = &self.stage.on_mirrors else {
            return options;
        };
        *sessions.borrow_mut() += 1;
        self.number = *sessions.borrow();
        let epoch_ns = of.plan.kind.epoch_ns;
        let own_ns = self.random.once_in(3).then(|| 2_000 + self.random.below(8 * epoch_ns));
        let max_lag_ns = [own_ns, of.plan.max_lag_ns].into_iter().flatten().min();
        if let Some(max_lag_ns) = max_lag_ns {
            max_lags.borrow_mut().insert(self.number, max_lag_ns);
        }
        let strict = *write && self.random.once_in(12);
        if strict {
            stricts.borrow_mut().insert(self.number);
        }
        options.strict(strict).max_lag(own_ns.map(Duration::from_nanos))
    }
}
