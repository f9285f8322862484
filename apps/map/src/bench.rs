//! `kelix-map bench`: points matched by links, by keys and in memcached; routes by links and on arrays; and
//! how much is matched to what is true.

use std::time::Instant;

use kelix::Path;
use kelix_apps::{Failure, KelixKeyed, Memcached, Store, Times, Wanted, start_memcached};
use kelix_report::cores::{cores, pin, unpin};
use kelix_report::progress::show as progress;
use kelix_report::{Report, Row, Sense};

use crate::accuracy;
use crate::load::{load, memory_bytes};
use crate::matching::{Matched, Matcher, RADIUS, Spot};
use crate::network::Network;
use crate::place::Position;
use crate::random::Random;
use crate::route::{Method, Route, route};
use crate::search::{By, Search};
use crate::simulate::Simulation;
use crate::ways::{Arrays, Keys, Links, Map, put};

/// Keys that are got at once, where that is possible.
const BATCH: usize = 64;
/// The table of the same items by key.
const KEYED: &str = "map_by_key";
/// Drives for each noise, and vehicles whose points are matched.
const DRIVES: usize = 100;
/// The noise of these, in metres.
const NOISE: f64 = 10.0;
/// Routes, and how often each side looks for one.
const ROUTES: usize = 200;
const ROUNDS: usize = 5;
/// What is wanted of routes on arrays: at most so many times their time.
const ROUTES_WANTED: f64 = 4.0;
/// What is wanted of memcached's time: at least so many times that by links.
const MATCHES_WANTED: f64 = 10.0;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Bench {
    /// Items that the map is tiled to.
    pub items: usize,
    /// Points that are matched.
    pub tasks: usize,
}

/// A store with a map in it, beside it the client.
fn start(network: &Network) -> Result<(Store, Links), String> {
    pin(cores() - 1);
    let store = Store::start("map-bench", memory_bytes(network) * 2)?;
    pin(0);
    let mut session = store.session()?;
    load(&mut session, network)?;
    let (links, _) = Links::open(session)?;
    Ok((store, links))
}

impl Bench {
    /// Measures all of it. The servers have the last core, the client has the first.
    pub fn run(&self, network: Network) -> Result<Report, String> {
        let rows = self.rows(&network);
        unpin();
        let (rows, items) = rows?;
        Ok(Report::new("map", items as u64, rows))
    }

    fn rows(&self, network: &Network) -> Result<(Vec<Row>, usize), String> {
        let tiled = network.tiled((self.items / network.items()).max(1));
        let items = tiled.items();
        let (store, links) = start(&tiled)?;
        let mut rows = self.matches(&tiled, &store, links, items)?;
        let (mut links, _) = Links::open(store.session()?)?;
        rows.extend(routes(&tiled, &mut links, "tiled_", None)?);
        drop((links, store));
        let (_store, mut links) = start(network)?;
        rows.extend(routes(network, &mut links, "", Some(ROUTES_WANTED))?);
        rows.extend(accuracy_rows(network, &mut links)?);
        Ok((rows, items))
    }

    /// The points of drives, in no order.
    fn points(&self, network: &Network) -> Result<Vec<Position>, String> {
        let mut simulation = Simulation::new(network, NOISE, 3);
        let mut points = Vec::new();
        while points.len() < self.tasks {
            let drives = simulation.drives(DRIVES)?;
            points.extend(drives.iter().flat_map(|drive| drive.trace.fixes.iter().map(|fix| fix.at)));
            progress(&format!("{} points", points.len()));
        }
        let mut random = Random::new(4);
        for last in (1..points.len()).rev() {
            points.swap(last, random.below(last as u64 + 1) as usize);
        }
        points.truncate(self.tasks);
        Ok(points)
    }

    /// Points matched one at a time, all ways.
    fn matches(
        &self,
        network: &Network,
        store: &Store,
        mut links: Links,
        items: usize,
    ) -> Result<Vec<Row>, String> {
        let points = self.points(network)?;
        let keyed = |path| KelixKeyed::new(store.session()?, KEYED, path, BATCH);
        let (mut by_index, by_message) = (keyed(Path::Index)?, keyed(Path::Message)?);
        progress("the same by keys, in Kelix");
        put(&mut by_index, network)?;
        pin(cores() - 1);
        let daemon = start_memcached(memory_bytes(network))?;
        pin(0);
        let mut single = Memcached::connect(&daemon, 1)?;
        progress("the same by keys, in memcached");
        put(&mut single, network)?;
        let many = single.again(BATCH)?;
        let (mut index, mut message) = (Keys::of(by_index), Keys::of(by_message));
        let (mut single, mut many) = (Keys::of(single), Keys::of(many));
        let mut matcher = Matcher::new(network.grid);
        let mut work = |side: usize, task: usize| match side {
            0 => matcher.matched(&mut links, points[task], RADIUS),
            1 => matcher.matched(&mut index, points[task], RADIUS),
            2 => matcher.matched(&mut message, points[task], RADIUS),
            3 => matcher.matched(&mut single, points[task], RADIUS),
            _ => matcher.matched(&mut many, points[task], RADIUS),
        };
        let on_streets = check(network, &points, &mut work)?;
        let times = Times::take(points.len(), 5, |side, task| Ok(work(side, task).map(drop)?))?;
        let wanted = Wanted { mean: Some(MATCHES_WANTED), p95: Some(MATCHES_WANTED) };
        let note = format!("{items} items made by tiling; {on_streets} of the points are on streets; ");
        let row = |id: &str, name: &str, other, wanted| {
            times.rows(id, &format!("a point matched by links / {name}"), (0, other), wanted, &note)
        };
        let none = Wanted::default();
        Ok([
            row("map_memcached", "memcached, a get at a time", 3, wanted),
            row("map_multiget", "memcached, multiget of 64", 4, none),
            row("map_message", "keys, by messages of 64", 2, none),
            row("map_index", "keys, by the index", 1, none),
        ]
        .concat())
    }
}

