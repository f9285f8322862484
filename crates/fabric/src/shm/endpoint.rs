//! The endpoint on the server's host, that of a shard or of a session over shared memory: copies, and a
//! system call only to wake a sleeper. What a shard says to clients elsewhere is handed to a link, by which
//! the agent or a queue pair takes it there.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use kelix_image::words::{Words, full_fence};
use kelix_image::{Header, MemoryMap, Span, header_word};
use kelix_types::limits;
use rustix::thread::sched_getcpu;

use super::wake::{Heard, Sleeper, Waker};
use crate::tcp::AgentLink;
use crate::verbs::VerbsLink;
use crate::{
    Broken, Clock, Contention, Direct, Fabric, Mailbox, PeerId, Promises, Read, ReadState, RemoteMemory,
    Waiter, WorkQueue, place,
};

/// A word that says whether its owner sleeps, and one behind it for the core that its owner is on.
#[derive(Clone)]
pub struct SleepWord {
    /// Memory it stands in.
    pub span: Span,
    /// Its index there.
    pub word: usize,
}

const _: () = assert!(header_word::CORE == header_word::SLEEPING + SleepWord::CORE);

impl SleepWord {
    /// How many words behind it the core stands.
    pub const CORE: usize = 2;

    fn core(&self) -> Words<'_> {
        self.span.words().part(self.word + SleepWord::CORE, 1)
    }

    pub(super) fn words(&self) -> Words<'_> {
        self.span.words().part(self.word, 1)
    }
}

/// One connection.
pub struct Peer {
    /// What may be READ; nothing on the server's side, which reads nothing of its clients.
    pub memory: Option<MappedImage>,
    /// This side's mailbox.
    pub inbox: Span,
    /// How words reach the peer.
    pub way: Way,
}

/// The memory of an image, mapped here.
pub struct MappedImage {
    /// Its header page.
    pub header: Header,
    /// How it is read.
    pub direct: Direct,
}

/// How words reach a peer.
pub enum Way {
    /// It is on this host.
    Shared {
        /// Its mailbox.
        outbox: Span,
        /// Says whether it sleeps.
        sleeps: SleepWord,
        /// This side's end of the connection's wake-up pair: key in the endpoint's [`Waker`].
        wake_key: usize,
    },
    /// It is a client over TCP; the agent sends it what is for it.
    Agent(AgentLink),
    /// It is a client over verbs.
    Verbs(Box<VerbsLink>),
}

/// What whoever names a peer promises.
const CONNECTED: &str = "a connection of this endpoint";

/// An endpoint on the server's host: of a shard, whose peers are all its clients wherever they are, or of a
/// session, whose peers are the shards.
pub struct LocalEndpoint {
    peers: Vec<Option<Peer>>,
    waker: Waker,
    own_sleep_words: Vec<SleepWord>,
    /// Which sleep is announced there.
    sleeps: u64,
    /// Peers for whom something is to be sent off.
    posted: Vec<PeerId>,
    /// Peers over verbs to whom something is on its way.
    to_maintain: Vec<PeerId>,
    /// Whom something was sent last.
    last: PeerId,
    rung: bool,
    broken: bool,
    contention: Contention,
}

impl LocalEndpoint {
    /// An endpoint without connections that sleeps on `waker`.
    pub fn new(waker: Waker) -> LocalEndpoint {
        LocalEndpoint {
            peers: Vec::new(),
            waker,
            own_sleep_words: Vec::new(),
            sleeps: 0,
            posted: Vec::new(),
            to_maintain: Vec::new(),
            last: PeerId(0),
            rung: false,
            broken: false,
            contention: Contention::default(),
        }
    }

    /// Adds a connection.
    pub fn add(&mut self, peer: Peer) -> PeerId {
        let index = self.peers.iter().position(Option::is_none).unwrap_or_else(|| {
            self.peers.push(None);
            self.peers.len() - 1
        });
        self.peers[index] = Some(peer);
        PeerId(index as u32)
    }

    /// Ends a connection.
    pub fn remove(&mut self, peer: PeerId) {
        self.peers[peer.0 as usize] = None;
    }

    /// A word in which this side announces its sleep.
    pub fn add_sleep_word(&mut self, word: SleepWord) {
        self.own_sleep_words.push(word);
    }

    /// What this side sleeps on.
    pub fn waker(&mut self) -> &mut Waker {
        &mut self.waker
    }

