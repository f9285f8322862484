//! Records: structs whose fields are the attributes and links of an item.
//!
//! A [`Record`] writes its fields by their position in [`Record::NAMES`]. A [`Schema`] holds the numbers that
//! the names have in its table, so that no name is looked up for an item:
//!
//! ```text
//! put   fields -> numbers -> attribute section -> request   of one table in one life of the store
//! get   item   -> numbers -> fields                         among the names that the item was read with
//! ```
//!
//! Both kinds of numbers are resolved again when what they belong to has changed, so a schema outlives its
//! server.

use std::fmt::Display;
use std::marker::PhantomData;

use kelix_image::AttributeBuilder;
use kelix_types::{Error, ErrorKind, NameId, Result, TableId, Version};
use kelix_wire::{Op, RequestHead};

use crate::Table;
use crate::engine::check_key;
use crate::item::{Item, Link, NewItem};
use crate::session::{CompareAndSet, Session, compared};

/// A struct whose fields are the attributes and links of an item. `#[derive(kelix::Record)]`, of the feature
/// `derive`, implements it for structs with named fields.
///
/// | field | stands in the item as |
/// |---|---|
/// | `name: T`, where `T` is an [`AttributeValue`] | bytes under the name of the field |
/// | `name: Option<T>` | the same, or nothing |
/// | `#[kelix(link)] name: LinkTarget` | one link under the name of the field |
/// | `#[kelix(link)] name: Option<LinkTarget>` | one link or none |
/// | `#[kelix(link)] name: Vec<LinkTarget>` | a list of links |
/// | `#[kelix(rename = "other")]`, `#[kelix(link = "other")]` | the same under another name |
/// | `#[kelix(rename = "")]` | the item's plain value |
/// | `#[kelix(skip)]` | nothing, and is read as its default |
///
/// Attributes and links that no field names are ignored when an item is read, and gone when its record is
/// put.
///
/// ```
/// # #[cfg(feature = "derive")] {
/// use kelix::{LinkTarget, Record};
///
/// #[derive(Record, Debug, PartialEq)]
/// struct Person {
///     name: String,
///     #[kelix(rename = "born")]
///     year: u16,
///     mail: Option<String>,
///     #[kelix(link = "friend")]
///     friends: Vec<LinkTarget>,
/// }
/// assert_eq!(Person::NAMES, ["name", "born", "mail", "friend"]);
/// # }
/// ```
pub trait Record: Sized {
    /// Names of its attributes and links, each once, in the order of the fields.
    const NAMES: &'static [&'static str];

    /// Writes the fields into an item.
    fn write(&self, item: &mut RecordWriter<'_>);

    /// Reads the fields from an item.
    fn read(item: &RecordReader<'_>) -> Result<Self>;

    /// The record as an item to be put, for calls that take one: [`Session::submit_item`], or a put with an
    /// end ([`NewItem::expires_in`]). The names are looked up when the item is put; [`Schema::put`] goes
    /// without that.
    fn to_item(&self) -> NewItem {
        let mut item = NewItem::new();
        self.write(&mut RecordWriter {
            names: Self::NAMES,
            scratch: &mut Vec::new(),
            to: Sink::Item(&mut item),
        });
        item
    }

    /// Reads a record from an item, looking the names up; [`Schema::read`] goes without that. An item that
    /// does not hold what a field needs is an error of kind [`ErrorKind::NoSuchAttribute`] that names the
    /// field.
    fn from_item(item: &Item) -> Result<Self> {
        Self::read(&RecordReader { item, names: Self::NAMES, ids: None })
    }
}

/// A value that stands in an item as the bytes of one attribute.
///
/// Texts and bytes stand as they are. Numbers and truth values stand as text (`42`, `0.5`, `true`), as `kelix
/// load` writes them and `kelix get` shows them; `t`, `f`, `1` and `0` are read as truth values too. A number
/// is read if it is in the type's range. Types of one's own implement this trait.
pub trait AttributeValue: Sized {
    /// What the bytes have to be, as errors say it: "a number from 0 to 255".
    const EXPECTED: &'static str;

    /// The bytes, made in `scratch`, which is empty, where they do not stand anywhere. `None`: the item has
    /// no such attribute.
    fn bytes<'a>(&'a self, scratch: &'a mut Vec<u8>) -> Option<&'a [u8]>;

    /// The value of these bytes; `None` if they are not as expected.
    fn read(bytes: &[u8]) -> Option<Self>;

    /// The value where the item has no such attribute; `None` if it needs one.
    fn absent() -> Option<Self> {
        None
    }
}

/// Where a link leads: what a field of a [`Record`] holds that is a link.
///
/// Where the target stands in memory is not part of it. To follow a link with one read, keep the [`Item`]
/// beside the record ([`Schema::read`]) and use [`Session::follow`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LinkTarget {
    /// Table of the target.
    pub table: Table,
    /// Key of the target, which need not exist.
    pub key: Vec<u8>,
    /// The link's own bytes (an edge's attributes).
    pub bytes: Vec<u8>,
}

