//! One batch: what of all shards is written at once.

use kelix_image::words::bytes_of;

use crate::Record;

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"KELIXBAT");
/// Words before the parts.
const FIRST_WORDS: usize = 6;
/// Words that tell of a part.
const PART_WORDS: usize = 2;

/// With the seed, so that a batch of another life or number is none here.
fn checksum(words: &[u64], life: u64, number: u64) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(bytes_of(words), life ^ number)
}

/// A batch that is being made. It is used again and again, and allocates only while it grows.
#[derive(Default)]
pub struct Batch {
    parts: Vec<u64>,
    records: Vec<u64>,
    last_sequences: Vec<(u32, u64)>,
}

impl Batch {
    /// Forgets what it holds.
    pub fn begin(&mut self) {
        self.parts.clear();
        self.records.clear();
        self.last_sequences.clear();
    }

    /// Adds whole records of a shard, and tells the sequence of the last one. A shard may have several parts.
    pub fn part(&mut self, shard: u32, records: &[u64], last_sequence: u64) {
        self.parts.extend([u64::from(shard), records.len() as u64]);
        self.records.extend_from_slice(records);
        self.last_sequences.push((shard, last_sequence));
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Bytes of it in a file.
    pub fn bytes(&self) -> u64 {
        self.words() as u64 * 8
    }

    /// The shard and the last sequence of each part.
    pub(super) fn last_sequences(&self) -> &[(u32, u64)] {
        &self.last_sequences
    }

    /// Words of it in a file.
    pub(super) fn words(&self) -> usize {
        FIRST_WORDS + self.parts.len() + self.records.len() + 1
    }

    /// Makes the words of it in a file. Returns the checksum.
    pub(super) fn assemble(
        &self,
        words: &mut Vec<u64>,
        life: u64,
        [number, time_ns, durable]: [u64; 3],
    ) -> u64 {
        let parts = (self.parts.len() / PART_WORDS) as u64;
        words.clear();
        words.extend([MAGIC, self.words() as u64, number, time_ns, durable, parts]);
        words.extend_from_slice(&self.parts);
        words.extend_from_slice(&self.records);
        let sum = checksum(words, life, number);
        words.push(sum);
        sum
    }
}

/// A batch as it was read: its checksum is right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchView<'w> {
    /// One more than that of the batch before.
    pub number: u64,
    /// When it was written, nanoseconds since 1970.
    pub time_ns: u64,
    /// The last batch that was known to be on the disk then.
    pub durable: u64,
    /// Its checksum.
    pub checksum: u64,
    parts: &'w [u64],
    records: &'w [u64],
}

impl<'w> BatchView<'w> {
    /// The batch with which these words begin, if it is whole and one of those that are wanted.
    pub(super) fn of_words(
        words: &'w [u64],
        life: u64,
        is_wanted: impl Fn(&BatchView<'w>) -> bool,
    ) -> Option<BatchView<'w>> {
        let (&[magic, count, number, time_ns, durable, parts], _) =
            words.split_first_chunk::<FIRST_WORDS>()?;
        if magic != MAGIC {
            return None;
        }
        let (&sum, contents) = words.get(..usize::try_from(count).ok()?)?.split_last()?;
        let parts = usize::try_from(parts).ok()?.checked_mul(PART_WORDS)?;
        let (parts, records) = contents.get(FIRST_WORDS..)?.split_at_checked(parts)?;
        let view = BatchView { number, time_ns, durable, checksum: sum, parts, records };
        let is_whole = is_wanted(&view) && checksum(contents, life, number) == sum;
        (is_whole && view.is_divided()).then_some(view)
    }

    /// Whether the parts are of shards, and together are all of the records.
    fn is_divided(&self) -> bool {
        if self.parts.iter().step_by(PART_WORDS).any(|shard| *shard > u64::from(u32::MAX)) {
            return false;
        }
        let counts = self.parts.iter().skip(1).step_by(PART_WORDS);
        let sum = counts.copied().try_fold(0u64, u64::checked_add);
        sum == Some(self.records.len() as u64)
    }

    /// Words of it in the file.
    pub(super) fn words(&self) -> usize {
        FIRST_WORDS + self.parts.len() + self.records.len() + 1
    }

    /// Each part: a shard, and records of it, in the order in which they were added.
    pub fn parts(&self) -> impl Iterator<Item = (u32, &'w [u64])> + use<'w> {
        let mut rest = self.records;
        self.parts.chunks_exact(PART_WORDS).map(move |part| {
            let (records, behind) = rest.split_at(part[1] as usize);
            rest = behind;
            (part[0] as u32, records)
        })
    }

    /// Takes sequences of shards on behind this batch, and counts its records. `None`: they are not the
    /// records that follow.
    pub(super) fn follow(&self, sequences: &mut [u64]) -> Option<u64> {
        let mut count = 0;
        for (shard, mut words) in self.parts() {
            let last = sequences.get_mut(shard as usize)?;
            while !words.is_empty() {
                let (record, behind) = Record::split(words).ok()??;
                *last = last.checked_add(1).filter(|next| *next == record.head.sequence)?;
                (words, count) = (behind, count + 1);
            }
        }
        Some(count)
    }
}
