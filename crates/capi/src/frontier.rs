//! Many items at once, by the links that lead to them.

use std::ffi::c_int;
use std::ops::Range;

use kelix::{Frontier, Item};

use crate::batch::check_index;
use crate::call::{alone, in_session};
use crate::error::{Failure, KELIX_ABSENT, KELIX_OK, Result};
use crate::handle::{Entered, Opaque, enter, free, make};
use crate::item::{found, kelix_item};
use crate::memory::{Place, kelix_bytes, slice, slice_mut};
use crate::session::kelix_session;
use crate::table::kelix_table;

/// Where to go next: links out of any number of items, and keys. Their targets are read together. It is made
/// without a session, and read by any session with the server that its tables and items are of.
pub struct kelix_frontier {
    _private: [u8; 0],
}

impl Opaque for kelix_frontier {
    type State = Frontier;
    const MAGIC: u64 = u64::from_le_bytes(*b"kx front");
    const NAME: &'static str = "frontier";
}

/// Longest key. A frontier takes none that no table can have.
const KEY_BYTES_MAX: usize = 64 * 1024;

/// Makes a frontier without targets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_frontier_new(frontier: *mut *mut kelix_frontier) -> c_int {
    alone("kelix_frontier_new", || {
        // SAFETY: the promises.
        unsafe { Place::needed(frontier, "frontier") }?.tell(make(Frontier::new()));
        Ok(KELIX_OK)
    })
}

/// Frees a frontier. NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_frontier_free(frontier: *mut kelix_frontier) {
    // SAFETY: the promises.
    unsafe { free(frontier) };
}

/// Takes all targets out; the memory is used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_frontier_clear(frontier: *mut kelix_frontier) -> c_int {
    alone("kelix_frontier_clear", || {
        // SAFETY: the promises.
        unsafe { enter(frontier) }?.clear();
        Ok(KELIX_OK)
    })
}

/// Adds an item by its key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_frontier_add(
    frontier: *mut kelix_frontier,
    table: kelix_table,
    key: kelix_bytes,
) -> c_int {
    alone("kelix_frontier_add", || {
        // SAFETY: the promises.
        let (mut frontier, key) = unsafe { (enter(frontier)?, key.get("key")?) };
        if key.len() > KEY_BYTES_MAX {
            let context = format!("a key has {KEY_BYTES_MAX} bytes at most, this one {}", key.len());
            return Err(Failure::argument(context));
        }
        frontier.add(table.table(), key);
        Ok(KELIX_OK)
    })
}

/// Adds the targets of an item's links under a name, in order. `added`, which may be NULL, becomes how many
/// that are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_frontier_add_links(
    frontier: *mut kelix_frontier,
    item: *const kelix_item,
    name: kelix_bytes,
    added: *mut usize,
) -> c_int {
    alone("kelix_frontier_add_links", || {
        // SAFETY: the promises.
        unsafe {
            let mut place = Place::optional(added, "added")?;
            let (mut frontier, held) = (enter(frontier)?, enter(item.cast_mut())?);
            place.tell(frontier.add_links(held.item()?, name.text("name")?, |_| true));
            Ok(KELIX_OK)
        }
    })
}

/// How many targets a frontier has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_frontier_count(frontier: *const kelix_frontier, count: *mut usize) -> c_int {
    alone("kelix_frontier_count", || {
        // SAFETY: the promises.
        unsafe {
            Place::needed(count, "count")?.tell(enter(frontier.cast_mut())?.len());
            Ok(KELIX_OK)
        }
    })
}

/// The number of the table, and the key, of a target, by its index; either place may be NULL. The key stays
/// until the frontier is changed or freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_frontier_target(
    frontier: *const kelix_frontier,
    index: usize,
    table_id: *mut u16,
    key: *mut kelix_bytes,
) -> c_int {
    alone("kelix_frontier_target", || {
        // SAFETY: the promises.
        unsafe {
            let (mut id, mut place) = (Place::optional(table_id, "table_id")?, Place::optional(key, "key")?);
            let frontier = enter(frontier.cast_mut())?;
            check_index(index, frontier.len())?;
            let (table, key) = frontier.target(index);
            id.tell(table.0);
            place.tell(kelix_bytes::of(key));
            Ok(KELIX_OK)
        }
    })
}

/// Some targets of a frontier, which have to be there.
pub fn targets(frontier: &Frontier, first: usize, count: usize) -> Result<Range<usize>> {
    match first.checked_add(count).filter(|end| *end <= frontier.len()) {
        Some(end) => Ok(first..end),
        None => {
            let context = format!("{count} targets from {first} on, of {}", frontier.len());
            Err(Failure::argument(context))
        }
    }
}

/// Items of the caller's, each of which is taken for the call. An error: one of them is in use, or is there
/// twice.
///
/// # Safety
///
/// The promises of the crate.
pub unsafe fn enter_all<'h>(
    items: *const *mut kelix_item,
    count: usize,
) -> Result<Vec<Entered<'h, kelix_item>>> {
    // SAFETY: the promises.
    let items = unsafe { slice(items, count, "items") }?;
    // SAFETY: the promises.
    items.iter().map(|item| unsafe { enter(*item) }).collect()
}

/// Reads what `count` targets of a frontier lead to, from the one with the index `first` on, their reads
/// overlapping: each into the item of the same place in `items`, which are `count` different ones. `results`,
/// which may be NULL, has an entry each: KELIX_OK, or KELIX_ABSENT where the target does not exist (any
/// more), and its item stays as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_visit(
    session: *mut kelix_session,
    frontier: *const kelix_frontier,
    first: usize,
    count: usize,
    items: *const *mut kelix_item,
    results: *mut c_int,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_visit", session, |inside| {
            let frontier = enter(frontier.cast_mut())?;
            let targets = targets(&frontier, first, count)?;
            let mut held = enter_all(items, count)?;
            let told = if results.is_null() { 0 } else { count };
            let results = slice_mut(results, told, "results")?;
            let mut read: Vec<Option<Item>> = Vec::new();
            inside.session.visit_batch(&frontier, targets, &mut read)?;
            for (index, (held, item)) in held.iter_mut().zip(read).enumerate() {
                let code = found(held, item);
                debug_assert!(matches!(code, KELIX_OK | KELIX_ABSENT));
                results.get_mut(index).into_iter().for_each(|result| *result = code);
            }
            Ok(KELIX_OK)
        })
    }
}
