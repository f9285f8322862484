//! Memory that ends where nothing is mapped, so that a read beyond it ends the program.

use std::ptr::null_mut;

use kelix_image::words::Words;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

/// Large enough for whatever libFuzzer makes of its inputs here.
const BYTES: usize = 4 << 20;
/// No page is larger where this runs.
const GUARD_BYTES: usize = 64 << 10;

/// A mapping with nothing readable before and behind it. It is never unmapped: make one a program.
pub struct Guarded {
    end: *mut u64,
}

// SAFETY: the pointer is that of a mapping which stays, and is handed out as `Words` only, which may go to
// any thread.
unsafe impl Send for Guarded {}
// SAFETY: as above.
unsafe impl Sync for Guarded {}

impl Default for Guarded {
    fn default() -> Guarded {
        Guarded::new()
    }
}

impl Guarded {
    /// Maps it.
    pub fn new() -> Guarded {
        let all = GUARD_BYTES + BYTES + GUARD_BYTES;
        // SAFETY: a new mapping at an address of the kernel's choice, and its two ends, which nobody has seen
        // yet.
        unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            let base = mmap_anonymous(null_mut(), all, access, MapFlags::PRIVATE).expect("memory");
            let end = base.byte_add(GUARD_BYTES + BYTES);
            for guard in [base, end] {
                mprotect(guard, GUARD_BYTES, MprotectFlags::empty()).expect("a page that nobody reads");
            }
            Guarded { end: end.cast() }
        }
    }

    /// Puts words where the memory ends and shows them.
    pub fn hold(&self, words: &[u64]) -> Words<'_> {
        assert!(words.len() * 8 <= BYTES);
        // SAFETY: `words.len()` words before the end are mapped for ever, writable, aligned, and accessed
        // through `Words` only.
        let held = unsafe { Words::new(self.end.sub(words.len()), words.len()) };
        held.copy_in(0, words);
        held
    }
}

const _: () = assert!(BYTES % 8 == 0);
