//! Views as they are received: every key has a shard, and there are not more shards than there may be.

#![no_main]

use kelix_fuzz::Input;
use kelix_types::KeyHash;
use kelix_types::limits::{RING_ARCS, SHARDS_MAX};
use kelix_wire::View;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let (number, seed, hash) = (input.u64(), input.u64(), KeyHash(input.u64()));
    let length = usize::from(input.u16());
    // The table is long, so the input is repeated until it is full.
    let pattern = if input.is_empty() { &[0] } else { input.0 };
    let owners: Vec<u8> = pattern.iter().copied().cycle().take(length).collect();
    let Some(view) = View::from_parts(number, seed, owners.clone()) else {
        assert!(length != RING_ARCS || owners.iter().any(|owner| usize::from(*owner) >= SHARDS_MAX));
        return;
    };
    assert_eq!((view.number, view.hash_seed, view.owners()), (number, seed, &owners[..]));
    assert!(view.shard(hash) < view.shards() && view.shards() <= SHARDS_MAX);
});
