//! The way from a hash to its item, where memory stands itself.

use kelix_image::words::load_fence;
use kelix_image::{MapView, MemoryMap, Take};
use kelix_types::{KeyHash, Place};

use super::absence::names_none;
use super::bucket::{BUCKET_WORDS, Bucket, alternate};
use super::directory::DirectoryRoot;

/// Offers the slots in which the item of a hash may stand until one is taken, as [`READER`](crate::READER) does.
/// Returns whether the key is absent, if the time that this took was short enough: see [`names_none`].
pub fn find_item(map: &MemoryMap, hash: KeyHash, take: &mut Take<'_>) -> bool {
    let map = map.view();
    let word = |place: Place| {
        // What led there was stored before what stands there, and is loaded before.
        load_fence();
        map.words(place, 1).map(|words| words.load(0))
    };
    let Some(root) = word(DirectoryRoot::AT).and_then(DirectoryRoot::from_word) else { return false };
    let Some(subtable) = word(root.entry(hash)) else { return false };
    for alt in [false, true] {
        let bucket = if alt { alternate(hash.bucket(), hash.signature()) } else { hash.bucket() };
        let Some(place) = subtable.checked_add((bucket * BUCKET_WORDS * 8) as u64) else { return false };
        let Some(stands) = map.words(Place(place), BUCKET_WORDS) else { return false };
        let mut words = [0; BUCKET_WORDS];
        load_fence();
        stands.copy_out(0, &mut words);
        let bucket = Bucket(&words);
        if !bucket.serves(hash) {
            // It split meanwhile: the shard is to be asked.
            return false;
        }
        let mut candidates = bucket.candidates(hash, alt);
        while candidates != 0 {
            let location = bucket.location(candidates.trailing_zeros() as usize);
            candidates &= candidates - 1;
            let item = location.and_then(|at| Some((at, map.words(at.place(), at.class().words())?)));
            load_fence();
            if item.is_some_and(|(location, words)| take(location, words)) {
                return false;
            }
        }
        if !bucket.has_away() {
            break;
        }
    }
    load_fence();
    let place = |bucket: usize| subtable.checked_add((bucket * BUCKET_WORDS * 8) as u64).map(Place);
    names_none(map, hash, place)
}

/// Brings near what leads to some hashes, and their items, the memory accesses of all overlapping: those of
/// one level of the way after those of the level before.
pub(crate) fn bring_near(map: MapView<'_>, hashes: impl Iterator<Item = KeyHash> + Clone) -> Option<()> {
    let root = DirectoryRoot::from_word(map.words(DirectoryRoot::AT, 1)?.load(0))?;
    let entries = map.words(root.first_entry(), root.entries())?;
    let entry = |hash: KeyHash| entries.part(hash.suffix(root.depth) as usize, 1);
    hashes.clone().for_each(|hash| entry(hash).prefetch_line());
    let bucket = |hash: KeyHash| {
        let place = entry(hash).load(0).checked_add((hash.bucket() * BUCKET_WORDS * 8) as u64)?;
        map.words(Place(place), BUCKET_WORDS)
    };
    hashes.clone().filter_map(bucket).for_each(|bucket| bucket.prefetch_line());
    for hash in hashes {
        let Some(bucket) = bucket(hash) else { continue };
        let mut words = [0; BUCKET_WORDS];
        bucket.copy_out(0, &mut words);
        let slot = Bucket(&words).candidates(hash, false).trailing_zeros() as usize;
        let location = if slot < BUCKET_WORDS { Bucket(&words).location(slot) } else { None };
        let item = location.and_then(|at| map.words(at.place(), at.class().words()));
        item.iter().for_each(|item| item.prefetch(item.count()));
    }
    Some(())
}
