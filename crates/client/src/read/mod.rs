//! One-sided reads: the reader's half of the read rule (docs/read-rule.md), as a state machine without
//! waiting.
//!
//! A [`ReadOp`] posts a READ, looks at the words when they are here, and posts the next one, until it holds a
//! valid item or must ask the shard:
//!
//! ```text
//! pointer known:  item ------------------------------------------> valid
//!                   | stale
//!                   v
//! FINDs answered: item, or what the leaf says -------------------> valid, absent
//!
//! directory ->  main bucket -> item -> ... next candidate -------> valid
//!                   |  (away)                                        |
//!                   +-> alternate bucket -> item ... --------------> valid
//! a bucket that does not serve the hash: the directory copy is old; read its root, then the one entry or all of it
//! none of these, or too many retries: ask the shard
//! ```
//!
//! Where writes count only when they are committed, what is valid must be that too, or the shard is asked.
//!
//! Check (b) looks at the time since before the first READ of a chain whose pointers carry no incarnation
//! (buckets), and at that of the one READ of an item whose pointer carries one.

mod absence;
mod direct;
mod directory;
mod freshness;
mod large;
mod look;
#[cfg(test)]
mod tests;
mod watermark;

use std::ops::Range;

use kelix_fabric::{Direct, Find, FindState, PeerId, Read, ReadState, RemoteMemory, Sampled};
use kelix_image::words::bytes_of;
use kelix_image::{ItemFlags, ItemLayout, ItemView, PlainItem, Section, inline_item};
use kelix_index::{BUCKET_WORDS, Bucket, Directory, alternate};
use kelix_types::limits::READ_RETRIES_MAX;
use kelix_types::{Guardian, Incarnation, KeyHash, Location, NameId, Place, TableId, TableKind, mark};

use crate::ordered::{Look, OrderedReader};
use crate::pointers::Pointer;
use absence::KnownTables;
pub(crate) use absence::look_for_absence;
pub(crate) use direct::{find_large_direct, take_direct, take_item};
pub(crate) use freshness::Freshness;
pub(crate) use watermark::{LINE, LINE_WORDS, Watermark, set_place};
use watermark::{LeafSays, Unproven};

/// What a read has cost so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Remote READs.
    pub reads: u64,
    /// Bytes READ.
    pub read_bytes: u64,
    /// Messages sent.
    pub messages: u64,
    /// READs that turned out invalid and were done again.
    pub retries: u64,
    /// Times a one-sided path gave up and asked the shard.
    pub fallbacks: u64,
}

impl Cost {
    /// Adds another cost.
    pub fn add(&mut self, other: Cost) {
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.messages += other.messages;
        self.retries += other.retries;
        self.fallbacks += other.fallbacks;
    }

    /// What was added since it was `before`.
    pub fn since(self, before: Cost) -> Cost {
        Cost {
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
            messages: self.messages - before.messages,
            retries: self.retries - before.retries,
            fallbacks: self.fallbacks - before.fallbacks,
        }
    }
}

/// What a reader knows of a shard.
pub(crate) struct ShardReader {
    pub peer: PeerId,
    /// Term of the image: it counts only while this term is in force.
    pub term: u64,
    pub directory: Directory,
    /// Its memory itself, where it is within reach of loads.
    pub direct: Option<Direct>,
    /// Gets that were direct reads.
    pub direct_gets: u64,
    /// Its ordered tables.
    pub ordered: OrderedReader,
    /// What counts of what stands there.
    pub watermark: Watermark,
    /// The tables that it has.
    pub known_tables: KnownTables,
}

impl ShardReader {
    /// A reader of the image of a term, who knows nothing of it yet. `commits`: what stands there counts only
    /// when it is committed.
    pub fn new(peer: PeerId, term: u64, direct: Option<Direct>, commits: bool) -> ShardReader {
        let (directory, ordered) = (Directory::default(), OrderedReader::default());
        let watermark = Watermark::new(commits);
        let known_tables = KnownTables::default();
        ShardReader { peer, term, directory, direct, direct_gets: 0, ordered, watermark, known_tables }
    }
}

