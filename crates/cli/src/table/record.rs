//! Items in files: JSON lines, as `kelix scan --json` prints them, and CSV.
//!
//! ```text
//! {"key":"stu001","attributes":[{"name":"name","value":"XYZ"}],"links":[{"name":"of","table":"people","key":"prof001"}]}
//!
//! key,value,name,of
//! stu001,,XYZ,->people/prof001
//! ```
//!
//! Cells of CSV have the syntax of the command line, and a link has `->` before it; text that begins so is
//! written with `text:`. An empty cell is an attribute that is not there, an empty value is `text:`. A column
//! for an attribute whose name is that of another column, or begins so, has `attr:` before the name.

use std::io::{BufRead, Write};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use kelix::{Attribute, Item, Link, NewItem, Session};
use kelix_load::{CsvFormat, CsvRecords, spans_lines};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::Failure;
use crate::bytes::{KeyArgument, LinkArgument, parse, show, show_key, show_target, show_value};
use crate::context::create_table;
use crate::items::{Named, TableNames, json};
use crate::units::parse_flags;

/// How items stand in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum Format {
    /// A JSON object a line, for anything
    Jsonl,
    /// Columns with a heading each, for items with at most one attribute or link of a name
    Csv,
}

impl Format {
    /// The format of a file of this name, if nothing else is said.
    pub fn of_name(path: &std::path::Path) -> Format {
        let is_csv = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
        if is_csv { Format::Csv } else { Format::Jsonl }
    }

    pub fn name(self) -> &'static str {
        match self {
            Format::Jsonl => "jsonl",
            Format::Csv => "csv",
        }
    }
}

const KEY: &str = "key";
const VALUE: &str = "value";
const EXPIRES: &str = "expires_unix_ms";
/// An earlier one would be a time in seconds, and a later one is in no item.
const EXPIRES_UNIX_MS: RangeInclusive<u64> = 1_000_000_000_000..=(u64::MAX >> 1) / 1_000_000;
const FLAGS: &str = "client_flags";
const ATTRIBUTE: &str = "attr:";
/// Columns that have a meaning of their own, in their order.
const FIXED: [&str; 4] = [KEY, VALUE, EXPIRES, FLAGS];
const LINK: &str = "->";

/// The heading of the column of an attribute.
fn heading(name: &str) -> String {
    let is_taken = FIXED.contains(&name) || name.starts_with(ATTRIBUTE);
    if is_taken { format!("{ATTRIBUTE}{name}") } else { name.to_string() }
}

/// Writes items.
pub(super) struct Writer<'a> {
    table: Named<'a>,
    /// Of CSV: the attributes' names.
    pub columns: Option<Vec<String>>,
}

