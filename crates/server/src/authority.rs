//! Taking possession of a run directory: the lock, the authority page, the socket.
//!
//! ```text
//! prepared   the directory is ours to serve, its term is the one before ours: an earlier server may still serve, and goes on if we give up
//! raised     the term is ours, which voids all earlier servers
//! in force   the earlier server has ended or given up its lock: threads begin, clients are let in
//! ```
//!
//! Everything that a start may fail at comes before the term is raised.

use std::fs::{self, File, OpenOptions};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once};
use std::time::{Duration, Instant};

use kelix_fabric::host_clock_ns;
use kelix_fabric::shm::{
    AUTHORITY_ASKED, AUTHORITY_BYTES, AUTHORITY_LEASED, AUTHORITY_MAGIC, AUTHORITY_TERM, AUTHORITY_UNTIL,
    AUTHORITY_YIELDS, RunDirectory, map_file, term_in_force,
};
use kelix_image::{LeasedTerm, SharedWord, Span};
use kelix_shard::replicas::Lease;
use kelix_types::limits::AUTHORITY_LEASE_NS;
use kelix_types::{Error, ErrorKind, Incarnation, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tracing::warn;

use crate::holder::{Holder, describe, is_same_file};

/// How long a server that was superseded may take to end by itself.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// How long the system may take to end a process that is killed.
const KILLED_WITHIN: Duration = Duration::from_secs(2);

/// A run directory in this server's possession.
pub(crate) struct Authority {
    directory: RunDirectory,
    pub file: File,
    pub page: Span,
    pub term: u64,
    raised: AtomicBool,
    /// Its term is in force only for as long as a lease lasts.
    is_leased: AtomicBool,
    closed: Once,
    lock: Arc<Mutex<Lock>>,
    /// Nobody waits for the end of a server that is superseded: what it does from then on counts nowhere.
    at_once: bool,
    begun: (Mutex<bool>, Condvar),
    /// Keeps who clears up old files of temporary directories from taking this one's.
    _directory: Option<Arc<File>>,
}

fn system(what: &str, directory: &RunDirectory, source: std::io::Error) -> Error {
    Error::system("serve", format!("cannot {what} in {}", directory.0.display()), source)
}

/// The lock of a file: held, or somebody else's that is going to be superseded.
pub(crate) enum Lock {
    /// Held. The file names this process.
    Held(File),
    /// Somebody else's.
    Of(File),
}

impl Lock {
    /// Opens a file that one server at a time may lock, and locks it if nobody has.
    pub fn try_lock(path: &Path) -> std::io::Result<Lock> {
        loop {
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(Lock::Of(file)),
                // A file system without locks, say: nobody holds it, and nobody can.
                Err(error) => return Err(error.into()),
            }
            // Somebody may have replaced the file between open and lock.
            match fs::metadata(path) {
                Ok(named) if is_same_file(&file.metadata()?, &named) => return Ok(Lock::Held(file)),
                _ => continue,
            }
        }
    }

    /// The process that holds the lock of a run directory.
    pub fn holder(directory: &RunDirectory) -> Option<Holder> {
        let file = File::open(directory.lock()).ok()?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Holder::of(&file),
            _ => None,
        }
    }
}

