//! A disk in memory whose power can be cut, and whose operations can be made to fail.
//!
//! ```text
//! block   versions  [ on the disk ][ written since ] ... [ what is read ]
//! name    versions  the same, of the file that has the name, or none
//! ```
//!
//! 1. What is read is the last version; a sync that succeeds leaves only that one.
//! 2. A power cut leaves one version of each block and of each name, whichever the caller chooses: what was
//!    not synced is there or not, in any order, torn between blocks.
//! 3. A sync that fails leaves all versions, and from then on the block counts as clean, as Linux has it: a
//!    later sync makes it durable only if it was written again.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::files::{LogFile, Storage};

const BLOCK_BYTES: usize = 512;

/// What can be made to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// [`Storage::create`], for want of room.
    Create,
    /// [`LogFile::write_all_at`]. A part of the bytes is written.
    Write,
    /// [`LogFile::sync_data`].
    SyncData,
    /// [`Storage::rename`].
    Rename,
    /// [`Storage::remove`].
    Remove,
    /// [`Storage::sync`].
    SyncNames,
}

/// Versions of a block.
struct Block {
    versions: Vec<[u8; BLOCK_BYTES]>,
    /// A sync has something to do.
    is_dirty: bool,
}

impl Default for Block {
    fn default() -> Block {
        Block { versions: vec![[0; BLOCK_BYTES]], is_dirty: false }
    }
}

impl Block {
    fn last(&self) -> &[u8; BLOCK_BYTES] {
        self.versions.last().expect("never empty")
    }

    fn write(&mut self, from: usize, bytes: &[u8]) {
        let mut version = *self.last();
        version[from..from + bytes.len()].copy_from_slice(bytes);
        self.versions.push(version);
        self.is_dirty = true;
    }
}

/// What a file holds. Blocks that there are none of were never written.
#[derive(Default)]
struct Contents {
    bytes: u64,
    blocks: BTreeMap<u64, Block>,
    /// Its length is on the disk.
    is_allocated: bool,
}

#[derive(Default)]
struct Disk {
    files: Vec<Contents>,
    names: BTreeMap<String, Vec<Option<usize>>>,
    limit: Option<u64>,
    /// What fails (`None`: whatever is done), and how many such operations from now.
    plan: Vec<(Option<Operation>, u64)>,
}

/// A directory in memory, for tests and simulations. Clones are the same directory.
#[derive(Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<Disk>>);

struct MemoryFile {
    disk: MemoryDisk,
    file: usize,
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Disk {
    /// Fails if the plan says so.
    fn step(&mut self, operation: Operation) -> io::Result<()> {
        let mut fails = false;
        self.plan.retain_mut(|(what, left)| {
            if what.is_none_or(|what| what == operation) {
                *left -= 1;
                fails |= *left == 0;
            }
            *left > 0
        });
        let errno = match operation {
            Operation::Create => rustix::io::Errno::NOSPC,
            _ => rustix::io::Errno::IO,
        };
        if fails { Err(errno.into()) } else { Ok(()) }
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.names.get(name).and_then(|versions| *versions.last().expect("never empty"))
    }

    fn name(&mut self, name: &str, file: Option<usize>) {
        self.names.entry(name.to_string()).or_insert_with(|| vec![None]).push(file);
    }

    fn used(&self) -> u64 {
        self.names.keys().filter_map(|name| self.find(name)).map(|file| self.files[file].bytes).sum()
    }

    fn write(&mut self, file: usize, bytes: &[u8], at: u64) {
        let contents = &mut self.files[file];
        contents.bytes = contents.bytes.max(at + bytes.len() as u64);
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let from = at as usize % BLOCK_BYTES;
            let (here, behind) = rest.split_at(rest.len().min(BLOCK_BYTES - from));
            contents.blocks.entry(at / BLOCK_BYTES as u64).or_default().write(from, here);
            (at, rest) = (at + here.len() as u64, behind);
        }
    }

    /// Reads up to the end of a block.
    fn read(&self, file: usize, bytes: &mut [u8], at: u64) -> usize {
        let (contents, from) = (&self.files[file], at as usize % BLOCK_BYTES);
        let count = bytes.len().min(BLOCK_BYTES - from).min(contents.bytes.saturating_sub(at) as usize);
        match contents.blocks.get(&(at / BLOCK_BYTES as u64)) {
            Some(block) => bytes[..count].copy_from_slice(&block.last()[from..from + count]),
            None => bytes[..count].fill(0),
        }
        count
    }
}

/// Keeps one version, the one that a random number chooses.
fn keep_one<T>(versions: &mut Vec<T>, choose: &mut impl FnMut() -> u64) {
    if versions.len() > 1 {
        let chosen = versions.swap_remove((choose() % versions.len() as u64) as usize);
        versions.clear();
        versions.push(chosen);
    }
}

fn keep_last<T>(versions: &mut Vec<T>) {
    versions.drain(..versions.len() - 1);
}