impl LinkTarget {
    /// A link to a key of a table, without bytes of its own.
    pub fn new(table: Table, key: impl Into<Vec<u8>>) -> LinkTarget {
        LinkTarget { table, key: key.into(), bytes: Vec::new() }
    }
}

/// Links under one name: [`LinkTarget`], `Option<LinkTarget>` or `Vec<LinkTarget>`.
pub trait LinkValue: Sized {
    /// How many links there have to be, as errors say it.
    const EXPECTED: &'static str;

    /// The links, in order.
    fn targets(&self) -> &[LinkTarget];

    /// The value of so many links, in order; `None` if they are too many or too few.
    fn read(links: impl ExactSizeIterator<Item = LinkTarget>) -> Option<Self>;
}

impl LinkValue for LinkTarget {
    const EXPECTED: &'static str = "one link";

    fn targets(&self) -> &[LinkTarget] {
        std::slice::from_ref(self)
    }

    fn read(mut links: impl ExactSizeIterator<Item = LinkTarget>) -> Option<Self> {
        if links.len() == 1 { links.next() } else { None }
    }
}

impl LinkValue for Option<LinkTarget> {
    const EXPECTED: &'static str = "one link at most";

    fn targets(&self) -> &[LinkTarget] {
        self.as_slice()
    }

    fn read(mut links: impl ExactSizeIterator<Item = LinkTarget>) -> Option<Self> {
        (links.len() <= 1).then(|| links.next())
    }
}

impl LinkValue for Vec<LinkTarget> {
    const EXPECTED: &'static str = "links";

    fn targets(&self) -> &[LinkTarget] {
        self
    }

    fn read(links: impl ExactSizeIterator<Item = LinkTarget>) -> Option<Self> {
        Some(links.collect())
    }
}

impl AttributeValue for String {
    const EXPECTED: &'static str = "text in UTF-8";

    fn bytes<'a>(&'a self, _: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        Some(self.as_bytes())
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        std::str::from_utf8(bytes).ok().map(String::from)
    }
}

impl AttributeValue for Vec<u8> {
    const EXPECTED: &'static str = "bytes";

    fn bytes<'a>(&'a self, _: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        Some(self)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        Some(bytes.to_vec())
    }
}

impl<const N: usize> AttributeValue for [u8; N] {
    const EXPECTED: &'static str = "as many bytes as its array has";

    fn bytes<'a>(&'a self, _: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        Some(self)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok()
    }
}

impl<T: AttributeValue> AttributeValue for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn bytes<'a>(&'a self, scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        self.as_ref()?.bytes(scratch)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        T::read(bytes).map(Some)
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl AttributeValue for bool {
    const EXPECTED: &'static str = "true or false";

    fn bytes<'a>(&'a self, _: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        Some(if *self { b"true" } else { b"false" })
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        match bytes {
            b"true" | b"t" | b"1" => Some(true),
            b"false" | b"f" | b"0" => Some(false),
            _ => None,
        }
    }
}

