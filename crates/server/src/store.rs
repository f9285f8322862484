//! A directory of snapshots, and the store that it is of.
//!
//! ```text
//! DIRECTORY/store    { "store": a number in 16 hexadecimal digits, "term": a number, "pid": ..., "directory": the run directory }
//! ```
//!
//! The file is locked for as long as a server lives that uses the directory, so there is one at a time. A
//! store has a random number, which is in its snapshots too: so another's is never taken for its own, nor
//! removed in the place of one.
//!
//! It also remembers the last *term of incarnations* that was given, which is in the versions of items: so
//! none is given twice, also where a server begins with an old snapshot. Terms follow the clock as well, for
//! a snapshot that was moved to where there is no such file yet.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::SystemTime;

use kelix_log::files::{Directory, Log};
use kelix_snapshot::Snapshot;
use kelix_types::{Error, ErrorKind, Incarnation, Result};
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use crate::authority::{Authority, Lock};
use crate::holder::{describe, is_same_file};

const NAME: &str = "store";
/// Until it has its name.
const NEXT: &str = "store.next";

/// A directory of snapshots, in this server's possession.
pub(crate) struct StoreDirectory {
    path: PathBuf,
    /// The file that is locked, of the server before this one until [`StoreDirectory::take`]; and that which
    /// takes its place then.
    files: Mutex<(File, Option<File>)>,
    /// The number of the store.
    pub number: u64,
    term: u64,
    /// Whether another server has it until this one takes it.
    is_held_by_another: bool,
}

fn system(what: &str, path: &Path, source: std::io::Error) -> Error {
    Error::system("serve", format!("cannot {what} {}", path.display()), source)
}

/// A term that the clock gives: none is the same 4.3 seconds later, until the year 2262. Within one term an
/// image gives less than a name each nanosecond.
pub(crate) fn term_of_clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    ((since.as_nanos() >> Incarnation::COUNTER_BITS) as u64).max(1)
}

impl StoreDirectory {
    /// Looks whether the directory can be used, and locks it if nobody does. What is written in it belongs to
    /// the server that is going to be superseded until [`StoreDirectory::take`].
    pub fn prepare(path: &Path, authority: &Authority, random: u64) -> Result<StoreDirectory> {
        make_directory(path).map_err(|source| system("make", path, source))?;
        let name = path.join(NAME);
        let lock = Lock::try_lock(&name).map_err(|source| system("write", &name, source))?;
        let is_held = matches!(lock, Lock::Held(_));
        let (Lock::Held(file) | Lock::Of(file)) = lock;
        let text = text_of(&file);
        let known = text.as_ref().ok().and_then(|text| Owner::read(text));
        if !is_held {
            let superseded = authority.superseded().map(|holder| holder.pid());
            let is_its = superseded.is_some() && known.as_ref().and_then(|owner| owner.pid) == superseded;
            if !is_its {
                let who = known.map_or_else(|| describe(&file), |owner| owner.to_string());
                let context = format!(
                    "the snapshots in {} are those of {who}: give each server a directory of its own",
                    path.display()
                );
                return Err(Error::new(ErrorKind::InvalidArgument, "serve", context));
            }
        }
        StoreDirectory::of(path, (text, file), is_held, random)
    }

    /// A directory that no server uses, and none may while this is held: for whoever rewrites it.
    pub fn hold(path: &Path, random: u64) -> Result<StoreDirectory> {
        let name = path.join(NAME);
        let lock = Lock::try_lock(&name).map_err(|source| {
            Error::system("wal reshard", format!("cannot write {}", name.display()), source)
        })?;
        match lock {
            Lock::Held(file) => StoreDirectory::of(path, (text_of(&file), file), true, random),
            Lock::Of(file) => {
                let known = text_of(&file).ok().and_then(|text| Owner::read(&text));
                let who = known.map_or_else(|| describe(&file), |owner| owner.to_string());
                let path = path.display();
                let context = format!("{path} is in use by {who}: end it first, by SIGTERM");
                Err(Error::new(ErrorKind::InvalidArgument, "wal reshard", context))
            }
        }
    }

    /// Says in another directory whose it is, for the server that takes it over: this store, with names of
    /// this term given.
    pub fn write_into(&self, other: &Path) -> Result<()> {
        let name = other.join(NAME);
        let owner = json!({ "store": format!("{:016x}", self.number), "term": self.term, "directory": "" });
        let written = File::create_new(&name).and_then(|file| {
            file.set_permissions(Permissions::from_mode(0o600))?;
            writeln!(&file, "{owner}")?;
            file.sync_all()
        });
        written.map_err(|source| {
            Error::system("wal reshard", format!("cannot write {}", name.display()), source)
        })
    }

    /// A directory by its file, and what stands there.
    fn of(
        path: &Path,
        (text, file): (std::io::Result<String>, File),
        is_held: bool,
        random: u64,
    ) -> Result<StoreDirectory> {
        let name = path.join(NAME);
        let text = text.map_err(|source| system("read", &name, source))?;
        let known = Owner::read(&text);
        if known.is_none() && !text.trim().is_empty() {
            let context = format!(
                "{} does not say which store the snapshots beside it are of; if they are all of one, remove that file",
                name.display()
            );
            return Err(Error::new(ErrorKind::Damaged, "serve", context));
        }
        let (number, last) = known.map_or((None, 0), |owner| (Some(owner.store), owner.term));
        let mut directory = StoreDirectory {
            path: path.to_path_buf(),
            files: Mutex::new((file, None)),
            number: number.unwrap_or(0),
            term: term_of_clock().max(last + 1),
            is_held_by_another: !is_held,
        };
        if number.is_none() {
            directory.number = directory.first_number(random)?;
        }
        Ok(directory)
    }