impl MemoryDisk {
    /// A directory with no files.
    pub fn new() -> MemoryDisk {
        MemoryDisk::default()
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().expect("nothing panics that holds it")
    }

    /// Lets the `nth` operation of a kind from now on fail (1: the next one), or of all kinds.
    pub fn fail(&self, what: Option<Operation>, nth: u64) {
        self.disk().plan.push((what, nth.max(1)));
    }

    /// Forgets what was to fail.
    pub fn fail_no_more(&self) {
        self.disk().plan.clear();
    }

    /// Lets all files together have so many bytes at most.
    pub fn limit(&self, bytes: Option<u64>) {
        self.disk().limit = bytes;
    }

    /// Cuts the power. The random numbers choose what is left of what was not synced. Files that were open
    /// are not to be used any more.
    pub fn crash(&self, mut choose: impl FnMut() -> u64) {
        let disk = &mut *self.disk();
        disk.names.values_mut().for_each(|versions| keep_one(versions, &mut choose));
        disk.names.retain(|_, versions| versions[0].is_some());
        for contents in &mut disk.files {
            if !contents.is_allocated && choose() % 2 == 0 {
                *contents = Contents::default();
            }
            for block in contents.blocks.values_mut() {
                keep_one(&mut block.versions, &mut choose);
                block.is_dirty = false;
            }
        }
    }

    /// The bytes of a file, if there is one of that name.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let disk = self.disk();
        let file = disk.find(name)?;
        let mut bytes = vec![0; disk.files[file].bytes as usize];
        let mut at = 0;
        while at < bytes.len() {
            at += disk.read(file, &mut bytes[at..], at as u64);
        }
        Some(bytes)
    }

    /// Puts a file there, as if it had always been: a test's way to damage one.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let disk = &mut *self.disk();
        let file = disk.files.len();
        disk.files.push(Contents { is_allocated: true, ..Contents::default() });
        disk.write(file, bytes, 0);
        for block in disk.files[file].blocks.values_mut() {
            keep_last(&mut block.versions);
            block.is_dirty = false;
        }
        disk.names.insert(name.to_string(), vec![Some(file)]);
    }

    fn file(&self, file: usize) -> Box<dyn LogFile> {
        Box::new(MemoryFile { disk: self.clone(), file })
    }
}

impl Storage for MemoryDisk {
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn LogFile>> {
        let disk = &mut *self.disk();
        disk.step(Operation::Create)?;
        if disk.find(name).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if disk.limit.is_some_and(|limit| disk.used() + bytes > limit) {
            return Err(rustix::io::Errno::NOSPC.into());
        }
        let file = disk.files.len();
        disk.files.push(Contents { bytes, ..Contents::default() });
        disk.name(name, Some(file));
        Ok(self.file(file))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn LogFile>> {
        Ok(self.file(self.disk().find(name).ok_or_else(not_found)?))
    }

    fn open_to_write(&self, name: &str) -> io::Result<Box<dyn LogFile>> {
        self.open(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let disk = self.disk();
        Ok(disk.names.keys().filter(|name| disk.find(name).is_some()).cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let disk = &mut *self.disk();
        disk.step(Operation::Remove)?;
        disk.find(name).ok_or_else(not_found)?;
        disk.name(name, None);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let disk = &mut *self.disk();
        disk.step(Operation::Rename)?;
        let file = disk.find(from).ok_or_else(not_found)?;
        disk.name(to, Some(file));
        disk.name(from, None);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let disk = &mut *self.disk();
        disk.step(Operation::SyncNames)?;
        disk.names.values_mut().for_each(keep_last);
        disk.names.retain(|_, versions| versions[0].is_some());
        Ok(())
    }

    fn describe(&self, name: &str) -> String {
        format!("memory:{name}")
    }
}

impl LogFile for MemoryFile {
    fn write_all_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        let disk = &mut *self.disk.disk();
        let result = disk.step(Operation::Write);
        let written = if result.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
        disk.write(self.file, written, at);
        result
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        Ok(self.disk.disk().read(self.file, bytes, at))
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.disk.disk().files[self.file].bytes)
    }

    fn shrink(&mut self, bytes: u64) -> io::Result<()> {
        let contents = &mut self.disk.disk().files[self.file];
        contents.bytes = contents.bytes.min(bytes);
        contents.blocks.retain(|block, _| block * (BLOCK_BYTES as u64) < bytes);
        Ok(())
    }

    fn sync_data(&mut self) -> io::Result<()> {
        let disk = &mut *self.disk.disk();
        let result = disk.step(Operation::SyncData);
        let contents = &mut disk.files[self.file];
        contents.is_allocated |= result.is_ok();
        for block in contents.blocks.values_mut() {
            if std::mem::take(&mut block.is_dirty) && result.is_ok() {
                keep_last(&mut block.versions);
            }
        }
        result
    }
}
