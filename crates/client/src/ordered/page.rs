//! Pages of a scan: what a leaf holds, or some that follow each other, and the items of that.

use std::ops::Range;

use kelix_fabric::Direct;
use kelix_image::words::Words;
use kelix_image::{ItemFlags, ItemHeader, ItemView, Kind};
use kelix_index::{
    LEAF_HEADER_WORDS, LeafHeader, TABLE_HEADER_WORDS, Way, key_word, leaf_at, leaf_in, slot_word,
};
use kelix_types::limits::{LEAF_SLOTS, READ_EPOCHS_MAX};
use kelix_types::{Guardian, Incarnation, Location, Place, TableId, mark};

use crate::read::{ShardReader, Verdict, Watermark, judge};

/// The words of a leaf.
pub(crate) type LeafWords = [u64; Kind::LEAF_WORDS];

/// What some leaves that follow each other hold.
#[derive(Default)]
pub(crate) struct Page {
    /// Key words and second words; of numbers in their order.
    pub entries: Vec<[u64; 2]>,
    /// The stamp from before the first of the leaves' words.
    pub before: u64,
    /// The first and the last number that they may hold.
    pub low: u64,
    pub high: u64,
    /// Of strings the locations of the first leaf's fences, and of the last one's.
    pub fences: Option<(Location, Location)>,
    /// The items that have these.
    pub bounds: Items,
    /// The leaf behind the last of them.
    pub next: Option<Place>,
    /// The leaves.
    pub leaves: Vec<Incarnation>,
}

impl Page {
    /// Begins a page whose first words are loaded from now on.
    pub fn clear(&mut self, before: u64) {
        self.entries.clear();
        self.bounds.clear();
        self.leaves.clear();
        (self.before, self.fences) = (before, None);
    }

    /// Adds a leaf, which is behind all others that were added.
    #[inline]
    pub fn add(&mut self, words: &LeafWords) {
        let header = LeafHeader(*words.first_chunk::<LEAF_HEADER_WORDS>().expect("a header"));
        let before = self.entries.len();
        if before == 0 {
            self.low = header.first_number();
        }
        (self.high, self.next) = (header.last_number(), header.next());
        self.leaves.push(header.guardian().incarnation());
        if !header.table().kind().has_numbers() {
            let fences = header.fences();
            self.fences = self.fences.map(|(first, _)| first).or(fences).zip(fences);
        }
        let slots = words[LEAF_HEADER_WORDS..].chunks_exact(2).map(|slot| [slot[0], slot[1]]);
        let slots = slots.filter(|slot| header.entry(*slot).is_some());
        if !header.table().kind().has_numbers() {
            self.entries.extend(slots);
        } else if let Some((sorted, count)) = in_order(words, &header) {
            self.entries.extend_from_slice(&sorted[..count]);
        } else {
            self.entries.extend(slots);
            self.entries[before..].sort_unstable_by_key(|entry| entry[0]);
        }
    }

    /// The string at which it begins, and the first one behind it, if not all are below it. `None`: that is
    /// not known.
    pub fn strings(&self, table: TableId) -> Option<(&[u8], Option<&[u8]>)> {
        let mut views = self.bounds.iter().map(|words| {
            let is_it = |header: ItemHeader| header.table == table && header.flags.has(ItemFlags::FENCES);
            ItemView::new(words).filter(|view| is_it(view.header()))
        });
        let first = views.next()??;
        let last = views.last().unwrap_or(Some(first))?;
        Some((first.key(), Some(last.body()).filter(|upper| !upper.is_empty())))
    }

    /// Whether a key may be in it.
    pub fn holds(&self, table: TableId, key: &[u8]) -> bool {
        if table.kind().has_numbers() {
            let number = key_word(key, 0);
            return self.low <= number && number <= self.high;
        }
        let inside =
            |(lower, upper): (&[u8], Option<&[u8]>)| lower <= key && upper.is_none_or(|upper| key < upper);
        self.strings(table).is_some_and(inside)
    }
}

