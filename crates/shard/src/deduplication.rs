//! Writes that are asked for again are done once.
//!
//! A client that wants its writes to be certain counts those to each shard, and gives itself a number. When
//! its connection breaks it connects again under the same number, and asks once more for what was not
//! answered. The shard knows what it answered to the last [`SEQUENCES_KEPT`] writes of such a client, also of
//! some that have gone, and answers a write that it knows without doing it.
//!
//! A client has one connection at a time: with the second the first ends, and what it still had to say is
//! never looked at. So a write that is asked for again and is not known was never done, and never will be by
//! its first request. Where too many others have come and gone in between, the shard has forgotten the
//! client, knows that, and says so.

use std::collections::VecDeque;

use kelix_types::limits::{CALLERS_REMEMBERED, SEQUENCES_KEPT};
use kelix_wire::control::Caller;
use kelix_wire::{ReplyHead, Sequence, Status};

/// Words of an answer: the number of the write, status, version, location.
const ANSWER_WORDS: usize = 4;

/// What is known of a client that may ask again.
pub(crate) struct History {
    number: u64,
    /// Of writes from this one on everything is known.
    complete_from: u64,
    /// What was answered, a write with sequence S at S modulo their number. Nothing before the first.
    answers: Vec<Option<(u64, ReplyHead)>>,
    /// What it may know of dropped tables: see `crate::datasets::numbers`. `None`: it is new.
    pub knows: Option<u64>,
}

impl History {
    fn of(caller: Caller) -> History {
        let complete_from = if caller.again { u64::MAX } else { 0 };
        let knows = caller.again.then_some(0);
        History { number: caller.number, complete_from, answers: Vec::new(), knows }
    }

    /// One that a follower was told of. Its client has gone, and knows no table that may be another now.
    pub fn restored(number: u64, complete_from: u64) -> History {
        History { number, complete_from, answers: Vec::new(), knows: Some(0) }
    }

    /// The client's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether a write would be answered alike out of both, but for the request's own number: for tests.
    pub fn answers_as(&self, other: &History) -> bool {
        let all = |history: &History| -> Vec<_> {
            let known = history.answers.iter().flatten();
            known.map(|(number, answer)| (*number, answer.status, answer.version, answer.location)).collect()
        };
        all(self) == all(other)
    }

    /// What a follower is told when it begins.
    pub fn caller_words(&self) -> [u64; 2] {
        [self.number, self.complete_from]
    }

    /// What it is told of an answer.
    pub fn answer_words(&self, number: u64, answer: &ReplyHead) -> [u64; 5] {
        [self.number, number, answer.status as u64, answer.version, answer.location]
    }

    /// Keeps an answer that a follower was told of. `None`: it makes no sense.
    pub fn note_words(&mut self, words: &[u64]) -> Option<()> {
        let &[number, status, version, location] = words else { return None };
        let status = Status::of_number(u8::try_from(status).ok()?)?;
        self.complete_from = self.complete_from.min(number);
        self.note(number, ReplyHead { id: 0, status, version, location });
        Some(())
    }

    /// All of it, in words that [`History::take_words`] reads.
    pub fn put_words(&self, words: &mut Vec<u64>) {
        let answers = self.answers.iter().flatten();
        words.extend([self.number, self.complete_from, answers.clone().count() as u64]);
        words.extend(answers.flat_map(|(number, answer)| {
            let [_, rest @ ..] = self.answer_words(*number, answer);
            rest
        }));
    }

    /// Takes one off words. `None`: they make no sense.
    pub fn take_words(words: &mut &[u64]) -> Option<History> {
        let (&[number, complete_from, count], mut rest) = words.split_first_chunk()?;
        let mut history = History::restored(number, complete_from);
        for _ in 0..count {
            let answer;
            (answer, rest) = rest.split_at_checked(ANSWER_WORDS)?;
            history.note_words(answer)?;
        }
        *words = rest;
        Some(history)
    }

    /// Whether it is that of a client.
    pub fn is_of(&self, caller: Caller) -> bool {
        self.number == caller.number
    }

    fn place(sequence: u64) -> usize {
        sequence as usize % SEQUENCES_KEPT
    }

    /// What was answered to a write. `Err`: that is not known.
    pub fn find(&mut self, sequence: Sequence) -> Result<Option<ReplyHead>, ()> {
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

    /// Keeps what a write was answered.
    pub fn note(&mut self, number: u64, answer: ReplyHead) {
        if self.answers.is_empty() {
            self.answers.resize(SEQUENCES_KEPT, None);
        }
        self.answers[History::place(number)] = Some((number, answer));
    }
}

/// What is known of clients that have gone and may come again, those who went last at the end.
#[derive(Default)]
pub(crate) struct Departed(VecDeque<History>);

impl Departed {
    pub fn iter(&self) -> impl Iterator<Item = &History> {
        self.0.iter()
    }

    /// What is known of a client that connects.
    pub fn take(&mut self, caller: Caller) -> History {
        let known = self.0.iter().position(|history| history.is_of(caller));
        known.and_then(|index| self.0.remove(index)).unwrap_or_else(|| History::of(caller))
    }

    /// A client has gone, and may come again. Returns the one that is forgotten for it.
    pub fn remember(&mut self, history: History) -> Option<History> {
        self.0.push_back(history);
        if self.0.len() > CALLERS_REMEMBERED { self.0.pop_front() } else { None }
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
