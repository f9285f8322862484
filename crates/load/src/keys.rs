//! The keys of a load: whether one is there, or there twice, by 64-bit hashes of table and key.
//!
//! While rows are read their hashes are only kept. Then a table of just the right size is made of them: open
//! addressing with linear probing, a slot of 8 bytes for each, three quarters full, so less than 11 bytes a
//! key. Two keys of the same hash are no error before the keys themselves have been compared, which is for
//! the caller; a link to a key that is not there is always noticed but for one in 2^64.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Hashes that are kept in one piece of memory, so that none has to be copied to make room.
const PIECE: usize = 1 << 17;

/// Hashes that are looked for at once.
const GROUP: usize = 64;

/// A hash of a table and a key; never 0.
pub(crate) fn hash(table: usize, key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, table as u64).max(1)
}

/// Hashes as they come.
#[derive(Default)]
pub(crate) struct Gathered {
    pieces: Vec<Vec<u64>>,
}

impl Gathered {
    /// Adds one.
    #[inline]
    pub fn add(&mut self, hash: u64) {
        match self.pieces.last_mut() {
            Some(piece) if piece.len() < PIECE => piece.push(hash),
            _ => {
                let mut piece = Vec::with_capacity(PIECE);
                piece.push(hash);
                self.pieces.push(piece);
            }
        }
    }

    fn groups(&self) -> impl Iterator<Item = &[u64]> {
        self.pieces.iter().flat_map(|piece| piece.chunks(GROUP))
    }

    fn len(&self) -> usize {
        self.pieces.iter().map(Vec::len).sum()
    }
}

/// A set of keys, each of which may be taken out again.
pub(crate) struct Keys {
    slots: Vec<u64>,
    /// A bit a slot: its key was taken out.
    out: Vec<u64>,
}

impl Keys {
    /// Makes the set; returns also the hashes that came more than once.
    pub fn new(gathered: Gathered) -> (Keys, Vec<u64>) {
        let count = gathered.len();
        let slots = (count + count / 3).max(count + 1);
        let mut keys = Keys { slots: vec![0; slots], out: vec![0; slots.div_ceil(64)] };
        let mut twice = Vec::new();
        for group in gathered.groups() {
            keys.bring_near(group);
            for hash in group {
                let slot = keys.slot(*hash);
                if keys.slots[slot] == *hash {
                    twice.push(*hash);
                }
                keys.slots[slot] = *hash;
            }
        }
        twice.sort_unstable();
        twice.dedup();
        (keys, twice)
    }

    /// Loads where hashes stand, or nearly. These loads do not depend on each other, so all of the group are
    /// under way at once.
    fn bring_near(&self, group: &[u64]) {
        let loaded = group.iter().fold(0, |loaded, hash| loaded ^ self.slots[self.first_slot(*hash)]);
        std::hint::black_box(loaded);
    }

    /// Where to begin to look for a hash.
    #[inline]
    fn first_slot(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.slots.len() as u128) >> 64) as usize
    }

    /// The slot of a hash, or the empty one where it belongs.
    #[inline]
    fn slot(&self, hash: u64) -> usize {
        let count = self.slots.len();
        let mut slot = self.first_slot(hash);
        while self.slots[slot] != 0 && self.slots[slot] != hash {
            slot = if slot + 1 == count { 0 } else { slot + 1 };
        }
        slot
    }

    /// Whether a key is there and was not taken out.
    #[inline]
    pub fn has(&self, hash: u64) -> bool {
        let slot = self.slot(hash);
        self.slots[slot] == hash && self.out[slot / 64] >> (slot % 64) & 1 == 0
    }

    /// Whether all of these keys are there.
    pub fn have(&self, hashes: &Gathered) -> bool {
        hashes.groups().all(|group| {
            self.bring_near(group);
            group.iter().all(|hash| self.has(*hash))
        })
    }

    /// Takes a key out; whether it was there until now.
    pub fn take_out(&mut self, hash: u64) -> bool {
        let was = self.has(hash);
        if was {
            let slot = self.slot(hash);
            self.out[slot / 64] |= 1 << (slot % 64);
        }
        was
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_until_they_are_taken_out() {
        let mut gathered = Gathered::default();
        let key = |number: u32| hash(3, &number.to_le_bytes());
        (0..300_000).for_each(|number| gathered.add(key(number)));
        gathered.add(key(7));
        gathered.add(key(7));
        let (mut keys, twice) = Keys::new(gathered);
        assert_eq!(twice, [key(7)]);
        assert!((0..300_000).all(|number| keys.has(key(number))));
        assert!(!(300_000..600_000).any(|number| keys.has(key(number))));
        let mut some = Gathered::default();
        (0..1000).for_each(|number| some.add(key(number)));
        assert!(keys.have(&some) && keys.have(&Gathered::default()));
        some.add(key(300_000));
        assert!(!keys.have(&some));
        assert!(keys.take_out(key(5)) && !keys.take_out(key(5)) && !keys.has(key(5)));
        let bytes = (keys.slots.len() + keys.out.len()) * 8;
        assert!(bytes < 11 * 300_000, "{bytes}");
    }

    #[test]
    fn no_keys_are_a_set_too() {
        let (keys, twice) = Keys::new(Gathered::default());
        assert!(twice.is_empty() && !keys.has(1));
    }
}
