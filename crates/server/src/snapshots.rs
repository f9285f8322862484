//! Snapshots: taken while the server serves, and what a server begins with.
//!
//! A thread of its own copies the memory of all shards into a file, follows their streams meanwhile, and
//! writes the changes behind the memory. When all is copied the shards are cut: each waits until all have
//! come to that moment, and tells which its last record was, and what it knows beside its memory. So what is
//! in the file is what there was of all shards at that moment, and nothing that a client did after it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use kelix_image::{Header, ImageConfig, MemoryMap, PrivateSegments, Span};
use kelix_log::{Lag, LetGo, Reader, Record};
use kelix_shard::{Shard, ShardConfig};
use kelix_snapshot::{Description, NamespaceDescription, Snapshot, Which, Writer};
use kelix_types::limits::{EPOCH_NS, SEGMENT_BYTES_FIRST, SEGMENT_BYTES_MAX, SHARDS_MAX, VIEW_LEASE_NS};
use kelix_types::{Error, ErrorKind, Incarnation, Place, Result};
use kelix_wire::View;
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::moment::Moment;
use crate::namespace::DEFAULT;
use crate::server::Shared;
use crate::shard_thread::Command;
use crate::store::StoreDirectory;

/// Words that are copied at once.
const PIECE_WORDS: usize = 128 << 10;
/// Words of notes that are written between two pieces, and more only once all is copied. Where the store
/// changes as fast as notes are written there would never be time for a piece.
const NOTES_A_PIECE: usize = 2 * PIECE_WORDS;
/// How long is waited for words of a shard before all are looked at again.
const ROUND: Duration = Duration::from_millis(1);
/// How much has to be written, at least, while others have the processor first: words in such a time. Below
/// that they leave nothing of it.
pub(crate) const ASIDE_WORDS: usize = 1 << 20;
pub(crate) const ASIDE: Duration = Duration::from_secs(2);
/// The least priority that a thread can have.
pub(crate) const LEAST_PRIORITY: i32 = 19;
/// How long a shard may take to do what it is told.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Where snapshots go, and when they are taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotConfig {
    /// The directory.
    pub directory: PathBuf,
    /// How often one is taken; never by itself, if there is none.
    pub every: Option<Duration>,
    /// How many are kept.
    pub keep: usize,
    /// Begin empty, also where there are snapshots.
    pub fresh: bool,
}

/// Stretches of memory that hold something: place and bytes.
type Stretches = Vec<(Place, u64)>;

/// What a shard tells whoever takes a snapshot.
pub(crate) enum Told {
    /// All changes behind this record can be read. These stretches hold something.
    Began { which: Which, sequence: u64, stretches: Stretches, map: MemoryMap, reader: Reader },
    /// This record was the last one, and this is what it knows beside its memory.
    Ended { which: Which, sequence: u64, books: Vec<u64>, kept: Vec<u64>, position: Vec<u64> },
}

/// What a shard is told when a snapshot begins.
pub(crate) struct Follow {
    /// Which shard it is.
    pub which: Which,
    /// Whom to tell.
    pub tell: Sender<Told>,
    /// What is to happen when the stream is full.
    pub lag: Lag,
}

/// What is known of the last snapshot.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Where it is.
    pub path: PathBuf,
    /// When it was begun.
    pub made: SystemTime,
    /// Its length.
    pub bytes: u64,
    /// How long it took.
    pub time: Duration,
}

/// How it goes with snapshots.
#[derive(Default)]
struct Standing {
    /// When the newest that is whole was made, and its length: what the server has taken, or began with.
    newest: Option<(SystemTime, u64)>,
    /// How long the last one took.
    time: Option<Duration>,
    taken: u64,
    failed: u64,
}

/// Somebody who wants a snapshot, and waits for it.
pub(crate) type Asker = Sender<Result<Taken>>;

