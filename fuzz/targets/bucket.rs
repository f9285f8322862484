//! Buckets in a private copy and where they stand, against a slow reading of their format.

#![no_main]

use std::sync::LazyLock;

use kelix_fuzz::{Guarded, Input};
use kelix_index::{BUCKET_WORDS, BUCKETS, Bucket, alternate, guess};
use kelix_types::{KeyHash, Location};
use libfuzzer_sys::fuzz_target;

static MEMORY: LazyLock<Guarded> = LazyLock::new(Guarded::new);

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (hash, chosen) = (KeyHash(input.u64()), input.u8());
    let mut words = input.words();
    words.truncate(BUCKET_WORDS);
    let upper_of =
        |words: &[u64], slot: usize, bits: u32| words.get(slot).map_or(0, |word| word >> (64 - bits));
    let matching = (1..BUCKET_WORDS).find(|slot| upper_of(&words, *slot, 16) == u64::from(hash.signature()));
    let expected = matching.filter(|_| words.len() == BUCKET_WORDS).map(|slot| words[slot] & Location::MASK);
    assert_eq!(guess(MEMORY.hold(&words), hash), expected);
    let other = alternate(hash.bucket(), hash.signature());
    assert!(other < BUCKETS && other != hash.bucket() && alternate(other, hash.signature()) == hash.bucket());
    let Ok(words) = <&[u64; BUCKET_WORDS]>::try_from(&words[..]) else { return };
    let bucket = Bucket(words);
    let depth = words[0] >> 40 & 0xff;
    if depth <= 40 {
        let serves = words[0] >> 63 == 1 && (0..depth).all(|bit| (words[0] ^ hash.0) >> bit & 1 == 0);
        assert_eq!(bucket.serves(hash), serves);
    } else {
        // No writer writes that; any answer will do.
        bucket.serves(hash);
    }
    assert_eq!(bucket.has_away(), words[0] >> 48 & 0xff != 0);
    let alt = chosen & 1 == 1;
    let candidates = bucket.candidates(hash, alt);
    assert_eq!(candidates & 1, 0);
    for slot in 1..BUCKET_WORDS {
        let is_candidate = upper_of(words, slot, 17) == u64::from(hash.signature()) << 1 | u64::from(alt);
        assert_eq!(candidates >> slot & 1 == 1, is_candidate);
        let location = bucket.location(slot);
        assert!(location.is_none_or(|location| location.word() == words[slot] & Location::MASK));
        assert!(words[slot] != 0 || location.is_none());
    }
});
