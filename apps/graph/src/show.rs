//! What the commands print.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use kelix::Cost;
use kelix_apps::{Failure, KelixKeyed, Store, StoreArgs, say};

use crate::array::{self, Arrays};
use crate::draw::{Neighbourhood, draw_distances};
use crate::edges::Edges;
use crate::keyed::ByKey;
use crate::links::Links;
use crate::load::{self, memory_for};
use crate::names::{is_known, name};
use crate::search::{Distances, Limits, deep};

/// Users that a depth-first search is followed to.
const DEEP: usize = 1000;
/// Users of the search that is done in several ways.
const COMPARED: usize = 10_000;
/// Keys that are got at once.
const BATCH: usize = 64;
/// Where pictures go.
const PICTURES: &str = "kelix-graph";

const GO_ON: ControlFlow<()> = ControlFlow::Continue(());

/// The user who follows most.
fn busiest(edges: &Edges) -> u32 {
    (0..edges.vertices()).max_by_key(|user| edges.from(*user).len()).unwrap_or(0)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A store with the graph in it.
fn loaded(edges: &Edges, args: &StoreArgs) -> Result<Store, Failure> {
    let store = Store::open(args, "graph", 2 * memory_for(edges))?;
    let began = Instant::now();
    load::load(&mut store.session()?, edges)?;
    say(format_args!(
        "{}: {} users and {} edges, loaded into {} in {:.1} s",
        edges.source,
        edges.users().len(),
        edges.len(),
        store.place(),
        began.elapsed().as_secs_f64()
    ))?;
    Ok(store)
}

/// Loads the graph into a running store.
pub fn load(edges: &Edges, args: &StoreArgs) -> Result<(), Failure> {
    if !args.is_given() {
        return Err(Failure::usage(
            "load",
            "load needs --store, the store to load into; the other commands load by themselves",
        ));
    }
    loaded(edges, args).map(drop)
}

/// What a search cost, in words.
fn cost_words(links: &Links, before: Cost) -> String {
    let cost = links.session().cost().since(before);
    format!("{} READs, {} messages", cost.reads, cost.messages)
}

/// Searches breadth-first and prints how many users are how far.
pub fn bfs(links: &mut Links, from: u32, limits: Limits) -> Result<(), Failure> {
    let (before, began) = (links.session().cost(), Instant::now());
    let mut levels: Vec<u64> = Vec::new();
    let count = Distances::new().search(
        links,
        from,
        limits,
        |_, _, distance| {
            levels.resize(levels.len().max(distance as usize + 1), 0);
            levels[distance as usize] += 1;
            GO_ON
        },
        |_, _| {},
    )?;
    let time = milliseconds(began.elapsed());
    say(format_args!("{count} users from {from} on, in {time:.1} ms: {}", cost_words(links, before)))?;
    for (distance, users) in levels.iter().enumerate() {
        say(format_args!("  {distance:>2} links away: {users}"))?;
    }
    Ok(())
}

/// Searches depth-first and prints the users.
pub fn dfs(links: &mut Links, from: u32, limit: usize) -> Result<(), Failure> {
    let mut users = Vec::new();
    links.deep(from, limit, |user| users.push(user))?;
    users.into_iter().try_for_each(|user| say(format_args!("{user} {}", name(user))))
}

/// Finds a person by name. Whether there is one.
pub fn find(links: &mut Links, wanted: &str, from: u32, depth: u32) -> Result<bool, Failure> {
    let (before, began) = (links.session().cost(), Instant::now());
    let (found, looked) = Distances::new().find(links, from, depth, wanted)?;
    let time = milliseconds(began.elapsed());
    match found {
        Some((user, distance)) => say(format_args!("{wanted} is user {user}, {distance} links from {from}"))?,
        None if is_known(wanted) => say(format_args!("no {wanted} within {depth} links of {from}"))?,
        None => say(format_args!("nobody in the graph is called {wanted}; John, Grace and Chau are names"))?,
    }
    say(format_args!("looked at {looked} users in {time:.2} ms: {}", cost_words(links, before)))?;
    Ok(found.is_some())
}

/// Finds and prints the shortest way. Whether there is one.
pub fn path(links: &mut Links, from: u32, to: u32) -> Result<bool, Failure> {
    let (before, began) = (links.session().cost(), Instant::now());
    let path = Distances::new().path(links, from, to)?;
    let time = milliseconds(began.elapsed());
    match &path {
        None => say(format_args!("no way leads from {from} to {to}"))?,
        Some(path) => {
            let words: Vec<String> = path.iter().map(|user| format!("{user} {}", name(*user))).collect();
            say(format_args!("{}", words.join(" -> ")))?;
        }
    }
    say(format_args!("in {time:.1} ms: {}", cost_words(links, before)))?;
    Ok(path.is_some())
}

/// Draws distances and a neighbourhood.
pub fn draw(edges: &Edges, args: &StoreArgs, from: Option<u32>, out: &Path) -> Result<(), Failure> {
    let store = loaded(edges, args)?;
    let mut links = Links::new(store.session()?)?;
    let from = from.unwrap_or_else(|| busiest(edges));
    links.expect(&[from])?;
    pictures(&mut links, from, edges, out)
}

fn pictures(links: &mut Links, from: u32, edges: &Edges, out: &Path) -> Result<(), Failure> {
    let Edges { source, is_generated, .. } = edges;
    let is_generated = *is_generated;
    std::fs::create_dir_all(out).map_err(|error| format!("cannot make {}: {error}", out.display()))?;
    let mut neighbourhood = Neighbourhood::of(from);
    let mut levels: Vec<u64> = Vec::new();
    let mut seen = Distances::new();
    let see = |user, its: &[u8], distance: u32| {
        levels.resize(levels.len().max(distance as usize + 1), 0);
        levels[distance as usize] += 1;
        // Users of a file have numbers. A name that was made up for one would be taken for a name.
        if is_generated {
            neighbourhood.name(user, its);
        }
        GO_ON
    };
    let mut edges = Vec::new();
    seen.search(links, from, Limits::NONE, see, |who, whom| edges.push((who, whom)))?;
    for (who, whom) in edges {
        neighbourhood.add(who, whom);
    }
    let drawn = [
        ("distances.svg", draw_distances(from, source, &levels)),
        ("neighbourhood.svg", neighbourhood.svg(source)),
    ];
    for (file, svg) in drawn {
        let file = out.join(file);
        std::fs::write(&file, svg).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        say(format_args!("drew {}", file.display()))?;
    }
    Ok(())
}

/// Does all there is, and checks it against arrays.
pub fn all(edges: &Edges, args: &StoreArgs) -> Result<(), Failure> {
    let store = loaded(edges, args)?;
    let mut links = Links::new(store.session()?)?;
    let from = busiest(edges);
    say(format_args!("\n{from} follows {} users, most of all.\n\nbreadth-first:", edges.from(from).len()))?;
    bfs(&mut links, from, Limits::NONE)?;
    let furthest = check_distances(edges, &mut links, from)?;
    say(format_args!("the same distances as a search on arrays in this process finds\n\ndepth-first:"))?;
    check_deep(edges, &mut links, from)?;
    let wanted = name(furthest);
    say(format_args!("\n{wanted}, among friends of friends:"))?;
    find(&mut links, wanted, from, 2)?;
    say(format_args!("\nthe shortest way to {furthest}, than whom nobody is further away:"))?;
    path(&mut links, from, furthest)?;
    say(format_args!("\nthe first {COMPARED} users, breadth-first:"))?;
    compare(edges, &store, &mut links, from)?;
    say(format_args!(""))?;
    pictures(&mut links, from, edges, Path::new(PICTURES))
}

/// Compares all distances with those on arrays. Returns who is furthest away.
fn check_distances(edges: &Edges, links: &mut Links, from: u32) -> Result<u32, Failure> {
    let mut ours = Distances::new();
    ours.search(links, from, Limits::NONE, |_, _, _| GO_ON, |_, _| {})?;
    let theirs = array::distances(edges, from);
    for (user, distance) in theirs.iter().enumerate() {
        let distance = Some(*distance).filter(|distance| *distance != u32::MAX);
        if ours.get(user as u32) != distance {
            let ours = ours.get(user as u32);
            return Err(
                format!("user {user} is {ours:?} links away along links, {distance:?} on arrays").into()
            );
        }
    }
    let reached = (0..edges.vertices()).filter(|user| theirs[*user as usize] != u32::MAX);
    Ok(reached.max_by_key(|user| theirs[*user as usize]).unwrap_or(from))
}

fn check_deep(edges: &Edges, links: &mut Links, from: u32) -> Result<(), Failure> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    links.deep(from, DEEP, |user| ours.push(user))?;
    deep(&mut Arrays::new(edges), from, DEEP, edges.vertices(), |user| theirs.push(user))?;
    if ours != theirs {
        let text = "a depth-first search along links does not visit the users that one on arrays does";
        return Err(text.into());
    }
    let first: Vec<String> = ours.iter().take(8).map(u32::to_string).collect();
    say(format_args!("{}, ...: the first {} users as on arrays", first.join(", "), ours.len()))?;
    Ok(())
}

