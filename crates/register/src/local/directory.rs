//! The directory of a register of one host: what is done to its files, each a call or two to the system.
//!
//! ```text
//! DIRECTORY/view.N                  the document of view N, or nothing of an old view
//! DIRECTORY/proposal.PID.RANDOM     a document that has no number yet
//! ```
//!
//! 1. All files are reached through the descriptor of the directory that was opened, so a directory that
//!    takes its place is never written to.
//! 2. A file has its whole contents, durable, before it has a number.
//! 3. A name with a number is never removed.

use std::fs::{DirBuilder, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kelix_types::{Error, ErrorKind, Result};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, linkat, openat, stat, statat, unlinkat};
use rustix::io::Errno;
use rustix::process::{Pid, geteuid, getpid, test_kill_process};
use rustix::rand::{GetRandomFlags, getrandom};

use super::file_system;
use crate::{DOCUMENT_BYTES_MAX, OPERATION, View, document};

const VIEW: &str = "view.";
const PROPOSAL: &str = "proposal.";
/// How many of the newest views keep their contents.
pub(super) const KEPT_VIEWS: u64 = 8;
/// How many older views a swap empties at most: one, and those that were missed where a process was killed.
const EMPTIED_VIEWS_MAX: usize = 64;
/// How old a proposal is that its process left behind.
const LEFT_BEHIND: Duration = Duration::from_secs(60);
/// How many random names are tried for a proposal.
const NAMES_TRIED_MAX: usize = 16;

/// A file or a directory, as its file system tells it from all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    #[allow(clippy::unnecessary_cast, reason = "the widths of the fields differ from system to system")]
    fn of(status: &Stat) -> Identity {
        Identity { device: status.st_dev as u64, inode: status.st_ino as u64 }
    }
}

/// A file that stays allocated, so that its file system gives its identity to no other file, whoever removes
/// the name.
#[derive(Debug)]
pub(super) struct Held {
    pub identity: Identity,
    _file: OwnedFd,
}

/// The directory of a register, open.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    itself: Arc<OwnedFd>,
    /// How many times synchronization is yet to fail.
    #[cfg(test)]
    pub(super) failing_syncs: u32,
    /// Whether files cannot be written, as on a full disk.
    #[cfg(test)]
    pub(super) is_full: bool,
}

/// A file that has no number yet. Its name is removed with it.
pub(super) struct Proposal {
    directory: Arc<OwnedFd>,
    name: String,
}

impl Drop for Proposal {
    fn drop(&mut self) {
        // A name that stays behind does no harm, and is removed when a register is opened.
        let _ = unlinkat(&*self.directory, &self.name, AtFlags::empty());
    }
}

pub(super) fn view_name(number: u64) -> String {
    format!("{VIEW}{number}")
}

/// The number of a view by the name of its file. Names that this crate does not write are nobody's.
fn number_of(name: &str) -> Option<u64> {
    let number = name.strip_prefix(VIEW)?.parse().ok()?;
    (number > 0 && view_name(number) == name).then_some(number)
}

/// The process that made a proposal, by the name of its file.
fn process_of(name: &str) -> Option<Pid> {
    let (process, _) = name.strip_prefix(PROPOSAL)?.split_once('.')?;
    Pid::from_raw(process.parse().ok().filter(|number| *number > 0)?)
}

impl Directory {
    /// Opens a directory, which is made if there is none, with mode 0700.
    pub fn open(path: &Path) -> Result<Directory> {
        let made = std::path::absolute(path).and_then(|path| make(&path).map(|()| path));
        let path = made.map_err(|source| {
            Error::system(OPERATION, format!("cannot make the directory {}", path.display()), source)
        })?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let itself = rustix::fs::open(&path, flags, Mode::empty());
        let itself = itself.map_err(|source| {
            let context = format!("cannot open the directory {}", path.display());
            Error::system(OPERATION, context, std::io::Error::from(source))
        })?;
        let directory = Directory {
            path,
            itself: Arc::new(itself),
            #[cfg(test)]
            failing_syncs: 0,
            #[cfg(test)]
            is_full: false,
        };
        directory.check_owner()?;
        file_system::check(&*directory.itself, &directory.path)?;
        Ok(directory)
    }

    /// An error if others could write views.
    fn check_owner(&self) -> Result<()> {
        let status = fstat(&*self.itself).map_err(|source| self.system("look at", ".", source))?;
        if status.st_uid == geteuid().as_raw() && status.st_mode & 0o022 == 0 {
            return Ok(());
        }
        let path = self.path.display();
        let context =
            format!("{path} is not yours, or open for others to write: use another, or chmod 700 {path}");
        Err(Error::new(ErrorKind::InvalidArgument, OPERATION, context))
    }

