//! Routes from a place on a street to another.

use std::ops::ControlFlow::{Break, Continue};

use serde::Serialize;

use kelix_apps::Failure;

use crate::matching::Spot;
use crate::place::Position;
use crate::search::{By, Cost, Search, Start, Wish};
use crate::ways::Map;

/// A way from one place to another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Route {
    /// Millimetres.
    pub length: u64,
    /// Milliseconds.
    pub time: u64,
    /// The places that it goes through.
    pub line: Vec<Position>,
    /// The segments that it goes along.
    pub segments: Vec<u32>,
    /// How many nodes the search went on from.
    pub settled: usize,
}

/// How a route is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// All ways that are as long, first.
    Dijkstra,
    /// First where the goal is.
    AStar,
}

impl Spot {
    /// A share of the segment.
    fn part(&self, share: f64) -> Cost {
        let part = |whole: u32| (f64::from(whole) * share).round() as u64;
        Cost { length: part(self.on.length), time: part(self.on.time) }
    }

    /// Where one can go from here.
    pub fn starts(&self) -> Vec<Start> {
        let start = |end: usize, share: f64| {
            let (node, at) = (self.on.ends[end], self.on.line[end]);
            Start { node, at, cost: self.part(share) }
        };
        let forwards = start(1, 1.0 - self.share);
        if self.on.oneway { vec![forwards] } else { vec![forwards, start(0, self.share)] }
    }

    /// Nodes from where one can come here, with what is then still to go.
    pub fn entries(&self) -> impl Iterator<Item = (u32, Cost)> {
        let [a, b] = self.on.ends;
        let backwards = (!self.on.oneway).then(|| (b, self.part(1.0 - self.share)));
        std::iter::once((a, self.part(self.share))).chain(backwards)
    }

    /// The way to another place of the same segment, if there is one along it.
    pub fn direct(&self, to: &Spot) -> Option<Cost> {
        let ahead = to.share >= self.share || !self.on.oneway;
        (ahead && to.on.segment == self.on.segment).then(|| self.part((to.share - self.share).abs()))
    }
}

/// The best route, if there is one that costs no more than `most`.
pub fn route(
    search: &mut Search,
    map: &mut impl Map,
    (from, to): (&Spot, &Spot),
    by: By,
    method: Method,
    most: u64,
) -> Result<Option<Route>, Failure> {
    if let Some(Cost { length, time }) = from.direct(to) {
        let (line, segments) = (vec![from.position(), to.position()], vec![from.on.segment]);
        return Ok(Some(Route { length, time, line, segments, settled: 0 }));
    }
    let entries: Vec<(u32, Cost)> = to.entries().collect();
    let toward = (method == Method::AStar).then(|| to.position());
    let mut best: Option<(u32, Cost)> = None;
    let settled = search.run(map, &Wish { by, most, toward }, &from.starts(), |node, estimate, cost| {
        if best.is_some_and(|(_, best)| estimate >= best.by(by)) {
            return Break(());
        }
        for (_, rest) in entries.iter().filter(|(entry, _)| *entry == node) {
            let whole = cost.and(*rest);
            if best.is_none_or(|(_, best)| whole.by(by) < best.by(by)) {
                best = Some((node, whole));
            }
        }
        Continue(())
    })?;
    let found = best.filter(|(_, cost)| cost.by(by) <= most);
    Ok(found.map(|(entry, Cost { length, time })| {
        let (line, segments) = walked(search, (from, to), entry);
        Route { length, time, line, segments, settled }
    }))
}

/// The places and segments of the way that a search found.
fn walked(search: &Search, (from, to): (&Spot, &Spot), entry: u32) -> (Vec<Position>, Vec<u32>) {
    let (mut line, mut segments) = (vec![to.position()], vec![to.on.segment]);
    let mut node = Some(entry);
    while let Some(reached) = node.and_then(|node| search.reached(node)) {
        line.push(reached.at);
        segments.extend(reached.from.map(|(_, segment)| segment));
        node = reached.from.map(|(node, _)| node);
    }
    line.push(from.position());
    segments.push(from.on.segment);
    line.reverse();
    segments.reverse();
    segments.dedup();
    (line, segments)
}

/// Lengths in millimetres of the shortest routes to several places, as far as they are no longer than `most`.
pub fn lengths(
    search: &mut Search,
    map: &mut impl Map,
    from: &Spot,
    to: &[Spot],
    most: u64,
) -> Result<Vec<Option<u64>>, Failure> {
    let mut lengths: Vec<Option<u64>> = to.iter().map(|to| from.direct(to).map(|cost| cost.length)).collect();
    let mut entries: Vec<(u32, usize, u64)> = Vec::new();
    for (index, spot) in to.iter().enumerate().filter(|(index, _)| lengths[*index].is_none()) {
        entries.extend(spot.entries().map(|(node, rest)| (node, index, rest.length)));
    }
    if entries.is_empty() {
        return Ok(lengths);
    }
    let mut left = entries.len();
    let wish = Wish { by: By::Length, most, toward: None };
    search.run(map, &wish, &from.starts(), |node, _, cost| {
        for (_, index, rest) in entries.iter().filter(|(entry, ..)| *entry == node) {
            let whole = cost.length + rest;
            left -= 1;
            if whole <= most && lengths[*index].is_none_or(|known| whole < known) {
                lengths[*index] = Some(whole);
            }
        }
        if left > 0 { Continue(()) } else { Break(()) }
    })?;
    Ok(lengths)
}
