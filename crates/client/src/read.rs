//! One-sided reads: the reader's half of the read rule (docs/read-rule.md), as a state machine without waiting.
//!
//! A [`ReadOp`] posts a READ, looks at the words when they are here, and posts the next one, until it holds a valid
//! item or must ask the shard:
//!
//! ```text
//! pointer known:  item ------------------------------------------> valid
//!                   | stale
//!                   v
//! directory ->  main bucket -> item -> ... next candidate -------> valid
//!                   |  (away)                                        |
//!                   +-> alternate bucket -> item ... --------------> valid
//! a bucket that does not serve the hash: the directory copy is old; read its root, then the one entry or all of it
//! none of these, or too many retries: ask the shard
//! ```
//!
//! Check (b) looks at the time since before the first READ of a chain whose pointers carry no incarnation (buckets), and at
//! that of the one READ of an item whose pointer carries one.

use kelix_fabric::{Direct, Fabric, PeerId, Read, ReadState, Sampled};
use kelix_image::words::{Words, bytes_of};
use kelix_image::{
    Attributes, ItemFlags, ItemHeader, ItemView, Kind, LargeBody, PlainItem, Value, header_word, inline_item,
};
use kelix_index::{
    BUCKET_WORDS, Bucket, Directory, DirectoryRoot, LeafHeader, alternate, key_word, slot_word,
    tag_of_number, tag_of_string,
};
use kelix_types::limits::{READ_EPOCHS_MAX, READ_RETRIES_MAX};
use kelix_types::{Guardian, Incarnation, KeyHash, Location, Place, TableId, Version, mark};

use crate::ordered::{LEAVES_FURTHER, Look, OrderedReader};
use crate::pointers::Pointer;

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
}

impl ShardReader {
    /// A reader of the image of a term, who knows nothing of it yet.
    pub fn new(peer: PeerId, term: u64, direct: Option<Direct>) -> ShardReader {
        let (directory, ordered) = (Directory::default(), OrderedReader::default());
        ShardReader { peer, term, directory, direct, direct_gets: 0, ordered }
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
    /// Nothing that is known here leads to the key.
    Nowhere,
}

/// Words of a directory in one READ.
const DIRECTORY_PIECE_WORDS: usize = 1 << 16;

/// Bytes of a large value in one READ. How long a value is, is the server's word: memory for it is taken piece by piece, as
/// it comes.
const LARGE_PIECE_BYTES: u64 = 8 << 20;

/// Words of a large value that one of many reads keeps room for.
const KEPT_WORDS: usize = 128 << 10;

/// What the read rule says of an object whose words are here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Valid,
    Invalid,
    Superseded,
}

/// Checks (a), (b) and (c) of the read rule: the guardian is live, no more than the window has passed between the stamps
/// before the first READ and after the last one, and the image, that of `term`, is still in force.
#[inline(always)]
pub(crate) fn judge(guardian: Guardian, sampled: Sampled, window: u64, term: u64) -> Verdict {
    if sampled.term != term {
        mark!("READ of a superseded image");
        Verdict::Superseded
    } else if sampled.after.wrapping_sub(sampled.before) <= window && guardian.is_live() {
        Verdict::Valid
    } else {
        mark!(if guardian.is_live() { "READ too slow" } else { "READ of a dead object" });
        Verdict::Invalid
    }
}

/// The common case of a read where memory is within reach of loads, and those are ordered: a plain item of this key at the
/// place that somebody guessed. `None`: it is not that case; nothing is lost, begin a [`ReadOp`]. What `copy` makes of the
/// item counts only if this returns it.
///
/// A guess suffices, because the guardian is sampled before the rest: see docs/read-rule.md, "Lemma 5".
#[inline(always)]
pub(crate) fn take_direct<R>(
    direct: &Direct,
    term: u64,
    place: Words<'_>,
    (table, key): (TableId, &[u8]),
    copy: impl FnOnce(PlainItem<'_>) -> Option<R>,
) -> Option<(Incarnation, R)> {
    let before = direct.begin();
    let item = PlainItem::find(place, table, key).filter(|item| item.guardian().is_live())?;
    let copied = copy(item)?;
    let verdict = judge(item.guardian(), direct.sampled(before), READ_EPOCHS_MAX, term);
    (verdict == Verdict::Valid).then(|| (item.guardian().incarnation(), copied))
}

/// A large value that was found straight: its item was valid, and what it says where the value stands.
pub(crate) struct FoundLarge<'a> {
    place: Words<'a>,
    guardian: Guardian,
    body: LargeBody,
    pub version: Version,
    pub item_bytes: usize,
}

