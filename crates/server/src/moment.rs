//! The moment of a snapshot: no shard goes on behind it before all have come to it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use crate::snapshots::PATIENCE;

/// The moment of a snapshot.
pub(crate) struct Moment {
    arrived: AtomicUsize,
    shards: usize,
    given_up: AtomicBool,
    /// Nothing is executed behind this moment.
    pub is_last: bool,
}

impl Moment {
    /// One to which so many shards are to come.
    pub fn new(shards: usize, is_last: bool) -> Moment {
        Moment { arrived: AtomicUsize::new(0), shards, given_up: AtomicBool::new(false), is_last }
    }

    /// Nobody waits for others any more.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::SeqCst);
    }

    /// A shard has come to it, and goes on only when all have.
    pub fn arrive(&self) {
        self.arrived.fetch_add(1, Ordering::SeqCst);
    }

    /// A shard has come to it, and waits for the others. `false`: some did not come.
    pub fn meet(&self) -> bool {
        let began = Instant::now();
        self.arrive();
        while self.arrived.load(Ordering::SeqCst) < self.shards {
            if began.elapsed() > PATIENCE || self.given_up.load(Ordering::SeqCst) {
                self.give_up();
                return false;
            }
            std::thread::yield_now();
        }
        !self.given_up.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A shard that went on at once would answer a client, who writes to another shard, which has not come to
    /// the moment: the snapshot would have the second write, and not the first one.
    #[test]
    fn no_shard_goes_on_before_all_have_come() {
        let moment = Moment::new(2, false);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| moment.meet());
            std::thread::sleep(Duration::from_millis(50));
            assert!(!first.is_finished());
            assert!(moment.meet() && first.join().unwrap());
        });
    }

    #[test]
    fn nobody_waits_for_who_does_not_come() {
        let moment = Moment::new(2, false);
        moment.give_up();
        assert!(!moment.meet());
    }
}
