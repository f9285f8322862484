//! All ways to the map give the same answers, and these are right.

use kelix::{Path, Session};
use kelix_apps::{KelixKeyed, Memcached, Store, start_memcached};
use kelix_map::load::{load, memory_bytes};
use kelix_map::matching::{Matched, Matcher, RADIUS, Side, Spot};
use kelix_map::network::Network;
use kelix_map::place::{Plane, Position, on_line};
use kelix_map::random::Random;
use kelix_map::route::{Method, Route, route};
use kelix_map::search::{By, Search};
use kelix_map::simulate::Simulation;
use kelix_map::source::{fetched, grid, read};
use kelix_map::trace::{OnTrace, Receiver, Tracer};
use kelix_map::ways::{Arrays, Keys, Links, Map, put};

/// A made-up map, and a real one if it has been fetched.
fn networks() -> Vec<Network> {
    let fetched = fetched().map(|path| read(&path).unwrap());
    std::iter::once(grid(12)).chain(fetched).map(|source| Network::of(source).unwrap()).collect()
}

struct Loaded {
    links: Links,
    store: Store,
}

fn loaded(name: &str, network: &Network) -> Loaded {
    let store = Store::start(name, memory_bytes(network)).unwrap();
    let mut session = store.session().unwrap();
    let built = load(&mut session, network).unwrap();
    assert_eq!(built.dangling, 0);
    Loaded { links: Links::open(session).unwrap().0, store }
}

/// What is asked.
struct Questions {
    points: Vec<Position>,
    ends: Vec<(Spot, Spot)>,
    drives: Vec<kelix_map::simulate::Drive>,
}

type Answers = (Vec<Option<Matched>>, Vec<Option<Route>>, Vec<Vec<Option<OnTrace>>>);

impl Questions {
    fn of(network: &Network) -> Questions {
        let mut simulation = Simulation::new(network, 30.0, 11);
        let mut blurred = |_| {
            let at = simulation.place().position();
            simulation.blurred(at)
        };
        let points = (0..150).map(&mut blurred).collect();
        let ends = (0..20).map(|_| (simulation.place(), simulation.place())).collect();
        Questions { points, ends, drives: Simulation::new(network, 10.0, 12).drives(3).unwrap() }
    }

    fn ask(&self, map: &mut impl Map, network: &Network) -> Answers {
        let mut matcher = Matcher::new(network.grid);
        let matched = self.points.iter().map(|at| matcher.matched(map, *at, RADIUS).unwrap()).collect();
        let mut search = Search::new();
        let methods = [(By::Time, Method::Dijkstra), (By::Length, Method::AStar)];
        let asked = self.ends.iter().flat_map(|ends| methods.map(|method| (ends, method)));
        let mut go = |((from, to), (by, method)): (&(Spot, Spot), (By, Method))| {
            route(&mut search, map, (from, to), by, method, u64::MAX).unwrap()
        };
        let routes = asked.map(&mut go).collect();
        let mut tracer = Tracer::new(matcher, Receiver::default());
        let traces = self.drives.iter().map(|drive| tracer.places(map, &drive.trace.fixes).unwrap());
        (matched, routes, traces.collect())
    }
}

#[test]
fn all_ways_give_the_same_answers() {
    for network in networks() {
        let Loaded { mut links, store } = loaded("map-test-ways", &network);
        let questions = Questions::of(&network);
        let truth = questions.ask(&mut Arrays::of(&network), &network);
        assert!(truth.0.iter().flatten().count() > 100 && truth.1.iter().flatten().count() > 10);
        assert!(truth.0.iter().any(Option::is_none), "some are on no street");
        let same = |way: &str, answers: Answers| assert!(answers == truth, "{way}: {}", network.title);
        same("links", questions.ask(&mut links, &network));
        links.session.set_path(Path::Message);
        same("links, by messages", questions.ask(&mut links, &network));
        let keyed = |path| {
            let session: Session = store.session().unwrap();
            KelixKeyed::new(session, "map_by_key", path, 64).unwrap()
        };
        let mut by_index = keyed(Path::Index);
        put(&mut by_index, &network).unwrap();
        same("index", questions.ask(&mut Keys::of(by_index), &network));
        same("message", questions.ask(&mut Keys::of(keyed(Path::Message)), &network));
        let daemon = start_memcached(64 << 20).unwrap();
        let mut single = Memcached::connect(&daemon, 1).unwrap();
        put(&mut single, &network).unwrap();
        let many = single.again(64).unwrap();
        same("memcached", questions.ask(&mut Keys::of(single), &network));
        same("multiget", questions.ask(&mut Keys::of(many), &network));
    }
}

