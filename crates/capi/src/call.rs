//! How each function begins and ends: it enters its session, and no panic leaves it.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use kelix::{Client, Table};

use crate::error::{ErrorRecord, Failure, Result, note};
use crate::handle::enter;
use crate::session::kelix_session;
use crate::submit::Submitted;
use crate::table::Names;

/// What a session's handle holds.
pub struct Session {
    /// Tells it from all others of this process, for handles that belong to one.
    pub number: u64,
    pub session: kelix::Session,
    pub client: Client,
    /// Its last error.
    pub last: Option<Box<ErrorRecord>>,
    /// Results of the last call that are the library's memory.
    pub names: Names,
    pub text: String,
    /// Where the values of a batch land that are the caller's rows in the end.
    pub values: kelix::Values,
    pub submitted: Submitted,
}

impl Session {
    /// A session's state around it.
    pub fn of(client: Client, session: kelix::Session) -> Session {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        Session {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            session,
            client,
            last: None,
            names: Names::default(),
            text: String::new(),
            values: kelix::Values::new(),
            submitted: Submitted::default(),
        }
    }

    /// Refuses what belongs to another session.
    pub fn check(&self, number: u64, what: &str) -> Result<()> {
        if number == self.number {
            return Ok(());
        }
        Err(Failure::argument(format!("the {what} is of another session")))
    }

    #[cold]
    fn note(&mut self, failure: &Failure) -> c_int {
        self.last = Some(Box::new(ErrorRecord::of(failure)));
        failure.code()
    }
}

/// Runs a function of a session, named `name` in its errors.
///
/// # Safety
///
/// The promises of the crate.
#[inline(always)]
pub unsafe fn in_session(
    name: &'static str,
    session: *mut kelix_session,
    call: impl FnOnce(&mut Session) -> Result<c_int>,
) -> c_int {
    // SAFETY: the promises.
    match unsafe { enter(session) } {
        Ok(mut session) => {
            // A code alone leaves it: a result, which has a tag beside the code, would go through memory.
            let called = catch_unwind(AssertUnwindSafe(|| match call(&mut session) {
                Ok(code) => code,
                Err(failure) => session.note(&failure.of(name)),
            }));
            called.unwrap_or_else(|panic| session.note(&Failure::panicked(&*panic).of(name)))
        }
        Err(failure) => note(&failure.of(name)),
    }
}

/// Runs a function that has no session.
pub fn alone(name: &'static str, call: impl FnOnce() -> Result<c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(code)) => code,
        Ok(Err(failure)) => note(&failure.of(name)),
        Err(panic) => note(&Failure::panicked(&*panic).of(name)),
    }
}

/// What goes from thread to thread with a handle, or is used by all of them, may.
const _: () = {
    const fn goes<T: Send>() {}
    const fn is_shared<T: Sync>() {}
    goes::<Session>();
    goes::<Table>();
    is_shared::<Client>();
};

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::ptr::null;

    use super::*;
    use crate::error::{KELIX_EFFECT_UNKNOWN, KELIX_INTERNAL, KELIX_INVALID_ARGUMENT, kelix_last_error};

    #[test]
    fn a_panic_is_an_error_and_goes_no_further() {
        assert_eq!(alone("kelix_test", || panic!("number {}", 7)), KELIX_INTERNAL);
        // SAFETY: the thread's last error, whose texts end with zeros.
        let error = unsafe { &*kelix_last_error(null()) };
        assert_eq!((error.code, error.effect), (KELIX_INTERNAL, KELIX_EFFECT_UNKNOWN));
        // SAFETY: as above.
        let [operation, text] = [error.operation, error.text].map(|text| unsafe { CStr::from_ptr(text) });
        assert_eq!((operation, text), (c"kelix_test", c"a fault: number 7"));
    }

    #[test]
    fn without_a_session_the_thread_has_the_error() {
        // SAFETY: null is refused.
        let code = unsafe { in_session("kelix_get", std::ptr::null_mut(), |_| Ok(0)) };
        assert_eq!(code, KELIX_INVALID_ARGUMENT);
        // SAFETY: the thread's last error, whose texts end with zeros.
        let operation = unsafe { CStr::from_ptr((*kelix_last_error(null())).operation) };
        assert_eq!(operation, c"kelix_get");
        // SAFETY: another thread has none.
        assert!(std::thread::spawn(|| unsafe { kelix_last_error(null()) }.is_null()).join().unwrap());
    }
}
