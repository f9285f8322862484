//! What a shard knows of generations and dropped tables, in words: no item says it.
//!
//! ```text
//! generations given    one word
//! tables               for each  [ number 63 48 | state 47 0 ]
//! datasets             for each  its name, and
//!   names              for each  [ id 63 48 | tables that were made for it 47 0 ], the name, and the tables
//!   generations        for each  its number, 1 if it is in force, and its tables as the catalogue has them
//! ```
//!
//! Bytes are their number and then themselves, with zeros up to a whole word.

use std::collections::HashMap;

use kelix_image::words::{bytes_of, bytes_of_mut};
use kelix_types::TableId;
use kelix_wire::generation::{decode_tables, encode_tables};

use super::Datasets;
use super::orders::Order;
use super::registry::{Dataset, FOR_A_LEASE, Generation, NOBODY, Registry, Stage};
use crate::store::Store;
use crate::tables::{Tables, Use};

const READ: u64 = 1;
const READ_OVERLAY: u64 = 2;
const GONE: u64 = 3;
const TO_BE_EMPTIED: u64 = 4;

fn put_bytes(words: &mut Vec<u64>, bytes: &[u8]) {
    words.push(bytes.len() as u64);
    let first = words.len();
    words.resize(first + bytes.len().div_ceil(8), 0);
    bytes_of_mut(&mut words[first..])[..bytes.len()].copy_from_slice(bytes);
}

/// Takes words one after another.
struct Words<'a>(&'a [u64]);

impl<'a> Words<'a> {
    fn word(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = usize::try_from(self.word()?).ok()?;
        let (bytes, rest) = (self.0.get(..count.div_ceil(8))?, self.0.get(count.div_ceil(8)..)?);
        self.0 = rest;
        bytes_of(bytes).get(..count)
    }

    fn name(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }
}

impl Datasets {
    /// What is to be told to the one that goes on with the image ([`Shard::restore`](crate::Shard::restore)).
    pub fn keep(&self, tables: &Tables) -> Vec<u64> {
        let Registry { datasets, given, .. } = &self.registry;
        let mut words = vec![*given];
        keep_tables(tables, |table| self.purges.has(table), &mut words);
        words.push(datasets.len() as u64);
        datasets.iter().for_each(|(name, dataset)| dataset.keep(name, &mut words));
        words
    }

    /// What the shards of a store are to be told that has another number of them, and nothing of dropped
    /// tables. Generations are told to shard 0.
    pub fn keep_for(&self, tables: &Tables, number: usize) -> Vec<u64> {
        let Registry { datasets, given, .. } = &self.registry;
        let is_first = number == 0;
        let mut words = vec![if is_first { *given } else { 0 }];
        keep_tables(tables, |_| false, &mut words);
        words.push(if is_first { datasets.len() as u64 } else { 0 });
        datasets.iter().filter(|_| is_first).for_each(|(name, dataset)| dataset.keep(name, &mut words));
        words
    }

    /// The tables that are empty or about to be: those that were dropped, and those that are being filled.
    pub fn dropped_tables(&self, tables: &Tables) -> impl Iterator<Item = TableId> {
        let dropped = tables.iter().filter(|(_, used)| matches!(used, Use::Gone(_) | Use::Filled { .. }));
        dropped.map(|(table, _)| table)
    }

    /// Takes that over. `None`: it makes no sense.
    pub fn restore(&mut self, store: &mut Store, words: &[u64]) -> Option<()> {
        let mut words = Words(words);
        let mut leaving = Vec::new();
        self.registry.given = read_tables(&mut words, &mut store.tables, |table| leaving.push(table))?;
        for _ in 0..words.word()? {
            let name = words.name()?;
            let dataset = Dataset::restore(&mut words)?;
            let numbers = dataset.generations.iter().map(|generation| (generation.number, name.clone()));
            self.registry.owners.extend(numbers);
            self.registry.datasets.insert(name, dataset);
        }
        store.tables.count_dropped();
        if !leaving.is_empty() {
            self.begin_purge(store, 0, leaving, false);
        }
        if store.partition.is_first() && store.partition.shards() > 1 {
            let is_dropped = |(_, used): &(TableId, Use)| matches!(used, Use::Gone(_));
            let dropped = store.tables.iter().filter(is_dropped).map(|(table, _)| table).collect();
            self.orders.push(Order::Reconcile { dropped });
        }
        words.0.is_empty().then_some(())
    }
}

