//! The part of a session that waits for nothing: routing, requests and replies, one-sided reads. Generic over
//! the fabric, and so what a simulator drives.

use std::collections::VecDeque;

use kelix_fabric::{Countdown, Direct, Fabric, Mailbox, PeerId, RemoteMemory};
use kelix_image::words::Words;
use kelix_image::{ItemHeader, Kind, PlainItem};
use kelix_index::{BUCKET_WORDS, Directory, READER, guess};
use kelix_types::{Error, ErrorKind, Incarnation, KeyHash, Location, TableId, Version, key_hash};
use kelix_wire::{ModelWords, RingFault, RingReader, RingShape, RingWriter, View, mailbox_word};

use crate::catalogue::GENERATIONS;
use crate::hints::Hints;
use crate::hot::HotKeys;
use crate::pointers::{Pointer, PointerCache};
use crate::read::{
    Cost, Landing, ReadOp, ShardReader, Step, find_large_direct, look_for_absence, take_direct, take_item,
};
use crate::shelf::Shelf;

mod many;
mod mirror;
mod read_hints;
mod requests;

pub(crate) use mirror::Lost;
use mirror::{Mirror, state_of};
use requests::Requests;
pub(crate) use requests::{Answer, PostError, RequestId};

/// How gets look for their item.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Path {
    /// What is cheapest on the fabric in use: the index in shared memory, where another pointer saves
    /// nothing; a cached pointer first elsewhere.
    #[default]
    Auto,
    /// A cached pointer if there is one (one READ), else the index.
    Pointer,
    /// The hash index (two READs).
    Index,
    /// A message to the shard.
    Message,
}

struct ShardState {
    reader: ShardReader,
    writer: RingWriter,
    ring: RingReader,
    outstanding: usize,
    /// Writes so far that the shard can tell from each other, and those of the last that may be unanswered:
    /// sequence, slot and generation, in their order.
    sequence: u64,
    unanswered: VecDeque<(u64, u16, u16)>,
}

impl ShardState {
    /// Of a shard whose image is of a term, over a connection on which nothing was said yet.
    fn new<F: Fabric>(fabric: &F, peer: PeerId, server: &ServerIdentity) -> ShardState {
        let direct = fabric.direct(peer);
        let mut ring = RingShape::of_messages(fabric.promises(peer).ordered_placement);
        if server.has_laps {
            ring = ring.in_laps_of_session(direct.is_some());
        }
        ShardState {
            reader: ShardReader::new(peer, server.term, direct, server.commits),
            writer: RingWriter::new(ring),
            ring: RingReader::new(ring),
            outstanding: 0,
            sequence: 0,
            unanswered: VecDeque::new(),
        }
    }
}

/// Which way gets take.
struct Ways {
    path: Path,
    /// Whether memory is within reach of loads.
    is_direct: bool,
    /// Whether gets begin with a cached pointer, and so pointers are worth keeping.
    caches_pointers: bool,
    begins_with_index: bool,
    /// No lease is believed.
    is_strict: bool,
}

/// What the server said of itself, and of this client.
pub(crate) struct ServerIdentity {
    pub term: u64,
    pub may_write: bool,
    /// Its shards want to know what is read.
    pub wants_hints: bool,
    /// What stands in memory counts only when it is committed.
    pub commits: bool,
    /// It follows another one, and takes no writes.
    pub is_mirror: bool,
    /// Its answers tell the record that has what they tell of.
    pub tells_records: bool,
    /// What it has answered its successor knows, and goes on with.
    pub is_replicated: bool,
    /// The server's term is in force by a lease.
    pub is_leased: bool,
    /// Over TCP it answers FINDs.
    pub finds: bool,
    /// Several puts may be one request.
    pub puts_many: bool,
    /// Rings go back to their start behind a lap.
    pub has_laps: bool,
    pub view: View,
    /// Names this life of its store: no other life of this or any store has it.
    pub life: u64,
}

impl ServerIdentity {
    /// The server is a primary or a mirror now. A node of a cluster stays one.
    fn go_on_as(&mut self, other: &ServerIdentity) {
        self.may_write = other.may_write;
        self.is_replicated |= other.is_replicated;
        self.is_leased |= other.is_leased;
        self.puts_many = other.puts_many;
    }
}

