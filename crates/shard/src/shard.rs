//! The shard's state and its step: take requests, execute, reply, keep house.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use kelix_fabric::{Fabric, PeerId};
use kelix_image::{Image, ImageConfig, ItemOptions, MemoryUse, SegmentSource, Span};
use kelix_index::{Index, ModelCounts, OrderedCounts};
use kelix_types::limits::SHARD_BATCH;
use kelix_types::{Error, ErrorKind, KeyHash, Place, Result, TableId, TableKind, mark};
use kelix_wire::{
    Expiry, FrameBuffer, Op, Request, RequestHead, RequestShape, RingFault, RingReader, RingWriter, View,
    control::Caller,
};

use crate::cache::Cache;
use crate::deduplication::History;
use crate::generations::{Generations, Order};
use crate::large::Upload;
use crate::linked_items::LinkedItems;
use crate::numbers::{LinkSearch, Numbers};
use crate::places::Places;
use crate::unordered::Counts;
use crate::waiting::{PARKED_MAX, Parked};

/// Time as the shell tells it.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// By the fabric's clock, not long ago.
    pub monotonic_ns: u64,
    /// Since 1970, for expiry.
    pub wall_ns: u64,
}

impl Now {
    /// What an item has before its key that a request puts. The request may have come since this was the time, so the clock is
    /// asked again for when it ends.
    pub(crate) fn options_of(self, head: &RequestHead, fabric: &impl Fabric) -> ItemOptions {
        let expires = head.expiry.map(|expiry| {
            let passed_ns = fabric.now_ns().saturating_sub(self.monotonic_ns);
            Now { wall_ns: self.wall_ns + passed_ns, ..self }.end_of(expiry)
        });
        ItemOptions { client_flags: head.client_flags, expires }
    }

    /// When an item ends that is put now, in nanoseconds since 1970.
    pub(crate) fn end_of(self, expiry: Expiry) -> u64 {
        match expiry {
            Expiry::In(time_ns) => self.wall_ns.saturating_add(time_ns),
            Expiry::At(time_ns) => time_ns,
        }
    }
}

/// How a shard is made.
pub struct ShardConfig {
    /// Its number in the view.
    pub number: usize,
    /// The view it serves in.
    pub view: View,
    /// Its image.
    pub image: ImageConfig,
    /// How long a read view may go without a sign of life.
    pub view_lease_ns: u64,
    /// Whether items are let go when memory is used up.
    pub is_cache: bool,
}

/// A client that joins.
#[derive(Clone, Copy, Debug)]
pub struct ClientParameters {
    /// What its fabric promises.
    pub ordered_placement: bool,
    /// The number of its connection, which all shards of a server know it by.
    pub connection: u64,
    /// Who it is, if it may ask again.
    pub caller: Option<Caller>,
    /// Whether it may write.
    pub may_write: bool,
}

/// What a step did and what comes next.
#[derive(Debug, Default)]
pub struct Progress {
    /// Requests taken.
    pub requests: usize,
    /// When the shard has work of its own again, on the monotonic clock. `None`: only when a request comes.
    pub next_ns: Option<u64>,
    /// Clients that broke the protocol and are to be disconnected.
    pub faulty: Vec<(PeerId, &'static str)>,
    /// What other shards are to know: all of them if this is shard 0, else shard 0.
    pub orders: Vec<Order>,
    /// Another life of the store is to begin, with [`Shard::begin_life`], and these connections are to end for it.
    pub renewed: Option<Vec<u64>>,
}

/// What the shard has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShardCounters {
    /// Gets answered by message.
    pub gets: u64,
    /// Scans answered by message, each reply counted.
    pub scans: u64,
    /// Sub-models told to clients whose copies were old.
    pub models_told: u64,
    /// Items put.
    pub puts: u64,
    /// Keys deleted.
    pub deletes: u64,
    /// All requests taken.
    pub requests: u64,
    /// Items now.
    pub items: u64,
    /// Items that expired.
    pub expired: u64,
    /// Links repaired in place.
    pub links_repaired: u64,
    /// Writes that waited for memory.
    pub waited: u64,
    /// Writes refused for lack of memory.
    pub refused: u64,
    /// Items moved out of sparse segments.
    pub evacuated: u64,
    /// Writes asked for again that were done, and were answered as before.
    pub repeated: u64,
    /// Items that were let go, where that may be.
    pub evicted: u64,
    /// Reads that clients told of.
    pub hints: u64,
}

