//! The shard's state and its step: take requests, execute, reply, keep house.

use crate::follower::Follower;
use kelix_fabric::{Clock, Mailbox, PeerId};
use kelix_image::{Books, Committed, Image, ImageConfig, ItemOptions, MemoryUse, SegmentSource, Span};
use kelix_index::{Index, ModelCounts, OrderedCounts};
use kelix_log::{Gatherer, Lag, LogControl, Reader, Record, ShardLog, StreamMemory};
use kelix_types::{Error, ErrorKind, Result, TableId, TableKind, mark};
use kelix_wire::{Expiry, RequestHead, RingShape, View, control::Caller};

use crate::clients::{Clients, Departure};
use crate::datasets::{Datasets, GenerationReport, NumberCounts, Order};
use crate::evacuation::Evacuation;
use crate::held::Durability;
use crate::mirror::Mirrored;
use crate::recorder::Recorder;
use crate::request::Requests;
use crate::store::Store;
use crate::waiting::ParkedWrites;

/// How long a shard waits before it looks whether followers have made room.
const BEHIND_NS: u64 = 100_000;

/// Time as the shell tells it.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// By the fabric's clock, not long ago.
    pub monotonic_ns: u64,
    /// Since 1970, for expiry.
    pub wall_ns: u64,
}

impl Now {
    /// What an item has before its key that a request puts. The request may have come since this was the
    /// time, so the clock is asked again for when it ends.
    pub(crate) fn options_of(self, head: &RequestHead, clock: &impl Clock) -> ItemOptions {
        let expires = head.expiry.map(|expiry| {
            let passed_ns = clock.now_ns().saturating_sub(self.monotonic_ns);
            Now { wall_ns: self.wall_ns + passed_ns, ..self }.end_of(expiry)
        });
        ItemOptions { client_flags: head.client_flags, expires }
    }

    /// When an item ends that is put now, in nanoseconds since 1970.
    pub(crate) fn end_of(self, expiry: Expiry) -> u64 {
        match expiry {
            Expiry::In(time_ns) => self.wall_ns.saturating_add(time_ns),
            Expiry::At(time_ns) => time_ns,
        }
    }
}

/// How a shard is made.
#[derive(Clone)]
pub struct ShardConfig {
    /// Its number in the view.
    pub number: usize,
    /// The view it serves in.
    pub view: View,
    /// Its image.
    pub image: ImageConfig,
    /// How long a read view may go without a sign of life.
    pub view_lease_ns: u64,
    /// Whether items are let go when memory is used up: by itself, or by the shard that it shows.
    pub is_cache: bool,
}

/// A client that joins.
#[derive(Clone, Copy, Debug)]
pub struct ClientParameters {
    /// Its rings.
    pub ring: RingShape,
    /// The number of its connection, which all shards of a server know it by.
    pub connection: u64,
    /// Who it is, if it may ask again.
    pub caller: Option<Caller>,
    /// Whether it may write.
    pub may_write: bool,
    /// Whether it is told with each answer which record has all that the answer tells of.
    pub tells_sequence: bool,
}

/// What a step did and what comes next.
#[derive(Debug, Default)]
pub struct Progress {
    /// Requests taken.
    pub requests: usize,
    /// When the shard has work of its own again, on the monotonic clock. `None`: only when a request comes.
    pub next_ns: Option<u64>,
    /// Clients that broke the protocol and are to be disconnected.
    pub faulty: Vec<(PeerId, &'static str)>,
    /// What other shards are to know: all of them if this is shard 0, else shard 0.
    pub orders: Vec<Order>,
    /// Another life of the store is to begin, with [`Shard::begin_life`], and these connections are to end
    /// for it.
    pub renewed: Option<Vec<u64>>,
    /// The thread that writes the log sleeps, and has something to do.
    pub wakes_log: bool,
}

/// What the shard has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShardCounters {
    /// Gets answered by message.
    pub gets: u64,
    /// Scans answered by message, each reply counted.
    pub scans: u64,
    /// Sub-models told to clients whose copies were old.
    pub models_told: u64,
    /// Items put.
    pub puts: u64,
    /// Keys deleted.
    pub deletes: u64,
    /// All requests taken.
    pub requests: u64,
    /// Items now.
    pub items: u64,
    /// Items that expired.
    pub expired: u64,
    /// Links repaired in place.
    pub links_repaired: u64,
    /// Writes that waited for memory.
    pub waited: u64,
    /// Writes refused for lack of memory.
    pub refused: u64,
    /// Items moved out of sparse segments.
    pub evacuated: u64,
    /// Writes asked for again that were done, and were answered as before.
    pub repeated: u64,
    /// Items that were let go, where that may be.
    pub evicted: u64,
    /// Reads that clients told of.
    pub hints: u64,
}

