//! What is wrong with a map or with rows, told so that it can be found and put right.

use std::fmt;

/// Findings that are told in full; of those beyond it only the number is.
pub const FINDINGS_TOLD: usize = 20;

/// Bytes of a value that a message shows.
const SHOWN_BYTES: usize = 60;

/// One thing that is wrong: where, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The map's or the source's file, or a table of the map.
    pub source: String,
    /// The row there, in words: `row 17`, `line 3`.
    pub place: Option<String>,
    /// The column.
    pub column: Option<String>,
    /// What is wrong, and what to do.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)?;
        if let Some(place) = &self.place {
            write!(f, ", {place}")?;
        }
        if let Some(column) = &self.column {
            write!(f, ", column {column}")?;
        }
        write!(f, ": {}", self.text)
    }
}

/// The findings of a load: the first ones, and how many more there are.
#[derive(Clone, Default, Debug)]
pub struct Findings {
    told: Vec<Finding>,
    count: u64,
}

impl Findings {
    /// None yet.
    pub fn new() -> Findings {
        Findings::default()
    }

    /// Adds one. It is made only if it is among those that are told.
    pub fn add(&mut self, finding: impl FnOnce() -> Finding) {
        self.count += 1;
        if self.told.len() < FINDINGS_TOLD {
            self.told.push(finding());
        }
    }

    /// Adds so many that nobody will be told about.
    pub fn add_untold(&mut self, count: u64) {
        self.count += count;
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many there are, those that are not told included.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The first ones.
    pub fn told(&self) -> &[Finding] {
        &self.told
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, finding) in self.told.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{finding}")?;
        }
        match self.count - self.told.len() as u64 {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

/// A value as a message shows it: in quotes, not too long, bytes that are no text as escapes.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let (part, more) = match bytes.len() > SHOWN_BYTES {
        true => (&bytes[..SHOWN_BYTES], "..."),
        false => (bytes, ""),
    };
    let mut text = String::from("\"");
    for chunk in part.utf8_chunks() {
        chunk.valid().chars().for_each(|c| match c {
            '"' => text.push('"'),
            _ if c.is_control() => text.extend(c.escape_default()),
            _ => text.push(c),
        });
        // The last character may have been cut in two.
        if more.is_empty() {
            chunk.invalid().iter().for_each(|byte| text += &format!("\\x{byte:02x}"));
        }
    }
    text + "\"" + more
}

/// A key as a message shows it: of tables of numbers the number.
pub(crate) fn shown_key(numbers: bool, key: &[u8]) -> String {
    match <[u8; 8]>::try_from(key) {
        Ok(number) if numbers => u64::from_be_bytes(number).to_string(),
        _ => shown(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_are_told_and_the_others_counted() {
        let mut findings = Findings::new();
        for row in 0..25 {
            findings.add(|| Finding {
                source: "people.csv".into(),
                place: Some(format!("line {row}")),
                column: Some("id".into()),
                text: "no key".into(),
            });
        }
        let text = findings.to_string();
        assert_eq!(text.lines().count(), FINDINGS_TOLD + 1);
        assert_eq!(text.lines().next(), Some("people.csv, line 0, column id: no key"));
        assert_eq!(text.lines().last(), Some("and 5 more"));
    }

    #[test]
    fn values_are_shown_as_text_of_one_line() {
        assert_eq!(shown("Zoë\n".as_bytes()), "\"Zoë\\n\"");
        assert_eq!(shown(b"a\xff"), "\"a\\xff\"");
        assert!(shown(&[b'x'; 100]).ends_with("\"..."));
        assert_eq!(shown_key(true, &7u64.to_be_bytes()), "7");
    }
}
