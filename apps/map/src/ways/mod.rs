//! What matching and routing need of a map, and the ways to it: by links, by keys, and in arrays.

mod arrays;
mod keys;
mod links;

use kelix_apps::Failure;

use crate::network::{Neighbour, Street};
use crate::place::{Cell, Position};

pub use arrays::Arrays;
pub use keys::{Keys, put};
pub use links::Links;

/// A segment that was found in a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// Its number.
    pub segment: u32,
    /// The number of its street.
    pub street: u32,
    /// Numbers of its nodes.
    pub ends: [u32; 2],
    /// Where these are.
    pub line: [Position; 2],
    /// Its length in millimetres.
    pub length: u32,
    /// Its time in milliseconds.
    pub time: u32,
    /// Whether traffic goes one way, from the first node to the second.
    pub oneway: bool,
}

/// A map, whatever it is kept in.
pub trait Map {
    /// The segments of some cells, each once. The first cell is a place's own, the others are beside it.
    fn find(&mut self, cells: &[Cell]) -> Result<&[Found], Failure>;

    /// The street of a segment: one of those that were found last, by its place among them.
    fn street(&mut self, found: usize) -> Result<Street, Failure>;

    /// Forgets the nodes that were noted, and notes some by their numbers. Shows what each is noted as.
    fn set_out(&mut self, nodes: &[u32], each: impl FnMut(usize));

    /// Shows where one can go from a noted node. Neighbours that are wanted are noted, as what is shown with
    /// them.
    fn neighbours(
        &mut self,
        noted: usize,
        wanted: impl FnMut(usize, &Neighbour) -> bool,
    ) -> Result<(), Failure>;
}

/// Numbers from bytes: four of them each.
fn numbers(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("4 bytes")))
}

/// That many numbers.
fn numbers_of<const N: usize>(bytes: &[u8]) -> Option<[u32; N]> {
    let mut all = [0; N];
    let mut numbers = numbers(bytes.get(..N * 4)?);
    all.fill_with(|| numbers.next().unwrap_or(0));
    Some(all)
}

/// A link's own bytes, from a node to its neighbour: the segment, its length and time, and where the
/// neighbour is, so that whoever looks for a way can tell how far it is from there before it reads it.
pub(crate) fn neighbour_bytes(neighbour: &Neighbour) -> [u8; 20] {
    let Neighbour { at, segment, length, time, .. } = *neighbour;
    let mut bytes = [0; 20];
    let numbers = [segment, length, time, at.lat as u32, at.lon as u32];
    bytes.chunks_exact_mut(4).zip(numbers).for_each(|(at, number)| at.copy_from_slice(&number.to_le_bytes()));
    bytes
}

fn neighbour_of(node: u32, bytes: &[u8]) -> Option<Neighbour> {
    let [segment, length, time, lat, lon] = numbers_of(bytes)?;
    let at = Position { lat: lat as i32, lon: lon as i32 };
    Some(Neighbour { node, at, segment, length, time })
}

/// A store's answer that makes no sense.
fn broken(what: &str, number: impl std::fmt::Display) -> Failure {
    format!("{what} {number} of the map is not there or not whole; load it again").into()
}
