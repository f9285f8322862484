//! A sweep that lays leaves out again, in memory in the order of their keys: a leaf that was split stands
//! where there was a slot, and a scan that goes from page to page for each leaf takes twice as long.
//!
//! A round goes through the leaves of a table once, a stretch at a time: some that fill a slab. The index of
//! leaves says where each stands, so no leaf is looked at for that. Where more than an eighth of a stretch
//! are followed by one that stands elsewhere, all of it moves to slots in order, a few leaves a step. A move
//! is a rewrite like any other: readers, mirrors and models take it for one.
//!
//! 1. A round begins when enough leaves have come to stand elsewhere since the last one began
//!    ([`OrderedIndex::wants_order`]), so that a table at rest costs nothing.
//! 2. A stretch in order is left as it is, so that what moves is bounded by what was split, and leaves of a
//!    slab end a stretch together, so that a slab that is left is empty (`OrderedIndex::stretch`).
//! 3. Where there is no room nothing has changed, and the round waits ([`OrderedIndex::lay_out`]).

use kelix_image::{Image, NoRoom};
use kelix_types::limits::PAGE_BYTES;
use kelix_types::mark;

use super::{Chain, Leaves, OrderedIndex};
use crate::learned::Separator;
use crate::ordered::blocks::Position;

/// Tables with fewer leaves are in a processor's cache in any order. The simulator's are small, and laid out
/// all the same.
const LEAVES_MIN: usize = if cfg!(kelix_sim) { 4 } else { 1024 };
/// Leaves of a stretch: as many as stand in a slab, but for the gaps.
const STRETCH: usize = if cfg!(kelix_sim) { 4 } else { 178 };
/// Leaves that move in a step.
const MOVED_A_STEP: usize = if cfg!(kelix_sim) { 2 } else { 8 };
/// Stretches that are looked at in a step, where leaves need not move.
const LOOKED_AT_A_STEP: usize = 16;
/// A round begins when one of so many leaves has come to stand elsewhere.
const MOVED_SHARE: usize = 16;
/// A stretch moves when more than one of so many of its leaves is followed by one that stands elsewhere.
const SCATTERED_SHARE: usize = 8;
/// The next leaf stands elsewhere when it begins so many bytes away, in another page.
const NEAR_BYTES: u64 = if cfg!(kelix_sim) { 1024 } else { 4096 };

/// Which slots leaves get that are written anew.
#[derive(Clone, Copy)]
pub(super) enum Slots {
    /// Some near those of the leaves before.
    Near,
    /// The next ones of a slab.
    InOrder,
}

/// How far the sweep of a table is, beside its place.
#[derive(Default)]
pub(super) struct Layout {
    /// Leaves that came to stand elsewhere since the last round began.
    pub moved: usize,
    /// Leaves that are still to be moved of the stretch under way.
    left: usize,
}

impl Layout {
    /// Of leaves of which nobody knows how they stand.
    pub fn of_unknown(leaves: usize) -> Layout {
        Layout { moved: leaves, left: 0 }
    }
}

impl<S: Separator> Chain<S> {
    /// The leaf with which the sweep goes on.
    fn swept(&self) -> Option<Position> {
        self.sweep.as_ref().map(|low| self.blocks.find(low))
    }

    fn sweep_from(&mut self, at: Option<Position>) {
        self.sweep = at.map(|at| self.blocks.separator(at).clone());
    }
}

impl OrderedIndex {
    /// Whether a round is to begin.
    pub fn wants_order(&self) -> bool {
        let leaves = self.counts.leaves as usize;
        leaves >= LEAVES_MIN && self.layout.moved * MOVED_SHARE > leaves
    }

    /// Whether a round is under way.
    pub fn is_sweeping(&self) -> bool {
        chain!(&self.leaves, chain => chain.sweep.is_some())
    }

    /// Goes on with a round, or begins one: looks at some stretches, or moves some leaves. `Err`: there is no
    /// room for these now.
    pub fn lay_out(&mut self, image: &mut Image) -> Result<(), NoRoom> {
        let mut at = chain!(&self.leaves, chain => chain.swept());
        if at.is_none() {
            self.layout = Layout::default();
            at = Some(blocks!(&self.leaves, blocks => blocks.first()));
        }
        let mut looks = LOOKED_AT_A_STEP;
        while let Some(first) = at.filter(|_| self.layout.left == 0 && looks > 0) {
            let (leaves, scattered, behind) = self.stretch(first);
            if scattered * SCATTERED_SHARE > leaves {
                self.layout.left = leaves;
            } else {
                at = behind;
            }
            looks -= 1;
        }
        let mut moved = Ok(());
        for _ in 0..MOVED_A_STEP.min(self.layout.left) {
            let Some(here) = at else { break };
            let entries = self.entries(image, here);
            moved = self.rewrite_in(image, here, 1, &[&entries], Slots::InOrder);
            if moved.is_err() {
                break;
            }
            mark!("leaf laid out");
            self.counts.laid_out += 1;
            self.layout.left -= 1;
            at = self.next(here);
        }
        if at.is_none() {
            self.layout.left = 0;
        }
        chain!(&mut self.leaves, chain => chain.sweep_from(at));
        moved
    }

    /// The stretch that begins with a leaf: how many leaves it has, how many of these are followed by one
    /// that stands elsewhere, and the leaf behind it.
    fn stretch(&self, first: Position) -> (usize, usize, Option<Position>) {
        let (mut leaves, mut scattered, mut here) = (1, 0, first);
        while let Some(next) = self.next(here) {
            let (place, beside) = (self.place(here).0, self.place(next).0);
            scattered += usize::from(place.abs_diff(beside) >= NEAR_BYTES);
            let leaves_together = place / PAGE_BYTES == beside / PAGE_BYTES && leaves < 2 * STRETCH;
            if leaves >= STRETCH && !leaves_together {
                return (leaves, scattered, Some(next));
            }
            (leaves, here) = (leaves + 1, next);
        }
        (leaves, scattered, None)
    }
}
