//! What a client tells the shards of a cache: what it read by itself, since they do not see it.
//!
//! Each item is told once in an *epoch of use*, whose number comes with the answers, and many at once. So a
//! client sends few hints, and the fewer the more often it reads the same: [`TOLD`] items are remembered.
//! While a shard does not answer hints wait, but not many.

use kelix_types::Location;

/// Places of items that are remembered as told.
const TOLD: usize = 1 << 14;
/// Items that are told at once; and at most, where they had to wait.
const AT_ONCE: usize = 64;
const AT_MOST: usize = 1024;
/// Messages that may be under way to a shard.
const UNDER_WAY: usize = 16;
/// Reads after which the epoch is asked for, though there is little to tell.
const READS: u32 = 1024;

/// Hints for one shard.
#[derive(Clone, Default)]
struct OfShard {
    epoch: u64,
    /// The messages that are under way.
    under_way: Vec<u32>,
    reads: u32,
    /// Location words, as they go into the message.
    body: Vec<u8>,
}

/// Hints for all shards.
pub(crate) struct Hints {
    /// Places that were told of: `[ bits of a hash 31 8 | epoch 7 0 ]`.
    told: Box<[u32; TOLD]>,
    shards: Vec<OfShard>,
}

impl Hints {
    pub fn new(shards: usize) -> Hints {
        Hints { told: Box::new([0; TOLD]), shards: vec![OfShard::default(); shards] }
    }

    /// An item was read. `true`: there is something to be sent.
    pub fn note(&mut self, shard: usize, location: Location) -> bool {
        let of = &mut self.shards[shard];
        of.reads += 1;
        let hash = (location.word() ^ (shard as u64) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let told = &mut self.told[(hash >> 50) as usize];
        let mark = (hash >> 18) as u32 & !0xff | (of.epoch as u8 as u32);
        if *told != mark && of.body.len() < 8 * AT_MOST {
            *told = mark;
            of.body.extend_from_slice(&location.word().to_le_bytes());
            return of.body.len() % (8 * AT_ONCE) == 0;
        }
        of.reads >= READS
    }

    /// What is to be told to a shard now: nothing, while many messages are under way.
    pub fn take(&mut self, shard: usize) -> Option<Vec<u8>> {
        let of = &mut self.shards[shard];
        of.reads = 0;
        (of.under_way.len() < UNDER_WAY).then(|| std::mem::take(&mut of.body))
    }

    /// It is under way as this request; or could not be sent, and waits.
    pub fn sent(&mut self, shard: usize, request: Option<u32>, mut body: Vec<u8>) {
        let of = &mut self.shards[shard];
        if let Some(request) = request {
            of.under_way.push(request);
            body.clear();
        }
        of.body = body;
    }

    /// A request was answered by a shard, or by one of a mirror's primary, which is told nothing.
    pub fn answered(&mut self, shard: usize, request: u32, version: u64) {
        let Some(of) = self.shards.get_mut(shard) else { return };
        if let Some(which) = of.under_way.iter().position(|under_way| *under_way == request) {
            of.under_way.swap_remove(which);
            of.epoch = version;
        }
    }

    /// The connection is another one.
    pub fn begin_anew(&mut self) {
        self.shards.iter_mut().for_each(|of| of.under_way.clear());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelix_types::{Place, SizeClass};

    fn location(number: u64) -> Location {
        Location::new(Place(number * 4096), SizeClass(3))
    }

    #[test]
    fn an_item_is_told_once_in_an_epoch() {
        let mut hints = Hints::new(2);
        assert!((0..READS - 1).all(|_| !hints.note(1, location(5))));
        assert!(hints.note(1, location(5)), "to know the epoch");
        let body = hints.take(1).unwrap();
        assert_eq!(body, location(5).word().to_le_bytes());
        hints.sent(1, Some(9), body);
        hints.answered(0, 9, 8);
        hints.answered(1, 8, 8);
        assert!(!hints.note(1, location(5)), "nobody answered this one");
        assert_eq!(hints.take(1), Some(Vec::new()));
        hints.answered(1, 9, 7);
        hints.note(1, location(5));
        assert_eq!(hints.take(1).map(|body| body.len()), Some(8), "in another epoch");
        hints.note(0, location(5));
        assert_eq!(hints.take(0).map(|body| body.len()), Some(8), "to another shard");
        assert!((0..AT_ONCE as u64 - 1).all(|number| !hints.note(0, location(100 + number))));
        assert!(hints.note(0, location(1)));
    }

    #[test]
    fn hints_wait_for_a_shard_that_does_not_answer() {
        let mut hints = Hints::new(1);
        for request in 0..UNDER_WAY as u32 {
            let body = hints.take(0).unwrap();
            hints.sent(0, Some(request), body);
        }
        let told: Vec<u64> = (0..5000).filter(|number| hints.note(0, location(*number))).collect();
        assert!(told.len() >= AT_MOST / AT_ONCE);
        assert_eq!(hints.take(0), None);
        hints.answered(0, 3, 0);
        let body = hints.take(0).unwrap();
        assert_eq!(body.len(), 8 * AT_MOST);
        hints.sent(0, None, body);
        // What there was no room for is not taken for told.
        let body = hints.take(0).unwrap();
        hints.sent(0, Some(99), body);
        hints.note(0, location(4999));
        assert_eq!(hints.take(0), None);
        hints.answered(0, 4, 0);
        assert_eq!(hints.take(0), Some(location(4999).word().to_le_bytes().to_vec()));
    }
}
