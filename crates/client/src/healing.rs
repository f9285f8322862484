//! What becomes of a session whose server has gone: with an operation of its own accord, at its beginning, it goes over to the server that is there by then.
//!
//! Numbers of tables are of one life of a store. So everything that has such numbers in it and outlives an operation carries the life's number:
//! handles, items, targets of frontiers. A handle that was got by a name leads to the table of that name in the new life; all else is refused, with an
//! error that says so and is none to try again after. An operation goes over at its beginning only: what it has looked up is good until its end.
//!
//! While no other server is there, reads in shared memory go on from the last state of the one that has gone.

use std::collections::HashMap;
use std::ops::ControlFlow;

use kelix_fabric::Fabric;
use kelix_types::{Error, ErrorKind, KeyHash, Result, TableId, Version, mark};

use crate::Table;
use crate::core::Path;
use crate::session::Session;
use crate::waiting::{BETWEEN_TRIES, is_passing, nanoseconds};

/// In place of the number of the store's life: the server has gone, or another one has taken over. No life has it.
pub(crate) const LOST: u64 = 0;

/// Which server handles of tables are of, and where those of servers before it lead.
#[derive(Default)]
pub(crate) struct Handles {
    /// Tells this server from every other, before and after it and elsewhere; [`LOST`], when it has gone.
    pub server: u64,
    /// The age ([`crate::core::Core::handles`]) below which handles are looked up by their names, and the ages of
    /// the session at which it dropped tables.
    pub oldest: u64,
    pub dropped: HashMap<TableId, u64>,
    /// The names by which handles were got, and where those of servers before this one lead now.
    pub opened: HashMap<Table, String>,
    pub led_on: HashMap<Table, Table>,
}

impl Handles {
    pub fn of(server: u64) -> Handles {
        Handles { server, ..Handles::default() }
    }

    /// Another server has taken over.
    pub fn superseded(&mut self) -> Error {
        self.server = LOST;
        let context = "another server has taken over; the session goes over to it with the next call";
        Error::unnamed(ErrorKind::Superseded, context)
    }
}

impl Session {
    /// At the beginning of an operation: if the server was lost, and there is one now, goes over to that. As long as there is none, the
    /// operation goes on with what there is.
    #[inline(always)]
    pub(crate) fn heal(&mut self) -> Result<()> {
        if self.handles.server == LOST { self.go_over() } else { Ok(()) }
    }