/// A request in a private copy.
pub(crate) struct Task {
    pub peer: PeerId,
    pub payload: Vec<u64>,
    pub shape: RequestShape,
    /// Hash of its table and key.
    pub hash: KeyHash,
    /// Which of all requests it is, in the order in which they were first tried.
    pub order: u64,
    /// Where its main bucket stood when it came, or its leaf.
    bucket: Place,
}

impl Task {
    pub fn new(peer: PeerId, payload: Vec<u64>, shape: RequestShape, hash: KeyHash) -> Task {
        Task { peer, payload, shape, hash, order: 0, bucket: Place(0) }
    }

    /// One that asks for nothing.
    pub fn idle(peer: PeerId) -> Task {
        let shape = RequestShape::of_head(RequestHead::new(Op::Ping, 0, TableId(0)));
        Task::new(peer, Vec::new(), shape, KeyHash(0))
    }

    #[inline(always)]
    pub fn request(&self) -> Request<'_> {
        self.shape.of(&self.payload)
    }
}

pub(crate) struct Client {
    reader: RingReader,
    writer: RingWriter,
    /// Replies that found the client's ring full. While there are any, nothing more is taken from it.
    backlog: VecDeque<FrameBuffer>,
    /// Requests that wait for memory.
    pub parked: usize,
    pub upload: Option<Upload>,
    /// Of one that may ask again: what it was answered.
    pub history: Option<History>,
    pub connection: u64,
    pub may_write: bool,
    /// It may have handles of tables that were dropped later than so many.
    pub knows: u64,
    /// It has sent nothing in so many steps, while it was among the recent ones.
    quiet: u32,
}

impl Client {
    /// Whether a request or room for a blocked reply waits. Costs one load.
    fn has_news(&self, fabric: &impl Fabric, peer: PeerId) -> bool {
        if self.backlog.is_empty() {
            self.parked < PARKED_MAX && self.reader.has_news(fabric, peer)
        } else {
            self.writer.has_news(fabric, peer)
        }
    }
}

/// Steps without a request after which a client is no longer looked at in each.
const QUIET_STEPS: u32 = 4096;
/// Clients that are not recent which are looked at in each step all the same, in turn.
const OTHERS_A_STEP: usize = 8;

/// One shard.
pub struct Shard {
    pub(crate) number: usize,
    pub(crate) view: View,
    pub(crate) image: Image,
    pub(crate) index: Index,
    pub(crate) clients: Vec<Option<Client>>,
    pub(crate) parked: VecDeque<Parked>,
    /// Clients that have gone and may come again, those who went last at the end.
    pub(crate) gone: VecDeque<History>,
    /// (expiry, location word, incarnation) of items that expire; entries of replaced items are skipped.
    pub(crate) expiries: BinaryHeap<Reverse<(u64, u64, u64)>>,
    /// Notes at which the outdated ones are cleared out.
    pub(crate) expiries_most: usize,
    /// Names given so far, by table, and those of tables by their kind.
    pub(crate) names: HashMap<(u16, TableKind), u16>,
    pub(crate) numbers: Numbers,
    pub(crate) link_search: Option<LinkSearch>,
    pub(crate) generations: Generations,
    pub(crate) noted: LinkedItems,
    /// If items may be let go.
    pub(crate) cache: Option<Cache>,
    pub(crate) places: Places,
    pub(crate) parked_retry_ns: u64,
    /// A request that waits for memory is being tried once more.
    pub(crate) is_retrying: bool,
    pub(crate) slab_leaving: Option<crate::upkeep::LeavingSlab>,
    pub(crate) counters: ShardCounters,
    pub(crate) counts: Counts,
    pub(crate) scratch: Vec<u64>,
    batch: Vec<Task>,
    /// Requests tried so far.
    pub(crate) tried: u64,
    replied: Vec<PeerId>,
    pub(crate) frame: FrameBuffer,
    /// Clients that have sent something not long ago, and which one is next. Many may be connected of whom few do anything:
    /// the others are looked at in turn, a few each time.
    recent: Vec<PeerId>,
    next_recent: usize,
    others: Vec<PeerId>,
    next_other: usize,
    /// Clients with replies in their backlog.
    blocked: Vec<PeerId>,
    /// Clients that have come again with handles which are of other tables now.
    strangers: Vec<PeerId>,
}

