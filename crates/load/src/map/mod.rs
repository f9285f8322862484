//! The map: which query or file gives which table, and how columns become keys, attributes, links and lists.
//!
//! It is written in TOML; docs/load.md is its reference. Everything that can be wrong with it without looking
//! at the source is found here, all of it at once, with the line.

mod parse;
mod section;
mod template;

use kelix::TableKind;

pub(crate) use section::nearest;
pub(crate) use template::{Piece, Template};

use crate::findings::Findings;

/// The name of a column of a source.
pub(crate) type ColumnName = String;

/// A map.
#[derive(Clone, Debug)]
pub struct Map {
    pub(crate) dataset: String,
    /// The query whose answer is another one when rows have changed.
    pub(crate) changed: Option<String>,
    pub(crate) tables: Vec<TableMap>,
    /// How it was written.
    pub(crate) text: String,
}

/// Where the rows of a table or a list are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Relation {
    /// The answer to a query.
    Query(String),
    /// A file, of which the source may know only one.
    File(FileRelation),
    /// Elements of a map of OpenStreetMap.
    Elements(Elements),
    /// Nothing is said: the source has only this, or something of the table's name.
    Unsaid,
}

/// A file, and how it is to be read.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct FileRelation {
    pub name: Option<String>,
    pub delimiter: Option<u8>,
    /// What encloses fields; `Some(None)`: nothing does.
    pub quote: Option<Option<u8>>,
    /// What takes the next character's meaning away; none, unless it is said.
    pub escape: Option<u8>,
    pub null: Option<String>,
}

/// What a map of OpenStreetMap has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Elements {
    Nodes,
    Ways,
    Relations,
    /// A row for each node of each way.
    WayNodes,
    /// A row for each member of each relation.
    Members,
}

impl Elements {
    pub const ALL: [(Elements, &'static str); 5] = [
        (Elements::Nodes, "nodes"),
        (Elements::Ways, "ways"),
        (Elements::Relations, "relations"),
        (Elements::WayNodes, "way_nodes"),
        (Elements::Members, "members"),
    ];
}

/// A table of the map.
#[derive(Clone, Debug)]
pub(crate) struct TableMap {
    pub name: String,
    pub kind: TableKind,
    pub relation: Relation,
    pub key: Template,
    /// Names of attributes and their columns; the empty name is the plain value's.
    pub attributes: Vec<(String, ColumnName)>,
    pub expires_in: Option<ColumnName>,
    pub overlay: bool,
    pub links: Vec<LinkMap>,
    pub lists: Vec<ListMap>,
}

/// Links of the items of a table.
#[derive(Clone, Debug)]
pub(crate) struct LinkMap {
    pub name: String,
    /// The target's table, as counted in the map.
    pub to: usize,
    pub key: Template,
    pub bytes: Option<ColumnName>,
}

/// Lists of links of the items of a table.
#[derive(Clone, Debug)]
pub(crate) struct ListMap {
    pub name: String,
    pub relation: Relation,
    pub owner: Template,
    pub to: usize,
    pub key: Template,
    pub bytes: Option<ColumnName>,
    pub chunk: usize,
}

impl Map {
    /// Reads a map. `name` is what messages call it.
    pub fn parse(name: &str, text: &str) -> Result<Map, Findings> {
        parse::parse(name, text)
    }

    /// Name of the data set.
    pub fn dataset(&self) -> &str {
        &self.dataset
    }
}

/// The name of the table that has the chunks of a list.
pub(crate) fn list_table(table: &str, list: &str) -> String {
    format!("{table}.{list}")
}
