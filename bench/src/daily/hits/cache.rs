//! What a cache is asked, one request after the other: get; if it is not there, set.
//!
//! Requests that follow each other for different keys are got at once, and set at once those of them that
//! were not there. A key that comes again begins another batch, so that it is found if it was just set.

use super::stream::{KEY_BYTES, Stream};
use crate::store::Numbers;
use crate::workload::key;

/// Most keys of a batch, and most bytes of their values.
const BATCH: usize = 64;
const BATCH_BYTES: u64 = 4 << 20;
/// Bytes of noise that values are cut out of, and those among which they begin.
const NOISE_BYTES: usize = 2 << 20;
const BEGINS: u64 = 1 << 20;

/// A cache under measurement.
pub(super) trait Cache {
    /// Gets these keys, and says of each by its place whether it is there, checked.
    fn get(&mut self, keys: &[u32], contents: &Contents, is_there: &mut [bool]) -> Result<(), String>;

    /// Sets them. How many were refused.
    fn set(&mut self, keys: &[u32], contents: &Contents) -> Result<u64, String>;
}

/// The values of all keys.
pub(super) struct Contents {
    noise: Vec<u8>,
    sizes: Vec<u32>,
}

impl Contents {
    /// Values of these lengths, none longer than a MiB.
    pub fn new(sizes: Vec<u32>) -> Contents {
        let mut numbers = Numbers(71);
        let noise = (0..NOISE_BYTES / 8).flat_map(|_| numbers.next().to_le_bytes()).collect();
        Contents { noise, sizes }
    }

    pub fn key(key_number: u32) -> [u8; KEY_BYTES] {
        key(key_number.into())
    }

    /// A key's value: its number, and a part of the noise.
    fn parts(&self, key: u32) -> ([u8; 8], &[u8]) {
        let bytes = self.sizes[key as usize] as usize - 8;
        let begin = (Numbers(key.into()).next() % BEGINS) as usize;
        (u64::from(key).to_le_bytes(), &self.noise[begin..begin + bytes])
    }

    pub fn bytes(&self, key: u32) -> usize {
        self.sizes[key as usize] as usize
    }

    /// Appends a key's value.
    pub fn write(&self, key: u32, into: &mut Vec<u8>) {
        let (number, rest) = self.parts(key);
        into.extend_from_slice(&number);
        into.extend_from_slice(rest);
    }

    /// An error if this is not the key's value.
    pub fn check(&self, key: u32, value: &[u8]) -> Result<(), String> {
        let (number, rest) = self.parts(key);
        match value.split_first_chunk() {
            Some((found, after)) if *found == number && after == rest => Ok(()),
            _ => Err(format!("key {key} has another value than the one that was set")),
        }
    }
}

/// What a cache did with a stream.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Asked {
    pub hits: u64,
    pub requests: u64,
    /// Values that it did not take.
    pub refused: u64,
}

impl Asked {
    /// Hits of a hundred requests.
    pub fn percent(&self) -> f64 {
        self.hits as f64 * 100.0 / self.requests.max(1) as f64
    }
}

/// Asks a cache for all of a stream.
pub(super) fn ask(cache: &mut dyn Cache, stream: &Stream, contents: &Contents) -> Result<Asked, String> {
    let mut asked = Asked { requests: stream.requests.len() as u64, ..Asked::default() };
    // Of each key the last batch that it was in.
    let mut last = vec![0u32; stream.sizes.len()];
    let (mut first, mut batch) = (0, 0);
    let (mut is_there, mut missing) = ([false; BATCH], Vec::new());
    while first < stream.requests.len() {
        batch += 1;
        let mut bytes = 0;
        let fits = |key: &&u32| {
            let is_new = std::mem::replace(&mut last[**key as usize], batch) != batch;
            let is_room = bytes <= BATCH_BYTES;
            bytes += contents.bytes(**key) as u64;
            is_new && is_room
        };
        let count = stream.requests[first..].iter().take(BATCH).take_while(fits).count();
        let keys = &stream.requests[first..first + count];
        cache.get(keys, contents, &mut is_there[..count])?;
        missing.clear();
        missing.extend(keys.iter().zip(&is_there).filter(|(_, is_there)| !**is_there).map(|(key, _)| *key));
        if !missing.is_empty() {
            asked.refused += cache.set(&missing, contents)?;
        }
        asked.hits += (count - missing.len()) as u64;
        first += count;
    }
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::super::lru::Lru;
    use super::super::stream::{item_bytes, made_up};
    use super::*;

    /// A cache that is arithmetic.
    struct Counted<'l>(Lru<'l>, u64);

    impl Cache for Counted<'_> {
        fn get(&mut self, keys: &[u32], _: &Contents, is_there: &mut [bool]) -> Result<(), String> {
            assert!((1..keys.len()).all(|at| !keys[..at].contains(&keys[at])), "twice: {keys:?}");
            self.1 += keys.len() as u64;
            keys.iter().zip(is_there).for_each(|(key, is_there)| *is_there = self.0.ask(*key));
            Ok(())
        }

        fn set(&mut self, keys: &[u32], _: &Contents) -> Result<u64, String> {
            Ok(keys.len() as u64)
        }
    }

    #[test]
    fn batches_hit_what_single_requests_would() {
        for stream in made_up(0.1, 20_000) {
            let contents = Contents::new(stream.scaled(0.1, 4 << 20));
            let bytes: Vec<u64> = contents.sizes.iter().map(|size| item_bytes(*size)).collect();
            let mut counted = Counted(Lru::new(&bytes, 4 << 20), 0);
            let asked = ask(&mut counted, &stream, &contents).unwrap();
            let mut lru = Lru::new(&bytes, 4 << 20);
            let hits = stream.requests.iter().filter(|key| lru.ask(**key)).count() as u64;
            assert_eq!(
                (asked.hits, asked.refused, counted.1),
                (hits, 20_000 - hits, 20_000),
                "{}",
                stream.name
            );
        }
    }

    #[test]
    fn values_are_told_apart() {
        let contents = Contents::new(vec![16, 16, 5000]);
        let mut values = [0, 1, 2].map(|key| {
            let mut value = Vec::new();
            contents.write(key, &mut value);
            assert!(value.len() == contents.bytes(key) && contents.check(key, &value).is_ok());
            value
        });
        assert!(contents.check(0, &values[1]).is_err() && contents.check(2, &values[2][..4999]).is_err());
        values[2][4999] ^= 1;
        assert!(contents.check(2, &values[2]).is_err());
    }
}
