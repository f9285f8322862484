//! The two verbs, READ and WRITE, behind traits, and the fabrics that have them: shared memory, RDMA, TCP.
//!
//! Nothing above this crate knows which fabric it is on. A fabric moves words between this side's memory and
//! a peer's; what the words mean is not its business. Each peer has
//! - a *map* of memory that may be READ (the image of a shard), addressed by place ([`RemoteMemory`]); and
//! - a *mailbox* in each direction that may be written with WRITE, addressed by word ([`Mailbox`]).
//!
//! Both are posted to a [`WorkQueue`]; a [`Waiter`] sleeps until it is woken, and looks at a [`Clock`]. A
//! [`Fabric`] is all of these.
//!
//! The read rule's checks (b) and (c) need two facts that only a fabric can give: stamps that bound how long
//! a READ took, and the authority in force after it. A READ that is done brings both ([`Sampled`]). See
//! docs/read-rule.md.
//!
//! Servers and shared memory need Linux: memfds with seals, epoll, descriptors over sockets. A client's
//! endpoint over TCP needs none of these, and builds on other systems too.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

#[cfg(kelix_sim)]
pub use kelix_image::clock::set_host_clock;
pub use kelix_image::clock::{COARSE_NS, host_clock_ns};
use kelix_image::words::{Words, load_fence};
use kelix_image::{
    Finding, Header, IndexReader, ItemLayout, ItemView, LeasedTerm, MemoryMap, SharedWord, Span, Wanted,
    header_word,
};
use kelix_types::{KeyHash, Location, Place, TableId};
use rustix::event::Timespec;
use rustix::fd::BorrowedFd;

#[cfg(target_os = "linux")]
pub mod conformance;
mod contention;
#[cfg(target_os = "linux")]
pub mod descriptors;
mod endpoint;
mod fork;
#[cfg(target_os = "linux")]
mod mirror;
#[cfg(all(kelix_loom, test))]
mod model;
#[cfg(target_os = "linux")]
pub mod output;
#[cfg(target_os = "linux")]
pub mod shm;
mod spin;
pub mod tcp;
// Models have no devices.
#[cfg(target_os = "linux")]
pub mod verbs;

pub use contention::Contention;
pub use endpoint::Endpoint;
#[cfg(kelix_sim)]
pub use endpoint::{FIRST_OF_PRIMARY, SimFabric};
pub use fork::Countdown;
#[cfg(target_os = "linux")]
pub use mirror::MirrorEndpoint;
pub use spin::Spin;

/// Most bytes of a frame of the set-up conversation: enough for any, too little to be a burden.
const SET_UP_BYTES_MAX: usize = 1 << 20;

/// Places a WRITE in a mailbox, its first word last. `false`: it reaches beyond the mailbox, and nothing was
/// placed.
pub(crate) fn place(mailbox: &Span, first: usize, words: &[u64]) -> bool {
    let fits = (first + words.len()) as u64 * 8 <= mailbox.bytes();
    if fits {
        mailbox.words().copy_in(first + 1, &words[1..]);
        mailbox.words().publish(first, words[0]);
    }
    fits
}

/// So many bytes have to move within a time-out, or there is no progress. By single bytes a server could keep
/// a client for ever; this is 18 KiB a second with the usual time-out.
pub const PROGRESS_BYTES: u64 = 16 << 10;

/// Longest single wait of the system: some of its calls count milliseconds in 31 bits, and refuse more.
/// Whoever wants to wait for longer looks around in between.
pub const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);
/// How long is waited in place of a wait that the system refuses, so that a refusal is no busy loop.
const REFUSED_WAIT: Duration = Duration::from_millis(10);

/// The number of events that a wait of the system brought. An interrupted wait is a short one. Any other
/// error is a wait that did not take place: a while is waited without it, since "no event" at once, over and
/// over, would take a whole core.
pub(crate) fn events(waited: rustix::io::Result<usize>, timeout: Option<&Timespec>) -> usize {
    match waited {
        Ok(count) => count,
        Err(rustix::io::Errno::INTR) => 0,
        Err(_) => {
            let wanted =
                timeout.map_or(REFUSED_WAIT, |time| Duration::new(time.tv_sec as u64, time.tv_nsec as u32));
            std::thread::sleep(wanted.min(REFUSED_WAIT));
            0
        }
    }
}

/// A time as the system's calls take it.
pub(crate) fn timespec(time: Duration) -> Timespec {
    let time = time.min(WAIT_MAX);
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos() as _ }
}

/// One connection of a fabric endpoint, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerId(pub u32);

