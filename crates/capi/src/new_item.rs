//! Items to be put.

use std::ffi::c_int;
use std::time::Duration;

use kelix::NewItem;

use crate::call::{alone, in_session};
use crate::error::{KELIX_OK, Result};
use crate::handle::{Opaque, enter, free, make};
use crate::memory::{Place, kelix_bytes};
use crate::plain::{kelix_write, put_expecting, time_of};
use crate::session::kelix_session;
use crate::structs::passed;
use crate::table::kelix_table;

/// An item to be put: a value, or attributes and links; when it ends; and flags. It can be put as often as
/// one likes, and cleared for another one.
pub struct kelix_item_builder {
    _private: [u8; 0],
}

impl Opaque for kelix_item_builder {
    type State = NewItem;
    const MAGIC: u64 = u64::from_le_bytes(*b"kx build");
    const NAME: &'static str = "item builder";
}

/// Makes an item without attributes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_item_builder_new(builder: *mut *mut kelix_item_builder) -> c_int {
    alone("kelix_item_builder_new", || {
        // SAFETY: the promises.
        unsafe { Place::needed(builder, "builder") }?.tell(make(NewItem::new()));
        Ok(KELIX_OK)
    })
}

/// Frees an item builder. NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_item_builder_free(builder: *mut kelix_item_builder) {
    // SAFETY: the promises.
    unsafe { free(builder) };
}

/// Changes an item that is being made, by what the arguments say, unless one of them is wrong.
///
/// # Safety
///
/// The promises of the crate.
unsafe fn change<A>(
    name: &'static str,
    builder: *mut kelix_item_builder,
    arguments: impl FnOnce() -> Result<A>,
    change: impl FnOnce(NewItem, A) -> NewItem,
) -> c_int {
    alone(name, || {
        // SAFETY: the promises.
        let mut item = unsafe { enter(builder) }?;
        let arguments = arguments()?;
        *item = change(std::mem::take(&mut *item), arguments);
        Ok(KELIX_OK)
    })
}

/// Takes everything out of an item builder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_item_builder_clear(builder: *mut kelix_item_builder) -> c_int {
    // SAFETY: the promises.
    unsafe { change("kelix_item_builder_clear", builder, || Ok(()), |_, ()| NewItem::new()) }
}

/// Adds bytes under a name. The empty name is the item's plain value; an item with nothing else is a plain
/// key-value item.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_item_builder_bytes(
    builder: *mut kelix_item_builder,
    name: kelix_bytes,
    bytes: kelix_bytes,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        let parts = || Ok((name.text("name")?, bytes.get("bytes")?));
        change("kelix_item_builder_bytes", builder, parts, |item, (name, bytes)| item.bytes(name, bytes))
    }
}

/// Adds a link under a name, to a key of a table, with bytes of its own (which may be none). Several links
/// under one name make a list. The target need not exist yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_item_builder_link(
    builder: *mut kelix_item_builder,
    name: kelix_bytes,
    table: kelix_table,
    key: kelix_bytes,
    bytes: kelix_bytes,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        let parts = || Ok((name.text("name")?, key.get("key")?, bytes.get("bytes")?));
        change("kelix_item_builder_link", builder, parts, |item, (name, key, bytes)| {
            item.link_with(name, table.table(), key, bytes)
        })
    }
}

/// Sets the item's flags, which mean nothing to the store. Without, they are 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_item_builder_flags(builder: *mut kelix_item_builder, flags: u32) -> c_int {
    // SAFETY: the promises.
    unsafe { change("kelix_item_builder_flags", builder, || Ok(()), |item, ()| item.flags(flags)) }
}

/// Lets the item end so many nanoseconds after it was put, by the server's clock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_item_builder_ends_in(
    builder: *mut kelix_item_builder,
    nanoseconds: u64,
) -> c_int {
    let time = Duration::from_nanos(nanoseconds);
    // SAFETY: the promises.
    unsafe { change("kelix_item_builder_ends_in", builder, || Ok(()), |item, ()| item.expires_in(time)) }
}

/// Lets the item end at a time, in nanoseconds since 1970, by the server's clock: at once if that is over.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_item_builder_ends_at(
    builder: *mut kelix_item_builder,
    nanoseconds: u64,
) -> c_int {
    let time = time_of(nanoseconds);
    // SAFETY: the promises.
    unsafe { change("kelix_item_builder_ends_at", builder, || Ok(()), |item, ()| item.expires_at(time)) }
}

/// Puts an item with attributes and links. Of `write`, which may be NULL, only what is expected counts: flags
/// and end are the builder's, and have to be 0 there. Results are those of kelix_compare_and_set(), and
/// KELIX_INVALID_ARGUMENT where the table takes no attributes or a link leads to a key that cannot be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_put_item(
    session: *mut kelix_session,
    table: kelix_table,
    key: kelix_bytes,
    builder: *const kelix_item_builder,
    write: *const kelix_write,
    version: *mut u64,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_put_item", session, |inside| {
            let mut version = Place::optional(version, "version")?;
            let expect = passed(write, "write")?.only_expected()?;
            let item = enter(builder.cast_mut())?;
            let put = put_expecting(inside, (table, key.get("key")?), expect, &item)?;
            version.tell(put.1.map_or(0, |now| now.0));
            Ok(put.0)
        })
    }
}
