//! Many keys at once.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;

use kelix::{ValueEntry, Values, Version};

use crate::call::{alone, in_session};
use crate::error::{Failure, KELIX_ABSENT, KELIX_OK, Result};
use crate::handle::{Opaque, enter, free, make};
use crate::list::{kelix_list, strings};
use crate::memory::{Place, kelix_bytes, slice_mut};
use crate::session::kelix_session;
use crate::structs::{Passed, passed};
use crate::table::kelix_table;

/// The values of a batch, in memory that is used again from batch to batch. What it tells stays until the
/// next batch, or until it is freed.
pub struct kelix_values {
    _private: [u8; 0],
}

impl Opaque for kelix_values {
    type State = Values;
    const MAGIC: u64 = u64::from_le_bytes(*b"kxvalues");
    const NAME: &'static str = "values";
}

/// Makes room for the values of a batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_values_new(values: *mut *mut kelix_values) -> c_int {
    alone("kelix_values_new", || {
        // SAFETY: the promises.
        unsafe { Place::needed(values, "values") }?.tell(make(Values::new()));
        Ok(KELIX_OK)
    })
}

/// Frees values. NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_values_free(values: *mut kelix_values) {
    // SAFETY: the promises.
    unsafe { free(values) };
}

/// Gets the values of many keys, whose reads overlap. Each key has an entry in `values`, in order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_multi_get(
    session: *mut kelix_session,
    table: kelix_table,
    keys: *const kelix_list,
    values: *mut kelix_values,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_multi_get", session, |inside| {
            let mut values = enter(values)?;
            inside.session.multi_get_into(table.table(), &strings(keys, "keys")?, &mut values)?;
            Ok(KELIX_OK)
        })
    }
}

/// How many keys the last batch had.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_values_count(values: *const kelix_values, count: *mut usize) -> c_int {
    alone("kelix_values_count", || {
        // SAFETY: the promises.
        unsafe {
            Place::needed(count, "count")?.tell(enter(values.cast_mut())?.len());
            Ok(KELIX_OK)
        }
    })
}

/// The value of the key with this index in the last batch, and its version; either place may be NULL.
/// KELIX_ABSENT: there is no such key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_values_get(
    values: *const kelix_values,
    index: usize,
    value: *mut kelix_bytes,
    version: *mut u64,
) -> c_int {
    alone("kelix_values_get", || {
        // SAFETY: the promises.
        unsafe {
            let (mut place, mut of) =
                (Place::optional(value, "value")?, Place::optional(version, "version")?);
            let values = enter(values.cast_mut())?;
            check_index(index, values.len())?;
            let Some(value) = values.get(index) else { return Ok(KELIX_ABSENT) };
            place.tell(kelix_bytes::of(value));
            of.tell(values.version(index).map_or(0, |version| version.0));
            Ok(KELIX_OK)
        }
    })
}

/// Where the value of a key stands, and what belongs to it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kelix_value_entry {
    /// Its first byte in the values' data. KELIX_NO_VALUE: the key is absent.
    pub start: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The item's version.
    pub version: u64,
    /// When the item ends, in nanoseconds since 1970. 0: it does not.
    pub ends_ns: u64,
    /// The flags that whoever put it gave it.
    pub flags: u32,
    /// Always 0.
    pub reserved: u32,
}

/// In kelix_value_entry: the key is absent; in kelix_cell: the attribute is.
#[allow(dead_code, reason = "C reads it; Rust 1.85 does not count assertions")]
pub const KELIX_NO_VALUE: u64 = u64::MAX;

const _: () = {
    assert!(size_of::<kelix_value_entry>() == size_of::<ValueEntry>());
    assert!(offset_of!(kelix_value_entry, start) == offset_of!(ValueEntry, start));
    assert!(offset_of!(kelix_value_entry, bytes) == offset_of!(ValueEntry, bytes));
    assert!(offset_of!(kelix_value_entry, version) == offset_of!(ValueEntry, version));
    assert!(offset_of!(kelix_value_entry, ends_ns) == offset_of!(ValueEntry, ends_ns));
    assert!(offset_of!(kelix_value_entry, flags) == offset_of!(ValueEntry, flags));
    assert!(ValueEntry::ABSENT.start == KELIX_NO_VALUE);
};

