//! A key's operations made ready for the search: what must take effect, and what may.
//!
//! Three groups come out of the operations:
//!
//! - *Steps* must each take effect once: everything with a known outcome, and every write of unknown outcome
//!   whose value a step saw. Such a write came before each step that saw it, so the earliest return among
//!   these is its own: this adds only precedences that follow anyway. A compare-and-set that becomes a step
//!   so saw its expected value in turn.
//! - *Spares* are the other writes of unknown outcome. No step sees their values, so all that one can do for
//!   a step is to make the key present (for a delete that says it was there) or absent.
//! - *Exits* are the compare-and-sets among the rest which turn a given value, over values that nobody saw,
//!   into absence. They work from that one value only, which stands under the key once at most, so one that
//!   can be used costs nothing.

use std::collections::HashMap;

use crate::history::{Action, CompareOutcome, Operation, ValueId};

/// Index into [`Model::values`].
pub(super) type ValueIndex = u32;

/// Stands for absence; the entry of [`Model::values`] there says nothing.
pub(super) const ABSENT: ValueIndex = 0;

/// Later than everything: for what never comes to pass.
pub(super) const NEVER: u64 = u64::MAX;

/// One key's operations, ready for the search.
#[derive(Debug)]
pub(super) struct Model {
    /// By `called_ns`.
    pub steps: Vec<Step>,
    /// What is known about each value that a step writes.
    pub values: Vec<Value>,
    /// By the time of their call.
    pub spares: Vec<Spare>,
}

/// Something that must take effect once between its call and its return.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub called_ns: u64,
    pub returned_ns: u64,
    pub effect: Effect,
}

/// What a step needs and does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Needs just this, changes nothing.
    Read(ValueIndex),
    /// Needs nothing, leaves this value.
    Write(ValueIndex),
    /// Needs any value, leaves absence.
    Remove,
    /// Needs the first, leaves the second; not both are absence.
    Swap(ValueIndex, ValueIndex),
}

/// A value that a step writes. It stands under the key for one stretch of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    /// How many steps read it.
    pub readers: u32,
    /// The one step that swaps it for something else.
    pub swapped_by: Option<u32>,
    /// From when on an exit can turn it into absence.
    pub exit_ns: u64,
}

impl Value {
    /// Whether nothing depends on it, so that one such value is as good as another.
    pub fn is_plain(&self) -> bool {
        self.readers == 0 && self.swapped_by.is_none() && self.exit_ns == NEVER
    }
}

/// A write of unknown outcome which may take effect once, for one of two purposes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spare {
    /// From when on it can make an absent key present.
    pub present_ns: u64,
    /// From when on it can make a present key absent, whatever stands there.
    pub absent_ns: u64,
}

impl Model {
    /// Sorts the operations of one key into the three groups. `None` if it comes out already that no order
    /// explains them.
    pub fn new(operations: &[Operation]) -> Option<Model> {
        let writers = writers(operations);
        let returned_ns = required(operations, &writers)?;
        let mut steps: Vec<(u64, u64, &Operation)> = Vec::with_capacity(operations.len());
        for (operation, returned_ns) in operations.iter().zip(&returned_ns) {
            if let Some(returned_ns) = *returned_ns {
                steps.push((operation.called_ns, returned_ns, operation));
            }
        }
        steps.sort_by_key(|&(called_ns, returned_ns, _)| (called_ns, returned_ns));

        let nothing = Value { readers: 0, swapped_by: None, exit_ns: NEVER };
        let mut values = vec![nothing];
        let mut indexes = HashMap::new();
        for (_, _, operation) in &steps {
            if operation.changed_nothing() {
                continue;
            }
            if let Some(value) = operation.value() {
                indexes.insert(value, values.len() as ValueIndex);
                values.push(nothing);
            }
        }
        let index_of =
            |value: Option<ValueId>| value.map_or(Some(ABSENT), |value| indexes.get(&value).copied());

        let mut model = Model { steps: Vec::with_capacity(steps.len()), values, spares: Vec::new() };
        for (called_ns, returned_ns, operation) in steps {
            let effect = match operation.action {
                Action::Get { found } => Effect::Read(index_of(found)?),
                Action::Put { value } => Effect::Write(index_of(Some(value))?),
                Action::Delete { was_there: Some(false) } => Effect::Read(ABSENT),
                Action::Delete { .. } => Effect::Remove,
                Action::CompareAndSet {
                    expected, outcome: Some(CompareOutcome::Mismatch(found)), ..
                } => {
                    if found == expected {
                        return None;
                    }
                    Effect::Read(index_of(found)?)
                }
                Action::CompareAndSet { expected: None, value: None, .. } => Effect::Read(ABSENT),
                Action::CompareAndSet { expected, value, .. } => {
                    Effect::Swap(index_of(expected)?, index_of(value)?)
                }
            };
            match effect {
                Effect::Read(value) => model.values[value as usize].readers += 1,
                Effect::Swap(from, _) if from != ABSENT => {
                    // A value stands under the key for one stretch, which only one swap can end.
                    if model.values[from as usize].swapped_by.replace(model.steps.len() as u32).is_some() {
                        return None;
                    }
                }
                Effect::Write(_) | Effect::Remove | Effect::Swap(..) => {}
            }
            model.steps.push(Step { called_ns, returned_ns, effect });
        }

        let exits = exits(operations, &returned_ns, &writers);
        for (value, index) in &indexes {
            model.values[*index as usize].exit_ns = exits.get(value).copied().unwrap_or(NEVER);
        }
        model.add_spares(operations, &returned_ns, &exits);
        Some(model)
    }

