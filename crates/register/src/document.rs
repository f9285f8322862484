//! The document of a view: the bytes of a file, or of a node of ZooKeeper.
//!
//! ```text
//! { "format": 1, "view": { ... } }      JSON, for people to read, over several lines
//! 0123456789abcdef                      XXH3-64 of all bytes before this line, in 16 hexadecimal digits
//! ```
//!
//! 1. A document is at most [`DOCUMENT_BYTES_MAX`] bytes: asserted by [`encode`] and by [`decode`].
//! 2. Documents of every format end with the line of the checksum, so that a damaged one is told from one of
//!    a later format.
//! 3. An unknown field is damage: whoever adds one raises the format. A node that left a field out would drop
//!    the field with the next view that the node proposes.

use kelix_types::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::{OPERATION, View};

/// How long a document may be, with the line of its checksum, in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 80 * 1024;
/// The format that is written, and the newest that is understood.
const FORMAT: u64 = 1;
/// Sixteen digits and the end of the line.
const CHECKSUM_LINE_BYTES: usize = 17;

/// What of a document is read first, whatever its format.
#[derive(Deserialize)]
struct Head {
    format: u64,
}

#[derive(Serialize)]
struct Writing<'a> {
    format: u64,
    view: &'a View,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reading {
    #[serde(rename = "format")]
    _format: u64,
    view: View,
}

fn checksum_line(text: &[u8]) -> String {
    format!("{:016x}\n", xxh3_64(text))
}

/// The document of a view.
///
/// # Errors
///
/// [`ErrorKind::InvalidArgument`] of a view whose document would be too long.
pub(crate) fn encode(view: &View) -> Result<Vec<u8>> {
    let document = Writing { format: FORMAT, view };
    let mut bytes = serde_json::to_vec_pretty(&document)
        .map_err(|source| Error::system(OPERATION, "cannot write the view as JSON", source))?;
    bytes.push(b'\n');
    let line = checksum_line(&bytes);
    bytes.extend_from_slice(line.as_bytes());
    if bytes.len() > DOCUMENT_BYTES_MAX {
        let context =
            format!("view {} takes {} bytes of at most {DOCUMENT_BYTES_MAX}", view.number, bytes.len());
        return Err(Error::new(ErrorKind::InvalidArgument, OPERATION, context));
    }
    Ok(bytes)
}

