//! What a scan of a whole range brought.

use std::ffi::c_int;
use std::mem::offset_of;
use std::ptr::null;

use kelix::{Cell, RowEntry, Rows};

use crate::batch::{KELIX_NO_VALUE, check_index};
use crate::call::{alone, in_session};
use crate::error::{KELIX_ABSENT, KELIX_OK};
use crate::handle::{Opaque, enter, free, make};
use crate::memory::{Place, kelix_bytes, texts};
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

/// Names the attributes that scans from now on bring beside each key's value: `count` of them, and none with 0.
/// What the rows tell ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_rows_set_attributes(
    rows: *mut kelix_rows,
    names: *const kelix_bytes,
    count: usize,
) -> c_int {
    alone("kelix_rows_set_attributes", || {
        // SAFETY: the promises.
        unsafe {
            let mut rows = enter(rows)?;
            *rows = Rows::with_attributes(&texts(names, count, "names")?);
            Ok(KELIX_OK)
        }
    })
}

/// An attribute of a row, by the row's index and the attribute's place among the names that
/// kelix_rows_set_attributes() was given. KELIX_ABSENT: the item has no such bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_rows_attribute(
    rows: *const kelix_rows,
    index: usize,
    attribute: usize,
    bytes: *mut kelix_bytes,
) -> c_int {
    alone("kelix_rows_attribute", || {
        // SAFETY: the promises.
        unsafe {
            let mut place = Place::needed(bytes, "bytes")?;
            let rows = enter(rows.cast_mut())?;
            check_index(index, rows.len())?;
            check_index(attribute, rows.names().len())?;
            let found = rows.attribute(index, attribute);
            place.tell(kelix_bytes::of(found.unwrap_or_default()));
            Ok(if found.is_some() { KELIX_OK } else { KELIX_ABSENT })
        }
    })
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

/// Where a key and its value stand, and what belongs to them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kelix_row_entry {
    /// First byte of the key in the rows' data.
    pub key_start: u64,
    /// Length of the key in bytes.
    pub key_bytes: u64,
    /// First byte of the value in the rows' data.
    pub value_start: u64,
    /// Length of the value in bytes.
    pub value_bytes: u64,
    /// The item's version.
    pub version: u64,
    /// When the item ends, in nanoseconds since 1970. 0: it does not.
    pub ends_ns: u64,
    /// The flags that whoever put it gave it.
    pub flags: u32,
    /// Always 0.
    pub reserved: u32,
}

const _: () = {
    assert!(size_of::<kelix_row_entry>() == size_of::<RowEntry>());
    assert!(offset_of!(kelix_row_entry, key_start) == offset_of!(RowEntry, key_start));
    assert!(offset_of!(kelix_row_entry, key_bytes) == offset_of!(RowEntry, key_bytes));
    assert!(offset_of!(kelix_row_entry, value_start) == offset_of!(RowEntry, value_start));
    assert!(offset_of!(kelix_row_entry, value_bytes) == offset_of!(RowEntry, value_bytes));
    assert!(offset_of!(kelix_row_entry, version) == offset_of!(RowEntry, version));
    assert!(offset_of!(kelix_row_entry, ends_ns) == offset_of!(RowEntry, ends_ns));
    assert!(offset_of!(kelix_row_entry, flags) == offset_of!(RowEntry, flags));
};

/// A row of a table of the kind KELIX_INLINE.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kelix_pair {
    /// The number, its highest byte first.
    pub key: [u8; 8],
    /// Its value.
    pub value: [u8; 8],
}

const _: () = assert!(size_of::<kelix_pair>() == size_of::<[u64; 2]>());

/// All rows of the last scan as an array, in order. Of a table of the kind KELIX_INLINE it is `pairs`, and
/// `entries` is NULL. Of all others it is `entries`, which tell where keys and values stand in `data`, and
/// `pairs` is NULL. They stay until the next scan, or until the rows are freed. `count` becomes how many rows
/// these are; of none both are NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_rows_arrays(
    rows: *const kelix_rows,
    data: *mut kelix_bytes,
    entries: *mut *const kelix_row_entry,
    pairs: *mut *const kelix_pair,
    count: *mut usize,
) -> c_int {
    alone("kelix_rows_arrays", || {
        // SAFETY: the promises.
        unsafe {
            let (mut data, mut entries) = (Place::needed(data, "data")?, Place::needed(entries, "entries")?);
            let (mut pairs, mut count) = (Place::needed(pairs, "pairs")?, Place::needed(count, "count")?);
            let rows = enter(rows.cast_mut())?;
            data.tell(kelix_bytes::of(rows.data()));
            entries.tell(if rows.entries().is_empty() { null() } else { rows.entries().as_ptr().cast() });
            pairs.tell(if rows.pairs().is_empty() { null() } else { rows.pairs().as_ptr().cast() });
            count.tell(rows.len());
            Ok(KELIX_OK)
        }
    })
}

/// Where an attribute of a row stands.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kelix_cell {
    /// First byte of the attribute in the rows' data. KELIX_NO_VALUE: the item has no such bytes.
    pub start: u64,
    /// Length of the attribute in bytes.
    pub bytes: u64,
}

const _: () = {
    assert!(size_of::<kelix_cell>() == size_of::<Cell>());
    assert!(offset_of!(kelix_cell, start) == offset_of!(Cell, start));
    assert!(offset_of!(kelix_cell, bytes) == offset_of!(Cell, bytes));
    assert!(Cell::ABSENT.start == KELIX_NO_VALUE);
};

/// The attributes of all rows of the last scan as an array, row by row, each with as many cells as
/// kelix_rows_set_attributes() named. They tell where attributes stand in the data of kelix_rows_arrays(),
/// and stay as long as those. `count` becomes how many cells these are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_rows_cells(
    rows: *const kelix_rows,
    cells: *mut *const kelix_cell,
    count: *mut usize,
) -> c_int {
    alone("kelix_rows_cells", || {
        // SAFETY: the promises.
        unsafe {
            let (mut cells, mut count) = (Place::needed(cells, "cells")?, Place::needed(count, "count")?);
            let rows = enter(rows.cast_mut())?;
            cells.tell(if rows.cells().is_empty() { null() } else { rows.cells().as_ptr().cast() });
            count.tell(rows.cells().len());
            Ok(KELIX_OK)
        }
    })
}
