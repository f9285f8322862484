//! Queues: operations that are submitted, and polled for when they have ended.
//!
//! A queue has a session of its own. One thread at a time uses the queue: a second one is refused, and does
//! not wait. What was submitted is remembered here by its ticket until a poll brings it, since the session
//! knows neither codecs nor tables of Python.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use kelix::{Error, ErrorKind, Outcome, PausedScan, Result, Session, Ticket, TryGet, Version};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::codec::Role;
use crate::errors::{OrRaise, exception, invalid};
use crate::item::Item;
use crate::scan::Range;
use crate::sessions::{Local, Named, Scratch, Shared, forks};
use crate::store::Store;
use crate::table::{Extras, Place, Table, told};

/// Longest value that goes into one message: a poll waits while it sends a longer one.
const MESSAGE_VALUE_BYTES_MAX: usize = 32 << 10;

/// What a completion brings of an item.
#[derive(Clone, Copy)]
enum Brings {
    /// Its value, by the table's codec.
    Value,
    /// All of it.
    Item,
}

/// What there is to say of an operation before it is submitted.
#[derive(Clone, Copy)]
struct Form {
    /// The table is made if it is not there.
    makes: bool,
    brings: Brings,
    /// A value goes along that does not fit one message.
    is_long: bool,
    /// Submitting it may wait for the server.
    may_wait: bool,
}

impl Form {
    const READ: Form = Form { makes: false, brings: Brings::Item, is_long: false, may_wait: false };

    fn write(value: &[u8]) -> Form {
        Form { makes: true, is_long: value.len() > MESSAGE_VALUE_BYTES_MAX, ..Form::READ }
    }
}

/// A submitted operation.
struct Operation {
    number: u64,
    /// `None`: it was read along a link.
    table: Option<Py<Table>>,
    place: Place,
    brings: Brings,
    is_long: bool,
}

/// What was submitted and has not been polled for yet.
#[derive(Default)]
struct Submitted {
    operations: HashMap<Ticket, Operation>,
    /// How many of them have long values.
    long: usize,
    /// Whether the session had no connection at the last poll.
    detached: bool,
}

/// Operations that go on while their caller does something else.
#[pyclass(subclass, frozen, module = "kelix._kelix")]
pub struct Queue {
    shared: Arc<Shared>,
    local: Arc<Mutex<Local>>,
    forks: u64,
    closed: AtomicBool,
    /// Locked for as long as a call lasts, and never waited for.
    submitted: Mutex<Submitted>,
    /// What has ended and was not returned: by the next poll, if a signal ended the one before.
    ended: Arc<Mutex<Vec<kelix::Completion>>>,
}

/// A submitted operation that has ended.
#[pyclass(frozen, module = "kelix._kelix")]
pub struct Completion {
    /// The number that its caller gave it.
    #[pyo3(get)]
    number: u64,
    table: Option<Py<Table>>,
    place: Place,
    brings: Brings,
    outcome: Result<Outcome>,
}

/// A page of a scan.
#[pyclass(frozen, module = "kelix._kelix")]
pub struct Page {
    table: Py<Table>,
    items: Vec<kelix::Item>,
    /// `None`: this was the last page.
    rest: Option<PausedScan>,
}