#[test]
fn a_point_is_matched_by_one_look_by_key() {
    let network = Network::of(grid(12)).unwrap();
    let Loaded { mut links, store: _store } = loaded("map-test-cost", &network);
    let mut matcher = Matcher::new(network.grid);
    let spot = Spot::at(network.found(7), 0.4);
    // The first read of a name asks for it.
    matcher.matched(&mut links, spot.position(), RADIUS).unwrap().unwrap();
    let before = links.session.cost();
    matcher.matched(&mut links, spot.position(), RADIUS).unwrap().unwrap();
    let cost = links.session.cost().since(before);
    assert_eq!(cost.messages, 0);
    let mut cells = Vec::new();
    network.grid.around(spot.position(), RADIUS, &mut cells);
    let mut arrays = Arrays::of(&network);
    let found = arrays.find(&cells).unwrap();
    let nodes: std::collections::BTreeSet<u32> = found.iter().flat_map(|found| found.ends).collect();
    // The index and the cell; then the other cells, segments, nodes, and the street: a read each.
    // Of the index it may be two, where a bucket was full.
    let reads = 1 + cells.len() + found.len() + nodes.len() + 1;
    assert!([reads, reads + 1].contains(&(cost.reads as usize)), "{cost:?}, not {reads} READs");
}

/// A place beside a segment: metres from its middle, to its left if they are positive.
fn beside(network: &Network, segment: u32, share: f64, metres: f64) -> Position {
    let line = network.line(segment);
    let at = on_line(line, share);
    let plane = Plane::around(at);
    let (a, b) = (plane.point(line[0]), plane.point(line[1]));
    let along = b - a;
    let length = f64::hypot(along.x(), along.y());
    plane.position(geo::Point::new(-along.y(), along.x()) * (metres / length))
}

#[test]
fn points_beside_segments_are_matched_to_them() {
    let network = Network::of(grid(8)).unwrap();
    let Loaded { mut links, store: _store } = loaded("map-test-beside", &network);
    let mut matcher = Matcher::new(network.grid);
    for segment in 0..network.segments.len() as u32 {
        for (share, metres, side) in [(0.3, 4.0, Side::Left), (0.6, -7.0, Side::Right)] {
            let at = beside(&network, segment, share, metres);
            let Matched { spot, side: told, street } =
                matcher.matched(&mut links, at, RADIUS).unwrap().unwrap();
            assert_eq!((spot.on.segment, told), (segment, side));
            assert_eq!(street, network.streets[network.segments[segment as usize].street as usize]);
            assert!((spot.metres - f64::abs(metres)).abs() < 0.1, "{}", spot.metres);
            assert!((spot.share - share).abs() < 0.01, "{}", spot.share);
        }
    }
}

