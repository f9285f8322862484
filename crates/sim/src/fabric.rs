//! The simulated fabric, in two kinds.
//!
//! | | ordered | unordered |
//! |---|---|---|
//! | like | shared memory | RDMA verbs |
//! | a READ | copies word by word when it is polled | samples each word at a moment of its own between posting and completion |
//! | its stamps | the reclamation epoch | the reader's clock |
//! | its term | loaded after the words | sampled after the last word |
//! | reads without the state machine | yes (`RemoteMemory::direct`) | no |
//! | the words of a WRITE | land in order, the first one last | land in any order |
//!
//! WRITEs of one connection land one after the other in both, after a delay, and nothing lands while the
//! connection is held up. A broken connection loses what has not landed. A sleeper is woken as in shared
//! memory: its word says that it sleeps, and a wake-up that comes early is kept.
//!
//! Memory on another host is READ as over TCP: by somebody there, who looks at that host's clock, and out of
//! reach of loads.
//!
//! The endpoint of a session on a mirror takes in that of its connection to the primary, which is as over TCP:
//! memory is READ there, and is out of reach of loads.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use kelix_fabric::shm::{AUTHORITY_TERM, term_in_force};
use kelix_fabric::{
    Broken, Clock, Direct, FIRST_OF_PRIMARY, Fabric, Find, FindState, Mailbox, PeerId, Promises, Read,
    ReadState, RemoteMemory, Sampled, SimFabric, Waiter, WorkQueue,
};
use kelix_image::words::{Words, full_fence};
use kelix_image::{Header, MemoryMap, Span};
use kelix_index::READER;
use kelix_types::limits::READ_EPOCHS_MAX;
use kelix_types::mark;

use crate::scheduler::{self, HostClock, Shared, TaskId};

/// Which of the two kinds a fabric is, and how slow.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Loads are ordered, as in shared memory.
    pub ordered: bool,
    /// Longest time a word of a READ or a WRITE is under way.
    pub delay_ns_max: u64,
    /// The same for a slow READ, of which a part was sent again.
    pub slow_ns_max: u64,
    /// One in so many unordered READs is a slow one.
    pub reads_a_slow_one: u64,
    /// Shortest distance of two reclamation epochs.
    pub epoch_ns: u64,
    /// Their usual distance.
    pub epoch_ns_usual: u64,
}

/// What wakes an endpoint.
#[derive(Clone)]
pub struct Bell {
    task: TaskId,
    rung: Rc<Cell<bool>>,
}

impl Bell {
    /// The bell of a task.
    pub fn of(task: TaskId) -> Bell {
        Bell { task, rung: Rc::new(Cell::new(false)) }
    }

    /// Rings: the task wakes, or does not fall asleep next time.
    pub fn ring(&self) {
        self.rung.set(true);
        scheduler::wake(self.task);
    }

    /// Sleeps until it has rung, or for so long at most.
    pub fn sleep(&self, for_ns: u64) {
        if !self.rung.get() {
            scheduler::sleep(for_ns);
        }
        self.rung.set(false);
    }
}

/// A word by which an endpoint says that it sleeps.
#[derive(Clone)]
pub struct SleepWord(pub Span, pub usize);

impl SleepWord {
    fn words(&self) -> Words<'_> {
        self.0.words().part(self.1, 1)
    }
}

/// Both directions of a connection, as long as it holds.
#[derive(Clone)]
pub struct Wire {
    broken: Rc<Cell<bool>>,
    held_up_until_ns: Rc<Cell<u64>>,
}

impl Wire {
    /// A sound connection.
    pub fn sound() -> Wire {
        Wire { broken: Rc::new(Cell::new(false)), held_up_until_ns: Rc::new(Cell::new(0)) }
    }

    /// Breaks it for ever.
    pub fn cut(&self) {
        self.broken.set(true);
    }

    /// Lets nothing arrive for so much time.
    pub fn hold_up(&self, for_ns: u64) {
        self.held_up_until_ns.set(scheduler::now_ns() + for_ns);
    }

