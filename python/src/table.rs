//! Tables as mappings: what of `kelix.Table` is not written in Python.

use std::sync::{Arc, Mutex};

use kelix::{
    CompareAndSet, Error, ErrorKind, NewItem, Result, Scan, Session, TableKind, TryGet, Values, Version,
    Walk as Along,
};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyType};

use crate::arrow::{ArrowBatch, ArrowScan, Types};
use crate::batch::Strings;
use crate::codec::{Codec, Role, kind_of};
use crate::errors::{exception, invalid};
use crate::item::{Item, Walk};
use crate::memory::Memory;
use crate::scan::{Range, Rows, What};
use crate::sessions::{Local, Named, Scratch, Shared};
use crate::store::{Store, duration};
use crate::view::{View, Viewed};

/// Longest value that the memory of a session is made long enough for.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Longest range for which there is memory before it is known how long the value is.
const SHORT_RANGE_BYTES: usize = 4096;

/// Where a table is, and the sessions in which it is read.
#[derive(Clone)]
pub enum Place {
    Store(Arc<Shared>, Named),
    View(Arc<Viewed>, usize),
}

impl Place {
    pub fn shared(&self) -> &Arc<Shared> {
        match self {
            Place::Store(shared, _) => shared,
            Place::View(viewed, _) => &viewed.shared,
        }
    }

    /// Does what never waits, with the interpreter's lock held; `None`: there is nothing to do it with.
    #[inline]
    pub fn at_once<T>(
        &self,
        call: impl FnOnce(&mut Session, kelix::Table, &mut Scratch) -> Option<T>,
    ) -> Option<T> {
        match self {
            Place::Store(shared, named) => shared.at_once(named, call),
            Place::View(viewed, table) => viewed.at_once(*table, call),
        }
    }

    /// Does what may wait, without the interpreter's lock.
    pub fn run<T: Send + 'static>(
        &self,
        py: Python<'_>,
        makes: bool,
        call: impl FnMut(&mut Session, kelix::Table, &mut Scratch) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        match self {
            Place::Store(shared, named) => shared.run_table(py, named, makes, call),
            Place::View(viewed, table) => viewed.run_table(py, *table, call),
        }
    }

    /// Does what may wait and needs no table.
    pub fn run_session<T: Send + 'static>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Session) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        match self {
            Place::Store(shared, _) => shared.run(py, |session, _| call(session)),
            Place::View(viewed, _) => viewed.run(py, |session, _| call(session)),
        }
    }

    /// The session and the table, for what is read without the interpreter.
    pub fn session_and_table(&self, py: Python<'_>) -> PyResult<(Arc<Mutex<Local>>, kelix::Table)> {
        match self {
            Place::Store(shared, _) => {
                let table = self.run(py, false, |_, table, _| Ok(table))?;
                Ok((shared.local(py)?, table))
            }
            Place::View(viewed, table) => viewed.session_and_table(py, *table),
        }
    }

    /// The values of keys.
    pub fn values(&self, py: Python<'_>, keys: Strings) -> PyResult<Values> {
        self.run(py, false, move |session, table, scratch| {
            let mut values = std::mem::take(&mut scratch.values);
            session.multi_get_into(table, &keys.slices(), &mut values)?;
            Ok(values)
        })
    }

    /// Gives memory back to the session that it is of.
    pub fn give_back(&self, values: Values) {
        self.at_once(|_, _, scratch| {
            scratch.values = values;
            Some(())
        });
    }
}

/// A table.
#[pyclass(subclass, frozen, mapping, module = "kelix._kelix")]
pub struct Table {
    pub place: Place,
    name: String,
    pub key: Codec,
    pub value: Codec,
}

/// A link to be put: its name, the table and the key that it leads to, and its own bytes.
pub type NewLink = (String, String, Vec<u8>, Vec<u8>);

/// What is put besides the value.
#[derive(FromPyObject)]
pub struct Extras {
    #[pyo3(item)]
    attributes: Vec<(String, Vec<u8>)>,
    #[pyo3(item)]
    links: Vec<NewLink>,
    #[pyo3(item)]
    flags: u32,
    #[pyo3(item)]
    expires_in: Option<f64>,
}

