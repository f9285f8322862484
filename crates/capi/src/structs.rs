//! Structs whose first member is their size, so that each side may know more members than the other.

use std::mem::MaybeUninit;

use crate::error::{Failure, Result};

/// Most bytes of a struct that is passed: what says more was not filled in.
const STRUCT_BYTES_MAX: usize = 4096;

/// A struct that is passed with its size.
///
/// # Safety
///
/// It is `repr(C)`, its first member is `size: usize`, and all zeros are a value of it, as are any bytes in
/// place of its other members.
pub unsafe trait Passed: Copy {}

/// What the caller's struct says its size is.
///
/// # Safety
///
/// The promises of the crate: `from` is not null and leads to such a struct.
#[inline(always)]
unsafe fn size_of_passed<T: Passed>(from: *const T, what: &str) -> Result<usize> {
    if !from.is_aligned() {
        return Err(is_unaligned(what));
    }
    // SAFETY: aligned, and the first member of what the caller passes is its size (`Passed`).
    let size = unsafe { from.cast::<usize>().read() };
    if !(size_of::<usize>()..=STRUCT_BYTES_MAX).contains(&size) {
        return Err(has_no_size(size, what));
    }
    Ok(size)
}

#[cold]
fn is_unaligned(what: &str) -> Failure {
    Failure::argument(format!("{what} is not aligned for its type"))
}

#[cold]
fn has_no_size(size: usize, what: &str) -> Failure {
    Failure::argument(format!("{what} says that it has {size} bytes: set its member `size` to its sizeof"))
}

/// A struct of the caller's. Members that it does not have are zero, which is their default, as is all of it
/// where it is NULL. One that sets members that are not known here is refused.
///
/// # Safety
///
/// The promises of the crate.
pub unsafe fn passed<T: Passed>(from: *const T, what: &str) -> Result<T> {
    let mut known = MaybeUninit::<T>::zeroed();
    if !from.is_null() {
        // SAFETY: the promises.
        let size = unsafe { size_of_passed(from, what) }?;
        let both = size.min(size_of::<T>());
        // SAFETY: the caller's struct has `size` bytes, and `known` has at least `both`. Padding may be
        // unwritten, so it is bytes that may be that are copied.
        unsafe {
            let bytes = from.cast::<MaybeUninit<u8>>();
            bytes.copy_to_nonoverlapping(known.as_mut_ptr().cast(), both);
        }
        // SAFETY: these are the bytes behind the known ones, up to the size.
        let unknown = unsafe { std::slice::from_raw_parts(from.cast::<u8>().add(both), size - both) };
        if unknown.iter().any(|byte| *byte != 0) {
            let context = format!("{what} sets members that this release of the library does not know");
            return Err(Failure::argument(context));
        }
    }
    // SAFETY: zeros, with any bytes in place of some members: a value of it (`Passed`).
    Ok(unsafe { known.assume_init() })
}

/// Where a struct of results goes.
pub struct ResultPlace<T> {
    to: *mut T,
    size: usize,
}

impl<T: Passed> ResultPlace<T> {
    /// A struct of the caller's, which has its size; NULL: it is not told.
    ///
    /// # Safety
    ///
    /// The promises of the crate, as long as this is there.
    #[inline(always)]
    pub unsafe fn at(to: *mut T, what: &str) -> Result<ResultPlace<T>> {
        // SAFETY: the promises.
        let size = if to.is_null() { 0 } else { unsafe { size_of_passed(to, what) }? };
        Ok(ResultPlace { to, size })
    }

    /// Tells the members that the caller's struct has. Those that are not known here become zero. The size in
    /// `value` is that of the struct.
    #[inline(always)]
    pub fn tell(&mut self, value: &T) {
        if self.size == size_of::<T>() {
            // A copy of a length that the compiler knows: member by member, and without a call.
            // SAFETY: the caller's struct is one of these, as long as this is there (`ResultPlace::at`).
            unsafe { self.to.write(*value) };
        } else {
            self.tell_part(value);
        }
    }

    #[cold]
    fn tell_part(&mut self, value: &T) {
        let head = size_of::<usize>();
        if self.size <= head {
            return;
        }
        let both = self.size.min(size_of::<T>());
        let from = std::ptr::from_ref(value).cast::<MaybeUninit<u8>>();
        // SAFETY: the caller's struct has `size` bytes as long as this is there (`ResultPlace::at`); the size
        // itself, which stands first, stays.
        unsafe {
            let to = self.to.cast::<MaybeUninit<u8>>();
            from.add(head).copy_to_nonoverlapping(to.add(head), both - head);
            to.add(both).write_bytes(0, self.size - both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Known {
        size: usize,
        a: u64,
        b: u64,
    }
    // SAFETY: numbers only, the size first.
    unsafe impl Passed for Known {}

    fn read(words: &[u64]) -> Result<Known> {
        // SAFETY: each array is as long as its first word says, or refused by that.
        unsafe { passed(words.as_ptr().cast(), "options") }
    }

    #[test]
    fn older_and_newer_structs_are_understood_as_far_as_they_say_something_known() {
        assert_eq!(read(&[16, 5]).unwrap(), Known { size: 16, a: 5, b: 0 });
        assert_eq!(read(&[24, 5, 6]).unwrap(), Known { size: 24, a: 5, b: 6 });
        assert_eq!(read(&[40, 5, 6, 0, 0]).unwrap(), Known { size: 40, a: 5, b: 6 });
        assert!(read(&[40, 5, 6, 0, 1]).is_err());
        assert!(read(&[0, 5, 6]).is_err() && read(&[u64::MAX, 5, 6]).is_err());
        // SAFETY: null.
        assert_eq!(unsafe { passed::<Known>(std::ptr::null(), "options") }.unwrap().b, 0);
    }

    #[test]
    fn results_fill_what_the_caller_has() {
        for (size, wanted) in
            [(8, [8, 9, 9, 9]), (16, [16, 1, 9, 9]), (24, [24, 1, 2, 9]), (32, [32, 1, 2, 0])]
        {
            let mut words = [size, 9_u64, 9, 9];
            // SAFETY: the array is as long as its first word says.
            let mut told = unsafe { ResultPlace::at(words.as_mut_ptr().cast::<Known>(), "results") }.unwrap();
            told.tell(&Known { size: size_of::<Known>(), a: 1, b: 2 });
            assert_eq!(words, wanted);
        }
    }
}
