//! What happens to a request, from its arrival to its reply.
//!
//! ```text
//! serve               a batch is copied out of the rings, and asks for the memory that it leads to
//!   handle            then each request of the batch, whole before the next begins:
//!     authorise       may this client ask for that?
//!     deduplicate     was it answered before, over another connection?
//!     refuse_unlogged can it be logged, where that is wanted?
//!     try_once        what a write that found no room goes through again when there is some (`waiting`):
//!       forbid        does the table take it now?
//!       execute       the operation
//!     (put_many)      several puts in one request: the same for each item (`puts`)
//!     answer          into the client's ring, or its backlog; all is sent off when the step ends
//! ```

use kelix_fabric::{Clock, Mailbox, PeerId};
use kelix_image::NoRoom;
use kelix_types::limits::PUTS_A_REQUEST;
use kelix_types::{KeyHash, Place, TableId};
use kelix_wire::generation::DROP_DATASET;
use kelix_wire::puts;
use kelix_wire::{FrameBuffer, Op, ReplyHead, Request, RequestHead, RequestShape, Status, encode_reply};

use crate::large;
use crate::puts::put_many;
use crate::shard::{Now, Progress, Shard};
use crate::store::Answer;

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

    /// How many of a client's operations it is.
    #[inline(always)]
    pub fn writes(&self) -> usize {
        if self.shape.head.op == Op::PutMany {
            puts::writes(Op::PutMany, self.request().body) as usize
        } else {
            1
        }
    }

    #[inline(always)]
    pub fn request(&self) -> Request<'_> {
        self.shape.of(&self.payload)
    }
}

/// What is kept from one request to the next.
#[derive(Default)]
pub(crate) struct Requests {
    /// The batch, whose tasks keep their memory.
    batch: Vec<Task>,
    /// Where a reply is written.
    pub frame: FrameBuffer,
    /// Requests taken so far.
    taken: u64,
    /// Requests tried so far.
    tried: u64,
}

impl Requests {
    pub fn taken(&self) -> u64 {
        self.taken
    }
}

impl Shard {
    /// Serves what has arrived.
    pub(crate) fn serve(&mut self, now: Now, fabric: &mut (impl Mailbox + Clock), progress: &mut Progress) {
        let mut batch = std::mem::take(&mut self.requests.batch);
        let (index, image) = (&self.store.index, &self.store.image);
        // The accesses of a batch overlap: all buckets are asked for, then all items.
        let count = self.clients.take_requests(fabric, &mut batch, &mut progress.faulty, |task, ahead| {
            let request = task.request();
            let (table, key) = (request.head.table, request.key);
            let hash = index.hash(table, key);
            let bucket = index.prefetch(image, hash, table, key);
            if request.head.op == Op::Put {
                image.prefetch_free(16 + request.tail.len() * 8, ahead);
            }
            (task.hash, task.bucket) = (hash, bucket);
        });
        self.requests.taken += count as u64;
        if count > 1 {
            for task in &batch[..count] {
                index.prefetch_item(image, task.bucket, task.hash, task.shape.head.table);
            }
        }
        let mut writes = 0;
        for task in &mut batch[..count] {
            self.handle(now, fabric, task);
            writes += task.writes();
            // Answers that wait for their record are not to wait for the whole batch: their clients go on
            // meanwhile. Where they wait for the disk, who writes the log wakes meanwhile.
            if writes >= PUTS_A_REQUEST && self.clients.held.is_on() {
                progress.wakes_log |= self.end_record(fabric);
                writes = 0;
            }
        }
        self.requests.batch = batch;
        progress.requests = count;
    }

    /// Handles one request: it is answered, or parked.
    pub(crate) fn handle(&mut self, now: Now, fabric: &mut (impl Mailbox + Clock), task: &mut Task) {
        let mut frame = std::mem::take(&mut self.requests.frame);
        let allowed = self.authorise(task).and_then(|()| self.clients.deduplicate(task));
        match allowed.map(|()| self.refuse_unlogged(task)) {
            Ok(logged) if task.shape.head.op == Op::PutMany => {
                let parts = (&mut self.store, &mut self.clients, &self.recorder);
                let unlogged = logged.err().map(|answer| answer.status);
                put_many(parts, (now, unlogged), fabric, task, &mut frame);
            }
            Err(answer) => {
                encode_reply(&mut frame, answer);
                self.clients.reply(fabric, task, &mut frame, (&self.store, &self.recorder));
            }
            Ok(Err(answer)) => {
                encode_reply(&mut frame, answer);
                self.clients.refuse(fabric, task, &mut frame);
            }
            Ok(Ok(())) => {
                self.requests.tried += 1;
                task.order = self.requests.tried;
                match self.try_once(now, fabric, task, &mut frame) {
                    Ok(()) => {
                        self.clients.answer(fabric, task, &mut frame, (&self.store, &self.recorder));
                    }
                    Err(no_room) => self.wait_for_room(now, fabric, task, no_room, &mut frame),
                }
            }
        }
        self.requests.frame = frame;
    }

