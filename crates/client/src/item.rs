//! Items as callers see them.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, SystemTime};

use kelix_image::words::bytes_of;
use kelix_image::{Attributes, ItemFlags, ItemLayout, ItemView, LinkView, PlainItem, Section, Value};
use kelix_types::{NameId, TableId, Version};
use kelix_wire::Expiry;

use crate::Table;
use crate::engine::nanoseconds;
use crate::key::Key;
use crate::read::Landing;

/// Attribute names of one table, as far as they are known here: those with the ids from 1 on, which are given
/// in this order.
#[derive(Clone, Default, Debug)]
pub(crate) struct Names(Vec<String>);

impl Names {
    /// How many are known, which is the greatest id of them.
    pub fn known(&self) -> u16 {
        self.0.len() as u16
    }

    /// Adds the next one.
    pub fn push(&mut self, name: String) {
        self.0.push(name);
    }

    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    pub fn id(&self, name: &str) -> Option<NameId> {
        let at = self.0.iter().position(|known| known == name)?;
        Some(NameId(at as u16 + 1))
    }

    /// The number of a name that remembers one.
    fn number_of(&self, name: &Name) -> Option<NameId> {
        let number = NameId(name.number.load(Ordering::Relaxed));
        if self.name(number) == name.text {
            return Some(number);
        }
        let id = self.id(&name.text)?;
        name.number.store(id.0, Ordering::Relaxed);
        Some(id)
    }

    fn name(&self, id: NameId) -> &str {
        usize::from(id.0).checked_sub(1).and_then(|at| self.0.get(at)).map_or("", String::as_str)
    }
}

/// The name of an attribute, which remembers the number that it has in the table whose items were read with
/// it last: so it is compared with one name an item, and not with all that the table has. Any number of
/// tables and threads may use one.
#[derive(Default, Debug)]
pub struct Name {
    text: String,
    /// Its number in some table; right wherever the table's name of this number is this text.
    number: AtomicU16,
}

impl Name {
    /// The name with this text.
    pub fn new(text: impl Into<String>) -> Name {
        Name { text: text.into(), number: AtomicU16::new(0) }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// An item as it was read: a private, consistent copy of one version.
#[derive(Clone)]
pub struct Item {
    pub(crate) words: Vec<u64>,
    pub(crate) layout: ItemLayout,
    /// The value, where it is too large to stand in the item.
    pub(crate) large: Option<(Vec<u64>, u64)>,
    /// Of the table that it is of, or that what stood here before was of.
    pub(crate) names: Arc<Names>,
    pub(crate) names_of: TableId,
    /// The generation it is of; 0: none.
    pub(crate) generation: u64,
    /// The life of the store that it is of, whose tables its links lead to.
    pub(crate) life: u64,
}

/// One of no key and no value, into which items are read.
impl Default for Item {
    fn default() -> Item {
        Item::empty()
    }
}

/// An attribute of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attribute<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// A pointer to another item.
    Link(Link<'a>),
}

/// A pointer from an item to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Link<'a> {
    /// Table of the target.
    pub table: TableId,
    /// Key of the target.
    pub key: &'a [u8],
    /// The link's own bytes (an edge's attributes).
    pub bytes: &'a [u8],
}

impl<'a> Link<'a> {
    pub(crate) fn of(link: &LinkView<'a>) -> Link<'a> {
        Link { table: link.table, key: link.key, bytes: link.bytes }
    }
}

impl Item {
    /// An item with the names of attributes that are at hand, which may not be those of its own.
    pub(crate) fn of(
        words: Vec<u64>,
        large: Option<(Vec<u64>, u64)>,
        (names_of, names): &(TableId, Arc<Names>),
        (generation, life): (u64, u64),
    ) -> Item {
        let layout = ItemView::new(&words).expect("checked when it was read").layout();
        Item { words, layout, large, names: names.clone(), names_of: *names_of, generation, life }
    }

    /// Where one will land.
    pub(crate) fn empty() -> Item {
        Item::of(vec![0; 2], None, &Default::default(), (0, 0))
    }

    #[inline(always)]
    pub(crate) fn view(&self) -> ItemView<'_> {
        ItemView::with_layout(&self.words, self.layout)
    }

    pub(crate) fn body(&self) -> &[u8] {
        match &self.large {
            Some((words, bytes)) => &bytes_of(words)[..*bytes as usize],
            None => self.view().body(),
        }
    }

    pub(crate) fn has_attributes(&self) -> bool {
        self.layout.has_any(ItemFlags::ATTRIBUTES)
    }

