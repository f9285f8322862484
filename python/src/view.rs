//! Views: tables of one generation of a dataset.
//!
//! A generation stays for as long as a session holds it. So a view is read in the session that opened it,
//! whichever thread does; where that session is of the parent of this process the view is opened anew, and
//! good if it is of the same generation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kelix::{Error, ErrorKind, Result, Session, Table};
use pyo3::prelude::*;

use crate::errors::OrRaise;
use crate::sessions::{Local, Scratch, Shared, forks};

/// A view, as its tables share it.
pub struct Viewed {
    pub shared: Arc<Shared>,
    dataset: String,
    generation: u64,
    names: Vec<String>,
    /// Only locked with the interpreter's lock held.
    held: Mutex<Held>,
}

struct Held {
    forks: u64,
    local: Arc<Mutex<Local>>,
    tables: Vec<Table>,
    _view: kelix::View,
}

impl Held {
    fn open(py: Python<'_>, shared: &Arc<Shared>, dataset: &str) -> PyResult<Held> {
        let local = shared.local(py)?;
        let name = dataset.to_string();
        let view = shared.run_in(py, &local, move |local| local.session()?.view(&name))?;
        let tables = view.tables().map(|name| view.table(name)).collect::<Result<_>>().or_raise(py)?;
        Ok(Held { forks: forks(), local, tables, _view: view })
    }
}

impl Viewed {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn local(self: &Arc<Self>, py: Python<'_>) -> PyResult<Arc<Mutex<Local>>> {
        {
            let held = self.held();
            if held.forks == forks() {
                return Ok(held.local.clone());
            }
        }
        let fresh = Held::open(py, &self.shared, &self.dataset)?;
        if fresh._view.generation() != self.generation {
            let context = format!(
                "generation {} of \"{}\", which this process inherited, was replaced; open another view",
                self.generation, self.dataset
            );
            return Err(Error::new(ErrorKind::ViewExpired, "view", context)).or_raise(py);
        }
        let local = fresh.local.clone();
        let old = std::mem::replace(&mut *self.held(), fresh);
        if old.local.try_lock().is_err() {
            // A thread of the parent had locked it when this process was forked off.
            std::mem::forget(old.local);
        }
        Ok(local)
    }

    /// Does what never waits with one of the tables.
    #[inline]
    pub fn at_once<T>(
        &self,
        table: usize,
        call: impl FnOnce(&mut Session, Table, &mut Scratch) -> Option<T>,
    ) -> Option<T> {
        let held = self.held();
        if held.forks != forks() {
            return None;
        }
        let mut local = held.local.try_lock().ok()?;
        let (session, scratch) = local.parts().ok()?;
        call(session, held.tables[table], scratch)
    }

    /// Does something in the view's session, without the interpreter's lock.
    pub fn run<T: Send + 'static>(
        self: &Arc<Self>,
        py: Python<'_>,
        call: impl FnOnce(&mut Session, &mut Scratch) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let local = self.local(py)?;
        self.shared.run_in(py, &local, move |local| {
            let (session, scratch) = local.parts()?;
            call(session, scratch)
        })
    }

    /// Does something with one of the tables, without the interpreter's lock.
    pub fn run_table<T: Send + 'static>(
        self: &Arc<Self>,
        py: Python<'_>,
        table: usize,
        mut call: impl FnMut(&mut Session, Table, &mut Scratch) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        // Where this is a child, it is another table after this.
        self.local(py)?;
        let table = self.held().tables[table];
        self.run(py, move |session, scratch| call(session, table, scratch))
    }

    /// The session, and one of the tables.
    pub fn session_and_table(
        self: &Arc<Self>,
        py: Python<'_>,
        table: usize,
    ) -> PyResult<(Arc<Mutex<Local>>, Table)> {
        let local = self.local(py)?;
        Ok((local, self.held().tables[table]))
    }

    /// The number of a table.
    pub fn number(&self, py: Python<'_>, name: &str) -> PyResult<usize> {
        self.names.iter().position(|known| known == name).map_or_else(
            || {
                let context = format!(
                    "there is no table \"{name}\" in generation {} of \"{}\"; it has {}",
                    self.generation,
                    self.dataset,
                    self.names.join(", ")
                );
                Err(Error::new(ErrorKind::NoSuchTable, "table", context)).or_raise(py)
            },
            Ok,
        )
    }
}

/// A view of a dataset.
#[pyclass(frozen, module = "kelix._kelix")]
pub struct View {
    pub viewed: Arc<Viewed>,
}

impl View {
    pub fn open(py: Python<'_>, shared: &Arc<Shared>, dataset: &str) -> PyResult<View> {
        let held = Held::open(py, shared, dataset)?;
        let viewed = Viewed {
            shared: shared.clone(),
            dataset: dataset.into(),
            generation: held._view.generation(),
            names: held._view.tables().map(String::from).collect(),
            held: Mutex::new(held),
        };
        Ok(View { viewed: Arc::new(viewed) })
    }
}

#[pymethods]
impl View {
    /// The dataset's name.
    #[getter]
    fn dataset(&self) -> &str {
        &self.viewed.dataset
    }

    /// The generation's number.
    #[getter]
    fn generation(&self) -> u64 {
        self.viewed.generation
    }

    /// The names of the tables.
    fn tables(&self) -> Vec<String> {
        self.viewed.names.clone()
    }
}
