//! Clients that do one operation at a time: a session of ours, and sockets of peers that block.

use kelix::{Client, Cost, ErrorKind, FabricChoice, Session, SessionOptions, Table};

use super::text;
use crate::peers::blocking::Blocking;
use crate::peers::protocol::Protocol;
use crate::workload::{Batch, Keyed, Records, key};

/// Operation on a record.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Get,
    Put,
}

/// A client.
pub(crate) trait Caller: Send {
    /// Gets a record, whose value is verified. Returns whether the record is there.
    fn get(&mut self, record: u64) -> Result<bool, String>;

    /// Puts a record with its value. Returns whether there was room.
    fn put(&mut self, record: u64) -> Result<bool, String>;

    /// Puts records, for which there is room, at once.
    fn put_batch(&mut self, records: &[u64]) -> Result<(), String>;

    /// Does an operation that has to succeed.
    fn run(&mut self, operation: Operation, record: u64) -> Result<(), String> {
        let (is_done, else_) = match operation {
            Operation::Get => (self.get(record)?, "is absent"),
            Operation::Put => (self.put(record)?, "has no room"),
        };
        if is_done { Ok(()) } else { Err(format!("record {record} {else_}")) }
    }
}

/// A session.
pub(crate) struct Ours {
    session: Session,
    table: Table,
    records: Records,
    wanted: Vec<u8>,
    value: Vec<u8>,
}

impl Ours {
    /// Opens one over a fabric.
    pub fn open(client: &Client, fabric: FabricChoice, records: Records) -> Result<Ours, String> {
        let mut session = client.session_with(SessionOptions::default().fabric(fabric)).map_err(text)?;
        let table = session.create_table("records").map_err(text)?;
        let value = vec![0; records.value_bytes];
        Ok(Ours { session, table, records, wanted: Vec::new(), value })
    }

    /// Cost of all operations on the way so far.
    pub fn cost(&self) -> Cost {
        self.session.cost()
    }
}

impl Caller for Ours {
    fn get(&mut self, record: u64) -> Result<bool, String> {
        let key = key(record);
        let found = self.session.get_into(self.table, &key, &mut self.value).map_err(text)?;
        let Some((bytes, _)) = found else { return Ok(false) };
        self.wanted.clear();
        self.records.write_value(record, &mut self.wanted);
        if bytes == self.wanted.len() && self.value == self.wanted {
            Ok(true)
        } else {
            Err(Keyed::wrong(&key))
        }
    }

    fn put(&mut self, record: u64) -> Result<bool, String> {
        self.wanted.clear();
        self.records.write_value(record, &mut self.wanted);
        match self.session.put(self.table, &key(record), &self.wanted) {
            Err(error) if error.kind() == ErrorKind::OutOfMemory => Ok(false),
            done => done.map(|_| true).map_err(text),
        }
    }

    fn put_batch(&mut self, records: &[u64]) -> Result<(), String> {
        self.wanted.clear();
        records.iter().for_each(|record| self.records.write_value(*record, &mut self.wanted));
        let keys: Vec<_> = records.iter().map(|record| key(*record)).collect();
        let values = self.wanted.chunks_exact(self.records.value_bytes);
        let items: Vec<(&[u8], &[u8])> = keys.iter().map(|key| &key[..]).zip(values).collect();
        let results = self.session.multi_put(self.table, &items).map_err(text)?;
        results.into_iter().try_for_each(|result| result.map(drop).map_err(text))
    }
}

impl<P: Protocol> Caller for Blocking<P> {
    fn get(&mut self, record: u64) -> Result<bool, String> {
        Blocking::get(self, record)
    }

    fn put(&mut self, record: u64) -> Result<bool, String> {
        Blocking::put(self, record)
    }

    fn put_batch(&mut self, records: &[u64]) -> Result<(), String> {
        Blocking::run(self, &Batch { gets: Vec::new(), puts: records.into() })
    }
}
