//! The server that a node is while it is primary: empty, or going on with what it has as a replica.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use kelix_fabric::host_clock_ns;
use kelix_fabric::shm::RunDirectory;
use kelix_log::files::Position;
use kelix_register::View;
use kelix_shard::replicas::{self, Lease};
use kelix_snapshot::NamespaceDescription;
use kelix_types::{Error, ErrorKind, Incarnation, Result};

use super::replication::{BETWEEN_TRIES, Replication};
use super::status::NodeStatus;
use crate::authority::Authority;
use crate::current::Serving;
use crate::listening::Reserved;
use crate::mirror::copies::{Kept, Source};
use crate::mirror::{Attached, Backlog};
use crate::namespace::NamespaceConfig;
use crate::server::{Beginning, Prepared, ServerConfig, Shared, begin, check_access, random_u64};
use crate::wal::{Layout, Replayed, ShardsLog};

/// What a replica has, for the server that goes on with it.
struct Past {
    replayed: Mutex<Replayed>,
    /// Of the namespaces, which go on.
    lives: Vec<u64>,
    /// The last records of each shard of each namespace, for other replicas.
    backlogs: Vec<Vec<Backlog>>,
    /// Whose records it has.
    lineage: u64,
    /// The last term in which an item of it was named.
    last_term: u64,
}

/// What a replica has, and the term in which its predecessor was voided, if it was.
pub(super) type OfReplica = (Vec<Attached>, Option<u64>);

/// An error if a node has other namespaces than it is configured for.
fn check_namespaces(described: &[NamespaceDescription], configured: &[NamespaceConfig]) -> Result<()> {
    let wanted = configured.iter().map(|of| (&of.name, of.shards));
    if wanted.eq(described.iter().map(|of| (&of.name, of.shards))) {
        return Ok(());
    }
    let context = "the primary had other namespaces or shards than this node is configured for";
    Err(Error::new(ErrorKind::InvalidArgument, "serve", context))
}

/// Namespaces that are new, with seeds for their hashes.
pub(super) fn describe_new(configured: &[NamespaceConfig]) -> Result<Vec<NamespaceDescription>> {
    let describe = |of: &NamespaceConfig| {
        let hash_seed = random_u64()?;
        Ok(NamespaceDescription { name: of.name.clone(), hash_seed, shards: of.shards })
    };
    configured.iter().map(describe).collect()
}

impl Past {
    /// What a disk has.
    fn of_disk(replayed: Replayed, namespaces: &[NamespaceConfig]) -> Result<Past> {
        check_namespaces(&replayed.layout.0, namespaces)?;
        let shadows = replayed.shards.iter().flatten();
        let terms = shadows.map(|(_, follower)| Incarnation(follower.end().incarnation).term());
        let last_term = terms.max().unwrap_or(0);
        let replayed = Mutex::new(replayed);
        // Whoever had written something and was not answered does not hear of that from its next life.
        Ok(Past { replayed, lives: Vec::new(), backlogs: Vec::new(), lineage: 0, last_term })
    }

    /// `attached` is of the namespaces that are configured, in their order.
    fn of(attached: Vec<Attached>, namespaces: &[NamespaceConfig]) -> Result<Past> {
        let described: Vec<NamespaceDescription> = attached.iter().map(Attached::describe).collect();
        check_namespaces(&described, namespaces)?;
        let mut replayed = Replayed::nothing(Layout(described), Position::default());
        let lives = attached.iter().map(|of| of.life).collect();
        let lineage = attached.first().map_or(0, |of| of.lineage);
        let mut attached = attached;
        let backlogs = attached.iter_mut().map(|of| of.intake.take_backlogs()).collect();
        let shadows = attached.into_iter().flat_map(|mut of| of.intake.take_shadows());
        let mut last_term = 0;
        for (of, shadow) in replayed.shards.iter_mut().zip(shadows) {
            last_term = last_term.max(Incarnation(shadow.follower.end().incarnation).term());
            *of = Some((shadow.segments, Box::new(shadow.follower)));
        }
        Ok(Past { replayed: Mutex::new(replayed), lives, backlogs, lineage, last_term })
    }
}

/// Does everything that the start of a primary may fail at, with what it begins with, and what is kept on its
/// disk.
pub(super) fn prepare(
    config: &ServerConfig,
    status: &Arc<NodeStatus>,
    (view, lease): (&View, Option<Lease>),
    reserved: Reserved,
    (of_replica, mut kept): (Option<OfReplica>, Option<Kept>),
) -> Result<Prepared> {
    let configured = config.all_namespaces()?;
    check_access(config)?;
    let voided = of_replica.as_ref().and_then(|(_, voided)| *voided);
    let past = match (of_replica, &mut kept) {
        (Some((attached, _)), _) => Some(Past::of(attached, &configured)?),
        (None, Some(kept)) => {
            let nothing = Replayed::nothing(kept.replayed.layout.clone(), kept.replayed.position.clone());
            Some(Past::of_disk(std::mem::replace(&mut kept.replayed, nothing), &configured)?)
        }
        (None, None) => None,
    };
    let authority = Arc::new(Authority::prepare_member(RunDirectory(config.directory.clone()), voided)?);
    if let Some(lease) = lease {
        authority.lease(lease);
    }
    let (news, received) = channel();
    let files = kept.as_ref().map(|kept| kept.log.shards.durability);
    let log = ShardsLog::of_replicas(view.in_sync.len() - 1, &authority, files);
    let batches = log.control.clone();
    let beginning = Beginning {
        snapshot: None,
        replayed: past.as_ref().map(|past| &past.replayed),
        log: Some(&log),
        batches: &batches,
        lives: past.as_ref().map_or(&[], |past| &past.lives),
    };
    // Where the clock was set back, the shards may have got further than the view knows.
    let term = past.as_ref().map_or(0, |past| past.last_term + 1).max(view.term);
    let namespaces: Vec<&NamespaceConfig> = configured.iter().collect();
    let (served, stop) = begin(config, &namespaces, beginning, (&authority, term), &news)?;
    let listener = authority.listen()?;
    let tcp = Some(reserved.address());
    authority.note_address(tcp)?;
    let past = past.map_or_else(Default::default, |past| (past.lineage, past.backlogs));
    let times_ns = (host_clock_ns(false), BETWEEN_TRIES.as_nanos() as u64);
    let of = (status.membership.clone(), log.control.clone());
    let mut replicas = replicas::Replication::new(of, view, served.len(), past, times_ns);
    let mut shared = Shared::of_namespaces(authority, served, (tcp, config.mirrors), batches);
    let (mut asked, mut writer) = (None, None);
    if let Some(mut kept) = kept {
        let boot = status.membership.boot;
        Source { lineage: boot, writes_go_to: tcp.map_or_else(String::new, |of| of.to_string()), boot }
            .write(kept.store.path())?;
        kept.log.shards = log.clone();
        let (received, streams) = kept.go_on(&mut shared, &config.directory, boot)?;
        (asked, writer) = (Some(received), streams);
    }
    if let Some(wal) = shared.wal.as_ref().filter(|_| log.counts_on_disk()) {
        replicas = replicas.with_disk(wal.committed(&shared.namespaces));
    }
    shared.replication = Some(Replication { replicas, waker: log.waker });
    shared.node = Some(status.clone());
    shared.rdma = config.rdma_beside(tcp);
    let shared = Arc::new(shared);
    if let (Some(wal), Some((writer, ends))) = (&shared.wal, writer) {
        wal.start(&shared, writer, ends)?;
    }
    let serving = Serving { shared, stop };
    Prepared::of_serving(serving, config, (listener, asked, Some(reserved)), received)
}
