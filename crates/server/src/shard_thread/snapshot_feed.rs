//! What a shard does for whoever takes a snapshot: says where its memory is, lets its stream be followed, and
//! in the end tells what it knows beside its memory.

use std::time::{Duration, Instant};

use super::ShardThread;
use crate::snapshots::{Follow, Moment, PATIENCE, Told};

/// How long is waited for room in the stream before it is looked for again.
const ROUND: Duration = Duration::from_millis(1);

impl ShardThread {
    /// Tells where memory is, and lets all changes from now on be read.
    pub(super) fn begin_to_tell(&mut self, follow: Follow) {
        let reader = self.shard.follow(follow.lag);
        let sequence = self.shard.sequence();
        let (stretches, map) = (self.shard.image().stretches(), self.shard.image().map().clone());
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
        let following = self.following.take();
        if let Some(Follow { which, tell, .. }) = following.filter(|_| met && self.tell_all()) {
            let (books, kept) = (self.shard.image().books().words(), self.shard.kept());
            let (sequence, position) = (self.shard.sequence(), self.shard.position());
            let _ = tell.send(Told::Ended { which, sequence, books, kept, position });
        }
        self.is_over = moment.is_last;
    }

    /// Waits until all that has changed is in the stream.
    fn tell_all(&mut self) -> bool {
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
