//! A shard that begins with what another one held.
//!
//! What an image's memory and books do not say, whoever had the memory before has counted
//! ([`kelix_image::Stock`]): so a shard reads the items of the catalogue and those of large values, and no
//! other, before it serves. What only matters later it finds meanwhile ([`crate::stocktaking`]). What no item
//! says, of generations, it keeps in words of its own ([`Shard::kept`]).

use std::collections::HashSet;

use kelix_image::{
    Books, Image, ItemFlags, ItemView, LargeBody, MemoryMap, Replica, SegmentSource, Span, Stock,
};
use kelix_index::{Index, OrderedTables};
use kelix_types::{Error, ErrorKind, Place, Result, TableId};

use crate::follower::Follower;
use crate::shard::{Shard, ShardConfig};
use crate::stocktaking::Stocktaking;
use crate::store::Store;

/// What a shard begins with.
pub(crate) struct Past<'a> {
    /// The memory, of which stock was taken.
    pub replica: Replica,
    pub last_incarnation: u64,
    /// What the other shard kept ([`Shard::kept`]).
    pub kept: &'a [u64],
    /// Whether the hash index is known to lead to nothing but memory that is here.
    pub index_is_checked: bool,
    /// The ordered tables, if somebody has followed them.
    pub ordered: Option<OrderedTables>,
}

/// What is found by reading some items.
#[derive(Default)]
struct Found {
    runs: Vec<(Place, u64)>,
    /// Keys of the catalogue.
    catalogue: Vec<Vec<u8>>,
}

fn wrong(what: &str) -> Error {
    Error::new(ErrorKind::Damaged, "restore shard", what.to_string())
}

impl Found {
    /// `None`: an item makes no sense.
    fn read(image: &Image, stock: &Stock) -> Option<Found> {
        let (mut found, mut words) = (Found::default(), Vec::new());
        for place in &stock.to_be_read {
            let location = image.item_at(*place)?;
            words.resize(location.class().words(), 0);
            image.slot(location).copy_out(0, &mut words);
            let item = ItemView::new(&words)?;
            if item.header().flags.has(ItemFlags::LARGE) {
                found.runs.extend(LargeBody::parse(item.body())?.runs);
            }
            if item.header().table == TableId::CATALOGUE {
                found.catalogue.push(item.key().to_vec());
            }
        }
        Some(found)
    }
}

/// The ordered tables of a replica, found in an image with its memory by a look at all leaves.
pub(crate) fn find_ordered(image: &Image, leaves: &[Place]) -> Result<OrderedTables> {
    Index::find_ordered(image, leaves).ok_or_else(|| wrong("its ordered tables make no sense"))
}

/// An error if the hash index leads out of the image's memory.
pub(crate) fn check_index(index: &Index, image: &Image) -> Result<()> {
    let mut outside = false;
    index.for_each_location(image, |location| {
        outside |= image.map().words(location.place(), location.class().words()).is_none();
    });
    if outside { Err(wrong("its index leads out of its memory")) } else { Ok(()) }
}

impl Shard {
    /// A shard that goes on with the memory that `fill` writes, of an image with these books. What it makes
    /// besides is looked at, whatever it is.
    pub fn restore(
        config: ShardConfig,
        header: Span,
        source: Box<dyn SegmentSource>,
        (books, kept): (&Books, &[u64]),
        fill: impl FnOnce(&MemoryMap) -> Result<()>,
    ) -> Result<Shard> {
        books.check_room(config.image.memory_bytes)?;
        Follower::of_snapshot(source, (books, kept, &[0]), fill)?.into_shard(config, header)
    }

