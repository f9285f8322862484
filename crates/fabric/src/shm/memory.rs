//! Memory that processes share: memfds, their seals and mappings.

use std::any::Any;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock};

use kelix_image::{SegmentSource, Span};
use kelix_types::limits::HUGE_PAGE_BYTES;
use kelix_types::{Error, Result};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, SeekFrom, fallocate, fcntl_add_seals, ftruncate, memfd_create,
    seek,
};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use super::numa::NumaNode;
use super::pages::{HugePages, are_granted, huge_pages, is_reserved, take_reserved};
use super::reaper::{self, ImageLife};

/// Has the allocator take pieces of 512 KiB and more from the system one by one, and give them back as soon
/// as nobody has them; smaller ones, as of changes that a snapshot is told, are taken too often for that. By
/// itself glibc raises that limit to the largest piece that was ever freed: then the mailboxes and queues of
/// clients over TCP come from the heap, which clears them by hand, by which all of them become resident, and
/// keeps them when the clients have gone.
pub fn return_large_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const M_MMAP_THRESHOLD: std::ffi::c_int = -3;
        unsafe extern "C" {
            fn mallopt(parameter: std::ffi::c_int, value: std::ffi::c_int) -> std::ffi::c_int;
        }
        // SAFETY: the signature is that of glibc, and the call may be made at any time by any thread. A
        // refusal costs memory only.
        let _ = unsafe { mallopt(M_MMAP_THRESHOLD, 512 << 10) };
    }
}

/// Gives pages of the heap that nobody has anything in back to the system, all of them. By itself glibc does
/// so at the heap's end only, where some small piece is left as a rule: what crowds of clients had stayed
/// resident when they were gone, and each crowd found less of it fit to be used again. Takes some
/// microseconds a megabyte, in which others may wait for memory.
pub fn return_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(kept: usize) -> std::ffi::c_int;
        }
        // SAFETY: the signature is that of glibc, and the call may be made at any time by any thread.
        let _ = unsafe { malloc_trim(0) };
    }
}

/// A mapping; unmaps when dropped.
pub(super) struct Mapping {
    base: *mut std::ffi::c_void,
    bytes: usize,
    /// What is to live as long.
    held: Box<dyn Any + Send + Sync>,
}

// SAFETY: the mapping is only an address range; what is done with it goes through `Words`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map` and every span over it held this owner, so nobody uses it
        // now.
        let _ = unsafe { munmap(self.base, self.bytes) };
    }
}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, bytes: u64, writable: bool) -> rustix::io::Result<Mapping> {
        let length = usize::try_from(bytes).map_err(|_| rustix::io::Errno::OVERFLOW)?;
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new shared mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, fd, 0)? };
        let mapping = Mapping { base, bytes: length, held: Box::new(()) };
        if huge_pages() != HugePages::Off {
            // A refusal only costs speed.
            // SAFETY: advice on our own mapping.
            let _ = unsafe { madvise(base, length, Advice::LinuxHugepage) };
        }
        Ok(mapping)
    }

    fn span(self) -> Span {
        let mapping = Arc::new(self);
        mapping.span_of(mapping.clone())
    }

    /// A span of it that holds its owner.
    fn span_of(&self, owner: Arc<dyn Any + Send + Sync>) -> Span {
        // SAFETY: the mapping is page-aligned, stays until its owner is dropped, and is reached through words
        // only. A read-only mapping goes to readers, which call no storing method: a store would fault, not
        // corrupt.
        unsafe { Span::new(self.base.cast(), self.bytes as u64, owner) }
    }

    /// Gives a read-only mapping's memory back, and has zeros of this process's own in its place. Who reads
    /// it meanwhile finds the one or the other.
    pub(super) fn replace_by_zeros(&self) -> rustix::io::Result<()> {
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: all of the range is this mapping's, and stays so while it is borrowed here, since it is
        // unmapped by `drop` only: nothing else is mapped over. It can be read as before, through words,
        // which expect that others change them.
        unsafe { mmap_anonymous(self.base, self.bytes, ProtFlags::READ, flags) }.map(drop)
    }
}

fn map(fd: BorrowedFd<'_>, bytes: u64, writable: bool) -> rustix::io::Result<Span> {
    Mapping::new(fd, bytes, writable).map(Mapping::span)
}

/// Maps all of a file that processes write together, and holds it for as long.
pub(super) fn map_held<F: AsFd + Any + Send + Sync>(file: F, bytes: u64) -> rustix::io::Result<Span> {
    let mut mapping = Mapping::new(file.as_fd(), bytes, true)?;
    mapping.held = Box::new(file);
    Ok(mapping.span())
}

