//! Caches that are full.

use std::collections::{HashMap, VecDeque};

use kelix_image::ItemView;
use kelix_types::{TableId, TableKind};
use kelix_wire::mailboxes::Mailboxes;
use kelix_wire::{FrameBuffer, Op, Reply, RequestHead, Status, encode_request};

use crate::harness::Harness;

const TABLE: TableId = TableId(1);
const MIB: u64 = 1 << 20;

struct World {
    alone: Harness,
    random: u64,
    asked: usize,
}

impl World {
    fn new(memory_bytes: u64) -> World {
        World { alone: Harness::cache(memory_bytes, &Mailboxes::default()), random: 1, asked: 0 }
    }

    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.random >> 33
    }

    fn unit(&mut self) -> f64 {
        self.random() as f64 / (1u64 << 31) as f64
    }

    fn ask(&mut self, head: RequestHead, key: &[u8], body: &[u8]) -> (Status, Option<Vec<u8>>) {
        // An epoch for each so many bytes of requests.
        self.asked += 200 + body.len();
        if self.asked > 50_000 {
            self.asked = 0;
            self.alone.pass_epoch();
        }
        let mut frame = FrameBuffer::default();
        encode_request(&mut frame, head, key, body);
        assert!(self.alone.send(&mut frame).faulty.is_empty());
        let payload = self.alone.answer().expect("an answer");
        let reply = Reply::parse(&payload).expect("a reply");
        (reply.head.status, ItemView::new(reply.item).map(|item| item.body().to_vec()))
    }

    fn put(&mut self, key: u64, bytes: usize) {
        let (status, _) =
            self.ask(RequestHead::new(Op::Put, 0, TABLE), &key.to_be_bytes(), &vec![key as u8; bytes]);
        assert_eq!(status, Status::Ok, "key {key} of {bytes} bytes: {:?}", self.alone.shard.memory_use());
    }

    /// The length of its value, if it is there.
    fn get(&mut self, key: u64) -> Option<usize> {
        let (status, value) = self.ask(RequestHead::new(Op::Get, 0, TABLE), &key.to_be_bytes(), &[]);
        assert_eq!(status == Status::Ok, value.is_some());
        let value = value?;
        assert!(value.iter().all(|byte| *byte == key as u8));
        Some(value.len())
    }

    /// Gets it, and puts it if it is not there. Whether it was.
    fn want(&mut self, key: u64, bytes: usize) -> bool {
        let found = self.get(key).is_some();
        if !found {
            self.put(key, bytes);
        }
        found
    }

    fn live_share(&self) -> f64 {
        let memory = self.alone.shard.memory_use();
        memory.live as f64 / memory.limit as f64
    }
}

/// The share of hits of a cache of so many equal items that lets go what was not used for longest.
fn lru(keys: &[u64], items: usize) -> f64 {
    let (mut last, mut order, mut hits) = (HashMap::new(), VecDeque::new(), 0);
    for (now, key) in keys.iter().enumerate() {
        hits += usize::from(last.insert(*key, now).is_some());
        order.push_back((now, *key));
        while last.len() > items {
            let (then, key) = order.pop_front().expect("as many as there are");
            if last.get(&key) == Some(&then) {
                last.remove(&key);
            }
        }
    }
    hits as f64 / keys.len() as f64
}

#[test]
fn a_full_cache_takes_all_writes_and_keeps_what_is_new() {
    let mut world = World::new(32 * MIB);
    for key in 0..200_000 {
        let bytes = [80, 300, 1000, 4000][world.random() as usize % 4];
        world.put(key, bytes);
        assert_eq!(world.get(key), Some(bytes));
    }
    world.alone.shard.audit().unwrap();
    let counters = world.alone.shard.counters();
    assert!(counters.evicted > 100_000 && counters.refused == 0, "{counters:?}");
    assert_eq!(counters.items + counters.evicted, 200_000);
    assert!(world.live_share() > 0.7, "{:?}", world.alone.shard.memory_use());
}

