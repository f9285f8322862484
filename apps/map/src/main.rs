//! `kelix-map`: a street map in Kelix, on a page and by commands.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use kelix_apps::{BenchArgs, Failure, Store, StoreArgs, say};
use kelix_map::bench::Bench;
use kelix_map::congestion::Live;
use kelix_map::load::{About, load, memory_bytes};
use kelix_map::matching::{Matched, Matcher, RADIUS};
use kelix_map::network::{Network, Street};
use kelix_map::place::Position;
use kelix_map::route::{Method, Route, route};
use kelix_map::search::{By, Search};
use kelix_map::serve::{App, Feed, Traffic, serve};
use kelix_map::trace::{Receiver, Tracer};
use kelix_map::ways::Links;
use kelix_map::{accuracy, points, source};

/// News that a page may miss before it does.
const NEWS: usize = 4096;

/// A street map in Kelix: GPS points to streets, routes, and traffic on a page
///
/// Without a command it loads a map, lets vehicles drive about on it, or plays the points of a file, and
/// serves a page that shows them, until it is ended by SIGINT or SIGTERM.
#[derive(Parser)]
#[command(
    version,
    after_help = "\
Examples:
  kelix-map
  kelix-map --data liechtenstein-latest.osm.pbf --listen 127.0.0.1:8080
  kelix-map --data district.json --points taxis.csv --speed 60
  kelix-map match 60.1699 24.9384
  kelix-map route 60.1699,24.9384 60.1756,24.9519 --by length"
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    store: StoreArgs,
    /// A map: a .osm.pbf, or the .json of an Overpass server [default: Helsinki's centre, as `make map-data`
    /// fetches it]
    #[arg(long, value_name = "FILE", global = true)]
    data: Option<PathBuf>,
    /// GPS points: a .csv with vehicle, timestamp, longitude, latitude, or a .json with id, time, point
    /// [default: vehicles that drive about]
    #[arg(long, value_name = "FILE")]
    points: Option<PathBuf>,
    /// Where the page is served; port 0 is any that is free
    #[arg(long, value_name = "HOST:PORT", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))]
    listen: SocketAddr,
    /// Points come so many times as fast as they were taken
    #[arg(long, value_name = "TIMES", default_value_t = 20.0, value_parser = parse_speed)]
    speed: f64,
    /// Vehicles that set out in half an hour
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    vehicles: u32,
}

#[derive(Subcommand)]
enum Command {
    /// Tell which street a place is on, and where on it
    Match {
        /// In degrees
        #[arg(allow_negative_numbers = true)]
        lat: f64,
        /// In degrees
        #[arg(allow_negative_numbers = true)]
        lon: f64,
    },
    /// Match the traces of a file: a line for each point, as csv
    MatchFile {
        /// As for --points
        file: PathBuf,
    },
    /// Tell the best route from one place to another
    Route {
        /// LAT,LON
        #[arg(allow_hyphen_values = true)]
        from: Position,
        /// LAT,LON
        #[arg(allow_hyphen_values = true)]
        to: Position,
        /// What is to be least
        #[arg(long, value_enum, default_value_t)]
        by: By,
    },
    /// Tell how many points of drives with noise are matched to what is true
    Accuracy {
        /// Drives for each noise
        #[arg(long, value_name = "N", default_value_t = 100)]
        drives: usize,
    },
    /// Measure matching and routes by links against keys, memcached and arrays
    Bench {
        #[command(flatten)]
        tell: BenchArgs,
        /// Items that the map is tiled to
        #[arg(long, value_name = "N", default_value_t = 6_000_000)]
        items: usize,
        /// Points that are matched
        #[arg(long, value_name = "N", default_value_t = 3000, value_parser = clap::value_parser!(u32).range(1..))]
        tasks: u32,
    },
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed: &f64| speed.is_finite() && *speed > 0.0);
    speed.ok_or_else(|| "a number above 0 is expected".into())
}

fn main() -> ExitCode {
    kelix_apps::end("kelix-map", run(&Arguments::parse()))
}

/// A store with the map in it.
struct Ready {
    links: Links,
    about: About,
    network: Network,
    /// Behind its sessions, so that it ends after them.
    store: Store,
}

fn ready(arguments: &Arguments) -> Result<Ready, Failure> {
    let network = Network::of(source::open(arguments.data.as_deref())?)?;
    let store = Store::open(&arguments.store, "map", memory_bytes(&network))?;
    let mut session = store.session()?;
    load(&mut session, &network)?;
    let (links, about) = Links::open(session)?;
    Ok(Ready { links, about, network, store })
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        None => show(arguments),
        Some(Command::Match { lat, lon }) => {
            let at = Position::of(*lat, *lon)
                .ok_or_else(|| Failure::usage("match", format!("{lat} {lon} is no place")))?;
            tell_match(&mut ready(arguments)?, at)
        }
        Some(Command::MatchFile { file }) => tell_matches(&points::read(file)?, &mut ready(arguments)?),
        Some(Command::Route { from, to, by }) => tell_route(&mut ready(arguments)?, (*from, *to), *by),
        Some(Command::Accuracy { drives }) => {
            let Ready { mut links, network, .. } = ready(arguments)?;
            let found = accuracy::measure(&mut links, &network, *drives)?;
            say(format_args!("{}\n{}", network.title, accuracy::table(&found).trim_end()))
        }
        Some(Command::Bench { tell, items, tasks }) => {
            let network = Network::of(source::open(arguments.data.as_deref())?)?;
            let bench = Bench { items: *items, tasks: *tasks as usize };
            let data =
                arguments.data.as_ref().map_or(String::new(), |file| format!(" --data {}", file.display()));
            tell.tell(&bench.run(network)?, &format!("kelix-map bench{data}"))
        }
    }
}

