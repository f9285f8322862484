//! The shard's state and its step: take requests, execute, reply, keep house.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use kelix_fabric::{Fabric, PeerId};
use kelix_image::{Image, ImageConfig, MemoryUse, SegmentSource, Span};
use kelix_index::HashIndex;
use kelix_types::limits::SHARD_BATCH;
use kelix_types::{Error, ErrorKind, KeyHash, Place, Result, TableId, mark};
use kelix_wire::{
    FrameBuffer, Op, Request, RequestHead, RequestShape, RingFault, RingReader, RingWriter, View,
};

use crate::large::Upload;
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
    /// When an item ends that a request puts, in nanoseconds since 1970. The request may have come since this was the time,
    /// so the clock is asked again.
    pub(crate) fn end_of(self, head: &RequestHead, fabric: &impl Fabric) -> Option<u64> {
        let time_ns = head.expires_in?;
        let passed_ns = fabric.now_ns().saturating_sub(self.monotonic_ns);
        Some((self.wall_ns + passed_ns).saturating_add(time_ns))
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
}

/// What the shard has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShardCounters {
    /// Gets answered by message.
    pub gets: u64,
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
}

/// A request in a private copy.
pub(crate) struct Task {
    pub peer: PeerId,
    pub payload: Vec<u64>,
    pub shape: RequestShape,
    /// Hash of its table and key.
    pub hash: KeyHash,
    /// Where its main bucket stood when it came.
    bucket: Place,
}

impl Task {
    pub fn new(peer: PeerId, payload: Vec<u64>, shape: RequestShape, hash: KeyHash) -> Task {
        Task { peer, payload, shape, hash, bucket: Place(0) }
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
}

/// One shard.
pub struct Shard {
    pub(crate) number: usize,
    pub(crate) view: View,
    pub(crate) image: Image,
    pub(crate) index: HashIndex,
    pub(crate) clients: Vec<Option<Client>>,
    pub(crate) parked: VecDeque<Parked>,
    /// (expiry, location word, incarnation) of items that expire; entries of replaced items are skipped.
    pub(crate) expiries: BinaryHeap<Reverse<(u64, u64, u64)>>,
    /// Notes at which the outdated ones are cleared out.
    pub(crate) expiries_most: usize,
    /// Names given so far, by table.
    pub(crate) names: HashMap<u16, u16>,
    pub(crate) parked_retry_ns: u64,
    pub(crate) slab_leaving: Option<crate::upkeep::LeavingSlab>,
    pub(crate) counters: ShardCounters,
    pub(crate) scratch: Vec<u64>,
    batch: Vec<Task>,
    replied: Vec<PeerId>,
    pub(crate) frame: FrameBuffer,
    next_client: usize,
}

impl Shard {
    /// Makes an empty shard whose header page stands in `header`.
    pub fn create(config: ShardConfig, header: Span, source: Box<dyn SegmentSource>) -> Result<Shard> {
        let mut image = Image::create(config.image, header, source)?;
        let index = HashIndex::create(&mut image).map_err(|_| {
            Error::new(ErrorKind::InvalidArgument, "create shard", "too little memory for an empty index")
        })?;
        image.serve();
        Ok(Shard {
            number: config.number,
            view: config.view,
            image,
            index,
            clients: Vec::new(),
            parked: VecDeque::new(),
            expiries: BinaryHeap::new(),
            expiries_most: crate::upkeep::EXPIRY_NOTES_MIN,
            names: HashMap::new(),
            parked_retry_ns: 0,
            slab_leaving: None,
            counters: ShardCounters::default(),
            scratch: Vec::new(),
            batch: Vec::new(),
            replied: Vec::new(),
            frame: FrameBuffer::default(),
            next_client: 0,
        })
    }

