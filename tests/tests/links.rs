//! Links: what a follow finds and costs, when targets move, go and come back, in circles and across shards.

use kelix::{Client, Cost, FabricChoice, Item, NewItem, Path, Session, Table};
use kelix_tests::process::{ServerProcess, ServerProgram, patient};
use kelix_tests::{RunDir, asked_sum, breaks, fabrics, session_over, until, watchdog};

struct World {
    client: Client,
    session: Session,
    table: Table,
    server: ServerProcess,
    _run: RunDir,
}

fn world(shards: usize, fabric: FabricChoice) -> World {
    let run = RunDir::new();
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    let memory_bytes = shards as u64 * (64 << 20);
    let server =
        ServerProgram { program, directory: run.path(), shards, memory_bytes, take_over: false }.serve();
    let client = server.client();
    let mut session = session_over(fabric, &client, patient());
    let table = session.create_table("graph").unwrap();
    World { client, session, table, server, _run: run }
}

fn key(number: u64) -> Vec<u8> {
    format!("node {number}").into_bytes()
}

impl World {
    fn put_node(&mut self, number: u64, targets: &[u64]) {
        let mut item = NewItem::new();
        item = item.bytes("name", &number.to_le_bytes());
        for target in targets {
            item = item.link_with("next", self.table, &key(*target), &target.to_le_bytes());
        }
        self.session.put_item(self.table, &key(number), &item).unwrap();
    }

    fn node(&mut self, number: u64) -> Item {
        self.session.get(self.table, &key(number)).unwrap().expect("there")
    }

    /// Follows the first link of a node and says what that alone cost.
    fn follow(&mut self, source: &Item) -> (Option<Item>, Cost) {
        let before = self.session.cost();
        let target = self.session.follow(source, "next").unwrap();
        let after = self.session.cost();
        let cost = Cost {
            reads: after.reads - before.reads,
            read_bytes: after.read_bytes - before.read_bytes,
            messages: after.messages - before.messages,
            retries: after.retries - before.retries,
            fallbacks: after.fallbacks - before.fallbacks,
        };
        (target, cost)
    }

    fn repaired(&self) -> u64 {
        asked_sum(&self.client, "links_repaired")
    }

    /// Follows the link of `source` until the shard has repaired it, then checks that the repaired one costs
    /// one READ.
    #[track_caller]
    fn check_repair(&mut self, source: u64, target: u64) {
        let before = self.repaired();
        let node = self.node(source);
        let (found, cost) = self.follow(&node);
        assert_eq!(found.expect("there").key(), key(target));
        // One READ there and one by a cached pointer, or from the index; and the shard is told.
        assert!(
            breaks() || cost.reads >= 1 && cost.messages >= 1,
            "a stale link costs more than one READ: {cost:?}"
        );
        until("the shard has repaired the link", || {
            // What a shard was told over a connection that broke may be lost, and nobody tells it again but
            // the next reader.
            let _ = breaks() && self.follow(&node).0.is_some();
            self.repaired() > before
        });
        self.check_fresh(source, target);
    }

    #[track_caller]
    fn check_fresh(&mut self, source: u64, target: u64) {
        let node = self.node(source);
        let (found, cost) = self.follow(&node);
        let found = found.expect("there");
        assert_eq!((found.key(), found.bytes("name")), (&key(target)[..], Some(&target.to_le_bytes()[..])));
        assert!(breaks() || (cost.reads, cost.messages) == (1, 0), "a fresh link is one READ: {cost:?}");
    }
}

#[test]
fn a_stale_link_is_repaired_in_place_and_costs_one_read_again() {
    let _watchdog = watchdog("stale links");
    for fabric in fabrics() {
        let mut world = world(1, fabric);
        world.put_node(1, &[]);
        world.put_node(2, &[1]);
        let version = world.node(2).version();
        world.check_fresh(2, 1);
        world.put_node(1, &[]);
        world.check_repair(2, 1);
        assert_eq!(world.node(2).version(), version, "a repair is no new version");
        // Deleted: gone. Put again: found, and repaired.
        world.session.delete(world.table, &key(1)).unwrap();
        let node = world.node(2);
        assert!(world.follow(&node).0.is_none());
        assert!(world.session.follow_all(&node, "next").unwrap()[0].is_none());
        world.put_node(1, &[]);
        world.check_repair(2, 1);
        // A target that came after its link: the location was never known.
        world.put_node(4, &[5]);
        let node = world.node(4);
        assert!(world.follow(&node).0.is_none());
        world.put_node(5, &[]);
        world.check_repair(4, 5);
    }
}

/// A session that only followed links took no answers once its ring was full, and so had no room for a repair
/// ever again: a chase over many links that were new stayed as slow as it began.
#[test]
fn repairs_go_on_after_the_ring_was_full() {
    let _watchdog = watchdog("a full ring");
    let mut world = world(1, FabricChoice::Shm);
    world.put_node(1, &[2]);
    world.put_node(2, &[]);
    let node = world.node(1);
    world.server.process.stop_still();
    let posted = |world: &mut World| {
        let (found, cost) = world.follow(&node);
        assert_eq!(found.expect("there").key(), key(2));
        cost.messages > 0
    };
    until("the ring is full", || !posted(&mut world));
    world.server.process.go_on();
    until("there is room again", || posted(&mut world));
    world.check_fresh(1, 2);
}

