//! The map as values by key, in stores that know no links: where a link would stand, stands the number of its
//! target.
//!
//! ```text
//! c<cell>      numbers of segments
//! s<segment>   two nodes, street, length, time, oneway (1 byte), cells (8 bytes each)
//! n<node>      latitude, longitude; then for each neighbour: node, segment, length, time, latitude, longitude
//! w<street>    maxspeed (1 byte), length of its kind (1 byte), kind, length of its name (2 bytes), name, numbers of segments
//! ```
//!
//! Numbers have 4 bytes, lowest first; in keys they are hexadecimal.

use std::ops::ControlFlow::{self, Break, Continue};

use kelix_apps::{Failure, Keyed, Keys as KeyList};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Found, Map, broken, neighbour_bytes, neighbour_of, numbers, numbers_of};
use crate::network::{Neighbour, Network, Street};
use crate::place::{Cell, Position};

/// Values that are put at once.
const PUTS: usize = 4096;
/// Bytes of a segment's value before its cells, and of a neighbour's part of a node's value.
const SEGMENT_BYTES: usize = 21;
const NEIGHBOUR_BYTES: usize = 24;

/// The map by keys.
pub struct Keys<S> {
    store: S,
    wanted: KeyList,
    /// Numbers of what is wanted, to name what is missing.
    numbers: Vec<u32>,
    seen: FxHashSet<u32>,
    places: FxHashMap<u32, usize>,
    positions: Vec<Position>,
    found: Vec<Found>,
    noted: Vec<u32>,
}

impl<S: Keyed> Keys<S> {
    /// The map in a store, where [`put`] has put it.
    pub fn of(store: S) -> Keys<S> {
        Keys {
            store,
            wanted: KeyList::new(),
            numbers: Vec::new(),
            seen: FxHashSet::default(),
            places: FxHashMap::default(),
            positions: Vec::new(),
            found: Vec::new(),
            noted: Vec::new(),
        }
    }

    fn find_segments(&mut self, cells: &[Cell]) -> Result<(), Failure> {
        self.wanted.clear();
        self.numbers.clear();
        self.seen.clear();
        cells.iter().for_each(|cell| self.wanted.push(format_args!("c{:x}", cell.number())));
        let Keys { store, wanted, numbers: list, seen, .. } = self;
        Ok(store.get(wanted, |_, value| {
            list.extend(numbers(value.unwrap_or_default()).filter(|number| seen.insert(*number)));
            Continue(())
        })?)
    }

    fn take_segments(&mut self) -> Result<(), Failure> {
        self.wanted.clear();
        self.found.clear();
        self.numbers.iter().for_each(|number| self.wanted.push(format_args!("s{number:x}")));
        let Keys { store, wanted, numbers, found, .. } = self;
        let mut missing = None;
        store.get(wanted, |index, value| {
            match value.and_then(|value| segment(numbers[index], value)) {
                Some(segment) => found.push(segment),
                None => missing = Some(numbers[index]),
            }
            go_on_unless(missing.is_some())
        })?;
        missing.map_or(Ok(()), |segment| Err(broken("segment", segment)))
    }

    fn take_ends(&mut self) -> Result<(), Failure> {
        self.wanted.clear();
        self.numbers.clear();
        self.places.clear();
        self.positions.clear();
        for node in self.found.iter().flat_map(|found| found.ends) {
            let place = self.places.len();
            if *self.places.entry(node).or_insert(place) == place {
                self.wanted.push(format_args!("n{node:x}"));
                self.numbers.push(node);
            }
        }
        let Keys { store, wanted, numbers, positions, .. } = self;
        let mut missing = None;
        store.get(wanted, |index, value| {
            match value.and_then(position) {
                Some(at) => positions.push(at),
                None => missing = Some(numbers[index]),
            }
            go_on_unless(missing.is_some())
        })?;
        if let Some(node) = missing {
            return Err(broken("node", node));
        }
        for found in &mut self.found {
            found.line = found.ends.map(|node| self.positions[self.places[&node]]);
        }
        Ok(())
    }
}

impl<S: Keyed> Map for Keys<S> {
    fn find(&mut self, cells: &[Cell]) -> Result<&[Found], Failure> {
        self.find_segments(cells)?;
        self.take_segments()?;
        self.take_ends()?;
        Ok(&self.found)
    }

    fn street(&mut self, found: usize) -> Result<Street, Failure> {
        let number = self.found[found].street;
        self.wanted.clear();
        self.wanted.push(format_args!("w{number:x}"));
        let mut street = None;
        self.store.get(&self.wanted, |_, value| {
            street = value.and_then(street_of);
            Continue(())
        })?;
        street.ok_or_else(|| broken("street", number))
    }