    /// A client's mailboxes are connected.
    pub fn join(&mut self, peer: PeerId, ordered_placement: bool) {
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
        });
    }

    /// A client has gone. Its unfinished requests go with it.
    pub fn leave(&mut self, peer: PeerId) {
        if let Some(client) = self.clients.get_mut(peer.0 as usize).and_then(Option::take) {
            self.parked.retain(|parked| parked.task.peer != peer);
            if let Some(upload) = client.upload {
                mark!("client gone in the middle of an upload");
                self.abandon_upload(upload);
            }
        }
    }

    /// What it has done so far.
    pub fn counters(&self) -> ShardCounters {
        self.counters
    }

    /// What its memory is used for.
    pub fn memory_use(&self) -> MemoryUse {
        self.image.memory_use()
    }

    /// The image, for statistics and checks.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Splits and merges of index blocks so far.
    pub fn splits_and_merges(&self) -> (u64, u64) {
        self.index.splits_and_merges()
    }

    /// Whether a request or a blocked reply waits. Costs one load a client.
    pub fn has_news(&self, fabric: &impl Fabric) -> bool {
        self.clients.iter().enumerate().any(|(index, client)| {
            let peer = PeerId(index as u32);
            client.as_ref().is_some_and(|client| {
                if client.backlog.is_empty() {
                    client.parked < PARKED_MAX && client.reader.has_news(fabric, peer)
                } else {
                    client.writer.has_news(fabric, peer)
                }
            })
        })
    }

    /// Does what has arrived and what is due.
    pub fn step(&mut self, now: Now, fabric: &mut impl Fabric) -> Progress {
        let mut progress = Progress::default();
        let mut batch = std::mem::take(&mut self.batch);
        let count = self.take_requests(fabric, &mut batch, &mut progress);
        progress.requests = count;
        self.counters.requests += count as u64;
        if count > 1 {
            // The buckets are on their way.
            for task in &batch[..count] {
                HashIndex::prefetch_item(&self.image, task.bucket, task.hash);
            }
        }
        for task in &mut batch[..count] {
            self.handle(now, fabric, task);
        }
        self.batch = batch;
        progress.next_ns = self.upkeep(now, fabric);
        self.flush(fabric, &mut progress);
        for (peer, _) in &progress.faulty {
            self.leave(*peer);
        }
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
        let clients = self.clients.len();
        let mut count = 0;
        for turn in 0..clients {
            let index = (self.next_client + turn) % clients;
            let peer = PeerId(index as u32);
            let Some(client) = self.clients[index].as_mut() else { continue };
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
                let bucket = self.index.prefetch_bucket(&self.image, hash);
                if request.head.op == Op::Put {
                    self.image.prefetch_free(16 + request.tail.len() * 8, count);
                }
                (task.hash, task.bucket) = (hash, bucket);
                count += 1;
            }
        }
        self.next_client = (self.next_client + 1) % clients.max(1);
        count
    }

    /// Posts a reply; if the client's ring is full it waits in the backlog.
    pub(crate) fn reply(&mut self, fabric: &mut impl Fabric, peer: PeerId, frame: &mut FrameBuffer) {
        let Some(client) = self.clients[peer.0 as usize].as_mut() else { return };
        // A writer's fault shows again in the flush, which reports it.
        if !client.backlog.is_empty() || !client.writer.push(fabric, peer, frame).unwrap_or(false) {
            mark!("answer waited for room in a ring");
            client.backlog.push_back(frame.clone());
        }
        if self.replied.last() != Some(&peer) {
            self.replied.push(peer);
        }
    }

    /// Sends what waits in backlogs and wakes everybody who got something.
    fn flush(&mut self, fabric: &mut impl Fabric, progress: &mut Progress) {
        for index in 0..self.clients.len() {
            let peer = PeerId(index as u32);
            let Some(client) = self.clients[index].as_mut() else { continue };
            while let Some(frame) = client.backlog.front_mut() {
                match client.writer.push(fabric, peer, frame) {
                    Ok(true) => {
                        client.backlog.pop_front();
                        self.replied.push(peer);
                    }
                    Ok(false) => break,
                    Err(RingFault(what)) => {
                        progress.faulty.push((peer, what));
                        break;
                    }
                }
            }
        }
        if !self.replied.is_empty() {
            fabric.doorbell();
            for peer in self.replied.drain(..) {
                fabric.wake(peer);
            }
        }
    }
}