    /// Where a file is, for people.
    pub fn name_of(&self, file: &str) -> String {
        self.path.join(file).display().to_string()
    }

    fn system(&self, what: &str, file: &str, source: Errno) -> Error {
        let context = format!("cannot {what} {}", self.name_of(file));
        Error::system(OPERATION, context, std::io::Error::from(source))
    }

    /// The error of a register that is not there any more, which no later call on it mends.
    pub fn lost(&self, what: &str) -> Error {
        let context =
            format!("the register in {} {what}: this node is of no cluster any more", self.path.display());
        Error::new(ErrorKind::Superseded, OPERATION, context).with_retry(false)
    }

    /// An error if the directory was removed, or its name leads to another one.
    pub fn check_in_place(&self) -> Result<()> {
        let own = fstat(&*self.itself).map_err(|source| self.system("look at", ".", source))?;
        if own.st_nlink == 0 {
            return Err(self.lost("was removed"));
        }
        // Both are looked at anew: an overlayfs may number a directory anew when its upper layer takes it.
        match stat(&self.path) {
            Ok(named) if Identity::of(&named) == Identity::of(&own) => Ok(()),
            Ok(_) => Err(self.lost("was replaced by another directory")),
            Err(Errno::NOENT | Errno::NOTDIR) => Err(self.lost("was removed or renamed")),
            Err(source) => Err(self.system("look at", ".", source)),
        }
    }

    /// The file of a view, None if there is no such view.
    pub fn identity(&self, number: u64) -> Result<Option<Identity>> {
        let name = view_name(number);
        match statat(&*self.itself, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => Ok(Some(Identity::of(&status))),
            Err(Errno::NOENT) => Ok(None),
            Err(source) => Err(self.system("look at", &name, source)),
        }
    }

    /// Takes hold of the file of a view, of whatever kind.
    pub fn hold(&self, number: u64) -> Result<Held> {
        let name = view_name(number);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = openat(&*self.itself, &name, flags, Mode::empty());
        let held = held.and_then(|file| Ok(Held { identity: Identity::of(&fstat(&file)?), _file: file }));
        held.map_err(|source| self.system("look at", &name, source))
    }

    /// The highest number of a view; 0: there is none.
    pub fn highest(&self) -> Result<u64> {
        let mut numbers: Vec<u64> = self.names()?.iter().filter_map(|name| number_of(name)).collect();
        numbers.sort_unstable();
        let mut highest = 0;
        for number in numbers {
            // Listing a directory may miss a name that was made meanwhile, and show a later one.
            while highest + 1 < number {
                highest += 1;
                if self.identity(highest)?.is_none() {
                    let missing = self.name_of(&view_name(highest));
                    let context = format!(
                        "{missing} is missing, though there are later views: files of a register are never \
                         removed; begin a new cluster in an empty directory"
                    );
                    return Err(Error::new(ErrorKind::Damaged, OPERATION, context));
                }
            }
            highest = number;
        }
        Ok(highest)
    }

