//! The map as items with links, as in figure 7 of KELI's paper.
//!
//! ```text
//! map_cell     segment -> map_segment ...   beside -> map_cell ...
//! map_segment  node -> map_node (two)   street -> map_street   cell -> map_cell ...   length, time, oneway
//! map_node     latitude, longitude   to -> map_node ...  with its segment, length, time, latitude and longitude as the link's own bytes
//! map_street   name, kind, maxspeed   segment -> map_segment (100 at most)   next -> map_street, with the next 100
//! ```
//!
//! A place is found by one look by key, for its cell; all else is reached by links.

use std::ops::ControlFlow::Continue;

use kelix::{Frontier, Item, Link, Session, Table, View};
use kelix_apps::Failure;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Found, Map, broken, neighbour_of, numbers_of};
use crate::load::{ABOUT, About, DATASET, key, number};
use crate::network::{Neighbour, Street};
use crate::place::{Cell, Position};

/// The map by a session's links.
pub struct Links {
    /// Whose reads these are.
    pub session: Session,
    items: AtHand,
}

/// What is at hand of the map, apart from the session.
struct AtHand {
    /// It holds the generation, so that no read has to ask for the time to know that this is still there.
    _view: View,
    cells: Table,
    nodes: Table,
    streets: Table,
    /// What is gone to lands here.
    item: Item,
    here: Frontier,
    segments: Frontier,
    ends: Frontier,
    streets_of: Frontier,
    noted: Frontier,
    /// Segments that were come by; places of nodes among the ends, and where they are.
    seen: FxHashSet<u32>,
    places: FxHashMap<u32, usize>,
    positions: Vec<Position>,
    found: Vec<Found>,
}

impl Links {
    /// Opens the map of a store.
    pub fn open(mut session: Session) -> Result<(Links, About), Failure> {
        let view = session.view(DATASET).map_err(|error| format!("the store has no map: {error}"))?;
        let table = |what: &str| view.table(&format!("map_{what}")).map_err(Failure::from);
        let item = session.get(table("about")?, ABOUT)?.ok_or("the store has no map")?;
        let about = About::of(&item)?;
        let items = AtHand {
            cells: table("cell")?,
            nodes: table("node")?,
            streets: table("street")?,
            _view: view,
            item,
            here: Frontier::new(),
            segments: Frontier::new(),
            ends: Frontier::new(),
            streets_of: Frontier::new(),
            noted: Frontier::new(),
            seen: FxHashSet::default(),
            places: FxHashMap::default(),
            positions: Vec::new(),
            found: Vec::new(),
        };
        Ok((Links { session, items }, about))
    }

    /// A street by its number.
    pub fn street_numbered(&mut self, street: u32) -> Result<Street, Failure> {
        let item = self.session.get(self.items.streets, &key(street.into()))?;
        street_of(&item.ok_or_else(|| broken("street", street))?)
    }
}

/// A number from an attribute.
fn attribute(item: &Item, name: &str) -> Option<u32> {
    let [number] = numbers_of(item.bytes(name)?)?;
    Some(number)
}

fn position_of(item: &Item) -> Option<Position> {
    let (lat, lon) = (attribute(item, "latitude")?, attribute(item, "longitude")?);
    Some(Position { lat: lat as i32, lon: lon as i32 })
}

fn street_of(item: &Item) -> Result<Street, Failure> {
    let said = |name| Some(String::from_utf8_lossy(item.bytes(name)?).into_owned());
    let street = || {
        let maxspeed = *item.bytes("maxspeed")?.first()?;
        Some(Street { name: said("name")?, kind: said("kind")?, maxspeed })
    };
    street().ok_or_else(|| broken("street", number(item.key())))
}

impl AtHand {
    fn clear(&mut self) {
        let frontiers = [&mut self.here, &mut self.segments, &mut self.ends, &mut self.streets_of];
        frontiers.into_iter().for_each(Frontier::clear);
        self.seen.clear();
        self.places.clear();
        self.positions.clear();
        self.found.clear();
    }

    /// Notes the links to what is in a cell.
    fn enter(seen: &mut FxHashSet<u32>, segments: &mut Frontier, cell: &Item) {
        segments.add_links(cell, "segment", |link| seen.insert(number(link.key) as u32));
    }

