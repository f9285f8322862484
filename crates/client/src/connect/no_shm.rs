//! What stands for `shm` on systems without it: it says so.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kelix_fabric::Endpoint;
use kelix_image::MemoryMap;
use kelix_types::{Error, ErrorKind, Result};
use kelix_wire::control::Frame;

use crate::session::SessionOptions;
use crate::transport::Transport;

/// A set-up connection over shared memory: there is none.
pub(crate) enum Link {}

fn refused(directory: &Path) -> Error {
    let context = format!(
        "{} is a run directory, and shared memory is there on Linux only: name a server that listens over TCP, as HOST:PORT",
        directory.display()
    );
    Error::new(ErrorKind::InvalidArgument, "connect", context)
}

pub(super) fn listens_at(directory: &Path) -> Result<String> {
    Err(refused(directory))
}

impl Link {
    pub fn open(directory: &Path, _: Duration) -> Result<Link> {
        Err(refused(directory))
    }

    pub fn statistics(directory: &Path, _: &Frame, _: Duration) -> Result<String> {
        Err(refused(directory))
    }

    pub fn snapshot(directory: &Path, _: &Frame, _: Duration) -> Result<String> {
        Err(refused(directory))
    }

    pub fn refresh_map(&mut self, _: u16, _: &MemoryMap) -> Result<Arc<MemoryMap>> {
        match *self {}
    }

    pub fn session(directory: &Path, _: &Frame, _: &SessionOptions) -> Result<(Link, Transport<Endpoint>)> {
        Err(refused(directory))
    }
}
