//! A street map in arrays: what is read from a file, what is loaded into stores, and what a program without a
//! store would have.

use std::collections::HashMap;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::place::{Cell, Grid, Position, longitude};
use crate::source::{Source, Way};
use crate::ways::Found;

/// A street: a way of OpenStreetMap.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Street {
    /// Its name; empty if it has none.
    pub name: String,
    /// What OpenStreetMap says it is: primary, residential, ...
    pub kind: String,
    /// Kilometres an hour.
    pub maxspeed: u8,
}

/// A line from one node of a street to its next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Its nodes. Where traffic goes one way it goes from the first to the second.
    pub ends: [u32; 2],
    /// Its street.
    pub street: u32,
    /// Millimetres.
    pub length: u32,
    /// Milliseconds, at the street's speed.
    pub time: u32,
    /// Whether traffic goes one way.
    pub oneway: bool,
}

/// Where one can go from a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// The node there.
    pub node: u32,
    /// Where it is.
    pub at: Position,
    /// The segment that leads there.
    pub segment: u32,
    /// Its length in millimetres.
    pub length: u32,
    /// Its time in milliseconds.
    pub time: u32,
}

/// A map. Nodes, segments and streets are numbered.
#[derive(Clone, PartialEq, Debug)]
pub struct Network {
    /// What it is of, and whose it is.
    pub title: String,
    /// Where nodes are.
    pub nodes: Vec<Position>,
    /// Between nodes.
    pub segments: Vec<Segment>,
    /// Of segments, in their order.
    pub streets: Vec<Street>,
    /// How it is cut into cells.
    pub grid: Grid,
    /// Where the neighbours of each node begin, and those of all.
    firsts: Vec<u32>,
    neighbours: Vec<Neighbour>,
}

/// The corners of a map. The western one is further east than the eastern one if east meets west between
/// them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// South-west.
    pub low: Position,
    /// North-east.
    pub high: Position,
}

/// Units around the globe.
const TURN: i64 = 3_600_000_000;
/// A street has a node at each bend, so a longer piece is none: it leads to a node that is not where it
/// should be.
const PIECE_METRES_MAX: f64 = 100_000.0;

impl Bounds {
    /// Those of some places.
    pub fn of(places: &[Position]) -> Bounds {
        let span = |of: fn(&Position) -> i64| {
            let (least, most) = (places.iter().map(of).min(), places.iter().map(of).max());
            (least.unwrap_or(0), most.unwrap_or(0))
        };
        let (south, north) = span(|at| at.lat.into());
        // From Greenwich to the east and to the west, or to the east only: the narrower of the two.
        let both = span(|at| at.lon.into());
        let eastwards = span(|at| i64::from(at.lon).rem_euclid(TURN));
        let wide = |(least, most): (i64, i64)| most - least;
        let (west, east) = if wide(eastwards) < wide(both) { eastwards } else { both };
        Bounds {
            low: Position { lat: south as i32, lon: longitude(west) },
            high: Position { lat: north as i32, lon: longitude(east) },
        }
    }

    /// Units of longitude from the western corner to the eastern one.
    pub fn width(&self) -> i64 {
        (i64::from(self.high.lon) - i64::from(self.low.lon)).rem_euclid(TURN)
    }
}

/// Kilometres an hour, that many metres: milliseconds.
fn milliseconds(length: u32, maxspeed: u8) -> u32 {
    (f64::from(length) * 3.6 / f64::from(maxspeed.max(1))).round() as u32
}

impl Network {
    /// The map of what was read. Nodes get numbers in the order in which ways come to them, so that
    /// neighbours stand near each other.
    pub fn of(source: Source) -> Result<Network, String> {
        let Source { title, nodes: places, ways } = source;
        let streets_read = ways.len();
        let mut numbers: HashMap<i64, u32> = HashMap::new();
        let (mut nodes, mut segments, mut streets) = (Vec::new(), Vec::new(), Vec::new());
        let mut too_long = 0;
        for Way { nodes: along, street, oneway } in ways {
            let number = streets.len() as u32;
            for (a, b) in along.windows(2).map(|pair| (pair[0], pair[1])) {
                // Extracts are cut: nodes that lie beyond are not in the file.
                let Some((from, to)) = places.get(&a).zip(places.get(&b)) else { continue };
                let metres = from.metres_to(*to);
                let length = (metres * 1000.0).round() as u32;
                if metres > PIECE_METRES_MAX {
                    too_long += 1;
                } else if a != b && length > 0 {
                    let ends = [(a, from), (b, to)].map(|(id, at)| {
                        *numbers.entry(id).or_insert_with(|| {
                            nodes.push(*at);
                            nodes.len() as u32 - 1
                        })
                    });
                    let time = milliseconds(length, street.maxspeed);
                    segments.push(Segment { ends, street: number, length, time, oneway });
                }
            }
            if segments.last().is_some_and(|last| last.street == number) {
                streets.push(street);
            }
        }
        if too_long > 0 {
            let pieces = if too_long == 1 { "a piece is".into() } else { format!("{too_long} pieces are") };
            kelix_apps::complain(&format!(
                "kelix-map: {pieces} left out of streets: longer than 100 km, so that a node is not where it should be"
            ));
        }
        if segments.is_empty() {
            let why = match streets_read > 0 && places.is_empty() {
                true => "the nodes of its streets are not in it",
                false => "there is no street in it that cars may use",
            };
            return Err(format!("{title}: {why}"));
        }
        Ok(Network::from_parts(title, nodes, segments, streets))
    }

