//! SQLite: the answers to queries, all of one moment.

use std::path::{Path, PathBuf};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

use super::query::{bare, query_of};
use super::times::Times;
use super::{Form, Forms, Sink, Source, choice};
use crate::batch::{Batch, Cell, Fault, ROW_BYTES_MAX, VALUE_BYTES_MAX, too_long};
use crate::changes::{Answer, State, wrong};
use crate::map::{Map, Relation};
use crate::problem::Problem;

/// A database in a file.
pub(crate) struct Database {
    path: PathBuf,
    pub connection: Connection,
}

impl Database {
    /// Opens a file that is there.
    pub fn open(path: &Path) -> Result<Database, Problem> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(path, flags).map_err(|error| unreadable(path, &error))?;
        Ok(Database { path: path.to_path_buf(), connection })
    }

    /// The state that a query tells.
    fn answer(&self, query: &str) -> rusqlite::Result<State> {
        let mut statement = self.connection.prepare(query)?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        let mut answer = Answer::default();
        let mut batch = Batch::new(columns);
        while let Some(row) = rows.next()? {
            for column in 0..columns {
                put(&mut batch, row.get_ref(column)?);
                answer.add_value(batch.cells.last().and_then(|cell| batch.text_of(*cell)));
                batch.clear();
            }
        }
        Ok(answer.state())
    }
}

fn unreadable(path: &Path, error: &rusqlite::Error) -> Problem {
    Problem::Source(format!("cannot read {} with SQLite: {error}{}", path.display(), advice(path)))
}

/// Why a file may be one that SQLite cannot read without writing beside it, and what helps.
fn advice(path: &Path) -> &'static str {
    let beside = |ending: &str| {
        let mut name = path.as_os_str().to_os_string();
        name.push(ending);
        PathBuf::from(name).metadata().is_ok_and(|file| file.len() > 0)
    };
    // Bytes 18 and 19 of a database tell whether it has a write-ahead log.
    let mut head = [0; 20];
    let has_log =
        std::fs::File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut head));
    match has_log {
        _ if beside("-journal") => {
            "; a writer that crashed left its journal beside it, which has to be played back first: open it once with sqlite3, as a user who may write"
        }
        Ok(()) if head[18] == 2 => {
            "; it has a write-ahead log, and its readers write -wal and -shm files beside it: load as a user who may, or of a copy, or of \
             sqlite:file:PATH?immutable=1 where nobody writes to it"
        }
        _ => "",
    }
}

/// The file beside a database that has what is not in it yet, where it is kept so.
fn log_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push("-wal");
    name.into()
}

/// How a column of a table has its values: what it converts them to, so that equal ones are written the same
/// way, and by which collation they are equal.
pub(crate) fn form(connection: &Connection, table: &str, column: &str) -> rusqlite::Result<Form> {
    let Ok((declared, collation, ..)) = connection.column_metadata(None::<&str>, table, column) else {
        return Ok(Form { called: String::new(), form: None });
    };
    let text = |name: Option<&std::ffi::CStr>| {
        name.map_or("".into(), std::ffi::CStr::to_string_lossy).to_ascii_uppercase()
    };
    let (declared, collation) = (text(declared), text(collation));
    let has = |parts: &[&str]| parts.iter().any(|part| declared.contains(part));
    let form = match () {
        () if collation != "BINARY" => None,
        () if has(&["INT"]) => Some("number"),
        () if has(&["CHAR", "CLOB", "TEXT"]) => Some("text"),
        () if declared.is_empty() || has(&["BLOB"]) || declared == "ANY" => None,
        () if has(&["REAL", "FLOA", "DOUB"]) => Some("real"),
        () => Some("number"),
    };
    let declared = if declared.is_empty() { "no type".into() } else { declared };
    let called = if collation == "BINARY" { declared } else { format!("{declared} collate {collation}") };
    Ok(Form { called, form: form.map(str::to_string) })
}

impl Source for Database {
    /// What a query tells, or the files' times. `pragma data_version`, which seems to be made for this,
    /// compares only what one connection has seen, and each load has another one.
    fn state(&mut self, map: &Map) -> Result<Option<State>, Problem> {
        let Some(query) = &map.changed else {
            let mut times = Times::new();
            times.add(&self.path);
            let log = log_of(&self.path);
            // Readers make an empty one, and root's readers give it an owner each time.
            if log.metadata().is_ok_and(|log| log.len() > 0) {
                times.add_by_writing(&log);
            }
            return Ok(times.state());
        };
        self.connection
            .execute_batch("pragma query_only = on")
            .map_err(|error| unreadable(&self.path, &error))?;
        let answer = self.answer(bare(query));
        answer.map(Some).map_err(|error| wrong(format_args!("SQLite refuses its query: {error}")))
    }

