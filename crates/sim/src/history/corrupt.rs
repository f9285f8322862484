//! Histories made wrong on purpose, one operation at a time, to see whether checkers agree on them.
//!
//! The record stays in order: what a corrupted history says could have been recorded. Some corruptions are
//! harmless, because another order explains the new answers; that is for the checkers to find out.

use super::{Action, CompareOutcome, Operation, ValueId};
use crate::random::Random;

/// How many operations a corruption is looked for among, before it is given up.
const TRIES: usize = 1_000;

/// How many outcomes are forgotten at most besides, of operations on the key called so shortly before.
/// Unknown outcomes are what makes judging hard.
const FORGOTTEN_MAX: u64 = 24;
const NEAR: u64 = 48;

/// Corrupts one operation of a history, or exchanges the answers of two, and keeps the operations of that key
/// only, because keys are judged apart. Every other time it forgets outcomes as well, so that there is more
/// to explain the corrupted answer with. `None` if nothing was found that could be corrupted.
pub fn corrupt(history: &[Operation], random: &mut Random) -> Option<Vec<Operation>> {
    // The kind is drawn first, so that rare kinds of operations get their share.
    let kind = random.below(8);
    let forgotten = if random.once_in(2) { random.below(FORGOTTEN_MAX) } else { 0 };
    for _ in 0..TRIES {
        let chosen = history.get(random.below(history.len() as u64) as usize)?;
        let mut operations: Vec<Operation> =
            history.iter().filter(|operation| operation.key == chosen.key).cloned().collect();
        operations.sort_by_key(|operation| operation.called_ns);
        let index = random.below(operations.len() as u64) as usize;
        let done = match kind {
            0 => find_another(&mut operations, index, random),
            1 => flip_a_delete(&mut operations[index]),
            2 => turn_a_comparison(&mut operations, index, random),
            3 => exchange_answers(&mut operations, index, random),
            4 => return_sooner(&mut operations[index], random),
            5 => forget(&mut operations, index, random),
            6 => answer(&mut operations, index, random),
            _ => compare_before_delete(&mut operations, index, random),
        };
        if done {
            for _ in 0..forgotten {
                let before = index.saturating_sub(random.below(NEAR) as usize);
                if let Some(operation) = operations.get_mut(before) {
                    operation.clone_from(&operation.without_outcome().unwrap_or(operation.clone()));
                }
            }
            return Some(operations);
        }
    }
    None
}

/// A value written to the key shortly before or after this operation, or absence.
fn another(operations: &[Operation], index: usize, random: &mut Random) -> Option<ValueId> {
    if random.once_in(6) {
        return None;
    }
    let near = index.saturating_sub(8)..operations.len().min(index + 4);
    let values: Vec<ValueId> = operations[near].iter().filter_map(|operation| operation.value()).collect();
    values.get(random.below(values.len() as u64) as usize).copied()
}

/// A read finds an older or newer value.
fn find_another(operations: &mut [Operation], index: usize, random: &mut Random) -> bool {
    let other = another(operations, index, random);
    let found = match &mut operations[index].action {
        Action::Get { found } => found,
        Action::CompareAndSet { outcome: Some(CompareOutcome::Mismatch(found)), .. } => found,
        _ => return false,
    };
    std::mem::replace(found, other) != other
}

/// A delete that was told the key was there is told it was not, or the reverse.
fn flip_a_delete(operation: &mut Operation) -> bool {
    let Action::Delete { was_there: Some(was_there) } = &mut operation.action else { return false };
    *was_there = !*was_there;
    true
}

/// A compare-and-set that was done is told it was not, or the reverse.
fn turn_a_comparison(operations: &mut [Operation], index: usize, random: &mut Random) -> bool {
    let other = another(operations, index, random);
    let Action::CompareAndSet { outcome: Some(outcome), .. } = &mut operations[index].action else {
        return false;
    };
    *outcome = match outcome {
        CompareOutcome::Done => CompareOutcome::Mismatch(other),
        CompareOutcome::Mismatch(_) => CompareOutcome::Done,
    };
    true
}

/// Two operations of the same kind, called one shortly after the other, get each other's answers.
fn exchange_answers(operations: &mut [Operation], index: usize, random: &mut Random) -> bool {
    let after = index + 1 + random.below(6) as usize;
    if after >= operations.len() {
        return false;
    }
    let (before, after) = operations.split_at_mut(after);
    match (&mut before[index].action, &mut after[0].action) {
        (Action::Get { found: one }, Action::Get { found: other }) if one != other => {
            std::mem::swap(one, other);
        }
        (Action::Delete { was_there: one @ Some(_) }, Action::Delete { was_there: other @ Some(_) })
            if one != other =>
        {
            std::mem::swap(one, other);
        }
        (
            Action::CompareAndSet { outcome: one @ Some(_), .. },
            Action::CompareAndSet { outcome: other @ Some(_), .. },
        ) if one != other => std::mem::swap(one, other),
        _ => return false,
    }
    true
}

