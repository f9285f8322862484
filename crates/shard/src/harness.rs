//! A shard with one client at a time and no threads, for tests of what it does and of what it leaves in
//! memory: what is sent is handled at once, and time passes when it is told to.

use std::sync::Arc;

use kelix_image::{Header, ImageConfig, MemoryMap, PrivateSegments, Span};
use kelix_types::TableId;
use kelix_types::limits::{EPOCH_NS, EPOCH_NS_MIN, SHARD_BYTES_MIN, VIEW_LEASE_NS, segment_bytes_max};
use kelix_wire::control::Caller;
use kelix_wire::mailboxes::{Mailboxes, PEER};
use kelix_wire::{
    FrameBuffer, Op, Reply, ReplyHead, RequestHead, RequestShape, RingReader, RingShape, RingWriter, Status,
    View, encode_request,
};

use crate::datasets::Order;
use crate::request::Task;
use crate::shard::{ClientParameters, Now, Progress, Shard, ShardConfig};

/// Steps after which a request is answered, whatever it waits for: an epoch each.
const STEPS_MAX: usize = 100;

/// Bytes of a piece of an upload.
const PIECE_BYTES: usize = 32 << 10;

/// The first shard of a server, with the smallest memory there is, and the client's end of its rings.
pub struct Harness {
    /// It.
    pub shard: Shard,
    header: Span,
    segments: PrivateSegments,
    shard_side: Mailboxes,
    client_side: Mailboxes,
    writer: RingWriter,
    reader: RingReader,
    /// What the clocks show.
    pub now_ns: u64,
    /// What it had to tell other shards, which are not there.
    pub orders: Vec<Order>,
}

/// The client that is there from the beginning.
pub(crate) const CLIENT: ClientParameters = ClientParameters {
    ring: RingShape::of_messages(true),
    connection: 1,
    caller: None,
    may_write: true,
    tells_sequence: false,
};

impl Harness {
    /// Seed of the key hash.
    pub const SEED: u64 = 42;
    /// Term of the image.
    pub const TERM: u64 = 3;

    /// The first of so many shards, over mailboxes that are empty.
    pub fn new(shards: usize, mailboxes: &Mailboxes) -> Harness {
        Harness::with(shards, SHARD_BYTES_MIN, mailboxes)
    }

    /// The same with so much memory.
    pub fn with(shards: usize, memory_bytes: u64, mailboxes: &Mailboxes) -> Harness {
        let (header, segments) = (Span::private(Header::BYTES), PrivateSegments::default());
        let config = Harness::config(shards, memory_bytes);
        let shard = Shard::create(config, header.clone(), Box::new(segments.clone()));
        Harness::of(shard.expect("an empty shard"), (header, segments), mailboxes)
    }

    /// The only shard of a cache of so much memory.
    pub fn cache(memory_bytes: u64, mailboxes: &Mailboxes) -> Harness {
        let (header, segments) = (Span::private(Header::BYTES), PrivateSegments::default());
        let shard =
            Shard::create(Harness::cache_config(memory_bytes), header.clone(), Box::new(segments.clone()));
        Harness::of(shard.expect("an empty shard"), (header, segments), mailboxes)
    }

    /// How it is made.
    pub fn cache_config(memory_bytes: u64) -> ShardConfig {
        let config = Harness::config(1, memory_bytes);
        let segment_bytes = segment_bytes_max(memory_bytes);
        let image = ImageConfig {
            epoch_ns: EPOCH_NS_MIN,
            segment_bytes_first: segment_bytes,
            segment_bytes_max: segment_bytes,
            ..config.image
        };
        ShardConfig { image, is_cache: true, ..config }
    }

    /// How the first of so many shards is made.
    pub fn config(shards: usize, memory_bytes: u64) -> ShardConfig {
        let image = ImageConfig {
            image_id: 1,
            hash_seed: Harness::SEED,
            term: Harness::TERM,
            incarnation: kelix_types::Incarnation::first_of_term(Harness::TERM),
            epoch_ns: EPOCH_NS,
            epoch_ns_usual: EPOCH_NS,
            memory_bytes,
            segment_bytes_first: SHARD_BYTES_MIN,
            segment_bytes_max: SHARD_BYTES_MIN,
            keeps_journal: false,
        };
        let view = View::of_shards(1, Harness::SEED, shards);
        ShardConfig { number: 0, view, image, view_lease_ns: VIEW_LEASE_NS, is_cache: false }
    }

    /// A shard that was made elsewhere.
    pub fn of(
        mut shard: Shard,
        (header, segments): (Span, PrivateSegments),
        mailboxes: &Mailboxes,
    ) -> Harness {
        shard.join(PEER, CLIENT);
        Harness {
            shard,
            header,
            segments,
            shard_side: mailboxes.clone(),
            client_side: mailboxes.turned(),
            writer: RingWriter::new(RingShape::of_messages(true)),
            reader: RingReader::new(RingShape::of_messages(true)),
            now_ns: 1,
            orders: Vec::new(),
        }
    }