/// One shard: its parts, each with a file that says what it owns.
pub struct Shard {
    /// The image, its indexes, and all that knows where an item stands.
    pub(crate) store: Store,
    /// Rings, and what clients were answered.
    pub(crate) clients: Clients,
    /// The batch under way.
    pub(crate) requests: Requests,
    /// Writes that wait for memory.
    pub(crate) parked: ParkedWrites,
    /// The segment that is being emptied.
    pub(crate) evacuation: Evacuation,
    /// When the next leaves are laid out, on the monotonic clock.
    pub(crate) layout_ns: u64,
    /// Generations, and names and numbers of tables.
    pub(crate) datasets: Datasets,
    /// What followers are told.
    pub(crate) recorder: Recorder,
    /// Of a mirror: the shard that it shows.
    pub(crate) mirrored: Option<Box<Mirrored>>,
}

impl Shard {
    /// Makes an empty shard whose header page stands in `header`.
    pub fn create(config: ShardConfig, header: Span, source: Box<dyn SegmentSource>) -> Result<Shard> {
        let mut image = Image::create(config.image, header, source)?;
        let index = Index::create(&mut image).map_err(|_| {
            Error::new(ErrorKind::InvalidArgument, "create shard", "too little memory for an empty index")
        })?;
        image.serve();
        Ok(Shard::of(config, image, index))
    }

    /// A shard of an image, without clients.
    pub(crate) fn of(config: ShardConfig, image: Image, index: Index) -> Shard {
        Shard::of_store(config.clone(), Store::new(config, image, index), None)
    }

    fn of_store(config: ShardConfig, store: Store, mirrored: Option<Box<Mirrored>>) -> Shard {
        Shard {
            clients: Clients::default(),
            requests: Requests::default(),
            parked: ParkedWrites::default(),
            evacuation: Evacuation::new(config.image.segment_bytes_max),
            layout_ns: 0,
            datasets: Datasets::new(config.view_lease_ns),
            store,
            recorder: Recorder::default(),
            mirrored,
        }
    }

    // ---- mirrors ----

    /// A shard that shows the one that somebody has followed so far, in an image whose header page stands in
    /// `header` and whose own part has its segments from `source`.
    pub fn mirror(
        follower: Follower,
        config: ShardConfig,
        header: Span,
        source: Box<dyn SegmentSource>,
    ) -> Result<Shard> {
        let recorder = Recorder::of_mirror(follower.applied());
        let (store, mirrored) = Mirrored::begin(follower, config.clone(), header, source)?;
        Ok(Shard { recorder, ..Shard::of_store(config, store, Some(Box::new(mirrored))) })
    }

    /// Whether it shows another shard.
    #[inline]
    pub fn is_mirror(&self) -> bool {
        self.mirrored.is_some()
    }

    /// Of a mirror: what it has followed so far.
    pub fn follower(&self) -> Option<&Follower> {
        self.mirrored.as_ref().map(|mirrored| mirrored.follower())
    }

    /// Of a mirror: what it has followed, which is shown here no more.
    pub fn into_follower(self) -> Option<Follower> {
        self.mirrored.map(|mirrored| mirrored.into_follower(self.store.index))
    }

    /// Of a mirror: applies the next record of the shard that it shows. An error: the record is not the next
    /// one, makes no sense, or finds no room, and this mirror is of no use any more.
    pub fn apply(&mut self, record: &Record<'_>, now_ns: u64) -> Result<()> {
        let mirrored = self.mirrored.as_mut().expect("a mirror");
        mirrored.apply(&mut self.store, record, now_ns)?;
        self.recorder.retell(record);
        Ok(())
    }

    /// Of a cache: takes note of what a mirror's clients have read there, words of locations, any of which
    /// may be made up. Returns the epoch of use.
    pub fn hear(&mut self, locations: &[u64]) -> u64 {
        self.store.hear(locations.iter().copied())
    }

    /// Of a mirror of a cache: what is to be passed up to the shard that it shows, if anything is.
    pub fn take_heard(&mut self) -> Option<Vec<u64>> {
        self.store.heard.as_mut()?.take()
    }

