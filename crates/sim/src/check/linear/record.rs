//! Whether a history is a record that can be judged at all. What is found here is an error of whoever wrote
//! it.

use std::collections::HashMap;

use super::{Finding, finding};
use crate::history::{Action, Operation, ValueId};

/// Looks for an operation that contradicts itself, and for a value that two operations write.
pub(super) fn check(history: &[Operation]) -> Result<(), Finding> {
    let mut writers: HashMap<ValueId, &Operation> = HashMap::new();
    for operation in history {
        if operation.returned_ns.is_some_and(|returned_ns| returned_ns < operation.called_ns) {
            return Err(error("an operation returned before it was called", &[operation]));
        }
        let has_outcome = match operation.action {
            Action::Get { .. } => true,
            Action::Put { .. } => operation.returned_ns.is_some(),
            Action::Delete { was_there } => was_there.is_some(),
            Action::CompareAndSet { outcome, .. } => outcome.is_some(),
        };
        if has_outcome != operation.returned_ns.is_some() {
            return Err(error("an operation has an outcome without a return, or the reverse", &[operation]));
        }
        if let Some(value) = operation.value() {
            if let Some(other) = writers.insert(value, operation) {
                return Err(error(&format!("two operations write {value}"), &[other, operation]));
            }
        }
    }
    Ok(())
}

fn error(what: &str, operations: &[&Operation]) -> Finding {
    finding(format!("error of the record, nothing was judged: {what}"), operations.iter().copied())
}
