//! The schema of a PostgreSQL database, from its catalogue.

use std::collections::HashMap;

use tokio_postgres::Row;

use super::{Column, ForeignKey, Schema, Table, quoted};
use crate::problem::Problem;
use crate::source::postgres::Database;

/// Tables that the user may read; of a partitioned one the whole and not its parts.
const TABLES: &str = "
    select c.oid::int8, n.nspname::text, c.relname::text, current_database()::text
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p') and not c.relispartition
        and n.nspname <> 'information_schema' and n.nspname !~ '^pg_'
        and has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select')
    order by n.nspname <> 'public', 2, 3";

const COLUMNS: &str = "
    select attrelid::int8, attnum, attname::text, not attnotnull
    from pg_catalog.pg_attribute where attnum > 0 and not attisdropped order by 1, 2";

/// Primary keys first, then what else makes a key: unique, and never null.
const CONSTRAINTS: &str = "
    select conrelid::int8, contype::text, conkey, confrelid::int8, confkey
    from pg_catalog.pg_constraint where contype in ('p', 'u', 'f') and conparentid = 0
    order by contype <> 'p', conname";

/// The tables of a schema with what tells them apart while it is read.
struct Found {
    tables: Vec<Table>,
    by_oid: HashMap<i64, usize>,
    /// Names of columns by table and number.
    columns: HashMap<(i64, i16), String>,
}

impl Found {
    fn names(&self, oid: i64, numbers: &[i16]) -> Option<Vec<String>> {
        numbers.iter().map(|number| self.columns.get(&(oid, *number)).cloned()).collect()
    }

    fn constraint(&mut self, row: &Row) {
        let (oid, kind): (i64, String) = (row.get(0), row.get(1));
        let numbers: Vec<i16> = row.get(2);
        let Some(table) = self.by_oid.get(&oid).copied() else { return };
        let Some(columns) = self.names(oid, &numbers) else { return };
        if kind == "f" {
            let (to, to_numbers): (i64, Vec<i16>) = (row.get(3), row.get(4));
            let Some(to_columns) = self.names(to, &to_numbers) else { return };
            let Some(to) = self.by_oid.get(&to).copied() else { return };
            self.tables[table].foreign.push(ForeignKey { columns, to, to_columns });
            return;
        }
        let table = &mut self.tables[table];
        let never_null = columns.iter().all(|name| !table.is_nullable(name));
        if table.key.is_empty() && (kind == "p" || never_null) {
            table.key = columns;
            table.key_note =
                (kind == "u").then_some("there is no primary key; this is unique and never null");
        }
    }
}

pub(super) fn schema(database: &Database) -> Result<Schema, Problem> {
    let mut found = Found { tables: Vec::new(), by_oid: HashMap::new(), columns: HashMap::new() };
    let mut name = String::new();
    for row in database.query(TABLES)? {
        let (oid, schema, table): (i64, String, String) = (row.get(0), row.get(1), row.get(2));
        name = row.get(3);
        let quoted = format!("{}.{}", quoted(&schema), quoted(&table));
        let own = if schema == "public" { table } else { format!("{schema}.{table}") };
        found.by_oid.insert(oid, found.tables.len());
        found.tables.push(Table { name: own.replace('/', "_"), quoted, ..Table::default() });
    }
    for row in database.query(COLUMNS)? {
        let (oid, number, name): (i64, i16, String) = (row.get(0), row.get(1), row.get(2));
        if let Some(table) = found.by_oid.get(&oid) {
            found.tables[*table].columns.push(Column { name: name.clone(), nullable: row.get(3) });
            found.columns.insert((oid, number), name);
        }
    }
    for row in database.query(CONSTRAINTS)? {
        found.constraint(&row);
    }
    Ok(Schema { name, tables: found.tables })
}
