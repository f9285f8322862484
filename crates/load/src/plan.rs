//! What a map means for rows whose columns are known: templates by the numbers of columns, names by their
//! numbers.

use std::collections::BTreeMap;

use kelix::TableKind;
use kelix_types::limits::KEY_BYTES_MAX;

use crate::batch::{Batch, ROW_BYTES_MAX, VALUE_BYTES_MAX, too_long};
use crate::findings::shown;
use crate::map::{ColumnName, ListMap, Map, Piece, TableMap, Template, list_table};
use crate::rows::Rows;
use crate::store::TableSpec;

/// Milliseconds of the longest time an item may stay: a hundred years.
const EXPIRY_MS_MAX: u64 = 36_500 * 86_400_000;

/// Bytes of the longest link's own bytes. So all links that a chunk may have fit into a record.
const LINK_BYTES_MAX: usize = 64 << 10;

/// The name of the links of a chunk.
pub(crate) const ITEM: u16 = 0;
/// The name of the link to the next chunk.
pub(crate) const NEXT: u16 = 1;

/// A value that does not fit: its column and what is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Misfit {
    pub column: Option<usize>,
    pub text: String,
}

/// How keys are made.
#[derive(Clone, Debug)]
pub(crate) struct KeyPlan {
    template: Template<usize>,
    numbers: bool,
    /// Whether the table's keys have several columns, so that what stands between them is told from their
    /// text.
    several: bool,
}

/// What becomes of a column.
#[derive(Clone, Debug)]
enum FieldPlan {
    Bytes {
        name: u16,
        column: usize,
    },
    /// A value of 8 bytes.
    Number {
        name: u16,
        column: usize,
    },
    Link {
        name: u16,
        table: u16,
        key: KeyPlan,
        bytes: Option<usize>,
    },
}

/// How the rows of a table, or of a list, become records.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub columns: Vec<ColumnName>,
    key: KeyPlan,
    fields: Vec<FieldPlan>,
    expires: Option<usize>,
}

/// The names of attributes and links of a table, in the order of the map.
fn names(table: &TableMap) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let attributes = table.attributes.iter().map(|(name, _)| name);
    let links = table.links.iter().map(|link| &link.name);
    for name in attributes.chain(links).chain(table.lists.iter().map(|list| &list.name)) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// The tables to be made: those of the map, then those of its lists.
pub(crate) fn tables(map: &Map) -> Vec<TableSpec> {
    let own = map.tables.iter().map(|table| TableSpec {
        name: table.name.clone(),
        kind: table.kind,
        overlay: table.overlay,
        names: names(table),
    });
    let lists = map.tables.iter().flat_map(|table| {
        table.lists.iter().map(|list| TableSpec {
            name: list_table(&table.name, &list.name),
            kind: TableKind::Hash,
            overlay: table.overlay,
            names: vec!["item".into(), "next".into()],
        })
    });
    own.chain(lists).collect()
}

/// The number of a name among those of a table.
pub(crate) fn name_number(table: &TableMap, name: &str) -> u16 {
    names(table).iter().position(|known| known == name).expect("a name of the table") as u16
}

/// The columns that a map asks a relation for, each with where it stands in the map.
pub(crate) type Wanted = BTreeMap<ColumnName, &'static str>;

fn want<'n>(wanted: &mut Wanted, names: impl IntoIterator<Item = &'n ColumnName>, what: &'static str) {
    for name in names {
        wanted.entry(name.clone()).or_insert(what);
    }
}

/// The columns that a table needs.
pub(crate) fn wanted_by_table(table: &TableMap) -> Wanted {
    let mut wanted = Wanted::new();
    want(&mut wanted, table.key.columns(), "key");
    want(
        &mut wanted,
        table.attributes.iter().filter(|(name, _)| name.is_empty()).map(|(_, column)| column),
        "value",
    );
    want(&mut wanted, table.attributes.iter().map(|(_, column)| column), "attributes");
    want(&mut wanted, &table.expires_in, "expires_in");
    for link in &table.links {
        want(&mut wanted, link.key.columns().chain(&link.bytes), "[[table.link]]");
    }
    wanted
}

/// The columns that a list needs.
pub(crate) fn wanted_by_list(list: &ListMap) -> Wanted {
    let mut wanted = Wanted::new();
    want(&mut wanted, list.owner.columns(), "owner");
    want(&mut wanted, list.key.columns().chain(&list.bytes), "key");
    wanted
}

/// Where a column stands that is known to be there.
fn number(columns: &[String], name: &str) -> usize {
    columns.iter().position(|column| column == name).expect("missing columns are found before")
}

/// Adds the text of a column that a separator will follow, so that other texts give other keys. A separator
/// that the text has gets a `\` before it, and each `\` before one is doubled; all else stays as it is. By
/// the number of `\` before a separator it is known which one ends the text.
fn add_before(separator: &[u8], text: &[u8], key: &mut Vec<u8>) {
    // A text may end with the beginning of the separator, so that one seems to stand earlier.
    let begins = |rest: &[u8]| {
        let own = rest.len().min(separator.len());
        rest[..own] == separator[..own] && separator[own..] == separator[..separator.len() - own]
    };
    let mut slashes = 0;
    for (at, byte) in text.iter().enumerate() {
        if *byte == separator[0] {
            key.resize(key.len() + slashes + usize::from(begins(&text[at..])), b'\\');
        }
        key.push(*byte);
        slashes = if *byte == b'\\' { slashes + 1 } else { 0 };
    }
    key.resize(key.len() + slashes, b'\\');
}