/// What the thread is asked for: the last one or one between, and whom to tell.
pub(crate) type Asked = Receiver<(bool, Asker)>;

/// The thread that takes snapshots, as others see it.
pub(crate) struct Snapshots {
    config: SnapshotConfig,
    asked: Mutex<Sender<(bool, Asker)>>,
    /// The last one is to be taken: one that is being taken has to end.
    ends: AtomicBool,
    standing: Mutex<Standing>,
}

impl Snapshots {
    /// What the thread is asked by, which has to run. The server began with a snapshot that was made then, of
    /// so many bytes.
    pub fn new(config: &SnapshotConfig, newest: Option<(SystemTime, u64)>) -> (Snapshots, Asked) {
        let (asked, received) = channel();
        let standing = Mutex::new(Standing { newest, ..Standing::default() });
        let ends = AtomicBool::new(false);
        (Snapshots { config: config.clone(), asked: Mutex::new(asked), ends, standing }, received)
    }

    /// How it goes with them, for statistics.
    pub fn json(&self) -> Value {
        let standing = self.standing.lock().expect("no panic under this lock");
        json!({
            "every_seconds": self.config.every.map(|every| every.as_secs_f64()),
            "keep": self.config.keep,
            "age_seconds": standing.newest.map(|(made, _)| made.elapsed().unwrap_or_default().as_secs_f64()),
            "bytes": standing.newest.map(|(_, bytes)| bytes),
            "seconds": standing.time.map(|time| time.as_secs_f64()),
            "taken": standing.taken,
            "failed": standing.failed,
        })
    }

    fn note(&self, taken: &Result<Taken>) {
        let mut standing = self.standing.lock().expect("no panic under this lock");
        match taken {
            Ok(Taken { path, made, bytes, time }) => {
                info!(path = %path.display(), bytes, seconds = time.as_secs_f64(), "snapshot taken");
                (standing.newest, standing.time) = (Some((*made, *bytes)), Some(*time));
                standing.taken += 1;
            }
            Err(error) => {
                warn!(%error, "no snapshot was taken; one from before, if there is any, is kept");
                standing.failed += 1;
            }
        }
    }

    /// Whether there is one that is whole.
    pub fn has_any(&self) -> bool {
        self.standing.lock().expect("no panic under this lock").newest.is_some()
    }

    /// When the newest one was made, and how long it is.
    pub fn newest(&self) -> Option<(SystemTime, u64)> {
        self.standing.lock().expect("no panic under this lock").newest
    }

    /// Asks for one, and tells where the answer comes. `is_last`: shards end with it.
    pub fn ask(&self, is_last: bool) -> Result<Receiver<Result<Taken>>> {
        let (asker, answer) = channel();
        self.ends.fetch_or(is_last, Ordering::SeqCst);
        let asked = self.asked.lock().expect("no panic under this lock").send((is_last, asker));
        asked.map(|()| answer).map_err(|_| server_ends())
    }

    /// Takes one now.
    pub fn take(&self, is_last: bool) -> Result<Taken> {
        self.ask(is_last)?.recv().map_err(|_| server_ends())?
    }

