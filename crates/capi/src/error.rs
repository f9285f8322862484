//! How calls end: results, kinds of errors, and the last error with all that it tells.

use std::any::Any;
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::ptr::null;
use std::sync::LazyLock;

use kelix::{Effect, ErrorKind};

use crate::call::Session;
use crate::handle::enter;
use crate::session::kelix_session;

/// Done.
pub const KELIX_OK: c_int = 0;
/// The key is absent, or what was to come next: there is no more.
pub const KELIX_ABSENT: c_int = 1;
/// The key has not the expected version. Nothing was written.
pub const KELIX_MISMATCH: c_int = 2;
/// Done, and there is more of it to be had at once.
pub const KELIX_MORE: c_int = 3;
/// Nothing can be told without waiting.
pub const KELIX_WOULD_WAIT: c_int = 4;

/// An argument breaks a documented limit or makes no sense. Nothing was sent.
pub const KELIX_INVALID_ARGUMENT: c_int = -1;
/// The table does not exist.
pub const KELIX_NO_SUCH_TABLE: c_int = -2;
/// The item has no such attribute, or it is not of the wanted kind.
pub const KELIX_NO_SUCH_ATTRIBUTE: c_int = -3;
/// The caller's memory is smaller than the value.
pub const KELIX_BUFFER_TOO_SMALL: c_int = -4;
/// The store has no room, and none comes back by waiting.
pub const KELIX_OUT_OF_MEMORY: c_int = -5;
/// No server answers, or it has gone.
pub const KELIX_UNAVAILABLE: c_int = -6;
/// The server did not answer in time.
pub const KELIX_TIMED_OUT: c_int = -7;
/// Another server has taken over. A session connects to it with its next call, unless the error's `retry` is
/// 0: then what was used has to be got or opened anew.
pub const KELIX_SUPERSEDED: c_int = -8;
/// The generation of a loaded table that was being read is not there any more.
pub const KELIX_VIEW_EXPIRED: c_int = -9;
/// A loaded table takes no writes for a moment, because its next generation is about to come into force.
pub const KELIX_FROZEN: c_int = -10;
/// The other side, or a file, is of another version, byte order or layout.
pub const KELIX_INCOMPATIBLE: c_int = -11;
/// A file is not what was written: it was changed, or cut short.
pub const KELIX_DAMAGED: c_int = -12;
/// The other side broke the protocol.
pub const KELIX_PROTOCOL: c_int = -13;
/// The server does not let this client do that.
pub const KELIX_DENIED: c_int = -14;
/// The system refused (permission, descriptors, memory).
pub const KELIX_SYSTEM: c_int = -15;
/// The session is of another process, which forked this one: open one here.
pub const KELIX_FORKED: c_int = -16;
/// Another call is using the handle, or it stands in two arguments. Nothing was done.
pub const KELIX_BUSY: c_int = -100;
/// A fault in the library. The operation may have had an effect; the session can be used on.
pub const KELIX_INTERNAL: c_int = -101;

/// The operation did not change the store.
pub const KELIX_EFFECT_NO: c_int = 0;
/// It did.
pub const KELIX_EFFECT_YES: c_int = 1;
/// It may have: the request may have been delivered, and no answer came.
pub const KELIX_EFFECT_UNKNOWN: c_int = 2;

/// All kinds, in the order of their numbers.
const KINDS: [ErrorKind; 16] = [
    ErrorKind::InvalidArgument,
    ErrorKind::NoSuchTable,
    ErrorKind::NoSuchAttribute,
    ErrorKind::BufferTooSmall,
    ErrorKind::OutOfMemory,
    ErrorKind::Unavailable,
    ErrorKind::TimedOut,
    ErrorKind::Superseded,
    ErrorKind::ViewExpired,
    ErrorKind::Frozen,
    ErrorKind::Incompatible,
    ErrorKind::Damaged,
    ErrorKind::Protocol,
    ErrorKind::Denied,
    ErrorKind::System,
    ErrorKind::Forked,
];

