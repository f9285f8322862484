//! SQLite: the answers to queries, all of one moment.

use std::path::{Path, PathBuf};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

use super::{Sink, Source, choice};
use crate::batch::{Batch, Cell};
use crate::map::Relation;
use crate::problem::Problem;

/// A database in a file.
pub(crate) struct Database {
    path: PathBuf,
    pub connection: Connection,
}

impl Database {
    /// Opens a file that is there, and sees from then on what was in it then.
    pub fn open(path: &Path) -> Result<Database, Problem> {
        let failed = |error: rusqlite::Error| {
            Problem::Source(format!("cannot read {} with SQLite: {error}", path.display()))
        };
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        // The first look takes the snapshot.
        connection
            .execute_batch("pragma query_only = on; begin; select count(*) from sqlite_master")
            .map_err(failed)?;
        Ok(Database { path: path.to_path_buf(), connection })
    }
}

/// The query of a relation.
pub(super) fn query_of(relation: &Relation) -> Result<&str, String> {
    match relation {
        Relation::Query(query) => Ok(query.trim().trim_end_matches(';').trim_end()),
        Relation::Unsaid => Err("it does not say where its rows are; say query".into()),
        Relation::File(_) => Err("the source is a database, which has no files; say query".into()),
        Relation::Elements(_) => Err("elements are for maps of OpenStreetMap; say query".into()),
    }
}

impl Source for Database {
    fn name(&self, _: &Relation, table: &str) -> String {
        table.to_string()
    }

    fn place(&self, _: &Relation, _: &str) -> &'static str {
        "row"
    }

    fn check(&self, relation: &Relation, _: &str) -> Result<(), String> {
        let query = query_of(relation)?;
        let statement =
            self.connection.prepare(query).map_err(|error| format!("SQLite refuses its query: {error}"))?;
        match statement.column_count() {
            0 => Err("its query gives no rows".into()),
            _ => Ok(()),
        }
    }

    fn rows(
        &mut self,
        relation: &Relation,
        table: &str,
        _: &[String],
        sink: &mut dyn Sink,
    ) -> Result<(), Problem> {
        let path = &self.path;
        let failed = |error: rusqlite::Error| {
            Problem::Source(format!("the query of {table} failed in {}: {error}", path.display()))
        };
        let query = query_of(relation).map_err(Problem::Source)?;
        let mut statement = self.connection.prepare(query).map_err(failed)?;
        let columns: Vec<String> = statement.column_names().into_iter().map(str::to_string).collect();
        if !sink.begin(&columns, &choice(&columns)) {
            return Ok(());
        }
        let mut batch = Batch::new(columns.len());
        let mut rows = statement.query([]).map_err(failed)?;
        let mut number = 0;
        while let Some(row) = rows.next().map_err(failed)? {
            number += 1;
            for column in 0..columns.len() {
                put(&mut batch, row.get_ref(column).map_err(failed)?);
            }
            batch.end_row(number);
            if batch.is_full() {
                if !sink.take(&batch)? {
                    return Ok(());
                }
                batch.clear();
            }
        }
        sink.take(&batch).map(drop)
    }
}

/// Adds a value as text; a blob as it is.
fn put(batch: &mut Batch, value: ValueRef<'_>) {
    use std::io::Write;
    let start = batch.bytes.len();
    let written = match value {
        ValueRef::Null => return batch.push(None),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => return batch.push(Some(bytes)),
        ValueRef::Integer(number) => write!(batch.bytes, "{number}"),
        ValueRef::Real(number) => write!(batch.bytes, "{number:?}"),
    };
    written.expect("memory takes what is written");
    batch.cells.push(Cell::at(start, batch.bytes.len() - start));
}
