//! Loaded tables: which generation a table's name leads to, views that stay with one, and whether one can
//! still be read.
//!
//! A generation is a set of tables of its own, and what is in them is dropped only a while after the
//! generation is not listed in the catalogue any more (`kelix_shard`, "generations"). So an operation reads
//! what it reads, and then looks whether the generation was still listed:
//!
//! | where memory is | when it has to look |
//! |---|---|
//! | within reach of loads | a word of each shard's header page counts what came into force and what is dropped: when that has changed, and from time to time while another generation is in force |
//! | elsewhere | when it has not looked for a part of the lease |
//!
//! A view says that somebody reads its generation, so that it stays listed.

use std::collections::HashMap;
use std::sync::Arc;

use kelix_fabric::Clock;
use kelix_image::header_word;
use kelix_image::words::load_fence;
use kelix_types::limits::VIEW_LEASE_NS;
use kelix_types::{Error, ErrorKind, NameId, Place, Result, TableId, mark};
use kelix_wire::generation::{LoadedTable, decode_tables};
use kelix_wire::{Expiry, Op, RequestHead, Status, catalogue};

use super::Catalogue;
use crate::Table;
use crate::engine::{Engine, check_answer};

/// In place of a generation: the table is the one that its name leads to when it is used.
pub(crate) const IN_FORCE: u64 = u64::MAX;

/// A table as an operation reads it: its number, and the generation that it is of (0: it was not loaded). The
/// operation's result counts if that is still listed in the end ([`Catalogue::check_generation`]), and the
/// items that it brings carry it.
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
pub(crate) struct Generations {
    names: HashMap<TableId, BoundTable>,
    /// Generations that were listed, and until when that is good; `u64::MAX`: as long as the shards' words
    /// stay what they are.
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
    pub(super) name_ids: HashMap<TableId, TableId>,
}

impl Generations {
    /// A table is no more.
    pub fn forget(&mut self, table: TableId) {
        self.name_ids.remove(&table);
    }
}

/// Whether a write by name failed because another generation has come into force, or is about to.
pub fn is_between(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Frozen | ErrorKind::ViewExpired)
}

fn expired(generation: u64) -> Error {
    let context = format!("generation {generation} is not there any more; open another view");
    Error::unnamed(ErrorKind::ViewExpired, context)
}

