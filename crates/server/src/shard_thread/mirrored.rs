//! What the thread of a mirror asks of each of its shards. It runs all of them, and sleeps for all.

use std::os::fd::BorrowedFd;

use kelix_fabric::shm::MemfdSegments;
use kelix_fabric::{Clock, Waiter, WorkQueue};
use kelix_image::ImageState;
use kelix_image::words::full_fence;
use kelix_log::{LogSleep, Record};
use kelix_shard::{Follower, Shard};
use kelix_types::Result;

use super::{LoggedSegments, REPORT, ShardThread, cpu_time};
use crate::mirror::Shadow;

/// What a mirror's shard has followed, for another image, which it is shown in or goes on in. `segments` are
/// all of the shard that shows it.
pub(crate) fn what_is_shown(shard: Shard, segments: &MemfdSegments, number: usize) -> Option<Shadow> {
    let mut follower = shard.into_follower()?;
    // Segments of models stay with this image.
    let segments = segments.of_those(|first| follower.has_segment(first));
    follower.set_source(Box::new(LoggedSegments::new(segments.clone(), number)));
    Some(Shadow { segments, follower })
}

impl ShardThread {
    /// Does what has been asked for and what is due. Returns whether anything was asked for, and when
    /// something is due again.
    pub fn turn(&mut self) -> (bool, Option<u64>) {
        self.handle_commands();
        let now = self.now();
        let progress = self.step(now);
        if self.reported.elapsed() > REPORT {
            self.publish_report(cpu_time());
        }
        (progress.requests > 0, progress.next_ns)
    }

    /// Applies a record of the shard that is shown.
    pub fn apply(&mut self, record: &Record<'_>) -> Result<()> {
        let now_ns = self.endpoint.now_ns();
        self.shard.apply(record, now_ns)
    }

    /// Wakes whoever writes the log, if nobody else does for long; or at once, where somebody waits for the
    /// disk.
    pub fn wake_log(&self, waits: bool) {
        if let Some(log) = &self.log {
            // SYNC: between what was pushed and the load: the thread looks at the streams once more behind its
            // announcement.
            full_fence();
            match self.batches.announced() {
                LogSleep::Awake => {}
                LogSleep::Naps if !waits => {}
                LogSleep::Naps | LogSleep::Sleeps => log.wake(),
            }
        }
    }

    /// Whether what was applied has yet to find room in its stream.
    pub fn is_behind(&self) -> bool {
        self.shard.is_behind()
    }

    /// Tells readers as of when all is here, and until when it may be read without anything newer.
    pub fn set_fresh(&self, fresh_ns: u64, until_ns: u64) {
        self.shard.image().header().set_fresh(fresh_ns, until_ns);
    }

    /// What clients have read here that is to be passed up, if anything is.
    pub fn take_heard(&mut self) -> Option<Vec<u64>> {
        self.shard.take_heard()
    }

    /// That was answered, in this epoch of use.
    pub fn set_use_epoch(&mut self, epoch: u64) {
        self.shard.set_use_epoch(epoch);
    }

    /// Bytes of the memory that is shown.
    pub fn mirrored_bytes(&self) -> u64 {
        self.shard.follower().map_or(0, Follower::memory_bytes)
    }

    /// Says that the thread is about to sleep, so that whoever asks for something wakes it.
    pub fn announce_sleep(&mut self) {
        self.endpoint.announce_sleep();
    }

    /// Takes that back, and what woke it.
    pub fn wake_up(&mut self) {
        self.endpoint.look();
        self.endpoint.sleep(Some(0));
    }

    /// What is readable when somebody asks for something.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.endpoint.fd().expect("an endpoint of this host's")
    }

    /// The time by the clock by which things are due.
    pub fn now_ns(&self) -> u64 {
        self.endpoint.now_ns()
    }

    /// Gives up what it has followed, and the segments of that, for another image. Nobody who asks here is
    /// answered any more; who reads here goes on until the term is raised.
    pub fn give_up(self, number: usize) -> Option<Shadow> {
        what_is_shown(self.shard, &self.segments, number)
    }

    /// The last that it does.
    pub fn finish(&mut self) {
        self.publish_report(cpu_time());
        self.shard.image().header().set_state(ImageState::Stopped);
    }
}
