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
//! The stamp of check (b) is taken before the first READ of a chain whose pointers carry no incarnation (buckets),
//! and anew for an item whose pointer carries one.

use kelix_fabric::{Fabric, PeerId, Read, ReadState};
use kelix_image::{ItemFlags, ItemView, Kind, LargeBody, header_word};
use kelix_index::{BUCKET_WORDS, Bucket, Directory, DirectoryRoot, alternate};
use kelix_types::limits::READ_RETRIES_MAX;
use kelix_types::{Guardian, Incarnation, KeyHash, Location, Place, TableId};

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
}

/// What a reader knows of a shard.
pub(crate) struct ShardReader {
    pub peer: PeerId,
    /// Term of the image: it counts only while this term is in force.
    pub term: u64,
    pub directory: Directory,
}

/// How far a read is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Look again after the next completion.
    Pending,
    /// The item's words are in the buffer, valid.
    Valid,
    /// One-sided means are exhausted: ask the shard.
    Ask,
    /// A segment is unknown here.
    UnknownSegment,
    /// Another server is in force.
    Superseded,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Bucket { alt: bool },
    Item { alt: bool, by_pointer: bool },
    Pieces { run: usize, done: u64 },
    LastGuardian,
    Root,
    Entry,
    Directory { root: u64, done: usize },
    DirectoryGuardian { root: u64 },
}

/// Words of a directory in one READ.
const DIRECTORY_PIECE_WORDS: usize = 1 << 16;

/// One read under way.
pub(crate) struct ReadOp {
    pub hash: KeyHash,
    pub table: TableId,
    pub shard: usize,
    pub cost: Cost,
    /// Where the item was found, for the pointer cache.
    pub pointer: Option<Pointer>,
    tag: u32,
    state: State,
    stamp: u64,
    bucket: [u64; BUCKET_WORDS],
    candidates: u8,
    location: Location,
    incarnation: Option<Incarnation>,
    large: Option<LargeBody>,
}

impl ReadOp {
    /// Begins a read, by a pointer if one is known.
    #[inline]
    pub fn start<F: Fabric>(
        fabric: &mut F,
        shard: &mut ShardReader,
        number: usize,
        tag: u32,
        (table, hash): (TableId, KeyHash),
        pointer: Option<Pointer>,
    ) -> ReadOp {
        let mut op = ReadOp {
            hash,
            table,
            shard: number,
            cost: Cost::default(),
            pointer: None,
            tag,
            state: State::Bucket { alt: false },
            stamp: 0,
            bucket: [0; BUCKET_WORDS],
            candidates: 0,
            location: Location::new(Place(0), kelix_types::SizeClass(0)),
            incarnation: None,
            large: None,
        };
        match pointer {
            Some(pointer) => op.post_pointer(fabric, shard, pointer),
            None => op.post_bucket(fabric, shard),
        }
        op
    }

    fn post<F: Fabric>(&mut self, fabric: &mut F, shard: &mut ShardReader, place: Place, words: usize) {
        self.cost.reads += 1;
        self.cost.read_bytes += words as u64 * 8;
        fabric.post_read(Read { peer: shard.peer, place, words, tag: self.tag });
    }

    fn post_pointer<F: Fabric>(&mut self, fabric: &mut F, shard: &mut ShardReader, pointer: Pointer) {
        self.state = State::Item { alt: false, by_pointer: true };
        self.location = pointer.location;
        self.incarnation = Some(pointer.incarnation);
        self.stamp = fabric.stamp(shard.peer);
        self.post(fabric, shard, pointer.location.place(), pointer.location.class().words());
    }

    /// Begins the chain of READs from the index.
    #[inline]
    fn post_bucket<F: Fabric>(&mut self, fabric: &mut F, shard: &mut ShardReader) {
        self.state = State::Bucket { alt: false };
        self.incarnation = None;
        self.stamp = fabric.stamp(shard.peer);
        match shard.directory.bucket(self.hash, self.hash.bucket()) {
            Some(place) => self.post(fabric, shard, place, BUCKET_WORDS),
            None => self.post_root(fabric, shard),
        }
    }

