//! The store: an image, the indexes that name its items, and all that knows where an item stands.
//!
//! Life of an object (docs/read-rule.md): body written under a guardian that is not live; the predecessor's
//! live bit drops; the new live bit is set; the pointer is published; the reply is sent. Each operation here
//! keeps that order.
//!
//! 1. Whoever remembers items by their places is told when one comes, moves or goes: the index, the notes of
//!    expiries, the marks of a cache, the notes of items with links, the numbers of keys ([`Store::put`],
//!    [`Store::remove`], [`crate::evacuation`]; asserted by [`Shard::audit`](crate::Shard::audit)).
//! 2. An operation that finds no room has changed nothing.
//!
//! Nothing here knows clients: what they may do with a table says [`Tables`], before.

use kelix_image::{
    Attributes, Changes, Image, ItemFlags, ItemHeader, ItemLayout, ItemOptions, ItemView, LargeBody, NoRoom,
    Value,
};
use kelix_index::{Found, Index};
use kelix_types::limits::{FRAME_BYTES_MAX, KEY_BYTES_MAX};
use kelix_types::{Guardian, Incarnation, KeyHash, Location, TableId, Version, mark};
use kelix_wire::{FrameBuffer, ReplyHead, Request, RequestHead, Status, View, encode_reply};

use crate::cache::Cache;
use crate::datasets::{Overlay, is_overlay, links_to_dropped, mark_overlay};
use crate::expiry::Expiries;
use crate::heard::Heard;
use crate::linked_items::{LinkedItems, has_links};
use crate::shard::{Now, ShardConfig};
use crate::stocktaking::Stocktaking;
use crate::tables::Tables;
use crate::unordered::Counts;

/// An answer without an item.
pub(crate) struct Answer {
    pub status: Status,
    pub version: u64,
    pub location: u64,
}

impl Answer {
    pub fn of(status: Status) -> Answer {
        Answer { status, version: 0, location: 0 }
    }
}

/// The flags of an item that stands in one slot.
pub(crate) fn item_flags(attributes: bool, options: ItemOptions) -> ItemFlags {
    let flags = if attributes { ItemFlags::ATTRIBUTES } else { ItemFlags::default() };
    flags.with(options.flags())
}

/// What is to be put.
pub(crate) struct NewItem<'a> {
    pub header: ItemHeader,
    pub options: ItemOptions,
    /// Key and body, as they stand in the item.
    pub tail: &'a [u64],
    /// The targets of its links are looked up.
    pub resolves_links: bool,
    pub overlay: Overlay,
}

/// Which of a namespace's keys are those of a shard.
pub(crate) struct Partition {
    /// The shard's number in the view.
    pub number: usize,
    view: View,
}

impl Partition {
    /// Whether it is that of the first shard, which has the catalogue.
    pub fn is_first(&self) -> bool {
        self.number == 0
    }

    /// How many shards there are.
    pub fn shards(&self) -> usize {
        self.view.shards()
    }

    /// The shard that has a key.
    pub fn shard_of(&self, table: TableId, hash: KeyHash) -> usize {
        self.view.shard_of(table, hash)
    }

    /// Whether a key is here.
    pub fn has(&self, table: TableId, hash: KeyHash) -> bool {
        self.shard_of(table, hash) == self.number
    }
}

/// What was done in a store so far, and how many items there are.
#[derive(Default)]
pub(crate) struct StoreCounters {
    pub gets: u64,
    pub scans: u64,
    pub models_told: u64,
    pub puts: u64,
    pub deletes: u64,
    pub items: u64,
    pub expired: u64,
    pub links_repaired: u64,
    pub evacuated: u64,
    pub evicted: u64,
    pub hints: u64,
}

/// The items of a shard.
pub(crate) struct Store {
    pub partition: Partition,
    pub image: Image,
    pub index: Index,
    /// What clients may do with tables.
    pub tables: Tables,
    /// Marks of items, if items may be let go.
    pub cache: Option<Cache>,
    /// Of a mirror whose primary may let items go: what clients have read here.
    pub heard: Option<Heard>,
    /// Where items with links stand of tables that are being filled.
    pub linked: LinkedItems,
    /// How many keys each table without order has.
    pub keys: Counts,
    /// Items that were there before this shard, and are to be looked at.
    pub stocktaking: Stocktaking,
    /// When items end.
    pub expiries: Expiries,
    pub counters: StoreCounters,
    /// For copies of items.
    pub scratch: Vec<u64>,
}

