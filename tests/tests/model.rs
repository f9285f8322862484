//! Random operations through sessions against a map that does the same: all paths, all sizes, attributes and
//! links, compare-and-set, batches, submitted operations, expiry.
//!
//! The operations are made one after another by one thread with two sessions, so every answer is determined.
//! `KELIX_TEST_SEED=n` runs one seed.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::os::fd::BorrowedFd;
use std::time::{Duration, SystemTime};

use kelix::{
    Attribute, CompareAndSet, Completion, Item, Link, NewItem, Outcome, Path, Rows, Scan, Session, Table,
    TableKind, Ticket, Values, Version,
};
use kelix_tests::process::{ServerProcess, ServerProgram};
use kelix_tests::{Random, RunDir, asked_sum, fewer, seeds, until, watchdog};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const OPERATIONS: u64 = 2500;
/// The tables, one of each kind.
const TABLES: [(&str, TableKind); 4] = [
    ("hash", TableKind::Hash),
    ("strings", TableKind::Strings),
    ("numbers", TableKind::Numbers),
    ("inline", TableKind::Inline),
];
const INLINE: usize = 3;
const NAMES: [&str; 4] = ["", "name", "friend", "b\u{e9}"];

fn server(run: &RunDir, shards: usize, memory_bytes: u64) -> ServerProcess {
    let program = env!("CARGO_BIN_EXE_kelix-test-server");
    ServerProgram { program, directory: run.path(), shards, memory_bytes, take_over: false }.serve()
}

#[derive(Clone, PartialEq, Debug)]
enum Value {
    Bytes(Vec<u8>),
    Link { table: usize, key: Vec<u8>, bytes: Vec<u8> },
}

/// What a submitted write puts, and the version that it expects.
type Submitted = (Option<Vec<u8>>, Option<Version>);

/// What the model knows of a key.
#[derive(Clone, Debug)]
struct Known {
    attributes: Vec<(&'static str, Value)>,
    version: Version,
    /// From then on it may be gone.
    ends: Option<SystemTime>,
    flags: u32,
}

/// A table, by number, and a key.
type Place = (usize, Vec<u8>);

type Model = BTreeMap<Place, Known>;

struct World {
    sessions: Vec<Session>,
    tables: Vec<[Table; TABLES.len()]>,
    model: Model,
    random: Random,
    values: Values,
    buffer: Vec<u8>,
}

fn describe(bytes: &[u8]) -> String {
    format!("{} bytes beginning {:02x?}", bytes.len(), &bytes[..bytes.len().min(8)])
}

impl World {
    fn new(server: &ServerProcess, seed: u64) -> World {
        // Over shared memory and over the other fabric at once.
        let by = Path::Pointer;
        let mut sessions = vec![server.session(), server.session_by(by), server.far_session_by(by)];
        let open =
            |session: &mut Session| TABLES.map(|(name, kind)| session.create_table_of(kind, name).unwrap());
        let tables = sessions.iter_mut().map(open).collect();
        let buffer = vec![0; 4 << 20];
        World { sessions, tables, model: Model::new(), random: Random(seed), values: Values::new(), buffer }
    }

    fn session(&mut self) -> usize {
        let session = self.random.below(self.sessions.len() as u64) as usize;
        let path = [Path::Auto, Path::Pointer, Path::Index, Path::Message][self.random.below(4) as usize];
        self.sessions[session].set_path(path);
        session
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        let mut word = self.random.next();
        while bytes.len() < length {
            bytes.extend_from_slice(&word.to_le_bytes());
            word = word.rotate_left(7).wrapping_add(bytes.len() as u64);
        }
        bytes.truncate(length);
        bytes
    }

    /// Lengths on both sides of every border: inline, in one message, in pieces, in page runs.
    fn length(&mut self) -> usize {
        let near = |random: &mut Random, border: u64| border - 40 + random.below(80);
        let random = &mut self.random;
        (match random.below(40) {
            0..=2 => 0,
            3..=18 => random.below(200),
            19..=28 => random.below(5000),
            29..=32 => near(random, 32 << 10),
            33..=36 => random.below(300 << 10),
            37 => near(random, 1 << 20),
            38 => near(random, 64 << 10),
            _ => (1 << 20) + random.below(2 << 20),
        }) as usize
    }

