//! Which keys a session asks for most, although the server sees no reads: one operation of some thousand is
//! *sampled*, where the session looks around anyway, so that operations in between cost nothing more.
//!
//! What is kept of the samples are the keys that came most (the algorithm Space-Saving: Metwally, Agrawal and El Abbadi,
//! ICDT 2005, section 3). Old samples count half as much each time there are so many more. The session publishes
//! them beside its counters, each with the place of its item: keys themselves stay in memory of the store, where
//! who may read them finds them.

use std::collections::{HashMap, HashSet};

use kelix_image::{ItemHeader, Span};
use kelix_types::{Error, ErrorKind, KeyHash, Location, Result, TableId, key_hash};
use kelix_wire::hot::{self, HotEntry, SAMPLES_MAX};
use kelix_wire::mailbox_word::{HOT_ENTRIES, HOT_LEN};

use crate::engine::Engine;
use crate::session::Session;
use crate::statistics::{HotItem, Statistics};

/// A key and how often it came.
#[derive(Clone, Copy, Default)]
struct Entry {
    hash: u64,
    location: u64,
    shard: u64,
    count: u16,
    /// How much of it may be of keys that were here before.
    error: u16,
}

/// The keys that a session asks for most.
#[derive(Default)]
pub(crate) struct HotKeys {
    entries: [Entry; HOT_ENTRIES],
    samples: u16,
}

impl HotKeys {
    /// A key was asked for, whose item stands there, as far as is known.
    pub fn note(&mut self, hash: KeyHash, shard: usize, location: Option<Location>) {
        self.samples += 1;
        let known = self.entries.iter().position(|entry| entry.count > 0 && entry.hash == hash.0);
        let least = || (0..HOT_ENTRIES).min_by_key(|index| self.entries[*index].count);
        let index = known.or_else(least).expect("some entries");
        let entry = &mut self.entries[index];
        if known.is_none() {
            *entry = Entry { hash: hash.0, location: 0, error: entry.count, ..*entry };
        }
        entry.count += 1;
        entry.shard = shard as u64;
        entry.location = location.map_or(entry.location, Location::word);
        if self.samples == SAMPLES_MAX {
            self.samples /= 2;
            for entry in &mut self.entries {
                (entry.count, entry.error) = (entry.count / 2, entry.error / 2);
            }
        }
    }

    /// As the mailbox has them.
    pub fn words(&self) -> [u64; HOT_LEN] {
        let told = |entry: &Entry| HotEntry {
            hash: entry.hash,
            samples: u64::from(entry.count - entry.error),
            shard: entry.shard,
            location: entry.location,
        };
        hot::pack(self.samples, &self.entries.each_ref().map(told))
    }
}

/// A key that sessions ask for often.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct HotKey {
    /// The table's number; [`Session::table_name`] knows its name.
    pub table: TableId,
    /// The key.
    pub key: Vec<u8>,
    /// Its share of what all sessions ask for, as of 1: at least so much.
    pub share: f64,
    /// The number of sessions for which it stands out.
    pub sessions: usize,
}

/// The keys that sessions ask for most, as statistics tell of them: what [`Session::hot_keys`] returns.
pub(crate) fn hot_keys(session: &mut Session, statistics: &Statistics) -> Result<Vec<HotKey>> {
    session.heal()?;
    let mut keys: HashMap<u64, HotKey> = HashMap::new();
    let mut found = HashSet::new();
    // Each session counts for as much as it has asked for.
    let weight = |reads: u64, messages: u64| reads as f64 + messages as f64 + 1.0;
    let sessions = || statistics.clients.iter().filter(|client| client.samples > 0);
    let all: f64 = sessions().map(|client| weight(client.reads, client.messages)).sum();
    for client in sessions() {
        let of_all = weight(client.reads, client.messages) / all;
        for item in &client.hot {
            let share = of_all * item.samples as f64 / client.samples as f64;
            let none = HotKey { table: TableId::CATALOGUE, key: Vec::new(), share: 0.0, sessions: 0 };
            let known = keys.entry(item.hash).or_insert(none);
            (known.share, known.sessions) = (known.share + share, known.sessions + 1);
            // Not every session knows where the item stands.
            if !found.contains(&item.hash) {
                if let Some((table, key)) = session.engine.find_hot(item)? {
                    (known.table, known.key) = (table, key);
                    found.insert(item.hash);
                }
            }
        }
    }
    keys.retain(|hash, _| found.contains(hash));
    let mut keys: Vec<HotKey> = keys.into_values().collect();
    let order = |key: &HotKey| (key.table.0, key.key.clone());
    keys.sort_by(|one, other| other.share.total_cmp(&one.share).then_with(|| order(one).cmp(&order(other))));
    Ok(keys)
}

impl Engine {
    /// The table and the key of an item, if that stands where it was said to: also if it was replaced since,
    /// while its memory has not become anything else.
    fn find_hot(&mut self, item: &HotItem) -> Result<Option<(TableId, Vec<u8>)>> {
        let (Ok(shard), Some(location)) = (usize::try_from(item.shard), Location::from_word(item.location))
        else {
            return Ok(None);
        };
        let begin = Span::private(16);
        if shard >= self.transport.shards() || !self.read_span(shard, location.place(), &begin)? {
            return Ok(None);
        }
        let Some(header) = ItemHeader::from_word(begin.words().load(1)) else { return Ok(None) };
        let end = header.key_start() + header.key_bytes;
        if end > location.class().words() * 8 {
            return Ok(None);
        }
        let whole = Span::try_private(end.next_multiple_of(8) as u64)
            .ok_or_else(|| Error::unnamed(ErrorKind::System, "no memory for a key"))?;
        let mut key = vec![0; header.key_bytes];
        let is_whole = self.read_span(shard, location.place(), &whole)?
            && whole.words().copy_bytes_out(header.key_start(), &mut key)
            && key_hash(self.transport.seed(), header.table, &key).0 == item.hash;
        Ok(is_whole.then_some((header.table, key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelix_types::{Place, SizeClass};

    fn location(number: u64) -> Option<Location> {
        Some(Location::new(Place(number * 64), SizeClass(2)))
    }

    /// A key of a tenth of all is found among ten thousand others, with at most its share; none of those is.
    #[test]
    fn what_comes_often_is_told_from_what_comes_by_chance() {
        let mut keys = HotKeys::default();
        let mut number = 1u64;
        for step in 0..5000u64 {
            number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            match step % 10 {
                0 => keys.note(KeyHash(7), 5, location(step)),
                _ => keys.note(KeyHash(100 + (number >> 33) % 10_000), 1, location(number >> 40 & 0xffff)),
            }
        }
        let (samples, items) = hot::unpack(&keys.words());
        assert!((500..1024).contains(&samples), "{samples}");
        let [item] = &items[..] else { panic!("{items:?}") };
        assert_eq!((item.hash, item.shard), (7, 5));
        assert_eq!(Some(item.location), location(4990).map(Location::word), "where it was last");
        let share = item.samples as f64 / samples as f64;
        assert!((0.05..=0.11).contains(&share), "{share}");
    }
}