/// A READ of `words` words at `place` of a peer's map.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// Whose memory.
    pub peer: PeerId,
    /// Where it begins; a multiple of 8 bytes.
    pub place: Place,
    /// How many 8-byte words.
    pub words: usize,
    /// A number below [`SESSION_READS_MAX`](kelix_types::limits::SESSION_READS_MAX) that no other READ under
    /// way has.
    pub tag: u32,
}

/// A FIND: somebody beside a peer's memory is to look there for the item of a key, and to send what READs of
/// all on the way would have brought.
#[derive(Clone, Copy, Debug)]
pub struct Find<'a> {
    /// Whose memory.
    pub peer: PeerId,
    /// The hash of the key.
    pub hash: KeyHash,
    /// The table that has the key.
    pub table: TableId,
    /// The key.
    pub key: &'a [u8],
    /// As a READ's, and of no READ under way either.
    pub tag: u32,
}

/// How far a FIND is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FindState {
    /// Under way.
    Pending,
    /// The item's words are here, and where they stand. The stamps are from before the first word on the way
    /// there and from after the last one of the item.
    Found(Location, Sampled),
    /// The index names no item of the key, if the stamps are those of a READ that counts. With it comes the
    /// word of the header page that counts generations of tables, as it was behind all that.
    Absent(u64, Sampled),
    /// The words are what a leaf says of the key: the guardian of the leaf, and the value, if the key has one
    /// there. With the stamps of an item.
    Leaf(Sampled),
    /// The index leads to no item of the key that can be sent; which proves nothing.
    Nothing,
    /// As of a READ.
    Broken,
}

/// How far a READ is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadState {
    /// Under way.
    Pending,
    /// The words are here.
    Done(Sampled),
    /// The place is in no segment known here; the map may be old.
    Outside,
    /// The READ is gone with its connection, or nobody can tell whose the words were.
    Broken,
}

/// When the words of a READ were sampled, and whose they were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sampled {
    /// Stamp taken before the first word was sampled.
    pub before: u64,
    /// Stamp taken after the last one was. READs are valid only if the first one's `before` and the last
    /// one's `after` differ by at most [`RemoteMemory::stamp_window`].
    pub after: u64,
    /// The term in force after that.
    pub term: u64,
}

impl Sampled {
    /// Whether the stamps differ by more than a window.
    #[inline(always)]
    pub fn is_late(self, window: u64) -> bool {
        self.after.wrapping_sub(self.before) > window
    }
}

/// What a fabric promises about order. Code above may use a promise, and must be right without it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promises {
    /// The first word of a WRITE becomes visible after all others, and WRITEs become visible in the order of
    /// their posting. Without it words land in any order and messages carry a checksum.
    pub ordered_placement: bool,
    /// Stamps are reclamation epochs, loaded in order with the words of a READ. Without it they are times.
    pub ordered_loads: bool,
}

/// The peer cannot be reached any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken;

/// The clock of all endpoints of this process but a simulator's.
fn now_ns() -> u64 {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGAN.elapsed().as_nanos() as u64
}

/// A peer's memory within reach of loads: READs without the way between. Loads are ordered, and stamps are
/// reclamation epochs.
#[derive(Clone)]
pub struct Direct {
    /// Memory by place, as it is mapped now: to be taken anew after segments came or went.
    pub map: Arc<MemoryMap>,
    /// The reclamation epoch.
    pub epoch: SharedWord,
    /// The term in force.
    pub authority: LeasedTerm,
}

impl Direct {
    /// The memory with this header page, under the term in force.
    pub fn new(map: Arc<MemoryMap>, header: &Header, authority: impl Into<LeasedTerm>) -> Direct {
        Direct { map, epoch: header.word(header_word::EPOCH), authority: authority.into() }
    }

    /// The stamp to take before words are loaded: later loads stay behind it, and it stays behind earlier
    /// loads.
    ///
    /// SYNC: two fences, one before the load and one in `load_acquire`. As the second stamp of a READ it must
    /// be behind the words. As the first it is behind what led there (a slot word, a pointer), so that the
    /// words are seen as they were when that was stored, or later: nobody has to rely on the processor's and
    /// the compiler's keeping the dependency between an address and what is loaded from there. Both pair with
    /// [`Words::publish`].
    #[inline(always)]
    pub fn begin(&self) -> u64 {
        load_fence();
        self.epoch.words().load_acquire(0)
    }

