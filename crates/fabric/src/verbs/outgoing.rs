//! Where words of WRITEs stand until the device has sent them.

use std::io::Result;
use std::sync::Arc;

use super::device::{Access, Domain, Region, Remote};
use super::lane::{Chain, Work};

/// Words of the first memory; more is taken when it is needed.
const WORDS_FIRST: usize = 1 << 10;
/// Words beyond which nothing more is taken: a side that has so much on its way is not listened to.
const WORDS_MAX: usize = 1 << 18;

/// Words of a WRITE that were not given to a chain yet.
struct Extent {
    to: Remote,
    at: usize,
    count: usize,
}

/// A ring of registered memory. What was placed first is sent and done first.
pub(super) struct Outgoing {
    domain: Arc<Domain>,
    memory: Region,
    words: usize,
    /// Where the next words go, and where those begin that are not known to be sent; all laps together.
    head: u64,
    tail: u64,
    /// What was given to chains: done once the user's requests of this number are, with all words before this
    /// one.
    given: std::collections::VecDeque<(u64, u64)>,
    /// Memory that was too small, and from which number of requests on nobody needs it.
    old: Vec<(Region, u64)>,
    waiting: Vec<Extent>,
}

impl Outgoing {
    pub fn new(domain: &Arc<Domain>) -> Result<Outgoing> {
        Ok(Outgoing {
            domain: domain.clone(),
            memory: Region::private(domain, WORDS_FIRST, Access::Source)?,
            words: WORDS_FIRST,
            head: 0,
            tail: 0,
            given: Default::default(),
            old: Vec::new(),
            waiting: Vec::new(),
        })
    }

    /// Takes words that are to be sent. Neighbours become one WRITE. `done`, `next`: how many of the user's
    /// requests are complete, and the number of its next one. `false`: there is no room and there is to be
    /// none.
    pub fn place(&mut self, to: Remote, words: &[u64], (done, next): (u64, u64)) -> bool {
        let Some(at) = self.room(words.len(), done).or_else(|| self.grow(words.len(), done, next)) else {
            return false;
        };
        self.memory.words().copy_in(at, words);
        self.head += words.len() as u64;
        match self.waiting.last_mut() {
            Some(last) if last.to.word(last.count) == to && last.at + last.count == at => {
                last.count += words.len()
            }
            _ => self.waiting.push(Extent { to, at, count: words.len() }),
        }
        true
    }

    /// A stretch of free memory.
    fn room(&mut self, count: usize, done: u64) -> Option<usize> {
        while let Some((_, end)) = self.given.front().copied().filter(|(number, _)| *number <= done) {
            self.tail = end;
            self.given.pop_front();
        }
        self.old.retain(|(_, number)| *number > done);
        let at = (self.head % self.words as u64) as usize;
        let skip = if at + count > self.words { self.words - at } else { 0 };
        if self.head + (skip + count) as u64 > self.tail + self.words as u64 {
            return None;
        }
        self.head += skip as u64;
        Some(if skip > 0 { 0 } else { at })
    }

    /// Memory that is twice as large, for what comes from now on.
    #[cold]
    fn grow(&mut self, count: usize, done: u64, next: u64) -> Option<usize> {
        let held: usize = self.old.iter().map(|(region, _)| region.words().count()).sum();
        let words = (self.words * 2).max(count.next_power_of_two());
        // What is waiting still stands in the old memory.
        if held + words > WORDS_MAX || !self.waiting.is_empty() {
            return None;
        }
        let memory = Region::private(&self.domain, words, Access::Source).ok()?;
        self.old.push((std::mem::replace(&mut self.memory, memory), next));
        (self.words, self.head, self.tail) = (words, 0, 0);
        self.given.clear();
        self.room(count, done)
    }

    /// Gives what is waiting to a chain whose next request will have this number.
    pub fn give(&mut self, chain: &mut Chain, next: u64) {
        if self.waiting.is_empty() {
            return;
        }
        let last = next + self.waiting.len() as u64;
        for Extent { to, at, count } in self.waiting.drain(..) {
            chain.push(Work::Write, self.memory.part(at, count), to);
        }
        self.given.push_back((last, self.head));
    }
}
