//! A disk whose power can be cut and whose operations can be made to fail: a file system for other processes.
//!
//! ```text
//! block    [ on the disk ][ written since ] ... [ what is read ]
//! length   the same; name: the same, of the file that has it
//! ```
//!
//! 1. `fsync` and `fdatasync` make contents and length of a file durable, and no name. `fsync` of a directory
//!    makes names in it durable, and nothing else.
//! 2. From the moment of a cut nothing is done any more ([`Disk::cut`]). Of each block, length and name that
//!    was not durable one version is left, by chance.
//! 3. A sync that fails leaves all versions, and the blocks count as clean, as Linux has it.
//!
//! It is mounted in a mount namespace of the thread that makes it and of the processes and threads which that
//! starts, so nothing of it is left behind however a test ends.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::{Random, RunDir};

const BLOCK_BYTES: usize = 512;
/// Nothing that the system knows of a file is good for any time.
const FOR_NO_TIME: Duration = Duration::ZERO;
const ROOT: u64 = 1;
/// Threads that serve the file system, so that a sync that takes long holds nobody else up.
const THREADS: usize = 3;

/// What can be made to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The next write, of which a part is done.
    Write,
    /// The next sync of a file.
    Sync,
}

/// What a block may be after a cut, beside what is read.
#[derive(Default)]
struct Block {
    versions: Vec<[u8; BLOCK_BYTES]>,
    /// A sync has something to do.
    is_dirty: bool,
}

#[derive(Default)]
struct Node {
    is_directory: bool,
    bytes: Vec<u8>,
    /// Its length on the disk.
    durable_bytes: usize,
    /// Blocks that are not as they are on the disk.
    blocks: BTreeMap<usize, Block>,
}

impl Node {
    fn resize(&mut self, bytes: usize) {
        // What was never written takes no memory.
        match self.bytes.is_empty() {
            true => self.bytes = vec![0; bytes],
            false => self.bytes.resize(bytes, 0),
        }
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = at + bytes.len();
        if self.bytes.len() < end {
            self.resize(end);
        }
        for index in at / BLOCK_BYTES..=(end - 1) / BLOCK_BYTES {
            let start = index * BLOCK_BYTES;
            let old = &self.bytes[start..(start + BLOCK_BYTES).min(self.bytes.len())];
            let mut version = [0; BLOCK_BYTES];
            version[..old.len()].copy_from_slice(old);
            let block = self.blocks.entry(index).or_default();
            block.versions.push(version);
            block.is_dirty = true;
        }
        self.bytes[at..end].copy_from_slice(bytes);
    }

    fn sync(&mut self, succeeds: bool) {
        if succeeds {
            self.durable_bytes = self.bytes.len();
            self.blocks.retain(|_, block| !block.is_dirty);
        } else {
            self.blocks.values_mut().for_each(|block| block.is_dirty = false);
        }
    }

    fn cut(&mut self, random: &mut Random) {
        let blocks = std::mem::take(&mut self.blocks);
        for (index, block) in blocks {
            // One number more than there are older versions: what is read.
            let chosen = random.below(block.versions.len() as u64 + 1) as usize;
            if let Some(version) = block.versions.get(chosen) {
                let start = index * BLOCK_BYTES;
                let end = (start + BLOCK_BYTES).min(self.bytes.len());
                if start < end {
                    self.bytes[start..end].copy_from_slice(&version[..end - start]);
                }
            }
        }
        if self.durable_bytes != self.bytes.len() && random.once_in(2) {
            self.resize(self.durable_bytes);
        }
        self.durable_bytes = self.bytes.len();
    }
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<u64, Node>,
    last_node: u64,
    /// Directory and name; versions, the first of which is on the disk.
    names: BTreeMap<(u64, String), Vec<Option<u64>>>,
    /// Names that were taken from what had them.
    removed: BTreeSet<String>,
    /// Bytes that all files may have together.
    limit: Option<usize>,
    fault: Option<(Fault, &'static str)>,
    /// How long syncs take at most.
    sync_time: Duration,
    random: Option<Random>,
    is_cut: bool,
}

impl State {
    fn find(&self, parent: u64, name: &str) -> Option<u64> {
        let versions = self.names.get(&(parent, name.to_string()))?;
        *versions.last().expect("never empty")
    }

    fn name(&mut self, parent: u64, name: &str, node: Option<u64>) {
        if node.is_none() {
            self.removed.insert(name.to_string());
        }
        self.names.entry((parent, name.to_string())).or_insert_with(|| vec![None]).push(node);
    }