    /// How much longer nothing arrives.
    fn held_up_ns(&self) -> u64 {
        self.held_up_until_ns.get().saturating_sub(scheduler::now_ns())
    }

    /// Whether it is broken.
    pub fn is_broken(&self) -> bool {
        self.broken.get()
    }
}

/// One connection, seen from one side.
pub struct Peer {
    /// Memory to READ, with its header page; none on the server's side.
    pub memory: Option<(Arc<MemoryMap>, Header)>,
    /// The memory as it is now, where whoever READs need not know of its segments.
    pub maps: Option<Rc<dyn Fn() -> Arc<MemoryMap>>>,
    /// The authority page, where there is memory to READ.
    pub authority: Option<Span>,
    /// The clock of the peer's host and its server's term, if that is another host.
    pub far: Option<(HostClock, u64)>,
    /// The peer's mailbox.
    pub outbox: Span,
    /// This side's mailbox.
    pub inbox: Span,
    /// Says whether the peer sleeps.
    pub sleeps: SleepWord,
    /// Wakes the peer.
    pub bell: Bell,
    /// Whether the connection holds.
    pub wire: Wire,
    /// The words of a WRITE land in order, whatever the fabric's kind.
    pub is_ordered: bool,
}

struct Connection {
    peer: Peer,
    /// When the last word of the last WRITE lands.
    last_landing_ns: u64,
}

/// A READ whose words are sampled one by one.
struct Sampling {
    words: Vec<u64>,
    missing: usize,
    /// The reader's clock when the READ was posted.
    posted_ns: u64,
    term: u64,
}

/// One side's endpoint.
pub struct SimEndpoint {
    kind: Kind,
    bell: Bell,
    /// How much faster this node's clock runs than the true one, in parts per million.
    drift_ppm: i64,
    own_sleep_words: Vec<SleepWord>,
    connections: Vec<Option<Connection>>,
    /// The connections of a session on a mirror to the shards of the primary.
    primary: Vec<Option<Connection>>,
    primary_sleep_words: Vec<SleepWord>,
    samplings: HashMap<(PeerId, u32), Shared<Sampling>>,
}

/// The number of one of the primary's peers; `None`: one of the endpoint's own.
fn of_primary(peer: PeerId) -> Option<usize> {
    peer.0.checked_sub(FIRST_OF_PRIMARY).map(|number| number as usize)
}

impl SimEndpoint {
    /// An endpoint without connections.
    pub fn new(kind: Kind, bell: Bell, drift_ppm: i64) -> SimEndpoint {
        SimEndpoint {
            kind,
            bell,
            drift_ppm,
            own_sleep_words: Vec::new(),
            connections: Vec::new(),
            primary: Vec::new(),
            primary_sleep_words: Vec::new(),
            samplings: HashMap::new(),
        }
    }

    /// Adds a connection.
    pub fn add(&mut self, peer: Peer) -> PeerId {
        self.connections.push(Some(Connection { peer, last_landing_ns: 0 }));
        PeerId(self.connections.len() as u32 - 1)
    }

    /// Ends a connection.
    pub fn remove(&mut self, peer: PeerId) {
        self.connections[peer.0 as usize] = None;
    }

    /// Breaks a connection.
    pub fn cut(&self, peer: PeerId) {
        self.peer(peer).wire.cut();
    }

    /// A word in which this side announces its sleep.
    pub fn add_sleep_word(&mut self, word: SleepWord) {
        self.own_sleep_words.push(word);
    }

    fn sleep_words(&self) -> impl Iterator<Item = &SleepWord> {
        self.own_sleep_words.iter().chain(&self.primary_sleep_words)
    }

    /// The connections that have broken.
    pub fn broken(&self) -> Vec<PeerId> {
        let gone = |(index, connection): (usize, &Option<Connection>)| {
            connection.as_ref().filter(|it| it.peer.wire.is_broken()).map(|_| PeerId(index as u32))
        };
        self.connections.iter().enumerate().filter_map(gone).collect()
    }

