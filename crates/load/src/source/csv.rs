//! CSV as RFC 4180 has it, with PostgreSQL's sense of null: a field of nothing is null, `""` is an empty text.
//!
//! ```text
//! id,name,note         a header, then a record a line
//! 1,"Ada ""A""",       quotes are written twice inside quotes; the note is null
//! 2,Bob,"two
//! lines"               what is in quotes may have ends of lines and delimiters
//! ```
//!
//! Lines end with LF or CR LF. Bytes that are no UTF-8 are kept as they are.

use std::io::{BufRead, Read};

use memchr::{memchr, memchr_iter, memchr2};

use super::{Sink, choice};
use crate::batch::{Batch, Cell, Fault, ROW_BYTES_MAX, ROW_TOO_LONG};
use crate::problem::Problem;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 256 << 10;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How fields are told apart.
#[derive(Clone, Debug)]
pub(super) struct Format {
    pub delimiter: u8,
    /// The text that means null when it is not in quotes.
    pub null: Vec<u8>,
}

/// A record that makes no sense.
enum Wrong {
    /// A quote without its other: nothing behind it can be told apart.
    Unended,
    /// More bytes than a record may have.
    TooLong,
    /// Something between a closing quote and the delimiter.
    BehindQuote,
}

/// Where a record ends.
enum Scanned {
    /// After so many bytes.
    Whole(usize),
    /// Somewhere behind, and this ends inside quotes.
    InQuotes,
    /// Somewhere behind, and this ends outside of them.
    InField,
}

/// Splits a stream into records.
struct Records<R> {
    input: R,
    format: Format,
    /// What was read of the stream, of which `at` bytes have been used.
    piece: Vec<u8>,
    at: usize,
    ended: bool,
    /// The line in which the next record begins.
    line: u64,
}

impl<R: Read> Records<R> {
    fn new(input: R, format: Format) -> Records<R> {
        Records { input, format, piece: Vec::new(), at: 0, ended: false, line: 1 }
    }

    /// Reads more of the stream behind what is not used yet.
    fn more(&mut self) -> std::io::Result<()> {
        self.piece.drain(..self.at);
        self.at = 0;
        let before = self.piece.len();
        // Twice as much each time, so that a long record is not looked at too often.
        let more = PIECE_BYTES.max(before) as u64;
        let read = (&mut self.input).take(more).read_to_end(&mut self.piece)?;
        if self.line == 1 && before == 0 && self.piece.starts_with(BYTE_ORDER_MARK) {
            self.at = BYTE_ORDER_MARK.len();
        }
        self.ended = read == 0;
        Ok(())
    }

    /// Looks for the end of the record that begins in `rest`.
    fn scan(&self, rest: &[u8]) -> Scanned {
        let mut at = 0;
        loop {
            if rest.get(at) == Some(&b'"') {
                at += 1;
                loop {
                    let Some(quote) = memchr(b'"', &rest[at..]) else { return Scanned::InQuotes };
                    at += quote + 1;
                    if rest.get(at) != Some(&b'"') {
                        break;
                    }
                    at += 1;
                }
            }
            let Some(end) = memchr2(self.format.delimiter, b'\n', &rest[at..]) else {
                return Scanned::InField;
            };
            at += end + 1;
            if rest[at - 1] == b'\n' {
                return Scanned::Whole(at);
            }
        }
    }

    /// Adds the fields of the next record to a batch; returns how many, and the line in which it begins. `None`: there are no
    /// more.
    fn next(&mut self, batch: &mut Batch) -> std::io::Result<Option<(u64, Result<usize, Wrong>)>> {
        let bytes = loop {
            let rest = &self.piece[self.at..];
            let too_long = rest.len() > ROW_BYTES_MAX;
            match self.scan(rest) {
                Scanned::Whole(bytes) => break bytes,
                _ if self.ended && rest.is_empty() => return Ok(None),
                Scanned::InField if self.ended => break rest.len(),
                Scanned::InField if too_long => return Ok(Some((self.line, Err(Wrong::TooLong)))),
                Scanned::InQuotes if self.ended || too_long => {
                    return Ok(Some((self.line, Err(Wrong::Unended))));
                }
                _ => self.more()?,
            }
        };
        let record = &self.piece[self.at..self.at + bytes];
        let lines = memchr_iter(b'\n', record).count() as u64;
        let record = record.strip_suffix(b"\n").unwrap_or(record);
        let record = record.strip_suffix(b"\r").unwrap_or(record);
        let line = self.line;
        let fields = if record.is_empty() { Ok(0) } else { split(record, &self.format, batch) };
        self.at += bytes;
        self.line += lines;
        Ok(Some((line, fields)))
    }
}

