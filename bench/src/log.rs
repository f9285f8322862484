//! `kelix bench log`: what it costs a shard to be followed, and its follower to follow.
//!
//! A shard is driven by the thread that measures, so that no figure has another thread's time in it: requests
//! go into its rings, it steps, answers are taken out.

use std::time::{Duration, Instant};

use kelix_image::{Header, ImageConfig, MemoryMap, PrivateSegments, Span};
use kelix_log::{Lag, Reader, Record};
use kelix_report::Report;
use kelix_report::cores::{pin, unpin};
use kelix_report::interleave;
use kelix_report::report::{Row, Sense, compared};
use kelix_shard::{ClientParameters, Follower, Now, Shard, ShardConfig};
use kelix_types::limits::{EPOCH_NS, SEGMENT_BYTES_FIRST, VIEW_LEASE_NS, segment_bytes_max};
use kelix_types::{Incarnation, TableId};
use kelix_wire::mailboxes::{Mailboxes, PEER};
use kelix_wire::{
    FrameBuffer, Op, Reply, RequestHead, RingReader, RingShape, RingWriter, Status, View, encode_request,
};

use crate::Options;
use crate::store::{Walk, key_of, memory_for};

/// Requests of a step: as many as a batch of puts has under way.
const BATCH: u64 = 64;
/// Pairs of blocks. A small run is a check that all works, not a measurement.
const FULL: usize = 61;
const SMALL: usize = 3;
const FULL_RECORDS: u64 = 50_000;
const VALUE_BYTES: usize = 32;
const KEY_BYTES: usize = 16;
const TABLE: TableId = TableId(1);
/// Batches that the follower applies for each pair of blocks.
const BATCHES_APPLIED: usize = 200;
const LET_GO: &str = "the follower was let go";

/// A shard and its only client, in one thread.
struct Driven {
    shard: Shard,
    shard_side: Mailboxes,
    client_side: Mailboxes,
    writer: RingWriter,
    reader: RingReader,
    frame: FrameBuffer,
    walk: Walk,
    records: u64,
    record: u64,
    began: Instant,
}

impl Driven {
    fn new(records: u64) -> Result<Driven, String> {
        let memory_bytes = memory_for(records);
        let image = ImageConfig {
            image_id: 1,
            hash_seed: 42,
            term: 1,
            incarnation: Incarnation::first_of_term(1),
            epoch_ns: EPOCH_NS,
            epoch_ns_usual: EPOCH_NS,
            memory_bytes,
            segment_bytes_first: SEGMENT_BYTES_FIRST,
            segment_bytes_max: segment_bytes_max(memory_bytes),
            keeps_journal: false,
        };
        let view = View::of_shards(1, 42, 1);
        let config = ShardConfig { number: 0, view, image, view_lease_ns: VIEW_LEASE_NS, is_cache: false };
        let header = Span::private(Header::BYTES);
        let shard = Shard::create(config, header, Box::new(PrivateSegments::default()));
        let mut shard = shard.map_err(|error| error.to_string())?;
        let parameters =
            ClientParameters { ordered_placement: true, connection: 1, caller: None, may_write: true };
        shard.join(PEER, parameters);
        let shard_side = Mailboxes::new();
        let client_side = shard_side.turned();
        let mut driven = Driven {
            shard,
            shard_side,
            client_side,
            writer: RingWriter::new(RingShape::of_messages(true)),
            reader: RingReader::new(RingShape::of_messages(true)),
            frame: FrameBuffer::default(),
            walk: Walk::over(records),
            records,
            record: 0,
            began: Instant::now(),
        };
        for _ in 0..records.div_ceil(BATCH) {
            driven.put_batch()?;
        }
        Ok(driven)
    }

