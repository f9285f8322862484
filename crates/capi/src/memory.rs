//! Memory of callers: pointers with lengths become slices here, and nowhere else.

use std::ffi::{CStr, c_char, c_void};

use crate::error::{Failure, Result};

/// Bytes of the caller's, or of the library's where it tells something. They need no end. No bytes may have
/// any address, also NULL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct kelix_bytes {
    /// Where they begin.
    pub data: *const c_void,
    /// How many they are.
    pub bytes: usize,
}

impl kelix_bytes {
    /// Bytes of the library's, for a caller to read while they stay.
    pub fn of(bytes: &[u8]) -> kelix_bytes {
        kelix_bytes { data: bytes.as_ptr().cast(), bytes: bytes.len() }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The caller's bytes, called `what` where they are wrong.
    ///
    /// # Safety
    ///
    /// The promises of the crate.
    #[inline(always)]
    pub unsafe fn get<'a>(self, what: &str) -> Result<&'a [u8]> {
        // SAFETY: the caller's promises.
        unsafe { slice(self.data.cast(), self.bytes, what) }
    }

    /// The same as text.
    ///
    /// # Safety
    ///
    /// The promises of the crate.
    pub unsafe fn text<'a>(self, what: &str) -> Result<&'a str> {
        // SAFETY: the caller's promises.
        let bytes = unsafe { self.get(what) }?;
        std::str::from_utf8(bytes).map_err(|_| Failure::argument(format!("{what} is not UTF-8")))
    }
}

/// Checks where an array of the caller's begins, and its length. `false`: it is empty, wherever it is.
#[inline(always)]
fn is_there<T>(data: *const T, count: usize, what: &str) -> Result<bool> {
    if count == 0 {
        return Ok(false);
    }
    if data.is_null() || !data.is_aligned() || count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(cannot_be(data.is_null(), data.is_aligned(), count, what));
    }
    Ok(true)
}

#[cold]
fn cannot_be(is_null: bool, is_aligned: bool, count: usize, what: &str) -> Failure {
    Failure::argument(match (is_null, is_aligned) {
        (true, _) => format!("{what} is NULL, and its length {count}"),
        (_, false) => format!("{what} is not aligned for its type"),
        _ => format!("{what} has a length that cannot be: {count}"),
    })
}

/// An array of the caller's, called `what` where it is wrong. NULL with the length 0 is an empty one.
///
/// # Safety
///
/// The promises of the crate.
#[inline(always)]
pub unsafe fn slice<'a, T>(data: *const T, count: usize, what: &str) -> Result<&'a [T]> {
    match is_there(data, count, what)? {
        // SAFETY: neither null nor unaligned nor longer than memory can be; the rest are the caller's
        // promises.
        true => Ok(unsafe { std::slice::from_raw_parts(data, count) }),
        false => Ok(&[]),
    }
}

/// The same of an array that the call writes. What stood there before is not read.
///
/// # Safety
///
/// The promises of the crate.
#[inline(always)]
pub unsafe fn slice_mut<'a, T>(data: *mut T, count: usize, what: &str) -> Result<&'a mut [T]> {
    match is_there(data, count, what)? {
        // SAFETY: as in `slice`, and nobody else has this memory until the call has returned.
        true => Ok(unsafe { std::slice::from_raw_parts_mut(data, count) }),
        false => Ok(&mut []),
    }
}

/// An array of texts of the caller's.
///
/// # Safety
///
/// The promises of the crate.
pub unsafe fn texts<'a>(data: *const kelix_bytes, count: usize, what: &str) -> Result<Vec<&'a str>> {
    // SAFETY: the promises.
    let texts = unsafe { slice(data, count, what) }?;
    // SAFETY: the promises.
    texts.iter().map(|text| unsafe { text.text(what) }).collect()
}

/// Where a result goes that the caller may do without.
pub struct Place<T>(*mut T);

