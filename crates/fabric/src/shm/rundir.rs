//! The run directory: where a server and its clients meet.
//!
//! ```text
//! socket.T    the Unix socket of the server of term T: a name of its own, so that no server can take or remove
//!             another's
//! authority   one page: word 0 the magic, word 1 the term in force. Every server that starts here raises it before
//!             its first reply; a reader believes an image only while its term is the one in force.
//! lock        held by the server; holds its process id
//! tcp         where the server also listens over TCP, if it does
//! ```

use std::path::{Path, PathBuf};

/// Bytes of the authority page.
pub const AUTHORITY_BYTES: u64 = 4096;
/// First word of the authority page.
pub const AUTHORITY_MAGIC: u64 = u64::from_le_bytes(*b"KELIXAUT");
/// Word of the authority page that holds the term in force.
pub const AUTHORITY_TERM: usize = 1;
/// Word of the authority page that is 1 while the server of the term in force lets clients READ over verbs.
pub const AUTHORITY_LEASED: usize = 2;

/// A run directory.
#[derive(Clone, Debug)]
pub struct RunDirectory(pub PathBuf);

impl RunDirectory {
    /// The directory that is used when none is named: `$KELIX_DIR`, else `$XDG_RUNTIME_DIR/kelix`, else
    /// `/tmp/kelix-UID`.
    pub fn default_path() -> PathBuf {
        if let Some(dir) = std::env::var_os("KELIX_DIR").filter(|dir| !dir.is_empty()) {
            return dir.into();
        }
        match std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| Path::new(dir).is_dir()) {
            Some(dir) => Path::new(&dir).join("kelix"),
            None => format!("/tmp/kelix-{}", rustix::process::getuid().as_raw()).into(),
        }
    }

    /// The socket of a term.
    pub fn socket(&self, term: u64) -> PathBuf {
        self.0.join(format!("socket.{term}"))
    }

    /// The term in force now, as the authority page tells it.
    pub fn term(&self) -> std::io::Result<u64> {
        let page = std::fs::read(self.authority())?;
        let word = |at: usize| Some(u64::from_le_bytes(page.get(at * 8..at * 8 + 8)?.try_into().ok()?));
        match (word(0), word(AUTHORITY_TERM)) {
            (Some(AUTHORITY_MAGIC), Some(term)) => Ok(term),
            _ => Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "no authority page")),
        }
    }

    /// The authority page.
    pub fn authority(&self) -> PathBuf {
        self.0.join("authority")
    }

    /// Where the server also listens over TCP: one line, host and port.
    pub fn tcp(&self) -> PathBuf {
        self.0.join("tcp")
    }

    /// The lock.
    pub fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }
}
