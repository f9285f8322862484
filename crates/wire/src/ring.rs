//! Message rings: WRITE-driven messages with indicator words (HydraDB, section 4.2.1).
//!
//! A mailbox is the memory of one side into which the other WRITEs. It holds a ring of messages and a few
//! words beside it:
//!
//! ```text
//! word  0  how much of my ring's counterpart the peer has consumed, in words, all laps together
//!       8  not 0 while the owner of the mailbox sleeps
//!       9  over verbs: another number each time the peer is about to sleep
//!      16  the peer's counters, for `kelix stat`
//!      24  the keys that the peer asks for most, for `kelix stat --hot`
//!      64  the ring: frames, each contiguous
//!
//! frame with ordered placement:   [ sequence 32 | payload words 32 ] payload
//! frame without:                  [ sequence 32 | payload words 32 ] [ XXH3 of the payload, seeded with word 0 ] payload
//! a frame of 2^32 - 1 payload words says: go on at the start of the ring
//! ```
//!
//! A ring has room for much that is under way, and few clients have much. So where the reader agrees the writer goes
//! back to the start of the ring behind a *lap*, as soon as hardly anything is under way: then only the first
//! pages of the mailbox are ever touched, as many as what is under way at once needs.
//!
//! Invariants:
//! 1. The reader clears a frame before it reports it consumed, and the writer never writes unreported space;
//!    so a word at the reader's position is either zero or the indicator of the next frame.
//! 2. Sequences count up from 1 and skip 0, so an indicator is never zero.
//! 3. The peer's memory is hostile: a count that cannot be is a [`RingFault`], and ends the connection.
//! 4. A jump to the start stands behind a frame, so that a reader that follows jumps comes to a frame.

use kelix_fabric::{Mailbox, PeerId};
use kelix_image::words::bytes_of;
use kelix_types::limits::{FRAME_BYTES_MAX, MESSAGE_RING_BYTES};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::message::FrameBuffer;

/// Word numbers in a mailbox.
pub mod mailbox_word {
    /// Words of the opposite ring that the peer has consumed.
    pub const CONSUMED: usize = 0;
    /// Not 0 while the owner sleeps.
    pub const SLEEPS: usize = 8;
    /// Another number each time the peer is about to sleep, where this side cannot look by itself.
    pub const PEER_SLEEPS: usize = 9;
    /// The core that the owner was last seen on when it waited or woke somebody, and one; 0: not known.
    pub const CORE: usize = 10;
    /// The peer's counters.
    pub const COUNTERS: usize = 16;
    /// Number of counters.
    pub const COUNTERS_LEN: usize = 8;
    /// What the peer asks for most: how many operations were sampled, and then of each key its hash and a word.
    pub const HOT: usize = COUNTERS + COUNTERS_LEN;
    /// Keys of these.
    pub const HOT_ENTRIES: usize = 16;
    /// Words of these.
    pub const HOT_LEN: usize = 1 + 2 * HOT_ENTRIES;
    /// First word of the ring.
    pub const RING: usize = 64;
}

const SKIP: u32 = u32::MAX;

/// Words behind which a ring goes back to its start between two sides that share memory: those of the mailbox's
/// first page of 4 KiB.
pub const LAP_NEAR: u64 = 512 - mailbox_word::RING as u64;
/// The same between others, to whom each report of what was consumed is a message.
pub const LAP_FAR: u64 = 8192 - mailbox_word::RING as u64;

/// What both ends of a ring have to agree on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingShape {
    words: u64,
    checksummed: bool,
    /// Words behind which the writer goes back to the start where it can: all, if only at the end.
    lap: u64,
}

impl RingShape {
    /// The ring of a session's requests to a shard, and that of the replies.
    pub const fn of_messages(ordered_placement: bool) -> RingShape {
        RingShape::new((MESSAGE_RING_BYTES / 8) as u64, ordered_placement)
    }

    /// A ring of so many words, a power of two. Frames have a quarter of them at most, and checksums where
    /// what is written may not arrive in order.
    pub const fn new(words: u64, ordered_placement: bool) -> RingShape {
        assert!(words.is_power_of_two() && words >= 32);
        RingShape { words, checksummed: !ordered_placement, lap: words }
    }

    /// The same, in laps of so many words.
    pub const fn in_laps(self, words: u64) -> RingShape {
        assert!(0 < words && words <= self.words);
        RingShape { lap: words, ..self }
    }

