//! The writer's side of the hash index. Runs on the shard thread, which alone stores to the index.
//!
//! Every change is a sequence of single words published in an order that keeps each intermediate state
//! readable: a slot is copied to its new bucket before the old one is cleared, a subtable is filled before
//! the directory names it, and cleared before it is released.

use kelix_image::{Changes, Image, ItemHeader, Kind, NoRoom, header_word, holds_key};
use kelix_types::{KeyHash, Location, Place, TableId, key_hash, mark};

use super::bucket::{BUCKET_WORDS, BUCKETS, Bucket, BucketHeader, Slot, alternate, guess};
use super::directory::DirectoryRoot;
use crate::Found;

/// Slots of a subtable.
const SUBTABLE_SLOTS: usize = BUCKETS * (BUCKET_WORDS - 1);
/// Buddies merge when together they fill at most this share of one subtable.
const MERGE_PERCENT: usize = 40;

/// The hash index of one image.
pub struct HashIndex {
    root: DirectoryRoot,
    /// How many subtables have each depth, to know when the directory may halve.
    depths: [u32; Kind::DIRECTORY_DEPTH_MAX as usize + 1],
    seed: u64,
    splits: u64,
    merges: u64,
}

type Subtable = [u64; BUCKETS * BUCKET_WORDS];

impl HashIndex {
    /// Makes an empty index of one subtable and writes its root into the header page.
    pub fn create(image: &mut Image) -> Result<HashIndex, NoRoom> {
        let subtable = image.allocate(Kind::SUBTABLE)?;
        let mut words = [0; BUCKETS * BUCKET_WORDS];
        headers().for_each(|index| words[index] = BucketHeader::new(0, 0).word());
        write_new(change_subtable(image, subtable), &words);
        let place = image.allocate(Kind::directory(0))?;
        let mut index = HashIndex {
            root: DirectoryRoot { place, depth: 0 },
            depths: [0; Kind::DIRECTORY_DEPTH_MAX as usize + 1],
            seed: image.header().hash_seed(),
            splits: 0,
            merges: 0,
        };
        index.depths[0] = 1;
        image.change(index.root.first_entry(), 1).store(0, subtable.0);
        image.make_live(place);
        image.publish_header(header_word::DIRECTORY, index.root.word());
        Ok(index)
    }

    /// The index that stands in an image, as its header page says. `None`: it makes no sense.
    pub fn restore(image: &Image) -> Option<HashIndex> {
        let root = DirectoryRoot::from_word(image.header().words().load(header_word::DIRECTORY))?;
        let words = image.map().words(root.first_entry(), root.entries())?;
        let mut depths = [0; Kind::DIRECTORY_DEPTH_MAX as usize + 1];
        for entry in 0..root.entries() {
            let subtable = image.map().words(Place(words.load(entry)), BUCKETS * BUCKET_WORDS)?;
            let header = BucketHeader::from_word(subtable.load(0))?;
            if header.depth > root.depth || entry as u64 & ((1 << header.depth) - 1) != header.suffix {
                return None;
            }
            depths[header.depth as usize] += u32::from(entry as u64 == header.suffix);
        }
        let seed = image.header().hash_seed();
        Some(HashIndex { root, depths, seed, splits: 0, merges: 0 })
    }

    /// Takes the directory that the header page names, where another shard writes the index. Only readers' calls
    /// are made of this one then. `None`: the directory makes no sense.
    #[inline]
    pub fn follow(&mut self, image: &Image) -> Option<()> {
        let word = image.header().words().load(header_word::DIRECTORY);
        if word != self.root.word() {
            let root = DirectoryRoot::from_word(word)?;
            image.map().words(root.first_entry(), root.entries())?;
            self.root = root;
        }
        Some(())
    }

    /// Subtables split and merged so far.
    pub fn splits_and_merges(&self) -> (u64, u64) {
        (self.splits, self.merges)
    }

    /// The hash of a key under this image's seed.
    #[inline]
    pub fn hash(&self, table: TableId, key: &[u8]) -> KeyHash {
        key_hash(self.seed, table, key)
    }

