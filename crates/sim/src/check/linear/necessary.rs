//! Conditions that every linearizable history meets, each quick to test and with a message of its own.
//!
//! They are necessary, not sufficient: the search decides alone, and would find all of this too.

use std::collections::{BTreeMap, HashMap};

use super::{Finding, finding};
use crate::history::{Action, CompareOutcome, Operation, ValueId};

/// Tests all conditions on a history whose record is in order.
pub(super) fn check(history: &[Operation], keys: &BTreeMap<u64, Vec<Operation>>) -> Result<(), Finding> {
    let mut writers: HashMap<ValueId, &Operation> = HashMap::new();
    for operation in history {
        if let Some(value) = operation.value() {
            writers.insert(value, operation);
        }
    }
    for (key, operations) in keys {
        each_value_was_written(*key, operations, &writers)?;
        each_swap_had_its_own_value(*key, operations)?;
        no_value_came_back(*key, operations, &writers)?;
    }
    Ok(())
}

/// The value that an operation saw.
fn seen(operation: &Operation) -> Option<ValueId> {
    operation.saw().flatten()
}

/// Who sees a value sees what some operation on the key wrote, and has not returned before that was called.
fn each_value_was_written(
    key: u64,
    operations: &[Operation],
    writers: &HashMap<ValueId, &Operation>,
) -> Result<(), Finding> {
    for operation in operations {
        let Some(value) = seen(operation) else { continue };
        let Some(&writer) = writers.get(&value) else {
            return Err(finding(format!("key {key}: {value} was seen and nobody wrote it"), [operation]));
        };
        let what = if writer.key != key {
            format!("key {key}: {value} was seen, which was written to key {}", writer.key)
        } else if writer.changed_nothing() {
            format!("key {key}: {value} was seen, whose compare-and-set was told that it was not done")
        } else if operation.returned_ns.is_some_and(|returned_ns| returned_ns < writer.called_ns) {
            format!("key {key}: {value} was seen before its write was called")
        } else {
            continue;
        };
        return Err(finding(what, [writer, operation]));
    }
    Ok(())
}

/// A compare-and-set that found what it expected is done, and no two take away the same value.
fn each_swap_had_its_own_value(key: u64, operations: &[Operation]) -> Result<(), Finding> {
    let mut swaps: HashMap<ValueId, &Operation> = HashMap::new();
    for operation in operations {
        let Action::CompareAndSet { expected, outcome, .. } = operation.action else { continue };
        if outcome == Some(CompareOutcome::Mismatch(expected)) {
            let what = format!("key {key}: a compare-and-set failed because it found what it expected");
            return Err(finding(what, [operation]));
        }
        if let (Some(value), Some(CompareOutcome::Done)) = (expected, outcome) {
            if let Some(other) = swaps.insert(value, operation) {
                let what = format!("key {key}: lost update, two compare-and-sets both replaced {value}");
                return Err(finding(what, [other, operation]));
            }
        }
    }
    Ok(())
}

/// Once a value was there, and later, by another's whole interval, it was not, nobody called later sees it.
///
/// What shows that it was not is an operation of known outcome that does not see it, a write of another value
/// included.
fn no_value_came_back(
    key: u64,
    operations: &[Operation],
    writers: &HashMap<ValueId, &Operation>,
) -> Result<(), Finding> {
    // Who showed first, by its return, that a value was there.
    let mut there: HashMap<ValueId, &Operation> = HashMap::new();
    for operation in operations {
        let wrote = operation.value().filter(|_| !operation.changed_nothing());
        for value in wrote.into_iter().chain(seen(operation)) {
            let first = there.entry(value).or_insert(operation);
            if ends_ns(operation) < ends_ns(first) {
                *first = operation;
            }
        }
    }
    let mut by_return: Vec<&Operation> = operations.iter().filter(|one| one.returned_ns.is_some()).collect();
    let mut by_call = by_return.clone();
    by_return.sort_by_key(|operation| operation.returned_ns);
    by_call.sort_by_key(|operation| operation.called_ns);

    let mut returned = by_return.into_iter().peekable();
    let mut latest = Latest::default();
    for operation in by_call {
        while let Some(earlier) = returned.next_if(|earlier| ends_ns(earlier) < operation.called_ns) {
            latest.add(earlier);
        }
        let Some(value) = seen(operation) else { continue };
        let (Some(between), Some(first)) = (latest.without(value), there.get(&value)) else { continue };
        if ends_ns(first) < between.called_ns {
            let what = format!("key {key}: {value} was there, was not, and was seen again");
            let mut shown = vec![*first, between, operation];
            // The write is worth a line too, unless it is shown already.
            shown.extend(writers.get(&value).filter(|writer| first.value() != writer.value()));
            return Err(finding(what, shown));
        }
    }
    Ok(())
}

fn ends_ns(operation: &Operation) -> u64 {
    operation.returned_ns.unwrap_or(u64::MAX)
}

/// Of the operations added, the one called last, and the one called last of those that left another value
/// there.
#[derive(Default)]
struct Latest<'a> {
    first: Option<&'a Operation>,
    second: Option<&'a Operation>,
}

impl<'a> Latest<'a> {
    /// The value whose presence throughout an operation does not contradict.
    fn kept(operation: &Operation) -> Option<ValueId> {
        seen(operation).filter(|_| operation.changed_nothing())
    }

    fn add(&mut self, operation: &'a Operation) {
        let is_later =
            |than: Option<&Operation>| than.is_none_or(|than| operation.called_ns > than.called_ns);
        let differs = self.first.is_none_or(|first| Self::kept(first) != Self::kept(operation));
        if is_later(self.first) {
            if differs {
                self.second = self.first;
            }
            self.first = Some(operation);
        } else if differs && is_later(self.second) {
            self.second = Some(operation);
        }
    }

    /// The one called last of those that do not keep this value.
    fn without(&self, value: ValueId) -> Option<&'a Operation> {
        [self.first, self.second].into_iter().flatten().find(|operation| Self::kept(operation) != Some(value))
    }
}
