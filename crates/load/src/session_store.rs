//! A store by the plain calls of a session. What is put is visible at once: a stand-in until servers build tables apart.

use std::time::Duration;

use kelix::{Client, Completion, Error, ErrorKind, NewItem, Result, Session, SessionOptions, Table};

use crate::rows::{Field, Row, Rows};
use crate::store::{Store, Summary, TableSpec};

/// Puts that are under way at once.
const UNDER_WAY: usize = 256;

/// Puts items as any client does.
pub struct SessionStore {
    client: Client,
    session: Session,
    tables: Vec<(Table, TableSpec)>,
    completions: Vec<Completion>,
    items: u64,
}

impl SessionStore {
    /// A store with a session of its own.
    pub fn new(client: Client, options: SessionOptions) -> Result<SessionStore> {
        let session = client.session_with(options)?;
        Ok(SessionStore { client, session, tables: Vec::new(), completions: Vec::new(), items: 0 })
    }

    fn item(&self, names: &[String], row: Row<'_>) -> NewItem {
        let mut item = NewItem::new();
        for field in row.fields() {
            match field {
                Field::Bytes { name, bytes } => item.bytes(&names[name as usize], bytes),
                Field::Link { name, table, key, bytes } => {
                    item.link_with(&names[name as usize], self.tables[table as usize].0, key, bytes)
                }
            };
        }
        if let Some(time) = row.expires_in_ms() {
            item.expires_in(Duration::from_millis(time));
        }
        item
    }

    /// Waits until so few puts are under way.
    fn wait(&mut self, most: usize) -> Result<()> {
        while self.session.outstanding() > most {
            if self.session.poll(&mut self.completions)? == 0 {
                std::thread::yield_now();
            }
            for completion in self.completions.drain(..) {
                completion.outcome?;
                self.items += 1;
            }
        }
        Ok(())
    }
}

impl Store for SessionStore {
    fn free_bytes(&mut self) -> Result<u64> {
        let text = self.client.statistics()?;
        let wrong =
            |what: &str| Error::new(ErrorKind::Protocol, "load", format!("the server's statistics {what}"));
        let statistics: serde_json::Value = serde_json::from_str(&text).map_err(|_| wrong("are no JSON"))?;
        let shards = statistics["shards"].as_array().ok_or_else(|| wrong("tell of no shards"))?;
        let free = shards.iter().map(|shard| {
            let bytes = |name: &str| shard["memory"][name].as_u64().unwrap_or(0);
            bytes("limit_bytes").saturating_sub(bytes("live_bytes") + bytes("quarantined_bytes"))
        });
        Ok(free.sum())
    }

    fn begin(&mut self, _: &str, tables: &[TableSpec]) -> Result<()> {
        self.items = 0;
        self.tables.clear();
        for table in tables {
            self.tables.push((self.session.create_table_of(table.kind, &table.name)?, table.clone()));
        }
        Ok(())
    }

    fn put(&mut self, table: usize, rows: &Rows) -> Result<()> {
        let (handle, TableSpec { names, .. }) = self.tables[table].clone();
        for row in rows.iter() {
            let item = self.item(&names, row);
            self.session.submit_item(handle, row.key(), &item)?;
            if self.session.outstanding() >= UNDER_WAY {
                self.wait(UNDER_WAY / 2)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Summary> {
        self.wait(0)?;
        Ok(Summary { items: self.items })
    }

    fn abandon(&mut self) {}
}
