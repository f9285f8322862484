//! Us: a server in this process, and sessions.

use std::sync::Arc;

use kelix::{Cost, FabricChoice, Session, SessionOptions, Table, Values};
use kelix_server::ServerConfig;

use super::Setup;
use super::engine::{Client, Engine, run_all, start_of, text};
use super::rows::BATCH_BYTES;
use crate::store::{Store, verify};
use crate::workload::{Batch, Keyed, Prepared, Records, key};
use kelix_report::cores::{cores, pin_process};
use kelix_report::daemon::Transport;

/// A session, and where in the batches it is.
struct Caller {
    session: Session,
    table: Table,
    records: Records,
    batches: Arc<Prepared>,
    at: usize,
    values: Values,
    value: Vec<u8>,
}

impl Caller {
    fn get_one(&mut self, batch: Keyed<'_>) -> Result<(), String> {
        let (key, wanted) = batch.gets().next().expect("one");
        let found = self.session.get_into(self.table, key, &mut self.value).map_err(text)?;
        let same = found.is_some() && self.records.same(&self.value, wanted);
        if same { Ok(()) } else { Err(Keyed::wrong(key)) }
    }

    fn put_one(&mut self, batch: Keyed<'_>) -> Result<(), String> {
        let (key, value) = batch.puts().next().expect("one");
        self.session.put(self.table, key, value).map(drop).map_err(text)
    }

    fn get_and_put(&mut self, batch: Keyed<'_>) -> Result<(), String> {
        let keys: Vec<&[u8]> = batch.gets().map(|(key, _)| key).collect();
        let items: Vec<(&[u8], &[u8])> = batch.puts().collect();
        let results = self.session.multi_get_put(self.table, &keys, &mut self.values, &items);
        for result in results.map_err(text)? {
            result.map_err(text)?;
        }
        for (index, (key, wanted)) in batch.gets().enumerate() {
            if !self.values.get(index).is_some_and(|value| self.records.same(value, wanted)) {
                return Err(Keyed::wrong(key));
            }
        }
        Ok(())
    }
}

impl Client for Caller {
    fn run(&mut self, batches: usize, _: bool) -> Result<u64, String> {
        let all = self.batches.clone();
        let mut operations = 0;
        for _ in 0..batches {
            let batch = all.batch(self.at);
            let (gets, puts) = batch.counts();
            match (gets, puts) {
                (1, 0) => self.get_one(batch)?,
                (0, 1) => self.put_one(batch)?,
                _ => self.get_and_put(batch)?,
            }
            operations += (gets + puts) as u64;
            self.at = (self.at + 1) % all.len();
        }
        Ok(operations)
    }
}

/// Our server with its clients.
pub(super) struct Kelix {
    // Dropped before the store that they are sessions of.
    callers: Vec<Caller>,
    store: Store,
    records: Records,
    /// Operations since their cost was asked for last, and what all before had cost.
    operations: u64,
    before: Cost,
}

impl Kelix {
    pub fn start(setup: &Setup, records: Records) -> Result<Kelix, String> {
        let item = records.value_bytes as u64 + 128;
        let tcp = setup.transport == Transport::Tcp;
        // What each client is about to put, and what that took the place of, stands beside the records for a
        // while.
        let under_way = setup.clients as u64 * 4 * item.max(BATCH_BYTES as u64);
        let config = ServerConfig {
            memory_bytes: (records.count * item * 3 / 2).max(256 << 20) + under_way,
            shards: setup.threads,
            listen: tcp.then(|| (std::net::Ipv4Addr::LOCALHOST, 0).into()),
            ..ServerConfig::default()
        };
        let store = Store::start("peers", config)?;
        let fabric = if tcp { FabricChoice::Tcp } else { FabricChoice::Shm };
        let call = |_| {
            let options = SessionOptions::default().fabric(fabric);
            let mut session = store.client.session_with(options).map_err(text)?;
            let table = session.table("records").map_err(text)?;
            let value = vec![0; records.value_bytes];
            let (batches, values) = (Arc::default(), Values::new());
            Ok::<_, String>(Caller { session, table, records, batches, at: 0, values, value })
        };
        let callers = (0..setup.clients).map(call).collect::<Result<_, _>>()?;
        Ok(Kelix { callers, store, records, operations: 0, before: Cost::default() })
    }
}

impl Engine for Kelix {
    fn name(&self) -> &'static str {
        "kelix"
    }

    fn prepare(&mut self, batches: &[Batch]) {
        let (prepared, clients) = (Arc::new(Prepared::new(batches, self.records)), self.callers.len());
        for (index, caller) in self.callers.iter_mut().enumerate() {
            caller.batches = prepared.clone();
            caller.at = start_of(index, clients, batches.len());
        }
    }

    fn run(&mut self, batches: usize, together: bool) -> Result<u64, String> {
        let operations = run_all(&mut self.callers, batches, together)?;
        self.operations += operations;
        Ok(operations)
    }

    fn follow(&mut self, record: u64) -> Result<u64, String> {
        let Caller { session, table, value, .. } = &mut self.callers[0];
        let found = session.get_into(*table, &key(record), value);
        found.map_err(text)?.ok_or("a loaded record is absent")?;
        self.operations += 1;
        Ok(verify(value, record))
    }

    fn take_cost(&mut self) -> Option<String> {
        let mut total = Cost::default();
        self.callers.iter().for_each(|caller| total.add(caller.session.cost()));
        let cost = total.since(std::mem::replace(&mut self.before, total));
        let operations = std::mem::take(&mut self.operations).max(1) as f64;
        let each = |count: u64| count as f64 / operations;
        Some(format!(
            "{:.2} READs of {:.0} bytes, {:.2} messages",
            each(cost.reads),
            each(cost.read_bytes),
            each(cost.messages)
        ))
    }

    fn unpin(&mut self) {
        // The server's threads are in this process, and so are all clients.
        pin_process(std::process::id(), 0..cores());
    }

    fn memory_bytes(&mut self) -> u64 {
        self.store.memfd_bytes()
    }
}
