//! Handles: what the library makes, and the caller holds by a pointer that says nothing of what is behind it.
//!
//! ```text
//! magic word   which type of handle it is, or that it was freed
//! inside       whether a call is using it
//! state        what it holds
//! ```
//!
//! The magic word stands first in all of them, so a handle of another type is told from the one that is
//! wanted without a look at anything that the other one has not. It also finds many that were freed, by
//! accident and not by a promise: their memory may be anybody's.
//!
//! A call takes a handle for itself until it returns, so whoever comes meanwhile is refused, be it another
//! thread, or the same handle in another argument of the call. That makes the state's only reference a
//! mutable one.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Failure, Result};

/// A type of handles, by the name that C has for it.
pub trait Opaque {
    /// What one holds. Handles go from thread to thread.
    type State: Send;
    /// No other type has this number.
    const MAGIC: u64;
    /// What it is called where it is wrong.
    const NAME: &'static str;
}

/// Of a handle that was freed.
const FREED: u64 = u64::from_le_bytes(*b"kx freed");

/// What is behind the pointer.
#[repr(C)]
struct Handle<S> {
    magic: AtomicU64,
    inside: AtomicBool,
    state: UnsafeCell<S>,
}

/// Makes a handle.
pub fn make<O: Opaque>(state: O::State) -> *mut O {
    let (magic, inside) = (AtomicU64::new(O::MAGIC), AtomicBool::new(false));
    Box::into_raw(Box::new(Handle { magic, inside, state: UnsafeCell::new(state) })).cast()
}

/// The handle behind a pointer, if it is one of this type.
///
/// # Safety
///
/// The promises of the crate.
#[inline(always)]
unsafe fn find<'h, O: Opaque>(handle: *const O) -> Result<&'h Handle<O::State>> {
    let whole = handle.cast::<Handle<O::State>>();
    if whole.is_null() || !whole.is_aligned() {
        return Err(is_no_handle::<O>(whole.is_null()));
    }
    // SAFETY: what is not null is a handle of this library (the promises), and each begins with its magic
    // word.
    let magic = unsafe { &*handle.cast::<AtomicU64>() }.load(Ordering::Relaxed);
    if magic != O::MAGIC {
        return Err(is_of_another_type::<O>(magic));
    }
    // SAFETY: the magic word says that `make` made it of this type, and it stays until `free`.
    Ok(unsafe { &*whole })
}

#[cold]
fn is_no_handle<O: Opaque>(is_null: bool) -> Failure {
    let what = if is_null { "NULL" } else { "no handle" };
    Failure::argument(format!("the {} is {what}", O::NAME))
}

#[cold]
fn is_of_another_type<O: Opaque>(magic: u64) -> Failure {
    let what = if magic == FREED { "was freed" } else { "is no such handle" };
    Failure::argument(format!("the {} {what}", O::NAME))
}

#[cold]
fn is_in_use<O: Opaque>() -> Failure {
    let context = format!("the {} is being used by another call: give each thread its own", O::NAME);
    Failure::busy(context)
}

/// A handle in use. Nobody else gets at it meanwhile.
pub struct Entered<'h, O: Opaque>(&'h Handle<O::State>);

impl<O: Opaque> Deref for Entered<'_, O> {
    type Target = O::State;

    #[inline(always)]
    fn deref(&self) -> &O::State {
        // SAFETY: `inside` was false when this was made, and is true as long as it is there: see `enter`.
        unsafe { &*self.0.state.get() }
    }
}

impl<O: Opaque> DerefMut for Entered<'_, O> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut O::State {
        // SAFETY: as above, and this one is borrowed mutably.
        unsafe { &mut *self.0.state.get() }
    }
}

impl<O: Opaque> Drop for Entered<'_, O> {
    #[inline(always)]
    fn drop(&mut self) {
        // SYNC: the acquiring swap of `enter` sees what was done to the state.
        self.0.inside.store(false, Ordering::Release);
    }
}

