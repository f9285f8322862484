//! CSV as RFC 4180 has it, with PostgreSQL's sense of null: a field of nothing is null, `""` is an empty
//! text.
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

use memchr::{memchr, memchr_iter, memchr2, memchr3};

use super::{Sink, choice};
use crate::batch::{Batch, Cell, Fault, ROW_BYTES_MAX, ROW_TOO_LONG};
use crate::problem::Problem;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 256 << 10;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How fields are told apart.
#[derive(Clone, Debug)]
pub struct Format {
    /// What stands between fields.
    pub delimiter: u8,
    /// What encloses fields, twice inside of them; nothing, where quotes are text.
    pub quote: Option<u8>,
    /// What stands before a character that means itself, or `n`, `r`, `t` for the end of a line and a tab;
    /// nothing, where it is text.
    pub escape: Option<u8>,
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
    /// The line in which the next record begins, and how many bytes stand before it.
    line: u64,
    used: u64,
}

impl<R: Read> Records<R> {
    fn new(input: R, format: Format) -> Records<R> {
        Records { input, format, piece: Vec::new(), at: 0, ended: false, line: 1, used: 0 }
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
            self.used = self.at as u64;
        }
        self.ended = read == 0;
        Ok(())
    }

    /// Looks for the end of the record that begins in `rest`.
    fn scan(&self, rest: &[u8]) -> Scanned {
        let Format { delimiter, quote, escape, .. } = self.format;
        let mut at = 0;
        loop {
            if let Some(quote) = quote.filter(|quote| rest.get(at) == Some(quote)) {
                at += 1;
                loop {
                    let Some(next) = memchr2(quote, escape.unwrap_or(quote), &rest[at..]) else {
                        return Scanned::InQuotes;
                    };
                    at += next + 1;
                    if rest[at - 1] != quote {
                        // Whatever it is that stands behind an escape.
                        at += 1;
                        if at > rest.len() {
                            return Scanned::InQuotes;
                        }
                    } else if rest.get(at) != Some(&quote) {
                        break;
                    } else {
                        at += 1;
                    }
                }
            }
            loop {
                let Some(next) = memchr3(delimiter, b'\n', escape.unwrap_or(b'\n'), &rest[at..]) else {
                    return Scanned::InField;
                };
                at += next + 1;
                match rest[at - 1] {
                    b'\n' => return Scanned::Whole(at),
                    sign if Some(sign) == escape => at += 1,
                    _ => break,
                }
                if at > rest.len() {
                    return Scanned::InField;
                }
            }
        }
    }

    /// Adds the fields of the next record to a batch; returns how many, and the line in which it begins.
    /// `None`: there are no more.
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
        self.used += bytes as u64;
        self.line += lines;
        Ok(Some((line, fields)))
    }
}

/// Adds the fields of a record to a batch; returns how many.
fn split(record: &[u8], format: &Format, batch: &mut Batch) -> Result<usize, Wrong> {
    let Format { delimiter, quote, escape, .. } = *format;
    let (mut at, mut fields) = (0, 0);
    loop {
        fields += 1;
        let start = batch.bytes.len();
        if let Some(quote) = quote.filter(|quote| record.get(at) == Some(quote)) {
            at += 1;
            loop {
                let next = memchr2(quote, escape.unwrap_or(quote), &record[at..]).ok_or(Wrong::Unended)?;
                batch.bytes.extend_from_slice(&record[at..at + next]);
                at += next + 1;
                if record[at - 1] != quote {
                    batch.bytes.push(unescaped(*record.get(at).ok_or(Wrong::Unended)?));
                    at += 1;
                } else if record.get(at) == Some(&quote) {
                    batch.bytes.push(quote);
                    at += 1;
                } else {
                    break;
                }
            }
            batch.cells.push(Cell::at(start, batch.bytes.len() - start));
            match record.get(at) {
                None => return Ok(fields),
                Some(byte) if *byte == delimiter => at += 1,
                Some(_) => return Err(Wrong::BehindQuote),
            }
            continue;
        }
        let Some(escape) = escape else {
            let end = memchr(delimiter, &record[at..]);
            let field = &record[at..end.map_or(record.len(), |end| at + end)];
            batch.push((field != format.null).then_some(field));
            match end {
                None => return Ok(fields),
                Some(end) => at += end + 1,
            }
            continue;
        };
        let begin = at;
        let ended = loop {
            match memchr2(delimiter, escape, &record[at..]) {
                None => {
                    batch.bytes.extend_from_slice(&record[at..]);
                    at = record.len();
                    break true;
                }
                Some(next) => {
                    batch.bytes.extend_from_slice(&record[at..at + next]);
                    at += next + 1;
                    if record[at - 1] == delimiter {
                        break false;
                    }
                    if let Some(sign) = record.get(at) {
                        batch.bytes.push(unescaped(*sign));
                        at += 1;
                    }
                }
            }
        };
        // Null is told by how it is written, as in `\\N`.
        let written = &record[begin..if ended { at } else { at - 1 }];
        if written == format.null {
            batch.bytes.truncate(start);
            batch.cells.push(Cell::NULL);
        } else {
            batch.cells.push(Cell::at(start, batch.bytes.len() - start));
        }
        if ended {
            return Ok(fields);
        }
    }
}

