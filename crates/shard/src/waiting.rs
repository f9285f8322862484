//! Writes that find no room: what they wait for, and when they are refused.
//!
//! A write that finds no room is *parked* and tried again whenever memory came back, before anything else
//! takes it, the oldest first. It is refused by the first try that fails when all of this is over
//! (docs/design/0001-the-spine.md, "A write that finds no room"):
//!
//! 1. items whose time was over when it came have ended;
//! 2. what was dead when it came, when one of those items ended, or when an older parked write was served,
//!    has had its quarantine;
//! 3. no segment is being emptied;
//! 4. none of the segments that were open when it came is worth emptying for it.
//!
//! No time is measured: a shard that was stopped, or is not given the processor, finds everything as it left
//! it. Each of the four ends ([`may_find_room`] says why), so a write is answered after a bounded number of
//! steps. Other requests are served meanwhile; only a client with [`PARKED_MAX`] parked writes has to wait
//! for one to be answered.

use std::collections::VecDeque;

use kelix_fabric::{Clock, Mailbox, PeerId};
use kelix_image::NoRoom;
use kelix_types::limits::{EPOCH_NS, QUARANTINE_EPOCHS};
use kelix_types::mark;
use kelix_wire::{FrameBuffer, Op, ReplyHead, Status, encode_reply};

use crate::large;
use crate::request::Task;
use crate::shard::{Now, Shard};
use crate::store::Store;

/// Most requests of a client that wait for memory.
pub(crate) const PARKED_MAX: usize = 256;
/// A segment is worth emptying for a write when at most this share of it is in use.
const ROOM_PERCENT: u64 = 75;

/// A request that waits for memory.
struct ParkedWrite {
    task: Task,
    came: Came,
}

/// Requests that wait for memory, the oldest first.
#[derive(Default)]
pub(crate) struct ParkedWrites {
    writes: VecDeque<ParkedWrite>,
    /// When they are tried once more, whatever happens.
    retry_ns: u64,
    /// Writes that waited so far.
    waited: u64,
    /// Writes that were refused.
    refused: u64,
}

impl ParkedWrites {
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Writes that waited so far, and those that were refused.
    pub fn counters(&self) -> (u64, u64) {
        (self.waited, self.refused)
    }

    /// A client has gone, and what it had parked goes with it.
    pub fn forget(&mut self, peer: PeerId) {
        self.writes.retain(|parked| parked.task.peer != peer);
    }

    /// Something that writes wait for which came at that time or later went into quarantine in this epoch.
    pub fn wait_anew(&mut self, since_wall_ns: u64, epoch: u64) {
        for ParkedWrite { came, .. } in &mut self.writes {
            if came.wall_ns >= since_wall_ns {
                came.epoch = epoch;
            }
        }
    }

    /// When they are tried once more.
    pub fn due(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.retry_ns)
    }

    /// Whether they are tried once more though no epoch has begun.
    pub fn is_due(&self, now: Now) -> bool {
        now.monotonic_ns >= self.retry_ns
    }

    /// They are tried once more.
    pub fn begin_retry(&mut self, now: Now) {
        self.retry_ns = now.monotonic_ns + EPOCH_NS;
    }
}

/// The state of things when a write came: what there was then it may wait for.
#[derive(Clone, Copy)]
struct Came {
    wall_ns: u64,
    /// Later if something that it waited for came to its quarantine later.
    epoch: u64,
    openings: u64,
}

/// What became of a request.
#[derive(PartialEq, Eq)]
enum Fate {
    Served,
    Parked,
    Refused,
}

impl Shard {
    /// A write that came just now found no room: it is parked, or refused.
    #[cold]
    pub(crate) fn wait_for_room(
        &mut self,
        now: Now,
        fabric: &mut impl Mailbox,
        task: &mut Task,
        no_room: NoRoom,
        frame: &mut FrameBuffer,
    ) {
        let wall_ns = now.wall_ns;
        let came = Came { wall_ns, epoch: self.store.image.epoch(), openings: self.store.image.openings() };
        if self.park_or_refuse(now, fabric, task, (no_room, came), frame) == Fate::Parked {
            mark!("write waited for memory");
            self.parked.waited += 1;
        }
    }