    fn peer(&self, peer: PeerId) -> &Peer {
        let connection = match of_primary(peer) {
            None => &self.connections[peer.0 as usize],
            Some(number) => &self.primary[number],
        };
        &connection.as_ref().expect("a connection of this endpoint").peer
    }

    fn connection(&mut self, peer: PeerId) -> &mut Connection {
        let connection = match of_primary(peer) {
            None => &mut self.connections[peer.0 as usize],
            Some(number) => &mut self.primary[number],
        };
        connection.as_mut().expect("a connection of this endpoint")
    }

    /// The memory of a peer for loads: also of one that is only READ.
    fn loads(&self, peer: PeerId) -> Option<Direct> {
        let peer = self.peer(peer);
        let ((map, header), authority) = (peer.memory.as_ref()?, peer.authority.as_ref()?);
        self.kind.ordered.then(|| Direct::new(map.clone(), header, term_in_force(authority)))
    }

    /// Whether the memory of a peer is out of reach of loads, wherever that is.
    fn is_far(&self, peer: PeerId) -> bool {
        of_primary(peer).is_some() || self.peer(peer).far.is_some()
    }

    fn clock_ns(&self) -> u64 {
        let now = scheduler::now_ns() as i128;
        (now + now * self.drift_ppm as i128 / 1_000_000) as u64
    }
}

impl WorkQueue for SimEndpoint {
    fn doorbell(&mut self) {}

    fn look(&mut self) {}

    fn is_broken(&self, peer: PeerId) -> bool {
        of_primary(peer).is_some_and(|number| number >= self.primary.len())
            || self.peer(peer).wire.is_broken()
    }
}

impl RemoteMemory for SimEndpoint {
    fn map(&self, peer: PeerId) -> Option<&Arc<MemoryMap>> {
        self.peer(peer).memory.as_ref().filter(|_| !self.is_far(peer)).map(|(map, _)| map)
    }

    fn set_map(&mut self, peer: PeerId, map: Arc<MemoryMap>) {
        self.connection(peer).peer.memory.as_mut().expect("memory to READ").0 = map;
    }

    fn map_version(&self, peer: PeerId) -> u64 {
        if self.is_far(peer) {
            return 0;
        }
        self.peer(peer).memory.as_ref().map_or(0, |(_, header)| header.segments_version())
    }

    fn post_read(&mut self, read: Read) {
        if self.kind.ordered {
            return;
        }
        let sampling = Rc::new(RefCell::new(Sampling {
            words: vec![0; read.words],
            missing: read.words,
            posted_ns: self.clock_ns(),
            term: 0,
        }));
        let Peer { memory: Some((map, _)), authority: Some(authority), .. } = self.peer(read.peer) else {
            return;
        };
        let begins_ns = scheduler::now_ns() + self.peer(read.peer).wire.held_up_ns();
        // Each at its own time, in no order.
        let slow = scheduler::random_below(self.kind.reads_a_slow_one) == 0;
        let way_ns = if slow { self.kind.slow_ns_max } else { self.kind.delay_ns_max };
        // A word takes its time on the wire, too.
        let longest_ns = way_ns + read.words as u64;
        let moment = |_| begins_ns + scheduler::random_below(longest_ns);
        let moments: Vec<u64> = (0..read.words).map(moment).collect();
        let (map, authority, sampled, bell) =
            (map.clone(), authority.clone(), sampling.clone(), self.bell.clone());
        scheduler::each_at(&moments, move |index| {
            let mut sampled = sampled.borrow_mut();
            sampled.missing -= 1;
            if let Some(words) = map.words(read.place.plus(index as u64 * 8), 1) {
                sampled.words[index] = words.load(0);
            }
            if sampled.missing == 0 {
                // As early as a READ behind this one could look.
                sampled.term = authority.words().load_acquire(AUTHORITY_TERM);
                bell.ring();
            }
        });
        self.samplings.insert((read.peer, read.tag), sampling);
    }

