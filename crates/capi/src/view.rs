//! Views of one generation of a loaded dataset.

use std::ffi::c_int;

use kelix::View;

use crate::call::{alone, in_session};
use crate::error::KELIX_OK;
use crate::handle::{Opaque, enter, free, make};
use crate::memory::{Place, kelix_bytes};
use crate::session::kelix_session;
use crate::table::kelix_table;

/// The tables of a loaded dataset, all of one generation, which stays what it is for as long as the view is
/// there and its session is used now and then.
pub struct kelix_view {
    _private: [u8; 0],
}

impl Opaque for kelix_view {
    type State = View;
    const MAGIC: u64 = u64::from_le_bytes(*b"kx  view");
    const NAME: &'static str = "view";
}

/// Opens a view of the generation of a dataset that is in force. KELIX_NO_SUCH_TABLE: there is no such
/// dataset. On error the view is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_view_open(
    session: *mut kelix_session,
    dataset: kelix_bytes,
    view: *mut *mut kelix_view,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_view_open", session, |inside| {
            let mut place = Place::needed(view, "view")?;
            place.tell(std::ptr::null_mut());
            place.tell(make(inside.session.view(dataset.text("dataset")?)?));
            Ok(KELIX_OK)
        })
    }
}

/// A table of a view, for reads by the session that opened the view. KELIX_NO_SUCH_TABLE: the generation has
/// none of this name. Reads of a generation that is gone fail with KELIX_VIEW_EXPIRED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_view_table(
    view: *const kelix_view,
    name: kelix_bytes,
    table: *mut kelix_table,
) -> c_int {
    alone("kelix_view_table", || {
        // SAFETY: the promises.
        unsafe {
            let mut place = Place::needed(table, "table")?;
            place.tell(kelix_table::of(enter(view.cast_mut())?.table(name.text("name")?)?));
            Ok(KELIX_OK)
        }
    })
}

/// The number of a view's generation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_view_generation(view: *const kelix_view, generation: *mut u64) -> c_int {
    alone("kelix_view_generation", || {
        // SAFETY: the promises.
        unsafe {
            Place::needed(generation, "generation")?.tell(enter(view.cast_mut())?.generation());
            Ok(KELIX_OK)
        }
    })
}

/// Closes and frees a view. NULL is nothing. When a session has no view of a generation any more, it lets
/// that go.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_view_free(view: *mut kelix_view) {
    // SAFETY: the promises.
    unsafe { free(view) };
}
