//! Maps of OpenStreetMap, in the format `.osm.pbf`.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use kelix_apps::text;
use kelix_load::pbf::{self, Element, What};

use super::{Position, Source, Way, title};

/// Reads one, twice: its ways, and then their nodes, which stand before them.
pub(super) fn read(path: &Path) -> Result<Source, String> {
    let mut ways = Vec::new();
    pbf::read(path, |Element { tags, what, .. }| {
        if let What::Way { nodes } = what {
            ways.extend(Way::of(nodes.to_vec(), tags.iter()));
        }
        Ok(true)
    })
    .map_err(text)?;
    let wanted: HashSet<i64> = ways.iter().flat_map(|way| way.nodes.iter().copied()).collect();
    let mut nodes = HashMap::with_capacity(wanted.len());
    pbf::read(path, |Element { id, what, .. }| {
        if let What::Node { lat, lon } = what {
            if wanted.contains(id) {
                let unit = |billionths: &i64| (billionths / 100) as i32;
                nodes.insert(*id, Position { lat: unit(lat), lon: unit(lon) });
            }
        }
        Ok(true)
    })
    .map_err(text)?;
    Ok(Source { title: title(path), nodes, ways })
}
