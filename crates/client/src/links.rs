//! Following links: one READ each while the link is fresh (KELI, section 3.2).

use std::sync::Arc;

use kelix_image::words::bytes_of;
use kelix_image::{ItemFlags, LinkView};
use kelix_types::{Error, ErrorKind, Location, Result, TableId, Version, mark};
use kelix_wire::{Op, RequestHead};

use crate::batch::Wanted;
use crate::core::Path;
use crate::item::Item;
use crate::pointers::Pointer;
use crate::session::Session;

/// Where a link stands, for its repair.
#[derive(Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub table: TableId,
    pub key: &'a [u8],
    pub version: Version,
    /// Where in the item's attributes.
    pub position: u64,
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
    /// Where a link of this item leads. The location words of a link in a large value are the writer's claim, which the shard never
    /// looked at: such links are followed by key.
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

    fn has_no_link(&self, name: &str) -> Error {
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
            session.check_life(item.life)?;
            let found = call(session)?;
            session.check_generation(item.generation)?;
            Ok(found)
        })
    }

    /// Follows the first link under this name. `Ok(None)`: its target does not exist (any more).
    pub fn follow(&mut self, item: &Item, name: &str) -> Result<Option<Item>> {
        self.read_from("follow", item, |session| {
            let found = session.land_first(item, name)?;
            if found { session.make_item(item.generation).map(Some) } else { Ok(None) }
        })
    }

    /// Goes from an item along the first link under this name: the target takes the item's place, in the memory that it has. `Ok(false)`: the
    /// target does not exist (any more), and the item stays. A loop of this allocates nothing. After an error the item is of no use.
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
            session.check_life(item.life)?;
            let link = item.raw_links(name).next().ok_or_else(|| item.has_no_link(name))?;
            let (at, generation) = (item.layout.body_words().start + link.position / 8, item.generation);
            let found =
                if session.lands(item.target(&link))? { true } else { session.land_first(item, name)? };
            if found {
                session.take_landed(item, generation)?;
                session.look_ahead(item, at);
            }
            session.check_generation(generation)?;
            Ok(found)
        })
    }

    /// Asks the processor for what comes next if the next link stands where the last one did, in word `at` of the item: long before the item
    /// has been looked into, and while the caller does. It is a guess, and nothing is lost if it is wrong.
    #[inline(always)]
    fn look_ahead(&self, item: &Item, at: usize) {
        let Some(location) = item.words.get(at).and_then(|word| Location::from_word(*word)) else { return };
        self.core.prefetch_item(location, || {
            let (head, rest) = item.words[at..].split_first_chunk()?;
            LinkView::of(0, *head, bytes_of(rest)).map(|link| (link.table, link.key))
        });
    }

    /// Follows the first link of each of these names, one after the other: `["supervisor", "department"]`. `Ok(None)`: one of the targets
    /// does not exist (any more).
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

    /// Follows all links under this name, their READs overlapping. One entry a link, in order; `None`: its target
    /// does not exist (any more).
    pub fn follow_all(&mut self, item: &Item, name: &str) -> Result<Vec<Option<Item>>> {
        self.read_from("follow_all", item, |session| {
            let links: Vec<LinkView<'_>> = item.raw_links(name).collect();
            if links.is_empty() {
                return Err(item.has_no_link(name));
            }
            let mut items = vec![None; links.len()];
            let wanted = |index: usize| item.target(&links[index]);
            session.fetch_many(links.len(), wanted, |session, index| {
                session.repair(item.origin(&links[index]), wanted(index).pointer)?;
                items[index] = Some(session.make_item(item.generation)?);
                Ok(())
            })?;
            Ok(items)
        })
    }

    /// Brings an item into `self.landing`, if it stands where its pointer says, and that is within reach of loads. Whoever goes on to
    /// [`Session::land`] where it is not should make up anew what that is given, so that here all can stay in registers.
    #[inline(always)]
    pub(crate) fn lands(&mut self, Wanted { table, key, pointer }: Wanted<'_>) -> Result<bool> {
        let Some(pointer) = pointer.filter(|_| self.core.path != Path::Message) else { return Ok(false) };
        let landed = self.core.read_pointed((table, key), pointer, &mut self.landing);
        if landed {
            self.note_operation()?;
        }
        Ok(landed)
    }

    /// Brings an item into `self.landing`, and repairs the link that led there if it was stale.
    pub(crate) fn land(&mut self, wanted: Wanted<'_>, origin: Option<Origin<'_>>) -> Result<bool> {
        let found = self.fetch_wanted(wanted)?.is_some();
        if found {
            self.repair(origin, wanted.pointer)?;
        }
        Ok(found)
    }

    /// Brings the target of an item's first link under a name into `self.landing`.
    #[inline(never)]
    fn land_first(&mut self, item: &Item, name: &str) -> Result<bool> {
        let link = item.raw_links(name).next().ok_or_else(|| item.has_no_link(name))?;
        Ok(self.lands(item.target(&link))? || self.land(item.target(&link), item.origin(&link))?)
    }

    /// Puts the item that landed, of a generation (0: of none), in the place of another, in whose memory the next one will land.
    #[inline(always)]
    pub(crate) fn take_landed(&mut self, item: &mut Item, generation: u64) -> Result<()> {
        item.layout = self.landing.layout();
        std::mem::swap(&mut self.landing.item, &mut item.words);
        if item.large.is_some() || item.layout.has_any(ItemFlags::LARGE) {
            item.large = self.landing.take_large();
        }
        (item.generation, item.life) = (generation, self.core.handles());
        if item.is_named() { Ok(()) } else { self.name_landed(item) }
    }

    #[cold]
    fn name_landed(&mut self, item: &mut Item) -> Result<()> {
        item.names_of = item.layout.table();
        item.names = Arc::default();
        item.names = self.names_for(item.names_of, item)?;
        Ok(())
    }

    /// If what was fetched last was not where a link said, tells the shard that has the link where it stands now. Nobody waits for
    /// the answer.
    pub(crate) fn repair(&mut self, origin: Option<Origin<'_>>, said: Option<Pointer>) -> Result<()> {
        let Some(Pointer { location, incarnation }) = self.pointer.filter(|_| self.pointer != said) else {
            return Ok(());
        };
        let Some(Origin { table, key, version, position }) = origin else { return Ok(()) };
        if self.is_detached() || !self.core.may_write() {
            return Ok(());
        }
        let (_, shard) = self.core.route(table, key);
        let head = RequestHead {
            expect: Some(Some(version)),
            argument: Some(position),
            ..RequestHead::new(Op::RepairLink, 0, table)
        };
        let mut claim = [0; 16];
        claim[..8].copy_from_slice(&location.word().to_le_bytes());
        claim[8..].copy_from_slice(&incarnation.0.to_le_bytes());
        mark!("link repaired by a reader");
        // If the ring is full the next reader will try again; it stays so as long as nobody takes the answers.
        if self.core.post(shard, head, key, &claim, false).is_ok() {
            self.core.send(shard);
        }
        self.core.poll_replies().map(drop)
    }
}
