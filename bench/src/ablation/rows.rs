//! The rows about messages, reads of the index, and mixes of gets and puts.

use kelix::{Path, SessionOptions};

use super::client::{Client, counts, with_and_without};
use crate::baselines::{Caller, Place, Way, handed_over, over_socket};
use crate::store::{Numbers, Store, memory_for};
use kelix_report::interleave::compare;
use kelix_report::report::Row;

/// Operations that are asked for at once.
const BATCH: usize = 64;
/// Records that are asked for, in turn.
const SAMPLES: usize = 1 << 18;

/// Rows against a baseline: identifier and name, one record at a time and many at once.
type Names = [(&'static str, &'static str); 2];

const RINGS: Names = [
    ("ring_messages", "puts and gets by message: rings in shared memory / a Unix socket"),
    ("ring_messages_batch", "the same, 64 at once"),
];
const RINGS_ONE_CORE: Names = [
    (
        "ring_one_core",
        "puts and gets by message: rings in shared memory / a Unix socket with both ends on one core",
    ),
    ("ring_one_core_batch", "the same, 64 at once"),
];
const ONE_THREAD: Names = [
    ("single_thread", "puts and gets by message: one thread polls and executes / one hands on to another"),
    ("single_thread_batch", "the same, 64 at once"),
];

fn options(path: Path) -> SessionOptions {
    SessionOptions::default().path(path)
}

/// Messages through rings, executed by the thread that finds them: against a socket, and against two threads.
/// Each record is put, and got by message.
pub(super) fn messages(store: &Store) -> Result<Vec<Row>, String> {
    let memory_bytes = memory_for(store.records);
    let mut rows = Vec::new();
    for (place, ids) in [(Place::Core(store.cores - 1), RINGS), (Place::CallersCore, RINGS_ONE_CORE)] {
        let mut socket = over_socket(memory_bytes, place)?;
        rows.extend(beside(store, &mut socket, ids, "HydraDB: 1.75 x over Send/Recv (figure 10 d); ")?);
    }
    let mut handed = handed_over(memory_bytes, store.cores)?;
    rows.extend(beside(store, &mut handed, ONE_THREAD, "HydraDB: 1.87 x over its pipeline (figure 10 d); ")?);
    Ok(rows)
}

/// A session beside a baseline, one record at a time and in batches.
fn beside<W: Way>(
    store: &Store,
    baseline: &mut Caller<W>,
    [(one, one_name), (many, many_name)]: Names,
    theirs: &str,
) -> Result<Vec<Row>, String> {
    let (rounds, walk) = (store.rounds, store.walk);
    let wanted = Numbers(4).records(store.records, SAMPLES);
    baseline.load(store.records, walk);
    let mut client = Client::open(store, options(Path::Message), Vec::new())?;
    let mut rows = Vec::new();
    for (id, name, batch) in [(one, one_name, 1), (many, many_name, BATCH)] {
        let (mut ours, mut other) = (wanted.chunks(batch).cycle(), wanted.chunks(batch).cycle());
        let before = client.cost();
        let mut ask = || match ours.next().expect("some") {
            [record] => client.put_and_get(*record),
            records => client.put_and_get_many(records),
        };
        let comparison = compare(rounds, &mut ask, &mut || {
            let records = other.next().expect("some");
            baseline.put(records, walk);
            baseline.get(records);
            2 * records.len() as u64
        });
        let cost = client.cost().since(before);
        let note = format!("{theirs}{} READs, {} messages; ", cost.reads, cost.messages);
        rows.push(with_and_without(id, name, comparison, &note));
    }
    Ok(rows)
}

/// One-sided gets through the index, against gets by message.
pub(super) fn index(store: &Store) -> Result<Row, String> {
    let client = |path| Client::open(store, options(path), Numbers(5).records(store.records, SAMPLES));
    let (mut ours, mut other) = (client(Path::Index)?, client(Path::Message)?);
    let comparison = compare(store.rounds, &mut || ours.get(), &mut || other.get());
    let note =
        format!("HydraDB sends a message where it knows no pointer; {}", counts(ours.cost(), other.cost()));
    let name = "gets in shared memory: through the index / by message";
    Ok(with_and_without("index_reads", name, comparison, &note))
}

/// A mix: its row, how many of a hundred operations are gets, whether keys are drawn by Zipf, and what
/// HydraDB's gets by cached pointer bring there.
struct Mix {
    id: &'static str,
    name: &'static str,
    gets: u64,
    zipf: bool,
    theirs: &'static str,
}

const fn mix(id: &'static str, name: &'static str, gets: u64, zipf: bool, theirs: &'static str) -> Mix {
    Mix { id, name, gets, zipf, theirs }
}

/// HydraDB tells no figures of its even mixes.
const SMALLER: &str = "HydraDB: less than with Zipf, no figure given";

const MIXES: [Mix; 6] = [
    mix("mix_50_uniform", "50 % gets, uniform: one-sided gets / by message", 50, false, SMALLER),
    mix("mix_90_uniform", "90 % gets, uniform: one-sided gets / by message", 90, false, SMALLER),
    mix("mix_100_uniform", "gets only, uniform: one-sided gets / by message", 100, false, SMALLER),
    mix(
        "mix_50_zipf",
        "50 % gets, Zipf: one-sided gets / by message",
        50,
        true,
        "HydraDB: 1.10 x (figure 10 a)",
    ),
    mix(
        "mix_90_zipf",
        "90 % gets, Zipf: one-sided gets / by message",
        90,
        true,
        "HydraDB: 1.14 x (figure 10 b)",
    ),
    mix(
        "mix_100_zipf",
        "gets only, Zipf: one-sided gets / by message",
        100,
        true,
        "HydraDB: 1.30 x (figure 10 c)",
    ),
];

/// HydraDB's six mixes in shared memory, with one-sided gets and without.
pub(super) fn mixes(store: &Store) -> Result<Vec<Row>, String> {
    MIXES.iter().map(|mix| mixed(store, mix)).collect()
}

fn mixed(store: &Store, mix: &Mix) -> Result<Row, String> {
    let mut numbers = Numbers(6);
    let wanted = if mix.zipf {
        numbers.popular(store.records, SAMPLES)
    } else {
        numbers.records(store.records, SAMPLES)
    };
    // Which operations are gets is drawn before, too.
    let gets: Vec<bool> =
        Numbers(7).records(100, SAMPLES).into_iter().map(|number| number < mix.gets).collect();
    let turn = |client: &mut Client, at: &mut usize| {
        let get = gets[*at];
        *at = (*at + 1) % gets.len();
        if get { client.get() } else { client.put() }
    };
    let mut ours = Client::open(store, options(Path::Auto), wanted.clone())?;
    let mut other = Client::open(store, options(Path::Message), wanted)?;
    let (mut a, mut b) = (0, 0);
    let comparison = compare(store.rounds, &mut || turn(&mut ours, &mut a), &mut || turn(&mut other, &mut b));
    let note = format!("{}; {}", mix.theirs, counts(ours.cost(), other.cost()));
    Ok(with_and_without(mix.id, mix.name, comparison, &note))
}