/// The text of a value, in a buffer.
fn text<'a>(value: &impl Display, scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    use std::io::Write;
    write!(scratch, "{value}").expect("memory takes all that is written to it");
    Some(scratch)
}

macro_rules! numbers {
    ($($number:ty: $expected:literal,)*) => {$(
        impl AttributeValue for $number {
            const EXPECTED: &'static str = $expected;

            fn bytes<'a>(&'a self, scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
                text(self, scratch)
            }

            fn read(bytes: &[u8]) -> Option<Self> {
                std::str::from_utf8(bytes).ok()?.parse().ok()
            }
        }
    )*};
}

numbers! {
    u8: "a number from 0 to 255",
    u16: "a number from 0 to 65535",
    u32: "a number of 32 bits without a sign",
    u64: "a number of 64 bits without a sign",
    u128: "a number of 128 bits without a sign",
    i8: "a number from -128 to 127",
    i16: "a number from -32768 to 32767",
    i32: "a number of 32 bits",
    i64: "a number of 64 bits",
    i128: "a number of 128 bits",
    f32: "a number",
    f64: "a number",
}

/// An item that a [`Record`] writes its fields into. The fields are named by their positions in
/// [`Record::NAMES`].
pub struct RecordWriter<'a> {
    names: &'static [&'static str],
    scratch: &'a mut Vec<u8>,
    to: Sink<'a>,
}

enum Sink<'a> {
    /// An item whose names are looked up when it is put.
    Item(&'a mut NewItem),
    /// A section of a table, whose names have these numbers. The error is the first one.
    Section {
        session: &'a mut Session,
        ids: &'a [NameId],
        section: &'a mut AttributeBuilder,
        outcome: &'a mut Result<()>,
    },
}

impl RecordWriter<'_> {
    /// Writes an attribute.
    pub fn attribute(&mut self, index: usize, value: &impl AttributeValue) {
        self.scratch.clear();
        let Some(bytes) = value.bytes(self.scratch) else { return };
        match &mut self.to {
            Sink::Item(item) => {
                **item = std::mem::take(*item).bytes(self.names[index], bytes);
            }
            Sink::Section { ids, section, .. } => section.bytes(ids[index], bytes),
        }
    }

    /// Writes links.
    pub fn links(&mut self, index: usize, links: &impl LinkValue) {
        for LinkTarget { table, key, bytes } in links.targets() {
            match &mut self.to {
                Sink::Item(item) => {
                    **item = std::mem::take(*item).link_with(self.names[index], *table, key, bytes);
                }
                Sink::Section { session, ids, section, outcome } => {
                    let Session { engine, catalogue, .. } = &mut **session;
                    match catalogue.link_table(engine, *table, key) {
                        Ok(table) => section.link(ids[index], table, key, bytes),
                        Err(error) if outcome.is_ok() => **outcome = Err(error),
                        Err(_) => {}
                    }
                }
            }
        }
    }
}

/// An item that a [`Record`] reads its fields from. The fields are named by their positions in
/// [`Record::NAMES`], and in errors by `field`.
pub struct RecordReader<'a> {
    item: &'a Item,
    names: &'static [&'static str],
    /// The names' numbers in the item's table, where they are known. `None`: the table has no such name.
    ids: Option<&'a [Option<NameId>]>,
}

