//! Giving a store another number of shards, where no server uses its directory.
//!
//! ```text
//! DIRECTORY --- read as by a start ---> old shards --- each key ---> new shards
//!                                                                       |
//!   DIRECTORY.reshard          a base of them, the head of a log, whose it is, all on the disk and read back
//!   DIRECTORY.before-reshard   the same, named
//!   DIRECTORY <-> DIRECTORY.before-reshard      exchanged, at once
//! ```
//!
//! 1. Until the exchange the directory is as it was, from it on it is the new one, and each is locked
//!    meanwhile: a server begins with one of both, however this ends ([`Work::exchange`]).
//! 2. What is exchanged was read back as a server reads it at its start, and has every key with all that it
//!    had before ([`Carrying::check`]).
//! 3. The last records of the new shards are not their first ones, so nobody takes the new log for one that
//!    goes back to the beginning of the store.

mod work;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kelix_image::{Header, ImageConfig, PrivateSegments, Span};
use kelix_log::files::{Directory, Log, LogWriter, Position};
use kelix_shard::{Carried, Shard, ShardConfig, SourceShard, TargetShard};
use kelix_snapshot::{NamespaceDescription, Snapshot, Which, Writer};
use kelix_types::limits::{EPOCH_NS, SEGMENT_BYTES_FIRST, SHARDS_MAX, VIEW_LEASE_NS, segment_bytes_max};
use kelix_types::{Error, ErrorKind, Incarnation, Result, TableId, key_hash};
use kelix_wire::View;

use super::replay::{Layout, Replay, Replayed, Shadow, description, identity};
use crate::memory::memory_of_host;
use crate::namespace::DEFAULT;
use crate::server::random_u64;
use crate::snapshots::{SnapshotConfig, begin_with, readable};
use crate::store::StoreDirectory;
use work::Work;

const OPERATION: &str = "wal reshard";
/// Words that are written at once.
const PIECE_WORDS: usize = 128 << 10;
/// Keys after which it is told how far it is.
const KEYS_A_STEP: u64 = 4096;
/// More memory than there is, so that only the system limits it.
const MEMORY_BYTES: u64 = u64::MAX / 2;

/// A store that is to have another number of shards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reshard {
    /// The directory.
    pub directory: PathBuf,
    /// The namespace whose shards they are; empty: the one that every server has.
    pub namespace: String,
    /// How many it is to have.
    pub shards: usize,
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReshardStep {
    /// What there was is in memory.
    Read,
    /// So many keys have come to their new shards.
    Carried(u64),
    /// The new directory is begun.
    Begun,
    /// Of the base so many bytes are written, of so many.
    Writing(u64, u64),
    /// The base is written.
    BaseWritten,
    /// All is written, and on the disk.
    Written,
    /// The new directory was read back, and has all that there was.
    Verified,
    /// The new directory has the name of the old one that is kept.
    Named,
    /// The directories are exchanged, which may not be on the disk yet.
    Exchanged,
}

/// What was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resharded {
    /// How many shards there were.
    pub shards_before: usize,
    /// Keys of all tables of all namespaces.
    pub keys: u64,
    /// Bytes of the new base.
    pub bytes: u64,
    /// Bytes at the end of the log that were not written to their end, and are left out.
    pub torn_bytes: u64,
    /// The directory as it was.
    pub before: PathBuf,
}

fn invalid(context: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, OPERATION, context)
}

/// Gives a namespace of a store another number of shards, and tells how far that is.
pub fn reshard_log(wanted: &Reshard, tell: &mut dyn FnMut(ReshardStep)) -> Result<Resharded> {
    let Reshard { directory, namespace, shards } = wanted;
    if !(1..=SHARDS_MAX).contains(shards) {
        return Err(invalid(format!("{shards} shards: choose 1 to {SHARDS_MAX}")));
    }
    let name = if namespace.is_empty() { DEFAULT } else { namespace };
    let work = Work::look(directory)?;
    let store = StoreDirectory::hold(&work.directory, 0)?;
    reshard_held(&store, work, (name, *shards), tell)
}