impl Queue {
    /// Begins a call: there is no other one.
    fn enter(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Submitted>> {
        if self.forks != forks() {
            let error = Error::new(
                ErrorKind::Forked,
                "queue",
                "the queue is of the process that forked this one: open another one",
            );
            return Err(exception(py, &error));
        }
        let submitted = match self.submitted.try_lock() {
            Ok(submitted) => submitted,
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(TryLockError::WouldBlock) => {
                return Err(invalid(py, "queue", "another thread is using this queue"));
            }
        };
        if self.closed.load(Ordering::Relaxed) {
            return Err(invalid(py, "queue", "the queue is closed"));
        }
        Ok(submitted)
    }

    /// Looks at the session, which waits for nothing.
    fn look<T>(&self, py: Python<'_>, look: impl FnOnce(&Session) -> T) -> PyResult<T> {
        let _submitted = self.enter(py)?;
        // A poll that a signal has ended may still be going on.
        let Ok(local) = self.local.try_lock() else {
            return Err(invalid(py, "queue", "an operation that a signal has ended still goes on"));
        };
        let session = local.open_session().ok_or_else(crate::sessions::closed).or_raise(py)?;
        Ok(look(session))
    }

    /// The name of a table of this queue's store.
    fn named<'t>(&self, py: Python<'_>, table: &'t Table) -> PyResult<&'t Named> {
        match &table.place {
            Place::Store(shared, named) if Arc::ptr_eq(shared, &self.shared) => Ok(named),
            Place::Store(..) => Err(invalid(py, "queue", "the table is of another store than the queue")),
            Place::View(..) => {
                Err(invalid(py, "queue", "a queue is for the tables of a store, and this one is of a view"))
            }
        }
    }

    /// Whether the session has opened a table, so that submitting something waits for nothing.
    fn has_opened(&self, named: &Named) -> bool {
        let Ok(mut local) = self.local.try_lock() else { return false };
        self.shared.at_once_in(&mut local, named, |_, _, _| Some(())).is_some()
    }

    /// Submits an operation with a table.
    fn submit(
        &self,
        table: &Bound<'_, Table>,
        Form { makes, brings, is_long, may_wait }: Form,
        number: u64,
        mut call: impl FnMut(&mut Session, kelix::Table) -> Result<Ticket> + Send + 'static,
    ) -> PyResult<()> {
        let py = table.py();
        let named = self.named(py, table.get())?;
        let mut submitted = self.enter(py)?;
        let may_wait = may_wait || !self.has_opened(named);
        let longest = if may_wait { self.shared.longest() } else { Duration::ZERO };
        let call = move |session: &mut Session, table, _: &mut Scratch| call(session, table);
        let ticket = self.shared.run_table_for(py, &self.local, longest, (named, makes), call)?;
        let place = table.get().place.clone();
        let table = Some(table.clone().unbind());
        submitted.long += usize::from(is_long);
        submitted.operations.insert(ticket, Operation { number, table, place, brings, is_long });
        Ok(())
    }

    /// Submits an operation without a table.
    fn submit_plain(
        &self,
        py: Python<'_>,
        operation: Operation,
        call: impl FnOnce(&mut Session) -> Result<Ticket> + Send + 'static,
    ) -> PyResult<()> {
        let mut submitted = self.enter(py)?;
        let ticket = self.shared.run_in(py, &self.local, move |local| call(local.session()?))?;
        submitted.operations.insert(ticket, operation);
        Ok(())
    }
}

#[pymethods]
impl Queue {
    #[new]
    fn new(py: Python<'_>, store: &Store) -> PyResult<Queue> {
        let shared = store.shared.clone();
        let local = shared.open_local(py)?;
        Ok(Queue {
            shared,
            local,
            forks: forks(),
            closed: AtomicBool::new(false),
            submitted: Mutex::default(),
            ended: Arc::default(),
        })
    }

    /// Submits a get: its result is the value, `None` where the key is absent.
    fn get(&self, table: &Bound<'_, Table>, key: &Bound<'_, PyAny>, number: u64) -> PyResult<()> {
        let key = table.get().key_bytes(key)?;
        self.submit(table, Form { brings: Brings::Value, ..Form::READ }, number, move |session, table| {
            session.submit_get(table, &key)
        })
    }

    /// Submits a get of an item.
    fn item(&self, table: &Bound<'_, Table>, key: &Bound<'_, PyAny>, number: u64) -> PyResult<()> {
        let key = table.get().key_bytes(key)?;
        self.submit(table, Form::READ, number, move |session, table| session.submit_get(table, &key))
    }

    /// Submits a put: its result is the version.
    fn put(
        &self,
        table: &Bound<'_, Table>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        number: u64,
    ) -> PyResult<()> {
        let (key, value) = (table.get().key_bytes(key)?, value_bytes(table, value)?);
        self.submit(table, Form::write(&value), number, move |session, table| {
            session.submit_put(table, &key, &value)
        })
    }

    /// Submits a delete: its result is whether the key was there.
    fn delete(&self, table: &Bound<'_, Table>, key: &Bound<'_, PyAny>, number: u64) -> PyResult<()> {
        let key = table.get().key_bytes(key)?;
        self.submit(table, Form::READ, number, move |session, table| session.submit_delete(table, &key))
    }

    /// Submits a put that is done if the key has this version (`None`: if it is absent).
    #[pyo3(signature = (table, key, expected, value, number))]
    fn compare_and_set(
        &self,
        table: &Bound<'_, Table>,
        key: &Bound<'_, PyAny>,
        expected: Option<u64>,
        value: &Bound<'_, PyAny>,
        number: u64,
    ) -> PyResult<()> {
        let (key, value) = (table.get().key_bytes(key)?, value_bytes(table, value)?);
        let expected = expected.map(Version);
        self.submit(table, Form::write(&value), number, move |session, table| {
            session.submit_compare_and_set(table, &key, expected, &value)
        })
    }

