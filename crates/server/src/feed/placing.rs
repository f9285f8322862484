//! What a feed does more for a replica, as `kelix_shard::replicas` decides: over its connection, and with a bell
//! that shards ring.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use kelix_fabric::host_clock_ns;
use kelix_fabric::tcp::FeedLink;
use kelix_log::{Gatherer, LogControl, Reader};
use kelix_shard::replicas::{self, PlacedEnd};
use kelix_types::Result;
use kelix_wire::control::StreamPosition;
use kelix_wire::feed::{FeedPart, FeedPlaced};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Fed;
use crate::cluster::Replication;
use crate::namespace::Namespace;
use crate::server::Shared;
use crate::shard_thread::Command;

/// How long a replica may take to say that records have come. Writes wait for it meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long nothing is asked while there is nothing new.
const QUIET: Duration = Duration::from_millis(40);

/// The replica that a feed is for.
pub(super) struct Placing<'a> {
    placing: replicas::Placing,
    of: (&'a replicas::Replication, &'a Shared),
    control: LogControl,
    /// Rung by shards while the thread sleeps.
    bell: Arc<OwnedFd>,
}

impl<'a> Placing<'a> {
    /// Of the replica with a boot number, of a namespace of a primary.
    pub fn new(
        shared: &'a Shared,
        replication: &'a Replication,
        namespace: &Namespace,
        boot: u64,
    ) -> Result<Placing<'a>> {
        let replica = (boot, Replication::index(shared, namespace));
        Ok(Placing {
            placing: replicas::Placing::new(&replication.replicas, replica, host_clock_ns(false)),
            of: (&replication.replicas, shared),
            control: replication.replicas.control.clone(),
            bell: replication.waker.bell()?,
        })
    }

    /// Whether the replica finds in the streams what has not come.
    pub fn is_near(&self) -> bool {
        self.placing.is_near()
    }

    /// Whether the replica reads there what comes next.
    pub fn reads_streams(&self) -> bool {
        self.placing.reads_streams()
    }

    /// Whether the replica is to read the streams from now on, once, since all is held behind these positions.
    pub fn begin_to_read_streams(&mut self, positions: impl Iterator<Item = u64>) -> bool {
        self.placing.begin_to_read_streams(positions)
    }

    /// Of a replica that goes on behind its position, if that can be: the words that it is told first of each
    /// shard, and what comes behind them. It counts from then on.
    pub fn resume(&mut self, position: &StreamPosition) -> Option<(Vec<Vec<u64>>, Vec<Gatherer>)> {
        self.placing.resume(self.of, position)
    }

    /// Asks behind all that was told so far.
    pub fn ask(&mut self, link: &mut FeedLink, gatherers: &[Gatherer]) {
        let ends = gatherers.iter().map(PlacedEnd::of).collect();
        let placing = self.placing.ask(ends, host_clock_ns(false));
        link.push(FeedPart::Placing as u32, 0, &placing.words());
    }

    /// All has come that was told before a question with this number. `false`: there is none.
    pub fn take(&mut self, placed: FeedPlaced) -> bool {
        self.placing.take(self.of, placed)
    }

    /// A shard holds what stands in its stream behind a record.
    pub fn note_held(&mut self, hold: (usize, Reader), sequence: u64) {
        self.placing.note_held(self.of, hold, sequence);
    }

    /// Begins to have it count, if that can be.
    pub fn join(&mut self, namespace: &Namespace, tell: &Sender<Fed>) {
        self.placing.join(self.of, |shard| {
            namespace.shards[shard].command(Command::Hold { shard, tell: tell.clone() });
        });
    }

    /// Whether it counts, and has left a question unanswered for too long.
    pub fn is_late(&self) -> bool {
        self.placing.is_late(host_clock_ns(false), PATIENCE.as_nanos() as u64)
    }

    /// Waits until something comes over the connection, or a shard has something to tell, for so long at most.
    pub fn rest(&self, link: &mut FeedLink, nap: Duration, has_more: impl Fn() -> bool) {
        self.control.begin_sleep();
        if !has_more() {
            if let Some(fds) = link.watch() {
                let bell = PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN);
                let mut fds: Vec<PollFd<'_>> = fds.chain([bell]).collect();
                let nap = Timespec { tv_sec: nap.as_secs() as i64, tv_nsec: nap.subsec_nanos().into() };
                // Whatever it says, all is looked at again.
                let _ = poll(&mut fds, Some(&nap));
            }
        }
        self.control.end_sleep();
        let _ = rustix::io::read(&*self.bell, &mut [0u8; 8]);
    }

    /// Whether it is time to ask again though there is nothing new: so each side knows that the other one is
    /// there.
    pub fn is_quiet(&self) -> bool {
        self.placing.is_quiet(host_clock_ns(false), QUIET.as_nanos() as u64)
    }

    /// The feed has ended. With the server it ends for a successor to be chosen out of the view as it is.
    pub fn end(self) {
        self.placing.end(self.of);
    }
}
