//! Walks, paths and frontiers over random graphs, beside the same on adjacency lists: on every fabric and
//! path, with stale links, links to what does not exist, circles, and lists in chunks; in loaded datasets
//! too.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};

use kelix::{
    Client, ErrorKind, FabricChoice, Frontier, Item, NewItem, NewTable, Path, Session, Table, TableKind,
    Visit, Walk, Walked,
};
use kelix_server::{Server, ServerConfig};
use kelix_tests::process::patient;
use kelix_tests::{Random, RunDir, breaks, fabrics, fewer, rdma, seeds, session_over, until, watchdog};

const PEOPLE: u64 = 300;
/// Links in a chunk.
const CHUNK: usize = 3;

fn serve(run: &RunDir, shards: usize) -> (Server, Client) {
    let config = ServerConfig {
        directory: run.path().into(),
        shards,
        memory_bytes: 64 << 20,
        listen: Some(([127, 0, 0, 1], 0).into()),
        rdma: rdma(),
        ..ServerConfig::default()
    };
    let server = kelix_tests::start(&config);
    (server, kelix_tests::client_at(run.path()))
}

fn session(client: &Client, fabric: FabricChoice, path: Path) -> Session {
    session_over(fabric, client, patient().path(path))
}

/// Whom each knows, some of whom are not there.
struct Graph {
    knows: Vec<Vec<u64>>,
    is_there: Vec<bool>,
}

impl Graph {
    fn random(random: &mut Random) -> Graph {
        let knows = |random: &mut Random| (0..random.below(8)).map(|_| random.below(PEOPLE)).collect();
        let knows = (0..PEOPLE).map(|_| knows(random)).collect();
        // Number 0 is where all begins.
        let is_there = (0..PEOPLE).map(|number| number == 0 || !random.once_in(20)).collect();
        Graph { knows, is_there }
    }

    /// What a walk from number 0 comes to: number, order of the one before it, depth; and how many links lead
    /// nowhere.
    fn wide(&self, depth: u32, goes_on: impl Fn(u64) -> bool) -> (Vec<Came>, usize) {
        let (mut came, mut gone) = (Vec::new(), 0);
        let mut seen = vec![false; PEOPLE as usize];
        let mut queue = VecDeque::from([(0, None, 0)]);
        seen[0] = true;
        while let Some((number, from, at)) = queue.pop_front() {
            if !self.is_there[number as usize] {
                gone += 1;
                continue;
            }
            let order = came.len();
            came.push((number, from, at));
            for next in self.knows[number as usize].iter().filter(|_| at < depth && goes_on(number)) {
                if !std::mem::replace(&mut seen[*next as usize], true) {
                    queue.push_back((*next, Some(order), at + 1));
                }
            }
        }
        (came, gone)
    }

    fn deep(&self, depth: u32) -> (Vec<Came>, usize) {
        let (mut came, mut gone) = (Vec::new(), 0);
        let mut seen = vec![false; PEOPLE as usize];
        self.deeper((0, None, 0), depth, &mut seen, &mut came, &mut gone);
        (came, gone)
    }

    fn deeper(
        &self,
        (number, from, at): Came,
        depth: u32,
        seen: &mut [bool],
        came: &mut Vec<Came>,
        gone: &mut usize,
    ) {
        if std::mem::replace(&mut seen[number as usize], true) {
            return;
        }
        if !self.is_there[number as usize] {
            *gone += 1;
            return;
        }
        let order = came.len();
        came.push((number, from, at));
        for next in self.knows[number as usize].iter().filter(|_| at < depth) {
            self.deeper((*next, Some(order), at + 1), depth, seen, came, gone);
        }
    }
}

type Came = (u64, Option<usize>, u32);

fn key(number: u64) -> Vec<u8> {
    format!("person:{number}").into_bytes()
}

fn number(item: &Item) -> u64 {
    u64::from_le_bytes(item.bytes("number").expect("its number").try_into().expect("8 bytes"))
}

fn person(graph: &Graph, people: Table, number: u64) -> NewItem {
    let mut item = NewItem::new();
    item = item.bytes("number", &number.to_le_bytes());
    for other in &graph.knows[number as usize] {
        item = item.link_with("knows", people, &key(*other), &other.to_le_bytes());
    }
    item
}

