//! Bytes on the command line: the one syntax for keys and values, in both directions.
//!
//! ```text
//! depcs              the text itself, as UTF-8
//! hex:00ff10         these bytes, two hexadecimal digits each
//! u64:1234           the 8 bytes of this number, lowest first
//! text:hex:beer      the text after `text:`, whatever it looks like
//! 1234               where the table's keys or values are numbers, this number
//! ```
//!
//! [`show`] writes what [`parse`] reads, so that what one command prints can be handed to the next. It writes
//! text where that is possible: UTF-8 without control characters, which could play tricks on a terminal.
//! [`show_key`] and [`KeyArgument::of`], [`show_value`] and [`parse_value`] do the same for a kind of table.
//! Numbers that are keys stand in the store highest byte first, so that their order is that of their bytes;
//! all others lowest first.

use std::str::FromStr;

use kelix::TableKind;

/// What `kelix help syntax` tells.
pub(crate) const HELP: &str = "\
Keys and values, in arguments and in what the program prints:

  depcs           the text itself, as UTF-8
  hex:00ff10      these bytes, two hexadecimal digits each
  u64:1234        the 8 bytes of this number, lowest first
  text:hex:beer   the text after `text:`, whatever it looks like
  -               only as the VALUE of `put`: standard input, byte by byte

Bytes that are no plain text (not UTF-8, or with control characters) are
printed as hex:..., and text that looks like one of these forms as text:...,
so that it can be handed to another command as it is. In JSON, which writes
them as \\n, \\r and \\t, ends of lines and tabs are text. Only `get` of a single
plain value, and --raw, print the bytes themselves. An argument that begins
with a dash and is no number goes after --.

Ordered tables may have numbers as keys (--keys u64) and as values (--values
inline8), which are read and printed as such:

  1234            this number, from 0 to 18446744073709551615
  u64:1234        the same
  hex:            and 16 digits: the 8 bytes as they stand in the store, those
                  of a key highest first, those of a value lowest first
  text:           and 8 bytes, only as a value

Attributes, links, paths:

  --attr NAME=VALUE              the first = ends the name
  --link NAME=TABLE/KEY          then the first / ends the table
  --link NAME=TABLE/KEY=BYTES    then the first = ends the key; the rest are
                                 bytes of the link's own. A key that contains
                                 = is written as hex:...
  supervisor.department          a path: links followed one after another, the
                                 first link of each name
  courses.students[]             the last name may be a list: all links of
                                 this name in one batch

Other arguments:

  tables      a name of 1 to 255 bytes without /
  versions    the number that `put` prints; it means nothing but itself
  times       500ms 30s 5m 2h 7d
  sizes       64M 4G 1T; K, M, G and T are powers of 1024

Exit codes:

  0  done
  1  not there (key, table, link), or a comparison failed
  2  usage, or an argument that makes no sense
  3  no server, or it has gone, was superseded or did not answer in time
  4  the server's memory is full
  5  anything else

With --json, results are JSON on standard output and errors on standard error:

  {\"error\": {\"kind\", \"retry\", \"effect\", \"operation\", \"context\"}}

`effect` is no, yes or unknown: whether a failed write changed the store. Keys
and values are strings in the syntax above, versions are strings of digits.";

/// Bytes given on the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bytes(pub Vec<u8>);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Bytes, String> {
        parse(text).map(Bytes)
    }
}

const PREFIXES: [&str; 3] = ["hex:", "u64:", "text:"];

/// A key given on the command line. Which bytes it stands for depends on the table's kind, which is known
/// only once the table is open; what no table would take is refused before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KeyArgument {
    text: String,
    bytes: Vec<u8>,
}

impl FromStr for KeyArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<KeyArgument, String> {
        Ok(KeyArgument { text: text.to_string(), bytes: parse(text)? })
    }
}

impl KeyArgument {
    /// The key in a table of this kind. `Err`: it is none, and why.
    pub fn of(&self, kind: TableKind) -> Result<Vec<u8>, String> {
        if !kind.has_numbers() {
            return Ok(self.bytes.clone());
        }
        let text = &self.text[..];
        let key = match text.starts_with("hex:") {
            true => self.bytes[..].try_into().ok(),
            false => parse_number(text.strip_prefix("u64:").unwrap_or(text)).map(u64::to_be_bytes),
        };
        key.map(Vec::from).ok_or_else(|| {
            let most = u64::MAX;
            format!(
                "its keys are numbers up to {most}, as in 42, u64:42 or hex:000000000000002a; \"{text}\" is none"
            )
        })
    }
}