    /// Of a mirror of a cache: the shard that it shows has answered what was passed up, in this epoch of use.
    pub fn set_use_epoch(&mut self, epoch: u64) {
        if let Some(heard) = &mut self.store.heard {
            heard.set_epoch(epoch);
        }
    }

    /// What tells a key's value from all others that it has: its version, or where there are no items the
    /// value itself. For checks.
    pub fn value_or_version(&self, table: TableId, key: &[u8]) -> Option<u64> {
        let Store { index, image, .. } = &self.store;
        if !table.kind().has_items() {
            return Some(index.ordered(table)?.find(image, key)?.second);
        }
        let found = index.find(image, index.hash(table, key), table, key);
        found.is_some().then(|| self.store.version(found))
    }

    // ---- clients ----

    /// A client's mailboxes are connected. Returns the connection that the same client had until now, which
    /// ends: a client has one at a time, and what it still had to say over the first is never looked at.
    pub fn join(&mut self, peer: PeerId, parameters: ClientParameters) -> Option<PeerId> {
        let old = parameters.caller.and_then(|caller| self.clients.of_caller(caller));
        if let Some(peer) = old {
            mark!("client connected anew before its old connection was over");
            self.leave(peer);
        }
        if parameters.tells_sequence {
            self.recorder.begin_to_tell();
        }
        self.clients.join(peer, parameters, self.datasets.numbers(), self.store.image.journal());
        old
    }

    /// A client has gone. Its unfinished requests go with it.
    pub fn leave(&mut self, peer: PeerId) {
        let left = self.clients.leave(peer, self.store.image.journal());
        let Some(Departure { upload, comes_again }) = left else { return };
        self.parked.forget(peer);
        if let Some(upload) = upload {
            mark!("client gone in the middle of an upload");
            upload.abandon(&mut self.store.image);
        }
        self.datasets.leave(&mut self.store, peer, comes_again);
    }

    /// A connection has ended, but its process may read on until it says that it does not.
    pub fn linger(&mut self, connection: u64) {
        let known = self.clients.iter().find(|client| client.connection == connection);
        if let Some(client) = known.filter(|_| self.store.partition.is_first()) {
            self.datasets.numbers().linger(connection, client.knows);
        }
    }

    /// A process whose connection has ended reads no more.
    pub fn end_lingering(&mut self, connection: u64) {
        self.datasets.numbers().end_lingering(connection);
    }

    /// Sessions that begin from now on are in another life of the store, and others are ending.
    pub fn begin_life(&mut self) {
        self.datasets.numbers().begin_life();
    }

    // ---- steps ----

    /// Whether a request or room for a blocked reply waits: to be asked before sleeping. Costs one load a
    /// client.
    pub fn has_news(&self, fabric: &impl Mailbox) -> bool {
        self.clients.has_news(fabric)
    }

    /// The same of recent clients and one of the others: for whoever asks over and over.
    pub fn glance(&mut self, fabric: &impl Mailbox) -> bool {
        self.clients.glance(fabric)
    }

    /// Whether a request that was taken has not been answered yet: a write waits for memory, or a reply for
    /// room.
    pub fn owes_answers(&self) -> bool {
        !self.parked.is_empty() || self.clients.owes_replies()
    }

    /// Does what has arrived and what is due.
    pub fn step(&mut self, now: Now, fabric: &mut (impl Mailbox + Clock)) -> Progress {
        let mut progress = Progress::default();
        self.datasets.numbers().begin_step();
        self.clients.held.begin_step();
        while let Some(peer) = self.clients.next_stranger() {
            self.leave(peer);
            progress.faulty.push((peer, "numbers of tables that it knows were given again"));
        }
        // What was done while followers leave no room would be one record with many epochs in it, of which a
        // mirror could not tell any more what lived in between.
        let was_behind = self.recorder.is_behind();
        if !was_behind {
            self.serve(now, fabric, &mut progress);
            progress.next_ns = self.upkeep(now, fabric, &mut progress.renewed);
        }
        progress.wakes_log |= self.end_record(fabric);
        if was_behind || self.recorder.is_behind() {
            let again = now.monotonic_ns + BEHIND_NS;
            progress.next_ns = Some(progress.next_ns.map_or(again, |next| next.min(again)));
        }
        self.clients.flush(fabric, &mut progress.faulty);
        for (peer, _) in &progress.faulty {
            self.leave(*peer);
        }
        self.datasets.take_orders(&mut progress.orders);
        progress
    }

