//! Names of ordered tables, which shards do not know: they are data, which clients read.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use kelix::TableId;
use serde_json::Value;

use crate::Failure;
use crate::kept::Lent;

/// Time between two tries to learn the names that could not be learnt.
const AGAIN: Duration = Duration::from_secs(10);

/// The ordered tables that statistics tell of.
fn ordered(statistics: &mut Value) -> Vec<&mut Value> {
    let shards = statistics.get_mut("shards").and_then(Value::as_array_mut).into_iter().flatten();
    let tables = shards.filter_map(|shard| shard.get_mut("ordered")?.as_array_mut()).flatten();
    tables.filter(|table| table.is_object()).collect()
}

/// Adds the names of ordered tables, read by a session that is only opened if there are any. Statistics
/// without names are better than none, so nothing is said of what fails.
pub(crate) fn name_tables(statistics: &mut Value, open: impl FnOnce() -> Result<Lent, Failure>) {
    let tables = ordered(statistics);
    if tables.is_empty() {
        return;
    }
    let Ok(mut session) = open() else { return };
    for table in tables {
        let id = table["table"].as_u64().and_then(|number| u16::try_from(number).ok()).map(TableId);
        if let Some(Ok(Some(name))) = id.map(|id| session.table_name(id)) {
            table["name"] = name.into();
        }
    }
}

/// Names that are known, of a namespace. They are read again when there are other tables or generations, so
/// that who looks each second makes no reads each second.
#[derive(Default)]
pub(crate) struct Names {
    /// The tables and generations that there were.
    of: Value,
    names: HashMap<u64, String>,
    asked: Option<Instant>,
}

impl Names {
    /// Adds the names to statistics.
    pub fn add_to(&mut self, statistics: &mut Value, open: impl FnOnce() -> Result<Lent, Failure>) {
        let stages = stages(&statistics["generations"]);
        let tables = ordered(statistics);
        let numbers: Value = tables.iter().map(|table| table["table"].clone()).collect();
        let complete = tables.iter().all(|table| self.name(table).is_some());
        let of = Value::Array(vec![numbers, stages]);
        let lately = self.asked.is_some_and(|asked| asked.elapsed() < AGAIN);
        if self.of == of && (complete || lately) {
            for table in tables {
                if let Some(name) = self.name(table) {
                    table["name"] = name.into();
                }
            }
            return;
        }
        name_tables(statistics, open);
        let name = |table: &mut Value| Some((table["table"].as_u64()?, table["name"].as_str()?.to_string()));
        let names = ordered(statistics).into_iter().filter_map(name).collect();
        *self = Names { of, names, asked: Some(Instant::now()) };
    }

    fn name(&self, table: &Value) -> Option<&str> {
        self.names.get(&table["table"].as_u64()?).map(String::as_str)
    }
}

/// What of generations tells whether numbers of tables may have become those of others.
fn stages(generations: &Value) -> Value {
    let rows = generations.as_array().into_iter().flatten();
    rows.map(|row| Value::Array(vec![row["dataset"].clone(), row["generation"].clone()])).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_asked_for_when_there_are_other_tables() {
        let asked = Cell::new(0);
        let fails = || {
            asked.set(asked.get() + 1);
            Err(Failure::usage("test", "no server"))
        };
        let with = |tables: Value| json!({ "shards": [{ "ordered": tables }], "generations": [] });
        let mut names = Names::default();
        names.add_to(&mut with(json!([])), fails);
        assert_eq!(asked.get(), 0, "nothing to name");
        let mut one = with(json!([{ "table": 7 }]));
        names.add_to(&mut one, fails);
        names.add_to(&mut one, fails);
        assert_eq!(asked.get(), 1, "not again so soon");
        names.names.insert(7, "seven".into());
        names.add_to(&mut one, fails);
        assert_eq!(one["shards"][0]["ordered"][0]["name"], "seven");
        names.add_to(&mut with(json!([{ "table": 7 }, { "table": 8 }])), fails);
        assert_eq!(asked.get(), 2);
    }
}
