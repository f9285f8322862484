//! Tables and attribute names: the catalogue as a session sees it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use kelix_types::limits::{NAME_BYTES_MAX, NAMES_MAX, TABLES_MAX};
use kelix_types::{Effect, Error, ErrorKind, NameId, Result, TableId, TableKind, Version};
use kelix_wire::{Op, RequestHead, Status, catalogue};

use crate::Table;
use crate::connection::End;
use crate::item::{Item, Names, NewAttribute, NewItem};
use crate::session::{Session, check_answer, check_key};
use crate::views::IN_FORCE;
use crate::writes::{CompareAndSet, outcome};

pub(crate) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let context = format!("a name has 1 to {NAME_BYTES_MAX} bytes, this one {}", name.len());
        return Err(Error::unnamed(ErrorKind::InvalidArgument, context));
    }
    Ok(())
}

/// Names of attributes and links, by table.
#[derive(Default)]
pub(crate) struct NameCache {
    pub of_tables: HashMap<TableId, Arc<Names>>,
    /// The table of an item that was made not long ago, and the names of that table.
    pub last: (TableId, Arc<Names>),
}

impl Session {
    /// Opens a table that exists.
    pub fn table(&mut self, name: &str) -> Result<Table> {
        self.operate("table", |session| session.open_table(name))
    }

    fn open_table(&mut self, name: &str) -> Result<Table> {
        check_name(name)?;
        self.heal()?;
        let leads = self.catalogue_body(&catalogue::id_key(TableId::CATALOGUE, name.as_bytes()))?;
        match leads.filter(|leads| leads.len() >= 2) {
            Some(leads) => {
                let id = TableId(u16::from_le_bytes([leads[0], leads[1]]));
                // Behind the id of a loaded table stands its dataset.
                let generation = if leads.len() > 2 { IN_FORCE } else { 0 };
                Ok(self.remember(Table { generation, ..self.table_handle(id) }, name))
            }
            None => {
                let context =
                    format!("there is no table \"{name}\"; make it with `kelix table create {name}`");
                Err(Error::unnamed(ErrorKind::NoSuchTable, context))
            }
        }
    }

    /// Opens a hash table, making it if it does not exist.
    pub fn create_table(&mut self, name: &str) -> Result<Table> {
        self.create_table_of(TableKind::Hash, name)
    }

    /// Opens a table of a kind, making it if it does not exist. A table of another kind is an error.
    pub fn create_table_of(&mut self, kind: TableKind, name: &str) -> Result<Table> {
        self.operate("create_table", |session| session.make_table(kind, name))
    }

    fn make_table(&mut self, kind: TableKind, name: &str) -> Result<Table> {
        check_name(name)?;
        if name.contains('/') {
            let context = format!("a table's name cannot contain /, which ends it in links: \"{name}\"");
            return Err(Error::unnamed(ErrorKind::InvalidArgument, context));
        }
        self.heal()?;
        let id = self.intern(TableId::CATALOGUE, kind, name)?;
        let table = self.table_handle(TableId(id.0));
        if table.kind() != kind {
            let context = format!("there is a table \"{name}\" already, of another kind: {}", table.kind());
            return Err(Error::unnamed(ErrorKind::InvalidArgument, context));
        }
        Ok(self.remember(table, name))
    }

    /// The tables' names: those of each kind in the order of their making.
    pub fn tables(&mut self) -> Result<Vec<String>> {
        self.operate("tables", Session::names_of_tables)
    }

    fn names_of_tables(&mut self) -> Result<Vec<String>> {
        self.heal()?;
        let mut names = Vec::new();
        for kind in TableKind::ALL {
            for which in 1..=TABLES_MAX as u16 {
                let id = TableId::new(kind, which);
                let Some(name) =
                    self.catalogue_body(&catalogue::name_key(TableId::CATALOGUE, NameId(id.0)))?
                else {
                    break;
                };
                // Tables that were dropped have no names.
                if name.is_empty() {
                    continue;
                }
                // Tables of generations have theirs, too, and those lead elsewhere.
                if self.catalogue_id(&catalogue::id_key(TableId::CATALOGUE, &name))? == Some(id.0) {
                    names.push(String::from_utf8_lossy(&name).into_owned());
                }
            }
        }
        Ok(names)
    }

