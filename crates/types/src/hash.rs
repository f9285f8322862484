//! The key hash: XXH3-64, one definition for every language (docs/image-format.md, "Hash").

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{TableId, limits};

/// The hash of a table and a key. Different bits of it choose the shard, the subtable, the bucket and the
/// signature.
///
/// ```text
///   63      58 57            42 41                         0
///   [ bucket  ][ signature     ][ directory suffix          ]
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeyHash(pub u64);

/// Odd constant (2^64 divided by the golden ratio) that tells tables apart and remixes ring positions.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Hashes `key` of `table` under the seed that the image's header page names.
#[inline]
pub fn key_hash(seed: u64, table: TableId, key: &[u8]) -> KeyHash {
    KeyHash(xxh3_64_with_seed(key, seed.wrapping_add((table.0 as u64).wrapping_mul(GOLDEN))))
}

impl KeyHash {
    /// The arc of the ring that owns the key. Remixed, so that the keys of one shard still spread evenly over
    /// its buckets.
    #[inline]
    pub fn ring_arc(self) -> usize {
        (self.0.wrapping_mul(GOLDEN) >> (64 - limits::RING_ARCS.ilog2())) as usize
    }

    /// The low `depth` bits: the key's place in a directory of that depth.
    #[inline]
    pub fn suffix(self, depth: u32) -> u64 {
        self.0 & ((1 << depth) - 1)
    }

    /// The key's main bucket in its subtable of 64.
    #[inline]
    pub fn bucket(self) -> usize {
        (self.0 >> 58) as usize
    }

    /// 16 bits that tell keys of one bucket apart.
    #[inline]
    pub fn signature(self) -> u16 {
        (self.0 >> 42) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_hashes_of_tables() {
        assert_eq!(key_hash(42, TableId(2), b"stu001").0, 0x461b_774f_d7a8_9bf5);
        assert_eq!(key_hash(0, TableId(1), b"stu001").0, 0xafa8_a993_9aec_4b9e);
    }

    #[test]
    fn golden_hashes() {
        // The values of XXH3-64 itself, so that another language's library gives the same.
        assert_eq!(key_hash(0, TableId(0), b"").0, 0x2d06_8005_38d3_94c2);
        assert_eq!(
            key_hash(0, TableId(0), b"stu001"),
            key_hash(GOLDEN.wrapping_neg(), TableId(1), b"stu001")
        );
    }
}
