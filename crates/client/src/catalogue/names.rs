//! Names of attributes and links, and items with them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use kelix_image::ItemFlags;
use kelix_types::limits::{NAMES_MAX, TABLES_MAX};
use kelix_types::{Error, ErrorKind, NameId, Result, TableId, TableKind, Version};
use kelix_wire::{Op, RequestHead, Status, catalogue};

use super::{BoundTable, Catalogue, check_name};
use crate::Table;
use crate::engine::{Engine, Wanted, check_answer, check_key};
use crate::item::{Item, Names, NewAttribute, NewItem};
use crate::read::Landing;

/// Names of attributes and links, by table.
#[derive(Default)]
pub(crate) struct NameCache {
    pub of_tables: HashMap<TableId, Arc<Names>>,
    /// The table of an item that was made not long ago, and the names of that table.
    pub last: (TableId, Arc<Names>),
}

impl Catalogue {
    /// The number of a name, which it is given if it has none yet.
    pub fn intern(&self, engine: &mut Engine, table: TableId, kind: TableKind, name: &str) -> Result<NameId> {
        let argument = (kind != TableKind::Hash).then_some(kind as u64);
        let head = RequestHead { argument, ..RequestHead::new(Op::Intern, 0, table) };
        let answer = engine.call(0, head, name.as_bytes(), &[])?;
        if answer.status == Status::Refused {
            let context = match table {
                TableId::CATALOGUE => format!(
                    "no table \"{name}\" can be made: a store has {TABLES_MAX} of a kind at most. Those that were dropped count until no session \
                     is left that was connected then, and no item links to them: see `kelix stat`, and end idle processes"
                ),
                _ => format!(
                    "no attribute \"{name}\" can be made: a table has {NAMES_MAX} names of attributes and links at most"
                ),
            };
            return Err(Error::unnamed(ErrorKind::InvalidArgument, context));
        }
        check_answer(&answer)?;
        Ok(NameId(answer.version as u16))
    }

    /// The names of a table with all that an item uses.
    pub fn names_for(&mut self, engine: &mut Engine, table: TableId, item: &Item) -> Result<Arc<Names>> {
        let table = self.names_table(engine, table)?;
        self.learn_names(engine, table, item.greatest_name())
    }

    /// The names of a table, with all up to an id.
    pub fn learn_names(&mut self, engine: &mut Engine, table: TableId, last: u16) -> Result<Arc<Names>> {
        let mut names = self.names.of_tables.entry(table).or_default().clone();
        while names.known() < last {
            let id = NameId(names.known() + 1);
            let Some(name) = self.body(engine, &catalogue::name_key(table, id))? else { break };
            Arc::make_mut(&mut names).push(String::from_utf8_lossy(&name).into_owned());
        }
        self.names.of_tables.insert(table, names.clone());
        Ok(names)
    }

    /// The number of a name, if it has one.
    pub fn known_name(&mut self, engine: &mut Engine, table: TableId, name: &str) -> Result<Option<NameId>> {
        if name.is_empty() {
            return Ok(Some(NameId(0)));
        }
        check_name(name)?;
        let known = self.names.of_tables.get(&table).and_then(|names| names.id(name));
        if known.is_some() {
            return Ok(known);
        }
        let id = self.id(engine, &catalogue::id_key(table, name.as_bytes()))?;
        id.map(|id| self.learn_names(engine, table, id)).transpose()?;
        Ok(id.map(NameId))
    }

    /// The number of a name, which it is given if it has none yet.
    pub fn name_id(&mut self, engine: &mut Engine, table: TableId, name: &str) -> Result<NameId> {
        if let Some(known) = self.known_name(engine, table, name)? {
            return Ok(known);
        }
        let id = self.intern(engine, table, TableKind::Hash, name)?;
        self.learn_names(engine, table, id.0)?;
        Ok(id)
    }

