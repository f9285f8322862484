//! Namespaces, of which one is a cache that is full: each goes on with what it had, and nothing that was let
//! go comes back.

use std::collections::BTreeMap;

use kelix::{NewItem, Session, Table, TableKind};
use kelix_tests::{Random, RunDir, value};

use super::{Turns, fail_over};

/// What other namespaces than the default one there are: `people` is kept, and has names that the cache has,
/// too.
const NAMESPACES: &str = "
[people]
memory = \"64M\"
shards = 2
readers = [\"anybody\"]

[more]
memory = \"24M\"
cache = true
";
/// Keys of a cache, twice as much as it has room for.
const KEYS: u64 = 16_000;
const VALUE_BYTES: usize = 3000;
/// Keys that are put at a time.
const BATCH: u64 = 200;

/// A cache with what was put into it: of each key the last counter, unless the key was seen to be gone.
struct Cache {
    session: Session,
    table: Table,
    known: BTreeMap<u64, u64>,
    random: Random,
    next: u64,
    counter: u64,
    gone: u64,
}

impl Cache {
    fn of(mut session: Session, seed: u64) -> Cache {
        let table = session.create_table("t").unwrap();
        let (known, random) = (BTreeMap::new(), Random(seed));
        Cache { session, table, known, random, next: 0, counter: 0, gone: 0 }
    }

    /// Puts some keys. None is refused: others are let go.
    fn put(&mut self) {
        self.counter += 1;
        let keys: Vec<u64> = (self.next..self.next + BATCH).collect();
        self.next = (self.next + BATCH) % KEYS;
        let items: Vec<([u8; 8], Vec<u8>)> = keys
            .iter()
            .map(|key| (key.to_be_bytes(), value::make(*key, self.counter, VALUE_BYTES)))
            .collect();
        let items: Vec<(&[u8], &[u8])> = items.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        for put in self.session.multi_put(self.table, &items).unwrap() {
            put.unwrap();
        }
        self.known.extend(keys.into_iter().map(|key| (key, self.counter)));
    }

    /// Looks for a key: it is there as it was put last, or gone; and what is gone stays gone.
    fn look(&mut self, key: u64) {
        let item = self.session.get(self.table, key).unwrap();
        match item.map(|item| value::check(key, item.value()).unwrap()) {
            Some(counter) => {
                let known = self.known.get(&key).copied();
                assert_eq!(Some(counter), known, "key {key}");
            }
            None => self.gone += u64::from(self.known.remove(&key).is_some()),
        }
    }

    fn look_at_all(&mut self) {
        (0..KEYS).for_each(|key| self.look(key));
    }

    /// Puts more than there is room for.
    fn fill(&mut self) {
        (0..KEYS / BATCH).for_each(|_| self.put());
        self.look_at_all();
        assert!(self.gone > 0 && !self.known.is_empty(), "{} of {KEYS} are gone", self.gone);
    }

    fn go_on(mut self, turns: &Turns) {
        loop {
            self.put();
            for _ in 0..BATCH {
                let key = self.random.below(KEYS);
                self.look(key);
            }
            if !turns.next() {
                break;
            }
        }
        self.look_at_all();
    }
}

/// Puts under keys that another namespace has, too, and finds what was put here.
fn write(turns: &Turns, session: &mut Session, name: &str) {
    let hash = session.create_table("t").unwrap();
    let ordered = session.create_table_of(TableKind::Strings, "ordered").unwrap();
    for turn in 0u64.. {
        let said = format!("{name} {turn}");
        for key in 0..50u64 {
            session.put(hash, key, said.as_bytes()).unwrap();
            let item = NewItem::new().bytes("said", said.as_bytes()).link("to", hash, key);
            session.put_item(ordered, &format!("key {key:03}"), &item).unwrap();
        }
        for key in 0..50u64 {
            let found = session.get(hash, key).unwrap().expect("just put");
            assert_eq!(found.value(), said.as_bytes());
            let found = session.get(ordered, &format!("key {key:03}")).unwrap().expect("just put");
            assert_eq!(found.bytes("said"), Some(said.as_bytes()));
            let target = session.follow(&found, "to").unwrap().expect("just put");
            assert_eq!(target.value(), said.as_bytes());
        }
        assert_eq!(session.tables().unwrap(), ["t", "ordered"]);
        if !turns.next() {
            return;
        }
    }
}

#[test]
fn namespaces_and_caches_go_on_with_what_they_had() {
    let run = RunDir::new();
    let file = run.path().join("namespaces.toml");
    std::fs::write(&file, NAMESPACES).unwrap();
    let file = file.display().to_string();
    let options = ["--shards", "2", "--cache", "--memory", "32M", "--namespaces", &file];
    fail_over("namespaces", &options, |cluster, clients, seed| {
        for (name, namespace) in [("cache", ""), ("another cache", "more")] {
            let mut cache = Cache::of(cluster.session_in(namespace), seed);
            cache.fill();
            clients.start(name, move |turns| cache.go_on(turns));
        }
        let mut session = cluster.session_in("people");
        clients.start("people", move |turns| write(turns, &mut session, "people"));
    });
}
