//! What the programs of Kelix have in common: how they begin and end ([`begin`], [`Failure`]), what they
//! print ([`output`]), how sizes, counts and times are written ([`units`]), and what `kelix bench` takes
//! ([`mod@bench`]), which `kelix` explains and `kelix-bench` does.

#![forbid(unsafe_code)]

pub mod bench;
mod failure;
pub mod output;
pub mod units;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::process::Signal;

pub use failure::{Exit, Failure};

/// What a program does first: has the system's refusals be errors, and not its sudden end.
pub fn begin() -> Result<(), Failure> {
    // A write beyond the limit on the length of files is an error then, as on a full disk, and ends nothing.
    let limit = signal_hook::flag::register(Signal::XFSZ.as_raw(), Arc::default());
    // Memory that the system refuses aborts the program, with a message of the language's: that ends it as
    // other failures do.
    let (abort, always) = (Signal::ABORT.as_raw(), Arc::new(AtomicBool::new(true)));
    let aborts = signal_hook::flag::register_conditional_shutdown(abort, Exit::Other as i32, always);
    limit.and(aborts).map_err(|error| Failure::io("start", "cannot watch for signals", &error))?;
    output::check()
}

/// How a program ends, having told what went wrong.
pub fn end(program: &str, result: Result<(), Failure>) -> ExitCode {
    let Err(failure) = result else { return ExitCode::SUCCESS };
    failure.tell(program);
    ExitCode::from(failure.code())
}

/// Where a program of this name stands that was built and installed with this one.
pub fn beside(name: &str) -> std::io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(name))
}