    /// A shard that goes on with a replica.
    pub(crate) fn go_on(config: ShardConfig, header: Span, past: Past<'_>) -> Result<Shard> {
        let Past { replica, last_incarnation, kept, index_is_checked, ordered } = past;
        let books = replica.books(last_incarnation);
        let leaves = if ordered.is_some() { Vec::new() } else { replica.leaves() };
        let (live, stock, source) = replica.into_parts();
        let mut image = Image::restore(config.image, header, source, &books)?;
        let mut index = Index::restore(&image).ok_or_else(|| wrong("its index makes no sense"))?;
        let mut blocks = HashSet::new();
        index.for_each_block(&image, |_, place| {
            blocks.insert(place);
        });
        image.take_over(live, |place| blocks.contains(&place));
        if !index_is_checked {
            check_index(&index, &image)?;
        }
        let Found { runs, catalogue } =
            Found::read(&image, &stock).ok_or_else(|| wrong("an item makes no sense"))?;
        image.keep_runs(&runs).ok_or_else(|| wrong("a large value stands where something else does"))?;
        let ordered = ordered.map_or_else(|| find_ordered(&image, &leaves), Ok)?;
        match index.restore_ordered(&mut image, ordered) {
            Some(Ok(())) => {}
            Some(Err(_)) => {
                let context = "there is no room for the models of its ordered tables; give it more memory";
                return Err(Error::new(ErrorKind::InvalidArgument, "restore shard", context));
            }
            None => return Err(wrong("its ordered tables make no sense")),
        }
        image.serve();
        let inline = index.ordered_counts().filter(|(table, ..)| !table.kind().has_items());
        let inline: u64 = inline.map(|(_, counts, _)| counts.keys).sum();
        let is_cache = config.is_cache;
        let mut shard = Shard::of(config, image, index);
        let Shard { store, datasets, .. } = &mut shard;
        store.counters.items = stock.items + inline;
        store.keys.set(&stock.tables);
        catalogue.iter().for_each(|key| datasets.note_name(store, key));
        if !catalogue.iter().all(|key| is_catalogue_item(store, key)) {
            return Err(wrong("its catalogue makes no sense"));
        }
        datasets.restore(store, kept).ok_or_else(|| wrong("its generations make no sense"))?;
        if stock.expiring > 0 || is_cache {
            store.stocktaking = Stocktaking::new(&store.image);
            store.expiries.expect(stock.expiring);
        }
        if is_cache {
            // It could let nothing go of which it does not know.
            store.take_stock(u64::MAX);
        }
        Ok(shard)
    }
}

