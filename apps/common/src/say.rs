//! What a program prints, and how it ends.

use std::io::Write;
use std::process::ExitCode;

use kelix::ErrorKind;

/// In place of an error: nobody reads what is printed any more, so that there is nothing left to do and nobody to tell.
const UNHEARD: &str = "";

/// Prints a line. An error if that is not possible, or of no use any more.
pub fn say(line: std::fmt::Arguments<'_>) -> Result<(), String> {
    writeln!(std::io::stdout().lock(), "{line}").map_err(unprinted)
}

/// An error of the output in words.
pub fn unprinted(error: std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::BrokenPipe => UNHEARD.into(),
        _ => format!("cannot print: {error}"),
    }
}

/// Why a program came to nothing, with the exit code that `kelix` has for it.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    /// What was looked for is not there.
    pub fn not_there(text: impl Into<String>) -> Failure {
        Failure { code: 1, text: text.into() }
    }

    /// A failure without words unless something was found: where it was looked for, it is told.
    pub fn unless(found: bool) -> Result<(), Failure> {
        if found { Ok(()) } else { Err(Failure::not_there("")) }
    }

    /// The command line makes no sense.
    pub fn usage(text: impl Into<String>) -> Failure {
        Failure { code: 2, text: text.into() }
    }
}

impl From<kelix::Error> for Failure {
    fn from(error: kelix::Error) -> Failure {
        let code = match error.kind() {
            ErrorKind::NoSuchTable | ErrorKind::NoSuchAttribute => 1,
            ErrorKind::InvalidArgument => 2,
            ErrorKind::Unavailable | ErrorKind::TimedOut | ErrorKind::Superseded => 3,
            ErrorKind::OutOfMemory => 4,
            _ => 5,
        };
        Failure { code, text: error.to_string() }
    }
}

/// Anything else: a file, the output, the system.
impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure { code: if text == UNHEARD { 0 } else { 5 }, text }
    }
}

/// For benchmarks, which have stores of their own and no other way to fail.
impl From<Failure> for String {
    fn from(failure: Failure) -> String {
        failure.text
    }
}

/// How a program ends, having told what went wrong.
pub fn end(program: &str, result: Result<(), Failure>) -> ExitCode {
    let Err(Failure { code, text }) = result else { return ExitCode::SUCCESS };
    if !text.is_empty() {
        eprintln!("{program}: {text}");
    }
    ExitCode::from(code)
}
