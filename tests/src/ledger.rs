//! What one client wrote, and what a server that begins again must have of it.
//!
//! A ledger has keys of its own in tables of each kind. Of each key it knows the last write that was done for
//! good, and those that were not but may have been. Everything about an item follows from table, key and a
//! counter that is in its value, so that whatever is found proves itself.

use std::collections::BTreeMap;

use kelix::{CompareAndSet, Effect, Error, Item, NewItem, Result, Scan, Session, Table, TableKind, Version};

use crate::Random;
use crate::value::{self, HEAD_BYTES, mix};

const KINDS: [(TableKind, &str); 4] = [
    (TableKind::Hash, "ledger hash"),
    (TableKind::Strings, "ledger strings"),
    (TableKind::Numbers, "ledger numbers"),
    (TableKind::Inline, "ledger inline"),
];
/// Keys that a ledger has in each table.
const KEYS: u64 = 24;
/// Between the first keys of two ledgers.
const APART: u64 = 1000;

/// The counter of the value of a key; `None`: it is absent.
type State = Option<u64>;

#[derive(Default)]
struct Entry {
    /// The last write that was done for good.
    known: State,
    /// Those that may have been done, after it or in its place.
    maybe: Vec<State>,
    version: Option<Version>,
}

/// What one client wrote.
pub struct Ledger {
    first: u64,
    random: Random,
    counter: u64,
    entries: BTreeMap<(usize, u64), Entry>,
    /// Writes are on the disk when they are answered. If not, each state since the last look may be found.
    is_durable: bool,
}

/// The tables of all ledgers, which a session has opened.
#[derive(Clone, Copy)]
pub struct Tables([Table; 4]);

impl Tables {
    /// Opens them, and makes those that are not there.
    pub fn open(session: &mut Session) -> Result<Tables> {
        let mut tables = Vec::new();
        for (kind, name) in KINDS {
            tables.push(session.create_table_of(kind, name)?);
        }
        Ok(Tables(tables.try_into().expect("one for each kind")))
    }
}

fn key_of(table: usize, number: u64) -> Vec<u8> {
    match KINDS[table].0 {
        TableKind::Strings => format!("key {number:06}").into_bytes(),
        _ => number.to_be_bytes().to_vec(),
    }
}

fn number_of(table: usize, key: &[u8]) -> u64 {
    match KINDS[table].0 {
        TableKind::Strings => std::str::from_utf8(&key[4..]).expect("text").parse().expect("a number"),
        _ => u64::from_be_bytes(key.try_into().expect("8 bytes")),
    }
}

fn value_of(table: usize, number: u64, counter: u64) -> Vec<u8> {
    let chance = mix(counter ^ mix(number));
    match KINDS[table].0 {
        TableKind::Inline => counter.to_le_bytes().to_vec(),
        // Of page runs, which come in pieces.
        _ if chance % 40 == 1 => value::make(number, counter, 70_000 + (chance >> 16) as usize % 200_000),
        _ => value::make(number, counter, HEAD_BYTES + (chance >> 16) as usize % 600),
    }
}

/// Whether the item has attributes and links.
fn has_attributes(table: usize, number: u64, counter: u64) -> bool {
    KINDS[table].0 != TableKind::Inline && mix(counter ^ mix(number)) % 4 == 0
}

fn counter_of(table: usize, number: u64, bytes: &[u8]) -> std::result::Result<u64, String> {
    match KINDS[table].0 {
        TableKind::Inline => Ok(u64::from_le_bytes(bytes.try_into().expect("8 bytes"))),
        _ => value::check(number, bytes),
    }
}

/// The counter of an item all of which is as it was put.
#[track_caller]
fn check(table: usize, number: u64, item: &Item) -> u64 {
    let counter = counter_of(table, number, item.value());
    let counter = counter.unwrap_or_else(|what| panic!("table {table}, key {number}: {what}"));
    if has_attributes(table, number, counter) {
        assert_eq!(item.bytes("twin"), Some(&counter.to_le_bytes()[..]), "table {table}, key {number}");
        let links: Vec<Vec<u8>> = item.links("to").map(|link| link.key.to_vec()).collect();
        assert_eq!(links, [key_of(table, number + 1)], "table {table}, key {number}");
    } else {
        assert_eq!(item.attributes().len(), 1, "table {table}, key {number}");
    }
    assert_eq!(item.value(), value_of(table, number, counter), "table {table}, key {number}");
    counter
}

