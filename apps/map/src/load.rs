//! The map's way into Kelix: a generation of items with links (see [`crate::ways::Links`] for what they are).

use kelix::{Build, Built, Item, NewTable, Session, TableKind};
use kelix_apps::Failure;
use rustc_hash::FxHashSet;

use crate::network::{Bounds, Network, Street};
use crate::place::{Cell, Grid, Position};
use crate::ways::neighbour_bytes;

/// The dataset.
pub const DATASET: &str = "map";
/// Its tables, in their order.
const TABLES: [&str; 5] = ["map_cell", "map_segment", "map_node", "map_street", "map_about"];
const CELL: usize = 0;
const SEGMENT: usize = 1;
const NODE: usize = 2;
const STREET: usize = 3;
const ABOUT_TABLE: usize = 4;
/// The key of what is said of the map as a whole.
pub const ABOUT: &[u8] = b"map";
/// Most links to segments in an item of a street, as in KELI's paper.
const LINKS_MAX: usize = 100;
/// Parts of a street have its number, and above that their own.
const PART_BITS: u32 = 32;

/// A number as a key.
pub fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// The number that a key is.
#[inline]
pub fn number(key: &[u8]) -> u64 {
    key.try_into().map_or(u64::MAX, u64::from_be_bytes)
}

/// What is said of a map as a whole.
#[derive(Clone, PartialEq, Debug)]
pub struct About {
    /// What it is of, and whose it is.
    pub title: String,
    /// How it is cut into cells.
    pub grid: Grid,
    /// Where it ends.
    pub bounds: Bounds,
    /// Nodes, segments and streets.
    pub counts: [u32; 3],
}

impl About {
    /// What a network says of itself.
    pub fn network(network: &Network) -> About {
        let counts = [network.nodes.len(), network.segments.len(), network.streets.len()];
        let bounds = Bounds::of(&network.nodes);
        About {
            title: network.title.clone(),
            grid: network.grid,
            bounds,
            counts: counts.map(|count| count as u32),
        }
    }

    /// As it was loaded.
    pub fn of(item: &Item) -> Result<About, String> {
        let word = |name| {
            let bytes = item.bytes(name).and_then(|bytes| bytes.try_into().ok());
            bytes
                .map(u32::from_le_bytes)
                .ok_or_else(|| format!("the store's map has no {name}; load it again"))
        };
        let place = |lat, lon| Ok::<_, String>(Position { lat: word(lat)? as i32, lon: word(lon)? as i32 });
        Ok(About {
            title: String::from_utf8_lossy(item.bytes("title").unwrap_or_default()).into_owned(),
            grid: Grid::with_columns(word("columns")? as i32),
            bounds: Bounds { low: place("south", "west")?, high: place("north", "east")? },
            counts: [word("nodes")?, word("segments")?, word("streets")?],
        })
    }
}

/// Memory that a store needs for a map. It is taken as it fills.
pub fn memory_bytes(network: &Network) -> u64 {
    const LEAST: u64 = 256 << 20;
    LEAST + (network.nodes.len() + network.segments.len()) as u64 * 768
}

/// Loads a map, in the place of the one that was there.
pub fn load(session: &mut Session, network: &Network) -> Result<Built, Failure> {
    let tables = TABLES.map(|name| NewTable::new(name, TableKind::Hash));
    let mut build = session.build(DATASET, &tables)?;
    let mut put = || -> kelix::Result<()> {
        put_about(&mut build, network)?;
        put_cells(&mut build, network)?;
        put_segments(&mut build, network)?;
        put_nodes(&mut build, network)?;
        put_streets(&mut build, network)
    };
    put()?;
    kelix_report::progress::show("links");
    let built = build.finish();
    kelix_report::progress::show("");
    Ok(built?)
}

/// Shows how far it is, now and then.
fn progress(what: &str, done: usize, of: usize) {
    if done % 100_000 == 0 {
        kelix_report::progress::show(&format!("{what}: {done} of {of}"));
    }
}

