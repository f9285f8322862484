//! A register in the memory of one process, for tests of whoever uses a register.
//!
//! Clones are handles on one register. Nothing outlives the process, and no call has an unknown outcome.

use std::sync::{Arc, Mutex, MutexGuard};

use kelix_types::Result;

use crate::{Register, Swapped, View, check_expected, check_proposal};

/// A register in memory. A clone is another handle on the same register.
#[derive(Clone, Default, Debug)]
pub struct MemoryRegister(Arc<Mutex<Option<View>>>);

impl MemoryRegister {
    fn newest(&self) -> MutexGuard<'_, Option<View>> {
        self.0.lock().expect("no panic under this lock")
    }
}

fn number_of(newest: &Option<View>) -> u64 {
    newest.as_ref().map_or(0, |view| view.number)
}

impl Register for MemoryRegister {
    fn read(&mut self) -> Result<Option<View>> {
        Ok(self.newest().clone())
    }

    fn is_current(&mut self, number: u64) -> Result<bool> {
        Ok(number_of(&self.newest()) == number)
    }

    fn swap(&mut self, expected: u64, view: &View) -> Result<Swapped> {
        check_proposal(expected, view)?;
        let mut newest = self.newest();
        check_expected(expected, number_of(&newest))?;
        if number_of(&newest) == expected {
            *newest = Some(view.clone());
        }
        Ok(if newest.as_ref() == Some(view) { Swapped::Done } else { Swapped::Lost })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;

    #[test]
    fn conforms() {
        conformance::run(|| {
            let register = MemoryRegister::default();
            move || register.clone()
        });
    }
}
