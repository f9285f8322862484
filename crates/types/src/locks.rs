//! Locks of state machines that several threads share, which the simulator runs on one.
//!
//! A task of the simulator may give way while it holds a lock. Another one that wants it lets others go on until
//! it has it, by whatever the simulator has set. In every other build this is the lock alone.

use std::sync::{Mutex, MutexGuard};

#[cfg(kelix_sim)]
mod waiting {
    use std::cell::Cell;

    thread_local! {
        static WAIT: Cell<fn()> = const { Cell::new(|| panic!("nobody lets others go on")) };
    }

    /// How a task lets others go on.
    pub fn set_wait(wait: fn()) {
        WAIT.set(wait);
    }

    pub(super) fn wait() {
        (WAIT.get())();
    }
}

#[cfg(kelix_sim)]
pub use waiting::set_wait;

/// Locks what no panic leaves half changed, because nothing panics under the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    #[cfg(kelix_sim)]
    loop {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(std::sync::TryLockError::WouldBlock) => waiting::wait(),
            Err(std::sync::TryLockError::Poisoned(_)) => break,
        }
    }
    mutex.lock().expect("no panic under this lock")
}
