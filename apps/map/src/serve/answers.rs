//! What the page asks for.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::convert::Infallible;
use std::time::Instant;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use kelix::aio::AsyncSession;
use kelix_apps::Failure;
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::{Stream, StreamExt};

use super::{App, Refusal, Site, Worker, failed};
use crate::congestion::{Seen, Speed};
use crate::matching::{Matched, RADIUS, Side};
use crate::place::Position;
use crate::route::{self, Method, Route};
use crate::search::By;
use crate::ways::Map;

/// The most cells that are drawn at once: some 400 square kilometres.
const CELLS_MAX: usize = 40_000;
/// Minutes over which speeds are added up.
pub(super) const MINUTES: u32 = 3;

type Answer<T> = Result<Json<T>, Refusal>;

fn wrong(error: String) -> Refusal {
    (StatusCode::BAD_REQUEST, error)
}

fn place(text: &str) -> Result<Position, Refusal> {
    text.parse().map_err(wrong)
}

#[derive(Serialize)]
pub(super) struct AboutMap {
    title: String,
    bounds: [(f64, f64); 2],
    nodes: u32,
    segments: u32,
    streets: u32,
}

pub(super) async fn about(State(Site { app, .. }): State<Site>) -> Json<AboutMap> {
    let about = app.about;
    let [nodes, segments, streets] = about.counts;
    let (low, high) = (about.bounds.low.degrees(), about.bounds.high.degrees());
    // Leaflet counts on where east meets west.
    let turn = if low.1 > high.1 { 360.0 } else { 0.0 };
    let bounds = [low, (high.0, high.1 + turn)];
    Json(AboutMap { title: about.title, bounds, nodes, segments, streets })
}

/// A part of the map.
#[derive(Deserialize)]
pub(super) struct Part {
    low: String,
    high: String,
}

/// Lines by the kind of their street.
type Lines = BTreeMap<String, Vec<[Position; 2]>>;

/// The streets of a part of the map, by links from its cells.
pub(super) async fn streets(State(site): State<Site>, Query(part): Query<Part>) -> Answer<Lines> {
    let grid = site.app.about.grid;
    let (low, high) = (grid.cell(place(&part.low)?), grid.cell(place(&part.high)?));
    let cells: Vec<_> = grid.between(low, high).take(CELLS_MAX + 1).collect();
    if cells.len() > CELLS_MAX {
        return Err(wrong("the part is too large to be drawn; look closer".into()));
    }
    let search = |_: &App, worker: &mut Worker| {
        let (mut lines, mut seen) = (Lines::new(), FxHashSet::default());
        let mut kinds: BTreeMap<u32, String> = BTreeMap::new();
        for cell in cells {
            for found in worker.links.find(&[cell]).map_err(failed)?.to_vec() {
                if !seen.insert(found.segment) {
                    continue;
                }
                let kind = match kinds.entry(found.street) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(new) => {
                        let street = worker.links.street_numbered(found.street).map_err(failed)?;
                        new.insert(street.kind)
                    }
                };
                if let Some(lines) = lines.get_mut(kind) {
                    lines.push(found.line);
                } else {
                    lines.insert(kind.clone(), vec![found.line]);
                }
            }
        }
        Ok(Json(lines))
    };
    site.search(search).await
}

/// What an answer cost.
#[derive(Serialize)]
pub(super) struct Took {
    microseconds: f64,
    reads: u64,
    messages: u64,
}

/// Does something, and says what that cost.
fn took<T>(
    worker: &mut Worker,
    work: impl FnOnce(&mut Worker) -> Result<T, Failure>,
) -> Result<(T, Took), Refusal> {
    let (before, began) = (worker.links.session.cost(), Instant::now());
    let done = work(worker).map_err(failed)?;
    let microseconds = began.elapsed().as_nanos() as f64 / 1e3;
    let cost = worker.links.session.cost().since(before);
    Ok((done, Took { microseconds, reads: cost.reads, messages: cost.messages }))
}

#[derive(Deserialize)]
pub(super) struct At {
    at: String,
}

#[derive(Serialize)]
pub(super) struct Match {
    street: String,
    kind: String,
    maxspeed: u8,
    segment: u32,
    line: [Position; 2],
    place: Position,
    metres: f64,
    along: f64,
    length: f64,
    side: Side,
}

/// The street of a place; `null`: it is on none.
pub(super) async fn matched(
    State(site): State<Site>,
    Query(At { at }): Query<At>,
) -> Answer<(Option<Match>, Took)> {
    let at = place(&at)?;
    let search = move |_: &App, worker: &mut Worker| {
        let (found, took) = took(worker, |worker| worker.matcher.matched(&mut worker.links, at, RADIUS))?;
        let told = found.map(|Matched { spot, side, street }| Match {
            street: street.name,
            kind: street.kind,
            maxspeed: street.maxspeed,
            segment: spot.on.segment,
            line: spot.on.line,
            place: spot.position(),
            metres: spot.metres,
            along: f64::from(spot.along()) / 1e3,
            length: f64::from(spot.on.length) / 1e3,
            side,
        });
        Ok(Json((told, took)))
    };
    site.search(search).await
}

#[derive(Deserialize)]
pub(super) struct Ends {
    from: String,
    to: String,
    #[serde(default)]
    by: By,
}

/// The best route between two places; `null`: there is none.
pub(super) async fn route(
    State(site): State<Site>,
    Query(ends): Query<Ends>,
) -> Answer<(Option<Route>, Took)> {
    let (from, to) = (place(&ends.from)?, place(&ends.to)?);
    // A search reads thousands of nodes, each of which says which are worth reading next.
    let search = move |_: &App, worker: &mut Worker| {
        let (route, took) = took(worker, |worker| {
            let Worker { links, matcher, search } = worker;
            let from = matcher.nearest(links, from, RADIUS)?;
            let to = matcher.nearest(links, to, RADIUS)?;
            let Some((from, to)) = from.zip(to) else { return Ok(None) };
            route::route(search, links, (&from, &to), ends.by, Method::AStar, u64::MAX)
        })?;
        Ok(Json((route, took)))
    };
    site.search(search).await
}

/// The first and the last minute of which something is known.
pub(super) async fn minutes(State(site): State<Site>) -> Answer<Option<(u32, u32)>> {
    let live = site.app.live;
    site.read(|mut session: AsyncSession| async move { live.minutes_by(&mut session).await }).await
}

#[derive(Deserialize)]
pub(super) struct Minute {
    of: u32,
}

#[derive(Serialize)]
pub(super) struct Known {
    points: Vec<Seen>,
    speeds: Vec<Speed>,
}

/// What is known of a minute: its points, and the speeds of it and of the two before.
pub(super) async fn minute(State(site): State<Site>, Query(Minute { of }): Query<Minute>) -> Answer<Known> {
    let live = site.app.live;
    let read = |mut session: AsyncSession| async move {
        let points = live.points_by(&mut session, &(of..=of)).await?;
        let first = (of + 1).saturating_sub(MINUTES);
        let speeds = live.speeds_by(&mut session, &(first..=of)).await?;
        Ok(Known { points, speeds })
    };
    site.read(read).await
}

/// What comes, as it comes. A page that is too slow misses some.
pub(super) async fn live(
    State(Site { app, .. }): State<Site>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let news = BroadcastStream::new(app.news.subscribe());
    let events = news.filter_map(|news| Some(Ok(Event::default().data(news.ok()?))));
    Sse::new(events).keep_alive(KeepAlive::default())
}