/// The way of a session to its shards.
pub(crate) struct Transport<F> {
    pub fabric: F,
    /// Operations until its session looks at what rarely changes, and whether this is the session's process.
    pub countdown: Countdown,
    pub pointers: PointerCache,
    /// What copies of models share.
    pub shelf: Shelf,
    ways: Ways,
    /// Costs since the session began, but for those of direct reads, which are counted more cheaply.
    pub total: Cost,
    direct_item_bytes: u64,
    server: ServerIdentity,
    /// How often handles and items that are got now were to differ from earlier ones.
    pub age: u64,
    shards: Vec<ShardState>,
    requests: Requests,
    segments_mapped: u64,
    /// What was read, where shards want to know.
    hints: Option<Hints>,
    /// Of a session on a mirror.
    mirror: Option<Box<Mirror>>,
    hot: HotKeys,
}

/// How many bytes of a value of this length stand from a byte on.
pub(crate) fn bytes_from(length: usize, from: u64) -> usize {
    usize::try_from(from).map_or(0, |from| length.saturating_sub(from))
}

fn fault(fault: RingFault) -> Error {
    let kind = if fault == RingFault::GONE { ErrorKind::Unavailable } else { ErrorKind::Protocol };
    Error::new(kind, "talk to the server", fault.0)
}

/// The reader of the shard that has keys of this hash. Most stores have few shards, and many have one.
#[inline(always)]
fn reader_of<'a>(shards: &'a mut [ShardState], view: &View, hash: KeyHash) -> &'a mut ShardReader {
    match shards {
        [only] => &mut only.reader,
        shards => &mut shards[view.shard(hash)].reader,
    }
}

/// Where the item of a hash stands if it is in its main bucket, and the word of the slot that says so.
#[inline(always)]
fn guess_item<'a>(direct: &'a Direct, directory: &Directory, hash: KeyHash) -> Option<(u64, Words<'a>)> {
    let map = direct.map.view();
    let bucket = map.words(directory.bucket(hash, hash.bucket())?, BUCKET_WORDS)?;
    let slot = guess(bucket, hash)?;
    Some((slot, map.words_from(Location::place_of(slot))?))
}

/// Whether the item of a key seems to stand in a slot, as far as that can be told of memory that may change. Of keys
/// that are longer than most it is not asked.
fn has_key(slot: Words<'_>, table: TableId, key: &[u8]) -> bool {
    let mut stands = [0; 256];
    let Some(header) = ItemHeader::from_word(slot.load(1)) else { return false };
    let is_so_long = header.table == table && header.key_bytes == key.len();
    let stands = stands.get_mut(..key.len()).filter(|_| is_so_long);
    stands.is_some_and(|stands| slot.copy_bytes_out(header.key_start(), stands) && stands == key)
}

impl<F: Fabric> Transport<F> {
    pub fn new(
        fabric: F,
        server: ServerIdentity,
        peers: &[PeerId],
        pointers: PointerCache,
        shelf: Shelf,
    ) -> Transport<F> {
        let state = |peer: &PeerId| ShardState::new(&fabric, *peer, &server);
        let shards: Vec<ShardState> = peers.iter().map(state).collect();
        let is_direct = shards[0].reader.direct.is_some();
        let hints = server.wants_hints.then(|| Hints::new(peers.len()));
        let mut transport = Transport {
            fabric,
            countdown: Countdown::new(),
            pointers,
            shelf,
            ways: Ways {
                path: Path::Auto,
                is_direct,
                caches_pointers: false,
                begins_with_index: false,
                is_strict: false,
            },
            total: Cost::default(),
            direct_item_bytes: 0,
            server,
            age: 0,
            shards,
            requests: Requests::default(),
            segments_mapped: 0,
            hints,
            mirror: None,
            hot: HotKeys::default(),
        };
        transport.set_path(Path::Auto);
        transport
    }
}

impl<F: RemoteMemory + Mailbox> Transport<F> {
    /// The hash of a key and the shard that owns it.
    #[inline(always)]
    pub fn route(&self, table: TableId, key: &[u8]) -> (KeyHash, usize) {
        let hash = self.hash(table, key);
        (hash, self.server.view.shard_of(table, hash))
    }

