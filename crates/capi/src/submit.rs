//! Submit and poll: operations that go on while their caller does something else.

use std::ffi::c_int;
use std::ptr::null;

use kelix::{Completion, Item, Outcome, PausedScan, Ticket, Version};

use crate::batch::check_index;
use crate::call::{Session, in_session};
use crate::error::{
    ErrorRecord, Failure, KELIX_ABSENT, KELIX_MORE, KELIX_OK, KELIX_WOULD_WAIT, Result, kelix_error,
};
use crate::frontier::{kelix_frontier, targets};
use crate::handle::{enter, make};
use crate::item::kelix_item;
use crate::memory::{Place, kelix_bytes, slice_mut};
use crate::new_item::kelix_item_builder;
use crate::plain::{compared, expected_version, kelix_write};
use crate::scan::{Stepped, kelix_range, kelix_scan};
use crate::session::kelix_session;
use crate::structs::passed;
use crate::table::kelix_table;

/// What the last poll of a session told.
#[derive(Default)]
pub struct Submitted {
    told: Vec<Ended>,
}

/// What an operation brought.
#[derive(Default)]
struct Ended {
    items: Vec<Item>,
    rest: Option<PausedScan>,
    error: Option<ErrorRecord>,
}

/// The operation failed.
pub const KELIX_FAILED: c_int = 0;
/// A get: KELIX_OK, or KELIX_ABSENT.
pub const KELIX_GOT: c_int = 1;
/// A put: KELIX_OK.
pub const KELIX_WRITTEN: c_int = 2;
/// A delete: KELIX_OK, or KELIX_ABSENT: the key was not there.
pub const KELIX_DELETED: c_int = 3;
/// A write of an expected version: KELIX_OK, KELIX_MISMATCH or KELIX_ABSENT, as of kelix_compare_and_set().
pub const KELIX_COMPARED: c_int = 4;
/// A page of a scan: KELIX_OK, and it was the last one, or KELIX_MORE.
pub const KELIX_PAGE: c_int = 5;

/// A submitted operation that has ended.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kelix_completion {
    /// The number that the caller gave it.
    pub user_data: u64,
    /// What it was: KELIX_GOT and so on, or KELIX_FAILED.
    pub kind: c_int,
    /// How it ended: as said there, or the kind of its error.
    pub result: c_int,
    /// Of a get: the item's version. Of a put: the new one. Of KELIX_COMPARED: the new one, or that which the
    /// key has. Otherwise 0.
    pub version: u64,
    /// Of a get: the item's value. It stays until the session's next poll.
    pub value: kelix_bytes,
    /// How many items it brought: of a get one or none, of a page any number.
    pub items: usize,
}

/// Runs a function that submits something, which gets the caller's number.
///
/// # Safety
///
/// The promises of the crate.
unsafe fn submit(
    name: &'static str,
    session: *mut kelix_session,
    user_data: u64,
    call: impl FnOnce(&mut Session) -> Result<Ticket>,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session(name, session, |inside| {
            let ticket = call(inside)?;
            inside.session.set_number(ticket, user_data);
            Ok(KELIX_OK)
        })
    }
}

/// Submits a get of an item. It begins with the next kelix_poll(), together with all others submitted until
/// then; `user_data` is the caller's number for it, which its completion has. KELIX_INVALID_ARGUMENT: the key
/// cannot be; then there is no completion, as after any error of the functions that submit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_submit_get(
    session: *mut kelix_session,
    table: kelix_table,
    key: kelix_bytes,
    user_data: u64,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        submit("kelix_submit_get", session, user_data, |inside| {
            Ok(inside.session.submit_get(table.table(), key.get("key")?)?)
        })
    }
}

/// Submits a put of a plain value, which is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_submit_put(
    session: *mut kelix_session,
    table: kelix_table,
    key: kelix_bytes,
    value: kelix_bytes,
    user_data: u64,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        submit("kelix_submit_put", session, user_data, |inside| {
            let (key, value) = (key.get("key")?, value.get("value")?);
            Ok(inside.session.submit_put(table.table(), key, value)?)
        })
    }
}

/// Submits a delete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_submit_delete(
    session: *mut kelix_session,
    table: kelix_table,
    key: kelix_bytes,
    user_data: u64,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        submit("kelix_submit_delete", session, user_data, |inside| {
            Ok(inside.session.submit_delete(table.table(), key.get("key")?)?)
        })
    }
}

