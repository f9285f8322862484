//! From the stream of a shard into batches.

use kelix_types::Result;

use crate::files::Batch;
use crate::{Reader, Record, ShardLog};

/// The stream of a shard, of which whoever writes the log takes.
pub struct Feed {
    reader: Reader,
    log: ShardLog,
    /// What was read and is in no batch yet: a record that is not whole, or those of the next batch.
    words: Vec<u64>,
    /// The last record in a batch.
    last: u64,
    records: u64,
}

impl Feed {
    /// Of a shard all whose records so far are on the disk.
    pub fn new(reader: Reader, log: ShardLog) -> Feed {
        let last = log.durable();
        Feed { reader, log, words: Vec::new(), last, records: 0 }
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
            (self.last, rest, count) = (record.head.sequence, behind, count + 1);
        }
        let taken = self.words.len() - rest.len();
        if taken > 0 {
            batch.part(shard, &self.words[..taken], self.last);
            self.words.drain(..taken);
            self.records += count;
        }
        Ok(())
    }
}