impl Shard {
    /// Makes an empty shard whose header page stands in `header`.
    pub fn create(config: ShardConfig, header: Span, source: Box<dyn SegmentSource>) -> Result<Shard> {
        let mut image = Image::create(config.image, header, source)?;
        let index = Index::create(&mut image).map_err(|_| {
            Error::new(ErrorKind::InvalidArgument, "create shard", "too little memory for an empty index")
        })?;
        image.serve();
        Ok(Shard::of(config, image, index))
    }

    /// A shard of an image, without clients.
    pub(crate) fn of(config: ShardConfig, image: Image, index: Index) -> Shard {
        Shard {
            number: config.number,
            view: config.view,
            image,
            index,
            clients: Vec::new(),
            parked: VecDeque::new(),
            gone: VecDeque::new(),
            expiries: BinaryHeap::new(),
            expiries_most: crate::upkeep::EXPIRY_NOTES_MIN,
            names: HashMap::new(),
            numbers: Numbers::default(),
            link_search: None,
            generations: Generations::new(config.view_lease_ns),
            noted: LinkedItems::default(),
            cache: config.is_cache.then(|| Cache::new(&config.image)),
            places: Places::new(config.image.segment_bytes_max),
            parked_retry_ns: 0,
            is_retrying: false,
            slab_leaving: None,
            counters: ShardCounters::default(),
            counts: Counts::default(),
            scratch: Vec::new(),
            batch: Vec::new(),
            tried: 0,
            replied: Vec::new(),
            frame: FrameBuffer::default(),
            recent: Vec::new(),
            next_recent: 0,
            others: Vec::new(),
            next_other: 0,
            blocked: Vec::new(),
            strangers: Vec::new(),
        }
    }

    /// A client's mailboxes are connected. Returns the connection that the same client had until now, which ends.
    pub fn join(&mut self, peer: PeerId, guest: ClientParameters) -> Option<PeerId> {
        let ClientParameters { ordered_placement, connection, caller, may_write } = guest;
        let (history, old) = caller.map(|caller| self.history_of(caller)).unzip();
        let new = self.numbers.known_to_a_newcomer();
        let knows = history.as_ref().map_or(new, |history: &History| history.knows.unwrap_or(new));
        if self.numbers.are_strange_to(knows) {
            mark!("client came again when numbers of tables had been given again");
            self.strangers.push(peer);
        }
        let index = peer.0 as usize;
        if self.clients.len() <= index {
            self.clients.resize_with(index + 1, || None);
        }
        self.clients[index] = Some(Client {
            reader: RingReader::new(ordered_placement),
            writer: RingWriter::new(ordered_placement),
            backlog: VecDeque::new(),
            parked: 0,
            upload: None,
            history,
            connection,
            may_write,
            knows,
            quiet: 0,
        });
        self.others.push(peer);
        old.flatten()
    }

    /// A client has gone. Its unfinished requests go with it.
    pub fn leave(&mut self, peer: PeerId) {
        if let Some(client) = self.clients.get_mut(peer.0 as usize).and_then(Option::take) {
            self.parked.retain(|parked| parked.task.peer != peer);
            self.recent.retain(|recent| *recent != peer);
            self.others.retain(|other| *other != peer);
            self.blocked.retain(|blocked| *blocked != peer);
            if let Some(upload) = client.upload {
                mark!("client gone in the middle of an upload");
                self.abandon_upload(upload);
            }
            self.let_generations_go(peer, client.history.is_some());
            self.strangers.retain(|stranger| *stranger != peer);
            self.numbers.note_gone();
            if let Some(mut history) = client.history {
                history.knows = Some(client.knows);
                self.remember(history);
            }
        }
    }