    /// A READ. `None`: the place is in no segment, and nothing was read.
    #[inline]
    pub fn read(&self, place: Place, into: &mut [u64]) -> Option<Sampled> {
        let words = self.map.words(place, into.len())?;
        let before = self.begin();
        words.copy_out(0, into);
        Some(self.sampled(before))
    }

    /// A FIND: the words of an item of a key are put behind those of `out`, of which there may be so many, or
    /// what its leaf says. Where neither is found, nothing is put there.
    pub fn find(
        &self,
        index: IndexReader,
        wanted @ (_, table, key): Wanted<'_>,
        (out, most): (&mut Vec<u64>, usize),
    ) -> FindState {
        let (at, mut found) = (out.len(), None);
        // Before all that leads to the item, none of which has an incarnation.
        let before = self.begin();
        let finding = (index.find)(&self.map, wanted, &mut |location, slot| {
            let layout = if slot.count() < 2 { None } else { ItemLayout::from_word(slot.load(1)) };
            let words = layout.map_or(0, ItemLayout::words);
            if words < 2 || words > slot.count().min(most) {
                return false;
            }
            out.resize(at + words, 0);
            slot.copy_out(0, &mut out[at..]);
            // The client looks at more, and at table and key again.
            let is_it = ItemView::new(&out[at..]).is_some_and(|view| view.is_for(table, key));
            if is_it {
                found = Some(location);
            } else {
                out.truncate(at);
            }
            is_it
        });
        let generations = self.generations();
        let sampled = self.sampled(before);
        match (found, finding) {
            (Some(location), _) => FindState::Found(location, sampled),
            (None, Finding::Absent) => {
                generations.map_or(FindState::Nothing, |generations| FindState::Absent(generations, sampled))
            }
            (None, Finding::Leaf(guardian, value)) => {
                out.extend([Some(guardian.0), value].into_iter().flatten());
                FindState::Leaf(sampled)
            }
            (None, Finding::Nothing) => FindState::Nothing,
        }
    }

    /// The word of the header page that counts generations of tables, as it is behind all loads before.
    #[inline]
    pub fn generations(&self) -> Option<u64> {
        load_fence();
        Some(self.map.words(Place(header_word::GENERATIONS as u64 * 8), 1)?.load(0))
    }

    /// What to judge words by that were loaded since `begin` said `before`.
    #[inline(always)]
    pub fn sampled(&self, before: u64) -> Sampled {
        Sampled { before, after: self.begin(), term: self.term() }
    }

    /// The term in force.
    ///
    /// SYNC: behind the words too, by the fences of the stamp that is taken before it.
    #[inline(always)]
    pub fn term(&self) -> u64 {
        self.authority.load()
    }
}

/// What READs and WRITEs are posted to: the send queue and the completion queue of all connections of an
/// endpoint, in the words of verbs. [`RemoteMemory`] and [`Mailbox`] post to it.
pub trait WorkQueue {
    /// Sends off everything posted.
    fn doorbell(&mut self);

    /// Sends off everything posted, and takes in what has arrived: for whoever waits for a READ or for words
    /// in a mailbox to call each time before it looks. `false`: nothing has changed since the last call.
    /// Nothing to do where the one is done by others, and the other by nobody.
    #[inline(always)]
    fn progress(&mut self) -> bool {
        true
    }

    /// The same for whoever does nothing else until something has come: where cores are contended it may
    /// sleep for some milliseconds before it says that nothing has.
    #[inline(always)]
    fn await_progress(&mut self) -> bool {
        self.progress()
    }

    /// Whether something was taken in since the last `progress`, which then is to be called before this side
    /// sleeps.
    fn unseen(&self) -> bool {
        false
    }

    /// Looks, without sleeping, whether connections have gone.
    fn look(&mut self);

    /// Bytes that have moved either way so far and have certainly arrived, for which the system is asked.
    /// `None` where nothing is on its way for long.
    fn moved_bytes(&self) -> Option<u64> {
        None
    }

    /// Whether the connection is known to be gone.
    fn is_broken(&self, peer: PeerId) -> bool;
}

/// What a reader needs: READs of the memory of peers, and what their words are judged by.
pub trait RemoteMemory: WorkQueue {
    /// The memory of a peer that may be READ, as far as it is known here. Places outside it are
    /// [`ReadState::Outside`]. `None` where nothing is READ.
    fn map(&self, _peer: PeerId) -> Option<&Arc<MemoryMap>> {
        None
    }

    /// Makes other memory of a peer known: segments came or went.
    fn set_map(&mut self, _peer: PeerId, _map: Arc<MemoryMap>) {}