    /// Whether a client may ask for what it does. `Err`: the answer to one that may not.
    #[inline]
    fn authorise(&self, task: &Task) -> Result<(), ReplyHead> {
        let RequestHead { id, op, .. } = task.shape.head;
        let may_write = || self.clients.get(task.peer).is_none_or(|client| client.may_write);
        let properties = op.properties();
        // A mirror changes nothing by itself; its clients ask the server that it follows.
        let is_refused = properties.needs_writer && !may_write() || properties.has_effect && self.is_mirror();
        if is_refused {
            return Err(ReplyHead { id, status: Status::Denied, version: 0, location: 0 });
        }
        Ok(())
    }

    /// Whether a write that is to be logged can be. `Err`: the answer to one that cannot.
    #[inline]
    fn refuse_unlogged(&self, task: &Task) -> Result<(), ReplyHead> {
        let head = &task.shape.head;
        let refused = self.clients.held.refuse(head);
        refused.map_or(Ok(()), |status| Err(ReplyHead { id: head.id, status, version: 0, location: 0 }))
    }

    /// Tries a request, and writes its reply into `frame`. `Err`: there is no room, and nothing was done.
    pub(crate) fn try_once(
        &mut self,
        now: Now,
        clock: &impl Clock,
        task: &Task,
        frame: &mut FrameBuffer,
    ) -> Result<(), NoRoom> {
        let head = &task.shape.head;
        if let Some(status) = self.forbid(now, task.peer, head) {
            encode_reply(frame, ReplyHead { id: head.id, status, version: 0, location: 0 });
            return Ok(());
        }
        self.execute(now, clock, task, frame)
    }

    /// Why a request cannot be done now, where that is for its table's sake.
    #[inline]
    fn forbid(&mut self, now: Now, peer: PeerId, head: &RequestHead) -> Option<Status> {
        if self.store.tables.is_empty() {
            return None;
        }
        self.store.tables.forbid(now, self.clients.connection(peer), head)
    }

    /// Executes an operation.
    #[inline(always)]
    fn execute(
        &mut self,
        now: Now,
        clock: &impl Clock,
        task: &Task,
        frame: &mut FrameBuffer,
    ) -> Result<(), NoRoom> {
        let Shard { store, clients, datasets, .. } = self;
        let (peer, hash, head) = (task.peer, task.hash, &task.shape.head);
        if head.table.kind().is_ordered() && store.execute_ordered(task, frame)? {
            return Ok(());
        }
        // Each arm makes a request of its own, so that a put's is never stored: loading it again would wait
        // until what was stored before it, into lines that others have, has got there.
        let answer = match head.op {
            Op::Get => {
                if store.get(&task.request(), hash, frame) {
                    store.tell_model(&task.request(), frame);
                }
                return Ok(());
            }
            Op::Put => store.put_request(now.options_of(head, clock), &task.request(), hash),
            Op::PutMany => unreachable!("handled before"),
            Op::Delete => Ok(store.delete(&task.request(), hash)),
            Op::Scan => {
                store.scan(&task.request(), frame);
                return Ok(());
            }
            Op::RepairLink => Ok(store.repair_link(&task.request(), hash)),
            Op::LargeBegin => {
                let begun = (now.options_of(head, clock), task.order);
                large::begin(store, clients.upload(peer), begun, &task.request())
            }
            Op::LargePiece => Ok(large::add_piece(store, clients.upload(peer), &task.request())),
            Op::LargeCommit => large::commit(store, clients.upload(peer), task.order, &task.request(), hash),
            Op::Ping => Ok(Answer::of(Status::Ok)),
            Op::Used => {
                let words = task.request().body.chunks_exact(8);
                let words = words.map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
                let version = store.hear(words);
                Ok(Answer { status: Status::Ok, version, location: 0 })
            }
            Op::Intern => datasets.intern(store, &task.request()),
            Op::Drop if head.argument == Some(DROP_DATASET) && store.partition.is_first() => {
                Ok(datasets.drop_dataset(now, store, task.request().key))
            }
            Op::Drop => datasets.drop_table(store, clients.connection(peer), &task.request()),
            Op::Build
            | Op::Load
            | Op::Resolve
            | Op::Switch
            | Op::Abandon
            | Op::Hold
            | Op::Freeze
            | Op::Overlays => {
                let client = (peer, clients.connection(peer));
                return datasets.execute(now, store, client, &task.request(), frame);
            }
        };
        let Answer { status, version, location } = answer?;
        encode_reply(frame, ReplyHead { id: head.id, status, version, location });
        Ok(())
    }
}
