//! What a program prints, and how it ends.

use std::io::Write;
use std::process::ExitCode;

/// In place of an error: nobody reads what is printed any more, so that there is nothing left to do and nobody to tell.
const UNHEARD: &str = "";

/// Prints a line. An error if that is not possible, or of no use any more.
pub fn say(line: std::fmt::Arguments<'_>) -> Result<(), String> {
    writeln!(std::io::stdout().lock(), "{line}").map_err(unprinted)
}

/// Says something on standard error. Nobody may be listening, which is no reason to fail.
pub fn complain(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
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

    /// A failure with advice.
    pub fn with(self, advice: &str) -> Failure {
        Failure { text: format!("{}; {advice}", self.text), ..self }
    }

    /// The command line makes no sense.
    pub fn usage(text: impl Into<String>) -> Failure {
        Failure { code: 2, text: text.into() }
    }
}

impl From<kelix::Error> for Failure {
    fn from(error: kelix::Error) -> Failure {
        Failure { code: error.kind().exit_code(), text: error.to_string() }
    }
}

/// Anything else: a file, the output, the system.
impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure { code: if text == UNHEARD { 0 } else { 5 }, text }
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Failure {
        text.to_string().into()
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
        complain(format_args!("{program}: {text}"));
    }
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use kelix::{Error, ErrorKind};

    use super::*;

    #[test]
    fn a_lost_server_keeps_its_exit_code_with_advice_beside() {
        let lost = || Failure::from(Error::new(ErrorKind::Unavailable, "walk", "the server has gone"));
        assert_eq!((lost().code, lost().with("load again").code), (3, 3));
        assert_eq!(Failure::from("a file").code, 5);
        assert_eq!(Failure::from(unprinted(std::io::ErrorKind::BrokenPipe.into())).code, 0);
    }
}
