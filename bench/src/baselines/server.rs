//! The thread that runs a shard.

use std::time::SystemTime;

use kelix_fabric::shm::{Memfd, MemfdSegments};
use kelix_fabric::{Clock, WorkQueue};
use kelix_image::{Header, ImageConfig};
use kelix_shard::{ClientParameters, Now, Shard, ShardConfig};
use kelix_types::limits::{EPOCH_NS, SEGMENT_BYTES_FIRST, VIEW_LEASE_NS, segment_bytes_max};
use kelix_wire::{RingShape, View};

use super::end::{End, PEER, Way};

/// Seed of the key hash.
const SEED: u64 = 42;
/// Steps between two looks at the clock while requests keep coming, as in the store's own thread.
const STEPS_A_CLOCK: u32 = 16;

/// An empty shard with the memory that a server's shard has, and one client.
pub(super) fn make_shard(memory_bytes: u64) -> Result<Shard, String> {
    let segment_bytes_max = segment_bytes_max(memory_bytes);
    let image = ImageConfig {
        image_id: 1,
        hash_seed: SEED,
        term: 1,
        incarnation: kelix_types::Incarnation::first_of_term(1),
        epoch_ns: EPOCH_NS,
        epoch_ns_usual: EPOCH_NS,
        memory_bytes,
        segment_bytes_first: SEGMENT_BYTES_FIRST.min(segment_bytes_max),
        segment_bytes_max,
        keeps_journal: false,
    };
    let config = ShardConfig {
        number: 0,
        view: View::of_shards(1, SEED, 1),
        image,
        view_lease_ns: VIEW_LEASE_NS,
        is_cache: false,
    };
    let make = || {
        let (_, header) = Memfd::create("kelix-baseline", Header::BYTES, true)?;
        Shard::create(config, header, Box::new(MemfdSegments::default()))
    };
    let mut shard = make().map_err(|error: kelix_types::Error| error.to_string())?;
    shard.join(
        PEER,
        ClientParameters {
            ring: RingShape::of_messages(true),
            connection: 1,
            caller: None,
            may_write: true,
            tells_sequence: false,
        },
    );
    Ok(shard)
}

fn now(end: &impl Clock) -> Now {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Now { monotonic_ns: end.now_ns(), wall_ns: wall.as_nanos() as u64 }
}

/// Serves one client until it ends the connection.
pub(super) fn serve<W: Way>(mut shard: Shard, mut end: End<W>) {
    let (mut time, mut steps) = (now(&end), 0u32);
    while !end.way.has_ended() {
        end.progress();
        let progress = shard.step(time, &mut end);
        assert!(progress.faulty.is_empty(), "{:?}", progress.faulty);
        steps = steps.wrapping_add(1);
        if progress.requests > 0 && steps % STEPS_A_CLOCK != 0 {
            continue;
        }
        time = now(&end);
        if progress.requests == 0 && progress.next_ns.is_none_or(|next| next > time.monotonic_ns) {
            end.wait(progress.next_ns, |end| shard.has_news(end));
            time = now(&end);
        }
    }
}