    /// Collects what may take effect, without what no step has a use for.
    fn add_spares(
        &mut self,
        operations: &[Operation],
        returned_ns: &[Option<u64>],
        exits: &HashMap<ValueId, u64>,
    ) {
        let wants_presence = self.steps.iter().any(|step| step.effect == Effect::Remove);
        let wants_absence = self.steps.iter().any(|step| step.effect.needs_absence());
        for (operation, returned_ns) in operations.iter().zip(returned_ns) {
            if returned_ns.is_some() {
                continue;
            }
            let called_ns = operation.called_ns;
            let mut spare = match operation.action {
                Action::Delete { .. } => Spare { present_ns: NEVER, absent_ns: called_ns },
                // Followed by its value's exit, a put makes the key absent too.
                Action::Put { value } => Spare {
                    present_ns: called_ns,
                    absent_ns: exits.get(&value).map_or(NEVER, |&exit_ns| exit_ns.max(called_ns)),
                },
                Action::CompareAndSet { expected: None, value: Some(_), .. } => {
                    Spare { present_ns: called_ns, absent_ns: NEVER }
                }
                Action::CompareAndSet { .. } | Action::Get { .. } => continue,
            };
            if !wants_presence {
                spare.present_ns = NEVER;
            }
            if !wants_absence {
                spare.absent_ns = NEVER;
            }
            if spare.present_ns.min(spare.absent_ns) != NEVER {
                self.spares.push(spare);
            }
        }
        self.spares.sort_by_key(|spare| (spare.present_ns.min(spare.absent_ns), spare.absent_ns));
    }
}

impl Effect {
    /// Whether it takes effect on an absent key only.
    pub fn needs_absence(self) -> bool {
        matches!(self, Effect::Read(ABSENT) | Effect::Swap(ABSENT, _))
    }
}

/// Which operation writes each value or may do so.
fn writers(operations: &[Operation]) -> HashMap<ValueId, usize> {
    let writing = operations.iter().enumerate().filter(|(_, operation)| !operation.changed_nothing());
    writing.filter_map(|(index, operation)| Some((operation.value()?, index))).collect()
}

/// For each operation that must take effect, the end of its time for it. `None` if a value was seen that
/// nobody wrote, or before it was written.
fn required(operations: &[Operation], writers: &HashMap<ValueId, usize>) -> Option<Vec<Option<u64>>> {
    let mut required: Vec<Option<u64>> = operations.iter().map(|operation| operation.returned_ns).collect();
    let mut seen = Vec::new();
    for operation in operations {
        if let (Some(returned_ns), Some(Some(value))) = (operation.returned_ns, operation.saw()) {
            seen.push((value, returned_ns));
        }
    }
    while let Some((value, seen_ns)) = seen.pop() {
        let writer = *writers.get(&value)?;
        let operation = &operations[writer];
        if seen_ns < operation.called_ns {
            return None;
        }
        // Going round a ring of compare-and-sets ends, because the second time brings no earlier return.
        if operation.returned_ns.is_none() && required[writer].is_none_or(|earlier_ns| seen_ns < earlier_ns) {
            required[writer] = Some(seen_ns);
            if let Action::CompareAndSet { expected: Some(expected), .. } = operation.action {
                seen.push((expected, seen_ns));
            }
        }
    }
    Some(required)
}

/// For each value that compare-and-sets which need not take effect can turn into absence: from when on.
fn exits(
    operations: &[Operation],
    returned_ns: &[Option<u64>],
    writers: &HashMap<ValueId, usize>,
) -> HashMap<ValueId, u64> {
    let mut exits = HashMap::new();
    let may = |index: usize| returned_ns[index].is_none();
    for (index, operation) in operations.iter().enumerate() {
        let Action::CompareAndSet { expected: Some(mut from), value: None, .. } = operation.action else {
            continue;
        };
        if !may(index) {
            continue;
        }
        // From the last of a chain back to its first; a ring ends where nothing gets better.
        let mut exit_ns = operation.called_ns;
        loop {
            if exits.get(&from).is_some_and(|&known_ns| known_ns <= exit_ns) {
                break;
            }
            exits.insert(from, exit_ns);
            let Some(&before) = writers.get(&from) else { break };
            let Action::CompareAndSet { expected: Some(expected), .. } = operations[before].action else {
                break;
            };
            if !may(before) {
                break;
            }
            exit_ns = exit_ns.max(operations[before].called_ns);
            from = expected;
        }
    }
    exits
}