    /// The header page.
    pub fn header(&self) -> &Span {
        &self.header
    }

    /// Its memory, as a reader maps it.
    pub fn map(&self) -> Arc<MemoryMap> {
        self.segments.map(&self.header)
    }

    /// Lets the shard do what is to be done.
    pub fn step(&mut self) -> Progress {
        self.shard_side.now_ns = self.now_ns;
        let now = Now { monotonic_ns: self.now_ns, wall_ns: self.now_ns };
        let mut progress = self.shard.step(now, &mut self.shard_side);
        self.orders.append(&mut progress.orders);
        progress
    }

    /// Has the shard do a request in the middle of a step, which ends with the next one.
    pub fn handle(&mut self, frame: &FrameBuffer) {
        let payload = frame.payload().to_vec();
        let shape = RequestShape::parse(&payload).expect("a request");
        let hash = self.shard.store.index.hash(shape.head.table, shape.of(&payload).key);
        let now = Now { monotonic_ns: self.now_ns, wall_ns: self.now_ns };
        self.shard.handle(now, &mut self.shard_side, &mut Task::new(PEER, payload, shape, hash));
    }

    /// The client goes, whatever it still wanted.
    pub fn leave(&mut self) {
        self.shard.leave(PEER);
        self.client_side.wipe();
        self.shard_side.wipe();
        (self.writer, self.reader) =
            (RingWriter::new(RingShape::of_messages(true)), RingReader::new(RingShape::of_messages(true)));
    }

    /// Another one comes in its place, over this connection.
    pub fn join(&mut self, connection: u64, caller: Option<Caller>, may_write: bool) {
        self.shard.join(PEER, ClientParameters { connection, caller, may_write, ..CLIENT });
    }

    /// Another one comes in its place that wants to be told of records.
    pub fn join_told(&mut self) {
        self.leave();
        self.shard.join(PEER, ClientParameters { connection: 2, tells_sequence: true, ..CLIENT });
    }

    /// Lets an epoch pass.
    pub fn pass_epoch(&mut self) {
        self.now_ns += EPOCH_NS;
        assert!(self.step().faulty.is_empty());
    }

    /// Puts a message into the shard's ring, for the next step.
    pub fn push(&mut self, frame: &mut FrameBuffer) {
        assert_eq!(self.writer.push(&mut self.client_side, PEER, frame), Ok(true));
    }

    /// Takes an answer out of the client's ring, into memory that is used again. `false`: there is none.
    pub fn pop(&mut self, payload: &mut Vec<u64>) -> bool {
        self.reader.pop(&mut self.client_side, PEER, payload).expect("a ring of the shard's")
    }

    /// Sends a message, and lets the shard look at it.
    pub fn send(&mut self, frame: &mut FrameBuffer) -> Progress {
        self.push(frame);
        self.step()
    }

    /// The answer to what was sent, for which time may have to pass. `None`: it never comes.
    pub fn answer(&mut self) -> Option<Vec<u64>> {
        let mut payload = Vec::new();
        for _ in 0..STEPS_MAX {
            if self.pop(&mut payload) {
                return Some(payload);
            }
            self.pass_epoch();
        }
        None
    }

    /// Whether something else has come.
    pub fn has_more(&mut self) -> bool {
        self.pop(&mut Vec::new())
    }

    /// Asks for something that is done.
    pub fn call(&mut self, head: RequestHead, key: &[u8], body: &[u8]) -> ReplyHead {
        let mut frame = FrameBuffer::default();
        encode_request(&mut frame, head, key, body);
        assert!(self.send(&mut frame).faulty.is_empty());
        let payload = self.answer().expect("an answer");
        let reply = Reply::parse(&payload).expect("a reply");
        assert_eq!(reply.head.status, Status::Ok, "{head:?}");
        reply.head
    }

    /// Puts a value by an upload.
    pub fn put_in_pieces(&mut self, table: TableId, key: &[u8], value: &[u8]) {
        let head = |op, argument| RequestHead { argument, ..RequestHead::new(op, 0, table) };
        self.call(head(Op::LargeBegin, Some(value.len() as u64)), key, &[]);
        for (number, piece) in value.chunks(PIECE_BYTES).enumerate() {
            self.call(head(Op::LargePiece, Some((number * PIECE_BYTES) as u64)), &[], piece);
        }
        self.call(head(Op::LargeCommit, None), key, &[]);
    }

    /// Leaves the mailboxes as if they were new.
    pub fn wipe(mut self) {
        self.client_side.wipe();
        self.shard_side.wipe();
    }
}
