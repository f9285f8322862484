//! A count down that is over at once in a forked child.
//!
//! A child has all that its parent had: rings that the parent writes to, connections with which the parent
//! goes on. What a child did there would come on top of what the parent does. A session counts its operations
//! down to its next look around in any case; where the count stands in a page that the kernel clears for a
//! child, the child looks around with its first operation, and operations compare no more than before.

use kelix_types::{Error, ErrorKind, Result};

#[cfg(not(all(target_os = "linux", not(kelix_sim))))]
use cell::Count;
#[cfg(all(target_os = "linux", not(kelix_sim)))]
use page::Count;

/// A count of steps down to one. It is zero where a fork has cleared it, and nowhere else.
pub struct Countdown {
    left: Count,
    process: u32,
}

impl Default for Countdown {
    fn default() -> Countdown {
        Countdown::new()
    }
}

impl Countdown {
    /// One that is over.
    pub fn new() -> Countdown {
        let left = Count::new();
        left.set(1);
        Countdown { left, process: std::process::id() }
    }

    /// Counts down by one. Whether it is over, and then it stays so until it is set.
    #[inline(always)]
    pub fn is_over(&self) -> bool {
        let left = self.left.get();
        if left > 1 {
            self.left.set(left - 1);
        }
        left <= 1
    }

    /// Whether the next step is not the last.
    #[inline(always)]
    pub fn has_more(&self) -> bool {
        self.left.get() > 1
    }

    /// Counts from so many steps on.
    pub fn set(&self, steps: u32) {
        self.left.set(steps.max(1));
    }

    /// Whether this process is a child of the one that began to count.
    #[inline]
    pub fn is_forked(&self) -> bool {
        if self.left.is_cleared() { self.left.get() == 0 } else { std::process::id() != self.process }
    }

    /// Refuses a child of the process that began to count.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.is_forked() { Err(forked(self.process)) } else { Ok(()) }
    }
}

#[cold]
fn forked(parent: u32) -> Error {
    let context = format!("the session is of process {parent}, which forked this one; open one here");
    Error::unnamed(ErrorKind::Forked, context)
}

#[cfg(all(target_os = "linux", not(kelix_sim)))]
mod page {
    use std::ptr::{NonNull, null_mut};
    use std::sync::atomic::{AtomicU32, Ordering};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    /// A count in a page that the kernel clears in a child; or on the heap, where no such page can be had.
    pub struct Count {
        at: NonNull<AtomicU32>,
        is_page: bool,
    }

    // SAFETY: nothing else points there.
    unsafe impl Send for Count {}

    /// A page of this process's own that a child finds cleared.
    fn cleared_page() -> Option<NonNull<AtomicU32>> {
        let bytes = rustix::param::page_size();
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let page = unsafe {
            mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let page = page.ok()?;
        // SAFETY: advice on a mapping that was just made.
        if unsafe { madvise(page, bytes, Advice::LinuxWipeOnFork) }.is_err() {
            // SAFETY: nobody knows of the mapping.
            let _ = unsafe { munmap(page, bytes) };
            return None;
        }
        NonNull::new(page.cast())
    }

    impl Count {
        pub fn new() -> Count {
            let page = cleared_page();
            let heap = || NonNull::from(Box::leak(Box::new(AtomicU32::new(0))));
            Count { at: page.unwrap_or_else(heap), is_page: page.is_some() }
        }

        fn word(&self) -> &AtomicU32 {
            // SAFETY: mapped or allocated until it is dropped, zeroed and aligned; a child has a copy of its
            // own.
            unsafe { self.at.as_ref() }
        }

        #[inline(always)]
        pub fn get(&self) -> u32 {
            self.word().load(Ordering::Relaxed)
        }

        #[inline(always)]
        pub fn set(&self, count: u32) {
            self.word().store(count, Ordering::Relaxed);
        }

        #[inline(always)]
        pub fn is_cleared(&self) -> bool {
            self.is_page
        }
    }

    impl Drop for Count {
        fn drop(&mut self) {
            if self.is_page {
                // SAFETY: mapped when it was made, with this length, and used by nobody else.
                let _ = unsafe { munmap(self.at.as_ptr().cast(), rustix::param::page_size()) };
            } else {
                // SAFETY: leaked from a box when it was made, and used by nobody else.
                drop(unsafe { Box::from_raw(self.at.as_ptr()) });
            }
        }
    }
}

#[cfg(not(all(target_os = "linux", not(kelix_sim))))]
mod cell {
    use std::cell::Cell;

    /// A count that no kernel clears.
    pub struct Count(Cell<u32>);

    impl Count {
        pub fn new() -> Count {
            Count(Cell::new(0))
        }

        #[inline(always)]
        pub fn get(&self) -> u32 {
            self.0.get()
        }

        #[inline(always)]
        pub fn set(&self, count: u32) {
            self.0.set(count);
        }

        pub fn is_cleared(&self) -> bool {
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_down_to_one() {
        let countdown = Countdown::new();
        assert!(countdown.is_over() && countdown.is_over() && !countdown.is_forked());
        countdown.set(3);
        assert_eq!([(); 4].map(|()| countdown.is_over()), [false, false, true, true]);
        assert!(countdown.check().is_ok());
    }
}
