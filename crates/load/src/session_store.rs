//! The store of a server: what is loaded is a generation of a data set.

use std::time::Duration;

use kelix::{Build, Client, Error, ErrorKind, NewTable, Result, Session, SessionOptions, Table};

use crate::rows::{Field, Rows};
use crate::store::{Building, InForce, Store, Summary, TableSpec};

/// Builds generations.
pub struct SessionStore {
    client: Client,
    session: Session,
}

impl SessionStore {
    /// A store with a session of its own.
    pub fn new(client: Client, options: SessionOptions) -> Result<SessionStore> {
        let session = client.session_with(options)?;
        Ok(SessionStore { client, session })
    }
}

impl Store for SessionStore {
    fn free_bytes(&mut self) -> Result<u64> {
        let statistics = self.client.statistics()?;
        let free = statistics.shards.iter().map(|shard| {
            let memory = &shard.memory;
            memory.limit_bytes.saturating_sub(memory.live_bytes.saturating_add(memory.quarantined_bytes))
        });
        // Whatever the server tells.
        Ok(free.fold(0, u64::saturating_add))
    }

    fn in_force(&mut self, dataset: &str) -> Result<InForce> {
        let statistics = self.client.statistics()?;
        let store = format!("term {} process {}", statistics.server.term, statistics.server.pid);
        let generation = match self.session.view(dataset) {
            Ok(view) => Some(view.generation()),
            Err(error) if error.kind() == ErrorKind::NoSuchTable => None,
            Err(error) => return Err(error),
        };
        Ok(InForce { store, generation })
    }

    fn check(&mut self, dataset: &str, tables: &[TableSpec]) -> Result<()> {
        let own: Vec<String> = match self.session.view(dataset) {
            Ok(view) => view.tables().map(str::to_string).collect(),
            Err(error) if error.kind() == ErrorKind::NoSuchTable => Vec::new(),
            Err(error) => return Err(error),
        };
        let names = self.session.tables()?;
        match tables.iter().find(|table| names.contains(&table.name) && !own.contains(&table.name)) {
            None => Ok(()),
            Some(TableSpec { name, .. }) => {
                let context = format!(
                    "the name of table \"{name}\" of \"{dataset}\" is taken by another table: drop that (`kelix table drop`), or \
                     choose another name"
                );
                Err(Error::new(ErrorKind::InvalidArgument, "load", context))
            }
        }
    }

    fn begin<'s>(&'s mut self, dataset: &str, tables: &[TableSpec]) -> Result<Box<dyn Building + 's>> {
        let mut new: Vec<NewTable<'_>> = Vec::new();
        for TableSpec { name, kind, overlay, .. } in tables {
            new.push(NewTable::new(name, *kind).overlay(*overlay));
        }
        let build = self.session.build(dataset, &new)?;
        let handles = (0..tables.len()).map(|table| build.table(table)).collect();
        Ok(Box::new(Generation { build, tables: tables.to_vec(), handles }))
    }
}

/// A generation that is being built.
struct Generation<'s> {
    build: Build<'s>,
    tables: Vec<TableSpec>,
    /// To name them in links.
    handles: Vec<Table>,
}

impl Building for Generation<'_> {
    fn put(&mut self, table: usize, rows: &Rows) -> Result<()> {
        let Generation { build, tables, handles } = self;
        let names = &tables[table].names;
        for row in rows.iter() {
            let mut item = build.item(table, row.key());
            for field in row.fields() {
                item = match field {
                    Field::Bytes { name, bytes } => item.bytes(&names[usize::from(name)], bytes),
                    Field::Link { name, table, key, bytes } => {
                        item.link_with(&names[usize::from(name)], handles[usize::from(table)], key, bytes)
                    }
                };
            }
            if let Some(time) = row.expires_in_ms() {
                item = item.expires_in(Duration::from_millis(time));
            }
            item.end()?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Summary> {
        let built = self.build.finish()?;
        Ok(Summary { generation: built.generation, items: built.items })
    }
}
