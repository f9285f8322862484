//! A shard that does nothing, while another process goes on with what it has, or turns out not to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use super::ShardThread;

/// How long the thread sleeps between two looks whether it is to go on. Nobody is served meanwhile.
const ROUND: Duration = Duration::from_micros(500);

impl ShardThread {
    /// Tells its last record and does nothing more: all that it has answered is in records up to that one,
    /// and whatever arrives from here on it neither does nor answers.
    pub(super) fn stand_still(
        &mut self,
        shard: usize,
        still: &AtomicBool,
        tell: &Sender<(usize, Option<u64>)>,
    ) {
        let sequence = self.tell_all().then(|| self.shard.sequence());
        // Whoever asked may have stopped waiting, and lets the shard go on.
        let _ = tell.send((shard, sequence));
        // A server that is told to end meanwhile ends once it is known which of the two goes on.
        while still.load(Ordering::SeqCst) && self.authority.in_force() {
            std::thread::sleep(ROUND);
        }
        // What has arrived is for the successor.
        self.is_over |= !self.authority.in_force();
    }
}
