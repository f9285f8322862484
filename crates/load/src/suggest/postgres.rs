//! The schema of a PostgreSQL database, from its catalogue.

use std::collections::HashMap;

use tokio_postgres::Row;

use super::{Column, Compared, ForeignKey, Pair, Schema, Table, quoted};
use crate::problem::Problem;
use crate::source::postgres::{Database, FORMS};

/// Tables that the user may read; of a partitioned one the whole and not its parts.
const TABLES: &str = "
    select c.oid::int8, n.nspname::text, c.relname::text, current_database()::text, c.relkind = 'r' and c.relhassubclass
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p') and not c.relispartition
        and n.nspname <> 'information_schema' and n.nspname !~ '^pg_'
        and has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select')
    order by n.nspname <> 'public', 2, 3";

const COLUMNS: &str = "
    select attrelid::int8, attnum, attname::text, not attnotnull
    from pg_catalog.pg_attribute where attnum > 0 and not attisdropped order by 1, 2";

/// Primary keys first, then what else makes a key: unique, and never null. Columns that an index only
/// includes are none of its key.
const KEYS: &str = "
    select i.indrelid::int8, i.indisprimary, array(
        select number from unnest(i.indkey::int2[]) with ordinality columns (number, place)
        where place <= coalesce((to_jsonb(i) ->> 'indnkeyatts')::int, i.indnatts) order by place)
    from pg_catalog.pg_index i join pg_catalog.pg_class c on c.oid = i.indexrelid
    where i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null
    order by not i.indisprimary, c.relname";

/// The pairs of columns of each foreign key: how the database compares them when it checks the key, and
/// whether what it holds equal has the same text. The operators and their casts are those that the constraint
/// has, the collation is that of the column that is named.
const FOREIGN_KEYS: &str = "
    select con.oid::int8, con.conrelid::int8, con.confrelid::int8, here.attname::text, there.attname::text,
        case when o.oprleft <> there.atttypid and l.typtype <> 'p' then '::' || format_type(o.oprleft, -1) else '' end
            || case when there.attcollation not in (0, here.attcollation) then format(' collate %I.%I', cn.nspname, c.collname) else '' end,
        case when n.nspname = 'pg_catalog' then o.oprname::text else format('operator(%I.%s)', n.nspname, o.oprname) end,
        case when o.oprright <> here.atttypid and r.typtype <> 'p' then '::' || format_type(o.oprright, -1) else '' end,
        case when here.atttypid <> there.atttypid then '::' || format_type(there.atttypid, -1) else '' end,
        coalesce(h.form = th.form, false)
    from pg_catalog.pg_constraint con
    cross join lateral unnest(con.conkey, con.confkey, con.conpfeqop) with ordinality pair (here, there, operator, place)
    join pg_catalog.pg_attribute here on here.attrelid = con.conrelid and here.attnum = pair.here
    join pg_catalog.pg_attribute there on there.attrelid = con.confrelid and there.attnum = pair.there
    join pg_catalog.pg_operator o on o.oid = pair.operator
    join pg_catalog.pg_namespace n on n.oid = o.oprnamespace
    join pg_catalog.pg_type l on l.oid = o.oprleft
    join pg_catalog.pg_type r on r.oid = o.oprright
    join forms h on h.attrelid = here.attrelid and h.attnum = here.attnum
    join forms th on th.attrelid = there.attrelid and th.attnum = there.attnum
    left join pg_catalog.pg_collation c on c.oid = there.attcollation
    left join pg_catalog.pg_namespace cn on cn.oid = c.collnamespace
    where con.contype = 'f' and con.conparentid = 0
    order by con.conname, con.oid, pair.place";

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

    fn key(&mut self, row: &Row) {
        let (oid, is_primary): (i64, bool) = (row.get(0), row.get(1));
        let numbers: Vec<i16> = row.get(2);
        let Some(table) = self.by_oid.get(&oid).copied() else { return };
        let Some(columns) = self.names(oid, &numbers) else { return };
        let table = &mut self.tables[table];
        let never_null = columns.iter().all(|name| !table.is_nullable(name));
        if table.key.is_empty() && (is_primary || never_null) {
            table.key = columns;
            table.key_note =
                (!is_primary).then_some("there is no primary key; this is unique and never null");
        }
    }

    /// Adds a pair of columns of a foreign key, whose pairs come one behind the other.
    fn pair(&mut self, row: &Row, last: &mut Option<i64>) {
        let table = |oid: i64| self.by_oid.get(&oid).copied();
        let (Some(table), Some(to)) = (table(row.get(1)), table(row.get(2))) else { return };
        let foreign = &mut self.tables[table].foreign;
        let constraint: i64 = row.get(0);
        if *last != Some(constraint) {
            foreign.push(ForeignKey { pairs: Vec::new(), to, same_text: true });
            *last = Some(constraint);
        }
        let foreign = foreign.last_mut().expect("one was added");
        foreign.same_text &= row.get::<_, bool>(9);
        let compared = Compared {
            there: row.get(5),
            operator: row.get(6),
            before: "",
            here: row.get(7),
            cast: row.get(8),
        };
        foreign.pairs.push(Pair { here: row.get(3), there: row.get(4), compared });
    }
}

pub(super) fn schema(database: &Database) -> Result<Schema, Problem> {
    let mut found = Found { tables: Vec::new(), by_oid: HashMap::new(), columns: HashMap::new() };
    let mut name = String::new();
    for row in database.query(TABLES)? {
        let (oid, schema, table): (i64, String, String) = (row.get(0), row.get(1), row.get(2));
        name = row.get(3);
        // Heirs of a table have rows of their own, with keys that may be the same.
        let only = if row.get(4) { "only " } else { "" };
        let quoted = format!("{only}{}.{}", quoted(&schema), quoted(&table));
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
    for row in database.query(KEYS)? {
        found.key(&row);
    }
    let mut last = None;
    for row in database.query(&format!("with {FORMS} {FOREIGN_KEYS}"))? {
        found.pair(&row, &mut last);
    }
    Ok(Schema { name, tables: found.tables })
}
