//! Whether the program was begun with a standard output.
//!
//! The runtime of the language opens `/dev/null` in place of a standard output that is closed, so whatever is
//! printed would be lost without an error. What the linker lists to run before that can still tell.

use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

/// Runs before `main`, while there is one thread.
#[used]
// SAFETY: the section holds pointers to functions, which the C library calls with arguments that this one
// does not look at. It needs nothing of the language's runtime: it makes a system call, and stores a word.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = {
    extern "C" fn look() {
        let closed = rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_err();
        CLOSED.store(closed, Ordering::Relaxed);
    }
    look
};

/// Whether standard output was closed when the program began.
pub fn was_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}
