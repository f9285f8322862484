//! The log of a server: what was acknowledged is on the disk.
//!
//! One thread gathers the records of all shards into batches, writes and syncs them (`kelix_log::LogWriter`),
//! and tells the shards what is on the disk. Snapshots in the same directory are bases: a server begins with
//! the newest one that is whole, and applies the records behind it ([`Replay`]).
//!
//! 1. A batch has all that was sealed before it was begun, of all shards, as far as it is whole in their
//!    streams (`kelix_log::files::Feed`, `kelix_log::LogControl`).
//! 2. A base gets its name when the log is on the disk up to its moment ([`Wal::sync_up_to`]), and files go
//!    that no base needs which is kept ([`Wal::truncate`]).
//! 3. A write or sync that failed is final: writes are refused from then on, reads go on
//!    ([`LogThread::fail`]).
//! 4. The next file is allocated while there is room in this one. While that cannot be, writes are refused
//!    ([`LogThread::prepare`]).

mod replay;
mod reshard;
mod tail;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant, SystemTime};

use kelix_fabric::shm::term_in_force;
use kelix_image::Committed;
use kelix_image::words::full_fence;
use kelix_log::files::{Batch, Directory, FILE_BYTES, Feed, Log, LogWriter, Position};
use kelix_log::{LogControl, LogSleep, LogState, ShardLog};
use kelix_shard::Durability;
use kelix_snapshot::{Snapshot, Which};
use kelix_types::{Error, ErrorKind, Result};
use rustix::event::{EventfdFlags, eventfd};
use serde_json::{Value, json};
use tracing::{error, info, warn};

use crate::authority::{Authority, Lock};
use crate::namespace::Namespace;
use crate::server::Shared;
use crate::snapshots::BeginError;
use crate::store::StoreDirectory;
use replay::Replay;

pub(crate) use replay::{Layout, Replayed, Shadow};
pub use reshard::{Reshard, ReshardStep, Resharded, reshard_log};
pub(crate) use tail::{LogTail, Tailed};

/// How long what was written may wait for a sync where nobody waits for it. Writes are on the disk twice as
/// late at most, for a sync takes its time.
const LAZY: Duration = Duration::from_millis(40);
/// How long the thread sleeps between two batches that nobody waits for: fewer are larger, and cost less.
const NAP: Duration = Duration::from_millis(5);
/// How long nothing is written before the thread sleeps until it is woken.
const IDLE: Duration = Duration::from_secs(1);
/// How long it then sleeps at most.
const SLEEP: Duration = Duration::from_secs(5);
/// How often room is looked for on a full disk.
const FULL: Duration = Duration::from_millis(200);
/// How long others wait for it.
const PATIENCE: Duration = Duration::from_secs(30);
/// How much is logged behind a base before the next one is taken, at least; and at least as much as the base
/// has.
const BASE_BYTES_MIN: u64 = 1 << 30;

/// How a server logs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalConfig {
    /// When writes are answered.
    pub durability: Durability,
    /// Serve what there was at this moment, and take no writes.
    pub until: Option<SystemTime>,
}

/// Wakes the thread, once there is one, and those that feed replicas.
#[derive(Clone, Default)]
pub(crate) struct LogWaker(Arc<OnceLock<Thread>>, Arc<Mutex<Vec<Weak<OwnedFd>>>>);

impl LogWaker {
    /// Wakes the thread.
    pub fn wake(&self) {
        if let Some(thread) = self.0.get() {
            thread.unpark();
        }
    }

    /// Wakes whoever has announced to this control to sleep.
    pub fn wake_sleepers(&self, control: &LogControl) {
        if control.announced() != LogSleep::Awake {
            self.wake();
        }
        for bell in self.bells().iter().filter_map(Weak::upgrade) {
            // One that is rung already stays so.
            let _ = rustix::io::write(&*bell, &1u64.to_ne_bytes());
        }
    }

