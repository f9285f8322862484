//! The built program, each test with a directory of its own.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

#[path = "../../../crates/cli/tests/harness/done.rs"]
mod done;

pub use done::*;

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