/// What a character behind an escape stands for.
fn unescaped(sign: u8) -> u8 {
    match sign {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        other => other,
    }
}

impl Wrong {
    fn told(&self) -> &'static str {
        match self {
            Wrong::BehindQuote => {
                "there is something between a closing quote and the end of its field; a quote inside quotes is written twice"
            }
            Wrong::Unended => "a quote begins here and never ends; what follows was not read",
            Wrong::TooLong => ROW_TOO_LONG,
        }
    }
}

/// What is said of a record that has not as many fields as the header.
fn other_number(fields: usize, columns: usize) -> String {
    format!("the record has {fields} fields, and the header {columns}; check its delimiters and quotes")
}

/// The records of a stream of CSV, one by one, for whoever wants no batches.
pub struct CsvRecords<R> {
    records: Records<R>,
    batch: Batch,
    /// Fields of the header.
    columns: usize,
}

impl<R: Read> CsvRecords<R> {
    /// Reads the header: its columns. An error says what is wrong with it.
    pub fn new(input: R, format: Format) -> Result<(CsvRecords<R>, Vec<String>), String> {
        let mut reader =
            CsvRecords { records: Records::new(input, format), batch: Batch::new(0), columns: 0 };
        let header = reader.fields()?.ok_or("there is no header; the first line has to name the columns")?;
        reader.columns = header.len();
        Ok((reader, header))
    }

    fn fields(&mut self) -> Result<Option<Vec<String>>, String> {
        loop {
            self.batch.clear();
            let read = self.records.next(&mut self.batch).map_err(|error| error.to_string())?;
            match read {
                None => return Ok(None),
                // An empty line is no record.
                Some((_, Ok(0))) => continue,
                Some((_, Err(wrong))) => return Err(wrong.told().into()),
                Some((_, Ok(fields))) => {
                    let texts = self.batch.cells[..fields].iter().map(|cell| {
                        let text = self.batch.text_of(*cell).unwrap_or_default();
                        String::from_utf8(text.to_vec()).map_err(|_| "a field is no UTF-8".to_string())
                    });
                    return texts.collect::<Result<Vec<String>, String>>().map(Some);
                }
            }
        }
    }

    /// The fields of the next record. `None`: that was the last.
    pub fn next_record(&mut self) -> Result<Option<Vec<String>>, String> {
        let fields = self.fields()?;
        match &fields {
            Some(fields) if fields.len() != self.columns => Err(other_number(fields.len(), self.columns)),
            _ => Ok(fields),
        }
    }

    /// Bytes and lines before the next record.
    pub fn position(&self) -> (u64, u64) {
        (self.records.used, self.records.line - 1)
    }
}

impl<R: Read + std::io::Seek> CsvRecords<R> {
    /// Goes on behind so many bytes and lines.
    pub fn go_on(&mut self, (bytes, lines): (u64, u64)) -> std::io::Result<()> {
        let records = &mut self.records;
        records.input.seek(std::io::SeekFrom::Start(bytes))?;
        records.piece.clear();
        (records.at, records.ended, records.used, records.line) = (0, false, bytes, lines + 1);
        Ok(())
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
            Ok(fields) => Some(other_number(fields, columns.len())),
            Err(Wrong::BehindQuote) => Some(Wrong::BehindQuote.told().into()),
            Err(wrong) => {
                batch.refuse_row(Fault { place: line, column: None, text: wrong.told().into() });
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
