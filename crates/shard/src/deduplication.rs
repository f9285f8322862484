//! Writes that are asked for again are done once.
//!
//! A client that wants its writes to be certain counts those to each shard, and gives itself a number. When its connection
//! breaks it connects again under the same number, and asks once more for what was not answered. The shard knows what it
//! answered to the last [`SEQUENCES_KEPT`] writes of such a client, also of some that have gone, and answers a write that
//! it knows without doing it.
//!
//! A client has one connection at a time: with the second the first ends, and what it still had to say is never looked at.
//! So a write that is asked for again and is not known was never done, and never will be by its first request. Where too
//! many others have come and gone in between, the shard has forgotten the client, knows that, and says so.

use kelix_fabric::{Fabric, PeerId};
use kelix_types::limits::{CALLERS_REMEMBERED, SEQUENCES_KEPT};
use kelix_types::mark;
use kelix_wire::control::Caller;
use kelix_wire::{FrameBuffer, Reply, ReplyHead, Sequence, Status, encode_reply};

use crate::shard::{Shard, Task};

/// What is known of a client that may ask again.
pub(crate) struct History {
    number: u64,
    /// Of writes from this one on everything is known.
    complete_from: u64,
    /// What was answered, a write with sequence S at S modulo their number. Nothing before the first.
    answers: Vec<Option<(u64, ReplyHead)>>,
    /// What it may know of dropped tables: see [`crate::numbers`]. `None`: it is new.
    pub knows: Option<u64>,
}

impl History {
    fn of(caller: Caller) -> History {
        let complete_from = if caller.again { u64::MAX } else { 0 };
        let knows = caller.again.then_some(0);
        History { number: caller.number, complete_from, answers: Vec::new(), knows }
    }

    fn place(sequence: u64) -> usize {
        sequence as usize % SEQUENCES_KEPT
    }

    /// What was answered to a write. `Err`: that is not known.
    fn find(&mut self, sequence: Sequence) -> Result<Option<ReplyHead>, ()> {
        let Sequence { number, again } = sequence;
        if again && number < self.complete_from {
            return Err(());
        }
        self.complete_from = self.complete_from.min(number);
        match self.answers.get(History::place(number)) {
            Some(Some((known, answer))) if *known == number => Ok(Some(*answer)),
            Some(Some((known, _))) if *known > number => Err(()),
            _ => Ok(None),
        }
    }

    fn note(&mut self, number: u64, answer: ReplyHead) {
        if self.answers.is_empty() {
            self.answers.resize(SEQUENCES_KEPT, None);
        }
        self.answers[History::place(number)] = Some((number, answer));
    }
}

impl Shard {
    /// What is known of a client that connects, and the connection that it had until now, which is over.
    pub(crate) fn history_of(&mut self, caller: Caller) -> (History, Option<PeerId>) {
        let has_number = |history: &History| history.number == caller.number;
        let connected = self
            .clients
            .iter()
            .position(|client| {
                client.as_ref().and_then(|client| client.history.as_ref()).is_some_and(has_number)
            })
            .map(|index| PeerId(index as u32));
        if let Some(peer) = connected {
            mark!("client connected anew before its old connection was over");
            self.leave(peer);
        }
        let known = self.gone.iter().position(has_number).and_then(|index| self.gone.remove(index));
        (known.unwrap_or_else(|| History::of(caller)), connected)
    }

    /// A client has gone, and may come again.
    pub(crate) fn remember(&mut self, history: History) {
        if self.gone.len() == CALLERS_REMEMBERED {
            self.gone.pop_front();
        }
        self.gone.push_back(history);
    }

    /// Answers a write that was answered before. `false`: it is to be done.
    pub(crate) fn answer_again(
        &mut self,
        fabric: &mut impl Fabric,
        task: &Task,
        frame: &mut FrameBuffer,
    ) -> bool {
        let Some(sequence) = task.shape.head.sequence else { return false };
        let client = self.clients[task.peer.0 as usize].as_mut();
        let Some(history) = client.and_then(|client| client.history.as_mut()) else { return false };
        let known = match history.find(sequence) {
            Ok(None) => {
                if sequence.again {
                    mark!("write asked for again that had not been done");
                }
                return false;
            }
            Ok(Some(answer)) => {
                mark!("write asked for again that had been done");
                self.counters.repeated += 1;
                answer
            }
            Err(()) => ReplyHead { id: 0, status: Status::Forgotten, version: 0, location: 0 },
        };
        encode_reply(frame, ReplyHead { id: task.shape.head.id, ..known });
        self.reply(fabric, task.peer, frame);
        true
    }

    /// Sends the answer to a request, and keeps it where it may be asked for again.
    pub(crate) fn answer(&mut self, fabric: &mut impl Fabric, task: &Task, frame: &mut FrameBuffer) {
        if let Some(sequence) = task.shape.head.sequence {
            let client = self.clients[task.peer.0 as usize].as_mut();
            if let Some(history) = client.and_then(|client| client.history.as_mut()) {
                let reply = Reply::parse(frame.payload()).expect("an answer of this shard");
                history.note(sequence.number, reply.head);
            }
        }
        self.reply(fabric, task.peer, frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(version: u64) -> ReplyHead {
        ReplyHead { id: 7, status: Status::Ok, version, location: 0 }
    }

    fn asked(number: u64, again: bool) -> Sequence {
        Sequence { number, again }
    }

    #[test]
    fn the_last_answers_are_known() {
        let mut history = History::of(Caller { number: 5, again: false });
        let kept = SEQUENCES_KEPT as u64;
        for number in 1..=2 * kept {
            assert_eq!(history.find(asked(number, false)), Ok(None));
            history.note(number, answer(number));
        }
        for number in kept + 1..=2 * kept {
            assert_eq!(history.find(asked(number, true)), Ok(Some(answer(number))));
        }
        // The answers before those made room; whether such a write was done must not be guessed.
        assert_eq!(history.find(asked(kept, true)), Err(()));
    }

    #[test]
    fn a_write_that_never_came_is_done() {
        let mut history = History::of(Caller { number: 5, again: false });
        history.note(2, answer(2));
        assert_eq!(history.find(asked(1, true)), Ok(None));
        assert_eq!(history.find(asked(3, true)), Ok(None));
    }

    #[test]
    fn who_was_forgotten_is_told_so() {
        let mut history = History::of(Caller { number: 5, again: true });
        assert_eq!(history.find(asked(41, true)), Err(()));
        // What it has never asked before is known from the start.
        assert_eq!(history.find(asked(43, false)), Ok(None));
        history.note(43, answer(43));
        assert_eq!(history.find(asked(42, true)), Err(()));
        assert_eq!(history.find(asked(43, true)), Ok(Some(answer(43))));
        assert_eq!(history.find(asked(44, true)), Ok(None));
    }
}