    /// A number that changes when segments of the peer come or go, for whoever keeps its map; 0 where there
    /// is none.
    fn map_version(&self, _peer: PeerId) -> u64 {
        0
    }

    /// How old the map of a peer's memory may be when an operation begins, where READs by an older one are no
    /// one's to allow. `None`: any age.
    fn map_age_max_ns(&self) -> Option<u64> {
        None
    }

    /// Starts a READ. Nothing needs to move before [`WorkQueue::doorbell`].
    fn post_read(&mut self, read: Read);

    /// Asks how far a posted READ is and, when it is done, puts its words into `into`, whose length is
    /// `read.words`. Words were sampled one by one at any moments between posting and now. After any answer
    /// but `Pending` the READ is over. Loads of later READs stay behind those of a READ that is done.
    fn poll_read(&mut self, read: Read, into: &mut [u64]) -> ReadState;

    /// Whether FINDs may be posted to a peer.
    fn finds(&self, _peer: PeerId) -> bool {
        false
    }

    /// Starts a FIND, where that may be.
    fn post_find(&mut self, _find: Find<'_>) {}

    /// Asks how far a posted FIND is and, when it is done, puts the words of the item into `into`, which gets
    /// their length.
    fn poll_find(&mut self, _find: Find<'_>, _into: &mut Vec<u64>) -> FindState {
        FindState::Broken
    }

    /// The peer's memory itself, where READs complete at once because they are loads. Code that uses it must
    /// be able to do without.
    fn direct(&self, _peer: PeerId) -> Option<Direct> {
        None
    }

    /// How far the stamps of a valid READ may be apart: check (b).
    fn stamp_window(&self) -> u64;

    /// The term in force at the peer, for check (c) of answers to requests: it was looked at after everything
    /// that is in this side's mailbox had been sent. `None`: the connection is gone, and nobody can tell.
    fn authority(&mut self, peer: PeerId) -> Option<u64>;
}

/// What messages need: WRITEs into the mailbox of a peer, which may have to be woken to look there, and
/// this side's mailboxes.
pub trait Mailbox: WorkQueue {
    /// This side's mailbox, into which the peer WRITEs.
    fn inbox(&self, peer: PeerId) -> Words<'_>;

    /// Starts a WRITE of `words` from word `first` of the peer's mailbox on.
    fn post_write(&mut self, peer: PeerId, first: usize, words: &[u64]) -> Result<(), Broken>;

    /// Wakes the peer if it sleeps. Called after the WRITE it should find; without one it need not wake
    /// anybody. Where that takes a while this side's next `progress`, `look` or sleep does the rest.
    fn wake(&mut self, peer: PeerId);

    /// Sends off everything posted, and wakes the peer if it sleeps.
    fn send(&mut self, peer: PeerId) {
        self.doorbell();
        self.wake(peer);
    }
}

/// What whoever waits needs: to give its core away, and to sleep until it is woken.
pub trait Waiter {
    /// Lets whoever else wants the processor have it for a moment.
    fn yield_now(&mut self) {
        std::thread::yield_now();
    }

    /// Whether others who compute want this side's core: then it is to sleep at once instead of giving the
    /// core away.
    fn is_contended(&self) -> bool {
        false
    }

    /// Whether the thread that something was last sent to was seen on this thread's core, where it cannot
    /// answer while this one looks on. Also lets peers see which core this thread is on.
    fn shares_core(&self) -> bool {
        false
    }

    /// The descriptor that is readable when this side, having announced its sleep, was woken; where there is
    /// one.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Announces that this side is about to sleep. The caller then looks once more for work, and calls
    /// [`Waiter::sleep`] only if there is none: so no wake-up is lost.
    fn announce_sleep(&mut self);

    /// Sleeps until a peer wakes this side, a READ is done, a connection breaks, or `timeout_ns` has passed;
    /// then takes the announcement back. A timeout of zero only takes it back.
    fn sleep(&mut self, timeout_ns: Option<u64>);
}

/// The clock of an endpoint, which in a simulator is the simulator's.
pub trait Clock {
    /// The time on this side's clock, in nanoseconds since some moment, which is the same for all endpoints
    /// of a process. It never goes back.
    fn now_ns(&self) -> u64;
}

/// One side's endpoint with all its connections. Used by one thread. Code that needs a part of it, such as
/// READs, asks for that trait alone.
pub trait Fabric: RemoteMemory + Mailbox + Waiter + Clock {
    /// The name that `kelix stat` and errors use.
    fn name(&self) -> &'static str;

