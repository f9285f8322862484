//! A cache that is told what was read, by a client that makes it up.

#![no_main]

use std::cell::RefCell;

use kelix_fuzz::Mailboxes;
use kelix_shard::harness::Harness;
use kelix_types::TableId;
use kelix_types::limits::SHARD_BYTES_MIN;
use kelix_wire::{Op, RequestHead};
use libfuzzer_sys::fuzz_target;

/// Items of several sizes.
const ITEMS: u64 = 200;

thread_local! {
    static CACHE: RefCell<Harness> = RefCell::new({
        let mut cache = Harness::cache(SHARD_BYTES_MIN, &Mailboxes::default());
        for key in 0..ITEMS {
            let put = RequestHead::new(Op::Put, 0, TableId(1));
            cache.call(put, &key.to_be_bytes(), &vec![1; key as usize * 40]);
        }
        cache
    });
}

fuzz_target!(|data: &[u8]| {
    CACHE.with_borrow_mut(|cache| {
        let used = RequestHead::new(Op::Used, 0, TableId::CATALOGUE);
        let body = &data[..data.len().min(8192)];
        cache.call(used, &[], body);
        assert_eq!(cache.shard.counters().items, ITEMS);
    });
});
