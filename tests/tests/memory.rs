//! Memory: a full store, memory that comes back, values that change their sizes, large values, expiry notes.

use std::time::Duration;

use kelix::{Client, CompareAndSet, Effect, ErrorKind, NewItem, Session, Table, Version};
use kelix_tests::process::{ServerProcess, ServerProgram, mapped_segments};
use kelix_tests::value;
use kelix_tests::{Random, RunDir, asked_sum, shard_sum, statistics, until, watchdog};

const MIB: u64 = 1 << 20;

struct World {
    client: Client,
    session: Session,
    table: Table,
    random: Random,
    server: ServerProcess,
    _run: RunDir,
}

/// What stands under a key.
#[derive(Clone, Copy)]
struct Known {
    key: u64,
    counter: u64,
    bytes: usize,
    version: Version,
}

fn world(memory_bytes: u64) -> World {
    let run = RunDir::new();
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    let server =
        ServerProgram { program, directory: run.path(), shards: 1, memory_bytes, take_over: false }.serve();
    let client = server.client();
    let mut session = server.session();
    let table = session.create_table("t").unwrap();
    World { client, session, table, random: Random(memory_bytes), server, _run: run }
}

impl World {
    /// Puts values under new keys, from `first` on, until there is no room. Returns what was put.
    fn fill(&mut self, first: u64, bytes: usize) -> Vec<Known> {
        let mut stored = Vec::new();
        let batch = (64 * 1024 / bytes as u64).clamp(1, 64);
        loop {
            let next = first + stored.len() as u64;
            let values: Vec<([u8; 8], Vec<u8>)> =
                (next..next + batch).map(|key| (key.to_le_bytes(), value::make(key, 0, bytes))).collect();
            let items: Vec<(&[u8], &[u8])> =
                values.iter().map(|(key, value)| (&key[..], &value[..])).collect();
            for (key, result) in (next..).zip(self.session.multi_put(self.table, &items).unwrap()) {
                match result {
                    Ok(version) => stored.push(Known { key, counter: 0, bytes, version }),
                    Err(error) => {
                        let what = (error.kind(), error.effect());
                        // The statistics tell whether the shard had the processor, and what it did with it.
                        let now = || statistics(&self.client);
                        assert_eq!(what, (ErrorKind::OutOfMemory, Effect::No), "{error}; {}", now());
                        // One that was refused may be followed by one that was not: keep the keys in a row.
                        let put = |known: &Known| known.key < key;
                        let (stored, stray): (Vec<Known>, Vec<Known>) = stored.into_iter().partition(put);
                        assert!(stray.is_empty());
                        let rest = items.len() - (key - next) as usize;
                        self.delete((key..key + rest as u64).collect());
                        return stored;
                    }
                }
            }
        }
    }

    fn delete(&mut self, keys: Vec<u64>) {
        for key in keys {
            self.session.submit_delete(self.table, &key.to_le_bytes()).unwrap();
        }
        let mut completions = Vec::new();
        while self.session.outstanding() > 0 {
            self.session.poll(&mut completions).unwrap();
        }
        completions.into_iter().for_each(|completion| drop(completion.outcome.unwrap()));
    }

    /// Deletes all but one in `keep` of what is known, at random.
    fn thin_out(&mut self, known: Vec<Known>, keep: u64) -> Vec<Known> {
        let (kept, gone): (Vec<Known>, Vec<Known>) =
            known.into_iter().partition(|_| self.random.once_in(keep));
        self.delete(gone.iter().map(|known| known.key).collect());
        kept
    }

    #[track_caller]
    fn check(&mut self, known: &[Known]) {
        for chunk in known.chunks(64) {
            let keys: Vec<[u8; 8]> = chunk.iter().map(|known| known.key.to_le_bytes()).collect();
            let slices: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            let items = self.session.multi_get(self.table, &slices).unwrap();
            for (known, item) in chunk.iter().zip(items) {
                let item = item.unwrap_or_else(|| panic!("key {} is lost", known.key));
                assert_eq!(value::check(known.key, item.value()), Ok(known.counter));
                assert_eq!((item.value().len(), item.version()), (known.bytes, known.version));
            }
        }
    }

    fn sum(&self, name: &str) -> u64 {
        asked_sum(&self.client, name)
    }

    #[track_caller]
    fn until_quiet(&self) {
        until("the quarantine is over", || self.sum("memory/quarantined_bytes") == 0);
    }
}

