//! The view: which shard owns which part of the key space.

use kelix_types::limits::{RING_ARCS, RING_VIRTUAL_NODES, SHARDS_MAX};
use kelix_types::{KeyHash, TableId, key_hash};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The ring object: a number, the seed of the key hash, and the owner of every arc of the ring.
///
/// The ring has 4,096 arcs. Each belongs to the shard whose virtual node follows it (consistent hashing), so
/// a shard that joins or leaves moves only its own share. Clients use the table and need not know how it was
/// made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// Counts changes of membership.
    pub number: u64,
    /// Seed of the key hash, the same in every image of the namespace.
    pub hash_seed: u64,
    owners: Box<[u8; RING_ARCS]>,
}

impl View {
    /// The view of one server with `shards` shards.
    pub fn of_shards(number: u64, hash_seed: u64, shards: usize) -> View {
        assert!((1..=SHARDS_MAX).contains(&shards));
        let mut nodes: Vec<(u64, u8)> = (0..shards)
            .flat_map(|shard| (0..RING_VIRTUAL_NODES).map(move |node| (shard, node)))
            .map(|(shard, node)| {
                let name = [shard as u64, node as u64];
                (xxh3_64_with_seed(kelix_image::words::bytes_of(&name), 0), shard as u8)
            })
            .collect();
        nodes.sort_unstable();
        let mut owners = Box::new([0; RING_ARCS]);
        for (arc, owner) in owners.iter_mut().enumerate() {
            let point = (arc as u64) << (64 - RING_ARCS.ilog2());
            let next = nodes.partition_point(|(node, _)| *node < point);
            *owner = nodes[next % nodes.len()].1;
        }
        View { number, hash_seed, owners }
    }

    /// A view as it was received; `None` when it is not whole or names more shards than a server can have.
    pub fn from_parts(number: u64, hash_seed: u64, owners: Vec<u8>) -> Option<View> {
        let owners: Box<[u8; RING_ARCS]> = owners.try_into().ok()?;
        owners.iter().all(|owner| usize::from(*owner) < SHARDS_MAX).then_some(View {
            number,
            hash_seed,
            owners,
        })
    }

    /// The shard that owns a key.
    #[inline]
    pub fn shard(&self, hash: KeyHash) -> usize {
        self.owners[hash.ring_arc()] as usize
    }

    /// The shard that owns a key of a table. An ordered table stands on one shard, where a key without bytes
    /// would.
    #[inline]
    pub fn shard_of(&self, table: TableId, hash: KeyHash) -> usize {
        if table.kind().is_ordered() {
            self.shard(key_hash(self.hash_seed, table, &[]))
        } else {
            self.shard(hash)
        }
    }

    /// Owner of each arc.
    pub fn owners(&self) -> &[u8] {
        &self.owners[..]
    }

    /// Number of shards.
    pub fn shards(&self) -> usize {
        self.owners.iter().max().map_or(0, |last| *last as usize + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_fair_and_a_join_moves_only_what_it_takes() {
        for shards in 1..8 {
            let (before, after) = (View::of_shards(1, 0, shards), View::of_shards(2, 0, shards + 1));
            for shard in 0..=shards {
                let share = after.owners.iter().filter(|owner| **owner as usize == shard).count();
                let fair = RING_ARCS / (shards + 1);
                assert!(share * 3 > fair * 2 && share * 2 < fair * 3, "{share} arcs of a fair {fair}");
            }
            let moved_elsewhere = before
                .owners
                .iter()
                .zip(after.owners().iter())
                .filter(|(b, a)| b != a && **a as usize != shards);
            assert_eq!(moved_elsewhere.count(), 0);
        }
    }

    /// Found by fuzzing: a view with shards beyond the limit was accepted, and a client went on to join 256
    /// of them.
    #[test]
    fn views_with_too_many_shards_are_refused() {
        let with_owner = |owner: usize| {
            let mut owners = vec![0; RING_ARCS];
            owners[7] = owner as u8;
            View::from_parts(1, 0, owners)
        };
        assert_eq!(with_owner(SHARDS_MAX - 1).map(|view| view.shards()), Some(SHARDS_MAX));
        assert_eq!(with_owner(SHARDS_MAX), None);
        assert_eq!(View::from_parts(1, 0, vec![0; RING_ARCS - 1]), None);
    }
}
