//! What a shard does for whoever feeds a mirror.

use std::sync::mpsc::Sender;

use kelix_image::Committed;
use kelix_log::Gatherer;
use kelix_wire::feed::FeedBooks;

use super::ShardThread;
use crate::feed::Fed;

impl ShardThread {
    /// Tells what it keeps beside its memory and where that is, and lets all changes from now on be taken.
    pub(super) fn begin_feed(&mut self, shard: usize, to_replica: bool, tell: &Sender<Fed>) {
        let reader = self.shard.feed(&self.batches);
        let sequence = self.shard.sequence();
        let last = Committed { record: sequence, ..self.shard.end() };
        // Made here, before the first record that it takes is sealed.
        let gatherer = Box::new(Gatherer::new(reader, &self.batches, last));
        let books = FeedBooks { sequence, books: self.shard.books().words(), kept: self.shard.kept() };
        let histories = if to_replica { self.shard.histories() } else { Vec::new() };
        // Nobody may be there any more: then the reader is gone, too.
        let stretches = self.stretches();
        let _ = tell.send(Fed::Began { shard, books, histories, stretches, gatherer });
    }

    /// Holds what stands in the stream, for a replica that may look for it there.
    pub(super) fn hold(&mut self, shard: usize, tell: &Sender<Fed>) {
        let (hold, sequence) = self.shard.hold();
        let _ = tell.send(Fed::Holds { shard, sequence, hold });
    }

    /// Takes note of what clients of a mirror have read there.
    pub(super) fn hear(&mut self, shard: usize, locations: &[u64], tell: &Sender<(usize, u64)>) {
        let _ = tell.send((shard, self.shard.hear(locations)));
    }

    /// Tells which record has all that its memory holds.
    pub(super) fn tell_covers(&self, shard: usize, tell: &Sender<Fed>) {
        let _ = tell.send(Fed::Covers { shard, sequence: self.shard.covers() });
    }
}