/// Reshards a directory that is locked until all is done, or given up and cleared.
fn reshard_held(
    store: &StoreDirectory,
    mut work: Work,
    (name, shards): (&str, usize),
    tell: &mut dyn FnMut(ReshardStep),
) -> Result<Resharded> {
    work.clear()?;
    let old = Stored::open(store)?;
    let directory = work.directory.display();
    let position = old.layout.position(name).ok_or_else(|| {
        let known: Vec<&str> = old.layout.0.iter().map(|of| &of.name[..]).collect();
        invalid(format!("{directory} has no namespace \"{name}\", but {}", known.join(", ")))
    })?;
    let shards_before = old.layout.0[position].shards;
    if shards_before == shards {
        return Err(invalid(format!("namespace \"{name}\" has {shards} shards in {directory} already")));
    }
    let mut layout = old.layout.clone();
    layout.0[position].shards = shards;
    work.check_before()?;

    let replayed = old.replay(store)?;
    let torn_bytes = replayed.report["torn_bytes"].as_u64().unwrap_or(0);
    let sequence = replayed.position.sequences.iter().max().copied().unwrap_or(0) + 1;
    // In the new directory there is nothing before it.
    let sequences = vec![sequence; layout.shards()];
    let last = Position { sequences, tail: None, ..replayed.position };
    check_memory(&replayed.shards)?;
    tell(ReshardStep::Read);
    let mut carrying = Carrying::new(&layout, store.term());
    let mut shadows = replayed.shards.into_iter();
    for of in &old.layout.0 {
        carrying.carry(of, shadows.by_ref().take(of.shards), tell)?;
    }
    let sums = carrying.sums.clone();
    let keys = sums.iter().map(|sum| sum.keys).sum();
    tell(ReshardStep::Carried(keys));

    work.check_room(carrying.bytes())?;
    work.begin()?;
    tell(ReshardStep::Begun);
    let bytes = carrying.write(&work.new, store.number, sequence, tell)?;
    tell(ReshardStep::BaseWritten);
    if old.has_log {
        let log = Log::open(Box::new(Directory(work.new.clone())))?;
        // A file without a batch, which the next server replaces.
        LogWriter::create(log, identity(&layout, store.number, random_u64()?), last, 0)?.end()?;
    }
    store.write_into(&work.new)?;
    work.settle()?;
    tell(ReshardStep::Written);
    drop(carrying);
    let new_store = StoreDirectory::hold(&work.new, 0)?;
    Carrying::check(&new_store, &layout, &sums)?;
    tell(ReshardStep::Verified);
    let before = work.exchange(tell)?;
    Ok(Resharded { shards_before, keys, bytes, torn_bytes, before })
}

// ---- what a directory has ----

/// A directory that was opened as a server does it that begins with it.
struct Stored {
    log: Log,
    layout: Layout,
    has_log: bool,
}

impl Stored {
    fn open(store: &StoreDirectory) -> Result<Stored> {
        let path = store.path();
        let log = Log::open(Box::new(Directory(path.to_path_buf())))?;
        let mut layout = Layout::of_log(&log)?.unwrap_or(Layout(Vec::new()));
        let newest = kelix_snapshot::list(path)?.into_iter().find_map(|path| Snapshot::open(&path).ok());
        let of_newest = newest.iter().flat_map(|newest| &newest.description().namespaces);
        for of in of_newest {
            if layout.seed(&of.name).is_none() {
                layout.0.push(of.clone());
            }
        }
        match layout.0.iter().find(|of| !(1..=SHARDS_MAX).contains(&of.shards)) {
            Some(of) => {
                let context =
                    format!("namespace \"{}\" of {} has {} shards", of.name, path.display(), of.shards);
                Err(Error::new(ErrorKind::Damaged, OPERATION, context))
            }
            None => Ok(Stored { has_log: !log.files().is_empty(), log, layout }),
        }
    }