    /// What is promised of READs and WRITEs of the peer's memory.
    fn promises(&self, peer: PeerId) -> Promises;
}

#[cfg(all(test, target_os = "linux", not(any(kelix_loom, kelix_sim))))]
mod tests {
    use kelix_image::{PrivateSegments, Take, inline_item};
    use kelix_types::{Guardian, Incarnation, SizeClass};

    use super::*;
    use crate::conformance::lay_out;
    use crate::shm::AUTHORITY_BYTES;

    const TABLE: TableId = TableId(9);
    const KEY: [u8; 8] = [5; 8];
    const PLACE: Place = Place(kelix_types::limits::GRANULE_BYTES);

    /// Somebody who has memory of an epoch, in which an item of a key stands.
    fn direct(header: &Span) -> (Direct, Location) {
        let (map, of) = lay_out(header, &mut PrivateSegments::default());
        let (mut item, location) = (inline_item(TABLE, KEY, 77), Location::new(PLACE, SizeClass(2)));
        item[0] = Guardian(Incarnation(4).live().0).0;
        map.words(PLACE, item.len()).expect("memory").copy_in(0, &item);
        (Direct::new(Arc::new(map), &of, Span::private(AUTHORITY_BYTES).word(0)), location)
    }

    fn step_epoch(map: &MemoryMap) {
        let epoch = map.words(Place(header_word::EPOCH as u64 * 8), 1).expect("a header page");
        epoch.publish(0, epoch.load(0) + 1);
    }

    /// Of an index that is looked at so.
    fn reader(find: fn(&MemoryMap, Wanted<'_>, &mut Take<'_>) -> Finding) -> IndexReader {
        IndexReader { find, ..IndexReader::NONE }
    }

    /// An index that is slow: an epoch passes on the way, and another one behind the item.
    fn slow(map: &MemoryMap, _: Wanted<'_>, take: &mut Take<'_>) -> Finding {
        step_epoch(map);
        let location = Location::new(PLACE, SizeClass(2));
        assert!(take(location, map.words(PLACE, location.class().words()).expect("memory")));
        step_epoch(map);
        Finding::Nothing
    }

    #[test]
    fn a_find_is_stamped_before_its_way_and_behind_its_item() {
        let header = Span::private(Header::BYTES);
        let (direct, location) = direct(&header);
        let (before, mut out) = (direct.begin(), vec![1, 2]);
        let found = direct.find(reader(slow), (KeyHash(1), TABLE, &KEY), (&mut out, 100));
        let sampled = Sampled { before, after: before + 2, term: 0 };
        assert_eq!(found, FindState::Found(location, sampled));
        assert!(sampled.is_late(kelix_types::limits::READ_EPOCHS_MAX));
        assert_eq!((&out[..2], out[2 + 2]), (&[1, 2][..], 77), "behind what was there");
    }

    /// Absence is stamped as an item is, and comes with the generations as they were behind the look.
    #[test]
    fn absence_is_stamped_as_a_find_is() {
        fn nothing(map: &MemoryMap, _: Wanted<'_>, _: &mut Take<'_>) -> Finding {
            step_epoch(map);
            let generations = map.words(Place(header_word::GENERATIONS as u64 * 8), 1);
            generations.expect("a header page").publish(0, 7);
            Finding::Absent
        }
        let header = Span::private(Header::BYTES);
        let (direct, _) = direct(&header);
        let (before, mut out) = (direct.begin(), vec![1]);
        let found = direct.find(reader(nothing), (KeyHash(1), TABLE, &KEY), (&mut out, 100));
        assert_eq!(found, FindState::Absent(7, Sampled { before, after: before + 1, term: 0 }));
        assert_eq!(out, [1]);
    }

    /// An item of another key or table, or one that is too long to be sent, leaves nothing behind.
    #[test]
    fn what_is_not_the_item_is_not_found() {
        fn offers(map: &MemoryMap, _: Wanted<'_>, take: &mut Take<'_>) -> Finding {
            let location = Location::new(PLACE, SizeClass(2));
            assert!(!take(location, map.words(PLACE, location.class().words()).expect("memory")));
            assert!(!take(location, map.words(PLACE, 1).expect("memory")));
            Finding::Nothing
        }
        let header = Span::private(Header::BYTES);
        let (direct, _) = direct(&header);
        let mut out = vec![1];
        for (table, key, most) in [(TableId(8), KEY, 100), (TABLE, [6; 8], 100), (TABLE, KEY, 4)] {
            let found = direct.find(reader(offers), (KeyHash(1), table, &key), (&mut out, most));
            assert_eq!(found, FindState::Nothing);
            assert_eq!(out, [1]);
        }
    }
}
