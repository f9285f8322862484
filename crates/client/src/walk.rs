//! Walks along links: breadth-first, where each frontier is read at once, and depth-first (KELI, section 4).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::{ControlFlow, Range};

use kelix_types::{Result, TableId, key_hash};

use crate::Table;
use crate::catalogue::BoundTable;
use crate::engine::check_key;
use crate::frontier::Frontier;
use crate::item::Item;
use crate::session::Session;

/// Where a walk goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Walk<'w> {
    /// Names of the links that it goes along, from any item that has them.
    pub links: &'w [&'w str],
    /// How many links from where it began.
    pub depth: u32,
    /// On along the first link before the second one is looked at. Otherwise all that are as far away come
    /// before those that are further.
    pub depth_first: bool,
}

impl<'w> Walk<'w> {
    /// Breadth-first along links of these names, as far as they lead.
    pub fn along(links: &'w [&'w str]) -> Walk<'w> {
        Walk { links, depth: u32::MAX, depth_first: false }
    }

    /// So many links from the beginning at most.
    pub fn to_depth(self, depth: u32) -> Walk<'w> {
        Walk { depth, ..self }
    }

    /// Depth-first.
    pub fn depth_first(self) -> Walk<'w> {
        Walk { depth_first: true, ..self }
    }
}

/// An item that a walk has come to, for the first time.
#[derive(Clone, Copy, Debug)]
pub struct Visited<'a> {
    /// The item. It is a buffer's; clone what is to stay.
    pub item: &'a Item,
    /// How many items were visited before.
    pub number: usize,
    /// The number of the item whose link led here; `None` where it began.
    pub from: Option<usize>,
    /// How many links from where it began.
    pub depth: u32,
}

/// How a walk goes on from an item. Whoever shows it breaks off with [`ControlFlow::Break`], as in
/// [`Session::visit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visit {
    /// Along its links.
    On,
    /// Not along this item's links.
    Back,
}

/// What a walk came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Walked {
    /// Items visited.
    pub items: usize,
    /// Links to items that do not exist (any more), and keys that are absent.
    pub gone: usize,
}

/// A walk that is stepped in batches, and holds no borrow of its session: [`Session::begin_walk`] begins one.
/// Breadth-first items are read together; depth-first they come one at a time, since what comes next depends
/// on each.
///
/// ```no_run
/// # fn main() -> kelix::Result<()> {
/// # let mut session: kelix::Session = unimplemented!();
/// let people = session.table("people")?;
/// let mut walker = session.begin_walk(&[(people, b"ada")], &kelix::Walk::along(&["friend"]))?;
/// while let batch @ [_, ..] = walker.next_batch(&mut session, 100)? {
///     let strangers: Vec<usize> =
///         batch.iter().filter(|arrival| arrival.depth > 2).map(|arrival| arrival.number).collect();
///     strangers.into_iter().for_each(|number| walker.turn_back(number));
/// }
/// # Ok(())
/// # }
/// ```
pub struct Walker {
    path: WalkPath,
    /// The names of the links that it goes along.
    links: Vec<String>,
    /// The last batch, along whose links the walk goes on.
    arrivals: Vec<Arrival>,
    turned_back: Vec<bool>,
    /// What is read together.
    items: Vec<Option<Item>>,
}

/// An item that a [`Walker`] has come to, for the first time.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The item.
    pub item: Item,
    /// How many items were visited before.
    pub number: usize,
    /// The number of the item whose link led here; `None` where the walk began.
    pub from: Option<usize>,
    /// How many links from where the walk began.
    pub depth: u32,
}

impl Walker {
    /// The next items, no more than so many; none: the walk is over. The walk goes on along the links of
    /// each, but for those that [`Walker::turn_back`] names before the next batch.
    pub fn next_batch(&mut self, session: &mut Session, most: usize) -> Result<&[Arrival]> {
        let links: Vec<&str> = self.links.iter().map(String::as_str).collect();
        for (arrival, turned_back) in self.arrivals.drain(..).zip(self.turned_back.drain(..)) {
            if !turned_back {
                self.path.go_along(
                    &arrival.item,
                    &links,
                    Step { from: Some(arrival.number), depth: arrival.depth },
                );
            }
        }
        let most = if self.path.depth_first { 1 } else { most.max(1) };
        session.operate("walk", |session| {
            session.heal()?;
            while self.arrivals.is_empty() && self.path.goes_on() {
                self.read_batch(session, most)?;
            }
            Ok(())
        })?;
        self.turned_back.resize(self.arrivals.len(), false);
        Ok(&self.arrivals)
    }

