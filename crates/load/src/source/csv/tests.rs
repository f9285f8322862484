use super::*;

/// Rows as texts, with `None` for null, and faults as `line: text`.
#[derive(Default)]
struct Taken {
    columns: Vec<String>,
    rows: Vec<(u64, Vec<Option<Vec<u8>>>)>,
    faults: Vec<String>,
}

impl Sink for Taken {
    fn begin(&mut self, columns: &[String], _: &str) -> bool {
        self.columns = columns.to_vec();
        true
    }

    fn take(&mut self, batch: &Batch) -> Result<bool, Problem> {
        for row in 0..batch.rows() {
            let cell = |column| batch.get(row, column).map(<[u8]>::to_vec);
            self.rows.push((batch.places[row], (0..self.columns.len()).map(cell).collect()));
        }
        self.faults.extend(batch.faults.iter().map(|fault| format!("{}: {}", fault.place, fault.text)));
        Ok(true)
    }
}

fn taken_as(text: &[u8], delimiter: u8, null: &str) -> Result<Taken, String> {
    let mut taken = Taken::default();
    let format = Format { delimiter, quote: Some(b'"'), escape: None, null: null.into() };
    read("t.csv", text, format, &mut taken).map_err(|problem| problem.to_string())?;
    Ok(taken)
}

fn taken(text: &[u8]) -> Taken {
    taken_as(text, b',', "").unwrap()
}

fn texts(row: &[Option<Vec<u8>>]) -> Vec<Option<&str>> {
    row.iter().map(|cell| cell.as_ref().map(|text| std::str::from_utf8(text).unwrap())).collect()
}

#[test]
fn quotes_newlines_and_null() {
    let text = "\u{feff}id, name ,note\r\n1,\"Ada \"\"A\"\", B\",\r\n\n2,,\"two\n\nlines\"\n3,\"\",x\"y\n4,Zo\u{eb},\"\"\"\"";
    let Taken { columns, rows, faults } = taken(text.as_bytes());
    assert_eq!(columns, ["id", "name", "note"]);
    assert!(faults.is_empty(), "{faults:?}");
    let lines: Vec<u64> = rows.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [2, 4, 7, 8]);
    assert_eq!(texts(&rows[0].1), [Some("1"), Some("Ada \"A\", B"), None]);
    assert_eq!(texts(&rows[1].1), [Some("2"), None, Some("two\n\nlines")]);
    assert_eq!(texts(&rows[2].1), [Some("3"), Some(""), Some("x\"y")]);
    assert_eq!(texts(&rows[3].1), [Some("4"), Some("Zo\u{eb}"), Some("\"")]);
}

#[test]
fn bytes_that_are_no_text_are_kept() {
    let Taken { rows, .. } = taken(b"a,b\n\xff\xfe,\x00\n");
    assert_eq!(rows[0].1, [Some(b"\xff\xfe".to_vec()), Some(b"\0".to_vec())]);
}

#[test]
fn records_that_make_no_sense_are_told_with_their_line() {
    let Taken { rows, faults, .. } = taken(b"a,b\n1,2\n1\n1,2,3\n\"x\"y,2\n5,6\n\"open,\n7,8\n");
    assert_eq!(rows.len(), 2);
    let expected = [
        "3: the record has 1 fields",
        "4: the record has 3 fields",
        "5: there is something between",
        "7: a quote begins",
    ];
    assert_eq!(faults.len(), expected.len(), "{faults:?}");
    for (fault, expected) in faults.iter().zip(expected) {
        assert!(fault.starts_with(expected), "{fault}");
    }
}

#[test]
fn empty_lines_are_no_records() {
    let Taken { rows, faults, .. } = taken(b"a\n1\n\n\"\"\n\n");
    assert_eq!((rows.len(), faults.len()), (2, 0));
}

#[test]
fn other_delimiters_and_nulls() {
    let Taken { rows, .. } = taken_as(b"a;b\n1,5;NA\n\"NA\";\n", b';', "NA").unwrap();
    assert_eq!(texts(&rows[0].1), [Some("1,5"), None]);
    assert_eq!(texts(&rows[1].1), [Some("NA"), Some("")]);
}