/// Takes a handle for this call. An error: it is none of this type, or is in use.
///
/// # Safety
///
/// The promises of the crate.
#[inline(always)]
pub unsafe fn enter<'h, O: Opaque>(handle: *mut O) -> Result<Entered<'h, O>> {
    // SAFETY: the promises.
    let handle = unsafe { find(handle) }?;
    // SYNC: the release of `Entered::drop`.
    if handle.inside.swap(true, Ordering::Acquire) {
        return Err(is_in_use::<O>());
    }
    Ok(Entered(handle))
}

/// A handle that any number of threads use at once, of a type that nothing but [`free`] enters.
///
/// # Safety
///
/// The promises of the crate.
pub unsafe fn share<'h, O: Opaque<State: Sync>>(handle: *const O) -> Result<&'h O::State> {
    // SAFETY: the promises.
    let handle = unsafe { find(handle) }?;
    // SAFETY: such a type is entered to be freed alone, when nobody uses it (the promises), so there are only
    // shared references to the state.
    Ok(unsafe { &*handle.state.get() })
}

/// Frees a handle; NULL is none. One that is in use, or of another type, stays.
///
/// # Safety
///
/// The promises of the crate.
pub unsafe fn free<O: Opaque>(handle: *mut O) {
    // SAFETY: the promises.
    let Ok(entered) = (unsafe { enter(handle) }) else { return };
    entered.0.magic.store(FREED, Ordering::Relaxed);
    // Nobody else gets inside any more.
    std::mem::forget(entered);
    // SAFETY: `make` made it by a box, and this is the only call that is inside, whose references are gone.
    let whole = unsafe { Box::from_raw(handle.cast::<Handle<O::State>>()) };
    // A panic must not go on into C; what is dropped is gone then as far as it was.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(whole)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{KELIX_BUSY, KELIX_INVALID_ARGUMENT};

    struct number;
    impl Opaque for number {
        type State = u64;
        const MAGIC: u64 = 1;
        const NAME: &'static str = "number";
    }

    struct word;
    impl Opaque for word {
        type State = String;
        const MAGIC: u64 = 2;
        const NAME: &'static str = "word";
    }

    fn code<T>(result: Result<T>) -> i32 {
        result.err().map_or(0, |failure| failure.code())
    }

    #[test]
    fn a_handle_is_used_by_one_call_at_a_time() {
        let handle = make::<number>(7);
        // SAFETY: made here, and freed last.
        unsafe {
            let mut inside = enter(handle).unwrap();
            *inside += 1;
            let address = handle as usize;
            let elsewhere = std::thread::spawn(move || code(enter(address as *mut number)));
            assert_eq!(elsewhere.join().unwrap(), KELIX_BUSY);
            // In use, it is not freed.
            free(handle);
            assert_eq!(*inside, 8);
            drop(inside);
            assert_eq!(*enter(handle).unwrap(), 8);
            free(handle);
        }
    }

    #[test]
    fn handles_of_other_types_and_null_are_refused() {
        let handle = make::<word>("kelix".into());
        // SAFETY: made here, and freed last; null.
        unsafe {
            assert_eq!(code(enter(handle.cast::<number>())), KELIX_INVALID_ARGUMENT);
            free(handle.cast::<number>());
            assert_eq!(code(enter(std::ptr::null_mut::<word>())), KELIX_INVALID_ARGUMENT);
            assert_eq!(
                code(enter(handle.cast::<u8>().wrapping_add(1).cast::<word>())),
                KELIX_INVALID_ARGUMENT
            );
            free(std::ptr::null_mut::<word>());
            assert_eq!(*enter(handle).unwrap(), "kelix");
            free(handle);
        }
    }

    #[test]
    fn a_panic_inside_gives_the_handle_back() {
        let handle = make::<number>(7);
        let panicked = catch_unwind(|| {
            // SAFETY: made above.
            let _inside = unsafe { enter(handle) }.unwrap();
            panic!("inside");
        });
        assert!(panicked.is_err());
        // SAFETY: made above, freed last.
        unsafe {
            assert_eq!(*enter(handle).unwrap(), 7);
            free(handle);
        }
    }
}
