//! Lists of links, in chunks.
//!
//! ```text
//! item person:1 --followers--> person:1/0 --next--> person:1/1 --next--> person:1/2
//!                              item x 100           item x 100           item x 7
//! ```
//!
//! The rows of a list come in any order and stand in a spool as they came. What is sorted is where rows of
//! one owner begin, by the owner's hash, so a list whose rows are grouped by owner is read in one go.

use crate::check::target;
use crate::keys::{Keys, hash};
use crate::map::ListMap;
use crate::plan::{ITEM, NEXT};
use crate::problem::Problem;
use crate::read::{ListRows, Run};
use crate::rows::{Field, Rows};

/// Bytes of chunks that are put at once.
const BATCH_BYTES: usize = 256 << 10;

/// The key of a chunk.
pub(crate) fn chunk_key(owner: &[u8], numbers: bool, chunk: usize, key: &mut Vec<u8>) {
    use std::io::Write;
    let written = match <[u8; 8]>::try_from(owner) {
        Ok(number) if numbers => write!(key, "{}/{chunk}", u64::from_be_bytes(number)),
        _ => {
            key.extend_from_slice(owner);
            write!(key, "/{chunk}")
        }
    };
    written.expect("memory takes what is written");
}

/// The targets of one owner's list.
#[derive(Default)]
struct Targets {
    owner: Vec<u8>,
    place: u64,
    bytes: Vec<u8>,
    /// Where each key begins, where it ends and the link's bytes begin, and where these end.
    links: Vec<[usize; 3]>,
}

/// What is needed to build the chunks of a list.
pub(crate) struct Chunks<'b> {
    pub rows: &'b ListRows,
    pub list: &'b ListMap,
    /// Whether the owners' keys are numbers.
    pub numbers: bool,
    /// The number of the table that has the chunks.
    pub table: u16,
    pub keys: &'b Keys,
}

impl Chunks<'_> {
    /// Makes the chunks and gives them to `put`, many at a time. Returns the hashes of the owners that have a
    /// list, in order.
    pub fn build(&self, put: &mut dyn FnMut(&Rows) -> Result<(), Problem>) -> Result<Vec<u64>, Problem> {
        let mut owners = Vec::new();
        let mut batch = Rows::new();
        let mut targets = Targets::default();
        for runs in self.rows.runs.chunk_by(|one, other| one.owner == other.owner) {
            if !self.keys.has(runs[0].owner) {
                continue;
            }
            let mut some = false;
            let mut rest = runs.to_vec();
            // All runs have one owner, but for two owners of the same hash.
            while !rest.is_empty() {
                rest = self.gather(&rest, &mut targets)?;
                some |= !targets.links.is_empty();
                self.chunks(&targets, &mut batch);
            }
            if some {
                owners.push(runs[0].owner);
            }
            if batch.bytes().len() >= BATCH_BYTES {
                put(&batch)?;
                batch.clear();
            }
        }
        if !batch.is_empty() {
            put(&batch)?;
        }
        Ok(owners)
    }

    /// Gathers the targets of the first run's owner; returns the runs of others.
    fn gather(&self, runs: &[Run], targets: &mut Targets) -> Result<Vec<Run>, Problem> {
        let spool = &self.rows.spool;
        let mut others = Vec::new();
        targets.links.clear();
        targets.bytes.clear();
        let mut records = spool.records_from(runs[0].at);
        for (number, run) in runs.iter().enumerate() {
            records.go_to(run.at);
            let mut first = true;
            while let Some(row) = records.next()? {
                if number == 0 && first {
                    targets.owner = row.key().to_vec();
                    targets.place = row.place();
                }
                if row.key() != targets.owner {
                    if first {
                        others.push(*run);
                    }
                    break;
                }
                first = false;
                let Some(Field::Link { table, key, bytes, .. }) = row.fields().next() else { continue };
                debug_assert!(target(row).is_some());
                if self.keys.has(hash(usize::from(table), key)) {
                    let start = targets.bytes.len();
                    targets.bytes.extend_from_slice(key);
                    targets.bytes.extend_from_slice(bytes);
                    targets.links.push([start, start + key.len(), targets.bytes.len()]);
                }
            }
        }
        Ok(others)
    }

    /// Makes the chunks of one owner.
    fn chunks(&self, targets: &Targets, batch: &mut Rows) {
        let count = targets.links.len().div_ceil(self.list.chunk);
        let mut next = Vec::new();
        for (number, links) in targets.links.chunks(self.list.chunk).enumerate() {
            let mut row = batch.begin(targets.place, None);
            chunk_key(&targets.owner, self.numbers, number, row.begin_key());
            row.end_key();
            for [start, middle, end] in links {
                let bytes = &targets.bytes;
                row.link(ITEM, self.list.to as u16, &bytes[*start..*middle], &bytes[*middle..*end]);
            }
            if number + 1 < count {
                next.clear();
                chunk_key(&targets.owner, self.numbers, number + 1, &mut next);
                row.link(NEXT, self.table, &next, &[]);
            }
            row.end();
        }
    }
}
