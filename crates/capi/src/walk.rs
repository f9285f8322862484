//! Walks along links, in steps.

use std::ffi::c_int;

use kelix::{Table, Walk, Walker};

use crate::call::{alone, in_session};
use crate::error::{Failure, KELIX_ABSENT, KELIX_OK, Result};
use crate::frontier::enter_all;
use crate::handle::{Opaque, enter, free, make};
use crate::item::kelix_item;
use crate::memory::{Place, kelix_bytes, slice, slice_mut};
use crate::session::{flag, kelix_session};
use crate::structs::{Passed, ResultPlace, passed};
use crate::table::kelix_table;

/// A walk along links that is stepped in batches. It is of the session that began it, which can do anything
/// else between.
pub struct kelix_walk {
    _private: [u8; 0],
}

impl Opaque for kelix_walk {
    type State = Walking;
    const MAGIC: u64 = u64::from_le_bytes(*b"kx  walk");
    const NAME: &'static str = "walk";
}

/// A walk, and the session that it is of.
pub struct Walking {
    session: u64,
    walker: Walker,
}

/// A key of a table, where a walk begins.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kelix_place {
    /// The table.
    pub table: kelix_table,
    /// The key.
    pub key: kelix_bytes,
}

/// Where a walk goes. What is zero has its default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kelix_walk_options {
    /// sizeof(kelix_walk_options).
    pub size: usize,
    /// Where it begins.
    pub from: *const kelix_place,
    /// How many places these are.
    pub from_count: usize,
    /// Names of the links that it goes along, from any item that has them.
    pub links: *const kelix_bytes,
    /// How many names these are.
    pub link_count: usize,
    /// How many links from where it began. Default: as far as they lead.
    pub depth: u32,
    /// 1: on along the first link before the second one is looked at. Otherwise all that are as far away come
    /// before those that are further.
    pub depth_first: c_int,
}

// SAFETY: addresses and numbers, the size first.
unsafe impl Passed for kelix_walk_options {}

/// Begins a walk. On error it is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_walk_open(
    session: *mut kelix_session,
    options: *const kelix_walk_options,
    walk: *mut *mut kelix_walk,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_walk_open", session, |inside| {
            let mut place = Place::needed(walk, "walk")?;
            place.tell(std::ptr::null_mut());
            let options = passed(options, "options")?;
            let from = slice(options.from, options.from_count, "from")?.iter();
            let from = from.map(|from| Ok((from.table.table(), from.key.get("a key of from")?)));
            let from: Vec<(Table, &[u8])> = from.collect::<Result<_>>()?;
            let links = slice(options.links, options.link_count, "links")?.iter();
            let links: Vec<&str> = links.map(|name| name.text("a name of links")).collect::<Result<_>>()?;
            let mut along = Walk::along(&links);
            if options.depth != 0 {
                along = along.to_depth(options.depth);
            }
            if flag(options.depth_first, "depth_first")? {
                along = along.depth_first();
            }
            let walker = inside.session.begin_walk(&from, &along)?;
            place.tell(make(Walking { session: inside.number, walker }));
            Ok(KELIX_OK)
        })
    }
}

/// In kelix_arrival: no item's link led there, for the walk began there.
pub const KELIX_BEGAN_HERE: u64 = u64::MAX;

/// How a walk came to an item, for the first time.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kelix_arrival {
    /// How many items were visited before.
    pub number: u64,
    /// The number of the item whose link led here, or KELIX_BEGAN_HERE.
    pub from: u64,
    /// How many links from where the walk began.
    pub depth: u32,
}

/// The next items of a walk, `most` at most: into `items`, which are `most` different ones, and how each was
/// come to into `arrivals`, which may be NULL. `count` becomes how many they are. Breadth-first they are read
/// together; depth-first they come one at a time.
///
/// KELIX_OK, or KELIX_ABSENT: the walk is over, and `count` 0. After an error the same call goes on where the
/// walk was. The walk goes on along the links of each item, but for those that kelix_walk_turn_back() names
/// before the next call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_walk_next(
    session: *mut kelix_session,
    walk: *mut kelix_walk,
    items: *const *mut kelix_item,
    arrivals: *mut kelix_arrival,
    most: usize,
    count: *mut usize,
) -> c_int {
    // SAFETY: the promises.
    unsafe {
        in_session("kelix_walk_next", session, |inside| {
            let mut count = Place::needed(count, "count")?;
            count.tell(0);
            if most == 0 {
                return Err(Failure::argument("a step of a walk has room for one item at least"));
            }
            let mut walking = enter(walk)?;
            inside.check(walking.session, "walk")?;
            let mut held = enter_all(items, most)?;
            let told = if arrivals.is_null() { 0 } else { most };
            let arrivals = slice_mut(arrivals, told, "arrivals")?;
            let batch = walking.walker.next_batch(&mut inside.session, most)?;
            for (index, (held, arrival)) in held.iter_mut().zip(batch).enumerate() {
                held.fill(arrival.item.clone());
                arrivals.get_mut(index).into_iter().for_each(|place| {
                    *place = kelix_arrival {
                        number: arrival.number as u64,
                        from: arrival.from.map_or(KELIX_BEGAN_HERE, |from| from as u64),
                        depth: arrival.depth,
                    };
                });
            }
            count.tell(batch.len());
            Ok(if batch.is_empty() { KELIX_ABSENT } else { KELIX_OK })
        })
    }
}

/// Lets a walk not go along the links of an item of the last step, which has this number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_walk_turn_back(walk: *mut kelix_walk, number: u64) -> c_int {
    alone("kelix_walk_turn_back", || {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        // SAFETY: the promises.
        unsafe { enter(walk) }?.walker.turn_back(number);
        Ok(KELIX_OK)
    })
}

/// What a walk has come to so far.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct kelix_walked {
    /// sizeof(kelix_walked), set by the caller.
    pub size: usize,
    /// Items visited.
    pub items: u64,
    /// Links to items that do not exist (any more), and keys that are absent.
    pub gone: u64,
}

// SAFETY: numbers, the size first.
unsafe impl Passed for kelix_walked {}

/// Tells what a walk has come to so far.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_walk_about(walk: *const kelix_walk, walked: *mut kelix_walked) -> c_int {
    alone("kelix_walk_about", || {
        // SAFETY: the promises.
        unsafe {
            let mut place = ResultPlace::at(walked, "walked")?;
            let so_far = enter(walk.cast_mut())?.walker.walked();
            let (items, gone) = (so_far.items as u64, so_far.gone as u64);
            place.tell(&kelix_walked { size: size_of::<kelix_walked>(), items, gone });
            Ok(KELIX_OK)
        }
    })
}

/// Frees a walk. NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kelix_walk_free(walk: *mut kelix_walk) {
    // SAFETY: the promises.
    unsafe { free(walk) };
}
