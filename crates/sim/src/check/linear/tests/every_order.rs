//! A checker too simple to be wrong: it tries every order, and no unknown operation is treated apart.

use std::collections::HashSet;

use crate::history::{Action, CompareOutcome, Operation, ValueId};

/// Whether an order explains at most 32 operations on one key.
pub(super) fn explains(operations: &[Operation]) -> bool {
    goes_on(operations, 0, None, &mut HashSet::new())
}

/// Whether an order goes on from where these have taken effect, and this is present.
fn goes_on(
    operations: &[Operation],
    taken: u32,
    present: Option<ValueId>,
    failed: &mut HashSet<(u32, Option<ValueId>)>,
) -> bool {
    let open = || operations.iter().enumerate().filter(|(index, _)| taken & (1 << index) == 0);
    if open().all(|(_, operation)| operation.returned_ns.is_none()) {
        return true;
    }
    if failed.contains(&(taken, present)) {
        return false;
    }
    for (index, operation) in open() {
        let precedes = |other: &Operation| other.returned_ns.is_some_and(|ns| ns < operation.called_ns);
        if open().any(|(_, other)| precedes(other)) {
            continue;
        }
        if let Some(after) = effect(&operation.action, present) {
            if goes_on(operations, taken | 1 << index, after, failed) {
                return true;
            }
        }
    }
    failed.insert((taken, present));
    false
}

/// What an action leaves; `None` if it cannot end as it did.
fn effect(action: &Action, present: Option<ValueId>) -> Option<Option<ValueId>> {
    match *action {
        Action::Get { found } => (found == present).then_some(present),
        Action::Put { value } => Some(Some(value)),
        Action::Delete { was_there } => was_there.is_none_or(|was| was == present.is_some()).then_some(None),
        Action::CompareAndSet { expected, value, outcome } => match outcome {
            Some(CompareOutcome::Done) => (expected == present).then_some(value),
            Some(CompareOutcome::Mismatch(found)) => {
                (found == present && found != expected).then_some(present)
            }
            None => Some(if expected == present { value } else { present }),
        },
    }
}
