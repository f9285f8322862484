//! Absence of an item from the index: docs/read-rule.md, "Absence".

use kelix_image::MapView;
use kelix_image::words::{Words, load_fence};
use kelix_types::{KeyHash, Place};

use super::bucket::{BUCKET_WORDS, Bucket, alternate, has_away, is_sure, serves};

/// Whether, at one moment of the look, the index named no item with the signature of a hash that may be the
/// hash's own. `bucket` says where a bucket of the hash's subtable stands; memory must stand itself. Counts
/// if the caller took no longer for the look than a READ may, and in the term of the image: see
/// docs/read-rule.md, "Absence".
#[inline]
pub fn names_none(map: MapView<'_>, hash: KeyHash, bucket: impl Fn(usize) -> Option<Place>) -> bool {
    let words = |number: usize| map.words(bucket(number)?, BUCKET_WORDS);
    let has_none = |stands: Words<'_>, alt: bool| {
        let mut words = [0; BUCKET_WORDS];
        stands.copy_out(0, &mut words);
        Bucket(&words).candidates(hash, alt) == 0
    };
    let Some(main) = words(hash.bucket()) else { return false };
    // SYNC: all that was stored before the header is seen by the loads behind this one.
    let header = main.load_acquire(0);
    if !serves(header, hash) || !is_sure(header) || !has_none(main, false) {
        return false;
    }
    if has_away(header) {
        let other = words(alternate(hash.bucket(), hash.signature()));
        if !other.is_some_and(|other| has_none(other, true)) {
            return false;
        }
    }
    // SYNC: whoever moves a key stores the header between the new slot and the old one, each with a release.
    // So a reader that has seen the old slot without the key sees that header.
    load_fence();
    main.load(0) == header
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use kelix_image::{
        Header, Image, ImageConfig, ItemFlags, ItemHeader, Note, Notes, PrivateSegments, Span,
    };
    use kelix_types::{Incarnation, Location, TableId, limits};

    use super::super::bucket::BUCKETS;
    use super::super::{DirectoryRoot, HashIndex};
    use super::*;

    const TABLE: TableId = TableId(1);
    const SUBTABLE_BYTES: u64 = (BUCKETS * BUCKET_WORDS * 8) as u64;

    fn image() -> Image {
        let config = ImageConfig {
            image_id: 1,
            hash_seed: 99,
            term: 1,
            incarnation: Incarnation::first_of_term(1),
            epoch_ns: limits::EPOCH_NS,
            epoch_ns_usual: limits::EPOCH_NS,
            memory_bytes: 64 << 20,
            segment_bytes_first: 16 << 20,
            segment_bytes_max: 16 << 20,
            keeps_journal: true,
        };
        Image::create(config, Span::private(Header::BYTES), Box::new(PrivateSegments::default())).unwrap()
    }

    fn write_item(image: &mut Image, key: u64) -> Location {
        let header = ItemHeader { table: TABLE, flags: ItemFlags::default(), key_bytes: 8, body_bytes: 0 };
        let location = image.allocate_item(header.item_bytes()).unwrap();
        image.slot(location).copy_in(1, &[header.word(), key]);
        location
    }

    /// An index, and another memory into which all that is stored comes word by word.
    struct World {
        image: Image,
        index: HashIndex,
        copy: Image,
        keys: BTreeMap<u64, (KeyHash, Location)>,
        /// All subtables that there ever were: a reader's directory may be of any age.
        subtables: BTreeSet<Place>,
    }

    impl World {
        fn new() -> World {
            let (mut image, mut copy) = (image(), image());
            let index = HashIndex::create(&mut image).unwrap();
            HashIndex::create(&mut copy).unwrap();
            image.journal().take(|_| ());
            let mut world =
                World { image, index, copy, keys: BTreeMap::new(), subtables: BTreeSet::default() };
            world.note_subtables();
            world
        }

        fn hash(&self, key: u64) -> KeyHash {
            self.index.hash(TABLE, &key.to_le_bytes())
        }

        fn note_subtables(&mut self) {
            let root = self.image.header().words().load(kelix_image::header_word::DIRECTORY);
            let root = DirectoryRoot::from_word(root).unwrap();
            let entries = self.image.words(root.first_entry(), root.entries());
            self.subtables.extend((0..root.entries()).map(|entry| Place(entries.load(entry))));
        }

        fn put(&mut self, key: u64) {
            let location = write_item(&mut self.image, key);
            let hash = self.hash(key);
            self.index.insert(&mut self.image, hash, location).unwrap();
            self.keys.insert(key, (hash, location));
        }

        fn take(&mut self, key: u64) {
            let (hash, location) = self.keys.remove(&key).unwrap();
            let found = self.index.find(&self.image, hash, TABLE, &key.to_le_bytes()).unwrap();
            self.index.remove(&mut self.image, hash, found);
            self.image.release_item(location);
        }

        /// Stores what the index has stored, word by word. Behind each word nobody may take a key for absent
        /// that is there before the operation, which is of one of them, and after it. Returns how many words
        /// were looked behind.
        fn store_and_look(&mut self, of: u64) -> u64 {
            self.note_subtables();
            let notes = self.image.journal().take(<[u64]>::to_vec);
            let stay = || self.keys.iter().filter(|(key, _)| **key != of).map(|(_, (hash, _))| *hash);
            let mut looks = 0;
            for note in Notes::new(&notes) {
                let (place, words) = match note {
                    Note::Words(place, words) => (place, words.to_vec()),
                    Note::Zeros(place, count) => (place, vec![0; count]),
                    Note::Event(..) => continue,
                };
                for (at, word) in words.into_iter().enumerate() {
                    let place = place.plus(at as u64 * 8);
                    self.copy.change(place, 1).publish(0, word);
                    let Some(subtable) = self.subtables.range(..=place).next_back() else { continue };
                    if place.0 - subtable.0 >= SUBTABLE_BYTES {
                        continue;
                    }
                    looks += 1;
                    let bucket = ((place.0 - subtable.0) / 64) as usize;
                    // Only who looks into this bucket sees anything new.
                    let concerned = |hash: &KeyHash| {
                        hash.bucket() == bucket || alternate(hash.bucket(), hash.signature()) == bucket
                    };
                    for hash in stay().filter(concerned) {
                        let bucket = |bucket: usize| Some(subtable.plus((bucket * BUCKET_WORDS * 8) as u64));
                        let is_absent = names_none(self.copy.map().view(), hash, bucket);
                        assert!(!is_absent, "a key that is there all the time, behind {place:?}");
                    }
                }
            }
            looks
        }

        fn is_absent(&self, key: u64) -> bool {
            let hash = self.hash(key);
            crate::hash::find_item(self.copy.map(), hash, &mut |location, _| {
                self.keys.get(&key).is_some_and(|(_, known)| *known == location)
            })
        }
    }

    /// Through splits, merges and moves, behind each store.
    #[test]
    #[cfg_attr(miri, ignore = "takes too long under an interpreter")]
    fn no_key_that_is_there_is_ever_taken_for_absent() {
        let mut world = World::new();
        let (mut random, mut looks, mut absent) = (1u64, 0, 0);
        let count = 3_000;
        for step in 0..8 * count {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let key = (random >> 33) % count;
            let grows = step / (2 * count) % 2 == 0;
            let put = if grows { random >> 20 & 3 > 0 } else { random >> 20 & 15 == 0 };
            match (put, world.keys.contains_key(&key)) {
                (true, false) => world.put(key),
                (false, true) => world.take(key),
                _ => {
                    let is_there = world.keys.contains_key(&key);
                    absent += u64::from(world.is_absent(key));
                    assert!(!is_there || !world.is_absent(key));
                    continue;
                }
            }
            looks += world.store_and_look(key);
            world.image.advance_epoch(step * limits::EPOCH_NS, || step * limits::EPOCH_NS);
            world.image.journal().take(|_| ());
        }
        let (splits, merges) = world.index.splits_and_merges();
        assert!(
            splits > 8 && merges > 5 && looks > 20_000 && absent > 1_000,
            "{splits} {merges} {looks} {absent}"
        );
    }
}
