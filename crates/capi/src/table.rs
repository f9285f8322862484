//! Tables, by value.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use kelix::{Table, TableId, TableKind};

use crate::call::in_session;
use crate::error::{Failure, KELIX_ABSENT, KELIX_OK, Result};
use crate::memory::{Place, kelix_bytes};
use crate::session::kelix_session;

/// A table of the server that a session is connected to. It is copied as any value, and needs no end; its
/// words are the library's. It serves all sessions with that server, and is refused by others. With a server
/// started later it leads, in the session that opened it by name, to the table of the same name.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kelix_table {
    /// The library's.
    pub word: [MaybeUninit<u64>; 3],
}

const _: () = assert!(size_of::<Table>() == size_of::<kelix_table>());
const _: () = assert!(align_of::<Table>() == align_of::<kelix_table>());

impl kelix_table {
    /// A table as C has it.
    pub fn of(table: Table) -> kelix_table {
        // SAFETY: of one size, and words that may be unwritten take whatever stands in a `Table`, padding
        // too.
        unsafe { std::mem::transmute::<Table, kelix_table>(table) }
    }

    /// The table, whatever the words are: a session refuses what is none of its server's.
    #[inline(always)]
    pub fn table(&self) -> Table {
        // The words were stored just before the call, by the caller, each by itself or two at a time. A
        // processor that loads two at once waits until those stores have ended, so each is loaded by itself.
        let word = self.word.each_ref().map(|word| {
            // SAFETY: a reference.
            unsafe { std::ptr::read_volatile(word) }
        });
        // SAFETY: of one size; a `Table` is a number of 16 bits and two of 64, so all bits are one. The
        // caller passes words that it has written, or had from `of`, and then what is unwritten is where a
        // `Table` has its padding.
        unsafe { std::mem::transmute::<[MaybeUninit<u64>; 3], Table>(word) }
    }
}

/// Items by key, without order.
pub const KELIX_HASH: c_int = 0;
/// Numbers in order, each with a value of 8 bytes.
pub const KELIX_INLINE: c_int = 1;
/// Numbers in order, each with an item.
pub const KELIX_NUMBERS: c_int = 2;
/// Byte strings in order, each with an item.
pub const KELIX_STRINGS: c_int = 3;

/// The kind of tables with a number.
pub fn kind_of(number: c_int) -> Result<TableKind> {
    match number {
        KELIX_HASH => Ok(TableKind::Hash),
        KELIX_INLINE => Ok(TableKind::Inline),
        KELIX_NUMBERS => Ok(TableKind::Numbers),
        KELIX_STRINGS => Ok(TableKind::Strings),
        _ => Err(Failure::argument(format!("no kind of tables has the number {number}"))),
    }
}

/// Names of tables, where C reads them.
#[derive(Default)]
pub struct Names {
    names: Vec<String>,
    told: Vec<kelix_bytes>,
}

// SAFETY: the pointers lead to the names beside them, which nobody changes while they are told.
unsafe impl Send for Names {}

impl Names {
    fn tell(&mut self, names: Vec<String>) -> &[kelix_bytes] {
        self.names = names;
        self.told.clear();
        self.told.extend(self.names.iter().map(|name| kelix_bytes::of(name.as_bytes())));
        &self.told
    }
}

/// Opens a table that exists. KELIX_NO_SUCH_TABLE: it does not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_table_open(
    session: *mut kelix_session,
    name: kelix_bytes,
    table: *mut kelix_table,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_table_open", session, |inside| {
            let mut place = Place::needed(table, "table")?;
            place.tell(kelix_table::of(inside.session.table(name.text("name")?)?));
            Ok(KELIX_OK)
        })
    }
}

/// Opens a table of a kind, KELIX_HASH and so on, making it if it does not exist. KELIX_INVALID_ARGUMENT:
/// there is one of another kind, or the name is empty, too long (255 bytes) or has a slash.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_table_create(
    session: *mut kelix_session,
    kind: c_int,
    name: kelix_bytes,
    table: *mut kelix_table,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_table_create", session, |inside| {
            let mut place = Place::needed(table, "table")?;
            let made = inside.session.create_table_of(kind_of(kind)?, name.text("name")?)?;
            place.tell(kelix_table::of(made));
            Ok(KELIX_OK)
        })
    }
}

/// Drops a table and all that is in it. KELIX_ABSENT: there is no such table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_table_drop(session: *mut kelix_session, name: kelix_bytes) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_table_drop", session, |inside| {
            let was_there = inside.session.drop_table(name.text("name")?)?;
            Ok(if was_there { KELIX_OK } else { KELIX_ABSENT })
        })
    }
}

/// Drops a loaded dataset with all its tables. KELIX_ABSENT: there is no such dataset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_dataset_drop(session: *mut kelix_session, dataset: kelix_bytes) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_dataset_drop", session, |inside| {
            let was_there = inside.session.drop_dataset(dataset.text("dataset")?)?;
            Ok(if was_there { KELIX_OK } else { KELIX_ABSENT })
        })
    }
}

/// The name of the table with a number, as items and links tell it. It stays until the session's next call of
/// this function or kelix_table_list(), or its end. KELIX_ABSENT: there is no such table (any more).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_table_name(
    session: *mut kelix_session,
    id: u16,
    name: *mut kelix_bytes,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_table_name", session, |inside| {
            let mut place = Place::needed(name, "name")?;
            let found = inside.session.table_name(TableId(id))?;
            let told = inside.names.tell(found.into_iter().collect());
            place.tell(told.first().copied().unwrap_or(kelix_bytes::of(&[])));
            Ok(if told.is_empty() { KELIX_ABSENT } else { KELIX_OK })
        })
    }
}

/// The names of all tables. They stay until the session's next call of this function or
/// kelix_table_name(), or its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_table_list(
    session: *mut kelix_session,
    names: *mut *const kelix_bytes,
    count: *mut usize,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_table_list", session, |inside| {
            let (mut names, mut count) = (Place::needed(names, "names")?, Place::needed(count, "count")?);
            let told = inside.names.tell(inside.session.tables()?);
            names.tell(told.as_ptr());
            count.tell(told.len());
            Ok(KELIX_OK)
        })
    }
}

/// The table with a number, as links tell it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_table_by_id(
    session: *mut kelix_session,
    id: u16,
    table: *mut kelix_table,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_table_by_id", session, |inside| {
            let mut place = Place::needed(table, "table")?;
            if id == TableId::CATALOGUE.0 {
                return Err(Failure::argument("no table of a program's has the number 0"));
            }
            place.tell(kelix_table::of(inside.session.table_by_id(TableId(id))));
            Ok(KELIX_OK)
        })
    }
}

/// The number of a table, as items and links tell it.
#[unsafe(no_mangle)]
pub extern "C" fn kelix_table_id(table: kelix_table) -> u16 {
    table.table().id().0
}

/// The kind of a table: KELIX_HASH and so on.
#[unsafe(no_mangle)]
pub extern "C" fn kelix_table_kind(table: kelix_table) -> c_int {
    match table.table().kind() {
        TableKind::Hash => KELIX_HASH,
        TableKind::Inline => KELIX_INLINE,
        TableKind::Numbers => KELIX_NUMBERS,
        TableKind::Strings => KELIX_STRINGS,
    }
}
