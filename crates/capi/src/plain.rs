//! Operations on one key and its plain value.

use std::ffi::{c_int, c_void};
use std::time::{Duration, SystemTime};

use kelix::{CompareAndSet, NewItem, TryGet, Version};

use crate::call::{Session, in_session};
use crate::error::{Failure, KELIX_ABSENT, KELIX_MISMATCH, KELIX_OK, KELIX_WOULD_WAIT, Result};
use crate::memory::{Place, kelix_bytes, slice, slice_mut};
use crate::session::kelix_session;
use crate::structs::{Passed, ResultPlace, passed};
use crate::table::kelix_table;

/// What a get tells beside the value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kelix_got {
    /// sizeof(kelix_got), set by the caller.
    pub size: usize,
    /// How many bytes the value has. After KELIX_BUFFER_TOO_SMALL: how many it takes.
    pub bytes: u64,
    /// Its version, for kelix_compare_and_set(). After KELIX_BUFFER_TOO_SMALL: 0.
    pub version: u64,
    /// How many bytes were copied: all of the value, or of kelix_get_range() the part. After
    /// KELIX_BUFFER_TOO_SMALL: 0.
    pub copied: u64,
}

// SAFETY: numbers, the size first.
unsafe impl Passed for kelix_got {}

impl kelix_got {
    fn new(bytes: usize, version: u64, copied: usize) -> kelix_got {
        kelix_got { size: size_of::<kelix_got>(), bytes: bytes as u64, version, copied: copied as u64 }
    }
}

/// Gets the value of a key (of an item with attributes, that of the attribute without a name) into the
/// caller's memory, which has room for `room` bytes. `got` may be NULL. Flags and the end of the item are
/// told by kelix_get_item().
///
/// KELIX_OK, or KELIX_ABSENT: there is no such key, and nothing is written. KELIX_BUFFER_TOO_SMALL: `got` and
/// the error's `needed_bytes` tell how many bytes it takes; what stands in the memory is of no use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_get(
    session: *mut kelix_session,
    table: kelix_table,
    key: kelix_bytes,
    buffer: *mut c_void,
    room: usize,
    got: *mut kelix_got,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_get", session, |inside| {
            let mut got = ResultPlace::at(got, "got")?;
            let (key, buffer) = (key.get("key")?, slice_mut(buffer.cast::<u8>(), room, "buffer")?);
            match inside.session.get_into(table.table(), key, buffer) {
                Ok(Some((bytes, version))) => {
                    got.tell(&kelix_got::new(bytes, version.0, bytes));
                    Ok(KELIX_OK)
                }
                Ok(None) => Ok(KELIX_ABSENT),
                Err(error) => Err(needs(error, &mut got)),
            }
        })
    }
}

/// Tells how many bytes a value takes that is longer than its buffer.
#[cold]
fn needs(error: kelix::Error, got: &mut ResultPlace<kelix_got>) -> Failure {
    if let Some(bytes) = error.needed_bytes() {
        got.tell(&kelix_got::new(bytes, 0, 0));
    }
    error.into()
}

/// Gets a value as kelix_get() does, if loads from memory are all it takes: it never waits, sends, maps or
/// calls the system, so it may be called where nobody must be kept waiting. KELIX_WOULD_WAIT: call
/// kelix_get(), which does what is due. So it is from time to time for every key, for keys that a hash table
/// does not have, values of more than a few KiB, and wherever the server's memory is not within reach of
/// loads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_try_get(
    session: *mut kelix_session,
    table: kelix_table,
    key: kelix_bytes,
    buffer: *mut c_void,
    room: usize,
    got: *mut kelix_got,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_try_get", session, |inside| {
            let mut got = ResultPlace::at(got, "got")?;
            let (key, buffer) = (key.get("key")?, slice_mut(buffer.cast::<u8>(), room, "buffer")?);
            match inside.session.try_get_into(table.table(), key, buffer) {
                Ok(TryGet::Found(bytes, version)) => {
                    got.tell(&kelix_got::new(bytes, version.0, bytes));
                    Ok(KELIX_OK)
                }
                Ok(TryGet::Absent) => Ok(KELIX_ABSENT),
                Ok(TryGet::WouldWait) => Ok(KELIX_WOULD_WAIT),
                Err(error) => Err(needs(error, &mut got)),
            }
        })
    }
}