/// Reads a value of a table of this kind. `Err`: it is none, and why.
pub(crate) fn parse_value(kind: TableKind, text: &str) -> Result<Vec<u8>, String> {
    if kind.has_items() {
        return parse(text);
    }
    let bytes = match PREFIXES.iter().any(|prefix| text.starts_with(prefix)) {
        true => Some(parse(text)?),
        false => parse_number(text).map(|number| number.to_le_bytes().to_vec()),
    };
    bytes.filter(|bytes| bytes.len() == 8).ok_or_else(|| {
        let most = u64::MAX;
        format!(
            "its values are numbers up to {most}, as in 42, or 8 bytes, as in hex:2a00000000000000; \
             \"{text}\" is none"
        )
    })
}

/// A number in decimal digits, and nothing else.
fn parse_number(digits: &str) -> Option<u64> {
    if digits.bytes().all(|digit| digit.is_ascii_digit()) { digits.parse().ok() } else { None }
}

/// Reads the syntax.
pub(crate) fn parse(text: &str) -> Result<Vec<u8>, String> {
    if let Some(digits) = text.strip_prefix("hex:") {
        return parse_hex(digits).ok_or_else(|| {
            format!("\"{text}\": after hex: come two hexadecimal digits a byte; text that begins so is text:{text}")
        });
    }
    if let Some(number) = text.strip_prefix("u64:") {
        let number = parse_number(number).ok_or_else(|| {
            format!("\"{text}\": after u64: comes a number up to 2^64-1; text that begins so is text:{text}")
        })?;
        return Ok(number.to_le_bytes().to_vec());
    }
    Ok(text.strip_prefix("text:").unwrap_or(text).as_bytes().to_vec())
}

fn parse_hex(digits: &str) -> Option<Vec<u8>> {
    let nibbles: Option<Vec<u8>> =
        digits.chars().map(|digit| digit.to_digit(16).map(|value| value as u8)).collect();
    let nibbles = nibbles.filter(|nibbles| nibbles.len() % 2 == 0)?;
    Some(nibbles.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Writes the syntax.
pub(crate) fn show(bytes: &[u8]) -> String {
    show_text(bytes, |c| !c.is_control())
}

/// Writes the syntax into JSON, which has signs of its own for ends of lines and tabs.
pub(crate) fn show_in_json(bytes: &[u8]) -> String {
    show_text(bytes, |c| !c.is_control() || matches!(c, '\n' | '\r' | '\t'))
}

/// Writes text if all of it is plain, and else digits.
fn show_text(bytes: &[u8], is_plain: impl Fn(char) -> bool) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().all(is_plain) => show_hex(bytes),
        Ok(text) if text == "-" || PREFIXES.iter().any(|prefix| text.starts_with(prefix)) => {
            format!("text:{text}")
        }
        Ok(text) => text.to_string(),
        Err(_) => show_hex(bytes),
    }
}

/// Writes a key of a table of this kind.
pub(crate) fn show_key(kind: TableKind, key: &[u8]) -> String {
    match <[u8; 8]>::try_from(key) {
        Ok(number) if kind.has_numbers() => u64::from_be_bytes(number).to_string(),
        _ => show(key),
    }
}

/// Writes a plain value of a table of this kind.
pub(crate) fn show_value(kind: TableKind, value: &[u8]) -> String {
    match <[u8; 8]>::try_from(value) {
        Ok(number) if !kind.has_items() => u64::from_le_bytes(number).to_string(),
        _ => show(value),
    }
}

/// Writes a name, which has no syntax of its own, so that it cannot play tricks on a terminal.
pub(crate) fn show_name(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

fn show_hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(4 + bytes.len() * 2);
    text.push_str("hex:");
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// An attribute given on the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AttributeArgument {
    /// Its name.
    pub name: String,
    /// Its bytes.
    pub value: Vec<u8>,
}