    /// A ring of a session, in laps as long as suits sides that share memory, or sides that do not.
    pub const fn in_laps_of_session(self, share_memory: bool) -> RingShape {
        self.in_laps(if share_memory { LAP_NEAR } else { LAP_FAR })
    }

    /// Whether the writer goes back to the start before the end.
    const fn has_laps(self) -> bool {
        self.lap < self.words
    }

    /// Words behind which the reader reports what it has consumed: so often that the writer finds the start free
    /// when a lap is over.
    const fn reported_words(self) -> u64 {
        if self.has_laps() { self.lap.div_ceil(4) } else { self.words / 4 }
    }

    /// Bytes of the mailbox that has the ring.
    pub const fn mailbox_bytes(self) -> u64 {
        (mailbox_word::RING as u64 + self.words) * 8
    }

    /// Where a word stands in the ring, of all that pass through it.
    #[inline(always)]
    fn at(self, word: u64) -> u64 {
        word & (self.words - 1)
    }

    /// Words of the longest frame.
    #[inline(always)]
    const fn frame_words_max(self) -> u64 {
        self.words / 4
    }
}

/// Bytes of the mailbox of a session or of a shard for it.
pub const MAILBOX_BYTES: u64 = RingShape::of_messages(true).mailbox_bytes();
/// Between the first bytes of two mailboxes of a session in one memory: whole pages.
pub const MAILBOX_STRIDE: u64 = MAILBOX_BYTES.next_multiple_of(4096);

/// The peer wrote something that cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingFault(pub &'static str);

impl RingFault {
    /// Nobody is to blame: the connection is gone.
    pub const GONE: RingFault = RingFault("the connection is gone");
}

fn next_sequence(sequence: u32) -> u32 {
    if sequence == u32::MAX { 1 } else { sequence + 1 }
}

/// The writing end: knows the peer's ring by what the peer reports.
pub struct RingWriter {
    written: u64,
    consumed: u64,
    /// What was written when it was last looked whether the start is free.
    looked: u64,
    sequence: u32,
    shape: RingShape,
}

impl RingWriter {
    /// For a fresh connection.
    pub fn new(shape: RingShape) -> RingWriter {
        RingWriter { written: 0, consumed: 0, looked: 0, sequence: 1, shape }
    }

    /// Posts a frame if it fits now. The caller rings the doorbell and wakes the peer.
    pub fn push(
        &mut self,
        fabric: &mut impl Mailbox,
        peer: PeerId,
        frame: &mut FrameBuffer,
    ) -> Result<bool, RingFault> {
        let payload_words = frame.payload().len() as u64;
        let words = payload_words + if self.shape.checksummed { 2 } else { 1 };
        assert!(words <= self.shape.frame_words_max(), "a frame of {words} words");
        let at = self.shape.at(self.written);
        let jumps = at + words > self.shape.words || self.ends_lap(fabric, peer, words)?;
        let skip = if jumps { self.shape.words - at } else { 0 };
        if self.written + skip + words > self.consumed + self.shape.words {
            self.consumed = self.reported(fabric, peer)?;
            if self.written + skip + words > self.consumed + self.shape.words {
                return Ok(false);
            }
        }
        if skip > 0 {
            self.send(fabric, peer, at, &[u64::from(self.sequence) << 32 | u64::from(SKIP)])?;
            self.sequence = next_sequence(self.sequence);
            self.written += skip;
        }
        let indicator = u64::from(self.sequence) << 32 | payload_words;
        let sealed =
            frame.seal(indicator, self.shape.checksummed.then(|| checksum(indicator, frame.payload())));
        let at = self.shape.at(self.written);
        self.send(fabric, peer, at, sealed)?;
        self.sequence = next_sequence(self.sequence);
        self.written += words;
        Ok(true)
    }

    /// Whether a frame of so many words is to stand at the start of the ring, since a lap is over, what stood there
    /// is consumed, and hardly anything is under way: until the reader has followed there is no more room at the
    /// start than what stood before has left.
    #[inline]
    fn ends_lap(&mut self, fabric: &impl Mailbox, peer: PeerId, words: u64) -> Result<bool, RingFault> {
        let at = self.shape.at(self.written);
        if !self.shape.has_laps() || at == 0 || at + words <= self.shape.lap {
            return Ok(false);
        }
        // Of what is under way a part may be consumed and not reported yet.
        let little = self.written.saturating_sub(self.shape.lap / 2);
        let free = (self.written - at + words).max(little);
        // Whoever has much under way would look in vain with each frame.
        if self.consumed < free && self.written - self.looked >= self.shape.reported_words() {
            self.looked = self.written;
            self.consumed = self.reported(fabric, peer)?;
        }
        Ok(self.consumed >= free)
    }

