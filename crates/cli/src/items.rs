//! Items as the commands print them: lines for people, objects for programs.

use std::collections::HashMap;
use std::io::Write;
use std::time::SystemTime;

use kelix::{Attribute, Item, Session, TableId};
use serde_json::{Value, json};

use crate::Failure;
use crate::bytes::{show, show_name, show_target};

/// Names of tables, looked up once each. Links tell only a table's number.
#[derive(Default)]
pub(crate) struct TableNames(HashMap<u16, String>);

impl TableNames {
    /// The name of a table.
    pub fn get(&mut self, session: &mut Session, id: TableId) -> Result<&str, Failure> {
        if let std::collections::hash_map::Entry::Vacant(entry) = self.0.entry(id.0) {
            let name = session.table_name(id)?;
            entry.insert(name.unwrap_or_else(|| format!("#{}", id.0)));
        }
        Ok(&self.0[&id.0])
    }
}

/// Whether an item is a plain value, without attributes.
pub(crate) fn is_plain(item: &Item) -> bool {
    matches!(&item.attributes()[..], [("", Attribute::Bytes(_))])
}

/// The lines of an item: `name: value` and `name -> table/key`. The value without a name has an empty one.
pub(crate) fn write_lines(
    out: &mut impl Write,
    indent: &str,
    item: &Item,
    session: &mut Session,
    names: &mut TableNames,
) -> Result<(), Failure> {
    for (name, attribute) in item.attributes() {
        let name = show_name(name);
        match attribute {
            Attribute::Bytes(bytes) => writeln!(out, "{indent}{name}: {}", show(bytes))?,
            Attribute::Link { table, key, bytes } => {
                let table = names.get(session, table)?;
                writeln!(out, "{indent}{name} -> {}", show_target(table, key, bytes))?;
            }
        }
    }
    Ok(())
}

/// An item as a JSON object: its key, its version as digits (too large for the numbers of many JSON readers), when
/// it ends, its value if it has one, and its attributes and links unless it is plain.
pub(crate) fn json(
    table: &str,
    item: &Item,
    session: &mut Session,
    names: &mut TableNames,
) -> Result<Value, Failure> {
    let mut object = json!({
        "table": table,
        "key": show(item.key()),
        "version": item.version().0.to_string(),
    });
    if let Some(expires) = item.expires() {
        let since = expires.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        object["expires_unix_ms"] = json!(since.as_millis() as u64);
    }
    let (mut attributes, mut links) = (Vec::new(), Vec::new());
    for (name, attribute) in item.attributes() {
        match attribute {
            Attribute::Bytes(bytes) if name.is_empty() => object["value"] = json!(show(bytes)),
            Attribute::Bytes(bytes) => attributes.push(json!({"name": name, "value": show(bytes)})),
            Attribute::Link { table, key, bytes } => {
                let mut link = json!({"name": name, "table": names.get(session, table)?, "key": show(key)});
                if !bytes.is_empty() {
                    link["bytes"] = json!(show(bytes));
                }
                links.push(link);
            }
        }
    }
    if !is_plain(item) {
        object["attributes"] = json!(attributes);
        object["links"] = json!(links);
    }
    Ok(object)
}

/// A key that is absent, as JSON.
pub(crate) fn missing_json(table: &str, key: &[u8]) -> Value {
    json!({"table": table, "key": show(key), "missing": true})
}

/// `TABLE/KEY`, as messages name an item.
pub(crate) fn place(table: &str, key: &[u8]) -> String {
    format!("{}/{}", show_name(table), show(key))
}
