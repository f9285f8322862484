//! Maps of OpenStreetMap, in the format `.osm.pbf`.
//!
//! ```text
//! nodes       id, lat, lon, tag:NAME
//! ways        id, tag:NAME
//! relations   id, tag:NAME
//! way_nodes   way_id, node_id, position                     a row for each node of each way, in order
//! members     relation_id, type, member_id, role, position  a row for each member of each relation
//! ```
//!
//! A tag that an element does not have is null.

use std::io::Write;
use std::path::PathBuf;

use super::files::{Seen, ordinary};
use super::pbf::{self, Element, What};
use super::times::Times;
use super::{Sink, Source};
use crate::batch::{Batch, Cell};
use crate::changes::{State, no_query};
use crate::map::{Elements, FileRelation, Map, Relation};
use crate::problem::Problem;

/// What columns of tags begin with.
const TAG: &str = "tag:";

/// A file with a map.
pub(super) struct StreetMap {
    path: PathBuf,
    seen: Seen,
}

/// Columns but for tags.
fn fixed(elements: Elements) -> &'static [&'static str] {
    match elements {
        Elements::Nodes => &["id", "lat", "lon"],
        Elements::Ways | Elements::Relations => &["id"],
        Elements::WayNodes => &["way_id", "node_id", "position"],
        Elements::Members => &["relation_id", "type", "member_id", "role", "position"],
    }
}

fn has_tags(elements: Elements) -> bool {
    !matches!(elements, Elements::WayNodes | Elements::Members)
}

impl StreetMap {
    pub fn open(path: PathBuf) -> Result<StreetMap, Problem> {
        ordinary(&path)?;
        Ok(StreetMap { path, seen: Seen::default() })
    }
}

fn elements_of(relation: &Relation) -> Result<Elements, String> {
    match relation {
        Relation::Elements(elements) => Ok(*elements),
        Relation::Query(_) => Err("a map of OpenStreetMap takes no query; say elements".into()),
        Relation::File(FileRelation { .. }) | Relation::Unsaid => {
            let names = Elements::ALL.map(|(_, name)| name).join(", ");
            Err(format!("say elements, one of {names}, since the source is a map of OpenStreetMap"))
        }
    }
}

/// What a wanted column is of.
enum Column {
    /// One of the fixed ones.
    Fixed(usize),
    /// A tag.
    Tag(String),
}

/// Rows that are being made.
struct Rows<'s> {
    elements: Elements,
    columns: Vec<Column>,
    batch: Batch,
    number: u64,
    sink: &'s mut dyn Sink,
}

