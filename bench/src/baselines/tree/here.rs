//! A client in shared memory: loads, those of many keys overlapping.

use kelix_fabric::Direct;
use kelix_image::MemoryMap;
use kelix_types::Guardian;
use kelix_types::limits::READ_EPOCHS_MAX;

use super::Cost;
use super::cache::{Cache, Link};
use super::node::{COPIES_GRANULE, LEAF_WORDS, find_slot, missing, slot_words};
use super::server::{TERM, Top};

/// Keys that go down the tree together.
const AT_ONCE: usize = 64;
/// Words of a leaf that have most of its keys, and are asked for first: two lines.
const FIRST_WORDS: usize = 16;

/// The client.
pub(crate) struct Here {
    direct: Direct,
    top: Top,
    cache: Cache,
    pub cost: Cost,
}

#[cold]
fn outside() -> String {
    "the tree led to a place outside of all memory".into()
}

impl Here {
    pub(super) fn new(
        mut map: MemoryMap,
        direct: impl Fn(MemoryMap) -> Direct,
        top: Top,
        cache_bytes: usize,
    ) -> Result<Here, String> {
        let servers = direct(map.clone());
        let cache = Cache::new(top, cache_bytes, |place, into| {
            servers.read(place, into).map(drop).ok_or_else(outside)
        })?;
        if cache.copies.bytes() > 0 {
            map.add(COPIES_GRANULE, cache.copies.clone());
        }
        Ok(Here { direct: direct(map), top, cache, cost: Cost::default() })
    }

    /// Bytes of its copies.
    pub fn cache_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// Gets the values of numbers, all of which are there.
    pub fn get_many(&mut self, numbers: &[u64], values: &mut Vec<u64>) -> Result<(), String> {
        values.clear();
        if self.cache.has_room() {
            numbers.iter().try_for_each(|number| self.copy_what_leads_to(*number))?;
        }
        numbers.chunks(AT_ONCE).try_for_each(|numbers| self.get_wave(numbers, values))
    }

    /// Copies the first node on the way to a number that was not copied.
    fn copy_what_leads_to(&mut self, number: u64) -> Result<(), String> {
        let (mut child, mut link) = (self.cache.root, None);
        let mut node = vec![0; self.top.shape.words];
        for _ in 0..self.top.levels {
            self.direct.read(child.place(), &mut node).ok_or_else(outside)?;
            if !child.is_copy() {
                self.cache.keep(link, child, &node);
                break;
            }
            let (entry, next) = self.top.shape.search(|word| node[word], number);
            link = Some(Link { copy: child, entry });
            child = next;
        }
        Ok(())
    }

    fn get_wave(&mut self, numbers: &[u64], values: &mut Vec<u64>) -> Result<(), String> {
        let Here { direct, top, cache, cost } = self;
        let (map, shape) = (direct.map.view(), top.shape);
        let mut ways = [(cache.root, 0); AT_ONCE];
        let ways = &mut ways[..numbers.len()];
        let before = direct.begin();
        let (mut all_live, mut inner_reads) = (true, 0);
        // Through levels that are here whole, nothing but copies.
        for level in 1..=cache.whole {
            for ((child, _), number) in ways.iter_mut().zip(numbers) {
                let node = cache.copy(*child);
                (_, *child) = shape.search(|word| node.load(word), *number);
                if level < cache.whole {
                    cache.copy(*child).prefetch_all();
                } else {
                    let next_words = if level == top.levels { FIRST_WORDS } else { shape.words };
                    map.words(child.place(), next_words).ok_or_else(outside)?.prefetch_all();
                }
            }
        }
        for level in cache.whole + 1..=top.levels {
            let next_words = if level == top.levels { FIRST_WORDS } else { shape.words };
            for ((child, _), number) in ways.iter_mut().zip(numbers) {
                let node = map.words(child.place(), shape.words).ok_or_else(outside)?;
                all_live &= Guardian(node.load_acquire(0)).is_live();
                inner_reads += u64::from(!child.is_copy());
                (_, *child) = shape.search(|word| node.load(word), *number);
                map.words(child.place(), next_words).ok_or_else(outside)?.prefetch_all();
            }
        }
        for ((child, slot), number) in ways.iter_mut().zip(numbers) {
            let leaf = map.words(child.place(), LEAF_WORDS).ok_or_else(outside)?;
            all_live &= Guardian(leaf.load_acquire(0)).is_live();
            *slot = find_slot(|word| leaf.load(word), *number);
            leaf.part(slot_words(*slot)[1], 1).prefetch_line();
        }
        for ((child, slot), number) in ways.iter().zip(numbers) {
            let leaf = map.words(child.place(), LEAF_WORDS).ok_or_else(outside)?;
            let [key, value] = slot_words(*slot).map(|word| leaf.load(word));
            if key != *number {
                return Err(missing(|word| leaf.load(word), *number));
            }
            values.push(value);
        }
        cost.note(inner_reads, shape.words);
        cost.note(numbers.len() as u64, LEAF_WORDS);
        cost.gets += numbers.len() as u64;
        let sampled = direct.sampled(before);
        let in_time = sampled.after.wrapping_sub(before) <= READ_EPOCHS_MAX && sampled.term == TERM;
        if all_live && in_time { Ok(()) } else { Err("the tree changed".into()) }
    }
}
