//! Filling the tables of a generation: many items in a message, and their links when all are there.

use kelix_image::words::bytes_of_mut;
use kelix_image::{Attributes, ItemHeader, ItemOptions, NoRoom, Value};
use kelix_index::{BUCKET_WORDS, BUCKETS, ScanFrom, location_of};
use kelix_types::{KeyHash, Location, Place, TableId, mark};
use kelix_wire::generation::{Arrived, RESOLVED, take_item};
use kelix_wire::{FrameBuffer, ReplyHead, Request, Status, encode_reply};

use super::Order;
use super::overlay::Overlay;
use super::remote_links::{LinkPlace, Question, RemoteLinks};
use crate::linked_items::{LinkedItems, has_links};
use crate::shard::Now;
use crate::store::{Answer, NewItem, Store, item_flags};

/// Items between the one that is put and the one whose bucket is asked for.
const AHEAD: usize = 16;
/// Items between the one whose links are looked at and the one that is asked for.
const ITEMS_AHEAD: usize = 8;
/// Items looked at in one message about links: what takes some 100 us, for others wait.
const ITEMS_A_MESSAGE: usize = 512;
/// The same of items that were noted, and need not be looked for.
const NOTES_A_MESSAGE: usize = 1024;

/// A link whose target is looked for.
struct Unresolved {
    item: Location,
    /// The word of its location, counted from the item's first.
    word: usize,
    table: TableId,
    hash: KeyHash,
    /// Where the target's main bucket stands, or its leaf.
    bucket: Place,
    key: std::ops::Range<usize>,
}

/// Puts many items into a table that is being filled. The answer tells how many.
pub(super) fn load(now: Now, store: &mut Store, request: &Request<'_>) -> Result<Answer, NoRoom> {
    let table = request.head.table;
    let Some(generation) = store.tables.filled(table).filter(|filled| Some(*filled) == request.head.argument)
    else {
        return Ok(Answer::of(Status::Gone));
    };
    store.linked.begin(table, generation, &store.tables);
    let (mut here, mut ahead) = (request.tail, request.tail);
    let mut hashes = [KeyHash(0); AHEAD];
    let mut ask = |store: &Store, slot: &mut KeyHash| {
        if let Some(Arrived { item, tail }) = take_item(&mut ahead) {
            *slot = store.index.hash(table, item.key);
            store.index.prefetch(&store.image, *slot, table, item.key);
            store.image.prefetch_free(16 + tail.len() * 8, AHEAD - 1);
        }
    };
    hashes.iter_mut().for_each(|slot| ask(store, slot));
    let mut count = 0;
    while let Some(arrived) = take_item(&mut here) {
        let slot = &mut hashes[count % AHEAD];
        let hash = *slot;
        ask(store, slot);
        if !load_item(store, now, table, hash, &arrived)? {
            return Ok(Answer::of(Status::Refused));
        }
        count += 1;
    }
    let status = if here.is_empty() { Status::Ok } else { Status::Refused };
    Ok(Answer { status, version: count as u64, location: 0 })
}

fn load_item(
    store: &mut Store,
    now: Now,
    table: TableId,
    hash: KeyHash,
    arrived: &Arrived<'_>,
) -> Result<bool, NoRoom> {
    let Arrived { item, tail } = *arrived;
    if !table.kind().takes_key(item.key) {
        return Ok(false);
    }
    if !table.kind().has_items() {
        let Ok(value) = <[u8; 8]>::try_from(item.body) else { return Ok(false) };
        return store.set_inline((table, item.key), u64::from_le_bytes(value)).map(|()| true);
    }
    if item.attributes && !Attributes::check(item.body) {
        return Ok(false);
    }
    let expires = item.expiry.map(|expiry| now.end_of(expiry));
    let options = ItemOptions { client_flags: item.client_flags, expires };
    let flags = item_flags(item.attributes, options);
    let header = ItemHeader { table, flags, key_bytes: item.key.len(), body_bytes: item.body.len() };
    let item_of = NewItem { header, options, tail, resolves_links: false, overlay: Overlay::No };
    let Answer { location, .. } = store.put((hash, item.key), None, item_of)?;
    if let Some(location) = Location::from_word(location).filter(|_| has_links(flags)) {
        store.linked.add(table, location);
    }
    Ok(true)
}

/// Writes the locations of links in some items of a table that is being filled, as far as this shard has
/// their targets. The answer tells where to go on (0: that was all; in an ordered table behind the key that
/// follows), how many links there were, and how many targets of this shard are not there.
pub(super) fn resolve(
    store: &mut Store,
    remote: &mut RemoteLinks,
    orders: &mut Vec<Order>,
    request: &Request<'_>,
    frame: &mut FrameBuffer,
) {
    let table = request.head.table;
    let mut reply = |status, cursor, counts: [u64; 2], key: &[u8]| {
        encode_reply(frame, ReplyHead { id: request.head.id, status, version: cursor, location: 0 });
        frame.reserve(3).copy_from_slice(&[counts[0], counts[1], key.len() as u64]);
        bytes_of_mut(frame.reserve(key.len().div_ceil(8)))[..key.len()].copy_from_slice(key);
    };
    let Some(generation) = store.tables.filled(table) else {
        return reply(Status::Gone, 0, [0; 2], &[]);
    };
    if request.head.argument == Some(RESOLVED) {
        let (unanswered, dangling) = remote.answered(generation);
        return reply(Status::Ok, unanswered, [0, dangling], &[]);
    }
    if remote.asks_enough(generation) {
        return reply(Status::Ok, request.head.argument.unwrap_or(0), [0; 2], request.key);
    }
    let cursor = request.head.argument.unwrap_or(0);
    let (mut last_key, noted) = (Vec::new(), store.linked.next(table, cursor, NOTES_A_MESSAGE));
    let swept = noted.is_none();
    let (items, cursor) = noted.unwrap_or_else(|| sweep(store, table, (cursor, request.key), &mut last_key));
    let counts = resolve_items(store, (remote, orders), generation, &items);
    let counts = store.linked.tell(table, counts, swept);
    if cursor == 0 {
        store.linked.end(table);
    }
    reply(Status::Ok, cursor, counts, &last_key);
}

