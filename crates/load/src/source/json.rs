//! JSON lines: an object a line, whose fields are columns.
//!
//! A text is itself, a number and `true` and `false` are as they are written, `null` and a field that is not
//! there are null, and an array or an object is its JSON.

use std::borrow::Cow;
use std::io::{BufRead, Read};

use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::Sink;
use crate::batch::{Batch, Cell, Fault, ROW_BYTES_MAX, ROW_TOO_LONG};
use crate::problem::Problem;

/// A byte order mark, which some programs put first.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Puts the fields of an object that are wanted into a batch.
struct Fields<'f> {
    wanted: &'f [String],
    batch: &'f mut Batch,
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object, as in {\"id\": 1}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let first = self.batch.cells.len();
        self.batch.cells.resize(first + self.wanted.len(), Cell::NULL);
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            let Some(index) = self.wanted.iter().position(|wanted| *wanted == *name) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = map.next_value::<&'de RawValue>()?.get();
            self.batch.cells[first + index] = put(self.batch, value).map_err(serde::de::Error::custom)?;
        }
        Ok(())
    }
}

/// Puts a value into a batch.
fn put(batch: &mut Batch, value: &str) -> Result<Cell, serde_json::Error> {
    let start = batch.bytes.len();
    match value.as_bytes() {
        b"null" => return Ok(Cell::NULL),
        [b'"', text @ .., b'"'] if !text.contains(&b'\\') => batch.bytes.extend_from_slice(text),
        [b'"', ..] => batch.bytes.extend_from_slice(serde_json::from_str::<String>(value)?.as_bytes()),
        other => batch.bytes.extend_from_slice(other),
    }
    Ok(Cell::at(start, batch.bytes.len() - start))
}

/// What a file seems to be whose first line begins an array or an object that goes on in the next one, and
/// the filter of `jq` that makes an object a line of it.
pub fn spans_lines(line: &[u8]) -> Option<(&'static str, &'static str)> {
    match line.trim_ascii() {
        b"{" => Some(("object", ".")),
        [b'[', ..] => Some(("array", "'.[]'")),
        _ => None,
    }
}

/// Pushes the lines of a stream. All columns are there that are wanted: a field that a line does not have is
/// null, also one that no line has.
pub(super) fn read(
    name: &str,
    mut input: impl BufRead,
    wanted: &[String],
    sink: &mut dyn Sink,
) -> Result<(), Problem> {
    if !sink.begin(wanted, "") {
        return Ok(());
    }
    let mut batch = Batch::new(wanted.len());
    let (mut text, mut line, mut begun) = (Vec::new(), 0, false);
    loop {
        text.clear();
        let read = (&mut input).take(ROW_BYTES_MAX as u64).read_until(b'\n', &mut text);
        if read.map_err(|source| Problem::Source(format!("cannot read {name}: {source}")))? == 0 {
            break;
        }
        line += 1;
        if text.len() == ROW_BYTES_MAX && !text.ends_with(b"\n") {
            batch.refuse_row(Fault { place: line, column: None, text: ROW_TOO_LONG.into() });
            break;
        }
        let object = if line == 1 { text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text) } else { &text[..] };
        if object.trim_ascii().is_empty() {
            continue;
        }
        if !begun {
            if let Some((what, filter)) = spans_lines(object) {
                return Err(Problem::Source(format!(
                    "{name} is one {what} over several lines, and an object a line is wanted: `jq -c {filter} {name}` makes such lines"
                )));
            }
            begun = true;
        }
        match read_object(object, Fields { wanted, batch: &mut batch }) {
            Ok(()) => batch.end_row(line),
            Err(text) => batch.refuse_row(Fault { place: line, column: None, text }),
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

fn read_object(object: &[u8], fields: Fields<'_>) -> Result<(), String> {
    let text = std::str::from_utf8(object).map_err(|wrong| {
        format!("byte {} of the line is no UTF-8, which JSON has to be", wrong.valid_up_to() + 1)
    })?;
    let mut json = serde_json::Deserializer::from_str(text);
    let read = json.deserialize_map(fields).and_then(|()| json.end());
    read.map_err(|wrong| {
        let text = wrong.to_string();
        let text = text.split(" at line 1 column ").next().unwrap_or_default();
        format!("this is not an object of JSON: {text}, at byte {}", wrong.column())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Taken {
        rows: Vec<Vec<Option<String>>>,
        faults: Vec<String>,
    }

    impl Sink for Taken {
        fn begin(&mut self, _: &[String], _: &str) -> bool {
            true
        }

        fn take(&mut self, batch: &Batch) -> Result<bool, Problem> {
            for row in 0..batch.rows() {
                let cell =
                    |column| batch.get(row, column).map(|text| String::from_utf8(text.to_vec()).unwrap());
                self.rows.push((0..batch.columns()).map(cell).collect());
            }
            self.faults.extend(batch.faults.iter().map(|fault| format!("{}: {}", fault.place, fault.text)));
            Ok(true)
        }
    }

    fn taken(text: &[u8], wanted: &[&str]) -> Taken {
        let wanted: Vec<String> = wanted.iter().map(|name| name.to_string()).collect();
        let mut taken = Taken::default();
        read("t.jsonl", text, &wanted, &mut taken).unwrap();
        taken
    }

    #[test]
    fn fields_of_objects_are_columns() {
        let text = "\u{feff}{\"a\": \"x\\ty\\u00e9\", \"b\": 1.50, \"c\": null, \"d\": [1, {\"e\": 2}]}\n\n{\"d\":\"\",\"a\": true}";
        let Taken { rows, faults } = taken(text.as_bytes(), &["a", "b", "c", "d"]);
        let texts =
            |row: &[Option<&str>]| row.iter().map(|cell| cell.map(str::to_string)).collect::<Vec<_>>();
        assert_eq!(rows[0], texts(&[Some("x\tyé"), Some("1.50"), None, Some("[1, {\"e\": 2}]")]));
        assert_eq!(rows[1], texts(&[Some("true"), None, None, Some("")]));
        assert!(faults.is_empty(), "{faults:?}");
    }

    #[test]
    fn lines_that_make_no_sense_are_told() {
        let Taken { rows, faults } =
            taken(b"{\"a\": 1}\n[1]\n{\"a\": \n{\"a\": \"\xff\"}\n{\"a\": 2} x\n", &["a", "z"]);
        assert_eq!(rows.len(), 1);
        let expected = [
            "2: this is not an object",
            "3: this is not an object",
            "4: byte 8 of the line is no UTF-8",
            "5: this is not",
        ];
        assert_eq!(faults.len(), expected.len(), "{faults:?}");
        for (fault, expected) in faults.iter().zip(expected) {
            assert!(fault.starts_with(expected), "{fault} | {expected}");
        }
    }

    /// Most files of JSON are one array over several lines, of which each line was told to be wrong.
    #[test]
    fn an_array_is_told_once() {
        for (text, what) in [
            (&b"[\n {\n \"a\": 1\n }\n]\n"[..], "array"),
            (b"\xef\xbb\xbf[{\"a\": 1}]", "array"),
            (b"{\n \"a\": 1\n}", "object"),
        ] {
            let wanted = ["a".to_string()];
            let problem = read("t.json", text, &wanted, &mut Taken::default()).unwrap_err();
            assert!(problem.to_string().contains(what) && problem.to_string().contains("jq"), "{problem}");
        }
    }
}