/// A large value of this key at the place that somebody guessed. `slot` receives the item, which is judged like a plain one.
pub(crate) fn find_large_direct<'a>(
    direct: &Direct,
    term: u64,
    place: Words<'a>,
    (table, key): (TableId, &[u8]),
    slot: &mut Vec<u64>,
) -> Option<FoundLarge<'a>> {
    let is_large = |flags: ItemFlags| flags.has(ItemFlags::LARGE) && !flags.has(ItemFlags::ATTRIBUTES);
    if place.count() < 2 {
        return None;
    }
    let before = direct.begin();
    let guardian = Guardian(place.load_acquire(0));
    let header = ItemHeader::from_word(place.load(1)).filter(|header| is_large(header.flags))?;
    let words = header.item_bytes().div_ceil(8);
    if words > place.count() {
        return None;
    }
    slot.resize(words, 0);
    place.copy_out(0, slot);
    slot[0] = guardian.0;
    let view = ItemView::new(slot).filter(|view| is_large(view.header().flags) && view.is_for(table, key))?;
    let (body, version) = (LargeBody::parse(view.body())?, view.version());
    let valid = judge(guardian, direct.sampled(before), READ_EPOCHS_MAX, term) == Verdict::Valid;
    valid.then_some(FoundLarge { place, guardian, body, version, item_bytes: words * 8 })
}

impl FoundLarge<'_> {
    /// Length of the value.
    pub fn length(&self) -> usize {
        self.body.bytes as usize
    }

    pub fn runs(&self) -> usize {
        self.body.runs.len()
    }

    /// Copies the value from where it stands into a buffer of its length. `None`: it died meanwhile, and what was copied is
    /// another's, or it stands where this side has no memory.
    ///
    /// Time does not count: its runs are not given back while the guardian lives, so the pieces are good if it lives still
    /// when they are all here, as in [`ReadOp`].
    pub fn copy(&self, direct: &Direct, term: u64, mut into: &mut [u8]) -> Option<()> {
        let map = direct.map.view();
        for (run, bytes) in &self.body.runs {
            let (piece, rest) = into.split_at_mut(*bytes as usize);
            map.words(*run, bytes.div_ceil(8) as usize)?.copy_bytes_out(0, piece).then_some(())?;
            into = rest;
        }
        // The guardian is loaded behind the pieces, by the fences of the stamp, and the term behind the guardian.
        direct.begin();
        let lives = Guardian(self.place.load_acquire(0)) == self.guardian;
        let in_force = direct.term() == term;
        if !lives {
            mark!("large value died while it was read");
        }
        (in_force && lives).then_some(())
    }
}

/// Where the words of a read land. Kept from read to read, so that reading allocates nothing once it has grown.
pub(crate) struct Landing {
    /// The item's slot.
    pub item: Vec<u64>,
    /// The item's header, as it was checked.
    header: ItemHeader,
    /// The value, where it is too large to stand in the item.
    pub value: Vec<u64>,
    bucket: [u64; BUCKET_WORDS],
    /// A leaf, or what was looked at on the way there.
    block: Vec<u64>,
    runs: Vec<(Place, u64)>,
}

impl Default for Landing {
    fn default() -> Landing {
        let header =
            ItemHeader { table: TableId(0), flags: ItemFlags::default(), key_bytes: 0, body_bytes: 0 };
        Landing {
            item: vec![0; 2],
            header,
            value: Vec::new(),
            bucket: [0; BUCKET_WORDS],
            block: Vec::new(),
            runs: Vec::new(),
        }
    }
}

