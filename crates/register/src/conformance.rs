//! What every register does, as tests generic over [`Register`].
//!
//! A suite is given a maker of registers, each empty, and of each register a maker of handles on it.

use std::collections::BTreeMap;
use std::sync::Barrier;

use kelix_types::ErrorKind;

use crate::{
    ADDRESS_CHARACTERS_MAX, Durable, MEMBERS_MAX, Member, NAME_CHARACTERS_MAX, Offer, Register, Swapped, View,
};

/// How many threads race.
const THREADS: u64 = 6;
/// How many views they make.
const VIEWS: u64 = 30;

/// A member that is well formed, named by the last digits of its boot number.
pub(crate) fn member(boot: u64) -> Member {
    Member { node: (boot % 100).to_string(), boot, pid: 4242, address: "127.0.0.1:7000".into(), offer: None }
}

/// A view that is well formed: boots 101, in sync and primary, 102, in sync, and 103.
pub(crate) fn view(number: u64, proposal: u64) -> View {
    View {
        number,
        cluster: 77,
        term: 5,
        primary: 101,
        in_sync: vec![101, 102],
        min_in_sync: 1,
        durable: Durable::Off,
        successor: None,
        leaving: Vec::new(),
        members: (101..=103).map(member).collect(),
        proposal,
    }
}

/// A view with as many members as there may be, each with names as long as they may be.
pub(crate) fn largest_view(number: u64) -> View {
    let mut view = view(number, u64::MAX);
    view.members = (0..MEMBERS_MAX as u64).map(|n| member(u64::MAX - n)).collect();
    for member in &mut view.members {
        member.node = "\u{10348}".repeat(NAME_CHARACTERS_MAX);
        member.pid = u32::MAX;
        member.offer = Some(Offer { of: u64::MAX, records: u64::MAX });
        member.address = format!("{}:65535", "\"".repeat(ADDRESS_CHARACTERS_MAX - 6));
    }
    view.in_sync = view.members.iter().map(|member| member.boot).collect();
    (view.primary, view.successor) = (view.in_sync[0], Some(view.in_sync[1]));
    view.leaving = view.in_sync.clone();
    view
}

/// Runs the suite: each case on a register of its own.
pub(crate) fn run<R: Register, Open: FnMut() -> R>(mut make: impl FnMut() -> Open) {
    first_view(make());
    chain(make());
    lost_race(make());
    same_swap_again(make());
    bad_arguments(make());
    race(make());
}

fn first_view<R: Register>(mut open: impl FnMut() -> R) {
    let (mut one, mut other) = (open(), open());
    assert_eq!(one.read().unwrap(), None);
    assert!(one.is_current(0).unwrap() && !one.is_current(1).unwrap());
    assert_eq!(one.swap(0, &view(1, 11)).unwrap(), Swapped::Done);
    for register in [&mut one, &mut other, &mut open()] {
        assert!(register.is_current(1).unwrap());
        assert!(!register.is_current(0).unwrap() && !register.is_current(2).unwrap());
        assert_eq!(register.read().unwrap(), Some(view(1, 11)));
    }
}

fn chain<R: Register>(mut open: impl FnMut() -> R) {
    let mut handles = [open(), open(), open()];
    for number in 1..=20 {
        let writer = number as usize % handles.len();
        // A writer that has not read meanwhile finds what others have written.
        let mut next = view(number, 1000 + number);
        next.term = number;
        assert_eq!(handles[writer].swap(number - 1, &next).unwrap(), Swapped::Done, "{number}");
        let reader = (writer + 1) % handles.len();
        assert!(handles[reader].is_current(number).unwrap(), "{number}");
        assert_eq!(handles[reader].read().unwrap(), Some(next), "{number}");
    }
    assert!(handles.iter_mut().all(|handle| !handle.is_current(19).unwrap()));
}

