//! What it costs a shard to be followed, and its follower to follow.
//!
//! A shard is driven by the thread that measures, so that no figure has another thread's time in it: requests
//! go into its rings, it steps, answers are taken out.

use std::time::{Duration, Instant};

use kelix_image::{Header, PrivateSegments, Span};
use kelix_log::{Lag, Reader};
use kelix_report::cores::{pin, unpin};
use kelix_report::interleave;
use kelix_report::report::{Row, Sense, compared};
use kelix_shard::harness::Harness;
use kelix_shard::{Follower, Shard};
use kelix_types::TableId;
use kelix_types::limits::{SEGMENT_BYTES_FIRST, segment_bytes_max};
use kelix_wire::mailboxes::Mailboxes;
use kelix_wire::{FrameBuffer, Op, Reply, RequestHead, Status, encode_request};

use super::{BATCH, VALUE_BYTES, bytes_row};
use crate::store::{Walk, key_of, memory_for};

/// Pairs of blocks. A small run is a check that all works, not a measurement.
const FULL: usize = 61;
const SMALL: usize = 3;
const TABLE: TableId = TableId(1);
/// Batches that the follower applies for each pair of blocks.
const BATCHES_APPLIED: usize = 200;
const LET_GO: &str = "the follower was let go";

/// A shard, its only client, and what that puts.
struct Driven {
    harness: Harness,
    frame: FrameBuffer,
    walk: Walk,
    records: u64,
    record: u64,
    began: Instant,
}

impl Driven {
    fn new(records: u64) -> Result<Driven, String> {
        let memory_bytes = memory_for(records);
        let mut config = Harness::config(1, memory_bytes);
        config.image.segment_bytes_first = SEGMENT_BYTES_FIRST;
        config.image.segment_bytes_max = segment_bytes_max(memory_bytes);
        let (header, segments) = (Span::private(Header::BYTES), PrivateSegments::default());
        let shard = Shard::create(config, header.clone(), Box::new(segments.clone())).map_err(text)?;
        let mut driven = Driven {
            harness: Harness::of(shard, (header, segments), &Mailboxes::new()),
            frame: FrameBuffer::default(),
            walk: Walk::over(records),
            records,
            record: 0,
            began: Instant::now(),
        };
        for _ in 0..records.div_ceil(BATCH as u64) {
            driven.put_batch()?;
        }
        Ok(driven)
    }

    /// Puts a batch of items of 16 and 32 bytes, and takes their answers.
    fn put_batch(&mut self) -> Result<u64, String> {
        for _ in 0..BATCH {
            self.record = (self.record + self.walk.step_of(1)) % self.records;
            let (key, value) = (key_of(self.record), [self.record as u8; VALUE_BYTES]);
            encode_request(&mut self.frame, RequestHead::new(Op::Put, 0, TABLE), &key, &value);
            self.harness.push(&mut self.frame);
        }
        self.harness.now_ns = self.began.elapsed().as_nanos() as u64;
        let progress = self.harness.step();
        if progress.requests != BATCH {
            return Err(format!("{} of {BATCH} requests were taken", progress.requests));
        }
        let mut payload = Vec::new();
        for _ in 0..BATCH {
            let popped = self.harness.pop(&mut payload);
            let status = Reply::parse(&payload).map(|reply| reply.head.status);
            if !popped || status != Some(Status::Ok) {
                return Err(format!("a put was answered {status:?}"));
            }
        }
        Ok(BATCH as u64)
    }

    /// A follower with what there is now.
    fn follower(&mut self) -> Result<(Follower, Reader), String> {
        let shard = &mut self.harness.shard;
        let reader = shard.follow(Lag::Wait);
        let (image, kept) = (shard.image(), shard.kept());
        let source = Box::new(PrivateSegments::default());
        let begun = Follower::of_books(source, u64::MAX, (&image.books(), &kept), shard.sequence());
        let mut follower = begun.map_err(text)?;
        for (place, bytes) in image.stretches() {
            let mut words = vec![0; (bytes / 8) as usize];
            image.words(place, words.len()).copy_out(0, &mut words);
            follower.copy(place, &words);
        }
        Ok((follower, reader))
    }
}

fn text(error: kelix_types::Error) -> String {
    error.to_string()
}

/// The rows.
pub(super) fn rows(records: u64, is_full: bool) -> Result<Vec<Row>, String> {
    pin(0);
    let measured = measure(records, if is_full { FULL } else { SMALL });
    unpin();
    measured
}

fn measure(records: u64, rounds: usize) -> Result<Vec<Row>, String> {
    let (mut followed, mut alone) = (Driven::new(records)?, Driven::new(records)?);
    let mut reader = followed.harness.shard.follow(Lag::Wait);
    let (mut words, mut told_words, mut puts) = (Vec::new(), 0, 0);
    // What a follower does is done by another thread in earnest, and has a row of its own.
    let times = interleave::take_turns_but(rounds, 2, |side| {
        if side == 1 {
            return alone.put_batch().map(|count| (count, Duration::ZERO));
        }
        let count = followed.put_batch()?;
        let began = Instant::now();
        words.clear();
        told_words += reader.read(&mut words, usize::MAX).map_err(|_| LET_GO)?;
        puts += count;
        Ok::<_, String>((count, began.elapsed()))
    })?;
    drop(reader);
    let (mut follower, mut reader) = alone.follower()?;
    let (mut applying, mut applied) = (Duration::ZERO, 0);
    for _ in 0..times[0].len() * BATCHES_APPLIED {
        applied += alone.put_batch()?;
        words.clear();
        reader.read(&mut words, usize::MAX).map_err(|_| LET_GO)?;
        let began = Instant::now();
        follower.apply_all(&words).map_err(text)?;
        applying += began.elapsed();
    }
    follower.compare(&alone.harness.shard)?;
    let put = interleave::compared(&times[0], &times[1]);
    let apply_ns = applying.as_nanos() as f64 / applied as f64;
    let bytes = told_words as f64 * 8.0 / puts as f64;
    let note = format!("batches of {BATCH}; the shard's thread alone; ");
    Ok(vec![
        compared(
            "stream_put",
            "a put of a shard that is followed / of one that is not",
            "ns",
            1.15,
            put,
            &note,
        ),
        Row {
            id: "follower_apply".into(),
            name: "what the follower takes for it / the put of a shard that is not followed".into(),
            ours: apply_ns,
            other: Some(put.other_ns),
            unit: "ns",
            ratio: apply_ns / put.other_ns,
            wanted: Some(0.5),
            sense: Sense::AtMost,
            note: "one thread, in turn with the shard; what there is was compared in the end".to_string(),
        },
        bytes_row(
            "stream_bytes",
            "bytes that followers are told of a put / bytes of key and value",
            bytes,
            format!("a record each {BATCH} puts; each replaces an item"),
        ),
    ])
}
