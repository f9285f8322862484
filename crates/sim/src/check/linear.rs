//! Whether a history is linearizable, key by key.
//!
//! A history is linearizable if each operation can be given one moment between its call and its return at
//! which it takes effect, so that these moments in order are a run of a plain register. Intervals are closed:
//! only an operation that returned strictly before another was called must come before it. Keys are
//! independent registers, absent at first, and linearizability is local, so each key is judged alone. Clients
//! need not be sequential: batches overlap.
//!
//! Three passes, the first finding ends the check:
//!
//! 1. `record`: the record contradicts itself (a value written twice, a return before the call), so nothing
//!    can be judged.
//! 2. `necessary`: conditions that every linearizable history meets, in `n log n`, for the clearest message.
//! 3. `search`: an exact search for an order on what `model` makes of the operations.
//!
//! # Unknown outcomes
//!
//! Such an operation may take effect at any moment after its call, or never. If an operation of known outcome
//! saw its value, it has taken effect and is searched like any other. If nobody saw it, all it can do for
//! others is to explain an absence (a delete, a compare-and-set to absence) or a presence (a put, for a
//! delete that says it was there). Take an order that uses as few of them as possible: each stands right
//! before an operation that needs just that, for otherwise it could be left out. So they are kept as spares,
//! used only then, and never searched.
//!
//! # Cost
//!
//! With values that no two operations write, each stands under its key once. The search therefore never
//! leaves a value that an open operation must still see, and of `n` operations it mostly visits `n`
//! configurations. Deciding this is NP-hard in general; a set of concurrent operations that defies the cuts
//! costs up to two to its size, times the values among it, and a search that meets more than
//! [`CONFIGURATIONS_MAX`] says that it could not decide. Nothing carries over a quiescent point but the value
//! and the used spares: there the configurations memorized are that few, so the search splits by itself.
//!
//! # Source
//!
//! Wing and Gong, "Testing and Verifying Concurrent Objects" (1993), for the search; Lowe, "Testing for
//! Linearizability" (2017), for its memory of configurations; Gibbons and Korach, "Testing Shared Memories"
//! (1997), for what unique values allow: a value's operations form one cluster.

use std::collections::BTreeMap;

use super::Finding;
use crate::history::Operation;
use model::Model;
use search::{Verdict, search};

mod model;
mod necessary;
mod record;
mod search;
mod shrink;
#[cfg(test)]
mod tests;

/// How many configurations a search of one key may meet, a few hundred bytes each. Real histories meet about
/// as many as they have operations.
pub const CONFIGURATIONS_MAX: usize = 1_000_000;

/// How many operations a finding shows; if there are more, those called last, because there the contradiction
/// comes out. That many are needed where unknown outcomes explain much before they are used up.
const DETAILS_MAX: usize = 60;

/// The checker's name in its findings.
const CHECKER: &str = "linearizability";

/// What is known of a history after the check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Every key's operations have an order that explains them.
    Linearizable,
    /// What cannot be, and the operations that show it, by the time of their call.
    Not(Finding),
    /// Nothing: the record contradicts itself, or a key takes too long to decide. Which of the two it says.
    Undecided(Finding),
}

/// Looks for something to report, as [`judge`] does: also that a history could not be judged.
pub fn check(history: &[Operation]) -> Result<(), Finding> {
    match judge(history) {
        Judgement::Linearizable => Ok(()),
        Judgement::Not(finding) | Judgement::Undecided(finding) => Err(finding),
    }
}

/// Looks for a key whose operations no order explains, lowest first.
pub fn judge(history: &[Operation]) -> Judgement {
    if let Err(finding) = record::check(history) {
        return Judgement::Undecided(finding);
    }
    let mut keys: BTreeMap<u64, Vec<Operation>> = BTreeMap::new();
    for operation in history {
        keys.entry(operation.key).or_default().push(operation.clone());
    }
    if let Err(finding) = necessary::check(history, &keys) {
        return Judgement::Not(finding);
    }
    for (key, operations) in &keys {
        let mut configurations_left = CONFIGURATIONS_MAX;
        match verdict(operations, &mut configurations_left) {
            Verdict::Explained => {}
            Verdict::Unexplained => return Judgement::Not(unexplained(*key, operations)),
            Verdict::Undecided => {
                let what = format!(
                    "key {key}: undecided, its {} operations have more than {CONFIGURATIONS_MAX} configurations",
                    operations.len()
                );
                return Judgement::Undecided(finding(what, []));
            }
        }
    }
    Judgement::Linearizable
}

/// Whether an order explains these operations on one key; takes what the search met from the configurations
/// left.
fn verdict(operations: &[Operation], configurations_left: &mut usize) -> Verdict {
    match Model::new(operations) {
        Some(model) => search(&model, configurations_left),
        None => Verdict::Unexplained,
    }
}

/// The finding for a key whose operations no order explains.
fn unexplained(key: u64, operations: &[Operation]) -> Finding {
    let (end_ns, core) = shrink::shrink(operations);
    let mut what = format!("key {key}: no order explains these operations, which shows by {end_ns}");
    let others_count = operations.len() - core.len();
    if others_count > 0 {
        what += &format!(", whatever the {others_count} others on the key did");
    }
    finding(what, core)
}

/// A finding with the operations that show it, or the last of them, by the time of their call.
fn finding<'a>(what: String, operations: impl IntoIterator<Item = &'a Operation>) -> Finding {
    let mut operations: Vec<&Operation> = operations.into_iter().collect();
    operations.sort_by_key(|operation| {
        (operation.called_ns, operation.returned_ns.is_none(), operation.returned_ns)
    });
    let left_out = operations.len().saturating_sub(DETAILS_MAX);
    let mut details = Vec::new();
    if left_out > 0 {
        details.push(format!("({left_out} called earlier)"));
    }
    details.extend(operations[left_out..].iter().map(|operation| operation.to_string()));
    Finding { checker: CHECKER, what, details }
}
