//! A trace as a whole: a hidden Markov model (Newson and Krumm, "Hidden Markov map matching through noise and
//! sparseness", 2009).
//!
//! The states of a point are places on segments near it. A place is likely where it is near the point, by the
//! receiver's noise, and where the shortest route to it from the last point's place is about as long as the
//! distance between the two points. Viterbi's algorithm finds the likeliest row of places. Where no place of
//! a point can be come to from any of the last one's, and after a long time without points, the trace is
//! split, and a new row begins; a point that is near no street has none, and the row goes on behind it.

use kelix_apps::Failure;

use crate::matching::{Matcher, Spot};
use crate::place::{CELL_METRES, Position};
use crate::route::lengths;
use crate::search::Search;
use crate::ways::Map;

/// Places of a point that are looked at.
const CANDIDATES: usize = 20;
/// What a route may be longer than the distance of its points: times so much, and so many metres.
const DETOUR: f64 = 2.0;
const DETOUR_METRES: f64 = 150.0;
/// A trace is split where it has no points for longer, in milliseconds.
const GAP_MS: i64 = 120_000;

/// A point of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fix {
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// Where.
    pub at: Position,
}

/// What is known of the receiver.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Receiver {
    /// The standard deviation of its error north, and east, in metres.
    pub noise: f64,
}

impl Default for Receiver {
    /// A usual one, in a city.
    fn default() -> Receiver {
        Receiver { noise: 10.0 }
    }
}

/// A point's place in the likeliest row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OnTrace {
    /// The place.
    pub spot: Spot,
    /// Which row it is of: they are numbered where a trace is split.
    pub row: usize,
}

/// A state of the model.
struct State {
    spot: Spot,
    /// The logarithm of how likely the likeliest row is that ends here.
    likelihood: f64,
    /// The state of the last point in that row.
    before: Option<usize>,
}

/// The states of a point.
struct Step {
    /// The point's place in the trace.
    point: usize,
    states: Vec<State>,
}

impl Step {
    fn likeliest(&self) -> usize {
        // Of those that are as likely, the nearest.
        let by = |a: &usize, b: &usize| {
            let likelihood = |at: usize| self.states[at].likelihood;
            likelihood(*a).total_cmp(&likelihood(*b)).then(b.cmp(a))
        };
        (0..self.states.len()).max_by(by).expect("a step has states")
    }
}

/// Matches traces. It keeps its buffers.
#[derive(Debug)]
pub struct Tracer {
    matcher: Matcher,
    search: Search,
    receiver: Receiver,
}

impl Tracer {
    /// For points of such a receiver.
    pub fn new(matcher: Matcher, receiver: Receiver) -> Tracer {
        Tracer { matcher, search: Search::new(), receiver }
    }

    /// The place of each point. `None`: it is on no street.
    pub fn places(&mut self, map: &mut impl Map, trace: &[Fix]) -> Result<Vec<Option<OnTrace>>, Failure> {
        let mut places = vec![None; trace.len()];
        let (mut row, mut steps): (usize, Vec<Step>) = (0, Vec::new());
        for (point, fix) in trace.iter().enumerate() {
            let spots = self.matcher.candidates(map, fix.at, CELL_METRES, CANDIDATES)?;
            if spots.is_empty() {
                continue;
            }
            let states = match steps.last() {
                Some(last) => self.follow(map, (&trace[last.point], last), fix, &spots)?,
                None => Vec::new(),
            };
            if states.is_empty() {
                settle(&mut places, &steps, row);
                row += usize::from(!steps.is_empty());
                steps.clear();
                steps.push(Step { point, states: self.begin(&spots) });
            } else {
                steps.push(Step { point, states });
            }
        }
        settle(&mut places, &steps, row);
        Ok(places)
    }

    /// How likely a point is where the place is so far, as a logarithm that leaves out what is the same for
    /// all.
    fn emission(&self, spot: &Spot) -> f64 {
        -0.5 * (spot.metres / self.receiver.noise).powi(2)
    }

    fn begin(&self, spots: &[Spot]) -> Vec<State> {
        let state = |spot: &Spot| State { spot: *spot, likelihood: self.emission(spot), before: None };
        spots.iter().map(state).collect()
    }

    /// The states of a point that can be come to from those of the last one.
    fn follow(
        &mut self,
        map: &mut impl Map,
        (before, last): (&Fix, &Step),
        fix: &Fix,
        spots: &[Spot],
    ) -> Result<Vec<State>, Failure> {
        if fix.at_ms - before.at_ms > GAP_MS {
            return Ok(Vec::new());
        }
        let metres = before.at.metres_to(fix.at);
        let most = ((metres * DETOUR + DETOUR_METRES) * 1000.0) as u64;
        let mut best: Vec<Option<(f64, usize)>> = vec![None; spots.len()];
        for (index, state) in last.states.iter().enumerate() {
            let lengths = self.lengths(map, &state.spot, spots, most)?;
            for (best, length) in best.iter_mut().zip(lengths) {
                let Some(length) = length else { continue };
                let longer = (length as f64 / 1000.0 - metres).abs();
                let likelihood = state.likelihood - longer / self.receiver.noise;
                if best.is_none_or(|(known, _)| likelihood > known) {
                    *best = Some((likelihood, index));
                }
            }
        }
        let states = spots.iter().zip(best).filter_map(|(spot, best)| {
            let (likelihood, before) = best?;
            Some(State { spot: *spot, likelihood: likelihood + self.emission(spot), before: Some(before) })
        });
        Ok(states.collect())
    }

    /// Lengths of the routes to places. A vehicle that stands seems to go back by noise, also where traffic
    /// goes one way.
    fn lengths(
        &mut self,
        map: &mut impl Map,
        from: &Spot,
        to: &[Spot],
        most: u64,
    ) -> Result<Vec<Option<u64>>, Failure> {
        let mut lengths = lengths(&mut self.search, map, from, to, most)?;
        for (length, to) in lengths.iter_mut().zip(to) {
            let back = from.along().saturating_sub(to.along());
            let seems = to.on.segment == from.on.segment && f64::from(back) < self.receiver.noise * 2000.0;
            if back > 0 && seems {
                *length = Some(back.into());
            }
        }
        Ok(lengths)
    }
}

/// Goes back along the likeliest row.
fn settle(places: &mut [Option<OnTrace>], steps: &[Step], row: usize) {
    let mut state = steps.last().map(Step::likeliest);
    for step in steps.iter().rev() {
        let Some(State { spot, before, .. }) = state.map(|state| &step.states[state]) else { return };
        places[step.point] = Some(OnTrace { spot: *spot, row });
        state = *before;
    }
}
