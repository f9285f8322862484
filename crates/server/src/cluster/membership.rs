//! What a node knows of its cluster's view, and how it changes that.

use std::sync::{Mutex, MutexGuard};

use kelix_register::{Register, Swapped, View};
use kelix_types::Result;

use crate::server::random_u64;

/// A member: one node from its start on until its process begins anew.
pub(crate) struct Membership {
    /// The number that tells this member from every other, before and after it.
    pub boot: u64,
    known: Mutex<Known>,
}

struct Known {
    register: Box<dyn Register>,
    /// The newest view that was seen.
    view: Option<View>,
}

impl Known {
    fn look(&mut self) -> Result<Option<View>> {
        let number = self.view.as_ref().map_or(0, |view| view.number);
        if !self.register.is_current(number)? {
            self.view = self.register.read()?;
        }
        Ok(self.view.clone())
    }
}

impl Membership {
    /// A member of the cluster of a register, with a number of its own.
    pub fn new(register: Box<dyn Register>) -> Result<Membership> {
        let known = Mutex::new(Known { register, view: None });
        // 0 is nobody's.
        Ok(Membership { boot: random_u64()?.max(1), known })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no panic under this lock")
    }

    /// The newest view as far as it is known here.
    pub fn view(&self) -> Option<View> {
        self.known().view.clone()
    }

    /// The newest view.
    pub fn look(&self) -> Result<Option<View>> {
        self.known().look()
    }

    /// Changes the view as `change` says, which is asked again if somebody else was quicker, and says `None` if
    /// there is nothing to be changed any more. Returns whether that was done, and the view in force.
    pub fn change(&self, change: impl Fn(Option<&View>) -> Option<View>) -> Result<(bool, Option<View>)> {
        let mut known = self.known();
        known.look()?;
        loop {
            let expected = known.view.as_ref().map_or(0, |view| view.number);
            let Some(mut next) = change(known.view.as_ref()) else { return Ok((false, known.view.clone())) };
            next.number = expected + 1;
            next.proposal = random_u64()?;
            let swapped = known.register.swap(expected, &next);
            match swapped {
                Ok(Swapped::Done) => {
                    known.view = Some(next.clone());
                    return Ok((true, Some(next)));
                }
                Ok(Swapped::Lost) => drop(known.look()?),
                Err(error) => {
                    // The outcome may be unknown; whoever proposed a view recognises it.
                    let found = known.look()?;
                    if found.as_ref().is_some_and(|view| view.proposal == next.proposal) {
                        return Ok((true, found));
                    }
                    return Err(error);
                }
            }
        }
    }
}