    fn set_out(&mut self, nodes: &[u32], each: impl FnMut(usize)) {
        self.noted.clear();
        self.noted.extend_from_slice(nodes);
        (0..nodes.len()).for_each(each);
    }

    fn neighbours(
        &mut self,
        noted: usize,
        mut wanted: impl FnMut(usize, &Neighbour) -> bool,
    ) -> Result<(), Failure> {
        let node = self.noted[noted];
        self.wanted.clear();
        self.wanted.push(format_args!("n{node:x}"));
        let (list, mut whole) = (&mut self.noted, false);
        self.store.get(&self.wanted, |_, value| {
            let Some(value) = value.and_then(|value| value.get(8..)) else { return Break(()) };
            whole = value.len() % NEIGHBOUR_BYTES == 0;
            for bytes in value.chunks_exact(NEIGHBOUR_BYTES) {
                let (to, bytes) = bytes.split_at(4);
                let to = numbers(to).next().expect("4 bytes");
                let neighbour = neighbour_of(to, bytes).expect("as long as one is");
                if wanted(list.len(), &neighbour) {
                    list.push(to);
                }
            }
            Continue(())
        })?;
        if whole { Ok(()) } else { Err(broken("node", node)) }
    }
}

fn go_on_unless(ended: bool) -> ControlFlow<()> {
    if ended { Break(()) } else { Continue(()) }
}

fn segment(number: u32, value: &[u8]) -> Option<Found> {
    let [a, b, street, length, time] = numbers_of(value)?;
    let oneway = *value.get(SEGMENT_BYTES - 1)? != 0;
    Some(Found { segment: number, street, ends: [a, b], line: Default::default(), length, time, oneway })
}

fn position(value: &[u8]) -> Option<Position> {
    let [lat, lon] = numbers_of(value)?;
    Some(Position { lat: lat as i32, lon: lon as i32 })
}

fn street_of(value: &[u8]) -> Option<Street> {
    let (&[maxspeed, kind_bytes], rest) = value.split_first_chunk()?;
    let (kind, rest) = rest.split_at_checked(kind_bytes.into())?;
    let (name_bytes, rest) = rest.split_first_chunk()?;
    let name = rest.get(..u16::from_le_bytes(*name_bytes).into())?;
    let words = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Some(Street { name: words(name), kind: words(kind), maxspeed })
}

type Items = Vec<(Vec<u8>, Vec<u8>)>;

/// Puts the map into a store.
pub fn put(store: &mut impl Keyed, network: &Network) -> Result<(), Failure> {
    let mut items = Items::with_capacity(PUTS);
    let mut put = |key: String, value: Vec<u8>| -> Result<(), Failure> {
        items.push((key.into_bytes(), value));
        if items.len() == PUTS {
            store.put(&items)?;
            items.clear();
        }
        Ok(())
    };
    for (cell, segments) in network.cells() {
        put(format!("c{:x}", cell.number()), bytes(segments))?;
    }
    for number in 0..network.segments.len() as u32 {
        put(format!("s{number:x}"), segment_value(network, number))?;
    }
    for (number, at) in network.nodes.iter().enumerate() {
        let mut value = bytes([at.lat as u32, at.lon as u32]);
        for neighbour in network.neighbours(number as u32) {
            value.extend(neighbour.node.to_le_bytes());
            value.extend(neighbour_bytes(neighbour));
        }
        put(format!("n{number:x}"), value)?;
    }
    for (number, (street, range)) in network.streets.iter().zip(network.segments_of_streets()).enumerate() {
        let Street { name, kind, maxspeed } = street;
        let mut value = vec![*maxspeed, kind.len() as u8];
        value.extend(kind.as_bytes());
        value.extend((name.len() as u16).to_le_bytes());
        value.extend(name.as_bytes());
        value.extend(bytes(range));
        put(format!("w{number:x}"), value)?;
    }
    Ok(store.put(&items)?)
}

fn segment_value(network: &Network, number: u32) -> Vec<u8> {
    let segment = network.segments[number as usize];
    let [a, b] = segment.ends;
    let mut value = bytes([a, b, segment.street, segment.length, segment.time]);
    value.push(segment.oneway.into());
    network.grid.along(network.line(number), |cell| value.extend(cell.number().to_le_bytes()));
    value
}

fn bytes(numbers: impl IntoIterator<Item = u32>) -> Vec<u8> {
    numbers.into_iter().flat_map(u32::to_le_bytes).collect()
}
