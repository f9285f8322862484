//! What connections to a database are waited for with.

use std::io;
use std::os::unix::net::UnixStream;

use tokio::runtime::{Builder, Runtime};

/// Pairs of descriptors, of which a runtime needs fewer.
const PAIRS: usize = 4;

/// A runtime of the calling thread's. Without descriptors for it tokio panics, if it is built with signals, as for some other program of the same build: so they
/// are opened once before.
pub fn runtime() -> io::Result<Runtime> {
    let spare = (0..PAIRS).map(|_| UnixStream::pair()).collect::<io::Result<Vec<_>>>()?;
    drop(spare);
    Builder::new_current_thread().enable_all().build()
}