    fn bells(&self) -> MutexGuard<'_, Vec<Weak<OwnedFd>>> {
        self.1.lock().expect("no panic under this lock")
    }

    /// A descriptor that is readable once others are woken, for whoever waits for something else, too. It is
    /// read by who waits.
    pub fn bell(&self) -> Result<Arc<OwnedFd>> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell =
            bell.map_err(|source| Error::system("feed replica", "no descriptor to wait with", source))?;
        let bell = Arc::new(bell);
        let mut bells = self.bells();
        bells.retain(|bell| bell.strong_count() > 0);
        bells.push(Arc::downgrade(&bell));
        Ok(bell)
    }
}

/// The files of a log, and what its shards begin with.
pub(crate) struct LogFiles {
    log: Log,
    config: WalConfig,
    /// The directory, and the number of the store.
    directory: PathBuf,
    store: u64,
    of_mirror: bool,
    pub shards: ShardsLog,
}

/// What the thread that writes begins with: streams with the numbers of their shards, in the order of the
/// log.
pub(crate) type Streams = (LogWriter, Vec<(usize, Feed)>);

impl LogFiles {
    /// Opens the log of a store, which may have none yet.
    pub fn open(config: &WalConfig, store: &StoreDirectory) -> Result<LogFiles> {
        LogFiles::of(config, store, (LogControl::new(), false))
    }

    /// The same of a mirror's, which writes what it applies in batches of this control.
    pub fn of_mirror(config: &WalConfig, store: &StoreDirectory, control: LogControl) -> Result<LogFiles> {
        LogFiles::of(config, store, (control, true))
    }

    fn of(
        config: &WalConfig,
        store: &StoreDirectory,
        (control, of_mirror): (LogControl, bool),
    ) -> Result<LogFiles> {
        store.check_one_writer()?;
        let log = Log::open(Box::new(Directory(store.path().to_path_buf())))?;
        let shards = ShardsLog {
            control,
            durability: config.durability,
            waker: LogWaker::default(),
            of_replicas: false,
            expected: 0,
            has_files: true,
        };
        let directory = store.path().to_path_buf();
        Ok(LogFiles { log, config: config.clone(), directory, store: store.number, of_mirror, shards })
    }

    /// Whether the log has all from the first record on, so that no base is needed.
    pub fn is_whole(&self) -> bool {
        self.log.begins_with_first()
    }

    /// Which namespaces the log has, if there is one.
    pub fn layout(&self) -> Result<Option<Layout>> {
        Layout::of_log(&self.log)
    }

    /// Replays what is behind a base ([`Replay::run`]).
    pub fn replay(
        &self,
        base: Option<&Snapshot>,
        served: &[(&str, usize)],
        seed: &dyn Fn() -> Result<u64>,
    ) -> std::result::Result<Replayed, BeginError> {
        let (directory, store, until) = (&self.directory, self.store, self.config.until);
        let replay = Replay { log: &self.log, directory, store, served, until, of_mirror: self.of_mirror };
        replay.run(base, &|_| seed())
    }

    /// Goes on with the log behind what was replayed, or serves that and takes no writes.
    pub fn go_on(
        self,
        replayed: Replayed,
        served: &[Arc<Namespace>],
        (life, base_bytes): (u64, u64),
    ) -> Result<(Wal, Option<Streams>)> {
        let Replayed { layout, position, report, .. } = replayed;
        let mut ends: Vec<(usize, usize, Feed)> = Vec::new();
        let shards = served
            .iter()
            .flat_map(|of| of.shards.iter().enumerate().map(|(shard, handle)| (&of.name, shard, handle)));
        for (number, (name, shard, handle)) in shards.enumerate() {
            let index = layout.index(name, shard).expect("a layout of all that is served");
            ends.push((index, number, handle.take_log().expect("a shard that is logged")));
        }
        ends.sort_unstable_by_key(|(index, ..)| *index);
        let logs = ends.iter().map(|(.., end)| end.log().clone()).collect();
        let place = (self.directory, life);
        let wal = Wal::new(place, self.shards.clone(), layout.clone(), logs, report, base_bytes);
        if self.config.until.is_some() {
            // Nobody follows what is done, so no answer waits for the disk.
            wal.shards.iter().for_each(|shard| shard.set_durable(Committed::ALL));
            self.shards.control.set_state(LogState::Full);
            return Ok((Wal { is_of_the_past: true, ..wal }, None));
        }
        let writer =
            LogWriter::create(self.log, replay::identity(&layout, self.store, life), position, FILE_BYTES)?;
        wal.note_written(&writer);
        Ok((wal, Some((writer, ends.into_iter().map(|(_, number, end)| (number, end)).collect()))))
    }
}

