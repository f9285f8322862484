//! The built program, each test with a directory of its own.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// How long anything may take before a test gives up. Nothing takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(60);

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

/// What a run left behind.
#[derive(Debug)]
pub struct Done {
    pub code: i32,
    pub out: Vec<u8>,
    pub err: String,
}

impl Done {
    /// The JSON that it printed.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
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

/// A directory.
pub struct Place(TempDir);

impl Place {
    pub fn new() -> Place {
        Place(tempfile::Builder::new().prefix("kelix-tests-of-bench-").tempdir().expect("a directory"))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A file in the directory, for a test's own use.
    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        path
    }

    /// The program with these arguments.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kelix-bench"));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs it to its end.
    pub fn bench(&self, args: &[&str]) -> Done {
        let done = self.command(args).output().expect("the program runs");
        let err = String::from_utf8_lossy(&done.stderr).into_owned();
        Done { code: done.status.code().expect("an exit code"), out: done.stdout, err }
    }
}