    /// The words of its attributes, if it has some.
    #[inline(always)]
    pub(crate) fn section_words(&self) -> &[u64] {
        match &self.large {
            _ if !self.has_attributes() => &[],
            None => &self.words[self.layout.body_words()],
            Some((words, bytes)) => &words[..*bytes as usize / 8],
        }
    }

    #[inline(always)]
    fn section(&self) -> Option<Section<'_>> {
        Section::new(self.section_words())
    }

    pub(crate) fn raw_attributes(&self) -> impl Iterator<Item = (NameId, Value<'_>)> {
        let section = if self.has_attributes() { Attributes::new(self.body()) } else { None };
        section.into_iter().flatten()
    }

    pub(crate) fn name_id(&self, name: &str) -> Option<NameId> {
        if name.is_empty() {
            return Some(NameId(0));
        }
        self.names.id(name)
    }

    /// The links under a name, as they stand in the item.
    #[inline]
    pub(crate) fn raw_links(&self, name: &str) -> impl Iterator<Item = LinkView<'_>> {
        self.raw_links_under(self.name_id(name))
    }

    #[inline]
    fn raw_links_under(&self, id: Option<NameId>) -> impl Iterator<Item = LinkView<'_>> {
        let named = id.and_then(|id| Some((id, self.section()?)));
        let (id, section) = named.unwrap_or((NameId(0), Section::EMPTY));
        section.links_of(id)
    }

    /// The first bytes under the name with this number; the value, where it is a plain item.
    pub(crate) fn bytes_under(&self, id: NameId) -> Option<&[u8]> {
        match self.has_attributes() {
            true => self.section()?.bytes_of(id),
            false => (id == NameId(0)).then(|| self.body()),
        }
    }

    /// The links under the name with this number, in order.
    pub(crate) fn links_under(&self, id: NameId) -> impl Iterator<Item = Link<'_>> {
        self.section().unwrap_or(Section::EMPTY).links_of(id).map(|link| Link::of(&link))
    }

    /// What numbers of names belong to that were looked up in this item: the table, the life of the store,
    /// and how many names were known.
    pub(crate) fn names_scope(&self) -> (TableId, u64, u16) {
        (self.names_of, self.life, self.names.known())
    }

    /// The handle of the table that a link of this item leads to.
    pub(crate) fn table_of(&self, link: &Link<'_>) -> Table {
        Table { id: link.table, server: self.life, generation: 0 }
    }

    /// Whether the names of all its attributes are known.
    #[inline]
    pub(crate) fn is_named(&self) -> bool {
        let Some(section) = self.section() else { return true };
        self.names_of == self.layout.table() && section.has_names_to(NameId(self.names.known()))
    }

    /// The greatest id of a name in it.
    pub(crate) fn greatest_name(&self) -> u16 {
        self.section().map_or(0, |section| section.greatest_name().0)
    }

    /// The table that it is of, as links tell it.
    pub fn table(&self) -> TableId {
        self.layout.table()
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        self.view().key()
    }

    /// The item's version, for compare-and-set.
    pub fn version(&self) -> Version {
        self.view().version()
    }

    /// When it ends, if it does.
    pub fn expires(&self) -> Option<SystemTime> {
        self.view().expiry().map(|ns| SystemTime::UNIX_EPOCH + Duration::from_nanos(ns))
    }

    /// The flags that whoever put it gave it.
    pub fn flags(&self) -> u32 {
        self.view().client_flags()
    }

    /// The value of a plain item; of one with attributes, the bytes of the attribute without a name (empty if
    /// there is none).
    #[inline]
    pub fn value(&self) -> &[u8] {
        if !self.has_attributes() {
            return self.body();
        }
        self.section().and_then(|section| section.bytes_of(NameId(0))).unwrap_or(&[])
    }

    /// The attributes in order, with their names. A plain item has one, without a name.
    pub fn attributes(&self) -> Vec<(&str, Attribute<'_>)> {
        if !self.has_attributes() {
            return vec![("", Attribute::Bytes(self.body()))];
        }
        self.raw_attributes()
            .map(|(id, value)| {
                let attribute = match value {
                    Value::Bytes(bytes) => Attribute::Bytes(bytes),
                    Value::Link(link) => Attribute::Link(Link::of(&link)),
                };
                (self.names.name(id), attribute)
            })
            .collect()
    }

    /// The first attribute of this name that is bytes.
    #[inline]
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.section()?.bytes_of(self.name_id(name)?)
    }

    /// The first attribute of this name that is bytes, as [`Item::bytes`] finds it: for loops over items of
    /// many attributes.
    #[inline]
    pub fn bytes_of(&self, name: &Name) -> Option<&[u8]> {
        self.section()?.bytes_of(self.names.number_of(name)?)
    }

    /// The links under this name, in order, as [`Item::links`] finds them.
    #[inline]
    pub fn links_of(&self, name: &Name) -> impl Iterator<Item = Link<'_>> {
        self.raw_links_under(self.names.number_of(name)).map(|link| Link::of(&link))
    }

    /// The links under this name, in order.
    #[inline]
    pub fn links(&self, name: &str) -> impl Iterator<Item = Link<'_>> {
        self.raw_links(name).map(|link| Link::of(&link))
    }

    /// How many links stand under this name.
    pub fn link_count(&self, name: &str) -> usize {
        self.raw_links(name).count()
    }
}