    fn add(&mut self, parent: u64, name: &str, is_directory: bool) -> u64 {
        self.last_node += 1;
        self.nodes.insert(self.last_node, Node { is_directory, ..Node::default() });
        self.name(parent, name, Some(self.last_node));
        self.last_node
    }

    fn attributes(&self, node: u64) -> Option<FileAttr> {
        let of = self.nodes.get(&node)?;
        Some(FileAttr {
            ino: INodeNo(node),
            size: of.bytes.len() as u64,
            blocks: of.bytes.len().div_ceil(BLOCK_BYTES) as u64,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if of.is_directory { FileType::Directory } else { FileType::RegularFile },
            perm: if of.is_directory { 0o755 } else { 0o644 },
            nlink: 1,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    /// Bytes of all files.
    fn used(&self) -> usize {
        let named = self.names.values().filter_map(|versions| *versions.last().expect("never empty"));
        named.filter_map(|node| self.nodes.get(&node)).map(|node| node.bytes.len()).sum()
    }

    /// Whether there is room for a file to have so many bytes.
    fn has_room(&self, node: u64, bytes: usize) -> bool {
        let Some(limit) = self.limit else { return true };
        let bytes_of = |node: &u64| self.nodes.get(node).map_or(0, |node| node.bytes.len());
        let named = self.names.values().filter_map(|versions| *versions.last().expect("never empty"));
        let others: usize = named.filter(|other| *other != node).map(|other| bytes_of(&other)).sum();
        bytes <= bytes_of(&node) || others + bytes <= limit
    }

    /// Whether this operation is the one that is to fail.
    fn fails(&mut self, fault: Fault, node: u64) -> bool {
        let Some((wanted, prefix)) = self.fault else { return false };
        let mut names = self.names.iter().filter(|(_, versions)| versions.last() == Some(&Some(node)));
        let fails = wanted == fault && names.any(|((_, name), _)| name.starts_with(prefix));
        if fails {
            self.fault = None;
        }
        fails
    }

    fn cut(&mut self, random: &mut Random) {
        for versions in self.names.values_mut() {
            let chosen = versions[random.below(versions.len() as u64) as usize];
            *versions = vec![chosen];
        }
        self.names.retain(|_, versions| versions[0].is_some());
        let named: Vec<u64> = self.names.values().filter_map(|versions| versions[0]).collect();
        self.nodes.retain(|node, _| *node == ROOT || named.contains(node));
        self.nodes.values_mut().for_each(|node| node.cut(random));
    }
}

/// Has all that is mounted from now on be there for this thread only, and what it starts. An error says why
/// that cannot be done here.
pub fn keep_mounts_to_itself() -> Result<(), String> {
    // SAFETY: file descriptors are not unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }
        .map_err(|error| format!("no mount namespace of its own: {error}"))?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|error| format!("mounts cannot be kept to itself: {error}"))
}

/// A disk, and where it is mounted.
pub struct Disk {
    state: Arc<Mutex<State>>,
    path: PathBuf,
    _session: BackgroundSession,
}

impl Disk {
    /// A disk below a directory of a test, for this thread and what it starts. `None`: there is none to be
    /// had here, which is said, and fails in CI.
    pub fn mount_in(run: &RunDir) -> Option<Disk> {
        let path = run.path().join("disk");
        std::fs::create_dir(&path).unwrap();
        match Disk::mount(&path) {
            Ok(disk) => Some(disk),
            Err(why) => {
                assert!(!std::env::var("CI").is_ok_and(|ci| ci == "true"), "no disk for the test: {why}");
                println!("skipped, for want of a disk of its own: {why}");
                None
            }
        }
    }

    /// Mounts an empty one at an empty directory, for this thread and what it starts. An error says why that
    /// cannot be done here.
    pub fn mount(path: &Path) -> Result<Disk, String> {
        keep_mounts_to_itself()?;
        let mut state = State { last_node: ROOT, ..State::default() };
        state.nodes.insert(ROOT, Node { is_directory: true, ..Node::default() });
        let state = Arc::new(Mutex::new(state));
        let mut options = Config::default();
        options.mount_options = vec![MountOption::FSName("kelix-test".into())];
        options.n_threads = Some(THREADS);
        let session =
            fuser::Session::new(Files(state.clone()), path, &options).and_then(|session| session.spawn());
        let session = session.map_err(|error| format!("/dev/fuse cannot be used: {error}"))?;
        Ok(Disk { state, path: path.to_path_buf(), _session: session })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics that holds it")
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets syncs take up to so long, by chance.
    pub fn sync_within(&self, time: Duration, seed: u64) {
        let mut state = self.state();
        (state.sync_time, state.random) = (time, Some(Random(seed)));
    }

    /// Cuts the power: nothing is done from this moment on, and chance has decided what is left.
    pub fn cut(&self, random: &mut Random) {
        let mut state = self.state();
        state.is_cut = true;
        state.cut(random);
    }

    /// There is power again. No process may have files open that it opened before the cut.
    pub fn power_on(&self) {
        self.state().is_cut = false;
    }

    /// Whether there was a moment at which nothing had a name any more that something had had before.
    pub fn was_without(&self, name: &str) -> bool {
        self.state().removed.contains(name)
    }

    /// Lets an operation on a file whose name begins so fail.
    pub fn fail(&self, fault: Fault, prefix: &'static str) {
        self.state().fault = Some((fault, prefix));
    }

    /// Whether what was to fail has failed.
    pub fn has_failed(&self) -> bool {
        self.state().fault.is_none()
    }

    /// Lets all files together have as many bytes as they have, and so many more.
    pub fn limit(&self, more: Option<usize>) {
        let mut state = self.state();
        let used = state.used();
        state.limit = more.map(|more| used + more);
    }
}

/// What the system asks.
struct Files(Arc<Mutex<State>>);

type Done<T> = Result<T, Errno>;

fn text(name: &OsStr) -> Done<&str> {
    name.to_str().ok_or(Errno::EINVAL)
}

impl Files {
    /// The state, while there is power.
    fn state(&self) -> Done<MutexGuard<'_, State>> {
        let state = self.0.lock().expect("nothing panics that holds it");
        if state.is_cut { Err(Errno::EIO) } else { Ok(state) }
    }

    fn look(&self, parent: INodeNo, name: &OsStr) -> Done<FileAttr> {
        let state = self.state()?;
        let node = state.find(parent.0, text(name)?).ok_or(Errno::ENOENT)?;
        state.attributes(node).ok_or(Errno::ENOENT)
    }

    fn make(&self, parent: INodeNo, name: &OsStr, is_directory: bool) -> Done<FileAttr> {
        let mut state = self.state()?;
        if state.find(parent.0, text(name)?).is_some() {
            return Err(Errno::EEXIST);
        }
        let node = state.add(parent.0, text(name)?, is_directory);
        state.attributes(node).ok_or(Errno::ENOENT)
    }

    fn remove(&self, parent: INodeNo, name: &OsStr) -> Done<()> {
        let mut state = self.state()?;
        state.find(parent.0, text(name)?).ok_or(Errno::ENOENT)?;
        state.name(parent.0, text(name)?, None);
        Ok(())
    }

    fn move_name(&self, from: (INodeNo, &OsStr), to: (INodeNo, &OsStr), exchanges: bool) -> Done<()> {
        let mut state = self.state()?;
        let node = state.find(from.0.0, text(from.1)?).ok_or(Errno::ENOENT)?;
        let other = match exchanges {
            true => Some(state.find(to.0.0, text(to.1)?).ok_or(Errno::ENOENT)?),
            false => None,
        };
        state.name(to.0.0, text(to.1)?, Some(node));
        state.name(from.0.0, text(from.1)?, other);
        Ok(())
    }

    fn resize(&self, node: u64, bytes: usize) -> Done<FileAttr> {
        let mut state = self.state()?;
        if !state.has_room(node, bytes) {
            return Err(Errno::ENOSPC);
        }
        state.nodes.get_mut(&node).ok_or(Errno::ENOENT)?.resize(bytes);
        state.attributes(node).ok_or(Errno::ENOENT)
    }

    fn write_to(&self, node: u64, at: usize, bytes: &[u8]) -> Done<()> {
        let mut state = self.state()?;
        if !state.has_room(node, at + bytes.len()) {
            return Err(Errno::ENOSPC);
        }
        let fails = state.fails(Fault::Write, node);
        let written = if fails { &bytes[..bytes.len() / 2] } else { bytes };
        state.nodes.get_mut(&node).ok_or(Errno::ENOENT)?.write(at, written);
        if fails { Err(Errno::EIO) } else { Ok(()) }
    }

    fn sync(&self, node: u64) -> Done<()> {
        let time = {
            let state = &mut *self.state()?;
            let most = state.sync_time.as_micros() as u64;
            state.random.as_mut().filter(|_| most > 0).map_or(0, |random| random.below(most))
        };
        // The disk takes its time, in which others may write and the power may go.
        std::thread::sleep(Duration::from_micros(time));
        let mut state = self.state()?;
        let fails = state.fails(Fault::Sync, node);
        state.nodes.get_mut(&node).ok_or(Errno::ENOENT)?.sync(!fails);
        if fails { Err(Errno::EIO) } else { Ok(()) }
    }

    fn sync_names(&self, directory: u64) -> Done<()> {
        let mut state = self.state()?;
        for ((parent, _), versions) in &mut state.names {
            if *parent == directory {
                versions.drain(..versions.len() - 1);
            }
        }
        state.names.retain(|_, versions| *versions != [None]);
        Ok(())
    }

    fn read_from(&self, node: u64, at: usize, count: usize) -> Done<Vec<u8>> {
        let state = self.state()?;
        let bytes = &state.nodes.get(&node).ok_or(Errno::ENOENT)?.bytes;
        let end = (at + count).min(bytes.len());
        Ok(bytes.get(at..end).unwrap_or(&[]).to_vec())
    }

    fn list(&self, directory: u64) -> Done<Vec<(u64, FileType, String)>> {
        let state = self.state()?;
        let of_it = state.names.keys().filter(|(parent, _)| *parent == directory);
        let entries = of_it.filter_map(|(parent, name)| {
            let attributes = state.attributes(state.find(*parent, name)?)?;
            Some((attributes.ino.0, attributes.kind, name.clone()))
        });
        Ok(entries.collect())
    }
}

fn entry(reply: ReplyEntry, made: Done<FileAttr>) {
    match made {
        Ok(attributes) => reply.entry(&FOR_NO_TIME, &attributes, Generation(0)),
        Err(error) => reply.error(error),
    }
}

fn done(reply: ReplyEmpty, done: Done<()>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Files {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(reply, self.look(parent, name));
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.state().and_then(|state| state.attributes(node.0).ok_or(Errno::ENOENT)) {
            Ok(attributes) => reply.attr(&FOR_NO_TIME, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        node: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<std::time::SystemTime>,
        _: Option<FileHandle>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = match size {
            Some(size) => self.resize(node.0, size as usize),
            None => self.state().and_then(|state| state.attributes(node.0).ok_or(Errno::ENOENT)),
        };
        match set {
            Ok(attributes) => reply.attr(&FOR_NO_TIME, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        entry(reply, self.make(parent, name, true));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.remove(parent, name));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.remove(parent, name));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        new: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let exchanges = flags.contains(RenameFlags::RENAME_EXCHANGE);
        done(reply, self.move_name((parent, name), (to, new), exchanges));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // The system is to keep nothing of it, which a cut would have to take from it again.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn create(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        match self.make(parent, name, false) {
            Ok(attributes) => reply.created(
                &FOR_NO_TIME,
                &attributes,
                Generation(0),
                FileHandle(0),
                FopenFlags::FOPEN_DIRECT_IO,
            ),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        at: u64,
        count: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.read_from(node.0, at as usize, count as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        at: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.write_to(node.0, at as usize, bytes) {
            Ok(()) => reply.written(bytes.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, node: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        done(reply, self.sync(node.0));
    }

    fn readdir(&self, _: &Request, node: INodeNo, _: FileHandle, at: u64, mut reply: ReplyDirectory) {
        match self.list(node.0) {
            Ok(entries) => {
                for (index, (node, kind, name)) in (1..).zip(entries).skip(at as usize) {
                    if reply.add(INodeNo(node), index, kind, name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(error),
        }
    }

    fn fsyncdir(&self, _: &Request, node: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        done(reply, self.sync_names(node.0));
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let free = self.state().map_or(0, |state| match state.limit {
            Some(limit) => limit.saturating_sub(state.used()) as u64 / 4096,
            None => 1 << 30,
        });
        reply.statfs(1 << 30, free, free, 1 << 20, 1 << 20, 4096, 255, 4096);
    }

    fn fallocate(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        at: u64,
        count: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode != 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let bytes = self.state().map(|state| state.nodes.get(&node.0).map_or(0, |node| node.bytes.len()));
        let allocated = bytes.and_then(|bytes| self.resize(node.0, bytes.max((at + count) as usize)));
        done(reply, allocated.map(drop));
    }
}
