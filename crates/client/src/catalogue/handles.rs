//! Handles of tables, and where they lead.
//!
//! Numbers of tables are of one life of a store. So everything that has such numbers in it and outlives an
//! operation carries the life's number: handles, items, targets of frontiers. A handle that was got by a name
//! leads to the table of that name in the new life; all else is refused, with an error that says so and is
//! none to try again after.

use std::collections::HashMap;

use kelix_types::{Error, ErrorKind, Result, TableId};
use kelix_wire::catalogue;

use super::{BoundTable, Catalogue, IN_FORCE, check_name};
use crate::Table;
use crate::engine::{Engine, LOST};

/// Where handles of tables lead that were got from servers before this one, or before a table was dropped.
#[derive(Default)]
pub(crate) struct Handles {
    /// The age ([`crate::transport::Transport::handles`]) below which handles are looked up by their names,
    /// and the ages of the session at which it dropped tables.
    oldest: u64,
    dropped: HashMap<TableId, u64>,
    /// The names by which handles were got, and where those of servers before this one lead now.
    opened: HashMap<Table, String>,
    led_on: HashMap<Table, Table>,
}

impl Handles {
    /// Those of a session that takes the place of another one, whose handles lead on by their names. In the
    /// same life of the store, the server takes the session for somebody who knows no table that was dropped
    /// before: then `oldest` is the age from which handles are good.
    pub fn of_successor(old: &mut Handles, oldest: Option<u64>) -> Handles {
        let opened = std::mem::take(&mut old.opened);
        Handles { oldest: oldest.unwrap_or_default(), opened, ..Handles::default() }
    }
}

impl Catalogue {
    /// The table and the generation that a handle leads to now.
    #[inline]
    pub fn bind(&mut self, engine: &mut Engine, table: Table) -> Result<BoundTable> {
        let table =
            if table.server == engine.connection.server { table } else { self.lead_on(engine, table)? };
        if table.generation != 0 {
            return self.bind_generation(engine, table);
        }
        Ok(BoundTable { id: table.id, generation: 0 })
    }

    /// The table and the generation that a handle leads to, if that is known.
    #[inline]
    pub fn bound(&mut self, engine: &mut Engine, table: Table) -> Option<BoundTable> {
        if table.server != engine.connection.server {
            return None;
        }
        match table.generation {
            IN_FORCE => self.bound_in_force(engine, table),
            generation => Some(BoundTable { id: table.id, generation }),
        }
    }

    /// Opens a table by its name.
    pub fn open(&mut self, engine: &mut Engine, name: &str) -> Result<Table> {
        check_name(name)?;
        let leads = self.body(engine, &catalogue::id_key(TableId::CATALOGUE, name.as_bytes()))?;
        match leads.filter(|leads| leads.len() >= 2) {
            Some(leads) => {
                let id = TableId(u16::from_le_bytes([leads[0], leads[1]]));
                // Behind the id of a loaded table stands its dataset.
                let generation = if leads.len() > 2 { IN_FORCE } else { 0 };
                Ok(self.remember(Table { generation, ..engine.table_handle(id) }, name))
            }
            None => {
                let context =
                    format!("there is no table \"{name}\"; make it with `kelix table create {name}`");
                Err(Error::unnamed(ErrorKind::NoSuchTable, context))
            }
        }
    }

    /// Notes the name by which a handle was got.
    pub fn remember(&mut self, table: Table, name: &str) -> Table {
        self.handles.opened.entry(table).or_insert_with(|| name.into());
        table
    }

    /// Where a handle leads that is not known to be of the server in use.
    #[cold]
    fn lead_on(&mut self, engine: &mut Engine, table: Table) -> Result<Table> {
        if let Some(age) = self.age_of(engine, table.server) {
            // Got before this session dropped a table, or the server has gone, and there is no other one yet.
            return match self.handles.dropped.get(&table.id) {
                Some(dropped) if age < *dropped => Err(was_dropped()),
                _ => Ok(table),
            };
        }
        if let Some(known) = self.handles.led_on.get(&table).copied() {
            return self.lead_on(engine, known);
        }
        let Some(name) = self.handles.opened.get(&table).cloned() else {
            return Err(of_another_life("table", "open it again"));
        };
        let fresh = self.open(engine, &name)?;
        if fresh.kind() != table.kind() || (fresh.generation == 0) != (table.generation == 0) {
            let what = format!("table \"{name}\", which is of another kind now,");
            return Err(of_another_life(&what, "open it again"));
        }
        self.handles.led_on.insert(table, fresh);
        Ok(fresh)
    }

    /// Refuses what has numbers of tables of another life in it.
    #[inline(always)]
    pub fn check_life(&self, engine: &Engine, life: u64, what: &str, advice: &str) -> Result<()> {
        if life == engine.connection.server || self.age_of(engine, life).is_some() {
            Ok(())
        } else {
            Err(of_another_life(what, advice))
        }
    }

    /// The same of an item.
    #[inline(always)]
    pub fn check_item(&self, engine: &Engine, life: u64) -> Result<()> {
        self.check_life(engine, life, "item", "get it again")
    }

    /// How old something is that carries this number, counted up, if it is of this session's life of the
    /// store.
    fn age_of(&self, engine: &Engine, number: u64) -> Option<u64> {
        let age = number.wrapping_sub(engine.transport.life());
        (self.handles.oldest..=engine.transport.age).contains(&age).then_some(age)
    }

    /// Takes note of a table that this session dropped, by which the server knows that it uses the table no
    /// more; `None`: nobody can tell which one, or whether.
    pub fn note_dropped(&mut self, engine: &mut Engine, table: Option<TableId>) {
        engine.transport.age += 1;
        match table {
            Some(table) => {
                self.handles.dropped.insert(table, engine.transport.age);
                self.handles.opened.retain(|opened, _| opened.id != table);
                self.handles.led_on.retain(|_, known| known.id != table);
                self.names.of_tables.remove(&table);
                self.generations.forget(table);
            }
            None => self.handles.oldest = engine.transport.age,
        }
        if engine.connection.server != LOST {
            engine.connection.server = engine.transport.handles();
        }
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
