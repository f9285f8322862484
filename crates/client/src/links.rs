//! Following links: one READ each while the link is fresh (KELI, section 3.2).

use kelix_image::{LinkView, Value};
use kelix_types::{Error, ErrorKind, Result, TableId, mark};
use kelix_wire::{Op, RequestHead};

use crate::batch::Wanted;
use crate::item::Item;
use crate::pointers::Pointer;
use crate::session::Session;

/// A link taken out of an item.
struct Target {
    table: TableId,
    key: Vec<u8>,
    pointer: Option<Pointer>,
    position: u64,
}

impl Target {
    /// The location words of a link in a large value are the writer's claim, which the shard never looked at: such
    /// links are followed by key.
    fn of(link: LinkView<'_>, claimed: bool) -> Target {
        let location = link.location.filter(|_| !claimed);
        let pointer = location.map(|location| Pointer { location, incarnation: link.incarnation });
        Target { table: link.table, key: link.key.to_vec(), pointer, position: link.position as u64 }
    }

    fn wanted(&self) -> Wanted<'_> {
        Wanted { table: self.table, key: &self.key, pointer: self.pointer }
    }
}

impl Session {
    /// Follows the first link under this name. `Ok(None)`: its target does not exist (any more).
    pub fn follow(&mut self, item: &Item, name: &str) -> Result<Option<Item>> {
        let link = Self::links(item, name, 1)?.pop().expect("at least one");
        self.views.bound = item.generation;
        let target = self.follow_link(item, &link)?;
        self.still("follow")?;
        Ok(target)
    }

    /// Follows all links under this name, their READs overlapping. One entry a link, in order; `None`: its target
    /// does not exist (any more).
    pub fn follow_all(&mut self, item: &Item, name: &str) -> Result<Vec<Option<Item>>> {
        let links = Self::links(item, name, usize::MAX)?;
        self.views.bound = item.generation;
        let mut items = vec![None; links.len()];
        let wanted = |index: usize| links[index].wanted();
        self.fetch_many("follow_all", links.len(), wanted, |session, index| {
            session.repair(item, &links[index])?;
            items[index] = Some(session.make_item("follow_all")?);
            Ok(())
        })?;
        self.still("follow_all")?;
        Ok(items)
    }

    fn links(item: &Item, name: &str, most: usize) -> Result<Vec<Target>> {
        let wanted = item.name_id(name);
        let links = item.raw_attributes().filter_map(|(id, value)| match value {
            Value::Link(link) if Some(id) == wanted => Some(Target::of(link, item.large.is_some())),
            _ => None,
        });
        let links: Vec<Target> = links.take(most).collect();
        if links.is_empty() {
            let key = String::from_utf8_lossy(item.key()).into_owned();
            let context = format!("item \"{key}\" has no link \"{name}\"");
            return Err(Error::new(ErrorKind::NoSuchAttribute, "follow", context));
        }
        Ok(links)
    }

    fn follow_link(&mut self, source: &Item, link: &Target) -> Result<Option<Item>> {
        if self.fetch_wanted("follow", link.wanted())?.is_none() {
            return Ok(None);
        }
        self.repair(source, link)?;
        self.make_item("follow").map(Some)
    }

    /// If the target was not where the link said, tells the shard where it stands now. Nobody waits for the answer.
    fn repair(&mut self, source: &Item, link: &Target) -> Result<()> {
        let Some(Pointer { location, incarnation }) = self.pointer.filter(|_| self.pointer != link.pointer)
        else {
            return Ok(());
        };
        if self.is_detached() || !self.core.may_write() {
            return Ok(());
        }
        let view = source.view();
        if source.large.is_some() {
            // Links inside a large value are never live words; they are followed by key.
            return Ok(());
        }
        let (_, shard) = self.core.route(view.header().table, view.key());
        let head = RequestHead {
            expect: Some(Some(view.version())),
            argument: Some(link.position),
            ..RequestHead::new(Op::RepairLink, 0, view.header().table)
        };
        let mut claim = [0; 16];
        claim[..8].copy_from_slice(&location.word().to_le_bytes());
        claim[8..].copy_from_slice(&incarnation.0.to_le_bytes());
        mark!("link repaired by a reader");
        // If the ring is full the next reader will try again.
        if self.core.post(shard, head, view.key(), &claim, false).is_ok() {
            self.core.send(shard);
            self.core.poll_replies()?;
        }
        Ok(())
    }
}
