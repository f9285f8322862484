//! Many items at once, by the links that lead to them.

use kelix_image::words::{bytes_of, bytes_of_mut};
use kelix_image::{LinkView, link_target};
use kelix_types::{Error, ErrorKind, TableId, Version};

use crate::Table;
use crate::engine::Wanted;
use crate::item::{Item, Link};
use crate::key::Key;
use crate::links::Origin;

/// Where to go next: links out of any number of items, and keys. Their targets are read together, by
/// [`Session::visit`](crate::Session::visit). What it holds stands in buffers that are kept when it is
/// cleared.
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
    pub(crate) targets: Vec<Target>,
    pub(crate) sources: Vec<Source>,
    /// Links to the targets, as they stand in items, but for their own bytes; and before those of an item one
    /// to itself.
    pub(crate) links: Vec<u64>,
}

/// Somewhere to go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// Where the link that leads there begins.
    pub link: usize,
    /// What leads there.
    pub source: u32,
    position: u32,
}

/// What leads to targets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    /// The table of the item with the links; or that of the keys.
    pub table: Table,
    /// Where the link to the item begins.
    link: usize,
    /// The version of the item, if shards repair its links.
    version: Option<Version>,
    pub is_item: bool,
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
        self.links.clear();
    }

    /// Table and key of a target.
    pub fn target(&self, index: usize) -> (TableId, &[u8]) {
        let Wanted { table, key, .. } = self.link(self.targets[index].link);
        (table, key)
    }

    /// Adds an item by its key.
    pub fn add(&mut self, table: Table, key: impl Key) {
        let known = self.sources.last().is_some_and(|last| !last.is_item && last.table == table);
        if !known {
            self.sources.push(Source { table, link: self.links.len(), version: None, is_item: false });
        }
        let source = self.sources.len() as u32 - 1;
        let link = self.add_link(table.id, key.into_bytes().as_ref());
        self.targets.push(Target { link, source, position: 0 });
    }

    /// Adds the targets of an item's links under a name, in order, as far as they are wanted. Returns how
    /// many that are.
    pub fn add_links(&mut self, item: &Item, name: &str, mut wanted: impl FnMut(Link<'_>) -> bool) -> usize {
        let before = self.targets.len();
        let mut source = 0;
        // Links that stand next to each other are copied at once: those of these words.
        let section = item.section_words();
        let (mut together, mut end) = (0, 0);
        item.raw_links(name).for_each(|link| {
            if !wanted(Link::of(&link)) {
                return;
            }
            if self.targets.len() == before {
                source = self.source_of(item);
            }
            let start = link.position / 8;
            if start != end {
                self.links.extend_from_slice(&section[together..end]);
                together = start;
            }
            let at = self.links.len() + (start - together);
            end = start + link_words(link.key);
            self.targets.push(Target { link: at, source, position: link.position as u32 });
        });
        self.links.extend_from_slice(&section[together..end]);
        if item.large.is_some() {
            self.forget_locations(before);
        }
        self.targets.len() - before
    }

    /// Where links of a large value lead is the writer's claim; see [`Item::target`].
    #[cold]
    fn forget_locations(&mut self, first: usize) {
        self.targets[first..].iter().for_each(|target| self.links[target.link] = 0);
    }

    /// The source that an item is: the last one, if more of its links are added.
    fn source_of(&mut self, item: &Item) -> u32 {
        let view = item.view();
        let version = Some(view.version()).filter(|_| item.large.is_none());
        let table = Table { id: view.layout().table(), server: item.life, generation: item.generation };
        let is_it = |last: &Source| {
            let same = last.is_item && last.version == version && last.table == table;
            same && self.link(last.link).key == view.key()
        };
        if !self.sources.last().is_some_and(is_it) {
            let link = self.add_link(table.id, view.key());
            self.sources.push(Source { table, link, version, is_item: true });
        }
        self.sources.len() as u32 - 1
    }

    /// Adds a link to a key, as one that says nothing of where that is.
    fn add_link(&mut self, table: TableId, key: &[u8]) -> usize {
        let link = self.links.len();
        self.links.resize(link + link_words(key), 0);
        self.links[link + 2] = link_target(table, key.len());
        bytes_of_mut(&mut self.links[link + 3..])[..key.len()].copy_from_slice(key);
        link
    }

    /// Where a link leads.
    #[inline(always)]
    pub(crate) fn link(&self, link: usize) -> Wanted<'_> {
        let whole = self.links[link..].split_first_chunk();
        let link = whole.and_then(|(head, rest)| LinkView::of(0, *head, bytes_of(rest)));
        Wanted::of(&link.expect("it was added as a whole"))
    }

    /// Puts the targets from `first` on, which are of one item, in reverse order.
    pub(crate) fn reverse(&mut self, first: usize) {
        self.targets[first..].reverse();
    }

    /// Takes the last target away, and with the last one of a source what is known of that. For frontiers to
    /// whose end only is added, and in which targets of one source stand next to each other, in the order of
    /// sources.
    pub(crate) fn pop(&mut self) {
        self.targets.pop();
        let left = self.targets.last().map_or(0, |last| last.source as usize + 1);
        if let Some(gone) = self.sources.get(left) {
            self.links.truncate(gone.link);
            self.sources.truncate(left);
        }
    }

    /// What is wrong with targets that it does not have.
    pub(crate) fn has_no_such(&self) -> Error {
        Error::unnamed(ErrorKind::InvalidArgument, format!("a frontier has {} targets", self.len()))
    }

    pub(crate) fn origin(&self, target: &Target) -> Option<Origin<'_>> {
        let Source { link, version, .. } = self.sources[target.source as usize];
        let Wanted { table, key, .. } = self.link(link);
        let position = u64::from(target.position);
        Some(Origin { table, key, version: version?, position })
    }
}

/// Words of a link without bytes of its own.
#[inline(always)]
fn link_words(key: &[u8]) -> usize {
    3 + key.len().div_ceil(8)
}