fn lost_race<R: Register>(mut open: impl FnMut() -> R) {
    let (mut one, mut other) = (open(), open());
    assert_eq!(one.swap(0, &view(1, 11)).unwrap(), Swapped::Done);
    assert_eq!(other.swap(0, &view(1, 12)).unwrap(), Swapped::Lost);
    assert_eq!(other.swap(1, &view(2, 13)).unwrap(), Swapped::Done);
    assert_eq!(one.swap(1, &view(2, 14)).unwrap(), Swapped::Lost);
    assert_eq!(one.swap(0, &view(1, 15)).unwrap(), Swapped::Lost);
    assert_eq!(one.read().unwrap(), Some(view(2, 13)));
    assert_eq!(other.read().unwrap(), Some(view(2, 13)));
}

fn same_swap_again<R: Register>(mut open: impl FnMut() -> R) {
    let (mut one, mut other) = (open(), open());
    assert_eq!(one.swap(0, &view(1, 11)).unwrap(), Swapped::Done);
    // In force: done, for whoever asks, and still the only view.
    assert_eq!(one.swap(0, &view(1, 11)).unwrap(), Swapped::Done);
    assert_eq!(other.swap(0, &view(1, 11)).unwrap(), Swapped::Done);
    assert!(other.is_current(1).unwrap());
    // Another proposal with the same contents is another view.
    assert_eq!(other.swap(0, &view(1, 12)).unwrap(), Swapped::Lost);
    // Not in force any more.
    assert_eq!(other.swap(1, &view(2, 13)).unwrap(), Swapped::Done);
    assert_eq!(one.swap(0, &view(1, 11)).unwrap(), Swapped::Lost);
}

fn bad_arguments<R: Register>(mut open: impl FnMut() -> R) {
    let mut register = open();
    let mut refuse = |expected, view: &View| {
        let error = register.swap(expected, view).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert_eq!(register.read().unwrap(), None);
    };
    refuse(0, &view(2, 1));
    refuse(1, &view(1, 1));
    refuse(u64::MAX, &view(1, 1));
    refuse(u64::MAX, &view(0, 1));
    // Nobody can have read the view that is expected.
    refuse(4, &view(5, 1));
    refuse(0, &View { in_sync: vec![], ..view(1, 1) });
    assert_eq!(register.swap(0, &view(1, 1)).unwrap(), Swapped::Done);
}

/// Many threads race for each number. Each number is won once, and what was won is what is read.
fn race<R: Register>(mut open: impl FnMut() -> R) {
    let handles: Vec<R> = (0..THREADS).map(|_| open()).collect();
    let barrier = &Barrier::new(handles.len());
    let won: Vec<Vec<View>> = std::thread::scope(|scope| {
        let race = |(thread, handle)| scope.spawn(move || race_of_one(handle, thread, barrier));
        let racing: Vec<_> = (1..=THREADS).zip(handles).map(race).collect();
        racing.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut by_number = BTreeMap::new();
    for view in won.into_iter().flatten() {
        let number = view.number;
        assert!(by_number.insert(number, view).is_none(), "view {number} was won twice");
    }
    assert!(by_number.keys().copied().eq(1..=VIEWS), "numbers are consecutive");
    assert_eq!(open().read().unwrap().as_ref(), by_number.get(&VIEWS));
}

/// Returns the views that one of the threads won.
fn race_of_one<R: Register>(mut register: R, thread: u64, barrier: &Barrier) -> Vec<View> {
    let mut won = Vec::new();
    let mut newest = 0;
    barrier.wait();
    // Each round either wins a number or is lost to a winner, so there are no more rounds than numbers.
    for round in 0..=VIEWS {
        let read = register.read().unwrap();
        let number = read.as_ref().map_or(0, |view| view.number);
        assert!(number >= newest, "view {number} came behind view {newest}");
        assert!(number >= round, "a round was lost to nobody");
        newest = number;
        if number >= VIEWS {
            return won;
        }
        let next = view(number + 1, thread << 32 | round);
        match register.swap(number, &next).unwrap() {
            Swapped::Done => won.push(next),
            Swapped::Lost => assert!(!register.is_current(number).unwrap(), "lost to nobody"),
        }
    }
    panic!("more rounds than numbers");
}