    fn read_batch(&mut self, session: &mut Session, most: usize) -> Result<()> {
        let Walker { path, items, arrivals, .. } = self;
        let targets = path.targets(most);
        items.clear();
        items.resize(targets.len(), None);
        session.read_targets(&path.here, targets.clone(), items)?;
        for (target, item) in targets.clone().zip(items.drain(..)) {
            let step = path.steps[target];
            match item {
                Some(item) => {
                    let number = path.walked.items;
                    path.walked.items += 1;
                    arrivals.push(Arrival { item, number, from: step.from, depth: step.depth });
                }
                None => path.walked.gone += 1,
            }
        }
        path.pass(&targets);
        Ok(())
    }

    /// The walk does not go along the links of an item of the last batch, which has this number.
    pub fn turn_back(&mut self, number: usize) {
        let at = self.arrivals.iter().position(|arrival| arrival.number == number);
        if let Some(turned_back) = at.and_then(|at| self.turned_back.get_mut(at)) {
            *turned_back = true;
        }
    }

    /// What the walk has come to so far.
    pub fn walked(&self) -> Walked {
        self.path.walked
    }
}

/// How a target was come by: the number of the item whose link leads there, and how many links away it is.
#[derive(Clone, Copy)]
struct Step {
    from: Option<usize>,
    depth: u32,
}

/// Where a walk has been, and where it is to go.
struct WalkPath {
    depth_max: u32,
    depth_first: bool,
    seen: Seen,
    walked: Walked,
    /// What is to be read: breadth-first from `taken` on, and then what is behind it; depth-first the last
    /// first.
    here: Frontier,
    steps: Vec<Step>,
    taken: usize,
    next: Frontier,
    next_steps: Vec<Step>,
}

impl WalkPath {
    /// A walk that begins at these items.
    fn begin(session: &mut Session, from: &[(Table, &[u8])], walk: &Walk<'_>) -> Result<WalkPath> {
        session.heal()?;
        let mut path = WalkPath {
            depth_max: walk.depth,
            depth_first: walk.depth_first,
            seen: Seen { seed: session.engine.transport.seed(), ..Seen::default() },
            walked: Walked::default(),
            here: Frontier::new(),
            steps: Vec::new(),
            taken: 0,
            next: Frontier::new(),
            next_steps: Vec::new(),
        };
        // Depth-first they are a stack.
        let ordered: Vec<_> = match path.depth_first {
            true => from.iter().rev().collect(),
            false => from.iter().collect(),
        };
        for (table, key) in ordered {
            let BoundTable { id, generation } = session.catalogue.bind(&mut session.engine, *table)?;
            check_key(id, key)?;
            // All of it is of one generation, whatever comes into force meanwhile.
            let table = Table { id, generation, server: session.engine.transport.handles() };
            if path.depth_first || path.seen.insert(id, key) {
                path.here.add(table, key);
            }
        }
        path.steps = vec![Step { from: None, depth: 0 }; path.here.len()];
        Ok(path)
    }

    /// Whether there is anything left to read. Breadth-first the next frontier takes the place of one that
    /// has been read.
    fn goes_on(&mut self) -> bool {
        if !self.depth_first && self.taken == self.here.len() {
            std::mem::swap(&mut self.here, &mut self.next);
            std::mem::swap(&mut self.steps, &mut self.next_steps);
            self.next.clear();
            self.next_steps.clear();
            self.taken = 0;
        }
        self.taken < self.here.len()
    }

    /// The targets that are read next, no more than so many. Depth-first it is one that was not visited, or
    /// none.
    fn targets(&self, most: usize) -> Range<usize> {
        if !self.depth_first {
            return self.taken..self.here.len().min(self.taken.saturating_add(most));
        }
        let last = self.here.len() - 1;
        let (table, key) = self.here.target(last);
        // What is still to come may be there several times.
        if self.seen.has(table, key) { last..last } else { last..last + 1 }
    }

    /// Goes on behind targets that were read. A read that failed is not passed, so that a walk that is
    /// stepped can try once more and leaves nothing out.
    fn pass(&mut self, targets: &Range<usize>) {
        if !self.depth_first {
            self.taken = targets.end;
            return;
        }
        if !targets.is_empty() {
            let (table, key) = self.here.target(targets.start);
            self.seen.insert(table, key);
        }
        self.here.pop();
        self.steps.pop();
    }

