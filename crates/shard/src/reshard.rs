//! Carrying all that a shard has to other shards: a store gets another number of them, and nobody uses it
//! meanwhile.
//!
//! ```text
//! shards as they are --- each key with what it has: Carried ---> the new shard that has the key
//! ```
//!
//! 1. An item keeps its version, which is the incarnation of its object in the new shard. Places are new, so
//!    no pair of a place and an incarnation stands for two objects; objects of two old shards that had one
//!    incarnation stand at two places ([`TargetShard::take`]).
//! 2. Where the targets of links stand is unknown in the new shards: links are followed by key, and repaired
//!    by whoever follows them first ([`unknown_targets`]).
//! 3. What no item says is what shard 0 keeps, for all new shards ([`SourceShard::kept_for`]).
//! 4. Tables that shard 0 knows as dropped are not carried, nor is a generation that is being built: as at a
//!    start ([`SourceShard::dropped_tables`]).
//! 5. What clients were answered is known by the number of a write to a shard, not by its key, so it cannot
//!    be carried. A write that is asked for again of a new shard is answered as one that is not known any
//!    more, and is not done ([`crate::deduplication`]).

use std::collections::BTreeSet;

use kelix_image::words::{bytes_of, bytes_of_mut};
use kelix_image::{Attributes, ItemFlags, ItemHeader, ItemOptions, ItemView, LargeBody, NoRoom, Value};
use kelix_index::{ScanFrom, location_of};
use kelix_types::limits::{EPOCH_NS, INLINE_BODY_BYTES_MAX};
use kelix_types::{Error, ErrorKind, Incarnation, Location, Result, TableId, Version, key_hash};

use crate::large::allocate_runs;
use crate::shard::Shard;
use crate::store::Store;

/// Keys of an ordered table that are looked at in one go.
const KEYS_AT_ONCE: usize = 512;
/// Keys after which memory comes back that the indexes have outgrown: nobody reads them.
const KEYS_AN_EPOCH: u64 = 4096;

const OPERATION: &str = "reshard";

fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::Damaged, OPERATION, what)
}

/// A key, and what it has.
pub struct Carried<'a> {
    /// Table of the key.
    pub table: TableId,
    /// The key.
    pub key: &'a [u8],
    version: Version,
    what: What<'a>,
}

enum What<'a> {
    /// A value in a leaf.
    Inline(u64),
    /// An item in one slot: the words from its key on.
    Item { header: ItemHeader, options: ItemOptions, tail: &'a [u64] },
    /// An item whose value stands in page runs, and so many bytes of a value.
    Large { flags: ItemFlags, options: ItemOptions, value: &'a [u64], bytes: u64 },
}

impl Carried<'_> {
    /// A number of everything that it has to be in the new shard: two that differ have two of them, but by a
    /// chance of 2^-64.
    pub fn digest(&self) -> u64 {
        let hash = |seed: u64, bytes: &[u8]| key_hash(seed, self.table, bytes).0;
        let options = |flags: ItemFlags, options: ItemOptions| {
            [u64::from(flags.0), options.client_flags.into(), options.expires.unwrap_or(0)]
        };
        let (options, body) = match &self.what {
            What::Inline(value) => ([0; 3], &value.to_le_bytes()[..]),
            What::Item { header, options: of, tail } => {
                let start = header.body_start() - header.key_start();
                (options(header.flags, *of), &bytes_of(tail)[start..start + header.body_bytes])
            }
            What::Large { flags, options: of, value, bytes } => {
                (options(*flags, *of), &bytes_of(value)[..*bytes as usize])
            }
        };
        hash(hash(hash(self.version.0, self.key), bytes_of(&options)), body)
    }
}

/// Forgets where the targets of links stand, in a section of attributes. One that does not read without fault
/// is nobody's to follow, and stays.
fn unknown_targets(section: &mut [u64], bytes: usize) {
    let attributes = Attributes::new(&bytes_of(section)[..bytes]).into_iter().flatten();
    let links = attributes.filter_map(|(_, value)| match value {
        Value::Link(link) => Some(link.position / 8),
        Value::Bytes(_) => None,
    });
    let links: Vec<usize> = links.collect();
    links.into_iter().for_each(|at| section[at..at + 2].fill(0));
}

/// A shard whose keys are carried to others.
pub struct SourceShard<'a>(pub &'a mut Shard);