/// Whether an item of the catalogue has as many bytes as one of its kind has.
fn is_catalogue_item(store: &mut Store, key: &[u8]) -> bool {
    let Some(body) = store.catalogue_body(key) else { return false };
    match key.first() {
        // An id by its name, and generations by their datasets: see docs/wire-format.md, "Catalogue".
        Some(1 | 3) => body.len() >= 2,
        Some(5) => body.len() == 16,
        _ => true,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    use std::collections::HashMap;

    use kelix_image::{Header, PrivateSegments, redo};
    use kelix_types::TableKind;
    use kelix_types::limits::EPOCH_NS;
    use kelix_wire::mailboxes::Mailboxes;
    use kelix_wire::{FrameBuffer, Op, Reply, RequestHead, Status, encode_request};

    use kelix_log::{Lag, Record};

    use crate::harness::Harness;

    pub(crate) const MEMORY: u64 = 64 << 20;
    const KINDS: [TableKind; 4] = TableKind::ALL;

    /// A shard, and what is in it.
    pub(crate) struct World {
        pub alone: Harness,
        model: HashMap<(TableId, Vec<u8>), Vec<u8>>,
        random: u64,
    }

    impl World {
        pub fn new(alone: Harness, seed: u64) -> World {
            World { alone, model: HashMap::new(), random: seed }
        }

        pub fn below(&mut self, limit: u64) -> u64 {
            self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.random >> 33) % limit
        }

        pub fn ask(&mut self, head: RequestHead, key: &[u8], body: &[u8]) -> (Status, Vec<u8>) {
            let mut frame = FrameBuffer::default();
            encode_request(&mut frame, head, key, body);
            assert!(self.alone.send(&mut frame).faulty.is_empty());
            let payload = self.alone.answer().expect("an answer");
            let reply = Reply::parse(&payload).expect("a reply");
            let body = ItemView::new(reply.item).map(|item| item.body().to_vec());
            (reply.head.status, body.unwrap_or_default())
        }

        /// Does something to a key.
        pub fn act(&mut self) {
            let table = TableId::new(KINDS[self.below(4) as usize], 1 + self.below(2) as u16);
            let number = self.below(3000);
            let key = match table.kind().has_numbers() {
                true => number.to_be_bytes().to_vec(),
                false => format!("key {number} {}", "x".repeat(number as usize % 50)).into_bytes(),
            };
            let bytes = self.below(600) as usize;
            match self.below(100) {
                0..30 => {
                    let (status, _) = self.ask(RequestHead::new(Op::Delete, 0, table), &key, &[]);
                    let known = self.model.remove(&(table, key)).is_some();
                    assert_eq!(status == Status::Ok, known);
                    return;
                }
                30 if table.kind().has_items() && self.below(8) == 0 => {
                    let value = vec![number as u8; (1 << 20) + bytes * 1000];
                    self.alone.put_in_pieces(table, &key, &value);
                    self.model.insert((table, key), value);
                    return;
                }
                _ => {}
            }
            let value = match table.kind().has_items() {
                true => vec![number as u8; bytes],
                false => self.below(u64::MAX).to_le_bytes().to_vec(),
            };
            // Never while this goes on.
            let ends = table.kind().has_items() && self.below(10) == 0;
            let head = RequestHead {
                expiry: ends.then_some(kelix_wire::Expiry::In(1 << 50)),
                ..RequestHead::new(Op::Put, 0, table)
            };
            let (status, _) = self.ask(head, &key, &value);
            assert_eq!(status, Status::Ok);
            self.model.insert((table, key), value);
        }

        /// Whether everything is there that should be.
        pub fn check(&mut self) {
            self.alone.shard.audit().unwrap();
            let model = std::mem::take(&mut self.model);
            for ((table, key), value) in &model {
                let (status, found) = self.ask(RequestHead::new(Op::Get, 0, *table), key, &[]);
                assert_eq!(status, Status::Ok, "{table:?} {key:02x?}");
                // Large values do not come in a message.
                assert!(value.len() > 100_000 || found == *value, "{table:?} {key:02x?}");
            }
            assert_eq!(self.alone.shard.counters().items, model.len() as u64);
            self.model = model;
        }

        /// The same on another shard, which is returned.
        pub fn check_on(&mut self, other: Harness) -> Harness {
            let own = std::mem::replace(&mut self.alone, other);
            self.check();
            std::mem::replace(&mut self.alone, own)
        }
    }

    /// Copies an image while it changes, a bit here and a bit there, and takes notes of the changes; what is
    /// made of both is the image as it was last.
    #[test]
    fn an_image_that_was_copied_while_it_changed_is_whole() {
        for seed in 1..4 {
            let mailboxes = Mailboxes::default();
            let alone = Harness::with(1, MEMORY, &mailboxes);
            let mut world = World::new(alone, seed);
            for _ in 0..20_000 {
                world.act();
            }
            let mut reader = world.alone.shard.follow(Lag::Wait);
            let image = || world.alone.shard.image();
            let (books, kept) = (image().books(), world.alone.shard.kept());
            assert_eq!(Books::of_words(&books.words()).as_ref(), Some(&books));
            let sequence = world.alone.shard.sequence();
            let source = Box::new(PrivateSegments::default());
            let mut follower = Follower::of_books(source, MEMORY, (&books, &kept), sequence).unwrap();
            let mut left: Vec<(Place, usize)> = Vec::new();
            for (place, bytes) in image().stretches() {
                let pieces = (0..bytes).step_by(4096);
                left.extend(pieces.map(|at| (place.plus(at), (bytes - at).min(4096) as usize / 8)));
            }
            let (mut copied, mut records) = (Vec::new(), Vec::new());
            while !left.is_empty() {
                let which = world.below(left.len() as u64) as usize;
                let (place, count) = left.swap_remove(which);
                let mut words = vec![0; count];
                // Its segment may be gone meanwhile.
                if let Some(memory) = world.alone.shard.image().map().words(place, count) {
                    memory.copy_out(0, &mut words);
                    copied.push((place, words));
                }
                world.act();
                if world.below(50) == 0 {
                    world.alone.pass_epoch();
                }
                reader.read(&mut records, usize::MAX).unwrap();
            }
            copied.iter().for_each(|(place, words)| follower.copy(*place, words));
            let (mut rest, mut notes) = (&records[..], Vec::new());
            while let Some((record, behind)) = Record::split(rest).unwrap() {
                follower.apply(&record).unwrap();
                notes.extend_from_slice(record.notes);
                rest = behind;
            }
            assert!(rest.is_empty());
            assert_eq!(follower.compare(&world.alone.shard), Ok(()));
            let (books, kept) = (world.alone.shard.image().books(), world.alone.shard.kept());
            let fill = |map: &MemoryMap| {
                for (place, words) in &copied {
                    if let Some(memory) = map.words(*place, words.len()) {
                        memory.copy_in(0, words);
                    }
                }
                assert!(redo(&notes, |place, count| map.words(place, count)).is_empty());
                Ok(())
            };
            let (header, segments) = (Span::private(Header::BYTES), PrivateSegments::default());
            let config = Harness::config(1, MEMORY);
            let shard =
                Shard::restore(config, header.clone(), Box::new(segments.clone()), (&books, &kept), fill);
            let mailboxes = Mailboxes::default();
            let now_ns = world.alone.now_ns;
            world.alone = Harness::of(shard.unwrap(), (header, segments), &mailboxes);
            world.alone.now_ns = now_ns + EPOCH_NS;
            world.check();
            for _ in 0..5000 {
                world.act();
            }
            world.check();
        }
    }
}
