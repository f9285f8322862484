//! What a server begins with that has a log: the newest base, and the records behind it.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant, SystemTime};

use kelix_fabric::shm::MemfdSegments;
use kelix_log::Record;
use kelix_log::files::{End, Identity, Log, Position, Torn};
use kelix_shard::Follower;
use kelix_snapshot::{Description, NamespaceDescription, Snapshot, Which};
use kelix_types::{Error, ErrorKind, Result};
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::shard_thread::LoggedSegments;
use crate::snapshots::{BeginError, check_served};

/// Words that are given to a shard at once.
const PIECE_WORDS: usize = 128 << 10;
/// Pieces that may wait for a shard.
const PIECES: usize = 4;
/// Between two words of how far it is.
const PROGRESS: Duration = Duration::from_secs(5);

/// Which shards a log has, in its order: those of all its namespaces, one after another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Layout(pub Vec<NamespaceDescription>);

impl Layout {
    /// The layout of a log whose newest file says so. An error: it makes no sense.
    pub fn of_log(log: &Log) -> Result<Option<Layout>> {
        let Some(head) = log.files().last() else { return Ok(None) };
        let read = serde_json::from_str::<Description>(&head.identity.description);
        let description = read.map_err(|_| {
            Error::new(ErrorKind::Damaged, "read log", "what the log says of its namespaces makes no sense")
        })?;
        Ok(Some(Layout(description.namespaces)))
    }

    /// How many shards there are.
    pub fn shards(&self) -> usize {
        self.0.iter().map(|namespace| namespace.shards).sum()
    }

    /// Which shard of the log is the shard of a namespace with a name.
    pub fn index(&self, name: &str, shard: usize) -> Option<usize> {
        let mut first = 0;
        for namespace in &self.0 {
            if namespace.name == name {
                return (shard < namespace.shards).then_some(first + shard);
            }
            first += namespace.shards;
        }
        None
    }

    /// Which namespace has a name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|namespace| namespace.name == name)
    }

    /// The seed of a namespace's hashes.
    pub fn seed(&self, name: &str) -> Option<u64> {
        self.0.iter().find(|namespace| namespace.name == name).map(|namespace| namespace.hash_seed)
    }

    /// The last record of each shard in a base; 0 of those that it does not have. `None`: that cannot be
    /// told.
    pub fn sequences(&self, base: &Snapshot) -> Option<Vec<u64>> {
        let mut sequences = vec![0; self.shards()];
        for (namespace, of) in (0..).zip(&base.description().namespaces) {
            for shard in 0..of.shards {
                let position = base.position(Which { namespace, shard: shard as u16 }).ok()?;
                sequences[self.index(&of.name, shard)?] = position.first().copied().unwrap_or(0);
            }
        }
        Some(sequences)
    }

    /// All shards: namespace and shard.
    fn all(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0.iter().flat_map(|of| (0..of.shards).map(|shard| (&of.name[..], shard)))
    }

    /// An error if namespaces (name and shards of each) that are served are others. New ones are added.
    fn extend(
        &mut self,
        served: &[(&str, usize)],
        directory: &Path,
        seed: &dyn Fn(&str) -> Result<u64>,
    ) -> Result<()> {
        check_served(&self.0, served, ("the log", directory))?;
        for (name, shards) in served {
            if self.seed(name).is_none() {
                self.0.push(NamespaceDescription {
                    name: name.to_string(),
                    hash_seed: seed(name)?,
                    shards: *shards,
                });
            }
        }
        Ok(())
    }
}

/// A shard that was replayed, and the segments that its memory has.
pub(crate) type Shadow = (MemfdSegments, Box<Follower>);

/// What was replayed.
pub(crate) struct Replayed {
    /// Of each shard of the log.
    pub shards: Vec<Option<Shadow>>,
    pub layout: Layout,
    /// Where the log goes on.
    pub position: Position,
    /// What is told of it.
    pub report: Value,
}

impl Replayed {
    /// Nothing, of a log that begins at a position.
    pub fn nothing(layout: Layout, position: Position) -> Replayed {
        let shards = (0..layout.shards()).map(|_| None).collect();
        let report = report(None, Duration::ZERO, (0, 0), Duration::ZERO, None, &position);
        Replayed { shards, layout, position, report }
    }
}

/// What is told of what was replayed: so many batches and records.
fn report(
    base: Option<&Snapshot>,
    based: Duration,
    (batches, records): (u64, u64),
    took: Duration,
    torn: Option<&Torn>,
    position: &Position,
) -> Value {
    json!({
        "base": base.map(|base| base.path().display().to_string()),
        "base_seconds": based.as_secs_f64(),
        "batches": batches,
        "records": records,
        "seconds": took.as_secs_f64(),
        "torn_bytes": torn.map_or(0, |torn| torn.bytes),
        "last_batch": position.batch,
    })
}

