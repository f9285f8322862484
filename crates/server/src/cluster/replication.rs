//! The primary's side of its replicas, as `kelix_shard::replicas` decides: with what it asks a server, and tells.

use std::time::Duration;

use kelix_fabric::host_clock_ns;
use kelix_log::{Gatherer, Reader, ShardLog};
use kelix_register::View;
use kelix_shard::replicas::{self, Noted};
use tracing::{error, info, warn};

use crate::namespace::Namespace;
use crate::server::Shared;
use crate::shard_thread::ShardHandle;
use crate::wal::LogWaker;

/// Between two tries to change a register that cannot be written.
pub(super) const BETWEEN_TRIES: Duration = Duration::from_millis(100);

/// The replicas of a server that is primary, and what rings whoever feeds them.
pub(crate) struct Replication {
    pub replicas: replicas::Replication,
    pub waker: LogWaker,
}

fn handle(shared: &Shared, (namespace, shard): (usize, usize)) -> &ShardHandle {
    &shared.namespaces[namespace].shards[shard]
}

impl replicas::Primary for Shared {
    fn shards(&self) -> Vec<usize> {
        self.namespaces.iter().map(|of| of.shards.len()).collect()
    }

    fn log(&self, shard: (usize, usize)) -> Option<&ShardLog> {
        handle(self, shard).replicas.as_ref()
    }

    fn wake(&self, shard: (usize, usize)) {
        handle(self, shard).wake();
    }

    fn wake_if_asleep(&self, shard: (usize, usize)) {
        handle(self, shard).wake_if_asleep();
    }

    fn take_expected(&self, shard: (usize, usize)) -> Option<(Gatherer, Reader)> {
        handle(self, shard).take_expected()
    }

    fn expect_none(&self) {
        self.shards().for_each(ShardHandle::expect_none);
    }

    fn in_force(&self) -> bool {
        self.authority.in_force()
    }

    fn counts(&self) -> bool {
        self.authority.counts()
    }

    fn is_over(&self) -> bool {
        self.feeds.is_over()
    }

    fn now_ns(&self) -> u64 {
        host_clock_ns(false)
    }

    fn pause(&self, time_ns: u64) {
        std::thread::sleep(Duration::from_nanos(time_ns));
    }

    fn note(&self, what: Noted<'_>) {
        let view = || self.replication.as_ref().and_then(|of| of.replicas.membership.view());
        let in_sync = |view: &Option<View>| view.as_ref().map_or(0, |view| view.in_sync.len());
        match what {
            Noted::GoesOn(namespace) => {
                info!(namespace = self.namespaces[namespace].name, "a replica goes on with what it has");
            }
            Noted::InSync(boot) => {
                let view = view();
                let node = view.as_ref().and_then(|view| Some(view.member(boot)?.node.clone()));
                info!(node, in_sync = in_sync(&view), "a replica is in sync");
            }
            Noted::OutOfSync(_) => info!(in_sync = in_sync(&view()), "a replica is out of sync"),
            Noted::CannotBeListed(error) => {
                warn!(%error, "a replica that has all cannot be put into the view");
            }
            Noted::CannotBeUnlisted(error) => {
                error!(%error, "a replica cannot be taken out of the view: writes wait");
            }
        }
    }
}

impl Replication {
    /// The index of a namespace among those that are served.
    pub fn index(shared: &Shared, namespace: &Namespace) -> usize {
        let is_it = |of: &std::sync::Arc<Namespace>| of.name == namespace.name;
        shared.namespaces.iter().position(is_it).expect("a namespace that is served")
    }
}