    #[inline]
    fn subtable(&self, image: &Image, hash: KeyHash) -> Place {
        Place(image.words(self.root.entry(hash), 1).load(0))
    }

    #[inline]
    fn load_bucket(image: &Image, place: Place) -> [u64; BUCKET_WORDS] {
        let mut words = [0; BUCKET_WORDS];
        image.words(place, BUCKET_WORDS).copy_out(0, &mut words);
        words
    }

    /// Asks the processor for the main bucket of a hash, and says where it stands now.
    #[inline]
    pub fn prefetch_bucket(&self, image: &Image, hash: KeyHash) -> Place {
        let place = bucket_place(self.subtable(image, hash), hash.bucket());
        image.words(place, BUCKET_WORDS).prefetch_line();
        place
    }

    /// Asks the processor for the item that a hash's main bucket probably leads to.
    #[inline]
    pub fn prefetch_item(image: &Image, bucket: Place, hash: KeyHash) {
        let slot = guess(image.words(bucket, BUCKET_WORDS), hash);
        if let Some(item) = slot.and_then(|slot| image.map().view().words_from(Location::place_of(slot))) {
            item.prefetch_line();
        }
    }

    /// Finds the slot of a key.
    #[inline]
    pub fn find(&self, image: &Image, hash: KeyHash, table: TableId, key: &[u8]) -> Option<Found> {
        let subtable = self.subtable(image, hash);
        let main = bucket_place(subtable, hash.bucket());
        let words = image.words(main, BUCKET_WORDS);
        debug_assert!(Bucket(&Self::load_bucket(image, main)).serves(hash));
        // Most often it is the first slot with its signature.
        if let Some(slot) = words.find_upper_quarter(hash.signature()) {
            if let Some(location) = Slot(words.load(slot)).pointer() {
                if holds_key(image.slot(location), table, key) {
                    return Some(Found { location, word: main.plus(slot as u64 * 8) });
                }
            }
        }
        self.find_further(image, hash, table, key)
    }

    fn find_further(&self, image: &Image, hash: KeyHash, table: TableId, key: &[u8]) -> Option<Found> {
        let subtable = self.subtable(image, hash);
        let main = bucket_place(subtable, hash.bucket());
        let words = Self::load_bucket(image, main);
        if let Some(found) = Self::find_in(image, main, &words, hash, false, table, key) {
            return Some(found);
        }
        if !Bucket(&words).has_away() {
            return None;
        }
        let other = bucket_place(subtable, alternate(hash.bucket(), hash.signature()));
        Self::find_in(image, other, &Self::load_bucket(image, other), hash, true, table, key)
    }

    fn find_in(
        image: &Image,
        bucket: Place,
        words: &[u64; BUCKET_WORDS],
        hash: KeyHash,
        alt: bool,
        table: TableId,
        key: &[u8],
    ) -> Option<Found> {
        let mut mask = Bucket(words).candidates(hash, alt);
        while mask != 0 {
            let slot = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            let Some(location) = Bucket(words).location(slot) else { continue };
            if holds_key(image.slot(location), table, key) {
                return Some(Found { location, word: bucket.plus(slot as u64 * 8) });
            }
        }
        None
    }

    /// Points a found slot at another item.
    #[inline]
    pub fn replace(&self, image: &Image, found: Found, location: Location) {
        let word = image.change(found.word, 1);
        let old = Slot(word.words().load(0));
        word.publish(0, Slot::new(old.signature(), old.is_alt(), location).0);
    }

    /// Adds a key that is not there.
    pub fn insert(&mut self, image: &mut Image, hash: KeyHash, location: Location) -> Result<(), NoRoom> {
        loop {
            let subtable = self.subtable(image, hash);
            if place_slot(
                &mut change_subtable(image, subtable),
                hash.bucket(),
                Slot::new(hash.signature(), false, location),
            ) {
                return Ok(());
            }
            self.split(image, hash)?;
        }
    }

