//! What serves now in a process, as others see it: how it is doing, and what ends it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kelix_types::Result;
use tracing::{info, warn};

use crate::agent::AgentHandle;
use crate::server::Shared;
use crate::shard_thread::{Command, ShardHandle};

/// What serves, and the flag that ends its threads.
#[derive(Clone)]
pub(crate) struct Serving {
    pub shared: Arc<Shared>,
    pub stop: Arc<AtomicBool>,
}

/// What serves now: a mirror that has copied anew goes on with other images, under another term.
#[derive(Clone)]
pub(crate) struct Current(Arc<Mutex<(Serving, bool)>>);

impl Current {
    pub fn new(serving: Serving) -> Current {
        Current(Arc::new(Mutex::new((serving, false))))
    }

    pub fn get(&self) -> Serving {
        self.0.lock().expect("no panic under this lock").0.clone()
    }

    /// It is to end, and nothing else to come in its place.
    pub fn end(&self) -> Serving {
        let mut current = self.0.lock().expect("no panic under this lock");
        current.1 = true;
        current.0.clone()
    }

    /// Whether it is to end.
    pub fn ends(&self) -> bool {
        self.0.lock().expect("no panic under this lock").1
    }

    /// Goes on with what `next` makes, and returns what served until now. `None`: it is to end.
    pub fn succeed(&self, next: impl FnOnce() -> Result<Serving>) -> Result<Option<Serving>> {
        let mut current = self.0.lock().expect("no panic under this lock");
        if current.1 {
            return Ok(None);
        }
        let next = next()?;
        Ok(Some(std::mem::replace(&mut current.0, next)))
    }
}

/// Tells how a server is doing, also from other threads.
#[derive(Clone)]
pub struct Statistics {
    pub(crate) current: Current,
}

impl Statistics {
    /// What `kelix stat` shows, as JSON.
    /// One for each namespace, the default one first.
    pub fn json(&self) -> Vec<serde_json::Value> {
        let shared = self.current.get().shared;
        let namespaces = shared.namespaces.iter();
        namespaces.map(|namespace| crate::statistics::json(&shared, namespace)).collect()
    }

    /// Whether all shards are still going round: each is asked, and is to answer within this time.
    pub fn shards_answer(&self, within: Duration) -> bool {
        let shared = self.current.get().shared;
        let began = Instant::now();
        let (asker, answers) = channel();
        let asked = shared.shards().map(|shard| shard.command(Command::Answer(asker.clone()))).count();
        drop(asker);
        let left = || within.saturating_sub(began.elapsed());
        (0..asked).all(|_| answers.recv_timeout(left()).is_ok())
    }

    /// The names of the namespaces, the default one first.
    pub fn namespaces(&self) -> Vec<String> {
        self.current.get().shared.namespaces.iter().map(|namespace| namespace.name.clone()).collect()
    }

    /// What `kelix stat` shows of a namespace, if there is one of this name.
    pub fn json_of(&self, name: &str) -> Option<serde_json::Value> {
        let shared = self.current.get().shared;
        let namespace = shared.namespaces.iter().find(|namespace| namespace.name == name)?;
        Some(crate::statistics::json(&shared, namespace))
    }
}

/// Stops a server.
#[derive(Clone)]
pub struct Stopper {
    pub(crate) current: Current,
}

impl Stopper {
    /// Stops the server: it takes no more connections, executes the requests that have arrived, sends the
    /// answers, and then ends the connections, by which clients know at once.
    pub fn stop(&self) {
        let serving = self.current.end();
        let authority = &serving.shared.authority;
        serving.stop(|| {
            if !authority.was_raised() {
                // This server never came to serve, and whoever tried says why.
            } else if authority.in_force() {
                info!(term = authority.term, "server stopped");
            } else {
                warn!(term = authority.term, "server superseded");
            }
        });
    }
}

impl Serving {
    /// Does what [`Stopper::stop`] says, and in the end once `then`.
    pub fn stop(&self, then: impl FnOnce()) {
        let Serving { shared, stop } = self;
        shared.authority.begin();
        shared.agent.get().into_iter().for_each(AgentHandle::pass_on);
        // What is in the store goes on in the next server. A node of a cluster has its log, and is waited
        // for.
        let takes = shared.authority.in_force() && shared.node.is_none();
        if let Some(snapshots) = shared.snapshots.as_ref().filter(|_| takes) {
            shared.kept.get_or_init(|| snapshots.take(true).is_ok());
        }
        stop.store(true, Ordering::SeqCst);
        // The accepting thread sees the flag when somebody connects.
        let _ = shared.authority.connect();
        shared.shards().for_each(ShardHandle::wake);
        shared.shards().for_each(ShardHandle::join);
        shared.wal.iter().for_each(|wal| wal.end());
        shared.feeds.end();
        // Not before: the answers of the shards go through it.
        shared.agent.get().into_iter().for_each(AgentHandle::join);
        shared.disconnect_all();
        shared.authority.close(then);
    }
}
