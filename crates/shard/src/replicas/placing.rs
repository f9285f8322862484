//! What a feed does more for a replica: it asks where all has come, and what the replica has counts.
//!
//! ```text
//! copying -> following: asked once -> has answered -> required -> shards have heard so -> covers -> ...
//! ```

use std::collections::VecDeque;

use kelix_image::Committed;
use kelix_log::{Gatherer, LogState, Reader, ShardLog};
use kelix_types::mark;
use kelix_wire::control::StreamPosition;
use kelix_wire::feed::{FeedCut, FeedPlaced, FeedPlacing};

use super::replication::{Primary, Replication, Resumption};

/// Whether a cut may be told, where it waits for these logs of all shards, or of none. What stands in the
/// streams may count at once. A log that has failed is waited for no more: those who read at the primary do
/// not, either.
pub fn counts(logs: &[ShardLog], cut: &FeedCut) -> bool {
    let mut shards = logs.iter().zip(&cut.sequences);
    shards.all(|(log, sequence)| {
        log.durable() >= *sequence || log.counts_at_once() || log.state() == LogState::Failed
    })
}

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
pub struct PlacedEnd {
    /// The last record.
    pub record: Committed,
    /// The words of the stream before its end.
    pub position: u64,
}

impl PlacedEnd {
    /// Of what was taken out of a stream.
    pub fn of(gatherer: &Gatherer) -> PlacedEnd {
        PlacedEnd { record: gatherer.last(), position: gatherer.position() }
    }
}

/// Where records end that a replica was told, and when it was.
struct Told {
    number: u64,
    ends: Vec<PlacedEnd>,
    since_ns: u64,
}

/// The replica that a feed is for.
pub struct Placing {
    replica: (u64, usize),
    feed: u64,
    number: u64,
    asked_ns: u64,
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
    pub fn new(replication: &Replication, replica: (u64, usize), now_ns: u64) -> Placing {
        Placing {
            replica,
            feed: replication.number_feed(),
            number: 0,
            asked_ns: now_ns,
            under_way: VecDeque::new(),
            placed: None,
            is_near: false,
            holds: Vec::new(),
            reads_streams: false,
            joining: Joining::No,
        }
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
        if self.reads_streams {
            mark!("replica left to the streams");
        }
        self.reads_streams
    }

    /// Of a replica that goes on behind its position, if that can be: the words that it is told first of each
    /// shard, and what comes behind them. It counts from then on.
    pub fn resume(
        &mut self,
        (replication, primary): (&Replication, &impl Primary),
        position: &StreamPosition,
    ) -> Option<(Vec<Vec<u64>>, Vec<Gatherer>)> {
        let Resumption { words, gatherers, holds } =
            replication.resume(primary, self.replica, self.feed, position)?;
        (self.holds, self.joining) = (holds, Joining::Yes);
        Some((words, gatherers))
    }

    /// What is asked behind all that was told so far, which ends there.
    pub fn ask(&mut self, ends: Vec<PlacedEnd>, now_ns: u64) -> FeedPlacing {
        self.number += 1;
        let sequences = ends.iter().map(|end| end.record.record).collect();
        self.asked_ns = now_ns;
        self.under_way.push_back(Told { number: self.number, ends, since_ns: now_ns });
        FeedPlacing { number: self.number, sequences }
    }

    /// All has come that was told before a question with this number. `false`: there is none.
    pub fn take(
        &mut self,
        (replication, primary): (&Replication, &impl Primary),
        FeedPlaced { number, is_near }: FeedPlaced,
    ) -> bool {
        let count = self.under_way.iter().take_while(|told| told.number <= number).count();
        let Some(last) = self.under_way.drain(..count).next_back() else { return false };
        self.is_near = is_near;
        let has: Vec<Committed> = last.ends.iter().map(|end| end.record).collect();
        let counts = !matches!(self.joining, Joining::No);
        if counts && !replication.place(primary, self.replica, self.feed, (&has, is_near)) {
            self.joining = Joining::No;
        }
        // Not before: what is let go here is found there.
        for (hold, end) in self.holds.iter_mut().zip(&last.ends) {
            hold.pass_to(end.position);
        }
        self.placed = Some(has);
        true
    }

    /// A shard holds what stands in its stream behind a record.
    pub fn note_held(
        &mut self,
        (replication, primary): (&Replication, &impl Primary),
        (shard, hold): (usize, Reader),
        sequence: u64,
    ) {
        let Joining::Covering(held) = &mut self.joining else { return };
        held[shard] = Some((sequence, hold));
        if held.iter().any(Option::is_none) {
            return;
        }
        let (covers, holds) = held.drain(..).flatten().unzip();
        self.holds = holds;
        self.joining = Joining::Yes;
        replication.cover(primary, self.replica, self.feed, covers);
    }

    /// Begins to have it count, if that can be: then `hold` is to have each shard hold what stands in its stream
    /// from then on ([`crate::Shard::hold`]), of which [`Placing::note_held`] is to be told.
    pub fn join(&mut self, (replication, primary): (&Replication, &impl Primary), hold: impl FnMut(usize)) {
        let (Joining::No, Some(placed)) = (&self.joining, &self.placed) else { return };
        let has = (placed.clone(), self.is_near);
        if !replication.require(primary, self.replica, self.feed, has) {
            return;
        }
        let shards = primary.shards()[self.replica.1];
        self.joining = Joining::Covering((0..shards).map(|_| None).collect());
        (0..shards).for_each(hold);
    }

    /// Whether it counts, and has left a question unanswered for longer than that.
    pub fn is_late(&self, now_ns: u64, patience_ns: u64) -> bool {
        let is_old = |told: &Told| now_ns.saturating_sub(told.since_ns) > patience_ns;
        !matches!(self.joining, Joining::No) && self.under_way.front().is_some_and(is_old)
    }

    /// Whether nothing was asked for so long: so each side knows that the other one is there.
    pub fn is_quiet(&self, now_ns: u64, quiet_ns: u64) -> bool {
        self.under_way.is_empty() && now_ns.saturating_sub(self.asked_ns) >= quiet_ns
    }

    /// The feed has ended. With the server it ends for a successor to be chosen out of the view as it is.
    pub fn end(self, (replication, primary): (&Replication, &impl Primary)) {
        if !primary.is_over() {
            replication.leave(primary, self.replica, self.feed);
        }
    }
}
