//! Many items at once, by the links that lead to them.

use std::ops::ControlFlow;

use kelix_types::limits::SESSION_READS_MAX;
use kelix_types::{Result, TableId, Version};

use crate::Table;
use crate::batch::Wanted;
use crate::core::Path;
use crate::item::{Item, Link};
use crate::links::Origin;
use crate::pointers::Pointer;
use crate::session::Session;

/// Links that are asked for before the first is looked at, where memory is within reach of loads.
const ASKED_AHEAD: usize = 16;

const OPERATION: &str = "visit";

/// Where to go next: links out of any number of items, and keys. Their targets are read together, by [`Session::visit`]. What it holds stands in
/// buffers that are kept when it is cleared.
///
/// ```no_run
/// use std::ops::ControlFlow::Continue;
///
/// use kelix::Frontier;
///
/// # fn main() -> kelix::Result<()> {
/// # let (mut session, user): (kelix::Session, kelix::Item) = unimplemented!();
/// // The names of all whom this user's friends know.
/// let (mut here, mut next) = (Frontier::new(), Frontier::new());
/// here.add_links(&user, "friend", |_| true);
/// session.visit(&here, |_, friend| {
///     next.add_links(friend.expect("nobody leaves"), "friend", |_| true);
///     Continue(())
/// })?;
/// session.visit(&next, |_, other| {
///     println!("{}", String::from_utf8_lossy(other.and_then(|other| other.bytes("name")).unwrap_or(b"?")));
///     Continue(())
/// })?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default, Debug)]
pub struct Frontier {
    targets: Vec<Target>,
    sources: Vec<Source>,
    /// Keys of targets and sources.
    keys: Vec<u8>,
}

/// Somewhere to go.
#[derive(Clone, Copy, Debug)]
struct Target {
    table: TableId,
    key: Key,
    pointer: Option<Pointer>,
    /// What leads there.
    source: u32,
    position: u32,
}

/// What leads to targets.
#[derive(Clone, Copy, Debug)]
struct Source {
    /// The table of the item with the links; or that of the keys.
    table: Table,
    key: Key,
    /// The version of the item with the links, if shards repair those.
    version: Option<Version>,
    is_item: bool,
}

/// Where a key stands.
#[derive(Clone, Copy, Debug)]
struct Key {
    start: usize,
    bytes: u32,
}

impl Frontier {
    /// Nowhere to go.
    pub fn new() -> Frontier {
        Frontier::default()
    }

    /// How many targets it has.
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Takes all targets out.
    pub fn clear(&mut self) {
        self.targets.clear();
        self.sources.clear();
        self.keys.clear();
    }

    /// Table and key of a target.
    pub fn target(&self, index: usize) -> (TableId, &[u8]) {
        let target = &self.targets[index];
        (target.table, self.key(target.key))
    }

    /// Adds an item by its key.
    pub fn add(&mut self, table: Table, key: &[u8]) {
        let known = self.sources.last().is_some_and(|last| !last.is_item && last.table == table);
        if !known {
            let key = Key { start: self.keys.len(), bytes: 0 };
            self.sources.push(Source { table, key, version: None, is_item: false });
        }
        let source = self.sources.len() as u32 - 1;
        let key = self.add_key(key);
        self.targets.push(Target { table: table.id, key, pointer: None, source, position: 0 });
    }

    /// Adds the targets of an item's links under a name, in order, as far as they are wanted. Returns how many that are.
    pub fn add_links(&mut self, item: &Item, name: &str, mut wanted: impl FnMut(Link<'_>) -> bool) -> usize {
        let before = self.targets.len();
        for link in item.raw_links(name) {
            if !wanted(Link::of(&link)) {
                continue;
            }
            if self.targets.len() == before {
                self.add_source(item);
            }
            let Wanted { table, key, pointer } = item.target(&link);
            let source = self.sources.len() as u32 - 1;
            let key = self.add_key(key);
            self.targets.push(Target { table, key, pointer, source, position: link.position as u32 });
        }
        self.targets.len() - before
    }

    fn add_source(&mut self, item: &Item) {
        let view = item.view();
        let version = Some(view.version()).filter(|_| item.large.is_none());
        let table = Table { id: view.header().table, server: 0, generation: item.generation };
        let key = self.add_key(view.key());
        self.sources.push(Source { table, key, version, is_item: true });
    }

    #[inline(always)]
    fn add_key(&mut self, key: &[u8]) -> Key {
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        Key { start, bytes: key.len() as u32 }
    }

    #[inline(always)]
    fn key(&self, key: Key) -> &[u8] {
        &self.keys[key.start..key.start + key.bytes as usize]
    }

    /// Puts the targets from `first` on in reverse order.
    pub(crate) fn reverse(&mut self, first: usize) {
        self.targets[first..].reverse();
    }

    /// Takes the last target away, and with the last one of an item what is known of that. For frontiers to whose end only is added.
    pub(crate) fn pop(&mut self) {
        self.targets.pop();
        let left = self.targets.last().map_or(0, |last| last.source as usize + 1);
        if let Some(gone) = self.sources.get(left) {
            self.keys.truncate(gone.key.start);
            self.sources.truncate(left);
        }
    }

    fn wanted(&self, target: &Target, table: TableId) -> Wanted<'_> {
        Wanted { table, key: self.key(target.key), pointer: target.pointer }
    }