impl Landing {
    /// The item that has landed.
    #[inline(always)]
    pub fn view(&self) -> ItemView<'_> {
        ItemView::with_header(&self.item, self.header)
    }

    /// Takes a plain item from where it stands.
    pub fn copy(&mut self, item: PlainItem<'_>) -> Option<()> {
        self.header = item.copy_item(&mut self.item)?;
        Some(())
    }

    /// Takes the item that a key with an inline value would have.
    pub fn set_inline(&mut self, table: TableId, key: &[u8], value: u64) {
        let key = key.try_into().expect("a key of this table");
        self.item.clear();
        self.item.extend_from_slice(&inline_item(table, key, value));
        self.header = ItemHeader::from_word(self.item[1]).expect("just made");
    }

    /// Takes an item that came in a message, if it is a whole one of this key.
    pub fn accept(&mut self, words: &[u64], table: TableId, key: &[u8]) -> bool {
        let whole =
            |view: &ItemView<'_>| view.is_for(table, key) && !view.header().flags.has(ItemFlags::LARGE);
        let Some(view) = ItemView::new(words).filter(whole) else { return false };
        self.header = view.header();
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
        self.header.flags.has(ItemFlags::LARGE).then(|| {
            self.value.truncate(bytes.div_ceil(8) as usize);
            (std::mem::take(&mut self.value), bytes)
        })
    }

    /// The value: the body of a plain item, the unnamed bytes of one with attributes (empty if it has none).
    #[inline(always)]
    pub fn value(&self) -> &[u8] {
        let view = self.view();
        if self.header.flags.0 & (ItemFlags::ATTRIBUTES.0 | ItemFlags::LARGE.0) == 0 {
            view.body()
        } else {
            self.unusual_value()
        }
    }

    #[cold]
    fn unusual_value(&self) -> &[u8] {
        let body = if self.header.flags.has(ItemFlags::LARGE) { self.large() } else { self.view().body() };
        if !self.header.flags.has(ItemFlags::ATTRIBUTES) {
            return body;
        }
        let unnamed = Attributes::new(body).into_iter().flatten().find_map(|(id, value)| match value {
            Value::Bytes(bytes) if id.0 == 0 => Some(bytes),
            _ => None,
        });
        unnamed.unwrap_or(&[])
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
    /// The greatest incarnation that had been seen live when the READ of a leaf was posted.
    seen: u64,
    reads: u64,
    read_bytes: u64,
    retries: u64,
}

impl ReadOp {
    /// Begins a read, by a pointer if one is known.
    #[inline(always)]
    pub fn start<F: Fabric>(
        fabric: &mut F,
        shard: &ShardReader,
        number: usize,
        tag: u32,
        (table, hash, key): (TableId, KeyHash, &[u8]),
        pointer: Option<Pointer>,
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
            seen: 0,
            reads: 0,
            read_bytes: 0,
            retries: 0,
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
        Cost { reads: self.reads, read_bytes: self.read_bytes, retries: self.retries, ..Cost::default() }
    }

    #[inline(always)]
    fn post<F: Fabric>(&mut self, fabric: &mut F, shard: &ShardReader, place: Place, words: usize) {
        self.reads += 1;
        self.read_bytes += words as u64 * 8;
        self.place = place;
        fabric.post_read(Read { peer: shard.peer, place, words, tag: self.tag });
    }

    fn post_pointer<F: Fabric>(&mut self, fabric: &mut F, shard: &ShardReader, pointer: Pointer) {
        self.state = State::Item { alt: false, by_pointer: true };
        self.location = pointer.location;
        self.incarnation = Some(pointer.incarnation);
        self.before = None;
        self.post(fabric, shard, pointer.location.place(), pointer.location.class().words());
    }

    /// Begins the chain of READs from the index.
    #[inline(always)]
    fn post_first<F: Fabric>(&mut self, fabric: &mut F, shard: &ShardReader, key: &[u8]) {
        if self.table.kind().is_ordered() {
            self.incarnation = None;
            self.state = State::Nowhere;
            if let Some(look) = shard.ordered.begin(self.table, key) {
                self.post_look(fabric, shard, look);
            }
        } else {
            self.post_bucket(fabric, shard);
        }
    }

    #[inline(always)]
    fn post_bucket<F: Fabric>(&mut self, fabric: &mut F, shard: &ShardReader) {
        self.state = State::Bucket { alt: false };
        self.incarnation = None;
        self.before = None;
        match shard.directory.bucket(self.hash, self.hash.bucket()) {
            Some(place) => self.post(fabric, shard, place, BUCKET_WORDS),
            None => self.post_root(fabric, shard),
        }
    }

    /// Begins again after the directory or the map was refreshed, or because a READ was invalid.
    #[cold]
    #[inline(never)]
    pub fn restart<F: Fabric>(&mut self, fabric: &mut F, shard: &ShardReader, key: &[u8]) -> Step {
        self.retries += 1;
        if self.retries > READ_RETRIES_MAX {
            mark!("READ given up");
            return Step::Ask;
        }
        self.post_first(fabric, shard, key);
        if self.state == State::Nowhere { Step::Ask } else { Step::Pending }
    }

