//! A register for the nodes of one host: numbered files in a directory on a local file system.
//!
//! ```text
//! swap     write and fsync a file without a number ── link to view.N+1 ── fsync the directory ── Done
//!                                                          └─ exists: Lost
//! read     probe view.N+1 upward ── a new number: fsync the directory ── read the highest
//! ```
//!
//! There are no locks: a stopped process blocks nobody, and a lock on a file that another one is renamed over
//! is held twice. `link` decides, because it succeeds for one caller only.
//!
//! 1. A number is given once: `link` fails where the name exists, and a name is never removed. Old views are
//!    emptied instead ([`Directory::empty_older_than`]).
//! 2. Nobody acts on a number that a loss of power takes back: the writer, and each other handle that sees a
//!    number for the first time, synchronizes the directory first ([`LocalRegister::advance`]).
//! 3. A view is whole and durable before it has a number ([`Directory::propose`]).
//! 4. A directory that was removed, replaced or put back from an old copy ends every handle that knew it: the
//!    directory and the file of the newest known view are still the same at the end of each call
//!    ([`LocalRegister::advance`]).
//!
//! A process that is killed leaves a file without a number behind, which a later [`LocalRegister::open`]
//! removes, or a view with a number that the next reader makes durable. [`Register::is_current`] costs four
//! calls to the system and no access to the disk, [`Register::swap`] two synchronizations.

mod directory;
mod file_system;
#[cfg(test)]
mod tests;

use std::path::Path;

use kelix_types::{Effect, Error, ErrorKind, Result};
use rustix::io::Errno;

use self::directory::{Directory, Held, view_name};
use crate::{OPERATION, Register, Swapped, View, check_expected, check_proposal, document};

/// How often a view may be superseded while it is read, each time by as many as are kept.
const READS_MAX: usize = 64;

/// A register in files of this host.
#[derive(Debug)]
pub struct LocalRegister {
    directory: Directory,
    /// The highest number that was seen; 0: none. It is durable.
    newest: u64,
    /// The file of that view.
    file: Option<Held>,
}

impl LocalRegister {
    /// Opens the register in a directory. A directory that does not exist is made, with mode 0700.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`] of a directory on a network file system, of another user's, or of one
    /// that others may write to; [`ErrorKind::Damaged`] where files are missing; [`ErrorKind::System`] where
    /// the system refuses.
    pub fn open(directory: &Path) -> Result<LocalRegister> {
        let directory = Directory::open(directory)?;
        directory.remove_left_behind()?;
        let highest = directory.highest()?;
        // The number before, so that the highest one is found, and made durable, as any other.
        let mut register = LocalRegister { directory, newest: highest.saturating_sub(1), file: None };
        register.advance()?;
        Ok(register)
    }

    /// Finds the newest view, and makes sure that it is durable and that the register is still the one that
    /// was opened.
    fn advance(&mut self) -> Result<()> {
        let mut newest = self.newest;
        while self.directory.identity(newest + 1)?.is_some() {
            newest += 1;
        }
        if newest > self.newest {
            self.directory.check_in_place()?;
            let file = self.directory.hold(newest)?;
            self.directory.sync()?;
            (self.newest, self.file) = (newest, Some(file));
        }
        // Of the newest view only: an old one that is emptied may get another inode on an overlayfs.
        let named = if newest > 0 { self.directory.identity(newest)? } else { None };
        // Last: a directory that is in its place now was in its place when its files were looked at.
        self.directory.check_in_place()?;
        if named != self.file.as_ref().map(|file| file.identity) || (named.is_none() && newest > 0) {
            let what = format!("was put back from an old copy ({} is not the same)", view_name(newest));
            return Err(self.directory.lost(&what));
        }
        Ok(())
    }

    /// Reads the newest known view, or a newer one where that was emptied meanwhile.
    fn load_newest(&mut self) -> Result<Option<View>> {
        for _ in 0..READS_MAX {
            if self.newest == 0 {
                return Ok(None);
            }
            let read = self.newest;
            let failed = match self.directory.load(read) {
                Ok(view) => return Ok(Some(view)),
                Err(error) => error,
            };
            // The view may have become so old meanwhile that it was emptied.
            self.advance()?;
            if self.newest == read {
                return Err(failed);
            }
        }
        let context = "views follow each other faster than they can be read";
        Err(Error::new(ErrorKind::Unavailable, OPERATION, context))
    }

    /// How a swap ended whose number is given already: it may have been this proposal that was given it.
    fn settle(&mut self, view: &View) -> Result<Swapped> {
        let read = self.read().map_err(|error| error.with_effect(Effect::Unknown))?;
        let is_in_force = read.as_ref() == Some(view);
        Ok(if is_in_force { Swapped::Done } else { Swapped::Lost })
    }

    /// The error of a `link` that failed for another reason than that the number is given.
    fn refused(&self, view: &View, source: Errno) -> Error {
        let name = self.directory.name_of(&view_name(view.number));
        let (what, effect) = match source {
            Errno::PERM | Errno::OPNOTSUPP => {
                ("; the file system may have no hard links: use another", Effect::No)
            }
            Errno::NOENT | Errno::ACCESS | Errno::NOSPC | Errno::DQUOT | Errno::ROFS => ("", Effect::No),
            _ => ("", Effect::Unknown),
        };
        let context = format!("cannot link {name}{what}");
        Error::system(OPERATION, context, std::io::Error::from(source)).with_effect(effect)
    }
}

impl Register for LocalRegister {
    fn read(&mut self) -> Result<Option<View>> {
        self.advance()?;
        self.load_newest()
    }
    fn is_current(&mut self, number: u64) -> Result<bool> {
        self.advance()?;
        Ok(self.newest == number)
    }

    fn swap(&mut self, expected: u64, view: &View) -> Result<Swapped> {
        check_proposal(expected, view)?;
        let bytes = document::encode(view)?;
        self.advance()?;
        check_expected(expected, self.newest)?;
        if self.newest > expected {
            return self.settle(view);
        }
        let proposal = self.directory.propose(&bytes)?;
        match self.directory.number(&proposal, view.number) {
            Ok(true) => {}
            Ok(false) => return self.settle(view),
            Err(source) => {
                // A directory that was removed takes no new names.
                self.directory.check_in_place()?;
                return Err(self.refused(view, source));
            }
        }
        // The view is in force for whoever sees it, and for this caller once it is durable.
        self.advance().map_err(|error| error.with_effect(Effect::Unknown))?;
        self.directory.empty_older_than(view.number);
        Ok(Swapped::Done)
    }
}
