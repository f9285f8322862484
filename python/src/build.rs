//! Builds: a generation of a dataset, put in force at once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kelix::{Error, ErrorKind, NewItem, NewTable, PausedBuild, Result, Session};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::batch::Strings;
use crate::codec::{Codec, Role, kind_of};
use crate::errors::OrRaise;
use crate::sessions::Shared;
use crate::store::{Store, duration};
use crate::table::NewLink;
use crate::wait::{Waited, wait};

/// What a build needs: a session of its own, so that others go on meanwhile, and so that it is given up with
/// it.
struct Under {
    session: Session,
    /// `None`: it has ended.
    build: Option<PausedBuild>,
}

/// A build under way.
#[pyclass(frozen, module = "kelix._kelix")]
pub struct Build {
    shared: Arc<Shared>,
    under: Arc<Mutex<Under>>,
    tables: Arc<Vec<String>>,
}

fn ended() -> Error {
    Error::new(ErrorKind::InvalidArgument, "build", "the build has ended")
}

impl Build {
    fn run<T: Send + 'static>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Under) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let under = self.under.clone();
        // As long as the shards need for what is sent; a build is not asked for again.
        let longest = self.shared.longest().max(Duration::from_secs(2));
        match wait(py, longest, move || call(&mut *under.lock().map_err(|_| ended())?))? {
            Waited::Ended(result) => result.or_raise(py),
            Waited::LeftBehind(raised) => Err(raised),
        }
    }
}

/// Goes on with a build, for one call. After an error it goes on as well, and whoever wants none of it does
/// not end it.
fn with<T>(under: &mut Under, call: impl FnOnce(&mut kelix::Build<'_>) -> Result<T>) -> Result<T> {
    let mut build = under.build.take().ok_or_else(ended)?.resume(&mut under.session)?;
    let result = call(&mut build);
    under.build = Some(build.pause());
    result
}

#[pymethods]
impl Build {
    #[new]
    fn new(
        py: Python<'_>,
        store: &Store,
        dataset: String,
        tables: Vec<(String, String, bool)>,
    ) -> PyResult<Build> {
        let shared = store.shared.clone();
        let mut kinds = Vec::new();
        for (_, kind, _) in &tables {
            kinds.push(kind_of(py, kind)?);
        }
        let mut session = shared.open(py)?;
        let names: Vec<String> = tables.iter().map(|(name, _, _)| name.clone()).collect();
        let begun = wait(py, shared.longest(), move || {
            let new: Vec<NewTable<'_>> = tables
                .iter()
                .zip(kinds)
                .map(|((name, _, overlay), kind)| NewTable::new(name, kind).overlay(*overlay))
                .collect();
            let build = session.build(&dataset, &new)?.pause();
            Ok::<_, Error>(Under { session, build: Some(build) })
        })?;
        match begun {
            Waited::Ended(under) => {
                let under = Arc::new(Mutex::new(under.or_raise(py)?));
                Ok(Build { shared, under, tables: Arc::new(names) })
            }
            Waited::LeftBehind(raised) => Err(raised),
        }
    }

    /// The names of the tables.
    fn tables(&self) -> Vec<String> {
        self.tables.to_vec()
    }

    /// Puts pairs of keys and values into a table.
    fn put_many(
        &self,
        py: Python<'_>,
        table: usize,
        pairs: &Bound<'_, PyList>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (key, value) = (Codec::of(key, Role::Key)?, Codec::of(value, Role::Value)?);
        let (mut keys, mut values) = (Strings::default(), Strings::default());
        for pair in pairs.iter() {
            let pair = pair.cast::<PyTuple>()?;
            keys.push(key.encode(&pair.get_item(0)?, Role::Key)?.bytes()?);
            values.push(value.encode(&pair.get_item(1)?, Role::Value)?.bytes()?);
        }
        self.run(py, move |under| {
            with(under, |build| {
                keys.slices()
                    .into_iter()
                    .zip(values.slices())
                    .try_for_each(|(key, value)| build.put(table, key, value))
            })
        })
    }

    /// Puts an item with attributes and links, which lead to tables of this build or of the store.
    #[expect(clippy::too_many_arguments, reason = "they are the parts of an item")]
    fn put_item(
        &self,
        py: Python<'_>,
        table: usize,
        key: Vec<u8>,
        value: Option<Vec<u8>>,
        attributes: Vec<(String, Vec<u8>)>,
        links: Vec<NewLink>,
        flags: u32,
        expires_in: Option<f64>,
    ) -> PyResult<()> {
        let expires_in = expires_in.map(|seconds| duration(py, "build", seconds)).transpose()?;
        let names = self.tables.clone();
        self.run(py, move |under| {
            let mut others = Vec::new();
            for (_, table, _, _) in &links {
                let is_here = names.contains(table);
                others.push(if is_here { None } else { Some(under.session.table(table)?) });
            }
            with(under, |build| {
                let mut item = NewItem::new().flags(flags);
                if let Some(time) = expires_in {
                    item = item.expires_in(time);
                }
                if let Some(value) = &value {
                    item = item.bytes("", value);
                }
                for (name, bytes) in &attributes {
                    item = item.bytes(name, bytes);
                }
                for ((name, table, key, data), other) in links.iter().zip(others) {
                    let here = || names.iter().position(|known| known == table).map(|at| build.table(at));
                    let target = other.or_else(here).ok_or_else(ended)?;
                    item = item.link_with(name, target, key, data);
                }
                build.put_item(table, &key, &item)
            })
        })
    }

    /// Puts the generation in force. Returns its number, and how many items, links, overlays and links that
    /// lead nowhere it has.
    fn finish(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u64, u64)> {
        let under = self.under.clone();
        // Links of many items are resolved, which takes as long as it takes.
        let waited = wait(py, Duration::MAX, move || {
            let mut under = under.lock().map_err(|_| ended())?;
            let Under { session, build } = &mut *under;
            build.take().ok_or_else(ended)?.resume(session)?.finish()
        })?;
        match waited {
            Waited::Ended(built) => {
                // What names lead to is known to the build's session, and not yet to those of threads.
                self.shared.note_changed();
                let built = built.or_raise(py)?;
                Ok((built.generation, built.items, built.links, built.overlays, built.dangling))
            }
            Waited::LeftBehind(raised) => Err(raised),
        }
    }

    /// Gives it up: nothing is left of it.
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |under| {
            if let Some(build) = under.build.take() {
                drop(build.resume(&mut under.session)?);
            }
            Ok(())
        })
    }
}
