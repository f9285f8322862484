//! The heap of all targets: one allocation is bounded, and what was taken since some moment can be asked.
//!
//! libFuzzer bounds allocations with the help of a sanitizer only.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// No target needs as much at once: a number from outside would have become an allocation.
const ALLOCATION_BYTES_MAX: usize = 64 << 20;

static USED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;

fn taken(bytes: usize) {
    if bytes > ALLOCATION_BYTES_MAX {
        eprintln!("panicked at an allocation of {bytes} bytes");
        std::process::abort();
    }
    let used = USED.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(used, Ordering::Relaxed);
}

// SAFETY: the system's allocator does everything; what is counted beside allocates nothing.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: the caller's promises are those that are wanted here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        taken(bytes);
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, bytes) }
    }
}

/// What is taken from some moment on, by all threads. There is one at a time.
pub struct Meter {
    before: usize,
}

impl Meter {
    /// From now on.
    pub fn begin() -> Meter {
        let before = USED.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        Meter { before }
    }

    /// Bytes taken at most at a time.
    pub fn peak(&self) -> usize {
        PEAK.load(Ordering::Relaxed).saturating_sub(self.before)
    }

    /// Bytes that are not given back.
    pub fn left(&self) -> usize {
        USED.load(Ordering::Relaxed).saturating_sub(self.before)
    }
}