    /// Whether the agent was told of something since this was asked last.
    pub fn take_rung(&mut self) -> bool {
        std::mem::take(&mut self.rung)
    }

    /// Whether something is on its way that wants [`LocalEndpoint::maintain`].
    #[inline]
    pub fn is_tending(&self) -> bool {
        !self.to_maintain.is_empty()
    }

    /// Goes on with what is on its way over verbs.
    pub fn maintain(&mut self) {
        let peers = &mut self.peers;
        self.to_maintain.retain(|peer| match peers.get_mut(peer.0 as usize) {
            Some(Some(Peer { way: Way::Verbs(link), .. })) => link.maintain(),
            _ => false,
        });
    }

    /// Tells peers, and the agent, which core this side is on. Returns what they find.
    pub fn tell_core(&self) -> u64 {
        // Models go the same way each time.
        let own = if cfg!(kelix_loom) { 1 } else { sched_getcpu() as u64 + 1 };
        let cores = self.own_sleep_words.iter().map(SleepWord::core);
        cores.filter(|core| core.load(0) != own).for_each(|core| core.store(0, own));
        own
    }

    /// Whether the agent does what arrives over TCP itself while this side sleeps, if something was last sent
    /// by it.
    pub fn agent_steps_in(&self) -> bool {
        match self.peers.get(self.last.0 as usize) {
            Some(Some(Peer { way: Way::Agent(link), .. })) => link.agent_steps_in(),
            _ => false,
        }
    }

    /// The connection.
    #[inline(always)]
    pub fn peer(&self, peer: PeerId) -> &Peer {
        self.peers[peer.0 as usize].as_ref().expect(CONNECTED)
    }
}

/// Between two looks at what is on its way over verbs, while there is nothing else to do.
const NAP_NS: u64 = 200_000;

impl LocalEndpoint {
    /// For how long to sleep at once, of a sleep that is to be over then: what is on its way over verbs wants
    /// to be looked after. What to sleep on, too, since others may have this side meanwhile;
    /// [`LocalEndpoint::wakes`] follows.
    pub fn nap(&mut self, left_ns: Option<u64>) -> (Option<u64>, Sleeper) {
        self.maintain();
        let nap_ns = if self.is_tending() {
            Some(left_ns.map_or(NAP_NS, |left_ns| left_ns.min(NAP_NS)))
        } else {
            left_ns
        };
        (nap_ns, self.waker.sleeper().clone())
    }

    /// Takes in what was heard in a nap. Whether the sleep is over before its time.
    pub fn wakes(&mut self, heard: &Heard) -> bool {
        let waited = self.waker.look(heard);
        self.broken |= waited.hung_up;
        waited.woken || waited.hung_up
    }
}

impl WorkQueue for LocalEndpoint {
    #[inline]
    fn doorbell(&mut self) {
        for peer in self.posted.drain(..) {
            // It may have been removed since.
            match &mut self.peers[peer.0 as usize] {
                Some(Peer { way: Way::Agent(link), .. }) => {
                    link.ring();
                    self.rung = true;
                }
                Some(Peer { way: Way::Verbs(link), .. }) => {
                    link.post();
                    if !self.to_maintain.contains(&peer) {
                        self.to_maintain.push(peer);
                    }
                }
                _ => {}
            }
        }
    }

    fn look(&mut self) {
        self.broken |= self.waker.wait(Some(0)).hung_up;
        self.maintain();
    }

    fn is_broken(&self, _: PeerId) -> bool {
        self.broken
    }
}

impl RemoteMemory for LocalEndpoint {
    fn map(&self, peer: PeerId) -> Option<&Arc<MemoryMap>> {
        self.peer(peer).memory.as_ref().map(|memory| &memory.direct.map)
    }

    fn set_map(&mut self, peer: PeerId, map: Arc<MemoryMap>) {
        let peer = self.peers[peer.0 as usize].as_mut().expect(CONNECTED);
        peer.memory.as_mut().expect("memory to READ").direct.map = map;
    }

    fn map_version(&self, peer: PeerId) -> u64 {
        self.peer(peer).memory.as_ref().map_or(0, |memory| memory.header.segments_version())
    }

    #[inline]
    fn post_read(&mut self, read: Read) {
        let memory = self.peer(read.peer).memory.as_ref();
        if let Some(words) = memory.and_then(|memory| memory.direct.map.words(read.place, read.words)) {
            words.prefetch(read.words);
        }
    }