    /// Submits a delete that is done if the key has this version.
    fn compare_and_delete(
        &self,
        table: &Bound<'_, Table>,
        key: &Bound<'_, PyAny>,
        expected: u64,
        number: u64,
    ) -> PyResult<()> {
        let key = table.get().key_bytes(key)?;
        self.submit(table, Form::READ, number, move |session, table| {
            session.submit_compare_and_delete(table, &key, Version(expected))
        })
    }

    /// Submits a put of an item, with an expected version if it is conditional.
    #[pyo3(signature = (table, key, value, extras, conditional, expected, number))]
    #[expect(clippy::too_many_arguments, reason = "they are the parts of an item")]
    fn _put_item(
        &self,
        table: &Bound<'_, Table>,
        key: &Bound<'_, PyAny>,
        value: Option<(Bound<'_, PyAny>,)>,
        extras: Extras,
        conditional: bool,
        expected: Option<u64>,
        number: u64,
    ) -> PyResult<()> {
        let key = table.get().key_bytes(key)?;
        let value = value.map(|(value,)| value_bytes(table, &value)).transpose()?;
        extras.check(table.py())?;
        let expected = expected.map(Version);
        let form = Form { may_wait: true, ..Form::write(value.as_deref().unwrap_or_default()) };
        self.submit(table, form, number, move |session, table| {
            let item = extras.item(session, value.as_deref())?;
            match conditional {
                true => session.submit_compare_and_set_item(table, &key, expected, &item),
                false => session.submit_item(table, &key, &item),
            }
        })
    }

    /// Submits the read of what an item's first link of a name leads to.
    fn follow(&self, py: Python<'_>, item: &Bound<'_, Item>, name: String, number: u64) -> PyResult<()> {
        let Item { item, place } = item.get();
        let place = place.clone();
        let operation = Operation { number, table: None, place, brings: Brings::Item, is_long: false };
        let item = item.clone();
        self.submit_plain(py, operation, move |session| session.submit_follow(&item, &name))
    }

    /// Submits the first page of a scan.
    fn _scan(&self, table: &Bound<'_, Table>, range: Range<'_>, number: u64) -> PyResult<()> {
        let scan = range.scan(&table.get().key)?;
        self.submit(table, Form::READ, number, move |session, table| session.submit_scan(table, &scan))
    }

    /// Submits the page behind one, which is not the last.
    fn next_page(&self, page: &Bound<'_, Page>, number: u64) -> PyResult<()> {
        let py = page.py();
        let Page { table, rest, .. } = page.get();
        let Some(rest) = rest.clone() else { return Err(invalid(py, "queue", "this was the last page")) };
        let place = table.get().place.clone();
        let table = Some(table.clone_ref(py));
        let operation = Operation { number, table, place, brings: Brings::Item, is_long: false };
        self.submit_plain(py, operation, move |session| session.submit_page(rest))
    }

    /// Begins what was submitted, and returns what has ended: `most` completions at most.
    #[pyo3(signature = (most = None))]
    fn poll(&self, py: Python<'_>, most: Option<usize>) -> PyResult<Vec<Completion>> {
        let mut submitted = self.enter(py)?;
        // Another thread does what may last long, so that signals are seen meanwhile.
        let may_wait = submitted.long > 0 || submitted.detached;
        let longest = if may_wait { self.shared.longest() } else { Duration::ZERO };
        let most = most.unwrap_or(usize::MAX);
        let ended = self.ended.clone();
        submitted.detached = self.shared.run_for(py, &self.local, longest, move |local| {
            let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
            let left = most.saturating_sub(ended.len());
            if left > 0 || most == 0 {
                local.session()?.poll_at_most(&mut ended, left)?;
            }
            let is_gone =
                |error: &Error| matches!(error.kind(), ErrorKind::NoSuchTable | ErrorKind::ViewExpired);
            if ended.iter().any(|ended| ended.outcome.as_ref().is_err_and(is_gone)) {
                // Somebody has dropped a table, and there may be another one of its name.
                local.forget_tables();
            }
            Ok(local.session()?.is_detached())
        })?;
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let count = ended.len().min(most);
        let mut completions = Vec::with_capacity(count);
        for kelix::Completion { ticket, outcome, .. } in ended.drain(..count) {
            if let Some(operation) = submitted.operations.remove(&ticket) {
                let Operation { number, table, place, brings, is_long } = operation;
                submitted.long -= usize::from(is_long);
                completions.push(Completion { number, table, place, brings, outcome });
            }
        }
        Ok(completions)
    }

    /// A get that neither waits nor sends anything: the value in a tuple, an empty tuple where the key is
    /// absent, and `None` where a get would wait.
    fn _try_get<'py>(
        &self,
        table: &Bound<'py, Table>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let py = key.py();
        let of = table.get();
        let encoded = of.key.encode(key, Role::Key)?;
        let (named, bytes) = (self.named(py, of)?, encoded.bytes()?);
        let found = {
            let _submitted = self.enter(py)?;
            let Ok(mut local) = self.local.try_lock() else { return Ok(None) };
            self.shared.at_once_in(&mut local, named, |session, table, scratch| {
                match session.try_get_into(table, bytes, &mut scratch.buffer) {
                    Ok(TryGet::Found(length, _)) => {
                        Some(Some(of.value.plain(py, &scratch.buffer[..length])?))
                    }
                    Ok(TryGet::Absent) => Some(None),
                    Ok(TryGet::WouldWait) | Err(_) => None,
                }
            })
        };
        match found {
            None => Ok(None),
            Some(None) => Ok(Some(PyTuple::empty(py))),
            Some(Some(value)) => PyTuple::new(py, [of.value.finish(value)?]).map(Some),
        }
    }