impl Table {
    /// The object under a key.
    #[inline]
    fn find<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = key.py();
        let encoded = self.key.encode(key, Role::Key)?;
        let bytes = encoded.bytes()?;
        let at_once = self.place.at_once(|session, table, scratch| {
            match session.try_get_into(table, bytes, &mut scratch.buffer) {
                Ok(TryGet::Found(length, _)) => Some(Some(self.value.plain(py, &scratch.buffer[..length])?)),
                Ok(TryGet::Absent) => Some(None),
                // What waits, and what is an error, is done again where waiting does no harm.
                Ok(TryGet::WouldWait) | Err(_) => None,
            }
        });
        let decoded = match at_once {
            Some(found) => found,
            None => self.find_slowly(py, bytes.to_vec())?,
        };
        decoded.map(|decoded| self.value.finish(decoded)).transpose()
    }

    #[cold]
    fn find_slowly<'py>(&self, py: Python<'py>, key: Vec<u8>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let found = self
            .place
            .run(py, false, move |session, table, scratch| get(session, table, &key, &mut scratch.buffer))?;
        found.map(|bytes| self.value.decode(py, &bytes)).transpose()
    }

    fn codecs(&self, py: Python<'_>) -> (Codec, Codec) {
        (self.key.clone_ref(py), self.value.clone_ref(py))
    }

    pub fn key_bytes(&self, key: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
        Ok(self.key.encode(key, Role::Key)?.bytes()?.to_vec())
    }

    fn absent(&self, key: &Bound<'_, PyAny>) -> PyErr {
        PyKeyError::new_err(key.clone().unbind())
    }

    fn put_any(
        &self,
        key: &Bound<'_, PyAny>,
        value: Option<Vec<u8>>,
        extras: Extras,
        conditional: bool,
        expected: Option<u64>,
    ) -> PyResult<(bool, Option<u64>)> {
        let py = key.py();
        let key = self.key_bytes(key)?;
        extras.check(py)?;
        let expected = expected.map(Version);
        self.place.run(py, true, move |session, table, _| {
            let put = match &value {
                Some(value) if extras.are_none() && conditional => {
                    session.compare_and_set(table, &key, expected, value)?
                }
                Some(value) if extras.are_none() => {
                    CompareAndSet::Done(Some(session.put(table, &key, value)?))
                }
                value => {
                    let item = extras.item(session, value.as_deref())?;
                    match conditional {
                        true => session.compare_and_set_item(table, &key, expected, &item)?,
                        false => CompareAndSet::Done(Some(session.put_item(table, &key, &item)?)),
                    }
                }
            };
            Ok(told(put))
        })
    }

    fn delete(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let bytes = self.key_bytes(key)?;
        self.place.run(key.py(), false, move |session, table, _| session.delete(table, &bytes))
    }
}

/// A value, in memory that is used again, unless it is very long.
fn get(
    session: &mut Session,
    table: kelix::Table,
    key: &[u8],
    buffer: &mut Vec<u8>,
) -> Result<Option<Vec<u8>>> {
    loop {
        match session.get_into(table, key, buffer) {
            Ok(found) => return Ok(found.map(|(length, _)| buffer[..length].to_vec())),
            Err(error) => match error.needed_bytes() {
                Some(bytes) if bytes <= KEPT_BYTES_MAX => buffer.resize(bytes.next_power_of_two(), 0),
                Some(_) => return Ok(session.get(table, key)?.map(|item| item.value().to_vec())),
                None => return Err(error),
            },
        }
    }
}

impl Extras {
    pub fn are_none(&self) -> bool {
        let Extras { attributes, links, flags, expires_in } = self;
        attributes.is_empty() && links.is_empty() && *flags == 0 && expires_in.is_none()
    }

