//! When which view was in force, and what clients may have been told meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use kelix_register::View;

use crate::history::{Action, CompareOutcome, Operation};
use crate::scheduler;

/// The views of a run, with the moments at which they came into force, and those at which primaries began to
/// serve.
#[derive(Clone, Default)]
pub struct Views(Arc<Mutex<All>>);

#[derive(Default)]
struct All {
    views: Vec<(u64, View)>,
    served: HashMap<u64, u64>,
}

impl Views {
    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock().expect("no panic under this lock")
    }

    /// A view came into force. Noted once, by whoever put it in.
    pub fn note(&self, view: &View) {
        let views = &mut self.all().views;
        if views.last().is_none_or(|(_, last)| last.number < view.number) {
            views.push((scheduler::now_ns(), view.clone()));
        }
    }

    /// A member serves as primary from now on.
    pub fn note_served(&self, boot: u64) {
        self.all().served.insert(boot, scheduler::now_ns());
    }

    /// An error if a primary has the term of another one, or if a write began and was answered while fewer
    /// were in sync than there have to be.
    pub fn judge(&self, history: &[Operation]) -> Result<(), String> {
        let all = self.all();
        let All { views, served } = &*all;
        for pair in views.windows(2) {
            let ((_, before), (_, behind)) = (&pair[0], &pair[1]);
            if (before.primary == behind.primary) != (before.term == behind.term) || before.term > behind.term
            {
                let (number, term) = (behind.number, behind.term);
                return Err(format!("view {number} has the term {term}, and the one before {}", before.term));
            }
        }
        let mut few: Vec<(u64, u64)> = Vec::new();
        let mut since_ns = None;
        for (at_ns, view) in views.iter() {
            let are_few = view.in_sync.len() < view.min_in_sync;
            // Until a primary that was chosen serves, the one before may still answer, and is taken up.
            let began_ns = served.get(&view.primary).map_or(u64::MAX, |served_ns| *at_ns.max(served_ns));
            match (are_few, since_ns) {
                (true, None) => since_ns = Some(began_ns),
                (false, Some(from_ns)) => {
                    few.push((from_ns, *at_ns));
                    since_ns = None;
                }
                _ => {}
            }
        }
        few.extend(since_ns.map(|from_ns| (from_ns, u64::MAX)));
        let is_within = |operation: &&Operation| {
            let meets = |(from_ns, until_ns): &(u64, u64)| {
                operation.called_ns > *from_ns
                    && operation.returned_ns.is_some_and(|returned_ns| returned_ns < *until_ns)
            };
            is_write(operation) && few.iter().any(meets)
        };
        match history.iter().find(is_within) {
            Some(operation) => Err(format!("{operation}, and too few were in sync all the while")),
            None => Ok(()),
        }
    }
}

/// Whether an operation has changed something, as its client was told.
fn is_write(operation: &Operation) -> bool {
    match operation.action {
        Action::Put { .. } => operation.returned_ns.is_some(),
        Action::Delete { was_there } => was_there == Some(true),
        Action::CompareAndSet { outcome, .. } => outcome == Some(CompareOutcome::Done),
        Action::Get { .. } => false,
    }
}