impl<T> Place<T> {
    /// A place that may be NULL: then the result is not told.
    ///
    /// # Safety
    ///
    /// The promises of the crate, as long as the place is there.
    #[inline(always)]
    pub unsafe fn optional(to: *mut T, what: &str) -> Result<Place<T>> {
        if !to.is_aligned() {
            return Err(cannot_be(false, false, 1, what));
        }
        Ok(Place(to))
    }

    /// A place that has to be there.
    ///
    /// # Safety
    ///
    /// The promises of the crate, as long as the place is there.
    #[inline(always)]
    pub unsafe fn needed(to: *mut T, what: &str) -> Result<Place<T>> {
        is_there(to, 1, what)?;
        Ok(Place(to))
    }

    /// Tells the result.
    #[inline(always)]
    pub fn tell(&mut self, value: T) {
        if !self.0.is_null() {
            // SAFETY: aligned, and memory of the caller's as long as this is there (`Place::optional`). It
            // may be unwritten, so what stood there is not dropped.
            unsafe { self.0.write(value) };
        }
    }
}

/// The bytes of a text that ends with a zero; of NULL none. They stay as long as the text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_text(text: *const c_char) -> kelix_bytes {
    if text.is_null() {
        return kelix_bytes::of(&[]);
    }
    // SAFETY: the promises; the caller passes a text that ends with a zero.
    kelix_bytes::of(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// The key of a number, in tables whose keys are numbers: its 8 bytes, the highest first. They are written to
/// `room`, which has 8 bytes, and stay as long as that. With a NULL `room` there are none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_number(number: u64, room: *mut c_void) -> kelix_bytes {
    // SAFETY: the promises; the caller passes 8 bytes, or NULL, which is an error and left alone.
    match unsafe { slice_mut(room.cast::<u8>(), 8, "room") } {
        Ok(room) => {
            room.copy_from_slice(&number.to_be_bytes());
            kelix_bytes::of(room)
        }
        Err(_) => kelix_bytes::of(&[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::KELIX_INVALID_ARGUMENT;

    #[test]
    fn lengths_are_checked_before_pointers_are_believed() {
        let words = [1_u64, 2];
        let unaligned = words.as_ptr().cast::<u8>().wrapping_add(1).cast::<u64>();
        let wrong = [
            (std::ptr::null(), 1),
            (unaligned, 1),
            (words.as_ptr(), usize::MAX),
            (words.as_ptr(), isize::MAX as usize / 8 + 1),
        ];
        for (data, count) in wrong {
            // SAFETY: each is refused before it is read.
            let refused = unsafe { slice(data, count, "words") };
            assert_eq!(refused.unwrap_err().code(), KELIX_INVALID_ARGUMENT, "{data:?} {count}");
        }
        // SAFETY: what is empty is not read, and the other one is an array of this function's.
        unsafe {
            assert_eq!(slice::<u64>(std::ptr::null(), 0, "words").unwrap(), &[] as &[u64]);
            assert_eq!(slice(unaligned, 0, "words").unwrap(), &[] as &[u64]);
            assert_eq!(slice(words.as_ptr(), 2, "words").unwrap(), &words);
        }
    }

    #[test]
    fn text_is_utf8() {
        // SAFETY: bytes of constants.
        unsafe {
            assert_eq!(kelix_bytes::of(b"name").text("name").unwrap(), "name");
            assert!(kelix_bytes::of(b"\xff").text("name").is_err());
            assert_eq!(kelix_text(c"people".as_ptr()).get("name").unwrap(), b"people");
            assert_eq!(kelix_text(std::ptr::null()).get("name").unwrap(), b"");
        }
    }

    #[test]
    fn places_that_are_null_are_left_alone_and_others_written() {
        let mut number = 0_u64;
        // SAFETY: null, or a number of this function's.
        unsafe {
            Place::<u64>::optional(std::ptr::null_mut(), "number").unwrap().tell(1);
            assert!(Place::<u64>::needed(std::ptr::null_mut(), "number").is_err());
            Place::needed(&mut number, "number").unwrap().tell(7);
        }
        assert_eq!(number, 7);
    }
}