impl SourceShard<'_> {
    /// The tables of which nothing is carried, by what shard 0 knows.
    pub fn dropped_tables(&self) -> BTreeSet<TableId> {
        self.0.datasets.dropped_tables(&self.0.store.tables).collect()
    }

    /// What a new shard of this number is to keep, by what this one does, which is shard 0.
    pub fn kept_for(&self, number: usize) -> Vec<u64> {
        self.0.datasets.keep_for(&self.0.store.tables, number)
    }

    /// Shows every key that is this shard's, but for those of some tables. An error is that of `visit`, or
    /// something makes no sense.
    pub fn carry(
        &mut self,
        dropped: &BTreeSet<TableId>,
        visit: &mut dyn FnMut(&Carried<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut walk = Walk { store: &mut self.0.store, dropped, visit };
        let mut cursor = 0;
        loop {
            let mut found = Vec::new();
            let Walk { store, .. } = &mut walk;
            cursor = store.index.sweep(&store.image, cursor, |location| found.push(location));
            found.into_iter().try_for_each(|location| walk.item(location))?;
            if cursor == 0 {
                break;
            }
        }
        let tables: Vec<TableId> = walk.store.index.ordered_counts().map(|(table, ..)| table).collect();
        tables.into_iter().filter(|table| !dropped.contains(table)).try_for_each(|table| walk.ordered(table))
    }
}

/// A shard to which keys are carried. Nobody reads it.
pub struct TargetShard<'a>(pub &'a mut Shard);

impl TargetShard<'_> {
    /// Takes a key in that is not here.
    pub fn take(&mut self, carried: &Carried<'_>) -> Result<()> {
        let store = &mut self.0.store;
        let Carried { table, key, version, .. } = *carried;
        let no_room = |no_room: NoRoom| match no_room.wait {
            true => {
                Error::new(ErrorKind::OutOfMemory, OPERATION, "the system has no memory for the new shards")
            }
            false => Error::new(ErrorKind::OutOfMemory, OPERATION, "a new shard has no place for an item"),
        };
        store.counters.puts += 1;
        if store.counters.puts % KEYS_AN_EPOCH == 0 {
            let now_ns = store.counters.puts / KEYS_AN_EPOCH * EPOCH_NS;
            store.image.advance_epoch(now_ns, || now_ns);
        }
        if store.has_key(table, key) {
            return Err(damaged("a key is on two shards"));
        }
        match &carried.what {
            What::Inline(value) => store.set_inline((table, key), *value).map_err(no_room),
            What::Item { header, options, tail } => {
                store.take_item((*header, *options, tail), key, version).map_err(no_room)
            }
            What::Large { flags, options, value, bytes } => {
                let runs = allocate_runs(store, *bytes).map_err(no_room)?;
                let mut rest = &value[..];
                for (place, held) in &runs {
                    let (words, behind) = rest.split_at(held.div_ceil(8) as usize);
                    store.image.change(*place, words.len()).copy_in(0, words);
                    rest = behind;
                }
                let body = LargeBody { bytes: *bytes, runs }.words();
                if body.len() * 8 > INLINE_BODY_BYTES_MAX {
                    return Err(no_room(NoRoom { wait: false }));
                }
                let mut tail = vec![0; key.len().div_ceil(8)];
                bytes_of_mut(&mut tail)[..key.len()].copy_from_slice(key);
                tail.extend_from_slice(&body);
                let flags = flags.with(ItemFlags::LARGE);
                let header = ItemHeader { table, flags, key_bytes: key.len(), body_bytes: body.len() * 8 };
                store.take_item((header, *options, &tail), key, version).map_err(no_room)
            }
        }
    }
}

impl Store {
    fn has_key(&self, table: TableId, key: &[u8]) -> bool {
        match table.kind().has_items() {
            true => self.index.find(&self.image, self.index.hash(table, key), table, key).is_some(),
            false => self.index.ordered(table).and_then(|index| index.find(&self.image, key)).is_some(),
        }
    }