/// All values of the last batch as arrays: `entries` has an entry a key, in order, which tells where its
/// value stands in `data`. Both stay until the next batch, or until the values are freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_values_arrays(
    values: *const kelix_values,
    data: *mut kelix_bytes,
    entries: *mut *const kelix_value_entry,
    count: *mut usize,
) -> c_int {
    alone("kelix_values_arrays", || {
        // SAFETY: the promises.
        unsafe {
            let (mut data, mut entries) = (Place::needed(data, "data")?, Place::needed(entries, "entries")?);
            let mut count = Place::needed(count, "count")?;
            let values = enter(values.cast_mut())?;
            data.tell(kelix_bytes::of(values.data()));
            entries.tell(values.entries().as_ptr().cast());
            count.tell(values.entries().len());
            Ok(KELIX_OK)
        }
    })
}

/// Refuses an index that is not there.
pub fn check_index(index: usize, count: usize) -> Result<()> {
    if index < count {
        return Ok(());
    }
    Err(Failure::argument(format!("there is no index {index} among {count}")))
}

/// Rows of the caller's, an array of numpy's say: one every `stride` bytes, each `width` bytes long.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kelix_grid {
    /// sizeof(kelix_grid).
    pub size: usize,
    /// Where the first row begins.
    pub rows: *mut c_void,
    /// How many bytes are there for all rows.
    pub bytes: usize,
    /// From the beginning of a row to that of the next one: `width` at least.
    pub stride: usize,
    /// How many bytes a row has.
    pub width: usize,
    /// A byte a row, which becomes 1, or 0 where the key is absent. NULL: it is not told.
    pub present: *mut u8,
}

// SAFETY: addresses and numbers, the size first.
unsafe impl Passed for kelix_grid {}

/// Rows, once they are known to be the caller's.
struct Grid<'a> {
    rows: &'a mut [u8],
    stride: usize,
    width: usize,
}

impl Grid<'_> {
    fn check(&self, count: usize) -> Result<()> {
        if self.stride < self.width {
            let context = format!("rows of {} bytes, one every {}, overlap", self.width, self.stride);
            return Err(Failure::argument(context));
        }
        let before = count.saturating_sub(1).checked_mul(self.stride);
        let needed = before.and_then(|before| before.checked_add(self.width)).filter(|_| count > 0);
        if count > 0 && needed.is_none_or(|needed| needed > self.rows.len()) {
            let context = format!("{count} rows do not fit {} bytes", self.rows.len());
            return Err(Failure::argument(context));
        }
        Ok(())
    }

    /// Writes a row, whose rest becomes zero.
    fn put(&mut self, index: usize, value: &[u8]) {
        let row = &mut self.rows[index * self.stride..][..self.width];
        let (head, rest) = row.split_at_mut(value.len());
        head.copy_from_slice(value);
        rest.fill(0);
    }
}

/// Gets the values of many keys into rows of the caller's. Behind a shorter value the row is zero, and so is
/// that of a key that is absent; between rows nothing is written.
///
/// KELIX_BUFFER_TOO_SMALL: a value is longer than a row; the error's `needed_bytes` tells the length of the
/// longest one. KELIX_INVALID_ARGUMENT: rows overlap, or are more than their memory. Nothing is written then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_multi_get_rows(
    session: *mut kelix_session,
    table: kelix_table,
    keys: *const kelix_list,
    grid: *const kelix_grid,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_multi_get_rows", session, |inside| {
            let keys = strings(keys, "keys")?;
            let kelix_grid { rows, bytes, stride, width, present, .. } = passed(grid, "grid")?;
            let mut grid = Grid { rows: slice_mut(rows.cast(), bytes, "rows")?, stride, width };
            grid.check(keys.len())?;
            let told = if present.is_null() { 0 } else { keys.len() };
            let present = slice_mut(present, told, "present")?;
            let values = &mut inside.values;
            inside.session.multi_get_into(table.table(), &keys, values)?;
            let found = |index: usize| values.get(index);
            let longest = (0..keys.len()).filter_map(|index| found(index).map(<[u8]>::len)).max();
            if let Some(longest) = longest.filter(|longest| *longest > width) {
                let context = format!("a value has {longest} bytes, and a row {width}");
                return Err(Failure::too_small(context, longest as u64));
            }
            for index in 0..keys.len() {
                grid.put(index, found(index).unwrap_or_default());
            }
            for (index, present) in present.iter_mut().enumerate() {
                *present = found(index).is_some().into();
            }
            Ok(KELIX_OK)
        })
    }
}