    /// About a hundred keys of each table, from the empty one to the longest, or from the first to the last
    /// number.
    fn key(&mut self, table: usize) -> Vec<u8> {
        let random = &mut self.random;
        if TABLES[table].1.has_numbers() {
            let number = match random.below(4) {
                0 => random.below(3).wrapping_sub(1),
                1 => 1 << random.below(64),
                _ => random.below(60) * 17,
            };
            return number.to_be_bytes().to_vec();
        }
        match random.below(20) {
            0 => Vec::new(),
            1..=2 => vec![random.below(3) as u8],
            3 => vec![7; (64 << 10) - random.below(3) as usize],
            4 => {
                let mut key = vec![9; 64 << 10];
                key[65535] = random.below(2) as u8;
                key
            }
            5..=9 => random.below(30).to_le_bytes().to_vec(),
            _ => format!("key number {}", random.below(60)).into_bytes(),
        }
    }

    fn place(&mut self) -> Place {
        let table = self.random.below(TABLES.len() as u64) as usize;
        (table, self.key(table))
    }

    /// Different keys, fit for one batch.
    fn places(&mut self, most: u64) -> Vec<Place> {
        let count = self.random.below(most);
        let mut places: Vec<_> = (0..count).map(|_| self.place()).collect();
        places.sort();
        places.dedup();
        places
    }

    fn value(&mut self, table: usize) -> Vec<u8> {
        // Some values are often the same.
        if table == INLINE {
            return if self.random.once_in(4) {
                self.random.below(2).to_le_bytes().to_vec()
            } else {
                self.bytes(8)
            };
        }
        let length = self.length();
        self.bytes(length)
    }

    fn check_item(&mut self, session: usize, place: &Place, item: Option<&Item>) {
        let known = self.model.get(place);
        let Some(item) = item else {
            // Only time may take a key away.
            let Some(known) = known else { return };
            let ends = known.ends.unwrap_or_else(|| panic!("{} is gone", describe(&place.1)));
            assert!(SystemTime::now() >= ends, "gone too early");
            self.model.remove(place);
            return;
        };
        let known = known.unwrap_or_else(|| panic!("{} came back from the dead", describe(&place.1)));
        assert_eq!(item.key(), place.1);
        assert_eq!((item.version(), item.flags()), (known.version, known.flags));
        let ends = item.expires().map(|ends| ends.duration_since(known.ends.unwrap()).is_ok());
        assert_eq!(ends, known.ends.map(|_| true));
        let attributes = item.attributes();
        assert_eq!(attributes.len(), known.attributes.len());
        for ((name, found), (known_name, wanted)) in attributes.iter().zip(&known.attributes) {
            assert_eq!(name, known_name);
            match (found, wanted) {
                (Attribute::Bytes(found), Value::Bytes(wanted)) => {
                    assert!(found == wanted, "{} instead of {}", describe(found), describe(wanted));
                }
                (
                    Attribute::Link(Link { table, key, bytes }),
                    Value::Link { table: target, key: to, bytes: own },
                ) => {
                    assert_eq!(*table, self.tables[session][*target].id());
                    assert!(key == to && bytes == own);
                }
                _ => panic!("{found:?} instead of another kind of attribute"),
            }
        }
        assert_eq!(item.value(), plain(known));
    }

    fn known_version(&self, place: &Place) -> Option<Version> {
        self.model.get(place).map(|known| known.version)
    }

    fn put(&mut self, session: usize, place: Place) {
        let value = self.value(place.0);
        let table = self.tables[session][place.0];
        let version = self.sessions[session].put(table, &place.1, &value).unwrap();
        self.note_plain(place, value, version);
    }

    fn note_plain(&mut self, place: Place, value: Vec<u8>, version: Version) {
        // The version of an inline value is the value.
        let inline = (place.0 == INLINE).then(|| u64::from_le_bytes(value[..].try_into().unwrap()));
        assert!(inline.is_none_or(|value| value == version.0));
        let known = Known { attributes: vec![("", Value::Bytes(value))], version, ends: None, flags: 0 };
        let old = self.model.insert(place, known);
        assert!(inline.is_some() || old.is_none_or(|old| old.version != version));
    }