    /// The newest base that is whole, and the records behind it.
    fn replay(&self, store: &StoreDirectory) -> Result<Replayed> {
        let served: Vec<(&str, usize)> = self.layout.0.iter().map(|of| (&of.name[..], of.shards)).collect();
        let directory = store.path();
        let config =
            SnapshotConfig { directory: directory.to_path_buf(), every: None, keep: 1, fresh: false };
        let kept = readable(&config, store, &served, false)?;
        let replay = Replay {
            log: &self.log,
            directory,
            store: store.number,
            served: &served,
            until: None,
            of_mirror: false,
        };
        Ok(begin_with(kept, |base| replay.run(base, &|_| random_u64()))?.0)
    }
}

/// The system would end this if the new shards had no room beside the old ones.
fn check_memory(shards: &[Option<Shadow>]) -> Result<()> {
    let followers = shards.iter().flatten();
    let needed: u64 = followers.map(|(_, follower)| follower.memory_bytes()).sum();
    match memory_of_host("MemAvailable") {
        Some(bytes) if bytes < needed => {
            let context = format!(
                "the new shards take {needed} bytes of memory beside those that there are, and {} kB are \
                 to be had",
                bytes / 1024
            );
            Err(Error::new(ErrorKind::OutOfMemory, OPERATION, context))
        }
        _ => Ok(()),
    }
}

// ---- carrying ----

/// How many keys a namespace has, and the sum of their digests and of those of the catalogue.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Sum {
    keys: u64,
    digests: u64,
}

impl Sum {
    fn add(&mut self, carried: &Carried<'_>) {
        self.keys += u64::from(carried.table != TableId::CATALOGUE);
        self.digests = self.digests.wrapping_add(carried.digest());
    }
}

/// How a shard is made that nobody is to use.
fn config(of: &NamespaceDescription, number: usize, term: u64, segment_bytes_max: u64) -> ShardConfig {
    let image = ImageConfig {
        image_id: 0,
        hash_seed: of.hash_seed,
        term: 1,
        incarnation: Incarnation::first_of_term(term),
        epoch_ns: EPOCH_NS,
        epoch_ns_usual: EPOCH_NS,
        memory_bytes: MEMORY_BYTES,
        segment_bytes_first: SEGMENT_BYTES_FIRST.min(segment_bytes_max),
        segment_bytes_max,
        keeps_journal: false,
    };
    let view = View::of_shards(1, of.hash_seed, of.shards);
    ShardConfig { number, view, image, view_lease_ns: VIEW_LEASE_NS, is_cache: false }
}

fn empty(config: ShardConfig) -> Result<Shard> {
    Shard::create(config, Span::private(Header::BYTES), Box::new(PrivateSegments::default()))
}

/// The shards of a namespace as they were replayed.
fn revive(
    of: &NamespaceDescription,
    term: u64,
    shadows: impl Iterator<Item = Option<Shadow>>,
) -> Result<Vec<Shard>> {
    let revive = |(number, shadow): (usize, Option<Shadow>)| {
        // Memory is added for models only, which are trained anew.
        let config = config(of, number, term, SEGMENT_BYTES_FIRST);
        match shadow {
            Some((_, follower)) => follower.into_shard(config, Span::private(Header::BYTES)),
            None => empty(config),
        }
    };
    shadows.enumerate().map(revive).collect()
}

/// A new shard, and what it keeps.
struct New {
    which: Which,
    shard: Shard,
    kept: Vec<u64>,
}

/// The new shards of all namespaces, in their order.
struct Carrying<'a> {
    layout: &'a Layout,
    term: u64,
    shards: Vec<New>,
    /// For each namespace.
    sums: Vec<Sum>,
}