/// How far a read is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Look again after the next completion.
    Pending,
    /// The item's words are in the buffer, valid.
    Valid,
    /// The key is absent.
    Absent,
    /// The key is absent if the shard knows its table: ask the shard. With the word that counts what was
    /// dropped.
    AbsentIfKnown(u64),
    /// One-sided means are exhausted: ask the shard.
    Ask,
    /// A segment is unknown here.
    UnknownSegment,
    /// Another server is in force.
    Superseded,
    /// The value is more than this process has memory for.
    NoMemory,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// Somebody beside the memory looks for the item.
    Find,
    Bucket {
        alt: bool,
    },
    Item {
        alt: bool,
        by_pointer: bool,
    },
    /// Bytes before `at` of the run, and before `done` of the value, are here.
    Pieces {
        run: usize,
        at: u64,
        done: u64,
    },
    LastGuardian,
    Root,
    Entry {
        root: u64,
    },
    Directory {
        root: u64,
        done: usize,
    },
    DirectoryGuardian {
        root: u64,
    },
    /// On the way to a key of an ordered table.
    Look(Look),
    /// Up to where changes are committed is asked for.
    Watermark(Unproven),
    /// The set of a leaf among those that were changed lately.
    LeafSet(LeafSays),
    /// Nothing that is known here leads to the key.
    Nowhere,
}

/// Words of a large value that one of many reads keeps room for.
const KEPT_WORDS: usize = 128 << 10;

/// What the read rule says of an object whose words are here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Valid,
    Invalid,
    Superseded,
}

/// Checks (a), (b) and (c) of the read rule: the guardian is live, no more than the window has passed between
/// the stamps before the first READ and after the last one, and the image, that of `term`, is still in force.
#[inline(always)]
pub(crate) fn judge(guardian: Guardian, sampled: Sampled, window: u64, term: u64) -> Verdict {
    if sampled.term != term {
        mark!("READ of a superseded image");
        Verdict::Superseded
    } else if !sampled.is_late(window) && guardian.is_live() {
        Verdict::Valid
    } else {
        mark!(if guardian.is_live() { "READ too slow" } else { "READ of a dead object" });
        Verdict::Invalid
    }
}

/// Where the words of a read land. Kept from read to read, so that reading allocates nothing once it has
/// grown.
pub(crate) struct Landing {
    /// The item's slot.
    pub item: Vec<u64>,
    /// Where its parts stand, as its meta word said when it was checked.
    layout: ItemLayout,
    /// The value, where it is too large to stand in the item.
    pub value: Vec<u64>,
    /// Where the item stands, if that is known.
    pub pointer: Option<Pointer>,
    bucket: [u64; BUCKET_WORDS],
    /// A leaf, or what was looked at on the way there.
    block: Vec<u64>,
    runs: Vec<(Place, u64)>,
    /// The part of the value that is wanted; of one that stands in its item all of it lands.
    part: Range<u64>,
    /// Length of a large value, and bytes that landed before its part.
    large_bytes: u64,
    before_part: u64,
}

/// All of a value.
const WHOLE: Range<u64> = 0..u64::MAX;

impl Default for Landing {
    fn default() -> Landing {
        Landing {
            item: vec![0; 2],
            layout: ItemLayout::from_word(0).expect("an item of nothing"),
            value: Vec::new(),
            pointer: None,
            bucket: [0; BUCKET_WORDS],
            block: Vec::new(),
            runs: Vec::new(),
            part: WHOLE,
            large_bytes: 0,
            before_part: 0,
        }
    }
}