impl Catalogue {
    pub fn generation_in_force(&mut self, engine: &mut Engine, dataset: &str) -> Result<Option<u64>> {
        let Some(body) = self.body(engine, &catalogue::dataset_key(dataset.as_bytes()))? else {
            return Ok(None);
        };
        let word = |at: usize| {
            body.get(at..at + 8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")))
        };
        self.generations.lease_ns = word(8).unwrap_or(VIEW_LEASE_NS);
        Ok(word(0))
    }

    /// The tables of a generation. `None`: it is not listed.
    pub fn tables_of(&mut self, engine: &mut Engine, generation: u64) -> Result<Option<Vec<LoadedTable>>> {
        let body = self.body(engine, &catalogue::generation_key(generation))?;
        let tables = body.and_then(|body| decode_tables(&body));
        for LoadedTable { table, name_id, .. } in tables.iter().flatten() {
            self.generations.name_ids.insert(*table, *name_id);
        }
        Ok(tables)
    }

    /// The table that a table's name leads to now, which is of a dataset.
    pub(super) fn bind_generation(&mut self, engine: &mut Engine, table: Table) -> Result<BoundTable> {
        if table.generation != IN_FORCE {
            return Ok(BoundTable { id: table.id, generation: table.generation });
        }
        if !self.names_are_good(engine) {
            self.generations.names.clear();
            self.note_generations(engine);
            self.generations.looked_ns = engine.transport.fabric.now_ns();
        }
        match self.generations.names.get(&table.id) {
            Some(bound) => Ok(*bound),
            None => self.look_up(engine, table),
        }
    }

    /// The table that a table's name leads to, if that is known.
    #[inline]
    pub(super) fn bound_in_force(&mut self, engine: &mut Engine, table: Table) -> Option<BoundTable> {
        if self.names_are_good(engine) { self.generations.names.get(&table.id).copied() } else { None }
    }

    fn names_are_good(&mut self, engine: &mut Engine) -> bool {
        match engine.transport.generations_word(0) {
            Some(word) => self.generations.noted.first() == Some(&word),
            None => {
                engine.transport.fabric.now_ns() < self.generations.looked_ns + self.generations.lease_ns / 4
            }
        }
    }

    /// Notes the shards' words. If they were others before, what was known of generations is known no more.
    fn note_generations(&mut self, engine: &mut Engine) {
        let shards = 0..engine.transport.shards();
        let words: Vec<u64> = shards.filter_map(|shard| engine.transport.generations_word(shard)).collect();
        if words != self.generations.noted {
            self.generations.good = 0;
            self.generations.listed.clear();
            self.generations.names.clear();
            self.generations.noted = words;
        }
    }

    #[cold]
    fn look_up(&mut self, engine: &mut Engine, table: Table) -> Result<BoundTable> {
        mark!("table of a dataset looked up");
        let gone = || {
            let context = "the table is in its dataset no more; open another";
            Error::unnamed(ErrorKind::NoSuchTable, context)
        };
        let key = catalogue::name_key(TableId::CATALOGUE, NameId(table.id.0));
        let name = self.body(engine, &key)?.ok_or_else(gone)?;
        let leads = self.body(engine, &catalogue::id_key(TableId::CATALOGUE, &name))?;
        let leads = leads.filter(|leads| leads.len() > 2).ok_or_else(gone)?;
        let dataset = String::from_utf8_lossy(&leads[2..]).into_owned();
        loop {
            let generation = self.generation_in_force(engine, &dataset)?.ok_or_else(gone)?;
            let Some(tables) = self.tables_of(engine, generation)? else { continue };
            for LoadedTable { table: id, name_id, .. } in tables {
                self.generations.names.insert(name_id, BoundTable { id, generation });
            }
            return self.generations.names.get(&table.id).copied().ok_or_else(gone);
        }
    }

    /// Looks, at the end of an operation, whether what it read can still be read.
    #[inline]
    pub fn check_generation(&mut self, engine: &mut Engine, generation: u64) -> Result<()> {
        if generation == 0 { Ok(()) } else { self.check_listed(engine, generation) }
    }

    fn check_listed(&mut self, engine: &mut Engine, generation: u64) -> Result<()> {
        if self.is_listed(engine, generation) { Ok(()) } else { self.look_whether_listed(engine, generation) }
    }

    /// Whether a generation was still listed when what was read of it was read, as far as that is known.
    #[inline]
    pub fn is_listed(&mut self, engine: &mut Engine, generation: u64) -> bool {
        if generation == 0 {
            return true;
        }
        // What was read was read before.
        load_fence();
        if !self.words_are_noted(engine) {
            return false;
        }
        if self.generations.good == generation {
            return true;
        }
        match self.generations.listed.get(&generation).copied() {
            Some(u64::MAX) => {
                self.generations.good = generation;
                true
            }
            Some(until_ns) => engine.transport.fabric.now_ns() < until_ns,
            None => false,
        }
    }

    fn words_are_noted(&self, engine: &Engine) -> bool {
        let words =
            (0..engine.transport.shards()).filter_map(|shard| engine.transport.generations_word(shard));
        words.eq(self.generations.noted.iter().copied())
    }

    #[cold]
    fn look_whether_listed(&mut self, engine: &mut Engine, generation: u64) -> Result<()> {
        if engine.connection.detached {
            // Nothing changes there any more.
            return Ok(());
        }
        self.note_generations(engine);
        self.let_go(engine);
        let held = self.generations.holds.iter().any(|hold| hold.generation == generation);
        let listed = if held {
            self.hold(engine, generation)?
        } else {
            let sent_ns = engine.transport.fabric.now_ns();
            let listed = self.tables_of(engine, generation)?.is_some();
            if listed {
                self.generations.listed.insert(generation, sent_ns + self.generations.lease_ns / 2);
            }
            listed
        };
        if listed {
            return Ok(());
        }
        self.generations.holds.retain(|hold| hold.generation != generation);
        Err(expired(generation))
    }

    /// Holds a generation for a view of it: what counts the views; `None`: it is too late for that.
    pub fn hold_for_view(&mut self, engine: &mut Engine, generation: u64) -> Result<Option<Arc<()>>> {
        if !self.hold(engine, generation)? {
            return Ok(None);
        }
        let known = self.generations.holds.iter().find(|hold| hold.generation == generation);
        let views = known.map_or_else(Arc::default, |hold| hold.views.clone());
        if known.is_none() {
            self.generations.holds.push(Hold { generation, views: views.clone() });
        }
        Ok(Some(views))
    }

    /// What names lead to is to be looked up again.
    pub fn forget_names(&mut self) {
        self.generations.names.clear();
    }

    /// Says that a generation is being read. `false`: it is too late for that.
    fn hold(&mut self, engine: &mut Engine, generation: u64) -> Result<bool> {
        self.note_generations(engine);
        let sent_ns = engine.transport.fabric.now_ns();
        let head =
            RequestHead { argument: Some(generation), ..RequestHead::new(Op::Hold, 0, TableId::CATALOGUE) };
        let answer = engine.call(0, head, &[], &[])?;
        if answer.status == Status::Gone {
            return Ok(false);
        }
        check_answer(&answer)?;
        let in_force = answer.version == 1 && engine.transport.reads_directly();
        let until_ns = if in_force { u64::MAX } else { sent_ns + self.generations.lease_ns / 2 };
        self.generations.listed.insert(generation, until_ns);
        Ok(true)
    }

    /// Lets go of generations of which no view is left. Nobody waits for the answer.
    fn let_go(&mut self, engine: &mut Engine) {
        if self.generations.holds.is_empty() {
            return;
        }
        let (kept, gone) = std::mem::take(&mut self.generations.holds)
            .into_iter()
            .partition(|hold| Arc::strong_count(&hold.views) > 1);
        self.generations.holds = kept;
        for Hold { generation, .. } in gone {
            let head = RequestHead {
                argument: Some(generation),
                expiry: Some(Expiry::In(0)),
                ..RequestHead::new(Op::Hold, 0, TableId::CATALOGUE)
            };
            engine.post_unawaited(0, head, &[], &[]);
        }
    }
}

/// Where in a shard's memory that word stands.
pub(crate) const GENERATIONS: Place = Place(header_word::GENERATIONS as u64 * 8);
