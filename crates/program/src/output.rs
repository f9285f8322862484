//! Standard output, as it is when the program begins, and what is printed.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{MemfdFlags, OFlags, SealFlags};

use serde_json::Value;

use crate::Failure;

static UNUSABLE: AtomicBool = AtomicBool::new(false);

/// Has writes fail where standard output is closed, or open for reading only. The standard library takes such
/// writes for done, so something takes its place that fails in another way.
pub fn check() -> Result<(), Failure> {
    let stdout = rustix::stdio::stdout();
    let reads_only =
        rustix::fs::fcntl_getfl(stdout).is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDONLY);
    if !reads_only && !kelix_fabric::output::was_closed() {
        return Ok(());
    }
    UNUSABLE.store(true, Ordering::Relaxed);
    let replace = || {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let nothing = rustix::fs::memfd_create("kelix-no-output", flags)?;
        rustix::fs::fcntl_add_seals(&nothing, SealFlags::WRITE | SealFlags::GROW)?;
        rustix::stdio::dup2_stdout(&nothing)
    };
    let replaced: rustix::io::Result<()> = replace();
    replaced.map_err(|error| Failure::io("start", "no standard output", &error.into()))
}

/// Fails where nothing can be written, for a program that gives way to another one.
pub fn check_usable() -> Result<(), Failure> {
    match UNUSABLE.load(Ordering::Relaxed) {
        true => Err(io::Error::from(io::ErrorKind::PermissionDenied).into()),
        false => Ok(()),
    }
}

/// Why it cannot be written.
pub(crate) fn why(error: &io::Error) -> String {
    match UNUSABLE.load(Ordering::Relaxed) {
        true => "it is closed, or open for reading only".into(),
        false => error.to_string(),
    }
}

/// Prints one JSON value: indented for people, on one line for programs.
pub fn print_json(value: &Value) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let text = if out.is_terminal() { format!("{value:#}") } else { value.to_string() };
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Says something on standard error. Nobody may be listening, which is no reason to fail. Names in it are
/// perhaps of others, who are not to play tricks on a terminal.
pub fn say(text: &str) {
    let hides = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    let text = text.replace(hides, "\u{fffd}");
    let _ = writeln!(io::stderr(), "{text}");
}
