//! Pages of a scan that the client reads by itself.
//!
//! Where memory is within reach of loads a page is one leaf. Elsewhere the translation table names some
//! leaves that follow each other, which are READ at once, and then all of their items (XStore, section 4.2).

use kelix_fabric::{Read, ReadState, RemoteMemory, Sampled, WorkQueue};
use kelix_image::watermark::{SET_WORDS, is_pending};
use kelix_image::{ItemFlags, ItemView, Kind};
use kelix_index::{Guess, LeafHeader};
use kelix_types::limits::{READ_RETRIES_MAX, SESSION_READS_MAX};
use kelix_types::{Guardian, Incarnation, Location, Place, Result, TableId, mark};

use super::{Engine, Patience};
use crate::ordered::{Hint, Items, LeafWords, Look, Page, Wanted};
use crate::read::{LINE, LINE_WORDS, Landing, Verdict, judge, set_place};
use crate::scan::{Cursor, Found, Range};
use crate::transport::Path;

/// Most leaves that are READ at once.
const LEAVES_AT_ONCE: u64 = 24;
/// Keys that a leaf has, or more, as a rule.
const LEAF_KEYS: u64 = 8;

/// What pages are read into, used again from page to page.
#[derive(Default)]
pub(crate) struct Buffers {
    page: Page,
    items: Items,
    /// Words on the way to a page.
    leaves: Items,
}