    /// Clears a found slot. The item's memory may be released afterwards.
    pub fn remove(&mut self, image: &mut Image, hash: KeyHash, found: Found) {
        let word = image.change(found.word, 1);
        let was_alt = Slot(word.words().load(0)).is_alt();
        image.note_removal();
        word.publish(0, 0);
        let subtable = self.subtable(image, hash);
        if was_alt {
            change_subtable(image, subtable).add_away(hash.bucket(), -1);
        }
        // An empty bucket is a sign of a sparse subtable; look closer one time in sixteen.
        if hash.0 >> 38 & 15 == 0 {
            let bucket = Place(found.word.0 / 64 * 64);
            if Self::load_bucket(image, bucket)[1..].iter().all(|slot| *slot == 0) {
                self.merge(image, hash);
            }
        }
    }

    fn load_subtable(image: &Image, place: Place) -> Subtable {
        let mut words = [0; BUCKETS * BUCKET_WORDS];
        image.words(place, BUCKETS * BUCKET_WORDS).copy_out(0, &mut words);
        words
    }

    fn header_of(words: &Subtable) -> BucketHeader {
        BucketHeader::from_word(words[0]).expect("a subtable of this index")
    }

    fn item_hash(&self, image: &Image, location: Location, scratch: &mut Vec<u64>) -> KeyHash {
        let slot = image.slot(location);
        let header = ItemHeader::from_word(slot.load(1)).expect("an item of this image");
        let start = header.key_start();
        scratch.clear();
        scratch.resize(header.key_bytes.div_ceil(8), 0);
        slot.copy_out(start / 8, scratch);
        self.hash(header.table, &kelix_image::words::bytes_of(scratch)[..header.key_bytes])
    }

    /// Splits the subtable of a hash in two, doubling the directory first when it is as deep already.
    fn split(&mut self, image: &mut Image, hash: KeyHash) -> Result<(), NoRoom> {
        let place = self.subtable(image, hash);
        let old = Self::load_subtable(image, place);
        let BucketHeader { suffix, depth, .. } = Self::header_of(&old);
        if depth == self.root.depth {
            self.resize_directory(image, depth + 1)?;
        }
        let sibling_place = image.allocate(Kind::SUBTABLE)?;
        let sibling_suffix = suffix | 1 << depth;
        let mut kept = [0; BUCKETS * BUCKET_WORDS];
        let mut sibling = [0; BUCKETS * BUCKET_WORDS];
        for bucket in 0..BUCKETS {
            let header = BucketHeader { depth: depth + 1, away: 0, ..old.header(bucket).moved() };
            kept[bucket * BUCKET_WORDS] = header.word();
            sibling[bucket * BUCKET_WORDS] = BucketHeader { suffix: sibling_suffix, ..header }.word();
        }
        let mut scratch = Vec::new();
        for index in slots() {
            // Items of a subtable stand all over memory: fetch those of the next bucket.
            let ahead = Slot(if index + BUCKET_WORDS < old.len() { old[index + BUCKET_WORDS] } else { 0 });
            if !ahead.is_free() {
                image.slot(ahead.location()).prefetch(8);
            }
            let slot = Slot(old[index]);
            if slot.is_free() {
                continue;
            }
            let moves = self.item_hash(image, slot.location(), &mut scratch).0 >> depth & 1 == 1;
            let target = if moves { &mut sibling } else { &mut kept };
            target[index] = slot.0;
            if slot.is_alt() {
                target.add_away(alternate(index / BUCKET_WORDS, slot.signature()), 1);
            }
        }
        bring_home(&mut kept);
        bring_home(&mut sibling);
        // The sibling is whole before anyone is led to it; the old one gives up what moved last.
        write_new(change_subtable(image, sibling_place), &sibling);
        self.point_entries(image, sibling_suffix, depth + 1, sibling_place);
        publish_changes(change_subtable(image, place), &old, &kept);
        self.depths[depth as usize] -= 1;
        self.depths[depth as usize + 1] += 2;
        mark!("index block split");
        self.splits += 1;
        Ok(())
    }

    /// Lets every directory entry of a suffix name `subtable`.
    fn point_entries(&self, image: &Image, suffix: u64, depth: u32, subtable: Place) {
        let mut entry = suffix;
        while entry < self.root.entries() as u64 {
            image.change(self.root.first_entry().plus(entry * 8), 1).publish(0, subtable.0);
            entry += 1 << depth;
        }
    }

