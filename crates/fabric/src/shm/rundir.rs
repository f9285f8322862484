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

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use kelix_image::{LeasedTerm, Span};
use rustix::fs::{Mode, OFlags};

/// Bytes of the authority page.
pub const AUTHORITY_BYTES: u64 = 4096;
/// First word of the authority page.
pub const AUTHORITY_MAGIC: u64 = u64::from_le_bytes(*b"KELIXAUT");
/// Word of the authority page that holds the term in force.
pub const AUTHORITY_TERM: usize = 1;
/// Word of the authority page that is 1 while the server of the term in force lets clients READ over verbs.
pub const AUTHORITY_LEASED: usize = 2;
/// Word of the authority page that holds the moment of the host's clock at which the term in force is over, if
/// nobody moves the moment on ([`LeasedTerm`]); 0: it lasts until there is another one.
pub const AUTHORITY_UNTIL: usize = 3;
/// Word of the authority page that holds when this was found out, by the same clock; 0 if the term lasts.
pub const AUTHORITY_ASKED: usize = 4;
/// Word of the authority page that holds the term of a server which stands still for its successor to go on
/// with what it has. Whoever sets it back to 0, by compare-and-swap, decides: the successor, that it takes
/// over, or the server, that it goes on.
pub const AUTHORITY_YIELDS: usize = 5;

/// The term in force, of an authority page.
pub fn term_in_force(page: &Span) -> LeasedTerm {
    LeasedTerm::new(page.word(AUTHORITY_TERM), page.word(AUTHORITY_UNTIL))
}

/// What stands in a file of a run directory, up to a length. The directory may be somebody else's, so what is
/// no regular file is refused: reading a pipe would wait for whoever writes to it, and a device may have no
/// end.
pub fn read_file(path: &Path, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        let context = format!("{} is no regular file", path.display());
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, context));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

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
            None => RunDirectory::of_user_in_tmp(),
        }
    }

    /// The default where the user has no directory of its own for such: a name that others can guess, and
    /// make first.
    fn of_user_in_tmp() -> PathBuf {
        format!("/tmp/kelix-{}", rustix::process::getuid().as_raw()).into()
    }

    /// An error if the directory is the one that others can make first, and somebody else did, or may put
    /// another server there: whoever connects would talk to that somebody's server.
    pub fn check_owner(&self) -> std::io::Result<()> {
        if self.0 != RunDirectory::of_user_in_tmp() {
            return Ok(());
        }
        let found = std::fs::symlink_metadata(&self.0)?;
        let why = match found.uid() {
            _ if !found.is_dir() => "it is a link or a file of somebody's".to_string(),
            owner if owner != rustix::process::geteuid().as_raw() => {
                format!("it belongs to user {owner}, and not to you")
            }
            _ if found.mode() & 0o002 != 0 => "everybody may write there".to_string(),
            _ => return Ok(()),
        };
        let why = format!("{why}: name another directory with --dir or KELIX_DIR");
        Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, why))
    }

    /// The socket of a term.
    pub fn socket(&self, term: u64) -> PathBuf {
        self.0.join(format!("socket.{term}"))
    }

    /// The term in force now, as the authority page tells it.
    pub fn term(&self) -> std::io::Result<u64> {
        let page = read_file(&self.authority(), AUTHORITY_BYTES)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever could make the directory could have clients wait for ever, by a pipe in the page's place.
    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let path = std::env::temp_dir().join(format!("kelix-test-rundir-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let run = RunDirectory(path.clone());
        rustix::fs::mkfifoat(rustix::fs::CWD, run.authority(), Mode::RWXU).unwrap();
        assert_eq!(run.term().unwrap_err().kind(), std::io::ErrorKind::InvalidData);
        std::fs::remove_file(run.authority()).unwrap();
        for device in ["/dev/zero", "/dev/tty", "/"] {
            std::os::unix::fs::symlink(device, run.authority()).unwrap();
            assert!(run.term().is_err(), "{device}");
            std::fs::remove_file(run.authority()).unwrap();
        }
        std::fs::remove_dir_all(path).unwrap();
    }
}