#[test]
fn a_full_store_refuses_and_loses_nothing_and_deletes_make_room() {
    let _watchdog = watchdog("a full store");
    let mut world = world(64 * MIB);
    let known = world.fill(0, 1000);
    assert!(known.len() > 55_000, "{} values of 1000 bytes in 64 MiB", known.len());
    world.check(&known);
    assert!(world.sum("writes_refused") > 0);
    // Reads, deletes and what needs no room go on; and nothing is half done.
    let absent = (known.len() as u64 + 1).to_le_bytes();
    assert!(world.session.get(world.table, &absent).unwrap().is_none());
    let kept = world.thin_out(known, 2);
    world.check(&kept);
    let again = world.fill(1 << 32, 1000);
    assert!(again.len() > 25_000, "{} more after half was deleted", again.len());
    world.check(&kept);
    world.check(&again);
}

#[test]
fn a_nearly_full_store_takes_puts_at_full_rate() {
    let _watchdog = watchdog("a nearly full store");
    let mut world = world(32 * MIB);
    let mut known = world.fill(0, 500);
    let gone: Vec<Known> = known.split_off(known.len() - known.len() / 50);
    world.delete(gone.iter().map(|known| known.key).collect());
    // The last refusal of the filling is in the report before the counting begins.
    world.until_quiet();
    let (puts, refused) = (world.sum("puts"), world.sum("writes_refused"));
    for counter in 1..=4 {
        for chunk in known.chunks_mut(64) {
            let values: Vec<([u8; 8], Vec<u8>)> = chunk
                .iter()
                .map(|known| (known.key.to_le_bytes(), value::make(known.key, counter, 500)))
                .collect();
            let items: Vec<(&[u8], &[u8])> =
                values.iter().map(|(key, value)| (&key[..], &value[..])).collect();
            let versions = world.session.multi_put(world.table, &items).unwrap();
            for (known, version) in chunk.iter_mut().zip(versions) {
                known.version = version.expect("there is memory in quarantine");
                known.counter = counter;
            }
        }
    }
    world.check(&known);
    // Whether any had to wait depends on how many come within two epochs; that none was refused does not.
    let puts = puts + 4 * known.len() as u64;
    until("the shard has reported", || world.sum("puts") == puts);
    assert_eq!(world.sum("writes_refused"), refused);
}

/// With 64 MiB a store had one segment, and its slabs kept their size for ever: after a shift of value sizes
/// a store that was nearly empty refused every value.
#[test]
fn a_store_whose_values_change_their_sizes_does_not_fill_up() {
    let _watchdog = watchdog("a shift of sizes");
    let mut world = world(64 * MIB);
    let mut kept: Vec<Known> = Vec::new();
    for (phase, bytes) in [64, 400, 5000, 64, 70_000].into_iter().enumerate() {
        let known = world.fill((phase as u64) << 32, bytes);
        let stored = known.len() as u64 * bytes as u64;
        eprintln!("{} values of {bytes} bytes, {} MiB", known.len(), stored / MIB);
        // Small items have their own headers and index entries besides.
        let least = if bytes < 100 { 20 * MIB } else { 34 * MIB };
        assert!(stored > least, "only {} MiB of {bytes}-byte values", stored / MIB);
        world.check(&kept);
        kept.extend(world.thin_out(known, 20));
        world.check(&kept);
    }
    let now = statistics(&world.client);
    assert!(
        shard_sum(&now, "memory/segments_retired") > 0 && shard_sum(&now, "items_evacuated") > 0,
        "{now}"
    );
    // To be moved is to be the same version still.
    for known in kept.iter_mut().step_by(7) {
        known.counter += 1;
        let value = value::make(known.key, known.counter, known.bytes);
        let key = known.key.to_le_bytes();
        let set = world.session.compare_and_set(world.table, &key, Some(known.version), &value).unwrap();
        let CompareAndSet::Done(Some(version)) = set else {
            panic!("{set:?}, although nobody wrote key {key:?}")
        };
        known.version = version;
    }
    world.check(&kept);
}

#[test]
fn clients_let_go_of_retired_segments() {
    let _watchdog = watchdog("retired segments");
    let mut world = world(128 * MIB);
    let known = world.fill(0, 2000);
    let mapped = |world: &World| {
        let clients = &statistics(&world.client)["clients"];
        clients[0]["segments_mapped"].as_u64().expect("a number")
    };
    world.check(&known);
    until("the client has told what it maps", || {
        world.check(&known[..2000]);
        mapped(&world) >= 8
    });
    let kept = world.thin_out(known, 50);
    until("the emptied segments are retired", || world.sum("memory/segments_retired") >= 4);
    until("the client has unmapped them", || {
        world.check(&kept);
        mapped(&world) < 8
    });
    // And the memory is gone from the system: nobody else holds it.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let servers = mapped_segments(world.server.process.pid());
    until("the server has unmapped them", || {
        let now = statistics(&world.client);
        let bytes = shard_sum(&now, "memory/segment_bytes");
        bytes < 128 * MIB
    });
    assert!(servers.len() <= 12, "{servers:#?}");
    assert!(!maps.is_empty());
}