/// An error.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct kelix_error {
    /// What the call returned: the kind, KELIX_INVALID_ARGUMENT and so on.
    pub code: c_int,
    /// Whether the same call may succeed later (1) or not (0). A write that may have had an effect is for the
    /// caller to judge.
    pub retry: c_int,
    /// Whether the store was changed: KELIX_EFFECT_NO and so on.
    pub effect: c_int,
    /// The operation that failed. Ends with a zero.
    pub operation: *const c_char,
    /// What happened and what to do about it, in words. Ends with a zero.
    pub text: *const c_char,
    /// Of KELIX_BUFFER_TOO_SMALL: how many bytes it takes. Otherwise 0.
    pub needed_bytes: u64,
}

/// A result of this crate's.
pub type Result<T> = std::result::Result<T, Failure>;

/// Why a call failed. Boxed, so that a result stays two words.
#[derive(Debug)]
pub struct Failure(Box<Inner>);

#[derive(Debug)]
struct Inner {
    code: c_int,
    retry: bool,
    effect: Effect,
    operation: Cow<'static, str>,
    text: String,
    needed_bytes: u64,
}

impl Failure {
    fn new(code: c_int, text: impl Into<String>) -> Failure {
        let (operation, text) = (Cow::Borrowed(""), text.into());
        Failure(Box::new(Inner { code, retry: false, effect: Effect::No, operation, text, needed_bytes: 0 }))
    }

    /// Of an argument that makes no sense.
    #[cold]
    pub fn argument(text: impl Into<String>) -> Failure {
        Failure::new(KELIX_INVALID_ARGUMENT, text)
    }

    /// Of a handle that is in use.
    pub fn busy(text: impl Into<String>) -> Failure {
        let mut failure = Failure::new(KELIX_BUSY, text);
        failure.0.retry = true;
        failure
    }

    /// Of the caller's memory, when it takes so much.
    pub fn too_small(text: impl Into<String>, needed_bytes: u64) -> Failure {
        let mut failure = Failure::new(KELIX_BUFFER_TOO_SMALL, text);
        failure.0.needed_bytes = needed_bytes;
        failure
    }

    /// Of a panic.
    pub fn panicked(panic: &(dyn Any + Send)) -> Failure {
        let said = panic.downcast_ref::<&str>().copied();
        let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let mut failure = Failure::new(KELIX_INTERNAL, format!("a fault: {}", said.unwrap_or("a panic")));
        failure.0.effect = Effect::Unknown;
        failure
    }

    /// Names the function that ended by this, unless something inside has.
    pub fn of(mut self, operation: &'static str) -> Failure {
        if self.0.operation.is_empty() {
            self.0.operation = operation.into();
        }
        self
    }

    /// The kind.
    pub fn code(&self) -> c_int {
        self.0.code
    }
}

/// The number of a kind.
fn code_of(kind: ErrorKind) -> c_int {
    match kind {
        ErrorKind::InvalidArgument => KELIX_INVALID_ARGUMENT,
        ErrorKind::NoSuchTable => KELIX_NO_SUCH_TABLE,
        ErrorKind::NoSuchAttribute => KELIX_NO_SUCH_ATTRIBUTE,
        ErrorKind::BufferTooSmall => KELIX_BUFFER_TOO_SMALL,
        ErrorKind::OutOfMemory => KELIX_OUT_OF_MEMORY,
        ErrorKind::Unavailable => KELIX_UNAVAILABLE,
        ErrorKind::TimedOut => KELIX_TIMED_OUT,
        ErrorKind::Superseded => KELIX_SUPERSEDED,
        ErrorKind::ViewExpired => KELIX_VIEW_EXPIRED,
        ErrorKind::Frozen => KELIX_FROZEN,
        ErrorKind::Incompatible => KELIX_INCOMPATIBLE,
        ErrorKind::Damaged => KELIX_DAMAGED,
        ErrorKind::Protocol => KELIX_PROTOCOL,
        ErrorKind::Denied => KELIX_DENIED,
        ErrorKind::System => KELIX_SYSTEM,
        ErrorKind::Forked => KELIX_FORKED,
        // A kind that the client has and this interface has no number for yet.
        _ => KELIX_INTERNAL,
    }
}

impl From<kelix::Error> for Failure {
    #[cold]
    fn from(error: kelix::Error) -> Failure {
        Failure(Box::new(Inner {
            code: code_of(error.kind()),
            retry: error.retry(),
            effect: error.effect(),
            operation: error.operation().into(),
            text: error.to_string(),
            needed_bytes: error.needed_bytes().unwrap_or_default() as u64,
        }))
    }
}