/// The entries of a leaf of numbers in their order, and how many there are: a number's rank is how many are
/// below it, which takes nothing that a processor could guess wrong. `None`: they are too far apart for that.
#[inline(always)]
fn in_order(words: &LeafWords, header: &LeafHeader) -> Option<([[u64; 2]; LEAF_SLOTS + 1], usize)> {
    let (low, empty) = (header.first_number(), header.empty());
    let slot = |at: usize| [words[slot_word(at)], words[slot_word(at) + 1]];
    // Distances from the lower fence, in 30 bits. Those that are not there come last.
    let span = header.last_number().wrapping_sub(low);
    let shift = (u64::BITS - span.leading_zeros()).saturating_sub(30);
    let distances: [i32; LEAF_SLOTS] = std::array::from_fn(|at| {
        let [number, second] = slot(at);
        let there = (number != empty) & (second != empty);
        if there { (number.wrapping_sub(low) >> shift) as i32 & (i32::MAX >> 1) } else { i32::MAX }
    });
    let mut ranks = [0; LEAF_SLOTS];
    for distance in distances {
        for (rank, other) in ranks.iter_mut().zip(&distances) {
            *rank += i32::from(distance < *other);
        }
    }
    let count = distances.iter().map(|distance| usize::from(*distance < i32::MAX)).sum::<usize>();
    // Two with one distance have one rank, and those behind them too little of it.
    let all: i32 = ranks.iter().sum();
    if all as usize != count * count.saturating_sub(1) / 2 + count * (LEAF_SLOTS - count) {
        return None;
    }
    let mut sorted = [[0; 2]; LEAF_SLOTS + 1];
    for (at, rank) in ranks.into_iter().enumerate() {
        sorted[(rank as usize).min(LEAF_SLOTS)] = slot(at);
    }
    Some((sorted, count))
}

/// Items as they were read, one after another.
#[derive(Default)]
pub(crate) struct Items {
    pub words: Vec<u64>,
    /// Where each ends.
    pub ends: Vec<usize>,
}

impl Items {
    pub fn clear(&mut self) {
        self.words.clear();
        self.ends.clear();
    }

    /// Where the words of one stand.
    pub fn span(&self, index: usize) -> Range<usize> {
        index.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[index]
    }

    /// The words of each.
    pub fn iter(&self) -> impl Iterator<Item = &[u64]> {
        (0..self.ends.len()).map(|index| &self.words[self.span(index)])
    }

    /// The last version of the items, which are whole.
    pub fn youngest(&self) -> Incarnation {
        let version = |words: &[u64]| ItemView::new(words).map_or(0, |view| view.version().0);
        Incarnation(self.iter().map(version).max().unwrap_or(0))
    }

    fn keep_first(&mut self, count: usize) {
        self.ends.truncate(count);
        self.words.truncate(self.ends.last().copied().unwrap_or(0));
    }

    /// Adds room for another one.
    pub fn room(&mut self, words: usize) -> &mut [u64] {
        let begin = self.words.len();
        self.words.resize(begin + words, 0);
        self.ends.push(begin + words);
        &mut self.words[begin..]
    }

    /// Keeps the first of them, up to one that is not the item of its entry any more.
    pub fn keep_valid(&mut self, table: TableId, entries: &[[u64; 2]], is_valid: impl Fn(Guardian) -> bool) {
        let numbers = table.kind().has_numbers();
        let is_it = |(index, words): (usize, &[u64])| {
            let view = ItemView::new(words);
            let fits = view.is_some_and(|view| match numbers {
                true => view.is_for(table, &entries[index][0].to_be_bytes()),
                false => view.header().table == table && !view.header().flags.has(ItemFlags::FENCES),
            });
            fits && is_valid(Guardian(words[0]))
        };
        let valid = self.iter().enumerate().take_while(|item| is_it(*item)).count();
        if valid < self.ends.len() {
            mark!("item of a scan was not what its leaf said");
            self.keep_first(valid);
        }
    }
}

/// Where the next page of a scan upwards probably is.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Hint {
    /// Its leaf.
    leaf: Option<Place>,
    /// Its rank in a translation table with so many leaves, which names those to come.
    rank: usize,
    table: Option<(Place, usize)>,
}

/// So many leaves ahead of the one that is read are asked for.
const AHEAD: usize = 3;
/// Keys that a leaf has, about.
const LEAF_KEYS: u64 = 11;

/// Where a page is to be.
pub(crate) struct Wanted<'k> {
    pub table: TableId,
    /// A key that its leaf may hold.
    pub key: &'k [u8],
    /// How many keys are wanted of it and those behind it.
    pub keys: u64,
}

