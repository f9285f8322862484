//! The rows about hits of cached pointers, as in HydraDB's figure 11.

use kelix::{Path, SessionOptions};
use kelix_server::ServerConfig;

use super::client::Client;
use crate::store::{Numbers, Store, memory_for};
use kelix_report::report::{Row, Sense};

/// Clients of a side, which take turns in one thread.
const CLIENTS: usize = 10;
/// Operations that are counted, at most: as many as came before them.
const COUNTED: usize = 100_000;

/// A mix: how many of a hundred operations are gets, whether keys are drawn by Zipf, and what HydraDB says of
/// it.
struct Mix {
    gets: u64,
    zipf: bool,
    theirs: &'static str,
}

const ZIPF: &str = "HydraDB: hits fall by 75.5 % from 0 % to 50 % updates, Zipf (figure 11)";
const UNIFORM: &str = "HydraDB: fewer than with Zipf, no figure given (figure 11)";

const MIXES: [Mix; 6] = [
    Mix { gets: 100, zipf: false, theirs: UNIFORM },
    Mix { gets: 100, zipf: true, theirs: ZIPF },
    Mix { gets: 90, zipf: false, theirs: UNIFORM },
    Mix { gets: 90, zipf: true, theirs: ZIPF },
    Mix { gets: 50, zipf: false, theirs: UNIFORM },
    Mix { gets: 50, zipf: true, theirs: ZIPF },
];

/// What became of some gets.
#[derive(Clone, Copy, Default)]
struct Found {
    gets: u64,
    /// Those whose first READ, by a cached pointer, was of their item.
    hits: u64,
    /// Those that began with a pointer.
    by_pointer: u64,
    /// READs that were done again, and messages that gets had to send.
    invalid: u64,
    fallbacks: u64,
}

impl Found {
    /// So many gets, counted by what each has cost.
    ///
    /// Exactly one READ, none invalid and no message is a hit: without a pointer a get READs a bucket and an
    /// item at the least, and straight loads are counted as both. An invalid READ says that there was a
    /// pointer: nobody else works meanwhile, so what the index says is never out of date.
    fn note(&mut self, client: &mut Client) {
        let before = client.cost();
        client.get();
        let cost = client.cost().since(before);
        let hit = cost.reads == 1 && cost.retries == 0 && cost.messages == 0;
        self.gets += 1;
        self.hits += u64::from(hit);
        self.by_pointer += u64::from(hit || cost.retries > 0);
        self.invalid += cost.retries;
        self.fallbacks += cost.fallbacks;
    }

    fn of_1000_gets(self, count: u64) -> f64 {
        count as f64 * 1000.0 / self.gets as f64
    }

    fn words(self) -> String {
        format!(
            "{:.0} invalid READs, {:.0} gets by pointer, {} fallbacks",
            self.of_1000_gets(self.invalid),
            self.of_1000_gets(self.by_pointer),
            self.fallbacks
        )
    }
}

/// Clients of one half of the records, and which operations are gets.
struct Side {
    clients: Vec<Client>,
    gets: Vec<bool>,
    at: usize,
}

impl Side {
    /// Clients that keep their pointers to themselves or not, for so many operations. Each draws records of
    /// the half in an order of its own.
    fn open(store: &Store, mix: &Mix, private: bool, operations: usize) -> Result<Side, String> {
        let half = store.records / 2;
        let each = operations.div_ceil(CLIENTS);
        let options = SessionOptions::default().path(Path::Pointer).private_caches(private);
        let client = |seed| {
            let mut numbers = Numbers(seed);
            let drawn = if mix.zipf { numbers.popular(half, each) } else { numbers.records(half, each) };
            let wanted = drawn.into_iter().map(|record| u64::from(private) * half + record).collect();
            Client::open(store, options.clone(), wanted)
        };
        let clients = (0..CLIENTS as u64).map(client).collect::<Result<_, String>>()?;
        let percent = Numbers(100).records(100, operations);
        Ok(Side { clients, gets: percent.into_iter().map(|number| number < mix.gets).collect(), at: 0 })
    }

    /// So many operations, one of each client in turn.
    fn operate(&mut self, operations: usize) -> Found {
        let mut found = Found::default();
        for _ in 0..operations {
            let client = &mut self.clients[self.at % CLIENTS];
            if self.gets[self.at] {
                found.note(client);
            } else {
                client.put();
            }
            self.at += 1;
        }
        found
    }
}

/// Gets that hit by pointers that ten clients share, against pointers that each has for itself.
pub(super) fn rows(records: u64) -> Result<Vec<Row>, String> {
    MIXES.iter().map(|mix| row(records, mix)).collect()
}

fn row(records: u64, mix: &Mix) -> Result<Row, String> {
    // Of its own, so that pointers learnt in another row are not known in this one.
    let config = ServerConfig { memory_bytes: memory_for(records), ..ServerConfig::default() };
    let mut store = Store::start("hits", config)?;
    store.load(records)?;
    // HydraDB does as many operations as it has records.
    let before = records as usize / 2;
    let counted = before.min(COUNTED);
    let [ours, other] = [false, true].map(|private| {
        let mut side = Side::open(&store, mix, private, before + counted)?;
        side.operate(before);
        Ok::<_, String>(side.operate(counted))
    });
    let (ours, other) = (ours?, other?);
    let keys = if mix.zipf { "Zipf" } else { "uniform" };
    let (hits, other_hits) = (ours.of_1000_gets(ours.hits), other.of_1000_gets(other.hits));
    Ok(Row {
        id: format!("hits_{}_{}", mix.gets, keys.to_lowercase()).into(),
        name: format!("hits by cached pointers, {} % gets, {keys}: shared pointers / private", mix.gets)
            .into(),
        ours: hits,
        other: Some(other_hits),
        unit: "of 1000 gets",
        ratio: hits / other_hits,
        wanted: None,
        sense: Sense::AtLeast,
        note: format!(
            "{}; {} gets: {} against {}; after {before} operations that do not count, on {before} records a side",
            mix.theirs,
            ours.gets,
            ours.words(),
            other.words()
        ),
    })
}
