//! What a feed does more for a replica: it asks where all has come, and what the replica has counts.
//!
//! ```text
//! copying -> following: asked once -> has answered -> required -> shards have heard so -> covers -> ...
//! ```

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use kelix_fabric::tcp::FeedLink;
use kelix_image::Committed;
use kelix_log::{Gatherer, LogControl, Reader};
use kelix_types::Result;
use kelix_wire::control::StreamPosition;
use kelix_wire::feed::{FeedPart, FeedPlaced, FeedPlacing};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Fed;
use crate::cluster::{Replication, Resumption};
use crate::namespace::Namespace;
use crate::server::Shared;
use crate::shard_thread::Command;

/// How long a replica may take to say that records have come. Writes wait for it meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long nothing is asked while there is nothing new.
const QUIET: Duration = Duration::from_millis(40);

/// How far a replica is on its way into the view.
enum Joining {
    /// It follows only.
    No,
    /// It is required; of each shard, as it tells that, the last record that may have been committed without it,
    /// and what holds the stream behind that.
    Covering(Vec<Option<(u64, Reader)>>),
    /// It is in the view as soon as it has that.
    Yes,
}

/// Where the records of a shard end that a replica was told: the last one, and the words of the stream before
/// its end.
#[derive(Clone, Copy)]
pub(super) struct PlacedEnd {
    pub record: Committed,
    pub position: u64,
}

/// Where records end that a replica was told, and when it was.
struct Told {
    number: u64,
    ends: Vec<PlacedEnd>,
    since: Instant,
}

/// The replica that a feed is for.
pub(super) struct Placing {
    replica: (u64, usize),
    feed: u64,
    control: LogControl,
    /// Rung by shards while the thread sleeps.
    bell: Arc<OwnedFd>,
    number: u64,
    asked: Instant,
    under_way: VecDeque<Told>,
    /// What has come.
    placed: Option<Vec<Committed>>,
    /// The replica finds in the streams what has not come, of which these hold back what it may need.
    is_near: bool,
    holds: Vec<Reader>,
    /// It reads there all that comes next, and is not told.
    reads_streams: bool,
    joining: Joining,
}

impl Placing {
    /// Of the replica with a boot number, of a namespace of a primary.
    pub fn new(
        shared: &Shared,
        replication: &Replication,
        namespace: &Namespace,
        boot: u64,
    ) -> Result<Placing> {
        Ok(Placing {
            replica: (boot, Replication::index(shared, namespace)),
            feed: replication.number_feed(),
            control: replication.log.control.clone(),
            bell: replication.log.waker.bell()?,
            number: 0,
            asked: Instant::now(),
            under_way: VecDeque::new(),
            placed: None,
            is_near: false,
            holds: Vec::new(),
            reads_streams: false,
            joining: Joining::No,
        })
    }

    /// Whether the replica finds in the streams what has not come.
    pub fn is_near(&self) -> bool {
        self.is_near
    }

    /// Whether the replica reads there what comes next.
    pub fn reads_streams(&self) -> bool {
        self.reads_streams
    }

    /// Whether the replica is to read the streams from now on, once, since all is held behind these positions.
    pub fn begin_to_read_streams(&mut self, positions: impl Iterator<Item = u64>) -> bool {
        if self.reads_streams || !self.is_near || self.holds.is_empty() {
            return false;
        }
        self.reads_streams = self.holds.iter().zip(positions).all(|(hold, at)| hold.position() <= at);
        self.reads_streams
    }

    /// Of a replica that goes on behind its position, if that can be: the words that it is told first of each
    /// shard, and what comes behind them. It counts from then on.
    pub fn resume(
        &mut self,
        shared: &Shared,
        position: &StreamPosition,
    ) -> Option<(Vec<Vec<u64>>, Vec<Gatherer>)> {
        let replication = shared.replication.as_ref()?;
        let Resumption { words, gatherers, holds } =
            replication.resume(shared, self.replica, self.feed, position)?;
        (self.holds, self.joining) = (holds, Joining::Yes);
        Some((words, gatherers))
    }

    /// Asks behind all that was told so far, which ends there.
    pub fn ask(&mut self, link: &mut FeedLink, ends: Vec<PlacedEnd>) {
        self.number += 1;
        let sequences = ends.iter().map(|end| end.record.record).collect();
        let placing = FeedPlacing { number: self.number, sequences };
        link.push(FeedPart::Placing as u32, 0, &placing.words());
        self.asked = Instant::now();
        self.under_way.push_back(Told { number: self.number, ends, since: Instant::now() });
    }

    /// All has come that was told before a question with this number. `false`: there is none.
    pub fn take(&mut self, shared: &Shared, FeedPlaced { number, is_near }: FeedPlaced) -> bool {
        let count = self.under_way.iter().take_while(|told| told.number <= number).count();
        let Some(last) = self.under_way.drain(..count).next_back() else { return false };
        self.is_near = is_near;
        let has: Vec<Committed> = last.ends.iter().map(|end| end.record).collect();
        if let (Some(replication), false) = (&shared.replication, matches!(self.joining, Joining::No)) {
            if !replication.place(shared, self.replica, self.feed, (&has, is_near)) {
                self.joining = Joining::No;
            }
        }
        // Not before: what is let go here is found there.
        for (hold, end) in self.holds.iter_mut().zip(&last.ends) {
            hold.pass_to(end.position);
        }
        self.placed = Some(has);
        true
    }

    /// A shard holds what stands in its stream behind a record.
    pub fn note_held(&mut self, shared: &Shared, (shard, hold): (usize, Reader), sequence: u64) {
        let Joining::Covering(held) = &mut self.joining else { return };
        held[shard] = Some((sequence, hold));
        if held.iter().any(Option::is_none) {
            return;
        }
        let (covers, holds) = held.drain(..).flatten().unzip();
        self.holds = holds;
        self.joining = Joining::Yes;
        if let Some(replication) = &shared.replication {
            replication.cover(shared, self.replica, self.feed, covers);
        }
    }

    /// Begins to have it count, if that can be.
    pub fn join(&mut self, shared: &Shared, namespace: &Namespace, tell: &Sender<Fed>) {
        let (Joining::No, Some(placed), Some(replication)) =
            (&self.joining, &self.placed, &shared.replication)
        else {
            return;
        };
        let has = (placed.clone(), self.is_near);
        if !replication.require(shared, self.replica, self.feed, has) {
            return;
        }
        self.joining = Joining::Covering(namespace.shards.iter().map(|_| None).collect());
        for (shard, handle) in namespace.shards.iter().enumerate() {
            handle.command(Command::Hold { shard, tell: tell.clone() });
        }
    }

    /// Whether it counts, and has left a question unanswered for too long.
    pub fn is_late(&self) -> bool {
        !matches!(self.joining, Joining::No)
            && self.under_way.front().is_some_and(|told| told.since.elapsed() > PATIENCE)
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
        self.under_way.is_empty() && self.asked.elapsed() >= QUIET
    }

    /// The feed has ended. With the server it ends for a successor to be chosen out of the view as it is.
    pub fn end(self, shared: &Shared) {
        if shared.feeds.is_over() {
            return;
        }
        if let Some(replication) = &shared.replication {
            replication.leave(shared, self.replica, self.feed);
        }
    }
}