    /// Makes an item live under a version that it had elsewhere.
    fn take_item(
        &mut self,
        (header, options, tail): (ItemHeader, ItemOptions, &[u64]),
        key: &[u8],
        version: Version,
    ) -> std::result::Result<(), NoRoom> {
        let (table, hash) = (header.table, self.index.hash(header.table, key));
        let location = self.image.allocate_item(header.item_bytes())?;
        let slot = self.image.change_slot(location);
        slot.store(1, header.word());
        options.words().enumerate().for_each(|(index, word)| slot.store(2 + index, word));
        slot.copy_in(header.key_start() / 8, tail);
        self.index.insert(&mut self.image, hash, (table, key), location)?;
        self.image.change_slot(location).publish(0, Incarnation(version.0).live().0);
        self.counters.items += 1;
        self.keys.add(table);
        Ok(())
    }
}

/// A walk through all keys of a shard.
struct Walk<'a> {
    store: &'a mut Store,
    dropped: &'a BTreeSet<TableId>,
    visit: &'a mut dyn FnMut(&Carried<'_>) -> Result<()>,
}

impl Walk<'_> {
    /// Shows the keys of an ordered table, in their order.
    fn ordered(&mut self, table: TableId) -> Result<()> {
        let mut last: Option<Vec<u8>> = None;
        loop {
            let mut found = Vec::new();
            let Some(index) = self.store.index.ordered(table) else { return Ok(()) };
            let from = ScanFrom { key: last.as_deref(), after: last.is_some(), backwards: false };
            index.scan(&self.store.image, from, |word, second| {
                found.push((word, second));
                found.len() < KEYS_AT_ONCE
            });
            let Some((word, second)) = found.last().copied() else { return Ok(()) };
            last = Some(match table.kind().has_numbers() {
                true => word.to_be_bytes().to_vec(),
                false => self.store.copy_item(location_of(second), |item| item.key().to_vec()),
            });
            for (word, second) in found {
                match table.kind().has_items() {
                    true => self.item(location_of(second))?,
                    false => self.inline(table, word, second)?,
                }
            }
        }
    }

    /// Whether a key is this shard's, as far as whoever asks by the view can tell.
    fn is_here(&self, table: TableId, key: &[u8]) -> bool {
        let partition = &self.store.partition;
        match table == TableId::CATALOGUE {
            true => partition.is_first(),
            false => partition.has(table, self.store.index.hash(table, key)),
        }
    }

    fn inline(&mut self, table: TableId, word: u64, value: u64) -> Result<()> {
        let key = &word.to_be_bytes();
        if !self.is_here(table, key) {
            return Ok(());
        }
        (self.visit)(&Carried { table, key, version: Version(value), what: What::Inline(value) })
    }

    fn item(&mut self, location: Location) -> Result<()> {
        let mut words = vec![0; location.class().words()];
        self.store.image.slot(location).copy_out(0, &mut words);
        let item = ItemView::new(&words).filter(|item| item.guardian().is_live());
        let item = item.ok_or_else(|| damaged("an item that its index names makes no sense"))?;
        let (header, version, options) = (item.header(), item.version(), item.options());
        let (table, key) = (header.table, item.key());
        if self.dropped.contains(&table) || !self.is_here(table, key) {
            return Ok(());
        }
        // The version becomes the name of an object, behind which all new names come.
        if version.0 > item.guardian().incarnation().0 {
            return Err(damaged("the version of an item makes no sense"));
        }
        let flags = ItemFlags(header.flags.0 & !ItemFlags::MOVED.0);
        let has_links = flags.has(ItemFlags::ATTRIBUTES);
        if flags.has(ItemFlags::LARGE) {
            let body = LargeBody::parse(item.body());
            let body = body.ok_or_else(|| damaged("a large value makes no sense"))?;
            let mut value = self.large_value(&body)?;
            if has_links {
                unknown_targets(&mut value, body.bytes as usize);
            }
            let flags = ItemFlags(flags.0 & !ItemFlags::LARGE.0);
            let what = What::Large { flags, options, value: &value, bytes: body.bytes };
            return (self.visit)(&Carried { table, key, version, what });
        }
        let mut tail = words[header.key_start() / 8..header.item_bytes().div_ceil(8)].to_vec();
        if has_links {
            let start = (header.body_start() - header.key_start()) / 8;
            unknown_targets(&mut tail[start..], header.body_bytes);
        }
        let header = ItemHeader { flags, ..header };
        let what = What::Item { header, options, tail: &tail };
        (self.visit)(&Carried { table, key, version, what })
    }

    /// The value that stands in page runs.
    fn large_value(&self, body: &LargeBody) -> Result<Vec<u64>> {
        let (mut value, mut is_whole) = (Vec::new(), true);
        for (place, bytes) in &body.runs {
            // Only the last run may end within a word.
            let words = usize::try_from(bytes.div_ceil(8)).ok().filter(|_| is_whole);
            is_whole = bytes % 8 == 0;
            let run = words.and_then(|words| self.store.image.map().words(*place, words));
            let run = run.ok_or_else(|| damaged("a large value stands where there is no memory"))?;
            let first = value.len();
            value.resize(first + run.count(), 0);
            run.copy_out(0, &mut value[first..]);
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use kelix_image::{AttributeBuilder, Header, PrivateSegments, Span};
    use kelix_types::{NameId, TableKind};
    use kelix_wire::mailboxes::Mailboxes;
    use kelix_wire::{Op, RequestHead};

    use super::*;
    use crate::harness::Harness;
    use crate::restore::tests::{MEMORY, World};
    use crate::shard::ShardConfig;

    fn empty(number: usize, shards: usize) -> Shard {
        let config = ShardConfig { number, ..Harness::config(shards, MEMORY) };
        Shard::create(config, Span::private(Header::BYTES), Box::new(PrivateSegments::default())).unwrap()
    }

    /// Carries all that shards have to so many new ones.
    fn carried(old: &mut [&mut Shard], shards: usize) -> Vec<Shard> {
        let mut new: Vec<Shard> = (0..shards).map(|number| empty(number, shards)).collect();
        for shard in old {
            SourceShard(shard)
                .carry(&BTreeSet::new(), &mut |carried| {
                    let partition = &new[0].store.partition;
                    let hash = key_hash(Harness::SEED, carried.table, carried.key);
                    let is_name = carried.table == TableId::CATALOGUE;
                    let number = if is_name { 0 } else { partition.shard_of(carried.table, hash) };
                    TargetShard(&mut new[number]).take(carried)
                })
                .unwrap();
        }
        new.iter_mut().for_each(|shard| shard.audit().unwrap());
        new
    }

    /// How many keys there are, and a number of them and all that they have.
    fn sum(shards: &mut [&mut Shard]) -> (u64, u64) {
        let (mut keys, mut digests) = (0, 0u64);
        for shard in shards {
            let count = &mut |carried: &Carried<'_>| {
                (keys, digests) = (keys + 1, digests.wrapping_add(carried.digest()));
                Ok(())
            };
            SourceShard(shard).carry(&BTreeSet::new(), count).unwrap();
        }
        (keys, digests)
    }

    fn all(shards: &mut [Shard]) -> Vec<&mut Shard> {
        shards.iter_mut().collect()
    }

    /// Has all items of the first segment move to another one.
    fn move_items(alone: &mut Harness) {
        let segment = alone.shard.store.image.segments().next().unwrap().first_granule;
        assert!(alone.shard.store.image.begin_to_empty(segment));
        for _ in 0..10_000 {
            alone.pass_epoch();
            if !alone.shard.store.image.is_evacuating() {
                break;
            }
        }
        assert!(alone.shard.counters().evacuated > 0);
    }

    /// The version of an item, and whether it has a word of its own.
    fn version_of(shard: &mut Shard, table: TableId, key: &[u8]) -> (u64, bool) {
        let store = &mut shard.store;
        let found =
            store.index.find(&store.image, store.index.hash(table, key), table, key).expect("an item");
        store.copy_item(found.location, |item| (item.version().0, item.header().flags.has(ItemFlags::MOVED)))
    }

    #[test]
    fn everything_is_in_its_new_shard_as_it_was() {
        for seed in 1..3 {
            let mailboxes = Mailboxes::default();
            let mut world = World::new(Harness::with(1, MEMORY, &mailboxes), seed);
            for _ in 0..8000 {
                world.act();
            }
            move_items(&mut world.alone);
            world.check();
            let known = sum(&mut [&mut world.alone.shard]);
            assert!(known.0 > 3000, "{known:?}");
            let mut three = carried(&mut [&mut world.alone.shard], 3);
            assert!(three.iter().all(|shard| shard.counters().items > 0));
            assert_eq!(sum(&mut all(&mut three)), known);
            let mut two = carried(&mut all(&mut three), 2);
            assert_eq!(sum(&mut all(&mut two)), known);
            world.alone.wipe();
        }
    }

    /// A version that a client holds is good behind it, though it may be older than the object that has the
    /// item.
    #[test]
    fn items_that_were_moved_keep_their_versions_and_need_no_word_for_them() {
        let mailboxes = Mailboxes::default();
        let mut alone = Harness::with(1, MEMORY, &mailboxes);
        let table = TableId::new(TableKind::Hash, 1);
        let version = alone.call(RequestHead::new(Op::Put, 0, table), b"key", b"value").version;
        move_items(&mut alone);
        assert_eq!(version_of(&mut alone.shard, table, b"key"), (version, true));
        let mut new = carried(&mut [&mut alone.shard], 1);
        assert_eq!(version_of(&mut new[0], table, b"key"), (version, false));
        alone.wipe();
    }

    /// Where a target stood is another place's name in the new shards.
    #[test]
    fn links_lead_to_keys_and_to_no_places() {
        let mailboxes = Mailboxes::default();
        let mut alone = Harness::with(1, MEMORY, &mailboxes);
        let (table, name) = (TableId::new(TableKind::Hash, 1), NameId(1));
        let put = RequestHead { attributes: true, ..RequestHead::new(Op::Put, 0, table) };
        alone.call(RequestHead::new(Op::Put, 0, table), b"target", b"value");
        let section = |bytes: usize| {
            let mut section = AttributeBuilder::default();
            section.bytes(NameId(2), &vec![7; bytes]);
            section.link(name, table, b"target", b"of the link");
            section.link(name, table, b"nothing", &[]);
            section.finish()
        };
        alone.call(put, b"short", &section(10));
        let locations = |section: &[u8]| -> Vec<(u64, u64)> {
            let attributes = Attributes::new(section).expect("a section");
            attributes
                .filter_map(|(_, value)| match value {
                    Value::Link(link) => Some((link.location.map_or(0, |at| at.word()), link.incarnation.0)),
                    Value::Bytes(_) => None,
                })
                .collect()
        };
        // What a client wrote into the words of a large value is as good as nothing.
        let mut large = section(2 << 20);
        let at = Attributes::new(&large).unwrap().find_map(|(_, value)| match value {
            Value::Link(link) => Some(link.position),
            Value::Bytes(_) => None,
        });
        let at = at.unwrap();
        large[at..at + 16].copy_from_slice(&[[9u64, 9].map(u64::to_le_bytes)].concat().concat());
        let head =
            |op, argument| RequestHead { argument, attributes: true, ..RequestHead::new(op, 0, table) };
        alone.call(head(Op::LargeBegin, Some(large.len() as u64)), b"large", &[]);
        for (number, piece) in large.chunks(32 << 10).enumerate() {
            let head = RequestHead { attributes: false, ..head(Op::LargePiece, Some((number << 15) as u64)) };
            alone.call(head, &[], piece);
        }
        alone.call(head(Op::LargeCommit, None), b"large", &[]);
        let short = |shard: &mut Shard| {
            let store = &mut shard.store;
            let hash = store.index.hash(table, b"short");
            let found = store.index.find(&store.image, hash, table, b"short").expect("an item");
            store.copy_item(found.location, |item| locations(item.body()))
        };
        let known = short(&mut alone.shard);
        assert!(known[0].0 != 0 && known[0].1 != 0 && known[1] == (0, 0), "{known:?}");
        let mut new = carried(&mut [&mut alone.shard], 1);
        assert_eq!(short(&mut new[0]), [(0, 0); 2]);
        let mut found = Vec::new();
        let mut look = |carried: &Carried<'_>| {
            if let What::Large { value, bytes, .. } = &carried.what {
                found = bytes_of(value)[..*bytes as usize].to_vec();
            }
            Ok(())
        };
        let store = &mut new[0].store;
        let hash = store.index.hash(table, b"large");
        let place = store.index.find(&store.image, hash, table, b"large").expect("an item");
        let body = store.copy_item(place.location, |item| LargeBody::parse(item.body())).expect("a value");
        let mut words = Vec::new();
        for (place, bytes) in &body.runs {
            let first = words.len();
            words.resize(first + bytes.div_ceil(8) as usize, 0);
            store.image.words(*place, words.len() - first).copy_out(0, &mut words[first..]);
        }
        assert_eq!(locations(&bytes_of(&words)[..large.len()]), [(0, 0); 2]);
        SourceShard(&mut new[0]).carry(&BTreeSet::new(), &mut look).unwrap();
        large[at..at + 16].fill(0);
        assert!(found == large, "but for that it is as it was");
        alone.wipe();
    }

    /// Two that differ in anything are told apart.
    #[test]
    fn all_that_a_key_has_is_in_its_digest() {
        let header = |flags, body_bytes| ItemHeader { table: TableId(1), flags, key_bytes: 8, body_bytes };
        let plain = ItemOptions::default();
        let item = |header, options, tail| What::Item { header, options, tail };
        let large =
            |options, value, bytes| What::Large { flags: ItemFlags::default(), options, value, bytes };
        let none = ItemFlags::default();
        let whats = || {
            [
                item(header(none, 8), plain, &[1, 2]),
                item(header(none, 8), plain, &[1, 3]),
                item(header(none, 7), plain, &[1, 2]),
                item(header(ItemFlags::OVERLAY, 8), plain, &[1, 2]),
                item(header(none, 8), ItemOptions { client_flags: 1, ..plain }, &[1, 2]),
                item(header(none, 8), ItemOptions { expires: Some(1), ..plain }, &[1, 2]),
                large(plain, &[2, 4], 16),
                large(plain, &[2, 5], 16),
                large(ItemOptions { expires: Some(1), ..plain }, &[2, 4], 16),
            ]
        };
        let mut digests = BTreeSet::new();
        let mut count = 0;
        for (table, key, version) in
            [(1, b"key one", 1), (2, b"key one", 1), (1, b"key two", 1), (1, b"key one", 2)]
        {
            for what in whats() {
                let carried = Carried { table: TableId(table), key, version: Version(version), what };
                count += 1;
                digests.insert(carried.digest());
            }
        }
        assert_eq!(digests.len(), count);
    }

    /// What is in tables that are dropped goes by and by, and what is being loaded never comes into force.
    #[test]
    fn what_is_dropped_or_being_built_stays_behind() {
        let mailboxes = Mailboxes::default();
        let mut alone = Harness::with(1, MEMORY, &mailboxes);
        let intern = RequestHead::new(Op::Intern, 0, TableId::CATALOGUE);
        let [kept, dropped] =
            ["kept", "dropped"].map(|name| TableId(alone.call(intern, name.as_bytes(), &[]).version as u16));
        for number in 0..5000u64 {
            for table in [kept, dropped] {
                alone.call(RequestHead::new(Op::Put, 0, table), &number.to_le_bytes(), b"value");
            }
        }
        let built = TableId(dropped.0 + 2);
        crate::audit::tests::build(&mut alone, built);
        let items = alone.shard.counters().items;
        alone.call(RequestHead::new(Op::Drop, 0, TableId::CATALOGUE), b"dropped", &[]);
        assert!(alone.shard.counters().items > items - 5000, "all of it has gone already");
        let mut source = SourceShard(&mut alone.shard);
        let (left, mut tables) = (source.dropped_tables(), BTreeSet::new());
        assert_eq!(left, BTreeSet::from([dropped, built]));
        let look = &mut |carried: &Carried<'_>| {
            tables.insert(carried.table);
            Ok(())
        };
        source.carry(&left, look).unwrap();
        assert_eq!(tables, BTreeSet::from([TableId::CATALOGUE, kept]));
        alone.wipe();
    }

    #[test]
    fn a_key_that_two_shards_have_is_refused() {
        let mailboxes = Mailboxes::default();
        let mut alone = Harness::with(1, MEMORY, &mailboxes);
        for table in [TableId::new(TableKind::Hash, 1), TableId::new(TableKind::Inline, 1)] {
            let head = RequestHead::new(Op::Put, 0, table);
            alone.call(head, &7u64.to_be_bytes(), &7u64.to_le_bytes());
        }
        let mut new = empty(0, 1);
        let mut refused = 0;
        for _ in 0..2 {
            let take = &mut |carried: &Carried<'_>| {
                refused += u64::from(TargetShard(&mut new).take(carried).is_err_and(|error| {
                    error.kind() == ErrorKind::Damaged && error.context().contains("two shards")
                }));
                Ok(())
            };
            SourceShard(&mut alone.shard).carry(&BTreeSet::new(), take).unwrap();
        }
        assert_eq!(refused, 2);
        alone.wipe();
    }
}