/// Adds the fields of a record to a batch; returns how many.
fn split(record: &[u8], format: &Format, batch: &mut Batch) -> Result<usize, Wrong> {
    let (mut at, mut fields) = (0, 0);
    loop {
        fields += 1;
        let start = batch.bytes.len();
        if record.get(at) == Some(&b'"') {
            at += 1;
            loop {
                let quote = memchr(b'"', &record[at..]).ok_or(Wrong::Unended)?;
                batch.bytes.extend_from_slice(&record[at..at + quote]);
                at += quote + 1;
                if record.get(at) != Some(&b'"') {
                    break;
                }
                batch.bytes.push(b'"');
                at += 1;
            }
            batch.cells.push(Cell::at(start, batch.bytes.len() - start));
            match record.get(at) {
                None => return Ok(fields),
                Some(byte) if *byte == format.delimiter => at += 1,
                Some(_) => return Err(Wrong::BehindQuote),
            }
            continue;
        }
        let end = memchr(format.delimiter, &record[at..]);
        let field = &record[at..end.map_or(record.len(), |end| at + end)];
        batch.push((field != format.null).then_some(field));
        match end {
            None => return Ok(fields),
            Some(end) => at += end + 1,
        }
    }
}

/// Pushes the records of a stream.
pub(super) fn read(
    name: &str,
    input: impl BufRead,
    format: Format,
    sink: &mut dyn Sink,
) -> Result<(), Problem> {
    let failed = |source: std::io::Error| Problem::Source(format!("cannot read {name}: {source}"));
    let mut records = Records::new(input, format);
    let Some(columns) = header(name, &mut records)? else { return Ok(()) };
    if !sink.begin(&columns, &choice(&columns)) {
        return Ok(());
    }
    let mut batch = Batch::new(columns.len());
    while let Some((line, fields)) = records.next(&mut batch).map_err(failed)? {
        let text = match fields {
            Ok(fields) if fields == columns.len() => {
                batch.end_row(line);
                None
            }
            // An empty line is no record.
            Ok(0) => None,
            Ok(fields) => Some(format!("the record has {fields} fields, and the header {}; check its delimiters and quotes", columns.len())),
            Err(Wrong::BehindQuote) => {
                Some("there is something between a closing quote and the end of its field; a quote inside quotes is written twice".into())
            }
            Err(Wrong::Unended) => {
                batch.refuse_row(Fault { place: line, column: None, text: "a quote begins here and never ends; what follows was not read".into() });
                break;
            }
            Err(Wrong::TooLong) => {
                batch.refuse_row(Fault { place: line, column: None, text: ROW_TOO_LONG.into() });
                break;
            }
        };
        if let Some(text) = text {
            batch.refuse_row(Fault { place: line, column: None, text });
        }
        if batch.is_full() {
            if !sink.take(&batch)? {
                return Ok(());
            }
            batch.clear();
        }
    }
    sink.take(&batch).map(drop)
}

/// The names of the columns.
fn header<R: Read>(name: &str, records: &mut Records<R>) -> Result<Option<Vec<String>>, Problem> {
    let mut batch = Batch::new(0);
    let format = std::mem::replace(&mut records.format.null, b"\0".to_vec());
    let first = records
        .next(&mut batch)
        .map_err(|source| Problem::Source(format!("cannot read {name}: {source}")))?;
    records.format.null = format;
    let fields = match first {
        Some((_, Ok(fields @ 1..))) => fields,
        _ => {
            return Err(Problem::Source(format!(
                "{name}, line 1: there is no header; the first line has to name the columns"
            )));
        }
    };
    let texts = batch.cells[..fields].iter().map(|cell| batch.text(*cell).trim_ascii());
    let columns: Vec<String> = texts.map(|text| String::from_utf8_lossy(text).into_owned()).collect();
    let mut sorted: Vec<&String> = columns.iter().filter(|name| !name.is_empty()).collect();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Problem::Source(format!(
            "{name}, line 1: two columns are called \"{}\"; rename one",
            pair[0]
        ))),
        None => Ok(Some(columns)),
    }
}

#[cfg(test)]
mod tests;
