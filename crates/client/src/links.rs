//! Following links: one READ each while the link is fresh (KELI, section 3.2).

use std::ops::{ControlFlow, Range};

use kelix_image::LinkView;
use kelix_image::words::bytes_of;
use kelix_types::limits::SESSION_READS_MAX;
use kelix_types::{Error, ErrorKind, Location, Result, TableId, Version};

use crate::Table;
use crate::engine::Wanted;
use crate::frontier::{Frontier, Target};
use crate::item::Item;
use crate::pointers::Pointer;
use crate::session::Session;
use crate::transport::Path;
use crate::walk::{self, Visit, Visited, Walk, Walked, Walker};

/// Links that are asked for before the first is looked at, where memory is within reach of loads. With twice
/// as many it takes longer: a processor has only so many lines of memory on their way at once.
const ASKED_AHEAD: usize = 16;

/// Where a link stands, for its repair.
#[derive(Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub table: TableId,
    pub key: &'a [u8],
    pub version: Version,
    /// Where in the item's attributes.
    pub position: u64,
}

/// The same for a link whose item is not at hand when its target is.
pub(crate) struct KeptOrigin {
    table: TableId,
    key: Vec<u8>,
    version: Version,
    position: u64,
}

impl KeptOrigin {
    pub fn of(Origin { table, key, version, position }: Origin<'_>) -> KeptOrigin {
        KeptOrigin { table, key: key.to_vec(), version, position }
    }

    pub fn get(&self) -> Origin<'_> {
        Origin { table: self.table, key: &self.key, version: self.version, position: self.position }
    }
}

impl<'k> Wanted<'k> {
    /// Where a link leads, wherever it stands.
    #[inline(always)]
    pub fn of(link: &LinkView<'k>) -> Wanted<'k> {
        let pointer = link.location.map(|location| Pointer { location, incarnation: link.incarnation });
        Wanted { table: link.table, key: link.key, pointer }
    }
}

impl Item {
    /// Where a link of this item leads. The location words of a link in a large value are the writer's claim,
    /// which the shard never looked at: such links are followed by key.
    #[inline(always)]
    pub(crate) fn target<'a>(&self, link: &LinkView<'a>) -> Wanted<'a> {
        let wanted = Wanted::of(link);
        if self.large.is_some() { Wanted { pointer: None, ..wanted } } else { wanted }
    }

    /// Where a link of this item stands, if it is one that shards repair.
    #[inline(always)]
    pub(crate) fn origin(&self, link: &LinkView<'_>) -> Option<Origin<'_>> {
        let view = self.view();
        let origin = Origin {
            table: view.layout().table(),
            key: view.key(),
            version: view.version(),
            position: link.position as u64,
        };
        Some(origin).filter(|_| self.large.is_none())
    }

    pub(crate) fn has_no_link(&self, name: &str) -> Error {
        let key = String::from_utf8_lossy(self.key()).into_owned();
        Error::unnamed(ErrorKind::NoSuchAttribute, format!("item \"{key}\" has no link \"{name}\""))
    }
}

impl Session {
    /// Runs a public call that begins at an item, as [`Session::read_table`] does at a table.
    fn read_from<T>(
        &mut self,
        operation: &'static str,
        item: &Item,
        call: impl FnOnce(&mut Session) -> Result<T>,
    ) -> Result<T> {
        self.operate(operation, |session| {
            session.heal()?;
            session.catalogue.check_item(&session.engine, item.life)?;
            let found = call(session)?;
            session.check_generation(item.generation)?;
            Ok(found)
        })
    }

    /// Follows the first link under this name. `Ok(None)`: its target does not exist (any more).
    pub fn follow(&mut self, item: &Item, name: &str) -> Result<Option<Item>> {
        self.read_from("follow", item, |session| {
            let found = session.land_first(item, name)?;
            let Session { engine, catalogue, landing, .. } = session;
            found.then(|| catalogue.make_item(engine, landing, item.generation)).transpose()
        })
    }

