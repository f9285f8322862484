//! The drawing itself, as text.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use super::{Compared, ForeignKey, Pair, Schema, Table, quoted};
use crate::map::list_table;

/// Endings of columns that name rows of other tables; without them they are names of links.
const ENDINGS: [&str; 4] = ["_id", "_fk", "_key", "_code"];

/// A text of TOML.
fn text(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            _ if character.is_control() => {
                write!(quoted, "\\u{:04X}", character as u32).expect("memory takes it")
            }
            _ => quoted.push(character),
        }
    }
    quoted + "\""
}

/// A column's name in templates, where braces mean something.
fn plain(name: &str) -> String {
    name.replace(['{', '}'], "_")
}

/// A column in a query; `from` says of which table, if there are several.
fn selected(from: &str, name: &str) -> String {
    match plain(name) {
        same if same == name => format!("{from}{}", quoted(name)),
        other => format!("{from}{} as {}", quoted(name), quoted(&other)),
    }
}

/// Columns in a query.
fn list(names: &[String], form: impl Fn(&str) -> String) -> String {
    names.iter().map(|name| form(name)).collect::<Vec<_>>().join(", ")
}

/// A template of columns.
fn template(columns: &[String]) -> String {
    columns.iter().map(|name| format!("{{{}}}", plain(name))).collect::<Vec<_>>().join("/")
}

/// A query of rows of a table. Where equal values may have different texts, the rows that foreign keys name
/// are joined to it by the database's own comparison, and links have the texts of their keys.
struct Query<'s> {
    schema: &'s Schema,
    table: &'s Table,
    /// Columns in whose place something else is selected.
    replaced: HashMap<String, String>,
    /// What is selected beside.
    more: Vec<String>,
    joins: Vec<String>,
    /// Names of columns that are taken.
    taken: HashSet<String>,
}

impl<'s> Query<'s> {
    fn new(schema: &'s Schema, table: &'s Table) -> Query<'s> {
        let taken = table.columns.iter().map(|column| plain(&column.name)).collect();
        Query { schema, table, replaced: HashMap::new(), more: Vec::new(), joins: Vec::new(), taken }
    }

    /// The key of the row that a foreign key names, as a template of the query's columns; none if it names
    /// rows by other columns than their key. What a column is `needed` for otherwise stays as it is.
    fn key(&mut self, foreign: &ForeignKey, needed: impl Fn(&String) -> bool) -> Option<String> {
        let columns = self.schema.key_columns(foreign)?;
        if foreign.same_text {
            return Some(template(&columns));
        }
        let to = &self.schema.tables[foreign.to];
        let named = format!("r{}", self.joins.len() + 1);
        let mut equal = Vec::new();
        let mut names = HashMap::new();
        for Pair {
            here,
            there,
            compared: Compared { there: cast_there, operator, before, here: cast_here, cast },
        } in &foreign.pairs
        {
            let (own, other) = (quoted(here), quoted(there));
            equal.push(format!("{named}.{other}{cast_there} {operator} {before}t.{own}{cast_here}"));
            // A row that is named and is not there is to be told, so its text stays.
            let text = format!("coalesce({named}.{other}, t.{own}{cast})");
            let name = match needed(here) {
                true => free(&mut self.taken, &[format!("{}_{}", plain(here), plain(&to.name))]),
                false => plain(here),
            };
            let selected = format!("{text} as {}", quoted(&name));
            match needed(here) {
                true => self.more.push(selected),
                false => drop(self.replaced.insert(here.clone(), selected)),
            }
            names.insert(here.clone(), name);
        }
        let equal = equal.join(" and ");
        self.joins.push(format!(" left join {} as {named} on {equal}", to.quoted));
        let columns: Vec<String> = columns.iter().map(|own| names[own].clone()).collect();
        Some(template(&columns))
    }

    /// What stands before the table's own columns.
    fn own(&self) -> &'static str {
        if self.joins.is_empty() { "" } else { "t." }
    }

    fn text(&self, columns: &[String]) -> String {
        let own = self.own();
        let column = |name: &String| self.replaced.get(name).cloned().unwrap_or_else(|| selected(own, name));
        let columns: Vec<String> = columns.iter().map(column).chain(self.more.iter().cloned()).collect();
        let called = if self.joins.is_empty() { "" } else { " as t" };
        format!("select {} from {}{called}{}", columns.join(", "), self.table.quoted, self.joins.concat())
    }
}

/// What a link by a foreign key may be called.
fn link_name(schema: &Schema, foreign: &ForeignKey) -> String {
    let [Pair { here: column, .. }] = &foreign.pairs[..] else {
        return schema.tables[foreign.to].name.clone();
    };
    let short = ENDINGS.iter().find_map(|ending| column.strip_suffix(ending)).filter(|name| !name.is_empty());
    short.unwrap_or(column).to_string()
}