    /// What the thread does: takes snapshots when it is asked to, and when it is time.
    pub fn run(&self, shared: &Shared, asked: &Asked, stop: &AtomicBool) {
        let mut due = self.config.every.map(|every| Instant::now() + every);
        loop {
            let left = due.map_or(Duration::from_millis(500), |due| {
                due.saturating_duration_since(Instant::now()).min(Duration::from_millis(500))
            });
            let asker = match asked.recv_timeout(left) {
                Ok(asker) => Some(asker),
                Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => return,
                Err(RecvTimeoutError::Timeout)
                    if due.is_some_and(|due| due <= Instant::now())
                        || shared.wal.as_ref().is_some_and(|wal| wal.wants_base()) =>
                {
                    None
                }
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let is_last = asker.as_ref().is_some_and(|(is_last, _)| *is_last);
            let taken = match is_last {
                true => take(shared, &self.config, None, false),
                false => take_aside(shared, &self.config, &self.ends),
            };
            self.note(&taken);
            due = self.config.every.map(|every| Instant::now() + every);
            if let Some((_, asker)) = asker {
                let _ = asker.send(taken);
            }
            if is_last {
                return;
            }
        }
    }
}

fn server_ends() -> Error {
    Error::new(ErrorKind::Unavailable, "snapshot", "the server ends")
}

/// What there is to be described.
fn description(shared: &Shared, made: SystemTime) -> Description {
    let since = made.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let namespaces = shared.namespaces.iter().map(|namespace| NamespaceDescription {
        name: namespace.name.clone(),
        hash_seed: namespace.view.hash_seed,
        shards: namespace.shards.len(),
    });
    Description {
        store: shared.store.as_ref().map_or(0, |store| store.number),
        release: env!("CARGO_PKG_VERSION").into(),
        made_unix_ms: since.as_millis() as u64,
        namespaces: namespaces.collect(),
    }
}

/// Takes a snapshot on a processor that nobody else wants, where that is fast enough; who writes waits for
/// none then.
fn take_aside(shared: &Shared, config: &SnapshotConfig, ends: &AtomicBool) -> Result<Taken> {
    let aside = || {
        // Of this thread alone. If it may not, it is as busy as others.
        let _ = rustix::process::setpriority_process(None, LEAST_PRIORITY);
        take(shared, config, Some(ends), true)
    };
    let taken = std::thread::scope(|scope| {
        let name = std::thread::Builder::new().name("kelix-snapshot".into());
        name.spawn_scoped(scope, aside).map(|thread| thread.join().expect("it takes one or says why not"))
    });
    match taken {
        Ok(Err(error)) if error.kind() == ErrorKind::TimedOut => {
            warn!(%error, "once more, without regard to others");
            take(shared, config, Some(ends), false)
        }
        Ok(taken) => taken,
        Err(source) => Err(Error::system("snapshot", "cannot start a thread", source)),
    }
}

/// Takes a snapshot: the last one, or one that is given up when the server `ends`; and, where it is taken
/// aside, when others leave no time for it.
fn take(
    shared: &Shared,
    config: &SnapshotConfig,
    ends: Option<&AtomicBool>,
    is_aside: bool,
) -> Result<Taken> {
    let is_last = ends.is_none();
    let (began, made) = (Instant::now(), SystemTime::now());
    let writer = Writer::create(&config.directory, &description(shared, made))?;
    let (tell, told) = channel();
    // Where clients are faster than the file is written, one that is taken aside is given up, and others hold
    // them back.
    let lag = if is_aside { Lag::LetGo } else { Lag::Wait };
    let mut shards = 0;
    for (namespace, of) in shared.namespaces.iter().enumerate() {
        for (shard, handle) in of.shards.iter().enumerate() {
            let which = Which { namespace: namespace as u16, shard: shard as u16 };
            handle.command(Command::Follow(Follow { which, tell: tell.clone(), lag }));
            shards += 1;
        }
    }
    drop(tell);
    let mut taking = Taking {
        writer,
        told,
        ends,
        written: 0,
        pace: is_aside.then(|| (Instant::now(), 0)),
        cut: Cut::None,
        followed: Vec::new(),
        notes: Vec::new(),
    };
    let copied = taking.copy(shards);
    let moment = Moment::new(shards, is_last);
    if copied.is_err() {
        moment.give_up();
    }
    let moment = Arc::new(moment);
    taking.cut = if is_last { Cut::Ends } else { Cut::GoesOn };
    // Also where it has failed: nobody is to be followed any more, and who is to end ends.
    shared.shards().for_each(|shard| shard.command(Command::Cut(moment.clone())));
    copied?;
    taking.hear_until(|taking| taking.followed.iter().all(|shard| shard.is_written))?;
    // A server that was superseded while it wrote must not name one that its successor, or who comes after,
    // would begin with.
    let is_ours = || shared.authority.in_force() && shared.store.as_ref().is_none_or(|store| store.is_ours());
    if let Some(wal) = &shared.wal {
        let records: Vec<(Which, u64)> =
            taking.followed.iter().map(|shard| (shard.which, shard.sequence)).collect();
        wal.sync_up_to(shared, &records)?;
    }
    let (path, bytes) = taking.writer.finish_if(is_ours)?;
    if let Err(error) = kelix_snapshot::keep(&config.directory, config.keep) {
        warn!(%error, "older snapshots are kept");
    }
    if let Some(wal) = &shared.wal {
        match crate::wal::oldest_base(&config.directory) {
            Ok(oldest) => oldest.iter().for_each(|oldest| wal.truncate(bytes, oldest)),
            Err(error) => warn!(%error, "older files of the log are kept"),
        }
    }
    Ok(Taken { path, made, bytes, time: began.elapsed() })
}

/// Whether shards were told to come to the moment of the snapshot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    None,
    /// They have been, and go on behind it.
    GoesOn,
    /// They have been, and execute nothing behind it.
    Ends,
}

