//! Sessions: one for each thread of each process that uses a store.
//!
//! A thread keeps its sessions in a thread-local list, so that a get finds its own without a lock that others
//! want. A list of all of them, which is only touched with the interpreter's lock held, is for a store that
//! is closed and for a child after a fork: the child closes what it inherited, so that the server notices the
//! parent's end, and opens sessions of its own.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use kelix::{Client, Error, ErrorKind, Result, Session, SessionOptions, Table, TableKind, Values};
use pyo3::prelude::*;

use crate::errors::OrRaise;
use crate::wait::{Waited, wait};

/// How many forks led to this process.
static FORKS: AtomicU64 = AtomicU64::new(0);
static STORES: AtomicU64 = AtomicU64::new(1);
static ALL: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

thread_local! {
    static MINE: RefCell<Vec<Mine>> = const { RefCell::new(Vec::new()) };
}

/// A session of this thread.
struct Mine {
    store: u64,
    forks: u64,
    local: Arc<Mutex<Local>>,
}

struct Kept {
    store: u64,
    local: Weak<Mutex<Local>>,
}

/// What a thread has of a store.
#[derive(Default)]
pub struct Local {
    session: Option<Session>,
    /// By the numbers of [`Named`].
    tables: Vec<Option<Table>>,
    /// [`Shared::changes`] when they were opened.
    changes: u64,
    scratch: Scratch,
}

/// Memory that is used again.
#[derive(Default)]
pub struct Scratch {
    /// Where values land that are got one at a time.
    pub buffer: Vec<u8>,
    /// Where those of batches land.
    pub values: Values,
}

/// A store, as all threads of a process share it.
pub struct Shared {
    id: u64,
    client: Client,
    options: SessionOptions,
    closed: AtomicBool,
    /// Names of tables, by the numbers of [`Named`]. Only locked with the interpreter's lock held.
    names: Mutex<Vec<Arc<str>>>,
    /// How often a table or a dataset was dropped here, or a generation put in force.
    changes: AtomicU64,
}

/// A table by its name. Each session opens it for itself.
#[derive(Clone)]
pub struct Named {
    number: usize,
    pub name: Arc<str>,
    /// What it is made as by the first write, if it is not there.
    pub kind: Option<TableKind>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many forks led to this process.
pub fn forks() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// What a child does after a fork: `os.register_at_fork` calls it.
#[pyfunction]
#[pyo3(name = "_forked")]
pub fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    for kept in std::mem::take(&mut *lock(&ALL)) {
        let Some(local) = kept.local.upgrade() else { continue };
        // One that another thread of the parent had locked may be in the middle of something. It is left
        // alone for ever.
        if let Ok(mut local) = local.try_lock() {
            drop(local.session.take());
        }
    }
}

impl Shared {
    pub fn new(client: Client, options: SessionOptions) -> Shared {
        Shared {
            id: STORES.fetch_add(1, Ordering::Relaxed),
            client,
            options,
            closed: AtomicBool::new(false),
            names: Mutex::default(),
            changes: AtomicU64::new(0),
        }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    pub fn options(&self) -> &SessionOptions {
        &self.options
    }

    /// How long an operation may last.
    pub fn longest(&self) -> Duration {
        self.options.timeout.saturating_add(self.options.retry_for.unwrap_or_default())
    }

    pub fn named(&self, name: &str, kind: Option<TableKind>) -> Named {
        let mut names = lock(&self.names);
        let known = names.iter().position(|known| **known == *name);
        let number = known.unwrap_or_else(|| {
            names.push(name.into());
            names.len() - 1
        });
        Named { number, name: names[number].clone(), kind }
    }

    /// Handles of tables that were opened before may lead nowhere, or to a generation before.
    pub fn note_changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends all sessions. Those that another thread is using end with what it does.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.end_sessions(|_| true);
    }

    /// Ends those of the sessions that are wanted.
    fn end_sessions(&self, wanted: impl Fn(&Arc<Mutex<Local>>) -> bool) {
        let (mine, others) =
            std::mem::take(&mut *lock(&ALL)).into_iter().partition(|kept: &Kept| kept.store == self.id);
        *lock(&ALL) = others;
        for local in mine.iter().filter_map(|kept: &Kept| kept.local.upgrade()).filter(wanted) {
            if let Ok(mut local) = local.try_lock() {
                drop(local.session.take());
            }
        }
    }

