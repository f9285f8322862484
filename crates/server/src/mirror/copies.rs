//! What a mirror keeps on its own disk: each copy of its primary has a directory, with snapshots and the log
//! of what was applied since.
//!
//! ```text
//! DIRECTORY/mirror          locked by the mirror that uses it
//! DIRECTORY/copy-<number>/  what a server has with --wal, and "primary": where the records are from, and of
//!                           a cluster's node which instance of the node wrote them
//! ```
//!
//! A mirror that copies anew begins the next directory, and removes the one before when the new one has its
//! first snapshot: so whenever it ends, there is one to begin with. What is in it is a server's, too: `kelix
//! serve --wal DIRECTORY/copy-<number>` goes on where the primary is lost for good.

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use kelix_log::LogControl;
use kelix_log::files::{Directory, Log, Position};
use kelix_snapshot::NamespaceDescription;
use kelix_types::{Error, ErrorKind, Result};
use serde_json::{Value, json};
use tracing::{info, warn};

use crate::authority::{Authority, Lock};
use crate::server::{ServerConfig, Shared, random_u64};
use crate::snapshots::{self, Asked, SnapshotConfig, Snapshots, begin_with};
use crate::store::{StoreDirectory, make_directory, replace_line};
use crate::wal::{Layout, LogFiles, Replayed, Streams};

const LOCK: &str = "mirror";
const PRIMARY: &str = "primary";
const PRIMARY_NEXT: &str = "primary.next";
const PREFIX: &str = "copy-";

fn system(what: &str, path: &Path, source: std::io::Error) -> Error {
    Error::system("serve", format!("cannot {what} {}", path.display()), source)
}

/// The directory of all copies, in this mirror's possession.
#[derive(Debug)]
pub(crate) struct Copies {
    directory: PathBuf,
    _lock: File,
}

/// One copy on the disk, which is to be served and gone on with.
pub(crate) struct Kept {
    pub store: Arc<StoreDirectory>,
    pub snapshots: SnapshotConfig,
    pub log: LogFiles,
    pub replayed: Replayed,
    /// When its newest snapshot was made, and how long that is.
    pub begun: Option<(SystemTime, u64)>,
}

impl Kept {
    /// Has a server go on with that, once it takes possession of its run directory: what its snapshots are
    /// asked by, and what the log's thread begins with. `life`: the number of the log's next lineage.
    pub fn go_on(self, shared: &mut Shared, run: &Path, life: u64) -> Result<(Asked, Option<Streams>)> {
        let Kept { store, snapshots, log, replayed, begun } = self;
        store.write(run)?;
        let base_bytes = begun.map_or(0, |(_, bytes)| bytes);
        let (wal, streams) = log.go_on(replayed, &shared.namespaces, (life, base_bytes))?;
        let (snapshots, asked) = Snapshots::new(&snapshots, begun);
        (shared.store, shared.wal, shared.snapshots) = (Some(store), Some(Arc::new(wal)), Some(snapshots));
        Ok((asked, streams))
    }
}

/// Where the records of a copy are from.
#[derive(Clone, Default)]
pub(crate) struct Source {
    /// The lineage of the last one.
    pub lineage: u64,
    /// The server that takes writes.
    pub writes_go_to: String,
    /// The boot number of the cluster's node that keeps the copy; 0: it is none.
    pub boot: u64,
}

/// How far the log of a copy goes, which a node of a cluster may begin with.
pub(crate) struct Survey {
    pub path: PathBuf,
    /// The instance of the node that kept it.
    pub boot: u64,
    /// Records of all shards.
    pub records: u64,
}

impl Source {
    fn read(copy: &Path) -> Option<Source> {
        let value: Value = serde_json::from_slice(&fs::read(copy.join(PRIMARY)).ok()?).ok()?;
        let number = |name: &str| u64::from_str_radix(value[name].as_str()?, 16).ok();
        let (lineage, boot) = (number("lineage")?, number("boot").unwrap_or(0));
        Some(Source { lineage, writes_go_to: value["writes_go_to"].as_str()?.into(), boot })
    }

