//! The shard's index of leaves: which leaf holds a key.
//!
//! Two sorted levels: the leaves, each with the first key that it may hold (its *separator*), in blocks of at
//! most [`LEAF_BLOCK_MAX`], and the blocks by the separator of their first leaf. A search is two binary
//! searches in arrays without gaps; an insertion moves the rest of a block. With 100 million keys there are
//! some 25,000 blocks. The first separator of all is not looked at, so every key has a leaf.
//!
//! It is private to the shard, and says what the chain of leaves says.

use std::borrow::Borrow;

use kelix_types::Place;
use kelix_types::limits::LEAF_BLOCK_MAX;

/// Two neighbouring blocks become one when together they have no more leaves than this.
const MERGE_MAX: usize = LEAF_BLOCK_MAX / 2;

/// The leaves of a table in order.
#[derive(Debug)]
pub(crate) struct Blocks<S> {
    /// The first separator of each block.
    firsts: Vec<S>,
    blocks: Vec<Block<S>>,
    leaves: usize,
}

#[derive(Debug)]
struct Block<S> {
    separators: Vec<S>,
    places: Vec<Place>,
}

/// Which leaf of all. Good until leaves come or go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    block: usize,
    index: usize,
}

impl<S: Ord + Clone> Blocks<S> {
    /// An index of one leaf, which holds all keys.
    pub fn new(first: S, place: Place) -> Blocks<S> {
        let block = Block { separators: vec![first.clone()], places: vec![place] };
        Blocks { firsts: vec![first], blocks: vec![block], leaves: 1 }
    }

    /// An index of leaves that are given in their order. None, if there are none.
    pub fn of_chain(leaves: Vec<(S, Place)>) -> Option<Blocks<S>> {
        let mut blocks = Vec::with_capacity(leaves.len().div_ceil(LEAF_BLOCK_MAX));
        let count = leaves.len();
        let mut leaves = leaves.into_iter().peekable();
        while leaves.peek().is_some() {
            let (separators, places) = leaves.by_ref().take(LEAF_BLOCK_MAX).unzip();
            blocks.push(Block { separators, places });
        }
        let firsts: Vec<S> = blocks.iter().map(|block: &Block<S>| block.separators[0].clone()).collect();
        (count > 0).then_some(Blocks { firsts, blocks, leaves: count })
    }

    /// How many leaves there are.
    pub fn len(&self) -> usize {
        self.leaves
    }

    /// The leaf that holds a key.
    #[inline]
    pub fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Position
    where
        S: Borrow<Q>,
    {
        let last_not_above = |separators: &[S]| {
            separators.partition_point(|separator| separator.borrow() <= key).saturating_sub(1)
        };
        let block = last_not_above(&self.firsts);
        Position { block, index: last_not_above(&self.blocks[block].separators) }
    }

    /// The first leaf.
    pub fn first(&self) -> Position {
        Position { block: 0, index: 0 }
    }

    /// The last leaf.
    pub fn last(&self) -> Position {
        let block = self.blocks.len() - 1;
        Position { block, index: self.blocks[block].places.len() - 1 }
    }

    /// Where a leaf stands.
    #[inline]
    pub fn place(&self, at: Position) -> Place {
        self.blocks[at.block].places[at.index]
    }

    /// The first key that a leaf may hold.
    pub fn separator(&self, at: Position) -> &S {
        &self.blocks[at.block].separators[at.index]
    }

    /// The leaf after one.
    pub fn next(&self, at: Position) -> Option<Position> {
        if at.index + 1 < self.blocks[at.block].places.len() {
            Some(Position { index: at.index + 1, ..at })
        } else {
            (at.block + 1 < self.blocks.len()).then_some(Position { block: at.block + 1, index: 0 })
        }
    }

    /// The leaf before one.
    pub fn previous(&self, at: Position) -> Option<Position> {
        match (at.index.checked_sub(1), at.block.checked_sub(1)) {
            (Some(index), _) => Some(Position { index, ..at }),
            (None, Some(block)) => Some(Position { block, index: self.blocks[block].places.len() - 1 }),
            (None, None) => None,
        }
    }

    /// How many leaves come before one.
    pub fn rank(&self, at: Position) -> usize {
        self.blocks[..at.block].iter().map(|block| block.places.len()).sum::<usize>() + at.index
    }