    /// Drops a table. Its name is gone at once and free for another one, and what is in it goes soon; a handle that was opened
    /// before is of no use any more: what is put by it goes too, or is refused once the key's shard has heard of it. `false`: there is
    /// no such table. A loaded table goes with its dataset only.
    pub fn drop_table(&mut self, name: &str) -> Result<bool> {
        self.operate("drop_table", |session| session.drop_named(name))
    }

    fn drop_named(&mut self, name: &str) -> Result<bool> {
        check_name(name)?;
        self.heal()?;
        let head = RequestHead::new(Op::Drop, 0, TableId::CATALOGUE);
        let answer = match self.call(0, head, name.as_bytes(), &[]) {
            Err(error) if error.effect() == Effect::Unknown => {
                self.note_dropped(None);
                return Err(error);
            }
            answer => answer?,
        };
        if answer.status == Status::Absent {
            return Ok(false);
        }
        check_answer(&answer)?;
        self.note_dropped(Some(TableId(answer.version as u16)).filter(|table| *table != TableId::CATALOGUE));
        Ok(true)
    }

    /// The names of attributes and links that items of a table have had, in the order of their making.
    pub fn attribute_names(&mut self, table: Table) -> Result<Vec<String>> {
        self.operate("attribute_names", |session| {
            let table = session.check_table(table)?;
            let table = session.names_table(table.id)?;
            let names = session.learn_names(table, u16::MAX)?;
            Ok(names.all().map(String::from).collect())
        })
    }

    /// The name of a table, by the id that an [`crate::Attribute::Link`] tells.
    pub fn table_name(&mut self, id: TableId) -> Result<Option<String>> {
        let key = catalogue::name_key(TableId::CATALOGUE, NameId(id.0));
        let name = self.operate("table_name", |session| session.catalogue_body(&key))?;
        // One that was dropped has none.
        Ok(name.filter(|name| !name.is_empty()).map(|name| String::from_utf8_lossy(&name).into_owned()))
    }

    /// The handle of a table, by the id that an [`crate::Attribute::Link`] tells.
    pub fn table_by_id(&self, id: TableId) -> Table {
        self.table_handle(id)
    }

    pub(crate) fn catalogue_body(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        // The catalogue lives on shard 0, wherever the ring would put its keys.
        let hash = self.core.route(TableId::CATALOGUE, key).0;
        let mut op = self.core.start_read(0, (TableId::CATALOGUE, key), (hash, 0), None);
        let found = self.read(&mut op, key, None)? == End::Found
            || self.ask(TableId::CATALOGUE, key, (hash, 0))?.is_some();
        Ok(found.then(|| self.landing.view().body().to_vec()))
    }

    fn catalogue_id(&mut self, key: &[u8]) -> Result<Option<u16>> {
        let body = self.catalogue_body(key)?;
        Ok(body.and_then(|body| Some(u16::from_le_bytes(body.get(..2)?.try_into().ok()?))))
    }