impl<'a> Writer<'a> {
    pub fn new(table: Named<'a>, format: Format, names: Vec<String>) -> Writer<'a> {
        Writer { table, columns: (format == Format::Csv).then_some(names) }
    }

    /// What stands before the items.
    pub fn begin(&self, out: &mut impl Write) -> Result<(), Failure> {
        let Some(columns) = &self.columns else { return Ok(()) };
        let fixed = FIXED.map(String::from);
        let names = columns.iter().map(|name| heading(name));
        write_row(out, fixed.into_iter().chain(names))
    }

    pub fn write(&self, out: &mut impl Write, item: &Item, names: &TableNames) -> Result<(), Failure> {
        let Some(columns) = &self.columns else {
            let mut object = json(self.table, item, names);
            object.as_object_mut().into_iter().for_each(|object| {
                object.remove("table");
                object.remove("version");
            });
            return Ok(writeln!(out, "{object}")?);
        };
        let mut cells = vec![String::new(); FIXED.len() + columns.len()];
        cells[0] = show_key(self.table.kind, item.key());
        if let Some(ends) = item.expires() {
            let since = ends.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            cells[2] = since.as_millis().to_string();
        }
        if item.flags() != 0 {
            cells[3] = item.flags().to_string();
        }
        for (name, attribute) in item.attributes() {
            let column = if name.is_empty() {
                Some(1)
            } else {
                columns.iter().position(|known| known == name).map(|at| at + FIXED.len())
            };
            let cell = column.map(|column| &mut cells[column]).ok_or_else(|| {
                self.unfit(
                    item,
                    format!("it has the new attribute \"{name}\", for which the heading has no column"),
                )
            })?;
            if !cell.is_empty() {
                return Err(self.unfit(item, format!("it has \"{name}\" more than once")));
            }
            *cell = match attribute {
                Attribute::Bytes(bytes) if name.is_empty() => cell_of(&show_value(self.table.kind, bytes)),
                Attribute::Bytes(bytes) => cell_of(&show(bytes)),
                Attribute::Link(Link { table, key, bytes }) => {
                    let target = names.get(table);
                    format!("{LINK}{}", show_target(target.name, target.kind, key, bytes))
                }
            };
        }
        write_row(out, cells)
    }

    fn unfit(&self, item: &Item, why: String) -> Failure {
        let place = self.table.place(item.key());
        Failure::usage(
            "table export",
            format!("{place} does not go into a row of CSV: {why}; export --format jsonl"),
        )
    }
}

/// Text as a cell, which is not to be taken for a link or for nothing.
fn cell_of(text: &str) -> String {
    if text.is_empty() || text.starts_with(LINK) { format!("text:{text}") } else { text.to_string() }
}

fn write_row(out: &mut impl Write, cells: impl IntoIterator<Item = String>) -> Result<(), Failure> {
    let mut row = csv::WriterBuilder::new().from_writer(Vec::new());
    row.write_record(cells).map_err(|error| Failure::usage("table export", error.to_string()))?;
    let row = row.into_inner().map_err(|error| Failure::usage("table export", error.to_string()))?;
    Ok(out.write_all(&row)?)
}

/// An item as it stands in a file.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    key: Text,
    value: Option<Text>,
    #[serde(default)]
    attributes: Vec<NamedValue>,
    #[serde(default)]
    links: Vec<NamedLink>,
    expires_unix_ms: Option<u64>,
    #[serde(default)]
    client_flags: u32,
    // As `get` and `scan` print them.
    #[serde(default, rename = "table")]
    _table: IgnoredAny,
    #[serde(default, rename = "version")]
    _version: IgnoredAny,
}

/// Text, or a number.
#[derive(Deserialize, Default)]
#[serde(from = "Scalar")]
struct Text(String);

#[derive(Deserialize)]
#[serde(untagged, expecting = "text or a number")]
enum Scalar {
    Text(String),
    Number(serde_json::Number),
}