    /// A leaf stands elsewhere.
    pub fn set_place(&mut self, at: Position, place: Place) {
        self.blocks[at.block].places[at.index] = place;
    }

    /// A leaf comes after one, and takes the keys from its separator on.
    pub fn insert_after(&mut self, at: Position, separator: S, place: Place) {
        let block = &mut self.blocks[at.block];
        block.separators.insert(at.index + 1, separator);
        block.places.insert(at.index + 1, place);
        self.leaves += 1;
        if block.places.len() > LEAF_BLOCK_MAX {
            // Leaves that come at the end leave full blocks behind.
            let at_end =
                at.block + 1 == self.blocks.len() && at.index + 2 == self.blocks[at.block].places.len();
            let keep = if at_end { LEAF_BLOCK_MAX } else { LEAF_BLOCK_MAX / 2 };
            let block = &mut self.blocks[at.block];
            let upper =
                Block { separators: block.separators.split_off(keep), places: block.places.split_off(keep) };
            self.firsts.insert(at.block + 1, upper.separators[0].clone());
            self.blocks.insert(at.block + 1, upper);
        }
    }

    /// A leaf that is not the first goes; the one before it takes its keys.
    pub fn remove(&mut self, at: Position) {
        debug_assert!(at != self.first());
        let block = &mut self.blocks[at.block];
        block.separators.remove(at.index);
        block.places.remove(at.index);
        self.leaves -= 1;
        if block.places.is_empty() {
            self.blocks.remove(at.block);
            self.firsts.remove(at.block);
            return;
        }
        if at.index == 0 {
            self.firsts[at.block] = block.separators[0].clone();
        }
        let with_next = |block: usize| {
            let here = self.blocks[block].places.len();
            self.blocks.get(block + 1).is_some_and(|next| here + next.places.len() <= MERGE_MAX)
        };
        if let Some(first) =
            [Some(at.block), at.block.checked_sub(1)].into_iter().flatten().find(|b| with_next(*b))
        {
            let mut upper = self.blocks.remove(first + 1);
            self.firsts.remove(first + 1);
            self.blocks[first].separators.append(&mut upper.separators);
            self.blocks[first].places.append(&mut upper.places);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_a_sorted_list_finds_while_leaves_come_and_go() {
        let mut blocks = Blocks::new(0u64, Place(0));
        let mut model = vec![(0u64, Place(0))];
        let mut random = 7u64;
        let steps = if cfg!(miri) { 300 } else { 20_000 };
        for step in 0..3 * steps {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let key = random >> 40;
            let place = Place(step * 16);
            let expected = model.partition_point(|(separator, _)| *separator <= key) - 1;
            let found = blocks.find(&key);
            assert_eq!((*blocks.separator(found), blocks.place(found)), model[expected]);
            // Most of the time it grows, then it shrinks again.
            if (step < steps || step % 16 == 0) && model[expected].0 != key {
                blocks.insert_after(found, key, place);
                model.insert(expected + 1, (key, place));
            } else if step >= steps && expected > 0 {
                blocks.remove(found);
                model.remove(expected);
            }
            assert_eq!(blocks.len(), model.len());
        }
        let mut at = Some(blocks.first());
        for expected in &model {
            let here = at.expect("as many as in the model");
            assert_eq!((*blocks.separator(here), blocks.place(here)), *expected);
            let next = blocks.next(here);
            assert_eq!(next.map_or(Some(blocks.last()), |next| blocks.previous(next)), Some(here));
            at = next;
        }
        assert!(at.is_none());
        assert!(
            cfg!(miri) || blocks.blocks.len() < 16,
            "{} blocks for {} leaves",
            blocks.blocks.len(),
            model.len()
        );
    }

    #[test]
    fn leaves_that_come_at_the_end_leave_full_blocks_behind() {
        let mut blocks = Blocks::new(0u64, Place(0));
        for separator in 1..4 * LEAF_BLOCK_MAX as u64 {
            blocks.insert_after(blocks.last(), separator, Place(separator * 16));
        }
        assert_eq!((blocks.blocks.len(), blocks.len()), (4, 4 * LEAF_BLOCK_MAX));
    }
}