/// The view of a document that stands under the name `name` and the number `number`.
///
/// # Errors
///
/// [`ErrorKind::Damaged`] of bytes that nobody wrote so, [`ErrorKind::Incompatible`] of a later format.
pub(crate) fn decode(bytes: &[u8], number: u64, name: &str) -> Result<View> {
    let damaged =
        |what: String| Error::new(ErrorKind::Damaged, OPERATION, format!("{name} is damaged: {what}"));
    if bytes.is_empty() {
        return Err(damaged("it is empty".into()));
    }
    if bytes.len() > DOCUMENT_BYTES_MAX {
        return Err(damaged(format!("it is longer than {DOCUMENT_BYTES_MAX} bytes")));
    }
    let (text, line) = bytes
        .split_at_checked(bytes.len().saturating_sub(CHECKSUM_LINE_BYTES))
        .filter(|(text, _)| text.ends_with(b"\n"))
        .ok_or_else(|| damaged("the line of its checksum is missing".into()))?;
    if line != checksum_line(text).as_bytes() {
        return Err(damaged("the checksum is not that of the text; it is cut short or was edited".into()));
    }
    let json = |source: serde_json::Error| damaged("the text is no view".into()).with_source(source);
    let head: Head = serde_json::from_slice(text).map_err(json)?;
    if head.format > FORMAT {
        let context = format!(
            "{name} has format {}, and this release understands up to {FORMAT}: use a later release of Kelix",
            head.format
        );
        return Err(Error::new(ErrorKind::Incompatible, OPERATION, context));
    }
    if head.format == 0 {
        return Err(damaged("there is no format 0".into()));
    }
    let Reading { view, .. } = serde_json::from_slice(text).map_err(json)?;
    if view.number != number {
        return Err(damaged(format!("it has view {}", view.number)));
    }
    match view.defect() {
        Some(defect) => Err(damaged(defect)),
        None => Ok(view),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{largest_view, view};

    /// A document of this text with the checksum that belongs to the text.
    fn signed(text: &str) -> Vec<u8> {
        format!("{text}{}", checksum_line(text.as_bytes())).into_bytes()
    }

    fn text_of(view: &View) -> String {
        let bytes = encode(view).unwrap();
        String::from_utf8(bytes[..bytes.len() - CHECKSUM_LINE_BYTES].to_vec()).unwrap()
    }

    fn refusal(bytes: &[u8]) -> Error {
        let error = decode(bytes, 3, "view.3").unwrap_err();
        assert!(error.context().contains("view.3"), "{error}");
        error
    }

    #[test]
    fn a_view_comes_back() {
        let view = view(3, u64::MAX);
        assert_eq!(decode(&encode(&view).unwrap(), 3, "view.3").unwrap(), view);
        assert_eq!(decode(&signed(&text_of(&view)), 3, "view.3").unwrap(), view);
    }

    #[test]
    fn the_bytes_of_format_1_stay() {
        let mut view = view(3, 1);
        view.members.truncate(1);
        view.in_sync.truncate(1);
        let lines = [
            "{",
            "  \"format\": 1,",
            "  \"view\": {",
            "    \"number\": 3,",
            "    \"cluster\": 77,",
            "    \"term\": 5,",
            "    \"primary\": 101,",
            "    \"in_sync\": [",
            "      101",
            "    ],",
            "    \"min_in_sync\": 1,",
            "    \"successor\": null,",
            "    \"leaving\": [],",
            "    \"members\": [",
            "      {",
            "        \"node\": \"1\",",
            "        \"boot\": 101,",
            "        \"pid\": 4242,",
            "        \"address\": \"127.0.0.1:7000\"",
            "      }",
            "    ],",
            "    \"proposal\": 1",
            "  }",
            "}",
            "48c921fd96e99890",
            "",
        ];
        assert_eq!(String::from_utf8(encode(&view).unwrap()).unwrap(), lines.join("\n"));
    }

    #[test]
    fn the_largest_view_fits() {
        let view = largest_view(3);
        view.check().unwrap();
        assert_eq!(decode(&encode(&view).unwrap(), 3, "view.3").unwrap(), view);
    }

    #[test]
    fn every_shorter_document_is_damaged() {
        let bytes = encode(&view(3, 1)).unwrap();
        for length in 0..bytes.len() {
            assert_eq!(refusal(&bytes[..length]).kind(), ErrorKind::Damaged, "{length}");
        }
    }

    #[test]
    fn every_changed_byte_is_damage() {
        let bytes = encode(&view(3, 1)).unwrap();
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 1;
            assert_eq!(refusal(&changed).kind(), ErrorKind::Damaged, "{place}");
        }
    }

    #[test]
    fn a_later_format_is_incompatible() {
        let later = signed("{ \"format\": 2, \"shards\": [] }\n");
        assert_eq!(refusal(&later).kind(), ErrorKind::Incompatible);
        assert_eq!(refusal(&signed("{ \"format\": -1 }\n")).kind(), ErrorKind::Damaged);
        assert_eq!(refusal(&signed("{ \"format\": 1 }\n")).kind(), ErrorKind::Damaged);
    }

    #[test]
    fn a_signed_text_is_not_trusted() {
        let text = text_of(&view(3, 1));
        let change = |from: &str, to: &str| {
            assert!(text.contains(from));
            let error = refusal(&signed(&text.replacen(from, to, 1)));
            assert_eq!(error.kind(), ErrorKind::Damaged);
            error.to_string()
        };
        assert!(change("\"format\": 1", "\"format\": 0").contains("no format 0"));
        assert!(change("\"format\": 1", "\"format\": 1, \"new\": 2").contains("unknown field"));
        assert!(change("\"number\": 3", "\"number\": 4").contains("has view 4"));
        assert!(change("\"primary\": 101", "\"primary\": 103").contains("not in sync"));
        assert!(change("\"term\": 5", "\"term\": 99999999999").contains("term"));
        assert!(change("\"pid\": 4242", "\"pid\": 4294967296").contains("no view"));
        assert!(change("\"proposal\": 1", "\"proposal\": 1, \"new\": 2").contains("unknown field"));
        assert!(change("\"proposal\": 1", "\"proposal\": 1, \"proposal\": 2").contains("duplicate field"));
    }

    #[test]
    fn a_document_that_is_too_long_is_damaged() {
        let text = text_of(&view(3, 1));
        let padded = |bytes: usize| {
            let padding = bytes - text.len() - CHECKSUM_LINE_BYTES;
            signed(&format!("{}{text}", " ".repeat(padding)))
        };
        decode(&padded(DOCUMENT_BYTES_MAX), 3, "view.3").unwrap();
        assert!(refusal(&padded(DOCUMENT_BYTES_MAX + 1)).context().contains("longer"));
    }
}
