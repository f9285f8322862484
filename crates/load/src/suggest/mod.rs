//! Draws a map from the schema of a database: a table each, foreign keys as links, join tables as lists.

mod draw;
mod postgres;
mod sqlite;

use crate::problem::Problem;
use crate::source::{self, Kind, Origin, Source};

/// What a database says of itself.
#[derive(Clone, Default, Debug)]
struct Schema {
    /// Its name.
    name: String,
    tables: Vec<Table>,
}

/// A table of a database.
#[derive(Clone, Default, Debug)]
struct Table {
    /// What it is called in the map.
    name: String,
    /// What it is called in a query, in quotes.
    quoted: String,
    columns: Vec<Column>,
    /// Its primary key; or else columns that are never null and always differ.
    key: Vec<String>,
    /// Why that is the key, if it is not declared as one.
    key_note: Option<&'static str>,
    foreign: Vec<ForeignKey>,
}

/// A column of a table.
#[derive(Clone, Debug)]
struct Column {
    name: String,
    nullable: bool,
}

/// Columns that name a row of another table.
#[derive(Clone, Debug)]
struct ForeignKey {
    columns: Vec<String>,
    /// The other table, as counted in the schema.
    to: usize,
    to_columns: Vec<String>,
}

impl Table {
    /// Whether it is nothing but pairs of rows of other tables: two foreign keys, and what else is in the primary key.
    fn is_join(&self) -> bool {
        let [one, other] = &self.foreign[..] else { return false };
        let is_known = |name: &String| {
            one.columns.contains(name) || other.columns.contains(name) || self.key.contains(name)
        };
        self.columns.iter().all(|column| is_known(&column.name))
    }

    /// Whether a column may be null.
    fn is_nullable(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column.name == name && column.nullable)
    }
}

/// Draws a map from the schema of a database. It can be loaded as it is.
pub fn suggest(origin: &Origin) -> Result<String, Problem> {
    let schema = match origin.kind()? {
        Kind::Postgres => {
            let mut database = source::postgres::Database::connect(origin)?;
            database.begin()?;
            postgres::schema(&database)?
        }
        Kind::Sqlite(path) => {
            let mut database = source::sqlite::Database::open(&path)?;
            database.begin()?;
            sqlite::schema(&database, &path)?
        }
        Kind::Directory(_) | Kind::File(_) => {
            let text =
                "files do not tell what leads where; a map is suggested for postgres://... and sqlite:FILE";
            return Err(Problem::Source(text.into()));
        }
    };
    if schema.tables.is_empty() {
        return Err(Problem::Source(format!(
            "the database {} has no tables that this user may read",
            schema.name
        )));
    }
    Ok(draw::draw(&schema))
}

/// A name as SQL takes it, whatever it looks like.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