    fn new_item(&mut self, session: usize) -> (NewItem, Known) {
        let mut item = NewItem::new();
        let mut attributes = Vec::new();
        for _ in 0..self.random.below(6) {
            let name = NAMES[self.random.below(4) as usize];
            let bytes = if self.random.once_in(12) { self.value(0) } else { self.bytes(20) };
            if self.random.once_in(2) {
                item = item.bytes(name, &bytes);
                attributes.push((name, Value::Bytes(bytes)));
            } else {
                let (table, key) = self.place();
                item = item.link_with(name, self.tables[session][table], &key, &bytes);
                attributes.push((name, Value::Link { table, key, bytes }));
            }
        }
        if attributes.is_empty() {
            // An item with nothing in it is a plain one with an empty value.
            attributes.push(("", Value::Bytes(Vec::new())));
        }
        let flags = if self.random.once_in(3) { self.random.below(1 << 32) as u32 } else { 0 };
        item = item.flags(flags);
        (item, Known { attributes, version: Version(0), ends: None, flags })
    }

    fn put_item(&mut self, session: usize, place: Place) {
        if place.0 == INLINE {
            return self.put(session, place);
        }
        let (mut item, mut known) = self.new_item(session);
        if self.random.once_in(4) {
            let time = Duration::from_millis(self.random.below(80));
            let ends = SystemTime::now() + time;
            known.ends = Some(ends);
            if self.random.once_in(2) {
                item = item.expires_in(time)
            } else {
                item = item.expires_at(ends)
            };
        }
        let table = self.tables[session][place.0];
        known.version = self.sessions[session].put_item(table, &place.1, &item).unwrap();
        self.model.insert(place, known);
    }

    fn get(&mut self, session: usize, place: &Place) -> Option<Item> {
        let table = self.tables[session][place.0];
        let item = self.sessions[session].get(table, &place.1).unwrap();
        self.check_item(session, place, item.as_ref());
        item
    }

    fn get_into(&mut self, session: usize, place: &Place) {
        let table = self.tables[session][place.0];
        let found = self.sessions[session].get_into(table, &place.1, &mut self.buffer).unwrap();
        match (found, self.model.get(place)) {
            (Some((length, version)), Some(known)) => {
                assert_eq!(version, known.version);
                assert!(self.buffer[..length] == *plain(known));
                if length > 0 {
                    let small = &mut self.buffer[..length - 1];
                    match self.sessions[session].get_into(table, &place.1, small) {
                        Err(error) => assert_eq!(error.kind(), kelix::ErrorKind::BufferTooSmall),
                        Ok(found) => assert!(found.is_none() && known.ends.is_some()),
                    }
                }
            }
            (Some(_), None) => panic!("came back from the dead"),
            (None, _) => self.check_item(session, place, None),
        }
    }

    fn delete(&mut self, session: usize, place: &Place) {
        let table = self.tables[session][place.0];
        let was_there = self.sessions[session].delete(table, &place.1).unwrap();
        self.note_deleted(session, place, was_there);
    }

    fn note_deleted(&mut self, session: usize, place: &Place, was_there: bool) {
        if !was_there {
            self.check_item(session, place, None);
        }
        assert_eq!(self.model.remove(place).is_some(), was_there);
    }

    fn compare_and_set(&mut self, session: usize, place: Place) {
        let current = self.known_version(&place);
        let expected = match self.random.below(4) {
            0..=1 => current,
            2 => None,
            _ => current.map(|version| Version(version.0 + 1)),
        };
        let table = self.tables[session][place.0];
        let (outcome, known) = if self.random.once_in(3) && place.0 != INLINE {
            let (item, known) = self.new_item(session);
            let outcome = self.sessions[session].compare_and_set_item(table, &place.1, expected, &item);
            (outcome.unwrap(), known)
        } else {
            let value = self.value(place.0);
            let outcome = self.sessions[session].compare_and_set(table, &place.1, expected, &value).unwrap();
            let attributes = vec![("", Value::Bytes(value))];
            (outcome, Known { attributes, version: Version(0), ends: None, flags: 0 })
        };
        self.note_compared(session, place, expected, outcome, known);
    }

