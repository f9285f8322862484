//! LMDB with numbers as keys, as the machine has them, and values of 8 bytes.

use super::keys::shuffle;
use super::tree::{LOAD_ORDER, check, value_of};
use crate::lmdb::{Environment, INTEGER_KEYS};

/// Room for one key, with what changes leave behind.
const KEY_BYTES: u64 = 256;
/// Numbers that are put in one transaction while a table is loaded.
const LOAD: usize = 1 << 14;

/// An environment with room for so many keys, and as many again.
pub(super) fn start(keys: u64) -> Result<Environment, String> {
    Environment::open((keys * KEY_BYTES * 2).max(256 << 20), INTEGER_KEYS)
}

/// Puts these numbers, in the order in which they are put into our tables.
pub(super) fn load(environment: &Environment, numbers: &[u64]) -> Result<(), String> {
    let mut numbers = numbers.to_vec();
    shuffle(&mut numbers, LOAD_ORDER);
    numbers.chunks(LOAD).try_for_each(|numbers| put(environment, numbers.iter().map(|number| (*number, 0))))
}

/// Puts these numbers in one transaction, each with how often it was put before.
pub(super) fn put(
    environment: &Environment,
    numbers: impl Iterator<Item = (u64, u64)>,
) -> Result<(), String> {
    let items: Vec<([u8; 8], [u8; 8])> = numbers
        .map(|(number, generation)| (number.to_ne_bytes(), value_of(number, generation).to_le_bytes()))
        .collect();
    environment.put(items.iter().map(|(key, value)| (&key[..], &value[..])))
}

/// Gets these numbers in one transaction.
pub(super) fn get(environment: &Environment, numbers: &[u64]) -> Result<u64, String> {
    let mut wanted = numbers.iter();
    environment
        .get_words(numbers, |value| check(*wanted.next().expect("as many as keys"), Some(value)).map(drop))?;
    Ok(numbers.len() as u64)
}

/// Scans from the first of these numbers on, which are all that follow.
pub(super) fn scan(environment: &Environment, numbers: &[u64]) -> Result<(), String> {
    let (mut wanted, first) = (numbers.iter(), numbers[0].to_ne_bytes());
    environment.scan(std::iter::once((&first[..], numbers.len())), |key, value| {
        let number = *wanted.next().expect("no more than were asked for");
        if key != number.to_ne_bytes() {
            return Err(format!("LMDB's scan brought {key:?} instead of {number}"));
        }
        check(number, Some(value)).map(drop)
    })?;
    if wanted.next().is_none() { Ok(()) } else { Err("LMDB's scan ended early".into()) }
}

/// Scans in one transaction from these numbers on, so many keys each.
pub(super) fn scan_ranges(environment: &Environment, ranges: &[(u64, usize)]) -> Result<(), String> {
    let firsts: Vec<([u8; 8], usize)> =
        ranges.iter().map(|(first, count)| (first.to_ne_bytes(), *count)).collect();
    let (mut left, mut wanted) = (0, ranges.iter());
    let mut last = 0;
    environment.scan(firsts.iter().map(|(first, count)| (&first[..], *count)), |key, value| {
        let number = u64::from_ne_bytes(key.try_into().map_err(|_| "LMDB's key is no number")?);
        let fits = if left == 0 {
            let (first, count) = wanted.next().ok_or("LMDB's scan brought more than was asked for")?;
            left = *count;
            number == *first
        } else {
            last < number
        };
        (left, last) = (left - 1, number);
        if !fits {
            return Err(format!("LMDB's scan brought {number}, which was not wanted"));
        }
        check(number, Some(value)).map(drop)
    })?;
    if left == 0 && wanted.next().is_none() { Ok(()) } else { Err("LMDB's scan ended early".into()) }
}
