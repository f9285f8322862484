//! Where files are: a directory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// A directory, of the system or in memory.
pub trait Storage: Send {
    /// Makes a file of so many bytes, which are 0 and are allocated. Refuses a name that there is. If it
    /// fails there is no such file.
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn LogFile>>;
    /// Opens a file to read it.
    fn open(&self, name: &str) -> io::Result<Box<dyn LogFile>>;
    /// Opens a file to read it and to write into what it has.
    fn open_to_write(&self, name: &str) -> io::Result<Box<dyn LogFile>>;
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Gives a file another name, and takes it from the file that had it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Makes durable which names there are.
    fn sync(&self) -> io::Result<()>;
    /// What messages call a file.
    fn describe(&self, name: &str) -> String;
}

/// A file of a [`Storage`].
pub trait LogFile: Send {
    /// Writes bytes from a byte on.
    fn write_all_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Reads bytes from a byte on, and says how many; 0: there are none.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize>;
    /// Its length.
    fn bytes(&self) -> io::Result<u64>;
    /// Gives the room behind so many bytes back.
    fn shrink(&mut self, bytes: u64) -> io::Result<()>;
    /// Makes its contents durable.
    fn sync_data(&mut self) -> io::Result<()>;
}

/// A directory of the system's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Directory(pub PathBuf);

impl Directory {
    fn opened(&self, options: &OpenOptions, name: &str) -> io::Result<Box<dyn LogFile>> {
        Ok(Box::new(options.open(self.0.join(name))?))
    }
}

/// Allocates the bytes of a new file, so that none of them lacks room later.
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    loop {
        match fallocate(file, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP) => return fill(file, bytes),
            result => return Ok(result?),
        }
    }
}

/// Writes zeros, where a file system cannot allocate.
fn fill(file: &File, bytes: u64) -> io::Result<()> {
    let zeros = [0; 64 << 10];
    (0..bytes).step_by(zeros.len()).try_for_each(|at| {
        let count = (bytes - at).min(zeros.len() as u64);
        file.write_all_at(&zeros[..count as usize], at)
    })
}

impl Storage for Directory {
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn LogFile>> {
        let path = self.0.join(name);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        if let Err(error) = allocate(&file, bytes) {
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        Ok(Box::new(file))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn LogFile>> {
        self.opened(OpenOptions::new().read(true), name)
    }

    fn open_to_write(&self, name: &str) -> io::Result<Box<dyn LogFile>> {
        self.opened(OpenOptions::new().read(true).write(true), name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(&self.0)?.map(|entry| Ok(entry?.file_name().into_string().ok()));
        entries.filter_map(io::Result::transpose).collect()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.0.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.0.join(from), self.0.join(to))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }

    fn describe(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl LogFile for File {
    fn write_all_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, at)
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(self, bytes, at)
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn shrink(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        File::sync_data(self)
    }
}