    fn from_parts(
        title: String,
        nodes: Vec<Position>,
        segments: Vec<Segment>,
        streets: Vec<Street>,
    ) -> Network {
        let farthest = nodes.iter().map(|at| at.lat.unsigned_abs()).max().unwrap_or(0) as i32;
        let (firsts, neighbours) = adjacency(&nodes, &segments);
        Network { title, nodes, segments, streets, grid: Grid::up_to(farthest), firsts, neighbours }
    }

    /// Where one can go from a node.
    pub fn neighbours(&self, node: u32) -> &[Neighbour] {
        let of = |at: usize| self.firsts[at] as usize;
        &self.neighbours[of(node as usize)..of(node as usize + 1)]
    }

    /// Where a segment begins and ends.
    pub fn line(&self, segment: u32) -> [Position; 2] {
        self.segments[segment as usize].ends.map(|node| self.nodes[node as usize])
    }

    /// A segment, with what else there is to be known of it.
    pub fn found(&self, segment: u32) -> Found {
        let Segment { ends, street, length, time, oneway } = self.segments[segment as usize];
        Found { segment, street, ends, line: self.line(segment), length, time, oneway }
    }

    /// The streets' segments.
    pub fn segments_of_streets(&self) -> impl Iterator<Item = std::ops::Range<u32>> {
        let mut next = 0;
        (0..self.streets.len() as u32).map(move |street| {
            let first = next;
            while self.segments.get(next as usize).is_some_and(|segment| segment.street == street) {
                next += 1;
            }
            first..next
        })
    }

    /// Cells with their segments, in order; those too that have none, if they are beside one that has.
    pub fn cells(&self) -> Vec<(Cell, Vec<u32>)> {
        let mut cells: FxHashMap<Cell, Vec<u32>> = FxHashMap::default();
        for number in 0..self.segments.len() as u32 {
            self.grid.along(self.line(number), |cell| cells.entry(cell).or_default().push(number));
        }
        let beside: FxHashSet<Cell> = cells.keys().flat_map(|cell| self.grid.beside(*cell)).collect();
        for cell in beside {
            cells.entry(cell).or_default();
        }
        let mut cells: Vec<_> = cells.into_iter().collect();
        cells.sort_unstable();
        cells
    }

    /// How many items it makes.
    pub fn items(&self) -> usize {
        self.nodes.len() + self.segments.len() + self.streets.len() + self.cells().len()
    }

    /// The same map so many times, side by side: a larger one that is made of a real one.
    pub fn tiled(&self, tiles: usize) -> Network {
        let bounds = Bounds::of(&self.nodes);
        // A cell between them, so that no place is near two.
        let (rows, columns) = self.grid.steps();
        let (height, width) =
            (bounds.high.lat - bounds.low.lat + rows * 2, bounds.width() + i64::from(columns) * 2);
        let side = (tiles as f64).sqrt().ceil() as i32;
        let (mut nodes, mut segments, mut streets) = (Vec::new(), Vec::new(), Vec::new());
        for tile in 0..tiles as i32 {
            // To and fro around the first, so that latitudes stay near those of the map.
            let (row, column) = (tile / side - side / 2, tile % side - side / 2);
            let (first_node, first_street) = (nodes.len() as u32, streets.len() as u32);
            nodes.extend(self.nodes.iter().map(|at| Position {
                lat: at.lat + row * height,
                lon: longitude(i64::from(at.lon) + i64::from(column) * width),
            }));
            segments.extend(self.segments.iter().map(|segment| {
                let ends = segment.ends.map(|node| node + first_node);
                let length = nodes[ends[0] as usize].metres_to(nodes[ends[1] as usize]) * 1000.0;
                let length = (length.round() as u32).max(1);
                let time = milliseconds(length, self.streets[segment.street as usize].maxspeed);
                Segment { ends, street: segment.street + first_street, length, time, ..*segment }
            }));
            streets.extend(self.streets.iter().cloned());
        }
        let title = format!("{}, {tiles} times side by side", self.title);
        Network::from_parts(title, nodes, segments, streets)
    }
}

