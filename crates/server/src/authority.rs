//! Taking possession of a run directory: the lock, the authority page, the socket.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kelix_fabric::shm::{
    AUTHORITY_BYTES, AUTHORITY_LEASED, AUTHORITY_MAGIC, AUTHORITY_TERM, RunDirectory, map_file,
};
use kelix_image::Span;
use kelix_types::limits::AUTHORITY_LEASE_NS;
use kelix_types::{Error, ErrorKind, Incarnation, Result};
use rustix::fs::{FlockOperation, flock};

/// A run directory in this server's possession.
pub(crate) struct Authority {
    directory: RunDirectory,
    pub file: File,
    pub page: Span,
    pub term: u64,
    closed: AtomicBool,
    _lock: File,
}

fn system(what: &str, directory: &RunDirectory, source: std::io::Error) -> Error {
    Error::system("serve", format!("cannot {what} in {}", directory.0.display()), source)
}

/// The process id in a lock file, and whether that process is stopped.
fn holder(lock: &mut File) -> String {
    let mut text = String::new();
    let _ = lock.read_to_string(&mut text);
    let Ok(pid) = text.trim().parse::<u32>() else { return "another process".into() };
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let stopped = stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'));
    format!("process {pid}{}", if stopped { ", which is stopped" } else { "" })
}

/// Takes the lock. A server that stands still keeps its lock; with `take_over` it loses the directory all the same,
/// because the raised term makes its image worthless.
fn lock(directory: &RunDirectory, take_over: bool) -> Result<File> {
    loop {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o660);
        let mut file =
            file.open(directory.lock()).map_err(|source| system("open the lock", directory, source))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if !take_over {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "serve",
                    format!(
                        "{} is served by {}; end it, choose another directory with --dir, or start with \
                         --take-over to supersede it",
                        directory.0.display(),
                        holder(&mut file)
                    ),
                ));
            }
            fs::remove_file(directory.lock())
                .map_err(|source| system("replace the lock", directory, source))?;
            continue;
        }
        // Somebody may have replaced the file between open and lock.
        let same =
            |held: fs::Metadata, named: fs::Metadata| (held.dev(), held.ino()) == (named.dev(), named.ino());
        if let (Ok(held), Ok(named)) = (file.metadata(), fs::metadata(directory.lock())) {
            if same(held, named) {
                let written = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
                written.map_err(|source| system("write the lock", directory, source))?;
                return Ok(file);
            }
        }
    }
}

impl Authority {
    /// Locks the directory and raises its term. `verbs`: clients may READ over verbs.
    pub fn take(directory: RunDirectory, take_over: bool, verbs: bool) -> Result<Authority> {
        if directory.socket(Incarnation::TERM_MAX).as_os_str().len() > 100 {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "serve",
                format!("{} is too long for a Unix socket: choose a shorter --dir", directory.0.display()),
            ));
        }
        let create = fs::DirBuilder::new().recursive(true).mode(0o750).create(&directory.0);
        create.map_err(|source| system("make the directory", &directory, source))?;
        let metadata = fs::metadata(&directory.0).map_err(|source| system("look", &directory, source))?;
        if metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & 0o002 != 0 {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "serve",
                format!(
                    "{} is not yours, or open for all to write: choose another --dir",
                    directory.0.display()
                ),
            ));
        }
        let lock = lock(&directory, take_over)?;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o640);
        let file = file
            .open(directory.authority())
            .and_then(|file| file.set_len(AUTHORITY_BYTES).map(|()| file))
            .map_err(|source| system("open the authority page", &directory, source))?;
        let page = map_file(&file, AUTHORITY_BYTES, true)?;
        page.words().publish(0, AUTHORITY_MAGIC);
        // From here on every reader of an earlier server's image knows that it is over.
        let term = page.words().add(AUTHORITY_TERM, 1);
        if term > Incarnation::TERM_MAX {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "serve",
                format!("{} has used up its terms: use a new directory", directory.0.display()),
            ));
        }
        // Clients over verbs may not have noticed, and nothing is to contradict what they read from an earlier server.
        if page.words().load_acquire(AUTHORITY_LEASED) != 0 {
            std::thread::sleep(Duration::from_nanos(AUTHORITY_LEASE_NS));
        }
        page.words().publish(AUTHORITY_LEASED, u64::from(verbs));
        // Clients get a descriptor that cannot write.
        let file = File::open(directory.authority())
            .map_err(|source| system("open the authority page", &directory, source))?;
        Ok(Authority { directory, file, page, term, closed: AtomicBool::new(false), _lock: lock })
    }

    /// Whether no later server has taken over.
    #[inline]
    pub fn in_force(&self) -> bool {
        self.page.words().load_acquire(AUTHORITY_TERM) == self.term
    }

    /// Connects to this server's own socket.
    pub fn connect(&self) -> std::io::Result<UnixStream> {
        UnixStream::connect(self.directory.socket(self.term))
    }

    /// Says where the server also listens over TCP.
    pub fn tell_address(&self, address: Option<SocketAddr>) -> Result<()> {
        let told = match address {
            Some(address) => fs::write(self.directory.tcp(), format!("{address}\n")),
            None => match fs::remove_file(self.directory.tcp()) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        };
        told.map_err(|source| system("say where the server listens", &self.directory, source))
    }

    /// Takes the socket away. Once, and when the server ends: somebody else may serve the directory when the last thread
    /// that knows of this is gone.
    ///
    /// Returns whether this was the once.
    pub fn close(&self) -> bool {
        if self.closed.swap(true, Ordering::SeqCst) {
            return false;
        }
        let _ = fs::remove_file(self.directory.socket(self.term));
        if self.in_force() {
            let _ = fs::remove_file(self.directory.tcp());
        }
        true
    }

    /// Opens the socket, and removes those that dead servers left.
    pub fn listen(&self) -> Result<UnixListener> {
        for entry in fs::read_dir(&self.directory.0).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let term = name.to_str().and_then(|name| name.strip_prefix("socket.")?.parse::<u64>().ok());
            if term.is_some_and(|term| term < self.term) {
                let _ = fs::remove_file(entry.path());
            }
        }
        let path = self.directory.socket(self.term);
        let _ = fs::remove_file(&path);
        let listen = || -> std::io::Result<UnixListener> {
            let listener = UnixListener::bind(&path)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o660))?;
            Ok(listener)
        };
        listen().map_err(|source| system("open the socket", &self.directory, source))
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        self.close();
    }
}