/// An error as C reads it, with the texts that it leads to.
pub struct ErrorRecord {
    error: kelix_error,
    _texts: [CString; 2],
}

// SAFETY: its pointers lead to its own texts, which nobody changes.
unsafe impl Send for ErrorRecord {}

/// A text that ends with a zero, and has none before.
fn text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).expect("no zeros are left")
}

impl ErrorRecord {
    /// What a failure tells.
    pub fn of(failure: &Failure) -> ErrorRecord {
        let Inner { code, retry, effect, ref operation, text: ref words, needed_bytes } = *failure.0;
        let effect = match effect {
            Effect::No => KELIX_EFFECT_NO,
            Effect::Yes => KELIX_EFFECT_YES,
            Effect::Unknown => KELIX_EFFECT_UNKNOWN,
        };
        let texts = [text(operation), text(words)];
        let [operation, words] = [texts[0].as_ptr(), texts[1].as_ptr()];
        let error = kelix_error { code, retry: retry.into(), effect, operation, text: words, needed_bytes };
        ErrorRecord { error, _texts: texts }
    }

    /// The error, for as long as this stays where it is.
    pub fn error(&self) -> &kelix_error {
        &self.error
    }
}

thread_local! {
    /// Of calls without a session, or whose session could not be entered.
    static LAST: RefCell<Option<Box<ErrorRecord>>> = const { RefCell::new(None) };
}

/// Notes an error that is no session's. Returns its kind.
#[cold]
pub fn note(failure: &Failure) -> c_int {
    let told = Box::new(ErrorRecord::of(failure));
    // Where the thread is ending nobody asks any more.
    let _ = LAST.try_with(|last| last.replace(Some(told)));
    failure.code()
}

/// The name of a kind of errors, in the words that all languages have for it: "no such table" of
/// KELIX_NO_SUCH_TABLE. NULL: no kind has this number.
#[unsafe(no_mangle)]
pub extern "C" fn kelix_kind_name(code: c_int) -> *const c_char {
    static NAMES: LazyLock<Vec<(c_int, CString)>> = LazyLock::new(|| {
        let kinds = KINDS.map(|kind| (code_of(kind), text(kind.name())));
        let ours = [(KELIX_BUSY, text("busy")), (KELIX_INTERNAL, text("internal"))];
        kinds.into_iter().chain(ours).collect()
    });
    NAMES.iter().find(|(kind, _)| *kind == code).map_or(null(), |(_, name)| name.as_ptr())
}

/// The last error of a session, and with NULL the last one of this thread in a call that has no session, or
/// whose session is NULL, no session, or in use. NULL: there was none yet.
///
/// An error stays until the next call fails: of the session, or of this thread. A session that cannot be
/// asked, because a call is using it, answers with the thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_last_error(session: *const kelix_session) -> *const kelix_error {
    if !session.is_null() {
        // SAFETY: the promises.
        if let Ok(session) = unsafe { enter(session.cast_mut()) } {
            let session: &Session = &session;
            return session.last.as_ref().map_or(null(), |told| told.error());
        }
    }
    LAST.try_with(|last| last.borrow().as_ref().map_or(null(), |told| std::ptr::from_ref(told.error())))
        .unwrap_or(null())
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn an_error_keeps_kind_retry_effect_and_words() {
        let error = kelix::Error::new(ErrorKind::TimedOut, "put", "no answer \0 came");
        let told = ErrorRecord::of(&error.with_effect(Effect::Unknown).into());
        let error = told.error();
        assert_eq!((error.code, error.retry, error.effect), (KELIX_TIMED_OUT, 1, KELIX_EFFECT_UNKNOWN));
        // SAFETY: they end with zeros, and stay as long as `told`.
        let [operation, words] = [error.operation, error.text].map(|text| unsafe { CStr::from_ptr(text) });
        assert_eq!(operation, c"put");
        assert_eq!(words, c"put: timed out: no answer   came; whether the write took effect is unknown");
    }

    #[test]
    fn kinds_have_numbers_of_their_own() {
        assert_eq!(KINDS.map(code_of), std::array::from_fn(|at| -1 - at as c_int));
    }
}
