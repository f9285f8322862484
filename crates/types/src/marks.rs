//! Marks: what a run of the simulator must have come past for its silence to mean anything.
//!
//! `mark!("what happened")` stands where something rare happens, and is counted in a build with `--cfg
//! kelix_sim`. In every other build nothing of it is left.

#[cfg(kelix_sim)]
mod counted {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    thread_local! {
        static MARKS: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
    }

    /// Counts one more of these.
    pub fn pass(what: &'static str) {
        MARKS.with_borrow_mut(|marks| *marks.entry(what).or_default() += 1);
    }

    /// Takes what this thread has come past since it last did.
    pub fn take() -> BTreeMap<&'static str, u64> {
        MARKS.with_borrow_mut(std::mem::take)
    }
}

#[cfg(kelix_sim)]
pub use counted::{pass, take};

/// Counts something rare, for the simulator's coverage.
#[macro_export]
macro_rules! mark {
    ($what:expr) => {{
        #[cfg(kelix_sim)]
        $crate::marks::pass($what);
    }};
}
