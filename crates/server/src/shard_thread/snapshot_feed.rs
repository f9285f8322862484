//! What a shard tells whoever takes a snapshot: where its memory is, every change from then on, and in the
//! end what it knows beside.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::ShardThread;
use crate::snapshots::{AHEAD_MAX, Follow, Moment, PATIENCE, Told};

/// Words of notes that are told at once, so that not every request makes a message.
const NOTES_AT_ONCE: usize = 8 << 10;

impl ShardThread {
    /// Tells where memory is, and all changes from now on.
    pub(super) fn begin_to_tell(&mut self, follow: Follow) {
        let image = self.shard.image();
        image.keep_journal(true);
        let (stretches, map) = (image.stretches(), image.map().clone());
        let _ = follow.tell.send(Told::Began { which: follow.which, stretches, map });
        self.following = Some(follow);
    }

    /// Tells changes, once there are many.
    pub(super) fn tell_notes(&mut self) {
        if self.shard.image().journal_words() >= NOTES_AT_ONCE {
            self.tell_all_notes();
        }
    }

    fn tell_all_notes(&mut self) {
        let Some(Follow { which, tell, ahead, waits }) = &self.following else { return };
        let notes = self.shard.image().take_journal();
        let began = Instant::now();
        while *waits && ahead.load(Ordering::SeqCst) + notes.len() > AHEAD_MAX && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        if ahead.fetch_add(notes.len(), Ordering::SeqCst) > AHEAD_MAX {
            let _ = tell.send(Told::GaveUp);
            return self.tell_no_more();
        }
        if !notes.is_empty() && tell.send(Told::Notes { which: *which, notes }).is_err() {
            // Nobody takes it any more.
            self.tell_no_more();
        }
    }

    fn tell_no_more(&mut self) {
        self.shard.image().keep_journal(false);
        self.following = None;
    }

    /// Comes to the moment of the snapshot with all others, and tells what there is.
    pub(super) fn cut(&mut self, moment: &Moment) {
        if moment.is_last {
            self.drain();
        }
        let met = moment.meet();
        self.tell_all_notes();
        if let Some(Follow { which, tell, .. }) = self.following.as_ref().filter(|_| met) {
            let (books, kept) = (self.shard.image().books().words(), self.shard.kept());
            let _ = tell.send(Told::Ended { which: *which, books, kept });
        }
        self.tell_no_more();
        self.is_over = moment.is_last;
    }
}