    /// Notes how a conditional put of what is `known` then ended.
    fn note_compared(
        &mut self,
        session: usize,
        place: Place,
        expected: Option<Version>,
        outcome: CompareAndSet,
        known: Known,
    ) {
        let current = self.known_version(&place);
        let large_ended = self.model.get(&place).and_then(|known| known.ends);
        match outcome {
            CompareAndSet::Done(version) => {
                let in_time = expected == current
                    || (expected.is_none() && large_ended.is_some_and(|ends| SystemTime::now() >= ends));
                assert!(in_time, "set although another version was expected");
                self.model.insert(place, Known { version: version.unwrap(), ..known });
            }
            CompareAndSet::Mismatch(found) => {
                if found.is_none() {
                    self.check_item(session, &place, None);
                }
                assert_eq!(found, self.known_version(&place));
                assert_ne!(found, expected);
            }
        }
    }

    fn compare_and_delete(&mut self, session: usize, place: Place) {
        let current = self.known_version(&place);
        let wrong = Version(current.map_or(77, |version| version.0 + 1));
        let expected = if self.random.once_in(2) { current.unwrap_or(wrong) } else { wrong };
        let table = self.tables[session][place.0];
        let outcome = self.sessions[session].compare_and_delete(table, &place.1, expected).unwrap();
        self.note_compared_delete(session, place, expected, outcome);
    }

    fn note_compared_delete(
        &mut self,
        session: usize,
        place: Place,
        expected: Version,
        outcome: CompareAndSet,
    ) {
        match outcome {
            CompareAndSet::Done(version) => {
                assert_eq!((version, Some(expected)), (None, self.known_version(&place)));
                self.model.remove(&place);
            }
            CompareAndSet::Mismatch(found) => {
                if found.is_none() {
                    self.check_item(session, &place, None);
                }
                assert_eq!(found, self.known_version(&place));
                assert_ne!(found, Some(expected));
            }
        }
    }

    fn multi_get(&mut self, session: usize) {
        let number = self.random.below(TABLES.len() as u64) as usize;
        let keys: Vec<Vec<u8>> = (0..self.random.below(400)).map(|_| self.key(number)).collect();
        let slices: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let table = self.tables[session][number];
        if self.random.once_in(2) {
            let items = self.sessions[session].multi_get(table, &slices).unwrap();
            assert_eq!(items.len(), keys.len());
            let places = keys.into_iter().map(|key| (number, key));
            self.check_items(session, places.zip(&items));
            return;
        }
        let mut values = std::mem::take(&mut self.values);
        self.sessions[session].multi_get_into(table, &slices, &mut values).unwrap();
        self.check_values(session, number, keys, &values);
        self.values = values;
    }

    /// Checks what a batch found. A key may be in it twice, and gets of a batch have no order: one of them
    /// may have read the item before its end that the other one found gone. So what was found is checked
    /// first.
    fn check_items<'i>(
        &mut self,
        session: usize,
        items: impl Iterator<Item = (Place, &'i Option<Item>)> + Clone,
    ) {
        for found in [true, false] {
            for (place, item) in items.clone().filter(|(_, item)| item.is_some() == found) {
                self.check_item(session, &place, item.as_ref());
            }
        }
    }

    /// Checks the values that a batch found, in the order of [`World::check_items`].
    fn check_values(&mut self, session: usize, number: usize, keys: Vec<Vec<u8>>, values: &Values) {
        let (there, absent): (Vec<_>, Vec<_>) =
            keys.into_iter().enumerate().partition(|(index, _)| values.get(*index).is_some());
        for (index, key) in there.into_iter().chain(absent) {
            let place = (number, key);
            match (values.get(index), self.model.get(&place)) {
                (Some(value), Some(known)) => {
                    assert_eq!(values.version(index), Some(known.version));
                    assert!(value == plain(known));
                }
                (Some(_), None) => panic!("came back from the dead"),
                (None, _) => self.check_item(session, &place, None),
            }
        }
    }