/// Takes the first of some names that is free.
fn free(taken: &mut HashSet<String>, names: &[String]) -> String {
    let counted = (2..).map(|number| format!("{}_{number}", names[0]));
    let name = names
        .iter()
        .cloned()
        .chain(counted)
        .find(|name| !taken.contains(name))
        .expect("there is always another");
    taken.insert(name.clone());
    name
}

pub(super) fn draw(schema: &Schema) -> String {
    let mut map = format!(
        "# Drawn from the schema of {}. Keys are primary keys, links are foreign keys, lists are tables that\n\
         # do nothing but join two others. Names are guesses. docs/load.md tells what else can be said.\n\
         dataset = {}\n",
        schema.name.replace('\n', " "),
        text(&schema.name)
    );
    let mut names: HashSet<String> = schema.tables.iter().map(|table| table.name.clone()).collect();
    for (number, table) in schema.tables.iter().enumerate() {
        match () {
            () if schema.is_join(number) => {}
            () if table.key.is_empty() => {
                let name = comment(&table.name);
                let _ = write!(map, "\n# {name} has no primary key, so its rows have no keys: left out.\n");
            }
            () => draw_table(&mut map, schema, number, &mut names),
        }
    }
    map
}

fn comment(name: &str) -> String {
    name.replace(char::is_control, " ")
}

fn draw_table(map: &mut String, schema: &Schema, number: usize, names: &mut HashSet<String>) {
    let table = &schema.tables[number];
    let is_linked = |foreign: &&ForeignKey| schema.key_columns(foreign).is_some();
    let links_of =
        |name: &String| table.foreign.iter().filter(is_linked).filter(|foreign| foreign.has(name)).count();
    let mut columns = table.key.clone();
    let others = table.columns.iter().map(|column| &column.name).filter(|name| !table.key.contains(name));
    columns.extend(others.clone().cloned());
    let attributes: Vec<String> = others.filter(|name| links_of(name) == 0).map(|name| plain(name)).collect();
    let mut query = Query::new(schema, table);
    let is_needed = |name: &String| table.key.contains(name) || links_of(name) > 1;
    let links: Vec<Option<String>> =
        table.foreign.iter().map(|foreign| query.key(foreign, is_needed)).collect();
    let _ =
        write!(map, "\n[[table]]\nname = {}\nquery = {}\n", text(&table.name), text(&query.text(&columns)));
    if let Some(note) = table.key_note {
        let _ = writeln!(map, "# {note}");
    }
    let _ = writeln!(map, "key = {}", text(&template(&table.key)));
    if !attributes.is_empty() {
        let _ = writeln!(map, "attributes = [{}]", list(&attributes, text));
    }
    let mut taken: HashSet<String> = attributes.into_iter().collect();
    for (foreign, key) in table.foreign.iter().zip(links) {
        draw_link(map, schema, (foreign, key), &mut taken);
    }
    for join in (0..schema.tables.len()).filter(|join| schema.is_join(*join)) {
        for side in 0..2 {
            if schema.tables[join].foreign[side].to == number {
                draw_list(map, schema, (number, join, side), &mut taken, names);
            }
        }
    }
}

fn draw_link(
    map: &mut String,
    schema: &Schema,
    (foreign, key): (&ForeignKey, Option<String>),
    taken: &mut HashSet<String>,
) {
    let to = &schema.tables[foreign.to];
    let columns = comment(&foreign.columns().join(", "));
    let Some(key) = key else {
        let name = comment(&to.name);
        let why = match to.key.is_empty() {
            true => ", which are left out",
            false => " by other columns than its key",
        };
        let _ = writeln!(map, "# ({columns}) names rows of {name}{why}, so there is no link.");
        return;
    };
    let base = link_name(schema, foreign);
    let name = free(taken, &[base.clone(), format!("{base}_{}", to.name)]);
    let by = if foreign.same_text { "" } else { "; the query has the texts of its keys" };
    let _ = write!(
        map,
        "[[table.link]] # ({columns}) is a foreign key{by}\nname = {}\nto = {}\nkey = {}\n",
        text(&name),
        text(&to.name),
        text(&key)
    );
}

