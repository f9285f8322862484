//! Memory that the processes of a user on one host share by name: what one of them has READ, the others need
//! not.
//!
//! ```text
//! /dev/shm/kelix-UID/NAME    a symbolic link to the memfd of whoever made it: /proc/PROCESS/fd/NUMBER
//! ```
//!
//! A memfd is sealed, so its length stays: a file that somebody cut short would kill all who have it mapped.
//! All of its bytes are there from the start, for the same reason. The name goes with whoever made the
//! memory, and others who use that go on with it. A name that a killed process left leads nowhere, or to
//! something else, which its kind and seals tell.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use kelix_image::Span;
use kelix_image::words::Words;
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, memfd_create, statvfs,
};
use rustix::io::Errno;

use super::memory::map_held;

/// What the names of such memfds begin with.
const MEMFD: &str = "kelix-models-";
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// A folder of such memory.
#[derive(Clone, Debug)]
pub struct Shelf(PathBuf);

/// What a mapping holds: its memory, and the name that leads there.
struct Held {
    file: File,
    path: PathBuf,
}

impl Held {
    /// What the name is a link to.
    fn target(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Of those who have it only who made it is led to; and what has the name now may be another's.
        if fs::read_link(&self.path).is_ok_and(|target| target == self.target()) {
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
        // Looked at before anything is opened: to open a device or a pipe may have effects.
        if !leads_to_memory(&path) {
            return None;
        }
        let file = OpenOptions::new().read(true).write(true).open(&path).ok()?;
        let sealed = fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SEALS));
        let bytes = file.metadata().ok().filter(|_| sealed)?.len();
        map_held(Held { file, path }, bytes).ok()
    }

    /// Puts zeroed memory there, and calls `fill` before anybody else can see it. If somebody has put some
    /// there meanwhile it is that.
    pub fn put(&self, name: &str, bytes: u64, fill: impl FnOnce(Words<'_>)) -> Option<Span> {
        self.sweep();
        let path = self.0.join(name);
        let make = || {
            // No file system limits a memfd: as much as does not fit would be taken of the host until it
            // kills somebody for it.
            let room = statvfs(&self.0)?;
            if bytes > room.f_bavail.saturating_mul(room.f_frsize) {
                return Err(Errno::NOSPC.into());
            }
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = File::from(memfd_create(format!("{MEMFD}{name}"), flags)?);
            // All of it now: a store to memory that cannot be had later would kill the process.
            fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
            fcntl_add_seals(&file, SEALS)?;
            let held = Held { file, path: path.clone() };
            let target = held.target();
            let span = map_held(held, bytes)?;
            fill(span.words());
            symlink(target, &path).map(|()| span)
        };
        match make() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.find(name),
            made => made.ok(),
        }
    }

    /// Takes a name away. Who uses its memory goes on with it.
    pub fn remove(&self, name: &str) {
        let _ = fs::remove_file(self.0.join(name));
    }

    /// Removes what processes left that were killed.
    fn sweep(&self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            if !leads_to_memory(&entry.path()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Whether a name is a link to the memory that was made for it.
fn leads_to_memory(path: &Path) -> bool {
    let Some(name) = path.file_name() else { return false };
    let named = format!("/memfd:{MEMFD}{} (deleted)", Path::new(name).display());
    fs::read_link(path).and_then(fs::read_link).is_ok_and(|memory| memory == Path::new(&named))
}

#[cfg(all(test, not(kelix_loom)))]
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
    fn memory_of_a_name_is_one_and_the_name_goes_with_its_maker() {
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
        drop(third);
        assert_eq!(names(&folder), ["a"]);
        drop(first);
        assert!(names(&folder).is_empty());
        assert_eq!(second.words().load(8), 2);
        // Another one of that name is not removed with the one before.
        let before = shelf.put("a", 64, |_| ()).unwrap();
        shelf.remove("a");
        let other = shelf.put("a", 64, |_| ()).unwrap();
        drop((second, before));
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
        symlink("/proc/self/fd/0", folder.join("b")).unwrap();
        assert!(shelf.find("b").is_none());
        let held = shelf.put("b", 64, |_| ()).unwrap();
        assert_eq!(names(&folder), ["b"]);
        assert!(shelf.put("too-much", 1 << 60, |_| ()).is_none());
        assert_eq!(names(&folder), ["b"]);
        drop(held);
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert!(Shelf::at(folder.clone()).is_none());
        fs::remove_dir(folder).unwrap();
    }

    /// A file in memory that the user cut short killed all of the user's clients, at their next look at it
    /// (SIGBUS).
    #[test]
    fn memory_stays_as_long_as_it_was() {
        let folder = folder("cut");
        let shelf = Shelf::at(folder.clone()).unwrap();
        let held = shelf.put("a", 8192, |words| words.store(1023, 5)).unwrap();
        let path = folder.join("a");
        assert!(File::create(&path).is_err(), "a sealed file was cut short");
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        for bytes in [0, 4096, 1 << 20] {
            assert!(file.set_len(bytes).is_err());
        }
        assert_eq!(held.words().load(1023), 5);
        // What is not sealed is not taken.
        shelf.remove("a");
        let open = File::from(memfd_create(format!("{MEMFD}a"), MemfdFlags::CLOEXEC).unwrap());
        symlink(format!("/proc/{}/fd/{}", std::process::id(), open.as_raw_fd()), &path).unwrap();
        assert!(shelf.find("a").is_none());
        drop(held);
        fs::remove_file(&path).unwrap();
        fs::remove_dir(folder).unwrap();
    }
}
