//! LMDB beside the peers. It has no server, so it is no peer in the rows' ratios; its times stand in their
//! notes.

use super::engine::Engine;
use crate::lmdb::Environment;
use crate::store::verify;
use crate::workload::{Batch, Keyed, Prepared, Records, key};

/// An environment with the records.
pub(super) struct Lmdb {
    environment: Environment,
    records: Records,
    batches: Prepared,
    at: usize,
}

impl Lmdb {
    pub fn start(records: Records) -> Result<Lmdb, String> {
        let bytes = (records.count * (records.value_bytes as u64 + 128) * 4).max(256 << 20);
        let environment = Environment::open(bytes, 0)?;
        Ok(Lmdb { environment, records, batches: Prepared::default(), at: 0 })
    }
}

impl Engine for Lmdb {
    fn name(&self) -> &'static str {
        "LMDB"
    }

    fn prepare(&mut self, batches: &[Batch]) {
        self.batches = Prepared::new(batches, self.records);
        self.at = 0;
    }

    fn run(&mut self, batches: usize, _: bool) -> Result<u64, String> {
        let mut operations = 0;
        for _ in 0..batches {
            let keyed = self.batches.batch(self.at);
            let mut wanted = keyed.gets();
            let keys = keyed.gets().map(|(key, _)| key);
            let (gets, puts) = keyed.counts();
            if gets > 0 {
                self.environment.get(keys, |value| {
                    let (key, wanted) = wanted.next().expect("as many as keys");
                    if self.records.same(value, wanted) { Ok(()) } else { Err(Keyed::wrong(key)) }
                })?;
            }
            if puts > 0 {
                self.environment.put(keyed.puts())?;
            }
            operations += (gets + puts) as u64;
            self.at = (self.at + 1) % self.batches.len();
        }
        Ok(operations)
    }

    fn follow(&mut self, record: u64) -> Result<u64, String> {
        let mut next = 0;
        self.environment.get(std::iter::once(&key(record)[..]), |value| {
            next = verify(value, record);
            Ok(())
        })?;
        Ok(next)
    }

    fn memory_bytes(&mut self) -> u64 {
        self.environment.memory_bytes()
    }
}