/// Removes the files of a log that none of the snapshots needs which stand beside it, where no server writes
/// it. Returns how many those were.
pub fn truncate_log(directory: &Path) -> Result<u64> {
    let store = directory.join("store");
    let lock = Lock::try_lock(&store);
    let lock = lock.map_err(|source| {
        Error::system("truncate log", format!("cannot open {}", store.display()), source)
    })?;
    let Lock::Held(_lock) = lock else {
        let context = format!(
            "a server writes the log in {}, and removes what is not needed by itself",
            directory.display()
        );
        return Err(Error::new(ErrorKind::InvalidArgument, "truncate log", context));
    };
    let log = Log::open(Box::new(Directory(directory.to_path_buf())))?;
    let oldest = oldest_base(directory)?;
    let sequences = match (Layout::of_log(&log)?, oldest) {
        (Some(layout), Some(oldest)) => layout.sequences(&oldest),
        _ => None,
    };
    sequences.map_or(Ok(0), |sequences| log.truncate(&sequences))
}

/// An error if there is a log that a server would not go on with: what is in it and in no snapshot would be
/// lost.
pub(crate) fn refuse_log(store: &StoreDirectory) -> Result<()> {
    if Log::open(Box::new(Directory(store.path().to_path_buf())))?.files().is_empty() {
        return Ok(());
    }
    let context = format!(
        "there is a log in {0}, so its snapshots are not all there is: serve it with --wal {0}",
        store.path().display()
    );
    Err(Error::new(ErrorKind::InvalidArgument, "serve", context))
}

/// The oldest snapshot that a server may have to begin with.
pub(crate) fn oldest_base(directory: &Path) -> Result<Option<Snapshot>> {
    kelix_snapshot::list(directory)?.pop().map(|path| Snapshot::open(&path)).transpose()
}

/// What shards begin with that are logged.
#[derive(Clone)]
pub(crate) struct ShardsLog {
    pub control: LogControl,
    pub durability: Durability,
    pub waker: LogWaker,
    /// What counts is what replicas have.
    pub of_replicas: bool,
    /// Replicas that are expected to go on with what they have: all is kept for each from the beginning on.
    pub expected: usize,
    /// There are files, too.
    pub has_files: bool,
}

impl ShardsLog {
    /// Of shards whose changes count when replicas have them, and this server's own disk, if that counts; and
    /// where nobody has to have them, at once.
    pub fn of_replicas(expected: usize, authority: &Authority, files: Option<Durability>) -> ShardsLog {
        let control = LogControl::fenced(term_in_force(&authority.page), authority.term);
        control.set_counts_at_once(expected == 0 && files != Some(Durability::Commit));
        let (durability, waker) = (files.unwrap_or(Durability::Lazy), LogWaker::default());
        ShardsLog { control, durability, waker, of_replicas: true, expected, has_files: files.is_some() }
    }

    /// Whether what counts is on disks.
    pub fn counts_on_disk(&self) -> bool {
        self.has_files && self.durability == Durability::Commit
    }
}

/// How far the log was written.
#[derive(Clone, Default)]
struct Written {
    /// The number of the last batch.
    batch: u64,
    /// The last record of each shard of the log.
    sequences: Vec<u64>,
}

/// How it goes with the log.
#[derive(Clone, Default)]
struct Standing {
    batches: u64,
    records: u64,
    /// Bytes that were written since the server began.
    bytes: u64,
    syncs: u64,
    /// Time that syncs took.
    sync_time: Duration,
    /// Bytes of all files.
    file_bytes: u64,
    files: usize,
    error: Option<String>,
}

