//! Scans: iterators over keys, values, or both.

use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::{Mutex, PoisonError};

use kelix::{PausedScan, Scan};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::codec::{Codec, Role};
use crate::table::Place;

/// Rows of the first page of an iterator, and of one page at most. The first is small, since many scans end
/// early.
const PAGE_ROWS_FIRST: u64 = 64;
const PAGE_ROWS_MAX: u64 = 4096;

/// Which keys, as Python says it.
#[derive(FromPyObject)]
pub struct Range<'py> {
    #[pyo3(item)]
    prefix: Option<Bound<'py, PyAny>>,
    #[pyo3(item)]
    start: Option<Bound<'py, PyAny>>,
    #[pyo3(item)]
    stop: Option<Bound<'py, PyAny>>,
    #[pyo3(item)]
    backwards: bool,
    #[pyo3(item)]
    limit: Option<u64>,
}

impl Range<'_> {
    /// The scan of a table with such keys.
    pub fn scan(&self, codec: &Codec) -> PyResult<Scan> {
        let encode = |key: &Option<Bound<'_, PyAny>>| -> PyResult<Option<Vec<u8>>> {
            key.as_ref().map(|key| Ok(codec.encode(key, Role::Key)?.bytes()?.to_vec())).transpose()
        };
        let (start, stop) = (encode(&self.start)?, encode(&self.stop)?);
        let mut scan = match &self.prefix {
            Some(prefix) => Scan::prefix(codec.encode_prefix(prefix)?.bytes()?),
            None => Scan::all(),
        };
        scan = scan.range::<[u8]>((
            start.as_deref().map_or(Unbounded, Included),
            stop.as_deref().map_or(Unbounded, Excluded),
        ));
        if self.backwards {
            scan = scan.backwards();
        }
        Ok(self.limit.map_or(scan.clone(), |limit| scan.limit(limit)))
    }
}

/// What an iterator brings.
#[derive(Clone, Copy)]
pub enum What {
    Keys,
    Values,
    Items,
}

/// Where an iterator stands.
struct State {
    /// `None`: it has not begun; or it is over, or was left behind by a signal.
    scan: Option<PausedScan>,
    begin: Option<Scan>,
    rows: kelix::Rows,
    next: usize,
    most: u64,
}

/// An iterator over a table.
#[pyclass(frozen, module = "kelix._kelix")]
pub struct Rows {
    place: Place,
    key: Codec,
    value: Codec,
    what: What,
    state: Mutex<State>,
}

impl Rows {
    pub fn new(place: Place, (key, value): (Codec, Codec), what: What, scan: Scan) -> Rows {
        let state =
            State { scan: None, begin: Some(scan), rows: kelix::Rows::new(), next: 0, most: PAGE_ROWS_FIRST };
        Rows { place, key, value, what, state: Mutex::new(state) }
    }

    /// Reads the next page, if there is one.
    fn next_page(&self, py: Python<'_>, state: &mut State) -> PyResult<()> {
        let (begin, scan, most) = (state.begin.take(), state.scan.take(), state.most);
        if begin.is_none() && scan.is_none() {
            return Ok(());
        }
        let mut known = Some((begin, scan, std::mem::take(&mut state.rows)));
        let (scan, rows) = self.place.run(py, false, move |session, table, _| {
            // A table that was dropped and made again is scanned from the beginning, which has not been yet.
            let (begin, scan, mut rows) = known.take().unwrap_or_default();
            let mut scan = match (&begin, scan) {
                (Some(begin), _) => session.open_scan(table, begin).inspect_err(|_| {
                    known = Some((Some(begin.clone()), None, kelix::Rows::new()));
                })?,
                (None, Some(scan)) => scan,
                (None, None) => return Ok((None, kelix::Rows::new())),
            };
            let more = scan.next_rows(session, &mut rows, most)?;
            Ok((more.then_some(scan), rows))
        })?;
        (state.scan, state.rows, state.next) = (scan, rows, 0);
        state.most = (state.most * 4).min(PAGE_ROWS_MAX);
        Ok(())
    }
}

#[pymethods]
impl Rows {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (key, value);
        {
            let mut state = match self.state.try_lock() {
                Ok(state) => state,
                Err(std::sync::TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
                Err(std::sync::TryLockError::WouldBlock) => {
                    return Err(PyValueError::new_err("another thread is at this iterator"));
                }
            };
            while state.next == state.rows.len() && (state.scan.is_some() || state.begin.is_some()) {
                self.next_page(py, &mut state)?;
            }
            if state.next == state.rows.len() {
                return Ok(None);
            }
            let at = state.next;
            state.next += 1;
            let has_key = !matches!(self.what, What::Values);
            let has_value = !matches!(self.what, What::Keys);
            key = has_key.then(|| self.key.decode(py, state.rows.key(at))).transpose()?;
            value = has_value.then(|| self.value.decode(py, state.rows.value(at))).transpose()?;
        }
        let key = key.map(|key| self.key.finish(key)).transpose()?;
        let value = value.map(|value| self.value.finish(value)).transpose()?;
        Ok(match (key, value) {
            (Some(key), Some(value)) => Some((key, value).into_pyobject(py)?.into_any()),
            (one, other) => one.or(other),
        })
    }
}