    fn names(&self) -> Result<Vec<String>> {
        let list = || -> rustix::io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in Dir::read_from(&*self.itself)? {
                names.extend(entry?.file_name().to_str().ok().map(String::from));
            }
            Ok(names)
        };
        list().map_err(|source| self.system("list", ".", source))
    }

    /// Removes proposals that dead processes left behind. Whose process only seems to be dead, in another
    /// container say, has its `link` fail, and proposes anew: so nothing depends on the judgement.
    pub fn remove_left_behind(&self) -> Result<()> {
        let now = SystemTime::now();
        for name in self.names()? {
            let Some(process) = process_of(&name) else { continue };
            let is_dead = test_kill_process(process) == Err(Errno::SRCH);
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let Ok(file) = openat(&*self.itself, &name, flags, Mode::empty()) else { continue };
            let modified = File::from(file).metadata().and_then(|metadata| metadata.modified());
            let age = modified.ok().and_then(|modified| now.duration_since(modified).ok());
            if is_dead && age.is_some_and(|age| age > LEFT_BEHIND) {
                let _ = unlinkat(&*self.itself, &name, AtFlags::empty());
            }
        }
        Ok(())
    }

    /// Makes all names durable that the directory has now.
    pub fn sync(&mut self) -> Result<()> {
        #[cfg(test)]
        if self.failing_syncs > 0 {
            self.failing_syncs -= 1;
            return Err(self.system("make durable", ".", Errno::IO));
        }
        rustix::fs::fsync(&*self.itself).map_err(|source| self.system("make durable", ".", source))
    }

    /// The view with this number.
    pub fn load(&self, number: u64) -> Result<View> {
        let name = view_name(number);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let damaged = |what| {
            let context = format!("{} is damaged: {what}", self.name_of(&name));
            Error::new(ErrorKind::Damaged, OPERATION, context)
        };
        let file = match openat(&*self.itself, &name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::LOOP) => return Err(damaged("a view is a plain file".into())),
            Err(source) => return Err(self.system("open", &name, source)),
        };
        let status = fstat(&file).map_err(|source| self.system("look at", &name, source))?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(damaged("a view is a plain file".into()));
        }
        if status.st_size > DOCUMENT_BYTES_MAX as i64 {
            return Err(damaged(format!("the file is longer than {DOCUMENT_BYTES_MAX} bytes")));
        }
        let mut bytes = Vec::new();
        // The file may grow while it is read: one byte more than allowed shows that.
        let limit = DOCUMENT_BYTES_MAX as u64 + 1;
        File::from(file).take(limit).read_to_end(&mut bytes).map_err(|source| {
            Error::system(OPERATION, format!("cannot read {}", self.name_of(&name)), source)
        })?;
        document::decode(&bytes, number, &self.name_of(&name))
    }

    /// Writes a document into a file of its own, durable.
    pub fn propose(&self, bytes: &[u8]) -> Result<Proposal> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut taken = Errno::EXIST;
        for _ in 0..NAMES_TRIED_MAX {
            let name = format!("{PROPOSAL}{}.{:016x}", getpid().as_raw_nonzero(), self.random()?);
            let file = match openat(&*self.itself, &name, flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => File::from(file),
                Err(Errno::EXIST) => continue,
                Err(source) => {
                    taken = source;
                    break;
                }
            };
            let proposal = Proposal { directory: self.itself.clone(), name };
            let written = (&file).write_all(bytes).and_then(|()| file.sync_all());
            #[cfg(test)]
            let written = if self.is_full { Err(Errno::NOSPC.into()) } else { written };
            written.map_err(|source| {
                let context = format!("cannot write {}", self.name_of(&proposal.name));
                Error::system(OPERATION, context, source)
            })?;
            return Ok(proposal);
        }
        // A directory that was removed takes no new files.
        self.check_in_place()?;
        Err(self.system("make a file in", ".", taken))
    }

    fn random(&self) -> Result<u64> {
        let mut bytes = [0; 8];
        let filled = getrandom(&mut bytes, GetRandomFlags::empty());
        filled.map_err(|source| self.system("find a random name in", ".", source))?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Gives a proposal its number. Whether the number was free.
    pub fn number(&self, proposal: &Proposal, number: u64) -> rustix::io::Result<bool> {
        let name = view_name(number);
        match linkat(&*self.itself, &proposal.name, &*self.itself, &name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(source) => Err(source),
        }
    }

    /// Frees the room of views that are so old that nobody reads them. Their names stay, so that no number is
    /// given twice.
    pub fn empty_older_than(&self, newest: u64) {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        for number in (1..=newest.saturating_sub(KEPT_VIEWS)).rev().take(EMPTIED_VIEWS_MAX) {
            let opened = openat(&*self.itself, view_name(number), flags, Mode::empty());
            let Ok(file) = opened.map(File::from) else { return };
            // Views are emptied in their order, so those before an empty one are empty. One that was missed,
            // because two callers emptied at once and one of them was killed, costs a block of the disk.
            let has_contents = file.metadata().is_ok_and(|metadata| metadata.len() > 0);
            if !has_contents || file.set_len(0).is_err() {
                return;
            }
        }
    }
}

/// Makes a directory that is there after a loss of power, too.
fn make(path: &Path) -> std::io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|path| !path.exists()).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let sync = |path: &Path| File::open(path)?.sync_all();
    for parent in missing.iter().filter_map(|made| made.parent()) {
        sync(parent)?;
    }
    // Another process may have made the directory in this moment. A parent that may not be read was made by
    // somebody else long ago.
    if let Some(parent) = path.parent().filter(|_| missing.is_empty()) {
        let _ = sync(parent);
    }
    Ok(())
}