/// The log, as the rest of the server sees it.
pub(crate) struct Wal {
    directory: PathBuf,
    /// The lineage of its records: a random number of this server's log, which its files tell.
    life: u64,
    shards_log: ShardsLog,
    layout: Layout,
    /// For each shard of the log, the logs of which say what is on the disk.
    shards: Vec<ShardLog>,
    /// What was replayed, for who asks.
    replayed: Value,
    standing: Mutex<Standing>,
    last: Mutex<Written>,
    /// Somebody waits until all that is in the streams is on the disk.
    is_wanted: AtomicBool,
    /// Bytes that had been written when the last base was taken, and its length.
    base: Mutex<(u64, u64)>,
    written: AtomicU64,
    /// Files that end at or before these sequences may go.
    removable: Mutex<Option<Vec<u64>>>,
    ends: AtomicBool,
    /// Whether the disk takes what is written.
    state: Mutex<LogState>,
    /// What is served is of an earlier moment.
    is_of_the_past: bool,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Where it ended, in good order.
    ended: Mutex<Option<Position>>,
}

impl Wal {
    /// A log of shards in its order, which a server began by replaying.
    fn new(
        (directory, life): (PathBuf, u64),
        shards_log: ShardsLog,
        layout: Layout,
        shards: Vec<ShardLog>,
        replayed: Value,
        base_bytes: u64,
    ) -> Wal {
        Wal {
            directory,
            life,
            shards_log,
            layout,
            shards,
            replayed,
            standing: Mutex::default(),
            last: Mutex::default(),
            is_wanted: AtomicBool::new(false),
            base: Mutex::new((0, base_bytes)),
            written: AtomicU64::new(0),
            removable: Mutex::default(),
            ends: AtomicBool::new(false),
            state: Mutex::default(),
            is_of_the_past: false,
            thread: Mutex::default(),
            ended: Mutex::default(),
        }
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().expect("no panic under this lock")
    }

    /// All that a writer has written can be read.
    fn note_written(&self, writer: &LogWriter) {
        let mut last = self.last.lock().expect("no panic under this lock");
        last.batch = writer.written();
        // Its memory is used again.
        last.sequences.clear();
        last.sequences.extend_from_slice(writer.sequences());
    }

    /// How it goes with it, for statistics.
    pub fn json(&self) -> Value {
        let standing = self.standing().clone();
        let state = match self.state() {
            _ if self.is_of_the_past => "past",
            LogState::Writes => "writes",
            LogState::Full => "full",
            LogState::Failed => "failed",
        };
        json!({
            "durable": match self.shards_log.durability {
                Durability::Lazy => "lazy",
                Durability::Commit => "commit",
            },
            "state": state,
            "takes_writes": u64::from(state == "writes"),
            "error": standing.error,
            "batches": standing.batches,
            "records": standing.records,
            "bytes": standing.bytes,
            "syncs": standing.syncs,
            "sync_seconds": standing.sync_time.as_secs_f64(),
            "file_bytes": standing.file_bytes,
            "files": standing.files,
            "replayed": self.replayed,
        })
    }

    /// Starts the thread that writes, with the streams of all shards in the order of the log.
    pub fn start(
        self: &Arc<Wal>,
        shared: &Arc<Shared>,
        writer: LogWriter,
        ends: Vec<(usize, Feed)>,
    ) -> Result<()> {
        let (handles, feeds): (Vec<usize>, _) = ends.into_iter().unzip();
        let namespaces = shared.namespaces.iter().enumerate();
        let all: Vec<(usize, usize)> = namespaces
            .flat_map(|(index, of)| (0..of.shards.len()).map(move |shard| (index, shard)))
            .collect();
        let shards = handles.iter().map(|handle| all[*handle]).collect();
        let (wal, shared) = (self.clone(), shared.clone());
        let run = move || {
            LogThread {
                wal,
                shared,
                writer,
                handles,
                shards,
                feeds,
                batch: Batch::default(),
                unsynced: None,
                looked: None,
            }
            .run();
        };
        let thread = std::thread::Builder::new().name("kelix-log".into()).spawn(run);
        let thread =
            thread.map_err(|source| Error::system("serve", "cannot start the thread of the log", source))?;
        let _ = self.shards_log.waker.0.set(thread.thread().clone());
        *self.thread.lock().expect("no panic under this lock") = Some(thread);
        Ok(())
    }