    fn begin(&mut self) -> Result<(), Problem> {
        // The first look takes the snapshot.
        let begun = "pragma query_only = on; begin; select count(*) from sqlite_master";
        self.connection.execute_batch(begun).map_err(|error| unreadable(&self.path, &error))
    }

    fn name(&self, _: &Relation, table: &str) -> String {
        table.to_string()
    }

    fn place(&self, _: &Relation, _: &str) -> &'static str {
        "row"
    }

    fn check(&self, relation: &Relation, _: &str) -> Result<(), String> {
        let query = query_of(relation)?;
        let statement = self
            .connection
            .prepare(query)
            .map_err(|error| format!("SQLite refuses its query: {error}{}", advice(&self.path)))?;
        match statement.column_count() {
            0 => Err("its query gives no rows".into()),
            _ => Ok(()),
        }
    }

    fn forms(&self, relation: &Relation) -> Result<Forms, Problem> {
        let failed = |error: rusqlite::Error| unreadable(&self.path, &error);
        let query = query_of(relation).map_err(Problem::Source)?;
        let statement = self.connection.prepare(query).map_err(failed)?;
        let mut forms = Forms::new();
        for column in statement.columns_with_metadata() {
            let (Some(table), Some(own)) = (column.table_name(), column.origin_name()) else { continue };
            forms.insert(column.name().to_string(), form(&self.connection, table, own).map_err(failed)?);
        }
        Ok(forms)
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
            Problem::Source(format!(
                "the query of {table} failed in {}: {error}{}",
                path.display(),
                advice(path)
            ))
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
            match put_row(&mut batch, row, columns.len()).map_err(failed)? {
                None => batch.end_row(number),
                Some((column, text)) => {
                    let column = Some(columns[column].clone());
                    batch.refuse_row(Fault { place: number, column, text });
                }
            }
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

/// Adds the values of a row, unless one of them is too long: then tells which, and how that is said.
fn put_row(
    batch: &mut Batch,
    row: &rusqlite::Row<'_>,
    columns: usize,
) -> rusqlite::Result<Option<(usize, String)>> {
    let start = batch.bytes.len();
    for column in 0..columns {
        let value = row.get_ref(column)?;
        let bytes = match value {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
            _ => 0,
        };
        if bytes > VALUE_BYTES_MAX {
            return Ok(Some((column, too_long(bytes))));
        }
        if batch.bytes.len() - start + bytes > ROW_BYTES_MAX {
            return Ok(Some((column, "with it the row has more than 256 MiB, which no row may have".into())));
        }
        put(batch, value);
    }
    Ok(None)
}

/// A real number as SQLite prints it, with an exponent of two digits at least; with more than its 15 digits
/// where these would be another number.
fn real(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "Inf" } else { "-Inf" }.into();
    }
    if number == 0.0 {
        return "0.0".into();
    }
    let short = format!("{number:.14e}");
    let scientific = if short.parse() == Ok(number) { short } else { format!("{number:e}") };
    let (digits, exponent) = scientific.split_once('e').expect("a number with an exponent");
    let exponent: i32 = exponent.parse().expect("a number");
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    if !(-4..15).contains(&exponent) {
        let point = if digits.contains('.') { "" } else { ".0" };
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}{point}e{sign}{:02}", exponent.abs());
    }
    // What is written without an exponent is as short as it can be, and exact.
    format!("{number:?}")
}

/// Adds a value as text; a blob as it is.
fn put(batch: &mut Batch, value: ValueRef<'_>) {
    use std::io::Write;
    let start = batch.bytes.len();
    let written = match value {
        ValueRef::Null => return batch.push(None),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => return batch.push(Some(bytes)),
        ValueRef::Integer(number) => write!(batch.bytes, "{number}"),
        ValueRef::Real(number) => write!(batch.bytes, "{}", real(number)),
    };
    written.expect("memory takes what is written");
    batch.cells.push(Cell::at(start, batch.bytes.len() - start));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_numbers_are_as_sqlite_prints_them_and_none_becomes_another() {
        let connection = Connection::open_in_memory().unwrap();
        for number in [
            0.0,
            1.0,
            -1.5,
            1e15,
            1e16,
            123_456_789_012_345.0,
            1.5e300,
            1e-4,
            1e-5,
            1.25e-7,
            -2e-300,
            f64::MAX,
            f64::INFINITY,
            f64::NEG_INFINITY,
            0.1,
            100.0,
            12345.678,
        ] {
            let told: String =
                connection.query_row("select cast(?1 as text)", [number], |row| row.get(0)).unwrap();
            if told.parse() == Ok(number) || number.is_infinite() {
                assert_eq!(real(number), told, "{number:?}");
            }
        }
        for number in [0.1 + 0.2, 1.0 / 3.0, 1e16 / 3.0, 1e-9 / 7.0, f64::MIN_POSITIVE, 5e-324] {
            assert_eq!(real(number).parse(), Ok(number), "{}", real(number));
        }
    }
}
