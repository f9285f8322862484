//! How fast traffic is, by segment and minute, from a stream of points.
//!
//! ```text
//! map_speed  minute, segment -> length, time, count   segment -> map_segment
//! map_point  minute, number  -> vehicle, milliseconds, latitude, longitude; if it is on a street, placelat, placelon   segment -> map_segment
//! ```
//!
//! Both are ordered tables that clients write, so a minute is one scan. A pair of points of a vehicle adds
//! its way and its time to each segment between them, by compare-and-set, so that several can write who match
//! parts of the stream.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Duration;

use kelix::{CompareAndSet, Frontier, Item, NewItem, Scan, Session, Table, TableKind};
use kelix_apps::{Calls, Failure, now};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::load::{key, number};
use crate::matching::Matcher;
use crate::place::Position;
use crate::route::{Method, route};
use crate::search::{By, Search};
use crate::trace::{Fix, OnTrace, Receiver, Tracer};
use crate::ways::{Links, Map};

/// Points of a vehicle that are matched together when one comes.
const WINDOW: usize = 6;
/// Milliseconds of a minute.
const MINUTE_MS: i64 = 60_000;
/// How long what was measured is kept.
const KEPT: Duration = Duration::from_secs(86_400);

/// The minute of a time, since 1970.
pub fn minute_of(at_ms: i64) -> u32 {
    at_ms.div_euclid(MINUTE_MS) as u32
}

/// What is added up for a segment in a minute.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Passed {
    /// Its segment.
    pub segment: u32,
    /// The minute.
    pub minute: u32,
    /// Millimetres that vehicles went.
    pub length: u64,
    /// Milliseconds that they took.
    pub time: u64,
    /// How many passed.
    pub count: u64,
}

impl Passed {
    /// Kilometres an hour.
    pub fn speed(&self) -> f64 {
        self.length as f64 * 3.6 / self.time.max(1) as f64
    }

    fn and(self, other: Passed) -> Passed {
        let (length, time) = (self.length + other.length, self.time + other.time);
        Passed { length, time, count: self.count + other.count, ..self }
    }

    fn key(&self) -> [u8; 8] {
        key(u64::from(self.minute) << 32 | u64::from(self.segment))
    }

    fn of(item: &Item) -> Option<Passed> {
        let word = |name| Some(u64::from_le_bytes(item.bytes(name)?.try_into().ok()?));
        let key = number(item.key());
        let (minute, segment) = ((key >> 32) as u32, key as u32);
        Some(Passed { segment, minute, length: word("length")?, time: word("time")?, count: word("count")? })
    }
}

/// A point of the stream, as it was matched.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Seen {
    /// Whose.
    pub vehicle: String,
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// Where its receiver says.
    pub at: Position,
    /// Where it is on the street, and on which segment.
    pub place: Option<(Position, u32)>,
}

/// How fast a segment is.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Speed {
    /// The segment.
    pub segment: u32,
    /// From where to where.
    pub line: [Position; 2],
    /// Kilometres an hour.
    pub speed: f64,
    /// As a share of what the street's sign says.
    pub share: f64,
    /// Vehicles that passed.
    pub count: u64,
}

/// The tables that are written while points come.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    speeds: Table,
    points: Table,
    segments: Table,
}

impl Live {
    /// Opens them, and makes them if they are not there.
    pub fn open(session: &mut Session) -> Result<Live, Failure> {
        Ok(Live {
            speeds: session.create_table_of(TableKind::Numbers, "map_speed")?,
            points: session.create_table_of(TableKind::Numbers, "map_point")?,
            segments: session.table("map_segment")?,
        })
    }

    /// Takes away what an earlier stream left.
    pub fn clear(&self, session: &mut Session) -> Result<(), Failure> {
        for table in [self.speeds, self.points] {
            let scan = session.scan(table, &Scan::all())?;
            let keys = scan.map(|item| item.map(|item| item.key().to_vec()));
            let keys: Vec<Vec<u8>> = keys.collect::<kelix::Result<_>>()?;
            for key in keys {
                session.delete(table, &key)?;
            }
        }
        Ok(())
    }

    /// Adds to what is known of a segment in a minute. Returns what is known then.
    pub fn add(&self, session: &mut Session, more: Passed) -> Result<Passed, Failure> {
        let key = more.key();
        loop {
            let before = session.get(self.speeds, &key)?;
            let known = before.as_ref().and_then(Passed::of).unwrap_or_default();
            let sum = more.and(known);
            let mut item = NewItem::new();
            for (name, word) in [("length", sum.length), ("time", sum.time), ("count", sum.count)] {
                item = item.bytes(name, &word.to_le_bytes());
            }
            item = item.link("segment", self.segments, &self::key(more.segment.into())).expires_in(KEPT);
            let version = before.map(|item| item.version());
            let set = session.compare_and_set_item(self.speeds, &key, version, &item)?;
            if matches!(set, CompareAndSet::Done(_)) {
                return Ok(sum);
            }
        }
    }