    /// Puts a batch; with another one that gets, or alone.
    fn multi_put(&mut self, session: usize) {
        let places = self.places(300);
        let number = self.random.below(TABLES.len() as u64) as usize;
        let items: Vec<(Vec<u8>, Vec<u8>)> = places
            .into_iter()
            .filter(|place| place.0 == number)
            .map(|(_, key)| (key, self.value(number)))
            .collect();
        let slices: Vec<(&[u8], &[u8])> = items.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        let table = self.tables[session][number];
        let results = if self.random.once_in(2) {
            self.sessions[session].multi_put(table, &slices).unwrap()
        } else {
            // Not those that are put, whose values before and after are both right.
            let mut keys: Vec<Vec<u8>> = (0..self.random.below(300)).map(|_| self.key(number)).collect();
            keys.retain(|key| items.iter().all(|(put, _)| put != key));
            let wanted: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            let mut values = std::mem::take(&mut self.values);
            let results = self.sessions[session].multi_get_put(table, &wanted, &mut values, &slices).unwrap();
            self.check_values(session, number, keys, &values);
            self.values = values;
            results
        };
        assert_eq!(results.len(), items.len());
        for ((key, value), version) in items.into_iter().zip(results) {
            self.note_plain((number, key), value, version.unwrap());
        }
    }

    /// Submits operations on different keys and waits for them on the session's descriptor.
    fn submit(&mut self, number: usize) {
        let mut asked: Vec<(Ticket, Place, Submitted)> = Vec::new();
        for place in self.places(120) {
            let table = self.tables[number][place.0];
            let (what, value) = (self.random.below(6), self.value(place.0));
            let current = self.known_version(&place);
            let wrong = Version(current.map_or(77, |version| version.0 + 1));
            let expected = if self.random.once_in(2) { current } else { Some(wrong) };
            let session = &mut self.sessions[number];
            let (ticket, value) = match (what, expected) {
                (0..=1, _) => (session.submit_get(table, &place.1).unwrap(), None),
                (2, _) => (session.submit_put(table, &place.1, &value).unwrap(), Some(value)),
                (3, Some(expected)) => {
                    (session.submit_compare_and_delete(table, &place.1, expected).unwrap(), None)
                }
                (4, expected) => {
                    let ticket = session.submit_compare_and_set(table, &place.1, expected, &value);
                    (ticket.unwrap(), Some(value))
                }
                _ => (session.submit_delete(table, &place.1).unwrap(), None),
            };
            asked.push((ticket, place, (value, expected)));
        }
        assert_eq!(self.sessions[number].outstanding(), asked.len());
        for Completion { ticket, outcome, .. } in complete(&mut self.sessions[number]) {
            let index = asked.iter().position(|(asked, ..)| *asked == ticket).expect("asked, and once only");
            let (_, place, (value, expected)) = asked.swap_remove(index);
            match outcome.unwrap() {
                Outcome::Item(item) => self.check_item(number, &place, item.as_ref()),
                Outcome::Written(version) => self.note_plain(place, value.expect("a put"), version),
                Outcome::Deleted(was_there) => self.note_deleted(number, &place, was_there),
                Outcome::Compared(compared) => match value {
                    None => self.note_compared_delete(number, place, expected.expect("a version"), compared),
                    Some(value) => {
                        let attributes = vec![("", Value::Bytes(value))];
                        let known = Known { attributes, version: Version(0), ends: None, flags: 0 };
                        self.note_compared(number, place, expected, compared, known);
                    }
                },
                Outcome::Page(_) => unreachable!("nothing is scanned"),
            }
        }
        assert!(asked.is_empty());
    }

    fn follow(&mut self, session: usize, place: &Place) {
        let Some(source) = self.get(session, place) else { return };
        let known = self.model[place].clone();
        for name in NAMES {
            let links = known.attributes.iter().filter(|(known, _)| *known == name);
            let targets: Vec<Place> = links
                .filter_map(|(_, value)| match value {
                    Value::Link { table, key, .. } => Some((*table, key.clone())),
                    Value::Bytes(_) => None,
                })
                .collect();
            assert_eq!(source.link_count(name), targets.len());
            if targets.is_empty() {
                let error = self.sessions[session].follow(&source, name).unwrap_err();
                assert_eq!(error.kind(), kelix::ErrorKind::NoSuchAttribute);
                continue;
            }
            let first = self.sessions[session].follow(&source, name).unwrap();
            self.check_item(session, &targets[0], first.as_ref());
            let all = self.sessions[session].follow_all(&source, name).unwrap();
            assert_eq!(all.len(), targets.len());
            self.check_items(session, targets.iter().cloned().zip(&all));
        }
    }

