use std::cell::Cell;

use kelix_register::{MemoryRegister, Register, Swapped};
use kelix_types::{Error, ErrorKind, Result};

use super::*;
use crate::replicas::harness::{OWN, member};

const LEFT: u64 = 7;
const RIGHT: u64 = 8;
const TRIES_NS: u64 = 100;

/// A register that does what it is asked, and answers so often, and then no more.
struct Failing {
    register: MemoryRegister,
    answers: Arc<AtomicU64>,
}

impl Failing {
    fn answer<T>(&self, answer: Result<T>) -> Result<T> {
        let take = |left: u64| left.checked_sub(1);
        let left = self.answers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        let lost = |_| Error::new(ErrorKind::System, "ask", "the register does not answer");
        left.map_err(lost).and(answer)
    }
}

impl Register for Failing {
    fn read(&mut self) -> Result<Option<View>> {
        let view = self.register.read();
        self.answer(view)
    }

    fn is_current(&mut self, number: u64) -> Result<bool> {
        let is_current = self.register.is_current(number);
        self.answer(is_current)
    }

    fn swap(&mut self, expected: u64, view: &View) -> Result<Swapped> {
        let swapped = self.register.swap(expected, view);
        self.answer(swapped)
    }
}

/// A primary of one shard.
struct Alone {
    log: ShardLog,
    register: MemoryRegister,
    answers: Arc<AtomicU64>,
    has_lease: Cell<bool>,
    now_ns: Cell<u64>,
    /// What counted each time when it waited for the register.
    waited: Cell<Vec<(u64, bool)>>,
}

impl Primary for Alone {
    fn shards(&self) -> Vec<usize> {
        vec![1]
    }

    fn log(&self, _: (usize, usize)) -> Option<&ShardLog> {
        Some(&self.log)
    }

    fn wake(&self, _: (usize, usize)) {}

    fn wake_if_asleep(&self, _: (usize, usize)) {}

    fn take_expected(&self, _: (usize, usize)) -> Option<(Gatherer, Reader)> {
        None
    }

    fn expect_none(&self) {}

    fn in_force(&self) -> bool {
        true
    }

    fn counts(&self) -> bool {
        self.has_lease.get()
    }

