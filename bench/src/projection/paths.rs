//! The ways to an item, each done by real sessions: counted over TCP through a tap, and timed in shared
//! memory.

use std::time::{Duration, Instant};

use kelix::{Address, Client, Path, Scan, Session, SessionOptions, Table, Values};

use super::model::Work;
use super::tap::{Counts, Tap};
use super::{processor, verbs};
use crate::store::Store;

/// Keys of a batch over TCP, and of one while processor times are taken, so that the shard seldom waits.
pub(super) const BATCH: usize = 64;
pub(super) const BUSY_BATCH: usize = 1024;
/// For how long something that was sent may be on its way to the tap.
const PATIENCE: Duration = Duration::from_secs(10);
/// Rows of a scan.
pub(super) const ROWS: u64 = 100;

pub(super) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A way to an item, and what it costs.
pub(super) struct Way {
    pub id: &'static str,
    pub name: &'static str,
    /// Operations of a call.
    pub batch: usize,
    /// What one of them costs.
    pub work: Work,
}

impl Way {
    pub fn one(id: &'static str, name: &'static str, work: Work) -> Way {
        Way { id, name, batch: 1, work }
    }
}

/// A session through a tap.
pub(super) struct Tapped {
    pub session: Session,
    pub table: Table,
    tap: Tap,
}

impl Tapped {
    /// A session with a table of a store.
    pub fn open(store: &Store, table: &str, path: Path) -> Result<Tapped, String> {
        let file = store.directory.join("tcp");
        let server =
            std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let tap = Tap::before(server.trim())?;
        let client = Client::connect(Address::Tcp(tap.address())).map_err(text)?;
        let options = SessionOptions::default().path(path).private_caches(true);
        let mut session = client.session_with(options).map_err(text)?;
        let table = session.table(table).map_err(text)?;
        Ok(Tapped { session, table, tap })
    }

    /// What `run` costs, which says how many operations it does. It runs twice and counts the second time,
    /// when pointers and models are here.
    pub fn count(
        &mut self,
        mut run: impl FnMut(&mut Tapped) -> Result<usize, String>,
    ) -> Result<Work, String> {
        let begun = (self.tap.counts(), self.session.cost());
        run(self)?;
        let before = self.settled(begun);
        let cost = self.session.cost();
        let operations = run(self)?;
        let counted = self.settled((before, cost)).since(before);
        let cost = self.session.cost().since(cost);
        check(counted, cost)?;
        Ok(verbs::work(counted, operations))
    }

    /// What has passed the tap, once all has that the session has sent since then: what nobody waits for, as
    /// a repair of a link, may still be on its way.
    fn settled(&self, (counts, cost): (Counts, kelix::Cost)) -> Counts {
        let (began, sent) = (Instant::now(), self.session.cost().since(cost).messages);
        loop {
            let passed = self.tap.counts();
            if passed.since(counts).requests >= sent || began.elapsed() > PATIENCE {
                return passed;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What the session has counted has to be what has passed the tap.
fn check(counted: Counts, cost: kelix::Cost) -> Result<(), String> {
    let same = counted.reads == cost.reads
        && counted.read_words * 8 == cost.read_bytes
        && counted.requests == cost.messages;
    match same {
        true => Ok(()),
        false => Err(format!("the session counted {cost:?}, and on the wire were {counted:?}")),
    }
}

/// A session in shared memory, for processor times.
pub(super) struct Timed {
    pub session: Session,
    pub table: Table,
    pub values: Values,
}

impl Timed {
    pub fn open(store: &Store, table: &str, path: Path) -> Result<Timed, String> {
        let options = SessionOptions::default().path(path).private_caches(true);
        let mut session = store.client.session_with(options).map_err(text)?;
        let table = session.table(table).map_err(text)?;
        Ok(Timed { session, table, values: Values::new() })
    }

    /// Gets keys in batches.
    pub fn get_in_batches<K: AsRef<[u8]>>(&mut self, keys: &[K]) -> Result<u64, String> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        for keys in keys.chunks(BUSY_BATCH) {
            self.session.multi_get_into(self.table, keys, &mut self.values).map_err(text)?;
            if let Some(missing) = (0..keys.len()).find(|index| self.values.get(*index).is_none()) {
                return Err(format!("{:?} is absent", keys[missing]));
            }
        }
        Ok(keys.len() as u64)
    }

    /// What an operation takes of client and shard.
    pub fn time(
        &mut self,
        mut run: impl FnMut(&mut Timed) -> Result<u64, String>,
    ) -> Result<processor::Times, String> {
        processor::of(|| run(self))
    }
}

/// A scan of [`ROWS`] from a key on.
pub(super) fn scan_from(key: &[u8]) -> Scan {
    Scan::all().range(key..).limit(ROWS)
}

/// Work with processor times: of the shard only where it is asked.
pub(super) fn with_times(work: Work, times: &processor::Times) -> Work {
    let server_ns = if work.message_rounds > 0.0 { times.shard_ns } else { 0.0 };
    Work { server_ns, client_ns: times.client_ns, ..work }
}