impl std::fmt::Debug for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Item")
            .field("key", &String::from_utf8_lossy(self.key()))
            .field("version", &self.version())
            .field("attributes", &self.attributes())
            .finish()
    }
}

/// The end of an item that is so far away.
pub(crate) fn ends_in(time: Duration) -> Expiry {
    Expiry::In(nanoseconds(time))
}

/// The end of an item at this time.
pub(crate) fn ends_at(time: SystemTime) -> Expiry {
    Expiry::At(nanoseconds(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()))
}

/// An item to be put: a value, or attributes and links; when it ends; and flags.
///
/// ```
/// use kelix::NewItem;
/// # fn student(people: kelix::Table) -> NewItem {
/// let student = NewItem::new().bytes("name", b"XYZ").link("supervisor", people, b"prof001");
/// # student
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct NewItem {
    pub(crate) attributes: Vec<(String, NewAttribute)>,
    pub(crate) expiry: Option<Expiry>,
    pub(crate) flags: u32,
}

#[derive(Clone, Debug)]
pub(crate) enum NewAttribute {
    Bytes(Vec<u8>),
    Link { table: Table, key: Vec<u8>, bytes: Vec<u8> },
}

impl NewItem {
    /// An item without attributes.
    pub fn new() -> NewItem {
        NewItem::default()
    }

    /// Adds bytes under a name. The empty name is the item's plain value; an item with nothing else is a
    /// plain key-value item.
    pub fn bytes(mut self, name: &str, bytes: &[u8]) -> NewItem {
        self.attributes.push((name.to_string(), NewAttribute::Bytes(bytes.to_vec())));
        self
    }

    /// Adds a link under a name. Several links under one name make a list. The target need not exist yet.
    pub fn link(self, name: &str, table: Table, key: impl Key) -> NewItem {
        self.link_with(name, table, key, &[])
    }

    /// Adds a link that carries bytes of its own.
    pub fn link_with(mut self, name: &str, table: Table, key: impl Key, bytes: &[u8]) -> NewItem {
        let link =
            NewAttribute::Link { table, key: key.into_bytes().as_ref().to_vec(), bytes: bytes.to_vec() };
        self.attributes.push((name.to_string(), link));
        self
    }

    /// Lets the item end so long after it was put, by the server's clock; after 292 years at the latest.
    pub fn expires_in(mut self, time: Duration) -> NewItem {
        self.expiry = Some(ends_in(time));
        self
    }

    /// Lets the item end at a time, by the server's clock: at once if that is over, and in the year 2262 at
    /// the latest. An item that was read tells it ([`Item::expires`]).
    pub fn expires_at(mut self, time: SystemTime) -> NewItem {
        self.expiry = Some(ends_at(time));
        self
    }

    /// Gives the item 32 bits that mean something to those who put and get it (how its value is encoded,
    /// say), and nothing to the store. Without, they are 0.
    pub fn flags(mut self, flags: u32) -> NewItem {
        self.flags = flags;
        self
    }

    /// The value, if this is a plain key-value item.
    pub(crate) fn plain(&self) -> Option<&[u8]> {
        match &self.attributes[..] {
            [] => Some(&[]),
            [(name, NewAttribute::Bytes(bytes))] if name.is_empty() => Some(bytes),
            _ => None,
        }
    }
}

/// The values of a batch, in one buffer that is reused from batch to batch.
#[derive(Clone, Default, Debug)]
pub struct Values {
    room: Room,
    entries: Vec<ValueEntry>,
}

/// Where the value of a key stands in [`Values::data`], and what belongs to it. In an array of these other
/// languages find a batch without a call a key.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueEntry {
    /// Its first byte; 2^64 - 1: the key is absent.
    pub start: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The item's version.
    pub version: u64,
    /// When the item ends, in nanoseconds since 1970; 0: never.
    pub ends_ns: u64,
    /// The flags that whoever put it gave it.
    pub flags: u32,
    /// Always 0.
    pub reserved: u32,
}

impl ValueEntry {
    /// That of a key which is absent.
    pub const ABSENT: ValueEntry =
        ValueEntry { start: u64::MAX, bytes: 0, version: 0, ends_ns: 0, flags: 0, reserved: 0 };

