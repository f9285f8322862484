//! `kelix bench log`: what it costs a shard to be followed, and a server to log what it does; what the same
//! costs a bare loop and Redis, and what a restart out of it takes.
//!
//! Rows about the disk make their files in one folder ([`disk`]), ours and the others', and name what it is
//! on.

mod building;
mod disk;
mod reads;
mod redis;
mod replay;
mod restart;
mod stream;
mod writes;

use std::path::PathBuf;

use kelix_report::Report;
use kelix_report::cores::unpin;
use kelix_report::progress;
use kelix_report::report::{Row, Sense};
use kelix_server::{Durability, ServerConfig, SnapshotConfig, WalConfig};

use crate::Options;
use disk::Disk;
pub(crate) use disk::folder_of_files;

/// Puts that are under way at once.
const BATCH: usize = 64;
/// Bytes of a key and of a value.
const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 32;
/// Records of a run, and those from which on it is a measurement.
const RECORDS: u64 = 1_000_000;
const FULL_RECORDS: u64 = 50_000;
/// Bytes that a put may take, of those of its key and value.
const BYTES_WANTED: f64 = 3.2;

/// An error of somebody else's, as text.
fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A server that keeps its log in a folder.
fn logged(directory: PathBuf, durability: Durability) -> ServerConfig {
    ServerConfig {
        snapshots: Some(SnapshotConfig { directory, every: None, keep: 2, fresh: false }),
        wal: Some(WalConfig { durability, until: None }),
        ..ServerConfig::default()
    }
}

/// A row of bytes for a put, which are counted.
fn bytes_row(id: &'static str, name: &'static str, bytes: f64, note: String) -> Row {
    Row {
        id: id.into(),
        name: name.into(),
        ours: bytes,
        other: None,
        unit: "bytes",
        ratio: bytes / (KEY_BYTES + VALUE_BYTES) as f64,
        wanted: Some(BYTES_WANTED),
        sense: Sense::AtMost,
        note,
    }
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> Result<Report, String> {
    // First, since a folder that is not on a disk shall not be told of after minutes.
    let disk = Disk::open(options.directory.as_deref())?;
    let records = options.records.unwrap_or(RECORDS);
    let rows = rows(&disk, options.records, records >= FULL_RECORDS);
    unpin();
    progress::show("");
    Ok(Report::new("log", records, rows?))
}

fn rows(disk: &Disk, chosen: Option<u64>, is_full: bool) -> Result<Vec<Row>, String> {
    let records = chosen.unwrap_or(RECORDS);
    let mut rows = stream::rows(records, is_full)?;
    rows.extend(writes::rows(disk, records, is_full)?);
    rows.extend(reads::rows(disk, records, is_full)?);
    rows.extend(replay::rows(disk, chosen, is_full)?);
    rows.push(building::row(disk, chosen, is_full)?);
    rows.extend(restart::rows(disk, records, is_full)?);
    Ok(rows)
}