    /// Makes a record of what has changed, and sends the answers that waited for that. Whether whoever writes
    /// the log is to be woken.
    #[inline]
    pub(crate) fn end_record(&mut self, fabric: &mut impl Mailbox) -> bool {
        self.recorder.seal(&self.store, &mut self.datasets);
        // Readers of the memory are told what is on the disk before answers say so.
        let Shard { recorder, store, .. } = self;
        let end = || {
            let (record, incarnation) = (recorder.sequence(), store.image.last_incarnation().0);
            (!recorder.is_behind()).then_some(Committed { record, incarnation })
        };
        if let Some(committed) = self.clients.held.look_at_disk(end) {
            self.store.image.commit(committed);
        }
        self.clients.end_record(fabric, self.recorder.reached(&self.store))
    }

    // ---- followers ----

    /// All changes are logged from now on, by somebody who follows: records belong to the batches of this
    /// log, and answers wait for their record.
    /// Where all answers wait for the disk, so do readers of the memory.
    pub fn write_log(&mut self, log: ShardLog, durability: Durability) -> Reader {
        if durability == Durability::Commit {
            self.store.image.begin_commits(self.sequence());
        }
        self.recorder.begin_log(log.control());
        self.clients.held.begin(log, durability);
        self.follow(Lag::Wait)
    }

    /// Changes count from now on when replicas have them, as this log says; or as soon as they stand in the
    /// stream, in this memory, where the log says so ([`LogControl::counts_at_once`]). Answers wait for that,
    /// and readers of the memory do, also for what is here already and does not count yet.
    ///
    /// `on_disk`: what counts is on disks, too, so that writes may ask for that. Returns what tells all from
    /// the beginning on, for who keeps a log.
    pub fn replicate(&mut self, log: ShardLog, stream: StreamMemory, on_disk: bool) -> Reader {
        self.store.image.begin_commits_behind(log.committed(), self.sequence());
        self.recorder.begin_replication(&self.store, log.control(), stream);
        self.clients.held.begin_replication(log, on_disk);
        self.recorder.follow(&self.store, Lag::Wait)
    }

    /// A replica that is expected to go on behind what this shard began with: what tells it all from there
    /// on, and holds that for it. Before the shard has done anything: nothing is sealed between two of these.
    pub fn expect(&mut self, batches: &LogControl) -> (Gatherer, Reader) {
        self.recorder.begin_batches(batches);
        self.clients.held.begin_mirror();
        let reader = self.recorder.follow(&self.store, Lag::LetGo);
        (Gatherer::new(reader, batches, self.end()), self.recorder.hold())
    }

    /// What stands in the stream behind this moment is held from now on, and the shard waits where there is no
    /// room for more. Returns the last record before, too.
    pub fn hold(&mut self) -> (Reader, u64) {
        self.seal();
        (self.recorder.hold(), self.sequence())
    }

    /// What a mirror applies from now on is logged, in batches of this control.
    pub fn write_mirrored_log(&mut self, batches: &LogControl) -> Reader {
        self.recorder.begin_batches(batches);
        self.follow(Lag::Wait)
    }

    /// A mirror is fed with all changes from now on: records belong to batches that are gathered, and answers
    /// wait for their record. The shard does not wait for the mirror.
    pub fn feed(&mut self, batches: &LogControl) -> Reader {
        self.recorder.begin_batches(batches);
        if !self.is_mirror() {
            self.clients.held.begin_mirror();
        }
        self.follow(Lag::LetGo)
    }

    /// The record that has, or will have, all that has changed.
    pub fn covers(&self) -> u64 {
        self.recorder.reached(&self.store).covers
    }

    /// Somebody is told of all changes from now on, a record a step.
    pub fn follow(&mut self, lag: Lag) -> Reader {
        // What somebody copies who begins now has all that was noted so far.
        if self.recorder.keeps_notes() {
            self.seal();
        }
        self.recorder.follow(&self.store, lag)
    }

    /// Whether no requests are taken, since followers have yet to make room for what was done.
    pub fn is_behind(&self) -> bool {
        self.recorder.is_behind()
    }

    /// Makes a record of what changed outside of steps. `false`: not all that followers are to be told has
    /// found room yet.
    pub fn seal(&mut self) -> bool {
        self.recorder.seal(&self.store, &mut self.datasets);
        !self.recorder.is_behind()
    }

