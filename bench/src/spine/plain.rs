//! The plain loop: the bucket and item reads of a get, on the same table, with nothing around them.

use std::sync::Arc;

use kelix::{Session, measure};
use kelix_image::MemoryMap;
use kelix_types::limits::GRANULE_BYTES;
use kelix_types::{Place, SizeClass, TableId, key_hash};

/// A table as a plain program would hold it.
pub(crate) struct PlainTable {
    granules: Vec<*const u8>,
    directory: Vec<u64>,
    seed: u64,
    table: TableId,
    /// Keeps the memory mapped.
    _map: Arc<MemoryMap>,
}

impl PlainTable {
    pub fn new(session: &mut Session, table: TableId) -> PlainTable {
        let (map, directory, seed) = measure::image(session, 0);
        let entries = (0..directory.len()).map(|entry| directory.entry(entry)).collect();
        let granules = (0..4096u64).map(|granule| {
            let words = map.words(Place(granule * GRANULE_BYTES), 8);
            words.map_or(std::ptr::null(), |words| words.as_ptr().cast())
        });
        PlainTable { granules: granules.collect(), directory: entries, seed, table, _map: map }
    }

    /// Where a place is; null where a segment is that came after this table was made.
    #[inline]
    fn at(&self, place: u64) -> *const u8 {
        let granule = self.granules[(place / GRANULE_BYTES) as usize];
        if granule.is_null() { granule } else { granule.wrapping_add((place % GRANULE_BYTES) as usize) }
    }

    /// Where the main bucket of a key stands, and the key's hash.
    #[inline]
    pub fn bucket(&self, key: &[u8; 16]) -> (*const u64, u64) {
        let hash = key_hash(self.seed, self.table, key).0;
        let subtable = self.directory[hash as usize & (self.directory.len() - 1)];
        (self.at(subtable + (hash >> 58) * 64).cast(), hash)
    }

    /// Where the first item stands that a bucket proposes for a hash; null if it proposes none.
    ///
    /// # Safety
    /// `bucket` came from [`PlainTable::bucket`], and the table is not being changed.
    #[inline]
    pub unsafe fn item(&self, bucket: *const u64, hash: u64) -> *const u64 {
        let wanted = (hash >> 42) & 0xffff;
        // SAFETY: a bucket is eight words, inside a mapped segment.
        let slot = |index: usize| unsafe { *bucket.add(index) };
        let found = (1..8).find(|index| slot(*index) >> 48 == wanted);
        found.map_or(std::ptr::null(), |index| self.at((slot(index) & ((1 << 40) - 1)) * 16).cast())
    }

    /// Looks further when the first proposal was another key's: at the other slots, and at the alternate
    /// bucket. Null: it stands in a segment that came after this table was made.
    #[cold]
    unsafe fn search(&self, bucket: *const u64, hash: u64, key: &[u8; 16]) -> *const u64 {
        let wanted = (hash >> 42) & 0xffff;
        let subtable = bucket.map_addr(|address| address & !4095);
        let main = (bucket.addr() & 4095) / 64;
        let other = main ^ (1 + wanted as usize % 63);
        for bucket in [main, other] {
            for index in 1..8 {
                // SAFETY: a subtable is 64 buckets of eight words, aligned to 4096 bytes, in one segment; a
                // slot that is not zero names an item of 64 bytes.
                unsafe {
                    let slot = *subtable.add(bucket * 8 + index);
                    let item: *const u64 = self.at((slot & ((1 << 40) - 1)) * 16).cast();
                    let is_there = slot >> 48 == wanted && !item.is_null();
                    if is_there && *item.add(2).cast::<[u8; 16]>() == *key {
                        return item;
                    }
                }
            }
        }
        std::ptr::null()
    }

    /// Copies the value of a key out of the item that its bucket proposed, or of the right one. `false`: that
    /// is not where this table looks.
    ///
    /// # Safety
    /// `item` came from [`PlainTable::item`] with this bucket and hash.
    #[inline]
    pub unsafe fn value(
        &self,
        (bucket, hash): (*const u64, u64),
        mut item: *const u64,
        key: &[u8; 16],
        value: &mut [u8; 32],
    ) -> bool {
        // SAFETY: an item of this benchmark is 64 bytes: header, 16 bytes of key, 32 of value.
        unsafe {
            if item.is_null() || *item.add(2).cast::<[u8; 16]>() != *key {
                item = self.search(bucket, hash, key);
                if item.is_null() {
                    return false;
                }
            }
            *value = *item.add(4).cast::<[u8; 32]>();
        }
        true
    }

    /// The whole get. `false`: the key stands in a segment that came after this table was made.
    #[inline]
    pub fn get(&self, key: &[u8; 16], value: &mut [u8; 32]) -> bool {
        let (bucket, hash) = self.bucket(key);
        // SAFETY: the pointers come from this table, and nobody writes while a block runs.
        unsafe { self.value((bucket, hash), self.item(bucket, hash), key, value) }
    }

    /// Asks the processor for a line.
    #[inline]
    pub fn prefetch(pointer: *const u64) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch has no effect a program can observe.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(pointer.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = pointer;
    }
}

const _: () = assert!(matches!(SizeClass::for_bytes(64), Some(class) if class.bytes() == 64));
