//! What a node keeps on its disk, in both roles: copies as those of a mirror (`crate::mirror::copies`).
//!
//! ```text
//! a replica:  another copy, whose log has what comes; it says what it has once that copy has a base
//! chosen:     the same copy goes on, written by the primary behind all that was taken up
//! ```

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use kelix_fabric::shm::RunDirectory;
use kelix_log::LogControl;
use kelix_shard::replicas::{self, Keep};
use kelix_types::Result;
use tracing::info;

use super::{NodeConfig, NodeStatus, primary};
use crate::authority::Authority;
use crate::mirror::copies::{Copies, Kept, Source};
use crate::mirror::{self, Attached};
use crate::namespace::NamespaceConfig;
use crate::server::{ServerConfig, Shared};
use crate::snapshots::{SnapshotConfig, Taken};
use crate::wal::{LogFiles, Replayed};

/// Between two tries to take a first base.
const BETWEEN_TRIES: Duration = Duration::from_secs(2);

/// Watches over the copies of a node.
#[derive(Default)]
pub(super) struct Keeping {
    /// Where the log of what is served is, and how far that is kept.
    path: Option<PathBuf>,
    kept: replicas::Keeping,
    /// The base that was asked for.
    asked: Option<Receiver<Result<Taken>>>,
    tried: Option<Instant>,
}

impl Keeping {
    /// Sees to it that what is served can be begun with: then a replica says what it has.
    pub fn look(&mut self, copies: &Copies, shared: &Shared, is_in_sync: bool) {
        let (Some(store), Some(snapshots)) = (&shared.store, &shared.snapshots) else { return };
        if self.path.as_deref() != Some(store.path()) {
            (self.path, self.kept) = (Some(store.path().to_path_buf()), replicas::Keeping::default());
        }
        let is_replica = shared.replication.is_none();
        match self.kept.look((is_replica, snapshots.has_any()), is_in_sync) {
            Keep::Nothing => {}
            Keep::Alone => copies.keep_only(store.path()),
            Keep::Base => {
                self.asked.take_if(|asked| !matches!(asked.try_recv(), Err(TryRecvError::Empty)));
                let is_due = self.tried.is_none_or(|tried| tried.elapsed() > BETWEEN_TRIES);
                if self.asked.is_none() && is_due {
                    (self.asked, self.tried) = (snapshots.ask(false).ok(), Some(Instant::now()));
                }
            }
            Keep::Kept => {
                if is_replica {
                    info!(path = %store.path().display(), "what this replica has is on its disk, too");
                    shared.namespaces.iter().for_each(|of| mirror::standing(of).note_kept());
                }
            }
        }
    }
}

/// The copy of a cluster's first primary, which begins empty.
pub(super) fn begin(
    copies: &Copies,
    (config, status): (&NodeConfig, &NodeStatus),
    configured: &[NamespaceConfig],
) -> Result<Kept> {
    let authority = Authority::prepare(RunDirectory(config.replica_run()), true)?;
    let namespaces = primary::describe_new(configured)?;
    let shards = namespaces.iter().map(|of| of.shards).sum();
    let source = Source { boot: status.boot(), ..Source::default() };
    copies.begin(&config.server, &authority, &LogControl::new(), (namespaces, vec![0; shards]), &source)
}

/// What a replica has kept, for the primary that goes on with it, once all is on the disk that was taken up.
/// An error: some is not.
pub(super) fn hand_on(shared: &Shared, attached: &[Attached], config: &ServerConfig) -> Result<Option<Kept>> {
    let (Some(wal), Some(store), Some(snapshots)) = (&shared.wal, &shared.store, &shared.snapshots) else {
        return Ok(None);
    };
    wal.end();
    let sequences: Vec<u64> = attached.iter().flat_map(|of| of.intake.applied()).collect();
    let position = wal.ended_behind(&sequences)?;
    let configured = config.snapshots.as_ref().expect("a node that keeps a log");
    let of_store = SnapshotConfig { directory: store.path().to_path_buf(), ..configured.clone() };
    let log = config.wal.as_ref().expect("a node that keeps a log");
    let log = LogFiles::of_mirror(log, store, LogControl::new())?;
    let replayed = Replayed::nothing(wal.layout().clone(), position);
    Ok(Some(Kept { store: store.clone(), snapshots: of_store, log, replayed, begun: snapshots.newest() }))
}