    /// Begins again after the directory or the map was refreshed, or because a READ was invalid.
    pub fn restart<F: Fabric>(&mut self, fabric: &mut F, shard: &mut ShardReader) -> Step {
        self.cost.retries += 1;
        if self.cost.retries > READ_RETRIES_MAX {
            return Step::Ask;
        }
        self.post_bucket(fabric, shard);
        Step::Pending
    }

    /// Checks (b) and (c): the time that passed, and who is in force.
    #[inline]
    fn still_valid<F: Fabric>(&self, fabric: &F, shard: &mut ShardReader) -> Result<bool, Step> {
        let elapsed = fabric.stamp(shard.peer).wrapping_sub(self.stamp);
        if fabric.authority(shard.peer) != shard.term {
            return Err(Step::Superseded);
        }
        Ok(elapsed <= fabric.stamp_window())
    }

    /// Looks at the READ under way and, if it is done, posts the next one. A batch goes round its reads, so that the next
    /// ones overlap. `key` is the wanted key; `item` receives the item's words, `value` the
    /// bytes of a large value.
    #[inline]
    pub fn advance<F: Fabric>(
        &mut self,
        fabric: &mut F,
        shard: &mut ShardReader,
        key: &[u8],
        item: &mut Vec<u64>,
        value: &mut Vec<u64>,
    ) -> Step {
        match self.state {
            State::Bucket { alt } => self.on_bucket(fabric, shard, alt),
            State::Item { alt, by_pointer } => self.on_item(fabric, shard, key, item, alt, by_pointer),
            State::Pieces { run, done } => self.on_piece(fabric, shard, value, run, done),
            State::LastGuardian => self.on_last_guardian(fabric, shard),
            State::Root => self.on_root(fabric, shard),
            State::Entry => self.on_entry(fabric, shard),
            State::Directory { root, done } => self.on_directory(fabric, shard, value, root, done),
            State::DirectoryGuardian { root } => self.on_directory_guardian(fabric, shard, value, root),
        }
    }

    #[inline]
    fn on_bucket<F: Fabric>(&mut self, fabric: &mut F, shard: &mut ShardReader, alt: bool) -> Step {
        let bucket =
            if alt { alternate(self.hash.bucket(), self.hash.signature()) } else { self.hash.bucket() };
        let place = shard.directory.bucket(self.hash, bucket).expect("posted by it");
        let read = Read { peer: shard.peer, place, words: BUCKET_WORDS, tag: self.tag };
        match fabric.poll_read(read, &mut self.bucket) {
            ReadState::Pending => return Step::Pending,
            ReadState::Outside => return self.renew_directory(fabric, shard),
            ReadState::Broken => return Step::Ask,
            ReadState::Done => {}
        }
        if !Bucket(&self.bucket).serves(self.hash) {
            return self.renew_directory(fabric, shard);
        }
        self.candidates = Bucket(&self.bucket).candidates(self.hash, alt);
        self.next_candidate(fabric, shard, alt)
    }

    /// Reads the next item the bucket proposes, or the alternate bucket, or gives up.
    #[inline]
    fn next_candidate<F: Fabric>(&mut self, fabric: &mut F, shard: &mut ShardReader, alt: bool) -> Step {
        while self.candidates != 0 {
            let slot = self.candidates.trailing_zeros() as usize;
            self.candidates &= self.candidates - 1;
            if let Some(location) = Bucket(&self.bucket).location(slot) {
                self.state = State::Item { alt, by_pointer: false };
                self.location = location;
                self.post(fabric, shard, location.place(), location.class().words());
                return Step::Pending;
            }
        }
        if alt || !Bucket(&self.bucket).has_away() {
            // Not found here proves nothing; only the shard may say "absent".
            return Step::Ask;
        }
        self.state = State::Bucket { alt: true };
        let other = alternate(self.hash.bucket(), self.hash.signature());
        let place = shard.directory.bucket(self.hash, other).expect("the main bucket's directory");
        self.post(fabric, shard, place, BUCKET_WORDS);
        Step::Pending
    }

