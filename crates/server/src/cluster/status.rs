//! What a node tells of its cluster, whatever its role is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kelix_register::{Member, Membership, View};
use serde_json::{Value, json};

use crate::server::Shared;

/// What a node knows of itself and the others.
pub struct NodeStatus {
    node: String,
    pub(super) membership: Arc<Membership>,
    promotions: AtomicU64,
}

impl std::fmt::Debug for NodeStatus {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("NodeStatus").field("node", &self.node).finish_non_exhaustive()
    }
}

impl NodeStatus {
    pub(super) fn new(node: &str, membership: Arc<Membership>) -> Arc<NodeStatus> {
        Arc::new(NodeStatus { node: node.into(), membership, promotions: AtomicU64::new(0) })
    }

    /// The number by which views name this member.
    pub(crate) fn boot(&self) -> u64 {
        self.membership.boot
    }

    /// Counts that this node went on in a primary's place.
    pub(super) fn note_promotion(&self) {
        self.promotions.fetch_add(1, Ordering::Relaxed);
    }

    /// How this node and the others are doing, as far as it knows, for the statistics of its server.
    pub(crate) fn json(&self, shared: &Shared) -> Value {
        let view = self.membership.view();
        let replicas = shared.replication.as_ref().map(|of| &of.replicas);
        let report = replicas.map(|replicas| replicas.report()).unwrap_or_default();
        let node = |view: &View, member: &Member| {
            let followed = report.iter().find(|replica| replica.boot == member.boot);
            json!({
                "node": member.node,
                "role": if view.primary == member.boot { "primary" } else { "replica" },
                "in_sync": view.is_in_sync(member.boot),
                "address": member.address,
                "boot": format!("{:016x}", member.boot),
                "maps_streams": followed.map(|replica| replica.is_near),
            })
        };
        let lease_left = replicas.and_then(|_| shared.authority.lease_left());
        let nodes = |view: &View| view.members.iter().map(|of| node(view, of)).collect::<Vec<_>>();
        json!({
            "node": self.node,
            "role": if replicas.is_some() { "primary" } else { "replica" },
            "primary": view.as_ref().and_then(|view| Some(&view.primary_member()?.node)),
            "view": view.as_ref().map_or(0, |view| view.number),
            "term": view.as_ref().map_or(0, |view| view.term),
            "in_sync": view.as_ref().map_or(0, |view| view.in_sync.len()),
            "min_in_sync": view.as_ref().map_or(0, |view| view.min_in_sync),
            "accepts_writes": replicas.map(|of| of.accepts_writes() && shared.authority.counts()),
            "lease_left_seconds": lease_left.map(|left| left.as_secs_f64()),
            "promotions": self.promotions.load(Ordering::Relaxed),
            "nodes": view.as_ref().map(nodes).unwrap_or_default(),
        })
    }
}