/// A shared memory file of fixed size.
pub struct Memfd {
    fd: OwnedFd,
    bytes: u64,
}

impl Memfd {
    /// Makes a memfd, maps it writable, and seals it: its size is fixed, and with `exclusive` no further
    /// writable mapping can be made, by anyone.
    pub fn create(name: &str, bytes: u64, exclusive: bool) -> Result<(Memfd, Span)> {
        Memfd::create_on(name, bytes, exclusive, None)
    }

    fn create_on(name: &str, bytes: u64, exclusive: bool, node: Option<NumaNode>) -> Result<(Memfd, Span)> {
        Memfd::make(name, bytes, (exclusive, false), node).map_err(|source| {
            Error::system(
                "share memory",
                format!(
                    "cannot make {bytes} bytes of shared memory; check the limits on memory and open files (`ulimit -v`, `ulimit -n`)"
                ),
                source,
            )
        })
    }

    /// Makes a memfd for a segment of an image, in huge pages if there are any ([`super::use_huge_pages`]), and on
    /// a node if one is preferred.
    pub fn create_segment(name: &str, bytes: u64, node: Option<NumaNode>) -> Result<(Memfd, Span)> {
        let wanted = huge_pages();
        if matches!(wanted, HugePages::Reserved | HugePages::Required) && bytes % HUGE_PAGE_BYTES == 0 {
            match Memfd::make(name, bytes, (true, true), node) {
                Ok((memfd, span)) => {
                    take_reserved(memfd.fd(), bytes);
                    return Ok((memfd, span));
                }
                Err(source) if wanted == HugePages::Required && !are_granted() => {
                    let context = format!(
                        "cannot make {bytes} bytes of shared memory in pages of 2 MiB: the host has reserved too \
                         few that are free (see `sysctl vm.nr_hugepages`)"
                    );
                    return Err(Error::system("share memory", context, source));
                }
                Err(_) => {}
            }
        }
        Memfd::create_on(name, bytes, true, node)
    }

    fn make(
        name: &str,
        bytes: u64,
        (exclusive, is_reserved): (bool, bool),
        node: Option<NumaNode>,
    ) -> rustix::io::Result<(Memfd, Span)> {
        let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        if is_reserved {
            flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        }
        let fd = memfd_create(name, flags)?;
        ftruncate(&fd, bytes)?;
        if is_reserved {
            // The mapping below reserves all pages. Where a control group may have none, though, the first
            // store would kill the process: this asks for one.
            fallocate(&fd, FallocateFlags::empty(), 0, HUGE_PAGE_BYTES)?;
        }
        let span = map(fd.as_fd(), bytes, true)?;
        if let Some(node) = node {
            node.prefer(&span);
        }
        let mut seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        if exclusive {
            seals |= SealFlags::FUTURE_WRITE;
        }
        fcntl_add_seals(&fd, seals)?;
        Ok((Memfd { fd, bytes }, span))
    }

    /// Takes a descriptor that another process sent. Its size is checked here and, where it is sealed, stays.
    pub fn receive(fd: OwnedFd, bytes: u64) -> Result<Memfd> {
        let refuse =
            |what: &str| Error::new(kelix_types::ErrorKind::Protocol, "map shared memory", what.to_string());
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|_| refuse("the descriptor is no memfd"))?;
        let size = rustix::fs::fstat(&fd).map_err(|_| refuse("the descriptor has no size"))?.st_size;
        if !seals.contains(SealFlags::SHRINK) || size as u64 != bytes {
            return Err(refuse("the shared memory is not sealed or not as long as announced"));
        }
        Ok(Memfd { fd, bytes })
    }

    /// Whether it is in huge pages that the host has reserved.
    pub fn is_in_reserved_pages(&self) -> bool {
        is_reserved(&self.fd)
    }

    /// Maps it.
    pub fn map(&self, writable: bool) -> Result<Span> {
        self.map_by(writable).map(Mapping::span)
    }

    fn map_by(&self, writable: bool) -> Result<Mapping> {
        Mapping::new(self.fd.as_fd(), self.bytes, writable).map_err(|source| {
            Error::system(
                "map shared memory",
                format!("cannot map {} bytes; see `ulimit -v`, the limit on address space", self.bytes),
                source,
            )
        })
    }

    /// Maps it, to be read, as the segment that begins at granule `first`, if this process has not yet. When
    /// nobody reads that any more its memory is given back, whatever the session does: see `reaper.rs`.
    pub fn map_segment(&self, first: usize, life: &ImageLife) -> Result<Span> {
        let named = rustix::fs::fstat(&self.fd)
            .map_err(|source| Error::system("map shared memory", "the descriptor has no name", source))?;
        let file = (named.st_dev, named.st_ino);
        let segment = match reaper::find(file, first, life) {
            Some(segment) => segment,
            None => {
                let segment = Arc::new(reaper::Segment::new(self.map_by(false)?, file, first, life.clone()));
                reaper::watch(&segment);
                segment
            }
        };
        Ok(segment.mapping.span_of(segment.clone()))
    }

    /// The stretches that have pages, by their first byte and their length: all other memory is zero.
    pub fn used(&self) -> Vec<(u64, u64)> {
        let (mut used, mut at) = (Vec::new(), 0);
        while at < self.bytes {
            // After an error all memory from there on counts as used.
            at = match seek(&self.fd, SeekFrom::Data(at)) {
                Ok(first) => first,
                Err(Errno::NXIO) => break,
                Err(_) => at,
            };
            let end = seek(&self.fd, SeekFrom::Hole(at)).unwrap_or(self.bytes).min(self.bytes);
            if end > at {
                used.push((at, end - at));
            }
            at = end.max(at + 1);
        }
        used
    }

    /// The descriptor, to be sent to another process.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Maps the first `bytes` bytes of an ordinary file (the authority page of a run directory).
