//! The text format of `COPY`: a row a line, columns between tabs.
//!
//! ```text
//! 1 TAB Ada TAB \N LF            \N is null
//! 2 TAB a\tb\\c TAB \\x00ff LF   \b \f \n \r \t \v \\ are one character each; bytea is in hexadecimal
//! ```
//!
//! A line is copied into the batch whole and then split and unescaped where it stands, which never makes it
//! longer. The server sends a message a line; a message that is none, or several, is taken too.

use memchr::{memchr, memchr_iter};

use crate::batch::{Batch, Cell, Fault};

/// What is known of the columns, and the line that has not ended yet.
pub(super) struct Columns {
    /// Which of them are bytea.
    bytes: Vec<bool>,
    rest: Vec<u8>,
    row: u64,
}

impl Columns {
    /// Columns, of which some are bytea.
    pub fn new(bytes: Vec<bool>) -> Columns {
        Columns { bytes, rest: Vec::new(), row: 0 }
    }

    /// Adds what a message brought.
    #[inline]
    pub fn add(&mut self, data: &[u8], batch: &mut Batch) {
        let last = data.len().wrapping_sub(1);
        if self.rest.is_empty() && memchr(b'\n', data) == Some(last) {
            return self.line(&data[..last], batch);
        }
        self.add_pieces(data, batch);
    }

    #[cold]
    fn add_pieces(&mut self, mut data: &[u8], batch: &mut Batch) {
        while let Some(end) = memchr(b'\n', data) {
            let mut line = std::mem::take(&mut self.rest);
            line.extend_from_slice(&data[..end]);
            self.line(&line, batch);
            data = &data[end + 1..];
        }
        self.rest.extend_from_slice(data);
    }

    /// Adds a row.
    #[inline]
    fn line(&mut self, line: &[u8], batch: &mut Batch) {
        self.row += 1;
        let start = batch.bytes.len();
        batch.bytes.extend_from_slice(line);
        let before = batch.cells.len();
        if memchr(b'\\', line).is_none() {
            let mut begin = start;
            for tab in memchr_iter(b'\t', line) {
                batch.cells.push(Cell::at(begin, start + tab - begin));
                begin = start + tab + 1;
            }
            batch.cells.push(Cell::at(begin, batch.bytes.len() - begin));
        } else {
            self.escaped_line(line, start, batch);
        }
        match batch.cells.len() - before == self.bytes.len() {
            true => batch.end_row(self.row),
            false => {
                let text = "the database sent another number of columns than it said".to_string();
                batch.refuse_row(Fault { place: self.row, column: None, text });
            }
        }
    }

    /// Adds a row that has escapes.
    fn escaped_line(&self, line: &[u8], start: usize, batch: &mut Batch) {
        let mut begin = 0;
        let mut columns = self.bytes.iter();
        loop {
            let end = memchr(b'\t', &line[begin..]).map_or(line.len(), |tab| begin + tab);
            let field = &line[begin..end];
            let place = start + begin;
            if field == b"\\N" {
                batch.cells.push(Cell::NULL);
            } else {
                let mut bytes = unescape(field, &mut batch.bytes[place..]);
                if columns.clone().next() == Some(&true) {
                    bytes = from_hexadecimal(&mut batch.bytes[place..place + bytes]);
                }
                batch.cells.push(Cell::at(place, bytes));
            }
            columns.next();
            if end == line.len() {
                return;
            }
            begin = end + 1;
        }
    }
}

/// Writes a field without its escapes; returns how long it is.
fn unescape(field: &[u8], to: &mut [u8]) -> usize {
    let (mut read, mut written) = (0, 0);
    while let Some(at) = memchr(b'\\', &field[read..]) {
        to[written..][..at].copy_from_slice(&field[read..read + at]);
        written += at;
        read += at + 1;
        let Some(escaped) = field.get(read) else { break };
        to[written] = match escaped {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            other => *other,
        };
        written += 1;
        read += 1;
    }
    let rest = &field[read..];
    to[written..][..rest.len()].copy_from_slice(rest);
    written + rest.len()
}

/// Turns `\x00ff` into bytes where it stands; returns how many. Anything else is left as it is.
fn from_hexadecimal(field: &mut [u8]) -> usize {
    if !field.starts_with(b"\\x") || field.len() % 2 != 0 {
        return field.len();
    }
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or(0) as u8;
    let count = field.len() / 2 - 1;
    for index in 0..count {
        let at = 2 + 2 * index;
        field[index] = digit(field[at]) << 4 | digit(field[at + 1]);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(columns: &[bool], pieces: &[&[u8]]) -> (Vec<Vec<Option<Vec<u8>>>>, usize) {
        let mut batch = Batch::new(columns.len());
        let mut columns = Columns::new(columns.to_vec());
        pieces.iter().for_each(|piece| columns.add(piece, &mut batch));
        let cell = |row, column| batch.get(row, column).map(<[u8]>::to_vec);
        let row = |row| (0..batch.columns()).map(|column| cell(row, column)).collect();
        ((0..batch.rows()).map(row).collect(), batch.faults.len())
    }

    fn text(text: &[u8]) -> Option<Vec<u8>> {
        Some(text.to_vec())
    }

    #[test]
    fn lines_become_rows() {
        let (rows, faults) = rows(
            &[false, false, true],
            &[b"1\tAda\t\\\\x00ff41\n", b"2\t\t\\N\n", b"a\\tb\\\\c\\n\\b\\f\\r\\v\t\\\\N\t\\\\x\n"],
        );
        assert_eq!(faults, 0);
        assert_eq!(rows[0], [text(b"1"), text(b"Ada"), text(b"\x00\xffA")]);
        assert_eq!(rows[1], [text(b"2"), text(b""), None]);
        assert_eq!(rows[2], [text(b"a\tb\\c\n\x08\x0c\r\x0b"), text(b"\\N"), text(b"")]);
    }

    #[test]
    fn messages_may_be_cut_anywhere() {
        let whole = b"1\tAda\n22\t\\N\n\t\n";
        let (expected, _) = rows(&[false, false], &[&whole[..6], &whole[6..12], &whole[12..]]);
        assert_eq!(expected.len(), 3);
        for first in 0..whole.len() {
            for second in first..whole.len() {
                let pieces = [&whole[..first], &whole[first..second], &whole[second..]];
                assert_eq!(rows(&[false, false], &pieces), (expected.clone(), 0), "{first} {second}");
            }
        }
    }

    #[test]
    fn a_row_of_another_width_is_a_fault() {
        let (rows, faults) = rows(&[false, false], &[b"1\n", b"1\t2\t3\n", b"1\t\\N\t3\n", b"1\t2\n"]);
        assert_eq!((rows.len(), faults), (1, 3));
    }
}
