//! Emptying segments, so that their memory serves other sizes of values, or the system.
//!
//! ```text
//! idle --- a segment is chosen ---> moving, some slots a step --- all have left ---> retired: idle
//!                                     '--- an object finds no room ---> abandoned: idle
//! ```
//!
//! Who chooses: this file, for the memory's sake; `waiting`, for a write; `cache`, for other size classes.
//!
//! 1. An object that moves gets a new incarnation, so that no pair of a place and an incarnation ever stands
//!    for two objects ([`move_object`]).
//! 2. Segments that no write needs are emptied as often as there are places to spend ([`Places`]).

use kelix_image::{Image, ItemFlags, ItemHeader, Kind, NoRoom};
use kelix_types::{Guardian, Location, Place, mark};

use crate::cache::MoveDecision;
use crate::places::Places;
use crate::store::Store;

/// A segment is emptied for its memory's sake when at most this share of it is in use, or of one of many that
/// waste some.
const SPARSE_PERCENT: u64 = 12;
const SPARSE_PERCENT_OF_MANY: u64 = 80;
/// Slots looked at in one step while a segment is emptied: little when others wait, more when a write waits
/// for it.
const SLOTS_A_STEP: usize = 64;
const SLOTS_A_STEP_URGENT: usize = 1024;

/// A slab that is being emptied.
struct LeavingSlab {
    kind: Kind,
    first: Place,
    next: Place,
    slots: usize,
}

impl LeavingSlab {
    /// The next one of the segment that is being emptied.
    fn next(image: &mut Image) -> Option<LeavingSlab> {
        let (kind, first, slots) = image.next_leaving_slab()?;
        Some(LeavingSlab { kind, first, next: first, slots })
    }
}

/// How far the emptying of a segment is.
pub(crate) enum Emptying {
    /// None is being emptied, or all have left one and it is not retired yet.
    Idle,
    /// There is more to move.
    GoesOn,
    /// What is to move waits for room, which the next epoch may bring.
    Waits,
    /// All have left it, or it was abandoned. Either way there is room that was not there before.
    Ended,
}

/// The segment that is being emptied, and what may be spent on others.
pub(crate) struct Evacuation {
    slab: Option<LeavingSlab>,
    pub places: Places,
}

impl Evacuation {
    /// Of segments of up to so many bytes.
    pub fn new(segment_bytes_max: u64) -> Evacuation {
        Evacuation { slab: None, places: Places::new(segment_bytes_max) }
    }

    /// Begins to empty a segment that is sparse, so that its memory serves other sizes of values, or the
    /// system. In a cache what is free is in use again soon.
    pub fn compact(&mut self, store: &mut Store, now_ns: u64) {
        let is_sparse = store.cache.is_none() && store.image.is_wasteful();
        let share_percent = if is_sparse { SPARSE_PERCENT_OF_MANY } else { SPARSE_PERCENT };
        let Some(segment) = store.image.sparsest(share_percent) else { return };
        if self.places.spend(segment.granules(), now_ns) {
            mark!("segment emptied for its memory's sake");
            store.image.begin_to_empty(segment.first_granule);
        }
    }

    /// Moves some objects out of the segment that is being emptied: more of them where a write waits for it.
    pub fn advance(&mut self, store: &mut Store, is_urgent: bool) -> Emptying {
        if !store.image.is_evacuating() || store.image.is_emptied() {
            return Emptying::Idle;
        }
        store.image.set_moving(true);
        let moved = self.move_some(store, is_urgent);
        store.image.set_moving(false);
        match moved {
            Ok(true) => {
                store.image.finish_evacuation();
            }
            Ok(false) => return Emptying::GoesOn,
            Err(_) if store.clearing_waits() || store.image.evacuation_waits() => return Emptying::Waits,
            Err(_) => {
                self.slab = None;
                store.image.abandon_evacuation();
            }
        }
        Emptying::Ended
    }

    /// Goes on with emptying where it ended last. Whether nothing is left to be moved; `Err`: an object finds
    /// no room.
    fn move_some(&mut self, store: &mut Store, is_urgent: bool) -> Result<bool, NoRoom> {
        let mut budget = if is_urgent { SLOTS_A_STEP_URGENT } else { SLOTS_A_STEP };
        while budget > 0 {
            let Some(mut slab) = self.slab.take().or_else(|| LeavingSlab::next(&mut store.image)) else {
                return Ok(true);
            };
            while slab.slots > 0 && budget > 0 {
                if let Err(no_room) = move_object(store, slab.kind, slab.next) {
                    self.slab = Some(slab);
                    return Err(no_room);
                }
                slab.next = slab.next.plus(slab.kind.slot_bytes());
                slab.slots -= 1;
                budget -= 1;
            }
            match slab.slots {
                0 => store.forget_slab(slab.first),
                _ => self.slab = Some(slab),
            }
        }
        Ok(false)
    }
}

/// Moves one object, if there is a live one at `place`.
///
/// An item is moved like it is updated: it gets a new incarnation, so that no pair of a place and an
/// incarnation ever stands for two objects. Its version, which a compare-and-set may still know, moves into a
/// word of its own.
fn move_object(store: &mut Store, kind: Kind, place: Place) -> Result<(), NoRoom> {
    let Some(class) = kind.class() else { return store.index.relocate(&mut store.image, kind, place) };
    let from = Location::new(place, class);
    if store.index.relocate_fences(&mut store.image, from)? {
        return Ok(());
    }
    if !Guardian(store.image.slot(from).load(0)).is_live() {
        return Ok(());
    }
    let (header, version, key, options, tail) = store.copy_item(from, |item| {
        let header = item.header();
        let tail = item.words()[header.key_start() / 8..header.item_bytes().div_ceil(8)].to_vec();
        (header, item.version(), item.key().to_vec(), item.options(), tail)
    });
    let moved = ItemHeader { flags: header.flags.with(ItemFlags::MOVED), ..header };
    let mut place = None;
    for stuck in [false, true] {
        match store.end_leaving(from, moved.item_bytes(), stuck) {
            MoveDecision::Ended => return Ok(()),
            MoveDecision::Waits => return Err(NoRoom { wait: true }),
            MoveDecision::Moves => {}
        }
        place = store.image.allocate_item(moved.item_bytes()).ok();
        if place.is_some() {
            break;
        }
    }
    let to = place.ok_or(NoRoom { wait: true })?;
    let hash = store.index.hash(header.table, &key);
    let found = store.index.find(&store.image, hash, header.table, &key).expect("live means reachable");
    debug_assert_eq!(found.location, from);
    let incarnation = store.image.next_incarnation();
    let slot = store.image.change_slot(to);
    slot.copy_in(1, &[moved.word(), version.0]);
    options.words().enumerate().for_each(|(index, word)| slot.store(3 + index, word));
    slot.copy_in(moved.key_start() / 8, &tail);
    store.drop_live(from);
    slot.publish(0, incarnation.live().0);
    store.index.replace(&store.image, header.table, found, to);
    store.linked.forget(header.table);
    store.note_moved(from, to, moved);
    // Runs of a large value stay where they are and now belong to the moved header.
    store.image.release_item(from);
    if let Some(expires) = options.expires {
        store.expiries.note(&store.image, expires, to, incarnation);
    }
    mark!("item moved");
    store.counters.evacuated += 1;
    Ok(())
}
