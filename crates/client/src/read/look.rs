//! The way to a key of an ordered table: READs of what is missing of its models, and of its leaf.

use kelix_fabric::RemoteMemory;
use kelix_index::{LEAVES_FURTHER, LeafHeader, key_word, slot_word, tag_of_number, tag_of_string};
use kelix_types::{Location, mark};

use super::{Landing, ReadOp, ShardReader, State, Step, Verdict, judge};
use crate::ordered::Look;

impl ReadOp {
    pub(super) fn post_look<F: RemoteMemory>(&mut self, fabric: &mut F, shard: &ShardReader, look: Look) {
        let (place, words) = look.span();
        // Each leaf proves itself.
        (self.before, self.seen) = (None, shard.ordered.seen());
        self.state = State::Look(look);
        self.post(fabric, shard, place, words);
    }

    /// Goes on towards the leaf of a key of an ordered table, and looks at it.
    pub(super) fn on_look<F: RemoteMemory>(
        &mut self,
        fabric: &mut F,
        shard: &mut ShardReader,
        key: &[u8],
        landing: &mut Landing,
        look: Look,
    ) -> Step {
        landing.block.resize(look.span().1, 0);
        let sampled = match self.poll(fabric, shard, &mut landing.block) {
            Ok(sampled) => sampled,
            Err(Step::UnknownSegment) if self.renewed => return Step::Ask,
            Err(Step::UnknownSegment) => {
                self.renewed = true;
                return Step::UnknownSegment;
            }
            Err(step) => return step,
        };
        let Look::Leaf { index, guess, further, .. } = look else {
            return match shard.ordered.go_on(self.table, key, look, &landing.block) {
                Some(look) => {
                    self.post_look(fabric, shard, look);
                    Step::Pending
                }
                None => Step::Ask,
            };
        };
        let header = LeafHeader(*landing.block.first_chunk().expect("a leaf"));
        let numbers = self.table.kind().has_numbers();
        let tag = if numbers { tag_of_number(key_word(key, 0)) } else { tag_of_string(key) };
        let verdict = judge(header.guardian(), sampled, fabric.stamp_window(), shard.term);
        if verdict == Verdict::Superseded {
            return Step::Superseded;
        }
        if verdict == Verdict::Invalid && header.guardian().is_live() {
            return self.look_again(fabric, shard, look);
        }
        let live = verdict == Verdict::Valid && header.table() == self.table;
        let is_it = live && (!numbers || header.holds_number(key_word(key, 0)));
        let incarnation = header.guardian().incarnation();
        if is_it && incarnation.0 > self.seen {
            shard.ordered.note_seen(incarnation);
            // It is younger than what led here: its words may be older than its guardian. Once more, and they
            // are not.
            mark!("leaf was younger than what led to it");
            self.post_look(fabric, shard, look);
            return Step::Pending;
        }
        if is_it {
            self.candidates = header.candidates(tag);
            let step = self.next_in_leaf(fabric, shard, key, landing);
            if step != Step::Ask {
                return step;
            }
        }
        let next = match further {
            0 => guess.rank.checked_sub(1).and_then(|rank| shard.ordered.leaf_at(self.table, index, rank)),
            _ if live && further < LEAVES_FURTHER => header.next(),
            _ => None,
        };
        let Some(place) = next else {
            shard.ordered.forget_table(self.table, index);
            return Step::Ask;
        };
        self.post_look(fabric, shard, Look::Leaf { index, guess, further: further + 1, place });
        Step::Pending
    }

    /// READs a leaf again that took longer than the window: a reader that stood still learns nothing of the
    /// leaf, and nothing against what led there. A guardian does not vouch for a leaf's words as for an
    /// item's, since slots of a live leaf are used again.
    #[cold]
    #[inline(never)]
    fn look_again<F: RemoteMemory>(&mut self, fabric: &mut F, shard: &ShardReader, look: Look) -> Step {
        if !self.may_retry() {
            return Step::Ask;
        }
        mark!("leaf of a late READ looked at again");
        self.post_look(fabric, shard, look);
        Step::Pending
    }

    /// Goes on with what the leaf at hand says of the key: its value, the next item that may be its own, or
    /// that it is absent.
    pub(super) fn next_in_leaf<F: RemoteMemory>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
        key: &[u8],
        landing: &mut Landing,
    ) -> Step {
        let header = LeafHeader(*landing.block.first_chunk().expect("a leaf"));
        let word = key_word(key, header.prefix_bytes());
        loop {
            let load = |slot: usize| [landing.block[slot_word(slot)], landing.block[slot_word(slot) + 1]];
            let Some((slot, second)) = header.matching(self.candidates, word, load).next() else { break };
            self.candidates &= !1 << slot;
            if !self.table.kind().has_items() {
                landing.set_inline(self.table, key, second);
                self.pointer = None;
                return self.believe_leaf(fabric, shard, header.guardian().incarnation(), false);
            }
            let Some(location) = Location::from_word(second) else { continue };
            self.state = State::Item { alt: false, by_pointer: false };
            self.incarnation = None;
            self.location = location;
            self.post(fabric, shard, location.place(), location.class().words());
            return Step::Pending;
        }
        // Of strings the fences stand elsewhere.
        match self.table.kind().has_numbers() {
            true => self.believe_leaf(fabric, shard, header.guardian().incarnation(), true),
            false => Step::Ask,
        }
    }
}
