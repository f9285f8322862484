//! Many gets at once where memory is within reach of loads: their memory accesses overlap.

use kelix_fabric::{Mailbox, RemoteMemory};
use kelix_image::PlainItem;
use kelix_image::words::Words;
use kelix_index::{AT_ONCE, BUCKET_WORDS, Step, guess};
use kelix_types::{KeyHash, Location, TableId, TableKind, Version, mark};

use super::{Transport, guess_item};
use crate::item::Values;
use crate::ordered::{Looked, in_time, look_at_step};
use crate::read::{ShardReader, take_direct};

/// A key of a batch, and where it is looked for next: nowhere, its bucket, its item.
#[derive(Clone, Copy)]
struct Look<'a> {
    words: Words<'a>,
    hash: KeyHash,
    shard: usize,
}

/// Keys of a batch whose memory accesses overlap.
const DIRECT_READS: usize = 64;

impl<F: RemoteMemory + Mailbox> Transport<F> {
    /// The same for many keys, the memory accesses of [`DIRECT_READS`] of them overlapping: first all
    /// buckets, then all items. The values go into `values` from entry `base` on; `rest` receives the indices
    /// of the keys that are not the common case.
    pub fn read_many_direct(
        &mut self,
        table: TableId,
        keys: &[&[u8]],
        values: &mut Values,
        base: usize,
        rest: &mut Vec<usize>,
    ) {
        for (wave, keys) in keys.chunks(DIRECT_READS).enumerate() {
            let (first, base) = (wave * DIRECT_READS, base + wave * DIRECT_READS);
            // Most stores have few shards, and many have one: then nothing need be asked about shards.
            if self.shards.len() == 1 {
                self.read_wave_direct::<true>(table, keys, (values, base), first, rest);
            } else {
                self.read_wave_direct::<false>(table, keys, (values, base), first, rest);
            }
        }
    }

    fn read_wave_direct<const ONE_SHARD: bool>(
        &mut self,
        table: TableId,
        keys: &[&[u8]],
        (values, base): (&mut Values, usize),
        first_index: usize,
        rest: &mut Vec<usize>,
    ) {
        let look_up = |shard: usize| {
            let reader = &self.shards[shard].reader;
            reader.direct.as_ref().map(|direct| (direct, direct.map.view(), reader))
        };
        let Some(first) = look_up(0) else { return rest.extend(first_index..first_index + keys.len()) };
        let reach = |shard: usize| if ONE_SHARD || shard == 0 { Some(first) } else { look_up(shard) };
        let mut wave = [Look { words: Words::EMPTY, hash: KeyHash(0), shard: 0 }; DIRECT_READS];
        let wave = &mut wave[..keys.len()];
        // The next key's work is done in the shadow of a prefetch that waits for its page's address, and all
        // buckets are asked for before the first is looked at: a shorter distance, and prefetches in loops of
        // their own, are slower.
        for (key, look) in keys.iter().zip(&mut *wave) {
            let hash = self.hash(table, key);
            let shard = if ONE_SHARD { 0 } else { self.server.view.shard(hash) };
            let Some((_, map, reader)) = reach(shard) else { continue };
            let Some(place) = reader.directory.bucket(hash, hash.bucket()) else { continue };
            let Some(words) = map.words(place, BUCKET_WORDS) else { continue };
            words.prefetch_line();
            *look = Look { words, hash, shard };
        }
        for look in &mut *wave {
            let words = guess(look.words, look.hash).and_then(|slot| {
                let (_, map, _) = reach(look.shard)?;
                map.words_from(Location::place_of(slot))
            });
            look.words = words.unwrap_or(Words::EMPTY);
            look.words.prefetch_line();
        }
        let (mut gets, mut key_bytes) = (0, 0);
        let (entries, room) = values.parts(base, keys.len());
        let used = room.used();
        for (index, ((key, look), entry)) in keys.iter().zip(wave).zip(entries).enumerate() {
            let taken = reach(look.shard).and_then(|(direct, _, reader)| {
                take_direct((direct, &reader.watermark), reader.term, look.words, (table, key), |item| {
                    item.copy_value(room.next(item.value_bytes()))?;
                    Some(item.value_bytes())
                })
            });
            match taken {
                Some((incarnation, value_bytes)) => {
                    gets += 1;
                    key_bytes += key.len();
                    *entry = room.keep(value_bytes, Version(incarnation.0));
                }
                None => rest.push(first_index + index),
            }
        }
        let value_bytes = room.used() - used;
        if self.hints.is_some() {
            self.hint_wave(table, keys);
        }
        self.shards[0].reader.direct_gets += gets;
        self.direct_item_bytes += gets * 16 + (key_bytes + value_bytes) as u64;
    }
}

impl<F: RemoteMemory + Mailbox> Transport<F> {
    /// Takes note that these keys were read. What was found is close by yet.
    #[cold]
    fn hint_wave(&mut self, table: TableId, keys: &[&[u8]]) {
        for key in keys {
            let hash = self.hash(table, key);
            let ShardReader { directory, direct, .. } = &self.shards[self.server.view.shard(hash)].reader;
            let found = direct.as_ref().and_then(|direct| guess_item(direct, directory, hash));
            let location = found.and_then(|(word, _)| Location::from_word(word));
            self.hint_of(hash, location);
        }
    }
}

impl ShardReader {
    /// Looks for many keys of an ordered table. Their values go into `values` from entry `base` on; `rest`
    /// receives the indices of those that could not be found so.
    pub fn look_for_many(
        &mut self,
        table: TableId,
        keys: &[&[u8]],
        (values, base): (&mut Values, usize),
        rest: &mut Vec<usize>,
    ) {
        for (wave, keys) in keys.chunks(AT_ONCE).enumerate() {
            let base = (base, wave * AT_ONCE);
            match table.kind() {
                kind @ TableKind::Inline => self.look_for_wave(kind, (table, keys), (values, base), rest),
                kind => self.look_for_wave(kind, (table, keys), (values, base), rest),
            }
        }
    }

    #[inline(always)]
    fn look_for_wave(
        &mut self,
        kind: TableKind,
        (table, keys): (TableId, &[&[u8]]),
        (values, (base, first)): (&mut Values, (usize, usize)),
        rest: &mut Vec<usize>,
    ) {
        let ShardReader { term, direct, ordered, watermark, .. } = self;
        let Some(direct) = direct.as_ref() else { return rest.extend(first..first + keys.len()) };
        let before = direct.begin();
        let mut steps = [Step::BEGIN; AT_ONCE];
        let steps = &mut steps[..keys.len()];
        ordered.lead(direct, kind, (table, keys), steps);
        let left = rest.len();
        for (index, (step, key)) in (first..).zip(steps.iter().zip(keys)) {
            let copy = |item: PlainItem<'_>| values.copy_item(item);
            let near = (direct, &*watermark);
            let looked = look_at_step(step, &mut ordered.reads, near, kind, (table, key), copy);
            match looked {
                Some(Looked::Copied(pointer, bytes)) => {
                    values.keep(base + index, bytes, Version(pointer.incarnation.0));
                }
                Some(Looked::Inline(value)) => {
                    values.put(&value.to_le_bytes());
                    values.keep(base + index, 8, Version(value));
                }
                Some(Looked::Absent) => {}
                Some(Looked::At(_) | Looked::Unknown) | None => rest.push(index),
            }
        }
        if !in_time(direct, before, *term) {
            mark!("batch of looks too slow");
            rest.truncate(left);
            (first..first + keys.len()).for_each(|index| values.forget(base + index));
            rest.extend(first..first + keys.len());
        }
    }
}
