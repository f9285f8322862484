//! Ranges of a table: scans item by item, counts.

use std::ffi::c_int;
use std::ops::Bound::{Excluded, Included, Unbounded};

use kelix::{PausedScan, Scan, Table};

use crate::call::{Session, in_session};
use crate::error::{Failure, KELIX_MORE, KELIX_OK, Result};
use crate::handle::{Opaque, enter, free, make};
use crate::item::{found, kelix_item};
use crate::memory::{Place, kelix_bytes};
use crate::rows::kelix_rows;
use crate::session::{flag, kelix_session};
use crate::structs::{Passed, passed};
use crate::table::kelix_table;

/// Which keys of a table, and in which order: all of them upwards, unless something else is said. A hash
/// table has no order, so of it only all keys, or the first so many, can be had.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kelix_range {
    /// sizeof(kelix_range).
    pub size: usize,
    /// Only keys that begin with these bytes.
    pub prefix: kelix_bytes,
    /// From this key on. Empty: from the first one.
    pub start: kelix_bytes,
    /// Up to this key, which is not in the range. Empty: up to the last one.
    pub stop: kelix_bytes,
    /// Of a table whose keys are numbers, where `numbers` is 1: the first and the last number of the range.
    pub first: u64,
    /// See first.
    pub last: u64,
    /// No more keys than this. 0: all.
    pub limit: u64,
    /// 1: the range goes from `first` to `last`, both in it. Then there are no start, stop and prefix.
    pub numbers: c_int,
    /// 1: from the greatest key downwards.
    pub backwards: c_int,
}

// SAFETY: addresses and numbers, the size first.
unsafe impl Passed for kelix_range {}

impl kelix_range {
    /// What it means.
    ///
    /// # Safety
    ///
    /// The promises of the crate.
    pub unsafe fn scan(&self) -> Result<Scan> {
        // SAFETY: the promises.
        let [prefix, start, stop] =
            unsafe { [self.prefix.get("prefix")?, self.start.get("start")?, self.stop.get("stop")?] };
        let mut scan = Scan::prefix(prefix);
        if flag(self.numbers, "numbers")? {
            if !(prefix.is_empty() && start.is_empty() && stop.is_empty()) {
                return Err(Failure::argument("a range of numbers has no prefix, start or stop"));
            }
            scan = scan.numbers(self.first..=self.last);
        } else if !start.is_empty() || !stop.is_empty() {
            let lower = if start.is_empty() { Unbounded } else { Included(start) };
            let upper = if stop.is_empty() { Unbounded } else { Excluded(stop) };
            scan = scan.range((lower, upper));
        }
        if flag(self.backwards, "backwards")? {
            scan = scan.backwards();
        }
        if self.limit != 0 {
            scan = scan.limit(self.limit);
        }
        Ok(scan)
    }
}

/// A scan that goes on item by item, or page by page. It is of the session that opened it, which can do
/// anything else between.
pub struct kelix_scan {
    _private: [u8; 0],
}

impl Opaque for kelix_scan {
    type State = Stepped;
    const MAGIC: u64 = u64::from_le_bytes(*b"kx  scan");
    const NAME: &'static str = "scan";
}

/// A scan, and the session that it is of.
pub struct Stepped {
    session: u64,
    /// `None`: an error ended it, or it was submitted.
    scan: Option<PausedScan>,
}

impl Stepped {
    /// A scan of this session.
    pub fn of(session: u64, scan: PausedScan) -> Stepped {
        Stepped { session, scan: Some(scan) }
    }

    /// Takes the scan, to go on with it in its own session.
    pub fn take(&mut self, inside: &Session) -> Result<PausedScan> {
        inside.check(self.session, "scan")?;
        self.scan.take().ok_or_else(has_ended)
    }

    /// The scan, where it stands.
    fn here(&mut self, inside: &Session) -> Result<&mut PausedScan> {
        inside.check(self.session, "scan")?;
        self.scan.as_mut().ok_or_else(has_ended)
    }
}

fn has_ended() -> Failure {
    Failure::argument("the scan has ended by an error, or was submitted")
}

/// Begins a scan of a table. `range` may be NULL: the whole table. On error the scan is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_scan_open(
    session: *mut kelix_session,
    table: kelix_table,
    range: *const kelix_range,
    scan: *mut *mut kelix_scan,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_scan_open", session, |inside| {
            let mut place = Place::needed(scan, "scan")?;
            place.tell(std::ptr::null_mut());
            let range = passed(range, "range")?.scan()?;
            let paused = inside.session.open_scan(table.table(), &range)?;
            place.tell(make(Stepped::of(inside.number, paused)));
            Ok(KELIX_OK)
        })
    }
}

/// The next item of a scan, with its attributes, links, flags and end. KELIX_ABSENT: that was the last, and
/// `item` stays as it was. A key that is there from the scan's beginning to its end comes exactly once, one
/// that is put or deleted meanwhile at most once. An error ends the scan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_scan_next(
    session: *mut kelix_session,
    scan: *mut kelix_scan,
    item: *mut kelix_item,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_scan_next", session, |inside| {
            let (mut scan, mut held) = (enter(scan)?, enter(item)?);
            let paused = scan.take(inside)?;
            let mut scanner = paused.resume(&mut inside.session)?;
            let next = scanner.next_item()?;
            scan.scan = Some(scanner.pause());
            Ok(found(&mut held, next))
        })
    }
}

/// The next keys of a scan and their values, `most` at most and one at least, into rows. KELIX_MORE: there
/// may be more of them. KELIX_OK: these were the last. After an error the scan stands where it stood, and the
/// same call goes on from there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_scan_next_rows(
    session: *mut kelix_session,
    scan: *mut kelix_scan,
    rows: *mut kelix_rows,
    most: u64,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_scan_next_rows", session, |inside| {
            let (mut scan, mut rows) = (enter(scan)?, enter(rows)?);
            let is_more = scan.here(inside)?.next_rows(&mut inside.session, &mut rows, most)?;
            Ok(if is_more { KELIX_MORE } else { KELIX_OK })
        })
    }
}

/// Frees a scan. NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_scan_free(scan: *mut kelix_scan) {
    // SAFETY: the promises.
    unsafe { free(scan) };
}

/// Tells how many keys of a range there are, by one of two ways to count.
///
/// # Safety
///
/// The promises of the crate.
unsafe fn tell_count(
    name: &'static str,
    session: *mut kelix_session,
    (table, range): (kelix_table, *const kelix_range),
    count: *mut u64,
    of: impl FnOnce(&mut kelix::Session, Table, &Scan) -> kelix::Result<u64>,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session(name, session, |inside| {
            let mut place = Place::needed(count, "count")?;
            let range = passed(range, "range")?.scan()?;
            place.tell(of(&mut inside.session, table.table(), &range)?);
            Ok(KELIX_OK)
        })
    }
}

/// Counts the keys of a range, each once. `range` may be NULL: the whole table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_count(
    session: *mut kelix_session,
    table: kelix_table,
    range: *const kelix_range,
    count: *mut u64,
) -> c_int {
    // SAFETY: the promises.
    unsafe { tell_count("kelix_count", session, (table, range), count, kelix::Session::count) }
}

/// About how many keys a range has, without a look at each: exact for a few, and for more what leaves have on
/// average. Of a hash table how many keys there are. `range` may be NULL: the whole table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_estimate(
    session: *mut kelix_session,
    table: kelix_table,
    range: *const kelix_range,
    count: *mut u64,
) -> c_int {
    // SAFETY: the promises.
    unsafe { tell_count("kelix_estimate", session, (table, range), count, kelix::Session::estimate) }
}
