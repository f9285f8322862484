//! Small histories, good and bad, each with the story it tells.

use crate::check::linear::check;
use crate::history::{Action, CompareOutcome, Operation, ValueId};

/// An operation on key 7; an end of zero stands for an unknown outcome.
fn at(called_ns: u64, returned_ns: u64, action: Action) -> Operation {
    let returned_ns = Some(returned_ns).filter(|&ns| ns > 0);
    Operation { client: 1, key: 7, called_ns, returned_ns, action }
}

/// Zero stands for absence.
fn value(id: u64) -> Option<ValueId> {
    Some(ValueId(id)).filter(|value| value.0 > 0)
}

fn get(called_ns: u64, returned_ns: u64, found: u64) -> Operation {
    at(called_ns, returned_ns, Action::Get { found: value(found) })
}

fn put(called_ns: u64, returned_ns: u64, id: u64) -> Operation {
    at(called_ns, returned_ns, Action::Put { value: ValueId(id) })
}

fn delete(called_ns: u64, returned_ns: u64, was_there: bool) -> Operation {
    at(called_ns, returned_ns, Action::Delete { was_there: Some(was_there).filter(|_| returned_ns > 0) })
}

fn done(called_ns: u64, returned_ns: u64, expected: u64, new: u64) -> Operation {
    let outcome = Some(CompareOutcome::Done).filter(|_| returned_ns > 0);
    at(
        called_ns,
        returned_ns,
        Action::CompareAndSet { expected: value(expected), value: value(new), outcome },
    )
}

fn mismatch(called_ns: u64, returned_ns: u64, expected: u64, new: u64, found: u64) -> Operation {
    let outcome = Some(CompareOutcome::Mismatch(value(found)));
    at(
        called_ns,
        returned_ns,
        Action::CompareAndSet { expected: value(expected), value: value(new), outcome },
    )
}

#[track_caller]
fn good(history: &[Operation]) {
    if let Err(finding) = check(history) {
        panic!("{finding}");
    }
}

/// The finding says this, and shows so many operations.
#[track_caller]
fn bad(history: &[Operation], says: &str, shown: usize) {
    let finding = check(history).expect_err("no order explains this history");
    assert!(finding.to_string().contains(says), "{finding}");
    assert_eq!(finding.details.len(), shown, "{finding}");
}

#[test]
fn one_after_another() {
    good(&[]);
    good(&[
        get(1, 2, 0),
        put(3, 4, 1),
        get(5, 6, 1),
        delete(7, 8, true),
        get(9, 10, 0),
        delete(11, 12, false),
    ]);
    good(&[done(1, 2, 0, 1), mismatch(3, 4, 0, 2, 1), done(5, 6, 1, 3), done(7, 8, 3, 0), done(9, 10, 0, 0)]);
    // The order of the record does not matter.
    good(&[get(5, 6, 1), put(3, 4, 1), get(1, 2, 0)]);
}

#[test]
fn intervals_are_closed() {
    good(&[put(1, 5, 1), get(5, 9, 0)]);
    good(&[get(1, 5, 1), put(5, 9, 1)]);
    bad(&[put(1, 4, 1), get(5, 9, 0)], "no order", 2);
    bad(&[get(1, 4, 1), put(5, 9, 1)], "before its write", 2);
}

#[test]
fn stale_read() {
    bad(&[put(1, 2, 1), put(3, 4, 2), get(5, 6, 1)], "was not, and was seen again", 3);
    good(&[put(1, 2, 1), put(3, 5, 2), get(5, 6, 1)]);
}

#[test]
fn new_then_old() {
    bad(&[put(1, 2, 1), put(3, 20, 2), get(5, 6, 2), get(7, 8, 1)], "seen again", 3);
    good(&[put(1, 2, 1), put(3, 20, 2), get(5, 6, 1), get(7, 8, 2)]);
    // Overlapping reads may say either.
    good(&[put(1, 2, 1), put(3, 20, 2), get(5, 7, 2), get(7, 8, 1)]);
}

#[test]
fn lost_update() {
    bad(&[put(1, 2, 1), done(3, 9, 1, 2), done(4, 8, 1, 3)], "lost update", 2);
    bad(&[done(1, 9, 0, 2), done(1, 9, 0, 3)], "no order", 2);
    good(&[done(1, 9, 0, 2), done(1, 9, 0, 3), delete(1, 9, true)]);
}

#[test]
fn unwritten_values() {
    bad(&[put(1, 2, 1), get(1, 2, 2)], "nobody wrote", 1);
    let elsewhere = Operation { key: 8, ..put(1, 2, 2) };
    bad(&[elsewhere, get(1, 2, 2)], "written to key 8", 2);
    bad(&[put(1, 2, 1), mismatch(3, 4, 0, 2, 1), get(5, 6, 2)], "told that it was not done", 2);
    bad(&[done(1, 2, 1, 1)], "no order", 1);
}

#[test]
fn compare_and_set_that_saw_what_it_expected() {
    bad(&[put(1, 2, 1), mismatch(3, 4, 1, 2, 1)], "found what it expected", 1);
    bad(&[mismatch(3, 4, 0, 2, 0)], "found what it expected", 1);
    bad(&[put(1, 2, 1), mismatch(3, 4, 2, 3, 0)], "no order", 2);
}

