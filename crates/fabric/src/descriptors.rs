//! Descriptors for libraries that take them for granted.

use std::io;
use std::os::unix::net::UnixStream;

/// Pairs of descriptors, of which a runtime of tokio needs fewer.
const PAIRS: usize = 4;

/// Checks that a runtime of tokio will find the descriptors that it opens. Without those for its signals
/// tokio panics, and it has signals where another program of the same build wants them.
pub fn check_for_runtime() -> io::Result<()> {
    (0..PAIRS).map(|_| UnixStream::pair()).collect::<io::Result<Vec<_>>>().map(drop)
}