/// Does the same search by links, by the index and by messages.
fn compare(edges: &Edges, store: &Store, links: &mut Links, from: u32) -> Result<(), Failure> {
    let keyed = |path, batch| KelixKeyed::new(store.session()?, "graph_keyed", path, batch);
    load::load_keyed(&mut keyed(kelix::Path::Auto, BATCH)?, edges)?;
    let limits = Limits { users: COMPARED, ..Limits::NONE };
    let first = visited(links, from, limits)?;
    say(format_args!("  links    {:>8.2} ms", milliseconds(first.1)))?;
    for (way, path) in [("index", kelix::Path::Index), ("message", kelix::Path::Message)] {
        for (batch, words) in [(BATCH, "64 keys at once"), (1, "one key at a time")] {
            let other = visited(&mut ByKey::new(keyed(path, batch)?), from, limits)?;
            if other.0 != first.0 {
                return Err(format!("by {way} other users are found than by links").into());
            }
            say(format_args!("  {way:<8} {:>8.2} ms, {words}", milliseconds(other.1)))?;
        }
    }
    Ok(())
}

/// The users that a search visits, and its time.
fn visited(
    ground: &mut impl crate::search::Ground,
    from: u32,
    limits: Limits,
) -> Result<(Vec<u32>, Duration), Failure> {
    let mut users = Vec::new();
    let began = Instant::now();
    let see = |user, _: &[u8], _| {
        users.push(user);
        GO_ON
    };
    Distances::new().search(ground, from, limits, see, |_, _| {})?;
    Ok((users, began.elapsed()))
}