    /// Writes it down, before a record of this lineage is applied.
    pub fn write(&self, copy: &Path) -> Result<()> {
        let Source { lineage, writes_go_to, boot } = self;
        let text = json!({
            "lineage": format!("{lineage:016x}"),
            "writes_go_to": writes_go_to,
            "boot": format!("{boot:016x}"),
        });
        let written = replace_line(copy, (PRIMARY, PRIMARY_NEXT), &text.to_string());
        written.map_err(|source| system("write", &copy.join(PRIMARY), source))
    }
}

/// Says of a directory that it is a server's from now on: what is done there is of no primary.
pub(crate) fn disown(directory: &Path) -> Result<()> {
    let path = directory.join(PRIMARY);
    match fs::remove_file(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed
            .and_then(|()| File::open(directory)?.sync_all())
            .map_err(|source| system("remove", &path, source)),
    }
}

impl Copies {
    /// Takes the directory, which is made if it is not there. An error: another mirror uses it, or it is a
    /// server's.
    pub fn open(directory: &Path) -> Result<Copies> {
        make_directory(directory).map_err(|source| system("make", directory, source))?;
        if directory.join("store").exists() {
            let context = format!(
                "{} has what a server keeps: give the mirror a directory of its own",
                directory.display()
            );
            return Err(Error::new(ErrorKind::InvalidArgument, "serve", context));
        }
        let name = directory.join(LOCK);
        match Lock::try_lock(&name).map_err(|source| system("open", &name, source))? {
            Lock::Held(lock) => Ok(Copies { directory: directory.into(), _lock: lock }),
            Lock::Of(_) => {
                let context = format!(
                    "{} is in use by another mirror: end it first, or give this one a directory of its own",
                    directory.display()
                );
                Err(Error::new(ErrorKind::InvalidArgument, "serve", context))
            }
        }
    }

    /// All copies, the newest first.
    fn list(&self) -> Result<Vec<(u64, PathBuf)>> {
        let entries = fs::read_dir(&self.directory);
        let entries = entries.map_err(|source| system("list", &self.directory, source))?;
        let number_of = |path: PathBuf| {
            let number = path.file_name()?.to_str()?.strip_prefix(PREFIX)?.parse().ok()?;
            Some((number, path))
        };
        let mut copies: Vec<_> = entries.filter_map(|entry| number_of(entry.ok()?.path())).collect();
        copies.sort_unstable_by(|a, b| b.cmp(a));
        Ok(copies)
    }

    /// Removes all copies but one.
    pub fn keep_only(&self, copy: &Path) {
        let others = self.list().unwrap_or_default().into_iter().filter(|(_, path)| path != copy);
        for (_, path) in others {
            match fs::remove_dir_all(&path) {
                Ok(()) => info!(path = %path.display(), "an older copy is removed"),
                Err(error) => warn!(%error, path = %path.display(), "an older copy stays"),
            }
        }
    }

    /// How far the logs of all copies go that a node of a cluster may begin with, the newest first.
    pub fn survey(&self) -> Result<Vec<Survey>> {
        let mut found = Vec::new();
        for (_, path) in self.list()? {
            match survey_one(&path) {
                Ok(Some(survey)) => found.push(survey),
                Ok(None) => {}
                Err(error) => warn!(%error, copy = %path.display(), "a copy on this disk is of no use"),
            }
        }
        Ok(found)
    }

