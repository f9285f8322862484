//! The drawing itself, as text.

use std::collections::HashSet;
use std::fmt::Write;

use super::{ForeignKey, Schema, Table, quoted};
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

/// A column in a query.
fn selected(name: &str) -> String {
    match plain(name) {
        same if same == name => quoted(name),
        other => format!("{} as {}", quoted(name), quoted(&other)),
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

/// The key of the target, made of a foreign key's columns; none if they are not the target's key.
fn target(schema: &Schema, foreign: &ForeignKey) -> Option<String> {
    let key = &schema.tables[foreign.to].key;
    let column = |wanted: &String| {
        let at = foreign.to_columns.iter().position(|name| name == wanted)?;
        foreign.columns.get(at).cloned()
    };
    let columns: Vec<String> = key.iter().map(column).collect::<Option<_>>()?;
    (!columns.is_empty() && columns.len() == foreign.columns.len()).then(|| template(&columns))
}

/// What a link by a foreign key may be called.
fn link_name(schema: &Schema, foreign: &ForeignKey) -> String {
    let [column] = &foreign.columns[..] else { return schema.tables[foreign.to].name.clone() };
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

/// Whether the rows of a table are items.
fn is_drawn(table: &Table) -> bool {
    !table.key.is_empty() && !table.is_join()
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
        if is_drawn(table) {
            draw_table(&mut map, schema, number, &mut names);
        } else if !table.is_join() {
            let _ = write!(
                map,
                "\n# {} has no primary key, so its rows have no keys: left out.\n",
                comment(&table.name)
            );
        } else if let Some(why) = without_lists(schema, table) {
            let _ = write!(map, "\n# {} joins tables, {why}: left out.\n", comment(&table.name));
        }
    }
    map
}

fn comment(name: &str) -> String {
    name.replace(char::is_control, " ")
}

/// Why a join table gives no lists.
fn without_lists(schema: &Schema, join: &Table) -> Option<&'static str> {
    let fits =
        |foreign: &ForeignKey| is_drawn(&schema.tables[foreign.to]) && target(schema, foreign).is_some();
    if join.foreign.iter().all(fits) {
        None
    } else {
        Some("one of which is not here by the columns that it names")
    }
}

fn draw_table(map: &mut String, schema: &Schema, number: usize, names: &mut HashSet<String>) {
    let table = &schema.tables[number];
    let is_link = |name: &String| {
        table.foreign.iter().any(|foreign| foreign.columns.contains(name) && is_linked(schema, foreign))
    };
    let attributes: Vec<String> = table
        .columns
        .iter()
        .map(|column| column.name.clone())
        .filter(|name| !table.key.contains(name) && !is_link(name))
        .collect();
    let mut columns = table.key.clone();
    let others =
        table.columns.iter().map(|column| column.name.clone()).filter(|name| !table.key.contains(name));
    columns.extend(others);
    let query = format!("select {} from {}", list(&columns, selected), table.quoted);
    let _ = write!(map, "\n[[table]]\nname = {}\nquery = {}\n", text(&table.name), text(&query));
    if let Some(note) = table.key_note {
        let _ = writeln!(map, "# {note}");
    }
    let _ = writeln!(map, "key = {}", text(&template(&table.key)));
    if !attributes.is_empty() {
        let _ = writeln!(map, "attributes = [{}]", list(&attributes, |name| text(&plain(name))));
    }
    let mut taken: HashSet<String> = attributes.iter().map(|name| plain(name)).collect();
    for foreign in &table.foreign {
        draw_link(map, schema, foreign, &mut taken);
    }
    for join in schema.tables.iter().filter(|join| join.is_join() && without_lists(schema, join).is_none()) {
        for side in 0..2 {
            if join.foreign[side].to == number {
                draw_list(map, schema, (number, join, side), &mut taken, names);
            }
        }
    }
}

/// Whether a foreign key becomes a link.
fn is_linked(schema: &Schema, foreign: &ForeignKey) -> bool {
    is_drawn(&schema.tables[foreign.to]) && target(schema, foreign).is_some()
}

fn draw_link(map: &mut String, schema: &Schema, foreign: &ForeignKey, taken: &mut HashSet<String>) {
    let to = &schema.tables[foreign.to];
    let columns = comment(&foreign.columns.join(", "));
    let Some(key) = target(schema, foreign).filter(|_| is_drawn(to)) else {
        let name = comment(&to.name);
        let _ = writeln!(
            map,
            "# ({columns}) names rows of {name} by other columns than its key, so there is no link."
        );
        return;
    };
    let base = link_name(schema, foreign);
    let name = free(taken, &[base.clone(), format!("{base}_{}", to.name)]);
    let _ = write!(
        map,
        "[[table.link]] # ({columns}) is a foreign key\nname = {}\nto = {}\nkey = {}\n",
        text(&name),
        text(&to.name),
        text(&key)
    );
}

/// Draws the list that one side of a join table gives the other's items.
fn draw_list(
    map: &mut String,
    schema: &Schema,
    (number, join, side): (usize, &Table, usize),
    taken: &mut HashSet<String>,
    names: &mut HashSet<String>,
) {
    let (own, other) = (&join.foreign[side], &join.foreign[1 - side]);
    let (Some(owner), Some(key)) = (target(schema, own), target(schema, other)) else { return };
    let (table, to) = (&schema.tables[number], &schema.tables[other.to]);
    // People have courses, and courses have people; but followers and followed are both people.
    let base = if own.to == other.to { link_name(schema, other) } else { to.name.clone() };
    let choice = [base.clone(), format!("{}_{base}", join.name)];
    let fitting: Vec<String> =
        choice.into_iter().filter(|name| !names.contains(&list_table(&table.name, name))).collect();
    let name = free(taken, if fitting.is_empty() { std::slice::from_ref(&join.name) } else { &fitting });
    names.insert(list_table(&table.name, &name));
    let mut columns = own.columns.clone();
    let more = other.columns.iter().filter(|name| !own.columns.contains(name)).cloned().collect::<Vec<_>>();
    columns.extend(more);
    let mut order = own.columns.clone();
    order.extend(join.key.iter().filter(|name| !own.columns.contains(name)).cloned());
    let nullable: Vec<String> = own.columns.iter().filter(|name| join.is_nullable(name)).cloned().collect();
    let only = match nullable.is_empty() {
        true => String::new(),
        false => {
            let parts: Vec<String> =
                nullable.iter().map(|name| format!("{} is not null", quoted(name))).collect();
            format!(" where {}", parts.join(" and "))
        }
    };
    let query = format!(
        "select {} from {}{only} order by {}",
        list(&columns, selected),
        join.quoted,
        list(&order, quoted)
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
            columns: vec![column.to_string()],
            to: *to,
            to_columns: vec![to_column.to_string()],
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
