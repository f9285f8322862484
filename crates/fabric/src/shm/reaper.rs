//! Lets the memory of segments go that nobody reads any more, also where the sessions of a process do
//! nothing.
//!
//! Memory of a segment is the system's again when no process has it mapped, and its seal keeps the server
//! from taking it back before. A session unmaps what was retired when it looks around, every 1,024
//! operations; one that does nothing never would. So one thread of the process looks four times a second at
//! each segment that is mapped, and has zeros in its place when
//!
//! - the segment is retired, by the bit of its granule in the header's memory ([`Header::is_retired`]), or
//! - another server is in force than that of the image, so that all of the image is void.
//!
//! Sessions need not know of that: they read on meanwhile, and to the read rule the zeros are as a next
//! owner's words (docs/read-rule.md, "Segments that are let go"). They unmap the range as ever.
//!
//! 1. A range is mapped over by who holds its [`Segment`] only, and unmapped when nobody does
//!    (`Mapping::drop`). So nothing is ever mapped over what was given back.
//! 2. Only memory of this process is touched, and no connection: a server that stands still or is gone
//!    changes nothing.
//! 3. The thread holds no lock but that of its list, which is its process's alone: the child of a fork, which
//!    has no such thread, begins another list. Segments that the child got from its parent are let go when it
//!    looks around.
//!
//! A segment is mapped once, for all sessions of the process that are on its image ([`find`]): each mapping
//! has page tables of its own, 2 MiB for each GiB in pages of 4 KiB, and each of its pages is met for the
//! first time once more.
//!
//! The thread begins with the first segment and ends soon after the last. Where there can be no thread
//! sessions do without.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use kelix_image::{Header, LeasedTerm};

use super::memory::Mapping;

/// Between two looks, each of which takes some microseconds.
const PERIOD: Duration = Duration::from_millis(250);
/// The thread calls nothing that is deep.
const STACK_BYTES: usize = 64 << 10;

/// What tells whether anything in an image may still be read.
#[derive(Clone)]
pub struct ImageLife {
    header: Header,
    authority: LeasedTerm,
}

impl ImageLife {
    /// That of the image with this header, under the term in force.
    pub fn new(header: Header, authority: impl Into<LeasedTerm>) -> ImageLife {
        ImageLife { header, authority: authority.into() }
    }

    /// Whether another one is that of the same image.
    fn is_of_same_image(&self, other: &ImageLife) -> bool {
        let name = |life: &ImageLife| (life.header.image_id(), life.header.term());
        name(self) == name(other)
    }

    /// Whether nothing in a segment will ever be valid again. A lease that is over may be renewed.
    ///
    /// SYNC: both loads acquire, so that the zeros which follow come after the quarantine and after the
    /// successor's term.
    fn is_over(&self, first: usize) -> bool {
        self.header.is_retired(first) || self.authority.term() != self.header.term()
    }
}

/// Names the file of a mapping for as long as that is mapped: device and inode.
pub(super) type FileId = (u64, u64);

/// A segment that is mapped to be read.
pub(super) struct Segment {
    pub mapping: Mapping,
    file: FileId,
    /// Its first granule.
    first: usize,
    life: ImageLife,
    /// Zeros are in its place, and its file may be another one's by now.
    is_let_go: AtomicBool,
}

impl Segment {
    /// The segment of an image that begins at granule `first`.
    pub fn new(mapping: Mapping, file: FileId, first: usize, life: ImageLife) -> Segment {
        Segment { mapping, file, first, life, is_let_go: AtomicBool::new(false) }
    }

    /// Has zeros in its place if nobody reads it any more. `false`: somebody may.
    fn let_go(&self) -> bool {
        let lets_go = self.life.is_over(self.first);
        if lets_go {
            self.is_let_go.store(true, Ordering::SeqCst);
        }
        lets_go && self.mapping.replace_by_zeros().is_ok()
    }
}

/// The segments that are looked at, and whether there is a thread that does.
#[derive(Default)]
struct List {
    segments: Vec<Weak<Segment>>,
    has_thread: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The list of this process. A fork may come at any moment, also while another thread is in here, so there is
/// no lock: the child would find it held for ever. What a process begins with stays, and its child's list is
/// another one.
fn list() -> &'static Mutex<List> {
    struct OfProcess {
        process: u32,
        list: Mutex<List>,
    }
    static LIST: AtomicPtr<OfProcess> = AtomicPtr::new(std::ptr::null_mut());
    let process = std::process::id();
    let mut known = LIST.load(Ordering::Acquire);
    loop {
        // SAFETY: the pointer is null, or was published below with what it points to, which nobody frees or
        // changes but by its lock.
        if let Some(of) = unsafe { known.as_ref() }.filter(|of| of.process == process) {
            return &of.list;
        }
        let own = Box::into_raw(Box::new(OfProcess { process, list: Mutex::default() }));
        match LIST.compare_exchange(known, own, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => known = own,
            Err(first) => {
                // SAFETY: it was made above, and nobody has seen it.
                drop(unsafe { Box::from_raw(own) });
                known = first;
            }
        }
    }
}