#[test]
fn what_is_used_often_stays() {
    let mut world = World::new(32 * MIB);
    // Zipf's law over 200,000 keys, with a scan of keys that come once in between.
    let mut keys = Vec::new();
    for number in 0..300_000u64 {
        let rank = (200_000f64.powf(world.unit())) as u64;
        keys.push(if number % 3 == 0 { 1_000_000 + number } else { rank });
    }
    let hits = keys.iter().filter(|key| world.want(**key, 900)).count() as f64 / keys.len() as f64;
    let items = world.alone.shard.counters().items as usize;
    let least = lru(&keys, items);
    assert!(hits > least, "{hits} of {items} items, where the least recently used goes: {least}");
}

#[test]
fn no_epoch_of_use_comes_again_while_a_cache_fills() {
    let mut world = World::new(32 * MIB);
    let mut epochs = vec![0];
    for key in 0..30_000 {
        world.put(key, 900);
        let epoch = world.alone.shard.store.hear(std::iter::empty());
        assert!(epoch >= epochs[epochs.len() - 1], "{epoch} after {epochs:?}, {key} puts");
        epochs.push(epoch);
    }
    epochs.dedup();
    assert!(epochs.len() > 8, "{epochs:?}");
}

#[test]
fn sizes_that_change_get_the_memory_of_those_before() {
    let mut world = World::new(32 * MIB);
    let mut key = 0;
    for bytes in [100, 5000, 60_000, 700, 100] {
        for _ in 0..3 * 32 * MIB as usize / bytes {
            key += 1;
            world.put(key, bytes);
        }
        world.alone.shard.audit().unwrap();
        let kinds = world.alone.shard.image().kind_uses();
        let most = kinds.filter(|kind| kind.kind.is_item()).max_by_key(|kind| kind.slab_bytes).unwrap();
        let slot = most.kind.slot_bytes() as usize;
        assert!((bytes..2 * bytes + 100).contains(&slot), "{slot} for {bytes}");
        assert!(most.slab_bytes > 16 * MIB, "{most:?} for {bytes}");
    }
    assert_eq!(world.alone.shard.counters().refused, 0);
}

/// The share of hits of exact LRU of so many bytes.
fn lru_of_bytes(requests: &[(u64, usize)], limit: usize) -> f64 {
    let (mut last, mut order, mut used, mut hits) = (HashMap::new(), VecDeque::new(), 0, 0);
    for (now, (key, bytes)) in requests.iter().enumerate() {
        match last.insert(*key, now) {
            Some(_) => hits += 1,
            None => used += bytes,
        }
        order.push_back((now, *key, *bytes));
        while used > limit {
            let (then, key, bytes) = order.pop_front().expect("what is used");
            if last.get(&key) == Some(&then) {
                last.remove(&key);
                used -= bytes;
            }
        }
    }
    hits as f64 / requests.len() as f64
}

/// A segment whose slabs were some of each class was never emptied: each class seemed to lose all it had. So
/// a few long values kept the room of very many short ones.
#[test]
fn short_values_get_the_room_of_long_ones() {
    let mut world = World::new(32 * MIB);
    let mut requests = Vec::new();
    for _ in 0..300_000 {
        let key = (60_000f64.powf(world.unit())) as u64;
        // From 32 bytes to 32 KiB, whatever the rank.
        let share = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / (1u64 << 24) as f64;
        requests.push((key, (32.0 * 1024f64.powf(share)) as usize));
    }
    let hits = requests.iter().filter(|(key, bytes)| world.want(*key, *bytes)).count() as f64;
    let (hits, lru) = (hits / requests.len() as f64, lru_of_bytes(&requests, 32 << 20));
    world.alone.shard.audit().unwrap();
    assert!(hits > lru + 0.04, "{hits}, where the least recently used goes: {lru}");
    assert_eq!(world.alone.shard.counters().refused, 0);
    let memory = world.alone.shard.memory_use();
    assert!(memory.segments <= memory.limit || world.alone.shard.image().is_evacuating(), "{memory:?}");
}