    #[inline]
    fn on_item<F: Fabric>(
        &mut self,
        fabric: &mut F,
        shard: &mut ShardReader,
        key: &[u8],
        item: &mut Vec<u64>,
        alt: bool,
        by_pointer: bool,
    ) -> Step {
        let words = self.location.class().words();
        item.resize(words, 0);
        let read = Read { peer: shard.peer, place: self.location.place(), words, tag: self.tag };
        match fabric.poll_read(read, item) {
            ReadState::Pending => return Step::Pending,
            ReadState::Outside if by_pointer => return self.restart(fabric, shard),
            ReadState::Outside => return Step::UnknownSegment,
            ReadState::Broken => return Step::Ask,
            ReadState::Done => {}
        }
        let in_time = match self.still_valid(fabric, shard) {
            Ok(in_time) => in_time,
            Err(step) => return step,
        };
        let guardian = Guardian(item[0]);
        let wanted = self.incarnation.is_none_or(|incarnation| guardian.incarnation() == incarnation);
        if !in_time || !guardian.is_live() || !wanted {
            return self.restart(fabric, shard);
        }
        let Some(view) = ItemView::new(item).filter(|view| view.is_for(self.table, key)) else {
            // Another key with the same signature, or a pointer that the cache mixed up.
            return if by_pointer {
                self.restart(fabric, shard)
            } else {
                self.next_candidate(fabric, shard, alt)
            };
        };
        self.pointer = Some(Pointer { location: self.location, incarnation: guardian.incarnation() });
        if view.header().flags.has(ItemFlags::LARGE) {
            return self.begin_pieces(fabric, shard, view);
        }
        Step::Valid
    }

    /// Reads a large value: its pieces, then the guardian once more in a READ posted after them. If that is still
    /// live, the pieces were never released meanwhile, however long they took.
    fn begin_pieces<F: Fabric>(
        &mut self,
        fabric: &mut F,
        shard: &mut ShardReader,
        view: ItemView<'_>,
    ) -> Step {
        self.incarnation = Some(view.guardian().incarnation());
        let Some(large) = LargeBody::parse(view.body()) else { return Step::Ask };
        self.large = Some(large);
        self.state = State::Pieces { run: 0, done: 0 };
        self.post_piece(fabric, shard, 0);
        Step::Pending
    }

    fn post_piece<F: Fabric>(&mut self, fabric: &mut F, shard: &mut ShardReader, run: usize) {
        let (place, bytes) = self.large.as_ref().expect("a large value").runs[run];
        self.post(fabric, shard, place, bytes.div_ceil(8) as usize);
    }

    fn on_piece<F: Fabric>(
        &mut self,
        fabric: &mut F,
        shard: &mut ShardReader,
        value: &mut Vec<u64>,
        run: usize,
        done: u64,
    ) -> Step {
        let large = self.large.as_ref().expect("a large value");
        let (place, bytes) = large.runs[run];
        let (first, words) = ((done / 8) as usize, bytes.div_ceil(8) as usize);
        let last = run + 1 == large.runs.len();
        value.resize(large.bytes.div_ceil(8) as usize, 0);
        let read = Read { peer: shard.peer, place, words, tag: self.tag };
        match fabric.poll_read(read, &mut value[first..first + words]) {
            ReadState::Pending => return Step::Pending,
            ReadState::Outside => return Step::UnknownSegment,
            ReadState::Broken => return Step::Ask,
            ReadState::Done => {}
        }
        if last {
            self.state = State::LastGuardian;
            self.post(fabric, shard, self.location.place(), 1);
        } else {
            self.state = State::Pieces { run: run + 1, done: done + bytes };
            self.post_piece(fabric, shard, run + 1);
        }
        Step::Pending
    }