    /// Goes from an item along the first link under this name: the target takes the item's place, in the
    /// memory that it has. `Ok(false)`: the target does not exist (any more), and the item stays. A loop of
    /// this allocates nothing. After an error the item is of no use.
    ///
    /// ```no_run
    /// # fn main() -> kelix::Result<()> {
    /// # let (mut session, mut employee): (kelix::Session, kelix::Item) = unimplemented!();
    /// while employee.link_count("boss") > 0 && session.follow_into(&mut employee, "boss")? {}
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn follow_into(&mut self, item: &mut Item, name: &str) -> Result<bool> {
        self.operate("follow_into", |session| {
            session.catalogue.check_item(&session.engine, item.life)?;
            let link = item.raw_links(name).next().ok_or_else(|| item.has_no_link(name))?;
            let (at, generation) = (item.layout.body_words().start + link.position / 8, item.generation);
            let landed = session.engine.lands(item.target(&link), &mut session.landing)?;
            let found = if landed { true } else { session.land_first(item, name)? };
            if found {
                let Session { engine, catalogue, landing, .. } = session;
                catalogue.take_landed(engine, landing, item, generation)?;
                session.look_ahead(item, at);
            }
            session.check_generation(generation)?;
            Ok(found)
        })
    }

    /// Asks the processor for what comes next if the next link stands where the last one did, in word `at` of
    /// the item: long before the item has been looked into, and while the caller does. It is a guess, and
    /// nothing is lost if it is wrong.
    #[inline(always)]
    fn look_ahead(&self, item: &Item, at: usize) {
        let Some(location) = item.words.get(at).and_then(|word| Location::from_word(*word)) else { return };
        self.engine.transport.prefetch_item(location, || {
            let (head, rest) = item.words[at..].split_first_chunk()?;
            LinkView::of(0, *head, bytes_of(rest)).map(|link| (link.table, link.key))
        });
    }

    /// Follows the first link of each of these names, one after the other: `["supervisor", "department"]`.
    /// `Ok(None)`: one of the targets does not exist (any more).
    pub fn follow_path(&mut self, item: &Item, names: &[&str]) -> Result<Option<Item>> {
        let Some((first, rest)) = names.split_first() else { return Ok(Some(item.clone())) };
        let Some(mut at) = self.follow(item, first)? else { return Ok(None) };
        for name in rest {
            if !self.follow_into(&mut at, name)? {
                return Ok(None);
            }
        }
        Ok(Some(at))
    }

    /// Follows all links under this name, their READs overlapping. One entry a link, in order; `None`: its
    /// target does not exist (any more).
    pub fn follow_all(&mut self, item: &Item, name: &str) -> Result<Vec<Option<Item>>> {
        self.read_from("follow_all", item, |session| {
            let links: Vec<LinkView<'_>> = item.raw_links(name).collect();
            if links.is_empty() {
                return Err(item.has_no_link(name));
            }
            let mut items = vec![None; links.len()];
            let wanted = |index: usize| item.target(&links[index]);
            let Session { engine, catalogue, batch, .. } = session;
            batch.fetch_many(engine, links.len(), wanted, |engine, index, landing| {
                engine.repair(item.origin(&links[index]), wanted(index).pointer, landing.pointer)?;
                items[index] = Some(catalogue.make_item(engine, landing, item.generation)?);
                Ok(())
            })?;
            Ok(items)
        })
    }

    /// Brings the target of an item's first link under a name where plain calls land.
    #[inline(never)]
    fn land_first(&mut self, item: &Item, name: &str) -> Result<bool> {
        let link = item.raw_links(name).next().ok_or_else(|| item.has_no_link(name))?;
        let Session { engine, landing, .. } = self;
        Ok(engine.lands(item.target(&link), landing)?
            || engine.land(item.target(&link), item.origin(&link), landing)?)
    }

    /// Reads what all links and keys of a frontier lead to, their READs overlapping, and shows it, in their
    /// order. `None`: the target does not exist (any more). Ends early when told to break off. The item that
    /// is shown is a buffer's; clone what is to stay.
    pub fn visit(
        &mut self,
        frontier: &Frontier,
        mut each: impl FnMut(usize, Option<&Item>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.operate("visit", |session| {
            session.heal()?;
            let mut item = std::mem::take(&mut session.visited).unwrap_or_else(Item::empty);
            let transport = &session.engine.transport;
            let is_direct = transport.reads_directly() && !transport.has_suspended();
            let result = if is_direct && transport.path() != Path::Message {
                session.visit_directly(frontier, &mut item, &mut each)
            } else {
                session.visit_in_batches(frontier, &mut each)
            };
            session.visited = Some(item);
            result
        })
    }

    /// Goes to a target of a frontier, which takes the item's place, in the memory that it has. `Ok(false)`:
    /// it does not exist (any more), and the item stays. So whoever looks for the best way notes targets as
    /// they come, and goes to the one that is next. After an error the item is of no use.
    ///
    /// ```no_run
    /// # fn main() -> kelix::Result<()> {
    /// # let (mut session, mut item): (kelix::Session, kelix::Item) = unimplemented!();
    /// let mut roads = kelix::Frontier::new();
    /// roads.add_links(&item, "to", |_| true);
    /// let nearest = 0; // as the links' own bytes tell
    /// if session.arrive(&roads, nearest, &mut item)? {
    ///     roads.add_links(&item, "to", |_| true);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn arrive(&mut self, frontier: &Frontier, index: usize, item: &mut Item) -> Result<bool> {
        self.operate("visit", |session| {
            session.heal()?;
            let target = &frontier.targets[index];
            let (wanted, generation) = session.bind_target(frontier, target)?;
            let landed = session.engine.lands(wanted, &mut session.landing)?;
            let found = if landed { true } else { session.land_target(frontier, target)? };
            if found {
                let Session { engine, catalogue, landing, .. } = session;
                catalogue.take_landed(engine, landing, item, generation)?;
            }
            session.check_generation(generation)?;
            Ok(found)
        })
    }

