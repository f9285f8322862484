//! The root word and a reader's copy of the directory, with entries that nobody has looked at.

#![no_main]

use kelix_fuzz::Input;
use kelix_image::{Kind, MemoryMap};
use kelix_index::{BUCKET_WORDS, BUCKETS, Directory, DirectoryRoot};
use kelix_types::KeyHash;
use libfuzzer_sys::fuzz_target;

/// Bits of a root word. The others are not looked at.
const USED: u64 = (1 << 48) - 1;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (word, hash, bucket) = (input.u64(), KeyHash(input.u64()), usize::from(input.u8()) % BUCKETS);
    if let Some(root) = DirectoryRoot::from_word(word) {
        assert_eq!(root.word(), word & USED);
        assert!(root.depth <= Kind::DIRECTORY_DEPTH_MAX && root.entries() == 1 << root.depth);
        let entry = root.entry(hash).0 - root.first_entry().0;
        assert!(entry % 8 == 0 && entry / 8 < root.entries() as u64);
    }
    let mut entries = input.words();
    entries.truncate((entries.len() + 1).next_power_of_two() / 2);
    assert!(Directory::default().bucket(hash, bucket).is_none());
    if entries.is_empty() {
        return;
    }
    let mut directory = Directory::new(word, &entries);
    assert_eq!((directory.root(), directory.len(), directory.is_empty()), (word, entries.len(), word == 0));
    let index = hash.0 as usize & (entries.len() - 1);
    let place = directory.bucket(hash, bucket);
    assert_eq!(place.is_none(), entries[index] == 0, "zeros lead nowhere");
    // A reader hands such a place to its map, which knows no segment there.
    assert!(place.is_none_or(|place| MemoryMap::default().words(place, BUCKET_WORDS).is_none()));
    directory.refresh(hash, !word);
    assert_eq!(directory.entry(index), !word);
});