    /// Tries what waits for memory once more.
    pub(crate) fn retry_parked(&mut self, now: Now, fabric: &mut (impl Mailbox + Clock)) {
        let mut served = false;
        let mut frame = std::mem::take(&mut self.requests.frame);
        for _ in 0..self.parked.writes.len() {
            let ParkedWrite { mut task, mut came } = self.parked.writes.pop_front().expect("counted");
            self.clients.note_unparked(task.peer);
            // The log may have failed, or its disk may have become full, since the write came.
            if let Some(status) = self.clients.held.refuse(&task.shape.head) {
                self.give_up(&task, status, &mut frame);
                self.clients.refuse(fabric, &task, &mut frame);
                continue;
            }
            if served {
                // An older one took what this one waited for, and left behind what it replaced.
                came.epoch = self.store.image.epoch();
            }
            self.store.set_retrying(true);
            let tried = self.try_once(now, fabric, &task, &mut frame);
            self.store.set_retrying(false);
            let fate = match tried {
                Ok(()) => {
                    self.clients.answer(fabric, &task, &mut frame, (&self.store, &self.recorder));
                    Fate::Served
                }
                Err(no_room) => self.park_or_refuse(now, fabric, &mut task, (no_room, came), &mut frame),
            };
            served |= fate == Fate::Served;
        }
        self.requests.frame = frame;
    }

    #[cold]
    fn park_or_refuse(
        &mut self,
        now: Now,
        fabric: &mut impl Mailbox,
        task: &mut Task,
        (no_room, came): (NoRoom, Came),
        frame: &mut FrameBuffer,
    ) -> Fate {
        let peer = task.peer;
        if !may_find_room(&mut self.store, now, no_room, came) {
            mark!("write refused for lack of memory");
            self.parked.refused += 1;
            self.give_up(task, Status::NoRoom, frame);
            self.clients.answer(fabric, task, frame, (&self.store, &self.recorder));
            return Fate::Refused;
        }
        self.store.image.hurry();
        self.parked.writes.push_back(ParkedWrite { task: std::mem::replace(task, Task::idle(peer)), came });
        self.clients.note_parked(peer);
        Fate::Parked
    }

    /// The answer to a write that is not done. Pieces of a value that cannot be committed go.
    fn give_up(&mut self, task: &Task, status: Status, frame: &mut FrameBuffer) {
        let request = &task.shape.head;
        if request.op == Op::LargeCommit {
            if let Some(upload) = large::take(self.clients.upload(task.peer), task.order) {
                upload.abandon(&mut self.store.image);
            }
        }
        encode_reply(frame, ReplyHead { id: request.id, status, version: 0, location: 0 });
    }
}

