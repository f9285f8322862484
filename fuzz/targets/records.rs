//! Records that a follower is told, behind those of a shard that has just begun.

#![no_main]

use std::sync::LazyLock;

use kelix_fuzz::words;
use kelix_image::{Header, PrivateSegments, Span};
use kelix_log::{Lag, Record, RecordHead};
use kelix_shard::harness::Harness;
use kelix_shard::{Follower, Shard, ShardConfig};
use kelix_types::TableId;
use kelix_wire::mailboxes::Mailboxes;
use kelix_wire::{Op, RequestHead};
use libfuzzer_sys::fuzz_target;

const MEMORY: u64 = 16 << 20;

fn config() -> ShardConfig {
    let mut config = Harness::config(1, MEMORY);
    config.image.keeps_journal = true;
    config
}

/// Records of a shard with two keys.
static BEGUN: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let (header, segments) = (Span::private(Header::BYTES), PrivateSegments::default());
    let mut shard = Shard::create(config(), header.clone(), Box::new(segments.clone())).expect("a shard");
    let mut reader = shard.follow(Lag::Wait);
    let mut alone = Harness::of(shard, (header, segments), &Mailboxes::default());
    for key in [b"one", b"two"] {
        alone.call(RequestHead::new(Op::Put, 0, TableId(1)), key, b"a value");
    }
    let mut words = Vec::new();
    reader.read(&mut words, usize::MAX).expect("nobody who is waited for is let go");
    words
});

fuzz_target!(|data: &[u8]| {
    let mut follower = Follower::new(Box::new(PrivateSegments::default()), MEMORY);
    assert!(follower.apply_all(&BEGUN).expect("records of a shard").is_empty());
    let words = words(data);
    let head = RecordHead {
        sequence: follower.applied() + 1,
        last_incarnation: u64::MAX >> 1,
        batch: 0,
        words: words.len(),
    };
    if follower.apply(&Record { head, notes: &words }).is_ok() {
        // It may be refused, and what it has may not be.
        if let Ok(mut shard) = follower.into_shard(config(), Span::private(Header::BYTES)) {
            let _ = shard.audit();
        }
    }
    // As records, which mostly are none.
    let mut rest = &words[..];
    while let Ok(Some((record, behind))) = Record::split(rest) {
        assert!(record.notes.len() + behind.len() < rest.len());
        rest = behind;
    }
});