    /// Whether the peer has reported progress since a push failed.
    pub fn has_news(&self, fabric: &impl Mailbox, peer: PeerId) -> bool {
        fabric.inbox(peer).load_acquire(mailbox_word::CONSUMED) != self.consumed
    }

    fn send(&self, fabric: &mut impl Mailbox, peer: PeerId, at: u64, words: &[u64]) -> Result<(), RingFault> {
        let first = mailbox_word::RING + at as usize;
        fabric.post_write(peer, first, words).map_err(|_| RingFault::GONE)
    }

    fn reported(&self, fabric: &impl Mailbox, peer: PeerId) -> Result<u64, RingFault> {
        let reported = fabric.inbox(peer).load_acquire(mailbox_word::CONSUMED);
        if reported > self.written {
            return Err(RingFault("the peer reports having consumed what it cannot have"));
        }
        // An earlier report may have overtaken a later one.
        Ok(reported.max(self.consumed))
    }
}

fn checksum(indicator: u64, payload: &[u64]) -> u64 {
    xxh3_64_with_seed(bytes_of(payload), indicator)
}

/// The reading end.
pub struct RingReader {
    consumed: u64,
    reported: u64,
    /// What was reported when the writer was last woken for it.
    woken: u64,
    sequence: u32,
    shape: RingShape,
}

impl RingReader {
    /// For a fresh connection.
    pub fn new(shape: RingShape) -> RingReader {
        RingReader { consumed: 0, reported: 0, woken: 0, sequence: 1, shape }
    }

    /// Whether something has begun to arrive. Costs one load.
    ///
    /// SYNC: the acquiring load pairs with the publishing store of the indicator in `post_write`.
    #[inline]
    pub fn has_news(&self, fabric: &impl Mailbox, peer: PeerId) -> bool {
        let at = mailbox_word::RING + (self.shape.at(self.consumed)) as usize;
        fabric.inbox(peer).load_acquire(at) != 0
    }

    /// Takes the next frame if it has arrived whole: its payload is copied into `payload`, its space cleared.
    #[inline]
    pub fn pop(
        &mut self,
        fabric: &mut impl Mailbox,
        peer: PeerId,
        payload: &mut Vec<u64>,
    ) -> Result<bool, RingFault> {
        loop {
            let at = self.shape.at(self.consumed);
            let ring = fabric.inbox(peer).part(mailbox_word::RING, self.shape.words as usize);
            let indicator = ring.load_acquire(at as usize);
            if indicator == 0 {
                return Ok(false);
            }
            if (indicator >> 32) as u32 != self.sequence {
                return Err(RingFault("a message out of sequence"));
            }
            let count = indicator as u32;
            if count == SKIP {
                // A peer that jumps from the start to the start could be followed for ever; and where there are no
                // laps a jump is of no use where any frame has room.
                if at == 0 || !self.shape.has_laps() && at + self.shape.frame_words_max() <= self.shape.words
                {
                    return Err(RingFault("a jump where a frame has room"));
                }
                ring.store(at as usize, 0);
                self.advance(fabric, peer, self.shape.words - at);
                continue;
            }
            let head = if self.shape.checksummed { 2 } else { 1 };
            let words = u64::from(count) + head;
            if words > self.shape.frame_words_max() || at + words > self.shape.words {
                return Err(RingFault("a message longer than a frame can be"));
            }
            // All of it is written over.
            payload.resize(count as usize, 0);
            ring.copy_out((at + head) as usize, payload);
            if self.shape.checksummed && checksum(indicator, payload) != ring.load(at as usize + 1) {
                // Words are still on their way.
                return Ok(false);
            }
            clear(ring, at as usize, words as usize);
            self.advance(fabric, peer, words);
            return Ok(true);
        }
    }

    #[inline]
    fn advance(&mut self, fabric: &mut impl Mailbox, peer: PeerId, words: u64) {
        self.consumed += words;
        self.sequence = next_sequence(self.sequence);
        if self.consumed - self.reported >= self.shape.reported_words() {
            self.reported = self.consumed;
            // A broken connection is noticed by whoever waits for an answer.
            let _ = fabric.post_write(peer, mailbox_word::CONSUMED, &[self.consumed]);
            // A writer that sleeps for want of room has more than this under way.
            if self.consumed - self.woken >= self.shape.words / 4 {
                self.woken = self.consumed;
                fabric.send(peer);
            }
        }
    }
}

