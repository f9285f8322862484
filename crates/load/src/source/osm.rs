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

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use osmpbf::{BlobDecode, BlobReader, Element, PrimitiveBlock, RelMemberType};

use super::times::Times;
use super::{Sink, Source, cannot};
use crate::batch::{Batch, Cell};
use crate::changes::{State, no_query};
use crate::map::{Elements, FileRelation, Map, Relation};
use crate::problem::Problem;

/// What columns of tags begin with.
const TAG: &str = "tag:";

/// Whether a file is one, by its name.
pub(super) fn is_map(path: &Path) -> bool {
    path.to_string_lossy().to_ascii_lowercase().ends_with(".osm.pbf")
}

/// A file with a map.
pub(super) struct StreetMap {
    path: PathBuf,
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
        File::open(&path).map_err(|source| cannot("read", &path, &source))?;
        Ok(StreetMap { path })
    }

    fn failed_by(&self, why: &str) -> Problem {
        Problem::Source(format!("cannot read {}: {why}", self.path.display()))
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> Problem {
        Problem::Source(format!("cannot read {}: {error}; is it whole?", self.path.display()))
    }
}

/// What a file may ask of who reads it.
const FEATURES: [&str; 3] = ["OsmSchema-V0.6", "DenseNodes", "Sort.Type_then_ID"];

/// An error if a file asks for what is not understood here: who reads on would take what it holds for something else.
pub fn check_features(required: &[String]) -> Result<(), String> {
    match required.iter().find(|feature| !FEATURES.contains(&&feature[..])) {
        None => Ok(()),
        Some(feature) if feature == "HistoricalInformation" => Err(
            "it holds the history of the map, deleted objects among it; make a map of one moment of it, as \
             `osmium time-filter` does"
                .into(),
        ),
        Some(feature) => Err(format!("it requires the feature {feature}, which is not known here")),
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

    /// Adds the rows of a block, as far as they are wanted.
    fn block(&mut self, block: &PrimitiveBlock) -> Result<bool, Problem> {
        let wanted = self.elements;
        for element in block.groups().flat_map(|group| elements(&group, wanted)) {
            if !self.element(&element)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn element(&mut self, element: &Element<'_>) -> Result<bool, Problem> {
        let degrees = |lat, lon| (Degrees(lat), Degrees(lon));
        match element {
            Element::DenseNode(node) => {
                let (lat, lon) = degrees(node.nano_lat(), node.nano_lon());
                self.add(&[&node.id(), &lat, &lon], node.tags())
            }
            Element::Node(node) => {
                let (lat, lon) = degrees(node.nano_lat(), node.nano_lon());
                self.add(&[&node.id(), &lat, &lon], node.tags())
            }
            Element::Way(way) if self.elements == Elements::Ways => self.add(&[&way.id()], way.tags()),
            Element::Relation(relation) if self.elements == Elements::Relations => {
                self.add(&[&relation.id()], relation.tags())
            }
            Element::Way(way) => {
                for (position, node) in way.refs().enumerate() {
                    if !self.add(&[&way.id(), &node, &position], std::iter::empty())? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Element::Relation(relation) => {
                for (position, member) in relation.members().enumerate() {
                    let kind = match member.member_type {
                        RelMemberType::Node => "node",
                        RelMemberType::Way => "way",
                        RelMemberType::Relation => "relation",
                    };
                    let (id, role) = (member.member_id, member.role().unwrap_or_default());
                    if !self.add(&[&relation.id(), &kind, &id, &role, &position], std::iter::empty())? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }
}

/// The elements of a group that are wanted.
fn elements<'b>(group: &osmpbf::PrimitiveGroup<'b>, wanted: Elements) -> Vec<Element<'b>> {
    match wanted {
        Elements::Nodes => {
            group.nodes().map(Element::Node).chain(group.dense_nodes().map(Element::DenseNode)).collect()
        }
        Elements::Ways | Elements::WayNodes => group.ways().map(Element::Way).collect(),
        Elements::Relations | Elements::Members => group.relations().map(Element::Relation).collect(),
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
        let file = File::open(&self.path).map_err(|source| cannot("read", &self.path, &source))?;
        let mut has_header = false;
        for blob in BlobReader::new(BufReader::new(file)) {
            let blob = blob.map_err(|error| self.failed(&error))?;
            match blob.decode().map_err(|error| self.failed(&error))? {
                BlobDecode::OsmHeader(header) => {
                    check_features(header.required_features()).map_err(|why| self.failed_by(&why))?;
                    has_header = true;
                }
                BlobDecode::OsmData(_) if !has_header => {
                    return Err(self.failed(&"it does not begin with a header"));
                }
                BlobDecode::OsmData(block) => {
                    if !rows.block(&block)? {
                        return Ok(());
                    }
                }
                BlobDecode::Unknown(_) => {}
            }
        }
        if !has_header {
            return Err(self.failed(&"it has no header"));
        }
        rows.sink.take(&rows.batch).map(drop)
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
