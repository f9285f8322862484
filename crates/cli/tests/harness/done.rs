//! What a program that was run left behind, and waiting for what must come. Tests of the benchmarks use it too.

use std::time::{Duration, Instant};

use serde_json::Value;

/// How long anything may take before a test gives up. Nothing takes nearly as long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `condition` gives something.
pub fn wait_until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(began.elapsed() < PATIENCE, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What a command left behind.
#[derive(Debug)]
pub struct Done {
    pub code: i32,
    pub out: Vec<u8>,
    pub err: String,
}

impl Done {
    /// What it printed.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.out).expect("text")
    }

    /// The same, of a command that must have succeeded without complaints.
    #[track_caller]
    pub fn ok(&self) -> &str {
        assert_eq!((self.code, &self.err[..]), (0, ""), "{self:?}");
        self.text()
    }

    /// The JSON that it printed.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The error object on standard error, of a command that must have failed with this code.
    #[track_caller]
    pub fn error(&self, code: i32) -> Value {
        assert_eq!(self.code, code, "{self:?}");
        let mut error: Value =
            serde_json::from_str(&self.err).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        error["error"].take()
    }

    /// Asserts that it failed with this code and that its message contains all these words.
    #[track_caller]
    pub fn failed(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "\"{word}\" is not in {self:?}");
        }
    }
}
