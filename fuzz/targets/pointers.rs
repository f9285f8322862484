//! The table of cached pointers, into which every process of a user may write.

#![no_main]

use std::sync::LazyLock;

use kelix_fuzz::Input;
use kelix_image::Span;
use kelix_types::limits::POINTER_TABLE_BYTES;
use kelix_types::{Incarnation, KeyHash, Location};
use libfuzzer_sys::fuzz_target;
use pointers::{Pointer, PointerCache};

// The client keeps both to itself.
#[path = "../../crates/client/src/pointers.rs"]
#[allow(missing_docs, dead_code)]
mod pointers;
#[path = "../../crates/client/src/shelf.rs"]
#[allow(missing_docs, dead_code)]
mod shelf;

static TABLE: LazyLock<Span> = LazyLock::new(|| Span::private(POINTER_TABLE_BYTES));

/// All hashes lead to the first set, so that 8 words are the whole world.
const SET: u64 = 0xf000_0000_0000_ffff;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let cache = PointerCache::new(TABLE.clone());
    TABLE.words().clear(0, 8);
    while !input.is_empty() {
        let what = input.u8();
        if what & 1 == 0 {
            TABLE.words().store(usize::from(what >> 1 & 7), input.u64());
            continue;
        }
        let hash = KeyHash(input.u64() & SET);
        let Some(location) = Location::from_word(input.u64()) else {
            if let Some(found) = cache.get(hash) {
                cache.forget(hash, found);
            }
            continue;
        };
        let pointer = Pointer { location, incarnation: Incarnation(input.u64()) };
        cache.put(hash, pointer);
        // The null location stands for a free entry.
        assert!(location.word() == 0 || cache.get(hash) == Some(pointer));
        if what & 2 != 0 {
            cache.forget(hash, pointer);
        }
    }
});
