//! How many gets need the shard while another client writes: counted, in shared memory and over TCP.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kelix::{FabricChoice, Path, TableKind};

use super::keys;
use super::rpc::New;
use super::tree::{Reader, Tree, key_of, text, value_of};
use super::{Size, figure};
use crate::store::Numbers;
use kelix_report::report::{Row, Sense};

/// Gets of a row in shared memory, and over TCP.
const GETS: usize = 400_000;
const GETS_TCP: usize = 20_000;

/// What is written meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writes {
    None,
    /// New keys among the others.
    Uniform,
    /// New keys behind all others, where reads go too.
    Latest,
    /// Other values of keys that are there.
    Updates,
}

/// The mixes: what is written, of a hundred operations so many, and what is wanted.
const MIXES: [(&str, Writes, u64, f64); 4] = [
    ("read_only", Writes::None, 0, 0.0),
    ("uniform", Writes::Uniform, 5, 0.02),
    ("latest", Writes::Latest, 5, 0.10),
    ("ycsb_a", Writes::Updates, 50, 0.01),
];

/// The rows.
pub(super) fn rows(size: &Size) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for (name, writes, percent, wanted) in MIXES {
        for (fabric, infix, gets) in [(FabricChoice::Shm, "", GETS), (FabricChoice::Tcp, "tcp_", GETS_TCP)] {
            let gets = size.few(gets);
            let (share, inserts, reads) = share(size, writes, percent, fabric, gets)?;
            let note = format!("{gets} gets, {inserts} writes; {reads:.3} READs a get");
            let words = match writes {
                Writes::None => "nothing is written",
                Writes::Uniform => "5 % inserts among the keys",
                Writes::Latest => "5 % inserts behind the keys, gets of the latest by Zipf",
                Writes::Updates => "YCSB A, Zipf",
            };
            let name_of = format!("gets that need the shard over {fabric:?}: {words}");
            let (id, limit) = (format!("fallbacks_{infix}{name}"), (Sense::AtMost, wanted));
            rows.push(figure(id, name_of, share, "of all gets", limit, &note));
        }
    }
    Ok(rows)
}

/// What both threads know of each other.
#[derive(Default)]
struct Progress {
    gets: AtomicU64,
    writes: AtomicU64,
    done: AtomicBool,
}

/// The share of gets that sent a message, how many writes there were, and READs a get.
fn share(
    size: &Size,
    writes: Writes,
    percent: u64,
    fabric: FabricChoice,
    gets: usize,
) -> Result<(f64, u64, f64), String> {
    let numbers: Vec<u64> = match writes {
        Writes::Latest => keys::numbers("linear", size.records),
        _ => (0..size.records).map(super::rpc::number_of).collect(),
    };
    let tree = Tree::of_numbers(TableKind::Inline, &numbers)?;
    let (mut reader, mut writer) = (tree.reader(fabric, Path::Auto)?, tree.here(Path::Auto)?);
    // Popular numbers stand all over the table, as their hashes do with YCSB.
    let mut scattered = numbers.clone();
    keys::shuffle(&mut scattered, 51);
    let ranks = match writes {
        Writes::None | Writes::Uniform => Numbers(52).records(size.records, gets),
        Writes::Latest | Writes::Updates => Numbers(52).popular(size.records, gets),
    };
    let updated = match writes {
        Writes::Updates => Numbers(53).popular(size.records, gets),
        _ => vec![0],
    };
    let (progress, new) = (Progress::default(), New::between(size.records));
    // Whatever copies there are have been made before.
    numbers
        .iter()
        .step_by(numbers.len().div_ceil(1000))
        .try_for_each(|number| reader.get(*number).map(drop))?;
    let write = |writer: &mut Reader, at: u64| {
        let number = match writes {
            Writes::Uniform => new.take(1)[0],
            Writes::Latest => (size.records + at) * 16,
            _ => scattered[updated[at as usize % updated.len()] as usize],
        };
        let value = value_of(number, at);
        writer.session.put(writer.table, &key_of(number), &value.to_le_bytes()).map(drop).map_err(text)
    };
    let before = reader.session.cost();
    std::thread::scope(|scope| {
        let progress = &progress;
        let other = scope.spawn(move || {
            // SYNC: acquire of `gets` pairs with the reader's release; the count alone matters.
            while percent > 0 && !progress.done.load(Ordering::Acquire) {
                let at = progress.writes.load(Ordering::Relaxed);
                if at * (100 - percent) >= progress.gets.load(Ordering::Acquire) * percent {
                    std::thread::yield_now();
                    continue;
                }
                write(&mut writer, at)?;
                // SYNC: release for the reader's acquire: what was put is there when it is counted.
                progress.writes.store(at + 1, Ordering::Release);
            }
            Ok::<_, String>(())
        });
        let mut read = || {
            for (at, rank) in ranks.iter().enumerate() {
                // SYNC: acquire pairs with the writer's release.
                let written = progress.writes.load(Ordering::Acquire);
                let number = match writes {
                    Writes::Latest => (size.records + written - 1 - rank) * 16,
                    Writes::Updates => scattered[*rank as usize],
                    _ => numbers[*rank as usize],
                };
                reader.get(number)?;
                progress.gets.store(at as u64 + 1, Ordering::Release);
                // The writer keeps its share although it is slower.
                while percent > 0 && written_too_few(progress, percent) && !other.is_finished() {
                    std::thread::yield_now();
                }
            }
            Ok::<_, String>(())
        };
        let outcome = read();
        progress.done.store(true, Ordering::Release);
        let written = other.join().expect("a writer does not panic");
        outcome.and(written)
    })?;
    let cost = reader.session.cost().since(before);
    let each = |count: u64| count as f64 / gets as f64;
    Ok((each(cost.messages), progress.writes.into_inner(), each(cost.reads)))
}

/// Whether the writer is more than a few writes behind.
fn written_too_few(progress: &Progress, percent: u64) -> bool {
    let writes = progress.writes.load(Ordering::Acquire) + 8;
    writes * (100 - percent) < progress.gets.load(Ordering::Relaxed) * percent
}
