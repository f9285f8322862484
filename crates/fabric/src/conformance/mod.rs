//! What every fabric must do, as cases that run on each of them.
//!
//! A fabric's tests describe themselves as a [`Testbed`] and call
//! [`conformance_tests!`](crate::conformance_tests) once, with what the fabric can do. That makes a test of
//! each case, reported under its own name; a case that needs what the fabric does not have is reported as
//! ignored, with the reason. What is said there is itself compared with [`Fabric::promises`].
//!
//! ```text
//! the memory that may be READ, the same in every case (SEGMENTS):
//! granule  0: the header page   1: 2 MiB   2: nothing   3 and 4: one segment, 2 MiB longer than a granule   5...: nothing
//! ```
//!
//! Rules of the cases:
//! 1. Each builds a network of its own, so cases may run at once and in any order.
//! 2. Each asks only for what the trait promises, so a case holds for fabrics that place words in any order,
//!    or later than a call returns. Where something has to arrive, a case looks for it until it is there.
//! 3. None needs two processors, and none limits how long anything takes. A case that would wait for ever
//!    ends after
//!    [`PATIENCE`]: by a panic where it looks by itself, by ending the process where it sleeps in the fabric.
//!
//! The functions are generic, so a build that runs no cases contains none of them.

mod reads;
mod stamps;
mod waking;
mod writes;

use std::any::Any;
use std::io::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use kelix_image::{Header, MemoryMap, SegmentSource, Span};
use kelix_types::Place;
use kelix_types::limits::{EPOCH_NS, GRANULE_BYTES};

pub use reads::*;
pub use stamps::*;
pub use waking::*;
pub use writes::*;

use crate::{Fabric, Mailbox, PeerId, Promises, Read, ReadState, RemoteMemory, Sampled, Waiter};

/// First granule and bytes of each segment that a testbed makes, besides the header page in granule 0.
pub const SEGMENTS: [(usize, u64); 2] = [(1, 2 << 20), (3, GRANULE_BYTES + (2 << 20))];

/// Least number of words of a mailbox that the cases may use.
pub const MAILBOX_WORDS_MIN: usize = 16 << 10;

/// The memory that clients may READ, with the header page in `header` and segments from `source`; and the
/// header.
pub fn lay_out(header: &Span, source: &mut impl SegmentSource) -> (MemoryMap, Header) {
    let mut map = MemoryMap::default();
    map.add(0, header.clone());
    for (first, bytes) in SEGMENTS {
        map.add(first, source.create(first, bytes).expect("memory for a testbed"));
    }
    (map, Header::create(header.clone(), 1, 2, EPOCH_NS, 3))
}

/// How long a case waits for what must happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A fabric under test.
pub trait Testbed {
    /// Its endpoint.
    type Endpoint: Fabric + Send;

    /// A fresh server with this many clients, all connected, nothing READ or written yet.
    fn network(&self, clients: usize) -> Network<Self::Endpoint>;

    /// How many times fewer rounds the longest cases have on it.
    fn slowness(&self) -> u64 {
        1
    }

    /// How long a term that came into force may go unnoticed: for so long it is not to be used.
    fn authority_lease(&self) -> Duration {
        Duration::ZERO
    }
}

/// A server, its clients, and its memory as the writer has it.
pub struct Network<E> {
    /// The serving side. Its peers are the clients, in their order.
    pub server: Side<E>,
    /// The clients. Each has one peer, the server.
    pub clients: Vec<Side<E>>,
    /// The memory that clients may READ: [`SEGMENTS`], zeroed, and the header page in granule 0.
    pub map: MemoryMap,
    /// The header page.
    pub header: Header,
    /// The authority page.
    pub authority: Span,
    /// The words of each mailbox that are not the fabric's own; zeroed.
    pub mailbox: Range<usize>,
}

/// One side of the connections. When it is dropped it is gone for the others, like a process that ended.
pub struct Side<E> {
    /// The endpoint.
    pub endpoint: E,
    /// The other sides, by the numbers that this side has for them.
    pub peers: Vec<PeerId>,
    /// Whatever else ends with this side.
    pub holds: Box<dyn Any + Send>,
}