/// Draws the list that one side of a join table gives the other's items.
fn draw_list(
    map: &mut String,
    schema: &Schema,
    (number, join, side): (usize, usize, usize),
    taken: &mut HashSet<String>,
    names: &mut HashSet<String>,
) {
    let join = &schema.tables[join];
    let (own, other) = (&join.foreign[side], &join.foreign[1 - side]);
    let mut query = Query::new(schema, join);
    let owner = query.key(own, |name| other.has(name));
    let key = query.key(other, |name| own.has(name));
    let (Some(owner), Some(key)) = (owner, key) else { return };
    let (table, to) = (&schema.tables[number], &schema.tables[other.to]);
    // People have courses, and courses have people; but followers and followed are both people.
    let base = if own.to == other.to { link_name(schema, other) } else { to.name.clone() };
    let choice = [base.clone(), format!("{}_{base}", join.name)];
    let fitting: Vec<String> =
        choice.into_iter().filter(|name| !names.contains(&list_table(&table.name, name))).collect();
    let name = free(taken, if fitting.is_empty() { std::slice::from_ref(&join.name) } else { &fitting });
    names.insert(list_table(&table.name, &name));
    let others: Vec<String> = other.columns().into_iter().filter(|name| !own.has(name)).collect();
    let rest = join.columns.iter().map(|column| &column.name);
    let rest = rest.filter(|name| !own.has(name) && !other.has(name)).cloned();
    let columns: Vec<String> = own.columns().into_iter().chain(others).chain(rest.clone()).collect();
    let mut order = own.columns();
    order.extend(join.key.iter().filter(|name| !own.has(name)).cloned());
    let from = query.own();
    let nullable = own.columns().into_iter().filter(|name| join.is_nullable(name));
    let nullable: Vec<String> = nullable.map(|name| format!("{from}{} is not null", quoted(&name))).collect();
    let only = match &nullable[..] {
        [] => String::new(),
        parts => format!(" where {}", parts.join(" and ")),
    };
    let query = format!(
        "{}{only} order by {}",
        query.text(&columns),
        list(&order, |name| format!("{from}{}", quoted(name)))
    );
    let _ = write!(
        map,
        "[[table.list]] # {} joins {} and {}\nname = {}\nquery = {}\nowner = {}\nto = {}\nkey = {}\n",
        comment(&join.name),
        comment(&table.name),
        comment(&to.name),
        text(&name),
        text(&query),
        text(&owner),
        text(&to.name),
        text(&key)
    );
    for column in rest {
        let _ = writeln!(map, "bytes = {}", text(&plain(&column)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Column;
    use super::*;
    use crate::map::Map;

    /// Columns that end with `?` may be null; those of foreign keys stand with table and column.
    fn table(name: &str, columns: &[&str], key: &[&str], links: &[(&str, usize, &str)]) -> Table {
        let column =
            |name: &&str| Column { name: name.trim_end_matches('?').into(), nullable: name.ends_with('?') };
        let link = |(column, to, to_column): &(&str, usize, &str)| ForeignKey {
            pairs: vec![Pair { here: column.to_string(), there: to_column.to_string(), ..Pair::default() }],
            to: *to,
            same_text: true,
        };
        Table {
            name: name.into(),
            quoted: quoted(name),
            columns: columns.iter().map(column).collect(),
            key: key.iter().map(|name| name.to_string()).collect(),
            key_note: None,
            foreign: links.iter().map(link).collect(),
        }
    }

    #[test]
    fn what_is_drawn_is_a_map() {
        let schema = Schema {
            name: "a \"company\"".into(),
            tables: vec![
                table(
                    "people",
                    &["id", "boss", "dept_id?", "we{ird"],
                    &["id"],
                    &[("boss", 0, "id"), ("dept_id", 1, "code")],
                ),
                table("departments", &["code", "dept"], &["code"], &[]),
                table(
                    "follows",
                    &["user_id?", "follower_id", "since"],
                    &["user_id", "follower_id", "since"],
                    &[("user_id", 0, "id"), ("follower_id", 0, "id")],
                ),
                table("log", &["at", "line"], &[], &[]),
                table("badges", &["id", "dept_name"], &["id"], &[("dept_name", 1, "dept")]),
            ],
        };
        let map = draw(&schema);
        let parsed = Map::parse("map", &map).unwrap_or_else(|findings| panic!("{findings}\n{map}"));
        assert_eq!(parsed.dataset(), "a \"company\"");
        let names: Vec<&str> = parsed.tables.iter().map(|table| &table.name[..]).collect();
        assert_eq!(names, ["people", "departments", "badges"], "{map}");
        let links: Vec<&str> = parsed.tables[0].links.iter().map(|link| &link.name[..]).collect();
        assert_eq!(links, ["boss", "dept"], "{map}");
        let lists: Vec<&str> = parsed.tables[0].lists.iter().map(|list| &list.name[..]).collect();
        assert_eq!(lists, ["follower", "user"], "{map}");
        assert!(map.contains("where \\\"user_id\\\" is not null order by"), "{map}");
        assert!(
            map.contains(
                "\"select \\\"id\\\", \\\"boss\\\", \\\"dept_id\\\", \\\"we{ird\\\" as \\\"we_ird\\\" from"
            ),
            "{map}"
        );
        assert!(map.contains("# log has no primary key"), "{map}");
        assert!(map.contains("# (dept_name) names rows of departments by other columns"), "{map}");
    }
}