fn put_about(build: &mut Build<'_>, network: &Network) -> kelix::Result<()> {
    let About { title, grid, bounds: Bounds { low, high }, counts: [nodes, segments, streets] } =
        About::network(network);
    let mut item = build.item(ABOUT_TABLE, ABOUT);
    item = item.bytes("title", title.as_bytes()).bytes("columns", &grid.columns().to_le_bytes());
    for (name, units) in [("south", low.lat), ("west", low.lon), ("north", high.lat), ("east", high.lon)] {
        item = item.bytes(name, &units.to_le_bytes());
    }
    for (name, count) in [("nodes", nodes), ("segments", segments), ("streets", streets)] {
        item = item.bytes(name, &count.to_le_bytes());
    }
    item.end()
}

fn put_cells(build: &mut Build<'_>, network: &Network) -> kelix::Result<()> {
    let (cells, to) = (build.table(CELL), build.table(SEGMENT));
    let all = network.cells();
    let there: FxHashSet<Cell> = all.iter().map(|(cell, _)| *cell).collect();
    for (number, (cell, segments)) in all.iter().enumerate() {
        progress("cells", number, all.len());
        let own = key(cell.number());
        let mut item = build.item(CELL, &own);
        for segment in segments {
            item = item.link("segment", to, &key((*segment).into()));
        }
        for beside in network.grid.beside(*cell).filter(|cell| there.contains(cell)) {
            item = item.link("beside", cells, &key(beside.number()));
        }
        item.end()?;
    }
    Ok(())
}

fn put_segments(build: &mut Build<'_>, network: &Network) -> kelix::Result<()> {
    let [cells, nodes, streets] = [CELL, NODE, STREET].map(|index| build.table(index));
    for (number, segment) in network.segments.iter().enumerate() {
        progress("segments", number, network.segments.len());
        let own = key(number as u64);
        let mut item = build.item(SEGMENT, &own);
        for end in segment.ends {
            item = item.link("node", nodes, &key(end.into()));
        }
        item = item.link("street", streets, &key(segment.street.into()));
        item = item.bytes("length", &segment.length.to_le_bytes()).bytes("time", &segment.time.to_le_bytes());
        item = item.bytes("oneway", &[segment.oneway.into()]);
        let mut crossed = Vec::new();
        network.grid.along(network.line(number as u32), |cell| crossed.push(cell.number()));
        for cell in crossed {
            item = item.link("cell", cells, &key(cell));
        }
        item.end()?;
    }
    Ok(())
}

fn put_nodes(build: &mut Build<'_>, network: &Network) -> kelix::Result<()> {
    let nodes = build.table(NODE);
    for (number, at) in network.nodes.iter().enumerate() {
        progress("nodes", number, network.nodes.len());
        let own = key(number as u64);
        let mut item = build.item(NODE, &own);
        item = item.bytes("latitude", &at.lat.to_le_bytes()).bytes("longitude", &at.lon.to_le_bytes());
        for neighbour in network.neighbours(number as u32) {
            item = item.link_with("to", nodes, &key(neighbour.node.into()), &neighbour_bytes(neighbour));
        }
        item.end()?;
    }
    Ok(())
}

fn put_streets(build: &mut Build<'_>, network: &Network) -> kelix::Result<()> {
    let [segments, streets] = [SEGMENT, STREET].map(|index| build.table(index));
    for (number, (street, range)) in network.streets.iter().zip(network.segments_of_streets()).enumerate() {
        progress("streets", number, network.streets.len());
        let all: Vec<u32> = range.collect();
        let parts = all.len().div_ceil(LINKS_MAX);
        for (part, chunk) in all.chunks(LINKS_MAX).enumerate() {
            let own = key(part_key(number, part));
            let mut item = build.item(STREET, &own);
            let Street { name, kind, maxspeed } = street;
            item = item
                .bytes("name", name.as_bytes())
                .bytes("kind", kind.as_bytes())
                .bytes("maxspeed", &[*maxspeed]);
            for segment in chunk {
                item = item.link("segment", segments, &key((*segment).into()));
            }
            if part + 1 < parts {
                item = item.link("next", streets, &key(part_key(number, part + 1)));
            }
            item.end()?;
        }
    }
    Ok(())
}

fn part_key(street: usize, part: usize) -> u64 {
    (part as u64) << PART_BITS | street as u64
}
