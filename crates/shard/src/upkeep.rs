//! What the shard does without being asked: the epoch, expiry, leaves in order, emptying sparse segments.
//! Writes that wait for memory have a file of their own, `waiting`.

use kelix_fabric::{Clock, Mailbox};
use kelix_types::limits::EPOCH_NS;

use crate::evacuation::Emptying;
use crate::shard::{Now, Shard};
use crate::stocktaking::SLOTS_A_STEP;

/// Items that end in one step.
const EXPIRIES_A_STEP: usize = 64;
/// A few leaves are laid out in so long, which takes a twentieth of it, and some ten megabytes a second of
/// whatever follows the shard.
const LAYOUT_NS: u64 = if cfg!(kelix_sim) { 1_000 } else { 250_000 };
/// How long leaves stay as they are behind a round, or where there is no room.
const LAYOUT_PAUSE_NS: u64 = if cfg!(kelix_sim) { 20_000 } else { 1_000_000_000 };

impl Shard {
    /// Does what is due and says when something will be due again.
    pub(crate) fn upkeep(
        &mut self,
        now: Now,
        fabric: &mut (impl Mailbox + Clock),
        renewed: &mut Option<Vec<u64>>,
    ) -> Option<u64> {
        if let Some(mirrored) = &mut self.mirrored {
            return mirrored.upkeep(&mut self.store, now, || fabric.now_ns());
        }
        // First what gives memory back, then the writes that wait for it, oldest first, then the emptying,
        // which takes some itself.
        let expiry_due = self.expire(now);
        let stock_due = self.store.take_stock(SLOTS_A_STEP).then_some(now.monotonic_ns);
        // Models of leaves that move follow them in the same step.
        let layout_due = self.lay_out(now);
        let training_due = match self.store.index.maintain(&mut self.store.image) {
            Ok(more) => more.then_some(now.monotonic_ns),
            Err(_) => Some(now.monotonic_ns + EPOCH_NS),
        };
        let datasets_due = self.datasets.maintain(now, &mut self.store, &self.clients, renewed);
        let [retiring_due, purging_due, numbers_due] = datasets_due;
        let epoch = self.store.image.epoch();
        self.store.image.advance_epoch(now.monotonic_ns, || fabric.now_ns());
        let stepped = self.store.image.epoch() != epoch;
        if !self.parked.is_empty() {
            if stepped || self.parked.is_due(now) {
                self.parked.begin_retry(now);
                self.retry_parked(now, fabric);
            }
        } else if stepped {
            self.evacuation.compact(&mut self.store, now.monotonic_ns);
        }
        self.store.tend_cache(now.monotonic_ns, &mut self.evacuation.places);
        let evacuation_due = self.evacuate(now, fabric);
        let parked_due = self.parked.due();
        [
            self.store.image.epoch_due(),
            expiry_due,
            stock_due,
            layout_due,
            training_due,
            retiring_due,
            purging_due,
            numbers_due,
            evacuation_due,
            parked_due,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Ends items whose time is over, some at a time. Writes that came when it was over wait for their
    /// memory.
    fn expire(&mut self, now: Now) -> Option<u64> {
        let expired = self.store.counters.expired;
        let first = self.store.expiries.next().unwrap_or(0);
        let due = self.store.end_expired(now, EXPIRIES_A_STEP);
        if self.store.counters.expired > expired {
            self.parked.wait_anew(first, self.store.image.epoch());
        }
        due
    }

    /// Lays some leaves of an ordered table out in the order of their keys, while there is memory to spare:
    /// in a cache there is none. Returns when the next ones follow.
    fn lay_out(&mut self, now: Now) -> Option<u64> {
        let store = &mut self.store;
        if store.cache.is_some() || !store.index.wants_order() {
            return None;
        }
        if now.monotonic_ns >= self.layout_ns {
            let has_room = self.parked.is_empty() && store.image.has_reserve();
            let goes_on = has_room && store.index.lay_out(&mut store.image).unwrap_or(false);
            self.layout_ns = now.monotonic_ns + if goes_on { LAYOUT_NS } else { LAYOUT_PAUSE_NS };
        }
        store.index.wants_order().then_some(self.layout_ns)
    }

    /// Moves some objects out of the segment that is being emptied.
    fn evacuate(&mut self, now: Now, fabric: &mut (impl Mailbox + Clock)) -> Option<u64> {
        match self.evacuation.advance(&mut self.store, !self.parked.is_empty()) {
            Emptying::Idle => None,
            Emptying::GoesOn => Some(now.monotonic_ns),
            Emptying::Waits => self.store.image.epoch_due(),
            Emptying::Ended => {
                // Its room is for those who waited: requests that come next are not to take it, nor to begin
                // the next emptying.
                self.retry_parked(now, fabric);
                let image = &self.store.image;
                (image.is_evacuating() && !image.is_emptied()).then_some(now.monotonic_ns)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kelix_image::Kind;
    use kelix_types::limits::EPOCH_NS;
    use kelix_types::{TableId, TableKind};
    use kelix_wire::mailboxes::Mailboxes;
    use kelix_wire::{FrameBuffer, Op, Reply, RequestHead, Status, encode_request};

    use crate::harness::Harness;

    struct World {
        alone: Harness,
        table: TableId,
        random: u64,
    }

    impl World {
        fn new(kind: TableKind, memory_bytes: u64) -> World {
            let alone = Harness::with(1, memory_bytes, &Mailboxes::default());
            World { alone, table: TableId::new(kind, 1), random: 1 }
        }

        fn random(&mut self) -> u64 {
            self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            self.random >> 33
        }

        /// Asks for something while time passes, and whether it was done. It is answered in the same step.
        fn ask(&mut self, op: Op, key: u64, body: &[u8]) -> bool {
            self.alone.now_ns += 50_000;
            let mut frame = FrameBuffer::default();
            encode_request(&mut frame, RequestHead::new(op, 0, self.table), &key.to_be_bytes(), body);
            assert!(self.alone.send(&mut frame).faulty.is_empty());
            let mut payload = Vec::new();
            let at_once = self.alone.pop(&mut payload);
            assert!(at_once || self.alone.shard.owes_answers());
            let payload = if at_once { payload } else { self.alone.answer().expect("an answer") };
            let status = Reply::parse(&payload).expect("a reply").head.status;
            assert!([Status::Ok, Status::Absent, Status::NoRoom].contains(&status), "{status:?}");
            status == Status::Ok
        }

        /// Lets time pass until there is nothing left to be done.
        fn settle(&mut self) {
            let mut steps = 0;
            while let Some(next_ns) = self.alone.step().next_ns {
                self.alone.now_ns = next_ns.max(self.alone.now_ns + 1);
                steps += 1;
                assert!(steps < 1_000_000, "the shard never rests");
            }
        }

        /// Leaves, how many were laid out so far, and the share of them that are followed by one in the same
        /// page of the processor's.
        fn order(&self) -> (u64, u64, f64) {
            let (mut leaves, store) = (Vec::new(), &self.alone.shard.store);
            let index = store.index.ordered(self.table).expect("a table with keys");
            index.for_each_block(&store.image, |kind, place| {
                leaves.extend((kind == Kind::LEAF).then_some(place.0 / 4096));
            });
            let together = leaves.windows(2).filter(|pair| pair[0] == pair[1]).count();
            let counts = index.counts();
            (counts.leaves, counts.laid_out, together as f64 / leaves.len() as f64)
        }
    }

    /// No put waits for it, in the end leaves stand in order, the shard rests, and memory is bounded however
    /// often leaves are laid out.
    #[test]
    fn leaves_come_into_order_and_the_shard_comes_to_rest() {
        const KEYS: u64 = 30_000;
        for kind in [TableKind::Inline, TableKind::Strings] {
            let mut world = World::new(kind, 64 << 20);
            let mut used = Vec::new();
            for round in 0..8 {
                for _ in 0..KEYS {
                    let key = world.random() % KEYS + round % 2 * KEYS;
                    assert!(world.ask(Op::Put, key, &key.to_le_bytes()));
                }
                for number in (0..KEYS).filter(|_| round > 0) {
                    world.ask(Op::Delete, number + (round + 1) % 2 * KEYS, &[]);
                }
                world.settle();
                let (leaves, laid_out, order) = world.order();
                assert!(order > 0.8 && laid_out > (round + 1) * leaves / 2, "{kind}: {order} {laid_out}");
                used.push(world.alone.shard.memory_use().pages);
            }
            assert!(used[7] <= used[2] + used[2] / 8, "{kind}: {used:?}");
            let counters = world.alone.shard.counters();
            assert_eq!((counters.waited, counters.refused), (0, 0));
            world.alone.shard.audit().unwrap();
            world.alone.wipe();
        }
    }

    /// A shard takes as many keys as one that leaves its leaves where they are.
    #[test]
    fn where_memory_is_short_leaves_stay() {
        let taken = |moves: bool| {
            let mut world = World::new(TableKind::Numbers, 24 << 20);
            world.alone.shard.layout_ns = if moves { 0 } else { u64::MAX };
            let mut count = 0;
            loop {
                let key = world.random();
                if !world.ask(Op::Put, key, &[7; 40]) {
                    break;
                }
                count += 1;
            }
            let (_, laid_out, _) = world.order();
            assert_eq!(laid_out > 0, moves);
            for _ in 0..200 {
                world.alone.now_ns += EPOCH_NS;
                world.alone.step();
            }
            assert_eq!(world.order().1, laid_out, "leaves moved in a memory that is full");
            world.alone.shard.audit().unwrap();
            world.alone.wipe();
            count
        };
        let (moved, stayed) = (taken(true), taken(false));
        assert!(moved * 100 >= stayed * 99, "{moved} keys, and {stayed} where leaves stay");
    }
}
