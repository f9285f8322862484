//! From the stream of a shard into batches.

use std::collections::VecDeque;

use kelix_image::Committed;
use kelix_types::Result;

use crate::files::Batch;
use crate::{Gatherer, Reader, ShardLog};

/// The stream of a shard, of which whoever writes the log takes.
pub struct Feed {
    gatherer: Gatherer,
    log: ShardLog,
    /// The last ones of batches that are not on the disk.
    pending: VecDeque<Committed>,
}

impl Feed {
    /// Of a shard all whose records so far are on the disk.
    pub fn new(reader: Reader, log: ShardLog) -> Feed {
        let gatherer = Gatherer::new(reader, log.control(), log.committed());
        Feed { gatherer, log, pending: VecDeque::new() }
    }

    /// What the shard and whoever writes know.
    pub fn log(&self) -> &ShardLog {
        &self.log
    }

    /// Records that were taken so far.
    pub fn records(&self) -> u64 {
        self.gatherer.records()
    }

    /// Whether something has come that was not taken.
    pub fn has_come(&self) -> bool {
        self.gatherer.waiting() > 0
    }

    /// Whether an answer waits for the disk.
    pub fn is_wanted(&self) -> bool {
        self.log.wanted() > self.log.durable()
    }

    /// Adds all records to a batch that are whole, but none that was sealed for a `later` one
    /// ([`Gatherer::take`], for a reader that the shard waits for). `false`: another one is to be begun, and
    /// this batch gets the rest of it.
    pub fn gather(&mut self, shard: u32, later: u64, batch: &mut Batch) -> Result<bool> {
        self.gatherer.take(later, |words, last| {
            batch.part(shard, words, last.record);
            self.pending.push_back(last);
        })
    }

    /// Makes room in the stream, while no batch can be gathered.
    pub fn drain(&mut self) -> Result<()> {
        self.gatherer.drain()
    }

    /// Batches up to the one that ends with this record are on the disk: tells the shard.
    pub fn set_durable(&mut self, record: u64) {
        let count = self.pending.iter().take_while(|last| last.record <= record).count();
        self.pending.drain(..count).next_back().into_iter().for_each(|last| self.log.set_durable(last));
    }
}