/// Gets a part of a value: from the byte `from` on as much as there is room for, and no bytes behind its end.
/// `got`, which may be NULL, tells how many bytes were copied, how many the whole value has, and its version:
/// parts whose versions are the same are of the same value. Of a value of more than a few KiB only the part
/// is read. KELIX_ABSENT: there is no such key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_get_range(
    session: *mut kelix_session,
    table: kelix_table,
    key: kelix_bytes,
    from: u64,
    buffer: *mut c_void,
    room: usize,
    got: *mut kelix_got,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_get_range", session, |inside| {
            let mut got = ResultPlace::at(got, "got")?;
            let (key, buffer) = (key.get("key")?, slice_mut(buffer.cast::<u8>(), room, "buffer")?);
            let Some(part) = inside.session.get_range_into(table.table(), key, from, buffer)? else {
                return Ok(KELIX_ABSENT);
            };
            got.tell(&kelix_got::new(part.value_bytes, part.version.0, part.copied));
            Ok(KELIX_OK)
        })
    }
}

/// Puts a plain value. `version` may be NULL; otherwise it becomes the key's new version.
///
/// Errors of writes: KELIX_OUT_OF_MEMORY, KELIX_FROZEN, KELIX_DENIED, and those of a server that does not
/// answer, KELIX_UNAVAILABLE and KELIX_TIMED_OUT; the error's `effect` tells whether it was done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_put(
    session: *mut kelix_session,
    table: kelix_table,
    key: kelix_bytes,
    value: kelix_bytes,
    version: *mut u64,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_put", session, |inside| {
            let mut version = Place::optional(version, "version")?;
            let put = inside.session.put(table.table(), key.get("key")?, value.get("value")?)?;
            version.tell(put.0);
            Ok(KELIX_OK)
        })
    }
}

/// Deletes a key. KELIX_ABSENT: it was not there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_delete(
    session: *mut kelix_session,
    table: kelix_table,
    key: kelix_bytes,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_delete", session, |inside| {
            let was_there = inside.session.delete(table.table(), key.get("key")?)?;
            Ok(if was_there { KELIX_OK } else { KELIX_ABSENT })
        })
    }
}

/// The version that a caller expects; `None`: the key is to be absent.
///
/// # Safety
///
/// The promises of the crate.
pub unsafe fn expected_version(expected: *const u64) -> Result<Option<Version>> {
    // SAFETY: the promises.
    let expected = unsafe { slice(expected, usize::from(!expected.is_null()), "expected") }?;
    Ok(expected.first().map(|version| Version(*version)))
}

/// The result of a write that was to be done if the key had the expected version, and the version it has now.
pub fn compared(outcome: CompareAndSet) -> (c_int, Option<Version>) {
    match outcome {
        CompareAndSet::Done(version) => (KELIX_OK, version),
        // A key that is absent is as expected, where nothing was expected there.
        CompareAndSet::Mismatch(None) => (KELIX_ABSENT, None),
        CompareAndSet::Mismatch(version) => (KELIX_MISMATCH, version),
    }
}

/// Puts a plain value if the key's version is still the expected one; `expected` NULL: if it is absent.
///
/// KELIX_OK, and `version` (which may be NULL) becomes the new one; KELIX_MISMATCH, and it becomes that which
/// the key has; KELIX_ABSENT: the key is not there, though a version was expected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_compare_and_set(
    session: *mut kelix_session,
    table: kelix_table,
    key: kelix_bytes,
    expected: *const u64,
    value: kelix_bytes,
    version: *mut u64,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_compare_and_set", session, |inside| {
            let mut version = Place::optional(version, "version")?;
            let expected = expected_version(expected)?;
            let (key, value) = (key.get("key")?, value.get("value")?);
            let outcome = inside.session.compare_and_set(table.table(), key, expected, value)?;
            let (code, now) = compared(outcome);
            version.tell(now.map_or(0, |now| now.0));
            Ok(code)
        })
    }
}

