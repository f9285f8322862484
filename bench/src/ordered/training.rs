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

    fn counts(&self) -> Result<(f64, ModelCounts), String> {
        let (_, counts, models) = self.index.ordered_counts().next().ok_or("no ordered table")?;
        Ok((counts.leaves as f64 / models.sub_models as f64, models))
    }
}

fn no_room(_: NoRoom) -> String {
    "the image of the row `training` is too small".into()
}

/// The row.
pub(super) fn rows(size: &Size) -> Result<Vec<Row>, String> {
    training(size).map(|row| vec![row])
}

fn training(size: &Size) -> Result<Row, String> {
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
        let (mut times, mut all) = (Vec::new(), 0);
        for round in last.chunks(each) {
            let before = table.counts()?.1.trained;
            let took = round.chunks(STEP).map(|numbers| table.step(numbers)).sum::<Result<Duration, _>>()?;
            let trained = table.counts()?.1.trained - before;
            if trained > 0 {
                times.push(took.as_secs_f64() * 1e6 / trained as f64);
                all += trained;
            }
        }
        let leaves = table.counts()?.0;
        Ok::<_, String>((times, all, leaves))
    };
    let measured = measure();
    unpin();
    let (times, all, leaves) = measured?;
    if times.is_empty() {
        return Err("no sub-model was trained anew".into());
    }
    let note = format!(
        "{all} sub-models of {leaves:.0} leaves, with their translation tables, while keys are put {STEP} at a time; {} rounds",
        times.len()
    );
    let name = "training a sub-model";
    Ok(figure("training", name, median(&times), "us", (Sense::AtMost, 2.0), &note))
}
