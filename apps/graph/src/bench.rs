//! `kelix-graph bench`: searches along links against the same by keys, in Kelix and in memcached, and against
//! arrays.

use std::ops::ControlFlow;

use kelix_apps::{BenchArgs, Failure, KelixKeyed, Keyed, Memcached, Store, Times, Wanted, start_memcached};
use kelix_report::cores::{cores, pin, unpin};
use kelix_report::{Report, Row, Sense};

use crate::array;
use crate::edges::Edges;
use crate::keyed::ByKey;
use crate::links::Links;
use crate::load::{self, memory_for};
use crate::search::{Distances, Ground, Limits};

/// Users that a search visits, and how often from somewhere else.
const SIZES: [(usize, usize); 4] = [(10, 200), (100, 100), (1000, 40), (10_000, 12)];
/// Keys that are got at once.
const BATCH: usize = 64;
/// Searches of the whole graph.
const WHOLE: usize = 9;
/// What is wanted against single gets and against gets of many.
const AGAINST_SINGLE: f64 = 20.0;
const AGAINST_MANY: f64 = 4.0;
/// The table of values by key.
const KEYED: &str = "graph_keyed";

const GO_ON: ControlFlow<()> = ControlFlow::Continue(());

/// A search that visits so many users: who they are, as a number that depends on all of them and their order.
fn search(
    distances: &mut Distances,
    ground: &mut impl Ground,
    from: u32,
    users: usize,
) -> Result<(usize, u64), String> {
    let mut digest = 0u64;
    let see = |user: u32, name: &[u8], _| {
        digest = (digest ^ u64::from(user) ^ (name.len() as u64) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        GO_ON
    };
    let count = distances.search(ground, from, Limits { users, ..Limits::NONE }, see, |_, _| {})?;
    Ok((count, digest))
}

/// Runs it.
pub fn run(edges: &Edges, args: &BenchArgs, command: String) -> Result<(), Failure> {
    let rows = measure(edges);
    unpin();
    args.tell(&Report::new("graph", edges.len(), rows?), &command)
}

fn measure(edges: &Edges) -> Result<Vec<Row>, String> {
    // Servers on the last core, who asks on the first.
    pin(cores() - 1);
    let memory = 2 * memory_for(edges);
    let store = Store::start("graph-bench", memory)?;
    let memcached = start_memcached(memory)?;
    pin(0);
    load::load(&mut store.session()?, edges)?;
    let keyed = |path, batch| KelixKeyed::new(store.session()?, KEYED, path, batch);
    kelix_report::progress::show("loading values by key");
    load::load_keyed(&mut keyed(kelix::Path::Auto, BATCH)?, edges)?;
    kelix_report::progress::show("loading memcached");
    load::load_keyed(&mut Memcached::connect(&memcached, BATCH)?, edges)?;

    let mut ways = Ways {
        links: Links::new(store.session()?)?,
        index: ByKey::new(keyed(kelix::Path::Index, BATCH)?),
        message: ByKey::new(keyed(kelix::Path::Message, BATCH)?),
        single: ByKey::new(Memcached::connect(&memcached, 1)?),
        many: ByKey::new(Memcached::connect(&memcached, BATCH)?),
    };
    let mut rows = Vec::new();
    for (users, tasks) in SIZES {
        rows.extend(searches(&mut ways, edges, users, tasks)?);
    }
    rows.push(whole(&mut ways.links, edges)?);
    Ok(rows)
}

/// All ways to the graph.
struct Ways<I, M> {
    links: Links,
    index: ByKey<I>,
    message: ByKey<I>,
    single: ByKey<M>,
    many: ByKey<M>,
}

impl<I: Keyed, M: Keyed> Ways<I, M> {
    const COUNT: usize = 5;

    fn search(
        &mut self,
        way: usize,
        distances: &mut Distances,
        from: u32,
        users: usize,
    ) -> Result<(usize, u64), String> {
        match way {
            0 => search(distances, &mut self.links, from, users),
            1 => search(distances, &mut self.index, from, users),
            2 => search(distances, &mut self.message, from, users),
            3 => search(distances, &mut self.single, from, users),
            _ => search(distances, &mut self.many, from, users),
        }
    }
}

/// Users from whom so many others can be reached.
fn beginnings<I: Keyed, M: Keyed>(
    ways: &mut Ways<I, M>,
    edges: &Edges,
    users: usize,
    count: usize,
) -> Result<Vec<u32>, String> {
    let mut random = fastrand::Rng::with_seed(users as u64);
    let mut distances = Distances::new();
    let mut found = Vec::with_capacity(count);
    for _ in 0..count * 100 {
        let from = random.u32(0..edges.vertices());
        if !edges.from(from).is_empty() && ways.search(0, &mut distances, from, users)?.0 == users {
            found.push(from);
            if found.len() == count {
                return Ok(found);
            }
        }
    }
    Err(format!("the graph has too few users from whom {users} can be reached"))
}

fn searches<I: Keyed, M: Keyed>(
    ways: &mut Ways<I, M>,
    edges: &Edges,
    users: usize,
    tasks: usize,
) -> Result<Vec<Row>, String> {
    // A graph that is small is there to see that all works.
    let users_all = edges.users().len();
    if users > users_all / 4 {
        return Ok(Vec::new());
    }
    let tasks = if users_all < 50_000 { 3 } else { tasks };
    let from = beginnings(ways, edges, users, tasks)?;
    let mut distances = Distances::new();
    let answers: Result<Vec<_>, String> =
        from.iter().map(|from| ways.search(0, &mut distances, *from, users)).collect();
    let answers = answers?;
    let times = Times::take(from.len(), Ways::<I, M>::COUNT, |way, task| {
        let answer = ways.search(way, &mut distances, from[task], users)?;
        if answer == answers[task] { Ok(()) } else { Err(format!("way {way} finds other users")) }
    })?;
    let wanted = |mean| Wanted { mean: Some(mean), p95: None };
    let rows = |other: usize, id: &str, words: &str, wanted| {
        let name = format!("breadth-first to {users} users along links / {words}");
        times.rows(&format!("bfs_{id}_{users}"), &name, (0, other), wanted, "")
    };
    Ok([
        rows(3, "memcached", "memcached, a get a key", wanted(AGAINST_SINGLE)),
        rows(4, "multiget", "memcached, gets of 64 keys", wanted(AGAINST_MANY)),
        rows(2, "message", "keys by message, 64 at once", Wanted::default()),
        rows(1, "index", "keys by the index, 64 at once", Wanted::default()),
    ]
    .concat())
}

/// The whole graph against arrays.
fn whole(links: &mut Links, edges: &Edges) -> Result<Row, String> {
    let from = (0..edges.vertices()).max_by_key(|user| edges.from(*user).len()).unwrap_or(0);
    let mut distances = Distances::new();
    let before = links.session().cost();
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut reached = 0;
    for round in 0..WHOLE {
        kelix_report::progress::show(&format!("the whole graph, {} of {WHOLE}", round + 1));
        let mut by_links = || -> Result<f64, String> {
            let began = std::time::Instant::now();
            reached = distances.search(links, from, Limits::NONE, |_, _, _| GO_ON, |_, _| {})?;
            Ok(began.elapsed().as_nanos() as f64)
        };
        let first = if round % 2 == 0 { Some(by_links()?) } else { None };
        let began = std::time::Instant::now();
        let on_arrays = array::distances(edges, from);
        theirs.push(began.elapsed().as_nanos() as f64);
        ours.push(match first {
            Some(time) => time,
            None => by_links()?,
        });
        ratios.push(ours[round] / theirs[round]);
        let same = |user: usize| distances.get(user as u32).unwrap_or(u32::MAX) == on_arrays[user];
        if let Some(user) = (0..on_arrays.len()).find(|user| !same(*user)) {
            return Err(format!("user {user} has another distance along links than on arrays"));
        }
    }
    kelix_report::progress::show("");
    let reads = links.session().cost().since(before).reads / WHOLE as u64;
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let ratio = median(&mut ratios);
    Ok(Row {
        id: "bfs_array".into(),
        name: "breadth-first through the whole graph along links / on arrays in the same process".into(),
        ours: median(&mut ours) / 1e6,
        other: Some(median(&mut theirs) / 1e6),
        unit: "ms",
        ratio,
        wanted: Some(4.0),
        sense: Sense::AtMost,
        note: format!(
            "{reached} users, {} edges, {reads} READs; ratios {:.2} to {:.2}, {WHOLE} rounds",
            edges.len(),
            ratios[0],
            ratios[WHOLE - 1]
        ),
    })
}