fn clear(ring: kelix_image::words::Words<'_>, first: usize, count: usize) {
    const ZEROS: [u64; 64] = [0; 64];
    for start in (0..count).step_by(ZEROS.len()) {
        ring.copy_in(first + start, &ZEROS[..ZEROS.len().min(count - start)]);
    }
}

const _: () = assert!(mailbox_word::COUNTERS + mailbox_word::COUNTERS_LEN <= mailbox_word::RING);
const _: () = assert!(RingShape::of_messages(true).frame_words_max() == FRAME_BYTES_MAX as u64 / 8);

#[cfg(all(test, kelix_loom))]
mod model;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailboxes::{Mailboxes, PEER};

    /// The writer's side and the reader's.
    fn sides() -> (Mailboxes, Mailboxes) {
        let writers = Mailboxes::new();
        let readers = writers.turned();
        (writers, readers)
    }

    fn frame(words: &[u64]) -> FrameBuffer {
        let mut frame = FrameBuffer::default();
        frame.clear();
        words.iter().for_each(|word| frame.push(*word));
        frame
    }

    #[test]
    fn golden_frame() {
        let (mut a, b) = sides();
        let mut writer = RingWriter::new(RingShape::of_messages(true));
        assert_eq!(writer.push(&mut a, PEER, &mut frame(&[7, 8])), Ok(true));
        assert_eq!((mailbox_word::CONSUMED, mailbox_word::SLEEPS, mailbox_word::COUNTERS), (0, 8, 16));
        assert_eq!((mailbox_word::RING, MAILBOX_BYTES), (64, 524_800));
        let ring: Vec<u64> = (64..68).map(|word| b.own.words().load(word)).collect();
        assert_eq!(ring, [0x0000_0001_0000_0002, 7, 8, 0]);
    }

    #[test]
    fn frames_of_all_sizes_pass_many_laps() {
        let whole = |ordered| RingShape::of_messages(ordered);
        let shapes = [true, false].map(|ordered| [whole(ordered), whole(ordered).in_laps(LAP_NEAR)]);
        for shape in shapes.into_iter().flatten() {
            let (mut a, mut b) = sides();
            let (mut writer, mut reader) = (RingWriter::new(shape), RingReader::new(shape));
            let mut payload = Vec::new();
            let mut backlog = std::collections::VecDeque::new();
            let rounds = if cfg!(miri) { 40 } else { 3000 };
            for round in 0..rounds {
                let length = (round * 7919) % (FRAME_BYTES_MAX / 8 - 2);
                let words: Vec<u64> = (0..length as u64).map(|word| word * round as u64).collect();
                while !writer.push(&mut a, PEER, &mut frame(&words)).unwrap() {
                    assert!(
                        reader.pop(&mut b, PEER, &mut payload).unwrap(),
                        "a full ring has something to take"
                    );
                    assert_eq!(Some(&payload), backlog.pop_front().as_ref());
                }
                backlog.push_back(words);
            }
            while reader.pop(&mut b, PEER, &mut payload).unwrap() {
                assert_eq!(Some(&payload), backlog.pop_front().as_ref());
            }
            assert!(backlog.is_empty());
        }
    }

    /// Frames pass with so many under way at once. Returns the furthest word of the ring that was written to.
    fn furthest(shape: RingShape, under_way: usize, frame_words: std::ops::Range<usize>) -> usize {
        let ((mut a, mut b), mut payload) = (sides(), Vec::new());
        let (mut writer, mut reader) = (RingWriter::new(shape), RingReader::new(shape));
        let (mut sent, mut furthest) = (std::collections::VecDeque::new(), 0);
        for round in 0..20_000u64 {
            if sent.len() == under_way {
                assert!(reader.pop(&mut b, PEER, &mut payload).unwrap());
                assert_eq!(Some(&payload), sent.pop_front().as_ref());
            }
            let length = frame_words.start + (round as usize * 7919) % frame_words.len();
            let words: Vec<u64> = (0..length as u64).map(|word| word * round).collect();
            assert!(writer.push(&mut a, PEER, &mut frame(&words)).unwrap(), "room for little");
            furthest = furthest.max(shape.at(writer.written - 1) as usize);
            sent.push_back(words);
        }
        while reader.pop(&mut b, PEER, &mut payload).unwrap() {
            assert_eq!(Some(&payload), sent.pop_front().as_ref());
        }
        assert!(sent.is_empty());
        furthest
    }

    /// Wherever a ring stands, as much as it takes without a reader comes out whole: what a jump to the start leaves
    /// over counts as written, since the reader has yet to follow.
    #[test]
    fn a_full_ring_loses_nothing_wherever_it_stands() {
        let whole = RingShape::new(256, true);
        for shape in [whole, whole.in_laps(64)] {
            for before in 0..400 {
                let ((mut a, mut b), mut payload) = (sides(), Vec::new());
                let (mut writer, mut reader) = (RingWriter::new(shape), RingReader::new(shape));
                let words = |number: u64| vec![number; 3 + (number * 7919 % 23) as usize];
                for number in 0..before {
                    assert!(writer.push(&mut a, PEER, &mut frame(&words(number))).unwrap(), "room for one");
                    assert!(reader.pop(&mut b, PEER, &mut payload).unwrap());
                }
                let mut sent = before;
                while writer.push(&mut a, PEER, &mut frame(&words(sent))).unwrap() {
                    sent += 1;
                }
                for number in before..sent {
                    assert_eq!(
                        reader.pop(&mut b, PEER, &mut payload),
                        Ok(true),
                        "{before}: {number} of {sent}"
                    );
                    assert_eq!(payload, words(number));
                }
                assert_eq!(reader.pop(&mut b, PEER, &mut payload), Ok(false));
            }
        }
    }

    #[test]
    fn who_has_little_under_way_touches_little() {
        let whole = RingShape::of_messages(true);
        let near = whole.in_laps(LAP_NEAR);
        assert!(furthest(whole, 1, 3..20) as u64 > whole.words - 20);
        assert!((furthest(near, 1, 3..20) as u64) < LAP_NEAR);
        // What is not reported yet stands in the way for a moment.
        assert!((furthest(near, 16, 3..20) as u64) < 2 * LAP_NEAR);
        assert!(furthest(near, 1, 3000..4000) < 2 * 4000 + 1000);
        assert!((furthest(whole.in_laps(LAP_FAR), 16, 3..200) as u64) < 2 * LAP_FAR);
        assert_eq!((LAP_NEAR, LAP_FAR), (448, 8128));
    }

    #[test]
    fn without_ordered_placement_a_frame_counts_only_when_whole() {
        let (mut a, posted) = sides();
        let (_, mut b) = sides();
        let (mut writer, mut reader) =
            (RingWriter::new(RingShape::of_messages(false)), RingReader::new(RingShape::of_messages(false)));
        writer.push(&mut a, PEER, &mut frame(&[1, 2, 3, 4, 5])).unwrap();
        let mut payload = Vec::new();
        // What was posted to one mailbox lands in another, word by word.
        for index in [3, 4, 5, 6, 0, 1, 2] {
            assert!(!reader.pop(&mut b, PEER, &mut payload).unwrap(), "taken before word {index} landed");
            let at = mailbox_word::RING + index;
            b.own.words().store(at, posted.own.words().load(at));
        }
        assert!(reader.pop(&mut b, PEER, &mut payload).unwrap());
        assert_eq!(payload, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_hostile_peer_is_a_fault_and_not_a_crash() {
        let jump = 1u64 << 32 | u64::from(SKIP);
        for word in [jump, 1 << 32 | 0xffff_fff0, 2 << 32 | 1, 1 << 32 | (FRAME_BYTES_MAX as u64 / 8)] {
            let (_, mut b) = sides();
            b.own.words().store(mailbox_word::RING, word);
            for shape in [RingShape::of_messages(true), RingShape::of_messages(true).in_laps(LAP_NEAR)] {
                let taken = RingReader::new(shape).pop(&mut b, PEER, &mut Vec::new());
                assert!(taken.is_err(), "{word:#x} with {shape:?}");
            }
        }
        let (mut a, _) = sides();
        let mut writer = RingWriter::new(RingShape::of_messages(true));
        let mut pushed = Ok(true);
        a.own.words().store(mailbox_word::CONSUMED, 1 << 60);
        for _ in 0..10 {
            pushed = writer.push(&mut a, PEER, &mut frame(&[0; FRAME_BYTES_MAX / 8 - 2]));
            if pushed != Ok(true) {
                break;
            }
        }
        assert!(pushed.is_err());
    }
}