    /// Polls the READ under way, of `into.len()` words; `Err` when they are not here (yet). What it tells is for the chain
    /// since its first READ.
    #[inline(always)]
    fn poll<F: Fabric>(
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

    /// Looks at the READ under way and, if it is done, posts the next one. A batch goes round its reads, so that the
    /// next ones overlap. `key` is the wanted key.
    #[inline(always)]
    pub fn advance<F: Fabric>(
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
            _ => self.advance_rarely(fabric, shard, landing, key),
        }
    }

    #[cold]
    #[inline(never)]
    fn advance_rarely<F: Fabric>(
        &mut self,
        fabric: &mut F,
        shard: &mut ShardReader,
        landing: &mut Landing,
        key: &[u8],
    ) -> Step {
        match self.state {
            State::Bucket { .. } | State::Item { .. } | State::Look(_) => unreachable!("handled by advance"),
            State::Pieces { run, at, done } => self.on_piece(fabric, shard, landing, (run, at, done)),
            State::LastGuardian => self.on_last_guardian(fabric, shard, key),
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
    fn on_bucket<F: Fabric>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
        landing: &mut Landing,
        alt: bool,
    ) -> Step {
        match self.poll(fabric, shard, &mut landing.bucket) {
            Ok(_) => {}
            // A subtable in a segment that is gone: the directory copy is old. If it is not, the segment is new.
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
    fn next_candidate<F: Fabric>(
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
            // Not found here proves nothing; only the shard may say "absent".
            return Step::Ask;
        }
        self.state = State::Bucket { alt: true };
        let other = alternate(self.hash.bucket(), self.hash.signature());
        let Some(place) = shard.directory.bucket(self.hash, other) else { return Step::Ask };
        self.post(fabric, shard, place, BUCKET_WORDS);
        Step::Pending
    }

    #[inline(always)]
    fn on_item<F: Fabric>(
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
        let guardian = Guardian(landing.item[0]);
        match judge(guardian, sampled, fabric.stamp_window(), shard.term) {
            Verdict::Valid => {}
            Verdict::Invalid => return self.restart(fabric, shard, key),
            Verdict::Superseded => return Step::Superseded,
        }
        if self.incarnation.is_some_and(|incarnation| guardian.incarnation() != incarnation) {
            mark!("memory reused under a stale pointer");
            return self.restart(fabric, shard, key);
        }
        let Some(view) = ItemView::new(&landing.item).filter(|view| view.is_for(self.table, key)) else {
            // Another key with the same signature, or a pointer that the cache mixed up.
            return if by_pointer {
                self.restart(fabric, shard, key)
            } else if self.table.kind().is_ordered() {
                self.next_in_leaf(fabric, shard, key, landing)
            } else {
                self.next_candidate(fabric, shard, &landing.bucket, alt)
            };
        };
        landing.header = view.header();
        self.pointer = Some(Pointer { location: self.location, incarnation: guardian.incarnation() });
        if view.header().flags.has(ItemFlags::LARGE) {
            return self.begin_pieces(fabric, shard, landing);
        }
        Step::Valid
    }

    /// Reads a large value: its pieces, then the guardian once more in a READ posted after them. If that is still
    /// live, the pieces were never released meanwhile, however long they took.
    #[cold]
    #[inline(never)]
    fn begin_pieces<F: Fabric>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
        landing: &mut Landing,
    ) -> Step {
        let view = ItemView::new(&landing.item).expect("just looked at");
        self.incarnation = Some(view.guardian().incarnation());
        let Some(large) = LargeBody::parse(view.body()).filter(|large| !large.runs.is_empty()) else {
            return Step::Ask;
        };
        landing.runs = large.runs;
        self.post_piece(fabric, shard, landing, (0, 0, 0))
    }

    /// Asks for what comes next of a large value, if there is memory for it.
    fn post_piece<F: Fabric>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
        landing: &mut Landing,
        (run, at, done): (usize, u64, u64),
    ) -> Step {
        let (place, bytes) = landing.runs[run];
        let end = (done / 8) as usize + piece_words(bytes, at);
        if landing.value.try_reserve(end.saturating_sub(landing.value.len())).is_err() {
            return Step::NoMemory;
        }
        // What the last value left is written over.
        if landing.value.len() < end {
            landing.value.resize(end, 0);
        }
        self.state = State::Pieces { run, at, done };
        self.post(fabric, shard, place.plus(at), piece_words(bytes, at));
        Step::Pending
    }