impl ShardReader {
    /// The leaf that a key is in: the one that is hinted at, or by the models. `false`: it was not found. The
    /// hint is for the next page then.
    #[inline]
    pub fn read_page(&mut self, wanted: Wanted<'_>, hint: &mut Hint, page: &mut Page) -> bool {
        let ShardReader { term, direct, ordered, watermark, .. } = self;
        let Some(direct) = direct.as_ref() else { return false };
        let map = direct.map.view();
        let near = (direct, &*watermark);
        let Wanted { table, key, keys } = wanted;
        let mut take = |leaf: Words<'_>| take(near, *term, leaf, (table, key), page);
        ordered.reads.leaves += 1;
        let leaves = ordered.leaves_further();
        if hint.leaf.and_then(|leaf| take(leaf_in(map, Some(leaf)))).is_none() {
            let top = ordered.of(table).top(map, table);
            let found = top.and_then(|top| top.find(key));
            let way =
                found.and_then(|found| Some((Way::to(map, table.kind().has_numbers(), found)?, found.0)));
            let Some((way, sub_model)) = way else { return false };
            let guess = way.guess(key);
            let named = sub_model.table.map(|table| (table, sub_model.leaves));
            *hint = Hint { leaf: None, rank: guess.rank, table: named };
            let leaf = leaf_in(map, guess.leaf);
            leaf.prefetch_all();
            (1..AHEAD).for_each(|ahead| hint.ask_for(direct, ahead, keys));
            if take(leaf).or_else(|| way.further(map, (guess.rank, leaves), take)).is_none() {
                return false;
            }
        }
        hint.ask_for(direct, AHEAD, keys.saturating_sub(page.entries.len() as u64) + LEAF_KEYS);
        hint.leaf = page.next;
        hint.rank += 1;
        true
    }

    /// Takes the items of entries of a page, as many as are valid. `false`: not all of these count yet.
    pub fn read_items(
        &mut self,
        table: TableId,
        page: &Page,
        entries: &[[u64; 2]],
        items: &mut Items,
    ) -> bool {
        let ShardReader { term, direct, ordered, watermark, .. } = self;
        let Some(direct) = direct.as_ref() else { return false };
        let map = direct.map.view();
        let places = entries.iter().map_while(|entry| {
            let location = Location::from_word(entry[1])?;
            map.words(location.place(), location.class().words())
        });
        places.clone().for_each(|place| place.prefetch(place.count()));
        places.for_each(|place| load(place, items.room(place.count())));
        let sampled = direct.sampled(page.before);
        ordered.reads.items += items.ends.len() as u64;
        ordered.reads.item_bytes += items.words.len() as u64 * 8;
        items.keep_valid(table, entries, |guardian| {
            judge(guardian, sampled, READ_EPOCHS_MAX, *term) == Verdict::Valid
        });
        watermark.covers_all() || watermark.covers_item(direct, items.youngest())
    }
}

/// Copies an object from where it stands, its guardian first.
#[inline]
fn load(object: Words<'_>, into: &mut [u64]) {
    into[0] = object.load_acquire(0);
    object.copy_out(1, &mut into[1..]);
}

/// Takes a leaf from where it stands, if it is live and may hold a key.
#[inline]
fn take(
    (direct, watermark): (&Direct, &Watermark),
    term: u64,
    leaf: Words<'_>,
    (table, key): (TableId, &[u8]),
    page: &mut Page,
) -> Option<()> {
    let before = direct.begin();
    let mut words = [0; Kind::LEAF_WORDS];
    if leaf.count() == 0 {
        return None;
    }
    load(leaf, &mut words);
    let header = LeafHeader(*words.first_chunk().expect("a header"));
    let is_valid = |guardian: u64| {
        judge(Guardian(guardian), direct.sampled(before), READ_EPOCHS_MAX, term) == Verdict::Valid
    };
    let counts = || watermark.covers_leaf(direct, header.guardian().incarnation());
    if header.table() != table || !is_valid(words[0]) || !counts() {
        return None;
    }
    page.clear(before);
    page.add(&words);
    if let Some((fences, _)) = page.fences {
        let fences = direct.map.words(fences.place(), fences.class().words())?;
        let room = page.bounds.room(fences.count());
        load(fences, room);
        if !is_valid(room[0]) {
            return None;
        }
    }
    page.holds(table, key).then_some(())
}

impl Hint {
    /// Asks the processor for the leaf that comes so many behind the hinted one, if so many keys reach it.
    #[inline]
    fn ask_for(&self, direct: &Direct, ahead: usize, keys: u64) {
        let leaf = || {
            let (table, leaves) = self.table.filter(|(_, leaves)| self.rank + ahead < *leaves)?;
            let entries = direct.map.words(table, TABLE_HEADER_WORDS + leaves)?;
            Some(leaf_in(direct.map.view(), leaf_at(entries, self.rank + ahead)))
        };
        if keys > ahead as u64 * LEAF_KEYS {
            leaf().into_iter().for_each(Words::prefetch_all);
        }
    }
}