fn show(arguments: &Arguments) -> Result<(), Failure> {
    let traces = arguments.points.as_deref().map(points::read).transpose()?;
    let Ready { mut links, about, network, store } = ready(arguments)?;
    let live = Live::open(&mut links.session)?;
    live.clear(&mut links.session)?;
    let traffic = match traces {
        Some(traces) => Traffic::Points(traces),
        None => Traffic::Simulated { network, vehicles: arguments.vehicles as usize },
    };
    let (news, _) = tokio::sync::broadcast::channel(NEWS);
    let [nodes, segments, streets] = about.counts;
    let app = App { client: store.client.clone(), about, live, news };
    let feed = Feed::start(app.clone(), traffic, arguments.speed)?;
    let served = serve(app.clone(), arguments.listen, |address| {
        say(format_args!(
            "{}: {streets} streets, {segments} segments, {nodes} nodes in {}",
            app.about.title,
            store.place()
        ))?;
        say(format_args!("http://{address}/"))
    });
    drop(feed);
    served
}

/// A street's name in words.
fn named(street: &Street) -> &str {
    if street.name.is_empty() { "a street without a name" } else { &street.name }
}

fn tell_match(ready: &mut Ready, at: Position) -> Result<(), Failure> {
    let Ready { links, about, .. } = ready;
    let before = links.session.cost();
    let found = Matcher::new(about.grid).matched(links, at, RADIUS)?;
    let cost = links.session.cost().since(before);
    let is_there = found.is_some();
    match found {
        None => say(format_args!("no street within {RADIUS} m"))?,
        Some(Matched { spot, side, street }) => {
            let (along, length) = (f64::from(spot.along()) / 1e3, f64::from(spot.on.length) / 1e3);
            say(format_args!("{} ({}, {} km/h)", named(&street), street.kind, street.maxspeed))?;
            say(format_args!(
                "{along:.1} m along segment {} of {length:.1} m, at {}",
                spot.on.segment,
                spot.position()
            ))?;
            say(format_args!(
                "{:.1} m from there, to its {}",
                spot.metres,
                format!("{side:?}").to_lowercase()
            ))?;
        }
    }
    say(format_args!("({} remote reads, {} messages)", cost.reads, cost.messages))?;
    Failure::unless(is_there)
}

fn tell_matches(traces: &[points::Trace], ready: &mut Ready) -> Result<(), Failure> {
    let Ready { links, about, .. } = ready;
    let mut tracer = Tracer::new(Matcher::new(about.grid), Receiver::default());
    let output = std::io::stdout().lock();
    let mut output = csv::Writer::from_writer(std::io::BufWriter::new(output));
    let words = |error: csv::Error| Failure::from(std::io::Error::from(error));
    let head =
        ["vehicle", "milliseconds", "latitude", "longitude", "part", "segment", "along_m", "off_m", "street"];
    output.write_record(head).map_err(words)?;
    for points::Trace { vehicle, fixes } in traces {
        let places = tracer.places(links, fixes)?;
        for (fix, place) in fixes.iter().zip(places) {
            let (lat, lon) = fix.at.degrees();
            let mut record = vec![vehicle.clone(), fix.at_ms.to_string(), lat.to_string(), lon.to_string()];
            match place {
                None => record.extend(std::iter::repeat_n(String::new(), 5)),
                Some(place) => {
                    let spot = place.spot;
                    let street = links.street_numbered(spot.on.street)?;
                    let along = f64::from(spot.along()) / 1e3;
                    record.extend([place.row.to_string(), spot.on.segment.to_string()]);
                    record.extend([format!("{along:.1}"), format!("{:.1}", spot.metres), street.name]);
                }
            }
            output.write_record(&record).map_err(words)?;
        }
    }
    Ok(output.flush()?)
}

fn tell_route(ready: &mut Ready, (from, to): (Position, Position), by: By) -> Result<(), Failure> {
    let Ready { links, about, network, .. } = ready;
    let mut matcher = Matcher::new(about.grid);
    let mut spot = |at: Position| {
        let spot = matcher.nearest(links, at, RADIUS)?;
        spot.ok_or_else(|| Failure::not_there(format!("there is no street within {RADIUS} m of {at}")))
    };
    let (from, to) = (spot(from)?, spot(to)?);
    let before = links.session.cost();
    let found = route(&mut Search::new(), links, (&from, &to), by, Method::AStar, u64::MAX)?;
    let cost = links.session.cost().since(before);
    let Some(Route { length, time, segments, settled, .. }) = found else {
        return Err(Failure::not_there("there is no route between these places"));
    };
    let mut last = u32::MAX;
    for segment in &segments {
        let street = network.segments[*segment as usize].street;
        let name = |street: u32| network.streets.get(street as usize).map(named);
        if name(last) != name(street) {
            say(format_args!("{}", name(street).unwrap_or_default()))?;
        }
        last = street;
    }
    let (length, time) = (length as f64 / 1e6, time as f64 / 6e4);
    say(format_args!("{length:.2} km, {time:.1} min at the allowed speed, {} segments", segments.len()))?;
    say(format_args!(
        "({settled} nodes gone on from, {} remote reads, {} messages)",
        cost.reads, cost.messages
    ))?;
    Ok(())
}
