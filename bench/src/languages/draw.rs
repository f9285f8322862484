//! Records that are drawn, and got one by one.

use std::hint::black_box;

use kelix::{Session, Table};

use crate::store::{Numbers, key_of, verify};

/// Gets of a block.
pub(super) const GETS: usize = 1 << 14;
/// Records that are drawn: so many that those of one turn are out of caches in the next one.
const DRAWN: usize = 1 << 20;

/// Records drawn from all alike, one after the other, again and again.
pub(super) struct Draw {
    records: Vec<u64>,
    next: usize,
}

impl Draw {
    /// Draws from so many records.
    pub fn of(seed: u64, records: u64) -> Draw {
        Draw { records: Numbers(seed).records(records, DRAWN), next: 0 }
    }

    /// The next records, so many: a part of all that are drawn.
    pub fn batch(&mut self, count: usize) -> &[u64] {
        let at = self.next % (self.records.len() - count);
        self.next += count;
        &self.records[at..at + count]
    }

    /// Gets a block of records, and verifies what comes. How many they are.
    pub fn block(&mut self, mut get: impl FnMut(&[u8], &mut [u8])) -> u64 {
        let mut buffer = [0; 32];
        for _ in 0..GETS {
            let record = self.records[self.next % self.records.len()];
            self.next += 1;
            get(black_box(&key_of(record)[..]), black_box(&mut buffer[..]));
            verify(&buffer, record);
        }
        GETS as u64
    }
}

/// Gets a value that is there by the Rust client.
pub(super) fn get_into(session: &mut Session, table: Table, key: &[u8], buffer: &mut [u8]) {
    session.get_into(table, key, buffer).expect("a get").expect("present");
}
