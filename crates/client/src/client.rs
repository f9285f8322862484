//! The client: where the server is, and the way to sessions.

#[cfg(target_os = "linux")]
use std::path::PathBuf;
use std::sync::Arc;

use kelix_types::Result;

use crate::connect::{self, Address, Credentials};
use crate::session::{Session, SessionOptions};

/// A server's clients in this process. Cheap to clone and shared by threads, each of which opens its own
/// [`Session`].
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) address: Arc<Address>,
    pub(crate) credentials: Arc<Credentials>,
}

impl Client {
    /// The run directory that servers and clients use when none is named: `$KELIX_DIR`, else
    /// `$XDG_RUNTIME_DIR/kelix`, else `/tmp/kelix-UID`. Run directories are there on Linux only.
    #[cfg(target_os = "linux")]
    pub fn default_directory() -> PathBuf {
        kelix_fabric::shm::RunDirectory::default_path()
    }

    /// Finds the server at an address: a run directory, or a host and port. An error if none answers.
    pub fn connect(address: impl Into<Address>) -> Result<Client> {
        Client::connect_with(address, Credentials::default())
    }

    /// The same with something to say for oneself, where the server wants that.
    pub fn connect_with(address: impl Into<Address>, credentials: Credentials) -> Result<Client> {
        let address = address.into();
        connect::knock(&address, &credentials)?;
        Ok(Client { address: Arc::new(address), credentials: Arc::new(credentials) })
    }

    /// Opens a session for the calling thread.
    pub fn session(&self) -> Result<Session> {
        self.session_with(SessionOptions::default())
    }

    /// Opens a session with other than the usual options.
    pub fn session_with(&self, options: SessionOptions) -> Result<Session> {
        Session::open(self, options)
    }

    /// Has the server take a snapshot, and waits for it: where it is, or why there is none, as JSON. For the user whose the server is, on
    /// its host.
    pub fn snapshot(&self) -> Result<String> {
        connect::snapshot(&self.address, &self.credentials)
    }

    /// What the server tells of itself, its shards and its clients, as JSON.
    pub fn statistics(&self) -> Result<String> {
        connect::statistics(&self.address, &self.credentials)
    }
}
