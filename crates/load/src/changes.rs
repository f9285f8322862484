//! Whether a load would find anything that the last one did not.
//!
//! ```text
//!  state of the source ----> snapshot ----> rows       what is changed after the state was asked for makes another state
//! ```
//!
//! The state is asked for before the snapshot is taken, never in it or behind it. So rows are at least as new
//! as the state that is kept with them: a change between the two is loaded now, and once more when the next
//! state shows it. A state out of the snapshot itself would do for queries that see tables and nothing else;
//! but statistics and the like are of the moment in which they are read, so that a query of those could tell
//! of a change that the snapshot does not have, and that would never be loaded.
//!
//! A load is left out only if all of it is as it was: map, source, and what the server has in force.

use std::fmt::Display;

use xxhash_rust::xxh3::Xxh3;

use crate::findings::{Finding, Findings};
use crate::map::Map;
use crate::problem::Problem;
use crate::store::InForce;

/// What a source is like: another text whenever its rows have changed.
pub(crate) type State = String;

/// What was there when the last load that succeeded began, to be handed to the next one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Last {
    pub(crate) map: String,
    pub(crate) state: State,
    pub(crate) in_force: InForce,
}

/// The answer to a query, of which only a hash is kept, however long it is.
#[derive(Default)]
pub(crate) struct Answer {
    hash: Xxh3,
    bytes: u64,
}

impl Answer {
    /// Adds some bytes of it.
    pub fn add(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// Adds a value, so that it is told apart from the next one.
    pub fn add_value(&mut self, bytes: Option<&[u8]>) {
        self.add(&bytes.map_or(u64::MAX, |bytes| bytes.len() as u64).to_le_bytes());
        self.add(bytes.unwrap_or_default());
    }

    /// What came, in short.
    pub fn state(&self) -> State {
        format!("{:032x} of {} bytes", self.hash.digest128(), self.bytes)
    }
}

/// What is wrong with the query of the map.
pub(crate) fn wrong(text: impl Display) -> Problem {
    let mut findings = Findings::new();
    findings.add(|| Finding {
        source: "the map, changed".into(),
        place: None,
        column: None,
        text: text.to_string(),
    });
    Problem::Map(findings)
}

/// Fails if a map has a query and the source takes none.
pub(crate) fn no_query(map: &Map) -> Result<(), Problem> {
    match map.changed {
        None => Ok(()),
        Some(_) => Err(wrong(
            "files take no query: whether they have changed is told by their sizes and times; leave it out",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_differ_if_a_value_does() {
        let state = |values: &[Option<&str>]| {
            let mut answer = Answer::default();
            values.iter().for_each(|value| answer.add_value(value.map(str::as_bytes)));
            answer.state()
        };
        let answers: [&[Option<&str>]; 6] =
            [&[], &[None], &[Some("")], &[Some("ab")], &[Some("a"), Some("b")], &[Some("a"), None]];
        for (number, answer) in answers.iter().enumerate() {
            assert_eq!(state(answer), state(answer));
            answers[..number].iter().for_each(|other| assert_ne!(state(answer), state(other)));
        }
    }
}