/// Puts everybody, in an order of its own, so that some links are stale from the beginning; and puts some
/// again.
fn put(session: &mut Session, graph: &Graph, random: &mut Random) -> Table {
    let people = session.create_table("people").unwrap();
    for number in (0..PEOPLE).rev() {
        session.put_item(people, &key(number), &person(graph, people, number)).unwrap();
    }
    for number in 0..PEOPLE {
        if !graph.is_there[number as usize] {
            session.delete(people, &key(number)).unwrap();
        } else if random.once_in(4) {
            session.put_item(people, &key(number), &person(graph, people, number)).unwrap();
        }
    }
    people
}

fn walk(
    session: &mut Session,
    people: Table,
    walk: Walk<'_>,
    mut visit: impl FnMut(u64) -> ControlFlow<(), Visit>,
) -> (Vec<Came>, Walked) {
    let mut came = Vec::new();
    let walked = session
        .walk(&[(people, &key(0))], &walk, |visited| {
            assert_eq!(visited.number, came.len());
            let number = number(visited.item);
            assert_eq!(visited.item.key(), key(number));
            came.push((number, visited.from, visited.depth));
            visit(number)
        })
        .unwrap();
    assert_eq!(walked.items, came.len());
    (came, walked)
}

fn ways() -> Vec<(FabricChoice, Path)> {
    let paths = [Path::Auto, Path::Index, Path::Message];
    fabrics().into_iter().flat_map(|fabric| paths.map(|path| (fabric, path))).collect()
}

/// The same walk, stepped in batches of so many, in a session that does something else between two.
fn stepped(
    session: &mut Session,
    people: Table,
    walk: Walk<'_>,
    most: usize,
    on: impl Fn(u64) -> bool,
) -> (Vec<Came>, Walked) {
    let mut came = Vec::new();
    let mut walker = session.begin_walk(&[(people, &key(0))], &walk).unwrap();
    loop {
        let batch = walker.next_batch(session, most).unwrap();
        assert!(batch.len() <= most, "{} items of {most}", batch.len());
        let mut back = Vec::new();
        for arrival in batch {
            assert_eq!(arrival.number, came.len());
            came.push((number(&arrival.item), arrival.from, arrival.depth));
            if !on(number(&arrival.item)) {
                back.push(arrival.number);
            }
        }
        if batch.is_empty() {
            return (came, walker.walked());
        }
        back.into_iter().for_each(|number| walker.turn_back(number));
        session.get(people, &key(0)).unwrap();
    }
}

/// What is stepped comes to the same items, in the same order, as what shows them.
#[test]
fn walks_that_are_stepped_come_to_what_others_do() {
    let _watchdog = watchdog("stepped walks");
    for seed in seeds(fewer(3)) {
        let mut random = Random(seed);
        let graph = Graph::random(&mut random);
        let run = RunDir::new();
        let (_server, client) = serve(&run, 1 + random.below(2) as usize);
        let people = put(&mut client.session().unwrap(), &graph, &mut random);
        for (fabric, path) in ways() {
            let mut session = session(&client, fabric, path);
            let (knows, on) = (Walk::along(&["knows"]), |number: u64| number % 3 != 0);
            for walked in [knows, knows.to_depth(2), knows.depth_first(), knows.to_depth(3).depth_first()] {
                let shown = walk(&mut session, people, walked, |number| {
                    ControlFlow::Continue(if on(number) { Visit::On } else { Visit::Back })
                });
                for most in [1, 7, 1000] {
                    let stepped = stepped(&mut session, people, walked, most, on);
                    assert_eq!(stepped, shown, "seed {seed}, {fabric:?}, {path:?}, {walked:?}, {most}");
                }
            }
        }
    }
}