/// What a shard knows beside its memory when its last record was this one.
struct End {
    sequence: u64,
    books: Vec<u64>,
    kept: Vec<u64>,
    position: Vec<u64>,
}

/// A shard whose stream is followed.
struct Followed {
    which: Which,
    map: MemoryMap,
    stretches: Stretches,
    reader: Reader,
    /// What was read and not looked at: records that are not whole yet, or that may be behind the cut.
    words: Vec<u64>,
    /// The last record whose notes were taken.
    sequence: u64,
    /// Which one is to be the last, and what the shard knows beside its memory.
    end: Option<End>,
    is_written: bool,
}

impl Followed {
    /// Takes the notes of records that can be read now, but not of many at once. Of a shard that goes on
    /// behind the cut they are looked at only once its last one is known. `false`: there was nothing to be
    /// read.
    fn read(&mut self, cut: Cut, notes: &mut Vec<u64>) -> Result<bool> {
        let read = self.reader.read(&mut self.words, PIECE_WORDS).map_err(|LetGo| {
            Error::new(ErrorKind::TimedOut, "snapshot", "the store changes faster than that can be written")
        })?;
        let last = match (cut, &self.end) {
            (_, Some(end)) => end.sequence,
            (Cut::GoesOn, None) => return Ok(read > 0),
            (Cut::None | Cut::Ends, None) => u64::MAX,
        };
        let mut rest = &self.words[..];
        while let Some((record, behind)) = Record::split(rest)?.filter(|_| self.sequence < last) {
            notes.extend_from_slice(record.notes);
            (self.sequence, rest) = (record.head.sequence, behind);
        }
        let left = rest.len();
        self.words.drain(..self.words.len() - left);
        Ok(read > 0)
    }
}

/// A snapshot that is being taken.
struct Taking<'a> {
    writer: Writer,
    told: Receiver<Told>,
    ends: Option<&'a AtomicBool>,
    /// Words of memory and notes so far; and of one that is taken aside a moment not long ago, and how many
    /// they were then.
    written: usize,
    pace: Option<(Instant, usize)>,
    cut: Cut,
    /// The shards that have begun.
    followed: Vec<Followed>,
    /// Memory for notes.
    notes: Vec<u64>,
}

