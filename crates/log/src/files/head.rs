//! What a file says of itself.

use kelix_image::words::{bytes_of, bytes_of_mut};
use kelix_types::{Error, ErrorKind, Result};

use crate::files::{
    Identity, LogFile, PAGE_BYTES, Position, READ, Storage, WRITE, name_of, read_words, system,
};

const MAGIC: u64 = u64::from_le_bytes(*b"KELIXLOG");
/// Version of the file, layout of what is in it, and byte-order mark.
pub(super) const VERSION: u64 = 1 | (kelix_image::LAYOUT_VERSION as u64) << 16 | 0x0102_0304 << 32;
/// Words before the sequences.
const FIRST_WORDS: usize = 9;
const DESCRIPTION_BYTES_MAX: u64 = 1 << 24;
const SHARDS_MAX: u64 = 1 << 16;

/// What a file of the log says of itself, and its length.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileHead {
    /// Whose it is.
    pub identity: Identity,
    /// The number of its first batch.
    pub first: u64,
    /// The checksum of the batch before that.
    pub checksum_before: u64,
    /// For each shard the sequence of the last record before the file.
    pub sequences: Vec<u64>,
    /// Its length on the disk, which was allocated at once.
    pub bytes: u64,
}

/// Why a head cannot be read.
pub(super) enum Fault {
    Damaged(&'static str),
    /// It is of another version, by these words.
    Incompatible(String),
}

/// Words of a head with a description of so many bytes and so many shards, if a head can have them.
fn words_of_head(description_bytes: u64, shards: u64) -> Option<usize> {
    let makes_sense = description_bytes < DESCRIPTION_BYTES_MAX && shards <= SHARDS_MAX;
    let bytes = (FIRST_WORDS as u64 + shards) as usize * 8 + description_bytes as usize;
    makes_sense.then_some(bytes.next_multiple_of(PAGE_BYTES) / 8)
}

impl FileHead {
    /// The head of a file that begins at a position. Its length is that of the head, for now.
    pub(super) fn at(identity: &Identity, position: &Position) -> Result<FileHead> {
        let Position { batch, checksum, ref sequences, .. } = *position;
        let head = FileHead {
            identity: identity.clone(),
            first: batch + 1,
            checksum_before: checksum,
            sequences: sequences.clone(),
            bytes: 0,
        };
        let words = words_of_head(identity.description.len() as u64, head.sequences.len() as u64);
        let words = words.ok_or_else(|| {
            let context = "the description or the count of shards is too large for a log";
            Error::new(ErrorKind::InvalidArgument, WRITE, context)
        })?;
        Ok(FileHead { bytes: words as u64 * 8, ..head })
    }

    /// Words of the head, behind which batches begin.
    pub(super) fn words(&self) -> usize {
        let description = self.identity.description.len() as u64;
        words_of_head(description, self.sequences.len() as u64).expect("it was looked at")
    }

    /// The position at which the file begins.
    pub(super) fn position(&self) -> Position {
        let sequences = self.sequences.clone();
        Position { batch: self.first - 1, checksum: self.checksum_before, sequences, tail: None }
    }

    /// As words.
    pub(super) fn to_words(&self) -> Vec<u64> {
        let Identity { store, life, description } = &self.identity;
        let (text, shards) = (description.as_bytes(), self.sequences.len());
        let mut words = vec![0; self.words()];
        (words[0], words[1], words[2]) = (MAGIC, VERSION, text.len() as u64);
        (words[4], words[5]) = (*store, *life);
        (words[6], words[7], words[8]) = (self.first, self.checksum_before, shards as u64);
        words[FIRST_WORDS..][..shards].copy_from_slice(&self.sequences);
        bytes_of_mut(&mut words)[(FIRST_WORDS + shards) * 8..][..text.len()].copy_from_slice(text);
        words[3] = xxhash_rust::xxh3::xxh3_64(bytes_of(&words));
        words
    }

    /// Reads the head of the file that begins with a batch, by its name.
    pub(super) fn read(storage: &dyn Storage, first: u64) -> Result<std::result::Result<FileHead, Fault>> {
        let name = name_of(first);
        let read = || FileHead::of_file(&*storage.open(&name)?, first);
        read().map_err(|source| system(READ, "read", storage, &name, source))
    }

    fn of_file(file: &dyn LogFile, first: u64) -> std::io::Result<std::result::Result<FileHead, Fault>> {
        let bytes = file.bytes()?;
        let mut words = vec![0; PAGE_BYTES / 8];
        read_words(file, 0, &mut words)?;
        let count = words_of_head(words[2], words[8]).filter(|count| *count as u64 * 8 <= bytes);
        let (true, Some(count)) = (words[0] == MAGIC, count) else {
            return Ok(Err(Fault::Damaged("its head makes no sense")));
        };
        words.resize(count, 0);
        read_words(file, 0, &mut words)?;
        Ok(FileHead::of_words(words, first, bytes))
    }

    fn of_words(mut words: Vec<u64>, first: u64, bytes: u64) -> std::result::Result<FileHead, Fault> {
        let sum = std::mem::take(&mut words[3]);
        if sum != xxhash_rust::xxh3::xxh3_64(bytes_of(&words)) {
            return Err(Fault::Damaged("the checksum of its head is wrong"));
        }
        if words[1] != VERSION {
            let told = |word: u64| format!("version {} with layout {}", word as u16, word as u32 >> 16);
            let (of, read) = (told(words[1]), told(VERSION));
            return Err(Fault::Incompatible(format!("a log of {of}; this release reads {read}")));
        }
        if words[6] != first {
            return Err(Fault::Damaged("its name is that of another file"));
        }
        let (sequences, text) = words[FIRST_WORDS..].split_at(words[8] as usize);
        let description = std::str::from_utf8(&bytes_of(text)[..words[2] as usize]);
        let description = description.map_err(|_| Fault::Damaged("its description is no text"))?.to_string();
        let identity = Identity { store: words[4], life: words[5], description };
        Ok(FileHead { identity, first, checksum_before: words[7], sequences: sequences.to_vec(), bytes })
    }
}
