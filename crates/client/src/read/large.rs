//! Reads on which no time limit lies: the pieces of a large value, an item that took longer than the window.
//! A READ of the guardian once more vouches for them.

use kelix_fabric::RemoteMemory;
use kelix_image::{ItemFlags, ItemView, LargeBody};
use kelix_types::{Guardian, mark};

use super::{Landing, ReadOp, ShardReader, State, Step, WHOLE};

/// Bytes of a large value in one READ. How long a value is, is the server's word: memory for it is taken
/// piece by piece, as it comes.
const LARGE_PIECE_BYTES: u64 = 8 << 20;

impl ReadOp {
    /// Reads a large value: its pieces, then the guardian once more in a READ posted after them. If that is
    /// still live, the pieces were never released meanwhile, however long they took.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_pieces<F: RemoteMemory>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
        landing: &mut Landing,
    ) -> Step {
        let view = ItemView::new(&landing.item).expect("just looked at");
        self.incarnation = Some(view.guardian().incarnation());
        let Some(large) = LargeBody::parse(view.body()).filter(|large| !large.runs.is_empty()) else {
            return Step::Ask;
        };
        landing.large_bytes = large.bytes;
        // Attributes are looked for in all of the section.
        let part = if view.header().flags.has(ItemFlags::ATTRIBUTES) { WHOLE } else { landing.part.clone() };
        (landing.runs, landing.before_part) = large.part(part);
        if landing.runs.is_empty() {
            return self.believe_item(fabric, shard, landing);
        }
        self.post_piece(fabric, shard, landing, (0, 0, 0))
    }

    /// Asks for what comes next of a large value, if there is memory for it.
    fn post_piece<F: RemoteMemory>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
        landing: &mut Landing,
        (run, at, done): (usize, u64, u64),
    ) -> Step {
        let (place, bytes) = landing.runs[run];
        let end = (done / 8) as usize + piece_words(bytes, at);
        if landing.value.try_reserve(end.saturating_sub(landing.value.len())).is_err() {
            return Step::NoMemory;
        }
        // What the last value left is written over.
        if landing.value.len() < end {
            landing.value.resize(end, 0);
        }
        self.state = State::Pieces { run, at, done };
        self.post(fabric, shard, place.plus(at), piece_words(bytes, at));
        Step::Pending
    }

    pub(super) fn on_piece<F: RemoteMemory>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
        landing: &mut Landing,
        (run, at, done): (usize, u64, u64),
    ) -> Step {
        let bytes = landing.runs[run].1;
        let (first, words) = ((done / 8) as usize, piece_words(bytes, at));
        if let Err(step) = self.poll(fabric, shard, &mut landing.value[first..first + words]) {
            return step;
        }
        let piece = (bytes - at).min(LARGE_PIECE_BYTES);
        let next = if at + piece < bytes { (run, at + piece) } else { (run + 1, 0) };
        if next.0 < landing.runs.len() {
            return self.post_piece(fabric, shard, landing, (next.0, next.1, done + piece));
        }
        self.state = State::LastGuardian;
        self.post(fabric, shard, self.location.place(), 1);
        Step::Pending
    }

    /// Looks at the guardian once more, behind the pieces of a large value or behind an item that took too
    /// long.
    pub(super) fn on_last_guardian<F: RemoteMemory>(
        &mut self,
        fabric: &mut F,
        shard: &ShardReader,
        key: &[u8],
        landing: &Landing,
    ) -> Step {
        let mut word = [0];
        let sampled = match self.poll(fabric, shard, &mut word) {
            Ok(sampled) => sampled,
            Err(Step::Pending) => return Step::Pending,
            Err(_) => return Step::Ask,
        };
        if sampled.term != shard.term {
            return Step::Superseded;
        }
        let incarnation = self.incarnation.expect("set with the first guardian");
        if Guardian(word[0]) == incarnation.live() {
            return self.believe_item(fabric, shard, landing);
        }
        mark!("item died before it was looked at again");
        self.restart(fabric, shard, key)
    }
}

/// Words of a run of so many bytes in the READ from its byte `at` on.
fn piece_words(bytes: u64, at: u64) -> usize {
    (bytes - at).min(LARGE_PIECE_BYTES).div_ceil(8) as usize
}
