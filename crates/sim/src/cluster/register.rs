//! The register of the nodes: others go on before and behind each look and each change, and some outcomes are
//! unknown.

use kelix_register::{MemoryRegister, Register, Swapped, View};
use kelix_types::{Error, ErrorKind, Result};

use super::views::Views;
use crate::scheduler;

/// One in so many changes fails, though it may have been done.
const CHANGES_A_FAILURE: u64 = 40;

/// A node's handle on the register.
pub struct NodeRegister {
    pub register: MemoryRegister,
    pub views: Views,
    pub is_reliable: bool,
}

/// Lets others go on, now and then.
fn pause() {
    if scheduler::is_noticed() && scheduler::random_below(2) == 0 {
        scheduler::give_way();
    }
}

impl NodeRegister {
    fn fails(&self) -> bool {
        !self.is_reliable && scheduler::is_noticed() && scheduler::random_below(CHANGES_A_FAILURE) == 0
    }
}

fn failed() -> Error {
    Error::new(ErrorKind::System, "change view", "the register does not answer")
}

impl Register for NodeRegister {
    fn read(&mut self) -> Result<Option<View>> {
        pause();
        if self.fails() {
            return Err(failed());
        }
        let view = self.register.read();
        pause();
        view
    }

    fn is_current(&mut self, number: u64) -> Result<bool> {
        pause();
        self.register.is_current(number)
    }

    fn swap(&mut self, expected: u64, view: &View) -> Result<Swapped> {
        pause();
        if self.fails() {
            return Err(failed());
        }
        let swapped = self.register.swap(expected, view)?;
        if swapped == Swapped::Done {
            self.views.note(view);
        }
        if self.fails() {
            return Err(failed());
        }
        pause();
        Ok(swapped)
    }
}