impl RecordReader<'_> {
    fn id(&self, index: usize) -> Option<NameId> {
        match self.ids {
            Some(ids) => ids[index],
            None => self.item.name_id(self.names[index]),
        }
    }

    /// Reads an attribute.
    pub fn attribute<T: AttributeValue>(&self, index: usize, field: &str) -> Result<T> {
        let value = match self.id(index).and_then(|id| self.item.bytes_under(id)) {
            Some(bytes) => T::read(bytes),
            None => T::absent(),
        };
        value.ok_or_else(|| self.mismatch(index, field, T::EXPECTED))
    }

    /// Reads links.
    pub fn links<T: LinkValue>(&self, index: usize, field: &str) -> Result<T> {
        let links = || self.id(index).into_iter().flat_map(|id| self.item.links_under(id));
        let target = |link: Link<'_>| LinkTarget {
            table: self.item.table_of(&link),
            key: link.key.to_vec(),
            bytes: link.bytes.to_vec(),
        };
        let mut left = links();
        let count = links().count();
        let links = (0..count).map(|_| target(left.next().expect("as many as were counted")));
        T::read(links).ok_or_else(|| self.mismatch(index, field, T::EXPECTED))
    }

    #[cold]
    fn mismatch(&self, index: usize, field: &str, expected: &str) -> Error {
        let (key, name) = (String::from_utf8_lossy(self.item.key()), self.names[index]);
        let id = self.id(index);
        let links = id.map_or(0, |id| self.item.links_under(id).count());
        let found = match (id.and_then(|id| self.item.bytes_under(id)), links) {
            (Some(bytes), _) if bytes.len() <= SHOWN_BYTES_MAX => {
                format!("{:?}", String::from_utf8_lossy(bytes))
            }
            (Some(bytes), _) => format!("{} bytes", bytes.len()),
            (None, 0) => "nothing".to_string(),
            (None, 1) => "a link".to_string(),
            (None, links) => format!("{links} links"),
        };
        let context = format!("{field} needs {expected} under \"{name}\"; item \"{key}\" has {found} there");
        Error::new(ErrorKind::NoSuchAttribute, "read", context)
    }
}

/// Bytes that an error shows as they are.
const SHOWN_BYTES_MAX: usize = 64;

/// Records of one type in one table: puts and gets them without looking names up for an item. What is put is
/// made in memory that the schema keeps.
///
/// The names are resolved when a session first uses them. A schema serves any session, but one after the
/// other: give each thread's session its own.
///
/// ```
/// # fn main() -> kelix::Result<()> {
/// # #[cfg(feature = "derive")] {
/// use kelix::{Client, LinkTarget, Record, Schema};
///
/// #[derive(Record)]
/// struct Person {
///     name: String,
///     born: u16,
///     #[kelix(link)]
///     boss: Option<LinkTarget>,
/// }
///
/// # let directory = std::env::temp_dir().join(format!("kelix-records-{}", std::process::id()));
/// # let memory_bytes = 64 << 20;
/// # let config = kelix_server::ServerConfig {
/// #     directory: directory.clone(),
/// #     memory_bytes,
/// #     ..Default::default()
/// # };
/// # let server = kelix_server::Server::start(&config)?;
/// let mut session = Client::connect(&directory)?.session()?;
/// let table = session.create_table("people")?;
/// let mut people = Schema::<Person>::new(table);
///
/// people.put(&mut session, b"ada", &Person { name: "Ada".into(), born: 1815, boss: None })?;
/// let boss = Some(LinkTarget::new(table, "ada"));
/// people.put(&mut session, b"joe", &Person { name: "Joe".into(), born: 1990, boss })?;
///
/// let joe = session.get(table, b"joe")?.expect("just put");
/// assert_eq!(people.read(&joe)?.born, 1990);
/// let boss = session.follow(&joe, "boss")?.expect("just put");
/// assert_eq!(people.read(&boss)?.name, "Ada");
/// # }
/// # Ok(())
/// # }
/// ```
pub struct Schema<R> {
    table: Table,
    /// Numbers for puts, which the table gets if it does not have them, and what they belong to: a table in a
    /// life of the store.
    put_scope: Option<(TableId, u64)>,
    put_ids: Vec<NameId>,
    /// Numbers for reads, as far as the table has them, and what they belong to: also to how many names of
    /// the table were known.
    read_scope: Option<(TableId, u64, u16)>,
    read_ids: Vec<Option<NameId>>,
    section: AttributeBuilder,
    scratch: Vec<u8>,
    body: Vec<u8>,
    record: PhantomData<fn() -> R>,
}

