//! Text that a program writes inside a file that a person writes: each part stands between two marker lines,
//! `<!-- kelix NAME: begin -->` and `<!-- kelix NAME: end -->`, and everything outside them is the person's.
//!
//! 1. A part has exactly one begin and one end, and no other marker between them. Asserted by [`between`],
//!    which says what to do otherwise.
//! 2. Filling changes no byte outside the parts. Asserted by the tests of `kelix bench report`.

use std::ops::Range;

/// What a person has to write where a part shall go.
fn marker(name: &str, which: &str) -> String {
    format!("<!-- kelix {name}: {which} -->")
}

fn is_marker(line: &str) -> bool {
    line.starts_with("<!-- kelix ") && line.ends_with(" -->")
}

/// Where a part is: the bytes between its markers' lines.
fn between(text: &str, name: &str) -> Result<Range<usize>, String> {
    let (begin, end) = (marker(name, "begin"), marker(name, "end"));
    let (mut part, mut from, mut at) = (None, None, 0);
    for (index, whole) in text.split_inclusive('\n').enumerate() {
        let (line, number) = (whole.trim_end(), index + 1);
        if line == begin {
            if part.is_some() || from.is_some() {
                return Err(format!("line {number} is a second `{begin}`: keep one of them"));
            }
            from = Some((at + whole.len(), number));
        } else if line == end {
            let Some((from, _)) = from.take() else {
                return Err(format!("line {number} is `{end}` without a begin: put `{begin}` before it"));
            };
            part = Some(from..at);
        } else if let Some((_, began)) = from.filter(|_| is_marker(line)) {
            return Err(format!("`{begin}` in line {began} has no end before line {number}: add `{end}`"));
        }
        at += whole.len();
    }
    if let Some((_, began)) = from {
        return Err(format!("`{begin}` in line {began} has no end: add `{end}` after it"));
    }
    part.ok_or_else(|| {
        format!("there is no line `{begin}`: add it, and `{end}` below, where this should stand")
    })
}

/// The text with these parts filled, by name.
pub(crate) fn filled(text: &str, parts: &[(String, String)]) -> Result<String, String> {
    let mut text = text.to_string();
    for (name, inside) in parts {
        let part = between(&text, name)?;
        // An empty line on each side, without which Markdown takes a table for part of the comment.
        text.replace_range(part, &format!("\n{}\n\n", inside.trim_end()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "prose\n<!-- kelix a: begin -->\nold\n<!-- kelix a: end -->\nmore\n\
                        <!-- kelix b: begin -->\n<!-- kelix b: end -->\nlast";

    fn fill(text: &str, name: &str) -> Result<String, String> {
        filled(text, &[(name.to_string(), "new\n".to_string())])
    }

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let wanted = TEXT.replace("old", "\nnew\n");
        assert_eq!(fill(TEXT, "a").as_ref(), Ok(&wanted));
        assert_eq!(fill(&wanted, "a").as_ref(), Ok(&wanted), "again it is the same");
        let wanted = TEXT.replace("b: begin -->\n", "b: begin -->\n\nnew\n\n");
        assert_eq!(fill(TEXT, "b").as_ref(), Ok(&wanted));
    }

    #[test]
    fn what_is_wrong_is_told_with_what_to_do() {
        let said = |text: &str, name| fill(text, name).expect_err("wrong markers");
        assert!(said(TEXT, "c").contains("there is no line `<!-- kelix c: begin -->`: add it"));
        let endless = TEXT.replace("<!-- kelix b: end -->\n", "");
        assert!(said(&endless, "b").contains("line 6 has no end: add `<!-- kelix b: end -->`"));
        let crossed = TEXT.replace("<!-- kelix a: end -->\n", "");
        assert!(said(&crossed, "a").contains("line 2 has no end before line 5"));
        let backwards = TEXT.replace("<!-- kelix a: begin -->\n", "");
        assert!(said(&backwards, "a").contains("line 3 is `<!-- kelix a: end -->` without a begin"));
        assert!(said(&format!("{TEXT}\n<!-- kelix a: begin -->"), "a").contains("second"));
    }
}