    /// Writes a directory of another depth (or the same, to move it) and switches to it.
    fn resize_directory(&mut self, image: &mut Image, depth: u32) -> Result<(), NoRoom> {
        if depth > Kind::DIRECTORY_DEPTH_MAX {
            return Err(NoRoom { wait: false });
        }
        let old = self.root;
        let mut entries = vec![0; old.entries()];
        image.words(old.first_entry(), entries.len()).copy_out(0, &mut entries);
        let place = image.allocate(Kind::directory(depth))?;
        let root = DirectoryRoot { place, depth };
        let words = image.change(root.first_entry(), root.entries());
        for first in (0..root.entries()).step_by(entries.len()) {
            words.copy_in(first, &entries[..entries.len().min(root.entries())]);
        }
        let guardian = image.next_incarnation().live();
        image.drop_live(old.place);
        image.change(place, 1).publish(0, guardian.0);
        image.publish_header(header_word::DIRECTORY, root.word());
        image.release(Kind::directory(old.depth), old.place);
        self.root = root;
        Ok(())
    }

    /// Merges the subtable of a hash with its buddy if both are sparse, and halves the directory when nothing
    /// needs its depth any more.
    fn merge(&mut self, image: &mut Image, hash: KeyHash) {
        let place = self.subtable(image, hash);
        let words = Self::load_subtable(image, place);
        let BucketHeader { suffix, depth, .. } = Self::header_of(&words);
        if depth == 0 {
            return;
        }
        let bit = 1 << (depth - 1);
        let buddy_place = self.subtable(image, KeyHash(suffix ^ bit));
        let buddy = Self::load_subtable(image, buddy_place);
        let used = |words: &Subtable| slots().filter(|index| words[*index] != 0).count();
        if Self::header_of(&buddy).depth != depth
            || (used(&words) + used(&buddy)) * 100 > SUBTABLE_SLOTS * MERGE_PERCENT
        {
            return;
        }
        // The one with the smaller suffix stays and takes in the other's slots.
        let (stays_place, stays, goes_place, goes) = if suffix & bit == 0 {
            (place, words, buddy_place, buddy)
        } else {
            (buddy_place, buddy, place, words)
        };
        let merged_suffix = suffix & !bit;
        let mut merged = stays;
        for bucket in 0..BUCKETS {
            let header = merged.header(bucket).moved();
            let header = BucketHeader { suffix: merged_suffix, depth: depth - 1, ..header };
            merged[bucket * BUCKET_WORDS] = header.word();
        }
        for index in slots() {
            let slot = Slot(goes[index]);
            if slot.is_free() {
                continue;
            }
            let bucket = index / BUCKET_WORDS;
            let main = if slot.is_alt() { alternate(bucket, slot.signature()) } else { bucket };
            if !place_slot(&mut merged, main, slot.with_alt(false)) {
                return;
            }
        }
        publish_changes(change_subtable(image, stays_place), &stays, &merged);
        self.point_entries(image, merged_suffix, depth - 1, stays_place);
        self.drop_subtable(image, goes_place);
        self.depths[depth as usize] -= 2;
        self.depths[depth as usize - 1] += 1;
        mark!("index block merged");
        self.merges += 1;
        while self.root.depth > 0 && self.depths[self.root.depth as usize] == 0 {
            if self.resize_directory(image, self.root.depth - 1).is_err() {
                break;
            }
        }
    }

    /// Clears a subtable that nothing names any more, so that no word in it names an item, and releases it.
    fn drop_subtable(&self, image: &mut Image, place: Place) {
        let words = change_subtable(image, place);
        // The headers first: whoever finds a slot cleared finds its bucket's as well, and takes no key for
        // absent.
        headers().for_each(|index| words.publish(index, 0));
        words.clear(0, BUCKETS * BUCKET_WORDS);
        image.release(Kind::SUBTABLE, place);
    }