impl Landing {
    /// The item that has landed.
    #[inline(always)]
    pub fn view(&self) -> ItemView<'_> {
        ItemView::with_layout(&self.item, self.layout)
    }

    /// Where its parts stand.
    #[inline(always)]
    pub fn layout(&self) -> ItemLayout {
        self.layout
    }

    /// Whether the value is too large to stand in the item.
    pub fn is_large(&self) -> bool {
        self.layout.has_any(ItemFlags::LARGE)
    }

    /// Takes a plain item from where it stands.
    pub fn copy(&mut self, item: PlainItem<'_>) -> Option<()> {
        self.layout = item.copy_item(&mut self.item)?;
        Some(())
    }

    /// Takes the item that a key with an inline value would have.
    pub fn set_inline(&mut self, table: TableId, key: &[u8], value: u64) {
        let key = key.try_into().expect("a key of this table");
        self.item.clear();
        self.item.extend_from_slice(&inline_item(table, key, value));
        self.layout = ItemLayout::from_word(self.item[1]).expect("just made");
    }

    /// Takes an item that came in a message, if it is a whole one of this key.
    pub fn accept(&mut self, words: &[u64], table: TableId, key: &[u8]) -> bool {
        let whole =
            |view: &ItemView<'_>| view.is_for(table, key) && !view.header().flags.has(ItemFlags::LARGE);
        let Some(view) = ItemView::new(words).filter(whole) else { return false };
        self.layout = view.layout();
        self.item.clear();
        self.item.extend_from_slice(words);
        true
    }

    /// The bytes of a large value.
    fn large(&self) -> &[u8] {
        let bytes: u64 = self.runs.iter().map(|(_, bytes)| bytes).sum();
        &bytes_of(&self.value)[..bytes as usize]
    }

    /// Keeps no memory for a large value.
    pub fn shrink(&mut self) {
        if self.value.len() > KEPT_WORDS {
            self.value = Vec::new();
        }
    }

    /// Takes the bytes of a large value out, with their number.
    pub fn take_large(&mut self) -> Option<(Vec<u64>, u64)> {
        let bytes: u64 = self.runs.iter().map(|(_, bytes)| bytes).sum();
        self.is_large().then(|| {
            self.value.truncate(bytes.div_ceil(8) as usize);
            (std::mem::take(&mut self.value), bytes)
        })
    }

    /// Lets only a part of a value land that is too large to stand in its item.
    pub fn want_part(&mut self, part: Range<u64>) {
        self.part = part;
    }

    /// Lets all of each value land again.
    pub fn want_whole(&mut self) {
        self.part = WHOLE;
    }

    /// At most so many bytes of the value from a byte on, of which no others were wanted, and its length.
    pub fn part(&self, from: u64, most: usize) -> (&[u8], usize) {
        if self.layout.has_any(ItemFlags::LARGE) && !self.layout.has_any(ItemFlags::ATTRIBUTES) {
            return (&self.large()[self.before_part as usize..], self.large_bytes as usize);
        }
        let value = self.value();
        let start = usize::try_from(from).unwrap_or(usize::MAX).min(value.len());
        (&value[start..value.len().min(start.saturating_add(most))], value.len())
    }

    /// The value: the body of a plain item, the unnamed bytes of one with attributes (empty if it has none).
    #[inline(always)]
    pub fn value(&self) -> &[u8] {
        if !self.layout.has_any(ItemFlags::ATTRIBUTES.with(ItemFlags::LARGE)) {
            return self.view().body();
        }
        self.unusual_value()
    }

    fn unusual_value(&self) -> &[u8] {
        let (large, attributes) = (ItemFlags::LARGE, ItemFlags::ATTRIBUTES);
        let section = match (self.layout.has_any(large), self.layout.has_any(attributes)) {
            (true, false) => return self.large(),
            (true, true) => Section::new(&self.value[..self.large().len() / 8]),
            _ => self.view().section(),
        };
        section.and_then(|section| section.bytes_of(NameId(0))).unwrap_or(&[])
    }
}

/// One read under way.
pub(crate) struct ReadOp {
    pub hash: KeyHash,
    pub table: TableId,
    pub shard: usize,
    /// Where the item was found, for the pointer cache.
    pub pointer: Option<Pointer>,
    tag: u32,
    state: State,
    /// The stamp from before the first READ of the chain, once that is done.
    before: Option<u64>,
    /// Slots of the bucket, or of the leaf, that are still to be looked at.
    candidates: u16,
    /// Where the READ under way begins.
    place: Place,
    location: Location,
    incarnation: Option<Incarnation>,
    /// The directory copy was renewed for this read, or the map.
    renewed: bool,
    /// The way by the index, or by the models, begins with a FIND.
    finds: bool,
    /// The greatest incarnation that had been seen live when the READ of a leaf was posted.
    seen: u64,
    spent: Spent,
}

/// What a read has cost so far.
#[derive(Clone, Copy, Default)]
struct Spent {
    reads: u64,
    read_bytes: u64,
    /// READs that turned out invalid.
    retries: u64,
}

impl ReadOp {
    /// Begins a read, by a pointer if one is known.
    #[inline(always)]
    pub fn start<F: RemoteMemory>(
        fabric: &mut F,
        shard: &ShardReader,
        number: usize,
        tag: u32,
        (table, hash, key): (TableId, KeyHash, &[u8]),
        (pointer, finds): (Option<Pointer>, bool),
    ) -> ReadOp {
        let mut op = ReadOp {
            hash,
            table,
            shard: number,
            pointer: None,
            tag,
            state: State::Bucket { alt: false },
            before: None,
            candidates: 0,
            place: Place(0),
            location: Location::new(Place(0), kelix_types::SizeClass(0)),
            incarnation: None,
            renewed: false,
            finds: finds && fabric.finds(shard.peer),
            seen: 0,
            spent: Spent::default(),
        };
        match pointer {
            Some(pointer) => op.post_pointer(fabric, shard, pointer),
            None => op.post_first(fabric, shard, key),
        }
        op
    }

