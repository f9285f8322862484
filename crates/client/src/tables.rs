//! Tables and datasets, by their names.

use std::sync::Arc;

use kelix_types::limits::TABLES_MAX;
use kelix_types::{Effect, Error, ErrorKind, NameId, Result, TableId, TableKind};
use kelix_wire::generation::{DROP_DATASET, LoadedTable};
use kelix_wire::{Op, RequestHead, Status, catalogue};

use crate::Table;
use crate::build::{Build, NewTable};
use crate::catalogue::check_name;
use crate::engine::check_answer;
use crate::session::Session;

/// Tables of a dataset, all of one generation, which stays what it is for as long as this is kept and its
/// session is used now and then.
///
/// A copy of it counts as well. When none is left the session lets the generation go. A session that does
/// nothing for longer than the server's lease has let it go, too; then reads fail with
/// [`ErrorKind::ViewExpired`], unless it is the generation in force.
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

impl Session {
    /// Opens a table that exists.
    pub fn table(&mut self, name: &str) -> Result<Table> {
        self.operate("table", |session| {
            check_name(name)?;
            session.heal()?;
            session.catalogue.open(&mut session.engine, name)
        })
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
        let id = self.catalogue.intern(&mut self.engine, TableId::CATALOGUE, kind, name)?;
        let table = self.engine.table_handle(TableId(id.0));
        if table.kind() != kind {
            let context = format!("there is a table \"{name}\" already, of another kind: {}", table.kind());
            return Err(Error::unnamed(ErrorKind::InvalidArgument, context));
        }
        Ok(self.catalogue.remember(table, name))
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
                let Some(name) = self
                    .catalogue
                    .body(&mut self.engine, &catalogue::name_key(TableId::CATALOGUE, NameId(id.0)))?
                else {
                    break;
                };
                // Tables that were dropped have no names.
                if name.is_empty() {
                    continue;
                }
                // Tables of generations have theirs, too, and those lead elsewhere.
                if self.catalogue.id(&mut self.engine, &catalogue::id_key(TableId::CATALOGUE, &name))?
                    == Some(id.0)
                {
                    names.push(String::from_utf8_lossy(&name).into_owned());
                }
            }
        }
        Ok(names)
    }

    /// Drops a table. Its name is gone at once and free for another one, and what is in it goes soon; a
    /// handle that was opened before is of no use any more: what is put by it goes too, or is refused once
    /// the key's shard has heard of it. `false`: there is no such table. A loaded table goes with its dataset
    /// only.
    pub fn drop_table(&mut self, name: &str) -> Result<bool> {
        self.operate("drop_table", |session| session.drop_named(name))
    }

    fn drop_named(&mut self, name: &str) -> Result<bool> {
        check_name(name)?;
        self.heal()?;
        let head = RequestHead::new(Op::Drop, 0, TableId::CATALOGUE);
        let answer = match self.engine.call(0, head, name.as_bytes(), &[]) {
            Err(error) if error.effect() == Effect::Unknown => {
                self.catalogue.note_dropped(&mut self.engine, None);
                return Err(error);
            }
            answer => answer?,
        };
        if answer.status == Status::Absent {
            return Ok(false);
        }
        check_answer(&answer)?;
        self.catalogue.note_dropped(
            &mut self.engine,
            Some(TableId(answer.version as u16)).filter(|table| *table != TableId::CATALOGUE),
        );
        Ok(true)
    }

    /// The names of attributes and links that items of a table have had, in the order of their making.
    pub fn attribute_names(&mut self, table: Table) -> Result<Vec<String>> {
        self.operate("attribute_names", |session| {
            let table = session.check_table(table)?;
            let table = session.catalogue.names_table(&mut session.engine, table.id)?;
            let names = session.catalogue.learn_names(&mut session.engine, table, u16::MAX)?;
            Ok(names.all().map(String::from).collect())
        })
    }

    /// The name of a table, by the id that an [`crate::Attribute::Link`] tells.
    pub fn table_name(&mut self, id: TableId) -> Result<Option<String>> {
        let key = catalogue::name_key(TableId::CATALOGUE, NameId(id.0));
        let name = self.operate("table_name", |session| session.catalogue.body(&mut session.engine, &key))?;
        // One that was dropped has none.
        Ok(name.filter(|name| !name.is_empty()).map(|name| String::from_utf8_lossy(&name).into_owned()))
    }

    /// The handle of a table, by the id that an [`crate::Attribute::Link`] tells.
    pub fn table_by_id(&self, id: TableId) -> Table {
        self.engine.table_handle(id)
    }

    /// Opens a view of the generation of a dataset that is in force.
    pub fn view(&mut self, dataset: &str) -> Result<View> {
        self.operate("view", |session| session.hold_in_force(dataset))
    }

    fn hold_in_force(&mut self, dataset: &str) -> Result<View> {
        self.heal()?;
        let Session { engine, catalogue, .. } = self;
        loop {
            let generation =
                catalogue.generation_in_force(engine, dataset)?.ok_or_else(|| no_dataset(dataset))?;
            let Some(tables) = catalogue.tables_of(engine, generation)? else { continue };
            // Another one may have come into force meanwhile, and this one gone.
            let Some(held) = catalogue.hold_for_view(engine, generation)? else { continue };
            let server = engine.transport.handles();
            return Ok(View {
                dataset: dataset.into(),
                generation,
                tables: tables.into(),
                server,
                _held: held,
            });
        }
    }

    /// Begins to build a generation of a dataset. Nobody sees it until [`Build::finish`].
    pub fn build(&mut self, dataset: &str, tables: &[NewTable<'_>]) -> Result<Build<'_>> {
        Build::begin(self, dataset, tables)
    }

    /// Takes a dataset out of the store. The names of its tables are free at once, and what is in them goes
    /// when nobody reads it any more. `false`: there is no such dataset.
    pub fn drop_dataset(&mut self, dataset: &str) -> Result<bool> {
        self.operate("drop_dataset", |session| {
            session.heal()?;
            let head = RequestHead {
                argument: Some(DROP_DATASET),
                ..RequestHead::new(Op::Drop, 0, TableId::CATALOGUE)
            };
            let answer = session.engine.call(0, head, dataset.as_bytes(), &[])?;
            match answer.status {
                Status::Absent => Ok(false),
                Status::Taken => Err(Error::unnamed(
                    ErrorKind::InvalidArgument,
                    format!("a generation of \"{dataset}\" is being built: wait for its end"),
                )),
                _ => {
                    check_answer(&answer)?;
                    session.catalogue.forget_names();
                    Ok(true)
                }
            }
        })
    }
}

fn no_dataset(dataset: &str) -> Error {
    let context = format!("there is no dataset \"{dataset}\"; load it with `kelix load`");
    Error::unnamed(ErrorKind::NoSuchTable, context)
}
