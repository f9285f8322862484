//! The best ways from a place: Dijkstra's search, and A*, whose order is by what is still to come, too.
//!
//! The order in which nodes are come to does not depend on where the map is kept: it is that of cost, and
//! then of nodes' numbers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use kelix_apps::Failure;

use crate::network::Neighbour;
use crate::place::Position;
use crate::source::FASTEST;
use crate::ways::Map;

/// What is to be least.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// The length.
    Length,
    /// The time.
    #[default]
    Time,
}

/// Millimetres and milliseconds of a way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Millimetres.
    pub length: u64,
    /// Milliseconds.
    pub time: u64,
}

impl Cost {
    /// What is to be least.
    #[inline]
    pub fn by(self, by: By) -> u64 {
        match by {
            By::Length => self.length,
            By::Time => self.time,
        }
    }

    /// Both together.
    #[inline]
    pub fn and(self, other: Cost) -> Cost {
        Cost { length: self.length + other.length, time: self.time + other.time }
    }
}

impl By {
    /// The least that so many metres can cost, and a little less, so that rounding does not matter.
    fn least(self, metres: f64) -> u64 {
        let length = metres * 990.0;
        match self {
            By::Length => length as u64,
            By::Time => (length * 3.6 / f64::from(FASTEST)) as u64,
        }
    }
}

/// Where a search begins: a node, and what it costs to get there.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The node.
    pub node: u32,
    /// Where it is.
    pub at: Position,
    /// From where one is.
    pub cost: Cost,
}

/// What is wanted of a search.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// What is to be least.
    pub by: By,
    /// Nothing that costs more.
    pub most: u64,
    /// A* towards there; `None`: Dijkstra's search.
    pub toward: Option<Position>,
}

/// A node that was come to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reached {
    /// Where it is.
    pub at: Position,
    /// The best way there that is known.
    pub cost: Cost,
    /// From where, by which segment; none where the search began.
    pub from: Option<(u32, u32)>,
    round: u32,
}

/// A node to go on from. What is first in this order comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Ahead {
    /// What a way through here costs at least.
    estimate: u64,
    node: u32,
    cost: u64,
    /// As what the map noted it.
    noted: usize,
}

/// Searches, one after the other, in the same memory.
#[derive(Debug, Default)]
pub struct Search {
    reached: Vec<Reached>,
    round: u32,
    ahead: BinaryHeap<Reverse<Ahead>>,
    notes: Vec<usize>,
}

impl Search {
    /// One that has nothing to remember.
    pub fn new() -> Search {
        Search::default()
    }

    /// A node as the last search came to it.
    pub fn reached(&self, node: u32) -> Option<&Reached> {
        self.reached.get(node as usize).filter(|reached| reached.round == self.round)
    }

    /// Notes a better way to a node. `false`: it is no better.
    #[inline]
    fn improve(&mut self, node: u32, by: By, better: Reached) -> bool {
        let node = node as usize;
        if node >= self.reached.len() {
            self.reached.resize(node + 1, Reached::default());
        }
        let reached = &mut self.reached[node];
        if reached.round == self.round && reached.cost.by(by) <= better.cost.by(by) {
            return false;
        }
        *reached = Reached { round: self.round, ..better };
        true
    }

    /// Goes on and on from the node that is next, and shows it with what a way through it costs at least, and
    /// to it, until told to stop. Returns how many nodes it went on from.
    pub fn run(
        &mut self,
        map: &mut impl Map,
        wish: &Wish,
        starts: &[Start],
        mut settled: impl FnMut(u32, u64, Cost) -> ControlFlow<()>,
    ) -> Result<usize, Failure> {
        self.begin(map, wish, starts);
        let (by, mut count) = (wish.by, 0);
        while let Some(Reverse(Ahead { estimate, node, cost, noted })) = self.ahead.pop() {
            let here = self.reached[node as usize].cost;
            if here.by(by) != cost {
                // A better way there has been gone already.
                continue;
            }
            if settled(node, estimate, here).is_break() {
                break;
            }
            count += 1;
            map.neighbours(noted, |noted, neighbour| self.go(wish, (node, here), (noted, neighbour)))?;
        }
        Ok(count)
    }

    fn begin(&mut self, map: &mut impl Map, wish: &Wish, starts: &[Start]) {
        self.ahead.clear();
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.reached.clear();
            self.round = 1;
        }
        let mut notes = std::mem::take(&mut self.notes);
        notes.clear();
        let nodes: Vec<u32> = starts.iter().map(|start| start.node).collect();
        map.set_out(&nodes, |noted| notes.push(noted));
        for (start, noted) in starts.iter().zip(&notes) {
            let Start { node, at, cost } = *start;
            let known = cost.by(wish.by);
            if known <= wish.most && self.improve(node, wish.by, Reached { at, cost, from: None, round: 0 }) {
                self.ahead.push(Reverse(Ahead { estimate: known, node, cost: known, noted: *noted }));
            }
        }
        self.notes = notes;
    }

    /// Looks at a neighbour of a node. Whether the way there is the best that is known.
    #[inline]
    fn go(&mut self, wish: &Wish, (from, here): (u32, Cost), (noted, to): (usize, &Neighbour)) -> bool {
        let cost = here.and(Cost { length: to.length.into(), time: to.time.into() });
        let known = cost.by(wish.by);
        let better = Reached { at: to.at, cost, from: Some((from, to.segment)), round: 0 };
        if known > wish.most || !self.improve(to.node, wish.by, better) {
            return false;
        }
        let rest = wish.toward.map_or(0, |goal| wish.by.least(to.at.metres_to(goal)));
        self.ahead.push(Reverse(Ahead { estimate: known + rest, node: to.node, cost: known, noted }));
        true
    }
}
