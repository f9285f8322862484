//! Files that a restart reads: read from beginning to end, and put into memory or out of it beforehand.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};

/// Bytes that are read at once.
const READ: usize = 1 << 20;

/// Whether a file is in memory before it is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cache {
    Cold,
    Warm,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Reads a file once. Its length.
pub(crate) fn read(path: &Path) -> Result<u64, String> {
    let mut file = File::open(path).map_err(text)?;
    let (mut buffer, mut bytes) = (vec![0; READ], 0);
    loop {
        match file.read(&mut buffer).map_err(text)? {
            0 => return Ok(bytes),
            read => bytes += read as u64,
        }
    }
}

/// Reads files once, one after the other. Their length.
pub(crate) fn read_all(paths: &[PathBuf]) -> Result<u64, String> {
    paths.iter().map(|path| read(path)).sum()
}

impl Cache {
    /// Puts a file into memory, or out of it. What is on the disk already goes without being written.
    pub fn prepare(self, path: &Path) -> Result<(), String> {
        match self {
            Cache::Warm => read(path).map(drop),
            Cache::Cold => {
                let file = File::open(path).map_err(text)?;
                file.sync_all().map_err(text)?;
                fadvise(&file, 0, None, Advice::DontNeed).map_err(text)
            }
        }
    }
}