    /// What it has cost.
    #[inline(always)]
    pub fn cost(&self) -> Cost {
        let Spent { reads, read_bytes, retries, .. } = self.spent;
        Cost { reads, read_bytes, retries, ..Cost::default() }
    }

    #[inline(always)]
    fn post<F: RemoteMemory>(&mut self, fabric: &mut F, shard: &ShardReader, place: Place, words: usize) {
        self.spent.reads += 1;
        self.spent.read_bytes += words as u64 * 8;
        self.place = place;
        fabric.post_read(Read { peer: shard.peer, place, words, tag: self.tag });
    }

    fn post_pointer<F: RemoteMemory>(&mut self, fabric: &mut F, shard: &ShardReader, pointer: Pointer) {
        self.state = State::Item { alt: false, by_pointer: true };
        self.location = pointer.location;
        self.incarnation = Some(pointer.incarnation);
        self.before = None;
        self.post(fabric, shard, pointer.location.place(), pointer.location.class().words());
    }

    /// Begins the chain of READs from the index.
    #[inline(always)]
    fn post_first<F: RemoteMemory>(&mut self, fabric: &mut F, shard: &ShardReader, key: &[u8]) {
        if self.finds {
            self.post_find(fabric, shard, key);
        } else if self.table.kind().is_ordered() {
            self.incarnation = None;
            self.state = State::Nowhere;
            if let Some(look) = shard.ordered.begin(self.table, key) {
                self.post_look(fabric, shard, look);
            }
        } else {
            self.post_bucket(fabric, shard);
        }
    }

    fn post_find<F: RemoteMemory>(&mut self, fabric: &mut F, shard: &ShardReader, key: &[u8]) {
        self.state = State::Find;
        (self.incarnation, self.before) = (None, None);
        self.spent.reads += 1;
        fabric.post_find(self.find(shard, key));
    }

