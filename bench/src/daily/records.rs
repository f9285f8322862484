//! Records in a server that takes snapshots, and how often each was put: so it is known what every one of
//! them has to be, also in the next server.

use kelix::Values;

use super::text;
use crate::served::{Asker, Home, Served};
use crate::store::{Numbers, key_of, memory_for, number_of, numbered_value};
use kelix_report::progress;

/// Records that are put or got at once where nothing is measured.
const BATCH: u64 = 256;

/// Where the records are, and how often each was put.
pub(super) struct Stored {
    pub home: Home,
    /// How often each was put after the load.
    puts: Vec<u32>,
    numbers: Numbers,
}

impl Asker {
    fn put(&mut self, record: u64, number: u64) -> Result<(), String> {
        let put = self.session.put(self.table, &key_of(record), &numbered_value(record, number));
        put.map(drop).map_err(text)
    }

    fn get(&mut self, record: u64, number: u64) -> Result<(), String> {
        let mut value = [0; 32];
        let found = self.session.get_into(self.table, &key_of(record), &mut value).map_err(text)?;
        check(found.map(|_| &value[..]), record, number)
    }
}

/// Whether this is the value that a record was given last.
fn check(value: Option<&[u8]>, record: u64, number: u64) -> Result<(), String> {
    match value.map(|value| number_of(value, record)) {
        Some(Some(found)) if found == number => Ok(()),
        Some(Some(found)) => Err(format!("record {record} is that of put {found}, not {number}")),
        Some(None) => Err(format!("record {record} has no value of its own")),
        None => Err(format!("record {record} is not there")),
    }
}

impl Stored {
    /// Puts so many records into a new server.
    pub fn load(records: u64) -> Result<(Stored, Served), String> {
        let home = Home::new("daily", memory_for(records))?;
        let server = home.serve_with_snapshots()?;
        let mut asker = Asker::open(&server)?;
        let mut items: Vec<([u8; 16], [u8; 32])> = Vec::new();
        for first in (0..records).step_by(BATCH as usize) {
            items.clear();
            let batch = first..records.min(first + BATCH);
            items.extend(batch.map(|record| (key_of(record), numbered_value(record, 0))));
            let pairs: Vec<(&[u8], &[u8])> =
                items.iter().map(|(key, value)| (&key[..], &value[..])).collect();
            let results = asker.session.multi_put(asker.table, &pairs).map_err(text)?;
            results.into_iter().try_for_each(|result| result.map(drop).map_err(text))?;
            if first % (BATCH << 10) == 0 {
                progress::show(&format!("loading: {} %", first * 100 / records));
            }
        }
        Ok((Stored { home, puts: vec![0; records as usize], numbers: Numbers(17) }, server))
    }

    fn draw(&mut self) -> u64 {
        ((u128::from(self.numbers.next()) * self.puts.len() as u128) >> 64) as u64
    }

    /// Gets any record.
    pub fn get_any(&mut self, asker: &mut Asker) -> Result<(), String> {
        let record = self.draw();
        asker.get(record, self.puts[record as usize].into())
    }

    /// Puts any record.
    pub fn put_any(&mut self, asker: &mut Asker) -> Result<(), String> {
        let record = self.draw();
        let number = &mut self.puts[record as usize];
        *number += 1;
        asker.put(record, (*number).into())
    }

    /// Gets the first one.
    pub fn get_one(&self, asker: &mut Asker) -> Result<(), String> {
        asker.get(0, self.puts[0].into())
    }

    /// Gets all of them.
    pub fn verify(&self, asker: &mut Asker) -> Result<(), String> {
        let mut values = Values::new();
        let all: Vec<u64> = (0..self.puts.len() as u64).collect();
        for records in all.chunks(BATCH as usize) {
            let keys: Vec<[u8; 16]> = records.iter().map(|record| key_of(*record)).collect();
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            asker.session.multi_get_into(asker.table, &keys, &mut values).map_err(text)?;
            for (index, record) in records.iter().enumerate() {
                check(values.get(index), *record, self.puts[*record as usize].into())?;
            }
        }
        Ok(())
    }

    /// How many records there are.
    pub fn count(&self) -> u64 {
        self.puts.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_another_record_or_another_put_is_told() {
        let value = numbered_value(7, 3);
        assert!(check(Some(&value), 7, 3).is_ok());
        assert!(check(Some(&value), 7, 4).unwrap_err().contains("that of put 3"));
        assert!(check(Some(&value), 8, 3).unwrap_err().contains("no value of its own"));
        assert!(check(None, 7, 3).unwrap_err().contains("not there"));
        let mut torn = value;
        torn[24..].copy_from_slice(&numbered_value(7, 4)[24..]);
        assert!(check(Some(&torn), 7, 3).is_err());
    }
}