/// What may be done with tables on a mirror of a shard that keeps these words: nothing with those that are to
/// be emptied, which are read no more, or not yet. `None`: they make no sense.
pub(crate) fn tables_of(words: &[u64]) -> Option<Tables> {
    let (mut tables, mut leaving) = (Tables::default(), Vec::new());
    read_tables(&mut Words(words), &mut tables, |table| leaving.push(table))?;
    leaving.into_iter().for_each(|table| tables.restore(table, Use::Gone(0)));
    tables.count_dropped();
    Some(tables)
}

/// Reads how many generations were given and what may be done with tables; those that are to be emptied are
/// told to `leave`. `None`: that makes no sense.
fn read_tables(words: &mut Words<'_>, tables: &mut Tables, mut leave: impl FnMut(TableId)) -> Option<u64> {
    // Numbers go on behind it.
    let given = words.word().filter(|given| *given < u64::MAX / 2)?;
    for _ in 0..words.word()? {
        let word = words.word()?;
        let table = TableId((word >> 48) as u16);
        let used = match word & ((1 << 48) - 1) {
            READ => Use::Read { overlay: false },
            READ_OVERLAY => Use::Read { overlay: true },
            GONE => Use::Gone(0),
            TO_BE_EMPTIED => {
                leave(table);
                continue;
            }
            _ => return None,
        };
        tables.restore(table, used);
    }
    Some(given)
}

/// The states of all tables; of a table that is gone, whether it is to be emptied.
fn keep_tables(tables: &Tables, is_to_be_emptied: impl Fn(TableId) -> bool, words: &mut Vec<u64>) {
    // In an order of their own, so that the same is kept in the same words.
    let mut known: Vec<_> = tables.iter().collect();
    known.sort_unstable_by_key(|(table, _)| table.0);
    words.push(known.len() as u64);
    for (table, used) in known {
        let state = match used {
            Use::Read { overlay: false } => READ,
            Use::Read { overlay: true } | Use::Frozen { .. } => READ_OVERLAY,
            Use::Gone(_) if !is_to_be_emptied(table) => GONE,
            Use::Gone(_) | Use::Filled { .. } => TO_BE_EMPTIED,
        };
        words.push(u64::from(table.0) << 48 | state);
    }
}

impl Dataset {
    fn keep(&self, name: &str, words: &mut Vec<u64>) {
        put_bytes(words, name.as_bytes());
        words.push(self.names.len() as u64);
        let mut names: Vec<_> = self.names.iter().collect();
        names.sort_unstable_by_key(|(_, (id, _))| id.0);
        for ((name, _), (id, made)) in names {
            words.push(u64::from(id.0) << 48 | made.len() as u64);
            put_bytes(words, name.as_bytes());
            words.extend(made.iter().map(|table| u64::from(table.0)));
        }
        // Those that are built are given up with their builders, and those that are dropped are emptied
        // anyway.
        let read = |generation: &&Generation| !matches!(generation.stage, Stage::Built | Stage::Dropped(_));
        words.push(self.generations.iter().filter(read).count() as u64);
        for generation in self.generations.iter().filter(read) {
            words.extend([generation.number, u64::from(generation.stage == Stage::InForce)]);
            put_bytes(words, &encode_tables(&generation.tables));
        }
    }

    fn restore(words: &mut Words<'_>) -> Option<Dataset> {
        let mut dataset = Dataset { generations: Vec::new(), names: HashMap::new() };
        for _ in 0..words.word()? {
            let word = words.word()?;
            let (id, name) = (TableId((word >> 48) as u16), words.name()?);
            let made = (0..word & ((1 << 48) - 1)).map(|_| Some(TableId(words.word()? as u16)));
            let made = made.collect::<Option<_>>()?;
            dataset.names.insert((name, id.kind()), (id, made));
        }
        for _ in 0..words.word()? {
            let number = words.word()?;
            let stage = match words.word()? {
                1 => Stage::InForce,
                _ => Stage::Superseded(FOR_A_LEASE),
            };
            let tables = decode_tables(words.bytes()?)?;
            dataset.generations.push(Generation {
                number,
                tables,
                stage,
                builder: NOBODY,
                holds: Vec::new(),
            });
        }
        Some(dataset)
    }
}
