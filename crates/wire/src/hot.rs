//! What a client asks for most, in words of the server's mailbox beside the client's counters.
//!
//! ```text
//! word  0  operations that were sampled
//!    1, 2  of a key: its hash, and [ samples of it for sure 11 | shard 6 | location of its item 47 ]
//!    3, 4  of the next one, and so on
//! ```

use kelix_types::Location;

use crate::mailbox_word::{HOT_ENTRIES, HOT_LEN};

/// Samples behind which all that there are count half.
pub const SAMPLES_MAX: u16 = 1 << 10;
/// Least number of samples of a key that is told of: others came by chance.
const SAMPLES_MIN: u64 = 3;

/// What is told of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HotEntry {
    /// The hash of table and key.
    pub hash: u64,
    /// How many samples were of this key for sure.
    pub samples: u64,
    /// The shard that has the item.
    pub shard: u64,
    /// Where the item was, when the client last knew: [`Location::word`], or 0.
    pub location: u64,
}

/// The words of so many samples and these keys.
pub fn pack(samples: u16, entries: &[HotEntry; HOT_ENTRIES]) -> [u64; HOT_LEN] {
    let mut words = [0; HOT_LEN];
    words[0] = u64::from(samples);
    for (pair, entry) in words[1..].chunks_exact_mut(2).zip(entries) {
        pair[0] = entry.hash;
        pair[1] = entry.samples << 53 | entry.shard << 47 | entry.location;
    }
    words
}

/// The number of samples, and the keys that came more often than by chance. The words are the client's own, and so
/// may be anything.
pub fn unpack(words: &[u64; HOT_LEN]) -> (u64, Vec<HotEntry>) {
    let entry = |pair: &[u64]| HotEntry {
        hash: pair[0],
        samples: pair[1] >> 53,
        shard: pair[1] >> 47 & 0x3f,
        location: pair[1] & Location::MASK,
    };
    let entries = words[1..].chunks_exact(2).map(entry);
    (words[0].min(SAMPLES_MAX.into()), entries.filter(|entry| entry.samples >= SAMPLES_MIN).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_tell_what_they_were_made_of_and_nonsense_tells_what_can_be() {
        let mut entries = [HotEntry::default(); HOT_ENTRIES];
        entries[3] = HotEntry { hash: 9, samples: 1023, shard: 63, location: Location::MASK };
        entries[4] = HotEntry { hash: 8, samples: SAMPLES_MIN - 1, shard: 0, location: 64 };
        assert_eq!(unpack(&pack(1000, &entries)), (1000, vec![entries[3]]));
        assert_eq!(unpack(&[0; HOT_LEN]), (0, vec![]));
        let (samples, all) = unpack(&[u64::MAX; HOT_LEN]);
        assert_eq!((samples, all.len()), (SAMPLES_MAX.into(), HOT_ENTRIES));
        assert!(all.iter().all(|entry| entry.shard == 63 && entry.samples == 2047));
    }
}
