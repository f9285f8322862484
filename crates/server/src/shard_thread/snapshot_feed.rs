//! What a shard does for whoever takes a snapshot: says where its memory is, lets its stream be followed, and
//! in the end tells what it knows beside its memory.

use std::time::{Duration, Instant};

use kelix_types::Place;
use kelix_types::limits::GRANULE_BYTES;

use super::ShardThread;
use crate::moment::Moment;
use crate::snapshots::{Follow, PATIENCE, Told};

/// How long is waited for room in the stream before it is looked for again.
const ROUND: Duration = Duration::from_millis(1);

impl ShardThread {
    /// Tells where memory is, and lets all changes from now on be read.
    pub(super) fn begin_to_tell(&mut self, follow: Follow) {
        let reader = self.shard.follow(follow.lag);
        let sequence = self.shard.sequence();
        let (stretches, map) = (self.stretches(), self.shard.image().map().clone());
        // Nobody may be there any more: then the reader is gone, too.
        let _ = follow.tell.send(Told::Began { which: follow.which, sequence, stretches, map, reader });
        self.following = Some(follow);
    }

    /// Comes to the moment of the snapshot with all others, and tells what there is.
    pub(super) fn cut(&mut self, moment: &Moment) {
        if moment.is_last {
            self.drain();
        }
        let met = moment.meet();
        self.tell(met, moment.is_last);
    }

    /// Tells what there is at the moment of a snapshot, if all have met there.
    fn tell(&mut self, met: bool, is_last: bool) {
        let following = self.following.take();
        if let Some(Follow { which, tell, .. }) = following.filter(|_| met && self.tell_all()) {
            let (books, kept) = (self.shard.books().words(), self.shard.kept());
            let (sequence, position) = (self.shard.sequence(), self.shard.position());
            let _ = tell.send(Told::Ended { which, sequence, books, kept, position });
        }
        self.is_over = is_last;
    }

    /// Stretches of its memory that hold something.
    pub(super) fn stretches(&self) -> Vec<(Place, u64)> {
        let Some(follower) = self.shard.follower() else { return self.shard.image().stretches() };
        // A mirror does not know what stands apart from slots, but what was ever stored to.
        let mut stretches = Vec::new();
        for segment in self.segments.list().into_iter().filter(|segment| follower.has_segment(segment.first))
        {
            let first = segment.first as u64 * GRANULE_BYTES;
            stretches.extend(segment.memory.used().into_iter().map(|(at, bytes)| (Place(first + at), bytes)));
        }
        stretches
    }

    // ---- of a mirror's ----

    /// A snapshot waits for it.
    pub fn awaits_cut(&self) -> bool {
        self.awaited.is_some()
    }

    /// It is at the moment of the snapshot, as another one of its thread is about to be.
    pub fn arrive_at_cut(&mut self) {
        self.awaited.iter().for_each(|moment| moment.arrive());
    }

    /// It is, as all others of its thread, and waits for those of other threads.
    pub fn meet_at_cut(&mut self) -> bool {
        self.awaited.as_ref().is_some_and(|moment| moment.meet())
    }

    /// Tells what there is, if all have met.
    pub fn tell_cut(&mut self, met: bool) {
        let is_last = self.awaited.take().is_some_and(|moment| moment.is_last);
        self.tell(met, is_last);
    }

    /// It is the last moment: nothing more is done.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Waits until all that has changed is in the stream.
    pub(super) fn tell_all(&mut self) -> bool {
        let began = Instant::now();
        while !self.shard.seal() {
            if began.elapsed() > PATIENCE {
                return false;
            }
            std::thread::sleep(ROUND);
        }
        true
    }
}
