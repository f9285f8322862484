//! Which keys a session asks for most, although the server sees no reads: one operation of some thousand is
//! *sampled*, where the session looks around anyway, so that operations in between cost nothing more.
//!
//! The session keeps the keys that came most among the samples (the algorithm Space-Saving: Metwally, Agrawal and
//! El Abbadi, ICDT 2005, section 3). Old samples count half as much each time there are so many more. The session publishes
//! them beside its counters, each with the place of its item: keys themselves stay in memory of the store, where
//! who may read them finds them.

use std::collections::HashMap;

use kelix_image::{ItemHeader, Span};
use kelix_types::{Error, ErrorKind, KeyHash, Location, Result, TableId, key_hash};
use kelix_wire::hot::{self, HotEntry, SAMPLES_MAX};
use kelix_wire::mailbox_word::{HOT_ENTRIES, HOT_LEN};

use crate::engine::Engine;
use crate::session::Session;
use crate::statistics::{ClientStatistics, HotItem, Statistics};

/// A key and how often it came: the samples are all that may be of the key.
#[derive(Clone, Copy, Default)]
struct Entry {
    told: HotEntry,
    /// How many of them may be of keys that were here before.
    error: u64,
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
        let is_known = |entry: &Entry| entry.told.samples > 0 && entry.told.hash == hash.0;
        let known = self.entries.iter().position(is_known);
        let least = || (0..HOT_ENTRIES).min_by_key(|index| self.entries[*index].told.samples);
        let index = known.or_else(least).expect("some entries");
        let Entry { told, error } = &mut self.entries[index];
        if known.is_none() {
            (told.hash, told.location, *error) = (hash.0, 0, told.samples);
        }
        told.samples += 1;
        told.shard = shard as u64;
        told.location = location.map_or(told.location, Location::word);
        if self.samples == SAMPLES_MAX {
            self.samples /= 2;
            for Entry { told, error } in &mut self.entries {
                (told.samples, *error) = (told.samples / 2, *error / 2);
            }
        }
    }

    /// As the mailbox has them.
    pub fn words(&self) -> [u64; HOT_LEN] {
        let for_sure = |Entry { told, error }: &Entry| HotEntry { samples: told.samples - error, ..*told };
        hot::pack(self.samples, &self.entries.each_ref().map(for_sure))
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
    /// The share of what all sessions ask for, from 0 to 1: at least so much.
    pub share: f64,
    /// The number of sessions for which it stands out.
    pub sessions: usize,
}

/// A key that was found, and its table.
type Found = (TableId, Vec<u8>);

/// The keys that sessions ask for most, as statistics tell of them: what [`Session::hot_keys`] returns.
pub(crate) fn hot_keys(session: &mut Session, statistics: &Statistics) -> Result<Vec<HotKey>> {
    session.heal()?;
    // By hash: the share, the sessions, and the key if it was found.
    let mut keys: HashMap<u64, (f64, usize, Option<Found>)> = HashMap::new();
    // Each session counts for as much as it has asked for.
    let weight = |client: &ClientStatistics| client.reads as f64 + client.messages as f64 + 1.0;
    let sessions = || statistics.clients.iter().filter(|client| client.samples > 0);
    let all: f64 = sessions().map(weight).sum();
    for client in sessions() {
        for item in &client.hot {
            let (share, sessions, key) = keys.entry(item.hash).or_default();
            *share += weight(client) / all * item.samples as f64 / client.samples as f64;
            *sessions += 1;
            // Not every session knows where the item stands.
            if key.is_none() {
                *key = session.engine.find_hot(item)?;
            }
        }
    }
    let hot = keys.into_values().filter_map(|(share, sessions, key)| {
        let (table, key) = key?;
        Some(HotKey { table, key, share, sessions })
    });
    let mut hot: Vec<HotKey> = hot.collect();
    // Of equal shares in the order of tables and keys.
    hot.sort_by(|one, other| {
        let by_key = || (one.table, &one.key).cmp(&(other.table, &other.key));
        other.share.total_cmp(&one.share).then_with(by_key)
    });
    Ok(hot)
}

impl Engine {
    /// The table and the key of an item, if that stands where it was said to: also if it was replaced since,
    /// while its memory has not become anything else.
    fn find_hot(&mut self, item: &HotItem) -> Result<Option<Found>> {
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
