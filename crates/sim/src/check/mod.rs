//! Checkers: each looks at a run's record and says what is wrong with it.

use std::fmt;

pub mod linear;
pub mod sessions;

/// What a checker found wrong, for a person to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which checker found it.
    pub checker: &'static str,
    /// What is wrong, in one sentence.
    pub what: String,
    /// The part of the record that shows it, one line each.
    pub details: Vec<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.checker, self.what)?;
        for line in &self.details {
            write!(f, "\n    {line}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Finding {}