impl<R: Record> Schema<R> {
    /// Records of a table. Nothing is sent.
    pub fn new(table: Table) -> Schema<R> {
        Schema {
            table,
            put_scope: None,
            put_ids: Vec::new(),
            read_scope: None,
            read_ids: Vec::new(),
            section: AttributeBuilder::default(),
            scratch: Vec::new(),
            body: Vec::new(),
            record: PhantomData,
        }
    }

    /// The table.
    pub fn table(&self) -> Table {
        self.table
    }

    /// Puts a record, as [`Session::put_item`] does an item. Returns its version.
    pub fn put(&mut self, session: &mut Session, key: &[u8], record: &R) -> Result<Version> {
        match self.write(session, "put", key, None, record)? {
            CompareAndSet::Done(version) => Ok(version.unwrap_or(Version(0))),
            CompareAndSet::Mismatch(_) => unreachable!("nothing was expected"),
        }
    }

    /// Puts a record if the key's version is still the expected one (`None`: if it is absent).
    pub fn compare_and_set(
        &mut self,
        session: &mut Session,
        key: &[u8],
        expected: Option<Version>,
        record: &R,
    ) -> Result<CompareAndSet> {
        self.write(session, "compare_and_set", key, Some(expected), record)
    }

    /// Gets a record. `Ok(None)`: the key is absent. Errors are those of [`Session::get`] and of
    /// [`Schema::read`].
    pub fn get(&mut self, session: &mut Session, key: &[u8]) -> Result<Option<R>> {
        let item = session.get(self.table, key)?;
        item.map(|item| self.read(&item)).transpose()
    }

    /// Reads a record from an item, of this table or another one. An item that does not hold what a field
    /// needs is an error of kind [`ErrorKind::NoSuchAttribute`] that names the field.
    pub fn read(&mut self, item: &Item) -> Result<R> {
        let scope = item.names_scope();
        if self.read_scope != Some(scope) {
            self.read_ids.clear();
            self.read_ids.extend(R::NAMES.iter().map(|name| item.name_id(name)));
            self.read_scope = Some(scope);
        }
        R::read(&RecordReader { item, names: R::NAMES, ids: Some(&self.read_ids) })
    }

    fn write(
        &mut self,
        session: &mut Session,
        operation: &'static str,
        key: &[u8],
        expect: Option<Option<Version>>,
        record: &R,
    ) -> Result<CompareAndSet> {
        let table = self.table;
        let answer = session.write_table(operation, table, |session, id| {
            check_key(id, key)?;
            self.resolve(session, id)?;
            let attributes = self.encode(session, record)?;
            let head = RequestHead { expect, attributes, ..RequestHead::new(Op::Put, 0, id) };
            session.engine.write(head, key, &self.body)
        })?;
        Ok(compared(Op::Put, &answer))
    }

    /// Looks up the numbers of the names for puts, if they are not known.
    fn resolve(&mut self, session: &mut Session, table: TableId) -> Result<()> {
        let scope = (table, session.engine.transport.handles());
        if self.put_scope == Some(scope) {
            return Ok(());
        }
        self.put_scope = None;
        let names = session.catalogue.names_table(&mut session.engine, table)?;
        self.put_ids.clear();
        for name in R::NAMES {
            self.put_ids.push(session.catalogue.name_id(&mut session.engine, names, name)?);
        }
        self.put_scope = Some(scope);
        Ok(())
    }

    /// Writes the record into the body of a request. Returns whether that has attributes, and is not just a
    /// value.
    fn encode(&mut self, session: &mut Session, record: &R) -> Result<bool> {
        let Schema { put_ids, section, scratch, body, .. } = self;
        section.clear();
        let mut outcome = Ok(());
        let to = Sink::Section { session, ids: put_ids, section, outcome: &mut outcome };
        record.write(&mut RecordWriter { names: R::NAMES, scratch, to });
        outcome?;
        body.clear();
        match section.plain() {
            Some(value) => body.extend_from_slice(value),
            None => {
                body.resize(section.section_bytes(), 0);
                section.write(body);
            }
        }
        Ok(section.plain().is_none())
    }
}
