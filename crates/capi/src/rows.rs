//! What a scan of a whole range brought.

use std::ffi::c_int;

use kelix::Rows;

use crate::batch::check_index;
use crate::call::{alone, in_session};
use crate::error::KELIX_OK;
use crate::handle::{Opaque, enter, free, make};
use crate::memory::{Place, kelix_bytes};
use crate::scan::kelix_range;
use crate::session::kelix_session;
use crate::structs::passed;
use crate::table::kelix_table;

/// Keys and values of a scan, in memory that is used again from scan to scan. What it tells stays until the
/// next scan, or until it is freed.
pub struct kelix_rows {
    _private: [u8; 0],
}

impl Opaque for kelix_rows {
    type State = Rows;
    const MAGIC: u64 = u64::from_le_bytes(*b"kx  rows");
    const NAME: &'static str = "rows";
}

/// Makes room for the rows of a scan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_rows_new(rows: *mut *mut kelix_rows) -> c_int {
    alone("kelix_rows_new", || {
        // SAFETY: the promises.
        unsafe { Place::needed(rows, "rows") }?.tell(make(Rows::new()));
        Ok(KELIX_OK)
    })
}

/// Frees rows. NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_rows_free(rows: *mut kelix_rows) {
    // SAFETY: the promises.
    unsafe { free(rows) };
}

/// Scans a range of a table, all of it at once, for keys and values (of items with attributes, that of the
/// attribute without a name). `range` may be NULL: the whole table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_scan_into(
    session: *mut kelix_session,
    table: kelix_table,
    range: *const kelix_range,
    rows: *mut kelix_rows,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_scan_into", session, |inside| {
            let mut rows = enter(rows)?;
            let scan = passed(range, "range")?.scan()?;
            inside.session.scan_into(table.table(), &scan, &mut rows)?;
            Ok(KELIX_OK)
        })
    }
}

/// How many keys the last scan brought.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_rows_count(rows: *const kelix_rows, count: *mut usize) -> c_int {
    alone("kelix_rows_count", || {
        // SAFETY: the promises.
        unsafe {
            Place::needed(count, "count")?.tell(enter(rows.cast_mut())?.len());
            Ok(KELIX_OK)
        }
    })
}

/// Key, value and version of a row, by its index; each place may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_rows_get(
    rows: *const kelix_rows,
    index: usize,
    key: *mut kelix_bytes,
    value: *mut kelix_bytes,
    version: *mut u64,
) -> c_int {
    alone("kelix_rows_get", || {
        // SAFETY: the promises.
        unsafe {
            let (mut key, mut value) = (Place::optional(key, "key")?, Place::optional(value, "value")?);
            let mut version = Place::optional(version, "version")?;
            let rows = enter(rows.cast_mut())?;
            check_index(index, rows.len())?;
            key.tell(kelix_bytes::of(rows.key(index)));
            value.tell(kelix_bytes::of(rows.value(index)));
            version.tell(rows.version(index).0);
            Ok(KELIX_OK)
        }
    })
}