    /// The number of a store that has no file yet: that of its newest snapshot, that of its log, which a
    /// server begins before it takes the directory, or a random one.
    fn first_number(&self, random: u64) -> Result<u64> {
        let newest =
            kelix_snapshot::list(&self.path)?.into_iter().find_map(|path| Snapshot::open(&path).ok());
        let of_snapshot = newest.map(|newest| newest.description().store).filter(|number| *number != 0);
        // A log that cannot be read is an error when it is opened to be served.
        let log = Log::open(Box::new(Directory(self.path.clone()))).ok();
        let of_log = || Some(log?.files().last()?.identity.store);
        Ok(of_snapshot.or_else(of_log).unwrap_or(random.max(1)))
    }

    fn files(&self) -> MutexGuard<'_, (File, Option<File>)> {
        self.files.lock().expect("no panic under this lock")
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// An error if a log cannot be written here, because the server that is to be superseded still does.
    pub fn check_one_writer(&self) -> Result<()> {
        if !self.is_held_by_another {
            return Ok(());
        }
        let context = format!(
            "the server that is to be superseded writes the log in {} and goes on until it has ended: end it \
             first, by SIGTERM",
            self.path.display()
        );
        Err(Error::new(ErrorKind::InvalidArgument, "serve", context))
    }

    /// The term of incarnations that images begin with.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// An error if a snapshot is of another store.
    pub fn check(&self, snapshot: &Snapshot) -> Result<()> {
        let of = snapshot.description().store;
        if of == 0 || of == self.number {
            return Ok(());
        }
        let context = format!(
            "{} is a snapshot of another store ({of:016x}) than the others in its directory ({:016x}): move it to a directory \
             of its own, and serve that",
            snapshot.path().display(),
            self.number
        );
        Err(Error::new(ErrorKind::InvalidArgument, "serve", context))
    }

    /// Writes down what the directory is going to belong to, all but its name.
    pub fn write(&self, run_directory: &Path) -> Result<()> {
        let next = self.path.join(NEXT);
        let write = || -> std::io::Result<File> {
            let _ = fs::remove_file(&next);
            let file = File::options().read(true).write(true).create_new(true).open(&next)?;
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            let owner = json!({
                "store": format!("{:016x}", self.number),
                "term": self.term,
                "pid": std::process::id(),
                "directory": run_directory.display().to_string(),
            });
            writeln!(&file, "{owner}")?;
            file.sync_all()?;
            Ok(file)
        };
        let written = write().map_err(|source| system("write", &next, source))?;
        self.files().1 = Some(written);
        Ok(())
    }

    /// Takes the directory. Only then may names be given of the term that it remembers.
    pub fn take(&self) -> Result<()> {
        let mut files = self.files();
        let Some(next) = files.1.take() else { return Ok(()) };
        let name = self.path.join(NAME);
        let named = fs::rename(self.path.join(NEXT), &name);
        let named = named.and_then(|()| File::open(&self.path)?.sync_all());
        named.map_err(|source| system("write", &name, source))?;
        files.0 = next;
        Ok(())
    }

    /// Whether the directory still belongs to this server.
    pub fn is_ours(&self) -> bool {
        self.is_named(&self.files().0)
    }

    /// Whether a file is the one that the directory has.
    fn is_named(&self, file: &File) -> bool {
        let named = fs::metadata(self.path.join(NAME));
        matches!((file.metadata(), named), (Ok(held), Ok(named)) if is_same_file(&held, &named))
    }
}

impl Drop for StoreDirectory {
    fn drop(&mut self) {
        let (file, next) = &*self.files();
        if next.is_some() {
            let _ = fs::remove_file(self.path.join(NEXT));
        }
        // Another directory may be there in the place of this one.
        if file.metadata().is_ok_and(|file| file.len() == 0) && self.is_named(file) {
            // Nobody has ever served it.
            let _ = fs::remove_file(self.path.join(NAME));
        }
    }
}

/// Makes a directory that is there after a power cut too, with all that is made durable in it.
pub(crate) fn make_directory(path: &Path) -> std::io::Result<()> {
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let missing: Vec<&Path> = path.ancestors().take_while(is_missing).collect();
    fs::create_dir_all(path)?;
    for made in missing {
        let parent = made.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

/// Replaces what a file says by one line, so that the file says all of one or of the other after a power cut,
/// too. `next`: the name of the new file until then.
pub(crate) fn replace_line(directory: &Path, (name, next): (&str, &str), line: &str) -> std::io::Result<()> {
    let next = directory.join(next);
    let mut file = File::create(&next)?;
    writeln!(file, "{line}")?;
    file.sync_all()?;
    fs::rename(&next, directory.join(name))?;
    File::open(directory)?.sync_all()
}

/// What the file says.
struct Owner {
    store: u64,
    term: u64,
    pid: Option<u32>,
    directory: String,
}

impl Owner {
    fn read(text: &str) -> Option<Owner> {
        let value: Value = serde_json::from_str(text).ok()?;
        Some(Owner {
            store: u64::from_str_radix(value["store"].as_str()?, 16).ok()?,
            term: value["term"].as_u64().filter(|term| *term < Incarnation::TERM_MAX)?,
            pid: value["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()),
            directory: value["directory"].as_str().unwrap_or_default().into(),
        })
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "the server of {} (process {pid})", self.directory),
            None => write!(f, "the server of {}", self.directory),
        }
    }
}

/// What stands in a file, which may be as long as whoever may write to it likes.
fn text_of(file: &File) -> std::io::Result<String> {
    let mut bytes = vec![0; 1 << 16];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    String::from_utf8(bytes).map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))
}