    fn poll_read(&mut self, read: Read, into: &mut [u64]) -> ReadState {
        if self.is_far(read.peer) {
            if self.is_broken(read.peer) {
                return ReadState::Broken;
            }
            let map = self.peer(read.peer).maps.as_ref().map(|maps| maps());
            map.into_iter().for_each(|map| self.set_map(read.peer, map));
        }
        let peer = self.peer(read.peer);
        let Some((map, _)) = &peer.memory else { return ReadState::Broken };
        if map.words(read.place, read.words).is_none() {
            self.samplings.remove(&(read.peer, read.tag));
            return ReadState::Outside;
        }
        let sampled = if self.kind.ordered {
            let host = self.peer(read.peer).far.map_or_else(scheduler::clock, |(clock, _)| clock);
            let direct = self.loads(read.peer).expect("memory to READ");
            scheduler::on_host(host, || direct.read(read.place, into)).expect("a place that is known")
        } else {
            let Some(sampling) = self.samplings.get(&(read.peer, read.tag)) else { return ReadState::Broken };
            if sampling.borrow().missing > 0 {
                scheduler::give_way();
                if self.samplings[&(read.peer, read.tag)].borrow().missing > 0 {
                    return ReadState::Pending;
                }
            }
            // A late poller.
            scheduler::give_way();
            let sampling = self.samplings.remove(&(read.peer, read.tag)).expect("just seen");
            let sampling = sampling.borrow();
            into.copy_from_slice(&sampling.words);
            Sampled { before: sampling.posted_ns, after: self.clock_ns(), term: sampling.term }
        };
        let now = scheduler::unnoticed(|| {
            let mut now = vec![0; read.words];
            let peer = self.peer(read.peer);
            let words = peer.memory.as_ref().and_then(|(map, _)| map.words(read.place, read.words));
            words.map(|words| words.copy_out(0, &mut now)).map(|()| now)
        });
        if now.is_some_and(|now| now != into) {
            mark!("READ torn");
        }
        ReadState::Done(sampled)
    }

    fn finds(&self, peer: PeerId) -> bool {
        self.kind.ordered && of_primary(peer).is_none() && self.is_far(peer)
    }

    fn post_find(&mut self, _: Find<'_>) {}

    fn poll_find(&mut self, find: Find<'_>, into: &mut Vec<u64>) -> FindState {
        if self.is_broken(find.peer) {
            return FindState::Broken;
        }
        let map = self.peer(find.peer).maps.as_ref().map(|maps| maps());
        map.into_iter().for_each(|map| self.set_map(find.peer, map));
        let host = self.peer(find.peer).far.map_or_else(scheduler::clock, |(clock, _)| clock);
        let Some(direct) = self.loads(find.peer) else { return FindState::Broken };
        into.clear();
        let wanted = (find.hash, find.table, find.key);
        let found = scheduler::on_host(host, || direct.find(READER, wanted, (into, usize::MAX)));
        match found {
            FindState::Found(..) => mark!("FIND answered"),
            FindState::Absent(..) => mark!("FIND of what is absent"),
            FindState::Leaf(_) if into.len() == 1 => mark!("FIND of what a leaf has not"),
            FindState::Leaf(_) => mark!("FIND answered by a leaf"),
            _ => {}
        }
        found
    }

    fn direct(&self, peer: PeerId) -> Option<Direct> {
        if self.is_far(peer) { None } else { self.loads(peer) }
    }

    fn stamp_window(&self) -> u64 {
        if self.kind.ordered { READ_EPOCHS_MAX } else { self.kind.epoch_ns * 3 / 4 }
    }

    fn authority(&mut self, peer: PeerId) -> Option<u64> {
        if self.is_broken(peer) && of_primary(peer).is_some() {
            return None;
        }
        let Peer { authority, far, .. } = self.peer(peer);
        let term = || authority.as_ref().map_or(0, |page| term_in_force(page).load());
        Some(far.map_or_else(term, |(_, term)| term))
    }
}

impl Mailbox for SimEndpoint {
    fn post_write(&mut self, peer: PeerId, first: usize, words: &[u64]) -> Result<(), Broken> {
        let Kind { ordered, delay_ns_max, .. } = self.kind;
        let connection = self.connection(peer);
        let ordered = ordered || connection.peer.is_ordered;
        if connection.peer.wire.is_broken() {
            return Err(Broken);
        }
        let begins_ns =
            (scheduler::now_ns() + connection.peer.wire.held_up_ns()).max(connection.last_landing_ns) + 1;
        let moment = |_| begins_ns + scheduler::random_below(delay_ns_max);
        let mut moments: Vec<u64> = words.iter().map(moment).collect();
        if ordered {
            // The first word, which says that the others are there, last.
            moments.sort_unstable();
            moments.rotate_right(1);
        }
        connection.last_landing_ns = moments.iter().copied().max().unwrap_or(begins_ns);
        let (outbox, wire) = (connection.peer.outbox.clone(), connection.peer.wire.clone());
        let words = words.to_vec();
        // What arrives over TCP wakes by itself.
        let bell = of_primary(peer).map(|_| (connection.last_landing_ns, connection.peer.bell.clone()));
        scheduler::each_at(&moments, move |index| {
            if !wire.is_broken() {
                outbox.words().store(first + index, words[index]);
            }
        });
        if let Some((landed_ns, bell)) = bell {
            scheduler::after(landed_ns.saturating_sub(scheduler::now_ns()) + 1, move || bell.ring());
        }
        Ok(())
    }