fn adjacency(nodes: &[Position], segments: &[Segment]) -> (Vec<u32>, Vec<Neighbour>) {
    let mut all: Vec<(u32, Neighbour)> = Vec::with_capacity(segments.len() * 2);
    for (number, Segment { ends: [a, b], length, time, oneway, .. }) in segments.iter().enumerate() {
        let mut add = |from: u32, to: u32| {
            let at = nodes[to as usize];
            let neighbour = Neighbour { node: to, at, segment: number as u32, length: *length, time: *time };
            all.push((from, neighbour));
        };
        add(*a, *b);
        if !oneway {
            add(*b, *a);
        }
    }
    all.sort_by_key(|(from, neighbour)| (*from, neighbour.segment));
    let mut firsts = vec![0; nodes.len() + 1];
    all.iter().for_each(|(from, _)| firsts[*from as usize + 1] += 1);
    for node in 0..nodes.len() {
        firsts[node + 1] += firsts[node];
    }
    (firsts, all.into_iter().map(|(_, neighbour)| neighbour).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::grid;

    #[test]
    fn one_way_streets_lead_one_way() {
        let network = Network::of(grid(6)).unwrap();
        let oneway = network.segments.iter().filter(|segment| segment.oneway).count();
        assert!(oneway > 0 && oneway < network.segments.len());
        for (number, segment) in network.segments.iter().enumerate() {
            let [a, b] = segment.ends;
            let leads = |from, to| {
                let neighbours = network.neighbours(from).iter();
                neighbours.filter(|near| near.node == to && near.segment == number as u32).count()
            };
            assert_eq!((leads(a, b), leads(b, a)), (1, usize::from(!segment.oneway)));
        }
    }

    #[test]
    fn tiles_are_whole_maps_apart_from_each_other() {
        let one = Network::of(grid(4)).unwrap();
        let many = one.tiled(5);
        assert_eq!(many.nodes.len(), one.nodes.len() * 5);
        assert_eq!(many.segments.len(), one.segments.len() * 5);
        assert_eq!(many.streets.len(), one.streets.len() * 5);
        let places: std::collections::HashSet<_> = many.nodes.iter().collect();
        assert_eq!(places.len(), many.nodes.len());
        for (of_one, of_many) in one.segments.iter().zip(&many.segments[one.segments.len() * 3..]) {
            let more = f64::from(of_many.length) / f64::from(of_one.length);
            assert!((0.99..1.01).contains(&more), "{more}");
        }
    }

    /// Two streets side by side at these places, of two nodes each.
    fn two_streets(places: [(f64, f64); 4]) -> Source {
        let way = |nodes: Vec<i64>| Way {
            nodes,
            street: Street { name: "Street".into(), kind: "residential".into(), maxspeed: 30 },
            oneway: false,
        };
        let at = |(lat, lon)| Position::of(lat, lon).unwrap();
        let nodes = places.into_iter().enumerate().map(|(id, place)| (id as i64, at(place))).collect();
        Source { title: "two streets".into(), nodes, ways: vec![way(vec![0, 1]), way(vec![2, 3])] }
    }

    #[test]
    fn a_street_over_the_meridian_where_east_meets_west_is_as_long_as_others() {
        let source = two_streets([(-16.8, 178.0), (-16.801, 178.0), (-16.8, 179.999), (-16.801, -179.999)]);
        let network = Network::of(source).unwrap();
        assert_eq!(network.segments.len(), 2);
        assert!((230_000..250_000).contains(&network.segments[1].length), "{:?}", network.segments[1]);
        assert!(network.cells().len() < 60);
        let bounds = Bounds::of(&network.nodes);
        assert_eq!((bounds.low.lon, bounds.high.lon), (1_780_000_000, -1_799_990_000));
        assert_eq!(bounds.width(), 20_010_000);
    }

    /// An editor's slip puts a node at 0,0; a line from a city to there would take a hundred thousand cells.
    #[test]
    fn a_piece_that_no_street_has_is_left_out_with_its_node() {
        let network =
            Network::of(two_streets([(60.1, 24.9), (60.101, 24.9), (60.1, 24.91), (0.0, 0.0)])).unwrap();
        assert_eq!((network.segments.len(), network.nodes.len(), network.streets.len()), (1, 2, 1));
        assert_eq!(Bounds::of(&network.nodes).low, Position { lat: 601_000_000, lon: 249_000_000 });
        assert!(network.cells().len() < 60);
    }

    /// An extract ends at its border. Where a street comes back over it nobody knows how it got there.
    #[test]
    fn a_street_has_a_gap_where_its_nodes_are_missing() {
        let mut source = two_streets([(60.1, 24.9), (60.101, 24.9), (60.102, 24.9), (60.103, 24.9)]);
        source.ways = vec![Way { nodes: vec![0, 1, 77, 2, 3], ..source.ways[0].clone() }];
        let network = Network::of(source.clone()).unwrap();
        assert_eq!(network.segments.iter().map(|segment| segment.ends).collect::<Vec<_>>(), [[0, 1], [2, 3]]);
        source.nodes.clear();
        assert!(Network::of(source).unwrap_err().contains("nodes of its streets"));
    }

    #[test]
    fn each_segment_is_in_the_cells_of_its_ends() {
        let network = Network::of(grid(5)).unwrap();
        let cells: HashMap<_, _> = network.cells().into_iter().collect();
        for number in 0..network.segments.len() as u32 {
            for end in network.line(number) {
                assert!(cells[&network.grid.cell(end)].contains(&number));
            }
        }
        let full = cells.iter().filter(|(_, segments)| !segments.is_empty());
        full.for_each(|(cell, _)| {
            assert!(network.grid.beside(*cell).all(|beside| cells.contains_key(&beside)))
        });
    }
}
