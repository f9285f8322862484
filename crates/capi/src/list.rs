//! Lists of byte strings: keys, values.

use std::ffi::c_void;

use crate::error::{Failure, Result};
use crate::memory::slice;
use crate::structs::{Passed, passed};

/// A list of byte strings, keys or values, one behind the other in memory: with offsets (as in Arrow), or
/// each of the same width (as in an array of numpy's).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kelix_list {
    /// sizeof(kelix_list).
    pub size: usize,
    /// How many they are.
    pub count: usize,
    /// Where they stand.
    pub data: *const c_void,
    /// How many bytes stand there.
    pub bytes: usize,
    /// Where each begins in `data`, and where the last one ends: `count` + 1 numbers that never fall, from 0
    /// to `bytes`. NULL: each has `width` bytes.
    pub offsets: *const i64,
    /// Where `offsets` is NULL: how many bytes each has. Otherwise 0.
    pub width: usize,
}

// SAFETY: addresses and numbers, the size first.
unsafe impl Passed for kelix_list {}

fn wrong(what: &str, why: &str) -> Failure {
    Failure::argument(format!("{what}: {why}"))
}

/// The byte strings of a list of the caller's.
///
/// # Safety
///
/// The promises of the crate.
pub unsafe fn strings<'a>(list: *const kelix_list, what: &str) -> Result<Vec<&'a [u8]>> {
    // SAFETY: the promises.
    let list = unsafe { passed(list, what) }?;
    // SAFETY: the promises.
    let data: &[u8] = unsafe { slice(list.data.cast(), list.bytes, what) }?;
    if list.count == 0 {
        return Ok(Vec::new());
    }
    if list.offsets.is_null() {
        let needed = list.count.checked_mul(list.width);
        if needed.is_none_or(|needed| needed > data.len()) {
            return Err(wrong(what, "there are fewer bytes than their number and width say"));
        }
        if list.width == 0 {
            // Each would be empty, however many there are said to be.
            return Err(wrong(what, "neither offsets nor width are set"));
        }
        return Ok(data.chunks_exact(list.width).take(list.count).collect());
    }
    if list.width != 0 {
        return Err(wrong(what, "both offsets and width are set"));
    }
    let ends = list.count.checked_add(1).ok_or_else(|| wrong(what, "more offsets than can be"))?;
    // SAFETY: the promises.
    let offsets = unsafe { slice(list.offsets, ends, what) }?;
    let part = |pair: &[i64]| {
        let (start, end) = (usize::try_from(pair[0]).ok()?, usize::try_from(pair[1]).ok()?);
        data.get(start..end)
    };
    offsets.windows(2).map(|pair| part(pair).ok_or_else(|| wrong(what, "offsets that cannot be"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: &[u8] = b"adabob";

    fn list() -> kelix_list {
        kelix_list {
            size: size_of::<kelix_list>(),
            count: 2,
            data: DATA.as_ptr().cast(),
            bytes: DATA.len(),
            offsets: std::ptr::null(),
            width: 3,
        }
    }

    fn read<'a>(list: kelix_list) -> Result<Vec<&'a [u8]>> {
        // SAFETY: data and offsets are as long as each list of these tests says, or refused before they are
        // read.
        unsafe { strings(&list, "keys") }
    }

    #[test]
    fn byte_strings_have_a_width_or_offsets() {
        assert_eq!(read(list()).unwrap(), [b"ada", b"bob"]);
        let offsets = [0, 1, 6];
        let by_offsets = kelix_list { offsets: offsets.as_ptr(), width: 0, ..list() };
        assert_eq!(read(by_offsets).unwrap(), [&b"a"[..], b"dabob"]);
        let none = kelix_list { count: 0, data: std::ptr::null(), bytes: 0, width: 0, ..list() };
        assert_eq!(read(none).unwrap(), [] as [&[u8]; 0]);
    }

    #[test]
    fn lists_that_cannot_be_are_refused() {
        for width in [0, 4, usize::MAX] {
            assert!(read(kelix_list { width, ..list() }).is_err(), "{width}");
        }
        assert!(read(kelix_list { count: usize::MAX, ..list() }).is_err());
        assert!(read(kelix_list { data: std::ptr::null(), ..list() }).is_err());
        for offsets in [[-1, 2, 3], [0, 4, 3], [0, 3, 7], [7, 7, 7], [i64::MIN, 0, i64::MAX]] {
            let by_offsets = kelix_list { offsets: offsets.as_ptr(), width: 0, ..list() };
            assert!(read(by_offsets).is_err(), "{offsets:?}");
            assert!(read(kelix_list { width: 3, ..by_offsets }).is_err());
            assert!(read(kelix_list { count: usize::MAX, ..by_offsets }).is_err());
        }
    }
}
