//! Maps of OpenStreetMap, in the format `.osm.pbf`.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use osmpbf::{BlobDecode, BlobReader, Element, PrimitiveBlock};

use super::{Position, Source, Way, title};

/// Reads one, twice: its ways, and then their nodes, which stand before them.
pub(super) fn read(path: &Path) -> Result<Source, String> {
    let mut ways = Vec::new();
    blocks(path, |block| {
        for way in block.groups().flat_map(|group| group.ways().collect::<Vec<_>>()) {
            ways.extend(Way::of(way.refs().collect(), way.tags()));
        }
    })?;
    let wanted: HashSet<i64> = ways.iter().flat_map(|way| way.nodes.iter().copied()).collect();
    let mut nodes = HashMap::with_capacity(wanted.len());
    blocks(path, |block| {
        for element in block.elements() {
            let (id, lat, lon) = match element {
                Element::Node(node) => (node.id(), node.decimicro_lat(), node.decimicro_lon()),
                Element::DenseNode(node) => (node.id(), node.decimicro_lat(), node.decimicro_lon()),
                _ => continue,
            };
            if wanted.contains(&id) {
                nodes.insert(id, Position { lat, lon });
            }
        }
    })?;
    Ok(Source { title: title(path), nodes, ways })
}

fn blocks(path: &Path, mut each: impl FnMut(&PrimitiveBlock)) -> Result<(), String> {
    let broken = |error: osmpbf::Error| format!("{}: no whole .osm.pbf: {error}", path.display());
    let file = File::open(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let mut has_header = false;
    for blob in BlobReader::new(BufReader::new(file)) {
        match blob.map_err(broken)?.decode().map_err(broken)? {
            BlobDecode::OsmHeader(header) => {
                let said = kelix_load::check_features(header.required_features());
                said.map_err(|why| format!("cannot read {}: {why}", path.display()))?;
                has_header = true;
            }
            BlobDecode::OsmData(block) if has_header => each(&block),
            BlobDecode::OsmData(_) => break,
            BlobDecode::Unknown(_) => {}
        }
    }
    if has_header { Ok(()) } else { Err(format!("{}: it has no header; is it whole?", path.display())) }
}