/// What is to be replayed.
pub(crate) struct Replay<'a> {
    pub log: &'a Log,
    /// Where it is.
    pub directory: &'a Path,
    /// The number of the store, which the log has to be of.
    pub store: u64,
    /// Name and shards of each namespace that is served.
    pub served: &'a [(&'a str, usize)],
    pub until: Option<SystemTime>,
    /// The log is a mirror's: what clients were answered is of no use, and not told from the beginning.
    pub of_mirror: bool,
}

/// What there is in a store at this moment.
pub(crate) fn description(layout: &Layout, store: u64) -> Description {
    let made = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Description {
        store,
        release: env!("CARGO_PKG_VERSION").into(),
        made_unix_ms: made.as_millis() as u64,
        namespaces: layout.0.clone(),
    }
}

/// What the log's files say of their store.
pub(crate) fn identity(layout: &Layout, store: u64, life: u64) -> Identity {
    let description = serde_json::to_string(&description(layout, store)).expect("plain data");
    Identity { store, life, description }
}

impl Replay<'_> {
    /// Replays the log behind a base, or all of it; `seed` gives hash seeds to namespaces that are new. An
    /// error of the log is told apart, since no other base helps.
    pub fn run(
        &self,
        base: Option<&Snapshot>,
        seed: &dyn Fn(&str) -> Result<u64>,
    ) -> std::result::Result<Replayed, BeginError> {
        if let Some(head) = self.log.files().iter().find(|head| head.identity.store != self.store) {
            let context = format!(
                "the log is of another store ({:016x}) than its directory ({:016x}): move it to one of its own",
                head.identity.store, self.store
            );
            return Err(Error::new(ErrorKind::InvalidArgument, "serve", context).into());
        }
        let seed_of_base = |name: &str| match base.and_then(|base| base.description().namespace(name)) {
            Some((_, of)) => Ok(of.hash_seed),
            None => seed(name),
        };
        let mut layout = Layout::of_log(self.log)?.unwrap_or(Layout(Vec::new()));
        layout.extend(self.served, self.directory, &seed_of_base)?;
        let began = Instant::now();
        let begun: Result<Vec<Shadow>> = std::thread::scope(|scope| {
            let fill = layout.all().map(|(name, shard)| spawn(scope, move || begin(base, name, shard)));
            let fill: Vec<_> = fill.collect::<Result<_>>()?;
            fill.into_iter().map(|thread| thread.join().expect("a shard begins or says why not")).collect()
        });
        let mut shards = begun?;
        if self.of_mirror {
            shards.iter_mut().for_each(|(_, follower)| follower.forget_clients());
        }
        let behind: Vec<u64> = shards.iter().map(|(_, follower)| follower.applied()).collect();
        let based = began.elapsed();
        let end = self.apply(base, &mut shards, &behind).map_err(BeginError::Final)?;
        let sequences: Vec<u64> = shards.iter().map(|(_, follower)| follower.applied()).collect();
        // Of what was read, what is in the base was passed over.
        let records: u64 = sequences.iter().zip(&behind).map(|(applied, behind)| applied - behind).sum();
        let position = Position { sequences, ..end.last };
        if let Some(torn) = &end.torn {
            warn!(file = %torn.file, at = torn.at, bytes = torn.bytes, "the end of the log was not written to its end, and is left out");
        }
        let seconds = began.elapsed().as_secs_f64();
        if end.batches > 0 {
            info!(batches = end.batches, records, seconds, "log replayed");
        }
        let counts = (end.batches, records);
        let report = report(base, based, counts, began.elapsed(), end.torn.as_ref(), &position);
        // One of which there never was anything begins as a new one.
        let is_there = |(_, follower): &Shadow| follower.applied() > 0 || !follower.kept().is_empty();
        let shards = shards.into_iter().map(|shadow| Some(shadow).filter(is_there)).collect();
        Ok(Replayed { shards, layout, position, report })
    }

    /// Applies all records behind these sequences.
    fn apply(&self, base: Option<&Snapshot>, shards: &mut [Shadow], behind: &[u64]) -> Result<End> {
        let from = self.log.first_behind(behind).or(self.log.files().is_empty().then_some(0));
        let from = from.ok_or_else(|| {
            let context = match base {
                Some(base) => format!("the log does not reach back to {}", base.path().display()),
                None if self.until.is_some() => {
                    let context = "what there was at that moment is not kept any more: all snapshots are of later ones";
                    return Error::new(ErrorKind::InvalidArgument, "serve", context);
                }
                None => "the log does not begin with its first record, and the base that it goes on behind is not there".into(),
            };
            Error::new(ErrorKind::Damaged, "serve", context)
        })?;
        let until_ns = self
            .until
            .map(|until| until.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64);
        let first = Which { namespace: 0, shard: 0 };
        let unplaced = base.filter(|base| base.position(first).is_ok_and(|position| position.is_empty()));
        std::thread::scope(|scope| {
            let (mut senders, mut threads) = (Vec::new(), Vec::new());
            for ((_, follower), behind) in shards.iter_mut().zip(behind) {
                let (sender, pieces) = sync_channel(PIECES);
                let (applied, spare) = channel();
                senders.push(Feeder { sender, spare, words: Vec::new() });
                threads.push(spawn(scope, move || apply_pieces(follower, *behind, &pieces, &applied))?);
            }
            let mut told = Instant::now();
            let read = self.log.read(from, |batch| {
                if until_ns.is_some_and(|until| batch.time_ns > until) {
                    return Ok(ControlFlow::Break(()));
                }
                // A release that writes no positions took the base, maybe beside a log of this one.
                if let Some(base) = unplaced.filter(|base| batch.time_ns < base.description().made_unix_ms * 1_000_000) {
                    let context = format!(
                        "{} was taken by a release that writes no log, and is newer than the log: take the log or the snapshot away",
                        base.path().display()
                    );
                    return Err(Error::new(ErrorKind::InvalidArgument, "serve", context));
                }
                for (shard, records) in batch.parts() {
                    let Some(feeder) = senders.get_mut(shard as usize) else {
                        let context = format!("batch {} of the log has a shard {shard}, which there is not", batch.number);
                        return Err(Error::new(ErrorKind::Damaged, "read log", context));
                    };
                    if !feeder.push(records) {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                if told.elapsed() > PROGRESS {
                    told = Instant::now();
                    info!(batch = batch.number, "replaying the log");
                }
                Ok(ControlFlow::Continue(()))
            });
            senders.iter_mut().for_each(Feeder::flush);
            drop(senders);
            let applied: Result<()> = threads
                .into_iter()
                .try_for_each(|thread| thread.join().expect("it applies records or says why not"));
            let end = read?;
            applied?;
            Ok(end)
        })
    }
}

/// Starts a thread that ends before the replay does.
fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    let thread = std::thread::Builder::new().name("kelix-replay".into()).spawn_scoped(scope, work);
    thread.map_err(|source| Error::system("serve", "cannot start a thread", source))
}