    /// Moves an index block that stands in a segment being emptied. Dead blocks need nothing.
    pub fn relocate(&mut self, image: &mut Image, kind: Kind, place: Place) -> Result<(), NoRoom> {
        if kind == Kind::SUBTABLE {
            let words = Self::load_subtable(image, place);
            let Some(header) = BucketHeader::from_word(words[0]) else { return Ok(()) };
            let to = image.allocate(Kind::SUBTABLE)?;
            write_new(change_subtable(image, to), &words);
            self.point_entries(image, header.suffix, header.depth, to);
            self.drop_subtable(image, place);
            mark!("index block moved");
        } else if place == self.root.place {
            mark!("directory moved");
            self.resize_directory(image, self.root.depth)?;
        }
        Ok(())
    }

    /// Every location in the index, for checks.
    pub fn for_each(&self, image: &Image, mut visit: impl FnMut(Location)) {
        self.for_each_subtable(image, |place| {
            let words = Self::load_subtable(image, place);
            let used = slots().filter(|index| words[*index] != 0);
            used.for_each(|index| visit(Slot(words[index]).location()));
        });
    }

    /// Visits what stands in one subtable, and says where to go on; 0: that was all. Whatever is in the index
    /// from the first visit to the last is visited, however subtables split and merge in between: suffixes
    /// count up from their highest bit, so that those which extend one come one after the other.
    pub fn sweep(&self, image: &Image, cursor: u64, mut visit: impl FnMut(Location)) -> u64 {
        let words = Self::load_subtable(image, self.subtable(image, KeyHash(cursor)));
        let used = slots().filter(|index| words[*index] != 0);
        used.for_each(|index| visit(Slot(words[index]).location()));
        let beyond = u64::MAX.checked_shl(Self::header_of(&words).depth).unwrap_or(0);
        (cursor | beyond).reverse_bits().wrapping_add(1).reverse_bits()
    }

    /// Every slot of memory that the index uses, for checks.
    pub fn for_each_block(&self, image: &Image, mut visit: impl FnMut(Kind, Place)) {
        visit(Kind::directory(self.root.depth), self.root.place);
        self.for_each_subtable(image, |place| visit(Kind::SUBTABLE, place));
    }

    fn for_each_subtable(&self, image: &Image, mut visit: impl FnMut(Place)) {
        for entry in 0..self.root.entries() as u64 {
            let place = self.subtable(image, KeyHash(entry));
            let header = BucketHeader::from_word(image.words(place, 1).load(0));
            // A subtable stands in the directory once for each suffix that extends its own.
            if header.expect("a subtable of this index").suffix == entry {
                visit(place);
            }
        }
    }
}

#[inline]
fn bucket_place(subtable: Place, bucket: usize) -> Place {
    subtable.plus((bucket * BUCKET_WORDS * 8) as u64)
}

fn change_subtable(image: &Image, place: Place) -> Changes<'_> {
    image.change(place, BUCKETS * BUCKET_WORDS)
}

/// Stores a subtable into memory that has none: its headers last. A reader with an old directory may be
/// led there at any time, and takes a key for absent where a bucket serves it.
fn write_new(words: Changes<'_>, new: &Subtable) {
    let mut without_headers = *new;
    headers().for_each(|index| without_headers[index] = 0);
    words.copy_in(0, &without_headers);
    headers().for_each(|index| words.publish(index, new[index]));
}

/// Stores what has changed in a subtable, all of whose headers have: first the slots that were free, then the
/// headers, then everything else. So a slot that moved into a free place stands there before it leaves the
/// old one, and a bucket says that keys of it are away before they are gone from it. A slot that moved into
/// an occupied place may be missing for a moment: the headers say so meanwhile, and readers ask.
fn publish_changes(words: Changes<'_>, old: &Subtable, new: &Subtable) {
    let changed = |index: &usize| new[*index] != old[*index];
    let publish = |index| words.publish(index, new[index]);
    slots().filter(|index| old[*index] == 0).filter(changed).for_each(publish);
    for bucket in 0..BUCKETS {
        words.publish(bucket * BUCKET_WORDS, new.header(bucket).unsure().word());
    }
    slots().filter(|index| old[*index] != 0).filter(changed).for_each(publish);
    headers().for_each(publish);
}

/// Indices of all headers of a subtable.
fn headers() -> impl Iterator<Item = usize> {
    (0..BUCKETS).map(|bucket| bucket * BUCKET_WORDS)
}