#[test]
fn an_item_read_long_ago_still_leads_to_its_targets() {
    let _watchdog = watchdog("old items");
    for fabric in fabrics() {
        let mut world = world(1, fabric);
        world.put_node(1, &[]);
        world.put_node(2, &[1]);
        let old = world.node(2);
        world.put_node(2, &[]);
        for _ in 0..100 {
            world.put_node(1, &[]);
            let (found, _) = world.follow(&old);
            assert_eq!(found.expect("there").key(), key(1));
        }
        world.session.delete(world.table, &key(2)).unwrap();
        assert!(world.follow(&old).0.is_some(), "the source is gone, its copy is not");
        until("the shard has looked at all repairs", || asked_sum(&world.client, "requests") > 200);
        assert_eq!(world.repaired(), 0, "a source that was replaced is not written to");
    }
}

#[test]
fn links_across_shards_are_repaired_by_the_source_s_shard() {
    let _watchdog = watchdog("links across shards");
    for fabric in fabrics() {
        let mut world = world(3, fabric);
        let count = 60;
        for number in 0..count {
            world.put_node(number, &[]);
        }
        for number in 0..count {
            world.put_node(number, &[(number + 1) % count]);
        }
        // The targets that stood on the source's own shard when it was put were replaced since; all others
        // were unknown.
        for _ in 0..2 {
            for number in 0..count {
                let node = world.node(number);
                let (found, _) = world.follow(&node);
                assert_eq!(found.expect("there").key(), key((number + 1) % count));
            }
        }
        until("all links are repaired", || {
            (0..count).all(|number| {
                let node = world.node(number);
                let (found, cost) = world.follow(&node);
                found.is_some() && (breaks() || (cost.reads, cost.messages) == (1, 0))
            })
        });
        // All the way round, one READ a step, and no shard does anything.
        let mut node = world.node(0);
        let before = world.session.cost();
        for step in 0..3 * count {
            node = world.session.follow(&node, "next").unwrap().expect("there");
            assert_eq!(node.key(), key((step + 1) % count));
        }
        let after = world.session.cost();
        let cost = after.since(before);
        assert!(breaks() || (cost.reads, cost.messages) == (3 * count, 0), "{cost:?}");
    }
}

#[test]
fn circles_and_links_to_oneself() {
    let _watchdog = watchdog("circles");
    for fabric in fabrics() {
        let mut world = world(1, fabric);
        for _ in 0..3 {
            world.put_node(1, &[1]);
            world.put_node(2, &[3]);
            world.put_node(3, &[2]);
            for (start, other) in [(1, 1), (2, 3), (3, 2)] {
                let mut node = world.node(start);
                for step in 0..20 {
                    node = world.session.follow(&node, "next").unwrap().expect("there");
                    assert_eq!(node.key(), key(if step % 2 == 0 { other } else { start }));
                }
            }
        }
    }
}

#[test]
fn many_links_of_one_item_are_followed_together_and_in_order() {
    let _watchdog = watchdog("many links");
    for fabric in fabrics() {
        let mut world = world(3, fabric);
        let targets: Vec<u64> = (0..300).map(|number| number * 7 % 300).collect();
        for target in targets.iter().filter(|target| *target % 5 > 0) {
            world.put_node(*target, &[]);
        }
        world.put_node(1000, &targets);
        for path in [Path::Auto, Path::Pointer, Path::Index, Path::Message] {
            world.session.set_path(path);
            let node = world.node(1000);
            assert_eq!(node.link_count("next"), targets.len());
            let found = world.session.follow_all(&node, "next").unwrap();
            assert_eq!(found.len(), targets.len());
            for (target, item) in targets.iter().zip(&found) {
                let wanted = (target % 5 > 0).then(|| key(*target));
                assert_eq!(item.as_ref().map(|item| item.key().to_vec()), wanted, "by {path:?}");
            }
        }
    }
}

#[test]
fn links_in_a_value_too_large_for_one_slot_lead_to_their_targets() {
    let _watchdog = watchdog("links in large values");
    for fabric in fabrics() {
        let mut world = world(1, fabric);
        world.put_node(1, &[]);
        let mut item = NewItem::new();
        item = item.link("next", world.table, &key(1)).bytes("rest", &vec![5; 2 << 20]);
        world.session.put_item(world.table, &key(2), &item).unwrap();
        for _ in 0..3 {
            let node = world.node(2);
            assert_eq!(node.bytes("rest").map(<[u8]>::len), Some(2 << 20));
            assert_eq!(world.follow(&node).0.expect("there").key(), key(1));
            world.put_node(1, &[]);
        }
    }
}
