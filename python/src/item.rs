//! Items with all that belongs to them, and walks along their links.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use kelix::{Arrival, Attribute, TableId, Walker};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::table::Place;

/// Items of a walk that are read together.
const WALK_BATCH: usize = 64;

/// A link of an item.
#[pyclass(frozen, eq, hash, module = "kelix._kelix")]
#[derive(PartialEq, Eq, Hash, Clone)]
pub struct Link {
    /// The name of the table that it leads to; `None`: that was dropped.
    #[pyo3(get)]
    table: Option<String>,
    /// The key that it leads to.
    key: Vec<u8>,
    /// Its own bytes.
    data: Vec<u8>,
}

#[pymethods]
impl Link {
    #[new]
    #[pyo3(signature = (table, key, data = Vec::new()))]
    fn new(table: Option<String>, key: Vec<u8>, data: Vec<u8>) -> Link {
        Link { table, key, data }
    }

    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.key)
    }

    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.data)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (key, data) = (self.key(py).repr()?, self.data(py).repr()?);
        Ok(format!("Link({:?}, {key}, {data})", self.table.as_deref().unwrap_or("?")))
    }
}

/// An item as it was read: a copy of one version.
#[pyclass(frozen, module = "kelix._kelix")]
pub struct Item {
    pub item: kelix::Item,
    pub place: Place,
}

impl Item {
    fn and<T: Send + 'static>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut kelix::Session, &kelix::Item) -> kelix::Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let item = self.item.clone();
        self.place.run_session(py, move |session| call(session, &item))
    }

    fn of(&self, item: kelix::Item) -> Item {
        Item { item, place: self.place.clone() }
    }
}

#[pymethods]
impl Item {
    /// The key, as bytes.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.item.key())
    }

    /// The value, as bytes.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.item.value())
    }

    /// The version, for compare-and-set.
    #[getter]
    fn version(&self) -> u64 {
        self.item.version().0
    }

    /// The flags that whoever put it gave it.
    #[getter]
    fn flags(&self) -> u32 {
        self.item.flags()
    }

    /// When it ends, in nanoseconds since 1970; `None`: never.
    #[getter]
    fn expires_ns(&self) -> Option<u64> {
        let ends = self.item.expires()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(ends.as_nanos() as u64)
    }

    /// The attributes that are bytes, by their names: of each name the first.
    #[getter]
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let attributes = PyDict::new(py);
        for (name, attribute) in self.item.attributes() {
            if let Attribute::Bytes(bytes) = attribute {
                if !name.is_empty() && !attributes.contains(name)? {
                    attributes.set_item(name, PyBytes::new(py, bytes))?;
                }
            }
        }
        Ok(attributes)
    }

    /// The links, by their names.
    #[getter]
    fn links(&self, py: Python<'_>) -> PyResult<HashMap<String, Vec<Link>>> {
        self.and(py, |session, item| {
            let mut names: HashMap<TableId, Option<String>> = HashMap::new();
            let mut links: HashMap<String, Vec<Link>> = HashMap::new();
            for (name, attribute) in item.attributes() {
                let Attribute::Link(link) = attribute else { continue };
                let table = match names.entry(link.table) {
                    Entry::Occupied(known) => known.get().clone(),
                    Entry::Vacant(unknown) => unknown.insert(session.table_name(link.table)?).clone(),
                };
                let link = Link { table, key: link.key.to_vec(), data: link.bytes.to_vec() };
                links.entry(name.to_string()).or_default().push(link);
            }
            Ok(links)
        })
    }

    /// The item that the first link of a name leads to; `None`: it is not there.
    fn follow(&self, py: Python<'_>, name: String) -> PyResult<Option<Item>> {
        let found = self.and(py, move |session, item| session.follow(item, &name))?;
        Ok(found.map(|item| self.of(item)))
    }

    /// The items that all links of a name lead to, in order.
    fn follow_all(&self, py: Python<'_>, name: String) -> PyResult<Vec<Option<Item>>> {
        let found = self.and(py, move |session, item| session.follow_all(item, &name))?;
        Ok(found.into_iter().map(|item| item.map(|item| self.of(item))).collect())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (key, version) = (self.key(py).repr()?, self.version());
        Ok(format!("<kelix.Item {key}, version {version}>"))
    }
}

/// An item that a walk has come to.
#[pyclass(frozen, module = "kelix._kelix")]
pub struct Visit {
    /// The item.
    #[pyo3(get)]
    item: Py<Item>,
    /// How many items came before.
    #[pyo3(get)]
    number: usize,
    /// The number of the item whose link led here; `None` where the walk began.
    #[pyo3(get)]
    origin: Option<usize>,
    /// How many links from where the walk began.
    #[pyo3(get)]
    depth: u32,
}

struct Steps {
    /// `None`: the walk is over, or a signal left it behind.
    walker: Option<Walker>,
    ready: VecDeque<Arrival>,
}

/// A walk along links.
#[pyclass(frozen, module = "kelix._kelix")]
pub struct Walk {
    place: Place,
    steps: Mutex<Steps>,
}

impl Walk {
    pub fn new(place: Place, walker: Walker) -> Walk {
        Walk { place, steps: Mutex::new(Steps { walker: Some(walker), ready: VecDeque::new() }) }
    }

    fn steps(&self) -> PyResult<std::sync::MutexGuard<'_, Steps>> {
        self.steps.try_lock().map_err(|_| PyValueError::new_err("another thread is at this walk"))
    }
}

#[pymethods]
impl Walk {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Visit>> {
        let mut steps = self.steps()?;
        if steps.ready.is_empty() {
            let Some(mut walker) = steps.walker.take() else { return Ok(None) };
            let (walker, ready) = self.place.run_session(py, move |session| {
                let ready: VecDeque<Arrival> = walker.next_batch(session, WALK_BATCH)?.to_vec().into();
                Ok((walker, ready))
            })?;
            steps.walker = Some(walker).filter(|_| !ready.is_empty());
            steps.ready = ready;
        }
        let Some(Arrival { item, number, from: origin, depth }) = steps.ready.pop_front() else {
            return Ok(None);
        };
        let item = Py::new(py, Item { item, place: self.place.clone() })?;
        Ok(Some(Visit { item, number, origin, depth }))
    }

    /// The walk does not go along the links of this item, if it has not gone there yet.
    fn turn_back(&self, visit: &Visit) -> PyResult<()> {
        if let Some(walker) = &mut self.steps()?.walker {
            walker.turn_back(visit.number);
        }
        Ok(())
    }
}
