//! Bytes on the command line: the one syntax for keys and values, in both directions.
//!
//! ```text
//! depcs              the text itself, as UTF-8
//! hex:00ff10         these bytes, two hexadecimal digits each
//! u64:1234           the 8 bytes of this number, lowest first
//! text:hex:beer      the text after `text:`, whatever it looks like
//! ```
//!
//! [`show`] writes what [`parse`] reads, so that what one command prints can be handed to the next. It writes text
//! where that is possible: UTF-8 without control characters, which could play tricks on a terminal.

use std::str::FromStr;

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
so that it can be handed to another command as it is. Only `get` of a single
plain value, and --raw, print the bytes themselves. An argument that begins
with a dash and is no number goes after --.

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

/// Reads the syntax.
pub(crate) fn parse(text: &str) -> Result<Vec<u8>, String> {
    if let Some(digits) = text.strip_prefix("hex:") {
        return parse_hex(digits).ok_or_else(|| {
            format!("\"{text}\": after hex: come two hexadecimal digits a byte; text that begins so is text:{text}")
        });
    }
    if let Some(number) = text.strip_prefix("u64:") {
        let number: u64 = number.parse().map_err(|_| {
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
    match std::str::from_utf8(bytes) {
        Ok(text) if text.chars().any(char::is_control) => show_hex(bytes),
        Ok(text) if text == "-" || PREFIXES.iter().any(|prefix| text.starts_with(prefix)) => {
            format!("text:{text}")
        }
        Ok(text) => text.to_string(),
        Err(_) => show_hex(bytes),
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
    pub key: Vec<u8>,
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
        Ok(LinkArgument { name, table: table.to_string(), key: parse(key)?, bytes: parse(bytes)? })
    }
}

fn split_name<'a>(text: &'a str, form: &str) -> Result<(String, &'a str), String> {
    match text.split_once('=') {
        Some((name, rest)) if !name.is_empty() => Ok((name.to_string(), rest)),
        _ => Err(format!("\"{text}\": write {form}, with a name before the =")),
    }
}

/// Writes a link's target as [`LinkArgument`] reads it.
pub(crate) fn show_target(table: &str, key: &[u8], bytes: &[u8]) -> String {
    let mut text = show(key);
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
        assert_eq!((&link.table[..], &link.key[..]), ("roads", &b"a/b"[..]));
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
            let link: LinkArgument = format!("n={}", show_target("t", key, bytes)).parse().unwrap();
            assert_eq!((&link.key[..], &link.bytes[..]), (key, bytes));
        }
    }
}