/// Deletes a key if its version is still the expected one. Results are those of kelix_compare_and_set();
/// after KELIX_OK `version` becomes 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_compare_and_delete(
    session: *mut kelix_session,
    table: kelix_table,
    key: kelix_bytes,
    expected: u64,
    version: *mut u64,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_compare_and_delete", session, |inside| {
            let mut version = Place::optional(version, "version")?;
            let (key, expected) = (key.get("key")?, Version(expected));
            let outcome = inside.session.compare_and_delete(table.table(), key, expected)?;
            let (code, now) = compared(outcome);
            version.tell(now.map_or(0, |now| now.0));
            Ok(code)
        })
    }
}

/// Whatever version the key has. The default.
pub const KELIX_EXPECT_ANY: c_int = 0;
/// Only if the key is absent.
pub const KELIX_EXPECT_ABSENT: c_int = 1;
/// Only if the key has the version that is named beside.
pub const KELIX_EXPECT_VERSION: c_int = 2;

/// How to write. What is zero has its default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kelix_write {
    /// sizeof(kelix_write).
    pub size: usize,
    /// What the item's flags become. They mean nothing to the store.
    pub flags: u32,
    /// When to write: KELIX_EXPECT_ANY and so on.
    pub expect: c_int,
    /// Of KELIX_EXPECT_VERSION: the version.
    pub expected: u64,
    /// How long after the write the item ends, by the server's clock. 0: not so.
    pub ends_in_ns: u64,
    /// When it ends, in nanoseconds since 1970, by the server's clock. 0: not so. Not both.
    pub ends_at_ns: u64,
}

// SAFETY: numbers, the size first.
unsafe impl Passed for kelix_write {}

/// A time as a number of nanoseconds since 1970.
pub fn time_of(ns: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(ns)
}

impl kelix_write {
    /// `None`: whatever version it is.
    pub fn expected(&self) -> Result<Option<Option<Version>>> {
        match self.expect {
            KELIX_EXPECT_ANY => Ok(None),
            KELIX_EXPECT_ABSENT => Ok(Some(None)),
            KELIX_EXPECT_VERSION => Ok(Some(Some(Version(self.expected)))),
            other => Err(Failure::argument(format!("nothing that is expected has the number {other}"))),
        }
    }

    /// The same where flags and end are said elsewhere.
    pub fn only_expected(&self) -> Result<Option<Option<Version>>> {
        if (self.flags, self.ends_in_ns, self.ends_at_ns) != (0, 0, 0) {
            return Err(Failure::argument("flags and end of an item are its builder's"));
        }
        self.expected()
    }

    fn item(&self, value: &[u8]) -> Result<NewItem> {
        let item = NewItem::new().bytes("", value).flags(self.flags);
        match (self.ends_in_ns, self.ends_at_ns) {
            (0, 0) => Ok(item),
            (ns, 0) => Ok(item.expires_in(Duration::from_nanos(ns))),
            (0, ns) => Ok(item.expires_at(time_of(ns))),
            _ => Err(Failure::argument("an item ends in a time or at a time, not both")),
        }
    }
}

/// Puts an item, if the key is as expected.
pub fn put_expecting(
    inside: &mut Session,
    (table, key): (kelix_table, &[u8]),
    expect: Option<Option<Version>>,
    item: &NewItem,
) -> Result<(c_int, Option<Version>)> {
    match expect {
        None => Ok((KELIX_OK, Some(inside.session.put_item(table.table(), key, item)?))),
        Some(expected) => {
            let outcome = inside.session.compare_and_set_item(table.table(), key, expected, item)?;
            Ok(compared(outcome))
        }
    }
}

/// Puts a plain value with flags and an end, and only if the key is as expected. `write` may be NULL: all
/// defaults, as kelix_put(). Results are those of kelix_compare_and_set().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_put_with(
    session: *mut kelix_session,
    table: kelix_table,
    key: kelix_bytes,
    value: kelix_bytes,
    write: *const kelix_write,
    version: *mut u64,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_put_with", session, |inside| {
            let mut version = Place::optional(version, "version")?;
            let write = passed(write, "write")?;
            let item = write.item(value.get("value")?)?;
            let put = put_expecting(inside, (table, key.get("key")?), write.expected()?, &item)?;
            version.tell(put.1.map_or(0, |now| now.0));
            Ok(put.0)
        })
    }
}