/// The next items with links of a table, by its index, from a cursor or behind a key on, and where to go on.
fn sweep(
    store: &mut Store,
    table: TableId,
    (cursor, after): (u64, &[u8]),
    last_key: &mut Vec<u8>,
) -> (Vec<Location>, u64) {
    let (mut items, mut cursor) = (Vec::new(), LinkedItems::swept_from(cursor));
    if table.kind().is_ordered() {
        cursor = u64::from(next_in_order(store, table, after, &mut items, last_key));
        return (items, cursor);
    }
    loop {
        cursor = sweep_for_links(store, table, cursor, &mut items);
        if cursor == 0 || items.len() >= ITEMS_A_MESSAGE {
            return (items, cursor);
        }
    }
}

/// Looks for a table's items with links in one subtable of the hash index. Where to go on; 0: that was all.
fn sweep_for_links(store: &Store, table: TableId, cursor: u64, items: &mut Vec<Location>) -> u64 {
    let (image, mut found) = (&store.image, Vec::with_capacity(BUCKETS * BUCKET_WORDS));
    let cursor = store.index.sweep(image, cursor, |location| found.push(location));
    for (at, location) in found.iter().enumerate() {
        if let Some(ahead) = found.get(at + AHEAD) {
            image.slot(*ahead).prefetch_line();
        }
        let header = ItemHeader::from_word(image.slot(*location).load(1));
        if header.is_some_and(|header| header.table == table && has_links(header.flags)) {
            items.push(*location);
        }
    }
    cursor
}

/// The next items of an ordered table. Whether there may be more, behind the last key.
fn next_in_order(
    store: &mut Store,
    table: TableId,
    after: &[u8],
    items: &mut Vec<Location>,
    last_key: &mut Vec<u8>,
) -> bool {
    let Some(index) = store.index.ordered(table).filter(|_| table.kind().has_items()) else {
        return false;
    };
    let key = Some(after).filter(|key| !key.is_empty());
    index.scan(&store.image, ScanFrom { key, after: true, backwards: false }, |_, second| {
        items.push(location_of(second));
        items.len() < ITEMS_A_MESSAGE
    });
    let more = items.len() == ITEMS_A_MESSAGE;
    if let Some(last) = items.last().filter(|_| more) {
        *last_key = store.copy_item(*last, |item| item.key().to_vec());
    }
    items.retain(|item| {
        ItemHeader::from_word(store.image.slot(*item).load(1)).is_some_and(|header| has_links(header.flags))
    });
    more
}

/// Writes the locations of the links of items. How many there were, and how many targets are not there.
fn resolve_items(
    store: &mut Store,
    (remote, orders): (&mut RemoteLinks, &mut Vec<Order>),
    generation: u64,
    items: &[Location],
) -> [u64; 2] {
    let (mut links, mut keys) = (Vec::new(), Vec::new());
    let mut questions = vec![Question::default(); store.partition.shards()];
    let (index, partition) = (&store.index, &store.partition);
    let mut words = std::mem::take(&mut store.scratch);
    let mut count = 0;
    for (at, item) in items.iter().enumerate() {
        if let Some(ahead) = items.get(at + ITEMS_AHEAD) {
            store.image.slot(*ahead).prefetch(ahead.class().words());
        }
        words.clear();
        words.resize(item.class().words(), 0);
        store.image.slot(*item).copy_out(0, &mut words);
        let view_of_item = kelix_image::ItemView::new(&words).expect("an item of this image");
        let first = view_of_item.header().body_start() / 8;
        let incarnation = view_of_item.guardian().incarnation();
        for (_, value) in Attributes::new(view_of_item.body()).into_iter().flatten() {
            let Value::Link(link) = value else { continue };
            count += 1;
            let hash = index.hash(link.table, link.key);
            let word = first + link.position / 8;
            let shard = partition.shard_of(link.table, hash);
            if shard != partition.number {
                let place = LinkPlace { item: *item, incarnation, word };
                questions[shard].add(place, (link.table, hash, link.key));
                continue;
            }
            let bucket = index.prefetch(&store.image, hash, link.table, link.key);
            let key = keys.len()..keys.len() + link.key.len();
            keys.extend_from_slice(link.key);
            links.push(Unresolved { item: *item, word, table: link.table, hash, bucket, key });
        }
    }
    store.scratch = words;
    remote.ask(generation, store.partition.number, questions, orders);
    let mut missing = 0;
    for (at, link) in links.iter().enumerate() {
        if let Some(Unresolved { table, hash, bucket, .. }) = links.get(at + AHEAD) {
            store.index.prefetch_item(&store.image, *bucket, *hash, *table);
        }
        let Unresolved { item, word, table, hash, ref key, .. } = *link;
        let Some((location, incarnation)) = store.target_of(table, hash, &keys[key.clone()]) else {
            mark!("link of a generation without a target");
            missing += 1;
            continue;
        };
        let slot = store.image.change_slot(item);
        slot.publish(word, location);
        slot.publish(word + 1, incarnation);
    }
    [count, missing]
}
