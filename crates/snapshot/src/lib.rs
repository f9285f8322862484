//! Snapshots in files: what there was of every shard at one moment.
//!
//! ```text
//! file     first page    word 0  "KELIXSNP"      1  version 15 0, layout of the memory 31 16, byte-order mark 63 32
//!                             2  bytes of the description, JSON, which begins with word 4
//!                             3  checksum of all words to the end of the page in which it ends, this one as 0
//!          pieces        head, contents, zeros up to 64 bytes
//!          end           a piece without contents, whose place is the number of pieces before it
//!
//! head     word 0  "KPIECE" 47 0, kind 63 48       1  namespace 15 0, shard 31 16       2  place
//!               3  words of contents               4  checksum of the contents          7  checksum of words 0 to 6
//!
//! kind     1 memory as it was copied, from a place on       2 notes of changes, as `kelix_image::Changes` makes them
//!          3 books                                          4 what the shard keeps beside
//!          6 the shard's position in the log: its last record, and what clients were answered
//! ```
//!
//! All words are little-endian, all checksums XXH3-64. Memory was copied while it changed, and notes are of
//! all changes from before the first piece until the moment of the snapshot: so memory first, then the notes
//! in their order, is what there was at that moment. A file without its end, or with a wrong checksum, is
//! refused as a whole. The first words and their checksum are the same in every version, and each description
//! tells `made_unix_ms`: so a whole file of another version is told from a damaged one, and is as old as it
//! says.

#![forbid(unsafe_code)]

mod read;
mod write;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use kelix_types::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

pub use read::Snapshot;
pub use write::Writer;

const MAGIC: u64 = u64::from_le_bytes(*b"KELIXSNP");
/// Version of the file, layout of what is in it, and byte-order mark.
const VERSION: u64 = 2 | (kelix_image::LAYOUT_VERSION as u64) << 16 | 0x0102_0304 << 32;
/// The version before has no positions in a log.
const VERSION_BEFORE: u64 = VERSION - 1;
const PAGE_BYTES: usize = 4096;
const HEAD_WORDS: usize = 8;
const PIECE: u64 = u64::from_le_bytes(*b"KPIECE\0\0");
/// Words of a piece at most, so that one is read at once.
const PIECE_WORDS_MAX: usize = 128 << 10;
/// What names of snapshots end with.
const ENDING: &str = "kelix-snapshot";
/// What follows that, until one is whole.
const PART: &str = "part";

/// What a piece holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
enum Kind {
    Memory = 1,
    Notes = 2,
    Books = 3,
    Kept = 4,
    End = 5,
    Position = 6,
}

/// Which shard of which namespace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Which {
    /// The namespace, counted as in the description.
    pub namespace: u16,
    /// The shard.
    pub shard: u16,
}

/// What a snapshot is of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Description {
    /// The number of the store that it is of; 0 in a snapshot of a release that had none.
    #[serde(default)]
    pub store: u64,
    /// The release that made it.
    pub release: String,
    /// When, in milliseconds since 1970.
    pub made_unix_ms: u64,
    /// The namespaces.
    pub namespaces: Vec<NamespaceDescription>,
}

impl Description {
    /// When it was made.
    pub fn made(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.made_unix_ms)
    }

    /// The namespace of a name, and which one it is here.
    pub fn namespace(&self, name: &str) -> Option<(u16, &NamespaceDescription)> {
        (0..).zip(&self.namespaces).find(|(_, namespace)| namespace.name == name)
    }
}

/// What there was of a namespace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NamespaceDescription {
    /// Its name.
    pub name: String,
    /// What hashes of its keys begin with.
    pub hash_seed: u64,
    /// How many shards it has.
    pub shards: usize,
}

fn checksum(words: &[u64]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(kelix_image::words::bytes_of(words))
}

fn damaged(path: &Path, what: &str) -> Error {
    Error::new(ErrorKind::Damaged, "read snapshot", format!("{} is damaged: {what}", path.display()))
}

fn system(what: &str, path: &Path, source: std::io::Error) -> Error {
    Error::system("snapshot", format!("cannot {what} {}", path.display()), source)
}

fn entries(directory: &Path) -> Result<impl Iterator<Item = PathBuf>> {
    let entries = std::fs::read_dir(directory).map_err(|source| system("list", directory, source))?;
    Ok(entries.filter_map(|entry| Some(entry.ok()?.path())))
}

/// The snapshots in a directory, the newest first. Those that were not written to their end have other names.
pub fn list(directory: &Path) -> Result<Vec<PathBuf>> {
    // If somebody gave one another name, the file says when it was made.
    let found = sorted(directory, |path| number_of(path).or_else(|| Some(read::made(path).unwrap_or(0))))?;
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Those that still have the name that a server gave them, with its number.
fn numbered(directory: &Path) -> Result<Vec<(u64, PathBuf)>> {
    sorted(directory, number_of)
}

/// The snapshots that have a time, the newest first.
fn sorted(directory: &Path, time_of: impl Fn(&Path) -> Option<u64>) -> Result<Vec<(u64, PathBuf)>> {
    let found = entries(directory)?.filter(|path| path.extension().is_some_and(|ending| ending == ENDING));
    let mut found: Vec<(u64, PathBuf)> = found.filter_map(|path| Some((time_of(&path)?, path))).collect();
    found.sort_unstable_by(|one, other| other.cmp(one));
    Ok(found)
}

/// The number that a server named a snapshot by.
fn number_of(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.parse().ok()
}

/// Removes all but the newest so many, and what is left of those that were not written to their end. The
/// directory is one server's; those that somebody gave another name stay.
pub fn keep(directory: &Path, count: usize) -> Result<()> {
    let remove = |path: &Path| std::fs::remove_file(path).map_err(|source| system("remove", path, source));
    numbered(directory)?.iter().skip(count).try_for_each(|(_, path)| remove(path))?;
    entries(directory)?.filter(|path| path.extension().is_some_and(|ending| ending == PART)).try_for_each(
        |path| {
            let is_ours = path
                .file_stem()
                .is_some_and(|name| Path::new(name).extension().is_some_and(|it| it == ENDING));
            if is_ours { remove(&path) } else { Ok(()) }
        },
    )
}