    fn is_over(&self) -> bool {
        false
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    /// The register answers again.
    fn pause(&self, time_ns: u64) {
        let mut waited = self.waited.take();
        waited.push((self.log.durable(), self.log.counts_at_once()));
        self.waited.set(waited);
        self.now_ns.set(self.now_ns.get() + time_ns);
        self.answers.store(u64::MAX, Ordering::Relaxed);
    }

    fn note(&self, _: Noted<'_>) {}
}

impl Alone {
    fn begin() -> (Alone, Replication) {
        Alone::chosen(&[], Committed::NONE)
    }

    /// One that was just chosen, with these others in the view, and has records up to this end.
    fn chosen(others: &[u64], end: Committed) -> (Alone, Replication) {
        let (mut register, answers) = (MemoryRegister::default(), Arc::new(AtomicU64::new(u64::MAX)));
        let failing = Failing { register: register.clone(), answers: answers.clone() };
        let membership = Arc::new(Membership::new(Box::new(failing), || Ok(OWN)).unwrap());
        let mut view = View { proposal: 1, ..View::first(5, 2, member("a", OWN)) };
        view.members.extend([member("b", LEFT), member("c", RIGHT)]);
        view.in_sync.extend(others);
        assert_eq!(register.swap(0, &view).unwrap(), Swapped::Done);
        membership.look().unwrap();
        let control = LogControl::new();
        let log = control.shard(counts_at_first(end, others.len()));
        let replication = Replication::new((membership, control), &view, 1, (0, Vec::new()), (0, TRIES_NS));
        let (has_lease, now_ns, waited) = (Cell::new(true), Cell::new(0), Cell::default());
        (Alone { log, register, answers, has_lease, now_ns, waited }, replication)
    }

    fn in_sync(&self) -> Vec<u64> {
        self.register.clone().read().unwrap().unwrap().in_sync
    }

    /// A replica has the records up to this one. The number of its feed is its own.
    fn place(&self, replication: &Replication, boot: u64, record: u64) {
        let has = [Committed { record, incarnation: record }];
        assert!(replication.place(self, (boot, 0), boot, (&has, false)));
    }

    /// A replica that has nothing yet is required, and may be put into the view with the first record.
    fn require(&self, replication: &Replication, boot: u64) {
        assert!(replication.require(self, (boot, 0), boot, (vec![Committed::NONE], false)));
        replication.cover(self, (boot, 0), boot, vec![1]);
    }
}

/// What was committed before a replica was required, the others have; it may be chosen in their place.
#[test]
fn a_replica_is_put_into_the_view_when_it_has_all_that_was_committed_before() {
    let (primary, replication) = Alone::begin();
    assert!(replication.require(&primary, (LEFT, 0), LEFT, (vec![Committed::NONE], false)));
    primary.place(&replication, LEFT, 3);
    replication.cover(&primary, (LEFT, 0), LEFT, vec![5]);
    primary.place(&replication, LEFT, 4);
    assert_eq!(primary.in_sync(), [OWN]);
    primary.place(&replication, LEFT, 5);
    assert_eq!(primary.in_sync(), [OWN, LEFT]);
}

/// A replica in the view may be chosen, until another view is in force.
#[test]
fn what_one_replica_lacks_counts_when_that_one_is_out_of_the_view() {
    let (primary, replication) = Alone::begin();
    [LEFT, RIGHT].into_iter().for_each(|boot| primary.require(&replication, boot));
    [(LEFT, 5), (RIGHT, 5), (RIGHT, 9)]
        .into_iter()
        .for_each(|(boot, record)| primary.place(&replication, boot, record));
    assert_eq!((primary.in_sync(), primary.log.durable()), (vec![OWN, LEFT, RIGHT], 5));
    primary.answers.store(0, Ordering::Relaxed);
    replication.leave(&primary, (LEFT, 0), LEFT);
    assert_eq!(primary.waited.take(), [(5, false)]);
    assert_eq!((primary.in_sync(), primary.log.durable()), (vec![OWN, RIGHT], 9));
    // Alone it needs nobody.
    primary.answers.store(0, Ordering::Relaxed);
    replication.leave(&primary, (RIGHT, 0), RIGHT);
    assert_eq!(primary.waited.take(), [(9, false)]);
    assert!(primary.in_sync() == [OWN] && primary.log.counts_at_once());
}

/// Another one in the view may lack some of what a successor has, and be chosen next.
#[test]
fn what_a_successor_has_counts_when_others_have_it_or_are_out_of_the_view() {
    let end = Committed { record: 7, incarnation: 7 };
    assert_eq!(Alone::chosen(&[], end).0.log.durable(), 7, "nobody else is in the view");
    let (primary, replication) = Alone::chosen(&[LEFT], end);
    replication.drop_absent(&primary, TRIES_NS, |_| true);
    assert_eq!((primary.log.durable(), primary.log.counts_at_once()), (0, false));
    replication.drop_absent(&primary, TRIES_NS, |boot| boot != LEFT);
    assert!(primary.in_sync() == [OWN] && primary.log.counts_at_once());
}

/// Writes do not wait for whoever has to copy anew, which begins with that when it is out of the view.
#[test]
fn a_replica_that_cannot_go_on_behind_what_it_has_is_not_waited_for() {
    let (primary, replication) = Alone::chosen(&[LEFT, RIGHT], Committed { record: 7, incarnation: 7 });
    // Records that this one never saw, of another primary than the one before.
    let position = StreamPosition { lineage: 99, sequences: vec![8] };
    assert!(replication.resume(&primary, (LEFT, 0), LEFT, &position).is_none());
    replication.drop_absent(&primary, TRIES_NS, |_| true);
    assert_eq!(primary.in_sync(), [OWN, RIGHT]);
    // What was put aside for it is not there any more.
    let position = StreamPosition { lineage: 0, sequences: vec![7] };
    assert!(replication.resume(&primary, (RIGHT, 0), RIGHT, &position).is_none());
    replication.drop_absent(&primary, TRIES_NS, |_| true);
    assert!(primary.in_sync() == [OWN] && primary.log.counts_at_once());
}

/// The lease is looked at behind what is placed: another primary may have been chosen.
#[test]
fn nothing_counts_while_the_lease_is_over() {
    let (primary, replication) = Alone::begin();
    primary.require(&replication, LEFT);
    primary.place(&replication, LEFT, 5);
    primary.has_lease.set(false);
    primary.place(&replication, LEFT, 9);
    replication.look_again(&primary);
    assert_eq!(primary.log.durable(), 5);
    primary.has_lease.set(true);
    replication.look_again(&primary);
    assert_eq!(primary.log.durable(), 9);
}

/// A view may be in force whose swap was not answered: the replica may be chosen.
#[test]
fn a_replica_that_may_be_in_the_view_is_taken_out_of_it() {
    let (primary, replication) = Alone::begin();
    primary.require(&replication, LEFT);
    primary.answers.store(1, Ordering::Relaxed);
    primary.place(&replication, LEFT, 1);
    assert_eq!(primary.in_sync(), [OWN, LEFT], "without an answer");
    primary.answers.store(u64::MAX, Ordering::Relaxed);
    replication.leave(&primary, (LEFT, 0), LEFT);
    assert_eq!(primary.in_sync(), [OWN]);
}