    /// Keeps a point, as the one of this number.
    pub fn keep(&self, session: &mut Session, number: u32, seen: &Seen) -> Result<(), Failure> {
        let mut item = NewItem::new();
        item =
            item.bytes("vehicle", seen.vehicle.as_bytes()).bytes("milliseconds", &seen.at_ms.to_le_bytes());
        item =
            item.bytes("latitude", &seen.at.lat.to_le_bytes()).bytes("longitude", &seen.at.lon.to_le_bytes());
        if let Some((place, segment)) = seen.place {
            item =
                item.bytes("placelat", &place.lat.to_le_bytes()).bytes("placelon", &place.lon.to_le_bytes());
            item = item.link("segment", self.segments, &key(segment.into()));
        }
        item = item.expires_in(KEPT);
        let key = key(u64::from(minute_of(seen.at_ms)) << 32 | u64::from(number));
        session.put_item(self.points, &key, &item).map(drop).map_err(Failure::from)
    }

    /// The first and the last minute of which something is known.
    pub fn minutes(&self, session: &mut Session) -> Result<Option<(u32, u32)>, Failure> {
        now(self.minutes_by(session))
    }

    /// What [`Live::minutes`] brings, for threads and tasks alike.
    pub(crate) async fn minutes_by(&self, calls: &mut impl Calls) -> Result<Option<(u32, u32)>, Failure> {
        let minute = |item: &Item| (number(item.key()) >> 32) as u32;
        let end = Scan::all().limit(1);
        let first = calls.scan(self.points, &end).await?.first().map(minute);
        let last = calls.scan(self.points, &end.backwards()).await?.first().map(minute);
        Ok(first.zip(last))
    }

    async fn scan(
        calls: &mut impl Calls,
        table: Table,
        minutes: &RangeInclusive<u32>,
    ) -> Result<Vec<Item>, Failure> {
        let bound = |minute: u64| key(minute << 32);
        let (first, last) = (u64::from(*minutes.start()), u64::from(*minutes.end()));
        let scan = Scan::all().range(&bound(first)..&bound(last + 1));
        calls.scan(table, &scan).await.map_err(Failure::from)
    }

    /// The points of some minutes.
    pub fn points(&self, session: &mut Session, minutes: &RangeInclusive<u32>) -> Result<Vec<Seen>, Failure> {
        now(self.points_by(session, minutes))
    }

    /// What [`Live::points`] brings, for threads and tasks alike.
    pub(crate) async fn points_by(
        &self,
        calls: &mut impl Calls,
        minutes: &RangeInclusive<u32>,
    ) -> Result<Vec<Seen>, Failure> {
        Ok(Live::scan(calls, self.points, minutes).await?.iter().filter_map(seen_of).collect())
    }

    /// How fast segments were in some minutes; where they are is read along links.
    pub fn speeds(
        &self,
        session: &mut Session,
        minutes: &RangeInclusive<u32>,
    ) -> Result<Vec<Speed>, Failure> {
        now(self.speeds_by(session, minutes))
    }

    /// What [`Live::speeds`] brings, for threads and tasks alike.
    pub(crate) async fn speeds_by(
        &self,
        calls: &mut impl Calls,
        minutes: &RangeInclusive<u32>,
    ) -> Result<Vec<Speed>, Failure> {
        let items = Live::scan(calls, self.speeds, minutes).await?;
        let (mut segments, mut nodes) = (Frontier::new(), Frontier::new());
        let (mut of_segments, mut known) = (Vec::<Passed>::new(), FxHashMap::default());
        for item in &items {
            let passed = Passed::of(item).ok_or("an item of map_speed is not whole")?;
            let next = of_segments.len();
            let index = *known.entry(passed.segment).or_insert(next);
            if index == next {
                segments.add_links(item, "segment", |_| true);
                of_segments.push(passed);
            } else {
                of_segments[index] = of_segments[index].and(passed);
            }
        }
        let mut speeds = Vec::new();
        let show = |index: usize, segment: Option<&Item>| {
            let passed = of_segments[index];
            let share = segment.and_then(|segment| {
                let word = |name| Some(u32::from_le_bytes(segment.bytes(name)?.try_into().ok()?));
                let usual = f64::from(word("length")?) * 3.6 / f64::from(word("time")?);
                (nodes.add_links(segment, "node", |_| true) == 2).then(|| passed.speed() / usual)
            });
            speeds.extend(share.map(|share| Speed {
                segment: passed.segment,
                line: Default::default(),
                speed: passed.speed(),
                share,
                count: passed.count,
            }));
        };
        calls.visit(&segments, show).await?;
        let place = |index: usize, node: Option<&Item>| {
            speeds[index / 2].line[index % 2] = node.and_then(position_of).unwrap_or_default();
        };
        calls.visit(&nodes, place).await?;
        Ok(speeds)
    }
}