    fn origin(&self, target: &Target) -> Option<Origin<'_>> {
        let Source { table, key, version, .. } = self.sources[target.source as usize];
        let position = u64::from(target.position);
        Some(Origin { table: table.id, key: self.key(key), version: version?, position })
    }
}

impl Session {
    /// Reads what all links and keys of a frontier lead to, their READs overlapping, and shows it, in their order. `None`: the target does not
    /// exist (any more). Ends early when told to break off. The item that is shown is a buffer's; clone what is to stay.
    pub fn visit(
        &mut self,
        frontier: &Frontier,
        mut each: impl FnMut(usize, Option<&Item>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut item = std::mem::take(&mut self.visited).unwrap_or_else(Item::empty);
        let result = if self.core.reads_directly() && self.core.path != Path::Message {
            self.visit_directly(frontier, &mut item, &mut each)
        } else {
            self.visit_in_batches(frontier, &mut each)
        };
        self.visited = Some(item);
        result
    }

    /// Goes to a target of a frontier. `false`: it does not exist (any more).
    #[inline(always)]
    pub(crate) fn arrive(&mut self, frontier: &Frontier, index: usize, item: &mut Item) -> Result<bool> {
        let target = &frontier.targets[index];
        let table = self.bind_target(frontier, target)?;
        let found = self.land(OPERATION, frontier.wanted(target, table), || frontier.origin(target))?;
        if found {
            self.take_landed(OPERATION, item)?;
        }
        self.still(OPERATION)?;
        Ok(found)
    }

    /// The table of a target, whose generation is the one that is read from now on.
    #[inline(always)]
    fn bind_target(&mut self, frontier: &Frontier, target: &Target) -> Result<TableId> {
        let source = &frontier.sources[target.source as usize];
        if !source.is_item {
            return self.check_table(OPERATION, source.table);
        }
        self.views.bound = source.table.generation;
        Ok(target.table)
    }

    fn visit_directly(
        &mut self,
        frontier: &Frontier,
        item: &mut Item,
        each: &mut impl FnMut(usize, Option<&Item>) -> ControlFlow<()>,
    ) -> Result<()> {
        for ahead in 0..frontier.len() + ASKED_AHEAD {
            if let Some(Target { table, key, pointer: Some(pointer), .. }) = frontier.targets.get(ahead) {
                self.core.prefetch_pointed(*table, frontier.key(*key), *pointer);
            }
            let Some(index) = ahead.checked_sub(ASKED_AHEAD) else { continue };
            let found = self.arrive(frontier, index, item)?;
            if each(index, found.then_some(&*item)).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn visit_in_batches(
        &mut self,
        frontier: &Frontier,
        each: &mut impl FnMut(usize, Option<&Item>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut items = Vec::new();
        for first in (0..frontier.len()).step_by(SESSION_READS_MAX) {
            let targets = &frontier.targets[first..frontier.len().min(first + SESSION_READS_MAX)];
            items.clear();
            items.resize(targets.len(), None);
            self.read_batch(frontier, targets, &mut items)?;
            for (index, item) in items.iter().enumerate() {
                if each(first + index, item.as_ref()).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Reads some targets, those of each generation at once.
    fn read_batch(
        &mut self,
        frontier: &Frontier,
        targets: &[Target],
        items: &mut [Option<Item>],
    ) -> Result<()> {
        let mut first = 0;
        while first < targets.len() {
            let mut tables = vec![self.bind_target(frontier, &targets[first])?];
            let generation = self.views.bound;
            for target in &targets[first + 1..] {
                let table = self.bind_target(frontier, target)?;
                if self.views.bound != generation {
                    break;
                }
                tables.push(table);
            }
            self.views.bound = generation;
            let here = &targets[first..first + tables.len()];
            let wanted = |index: usize| frontier.wanted(&here[index], tables[index]);
            self.fetch_many(OPERATION, here.len(), wanted, |session, index| {
                session.repair(frontier.origin(&here[index]), here[index].pointer)?;
                items[first + index] = Some(session.make_item(OPERATION)?);
                Ok(())
            })?;
            self.still(OPERATION)?;
            first += tables.len();
        }
        Ok(())
    }
}