#[test]
fn headers_have_names_that_differ() {
    let wrong = |text: &[u8]| taken_as(text, b',', "").err().unwrap();
    assert!(wrong(b"").contains("line 1: there is no header"));
    assert!(wrong(b"a,b,a\n").contains("two columns are called \"a\""));
    assert_eq!(taken_as(b"a,,\n1,2,3\n", b',', "").unwrap().columns, ["a", "", ""]);
}

#[test]
fn pieces_may_be_cut_anywhere() {
    /// Gives a byte at a time.
    struct Slow<'a>(&'a [u8]);
    impl Read for Slow<'_> {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            let bytes = to.len().min(self.0.len()).min(1);
            to[..bytes].copy_from_slice(&self.0[..bytes]);
            self.0 = &self.0[bytes..];
            Ok(bytes)
        }
    }
    let mut text = b"id,text\n".to_vec();
    for number in 0..40_000 {
        text.extend_from_slice(format!("{number},\"a \"\"{number}\"\"\nb\"\n").as_bytes());
    }
    let Taken { rows, faults, .. } = taken(&text);
    assert_eq!((rows.len(), faults.len()), (40_000, 0));
    assert_eq!(texts(&rows[39_999].1), [Some("39999"), Some("a \"39999\"\nb")]);
    assert_eq!(rows[39_999].0, 2 + 39_999 * 2);
    let mut slow = Taken::default();
    let format = Format { delimiter: b',', quote: Some(b'"'), escape: None, null: Vec::new() };
    read("t.csv", std::io::BufReader::new(Slow(&text[..4000])), format, &mut slow).unwrap();
    assert!(slow.rows.len() > 100);
}

fn taken_by(text: &[u8], format: Format) -> Taken {
    let mut taken = Taken::default();
    read("t.tsv", text, format, &mut taken).unwrap();
    taken
}

/// Quotes are text in files of IMDb's, say: three rows became two items, whose titles had none.
#[test]
fn quotes_may_be_text() {
    let format = Format { delimiter: b'\t', quote: None, escape: None, null: b"\\N".to_vec() };
    let Taken { rows, faults, .. } = taken_by(b"id\ttitle\n1\t\"A\"\n2\t\"B\n3\tC\"\n4\t\\N\n", format);
    assert!(faults.is_empty(), "{faults:?}");
    let titles: Vec<_> = rows.iter().map(|(_, row)| texts(row)[1]).collect();
    assert_eq!(titles, [Some("\"A\""), Some("\"B"), Some("C\""), None]);
}

/// As programs write that escape with a backslash, in quotes and outside.
#[test]
fn escapes_take_a_meaning_away() {
    let text = b"a,b\n\"x\\\"y\",z\\,w\n1\\\\,\\N\n\"two\\\nlines\",one\\\ntwo\n\\t,\\\"q\n";
    for quote in [Some(b'"'), None] {
        let format = Format { delimiter: b',', quote, escape: Some(b'\\'), null: b"\\N".to_vec() };
        let Taken { rows, faults, .. } = taken_by(text, format);
        assert!(faults.is_empty(), "{faults:?}");
        let rows: Vec<_> = rows.iter().map(|(_, row)| texts(row)).collect();
        assert_eq!(rows[1], [Some("1\\"), None]);
        assert_eq!(rows[3], [Some("\t"), Some("\"q")]);
        if quote.is_some() {
            assert_eq!(rows[0], [Some("x\"y"), Some("z,w")]);
            assert_eq!(rows[2], [Some("two\nlines"), Some("one\ntwo")]);
        }
    }
    // However it is cut into pieces, a record ends where it ends.
    let format = || Format { delimiter: b',', quote: Some(b'"'), escape: Some(b'\\'), null: b"\\N".to_vec() };
    let records = Records::new(&b""[..], format());
    for record in
        [&b"\"x\\\"y\",z\\,w\n"[..], b"1\\\\,\\N\n", b"one\\\ntwo,3\n", b"a,\"b\"\n", b"\\\"a,\"b\nc\"\n"]
    {
        for cut in 0..record.len() {
            assert!(!matches!(records.scan(&record[..cut]), Scanned::Whole(_)), "{record:?} {cut}");
        }
        assert!(matches!(records.scan(record), Scanned::Whole(bytes) if bytes == record.len()), "{record:?}");
    }
}
