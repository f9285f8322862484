//! Maps of OpenStreetMap, in the JSON of Overpass servers.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;

use super::{Position, Source, Way, title};

#[derive(Deserialize)]
struct Answer {
    elements: Vec<Element>,
    /// What the server has to say of the answer: that it ended the query, and this is a part.
    remark: Option<String>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Element {
    Node {
        id: i64,
        lat: f64,
        lon: f64,
    },
    Way {
        id: i64,
        nodes: Vec<i64>,
        #[serde(default)]
        tags: HashMap<String, String>,
    },
    #[serde(other)]
    Other,
}

pub(super) fn read(path: &Path) -> Result<Source, String> {
    let said = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let answer: Answer = serde_json::from_slice(&text).map_err(|error| {
        format!("{}; expected the JSON of an Overpass server, with elements", said(&error))
    })?;
    match answer.remark {
        Some(remark) if remark.contains("error") => {
            return Err(said(&format!(
                "it is a part of what was asked for, since the server says: {remark}"
            )));
        }
        Some(remark) => {
            kelix_apps::complain(&format!("kelix-map: {}: the server remarks: {remark}", path.display()))
        }
        None => {}
    }
    let (mut nodes, mut ways) = (HashMap::new(), Vec::new());
    for element in answer.elements {
        match element {
            Element::Node { id, lat, lon } => {
                let at = Position::of(lat, lon);
                nodes.insert(
                    id,
                    at.ok_or_else(|| said(&format!("node {id} is at {lat},{lon}, which is no place")))?,
                );
            }
            Element::Way { id, nodes, .. } if nodes.is_empty() => {
                return Err(said(&format!("way {id} has no nodes; ask with `out body`")));
            }
            Element::Way { nodes, tags, .. } => {
                ways.extend(Way::of(nodes, tags.iter().map(|(key, value)| (&key[..], &value[..]))));
            }
            Element::Other => {}
        }
    }
    Ok(Source { title: title(path), nodes, ways })
}
