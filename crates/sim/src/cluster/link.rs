//! Connections between nodes, as over TCP: frames arrive whole, in their order, some time later.
//!
//! What a node has sent arrives also when the node has died since, and then the connection is over. One that
//! is cut brings nothing more.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::fabric::Bell;
use crate::scheduler::{self, Shared};

/// What goes over a connection in one piece: what it is, of which shard, and its words.
pub struct Frame {
    pub part: u32,
    pub shard: usize,
    pub words: Vec<u64>,
}

/// One direction: frames with the times of their arrival, and who is woken then.
#[derive(Default)]
struct Way {
    frames: VecDeque<(u64, Frame)>,
    last_ns: u64,
    bell: Option<Bell>,
}

#[derive(Default)]
struct Both {
    /// By the side that receives.
    ways: [Way; 2],
    has_gone: [bool; 2],
    is_cut: bool,
}

/// A connection, to be harmed.
#[derive(Clone)]
pub struct Cable(Shared<Both>);

impl Cable {
    /// Lets nothing more arrive.
    pub fn cut(&self) {
        let mut both = self.0.borrow_mut();
        both.is_cut = true;
        both.ways.iter_mut().for_each(|way| way.frames.clear());
    }

    /// Lets nothing arrive for so much time: on one side, or on both.
    pub fn hold_up(&self, for_ns: u64, side: Option<usize>) {
        let until_ns = scheduler::now_ns() + for_ns;
        let is_held_up = |of: &(usize, &mut Way)| side.is_none_or(|side| side == of.0);
        for (_, way) in self.0.borrow_mut().ways.iter_mut().enumerate().filter(is_held_up) {
            way.last_ns = way.last_ns.max(until_ns);
            way.frames.iter_mut().for_each(|(at_ns, _)| *at_ns = until_ns.max(*at_ns));
        }
    }

    /// Whether nobody uses it any more.
    pub fn is_over(&self) -> bool {
        let both = self.0.borrow();
        both.is_cut || both.has_gone == [true; 2]
    }
}

/// One side of a connection. Dropped, it has gone.
pub struct Link {
    both: Shared<Both>,
    side: usize,
    delay_ns_max: u64,
}

impl Link {
    /// Both sides of a connection, and what is harmed.
    pub fn pair(delay_ns_max: u64) -> (Link, Link, Cable) {
        let both: Shared<Both> = Rc::default();
        let side = |side| Link { both: both.clone(), side, delay_ns_max };
        (side(0), side(1), Cable(both.clone()))
    }

    /// Frames that arrive here ring this bell.
    pub fn ring(&self, bell: &Bell) {
        self.both.borrow_mut().ways[self.side].bell = Some(bell.clone());
    }

    /// Sends a frame.
    pub fn push(&self, part: u32, shard: usize, words: &[u64]) {
        let now_ns = scheduler::now_ns();
        let arrives_ns = now_ns + 1 + scheduler::random_below(self.delay_ns_max);
        let mut both = self.both.borrow_mut();
        if both.is_cut || both.has_gone[1 - self.side] {
            return;
        }
        let way = &mut both.ways[1 - self.side];
        way.last_ns = way.last_ns.max(arrives_ns);
        way.frames.push_back((way.last_ns, Frame { part, shard, words: words.to_vec() }));
        if let Some(bell) = way.bell.clone() {
            scheduler::after(way.last_ns - now_ns, move || bell.ring());
        }
    }

    /// The next frame, if it has arrived.
    pub fn receive(&self) -> Option<Frame> {
        let now_ns = scheduler::now_ns();
        let mut both = self.both.borrow_mut();
        let is_cut = both.is_cut;
        let way = &mut both.ways[self.side];
        way.frames.front().filter(|(at_ns, _)| *at_ns <= now_ns && !is_cut)?;
        way.frames.pop_front().map(|(_, frame)| frame)
    }

    /// Whether nothing more will come.
    pub fn is_over(&self) -> bool {
        let both = self.both.borrow();
        both.is_cut || both.has_gone[1 - self.side] && both.ways[self.side].frames.is_empty()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let bell = {
            let mut both = self.both.borrow_mut();
            both.has_gone[self.side] = true;
            both.ways[self.side].frames.clear();
            both.ways[1 - self.side].bell.clone()
        };
        bell.iter().for_each(Bell::ring);
    }
}