    fn on_last_guardian<F: Fabric>(&mut self, fabric: &mut F, shard: &mut ShardReader) -> Step {
        let mut word = [0];
        // Orders the pieces' loads before this one where loads are ordered at all.
        let _ = fabric.stamp(shard.peer);
        let read = Read { peer: shard.peer, place: self.location.place(), words: 1, tag: self.tag };
        match fabric.poll_read(read, &mut word) {
            ReadState::Pending => return Step::Pending,
            ReadState::Outside | ReadState::Broken => return Step::Ask,
            ReadState::Done => {}
        }
        if fabric.authority(shard.peer) != shard.term {
            return Step::Superseded;
        }
        let incarnation = self.incarnation.expect("set with the first guardian");
        if Guardian(word[0]) == incarnation.live() { Step::Valid } else { self.restart(fabric, shard) }
    }

    /// A bucket does not serve the hash: the directory copy is old.
    fn renew_directory<F: Fabric>(&mut self, fabric: &mut F, shard: &mut ShardReader) -> Step {
        self.cost.retries += 1;
        if self.cost.retries > READ_RETRIES_MAX {
            return Step::Ask;
        }
        self.post_root(fabric, shard);
        Step::Pending
    }

    fn post_root<F: Fabric>(&mut self, fabric: &mut F, shard: &mut ShardReader) {
        self.state = State::Root;
        self.stamp = fabric.stamp(shard.peer);
        self.post(fabric, shard, ROOT, 1);
    }

    /// Polls a READ of `into.len()` words at `place`; `Err` when there are none (yet).
    fn poll<F: Fabric>(
        &self,
        fabric: &mut F,
        shard: &ShardReader,
        place: Place,
        into: &mut [u64],
    ) -> Result<(), Step> {
        let read = Read { peer: shard.peer, place, words: into.len(), tag: self.tag };
        match fabric.poll_read(read, into) {
            ReadState::Done => Ok(()),
            ReadState::Pending => Err(Step::Pending),
            ReadState::Outside => Err(Step::UnknownSegment),
            ReadState::Broken => Err(Step::Ask),
        }
    }

    /// The root is the one the copy was made under: only the entry of this hash is old. Otherwise all of it is.
    fn on_root<F: Fabric>(&mut self, fabric: &mut F, shard: &mut ShardReader) -> Step {
        let mut word = [0];
        if let Err(step) = self.poll(fabric, shard, ROOT, &mut word) {
            return step;
        }
        let Some(root) = DirectoryRoot::from_word(word[0]) else { return Step::Ask };
        if word[0] == shard.directory.root() {
            self.state = State::Entry;
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
    fn on_entry<F: Fabric>(&mut self, fabric: &mut F, shard: &mut ShardReader) -> Step {
        let Some(root) = DirectoryRoot::from_word(shard.directory.root()) else { return Step::Ask };
        let mut word = [0];
        if let Err(step) = self.poll(fabric, shard, root.entry(self.hash), &mut word) {
            return step;
        }
        shard.directory.refresh(self.hash, word[0]);
        self.post_bucket(fabric, shard);
        Step::Pending
    }

    /// Reads the whole directory, piece by piece like a large value, its guardian first and last.
    fn on_directory<F: Fabric>(
        &mut self,
        fabric: &mut F,
        shard: &mut ShardReader,
        value: &mut Vec<u64>,
        root: u64,
        done: usize,
    ) -> Step {
        let Some(at) = DirectoryRoot::from_word(root) else { return Step::Ask };
        let all = directory_words(at);
        let words = (all - done).min(DIRECTORY_PIECE_WORDS);
        value.resize(all, 0);
        let place = at.place.plus(done as u64 * 8);
        if let Err(step) = self.poll(fabric, shard, place, &mut value[done..done + words]) {
            return step;
        }
        if done == 0 {
            match self.still_valid(fabric, shard) {
                Err(step) => return step,
                Ok(true) if Guardian(value[0]).is_live() => {}
                Ok(_) => return self.renew_directory(fabric, shard),
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
        let Some(at) = DirectoryRoot::from_word(root) else { return Step::Ask };
        let mut word = [0];
        let _ = fabric.stamp(shard.peer);
        if let Err(step) = self.poll(fabric, shard, at.place, &mut word) {
            return step;
        }
        if word[0] != value[0] {
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

fn directory_words(root: DirectoryRoot) -> usize {
    Kind::DIRECTORY_ENTRIES_START as usize / 8 + root.entries()
}