    fn inbox(&self, peer: PeerId) -> Words<'_> {
        self.peer(peer).inbox.words()
    }

    fn wake(&mut self, peer: PeerId) {
        let ordered = self.kind.ordered;
        let Connection { peer, last_landing_ns } = self.connection(peer);
        // The wake-up comes after the WRITE it is for, as a completion would.
        let delay_ns = last_landing_ns.saturating_sub(scheduler::now_ns()) + 1;
        let (sleeps, bell, ordered) = (peer.sleeps.clone(), peer.bell.clone(), ordered);
        full_fence();
        scheduler::after(delay_ns, move || {
            if !ordered || sleeps.words().load(0) != 0 {
                bell.ring();
            }
        });
    }
}

impl Waiter for SimEndpoint {
    fn yield_now(&mut self) {
        scheduler::give_way();
    }

    fn announce_sleep(&mut self) {
        self.sleep_words().for_each(|word| word.words().store(0, 1));
        full_fence();
    }

    fn sleep(&mut self, timeout_ns: Option<u64>) {
        match timeout_ns {
            // Somebody who polls, but not alone on its processor.
            Some(0) => scheduler::give_way(),
            _ => self.bell.sleep(timeout_ns.unwrap_or(u64::MAX)),
        }
        self.sleep_words().for_each(|word| word.words().store(0, 0));
    }
}

impl Clock for SimEndpoint {
    fn now_ns(&self) -> u64 {
        self.clock_ns()
    }
}

impl Fabric for SimEndpoint {
    fn name(&self) -> &'static str {
        if self.kind.ordered { "sim-ordered" } else { "sim-unordered" }
    }

    fn promises(&self, peer: PeerId) -> Promises {
        let ordered = self.kind.ordered;
        Promises { ordered_placement: ordered || self.peer(peer).is_ordered, ordered_loads: ordered }
    }
}

impl SimFabric for SimEndpoint {
    fn join_primary(&mut self, primary: Box<dyn Any>) {
        let primary = primary.downcast::<SimEndpoint>().expect("an endpoint of this simulator");
        (self.primary, self.primary_sleep_words) = (primary.connections, primary.own_sleep_words);
    }

    fn part_primary(&mut self) -> Option<Box<dyn SimFabric>> {
        let connections = std::mem::take(&mut self.primary);
        if connections.is_empty() {
            return None;
        }
        let mut endpoint = SimEndpoint::new(self.kind, self.bell.clone(), self.drift_ppm);
        endpoint.connections = connections;
        endpoint.own_sleep_words = std::mem::take(&mut self.primary_sleep_words);
        Some(Box::new(endpoint))
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
