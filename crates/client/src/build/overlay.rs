//! What clients wrote into the generation before, on its way into the one that is built.
//!
//! It is taken over twice: first while clients write on, then what has changed since, while they wait. So
//! they wait for as long as it takes to look, and to take over what changed meanwhile, and not for all of it.

use std::collections::{BTreeMap, HashMap};

use kelix_image::{AttributeBuilder, Value};
use kelix_types::{Error, ErrorKind, Result, TableId, Version};
use kelix_wire::generation::{LoadedTable, take_listed};
use kelix_wire::{Expiry, Op, RequestHead, Status};

use super::Build;
use crate::catalogue::BoundTable;
use crate::engine::check_answer;
use crate::item::Item;
use crate::session::Session;

/// A key of one of the tables that are built, by its number.
type Key = (usize, Vec<u8>);

/// What was taken over so far.
#[derive(Default)]
pub(super) struct Overlays {
    /// The tables that clients wrote to, and the number of the one that each becomes.
    tables: Vec<(TableId, usize)>,
    /// The generation that they are of.
    generation: u64,
    /// The tables of that generation, and those of the same names that are built.
    follow: HashMap<TableId, Option<TableId>>,
    /// In order, so that a run can be repeated.
    taken: BTreeMap<Key, Taken>,
}

#[derive(Clone, Copy)]
struct Taken {
    version: Version,
    /// It was there when all were listed last.
    is_there: bool,
}

impl Overlays {
    /// Those of the generation that is in force, if there is one.
    pub fn of(build: &mut Build<'_>) -> Result<Overlays> {
        let Build { session, state } = build;
        let Session { engine, catalogue, .. } = &mut **session;
        let Some(generation) = catalogue.generation_in_force(engine, &state.dataset)? else {
            return Ok(Overlays::default());
        };
        let before = catalogue.tables_of(engine, generation)?.unwrap_or_default();
        let mut overlays = Overlays { generation, ..Overlays::default() };
        for LoadedTable { table, name_id, overlay, .. } in before {
            let number = state.tables.iter().position(|new| new.name_id == name_id);
            let new = number.map(|number| &state.tables[number]);
            overlays.follow.insert(table, new.map(|new| new.table));
            if overlay && new.is_some_and(|new| new.overlay) {
                overlays.tables.extend(number.map(|number| (table, number)));
            }
        }
        Ok(overlays)
    }

    /// Lets nobody write to these tables any more, and takes over what has changed.
    pub fn freeze(&mut self, build: &mut Build<'_>) -> Result<()> {
        for (table, _) in &self.tables {
            for shard in 0..build.session.engine.transport.shards() {
                let head = build.head(Op::Freeze, *table);
                let answer = build.session.engine.call(shard, head, &[], &[])?;
                check_answer(&answer)?;
            }
        }
        self.take_over(build)
    }

    /// Takes over what was not yet, and takes back what is there no more.
    pub fn take_over(&mut self, build: &mut Build<'_>) -> Result<()> {
        self.taken.values_mut().for_each(|taken| taken.is_there = false);
        for (table, number) in self.tables.clone() {
            for shard in 0..build.session.engine.transport.shards() {
                while self.take_listed(build, (table, number), shard)? {}
            }
        }
        let gone = self.taken.iter().filter(|(_, taken)| !taken.is_there);
        let gone: Vec<Key> = gone.map(|(key, _)| key.clone()).collect();
        for key in gone {
            self.take_back(build, &key)?;
            self.taken.remove(&key);
        }
        Ok(())
    }

    /// Takes over the next ones that a shard lists. Whether there may be more.
    fn take_listed(
        &mut self,
        build: &mut Build<'_>,
        (table, number): (TableId, usize),
        shard: usize,
    ) -> Result<bool> {
        let answer = build.session.engine.call(shard, build.head(Op::Overlays, table), &[], &[])?;
        check_answer(&answer)?;
        let mut words = &answer.item[..];
        while !words.is_empty() {
            let Some((version, key)) = take_listed(&mut words) else {
                let context = "a list of keys that makes no sense";
                return Err(Error::unnamed(ErrorKind::Protocol, context));
            };
            let key = (number, key.to_vec());
            match self.taken.get_mut(&key) {
                Some(taken) if taken.version == version => {
                    taken.is_there = true;
                    continue;
                }
                Some(_) => self.take_back(build, &key)?,
                None => {}
            }
            if let Some(version) = self.take(build, table, &key)? {
                self.taken.insert(key, Taken { version, is_there: true });
            }
        }
        Ok(answer.version == 1)
    }

    /// Puts an item into its new table, unless that has its key from the source. Returns its version; `None`:
    /// it is gone.
    fn take(&self, build: &mut Build<'_>, table: TableId, (number, key): &Key) -> Result<Option<Version>> {
        let Session { engine, catalogue, landing, .. } = &mut *build.session;
        let table = BoundTable { id: table, generation: self.generation };
        let Some(item) = catalogue.fetch_item(engine, landing, table, key)? else { return Ok(None) };
        catalogue.check_generation(engine, self.generation)?;
        let section = self.attributes(&item);
        let head = RequestHead {
            expect: Some(None),
            expiry: item.view().expiry().map(Expiry::At),
            client_flags: item.flags(),
            attributes: section.is_some(),
            ..build.head(Op::Put, build.state.tables[*number].table)
        };
        let body = section.as_deref().unwrap_or(item.body());
        let answer = build.session.engine.write(head, key, body)?;
        build.state.built.items += u64::from(answer.status == Status::Ok);
        build.state.built.overlays += u64::from(answer.status == Status::Ok);
        Ok(Some(item.version()))
    }

    /// The attributes of an item, whose links lead to tables of the new generation. Those to tables that it
    /// does not have are left out.
    fn attributes(&self, item: &Item) -> Option<Vec<u8>> {
        if !item.has_attributes() {
            return None;
        }
        let mut section = AttributeBuilder::default();
        for (name, value) in item.raw_attributes() {
            match value {
                Value::Bytes(bytes) => section.bytes(name, bytes),
                Value::Link(link) => match self.follow.get(&link.table) {
                    Some(None) => {}
                    Some(Some(table)) => section.link(name, *table, link.key, link.bytes),
                    None => section.link(name, link.table, link.key, link.bytes),
                },
            }
        }
        Some(section.finish())
    }

    /// Deletes an item from its new table that was taken over.
    fn take_back(&self, build: &mut Build<'_>, (number, key): &Key) -> Result<()> {
        let head = build.head(Op::Delete, build.state.tables[*number].table);
        let answer = build.session.engine.write(head, key, &[])?;
        build.state.built.items -= u64::from(answer.status == Status::Ok);
        build.state.built.overlays -= u64::from(answer.status == Status::Ok);
        Ok(())
    }
}
