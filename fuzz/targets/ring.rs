//! Both ends of a ring against a peer that writes what it likes where it likes, between frames of a peer that
//! does not.

#![no_main]

use std::collections::VecDeque;
use std::sync::LazyLock;

use kelix_fabric::Mailbox;
use kelix_fuzz::{Input, Mailboxes, PEER};
use kelix_types::limits::{FRAME_BYTES_MAX, MESSAGE_RING_BYTES};
use kelix_wire::{FrameBuffer, LAP_FAR, LAP_NEAR, RingReader, RingShape, RingWriter, mailbox_word};
use libfuzzer_sys::fuzz_target;

static MAILBOXES: LazyLock<Mailboxes> = LazyLock::new(Mailboxes::new);

/// What frames carry: so many of these, from one of the first on.
static NUMBERS: LazyLock<Vec<u64>> = LazyLock::new(|| (1..).take(FRAME_BYTES_MAX / 8 + STARTS).collect());
const STARTS: usize = 64;

const RING_WORDS: u64 = MESSAGE_RING_BYTES as u64 / 8;
// Two bytes name any word of it.
const _: () = assert!(RING_WORDS == 1 << 16);

struct World {
    reader_side: Mailboxes,
    writer_side: Mailboxes,
    writer: RingWriter,
    reader: RingReader,
    /// Whether the peer kept to the protocol so far, and what it has sent that was not read.
    honest: bool,
    sent: VecDeque<(usize, usize)>,
    count: usize,
    frame: FrameBuffer,
    payload: Vec<u64>,
    reported: u64,
    /// Where the reader looks next, and which sequence it waits for.
    at: usize,
    sequence: u32,
    head: usize,
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let how = input.u8();
    let ordered = how & 1 == 1;
    let whole = RingShape::of_messages(ordered);
    let laps = [RING_WORDS, LAP_NEAR, LAP_FAR, 1 + u64::from(how)];
    let shape = whole.in_laps(laps[usize::from(how >> 1 & 3)]);
    let reader_side = MAILBOXES.clone();
    let mut world = World {
        writer_side: reader_side.turned(),
        reader_side,
        writer: RingWriter::new(shape),
        reader: RingReader::new(shape),
        honest: true,
        sent: VecDeque::new(),
        count: 0,
        frame: FrameBuffer::default(),
        payload: Vec::new(),
        reported: 0,
        at: 0,
        sequence: 1,
        head: if ordered { 1 } else { 2 },
    };
    while !input.is_empty() && world.step(&mut input) {}
    world.writer_side.wipe();
    world.reader_side.wipe();
});

impl World {
    /// `false`: the connection has ended.
    fn step(&mut self, input: &mut Input<'_>) -> bool {
        match input.u8() % 5 {
            0 => self.push(usize::from(input.u16()) % (FRAME_BYTES_MAX / 8 - self.head + 1)),
            1 => self.pop(),
            // The peer of the reader, anywhere in the ring.
            2 => {
                let (at, word) = (usize::from(input.u16()), input.u64());
                self.honest = false;
                self.writer_side.post_write(PEER, mailbox_word::RING + at, &[word]).is_ok()
            }
            // The same, where the reader looks next and with the sequence it waits for.
            3 => {
                let count = i32::from(input.u16() as i16) as u32;
                self.honest = false;
                let indicator = u64::from(self.sequence) << 32 | u64::from(count);
                self.writer_side.post_write(PEER, mailbox_word::RING + self.at, &[indicator]).is_ok()
            }
            // The peer of the writer: what it says to have consumed.
            _ => {
                self.honest = false;
                self.reader_side.post_write(PEER, mailbox_word::CONSUMED, &[input.u64()]).is_ok()
            }
        }
    }

    fn push(&mut self, length: usize) -> bool {
        self.frame.clear();
        self.count += 1;
        let first = self.count % STARTS;
        self.frame.reserve(length).copy_from_slice(&NUMBERS[first..first + length]);
        match self.writer.push(&mut self.writer_side, PEER, &mut self.frame) {
            Ok(true) => self.sent.push_back((length, first)),
            // As large as it is, it fits once the reader has caught up.
            Ok(false) => assert!(!self.honest || !self.sent.is_empty(), "no room in an empty ring"),
            Err(fault) => {
                assert!(!self.honest, "{fault:?}");
                return false;
            }
        }
        true
    }

    fn pop(&mut self) -> bool {
        self.payload.clear();
        let ring = self.reader_side.own.clone();
        let ring = ring.words().part(mailbox_word::RING, RING_WORDS as usize);
        let jumps = ring.load(self.at) == u64::from(self.sequence) << 32 | u64::from(u32::MAX);
        let news = self.reader.has_news(&self.reader_side, PEER);
        let popped = self.reader.pop(&mut self.reader_side, PEER, &mut self.payload);
        assert!(news || popped == Ok(false), "taken without news");
        let reported = self.reader_side.other.words().load(mailbox_word::CONSUMED);
        if self.honest {
            let expected = self.sent.pop_front();
            assert_eq!(popped, Ok(expected.is_some()));
            if let Some((length, first)) = expected {
                assert!(self.payload == NUMBERS[first..first + length], "{length} words arrived otherwise");
            }
            assert!(reported >= self.reported && reported - self.reported <= RING_WORDS);
            self.reported = reported;
        }
        // Where the reader looks next, and what it left behind.
        if jumps && popped.is_ok() {
            (self.at, self.sequence) = (0, self.sequence + 1);
        }
        if popped == Ok(true) {
            let words = self.payload.len() + self.head;
            assert!(
                [0, words / 2, words - 1].iter().all(|word| ring.load(self.at + word) == 0),
                "not cleared"
            );
            (self.at, self.sequence) = ((self.at + words) % RING_WORDS as usize, self.sequence + 1);
        }
        assert!((self.payload.len() + self.head) * 8 <= FRAME_BYTES_MAX);
        popped.is_ok()
    }
}