    /// Waits until records up to these, of shards of the namespaces that are served, are on the disk, unless
    /// the log takes nothing now.
    pub fn sync_up_to(&self, shared: &Shared, records: &[(Which, u64)]) -> Result<()> {
        let durable = |(which, wanted): &(Which, u64)| {
            let name = &shared.namespaces[usize::from(which.namespace)].name;
            let index = self.layout.index(name, usize::from(which.shard)).expect("a shard of the log");
            self.shards[index].durable() >= *wanted
        };
        // A base that is ahead of its log is good, too: all the better where the log goes no further.
        let takes = || self.state() == LogState::Writes && !self.is_of_the_past;
        self.wait_for_log("snapshot", || !takes() || records.iter().all(durable))
    }

    /// Has the thread write and sync what there is until that is done.
    fn wait_for_log(&self, operation: &'static str, is_done: impl Fn() -> bool) -> Result<()> {
        let began = Instant::now();
        while !is_done() {
            self.is_wanted.store(true, Ordering::SeqCst);
            self.shards_log.waker.wake();
            if began.elapsed() > PATIENCE {
                let context = "what is in it is not on the disk of the log";
                return Err(Error::new(ErrorKind::Unavailable, operation, context));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// What tells how much of a namespace's shards is on the disk, where what is not does not count; else
    /// nothing.
    pub fn committed_by(&self, namespace: &Namespace) -> Vec<ShardLog> {
        if self.shards_log.durability != Durability::Commit || self.is_of_the_past {
            return Vec::new();
        }
        let index = |shard| self.layout.index(&namespace.name, shard).expect("a shard of the log");
        (0..namespace.shards.len()).map(|shard| self.shards[index(shard)].clone()).collect()
    }

    /// How much of the shards of all namespaces is on the disk.
    pub fn committed(&self, namespaces: &[Arc<Namespace>]) -> Vec<Vec<Committed>> {
        let index = |of: &Namespace, shard| self.layout.index(&of.name, shard).expect("a shard of the log");
        let committed = |of: &Arc<Namespace>| {
            (0..of.shards.len()).map(|shard| self.shards[index(of, shard)].committed()).collect()
        };
        namespaces.iter().map(committed).collect()
    }

    /// A base of so many bytes was taken. Files go that none of those needs which are kept, of which this is
    /// the oldest.
    pub fn truncate(&self, base_bytes: u64, oldest: &Snapshot) {
        *self.base.lock().expect("no panic under this lock") =
            (self.written.load(Ordering::SeqCst), base_bytes);
        let Some(sequences) = self.layout.sequences(oldest) else { return };
        *self.removable.lock().expect("no panic under this lock") = Some(sequences);
        self.shards_log.waker.wake();
    }

    /// Whether so much was logged that replaying it would take longer than a base does.
    pub fn wants_base(&self) -> bool {
        let (at, bytes) = *self.base.lock().expect("no panic under this lock");
        self.written.load(Ordering::SeqCst) - at > bytes.max(BASE_BYTES_MIN)
    }

    /// Ends the thread, when all shards have: what they said last is written.
    pub fn end(&self) {
        self.ends.store(true, Ordering::SeqCst);
        self.shards_log.waker.wake();
        if let Some(thread) = self.thread.lock().expect("no panic under this lock").take() {
            let _ = thread.join();
        }
    }

    /// Where it ended, for whoever goes on with it. An error: it did not end in good order, or lacks some of
    /// these records, the last one of each of its shards.
    pub fn ended_behind(&self, sequences: &[u64]) -> Result<Position> {
        let ended = self.ended.lock().expect("no panic under this lock").take();
        ended.filter(|position| position.sequences == sequences).ok_or_else(|| {
            let why = self.standing().error.clone().unwrap_or_else(|| "some of it is not written".into());
            let context = format!("the log in {} does not have all: {why}", self.directory.display());
            Error::new(ErrorKind::Unavailable, "serve", context)
        })
    }

    /// Its shards.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether the disk takes what is written.
    pub fn state(&self) -> LogState {
        *self.state.lock().expect("no panic under this lock")
    }

    fn set_state(&self, shared: &Shared, state: LogState) {
        *self.state.lock().expect("no panic under this lock") = state;
        match &shared.replication {
            // A log that has failed still leaves what replicas have, and what counts is for them to say.
            Some(replication) => replication.replicas.set_disk_accepts(state == LogState::Writes),
            None => self.shards_log.control.set_state(state),
        }
    }
}

/// The thread that writes.
struct LogThread {
    wal: Arc<Wal>,
    shared: Arc<Shared>,
    writer: LogWriter,
    /// Streams in the order of the log, and which of the server's shards they are of.
    feeds: Vec<Feed>,
    handles: Vec<usize>,
    /// The same shards, each by its namespace and its number there.
    shards: Vec<(usize, usize)>,
    batch: Batch,
    /// Since when something is written that is not synced.
    unsynced: Option<Instant>,
    /// When room was looked for last on a full disk.
    looked: Option<Instant>,
}

impl LogThread {
    fn run(mut self) {
        let mut idle_since = Instant::now();
        loop {
            let ends = self.wal.ends.load(Ordering::SeqCst);
            match self.turn() {
                Ok(true) => idle_since = Instant::now(),
                Ok(false) if ends => return self.end(),
                Ok(false) => {}
                Err(error) => return self.fail(&error),
            }
            if !ends {
                self.rest(idle_since.elapsed() > IDLE);
            }
        }
    }

    /// Gathers, writes and syncs what there is. Whether there was something.
    fn turn(&mut self) -> Result<bool> {
        self.prepare()?;
        if self.batch.is_empty() {
            self.batch.begin();
            let (feeds, batch) = (&mut self.feeds, &mut self.batch);
            let has_gathered = self.wal.shards_log.control.gather(|later| {
                let mut feeds = (0..).zip(&mut *feeds);
                feeds.try_fold(true, |all, (shard, feed)| Ok(all & feed.gather(shard, later, batch)?))
            })?;
            if !has_gathered {
                feeds.iter_mut().try_for_each(Feed::drain)?;
            }
        }
        let has_written = !self.batch.is_empty() && self.write()?;
        let is_wanted = self.wal.is_wanted.swap(false, Ordering::SeqCst)
            || self.wal.shards_log.durability == Durability::Commit
            || self.feeds.iter().any(Feed::is_wanted)
            || self.unsynced.is_some_and(|since| since.elapsed() >= LAZY);
        if is_wanted {
            self.sync()?;
        }
        self.remove()?;
        Ok(has_written)
    }

    /// Writes the batch. `false`: there is no room for it at the moment.
    fn write(&mut self) -> Result<bool> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let bytes = self.batch.bytes();
        match self.writer.write(&self.batch, since.as_nanos() as u64) {
            Err(error) if self.writer.has_failed() => return Err(error),
            Err(error) => {
                self.note_full(&error);
                return Ok(false);
            }
            Ok(_) => self.batch.begin(),
        }
        self.wal.note_written(&self.writer);
        if self.looked.is_some() && !self.writer.needs_next() {
            self.note_room();
        }
        self.unsynced.get_or_insert_with(Instant::now);
        self.wal.written.fetch_add(bytes, Ordering::SeqCst);
        let mut standing = self.wal.standing();
        standing.batches += 1;
        standing.bytes += bytes;
        standing.records = self.feeds.iter().map(Feed::records).sum();
        (standing.file_bytes, standing.files) = (self.writer.bytes(), self.writer.files().len());
        Ok(true)
    }

    /// Syncs what was written, and tells the shards.
    fn sync(&mut self) -> Result<()> {
        if self.unsynced.take().is_none() {
            return Ok(());
        }
        let began = Instant::now();
        self.writer.sync()?;
        {
            let mut standing = self.wal.standing();
            standing.syncs += 1;
            standing.sync_time += began.elapsed();
        }
        let feeds = self.feeds.iter_mut().zip(&self.handles);
        for ((feed, handle), sequence) in feeds.zip(self.writer.sequences()) {
            let before = feed.log().durable();
            feed.set_durable(*sequence);
            // SYNC: between what is durable and what is wanted: a shard says what it wants before it
            // announces its sleep, and looks at what is durable behind that. One of both sees the other.
            full_fence();
            if feed.log().wanted() > before {
                self.shared.shard(*handle).wake_if_asleep();
            }
        }
        self.tell_replication();
        Ok(())
    }

    /// Tells the replicas' side what is on this disk, where that counts.
    fn tell_replication(&self) {
        let Some(replication) = &self.shared.replication else { return };
        if !self.wal.shards_log.counts_on_disk() {
            return;
        }
        let durable = self.feeds.iter().zip(&self.shards);
        let durable = durable.map(|(feed, shard)| (*shard, feed.log().committed()));
        replication.replicas.note_disk(&*self.shared, durable);
    }

    /// Allocates the next file when that is due. While there is no room on the disk, no writes are taken.
    fn prepare(&mut self) -> Result<()> {
        let is_due = self.looked.is_none_or(|looked| looked.elapsed() >= FULL);
        if !self.writer.needs_next() || !is_due {
            return Ok(());
        }
        match self.writer.prepare_next() {
            Err(error) if self.writer.has_failed() => return Err(error),
            Err(error) => self.note_full(&error),
            Ok(()) => self.note_room(),
        }
        Ok(())
    }

    fn note_room(&mut self) {
        if self.looked.take().is_some() {
            info!("there is room for the log again: writes are taken");
            self.wal.standing().error = None;
            self.wal.set_state(&self.shared, LogState::Writes);
        }
    }

    fn note_full(&mut self, error: &Error) {
        if self.looked.replace(Instant::now()).is_none() {
            warn!(%error, "there is no room for the log: no writes are taken until there is, and reads go on");
        }
        self.wal.standing().error = Some(error.to_string());
        self.wal.set_state(&self.shared, LogState::Full);
    }

    /// Removes files that no base needs.
    fn remove(&mut self) -> Result<()> {
        let removable = self.wal.removable.lock().expect("no panic under this lock").take();
        let Some(sequences) = removable else { return Ok(()) };
        match self.writer.truncate(&sequences) {
            Err(error) if self.writer.has_failed() => return Err(error),
            Err(error) => warn!(%error, "older files of the log are kept"),
            Ok(_) => {}
        }
        let mut standing = self.wal.standing();
        (standing.file_bytes, standing.files) = (self.writer.bytes(), self.writer.files().len());
        Ok(())
    }

    /// Waits for more. Somebody who waits for the disk ends that at once.
    fn rest(&self, is_idle: bool) {
        let control = &self.wal.shards_log.control;
        let (sleep, time) = match (is_idle, self.unsynced) {
            (true, None) if self.looked.is_none() => (LogSleep::Sleeps, SLEEP),
            _ => (LogSleep::Naps, NAP),
        };
        let ShardsLog { of_replicas, .. } = self.wal.shards_log;
        let counts = self.wal.shards_log.counts_on_disk();
        match sleep {
            // Answers wait for replicas, and not for this disk: nobody is to end the nap.
            LogSleep::Naps if of_replicas && !counts => {}
            _ => control.announce(sleep),
        }
        let is_told = self.wal.is_wanted.load(Ordering::SeqCst) || self.wal.ends.load(Ordering::SeqCst);
        let has_come = || self.feeds.iter().any(Feed::has_come);
        let is_wanted = match sleep {
            LogSleep::Sleeps => has_come(),
            _ if of_replicas => counts && has_come(),
            _ => self.feeds.iter().any(Feed::is_wanted) && (has_come() || self.unsynced.is_some()),
        };
        if !is_told && !is_wanted {
            std::thread::park_timeout(time);
        }
        control.announce(LogSleep::Awake);
    }

    /// Ends the log with what was written.
    fn end(mut self) {
        if !self.batch.is_empty() {
            error!("there is no room for what was written last, and no snapshot has it: it is lost");
        }
        let position = self.writer.position();
        match self.sync().and_then(|()| self.writer.end()) {
            Ok(()) => *self.wal.ended.lock().expect("no panic under this lock") = Some(position),
            Err(error) => error!(%error, "the log could not be ended in good order"),
        }
    }

    /// The log takes nothing any more: shards are told, and wait for it no more.
    fn fail(self, error: &Error) {
        error!(%error, "the log has failed: no writes are taken any more, and reads go on");
        self.wal.standing().error = Some(error.to_string());
        self.wal.set_state(&self.shared, LogState::Failed);
        full_fence();
        let (handles, shared) = (self.handles.clone(), self.shared.clone());
        // Who followed is gone before the shards look.
        drop(self);
        handles.into_iter().for_each(|handle| shared.shard(handle).wake());
    }
}