impl Store {
    /// A store of what is in an image.
    pub fn new(config: ShardConfig, image: Image, index: Index) -> Store {
        Store {
            partition: Partition { number: config.number, view: config.view },
            image,
            index,
            tables: Tables::default(),
            cache: config.is_cache.then(|| Cache::new(&config.image)),
            heard: None,
            linked: LinkedItems::default(),
            keys: Counts::default(),
            stocktaking: Stocktaking::default(),
            expiries: Expiries::default(),
            counters: StoreCounters::default(),
            scratch: Vec::new(),
        }
    }

    fn guardian(&self, location: Location) -> Guardian {
        Guardian(self.image.slot(location).load(0))
    }

    /// The version of a found item, 0 when it is absent.
    #[inline]
    pub fn version(&self, found: Option<Found>) -> u64 {
        let Some(found) = found else { return 0 };
        let mut words = [0; 3];
        self.image.slot(found.location).copy_out(0, &mut words);
        let layout = ItemLayout::from_word(words[1]).expect("an item of this image");
        ItemView::with_layout(&words, layout).version().0
    }

    /// Replies to a get. `false`: the item is too long for that.
    pub fn get(&mut self, request: &Request<'_>, hash: KeyHash, frame: &mut FrameBuffer) -> bool {
        self.counters.gets += 1;
        let RequestHead { id, table, .. } = request.head;
        let Some(found) = self.index.find(&self.image, hash, table, request.key) else {
            encode_reply(frame, ReplyHead { id, status: Status::Absent, version: 0, location: 0 });
            return true;
        };
        self.note_read(found.location);
        let slot = self.image.slot(found.location);
        let version = self.version(Some(found));
        encode_reply(frame, ReplyHead { id, status: Status::Ok, version, location: found.location.word() });
        let header = ItemHeader::from_word(slot.load(1)).expect("an item of this image");
        let words = header.item_bytes().div_ceil(8);
        // Longer items are read where they stand, by the client, who is told which one stands there.
        let fits = words * 8 + 64 <= FRAME_BYTES_MAX;
        slot.copy_out(0, frame.reserve(if fits { words } else { 1 }));
        fits
    }

    /// Whether an expectation holds.
    fn expectation_holds(&self, expect: Option<Option<Version>>, found: Option<Found>) -> bool {
        let exists = found.is_some();
        expect.is_none_or(|wanted| wanted.map(|wanted| wanted.0) == exists.then(|| self.version(found)))
    }

    /// The answer where an expectation does not hold.
    fn mismatch(&self, found: Option<Found>) -> Answer {
        let location = found.map_or(0, |found| found.location.word());
        Answer { status: Status::Mismatch, version: self.version(found), location }
    }

    /// Puts the item of a request.
    #[inline(always)]
    pub fn put_request(
        &mut self,
        options: ItemOptions,
        request: &Request<'_>,
        hash: KeyHash,
    ) -> Result<Answer, NoRoom> {
        let RequestHead { table, expect, attributes, .. } = request.head;
        if table == TableId::CATALOGUE || (attributes && !Attributes::check(request.body)) {
            return Ok(Answer::of(Status::Refused));
        }
        let flags = item_flags(attributes, options);
        let header =
            ItemHeader { table, flags, key_bytes: request.key.len(), body_bytes: request.body.len() };
        let overlay = self.tables.overlay(&request.head);
        let item = NewItem { header, options, tail: request.tail, resolves_links: true, overlay };
        self.put_alone((hash, request.key), expect, item)
    }

    /// Puts an item that does not come with many others of its generation.
    pub fn put_alone(
        &mut self,
        key: (KeyHash, &[u8]),
        expect: Option<Option<Version>>,
        item: NewItem<'_>,
    ) -> Result<Answer, NoRoom> {
        let header = item.header;
        let answer = self.put(key, expect, item)?;
        if !self.tables.is_empty() {
            self.note_links(&header, &answer);
        }
        Ok(answer)
    }

    /// Notes an item that was put alone, if it has links and its table is being filled.
    #[cold]
    fn note_links(&mut self, header: &ItemHeader, answer: &Answer) {
        let Some(generation) = self.tables.filled(header.table) else { return };
        let location = Location::from_word(answer.location).filter(|_| answer.status == Status::Ok);
        if let Some(location) = location.filter(|_| has_links(header.flags)) {
            self.linked.begin(header.table, generation, &self.tables);
            self.linked.add(header.table, location);
        }
    }