    /// Refuses times that are none.
    pub fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.expires_in.map(|seconds| duration(py, "put", seconds)).transpose().map(drop)
    }

    pub fn item(&self, session: &mut Session, value: Option<&[u8]>) -> Result<NewItem> {
        let mut item = NewItem::new().flags(self.flags);
        if let Some(seconds) = self.expires_in {
            item = item.expires_in(std::time::Duration::from_secs_f64(seconds));
        }
        if let Some(value) = value {
            item = item.bytes("", value);
        }
        for (name, bytes) in &self.attributes {
            item = item.bytes(name, bytes);
        }
        for (name, table, key, data) in &self.links {
            let table = session.table(table)?;
            item = item.link_with(name, table, key, data);
        }
        Ok(item)
    }
}

#[pymethods]
impl Table {
    #[new]
    fn new(
        py: Python<'_>,
        of: &Bound<'_, PyAny>,
        name: String,
        kind: Option<&str>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<Table> {
        let place = match of.cast::<View>() {
            Ok(view) => {
                let viewed = view.get().viewed.clone();
                let number = viewed.number(py, &name)?;
                Place::View(viewed, number)
            }
            Err(_) => {
                let shared = of.cast::<Store>()?.get().shared.clone();
                let kind = kind.map(|kind| kind_of(py, kind)).transpose()?;
                let named = shared.named(&name, kind);
                Place::Store(shared, named)
            }
        };
        Ok(Table { place, name, key: Codec::of(key, Role::Key)?, value: Codec::of(value, Role::Value)? })
    }

    /// Types in brackets are for those who check types.
    #[classmethod]
    fn __class_getitem__<'py>(class: &Bound<'py, PyType>, types: &Bound<'py, PyAny>) -> Bound<'py, PyType> {
        let _ = types;
        class.clone()
    }

    /// The table's name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// What the table holds: "hash", "ordered", "numbers" or "inline".
    #[getter]
    fn kind(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.place.run(py, false, |_, table, _| {
            Ok(match table.kind() {
                TableKind::Hash => "hash",
                TableKind::Strings => "ordered",
                TableKind::Numbers => "numbers",
                TableKind::Inline => "inline",
            })
        })
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.find(key)?.ok_or_else(|| self.absent(key))
    }

    #[pyo3(signature = (key, default = None, /))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.find(key)?.or(default))
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let bytes = self.key_bytes(key)?;
        let at_once = self.place.at_once(|session, table, scratch| {
            match session.try_get_into(table, &bytes, &mut scratch.buffer) {
                Ok(TryGet::Found(..)) => Some(true),
                Ok(TryGet::Absent) => Some(false),
                _ => None,
            }
        });
        if let Some(found) = at_once {
            return Ok(found);
        }
        // None of the value's bytes are asked for.
        self.place.run(key.py(), false, move |session, table, _| {
            Ok(session.get_range_into(table, &bytes, 0, &mut [])?.is_some())
        })
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = key.py();
        let (key, value) = (self.key_bytes(key)?, self.value.encode(value, Role::Value)?.bytes()?.to_vec());
        self.place.run(py, true, move |session, table, _| session.put(table, &key, &value).map(drop))
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.delete(key)? { Ok(()) } else { Err(self.absent(key)) }
    }