    /// The last record and the last incarnation.
    pub fn end(&self) -> Committed {
        if let Some(follower) = self.follower() {
            return follower.end();
        }
        Committed { record: self.sequence(), incarnation: self.store.image.last_incarnation().0 }
    }

    /// How many records followers were told so far.
    pub fn sequence(&self) -> u64 {
        self.recorder.sequence()
    }

    /// The record that has, or will have, all that was done so far: what orders that it gives come behind.
    pub fn cause(&self) -> (usize, u64) {
        let reached = self.recorder.reached(&self.store);
        let sequence = if reached.is_followed { reached.covers } else { reached.sealed };
        (self.store.partition.number, sequence)
    }

    /// Does what another shard has to tell: and which of its records that comes behind ([`Shard::cause`]).
    pub fn handle_order(&mut self, order: Order, cause: (usize, u64)) {
        self.recorder.note_cause(&self.store, cause);
        self.datasets.handle_order(&mut self.store, order);
    }

    /// What the memory is that is told of: of a mirror the other shard's, without models.
    pub fn books(&self) -> Books {
        self.follower().map_or_else(|| self.image().books(), Follower::books)
    }

    /// What is to be told to the one that goes on with its image ([`Shard::restore`]).
    pub fn kept(&self) -> Vec<u64> {
        if let Some(follower) = self.follower() {
            return follower.kept().to_vec();
        }
        self.datasets.keep(&self.store.tables)
    }

    /// The last record, and what clients that may ask again were answered: what a snapshot of this moment has
    /// to tell those who go on behind it with the log.
    pub fn position(&self) -> Vec<u64> {
        [&[self.sequence()], &self.histories()[..]].concat()
    }

    /// What clients that may ask again were answered.
    pub fn histories(&self) -> Vec<u64> {
        let mut words = Vec::new();
        self.clients.histories().into_iter().for_each(|history| history.put_words(&mut words));
        words
    }

    // ---- statistics ----

    /// What it has done so far.
    pub fn counters(&self) -> ShardCounters {
        let done = &self.store.counters;
        let (waited, refused) = self.parked.counters();
        // Of a mirror they are counted where its records are applied, and of ordered tables by their leaves.
        let by_leaves = self.store.index.ordered_counts().map(|(_, counts, _)| counts.keys);
        let items =
            if self.is_mirror() { self.store.keys.sum() + by_leaves.sum::<u64>() } else { done.items };
        ShardCounters {
            gets: done.gets,
            scans: done.scans,
            models_told: done.models_told,
            puts: done.puts,
            deletes: done.deletes,
            requests: self.requests.taken(),
            // The catalogue's own items are nobody's who uses the store.
            items: items - self.store.keys.of(TableId::CATALOGUE),
            expired: done.expired,
            links_repaired: done.links_repaired,
            waited,
            refused,
            evacuated: done.evacuated,
            repeated: self.clients.repeated(),
            evicted: done.evicted,
            hints: done.hints,
        }
    }

    /// What its memory is used for.
    pub fn memory_use(&self) -> MemoryUse {
        let own = self.store.image.memory_use();
        let Some(follower) = self.follower() else { return own };
        // What another shard has, of which that one knows how much is used, and nobody here sets a limit.
        let shown = follower.memory_bytes();
        let segments = own.segments + shown;
        MemoryUse { limit: segments, segments, pages: own.pages + shown, ..own }
    }

    /// Writes that wait for memory now.
    pub fn writes_waiting(&self) -> usize {
        self.parked.len()
    }

    /// The image, for statistics and checks.
    pub fn image(&self) -> &Image {
        &self.store.image
    }

    /// What there is of each ordered table.
    pub fn ordered_counts(&self) -> impl Iterator<Item = (TableId, OrderedCounts, ModelCounts)> {
        self.store.index.ordered_counts()
    }

    /// Splits and merges of index blocks so far.
    pub fn splits_and_merges(&self) -> (u64, u64) {
        self.store.index.splits_and_merges()
    }

    /// What there is of generations, the oldest of each dataset first.
    pub fn generations(&self) -> impl Iterator<Item = GenerationReport> {
        self.datasets.reports()
    }

    /// How many numbers there are of each kind of table.
    pub fn number_counts(&self) -> [NumberCounts; TableKind::ALL.len()] {
        self.datasets.number_counts()
    }
}