impl Taking<'_> {
    /// Takes in what shards have told, and writes what has changed. `false`: there was nothing.
    fn hear(&mut self) -> Result<bool> {
        let wrong = |what: &str| Error::new(ErrorKind::Unavailable, "snapshot", what.to_string());
        if self.ends.is_some_and(|ends| ends.load(Ordering::SeqCst)) {
            return Err(wrong("the server ends, and takes its last one"));
        }
        if let Some((since, before)) = self.pace.filter(|(since, _)| since.elapsed() >= ASIDE) {
            let words = self.written - before;
            if words < ASIDE_WORDS {
                let context =
                    format!("others leave no processor for it: {words} words in {:?}", since.elapsed());
                return Err(Error::new(ErrorKind::TimedOut, "snapshot", context));
            }
            self.pace = Some((Instant::now(), self.written));
        }
        let mut heard = false;
        while let Ok(told) = self.told.try_recv() {
            heard = true;
            match told {
                Told::Began { which, sequence, stretches, map, reader } => self.followed.push(Followed {
                    which,
                    map,
                    stretches,
                    reader,
                    words: Vec::new(),
                    sequence,
                    end: None,
                    is_written: false,
                }),
                Told::Ended { which, sequence, books, kept, position } => {
                    let shard = self.followed.iter_mut().find(|shard| shard.which == which);
                    let shard = shard.ok_or_else(|| wrong("a shard ended that had not begun"))?;
                    shard.end = Some(End { sequence, books, kept, position });
                }
            }
        }
        let Taking { writer, written, followed, notes, cut, .. } = self;
        for shard in followed.iter_mut().filter(|shard| !shard.is_written) {
            heard |= shard.read(*cut, notes)?;
            if !notes.is_empty() {
                writer.notes(shard.which, notes)?;
                *written += notes.len();
                notes.clear();
            }
            let sequence = shard.sequence;
            if let Some(end) = shard.end.take_if(|end| end.sequence == sequence) {
                writer.end_shard(shard.which, &end.books, &end.kept, &end.position)?;
                shard.is_written = true;
            }
        }
        Ok(heard)
    }

    /// Does so until something holds. An error: for too long nothing came.
    fn hear_until(&mut self, holds: impl Fn(&Taking<'_>) -> bool) -> Result<()> {
        let mut since = Instant::now();
        while !holds(self) {
            if self.hear()? {
                since = Instant::now();
            } else if since.elapsed() > PATIENCE {
                return Err(Error::new(ErrorKind::Unavailable, "snapshot", "a shard does not answer"));
            } else {
                std::thread::sleep(ROUND);
            }
        }
        Ok(())
    }

    /// Copies all memory, a piece at a time.
    fn copy(&mut self, shards: usize) -> Result<()> {
        self.hear_until(|taking| taking.followed.len() == shards)?;
        let mut words = vec![0; PIECE_WORDS];
        for index in 0..shards {
            let shard = &mut self.followed[index];
            let (which, map) = (shard.which, std::mem::take(&mut shard.map));
            for (place, bytes) in std::mem::take(&mut shard.stretches) {
                for at in (0..bytes).step_by(PIECE_WORDS * 8) {
                    let most = self.written + NOTES_A_PIECE;
                    while self.written < most && self.hear()? {}
                    let count = ((bytes - at) as usize / 8).min(PIECE_WORDS);
                    let place = place.plus(at);
                    let memory = map.words(place, count).ok_or_else(|| {
                        Error::new(ErrorKind::Protocol, "snapshot", "a shard told of memory that it has not")
                    })?;
                    memory.copy_out(0, &mut words[..count]);
                    self.writer.memory(which, place, &words[..count])?;
                    self.written += count;
                }
            }
        }
        Ok(())
    }
}

/// The newest snapshot in a directory, whatever is in it.
pub(crate) fn newest(config: &SnapshotConfig) -> Result<Option<PathBuf>> {
    Ok(kelix_snapshot::list(&config.directory)?.into_iter().next())
}

