//! What it takes the shard to train a sub-model: the index of an ordered table on an image of its own, driven
//! as a shard does.

use std::time::{Duration, Instant};

use kelix_fabric::shm::{Memfd, MemfdSegments};
use kelix_image::{Header, Image, ImageConfig, NoRoom};
use kelix_index::{Index, ModelCounts};
use kelix_types::limits::{EPOCH_NS, SEGMENT_BYTES_FIRST};
use kelix_types::{TableId, TableKind};

use super::tree::{LOAD_ORDER, key_of, text, value_of};
use super::{Size, figure, keys};
use kelix_report::cores::{pin, unpin};
use kelix_report::interleave::median;
use kelix_report::report::{Row, Sense};

const TABLE: TableId = TableId::new(TableKind::Inline, 1);
/// Keys that are put between two looks for what is to be trained: what a shard takes in one step at most.
const STEP: usize = 64;
/// Steps of a round.
const STEPS: usize = 32;
/// Memory for one key, and the least.
const KEY_BYTES: u64 = 288;
const MEMORY_BYTES_MIN: u64 = 256 << 20;

/// A table without a shard.
struct Trained {
    image: Image,
    index: Index,
    now_ns: u64,
}

impl Trained {
    fn new(keys: u64) -> Result<Trained, String> {
        let memory_bytes = (keys * KEY_BYTES).max(MEMORY_BYTES_MIN);
        let config = ImageConfig {
            image_id: 1,
            hash_seed: 1,
            term: 1,
            incarnation: kelix_types::Incarnation::first_of_term(1),
            epoch_ns: EPOCH_NS,
            epoch_ns_usual: EPOCH_NS,
            memory_bytes,
            segment_bytes_first: SEGMENT_BYTES_FIRST,
            segment_bytes_max: SEGMENT_BYTES_FIRST,
            keeps_journal: false,
        };
        let (_, header) = Memfd::create("kelix-training", Header::BYTES, true).map_err(text)?;
        let mut image = Image::create(config, header, Box::new(MemfdSegments::default())).map_err(text)?;
        let index = Index::create(&mut image).map_err(no_room)?;
        Ok(Trained { image, index, now_ns: 1 })
    }

    /// Puts some keys, then trains what is to be trained. Returns how long that took.
    fn step(&mut self, numbers: &[u64]) -> Result<Duration, String> {
        let Trained { image, index, now_ns } = self;
        for number in numbers {
            let inserted = index.insert_ordered(image, (TABLE, &key_of(*number)), value_of(*number, 0));
            inserted.map_err(no_room)?;
        }
        let began = Instant::now();
        while index.maintain(image).map_err(no_room)? {}
        let took = began.elapsed();
        // What was given up may be used again.
        *now_ns += EPOCH_NS;
        image.advance_epoch(*now_ns, || *now_ns);
        Ok(took)
    }

    /// Gets so many keys, which are there, from the first of these on.
    fn get(&self, numbers: &[u64], count: usize) -> Result<(), String> {
        let table = self.index.ordered(TABLE).ok_or("no ordered table")?;
        for number in numbers.iter().cycle().take(count) {
            let found = table.find(&self.image, &key_of(*number)).ok_or("a key is missing")?;
            if found.second != value_of(*number, 0) {
                return Err(format!("key {number} has another's value"));
            }
        }
        Ok(())
    }

    fn counts(&self) -> Result<(f64, ModelCounts), String> {
        let (_, counts, models) = self.index.ordered_counts().next().ok_or("no ordered table")?;
        Ok((counts.leaves as f64 / models.sub_models as f64, models))
    }
}

fn no_room(_: NoRoom) -> String {
    "the image of the row `training` is too small".into()
}

/// Gets for each insertion, of operations of which a twentieth are insertions.
const GETS: usize = 19;

/// The rows: what it takes to train a sub-model, and what training leaves of the rate of operations of which a
/// twentieth are insertions.
pub(super) fn rows(size: &Size) -> Result<Vec<Row>, String> {
    let mut numbers = keys::numbers("noised", size.records);
    keys::shuffle(&mut numbers, LOAD_ORDER);
    // The last of them come when the others have been learnt.
    let each = STEP * STEPS;
    let (first, last) =
        numbers.split_at(numbers.len().saturating_sub(size.rounds * each).max(numbers.len() / 2));
    pin(0);
    let measure = || {
        let mut table = Trained::new(size.records)?;
        first.chunks(STEP).try_for_each(|numbers| table.step(numbers).map(drop))?;
        let (mut times, mut all, mut shares) = (Vec::new(), 0, Vec::new());
        for round in last.chunks(each) {
            let before = table.counts()?.1.trained;
            let began = Instant::now();
            let mut took = Duration::ZERO;
            for numbers in round.chunks(STEP) {
                took += table.step(numbers)?;
                table.get(&first[numbers[0] as usize % (first.len() / 2)..], GETS * numbers.len())?;
            }
            shares.push(1.0 - took.as_secs_f64() / began.elapsed().as_secs_f64());
            let trained = table.counts()?.1.trained - before;
            if trained > 0 {
                times.push(took.as_secs_f64() * 1e6 / trained as f64);
                all += trained;
            }
        }
        let leaves = table.counts()?.0;
        Ok::<_, String>((times, all, leaves, shares))
    };
    let measured = measure();
    unpin();
    let (times, all, leaves, shares) = measured?;
    if times.is_empty() {
        return Err("no sub-model was trained anew".into());
    }
    let note = format!(
        "{all} sub-models of {leaves:.0} leaves, with their translation tables, while keys are put {STEP} at a time; {} rounds",
        times.len()
    );
    let name = "training a sub-model";
    let training = figure("training", name, median(&times), "us", (Sense::AtMost, 2.0), &note);
    let note = format!(
        "time of {GETS} gets by the shard's own index and an insertion, of that with training; on the shard's thread; {} rounds",
        shares.len()
    );
    let name = "operations of which 5 % are insertions: with training / without";
    let inserts = figure("train_inserts", name, median(&shares), "", (Sense::AtLeast, 0.95), &note);
    Ok(vec![training, inserts])
}