    #[inline]
    fn poll_read(&mut self, read: Read, into: &mut [u64]) -> ReadState {
        let memory = self.peer(read.peer).memory.as_ref();
        let sampled = memory.and_then(|memory| memory.direct.read(read.place, into));
        sampled.map_or(ReadState::Outside, ReadState::Done)
    }

    fn direct(&self, peer: PeerId) -> Option<Direct> {
        self.peer(peer).memory.as_ref().map(|memory| memory.direct.clone())
    }

    #[inline]
    fn stamp_window(&self) -> u64 {
        limits::READ_EPOCHS_MAX
    }

    #[inline(always)]
    fn authority(&mut self, peer: PeerId) -> Option<u64> {
        Some(self.peer(peer).memory.as_ref().map_or(0, |memory| memory.direct.term()))
    }
}

impl Mailbox for LocalEndpoint {
    #[inline]
    fn post_write(&mut self, peer: PeerId, first: usize, words: &[u64]) -> Result<(), Broken> {
        match &mut self.peers[peer.0 as usize].as_mut().expect(CONNECTED).way {
            Way::Shared { outbox, .. } => {
                assert!(place(outbox, first, words), "a WRITE of {} words beyond the mailbox", words.len());
                Ok(())
            }
            Way::Agent(link) => {
                if self.posted.last() != Some(&peer) {
                    self.posted.push(peer);
                }
                link.write(first, words)
            }
            Way::Verbs(link) => {
                if self.posted.last() != Some(&peer) {
                    self.posted.push(peer);
                }
                link.write(first, words)
            }
        }
    }

    #[inline(always)]
    fn inbox(&self, peer: PeerId) -> Words<'_> {
        self.peer(peer).inbox.words()
    }

    /// SYNC: the fence stands between the WRITE and the look at the sleep word; `announce_sleep` has its twin
    /// between the sleep word and the last look for WRITEs. One of the two sees the other's store.
    #[inline]
    fn wake(&mut self, peer: PeerId) {
        self.last = peer;
        match &self.peer(peer).way {
            Way::Shared { sleeps, wake_key, .. } => {
                full_fence();
                if sleeps.words().load(0) != 0 {
                    // The peer may have this core from the next call of the system on.
                    self.tell_core();
                    self.waker.wake(*wake_key);
                }
            }
            // Nobody sleeps so deep that it misses what arrives.
            Way::Agent(_) => {}
            // When it was posted, and again once it has arrived.
            Way::Verbs(_) => {}
        }
    }
}

impl Waiter for LocalEndpoint {
    fn yield_now(&mut self) {
        self.contention.yield_now();
    }

    fn is_contended(&self) -> bool {
        self.contention.is_contended_now()
    }

    fn shares_core(&self) -> bool {
        let own = self.tell_core();
        match self.peers.get(self.last.0 as usize) {
            Some(Some(Peer { way: Way::Shared { sleeps, .. }, .. })) => sleeps.core().load(0) == own,
            _ => false,
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.waker.fd())
    }

    fn announce_sleep(&mut self) {
        self.sleeps += 1;
        let sleep = self.sleeps;
        self.own_sleep_words.iter().for_each(|word| word.words().store(0, sleep));
        full_fence();
    }

    fn sleep(&mut self, timeout_ns: Option<u64>) {
        let mut left_ns = timeout_ns;
        while left_ns != Some(0) && !self.broken {
            let (nap_ns, sleeper) = self.nap(left_ns);
            if self.wakes(&sleeper.wait(nap_ns)) {
                break;
            }
            left_ns = left_ns.map(|left_ns| left_ns - nap_ns.unwrap_or(left_ns));
        }
        self.own_sleep_words.iter().for_each(|word| word.words().store(0, 0));
    }
}

impl Clock for LocalEndpoint {
    fn now_ns(&self) -> u64 {
        crate::now_ns()
    }
}

impl Fabric for LocalEndpoint {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn promises(&self, peer: PeerId) -> Promises {
        match self.peer(peer).way {
            Way::Shared { .. } | Way::Agent(_) => Promises { ordered_placement: true, ordered_loads: true },
            Way::Verbs(_) => Promises { ordered_placement: false, ordered_loads: false },
        }
    }
}