impl Authority {
    /// Looks whether the directory can be served, and locks it if nobody does. Of a server that does, nothing
    /// is taken yet.
    pub fn prepare(directory: RunDirectory, take_over: bool) -> Result<Authority> {
        if directory.socket(Incarnation::TERM_MAX).as_os_str().len() > 100 {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "serve",
                format!("{} is too long for a Unix socket: choose a shorter --dir", directory.0.display()),
            ));
        }
        let create = fs::DirBuilder::new().recursive(true).mode(0o750).create(&directory.0);
        create.map_err(|source| {
            let context =
                format!("cannot make the run directory {}: name another with --dir", directory.0.display());
            Error::system("serve", context, source)
        })?;
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
        let lock = Lock::try_lock(&directory.lock())
            .map_err(|source| system("open the lock", &directory, source))?;
        match &lock {
            Lock::Held(file) => {
                let mode = fs::Permissions::from_mode(0o600);
                let named = file.set_permissions(mode).and_then(|()| sign(file));
                named.map_err(|source| system("write the lock", &directory, source))?;
            }
            Lock::Of(file) if !take_over => {
                let context = format!(
                    "{} is served by {}; end it, choose another directory with --dir, or start with --take-over to \
                     supersede it",
                    directory.0.display(),
                    describe(file)
                );
                return Err(Error::new(ErrorKind::InvalidArgument, "serve", context));
            }
            Lock::Of(_) => {}
        }
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o640);
        let file = file
            .open(directory.authority())
            .and_then(|file| reserve(&file).map(|()| file))
            .map_err(|source| system("open the authority page", &directory, source))?;
        let page = map_file(&file, AUTHORITY_BYTES, true)?;
        let term = page.words().load_acquire(AUTHORITY_TERM) + 1;
        if term > Incarnation::TERM_MAX {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "serve",
                format!("{} has used up its terms: use a new directory", directory.0.display()),
            ));
        }
        // Clients get a descriptor that cannot write.
        let file = File::open(directory.authority())
            .map_err(|source| system("open the authority page", &directory, source))?;
        let itself = File::open(&directory.0).ok();
        if let Some(itself) = &itself {
            let _ = flock(itself, FlockOperation::NonBlockingLockExclusive);
        }
        Ok(Authority {
            directory,
            file,
            page,
            term,
            raised: AtomicBool::new(false),
            is_leased: AtomicBool::new(false),
            closed: Once::new(),
            lock: Arc::new(Mutex::new(lock)),
            at_once: false,
            begun: Default::default(),
            _directory: itself.map(Arc::new),
        })
    }

    /// The same of a member of a cluster: a server that it supersedes is not waited for when the term is
    /// raised, and may stand still for as long as it likes. Where the member has voided that server by a
    /// term, `voided`, it serves in the next one.
    pub fn prepare_member(directory: RunDirectory, voided: Option<u64>) -> Result<Authority> {
        let mut authority = Authority::prepare(directory, true)?;
        authority.at_once = true;
        authority.term = voided.map_or(authority.term, |voided| voided + 1);
        Ok(authority)
    }

    /// Voids whichever server has a run directory, by a term that nobody serves in, before another one takes up
    /// what that server has told.
    pub fn void(directory: &RunDirectory) -> Result<()> {
        Authority::term_word(directory)?.words().add(0, 1);
        Ok(())
    }

    /// The word with the term of whichever server has a run directory.
    pub fn term_word(directory: &RunDirectory) -> Result<SharedWord> {
        let file = OpenOptions::new().read(true).write(true).open(directory.authority());
        let file = file.map_err(|source| system("open the authority page", directory, source))?;
        Ok(map_file(&file, AUTHORITY_BYTES, true)?.word(AUTHORITY_TERM))
    }

    /// Whether the server that last had a run directory may have been read over verbs, by sessions that do
    /// not look at its authority page.
    pub fn was_read_over_verbs(directory: &RunDirectory) -> bool {
        let page = File::open(directory.authority())
            .ok()
            .and_then(|file| map_file(&file, AUTHORITY_BYTES, false).ok());
        page.is_none_or(|page| page.words().load_acquire(AUTHORITY_LEASED) != 0)
    }

    /// What takes the directory over from this server in the same process: the lock is both one's.
    pub fn succeed(&self) -> Result<Authority> {
        let file = self.file.try_clone().map_err(|source| system("serve", &self.directory, source))?;
        Ok(Authority {
            directory: RunDirectory(self.directory.0.clone()),
            file,
            page: self.page.clone(),
            term: self.page_term() + 1,
            raised: AtomicBool::new(false),
            is_leased: AtomicBool::new(false),
            closed: Once::new(),
            lock: self.lock.clone(),
            at_once: self.at_once,
            begun: Default::default(),
            _directory: self._directory.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Lock> {
        self.lock.lock().expect("no panic under this lock")
    }

    /// The server that is going to be superseded, if there is one and it can be seen.
    pub fn superseded(&self) -> Option<Holder> {
        match &*self.lock() {
            Lock::Held(_) => None,
            Lock::Of(file) => Holder::of(file),
        }
    }

    /// Whether a server is going to be superseded, seen or not.
    pub fn supersedes(&self) -> bool {
        matches!(&*self.lock(), Lock::Of(_))
    }

    /// Raises the term, by which all earlier servers are void, and has the one that still runs end: it is
    /// woken if it stands still, and killed if it does not end by itself. `verbs`: clients may READ over
    /// verbs.
    pub fn raise(&self, verbs: bool) -> Result<()> {
        let holder = self.superseded();
        let words = self.page.words();
        words.publish(0, AUTHORITY_MAGIC);
        // From here on every reader of an earlier server's image knows that it is over.
        if words.compare_exchange(AUTHORITY_TERM, self.term - 1, self.term).is_err() {
            let context =
                format!("another server has taken over {} in the same moment", self.directory.0.display());
            return Err(Error::new(ErrorKind::Superseded, "serve", context));
        }
        if !self.is_leased.load(Ordering::Relaxed) {
            // Behind the term: readers of a server before, whose lease is over, load this first.
            words.publish(AUTHORITY_ASKED, 0);
            words.publish(AUTHORITY_UNTIL, 0);
        }
        self.raised.store(true, Ordering::SeqCst);
        // Clients over verbs may not have noticed, and nothing is to contradict what they read from an
        // earlier server.
        let leased = words.load_acquire(AUTHORITY_LEASED) != 0;
        let raised = Instant::now();
        self.take_lock(holder.as_ref());
        if leased {
            let lease = Duration::from_nanos(AUTHORITY_LEASE_NS);
            std::thread::sleep(lease.saturating_sub(raised.elapsed()));
        }
        words.publish(AUTHORITY_LEASED, u64::from(verbs));
        Ok(())
    }

    /// A server before this one hands over what it has: its end is not waited for when the term is raised,
    /// since it does nothing more.
    pub fn is_handed_over(&mut self) {
        self.at_once = true;
    }

    /// Says that this server stands still for its successor.
    pub fn yields(&self) {
        self.page.words().publish(AUTHORITY_YIELDS, self.term);
    }

    /// Whether this server, which stood still for its successor, goes on: that one has not decided to take
    /// over.
    pub fn resumes(&self) -> bool {
        self.page.words().compare_exchange(AUTHORITY_YIELDS, self.term, 0).is_ok()
    }

    /// Whether the server before this one stands still, so that what was told of it is all there is: from
    /// here on it does not go on while this process lives.
    pub fn takes_yielded(&self) -> bool {
        self.page.words().compare_exchange(AUTHORITY_YIELDS, self.term - 1, 0).is_ok()
    }

    /// Takes the lock of a server that is void.
    fn take_lock(&self, holder: Option<&Holder>) {
        let mut lock = self.lock();
        let Lock::Of(file) = &*lock else { return };
        // First, for the one that ends to say by whom it was superseded.
        let mut named = sign(file);
        let ends = |within: Duration| {
            let began = Instant::now();
            while flock(file, FlockOperation::NonBlockingLockExclusive).is_err() {
                if began.elapsed() > within {
                    return false;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            true
        };
        if let Some(holder) = holder.filter(|_| !self.at_once) {
            holder.wake();
        }
        let mut ended = ends(if self.at_once { Duration::ZERO } else { ENDS_WITHIN });
        if let (false, Some(holder), false) = (ended, holder, self.at_once) {
            warn!(pid = holder.pid(), "the server that was superseded does not end, and is killed");
            holder.kill();
            ended = ends(KILLED_WITHIN);
        }
        let replaced = if ended { file.try_clone() } else { self.replace_lock() };
        match replaced {
            Ok(file) => {
                named = sign(&file).and(named);
                *lock = Lock::Held(file);
            }
            Err(error) => named = Err(error),
        }
        // The term is what counts; the lock only spares others a start in vain.
        if let Err(error) = named {
            warn!(%error, "the lock of the run directory names another process");
        }
    }

    /// Locks another file in the place of one that a process out of reach has locked, in a container of its
    /// own say. Its image is void, and so is its lock.
    fn replace_lock(&self) -> std::io::Result<File> {
        let _ = fs::remove_file(self.directory.lock());
        match Lock::try_lock(&self.directory.lock())? {
            Lock::Held(file) | Lock::Of(file) => Ok(file),
        }
    }

    /// Gives up where another server has begun in a directory of the same name, which somebody removed while
    /// this one served: clients of this one are to learn that it is over.
    pub fn notice_replacement(&self) {
        let named = fs::metadata(self.directory.authority());
        if let (Ok(named), Ok(own)) = (named, self.file.metadata()) {
            if !is_same_file(&named, &own) && self.in_force() {
                warn!("the run directory was replaced, and another server has begun in it");
                self.page.words().add(AUTHORITY_TERM, 1);
            }
        }
    }

    /// Lets threads begin that wait for this server to be in force, or for its end.
    pub fn begin(&self) {
        *self.begun.0.lock().expect("no panic under this lock") = true;
        self.begun.1.notify_all();
    }

    /// Waits for so long, or until threads are let begin once more: they may have to end.
    pub fn rest(&self, time: Duration) {
        let begun = self.begun.0.lock().expect("no panic under this lock");
        let _ = self.begun.1.wait_timeout(begun, time).expect("no panic under this lock");
    }

    /// Whether threads that wait for this server to be in force were let begin.
    pub fn has_begun(&self) -> bool {
        *self.begun.0.lock().expect("no panic under this lock")
    }

    /// Whether this server ever was in force.
    pub fn was_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }

    /// Waits until this server is in force, or ends.
    pub fn wait_for_begin(&self) {
        let begun = self.begun.0.lock().expect("no panic under this lock");
        let _begun = self.begun.1.wait_while(begun, |begun| !*begun).expect("no panic under this lock");
    }

    /// Whether no later server has taken over.
    #[inline]
    pub fn in_force(&self) -> bool {
        self.page_term() == self.term
    }

    /// Has the term be in force until a moment of the host's clock. Before the term is raised for the first time.
    pub fn lease(&self, Lease { asked_ns, until_ns }: Lease) {
        self.is_leased.store(true, Ordering::Relaxed);
        self.page.words().publish(AUTHORITY_ASKED, asked_ns);
        self.page.words().publish(AUTHORITY_UNTIL, until_ns.max(LeasedTerm::OVER));
    }

    /// Whether what this server does counts now: no later one has taken over, and the lease is not over.
    pub fn counts(&self) -> bool {
        term_in_force(&self.page).load() == self.term
    }

    /// How long the lease lasts from now on. `None`: the term is in force without one.
    pub fn lease_left(&self) -> Option<Duration> {
        let until_ns = self.page.words().load_acquire(AUTHORITY_UNTIL);
        (until_ns != 0).then(|| Duration::from_nanos(until_ns.saturating_sub(host_clock_ns(false))))
    }

    /// The term of whoever has the run directory.
    pub fn page_term(&self) -> u64 {
        self.page.words().load_acquire(AUTHORITY_TERM)
    }

    /// Connects to this server's own socket.
    pub fn connect(&self) -> std::io::Result<UnixStream> {
        UnixStream::connect(self.directory.socket(self.term))
    }

    /// Writes down where the server is going to listen over TCP.
    pub fn note_address(&self, address: Option<SocketAddr>) -> Result<()> {
        let Some(address) = address else { return Ok(()) };
        fs::write(self.noted_address(), format!("{address}\n"))
            .map_err(|source| system("say where the server listens", &self.directory, source))
    }

    fn noted_address(&self) -> PathBuf {
        self.directory.0.join(format!("tcp.{}", self.term))
    }

    /// Says what was noted, or that the server does not listen.
    pub fn tell_address(&self, address: Option<SocketAddr>) {
        let told = match address {
            Some(_) => fs::rename(self.noted_address(), self.directory.tcp()),
            None => match fs::remove_file(self.directory.tcp()) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        };
        if let Err(error) = told {
            warn!(%error, "{} does not tell where the server listens", self.directory.tcp().display());
        }
    }

    /// Takes the socket away. Once, and when the server ends: somebody else may serve the directory when the
    /// last thread that knows of this is gone.
    ///
    /// `then` belongs to it, and the caller waits until it is done also where another thread closes: the
    /// process may end behind this, and would leave a file or the last line of its log out.
    pub fn close(&self, then: impl FnOnce()) {
        self.closed.call_once(|| {
            let _ = fs::remove_file(self.directory.socket(self.term));
            let _ = fs::remove_file(self.noted_address());
            if self.in_force() {
                let _ = fs::remove_file(self.directory.tcp());
            }
            then();
        });
    }

    /// Removes what dead servers left.
    pub fn clear_up(&self) {
        for entry in fs::read_dir(&self.directory.0).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let term = name.to_str().and_then(|name| {
                let term = name.strip_prefix("socket.").or_else(|| name.strip_prefix("tcp."))?;
                term.parse::<u64>().ok()
            });
            if term.is_some_and(|term| term < self.term) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Opens the socket. Nobody looks for it before the term is raised.
    pub fn listen(&self) -> Result<UnixListener> {
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
        self.close(|| {});
    }
}

/// Has a file be one page, with room on the disk for it: a page that is only promised is a signal to whoever
/// first writes to it on a full one.
fn reserve(file: &File) -> std::io::Result<()> {
    file.set_len(AUTHORITY_BYTES)?;
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, AUTHORITY_BYTES) {
        // Some file systems cannot.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        reserved => Ok(reserved?),
    }
}

/// Writes this process's number into a lock's file.
fn sign(file: &File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.write_all_at(std::process::id().to_string().as_bytes(), 0)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// The process of a server ends behind its main thread, whichever thread it was that ended the server.
    #[test]
    fn who_else_closes_waits_until_the_end_is_told() {
        let directory = std::env::temp_dir().join(format!("kelix-authority-{}", std::process::id()));
        let authority = Authority::prepare(RunDirectory(directory.clone()), false).expect("one");
        let (begins, has_begun) = channel();
        let (tells, told) = channel();
        let was_told = AtomicBool::new(false);
        let (authority, was_told) = (&authority, &was_told);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                authority.close(|| {
                    begins.send(()).expect("a listener");
                    told.recv().expect("a word");
                    was_told.store(true, Ordering::SeqCst);
                });
            });
            has_begun.recv().expect("a thread that closes");
            let other = scope.spawn(|| {
                authority.close(|| panic!("closed twice"));
                was_told.load(Ordering::SeqCst)
            });
            // Time in which one that does not wait is over.
            std::thread::sleep(Duration::from_millis(50));
            tells.send(()).expect("a thread that closes");
            assert!(other.join().expect("no panic"), "closed before the end was told");
        });
        fs::remove_dir_all(directory).expect("nobody else's");
    }
}
