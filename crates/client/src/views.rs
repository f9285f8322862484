//! Loaded tables: which generation a table's name leads to, views that stay with one, and whether one can still be read.
//!
//! A generation is a set of tables of its own, and what is in them is dropped only a while after the generation is not listed in the
//! catalogue any more (`kelix_shard`, "generations"). So an operation reads what it reads, and then looks whether the
//! generation was still listed:
//!
//! | where memory is | when it has to look |
//! |---|---|
//! | within reach of loads | a word of each shard's header page counts what came into force and what is dropped: when that has changed, and from time to time while another generation is in force |
//! | elsewhere | when it has not looked for a part of the lease |
//!
//! A view says that somebody reads its generation, so that it stays listed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kelix_fabric::Fabric;
use kelix_image::header_word;
use kelix_image::words::load_fence;
use kelix_types::limits::VIEW_LEASE_NS;
use kelix_types::{Error, ErrorKind, NameId, Place, Result, TableId, mark};
use kelix_wire::generation::{LoadedTable, decode_tables};
use kelix_wire::{Expiry, Op, RequestHead, Status, catalogue};

use crate::Table;
use crate::session::{Session, check_answer};
use crate::waiting::Patience;

/// In place of a generation: the table is the one that its name leads to when it is used.
pub(crate) const IN_FORCE: u64 = u64::MAX;

/// Tables of a dataset, all of one generation, which stays what it is for as long as this is kept and its session is used now and then.
///
/// A copy of it counts as well. When none is left the session lets the generation go. A session that does nothing for longer than the
/// server's lease has let it go, too; then reads fail with [`ErrorKind::ViewExpired`], unless it is the generation in force.
#[derive(Clone, Debug)]
pub struct View {
    dataset: Arc<str>,
    generation: u64,
    tables: Arc<[LoadedTable]>,
    server: u64,
    _held: Arc<()>,
}

impl View {
    /// The dataset.
    pub fn dataset(&self) -> &str {
        &self.dataset
    }

    /// The generation's number.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// A table.
    pub fn table(&self, name: &str) -> Result<Table> {
        match self.tables.iter().find(|table| table.name == name) {
            Some(table) => Ok(Table { id: table.table, server: self.server, generation: self.generation }),
            None => {
                let names: Vec<&str> = self.tables().collect();
                let context = format!(
                    "there is no table \"{name}\" in generation {} of \"{}\"; it has {}",
                    self.generation,
                    self.dataset,
                    names.join(", ")
                );
                Err(Error::new(ErrorKind::NoSuchTable, "table", context))
            }
        }
    }

    /// The tables' names.
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        self.tables.iter().map(|table| &table.name[..])
    }
}

/// Between two tries to write to a table whose next generation is about to come into force.
const BETWEEN_WRITES: Duration = Duration::from_micros(500);

/// A table as an operation reads it: its number, and the generation that it is of (0: it was not loaded). The operation's result counts if
/// that is still listed in the end ([`Session::check_generation`]), and the items that it brings carry it.
#[derive(Clone, Copy)]
pub(crate) struct BoundTable {
    pub id: TableId,
    pub generation: u64,
}

/// A generation that is held.
struct Hold {
    generation: u64,
    views: Arc<()>,
}

/// What a session knows of generations.
#[derive(Default)]
pub(crate) struct Views {
    names: HashMap<TableId, BoundTable>,
    /// Generations that were listed, and until when that is good; `u64::MAX`: as long as the shards' words stay what they are.
    listed: HashMap<u64, u64>,
    /// One of those that are good for as long as the words stay; 0: none.
    good: u64,
    /// The words of the shards, before that was found out.
    noted: Vec<u64>,
    /// When the names were looked up.
    looked_ns: u64,
    lease_ns: u64,
    holds: Vec<Hold>,
    /// The ids that stand for the names of tables of generations.
    name_ids: HashMap<TableId, TableId>,
}

impl Views {
    /// A table is no more.
    pub fn forget(&mut self, table: TableId) {
        self.name_ids.remove(&table);
    }
}

/// Whether a write by name failed because another generation has come into force, or is about to.
pub(crate) fn is_between(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Frozen | ErrorKind::ViewExpired)
}

fn no_dataset(dataset: &str) -> Error {
    let context = format!("there is no dataset \"{dataset}\"; load it with `kelix load`");
    Error::unnamed(ErrorKind::NoSuchTable, context)
}

fn expired(generation: u64) -> Error {
    let context = format!("generation {generation} is not there any more; open another view");
    Error::unnamed(ErrorKind::ViewExpired, context)
}

impl Session {
    /// Opens a view of the generation of a dataset that is in force.
    pub fn view(&mut self, dataset: &str) -> Result<View> {
        self.operate("view", |session| session.hold_in_force(dataset))
    }