    fn on_piece<F: Fabric>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
        landing: &mut Landing,
        (run, at, done): (usize, u64, u64),
    ) -> Step {
        let bytes = landing.runs[run].1;
        let (first, words) = ((done / 8) as usize, piece_words(bytes, at));
        if let Err(step) = self.poll(fabric, shard, &mut landing.value[first..first + words]) {
            return step;
        }
        let piece = (bytes - at).min(LARGE_PIECE_BYTES);
        let next = if at + piece < bytes { (run, at + piece) } else { (run + 1, 0) };
        if next.0 < landing.runs.len() {
            return self.post_piece(fabric, shard, landing, (next.0, next.1, done + piece));
        }
        self.state = State::LastGuardian;
        self.post(fabric, shard, self.location.place(), 1);
        Step::Pending
    }

    fn on_last_guardian<F: Fabric>(&mut self, fabric: &mut F, shard: &ShardReader, key: &[u8]) -> Step {
        let mut word = [0];
        let sampled = match self.poll(fabric, shard, &mut word) {
            Ok(sampled) => sampled,
            Err(Step::Pending) => return Step::Pending,
            Err(_) => return Step::Ask,
        };
        if sampled.term != shard.term {
            return Step::Superseded;
        }
        let incarnation = self.incarnation.expect("set with the first guardian");
        if Guardian(word[0]) == incarnation.live() {
            return Step::Valid;
        }
        mark!("large value died while it was read");
        self.restart(fabric, shard, key)
    }

    fn post_look<F: Fabric>(&mut self, fabric: &mut F, shard: &ShardReader, look: Look) {
        let (place, words) = look.span();
        // Each leaf proves itself.
        (self.before, self.seen) = (None, shard.ordered.seen());
        self.state = State::Look(look);
        self.post(fabric, shard, place, words);
    }

    /// Goes on towards the leaf of a key of an ordered table, and looks at it.
    fn on_look<F: Fabric>(
        &mut self,
        fabric: &mut F,
        shard: &mut ShardReader,
        key: &[u8],
        landing: &mut Landing,
        look: Look,
    ) -> Step {
        landing.block.resize(look.span().1, 0);
        let sampled = match self.poll(fabric, shard, &mut landing.block) {
            Ok(sampled) => sampled,
            Err(Step::UnknownSegment) if self.renewed => return Step::Ask,
            Err(Step::UnknownSegment) => {
                self.renewed = true;
                return Step::UnknownSegment;
            }
            Err(step) => return step,
        };
        let Look::Leaf { index, guess, further, .. } = look else {
            return match shard.ordered.go_on(self.table, key, look, &landing.block) {
                Some(look) => {
                    self.post_look(fabric, shard, look);
                    Step::Pending
                }
                None => Step::Ask,
            };
        };
        let header = LeafHeader(*landing.block.first_chunk().expect("a leaf"));
        let numbers = self.table.kind().has_numbers();
        let tag = if numbers { tag_of_number(key_word(key, 0)) } else { tag_of_string(key) };
        let verdict = judge(header.guardian(), sampled, fabric.stamp_window(), shard.term);
        if verdict == Verdict::Superseded {
            return Step::Superseded;
        }
        let live = verdict == Verdict::Valid && header.table() == self.table;
        let is_it = live && (!numbers || header.holds_number(key_word(key, 0)));
        let incarnation = header.guardian().incarnation();
        if is_it && incarnation.0 > self.seen {
            shard.ordered.note_seen(incarnation);
            // It is younger than what led here: its words may be older than its guardian. Once more, and they are not.
            mark!("leaf was younger than what led to it");
            self.post_look(fabric, shard, look);
            return Step::Pending;
        }
        if is_it {
            self.candidates = header.candidates(tag);
            let step = self.next_in_leaf(fabric, shard, key, landing);
            if step != Step::Ask {
                return step;
            }
        }
        let next = match further {
            0 => guess.rank.checked_sub(1).and_then(|rank| shard.ordered.leaf_at(self.table, index, rank)),
            _ if live && further < LEAVES_FURTHER => header.next(),
            _ => None,
        };
        let Some(place) = next else {
            shard.ordered.forget_table(self.table, index);
            return Step::Ask;
        };
        self.post_look(fabric, shard, Look::Leaf { index, guess, further: further + 1, place });
        Step::Pending
    }

    /// Goes on with what the leaf at hand says of the key: its value, the next item that may be its own, or that it is absent.
    fn next_in_leaf<F: Fabric>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
        key: &[u8],
        landing: &mut Landing,
    ) -> Step {
        let header = LeafHeader(*landing.block.first_chunk().expect("a leaf"));
        let word = key_word(key, header.prefix_bytes());
        loop {
            let load = |slot: usize| [landing.block[slot_word(slot)], landing.block[slot_word(slot) + 1]];
            let Some((slot, second)) = header.matching(self.candidates, word, load).next() else { break };
            self.candidates &= !1 << slot;
            if !self.table.kind().has_items() {
                landing.set_inline(self.table, key, second);
                self.pointer = None;
                return Step::Valid;
            }
            let Some(location) = Location::from_word(second) else { continue };
            self.state = State::Item { alt: false, by_pointer: false };
            self.incarnation = None;
            self.location = location;
            self.post(fabric, shard, location.place(), location.class().words());
            return Step::Pending;
        }
        // Of strings the fences stand elsewhere.
        if self.table.kind().has_numbers() { Step::Absent } else { Step::Ask }
    }

    /// A bucket does not serve the hash: the directory copy is old.
    #[cold]
    #[inline(never)]
    fn renew_directory<F: Fabric>(&mut self, fabric: &mut F, shard: &ShardReader) -> Step {
        mark!("directory copy was old");
        self.retries += 1;
        if self.retries > READ_RETRIES_MAX {
            return Step::Ask;
        }
        self.renewed = true;
        self.post_root(fabric, shard);
        Step::Pending
    }

    #[cold]
    #[inline(never)]
    fn post_root<F: Fabric>(&mut self, fabric: &mut F, shard: &ShardReader) {
        self.state = State::Root;
        self.before = None;
        self.post(fabric, shard, ROOT, 1);
    }

    /// The root is the one the copy was made under: only the entry of this hash is old. Otherwise all of it is.
    fn on_root<F: Fabric>(&mut self, fabric: &mut F, shard: &ShardReader) -> Step {
        let mut word = [0];
        if let Err(step) = self.poll(fabric, shard, &mut word) {
            return step;
        }
        let Some(root) = DirectoryRoot::from_word(word[0]) else { return Step::Ask };
        if word[0] == shard.directory.root() {
            self.state = State::Entry { root: word[0] };
            self.post(fabric, shard, root.entry(self.hash), 1);
        } else {
            self.state = State::Directory { root: word[0], done: 0 };
            let words = directory_words(root).min(DIRECTORY_PIECE_WORDS);
            self.post(fabric, shard, root.place, words);
        }
        Step::Pending
    }

    /// An entry is one word, and names a current subtable if the directory was still the root's when it was read:
    /// memory of a directory only ever becomes a directory again, so at worst the next bucket does not serve either.
    fn on_entry<F: Fabric>(&mut self, fabric: &mut F, shard: &mut ShardReader, root: u64) -> Step {
        let mut word = [0];
        if let Err(step) = self.poll(fabric, shard, &mut word) {
            return step;
        }
        // Another read of the same batch may have fetched a newer copy meanwhile.
        if shard.directory.root() == root {
            shard.directory.refresh(self.hash, word[0]);
        }
        self.post_bucket(fabric, shard);
        Step::Pending
    }

    /// Reads the whole directory, piece by piece like a large value, its guardian first and last.
    fn on_directory<F: Fabric>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
        value: &mut Vec<u64>,
        root: u64,
        done: usize,
    ) -> Step {
        let Some(at) = DirectoryRoot::from_word(root) else { return Step::Ask };
        let all = directory_words(at);
        let words = (all - done).min(DIRECTORY_PIECE_WORDS);
        // As much as there is, and no more: the depth is the server's word.
        value.resize(done + words, 0);
        let sampled = match self.poll(fabric, shard, &mut value[done..done + words]) {
            Ok(sampled) => sampled,
            Err(step) => return step,
        };
        if done == 0 {
            match judge(Guardian(value[0]), sampled, fabric.stamp_window(), shard.term) {
                Verdict::Valid => {}
                Verdict::Invalid => return self.renew_directory(fabric, shard),
                Verdict::Superseded => return Step::Superseded,
            }
        }
        let done = done + words;
        if done < all {
            self.state = State::Directory { root, done };
            let words = (all - done).min(DIRECTORY_PIECE_WORDS);
            self.post(fabric, shard, at.place.plus(done as u64 * 8), words);
        } else {
            self.state = State::DirectoryGuardian { root };
            self.post(fabric, shard, at.place, 1);
        }
        Step::Pending
    }

    fn on_directory_guardian<F: Fabric>(
        &mut self,
        fabric: &mut F,
        shard: &mut ShardReader,
        value: &[u64],
        root: u64,
    ) -> Step {
        let mut word = [0];
        if let Err(step) = self.poll(fabric, shard, &mut word) {
            return step;
        }
        if word[0] != value[0] {
            mark!("directory died while it was read");
            return self.renew_directory(fabric, shard);
        }
        let entries = value[Kind::DIRECTORY_ENTRIES_START as usize / 8..].to_vec();
        shard.directory = Directory::new(root, entries);
        self.post_bucket(fabric, shard);
        Step::Pending
    }
}