#[test]
fn points_at_ends_and_off_streets() {
    let network = Network::of(grid(8)).unwrap();
    let Loaded { mut links, store: _store } = loaded("map-test-ends", &network);
    let mut matcher = Matcher::new(network.grid);
    for (node, at) in network.nodes.iter().enumerate() {
        let Matched { spot, .. } = matcher.matched(&mut links, *at, RADIUS).unwrap().unwrap();
        assert_eq!(spot.metres, 0.0);
        let end = spot.on.ends.iter().position(|end| *end == node as u32).expect("one of its ends");
        assert_eq!(spot.share, end as f64);
        // Of all that begin or end here it is the first.
        let first = network.segments.iter().position(|segment| segment.ends.contains(&(node as u32)));
        assert_eq!(Some(spot.on.segment as usize), first);
    }
    // Blocks are more than 100 m wide, so their middles are on no street, unless it is looked for further
    // away.
    let middle = |segment: u32| beside(&network, segment, 0.5, 58.0);
    let inside = (0..network.segments.len() as u32)
        .map(middle)
        .find(|at| matcher.nearest(&mut links, *at, RADIUS).unwrap().is_none());
    let inside = inside.expect("there is a block");
    assert!(matcher.matched(&mut links, inside, 80.0).unwrap().is_some());
    for far in ["0,0", "60.5,25.1", "-60,25"] {
        assert_eq!(matcher.matched(&mut links, far.parse().unwrap(), 100.0).unwrap(), None);
    }
}

/// Lengths of the shortest ways from a node, by a search that looks at all nodes again and again.
fn plain_search(network: &Network, from: u32) -> Vec<u64> {
    let mut lengths = vec![u64::MAX; network.nodes.len()];
    lengths[from as usize] = 0;
    loop {
        let mut changed = false;
        for segment in &network.segments {
            let [a, b] = segment.ends.map(|end| end as usize);
            let ways = if segment.oneway { vec![(a, b)] } else { vec![(a, b), (b, a)] };
            for (a, b) in ways {
                let length = lengths[a].saturating_add(segment.length.into());
                changed |= length < lengths[b];
                lengths[b] = lengths[b].min(length);
            }
        }
        if !changed {
            return lengths;
        }
    }
}

#[test]
fn routes_are_the_shortest_and_keep_to_one_way_streets() {
    let network = Network::of(grid(10)).unwrap();
    let Loaded { mut links, store: _store } = loaded("map-test-routes", &network);
    let (mut search, mut random) = (Search::new(), Random::new(3));
    let mut around = 0;
    for _ in 0..60 {
        let mut segment = || network.found(random.below(network.segments.len() as u64) as u32);
        let (from, to) = (Spot::at(segment(), 1.0), Spot::at(segment(), 0.0));
        if from.on.segment == to.on.segment {
            continue;
        }
        let truth = plain_search(&network, from.on.ends[1])[to.on.ends[0] as usize];
        let mut go = |method| {
            let found = route(&mut search, &mut links, (&from, &to), By::Length, method, u64::MAX).unwrap();
            found.map(|route| (route.length, route.segments))
        };
        let (dijkstra, astar) = (go(Method::Dijkstra), go(Method::AStar));
        assert_eq!(dijkstra.as_ref().map(|found| found.0), astar.map(|found| found.0));
        let (length, segments) = dijkstra.expect("all of the grid is connected");
        // Both ends may be on two-way streets, and then there may be a shorter way by their other ends.
        assert!(length <= truth);
        around += usize::from(length == truth);
        for pair in segments.windows(2) {
            let [before, after] = [pair[0], pair[1]].map(|segment| network.segments[segment as usize]);
            let met: Vec<u32> = before.ends.into_iter().filter(|end| after.ends.contains(end)).collect();
            let may = |node: &u32| {
                (!before.oneway || before.ends[1] == *node) && (!after.oneway || after.ends[0] == *node)
            };
            assert!(met.iter().any(may), "from {before:?} to {after:?}");
        }
    }
    assert!(around > 20, "{around}");
    // Back along a one-way street is around the block.
    let oneway =
        (0..network.segments.len() as u32).map(|segment| network.found(segment)).find(|found| found.oneway);
    let (from, to) = (Spot::at(oneway.unwrap(), 0.8), Spot::at(oneway.unwrap(), 0.2));
    let length = |route: Option<Route>| route.unwrap().length;
    let mut go =
        |ends| length(route(&mut search, &mut links, ends, By::Length, Method::AStar, u64::MAX).unwrap());
    let (ahead, back) = (go((&to, &from)), go((&from, &to)));
    assert!(ahead < 200_000 && back > 3 * ahead, "{ahead} {back}");
}