/// The snapshots that a server may begin with, the newest first: of just these namespaces (name and shards of
/// each), and not obviously damaged. An error if there are some, and none is of use.
pub(crate) fn readable(
    config: &SnapshotConfig,
    store: &StoreDirectory,
    namespaces: &[(&str, usize)],
    verify: bool,
) -> Result<Vec<Snapshot>> {
    let mut readable = Vec::new();
    if config.fresh {
        return Ok(readable);
    }
    let paths = kelix_snapshot::list(&config.directory)?;
    for path in &paths {
        let opened = Snapshot::open(path)
            .and_then(|snapshot| if verify { snapshot.verify().map(|()| snapshot) } else { Ok(snapshot) })
            .and_then(|snapshot| {
                let held = &snapshot.description().namespaces;
                let holder = snapshot.path().display().to_string();
                check_served(held, namespaces, (&holder, &config.directory)).map(|()| snapshot)
            })
            .and_then(|snapshot| store.check(&snapshot).map(|()| snapshot));
        match opened {
            Ok(snapshot) => readable.push(snapshot),
            Err(error) if error.kind() == ErrorKind::Damaged => {
                warn!(%error, "this snapshot is not used, but the one before it");
            }
            // Of another version or other namespaces: the newest by mistake, one before it because that was
            // changed. What is older still is not to be taken in its place either.
            Err(error)
                if matches!(error.kind(), ErrorKind::Incompatible | ErrorKind::InvalidArgument)
                    && !readable.is_empty() =>
            {
                break;
            }
            // What cannot be read now is not to be passed over for what is older.
            Err(error) => return Err(error),
        }
    }
    if readable.is_empty() && !paths.is_empty() {
        Err(none_is_whole(&config.directory))
    } else {
        Ok(readable)
    }
}

fn none_is_whole(directory: &Path) -> Error {
    let context = format!(
        "none of the snapshots in {} can be read; to begin empty beside them, give --fresh",
        directory.display()
    );
    Error::new(ErrorKind::Damaged, "serve", context)
}

/// Reads a snapshot as a server that begins with it would, and so finds out whether it is whole and what it
/// says makes sense. Takes the memory of one shard after the other.
pub fn verify_snapshot(path: &Path) -> Result<Snapshot> {
    let snapshot = Snapshot::open(path)?;
    snapshot.verify()?;
    let damaged = |what: &str| {
        Error::new(ErrorKind::Damaged, "verify snapshot", format!("{} is damaged: {what}", path.display()))
    };
    for (namespace, of) in (0..).zip(&snapshot.description().namespaces) {
        let shards = of.shards;
        if !(1..=SHARDS_MAX).contains(&shards) {
            return Err(damaged(&format!("a namespace of {shards} shards")));
        }
        for number in 0..shards {
            let which = Which { namespace, shard: number as u16 };
            let (books, kept) = snapshot.beside(which)?;
            let bytes: u64 = books.segments.iter().map(|segment| segment.bytes).sum();
            let image = ImageConfig {
                image_id: 0,
                hash_seed: of.hash_seed,
                term: 1,
                incarnation: Incarnation::first_of_term(1),
                epoch_ns: EPOCH_NS,
                epoch_ns_usual: EPOCH_NS,
                // Models are made anew, and find room whatever became of it.
                memory_bytes: bytes + SEGMENT_BYTES_MAX,
                segment_bytes_first: SEGMENT_BYTES_FIRST,
                segment_bytes_max: SEGMENT_BYTES_MAX,
                keeps_journal: false,
            };
            let view = View::of_shards(1, of.hash_seed, shards);
            let config = ShardConfig { number, view, image, view_lease_ns: VIEW_LEASE_NS, is_cache: false };
            let (header, segments) = (Span::private(Header::BYTES), Box::new(PrivateSegments::default()));
            let fill = |map: &MemoryMap| snapshot.fill(which, map);
            Shard::restore(config, header, segments, (&books, &kept), fill).map_err(|error| {
                if error.kind() == ErrorKind::Damaged { damaged(error.context()) } else { error }
            })?;
        }
    }
    Ok(snapshot)
}