    /// Takes a segment, and notes the links to its nodes, those that are not known already, and to its
    /// street.
    fn take(&mut self, item: &Item) -> Option<()> {
        let (mut ends, mut next) = ([0; 2], 0);
        let places = &mut self.places;
        self.ends.add_links(item, "node", |link: Link<'_>| {
            let node = number(link.key) as u32;
            if let Some(end) = ends.get_mut(next) {
                *end = node;
            }
            next += 1;
            let place = places.len();
            *places.entry(node).or_insert(place) == place
        });
        let mut street = 0;
        self.streets_of.add_links(item, "street", |link| {
            street = number(link.key) as u32;
            true
        });
        let oneway = *item.bytes("oneway")?.first()? != 0;
        let (length, time) = (attribute(item, "length")?, attribute(item, "time")?);
        let segment = number(item.key()) as u32;
        self.found.push(Found { segment, street, ends, line: Default::default(), length, time, oneway });
        (next == 2).then_some(())
    }

    fn find(&mut self, session: &mut Session, cells: &[Cell]) -> Result<(), Failure> {
        self.clear();
        let Some((own, others)) = cells.split_first() else { return Ok(()) };
        self.here.add(self.cells, &key(own.number()));
        if !session.arrive(&self.here, 0, &mut self.item)? {
            // Cells beside those that have segments are there, too: there is none within reach.
            return Ok(());
        }
        AtHand::enter(&mut self.seen, &mut self.segments, &self.item);
        self.here.clear();
        self.here.add_links(&self.item, "beside", |link| {
            let beside = number(link.key);
            others.iter().any(|cell| cell.number() == beside)
        });
        session.visit(&self.here, |_, cell| {
            cell.into_iter().for_each(|cell| AtHand::enter(&mut self.seen, &mut self.segments, cell));
            Continue(())
        })?;
        let segments = std::mem::take(&mut self.segments);
        let mut whole = true;
        let visited = session.visit(&segments, |_, segment| {
            whole &= segment.and_then(|segment| self.take(segment)).is_some();
            Continue(())
        });
        self.segments = segments;
        visited?;
        session.visit(&self.ends, |_, node| {
            let at = node.and_then(position_of);
            whole &= at.is_some();
            self.positions.push(at.unwrap_or_default());
            Continue(())
        })?;
        for found in &mut self.found {
            found.line = found.ends.map(|node| self.positions[self.places[&node]]);
        }
        if whole { Ok(()) } else { Err(broken("cell", own.number())) }
    }
}

impl Map for Links {
    fn find(&mut self, cells: &[Cell]) -> Result<&[Found], Failure> {
        self.items.find(&mut self.session, cells)?;
        Ok(&self.items.found)
    }

    fn street(&mut self, found: usize) -> Result<Street, Failure> {
        let AtHand { streets_of, item, .. } = &mut self.items;
        match self.session.arrive(streets_of, found, item)? {
            true => street_of(item),
            false => Err(broken("street", self.items.found[found].street)),
        }
    }

    fn set_out(&mut self, nodes: &[u32], mut each: impl FnMut(usize)) {
        self.items.noted.clear();
        for node in nodes {
            each(self.items.noted.len());
            self.items.noted.add(self.items.nodes, &key((*node).into()));
        }
    }

    #[inline]
    fn neighbours(
        &mut self,
        noted: usize,
        mut wanted: impl FnMut(usize, &Neighbour) -> bool,
    ) -> Result<(), Failure> {
        let AtHand { noted: frontier, item, .. } = &mut self.items;
        let there = self.session.arrive(frontier, noted, item)?;
        let mut next = frontier.len();
        let mut whole = there;
        frontier.add_links(item, "to", |link| {
            let Some(neighbour) = neighbour_of(number(link.key) as u32, link.bytes) else {
                whole = false;
                return false;
            };
            let is_wanted = there && wanted(next, &neighbour);
            next += usize::from(is_wanted);
            is_wanted
        });
        if whole { Ok(()) } else { Err(broken("node", number(frontier.target(noted).1))) }
    }
}
