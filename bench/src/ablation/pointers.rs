//! The rows about the pointer cache.

use kelix::{Cost, FabricChoice, Path, SessionOptions};

use super::client::{Client, counts, with_and_without};
use crate::store::{Numbers, Store};
use kelix_report::interleave::{Comparison, compare};
use kelix_report::report::{Row, Sense, as_rate};

/// Records that are asked for, in turn.
const SAMPLES: usize = 1 << 18;
/// Records of a batch while pointers are learnt.
const BATCH: u64 = 64;

/// Parts of the records, one for each host, so that what is written on behalf of one outdates no pointer of
/// another.
const PARTS: u64 = 4;
/// Readers of a host.
const READERS: usize = 10;
/// Turns before anything is counted, and those of which the invalid READs are counted: the same on both
/// sides.
const SETTLING: usize = 500;
const COUNTED: usize = 1000;
/// Gets of each reader before the next one's turn; as many puts follow when all had theirs.
const TURN: usize = 10;

/// Gets over TCP by a cached pointer, against gets through the index: one READ against two.
pub(super) fn cached(store: &Store) -> Result<Vec<Row>, String> {
    // So few that the pointer cache has them all, and so many that the processor's caches have not.
    let hot = store.records.min(100_000);
    let theirs = "HydraDB: 1.30 x over messages at best (figure 10 c), no gets through an index; ";
    [
        (
            "pointer_cache",
            "gets of a hot set over TCP: cached pointers / the index",
            Numbers(8).records(hot, SAMPLES),
        ),
        (
            "pointer_cache_zipf",
            "gets over TCP, Zipf: cached pointers / the index",
            Numbers(8).popular(store.records, SAMPLES),
        ),
    ]
    .into_iter()
    .map(|(id, name, wanted)| {
        let open = |path| {
            let options = SessionOptions::default().fabric(FabricChoice::Tcp).path(path);
            let mut client = Client::open(store, options, wanted.clone())?;
            // Pointers and the directory are known from here on.
            for first in (0..store.records).step_by(BATCH as usize) {
                client.get_many(&(first..store.records.min(first + BATCH)).collect::<Vec<_>>());
            }
            Ok::<_, String>((client.cost(), client))
        };
        let ((ours_before, mut ours), (other_before, mut other)) = (open(Path::Pointer)?, open(Path::Index)?);
        let comparison = compare(store.rounds, &mut || ours.get(), &mut || other.get());
        let counts = counts(ours.cost().since(ours_before), other.cost().since(other_before));
        Ok(with_and_without(id, name, comparison, &format!("{theirs}{counts}")))
    })
    .collect()
}

/// The readers of a host and a writer. Readers take turns in one thread.
struct Host {
    readers: Vec<Client>,
    writer: Client,
}

impl Host {
    /// A host with such readers and such a writer. They ask for the records of a part, each in an order of its
    /// own.
    fn open(
        store: &Store,
        part: u64,
        readers: SessionOptions,
        writer: SessionOptions,
    ) -> Result<Host, String> {
        let wanted = |seed| {
            let records = Numbers(seed).popular(store.records / PARTS, SAMPLES / READERS);
            records.into_iter().map(|record| part * (store.records / PARTS) + record).collect()
        };
        let readers = (0..READERS as u64).map(|seed| Client::open(store, readers.clone(), wanted(seed)));
        Ok(Host {
            readers: readers.collect::<Result<_, String>>()?,
            writer: Client::open(store, writer, wanted(READERS as u64))?,
        })
    }

    /// A turn of every reader and the writer.
    fn turn(&mut self) -> u64 {
        let gets: u64 =
            self.readers.iter_mut().map(|reader| (0..TURN).map(|_| reader.get()).sum::<u64>()).sum();
        gets + (0..TURN).map(|_| self.writer.put()).sum::<u64>()
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.turn();
        }
    }

    /// What the readers have cost.
    fn cost(&self) -> Cost {
        let mut total = Cost::default();
        self.readers.iter().for_each(|reader| total.add(reader.cost()));
        total
    }

    /// What so many turns cost the readers once they know their pointers.
    fn count(&mut self) -> Cost {
        self.turns(SETTLING);
        let before = self.cost();
        self.turns(COUNTED);
        self.cost().since(before)
    }
}

/// One cache of pointers for ten readers, against one for each.
pub(super) fn shared(store: &Store) -> Result<Vec<Row>, String> {
    let elsewhere = SessionOptions::default().path(Path::Message);
    let here = SessionOptions::default().path(Path::Pointer);
    [
        (
            0,
            "shared_pointers",
            "invalid READs of ten readers, writer elsewhere: shared pointers / private",
            elsewhere.clone(),
        ),
        (
            2,
            "shared_pointers_here",
            "invalid READs of ten readers, writer on their host: shared pointers / private",
            here,
        ),
    ]
    .into_iter()
    .map(|(part, id, name, writer)| {
        let readers = SessionOptions::default().path(Path::Pointer);
        Ok(Row {
            wanted: Some(1.0),
            ..invalid(store, (id, name), part, readers, [writer, elsewhere.clone()])?
        })
    })
    .collect()
}

/// Invalid READs of readers over TCP, where sessions put the pointers that they share on a shelf themselves.
pub(crate) fn shared_over_tcp(store: &Store) -> Result<Row, String> {
    let over_tcp = SessionOptions::default().fabric(FabricChoice::Tcp);
    let writer = over_tcp.clone().path(Path::Message);
    let name = "invalid READs of ten readers over TCP: shared pointers / private";
    let writers = [writer.clone(), writer];
    let row = invalid(store, ("shared_pointers_tcp", name), 0, over_tcp.path(Path::Pointer), writers)?;
    Ok(Row { wanted: Some(0.3), ..row })
}

/// A row of readers that share, on records of a part, and others that do not, on those of the next one; each with
/// a writer.
fn invalid(
    store: &Store,
    (id, name): (&'static str, &'static str),
    part: u64,
    readers: SessionOptions,
    [writer, others]: [SessionOptions; 2],
) -> Result<Row, String> {
    let mut ours = Host::open(store, part, readers.clone(), writer)?;
    let mut other = Host::open(store, part + 1, readers.private_caches(true), others)?;
    let costs = [ours.count(), other.count()];
    let comparison = as_rate(compare(store.rounds, &mut || ours.turn(), &mut || other.turn()));
    Ok(told(id, name, costs, comparison))
}

fn told(id: &'static str, name: &'static str, costs: [Cost; 2], comparison: Comparison) -> Row {
    let gets = COUNTED * READERS * TURN;
    let [ours, other] = costs.map(|cost| cost.retries as f64 * 1000.0 / gets as f64);
    Row {
        id: id.into(),
        name: name.into(),
        ours,
        other: Some(other),
        unit: "of 1000 gets",
        ratio: ours / other,
        wanted: None,
        sense: Sense::AtMost,
        note: format!(
            "HydraDB: no figure (section 4.2.4); {gets} gets: {}throughput {:.2} x, {}",
            counts(costs[0], costs[1]),
            comparison.ratio,
            comparison.spread()
        ),
    }
}