impl KeyPlan {
    /// The keys of a table, made as that table's `own` template has them, of columns of a relation.
    fn new(template: &Template, table: &TableMap, columns: &[String]) -> KeyPlan {
        KeyPlan {
            template: template.map(|name| number(columns, name)),
            numbers: table.kind.has_numbers(),
            several: table.key.columns().count() > 1,
        }
    }

    /// What stands behind a piece and before another column. With `\` in it nothing can be told by that, and
    /// texts stay as they are.
    fn separator(&self, piece: usize) -> Option<&[u8]> {
        match self.template.pieces.get(piece + 1..)? {
            [Piece::Text(text), Piece::Column(_), ..] if self.several && !text.contains('\\') => {
                Some(text.as_bytes())
            }
            _ => None,
        }
    }

    /// Writes the key of a row. `false`: a column is null, so there is none.
    #[inline]
    fn write(&self, batch: &Batch, row: usize, key: &mut Vec<u8>) -> Result<bool, Misfit> {
        let start = key.len();
        for (number, piece) in self.template.pieces.iter().enumerate() {
            match piece {
                Piece::Text(text) => key.extend_from_slice(text.as_bytes()),
                Piece::Column(column) => match batch.get(row, *column) {
                    None => return Ok(false),
                    Some(text) if self.numbers => {
                        key.extend_from_slice(&number_of(text, *column, "keys")?.to_be_bytes())
                    }
                    Some(text) => match self.separator(number) {
                        Some(separator) => add_before(separator, text, key),
                        None => key.extend_from_slice(text),
                    },
                },
            }
        }
        match key.len() - start {
            bytes if bytes > KEY_BYTES_MAX => Err(Misfit {
                column: self.template.columns().next().copied(),
                text: format!("a key of {bytes} bytes; the longest allowed is {KEY_BYTES_MAX}"),
            }),
            _ => Ok(true),
        }
    }

    /// The first column of a row that is null.
    fn null(&self, batch: &Batch, row: usize) -> Option<usize> {
        self.template.columns().copied().find(|column| batch.get(row, *column).is_none())
    }
}

/// A key or a value that is a number.
fn number_of(text: &[u8], column: usize, what: &str) -> Result<u64, Misfit> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Misfit {
        column: Some(column),
        text: format!("{} is no whole number from 0 to 2^64-1, which {what} of that table are", shown(text)),
    })
}

/// A value of a table whose values are numbers, as the store has it.
fn value_of(text: Option<&[u8]>, column: usize) -> Result<[u8; 8], Misfit> {
    match text {
        Some(text) => number_of(text, column, "values").map(u64::to_le_bytes),
        None => {
            let text = "it is null, and values of that table are numbers; leave such rows out".to_string();
            Err(Misfit { column: Some(column), text })
        }
    }
}

/// The own bytes of a link.
fn link_bytes_of(batch: &Batch, row: usize, column: Option<usize>) -> Result<&[u8], Misfit> {
    let bytes = column.and_then(|column| batch.get(row, column)).unwrap_or_default();
    match bytes.len() {
        0..=LINK_BYTES_MAX => Ok(bytes),
        long => {
            Err(Misfit { column, text: format!("{long} bytes, and a link carries at most {LINK_BYTES_MAX}") })
        }
    }
}

/// For how long an item stays.
fn expiry_of(text: &[u8], column: usize) -> Result<u64, Misfit> {
    let seconds = std::str::from_utf8(text).ok().and_then(|text| text.trim().parse::<f64>().ok());
    let wrong = |text: String| Err(Misfit { column: Some(column), text });
    match seconds.map(|seconds| seconds * 1000.0) {
        Some(ms) if ms >= 1.0 && ms <= EXPIRY_MS_MAX as f64 => Ok(ms as u64),
        Some(ms) if ms < 1.0 => {
            wrong(format!("{}: the item would end at once; leave such rows out", shown(text)))
        }
        Some(ms) if ms > EXPIRY_MS_MAX as f64 => {
            wrong(format!("{} seconds are more than 36500 days; null means that an item stays", shown(text)))
        }
        _ => wrong(format!("{} is no number of seconds", shown(text))),
    }
}

impl Plan {
    /// The plan of a table.
    pub fn of_table(map: &Map, table: &TableMap, columns: &[String]) -> Plan {
        let mut fields = Vec::new();
        for (name, column) in &table.attributes {
            let (name, column) = (name_number(table, name), number(columns, column));
            fields.push(match table.kind.has_items() {
                true => FieldPlan::Bytes { name, column },
                false => FieldPlan::Number { name, column },
            });
        }
        for link in &table.links {
            fields.push(FieldPlan::Link {
                name: name_number(table, &link.name),
                table: link.to as u16,
                key: KeyPlan::new(&link.key, &map.tables[link.to], columns),
                bytes: link.bytes.as_ref().map(|name| number(columns, name)),
            });
        }
        Plan {
            columns: columns.to_vec(),
            key: KeyPlan::new(&table.key, table, columns),
            fields,
            expires: table.expires_in.as_ref().map(|name| number(columns, name)),
        }
    }