impl From<Scalar> for Text {
    fn from(scalar: Scalar) -> Text {
        match scalar {
            Scalar::Text(text) => Text(text),
            Scalar::Number(number) => Text(number.to_string()),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedValue {
    name: String,
    value: Text,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedLink {
    name: String,
    table: String,
    key: Text,
    #[serde(default)]
    bytes: String,
}

impl Record {
    /// The item, and its key.
    pub fn item(&self, table: Named<'_>, session: &mut Session) -> Result<(Vec<u8>, NewItem), Failure> {
        const OPERATION: &str = "table import";
        let wrong = |why: String| Failure::usage(OPERATION, why);
        let mut item = NewItem::new();
        if let Some(ends) = self.expires_unix_ms {
            if !EXPIRES_UNIX_MS.contains(&ends) {
                let why = "a time from 2001 to 2262 in milliseconds since 1970 is wanted";
                return Err(wrong(format!("{EXPIRES} is {ends}: {why}")));
            }
            item = item.expires_at(SystemTime::UNIX_EPOCH + Duration::from_millis(ends));
        }
        item = item.flags(self.client_flags);
        let key = KeyArgument::from_str(&self.key.0).map_err(wrong)?;
        let key = table.key(OPERATION, &key)?;
        if let Some(value) = &self.value {
            item = item.bytes("", &table.value(OPERATION, &value.0)?);
        }
        for NamedValue { name, value } in &self.attributes {
            item = item.bytes(name, &parse(&value.0).map_err(wrong)?);
        }
        for NamedLink { name, table, key, bytes } in &self.links {
            let target = create_table(session, OPERATION, table)?;
            let key = KeyArgument::from_str(&key.0).map_err(wrong)?;
            let key = Named { name: table, kind: target.kind() }.key(OPERATION, &key)?;
            item = item.link_with(name, target, &key, &parse(bytes).map_err(wrong)?);
        }
        if self.value.is_none() && self.attributes.is_empty() && self.links.is_empty() {
            return Err(wrong("it has neither a value nor attributes nor links".into()));
        }
        Ok((key, item))
    }

    /// Reads an object of any form, whose names are columns.
    fn of_object(text: &str, key: &str) -> Result<Record, String> {
        let object: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(text).map_err(|error| format!("an object is wanted: {error}"))?;
        if object.get(key).is_none_or(|value| value.is_null()) {
            let names: Vec<&str> = object.keys().map(String::as_str).collect();
            return Err(format!(
                "it has nothing named \"{key}\", which has the key; there are: {}",
                names.join(", ")
            ));
        }
        let mut columns = Vec::new();
        let mut cells = Vec::new();
        for (name, value) in &object {
            use serde_json::Value;
            cells.push(match value {
                Value::Null => String::new(),
                Value::Bool(is) => is.to_string(),
                // Digits beyond those of a float would be lost.
                Value::Number(number)
                    if number
                        .as_f64()
                        .is_some_and(|float| number.is_f64() && float.abs() >= 2f64.powi(53)) =>
                {
                    return Err(format!(
                        "\"{name}\" is a number with more digits than can be read: write it as text"
                    ));
                }
                Value::Number(number) => number.to_string(),
                // A text stands for itself, whatever syntax it looks like.
                Value::String(text)
                    if text.is_empty() || text.starts_with(LINK) || show(text.as_bytes()) != *text =>
                {
                    format!("text:{text}")
                }
                Value::String(text) => text.clone(),
                Value::Array(_) | Value::Object(_) => {
                    return Err(format!(
                        "\"{name}\" is no text, number or truth: `kelix load` takes such objects, by a map"
                    ));
                }
            });
            columns.push(Column::of(name, key));
        }
        Record::of_row(&columns, &cells)
    }

    /// Reads a row of CSV.
    fn of_row(columns: &[Column], row: &[String]) -> Result<Record, String> {
        let mut record = Record::default();
        for (column, cell) in columns.iter().zip(row) {
            match column {
                Column::Key => record.key = Text(cell.to_string()),
                _ if cell.is_empty() => {}
                Column::Value => record.value = Some(Text(cell.to_string())),
                Column::Expires => {
                    let ends = cell.parse().map_err(|_| format!("{EXPIRES} is \"{cell}\", and no number"))?;
                    record.expires_unix_ms = Some(ends);
                }
                Column::Flags => {
                    let flags = parse_flags(cell).map_err(|why| format!("{FLAGS}: {why}"))?;
                    record.client_flags = flags;
                }
                Column::Attribute(name) => match cell.strip_prefix(LINK) {
                    Some(target) => record.links.push(link(name, target)?),
                    None => {
                        record.attributes.push(NamedValue { name: name.clone(), value: Text(cell.into()) })
                    }
                },
            }
        }
        Ok(record)
    }
}

fn link(name: &str, target: &str) -> Result<NamedLink, String> {
    let LinkArgument { table, bytes, .. } = format!("{name}={target}").parse()?;
    let (_, key) = target.split_once('/').expect("parsed before");
    let key = key.split_once('=').map_or(key, |(key, _)| key);
    Ok(NamedLink { name: name.into(), table, key: Text(key.into()), bytes: show(&bytes) })
}

pub(super) enum Column {
    Key,
    Value,
    Expires,
    Flags,
    Attribute(String),
}

impl Column {
    fn of(heading: &str, key: &str) -> Column {
        match heading {
            _ if heading == key => Column::Key,
            VALUE => Column::Value,
            EXPIRES => Column::Expires,
            FLAGS => Column::Flags,
            _ => Column::Attribute(heading.strip_prefix(ATTRIBUTE).unwrap_or(heading).to_string()),
        }
    }
}

/// Reads items.
pub(super) enum Reader<R> {
    Jsonl { from: R, key: Option<String>, line: String, bytes: u64, lines: u64 },
    Csv { rows: Box<CsvRecords<R>>, columns: Vec<Column> },
}

impl<R: BufRead> Reader<R> {
    /// Reads what is left of a file, whose first bytes were read before. `key`: which column has the key, or
    /// which name of each object.
    pub fn new(format: Format, from: R, key: Option<&str>) -> Result<Reader<R>, String> {
        if format == Format::Jsonl {
            let key = key.map(String::from);
            return Ok(Reader::Jsonl { from, key, line: String::new(), bytes: 0, lines: 0 });
        }
        let key = key.unwrap_or(KEY);
        let format = CsvFormat { delimiter: b',', quote: Some(b'"'), escape: None, null: Vec::new() };
        let (rows, headings) = CsvRecords::new(from, format)?;
        let columns: Vec<Column> = headings.iter().map(|heading| Column::of(heading, key)).collect();
        if !columns.iter().any(|column| matches!(column, Column::Key)) {
            return Err(format!("no column is called \"{key}\"; there are: {}", headings.join(", ")));
        }
        Ok(Reader::Csv { rows: Box::new(rows), columns })
    }

    /// The next item; `Ok(None)`: that was the last.
    pub fn next(&mut self) -> Result<Option<Record>, String> {
        match self {
            Reader::Jsonl { from, key, line, bytes, lines } => loop {
                line.clear();
                let read = from.read_line(line).map_err(|error| error.to_string())?;
                if read == 0 {
                    return Ok(None);
                }
                let first = *bytes == 0;
                *bytes += read as u64;
                *lines += 1;
                // Some programs put one first.
                let object = if first { line.trim_start_matches('\u{feff}') } else { &line[..] };
                if first && spans_lines(object.trim().as_bytes()).is_some() {
                    return Err("an object a line is wanted: `jq -c '.[]'` makes such lines of an array, `jq -c .` of an object over several".into());
                }
                if !object.trim().is_empty() {
                    return match key {
                        Some(key) => Record::of_object(object, key).map(Some),
                        None => serde_json::from_str(object).map(Some).map_err(|error| {
                            format!("{error}; of objects that no export wrote, --key NAME tells which name has the key")
                        }),
                    };
                }
            },
            Reader::Csv { rows, columns } => match rows.next_record()? {
                Some(row) => Record::of_row(columns, &row).map(Some),
                None => Ok(None),
            },
        }
    }

    /// How many bytes were read, and lines.
    pub fn position(&self) -> (u64, u64) {
        match self {
            Reader::Jsonl { bytes, lines, .. } => (*bytes, *lines),
            Reader::Csv { rows, .. } => rows.position(),
        }
    }
}

impl<R: BufRead + std::io::Seek> Reader<R> {
    /// Goes on behind so many bytes and lines.
    pub fn go_on(&mut self, to: (u64, u64)) -> std::io::Result<()> {
        match self {
            Reader::Jsonl { from, bytes, lines, .. } => {
                from.seek(std::io::SeekFrom::Start(to.0))?;
                (*bytes, *lines) = to;
                Ok(())
            }
            Reader::Csv { rows, .. } => rows.go_on(to),
        }
    }
}