    /// Scans a part of an ordered table, in one of several ways.
    fn scan(&mut self, session: usize) {
        let number = 1 + self.random.below(TABLES.len() as u64 - 1) as usize;
        let table = self.tables[session][number];
        let (mut scan, mut lower, mut upper) = (Scan::all(), None, None);
        if self.random.once_in(4) {
            let mut prefix = self.key(number);
            prefix.truncate(self.random.below(12) as usize);
            scan = Scan::prefix(&prefix);
            lower = Some(prefix);
        } else {
            let (from, until) = (self.key(number), self.key(number));
            let (mut low, mut high) = (Bound::Unbounded, Bound::Unbounded);
            if !self.random.once_in(4) {
                low = if self.random.once_in(2) { Bound::Included(&from) } else { Bound::Excluded(&from) };
                lower = Some(from.clone());
            }
            if !self.random.once_in(4) {
                high = if self.random.once_in(2) { Bound::Excluded(&until) } else { Bound::Included(&until) };
                upper = Some(until.clone());
            }
            scan = scan.range((low, high));
        }
        let (mut limit, backwards) = (u64::MAX, self.random.once_in(2));
        if self.random.once_in(2) {
            limit = self.random.below(40);
            scan = scan.limit(limit);
        }
        if backwards {
            scan = scan.backwards();
        }
        // What the words of the scan mean is asked of its printed form, once more.
        let words = format!("{scan:?}");
        let is_prefix = words.contains("prefix: [") && !words.contains("prefix: []");
        let inside = |key: &Vec<u8>| {
            let above = lower.as_ref().is_none_or(|lower| match is_prefix {
                true => key.starts_with(lower),
                false if words.contains("lower: Excluded") => key > lower,
                false => key >= lower,
            });
            let below = upper.as_ref().is_none_or(|upper| match words.contains("upper: Included") {
                true => key <= upper,
                false => key < upper,
            });
            above && below
        };
        let keys = self.model.keys().filter(|place| place.0 == number).map(|place| place.1.clone());
        let mut keys: Vec<Vec<u8>> = keys.filter(inside).collect();
        if backwards {
            keys.reverse();
        }
        let stays = |model: &Model, key: &Vec<u8>| model[&(number, key.clone())].ends.is_none();
        match self.random.below(4) {
            0 => {
                let sure = keys.iter().filter(|key| stays(&self.model, key)).count() as u64;
                // Exact at both ends of the range.
                let estimate = self.sessions[session].estimate(table, &scan).unwrap_or(0);
                assert!(estimate <= 2 * keys.len() as u64 + 32, "{estimate} of {} keys", keys.len());
                let counted = self.sessions[session].count(table, &scan).unwrap();
                assert!(counted >= sure.min(limit) && counted <= (keys.len() as u64).min(limit));
            }
            1 => {
                let mut rows = Rows::new();
                self.sessions[session].scan_into(table, &scan, &mut rows).unwrap();
                let mut found = 0;
                for key in keys {
                    if found < rows.len() && rows.key(found) == key {
                        let known = &self.model[&(number, key)];
                        assert!(rows.version(found) == known.version && rows.value(found) == plain(known));
                        found += 1;
                    } else if (found as u64) < limit {
                        self.check_item(session, &(number, key), None);
                    }
                }
                assert_eq!(found, rows.len());
            }
            _ => {
                let items = self.sessions[session].scan(table, &scan).unwrap();
                let items: Vec<Item> = items.map(|item| item.unwrap()).collect();
                let mut found = 0;
                for key in keys {
                    let item = items.get(found).filter(|item| item.key() == key);
                    if item.is_some() || (found as u64) < limit {
                        self.check_item(session, &(number, key), item);
                    }
                    found += usize::from(item.is_some());
                }
                assert_eq!(found, items.len());
            }
        }
    }

    fn step(&mut self) {
        let session = self.session();
        let place = self.place();
        match self.random.below(32) {
            0..=5 => self.put(session, place),
            6..=9 => self.put_item(session, place),
            10..=15 => drop(self.get(session, &place)),
            16..=18 => self.get_into(session, &place),
            19..=21 => self.delete(session, &place),
            22..=23 => self.compare_and_set(session, place),
            24 => self.compare_and_delete(session, place),
            25 => self.multi_get(session),
            26 if self.random.once_in(3) => self.multi_put(session),
            27 if self.random.once_in(2) => self.submit(session),
            28 => self.scan(session),
            _ => self.follow(session, &place),
        }
    }