    /// Puts a batch of items of 16 and 32 bytes, and takes their answers.
    fn put_batch(&mut self) -> Result<u64, String> {
        for _ in 0..BATCH {
            self.record = (self.record + self.walk.step_of(1)) % self.records;
            let value = [self.record as u8; VALUE_BYTES];
            encode_request(
                &mut self.frame,
                RequestHead::new(Op::Put, 0, TABLE),
                &key_of(self.record),
                &value,
            );
            let pushed = self.writer.push(&mut self.client_side, PEER, &mut self.frame);
            if pushed != Ok(true) {
                return Err(format!("a request found no room: {pushed:?}"));
            }
        }
        let now_ns = self.began.elapsed().as_nanos() as u64;
        self.shard_side.now_ns = now_ns;
        let progress = self.shard.step(Now { monotonic_ns: now_ns, wall_ns: now_ns }, &mut self.shard_side);
        if progress.requests as u64 != BATCH {
            return Err(format!("{} of {BATCH} requests were taken", progress.requests));
        }
        let mut payload = Vec::new();
        for _ in 0..BATCH {
            let popped = self.reader.pop(&mut self.client_side, PEER, &mut payload);
            let status = Reply::parse(&payload).map(|reply| reply.head.status);
            if popped != Ok(true) || status != Some(Status::Ok) {
                return Err(format!("a put was answered {status:?}"));
            }
        }
        Ok(BATCH)
    }

    /// A follower with what there is now.
    fn follower(&mut self) -> Result<(Follower, Reader), String> {
        let text = |error: kelix_types::Error| error.to_string();
        let reader = self.shard.follow(Lag::Wait);
        let (books, kept) = (self.shard.image().books(), self.shard.kept());
        let source = Box::new(PrivateSegments::default());
        let mut follower =
            Follower::of_books(source, u64::MAX, (&books, &kept), self.shard.sequence()).map_err(text)?;
        for (place, bytes) in self.shard.image().stretches() {
            copy(self.shard.image().map(), &mut follower, place, bytes);
        }
        Ok((follower, reader))
    }
}

fn copy(map: &MemoryMap, follower: &mut Follower, place: kelix_types::Place, bytes: u64) {
    let mut words = vec![0; (bytes / 8) as usize];
    map.words(place, words.len()).expect("a stretch of the image").copy_out(0, &mut words);
    follower.copy(place, &words);
}

/// Applies the records in these words, and says how many these were.
fn apply(follower: &mut Follower, words: &[u64]) -> Result<u64, String> {
    let (mut rest, mut count) = (words, 0);
    while let Some((record, behind)) = Record::split(rest).map_err(|error| error.to_string())? {
        follower.apply(&record).map_err(|error| error.to_string())?;
        (rest, count) = (behind, count + 1);
    }
    Ok(count)
}

/// A row of a number that was counted or computed.
fn figure(
    id: &'static str,
    name: &'static str,
    ours: f64,
    ratio: f64,
    wanted: Option<f64>,
    note: String,
) -> Row {
    let (id, name) = (id.into(), name.into());
    Row { id, name, ours, other: None, unit: "bytes", ratio, wanted, sense: Sense::AtMost, note }
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> Result<Report, String> {
    let records = options.records.unwrap_or(1_000_000);
    let rounds = if records < FULL_RECORDS { SMALL } else { FULL };
    pin(0);
    let measured = measure(records, rounds);
    unpin();
    Ok(Report::new("log", records, measured?))
}

fn measure(records: u64, rounds: usize) -> Result<Vec<Row>, String> {
    let (mut followed, mut alone) = (Driven::new(records)?, Driven::new(records)?);
    let mut reader = followed.shard.follow(Lag::Wait);
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
        apply(&mut follower, &words)?;
        applying += began.elapsed();
    }
    follower.compare(&alone.shard)?;
    let put = interleave::compared(&times[0], &times[1]);
    let apply_ns = applying.as_nanos() as f64 / applied as f64;
    let bytes = told_words as f64 * 8.0 / puts as f64;
    let item_bytes = (KEY_BYTES + VALUE_BYTES) as f64;
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
        figure(
            "stream_bytes",
            "bytes that followers are told of a put / bytes of key and value",
            bytes,
            bytes / item_bytes,
            Some(3.2),
            format!("a record each {BATCH} puts; each replaces an item"),
        ),
    ])
}