    /// Goes on along the links of an item that was visited. Breadth-first what is in the next frontier has
    /// been seen; depth-first what has been visited.
    fn go_along(&mut self, item: &Item, links: &[&str], Step { from, depth }: Step) {
        if depth >= self.depth_max {
            return;
        }
        let step = Step { from, depth: depth + 1 };
        if !self.depth_first {
            for name in links {
                self.next.add_links(item, name, |link| self.seen.insert(link.table, link.key));
            }
            self.next_steps.resize(self.next.len(), step);
            return;
        }
        let last = self.here.len();
        for name in links {
            self.here.add_links(item, name, |link| !self.seen.has(link.table, link.key));
        }
        self.here.reverse(last);
        self.steps.resize(self.here.len(), step);
    }
}

/// Walks from some items, and shows each that it comes to.
pub(crate) fn walk_all(
    session: &mut Session,
    from: &[(Table, &[u8])],
    walk: &Walk<'_>,
    mut visit: impl FnMut(Visited<'_>) -> ControlFlow<(), Visit>,
) -> Result<Walked> {
    let mut path = WalkPath::begin(session, from, walk)?;
    let mut show = |path: &mut WalkPath, item: &Item, Step { from, depth }: Step| {
        let number = path.walked.items;
        path.walked.items += 1;
        let verdict = visit(Visited { item, number, from, depth });
        if verdict == ControlFlow::Continue(Visit::On) {
            path.go_along(item, walk.links, Step { from: Some(number), depth });
        }
        verdict.is_break()
    };
    let mut stopped = false;
    let mut item = Item::empty();
    while !stopped && path.goes_on() {
        if path.depth_first {
            let target = path.targets(1);
            let step = path.steps[path.steps.len() - 1];
            let found = (!target.is_empty()).then(|| session.arrive(&path.here, target.start, &mut item));
            path.pass(&target);
            match found.transpose()? {
                Some(true) => stopped = show(&mut path, &item, step),
                Some(false) => path.walked.gone += 1,
                None => {}
            }
            continue;
        }
        path.taken = path.here.len();
        let here = std::mem::take(&mut path.here);
        session.visit(&here, |index, item| {
            let step = path.steps[index];
            match item {
                Some(item) => stopped = show(&mut path, item, step),
                None => path.walked.gone += 1,
            }
            if stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        path.here = here;
    }
    Ok(path.walked)
}

/// Begins a walk that is stepped.
pub(crate) fn begin(session: &mut Session, from: &[(Table, &[u8])], walk: &Walk<'_>) -> Result<Walker> {
    let path = WalkPath::begin(session, from, walk)?;
    let links = walk.links.iter().map(|link| link.to_string()).collect();
    Ok(Walker { path, links, arrivals: Vec::new(), turned_back: Vec::new(), items: Vec::new() })
}

/// Which items a walk has come to: by hash, and where hashes are equal by table and key.
#[derive(Default)]
struct Seen {
    seed: u64,
    /// The last entry of each hash.
    last: HashMap<u64, u32, BuildHasherDefault<Itself>>,
    entries: Vec<Entry>,
    keys: Vec<u8>,
}

struct Entry {
    table: TableId,
    key_start: usize,
    key_bytes: u32,
    /// The one before it of the same hash.
    before: Option<u32>,
}

impl Seen {
    fn is_there(&self, mut entry: Option<u32>, table: TableId, key: &[u8]) -> bool {
        while let Some(at) = entry {
            let Entry { table: of, key_start, key_bytes, before } = self.entries[at as usize];
            if of == table && self.keys[key_start..key_start + key_bytes as usize] == *key {
                return true;
            }
            entry = before;
        }
        false
    }

    fn has(&self, table: TableId, key: &[u8]) -> bool {
        let hash = key_hash(self.seed, table, key).0;
        self.is_there(self.last.get(&hash).copied(), table, key)
    }

    /// Notes an item. `false`: it has been seen before.
    fn insert(&mut self, table: TableId, key: &[u8]) -> bool {
        let hash = key_hash(self.seed, table, key).0;
        let before = self.last.get(&hash).copied();
        if self.is_there(before, table, key) {
            return false;
        }
        self.last.insert(hash, self.entries.len() as u32);
        self.entries.push(Entry { table, key_start: self.keys.len(), key_bytes: key.len() as u32, before });
        self.keys.extend_from_slice(key);
        true
    }
}

/// What is hashed is a hash already.
#[derive(Default)]
struct Itself(u64);

impl Hasher for Itself {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}