    fn find<'a>(&self, shard: &ShardReader, key: &'a [u8]) -> Find<'a> {
        Find { peer: shard.peer, hash: self.hash, table: self.table, key, tag: self.tag }
    }

    #[inline(always)]
    fn post_bucket<F: RemoteMemory>(&mut self, fabric: &mut F, shard: &ShardReader) {
        self.state = State::Bucket { alt: false };
        self.incarnation = None;
        self.before = None;
        match shard.directory.bucket(self.hash, self.hash.bucket()) {
            Some(place) => self.post(fabric, shard, place, BUCKET_WORDS),
            None => self.post_root(fabric, shard),
        }
    }

    /// Counts a READ that is done once more. `false`: there were too many.
    fn may_retry(&mut self) -> bool {
        self.spent.retries += 1;
        let may = self.spent.retries <= READ_RETRIES_MAX;
        if !may {
            mark!("READ given up");
        }
        may
    }

    /// Begins again after the directory or the map was refreshed, or because a READ was invalid.
    #[cold]
    #[inline(never)]
    pub fn restart<F: RemoteMemory>(&mut self, fabric: &mut F, shard: &ShardReader, key: &[u8]) -> Step {
        if !self.may_retry() {
            return Step::Ask;
        }
        self.post_first(fabric, shard, key);
        if self.state == State::Nowhere { Step::Ask } else { Step::Pending }
    }

    /// Polls the READ under way, of `into.len()` words; `Err` when they are not here (yet). What it tells is
    /// for the chain since its first READ.
    #[inline(always)]
    fn poll<F: RemoteMemory>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
        into: &mut [u64],
    ) -> Result<Sampled, Step> {
        let read = Read { peer: shard.peer, place: self.place, words: into.len(), tag: self.tag };
        match fabric.poll_read(read, into) {
            ReadState::Done(sampled) => {
                Ok(Sampled { before: *self.before.get_or_insert(sampled.before), ..sampled })
            }
            ReadState::Pending => Err(Step::Pending),
            ReadState::Outside => Err(Step::UnknownSegment),
            ReadState::Broken => Err(Step::Ask),
        }
    }

    /// Looks at the READ under way and, if it is done, posts the next one. A batch goes round its reads, so
    /// that the next ones overlap. `key` is the wanted key.
    #[inline(always)]
    pub fn advance<F: RemoteMemory>(
        &mut self,
        fabric: &mut F,
        shard: &mut ShardReader,
        key: &[u8],
        landing: &mut Landing,
    ) -> Step {
        match self.state {
            State::Bucket { alt } => self.on_bucket(fabric, shard, landing, alt),
            State::Item { alt, by_pointer } => self.on_item(fabric, shard, key, landing, alt, by_pointer),
            State::Look(look) => self.on_look(fabric, shard, key, landing, look),
            State::Find => self.on_find(fabric, shard, key, landing),
            _ => self.advance_rarely(fabric, shard, landing, key),
        }
    }

    #[cold]
    #[inline(never)]
    fn advance_rarely<F: RemoteMemory>(
        &mut self,
        fabric: &mut F,
        shard: &mut ShardReader,
        landing: &mut Landing,
        key: &[u8],
    ) -> Step {
        match self.state {
            State::Find | State::Bucket { .. } | State::Item { .. } | State::Look(_) => {
                unreachable!("handled by advance")
            }
            State::Pieces { run, at, done } => self.on_piece(fabric, shard, landing, (run, at, done)),
            State::LastGuardian => self.on_last_guardian(fabric, shard, key, landing),
            State::Watermark(what) => self.on_watermark(fabric, shard, what),
            State::LeafSet(says) => self.on_leaf_set(fabric, shard, says),
            State::Nowhere => Step::Ask,
            State::Root => self.on_root(fabric, shard),
            State::Entry { root } => self.on_entry(fabric, shard, root),
            State::Directory { root, done } => {
                self.on_directory(fabric, shard, &mut landing.value, root, done)
            }
            State::DirectoryGuardian { root } => {
                self.on_directory_guardian(fabric, shard, &landing.value, root)
            }
        }
    }

    #[inline(always)]
    fn on_bucket<F: RemoteMemory>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
        landing: &mut Landing,
        alt: bool,
    ) -> Step {
        match self.poll(fabric, shard, &mut landing.bucket) {
            Ok(_) => {}
            // A subtable in a segment that is gone: the directory copy is old. If it is not, the segment is
            // new.
            Err(Step::UnknownSegment) if !self.renewed => return self.renew_directory(fabric, shard),
            Err(step) => return step,
        }
        if !Bucket(&landing.bucket).serves(self.hash) {
            return self.renew_directory(fabric, shard);
        }
        self.candidates = u16::from(Bucket(&landing.bucket).candidates(self.hash, alt));
        self.next_candidate(fabric, shard, &landing.bucket, alt)
    }

    /// Reads the next item the bucket proposes, or the alternate bucket, or gives up.
    #[inline(always)]
    fn next_candidate<F: RemoteMemory>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
        bucket: &[u64; BUCKET_WORDS],
        alt: bool,
    ) -> Step {
        while self.candidates != 0 {
            let slot = self.candidates.trailing_zeros() as usize;
            self.candidates &= self.candidates - 1;
            if let Some(location) = Bucket(bucket).location(slot) {
                self.state = State::Item { alt, by_pointer: false };
                self.location = location;
                self.post(fabric, shard, location.place(), location.class().words());
                return Step::Pending;
            }
        }
        if alt || !Bucket(bucket).has_away() {
            // READs alone prove no absence.
            return shard
                .direct
                .as_ref()
                .map_or(Step::Ask, |direct| look_for_absence(shard, direct, self.table, self.hash));
        }
        self.state = State::Bucket { alt: true };
        let other = alternate(self.hash.bucket(), self.hash.signature());
        let Some(place) = shard.directory.bucket(self.hash, other) else { return Step::Ask };
        self.post(fabric, shard, place, BUCKET_WORDS);
        Step::Pending
    }

    /// What a FIND brought is what READs of a bucket or a leaf and of the item would have, under the stamps
    /// of both.
    fn on_find<F: RemoteMemory>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
        key: &[u8],
        landing: &mut Landing,
    ) -> Step {
        match fabric.poll_find(self.find(shard, key), &mut landing.item) {
            FindState::Pending => Step::Pending,
            FindState::Found(location, sampled) if landing.item.len() >= 2 => {
                self.location = location;
                self.spent.read_bytes += landing.item.len() as u64 * 8;
                self.judge_item(fabric, shard, key, landing, (false, false), sampled)
            }
            FindState::Absent(generations, sampled) if shard.watermark.covers_all() => {
                let window = fabric.stamp_window();
                shard.judge_absence(self.table, generations, sampled, window)
            }
            FindState::Leaf(sampled) => self.on_found_leaf(fabric, shard, key, landing, sampled),
            FindState::Absent(..) | FindState::Found(..) | FindState::Nothing | FindState::Broken => {
                Step::Ask
            }
        }
    }

    /// What a leaf says, where somebody looked at the leaf whose loads are in order: the guardian came before
    /// all else, so that no word is older than that, as words of a READ may be.
    fn on_found_leaf<F: RemoteMemory>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
        key: &[u8],
        landing: &mut Landing,
        sampled: Sampled,
    ) -> Step {
        let [guardian, ref value @ ..] = landing.item[..] else { return Step::Ask };
        let (guardian, value) = (Guardian(guardian), value.first().copied());
        self.spent.read_bytes += landing.item.len() as u64 * 8;
        match judge(guardian, sampled, fabric.stamp_window(), shard.term) {
            Verdict::Valid => {}
            Verdict::Invalid => return self.restart(fabric, shard, key),
            Verdict::Superseded => return Step::Superseded,
        }
        match value {
            Some(value) if self.table.kind() == TableKind::Inline => {
                landing.set_inline(self.table, key, value)
            }
            Some(_) => return Step::Ask,
            None => {}
        }
        self.pointer = None;
        self.believe_leaf(fabric, shard, guardian.incarnation(), value.is_none())
    }

    #[inline(always)]
    fn on_item<F: RemoteMemory>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
        key: &[u8],
        landing: &mut Landing,
        alt: bool,
        by_pointer: bool,
    ) -> Step {
        let words = self.location.class().words();
        if landing.item.len() != words {
            landing.item.resize(words, 0);
        }
        let sampled = match self.poll(fabric, shard, &mut landing.item) {
            Ok(sampled) => sampled,
            // The shard may have told of a segment that is new.
            Err(Step::UnknownSegment) if by_pointer && (self.renewed || !self.table.kind().is_ordered()) => {
                mark!("pointer into a segment that is gone");
                return self.restart(fabric, shard, key);
            }
            Err(Step::UnknownSegment) => {
                self.renewed = true;
                return Step::UnknownSegment;
            }
            Err(step) => return step,
        };
        self.judge_item(fabric, shard, key, landing, (alt, by_pointer), sampled)
    }

    /// Judges an item that has landed.
    #[inline(always)]
    fn judge_item<F: RemoteMemory>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
        key: &[u8],
        landing: &mut Landing,
        (alt, by_pointer): (bool, bool),
        sampled: Sampled,
    ) -> Step {
        let guardian = Guardian(landing.item[0]);
        let is_late = match judge(guardian, sampled, fabric.stamp_window(), shard.term) {
            Verdict::Valid => false,
            Verdict::Invalid if guardian.is_live() => true,
            Verdict::Invalid => return self.restart(fabric, shard, key),
            Verdict::Superseded => return Step::Superseded,
        };
        if self.incarnation.is_some_and(|incarnation| guardian.incarnation() != incarnation) {
            mark!("memory reused under a stale pointer");
            return self.restart(fabric, shard, key);
        }
        if is_late && self.incarnation.is_none() {
            return self.read_late_again(fabric, shard, guardian.incarnation());
        }
        let Some(view) = ItemView::new(&landing.item).filter(|view| view.is_for(self.table, key)) else {
            // Another key with the same signature, or a pointer that the cache mixed up.
            return if by_pointer || is_late || self.state == State::Find {
                self.restart(fabric, shard, key)
            } else if self.table.kind().is_ordered() {
                self.next_in_leaf(fabric, shard, key, landing)
            } else {
                self.next_candidate(fabric, shard, &landing.bucket, alt)
            };
        };
        landing.layout = view.layout();
        self.pointer = Some(Pointer { location: self.location, incarnation: guardian.incarnation() });
        if landing.is_large() {
            return self.begin_pieces(fabric, shard, landing);
        }
        if is_late {
            // An item that was live before this READ and is live after it was there all the while.
            mark!("item of a late READ looked at again");
            self.state = State::LastGuardian;
            self.post(fabric, shard, self.location.place(), 1);
            return Step::Pending;
        }
        self.believe_item(fabric, shard, landing)
    }

    /// Reads an item again that took longer than the window. Its words may be another's whose place it took
    /// while they were sampled; the next ones cannot be, since the item was live before they are asked for.
    #[cold]
    #[inline(never)]
    fn read_late_again<F: RemoteMemory>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
        incarnation: Incarnation,
    ) -> Step {
        self.spent.retries += 1;
        self.post_pointer(fabric, shard, Pointer { location: self.location, incarnation });
        Step::Pending
    }
}
