//! What a program prints, and how it ends.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// In place of an error: nobody reads what is printed any more, so that there is nothing left to do and nobody to tell.
const UNHEARD: &str = "";

/// Prints a line. An error if that is not possible, or of no use any more.
pub fn say(line: std::fmt::Arguments<'_>) -> Result<(), String> {
    writeln!(std::io::stdout().lock(), "{line}").map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => UNHEARD.into(),
        _ => format!("cannot print: {error}"),
    })
}

/// How a program ends, having told what went wrong.
pub fn end(program: &str, result: Result<(), String>) -> ExitCode {
    match result {
        Err(error) if error != UNHEARD => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}