impl Ledger {
    /// The ledger of a client with a number, which says whether its writes are durable.
    pub fn new(number: u64, seed: u64, is_durable: bool) -> Ledger {
        let random = Random(mix(seed) ^ number);
        Ledger { first: number * APART, random, counter: 0, entries: BTreeMap::new(), is_durable }
    }

    /// Makes a write, and notes how it went. An error: how it failed.
    pub fn write(&mut self, session: &mut Session, tables: &Tables) -> Result<()> {
        let table = self.random.below(KINDS.len() as u64) as usize;
        let number = self.first + self.random.below(KEYS);
        let (key, of) = (key_of(table, number), tables.0[table]);
        let (what, counter) = (self.random.below(8), self.counter + 1);
        self.counter = counter;
        let entry = self.entries.entry((table, number)).or_default();
        let (expected, compares) = (entry.version, what % 4 == 3 && entry.maybe.is_empty());
        let is_delete = what == 0 || what == 7;
        let new = (!is_delete).then_some(counter);
        let written = Ledger::send(session, (of, table, number), &key, new, (expected, compares));
        let known = entry.known;
        match &written {
            // A version says that the write was done.
            Ok(Some(version)) => {
                entry.version = *version;
                entry.known = new;
                match self.is_durable {
                    true => entry.maybe.clear(),
                    false => entry.maybe.push(known),
                }
            }
            Ok(None) => panic!("key {number} of table {table} is not as it was left: {known:?}"),
            Err(error) if error.effect() == Effect::No => {}
            Err(_) => entry.maybe.push(new),
        }
        written.map(drop)
    }

    /// `Some`: it was done, and this is the key's version now. `None`: the key has another one than expected.
    fn send(
        session: &mut Session,
        (of, table, number): (Table, usize, u64),
        key: &[u8],
        new: State,
        (expected, compares): (Option<Version>, bool),
    ) -> Result<Option<Option<Version>>> {
        let done = |set: CompareAndSet| match set {
            CompareAndSet::Done(version) => Some(version),
            CompareAndSet::Mismatch(_) => None,
        };
        let Some(counter) = new else {
            return match expected.filter(|_| compares) {
                Some(expected) => session.compare_and_delete(of, key, expected).map(done),
                None => session.delete(of, key).map(|_| Some(None)),
            };
        };
        let value = value_of(table, number, counter);
        if has_attributes(table, number, counter) {
            let mut item = NewItem::new().bytes("", &value).bytes("twin", &counter.to_le_bytes());
            item = item.link("to", of, &key_of(table, number + 1));
            return match compares {
                true => session.compare_and_set_item(of, key, expected, &item).map(done),
                false => session.put_item(of, key, &item).map(|version| Some(Some(version))),
            };
        }
        match compares {
            true => session.compare_and_set(of, key, expected, &value).map(done),
            false => session.put(of, key, &value).map(|version| Some(Some(version))),
        }
    }

    /// Writes until something fails, and says after each write that it is done.
    pub fn write_on(&mut self, session: &mut Session, tables: &Tables, mut done: impl FnMut()) -> Error {
        loop {
            match self.write(session, tables) {
                Ok(()) => done(),
                Err(error) => return error,
            }
        }
    }

    /// Looks for all that was written. What is found is what is known from then on.
    #[track_caller]
    pub fn verify(&mut self, session: &mut Session, tables: &Tables, what: &str) {
        for (&(table, number), entry) in &mut self.entries {
            let item = session.get(tables.0[table], &key_of(table, number));
            let item = item.unwrap_or_else(|error| panic!("{what}: a get: {error}"));
            let found = item.as_ref().map(|item| check(table, number, item));
            assert!(
                found == entry.known || entry.maybe.contains(&found),
                "{what}: key {number} of table {table} has {found:?}, known is {:?}, possible are {:?}",
                entry.known,
                entry.maybe
            );
            entry.known = found;
            entry.maybe.clear();
            entry.version = item.map(|item| item.version());
        }
        for table in 0..KINDS.len() {
            let range = self.first..self.first + APART;
            let mut found = BTreeMap::new();
            let scan = session.scan(tables.0[table], &Scan::all());
            for item in scan.unwrap_or_else(|error| panic!("{what}: a scan: {error}")) {
                let item = item.unwrap_or_else(|error| panic!("{what}: a page: {error}"));
                let number = number_of(table, item.key());
                if range.contains(&number) {
                    found.insert(number, check(table, number, &item));
                }
            }
            let known = self.entries.range((table, 0)..=(table, u64::MAX));
            let known = known.filter_map(|((_, number), entry)| Some((*number, entry.known?)));
            assert_eq!(found, known.collect(), "{what}: a scan of table {table} and gets of its keys");
        }
    }
}