impl Rows<'_> {
    /// Adds a row: the fixed columns' values, and the tags if there are any.
    fn add<'t>(
        &mut self,
        fixed: &[&dyn std::fmt::Display],
        tags: impl Iterator<Item = (&'t str, &'t str)> + Clone,
    ) -> Result<bool, Problem> {
        self.number += 1;
        for column in &self.columns {
            match column {
                Column::Fixed(index) => {
                    let start = self.batch.bytes.len();
                    write!(self.batch.bytes, "{}", fixed[*index]).expect("memory takes what is written");
                    self.batch.cells.push(Cell::at(start, self.batch.bytes.len() - start));
                }
                Column::Tag(name) => {
                    let value = tags.clone().find(|(key, _)| key == name).map(|(_, value)| value.as_bytes());
                    self.batch.push(value);
                }
            }
        }
        self.batch.end_row(self.number);
        let full = self.batch.is_full();
        let goes_on = !full || self.sink.take(&self.batch)?;
        if full {
            self.batch.clear();
        }
        Ok(goes_on)
    }

    /// Adds the rows of an element, if it is wanted. Whether more are.
    fn element(&mut self, element: &Element<'_>) -> Result<bool, Problem> {
        let Element { id, tags, what } = element;
        match (self.elements, what) {
            (Elements::Nodes, What::Node { lat, lon }) => {
                self.add(&[id, &Degrees(*lat), &Degrees(*lon)], tags.iter())
            }
            (Elements::Ways, What::Way { .. }) | (Elements::Relations, What::Relation(_)) => {
                self.add(&[id], tags.iter())
            }
            (Elements::WayNodes, What::Way { nodes }) => {
                for (position, node) in nodes.iter().enumerate() {
                    if !self.add(&[id, node, &position], std::iter::empty())? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Elements::Members, What::Relation(members)) => {
                for (position, member) in members.iter().enumerate() {
                    let fixed: [&dyn std::fmt::Display; 5] =
                        [id, &member.kind, &member.id, &member.role, &position];
                    if !self.add(&fixed, std::iter::empty())? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            _ => Ok(true),
        }
    }
}

/// Degrees of latitude or longitude, given as billionths: as many digits as are needed, and no rounding.
struct Degrees(i64);

impl std::fmt::Display for Degrees {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let billionths = self.0.unsigned_abs();
        let digits = format!("{:09}", billionths % 1_000_000_000);
        let digits = digits.trim_end_matches('0');
        let digits = if digits.is_empty() { "0" } else { digits };
        write!(f, "{sign}{}.{digits}", billionths / 1_000_000_000)
    }
}

impl Source for StreetMap {
    fn state(&mut self, map: &Map) -> Result<Option<State>, Problem> {
        no_query(map)?;
        let mut times = Times::new();
        times.add(&self.path);
        Ok(times.state())
    }

    fn name(&self, relation: &Relation, table: &str) -> String {
        let file = self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned();
        match elements_of(relation) {
            Ok(wanted) => {
                let name = Elements::ALL
                    .iter()
                    .find(|(elements, _)| *elements == wanted)
                    .map_or("", |(_, name)| name);
                format!("{file}, {name}")
            }
            Err(_) => table.to_string(),
        }
    }

    fn place(&self, _: &Relation, _: &str) -> &'static str {
        "row"
    }

    fn check(&self, relation: &Relation, _: &str) -> Result<(), String> {
        elements_of(relation).map(drop)
    }

    fn rows(
        &mut self,
        relation: &Relation,
        _: &str,
        wanted: &[String],
        sink: &mut dyn Sink,
    ) -> Result<(), Problem> {
        let elements = elements_of(relation).map_err(Problem::Source)?;
        let fixed = fixed(elements);
        let is_column =
            |name: &&String| fixed.contains(&name.as_str()) || (has_tags(elements) && name.starts_with(TAG));
        let columns: Vec<String> = wanted.iter().filter(is_column).cloned().collect();
        let tags = if has_tags(elements) { " and tag:NAME for any tag" } else { "" };
        if !sink.begin(&columns, &format!("there are {}{tags}", fixed.join(", "))) {
            return Ok(());
        }
        let column = |name: &String| match fixed.iter().position(|fixed| fixed == name) {
            Some(index) => Column::Fixed(index),
            None => Column::Tag(name[TAG.len()..].to_string()),
        };
        let batch = Batch::new(columns.len());
        let columns = columns.iter().map(column).collect();
        let mut rows = Rows { elements, columns, batch, number: 0, sink };
        self.seen.note(&self.path)?;
        let mut goes_on = true;
        pbf::read(&self.path, |element| {
            goes_on = rows.element(element)?;
            Ok(goes_on)
        })?;
        if goes_on { rows.sink.take(&rows.batch).map(drop) } else { Ok(()) }
    }

    fn check_unchanged(&self) -> Result<(), Problem> {
        self.seen.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degrees_are_exact() {
        for (billionths, text) in
            [(0, "0.0"), (60_168_800_000, "60.1688"), (-500, "-0.0000005"), (-180_000_000_000, "-180.0")]
        {
            assert_eq!(Degrees(billionths).to_string(), text);
        }
    }
}