/// Where the root word stands: the header page is at place 0.
const ROOT: Place = Place(header_word::DIRECTORY as u64 * 8);

/// Words of a run of so many bytes in the READ from its byte `at` on.
fn piece_words(bytes: u64, at: u64) -> usize {
    (bytes - at).min(LARGE_PIECE_BYTES).div_ceil(8) as usize
}

fn directory_words(root: DirectoryRoot) -> usize {
    Kind::DIRECTORY_ENTRIES_START as usize / 8 + root.entries()
}

#[cfg(test)]
mod tests {
    use kelix_image::words::bytes_of_mut;
    use kelix_image::{Header, Span};
    use kelix_shard::alone::Alone;
    use kelix_types::key_hash;
    use kelix_wire::mailboxes::{Mailboxes, PEER};

    use super::*;

    const TABLE: TableId = TableId(1);
    const KEY: &[u8] = b"key";
    const BYTES: usize = 3 << 20;

    /// How long a value is was believed before any of it had come: an item that said 4 TiB ended its reader.
    #[test]
    fn a_value_that_is_shorter_than_it_says_takes_no_more_memory_than_there_is() {
        let mut server = Alone::new(1, &Mailboxes::new());
        server.put_in_pieces(TABLE, KEY, &[1; BYTES]);
        let mut fabric = Mailboxes::new();
        (fabric.memory, fabric.term) = (Some(server.map()), Alone::TERM);
        let mut shard = ShardReader::new(PEER, Alone::TERM, None);
        let mut landing = Landing::default();
        let hash = key_hash(Alone::SEED, TABLE, KEY);
        let mut read = |landing: &mut Landing| {
            let mut op = ReadOp::start(&mut fabric, &shard, 0, 0, (TABLE, hash, KEY), None);
            loop {
                match op.advance(&mut fabric, &mut shard, KEY, landing) {
                    Step::Pending => {}
                    step => return (step, op.location),
                }
            }
        };
        let (step, location) = read(&mut landing);
        assert_eq!((step, landing.large().len()), (Step::Valid, BYTES));
        // The length of the value, and that of its last run.
        let slot = server.map();
        let slot = slot.words(location.place(), location.class().words()).unwrap();
        let body = landing.header.body_start() / 8;
        let last = body + 2 * landing.runs.len();
        for word in [body, last] {
            slot.store(word, slot.load(word) + (1 << 42));
        }
        let (step, _) = read(&mut landing);
        assert_eq!(step, Step::UnknownSegment);
        assert!(landing.value.len() * 8 < 128 << 20, "{} words for a segment's 64 MiB", landing.value.len());
    }

