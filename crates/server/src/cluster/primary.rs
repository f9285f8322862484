//! The server that a node is while it is primary: empty, or going on with what it has as a replica.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use kelix_fabric::host_clock_ns;
use kelix_fabric::shm::RunDirectory;
use kelix_log::files::Position;
use kelix_register::View;
use kelix_shard::replicas;
use kelix_snapshot::NamespaceDescription;
use kelix_types::{Error, ErrorKind, Incarnation, Result};

use super::hosts::Lease;
use super::replication::{BETWEEN_TRIES, Replication};
use super::status::NodeStatus;
use crate::authority::Authority;
use crate::current::Serving;
use crate::listening::Reserved;
use crate::mirror::{Attached, Backlog};
use crate::namespace::NamespaceConfig;
use crate::server::{Beginning, Prepared, ServerConfig, Shared, begin, check_access};
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

impl Past {
    /// `attached` is of the namespaces that are configured, in their order.
    fn of(attached: Vec<Attached>, namespaces: &[NamespaceConfig]) -> Result<Past> {
        let described = attached.iter().map(|of| NamespaceDescription {
            name: of.name.clone(),
            hash_seed: of.view.hash_seed,
            shards: of.view.shards(),
        });
        let described: Vec<NamespaceDescription> = described.collect();
        let wanted = namespaces.iter().map(|of| (&of.name, of.shards));
        if !wanted.eq(described.iter().map(|of| (&of.name, of.shards))) {
            let context = "the primary had other namespaces or shards than this node is configured for";
            return Err(Error::new(ErrorKind::InvalidArgument, "serve", context));
        }
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

/// Does everything that the start of a primary may fail at, with what a replica has if it was one.
pub(super) fn prepare(
    config: &ServerConfig,
    status: &Arc<NodeStatus>,
    (view, lease): (&View, Option<Lease>),
    reserved: Reserved,
    past: Option<(Vec<Attached>, Option<u64>)>,
) -> Result<Prepared> {
    let configured = config.all_namespaces()?;
    check_access(config)?;
    let voided = past.as_ref().and_then(|(_, voided)| *voided);
    let past = past.map(|(attached, _)| Past::of(attached, &configured)).transpose()?;
    let authority = Arc::new(Authority::prepare_member(RunDirectory(config.directory.clone()), voided)?);
    if let Some(lease) = lease {
        authority.lease(lease);
    }
    let (news, received) = channel();
    let log = ShardsLog::of_replicas(view.in_sync.len() - 1, &authority);
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
    let replicas = replicas::Replication::new(of, view, served.len(), past, times_ns);
    let replication = Replication { replicas, waker: log.waker };
    let mut shared = Shared::of_namespaces(authority, served, (tcp, config.mirrors), batches);
    shared.replication = Some(replication);
    shared.node = Some(status.clone());
    let serving = Serving { shared: Arc::new(shared), stop };
    Prepared::of_serving(serving, config, (listener, None, Some(reserved)), received)
}