/// Whether a write that just found no room is to wait. If only a segment that is still to be emptied can
/// help, begins to empty it.
///
/// Each reason ends. The items whose time was over when it came become fewer with each step. The epoch steps
/// as long as anything is in quarantine, and what it waits for begins anew only with one of those items or
/// with an older write that leaves the queue. Emptying a segment waits for two epochs at most and else moves
/// on with each step; while a write waits only writes begin it, the oldest first, and each at most once a
/// segment that was open when it came.
fn may_find_room(store: &mut Store, now: Now, no_room: NoRoom, came: Came) -> bool {
    if store.may_make_room(no_room, came.openings) {
        return true;
    }
    let over_by = came.wall_ns.min(now.wall_ns);
    let ends = store.expiries.next().is_some_and(|expires| expires <= over_by);
    let quarantined = store.image.memory_use().quarantined > 0;
    let ripens = quarantined && store.image.epoch() < came.epoch + QUARANTINE_EPOCHS;
    no_room.wait
        && (ends
            || ripens
            || store.image.is_evacuating()
            || store.image.begin_evacuation_for_write(ROOM_PERCENT, came.openings))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use kelix_image::{Header, ImageConfig, PrivateSegments, Span};
    use kelix_log::{LogControl, LogState};
    use kelix_types::TableId;
    use kelix_types::limits::{EPOCH_NS, MESSAGE_VALUE_BYTES_MAX, VIEW_LEASE_NS};
    use kelix_wire::mailboxes::{Mailboxes, PEER};
    use kelix_wire::{
        FrameBuffer, Op, Reply, RequestHead, RequestShape, RingReader, RingShape, Status, View,
        encode_request,
    };

    use super::PARKED_MAX;
    use crate::harness::CLIENT;
    use crate::held::Durability;
    use crate::places::Places;
    use crate::request::Task;
    use crate::shard::{Now, Shard, ShardConfig};

    const MIB: u64 = 1 << 20;
    const TABLE: TableId = TableId(1);
    /// More than a write waits for anything in its client.
    const LONG: u64 = 10_000_000_000;

    /// A shard with one client, and the time. Requests are handed to the shard by hand.
    struct World {
        shard: Shard,
        fabric: Mailboxes,
        clients_side: Mailboxes,
        replies: RingReader,
        answers: HashMap<u32, Status>,
        now: Now,
        /// How much time goes by between two steps at least: what a shard sees that is not given the
        /// processor.
        pause_ns: u64,
        next_id: u32,
        steps: usize,
    }

    fn world(memory_bytes: u64) -> World {
        let image = ImageConfig {
            image_id: 1,
            hash_seed: 2,
            term: 1,
            incarnation: kelix_types::Incarnation::first_of_term(1),
            epoch_ns: EPOCH_NS,
            epoch_ns_usual: EPOCH_NS,
            memory_bytes,
            segment_bytes_first: 4 * MIB,
            segment_bytes_max: 4 * MIB,
            keeps_journal: false,
        };
        let config = ShardConfig {
            number: 0,
            view: View::of_shards(1, 2, 1),
            image,
            view_lease_ns: VIEW_LEASE_NS,
            is_cache: false,
        };
        let mut shard =
            Shard::create(config, Span::private(Header::BYTES), Box::new(PrivateSegments::default()))
                .unwrap();
        shard.join(PEER, CLIENT);
        // So that segments are emptied for writes that wait, and for nothing else.
        while shard.evacuation.places.spend(1, LONG) {}
        let mut fabric = Mailboxes::new();
        fabric.now_ns = LONG;
        let (clients_side, replies) = (fabric.turned(), RingReader::new(RingShape::of_messages(true)));
        let now = Now { monotonic_ns: LONG, wall_ns: LONG };
        let answers = HashMap::new();
        World { shard, fabric, clients_side, replies, answers, now, pause_ns: 0, next_id: 0, steps: 0 }
    }

    impl World {
        fn head(&mut self, op: Op) -> RequestHead {
            self.next_id += 1;
            RequestHead::new(op, self.next_id, TABLE)
        }

        /// Hands in a request; its answer, if there is one at once.
        fn submit(&mut self, head: RequestHead, key: &[u8], body: &[u8]) -> Option<Status> {
            let mut frame = FrameBuffer::default();
            encode_request(&mut frame, head, key, body);
            let payload = frame.payload().to_vec();
            let shape = RequestShape::parse(&payload).expect("a request");
            let hash = self.shard.store.index.hash(head.table, key);
            self.shard.handle(self.now, &mut self.fabric, &mut Task::new(PEER, payload, shape, hash));
            self.answer(head.id)
        }

        fn answer(&mut self, id: u32) -> Option<Status> {
            self.take_answers();
            self.answers.remove(&id)
        }

        fn take_answers(&mut self) {
            let mut payload = Vec::new();
            while self.replies.pop(&mut self.clients_side, PEER, &mut payload).expect("a sound ring") {
                let reply = Reply::parse(&payload).expect("a reply");
                self.answers.insert(reply.head.id, reply.head.status);
            }
        }

        /// Lets the time go by until the shard has something to do, and lets it.
        fn step(&mut self) -> Option<u64> {
            self.steps += 1;
            let next = self.shard.step(self.now, &mut self.fabric).next_ns?;
            let passed = next.saturating_sub(self.now.monotonic_ns).max(self.pause_ns);
            self.now.monotonic_ns += passed;
            self.now.wall_ns += passed;
            self.fabric.now_ns = self.now.monotonic_ns;
            Some(next)
        }

        fn until_quiet(&mut self) {
            while self.step().is_some() {}
        }

        /// The answer to a request, however long it takes.
        fn call(&mut self, head: RequestHead, key: &[u8], body: &[u8]) -> Status {
            let mut answer = self.submit(head, key, body);
            while answer.is_none() {
                let next = self.step();
                answer = self.answer(head.id);
                assert!(answer.is_some() || next.is_some(), "a write waits for nothing");
            }
            answer.expect("the loop ended")
        }

        /// Takes the answers to requests that came then and found so many ahead of them. Checks that none
        /// waited longer than docs/design/0001-the-spine.md says, and says how many epochs the longest
        /// waited.
        fn settle(&mut self, came: &mut HashMap<u32, (u64, u64)>, segments: u64) -> u64 {
            let mut longest = 0;
            self.take_answers();
            for id in std::mem::take(&mut self.answers).into_keys() {
                let Some((since_ns, ahead)) = came.remove(&id) else { continue };
                let epochs = (self.now.monotonic_ns - since_ns).div_ceil(EPOCH_NS);
                let bound = 4 * (segments + 1) + 2 * (ahead + 1);
                assert!(epochs <= bound, "{epochs} epochs behind {ahead} writes, with {segments} segments");
                longest = longest.max(epochs);
            }
            longest
        }

        fn put(&mut self, key: u64, bytes: usize) -> Status {
            let head = self.head(Op::Put);
            self.call(head, &key.to_le_bytes(), &vec![7; bytes])
        }

        fn delete(&mut self, key: u64) {
            let head = self.head(Op::Delete);
            assert_eq!(self.call(head, &key.to_le_bytes(), &[]), Status::Ok);
        }

        /// Puts values under new keys until there is no room, and says how many there are.
        fn fill(&mut self, bytes: usize) -> u64 {
            (0..).find(|key| self.put(*key, bytes) == Status::NoRoom).expect("an end")
        }

        /// Fills the store and deletes all but every `keep`-th value.
        fn fill_and_thin_out(&mut self, bytes: usize, keep: u64) {
            let count = self.fill(bytes);
            (0..count).filter(|key| key % keep != 0).for_each(|key| self.delete(key));
        }

        fn large_begin(&mut self, key: &[u8], bytes: u64) -> Status {
            let head = RequestHead { argument: Some(bytes), ..self.head(Op::LargeBegin) };
            self.call(head, key, &[])
        }

        fn large_rest(&mut self, key: &[u8], bytes: u64) -> Status {
            self.large_pieces(bytes);
            let head = self.head(Op::LargeCommit);
            self.call(head, key, &[])
        }

        fn large_pieces(&mut self, bytes: u64) {
            let value = vec![7; bytes as usize];
            for (number, piece) in value.chunks(MESSAGE_VALUE_BYTES_MAX).enumerate() {
                let at = (number * MESSAGE_VALUE_BYTES_MAX) as u64;
                let head = RequestHead { argument: Some(at), ..self.head(Op::LargePiece) };
                assert_eq!(self.call(head, &[], piece), Status::Ok);
            }
        }

        fn free_page_bytes(&self) -> u64 {
            let now = self.shard.memory_use();
            now.limit - now.pages
        }
    }

    /// A write waited half a second at most, whatever was going on: a shard that was not given the processor,
    /// or that had to empty several segments, refused writes for which memory was on its way.
    #[test]
    fn a_write_waits_for_as_many_segments_as_it_needs_however_slow_the_shard_is() {
        for pause_ns in [0, 300_000_000, LONG] {
            let mut world = world(32 * MIB);
            world.fill_and_thin_out(1000, 4);
            world.until_quiet();
            assert!(world.free_page_bytes() < MIB);
            world.pause_ns = pause_ns;
            let before = world.shard.memory_use().segments_retired;
            let bytes = 9 * MIB;
            assert_eq!(world.large_begin(b"large", bytes), Status::Ok, "pause {pause_ns}");
            assert!(world.shard.memory_use().segments_retired > before + 1);
            assert_eq!(world.large_rest(b"large", bytes), Status::Ok);
        }
    }

    /// A client gave an upload up whose beginning, or whose end, waited for memory, and began another one.
    /// What waited was tried again, and took the place of the new upload, or ended it. Found by the
    /// simulator.
    #[test]
    fn an_upload_that_was_given_up_leaves_the_next_one_alone() {
        let (new, new_bytes) = (b"new", 64 << 10);
        let mut world = world(32 * MIB);
        world.fill_and_thin_out(1000, 4);
        world.until_quiet();
        let old = RequestHead { argument: Some(9 * MIB), ..world.head(Op::LargeBegin) };
        assert_eq!(world.submit(old, b"old", &[]), None);
        assert_eq!(world.large_begin(new, new_bytes), Status::Ok);
        world.until_quiet();
        assert_eq!(world.answer(old.id), Some(Status::Refused));
        assert_eq!(world.large_rest(new, new_bytes), Status::Ok);

        let mut world = self::world(32 * MIB);
        world.fill_and_thin_out(1000, 4);
        world.until_quiet();
        assert_eq!(world.large_begin(b"first", 3 * MIB), Status::Ok);
        assert_eq!(world.large_rest(b"first", 3 * MIB), Status::Ok);
        world.until_quiet();
        let (key, bytes) = ([9; 5000], world.free_page_bytes());
        assert_eq!(world.large_begin(&key, bytes), Status::Ok);
        world.large_pieces(bytes);
        let old = world.head(Op::LargeCommit);
        assert_eq!(world.submit(old, &key, &[]), None);
        assert_eq!(world.large_begin(new, new_bytes), Status::Ok);
        world.until_quiet();
        assert_eq!(world.answer(old.id), Some(Status::Refused));
        assert_eq!(world.large_rest(new, new_bytes), Status::Ok);
    }

    /// The pieces stood in memory, and the value was refused because its header, or the slot's slab, came
    /// late.
    #[test]
    fn the_header_of_a_large_value_waits_for_a_segment_too() {
        for pause_ns in [0, 300_000_000, LONG] {
            let mut world = world(32 * MIB);
            world.fill_and_thin_out(1000, 4);
            world.until_quiet();
            assert_eq!(world.large_begin(b"first", 3 * MIB), Status::Ok);
            assert_eq!(world.large_rest(b"first", 3 * MIB), Status::Ok);
            world.until_quiet();
            let key = [9; 5000];
            let bytes = world.free_page_bytes();
            assert!(bytes > MIB);
            assert_eq!(world.large_begin(&key, bytes), Status::Ok);
            assert!(world.free_page_bytes() == 0);
            world.pause_ns = pause_ns;
            assert_eq!(world.large_rest(&key, bytes), Status::Ok, "pause {pause_ns}");
        }
    }

    #[test]
    fn a_write_waits_for_items_whose_time_is_over() {
        let mut world = world(16 * MIB);
        let ends_in = 1000 * LONG;
        for key in 0u64.. {
            let head = RequestHead { expiry: Some(kelix_wire::Expiry::In(ends_in)), ..world.head(Op::Put) };
            if world.call(head, &key.to_le_bytes(), &[7; 1000]) == Status::NoRoom {
                break;
            }
        }
        world.now.wall_ns += ends_in;
        // The memory of all of them has to come back for it.
        assert_eq!(world.large_begin(b"large", 8 * MIB), Status::Ok);
    }

    /// A shard that was stopped takes requests that came after it had looked at its clock.
    #[test]
    fn an_item_lives_as_long_as_its_put_says() {
        let mut world = world(16 * MIB);
        world.fabric.now_ns += LONG;
        let head = RequestHead { expiry: Some(kelix_wire::Expiry::In(LONG / 2)), ..world.head(Op::Put) };
        assert_eq!(world.submit(head, b"key", b"value"), Some(Status::Ok));
        for (passed_ns, status) in [(LONG, Status::Ok), (LONG / 2, Status::Absent)] {
            world.now.monotonic_ns += passed_ns;
            world.now.wall_ns += passed_ns;
            world.step();
            let head = world.head(Op::Get);
            assert_eq!(world.submit(head, b"key", b""), Some(status));
        }
    }

    /// Writes that replace values need a slot first and give one back. With more of them under way than there
    /// are slots to spare, the later ones wait for what the earlier ones leave.
    #[test]
    fn writes_that_wait_in_a_row_wait_for_each_other() {
        for pause_ns in [0, 300_000_000] {
            let mut world = world(16 * MIB);
            let count = world.fill(1000);
            world.delete(0);
            world.until_quiet();
            world.pause_ns = pause_ns;
            let before = world.shard.counters();
            let heads: Vec<_> = (0..40).map(|_| world.head(Op::Put)).collect();
            for (key, head) in (1..count).step_by(50).zip(&heads) {
                world.submit(*head, &key.to_le_bytes(), &[8; 1000]);
            }
            world.until_quiet();
            let now = world.shard.counters();
            assert_eq!((now.waited, now.refused), (before.waited + 39, before.refused));
        }
    }

    #[test]
    fn a_write_that_never_finds_room_is_refused_however_much_others_write() {
        for pause_ns in [0, LONG] {
            let mut world = world(32 * MIB);
            world.fill_and_thin_out(1000, 2);
            world.until_quiet();
            world.pause_ns = pause_ns;
            // Half is in use. The second is tried for, because it would fit if all values stood without gaps.
            for (bytes, hopeless) in [(20 * MIB, true), (14 * MIB, false), (24 * MIB, true)] {
                let (before, retired) = (world.steps, world.shard.memory_use().segments_retired);
                let head = RequestHead { argument: Some(bytes), ..world.head(Op::LargeBegin) };
                let mut answer = world.submit(head, b"large", &[]);
                for key in (0..4000).step_by(2).cycle() {
                    if answer.is_some() {
                        break;
                    }
                    // Somebody replaces values all the time, and is served all the time.
                    let other = world.head(Op::Put);
                    let served = world.submit(other, &u64::to_le_bytes(key), &[9; 1000]);
                    assert_eq!(served, Some(Status::Ok));
                    world.step();
                    answer = world.answer(head.id);
                    // Each of eight segments has at most 4096 slots that move, 64 a step, and some epochs
                    // pass.
                    let steps = world.steps - before;
                    assert!(steps < 9 * (4096 / 64 + 8), "{steps} steps");
                }
                if hopeless {
                    assert_eq!(answer, Some(Status::NoRoom));
                    let now = world.shard.memory_use().segments_retired;
                    assert!(now == retired, "{} segments were emptied in vain", now - retired);
                }
            }
            world.until_quiet();
            let now = world.shard.memory_use();
            assert!(now.segments <= now.limit, "{now:?}");
        }
    }

    #[test]
    fn the_limit_is_kept_whatever_is_written_while_a_segment_is_emptied() {
        let mut world = world(32 * MIB);
        for round in 0..6 {
            world.fill_and_thin_out(600 + 700 * round, 5);
            for bytes in [MIB + 1, 3 * MIB, 6 * MIB] {
                assert_eq!(world.large_begin(b"large", bytes), Status::Ok, "round {round}");
                assert_eq!(world.large_rest(b"large", bytes), Status::Ok, "round {round}");
            }
            let head = world.head(Op::Delete);
            assert_eq!(world.call(head, b"large", &[]), Status::Ok);
            world.until_quiet();
            let now = world.shard.memory_use();
            assert!(now.segments <= now.limit, "round {round}: {now:?}");
        }
    }

    /// Requests that came when an emptying ended were executed before the writes that had waited for it: they
    /// took the room, and could begin the next emptying. And they took pages of the segment that was added
    /// for what had to leave.
    #[test]
    fn what_an_emptying_brings_is_for_the_oldest_write_that_waits() {
        for bytes in [2 * MIB, 4 * MIB, 6 * MIB] {
            let mut world = world(32 * MIB);
            world.fill_and_thin_out(1000, 4);
            world.until_quiet();
            let oldest = RequestHead { argument: Some(bytes), ..world.head(Op::LargeBegin) };
            let mut answer = world.submit(oldest, b"oldest", &[]);
            assert!(answer.is_none());
            while answer.is_none() {
                let other = RequestHead { argument: Some(bytes), ..world.head(Op::LargeBegin) };
                let served = world.submit(other, b"other", &[]);
                assert_eq!(served, None, "{bytes} bytes for one that came later");
                world.step();
                answer = world.answer(oldest.id);
            }
            assert_eq!(answer, Some(Status::Ok));
        }
    }

    #[test]
    fn memory_that_is_in_use_here_and_there_comes_back_without_a_write_that_needs_it() {
        let flags = |key: u64| (key / 4 % 3) as u32;
        for (segments, comes_back) in [(2048, true), (0, false)] {
            let mut world = world(128 * MIB);
            world.shard.evacuation.places = Places::new(4 * MIB);
            world.shard.evacuation.places.spend(2048 - segments, LONG);
            for (round, bytes) in (0u64..).zip([1000, 100, 30_000]) {
                for key in (round << 32..).take(20 * MIB as usize / bytes) {
                    let head = RequestHead { client_flags: flags(key), ..world.head(Op::Put) };
                    assert_eq!(world.call(head, &key.to_le_bytes(), &vec![7; bytes]), Status::Ok);
                }
                let gone = (round << 32..).take(20 * MIB as usize / bytes).filter(|key| key % 4 != 0);
                gone.for_each(|key| world.delete(key));
            }
            // Writes go on, but what they need in quarantine is little.
            for _ in 0..50 {
                world.put(1, 1000);
                world.until_quiet();
            }
            let now = world.shard.memory_use();
            assert_eq!(now.pages < now.live * 3 / 2, comes_back, "{now:?}");
            assert_eq!(world.shard.store.image.is_wasteful(), !comes_back);
            assert_eq!(now.segments_retired > 0, comes_back);
            // What was moved is what it was.
            assert_eq!(world.shard.counters().evacuated > 1000, comes_back);
            for key in (0u64..).step_by(4).take(1000) {
                let bytes = key.to_le_bytes();
                let hash = world.shard.store.index.hash(TABLE, &bytes);
                let found = world
                    .shard
                    .store
                    .index
                    .find(&world.shard.store.image, hash, TABLE, &bytes)
                    .expect("it is kept");
                assert_eq!(
                    world.shard.store.copy_item(found.location, |item| item.client_flags()),
                    flags(key)
                );
            }
            world.shard.audit().unwrap();
        }
    }

    /// A write that waited for memory was done, and acknowledged, also where the log had failed meanwhile,
    /// though none that came then was.
    #[test]
    fn a_write_that_waits_is_refused_when_the_log_takes_none_any_more() {
        for state in [LogState::Writes, LogState::Full, LogState::Failed] {
            let mut world = world(16 * MIB);
            world.fill(1000);
            world.until_quiet();
            let control = LogControl::new();
            let log = control.shard(world.shard.end());
            let reader = Some(world.shard.write_log(log, Durability::Lazy));
            world.delete(0);
            let head = world.head(Op::Put);
            assert_eq!(world.submit(head, b"new", &[7; 1000]), None);
            assert_eq!(world.shard.parked.len(), 1);
            control.set_state(state);
            let _reader = reader.filter(|_| state != LogState::Failed);
            let mut answer = None;
            while answer.is_none() {
                let next = world.step();
                answer = world.answer(head.id);
                assert!(answer.is_some() || next.is_some(), "a write waits for nothing");
            }
            let (told, found) = match state {
                LogState::Writes => (Status::Ok, Status::Ok),
                _ => (Status::ReadOnly, Status::Absent),
            };
            assert_eq!(answer, Some(told), "{state:?}");
            let get = world.head(Op::Get);
            assert_eq!(world.call(get, b"new", &[]), found, "{state:?}");
            world.shard.audit().unwrap();
        }
    }

    /// What the other tests leave to chance: how long a write waits in the worst case. As many writes wait as
    /// one client may have, and each is answered within the bound that the design states (`World::settle`).
    #[test]
    fn a_write_is_answered_within_a_bounded_number_of_epochs() {
        // Of a hundred requests so many replace values, so many are new, and the rest are large; one value in
        // so many is kept, and so many slots more are free.
        for (replace, add, keep, spare) in
            [(100, 0, 1, 1), (100, 0, 1, 3), (50, 50, 3, 0), (40, 40, 2, 7), (0, 100, 2, 0), (0, 0, 2, 0)]
        {
            let mut world = world(16 * MIB);
            let count = world.fill(1000);
            (0..count).filter(|key| key % keep != 0 || key / keep < spare).for_each(|key| world.delete(key));
            world.until_quiet();
            let segments = world.shard.store.image.segments().count() as u64;
            let mut came = HashMap::new();
            for asked in 0..10_000 {
                if world.shard.parked.len() == PARKED_MAX {
                    break;
                }
                let kind = asked * 37 % 100;
                let (head, key, bytes) = if kind < replace {
                    (world.head(Op::Put), (asked * 7919 % count).max(spare * keep) / keep * keep, 1000)
                } else if kind < replace + add {
                    (world.head(Op::Put), 1 << 32 | asked, 1000 + asked % 2 * 2000)
                } else {
                    let bytes = MIB + asked * 7919 % (7 * MIB);
                    (RequestHead { argument: Some(bytes), ..world.head(Op::LargeBegin) }, 1 << 60, 0)
                };
                let ahead = world.shard.parked.len() as u64;
                if world.submit(head, &key.to_le_bytes(), &vec![8; bytes as usize]).is_none() {
                    came.insert(head.id, (world.now.monotonic_ns, ahead));
                }
                if asked % 64 == 0 {
                    world.step();
                    world.settle(&mut came, segments);
                }
            }
            let mut longest = 0;
            while !came.is_empty() {
                let next = world.step();
                longest = longest.max(world.settle(&mut came, segments));
                assert!(next.is_some() || came.is_empty(), "a write waits for nothing");
            }
            if (replace, spare) == (100, 1) {
                // One slot, which each of them leaves to the next after two epochs.
                assert!(longest > 2 * (PARKED_MAX as u64 - 2), "{longest} epochs");
            }
        }
    }
}
