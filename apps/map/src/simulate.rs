//! Vehicles that drive along routes on the map, and whose receivers are not exact: what is true is known.

use geo::Point;

use crate::matching::Spot;
use crate::network::Network;
use crate::place::{Plane, Position, on_line};
use crate::points::Trace;
use crate::random::Random;
use crate::route::{Method, route};
use crate::search::{By, Search};
use crate::trace::Fix;
use crate::ways::Arrays;

/// Between two points of a vehicle, in milliseconds.
const PERIOD_MS: i64 = 5_000;
/// When the first vehicle sets out: 8 o'clock.
const BEGIN_MS: i64 = 1_781_856_000_000;
/// Vehicles set out within so long.
const SPAN_MS: u64 = 1_800_000;
/// Metres that a vehicle goes at least.
const ROUTE_METRES: f64 = 700.0;
/// Routes are looked for so often before it is said that there are none.
const TRIES: usize = 10_000;
/// Traffic jams: how many, how far they reach in metres, how long from their beginning to their end, and what
/// they leave of the speed.
const JAMS: usize = 4;
const JAM_METRES: f64 = 350.0;
const JAM_MS: i64 = 900_000;
const JAM_SHARE: f64 = 0.2;

/// A vehicle's trace, with what is true of its points.
#[derive(Clone, Debug)]
pub struct Drive {
    /// What its receiver says.
    pub trace: Trace,
    /// The segment of each point.
    pub segments: Vec<u32>,
}

/// Where streets are full for a while.
struct Jam {
    at: Position,
    begins_ms: i64,
}

/// Makes drives.
pub struct Simulation<'n> {
    network: &'n Network,
    map: Arrays<'n>,
    search: Search,
    random: Random,
    jams: Vec<Jam>,
    noise: f64,
    begins_ms: i64,
}

impl<'n> Simulation<'n> {
    /// On a map, with receivers of so much noise: the standard deviation north, and east, in metres.
    pub fn new(network: &'n Network, noise: f64, seed: u64) -> Simulation<'n> {
        let (map, random) = (Arrays::of(network), Random::new(seed));
        let mut simulation = Simulation {
            network,
            map,
            search: Search::new(),
            random,
            jams: Vec::new(),
            noise,
            begins_ms: BEGIN_MS,
        };
        simulation.fill();
        simulation
    }

    /// Streets fill somewhere else.
    fn fill(&mut self) {
        let nodes = self.network.nodes.len() as u64;
        let jam = |_| Jam {
            at: self.network.nodes[self.random.below(nodes) as usize],
            begins_ms: self.begins_ms + self.random.below(SPAN_MS) as i64,
        };
        self.jams = (0..JAMS).map(jam).collect();
    }

    /// Goes on with what is later.
    pub fn go_on(&mut self) {
        self.begins_ms += SPAN_MS as i64;
        self.fill();
    }

    /// The drives of so many vehicles.
    pub fn drives(&mut self, vehicles: usize) -> Result<Vec<Drive>, String> {
        (0..vehicles).map(|number| self.drive(number)).collect()
    }

    /// A place somewhere on a street.
    pub fn place(&mut self) -> Spot {
        let segment = self.random.below(self.network.segments.len() as u64) as u32;
        Spot::at(self.network.found(segment), self.random.share())
    }

    fn drive(&mut self, number: usize) -> Result<Drive, String> {
        for _ in 0..TRIES {
            let (from, to) = (self.place(), self.place());
            let away = from.position().metres_to(to.position());
            // On a large map vehicles stay in their part of it.
            if !(ROUTE_METRES * 0.7..ROUTE_METRES * 10.0).contains(&away) {
                continue;
            }
            let ends = (&from, &to);
            let most = (away * 3.0 * 1000.0) as u64;
            let found = route(&mut self.search, &mut self.map, ends, By::Length, Method::AStar, most)?;
            if let Some(found) = found.filter(|found| found.length as f64 > ROUTE_METRES * 1000.0) {
                let begins_ms = self.begins_ms + self.random.below(SPAN_MS) as i64;
                return Ok(self.along(number, &found.segments, (&from, &to), begins_ms));
            }
        }
        Err(format!(
            "{}: there are no two places on its streets that are {ROUTE_METRES} m apart by a route",
            self.network.title
        ))
    }

    /// Drives along segments.
    fn along(&mut self, number: usize, route: &[u32], (from, to): (&Spot, &Spot), mut now_ms: i64) -> Drive {
        let (mut fixes, mut segments) = (Vec::new(), Vec::new());
        let mut next_ms = now_ms;
        for (index, segment) in route.iter().enumerate() {
            let (first, last) = (index == 0, index + 1 == route.len());
            let backwards = self.is_backwards(route, index, (from, to));
            let [begin, end] = if backwards { [1.0, 0.0] } else { [0.0, 1.0] };
            let begin = if first { from.share } else { begin };
            let end = if last { to.share } else { end };
            let of_segment = self.network.segments[*segment as usize];
            let whole_ms = f64::from(of_segment.time) * (end - begin).abs();
            let slower = self.share_of_speed(on_line(self.network.line(*segment), begin), now_ms);
            let ends_ms = now_ms + (whole_ms / slower) as i64;
            while next_ms < ends_ms {
                let share = begin + (end - begin) * (next_ms - now_ms) as f64 / (ends_ms - now_ms) as f64;
                let at = on_line(self.network.line(*segment), share);
                fixes.push(Fix { at_ms: next_ms, at: self.blurred(at) });
                segments.push(*segment);
                next_ms += PERIOD_MS;
            }
            now_ms = ends_ms;
        }
        Drive { trace: Trace { vehicle: format!("car {}", number + 1), fixes }, segments }
    }

    /// Whether a route goes along a segment from its second node to its first.
    fn is_backwards(&self, route: &[u32], index: usize, (from, to): (&Spot, &Spot)) -> bool {
        let ends = |at: usize| self.network.segments[route[at] as usize].ends;
        let [a, b] = ends(index);
        match (index.checked_sub(1), route.get(index + 1)) {
            (_, Some(_)) => ends(index + 1).contains(&a) && !ends(index + 1).contains(&b),
            (Some(before), None) => ends(before).contains(&b) && !ends(before).contains(&a),
            (None, None) => to.share < from.share,
        }
    }

    /// Where a receiver says it is.
    pub fn blurred(&mut self, at: Position) -> Position {
        let (east, north) = self.random.normal();
        Plane::around(at).position(Point::new(east, north) * self.noise)
    }

    /// How much of a street's speed there is: less within a jam, the least in its middle.
    fn share_of_speed(&mut self, at: Position, now_ms: i64) -> f64 {
        let usual = 0.75 + 0.3 * self.random.share();
        let left = self.jams.iter().map(|jam| {
            let near = 1.0 - jam.at.metres_to(at) / JAM_METRES;
            let along = (now_ms - jam.begins_ms) as f64 / JAM_MS as f64;
            let full = if (0.0..1.0).contains(&along) { (along * std::f64::consts::PI).sin() } else { 0.0 };
            1.0 - (1.0 - JAM_SHARE) * (near.clamp(0.0, 0.5) * 2.0) * full
        });
        usual * left.fold(1.0, f64::min)
    }
}

/// All points in the order in which they come, with the number of their trace.
pub fn stream(traces: &[Trace]) -> Vec<(usize, Fix)> {
    let mut all: Vec<(usize, Fix)> = Vec::new();
    for (index, trace) in traces.iter().enumerate() {
        all.extend(trace.fixes.iter().map(|fix| (index, *fix)));
    }
    all.sort_by_key(|(index, fix)| (fix.at_ms, *index));
    all
}