impl FromStr for AttributeArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<AttributeArgument, String> {
        let (name, value) = split_name(text, "NAME=VALUE")?;
        Ok(AttributeArgument { name, value: parse(value)? })
    }
}

/// A link given on the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LinkArgument {
    /// Its name.
    pub name: String,
    /// Table of the target.
    pub table: String,
    /// Key of the target.
    pub key: KeyArgument,
    /// The link's own bytes.
    pub bytes: Vec<u8>,
}

impl FromStr for LinkArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<LinkArgument, String> {
        let (name, target) = split_name(text, "NAME=TABLE/KEY")?;
        let Some((table, key)) = target.split_once('/').filter(|(table, _)| !table.is_empty()) else {
            return Err(format!("\"{text}\": a link is written NAME=TABLE/KEY"));
        };
        let (key, bytes) = key.split_once('=').unwrap_or((key, ""));
        Ok(LinkArgument { name, table: table.to_string(), key: key.parse()?, bytes: parse(bytes)? })
    }
}

fn split_name<'a>(text: &'a str, form: &str) -> Result<(String, &'a str), String> {
    match text.split_once('=') {
        Some((name, rest)) if !name.is_empty() => Ok((name.to_string(), rest)),
        _ => Err(format!("\"{text}\": write {form}, with a name before the =")),
    }
}