pub fn map_file(file: &File, bytes: u64, writable: bool) -> Result<Span> {
    map(file.as_fd(), bytes, writable)
        .map_err(|source| Error::system("map file", "cannot map the authority page".to_string(), source))
}

/// A segment of an image.
#[derive(Clone)]
pub struct Segment {
    /// Its first granule.
    pub first: usize,
    /// Its memory, to be sent to clients.
    pub memory: Arc<Memfd>,
    /// Its memory as the writer has it mapped, for those who read it in the same process.
    pub span: Span,
}

/// Segments made of memfds, and the list of them that the server hands to its clients.
#[derive(Clone, Default)]
pub struct MemfdSegments {
    list: Arc<Mutex<Vec<Segment>>>,
    /// Where the memory is to be.
    node: Arc<OnceLock<NumaNode>>,
}

impl MemfdSegments {
    /// The segments of the image.
    pub fn list(&self) -> Vec<Segment> {
        self.list.lock().expect("no panic under this lock").clone()
    }

    /// Has all segments on a node, those that there are and those to come. It is said once.
    pub fn prefer(&self, node: NumaNode) {
        let list = self.list.lock().expect("no panic under this lock");
        if self.node.set(node).is_ok() {
            list.iter().for_each(|segment| node.prefer(&segment.span));
        }
    }

    /// A list of its own of those that begin with certain granules: what comes and goes in one of the two
    /// lists does not in the other.
    pub fn of_those(&self, is_wanted: impl Fn(usize) -> bool) -> MemfdSegments {
        let mut list = self.list();
        list.retain(|segment| is_wanted(segment.first));
        MemfdSegments { list: Arc::new(Mutex::new(list)), node: self.node.clone() }
    }
}

impl SegmentSource for MemfdSegments {
    fn create(&mut self, first: usize, bytes: u64) -> Result<Span> {
        let (memfd, span) = Memfd::create_segment("kelix-segment", bytes, self.node.get().copied())?;
        self.list.lock().expect("no panic under this lock").push(Segment {
            first,
            memory: Arc::new(memfd),
            span: span.clone(),
        });
        Ok(span)
    }

    fn retired(&mut self, first: usize) {
        self.list.lock().expect("no panic under this lock").retain(|segment| segment.first != first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_the_writer_and_cannot_write_or_truncate() {
        let (memfd, writer) = Memfd::create("test", 8192, true).unwrap();
        writer.words().store(3, 77);
        let received = Memfd::receive(memfd.fd().try_clone_to_owned().unwrap(), 8192).unwrap();
        assert_eq!(received.map(false).unwrap().words().load(3), 77);
        assert!(received.map(true).is_err(), "a writable mapping must be refused");
        assert!(ftruncate(received.fd(), 0).is_err(), "truncation must be refused");
        assert!(rustix::io::write(received.fd(), b"x").is_err(), "write(2) must be refused");
        assert!(Memfd::receive(memfd.fd().try_clone_to_owned().unwrap(), 4096).is_err());
    }

    #[test]
    fn only_sealed_memory_is_accepted() {
        let fd = memfd_create("plain", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, 4096).unwrap();
        assert!(Memfd::receive(fd, 4096).is_err());
    }
}