impl<E: RemoteMemory> Side<E> {
    /// READs from the first peer and waits for the words.
    fn read(&mut self, place: Place, into: &mut [u64]) -> Sampled {
        match self.try_read(place, into) {
            ReadState::Done(sampled) => sampled,
            state => panic!("a READ of {} words at {place:x?}: {state:?}", into.len()),
        }
    }

    /// READs from the first peer and waits for what comes of it.
    fn try_read(&mut self, place: Place, into: &mut [u64]) -> ReadState {
        let read = Read { peer: self.peers[0], place, words: into.len(), tag: 0 };
        self.endpoint.post_read(read);
        self.endpoint.doorbell();
        self.wait_for(read, into)
    }

    /// READs from the first peer at once, where its memory is within reach of loads.
    fn read_at_once(&self, place: Place, into: &mut [u64]) -> Option<Sampled> {
        self.endpoint.direct(self.peers[0])?.read(place, into)
    }

    /// Waits for the words of a READ that is under way.
    fn wait_for(&mut self, read: Read, into: &mut [u64]) -> ReadState {
        let mut state = ReadState::Pending;
        until("a READ is over", || {
            self.endpoint.progress();
            state = self.endpoint.poll_read(read, into);
            state != ReadState::Pending
        });
        state
    }
}

impl<E: Mailbox> Side<E> {
    /// WRITEs into the mailbox of a peer.
    fn write(&mut self, peer: usize, first: usize, words: &[u64]) {
        assert_eq!(self.endpoint.post_write(self.peers[peer], first, words), Ok(()));
        self.endpoint.doorbell();
    }

    /// Whether a word of the mailbox from a peer has this value.
    fn has(&mut self, peer: usize, word: usize, value: u64) -> bool {
        self.endpoint.progress();
        self.endpoint.inbox(self.peers[peer]).load_acquire(word) == value
    }

    /// Wakes a peer, and waits for a moment, as whoever has asked for something does.
    fn rouse(&mut self, peer: usize)
    where
        E: Waiter,
    {
        self.endpoint.wake(self.peers[peer]);
        self.endpoint.announce_sleep();
        self.endpoint.sleep(Some(1_000_000));
    }
}

/// Does the same with server and client, and then with the two in each other's place.
fn both_ways<T: Testbed>(
    bed: &T,
    case: impl Fn(&mut Side<T::Endpoint>, &mut Side<T::Endpoint>, &Range<usize>),
) {
    let Network { mut server, mut clients, mailbox, .. } = bed.network(1);
    case(&mut server, &mut clients[0], &mailbox);
    case(&mut clients[0], &mut server, &mailbox);
}

/// What the fabric promises is what its tests were told.
pub fn promises_are_as_declared<T: Testbed>(bed: &T, promises: Promises) {
    let network = bed.network(1);
    for side in [&network.server, &network.clients[0]] {
        assert_eq!(side.endpoint.promises(side.peers[0]), promises, "{}", side.endpoint.name());
        assert!(!side.endpoint.name().is_empty());
    }
}

/// Looks until it is so, giving way to other threads.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let mut deadline = None;
    for look in 0u64.. {
        if is_so() {
            return;
        }
        if look % 64 == 63 {
            let now = Instant::now();
            assert!(now < *deadline.get_or_insert(now + PATIENCE), "waited in vain until {what}");
            std::thread::yield_now();
        }
    }
}

/// Does `busy` over and over on a thread of its own while `work` is done here.
fn meanwhile<R>(mut busy: impl FnMut() + Send, work: impl FnOnce() -> R) -> R {
    struct SetWhenDropped<'a>(&'a AtomicBool);
    impl Drop for SetWhenDropped<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also set when `work` panics: the scope would wait for the thread for ever.
        let _over = SetWhenDropped(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                busy();
            }
        });
        work()
    })
}

/// Ends the process if it is not dropped in time: nothing else ends a sleep that nobody ends.
struct Watchdog(Option<(Sender<()>, std::thread::JoinHandle<()>)>);

impl Watchdog {
    fn new(what: &'static str) -> Watchdog {
        let (alive, dropped) = channel();
        let thread = std::thread::spawn(move || {
            if dropped.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                // Not `eprintln`, whose text a test harness keeps and the end of the process loses.
                let _ = writeln!(std::io::stderr(), "conformance: {what}: waited in vain, giving up");
                std::process::abort();
            }
        });
        Watchdog(Some((alive, thread)))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Some((alive, thread)) = self.0.take() {
            drop(alive);
            let _ = thread.join();
        }
    }
}

