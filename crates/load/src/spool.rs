//! Records between the reading of a source and the building of a table.
//!
//! All rows of all tables are read before the first is put, because only then is it known that none is missing. Until then
//! they stand here: in memory while they are few, else in a file without a name, which is gone when the program is.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use crate::problem::Problem;
use crate::rows::{Row, Rows, record_bytes, records};

/// Bytes of a spool that stay in memory.
const KEPT_BYTES: usize = 16 << 20;
/// Bytes that are read from a file at once.
const PIECE_BYTES: usize = 1 << 20;

/// Records, in the order in which they came.
#[derive(Default)]
pub(crate) struct Spool {
    file: Option<File>,
    /// Bytes in the file.
    written: u64,
    /// What follows them.
    kept: Vec<u8>,
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
        self.written + self.kept.len() as u64
    }

    /// Adds the records of a batch. The first of them stands where [`Spool::bytes`] was.
    pub fn add(&mut self, rows: &Rows) -> Result<(), Problem> {
        self.kept.extend_from_slice(rows.bytes());
        self.rows += rows.len() as u64;
        if self.kept.len() >= KEPT_BYTES { self.write().map_err(no_spool) } else { Ok(()) }
    }

    fn write(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(tempfile::tempfile()?);
        }
        self.file.as_mut().expect("made").write_all(&self.kept)?;
        self.written += self.kept.len() as u64;
        self.kept.clear();
        Ok(())
    }

    /// Calls `each` with every record, and where it stands, until that fails.
    pub fn each(&self, mut each: impl FnMut(Row<'_>, u64) -> Result<(), Problem>) -> Result<(), Problem> {
        let mut piece = Vec::new();
        let mut at = 0;
        while at < self.written {
            self.read(at, PIECE_BYTES, &mut piece)?;
            let mut used = 0;
            for row in records(&piece) {
                each(row, at + used as u64)?;
                used += row.record().len();
            }
            if used == 0 {
                // A record longer than a piece.
                self.read(at, record_bytes(&piece).unwrap_or(0), &mut piece)?;
                let row =
                    records(&piece).next().ok_or_else(|| no_spool(io::ErrorKind::InvalidData.into()))?;
                each(row, at)?;
                used = row.record().len();
            }
            at += used as u64;
        }
        for row in records(&self.kept) {
            each(row, at)?;
            at += row.record().len() as u64;
        }
        Ok(())
    }

    /// Reads what stands at a place of the file, up to so many bytes.
    fn read(&self, at: u64, bytes: usize, piece: &mut Vec<u8>) -> Result<(), Problem> {
        piece.resize(bytes.min((self.written - at) as usize), 0);
        let file = self.file.as_ref().expect("there are bytes in it");
        file.read_exact_at(piece, at).map_err(no_spool)
    }

    /// Records from a place on, one after the other.
    pub fn records_from(&self, at: u64) -> Records<'_> {
        Records { spool: self, at, piece: Vec::new(), piece_at: 0 }
    }
}

/// Reads records wherever they stand; best if the next one stands behind the last.
pub(crate) struct Records<'s> {
    spool: &'s Spool,
    at: u64,
    piece: Vec<u8>,
    piece_at: u64,
}

/// Bytes that are read at once by who may go elsewhere afterwards.
const SMALL_PIECE_BYTES: usize = 4 << 10;

impl Records<'_> {
    /// Goes to another place.
    pub fn go_to(&mut self, at: u64) {
        self.at = at;
    }

    /// The next record, if there is one.
    pub fn next(&mut self) -> Result<Option<Row<'_>>, Problem> {
        let spool = self.spool;
        if self.at >= spool.bytes() {
            return Ok(None);
        }
        if self.at >= spool.written {
            let rest = &spool.kept[(self.at - spool.written) as usize..];
            let row = records(rest).next().expect("a place where a record stands");
            self.at += row.record().len() as u64;
            return Ok(Some(row));
        }
        let begins = self.at.checked_sub(self.piece_at).filter(|offset| *offset < self.piece.len() as u64);
        let whole = begins.and_then(|offset| {
            let rest = &self.piece[offset as usize..];
            record_bytes(rest).filter(|bytes| *bytes <= rest.len())
        });
        if whole.is_none() {
            spool.read(self.at, SMALL_PIECE_BYTES, &mut self.piece)?;
            let bytes = record_bytes(&self.piece).unwrap_or(0);
            if bytes > self.piece.len() {
                spool.read(self.at, bytes, &mut self.piece)?;
            }
            self.piece_at = self.at;
        }
        let offset = (self.at - self.piece_at) as usize;
        let row = records(&self.piece[offset..]).next().expect("a place where a record stands");
        self.at += row.record().len() as u64;
        Ok(Some(row))
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
            let mut row = rows.begin(number);
            row.key(&number.to_be_bytes());
            // Some are longer than a piece.
            row.bytes(0, &vec![number as u8; if number % 1000 == 7 { PIECE_BYTES + 9 } else { 9000 }]);
            row.end();
            places.push(spool.bytes());
            spool.add(&rows).unwrap();
        }
        assert!(spool.written > 0 && !spool.kept.is_empty());
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
