//! A point by itself: which street it is on, and where on that.

use serde::Serialize;

use kelix_apps::Failure;

use crate::network::Street;
use crate::place::{CELL_METRES, Cell, Foot, Grid, Plane, Position, on_line};
use crate::ways::{Found, Map};

/// How far from a street a point may be, unless something else is said, in metres.
pub const RADIUS: f64 = 50.0;

/// A place on a segment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spot {
    /// The segment.
    pub on: Found,
    /// From its beginning, as a share of its length.
    pub share: f64,
    /// Metres from the point that was looked for.
    pub metres: f64,
}

/// On which side of a segment, seen in its direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// To its left, or on it.
    Left,
    /// To its right.
    Right,
}

/// A point's street, and its place there.
#[derive(Clone, PartialEq, Debug)]
pub struct Matched {
    /// The place.
    pub spot: Spot,
    /// On which side of it the point is.
    pub side: Side,
    /// The street.
    pub street: Street,
}

impl Spot {
    /// A place on a segment that nobody looked for.
    pub fn at(on: Found, share: f64) -> Spot {
        Spot { on, share, metres: 0.0 }
    }

    /// Millimetres from the segment's beginning.
    pub fn along(&self) -> u32 {
        (self.share * f64::from(self.on.length)).round() as u32
    }

    /// Where it is.
    pub fn position(&self) -> Position {
        on_line(self.on.line, self.share)
    }

    /// Nearest first; of those that are as near, the one with the lower number: so the order is the same,
    /// whatever brought them.
    fn order(&self, other: &Spot) -> std::cmp::Ordering {
        self.metres.total_cmp(&other.metres).then(self.on.segment.cmp(&other.on.segment))
    }
}

/// What finds places on a map. It keeps its buffers.
#[derive(Debug)]
pub struct Matcher {
    grid: Grid,
    cells: Vec<Cell>,
}

impl Matcher {
    /// For a map that is cut like this.
    pub fn new(grid: Grid) -> Matcher {
        Matcher { grid, cells: Vec::new() }
    }

    /// Looks at the segments within a radius of a point, which can be [`CELL_METRES`] at most. Shows their
    /// places among those that were found, and what of them is nearest.
    fn look(
        &mut self,
        map: &mut impl Map,
        at: Position,
        radius: f64,
        mut each: impl FnMut(usize, Spot),
    ) -> Result<(), Failure> {
        let radius = radius.min(CELL_METRES);
        self.grid.around(at, radius, &mut self.cells);
        let plane = Plane::around(at);
        for (index, on) in map.find(&self.cells)?.iter().enumerate() {
            let Foot { share, metres } = plane.foot(on.line);
            if metres <= radius {
                each(index, Spot { on: *on, share, metres });
            }
        }
        Ok(())
    }

    fn nearest_found(
        &mut self,
        map: &mut impl Map,
        at: Position,
        radius: f64,
    ) -> Result<Option<(usize, Spot)>, Failure> {
        let mut nearest: Option<(usize, Spot)> = None;
        self.look(map, at, radius, |index, spot| {
            if nearest.is_none_or(|(_, nearest)| spot.order(&nearest).is_lt()) {
                nearest = Some((index, spot));
            }
        })?;
        Ok(nearest)
    }

    /// The nearest place on a street. `None`: none is within the radius.
    pub fn nearest(
        &mut self,
        map: &mut impl Map,
        at: Position,
        radius: f64,
    ) -> Result<Option<Spot>, Failure> {
        Ok(self.nearest_found(map, at, radius)?.map(|(_, spot)| spot))
    }

    /// The nearest place, with its street.
    pub fn matched(
        &mut self,
        map: &mut impl Map,
        at: Position,
        radius: f64,
    ) -> Result<Option<Matched>, Failure> {
        let Some((index, spot)) = self.nearest_found(map, at, radius)? else { return Ok(None) };
        let street = map.street(index)?;
        let left = Plane::around(at).is_left_of(spot.on.line);
        Ok(Some(Matched { spot, side: if left { Side::Left } else { Side::Right }, street }))
    }

    /// The nearest places on so many segments within a radius, in order.
    pub fn candidates(
        &mut self,
        map: &mut impl Map,
        at: Position,
        radius: f64,
        most: usize,
    ) -> Result<Vec<Spot>, Failure> {
        let mut spots = Vec::new();
        self.look(map, at, radius, |_, spot| spots.push(spot))?;
        spots.sort_unstable_by(Spot::order);
        spots.truncate(most);
        Ok(spots)
    }
}