/// Numbers that look random and are the same in every run (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn words(&mut self, count: usize) -> Vec<u64> {
        (0..count).map(|_| self.next()).collect()
    }
}

/// Makes a test of each case of the suite, for a fabric with these abilities.
///
/// `reads_at_once`: there is [`RemoteMemory::direct`]. `notices_clients`: the serving endpoint itself learns
/// that a client has gone.
///
/// ```ignore
/// kelix_fabric::conformance_tests! {
///     bed: MyTestbed,
///     ordered_placement: yes,
///     ordered_loads: no,
///     reads_at_once: no,
///     notices_clients: yes,
/// }
/// ```
#[macro_export]
macro_rules! conformance_tests {
    (
        bed: $bed:expr,
        ordered_placement: $placement:ident,
        ordered_loads: $loads:ident,
        reads_at_once: $at_once:ident,
        notices_clients: $notices:ident $(,)?
    ) => {
        #[test]
        fn promises_are_as_declared() {
            let promises = $crate::Promises {
                ordered_placement: $crate::conformance_tests!(@bool $placement),
                ordered_loads: $crate::conformance_tests!(@bool $loads),
            };
            $crate::conformance::promises_are_as_declared(&$bed, promises);
        }
        $crate::conformance_tests! { @cases $bed, yes, "";
            a_read_returns_what_was_written
            a_read_outside_of_the_segments_is_told_so
            many_reads_are_under_way_at_once
            words_are_whole_and_never_older
            stamps_do_not_run_backwards
            a_read_lies_within_the_window
            the_authority_is_that_of_the_page
            the_authority_is_loaded_after_the_words
            a_write_lands_where_it_was_posted
            many_writes_arrive
            peers_have_mailboxes_of_their_own
            no_wake_up_is_lost
            a_sleep_lasts_until_its_time_is_over
            a_sleep_without_a_time_lasts_until_woken
            an_announcement_is_taken_back
            a_wake_up_of_nobody_is_no_harm
            a_thousand_wake_ups_are_one
            a_read_that_is_done_ends_a_sleep
            a_wake_up_is_for_one_peer
            the_end_of_the_server_ends_a_sleep
            the_end_of_a_client_harms_no_other
        }
        $crate::conformance_tests! { @cases $bed, $at_once, "this fabric does not READ at once";
            a_read_at_once_is_a_read
            words_read_at_once_are_whole_and_never_older
        }
        $crate::conformance_tests! { @unless $bed, $at_once, "this fabric READs at once";
            no_read_is_at_once
        }
        $crate::conformance_tests! { @cases $bed, $placement, "this fabric places words in any order";
            the_first_word_becomes_visible_last
            writes_become_visible_in_their_order
        }
        $crate::conformance_tests! { @cases $bed, $loads, "this fabric samples words in any order";
            two_epochs_are_beyond_the_window
            stamps_and_words_keep_their_order
        }
        $crate::conformance_tests! { @unless $bed, $loads, "stamps of this fabric are epochs";
            an_epoch_of_time_is_beyond_the_window
        }
        $crate::conformance_tests! { @cases $bed, $notices, "somebody else tells the serving endpoint";
            the_end_of_a_client_is_noticed
        }
    };
    (@bool yes) => { true };
    (@bool no) => { false };
    (@cases $bed:expr, yes, $why:literal; $($case:ident)*) => {
        $(#[test] fn $case() { $crate::conformance::$case(&$bed); })*
    };
    (@cases $bed:expr, no, $why:literal; $($case:ident)*) => {
        $(#[test] #[ignore = $why] fn $case() { $crate::conformance::$case(&$bed); })*
    };
    (@unless $bed:expr, yes, $why:literal; $($case:ident)*) => {
        $crate::conformance_tests! { @cases $bed, no, $why; $($case)* }
    };
    (@unless $bed:expr, no, $why:literal; $($case:ident)*) => {
        $crate::conformance_tests! { @cases $bed, yes, $why; $($case)* }
    };
}