/// An operation returns sooner, so that fewer others were concurrent with it.
fn return_sooner(operation: &mut Operation, random: &mut Random) -> bool {
    let Some(returned_ns) = &mut operation.returned_ns else { return false };
    let length_ns = *returned_ns - operation.called_ns;
    *returned_ns = operation.called_ns + random.below(length_ns.max(1)) / 8;
    length_ns > 0
}

/// A write is not recorded, or its outcome is not.
fn forget(operations: &mut Vec<Operation>, index: usize, random: &mut Random) -> bool {
    if operations[index].changed_nothing() {
        return false;
    }
    match (operations[index].without_outcome(), operations[index].returned_ns) {
        (Some(weaker), Some(_)) if random.once_in(2) => operations[index] = weaker,
        _ => drop(operations.remove(index)),
    }
    true
}

/// An operation of unknown outcome is answered: it is said to be done.
fn answer(operations: &mut [Operation], index: usize, random: &mut Random) -> bool {
    let later = operations.len().min(index + 1 + random.below(20) as usize) - 1;
    let later_ns = operations[later].called_ns;
    let operation = &mut operations[index];
    if operation.returned_ns.is_some() {
        return false;
    }
    operation.returned_ns = Some(later_ns);
    match &mut operation.action {
        Action::Get { .. } | Action::Put { .. } => {}
        Action::Delete { was_there } => *was_there = Some(random.once_in(2)),
        Action::CompareAndSet { outcome, .. } => *outcome = Some(CompareOutcome::Done),
    }
    true
}

/// A delete that was told the key was there was a compare-and-set to absence.
fn compare_before_delete(operations: &mut [Operation], index: usize, random: &mut Random) -> bool {
    let Action::Delete { was_there: Some(true) } = operations[index].action else { return false };
    let Some(expected) = another(operations, index, random) else { return false };
    let operation = &mut operations[index];
    let outcome = Some(CompareOutcome::Done).filter(|_| random.once_in(2));
    operation.returned_ns = operation.returned_ns.filter(|_| outcome.is_some());
    operation.action = Action::CompareAndSet { expected: Some(expected), value: None, outcome };
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::linear::{Judgement, judge};

    /// One client that does one thing after another, all but the last in turn.
    fn sequence(count: u64) -> Vec<Operation> {
        let mut present = None;
        let mut history = Vec::new();
        for number in 1..=count {
            let value = Some(ValueId(number));
            let (action, after) = match number % 5 {
                0 => (Action::Delete { was_there: Some(present.is_some()) }, None),
                1 => (Action::Put { value: ValueId(number) }, value),
                2 => {
                    let outcome = Some(CompareOutcome::Done);
                    (Action::CompareAndSet { expected: present, value, outcome }, value)
                }
                3 => {
                    let outcome = Some(CompareOutcome::Mismatch(present));
                    (Action::CompareAndSet { expected: None, value, outcome }, present)
                }
                _ => (Action::Get { found: present }, present),
            };
            present = after;
            let called_ns = 100 * number;
            history.push(Operation {
                client: 1,
                key: 7,
                called_ns,
                returned_ns: Some(called_ns + 50),
                action,
            });
        }
        let action = Action::Put { value: ValueId(count + 1) };
        history.push(Operation { client: 2, key: 7, called_ns: 300, returned_ns: None, action });
        history
    }

    #[test]
    fn most_corruptions_show_and_some_are_harmless() {
        let history = sequence(60);
        assert!(matches!(judge(&history), Judgement::Linearizable));
        let (mut harmful, mut harmless) = (0, 0);
        for seed in 0..2_000 {
            let corrupted = corrupt(&history, &mut Random::new(seed)).expect("there are answers to corrupt");
            match judge(&corrupted) {
                Judgement::Linearizable => harmless += 1,
                Judgement::Not(_) => harmful += 1,
                Judgement::Undecided(finding) => panic!("seed {seed}: {finding}"),
            }
        }
        assert!(harmful > 800 && harmless > 200, "{harmful} {harmless}");
    }

    #[test]
    fn a_history_without_answers_is_left_alone() {
        assert!(corrupt(&[], &mut Random::new(1)).is_none());
    }
}
