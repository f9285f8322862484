//! Sources: whatever has rows of named columns.
//!
//! A source pushes the rows of a relation, a query or a file, into a [`Sink`] in batches that it fills over
//! and over. A row that makes no sense is a fault of its batch, and the source goes on; what ends the reading
//! is an error.

mod csv;
mod files;
mod json;
#[cfg(feature = "osm")]
mod osm;
#[cfg(feature = "osm")]
pub mod pbf;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod query;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
mod times;

pub use csv::{CsvRecords, Format as CsvFormat};
pub(crate) use files::ONE_SIGN;
pub use json::spans_lines;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::batch::Batch;
use crate::changes::State;
use crate::map::{Map, Relation};
use crate::problem::Problem;

/// Whoever takes rows.
pub(crate) trait Sink {
    /// Learns the columns, once, before the first batch; whether it wants the rows. `choice` says which
    /// columns there are.
    fn begin(&mut self, columns: &[String], choice: &str) -> bool;

    /// Takes a batch; whether it wants more.
    fn take(&mut self, batch: &Batch) -> Result<bool, Problem>;
}

/// What has rows.
pub(crate) trait Source {
    /// What the source is like, as far as a map needs it. Asked before [`Source::begin`], for which `changes`
    /// has the reason. `None`: it cannot tell.
    fn state(&mut self, map: &Map) -> Result<Option<State>, Problem>;

    /// Takes the snapshot: all that is asked for from here on is of one moment.
    fn begin(&mut self) -> Result<(), Problem> {
        Ok(())
    }

    /// What messages call a relation. Never has a password in it.
    fn name(&self, relation: &Relation, table: &str) -> String;

    /// What messages call the place of a row: `row`, or `line` of a file.
    fn place(&self, relation: &Relation, table: &str) -> &'static str;

    /// Whether a relation can be had from a source of this kind; if not, what to do.
    fn check(&self, relation: &Relation, table: &str) -> Result<(), String>;

    /// Pushes the rows of a relation. A source that does not know its columns beforehand gives those that are
    /// wanted.
    fn rows(
        &mut self,
        relation: &Relation,
        table: &str,
        wanted: &[String],
        sink: &mut dyn Sink,
    ) -> Result<(), Problem>;

    /// Columns of a relation that are given as they stand in a table of a database, by their names.
    fn forms(&self, _: &Relation) -> Result<Forms, Problem> {
        Ok(Forms::new())
    }

    /// Fails if what was read so far and what will be read is not of one moment.
    fn check_unchanged(&self) -> Result<(), Problem> {
        Ok(())
    }
}

/// Columns by name.
pub(crate) type Forms = HashMap<String, Form>;

/// How a column of a database has its values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Form {
    /// Its type, and its collation if that is what makes other texts equal.
    pub called: String,
    /// Columns of one form have one text for values that are equal; `None`: the column itself may have
    /// others.
    pub form: Option<String>,
}

/// Where rows come from, and what is needed to get them.
#[derive(Clone, Default)]
pub struct Origin {
    /// A URL, a file or a directory.
    pub address: String,
    /// A file with the password.
    pub password_file: Option<PathBuf>,
    /// A file with certificates that the database's must be issued by.
    pub ca: Option<PathBuf>,
}

/// Without the password that an address may have.
impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (scheme, rest) = self.address.split_once("://").unwrap_or(("", &self.address));
        let behind = rest.rsplit_once('@').map_or(rest, |(_, behind)| behind);
        f.debug_struct("Origin").field("scheme", &scheme).field("address", &behind).finish_non_exhaustive()
    }
}

/// What an address names.
pub(crate) enum Kind {
    #[cfg(feature = "postgres")]
    Postgres,
    #[cfg(feature = "sqlite")]
    Sqlite(PathBuf),
    Directory(PathBuf),
    File(PathBuf),
}

impl Origin {
    /// What kind of source it is.
    pub(crate) fn kind(&self) -> Result<Kind, Problem> {
        let address = &self.address;
        if address.starts_with("postgres://") || address.starts_with("postgresql://") {
            #[cfg(feature = "postgres")]
            return Ok(Kind::Postgres);
            #[cfg(not(feature = "postgres"))]
            return Err(left_out("PostgreSQL", "postgres"));
        }
        if self.password_file.is_some() || self.ca.is_some() {
            return Err(Problem::Source(format!("{address} is no database with passwords and certificates")));
        }
        #[cfg(feature = "sqlite")]
        if let Some(path) = address.strip_prefix("sqlite:") {
            return Ok(Kind::Sqlite(path.strip_prefix("//").unwrap_or(path).into()));
        }
        #[cfg(not(feature = "sqlite"))]
        if address.starts_with("sqlite:") {
            return Err(left_out("SQLite", "sqlite"));
        }
        if let Some((scheme, _)) = address.split_once("://") {
            return Err(Problem::Source(format!(
                "{scheme} is no kind of source; there are postgres://..., sqlite:FILE, files and directories"
            )));
        }
        let path = PathBuf::from(address);
        match path.metadata() {
            Ok(found) if found.is_dir() => Ok(Kind::Directory(path)),
            Ok(_) => Ok(Kind::File(path)),
            Err(source) => Err(cannot("read", &path, &source)),
        }
    }

    /// Opens it.
    pub(crate) fn open(&self) -> Result<Box<dyn Source>, Problem> {
        match self.kind()? {
            #[cfg(feature = "postgres")]
            Kind::Postgres => Ok(Box::new(postgres::Database::connect(self)?)),
            #[cfg(feature = "sqlite")]
            Kind::Sqlite(path) => Ok(Box::new(sqlite::Database::open(&path)?)),
            Kind::Directory(path) => Ok(Box::new(files::Files::directory(path))),
            #[cfg(feature = "osm")]
            Kind::File(path) if is_map(&path) => Ok(Box::new(osm::StreetMap::open(path)?)),
            #[cfg(not(feature = "osm"))]
            Kind::File(path) if is_map(&path) => Err(left_out("maps of OpenStreetMap", "osm")),
            Kind::File(path) => Ok(Box::new(files::Files::file(path)?)),
        }
    }
}

/// Whether a file is a map of OpenStreetMap, by its name.
fn is_map(path: &Path) -> bool {
    path.to_string_lossy().to_ascii_lowercase().ends_with(".osm.pbf")
}

/// What this program was built without, and how it is built with all.
#[cfg(not(all(feature = "osm", feature = "postgres", feature = "sqlite")))]
fn left_out(what: &str, feature: &str) -> Problem {
    Problem::Source(format!(
        "{what}: left out of this program, which was built without the feature {feature}; `make build` builds all of it"
    ))
}

/// A failure of the system with a file.
pub(crate) fn cannot(what: &str, path: &Path, source: &std::io::Error) -> Problem {
    Problem::Source(format!("cannot {what} {}: {source}", path.display()))
}

/// Columns as a message lists them.
pub(crate) fn choice(columns: &[String]) -> String {
    format!("there are {}", columns.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_of_an_origin_has_no_password() {
        let origin = Origin { address: "postgres://ada:secret@db.example/shop".into(), ..Origin::default() };
        let printed = format!("{origin:?}");
        assert!(printed.contains("db.example/shop") && !printed.contains("secret"), "{printed}");
    }
}