/// A segment that this process has mapped already.
pub(super) fn find(file: FileId, first: usize, life: &ImageLife) -> Option<Arc<Segment>> {
    let list = lock(list());
    let is_it = |segment: &Arc<Segment>| {
        let is_named_so = segment.file == file && segment.first == first;
        is_named_so && segment.life.is_of_same_image(life) && !segment.is_let_go.load(Ordering::SeqCst)
    };
    list.segments.iter().filter_map(Weak::upgrade).find(is_it)
}

/// Has the process's thread look at a segment for as long as somebody holds it.
pub(super) fn watch(segment: &Arc<Segment>) {
    let list = list();
    let mut now = lock(list);
    now.segments.push(Arc::downgrade(segment));
    if !now.has_thread {
        let thread = std::thread::Builder::new().name("kelix-reaper".into()).stack_size(STACK_BYTES);
        now.has_thread = thread.spawn(move || run(list)).is_ok();
    }
    if !now.has_thread {
        now.segments.retain(|segment| segment.strong_count() > 0);
    }
}

fn run(list: &Mutex<List>) {
    refuse_signals();
    loop {
        std::thread::sleep(PERIOD);
        let mut list = lock(list);
        list.segments.retain(|segment| segment.upgrade().is_some_and(|segment| !segment.let_go()));
        if list.segments.is_empty() {
            list.has_thread = false;
            return;
        }
    }
}