    /// Puts an item.
    pub fn put(
        &mut self,
        (hash, key): (KeyHash, &[u8]),
        expect: Option<Option<Version>>,
        mut item: NewItem<'_>,
    ) -> Result<Answer, NoRoom> {
        let table = item.header.table;
        let may_link = item.header.flags.has(ItemFlags::ATTRIBUTES) && self.tables.has_dropped_tables();
        if may_link && links_to_dropped(&item, &self.image, &self.tables) {
            return Ok(Answer::of(Status::Gone));
        }
        self.make_way(item.header.item_bytes());
        let found = self.index.find(&self.image, hash, table, key);
        if !self.expectation_holds(expect, found) {
            return Ok(self.mismatch(found));
        }
        if item.overlay != Overlay::No {
            mark_overlay(&mut item, found.map(|found| is_overlay(&self.image, found.location)));
        }
        let location = match self.find_slot(item.header.item_bytes()) {
            Ok(location) => location,
            Err(no_room) => {
                self.note_no_slot(item.header.item_bytes());
                return Err(no_room);
            }
        };
        let incarnation = self.image.next_incarnation();
        let slot = self.image.change_slot(location);
        self.write_body(slot, &item);
        match found {
            Some(found) => {
                self.drop_live(found.location);
                slot.publish(0, incarnation.live().0);
                self.index.replace(&self.image, table, found, location);
                self.note_cached(location, item.header, Some(found.location));
                self.release(found.location);
            }
            None => {
                // Insertion can fail, and what was live was committed: the slot is inserted before the item
                // is marked live.
                if let Err(no_room) = self.index.insert(&mut self.image, hash, (table, key), location) {
                    self.image.discard_item(location);
                    self.note_no_block();
                    return Err(no_room);
                }
                self.image.change_slot(location).publish(0, incarnation.live().0);
                self.counters.items += 1;
                self.keys.add(table);
                self.note_cached(location, item.header, None);
            }
        }
        self.counters.puts += 1;
        if let Some(expires) = item.options.expires {
            self.expiries.note(&self.image, expires, location, incarnation);
        }
        Ok(Answer { status: Status::Ok, version: incarnation.0, location: location.word() })
    }

    /// Writes everything of an item but its guardian, which stays dead.
    fn write_body(&self, slot: Changes<'_>, item: &NewItem<'_>) {
        slot.store(1, item.header.word());
        let key_word = item.header.key_start() / 8;
        item.options.words().enumerate().for_each(|(index, word)| slot.store(2 + index, word));
        slot.copy_in(key_word, item.tail);
        let flags = item.header.flags;
        if flags.has(ItemFlags::ATTRIBUTES) && !flags.has(ItemFlags::LARGE) {
            self.resolve_links(slot, item);
        }
    }

    /// Looks up the targets of an item's links that this shard owns. Other targets are found by key when the
    /// link is first followed, and the link is repaired then.
    fn resolve_links(&self, slot: Changes<'_>, item: &NewItem<'_>) {
        let bytes = kelix_image::words::bytes_of(item.tail);
        let start = item.header.body_start() - item.header.key_start();
        let section = &bytes[start..start + item.header.body_bytes];
        let first = item.header.body_start() / 8;
        for (_, value) in Attributes::new(section).into_iter().flatten() {
            let Value::Link(link) = value else { continue };
            let target = if item.resolves_links { self.target(link.table, link.key) } else { None };
            let (location, incarnation) = target.unwrap_or((0, 0));
            slot.store(first + link.position / 8, location);
            slot.store(first + link.position / 8 + 1, incarnation);
        }
    }

    /// Location word and incarnation of a key of this shard.
    fn target(&self, table: TableId, key: &[u8]) -> Option<(u64, u64)> {
        self.target_of(table, self.index.hash(table, key), key)
    }

    /// The same where its hash is known.
    pub fn target_of(&self, table: TableId, hash: KeyHash, key: &[u8]) -> Option<(u64, u64)> {
        let found = self.index.find(&self.image, hash, table, key)?;
        Some((found.location.word(), self.guardian(found.location).incarnation().0))
    }

    /// Drops an object's live bit.
    pub fn drop_live(&self, location: Location) {
        self.image.drop_live(location.place());
    }

    /// Releases a dead object that nothing names any more, with the runs of a large value.
    pub fn release(&mut self, location: Location) {
        let header = ItemHeader::from_word(self.image.slot(location).load(1)).expect("an item of this image");
        self.linked.forget(header.table);
        self.forget_cached(location);
        if header.flags.has(ItemFlags::LARGE) {
            let body = self.copy_item(location, |item| LargeBody::parse(item.body()));
            for (place, bytes) in body.expect("a large item of this image").runs {
                self.image.release_run(place, bytes);
            }
        }
        self.image.release_item(location);
    }