    fn hold_in_force(&mut self, dataset: &str) -> Result<View> {
        self.heal()?;
        loop {
            let generation = self.generation_in_force(dataset)?.ok_or_else(|| no_dataset(dataset))?;
            let Some(tables) = self.tables_of(generation)? else { continue };
            // Another one may have come into force meanwhile, and this one gone.
            if !self.hold(generation)? {
                continue;
            }
            let known = self.views.holds.iter().find(|hold| hold.generation == generation);
            let held = known.map_or_else(Arc::default, |hold| hold.views.clone());
            if known.is_none() {
                self.views.holds.push(Hold { generation, views: held.clone() });
            }
            let server = self.core.handles();
            return Ok(View {
                dataset: dataset.into(),
                generation,
                tables: tables.into(),
                server,
                _held: held,
            });
        }
    }

    pub(crate) fn generation_in_force(&mut self, dataset: &str) -> Result<Option<u64>> {
        let Some(body) = self.catalogue_body(&catalogue::dataset_key(dataset.as_bytes()))? else {
            return Ok(None);
        };
        let word = |at: usize| {
            body.get(at..at + 8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
        };
        self.views.lease_ns = word(8).unwrap_or(VIEW_LEASE_NS);
        Ok(word(0))
    }

    /// The tables of a generation. `None`: it is not listed.
    pub(crate) fn tables_of(&mut self, generation: u64) -> Result<Option<Vec<LoadedTable>>> {
        let body = self.catalogue_body(&catalogue::generation_key(generation))?;
        let tables = body.and_then(|body| decode_tables(&body));
        for LoadedTable { table, name_id, .. } in tables.iter().flatten() {
            self.views.name_ids.insert(*table, *name_id);
        }
        Ok(tables)
    }

    /// The table that a table's name leads to now, which is of a dataset.
    pub(crate) fn bind(&mut self, table: Table) -> Result<BoundTable> {
        if table.generation != IN_FORCE {
            return Ok(BoundTable { id: table.id, generation: table.generation });
        }
        if !self.names_are_good() {
            self.views.names.clear();
            self.note_generations();
            self.views.looked_ns = self.core.fabric.now_ns();
        }
        match self.views.names.get(&table.id) {
            Some(bound) => Ok(*bound),
            None => self.look_up(table),
        }
    }

    /// Runs a public call that writes to a table, and names it in its error. By the table's name, and another generation comes into force
    /// meanwhile: it writes to that.
    #[inline(always)]
    pub(crate) fn write_table<T>(
        &mut self,
        operation: &'static str,
        table: Table,
        mut write: impl FnMut(&mut Session, TableId) -> Result<T>,
    ) -> Result<T> {
        let mut write = |session: &mut Session| {
            let BoundTable { id, .. } = session.check_table(table)?;
            write(session, id)
        };
        self.operate(operation, |session| match write(session) {
            Err(error) if table.generation == IN_FORCE && is_between(&error) => {
                session.write_after_switch(&mut write)
            }
            result => result,
        })
    }

    #[cold]
    fn write_after_switch<T>(&mut self, write: &mut impl FnMut(&mut Session) -> Result<T>) -> Result<T> {
        mark!("write waited for another generation");
        let mut patience = Patience::default();
        loop {
            self.connection.setup.nap(BETWEEN_WRITES);
            self.views.names.clear();
            match write(self) {
                Err(error)
                    if is_between(&error) && patience.waited(self.core.fabric.now_ns()) < self.limit() => {}
                result => return result,
            }
        }
    }

    fn names_are_good(&mut self) -> bool {
        match self.core.generations_word(0) {
            Some(word) => self.views.noted.first() == Some(&word),
            None => self.core.fabric.now_ns() < self.views.looked_ns + self.views.lease_ns / 4,
        }
    }

    /// Notes the shards' words. If they were others before, what was known of generations is known no more.
    fn note_generations(&mut self) {
        let shards = 0..self.core.shards();
        let words: Vec<u64> = shards.filter_map(|shard| self.core.generations_word(shard)).collect();
        if words != self.views.noted {
            self.views.good = 0;
            self.views.listed.clear();
            self.views.names.clear();
            self.views.noted = words;
        }
    }

    #[cold]
    fn look_up(&mut self, table: Table) -> Result<BoundTable> {
        mark!("table of a dataset looked up");
        let gone = || {
            let context = "the table is in its dataset no more; open another";
            Error::unnamed(ErrorKind::NoSuchTable, context)
        };
        let key = catalogue::name_key(TableId::CATALOGUE, NameId(table.id.0));
        let name = self.catalogue_body(&key)?.ok_or_else(gone)?;
        let leads = self.catalogue_body(&catalogue::id_key(TableId::CATALOGUE, &name))?;
        let leads = leads.filter(|leads| leads.len() > 2).ok_or_else(gone)?;
        let dataset = String::from_utf8_lossy(&leads[2..]).into_owned();
        loop {
            let generation = self.generation_in_force(&dataset)?.ok_or_else(gone)?;
            let Some(tables) = self.tables_of(generation)? else { continue };
            for LoadedTable { table: id, name_id, .. } in tables {
                self.views.names.insert(name_id, BoundTable { id, generation });
            }
            return self.views.names.get(&table.id).copied().ok_or_else(gone);
        }
    }

    /// Looks, at the end of an operation, whether what it read can still be read.
    #[inline]
    pub(crate) fn check_generation(&mut self, generation: u64) -> Result<()> {
        if generation == 0 { Ok(()) } else { self.check_listed(generation) }
    }

    fn check_listed(&mut self, generation: u64) -> Result<()> {
        // What was read was read before.
        load_fence();
        if self.words_are_noted() {
            if self.views.good == generation {
                return Ok(());
            }
            match self.views.listed.get(&generation).copied() {
                Some(u64::MAX) => {
                    self.views.good = generation;
                    return Ok(());
                }
                Some(until_ns) if self.core.fabric.now_ns() < until_ns => return Ok(()),
                _ => {}
            }
        }
        self.look_whether_listed(generation)
    }

    fn words_are_noted(&self) -> bool {
        let words = (0..self.core.shards()).filter_map(|shard| self.core.generations_word(shard));
        words.eq(self.views.noted.iter().copied())
    }

    #[cold]
    fn look_whether_listed(&mut self, generation: u64) -> Result<()> {
        if self.is_detached() {
            // Nothing changes there any more.
            return Ok(());
        }
        self.note_generations();
        self.let_go();
        let held = self.views.holds.iter().any(|hold| hold.generation == generation);
        let listed = if held {
            self.hold(generation)?
        } else {
            let sent_ns = self.core.fabric.now_ns();
            let listed = self.tables_of(generation)?.is_some();
            if listed {
                self.views.listed.insert(generation, sent_ns + self.views.lease_ns / 2);
            }
            listed
        };
        if listed {
            return Ok(());
        }
        self.views.holds.retain(|hold| hold.generation != generation);
        Err(expired(generation))
    }

    /// Says that a generation is being read. `false`: it is too late for that.
    fn hold(&mut self, generation: u64) -> Result<bool> {
        self.note_generations();
        let sent_ns = self.core.fabric.now_ns();
        let head =
            RequestHead { argument: Some(generation), ..RequestHead::new(Op::Hold, 0, TableId::CATALOGUE) };
        let answer = self.call(0, head, &[], &[])?;
        if answer.status == Status::Gone {
            return Ok(false);
        }
        check_answer(&answer)?;
        let in_force = answer.version == 1 && self.core.reads_directly();
        let until_ns = if in_force { u64::MAX } else { sent_ns + self.views.lease_ns / 2 };
        self.views.listed.insert(generation, until_ns);
        Ok(true)
    }

    /// Lets go of generations of which no view is left. Nobody waits for the answer.
    pub(crate) fn let_go(&mut self) {
        if self.views.holds.is_empty() {
            return;
        }
        let (kept, gone) = std::mem::take(&mut self.views.holds)
            .into_iter()
            .partition(|hold| Arc::strong_count(&hold.views) > 1);
        self.views.holds = kept;
        for Hold { generation, .. } in gone {
            let head = RequestHead {
                argument: Some(generation),
                expiry: Some(Expiry::In(0)),
                ..RequestHead::new(Op::Hold, 0, TableId::CATALOGUE)
            };
            if self.core.post(0, head, &[], &[], false).is_ok() {
                self.core.send(0);
            }
        }
    }

    /// The table whose attribute names a table has: that which stands for its name, where it is of a generation.
    pub(crate) fn names_table(&mut self, table: TableId) -> Result<TableId> {
        if let Some(name_id) = self.views.name_ids.get(&table) {
            return Ok(*name_id);
        }
        let key = catalogue::name_key(TableId::CATALOGUE, NameId(table.0));
        let name = self.catalogue_body(&key)?.filter(|name| !name.is_empty());
        let Some(name) = name else { return Ok(table) };
        let leads = self.catalogue_body(&catalogue::id_key(TableId::CATALOGUE, &name))?;
        let name_id = leads.map_or(table, |leads| TableId(u16::from_le_bytes([leads[0], leads[1]])));
        // A table made by hand never becomes one of a generation, nor changes its name.
        self.views.name_ids.insert(table, name_id);
        Ok(name_id)
    }
}

/// Where in a shard's memory that word stands.
pub(crate) const GENERATIONS: Place = Place(header_word::GENERATIONS as u64 * 8);