/// The program's signals are for threads that it knows of.
fn refuse_signals() {
    /// Its 1,024 bits, as long in glibc and in musl.
    type SignalSet = [u64; 16];
    const SIG_BLOCK: std::ffi::c_int = 0;
    unsafe extern "C" {
        fn sigfillset(set: *mut SignalSet) -> std::ffi::c_int;
        fn pthread_sigmask(
            how: std::ffi::c_int,
            set: *const SignalSet,
            old: *mut SignalSet,
        ) -> std::ffi::c_int;
    }
    let mut set = MaybeUninit::<SignalSet>::zeroed();
    // SAFETY: the signatures are those of the C library, the set is as long as its own and filled before it
    // is used, and only the mask of this thread changes.
    unsafe {
        sigfillset(set.as_mut_ptr());
        pthread_sigmask(SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::time::Instant;

    use kelix_image::{Span, header_word};

    use super::super::Memfd;
    use super::*;

    const BYTES: u64 = 1 << 20;
    const TERM: u64 = 3;

    struct Bed {
        header: Span,
        authority: Span,
        life: ImageLife,
    }

    fn bed() -> Bed {
        let (header, authority) = (Span::private(Header::BYTES), Span::private(64));
        authority.words().store(0, TERM);
        let page = Header::create(header.clone(), 1, 2, 3, TERM);
        Bed { life: ImageLife::new(page, authority.word(0)), header, authority }
    }

    impl Bed {
        fn retire(&self, first: usize) {
            self.header.words().publish(header_word::RETIRED + first / 64, 1 << (first % 64));
        }
    }

    /// A segment with a word in it, as a process has it mapped that only reads, and the number of its file.
    fn segment(bed: &Bed, first: usize) -> (Span, u64) {
        let (memfd, writer) = Memfd::create("kelix-reaped", BYTES, true).unwrap();
        writer.words().store(7, 77);
        let inode = std::fs::File::from(memfd.fd().try_clone_to_owned().unwrap()).metadata().unwrap().ino();
        (memfd.map_segment(first, &bed.life).unwrap(), inode)
    }

    fn is_mapped(inode: u64) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().any(|line| line.contains("kelix-reaped") && line.contains(&format!(" {inode} ")))
    }

    #[track_caller]
    fn until(what: &str, mut happened: impl FnMut() -> bool) {
        let began = Instant::now();
        while !happened() {
            assert!(began.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_retired_segment_is_let_go_and_no_other() {
        let bed = bed();
        let (kept, kept_file) = segment(&bed, 64);
        let (gone, gone_file) = segment(&bed, 65);
        assert!(is_mapped(kept_file) && is_mapped(gone_file));
        bed.retire(65);
        until("a retired segment is let go", || !is_mapped(gone_file));
        assert_eq!((gone.words().load(7), kept.words().load(7)), (0, 77));
        assert!((0..gone.words().count()).all(|word| gone.words().load(word) == 0));
        assert!(is_mapped(kept_file));
        drop(gone);
        drop(kept);
        until("what is not used is not mapped", || !is_mapped(kept_file));
    }

    /// Sessions of one image share a mapping, and those of another one, also of the same memory, do not: that
    /// image ends at another time. What was let go is nobody's any more.
    #[test]
    fn a_segment_is_mapped_once_for_an_image() {
        let (one, other) = (bed(), bed());
        let other = ImageLife::new(Header::create(other.header, 7, 2, 3, TERM), other.authority.word(0));
        let (memfd, writer) = Memfd::create("kelix-reaped", BYTES, true).unwrap();
        writer.words().store(7, 77);
        let map = |life: &ImageLife| {
            let fd = memfd.fd().try_clone_to_owned().unwrap();
            Memfd::receive(fd, BYTES).unwrap().map_segment(5, life).unwrap()
        };
        let at = |span: &Span| span.words().as_ptr();
        let (first, second, others) = (map(&one.life), map(&one.life), map(&other));
        assert_eq!(at(&first), at(&second));
        assert_ne!(at(&first), at(&others));
        one.retire(5);
        until("it is let go", || first.words().load(7) == 0);
        let third = map(&one.life);
        assert_ne!(at(&third), at(&first));
        assert_eq!((second.words().load(7), others.words().load(7)), (0, 77));
    }

    #[test]
    fn all_of_a_void_image_is_let_go() {
        let bed = bed();
        let (segments, files): (Vec<Span>, Vec<u64>) = (1..20).map(|first| segment(&bed, first)).unzip();
        bed.authority.words().publish(0, TERM + 1);
        until("the image is let go", || !files.iter().any(|file| is_mapped(*file)));
        assert!(segments.iter().all(|segment| segment.words().load(7) == 0));
    }

    /// Spans come and go while the thread looks: none is mapped over that was given back, so what is mapped
    /// at its address next stays what it is.
    #[test]
    fn what_was_given_back_is_not_touched() {
        let bed = bed();
        bed.retire(1);
        for _ in 0..2000 {
            let mapping = |first| segment(&bed, first).0;
            let (retired, other) = (mapping(1), mapping(2));
            drop(retired);
            // As a rule it stands where the other one was.
            let fresh = mapping(2);
            assert_eq!((other.words().load(7), fresh.words().load(7)), (77, 77));
            // The thread's part, at once.
            let list = lock(list()).segments.clone();
            list.iter().filter_map(Weak::upgrade).filter(|segment| segment.first == 1).for_each(|segment| {
                segment.let_go();
            });
            assert_eq!((other.words().load(7), fresh.words().load(7)), (77, 77));
        }
    }

    /// The thread ends with the last segment, and another begins with the next.
    #[test]
    fn there_is_a_thread_while_there_are_segments() {
        let bed = bed();
        for first in [1, 2] {
            let (segment, file) = segment(&bed, first);
            assert!(lock(list()).has_thread);
            bed.retire(first);
            until("a retired segment is let go", || !is_mapped(file));
            drop(segment);
            until("no segment is left, of other tests neither", || !lock(list()).has_thread);
        }
    }

    /// The child of a fork has its parent's list and lock, as they were, and no thread.
    #[test]
    fn the_child_of_a_fork_begins_anew() {
        unsafe extern "C" {
            fn fork() -> i32;
            fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
            fn _exit(code: i32) -> !;
        }
        let list = list();
        let held = lock(list);
        // SAFETY: the signature is that of the C library. The child is this thread alone, and ends without
        // going back.
        let child = unsafe { fork() };
        if child == 0 {
            let bed = bed();
            let (segment, file) = segment(&bed, 1);
            bed.retire(1);
            let began = Instant::now();
            while is_mapped(file) && began.elapsed() < Duration::from_secs(30) {
                std::thread::sleep(Duration::from_millis(10));
            }
            let is_let_go = !is_mapped(file) && segment.words().load(7) == 0;
            // SAFETY: it ends the process, whatever there is.
            unsafe { _exit(i32::from(!is_let_go)) };
        }
        assert!(child > 0);
        drop(held);
        let mut status = -1;
        // SAFETY: the signature is that of the C library, which writes to the status.
        assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child let nothing go");
    }
}