/// Puts many plain values, as many as there are keys. `results` and `versions`, each of which may be NULL,
/// have an entry a key, in order: KELIX_OK or the kind of its error, and its new version or 0.
///
/// KELIX_OK: all were put. Otherwise the first error; others may have been put, as `results` tells. Once the
/// server has failed to answer one, the rest is not sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_multi_put(
    session: *mut kelix_session,
    table: kelix_table,
    keys: *const kelix_list,
    values: *const kelix_list,
    results: *mut c_int,
    versions: *mut u64,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_multi_put", session, |inside| {
            let puts = Puts::of(keys, values, results, versions)?;
            let ended = inside.session.multi_put(table.table(), &puts.items)?;
            puts.tell(ended)
        })
    }
}

/// Gets the values of many keys, as kelix_multi_get(), and puts many plain values, as kelix_multi_put(), at
/// once: the client reads while the shard writes. A get of a key that is also put finds the value before or
/// after. An error that is no put's is one of the gets; the puts have ended then too, and its effect tells
/// whether one may have been done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_multi_get_put(
    session: *mut kelix_session,
    table: kelix_table,
    keys: *const kelix_list,
    values: *mut kelix_values,
    put_keys: *const kelix_list,
    put_values: *const kelix_list,
    results: *mut c_int,
    versions: *mut u64,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_multi_get_put", session, |inside| {
            let (keys, mut values) = (strings(keys, "keys")?, enter(values)?);
            let puts = Puts::of(put_keys, put_values, results, versions)?;
            let ended = inside.session.multi_get_put(table.table(), &keys, &mut values, &puts.items)?;
            puts.tell(ended)
        })
    }
}

/// Puts of the caller's, and where their results go.
struct Puts<'a> {
    items: Vec<(&'a [u8], &'a [u8])>,
    results: &'a mut [c_int],
    versions: &'a mut [u64],
}

impl Puts<'_> {
    /// # Safety
    ///
    /// The promises of the crate.
    unsafe fn of<'a>(
        keys: *const kelix_list,
        values: *const kelix_list,
        results: *mut c_int,
        versions: *mut u64,
    ) -> Result<Puts<'a>> {
        // SAFETY: the promises.
        let (keys, values) = unsafe { (strings(keys, "keys")?, strings(values, "values")?) };
        if keys.len() != values.len() {
            let context = format!("{} keys, and {} values", keys.len(), values.len());
            return Err(Failure::argument(context));
        }
        let length = |is_null: bool| if is_null { 0 } else { keys.len() };
        // SAFETY: the promises.
        let (results, versions) = unsafe {
            (
                slice_mut(results, length(results.is_null()), "results")?,
                slice_mut(versions, length(versions.is_null()), "versions")?,
            )
        };
        Ok(Puts { items: keys.into_iter().zip(values).collect(), results, versions })
    }

    /// Tells how the puts ended. An error: that of the first one that failed.
    fn tell(self, ended: Vec<kelix::Result<Version>>) -> Result<c_int> {
        let mut first = None;
        for (index, put) in ended.into_iter().enumerate() {
            let (code, version) = match put {
                Ok(version) => (KELIX_OK, version.0),
                Err(error) => {
                    let failure = Failure::from(error);
                    let code = failure.code();
                    first.get_or_insert(failure);
                    (code, 0)
                }
            };
            self.results.get_mut(index).into_iter().for_each(|result| *result = code);
            self.versions.get_mut(index).into_iter().for_each(|place| *place = version);
        }
        first.map_or(Ok(KELIX_OK), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: usize, stride: usize, width: usize, count: usize) -> bool {
        Grid { rows: &mut vec![9; bytes], stride, width }.check(count).is_ok()
    }

    #[test]
    fn rows_fit_their_memory_and_do_not_overlap() {
        assert!(check(20, 8, 4, 3) && !check(19, 8, 4, 3) && check(0, 8, 4, 0));
        assert!(!check(20, 4, 8, 1));
        assert!(!check(20, usize::MAX, 4, 3) && !check(20, usize::MAX, usize::MAX, 2));
    }

    #[test]
    fn a_row_ends_with_zeros_and_its_neighbours_stay() {
        let mut rows = [9; 8];
        Grid { rows: &mut rows, stride: 4, width: 3 }.put(1, b"a");
        assert_eq!(rows, [9, 9, 9, 9, b'a', 0, 0, 9]);
    }
}