/// A shard as it was in a base, or without anything.
fn begin(base: Option<&Snapshot>, name: &str, shard: usize) -> Result<Shadow> {
    let segments = MemfdSegments::default();
    let source = Box::new(LoggedSegments::new(segments.clone(), shard));
    let Some((base, (namespace, _))) =
        base.and_then(|base| Some((base, base.description().namespace(name)?)))
    else {
        return Ok((segments, Box::new(Follower::new(source, u64::MAX / 2))));
    };
    let which = Which { namespace, shard: shard as u16 };
    let (books, kept) = base.beside(which)?;
    let mut position = base.position(which)?;
    if position.is_empty() {
        position.push(0);
    }
    let fill = |map: &kelix_image::MemoryMap| base.fill(which, map);
    let follower = Follower::of_snapshot(source, (&books, &kept, &position), fill)?;
    Ok((segments, Box::new(follower)))
}

/// Gives records to the thread of a shard, many at once.
struct Feeder {
    sender: SyncSender<Vec<u64>>,
    /// Memory of records that were applied: new memory takes the system longer than the words in it take
    /// anybody.
    spare: Receiver<Vec<u64>>,
    words: Vec<u64>,
}

impl Feeder {
    /// `false`: the thread has ended, and says why.
    fn push(&mut self, records: &[u64]) -> bool {
        self.words.extend_from_slice(records);
        self.words.len() < PIECE_WORDS || self.send()
    }

    fn send(&mut self) -> bool {
        let mut next = self.spare.try_recv().unwrap_or_default();
        next.clear();
        self.sender.send(std::mem::replace(&mut self.words, next)).is_ok()
    }

    fn flush(&mut self) {
        let _ = self.send();
    }
}

/// Applies records that are behind one, and gives their memory back.
fn apply_pieces(
    follower: &mut Follower,
    behind: u64,
    pieces: &Receiver<Vec<u64>>,
    applied: &Sender<Vec<u64>>,
) -> Result<()> {
    while let Ok(words) = pieces.recv() {
        let mut rest = &words[..];
        while let Some((record, next)) = Record::split(rest)? {
            if record.head.sequence > behind {
                follower.apply(&record)?;
            }
            rest = next;
        }
        // Who feeds may be done.
        let _ = applied.send(words);
    }
    Ok(())
}