    fn check_open(&self) -> Result<()> {
        match self.closed.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(closed()),
        }
    }

    /// This thread's session, which is opened if there is none.
    pub fn local(&self, py: Python<'_>) -> PyResult<Arc<Mutex<Local>>> {
        self.check_open().or_raise(py)?;
        let found = MINE.with_borrow(|mine| self.mine(mine).cloned());
        if let Some(local) = found {
            return Ok(local);
        }
        let local = self.open_local(py)?;
        // Sessions of stores that were closed, of the parent, and those that were left behind.
        let gone: Vec<Mine> = MINE.with_borrow_mut(|mine| {
            let is_good = |mine: &Mine| {
                let has_ended = mine.local.try_lock().is_ok_and(|local| local.session.is_none());
                mine.forks == forks() && mine.store != self.id && !has_ended
            };
            let (good, gone) = std::mem::take(mine).into_iter().partition(is_good);
            *mine = good;
            mine.push(Mine { store: self.id, forks: forks(), local: local.clone() });
            gone
        });
        drop(gone);
        Ok(local)
    }

    /// Opens a session that no other thread finds, and that ends with the store.
    pub fn open_local(&self, py: Python<'_>) -> PyResult<Arc<Mutex<Local>>> {
        self.check_open().or_raise(py)?;
        let session = self.open(py)?;
        let scratch = Scratch { buffer: vec![0; 4096], ..Scratch::default() };
        let local = Arc::new(Mutex::new(Local { session: Some(session), scratch, ..Local::default() }));
        let mut all = lock(&ALL);
        all.retain(|kept| kept.local.strong_count() > 0);
        all.push(Kept { store: self.id, local: Arc::downgrade(&local) });
        Ok(local)
    }

    /// Opens a session that is nobody's yet.
    pub fn open(&self, py: Python<'_>) -> PyResult<Session> {
        let (client, options) = (self.client.clone(), self.options.clone());
        match wait(py, self.longest(), move || client.session_with(options))? {
            Waited::Ended(session) => session.or_raise(py),
            Waited::LeftBehind(raised) => Err(raised),
        }
    }

    #[inline]
    fn mine<'m>(&self, mine: &'m [Mine]) -> Option<&'m Arc<Mutex<Local>>> {
        let forks = forks();
        Some(&mine.iter().find(|mine| mine.store == self.id && mine.forks == forks)?.local)
    }

    /// Does what never waits with a table, if this thread has a session that has opened it.
    #[inline]
    pub fn at_once<T>(
        &self,
        named: &Named,
        call: impl FnOnce(&mut Session, Table, &mut Scratch) -> Option<T>,
    ) -> Option<T> {
        MINE.with_borrow(|mine| {
            let mut local =
                self.mine(mine)?.try_lock().ok().filter(|_| !self.closed.load(Ordering::Relaxed))?;
            self.at_once_in(&mut local, named, call)
        })
    }

    /// The same, in a session that the caller has locked.
    #[inline]
    pub fn at_once_in<T>(
        &self,
        local: &mut Local,
        named: &Named,
        call: impl FnOnce(&mut Session, Table, &mut Scratch) -> Option<T>,
    ) -> Option<T> {
        let Local { session, tables, changes, scratch } = local;
        if *changes != self.changes.load(Ordering::Relaxed) {
            return None;
        }
        let table = (*tables.get(named.number)?)?;
        call(session.as_mut()?, table, scratch)
    }

    /// Does something in this thread's session, without the interpreter's lock.
    pub fn run<T: Send + 'static>(
        self: &Arc<Self>,
        py: Python<'_>,
        call: impl FnOnce(&mut Session, &mut Scratch) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let local = self.local(py)?;
        self.run_in(py, &local, move |local| {
            let (session, scratch) = local.parts()?;
            call(session, scratch)
        })
    }

    /// Does something with a table in this thread's session, without the interpreter's lock. `makes`: the
    /// table is made if it is not there.
    pub fn run_table<T: Send + 'static>(
        self: &Arc<Self>,
        py: Python<'_>,
        named: &Named,
        makes: bool,
        call: impl FnMut(&mut Session, Table, &mut Scratch) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let local = self.local(py)?;
        self.run_table_for(py, &local, self.longest(), (named, makes), call)
    }

    /// The same, in another session, with something that lasts no longer than `longest`.
    pub fn run_table_for<T: Send + 'static>(
        self: &Arc<Self>,
        py: Python<'_>,
        local: &Arc<Mutex<Local>>,
        longest: Duration,
        (named, makes): (&Named, bool),
        mut call: impl FnMut(&mut Session, Table, &mut Scratch) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let (named, now) = (named.clone(), self.changes.load(Ordering::Relaxed));
        self.run_for(py, local, longest, move |local| {
            if local.changes != now {
                local.tables.clear();
                local.session()?.forget_names();
                local.changes = now;
            }
            let known = local.tables.get(named.number).is_some_and(Option::is_some);
            let table = local.table(&named, makes)?;
            let (session, scratch) = local.parts()?;
            let result = call(session, table, scratch);
            match result {
                // Somebody has dropped the table, and there may be another of the name.
                Err(error) if known && error.kind() == ErrorKind::NoSuchTable => {
                    local.tables[named.number] = None;
                    let table = local.table(&named, makes)?;
                    let (session, scratch) = local.parts()?;
                    call(session, table, scratch)
                }
                result => result,
            }
        })
    }

    /// Does something in a session, without the interpreter's lock.
    pub fn run_in<T: Send + 'static>(
        self: &Arc<Self>,
        py: Python<'_>,
        local: &Arc<Mutex<Local>>,
        call: impl FnOnce(&mut Local) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        self.run_for(py, local, self.longest(), call)
    }

    /// The same, with something that lasts no longer than `longest`.
    pub fn run_for<T: Send + 'static>(
        self: &Arc<Self>,
        py: Python<'_>,
        local: &Arc<Mutex<Local>>,
        longest: Duration,
        call: impl FnOnce(&mut Local) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let theirs = local.clone();
        let waited = wait(py, longest, move || match theirs.lock() {
            Ok(mut local) => call(&mut local),
            // What a panic left is not used.
            Err(_) => {
                Err(Error::new(ErrorKind::Unavailable, "session", "it broke in an operation before this"))
            }
        });
        let leaves = matches!(waited, Ok(Waited::LeftBehind(_)) | Err(_)) || local.is_poisoned();
        if leaves {
            let gone = MINE.with_borrow_mut(|mine| {
                let at = mine.iter().position(|mine| Arc::ptr_eq(&mine.local, local))?;
                Some(mine.swap_remove(at))
            });
            drop(gone);
        }
        if self.closed.load(Ordering::Relaxed) {
            // It was closed meanwhile.
            let session = local.try_lock().ok().and_then(|mut local| local.session.take());
            drop(session);
        }
        match waited? {
            // Python was not told of the fork. The next operation is done by a session of this process's own.
            Waited::Ended(Err(error)) if error.kind() == ErrorKind::Forked => {
                forked();
                Err(error.with_retry(true)).or_raise(py)
            }
            Waited::Ended(result) => result.or_raise(py),
            Waited::LeftBehind(raised) => Err(raised),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // One that a stream reads in has a third owner, besides its thread and whoever looks here.
        self.end_sessions(|local| Arc::strong_count(local) <= 2);
    }
}