#[test]
fn a_part_of_a_frontier_is_read_and_no_more_than_there_is() {
    let _watchdog = watchdog("parts of frontiers");
    let run = RunDir::new();
    let (_server, client) = serve(&run, 2);
    let mut session = client.session().unwrap();
    let table = session.create_table("t").unwrap();
    let mut frontier = Frontier::new();
    for number in 0..10 {
        if number != 4 {
            session.put(table, &key(number), &number.to_le_bytes()).unwrap();
        }
        frontier.add(table, &key(number));
    }
    let mut items = Vec::new();
    session.visit_batch(&frontier, 3..6, &mut items).unwrap();
    let found: Vec<Option<Vec<u8>>> =
        items.iter().map(|item| item.as_ref().map(|item| item.key().to_vec())).collect();
    assert_eq!(found, [Some(key(3).to_vec()), None, Some(key(5).to_vec())]);
    for beyond in [5..11, 0..usize::MAX, Range { start: 7, end: 3 }] {
        let error = session.visit_batch(&frontier, beyond, &mut items).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn walks_come_to_what_walks_on_lists_come_to() {
    let _watchdog = watchdog("walks");
    for seed in seeds(fewer(6)) {
        let mut random = Random(seed);
        let graph = Graph::random(&mut random);
        let run = RunDir::new();
        let (_server, client) = serve(&run, 1 + random.below(2) as usize);
        let mut writer = client.session().unwrap();
        let people = put(&mut writer, &graph, &mut random);
        for (fabric, path) in ways() {
            let mut session = session(&client, fabric, path);
            let knows = Walk::along(&["knows"]);
            for depth in [0, 1, 2, 3, u32::MAX] {
                let (came, gone) = graph.wide(depth, |_| true);
                let found =
                    walk(&mut session, people, knows.to_depth(depth), |_| ControlFlow::Continue(Visit::On));
                assert_eq!(
                    (found.0, found.1.gone),
                    (came, gone),
                    "seed {seed}, {fabric:?}, {path:?}, depth {depth}"
                );
                let (came, gone) = graph.deep(depth);
                let found = walk(&mut session, people, knows.to_depth(depth).depth_first(), |_| {
                    ControlFlow::Continue(Visit::On)
                });
                assert_eq!(
                    (found.0, found.1.gone),
                    (came, gone),
                    "seed {seed}, {fabric:?}, {path:?}, depth {depth}"
                );
            }
            // Not on from those with odd numbers; and not beyond the tenth.
            let goes_on = |number: u64| number % 2 == 0;
            let back = |number: u64| {
                if goes_on(number) {
                    ControlFlow::Continue(Visit::On)
                } else {
                    ControlFlow::Continue(Visit::Back)
                }
            };
            assert_eq!(walk(&mut session, people, knows, back).0, graph.wide(u32::MAX, goes_on).0);
            let (all, _) = graph.wide(u32::MAX, |_| true);
            let mut left = 10.min(all.len());
            let limit = left;
            let (came, _) = walk(&mut session, people, knows, |_| {
                left -= 1;
                if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(Visit::On) }
            });
            assert_eq!(came, all[..limit]);
        }
    }
}

/// Followed twice, links are repaired; then a walk is one READ an item, but for those that lead nowhere.
#[test]
fn walks_repair_links() {
    let _watchdog = watchdog("walks repair");
    let mut random = Random(7);
    let mut graph = Graph::random(&mut random);
    graph.is_there.fill(true);
    let run = RunDir::new();
    let (_server, client) = serve(&run, 2);
    let mut writer = client.session().unwrap();
    let people = put(&mut writer, &graph, &mut random);
    for fabric in fabrics() {
        let mut session = session(&client, fabric, Path::Auto);
        for depth_first in [false, true] {
            let knows = Walk::along(&["knows"]);
            let knows = if depth_first { knows.depth_first() } else { knows };
            for round in 0.. {
                // READs that were too slow, as others had the core, are read again and say nothing of the
                // link.
                assert!(round < 500, "links that were followed again and again are not good");
                let before = session.cost();
                let (came, _) = walk(&mut session, people, knows, |_| ControlFlow::Continue(Visit::On));
                let cost = session.cost().since(before);
                // The first one is found by its key.
                if breaks() || cost.messages == 0 && cost.reads <= came.len() as u64 + 2 {
                    break;
                }
            }
        }
    }
}

#[test]
fn frontiers_are_shown_in_order() {
    let _watchdog = watchdog("frontiers");
    let mut random = Random(3);
    let graph = Graph::random(&mut random);
    let run = RunDir::new();
    let (_server, client) = serve(&run, 1);
    let mut writer = client.session().unwrap();
    let people = put(&mut writer, &graph, &mut random);
    for (fabric, path) in ways() {
        let mut session = session(&client, fabric, path);
        let mut everybody = Frontier::new();
        // More than are read at once, and some of them twice.
        let numbers: Vec<u64> = (0..2 * PEOPLE).map(|at| at * 7 % PEOPLE).collect();
        numbers.iter().for_each(|number| everybody.add(people, &key(*number)));
        assert_eq!(everybody.target(1), (people.id(), &key(7)[..]));
        let (mut shown, mut known, mut wanted) = (0, Frontier::new(), Vec::new());
        session
            .visit(&everybody, |index, item| {
                assert_eq!(index, shown);
                shown += 1;
                let at = numbers[index];
                assert_eq!(item.map(number), graph.is_there[at as usize].then_some(at));
                if let Some(item) = item {
                    // Links that carry an even number.
                    let even = |bytes: &[u8]| bytes[0] % 2 == 0;
                    let added = known.add_links(item, "knows", |link| even(link.bytes));
                    let all = item.links("knows").filter(|link| even(link.bytes)).count();
                    assert_eq!(added, all);
                    wanted.extend(graph.knows[at as usize].iter().filter(|to| *to % 2 == 0));
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(shown, numbers.len());
        let mut found = Vec::new();
        session
            .visit(&known, |index, item| {
                let to = wanted[index];
                assert_eq!(item.map(number), graph.is_there[to as usize].then_some(to));
                found.push(to);
                if found.len() == 100 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap();
        assert_eq!(found, wanted[..100]);
        assert_eq!(known.len(), wanted.len());
    }
}

/// A list in chunks that name the next one, as `kelix load` makes them; and paths.
#[test]
fn chunks_and_paths_of_a_dataset() {
    let _watchdog = watchdog("chunks");
    let run = RunDir::new();
    let (_server, client) = serve(&run, 2);
    let mut writer = client.session().unwrap();
    let load = |writer: &mut Session, mark: u8| {
        let tables = ["people", "chunks"].map(|name| NewTable::new(name, TableKind::Hash));
        let mut build = writer.build("circle", &tables).unwrap();
        let (people, chunks) = (build.table(0), build.table(1));
        for number in 0..20u64 {
            let mut item = NewItem::new();
            item = item.bytes("number", &number.to_le_bytes()).bytes("mark", &[mark]);
            item = item.link("friends", chunks, &[number as u8, 0]).link("boss", people, &key(number / 2));
            build.put_item(0, &key(number), &item).unwrap();
            for chunk in 0..4u8 {
                let mut item = NewItem::new();
                item = item.bytes("mark", &[mark]);
                for at in 0..CHUNK {
                    item =
                        item.link("item", people, &key((number + 1 + u64::from(chunk) * 3 + at as u64) % 20));
                }
                if chunk < 3 {
                    item = item.link("next", chunks, &[number as u8, chunk + 1]);
                }
                build.put_item(1, &[number as u8, chunk], &item).unwrap();
            }
        }
        build.finish().unwrap();
    };
    load(&mut writer, 1);
    for fabric in fabrics() {
        let mut session = session(&client, fabric, Path::Auto);
        let people = session.table("people").unwrap();
        // To a friend are a link to the list, up to three to its next chunk, and one out of it.
        let walk = Walk::along(&["friends", "next", "item"]);
        let mut friends = Vec::new();
        let walked = session
            .walk(&[(people, &key(4))], &walk.to_depth(5), |visited| {
                let is_person = visited.item.link_count("boss") > 0;
                if is_person && visited.depth > 0 {
                    friends.push(number(visited.item));
                }
                if is_person && visited.depth > 0 {
                    ControlFlow::Continue(Visit::Back)
                } else {
                    ControlFlow::Continue(Visit::On)
                }
            })
            .unwrap();
        friends.sort_unstable();
        assert_eq!((walked.gone, friends), (0, (5..17).collect()));

        let view = session.view("circle").unwrap();
        let held = view.table("people").unwrap();
        let person = session.get(held, &key(13)).unwrap().unwrap();
        let boss = session.follow_path(&person, &["boss", "boss"]).unwrap().unwrap();
        assert_eq!(number(&boss), 3);
        let mut at = person.clone();
        for wanted in [6, 3, 1, 0] {
            assert!(session.follow_into(&mut at, "boss").unwrap());
            assert_eq!(number(&at), wanted);
        }
        let error = session.follow_into(&mut at, "enemy").unwrap_err();
        assert_eq!((error.kind(), number(&at)), (ErrorKind::NoSuchAttribute, 0));
        // Nobody has followed a link between the shards before, and all are good.
        let mut fresh = self::session(&client, fabric, Path::Auto);
        let people_there = fresh.table("people").unwrap();
        fresh.get(people_there, &key(4)).unwrap().unwrap();
        let before = fresh.cost();
        let links = Walk::along(&["friends", "next", "item", "boss"]);
        let walked =
            fresh.walk(&[(people_there, &key(4))], &links, |_| ControlFlow::Continue(Visit::On)).unwrap();
        let cost = fresh.cost().since(before);
        assert_eq!((walked.items, walked.gone), (20 + 20 * 4, 0));
        // The first item is looked up by its key; names of attributes are read once.
        assert!(breaks() || cost.messages <= 2 && cost.reads <= 100 + 12, "{cost:?}");
        // In the middle of a walk another generation comes into force.
        let mark = person.bytes("mark").unwrap()[0];
        let mut marks = Vec::new();
        session
            .walk(&[(held, &key(4))], &walk, |visited| {
                if visited.number == 7 {
                    load(&mut writer, mark + 1);
                }
                marks.push(visited.item.bytes("mark").unwrap()[0]);
                ControlFlow::Continue(Visit::On)
            })
            .unwrap();
        assert_eq!(marks, vec![mark; 20 + 20 * 4]);
        until("the name leads to the new one", || {
            let now = session.get(people, &key(4)).unwrap().unwrap();
            now.bytes("mark") == Some(&[mark + 1][..])
        });
    }
}

#[test]
fn a_link_to_what_is_gone_leaves_the_item_where_it_is() {
    let _watchdog = watchdog("gone");
    let run = RunDir::new();
    let (_server, client) = serve(&run, 1);
    let mut session = client.session().unwrap();
    let table = session.create_table("chain").unwrap();
    session.put_item(table, b"a", &NewItem::new().link("next", table, b"b")).unwrap();
    session.put_item(table, b"b", &NewItem::new().link("next", table, b"c")).unwrap();
    let mut at = session.get(table, b"a").unwrap().unwrap();
    assert!(session.follow_path(&at, &["next", "next"]).unwrap().is_none());
    assert_eq!(session.follow_path(&at, &[]).unwrap().unwrap().key(), b"a");
    assert!(session.follow_into(&mut at, "next").unwrap());
    assert!(!session.follow_into(&mut at, "next").unwrap());
    assert_eq!(at.key(), b"b");
    // A value that stands in runs of pages is on the way, too.
    let large = vec![7; 3 << 20];
    session.put(table, b"c", &large).unwrap();
    assert!(session.follow_into(&mut at, "next").unwrap());
    assert_eq!((at.key(), at.value() == large), (&b"c"[..], true));
    session.put_item(table, b"c", &NewItem::new().link("next", table, b"a")).unwrap();
    let mut at = session.get(table, b"c").unwrap().unwrap();
    for key in [b"a", b"b", b"c", b"a"] {
        assert!(session.follow_into(&mut at, "next").unwrap());
        assert_eq!(at.key(), key);
    }
}

/// Links under several names, and keys of several tables to begin with, once lay in a depth-first walk's
/// stack in an order in which what was taken off it took away what was still to come.
#[test]
fn depth_first_along_links_of_several_names_from_keys_of_several_tables() {
    let run = RunDir::new();
    let (_server, client) = serve(&run, 2);
    let mut session = client.session().unwrap();
    let [low, high] = ["low", "high"].map(|name| session.create_table(name).unwrap());
    let table_of = |number: u64| if number < 16 { low } else { high };
    let key = |number: u64| number.to_le_bytes();
    // A tree of 63: each one's children are twice its number, and one more.
    for number in (1..64u64).rev() {
        let mut item = NewItem::new();
        if number < 32 {
            for (name, child) in [("right", 2 * number + 1), ("left", 2 * number)] {
                item = item.link(name, table_of(child), &key(child));
            }
        }
        session.put_item(table_of(number), &key(number), &item).unwrap();
    }
    fn down(number: u64, came: &mut Vec<u64>) {
        if number < 64 && !came.contains(&number) {
            came.push(number);
            down(2 * number, came);
            down(2 * number + 1, came);
        }
    }
    for from in [&[1][..], &[9, 40, 8, 63, 41, 2], &[20, 4, 21, 5]] {
        let mut wanted = Vec::new();
        from.iter().for_each(|number| down(*number, &mut wanted));
        let keys: Vec<_> = from.iter().map(|number| (table_of(*number), key(*number))).collect();
        let keys: Vec<_> = keys.iter().map(|(table, key)| (*table, &key[..])).collect();
        let mut came = Vec::new();
        let walk = Walk::along(&["left", "right"]).depth_first();
        session
            .walk(&keys, &walk, |visited| {
                came.push(u64::from_le_bytes(visited.item.key().try_into().unwrap()));
                ControlFlow::Continue(Visit::On)
            })
            .unwrap();
        assert_eq!(came, wanted, "from {from:?}");
    }
}
