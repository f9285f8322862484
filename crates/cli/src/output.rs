//! Standard output, as it is when the program begins.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{MemfdFlags, OFlags, SealFlags};

use crate::Failure;

static UNUSABLE: AtomicBool = AtomicBool::new(false);

/// Has writes fail where standard output is closed, or open for reading only. The standard library takes such writes for done, so something takes its
/// place that fails in another way.
pub(crate) fn check() -> Result<(), Failure> {
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

/// Why it cannot be written.
pub(crate) fn why(error: &io::Error) -> String {
    match UNUSABLE.load(Ordering::Relaxed) {
        true => "it is closed, or open for reading only".into(),
        false => error.to_string(),
    }
}