#[test]
fn deletes() {
    bad(&[put(1, 2, 1), delete(3, 4, false)], "no order", 2);
    bad(&[delete(3, 4, true)], "no order", 1);
    bad(&[put(1, 2, 1), delete(3, 6, true), delete(3, 6, true)], "no order", 2);
    good(&[put(1, 2, 1), put(1, 6, 2), delete(3, 6, true), delete(3, 6, true)]);
}

#[test]
fn absent_in_between() {
    bad(&[put(1, 2, 1), get(3, 4, 0), get(5, 6, 1)], "was not, and was seen again", 3);
    bad(&[put(1, 2, 1), put(3, 4, 2), get(4, 6, 0)], "no order", 2);
    good(&[put(1, 2, 1), get(3, 4, 0), delete(2, 9, true)]);
    good(&[put(1, 2, 1), get(3, 4, 0), put(4, 5, 2), get(6, 7, 2), delete(2, 9, true)]);
}

#[test]
fn unknown_put() {
    // It shows up later, once.
    good(&[put(1, 0, 1), get(5, 6, 0), get(7, 8, 1)]);
    bad(&[put(1, 0, 1), get(5, 6, 1), get(7, 8, 0)], "no order", 3);
    bad(&[put(1, 0, 1), put(2, 3, 2), get(5, 6, 1), get(7, 8, 2)], "seen again", 3);
    bad(&[put(7, 0, 1), get(5, 6, 1)], "before its write", 2);
    // Nobody sees it, but a delete says that something was there.
    good(&[put(1, 0, 1), get(5, 6, 0), delete(7, 8, true), get(9, 10, 0)]);
    bad(&[put(1, 0, 1), delete(5, 6, true), delete(7, 8, true)], "no order", 2);
    bad(&[put(9, 0, 1), delete(5, 8, true)], "no order", 1);
}

#[test]
fn unknown_delete() {
    good(&[put(1, 2, 1), delete(1, 0, true), get(3, 4, 1), get(5, 6, 0)]);
    bad(&[put(1, 2, 1), delete(5, 0, true), get(3, 4, 0)], "no order", 2);
    bad(&[put(1, 2, 1), delete(1, 0, true), get(3, 4, 0), put(5, 6, 2), get(7, 8, 0)], "no order", 4);
}

#[test]
fn unknown_compare_and_set() {
    // A value that was seen shows that all of its chain was done.
    good(&[put(1, 2, 1), done(3, 0, 1, 2), done(3, 0, 2, 3), get(5, 6, 1), get(7, 8, 3)]);
    bad(&[put(1, 2, 1), done(3, 0, 1, 2), done(3, 0, 2, 3), get(5, 6, 3), get(7, 8, 1)], "seen again", 3);
    bad(&[put(1, 2, 1), done(3, 0, 1, 2), done(1, 9, 1, 3), get(5, 6, 2)], "no order", 4);
    // To absence, directly and over values that nobody saw.
    good(&[put(1, 2, 1), done(3, 0, 1, 0), get(5, 6, 0)]);
    good(&[put(1, 2, 1), done(3, 0, 1, 2), done(4, 0, 2, 0), get(5, 6, 0)]);
    good(&[put(1, 2, 1), put(1, 0, 2), done(4, 0, 2, 0), get(5, 6, 0)]);
    bad(&[put(1, 2, 1), put(1, 0, 2), done(7, 0, 2, 0), get(5, 6, 0)], "no order", 2);
    // From absence, for a delete that says it was there.
    good(&[done(1, 0, 0, 1), delete(5, 6, true)]);
    // A ring explains nothing.
    bad(&[done(1, 0, 1, 2), done(1, 0, 2, 1), get(5, 6, 1)], "no order", 2);
}

#[test]
fn errors_of_the_record() {
    bad(&[put(1, 2, 1), put(3, 4, 1)], "error of the record", 2);
    bad(&[put(2, 1, 1)], "returned before it was called", 1);
    bad(&[get(1, 0, 1)], "outcome without a return", 1);
    bad(&[Operation { returned_ns: None, ..delete(1, 2, true) }], "outcome without a return", 1);
    bad(&[Operation { returned_ns: Some(4), ..done(1, 0, 1, 2) }], "outcome without a return", 1);
}

#[test]
fn finding_as_text() {
    let history = [put(1, 2, 1), put(3, 0, 9), delete(4, 5, true), get(6, 7, 1), mismatch(8, 9, 0, 3, 1)];
    let text = check(&history).expect_err("a value came back").to_string();
    let expected = "linearizability: key 7: v1 was there, was not, and was seen again
    1..2 client 1 key 7: put v1
    4..5 client 1 key 7: delete -> was there
    6..7 client 1 key 7: get -> v1";
    assert_eq!(text, expected);
}

#[test]
fn finding_leaves_out_what_does_not_matter() {
    // Many puts and reads in good order, and one delete that says absent.
    let mut history = Vec::new();
    for id in 1..=500 {
        history.push(put(id * 10, id * 10 + 2, id));
        history.push(get(id * 10 + 3, id * 10 + 4, id));
    }
    history.push(delete(3001, 3009, false));
    bad(&history, "which shows by 3009, whatever the 998 others", 3);
}