/// Indices of all slots of a subtable, headers left out.
fn slots() -> impl Iterator<Item = usize> {
    (0..BUCKETS * BUCKET_WORDS).filter(|index| index % BUCKET_WORDS != 0)
}

/// The slots of a subtable, in the image or in a private copy.
trait SlotArray {
    fn word(&self, index: usize) -> u64;
    fn set_word(&mut self, index: usize, word: u64);

    fn header(&self, bucket: usize) -> BucketHeader {
        BucketHeader::from_word(self.word(bucket * BUCKET_WORDS)).expect("a bucket of this index")
    }

    /// Counts a key of a bucket that is away from now on, or is not any more.
    fn add_away(&mut self, bucket: usize, by: i8) {
        let header = self.header(bucket);
        let header = BucketHeader { away: header.away.wrapping_add_signed(by), ..header.moved() };
        self.set_word(bucket * BUCKET_WORDS, header.word());
    }

    fn free_slot(&self, bucket: usize) -> Option<usize> {
        (1..BUCKET_WORDS).map(|slot| bucket * BUCKET_WORDS + slot).find(|index| self.word(*index) == 0)
    }
}

impl SlotArray for Subtable {
    fn word(&self, index: usize) -> u64 {
        self[index]
    }
    fn set_word(&mut self, index: usize, word: u64) {
        self[index] = word;
    }
}

impl SlotArray for Changes<'_> {
    fn word(&self, index: usize) -> u64 {
        self.words().load(index)
    }
    fn set_word(&mut self, index: usize, word: u64) {
        self.publish(index, word);
    }
}

/// Puts a slot into its main bucket, else into its alternate, else moves another slot out of the way.
fn place_slot<A: SlotArray>(array: &mut A, main: usize, slot: Slot) -> bool {
    let other = alternate(main, slot.signature());
    if let Some(index) = array.free_slot(main) {
        array.set_word(index, slot.with_alt(false).0);
        return true;
    }
    if array.header(main).away == u8::MAX {
        return false;
    }
    if let Some(index) = array.free_slot(other) {
        array.set_word(index, slot.with_alt(true).0);
        array.add_away(main, 1);
        return true;
    }
    // Somebody must move: best one that goes home to its main bucket, else one that leaves it.
    for home in [true, false] {
        for (bucket, alt) in [(main, false), (other, true)] {
            for index in (1..BUCKET_WORDS).map(|slot| bucket * BUCKET_WORDS + slot) {
                let resident = Slot(array.word(index));
                if resident.is_alt() != home {
                    continue;
                }
                let refuge = alternate(bucket, resident.signature());
                let Some(free) = array.free_slot(refuge) else { continue };
                if !home && array.header(bucket).away == u8::MAX {
                    continue;
                }
                // The copy first, then the count, then the old slot's new owner: a reader in between finds
                // one of them or asks the shard.
                array.set_word(free, resident.with_alt(!home).0);
                array.add_away(if home { refuge } else { bucket }, if home { -1 } else { 1 });
                array.set_word(index, slot.with_alt(alt).0);
                if alt {
                    array.add_away(main, 1);
                }
                return true;
            }
        }
    }
    false
}