impl<'a> Carrying<'a> {
    fn new(layout: &'a Layout, term: u64) -> Carrying<'a> {
        Carrying { layout, term, shards: Vec::new(), sums: Vec::new() }
    }

    fn keys(&self) -> u64 {
        self.sums.iter().map(|sum| sum.keys).sum()
    }

    /// Carries the next namespace, which was so.
    fn carry(
        &mut self,
        of: &NamespaceDescription,
        shadows: impl Iterator<Item = Option<Shadow>>,
        tell: &mut dyn FnMut(ReshardStep),
    ) -> Result<()> {
        let namespace = self.sums.len();
        let new = &self.layout.0[namespace];
        let mut old = revive(of, self.term, shadows)?;
        let first_of_old = SourceShard(&mut old[0]);
        let dropped = first_of_old.dropped_tables();
        let kept: Vec<Vec<u64>> = (0..new.shards).map(|number| first_of_old.kept_for(number)).collect();
        let live: u64 = old.iter().map(|shard| shard.memory_use().live).sum();
        let segment_bytes = segment_bytes_max(live / new.shards as u64);
        let first = self.shards.len();
        for (number, kept) in kept.into_iter().enumerate() {
            let which = Which { namespace: namespace as u16, shard: number as u16 };
            let shard = empty(config(new, number, self.term, segment_bytes))?;
            self.shards.push(New { which, shard, kept });
        }
        let view = View::of_shards(1, new.hash_seed, new.shards);
        let (mut sum, before) = (Sum::default(), self.keys());
        // The memory of each is given back behind it.
        for mut shard in old.drain(..) {
            SourceShard(&mut shard).carry(&dropped, &mut |carried| {
                let hash = key_hash(new.hash_seed, carried.table, carried.key);
                let is_name = carried.table == TableId::CATALOGUE;
                // The catalogue stands on shard 0.
                let number = if is_name { 0 } else { view.shard_of(carried.table, hash) };
                TargetShard(&mut self.shards[first + number].shard).take(carried)?;
                sum.add(carried);
                if !is_name && sum.keys % KEYS_A_STEP == 0 {
                    tell(ReshardStep::Carried(before + sum.keys));
                }
                Ok(())
            })?;
        }
        self.sums.push(sum);
        Ok(())
    }

    /// Bytes of memory that are written.
    fn bytes(&self) -> u64 {
        let stretches = self.shards.iter().flat_map(|new| new.shard.image().stretches());
        stretches.map(|(_, bytes)| bytes).sum()
    }

    /// Writes a base of all shards, each with the same last record. Its length.
    fn write(
        &self,
        directory: &Path,
        store: u64,
        sequence: u64,
        tell: &mut dyn FnMut(ReshardStep),
    ) -> Result<u64> {
        let (mut written, of) = (0, self.bytes());
        let mut writer = Writer::create(directory, &description(self.layout, store))?;
        let mut words = vec![0; PIECE_WORDS];
        for New { which, shard, kept } in &self.shards {
            let image = shard.image();
            for (place, bytes) in image.stretches() {
                for at in (0..bytes).step_by(PIECE_WORDS * 8) {
                    let count = ((bytes - at) as usize / 8).min(PIECE_WORDS);
                    image.words(place.plus(at), count).copy_out(0, &mut words[..count]);
                    writer.memory(*which, place.plus(at), &words[..count])?;
                    written += count as u64 * 8;
                    tell(ReshardStep::Writing(written, of));
                }
            }
            // What clients were answered is not known of keys.
            writer.end_shard(*which, &image.books().words(), kept, &[sequence])?;
        }
        Ok(writer.finish()?.1)
    }

    /// Reads a directory back, and looks whether its shards have all that was carried to them.
    fn check(store: &StoreDirectory, layout: &Layout, sums: &[Sum]) -> Result<()> {
        let wrong = |what: String| {
            let context = format!("{what}: {} is given up, and nothing was changed", store.path().display());
            Error::new(ErrorKind::Damaged, OPERATION, context)
        };
        let new = Stored::open(store)?;
        if new.layout != *layout {
            return Err(wrong("the new shards are not those that were wanted".into()));
        }
        let mut shadows = new.replay(store)?.shards.into_iter();
        for (of, wanted) in layout.0.iter().zip(sums) {
            let mut sum = Sum::default();
            for mut shard in revive(of, store.term(), shadows.by_ref().take(of.shards))? {
                SourceShard(&mut shard).carry(&BTreeSet::new(), &mut |carried| {
                    sum.add(carried);
                    Ok(())
                })?;
            }
            if sum != *wanted {
                let (name, keys) = (&of.name, wanted.keys);
                return Err(wrong(format!(
                    "of {keys} keys of namespace \"{name}\" not all are as they were"
                )));
            }
        }
        Ok(())
    }
}
