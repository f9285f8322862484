//! How many points are matched to what is true: vehicles drive along routes of the map, and their receivers'
//! noise is known.

use std::fmt::Write;

use crate::matching::{Matcher, RADIUS};
use crate::network::Network;
use crate::simulate::{Drive, Simulation};
use crate::trace::{Receiver, Tracer};
use crate::ways::Map;

/// The noises that are looked at, in metres: standard deviations north, and east.
pub const NOISES: [f64; 3] = [5.0, 10.0, 20.0];

/// Shares of points.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Shares {
    /// Matched to the true segment.
    pub segment: f64,
    /// Matched to a street of the true name, or to the true street if it has none.
    pub street: f64,
}

/// What was found for a noise.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Found {
    /// The noise, in metres.
    pub noise: f64,
    /// How many points there were.
    pub points: usize,
    /// By the nearest segment.
    pub nearest: Shares,
    /// By the trace as a whole.
    pub trace: Shares,
}

/// Counts what is right.
struct Count<'n> {
    network: &'n Network,
    points: usize,
    segments: usize,
    streets: usize,
}

impl Count<'_> {
    fn note(&mut self, truth: u32, told: Option<u32>) {
        let street = |segment: u32| self.network.segments[segment as usize].street;
        let name = |segment: u32| &self.network.streets[street(segment) as usize].name;
        let is_street = |told: u32| {
            street(told) == street(truth) || (!name(told).is_empty() && name(told) == name(truth))
        };
        self.points += 1;
        self.segments += usize::from(told == Some(truth));
        self.streets += usize::from(told.is_some_and(is_street));
    }

    fn shares(&self) -> Shares {
        let share = |count: usize| count as f64 / self.points.max(1) as f64;
        Shares { segment: share(self.segments), street: share(self.streets) }
    }
}

/// Matches the points of drives, each by itself and then each trace as a whole.
fn matched(map: &mut impl Map, network: &Network, noise: f64, drives: &[Drive]) -> Result<Found, String> {
    let count = || Count { network, points: 0, segments: 0, streets: 0 };
    let (mut nearest, mut whole) = (count(), count());
    let mut matcher = Matcher::new(network.grid);
    let mut tracer = Tracer::new(Matcher::new(network.grid), Receiver::default());
    for Drive { trace, segments } in drives {
        let places = tracer.places(map, &trace.fixes)?;
        for ((fix, truth), place) in trace.fixes.iter().zip(segments).zip(places) {
            let spot = matcher.nearest(map, fix.at, RADIUS)?;
            nearest.note(*truth, spot.map(|spot| spot.on.segment));
            whole.note(*truth, place.map(|place| place.spot.on.segment));
        }
    }
    Ok(Found { noise, points: nearest.points, nearest: nearest.shares(), trace: whole.shares() })
}

/// Looks at all noises, with so many vehicles each.
pub fn measure(map: &mut impl Map, network: &Network, vehicles: usize) -> Result<Vec<Found>, String> {
    let of_noise = |noise: f64| {
        kelix_report::progress::show(&format!("noise of {noise} m"));
        let drives = Simulation::new(network, noise, 2).drives(vehicles)?;
        matched(map, network, noise, &drives)
    };
    let found = NOISES.into_iter().map(of_noise).collect();
    kelix_report::progress::show("");
    found
}

/// A table for people.
pub fn table(found: &[Found]) -> String {
    let mut table = String::from("                 true segment        true street\n");
    table.push_str("noise  points   nearest   trace    nearest   trace\n");
    for Found { noise, points, nearest, trace } in found {
        let [a, b, c, d] =
            [nearest.segment, trace.segment, nearest.street, trace.street].map(|share| share * 100.0);
        let line = writeln!(table, "{noise:>3} m {points:>8} {a:>8.1} % {b:>5.1} % {c:>8.1} % {d:>5.1} %");
        line.expect("memory takes all");
    }
    table
}
