//! Telling the shards of a cache what was read without them.

use kelix_fabric::{Mailbox, RemoteMemory};
use kelix_types::{KeyHash, Location, TableId};
use kelix_wire::{Op, RequestHead};

use super::Transport;

impl<F: RemoteMemory + Mailbox> Transport<F> {
    /// Takes note that an item of a table without order was read, for a shard that wants to know.
    #[inline(always)]
    pub(super) fn hint(&mut self, station: usize, table: TableId, location: Location) {
        let Some(hints) = &mut self.hints else { return };
        // What was read at the primary of a mirror is told to the mirror, which passes it on.
        let shard = station % self.shards.len();
        if !table.kind().is_ordered() && hints.note(shard, location) {
            self.tell(shard);
        }
    }

    /// The same where only the key's hash is known.
    pub(super) fn hint_of(&mut self, hash: KeyHash, location: Option<Location>) {
        let shard = self.server.view.shard(hash);
        if let (Some(hints), Some(location)) = (&mut self.hints, location) {
            if hints.note(shard, location) {
                self.tell(shard);
            }
        }
    }

    /// Tells a shard what was read, unless too much is under way: then it waits.
    #[cold]
    fn tell(&mut self, shard: usize) {
        // Faults show when somebody waits for an answer.
        let _ = self.poll_replies();
        let Some(body) = self.hints.as_mut().and_then(|hints| hints.take(shard)) else { return };
        let head = RequestHead::new(Op::Used, 0, TableId::CATALOGUE);
        let posted = self.post(shard, head, &[], &body, false).ok();
        if posted.is_some() {
            self.send(shard);
        }
        let hints = self.hints.as_mut().expect("told of");
        hints.sent(shard, posted.map(|request| request.0), body);
    }
}