    /// The newest copy that can be gone on with, if it has just these namespaces; and where it is from.
    pub fn restore(
        &self,
        config: &ServerConfig,
        authority: &Authority,
        batches: &LogControl,
    ) -> Result<Option<(Kept, Source)>> {
        let wanted = &config.mirror.as_ref().expect("a mirror's configuration").namespaces;
        for (_, path) in self.list()? {
            match restore_one((config, wanted), authority, batches, &path) {
                // Of shards of which there is nothing the primary has to be asked anyway.
                Ok(Some((kept, _))) if kept.replayed.shards.iter().any(Option::is_none) => {}
                Ok(Some(restored)) => return Ok(Some(restored)),
                Ok(None) => {}
                Err(error) => {
                    warn!(%error, copy = %path.display(), "a copy on this mirror's disk is of no use");
                }
            }
        }
        Ok(None)
    }

    /// The directory of another copy, of these namespaces, whose shards have had records up to these.
    pub fn begin(
        &self,
        config: &ServerConfig,
        authority: &Authority,
        batches: &LogControl,
        (namespaces, sequences): (Vec<NamespaceDescription>, Vec<u64>),
        source: &Source,
    ) -> Result<Kept> {
        let number = self.list()?.first().map_or(1, |(last, _)| last + 1);
        let path = self.directory.join(format!("{PREFIX}{number}"));
        make_directory(&path).map_err(|source| system("make", &path, source))?;
        source.write(&path)?;
        let (store, snapshots, log) = open(config, authority, batches, &path)?;
        let position = Position { sequences, ..Position::default() };
        let replayed = Replayed::nothing(Layout(namespaces), position);
        Ok(Kept { store, snapshots, log, replayed, begun: None })
    }
}

fn survey_one(path: &Path) -> Result<Option<Survey>> {
    let Some(Source { boot, .. }) = Source::read(path).filter(|source| source.boot != 0) else {
        return Ok(None);
    };
    let log = Log::open(Box::new(Directory(path.to_path_buf())))?;
    let Some(last) = log.files().last() else { return Ok(None) };
    if !log.begins_with_first() && kelix_snapshot::list(path)?.is_empty() {
        return Ok(None);
    }
    let end = log.read(last.first, |_| Ok(ControlFlow::Continue(())))?;
    let records = end.last.sequences.iter().sum();
    Ok(Some(Survey { path: path.into(), boot, records }))
}

/// A copy that can be gone on with, if it has just these namespaces.
pub(crate) fn restore_one(
    (config, wanted): (&ServerConfig, &[String]),
    authority: &Authority,
    batches: &LogControl,
    path: &Path,
) -> Result<Option<(Kept, Source)>> {
    let Some(source) = Source::read(path) else { return Ok(None) };
    let (store, snapshots, log) = open(config, authority, batches, path)?;
    let Some(Layout(namespaces)) = log.layout()? else { return Ok(None) };
    if !namespaces.iter().map(|of| &of.name).eq(wanted) {
        return Ok(None);
    }
    let shapes: Vec<(&str, usize)> = namespaces.iter().map(|of| (&of.name[..], of.shards)).collect();
    let kept = snapshots::readable(&snapshots, &store, &shapes, false)?;
    if kept.is_empty() && !log.is_whole() {
        // The mirror ended before the first one was whole.
        return Ok(None);
    }
    let replay = |base: Option<&_>| log.replay(base, &shapes, &random_u64);
    let (replayed, begun) = begin_with(kept, replay)?;
    Ok(Some((Kept { store, snapshots, log, replayed, begun }, source)))
}

/// Opens what a copy keeps.
fn open(
    config: &ServerConfig,
    authority: &Authority,
    batches: &LogControl,
    path: &Path,
) -> Result<(Arc<StoreDirectory>, SnapshotConfig, LogFiles)> {
    let store = Arc::new(StoreDirectory::prepare(path, authority, random_u64()?)?);
    let snapshots = config.snapshots.as_ref().expect("a mirror that keeps copies");
    let snapshots = SnapshotConfig { directory: path.into(), ..snapshots.clone() };
    let wal = config.wal.as_ref().expect("a mirror that keeps copies");
    let log = LogFiles::of_mirror(wal, &store, batches.clone())?;
    Ok((store, snapshots, log))
}
