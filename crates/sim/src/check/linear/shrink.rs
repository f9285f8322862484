//! Which few operations of a key show that no order explains it.
//!
//! An operation cannot simply be dropped: without a delete, an absence that it explains becomes a
//! contradiction that was none. What can be dropped is an outcome. A write whose outcome is forgotten may
//! take effect at any time after its call or never, a read of which nothing is known is none, and whatever
//! order explained the operations before explains them still. So the operations whose outcomes are kept
//! contradict each other *whatever the others did*.
//!
//! First the history is cut to the shortest time after which it cannot be explained: what was called later is
//! left out, what returned later has no outcome. Then outcomes are forgotten, by halves, quarters, and so on
//! down to one by one, as long as the rest cannot be explained.

use std::collections::HashSet;

use super::search::Verdict;
use super::verdict;
use crate::history::Operation;

/// How many configurations a search may meet here; one that meets more keeps the outcomes it tried to forget.
const SEARCH_CONFIGURATIONS_MAX: usize = 50_000;

/// How many configurations all searches for a key may meet.
const CONFIGURATIONS_MAX: usize = 500_000;

/// How many searches there may be for a key.
const SEARCHES_MAX: usize = 1_000;

/// Finds the operations that contradict each other, and those that wrote the values these saw, and the return
/// by which they do. The operations are of one key and no order explains them.
pub(super) fn shrink(operations: &[Operation]) -> (u64, Vec<&Operation>) {
    let mut left = CONFIGURATIONS_MAX;
    let end_ns = shortest(operations, &mut left);
    let mut kept: Vec<bool> =
        operations.iter().map(|operation| operation.returned_ns.is_some_and(|ns| ns <= end_ns)).collect();
    let called: Vec<&Operation> =
        operations.iter().filter(|operation| operation.called_ns <= end_ns).collect();
    kept = operations
        .iter()
        .zip(kept)
        .filter(|(one, _)| one.called_ns <= end_ns)
        .map(|(_, kept)| kept)
        .collect();

    let mut searches = 0;
    let mut size = called.len().div_ceil(2);
    loop {
        let mut forgot = false;
        let candidates: Vec<usize> = (0..called.len()).filter(|&index| kept[index]).collect();
        for chunk in candidates.chunks(size.max(1)) {
            if searches == SEARCHES_MAX || left == 0 {
                break;
            }
            searches += 1;
            chunk.iter().for_each(|&index| kept[index] = false);
            if is_unexplained(&called, &kept, &mut left) {
                forgot = true;
            } else {
                chunk.iter().for_each(|&index| kept[index] = true);
            }
        }
        if searches == SEARCHES_MAX || left == 0 || (size <= 1 && !forgot) {
            break;
        }
        size = size.div_ceil(2).min(size.saturating_sub(1)).max(1);
    }

    let mut saw = HashSet::new();
    for (operation, _) in called.iter().zip(&kept).filter(|(_, kept)| **kept) {
        saw.extend(operation.saw().flatten());
    }
    let is_shown = |(operation, kept): &(&Operation, bool)| {
        *kept || operation.value().is_some_and(|value| saw.contains(&value))
    };
    (end_ns, called.into_iter().zip(kept).filter(is_shown).map(|(operation, _)| operation).collect())
}

/// The earliest return after which the operations cannot be explained, as far as the searches decide.
fn shortest(operations: &[Operation], left: &mut usize) -> u64 {
    let mut returns: Vec<u64> = operations.iter().filter_map(|operation| operation.returned_ns).collect();
    returns.sort_unstable();
    returns.dedup();
    // Forgetting what came later never makes a history harder to explain, so the returns are partitioned.
    let mut cannot_be_explained = |end_ns: u64| {
        let called: Vec<&Operation> = operations.iter().filter(|one| one.called_ns <= end_ns).collect();
        let kept: Vec<bool> =
            called.iter().map(|one| one.returned_ns.is_some_and(|ns| ns <= end_ns)).collect();
        is_unexplained(&called, &kept, left)
    };
    let index = returns.partition_point(|&end_ns| !cannot_be_explained(end_ns));
    returns.get(index).or(returns.last()).copied().unwrap_or(u64::MAX)
}

/// Whether no order explains the operations if only those kept have an outcome.
fn is_unexplained(operations: &[&Operation], kept: &[bool], left: &mut usize) -> bool {
    let weaker: Vec<Operation> = operations
        .iter()
        .zip(kept)
        .filter_map(
            |(operation, kept)| if *kept { Some((*operation).clone()) } else { operation.without_outcome() },
        )
        .collect();
    let given = SEARCH_CONFIGURATIONS_MAX.min(*left);
    let mut rest = given;
    let verdict = verdict(&weaker, &mut rest);
    *left -= given - rest;
    verdict == Verdict::Unexplained
}