    #[cold]
    fn go_over(&mut self) -> Result<()> {
        // What is under way may be asked again over another connection to the same server: that is for whoever waits for it.
        let asks_again = self.connection.caller.is_some() && self.outstanding() > 0;
        let now_ns = self.core.fabric.now_ns();
        if asks_again || now_ns < self.connection.next_try_ns || !self.connection.setup.opens_sessions() {
            return Ok(());
        }
        // If only the connection is lost, a session that may come again is the same as before, with its views.
        let came_again = self.connection.caller.map(|caller| self.connect_again(caller));
        let fresh = match came_again {
            Some(Err(error)) if error.kind() != ErrorKind::Superseded => Err(error),
            Some(Ok(())) => Ok(None),
            _ => Session::open_once(&self.connection.client, self.connection.options.clone()).map(Some),
        };
        match fresh {
            Ok(None) => Ok(()),
            Ok(Some(fresh)) => {
                mark!("session went over to another server");
                self.adopt(fresh);
                Ok(())
            }
            Err(error) if is_passing(&error) || error.kind() == ErrorKind::System => {
                // A server that stands still is not waited for by every operation.
                let ended_ns = self.core.fabric.now_ns();
                self.connection.next_try_ns = ended_ns + (ended_ns - now_ns).max(nanoseconds(BETWEEN_TRIES));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Becomes a session that was just opened. Of what was submitted here nothing is answered any more.
    pub(crate) fn adopt(&mut self, mut fresh: Session) {
        self.give_up_submitted();
        if fresh.core.life() == self.core.life() {
            // The server takes this for somebody who knows no table that was dropped before.
            fresh.core.age = self.core.age + 1;
            (fresh.handles.oldest, fresh.handles.server) = (fresh.core.age, fresh.core.handles());
        }
        fresh.submitted.finished = std::mem::take(&mut self.submitted.finished);
        fresh.submitted.next_ticket = self.submitted.next_ticket;
        fresh.handles.opened = std::mem::take(&mut self.handles.opened);
        fresh.connection.connections = self.connection.connections + 1;
        fresh.core.total = self.core.cost();
        fresh.core.set_path(self.core.path);
        *self = fresh;
    }

    /// Notes the name by which a handle was got.
    pub(crate) fn remember(&mut self, table: Table, name: &str) -> Table {
        self.handles.opened.entry(table).or_insert_with(|| name.into());
        table
    }

    /// Where a handle leads that is not known to be of the server in use.
    #[cold]
    pub(crate) fn led_on(&mut self, table: Table) -> Result<Table> {
        if let Some(age) = self.age_of(table.server) {
            // Got before this session dropped a table, or the server has gone, and there is no other one yet.
            return match self.handles.dropped.get(&table.id) {
                Some(dropped) if age < *dropped => Err(was_dropped()),
                _ => Ok(table),
            };
        }
        if let Some(known) = self.handles.led_on.get(&table).copied() {
            return self.led_on(known);
        }
        let Some(name) = self.handles.opened.get(&table).cloned() else {
            return Err(of_another_life("table", "open it again"));
        };
        let fresh = self.table(&name)?;
        if fresh.kind() != table.kind() || (fresh.generation == 0) != (table.generation == 0) {
            let what = format!("table \"{name}\", which is of another kind now,");
            return Err(of_another_life(&what, "open it again"));
        }
        self.handles.led_on.insert(table, fresh);
        Ok(fresh)
    }

    /// Refuses what has numbers of tables of another life in it.
    #[inline(always)]
    pub(crate) fn check_life(&mut self, life: u64) -> Result<()> {
        if life == self.handles.server || self.age_of(life).is_some() {
            Ok(())
        } else {
            Err(of_another_life("item", "get it again"))
        }
    }

    /// How old something is that carries this number, counted up, if it is of this session's life of the store.
    fn age_of(&self, number: u64) -> Option<u64> {
        let age = number.wrapping_sub(self.core.life());
        (self.handles.oldest..=self.core.age).contains(&age).then_some(age)
    }

    /// Takes note of a table that this session dropped, by which the server knows that it uses the table no more; `None`: nobody can tell
    /// which one, or whether.
    pub(crate) fn note_dropped(&mut self, table: Option<TableId>) {
        self.core.age += 1;
        match table {
            Some(table) => {
                self.handles.dropped.insert(table, self.core.age);
                self.handles.opened.retain(|opened, _| opened.id != table);
                self.handles.led_on.retain(|_, known| known.id != table);
                self.names.of_tables.remove(&table);
                self.views.forget(table);
            }
            None => self.handles.oldest = self.core.age,
        }
        if self.handles.server != LOST {
            self.handles.server = self.core.handles();
        }
    }

    /// Whether an error of an operation says that its server has gone, and the last state of an ordered table is within reach. Reads look
    /// further from then on.
    pub(crate) fn is_alone(&mut self, table: TableId, error: &Error) -> bool {
        let gone = self.handles.server == LOST && error.kind() == ErrorKind::Unavailable;
        let alone = gone
            && table.kind().is_ordered()
            && self.core.reads_directly()
            && self.core.path != Path::Message;
        if alone {
            self.core.reader_in_order(table).ordered.alone = true;
        }
        alone
    }

    /// Fetches an item into `self.landing` that no model leads to yet, in place of a shard that has gone; `lost` says so.
    #[cold]
    pub(crate) fn fetch_alone(
        &mut self,
        (table, key): (TableId, &[u8]),
        route: (KeyHash, usize),
        lost: Error,
    ) -> Result<Option<Version>> {
        let known = match self.look_in_order(table, key, route.0) {
            ControlFlow::Break(found) => return Ok(found),
            ControlFlow::Continue(known) => known.ok_or(lost)?,
        };
        mark!("item of a server that has gone found without models");
        self.read_or_ask((table, key), route, Some(known))
    }
}

#[cold]
fn was_dropped() -> Error {
    Error::unnamed(ErrorKind::NoSuchTable, "this session has dropped the table; open another")
}

#[cold]
fn of_another_life(what: &str, advice: &str) -> Error {
    let context = format!("the {what} is of a server before this one, or of another: {advice}");
    Error::unnamed(ErrorKind::Superseded, context).with_retry(false)
}
