//! Records between the reading of a source and the building of a table.
//!
//! All rows of all tables are read before the first is put, because only then is it known that none is
//! missing. Until then they stand here: in memory while they are few, else in a file without a name, which is
//! gone when the program is.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use crate::problem::Problem;
use crate::rows::{Row, Rows, record_bytes, records};

/// Bytes of a spool that stay in memory.
const KEPT_BYTES: usize = 16 << 20;
/// Bytes that are written to a file at once.
const WRITTEN_BYTES: usize = 1 << 20;
/// Bytes that are read from a file at once.
const PIECE_BYTES: usize = 1 << 20;

/// Records, in the order in which they came.
#[derive(Default)]
pub(crate) struct Spool {
    /// The first ones.
    kept: Vec<u8>,
    /// Those after them, and how many bytes they have.
    file: Option<File>,
    written: u64,
    /// The last ones, which are still to be written.
    last: Vec<u8>,
    rows: u64,
}

fn no_spool(source: io::Error) -> Problem {
    let directory = std::env::temp_dir();
    Problem::Source(format!(
        "rows that are read are kept in a file in {} until they are built, which failed: {source}; \
         make room there, or set TMPDIR to a directory that has some",
        directory.display()
    ))
}

impl Spool {
    /// How many records it has.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// How many bytes.
    pub fn bytes(&self) -> u64 {
        self.last_at() + self.last.len() as u64
    }

    /// Where the last ones begin, behind what is in the file.
    fn last_at(&self) -> u64 {
        self.kept.len() as u64 + self.written
    }

    /// Adds the records of a batch. The first of them stands where [`Spool::bytes`] was.
    pub fn add(&mut self, rows: &Rows) -> Result<(), Problem> {
        self.rows += rows.len() as u64;
        if self.written == 0 && self.last.is_empty() && self.kept.len() < KEPT_BYTES {
            self.kept.extend_from_slice(rows.bytes());
            return Ok(());
        }
        self.last.extend_from_slice(rows.bytes());
        if self.last.len() >= WRITTEN_BYTES { self.write().map_err(no_spool) } else { Ok(()) }
    }

    fn write(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(tempfile::tempfile()?);
        }
        self.file.as_mut().expect("made").write_all(&self.last)?;
        self.written += self.last.len() as u64;
        self.last.clear();
        Ok(())
    }

    /// Calls `each` with every record, and where it stands, until that fails.
    pub fn each(&self, mut each: impl FnMut(Row<'_>, u64) -> Result<(), Problem>) -> Result<(), Problem> {
        let mut at = 0;
        let mut all = |bytes: &[u8]| {
            let mut used = 0;
            for row in records(bytes) {
                each(row, at)?;
                at += row.record().len() as u64;
                used += row.record().len();
            }
            Ok(used)
        };
        all(&self.kept)?;
        let mut piece = Vec::new();
        let mut read = 0;
        while read < self.written {
            self.read(read, PIECE_BYTES, &mut piece)?;
            let mut used = all(&piece)?;
            if used == 0 {
                // A record longer than a piece.
                self.read(read, record_bytes(&piece).unwrap_or(0), &mut piece)?;
                used = all(&piece)?;
            }
            if used == 0 {
                return Err(no_spool(io::ErrorKind::InvalidData.into()));
            }
            read += used as u64;
        }
        all(&self.last).map(drop)
    }

    /// Reads what stands at a place of the file, up to so many bytes.
    fn read(&self, at: u64, bytes: usize, piece: &mut Vec<u8>) -> Result<(), Problem> {
        piece.resize(bytes.min((self.written - at) as usize), 0);
        let file = self.file.as_ref().expect("there are bytes in it");
        file.read_exact_at(piece, at).map_err(no_spool)
    }

    /// Records from a place on, one after the other.
    pub fn records_from(&self, at: u64) -> Records<'_> {
        Records { spool: self, at, piece: Piece::default() }
    }
}

/// Bytes that are read at once by who may go elsewhere afterwards.
const SMALL_PIECE_BYTES: usize = 4 << 10;

/// A piece of a spool's file.
#[derive(Default)]
struct Piece {
    bytes: Vec<u8>,
    at: u64,
}

impl Piece {
    /// What stands at a place of the file: a record at least.
    fn from(&mut self, spool: &Spool, at: u64) -> Result<&[u8], Problem> {
        let offset = at.checked_sub(self.at).filter(|offset| *offset < self.bytes.len() as u64);
        let whole = offset.is_some_and(|offset| {
            let rest = &self.bytes[offset as usize..];
            record_bytes(rest).is_some_and(|bytes| bytes <= rest.len())
        });
        if !whole {
            spool.read(at, SMALL_PIECE_BYTES, &mut self.bytes)?;
            let bytes = record_bytes(&self.bytes).unwrap_or(0);
            if bytes > self.bytes.len() {
                spool.read(at, bytes, &mut self.bytes)?;
            }
            self.at = at;
        }
        Ok(&self.bytes[(at - self.at) as usize..])
    }
}

/// Reads records wherever they stand; best if the next one stands behind the last.
pub(crate) struct Records<'s> {
    spool: &'s Spool,
    at: u64,
    piece: Piece,
}

impl Records<'_> {
    /// Goes to another place.
    pub fn go_to(&mut self, at: u64) {
        self.at = at;
    }

    /// The next record, if there is one.
    pub fn next(&mut self) -> Result<Option<Row<'_>>, Problem> {
        let spool = self.spool;
        let row = if self.at < spool.kept.len() as u64 {
            records(&spool.kept[self.at as usize..]).next()
        } else if self.at < spool.last_at() {
            records(self.piece.from(spool, self.at - spool.kept.len() as u64)?).next()
        } else {
            records(&spool.last[(self.at - spool.last_at()) as usize..]).next()
        };
        self.at += row.map_or(0, |row| row.record().len() as u64);
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_from_memory_and_file() {
        let mut spool = Spool::default();
        let mut places = Vec::new();
        for number in 0..3000u64 {
            let mut rows = Rows::new();
            let mut row = rows.begin(number, None);
            row.key(&number.to_be_bytes());
            // Some are longer than a piece.
            row.bytes(0, &vec![number as u8; if number % 1000 == 7 { PIECE_BYTES + 9 } else { 9000 }]);
            row.end();
            places.push(spool.bytes());
            spool.add(&rows).unwrap();
        }
        assert!(spool.written > 0 && !spool.kept.is_empty() && !spool.last.is_empty());
        let mut next = 0;
        spool
            .each(|row, at| {
                assert_eq!((row.place(), at), (next, places[next as usize]));
                next += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!((next, spool.rows()), (3000, 3000));
        let mut records = spool.records_from(0);
        for number in [2999, 5, 6, 7, 8, 1500, 1007, 2990] {
            records.go_to(places[number]);
            assert_eq!(records.next().unwrap().unwrap().place(), number as u64);
        }
        assert_eq!(records.next().unwrap().unwrap().place(), 2991);
    }
}
