//! A client over TCP: READs, as many of them under way as a session has.

use std::collections::VecDeque;

use kelix_fabric::{Endpoint, PeerId, Read, ReadState, RemoteMemory, Sampled, WorkQueue};
use kelix_types::Guardian;
use kelix_types::limits::{READ_EPOCHS_MAX, SESSION_READS_MAX};

use super::Cost;
use super::cache::{Cache, Link};
use super::node::{Child, LEAF_WORDS, find_slot, missing, slot_words};
use super::server::{TERM, Top};

const PEER: PeerId = PeerId(0);
/// READs between two doorbells: while this side goes on to the next, the other can begin. As in a session.
const READS_A_BELL: usize = 128;

/// The client.
pub(crate) struct Remote {
    endpoint: Endpoint,
    top: Top,
    cache: Cache,
    /// READs under way, in the order of their posting, which is that of their ends.
    under_way: VecDeque<(Read, Step)>,
    free: Vec<u32>,
    node: Vec<u64>,
    /// READs posted so far.
    posted: usize,
    pub cost: Cost,
}

/// What a READ under way is for.
#[derive(Clone, Copy)]
struct Step {
    /// Which number of the batch.
    index: usize,
    child: Child,
    /// Levels above the child, and who names it.
    level: usize,
    link: Option<Link>,
}

impl Remote {
    pub(super) fn new(mut endpoint: Endpoint, top: Top, cache_bytes: usize) -> Result<Remote, String> {
        let cache = Cache::new(top, cache_bytes, |place, into| {
            let read = Read { peer: PEER, place, words: into.len(), tag: 0 };
            endpoint.post_read(read);
            loop {
                endpoint.progress();
                match poll(&mut endpoint, read, into)? {
                    Some(sampled) => return check(into[0], sampled),
                    None => continue,
                }
            }
        })?;
        Ok(Remote {
            endpoint,
            top,
            cache,
            under_way: VecDeque::new(),
            free: (0..SESSION_READS_MAX as u32).collect(),
            node: vec![0; top.shape.words.max(LEAF_WORDS)],
            posted: 0,
            cost: Cost::default(),
        })
    }

    /// Bytes of its copies.
    pub fn cache_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// Gets the values of numbers, all of which are there.
    pub fn get_many(&mut self, numbers: &[u64], values: &mut Vec<u64>) -> Result<(), String> {
        values.clear();
        values.resize(numbers.len(), 0);
        let mut begun = 0;
        loop {
            while begun < numbers.len() && !self.free.is_empty() {
                let (index, child) = (begun, self.cache.root);
                begun += 1;
                self.go_down(numbers[index], Step { index, child, level: 0, link: None });
            }
            let Some((read, _)) = self.under_way.front() else { break };
            let mut node = std::mem::take(&mut self.node);
            let taken = poll(&mut self.endpoint, *read, &mut node[..read.words])?;
            if let Some(sampled) = taken {
                check(node[0], sampled)?;
                self.take(numbers, &node, values)?;
            }
            self.node = node;
            if taken.is_none() {
                while !self.endpoint.progress() {
                    if self.endpoint.is_broken(PEER) {
                        return Err("the baseline's agent has gone".into());
                    }
                }
            }
        }
        self.cost.gets += numbers.len() as u64;
        Ok(())
    }

    /// Goes on from what has come of the first READ.
    fn take(&mut self, numbers: &[u64], node: &[u64], values: &mut [u64]) -> Result<(), String> {
        let (read, step) = self.under_way.pop_front().expect("the one that was polled");
        self.free.push(read.tag);
        let number = numbers[step.index];
        if step.level < self.top.levels {
            self.cache.keep(step.link, step.child, &node[..self.top.shape.words]);
            let (_, child) = self.top.shape.search(|word| node[word], number);
            self.go_down(number, Step { child, level: step.level + 1, link: None, ..step });
            return Ok(());
        }
        let [key, value] = slot_words(find_slot(|word| node[word], number)).map(|word| node[word]);
        if key != number {
            return Err(missing(|word| node[word], number));
        }
        values[step.index] = value;
        Ok(())
    }

    /// Goes through copies as far as there are any, and READs what comes next.
    fn go_down(&mut self, number: u64, mut step: Step) {
        while step.child.is_copy() {
            let copy = step.child;
            let node = self.cache.copy(copy);
            let (entry, child) = self.top.shape.search(|word| node.load(word), number);
            step = Step { child, level: step.level + 1, link: Some(Link { copy, entry }), ..step };
        }
        self.post(step);
    }

    fn post(&mut self, step: Step) {
        let words = if step.level < self.top.levels { self.top.shape.words } else { LEAF_WORDS };
        let tag = self.free.pop().expect("no more under way than there are tags");
        let read = Read { peer: PEER, place: step.child.place(), words, tag };
        self.endpoint.post_read(read);
        self.cost.note(1, words);
        self.under_way.push_back((read, step));
        self.posted += 1;
        if self.posted % READS_A_BELL == 0 {
            self.endpoint.doorbell();
        }
    }
}

/// The words of a READ, if they have come.
fn poll(memory: &mut impl RemoteMemory, read: Read, into: &mut [u64]) -> Result<Option<Sampled>, String> {
    match memory.poll_read(read, into) {
        ReadState::Done(sampled) => Ok(Some(sampled)),
        ReadState::Pending => Ok(None),
        ReadState::Outside => Err("a node outside of all memory".into()),
        ReadState::Broken => Err("the baseline's agent has gone".into()),
    }
}

/// The read rule.
fn check(guardian: u64, sampled: Sampled) -> Result<(), String> {
    let in_time = sampled.after.wrapping_sub(sampled.before) <= READ_EPOCHS_MAX;
    let valid = in_time && sampled.term == TERM && Guardian(guardian).is_live();
    if valid { Ok(()) } else { Err("the tree led to a dead node, or was read too slowly".into()) }
}
