//! The run directory: where a server and its clients meet.
//!
//! ```text
//! socket      the server's Unix socket
//! authority   one page: word 0 the magic, word 1 the term in force. Every server that starts here raises it before
//!             its first reply; a reader believes an image only while its term is the one in force.
//! lock        held by the server; holds its process id
//! ```

use std::path::{Path, PathBuf};

/// Bytes of the authority page.
pub const AUTHORITY_BYTES: u64 = 4096;
/// First word of the authority page.
pub const AUTHORITY_MAGIC: u64 = u64::from_le_bytes(*b"KELIXAUT");
/// Word of the authority page that holds the term in force.
pub const AUTHORITY_TERM: usize = 1;

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

    /// The socket.
    pub fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }

    /// The authority page.
    pub fn authority(&self) -> PathBuf {
        self.0.join("authority")
    }

    /// The lock.
    pub fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }
}