/// Why nothing can be begun with a snapshot.
pub(crate) enum BeginError {
    /// The snapshot is damaged, and the one before may not be.
    Snapshot(Error),
    /// No other one helps.
    Final(Error),
}

impl From<Error> for BeginError {
    fn from(error: Error) -> BeginError {
        match error.kind() {
            ErrorKind::Damaged => BeginError::Snapshot(error),
            _ => BeginError::Final(error),
        }
    }
}

/// Begins with the first of these snapshots that is whole, which shows when it is read; empty, if there are
/// none. Also tells when that one was made, and its length.
pub(crate) fn begin_with<T>(
    kept: Vec<Snapshot>,
    begin: impl Fn(Option<&Snapshot>) -> std::result::Result<T, BeginError>,
) -> Result<(T, Option<(SystemTime, u64)>)> {
    let Some(newest) = kept.first() else {
        return match begin(None) {
            Ok(begun) => Ok((begun, None)),
            Err(BeginError::Snapshot(error) | BeginError::Final(error)) => Err(error),
        };
    };
    let directory = newest.path().parent().unwrap_or(Path::new(".")).to_path_buf();
    for snapshot in kept {
        match begin(Some(&snapshot)) {
            Err(BeginError::Snapshot(error)) => {
                warn!(%error, "this snapshot is not used, but the one before it");
            }
            Err(BeginError::Final(error)) => return Err(error),
            Ok(begun) => return Ok((begun, Some((snapshot.description().made(), snapshot.bytes())))),
        }
    }
    Err(none_is_whole(&directory))
}

