//! The client: where the server is, and the way to sessions.

#[cfg(target_os = "linux")]
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kelix_fabric::WAIT_MAX;
use kelix_types::Result;

use crate::connect::{self, Address, Credentials};
use crate::engine::{between_tries, is_passing};
use crate::session::{Session, SessionOptions};
use crate::statistics::{SnapshotTaken, Statistics};

/// A server's clients in this process. Cheap to clone and shared by threads, each of which opens its own
/// [`Session`].
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) address: Arc<Address>,
    pub(crate) credentials: Arc<Credentials>,
    pub(crate) patience: ConnectOptions,
}

/// How long to wait for a server.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// How long the server may take to answer, without anything coming meanwhile.
    pub timeout: Duration,
    /// For how long to try again where no server is, or it does not answer. Zero: not at all.
    pub retry_for: Duration,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions { timeout: connect::ANSWER, retry_for: Duration::ZERO }
    }
}

impl ConnectOptions {
    /// Sets [`ConnectOptions::timeout`].
    pub fn timeout(self, timeout: Duration) -> ConnectOptions {
        ConnectOptions { timeout, ..self }
    }

    /// Sets [`ConnectOptions::retry_for`].
    pub fn retry_for(self, retry_for: Duration) -> ConnectOptions {
        ConnectOptions { retry_for, ..self }
    }

    fn answer(&self) -> Duration {
        // The system refuses to wait for no time at all.
        self.timeout.clamp(Duration::from_millis(1), WAIT_MAX)
    }
}

/// Tries until there is a server that answers, or the time is over: then it is the last error.
pub(crate) fn until_there<T>(time: Duration, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let began = Instant::now();
    loop {
        match attempt() {
            Err(error) if is_passing(&error) && began.elapsed() < time => {
                std::thread::sleep(between_tries(began.elapsed()));
            }
            result => return result,
        }
    }
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
        Client::connect_within(address, credentials, ConnectOptions::default())
    }

    /// The same, waiting for as long as `patience` says: also for a server that is not there yet.
    pub fn connect_within(
        address: impl Into<Address>,
        credentials: Credentials,
        patience: ConnectOptions,
    ) -> Result<Client> {
        let address = address.into();
        until_there(patience.retry_for, || connect::knock(&address, &credentials, patience.answer()))?;
        Ok(Client { address: Arc::new(address), credentials: Arc::new(credentials), patience })
    }

    /// Opens a session for the calling thread.
    pub fn session(&self) -> Result<Session> {
        self.session_with(SessionOptions::default())
    }

    /// Opens a session with other than the usual options.
    pub fn session_with(&self, options: SessionOptions) -> Result<Session> {
        Session::open(self, options)
    }

    /// Has the server take a snapshot, and waits for it. For the user whose the server is, on its host.
    pub fn snapshot(&self) -> Result<SnapshotTaken> {
        let answer = connect::snapshot(&self.address, &self.credentials, self.patience.answer())?;
        SnapshotTaken::of_json(&answer)
    }

    /// What the server tells of itself, its shards and its clients.
    pub fn statistics(&self) -> Result<Statistics> {
        let answer = until_there(self.patience.retry_for, || {
            connect::statistics(&self.address, &self.credentials, self.patience.answer())
        })?;
        Statistics::of_json(&answer)
    }
}