    /// The descriptor that becomes readable when a poll that brought nothing would bring something.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.look(py, Session::fd)
    }

    /// How many connections the queue has had before the one it has: when that has grown, `fileno` is
    /// another.
    #[getter]
    fn past_connections(&self, py: Python<'_>) -> PyResult<u32> {
        self.look(py, Session::past_connections)
    }

    /// Whether the connection is lost, and no other one is made yet.
    #[getter]
    fn is_detached(&self, py: Python<'_>) -> PyResult<bool> {
        self.look(py, Session::is_detached)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.enter(py)?.operations.len())
    }

    /// Whether there is a queue says nothing of how much is in it.
    fn __bool__(&self) -> bool {
        true
    }

    /// Ends the queue's session. What is under way is given up: a write may be done or not.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.forks == forks() && !self.closed.load(Ordering::Relaxed) {
            let operations = std::mem::take(&mut *self.enter(py)?).operations;
            drop(operations);
        }
        self.closed.store(true, Ordering::Relaxed);
        if let Ok(mut local) = self.local.try_lock() {
            local.close();
        }
        Ok(())
    }
}

fn value_bytes(table: &Bound<'_, Table>, value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    Ok(table.get().value.encode(value, Role::Value)?.bytes()?.to_vec())
}

#[pymethods]
impl Completion {
    /// The error with which it failed; `None`: it did not.
    #[getter]
    fn error(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let error = self.outcome.as_ref().err()?;
        Some(exception(py, error).into_value(py).into_any())
    }

    /// What it brought. Raises the error with which it failed.
    fn result<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.outcome.as_ref().map_err(|error| exception(py, error))? {
            Outcome::Item(None) => Ok(py.None().into_bound(py)),
            Outcome::Item(Some(item)) => match (self.brings, &self.table) {
                (Brings::Value, Some(table)) => table.get().value.object(py, item.value()),
                _ => {
                    let (item, place) = (item.clone(), self.place.clone());
                    Ok(Bound::new(py, Item { item, place })?.into_any())
                }
            },
            Outcome::Written(version) => Ok(version.0.into_pyobject(py)?.into_any()),
            Outcome::Deleted(was_there) => Ok(was_there.into_pyobject(py)?.to_owned().into_any()),
            Outcome::Compared(compared) => {
                py.import("kelix.table")?.getattr("Compared")?.call1(told(*compared))
            }
            Outcome::Page(page) => {
                let (items, rest) = page.clone().into_parts();
                let table = self.table.as_ref().expect("a scan is of a table").clone_ref(py);
                Ok(Bound::new(py, Page { table, items, rest })?.into_any())
            }
        }
    }
}

#[pymethods]
impl Page {
    /// The pairs of keys and values.
    fn pairs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let table = self.table.get();
        let pairs = PyList::empty(py);
        for item in &self.items {
            pairs.append((table.key.object(py, item.key())?, table.value.object(py, item.value())?))?;
        }
        Ok(pairs)
    }

    /// Whether no page comes behind this one.
    #[getter]
    fn is_last(&self) -> bool {
        self.rest.is_none()
    }

    fn __len__(&self) -> usize {
        self.items.len()
    }

    fn __bool__(&self) -> bool {
        true
    }
}