    #[cold]
    fn land_target(&mut self, frontier: &Frontier, target: &Target) -> Result<bool> {
        let (wanted, _) = self.bind_target(frontier, target)?;
        self.engine.land(wanted, frontier.origin(target), &mut self.landing)
    }

    /// Where a target is looked for, and the generation in which the session reads there.
    #[inline(always)]
    pub(crate) fn bind_target<'f>(
        &mut self,
        frontier: &'f Frontier,
        target: &Target,
    ) -> Result<(Wanted<'f>, u64)> {
        let (wanted, source) = (frontier.link(target.link), &frontier.sources[target.source as usize]);
        if !source.is_item {
            let table = self.catalogue.bind(&mut self.engine, source.table)?;
            return Ok((Wanted { table: table.id, ..wanted }, table.generation));
        }
        self.catalogue.check_item(&self.engine, source.table.server)?;
        Ok((wanted, source.table.generation))
    }

    fn visit_directly(
        &mut self,
        frontier: &Frontier,
        item: &mut Item,
        each: &mut impl FnMut(usize, Option<&Item>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.prefetch_first(frontier);
        for index in 0..frontier.len() {
            self.prefetch_behind(frontier, index);
            let found = self.arrive(frontier, index, item)?;
            if each(index, found.then_some(&*item)).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Shows what a frontier leads to, in order, as far as that is read at once: where memory is within reach
    /// of loads, up to the first target that has to be looked for elsewhere. How many have been dealt with:
    /// all, if it was told to break off. [`Session::submit_visit`] brings the others.
    pub fn visit_at_hand(
        &mut self,
        frontier: &Frontier,
        mut each: impl FnMut(usize, Option<&Item>) -> ControlFlow<()>,
    ) -> Result<usize> {
        self.operate("visit", |session| {
            session.heal()?;
            let mut item = std::mem::take(&mut session.visited).unwrap_or_else(Item::empty);
            let result = session.visit_at_once(frontier, &mut item, &mut each);
            session.visited = Some(item);
            result
        })
    }

    fn visit_at_once(
        &mut self,
        frontier: &Frontier,
        item: &mut Item,
        each: &mut impl FnMut(usize, Option<&Item>) -> ControlFlow<()>,
    ) -> Result<usize> {
        if !self.engine.transport.reads_directly() {
            return Ok(0);
        }
        self.prefetch_first(frontier);
        for (index, target) in frontier.targets.iter().enumerate() {
            self.prefetch_behind(frontier, index);
            let (wanted, generation) = self.bind_target(frontier, target)?;
            let Session { engine, catalogue, landing, .. } = self;
            let Some(found) = engine.land_at_hand(wanted, frontier.origin(target), landing)? else {
                return Ok(index);
            };
            if found {
                catalogue.take_landed(engine, landing, item, generation)?;
            }
            catalogue.check_generation(engine, generation)?;
            if each(index, found.then_some(&*item)).is_break() {
                break;
            }
        }
        Ok(frontier.len())
    }

    /// Asks the processor for the first targets.
    #[inline(always)]
    fn prefetch_first(&self, frontier: &Frontier) {
        frontier.targets.iter().take(ASKED_AHEAD).for_each(|target| self.prefetch(frontier, target));
    }

    /// Asks the processor for a target further on than the one that is about to be read.
    #[inline(always)]
    fn prefetch_behind(&self, frontier: &Frontier, index: usize) {
        if let Some(target) = frontier.targets.get(index + ASKED_AHEAD) {
            self.prefetch(frontier, target);
        }
    }

    /// Asks the processor for a target.
    #[inline(always)]
    fn prefetch(&self, frontier: &Frontier, target: &Target) {
        let word = frontier.links[target.link];
        let Some(location) = Location::from_word(word).filter(|_| word != 0) else { return };
        self.engine.transport.prefetch_item(location, || {
            let Wanted { table, key, .. } = frontier.link(target.link);
            Some((table, key))
        });
    }

    fn visit_in_batches(
        &mut self,
        frontier: &Frontier,
        each: &mut impl FnMut(usize, Option<&Item>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut items = Vec::new();
        for first in (0..frontier.len()).step_by(SESSION_READS_MAX) {
            let targets = first..frontier.len().min(first + SESSION_READS_MAX);
            items.clear();
            items.resize(targets.len(), None);
            self.read_targets(frontier, targets, &mut items)?;
            for (index, item) in items.iter().enumerate() {
                if each(first + index, item.as_ref()).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Reads some targets, those of each generation at once.
    pub(crate) fn read_targets(
        &mut self,
        frontier: &Frontier,
        targets: Range<usize>,
        items: &mut [Option<Item>],
    ) -> Result<()> {
        let targets = frontier.targets.get(targets).ok_or_else(|| frontier.has_no_such())?;
        let mut first = 0;
        while first < targets.len() {
            let (begin, generation) = self.bind_target(frontier, &targets[first])?;
            let mut wanted = vec![begin];
            for target in &targets[first + 1..] {
                let (another, its_generation) = self.bind_target(frontier, target)?;
                if its_generation != generation {
                    break;
                }
                wanted.push(another);
            }
            let here = &targets[first..first + wanted.len()];
            let wanted = |index: usize| wanted[index];
            let Session { engine, catalogue, batch, .. } = self;
            batch.fetch_many(engine, here.len(), wanted, |engine, index, landing| {
                engine.repair(frontier.origin(&here[index]), wanted(index).pointer, landing.pointer)?;
                items[first + index] = Some(catalogue.make_item(engine, landing, generation)?);
                Ok(())
            })?;
            self.check_generation(generation)?;
            first += here.len();
        }
        Ok(())
    }

    /// Walks along links from some items, and shows each item that it comes to once. Each is read when the
    /// walk is there, so in a walk beside writers every item is as it was at some moment during it, and not
    /// all at the same; in a view of a loaded dataset nothing changes. A walk that begins by a loaded table's
    /// name keeps to the generation that is in force then, and fails when that is gone; a view holds it.
    ///
    /// ```no_run
    /// use std::ops::ControlFlow::{Break, Continue};
    ///
    /// use kelix::{Visit, Walk};
    ///
    /// # fn main() -> kelix::Result<()> {
    /// # let mut session: kelix::Session = unimplemented!();
    /// let people = session.table("people")?;
    /// let friends_of_friends = Walk::along(&["friend"]).to_depth(2);
    /// session.walk(&[(people, b"ada")], &friends_of_friends, |visited| {
    ///     println!("{} links away: {}", visited.depth, String::from_utf8_lossy(visited.item.key()));
    ///     if visited.item.bytes("name") == Some(b"Grace") { Break(()) } else { Continue(Visit::On) }
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn walk(
        &mut self,
        from: &[(Table, &[u8])],
        walk: &Walk<'_>,
        visit: impl FnMut(Visited<'_>) -> ControlFlow<(), Visit>,
    ) -> Result<Walked> {
        self.operate("walk", |session| walk::walk_all(session, from, walk, visit))
    }

    /// Begins a walk that is stepped in batches, for callers that cannot be called back.
    pub fn begin_walk(&mut self, from: &[(Table, &[u8])], walk: &Walk<'_>) -> Result<Walker> {
        self.operate("walk", |session| walk::begin(session, from, walk))
    }

    /// Reads what some links and keys of a frontier lead to, their READs overlapping: into an entry each, in
    /// order; `None`: the target does not exist (any more). [`Session::visit`] does so for all, and allocates
    /// nothing.
    pub fn visit_batch(
        &mut self,
        frontier: &Frontier,
        targets: Range<usize>,
        items: &mut Vec<Option<Item>>,
    ) -> Result<()> {
        self.operate("visit", |session| {
            session.heal()?;
            items.clear();
            items.resize(frontier.targets.get(targets.clone()).map_or(0, <[_]>::len), None);
            session.read_targets(frontier, targets, items)
        })
    }
}
