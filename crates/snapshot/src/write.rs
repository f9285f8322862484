//! Writing a snapshot.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use kelix_image::words::bytes_of;
use kelix_types::{Error, ErrorKind, Place, Result};

use crate::{
    Description, ENDING, HEAD_WORDS, Kind, MAGIC, PAGE_BYTES, PART, PIECE, PIECE_WORDS_MAX, VERSION, Which,
    checksum, numbered, system,
};

/// A snapshot that is being written. One that is dropped before its end leaves nothing.
pub struct Writer {
    file: File,
    directory: PathBuf,
    name: String,
    part: PathBuf,
    pieces: u64,
    bytes: u64,
    is_whole: bool,
}

impl Writer {
    /// Begins a snapshot in a directory.
    pub fn create(directory: &Path, description: &Description) -> Result<Writer> {
        // The newest has the last name, also where the clock was set back.
        let newest = numbered(directory)?;
        let after = newest.first().map_or(0, |(newest, _)| newest.saturating_add(1));
        let number = description.made_unix_ms.max(after);
        let name = format!("{number:013}.{ENDING}");
        let part = directory.join(format!("{name}.{PART}"));
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part);
        let file = file.map_err(|source| system("write", &part, source))?;
        let directory = directory.to_path_buf();
        let mut writer = Writer { file, directory, name, part, pieces: 0, bytes: 0, is_whole: false };
        let text = serde_json::to_vec(description).expect("plain data");
        let mut words = vec![0; PAGE_BYTES.max(32 + text.len()).next_multiple_of(PAGE_BYTES) / 8];
        kelix_image::words::bytes_of_mut(&mut words)[32..][..text.len()].copy_from_slice(&text);
        (words[0], words[1], words[2]) = (MAGIC, VERSION, text.len() as u64);
        words[3] = checksum(&words);
        writer.write(&words)?;
        Ok(writer)
    }

    fn write(&mut self, words: &[u64]) -> Result<()> {
        let bytes = bytes_of(words);
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes).map_err(|source| system("write", &self.part, source))
    }

    fn piece(&mut self, kind: Kind, which: Which, place: u64, contents: &[u64]) -> Result<()> {
        let mut head = [0; HEAD_WORDS];
        head[0] = PIECE | (kind as u64) << 48;
        head[1] = u64::from(which.namespace) | u64::from(which.shard) << 16;
        (head[2], head[3], head[4]) = (place, contents.len() as u64, checksum(contents));
        head[7] = checksum(&head[..7]);
        self.write(&head)?;
        self.write(contents)?;
        self.pieces += 1;
        let padding = contents.len().next_multiple_of(HEAD_WORDS) - contents.len();
        self.write(&[0; HEAD_WORDS][..padding])
    }

    fn pieces(&mut self, kind: Kind, which: Which, words: &[u64]) -> Result<()> {
        words.chunks(PIECE_WORDS_MAX).try_for_each(|words| self.piece(kind, which, 0, words))
    }

    /// Memory as it was copied. At most 1 MiB.
    pub fn memory(&mut self, which: Which, place: Place, words: &[u64]) -> Result<()> {
        assert!(words.len() <= PIECE_WORDS_MAX);
        self.piece(Kind::Memory, which, place.0, words)
    }

    /// Notes of changes, behind all others of that shard.
    pub fn notes(&mut self, which: Which, notes: &[u64]) -> Result<()> {
        self.pieces(Kind::Notes, which, notes)
    }

    /// What a shard knows beside its memory: its books, what it keeps, and its position in the log.
    pub fn end_shard(&mut self, which: Which, books: &[u64], kept: &[u64], position: &[u64]) -> Result<()> {
        self.pieces(Kind::Books, which, books)?;
        self.pieces(Kind::Kept, which, kept)?;
        self.pieces(Kind::Position, which, position)
    }

    /// Writes the end, and gives the file its name once it is on the disk. Returns where it is, and its
    /// length.
    pub fn finish(self) -> Result<(PathBuf, u64)> {
        self.finish_if(|| true)
    }

    /// The same, if the directory still is this writer's to name one in when all is written: a snapshot of a
    /// server that another one has superseded meanwhile gets no name.
    pub fn finish_if(mut self, is_ours: impl Fn() -> bool) -> Result<(PathBuf, u64)> {
        let count = self.pieces;
        self.piece(Kind::End, Which { namespace: 0, shard: 0 }, count, &[])?;
        let path = self.directory.join(&self.name);
        self.file.sync_all().map_err(|source| system("write", &path, source))?;
        if !is_ours() {
            let context = format!("{} belongs to another server now", self.directory.display());
            return Err(Error::new(ErrorKind::Superseded, "snapshot", context));
        }
        std::fs::rename(&self.part, &path).map_err(|source| system("write", &path, source))?;
        self.is_whole = true;
        let directory = File::open(&self.directory).and_then(|directory| directory.sync_all());
        directory.map_err(|source| system("write", &self.directory, source))?;
        Ok((path, self.bytes))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.is_whole {
            let _ = std::fs::remove_file(&self.part);
        }
    }
}