/// Submits a put of a plain value that is done if the key's version is still the expected one; `expected`
/// NULL: if it is absent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_submit_compare_and_set(
    session: *mut kelix_session,
    table: kelix_table,
    key: kelix_bytes,
    expected: *const u64,
    value: kelix_bytes,
    user_data: u64,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        submit("kelix_submit_compare_and_set", session, user_data, |inside| {
            let (key, value) = (key.get("key")?, value.get("value")?);
            let expected = expected_version(expected)?;
            Ok(inside.session.submit_compare_and_set(table.table(), key, expected, value)?)
        })
    }
}

/// Submits a delete that is done if the key's version is still the expected one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_submit_compare_and_delete(
    session: *mut kelix_session,
    table: kelix_table,
    key: kelix_bytes,
    expected: u64,
    user_data: u64,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        submit("kelix_submit_compare_and_delete", session, user_data, |inside| {
            let (key, expected) = (key.get("key")?, Version(expected));
            Ok(inside.session.submit_compare_and_delete(table.table(), key, expected)?)
        })
    }
}

/// Submits a put of an item with attributes and links, which is copied. Of `write`, which may be NULL, only
/// what is expected counts, as of kelix_put_item(). It ends as KELIX_WRITTEN, or as KELIX_COMPARED where
/// something is expected.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_submit_put_item(
    session: *mut kelix_session,
    table: kelix_table,
    key: kelix_bytes,
    builder: *const kelix_item_builder,
    write: *const kelix_write,
    user_data: u64,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        submit("kelix_submit_put_item", session, user_data, |Session { session, .. }| {
            let (table, key) = (table.table(), key.get("key")?);
            let expect = passed(write, "write")?.only_expected()?;
            let item = enter(builder.cast_mut())?;
            Ok(match expect {
                None => session.submit_item(table, key, &item)?,
                Some(expected) => session.submit_compare_and_set_item(table, key, expected, &item)?,
            })
        })
    }
}

/// Submits the read along an item's first link under a name, as kelix_follow() does it. It ends as KELIX_GOT.
/// KELIX_NO_SUCH_ATTRIBUTE: the item has no such link.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_submit_follow(
    session: *mut kelix_session,
    from: *const kelix_item,
    name: kelix_bytes,
    user_data: u64,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        submit("kelix_submit_follow", session, user_data, |inside| {
            let from = enter(from.cast_mut())?;
            Ok(inside.session.submit_follow(from.item()?, name.text("name")?)?)
        })
    }
}

/// Submits the reads of `count` targets of a frontier, from the one with the index `first` on, as
/// kelix_visit() does them. Each ends by itself, as KELIX_GOT; their numbers are `user_data` and those behind
/// it, in the order of the targets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_submit_visit(
    session: *mut kelix_session,
    frontier: *const kelix_frontier,
    first: usize,
    count: usize,
    user_data: u64,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_submit_visit", session, |inside| {
            let frontier = enter(frontier.cast_mut())?;
            let targets = targets(&frontier, first, count)?;
            let tickets = inside.session.submit_visit(&frontier, targets)?;
            for (number, ticket) in (0..).zip(tickets) {
                inside.session.set_number(ticket, user_data.wrapping_add(number));
            }
            Ok(KELIX_OK)
        })
    }
}

/// Submits the first page of a scan. `range` may be NULL: the whole table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_submit_scan(
    session: *mut kelix_session,
    table: kelix_table,
    range: *const kelix_range,
    user_data: u64,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        submit("kelix_submit_scan", session, user_data, |inside| {
            let range = passed(range, "range")?.scan()?;
            Ok(inside.session.submit_scan(table.table(), &range)?)
        })
    }
}

/// Submits the next page of a scan: of the rest of a page that was submitted, or of one that was opened. The
/// scan is of no further use then, and is still to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_submit_page(
    session: *mut kelix_session,
    scan: *mut kelix_scan,
    user_data: u64,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        submit("kelix_submit_page", session, user_data, |inside| {
            let paused = enter(scan)?.take(inside)?;
            Ok(inside.session.submit_page(paused)?)
        })
    }
}

/// How many submitted operations were not told by kelix_poll() yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_outstanding(session: *mut kelix_session, count: *mut usize) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_outstanding", session, |inside| {
            Place::needed(count, "count")?.tell(inside.session.outstanding());
            Ok(KELIX_OK)
        })
    }
}

