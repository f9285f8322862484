//! A session that asks for records drawn before, and checks what it gets.

use kelix::{Cost, Session, SessionOptions, Table, Values};

use crate::store::{Store, Walk, key_of, put_records, verify};
use kelix_report::interleave::Comparison;
use kelix_report::report::{Row, Sense, as_rate, compared};

/// A session and the records that it asks for, in turn.
pub(super) struct Client {
    session: Session,
    table: Table,
    walk: Walk,
    wanted: Vec<u64>,
    next: usize,
    values: Values,
}

impl Client {
    pub fn open(store: &Store, options: SessionOptions, wanted: Vec<u64>) -> Result<Client, String> {
        let mut session = store.client.session_with(options).map_err(|error| error.to_string())?;
        let table = session.table("records").map_err(|error| error.to_string())?;
        Ok(Client { session, table, walk: store.walk, wanted, next: 0, values: Values::new() })
    }

    fn next(&mut self) -> u64 {
        let record = self.wanted[self.next];
        self.next = (self.next + 1) % self.wanted.len();
        record
    }

    fn get_record(&mut self, record: u64) {
        let mut value = [0; 32];
        let found = self.session.get_into(self.table, &key_of(record), &mut value).expect("a get");
        assert_eq!(found.map(|(bytes, _)| bytes), Some(32), "record {record}");
        verify(&value, record);
    }

    fn put_record(&mut self, record: u64) {
        self.session.put(self.table, &key_of(record), &self.walk.value_of(record)).expect("a put");
    }

    /// Gets the next record.
    pub fn get(&mut self) -> u64 {
        let record = self.next();
        self.get_record(record);
        1
    }

    /// Puts the next record.
    pub fn put(&mut self) -> u64 {
        let record = self.next();
        self.put_record(record);
        1
    }

    /// Puts a record and gets it.
    pub fn put_and_get(&mut self, record: u64) -> u64 {
        self.put_record(record);
        self.get_record(record);
        2
    }

    /// Puts these records at once, and gets them at once.
    pub fn put_and_get_many(&mut self, records: &[u64]) -> u64 {
        put_records(&mut self.session, self.table, self.walk, records).expect("a batch");
        self.get_many(records);
        2 * records.len() as u64
    }

    /// Gets these records at once.
    pub fn get_many(&mut self, records: &[u64]) {
        let keys: Vec<[u8; 16]> = records.iter().map(|record| key_of(*record)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        self.session.multi_get_into(self.table, &keys, &mut self.values).expect("a batch");
        for (index, record) in records.iter().enumerate() {
            verify(self.values.get(index).expect("a record"), *record);
        }
    }

    /// What all operations have cost so far.
    pub fn cost(&self) -> Cost {
        self.session.cost()
    }
}

/// What was counted on both sides of a row, in words.
pub(super) fn counts(ours: Cost, other: Cost) -> String {
    let words =
        |cost: Cost| format!("{} READs, {} messages, {} invalid", cost.reads, cost.messages, cost.retries);
    format!("{} against {}; ", words(ours), words(other))
}

/// A row of rates: with the feature it should be no slower than without.
pub(super) fn with_and_without(
    id: &'static str,
    name: &'static str,
    comparison: Comparison,
    note: &str,
) -> Row {
    Row { sense: Sense::AtLeast, ..compared(id, name, "ns", 1.0, as_rate(comparison), note) }
}