    /// The plan of a list: records have the owner's key and one link.
    pub fn of_list(map: &Map, owner: &TableMap, list: &ListMap, columns: &[String]) -> Plan {
        let link = FieldPlan::Link {
            name: ITEM,
            table: list.to as u16,
            key: KeyPlan::new(&list.key, &map.tables[list.to], columns),
            bytes: list.bytes.as_ref().map(|name| number(columns, name)),
        };
        let key = KeyPlan::new(&list.owner, owner, columns);
        Plan { columns: columns.to_vec(), key, fields: vec![link], expires: None }
    }

    /// Makes the record of a row. What does not fit makes none.
    #[inline]
    pub fn record(&self, batch: &Batch, row: usize, rows: &mut Rows) -> Result<(), Misfit> {
        let expires = self.expires.and_then(|column| Some((column, batch.get(row, column)?)));
        let expires = expires.map(|(column, text)| expiry_of(text, column)).transpose()?;
        let mut record = rows.begin(batch.places[row], expires);
        if !self.key.write(batch, row, record.begin_key())? {
            let text = "it is null, and a key needs it; leave such rows out".to_string();
            return Err(Misfit { column: self.key.null(batch, row), text });
        }
        record.end_key();
        for field in &self.fields {
            match field {
                FieldPlan::Bytes { name, column } => {
                    let Some(bytes) = batch.get(row, *column) else { continue };
                    if bytes.len() > VALUE_BYTES_MAX {
                        return Err(Misfit { column: Some(*column), text: too_long(bytes.len()) });
                    }
                    if record.len() + bytes.len() > ROW_BYTES_MAX {
                        let text = "with it the item has more than 256 MiB, which no item may have".into();
                        return Err(Misfit { column: Some(*column), text });
                    }
                    record.bytes(*name, bytes);
                }
                FieldPlan::Number { name, column } => {
                    record.bytes(*name, &value_of(batch.get(row, *column), *column)?);
                }
                FieldPlan::Link { name, table, key, bytes } => {
                    let bytes = link_bytes_of(batch, row, *bytes)?;
                    record.link_by((*name, *table), bytes, |to| key.write(batch, row, to))?;
                }
            }
        }
        record.end();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds() {
        let ms = |text: &str| expiry_of(text.as_bytes(), 0).map_err(|misfit| misfit.text);
        assert_eq!(ms("90"), Ok(90_000));
        assert_eq!(ms("0.5"), Ok(500));
        for (text, wrong) in
            [("0", "at once"), ("-1", "at once"), ("x", "no number"), ("nan", "no number"), ("1e12", "36500")]
        {
            assert!(ms(text).unwrap_err().contains(wrong), "{text}");
        }
    }

    /// All pairs of short texts give different keys, also with a separator that may overlap itself; those
    /// without separators stay as they are.
    #[test]
    fn keys_of_several_columns_differ() {
        let mut texts = vec![Vec::new()];
        for _ in 0..4 {
            let longer: Vec<Vec<u8>> = texts
                .iter()
                .flat_map(|text: &Vec<u8>| b"a:\\".iter().map(|byte| [&text[..], &[*byte]].concat()))
                .collect();
            texts.extend(longer);
            texts.sort();
            texts.dedup();
        }
        assert_eq!(texts.len(), 1 + 3 + 9 + 27 + 81);
        for separator in ["a", ":", "::", ":a:", "a::a"] {
            let mut keys = std::collections::HashMap::new();
            for one in &texts {
                for other in &texts {
                    let mut key = Vec::new();
                    add_before(separator.as_bytes(), one, &mut key);
                    key.extend_from_slice(separator.as_bytes());
                    key.extend_from_slice(other);
                    let before = keys.insert(key, (one, other));
                    assert_eq!(before, None, "{separator} {one:?} {other:?}");
                }
            }
        }
        let key = |text: &[u8]| {
            let mut key = Vec::new();
            add_before(b"/", text, &mut key);
            String::from_utf8(key).unwrap()
        };
        assert_eq!(key(b"C:\\dir: a"), "C:\\dir: a");
        assert_eq!(
            (key(b"a/b"), key(b"a\\"), key(b"a\\/")),
            ("a\\/b".into(), "a\\\\".into(), "a\\\\\\/".into())
        );
    }

    #[test]
    fn numbers() {
        let number = |text: &str| number_of(text.as_bytes(), 0, "keys");
        assert_eq!(number("18446744073709551615"), Ok(u64::MAX));
        for wrong in ["", "-1", "1.0", "18446744073709551616", " 1"] {
            assert!(number(wrong).is_err(), "{wrong}");
        }
    }
}