    /// Puts others until one of them has the memory of a value of [`KEY`], which has been replaced.
    fn use_its_memory_again(server: &mut Alone) {
        // Pages are given out in turn, so the last one gets its memory.
        for (key, byte) in [(KEY, 2), (b"a", 3), (b"b", 4), (b"c", 5), (b"d", 6)] {
            server.put_in_pieces(TABLE, key, &vec![byte; BYTES]);
            server.pass_epoch();
            server.pass_epoch();
        }
    }

    /// A server's header, and its memory as a reader has it who loads it himself.
    fn within_reach(server: &Alone) -> (Header, Direct) {
        let header = Header::open(server.header().clone()).unwrap();
        let authority = Span::private(64);
        authority.words().store(0, Alone::TERM);
        let direct = Direct::new(server.map(), &header, authority.word(0));
        (header, direct)
    }

    #[test]
    fn a_large_value_dies_while_it_is_copied_straight() {
        let mut server = Alone::new(1, &Mailboxes::new());
        server.put_in_pieces(TABLE, KEY, &[1; BYTES]);
        let (header, direct) = within_reach(&server);
        let mut buffer = vec![0; BYTES];
        let location = {
            let mut fabric = Mailboxes::new();
            (fabric.memory, fabric.term, fabric.stamp) = (Some(server.map()), Alone::TERM, header.epoch());
            let mut shard = ShardReader::new(PEER, Alone::TERM, None);
            let hash = key_hash(Alone::SEED, TABLE, KEY);
            let mut op = ReadOp::start(&mut fabric, &shard, 0, 0, (TABLE, hash, KEY), None);
            let mut landing = Landing::default();
            while op.advance(&mut fabric, &mut shard, KEY, &mut landing) == Step::Pending {}
            op.location
        };
        let map = server.map();
        let place = map.view().words_from(location.place()).unwrap();
        let find = || find_large_direct(&direct, Alone::TERM, place, (TABLE, KEY), &mut Vec::new());
        let found = find().expect("a large value");
        assert_eq!((found.length(), found.copy(&direct, Alone::TERM, &mut buffer)), (BYTES, Some(())));
        assert!(buffer == [1; BYTES]);
        assert_eq!(found.copy(&direct, Alone::TERM + 1, &mut buffer), None, "another term is in force");
        use_its_memory_again(&mut server);
        assert_eq!(found.copy(&direct, Alone::TERM, &mut buffer), None);
        assert!(buffer[0] > 2, "its memory was used by others when it was copied");
        assert!(find().is_none(), "it is dead");
    }

