//! The files of the log: the records of all shards, in batches, in the order in which they were sealed.
//!
//! ```text
//! log-<number of the first batch, 16 hex digits>
//!
//!   [ head, zeros to the end of a page ][ batch ][ batch ] ... [ zeros, allocated beforehand ]
//!
//! head   word 0  "KELIXLOG"      1  version 15 0, layout of the memory 31 16, byte-order mark 63 32
//!             2  bytes of the description
//!             3  checksum of all words of the head, this one as 0
//!             4  number of the store            5  life: a random number of the server that writes
//!             6  number of the first batch      7  checksum of the batch before that, 0 if there was none
//!             8  count of shards                9.. for each shard, sequence of the last record before
//!                                               ..  the description, which is the caller's
//!
//! batch  word 0  "KELIXBAT"      1  words of the batch
//!             2  number          3  time, nanoseconds since 1970
//!             4  durable: the last batch that was known to be on the disk when this one was written
//!             5  count of parts  6.. for each part, shard 31 0, and words of its records
//!                                ..  records of all parts
//!          last  checksum of all words before, with the seed life ^ number
//!
//! log.next                       a file that is allocated already, for when the last one is full
//! ```
//!
//! All words are little-endian, all checksums XXH3-64. Other names in the directory belong to others.
//!
//! 1. A batch stands whole in one file, and is written by one call ([`LogWriter::write`]).
//! 2. A file gets its name once its head and all batches before its first one are on the disk. So only the
//!    last file that has batches can lack any, and whoever goes on behind it begins a new file.
//! 3. Whoever goes on first makes durable what it has read: a batch that only the page cache still had is
//!    written once more ([`LogWriter::create`]).
//! 4. What does not check ends the log, unless something says that it was durable: a later file, or a later
//!    batch whose word 4 says so. Then the log is damaged, and refused by name ([`Log::read`]).
//! 5. After a write or a sync that failed nothing is written any more, because the system may hold pages that
//!    it does not have on the disk for clean. The room of a file is allocated beforehand, so that a full
//!    disk shows before anything is written, and may be waited for.
//! 6. Files go from the oldest on, each for good before the next ([`LogWriter::truncate`]): no power cut
//!    leaves a gap.

mod batch;
mod feed;
mod head;
mod memory;
mod read;
mod storage;
#[cfg(test)]
mod tests;
mod write;

use kelix_image::words::{bytes_of, bytes_of_mut};
use kelix_types::{Error, ErrorKind, Result};

pub use batch::{Batch, BatchView};
pub use feed::Feed;
pub use head::FileHead;
pub use memory::{MemoryDisk, Operation};
pub use read::{End, FileSurvey, Log, Torn};
pub use storage::{Directory, LogFile, Storage};
pub use write::LogWriter;

/// Bytes of a file, unless a batch needs more.
pub const FILE_BYTES: u64 = 64 << 20;

const PAGE_BYTES: usize = 4096;
/// The file that is allocated for when the last one is full.
const NEXT: &str = "log.next";

const READ: &str = "read log";
const WRITE: &str = "write log";

/// Whose log it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The number of the store.
    pub store: u64,
    /// A random number of the server that writes, so that nothing of another one's passes for its batches.
    pub life: u64,
    /// What the caller says of the store, JSON.
    pub description: String,
}

/// A place between two batches.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Position {
    /// The number of the batch before it; 0: none.
    pub batch: u64,
    /// The checksum of that batch; 0: there is none.
    pub checksum: u64,
    /// For each shard the sequence of the last record before it.
    pub sequences: Vec<u64>,
    /// The batches before it that are not known to be durable, if they were read.
    pub tail: Option<Tail>,
}

/// Batches at the end of what was read of a log, of which none is known to be on the disk. They are in one
/// file, and kept as they were read: the page cache may have had them, and the disk not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tail {
    /// The first batch of their file.
    file: u64,
    /// The byte at which they begin.
    at: u64,
    words: Vec<u64>,
}

impl Position {
    /// Before the first batch of a store.
    pub fn start(shards: usize) -> Position {
        Position { sequences: vec![0; shards], ..Position::default() }
    }
}

/// The name of the file that begins with a batch.
fn name_of(first: u64) -> String {
    format!("log-{first:016x}")
}

/// The first batch of the file with a name. Numbers that no log reaches are none, so that one more than a
/// number always is one.
fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("log-")?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    ((1..1 << 63).contains(&number) && name_of(number) == name).then_some(number)
}

/// Reads words from a byte of a file on; those behind its end are 0. Returns how many bytes there were.
fn read_words(file: &dyn LogFile, at: u64, words: &mut [u64]) -> std::io::Result<usize> {
    let bytes = bytes_of_mut(words);
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], at + read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes[read..].fill(0);
    Ok(read)
}

/// Reads a whole file. Its length is the only number that is trusted here.
fn read_file(storage: &dyn Storage, first: u64, words: &mut Vec<u64>) -> Result<()> {
    let name = name_of(first);
    let mut read = || {
        let file = storage.open(&name)?;
        words.resize(file.bytes()?.div_ceil(8) as usize, 0);
        read_words(&*file, 0, words)
    };
    read().map(|_| ()).map_err(|source| system(READ, "read", storage, &name, source))
}

/// Writes words to a file.
fn write_words(file: &mut dyn LogFile, at: u64, words: &[u64]) -> std::io::Result<()> {
    file.write_all_at(bytes_of(words), at)
}

fn damaged(storage: &dyn Storage, first: u64, what: &str) -> Error {
    let path = storage.describe(&name_of(first));
    Error::new(ErrorKind::Damaged, READ, format!("{path} is damaged: {what}"))
}

fn system(
    operation: &'static str,
    what: &str,
    storage: &dyn Storage,
    name: &str,
    source: std::io::Error,
) -> Error {
    Error::system(operation, format!("cannot {what} {}", storage.describe(name)), source)
}
