//! Memory that the processes of a user on one host share by name: what one of them has READ, the others need not.
//!
//! ```text
//! /dev/shm/kelix-UID/NAME    a file of the user's own, in memory; all of its bytes are there from the start
//! ```
//!
//! Who uses a file holds a lock on it. The last one to go removes it, and whoever makes a new one removes what processes left
//! that were killed. A file has its name only when it is whole.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use kelix_image::Span;
use kelix_image::words::Words;
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};

use super::memory::map_held;

/// A folder of such memory.
#[derive(Clone, Debug)]
pub struct Shelf(PathBuf);

/// What a mapping holds: its file, and the lock on that.
struct Held {
    file: File,
    path: PathBuf,
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let last = flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok();
        // What has the name now may be another.
        let number = |of: io::Result<Metadata>| of.map(|of| of.ino()).ok();
        if last && number(self.file.metadata()) == number(fs::metadata(&self.path)) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Shelf {
    /// The user's. `None`: this host has no place for one.
    pub fn of_user() -> Option<Shelf> {
        let user = rustix::process::getuid().as_raw();
        Shelf::at(Path::new("/dev/shm").join(format!("kelix-{user}")))
    }

    /// The one in a folder, which must belong to the user and nobody else, or not be there yet.
    pub fn at(folder: PathBuf) -> Option<Shelf> {
        // If it is there already, this fails.
        let _ = DirBuilder::new().mode(0o700).create(&folder);
        let found = fs::symlink_metadata(&folder).ok()?;
        let own = found.is_dir() && found.uid() == rustix::process::getuid().as_raw();
        (own && found.mode() & 0o077 == 0).then_some(Shelf(folder))
    }

    /// The memory of a name.
    pub fn find(&self, name: &str) -> Option<Span> {
        let path = self.0.join(name);
        let file = OpenOptions::new().read(true).write(true).open(&path).ok()?;
        Self::hold(file, path).ok()
    }

    /// Puts zeroed memory there, and calls `fill` before anybody else can see it. If somebody has put some there meanwhile it is
    /// that.
    pub fn put(&self, name: &str, bytes: u64, fill: impl FnOnce(Words<'_>)) -> Option<Span> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        self.sweep();
        let (process, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let unfinished = self.0.join(format!("{name}.{process}.{number}"));
        let make = || {
            let file =
                OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&unfinished)?;
            // All of it now: a store to memory that cannot be had later would kill the process.
            fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
            let span = Self::hold(file, self.0.join(name))?;
            fill(span.words());
            fs::hard_link(&unfinished, self.0.join(name)).map(|()| span)
        };
        let made = make();
        let _ = fs::remove_file(&unfinished);
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.find(name),
            made => made.ok(),
        }
    }

    /// Takes a name away. Who uses its memory goes on with it.
    pub fn remove(&self, name: &str) {
        let _ = fs::remove_file(self.0.join(name));
    }

    fn hold(file: File, path: PathBuf) -> io::Result<Span> {
        flock(&file, FlockOperation::NonBlockingLockShared)?;
        let bytes = file.metadata()?.len();
        Ok(map_held(Held { file, path }, bytes)?)
    }

    /// Removes what nobody uses.
    fn sweep(&self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let Ok(file) = File::open(entry.path()) else { continue };
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("kelix-shelf-{name}-{}", std::process::id()))
    }

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    }

    #[test]
    fn memory_of_a_name_is_one_and_goes_with_its_last_user() {
        let folder = folder("one");
        let shelf = Shelf::at(folder.clone()).unwrap();
        assert!(shelf.find("a").is_none());
        let first = shelf.put("a", 4096, |words| words.store(7, 1)).unwrap();
        let second = shelf.find("a").unwrap();
        second.words().publish(8, 2);
        assert_eq!((first.words().load(8), second.words().load(7)), (2, 1));
        // What is there stays there.
        let third = shelf.put("a", 8192, |words| words.store(7, 9)).unwrap();
        assert_eq!((third.bytes(), third.words().load(7)), (4096, 1));
        drop((first, third));
        assert_eq!(names(&folder), ["a"]);
        // Another one of that name is not removed with the one before.
        shelf.remove("a");
        let other = shelf.put("a", 64, |_| ()).unwrap();
        drop(second);
        assert_eq!(names(&folder), ["a"]);
        drop(other);
        assert!(names(&folder).is_empty());
        fs::remove_dir(folder).unwrap();
    }

    #[test]
    fn what_was_left_is_removed_and_a_folder_that_others_can_write_is_refused() {
        let folder = folder("left");
        let shelf = Shelf::at(folder.clone()).unwrap();
        fs::write(folder.join("left"), "by one that was killed").unwrap();
        let held = shelf.put("b", 64, |_| ()).unwrap();
        assert_eq!(names(&folder), ["b"]);
        assert!(shelf.put("too-much", 1 << 60, |_| ()).is_none());
        assert_eq!(names(&folder), ["b"]);
        drop(held);
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert!(Shelf::at(folder.clone()).is_none());
        fs::remove_dir(folder).unwrap();
    }
}