fn word(item: &Item, name: &str) -> Option<i32> {
    Some(i32::from_le_bytes(item.bytes(name)?.try_into().ok()?))
}

fn position_of(item: &Item) -> Option<Position> {
    Some(Position { lat: word(item, "latitude")?, lon: word(item, "longitude")? })
}

fn seen_of(item: &Item) -> Option<Seen> {
    let segment = item.links("segment").next().map(|link| number(link.key) as u32);
    let place = segment.and_then(|segment| {
        Some((Position { lat: word(item, "placelat")?, lon: word(item, "placelon")? }, segment))
    });
    Some(Seen {
        vehicle: String::from_utf8_lossy(item.bytes("vehicle")?).into_owned(),
        at_ms: i64::from_le_bytes(item.bytes("milliseconds")?.try_into().ok()?),
        at: position_of(item)?,
        place,
    })
}

/// Matches the points of vehicles as they come.
pub struct Stream {
    tracer: Tracer,
    search: Search,
    windows: Vec<VecDeque<Fix>>,
}

/// What a point of the stream said.
#[derive(Clone, PartialEq, Debug)]
pub struct News {
    /// Its place, if it is on a street.
    pub place: Option<OnTrace>,
    /// What its vehicle went since its last point.
    pub passed: Vec<Passed>,
}

impl Stream {
    /// Of so many vehicles, with such receivers.
    pub fn new(matcher: Matcher, receiver: Receiver, vehicles: usize) -> Stream {
        let windows = vec![VecDeque::with_capacity(WINDOW); vehicles];
        Stream { tracer: Tracer::new(matcher, receiver), search: Search::new(), windows }
    }

    /// Takes a vehicle's next point.
    pub fn take(&mut self, map: &mut impl Map, vehicle: usize, fix: Fix) -> Result<News, Failure> {
        let window = &mut self.windows[vehicle];
        if window.len() == WINDOW {
            window.pop_front();
        }
        window.push_back(fix);
        let window = window.make_contiguous();
        let places = self.tracer.places(map, window)?;
        let place = places[places.len() - 1];
        let passed = match (&places[..], &*window) {
            ([.., Some(before), Some(place)], [.., earlier, now]) if before.row == place.row => {
                passed(&mut self.search, map, (before, place), (earlier.at_ms, now.at_ms))?
            }
            _ => Vec::new(),
        };
        Ok(News { place, passed })
    }
}

/// What a vehicle went on each segment from one place to the next, as fast on all of them.
fn passed(
    search: &mut Search,
    map: &mut impl Map,
    (from, to): (&OnTrace, &OnTrace),
    (from_ms, to_ms): (i64, i64),
) -> Result<Vec<Passed>, Failure> {
    let ends = (&from.spot, &to.spot);
    let Some(route) = route(search, map, ends, By::Length, Method::AStar, u64::MAX)? else {
        return Ok(Vec::new());
    };
    let took = (to_ms - from_ms).max(1) as u64;
    let minute = minute_of(to_ms);
    let pieces = route.segments.len() as u64;
    let part = |segment: &u32| {
        // A segment's part of the way is not known where it was not gone from end to end; it does not matter
        // for the speed.
        let (length, time) = (route.length / pieces, took / pieces);
        Passed { segment: *segment, minute, length, time, count: 1 }
    };
    Ok(route.segments.iter().map(part).collect())
}

/// Follows a stream by links, and writes what it says. Shows each point with how fast its segments are now.
pub fn follow(
    links: &mut Links,
    live: &Live,
    stream: &mut Stream,
    number: u32,
    (vehicle, name, fix): (usize, &str, Fix),
) -> Result<(Seen, Vec<Passed>), Failure> {
    let News { place, passed } = stream.take(links, vehicle, fix)?;
    let place = place.map(|place| (place.spot.position(), place.spot.on.segment));
    let seen = Seen { vehicle: name.into(), at_ms: fix.at_ms, at: fix.at, place };
    live.keep(&mut links.session, number, &seen)?;
    let added = passed.into_iter().map(|passed| live.add(&mut links.session, passed));
    Ok((seen, added.collect::<Result<_, _>>()?))
}