    /// What the hashes of keys begin with.
    pub fn seed(&self) -> u64 {
        self.server.view.hash_seed
    }

    /// The hash of a key.
    #[inline(always)]
    pub fn hash(&self, table: TableId, key: &[u8]) -> KeyHash {
        key_hash(self.server.view.hash_seed, table, key)
    }

    /// The random number of this life of the store. Handles carry it, so a handle of one life is refused in
    /// every other, whatever became of run directories and snapshots between them.
    pub fn life(&self) -> u64 {
        self.server.life
    }

    /// What handles and items carry that are got now: a number of this life of the store that counts up when
    /// earlier ones are to be looked at.
    #[inline]
    pub fn handles(&self) -> u64 {
        self.server.life.wrapping_add(self.age)
    }

    /// Whether a server that takes over knows all that this one has answered, and goes on with that.
    pub fn is_replicated(&self) -> bool {
        self.server.is_replicated
    }

    /// Number of shards.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// The fabric's name of a shard's connection.
    pub fn peer(&self, shard: usize) -> PeerId {
        self.shards[shard].reader.peer
    }

    /// Whether the server that made the image of a shard, or of one of the primary's, is still the one in
    /// force. `None`: its connection is gone, and nobody can tell.
    #[inline]
    pub fn in_force(&mut self, station: usize) -> Option<bool> {
        let ShardReader { peer, term, .. } = state_of(&mut self.shards, &mut self.mirror, station).reader;
        Some(self.fabric.authority(peer)? == term)
    }

    /// Begins a one-sided read, of a shard or of one of the primary's. `tag` tells it from the others under
    /// way.
    #[inline(always)]
    pub fn start_read(
        &mut self,
        tag: u32,
        (table, key): (TableId, &[u8]),
        (hash, station): (KeyHash, usize),
        pointer: Option<Pointer>,
    ) -> ReadOp {
        let finds = self.ways.path != Path::Index;
        let reader = &state_of(&mut self.shards, &mut self.mirror, station).reader;
        ReadOp::start(&mut self.fabric, reader, station, tag, (table, hash, key), (pointer, finds))
    }

    /// The pointer to begin a get with, as the path says.
    #[inline(always)]
    pub fn known_pointer(&self, hash: KeyHash) -> Option<Pointer> {
        if self.ways.caches_pointers { self.pointers.get(hash) } else { None }
    }

    /// Asks the processor for the place where the pointer of a key would be cached.
    #[inline(always)]
    pub fn prefetch_pointer(&self, hash: KeyHash) {
        if self.ways.caches_pointers {
            self.pointers.prefetch(hash);
        }
    }

    /// Reads believe no lease from now on: where the server has one it asks the register, and so each read
    /// asks the server.
    pub fn believe_no_lease(&mut self) {
        self.ways.is_strict = true;
    }

    /// Whether a station is to ask the register before it answers a read.
    pub fn confirms(&self, station: usize) -> bool {
        self.ways.is_strict && self.is_leased(station)
    }

    /// How gets look for their item from now on.
    pub fn set_path(&mut self, path: Path) {
        let path = if self.confirms(0) { Path::Message } else { path };
        let ways = &mut self.ways;
        ways.path = path;
        ways.caches_pointers = match path {
            Path::Pointer => true,
            Path::Auto => !ways.is_direct,
            Path::Index | Path::Message => false,
        };
        ways.begins_with_index = !ways.caches_pointers && path != Path::Message;
    }

    /// How gets look for their item.
    #[inline(always)]
    pub fn path(&self) -> Path {
        self.ways.path
    }

    /// Advances a one-sided read.
    #[inline(always)]
    pub fn advance_read(&mut self, op: &mut ReadOp, key: &[u8], landing: &mut Landing) -> Step {
        let reader = &mut state_of(&mut self.shards, &mut self.mirror, op.shard).reader;
        op.advance(&mut self.fabric, reader, key, landing)
    }