    /// Deletes a key. `False`: it was absent.
    #[pyo3(name = "discard")]
    fn delete_if_there(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.delete(key)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.place.run(py, false, |session, table, _| session.count(table, &Scan::all()))? as usize)
    }

    fn _count(&self, py: Python<'_>, range: Range<'_>) -> PyResult<u64> {
        let scan = range.scan(&self.key)?;
        self.place.run(py, false, move |session, table, _| session.count(table, &scan))
    }

    fn __iter__(&self, py: Python<'_>) -> Rows {
        Rows::new(self.place.clone(), self.codecs(py), What::Keys, Scan::all())
    }

    fn _rows(&self, py: Python<'_>, what: &str, range: Range<'_>) -> PyResult<Rows> {
        let what = match what {
            "keys" => What::Keys,
            "values" => What::Values,
            _ => What::Items,
        };
        Ok(Rows::new(self.place.clone(), self.codecs(py), what, range.scan(&self.key)?))
    }

    /// Puts an item. Returns whether it was put, and the version that the key has now.
    fn _put(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        extras: Extras,
        conditional: bool,
        expected: Option<u64>,
    ) -> PyResult<(bool, Option<u64>)> {
        let value = self.value.encode(value, Role::Value)?.bytes()?.to_vec();
        self.put_any(key, Some(value), extras, conditional, expected)
    }

    /// Puts an item without a value.
    fn _put_item(
        &self,
        key: &Bound<'_, PyAny>,
        extras: Extras,
        conditional: bool,
        expected: Option<u64>,
    ) -> PyResult<(bool, Option<u64>)> {
        self.put_any(key, None, extras, conditional, expected)
    }

    /// Deletes a key that has this version. Returns whether it was deleted, and the version that it has.
    fn _delete_if(&self, key: &Bound<'_, PyAny>, expected: u64) -> PyResult<(bool, Option<u64>)> {
        let bytes = self.key_bytes(key)?;
        self.place.run(key.py(), false, move |session, table, _| {
            Ok(told(session.compare_and_delete(table, &bytes, Version(expected))?))
        })
    }

    /// Deletes all keys that are there when their turn comes.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        loop {
            let deleted = self.place.run(py, false, |session, table, _| {
                let mut rows = kelix::Rows::new();
                let mut scan = session.open_scan(table, &Scan::all())?;
                let mut deleted = 0;
                // A page is short enough for a signal to be seen in time.
                let more = scan.next_rows(session, &mut rows, 512)?;
                for index in 0..rows.len() {
                    deleted += usize::from(session.delete(table, rows.key(index))?);
                }
                Ok((deleted, more))
            });
            match deleted {
                Ok((_, false)) | Ok((0, true)) => return Ok(()),
                Ok(_) => py.check_signals()?,
                Err(error) if is_no_table(py, &error)? => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// The item under a key, with attributes, links, version and flags; `None`: it is absent.
    fn item(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<Item>> {
        let bytes = self.key_bytes(key)?;
        let found = self.place.run(key.py(), false, move |session, table, _| session.get(table, &bytes))?;
        Ok(found.map(|item| Item { item, place: self.place.clone() }))
    }

    /// Bytes of a value, from a place in it on; `None`: the key is absent.
    #[pyo3(signature = (key, start, length))]
    fn get_range<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        start: i128,
        length: i128,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let py = key.py();
        let (Ok(start), Ok(length)) = (u64::try_from(start), usize::try_from(length)) else {
            return Err(invalid(py, "get_range", "a range begins at 0 or later, and has no negative length"));
        };
        let bytes = self.key_bytes(key)?;
        let part = self.place.run(py, false, move |session, table, _| {
            let mut room = length;
            if length > SHORT_RANGE_BYTES {
                // As much memory as there is value, and not as was asked for.
                let Some(all) = session.get_range_into(table, &bytes, 0, &mut [])? else { return Ok(None) };
                let left = (all.value_bytes as u64).saturating_sub(start);
                room = length.min(usize::try_from(left).unwrap_or(usize::MAX));
            }
            let mut buffer = vec![0; room];
            let part = session.get_range_into(table, &bytes, start, &mut buffer)?;
            Ok(part.map(|part| {
                buffer.truncate(part.copied);
                buffer
            }))
        })?;
        Ok(part.map(|part| PyBytes::new(py, &part)))
    }

    /// Copies a value into writable memory. Returns how many bytes it has; `None`: the key is absent.
    fn get_into(&self, key: &Bound<'_, PyAny>, buffer: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        const OPERATION: &str = "get_into";
        let py = key.py();
        let bytes = self.key_bytes(key)?;
        let mut memory = Memory::of(OPERATION, "the buffer", buffer)?;
        let at_once = self.place.at_once(|session, table, scratch| {
            match session.try_get_into(table, &bytes, &mut scratch.buffer) {
                Ok(TryGet::Found(length, _)) => Some(Some(scratch.buffer[..length].to_vec())),
                Ok(TryGet::Absent) => Some(None),
                Ok(TryGet::WouldWait) | Err(_) => None,
            }
        });
        let found = match at_once {
            Some(found) => found,
            None => self.place.run(py, false, move |session, table, scratch| {
                get(session, table, &bytes, &mut scratch.buffer)
            })?,
        };
        let Some(value) = found else { return Ok(None) };
        let room = memory.len();
        match memory.bytes(py).get_mut(..value.len()) {
            Some(part) => part.copy_from_slice(&value),
            None => {
                let context = format!("the value has {} bytes, and the buffer {room}", value.len());
                let error = Error::new(ErrorKind::BufferTooSmall, OPERATION, context);
                return Err(exception(py, &error.with_needed_bytes(value.len())));
            }
        }
        Ok(Some(value.len()))
    }

    /// How many bytes a value has; `None`: the key is absent. The value is not read.
    fn value_bytes(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        let bytes = self.key_bytes(key)?;
        self.place.run(key.py(), false, move |session, table, _| {
            Ok(session.get_range_into(table, &bytes, 0, &mut [])?.map(|part| part.value_bytes))
        })
    }

    /// The items of many keys, in order; `None` where one is absent.
    fn multi_item(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<Vec<Option<Item>>> {
        let keys = crate::batch::encode_keys(&self.key, keys)?;
        let found =
            self.place.run(py, false, move |session, table, _| session.multi_get(table, &keys.slices()))?;
        let item = |item| Item { item, place: self.place.clone() };
        Ok(found.into_iter().map(|found| found.map(item)).collect())
    }

    /// Walks along links, from keys of this table.
    fn _walk(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        links: Vec<String>,
        depth: Option<u32>,
        depth_first: bool,
    ) -> PyResult<Walk> {
        let keys = crate::batch::encode_keys(&self.key, keys)?;
        let walker = self.place.run(py, false, move |session, table, _| {
            let links: Vec<&str> = links.iter().map(String::as_str).collect();
            let mut along = Along::along(&links);
            if let Some(depth) = depth {
                along = along.to_depth(depth);
            }
            if depth_first {
                along = along.depth_first();
            }
            let from: Vec<(kelix::Table, &[u8])> =
                keys.slices().into_iter().map(|key| (table, key)).collect();
            session.begin_walk(&from, &along)
        })?;
        Ok(Walk::new(self.place.clone(), walker))
    }

    /// The values of many keys, in order; `None` where one is absent.
    fn multi_get<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        self.get_many(py, keys)
    }

    /// Copies the values of many keys into the rows of writable memory, such as an array of numpy's.
    fn rows<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        out: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyByteArray>> {
        self.get_rows(py, keys, out)
    }

    fn _put_many(&self, py: Python<'_>, pairs: &Bound<'_, PyList>) -> PyResult<()> {
        self.put_many(py, pairs)
    }

    /// Many keys and their values, for whatever reads Arrow.
    fn _arrow(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<ArrowBatch> {
        let keys = crate::batch::encode_keys(&self.key, keys)?;
        ArrowBatch::read(py, &self.place, keys, Types::of(&self.key, &self.value))
    }

    /// A scan, for whatever reads Arrow.
    fn _arrow_scan(&self, py: Python<'_>, range: Range<'_>, attributes: Vec<String>) -> PyResult<ArrowScan> {
        let types = Types::of(&self.key, &self.value);
        ArrowScan::new(py, self.place.clone(), range.scan(&self.key)?, attributes, types)
    }

    /// The names of attributes and links that items of the table have had.
    fn attribute_names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.place.run(py, false, |session, table, _| session.attribute_names(table))
    }

    /// The bytes of a key of this table, for links that lead to it.
    #[pyo3(name = "_key_bytes")]
    fn link_key<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(key.py(), &self.key_bytes(key)?))
    }
}

/// Whether a write with an expected version was done, and the version that the key has now.
pub fn told(put: CompareAndSet) -> (bool, Option<u64>) {
    match put {
        CompareAndSet::Done(version) => (true, version.map(|version| version.0)),
        CompareAndSet::Mismatch(version) => (false, version.map(|version| version.0)),
    }
}

/// Whether an exception says that there is no such table: then nothing is in it.
fn is_no_table(py: Python<'_>, error: &PyErr) -> PyResult<bool> {
    let class = py.import("kelix.errors")?.getattr("NoSuchTable")?;
    Ok(error.is_instance(py, &class))
}
