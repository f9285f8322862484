//! The directory that is rewritten, and those that stand beside it.
//!
//! Nothing is removed but what this began itself, or one of it that was killed ([`Work::clear`]).

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use kelix_types::{Error, ErrorKind, Result};
use rustix::fs::{CWD, RenameFlags, renameat_with, statvfs};

use super::{OPERATION, ReshardStep, invalid};

/// Room that is left on the disk beside what is written.
const ROOM_LEFT_BYTES: u64 = 1 << 20;

fn system(what: &str, path: &Path, source: impl Into<std::io::Error>) -> Error {
    Error::system(OPERATION, format!("cannot {what} {}", path.display()), source.into())
}

/// The directory, and the two that stand beside it.
pub(super) struct Work {
    pub directory: PathBuf,
    parent: PathBuf,
    /// Where the new one is written.
    pub new: PathBuf,
    /// Where the old one is kept.
    before: PathBuf,
    has_begun: bool,
}

/// Whether a file belongs to a store.
fn is_of_store(name: &str) -> bool {
    let ends = |ending: &str| name.ends_with(ending);
    matches!(name, "store" | "store.next" | "log.next")
        || name.starts_with("log-")
        || ends(".kelix-snapshot")
        || ends(".kelix-snapshot.part")
}

/// The names in a directory, of files that belong to a store. An error names the first that does not.
fn names_of_store(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).map_err(|source| system("list", directory, source))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.map_err(|source| system("list", directory, source))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !is_of_store(&name) || !path.symlink_metadata().is_ok_and(|of| of.is_file()) {
            let context = format!("{} is no file of the store: move it away first", path.display());
            return Err(invalid(context));
        }
        names.push(path);
    }
    Ok(names)
}

impl Work {
    /// Looks at a directory, and whether it can be exchanged for another one.
    pub fn look(directory: &Path) -> Result<Work> {
        let directory = fs::canonicalize(directory).map_err(|source| system("read", directory, source))?;
        let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else {
            return Err(invalid(format!("{} is no directory of a store", directory.display())));
        };
        let beside = |ending: &str| {
            let mut name = name.to_os_string();
            name.push(ending);
            parent.join(name)
        };
        let (new, before) = (beside(".reshard"), beside(".before-reshard"));
        let parent = parent.to_path_buf();
        let work = Work { parent, new, before, directory, has_begun: false };
        let names = names_of_store(&work.directory)?;
        let holds = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("log-") || name.ends_with(".kelix-snapshot")
        };
        if !names.iter().any(holds) {
            let context = format!("there is neither a log nor a snapshot in {}", work.directory.display());
            return Err(invalid(context));
        }
        let device = |path: &Path| fs::metadata(path).map(|of| of.dev()).ok();
        if device(&work.directory) != device(&work.parent) {
            let context = format!(
                "a file system is mounted at {0}, so it cannot be exchanged for another directory: move what \
                 is in it to a directory within, as {0}/kelix, and serve that",
                work.directory.display()
            );
            return Err(invalid(context));
        }
        Ok(work)
    }

    /// The name under which the old directory is kept has to be free.
    pub fn check_before(&self) -> Result<()> {
        if self.before.symlink_metadata().is_err() {
            return Ok(());
        }
        Err(invalid(format!(
            "{} is there, from before: remove it, if {} is as it should be, or give it another name",
            self.before.display(),
            self.directory.display()
        )))
    }

    /// Removes what was begun and not ended: by this, or by one that was killed.
    pub fn clear(&self) -> Result<()> {
        match self.new.symlink_metadata() {
            Ok(of) if of.is_dir() => {}
            Ok(_) => {
                return Err(invalid(format!("{} is in the way: move it away first", self.new.display())));
            }
            Err(_) => return Ok(()),
        }
        for name in names_of_store(&self.new)? {
            fs::remove_file(&name).map_err(|source| system("remove", &name, source))?;
        }
        fs::remove_dir(&self.new).map_err(|source| system("remove", &self.new, source))
    }

    /// Whether there is room for so many bytes more.
    pub fn check_room(&self, bytes: u64) -> Result<()> {
        let disk =
            statvfs(&self.parent).map_err(|source| system("look at the disk of", &self.parent, source))?;
        let room = disk.f_bavail.saturating_mul(disk.f_frsize);
        // Each piece has a head.
        let needed = bytes + bytes / 64 + ROOM_LEFT_BYTES;
        if room >= needed {
            return Ok(());
        }
        let context = format!(
            "the new shards take {needed} bytes on the disk of {} beside what there is, and {room} are free: \
             nothing was changed",
            self.parent.display()
        );
        Err(Error::new(ErrorKind::OutOfMemory, OPERATION, context))
    }

    pub fn begin(&mut self) -> Result<()> {
        fs::create_dir(&self.new).map_err(|source| system("make", &self.new, source))?;
        self.has_begun = true;
        self.own(&self.new)?;
        let mode = fs::metadata(&self.directory).map(|of| of.permissions());
        mode.and_then(|mode| fs::set_permissions(&self.new, mode))
            .map_err(|source| system("make", &self.new, source))
    }

    /// Gives something new to whom the directory belongs.
    fn own(&self, path: &Path) -> Result<()> {
        let own = || {
            let (wanted, is) = (fs::metadata(&self.directory)?, fs::metadata(path)?);
            if (wanted.uid(), wanted.gid()) == (is.uid(), is.gid()) {
                return Ok(());
            }
            std::os::unix::fs::chown(path, Some(wanted.uid()), Some(wanted.gid()))
        };
        own().map_err(|source| system("give away", path, source))
    }

    fn sync(&self, path: &Path) -> Result<()> {
        let synced = File::open(path).and_then(|directory| directory.sync_all());
        synced.map_err(|source| system("sync", path, source))
    }

    /// All that was written is on the disk, and belongs to whom the directory belongs.
    pub fn settle(&self) -> Result<()> {
        names_of_store(&self.new)?.iter().try_for_each(|path| self.own(path))?;
        self.sync(&self.new)?;
        self.sync(&self.parent)
    }

    /// Puts the new directory in the place of the old one. Where that is then.
    pub fn exchange(mut self, tell: &mut dyn FnMut(ReshardStep)) -> Result<PathBuf> {
        let before = std::mem::take(&mut self.before);
        fs::rename(&self.new, &before).map_err(|source| system("make", &before, source))?;
        // Another attempt is to find its own work.
        let give_up = |error: Error| {
            let _ = fs::rename(&before, &self.new);
            error
        };
        self.sync(&self.parent).map_err(give_up)?;
        tell(ReshardStep::Named);
        let exchanged = renameat_with(CWD, &self.directory, CWD, &before, RenameFlags::EXCHANGE);
        exchanged
            .map_err(|source| give_up(system("exchange its new directory for", &self.directory, source)))?;
        tell(ReshardStep::Exchanged);
        self.sync(&self.parent)?;
        Ok(before)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // Behind an exchange there is nothing of that name.
        if self.has_begun {
            let _ = self.clear();
        }
    }
}
