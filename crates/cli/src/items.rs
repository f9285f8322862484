//! Items as the commands print them: lines for people, objects for programs.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::Write;
use std::time::SystemTime;

use kelix::{Attribute, Item, Link, Session, TableId, TableKind};
use serde_json::{Value, json};

use crate::Failure;
use crate::bytes::{KeyArgument, parse_value, show_in_json, show_key, show_name, show_target, show_value};
use crate::context::Context;
use crate::kept::Lent;

/// A table as commands know it: by its name, and by its kind, which says how keys and values are written.
#[derive(Clone, Copy)]
pub(crate) struct Named<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it holds.
    pub kind: TableKind,
}

impl Named<'_> {
    /// One of its keys, as it was given on the command line.
    pub fn key(self, operation: &str, key: &KeyArgument) -> Result<Vec<u8>, Failure> {
        key.of(self.kind).map_err(|why| self.refuses(operation, &why))
    }

    /// A value for one of its keys, as it was given on the command line.
    pub fn value(self, operation: &str, text: &str) -> Result<Vec<u8>, Failure> {
        parse_value(self.kind, text).map_err(|why| self.refuses(operation, &why))
    }

    fn refuses(self, operation: &str, why: &str) -> Failure {
        Failure::usage(operation, format!("table \"{}\": {why}", show_name(self.name)))
    }

    /// `TABLE/KEY`, as messages name an item.
    pub fn place(self, key: &[u8]) -> String {
        format!("{}/{}", show_name(self.name), show_key(self.kind, key))
    }
}

/// Names of the tables that links lead to, looked up once each. Links tell only a table's number.
#[derive(Default)]
pub(crate) struct TableNames(HashMap<TableId, String>);

impl TableNames {
    /// Whether every table is known that the links of an item lead to.
    fn know(&self, item: &Item) -> bool {
        targets(item).all(|id| self.0.contains_key(&id))
    }

    /// Looks up the tables that the links of an item lead to.
    pub fn learn(&mut self, session: &mut Session, item: &Item) -> Result<(), Failure> {
        targets(item).try_for_each(|id| self.look_up(session, id))
    }

    /// The same by a session of its own, for a scan has the other one for itself. It is opened when the first
    /// item has links to tables that are not known: most scans meet none.
    pub fn learn_beside(
        &mut self,
        asking: &mut Option<Lent>,
        context: &Context,
        item: &Item,
    ) -> Result<(), Failure> {
        if self.know(item) {
            return Ok(());
        }
        let session = match asking {
            Some(session) => session,
            none => none.insert(context.session()?),
        };
        self.learn(session, item)
    }

    /// Looks up the table that an item is of.
    pub fn learn_own(&mut self, session: &mut Session, item: &Item) -> Result<(), Failure> {
        self.look_up(session, item.table())
    }

    fn look_up(&mut self, session: &mut Session, id: TableId) -> Result<(), Failure> {
        if let Entry::Vacant(entry) = self.0.entry(id) {
            let name = session.table_name(id)?;
            entry.insert(name.unwrap_or_else(|| format!("#{}", id.0)));
        }
        Ok(())
    }

    /// A table that has been looked up.
    pub fn get(&self, id: TableId) -> Named<'_> {
        Named { name: &self.0[&id], kind: id.kind() }
    }
}

fn targets(item: &Item) -> impl Iterator<Item = TableId> + '_ {
    item.attributes().into_iter().filter_map(|(_, attribute)| match attribute {
        Attribute::Link(link) => Some(link.table),
        Attribute::Bytes(_) => None,
    })
}

/// Whether an item is a plain value, without attributes.
pub(crate) fn is_plain(item: &Item) -> bool {
    matches!(&item.attributes()[..], [("", Attribute::Bytes(_))])
}

/// The lines of an item: `name: value` and `name -> table/key`. The value without a name has an empty one.
pub(crate) fn write_lines(
    out: &mut impl Write,
    indent: &str,
    kind: TableKind,
    item: &Item,
    names: &TableNames,
) -> std::io::Result<()> {
    for (name, attribute) in item.attributes() {
        let name = show_name(name);
        match attribute {
            Attribute::Bytes(bytes) => writeln!(out, "{indent}{name}: {}", show_value(kind, bytes))?,
            Attribute::Link(Link { table, key, bytes }) => {
                let target = names.get(table);
                writeln!(out, "{indent}{name} -> {}", show_target(target.name, target.kind, key, bytes))?;
            }
        }
    }
    Ok(())
}

/// An item among others: `key: value` if it is plain, else its key, and below it its lines.
pub(crate) fn write_among(
    out: &mut impl Write,
    kind: TableKind,
    item: &Item,
    names: &TableNames,
) -> std::io::Result<()> {
    let key = show_key(kind, item.key());
    if is_plain(item) {
        return writeln!(out, "{key}: {}", show_value(kind, item.value()));
    }
    writeln!(out, "{key}")?;
    write_lines(out, "  ", kind, item, names)
}

/// An item as a JSON object: its key, its version as digits (too large for the numbers of many JSON readers),
/// when it ends, its value if it has one, and its attributes and links unless it is plain.
pub(crate) fn json(table: Named<'_>, item: &Item, names: &TableNames) -> Value {
    let mut object = json!({
        "table": table.name,
        "key": show_key(table.kind, item.key()),
        "version": item.version().0.to_string(),
    });
    if let Some(expires) = item.expires() {
        let since = expires.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        object["expires_unix_ms"] = json!(since.as_millis() as u64);
    }
    if item.flags() != 0 {
        object["client_flags"] = json!(item.flags());
    }
    let (mut attributes, mut links) = (Vec::new(), Vec::new());
    for (name, attribute) in item.attributes() {
        match attribute {
            Attribute::Bytes(bytes) if name.is_empty() => {
                object["value"] = json!(match table.kind.has_items() {
                    true => show_in_json(bytes),
                    false => show_value(table.kind, bytes),
                });
            }
            Attribute::Bytes(bytes) => attributes.push(json!({"name": name, "value": show_in_json(bytes)})),
            Attribute::Link(Link { table, key, bytes }) => {
                let target = names.get(table);
                let key = show_key(target.kind, key);
                let mut link = json!({"name": name, "table": target.name, "key": key});
                if !bytes.is_empty() {
                    link["bytes"] = json!(show_in_json(bytes));
                }
                links.push(link);
            }
        }
    }
    if !is_plain(item) {
        object["attributes"] = json!(attributes);
        object["links"] = json!(links);
    }
    object
}

/// A key that is absent, as JSON.
pub(crate) fn missing_json(table: Named<'_>, key: &[u8]) -> Value {
    json!({"table": table.name, "key": show_key(table.kind, key), "missing": true})
}