/// Writes a link's target as [`LinkArgument`] reads it.
pub(crate) fn show_target(table: &str, kind: TableKind, key: &[u8], bytes: &[u8]) -> String {
    let mut text = show_key(kind, key);
    if text.contains('=') {
        text = show_hex(key);
    }
    let table = show_name(table);
    if bytes.is_empty() { format!("{table}/{text}") } else { format!("{table}/{text}={}", show(bytes)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_read_back() {
        let cases: [&[u8]; 10] = [
            b"",
            b"depcs",
            "Gr\u{fc}\u{df}e".as_bytes(),
            b"hex:beer",
            b"text:",
            b"u64:",
            b"-",
            b"two\nlines",
            b"\0\xff",
            b"\xff\xfe",
        ];
        for bytes in cases {
            assert_eq!(parse(&show(bytes)).as_deref(), Ok(bytes), "{}", show(bytes));
            assert_eq!(parse(&show_in_json(bytes)).as_deref(), Ok(bytes), "{}", show_in_json(bytes));
        }
        for byte in 0..=255 {
            assert_eq!(parse(&show(&[byte])), Ok(vec![byte]));
        }
        assert_eq!(show(b"\0\xff"), "hex:00ff");
        assert_eq!(show(b"hex:beer"), "text:hex:beer");
    }

    #[test]
    fn forms() {
        assert_eq!(parse("hex:00fF"), Ok(vec![0, 255]));
        assert_eq!(parse("u64:258"), Ok(vec![2, 1, 0, 0, 0, 0, 0, 0]));
        assert_eq!(parse("text:hex:zz"), Ok(b"hex:zz".to_vec()));
        for wrong in ["hex:0", "hex:zz", "hex:\u{fc}0", "u64:", "u64:-1", "u64:18446744073709551616"] {
            assert!(parse(wrong).unwrap_err().contains("text:"), "{wrong}");
        }
    }

    #[test]
    fn attributes_and_links() {
        let attribute: AttributeArgument = "url=http://a/?b=c".parse().unwrap();
        assert_eq!((&attribute.name[..], &attribute.value[..]), ("url", &b"http://a/?b=c"[..]));
        let link: LinkArgument = "next=roads/a/b=u64:1".parse().unwrap();
        assert_eq!((&link.table[..], link.key.of(TableKind::Hash)), ("roads", Ok(b"a/b".to_vec())));
        assert_eq!(link.bytes, 1u64.to_le_bytes());
        for wrong in ["x", "=v", ""] {
            assert!(wrong.parse::<AttributeArgument>().is_err(), "{wrong}");
        }
        for wrong in ["x", "x=y", "=t/k", "x=/k", "x=t/hex:0"] {
            assert!(wrong.parse::<LinkArgument>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn targets_can_be_read_back() {
        let cases: [(&[u8], &[u8]); 4] = [(b"k", b""), (b"a=b", b"x=y"), (b"\0", b"\0"), (b"", b"x")];
        for (key, bytes) in cases {
            for kind in [TableKind::Hash, TableKind::Strings] {
                let target = show_target("t", kind, key, bytes);
                let link: LinkArgument = format!("n={target}").parse().unwrap();
                assert_eq!((&link.key.of(kind).unwrap()[..], &link.bytes[..]), (key, bytes));
            }
        }
        let target = show_target("t", TableKind::Numbers, &42u64.to_be_bytes(), b"x");
        assert_eq!(target, "t/42=x");
        let link: LinkArgument = format!("n={target}").parse().unwrap();
        assert_eq!(link.key.of(TableKind::Inline), Ok(42u64.to_be_bytes().to_vec()));
    }

    const NUMBERS: [u64; 6] = [0, 7, 42, 0x3132_3334_3536_3738, 1 << 63, u64::MAX];

    fn key(kind: TableKind, text: &str) -> Result<Vec<u8>, String> {
        text.parse::<KeyArgument>()?.of(kind)
    }

    #[test]
    fn keys_that_are_numbers() {
        for kind in TableKind::ALL.into_iter().filter(|kind| kind.has_numbers()) {
            for number in NUMBERS {
                let bytes = number.to_be_bytes();
                assert_eq!(show_key(kind, &bytes), number.to_string());
                for form in [format!("{number}"), format!("u64:{number}"), format!("hex:{number:016x}")] {
                    assert_eq!(key(kind, &form), Ok(bytes.to_vec()), "{form}");
                }
            }
            assert_eq!(key(kind, "007"), Ok(7u64.to_be_bytes().to_vec()));
            for wrong in ["", "x", "-1", "+1", " 1", "1.0", "1e3", "18446744073709551616", "text:12345678"] {
                let error = key(kind, wrong).unwrap_err();
                assert!(
                    error.contains(&format!("\"{wrong}\"")) && error.contains("numbers up to"),
                    "{error}"
                );
            }
            for wrong in ["hex:", "hex:2a", "hex:000000000000002a00", "u64:", "u64:x", "u64:+1"] {
                assert!(key(kind, wrong).is_err(), "{wrong}");
            }
        }
    }

    #[test]
    fn keys_that_are_bytes_stay_so() {
        for kind in [TableKind::Hash, TableKind::Strings] {
            assert_eq!(key(kind, "42"), Ok(b"42".to_vec()));
            assert_eq!(key(kind, "u64:258"), Ok(vec![2, 1, 0, 0, 0, 0, 0, 0]));
            assert_eq!(show_key(kind, b"12345678"), "12345678");
            assert!(key(kind, "hex:0").is_err());
        }
    }

    #[test]
    fn values_that_are_numbers() {
        for number in NUMBERS {
            let bytes = number.to_le_bytes();
            assert_eq!(show_value(TableKind::Inline, &bytes), number.to_string());
            for form in
                [format!("{number}"), format!("u64:{number}"), format!("hex:{:016x}", number.swap_bytes())]
            {
                assert_eq!(parse_value(TableKind::Inline, &form), Ok(bytes.to_vec()), "{form}");
            }
        }
        // Text has its prefix, because eight digits are a number like any other.
        assert_eq!(parse_value(TableKind::Inline, "text:12345678"), Ok(b"12345678".to_vec()));
        assert_eq!(parse_value(TableKind::Inline, "12345678"), Ok(12_345_678u64.to_le_bytes().to_vec()));
        for wrong in
            ["", "x", "-1", "+1", "eight by", "18446744073709551616", "hex:2a", "text:1234567", "text:"]
        {
            let error = parse_value(TableKind::Inline, wrong).unwrap_err();
            assert!(error.contains(&format!("\"{wrong}\"")) && error.contains("numbers up to"), "{error}");
        }
        assert!(parse_value(TableKind::Inline, "u64:x").is_err());
        // All other kinds take any bytes, and eight of them are no number.
        for kind in [TableKind::Hash, TableKind::Numbers, TableKind::Strings] {
            assert_eq!(parse_value(kind, "42"), Ok(b"42".to_vec()));
            assert_eq!(parse_value(kind, ""), Ok(Vec::new()));
            assert_eq!(show_value(kind, b"12345678"), "12345678");
        }
    }
}
