//! Model of a ring with ordered placement, on the endpoints of production: one writes, one reads, and both go
//! on until all has passed. Every frame arrives whole, once and in order, and none is taken while its words
//! still land. A frame or a report that is lost leaves a side looking for ever, which ends as too many
//! branches.

use super::*;
use kelix_fabric::shm::model::add_client;
use kelix_fabric::shm::{LocalEndpoint, SleepWord, Waker};
use kelix_image::model::loom::thread::yield_now;
use kelix_image::model::{explore, share, spawn};
use kelix_image::{Span, header_word};

const PEER: PeerId = PeerId(0);
/// A small ring, round which models go soon.
const SHAPE: RingShape = RingShape::new(32, true);

/// A ring from a writer to a reader, and the sizes of the frames that are in it.
struct World {
    reports: Span,
    ring: Span,
    writer: (LocalEndpoint, RingWriter),
    reader: (LocalEndpoint, RingReader),
    frames: Vec<u64>,
}

/// The payload of the frame of this number.
fn payload(number: usize, words: u64) -> Vec<u64> {
    (1..=words).map(|word| (number as u64 + 1) << 8 | word).collect()
}

fn push((fabric, writer): &mut (LocalEndpoint, RingWriter), number: usize, words: u64) -> bool {
    let mut frame = FrameBuffer::default();
    frame.clear();
    payload(number, words).iter().for_each(|word| frame.push(*word));
    writer.push(fabric, PEER, &mut frame).expect("the reader reports what can be")
}

/// Takes the frame of this number, whether or not it is there yet.
fn pop((fabric, reader): &mut (LocalEndpoint, RingReader), number: usize, words: u64) -> bool {
    let mut taken = Vec::new();
    let there = reader.pop(fabric, PEER, &mut taken).expect("the writer writes what can be");
    assert!(!there || taken == payload(number, words), "frame {number} arrived as {taken:x?}");
    there
}

impl World {
    fn new() -> World {
        World::of(SHAPE)
    }

    fn of(shape: RingShape) -> World {
        let header = Span::private(4096);
        let sleeps = SleepWord { span: header, word: header_word::SLEEPING };
        let [ring, reports] = [(), ()].map(|()| Span::private(shape.mailbox_bytes()));
        let mut reader = LocalEndpoint::new(Waker::create().unwrap());
        let (_, writer) = add_client(&mut reader, &sleeps, &ring, &reports);
        World {
            reports,
            ring,
            writer: (writer, RingWriter::new(shape)),
            reader: (reader, RingReader::new(shape)),
            frames: Vec::new(),
        }
    }

    /// Puts frames into the ring, before the model begins.
    fn fill(&mut self, frames: &[u64]) {
        for words in frames {
            assert!(push(&mut self.writer, self.frames.len(), *words));
            self.frames.push(*words);
        }
    }

    /// The writer adds `more` frames while the reader takes all of them. Returns how often each found nothing
    /// to do.
    fn run(self, shared: std::ops::Range<usize>, more: &[u64]) -> (u32, u32) {
        let World { reports, ring, mut writer, mut reader, frames } = self;
        share(reports.words().part(mailbox_word::CONSUMED, 1));
        share(ring.words().part(mailbox_word::RING + shared.start, shared.len()));
        let (first, more) = (frames.len(), more.to_vec());
        let all: Vec<u64> = frames.iter().chain(&more).copied().collect();
        let writer = spawn(move || {
            let mut waited = 0;
            for (index, words) in more.into_iter().enumerate() {
                while !push(&mut writer, first + index, words) {
                    waited += 1;
                    yield_now();
                }
            }
            waited
        });
        let reader = spawn(move || {
            let mut waited = 0;
            for (number, words) in all.into_iter().enumerate() {
                while !pop(&mut reader, number, words) {
                    waited += 1;
                    yield_now();
                }
            }
            assert!(!pop(&mut reader, usize::MAX, 0), "more arrived than was sent");
            waited
        });
        (writer.join().unwrap(), reader.join().unwrap())
    }
}

#[test]
fn frames_pass_whole_over_the_end_of_the_ring() {
    let outcomes = explore("frames over the end of the ring", 5, || {
        let mut world = World::new();
        world.fill(&[7, 7, 7]);
        (0..3).for_each(|number| assert!(pop(&mut world.reader, number, 7)));
        world.frames.clear();
        // From word 24 on: one of four words, a jump, one of six and one of two.
        world.run(0..32, &[3, 5, 1])
    });
    assert!(
        outcomes.keys().any(|(_, reader)| *reader == 0),
        "all was there before the reader looked: not met"
    );
    assert!(outcomes.keys().any(|(_, reader)| *reader == 3), "the reader waited for each: not met");
}

#[test]
fn what_was_reported_is_written_again() {
    let outcomes = explore("a full ring", 5, || {
        let mut world = World::new();
        world.fill(&[7, 7, 7, 7]);
        // Both find room where the first frame stood.
        world.run(0..8, &[3, 3])
    });
    assert!(outcomes.keys().any(|(writer, _)| *writer == 0), "room before the writer looked: not met");
    assert!(outcomes.keys().any(|(writer, _)| *writer > 0), "the writer waited for room: not met");
}

/// The writer goes back to the start while the reader takes what stands behind it, and never over what is not
/// consumed.
#[test]
fn a_lap_ends_where_the_start_is_free() {
    let outcomes = explore("laps", 5, || {
        let mut world = World::of(SHAPE.in_laps(8));
        world.fill(&[3, 3]);
        (0..2).for_each(|number| assert!(pop(&mut world.reader, number, 3)));
        world.frames.clear();
        // A jump to the start, two of four words, and one of three: there again, or behind them.
        world.run(0..16, &[3, 3, 2])
    });
    assert!(
        outcomes.keys().any(|(_, reader)| *reader == 0),
        "all was there before the reader looked: not met"
    );
    assert!(outcomes.keys().any(|(_, reader)| *reader > 0), "the reader waited: not met");
}