/// The error of a session that was closed while somebody still had it.
pub fn closed() -> Error {
    Error::new(ErrorKind::InvalidArgument, "session", "the store is closed")
}

impl Local {
    /// Its session.
    pub fn session(&mut self) -> Result<&mut Session> {
        self.session.as_mut().ok_or_else(closed)
    }

    /// Its session, if there still is one.
    pub fn open_session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// Ends its session.
    pub fn close(&mut self) {
        drop(self.session.take());
    }

    /// Tables are looked up again by their names.
    pub fn forget_tables(&mut self) {
        self.tables.clear();
    }

    /// Its session, and memory.
    pub fn parts(&mut self) -> Result<(&mut Session, &mut Scratch)> {
        let Local { session, scratch, .. } = self;
        Ok((session.as_mut().ok_or_else(closed)?, scratch))
    }

    fn table(&mut self, named: &Named, makes: bool) -> Result<Table> {
        if let Some(Some(table)) = self.tables.get(named.number) {
            return Ok(*table);
        }
        let session = self.session()?;
        let table = match (session.table(&named.name), named.kind) {
            (Err(error), kind) if makes && error.kind() == ErrorKind::NoSuchTable => {
                session.create_table_of(kind.unwrap_or_default(), &named.name)?
            }
            (Ok(table), Some(kind)) if table.kind() != kind => {
                let context = format!("the table \"{}\" is of another kind: {}", named.name, table.kind());
                return Err(Error::new(ErrorKind::InvalidArgument, "table", context));
            }
            (table, _) => table?,
        };
        if self.tables.len() <= named.number {
            self.tables.resize(named.number + 1, None);
        }
        self.tables[named.number] = Some(table);
        Ok(table)
    }
}