    /// Ends everything that is there, and waits for what ends by itself.
    fn empty(&mut self) {
        let places: Vec<_> = self.model.keys().cloned().collect();
        for place in places {
            if self.model[&place].ends.is_some() {
                until("an item ends when its time is over", || {
                    self.get(0, &place);
                    !self.model.contains_key(&place)
                });
            } else {
                self.delete(1, &place);
            }
        }
        assert!(self.model.is_empty());
    }
}

/// The value that `get_into` and `Item::value` tell.
fn plain(known: &Known) -> &[u8] {
    let unnamed = known.attributes.iter().find_map(|(name, value)| match value {
        Value::Bytes(bytes) if name.is_empty() => Some(&bytes[..]),
        _ => None,
    });
    unnamed.unwrap_or(&[])
}

/// Polls until nothing is outstanding, sleeping on the descriptor as [`Session::poll`] says one may.
fn complete(session: &mut Session) -> Vec<Completion> {
    let mut completions = Vec::new();
    while session.outstanding() > 0 {
        if session.poll(&mut completions).unwrap() == 0 {
            assert!(is_readable_within(session, Duration::from_secs(10)), "no wake-up came");
        }
    }
    completions
}

fn is_readable_within(session: &Session, time: Duration) -> bool {
    // SAFETY: the session, whose descriptor it is, is borrowed until after the last use.
    let fd = unsafe { BorrowedFd::borrow_raw(session.fd()) };
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut fds, Some(&time)).unwrap() > 0
}

fn run(seed: u64, shards: usize) {
    eprintln!("seed {seed}, {shards} shards");
    let run = RunDir::new();
    let server = server(&run, shards, shards as u64 * (192 << 20));
    let client = server.client();
    let mut world = World::new(&server, seed);
    // All names are known before anything is counted.
    for (table, (_, kind)) in world.tables[0].into_iter().zip(TABLES) {
        if kind == TableKind::Inline {
            world.sessions[0].put(table, &[0; 8], &[0; 8]).unwrap();
            world.sessions[0].delete(table, &[0; 8]).unwrap();
            continue;
        }
        let key = if kind.has_numbers() { &[0; 8][..] } else { b"" };
        let mut item = NewItem::new();
        for name in NAMES {
            item = item.bytes(name, b"");
        }
        world.sessions[0].put_item(table, key, &item).unwrap();
        world.sessions[0].delete(table, key).unwrap();
    }
    let idle = |name| asked_sum(&client, name);
    // Each table and each name but the empty one stands twice in the catalogue.
    let (tables, names) = (TABLES.len() as u64, NAMES.len() as u64 - 1);
    let catalogue = 2 * (tables + (tables - 1) * names);
    until("the shards have reported", || idle("deletes") == tables && idle("items") == 0);
    let before = ["items", "memory/live_bytes"].map(idle);
    for _ in 0..fewer(OPERATIONS) {
        world.step();
    }
    until("the items are counted", || {
        // What has ended meanwhile is in the model until somebody looks.
        let places: Vec<_> = world.model.keys().cloned().collect();
        places.iter().for_each(|place| drop(world.get(0, place)));
        idle("items") == before[0] + world.model.len() as u64
    });
    world.empty();
    // An item of the catalogue that was moved out of a sparse segment carries its version in a word of its
    // own. And ordered tables keep a few sub-models that they had when they were larger.
    let moved = 32 * catalogue + 3 * 1024;
    until("everything was given back", || {
        let [items, live] = ["items", "memory/live_bytes"].map(idle);
        items == before[0] && (before[1]..=before[1] + moved).contains(&live)
    });
    until("the quarantine ends", || idle("memory/quarantined_bytes") == 0);
}

#[test]
fn one_shard_does_what_the_model_does() {
    let _watchdog = watchdog("model, one shard");
    seeds(3).into_iter().for_each(|seed| run(seed, 1));
}

#[test]
fn three_shards_do_what_the_model_does() {
    let _watchdog = watchdog("model, three shards");
    seeds(3).into_iter().for_each(|seed| run(seed + 100, 3));
}