/// All sides answer as arrays do. Returns how many points are on a street.
fn check(
    network: &Network,
    points: &[Position],
    work: &mut impl FnMut(usize, usize) -> Result<Option<Matched>, Failure>,
) -> Result<usize, String> {
    let (mut arrays, mut matcher, mut count) = (Arrays::of(network), Matcher::new(network.grid), 0);
    for (task, at) in points.iter().enumerate() {
        let truth = matcher.matched(&mut arrays, *at, RADIUS)?;
        for side in 0..5 {
            let told = work(side, task)?;
            if told != truth {
                return Err(format!("side {side} matches {at} to {told:?}, not to {truth:?}"));
            }
        }
        count += usize::from(truth.is_some());
    }
    Ok(count)
}

/// A route by one side.
fn go(
    search: &mut Search,
    map: &mut impl Map,
    (from, to): &(Spot, Spot),
    method: Method,
) -> Result<Option<Route>, String> {
    Ok(route(search, map, (from, to), By::Time, method, u64::MAX)?)
}

/// Pairs of places that a route leads from and to.
fn pairs(network: &Network, arrays: &mut Arrays<'_>) -> Result<Vec<(Spot, Spot)>, String> {
    let mut simulation = Simulation::new(network, 0.0, 5);
    let (mut search, mut pairs) = (Search::new(), Vec::new());
    while pairs.len() < ROUTES {
        let pair = (simulation.place(), simulation.place());
        let near = pair.0.position().metres_to(pair.1.position()) < 10_000.0;
        if near && go(&mut search, arrays, &pair, Method::AStar)?.is_some() {
            pairs.push(pair);
            progress(&format!("route {} of {ROUTES}", pairs.len()));
        }
    }
    progress("");
    Ok(pairs)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Routes by links against the same search on arrays.
fn routes(network: &Network, links: &mut Links, of: &str, wanted: Option<f64>) -> Result<Vec<Row>, String> {
    let mut arrays = Arrays::of(network);
    let pairs = pairs(network, &mut arrays)?;
    let mut row = |method: Method, name: &str, wanted: Option<f64>| -> Result<Row, String> {
        let (mut ours, mut other, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let (mut by_links, mut by_arrays, mut settled) = (Search::new(), Search::new(), 0);
        for pair in &pairs {
            let found = go(&mut by_links, links, pair, method)?;
            if found != go(&mut by_arrays, &mut arrays, pair, method)? {
                return Err(format!(
                    "the route from {} to {} is not that on arrays",
                    pair.0.position(),
                    pair.1.position()
                ));
            }
            settled += found.map_or(0, |found| found.settled);
            let mut times = [Vec::new(), Vec::new()];
            for round in 0..ROUNDS * 2 {
                let began = Instant::now();
                // Who is first changes from round to round.
                let is_ours = (round + round / 2) % 2 == 0;
                let found = match is_ours {
                    true => go(&mut by_links, links, pair, method)?,
                    false => go(&mut by_arrays, &mut arrays, pair, method)?,
                };
                std::hint::black_box(found);
                times[usize::from(!is_ours)].push(began.elapsed().as_nanos() as f64);
            }
            let [links, arrays] = times.map(median);
            ratios.push(links / arrays);
            ours.push(links / 1e3);
            other.push(arrays / 1e3);
        }
        let note = format!(
            "{ROUTES} routes, {} nodes gone on from each on average; {} segments",
            settled / ROUTES,
            network.segments.len()
        );
        Ok(Row {
            id: format!("{of}{name}_array").into(),
            name: format!("{name} by links / on arrays").into(),
            ours: median(ours),
            other: Some(median(other)),
            unit: "us",
            ratio: median(ratios),
            wanted,
            sense: Sense::AtMost,
            note,
        })
    };
    Ok(vec![row(Method::Dijkstra, "dijkstra", wanted)?, row(Method::AStar, "astar", None)?])
}

/// Shares of points that are matched to what is true.
fn accuracy_rows(network: &Network, links: &mut Links) -> Result<Vec<Row>, String> {
    let found = accuracy::measure(links, network, DRIVES)?;
    let row = |id: String, name: String, share: f64, note: String| Row {
        id: id.into(),
        name: name.into(),
        ours: share,
        other: None,
        unit: "share",
        ratio: share,
        wanted: None,
        sense: Sense::AtLeast,
        note,
    };
    Ok(found
        .iter()
        .flat_map(|found| {
            let note = |street: f64| format!("{} points; to the true street {street:.3}", found.points);
            let noise = found.noise;
            let name = |how| format!("share of points matched to the true segment {how}, noise of {noise} m");
            [
                row(
                    format!("nearest_{noise}m"),
                    name("by themselves"),
                    found.nearest.segment,
                    note(found.nearest.street),
                ),
                row(
                    format!("trace_{noise}m"),
                    name("as a trace"),
                    found.trace.segment,
                    note(found.trace.street),
                ),
            ]
        })
        .collect())
}