/// An error if namespaces that something in a directory holds are not among those that are served (name and
/// shards of each).
pub(crate) fn check_served(
    held: &[NamespaceDescription],
    served: &[(&str, usize)],
    (holder, directory): (&str, &Path),
) -> Result<()> {
    for of in held {
        let context = match served.iter().find(|(name, _)| *name == of.name) {
            Some((_, shards)) if *shards == of.shards => continue,
            Some((_, shards)) => {
                let option =
                    if of.name == DEFAULT { String::new() } else { format!("--namespace {} ", of.name) };
                format!(
                    "namespace \"{}\" has {} shards in {holder}: serve it with as many, or change that by \
                     kelix {option}wal reshard {} --shards {shards}",
                    of.name,
                    of.shards,
                    directory.display()
                )
            }
            None => format!("{holder} has a namespace \"{}\", which is not served", of.name),
        };
        return Err(Error::new(ErrorKind::InvalidArgument, "serve", context));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use kelix_log::{RecordHead, Stream};

    use super::*;

    const WHICH: Which = Which { namespace: 0, shard: 0 };
    const PIECES: u64 = 8;

    /// A snapshot into a folder of its own, of one shard with some pieces of memory, and where the shard
    /// tells of it.
    fn taking<'a>(name: &str, ends: Option<&'a AtomicBool>) -> (Taking<'a>, (Stream, Sender<Told>), PathBuf) {
        let folder = std::env::temp_dir().join(format!("kelix-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let description =
            Description { store: 1, release: String::new(), made_unix_ms: 0, namespaces: Vec::new() };
        let writer = Writer::create(&folder, &description).unwrap();
        let bytes = PIECES * 8 * PIECE_WORDS as u64;
        let mut map = MemoryMap::default();
        map.add(0, Span::private(bytes));
        let (tell, told) = channel();
        let mut stream = Stream::new(16 * NOTES_A_PIECE);
        let reader = stream.follow(Lag::Wait, 0);
        let stretches = vec![(Place(0), bytes)];
        tell.send(Told::Began { which: WHICH, sequence: 0, stretches, map, reader }).unwrap();
        let (cut, followed, notes) = (Cut::None, Vec::new(), Vec::new());
        let taking = Taking { writer, told, ends, written: 0, pace: None, cut, followed, notes };
        (taking, (stream, tell), folder)
    }

    /// Notes were written for as long as there were any before the next piece of memory was copied: a server
    /// that was to end did not, while clients wrote.
    #[test]
    fn memory_is_copied_however_fast_it_changes() {
        let (mut taking, (mut stream, _tell), folder) = taking("flood", None);
        let flood = std::thread::spawn(move || {
            let mut unsent = Vec::new();
            for sequence in 1.. {
                if !stream.is_followed() {
                    break;
                }
                let head = RecordHead { sequence, last_incarnation: 0, batch: 0, words: 1 << 13 };
                unsent.extend(head.words());
                unsent.resize(unsent.len() + (1 << 13), 0);
                while !unsent.is_empty() && stream.is_followed() {
                    let pushed = stream.push(&unsent);
                    unsent.drain(..pushed);
                    std::thread::yield_now();
                }
            }
        });
        taking
            .hear_until(|taking| taking.followed.iter().any(|it| it.reader.waiting() > NOTES_A_PIECE))
            .unwrap();
        taking.copy(1).unwrap();
        drop(taking);
        flood.join().unwrap();
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// A shard goes on once it has told its last record: what it does then is in its stream before the file
    /// is written, and not in the file.
    #[test]
    fn nothing_behind_the_cut_is_in_a_snapshot() {
        let (mut taking, (mut stream, tell), folder) = taking("cut", None);
        let mut push = |sequence: u64| {
            let head = RecordHead { sequence, last_incarnation: 0, batch: 0, words: 2 }.words();
            stream.push(&[&head[..], &[1 << 41 | (4096 + sequence), sequence]].concat());
        };
        taking.copy(1).unwrap();
        push(1);
        assert!(taking.hear().unwrap());
        taking.cut = Cut::GoesOn;
        (2..5).for_each(&mut push);
        assert!(taking.hear().unwrap(), "read, and not looked at");
        assert_eq!(taking.followed[0].sequence, 1);
        push(5);
        let (books, kept, position) = (vec![1, 2], vec![3], vec![3]);
        tell.send(Told::Ended { which: WHICH, sequence: 3, books, kept, position }).unwrap();
        taking.hear_until(|taking| taking.followed.iter().all(|shard| shard.is_written)).unwrap();
        assert_eq!(taking.followed[0].sequence, 3);
        let (path, _) = taking.writer.finish().unwrap();
        let mut map = MemoryMap::default();
        map.add(0, Span::private(PIECES * 8 * PIECE_WORDS as u64));
        Snapshot::open(&path).unwrap().fill(WHICH, &map).unwrap();
        let words = map.words(Place(0), 5000).unwrap();
        assert_eq!([1, 2, 3, 4, 5].map(|sequence| words.load(4096 + sequence)), [1, 2, 3, 0, 0]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// On a host whose processors others want, the least priority is next to nothing: `kelix snapshot take`
    /// waited for minutes.
    #[test]
    fn a_snapshot_aside_is_given_up_where_others_leave_no_time_for_it() {
        let (mut taking, _stream, folder) = taking("aside", None);
        let before = Instant::now().checked_sub(ASIDE).unwrap();
        (taking.written, taking.pace) = (ASIDE_WORDS, Some((before, 0)));
        taking.copy(1).unwrap();
        (taking.written, taking.pace) = (ASIDE_WORDS - 1, Some((before, 0)));
        assert_eq!(taking.hear().unwrap_err().kind(), ErrorKind::TimedOut);
        drop(taking);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_snapshot_ends_with_the_server() {
        let ends = AtomicBool::new(false);
        let (mut taking, _stream, folder) = taking("ends", Some(&ends));
        ends.store(true, Ordering::SeqCst);
        assert_eq!(taking.copy(1).unwrap_err().kind(), ErrorKind::Unavailable);
        drop(taking);
        assert!(kelix_snapshot::list(&folder).unwrap().is_empty());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