    /// Looks at an item in a private copy.
    pub fn copy_item<T>(&mut self, location: Location, look: impl FnOnce(ItemView<'_>) -> T) -> T {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.resize(location.class().words(), 0);
        self.image.slot(location).copy_out(0, &mut scratch);
        let result = look(ItemView::new(&scratch).expect("an item of this image"));
        self.scratch = scratch;
        result
    }

    pub fn delete(&mut self, request: &Request<'_>, hash: KeyHash) -> Answer {
        let table = request.head.table;
        if table == TableId::CATALOGUE {
            return Answer::of(Status::Refused);
        }
        let found = self.index.find(&self.image, hash, table, request.key);
        if !self.expectation_holds(request.head.expect, found) {
            return self.mismatch(found);
        }
        let Some(found) = found else { return Answer::of(Status::Absent) };
        if self.tables.filled(table).is_some() && !is_overlay(&self.image, found.location) {
            // What the load has counts.
            return Answer::of(Status::Absent);
        }
        self.remove(hash, (table, request.key), found);
        self.counters.deletes += 1;
        Answer::of(Status::Ok)
    }

    /// Ends an item: its live bit drops, its slot is cleared, its memory goes into quarantine.
    pub fn remove(&mut self, hash: KeyHash, key: (TableId, &[u8]), found: Found) {
        self.drop_live(found.location);
        self.index.remove(&mut self.image, hash, key, found);
        self.release(found.location);
        self.counters.items -= 1;
        self.keys.take(key.0);
    }

    /// Ends the item of a key, if there is one.
    pub fn remove_key(&mut self, table: TableId, key: &[u8]) {
        let hash = self.index.hash(table, key);
        if let Some(found) = self.index.find(&self.image, hash, table, key) {
            self.remove(hash, (table, key), found);
        }
    }

    /// Ends an item wherever it stands.
    pub fn remove_at(&mut self, location: Location) {
        let (table, key) = self.copy_item(location, |item| (item.header().table, item.key().to_vec()));
        self.remove_key(table, &key);
    }

    /// Ends items whose time is over, so many at most, and says when to go on. A time on the monotonic clock.
    pub fn end_expired(&mut self, now: Now, mut budget: usize) -> Option<u64> {
        while let Some(expires) = self.expiries.next() {
            if expires > now.wall_ns {
                return Some(now.monotonic_ns + (expires - now.wall_ns));
            }
            if budget == 0 {
                return Some(now.monotonic_ns);
            }
            budget -= 1;
            if let Some(location) = self.expiries.take(&self.image) {
                self.remove_at(location);
                mark!("item ended");
                self.counters.expired += 1;
            }
        }
        None
    }

    /// Writes the location words of a link. Where this shard owns the target it trusts only itself; another
    /// shard's target is taken on the client's word, which a reader checks against guardian, table and key
    /// anyway.
    pub fn repair_link(&mut self, request: &Request<'_>, hash: KeyHash) -> Answer {
        let RequestHead { table, expect, argument, .. } = request.head;
        let (Some(position), Ok(claim)) = (argument, <[u8; 16]>::try_from(request.body)) else {
            return Answer::of(Status::Refused);
        };
        let found = self.index.find(&self.image, hash, table, request.key);
        if !self.expectation_holds(expect, found) {
            return self.mismatch(found);
        }
        let Some(found) = found else { return Answer::of(Status::Absent) };
        let target = self.copy_item(found.location, |item| {
            let plain = item.header().flags.0 & (ItemFlags::ATTRIBUTES.0 | ItemFlags::LARGE.0);
            let section = (plain == ItemFlags::ATTRIBUTES.0).then(|| item.body())?;
            let link = Attributes::new(section)?.find_map(|(_, value)| match value {
                Value::Link(link) if link.position as u64 == position => Some(link),
                _ => None,
            })?;
            Some((item.header().body_start() / 8 + link.position / 8, link.table, link.key.to_vec()))
        });
        let Some((word, target_table, target_key)) = target else { return Answer::of(Status::Refused) };
        debug_assert!(target_key.len() <= KEY_BYTES_MAX);
        let target_hash = self.index.hash(target_table, &target_key);
        let words = if self.partition.has(target_table, target_hash) {
            self.target(target_table, &target_key)
        } else {
            let number = |at: usize| u64::from_le_bytes(claim[at..at + 8].try_into().expect("8 bytes"));
            mark!("link repaired on a client's word");
            Location::from_word(number(0)).map(|location| (location.word(), number(8)))
        };
        let Some((location, incarnation)) = words else { return Answer::of(Status::Absent) };
        let slot = self.image.change_slot(found.location);
        slot.publish(word, location);
        slot.publish(word + 1, Incarnation(incarnation).0);
        self.counters.links_repaired += 1;
        Answer::of(Status::Ok)
    }
}
