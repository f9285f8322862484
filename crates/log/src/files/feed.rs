//! From the stream of a shard into batches.

use std::collections::VecDeque;

use kelix_image::Committed;
use kelix_types::Result;

use crate::files::Batch;
use crate::{Reader, Record, RecordHead, ShardLog};

/// The stream of a shard, of which whoever writes the log takes.
pub struct Feed {
    reader: Reader,
    log: ShardLog,
    /// What was read and is in no batch yet: a record that is not whole, or those of the next batch.
    words: Vec<u64>,
    /// The last record in a batch.
    last: Committed,
    /// The last ones of batches that are not on the disk.
    pending: VecDeque<Committed>,
    records: u64,
}

impl Feed {
    /// Of a shard all whose records so far are on the disk.
    pub fn new(reader: Reader, log: ShardLog) -> Feed {
        let last = log.committed();
        Feed { reader, log, words: Vec::new(), last, pending: VecDeque::new(), records: 0 }
    }

    /// What the shard and whoever writes know.
    pub fn log(&self) -> &ShardLog {
        &self.log
    }

    /// Records that were taken so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Whether something has come that was not taken.
    pub fn has_come(&self) -> bool {
        self.reader.waiting() > 0
    }

    /// Whether an answer waits for the disk.
    pub fn is_wanted(&self) -> bool {
        self.log.wanted() > self.log.durable()
    }

    /// Adds all records to a batch that are whole, but none that was sealed for a `later` one, as
    /// [`LogControl::begin_batch`](crate::LogControl::begin_batch) told. Nothing is left out: a batch with
    /// less than there is of one shard could have the effect of what it leaves out on another. An error:
    /// these are no records.
    pub fn gather(&mut self, shard: u32, later: u16, batch: &mut Batch) -> Result<()> {
        let read = self.reader.read(&mut self.words, usize::MAX);
        read.expect("a stream whose shard waits for this reader");
        let (mut rest, mut count) = (&self.words[..], 0);
        while let Some((record, behind)) =
            Record::split(rest)?.filter(|(record, _)| record.head.batch != later)
        {
            let RecordHead { sequence, last_incarnation, .. } = record.head;
            self.last = Committed { record: sequence, incarnation: last_incarnation };
            (rest, count) = (behind, count + 1);
        }
        let taken = self.words.len() - rest.len();
        if taken > 0 {
            batch.part(shard, &self.words[..taken], self.last.record);
            self.pending.push_back(self.last);
            self.words.drain(..taken);
            self.records += count;
        }
        Ok(())
    }

    /// Batches up to the one that ends with this record are on the disk: tells the shard.
    pub fn set_durable(&mut self, record: u64) {
        let count = self.pending.iter().take_while(|last| last.record <= record).count();
        self.pending.drain(..count).next_back().into_iter().for_each(|last| self.log.set_durable(last));
    }
}
