//! The map in arrays, as a program would have it that keeps a copy for itself.

use rustc_hash::FxHashMap;

use super::{Found, Map};
use kelix_apps::Failure;

use crate::network::{Neighbour, Network, Street};
use crate::place::Cell;

/// A network, with an index of its cells.
pub struct Arrays<'n> {
    network: &'n Network,
    cells: FxHashMap<Cell, Vec<u32>>,
    found: Vec<Found>,
}

impl<'n> Arrays<'n> {
    /// Indexes a network.
    pub fn of(network: &'n Network) -> Arrays<'n> {
        Arrays { network, cells: network.cells().into_iter().collect(), found: Vec::new() }
    }
}

impl Map for Arrays<'_> {
    fn find(&mut self, cells: &[Cell]) -> Result<&[Found], Failure> {
        let network = self.network;
        let numbers = cells.iter().filter_map(|cell| self.cells.get(cell)).flatten().copied();
        self.found.clear();
        self.found.extend(numbers.map(|number| network.found(number)));
        self.found.sort_unstable_by_key(|found| found.segment);
        self.found.dedup();
        Ok(&self.found)
    }

    fn street(&mut self, found: usize) -> Result<Street, Failure> {
        Ok(self.network.streets[self.found[found].street as usize].clone())
    }

    fn set_out(&mut self, nodes: &[u32], each: impl FnMut(usize)) {
        nodes.iter().map(|node| *node as usize).for_each(each);
    }

    #[inline]
    fn neighbours(
        &mut self,
        noted: usize,
        mut wanted: impl FnMut(usize, &Neighbour) -> bool,
    ) -> Result<(), Failure> {
        for neighbour in self.network.neighbours(noted as u32) {
            wanted(neighbour.node as usize, neighbour);
        }
        Ok(())
    }
}
