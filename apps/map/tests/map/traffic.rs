//! Traces as a whole, and what a stream of points says of traffic.

use kelix_apps::Store;
use kelix_map::accuracy::{self, Found};
use kelix_map::congestion::{Live, Stream, follow, minute_of};
use kelix_map::load::{load, memory_bytes};
use kelix_map::matching::Matcher;
use kelix_map::network::Network;
use kelix_map::place::{Position, on_line};
use kelix_map::simulate::Simulation;
use kelix_map::source::{fetched, grid, read};
use kelix_map::trace::{Fix, Receiver, Tracer};
use kelix_map::ways::{Arrays, Links};

/// Shares are above what was measured, less some hundredths: nearest and trace to segments, nearest and trace
/// to streets, for each noise.
fn check_floors(found: &[Found], floors: [[f64; 4]; 3]) {
    print!("{}", accuracy::table(found));
    for (found, [nearest, trace, nearest_street, trace_street]) in found.iter().zip(floors) {
        assert!(found.points > 500, "{found:?}");
        assert!(found.nearest.segment > nearest && found.trace.segment > trace, "{found:?}");
        assert!(found.nearest.street > nearest_street && found.trace.street > trace_street, "{found:?}");
        assert!(
            found.trace.segment > found.nearest.segment && found.trace.street > found.nearest.street,
            "{found:?}"
        );
    }
}

#[test]
fn points_with_noise_are_matched_to_what_is_true() {
    let network = Network::of(grid(25)).unwrap();
    let found = accuracy::measure(&mut Arrays::of(&network), &network, 30).unwrap();
    check_floors(&found, [[0.86, 0.90, 0.88, 0.93], [0.77, 0.83, 0.80, 0.89], [0.60, 0.69, 0.66, 0.79]]);
}

#[test]
fn points_with_noise_are_matched_in_helsinki() {
    let Some(path) = fetched() else {
        eprintln!("`make map-data` fetches the map that this test is about");
        return;
    };
    let network = Network::of(read(&path).unwrap()).unwrap();
    let found = accuracy::measure(&mut Arrays::of(&network), &network, 40).unwrap();
    check_floors(&found, [[0.58, 0.64, 0.82, 0.92], [0.38, 0.46, 0.73, 0.86], [0.20, 0.27, 0.58, 0.72]]);
}

/// The segments of a wide street of the grid, from its first on, which is a row of crossings.
fn street(network: &Network) -> Vec<u32> {
    let all = 0..network.segments.len() as u32;
    let of_street = |segment: &u32| network.segments[*segment as usize].street == 0;
    let segments: Vec<u32> = all.filter(of_street).collect();
    assert_eq!(network.streets[0].kind, "primary");
    segments
}

/// A place so many metres from the beginning of a street.
fn along(network: &Network, street: &[u32], metres: f64) -> (u32, Position) {
    let mut left = metres * 1000.0;
    for segment in street {
        let length = f64::from(network.segments[*segment as usize].length);
        if left < length {
            return (*segment, on_line(network.line(*segment), left / length));
        }
        left -= length;
    }
    panic!("the street is shorter than {metres} m");
}

/// Points of a vehicle along a street, 5 seconds apart, at so many metres a second.
fn drive(network: &Network, street: &[u32], begins_ms: i64, speed: f64, points: usize) -> Vec<Fix> {
    let fix = |number: usize| {
        let seconds = number as f64 * 5.0;
        let (_, at) = along(network, street, 20.0 + speed * seconds);
        Fix { at_ms: begins_ms + number as i64 * 5000, at }
    };
    (0..points).map(fix).collect()
}