    /// A large value that had been moved was got with its place's version instead of its own, so that comparing and setting
    /// by it failed.
    #[test]
    fn a_large_value_that_was_moved_has_the_version_that_it_had() {
        let mut server = Alone::new(1, &Mailboxes::new());
        server.put_in_pieces(TABLE, KEY, &[1; BYTES]);
        let (_, direct) = within_reach(&server);
        let (version, body) = (7, LargeBody { bytes: 20, runs: vec![(Place(1 << 16), 20)] });
        let flags = ItemFlags::LARGE.with(ItemFlags::MOVED);
        let body_bytes = bytes_of(&body.words()).len();
        let moved = ItemHeader { table: TABLE, flags, key_bytes: KEY.len(), body_bytes };
        let mut words = vec![Incarnation(9).live().0, moved.word(), version, 0];
        bytes_of_mut(&mut words)[moved.key_start()..][..KEY.len()].copy_from_slice(KEY);
        words.extend(body.words());
        let span = Span::private(words.len() as u64 * 8);
        words.iter().enumerate().for_each(|(index, word)| span.words().store(index, *word));
        let found = find_large_direct(&direct, Alone::TERM, span.words(), (TABLE, KEY), &mut Vec::new());
        assert_eq!(found.expect("a large value").version, Version(version));
    }

    /// A value dies after its header was found valid, and before its pieces are read: then those of another one stand in
    /// its memory. However long ago that was, the guardian tells.
    #[test]
    fn a_large_value_dies_while_it_is_read() {
        let mut server = Alone::new(1, &Mailboxes::new());
        server.put_in_pieces(TABLE, KEY, &[1; BYTES]);
        let header = Header::open(server.header().clone()).unwrap();
        let mut fabric = Mailboxes::new();
        (fabric.memory, fabric.term) = (Some(server.map()), Alone::TERM);
        let mut shard = ShardReader::new(PEER, Alone::TERM, None);
        let mut landing = Landing::default();
        let hash = key_hash(Alone::SEED, TABLE, KEY);
        let mut op = ReadOp::start(&mut fabric, &shard, 0, 0, (TABLE, hash, KEY), None);
        while !matches!(op.state, State::Pieces { .. }) {
            assert_eq!(op.advance(&mut fabric, &mut shard, KEY, &mut landing), Step::Pending);
        }
        use_its_memory_again(&mut server);
        let mut others = false;
        loop {
            fabric.stamp = header.epoch();
            match op.advance(&mut fabric, &mut shard, KEY, &mut landing) {
                Step::Pending => others |= landing.value.first().is_some_and(|word| *word as u8 > 2),
                Step::Valid => break,
                step => panic!("{step:?}"),
            }
        }
        assert!(others, "its memory was used by others when it was read");
        assert!(landing.large() == vec![2; BYTES], "bytes of {}", landing.large()[0]);
    }
}
