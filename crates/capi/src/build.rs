//! Building a generation of a dataset, beside the one that is read.

use std::ffi::c_int;

use kelix::{Build, NewTable, PausedBuild};

use crate::batch::check_index;
use crate::call::{Session, in_session};
use crate::error::{Failure, KELIX_OK, Result};
use crate::handle::{Opaque, enter, free, make};
use crate::memory::{Place, kelix_bytes, slice};
use crate::new_item::kelix_item_builder;
use crate::session::{flag, kelix_session};
use crate::structs::{Passed, ResultPlace};
use crate::table::{kelix_table, kind_of};

/// A generation that is being built. It is of the session that began it, which can do anything else between.
pub struct kelix_build {
    _private: [u8; 0],
}

impl Opaque for kelix_build {
    type State = Building;
    const MAGIC: u64 = u64::from_le_bytes(*b"kx built");
    const NAME: &'static str = "build";
}

/// A build, and the session that it is of.
pub struct Building {
    session: u64,
    tables: usize,
    /// `None`: it is over.
    build: Option<PausedBuild>,
}

impl Building {
    /// Takes the build, to end it in its own session.
    fn take<'s>(&mut self, inside: &'s mut Session) -> Result<Build<'s>> {
        inside.check(self.session, "build")?;
        let build = self.build.take().ok_or_else(|| Failure::argument("the build is over"))?;
        Ok(build.resume(&mut inside.session)?)
    }

    /// Does something for one of its tables.
    fn with<T>(
        &mut self,
        inside: &mut Session,
        table: usize,
        work: impl FnOnce(&mut Build<'_>) -> kelix::Result<T>,
    ) -> Result<T> {
        check_index(table, self.tables)?;
        let mut build = self.take(inside)?;
        let done = work(&mut build);
        self.build = Some(build.pause());
        Ok(done?)
    }
}

/// A table of a generation that is to be built.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kelix_new_table {
    /// Its name.
    pub name: kelix_bytes,
    /// Its kind: KELIX_HASH and so on.
    pub kind: c_int,
    /// 1: clients may write to it once it is in force.
    pub overlay: c_int,
}

/// Begins to build a generation of a dataset, with `count` tables, which are named by their index from then
/// on. Nobody sees it until kelix_build_finish(). KELIX_INVALID_ARGUMENT: another one of the dataset is being
/// built, or a name is taken. On error the build is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_build_open(
    session: *mut kelix_session,
    dataset: kelix_bytes,
    tables: *const kelix_new_table,
    count: usize,
    build: *mut *mut kelix_build,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_build_open", session, |inside| {
            let mut place = Place::needed(build, "build")?;
            place.tell(std::ptr::null_mut());
            let table = |table: &kelix_new_table| {
                let new = NewTable::new(table.name.text("name of a table")?, kind_of(table.kind)?);
                Ok(new.overlay(flag(table.overlay, "overlay")?))
            };
            let tables = slice(tables, count, "tables")?.iter().map(table).collect::<Result<Vec<_>>>()?;
            let begun = inside.session.build(dataset.text("dataset")?, &tables)?.pause();
            let session = inside.number;
            place.tell(make(Building { session, tables: tables.len(), build: Some(begun) }));
            Ok(KELIX_OK)
        })
    }
}

/// A table of a build, by its index: to name it in links, and to read it before others can.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_build_table(
    session: *mut kelix_session,
    build: *mut kelix_build,
    index: usize,
    table: *mut kelix_table,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_build_table", session, |inside| {
            let mut place = Place::needed(table, "table")?;
            let named = enter(build)?.with(inside, index, |build| Ok(build.table(index)))?;
            place.tell(kelix_table::of(named));
            Ok(KELIX_OK)
        })
    }
}

/// Puts a plain value into a table of a build. Errors may be told by a later call, since items are sent
/// together.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_build_put(
    session: *mut kelix_session,
    build: *mut kelix_build,
    index: usize,
    key: kelix_bytes,
    value: kelix_bytes,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_build_put", session, |inside| {
            let (key, value) = (key.get("key")?, value.get("value")?);
            enter(build)?.with(inside, index, |build| build.put(index, key, value))?;
            Ok(KELIX_OK)
        })
    }
}

/// Puts an item with attributes and links into a table of a build. Targets of links may come later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_build_put_item(
    session: *mut kelix_session,
    build: *mut kelix_build,
    index: usize,
    key: kelix_bytes,
    item: *const kelix_item_builder,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_build_put_item", session, |inside| {
            let (key, item) = (key.get("key")?, enter(item.cast_mut())?);
            enter(build)?.with(inside, index, |build| build.put_item(index, key, &item))?;
            Ok(KELIX_OK)
        })
    }
}

/// What was built.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kelix_built {
    /// sizeof(kelix_built), set by the caller.
    pub size: usize,
    /// The generation's number.
    pub generation: u64,
    /// Items in all tables.
    pub items: u64,
    /// Links in them.
    pub links: u64,
    /// Of the items, those that clients had put into the generation before.
    pub overlays: u64,
    /// Links whose target is not there.
    pub dangling: u64,
}

// SAFETY: numbers, the size first.
unsafe impl Passed for kelix_built {}

/// Puts the generation in force, at once for all readers, when all of its items are there. `built` may be
/// NULL. The build is over then, also after an error, and is still to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_build_finish(
    session: *mut kelix_session,
    build: *mut kelix_build,
    built: *mut kelix_built,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_build_finish", session, |inside| {
            let mut place = ResultPlace::at(built, "built")?;
            let done = enter(build)?.take(inside)?.finish()?;
            place.tell(&kelix_built {
                size: size_of::<kelix_built>(),
                generation: done.generation,
                items: done.items,
                links: done.links,
                overlays: done.overlays,
                dangling: done.dangling,
            });
            Ok(KELIX_OK)
        })
    }
}

/// Gives a build up: it leaves nothing behind. It is over then, and is still to be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_build_abandon(session: *mut kelix_session, build: *mut kelix_build) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_build_abandon", session, |inside| {
            drop(enter(build)?.take(inside)?);
            Ok(KELIX_OK)
        })
    }
}

/// Frees a build. NULL is nothing. One that is neither finished nor abandoned is given up when its session
/// ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_build_free(build: *mut kelix_build) {
    // SAFETY: the promises.
    unsafe { free(build) };
}
