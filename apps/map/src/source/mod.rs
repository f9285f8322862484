//! Where maps come from: files of OpenStreetMap, or a grid of streets that is made up.

mod grid;
mod overpass;
mod pbf;
mod tags;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::network::Street;
use crate::place::Position;

pub use grid::grid;
pub use tags::{FASTEST, Way};

/// What was read of a map.
#[derive(Clone, Debug)]
pub struct Source {
    /// What it is of, and whose it is.
    pub title: String,
    /// Nodes by their ids.
    pub nodes: HashMap<i64, Position>,
    /// Streets that cars may use.
    pub ways: Vec<Way>,
}

/// Streets of a side of the grid that stands in for a map.
const GRID_STREETS: u32 = 25;

/// Reads a file: `.osm.pbf`, or the `.json` of an Overpass server.
pub fn read(path: &Path) -> Result<Source, String> {
    let cannot = |error: &dyn std::fmt::Display| format!("cannot read {}: {error}", path.display());
    if path.metadata().map_err(|error| cannot(&error))?.is_dir() {
        return Err(cannot(&"it is a directory; name a .osm.pbf or a .json in it"));
    }
    let name = path.to_string_lossy().to_ascii_lowercase();
    if name.ends_with(".osm.pbf") {
        pbf::read(path)
    } else if name.ends_with(".json") {
        overpass::read(path)
    } else {
        Err(format!("{}: neither a .osm.pbf nor a .json of an Overpass server", path.display()))
    }
}

/// The map that was asked for; or that of Helsinki's centre, if `make map-data` has fetched it; or a grid.
pub fn open(path: Option<&Path>) -> Result<Source, String> {
    match path.map_or_else(fetched, |path| Some(path.to_path_buf())) {
        Some(path) => read(&path),
        None => {
            kelix_apps::complain(
                "kelix-map: the map of Helsinki is not there (`make map-data` fetches it); this is a made-up grid of streets",
            );
            Ok(grid(GRID_STREETS))
        }
    }
}

/// The file that `make map-data` fetches, if it is there.
pub fn fetched() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/map/Helsinki.osm.pbf");
    let places = [PathBuf::from("target/map/Helsinki.osm.pbf"), root];
    places.into_iter().find(|path| path.is_file())
}

/// A file's title: OpenStreetMap's licence asks to be named wherever its data is shown.
fn title(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let name = name.trim_end_matches(".osm.pbf").trim_end_matches(".json");
    format!("{name} (c) OpenStreetMap contributors, ODbL")
}