    /// The common case of a read by the index, in one go. What `copy` makes of the item counts only if this
    /// returns it. With it come the word of the slot that named the item and the item's incarnation.
    #[inline(always)]
    pub fn read_direct<R>(
        &mut self,
        table: TableId,
        hash: KeyHash,
        key: &[u8],
        copy: impl FnOnce(PlainItem<'_>) -> Option<R>,
    ) -> Option<(u64, Incarnation, R)> {
        let reader = reader_of(&mut self.shards, &self.server.view, hash);
        let ShardReader { term, directory, direct, direct_gets, watermark, .. } = reader;
        let direct = direct.as_ref()?;
        let (slot, place) = guess_item(direct, directory, hash)?;
        let copy = |item: PlainItem<'_>| copy(item).map(|copied| (item.item_bytes(), copied));
        let (incarnation, (bytes, copied)) =
            take_direct((direct, watermark), *term, place, (table, key), copy)?;
        *direct_gets += 1;
        self.direct_item_bytes += bytes as u64;
        if self.hints.is_some() {
            self.hint_of(hash, Location::from_word(slot));
        }
        Some((slot, incarnation, copied))
    }

    /// Whether a key of a hash table that was not found is absent, as far as the index itself says.
    #[inline]
    pub fn is_absent(&mut self, table: TableId, hash: KeyHash) -> bool {
        let reader = reader_of(&mut self.shards, &self.server.view, hash);
        let direct = reader.direct.as_ref();
        let is_absent =
            direct.is_some_and(|direct| look_for_absence(reader, direct, table, hash) == Step::Absent);
        self.total.reads += u64::from(is_absent);
        is_absent
    }

    /// The same of whole items, whatever they have but a large value: the item lands. Returns where it
    /// stands.
    #[inline(always)]
    pub fn read_guessed(
        &mut self,
        table: TableId,
        hash: KeyHash,
        key: &[u8],
        landing: &mut Landing,
    ) -> Option<Pointer> {
        let reader = reader_of(&mut self.shards, &self.server.view, hash);
        let ShardReader { term, directory, direct, direct_gets, watermark, .. } = reader;
        let direct = direct.as_ref()?;
        let (slot, place) = guess_item(direct, directory, hash)?;
        let location = Location::from_word(slot)?;
        let incarnation = take_item((direct, watermark), *term, place, None, (table, key), landing)?;
        *direct_gets += 1;
        self.direct_item_bytes += landing.layout().header().item_bytes() as u64;
        if self.hints.is_some() {
            self.hint_of(hash, Some(location));
        }
        Some(Pointer { location, incarnation })
    }

    /// The common case of a read by a pointer, in one go: the item lands.
    #[inline(always)]
    pub fn read_pointed(
        &mut self,
        (table, key): (TableId, &[u8]),
        Pointer { location, incarnation }: Pointer,
        landing: &mut Landing,
    ) -> bool {
        let shard = if self.shards.len() == 1 { 0 } else { self.route(table, key).1 };
        let ShardReader { term, direct, watermark, .. } = &self.shards[shard].reader;
        let Some(direct) = direct else { return false };
        let slot = direct.map.view().words(location.place(), location.class().words());
        let Some(slot) = slot else { return false };
        let near = (direct, watermark);
        let found = take_item(near, *term, slot, Some(incarnation), (table, key), landing).is_some();
        if found {
            self.total.reads += 1;
            self.total.read_bytes += landing.item.len() as u64 * 8;
            self.hint(shard, table, location);
        }
        found
    }

    /// Asks the processor for the item at a location. Of whose shard the memory is, its table and key tell,
    /// where there are several.
    #[inline(always)]
    pub fn prefetch_item<'k>(&self, location: Location, whose: impl FnOnce() -> Option<(TableId, &'k [u8])>) {
        let shard = match &self.shards[..] {
            [only] => only,
            shards => match whose() {
                Some((table, key)) => &shards[self.route(table, key).1],
                None => return,
            },
        };
        let Some(direct) = &shard.reader.direct else { return };
        if let Some(slot) = direct.map.view().words(location.place(), location.class().words()) {
            slot.prefetch(slot.count());
        }
    }

    /// Whether gets READ, rather than ask the shard.
    pub fn reads_itself(&self) -> bool {
        self.ways.path != Path::Message
    }

    /// Whether gets from a shard begin with FINDs.
    pub fn finds(&self, shard: usize) -> bool {
        self.ways.path != Path::Index && self.fabric.finds(self.shards[shard].reader.peer)
    }

    /// Whether several puts may be one request. What a primary takes that is written to by way of a mirror is
    /// not known.
    pub fn puts_many(&self) -> bool {
        self.server.puts_many && !self.is_on_mirror()
    }

    /// Whether memory is within reach of loads.
    pub fn reads_directly(&self) -> bool {
        self.ways.is_direct
    }

    /// What changes with each generation of a shard that comes into force or is dropped, if it is within
    /// reach of loads: a word that counts these, and the term of the image, since each image counts anew.
    #[inline]
    pub fn generations_word(&self, shard: usize) -> Option<u64> {
        let reader = &self.shards[shard].reader;
        let map = match &reader.direct {
            Some(direct) => direct.map.view(),
            None => self.map_at_hand(shard)?.view(),
        };
        Some(map.words(GENERATIONS, 1)?.load_acquire(0) ^ reader.term.rotate_left(32))
    }

    /// What is known of a shard.
    pub fn reader(&mut self, shard: usize) -> &mut ShardReader {
        &mut self.shards[shard].reader
    }

    /// Takes the sub-model out of the answer to a get, if it came with one.
    pub fn take_model(&mut self, table: TableId, shard: usize, answer: &mut Answer) {
        if !table.kind().is_ordered() || answer.item.len() < 2 {
            return;
        }
        let item_words = match answer.present {
            true => ItemHeader::from_word(answer.item[1]).map(|header| header.item_bytes().div_ceil(8)),
            false => Some(0),
        };
        let Some(item_words) = item_words.filter(|words| *words < answer.item.len()) else { return };
        if let Some(model) = ModelWords::new(&answer.item[item_words..]) {
            self.shards[shard].reader.ordered.renew(table, &model);
            answer.item.truncate(item_words);
        }
    }

    /// The reader of the shard on which an ordered table stands.
    #[inline(always)]
    pub fn reader_in_order(&mut self, table: TableId) -> &mut ShardReader {
        match &mut self.shards[..] {
            [only] => &mut only.reader,
            shards => &mut shards[self.server.view.shard_of(table, KeyHash(0))].reader,
        }
    }

    /// The same of a large value, into a buffer: its version and length. From a byte on as much as there is
    /// room for; without one all of it, if there is room.
    #[cold]
    pub fn read_large_direct(
        &mut self,
        (table, key): (TableId, &[u8]),
        slot: &mut Vec<u64>,
        from: Option<u64>,
        buffer: &mut [u8],
    ) -> Option<(Version, usize)> {
        let hash = self.hash(table, key);
        let ShardReader { term, directory, direct, watermark, .. } =
            reader_of(&mut self.shards, &self.server.view, hash);
        let direct = direct.as_ref()?;
        let (word, place) = guess_item(direct, directory, hash)?;
        let found = find_large_direct((direct, watermark), *term, place, (table, key), slot)?;
        // Bucket and item; the runs, and the guardian once more.
        self.total.reads += 2;
        self.total.read_bytes += (BUCKET_WORDS * 8 + found.item_bytes) as u64;
        let length = found.length();
        let (from, wanted) = match from {
            Some(from) => (from, buffer.len().min(bytes_from(length, from))),
            None => (0, length),
        };
        if let Some(target) = buffer.get_mut(..wanted) {
            self.total.reads += found.copy(direct, *term, from, target)? as u64 + 1;
            self.total.read_bytes += wanted as u64 + 8;
        }
        let result = (found.version, length);
        if self.hints.is_some() {
            self.hint_of(hash, Location::from_word(word));
        }
        Some(result)
    }

    /// Takes note that segments of a shard came or went.
    pub fn note_map(&mut self, shard: usize) {
        if !self.is_suspended(shard) {
            let reader = &mut self.shards[shard].reader;
            reader.direct = self.fabric.direct(reader.peer);
        }
    }

    /// Costs since the session began.
    pub fn cost(&self) -> Cost {
        let mut cost = self.total;
        // Each read the main bucket and an item.
        let direct_gets: u64 = self.shards.iter().map(|shard| shard.reader.direct_gets).sum();
        cost.reads += 2 * direct_gets;
        cost.read_bytes += direct_gets * BUCKET_WORDS as u64 * 8 + self.direct_item_bytes;
        for ShardState { reader: ShardReader { ordered, .. }, .. } in &self.shards {
            let crate::ordered::Reads { leaves, items, item_bytes } = ordered.reads;
            cost.reads += leaves + items;
            cost.read_bytes += leaves * Kind::LEAF_WORDS as u64 * 8 + item_bytes;
        }
        cost
    }

    /// Whether a get begins with the index.
    #[inline(always)]
    pub fn begins_with_index(&self) -> bool {
        self.ways.begins_with_index
    }

    /// Begins a read again after the map was refreshed.
    pub fn restart_read(&mut self, op: &mut ReadOp, key: &[u8]) -> Step {
        let reader = &state_of(&mut self.shards, &mut self.mirror, op.shard).reader;
        op.restart(&mut self.fabric, reader, key)
    }

    /// Notes what a finished read has learnt and cost.
    #[inline(always)]
    pub fn finish_read(&mut self, op: &ReadOp, known: Option<Pointer>) {
        self.total.add(op.cost());
        if let Some(pointer) = op.pointer.filter(|_| self.hints.is_some()) {
            self.hint(op.shard, op.table, pointer.location);
        }
        if known.is_some() && op.pointer != known {
            known.into_iter().for_each(|stale| self.pointers.forget(op.hash, stale));
        }
        self.keep_pointer(op.hash, op.pointer.filter(|pointer| Some(*pointer) != known));
    }

    /// Whether what a server says of itself is of the life of the store that this session is on.
    pub fn is_of_store(&self, server: &ServerIdentity) -> bool {
        self.server.life == server.life && self.server.view == server.view
    }

    /// Whether this is another connection to the same server.
    pub fn is_of_the_server_of(&self, other: &Transport<F>) -> bool {
        self.life() == other.life()
    }

    /// Remembers where an item was written or found.
    pub fn learn(&mut self, hash: KeyHash, answer: &Answer) {
        self.keep_pointer(hash, answer.pointer());
    }

    /// Remembers where an item stands, if pointers are kept.
    #[inline(always)]
    pub fn keep_pointer(&mut self, hash: KeyHash, pointer: Option<Pointer>) {
        if let Some(pointer) = pointer.filter(|_| self.ways.caches_pointers) {
            self.pointers.put(hash, pointer);
        }
    }

    /// Says how many segments this client has mapped, for `kelix stat`.
    pub fn set_segments_mapped(&mut self, count: u64) {
        self.segments_mapped = count;
    }

    /// Takes a sample of what is asked for. Where the item stands is known, or looked for in memory, or else is
    /// told another time.
    pub fn sample(&mut self, table: TableId, key: &[u8]) {
        let (hash, shard) = self.route(table, key);
        let mut location = self.pointers.get(hash).map(|pointer| pointer.location);
        if let Some(direct) = &self.shards[shard].reader.direct {
            let mut take = |at: Location, words: Words<'_>| {
                let is_it = has_key(words, table, key);
                location = is_it.then_some(at).or(location);
                is_it
            };
            let _ = (READER.find)(&direct.map, (hash, table, key), &mut take);
        }
        self.hot.note(hash, shard, location);
    }

    /// Publishes the counters in the server's mailboxes, where `kelix stat` finds them, and what is asked for
    /// most.
    pub fn publish_counters(&mut self) {
        let total = self.cost();
        let mut counters = [0; mailbox_word::COUNTERS_LEN + mailbox_word::HOT_LEN];
        counters[..7].copy_from_slice(&[
            total.reads,
            total.read_bytes,
            total.messages,
            total.retries,
            total.fallbacks,
            self.segments_mapped,
            self.shards.iter().map(|shard| shard.reader.ordered.copied_bytes() as u64).sum(),
        ]);
        counters[mailbox_word::COUNTERS_LEN..].copy_from_slice(&self.hot.words());
        // All to the first shard's mailbox: the server adds the shards' up.
        let _ = self.fabric.post_write(self.shards[0].reader.peer, mailbox_word::COUNTERS, &counters);
        self.fabric.doorbell();
    }
}
