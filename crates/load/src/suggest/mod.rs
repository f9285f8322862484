//! Draws a map from the schema of a database: a table each, foreign keys as links, join tables as lists.

mod draw;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

use crate::problem::Problem;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use crate::source::Source;
use crate::source::{Kind, Origin};

/// What a database says of itself.
#[derive(Clone, Default, Debug)]
struct Schema {
    /// Its name.
    name: String,
    tables: Vec<Table>,
}

impl Schema {
    /// The own columns that make the key of the row that a foreign key names; none if it names rows by other
    /// columns.
    fn key_columns(&self, foreign: &ForeignKey) -> Option<Vec<String>> {
        let key = &self.tables[foreign.to].key;
        let column = |wanted: &String| {
            let pair = foreign.pairs.iter().find(|pair| pair.there == *wanted)?;
            Some(pair.here.clone())
        };
        let columns: Vec<String> = key.iter().map(column).collect::<Option<_>>()?;
        (!columns.is_empty() && columns.len() == foreign.pairs.len()).then_some(columns)
    }

    /// Whether a table is nothing but pairs of rows of others: its key is two foreign keys and at most one
    /// column more, it has no other columns, and nothing names its rows. Without a key it has the two foreign
    /// keys alone.
    fn is_join(&self, number: usize) -> bool {
        let table = &self.tables[number];
        let [one, other] = &table.foreign[..] else { return false };
        let is_named =
            self.tables.iter().flat_map(|table| &table.foreign).any(|foreign| foreign.to == number);
        let differ = table.columns.iter().any(|column| one.has(&column.name) && !other.has(&column.name))
            && table.columns.iter().any(|column| other.has(&column.name) && !one.has(&column.name));
        let in_key = |column: &Column| table.key.contains(&column.name);
        let more = table.columns.iter().filter(|column| !one.has(&column.name) && !other.has(&column.name));
        let fits = match table.key.is_empty() {
            true => more.count() == 0,
            false => more.count() <= 1 && table.columns.iter().all(in_key),
        };
        let linked = self.key_columns(one).is_some() && self.key_columns(other).is_some();
        fits && differ && linked && !is_named
    }
}

/// A table of a database.
#[derive(Clone, Default, Debug)]
struct Table {
    /// What it is called in the map.
    name: String,
    /// What its own rows are called in a query, in quotes.
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
    pairs: Vec<Pair>,
    /// The other table, as counted in the schema.
    to: usize,
    /// Whether columns that the database holds equal have the same text.
    same_text: bool,
}

/// A column and the one of the other table that it equals.
#[derive(Clone, Default, Debug)]
struct Pair {
    here: String,
    there: String,
    compared: Compared,
}

/// How the database compares the two columns of a foreign key, as its queries write it:
/// `there{there} {operator} {before}here{here}`.
#[derive(Clone, Default, Debug)]
struct Compared {
    there: String,
    operator: String,
    before: &'static str,
    here: String,
    /// What makes the own column of the other's type.
    cast: String,
}

impl ForeignKey {
    /// Whether a column is one of its own.
    fn has(&self, name: &str) -> bool {
        self.pairs.iter().any(|pair| pair.here == name)
    }

    fn columns(&self) -> Vec<String> {
        self.pairs.iter().map(|pair| pair.here.clone()).collect()
    }
}

impl Table {
    /// Whether a column may be null.
    fn is_nullable(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column.name == name && column.nullable)
    }
}

/// The schema of a database.
fn schema(origin: &Origin) -> Result<Schema, Problem> {
    match origin.kind()? {
        #[cfg(feature = "postgres")]
        Kind::Postgres => {
            let mut database = crate::source::postgres::Database::connect(origin)?;
            database.begin()?;
            postgres::schema(&database)
        }
        #[cfg(feature = "sqlite")]
        Kind::Sqlite(path) => {
            let mut database = crate::source::sqlite::Database::open(&path)?;
            database.begin()?;
            sqlite::schema(&database, &path)
        }
        Kind::Directory(_) | Kind::File(_) => Err(Problem::Source(
            "files do not tell what leads where; a map is suggested for postgres://... and sqlite:FILE"
                .into(),
        )),
    }
}

/// Draws a map from the schema of a database. It can be loaded as it is.
pub fn suggest(origin: &Origin) -> Result<String, Problem> {
    let schema = schema(origin)?;
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