    fn is_absent(&self) -> bool {
        self.start == u64::MAX
    }

    /// Where it stands.
    fn range(&self) -> Range<usize> {
        self.start as usize..(self.start + self.bytes) as usize
    }
}

/// A buffer that grows and never shrinks; the values stand in its first `used` bytes.
#[derive(Clone, Default, Debug)]
pub(crate) struct Room {
    bytes: Vec<u8>,
    used: usize,
    /// How much was used of what was taken last.
    taken: usize,
}

impl Room {
    pub fn used(&self) -> usize {
        self.used
    }

    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Room for the next value.
    #[inline(always)]
    pub fn next(&mut self, bytes: usize) -> &mut [u8] {
        if self.bytes.len() - self.used < bytes {
            self.grow(bytes);
        }
        &mut self.bytes[self.used..][..bytes]
    }

    #[cold]
    fn grow(&mut self, bytes: usize) {
        let wanted = (self.used + bytes).max(self.bytes.len() * 2);
        if self.bytes.is_empty() {
            // In place of what was taken comes about as much, and memory that the system clears itself.
            self.bytes = vec![0; wanted.max(self.taken + self.taken / 8)];
        } else {
            self.bytes.resize(wanted, 0);
        }
    }

    /// Takes the memory, without what is not used of it.
    pub fn take(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.truncate(self.used);
        (self.taken, self.used) = (self.used, 0);
        bytes
    }

    /// Keeps what was put there.
    #[inline(always)]
    pub fn keep(&mut self, bytes: usize, version: Version) -> ValueEntry {
        let start = self.used as u64;
        self.used += bytes;
        ValueEntry { start, bytes: bytes as u64, version: version.0, ..ValueEntry::ABSENT }
    }

    /// Adds bytes. Returns where they begin.
    pub fn push(&mut self, bytes: &[u8]) -> u64 {
        self.next(bytes.len()).copy_from_slice(bytes);
        self.used += bytes.len();
        (self.used - bytes.len()) as u64
    }

    /// All that is kept.
    pub fn all(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

impl Values {
    /// An empty buffer.
    pub fn new() -> Values {
        Values::default()
    }

    /// How many keys the last batch had.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the last batch had no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of the `index`-th key, `None` when it is absent.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let entry = &self.entries[index];
        (!entry.is_absent()).then(|| &self.room.bytes[entry.range()])
    }

    /// The version of the `index`-th key, `None` when it is absent.
    pub fn version(&self, index: usize) -> Option<Version> {
        let entry = &self.entries[index];
        (!entry.is_absent()).then_some(Version(entry.version))
    }

    /// The bytes of all values.
    pub fn data(&self) -> &[u8] {
        self.room.all()
    }

    /// An entry a key, in order.
    pub fn entries(&self) -> &[ValueEntry] {
        &self.entries
    }

    pub(crate) fn reset(&mut self, count: usize) {
        self.room.clear();
        self.entries.clear();
        self.entries.resize(count, ValueEntry::ABSENT);
    }

    /// The entries of `count` keys from `base` on, and the room for their values.
    pub(crate) fn parts(&mut self, base: usize, count: usize) -> (&mut [ValueEntry], &mut Room) {
        (&mut self.entries[base..base + count], &mut self.room)
    }

    /// Copies the value of an item from where it stands, behind what is kept; returns its length.
    #[inline(always)]
    pub(crate) fn copy_item(&mut self, item: PlainItem<'_>) -> Option<usize> {
        item.copy_value(self.room.next(item.value_bytes()))?;
        Some(item.value_bytes())
    }

    /// The same with bytes.
    #[inline(always)]
    pub(crate) fn put(&mut self, value: &[u8]) {
        self.room.next(value.len()).copy_from_slice(value);
    }

    /// Keeps what was copied there last, as the value of a key.
    #[inline(always)]
    pub(crate) fn keep(&mut self, index: usize, bytes: usize, version: Version) {
        self.entries[index] = self.room.keep(bytes, version);
    }

    /// Keeps none for a key.
    pub(crate) fn forget(&mut self, index: usize) {
        self.entries[index] = ValueEntry::ABSENT;
    }

    /// Copies the value of an item that has landed.
    pub(crate) fn set_item(&mut self, index: usize, landing: &Landing) {
        let value = landing.value();
        self.room.next(value.len()).copy_from_slice(value);
        let (view, kept) = (landing.view(), self.room.keep(value.len(), landing.view().version()));
        let (ends_ns, flags) = (view.expiry().unwrap_or(0), view.client_flags());
        self.entries[index] = ValueEntry { ends_ns, flags, ..kept };
    }
}