/// Moves slots back to their main buckets where these have room again, so that lookups need one bucket.
fn bring_home(words: &mut Subtable) {
    for index in slots() {
        let slot = Slot(words[index]);
        if slot.is_free() || !slot.is_alt() {
            continue;
        }
        let main = alternate(index / BUCKET_WORDS, slot.signature());
        if let Some(free) = words.free_slot(main) {
            words[free] = slot.with_alt(false).0;
            words[index] = 0;
            words.add_away(main, -1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use kelix_image::{Header, ImageConfig, ItemFlags, PrivateSegments, Span};
    use kelix_types::limits;

    use super::*;
    use crate::Directory;
    use crate::hash::find_item;

    fn image() -> Image {
        let config = ImageConfig {
            image_id: 1,
            hash_seed: 99,
            term: 1,
            incarnation: kelix_types::Incarnation::first_of_term(1),
            epoch_ns: limits::EPOCH_NS,
            epoch_ns_usual: limits::EPOCH_NS,
            memory_bytes: 256 << 20,
            segment_bytes_first: 16 << 20,
            segment_bytes_max: 64 << 20,
            keeps_journal: false,
        };
        Image::create(config, Span::private(Header::BYTES), Box::new(PrivateSegments::default())).unwrap()
    }

    fn write_item(image: &mut Image, key: u64) -> Location {
        let header =
            ItemHeader { table: TableId(1), flags: ItemFlags::default(), key_bytes: 8, body_bytes: 0 };
        let location = image.allocate_item(header.item_bytes()).unwrap();
        let guardian = image.next_incarnation().live();
        image.slot(location).copy_in(1, &[header.word(), key]);
        image.slot(location).publish(0, guardian.0);
        location
    }

    fn kill(image: &mut Image, location: Location) {
        image.slot(location).publish(0, 0);
        image.release_item(location);
    }

    /// What a reader does, without a fabric: directory, main bucket, alternate bucket. Returns the location
    /// and how many buckets were read.
    fn read(image: &Image, index: &HashIndex, key: u64) -> (Option<Location>, u32) {
        let root = DirectoryRoot::from_word(image.header().words().load(header_word::DIRECTORY)).unwrap();
        let mut entries = vec![0; root.entries()];
        image.words(root.first_entry(), entries.len()).copy_out(0, &mut entries);
        let directory = Directory::new(root.word(), &entries);
        let hash = index.hash(TableId(1), &key.to_le_bytes());
        let mut reads = 0;
        for alt in [false, true] {
            let bucket = if alt { alternate(hash.bucket(), hash.signature()) } else { hash.bucket() };
            let words = HashIndex::load_bucket(image, directory.bucket(hash, bucket).unwrap());
            reads += 1;
            assert!(Bucket(&words).serves(hash));
            for slot in (1..8).filter(|slot| Bucket(&words).candidates(hash, alt) & 1 << slot != 0) {
                let Some(location) = Bucket(&words).location(slot) else { continue };
                if holds_key(image.slot(location), TableId(1), &key.to_le_bytes()) {
                    return (Some(location), reads);
                }
            }
            if !Bucket(&words).has_away() {
                break;
            }
        }
        (None, reads)
    }

    #[test]
    fn grows_and_shrinks_like_a_map_and_readers_agree() {
        let mut image = image();
        let mut index = HashIndex::create(&mut image).unwrap();
        let mut model: HashMap<u64, Location> = HashMap::new();
        let mut random = 1u64;
        let count = if cfg!(miri) { 600 } else { 60_000 };
        for step in 0..4 * count {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let key = (random >> 33) % count;
            let hash = index.hash(TableId(1), &key.to_le_bytes());
            let found = index.find(&image, hash, TableId(1), &key.to_le_bytes());
            assert_eq!(found.map(|f| f.location), model.get(&key).copied());
            let mut offered = None;
            find_item(image.map(), hash, &mut |location, slot| {
                offered = holds_key(slot, TableId(1), &key.to_le_bytes()).then_some(location);
                offered.is_some()
            });
            assert_eq!(offered, model.get(&key).copied(), "whoever looks where the index stands");
            // Two puts a delete while growing, nine deletes a put while shrinking.
            let put = if step < 2 * count { random >> 20 & 3 > 0 } else { random >> 20 & 15 == 0 };
            match (put, found) {
                (true, Some(found)) => {
                    let location = write_item(&mut image, key);
                    kill(&mut image, found.location);
                    index.replace(&image, found, location);
                    model.insert(key, location);
                }
                (true, None) => {
                    let location = write_item(&mut image, key);
                    index.insert(&mut image, hash, location).unwrap();
                    model.insert(key, location);
                }
                (false, Some(found)) => {
                    index.remove(&mut image, hash, found);
                    kill(&mut image, found.location);
                    model.remove(&key);
                }
                (false, None) => {}
            }
            image.advance_epoch(step * limits::EPOCH_NS, || step * limits::EPOCH_NS);
        }
        let (splits, merges) = index.splits_and_merges();
        assert!(cfg!(miri) || (splits > 50 && merges > 20), "{splits} splits, {merges} merges");
        for (key, location) in &model {
            assert_eq!(read(&image, &index, *key).0, Some(*location));
        }
        let mut all = Vec::new();
        index.for_each(&image, |location| all.push(location));
        assert_eq!(all.len(), model.len());
    }

    #[test]
    fn a_sweep_visits_what_stays_while_subtables_split_and_merge() {
        fn put(image: &mut Image, index: &mut HashIndex, key: u64) -> Location {
            let location = write_item(image, key);
            let hash = index.hash(TableId(1), &key.to_le_bytes());
            index.insert(image, hash, location).unwrap();
            location
        }
        let (mut image, stays) = (image(), if cfg!(miri) { 200 } else { 4_000 });
        let mut index = HashIndex::create(&mut image).unwrap();
        let kept: Vec<Location> = (0..stays).map(|key| put(&mut image, &mut index, key)).collect();
        let (mut cursor, mut steps) = (0, 0);
        let mut visited = std::collections::HashSet::new();
        loop {
            cursor = index.sweep(&image, cursor, |location| {
                visited.insert(location.word());
            });
            if cursor == 0 {
                break;
            }
            // Others come for a while, so that there are several times as many, and go.
            let (which, coming) = (steps % 4 + 1, steps % 8 < 4);
            for key in which * stays..(which + 1) * stays {
                let hash = index.hash(TableId(1), &key.to_le_bytes());
                match index.find(&image, hash, TableId(1), &key.to_le_bytes()) {
                    None if coming => {
                        put(&mut image, &mut index, key);
                    }
                    Some(found) if !coming => {
                        index.remove(&mut image, hash, found);
                        kill(&mut image, found.location);
                    }
                    _ => {}
                }
            }
            steps += 1;
            image.advance_epoch(steps * limits::EPOCH_NS, || steps * limits::EPOCH_NS);
        }
        let (splits, merges) = index.splits_and_merges();
        assert!(cfg!(miri) || (splits > 20 && merges > 20), "{splits} splits, {merges} merges");
        assert!(kept.iter().all(|location| visited.contains(&location.word())));
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes too long under an interpreter")]
    fn buckets_fill_well_and_lookups_read_little_more_than_one() {
        let mut image = image();
        let mut index = HashIndex::create(&mut image).unwrap();
        let (mut reads, mut fullest) = (0, 0.0f64);
        let count = 100_000;
        for key in 0..count {
            let location = write_item(&mut image, key);
            let hash = index.hash(TableId(1), &key.to_le_bytes());
            let before = index.splits;
            if index.insert(&mut image, hash, location).is_ok() && index.splits > before {
                let slots = (before + 1) as f64 * SUBTABLE_SLOTS as f64;
                fullest = fullest.max(key as f64 / slots);
            }
        }
        for key in 0..count {
            let (found, buckets) = read(&image, &index, key);
            assert!(found.is_some() && buckets <= 2);
            reads += buckets;
        }
        let mean = f64::from(reads) / count as f64;
        assert!(fullest > 0.85, "the first subtables split when {fullest:.2} full");
        assert!(mean < 1.15, "{mean} bucket reads a lookup, although subtables are as full as they get");
    }

    #[test]
    fn relocated_blocks_leave_nothing_behind() {
        let mut image = image();
        let mut index = HashIndex::create(&mut image).unwrap();
        for key in 0..2000u64 {
            let location = write_item(&mut image, key);
            let hash = index.hash(TableId(1), &key.to_le_bytes());
            index.insert(&mut image, hash, location).unwrap();
        }
        let before = image.header().words().load(header_word::DIRECTORY);
        let subtable = index.subtable(&image, KeyHash(0));
        index.relocate(&mut image, Kind::SUBTABLE, subtable).unwrap();
        index.relocate(&mut image, Kind::directory(0), index.root.place).unwrap();
        assert_ne!(image.header().words().load(header_word::DIRECTORY), before);
        assert!(HashIndex::load_subtable(&image, subtable).iter().all(|word| *word == 0));
        for key in 0..2000 {
            assert!(read(&image, &index, key).0.is_some());
        }
    }
}