    fn intern(&mut self, table: TableId, kind: TableKind, name: &str) -> Result<NameId> {
        let argument = (kind != TableKind::Hash).then_some(kind as u64);
        let head = RequestHead { argument, ..RequestHead::new(Op::Intern, 0, table) };
        let answer = self.call(0, head, name.as_bytes(), &[])?;
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
    pub(crate) fn names_for(&mut self, table: TableId, item: &Item) -> Result<Arc<Names>> {
        let table = self.names_table(table)?;
        self.learn_names(table, item.greatest_name())
    }

    /// The names of a table, with all up to an id.
    fn learn_names(&mut self, table: TableId, last: u16) -> Result<Arc<Names>> {
        let mut names = self.names.of_tables.entry(table).or_default().clone();
        while names.known() < last {
            let id = NameId(names.known() + 1);
            let Some(name) = self.catalogue_body(&catalogue::name_key(table, id))? else { break };
            Arc::make_mut(&mut names).push(String::from_utf8_lossy(&name).into_owned());
        }
        self.names.of_tables.insert(table, names.clone());
        Ok(names)
    }

    pub(crate) fn name_id(&mut self, table: TableId, name: &str) -> Result<NameId> {
        if name.is_empty() {
            return Ok(NameId(0));
        }
        check_name(name)?;
        let names = self.names.of_tables.entry(table).or_default();
        if let Some(id) = names.id(name) {
            return Ok(id);
        }
        let id = match self.catalogue_id(&catalogue::id_key(table, name.as_bytes()))? {
            Some(id) => NameId(id),
            None => self.intern(table, TableKind::Hash, name)?,
        };
        self.learn_names(table, id.0)?;
        Ok(id)
    }

    /// Puts an item with attributes and links. Returns its version.
    pub fn put_item(&mut self, table: Table, key: &[u8], item: &NewItem) -> Result<Version> {
        match self.write_item("put_item", table, key, None, item)? {
            CompareAndSet::Done(version) => Ok(version.unwrap_or(Version(0))),
            CompareAndSet::Mismatch(_) => unreachable!("nothing was expected"),
        }
    }

    /// Puts an item if the key's version is still the expected one (`None`: if it is absent).
    pub fn compare_and_set_item(
        &mut self,
        table: Table,
        key: &[u8],
        expected: Option<Version>,
        item: &NewItem,
    ) -> Result<CompareAndSet> {
        self.write_item("compare_and_set_item", table, key, Some(expected), item)
    }

    fn write_item(
        &mut self,
        operation: &'static str,
        table: Table,
        key: &[u8],
        expect: Option<Option<Version>>,
        item: &NewItem,
    ) -> Result<CompareAndSet> {
        let answer = self.write_table(operation, table, |session, id| {
            // Of the table that its links lead to another generation may be in force than of the item's own.
            check_key(id, key)?;
            let (head, body) = session.encode_item(id, expect, item)?;
            session.write(head, key, &body)
        })?;
        debug_assert!(matches!(answer.status, Status::Ok | Status::Mismatch));
        Ok(outcome(&answer))
    }

    /// The request that puts an item: its head and its body.
    pub(crate) fn encode_item<'i>(
        &mut self,
        table: TableId,
        expect: Option<Option<Version>>,
        item: &'i NewItem,
    ) -> Result<(RequestHead, Cow<'i, [u8]>)> {
        let (expiry, client_flags) = (item.expiry, item.flags);
        let head = RequestHead { expect, expiry, client_flags, ..RequestHead::new(Op::Put, 0, table) };
        match item.plain() {
            Some(value) => Ok((head, Cow::Borrowed(value))),
            None => {
                let section = self.encode(table, item)?;
                Ok((RequestHead { attributes: true, ..head }, Cow::Owned(section)))
            }
        }
    }

    /// The attribute section of an item to be put.
    fn encode(&mut self, table: TableId, item: &NewItem) -> Result<Vec<u8>> {
        let names = self.names_table(table)?;
        let mut section = kelix_image::AttributeBuilder::default();
        for (name, attribute) in &item.attributes {
            let name = self.name_id(names, name)?;
            match attribute {
                NewAttribute::Bytes(bytes) => section.bytes(name, bytes),
                NewAttribute::Link { table, key, bytes } => {
                    let target = self.check_further_table(*table)?.id;
                    check_key(target, key)?;
                    section.link(name, target, key, bytes);
                }
            }
        }
        Ok(section.finish())
    }
}