impl Engine {
    /// Reads the next keys of a scan, and hands what it brings to `take`, which says how many of them count.
    /// `false`: what comes next is to be asked for.
    pub fn read_pages(
        &mut self,
        cursor: &mut Cursor,
        most: u64,
        buffers: &mut Buffers,
        take: &mut impl FnMut(&mut Engine, Found<'_>) -> Result<u64>,
    ) -> Result<bool> {
        // What stands in a subtable may move while it is read.
        if self.transport.path() == Path::Message || !cursor.table.kind().is_ordered() {
            return Ok(false);
        }
        if self.transport.is_on_mirror() && self.transport.reads_at_primary(cursor.shard(self)) {
            return Ok(false);
        }
        let left = cursor.left.saturating_sub(most);
        let mut read = Ok(true);
        while let (Ok(true), false) = (&read, cursor.is_over() || cursor.left <= left) {
            let most = cursor.left - left;
            buffers.items.clear();
            read = match cursor.range {
                _ if cursor.in_vain > READ_RETRIES_MAX => Ok(false),
                Range::Numbers(low, high) => self.read_numbers(cursor, (low, high, most), buffers, take),
                // The strings below an end may be in the leaf before the one that the end leads to, which no
                // leaf names.
                Range::Strings(..) if cursor.backwards => Ok(false),
                Range::Strings(..) => self.read_strings(cursor, most, buffers, take),
                Range::Unordered { .. } => unreachable!("asked for before"),
            };
        }
        if let Ok(false) = read {
            self.transport.total.fallbacks += 1;
        }
        read
    }

    #[inline]
    fn read_numbers(
        &mut self,
        cursor: &mut Cursor,
        (low, high, most): (u64, u64, u64),
        buffers: &mut Buffers,
        take: &mut impl FnMut(&mut Engine, Found<'_>) -> Result<u64>,
    ) -> Result<bool> {
        let table = cursor.table;
        let begin = if cursor.backwards { high } else { low };
        if !self.bring_leaves(cursor, &begin.to_be_bytes(), most, buffers)? {
            return Ok(false);
        }
        let Buffers { page, items, .. } = buffers;
        // Most pages are inside the range.
        let below = |bound: u64| page.entries.partition_point(|entry| entry[0] < bound);
        let first = if page.low >= low { 0 } else { below(low) };
        let end = if page.high <= high { page.entries.len() } else { below(high + 1) };
        let wanted = (end - first).min(most as usize);
        let last_number = if wanted < end - first {
            None
        } else {
            Some(if cursor.backwards { page.low } else { page.high })
        };
        let range = if cursor.backwards { end - wanted..end } else { first..first + wanted };
        let mut entries = std::mem::take(&mut page.entries);
        let wanted = &mut entries[range];
        if cursor.backwards {
            wanted.reverse();
        }
        let mut passed = last_number.or(wanted.last().map(|entry| entry[0]));
        if table.kind().has_items() {
            if !self.bring_items(table, page, wanted, items)? {
                return Ok(false);
            }
            for words in items.iter() {
                cursor.left -= take(self, found_in(words))?;
            }
            if items.ends.len() < wanted.len() {
                cursor.in_vain += 1;
                self.transport.total.retries += 1;
                cursor.hint = Hint::default();
                passed = items.ends.len().checked_sub(1).map(|last| wanted[last][0]);
            }
        } else {
            cursor.left -= take(self, Found::Values(wanted))?;
        }
        page.entries = entries;
        if let Some(passed) = passed {
            cursor.pass_number(passed);
            cursor.in_vain = 0;
        }
        Ok(true)
    }

    fn read_strings(
        &mut self,
        cursor: &mut Cursor,
        most: u64,
        buffers: &mut Buffers,
        take: &mut impl FnMut(&mut Engine, Found<'_>) -> Result<u64>,
    ) -> Result<bool> {
        let table = cursor.table;
        let Range::Strings(lower, upper) = cursor.range.clone() else { unreachable!("a table of strings") };
        if !self.bring_leaves(cursor, &lower, most, buffers)? {
            return Ok(false);
        }
        let Buffers { page, items, .. } = buffers;
        let entries = std::mem::take(&mut page.entries);
        if !self.bring_items(table, page, &entries, items)? {
            return Ok(false);
        }
        let all = items.ends.len() == entries.len();
        page.entries = entries;
        if !all || !page.holds(table, &lower) {
            cursor.in_vain += 1;
            self.transport.total.retries += 1;
            cursor.hint = Hint::default();
            return Ok(true);
        }
        cursor.in_vain = 0;
        let mut views: Vec<ItemView<'_>> = items.iter().filter_map(ItemView::new).collect();
        views.retain(|view| {
            view.key() >= &lower[..] && upper.as_ref().is_none_or(|upper| view.key() < &upper[..])
        });
        views.sort_unstable_by(|a, b| a.key().cmp(b.key()));
        // A key that was deleted and put again meanwhile may be seen in two slots.
        views.dedup_by(|a, b| a.key() == b.key());
        let wanted = views.len().min(most as usize);
        let next = match views.get(wanted) {
            Some(next) => Some(next.key().to_vec()),
            None => page.strings(table).and_then(|(_, upper)| upper).map(<[u8]>::to_vec),
        };
        for view in &views[..wanted] {
            cursor.left -= take(self, found_in(view.words()))?;
        }
        match (next, &mut cursor.range) {
            (Some(next), Range::Strings(lower, _)) => *lower = next,
            _ => cursor.done = true,
        }
        Ok(true)
    }

    /// Brings the leaf that a key is in, and if it can, those that come behind it, or before it if the scan
    /// goes down. `false`: that is for the shard.
    #[inline]
    fn bring_leaves(
        &mut self,
        cursor: &mut Cursor,
        key: &[u8],
        keys: u64,
        buffers: &mut Buffers,
    ) -> Result<bool> {
        if !self.transport.reads_directly() {
            return self.read_leaves(cursor, key, keys, buffers);
        }
        if cursor.backwards {
            cursor.hint = Hint::default();
        }
        let wanted = Wanted { table: cursor.table, key, keys };
        Ok(self.transport.reader_in_order(cursor.table).read_page(
            wanted,
            &mut cursor.hint,
            &mut buffers.page,
        ))
    }

    /// Brings the items of entries of a page, as many as are valid. `false`: not all of these count yet.
    fn bring_items(
        &mut self,
        table: TableId,
        page: &mut Page,
        entries: &[[u64; 2]],
        items: &mut Items,
    ) -> Result<bool> {
        if self.transport.reads_directly() {
            return Ok(self.transport.reader_in_order(table).read_items(table, page, entries, items));
        }
        let shard = self.transport.route(table, &[]).1;
        let (before, window, term) =
            (page.before, self.transport.fabric.stamp_window(), self.transport.reader(shard).term);
        let is_valid = |guardian: Guardian, sampled: Sampled| {
            judge(guardian, Sampled { before, ..sampled }, window, term) == Verdict::Valid
        };
        let mut places = Vec::with_capacity(entries.len() + 2);
        if let Some((first, last)) = page.fences {
            // The fences say where the page begins and ends.
            for fences in [first, last] {
                page.bounds.room(fences.class().words());
                places.push(fences.place());
            }
            let sampled = self.read_spans(shard, &places, &mut page.bounds)?;
            let all_valid = |sampled| page.bounds.iter().all(|words| is_valid(Guardian(words[0]), sampled));
            if !sampled.is_some_and(all_valid) {
                page.bounds.clear();
                return Ok(true);
            }
            places.clear();
        }
        for location in entries.iter().map_while(|entry| Location::from_word(entry[1])) {
            items.room(location.class().words());
            places.push(location.place());
        }
        match self.read_spans(shard, &places, items)? {
            Some(sampled) => items.keep_valid(table, entries, |guardian| is_valid(guardian, sampled)),
            None => items.clear(),
        }
        if self.transport.reader(shard).watermark.covers_all() {
            return Ok(true);
        }
        let youngest = items.youngest();
        if !self.transport.reader(shard).watermark.covers(youngest) {
            self.read_watermark(shard)?;
        }
        Ok(self.transport.reader(shard).watermark.covers(youngest))
    }

    /// READs up to where a shard's changes are committed. Whether no leaf has changed that is not; `false`
    /// where that could not be had.
    fn read_watermark(&mut self, shard: usize) -> Result<bool> {
        let mut line = Items::default();
        line.room(LINE_WORDS);
        let read = self.read_spans(shard, &[LINE], &mut line)?;
        let reader = self.transport.reader(shard);
        let is_its = read.is_some_and(|sampled| sampled.term == reader.term);
        Ok(is_its && reader.watermark.note(*line.words.first_chunk().expect("a line")))
    }

    /// Whether all that these leaves say, which were READ before, counts.
    fn are_committed(&mut self, shard: usize, leaves: &[Incarnation]) -> Result<bool> {
        if self.transport.reader(shard).watermark.covers_all() || self.read_watermark(shard)? {
            return Ok(true);
        }
        let places: Vec<Place> = leaves.iter().map(|leaf| set_place(*leaf)).collect();
        let mut sets = Items::default();
        places.iter().for_each(|_| _ = sets.room(SET_WORDS));
        let read = self.read_spans(shard, &places, &mut sets)?;
        let reader = self.transport.reader(shard);
        let is_committed = |(set, leaf): (&[u64], &Incarnation)| {
            !is_pending(set.first_chunk().expect("a set"), *leaf, reader.watermark.record())
        };
        let is_its = read.is_some_and(|sampled| sampled.term == reader.term);
        let committed = is_its && sets.iter().zip(leaves).all(is_committed);
        mark!(if committed {
            "leaves beside others that are not committed"
        } else {
            "page that is not committed"
        });
        Ok(committed)
    }

    /// READs the leaf of a key and those beside it.
    fn read_leaves(
        &mut self,
        cursor: &Cursor,
        key: &[u8],
        keys: u64,
        Buffers { page, leaves, .. }: &mut Buffers,
    ) -> Result<bool> {
        let table = cursor.table;
        let route = self.transport.route(table, key);
        self.copy_models(table, route.1)?;
        if !self.transport.reader(route.1).ordered.has_copy(table) {
            return Ok(false);
        }
        if let Some((index, guess)) = self.way_to_leaf(table, route.1, key, leaves)? {
            let places = self.places_beside(cursor, route.1, index, guess, keys);
            if self.read_run(cursor, route.1, &places, key, (leaves, page))? {
                return self.are_committed(route.1, &page.leaves);
            }
            self.transport.reader(route.1).ordered.forget_table(table, index);
        }
        // The answer brings the sub-model as it is now.
        mark!("scan led astray");
        self.ask((table, key), route, &mut Landing::default())?;
        Ok(false)
    }

    /// The sub-model and the guess of a key, by the copy of the models.
    fn way_to_leaf(
        &mut self,
        table: TableId,
        shard: usize,
        key: &[u8],
        words: &mut Items,
    ) -> Result<Option<(usize, Guess)>> {
        let mut look = self.transport.reader(shard).ordered.begin(table, key);
        loop {
            let Some(here) = look else { return Ok(None) };
            if let Look::Leaf { index, guess, .. } = here {
                return Ok(Some((index, guess)));
            }
            let (place, count) = here.span();
            words.clear();
            words.room(count);
            if self.read_spans(shard, &[place], words)?.is_none() {
                return Ok(None);
            }
            look = self.transport.reader(shard).ordered.go_on(table, key, here, &words.words);
        }
    }

    /// The places of the guessed leaf and of as many beside it as so many keys need.
    fn places_beside(
        &mut self,
        cursor: &Cursor,
        shard: usize,
        index: usize,
        guess: Guess,
        keys: u64,
    ) -> Vec<Place> {
        let count = (keys / LEAF_KEYS + 1).min(LEAVES_AT_ONCE) as usize;
        let ordered = &self.transport.reader(shard).ordered;
        let leaf_at = |rank: Option<usize>| ordered.leaf_at(cursor.table, index, rank?);
        let beside = |step: usize| match cursor.backwards {
            false => leaf_at(Some(guess.rank + step)),
            true => leaf_at(guess.rank.checked_sub(step)),
        };
        guess.leaf.into_iter().chain((1..count).map_while(beside)).collect()
    }

    /// READs leaves, and makes a page of the first of them and those that follow it without a gap. `false`:
    /// the first does not hold the key.
    fn read_run(
        &mut self,
        cursor: &Cursor,
        shard: usize,
        places: &[Place],
        key: &[u8],
        (words, page): (&mut Items, &mut Page),
    ) -> Result<bool> {
        for _ in 0..READ_RETRIES_MAX {
            let seen = self.transport.reader(shard).ordered.seen();
            words.clear();
            for _ in places {
                words.room(Kind::LEAF_WORDS);
            }
            let Some(sampled) = self.read_spans(shard, places, words)? else { return Ok(false) };
            let window = self.transport.fabric.stamp_window();
            let reader = self.transport.reader(shard);
            let is_valid = |leaf: &&LeafWords| {
                LeafHeader(*leaf.first_chunk().expect("a header")).table() == cursor.table
                    && judge(Guardian(leaf[0]), sampled, window, reader.term) == Verdict::Valid
            };
            let leaves = words.iter().map(|words| words.first_chunk().expect("a leaf"));
            let mut run: Vec<&LeafWords> = leaves.take_while(is_valid).collect();
            // A reader that stood still learns nothing of the leaves, and nothing against what led there.
            if sampled.is_late(window) && sampled.term == reader.term {
                mark!("leaves of a scan were READ too late");
                self.transport.total.retries += 1;
                continue;
            }
            // What is younger than all that was seen before may be older than its guardian
            // (docs/read-rule.md, "Models").
            let youngest = run.iter().map(|leaf| Guardian(leaf[0]).incarnation().0).max();
            if let Some(youngest) = youngest.filter(|youngest| *youngest > seen) {
                mark!("leaves of a scan were younger than what led to them");
                reader.ordered.note_seen(Incarnation(youngest));
                continue;
            }
            let header = |at: usize| LeafHeader(*run[at].first_chunk().expect("a header"));
            let follows = |at: usize| match cursor.backwards {
                false => header(at - 1).next() == Some(places[at]),
                true => header(at).next() == Some(places[at - 1]),
            };
            let count = (1..run.len()).take_while(|at| follows(*at)).count() + 1;
            run.truncate(count);
            if cursor.backwards {
                run.reverse();
            }
            page.clear(sampled.before);
            run.iter().for_each(|leaf| page.add(leaf));
            // Of strings the fences come with the items.
            return Ok(!run.is_empty() && (page.fences.is_some() || page.holds(cursor.table, key)));
        }
        Ok(false)
    }

    /// READs what stands at these places into the room there is for each. `None`: not all of it could be had.
    pub fn read_spans(
        &mut self,
        shard: usize,
        places: &[Place],
        into: &mut Items,
    ) -> Result<Option<Sampled>> {
        let peer = self.transport.peer(shard);
        let mut all: Option<Sampled> = None;
        let mut whole = true;
        let mut patience = Patience::default();
        let mut landed = 0;
        for first in (0..places.len()).step_by(SESSION_READS_MAX) {
            let here = first..places.len().min(first + SESSION_READS_MAX);
            let read = |index: usize, words: usize| Read {
                peer,
                place: places[index],
                words,
                tag: (index - first) as u32,
            };
            for index in here.clone() {
                let words = into.span(index).len();
                self.transport.fabric.post_read(read(index, words));
                self.transport.total.reads += 1;
                self.transport.total.read_bytes += words as u64 * 8;
            }
            self.transport.fabric.doorbell();
            for index in here {
                let span = into.span(index);
                let read = read(index, span.len());
                loop {
                    match self.transport.fabric.poll_read(read, &mut into.words[span.clone()]) {
                        ReadState::Done(sampled) => {
                            landed += span.len() as u64 * 8;
                            patience.note_read(landed);
                            let of_all = all.get_or_insert(sampled);
                            of_all.before = of_all.before.min(sampled.before);
                            of_all.after = of_all.after.max(sampled.after);
                            whole &= of_all.term == sampled.term;
                            break;
                        }
                        ReadState::Outside | ReadState::Broken => {
                            whole = false;
                            break;
                        }
                        // READs over a connection that broke are lost; there is another time.
                        ReadState::Pending if self.until_progress(&mut patience)? => {
                            return Ok(None);
                        }
                        ReadState::Pending => {}
                    }
                }
            }
        }
        Ok(all.filter(|_| whole))
    }
}

/// What the words of an item say.
fn found_in(words: &[u64]) -> Found<'_> {
    let view = ItemView::new(words).expect("an item that was checked");
    if view.header().flags.has(ItemFlags::LARGE) { Found::Key(view.key()) } else { Found::Item(view) }
}