#[test]
fn rare_sizes_take_slots_of_the_next() {
    let mut world = World::new(16 * MIB);
    for key in 0..40_000 {
        let is_rare = key > 20_000 && key % 1000 == 0;
        world.put(key, if is_rare { 900 } else { 1000 });
        if is_rare {
            assert_eq!(world.get(key), Some(900));
        }
    }
    let kinds: Vec<_> = world.alone.shard.image().kind_uses().filter(|kind| kind.kind.is_item()).collect();
    assert_eq!(kinds.len(), 1, "{kinds:?}");
    world.alone.shard.audit().unwrap();
}

#[test]
fn large_values_make_way_for_each_other() {
    let mut world = World::new(64 * MIB);
    for key in 0..40_000 {
        world.put(key, 1000);
    }
    for key in 0..100u64 {
        world.alone.put_in_pieces(TABLE, &(1 << 40 | key).to_be_bytes(), &vec![1; 2 << 20]);
        world.put(1_000_000 + key, 1000);
    }
    world.alone.shard.audit().unwrap();
    assert_eq!(world.alone.shard.counters().refused, 0);
    assert!(world.alone.shard.memory_use().runs > 8 * MIB);
}

#[test]
fn what_is_no_cached_item_stays() {
    let mut world = World::new(32 * MIB);
    let ordered = TableId::new(TableKind::Numbers, 3);
    let inline = TableId::new(TableKind::Inline, 4);
    for number in 0..2000u64 {
        for table in [ordered, inline] {
            let put = RequestHead::new(Op::Put, 0, table);
            assert_eq!(world.ask(put, &number.to_be_bytes(), &number.to_le_bytes()).0, Status::Ok);
        }
    }
    for key in 0..100_000 {
        world.put(key, if key % 2 == 0 { 60 } else { 3000 });
    }
    assert!(world.alone.shard.counters().evicted > 35_000);
    for number in 0..2000u64 {
        for table in [ordered, inline] {
            let (status, value) = world.ask(RequestHead::new(Op::Get, 0, table), &number.to_be_bytes(), &[]);
            assert_eq!((status, value), (Status::Ok, Some(number.to_le_bytes().to_vec())));
        }
    }
}

#[test]
fn hints_keep_items_and_nonsense_does_no_harm() {
    let mut world = World::new(16 * MIB);
    let used = RequestHead::new(Op::Used, 0, TableId::CATALOGUE);
    // Twenty keys are read by somebody who tells, and by nobody else; a thousand others are as old.
    let mut locations = Vec::new();
    for key in 0..1020u64 {
        let head =
            world.alone.call(RequestHead::new(Op::Put, 0, TABLE), &key.to_be_bytes(), &[key as u8; 1000]);
        locations.push(head.location);
    }
    let mut told = Vec::new();
    for key in 2000..60_000u64 {
        world.put(key, 1000);
        if key % 500 == 0 {
            let mut body: Vec<u8> = locations[..20].iter().flat_map(|word| word.to_le_bytes()).collect();
            body.extend((0..20).flat_map(|_| world.random().wrapping_mul(world.random()).to_le_bytes()));
            told.push(world.alone.call(used, &[], &body).version);
        }
    }
    assert!(told.windows(2).filter(|pair| pair[0] != pair[1]).count() > 5, "epochs of use go by: {told:?}");
    let left =
        |world: &mut World, keys: std::ops::Range<u64>| keys.filter(|key| world.get(*key).is_some()).count();
    let (kept, others) = (left(&mut world, 0..20), left(&mut world, 20..1020));
    assert!(kept >= 18 && others < 100, "{kept} of 20 told of, {others} of 1000 others");
    world.alone.shard.audit().unwrap();
    assert_eq!(world.ask(used, &[], &[1, 2, 3]).0, Status::Ok);
}