#[test]
fn large_values_come_and_go_without_a_trace() {
    let _watchdog = watchdog("large values");
    let mut world = world(96 * MIB);
    let mut before = None;
    for round in 0..6 {
        let mut known = Vec::new();
        for key in 0..40 {
            let bytes = (MIB + world.random.below(MIB)) as usize;
            let value = value::make(key, round, bytes);
            let version = world.session.put(world.table, &key.to_le_bytes(), &value).unwrap();
            known.push(Known { key, counter: round, bytes, version });
        }
        // Replaced once, so that a large value is the successor of another.
        for known in known.iter_mut().step_by(2) {
            let value = value::make(known.key, round, known.bytes / 2);
            known.version = world.session.put(world.table, &known.key.to_le_bytes(), &value).unwrap();
            known.bytes /= 2;
        }
        world.check(&known);
        world.delete((0..40).collect());
        let deletes = 40 * (round + 1);
        until("the deletes are reported", || world.sum("deletes") == deletes);
        world.until_quiet();
        let now = ["memory/used_bytes", "memory/live_bytes"].map(|name| world.sum(name));
        // The first round takes the slabs for headers and for values up to 1 MiB.
        let expected = *before.get_or_insert(now);
        assert!(now[1] == expected[1], "live: {} instead of {}", now[1], expected[1]);
        assert!(now[0] <= expected[0] + 16 * MIB, "used: {} after {}", now[0], expected[0]);
    }
}

/// A write waited half a second at most. A value that the store could not hold set the shard to emptying
/// segments, and a smaller one that came then was refused when its segments were not empty in time.
#[test]
fn a_refused_large_value_leaves_nothing() {
    let _watchdog = watchdog("a refused large value");
    let mut world = world(64 * MIB);
    let known = world.fill(0, 1000);
    let mut kept = world.thin_out(known, 4);
    world.until_quiet();
    let live = world.sum("memory/live_bytes");
    for key in [1 << 32, 2 << 32, 3 << 32] {
        for (too_large, fits) in [(52 * MIB, 3 * MIB), (70 * MIB, 5 * MIB)] {
            let value = value::make(key, 0, too_large as usize);
            let error = world.session.put(world.table, &u64::to_le_bytes(key), &value).unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ErrorKind::OutOfMemory, Effect::No));
            let bytes = fits as usize;
            let value = value::make(key, 1, bytes);
            let version = world.session.put(world.table, &u64::to_le_bytes(key), &value).unwrap();
            let item = world.session.get(world.table, &u64::to_le_bytes(key)).unwrap().unwrap();
            assert_eq!((value::check(key, item.value()), item.version()), (Ok(1), version));
            world.delete(vec![key]);
        }
    }
    world.check(&kept);
    world.until_quiet();
    // What was moved takes a word more, and so may its slot.
    let now = world.sum("memory/live_bytes");
    assert!(now < live + live / 4, "live: {now}, and {live} before the large values");
    assert!(world.sum("memory/segment_bytes") <= 64 * MIB);
    // The store is as full as it was, and takes as much.
    kept.extend(world.fill(4 << 32, 1000));
    assert!(kept.len() > 52_000, "{} values of 1000 bytes in 64 MiB", kept.len());
    world.check(&kept);
}

/// The shard notes when items end, and kept every note until then, of items replaced long since too.
#[test]
fn renewing_an_expiry_costs_no_memory() {
    let _watchdog = watchdog("renewed expiries");
    let mut world = world(32 * MIB);
    let anonymous = |world: &World| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", world.server.process.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a size");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    };
    let mut item = NewItem::new();
    item = item.bytes("", b"session").expires_in(Duration::from_secs(3600));
    let mut renew = |times: u32| {
        let mut completions = Vec::new();
        for _ in 0..times / 1000 {
            for key in 0..1000u32 {
                world.session.submit_item(world.table, &key.to_le_bytes(), &item).unwrap();
            }
            while world.session.outstanding() > 0 {
                world.session.poll(&mut completions).unwrap();
            }
            completions.drain(..).for_each(|completion| drop(completion.outcome.unwrap()));
        }
        anonymous(&world)
    };
    let before = renew(20_000);
    let after = renew(300_000);
    // 300,000 notes of 24 bytes would be 7 MiB more; the queue of slots in quarantine takes some as well.
    assert!(after < before + 5 * MIB, "{before} bytes, then {after}");
}
