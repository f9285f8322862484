//! The schema of an SQLite database.

use std::path::Path;

use rusqlite::Connection;

use super::{Column, Compared, ForeignKey, Pair, Schema, Table, quoted};
use crate::problem::Problem;
use crate::source::sqlite::{Database, form};

pub(super) fn schema(database: &Database, path: &Path) -> Result<Schema, Problem> {
    let failed = |error: rusqlite::Error| {
        Problem::Source(format!("cannot read the schema of {}: {error}", path.display()))
    };
    let tables = tables(&database.connection).map_err(failed)?;
    let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok(Schema { name, tables })
}

fn tables(connection: &Connection) -> rusqlite::Result<Vec<Table>> {
    let mut names = connection.prepare(
        "select name from pragma_table_list where type = 'table' and schema = 'main' and name not like 'sqlite\\_%' escape '\\' \
         order by name",
    )?;
    let names: Vec<String> = names.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut tables = Vec::with_capacity(names.len());
    for name in &names {
        tables.push(table(connection, name)?);
    }
    for (number, name) in names.iter().enumerate() {
        let foreign = foreign_keys(connection, name, &names, &tables)?;
        tables[number].foreign = foreign;
    }
    Ok(tables)
}

fn table(connection: &Connection, name: &str) -> rusqlite::Result<Table> {
    let mut table = Table { name: name.replace('/', "_"), quoted: quoted(name), ..Table::default() };
    let mut columns = connection
        .prepare("select name, \"notnull\", pk from pragma_table_xinfo(?1) where hidden != 1 order by cid")?;
    let mut rows = columns.query([name])?;
    let mut key: Vec<(i64, String)> = Vec::new();
    while let Some(row) = rows.next()? {
        let (name, never_null, place): (String, bool, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if place > 0 {
            key.push((place, name.clone()));
        }
        table.columns.push(Column { name, nullable: !never_null });
    }
    key.sort();
    table.key = key.into_iter().map(|(_, name)| name).collect();
    if table.key.is_empty() {
        if let Some(key) = unique(connection, name, &table)? {
            table.key = key;
            table.key_note = Some("there is no primary key; this is unique and never null");
        }
    }
    Ok(table)
}

/// Columns that are unique together and never null, if there are any.
fn unique(connection: &Connection, name: &str, table: &Table) -> rusqlite::Result<Option<Vec<String>>> {
    let mut indexes = connection.prepare(
        "select name from pragma_index_list(?1) where \"unique\" and not partial order by seq desc",
    )?;
    let indexes: Vec<String> = indexes.query_map([name], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for index in indexes {
        let mut columns = connection.prepare("select name from pragma_index_info(?1) order by seqno")?;
        // An expression has no name.
        let columns: Vec<Option<String>> =
            columns.query_map([&index], |row| row.get(0))?.collect::<Result<_, _>>()?;
        let columns: Option<Vec<String>> = columns.into_iter().collect();
        let Some(columns) = columns.filter(|columns| columns.iter().all(|name| !table.is_nullable(name)))
        else {
            continue;
        };
        return Ok(Some(columns));
    }
    Ok(None)
}

fn foreign_keys(
    connection: &Connection,
    name: &str,
    names: &[String],
    tables: &[Table],
) -> rusqlite::Result<Vec<ForeignKey>> {
    let mut keys = connection.prepare(
        "select id, \"table\", \"from\", \"to\" from pragma_foreign_key_list(?1) order by id desc, seq",
    )?;
    let mut rows = keys.query([name])?;
    let mut foreign: Vec<(i64, ForeignKey)> = Vec::new();
    let own = &tables[names.iter().position(|own| own == name).expect("a table")];
    while let Some(row) = rows.next()? {
        let (id, to, column): (i64, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let Some(to) = names.iter().position(|name| name.eq_ignore_ascii_case(&to)) else { continue };
        if foreign.last().is_none_or(|(last, _)| *last != id) {
            foreign.push((id, ForeignKey { pairs: Vec::new(), to, same_text: true }));
        }
        let key = &mut foreign.last_mut().expect("there is one").1;
        // Columns that are left out are the primary key's.
        let named: Option<String> = row.get(3)?;
        let there = named.or_else(|| tables[to].key.get(key.pairs.len()).cloned()).unwrap_or_default();
        let (here, there) = (spelled(own, column), spelled(&tables[to], there));
        let forms = (form(connection, name, &here)?.form, form(connection, &names[to], &there)?.form);
        key.same_text &= forms.0.is_some() && forms.0 == forms.1;
        // The column that is named says by which collation it is compared, and what the other is converted
        // to; a plus takes the say in the latter away from that one.
        let compared = Compared { operator: "=".into(), before: "+", ..Compared::default() };
        key.pairs.push(Pair { here, there, compared });
    }
    Ok(foreign.into_iter().map(|(_, key)| key).collect())
}

/// A column's name as the table spells it, which may differ in case.
fn spelled(table: &Table, name: String) -> String {
    let own = table.columns.iter().find(|column| column.name.eq_ignore_ascii_case(&name));
    own.map_or(name, |column| column.name.clone())
}
