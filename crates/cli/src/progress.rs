//! Progress of what takes long, on one line of a terminal.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often progress is shown.
const SHOWN_EACH: Duration = Duration::from_millis(200);

/// The line, if standard error is a terminal.
pub(crate) struct Line {
    shows: bool,
    shown: Option<Instant>,
    width: usize,
}

impl Line {
    /// A line for people; for programs that read JSON there is none.
    pub fn new(json: bool) -> Line {
        Line { shows: !json && std::io::stderr().is_terminal(), shown: None, width: 0 }
    }

    /// Shows a text, but not too often.
    pub fn show(&mut self, text: impl FnOnce() -> String) {
        if self.shows && self.shown.is_none_or(|shown| shown.elapsed() >= SHOWN_EACH) {
            self.write(&text());
        }
    }

    fn write(&mut self, text: &str) {
        let _ = write!(std::io::stderr(), "\r{text:width$}", width = self.width);
        let _ = std::io::stderr().flush();
        self.width = text.chars().count();
        self.shown = Some(Instant::now());
    }

    /// Leaves an empty line behind.
    pub fn clear(&mut self) {
        if self.shown.is_some() {
            self.write("");
            let _ = write!(std::io::stderr(), "\r");
        }
    }
}
