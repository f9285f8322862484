//! Walks along links: breadth-first, where each frontier is read at once, and depth-first (KELI, section 4).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::ControlFlow;

use kelix_types::{Result, TableId, key_hash};

use crate::Table;
use crate::frontier::Frontier;
use crate::item::Item;
use crate::session::{Session, check_key};
use crate::views::BoundTable;

/// Where a walk goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walk<'w> {
    /// Names of the links that it goes along, from any item that has them.
    pub links: &'w [&'w str],
    /// How many links from where it began.
    pub depth: u32,
    /// On along the first link before the second one is looked at. Otherwise all that are as far away come before those that are further.
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

/// How a walk goes on from an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Visit {
    /// Along its links.
    On,
    /// Not along this item's links.
    Back,
    /// Not at all: what was looked for has been found.
    Stop,
}

/// What a walk came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Walked {
    /// Items visited.
    pub items: usize,
    /// Links to items that do not exist (any more), and keys that are absent.
    pub gone: usize,
}

/// A walk under way.
struct Walker<'w, F> {
    walk: &'w Walk<'w>,
    visit: F,
    seen: Seen,
    walked: Walked,
}

/// How a target was come by: the number of the item whose link leads there, and how many links away it is.
#[derive(Clone, Copy)]
struct Step {
    from: Option<usize>,
    depth: u32,
}

impl Session {
    /// Walks along links from some items, and shows each item that it comes to once. Each is read when the walk is there, so in a walk beside
    /// writers every item is as it was at some moment during it, and not all at the same; in a view of a loaded dataset nothing changes.
    /// A walk that begins by a loaded table's name keeps to the generation that is in force then, and fails when that is gone; a view holds it.
    ///
    /// ```no_run
    /// use kelix::{Visit, Walk};
    ///
    /// # fn main() -> kelix::Result<()> {
    /// # let mut session: kelix::Session = unimplemented!();
    /// let people = session.table("people")?;
    /// let friends_of_friends = Walk::along(&["friend"]).to_depth(2);
    /// session.walk(&[(people, b"ada")], &friends_of_friends, |visited| {
    ///     println!("{} links away: {}", visited.depth, String::from_utf8_lossy(visited.item.key()));
    ///     if visited.item.bytes("name") == Some(b"Grace") { Visit::Stop } else { Visit::On }
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn walk(
        &mut self,
        from: &[(Table, &[u8])],
        walk: &Walk<'_>,
        visit: impl FnMut(Visited<'_>) -> Visit,
    ) -> Result<Walked> {
        let seen = Seen { seed: self.core.seed(), ..Seen::default() };
        let walker = Walker { walk, visit, seen, walked: Walked::default() };
        self.operate("walk", |session| walker.run(session, from))
    }
}

impl<F: FnMut(Visited<'_>) -> Visit> Walker<'_, F> {
    /// Walks from these items.
    fn run(mut self, session: &mut Session, from: &[(Table, &[u8])]) -> Result<Walked> {
        session.heal()?;
        let mut begin = Frontier::new();
        // Depth-first they are a stack.
        let ordered: Vec<_> = match self.walk.depth_first {
            true => from.iter().rev().collect(),
            false => from.iter().collect(),
        };
        for (table, key) in ordered {
            let BoundTable { id, generation } = session.check_further_table(*table)?;
            check_key(id, key)?;
            // All of it is of one generation, whatever comes into force meanwhile.
            let table = Table { id, generation, server: session.core.handles() };
            if self.walk.depth_first || self.seen.insert(id, key) {
                begin.add(table, key);
            }
        }
        match self.walk.depth_first {
            true => self.deep(session, begin)?,
            false => self.wide(session, begin)?,
        }
        Ok(self.walked)
    }

    /// Shows an item. How the walk goes on from there.
    fn show(&mut self, item: &Item, Step { from, depth }: Step) -> Visit {
        let number = self.walked.items;
        self.walked.items += 1;
        match (self.visit)(Visited { item, number, from, depth }) {
            Visit::On if depth >= self.walk.depth => Visit::Back,
            visit => visit,
        }
    }

    /// Breadth-first. What is in the next frontier has been seen.
    fn wide(&mut self, session: &mut Session, begin: Frontier) -> Result<()> {
        let (mut here, mut next) = (begin, Frontier::new());
        let (mut from, mut next_from) = (vec![None; here.len()], Vec::new());
        let mut depth = 0;
        let mut stopped = false;
        while !here.is_empty() && !stopped {
            session.visit(&here, |index, item| {
                let Some(item) = item else {
                    self.walked.gone += 1;
                    return ControlFlow::Continue(());
                };
                let number = self.walked.items;
                match self.show(item, Step { from: from[index], depth }) {
                    Visit::On => {}
                    Visit::Back => return ControlFlow::Continue(()),
                    Visit::Stop => {
                        stopped = true;
                        return ControlFlow::Break(());
                    }
                }
                for name in self.walk.links {
                    next.add_links(item, name, |link| self.seen.insert(link.table, link.key));
                }
                next_from.resize(next.len(), Some(number));
                ControlFlow::Continue(())
            })?;
            std::mem::swap(&mut here, &mut next);
            std::mem::swap(&mut from, &mut next_from);
            next.clear();
            next_from.clear();
            depth += 1;
        }
        Ok(())
    }

    /// Depth-first. What has been visited has been seen; what is still to come may be there several times.
    fn deep(&mut self, session: &mut Session, begin: Frontier) -> Result<()> {
        let mut stack = begin;
        let mut steps = vec![Step { from: None, depth: 0 }; stack.len()];
        let mut item = Item::empty();
        while let Some(step) = steps.pop() {
            let last = steps.len();
            let (table, key) = stack.target(last);
            let found = self.seen.insert(table, key).then(|| session.arrive(&stack, last, &mut item));
            stack.pop();
            match found.transpose()? {
                None => continue,
                Some(false) => {
                    self.walked.gone += 1;
                    continue;
                }
                Some(true) => {}
            }
            let from = Some(self.walked.items);
            match self.show(&item, step) {
                Visit::On => {}
                Visit::Back => continue,
                Visit::Stop => break,
            }
            for name in self.walk.links {
                stack.add_links(&item, name, |link| !self.seen.has(link.table, link.key));
            }
            stack.reverse(last);
            steps.resize(stack.len(), Step { from, depth: step.depth + 1 });
        }
        Ok(())
    }
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