    /// The request that puts an item: its head and its body.
    pub fn encode_item<'i>(
        &mut self,
        engine: &mut Engine,
        table: TableId,
        expect: Option<Option<Version>>,
        item: &'i NewItem,
    ) -> Result<(RequestHead, Cow<'i, [u8]>)> {
        let (expiry, client_flags) = (item.expiry, item.flags);
        let head = RequestHead { expect, expiry, client_flags, ..RequestHead::new(Op::Put, 0, table) };
        match item.plain() {
            Some(value) => Ok((head, Cow::Borrowed(value))),
            None => {
                let section = self.encode(engine, table, item)?;
                Ok((RequestHead { attributes: true, ..head }, Cow::Owned(section)))
            }
        }
    }

    /// The attribute section of an item to be put.
    fn encode(&mut self, engine: &mut Engine, table: TableId, item: &NewItem) -> Result<Vec<u8>> {
        let names = self.names_table(engine, table)?;
        let mut section = kelix_image::AttributeBuilder::default();
        for (name, attribute) in &item.attributes {
            let name = self.name_id(engine, names, name)?;
            match attribute {
                NewAttribute::Bytes(bytes) => section.bytes(name, bytes),
                NewAttribute::Link { table, key, bytes } => {
                    let target = self.link_table(engine, *table, key)?;
                    section.link(name, target, key, bytes);
                }
            }
        }
        Ok(section.finish())
    }

    /// The number of the table that a link leads to which is put, if that table can have the key.
    #[inline]
    pub fn link_table(&mut self, engine: &mut Engine, table: Table, key: &[u8]) -> Result<TableId> {
        let table = self.bind(engine, table)?.id;
        check_key(table, key)?;
        Ok(table)
    }

    /// The table whose attribute names a table has: that which stands for its name, where it is of a
    /// generation.
    pub fn names_table(&mut self, engine: &mut Engine, table: TableId) -> Result<TableId> {
        if let Some(name_id) = self.generations.name_ids.get(&table) {
            return Ok(*name_id);
        }
        let key = catalogue::name_key(TableId::CATALOGUE, NameId(table.0));
        let name = self.body(engine, &key)?.filter(|name| !name.is_empty());
        let Some(name) = name else { return Ok(table) };
        let leads = self.body(engine, &catalogue::id_key(TableId::CATALOGUE, &name))?;
        let name_id = leads.map_or(table, |leads| TableId(u16::from_le_bytes([leads[0], leads[1]])));
        // A table made by hand never becomes one of a generation, nor changes its name.
        self.generations.name_ids.insert(table, name_id);
        Ok(name_id)
    }

    /// Fetches an item by its key. `None`: the key is absent.
    #[inline]
    pub fn fetch_item(
        &mut self,
        engine: &mut Engine,
        landing: &mut Landing,
        BoundTable { id: table, generation }: BoundTable,
        key: &[u8],
    ) -> Result<Option<Item>> {
        let found = engine.fetch(Wanted { table, key, pointer: None }, landing)?;
        found.map(|_| self.make_item(engine, landing, generation)).transpose()
    }

    /// Makes an owned item, of a generation (0: of none), of what was fetched.
    pub fn make_item(&mut self, engine: &mut Engine, landing: &mut Landing, generation: u64) -> Result<Item> {
        let words = landing.item.clone();
        let large = landing.take_large();
        self.name_attributes(
            engine,
            Item::of(words, large, &self.names.last, (generation, engine.transport.handles())),
        )
    }

    /// Gives an item the names of its attributes.
    pub fn name_attributes(&mut self, engine: &mut Engine, mut item: Item) -> Result<Item> {
        if !item.is_named() {
            item.names = self.names_for(engine, item.layout.table(), &item)?;
            item.names_of = item.layout.table();
            self.names.last = (item.names_of, item.names.clone());
        }
        Ok(item)
    }

    /// Puts the item that landed, of a generation (0: of none), in the place of another, in whose memory the
    /// next one will land.
    #[inline(always)]
    pub fn take_landed(
        &mut self,
        engine: &mut Engine,
        landing: &mut Landing,
        item: &mut Item,
        generation: u64,
    ) -> Result<()> {
        item.layout = landing.layout();
        std::mem::swap(&mut landing.item, &mut item.words);
        if item.large.is_some() || item.layout.has_any(ItemFlags::LARGE) {
            item.large = landing.take_large();
        }
        (item.generation, item.life) = (generation, engine.transport.handles());
        if item.is_named() { Ok(()) } else { self.name_landed(engine, item) }
    }

    #[cold]
    fn name_landed(&mut self, engine: &mut Engine, item: &mut Item) -> Result<()> {
        item.names_of = item.layout.table();
        item.names = Arc::default();
        item.names = self.names_for(engine, item.names_of, item)?;
        Ok(())
    }
}