#[test]
fn a_trace_is_split_where_it_breaks_off() {
    let network = Network::of(grid(12)).unwrap();
    let mut map = Arrays::of(&network);
    let mut tracer = Tracer::new(Matcher::new(network.grid), Receiver::default());
    let street = street(&network);
    let mut fixes = drive(&network, &street, 0, 10.0, 12);
    // One point is far from all streets, and after the eighth there is a long pause.
    fixes[3].at = Position { lat: fixes[3].at.lat - 50_000, ..fixes[3].at };
    fixes[8..].iter_mut().for_each(|fix| fix.at_ms += 600_000);
    let places = tracer.places(&mut map, &fixes).unwrap();
    let rows: Vec<Option<usize>> = places.iter().map(|place| place.map(|place| place.row)).collect();
    let (first, second) = (Some(0), Some(1));
    let wanted = [&[first; 3][..], &[None], &[first; 4], &[second; 4]].concat();
    assert_eq!(rows, wanted);
    for (number, place) in places.iter().enumerate().filter(|(_, place)| place.is_some()) {
        let (segment, _) = along(&network, &street, 20.0 + 50.0 * number as f64);
        assert_eq!(place.unwrap().spot.on.segment, segment);
    }
    // Where there is no way from one to the other it is split, too.
    let lone = Network::of(grid(4)).unwrap().tiled(2);
    let mut map = Arrays::of(&lone);
    let mut tracer = Tracer::new(Matcher::new(lone.grid), Receiver::default());
    let half = lone.nodes.len() / 2;
    let fixes = [Fix { at_ms: 0, at: lone.nodes[0] }, Fix { at_ms: 1000, at: lone.nodes[half] }];
    let rows: Vec<usize> =
        tracer.places(&mut map, &fixes).unwrap().iter().map(|place| place.unwrap().row).collect();
    assert_eq!(rows, [0, 1]);
}

#[test]
fn speeds_are_those_that_were_driven() {
    let network = Network::of(grid(12)).unwrap();
    let store = Store::start("map-test-speeds", memory_bytes(&network)).unwrap();
    let mut session = store.session().unwrap();
    load(&mut session, &network).unwrap();
    let (mut links, _) = Links::open(session).unwrap();
    let live = Live::open(&mut links.session).unwrap();
    let street = street(&network);
    // 36 and 18 kilometres an hour in the minutes 0 to 1; 54 in minute 5.
    let traces = [
        drive(&network, &street, 0, 10.0, 13),
        drive(&network, &street, 0, 5.0, 13),
        drive(&network, &street, 300_000, 15.0, 9),
    ];
    let mut stream = Stream::new(Matcher::new(network.grid), Receiver::default(), traces.len());
    let mut number = 0;
    for (vehicle, fixes) in traces.iter().enumerate() {
        for fix in fixes {
            follow(&mut links, &live, &mut stream, number, (vehicle, &format!("car {vehicle}"), *fix))
                .unwrap();
            number += 1;
        }
    }
    assert_eq!(live.minutes(&mut links.session).unwrap(), Some((0, 5)));
    let points = live.points(&mut links.session, &(0..=0)).unwrap();
    assert_eq!(points.len(), 24);
    assert!(points.iter().all(|seen| minute_of(seen.at_ms) == 0 && seen.place.is_some()));
    let mut at = |minutes| live.speeds(&mut links.session, &minutes).unwrap();
    let fast = at(5..=5);
    assert!(fast.len() > 3);
    for speed in &fast {
        assert!((speed.speed - 54.0).abs() < 0.5, "{speed:?}");
        assert!((speed.share - 54.0 / 60.0).abs() < 0.01, "{speed:?}");
        assert_eq!(speed.line, network.line(speed.segment));
    }
    assert!(at(2..=4).is_empty());
    // Both vehicles went along the first segment, one of them twice as long: what is told is the mean of what
    // was gone in the time that it took.
    let both = at(0..=1);
    let first = both.iter().find(|speed| speed.segment == street[0]).unwrap();
    assert!(first.count > 2 && (18.5..35.5).contains(&first.speed), "{first:?}");
    let last = both.iter().filter(|speed| speed.segment >= street[4]);
    last.for_each(|speed| assert!((speed.speed - 36.0).abs() < 0.5, "{speed:?}"));
    live.clear(&mut links.session).unwrap();
    assert_eq!(live.minutes(&mut links.session).unwrap(), None);
}

#[test]
fn drives_are_along_streets_and_fill_a_stream() {
    let network = Network::of(grid(15)).unwrap();
    let drives = Simulation::new(&network, 0.0, 9).drives(20).unwrap();
    let mut map = Arrays::of(&network);
    let mut matcher = Matcher::new(network.grid);
    for drive in &drives {
        assert_eq!(drive.trace.fixes.len(), drive.segments.len());
        for (fix, segment) in drive.trace.fixes.iter().zip(&drive.segments) {
            let nearest = matcher.nearest(&mut map, fix.at, 50.0).unwrap().unwrap();
            assert!(nearest.metres < 0.1, "a receiver without noise is on its street");
            let ends = network.segments[*segment as usize].ends;
            assert!(nearest.on.segment == *segment || nearest.on.ends.iter().any(|end| ends.contains(end)));
        }
    }
}
