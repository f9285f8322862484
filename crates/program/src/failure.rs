//! How a command fails: an exit code for scripts, words for people, an object for `--json`.
//!
//! ```text
//! 0  done
//! 1  not there, or a comparison failed
//! 2  usage, or an argument that makes no sense
//! 3  no server, or it has gone, was superseded or did not answer in time
//! 4  the server's memory is full
//! 5  anything else
//! ```
//!
//! The codes are part of the interface: docs/command-line.md and the help of the program tell them.

use std::io;
use std::process::ExitCode;

use kelix::{Effect, Error, ErrorKind};
use rustix::io::Errno;
use serde_json::json;

use crate::output::{self, say};

/// The exit codes. Success is not among them, because it is no failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// A key, a table or a link is not there, or a version is not the expected one.
    NotThere = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// No server, or none any more.
    NoServer = 3,
    /// The server's memory is full.
    OutOfMemory = 4,
    /// Anything else.
    Other = 5,
}

/// A command's failure.
#[derive(Debug)]
pub struct Failure {
    exit: u8,
    kind: &'static str,
    retry: bool,
    effect: Effect,
    operation: String,
    context: String,
    /// Whoever read the output has gone; there is nobody to tell and nothing wrong.
    quiet: bool,
}

impl Failure {
    /// A failure of `operation`; `context` says what happened and what to do about it.
    pub fn new(exit: Exit, operation: &str, context: impl Into<String>) -> Failure {
        let kind = match exit {
            Exit::NotThere => "not there",
            Exit::Usage => ErrorKind::InvalidArgument.name(),
            Exit::NoServer => ErrorKind::Unavailable.name(),
            Exit::OutOfMemory => ErrorKind::OutOfMemory.name(),
            Exit::Other => "failed",
        };
        Failure {
            exit: exit as u8,
            kind,
            retry: exit == Exit::NoServer,
            effect: Effect::No,
            operation: operation.to_string(),
            context: context.into(),
            quiet: false,
        }
    }

    /// What was looked for is not there.
    pub fn not_there(context: impl Into<String>) -> Failure {
        Failure::new(Exit::NotThere, "", context)
    }

    /// A failure without words unless something was found: where the program looked for it, the program
    /// tells.
    pub fn unless(found: bool) -> Result<(), Failure> {
        if found { Ok(()) } else { Err(Failure::not_there("")) }
    }

    /// An argument that makes no sense.
    pub fn usage(operation: &str, context: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, operation, context)
    }

    /// A file or a stream that cannot be read or written.
    pub fn io(operation: &str, what: impl std::fmt::Display, source: &io::Error) -> Failure {
        Failure {
            kind: ErrorKind::System.name(),
            ..Failure::new(
                Exit::Other,
                operation,
                format!("{what}: {source}{}", advice(Errno::from_io_error(source))),
            )
        }
    }

    /// The same failure under another name.
    pub fn named(self, kind: &'static str) -> Failure {
        Failure { kind, ..self }
    }

    /// The object that `--json` prints.
    pub fn json(&self) -> serde_json::Value {
        let effect = match self.effect {
            Effect::No => "no",
            Effect::Yes => "yes",
            Effect::Unknown => "unknown",
        };
        json!({"error": {
            "kind": self.kind,
            "retry": self.retry,
            "effect": effect,
            "operation": self.operation,
            "context": self.context,
        }})
    }

    /// The same failure, with where the command stands that failed.
    pub fn at(self, place: &str) -> Failure {
        Failure { context: format!("{place}: {}", self.context), ..self }
    }

    /// The same failure with advice.
    pub fn with(self, advice: &str) -> Failure {
        Failure { context: format!("{}; {advice}", self.context), ..self }
    }

    /// A failure that came after the write was done.
    pub fn after_write(self) -> Failure {
        Failure { effect: Effect::Yes, ..self }
    }

    /// The exit code.
    pub fn code(&self) -> u8 {
        if self.quiet { 0 } else { self.exit }
    }

    /// Whether whoever read the output has gone.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether the server is lost.
    pub fn is_lost(&self) -> bool {
        self.exit == Exit::NoServer as u8
    }

    /// Tells the failure on standard error and returns the exit code.
    pub fn report(&self, as_json: bool) -> ExitCode {
        match as_json && !self.quiet {
            true => say(&self.json().to_string()),
            false => self.tell("kelix"),
        }
        ExitCode::from(self.code())
    }

    /// Tells the failure of a program in words, if there are any.
    pub fn tell(&self, program: &str) {
        if !self.quiet && !self.context.is_empty() {
            say(&format!("{program}: {self}"));
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.context)?;
        match self.effect {
            Effect::No => Ok(()),
            Effect::Yes => f.write_str("; the write took effect"),
            Effect::Unknown => {
                f.write_str("; whether the write took effect is unknown: get the key before you try again")
            }
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let context = match std::error::Error::source(&error) {
            Some(source) => {
                let number = source.downcast_ref().map_or_else(
                    || source.downcast_ref::<io::Error>().and_then(Errno::from_io_error),
                    |number: &Errno| Some(*number),
                );
                let advice = if error.context().contains("ulimit") { "" } else { advice(number) };
                format!("{} ({source}){advice}", error.context())
            }
            None => error.context().to_string(),
        };
        Failure {
            exit: error.kind().exit_code(),
            kind: error.kind().name(),
            retry: error.retry(),
            effect: error.effect(),
            operation: error.operation().to_string(),
            context,
            quiet: false,
        }
    }
}

/// What to do where the system's words alone do not say.
fn advice(number: Option<Errno>) -> &'static str {
    if number == Some(Errno::MFILE) { "; raise the limit on open files, `ulimit -n`" } else { "" }
}

/// Anything else: a file, the system.
impl From<String> for Failure {
    fn from(context: String) -> Failure {
        Failure::new(Exit::Other, "", context)
    }
}

impl From<&str> for Failure {
    fn from(context: &str) -> Failure {
        context.to_string().into()
    }
}

/// For what fails in one way only.
impl From<Failure> for String {
    fn from(failure: Failure) -> String {
        failure.to_string()
    }
}

/// Writing the output failed.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        let quiet = error.kind() == io::ErrorKind::BrokenPipe;
        let context = format!("cannot write the output: {}", output::why(&error));
        Failure { quiet, kind: ErrorKind::System.name(), ..Failure::new(Exit::Other, "print", context) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_errors_keep_what_they_say() {
        let error = Error::new(ErrorKind::TimedOut, "put", "no answer").with_effect(Effect::Unknown);
        let failure = Failure::from(error);
        assert_eq!(failure.code(), Exit::NoServer as u8);
        assert!(failure.to_string().contains("unknown"), "{failure}");
        let json = failure.json();
        assert_eq!(json["error"]["kind"], "timed out");
        assert_eq!(json["error"]["retry"], true);
        assert_eq!(json["error"]["effect"], "unknown");
        assert_eq!(json["error"]["operation"], "put");
    }

    #[test]
    fn a_lost_server_keeps_its_exit_code_with_advice_beside() {
        let lost = || Failure::from(Error::new(ErrorKind::Unavailable, "walk", "the server has gone"));
        assert_eq!((lost().code(), lost().with("load again").code()), (3, 3));
        assert_eq!(Failure::from("a file").code(), 5);
    }

    #[test]
    fn a_reader_that_has_gone_is_no_failure() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(failure.quiet);
        assert!(!Failure::from(io::Error::from(io::ErrorKind::StorageFull)).quiet);
    }
}