    /// What it has done so far.
    pub fn counters(&self) -> ShardCounters {
        // The catalogue's own items are nobody's who uses the store.
        let items = self.counters.items - self.counts.of(TableId::CATALOGUE);
        ShardCounters { items, ..self.counters }
    }

    /// What its memory is used for.
    pub fn memory_use(&self) -> MemoryUse {
        self.image.memory_use()
    }

    /// Writes that wait for memory now.
    pub fn writes_waiting(&self) -> usize {
        self.parked.len()
    }

    /// The image, for statistics and checks.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// What there is of each ordered table.
    pub fn ordered_counts(&self) -> impl Iterator<Item = (TableId, OrderedCounts, ModelCounts)> {
        self.index.ordered_counts()
    }

    /// Splits and merges of index blocks so far.
    pub fn splits_and_merges(&self) -> (u64, u64) {
        self.index.splits_and_merges()
    }

    /// Whether a request or room for a blocked reply waits: to be asked before sleeping. Costs one load a client.
    pub fn has_news(&self, fabric: &impl Fabric) -> bool {
        let mut clients = self.clients.iter().enumerate();
        clients.any(|(index, client)| {
            client.as_ref().is_some_and(|client| client.has_news(fabric, PeerId(index as u32)))
        })
    }

    /// The same of recent clients and one of the others: for whoever asks over and over.
    pub fn glance(&mut self, fabric: &impl Fabric) -> bool {
        self.look_at_others(fabric, 1);
        self.recent.iter().any(|peer| {
            let client = self.clients[peer.0 as usize].as_ref();
            client.is_some_and(|client| client.has_news(fabric, *peer))
        })
    }

    /// Whether a request that was taken has not been answered yet: a write waits for memory, or a reply for room.
    pub fn owes_answers(&self) -> bool {
        !self.parked.is_empty() || !self.blocked.is_empty()
    }

    /// Places that clients have in the lists of whom to look at next.
    pub(crate) fn turns(&self) -> usize {
        let turns = self.recent.len() + self.others.len() + self.blocked.len() + self.replied.len();
        turns + self.strangers.len()
    }

    /// Looks at the next clients that are not recent; those that have sent something are recent from now on.
    fn look_at_others(&mut self, fabric: &impl Fabric, count: usize) {
        for _ in 0..count.min(self.others.len()) {
            if self.next_other >= self.others.len() {
                self.next_other = 0;
            }
            let peer = self.others[self.next_other];
            let client = self.clients[peer.0 as usize].as_mut().expect("a client that has not left");
            if client.has_news(fabric, peer) {
                client.quiet = 0;
                self.others.swap_remove(self.next_other);
                self.recent.push(peer);
            } else {
                self.next_other += 1;
            }
        }
    }

    /// Does what has arrived and what is due.
    pub fn step(&mut self, now: Now, fabric: &mut impl Fabric) -> Progress {
        let mut progress = Progress::default();
        self.numbers.begin_step();
        if !self.strangers.is_empty() {
            let what = "numbers of tables that it knows were given again";
            let strangers = std::mem::take(&mut self.strangers);
            strangers.iter().for_each(|peer| self.leave(*peer));
            progress.faulty.extend(strangers.into_iter().map(|peer| (peer, what)));
        }
        let mut batch = std::mem::take(&mut self.batch);
        let count = self.take_requests(fabric, &mut batch, &mut progress);
        progress.requests = count;
        self.counters.requests += count as u64;
        if count > 1 {
            // The buckets are on their way.
            for task in &batch[..count] {
                let table = task.shape.head.table;
                self.index.prefetch_item(&self.image, task.bucket, task.hash, table);
            }
        }
        for task in &mut batch[..count] {
            self.handle(now, fabric, task);
        }
        self.batch = batch;
        progress.next_ns = self.upkeep(now, fabric, &mut progress.renewed);
        self.flush(fabric, &mut progress);
        for (peer, _) in &progress.faulty {
            self.leave(*peer);
        }
        progress.orders.append(&mut self.generations.orders);
        progress
    }

