//! Several puts in one request, [`crate::Op::PutMany`], and their answers in one reply.
//!
//! ```text
//! body     how many items; then the items, as on their way into a generation (crate::generation)
//! reply    version: how many items were tried, the first ones. For the next one there was no room: that and those
//!          behind it are to be put one by one, since only such a put waits for memory
//!          then for each that was tried the three words of a reply of its own, with 0 for its id
//! ```
//!
//! The items are puts like any others: each has an answer of its own, and where the client counts its writes a
//! number of its own, of which the request has the first. What is saved is what a request costs beside.

use kelix_types::limits::PUTS_A_REQUEST;

use crate::generation::{Arrived, NewItem, take_item};
use crate::message::{FrameBuffer, Op, Reply, ReplyHead};

/// Room for the items of a request, as a rule: 128 bytes each.
const ROOM_WORDS: usize = 16 * PUTS_A_REQUEST;
/// Words of an answer in a reply.
const OUTCOME_WORDS: usize = 3;

/// The body of a request under construction.
#[derive(Clone, Default, Debug)]
pub struct PutsBody(Vec<u64>);

impl PutsBody {
    /// Adds an item. There may be [`PUTS_A_REQUEST`].
    #[inline]
    pub fn push(&mut self, item: &NewItem<'_>) {
        if self.0.is_empty() {
            self.0.reserve(ROOM_WORDS);
            self.0.push(0);
        }
        self.0[0] += 1;
        debug_assert!(self.0[0] <= PUTS_A_REQUEST as u64);
        item.push(&mut self.0);
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The words so far.
    pub fn words(&self) -> &[u64] {
        &self.0
    }
}

/// How many writes a request is, of which each has a number where the client counts them: at least 1, and not
/// more than a request may have, whatever its body says.
#[inline]
pub fn writes(op: Op, body: &[u8]) -> u64 {
    if op != Op::PutMany {
        return 1;
    }
    let count = body.first_chunk().map_or(1, |word| u64::from_le_bytes(*word));
    count.clamp(1, PUTS_A_REQUEST as u64)
}

/// The items of a request's body, of which `each` gets one after another. `None`: it makes no sense, which may
/// show behind the first ones.
#[inline]
pub fn take_items<'a>(words: &'a [u64], mut each: impl FnMut(Arrived<'a>)) -> Option<()> {
    let (count, mut items) = words.split_first()?;
    if *count == 0 || *count > PUTS_A_REQUEST as u64 {
        return None;
    }
    for _ in 0..*count {
        each(take_item(&mut items)?);
    }
    items.is_empty().then_some(())
}

/// Adds the answer to the next item to a reply.
#[inline]
pub fn push_outcome(frame: &mut FrameBuffer, answer: &ReplyHead) {
    let ReplyHead { status, version, location, .. } = *answer;
    frame.reserve(OUTCOME_WORDS).copy_from_slice(&[status as u64, version, location]);
}

/// The answers in a reply's words, to the first items of the request. `None`: they make no sense.
pub fn outcomes(words: &[u64]) -> Option<impl Iterator<Item = Reply<'_>>> {
    let answers = words.chunks_exact(OUTCOME_WORDS);
    let is_whole = answers.remainder().is_empty() && answers.len() <= PUTS_A_REQUEST;
    let is_good = is_whole && answers.clone().all(|answer| Reply::parse(answer).is_some());
    is_good.then(|| answers.filter_map(Reply::parse))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{RequestHead, Status, encode_reply, encode_request};
    use kelix_image::words::bytes_of;
    use kelix_types::TableId;

    fn plain<'a>(key: &'a [u8], body: &'a [u8]) -> NewItem<'a> {
        NewItem { key, body, attributes: false, expiry: None, client_flags: 0 }
    }

    fn keys(words: &[u64]) -> Option<Vec<&[u8]>> {
        let mut keys = Vec::new();
        take_items(words, |arrived| keys.push(arrived.item.key)).map(|()| keys)
    }

    fn body() -> PutsBody {
        let mut body = PutsBody::default();
        body.push(&plain(b"stu001", b"ABY"));
        body.push(&plain(b"k", b""));
        body
    }

    #[test]
    fn golden_request() {
        let mut frame = FrameBuffer::default();
        let head = RequestHead::new(Op::PutMany, 7, TableId(5));
        encode_request(&mut frame, head, &[], bytes_of(body().words()));
        let key = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        let items = [2, 3 << 32 | 6, key(b"stu001AB"), key(b"Y\0\0\0\0\0\0\0"), 1, key(b"k\0\0\0\0\0\0\0")];
        assert_eq!(frame.payload(), [&[7 << 32 | 5 << 16 | 21, 48 << 32][..], &items].concat());
        let request = crate::Request::parse(frame.payload()).unwrap();
        assert_eq!((request.tail, keys(request.tail)), (&items[..], Some(vec![&b"stu001"[..], b"k"])));
        assert_eq!((writes(Op::PutMany, request.body), writes(Op::Put, request.body)), (2, 1));
    }

    #[test]
    fn golden_reply() {
        let mut frame = FrameBuffer::default();
        let answer = |status, version, location| ReplyHead { id: 0, status, version, location };
        encode_reply(&mut frame, ReplyHead { id: 7, ..answer(Status::Ok, 2, 0) });
        let answers = [answer(Status::Ok, 9, 1 << 40), answer(Status::Refused, 0, 0)];
        answers.iter().for_each(|answer| push_outcome(&mut frame, answer));
        assert_eq!(frame.payload(), [7 << 32, 2, 0, 0, 9, 1 << 40, 4, 0, 0]);
        let reply = Reply::parse(frame.payload()).unwrap();
        assert!(outcomes(reply.item).unwrap().map(|reply| reply.head).eq(answers));
    }

    #[test]
    fn nonsense_is_no_request_and_no_reply() {
        let good = body();
        for cut in 0..good.words().len() {
            assert_eq!(keys(&good.words()[..cut]), None, "cut at {cut}");
        }
        for count in [0, 1, 3, PUTS_A_REQUEST as u64 + 1, u64::MAX] {
            assert_eq!(keys(&[&[count], &good.words()[1..]].concat()), None, "{count}");
            let writes = writes(Op::PutMany, &count.to_le_bytes());
            assert!((1..=PUTS_A_REQUEST as u64).contains(&writes), "{count}");
        }
        assert_eq!(writes(Op::PutMany, b"short"), 1);
        for words in [&[0][..], &[0, 1], &[0, 1, 2, 0], &[14, 0, 0], &[0; 3 * PUTS_A_REQUEST + 3]] {
            assert!(outcomes(words).is_none(), "{words:?}");
        }
        assert_eq!(outcomes(&[]).unwrap().count(), 0);
    }
}
