//! What clients write into loaded tables that take writes (`live = "overlay"`), and how it comes into the
//! next generation.
//!
//! An item that a client put under a key which the load does not have is marked ([`ItemFlags::OVERLAY`]). Who
//! builds the next generation asks for the keys of these ([`Op::Overlays`](kelix_wire::Op::Overlays)) and
//! puts them into its own table, unless they are there from the source: first beside clients that write on;
//! then, while the table is frozen, what has changed since. So nothing that was written is lost, and writers
//! wait for as long as that takes and no longer.

use std::collections::{HashMap, VecDeque};

use kelix_image::{Image, ItemFlags, ItemHeader};
use kelix_index::{ScanFrom, location_of};
use kelix_types::limits::FRAME_BYTES_MAX;
use kelix_types::{Location, TableId, Version};
use kelix_wire::{FrameBuffer, ReplyHead, Request, RequestHead, Status, encode_reply, generation};

use crate::store::{Answer, NewItem, Store};
use crate::tables::{Tables, Use};

/// Words of an answer, so that a frame holds them.
const WORDS_MAX: usize = FRAME_BYTES_MAX / 8 - 16;
/// Items of an ordered table looked at in one message.
const ITEMS_A_MESSAGE: usize = 512;

/// Subtables of a hash index looked at in one message.
const SUBTABLES_A_MESSAGE: usize = 8;

/// Whether an item that is put is marked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overlay {
    No,
    /// Unless it replaces one that is not.
    OfClient,
    /// It was in the generation before.
    TakenOver,
}

/// A walk through what clients wrote into a table.
struct Listing {
    table: TableId,
    /// Where to go on: in a hash index; in an ordered table behind a key. `None`: that was all.
    next: Option<(u64, Vec<u8>)>,
    /// Found, and not told yet.
    found: VecDeque<(Version, Vec<u8>)>,
}

impl Tables {
    /// Whether what this request puts is marked.
    #[inline]
    pub fn overlay(&self, head: &RequestHead) -> Overlay {
        if self.is_empty() { Overlay::No } else { self.overlay_in(head) }
    }

    fn overlay_in(&self, head: &RequestHead) -> Overlay {
        match self.table_use(head.table) {
            Some(Use::Read { overlay: true }) => Overlay::OfClient,
            // Its builder takes over what is not there; all else is of the load.
            Some(Use::Filled { .. }) if head.expect.is_some() => Overlay::TakenOver,
            _ => Overlay::No,
        }
    }
}

/// Whether an item was marked as one of a client.
pub(crate) fn is_overlay(image: &Image, location: Location) -> bool {
    let header = ItemHeader::from_word(image.slot(location).load(1));
    header.is_some_and(|header| header.flags.has(ItemFlags::OVERLAY))
}

/// Marks an item that is put, if it is to be. `replaced`: whether one that it replaces, if there is any, is
/// marked.
#[cold]
pub(crate) fn mark_overlay(item: &mut NewItem<'_>, replaced: Option<bool>) {
    if item.overlay == Overlay::TakenOver || replaced != Some(false) {
        item.header.flags = item.header.flags.with(ItemFlags::OVERLAY);
    }
}

/// Takes no writes to a table until its follower is in force or given up, or until this moment.
pub(super) fn freeze(store: &mut Store, until_ns: u64, head: &RequestHead) -> Answer {
    let frozen = head.argument.is_some_and(|follower| store.tables.freeze(head.table, follower, until_ns));
    Answer::of(if frozen { Status::Ok } else { Status::Gone })
}

/// The walks of those who build generations, by these.
#[derive(Default)]
pub(crate) struct Listings(HashMap<u64, Listing>);

impl Listings {
    /// A generation is complete, or given up.
    pub fn end(&mut self, generation: u64) {
        self.0.remove(&generation);
    }

    /// Walks under way.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Tells the next keys that clients wrote. The version of the answer is 1 if there may be more; begins
    /// anew with another table, and after the last.
    pub fn tell(
        &mut self,
        store: &mut Store,
        frozen_until_ns: u64,
        request: &Request<'_>,
        frame: &mut FrameBuffer,
    ) {
        let RequestHead { id, table, argument, .. } = request.head;
        let follower = argument.unwrap_or(0);
        if !store.tables.is_built(follower) {
            encode_reply(frame, ReplyHead { id, status: Status::Gone, version: 0, location: 0 });
            return;
        }
        store.tables.stay_frozen(table, follower, frozen_until_ns);
        let known = self.0.remove(&follower).filter(|listing| listing.table == table);
        let mut listing =
            known.unwrap_or_else(|| Listing { table, next: Some((0, Vec::new())), found: VecDeque::new() });
        if listing.found.is_empty() && listing.next.is_some() {
            find_overlays(store, &mut listing);
        }
        let mut words = Vec::new();
        while let Some((version, key)) = listing.found.pop_front() {
            if words.len() + generation::listed_words(&key) > WORDS_MAX {
                listing.found.push_front((version, key));
                break;
            }
            generation::push_listed(&mut words, version, &key);
        }
        let more = !listing.found.is_empty() || listing.next.is_some();
        encode_reply(frame, ReplyHead { id, status: Status::Ok, version: u64::from(more), location: 0 });
        frame.reserve(words.len()).copy_from_slice(&words);
        if more {
            self.0.insert(follower, listing);
        }
    }
}

/// Looks at some more items of a table.
fn find_overlays(store: &mut Store, listing: &mut Listing) {
    let Listing { table, next, found } = listing;
    let (mut cursor, after) = next.take().expect("there may be more");
    let mut items = Vec::new();
    if table.kind().is_ordered() {
        let Some(index) = store.index.ordered(*table).filter(|_| table.kind().has_items()) else { return };
        let key = Some(&after[..]).filter(|_| cursor > 0);
        index.scan(&store.image, ScanFrom { key, after: true, backwards: false }, |_, second| {
            items.push(location_of(second));
            items.len() < ITEMS_A_MESSAGE
        });
        if items.len() == ITEMS_A_MESSAGE {
            let last = items.last().copied().expect("some");
            *next = Some((1, store.copy_item(last, |item| item.key().to_vec())));
        }
        items.retain(|item| is_overlay(&store.image, *item));
    } else {
        let image = &store.image;
        for _ in 0..SUBTABLES_A_MESSAGE {
            cursor = store.index.sweep(image, cursor, |location| {
                let header = ItemHeader::from_word(image.slot(location).load(1));
                if header.is_some_and(|header| header.table == *table) && is_overlay(image, location) {
                    items.push(location);
                }
            });
            if cursor == 0 || items.len() >= ITEMS_A_MESSAGE {
                break;
            }
        }
        *next = Some((cursor, Vec::new())).filter(|_| cursor > 0);
    }
    for item in items {
        found.push_back(store.copy_item(item, |item| (item.version(), item.key().to_vec())));
    }
}