    /// Copies waiting requests out of the rings, one client after another, beginning with another one each time, and asks
    /// for the memory they lead to first, so that the accesses of a batch overlap.
    fn take_requests(
        &mut self,
        fabric: &mut impl Fabric,
        batch: &mut Vec<Task>,
        progress: &mut Progress,
    ) -> usize {
        self.look_at_others(fabric, OTHERS_A_STEP);
        let clients = self.recent.len();
        let mut count = 0;
        for turn in 0..clients {
            let peer = self.recent[(self.next_recent + turn) % clients];
            let Some(client) = self.clients[peer.0 as usize].as_mut() else { continue };
            let before = count;
            // While many writes of a client wait for memory nothing more is taken from it: its ring holds it back.
            while count < SHARD_BATCH && client.backlog.is_empty() && client.parked < PARKED_MAX {
                if batch.len() == count {
                    batch.push(Task::idle(peer));
                }
                let task = &mut batch[count];
                match client.reader.pop(fabric, peer, &mut task.payload) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(RingFault(what)) => {
                        progress.faulty.push((peer, what));
                        break;
                    }
                }
                let Some(shape) = RequestShape::parse(&task.payload) else {
                    progress.faulty.push((peer, "a request that makes no sense"));
                    break;
                };
                (task.peer, task.shape) = (peer, shape);
                let request = task.request();
                let hash = self.index.hash(request.head.table, request.key);
                let bucket = self.index.prefetch(&self.image, hash, request.head.table, request.key);
                if request.head.op == Op::Put {
                    self.image.prefetch_free(16 + request.tail.len() * 8, count);
                }
                (task.hash, task.bucket) = (hash, bucket);
                count += 1;
            }
            // With replies to send, or writes that wait, it is not silent.
            let silent = count == before && client.backlog.is_empty() && client.parked == 0;
            client.quiet = if silent { client.quiet + 1 } else { 0 };
        }
        self.next_recent = (self.next_recent + 1) % clients.max(1);
        let Shard { recent, others, clients, .. } = self;
        recent.retain(|peer| {
            let quiet = clients[peer.0 as usize].as_ref().is_some_and(|client| client.quiet >= QUIET_STEPS);
            if quiet {
                others.push(*peer);
            }
            !quiet
        });
        count
    }

    /// Posts a reply; if the client's ring is full it waits in the backlog.
    pub(crate) fn reply(&mut self, fabric: &mut impl Fabric, peer: PeerId, frame: &mut FrameBuffer) {
        let Some(client) = self.clients[peer.0 as usize].as_mut() else { return };
        // A writer's fault shows again in the flush, which reports it.
        if !client.backlog.is_empty() || !client.writer.push(fabric, peer, frame).unwrap_or(false) {
            mark!("answer waited for room in a ring");
            if client.backlog.is_empty() {
                self.blocked.push(peer);
            }
            client.backlog.push_back(frame.clone());
        }
        if self.replied.last() != Some(&peer) {
            self.replied.push(peer);
        }
    }

    /// Sends what waits in backlogs and wakes everybody who got something.
    fn flush(&mut self, fabric: &mut impl Fabric, progress: &mut Progress) {
        let Shard { blocked, clients, replied, .. } = self;
        blocked.retain(|peer| {
            let peer = *peer;
            let Some(client) = clients[peer.0 as usize].as_mut() else { return false };
            while let Some(frame) = client.backlog.front_mut() {
                match client.writer.push(fabric, peer, frame) {
                    Ok(true) => {
                        client.backlog.pop_front();
                        replied.push(peer);
                    }
                    Ok(false) => break,
                    Err(RingFault(what)) => {
                        progress.faulty.push((peer, what));
                        break;
                    }
                }
            }
            !client.backlog.is_empty()
        });
        if !self.replied.is_empty() {
            fabric.doorbell();
            for peer in self.replied.drain(..) {
                fabric.wake(peer);
            }
        }
    }
}
