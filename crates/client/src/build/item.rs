//! Items that are written straight into what is sent: nothing is allocated for one.

use std::time::{Duration, SystemTime};

use kelix_image::AttributeBuilder;
use kelix_types::{Error, NameId, Result};
use kelix_wire::Expiry;
use kelix_wire::generation::{LoadedTable, NewItem as Packed};

use super::{Build, BuildState};
use crate::Table;
use crate::item::{ends_at, ends_in};
use crate::key::Key;
use crate::session::Session;

/// What is kept from item to item.
#[derive(Default)]
pub(super) struct Writing {
    /// The names of each table's attributes so far.
    names: Vec<Names>,
    /// Attributes of the item that is being written.
    section: AttributeBuilder,
}

/// Names of attributes with their ids, in the order in which they were first used.
#[derive(Default)]
struct Names {
    known: Vec<(String, NameId)>,
    /// The one behind that which was used last: items of a table mostly have them all in one order.
    next: usize,
}

impl Writing {
    pub fn of(tables: usize) -> Writing {
        let names = std::iter::repeat_with(Names::default).take(tables).collect();
        Writing { names, section: AttributeBuilder::default() }
    }
}

impl Names {
    #[inline]
    fn find(&mut self, name: &str) -> Option<NameId> {
        let is_it = |at: usize| self.known.get(at).is_some_and(|(known, _)| known == name);
        let at = if is_it(self.next) { self.next } else { (0..self.known.len()).find(|at| is_it(*at))? };
        self.next = at + 1;
        Some(self.known[at].1)
    }
}

/// An item on its way into a generation. See [`Build::item`].
///
/// ```no_run
/// # fn put(build: &mut kelix::Build<'_>, people: usize) -> kelix::Result<()> {
/// let boss = build.table(people);
/// build.item(people, b"person:1").bytes("name", b"Ada").link("boss", boss, b"person:7").end()
/// # }
/// ```
#[must_use = "an item is put once it is ended"]
pub struct ItemWriter<'b, 's> {
    build: &'b mut Build<'s>,
    index: usize,
    key: &'b [u8],
    pub(super) expiry: Option<Expiry>,
    flags: u32,
    /// The first thing that was wrong.
    wrong: Option<Error>,
}

impl<'b, 's> ItemWriter<'b, 's> {
    pub(super) fn begin(build: &'b mut Build<'s>, index: usize, key: &'b [u8]) -> ItemWriter<'b, 's> {
        let Writing { names, section } = &mut build.state.writing;
        section.clear();
        names[index].next = 0;
        ItemWriter { build, index, key, expiry: None, flags: 0, wrong: None }
    }

    /// Adds bytes under a name, as [`NewItem::bytes`](crate::NewItem::bytes) does.
    #[inline]
    pub fn bytes(mut self, name: &str, bytes: &[u8]) -> Self {
        match self.name_id(name) {
            Ok(name) => self.build.state.writing.section.bytes(name, bytes),
            Err(error) => self.note(error),
        }
        self
    }

    /// Adds a link under a name. Several links under one name make a list. The target may come later.
    pub fn link(self, name: &str, table: Table, key: impl Key) -> Self {
        self.link_with(name, table, key, &[])
    }

    /// Adds a link that carries bytes of its own.
    #[inline]
    pub fn link_with(mut self, name: &str, table: Table, key: impl Key, bytes: &[u8]) -> Self {
        let key = key.into_bytes();
        let key = key.as_ref();
        let ids = self.name_id(name).and_then(|name| {
            let Session { engine, catalogue, .. } = &mut *self.build.session;
            Ok((name, catalogue.link_table(engine, table, key)?))
        });
        match ids {
            Ok((name, table)) => self.build.state.writing.section.link(name, table, key, bytes),
            Err(error) => self.note(error),
        }
        self
    }

    /// Lets the item end so long after it was put, as [`NewItem::expires_in`](crate::NewItem::expires_in)
    /// does.
    pub fn expires_in(mut self, time: Duration) -> Self {
        self.expiry = Some(ends_in(time));
        self
    }

    /// Lets the item end at a time, as [`NewItem::expires_at`](crate::NewItem::expires_at) does.
    pub fn expires_at(mut self, time: SystemTime) -> Self {
        self.expiry = Some(ends_at(time));
        self
    }

    /// Gives the item flags of its client's, as [`NewItem::flags`](crate::NewItem::flags) does.
    pub fn flags(mut self, flags: u32) -> Self {
        self.flags = flags;
        self
    }

    /// Puts the item, unless something was wrong with it.
    pub fn end(self) -> Result<()> {
        let ItemWriter { build, index, key, expiry, flags: client_flags, wrong } = self;
        if let Some(error) = wrong {
            return Err(build.explain(error));
        }
        let section = std::mem::take(&mut build.state.writing.section);
        let attributes = section.plain().is_none();
        let item = Packed { key, body: &[], attributes, expiry, client_flags };
        let packed = match section.plain() {
            Some(value) => build.pack(index, item, value.len(), |body| body.copy_from_slice(value)),
            None => build.pack(index, item, section.section_bytes(), |body| section.write(body)),
        };
        build.state.writing.section = section;
        packed.map_err(|error| build.explain(error))
    }

    #[cold]
    fn note(&mut self, error: Error) {
        self.wrong.get_or_insert(error);
    }

    #[inline]
    fn name_id(&mut self, name: &str) -> Result<NameId> {
        if name.is_empty() {
            return Ok(NameId(0));
        }
        match self.build.state.writing.names[self.index].find(name) {
            Some(id) => Ok(id),
            None => self.new_name(name),
        }
    }

    #[cold]
    fn new_name(&mut self, name: &str) -> Result<NameId> {
        let Build { session, state: BuildState { tables, writing, .. } } = &mut *self.build;
        let Session { engine, catalogue, .. } = &mut **session;
        let LoadedTable { name_id, .. } = tables[self.index];
        let names = catalogue.names_table(engine, name_id)?;
        let id = catalogue.name_id(engine, names, name)?;
        writing.names[self.index].known.push((name.to_string(), id));
        Ok(id)
    }
}