impl Submitted {
    /// Takes an operation that has ended, and what there is to tell of it.
    fn tell(&mut self, Completion { number: user_data, outcome, .. }: Completion) -> kelix_completion {
        let mut ended = Ended::default();
        let (kind, result, version) = match outcome {
            Ok(Outcome::Item(item)) => {
                let version = item.as_ref().map(Item::version);
                ended.items.extend(item);
                (KELIX_GOT, if version.is_some() { KELIX_OK } else { KELIX_ABSENT }, version)
            }
            Ok(Outcome::Written(version)) => (KELIX_WRITTEN, KELIX_OK, Some(version)),
            Ok(Outcome::Deleted(was_there)) => {
                (KELIX_DELETED, if was_there { KELIX_OK } else { KELIX_ABSENT }, None)
            }
            Ok(Outcome::Compared(outcome)) => {
                let (result, version) = compared(outcome);
                (KELIX_COMPARED, result, version)
            }
            Ok(Outcome::Page(page)) => {
                (ended.items, ended.rest) = page.into_parts();
                (KELIX_PAGE, if ended.rest.is_some() { KELIX_MORE } else { KELIX_OK }, None)
            }
            Err(error) => {
                let failure = Failure::from(error);
                ended.error = Some(ErrorRecord::of(&failure));
                (KELIX_FAILED, failure.code(), None)
            }
        };
        let value = if kind == KELIX_GOT { ended.items.first().map(Item::value) } else { None };
        let completion = kelix_completion {
            user_data,
            kind,
            result,
            version: version.map_or(0, |version| version.0),
            value: kelix_bytes::of(value.unwrap_or_default()),
            items: ended.items.len(),
        };
        self.told.push(ended);
        completion
    }

    fn told(&self, index: usize) -> Result<&Ended> {
        check_index(index, self.told.len())?;
        Ok(&self.told[index])
    }
}

/// Begins what was submitted, and tells what has ended, `most` operations at most, into `completions`;
/// `count` becomes how many they are. It waits only to send a value that does not fit one message, and to map
/// memory that is new.
///
/// KELIX_OK: that is all that has ended. KELIX_MORE: there may be more, so poll again. KELIX_WOULD_WAIT:
/// nothing has, and something is under way: wait until the descriptor of kelix_session_fd() is readable, with
/// a time-out, since an operation that is not answered in time ends with the next poll after that.
/// KELIX_ABSENT: nothing is under way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_poll(
    session: *mut kelix_session,
    completions: *mut kelix_completion,
    most: usize,
    count: *mut usize,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_poll", session, |inside| {
            let mut count = Place::needed(count, "count")?;
            count.tell(0);
            let places = slice_mut(completions, most, "completions")?;
            if places.is_empty() {
                return Err(Failure::argument("a poll has room for one completion at least"));
            }
            let Session { session, submitted, .. } = inside;
            submitted.told.clear();
            let mut ended = Vec::new();
            let told = session.poll_at_most(&mut ended, most)?;
            for (place, completion) in places.iter_mut().zip(ended) {
                *place = submitted.tell(completion);
            }
            count.tell(told);
            Ok(match (told, session.outstanding()) {
                (0, 0) => KELIX_ABSENT,
                (0, _) => KELIX_WOULD_WAIT,
                (told, left) if told < most || left == 0 => KELIX_OK,
                _ => KELIX_MORE,
            })
        })
    }
}

/// Takes an item that an operation brought which the last poll told: that of a get, or one of a page. `index`
/// is the place of its completion, `number` the item's from 0 on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_completion_item(
    session: *mut kelix_session,
    index: usize,
    number: usize,
    item: *mut kelix_item,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_completion_item", session, |inside| {
            let mut held = enter(item)?;
            let ended = inside.submitted.told(index)?;
            check_index(number, ended.items.len())?;
            held.fill(ended.items[number].clone());
            Ok(KELIX_OK)
        })
    }
}

/// What is left of a scan behind a page that the last poll told, for kelix_submit_page() or
/// kelix_scan_next(). KELIX_ABSENT: nothing is, and the scan becomes NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_completion_scan(
    session: *mut kelix_session,
    index: usize,
    scan: *mut *mut kelix_scan,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_completion_scan", session, |inside| {
            let mut place = Place::needed(scan, "scan")?;
            place.tell(std::ptr::null_mut());
            let Some(rest) = inside.submitted.told(index)?.rest.clone() else { return Ok(KELIX_ABSENT) };
            place.tell(make(Stepped::of(inside.number, rest)));
            Ok(KELIX_OK)
        })
    }
}

/// The error of an operation that the last poll told. It stays until the session's next poll. KELIX_ABSENT:
/// it did not fail, and the error becomes NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_completion_error(
    session: *mut kelix_session,
    index: usize,
    error: *mut *const kelix_error,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_completion_error", session, |inside| {
            let mut place = Place::needed(error, "error")?;
            place.tell(null());
            let Some(told) = &inside.submitted.told(index)?.error else { return Ok(KELIX_ABSENT) };
            place.tell(told.error());
            Ok(KELIX_OK)
        })
    }
}
